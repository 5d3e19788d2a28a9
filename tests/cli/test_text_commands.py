"""Commands that use a trained run: `ramify evaluate`, `embed`, `fill-mask`, `report` and `tokenizer train`."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import ramify as package
from fixtures import built, chain, discussion
from fixtures import tokenizer as words
from ramify import Node, Tree
from ramify.inference.evaluation import Scores
from ramify.inference.held_out import CACHE_WEIGHTS, ancestor_words, cache_losses
from ramify.metrics import DEPTH_BINS
from ramify.runs.comment_trees import scores as comment_tree_scores
from ramify.tokenizer import Tokenizer

CONTEXTS = ("tree", "none", "parent", "root", "mismatched")

ASK = "ce [MASK] da, [MASK]"
TREE = Tree(
    (
        Node("ba be bi", id="post"),
        Node(ASK, parents=(0,), id="above"),
        Node("ha hi gu", parents=(0,), id="between"),
        Node(ASK, parents=(2,), id="below"),
        Node("", parents=(3,), id="silent"),
    ),
    id="asked",
)


@pytest.fixture
def trees_path(tmp_path):
    path = tmp_path / "asked.jsonl"
    path.write_text(Tree((Node("fe", id="other"),), id="before").to_json() + "\n" + TREE.to_json() + "\n")
    return path


# --- evaluate -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def evaluated(ramify, trained, store):
    def run(*more):
        status, out, err = ramify("evaluate", trained, "--data", store.path, "--json", *more)
        assert (status, err) == (0, "")
        return json.loads(out)

    return run


@pytest.mark.parametrize("name", ["run", "links"])
def test_runs_named_like_commands(ramify, trained, store, tmp_path, monkeypatch, name):
    shutil.copytree(trained, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    data = ("--data", store.path)
    ways = [(name, *data), (name, f"--data={store.path}"), ("run", name, *data), ("run", "--json", name, *data)]
    ways += [("run", *data, name)]
    for way in ways:
        status, out, err = ramify("evaluate", *way, "--json", "--draws", "1")
        assert (status, err) == (0, ""), way
        assert json.loads(out)["count"]


@pytest.mark.parametrize(
    "option", ["--no-starts", "--history=gold", "--beam=2", "--protocol=chunk50", "--set=task.threshold=1"]
)
def test_options_of_other_models_are_refused(ramify, trained, store, option):
    status, _, err = ramify("evaluate", trained, "--data", store.path, option)
    assert status == 2
    assert f"{option.partition('=')[0]} does not apply to" in err
    assert "a masked language model" in err


@pytest.mark.parametrize("context", CONTEXTS)
def test_evaluate_json_has_all_fields(evaluated, context):
    found = evaluated("--context", context)
    compared = set() if context == "tree" else {"own", "saved"}
    assert found.keys() == {"loss", "perplexity", "accuracy", "count", "by_depth", "by_class", "unknown_tokens"} | compared
    assert list(found["by_depth"]) == ["1", "2", "3-5", "6-10", "11-20", "21+"] == list(DEPTH_BINS)
    rows = found["by_depth"].values()
    assert all(row.keys() == {"loss", "accuracy", "count"} for row in rows)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-12)
    assert sum(row["count"] for row in rows) == found["count"] > 1000
    # The vocabulary of the test's data holds fewer pieces than count as function words.
    assert found["by_class"] == {
        "function words": {name: found[name] for name in ("loss", "accuracy", "count")} | {"share": 1.0}
    }
    for name in ("loss", "accuracy"):
        assert sum(row[name] * row["count"] for row in rows) == pytest.approx(found[name] * found["count"], rel=1e-12)
    assert abs(found["loss"] - math.log(80)) < 0.5
    assert 1 / 80 < found["accuracy"] < 0.5


def test_evaluate_scores_the_same_masks_in_every_context(evaluated):
    found = {context: evaluated("--context", context) for context in CONTEXTS}
    for context in CONTEXTS[1:]:
        own, saved = found[context]["own"], found[context]["saved"]
        assert own | {"unknown_tokens": 0} == {"context": "tree", **found["tree"]}
        assert list(saved) == ["all", *DEPTH_BINS, "function words"]
        assert all(each.keys() == {"value", "low", "high", "p"} for each in saved.values())
        assert saved["all"]["value"] == pytest.approx(found[context]["loss"] - own["loss"], abs=1e-9)
        rows = found[context]["by_depth"]
        assert saved["2"]["value"] == pytest.approx(rows["2"]["loss"] - own["by_depth"]["2"]["loss"], abs=1e-9)
        assert saved["all"]["low"] < saved["all"]["value"] < saved["all"]["high"]
    counts = [[row["count"] for row in each["by_depth"].values()] for each in found.values()]
    assert counts == [counts[0]] * 5
    assert len({each["loss"] for each in found.values()}) == 5
    # Comments at the top have no ancestor but their parent, the post.
    assert found["tree"]["by_depth"]["1"] == pytest.approx(found["parent"]["by_depth"]["1"], rel=1e-5)
    assert evaluated() == found["tree"]
    assert evaluated("--context", "mismatched") == found["mismatched"]


def test_evaluate_reads_the_test_trees(evaluated, store, tmp_path):
    found = evaluated("--save", tmp_path / "scores.npz")
    scores = Scores.load(tmp_path / "scores.npz")
    assert scores.trees == store.tree_ids(store.split("test"))
    assert scores.loss.sum() / scores.count.sum() == pytest.approx(found["loss"], rel=1e-12)
    counts = {split: evaluated("--split", split)["count"] for split in ("train", "dev", "test", "all")}
    assert counts["test"] == found["count"]
    assert counts["train"] + counts["dev"] + counts["test"] == counts["all"]
    assert evaluated("--draws", 2)["count"] < found["count"]
    assert evaluated("--mask-rate", 0.15)["count"] < 0.7 * found["count"]


def test_evaluate_readable_output(ramify, evaluated, trained, store):
    found = evaluated()
    status, out, _ = ramify("evaluate", trained, "--data", store.path)
    lines = out.splitlines()
    assert status == 0
    assert [line.split()[0] for line in lines] == ["depth", "all", *DEPTH_BINS, "function", "perplexity"]
    assert lines[1].split()[1:] == [f"{found['loss']:.4f}", f"{found['accuracy']:.2%}", f"{found['count']:,}"]
    assert lines[-1].startswith(f"perplexity {found['perplexity']:.2f}; 30% of the tokens masked, ")


def test_evaluate_with_another_branch(ramify, evaluated, trained, store):
    """Both losses are of the comments that have another branch."""
    found, whole = evaluated("--context", "sibling-branch", "--draws", 2), evaluated("--draws", 2)
    assert found["count"] == found["own"]["count"] < whole["count"]
    assert next(iter(found["by_depth"])) == "2"
    # The odd trees are chains, where no comment has another branch.
    own, saved = found["own"]["by_depth"]["2"], found["saved"]["2"]
    assert own["count"] < whole["by_depth"]["2"]["count"]
    assert saved["value"] == pytest.approx(found["by_depth"]["2"]["loss"] - own["loss"], abs=1e-9)
    status, out, _ = ramify("evaluate", trained, "--data", store.path, "--context", "sibling-branch", "--draws", 1)
    assert status == 0
    assert " comments, those with another branch of equal depth" in out


def test_evaluate_against(ramify, evaluated, trained, store, another, tmp_path):
    found = evaluated("--against", another, "--save", tmp_path / "scores.npz")
    assert {name: found[name] for name in evaluated()} == evaluated()
    assert found.keys() == evaluated().keys() | {"against", "saved"}
    alone = json.loads(ramify("evaluate", another, "--data", store.path, "--mask-rate", 0.3, "--json")[1])
    assert found["against"] | {"unknown_tokens": 0} == {"model": str(another), "context": "parent", **alone}
    assert found["saved"]["all"]["value"] == pytest.approx(alone["loss"] - found["loss"], abs=1e-9)
    assert Scores.load(tmp_path / "scores.npz").summary()["loss"] == found["loss"]
    # With --context, both read it.
    both = evaluated("--against", another, "--context", "none", "--mask-rate", 0.5)
    assert both["against"]["context"] == "none"
    assert both["count"] == both["against"]["count"] > found["count"]
    same = evaluated("--against", trained)
    assert same["saved"]["all"] == {"value": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}


def test_evaluate_with_a_cache(ramify, evaluated, trained, store, another):
    found = evaluated("--cache")
    cache = found.pop("cache")
    assert found == evaluated()
    assert cache.keys() == {"weight", "chosen_on", "context", "loss", "saved"}
    assert (cache["chosen_on"], cache["context"]) == ("dev", "tree")
    assert cache["weight"] in CACHE_WEIGHTS
    assert list(cache["saved"]) == ["all", *DEPTH_BINS, "function words"]
    assert cache["saved"]["all"]["value"] == pytest.approx(found["loss"] - cache["loss"], abs=1e-9)
    # On dev, the chosen weight is the best of the grid.
    task, forest = package.load(trained).task, package.load(trained).forest(store)
    losses = cache_losses(task, forest, store.split("dev"), words=ancestor_words(task, forest))
    assert min(losses.values()) == losses[cache["weight"]] < losses[0.0]
    dev = evaluated("--cache", "--split", "dev", "--draws", 2)["cache"]
    assert dev["loss"] == pytest.approx(losses[cache["weight"]], abs=1e-9)
    # The cache belongs to the model's own context.
    for options in (("--context", "none"), ("--context", "none", "--against", another)):
        assert evaluated(*options, "--cache")["cache"] == cache
    for split, note in (("dev", "dev trees, which this split holds"), ("test", "weight chosen on the dev trees\n")):
        status, out, _ = ramify("evaluate", trained, "--data", store.path, "--split", split, "--cache", "--draws", 1)
        assert status == 0
        assert note in out
        assert out.splitlines()[-1].startswith("function words ")


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_weight_of_the_cache_is_chosen_on_dev(monkeypatch, trained, store, split):
    """Whichever split is evaluated, the losses that choose the weight are those of the dev trees."""
    seen = []

    def losses(task, forest, trees, **options):
        seen.append(trees.tolist())
        return {0.0: 2.0, 0.3: 1.0, 0.5: 3.0}

    monkeypatch.setattr(comment_tree_scores, "cache_losses", losses)
    options = {"cache": True, "draws": 1}
    found = comment_tree_scores.evaluate(package.load(trained), str(trained), store, split, options)
    assert seen == [store.split("dev").tolist()]
    assert (found.cached.weight, found.cached.seen) == (0.3, split == "dev")


def test_cache_needs_dev_trees(ramify, trained, tmp_path):
    data = built((discussion(chain(5), name=f"t{n}") for n in range(4)), tmp_path, (0.5, 0.0, 0.5))
    status, _, err = ramify("evaluate", trained, "--data", data.path, "--cache")
    assert status == 2
    assert "has no dev tree with a comment. Leave --cache out" in err


def test_evaluate_readable_comparison(ramify, evaluated, trained, store, another):
    for options, closing in (
        (("--context", "mismatched"), "saved: what context tree, as in training, saves the same model over context mismatched"),
        (("--against", another), f"saved: what {trained} (context tree) saves over {another} (context parent)"),
    ):
        found = evaluated(*options)
        status, out, _ = ramify("evaluate", trained, "--data", store.path, *options)
        lines = out.splitlines()
        assert status == 0
        assert [line.split()[0] for line in lines[:-1]] == ["depth", "all", *DEPTH_BINS, "function", "perplexity"]
        saved = found["saved"]["all"]
        other = found["own" if "own" in found else "against"]
        expected = [f"{found['loss']:.4f}", f"{other['loss']:.4f}", f"{saved['value']:+.4f}", f"{saved['low']:+.4f}"]
        assert lines[1].split()[1:5] == expected
        p = f"{saved['p']:.4f}" if saved["p"] > 0.0001 else "≤.0001"
        assert lines[1].split()[5:] == ["to", f"{saved['high']:+.4f}", p, f"{found['count']:,}"]
        assert lines[-1] == closing


@pytest.fixture(scope="module")
def variant(trained, tmp_path_factory):
    """A copy of a trained model with other settings in its config.json."""

    def make(part, **changes):
        folder = tmp_path_factory.mktemp("variant") / "model"
        shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("run.json"))
        config = json.loads((folder / "config.json").read_text())
        config[part] |= changes
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


@pytest.fixture(scope="module")
def another(variant):
    """A model that was trained with the parent alone, as far as its settings tell, and at another mask rate."""
    folder = variant("input", context="parent")
    config = json.loads((folder / "config.json").read_text())
    config["task"]["mask_rate"] = 0.4
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_evaluate_against_refuses(ramify, trained, store, variant, tmp_path):
    tokenizer = variant("input")
    text = (tokenizer / "tokenizer.json").read_text()
    (tokenizer / "tokenizer.json").write_text(text.replace('"lowercase":true', '"lowercase":false', 1))
    assert (tokenizer / "tokenizer.json").read_text() != text
    checkpoint = Path(package.__file__).parent / "sample" / "links"
    for other, message in (
        (tokenizer, "has another tokenizer than"),
        (variant("input", max_tokens=48), "has input.max_tokens=48, but"),
        (variant("input", overflow="chain"), "has input.overflow=chain, but"),
        (checkpoint, "holds a Disentangler, not a masked language model. Choose another model."),
        (tmp_path / "none", "none does not exist"),
    ):
        status, out, err = ramify("evaluate", trained, "--data", store.path, "--against", other, "--json")
        assert (status, out) == (2, "")
        assert message in err
    status, _, err = ramify("evaluate", checkpoint, "--data", store.path, "--against", trained)
    assert status == 2
    assert "--against does not apply to" in err
    status, _, err = ramify("evaluate", checkpoint, "--data", store.path, "--cache")
    assert status == 2
    assert "--cache does not apply to" in err


def test_evaluate_refuses(ramify, trained, store, tmp_path):
    for arguments, message in (
        ([trained, "--data", tmp_path], "is not a Ramify data set"),
        ([tmp_path / "none", "--data", store.path], "none does not exist"),
        ([trained, "--data", store.path, "--context", "siblings"], "'siblings' is not one of"),
        ([trained, "--data", store.path, "--context", "wrong"], "'wrong' is not one of"),
        ([trained, "--data", store.path, "--context", "null"], 'context="null" needs a model that was trained on its null row'),
        ([trained, "--data", store.path, "--set", "task.threshold=0"], "--set does not apply to"),
    ):
        status, out, err = ramify("evaluate", *arguments, "--json")
        assert (status, out) == (2, "")
        assert message in err


def test_evaluate_saves_to_the_given_path(evaluated, tmp_path):
    evaluated("--save", tmp_path / "new" / "scores")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["scores"]
    assert Scores.load(tmp_path / "new" / "scores").count.sum() > 1000


def test_every_command_takes_a_device(ramify, evaluated, filled, trained, copied, store, trees_path, tmp_path):
    """Naming the device leaves the answers unchanged; a missing device gives a plain message."""
    assert evaluated("--device", "cpu") == evaluated()
    assert filled("below", "--device", "cpu") == filled("below")
    vectors = ["embed", trained, "--data", trees_path, "--out", tmp_path / "vectors.npy"]
    page = ["report", copied, "--draws", 1, "--comments", 20]
    for command in (vectors, page):
        assert ramify(*command, "--device", "cpu")[0] == 0
    (tmp_path / "vectors.npy").unlink()
    (copied / "report.html").unlink()
    for command in (
        ["evaluate", trained, "--data", store.path],
        ["fill-mask", trained, "--data", trees_path, "--node", "below"],
        vectors,
        page,
    ):
        status, out, err = ramify(*command, "--device", "cuda:99")
        assert (status, out) == (2, "")
        assert err.startswith("error: device='cuda:99' is not available on this machine. Choose auto, cpu")
    assert not (tmp_path / "vectors.npy").exists()
    assert not (copied / "report.html").exists()


def test_half_precision_is_close_to_single(evaluated, embedded, store):
    whole, half = evaluated(), evaluated("--precision", "bf16")
    assert half["count"] == whole["count"]
    assert 0 < abs(half["loss"] - whole["loss"]) < 0.01 * whole["loss"]
    (*ids, vectors), (*same, near) = embedded(store.path), embedded(store.path, "--precision", "bf16")
    assert ids == same
    assert 0 < np.abs(vectors - near).max() < 0.1


def test_evaluate_refuses_zero_draws(ramify, trained, store):
    status, out, err = ramify("evaluate", trained, "--data", store.path, "--draws", 0, "--json")
    assert (status, out) == (2, "")
    assert "--draws" in err


# --- embed --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def embedded(ramify, trained, tmp_path):
    """Tree ids, node ids and vectors of the file that `ramify embed` writes."""

    def run(data, *more, out=tmp_path / "vectors.parquet"):
        status, printed, err = ramify("embed", trained, "--data", data, "--out", out, *more)
        assert (status, printed) == (0, ""), err
        table = pq.read_table(out)
        assert table.column_names == ["tree", "id", "vector"]
        assert err == f"{out}: {len(table)} vectors of size 16\n"
        return table["tree"].to_pylist(), table["id"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32)

    return run


def test_embed_a_built_data_set(embedded, trained, store):
    trees, ids, vectors = embedded(store.path)
    every = list(store.trees())
    assert trees == [tree.id for tree in every for _ in tree.nodes]
    assert ids == [node.id for tree in every for node in tree.nodes]
    assert vectors.shape == (store.num_nodes, 16)
    np.testing.assert_allclose(vectors, package.load(trained).embed(every), atol=1e-5)
    assert vectors.std(0).min() > 1e-3


def test_embed_a_file_of_trees(embedded, store, tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text("".join(tree.to_json() + "\n" for tree in store.trees()))
    trees, ids, vectors = embedded(path)
    of_store = embedded(store.path)
    assert (trees, ids) == of_store[:2]
    np.testing.assert_allclose(vectors, of_store[2], atol=1e-5)


def test_embed_with_and_without_context(embedded, trees_path):
    """Without context, equal texts have equal vectors; with context they differ."""
    found = {}
    for context in ("tree", "none"):
        trees, ids, vectors = embedded(trees_path, "--context", context)
        assert trees == ["before"] + ["asked"] * 5
        assert ids == ["other", "post", "above", "between", "below", "silent"]
        found[context] = dict(zip(ids, vectors))
    np.testing.assert_allclose(found["none"]["above"], found["none"]["below"], atol=1e-6)
    assert np.abs(found["tree"]["above"] - found["tree"]["below"]).max() > 1e-3
    assert np.abs(found["tree"]["below"] - found["none"]["below"]).max() > 1e-3
    assert np.array_equal(embedded(trees_path)[2], embedded(trees_path, "--context", "tree")[2])


@pytest.mark.parametrize("more", [["--format", "npy"], []], ids=["by option", "by name"])
def test_embed_as_numpy(ramify, embedded, trained, trees_path, tmp_path, more):
    trees, ids, vectors = embedded(trees_path)
    out = tmp_path / ("vectors" if more else "vectors.npy")
    status, _, err = ramify("embed", trained, "--data", trees_path, "--out", out, *more)
    assert (status, err) == (0, f"{out}: 6 vectors of size 16\n")
    written = np.load(out)
    assert written.dtype == np.float32
    assert np.array_equal(written, vectors)
    names = out.with_name(f"{out.name}.ids.tsv").read_text()
    assert names == "".join(f"{tree}\t{node}\n" for tree, node in zip(trees, ids))


def test_counts_agree_between_stats_and_embed(ramify, trained, tmp_path):
    posts = tmp_path / "posts.csv"
    posts.write_text("id,parent,tree,text\n1,9,a,two words\n2,1,a,word\n3,,b,post\n")
    status, built, err = ramify("data", "build", posts, "--format", "table", "--out", tmp_path / "data")
    assert status == 0, err
    status, shown, _ = ramify("data", "stats", tmp_path / "data")
    assert status == 0
    for printed in (built, shown):
        assert "data: 2 trees, 3 nodes, 2 replies, 1 placeholder\n" in printed
        assert "  test           0 trees            0 nodes\n" in printed
    status, _, err = ramify("embed", trained, "--data", tmp_path / "data", "--out", tmp_path / "v.parquet")
    assert status == 0
    assert "3 vectors of size 16, none for 1 placeholder\n" in err


def test_one_is_singular(ramify, trained, tmp_path):
    file, data = tmp_path / "one.jsonl", tmp_path / "data"
    tree = Tree((Node("ba", id="1"), Node("a [MASK]", (0,), id="2")), id="t")
    file.write_text(tree.to_json() + "\n")
    for command in (
        ["data", "build", file, "--out", data, "--split", "1,0,0"],
        ["data", "show", data],
        ["data", "show", data, "--max-nodes", 1],
        ["data", "stats", data, "--tokenizer", trained],
        ["data", "export", data, "--out", tmp_path / "again.jsonl"],
        ["data", "split", data, "--max-tree-size", 1],
        ["embed", trained, "--data", data, "--out", tmp_path / "v.parquet"],
        ["fill-mask", trained, "--data", data, "--node", "2"],
        ["evaluate", trained, "--data", data, "--split", "train", "--draws", 1],
        ["disentangle", file, "--out", tmp_path / "out.txt"],
        ["disentangle", file, "--ignore-replies", "--out", tmp_path / "more.txt"],
        ["data", "show", data, "--tree", "u"],
    ):
        status, out, err = ramify(*command)
        assert (status == 2) == (command[-1] == "u"), err
        assert not re.search(r"(?<![\d.,])1 (?!is\b|was\b|texts\b|words\b)[a-z]+s\b", out + err), (command, out, err)


def test_embed_reports_truncation(ramify, trained, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(Tree((Node("ba " * 200, id="p"), Node("be", parents=(0,), id="a")), id="t").to_json() + "\n")
    status, _, err = ramify("embed", trained, "--data", path, "--out", tmp_path / "vectors.parquet")
    assert status == 0
    assert err.endswith("cut to 64 tokens: 1 of 2 texts\n")


@pytest.mark.parametrize("name", ["vectors.parquet", "vectors.npy"])
def test_failed_embed_leaves_nothing(ramify, trained, store, trees_path, tmp_path, name):
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text((TREE.to_json() + "\n") * 300 + '{"id": "cut", "nod\n')
    status, _, err = ramify("embed", trained, "--data", damaged, "--out", tmp_path / name)
    assert status == 2
    assert "damaged.jsonl" in err
    assert "301" in err
    status, _, err = ramify("embed", trained, "--data", trees_path, "--out", tmp_path / "no" / name)
    assert (status, err) == (
        2,
        f"error: {tmp_path / 'no' / name}: the folder {tmp_path / 'no'} does not exist. Create it first.\n",
    )
    status, _, err = ramify("embed", trained, "--data", store.path, "--out", tmp_path / name, kilobytes=4)
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: cannot write {tmp_path / name}")
    status, _, err = ramify("embed", trained, "--data", tmp_path / "none.jsonl", "--out", tmp_path / name)
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {tmp_path / 'none.jsonl'} cannot be read: No such file")
    assert sorted(tmp_path.iterdir()) == [trees_path, damaged]


# --- fill-mask ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(ramify, trained, trees_path):
    def run(node, *more):
        status, out, err = ramify("fill-mask", trained, "--data", trees_path, "--node", node, "--json", *more)
        assert (status, err) == (0, "")
        return json.loads(out)

    return run


def test_fill_mask_json_has_all_fields(filled, trained):
    found = filled("below")
    assert (found["node"], found["context"], found["ancestors"]) == ("below", "tree", ["post", "between"])
    assert found.keys() == {"node", "masks", "context", "ancestors"}
    own = Tokenizer.load(trained)
    first = len(own.encode("ce"))
    second = first + 1 + len(own.encode("da,"))
    assert [mask["position"] for mask in found["masks"]] == [first, second]
    for mask in found["masks"]:
        assert mask.keys() == {"position", "tokens"}
        assert all(guess.keys() == {"token", "probability"} for guess in mask["tokens"])
        shares = [guess["probability"] for guess in mask["tokens"]]
        assert len(shares) == 5
        assert shares == sorted(shares, reverse=True)
        assert 0 < shares[-1] <= shares[0] < 1
        assert sum(shares) < 1
    assert found == package.load(trained).fill_mask(TREE, node="below").to_json()


def test_fill_mask_gives_all_probabilities(filled):
    for mask in filled("above", "--top-k", 80)["masks"]:
        assert len({guess["token"] for guess in mask["tokens"]}) == 80
        assert sum(guess["probability"] for guess in mask["tokens"]) == pytest.approx(1, abs=1e-5)
    assert [len(mask["tokens"]) for mask in filled("above", "--top-k", 2)["masks"]] == [2, 2]


def test_fill_mask_with_and_without_context(filled):
    def shares(node, context):
        found = filled(node, "--context", context, "--top-k", 80)
        assert found["context"] == context
        return [{guess["token"]: guess["probability"] for guess in mask["tokens"]} for mask in found["masks"]]

    for one, other in zip(shares("above", "none"), shares("below", "none")):
        assert one == pytest.approx(other, abs=1e-6)
    for one, other in (("none", "tree"), ("tree", "parent")):
        assert shares("below", one) != pytest.approx(shares("below", other)[0], abs=1e-6)
    for one, other in zip(shares("above", "tree"), shares("below", "tree")):
        assert max(abs(one[token] - other[token]) for token in one) > 1e-4
    assert filled("below", "--context", "none")["ancestors"] == []
    assert filled("below", "--context", "parent")["ancestors"] == ["between"]


def test_fill_mask_among_candidates_and_jointly(filled):
    found = filled("above", "--candidates", "ba, be,bi", "--joint", "--top-k", 3)
    for mask in found["masks"]:
        assert {guess["token"] for guess in mask["tokens"]} == {"ba", "be", "bi"}
        assert sum(guess["probability"] for guess in mask["tokens"]) == pytest.approx(1)
    shares = [beam["probability"] for beam in found["joint"]]
    assert shares == sorted(shares, reverse=True)
    assert [len(beam["tokens"]) for beam in found["joint"]] == [2, 2, 2]


def test_fill_mask_in_a_built_data_set(ramify, filled, trees_path, trained, tmp_path):
    """A node is found by its id and its tree's id, even if the data set has no post above it."""
    assert ramify("data", "build", trees_path, "--format", "jsonl", "--out", tmp_path / "store", "--min-nodes", 1)[0] == 0
    more = ["--node", "below", "--tree", "asked", "--json"]
    status, out, _ = ramify("fill-mask", trained, "--data", tmp_path / "store", *more)
    assert status == 0
    assert json.loads(out) == filled("below")


def test_fill_mask_readable_output(ramify, filled, trees_path, trained):
    found = filled("below")
    status, out, _ = ramify("fill-mask", trained, "--data", trees_path, "--node", "below")
    best = found["masks"][0]["tokens"][0]
    assert status == 0
    assert out.splitlines()[0] == "node below, context tree (2 ancestors)"
    assert out.splitlines()[1].startswith(f"  [{found['masks'][0]['position']}] {best['token']} {best['probability']:.3f}  ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "nobody"], "--node 'nobody' is not in "),
        (["--node", "below", "--tree", "before"], "--node 'below' is not in the tree 'before' of "),
        (["--node", "post"], "node 'post': its text holds no [MASK]. Write [MASK] in place of a word."),
        (["--node", "silent"], "node 'silent': its text holds no [MASK]."),
        (["--node", "below", "--context", "mismatched"], "'mismatched' is not one of"),
        (["--node", "below", "--context", "sibling-branch"], "'sibling-branch' is not one of"),
        (["--node", "below", "--top-k", -1], "--top-k"),
        (["--node", "below", "--candidates", " , "], "--candidates ' , ' holds no words."),
        (["--node", "below", "--candidates", ""], "--candidates '' holds no words."),
        ([], "Missing option '--node'"),
    ],
)
def test_fill_mask_refuses(ramify, trained, trees_path, arguments, message):
    status, out, err = ramify("fill-mask", trained, "--data", trees_path, "--json", *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_a_repeated_text_is_refused(ramify, trained, store):
    for command, option in (("fill-mask", "--text"), ("score", "--text"), ("attention", "--text"), ("nearest", "--query")):
        more = {"nearest": ["--data", store.path], "attention": ["--json"]}.get(command, [])
        status, out, err = ramify(command, trained, option, "ba [MASK]", option, "be", *more)
        assert (status, out) == (2, "")
        assert f"{option} is given 2 times, as 'ba [MASK]' and as 'be', but is one text. Run the command once per text." in err


def test_fill_mask_with_repeated_node_ids(ramify, filled, trees_path, trained, tmp_path):
    """The first node is used, and the message says so, for files and for data sets."""
    with open(trees_path, "a") as file:
        file.write(Tree(TREE.nodes, id="again").to_json() + "\n")
    assert ramify("data", "build", trees_path, "--format", "jsonl", "--out", tmp_path / "store", "--split", "1,0,0")[0] == 0
    for data in (trees_path, tmp_path / "store"):
        status, _, err = ramify("fill-mask", trained, "--data", data, "--node", "below")
        assert status == 0
        assert "'asked'" in err
        assert "'again'" in err
        assert "both hold a node 'below'; the first is used. --tree chooses one." in err
        assert ramify("fill-mask", trained, "--data", data, "--node", "below", "--tree", "again")[0] == 0
    assert filled("below", "--tree", "asked")["ancestors"] == ["post", "between"]


def test_folders_without_a_model_are_refused(ramify, trees_path, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    for model, message in (
        (
            tmp_path / "run",
            "is a run that has not finished and has no checkpoint yet. Resume it with the command",
        ),
        (tmp_path / "nowhere", "nowhere does not exist: it is neither a directory here, nor a hub id"),
        (trees_path, "is a file"),
    ):
        for command in (["embed", "--out", tmp_path / "out.parquet"], ["fill-mask", "--node", "below"]):
            status, out, err = ramify(command[0], model, "--data", trees_path, *command[1:])
            assert (status, out) == (2, "")
            assert message in err
    assert not (tmp_path / "out.parquet").exists()


# --- report -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink()
    return tmp_path / "run"


def test_report(ramify, copied):
    status, out, err = ramify("report", copied, "--split", "test", "--draws", 1)
    page = (copied / "report.html").read_text()
    assert (status, out, err) == (0, "", f"page: {copied / 'report.html'}\n")
    assert "on the test trees: 14 trees, 336 comments" in page
    assert page.count("<article>") == 10
    assert "written without an evaluation" not in page


def test_report_without_evaluation(ramify, copied):
    assert ramify("report", copied, "--no-evaluate")[0] == 0
    page = (copied / "report.html").read_text()
    assert "This report was written without an evaluation." in page
    assert "<article>" not in page


@pytest.mark.parametrize("content", ["{}", '{"run": {}}', "no json"])
def test_report_of_a_damaged_run(ramify, copied, content):
    (copied / "run.json").write_text(content)
    status, out, err = ramify("report", copied, "--no-evaluate")
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {copied / 'run.json'} ")
    assert err.count("\n") == 1


def test_report_without_a_run_is_refused(ramify, tmp_path):
    status, out, err = ramify("report", tmp_path)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tmp_path} is not a run: it has no run.json.")
    assert list(tmp_path.iterdir()) == []


# --- tokenizer train ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "size", "pieces"), [("wordpiece", 80, 80), ("bpe", 270, 270), ("unigram", 500, None)])
def test_tokenizer_train(ramify, store, tmp_path, kind, size, pieces):
    out = tmp_path / "own.json"
    status, printed, err = ramify("tokenizer", "train", store.path, "--out", out, "--kind", kind, "--vocab-size", size)
    own = Tokenizer.load(out)
    assert (status, printed) == (0, "")
    assert err.splitlines() == [
        *("reading texts for the tokenizer …", "training the tokenizer …", f"{out}: {own.vocab_size} pieces"),
    ]
    assert own.vocab_size == pieces or pieces is None
    assert json.loads(out.read_text())["model"]["type"].lower() == kind
    assert own.decode(own.encode("ba ce fu")).strip() == "ba ce fu"
    assert own.encode("BA") == own.encode("ba")


def test_tokenizer_train_equals_training(ramify, trained, store, tmp_path):
    assert ramify("tokenizer", "train", store.path, "--out", tmp_path, "--vocab-size", 80)[0] == 0
    assert (tmp_path / "tokenizer.json").read_text() == (trained / "tokenizer.json").read_text()
    assert Tokenizer.load(tmp_path).hash != words().hash


def test_tokenizer_train_keeps_case_on_request(ramify, store, tmp_path):
    assert ramify("tokenizer", "train", store.path, "--out", tmp_path / "own.json", "--no-lowercase")[0] == 0
    own = Tokenizer.load(tmp_path / "own.json")
    assert own.encode("BA") != own.encode("ba")


def test_tokenizer_train_refuses(ramify, store, tmp_path):
    for arguments, message in (
        ([tmp_path, "--out", tmp_path / "own.json"], "is not a Ramify data set"),
        ([store.path, "--out", tmp_path / "no" / "own.json"], "no/own.json"),
        ([store.path, "--out", tmp_path / "own.json", "--kind", "letters"], "'letters' is not one of"),
        ([store.path, "--out", tmp_path / "own.json", "--vocab-size", 9], "a vocabulary of 9 pieces is too small"),
    ):
        status, out, err = ramify("tokenizer", "train", *arguments)
        assert (status, out) == (2, "")
        assert message in err
    assert list(tmp_path.iterdir()) == []


# --- imports ------------------------------------------------------------------------------------------------------------------

USE = """
import sys
import ramify
from ramify.sample import LINKS

ramify.load(LINKS).disentangle([ramify.Node(text="hi", author="ann"), ramify.Node(text="ann: hello", author="bob")])
print([name for name in ("torch._dynamo", "sympy", "accelerate", "transformers", "matplotlib") if name in sys.modules])
"""


def test_loading_a_model_does_not_import_the_compiler():
    """Importing the compiler takes longer than disentangling a log."""
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_unknown_vector_file_endings_are_refused(ramify, trained, store, tmp_path):
    status, _, err = ramify("embed", trained, "--data", store.path, "--out", tmp_path / "vectors.csv")
    assert status == 2
    assert "does not end in .parquet or .npy" in err
    assert not list(tmp_path.iterdir())


def test_vectors_never_overwrite_their_input(ramify, trained, trees_path, tmp_path):
    before = trees_path.read_bytes()
    (tmp_path / "link").symlink_to(trees_path)
    for out in (trees_path, tmp_path / "link"):
        status, _, err = ramify("embed", trained, "--data", trees_path, "--out", out, "--format", "npy")
        assert status == 2
        assert f"{out} is also the input. Choose another file" in err
    assert trees_path.read_bytes() == before


def test_version(ramify):
    assert ramify("--version") == (0, f"ramify {package.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data", "stats", "RUN"), "is a run, not a data set"),
        (("data", "stats", "FILE"), "is a file, not a data set. Build one from it: ramify data build"),
        (("disentangle", "DATA", "--to", "text", "--out", "out.txt"), "is a data set built by Ramify, not an input file"),
        (("data", "build", "DATA", "--out", "again"), "ramify data export"),
    ],
)
def test_wrong_kinds_of_arguments_are_refused(ramify, trained, store, trees_path, words, message):
    places = {"RUN": trained, "FILE": trees_path, "DATA": store.path}
    status, _, err = ramify(*(places.get(word, word) for word in words))
    assert status == 2
    assert message in err

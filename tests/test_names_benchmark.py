"""The benchmark of planted names: its documents, its plan, a little model that is measured, and the figures of its table."""

import contextlib
import io
import json
import shlex
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ramify
from fixtures import built
from ramify import Tree
from ramify.recipes import RECIPES
from ramify.runs import execute

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import names
finally:
    sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("once", [False, True])
def test_documents(once):
    """16 roles, each of which four sentences name, at least five apart."""
    known = names.all_names()
    assert len(set(known)) == 2_000
    made = list(names.documents("test", 6, once=once))
    assert made == list(names.documents("test", 6, once=once))
    assert made[0]["nodes"] != next(names.documents("dev", 1, once=once))["nodes"]
    for each in made:
        sentences = [node["text"].split() for node in each["nodes"][1:]]
        assert len(sentences) == 64
        roles = [next(word for word in words if word in names.ROLES) for words in sentences]
        named = [next(word for word in words if word in known) for words in sentences]
        assert all(len(set(words) & set(known)) == 1 for words in sentences)
        for role in names.ROLES:
            places = [place for place, other in enumerate(roles) if other == role]
            assert len(places) == 4
            assert min(np.diff(places)) >= 5
        counts = Counter(named)
        assert set(counts.values()) == ({1} if once else {4})
        if not once:
            assert len(set(zip(roles, named))) == 16


def test_the_plan(capsys):
    names.plan(None)
    shown = capsys.readouterr().out
    assert "--seed 2" in shown
    planted = [item for item in names.items() if not item.name.startswith(("books", "vectors"))]
    assert len(planted) == 15
    assert len(names.items()) == 23
    for item in planted:
        assert item.hours * 60 <= 8
        words = shlex.split(item.train)
        settings = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--set")
        run = RECIPES["agent-sentence"]("somewhere", names="--names" in words).changed(settings)
        assert (run.model.names is None) == item.name.startswith("no-memory")
        if run.model.names is not None:
            assert run.model.names.leave_one_out != item.name.startswith(("with-the-own", "mean-of-all"))
            assert (run.model.names.average == "sentences") == item.name.startswith("mean")


def printed(*words):
    """The output of a command."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        names.main([str(word) for word in words])
    return shown.getvalue()


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Little models with and without a memory, measured by the command."""
    folder = tmp_path_factory.mktemp("names")
    for data, once in (("names", False), ("once", True)):
        documents = [Tree.from_json(json.dumps(each)) for each in names.documents("test", 6, once=once)]
        built(documents, folder / "made" / data, split=(0.4, 0.2, 0.4))
        (folder / "made" / data / "store").rename(folder / data)
    small = {
        **names.SIZES,
        **{"model.dims": "[8,12]", "tokenizer.vocab_size": "2100", "view.neighbours": "60", "train.budget": "60"},
    }
    for way in ("leave-one-out", "no-memory"):
        model = folder / f"{way}-0"
        run = RECIPES["agent-sentence"](str(folder / "names"), steps=1, names=way != "no-memory").changed(small)
        execute(run, model, cpu=True)
        other = "with-names" if way != "no-memory" else way
        for command, data, name in (("measure", folder, model.name), ("books", folder / "names", f"books-{other}")):
            (folder / name).mkdir(exist_ok=True)
            made = printed(command, "--run", model, "--data", data, "--items", folder / name / "items.npz")
            (folder / name / ("names.json" if command == "measure" else "books.json")).write_text(made)
        (folder / f"vectors-96-{other}").mkdir()
        made = printed("decoded", "--run", model, "--data", folder / "names")
        (folder / f"vectors-96-{other}" / "decoded.json").write_text(made)
    return folder


def test_sentences_are_decoded_from_their_vectors(out):
    """Documents of 64 sentences, each with one name among its three or four words."""
    found = json.loads((out / "vectors-96-with-names" / "decoded.json").read_text())
    documents = len(ramify.Store.open(out / "names").split("test"))
    assert found["count"]["names"] == 64 * documents
    assert 3 * 64 * documents <= found["count"]["words"] <= 4 * 64 * documents
    assert 0 <= found["names"] <= 1 >= found["words"] >= 0


def test_what_a_memory_reads(out):
    """The filter of each group that tells names best, and a name that the document has, or another one."""
    filters = json.loads((out / "leave-one-out-0" / "names.json").read_text())["filters"]
    assert [each["auroc"] > 0.5 and len(each["tokens"]) == 5 for each in filters] == [True] * 8
    found = json.loads((out / "books-with-names" / "books.json").read_text())
    assert found["filters"] == []  # no name is that frequent
    own, nothing, other = found["alice"].values()
    assert own != nothing != other != own
    assert found["measures"]["hidden_word_loss.function_words"]["value"] > 0
    plain = json.loads((out / "books-no-memory" / "books.json").read_text())
    assert plain["measures"]["hidden_word_loss.function_words"]["value"] is None
    assert set(plain) == {"measures"}


def test_names_are_hidden_one_by_one(out):
    found = json.loads((out / "leave-one-out-0" / "names.json").read_text())
    arrays = np.load(out / "leave-one-out-0" / "items.npz")
    documents = len(ramify.Store.open(out / "names").split("test"))
    assert found["names"]["count"] == 64 * documents == len(arrays["names/right/own"])
    assert found["names"]["nats_own"] == pytest.approx(arrays["names/nats/own"].mean())
    assert found["names"]["nats_own"] != found["names"]["nats_nothing"] != found["names"]["nats_other_document"]
    assert 0 < found["gate_auroc"] < 1
    plain = json.loads((out / "no-memory-0" / "names.json").read_text())
    assert plain["names"]["accuracy_own"] is None
    assert plain["names"]["nats_nothing"] > 0
    assert "gate_auroc" not in plain


def test_the_table_says_which_goals_are_reached(out, tmp_path, capsys):
    table = tmp_path / "names.parquet"
    names.main(["keep", "--out", str(out), "--to", str(table)])
    rows = tmp_path / "rows.jsonl"
    names.main(["table", "--out", str(table), "--rows", str(rows), "--commit", "0" * 8])
    shown = capsys.readouterr().out
    assert "goal: at least 0.3: missed" in shown
    assert "goal: at most 0.02: reached" in shown
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert {each["row"] for each in found if each["table"] == "names-planted"} == {"leave-one-out", "no memory"}
    assert {each["table"] for each in found} == {
        f"names-{name}" for name in ("planted", "nats", "books", "filters", "alice", "vectors")
    }

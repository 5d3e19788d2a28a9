"""From plain text to BERT and RoBERTa on the command line: train, evaluate, fill masks, embed, report."""

import json

import pytest

import ramify as ramify_package
from fixtures.commands import call

SMALL = [
    *("--set", "model.dim=16", "--set", "model.num_heads=2", "--set", "model.ffn_dim=16"),
    *("--set", "train.evaluate_every=2", "--steps", "4", "--max-tokens", "48"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    lines = [
        f"The man went to the store on day {n}. He bought {n} green apples there. Then the dog barked, and the cat ran away."
        for n in range(90)
    ]
    (folder / "files").mkdir()
    for number in range(30):
        (folder / "files" / f"{number}.txt").write_text("\n\n".join(lines[number * 3 : number * 3 + 3]))
    arguments = ["data", "build", folder / "files", "--format", "text", "--unit", "paragraph", "--split", "0.6,0.2,0.2"]
    call(*arguments, "--out", folder / "data")
    return folder / "data"


@pytest.mark.parametrize("recipe", [["bert"], ["roberta"], ["roberta", "--rows", "documents"]])
def test_train_and_use(ramify, data, tmp_path, recipe):
    run = tmp_path / "run"
    status, out, err = ramify("train", *recipe, "--data", data, "--out", run, *SMALL)
    assert (status, out) == (0, ""), err
    assert "rows of up to 48 tokens" in err
    assert {"training the tokenizer …", "first step …"} <= {*err.splitlines()}
    assert ("drawing sentence pairs …\n" in err) == (recipe == ["bert"])
    assert f"next: ramify evaluate {run} --data {data}" in err
    with pytest.raises(ramify_package.RamifyError, match=r"model\.position=relative has no Hugging Face form") as refused:
        ramify_package.save(ramify_package.load(run), tmp_path / "exported", form="hugging-face")
    note = f"note: the trained model cannot be saved in Hugging Face's form: {refused.value}"
    assert err.index(note) < err.index("first step …"), "the same words, before training"
    status, out, err = ramify("evaluate", run, "--data", data, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["count"] > 20
    assert 0 < found["per_byte"] < found["per_token"]
    assert found["window"] == 46
    assert 2 < found["loss"] < 12
    assert found == json.loads(ramify("evaluate", run, "--data", data, "--json")[1])
    status, out, err = ramify("evaluate", run, "--data", data, "--split", "dev")
    assert status == 0, err
    assert "common footing:" in out
    status, out, err = ramify("evaluate", run, "--data", data, "--kind", "comment-trees", "--context", "none", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out).keys() >= {"by_depth", "by_class"}
    assert "(--kind comment-trees scores comments)" in ramify("evaluate", run, "--data", data, "--context", "none")[2]
    assert "--kind rows is not a kind of run. Choose answers, " in ramify("evaluate", run, "--data", data, "--kind", "rows")[2]
    for rate in ("nan", "0", "1.5"):
        assert "mask_rate must be above 0 and at most 1" in ramify("evaluate", run, "--data", data, "--mask-rate", rate)[2]
    mask = "[MASK]"
    status, out, err = ramify("fill-mask", run, "--text", f"the man went to the {mask}", "--json", "--top-k", 3)
    assert status == 0, err
    (answer,) = json.loads(out)["masks"]
    assert len(answer["tokens"]) == 3
    status, out, _ = ramify("fill-mask", run, "--text", f"the man went to the {mask}", "--candidates", "store,apples")
    assert status == 0
    assert out.splitlines()[0] == f"the man went to the {mask}"
    status, _, err = ramify("embed", run, "--data", data, "--out", tmp_path / "vectors.npy")
    assert status == 0, err
    assert "90 vectors of size 16" in err
    status, out, err = ramify("report", run, "--data", data, "--split", "test")
    assert status == 0, err
    assert "Held-out scores" in (run / "report.html").read_text("utf-8")
    # Without run.json, the kind is not known to the reader.
    ramify_package.save(ramify_package.load(run), tmp_path / "saved")
    status, _, err = ramify("evaluate", tmp_path / "saved", "--data", data)
    assert (status, err) == (0, "kind: packed-text\n")
    # The same command with --resume finds nothing left to do.
    assert ramify("train", *recipe, "--data", data, "--out", run, *SMALL, "--resume")[0] == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["bert", "--concatenate", 99], "--concatenate 99 prepends the texts of a comment's ancestors"),
        (["bert", "--rows", "lines"], "'lines' is not one of"),
        (["bert", "--max-tokens", 4], "input.max_tokens=4 is too short for two segments"),
        (["roberta", "--set", "pairs.dupe_factor=3"], "pairs.dupe_factor applies to rows=pairs"),
        (["bert", "--set", "model.max_tokens=50"], "model.max_tokens=50 is too small for rows of up to 128 tokens"),
    ],
)
def test_refused_commands(ramify, data, tmp_path, command, message):
    status, out, err = ramify("train", *command, "--data", data, "--out", tmp_path / "run")
    assert (status, out) == (2, "")
    assert message in err
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_text_and_a_node_are_not_both_filled(ramify, data):
    status, _, err = ramify("fill-mask", "tree-mlm-small", "--text", "a [MASK]", "--data", data, "--node", "x")
    assert status == 2
    assert "--text is a text of its own, but --data names a node" in err
    assert ramify("fill-mask", "tree-mlm-small")[2].startswith("error: Missing option '--data'")


def test_the_shipped_model_fills_a_text(ramify):
    status, out, err = ramify("fill-mask", "tree-mlm-small", "--text", "that is a good [MASK]")
    assert status == 0, err
    assert out.startswith("that is a good [MASK]\n  [4] ")

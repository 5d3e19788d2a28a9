"""`ramify train tag`, `evaluate` and `predict` on tags of words."""

import json

from fixtures.commands import call, refusal
from fixtures.tagged import sentences, tagged_store
from ramify.report import write_report


def test_commands(tmp_path):
    data, out = tagged_store(tmp_path / "data", sentences(40), sentences(10, seed=1)).path, tmp_path / "run"
    settings = ["--set", "model.dim=16", "--set", "model.hidden=16", "--set", "tokenizer.vocab_size=120"]
    chosen = ["--model", "bilstm", "--decoder", "crf", "--epochs", "1"]
    call("train", "tag", "--data", data, "--out", out, *chosen, *settings)
    found = json.loads(call("evaluate", out, "--data", data, "--split", "dev", "--json").stdout)
    assert found["metric"] == "span_f1"
    answers = json.loads(call("predict", out, "--text", "ba bo aa", "--json").stdout)
    assert [*answers[0]] == ["id", "spans"]
    assert json.loads(call("predict", out, data, "--json").stdout)[0].keys() == {"id", "spans", "tokens"}
    assert "Held-out scores" in write_report(out, draws=1).read_text()
    assert "neither --model nor --init" in refusal("train", "tag", "--data", data, "--out", tmp_path / "other")

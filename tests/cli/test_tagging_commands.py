"""`ramify train tag`, `evaluate` and `predict` on tags of words."""

import csv
import json

from fixtures.commands import call, refusal
from fixtures.tagged import sentences, table, tagged_store
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
    assert json.loads(call("predict", out, data, "--json").stdout)[0].keys() == {"id", "spans", "tokens", "gold"}
    tokens = tmp_path / "new.conll"
    tokens.write_text("ba\naa\n\nbo\n")
    found = json.loads(call("predict", out, tokens, "--json").stdout)
    assert [[token["text"] for token in answer["tokens"]] for answer in found] == [["ba", "aa"], ["bo"]]
    tokens = tmp_path / "new.txt"
    tokens.write_text(table(sentences(3)))
    assert len(json.loads(call("predict", out, tokens, "--json").stdout)) == 3
    texts = tmp_path / "texts.csv"
    texts.write_text("text,number\nba bo aa,1\n,2\n")
    call("predict", out, texts, "--out", tmp_path / "tagged.csv")
    rows = list(csv.DictReader((tmp_path / "tagged.csv").open(encoding="utf-8")))
    assert [row["number"] for row in rows] == ["1", "2"]
    assert [isinstance(json.loads(row["predicted"] or "[]"), list) for row in rows] == [True, True]
    assert "Held-out scores" in write_report(out, draws=1).read_text()
    assert "neither --model nor --init" in refusal("train", "tag", "--data", data, "--out", tmp_path / "other")

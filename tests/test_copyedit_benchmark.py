"""The benchmark of copyediting: its documents, its plan, little models that are measured, and the figures of its table."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import ramify
from fixtures import built
from fixtures.letters import letters, pipeline, tokenizer
from fixtures.nested import novels, writing
from ramify.batching.views.pairs import PairInput
from ramify.inference.translate import next_token_pipeline
from ramify.models.transformer import TransformerConfig
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import copyedit
finally:
    sys.path.remove(str(BENCHMARKS))


def test_the_plan(capsys):
    copyedit.plan(None)
    shown = capsys.readouterr().out
    assert "--set task.marks=none" in shown
    assert "--split dev --documents 150 --passes 3 --epsilon 0.3" in shown
    assert "--split test --documents 500 --passes 3 --epsilon RATE" in shown
    assert "OUT/A-learn-0 --checker OUT/checker --judge OUT/judge" in shown


def test_documents_are_paragraphs(tmp_path):
    store = built(novels(4, chapters=3), tmp_path, (0.5, 0.25, 0.25))
    found = list(copyedit.documents(store, "all", 10_000))
    sizes = [
        int(tree.subtree_sizes[place]) - 1
        for tree in store.trees()
        for place, node in enumerate(tree.nodes)
        if node.kind == "paragraph"
    ]
    assert [len(each) - 2 for each in found] == [size for size in sizes if size >= copyedit.SENTENCES]
    assert {tuple(node.kind for node in each.nodes[:3]) for each in found} == {("document", "paragraph", "sentence")}
    some = list(copyedit.documents(store, "all", 2))
    assert len(some) == 2
    (whole,) = [tree for tree in store.trees() if some[0].id.startswith(f"{tree.id} ")]
    texts = {node.id: node.text for node in whole.nodes}
    assert all(texts[node.id] == node.text for node in some[0].nodes[1:])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    out = tmp_path_factory.mktemp("models")
    editor = pipeline(task=NestedAutoencoderConfig(queue=0))
    writing(editor.task, 0.3)
    ramify.save(editor, out / "editor")
    ramify.save(pipeline(task=NestedAutoencoderConfig(queue=0, marks="none")), out / "checker")
    words = tokenizer()
    config = TransformerConfig(vocab_size=words.vocab_size, dim=16, num_heads=2, ffn_dim=32, encoder_layers=0, decoder_layers=1)
    gpt = NextTokenLM(config.build(), words, PairInput(), NextTokenConfig())
    ramify.save(next_token_pipeline(gpt.eval()), out / "judge")
    return out


def test_every_version_is_measured(models, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(copyedit, "SENTENCES", 2)
    store = built(letters(), tmp_path, (0.4, 0.3, 0.3))
    words = ["measure", "--data", store.path, "--split", "all", "--documents", 2, "--epsilon", 1, "--passes", 2]
    words += [word for name in ("checker", "judge") for word in (f"--{name}", models / name)]
    copyedit.main([*map(str, words), "--run", str(models / "editor")])
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["before", *copyedit.TOWARDS]
    assert {len(records) for records in found.values()} == {2}
    assert all(record["change_rate"] == 0 for record in found["before"])
    assert any(record["change_rate"] > 0 for record in found["masked"])
    for records in found.values():
        for record in records:
            assert 0 <= record["coherence"] <= 1
            assert record["tokens"] > 5


def made_up(gains, seed=0):
    """Scores of documents of which each version is this much more coherent than before."""
    random = np.random.default_rng(seed)
    before = random.uniform(0.3, 0.6, 40)
    found = {}
    for name, gained in {"before": 0.0, **gains}.items():
        values = before + gained + random.normal(0, 0.01, 40)
        found[name] = [
            {"document": str(n), "coherence": float(value), "change_rate": 0.1, "nats": 30.0 + 10 * gained, "tokens": 10}
            for n, value in enumerate(values)
        ]
    return found


GAINS = {"masked": 0.2, "siblings_mean": 0.1, "random_vector": -0.1, "noise": 0.0}


@pytest.mark.parametrize("holds", [True, False])
def test_the_claim_is_that_the_prediction_beats_the_mean_of_siblings(tmp_path, capsys, holds):
    out, test = tmp_path / copyedit.DEV, tmp_path / copyedit.TEST
    out.mkdir()
    test.mkdir()
    gains = GAINS if holds else GAINS | {"siblings_mean": 0.25}
    for epsilon, factor in zip(copyedit.EPSILONS, (0.5, 1.0, 0.2), strict=True):
        scaled = {name: gained * factor for name, gained in gains.items()}
        (out / f"{epsilon:g}.json").write_text(json.dumps(made_up(scaled)))
    (test / "test.json").write_text(json.dumps(made_up(gains, seed=1)))
    assert copyedit.chosen_epsilon(out) == 0.3
    rows = tmp_path / "rows.jsonl"
    copyedit.main(["table", "--out", str(tmp_path), "--rows", str(rows), "--commit", "abcdef0", "--measured", "abcdef0"])
    shown = capsys.readouterr().out
    (claim,) = [line for line in shown.splitlines() if "claim" in line]
    assert f"claim: {'holds' if holds else 'does not hold'}" in claim
    assert "prediction less mean of siblings, test, ε = 0.3" in claim
    by_name = {(row["row"], row["column"]): row for row in map(json.loads, rows.read_text().splitlines())}
    row = by_name["prediction from siblings, test, ε = 0.3", "gain of coherence"]
    assert row["value"] == pytest.approx(0.2, abs=0.01)
    assert row["interval"][0] < 0.2 < row["interval"][1] + 0.01
    assert "--epsilon 0.3" in row["command"]
    less = by_name["prediction less noise of equal length, test, ε = 0.3", "gain of coherence"]
    assert less["value"] == pytest.approx(0.2, abs=0.01)
    assert by_name["noise of equal length, dev, ε = 0.1", "change rate"]["value"] == pytest.approx(0.1)
    surprise = by_name["prediction from siblings, test, ε = 0.3", "change of surprise"]
    assert surprise["value"] == pytest.approx(0.2, abs=1e-6)
    assert by_name["before, test, ε = 0.3", "surprise"]["value"] == pytest.approx(3)


def test_a_document_that_lacks_a_score_is_left_out_of_both(tmp_path):
    found = made_up(GAINS)
    found["masked"][3]["coherence"] = None
    differences, weights = copyedit.paired(found, "masked", "before", "coherence")
    assert len(differences) == len(weights) == 39

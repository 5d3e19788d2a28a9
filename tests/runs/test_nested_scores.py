"""Evaluations and reports of models of nested documents, from a store to JSON and a page."""

import json
import math

import numpy as np
import pytest

import ramify
from fixtures import built
from fixtures.commands import call
from fixtures.nested import part, tree_of
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute, kind_for
from ramify.runs.nested_documents.report import curves, settled, stability
from ramify.runs.sections import Notice

WORDS = ["rain", "fell", "on", "the", "old", "roof", "and", "nobody", "came", "home", "before", "dark"]
SMALL = {
    "model.dims": "[8,8,8,8,8]",
    "model.max_children": "[12,5,9,6]",
    "model.encoder_cells": "[1,1,1,1]",
    "model.num_heads": "2",
    "tokenizer.vocab_size": "120",
    "train.steps": "4",
    "train.budget": "300",
    "train.log_every": "1",
    "train.evaluate_every": "2",
    "dev.tokens": "300",
}


def novel(number, split):
    random = np.random.default_rng(number)

    def sentence():
        return " ".join(random.choice(WORDS, size=random.integers(1, 14))).capitalize() + "."

    def paragraph():
        return part("paragraph", *(sentence() for _ in range(random.integers(1, 5))))

    tree = tree_of(*(part("chapter", *(paragraph() for _ in range(6))) for _ in range(3)), name=f"n{number}")
    return type(tree)(tree.nodes, id=tree.id, meta={"split": split})


def store_of(folder, *splits):
    return built([novel(number, split) for number, split in enumerate(splits)], folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("data") / "data", *["train"] * 4, "dev", "dev", "test")


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    execute(RECIPES["agent"](str(store.path), joint=True).changed(SMALL), out)
    return out


def evaluated(run, store, split, **options):
    model = ramify.load(run)
    return kind_for(model, str(run)).evaluate(model, str(run), store, split, options)


def test_the_json_holds_four_numbers_per_measure_and_level(store, trained):
    found = json.loads(json.dumps(evaluated(trained, store, "dev", rows=40).to_json(), allow_nan=False))
    assert list(found) == ["levels", "unknown_tokens"]
    levels = found["levels"]
    assert list(levels) == ["token", "sentence", "paragraph", "chapter", "document"]
    for measures in levels.values():
        for measure in measures.values():
            assert {"value", "baseline", "chance", "count"} <= set(measure)
    assert {"mlm_loss", "mlm_accuracy"} <= set(levels["token"])
    both = {"reconstruction_loss", "coherence_loss", "coherence_mse", "probing_auroc", "right_ends", "duplicates", "cut"}
    hidden = {"mlm_recall_at_10", "mlm_accuracy", "mlm_recall_at_10.three_or_more"}
    assert both | hidden | {"token_accuracy", "exact_match", "bleu", "token_accuracy.1-5"} <= set(levels["sentence"])
    for level in ("paragraph", "chapter"):
        assert both | hidden | {"child_accuracy", "retrieval_recall_at_10", "retrieval_auroc"} <= set(levels[level])
    assert "mlm_recall_at_10.nearby" in levels["sentence"]
    assert "mlm_recall_at_10" not in levels["document"]
    assert 0 < levels["sentence"]["token_accuracy"]["baseline"] < 1


def test_the_lines_are_a_table(store, trained):
    lines = evaluated(trained, store, "test", rows=20).lines()
    assert lines[0].startswith("1 document of ")
    assert any("candidates from other documents come from dev and test" in line for line in lines)
    assert any("fitted on the training documents" in line for line in lines)
    head = next(line for line in lines if line.startswith("level"))
    assert head.split() == ["level", "measure", "value", "baseline", "chance", "count", "p", "other", "baselines"]
    assert any(line.startswith("sentence   token_accuracy ") for line in lines)


def test_a_store_without_training_documents(trained, tmp_path):
    alone = store_of(tmp_path / "alone", "test")
    lines = evaluated(trained, alone, "test", rows=10).lines()
    assert any("only one held-out document" in line for line in lines)
    assert any("the other half of the document" in line for line in lines)
    with pytest.raises(RamifyError, match="no trees in the split 'dev'"):
        evaluated(trained, alone, "dev")


def test_progress_reaches_its_end(store, trained):
    from contextlib import contextmanager

    seen = []

    @contextmanager
    def bar(total):
        seen.append(-total)
        yield seen.append

    evaluated(trained, store, "dev", rows=10, progress=bar)
    assert sum(seen) == 0
    with pytest.raises(RamifyError, match="--beam does not apply"):
        evaluated(trained, store, "dev", beam=2)


def test_levels_of_a_sentence_model(store, tmp_path):
    settings = {**SMALL, "model.dims": "[8,8]", "model.max_children": "[12]", "model.encoder_cells": "[1]"}
    execute(RECIPES["agent-sentence"](str(store.path)).changed(settings), tmp_path / "run")
    found = evaluated(tmp_path / "run", store, "dev", rows=20).to_json()["levels"]
    assert list(found) == ["token", "sentence"]
    assert "mlm_recall_at_10" not in found["sentence"]
    assert "Do levels become stable" not in write_report(tmp_path / "run", comments=10).read_text()


def test_a_report_shows_curves_measures_and_the_order_of_levels(store, trained):
    page = write_report(trained, split="dev", comments=30).read_text()
    for text in (
        "Reconstruction: children from a vector",
        "Masked children from their siblings",
        "Do levels become stable",
        "Held-out measures: sentence",
        "Held-out measures: document",
        "tokens right, by place",
        "one vector gives back",
    ):
        assert text in page, text
    assert "nan" not in page.replace("nans", "")
    without = write_report(trained, evaluate=False).read_text()
    assert "Held-out measures" not in without


def logged(falls, steps=40):
    """Steps in which the reconstruction of each level falls exponentially."""
    return [
        {"step": step, "loss": 1.0, "target_tokens": step * 10}
        | {f"reconstruction_{name}": 1 + math.exp(-step / fall) for name, fall in falls.items()}
        for step in range(1, steps + 1)
    ]


def verdict(metrics, levels):
    (notice,) = [block for block in stability(metrics, levels).blocks if isinstance(block, Notice)]
    return notice.text[0]


def test_the_update_at_which_a_loss_has_settled():
    steps = np.arange(1.0, 11.0)
    assert settled(steps, np.array([10.0] * 5 + [0.0] * 5)) == 6
    assert settled(steps, np.linspace(10, 0, 10)) == 10
    assert math.isnan(settled(steps, np.linspace(0, 10, 10)))
    assert math.isnan(settled(steps[:1], np.ones(1)))


def test_the_order_in_which_levels_settle():
    assert verdict(logged({"a": 3, "b": 6, "c": 9}), ["a", "b", "c"]).startswith("Yes")
    assert verdict(logged({"a": 9, "b": 3}), ["a", "b"]).startswith("No")
    assert "open" in verdict(logged({"a": 9}), ["a", "b"])


def test_updates_without_a_level_are_no_points_of_its_curve():
    metrics = logged({"a": 3, "b": 6}, steps=6)
    for record in metrics[::2]:
        record["reconstruction_b"] = 0.0
    section = next(section for section in curves(metrics) if section.title.startswith("Reconstruction"))
    one, two = section.blocks[0].charts
    assert one.lines[0].x.tolist() == [1, 2, 3, 4, 5, 6]
    assert two.lines[0].x.tolist() == [2, 4, 6]
    assert curves([])[0].title == "Learning curves"


def test_stores_are_not_changed_by_an_evaluation(store, trained):
    evaluated(trained, Store.open(store.path), "dev", rows=10)
    assert Store.open(store.path).hash == store.hash


def test_the_command_prints_json_alone(store, trained):
    found = call("evaluate", trained, "--data", store.path, "--split", "dev", "--rows", 40, "--json")
    assert json.loads(found.stdout) == evaluated(trained, store, "dev", rows=40).to_json()

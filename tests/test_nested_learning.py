"""The benchmark of levels above sentences: its plan, seeds that are pooled, and the figures of its tables."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fixtures import text
from fixtures.nested import part, task, tree_of
from ramify.dataset.store import Store
from ramify.inference.documents.evaluation import evaluate_documents
from ramify.metrics.ranking import sign_flip

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import nested_documents
    import nested_learning
    from experiments import Figures
finally:
    sys.path.remove(str(BENCHMARKS))

LEVELS = ("sentence", "paragraph", "chapter", "document")
MODEL = {
    "levels": LEVELS,
    "dims": (8, 12, 16, 16, 16),
    "max_children": (6, 5, 8, 6),
    "encoder_cells": (1, 1, 1, 1),
    "decoder_cells": (1, 1, 1, 1),
}


def novel(number):
    random = np.random.default_rng(number)
    paragraphs = [part("paragraph", *(text(random, 5) for _ in range(random.integers(1, 6)))) for _ in range(12)]
    return tree_of(part("chapter", *paragraphs[:6]), part("chapter", *paragraphs[6:]), name=f"d{number}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of a model with their scores and queries, which are also the scores of two runs of an ablation."""
    out = tmp_path_factory.mktemp("runs")
    store = Store.from_trees([novel(number) for number in range(6)])
    for seed, name in enumerate(("A-learn-0", "A-learn-1")):
        own = task(MODEL, dtype=torch.float32)
        with torch.no_grad():
            for parameter in own.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) * 0.1)
        scores = evaluate_documents(own, store, "all", rows=40, levels=["paragraph", "chapter"])
        levels = {level: {key: value.to_json() for key, value in own.items()} for level, own in scores.levels.items()}
        short = ("A-6M-0", "A-without-foreign")[seed]
        for run, label in ((name, "test"), (short, "dev")):
            (out / run).mkdir()
            (out / run / f"{label}.json").write_text(json.dumps({"levels": levels}))
        np.savez(out / name / "items.npz", **nested_documents.items_of(scores))
    return out


def test_the_plan_has_three_seeds_and_leaves_out_options_one_by_one(capsys):
    nested_learning.plan(None)
    shown = capsys.readouterr().out
    for words in ("--seed 2 --out OUT/A-learn-2", "--set task.foreign=0 --set model.sibling_product=false", "--split dev"):
        assert words in shown
    names = [item.name for item in nested_learning.items()]
    assert len(names) == len(set(names)) == 1 + 2 * 3 + len(nested_learning.WITHOUT) + 1


def test_queries_of_seeds_are_pooled(runs):
    seeds = nested_learning.Seeds.found(runs, ["A-learn-0", "A-learn-1", "A-learn-2"])
    assert len(seeds) == 2
    lines = {line.title: line for line in nested_learning.lines(seeds, "paragraph")}
    one, two = (dict(np.load(runs / name / "items.npz")) for name in ("A-learn-0", "A-learn-1"))
    ranks = {
        system: np.concatenate([own[f"sentence/mlm_auroc/{system}"] for own in (one, two)])
        for system in ("unit", "candidates", "model", "dot", "cosine", "tfidf")
    }
    hits = {system: (ranks[system] <= 10) * 1.0 for system in ("model", "dot", "cosine", "tfidf")}
    better = max(("dot", "cosine"), key=lambda system: hits[system].sum())
    first = lines["hidden child, first ten"]
    assert first.value == hits["model"].mean()
    assert first.baselines["own siblings"] == hits[better].mean()
    assert first.baselines["TF-IDF"] == hits["tfidf"].mean()
    assert first.p == sign_flip(hits["model"] - hits[better], ranks["unit"])
    ratio = lines["hidden child, first ten / own siblings"]
    assert ratio.value == pytest.approx(hits["model"].sum() / hits[better].sum())
    assert lines["hidden child, AUROC"].value == np.mean(1 - (ranks["model"] - 1) / (ranks["candidates"] - 1))
    key = "paragraph/coherence_mse.other_documents/"
    errors = [np.concatenate([own[key + name] for own in (one, two)]) for name in ("error", "by_marks")]
    ratio = lines["squared error of the share of intruders / marks alone"]
    assert ratio.value == pytest.approx(errors[0].sum() / errors[1].sum())
    scores = [json.loads((runs / name / "test.json").read_text())["levels"] for name in ("A-learn-0", "A-learn-1")]
    probing = lines["intruder of the same book, AUROC of the checker"]
    values = [own["paragraph"]["probing_auroc.same_document"]["value"] for own in scores]
    assert list(probing.by_seed) == values
    assert probing.value == np.mean(values)
    goals = {title for _, title in nested_learning.GOALS}
    assert {title for title in goals if not title.endswith("TF-IDF")} <= set(lines)
    assert lines["decoded sentences, token accuracy"].baselines.keys() >= {"trigrams, true words before", "own vectors"}


def test_figures_say_which_goals_are_reached(runs):
    figures = Figures("abc1234", "abc1234", "A")
    nested_learning.add_levels(figures, runs)
    rows = {(row.table, row.row, row.column): row for row in figures.rows}
    rank = rows["nested-learn-paragraph", "effective rank", "value"]
    assert rank.note == f"goal: at least 15: {'reached' if rank.value >= 15 else 'missed'}"
    assert rank.seeds == (0, 1)
    assert rank.spread is not None
    assert ("nested-learn-chapter", "hidden child, AUROC", "own siblings") in rows
    goal = nested_learning.at_least(1.3, p=True)
    assert "reached" in goal.note(1.4, 0.001)
    assert "missed" in goal.note(1.4, 0.02)
    assert "missed" in goal.note(1.2, 0.001)


def test_an_ablation_compares_with_the_mean_of_all_options(runs):
    figures = Figures("abc1234", "abc1234", "A")
    nested_learning.add_ablation(figures, runs)
    rows = {(row.row, row.column): float(row.value) for row in figures.rows}
    own = json.loads((runs / "A-without-foreign" / "dev.json").read_text())["levels"]
    measure = own["paragraph"]["coherence_mse.other_documents"]
    ratio = rows["without foreign", "intruders, error / marks alone"]
    assert ratio == pytest.approx(measure["value"] / measure["baseline"], abs=1e-4)
    assert rows["all options", "hidden sentence, AUROC"] > 0
    assert "without cosine" not in {row for row, _ in rows}


def test_kept_runs_give_the_same_table(runs, tmp_path, capsys):
    def shown(out):
        nested_learning.main(["table", "--out", str(out)])
        return capsys.readouterr().out

    nested_learning.main(["keep", "--out", str(runs), "--to", str(tmp_path / "table.parquet")])
    assert shown(tmp_path / "table.parquet") == shown(runs)

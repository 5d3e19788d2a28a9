"""The benchmark of levels above sentences: its plan, seeds that are pooled, and the figures of its tables."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fixtures.nested import FOUR_SIZES, novels, task
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of a model with their scores and queries, which are also the scores of two runs of an ablation."""
    out = tmp_path_factory.mktemp("runs")
    store = Store.from_trees(novels(6, paragraphs=6, sentences=5))
    for seed, name in enumerate(("A-learn-0", "A-learn-1")):
        model = task(FOUR_SIZES, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) * 0.1)
        scores = evaluate_documents(model, store, "all", rows=40, levels=["paragraph", "chapter"])
        levels = {level: {key: value.to_json() for key, value in measures.items()} for level, measures in scores.levels.items()}
        short = ("A-6M-0", "A-without-foreign")[seed]
        for run, label in ((name, "test"), (short, "dev")):
            (out / run).mkdir()
            (out / run / f"{label}.json").write_text(json.dumps({"levels": levels}))
        np.savez(out / name / "items.npz", **nested_documents.items_of(scores))
    return out


def test_the_plan_has_three_seeds_and_leaves_out_options_one_by_one(capsys):
    nested_learning.plan(None)
    shown = capsys.readouterr().out
    for words in ("--seed 2 --out OUT/A-learn-2", "--set task.foreign=0 --out OUT/A-without-foreign", "--split dev"):
        assert words in shown
    for item in nested_learning.items():
        is_short = item.name.startswith(("A-6M", "A-without"))
        assert ("--set task.above=together" in item.train) == (is_short or item.name == "A-thawed")
        path = item.name not in ("A-sentences", "A-without-sibling-path")
        assert ("--set task.sibling_path=true" in item.train) == path
    names = [item.name for item in nested_learning.items()]
    assert len(names) == len(set(names)) == 1 + 2 * 3 + len(nested_learning.WITHOUT) + 1


def test_queries_of_seeds_are_pooled(runs):
    seeds = nested_learning.Seeds.finished(runs, ["A-learn-0", "A-learn-1", "A-learn-2"])
    assert len(seeds) == 2
    lines = {line.title: line for line in nested_learning.lines(seeds, "paragraph")}
    arrays = [dict(np.load(runs / name / "items.npz")) for name in ("A-learn-0", "A-learn-1")]
    asked = np.concatenate([array["sentence/mlm_auroc/siblings"] for array in arrays]) >= 3
    assert not asked.all()
    ranks = {
        system: np.concatenate([array[f"sentence/mlm_auroc/{system}"] for array in arrays])[asked]
        for system in ("unit", "candidates", "model", "dot", "cosine", "centred", "tfidf")
    }
    hits = {system: (ranks[system] <= 10) * 1.0 for system in ("model", "dot", "cosine", "centred", "tfidf")}
    better = max(("dot", "cosine"), key=lambda system: hits[system].sum())
    first = lines["hidden child, first ten"]
    assert first.value == hits["model"].mean()
    assert first.baselines["own siblings"] == hits[better].mean()
    assert first.baselines["own siblings, centred"] == hits["centred"].mean()
    assert first.baselines["TF-IDF"] == hits["tfidf"].mean()
    assert first.p == sign_flip(hits["model"] - hits[better], ranks["unit"])
    ratio = lines["hidden child, first ten / own siblings"]
    assert ratio.value == pytest.approx(hits["model"].sum() / hits[better].sum())
    assert lines["hidden child, AUROC"].value == np.mean(1 - (ranks["model"] - 1) / (ranks["candidates"] - 1))
    key = "paragraph/coherence_mse.other_documents/"
    errors = [np.concatenate([array[key + name] for array in arrays]) for name in ("error", "by_marks")]
    ratio = lines["squared error of the share of intruders / marks alone"]
    assert ratio.value == pytest.approx(errors[0].sum() / errors[1].sum())
    # Pooled or not, a line counts the items of one seed.
    assert (first.count, ratio.count) == (asked.sum() / 2, len(errors[0]) / 2)
    scores = [json.loads((runs / name / "test.json").read_text())["levels"] for name in ("A-learn-0", "A-learn-1")]
    probing = lines["intruder of the same book, AUROC of the checker"]
    values = [measures["paragraph"]["probing_auroc.same_document"]["value"] for measures in scores]
    assert list(probing.by_seed) == values
    assert probing.value == np.mean(values)
    goals = {title for _, title in nested_learning.GOALS}
    assert {title for title in goals if not title.endswith("TF-IDF")} <= set(lines)
    decoded = [measures["paragraph"]["decoded_token_accuracy"] for measures in scores]
    ratio = lines["decoded sentences, token accuracy / trigrams, true words before"]
    value, trigrams = (sum(measure[key] for measure in decoded) for key in ("value", "baseline"))
    assert ratio.value == pytest.approx(value / trigrams)
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
    assert "missed" in nested_learning.more_than(1).note(1.0, None)


def test_an_ablation_compares_with_the_mean_of_all_options(runs):
    figures = Figures("abc1234", "abc1234", "A")
    nested_learning.add_ablation(figures, runs)
    rows = {(row.row, row.column): float(row.value) for row in figures.rows}
    levels = json.loads((runs / "A-without-foreign" / "dev.json").read_text())["levels"]
    measure = levels["paragraph"]["coherence_mse.other_documents"]
    ratio = rows["without foreign", "intruders, error / marks alone"]
    assert ratio == pytest.approx(measure["value"] / measure["baseline"], abs=1e-4)
    assert rows["all options", "hidden sentence, AUROC"] > 0
    # Runs that are not finished have no row.
    assert {row for row, _ in rows} == {"all options", "without foreign"}


def test_kept_runs_give_the_same_table(runs, tmp_path, capsys):
    def shown(out):
        nested_learning.main(["table", "--out", str(out)])
        return capsys.readouterr().out

    nested_learning.main(["keep", "--out", str(runs), "--to", str(tmp_path / "table.parquet")])
    assert shown(tmp_path / "table.parquet") == shown(runs)

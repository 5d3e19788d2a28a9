"""The benchmark of generators: its plan, and the rows of its tables."""

import argparse
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import adversary
    from experiments import Figures
finally:
    sys.path.remove(str(BENCHMARKS))


def measures(value):
    return dict.fromkeys(adversary.COLUMNS, value)


@pytest.fixture
def runs(tmp_path):
    """Three seeds of two layers, one run of a single layer, and the mixture."""
    for number, name in enumerate(("G-2-0", "G-2-1", "G-2-2", "G-1-0")):
        sources = {"generator": measures(0.6 + number / 10), "gaussian": measures(0.5), "noise": measures(1.0)}
        sources["resampled"] = measures(0.5) | {"self_bleu": None}
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.json").write_text(json.dumps({"levels": {"sentence": sources}}))
    texts = [{"text": "a b c", "coherence": 0.25, "nearest_training_id": "emma 7", "nearest_text": "not a b"}]
    (tmp_path / "G-2-0" / "text.json").write_text(json.dumps([*texts, texts[0] | {"coherence": None}]))
    (tmp_path / adversary.MIXTURE).mkdir()
    found = [{"loss": "minimax", "seed": seed, "near": 0.9 - seed / 100, "least_mode": 0.1} for seed in (0, 1)]
    (tmp_path / adversary.MIXTURE / "mixture.json").write_text(json.dumps(found))
    return tmp_path


def test_the_plan(capsys):
    adversary.plan(argparse.Namespace())
    shown = capsys.readouterr().out
    assert "ramify train agent-gan --data DATA/books --init OUT/A-learn-0" in shown
    assert "python benchmarks/mixture.py --seeds 0,1,2" in shown
    assert "ramify train  --out" not in shown
    names = [item.name for item in adversary.items()]
    assert len(names) == len(set(names)) == 1 + len(adversary.LAYERS) + len(adversary.SEEDS) - 1 + len(adversary.OTHERS)


def test_rows_are_means_of_seeds_beside_floors(runs):
    figures = Figures("aaaaaaa", "bbbbbbb", "A")
    adversary.add_level(figures, runs, "sentence")
    found = {row.name: row for row in figures.rows}
    two = found["adversary-sentence.generator_of_2_layers.coverage"]
    assert (float(two.value), two.seeds) == (pytest.approx(0.7), (0, 1, 2))
    assert float(two.spread) == pytest.approx(0.1)
    one = found["adversary-sentence.generator_of_1_layer_a_linear_map.coverage"]
    assert (float(one.value), one.spread) == (pytest.approx(0.9), None)
    assert "evaluate OUT/G-1-0" in one.command
    assert float(found["adversary-sentence.noise.coverage"].value) == 1.0
    # A missing score has no row.
    assert "adversary-sentence.real_vectors_of_training.bleu_with_each_other" not in found
    assert not any("3_layers" in name for name in found)


def test_rows_of_the_mixture_are_the_least_of_its_seeds(runs):
    figures = Figures("aaaaaaa", "bbbbbbb", "A")
    adversary.add_mixture(figures, runs)
    values = {row.column: (float(row.value), row.seeds) for row in figures.rows}
    assert values == {
        "points near a mode": (pytest.approx(0.89), (0, 1)),
        "points of the rarest mode": (pytest.approx(0.1), (0, 1)),
    }


def test_texts_are_kept_without_the_novels(runs, tmp_path):
    adversary.main(["keep", "--out", str(runs), "--to", str(tmp_path / "kept.parquet")])
    rows = tmp_path / "rows.jsonl"
    adversary.main(["table", "--out", str(tmp_path / "kept.parquet"), "--rows", str(rows), "--commit", "0" * 8])
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    texts = [(each["row"], float(each["value"]), each["note"]) for each in found if each["table"] == "adversary-text"]
    note = "a b c (nearest: emma 7)"
    assert texts == [("paragraph 1", 0.5, note), ("paragraph 1", 0.25, note), ("paragraph 2", 0.5, note)]
    assert b"not a b" not in (tmp_path / "kept.parquet").read_bytes()


def test_the_table_is_printed(runs, capsys):
    adversary.main(["table", "--out", str(runs)])
    shown = capsys.readouterr().out
    assert "adversary-mixture.minimax.points_near_a_mode: 0.8900 share" in shown
    assert "adversary-sentence.noise.coverage: 1.0000 share" in shown

"""The comparison of label tasks: its splits, its list of runs, and the figures that are computed from their scores."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import downstream
    import rows
finally:
    sys.path.remove(str(BENCHMARKS))


def test_a_text_is_in_one_split_and_small_sets_are_parts_of_large_ones(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(downstream, "build", lambda out, files, *options: built.append(out.name))
    splits = {name: [[f"{name} text {number}", "1"] for number in range(40)] for name in ("train", "dev", "test")}
    downstream.write_set(tmp_path, "sst2", splits, ["sentence", "label"], (5, 20))
    assert built == ["sst2-5", "sst2-20", "sst2"]
    texts = [(tmp_path / "tables" / name / "train.tsv").read_text().splitlines()[1:] for name in built]
    assert [len(part) for part in texts] == [5, 20, 40]
    assert texts[0] == texts[1][:5]
    assert texts[1] == texts[2][:20]
    shares = [downstream.split_of(f"text {number}", 0.1, 0.2) for number in range(4000)]
    assert [shares.count(name) / 4000 for name in ("dev", "test")] == pytest.approx([0.1, 0.2], abs=0.02)


def test_runs_have_names_of_their_own_and_stay_below_the_limit():
    items = downstream.items()
    assert len({item.name for item in items}) == len(items)
    assert sum(item.hours for item in items) < 8.5  # the limit cuts the last ones
    assert all("test" not in label for item in items if item.name.startswith("R-") for label in item.scores)


def test_the_folder_of_a_timed_run_is_its_own():
    item = downstream.items()[0]
    plain = downstream.train_command(item, Path("d"), Path("o"), "1")
    assert plain.endswith(f" --out o/{item.name}")
    other = downstream.train_command(item, Path("d"), Path("o"), "1", Path("t/run"))
    assert other == plain.replace(f" --out o/{item.name}", " --out t/run")


def test_rates_are_chosen_on_dev_and_rows_are_means(tmp_path, capsys):
    for rate, value in zip(downstream.RATES["cnn"], (0.5, 0.7, 0.6), strict=True):
        folder = tmp_path / f"R-cnn-{rate}"
        folder.mkdir()
        (folder / "dev.json").write_text(json.dumps({"value": value}))
    assert downstream.best_rate(tmp_path, "cnn") == downstream.RATES["cnn"][1]
    for seed, value in zip(downstream.SEEDS, (0.6, 0.7, 0.8), strict=True):
        folder = tmp_path / downstream.run_name("sst2", 100, "cnn", seed)
        folder.mkdir()
        (folder / "test.json").write_text(json.dumps({"value": value, "metrics": {"accuracy": value}}))
    out = tmp_path / "rows.jsonl"
    downstream.table(Namespace(out=tmp_path, commit="0123456", machine="F", rows=out))
    (row,) = rows.read(out)
    assert (row.table, row.column, float(row.value), float(row.spread or 0)) == ("label-scarce", "100", 70.0, 10.0)
    assert "SST-2, CNN from scratch" in capsys.readouterr().out

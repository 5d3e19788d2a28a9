"""Tables of raw scores: files of runs come back exactly, repeated runs are replaced, and commands read tables as folders."""

import json
import os
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from ramify.inference.evaluation import Scores

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import raw_scores
    import replies
finally:
    sys.path.remove(str(BENCHMARKS))

TEXTS = {
    "own.json": '{"loss": 0.1, "count": 9007199254740993, "least": 5e-324, "title": "Größe\u2028 […]"}\r\n',
    "cost.json": "{}",
    "metrics.jsonl": '{"step": 1, "dev_loss": NaN}\n{"step": 2}\n',
}
ARRAYS = {
    "loss": np.array([[[0.1, -0.0, np.nan]], [[np.inf, 5e-324, -1e308]]]),
    "half": np.array([1 / 3, 65504.0], np.float16),
    "count": np.array([2**63 - 1, -(2**63)]),
    "small": np.array([-128, 127], np.int8),
    "trees": np.array(["t3_a", "", "Größe\n\u2028"]),
    "one": np.array(2.5),
    "none": np.zeros((0, 3)),
}


def write(folder: Path, texts=TEXTS, arrays=ARRAYS) -> None:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    np.savez_compressed(folder / "scores.npz", **arrays)


def add(table: Path, *runs: str, **changes) -> None:
    with raw_scores.adding_runs(table) as folder:
        for run in runs:
            write(folder / run, **changes)


def test_files_come_back_exactly(tmp_path):
    """Bytes of text, bits of numbers, dtypes and shapes."""
    add(tmp_path / "speed.parquet", "tree-0", "tree-1")
    with raw_scores.runs_in(tmp_path / "speed.parquet") as out:
        assert sorted(folder.name for folder in out.iterdir()) == ["tree-0", "tree-1"]
        for folder in out.iterdir():
            assert {file.name: file.read_bytes().decode() for file in folder.glob("*.json*")} == TEXTS
            with np.load(folder / "scores.npz") as arrays:
                assert arrays.files == list(ARRAYS)
                for name, array in ARRAYS.items():
                    assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
                    assert arrays[name].tobytes() == array.tobytes()
    assert not out.exists()
    assert os.listdir(tmp_path) == ["speed.parquet"]


def test_a_repeated_run_is_replaced(tmp_path):
    """All its rows go, those of files that it no longer has, too. Other runs stay."""
    table = tmp_path / "speed.parquet"
    add(table, "tree-0", "tree-1")
    add(table, "tree-0", texts={"own.json": "[1]"}, arrays={"count": np.arange(3)})
    with raw_scores.runs_in(table) as out:
        assert sorted(file.name for file in (out / "tree-0").iterdir()) == ["own.json", "scores.npz"]
        assert json.loads((out / "tree-0/own.json").read_text()) == [1]
        assert {file.name for file in (out / "tree-1").iterdir()} == {*TEXTS, "scores.npz"}


def test_the_order_of_additions_leaves_no_trace(tmp_path):
    add(tmp_path / "together.parquet", "tree-0", "tree-1", "tree-10")
    for run in ("tree-10", "tree-1", "tree-0", "tree-1"):
        add(tmp_path / "single.parquet", run)
    assert (tmp_path / "together.parquet").read_bytes() == (tmp_path / "single.parquet").read_bytes()


def test_a_failure_leaves_the_table_as_it_was(tmp_path):
    table = tmp_path / "speed.parquet"
    add(table, "tree-0")
    before = table.read_bytes()
    with pytest.raises(ValueError, match=r"array found has dtype bool.*Convert it"):
        add(table, "tree-0", arrays={"found": np.array([True])})
    assert table.read_bytes() == before
    assert os.listdir(tmp_path) == ["speed.parquet"]


def test_commands_read_tables_as_folders(tmp_path, capsys):
    out, table = tmp_path / "runs", tmp_path / "small.parquet"
    random = np.random.default_rng(0)
    for run in ("mht-0", "mht-1", "first-0"):
        comments = np.full(9, 5)
        correct = {name: random.integers(5, size=9) for name in ("correct", "first_correct")}
        history = "unread" if run == "first-0" else "gold"
        write(out / run, texts={"config.json": "{}"})
        np.savez(out / run / f"scores-{history}.npz", comments=comments, **correct)
    (out / "mht-2").mkdir()  # in training
    replies.keep(Namespace(out=out, to=table))
    with raw_scores.runs_in(table) as kept:
        assert sorted(str(file.relative_to(kept)) for file in kept.glob("*/*")) == [
            "first-0/scores-unread.npz",
            "mht-0/scores-gold.npz",
            "mht-1/scores-gold.npz",
        ]
    said = []
    for source in (out, table):
        replies.table(Namespace(out=source))
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "mht, history gold, 2 seed(s)" in said[0]


def test_kept_scores_agree_with_their_summaries():
    """The sums by tree of each evaluation in the tables of the repository give the loss that its command printed."""
    with raw_scores.runs_in(BENCHMARKS / "scores" / "ancestors.parquet") as out:
        files = sorted(out.glob("*/own.npz"))
        assert len(files) == 20
        for file in files:
            summary, printed = Scores.load(file).summary(), json.loads(file.with_suffix(".json").read_text())
            assert summary["loss"] == pytest.approx(printed["loss"], rel=1e-12)
            assert summary["count"] == printed["count"]

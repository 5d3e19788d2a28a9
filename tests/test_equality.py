"""The comparison of two recordings of all commands and recipes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from safetensors.numpy import save_file

from ramify.cli import app
from ramify.recipes import FITS, RECIPES

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import equality
finally:
    sys.path.remove(str(BENCHMARKS))

METRICS = {"loss": 2.5, "seconds": 0.1, "losses": [1.0, 2.0]}


@pytest.fixture
def compared(tmp_path, capsys):
    """Compare two recordings of a case; (exit status, output). Changes are those of the second recording."""

    def write(folder, *, metrics=METRICS, shown="loss 2.5  1,200 tokens/s", page="<p>two</p>\n", weights=(1.0, -4.0), status=0):
        folder.mkdir(parents=True)
        (folder / "status").write_text(f"{status}\n")
        (folder / "stdout").write_text(f"{shown}\n")
        (folder / "page.html").write_text(page)
        (folder / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
        save_file({"w": np.array(weights, dtype=np.float32)}, folder / "model.safetensors")

    def compare(case="train/toy", tolerance=1e-6, **changes):
        write(tmp_path / "before" / case)
        write(tmp_path / "after" / case, **changes)
        return equality.compare(tmp_path / "before", tmp_path / "after", tolerance), capsys.readouterr().out

    return compare


def test_equal_recordings(compared):
    assert compared() == (0, "1 cases: 1 equal to the byte\n")


@pytest.mark.parametrize(
    "changes", [{"metrics": METRICS | {"seconds": 9.9}}, {"shown": "loss 2.5  7 tokens/s"}], ids=["seconds", "pace"]
)
def test_times_are_no_difference(compared, changes):
    assert compared(**changes) == (0, "1 cases: 1 equal beside times and commits\n")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"page": "<p>too</p>\n"}, "page.html:: \n      -<p>two</p>\n      +<p>too</p>"),
        ({"status": 2}, "status:: maximum difference 2"),
        ({"metrics": METRICS | {"loss": 2.6}}, "metrics.jsonl:0.loss: maximum difference 0.1, relative 0.04 (2.5 → 2.6)"),
        ({"metrics": METRICS | {"losses": [1.0, 2.5]}}, "metrics.jsonl:0.losses: maximum difference 0.5, relative 0.25"),
        ({"metrics": METRICS | {"kind": "toy"}}, "metrics.jsonl:0.kind: only after: toy"),
        ({"metrics": METRICS | {"loss": float("nan")}}, "metrics.jsonl:0.loss: 2.5 → nan"),
        ({"shown": "loss 2.75  9 tokens/s"}, "stdout:: maximum difference 0.25"),
        ({"weights": (1.0, -4.0, 0.0)}, "model.safetensors:w: float32[2] [1.0, -4.0] → float32[3] [1.0, -4.0, 0.0]"),
        ({"weights": (1.0, -4.001)}, "model.safetensors:w: maximum difference 0.001, relative 0.00025 of 2 numbers"),
    ],
)
def test_a_difference_is_listed(compared, changes, line):
    status, out = compared(**changes)
    assert status == 1
    assert "NOT EXPECTED: 1\n" in out
    assert f"  train/toy/{line}" in out


def test_tolerance_is_for_numbers(compared):
    status, out = compared(weights=(1.0, -4.000001))
    assert status == 0
    assert "within 1e-06: 1\n" in out


def test_no_tolerance(compared):
    assert compared(weights=(1.0, -4.000001), tolerance=0)[0] == 1


def test_a_case_that_is_missing(compared, tmp_path):
    extra = tmp_path / "before" / "embed" / "toy"
    extra.mkdir(parents=True)
    (extra / "status").write_text("0\n")
    status, out = compared()
    assert status == 1
    assert f"  embed/toy: not in {tmp_path / 'after'}\n" in out


@pytest.mark.parametrize(("last", "status"), [(-4.000005, 0), (-4.1, 1)])
def test_wanted_changes_have_a_limit(compared, monkeypatch, last, status):
    monkeypatch.setattr(equality, "CHANGED_ON_PURPOSE", {"train/t*.safetensors:w": equality.Change("rounding", limit=2e-6)})
    found, out = compared(weights=(1.0, last))
    assert found == status
    assert ("changed on purpose: rounding: 1\n" in out) == (status == 0)


def test_every_recipe_and_command_is_recorded():
    lines = [line for commands in equality.CASES.values() for line in commands.splitlines()]
    trained = {line.split()[1] for line in lines if line.startswith("train ")}
    assert trained == {*RECIPES, *FITS}
    for name, command in typer.main.get_command(app).commands.items():
        parts = getattr(command, "commands", {"": None})
        for part in parts if name not in ("train", "evaluate") else [""]:
            assert any(line.startswith(f"{name} {part}".strip()) for line in lines), (name, part)


def test_cases_come_after_those_that_they_need():
    order = equality.in_order(set(equality.CASES))
    assert sorted(order) == sorted(equality.CASES)
    place = {name: number for number, name in enumerate(order)}
    assert place["data/replies"] < place["tokenizer/wordpiece"] < place["train/bert"] < place["python/export-bert"]
    assert place["python/export-bert"] < place["train/bert-pair"] < place["evaluate/pairs"]

"""metrics.jsonl, with one line per logged step, and the same values for tensorboard, if it is installed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ramify.errors import RamifyError
from ramify.files import make_folder, write_text
from ramify.tasks.base import TOTAL

METRICS = "metrics.jsonl"

AVERAGED = "averaged"
"""The entry that marks the record of a mean of checkpoints. It holds their steps."""


def averaged_record(step: int, steps: Sequence[int], measured: Mapping[str, float]) -> dict[str, Any]:
    """The record of the mean of the checkpoints of these steps, and its dev scores."""
    return {"step": step, AVERAGED: list(steps), **measured}


class MetricsLog:
    """Measurements of a run. Only the main process writes them; on other processes, `write` does nothing."""

    def __init__(self, file: Any, board: Any) -> None:
        self.file, self.board = file, board

    def write(self, record: dict[str, Any]) -> None:
        if self.file is None:
            return
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        if self.board is not None:
            kind = f"{AVERAGED}_" if AVERAGED in record else ""
            for name in record.keys() - {"step", AVERAGED}:
                self.board.add_scalar(f"{kind}{name}", record[name], record["step"])


@contextmanager
def metrics_log(out: Path, truncate_after: int, *, main: bool) -> Iterator[MetricsLog]:
    """The log of a run, without records after the step from which the run resumes."""
    if not main:
        yield MetricsLog(None, None)
        return
    make_folder(out)
    path = out / METRICS
    kept = [record for record in read_metrics(out) if record["step"] <= truncate_after]
    write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
    with open(path, "a", encoding="utf-8") as file, _tensorboard(out / "tensorboard", truncate_after) as board:
        yield MetricsLog(file, board)


@contextmanager
def _tensorboard(folder: Path, step: int) -> Iterator[Any]:
    """A tensorboard writer; None if tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    with SummaryWriter(str(folder), purge_step=step + 1 if step >= 0 else None) as board:
        yield board


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The records of the steps that a run has logged so far. A last line that a kill cut short is left out."""
    return [record for record in _records(out) if AVERAGED not in record]


def read_average(out: Path) -> dict[str, Any] | None:
    """The record of the mean of checkpoints that a run has saved; None if it saved none."""
    return next((record for record in _records(out) if AVERAGED in record), None)


def _records(out: Path) -> list[dict[str, Any]]:
    path = out / METRICS
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    records = []
    # A last line without a line end was cut short.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line) if line else {}
        except ValueError:
            record = None
        if not isinstance(record, dict) or (line and not _is_whole(record)):
            raise RamifyError(
                f"{path}, line {number}: expected a JSON object with step, loss and target_tokens. Remove this line."
            )
        if record:
            records.append(record)
    return records


def _is_whole(record: Mapping[str, Any]) -> bool:
    return {"step", TOTAL, "target_tokens"} <= record.keys() or {"step", AVERAGED} <= record.keys()

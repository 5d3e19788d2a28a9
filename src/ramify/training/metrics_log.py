"""metrics.jsonl, with one line per logged step, and the same values for tensorboard, if it is installed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ramify.errors import RamifyError
from ramify.files import make_folder, write_text

METRICS = "metrics.jsonl"


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
            for name in record.keys() - {"step"}:
                self.board.add_scalar(name, record[name], record["step"])


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
    """The records that a run has logged so far. A last line that a kill cut short is left out."""
    path = out / METRICS
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    records = []
    # A last line without a line end was cut short.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line) if line else {}
        except ValueError:
            record = None
        if not isinstance(record, dict) or (line and not {"step", "loss", "target_tokens"} <= record.keys()):
            raise RamifyError(
                f"{path}, line {number}: expected a JSON object with step, loss and target_tokens. Remove this line."
            )
        if record:
            records.append(record)
    return records

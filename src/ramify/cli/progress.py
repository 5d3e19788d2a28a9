"""Progress on stderr: bars on a terminal, else lines. The time left is estimated from the pace so far."""

import sys
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ramify.errors import in_words
from ramify.progress import Advance, Display, shown_on

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 30.0
"""Time between lines of progress where there is no terminal."""

MARKS = (0.0, 0.01, 0.03, *(tenth / 10 for tenth in range(1, 11)))
"""The shares of a stage after which a line is printed where there is no terminal."""

MOST_PARTS = 6
"""The losses of an objective with more of them are not listed line by line."""


class TimeLeft:
    """An estimate of the time to the end of some work, by the pace since the first call."""

    def __init__(self) -> None:
        self._start: tuple[float, float] | None = None
        self._last = 0.0

    def estimate(self, share: float) -> str:
        """The time left in words, now that this share is done; "" while there is no pace. A smaller share than before starts
        again."""
        now = time.monotonic()
        if self._start is None or share < self._last:
            self._start = (now, share)
        self._last = share
        began, first = self._start
        return in_words((now - began) * (1 - share) / (share - first)) if first < share < 1 else ""


class PlainProgress:
    """A line on stderr every `LINE_SECONDS`, for work that is watched through a log file and not on a terminal."""

    def __init__(self) -> None:
        self._printed = time.monotonic()
        self._left = TimeLeft()

    def update(self, name: str, done: int, total: int | None) -> None:
        left = self._left.estimate(done / total) if total else ""
        now = time.monotonic()
        if now - self._printed >= LINE_SECONDS:
            self._printed = now
            share = f"{done / total:.0%}" if total else f"{done:,} done"
            print(f"{name}: {share}{left and f', {left} left'}", file=sys.stderr, flush=True)


@contextmanager
def bar(name: str, total: int | None) -> Iterator[Advance]:
    """A progress bar on stderr if that is a terminal, else lines. Yields a function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if console.is_terminal:
        with Progress(console=console) as progress:
            row = progress.add_task(name, total=total)
            yield lambda count: progress.advance(row, count)
        return
    plain, done = PlainProgress(), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        plain.update(name, done, total)

    yield advance


# --- training -------------------------------------------------------------------------------------------------------------


class TrainingDisplay(Display):
    """The activities before the first step of each stage of training, and its steps."""

    @abstractmethod
    def report(self, record: Mapping[str, Any]) -> None:
        """Show a step. Activities are not shown from now on, until the stage is over and another follows."""


@contextmanager
def progress_display(*, enabled: bool = True) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show the activities of the work in the block, and the records of steps that the yielded function takes.

    A terminal has a bar for each. Elsewhere, each activity has a line, and so have steps at the `MARKS` and evaluations.
    """
    from rich.console import Console

    if not enabled:
        yield lambda record: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        plain = _Lines()
        with shown_on(plain):
            yield plain.report
        return
    with _rows(console) as rows:
        terminal = _Rows(rows)
        with shown_on(terminal):
            yield terminal.report


class _Lines(TrainingDisplay):
    def __init__(self) -> None:
        self._left = TimeLeft()
        self._speed = _Speed()
        self._passed = 0
        """The number of `MARKS` that the training has passed."""
        self._within = False
        """Whether the steps of a stage have begun, and more are to come."""

    @contextmanager
    def activity(self, name: str, total: int | None) -> Iterator[Advance]:
        if self._within:
            yield lambda count: None
            return
        print(f"{name} …", file=sys.stderr, flush=True)
        with bar(name, total) as advance:
            yield advance

    def report(self, record: Mapping[str, Any]) -> None:
        share = record["progress"]
        self._within = share < 1 or record["stages"] == 1
        left, speed = self._left.estimate(share), self._speed.after(record)
        passed = sum(mark <= share for mark in MARKS)
        if passed != self._passed or record["metric"] in record:
            self._passed = passed
            ending = left and f"  {_left(left, record)}"
            line = f"step {record['step']:>7}  {share:>4.0%}  {_measured(record)}  {speed}{ending}"
            print("\n    ".join([line, *record["meters"]]), file=sys.stderr, flush=True)


class _Rows(TrainingDisplay):
    def __init__(self, rows: "Progress") -> None:
        self._rows = rows
        self._left = TimeLeft()
        self._speed = _Speed()
        self._steps: Any = None
        """The row of the steps."""
        self._within = False
        """Whether the steps of a stage have begun, and more are to come."""

    @contextmanager
    def activity(self, name: str, total: int | None) -> Iterator[Advance]:
        if self._within:
            yield lambda count: None
            return
        row = self._rows.add_task(name, total=total, left="", line="")
        left, done = TimeLeft(), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if total is not None:
                remaining = left.estimate(done / total)
                # An activity may go on for a while after its last item.
                completed = min(done, 0.99 * total)
                self._rows.update(row, completed=completed, left=remaining and f"{remaining} left")

        try:
            yield advance
        finally:
            end = total or 1
            self._rows.update(row, completed=end, total=end, left="")

    def report(self, record: Mapping[str, Any]) -> None:
        share = record["progress"]
        self._within = share < 1 or record["stages"] == 1
        left = self._left.estimate(share)
        line = f"{_measured(record)}  {self._speed.after(record)}"
        if self._steps is None:
            self._steps = self._rows.add_task("", total=1.0, left="", line="")
        self._rows.update(
            self._steps,
            description=f"step {record['step']}",
            completed=share,
            left=left and _left(left, record),
            line=line,
        )
        if record["meters"]:
            self._rows.console.print("\n    ".join([f"step {record['step']}", *record["meters"]]), highlight=False)


def _rows(console: Any) -> "Progress":
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    name, left, line = (TextColumn(f"{{task.{field}}}") for field in ("description", "fields[left]", "fields[line]"))
    return Progress(name, BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), left, line, console=console)


class _Speed:
    """Tokens per second over the last steps."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, float]] = deque(maxlen=20)

    def after(self, record: Mapping[str, Any]) -> str:
        """The speed in words, after a further step."""
        self._recent.append((record["target_tokens"], record["seconds"]))
        before = self._recent[0] if len(self._recent) > 1 else (0.0, 0.0)
        tokens, seconds = (end - start for start, end in zip(before, self._recent[-1], strict=True))
        return f"{tokens / max(1e-9, seconds):,.0f} tokens/s"


def _left(time_left: str, record: Mapping[str, Any]) -> str:
    return f"{time_left}{' of this stage' if record['stages'] > 1 else ''} left"


def _measured(record: Mapping[str, Any]) -> str:
    """The loss of a step, and the score that chooses the weights."""
    name = record["metric"]
    dev = f"  {name.replace('_', ' ')} {record[name]:.4f}" if name in record else ""
    # The report has a curve of each loss.
    named = record["parts"] if len(record["parts"]) <= MOST_PARTS else []
    parts = ", ".join(f"{name.replace('_', ' ')} {record[name]:.4f}" for name in named)
    epochs = f"epoch {record['epochs']:.1f}  " if "epochs" in record else ""
    return f"{epochs}loss {record['loss']:.4f}{f' ({parts})' if parts else ''}{dev}"

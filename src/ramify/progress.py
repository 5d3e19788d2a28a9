"""Progress of long work. Library code says what it is doing, and a program may show it; by default, nothing is shown."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")

Advance = Callable[[int], None]
"""A function that counts further items as done."""

PAUSE = 0.1
"""The shortest time between two updates of a display, in seconds."""


class Display(ABC):
    """Shows people the activity that some work is in."""

    @abstractmethod
    def activity(self, name: str, total: int | None) -> AbstractContextManager[Advance]:
        """Show an activity while the block lasts. The function takes the number of items done since its last call, and may be
        called from any thread. `total` is the number of all items, if it is known."""


_shown_on: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def shown_on(display: Display) -> Iterator[None]:
    """Show the activities of the work in the block."""
    token = _shown_on.set(display)
    try:
        yield
    finally:
        _shown_on.reset(token)


@contextmanager
def activity(name: str, total: int | None = None) -> Iterator[Advance]:
    """Name the activity of the block. Yields a function that counts items as done, of `total` if that is known."""
    display = _shown_on.get()
    if display is None:
        yield lambda count: None
        return
    with display.activity(name, total) as show:
        paced = _Paced(show)
        try:
            yield paced.advance
        finally:
            paced.flush()


def track(name: str, items: Iterable[Item], total: int | None = None) -> Iterator[Item]:
    """The items, in an activity that counts them as they are taken."""
    with activity(name, total) as advance:
        yield from counted_by(advance, items)


def counted_by(advance: Advance, items: Iterable[Item]) -> Iterator[Item]:
    """The items, counted as they are taken."""
    for item in items:
        yield item
        advance(1)


class _Paced:
    """Passes counts on a few times per second, so that tight loops may count every item."""

    def __init__(self, show: Advance) -> None:
        self._show = show
        self._waiting = 0
        self._shown = time.monotonic()

    def advance(self, count: int) -> None:
        self._waiting += count
        if time.monotonic() - self._shown >= PAUSE:
            self.flush()

    def flush(self) -> None:
        self._shown = time.monotonic()
        waiting, self._waiting = self._waiting, 0
        if waiting:
            self._show(waiting)

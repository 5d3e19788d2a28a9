"""Taking up what has come in the meantime."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Arrival(Generic[Item]):
    item: Item


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def arrivals(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """The items, in runs of all that have come since the last run was asked for: one at least, `most` at most.

    Another thread reads them, no more than `most` ahead. What goes wrong there is raised here, after all that came before.
    """
    waiting: Queue[_Arrival[Item] | _End] = Queue(most)
    left = threading.Event()

    def read() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                waiting.put(_Arrival(item))
                if left.is_set():
                    return
        except BaseException as caught:
            error = caught
        waiting.put(_End(error))

    # What it reads may never end, and must not keep the process from it.
    threading.Thread(target=read, daemon=True).start()
    try:
        while True:
            came: list[Item] = []
            following: _Arrival[Item] | _End | None = waiting.get()
            while isinstance(following, _Arrival):
                came.append(following.item)
                following = None
                with suppress(Empty):
                    following = waiting.get_nowait() if len(came) < most else None
            if came:
                yield came
            if isinstance(following, _End):
                if following.error is not None:
                    raise following.error
                return
    finally:
        left.set()
        # A place for what it may be about to hand over.
        while not waiting.empty():
            waiting.get()

"""Batches of items that arrive while earlier ones are processed."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Received(Generic[Item]):
    item: Item


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def prefetch_batches(items: Iterable[Item], max_size: int) -> Iterator[list[Item]]:
    """Batches of all items that have arrived since the last batch was taken: one item at least, `max_size` at most.

    Another thread reads the items, no more than `max_size` ahead. An error there is raised here, after all items before it.
    """
    queue: Queue[_Received[Item] | _End] = Queue(max_size)
    closed = threading.Event()

    def read() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                queue.put(_Received(item))
                if closed.is_set():
                    return
        except BaseException as caught:
            error = caught
        queue.put(_End(error))

    # A daemon: the items may never end, and must not keep the process from ending.
    threading.Thread(target=read, daemon=True).start()
    try:
        while True:
            batch: list[Item] = []
            following: _Received[Item] | _End | None = queue.get()
            while isinstance(following, _Received):
                batch.append(following.item)
                following = None
                with suppress(Empty):
                    following = queue.get_nowait() if len(batch) < max_size else None
            if batch:
                yield batch
            if isinstance(following, _End):
                if following.error is not None:
                    raise following.error
                return
    finally:
        closed.set()
        # Room for an item that the thread may be about to put.
        while not queue.empty():
            queue.get()

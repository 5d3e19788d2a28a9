"""Batches of prefetched items: their contents and their timing."""

import threading
from collections.abc import Iterator
from itertools import chain

import pytest

from ramify.disentangle.inference.prefetch import prefetch_batches


def test_single_items_are_yielded_at_once():
    asked = [threading.Event() for _ in range(3)]

    def slowly() -> Iterator[int]:
        for number, event in enumerate(asked):
            assert event.wait(60)
            yield number

    runs = prefetch_batches(slowly(), 10)
    for number, event in enumerate(asked):
        event.set()
        # The next item is read only after this one has been taken.
        assert next(runs) == [number]
    assert list(runs) == []


def test_waiting_items_are_yielded_together():
    read: list[int] = []
    ahead = threading.Event()

    def eagerly() -> Iterator[int]:
        for number in range(20):
            read.append(number)
            if number == 5:
                ahead.set()
            yield number

    runs = prefetch_batches(eagerly(), 4)
    found = next(runs)
    # The reader runs ahead by the limit and one item in hand.
    assert ahead.wait(60)
    assert len(read) <= len(found) + 4 + 1
    together = [found, *runs]
    assert [number for run in together for number in run] == list(range(20))
    assert len(together[1]) == max(map(len, together)) == 4


def test_errors_are_raised_after_earlier_items():
    def until() -> Iterator[int]:
        yield from range(3)
        raise ValueError("line 4")

    found: list[int] = []
    with pytest.raises(ValueError, match="line 4"):
        found.extend(chain.from_iterable(prefetch_batches(until(), 2)))
    assert found == [0, 1, 2]


def test_reading_stops_with_the_consumer():
    ended = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    runs = prefetch_batches(endless(), 3)
    next(runs)
    runs.close()
    assert ended.wait(60)

"""The 77 features: one by one on a log written for it, and against a slow reading of the paper on random logs."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramify.disentangle.data.blocks import candidates
from ramify.disentangle.data.channel_builder import channel_of
from ramify.disentangle.features.pairs import (
    ANSWERED,
    ANSWERING,
    FEATURES,
    MESSAGES_AGO,
    MINUTES_AGO,
    MINUTES_APART,
    PAIR,
    RATES,
    YEARS,
    features,
)
from ramify.readers.chat import SYSTEM
from ramify.tree import Node

START = 1_234_567_800.0
"""13 February 2009, 23:30."""


def said(minute: float, author: str | None, text: str, kind: str = "") -> Node:
    return Node(text, None, author=author, time=START + 60 * minute, kind=kind)


LOG = (
    said(0, "ann", "anybody know how to mount a disk"),
    said(0, "Bob", "ann: which disk"),
    said(1, None, "=== carl has joined #disks", SYSTEM),
    said(1, "ann", "Bob: the big disk over there"),
    said(40, "carl", "hello"),
    said(41, "Bob", "ann, carl: mount the big disk over there by hand"),
    said(41, "ubotu", "mount is a command"),
    said(42, "ann", "Bob: thanks"),
)


def values(answering: int, answered: int, log: tuple[Node, ...] = LOG, **options: bool) -> dict[str, float]:
    channel = channel_of(log, **options)
    found = features(channel, np.array([answering]), np.array([[answered]]))
    return {name: value for name, value in zip(FEATURES, found[0, 0].tolist(), strict=True) if value}


def test_there_are_seventy_seven_and_each_has_a_name_of_its_own() -> None:
    assert (len(ANSWERING), len(ANSWERED), len(PAIR)) == (33, 17, 27)
    assert len(set(FEATURES)) == 77


def test_a_pair_one_by_one() -> None:
    """Bob, in line 5, answers ann's line 3."""
    assert values(5, 3) == pytest.approx(
        {
            "year 2009": 1,
            "messages a minute -1…1": 1,
            "answering addresses": 1,
            "answering spoke before": 1,
            "answering addressed before": 1,
            "answering messages since 1…5": 1,
            "answering minutes since 10…10000": 1,
            # 00:11: the log goes past midnight, so the hour is none.
            "answered hour": 23 / 24,
            "answered addresses": 1,
            "answered spoke before": 1,
            "answered messages since 1…5": 1,
            "answered minutes since 0…2": 1,
            "messages apart": 0.02,
            "not adjacent": 1,
            "minutes apart": 0.4,
            "minutes apart 5…60": 1,
            "answered addresses answering": 1,
            "answering addresses answered": 1,
            "answering silent between": 1,
            "answered silent between": 1,
            "answering addressed answered before": 1,
            "answered addressed answering after": 1,
            "common words of answered": 5 / 8,
            "common words of answering": 5 / 12,
            "words in common": 1,
        }
    )


def test_a_message_as_its_own_candidate() -> None:
    assert values(5, 5) == pytest.approx(
        {
            "year 2009": 1,
            "messages a minute -1…1": 1,
            "answering addresses": 1,
            "answering spoke before": 1,
            "answering addressed before": 1,
            "answering messages since 1…5": 1,
            "answering minutes since 10…10000": 1,
            "answered minutes since 10…10000": 1,
            "self": 1,
            "minutes apart 0…1": 1,
            "same speaker": 1,
        }
    )


def test_bots_system_lines_and_first_messages() -> None:
    assert {"answering is bot", "answering messages since -1…0", "answering minutes since -1…0"} <= values(6, 2).keys()
    assert "answered is system" in values(6, 2)
    assert not {"answering spoke before", "answering addresses", "answered spoke before"} & values(6, 2).keys()
    # Who joins has said nothing: carl's first message follows none.
    assert "answering spoke before" not in values(4, 2)
    assert "same speaker" not in values(4, 2)


def test_who_addressed_whom_before_after_and_between() -> None:
    found = values(7, 1)
    assert {"answering addressed answered between", "answered addressed answering between"} <= found.keys()
    assert not any("before" in name and "addressed a" in name and name in found for name in PAIR)
    # Line 3 is the earliest call to Bob, line 7 the last.
    assert "answering addressed answered after" in values(3, 1)
    assert "answering addressed answered after" not in values(3, 1, causal=True)
    assert "share an addressee" in values(5, 1)


def test_a_causal_channel_does_not_change_when_more_is_said() -> None:
    whole = channel_of(LOG, causal=True)
    for size in range(1, len(LOG) + 1):
        part = channel_of(LOG[:size], causal=True)
        target = np.array([size - 1])
        near = candidates(target, 5)
        np.testing.assert_array_equal(features(whole, target, near), features(part, target, near))
    # Offline it does: "carl" is nobody before he comes.
    named = (said(0, "ann", "carl: are you there"), said(1, "carl", "yes"))
    assert "answering addresses" in values(0, 0, named)
    assert "answering addresses" not in values(0, 0, named, causal=True)


def test_without_times_nothing_is_said_of_minutes() -> None:
    timeless = tuple(Node(node.text, author=node.author, kind=node.kind) for node in LOG)
    found = values(5, 3, timeless)
    assert "minutes apart -1…0" in found
    assert "answering minutes since -1…0" in found
    assert not [name for name in found if "a minute" in name or "hour" in name or "year" in name or name == "minutes apart"]


def test_clocks_may_go_back() -> None:
    found = values(1, 0, (said(5, "ann", "hi"), said(4, "bob", "hi")))
    assert "minutes apart" not in found
    assert "minutes apart -1…0" in found
    assert values(1, 0, (said(5 + 24 * 60 * 9, "ann", "hi"), said(4, "bob", "hi"))) == found


def test_the_faithful_channel_keeps_the_quirks_of_the_published_code() -> None:
    acts = (said(0, "ann", "hi all"), said(0, "Bob", "waves", "action"), said(0, "Bob", "ann: hi"), said(1, "ann", "bob: hi"))
    assert "same speaker" in values(2, 1, acts)
    assert "same speaker" not in values(2, 1, acts, faithful=True)
    # Whoever acts is said to be addressed, by nobody.
    assert "answering addresses" not in values(1, 0, acts)
    assert "answering addresses" in values(1, 0, acts, faithful=True)
    # ann called "bob", but the code looks for "Bob".
    later = (*acts, said(2, "Bob", "ok"), said(3, "ann", "right"))
    assert "answering addressed answered between" in values(5, 2, later)
    assert "answering addressed answered between" not in values(5, 2, later, faithful=True)


def test_candidates_end_where_the_log_begins() -> None:
    assert candidates(np.array([0, 2, 5]), 3).tolist() == [[0, -1, -1, -1], [2, 1, 0, -1], [5, 4, 3, 2]]
    channel = channel_of(LOG)
    assert not features(channel, np.array([0]), np.array([[-1]])).any()


@pytest.mark.parametrize(
    "log", [(), (said(0, "ann", "hi"),), (said(0, None, ""),), tuple(said(0, "ann", "x") for _ in range(9))]
)
def test_small_and_dull_logs(log: tuple[Node, ...]) -> None:
    targets = np.arange(len(log))
    found = features(channel_of(log), targets, candidates(targets, 100))
    assert found.shape == (len(log), 101, 77)
    assert np.isfinite(found).all()


# --- against the paper, read slowly ---------------------------------------------------------------------------------------


def one_of(value: float, edges: tuple[int, ...]) -> list[bool]:
    return [low <= value < high for low, high in pairwise(edges)]


class Slow:
    """The features of one pair at a time, from the messages themselves. Names are single words without punctuation."""

    def __init__(self, log: tuple[Node, ...]) -> None:
        self.log = log
        self.names = {node.author.lower() for node in log if node.author}
        self.minute = [None if node.time is None else math.floor(node.time / 60) for node in log]

    def addressed(self, number: int) -> set[str]:
        words = self.log[number].text.split()[2 if self.log[number].kind == SYSTEM else 0 :]
        return {word.lower().rstrip(":,") for word in words} & self.names

    def speaker(self, number: int) -> str | None:
        author = self.log[number].author
        return None if author is None else author.lower()

    def words(self, number: int) -> set[str]:
        node = self.log[number]
        if node.kind == SYSTEM:
            return set(node.text.split())
        minute = self.minute[number]
        stamp = [] if minute is None else [f"[{minute // 60 % 24:02}:{minute % 60:02}]"]
        return {*stamp, f"<{node.author}>", *node.text.split()}

    def before(self, number: int) -> int | None:
        own = [
            earlier
            for earlier in range(number)
            if self.speaker(earlier) == self.speaker(number) is not None and self.log[earlier].kind != SYSTEM
        ]
        return own[-1] if own else None

    def minutes(self, earlier: int | None, later: int) -> int:
        start = None if earlier is None else self.minute[earlier]
        end = self.minute[later]
        return -1 if start is None or end is None else max(-1, end - start)

    def message(self, number: int, itself: bool) -> list[float]:
        previous = self.before(number)
        minute = self.minute[number]
        return [
            self.log[number].kind == SYSTEM,
            0 if minute is None else minute // 60 % 24 / 24,
            bool(self.addressed(number)) and not itself,
            previous is not None and not itself,
            previous is not None and bool(self.addressed(previous)) and not itself,
            *[each and not itself for each in one_of(-1 if previous is None else number - previous, MESSAGES_AGO)],
            *one_of(self.minutes(previous, number), MINUTES_AGO),
            self.speaker(number) == "ubotu",
        ]

    def rate(self) -> float:
        timed = [minute for node, minute in zip(self.log, self.minute) if minute is not None and node.kind != SYSTEM]
        return len(self.log) / max(1, timed[-1] - timed[0]) if timed else math.nan

    def calls(self, caller: str | None, called: str | None) -> list[int]:
        if caller is None or called is None:
            return []
        return [n for n in range(len(self.log)) if self.speaker(n) == caller and called in self.addressed(n)]

    def pair(self, late: int, early: int) -> list[float]:
        itself = late == early
        apart = self.minutes(early, late)
        unknown = self.minute[late] is None or self.minute[early] is None
        one, two = self.speaker(late), self.speaker(early)
        common = len(self.words(late) & self.words(early))
        last = self.before(late)
        following = [n for n in range(early + 1, len(self.log)) if self.speaker(n) == two and self.log[n].kind != SYSTEM]
        silent = two is None or not following or following[0] > late
        called = []
        for calls in (self.calls(one, two), self.calls(two, one)):
            called += [bool(calls) and calls[0] < early, bool(calls) and calls[-1] > late, any(early < n < late for n in calls)]
        return [
            itself,
            min(100, late - early) / 100,
            late - early > 1,
            0 if unknown else min(100, max(0, apart)) / 100,
            *one_of(apart, MINUTES_APART),
            one in self.addressed(early),
            two in self.addressed(late),
            not itself and (last is None or last < early),
            not itself and silent,
            *[each and not itself for each in called],
            itself or one == two is not None,
            not itself and bool(self.addressed(late) & self.addressed(early)),
            0 if itself else common / max(1, len(self.words(early))),
            0 if itself else common / max(1, len(self.words(late))),
            not itself and common == 0,
            not itself and common == 1,
            not itself and common > 1,
            not itself and common > 5,
        ]

    def features(self, late: int, early: int) -> list[float]:
        itself = late == early
        near = [0 <= n < len(self.log) and self.speaker(n) == self.speaker(early) is not None for n in (early + 1, early - 1)]
        time = self.log[late].time
        year = None if time is None else int(str(np.datetime64(int(time), "s"))[:4])
        return [
            *[year == each for each in YEARS],
            *one_of(self.rate(), RATES),
            *self.message(late, False),
            *self.message(early, itself),
            *[each and not itself for each in near],
            *self.pair(late, early),
        ]


people = st.sampled_from(["ann", "Bob", "carl", "ubotu"])
words = st.lists(st.sampled_from(["ann", "bob:", "Bob", "carl,", "yes", "no", "disk", "a", "b", "c", "d", "e"]), max_size=9)
messages = st.builds(
    lambda author, spoken, minute, kind: Node(
        f"=== {author} {' '.join(spoken)}" if kind else " ".join(spoken),
        None,
        author=author,
        time=None if minute is None else START + 60 * minute,
        kind=kind,
    ),
    st.one_of(people, st.none()),
    words,
    st.one_of(st.integers(0, 300), st.none()),
    st.sampled_from(["", "", "", SYSTEM]),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(messages, min_size=1, max_size=14), st.booleans())
def test_all_features_equal_the_slow_ones(drawn: list[Node], in_order: bool) -> None:
    if in_order:
        drawn = sorted(drawn, key=lambda node: node.time or 0)
    log = tuple(drawn)
    targets = np.arange(len(log))
    near = candidates(targets, len(log))
    found = features(channel_of(log), targets, near)
    slow = Slow(log)
    for late in targets.tolist():
        for early in range(late + 1):
            expected = np.array(slow.features(late, early), dtype=np.float32)
            place = late - early
            different = np.flatnonzero(~np.isclose(found[late, place], expected))
            assert not len(different), [(FEATURES[n], found[late, place, n], expected[n]) for n in different]

"""The 77 features: each on a handwritten log, and all against a slow reference on random logs."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramify.disentangle.data.candidates import list_candidates
from ramify.disentangle.data.channel_builder import build_channel
from ramify.disentangle.features.pairs import (
    CHILD_FEATURES,
    FEATURES,
    MESSAGES_AGO,
    MINUTES_AGO,
    MINUTES_APART,
    PAIR_FEATURES,
    PARENT_FEATURES,
    RATES,
    YEARS,
    compute_features,
)
from ramify.readers.chat import SYSTEM
from ramify.tree import Node

START = 1_234_567_800.0
"""13 February 2009, 23:30."""


def message(minute: float, author: str | None, text: str, kind: str = "") -> Node:
    return Node(text, None, author=author, time=START + 60 * minute, kind=kind)


LOG = (
    message(0, "ann", "anybody know how to mount a disk"),
    message(0, "Bob", "ann: which disk"),
    message(1, None, "=== carl has joined #disks", SYSTEM),
    message(1, "ann", "Bob: the big disk over there"),
    message(40, "carl", "hello"),
    message(41, "Bob", "ann, carl: mount the big disk over there by hand"),
    message(41, "ubotu", "mount is a command"),
    message(42, "ann", "Bob: thanks"),
)


def values(child: int, parent: int, log: tuple[Node, ...] = LOG, **options: bool) -> dict[str, float]:
    channel = build_channel(log, **options)
    found = compute_features(channel, np.array([child]), np.array([[parent]]))
    return {name: value for name, value in zip(FEATURES, found[0, 0].tolist(), strict=True) if value}


def test_seventy_seven_features_with_distinct_names() -> None:
    assert (len(CHILD_FEATURES), len(PARENT_FEATURES), len(PAIR_FEATURES)) == (33, 17, 27)
    assert len(set(FEATURES)) == 77


LINE_5 = {
    "year 2009": 1,
    "messages a minute -1…1": 1,
    "child has mention": 1,
    "child has previous": 1,
    "child previous has mention": 1,
    "child messages since 1…5": 1,
    "child minutes since 10…10000": 1,
}
"""Features of the message in line 5, whichever its parent."""


def test_features_of_one_pair() -> None:
    """Bob, in line 5, answers ann's line 3."""
    assert values(5, 3) == pytest.approx(
        {
            **LINE_5,
            # 00:11: the log passes midnight, so the hour of the child is 0.
            "parent hour": 23 / 24,
            "parent has mention": 1,
            "parent has previous": 1,
            "parent messages since 1…5": 1,
            "parent minutes since 0…2": 1,
            "messages apart": 0.02,
            "not adjacent": 1,
            "minutes apart": 0.4,
            "minutes apart 5…60": 1,
            "parent mentions child's author": 1,
            "child mentions parent's author": 1,
            "child's author silent between": 1,
            "parent's author silent between": 1,
            "child's author mentioned parent's before": 1,
            "parent's author mentioned child's after": 1,
            "common words, share of parent": 5 / 8,
            "common words, share of child": 5 / 12,
            "words in common": 1,
        }
    )


def test_message_as_its_own_candidate() -> None:
    assert values(5, 5) == pytest.approx(
        {
            **LINE_5,
            "parent minutes since 10…10000": 1,
            "self": 1,
            "minutes apart 0…1": 1,
            "same author": 1,
        }
    )


def test_bots_system_lines_and_first_messages() -> None:
    assert {"child is bot", "child messages since -1…0", "child minutes since -1…0"} <= values(6, 2).keys()
    assert "parent is system" in values(6, 2)
    assert not {"child has previous", "child has mention", "parent has previous"} & values(6, 2).keys()
    # Joining does not count as speaking: carl's first message has no previous message.
    assert "child has previous" not in values(4, 2)
    assert "same author" not in values(4, 2)


def test_mentions_before_after_and_between() -> None:
    found = values(7, 1)
    assert {"child's author mentioned parent's between", "parent's author mentioned child's between"} <= found.keys()
    assert not any("before" in name and "mentioned" in name and name in found for name in PAIR_FEATURES)
    # Line 3 is the earliest mention of Bob, line 7 the last.
    assert "child's author mentioned parent's after" in values(3, 1)
    assert "child's author mentioned parent's after" not in values(3, 1, causal=True)
    assert "share a mention" in values(5, 1)


def test_causal_features_do_not_depend_on_later_messages() -> None:
    whole = build_channel(LOG, causal=True)
    for size in range(1, len(LOG) + 1):
        part = build_channel(LOG[:size], causal=True)
        target = np.array([size - 1])
        near = list_candidates(target, 5)
        np.testing.assert_array_equal(compute_features(whole, target, near), compute_features(part, target, near))
    # Offline features do change: "carl" is a name only once carl appears.
    named = (message(0, "ann", "carl: are you there"), message(1, "carl", "yes"))
    assert "child has mention" in values(0, 0, named)
    assert "child has mention" not in values(0, 0, named, causal=True)


def test_no_minute_features_without_times() -> None:
    timeless = tuple(Node(node.text, author=node.author, kind=node.kind) for node in LOG)
    found = values(5, 3, timeless)
    assert "minutes apart -1…0" in found
    assert "child minutes since -1…0" in found
    assert not [name for name in found if "a minute" in name or "hour" in name or "year" in name or name == "minutes apart"]


def test_features_with_clocks_that_go_back() -> None:
    found = values(1, 0, (message(5, "ann", "hi"), message(4, "bob", "hi")))
    assert "minutes apart" not in found
    assert "minutes apart -1…0" in found
    assert values(1, 0, (message(5 + 24 * 60 * 9, "ann", "hi"), message(4, "bob", "hi"))) == found


def test_reproduce_published_keeps_the_quirks_of_the_published_code() -> None:
    acts = (
        message(0, "ann", "hi all"),
        message(0, "Bob", "waves", "action"),
        message(0, "Bob", "ann: hi"),
        message(1, "ann", "bob: hi"),
    )
    assert "same author" in values(2, 1, acts)
    assert "same author" not in values(2, 1, acts, reproduce_published=True)
    # The published code treats the author of an action as mentioned.
    assert "child has mention" not in values(1, 0, acts)
    assert "child has mention" in values(1, 0, acts, reproduce_published=True)
    # ann called "bob", but the code looks for "Bob".
    later = (*acts, message(2, "Bob", "ok"), message(3, "ann", "right"))
    assert "child's author mentioned parent's between" in values(5, 2, later)
    assert "child's author mentioned parent's between" not in values(5, 2, later, reproduce_published=True)


def test_candidates_end_at_the_first_message() -> None:
    assert list_candidates(np.array([0, 2, 5]), 3).tolist() == [[0, -1, -1, -1], [2, 1, 0, -1], [5, 4, 3, 2]]
    channel = build_channel(LOG)
    assert not compute_features(channel, np.array([0]), np.array([[-1]])).any()


@pytest.mark.parametrize(
    "log", [(), (message(0, "ann", "hi"),), (message(0, None, ""),), tuple(message(0, "ann", "x") for _ in range(9))]
)
def test_tiny_and_uniform_logs(log: tuple[Node, ...]) -> None:
    targets = np.arange(len(log))
    found = compute_features(build_channel(log), targets, list_candidates(targets, 100))
    assert found.shape == (len(log), 101, 77)
    assert np.isfinite(found).all()


# --- against a slow reference from the paper ------------------------------------------------------------------------------


def one_of(value: float, edges: tuple[int, ...]) -> list[bool]:
    return [low <= value < high for low, high in pairwise(edges)]


class Slow:
    """The features of one pair from the messages themselves. Names are single words without punctuation."""

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
def test_features_equal_the_slow_reference(drawn: list[Node], in_order: bool) -> None:
    if in_order:
        drawn = sorted(drawn, key=lambda node: node.time or 0)
    log = tuple(drawn)
    targets = np.arange(len(log))
    near = list_candidates(targets, len(log))
    found = compute_features(build_channel(log), targets, near)
    slow = Slow(log)
    for late in targets.tolist():
        for early in range(late + 1):
            expected = np.array(slow.features(late, early), dtype=np.float32)
            place = late - early
            different = np.flatnonzero(~np.isclose(found[late, place], expected))
            assert not len(different), [(FEATURES[n], found[late, place, n], expected[n]) for n in different]

"""Spans of tokens and their tags.

A tag is `O`, or a prefix, a hyphen and a type. The prefixes are those of IOB1 and BIO (B, I) and of BIOES (E, S).
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
PREFIXES = ("B", "I", "E", "S")


class TokenSpan(NamedTuple):
    """The tokens from `start` up to, but without, `stop`."""

    start: int
    stop: int
    type: str


def tag_parts(tag: str) -> tuple[str, str]:
    """The prefix of a tag and its type, which is empty for `O` and for a prefix alone. Raises `ValueError` for any other tag.

    The type may hold hyphens.
    """
    prefix, _, kind = tag.partition("-")
    if tag != OUTSIDE and (prefix not in PREFIXES or tag.endswith("-")):
        raise ValueError(f"{tag!r} is neither O nor B, I, E or S with a type, such as B-LOC")
    return prefix, kind


def tag_name(prefix: str, kind: str) -> str:
    """A tag from its parts."""
    return f"{prefix}-{kind}" if kind else prefix


def spans_of(tags: Sequence[str]) -> list[TokenSpan]:
    """The spans of a sequence of tags by the rules of conlleval, in order. They hold for IOB1, BIO and BIOES alike.

    A span begins at B and S, at a tag whose type is not that of the tag before, and behind O, E and S. So a sequence that
    breaks the rules of its scheme, such as O I-LOC, has spans, too. Raises `ValueError` for a tag that has no known prefix.
    """
    spans: list[TokenSpan] = []
    start, before, kind = 0, OUTSIDE, ""
    for place, tag in enumerate(tags):
        prefix, its_kind = tag_parts(tag)
        if prefix == OUTSIDE or prefix in "BS" or before in (OUTSIDE, "E", "S") or its_kind != kind:
            if before != OUTSIDE:
                spans.append(TokenSpan(start, place, kind))
            start = place
        before, kind = prefix, its_kind
    if before != OUTSIDE:
        spans.append(TokenSpan(start, len(tags), kind))
    return spans


def bio_tags(spans: Iterable[TokenSpan], length: int) -> list[str]:
    """The BIO tags of a sequence of this length. Raises `ValueError` for spans that overlap, are empty, or exceed it."""
    tags = [OUTSIDE] * length
    for start, stop, kind in spans:
        if not 0 <= start < stop <= length:
            raise ValueError(f"a span from {start} to {stop} does not fit into {length} tokens")
        if any(tag != OUTSIDE for tag in tags[start:stop]):
            raise ValueError(f"the span from {start} to {stop} overlaps another")
        tags[start:stop] = [tag_name("B", kind), *[tag_name("I", kind)] * (stop - start - 1)]
    return tags


def is_bio(tags: Sequence[str]) -> bool:
    """Whether I stands only behind B or I of its type, and no tag has another prefix."""
    parts = [("O", ""), *map(tag_parts, tags)]
    return all(
        after[0] in ("O", "B") or (after[0] == "I" and before[0] in ("B", "I") and before[1] == after[1])
        for before, after in itertools.pairwise(parts)
    )

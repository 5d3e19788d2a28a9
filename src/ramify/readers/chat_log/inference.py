"""Inference of a log's pattern from its first lines.

Hypotheses are patterns (see `candidates`). Each reads the lines, and two questions are asked about the result.

Is it a chat (see `evidence`)? A few people write most messages, time does not run backwards, no date or time is left in the
text, and people speak to each other. A hypothesis that cannot be right is left out; one that lacks evidence is not chosen.

Which hypothesis explains the lines best (see `scoring`)? The one with the shortest description: characters that a pattern
predicts cost nothing, names cost their frequency, and text costs its length. A pattern that leaves names or times in the text
describes them with every message anew. If another possible hypothesis reads the lines differently and costs hardly more, none
is chosen.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ramify.errors import RamifyError
from ramify.readers import chat
from ramify.readers.chat_log import candidates, evidence
from ramify.readers.chat_log.layout import Layout
from ramify.readers.chat_log.pattern import Pattern
from ramify.readers.chat_log.scoring import CHARACTER_BITS, Hypothesis, description_bits, differ
from ramify.readers.chat_log.stamps import NAMED_DAY

SAMPLE_LINES = 400
MAX_LINE = 400

MARGIN_BITS = 2.0
"""Bits per line by which another reading must be longer."""

COVERAGE = 0.95
"""Least share of messages that a pattern must find, of those that the most fitting pattern finds."""

OPEN_COVERAGE = 0.6
"""Least share of messages that a pattern with a delimiter after names must find, of those that one without finds."""

KNOWN = (
    "[{date} {time}{? | Edited {skip}}] {author}: {text}",
    "[{date}, {time}{? | Edited {skip}}] {author}: {text}",
    "[{time}{? | Edited {skip}}] {author}: {text}",
    "{time} From {author}{? to {skip}}: {text}\n{time} From {author}: {text}",
    "{date} {time} From {author}{? to {skip}}: {text}\n{date} {time} From {author}: {text}",
)
"""Patterns of clients whose lines have optional parts: Skype, Zoom."""


@dataclass
class Inference:
    """The pattern of some lines, or the reason why none was chosen."""

    best: Hypothesis | None
    reason: str = ""
    bits: float = field(default=math.inf)


def first_lines(lines: Sequence[str]) -> list[str]:
    """The lines of which patterns are made: the first that are not blank, and the beginnings of long ones."""
    return [line[:MAX_LINE] for line in lines if line and not line.isspace()][:SAMPLE_LINES]


def infer(lines: Sequence[str]) -> Inference:
    """Infer the pattern of a log from its first lines."""
    return _infer(tuple(first_lines(lines)))


@lru_cache(maxsize=2)
def _infer(sample: tuple[str, ...]) -> Inference:
    """`infer`, kept for the reader, which needs the pattern after the detection of the format has asked for it."""
    if reason := evidence.is_no_text(sample):
        return Inference(None, reason)
    weekdays = any(map(NAMED_DAY.search, sample))
    hypotheses = [_evaluated(source, sample, weekdays) for source in dict.fromkeys([*candidates.sources(sample), *KNOWN])]
    hypotheses = [hypothesis for hypothesis in hypotheses if hypothesis is not None]
    # Layouts with columns have more than one space before the text.
    wider = [
        hypothesis.source.replace(" {text}", "  {text}")
        for hypothesis in hypotheses
        if hypothesis.fault.endswith("each text begins with ' '")
    ]
    wider = [_evaluated(source, sample, weekdays) for source in wider if "  {text}" in source]
    hypotheses += [hypothesis for hypothesis in wider if hypothesis is not None]
    hypotheses.sort(key=lambda hypothesis: hypothesis.bits)
    valid = [hypothesis for hypothesis in hypotheses if not hypothesis.fault]
    # A pattern that fits only messages that begin with a name, for example, takes those who are spoken to for the speakers.
    # Any line fits a pattern in which only a space follows names, a line of the channel, too.
    closed = max((hypothesis.coverage for hypothesis in valid if not hypothesis.is_open), default=0)
    most = max((hypothesis.coverage for hypothesis in valid), default=0)
    if closed >= OPEN_COVERAGE * most:
        valid = [hypothesis for hypothesis in valid if not hypothesis.is_open]
        most = closed
    valid = [hypothesis for hypothesis in valid if hypothesis.coverage >= COVERAGE * most]
    for several in (False, True):
        # A part of the program, such as [CHAT], or a room stands where the speakers of other lines would stand.
        if valid and (
            inner := [
                hypothesis for hypothesis in hypotheses if not hypothesis.fault and _refines(hypothesis, valid[0], several)
            ]
        ):
            valid = inner
    if not valid:
        # The reason of a pattern that lacks evidence says more than that of a pattern that cannot be right.
        hypotheses.sort(key=lambda hypothesis: not hypothesis.is_possible)
        reason = hypotheses[0].fault if hypotheses else "no part of the lines holds names, with a delimiter before the text"
        return Inference(None, reason)
    best = valid[0]
    swapped = _swapped(best.source)
    if swapped.find("{author}") < swapped.find("{skip}"):
        # Names precede accounts in brackets: Ann Lee [U123].
        best, swapped = next(((hypothesis, best.source) for hypothesis in valid if hypothesis.source == swapped), (best, ""))
    for other in hypotheses:
        if other is best or other.source == swapped:
            continue
        if not other.is_possible or other.coverage < COVERAGE * most or (other.is_open and not best.is_open):
            continue
        gap = (other.bits - best.bits) / len(sample)
        if (gap < MARGIN_BITS or best.coverage < 0.8 * other.coverage) and differ(best.read, other.read):
            return Inference(None, f"two patterns explain the lines about equally well: {best.source!r} and {other.source!r}")
    best = _without_signs(best, sample)
    return Inference(best, bits=best.bits)


def _without_signs(best: Hypothesis, lines: Sequence[str]) -> Hypothesis:
    """The same pattern, with the signs of users' rights before names as optional parts, if some names have any."""
    head, _, rest = best.source.partition("{author}")
    bare = head.rstrip(_SIGNS)
    names = {line.author or "" for _, line in best.messages}
    signs = {name[0] for name in names if _WITH_SIGN.match(name)} | set(head[len(bare) :])
    if signs:
        # Names after the first lines may have others. Phone numbers have a plus sign, too.
        signs = {sign for sign in _SIGNS if sign in signs or sign != "+" or not any(map(_PHONE.match, names))}
    if not signs or "{author}" in rest or bare.endswith("}") or best.is_known or best.is_open:
        return best
    other = _evaluated(bare + "".join(f"{{?{sign}}}" for sign in "~&@%+" if sign in signs) + "{author}" + rest, lines)
    if other is None or not other.is_possible or other.coverage < best.coverage:
        return best
    return best if other.coverage == best.coverage and not any(map(_WITH_SIGN.match, names)) else other


def _swapped(source: str) -> str:
    """The same pattern with the account for the name; "" if it has none."""
    match = _ACCOUNT.search(source)
    if match is None:
        return ""
    one, other = match.span("one"), match.span("other")
    return source[: one[0]] + match["other"] + source[one[1] : other[0]] + match["one"] + source[other[1] :]


_ACCOUNT = re.compile(r"(?P<one>\{(?:author|skip)\}) [\[(<](?P<other>(?!(?P=one))\{(?:author|skip)\})[\])>]")
_SIGNS = "@+%&~"
_PHONE = re.compile(r"\+\d")
_WITH_SIGN = re.compile(rf"[{_SIGNS}][^\W\d]")


def _refines(one: Hypothesis, other: Hypothesis, several: bool) -> bool:
    """Whether one reading finds several authors in the texts of the lines that the other ascribes to one author.

    With `several`, it finds them in nearly all texts of the other, by several authors.
    """
    authors: set[str] = set()
    speakers: set[str] = set()
    count = 0
    for a, b in zip(one.read, other.read, strict=True):
        if a is None or a.kind == chat.SYSTEM:
            continue
        if b is None or b.kind == chat.SYSTEM or len(b.text) <= len(a.text) or not b.text.endswith(a.text):
            return False
        count += 1
        authors.add(b.author or "")
        speakers.add(a.author or "")
    least = 0.8 if several else 0.5
    return count > least * other.coverage and len(speakers) > 1 and (several or len(authors) == 1)


def _evaluated(source: str, lines: Sequence[str], weekdays: bool = True) -> Hypothesis | None:
    try:
        layout = Layout(Pattern(source, weekdays=weekdays))
    except RamifyError:
        return None
    hypothesis = Hypothesis(source, layout, [layout.read(line) for line in lines])
    if len(hypothesis.messages) < 2:
        return None
    hypothesis.is_known = source in KNOWN
    hypothesis.bits = description_bits(hypothesis.read, lines) + (0 if hypothesis.is_known else len(source) * CHARACTER_BITS)
    hypothesis.fault = evidence.impossible(hypothesis, lines)
    hypothesis.is_possible = not hypothesis.fault
    hypothesis.fault = hypothesis.fault or evidence.doubtful(hypothesis, lines)
    return hypothesis

"""Heads of messages that take several lines, joined to one line: a time above or below the name or the text, and labels.

A paragraph ends with a blank line or a rule. The number of lines stays the same, because blank lines take the place of others.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Literal

from ramify.readers.dates import find_stamps

Fold = Literal["", "first", "second", "last", "labels", "indented", "signed", "continued", "mixed"]
"""Where paragraphs have their times: a line of its own, labelled lines, or the end of their last line, behind the name (mixed:
if other paragraphs have none, so that they may belong to the next signature); below the name for the first of several
messages, and alone, in another form, for the others (continued); or no times, and texts that are indented below names."""

FIRST_LINES = 800
"""Lines that decide the form."""

_MAX_KEPT = 1000
_MAX_NAME = 40
_LABEL = re.compile(r"(?:- |  )?[^\W\d_]\w{1,15}(?: [^\W\d_]\w{1,15})? *: ")
_ITEM = re.compile(r"- [^\W\d_]\w{1,15}: ")
_REMARK = re.compile(r" \([^()]*\)\Z")


def fold_of(lines: Iterable[str]) -> Fold:
    """The form of the heads in most paragraphs of some lines; "" if each message begins with its only head.

    Times elsewhere are those of messages whose author is told above.
    """
    first = list(islice(lines, FIRST_LINES))
    return _fold_of_paragraphs([paragraph for _, paragraph in _paragraphs(first)]) or (
        "continued" if _named_heads(first) else ""
    )


def _fold_of_paragraphs(paragraphs: Sequence[Sequence[str]]) -> Fold:
    forms: Counter[Fold] = Counter(_form(paragraph) for paragraph in paragraphs if len(paragraph) > 1)
    if not forms:
        return ""
    form, count = forms.most_common(1)[0]
    if form == "signed":
        # The first paragraph may be a title.
        return "signed" if len(paragraphs) - count <= 1 else "mixed" if count * 5 >= forms.total() * 3 else ""
    if form == "indented" and len({paragraph[0] for paragraph in paragraphs}) * 3 > len(paragraphs):
        return ""
    times = sum(map(_is_time, chain.from_iterable(paragraphs))) if form in ("first", "second", "last") else 0
    return form if count > 3 and count * 5 >= forms.total() * 3 and times * 10 <= count * 11 else ""


def folded(blocks: Iterable[list[str]], fold: Fold) -> Iterator[list[str]]:
    """Blocks of lines with one line per head. The last paragraph of a block is held back."""
    kept: list[str] = []
    if not fold:
        yield from blocks
        return
    if fold == "continued":
        yield from _continued(blocks)
        return
    for block in blocks:
        lines = kept + block
        end = next((place for place in range(len(lines), 0, -1) if _ends(lines[place - 1])), 0)
        end = end if len(lines) - end < _MAX_KEPT else len(lines)
        kept = lines[end:]
        if end:
            yield _folded(lines[:end], fold)
    if kept:
        yield _folded(kept, fold)


def _folded(lines: list[str], fold: Fold) -> list[str]:
    paragraphs = list(_paragraphs(lines))
    counts = Counter(_labels(paragraph) for _, paragraph in paragraphs)
    usual = max(count for count, many in counts.items() if many * 5 >= counts.total()) if counts else 0
    for start, paragraph in paragraphs:
        if _form(paragraph) != fold:
            continue
        rest = len(paragraph)
        if fold == "last":
            paragraph = [paragraph[0], paragraph[-1], *paragraph[1:-1]]
        if fold == "signed":
            lines[start : start + rest] = [paragraph[-1].strip(), *paragraph[:-1]]
            continue
        if fold == "indented":
            paragraph[0] = paragraph[0].strip()
        # A text may have lines like labels.
        count = min(_labels(paragraph), usual) if fold == "labels" else 2 + (fold == "second" and paragraph[0].isdecimal())
        lines[start : start + rest] = ["\n".join(paragraph[:count]), *paragraph[count:], *[""] * (count - 1)]
    return lines


_Head = tuple[str, bool]
"""The form of a time in a line of its own, and whether a blank line stands above it."""


def _head(line: str, above: str) -> _Head | None:
    return (_DIGITS.sub("0", _HALF.sub("PM", line)), not above.strip()) if _is_time(line) else None


def _named_heads(lines: Sequence[str]) -> set[_Head]:
    """The forms of the times below names, which repeat. Times of other forms stand alone."""
    above: dict[_Head, list[str]] = defaultdict(list)
    for one, other in pairwise(lines):
        if head := _head(other, one):
            above[head].append(one)
    return {
        head for head, names in above.items() if not head[1] and len(names) > _MIN_HEADS and len(set(names)) * 2 <= len(names)
    }


def _continued(blocks: Iterable[list[str]]) -> Iterator[list[str]]:
    """Heads of a name and a time, of which only the first of several messages has the name, and AM or PM."""
    kept: list[str] = []
    author = half = ""
    named: set[_Head] = set()
    hour = 0
    for block in chain(blocks, [None]):
        lines = kept + (block or [])
        if not named and block is not None and len(lines) < FIRST_LINES:
            kept = lines
            continue
        named = named or _named_heads(lines)
        # The last line may be a name.
        end = len(lines) if block is None else len(lines) - 1
        made: list[str] = []
        while len(made) < end:
            place = len(made)
            line, after = lines[place].strip(), lines[place + 1] if place + 1 < len(lines) else ""
            if line and _head(after, line) in named:
                author = line
                half = match[0] if (match := _HALF.search(after)) else ""
                hour = int(_DIGITS.findall(after)[0])
                made += [f"{author}\n{after.strip()}", ""]
            elif author and _is_time(line):
                last, hour = hour, int(_DIGITS.findall(line)[0])
                if half and last == 11 and hour == 12:
                    half = half.translate(_OTHER_HALF)
                made.append(f"{author}\n{line}{'' if _HALF.search(line) else half}")
            else:
                made.append(lines[place])
        kept = lines[len(made) :]
        yield made


_HALF = re.compile(r" ?[AaPp]\.?[Mm]\b\.?")
_OTHER_HALF = str.maketrans("AaPp", "PpAa")
_DIGITS = re.compile(r"\d+")
_MIN_HEADS = 3


def _paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    start = 0
    for place in range(len(lines) + 1):
        if place == len(lines) or _ends(lines[place]):
            if place > start:
                yield start, [line.rstrip() for line in lines[start:place]]
            start = place + 1
        elif place > start and _ITEM.match(lines[place]) and _ITEM.match(lines[start]):
            yield start, [line.rstrip() for line in lines[start:place]]
            start = place


def _ends(line: str) -> bool:
    return not line.strip() or (len(line) > 2 and not line.strip("-=_*~ "))


def _labels(paragraph: Sequence[str]) -> int:
    return next((place for place, line in enumerate(paragraph) if not _LABEL.match(line)), len(paragraph))


def _form(paragraph: Sequence[str]) -> Fold:
    if len(paragraph) > 2 and _labels(paragraph[:3]) == 3:
        return "labels"
    if _is_time(paragraph[0]):
        return "first" if len(paragraph) > 1 else ""
    if len(paragraph) > 2 and _is_time(paragraph[1]):
        return "second"
    if len(paragraph) > 2 and _is_time(paragraph[-1]):
        return "last"
    first, last = find_stamps(paragraph[0]), find_stamps(paragraph[-1])
    is_signed = len(paragraph) > 1 and bool(last) and not (first and first[0].start < 4)
    is_signed = is_signed and last[-1].end == len(paragraph[-1]) and last[-1].kind == "time"
    if is_signed and paragraph[-1].strip()[0] in "-—–~":
        return "signed"
    return "indented" if _is_indented(paragraph) else ""


def _is_indented(paragraph: Sequence[str]) -> bool:
    """Whether a short line without a time stands above lines with one other margin."""
    head, margins = paragraph[0], {margin_of(line) for line in paragraph[1:]}
    return len(margins) == 1 and margin_of(head) not in margins and len(head.strip()) < _MAX_NAME and not find_stamps(head)


def margin_of(line: str) -> str:
    """The blanks at the beginning of a line."""
    return line[: len(line) - len(line.lstrip())]


def _is_time(line: str) -> bool:
    """Whether only a time stands in a line, with or without a date, and perhaps a remark in brackets."""
    line = _REMARK.sub("", line)
    stamps = find_stamps(line) if len(line) < 80 else []
    for stamp in reversed(stamps):
        line = line[: stamp.start] + line[stamp.end :]
    return any(stamp.kind == "time" for stamp in stamps) and line.isascii() and not any(map(str.isalnum, line))

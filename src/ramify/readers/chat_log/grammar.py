"""Readings of a log's first lines, by a finite grammar: prefix, date and time, separator, and the form of names.

Dates and times are found once in each line, and what stands before and behind them is split. A prefix, a field in brackets, a
constant, a level or a code may stand before names and be left out. Most of the readings are wrong.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple
from unicodedata import category, normalize

from ramify.readers.chat_log.pattern import SPACES, literal
from ramify.readers.dates import DATE, TIME, Stamp, find_loose_times, find_stamps
from ramify.readers.events import LEVELS, is_event

MAX_NAME = 64
_MAX_SKIPPED = 3
_MAX_DELIMITERS = 8
_SHARE = 0.1
"""Least share of lines that a part of a form must have."""


class Said(NamedTuple):
    """A message: its author, its text, and the parts of its line that are left out."""

    name: str
    text: str
    skipped: tuple[str, ...] = ()


@dataclass
class Reading:
    """A pattern, and the messages that it finds: the number of a line, and what is said there."""

    source: str
    said: dict[int, Said]
    told: dict[int, str] = field(default_factory=dict)
    """The texts of lines of the channel that have a form of their own."""

    @property
    def is_heading(self) -> bool:
        """Whether texts stand on the lines below."""
        return "{text}" not in self.source

    @property
    def is_open(self) -> bool:
        """Whether only a space parts names from texts."""
        return _OPEN.search(self.source) is not None

    @property
    def has_stamp(self) -> bool:
        return _STAMPED.search(self.source) is not None


_OPEN = re.compile(r"\{author\} ?\{text\}")
_STAMPED = re.compile(r"\{(?:date|time)\}")


class _Row(NamedTuple):
    """The rest of a line: its number, its text, and the part before it that is left out."""

    place: int
    rest: str
    skipped: tuple[str, ...] = ()


def stamps_of(lines: Sequence[str]) -> list[list[Stamp]]:
    """The dates and times of each line. Times without colons count if nearly all lines hold one."""
    stamps = [find_stamps(line) for line in lines]
    if sum(any(stamp.kind == "time" for stamp in row) for row in stamps) * 2 < len(lines):
        loose = [find_loose_times(line) for line in lines]
        if sum(map(bool, loose)) * 2 > len(lines):
            return [_merged(times, stamps[place]) for place, times in enumerate(loose)]
    return stamps


def _merged(times: list[Stamp], stamps: list[Stamp]) -> list[Stamp]:
    """Times beside the dates among other stamps; these alone without any."""
    dates = [stamp for stamp in stamps if stamp.kind == "date"]
    apart = [time for time in times if all(time.end <= date.start or time.start >= date.end for date in dates)]
    return sorted([*dates, *apart], key=lambda stamp: stamp.start) if apart else stamps


def spelled(lines: Sequence[str]) -> tuple[list[str], dict[int, str]]:
    """The lines with letters in place of emoji and combining marks, which are parts of names; and the way back."""
    characters = sorted({character for line in lines for character in _LIKE_LETTERS.findall(line)})
    forth = {ord(character): chr(0x20000 + place) for place, character in enumerate(characters)}
    back = {0x20000 + place: character for place, character in enumerate(characters)}
    return [line.translate(forth).rstrip(SPACES) for line in lines], back


_LIKE_LETTERS = re.compile(
    "[\U0001f000-\U0001faff\u2764\ufe0f\u200d\u0300-\u036f"
    + "".join(sorted(chr(code) for code in range(0x0483, 0x1AFF) if category(chr(code)) in ("Mn", "Mc", "Me")))
    + "]"
)


def readings(lines: Sequence[str], stamps: Sequence[Sequence[Stamp]]) -> Iterator[Reading]:
    """Readings to compare. `lines` are spelled."""
    for shape in _shapes(lines, stamps):
        rows: list[tuple[_Row, str]] = []
        for place, (line, found) in enumerate(zip(lines, stamps, strict=True)):
            if (ends := shape.find(line, found)) is not None:
                start = ends[0]
                if shape.kinds[0] == "time" and _PADDED.match(line, max(0, start - 2)):
                    start -= 1
                rows.append((_Row(place, line[ends[1] :], ends[2]), _collapsed(line[:start])))
        rows = list(zip(_as_columns([row for row, _ in rows]), (before for _, before in rows)))
        for prefix, kept in _prefixes(rows):
            yield from _name_behind(prefix + shape.source, kept)
            yield from _name_last(prefix + shape.source, kept)
        yield from _name_before(rows, shape.source)
    for form, stamp in ((_DATE_LAST, "{date} {time}"), (_TIME_LAST, "{time}")):
        last = [(place, match) for place, line in enumerate(lines) if (match := form.fullmatch(line))]
        if len(last) * 3 >= len(lines) * 2:
            opening, closing = Counter(match.group(2, 3) for _, match in last).most_common(1)[0][0]
            for reading in _name_behind("", [_Row(place, _collapsed(match[1])) for place, match in last]):
                yield Reading(f"{reading.source} {opening}{stamp}{closing}", reading.said)
            break
    yield from _labelled(lines)
    is_indented = sum(line[:1] in SPACES for line in lines) * 10 > len(lines) * 8
    kept = [(place, line) for place, line in enumerate(lines) if line[:1].strip(SPACES) or is_indented]
    begun = _as_columns([_Row(place, line.lstrip(SPACES)) for place, line in kept])
    yield from _name_behind("{? }" if is_indented else "", begun)


_TIME_LAST = re.compile(rf"(.*\S)[{SPACES}]+([\[(]?){TIME}([\])]?)")
# --- labelled values ------------------------------------------------------------------------------------------------------


def _labelled(lines: Sequence[str]) -> Iterator[Reading]:
    """Readings of records with labels, such as `From: ann\\nText: hi` and `user=ann msg="hi"`.

    The usual labels of authors and texts are taken before others.
    """
    split = [(place, line, list(_FIELD.finditer(line))) for place, line in enumerate(lines)]
    counts = Counter(tuple(match[0] for match in found) for _, _, found in split if 1 < len(found) <= _MAX_LABELS)
    labels, count = counts.most_common(1)[0] if counts else ((), 0)
    # Further labels belong to the text.
    rows = [
        (place, line, found[: len(labels)])
        for place, line, found in split
        if tuple(m[0] for m in found[: len(labels)]) == labels
    ]
    if count < 3 or len(rows) * 5 < len(lines):
        return
    starts = [line[: found[0].start()] for _, line, found in rows]
    ends = [[*(match.start() for match in found[1:]), len(line)] for _, line, found in rows]
    columns = [
        [line[found[place].end() : end[place]] for (_, line, found), end in zip(rows, ends)] for place in range(len(labels))
    ]
    names = [match[1].lower() for match in rows[0][2]]
    stamps: list[str] = []
    for column in columns:
        stamp = column[0] if all(map(_BLOCK.fullmatch, column)) else _stamp_in(column)
        # A message has one date and one time: the first.
        taken = "".join(stamps)
        stamps.append("{skip}" if any(field in taken for field in _FIELDS.findall(stamp)) else stamp)
    quoted = [all(len(value) > 1 and value[0] == value[-1] == '"' for value in column) for column in columns]
    free = [place for place, stamp in enumerate(stamps) if not stamp]
    authors = [place for place in free if names[place] in _AUTHORS] or free
    texts = [place for place in free if names[place] in _TEXTS] or [free[-1], None] if free else []
    for author, text in ((a, t) for a in authors for t in texts if a != t):
        source = literal(starts[0]) if len(set(starts)) == 1 else "{skip}"
        for place, label in enumerate(labels):
            field = stamps[place] or ("{author}" if place == author else "{text}" if place == text else "{skip}")
            source += literal(label) + (f'"{field}"' if quoted[place] else field)
        bare = [[value[1:-1] if is_quoted else value for value in column] for column, is_quoted in zip(columns, quoted)]
        others = [place for place in free if place not in (author, text)]
        yield Reading(
            source,
            {
                place: Said(
                    bare[author][number], "" if text is None else bare[text][number], tuple(bare[o][number] for o in others)
                )
                for number, (place, _, _) in enumerate(rows)
                if is_name(bare[author][number])
            },
        )


def _stamp_in(values: Sequence[str]) -> str:
    """The fields of values that are dates and times; "" for others."""
    forms: Counter[str] = Counter()
    for value in values:
        form = value
        for stamp in reversed(find_stamps(value)):
            form = f"{form[: stamp.start]}{{{stamp.kind}}}{form[stamp.end :]}"
        forms[form] += 1
    form, count = forms.most_common(1)[0]
    return (
        form if count * 5 >= len(values) * 4 and "{" in form and not any(map(str.isalnum, re.sub(r"{\w+}|T", "", form))) else ""
    )


_FIELD = re.compile(
    r"(?:\A(?:- )?|\n *|[ ]+(?=[^\W\d_]\w*=)|[ ]{2,}(?=[A-Z]\w*: ))([^\W\d_]\w{0,15}(?: [^\W\d_]\w{0,15})?)(?: *: ?|=)"
)
_FIELDS = re.compile(r"\{\w+\}")
_BLOCK = re.compile(r"[|>][-+]?")
"""The value in YAML of a text on the lines below."""
_MAX_LABELS = 8
_AUTHORS = frozenset(("author", "user", "username", "by", "from", "sender", "who", "nick", "name", "speaker"))
_TEXTS = frozenset(("text", "body", "content", "message", "msg", "says", "comment"))
_DATE_LAST = re.compile(rf"(.*\S)[{SPACES}]+([\[(]?){DATE},? {TIME}([\])]?)")
_PADDED = re.compile(r"[\[({<|~] \d\D")
_WORD = re.compile(r"[\w#&@.+/'-]*\w")
_SPACES = re.compile("[ \u00a0\u202f\u2009\u3000]+")


def _collapsed(text: str) -> str:
    return _SPACES.sub(" ", text)


def _as_columns(rows: Sequence[_Row]) -> list[_Row]:
    """Rows with single spaces; where several spaces part columns in nearly all of them, with two of these."""
    are_wide = sum(_WIDE.search(row.rest) is not None for row in rows) * 10 > len(rows) * 8
    spaced = [_BARRED.sub(" ", _SPACES.sub(_as_gap, row.rest)) if are_wide else _collapsed(row.rest) for row in rows]
    return [row._replace(rest=rest) for row, rest in zip(rows, spaced)]


def _as_gap(match: re.Match[str]) -> str:
    return "  " if len(match[0]) > 1 else " "


_BARRED = re.compile("  (?=[|│┃])|(?<=[|│┃])  ")
_WIDE = re.compile(r"[^\W_].* {2,}(?=\S)")


# --- where dates and times stand ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """Dates and times that stand in a line one after the other, and the text between them."""

    kinds: tuple[str, ...]
    source: str
    between: tuple[str, ...]

    def find(self, line: str, stamps: Sequence[Stamp]) -> tuple[int, int, tuple[str, ...]] | None:
        """Where they begin and end, and the words between them that are left out."""
        chosen = stamps[: len(self.kinds)]
        if tuple(stamp.kind for stamp in chosen) != self.kinds:
            return None
        gaps = [_collapsed(line[one.end : other.start]) for one, other in pairwise(chosen)]
        if any(_masked(gap) != expected for gap, expected in zip(gaps, self.between)):
            return None
        skipped = tuple(word for gap in gaps if len(gap) > 4 for word in _WORD.findall(gap))
        return chosen[0].start, chosen[-1].end, skipped


def _masked(text: str) -> str:
    """Text whose words may differ from line to line."""
    return _WORD.sub("\0", text) if len(text) > 4 else text


def _shapes(lines: Sequence[str], stamps: Sequence[Sequence[Stamp]]) -> Iterator[_Shape]:
    counts: Counter[_Shape] = Counter()
    for line, found in zip(lines, stamps, strict=True):
        if not found:
            continue
        kind = found[0].kind
        counts[_Shape((kind,), f"{{{kind}}}", ())] += 1
        if len(found) > 1 and found[1].kind != kind and 0 < found[1].start - found[0].end <= 40:
            between = _masked(_collapsed(line[found[0].end : found[1].start]))
            source = f"{{{kind}}}{literal(between)}{{{found[1].kind}}}".replace("\0", "{skip}")
            counts[_Shape((kind, found[1].kind), source, (between,))] += 1
    common = [(shape, count) for shape, count in counts.most_common(6) if count >= max(2, _SHARE * len(lines))]
    for shape, count in common:
        # A pattern that leaves out half of a time would read it as text.
        longer = (many for other, many in common if len(other.kinds) > 1 and other.kinds[0] == shape.kinds[0])
        if len(shape.kinds) > 1 or max(longer, default=0) * 2 < count:
            yield shape


def _prefixes(rows: Sequence[tuple[_Row, str]]) -> Iterator[tuple[str, list[_Row]]]:
    """The text before the time in many lines, as a pattern, and these lines."""
    shapes = Counter(tuple(_WORD.split(before)) for _, before in rows)
    for shape, count in shapes.most_common(3):
        if (count * 10 < len(rows) * 3 and count < len(rows) * _SHARE) or len(shape) > 1 + _MAX_SKIPPED * 3:
            continue
        same = [(row, _WORD.findall(before)) for row, before in rows if tuple(_WORD.split(before)) == shape]
        constant = [len(set(words)) == 1 for words in zip(*(words for _, words in same))]
        source = literal(shape[0])
        for gap, is_constant, word in zip(shape[1:], constant, same[0][1]):
            source += (literal(word) if is_constant else "{skip}") + literal(gap)
        if "{skip}{" in source or source.endswith("{skip}"):
            continue
        yield (
            source,
            [
                row._replace(skipped=(*(word for word, is_one in zip(words, constant) if not is_one), *row.skipped))
                for row, words in same
            ],
        )


# --- names behind the time ------------------------------------------------------------------------------------------------


def _name_behind(head: str, rows: Sequence[_Row]) -> Iterator[Reading]:
    """Readings in which the name follows, with up to three parts between that are left out or constant."""
    least = max(2, len(rows) * _SHARE)
    is_stamped = _STAMPED.search(head) is not None
    left: list[tuple[str, Sequence[_Row], int]] = [(head, rows, 0)]
    while left:
        source, rows, depth = left.pop()
        for lead, count in _leads([row.rest for row in rows]).most_common(5):
            if count < least:
                continue
            begun = [row._replace(rest=row.rest[len(lead) :]) for row in rows if row.rest.startswith(lead)]
            begin = source + literal(lead)
            if begin.endswith("}") and not begin.endswith("{? }"):
                continue
            for delimiter in _delimiters([row.rest for row in begun], _opening(begin)):
                yield Reading(f"{begin}{{author}}{literal(delimiter)}{{text}}", _split(begun, delimiter))
            if account := _with_account(begin, begun):
                yield account
            if is_stamped and (heading := _heading(begin, begun)):
                yield heading
            if depth < _MAX_SKIPPED:
                left += _without_first(begin, begun, depth, least)


def _split(rows: Sequence[_Row], delimiter: str) -> dict[int, Said]:
    """The messages of rows in which the delimiter follows the name."""
    bare = delimiter.rstrip(SPACES)
    gap = delimiter[len(bare) :]
    said: dict[int, Said] = {}
    for place, rest, skipped in rows:
        at = rest.find(bare or gap, 1, MAX_NAME + 1)
        while bare and gap and at > 0 and rest[at + len(bare) : at + len(bare) + 1] not in ("", *SPACES):
            at = rest.find(bare, at + 1, MAX_NAME + 1)
        if at < 1:
            continue
        name = rest[:at].strip(SPACES)
        if is_name(name):
            said[place] = Said(name, rest[at + len(bare) :].removeprefix(gap), skipped)
    return said


@lru_cache(maxsize=1 << 14)
def is_name(text: str) -> bool:
    """Whether text may be a name, and no event or marks only."""
    return any(map(str.isalnum, text)) and "\n" not in text and not (" " in text and is_event(text))


_BRACKETS = re.compile(r"([^\[\]()<>:（）]{1,64}?)( ?[\[(（])([^\[\]()<>（）]{1,32})([\])）](?:[:：][ \t]*|[ \t]+|$))")


def _name_last(head: str, rows: Sequence[_Row]) -> Iterator[Reading]:
    """Readings in which the name ends the line, behind the text: `see you   (Ann)`."""
    ended = [(row, match) for row in rows if (match := _AT_END.match(row.rest))]
    forms = Counter(match.group(2, 4) for _, match in ended)
    (opening, closing), count = forms.most_common(1)[0] if forms else (("", ""), 0)
    if count * 5 >= len(rows) * 4:
        said = {
            row.place: Said(match[3], match[1].lstrip(SPACES), row.skipped)
            for row, match in ended
            if match.group(2, 4) == (opening, closing) and is_name(match[3])
        }
        # Texts differ more than names.
        if len({each.name for each in said.values()}) < len({each.text for each in said.values()}):
            yield Reading(f"{head} {{text}} {literal(opening)}{{author}}{literal(closing)}", said)


_AT_END = re.compile(r"[ \t]+(.*\S)[ \t]+([(\[<{—–~@-]{1,2} ?)([^\[\](){}<>]{1,40}?)([)\]>}]?)\Z")


def _with_account(head: str, rows: Sequence[_Row]) -> Reading | None:
    """A reading in which an account or a level in brackets follows nearly all names: `Ann Lee [12]: `."""
    matches = [(row, match) for row in rows if (match := _BRACKETS.match(row.rest))]
    forms = Counter(match.group(2, 4) for _, match in matches)
    form, count = forms.most_common(1)[0] if forms else (("", ""), 0)
    if count * 10 < len(rows) * 8:
        return None
    said = {
        row.place: Said(match[1], row.rest[match.end() :], (*row.skipped, match[3]))
        for row, match in matches
        if match.group(2, 4) == form
    }
    return Reading(f"{head}{{author}}{literal(form[0])}{{skip}}{literal(form[1])}{{text}}", said)


def _heading(head: str, rows: Sequence[_Row]) -> Reading | None:
    """A reading in which only a name follows, and the text stands on the lines below."""
    short = [row for row in rows if 0 < len(row.rest) <= MAX_NAME]
    if len(short) * 10 < len(rows) * 3:
        return None
    ends = Counter(_END.search(row.rest)[0] for row in short if _END.search(row.rest))  # pyright: ignore[reportOptionalSubscript]
    end, count = ends.most_common(1)[0]
    if count * 2 <= len(short):
        return None
    said = {
        row.place: Said(name, "", row.skipped)
        for row in short
        if row.rest.endswith(end) and is_name(name := row.rest[: len(row.rest) - len(end)].strip(SPACES))
    }
    return Reading(f"{head}{{author}}{literal(end.rstrip())}", said)


_END = re.compile(r"[^\w)\]]*\Z")


def _without_first(head: str, rows: Sequence[_Row], depth: int, least: float) -> Iterator[tuple[str, list[_Row], int]]:
    """The lines behind their next part, if that is a field in brackets, a constant, a level, a code or a room, and no name."""
    starts = Counter(match[0] for row in rows if (match := _ADDRESS.match(row.rest)))
    start, count = starts.most_common(1)[0] if starts else ("", 0)
    if count >= max(least, 0.8 * len(rows)):
        yield (
            head + literal(start),
            [row._replace(rest=row.rest[len(start) :]) for row in rows if row.rest.startswith(start)],
            depth + 1,
        )
    rooms = [(row, match) for row in rows if (match := _ROOM.match(row.rest))]
    if len(rooms) >= max(least, 0.8 * len(rows)) and len({match[1] for _, match in rooms}) * 3 <= len(rooms):
        kept = [row._replace(rest=row.rest[match.end() :], skipped=(*row.skipped, match[1])) for row, match in rooms]
        yield f"{head}{{skip}}/", kept, depth + 1
    closing = _CLOSING.get(_opening(head)[-1:], "")
    if closing and closing != ">":
        yield from _without_brackets(head, rows, closing, depth, least)
    split = [(row, match) for row in rows if (match := _FIRST_PART.match(row.rest))]
    if len(split) < least:
        return
    words = Counter(match[1] for _, match in split)
    word, count = words.most_common(1)[0]
    are_codes = sum(many for word, many in words.items() if CODE.fullmatch(word)) * 10 >= words.total() * 9
    gaps = [match[0][match.end(1) :] for _, match in split]
    # Names may begin with marks, so that a gap may end with its space.
    for gap, many in Counter(
        chain(gaps, (gap[: gap.rfind(" ") + 1] for gap in gaps if " " in gap[:-1] and gap[-1] != " "))
    ).items():
        if many < least:
            continue
        same = [(row, match) for (row, match), own in zip(split, gaps) if (own.startswith(gap) if gap else not own)]
        if count * 10 >= len(split) * 6:
            kept = [row._replace(rest=row.rest[match.end(1) + len(gap) :]) for row, match in same if match[1] == word]
            if len(kept) >= least:
                yield head + literal(word + gap), kept, depth + 1
        if len(words) > 1 and (are_codes or (gap.strip(" ,") and len(words) * 3 <= len(split))):
            kept = [row._replace(rest=row.rest[m.end(1) + len(gap) :], skipped=(*row.skipped, m[1])) for row, m in same]
            yield f"{head}{{skip}}{literal(gap)}", kept, depth + 1


def _without_brackets(
    head: str, rows: Sequence[_Row], closing: str, depth: int, least: float
) -> Iterator[tuple[str, list[_Row], int]]:
    """The lines behind a field in brackets of several words: `[Async Chat Thread - #1/INFO]`."""
    form = re.compile(rf"([^{re.escape(closing)}]+){re.escape(closing)}(\W*)")
    inside = [(row, match) for row in rows if (match := form.match(row.rest))]
    values = Counter(match[1] for _, match in inside)
    if not any(" " in value for value in values) or len(values) * 5 > len(inside):
        return
    for gap, count in Counter(match[2] for _, match in inside).most_common(2):
        shown = gap.removesuffix("<")
        if count >= least and shown:
            yield (
                f"{head}{{skip}}{closing}{literal(shown)}",
                [
                    row._replace(rest=row.rest[match.end(1) + 1 + len(shown) :], skipped=(*row.skipped, match[1]))
                    for row, match in inside
                    if match[2] == gap
                ],
                depth + 1,
            )


_ADDRESS = re.compile(r"[\w.+-]+@[\w.-]+/(?=\w)")
_ROOM = re.compile(r"([\w.-]{1,32})/(?=\S)")
_FIRST_PART = re.compile(r"([+-]?#?[\w@.+/'&-]*\w(?:\[\d+\])?)([^\w\s]{0,3}[ \t]{0,2}[^\w\s#@<+~%&-]{0,2}|)(?=\S)")
CODE = re.compile(
    rf"#.+|[+-]?\d+|[0-9a-fA-F]{{6,}}|[\da-fA-F]{{8}}-[\da-fA-F-]{{20,}}|(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?:\S*)|[\w-]+(?:\.[\w-]+)+"
    rf"|\w{{1,12}}[-_]?\d+|{LEVELS.pattern}",
    re.IGNORECASE,
)


def _opening(head: str) -> str:
    """The marks at the end of a pattern."""
    match = _FINAL_MARKS.search(head)
    if match and match[0] in _AROUND and head[: match.start()][-1:].isalnum():
        # A path, and no marks around the name.
        return ""
    return re.sub(r"\\(.)", r"\1", match[0]) if match else ""


_FINAL_MARKS = re.compile(r"(?:[^\w{}\\]|\\[{}\\])*\Z")


def _leads(texts: Sequence[str]) -> Counter[str]:
    """The characters before the first letter or digit. An angle bracket ends them, because signs of rights may follow it."""
    leads: Counter[str] = Counter()
    for text in texts:
        lead = text[: next((place for place, character in enumerate(text) if character.isalnum() or character == "_"), 0)]
        brackets = _ANGLES.search(lead)
        full, lead = lead, lead[: brackets.end()] if brackets else lead
        leads[lead] += 1
        if full != lead:
            leads[full.rstrip("#@+%&~ ")] += full.rstrip("#@+%&~ ") != lead
        is_number = text[len(lead) : len(lead) + 1].isdecimal()
        bare = lead[:-1] if is_number and lead[-1:] == "-" else lead.rstrip("#@+%&~")
        if bare != lead:
            # The sign may belong to the name of a channel, or of some users.
            leads[bare] += 1
    return leads


_ANGLES = re.compile("<+")
_SPOKEN = re.compile(r"(?: to [^:<>|]{1,40}| says| said| wrote| writes| schrieb| sagt| a écrit| escribió| dice) ?:[ \t]*")
_VERB = re.compile(r" [^\W\d_]{3,12} ?:[ \t]+")
"""A word that may stand between a name and a colon, if it is one and the same."""
_MARKS = set("”:|>»›)]}–—~=*/→⇒⟩•·#\\-\t】」』›’│┃¦%$^+")
_PAIRS = {")": "(", "]": "[", "}": "{", "»": "«", "›": "‹", "】": "【", "」": "「", "』": "『", "⟩": "⟨", "”": "“", "’": "‘"}
_AROUND = frozenset("*-~=\"'`/")
_CLOSING = {opening: closing for closing, opening in _PAIRS.items()} | {"<": ">"}
_GAPS = re.compile(r"[^\w]+")
_LABEL = re.compile(r"[\"']?[,;]? [a-z]+=[\"']?(?=\S)")
_TAIL = re.compile(r"(?: \([\w -]{1,20}\)|[@/][\w.-]{1,20})[\])>]?:?[ \t]+(?=\S|\Z)")


def _delimiters(texts: Sequence[str], lead: str) -> list[str]:
    """The delimiters that follow the beginning of most texts, the most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        runs: set[str] = set()
        for match in _GAPS.finditer(text, 1, 80):
            runs |= _parts_of(match[0], match.end() == len(text))
        runs |= {match[0] for form in (_TAIL, _SPOKEN, _LABEL) if (match := form.search(text, 1, 100))}
        counts.update(runs)
    kept = [run for run, count in counts.most_common(24) if count * 10 >= len(texts) * 4 and _may_delimit(run, lead)]
    verbs = Counter(match[0] for text in texts if (match := _VERB.search(text, 1, 80)) and match[0].islower())
    return [verb for verb, count in verbs.most_common(1) if count * 10 >= len(texts) * 9] + kept[:_MAX_DELIMITERS]


@lru_cache(maxsize=1 << 12)
def _parts_of(run: str, is_last: bool) -> frozenset[str]:
    """The delimiters that may stand in a run of marks and spaces. The name before it and the text behind it may have marks."""
    if is_last and run[-1] not in SPACES:
        run += " "
    run = run[:16]
    ends = {len(run), len(run.rstrip())} | {place for place in range(1, len(run)) if run[place - 1] in SPACES}
    starts = {0}
    if run[0] not in SPACES:
        starts.update(range(1, min(len(run.split(" ")[0]), 4)))
    ends.update(place for place in range(1, len(run)) if run[place] in SPACES and run[place - 1] not in SPACES)
    return frozenset(run[start:end] for start in starts for end in ends if start < end)


def _may_delimit(run: str, lead: str) -> bool:
    marks = run.strip(SPACES)
    opening = lead.rstrip(SPACES)[-1:]
    if opening in _CLOSING and _CLOSING[opening] not in run and (opening != "<" or lead[-1:] not in SPACES):
        return False
    if lead[-1:] in _AROUND and lead[-1:] not in (run[0], marks[-1:]):
        return False
    if quotes := _QUOTED_VALUES.fullmatch(run):
        return quotes[1] == lead[-1:] if quotes[1] else lead[-1:] not in _QUOTES
    if not marks or marks == "\n" or _SPOKEN.fullmatch(run) or _TAIL.fullmatch(run) or run[:-1].endswith("="):
        return True
    if marks == ";" and run[0] == ";" and (run[-1] == " " or lead == ";"):
        return True
    if any(mark in ",;.!?" for mark in marks):
        return False
    if set(marks) & set("\"'`_"):
        return bool(lead.strip()) and marks[0] == lead.rstrip()[-1:]
    if not any(_is_mark(mark) for mark in marks):
        return False
    if marks == "]" and "[" not in lead:
        return run[0] == "]" and run[-1] == " "
    if marks[0] in _PAIRS and (marks[0] in ")]}’" or _PAIRS[marks[0]] in lead):
        return _PAIRS[marks[0]] in lead
    if marks in ("%", "$", "^", "+"):
        return run[-1] == " "
    if marks in ("-", "/", "*", "=", "~", ".", "#", "–"):
        # Inside names and words these are no delimiters.
        return (run[0] == " " and run[-1] == " ") or lead.rstrip()[-1:] == marks
    return True


_QUOTES = ("'", '"')
_QUOTED_VALUES = re.compile(r"([\"']?)[,;] ?[\"']")


def _is_mark(character: str) -> bool:
    """Whether names may end before a character: a usual mark, its wide form, or a symbol beyond ASCII."""
    return normalize("NFKC", character) in _MARKS or (not character.isascii() and category(character) in ("So", "Sm"))


# --- names before the time ------------------------------------------------------------------------------------------------


def _name_before(rows: Sequence[tuple[_Row, str]], stamp: str) -> Iterator[Reading]:
    """Readings in which the name precedes the time."""
    least = max(2, len(rows) * _SHARE)
    for tail in _ends([before for _, before in rows], least):
        source = literal(tail).replace("\0", "{skip}")
        end = re.compile(re.escape(tail).replace("\0", r"([^\[\]()<>（）]{1,64})") + r"\Z")
        ended = [(row, before, match) for row, before in rows if (match := end.search(before))]
        afters = [row.rest for row, _, _ in ended]
        is_heading = sum(not after.strip(SPACES + "])}>:-_*") for after in afters) * 2 > len(afters)
        ending = Counter(afters).most_common(1)[0][0] if is_heading else _common_lead(afters)
        if not (is_heading or ending):
            continue
        ending = ending.rstrip() if is_heading else ending
        close = literal(ending) + ("" if is_heading else "{text}")
        texts = {
            row.place: row.rest[len(ending) :] if row.rest.startswith(ending) else ""
            for row, _, _ in ended
            if row.rest.startswith(ending) or (not is_heading and row.rest == ending.rstrip())
        }
        left = [("", [_Row(row.place, before[: m.start()], m.groups()) for row, before, m in ended if row.place in texts], 0)]
        while left:
            begin, kept, depth = left.pop()
            for lead, many in _leads([row.rest for row in kept]).most_common(3):
                begun = [row._replace(rest=row.rest[len(lead) :]) for row in kept if row.rest.startswith(lead)]
                begun = [row for row in begun if row.rest]
                head = begin + literal(lead)
                if many < least or len(begun) < least or head.endswith("}"):
                    continue
                said = {
                    row.place: Said(row.rest.strip(SPACES), texts[row.place], row.skipped)
                    for row in begun
                    if len(row.rest) <= MAX_NAME and is_name(row.rest)
                }
                if is_heading:
                    names = Counter(each.name for each in said.values())
                    # A text that ends with a time stands below a head.
                    said = {place: each for place, each in said.items() if names[each.name] > 1 or place - 1 not in said}
                yield Reading(f"{head}{{author}}{source}{stamp}{close}", said)
                if depth < _MAX_SKIPPED:
                    left += _without_first(head, begun, depth, least)


def _ends(befores: Sequence[str], least: float) -> Iterator[str]:
    """The marks between names and times, without and with an account or a receiver after the name (in place of NUL)."""
    ends: Counter[str] = Counter()
    for text in befores:
        if label := _NEXT_LABEL.search(text):
            ends[label[0]] += 1
            continue
        match = _ACCOUNT.search(text) or _RECEIVER.search(text)
        if match:
            ends[text[match.start() : match.start(1)] + "\0" + text[match.end(1) :]] += 1
        if text and (match := _LAST_MARKS.search(text)):
            ends[match[0]] += 1
    tails = Counter(match[0] for text in befores if (match := _LOWER_WORDS.search(text)))
    words: Counter[str] = Counter()
    for tail, count in tails.items():
        for match in re.finditer(r"[\"']? +(?=\w)", tail):
            words[tail[match.start() :]] += count
    common = [end for end, count in words.items() if count * 5 > len(befores) * 4]
    if common:
        yield max(common, key=len)
    yield from (end for end, count in ends.most_common(4) if count >= least and end)


_NEXT_LABEL = re.compile(r"\n[^\W\d_]\w{1,15}: \Z")
_LAST_MARKS = re.compile(r"(?:\W|(?<=\W)_)*\Z")
_LOWER_WORDS = re.compile(r"[\"']?(?: (?:[^\W\d_](?<![A-Z])){1,12}){1,4}[^\w]*\Z")
_ACCOUNT = re.compile(r" ?[\[(<（]([^\[\]()<>（）]{1,64})[\])>）](?: [^\W\d_]{1,4})?[^\w]*\Z")
_RECEIVER = re.compile(r" (?:to|->|→|=>|>) ([^:<>|]{1,40})[^\w]+\Z")
_UNIT = re.compile(r" ?[^\W\d_]{1,4}(?=[\])}>:|,-])")


def _common_lead(texts: Sequence[str]) -> str:
    """The characters with which at least four of five texts begin: no letters or digits, but for a word as in `10:05 Uhr`."""
    lead, left = "", [text for text in texts if text]
    words = Counter(match[0] for text in left if (match := _UNIT.match(text)))
    word, count = words.most_common(1)[0] if words else ("", 0)
    if count >= 0.8 * len(left) > 0:
        lead, left = word, [text for text in left if text.startswith(word)]
    least = 0.8 * len(left)
    while left:
        character, count = Counter(text[len(lead) : len(lead) + 1] for text in left).most_common(1)[0]
        if count < least or not character or character.isalnum() or character == "<" or (character == "_" and not lead):
            break
        lead += character
        left = [text for text in left if text.startswith(lead)]
    return lead

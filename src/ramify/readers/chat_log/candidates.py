"""Patterns to try for a log, made from its first lines.

A pattern has the places where dates and times stand in most lines, what precedes them, and a place for names after or before
them, with a delimiter that follows it in most lines. Many of the patterns are wrong.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import category, normalize

from ramify.readers.chat_log.pattern import SPACES, literal
from ramify.readers.chat_log.stamps import TIME, Stamp, find_loose_times, find_stamps

_MAX_SLOTS = 3
_MAX_DELIMITERS = 6
_SHARE = 0.1
"""Least share of lines that must begin their heads alike for a pattern."""


def sources(lines: Sequence[str]) -> Iterator[str]:
    """Patterns to try, some of them wrong."""
    letters = _Letters(lines)
    spelled = list(map(letters.spelled, lines))
    for source in _sources(spelled, stamps_of(lines)):
        yield letters.original(source)
    for source in _with_time_last(spelled):
        yield letters.original(source)


def stamps_of(lines: Sequence[str]) -> list[list[Stamp]]:
    """The dates and times of each line. Times without colons count if nearly all lines hold one."""
    stamps = [find_stamps(line) for line in lines]
    if sum(any(stamp.kind == "time" for stamp in row) for row in stamps) * 2 < len(lines):
        loose = [find_loose_times(line) for line in lines]
        if sum(map(bool, loose)) * 2 > len(lines):
            return [times or stamps[place] for place, times in enumerate(loose)]
    return stamps


_TIME_LAST = re.compile(rf"(.*\S)[ \t]+([\[(]?){TIME}([\])]?)")


def _with_time_last(lines: Sequence[str]) -> Iterator[str]:
    """Patterns in which the time ends the line."""
    matches = [match for line in lines if (match := _TIME_LAST.fullmatch(line))]
    if len(matches) * 3 < len(lines) * 2:
        return
    opening, closing = Counter((match[2], match[3]) for match in matches).most_common(1)[0][0]
    for source in _with_author_after("", [match[1] for match in matches]):
        yield f"{source} {opening}{{time}}{closing}"


class _Letters:
    """Stands letters in for emoji and combining marks, which are parts of names and words, and not delimiters."""

    def __init__(self, lines: Sequence[str]) -> None:
        characters = sorted({character for line in lines for character in _LIKE_LETTERS.findall(line)})
        self._forth = {ord(character): chr(0x20000 + place) for place, character in enumerate(characters)}
        self._back = {0x20000 + place: character for place, character in enumerate(characters)}

    def spelled(self, text: str) -> str:
        return text.translate(self._forth)

    def original(self, text: str) -> str:
        return text.translate(self._back)


_LIKE_LETTERS = re.compile(
    "[\U0001f000-\U0001faff\u2764\ufe0f\u200d\u0300-\u036f"
    + "".join(sorted(chr(code) for code in range(0x0483, 0x1AFF) if category(chr(code)) in ("Mn", "Mc", "Me")))
    + "]"
)


def _sources(lines: Sequence[str], stamps: Sequence[Sequence[Stamp]]) -> Iterator[str]:
    for shape in _shapes(lines, stamps):
        before: list[str] = []
        after: list[str] = []
        for line, line_stamps in zip(lines, stamps, strict=True):
            if (ends := shape.find(line, line_stamps)) is not None:
                start = ends[0]
                if shape.kinds[0] == "time" and _PADDED.match(line, max(0, start - 2)):
                    start -= 1
                before.append(line[:start])
                after.append(line[ends[1] :])
        for prefix in _induced(before):
            yield from _with_author_after(prefix + shape.source, after)
        yield from _with_author_before(before, shape.source, after)
    yield from _with_author_after("", [line for line in lines if line[0] not in SPACES])


_PADDED = re.compile(r"[\[({<|~] \d\D")


@dataclass(frozen=True)
class _Shape:
    """Dates and times that stand in a line one after the other, and the text between them."""

    kinds: tuple[str, ...]
    source: str
    between: tuple[str, ...]

    def find(self, line: str, stamps: Sequence[Stamp]) -> tuple[int, int] | None:
        if tuple(stamp.kind for stamp in stamps[: len(self.kinds)]) != self.kinds:
            return None
        chosen = stamps[: len(self.kinds)]
        gaps = [line[one.end : other.start] for one, other in pairwise(chosen)]
        if any(_collapsed(_words(gap)) != expected for gap, expected in zip(gaps, self.between)):
            return None
        return chosen[0].start, chosen[-1].end


def _words(text: str) -> str:
    """Text whose variable words are replaced."""
    return _WORD.sub("\0", text) if len(text) > 4 else text


_WORD = re.compile(r"[\w#&@.+/'-]*\w")
_SPACES = re.compile("[ \u00a0\u202f\u2009]+")


def _collapsed(text: str) -> str:
    return _SPACES.sub(" ", text)


def _shapes(lines: Sequence[str], stamps: Sequence[Sequence[Stamp]]) -> Iterator[_Shape]:
    counts: Counter[_Shape] = Counter()
    for line, line_stamps in zip(lines, stamps, strict=True):
        if not line_stamps:
            continue
        first = line_stamps[0]
        counts[_Shape((first.kind,), f"{{{first.kind}}}", ())] += 1
        if len(line_stamps) > 1 and line_stamps[1].kind != first.kind:
            gap = line[first.end : line_stamps[1].start]
            if gap and len(gap) <= 40:
                words = _collapsed(_words(gap))
                source = literal(words).replace("\0", "{skip}")
                counts[
                    _Shape((first.kind, line_stamps[1].kind), f"{{{first.kind}}}{source}{{{line_stamps[1].kind}}}", (words,))
                ] += 1
    common = [(shape, count) for shape, count in counts.most_common(6) if count >= max(2, _SHARE * len(lines))]
    for shape, count in common:
        # A pattern that leaves out half of a time would read it as text.
        longer = max(
            (other for other_shape, other in common if len(other_shape.kinds) > 1 and other_shape.kinds[0] == shape.kinds[0]),
            default=0,
        )
        if len(shape.kinds) > 1 or longer * 2 < count:
            yield shape


def _induced(texts: Sequence[str]) -> list[str]:
    """The pattern of what precedes a time in nearly all lines; empty if there is none."""
    texts = [_collapsed(text) for text in texts]
    shapes = Counter(tuple(_WORD.split(text)) for text in texts)
    patterns = []
    for shape, count in shapes.most_common(2):
        if count * 10 < len(texts) * 3 and count < len(texts) * _SHARE:
            continue
        rows = [_WORD.findall(text) for text in texts if tuple(_WORD.split(text)) == shape]
        if len(shape) > 1 + _MAX_SLOTS * 3:
            continue
        source = literal(shape[0])
        for gap, words in zip(shape[1:], zip(*rows)):
            source += (literal(words[0]) if len(set(words)) == 1 else "{skip}") + literal(gap)
        if "{skip}{" not in source and not source.endswith("{skip}"):
            patterns.append(source)
    return patterns


def _with_author_after(prefix: str, rests: Sequence[str]) -> Iterator[str]:
    """Patterns in which the author follows, with up to three parts between that are constant, numbers, codes or tags."""
    least = max(2, len(rests) * _SHARE)
    open_ = [(prefix, [_collapsed(rest) for rest in rests], 0)]
    while open_:
        source, texts, depth = open_.pop()
        for lead, count in _leads(texts).most_common(5):
            if count < least:
                continue
            begun = [text[len(lead) :] for text in texts if text.startswith(lead)]
            head = source + literal(lead)
            if not head.endswith("}"):
                for delimiter in _delimiters(begun, _opening(head)):
                    yield f"{head}{{author}}{literal(delimiter)}{{text}}"
            if not head.endswith("}"):
                yield from _with_account(head, begun)
            ends = [match[0] for text in begun if (match := re.search(r"[^\w)\]]*\Z", text)) and len(text) <= 64]
            if _STAMPED.search(source) and len(ends) >= max(least, 0.3 * len(begun)):
                for end, many in Counter(ends).most_common(2):
                    if many * 2 > len(ends) and not head.endswith("}"):
                        yield f"{head}{{author}}{literal(end.rstrip())}"
            if depth < _MAX_SLOTS and not head.endswith("}"):
                open_ += _slots(head, begun, depth, least)


def _with_account(head: str, texts: Sequence[str]) -> Iterator[str]:
    """The pattern in which an account or a level in brackets follows nearly all names: `Ann Lee [12]: `."""
    forms = Counter(match.group(1, 2) for text in texts if (match := _BRACKETS.match(text)))
    for (opening, close), count in forms.most_common(1):
        if count * 10 >= len(texts) * 8:
            yield f"{head}{{author}} {opening}{{skip}}{literal(close)}{{text}}"


_BRACKETS = re.compile(r"[^\[\]()<>:]{1,64} ([\[(])[^\[\]()<>]{1,32}([\])]:[ \t]+)")
_STAMPED = re.compile(r"\{(?:date|time)\}")


def _slots(head: str, texts: Sequence[str], depth: int, least: float) -> Iterator[tuple[str, list[str], int]]:
    """The rest after the next word, if that word is no name but constant, a number, a code or a tag."""
    if shared := _shared_start(texts, least):
        yield head + literal(shared), [text[len(shared) :] for text in texts if text.startswith(shared)], depth + 1
    if (closing := _CLOSING.get(_opening(head)[-1:])) and closing != ">":
        # Several words in brackets: [Async Chat Thread - #1/INFO]
        inside = [match for text in texts if (match := re.match(rf"([^{re.escape(closing)}]+){re.escape(closing)}(\W*)", text))]
        values = Counter(match[1] for match in inside)
        gaps = Counter(match[2] for match in inside)
        if any(" " in value for value in values) and len(values) * 5 <= len(inside):
            for gap, _ in gaps.most_common(2):
                rests = [match.string[match.end() :] for match in inside if match[2] == gap]
                if len(rests) >= least and gap[-1:] not in ("", "<"):
                    yield f"{head}{{skip}}{closing}{literal(gap)}", rests, depth + 1
                elif len(rests) >= least and gap[-1:] == "<":
                    yield f"{head}{{skip}}{closing}{literal(gap[:-1])}", [f"<{rest}" for rest in rests], depth + 1
    split = [match for text in texts if (match := _FIRST_PART.match(text))]
    if len(split) < least:
        return
    words = Counter(match[1] for match in split)
    word, count = words.most_common(1)[0]
    gaps = {match[0][match.end(1) :] for match in split}
    if count * 10 >= len(split) * 6:
        for gap in gaps:
            rests = [match.string[match.end() :] for match in split if match[1] == word and match[0].endswith(gap)]
            if len(rests) >= least:
                yield head + literal(word + gap), rests, depth + 1
    for gap in gaps if len(words) > 1 else ():
        rests = [match.string[match.end() :] for match in split if match[0][match.end(1) :] == gap]
        if len(rests) >= least and (_are_codes(words) or (gap.strip() and len(words) * 3 <= len(split))):
            yield head + "{skip}" + literal(gap), rests, depth + 1


def _shared_start(texts: Sequence[str], least: float) -> str:
    """The address of a room, which nearly all texts begin with: `room@chat.example.org/`."""
    starts = Counter(match[0] for text in texts if (match := _ADDRESS.match(text)))
    start, count = starts.most_common(1)[0] if starts else ("", 0)
    return start if count >= max(least, 0.8 * len(texts)) else ""


_ADDRESS = re.compile(r"[\w.+-]+@[\w.-]+/(?=\w)")
_FIRST_PART = re.compile(r"(#?[\w@.+/'&-]*\w(?:\[\d+\])?)([^\w\s]{0,3}[ \t]?[^\w\s#@<]{0,2}|)(?=\S)")
CODE = re.compile(
    r"#.+|\d+|[0-9a-fA-F]{6,}|[\da-fA-F]{8}-[\da-fA-F-]{20,}|(?:\d{1,3}\.){3}\d{1,3}(?:\S*)|[\w-]+(?:\.[\w-]+)+"
    r"|\w{1,12}[-_]?\d+|TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRIT(?:ICAL)?",
    re.IGNORECASE,
)
LEVELS = re.compile(
    r"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRIT(?:ICAL)?|SEVERE|FINE|TODO|DONE|FIXME|NOTE", re.IGNORECASE
)


def _are_codes(words: Counter[str]) -> bool:
    return sum(count for word, count in words.items() if CODE.fullmatch(word)) * 10 >= words.total() * 9


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
        lead = lead[: brackets.end()] if brackets else lead
        leads[lead] += 1
        if lead.endswith("#"):
            # The sign may belong to the name of a channel.
            leads[lead.rstrip("#")] += 1
    return leads


_ANGLES = re.compile("<+")
RUN = re.compile(r"(?:[^\w\s]+[ \t]*|[ \t]+[^\w\s]*[ \t]*)")
_SPOKEN = re.compile(r"(?: to [^:<>|]{1,40}| says| said| wrote| writes| schrieb| sagt| a écrit| escribió| dice) ?:[ \t]*")
_MARKS = set("”:|>»›)]}–—~=*/→⇒⟩•·#\\-\t】」』›’│┃¦%$^+")
_PAIRS = {")": "(", "]": "[", "}": "{", "»": "«", "›": "‹", "】": "【", "」": "「", "』": "『", "⟩": "⟨", "”": "“", "’": "‘"}
_AROUND = frozenset("*-~=\"'`/")
_CLOSING = {opening: closing for closing, opening in _PAIRS.items()} | {"<": ">"}


def _delimiters(texts: Sequence[str], lead: str) -> list[str]:
    """The delimiters that follow the beginning of most texts, the most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        runs = set()
        for match in _GAPS.finditer(text, 1, 80):
            runs.update(_parts_of(match[0], match.end() == len(text)))
        if match := _TAIL.search(text, 1, 100):
            runs.add(match[0])
        if match := _SPOKEN.search(text, 1, 100):
            runs.add(match[0])
        counts.update(runs)
    kept = [run for run, count in counts.most_common(24) if count * 10 >= len(texts) * 4 and _may_delimit(run, lead)]
    return kept[:_MAX_DELIMITERS]


_UNIT = re.compile(r" ?[^\W\d_]{1,4}(?=[\])}>:|,-])")
_GAPS = re.compile(r"[^\w]+")
_TAIL = re.compile(r"(?: \([\w -]{1,20}\)|[@/][\w.-]{1,20})[\])>]?:?[ \t]+(?=\S|\Z)")


def _parts_of(run: str, is_last: bool) -> set[str]:
    """The delimiters that may stand in a run of marks and spaces. The name before it and the text behind it may have marks."""
    if is_last and run[-1] not in SPACES:
        run += " "
    run = run[:16]
    ends = {len(run), len(run.rstrip())} | {place for place in range(1, len(run)) if run[place - 1] in SPACES}
    starts = {0}
    if run[0] not in SPACES:
        starts.update(range(1, min(len(run.split(" ")[0]), 4)))
    ends.update(place for place in range(1, len(run)) if run[place] in SPACES and run[place - 1] not in SPACES)
    return {run[start:end] for start in starts for end in ends if start < end}


def _may_delimit(run: str, lead: str) -> bool:
    marks = run.strip(SPACES)
    opening = lead.rstrip(SPACES)[-1:]
    if opening in _CLOSING and _CLOSING[opening] not in run and (opening != "<" or lead[-1:] not in SPACES):
        return False
    if lead[-1:] in _AROUND and lead[-1:] != run[0]:
        return False
    if not marks or _SPOKEN.fullmatch(run):
        return True
    if _TAIL.fullmatch(run):
        return True
    if marks == ";" and run[0] == ";" and run[-1] == " ":
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


def _is_mark(character: str) -> bool:
    """Whether names may end before a character: a usual mark, its wide form, or a symbol beyond ASCII."""
    return normalize("NFKC", character) in _MARKS or (not character.isascii() and category(character) in ("So", "Sm"))


def _with_author_before(befores: Sequence[str], stamp: str, afters: Sequence[str]) -> Iterator[str]:
    """Patterns in which the author precedes the time."""
    least = max(2, len(befores) * _SHARE)
    befores = [_collapsed(before) for before in befores]
    for tail in _ends(befores, least):
        source = literal(tail).replace("\0", "{skip}")
        end = re.compile(re.escape(tail).replace("\0", r"[^\[\]()<>]{1,64}") + r"\Z")
        pairs = [
            (before[: match.start()], _collapsed(after))
            for before, after in zip(befores, afters, strict=True)
            if (match := end.search(before))
        ]
        ending = _common_lead([after for _, after in pairs])
        is_heading = sum(not after.strip(SPACES + "])}>:-") for _, after in pairs) * 2 > len(pairs)
        close = literal(ending.rstrip() if is_heading else ending) + ("" if is_heading else "{text}")
        open_ = [("", [before for before, _ in pairs], 0)]
        while open_:
            begin, texts, depth = open_.pop()
            for lead, many in _leads(texts).most_common(3):
                begun = [text[len(lead) :] for text in texts if text.startswith(lead) and len(text) > len(lead)]
                if many < least or len(begun) < least:
                    continue
                head = begin + literal(lead)
                if not head.endswith("}"):
                    if is_heading or ending:
                        yield f"{head}{{author}}{source}{stamp}{close}"
                    if depth < _MAX_SLOTS:
                        open_ += _slots(head, begun, depth, least)


def _ends(befores: Sequence[str], least: float) -> Iterator[str]:
    """The marks between names and times, without and with an account or a receiver after the name (in place of NUL)."""
    ends: Counter[str] = Counter()
    for text in befores:
        match = _ACCOUNT.search(text) or _RECEIVER.search(text)
        if match:
            ends[text[match.start() : match.start(1)] + "\0" + text[match.end(1) :]] += 1
        if text and (match := re.search(r"[^\w]*\Z", text)):
            ends[match[0]] += 1
    if words := _last_words(befores):
        yield words
    yield from (end for end, count in ends.most_common(4) if count >= least and end)


def _last_words(texts: Sequence[str]) -> str:
    """The words without capitals, and the marks behind them, with which most texts end: ` wrote on `."""
    tails = Counter(match[0] for text in texts if (match := _LOWER_WORDS.search(text)))
    ends: Counter[str] = Counter()
    for tail, count in tails.items():
        for match in re.finditer(r" +(?=\w)", tail):
            ends[tail[match.start() :]] += count
    common = [end for end, count in ends.items() if count * 5 > len(texts) * 4]
    return max(common, key=len, default="")


_LOWER_WORDS = re.compile(r"(?: (?:[^\W\d_](?<![A-Z])){1,12}){1,4}[^\w]*\Z")


_ACCOUNT = re.compile(r" [\[(<]([^\[\]()<>]{1,64})[\])>][^\w]*\Z")
_RECEIVER = re.compile(r" to ([^:<>|]{1,40})[^\w]+\Z")


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
        if count < least or not character or character.isalnum() or character in "_<":
            break
        lead += character
        left = [text for text in left if text.startswith(lead)]
    return lead

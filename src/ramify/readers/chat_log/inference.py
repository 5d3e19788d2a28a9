"""Inference of a log's pattern from its first lines.

Hypotheses are patterns. They are made from the lines: places where dates and times stand in most lines, what precedes them,
and every place after or before them that may hold names, with every delimiter that follows it in most lines. Each hypothesis
reads the lines, and two questions are asked about the result.

Is it a chat? A few people write most messages, time does not run backwards, no date or time is left in the text, and people
speak to each other. A hypothesis that cannot be right is left out; one that lacks evidence is not chosen.

Which hypothesis explains the lines best? The one with the shortest description: characters that a pattern predicts cost
nothing, names cost their frequency, and text costs its length. A pattern that leaves names or times in the text describes them
with every message anew. If another possible hypothesis reads the lines differently and costs hardly more, none is chosen.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ramify.errors import RamifyError
from ramify.readers import chat
from ramify.readers.chat_log.layout import Layout, Line, dated, is_event
from ramify.readers.chat_log.pattern import SPACES, Pattern, literal
from ramify.readers.chat_log.stamps import Stamp, find_stamps, is_weekday, read_date, read_time

SAMPLE_LINES = 400
MIN_MESSAGES = 4
MAX_LINE = 400

CHARACTER_BITS = 6.0
MARGIN_BITS = 2.0
"""Bits per line by which another reading must be longer."""

COVERAGE = 0.95
"""Least share of messages that a pattern must find, of those that the most fitting pattern finds."""

_MAX_SLOTS = 3
_MAX_DELIMITERS = 6
_SHARE = 0.1
"""Least share of lines that must begin their heads alike for a hypothesis."""

KNOWN = (
    "[{date} {time}{? | Edited {skip}}] {author}: {text}",
    "[{date}, {time}{? | Edited {skip}}] {author}: {text}",
    "[{time}{? | Edited {skip}}] {author}: {text}",
    "{time} From {author}{? to {skip}}: {text}\n{time} From {author}: {text}",
    "{date} {time} From {author}{? to {skip}}: {text}\n{date} {time} From {author}: {text}",
)
"""Patterns of clients whose lines have optional parts: Skype, Zoom."""


@dataclass
class Hypothesis:
    """A pattern, its reading of the sample, and the length of the description in bits."""

    source: str
    layout: Layout
    read: list[Line | None]
    bits: float = 0.0
    fault: str = ""
    """Why it is no chat; "" if it is one."""
    is_possible: bool = True
    """Whether it may be right in spite of its fault, which is a lack of evidence."""

    @property
    def messages(self) -> list[tuple[int, Line]]:
        return [(place, line) for place, line in enumerate(self.read) if line and line.kind != chat.SYSTEM]

    @property
    def coverage(self) -> int:
        """Number of messages that the pattern itself fits, without actions and notices."""
        return sum(line is not None and not line.kind for line in self.read)


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
    sample = first_lines(lines)
    if reason := _is_no_text(sample):
        return Inference(None, reason)
    hypotheses = [_evaluated(source, sample) for source in dict.fromkeys([*_sources(sample), *KNOWN])]
    hypotheses = [each for each in hypotheses if each is not None]
    # Layouts with columns have more than one space before the text.
    wider = [
        each.source.replace(" {text}", "  {text}") for each in hypotheses if each.fault.endswith("each text begins with ' '")
    ]
    hypotheses += [each for source in wider if "  {text}" in source and (each := _evaluated(source, sample)) is not None]
    hypotheses.sort(key=lambda each: each.bits)
    valid = [each for each in hypotheses if not each.fault]
    # A pattern that fits only messages that begin with a name, for example, takes those who are spoken to for the speakers.
    most = max((each.coverage for each in valid), default=0)
    valid = [each for each in valid if each.coverage >= COVERAGE * most]
    if not valid:
        # The reason of a pattern that lacks evidence says more than that of a pattern that cannot be right.
        hypotheses.sort(key=lambda each: not each.is_possible)
        reason = hypotheses[0].fault if hypotheses else "no part of the lines holds names, with a delimiter before the text"
        return Inference(None, reason)
    best = valid[0]
    for other in hypotheses:
        if other is best or not other.is_possible or other.coverage < COVERAGE * most:
            continue
        gap = (other.bits - best.bits) / len(sample)
        if (gap < MARGIN_BITS or best.coverage < 0.8 * other.coverage) and differ(best.read, other.read):
            return Inference(None, f"two patterns explain the lines about equally well: {best.source!r} and {other.source!r}")
    return Inference(best, bits=best.bits)


def description_bits(read: Sequence[Line | None], lines: Sequence[str]) -> float:
    """The length of a description of the lines, given what was read of them."""
    bits = 0.0
    authors: Counter[str] = Counter()
    frames: dict[int, Counter[str]] = defaultdict(Counter)
    for line, found in zip(lines, read, strict=True):
        if found is None:
            bits += len(line) * CHARACTER_BITS
            continue
        bits += len(found.text) * CHARACTER_BITS
        for place, piece in enumerate(_PIECE.findall(_frame(line, found))):
            frames[place][piece] += 1
        if found.kind != chat.SYSTEM:
            authors[found.author or ""] += 1
    bits += sum(map(_vocabulary_bits, (authors, *frames.values())))
    kinds = Counter("" if found is None else found.kind or "message" for found in read)
    return bits + sum(count * -math.log2(count / len(read)) for count in kinds.values())


def _frame(line: str, found: Line) -> str:
    """A line without its text, author, date and time."""
    frame = line.removesuffix(found.text) if found.text else line
    for part in (found.date, found.time, found.author):
        if part:
            frame = frame.replace(part, "\0", 1)
    return re.sub(f"[{SPACES}]+", " ", frame)


_PIECE = re.compile(r"\w+|[^\w]")


def _vocabulary_bits(counts: Counter[str]) -> float:
    """Each different string is spelled once, and then named by its frequency."""
    total = sum(counts.values())
    spelled = sum(len(value) * CHARACTER_BITS + 8 for value in counts)
    return spelled + sum(count * -math.log2(count / total) for count in counts.values())


def differ(one: Sequence[Line | None], other: Sequence[Line | None], *, with_times: bool = True) -> bool:
    """Whether two readings of the same lines find other messages in more than a tenth of the lines."""
    differences = sum(_said(a, with_times) != _said(b, with_times) for a, b in zip(one, other, strict=True))
    return differences * 10 > len(one)


def _said(line: Line | None, with_times: bool) -> object:
    if line is None or line.kind == chat.SYSTEM:
        return None
    times = (line.date, line.time) if with_times else ()
    return line.author, line.text.strip(), line.kind, *times


# --- hypotheses -----------------------------------------------------------------------------------------------------------


def _sources(lines: Sequence[str]) -> Iterator[str]:
    """Patterns to try, some of them wrong."""
    stamps = [find_stamps(line) for line in lines]
    for shape in _shapes(lines, stamps):
        before: list[str] = []
        after: list[str] = []
        for line, found in zip(lines, stamps, strict=True):
            if (ends := shape.find(line, found)) is not None:
                before.append(line[: ends[0]])
                after.append(line[ends[1] :])
        for prefix in _induced(before):
            yield from _with_author_after(prefix + shape.source, after)
        yield from _with_author_before(before, shape.source, after)
    yield from _with_author_after("", [line for line in lines if line[0] not in SPACES])


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
    for line, found in zip(lines, stamps, strict=True):
        if not found:
            continue
        first = found[0]
        counts[_Shape((first.kind,), f"{{{first.kind}}}", ())] += 1
        if len(found) > 1 and found[1].kind != first.kind:
            gap = line[first.end : found[1].start]
            if gap and len(gap) <= 40:
                words = _collapsed(_words(gap))
                source = literal(words).replace("\0", "{skip}")
                counts[_Shape((first.kind, found[1].kind), f"{{{first.kind}}}{source}{{{found[1].kind}}}", (words,))] += 1
    common = [(shape, count) for shape, count in counts.most_common(6) if count >= max(2, _SHARE * len(lines))]
    for shape, count in common:
        # A pattern that leaves out half of a time would read it as text.
        longer = max((other for each, other in common if len(each.kinds) > 1 and each.kinds[0] == shape.kinds[0]), default=0)
        if len(shape.kinds) > 1 or longer * 2 < count:
            yield shape


def _induced(texts: Sequence[str]) -> list[str]:
    """The pattern of what precedes a time in nearly all lines; empty if there is none."""
    texts = [_collapsed(text) for text in texts]
    shapes = Counter(tuple(_WORD.split(text)) for text in texts)
    found = []
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
            found.append(source)
    return found


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
            if head and not head.endswith("}"):
                for delimiter in _delimiters(begun, lead):
                    yield f"{head}{{author}}{literal(delimiter)}{{text}}"
            ends = [match[0] for text in begun if (match := re.search(r"[^\w)\]]*\Z", text)) and len(text) <= 64]
            if _STAMPED.search(source) and len(ends) >= max(least, 0.3 * len(begun)):
                for end, many in Counter(ends).most_common(2):
                    if many * 2 > len(ends) and not head.endswith("}"):
                        yield f"{head}{{author}}{literal(end.rstrip())}"
            if depth < _MAX_SLOTS and not head.endswith("}"):
                open_ += _slots(head, begun, depth, least)


_STAMPED = re.compile(r"\{(?:date|time)\}")


def _slots(head: str, texts: Sequence[str], depth: int, least: float) -> Iterator[tuple[str, list[str], int]]:
    """The rest after the next word, if that word is no name but constant, a number, a code or a tag."""
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


_FIRST_PART = re.compile(r"(#?[\w@.+/'&-]*\w)([^\w\s]{0,3}[ \t]?[^\w\s#@<]{0,2}|)(?=\S)")
_CODE = re.compile(
    r"#.+|\d+|[0-9a-fA-F]{6,}|[\da-fA-F]{8}-[\da-fA-F-]{20,}|(?:\d{1,3}\.){3}\d{1,3}(?:\S*)|[\w-]+(?:\.[\w-]+)+"
    r"|\w{1,12}[-_]?\d+|TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRIT(?:ICAL)?",
    re.IGNORECASE,
)
LEVELS = re.compile(
    r"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRIT(?:ICAL)?|SEVERE|FINE|TODO|DONE|FIXME|NOTE", re.IGNORECASE
)


def _are_codes(words: Counter[str]) -> bool:
    return sum(count for word, count in words.items() if _CODE.fullmatch(word)) * 10 >= words.total() * 9


def _leads(texts: Sequence[str]) -> Counter[str]:
    """The characters before the first letter or digit. An angle bracket ends them, because signs of rights may follow it."""
    leads: Counter[str] = Counter()
    for text in texts:
        lead = text[: next((place for place, each in enumerate(text) if each.isalnum() or each == "_" or each == "#"), 0)]
        brackets = _ANGLES.search(lead)
        leads[lead[: brackets.end()] if brackets else lead] += 1
    return leads


_ANGLES = re.compile("<+")
_RUN = re.compile(r"(?:[^\w\s]+[ \t]*|[ \t]+[^\w\s]*[ \t]*)")
_SPOKEN = re.compile(r"(?: to [^:<>|]{1,40}| says| said| wrote| writes| schrieb| sagt| a écrit| escribió| dice) ?:[ \t]*")
_MARKS = set("”:|>»›)]}–—~=*/→⇒⟩•·#\\-\t】」』›")
_PAIRS = {")": "(", "]": "[", "}": "{", "»": "«", "›": "‹", "】": "【", "」": "「", "』": "『", "⟩": "⟨", "”": "“"}
_AROUND = frozenset("*-~=\"'`/")
_CLOSING = {opening: closing for closing, opening in _PAIRS.items()} | {"<": ">"}


def _delimiters(texts: Sequence[str], lead: str) -> list[str]:
    """The delimiters that follow the beginning of most texts, the most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        found = set()
        for match in _RUN.finditer(text, 1, 80):
            run = match[0]
            found.add(run)
            if " " in run[:-1] and run.strip():
                # Text may begin with marks of its own.
                found.add(run[: run.rindex(" ") + 1])
                found.add(run[: run.index(" ", 1) + 1] if " " in run[1:] else run)
            if run.rstrip() != run and not run[0].isspace():
                found.add(run.rstrip())
            if match.end() == len(text) and run[-1] not in SPACES:
                found.add(f"{run} ")
        if match := _SPOKEN.search(text, 1, 100):
            found.add(match[0])
        counts.update(found)
    kept = [run for run, count in counts.most_common(24) if count * 10 >= len(texts) * 4 and _may_delimit(run, lead)]
    return kept[:_MAX_DELIMITERS]


def _may_delimit(run: str, lead: str) -> bool:
    marks = run.strip(SPACES)
    opening = lead.rstrip(SPACES)[-1:]
    if opening in _CLOSING and _CLOSING[opening] not in run:
        return False
    if lead[-1:] in _AROUND and lead[-1:] != run[0]:
        return False
    if not marks or _SPOKEN.fullmatch(run):
        return True
    if any(mark in ",;.!?" for mark in marks):
        return False
    if set(marks) & set("\"'`_"):
        return bool(lead.strip()) and marks[0] == lead.rstrip()[-1:]
    if not set(marks) & _MARKS:
        return False
    if marks == "]" and "[" not in lead:
        return run[0] == "]" and run[-1] == " "
    if marks[0] in _PAIRS and not (marks[0] in "»›" and not set("«‹") & set(lead)):
        return _PAIRS[marks[0]] in lead
    if marks in ("-", "/", "*", "=", "~", ".", "#", "–"):
        # Inside names and words these are no delimiters.
        return (run[0] == " " and run[-1] == " ") or lead.rstrip()[-1:] == marks
    return True


def _with_author_before(befores: Sequence[str], stamp: str, afters: Sequence[str]) -> Iterator[str]:
    """Patterns in which the author precedes the time."""
    least = max(2, len(befores) * _SHARE)
    befores = [_collapsed(before) for before in befores]
    tails = Counter(match[0] for text in befores if text and (match := re.search(r"[^\w]*\Z", text)))
    for tail, count in tails.most_common(3):
        if count < least or not tail:
            continue
        pairs = [
            (before[: len(before) - len(tail)], _collapsed(after))
            for before, after in zip(befores, afters, strict=True)
            if before.endswith(tail)
        ]
        ending = _common_lead([after for _, after in pairs])
        is_heading = sum(not after.strip(SPACES + "])}>:-") for _, after in pairs) * 2 > len(pairs)
        close = literal(ending.rstrip() if is_heading else ending) + ("" if is_heading else "{text}")
        open_ = [("", [before for before, _ in pairs], 0)]
        while open_:
            source, texts, depth = open_.pop()
            for lead, many in _leads(texts).most_common(3):
                begun = [text[len(lead) :] for text in texts if text.startswith(lead) and len(text) > len(lead)]
                if many < least or len(begun) < least:
                    continue
                head = source + literal(lead)
                if not head.endswith("}"):
                    if is_heading or ending:
                        yield f"{head}{{author}}{literal(tail)}{stamp}{close}"
                    if depth < _MAX_SLOTS:
                        open_ += _slots(head, begun, depth, least)


def _common_lead(texts: Sequence[str]) -> str:
    """The characters, no letters or digits, with which at least four of five texts begin."""
    lead, left = "", [text for text in texts if text]
    least = 0.8 * len(left)
    while left:
        character, count = Counter(text[len(lead) : len(lead) + 1] for text in left).most_common(1)[0]
        if count < least or not character or character.isalnum() or character in "_<":
            break
        lead += character
        left = [text for text in left if text.startswith(lead)]
    return lead


# --- is it a chat? --------------------------------------------------------------------------------------------------------


def _evaluated(source: str, lines: Sequence[str]) -> Hypothesis | None:
    try:
        layout = Layout(Pattern(source))
    except RamifyError:
        return None
    found = Hypothesis(source, layout, [layout.read(line) for line in lines])
    if len(found.messages) < 2:
        return None
    found.bits = description_bits(found.read, lines) + (0 if source in KNOWN else len(source) * CHARACTER_BITS)
    found.fault = _impossible(found, lines)
    found.is_possible = not found.fault
    found.fault = found.fault or _doubtful(found, lines)
    return found


_STRONG = re.compile(r"<\{author\}>")
_MACHINE = re.compile(
    r"[\w./-]+\[\d+\]|\w+(?:\.\w+){2,}|\S+\.(?:py|java|c|cpp|go|js|rs|ts)(?::\d+)?|(?:\d{1,3}\.){3}\d{1,3}\S*|\S+://\S*"
)
_NO_NAMES = "i you we he she they it this that there the a an my your if when then and but so no yes not"
_PRONOUNS = frozenset(_NO_NAMES.split())


def _impossible(found: Hypothesis, lines: Sequence[str]) -> str:
    """Why a reading of lines cannot be right; "" if it can."""
    messages, headings = _authored(found), found.layout.is_heading
    texts = _texts(found, lines)
    authors = Counter((line.author or "").lower() for line in messages)
    total = len(messages)
    what = f"the pattern {found.source!r} fits best, but"
    if total < MIN_MESSAGES:
        return f"{what} only {total} lines are messages, fewer than {MIN_MESSAGES}"
    heads = sum(line is not None for line in found.read)
    if not headings and total * (8 if found.layout.has_stamp else 2) < len(lines):
        return f"{what} it fits only {total} of the first {len(lines)} lines"
    if len(authors) < 2:
        return f"{what} all messages would be by {next(iter(authors))!r}"
    if len(authors) > 0.8 * total:
        return f"{what} authors do not repeat: {len(authors)} names in {total} messages"
    shapes = [name for name in authors.elements() if not _is_name(name)]
    if len(shapes) * 10 > total or "#{author}" in found.source:
        return f"{what} {(shapes or [*authors])[0]!r} is not a name"
    if sum(count for name, count in authors.items() if _MACHINE.search(name) or LEVELS.fullmatch(name)) * 5 > total:
        return f"{what} its authors are programs ({next(iter(authors))!r}), as in the log of a machine"
    codes = sum(_CODE.fullmatch(name) is not None for name in authors)
    if codes * 5 > len(authors) * 3 and len(authors) * 2 > total:
        return f"{what} {next(iter(authors))!r} is a number or a code, and no name"
    if all(is_weekday(name) for name in authors):
        return f"{what} {next(iter(authors))!r} is a day, and no name"
    if left := _left_over(list(authors), texts) or _cut(found, messages):
        return f"{what} {left}"
    if reason := _disorder(found):
        return f"{what} {reason}"
    left = sum(read is None and _begins_with_a_stamp(line) for line, read in zip(lines, found.read, strict=True))
    if found.layout.has_stamp and left * 10 > len(lines):
        return f"{what} {left} lines that begin with a date or time do not fit"
    frames = [_frame(line, read) for line, read in zip(lines, found.read, strict=True) if read and read.kind != chat.SYSTEM]
    if (
        found.source not in KNOWN
        and sum(bool(find_stamps(frame) or _LIKE_A_STAMP.search(frame)) for frame in frames) * 3 > total
    ):
        return f"{what} it leaves out dates or times"
    if not found.layout.has_stamp and sum(bool(find_stamps(line)) for line in lines) * 3 > len(lines):
        return f"{what} it leaves the times in the text"
    if headings and heads * 2 > len(lines) * 1.4:
        return f"{what} there is no text under most headings"
    return ""


def _doubtful(found: Hypothesis, lines: Sequence[str]) -> str:
    """The evidence that a reading of lines lacks; "" if it lacks none."""
    messages, texts = _authored(found), _texts(found, lines)
    authors = Counter((line.author or "").lower() for line in messages)
    total = len(messages)
    what = f"the pattern {found.source!r} fits best, but"
    heads = sum(line is not None for line in found.read)
    known = sum(line is not None and (line.kind != chat.SYSTEM or line.author is not None) for line in found.read)
    if heads - known > total:
        return f"{what} it finds an author in only {total} of {heads} lines with its beginning"
    if len(set(texts)) <= len(authors) and total > 3 * len(authors):
        return f"{what} the texts repeat more than the names"
    if found.layout.has_stamp:
        return _is_spoken(found, authors, messages, texts, lines, what)
    return _is_spoken_without_times(found, authors, messages, texts, lines, what)


def _authored(found: Hypothesis) -> list[Line]:
    return [line for _, line in found.messages if line.author is not None]


def _texts(found: Hypothesis, lines: Sequence[str]) -> list[str]:
    """The texts of all messages. Text on the first line keeps what precedes it."""
    texts: list[list[str]] = []
    is_open = False
    for line, read in zip(lines, found.read, strict=True):
        if read is not None:
            is_open = read.kind != chat.SYSTEM and read.author is not None
            if is_open:
                texts.append([read.text])
        elif is_open:
            texts[-1].append(line)
    return [text[0] if len(text) == 1 else "\n".join(text[not text[0] :]).lstrip("" if text[0] else None) for text in texts]


def _is_name(name: str) -> bool:
    if not any(each.isalpha() for each in name) and not re.fullmatch(r"\+?[\d\u2011 ()-]{7,}", name):
        return False
    if (
        name.startswith(("http:", "https:", "/", "\\"))
        or ";" in name
        or re.search(r"#(?!\d{4}\Z)", name)
        or re.search(r",\S|[=\t\"]|::|\.\s|[-–—|>:»] |^\W*\d+:\d", name)
    ):
        return False
    if name[-1] in ":>,?!" or (name[-1] == "-" and " " in name) or (name[0] in "<(" and len(name) > 1):
        return False
    if any(each.isdigit() for each in name) and find_stamps(name):
        return False
    if " " in name and re.search(r"[\[\]{}|^`\\]", name):
        return False
    pairs = ("()", "<>", "«»") if not re.search(r"[\[\]|^`\\]", name) else ("()", "<>")
    return all(name.count(one) == name.count(other) for one, other in pairs) and not is_event(name)


_LIKE_A_STAMP = re.compile(r"(?<![\w.])\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?![\w.])|(?<![\w:])\d{1,2}:\d\d(?!\w)")


def _cut(found: Hypothesis, messages: Sequence[Line]) -> str:
    """Whether names that only a space parts from the text are longer than that; "" if they are not."""
    if not _WEAK.search(found.source):
        return ""
    firsts: dict[str, Counter[str]] = defaultdict(Counter)
    runs: Counter[str] = Counter()
    for message in messages:
        firsts[message.author or ""][message.text.split(" ")[0]] += 1
        begins = f"{message.author} {message.text}"[:40]
        runs.update({run.strip() for run in _RUN.findall(begins) if run.strip(" #")})
    run, count = runs.most_common(1)[0] if runs else ("", 0)
    if count * 5 >= len(messages) * 4:
        return f"names seem to end with {run!r}"
    for author, words in firsts.items():
        word, count = words.most_common(1)[0]
        if count > 2 and word.isalpha() and count * 5 >= words.total() * 4:
            return f"{author!r} is always followed by {word!r}"
    return ""


_WEAK = re.compile(r"\{author\} *\{text\}")
_AROUND_NAMES = re.compile(r"from .+|.+ to .+|.+ (?:says|said|wrote|writes|schrieb|sagt|a écrit|escribió|dice)", re.IGNORECASE)


def _left_over(authors: Sequence[str], texts: Sequence[str]) -> str:
    """The fault that nearly all names or texts share a part, which then belongs to the pattern; "" if they share none."""
    texts = [text for text in texts if text]
    for what, values in (("name", authors), ("text", texts)):
        for side, place in (("begins", 0), ("ends", -1)):
            mark, count = Counter(value[place] for value in values).most_common(1)[0] if values else ("", 0)
            is_odd = not mark.isalnum() and (mark not in "_.?!…" or (what, side) == ("text", "begins"))
            if is_odd and count * 5 >= len(values) * 3 and count > (1 if what == "name" else 2):
                return f"each {what} {side} with {mark!r}"
    if sum(_AROUND_NAMES.fullmatch(name) is not None for name in authors) * 2 > len(authors):
        return f"{authors[0]!r} is more than a name"
    return ""


def _begins_with_a_stamp(line: str) -> bool:
    stamps = find_stamps(line)
    return bool(stamps) and stamps[0].start <= 3 and dated(line)[0] is None


def _disorder(found: Hypothesis) -> str:
    """Whether more than a tenth of the times go back by less than half a day."""
    times = []
    unread = 0
    for line in found.read:
        if line is None:
            continue
        date = read_date(line.date, "day") or read_date(line.date, "month") if line.date else None
        time = read_time(line.time) if line.time else None
        unread += (line.date is not None and date is None) or (line.time is not None and time is None)
        if time is not None:
            times.append((line.date, time.second))
        elif date is not None:
            times.append((None if date.second is None else "", date.second or 0.0))
    back = sum(one[0] == other[0] and 0 < one[1] - other[1] < 43_200 for one, other in pairwise(times))
    if unread * 20 > len(found.read):
        return f"{unread} dates or times do not exist"
    steps = [(one[0] != other[0], one[1] <= other[1]) for one, other in pairwise(times)]
    if len(steps) > 6 and sum(map(all, steps)) * 10 > len(steps) * 8:
        return "its days change with each line, but its hours do not"
    if back * 10 > len(times) + 10:
        return f"its times go back {back} times"
    seconds = {second for _, second in times}
    return "its times are those of a schedule" if len(seconds) > 5 and all(each % 900 == 0 for each in seconds) else ""


_TALK = re.compile(
    r"[?？؟](?:\W|$)|[\U0001F300-\U0001FAFF]|(?:^|\s)[:;]-?[)(DPp](?:\s|$)|\b(?:i|i'm|i'll|i've|i'd|you|you're|your|we|we're|me|my"
    r"|hi|hello|hey|thanks|thank|thx|yes|yeah|yep|yup|nope|lol|haha|please|sorry|anyone|anybody|someone|hmm|oh|don't|let's|what's"
    r"|that's|it's|can't|good morning|bye|ok|okay|sure|maybe|great|nice|cool|see you|omg|btw|ich|du|wir|ihr|hallo|danke|ja|nein"
    r"|bitte|mir|mich|dich|je|tu|vous|nous|salut|bonjour|merci|oui|moi|toi|yo|tú|hola|gracias|sí|ciao|grazie|sì|olá|oi|obrigad[oa]"
    r"|he|she|they|him|them|really|just|actually|though|wait|exactly|agreed?|welcome|cheers|guys|folks|everyone|wow|nah|hope"
    r"|think|guess|love|didn't|doesn't|isn't|won't|wasn't|couldn't|wouldn't|i'd|he's|she's|they're|same here|no worries"
    r"|sim|você"
    r"|ik|jij|je|hoi|dank|nee|я|ты|вы|мы|привет|спасибо|да|нет)\b",
    re.IGNORECASE,
)


def _is_spoken(
    found: Hypothesis, authors: Counter[str], messages: Sequence[Line], texts: Sequence[str], lines: Sequence[str], what: str
) -> str:
    """Whether people speak to each other. Names in angle brackets need no further evidence."""
    if _STRONG.search(found.source):
        return ""
    total = len(messages)
    talk = sum(_TALK.search(text) is not None for text in texts)
    if _tells_time(messages):
        # Without times, results of matches name others, too.
        talk += _mentions(messages, texts, authors)
    is_weak = _WEAK.search(found.source) is not None
    most = 0.6 if "@{author}" in found.source else 1 / 3
    if is_weak and (total < 8 or len(authors) > most * total or any(name in _PRONOUNS for name in authors)):
        return f"{what} its names are not set apart from the text"
    needed = 0.3 if is_weak else 0.2 if LEVELS.search(found.source) else 0.1
    if "{skip}" in found.source and any(_has_level(line, read) for line, read in zip(lines, found.read, strict=True)):
        needed = max(needed, 0.2)
    if talk < max(2, needed * total):
        return f"{what} hardly anybody speaks to anybody, as in the log of a machine"
    return ""


def _is_spoken_without_times(
    found: Hypothesis, authors: Counter[str], messages: Sequence[Line], texts: Sequence[str], lines: Sequence[str], what: str
) -> str:
    """Whether people speak to each other where no times show that this is a log."""
    if _STRONG.search(found.source):
        has_markup = sum("</" in line for line in lines) * 10 > len(lines)
        return f"{what} the lines are those of a markup language" if has_markup else ""
    if re.search(r"\{author\}[:.]?(?: ?[-–—:]) ?\{text\}|\{author\}[.: ]", found.source):
        return f"{what} without times, a play or a list looks the same"
    if not _SET_APART.search(found.source):
        return f"{what} without times, its names are not set apart from the text"
    mentions = _mentions(messages, texts, authors)
    if mentions * 10 < len(messages) or mentions < 2 or len(authors) * 2 > len(messages):
        return f"{what} it has no times, and authors do not name each other"
    return ""


_SET_APART = re.compile(
    r"(?:\[\{author\}\]|\(\{author\}\)|\\\{\{author\}\\\}|«\{author\}»|\{author\} ?[|»›→⇒]|@\{author\}:?)[:>|]? "
)


def _tells_time(messages: Sequence[Line]) -> bool:
    """Whether the messages have times of day."""
    first = messages[0]
    date = read_date(first.date, "day") if first.date else None
    return first.time is not None or (date is not None and date.second is not None)


def _has_level(line: str, read: Line | None) -> bool:
    return read is not None and LEVELS.search(_frame(line, read)) is not None


def _mentions(messages: Sequence[Line], texts: Sequence[str], authors: Counter[str]) -> int:
    """Messages that name another author."""
    names = {name.lstrip("@~ ").split("#")[0].strip(): name for name in authors}
    names |= {first: name for name in authors if len(first := name.split(" ")[0].strip("@~")) > 2}
    count = 0
    for message, text in zip(messages, texts):
        words = re.findall(r"[\w|^`\[\]\\-]+", text.lower())
        own = (message.author or "").lower()
        count += any(names.get(word, own) != own for word in words)
    return count


_CUE = re.compile(r"\s*[\d:.,]{5,} --> [\d:.,]{5,}")


def _is_no_text(sample: Sequence[str]) -> str:
    if not sample:
        return "only blank lines"
    first = sample[0].lstrip("\ufeff \t")
    if first.startswith(("<?xml", "<!DOCTYPE", "<!doctype", "<html", "WEBVTT")):
        return "line 1: the beginning of a document in a markup language"
    records = sum(_is_record(line) for line in sample)
    if first in ("{", "[") or records * 2 > len(sample):
        return "it looks like JSON"
    if sum(_CUE.match(line) is not None for line in sample) * 8 > len(sample):
        return "it looks like subtitles"
    if sum("</" in line for line in sample) * 10 > len(sample) and first.startswith("<"):
        return "it looks like a markup language"
    return ""


def _is_record(line: str) -> bool:
    line = line.strip().removesuffix(",")
    if line.startswith(('{"', '[{"')):
        return True
    if not line.startswith(("{", '["', "[{", '"')):
        return False
    try:
        return isinstance(json.loads(line if line.startswith(("{", "[")) else f"{{{line}}}"), dict | list)
    except ValueError:
        return bool(re.match(r'"[^"]*": ', line))
    except RecursionError:
        return True

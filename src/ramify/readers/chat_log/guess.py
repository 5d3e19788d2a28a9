"""Guessing of a log's pattern from its first lines.

A layout of a known program (`known`) or of the grammar (`grammar`) reads the lines. The reading with the shortest description
is chosen: lines that are not read and texts cost 6 bits a character, each name its spelling once and then its entropy, and so
do parts that are left out; the pattern costs its length. A reading must be that of a chat, by shares only: names repeat, most
lines with a date or time are read, times do not run backwards, names hold no dates, and texts are not those of a machine. If
another such reading finds other messages and is less than a bit a line longer, none is chosen.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, islice, pairwise
from random import Random

from ramify.errors import RamifyError
from ramify.readers.chat_log.fold import FIRST_LINES, fold_of, folded
from ramify.readers.chat_log.grammar import Reading, Said, readings, spelled, stamps_of
from ramify.readers.chat_log.known import KNOWN
from ramify.readers.chat_log.layout import Layout
from ramify.readers.chat_log.pattern import Pattern, literal, masked
from ramify.readers.dates import Stamp, find_stamps, is_weekday, read_date, read_time
from ramify.readers.events import LEVELS, dated, is_event

SAMPLE_LINES = 400
MAX_LINE = 400
CHARACTER_BITS = 6.0
MARGIN_BITS = 1.0
"""Bits per line by which another reading must be longer."""

BETTER_BITS = 10.0
"""Bits per line by which a reading that is right if it can be may be longer."""

MIN_MESSAGES = 4
MAX_TEMPLATES = 30
"""Most forms of the texts of a machine, but for their numbers."""

LEAST_READ = 0.6
"""Least share of lines with a date or time that are read."""

LEAST_MARKED = 0.2
"""The same for names in angle brackets, beside which a channel of IRC may have many lines of its own."""


@dataclass(frozen=True)
class Guess:
    """The pattern of some lines; or the reason why none is chosen, and the nearest one ("" if there is none)."""

    source: str
    reason: str = ""

    @property
    def layout(self) -> Layout:
        return Layout(Pattern(self.source))


def first_lines(lines: Iterable[str]) -> list[str]:
    """The lines from which a pattern is guessed: the first that are not blank, and the beginnings of long ones."""
    return [line[:MAX_LINE] for line in lines if line and not line.isspace()][:SAMPLE_LINES]


def guess(lines: Iterable[str]) -> Guess:
    """Guess the pattern of a log from its first lines, with its blank lines: they part heads of several lines."""
    begin = list(islice(lines, FIRST_LINES))
    fold = fold_of(begin)
    if fold == "mixed":
        return Guess("", "its texts stand above the names of their authors, and some have none")
    plain, joined = (tuple(first_lines(chain.from_iterable(folded([begin], form)))) for form in ("", fold))
    if fold == "signed":
        # Below each signature stands the text of another.
        return _guess(joined)
    # Labels look like names, and times without names may look like messages.
    for sample in (joined, plain) if fold in ("labels", "continued") else (plain, joined):
        guessed = _guess(sample)
        if not guessed.reason and (sample == plain or "\\n" in guessed.source):
            return guessed
    return _guess(plain)


@lru_cache(maxsize=2)
def _guess(sample: tuple[str, ...]) -> Guess:
    """`guess`, kept for the reader, which needs the pattern after the detection of the format has asked for it."""
    if not sample:
        return Guess("", "only blank lines")
    lines, back = spelled(sample)
    stamps = stamps_of(sample)
    known = list(_known(lines, stamps))
    pool = [*known, *readings(lines, stamps)]
    judge = _Judge(lines, stamps, sample)
    bits = {id(reading): judge.bits(reading, free=place < len(known)) for place, reading in enumerate(pool)}
    pool = sorted((reading for reading in pool if len(reading.said) >= 2), key=lambda reading: bits[id(reading)])
    # Any line fits a pattern in which only a space follows names.
    pool.sort(key=lambda reading: reading.is_open)
    best = next((reading for reading in pool if not judge.fault(reading)), None)
    if best is None:
        if not pool:
            return Guess("", "no part of the lines holds names, with a delimiter before the text")
        near = [reading for reading in pool[:40] if reading.has_stamp] or pool
        nearest = next((reading for reading in near[:20] if "machine" in judge.fault(reading)), near[0])
        source = nearest.source.translate(back)
        return Guess(source, f"the pattern {source!r} fits best, but {judge.fault(nearest)}")
    is_known = False
    for reading in known:
        near = bits[id(reading)] - bits[id(best)] < MARGIN_BITS / 2 * len(lines)
        if near and len(reading.said) + len(reading.told) >= 0.95 * judge.stamped(reading) and not judge.fault(reading):
            best, is_known = reading, True
            break
    rivals = [reading for reading in pool if reading.is_open == best.is_open]
    for other in rivals:
        if bits[id(other)] - bits[id(best)] >= BETTER_BITS * len(lines):
            break
        if other is not best and _is_better(other, best) and not judge.fault(other):
            best = other
    for other in rivals:
        if is_known or bits[id(other)] - bits[id(best)] >= MARGIN_BITS * len(lines):
            break
        if other is best or judge.fault(other) or _is_better(best, other):
            continue
        if _differ(other, best, len(lines)):
            sources = " and ".join(repr(reading.source.translate(back)) for reading in (best, other))
            return Guess(best.source.translate(back), f"two patterns explain the lines about equally well: {sources}")
    return Guess(_with_indentation(_with_end(best, _with_signs(best)).translate(back), sample))


def _differ(one: Reading, other: Reading, count: int) -> bool:
    """Whether two readings find other messages in more than a tenth of the lines. Names may differ if texts are the same."""
    places = one.said.keys() | other.said.keys()
    texts = sum(_text(one, place) != _text(other, place) for place in places)
    return texts * 10 > count


def _text(reading: Reading, place: int) -> str | None:
    return said.text.strip() if (said := reading.said.get(place)) else None


def _is_better(one: Reading, other: Reading) -> bool:
    """Whether one reading is right if both can be.

    It finds the same texts by shorter names, or several authors in what the other ascribes to one (a room or a part of the
    program), or it leaves out lines of another level, whose authors say nothing else.
    """
    shared = one.said.keys() & other.said.keys()
    pairs = [(one.said[place], other.said[place]) for place in shared]
    if len(shared) * 2 <= len(other.said):
        return False
    if len(shared) == len(one.said) == len(other.said) and all(a[:2] == b[:2] for a, b in pairs):
        if one.is_heading != other.is_heading:
            return one.is_heading
        # More lines of the channel have the form of a part that may differ.
        return one.source.count("{skip}") > other.source.count("{skip}")
    endings = {b.text.removeprefix(a.text) for a, b in pairs if a.name == b.name and b.text.startswith(a.text)}
    if len(endings) == 1 and endings <= _ENDINGS and len(shared) == len(other.said):
        return True
    if all(a.text == b.text and a.name in b.skipped and b.name in a.skipped for a, b in pairs):
        # Accounts follow names: Ann Lee [U123].
        return one.source.find("{author}") < other.source.find("{author}")
    if all(a.text == b.text for a, b in pairs):
        # Ann (123), and not 123.
        is_part = sum(a.name in b.name for a, b in pairs) * 10 >= len(pairs) * 9
        if (
            is_part
            and sum(len(a.name) for a, _ in pairs) < sum(len(b.name) for _, b in pairs)
            and (len(shared) >= 0.95 * max(len(one.said), len(other.said)))
        ):
            return True
        names = {said.name for said in one.said.values()}
        rest = [said for place, said in other.said.items() if place not in shared]
        is_same = all(a.name == b.name for a, b in pairs) and len(shared) >= 0.6 * len(other.said)
        are_levels = all(any(map(LEVELS.fullmatch, said.skipped)) for said in rest)
        return bool(is_same and rest and are_levels and names.isdisjoint(said.name for said in rest))
    is_inside = all(len(b.text) > len(a.text) and b.text.endswith(a.text) for a, b in pairs)
    is_room = len({b.name for _, b in pairs}) == 1 or len(shared) * 5 > len(other.said) * 4
    return is_inside and is_room and len({a.name for a, _ in pairs}) > 1


# --- layouts of known programs --------------------------------------------------------------------------------------------


@cache
def _forms() -> list[tuple[str, list[re.Pattern[str]]]]:
    return [(source, [masked(form) for form in source.split("\n")]) for source in KNOWN.values()]


def _known(lines: Sequence[str], stamps: Sequence[Sequence[Stamp]]) -> Iterator[Reading]:
    """Readings by the layouts of known programs. Dates and times of the lines are replaced with `\\1` and `\\2`."""
    short = [_short(line, found) for line, found in zip(lines, stamps, strict=True)]
    # Not every second line: heads and texts may take turns.
    some = Random(0).sample(short, min(len(short), 60))
    for source, forms in _forms():
        if not any(form.fullmatch(line) for line, _, _ in some for form in forms):
            continue
        said: dict[int, Said] = {}
        told: dict[int, str] = {}
        for place, (line, date, time) in enumerate(short):
            if match := next((match for form in forms if (match := form.fullmatch(line))), None):
                groups = match.groupdict()
                text = (groups.get("text") or "").replace("\1", date).replace("\2", time)
                if author := groups.get("author"):
                    said[place] = Said(author.strip(), text)
                elif "system" in groups:
                    told[place] = groups["system"]
        if len(said) >= MIN_MESSAGES:
            yield Reading(source, said, told)


_MASKS = {"date": "\1", "time": "\2"}


def _short(line: str, stamps: Sequence[Stamp]) -> tuple[str, str, str]:
    """A line with marks in place of its first date and of its first time, and both."""
    spelled = {"date": "", "time": ""}
    for stamp in reversed(stamps[:2] if len({stamp.kind for stamp in stamps[:2]}) > 1 else stamps[:1]):
        spelled[stamp.kind] = line[stamp.start : stamp.end]
        line = line[: stamp.start] + _MASKS[stamp.kind] + line[stamp.end :]
    return line, spelled["date"], spelled["time"]


# --- the length of descriptions, and the conditions -------------------------------------------------------------------------


class _Judge:
    """Measures readings of some lines."""

    def __init__(self, lines: Sequence[str], stamps: Sequence[Sequence[Stamp]], raw: Sequence[str]) -> None:
        self._lines, self._stamps, self._raw = lines, stamps, raw
        self._size = sum(map(len, lines))
        self._faults: dict[int, str] = {}
        self._begin = [bool(found) and found[0].start <= 3 and dated(line)[0] is None for line, found in zip(lines, stamps)]

    def bits(self, reading: Reading, *, free: bool) -> float:
        """The length of the description that a reading gives. The pattern of a known program is free."""
        texts = chain(reading.told.items(), ((place, said.text) for place, said in reading.said.items()))
        saved = sum(len(self._lines[place]) - len(text) for place, text in texts)
        bits = (self._size - saved + len(reading.source) * (not free)) * CHARACTER_BITS
        bits += _vocabulary_bits(Counter(said.name for said in reading.said.values()))
        skipped: dict[int, Counter[str]] = defaultdict(Counter)
        for said in reading.said.values():
            for place, part in enumerate(said.skipped):
                skipped[place][part] += 1
        return bits + sum(map(_vocabulary_bits, skipped.values()))

    def stamped(self, reading: Reading) -> int:
        """The number of lines with a date or time in the place where a reading has them; of all lines if it has none."""
        if not reading.has_stamp:
            # Indented lines go on with a text.
            begun = len(reading.said) + sum(
                not line[0].isspace() for place, line in enumerate(self._lines) if place not in reading.said
            )
            return begun // (1 + reading.is_heading)
        if _FIRST_STAMP.match(reading.source):
            return len({place for place, begins in enumerate(self._begin) if begins} | reading.said.keys())
        # Texts hold times, too.
        return sum(map(bool, self._stamps)) * 2 // 3

    def fault(self, reading: Reading) -> str:
        """Why a reading cannot be that of a chat; "" if it can."""
        if (fault := self._faults.get(id(reading))) is None:
            fault = self._fault(reading)
            if not fault:
                try:
                    Pattern(reading.source)
                except RamifyError as error:
                    fault = f"it is not usable: {error}"
            self._faults[id(reading)] = fault
        return fault

    def _fault(self, reading: Reading) -> str:
        names = Counter(said.name.lower() for said in reading.said.values())
        total = len(reading.said)
        if total < MIN_MESSAGES:
            return f"only {total} lines are messages, fewer than {MIN_MESSAGES}"
        if len(names) < 2:
            return f"all messages would be by {next(iter(names))!r}"
        if sum(count for count in names.values() if count > 1) * 2 < total:
            return f"authors do not repeat: {len(names)} names in {total} messages"
        is_marked = "<{author}>" in reading.source
        is_of_program = not reading.has_stamp and reading.source in KNOWN.values()
        stamped = self.stamped(reading)
        if total < (LEAST_MARKED if is_marked else LEAST_READ) * stamped:
            return f"it fits only {total} of {stamped} lines with a date or time"
        if not any(said.text for said in reading.said.values()) and total * 10 > len(self._lines) * 7:
            return "there is no text below most names"
        if not reading.is_heading and total * (8 if reading.has_stamp else 2) < len(self._lines):
            return f"it fits only {total} of the first {len(self._lines)} lines"
        messages = self._texts(reading, whole=False)
        heard = {name.lower() for name, text in messages if text}
        if sum(bool(text) for _, text in messages) * 2 < total:
            return "most messages would have no text"
        if unheard := [name for name, count in names.items() if reading.is_heading and count > 3 and name not in heard]:
            return f"no text follows {unheard[0]!r}"
        for what, test in (("is not a name", _is_no_name), ("is no name but a program or a level", _is_program)):
            bad = [name for name in names if test(name)]
            if is_of_program or '"{author}"' in reading.source:
                bad = []
            elif is_marked and test is _is_program:
                bad = [name for name in bad if LEVELS.fullmatch(name)]
            if sum(names[name] for name in bad) * 2 > total or len(bad) * 2 > len(names):
                return f"{bad[0]!r} {what}"
        if reason := _shared_part(Counter(said.name for said in reading.said.values())) or self._disorder(reading):
            return reason
        if "\\t{text}" in reading.source and sum("\t" in said.text for said in reading.said.values()) * 10 > total * 9:
            return "it leaves a column in the text"
        if reading.is_open and (reason := _cut(reading, names)):
            return reason
        if not reading.has_stamp and not is_of_program:
            return _lacks_times(reading, names, self._texts(reading, whole=True), self._lines)
        return "" if is_marked else _is_of_machine(messages)

    def _texts(self, reading: Reading, *, whole: bool) -> list[tuple[str, str]]:
        """The name and the text of each message; with the lines below if it is `whole`, or if no text follows the name."""
        places = sorted(reading.said)
        texts: list[tuple[str, str]] = []
        for place, after in zip(places, [*places[1:], len(self._lines)]):
            name, text, _ = reading.said[place]
            below = self._lines[place + 1 : after] if whole or not text else []
            texts.append((name, " ".join([text, *below]).strip()))
        return texts

    def _disorder(self, reading: Reading) -> str:
        """The fault that more than a tenth of the times go back by less than half a day, or are those of a schedule."""
        times: list[tuple[str | None, float]] = []
        elapsed: list[list[int]] = []
        is_last = _LAST_STAMP.search(reading.source) is not None
        for place in sorted(reading.said) if reading.has_stamp else ():
            found = self._stamps[place]
            line = self._raw[place]
            parts = {stamp.kind: line[stamp.start : stamp.end] for stamp in reversed(found[-2:] if is_last else found[:2])}
            date = parts.get("date")
            day = read_date(date, "day") or read_date(date, "month") if date else None
            time = read_time(parts["time"]) if "time" in parts else None
            numbers = [int(number) for number in _NUMBER.findall(parts.get("time", ""))]
            elapsed.append([0] * (3 - len(numbers)) + numbers)
            if time is not None:
                times.append((date, time.second))
            elif day is not None and day.second is not None:
                times.append(("", day.second))
        back = sum(one[0] == other[0] and 0 < one[1] - other[1] < 43_200 for one, other in pairwise(times))
        if back and not any(date for date, _ in times):
            back = min(back, sum(one > other for one, other in pairwise(elapsed)))
        if back * 10 > len(times) + 10:
            return f"its times go back {back} times"
        steps = [(one[0] != other[0], one[1] <= other[1]) for one, other in pairwise(times)]
        if len(steps) > 6 and sum(map(all, steps)) * 10 > len(steps) * 8:
            return "its days change with each line, but its hours do not"
        seconds = {second for _, second in times}
        return "its times are those of a schedule" if len(seconds) > 5 and all(second % 900 == 0 for second in seconds) else ""


_NUMBER = re.compile(r"\d+")
_LAST_STAMP = re.compile(r"\{text\}.*\{time\}")
_FIRST_STAMP = re.compile(r"\W{0,2}\{(?:date|time)\}")


def _vocabulary_bits(counts: Counter[str]) -> float:
    """Each different string is spelled once, and then named by its frequency."""
    return sum(len(value) * CHARACTER_BITS + 8 for value in counts) + _entropy_bits(counts)


def _entropy_bits(counts: Counter[str]) -> float:
    total = counts.total()
    return sum(count * -math.log2(count / total) for count in counts.values())


_HOST = re.compile(r"!~?\S+@\S+\Z")
_PROGRAM = re.compile(
    r"[\w./-]+\[\d+\]|\w+(?:\.\w+){2,}|\S+\.(?:py|java|c|cpp|go|js|rs|ts)(?::\d+|\b)|(?:\d{1,3}\.){3}\d{1,3}\S*|\S+://\S*"
    r"|\A\S+@\S+ \w+\Z"
)


def _is_program(name: str) -> bool:
    name = _HOST.sub("", name)
    return _PROGRAM.search(name) is not None or LEVELS.fullmatch(name) is not None


@lru_cache(maxsize=1 << 14)
def _is_no_name(name: str) -> bool:
    if not any(character.isalpha() for character in name) and not re.fullmatch(r"\+?[\d\u2011 ()-]{7,}", name):
        return True
    if (
        name.startswith(("http:", "https:", "/", "\\", "#"))
        or _NO_NAME.search(name)
        or name[-1] in ":>,?!"
        or (name[-1] == "-" and " " in name)
        or (name[0] in "<(" and len(name) > 1)
        or is_weekday(name)
    ):
        return True
    if any(character.isdigit() for character in name) and find_stamps(name):
        return True
    if " " in name and re.search(r"[\[\]{}|^`\\]", name):
        return True
    if "," in name and is_weekday(name.split(" ")[-1]):
        return True
    pairs = ("()", "<>", "«»", "（）") if not re.search(r"[\[\]|^`\\]", name) else ("()", "<>")
    return any(name.count(one) != name.count(other) for one, other in pairs) or is_event(name)


_NO_NAME = re.compile(r";|#(?!\d{4}\Z)|,\S|[\t\"]|(?<!-)=(?!-)|::|\w{4}\.\s|[-–—|>:»/\\] |\d:\d|^\d{1,2} ?[ap]\.?m\.?$")
_PRONOUNS = "i you we he she they it this that there the a an my your if when then and but so no yes not"
_NO_NAMES = frozenset(_PRONOUNS.split())


def _shared_part(names: Counter[str]) -> str:
    """The fault that most names share a mark at their end or a word that is no name; "" if they do not."""
    if len(names) < 2:
        return ""
    for place in (0, -1):
        marks: Counter[str] = Counter()
        for name, count in names.items():
            marks[name[place]] += count
        mark, count = marks.most_common(1)[0]
        if not mark.isalnum() and mark not in "_+@)]" and count * 5 > names.total() * 4:
            return f"most names {'end' if place else 'begin'} with {mark!r}"
    apart = [name for name in names if " " in name and not _PHONE.match(name)]
    shared = Counter(word for name in apart for word in set(name.split(" ")) if _NOT_IN_NAMES.fullmatch(word))
    word, count = shared.most_common(1)[0] if shared else ("", 0)
    return f"most names hold {word!r}" if count > 1 and count * 2 > len(names) else ""


_NOT_IN_NAMES = re.compile(r"From|Name|Text|Message|Time|\d+|(?!d[aeiou]s?\b|v[ao]n\b)[^\W\dA-Z]\w*")


def _cut(reading: Reading, names: Counter[str]) -> str:
    """Whether names that only a space parts from the text may be longer than that; "" if they are not."""
    total = len(reading.said)
    is_spoken_to = "@{author}" in reading.source
    if total < 8 or len(names) * (1.6 if is_spoken_to else 3) > total or names.keys() & _NO_NAMES:
        return "its names are not set apart from the text"
    firsts: dict[str, Counter[str]] = defaultdict(Counter)
    runs: Counter[str] = Counter()
    for said in reading.said.values():
        firsts[said.name][said.text.split(" ")[0]] += 1
        runs.update({run.strip() for run in _RUN.findall(f"{said.name} {said.text}"[:40]) if run.strip(" #")})
    run, count = runs.most_common(1)[0] if runs else ("", 0)
    if count * 5 >= total * 4:
        return f"names seem to end with {run!r}"
    for name, words in firsts.items():
        word, count = words.most_common(1)[0]
        if count > 2 and word.isalpha() and count * 5 >= words.total() * 4:
            return f"{name!r} is always followed by {word!r}"
    return ""


_RUN = re.compile(r"(?:[^\w\s]+[ \t]*|[ \t]+[^\w\s]*[ \t]*)")


def _is_of_machine(messages: Sequence[tuple[str, str]]) -> str:
    """The fault that texts are filled-in templates, or that the first word tells the author, as in the logs of machines.

    Messages that are equal count once: people repeat themselves, too.
    """
    total = len(messages)
    messages = [(name, text[1:-1] if len(text) > 1 and text[0] == text[-1] in "\"'" else text) for name, text in messages]
    texts = [_VARIABLE.sub("0", text) for _, text in messages]
    authors = Counter(name for name, _ in messages)
    if len(set(texts)) <= len(authors) and total > 3 * len(authors):
        return "the texts repeat more than the names, as in the log of a machine"
    messages = list(dict.fromkeys(messages))
    if len(messages) <= 2 * len(authors) and total > 8 * len(messages):
        return "the same messages repeat, as in the log of a machine"
    total = len(messages)
    texts = [_VARIABLE.sub("0", text) for _, text in messages]
    authors = Counter(name for name, _ in messages)
    if sum(_PAIR.search(text) is not None for text in texts) * 5 > total * 2:
        return "the texts list values, as in the log of a machine"
    if (
        sum(_LABELLED.match(text) is not None or LEVELS.fullmatch(text.split(" ")[0]) is not None for _, text in messages) * 2
        > total
    ):
        return "most texts begin with a level or a code, as in the log of a machine"
    if sum(len(_LETTERS.findall(text)) == 0 for text in texts) * 5 > total * 3:
        return "the texts are numbers, as in the log of a machine"
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for (name, _), text in zip(messages, texts):
        if words := _LETTERS.findall(text):
            groups[words[0].lower()][name] += 1
    repeated = [counts for counts in groups.values() if counts.total() > 1]
    count = sum(counts.total() for counts in repeated)
    told = sum(map(_entropy_bits, repeated)) / max(count, 1)
    owners: Counter[str] = Counter()
    for counts in repeated:
        owners[counts.most_common(1)[0][0]] += counts.total()
    is_divided = len(owners) > 1 and owners.most_common(2)[1][1] * 5 > count
    if is_divided and count * 2 > total and count >= 8 and told < 0.15 * _entropy_bits(authors) / total:
        return "each author has words of its own, as in the log of a machine"
    templates: dict[str, set[str]] = defaultdict(set)
    for (_, raw), text in zip(messages, texts):
        templates[text].add(raw)
    filled = sum(len(templates[text]) > 2 and " " in text for text in texts)
    if filled * 5 > total * 3 and len(templates) <= MAX_TEMPLATES:
        return "the texts differ in their numbers only, as in the log of a machine"
    return ""


_VARIABLE = re.compile(r"(?:0x)?[\da-fA-F]*\d[\w.:-]*|\"[^\"]*\"|'[^']*'")
_LABELLED = re.compile(r"[A-Z]{3,}: |(?=[a-f]*\d)[\da-f]{7,40} |\w+(?:\.\w+){2,}[ :]")
_PAIR = re.compile(r"\b\w+=[^\s=]")
_LETTERS = re.compile(r"[^\W\d_]{2,}|[\u0900-\uffff]")


def _lacks_times(reading: Reading, names: Counter[str], messages: Sequence[tuple[str, str]], lines: Sequence[str]) -> str:
    """Whether anything else than a log looks like a reading without times."""
    if sum("</" in line for line in lines) * 10 > len(lines):
        return "the lines are those of a markup language"
    if sum(bool(find_stamps(line)) for line in lines) * 3 > len(lines):
        return "it leaves the times in the text"
    if sum(any(_LONG_NUMBER.search(part) for part in said.skipped) for said in reading.said.values()) * 3 > len(messages):
        return "it leaves out numbers that may be times"
    if "<{author}>" in reading.source:
        return ""
    if _is_numbered(reading) or _is_talk(reading, messages, lines):
        return _is_of_machine(messages)
    if re.search(r"\{author\}[:.]?(?: ?[-–—:]) ?\{text\}|\{author\}(?:[.:]| (?![|»›→⇒>=]))", reading.source):
        return "without times, a play or a list looks the same"
    if not _SET_APART.search(reading.source):
        return "without times, its names are not set apart from the text"
    mentions = _mentions(messages, names)
    if mentions * 10 < len(messages) or mentions < 2 or len(names) * 2 > len(messages):
        return "it has no times, and authors do not name each other"
    return ""


def _is_talk(reading: Reading, messages: Sequence[tuple[str, str]], lines: Sequence[str]) -> bool:
    """Whether people talk: few of them say nearly all lines in no fixed order, and several ask questions."""
    names = Counter(name for name, _ in messages)
    asking = Counter(name for name, text in messages if _QUESTION.search(text))
    # Up to three lines may be a title.
    others = sum(not dated(line)[0] and not line[0].isspace() for place, line in enumerate(lines) if place not in reading.said)
    others -= min(3, min(reading.said))
    if (
        reading.is_open
        or len(messages) < 12
        or len(names) * 4 > len(messages)
        or others * 50 > len(messages)
        or min(names.values()) == 1
    ):
        return False
    if (
        len(asking) < 2
        or asking.total() * 20 < len(messages)
        or any(name.split(" ", 1)[-1] in names for name in names if " " in name)
    ):
        return False
    following: dict[str, Counter[str]] = defaultdict(Counter)
    for (one, _), (other, _) in pairwise(messages):
        following[one][other] += 1
    return len(names) == 2 or sum(map(_entropy_bits, following.values())) * 3 > _entropy_bits(names)


_QUESTION = re.compile(r"[?？؟](?!\S)")


def _is_numbered(reading: Reading) -> bool:
    """Whether a part that is left out counts the messages or the time: a number that rises, and falls in few lines."""
    for column in zip(*(reading.said[place].skipped for place in sorted(reading.said))):
        if all(map(str.isdecimal, column)):
            steps = [int(other) - int(one) for one, other in pairwise(column)]
            if sum(step > 0 for step in steps) * 4 > len(steps) and sum(step < 0 for step in steps) * 10 < len(steps):
                return True
    return False


_LONG_NUMBER = re.compile(r"(?<![\w-])\d{8,20}(?![\w-])")
_SET_APART = re.compile(
    r"(?:\[\{author\}\]|\(\{author\}\)|\\\{\{author\}\\\}|«\{author\}»|\{author\} ?(?:[|»›→⇒>]|=>)|@\{author\}:?)[:>|]? "
)


def _mentions(messages: Sequence[tuple[str, str]], names: Iterable[str]) -> int:
    """Messages that name another author."""
    spelled = {name.lstrip("@~ ").split("#")[0].strip(): name for name in names}
    spelled |= {first: name for name in names if len(first := name.split(" ")[0].strip("@~")) > 2}
    count = 0
    for author, text in messages:
        words = re.findall(r"[\w|^`\[\]\\-]+", text.lower())
        count += any(spelled.get(word, author.lower()) != author.lower() for word in words)
    return count


# --- signs of rights ------------------------------------------------------------------------------------------------------

_SIGNS = "~&@%+"
_PHONE = re.compile(r"\+\d")
_WITH_SIGN = re.compile(rf"[{_SIGNS}][^\W\d]")


def _with_signs(best: Reading) -> str:
    """The pattern, with the signs of users' rights before names as optional parts, if some names have any."""
    head, _, rest = best.source.partition("{author}")
    bare = head.rstrip(_SIGNS)
    names = {said.name for said in best.said.values()}
    signs = {name[0] for name in names if _WITH_SIGN.match(name)} | set(head[len(bare) :])
    # Names after the first lines may have others. Phone numbers have a plus sign, too.
    signs = {sign for sign in _SIGNS if signs and (sign in signs or sign != "+" or not any(map(_PHONE.match, names)))}
    if bare.endswith("<"):
        # The reader removes signs there.
        return f"{bare}{{author}}{rest}"
    if not signs or "{author}" in rest or bare.endswith("}") or best.is_open:
        return best.source
    return bare + "".join(f"{{?{sign}}}" for sign in _SIGNS if sign in signs) + "{author}" + rest


def _with_end(best: Reading, source: str) -> str:
    """The pattern, with the word that begins nearly all texts (`says:`), and the marks that end them (`”`)."""
    starts = Counter(match[0] for said in best.said.values() if (match := _WORD_FIRST.match(said.text)))
    start, count = starts.most_common(1)[0] if starts else ("", 0)
    if source.endswith("{text}") and count * 20 > len(best.said) * 19:
        source = f"{source.removesuffix('{text}')}{literal(start)}{{text}}"
    texts = [said.text for said in best.said.values() if len(said.text) > 1]
    pair, count = Counter((text[0], text[-1]) for text in texts).most_common(1)[0] if texts else (("", ""), 0)
    if source.count("{text}") and "".join(pair) in _QUOTED and count * 20 > len(best.said) * 19:
        return source.replace("{text}", "{text}".join(pair))
    ends = Counter(match[0] for said in best.said.values() if said.text and (match := _MARKS_LAST.search(said.text)))
    end, count = ends.most_common(1)[0] if ends else ("", 0)
    return source + literal(end) if source.endswith("{text}") and count * 20 > len(best.said) * 19 else source


_WORD_FIRST = re.compile(r"(?:\w{2,} ?[:=,]?|[\U00020000-\U0002a6df]) ")
_ENDINGS = {'"', "'"}
_QUOTED = ("»«", "«»", "“”", "„“", "””", "‘’", "「」", "『』", '""')
_MARKS_LAST = re.compile(r"</\w+>\Z|[\"'][)\]},;]{1,3}\Z| ?[^\w\s.?!…)]\Z")


def _with_indentation(source: str, lines: Sequence[str]) -> str:
    """The pattern, with a second space before the text if most texts would begin with one: layouts have columns."""
    layout = Layout(Pattern(source))
    texts = [line.text for text in lines if (line := layout.read(text)) and not line.kind and line.text]
    is_wider = sum(text.startswith(" ") for text in texts) * 5 > len(texts) * 3
    return source.replace(" {text}", "  {text}") if is_wider else source


def reads_better(
    ours: Iterable[tuple[str, str, str] | None], others: Iterable[tuple[str, str, str] | None], lines: Sequence[str], size: int
) -> bool:
    """Whether the messages of a pattern of some characters describe lines more briefly than another reader's messages."""
    judge = _Judge(lines, [[] for _ in lines], lines)
    one, other = (
        judge.bits(Reading("", {place: Said(*said[:2]) for place, said in enumerate(read) if said}), free=True)
        for read in (ours, others)
    )
    return one + size * CHARACTER_BITS + MARGIN_BITS * len(lines) < other

"""Evidence that a reading of lines is a chat: what makes it impossible, and what it lacks."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from itertools import pairwise

from ramify.readers import chat
from ramify.readers.chat_log.candidates import CODE, LEVELS, RUN
from ramify.readers.chat_log.layout import Layout, Line, dated, is_event
from ramify.readers.chat_log.pattern import SPACES, Pattern, literal
from ramify.readers.chat_log.scoring import Hypothesis, frame_of
from ramify.readers.chat_log.stamps import find_stamps, is_weekday, read_date, read_time

MIN_MESSAGES = 4


_STRONG = re.compile(r"<\{author\}>")
_MACHINE = re.compile(
    r"[\w./-]+\[\d+\]|\w+(?:\.\w+){2,}|\S+\.(?:py|java|c|cpp|go|js|rs|ts)(?::\d+)?|(?:\d{1,3}\.){3}\d{1,3}\S*|\S+://\S*"
)
_NO_NAMES = "i you we he she they it this that there the a an my your if when then and but so no yes not"
_PRONOUNS = frozenset(_NO_NAMES.split())


def impossible(hypothesis: Hypothesis, lines: Sequence[str]) -> str:
    """Why a reading of lines cannot be right; "" if it can."""
    messages, headings = _authored(hypothesis), hypothesis.layout.is_heading
    texts = _texts(hypothesis, lines)
    authors = Counter((line.author or "").lower() for line in messages)
    total = len(messages)
    what = f"the pattern {hypothesis.source!r} fits best, but"
    if total < MIN_MESSAGES:
        return f"{what} only {total} lines are messages, fewer than {MIN_MESSAGES}"
    heads = sum(line is not None for line in hypothesis.read)
    if not headings and total * (8 if hypothesis.layout.has_stamp else 2) < len(lines):
        return f"{what} it fits only {total} of the first {len(lines)} lines"
    if len(authors) < 2:
        return f"{what} all messages would be by {next(iter(authors))!r}"
    if len(authors) > 0.8 * total:
        return f"{what} authors do not repeat: {len(authors)} names in {total} messages"
    shapes = [name for name in authors.elements() if not _is_name(name)]
    if len(shapes) * 10 > total or re.search(r"#\{author\}(?!#)", hypothesis.source):
        return f"{what} {(shapes or [*authors])[0]!r} is not a name"
    is_strong = _STRONG.search(hypothesis.source) is not None
    machines = sum(n for name, n in authors.items() if (not is_strong and _MACHINE.search(name)) or LEVELS.fullmatch(name))
    if machines * 5 > total:
        return f"{what} its authors are programs ({next(iter(authors))!r}), as in the log of a machine"
    codes = sum(CODE.fullmatch(name) is not None for name in authors)
    if codes * 5 > len(authors) * 3 and len(authors) * 2 > total:
        return f"{what} {next(iter(authors))!r} is a number or a code, and no name"
    if all(is_weekday(name) for name in authors):
        return f"{what} {next(iter(authors))!r} is a day, and no name"
    spelled = list(dict.fromkeys(line.author or "" for line in messages))
    if part := _common_word(spelled):
        return f"{what} most names hold {part!r}"
    if left := _left_over(list(authors), texts) or _cut(hypothesis, messages):
        return f"{what} {left}"
    if reason := _missed(hypothesis, messages, lines):
        return f"{what} {reason}"
    if reason := _disorder(hypothesis):
        return f"{what} {reason}"
    left = sum(read is None and _begins_with_a_stamp(line) for line, read in zip(lines, hypothesis.read, strict=True))
    if hypothesis.layout.has_stamp and left * 10 > len(lines):
        return f"{what} {left} lines that begin with a date or time do not fit"
    frames = [
        frame_of(line, read) for line, read in zip(lines, hypothesis.read, strict=True) if read and read.kind != chat.SYSTEM
    ]
    if not hypothesis.is_known and sum(bool(find_stamps(frame) or _LIKE_A_STAMP.search(frame)) for frame in frames) * 3 > total:
        return f"{what} it leaves out dates or times"
    if not hypothesis.layout.has_stamp and sum(_LONG_NUMBER.search(frame) is not None for frame in frames) * 3 > total:
        return f"{what} it leaves out numbers that may be times"
    if not hypothesis.layout.has_stamp and sum(bool(find_stamps(line)) for line in lines) * 3 > len(lines):
        return f"{what} it leaves the times in the text"
    if headings and heads * 2 > len(lines) * 1.4:
        return f"{what} there is no text under most headings"
    return ""


def doubtful(hypothesis: Hypothesis, lines: Sequence[str]) -> str:
    """The evidence that a reading of lines lacks; "" if it lacks none."""
    messages, texts = _authored(hypothesis), _texts(hypothesis, lines)
    authors = Counter((line.author or "").lower() for line in messages)
    total = len(messages)
    what = f"the pattern {hypothesis.source!r} fits best, but"
    heads = sum(line is not None for line in hypothesis.read)
    known = sum(line is not None and (line.kind != chat.SYSTEM or line.author is not None) for line in hypothesis.read)
    if heads - known > total:
        return f"{what} it finds an author in only {total} of {heads} lines with its beginning"
    if len(set(texts)) <= len(authors) and total > 3 * len(authors):
        return f"{what} the texts repeat more than the names"
    if hypothesis.layout.has_stamp:
        return _is_spoken(hypothesis, authors, messages, texts, lines, what)
    return _is_spoken_without_times(hypothesis, authors, messages, texts, lines, what)


def _authored(hypothesis: Hypothesis) -> list[Line]:
    return [line for _, line in hypothesis.messages if line.author is not None]


_SEPARATOR = re.compile(r"[^\w\s]{6,}")


def _texts(hypothesis: Hypothesis, lines: Sequence[str]) -> list[str]:
    """The texts of all messages. Text on the first line keeps what precedes it."""
    counts = Counter(line for line in lines if _SEPARATOR.fullmatch(line))
    texts: list[list[str]] = []
    is_open = False
    for line, read in zip(lines, hypothesis.read, strict=True):
        if read is not None:
            is_open = read.kind != chat.SYSTEM and read.author is not None
            if is_open:
                texts.append([read.text])
        elif is_open and counts[line] < 3:
            texts[-1].append(line)
    return [text[0] if len(text) == 1 else "\n".join(text[not text[0] :]).lstrip("" if text[0] else None) for text in texts]


def _is_name(name: str) -> bool:
    if not any(character.isalpha() for character in name) and not re.fullmatch(r"\+?[\d\u2011 ()-]{7,}", name):
        return False
    if (
        name.startswith(("http:", "https:", "/", "\\"))
        or ";" in name
        or re.search(r"#(?!\d{4}\Z)", name)
        or re.search(r",\S|[=\t\"]|::|\w{4}\.\s|[-–—|>:»/\\] |^\W*\d+:\d", name)
    ):
        return False
    if re.fullmatch(r"\d{1,2} ?[ap]\.?m\.?", name):
        return False
    if name[-1] in ":>,?!" or (name[-1] == "-" and " " in name) or (name[0] in "<(" and len(name) > 1):
        return False
    if any(character.isdigit() for character in name) and find_stamps(name):
        return False
    if " " in name and re.search(r"[\[\]{}|^`\\]", name):
        return False
    pairs = ("()", "<>", "«»") if not re.search(r"[\[\]|^`\\]", name) else ("()", "<>")
    return all(name.count(one) == name.count(other) for one, other in pairs) and not is_event(name)


_LONG_NUMBER = re.compile(r"(?<![\w-])\d{8,20}(?![\w-])")
_LIKE_A_STAMP = re.compile(r"(?<![\w.])\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?![\w.])|(?<![\w:])\d{1,2}:\d\d(?!\w)")


def _cut(hypothesis: Hypothesis, messages: Sequence[Line]) -> str:
    """Whether names that only a space parts from the text are longer than that; "" if they are not."""
    if not hypothesis.is_open:
        return ""
    firsts: dict[str, Counter[str]] = defaultdict(Counter)
    runs: Counter[str] = Counter()
    for message in messages:
        firsts[message.author or ""][message.text.split(" ")[0]] += 1
        begins = f"{message.author} {message.text}"[:40]
        runs.update({run.strip() for run in RUN.findall(begins) if run.strip(" #")})
    run, count = runs.most_common(1)[0] if runs else ("", 0)
    if count * 5 >= len(messages) * 4:
        return f"names seem to end with {run!r}"
    for author, words in firsts.items():
        word, count = words.most_common(1)[0]
        if count > 2 and word.isalpha() and count * 5 >= words.total() * 4:
            return f"{author!r} is always followed by {word!r}"
    return ""


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
    starts = Counter(match[0] for text in texts if (match := _KEY.match(text)))
    if starts and starts.most_common(1)[0][1] * 5 >= len(texts) * 4:
        return f"each text begins with {starts.most_common(1)[0][0]!r}"
    if len(authors) > 1 and (part := _shared(authors)):
        return f"each name holds {part!r}"
    if sum(_AROUND_NAMES.fullmatch(name) is not None for name in authors) * 2 > len(authors):
        return f"{authors[0]!r} is more than a name"
    return ""


def _shared(names: Sequence[str]) -> str:
    """The level of importance, the marks or the host that all names share, and that belong to the pattern; "" if none."""
    start = _FIRST_OF_NAME.match(names[0])
    if start and start[2] and all(name.startswith(start[0]) for name in names):
        return start[0]
    levels = sum((first := _FIRST_OF_NAME.match(name)) is not None and bool(LEVELS.fullmatch(first[1])) for name in names)
    if start and levels * 3 > len(names) * 2:
        return start[0]
    end = None if "!" in names[0] else _LAST_OF_NAME.search(names[0])
    return end[0] if end and all(name.endswith(end[0]) for name in names) else ""


def _common_word(names: Sequence[str]) -> str:
    """The word in lower case or the number with which most names begin or end, and that is part of no name; "" if none."""
    rows = [name.split(" ") for name in names if " " in name]
    for place in (0, -1):
        words = Counter(row[place] for row in rows if row[place].islower())
        word, count = words.most_common(1)[0] if words else ("", 0)
        if count > 1 and count * 2 > len(names):
            return word
    days = [row[-1] for row in rows if is_weekday(row[-1])]
    if len(days) * 2 > len(names):
        return days[0]
    numbers = [row[0] for row in rows if row[0].isdecimal()]
    if numbers and (len(numbers) > 2 or len(numbers) * 2 > len(names)):
        return numbers[0]
    numbered: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row[-1].isdecimal():
            numbered[" ".join(row[:-1])].append(row[-1])
    several = [suffixes for suffixes in numbered.values() if len(suffixes) > 1]
    # Guest 1 and Guest 2 are names.
    return several[0][0] if len(several) > 1 and sum(map(len, several)) * 2 > len(names) else ""


_KEY = re.compile(r"\w+(?:=|: ?)")
_FIRST_OF_NAME = re.compile(r"(\w+)(?: |([^\w\s.'’_-]+ ?))(?=.)")
_LAST_OF_NAME = re.compile(r"(?: \(|[@/])[\w.-]+\)?\Z")


def _missed(hypothesis: Hypothesis, messages: Sequence[Line], lines: Sequence[str]) -> str:
    """The fault that lines of the channel look like messages, or texts like those with a further column; "" if it is none."""
    gap = _AFTER_AUTHOR.search(hypothesis.source)
    delimiter = re.sub(r"\\(.)", lambda match: "\t" if match[1] == "t" else match[1], gap[1]) if gap else ""
    marks = delimiter.strip(SPACES)
    names = {line.author or "" for line in messages}
    if marks and len(names) > 1:
        said = re.compile(rf"(?:^|[\s\[(<])(?:{'|'.join(map(re.escape, names))}){re.escape(marks)}(?:\s|$)")
        for line, read in zip(lines, hypothesis.read, strict=True):
            if read is not None and read.kind == chat.SYSTEM and (read.date or read.time) and said.search(read.text):
                return f"it leaves out messages: {line[:80]!r}"
    if reason := _other_words(hypothesis, marks) or _other_marks(hypothesis, names, lines) or _adjoining(hypothesis):
        return reason
    texts = [line.text for line in messages if line.text]
    if "\t" in delimiter and sum("\t" in text for text in texts) * 10 > len(texts) * 9:
        return "it leaves a column in the text"
    receivers = [max((name for name in names if text.startswith(name)), key=len, default="") for text in texts]
    if texts and sum(map(bool, receivers)) * 20 > len(texts) * 19:
        return "nearly all texts begin with the name of an author"
    return ""


def _other_words(hypothesis: Hypothesis, marks: str) -> str:
    """The fault that lines of the channel have the form of messages, by one author, but for the words before authors."""
    match = _BEFORE_AUTHOR.search(hypothesis.source)
    if match is None or not marks:
        return ""
    form = re.sub(r"(?:\w+|\s)+", lambda part: r"[\w ]+" if part[0].strip() else r"\s*", _escaped(match[1].strip()))
    other = re.compile(rf"{form}\s*([^\s:|<>\[\]]{{1,40}}){re.escape(marks)}(?:\s+(.*)|$)")
    told = [read for read in hypothesis.read if read and read.kind == chat.SYSTEM]
    said: dict[str, set[str]] = defaultdict(set)
    for read in told:
        if (read.date or read.time) and (match := other.match(read.text)):
            # Reports of a program differ in their numbers.
            said[match[1]].add(re.sub(r"\d+", "0", match[2] or ""))
    author = max(said, key=lambda name: len(said[name]), default="")
    return f"it leaves out messages by {author!r}" if author and len(said[author]) > 1 else ""


def _other_marks(hypothesis: Hypothesis, names: Set[str], lines: Sequence[str]) -> str:
    """The fault that further lines have the form of messages but for the marks with which these begin (→ and ←)."""
    match = _MARKS_FIRST.match(hypothesis.source)
    if match is None:
        return ""
    rest = [line for line, read in zip(lines, hypothesis.read, strict=True) if read is None or read.kind == chat.SYSTEM]
    marks = Counter(mark[1] for line in rest if (mark := _MARKS_FIRST.match(line)))
    for mark, _ in marks.most_common(5):
        layout = Layout(Pattern(literal(mark) + hypothesis.source[match.end(1) :]))
        said = Counter(read.author or "" for line in rest if (read := layout.read(line)) and read.kind != chat.SYSTEM)
        for author, count in said.items():
            if author in names or count > 1:
                return f"it leaves out messages by {author!r}"
    return ""


_MARKS_FIRST = re.compile(r"([^\w\s{}\\]{1,3})[ \t]")


def _adjoining(hypothesis: Hypothesis) -> str:
    """The fault that a heading follows a heading, so that it may be a text that ends with a time."""
    if not hypothesis.layout.is_heading or not _OPEN_HEADING.search(hypothesis.source):
        return ""
    authors = Counter(line.author for _, line in hypothesis.messages)
    for one, other in pairwise(hypothesis.read):
        if one and other and one.author and other.author and not one.kind and not other.kind and authors[other.author] == 1:
            return f"a text ends with a time: {other.author!r}"
    return ""


_OPEN_HEADING = re.compile(r"\{author\} \{(?:date|time)\}")


def _escaped(text: str) -> str:
    """Marks as an expression; words and spaces are left as they are."""
    return re.sub(r"[^\w\s]", lambda mark: re.escape(mark[0]), text)


_BEFORE_AUTHOR = re.compile(r"\{(?:date|time)\}[^\w\s{}\\]? ([^{}\\]*\w[^{}\\]*)\{author\}")
_AFTER_AUTHOR = re.compile(r"\{author\}((?:[^{}\\]|\\.)+)\{text\}")


def _begins_with_a_stamp(line: str) -> bool:
    stamps = find_stamps(line)
    return bool(stamps) and stamps[0].start <= 3 and dated(line)[0] is None


def _disorder(hypothesis: Hypothesis) -> str:
    """Whether more than a tenth of the times go back by less than half a day."""
    times = []
    unread = 0
    for line in hypothesis.read:
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
    if unread * 20 > len(hypothesis.read):
        return f"{unread} dates or times do not exist"
    steps = [(one[0] != other[0], one[1] <= other[1]) for one, other in pairwise(times)]
    if len(steps) > 6 and sum(map(all, steps)) * 10 > len(steps) * 8:
        return "its days change with each line, but its hours do not"
    if back * 10 > len(times) + 10:
        return f"its times go back {back} times"
    seconds = {second for _, second in times}
    return "its times are those of a schedule" if len(seconds) > 5 and all(second % 900 == 0 for second in seconds) else ""


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
    hypothesis: Hypothesis,
    authors: Counter[str],
    messages: Sequence[Line],
    texts: Sequence[str],
    lines: Sequence[str],
    what: str,
) -> str:
    """Whether people speak to each other. Names in angle brackets need no further evidence."""
    if _STRONG.search(hypothesis.source):
        return ""
    total = len(messages)
    talk = sum(_TALK.search(text) is not None for text in texts)
    if _tells_time(messages):
        # Without times, results of matches name others, too.
        talk += _mentions(messages, texts, authors)
    is_weak = hypothesis.is_open
    most = 0.6 if "@{author}" in hypothesis.source else 1 / 3
    if is_weak and (total < 8 or len(authors) > most * total or any(name in _PRONOUNS for name in authors)):
        return f"{what} its names are not set apart from the text"
    needed = 0.3 if is_weak else 0.2 if LEVELS.search(hypothesis.source) else 0.1
    if "{skip}" in hypothesis.source and any(_has_level(line, read) for line, read in zip(lines, hypothesis.read, strict=True)):
        needed = max(needed, 0.2)
    if talk < max(2, needed * total):
        return f"{what} hardly anybody speaks to anybody, as in the log of a machine"
    return ""


def _is_spoken_without_times(
    hypothesis: Hypothesis,
    authors: Counter[str],
    messages: Sequence[Line],
    texts: Sequence[str],
    lines: Sequence[str],
    what: str,
) -> str:
    """Whether people speak to each other where no times show that this is a log."""
    if _STRONG.search(hypothesis.source):
        has_markup = sum("</" in line for line in lines) * 10 > len(lines)
        return f"{what} the lines are those of a markup language" if has_markup else ""
    if re.search(r"\{author\}[:.]?(?: ?[-–—:]) ?\{text\}|\{author\}(?:[.:]| (?![|»›→⇒>=]))", hypothesis.source):
        return f"{what} without times, a play or a list looks the same"
    if not _SET_APART.search(hypothesis.source):
        return f"{what} without times, its names are not set apart from the text"
    mentions = _mentions(messages, texts, authors)
    if mentions * 10 < len(messages) or mentions < 2 or len(authors) * 2 > len(messages):
        return f"{what} it has no times, and authors do not name each other"
    return ""


_SET_APART = re.compile(
    r"(?:\[\{author\}\]|\(\{author\}\)|\\\{\{author\}\\\}|«\{author\}»|\{author\} ?(?:[|»›→⇒>]|=>)|@\{author\}:?)[:>|]? "
)


def _tells_time(messages: Sequence[Line]) -> bool:
    """Whether the messages have times of day."""
    first = messages[0]
    date = read_date(first.date, "day") if first.date else None
    return first.time is not None or (date is not None and date.second is not None)


def _has_level(line: str, read: Line | None) -> bool:
    return read is not None and LEVELS.search(frame_of(line, read)) is not None


def _mentions(messages: Sequence[Line], texts: Sequence[str], authors: Counter[str]) -> int:
    """Messages that name another author."""
    names = {name.lstrip("@~ ").split("#")[0].strip(): name for name in authors}
    names |= {first: name for name in authors if len(first := name.split(" ")[0].strip("@~")) > 2}
    count = 0
    for message, text in zip(messages, texts):
        words = re.findall(r"[\w|^`\[\]\\-]+", text.lower())
        author = (message.author or "").lower()
        count += any(names.get(word, author) != author for word in words)
    return count


_CUE = re.compile(r"\s*[\d:.,]{5,} --> [\d:.,]{5,}")


def is_no_text(sample: Sequence[str]) -> str:
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

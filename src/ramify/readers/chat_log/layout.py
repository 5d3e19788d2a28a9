"""Reading of single lines by a pattern: messages, actions, and lines of the channel itself."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ramify.readers import chat
from ramify.readers.chat_log.pattern import SPACES, Pattern, Template
from ramify.readers.dates import find_stamps, read_date
from ramify.readers.events import (
    FORMAL,
    MARKED,
    OF_SERVER,
    PRONOUNS,
    dated,
    event_author,
    is_event,
    is_event_line,
    plain_event,
    system_author,
)
from ramify.readers.irc import dialects
from ramify.readers.irc.dialects import DIALECTS

NOTICE = "notice"

_KINDS = {dialects.ACTION: chat.ACTION, dialects.NOTICE: NOTICE}
_WITHOUT_TIME = DIALECTS["plain"].line
"""A line as IRC clients write it, after its time."""

_ACTED = re.compile(r"(?:\*{2,3}(?=\w)|• (?=\S+:))(\S{1,64}?):? (.+)")
_ONLY_MARKS = re.compile("[^\\w\U0001f000-\U0001faff\u2764]{1,8}")
"""Names of emoji are names."""
_SYSTEM_AUTHORS = frozenset({"system", "server"})


class Line(NamedTuple):
    """A line that is not part of the message above it."""

    text: str
    author: str | None
    kind: str
    date: str | None
    time: str | None


class _Form:
    """A form of lines, with what reading needs to know of it.

    `ends_with_text`: no time follows it. `has_modes`: the name may follow a sign of the user's rights, as in `<@ann>`.
    `is_open`: only a space parts the name from the text, so that an event looks like a message.
    """

    def __init__(self, template: Template) -> None:
        self.template = template
        self.has_date, self.has_time = "date" in template.names, "time" in template.names
        self.has_author, self.has_text = "author" in template.names, "text" in template.names
        self.ends_with_text = template.source.endswith("{text}")
        self.is_quoted = '"{author}"' in template.source
        self.has_modes = "<{author}" in template.source
        self.is_open = re.search(r"\{author\} *\{text\}", template.source) is not None


class Layout:
    """Reads the lines of a log by a pattern."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        names = pattern.names
        self.has_date, self.has_time = "date" in names, "time" in names
        self.has_stamp = self.has_date or self.has_time
        self.is_heading = any(template.is_heading for template in pattern.templates)
        self.has_open_heads = self.is_heading and re.search(r"\{author\},? \{(?:date|time)\}", pattern.source) is not None
        """Whether a text below a head looks like a head if it ends with a time."""
        self._forms = [_Form(template) for template in pattern.templates]
        self.without_hosts = False
        """Whether names are no accounts of the form user@host."""
        self.known: set[str] | None = None
        """The authors, if messages have further lines: lines without marks then tell of the channel only if one begins them."""
        self.told: frozenset[str] = frozenset()
        """The words about authors in lines of the channel without marks."""
        self.words_before: int | None = None
        """Most words before an author, where some of them are left out; None if there may be any number."""
        self.first_word = ""
        """The form of the number or code with which each message begins, with zeros for its digits."""
        self._prefix = _prefix(pattern.source)
        self._is_prefix_spelled = _SPELLED.search(self._prefix) is not None
        self._has_colons = False
        """Whether most times of messages have a colon."""
        self.is_closed = all(map(_CLOSED.search, pattern.source.split("\n")))
        """Whether marks end texts, so that they have no further lines."""
        self._doubled = next((quote for quote in ('"', "'") if f"{quote}{{text}}{quote}" in pattern.source), "")
        """The quotation mark around texts, which is doubled inside them."""
        self._may_quote = pattern.source.endswith((";{text}", ",{text}"))
        """Whether texts may be quoted as in a table."""
        self.quotes_more = pattern.source.endswith("\\t{text}")
        """Whether quotation marks may stand around a text of several lines, as LINE writes it."""
        self.is_folded = any("\\n" in template.source for template in pattern.templates)
        """Whether a head takes several lines."""
        self._has_marks = re.match(r"\{time\} *[^\w\s{\\]", pattern.source) is not None
        """Whether lines begin with a time and marks that no text would have after a time."""
        self._heads = [head for template in pattern.templates for head in template.heads]

    def read(self, line: str) -> Line | None:
        """The message, action or line of the channel that begins with this line; None if none does."""
        for form in self._forms:
            match = form.template.line.fullmatch(line)
            if match is None:
                continue
            date = match["date"] if form.has_date else None
            time = match["time"] if form.has_time else None
            if time and time[0] in SPACES:
                # Hours with one digit are padded.
                time = time[1:]
            if self._has_colons and time and ":" not in time:
                # A number is no time if times have colons.
                continue
            if not form.has_author:
                return Line(match["system"], system_author(match["system"]), chat.SYSTEM, date, time)
            author = match["author"]
            if author is None:
                continue
            text = (match["text"] or "") if form.has_text else ""
            if self._doubled:
                text = text.replace(2 * self._doubled, self._doubled)
            elif self._may_quote and len(text) > 1 and text[0] == text[-1] == '"':
                text = text[1:-1].replace('""', '"')
            if not form.ends_with_text:
                text = text.rstrip(SPACES)
            name = _name(author, form.has_modes, is_quoted=form.is_quoted)
            if name is not None and self.has_open_heads and find_stamps(name):
                # A title: February 6, 2024, 9:00 AM
                name = None
            if name is not None and self.without_hosts and is_account(name):
                # The account of a user who joined, in brackets as names are.
                name = None
            if author.startswith("*") and line.endswith("*") and author[1:2].isalnum():
                # *ann waves to all: hello*
                name = None
            if self.words_before is not None and len(line[: match.start("author")].split()) > self.words_before:
                # Quotation marks or brackets in a line of the channel.
                name = None
            if name is not None and not (form.is_open and is_event_line(f"{author} {text}")):
                if self.known is not None and len(self.known) < _MAX_KNOWN:
                    self.known.add(name)
                return Line(text, name, "", date, time)
            text = f"{author.strip(SPACES)} {text}"
            return self._of_the_channel(line, date, time) or Line(text, system_author(text), chat.SYSTEM, date, time)
        return self._of_the_channel(line, None, None)

    def _of_the_channel(self, line: str, date: str | None, time: str | None) -> Line | None:
        for head in self._heads:
            if match := head.match(line):
                groups = match.groupdict()
                date, time = groups.get("date") or date, groups.get("time") or time
                if self._has_colons and time and ":" not in time:
                    # A number at the beginning of a line is no time if times have colons.
                    continue
                if date and any(map(str.isalpha, date)) and not (read_date(date, "day") or read_date(date, "month")):
                    # A word and a number.
                    continue
                rest = groups.get("rest") or ""
                if self._has_marks and line[: len(line) - len(rest)].strip(SPACES) == time and not _is_told(rest):
                    # A further line of a message may begin with a time, too.
                    continue
                if not self.has_date and (day := dated(rest))[0]:
                    # A line that names the day, with a time of its own.
                    return Line(rest, None, chat.SYSTEM, day[0], day[1] or time)
                return _without_author(rest, date, time)
        if self.first_word and (match := _FIRST_WORD.match(line)) and _form(match[1]) == self.first_word:
            return Line(match[2], event_author(match[2]), chat.SYSTEM, None, None)
        if self._prefix and line.startswith(self._prefix):
            # Each message begins with it, and no further line of one does.
            rest = line[len(self._prefix) :]
            if self._is_prefix_spelled or MARKED.fullmatch(rest) or event_author(rest):
                return Line(rest, event_author(rest), chat.SYSTEM, None, None) if rest.strip(SPACES) else None
        if is_event_line(line) and (self.known is None or self._is_of_channel(line, self.known)):
            return Line(line, event_author(line), chat.SYSTEM, None, None)
        return None

    def learn_times(self, lines: Sequence[str]) -> None:
        """Learn whether times have colons. A year and other numbers are then none."""
        matches = (form.template.line.fullmatch(line) for form in self._forms if form.has_time for line in lines)
        times = Counter(":" in match["time"] for match in matches if match and match["time"])
        self._has_colons = times[True] > times[False]

    def learn_words(self, lines: Iterable[str]) -> None:
        """Learn how many words precede authors, if some of them are left out."""
        if len(self._forms) != 1 or "{skip}" not in self._forms[0].template.source.partition("{author}")[0]:
            return
        matches = list(filter(None, map(self._forms[0].template.line.fullmatch, lines)))
        if _SKIPS_FIRST.match(self.pattern.source):
            codes = Counter(_form(match.string.split(" ")[0]) for match in matches)
            code, count = codes.most_common(1)[0] if codes else ("", 0)
            if len(code) > 3 and "0" in code and count * 10 > len(matches) * 9:
                self.first_word = code
        counts = Counter(len(match.string[: match.start("author")].split()) for match in matches if match["author"])
        if counts:
            most, count = counts.most_common(1)[0]
            self.words_before = most + 2 if count * 10 > counts.total() * 9 else None

    def _is_of_channel(self, line: str, known: set[str]) -> bool:
        """Whether a line that reads like one of the channel is no further line of a message."""
        told = plain_event(line)
        if told is None:
            return True
        who, rest = told
        return who in known or (
            " " not in who and who.lower() not in PRONOUNS and (rest in self.told or FORMAL.match(rest) is not None)
        )


def _form(word: str) -> str:
    """A word with zeros for its numbers. Numbers and codes in hexadecimal digits keep their length."""
    if _HEXADECIMAL.fullmatch(word):
        return re.sub(r"[\da-f]", "0", word)
    return re.sub(r"\d", "0", word) if word.isdecimal() else re.sub(r"\d+", "0", word)


def _prefix(source: str) -> str:
    """The marks and words with which each message begins, such as the name of a channel."""
    match = _PREFIX.match(source)
    return match[0] if match and re.search(r"[^\w\s]", match[0]) else ""


_PREFIX = re.compile(r"[^{}\\\n]*[ \t](?=[^{}\\ \t]*\{)")
_SPELLED = re.compile(r"\w\w")
_CLOSED = re.compile(r"\{text\}[\"'”»」』]|\{system\}\Z")
_FIRST_WORD = re.compile(r"(\S+)[ \t]+(\S.*)")
_HEXADECIMAL = re.compile(r"\W?[\da-f]{6,40}\W?")
_SKIPS_FIRST = re.compile(r"[^\w\s{}\\]?\{skip\}[^\w\s{}\\]? ")
_MAX_KNOWN = 1 << 16


def _is_told(text: str) -> bool:
    """Whether text after a time tells of the channel: after marks, or by what a user did."""
    return not text[:1].isalnum() or event_author(text) is not None or OF_SERVER.match(text) is not None


def _without_author(rest: str, date: str | None, time: str | None) -> Line:
    """The text after a time that no author follows."""
    if match := _ACTED.fullmatch(rest):
        return Line(match[2], match[1], chat.ACTION, date, time)
    if match := _WITHOUT_TIME.fullmatch(rest):
        group = match.lastindex or 0
        if group in _KINDS and any(map(str.isalnum, match[group - 1])):
            return Line(match[group], match[group - 1], _KINDS[group], date, time)
    return Line(rest, event_author(rest), chat.SYSTEM, date, time)


_TAGGED = re.compile(r"\[[^\W\d_]{3,}\] ")
_QUOTES = ("“”", "«»", "「」", "『』")
_MASK = re.compile(r"([^\s!@]+)!~?[^\s!@]+(?:@\S+)?")
"""A user of IRC with account and host."""
_ACCOUNT = re.compile(r"~?[^\s@]+@[!-?A-~]+")
_PHONE = re.compile(r"\+\d[\d\u2011 ()-]{6,}")


def is_account(name: str) -> bool:
    """Whether a name has the form user@host."""
    return _ACCOUNT.fullmatch(name) is not None


@lru_cache(maxsize=1 << 14)
def _name(author: str, has_modes: bool, *, is_quoted: bool) -> str | None:
    """A name as it is used in messages; None if a line of the channel stands where names stand."""
    name = author.strip(SPACES)
    if has_modes and len(name) > 1 and not _PHONE.fullmatch(name):
        name = name.lstrip("@+%&~ ") or name
    if name.startswith("~") and len(name) > 2 and name[1] in SPACES and name[-1] != "~":
        name = name[1:].strip(SPACES)
    if not name or _ONLY_MARKS.fullmatch(name) or name.strip("*[]()<>").lower() in _SYSTEM_AUTHORS:
        return None
    if (
        name.startswith(("#", "***"))
        or (_TAGGED.match(name) and not is_quoted)
        or any(name.count(one) != name.count(other) for one, other in _QUOTES)
    ):
        return None
    if mask := _MASK.fullmatch(name):
        return mask[1]
    if " " in name and (is_event(name) or ": " in name or name.endswith((" -", " --"))):
        return None
    return name

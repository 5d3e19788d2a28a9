"""Lines of the channel that have no date or time and no known form, told from further lines of messages.

`learn` looks at the first lines of a log that begin no message. What clients write about the channel repeats: the same marks or
tag stand before it (`·· bob came in`, `[bridge] link up`), a known author begins it, or it looks like a line above the first
message (`Session Start: …`). Further lines of messages have nothing of this, or an indentation that lines of the channel lack.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ramify.readers import chat
from ramify.readers.chat_log.fold import margin_of
from ramify.readers.chat_log.layout import Layout, is_account
from ramify.readers.dates import find_stamps
from ramify.readers.events import LEAVES, TOPIC, event_author, is_about_session, plain_event, tells_in_brackets

MAX_LINE = 400
_MAX_NAME_WORDS = 5
_TAG = re.compile(r"\[[^\W\d_]{3,}\]:?[ \t]+")
_LEAD = re.compile(r"(?:[^\w\s]+(?:[ \t]+[^\w\s]{1,4}(?=[ \t]))?[ \t]*)(?=\S)")
_BULLETS = frozenset("*-+•·#")
"""Single marks that people write before points of a list, too."""
_QUOTES = frozenset(">\"'“”„«»‘’([{<¿¡:.,;!?")
"""Marks with which text begins."""
_SINGLE_QUOTES = frozenset("@/&$%")
"""Marks with which text begins if they stand alone."""
_BAR = re.compile(r"(?:[ \t]*[|│┃¦])+[ \t]")
_QUOTED = re.compile("> ")
_SEPARATOR = re.compile(r"[^\w\s]{6,}")
_DIGITS = re.compile(r"\d+")


class _Parts(NamedTuple):
    """The parts of a line: marks or a tag, a known author (or ""), and the rest. `framed`: the marks end it, too."""

    lead: str
    who: str
    rest: str
    framed: bool


@dataclass
class SystemLines:
    """The forms of a log's lines of the channel."""

    names: frozenset[str] = frozenset()
    regulars: frozenset[str] = frozenset()
    """The names of authors with more than one of the first messages."""
    leads: dict[str, bool] = field(default_factory=dict)
    """Marks and tags before these lines, and whether the marks must also end them."""
    tails: set[str] = field(default_factory=set)
    openings: set[tuple[str, str]] = field(default_factory=set)
    frames: set[str] = field(default_factory=set)
    """Marks around lines, some of which tell of a user: `-- bob joined --`."""
    margin: str = ""
    """The margin with a bar before all further lines of messages."""
    separators: set[str] = field(default_factory=set)
    indented: bool = False
    """Further lines of messages are indented, and lines of the channel are not."""
    spaced: bool = False
    """Blank lines part the messages."""

    def fits(self, line: str, *, after_blank: bool = False) -> bool:
        """Whether a line that begins no message is a line of the channel."""
        line = line[:MAX_LINE]
        if line in self.separators or is_about_session(line):
            return True
        if line[0].isspace():
            return False
        if tells_in_brackets(line, self.names):
            return True
        if self.indented or (_opening(line) in self.openings and find_stamps(line)):
            return True
        parts = self._parts(line)
        if parts.framed and (parts.lead in self.frames or (self.spaced and after_blank)):
            return True
        if parts.lead in self.leads:
            if self.leads[parts.lead] and not parts.framed:
                return False
            return parts.lead.strip() not in _BULLETS or _tells(parts)
        if not parts.lead:
            if any(_ASIAN.match(tail) and line.endswith(tail) for tail in self.tails):
                return True
            return bool(parts.who) and (_masked(parts.rest, self.names) in self.tails or LEAVES.match(parts.rest) is not None)
        if parts.framed:
            return _tells(parts)
        return self.spaced and after_blank and _tells(parts)

    def _parts(self, line: str) -> _Parts:
        return _split(line, self.names)


def learn(lines: Sequence[str], layout: Layout) -> SystemLines:
    """Learn the forms of the lines of the channel from a log's first lines, with its blank lines.

    It also sets whether the layout takes `user@host` for a name.
    """
    seen = _Seen()
    for line in lines:
        seen.add(line[:MAX_LINE], layout)
    _teach(layout, seen, lines)
    learnt = SystemLines(frozenset(seen.names), frozenset(name for name, count in seen.names.items() if count > 1))
    learnt.separators = seen.separators
    learnt.spaced = seen.messages > 3 and seen.after_blank >= 0.8 * (seen.messages - 1)
    split = [_split(line, learnt.names) for line in [*seen.further, *seen.events]]
    learnt.frames = {parts.lead for parts in split if parts.framed and _tells(parts)}
    further = [line for line in seen.further if line not in seen.separators]
    margins = [match[0] for line in further if (match := _BAR.match(line) or _QUOTED.match(line))]
    is_one = len(margins) > 2 and len(set(margins)) == 1
    # A text may begin a line with a mark, too.
    if is_one and (margins[0][0].isspace() or (seen.are_below and len(margins) == len(further))):
        learnt.margin = margins[0]
    if layout.is_folded and len(indents := {margin_of(line) for line in further}) == 1:
        learnt.margin = indents.pop()
    if layout.is_heading:
        # The texts stand among the further lines.
        return learnt
    learnt.openings = {_opening(line) for line in seen.top if find_stamps(line)} - {("", "")}
    learnt.indented = _are_indented(seen.runs)
    groups = _groups(seen, learnt)
    learnt.tails = _tails(groups.pop("", []), learnt.names)
    learnt.leads = _leads(groups, learnt.names)
    return learnt


@dataclass
class _Seen:
    """The first lines of a log, by what they may be."""

    runs: list[list[str]] = field(default_factory=lambda: [[]])
    """The lines behind each message that begin none."""
    top: list[str] = field(default_factory=list)
    """The lines above the first message that begin none."""
    names: Counter[str] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)
    """Lines of the channel of known forms, without a date or a time."""
    messages: int = 0
    after_blank: int = 0
    """The number of messages below a blank line."""
    before_heads: Counter[str] = field(default_factory=Counter)
    """A line -> how often it stands above the beginning of a message."""
    are_below: bool = True
    """Whether all texts stand below the heads of their messages."""
    _blank: bool = False
    _last: str = ""

    @property
    def further(self) -> list[str]:
        """The lines below the first message that begin none."""
        return [line for run in self.runs for line in run]

    @property
    def separators(self) -> set[str]:
        """Lines of marks above the first message, or nearly always above a message; any lines that end most messages."""
        counts = Counter(self.further) + Counter(self.top)
        marks = {line for line in counts if _SEPARATOR.fullmatch(line)}
        closing = {line for line, count in counts.items() if count > 2 and self.before_heads[line] >= count - 1}
        return marks & (closing | set(self.top)) | {line for line in closing if counts[line] * 5 > self.messages * 4}

    def add(self, line: str, layout: Layout) -> None:
        if not line or line.isspace():
            self._blank = True
            return
        parsed = layout.read(line)
        if parsed is not None and parsed.kind == chat.SYSTEM and not (parsed.date or parsed.time):
            self.events.append(line)
        if parsed is None:
            (self.runs[-1] if self.messages else self.top).append(line)
        else:
            if parsed.author and parsed.kind != chat.SYSTEM:
                self.names[parsed.author] += 1
                self.after_blank += self._blank
                self.messages += 1
                self.are_below = self.are_below and not parsed.text
            self.runs.append([])
            self.before_heads[self._last] += 1
        self._last, self._blank = line, False


def _teach(layout: Layout, seen: _Seen, lines: Sequence[str]) -> None:
    """Tell the layout what it needs to know of a log's names and of its lines of the channel."""
    layout.without_hosts = sum(map(is_account, seen.names)) * 3 < len(seen.names)
    layout.learn_words(lines)
    if seen.further:
        layout.known = set(seen.names)
        told = [event for line in seen.events if (event := plain_event(line))]
        layout.told = frozenset(rest for who, rest in told if who in seen.names)


def _groups(seen: _Seen, learnt: SystemLines) -> dict[str, list[_Parts]]:
    """Marks or a tag -> the parts of the lines that begin with them."""
    groups: dict[str, list[_Parts]] = defaultdict(list)
    for line in seen.further:
        if not line[0].isspace() and line not in learnt.separators:
            groups[(parts := _split(line, learnt.names)).lead].append(parts)
    for line in seen.events:
        parts = _split(line, learnt.names)
        if parts.lead:
            # Lines of known forms show the marks of others.
            groups[parts.lead].append(parts._replace(who=parts.who or parts.rest.split(" ")[0], rest="is told of"))
    return groups


def _leads(groups: Mapping[str, Sequence[_Parts]], names: frozenset[str]) -> dict[str, bool]:
    """The marks and tags before lines of the channel, and whether the marks must also end them."""
    leads = {
        lead: all(parts.framed for parts in group if _tells(parts))
        for lead, group in groups.items()
        if _is_of_channel(lead, group, names)
    }
    tags = [lead for lead in groups if _TAG.fullmatch(lead)]
    # One tag that tells of the channel shows what all tags are for.
    return leads | dict.fromkeys(tags, False) if any(tag in leads for tag in tags) else leads


def _split(line: str, names: frozenset[str]) -> _Parts:
    match = _TAG.match(line) or _LEAD.match(line)
    lead = match[0] if match else ""
    if lead and not _TAG.match(lead) and (lead[0] in _QUOTES or lead.strip() in _SINGLE_QUOTES):
        lead = ""
    rest, framed = line[len(lead) :], _is_framed(line, lead)
    if framed:
        rest = rest.rstrip()[: -len(lead.strip())].rstrip()
    words = rest.split(" ")
    for count in range(min(_MAX_NAME_WORDS, len(words)), 0, -1):
        who = " ".join(words[:count])
        if who in names:
            return _Parts(lead, who, " ".join(words[count:]), framed)
    if _ASIAN.search(rest):
        # Scripts without spaces between words.
        who = max((name for name in names if rest.startswith(name)), key=len, default="")
        if who and _ASIAN.match(rest, len(who)):
            return _Parts(lead, who, rest[len(who) :], framed)
    return _Parts(lead, "", rest, framed)


_ASIAN = re.compile("[\u2e80-\ud7ff]")


def _opening(line: str) -> tuple[str, str]:
    """The marks and the first word of a line. After marks the word may differ: `# Start logging`, `# Stop logging`."""
    match = _LEAD.match(line)
    lead = match[0].strip() if match else ""
    return (lead, "") if lead else ("", re.split(r"[\s:]", line, maxsplit=1)[0])


def _masked(text: str, names: frozenset[str]) -> str:
    words = ["\1" if word.strip(".,!()[]") in names else word for word in text.strip().split(" ")]
    return _DIGITS.sub("0", " ".join(words))


def _tells(parts: _Parts) -> bool:
    """Whether an author and what happened follow the marks."""
    if parts.who:
        return bool(re.match(r"\w|\(", parts.rest))
    return event_author(parts.rest) is not None or TOPIC.match(parts.rest) is not None


def _is_framed(line: str, lead: str) -> bool:
    """Whether a line ends with the marks that it begins with."""
    marks = lead.strip()
    return len(marks) > 1 and len(line) > 2 * len(marks) and line.rstrip().endswith(marks[::-1])


def _is_of_channel(lead: str, group: Sequence[_Parts], names: frozenset[str]) -> bool:
    telling = sum(map(_tells, group))
    tails: dict[str, set[str]] = defaultdict(set)
    for parts in group:
        if not parts.who:
            who, _, rest = parts.rest.partition(" ")
            tails[_masked(rest, names)].add(who)
    telling += sum(len(others) for tail, others in tails.items() if tail and len(others) > 1)
    if not telling:
        return False
    marks = lead.strip()
    is_plain = marks in _BULLETS
    if len(group) == 1:
        return not is_plain or marks in "*•·"
    return telling * 2 >= len(group) and (telling > 1 or not is_plain)


def _tails(group: Sequence[_Parts], names: frozenset[str]) -> set[str]:
    """The words that follow different authors at the beginning of at least two lines."""
    users: dict[str, set[str]] = defaultdict(set)
    for parts in group:
        if parts.who and parts.rest:
            users[_masked(parts.rest, names)].add(parts.who)
    return {tail for tail, authors in users.items() if len(authors) > 1 and tail[:1].isalpha()}


def _are_indented(runs: Sequence[Sequence[str]]) -> bool:
    begun = [run for run in runs if run and run[0][0].isspace()]
    if len({run[0] for run in begun}) < 3:
        return False
    margin = min((margin_of(run[0]) for run in begun), key=len)
    if not all(run[0].startswith(margin) for run in begun):
        return False
    # Few lines of the channel follow each other.
    others = [run for run in runs if run and not run[0][0].isspace()]
    if sum(len(run) > 1 for run in others) * 5 > len(others):
        return False
    back = 0
    for run in runs:
        flags = [line.startswith(margin) for line in run]
        if flags != sorted(flags, reverse=True):
            return False
        back += bool(flags) and flags[0] and not flags[-1]
    return back * 2 <= len(begun)


def first_of(blocks: Sequence[Sequence[str]], count: int) -> Iterator[str]:
    """The first lines of blocks, until so many are not blank."""
    for lines in blocks:
        for line in lines:
            if not count:
                return
            count -= bool(line.strip())
            yield line

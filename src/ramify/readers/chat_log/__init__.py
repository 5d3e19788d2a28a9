"""Chat logs as text, in any layout: given by a pattern, or guessed from the first lines.

A line that fits the pattern begins a message. Any other line belongs to the message above it, unless it begins with the date
and time that come before authors, or tells of the channel (`*** bob joined`, `--- Day changed`): it is then a message of the
kind "system". Lines before the first message are of this kind, too. The id of a message is the number of its first line, from
0, so that annotations refer to lines of the file.

Every line is counted: `counts.read` counts messages and lines left out, and `counts.kept["continuation"]` the further lines of
messages.
"""

import io
import re
import shlex
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from ramify.errors import RamifyError
from ramify.files import STANDARD
from ramify.readers import chat, irc
from ramify.readers.base import ReadCounts, open_bytes, skip_record
from ramify.readers.chat import Log
from ramify.readers.chat_log.fold import Fold, fold_of, folded
from ramify.readers.chat_log.guess import SAMPLE_LINES, Guess, first_lines, guess, reads_better
from ramify.readers.chat_log.layout import Layout, Line
from ramify.readers.chat_log.pattern import Pattern
from ramify.readers.chat_log.system_lines import SystemLines, first_of, learn
from ramify.readers.clock import LACKS, Clock, Fault, date_in, is_elapsed, runs_twice
from ramify.readers.dates import DateOrder, Given, first_stamps, is_open
from ramify.readers.encodings import AUTO, check_encoding
from ramify.readers.events import dated, system_author
from ramify.readers.irc import log_lines
from ramify.readers.irc.dialects import DIALECTS, STAMP, Dialect, fit
from ramify.readers.irc.text import head_lines
from ramify.readers.log_files import Answers, answers, links_of, log_names, logs_in, logs_of, refuse_line, short
from ramify.readers.log_files import beside as beside
from ramify.readers.messages import first_refusal, head_of
from ramify.tree import Node

MAX_TEXT = 1 << 24
"""Most characters of a message. Further lines are left out, so that a file without a second message fits in memory."""

FEW_LINES = 20

_MARKS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Invisible marks of direction, which WhatsApp puts before lines and around names."""

_OWN = re.compile(r"\A((?!\u200e)\W?\[[^\]]{8,40}\] )[^\u200e]{1,100}: (?=\u200e)")
"""The beginning of WhatsApp's own notice, with which exports on iOS begin. Lines of other such texts begin with a mark."""

DISCORD = "[{date} {time}] {author}{? (pinned)}"
"""The pattern of DiscordChatExporter, whose files frame what they say about the channel."""

_RULE = re.compile(r"[-=_*~]{3,}")
_FRAME = re.compile(r"={20,}")
_COUNT = re.compile(r"\(\d+ (?:rows?|messages?)\)|</\w+>")
"""The last line of a table from a database, of an export, or of a file with tags."""
_BLOCK = re.compile(r"\{(Attachments|Embed|Embeds|Reactions|Stickers|Forwarded Message)\}")
_LEFT_OUT = {"Embed": "embed", "Embeds": "embed", "Reactions": "reaction", "Stickers": "sticker"}


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return first_refusal(path, logs_of(path)[:10], refuses, "a folder without logs")
    lines = _head_lines(head)
    if _has_frames(lines):
        return ""
    guessed = guess(lines)
    if guessed.reason:
        shown = "; --format chat-log shows what this one reads" if guessed.source else ""
        return f"{guessed.reason}. If it is a chat log, give its --pattern{shown}"
    if not guessed.layout.is_folded and not irc.refuses(path, head) and _reads_as_well(lines, guessed):
        return "an IRC log"
    return ""


def logs(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    pattern: str = "",
    encoding: str = AUTO,
    annotations: Literal["beside", "none"] = "beside",
    dates: Given = "auto",
    hours: Literal["auto", "12", "24"] = "auto",
) -> Iterator[Log]:
    """Yield one log per file. In a folder, files that do not look like logs are skipped.

    `pattern`: the form of lines (see `chat_log.pattern`); several forms are separated by line ends. Without it, the pattern is
    guessed from each file's first lines, and is in the log's metadata. `encoding`, `annotations`, `dates`, `hours`: as for IRC
    logs; `dates` may be `year`, too. Raises `RamifyError` for a pattern that matches no line of a file, and for a file whose
    pattern cannot be guessed or whose dates of three short numbers do not show where the year stands.
    """
    check_encoding(encoding)
    given = Pattern(pattern) if pattern else None
    inputs = [file for path in paths for file in (_in_folder(path, given, counts) if path.is_dir() else [path])]
    for path, name in zip(inputs, log_names(inputs)):
        links = links_of(path) if annotations == "beside" else None
        stream = open_bytes(path, counts)
        blocks = _without_marks(log_lines(stream, path, encoding, counts))
        first, layout = _begin(blocks, given, path)
        if layout is None:
            # Blank lines only.
            count = sum(map(len, first))
            counts.leave_out("blank_line", f"{path}", count)
            yield Log(name, iter(()), where=str(path))
            continue
        fold = _fold(layout, first)
        begin = list(folded(first, fold))
        sample = list(first_of(begin, SAMPLE_LINES))
        layout.learn_times(sample)
        system = learn(sample, layout)
        again = partial(_read_again, path, layout, begin, encoding, fold)
        clock = _clock(path, layout, again, dates, hours, counts)
        reader = _Reader(path, layout, system, counts, clock, is_guessed=given is None)
        messages = reader.messages(folded(chain(first, blocks), fold), stream)
        meta = {} if given else {"pattern": layout.pattern.source}
        yield Log(name, messages if links is None else reader.linked(messages, links), meta, str(path), links is not None)


# --- the layout -----------------------------------------------------------------------------------------------------------


def _head_lines(head: bytes) -> list[str]:
    return [_MARKS.sub("", line) for line in head_lines(head, AUTO)]


def _without_marks(blocks: Iterable[list[str]]) -> Iterator[list[str]]:
    for place, lines in enumerate(blocks):
        if not place and lines:
            lines[0] = _OWN.sub(r"\1", lines[0])
        has_marks = _MARKS.search("\n".join(lines)) is not None
        yield [_MARKS.sub("", line) for line in lines] if has_marks else lines


def _reads_as_well(lines: Sequence[str], guessed: Guess) -> bool:
    """Whether the reader of IRC logs finds the same messages in these lines, or describes them as briefly."""
    sample = first_lines(lines)
    layout = guessed.layout
    fits = {name: fit(sample, dialect) for name, dialect in DIALECTS.items() if dialect.guessed}
    dialect = DIALECTS[max(fits, key=lambda name: fits[name].share)]
    if layout.has_stamp and not dialect.stamped:
        return False
    ours, irc_s = [layout.read(line) for line in sample], [_read_as_irc(line, dialect) for line in sample]
    further = sum(a is None and b is None for a, b in zip(irc_s, ours, strict=True))
    if dialect.stamped and further > 1 and further * 50 > len(sample):
        # Each line is a message in IRC, and these messages have further lines.
        return False
    differences = sum(_said(a) != _said(b) for a, b in zip(irc_s, ours, strict=True))
    if differences * 10 <= len(sample):
        return True
    kinds = [line.kind for line in irc_s if line is not None and line.kind != chat.SYSTEM]
    if sum(map(bool, kinds)) * 2 > len(kinds):
        # Actions and notices are rare.
        return False
    return not reads_better(map(_said, ours), map(_said, irc_s), sample, len(guessed.source))


def _said(line: Line | None) -> tuple[str, str, str] | None:
    return None if line is None or line.kind == chat.SYSTEM else (line.author or "", line.text.strip(), line.kind)


def _read_as_irc(line: str, dialect: Dialect) -> Line | None:
    match = dialect.line.fullmatch(line)
    if match is None:
        return None
    group, time = match.lastindex or 0, match[STAMP] or None
    if group in irc.KINDS:
        return Line(match[group], match[group - 1], irc.KINDS[group], None, time)
    return Line(match[group], system_author(match[group]), chat.SYSTEM, None, time)


def _begin(blocks: Iterator[list[str]], given: Pattern | None, path: Path) -> tuple[list[list[str]], Layout | None]:
    """The first blocks, and the layout. From a pipe no more lines are awaited than are needed."""
    first: list[list[str]] = []
    is_pipe = path == STANDARD or not path.is_file()
    for lines in blocks:
        first.append(lines)
        filled = [line for line in chain.from_iterable(first) if line and not line.isspace()]
        if given is None and _has_frames(first[0]):
            given = Pattern(DISCORD)
        if given is not None:
            layout = Layout(given)
            heads = folded(first, _fold(layout, first))
            read = (layout.read(line) for line in chain.from_iterable(heads) if line and not line.isspace())
            if is_pipe or any(line and line.author is not None for line in read):
                return first, layout
        elif len(filled) >= SAMPLE_LINES or (
            is_pipe and len(filled) >= FEW_LINES and not guess(chain.from_iterable(first)).reason
        ):
            return first, _guessed(first, path)
    if not any(line and not line.isspace() for line in chain.from_iterable(first)):
        return first, None
    if given is None:
        return first, _guessed(first, path)
    raise _no_match(given, first, path)


def _numbered(blocks: Iterable[list[str]], count: int) -> list[tuple[int, str]]:
    """The first lines that are not blank, with their numbers from 1."""
    numbered = enumerate(chain.from_iterable(blocks), 1)
    return list(islice(((number, line) for number, line in numbered if line and not line.isspace()), count))


def _no_match(given: Pattern, blocks: Iterable[list[str]], path: Path) -> RamifyError:
    return RamifyError(
        f"the pattern {given.source!r} matches no line of {path}. The first lines, and where each stops to fit:\n"
        f"{given.misfit(_numbered(blocks, 3))}\n"
        "Correct the pattern there. Fields: {date}, {time}, {author}, {text}, {system}, {skip}; {?…} is an optional part."
    )


def _guessed(blocks: Sequence[list[str]], path: Path) -> Layout:
    numbered = _numbered(blocks, SAMPLE_LINES)
    guessed = guess(chain.from_iterable(blocks))
    if not guessed.reason:
        return guessed.layout
    shown = "\n".join(f"  line {number}: {line.replace(chr(9), ' ')[:100]}" for number, line in numbered[:3])
    remedy = "If it is a chat log, give its pattern, such as --pattern '[{date} {time}] <{author}> {text}'."
    if guessed.source:
        layout = guessed.layout
        read = ((number, line) for number, text in numbered if (line := layout.read(text)) and line.author)
        messages = "\n".join(f"  line {number}: {line.author}: {line.text[:80]}" for number, line in islice(read, 3))
        pattern = " ".join(f"--pattern {shlex.quote(form)}" for form in guessed.source.split("\n"))
        remedy = f"If it is a chat log, give its pattern. With {pattern} the messages would begin:\n{messages}"
    raise RamifyError(f"the layout of {path} cannot be guessed: {guessed.reason}. Its first lines:\n{shown}\n{remedy}")


def _fold(layout: Layout, first: Sequence[list[str]]) -> Fold:
    """The form of the heads of a log, as far as its layout reads such."""
    fold = fold_of(chain.from_iterable(first)) if layout.is_folded or layout.is_heading else ""
    return fold if layout.is_folded or fold == "signed" else ""


def _in_folder(folder: Path, given: Pattern | None, counts: ReadCounts) -> list[Path]:
    def refused(path: Path) -> str:
        lines = _head_lines(head_of(path))
        if given is None:
            return guess(lines).reason
        layout = Layout(given)
        return "" if any(layout.read(line) for line in lines) else "the pattern matches none of its first lines"

    return logs_in(folder, refused, counts, "a chat log")


# --- the clock ------------------------------------------------------------------------------------------------------------


def _clock(
    path: Path, layout: Layout, again: Callable[[], Iterator[Line]], dates: Given, hours: str, counts: ReadCounts
) -> Clock:
    """The clock of a log. The whole file decides what its stamps leave open, and only the first lines of a pipe."""
    order = DateOrder(dates)
    if layout.has_date or not layout.has_time:
        known = next((line.date for line in again() if line.date), None) if layout.has_date else None
        dated_lines = again() if known and is_open(known) else iter(())
        if ambiguous := order.settle_log(line.date for line in dated_lines if line.date):
            counts.repair("open_date", f"{path}: {ambiguous} and all other dates are ambiguous, read as month/day")
        if order.open_year:
            raise RamifyError(
                f"{path}: the date {order.open_year} and all others may begin or end with the year. Give their order with "
                "--option dates=year, dates=month or dates=day."
            )
        return Clock(None, order)
    twelve = hours == "12"
    if hours == AUTO:
        twelve = runs_twice(line.time for line in again() if line.time)
    elapsed = not twelve and is_elapsed(line.time for line in again() if line.time)
    return Clock(date_in(path), order, twelve=twelve, elapsed=elapsed)


def _read_again(path: Path, layout: Layout, first: Sequence[list[str]], encoding: str, fold: Fold) -> Iterator[Line]:
    if path == STANDARD or not path.is_file():
        yield from (line for text in chain.from_iterable(first) if (line := layout.read(text)))
        return
    with open_bytes(path) as stream:
        for lines in folded(_without_marks(log_lines(stream, path, encoding, ReadCounts())), fold):
            yield from (line for text in lines if (line := layout.read(text)))


# --- messages -------------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the messages of one log."""

    def __init__(
        self, path: Path, layout: Layout, system: SystemLines, counts: ReadCounts, clock: Clock, *, is_guessed: bool
    ) -> None:
        self._is_guessed = is_guessed
        self._path, self._layout, self._system, self._counts, self._clock = path, layout, system, counts, clock
        self._current: Line | None = None
        self._start = 0
        self._time: float | None = None
        self._more: list[tuple[int, str]] = []
        """The further lines of the current message, with their places in the file."""
        self._has_more = False
        """Whether any message before the current one has further lines."""
        self._has_gap = False
        """Whether any of these has a blank line inside."""
        self._begun = 0
        self._blank: list[int] = []
        self._size = 0
        self._last_stamp: tuple[str | None, str | None] = (None, None)
        self._block = ""
        self._has_frames = False
        self._in_frame = False
        self._found = False
        self.lines = 0

    def messages(self, blocks: Iterable[list[str]], stream: io.BufferedReader) -> Iterator[Node]:
        """Yield the messages of blocks of lines, and close the stream behind them."""
        with stream:
            yield from self._messages(blocks)

    def _messages(self, blocks: Iterable[list[str]]) -> Iterator[Node]:
        counts = self._counts
        shown: list[list[str]] = []
        for lines in blocks:
            if not self._found:
                shown.append(lines[:SAMPLE_LINES])
            if self.lines == 0:
                self._has_frames = _has_frames(lines)
            for number, line in enumerate(lines, self.lines):
                try:
                    node = self._read(number, line)
                except Exception as error:
                    skip_record(error, f"{self._path}, line {number + 1}", counts)
                else:
                    if node is not None:
                        yield node
            self.lines += len(lines)
        if self._current is not None:
            more = self._footer()
            yield self._finish()
            for number, line in more:
                if line:
                    counts.read += 1
                    yield Node(line.replace("\t", " "), None, False, str(number), None, self._now(), chat.SYSTEM)
                else:
                    self._skip("blank_line", number)
        self._drop_blank()
        if (lack := self._clock.lack) and self._layout.has_stamp:
            counts.repair(lack, f"{self._path}: {LACKS[lack]}")
        if not self._found:
            raise _no_match(self._layout.pattern, shown, self._path)

    def _read(self, number: int, line: str) -> Node | None:
        """Read the next line. The message above it, if it is now complete."""
        parsed = self._layout.read(line)
        if parsed is None or (self._awaits_text() and self._may_be_text(parsed)):
            return self._add(number, line)
        if (stamp := (parsed.date, parsed.time)) != self._last_stamp and stamp != (None, None):
            self._last_stamp = (None, None) if self._has_fault(self._clock.set(*stamp), number) else stamp
        done = self._finish() if self._current is not None else None
        self._counts.read += 1
        if self._is_guessed and parsed.kind == chat.SYSTEM and parsed.author is None and (parsed.date or parsed.time):
            self._counts.repair("no_author", f"{self._path}, line {number + 1}")
        self._begin(number, parsed)
        return done

    def _has_fault(self, fault: Fault, number: int) -> bool:
        """Count the fault of a stamp, if it has one."""
        if fault:
            self._counts.repair(fault, f"{self._path}, line {number + 1}")
        return bool(fault)

    def _may_be_text(self, line: Line) -> bool:
        """Whether a text may look like this line of the channel, or like this head."""
        return line.kind == chat.SYSTEM or (self._layout.has_open_heads and line.author not in self._system.regulars)

    def _awaits_text(self) -> bool:
        """Whether this is the line below the head of a message."""
        current = self._current
        return (
            self._layout.is_heading
            and current is not None
            and current.kind != chat.SYSTEM
            and not (current.text or self._more or self._blank)
        )

    def _now(self) -> float | None:
        """The time of the latest line. Without times, a day that a line names is that of no message."""
        return self._clock.time if self._layout.has_stamp else None

    def _begin(self, number: int, line: Line) -> None:
        self._current, self._start = line, number
        self._begun += 1
        self._time = self._now()
        self._more, self._size, self._block = [], 0, ""
        self._in_frame = False
        self._found = self._found or line.kind != chat.SYSTEM

    def _add(self, number: int, line: str) -> Node | None:
        """Add a line that begins no message of an author. The message above it, if it is now complete."""
        if not line or line.isspace():
            self._blank.append(number)
            return None
        if self._has_frames and (self._in_frame or _FRAME.fullmatch(line)):
            self._in_frame = not self._in_frame if _FRAME.fullmatch(line) else True
            self._drop_blank()
            self._skip("frame", number)
            return None
        current = self._current
        opens = current is None or not self._found
        date, time = dated(line) if not self._layout.has_date or not line[0].isalnum() else (None, None)
        if opens and date is None and not self._layout.has_date:
            date, time = first_stamps(line)
        awaits_text = self._awaits_text()
        if awaits_text:
            date = None
        is_system = not awaits_text and (self._layout.is_closed or self._system.fits(line, after_blank=bool(self._blank)))
        if is_system and date is None and not self._layout.has_date:
            date, time = first_stamps(line)
        if date is not None or opens or is_system:
            if date is not None and not self._layout.has_date:
                self._last_stamp = (None, None)
                self._has_fault(self._clock.name_day(date, time), number)
            elif opens:
                self._counts.repair("unparsed", f"{self._path}, line {number + 1}")
            done = self._finish() if current is not None else None
            self._drop_blank()
            self._counts.read += 1
            self._begin(number, Line(line, None, chat.SYSTEM, None, None))
            return done
        self._continue(number, line)
        return None

    def _continue(self, number: int, line: str) -> None:
        """A further line of the current message."""
        if self._has_frames and (match := _BLOCK.fullmatch(line.strip())):
            self._block = match[1]
            self._drop_blank()
            self._skip(_LEFT_OUT.get(self._block, "mark"), number)
            return
        if self._block in _LEFT_OUT:
            self._drop_blank()
            self._skip(_LEFT_OUT[self._block], number)
            return
        self._size += len(line)
        if self._size > MAX_TEXT:
            self._drop_blank()
            self._skip("long_text", number)
            return
        self._more += ((place, "") for place in self._blank)
        self._blank.clear()
        self._more.append((number, line.removeprefix(self._system.margin)))

    def _skip(self, reason: str, number: int) -> None:
        self._counts.leave_out(reason, f"{self._path}, line {number + 1}")

    def _drop_blank(self) -> None:
        for number in self._blank:
            self._skip("blank_line", number)
        self._blank.clear()

    def _footer(self) -> list[tuple[int, str]]:
        """Take off the lines that end the log: below a blank line and a rule, or if no other message has such lines.

        Below heads there is one such line, and many messages without a blank line.
        """
        current = self._current
        if self._more and _COUNT.fullmatch(self._more[-1][1]):
            return [self._more.pop()]
        gaps = [place for place, (_, line) in enumerate(self._more) if not line]
        if current is None or current.kind == chat.SYSTEM or not gaps:
            return []
        first = next((place for place in gaps if _RULE.fullmatch(self._more[place + 1][1])), gaps[0])
        if _RULE.fullmatch(self._more[first + 1][1]):
            is_footer = bool(current.text or first)
        elif self._has_gap:
            return []
        elif self._layout.is_heading:
            is_footer = bool(first) and self._begun > FEW_LINES and first == len(self._more) - 2
        else:
            is_footer = not (self._has_more or self._system.spaced or first) and bool(current.text)
        more = self._more[first:] if is_footer else []
        del self._more[len(self._more) - len(more) :]
        return more

    def _finish(self) -> Node:
        """The current message, now that it is complete."""
        line = self._current
        assert line is not None
        text = line.text
        if self._blank:
            self._drop_blank()
        if self._more:
            more = [line for _, line in self._more]
            text = "\n".join([text, *more]) if text.strip() else textwrap.dedent("\n".join(more)).strip("\n")
            for number, _ in self._more:
                self._counts.repair("continuation", f"{self._path}, line {number + 1}")
            if self._layout.quotes_more and text[0] == text[-1] == '"':
                text = text[1:-1]
            self._has_gap = self._has_gap or "" in more[1:]
            self._more, self._has_more = [], True
        if "\t" in text:
            text = text.replace("\t", " ")
        self._current = None
        return Node(text, None, False, str(self._start), line.author, self._time, line.kind)

    def linked(self, messages: Iterable[Node], annotated: Path) -> Iterator[Node]:
        """Messages with the links of an annotation file. A link to any line of a message is a link to the message."""
        links: Answers = answers(annotated, short(self._path))
        starts: list[int] = []
        order = sorted(links)
        done = 0
        waiting: Node | None = None
        for node in chain(messages, [None]):
            first = self.lines if node is None else int(node.id)
            if waiting is not None:
                parents: set[int] = set()
                is_start = annotated_here = False
                while done < len(order) and order[done] < first:
                    if order[done] >= starts[-1]:
                        linked, starting = links[order[done]]
                        parents |= {bisect_right(starts, line) - 1 for line in linked}
                        is_start, annotated_here = is_start or starting, True
                    done += 1
                parents -= {len(starts) - 1, -1}
                if annotated_here:
                    # A link inside a message is none.
                    waiting = Node(
                        waiting.text,
                        tuple(sorted(parents)),
                        is_start or not parents,
                        waiting.id,
                        waiting.author,
                        waiting.time,
                        waiting.kind,
                    )
                yield waiting
            waiting = node
            if node is not None:
                starts.append(first)
        if links and max(links) >= self.lines:
            refuse_line(annotated, self._path, self.lines)


def _has_frames(lines: Sequence[str]) -> bool:
    """Whether the log is an export of DiscordChatExporter, which frames what it says about the channel."""
    head = [line for line in lines[:12] if line.strip()]
    return bool(head) and bool(_FRAME.fullmatch(head[0])) and any(line.startswith(("Guild:", "Channel:")) for line in head)

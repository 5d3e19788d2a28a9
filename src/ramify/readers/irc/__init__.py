"""IRC logs, as written by clients and bots. Each line of a file is a message, and its id is the line's number, from 0.

No line is left out, so that numbers agree with annotation files. Lines about joins, parts and dates, blank lines and lines in
no dialect have the kind "system". Actions ("* ann waves"; the text is "waves") have the kind "action", and notices the kind
"notice". `time` is in seconds since 1970 by the log's own clock (see `Clock`).
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Literal

from ramify.errors import RamifyError
from ramify.files import STANDARD
from ramify.readers import chat
from ramify.readers.base import ReadCounts, bad_option, blocks, fault_of, open_bytes
from ramify.readers.chat import Log
from ramify.readers.clock import LACKS, Clock, Fault, date_in, date_of, runs_twice
from ramify.readers.dates import DateOrder, First, is_open
from ramify.readers.encodings import AUTO, check_encoding, with_line_ends
from ramify.readers.events import LEVELS, system_author
from ramify.readers.irc import dialects
from ramify.readers.irc.dialects import DIALECTS, MESSAGE, STAMP, STAMPED_TEXT, Dialect, Fit, fit
from ramify.readers.irc.text import head_lines, text_lines
from ramify.readers.log_files import TOKENS, answers, links_of, log_names, logs_in, logs_of, refuse_line, short
from ramify.readers.log_files import beside as beside
from ramify.readers.messages import first_refusal, head_of
from ramify.tree import Node

KINDS = {MESSAGE: "", dialects.ACTION: chat.ACTION, dialects.NOTICE: "notice"}
"""Kinds of messages with an author, by the group that matches their text."""

SAMPLE_LINES = 500
FEW_LINES = 20
BLOCK_BYTES = 1 << 20


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return first_refusal(path, logs_of(path)[:10], refuses, "a folder without logs")
    return _no_log(head, AUTO, AUTO, share=0.8, from_first_line=True)


def logs(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    dialect: str = AUTO,
    encoding: str = AUTO,
    annotations: Literal["beside", "none"] = "beside",
    tokens: Literal["beside", "none"] = "none",
    dates: First = "auto",
    hours: Literal["auto", "12", "24"] = "auto",
) -> Iterator[Log]:
    """Yield one log per file. In a folder, files that do not look like logs are skipped, and `.ascii.txt` replaces `.raw.txt`.

    `dialect`: comma-separated names of `DIALECTS`, the most frequent first; `auto` detects them from the first lines. A line in
    no dialect is kept unchanged and counted as `unparsed`. `encoding`: `auto` reads lines as UTF-8, or as cp1252 if they are
    not UTF-8. `annotations`: read reply links from `X.annotation.txt` beside the log. `tokens`: store the words of `X.tok.txt`
    beside `X.ascii.txt` in the messages' labels. `dates`: which number comes first in dates with slashes (see `DateOrder`).
    `hours`: the hours of a clock without AM and PM (see `runs_twice`). `auto` reads the whole file if necessary, but only the
    beginning of a pipe.
    """
    _names(dialect)
    check_encoding(encoding)
    inputs = [file for path in paths for file in (_in_folder(path, dialect, encoding, counts) if path.is_dir() else [path])]
    for path, name in zip(inputs, log_names(inputs)):
        links = links_of(path) if annotations == "beside" else None
        messages = _messages(path, counts, dialect, encoding, links, DateOrder(dates), hours)
        if tokens == "beside":
            messages = _with_tokens(messages, path.with_name(short(path) + TOKENS))
        yield Log(name, messages, where=str(path), names_parents=links is not None)


def _with_tokens(messages: Iterator[Node], path: Path) -> Iterator[Node]:
    """Label each message with the words of the same line of another file (`<s> these words </s>`)."""
    if not path.exists():
        raise RamifyError(f"there is no {path} with the words of each line of the log. Remove --option tokens=beside.")
    with open_bytes(path) as stream:
        for node, line in zip_longest(messages, stream):
            if node is None or line is None:
                raise RamifyError(
                    f"{path} and the log beside it have different numbers of lines. Check that it belongs to this log."
                )
            words = line.decode("utf-8", "replace").split()
            yield replace(node, label={chat.TOKENS: " ".join(word for word in words if word not in ("<s>", "</s>"))})


def _messages(
    path: Path, counts: ReadCounts, dialect: str, encoding: str, annotated: Path | None, order: DateOrder, hours: str
) -> Iterator[Node]:
    links = {} if annotated is None else answers(annotated, short(path))
    reader = _Reader(path, counts, Clock(date_in(path), order))
    patterns: list[dialects.Dialect] = []
    before = 0
    with open_bytes(path, counts) as stream:
        for lines in log_lines(stream, path, encoding, counts):
            if not patterns and (patterns := _chosen(lines, dialect, path, before + 1)):
                twelve = _runs_twice(path, lines, encoding, patterns, order, hours, counts)
                reader.clock = Clock(date_in(path), order, twelve=twelve)
            # Before the first message no dialect can be chosen. System lines are alike in all dialects.
            reader.forms = [pattern.line.fullmatch for pattern in patterns or map(DIALECTS.__getitem__, _names(dialect))]
            counts.read += len(lines)
            for number, line in enumerate(lines, start=before):
                try:
                    author, kind, text = reader.read(line, number)
                except Exception as error:
                    # It keeps its place, because annotations refer to numbers of lines.
                    counts.repair("bad_row", f"{path}, line {number + 1}: {fault_of(error)}")
                    author, kind, text = None, chat.SYSTEM, line
                if "\t" in text:
                    text = text.replace("\t", " ")
                # The time at which a log was opened is that of no message.
                time = reader.clock.time if reader.has_times or kind == chat.SYSTEM else None
                parents, starts = links.get(number, _UNLINKED)
                yield Node(text, parents, starts, str(number), author, time, kind)
            before += len(lines)
    if lack := reader.clock.lack:
        counts.repair(lack, f"{path}: {LACKS[lack]}")
    if annotated is not None and links and max(links) >= before:
        refuse_line(annotated, path, before)


_UNLINKED = None, False


class _Reader:
    """Reads the lines of one log, in order, and advances its clock."""

    def __init__(self, path: Path, counts: ReadCounts, clock: Clock) -> None:
        self._path, self._counts, self.clock = path, counts, clock
        self.forms: list[Callable[[str], re.Match[str] | None]] = []
        """The forms of lines, the most frequent first."""
        self.has_times = False
        self._last_stamp: str | None = None

    def read(self, line: str, number: int) -> tuple[str | None, str, str]:
        """The author, the kind and the text of a line."""
        match = None
        for form in self.forms:
            if match := form(line):
                break
        if match is None:
            if not _is_blank(line):
                self._counts.repair("unparsed", f"{self._path}, line {number + 1}")
            return None, chat.SYSTEM, line
        stamp = match[STAMP]
        self.has_times = self.has_times or bool(stamp)
        if stamp and stamp != self._last_stamp:
            self._last_stamp = None if self._has_fault(self.clock.set_stamp(stamp), number) else stamp
        group = match.lastindex or 0
        text = match[group]
        if group in KINDS:
            return match[group - 1], KINDS[group], text
        author = system_author(text)
        if group == dialects.SYSTEM and text.startswith("--- "):
            self._has_fault(self.clock.set_by_text(text), number)
        elif group == dialects.UNSTAMPED:
            # "--- Day changed" and "--- Log opened" have no author.
            author = author if text.startswith("===") else None
            self._last_stamp = None
            self._has_fault(self.clock.set_by_text(text), number)
        return author, chat.SYSTEM, text

    def _has_fault(self, fault: Fault, number: int) -> bool:
        """Count the fault of a stamp, if it has one."""
        if fault:
            self._counts.repair(fault, f"{self._path}, line {number + 1}")
        return bool(fault)


def _runs_twice(
    path: Path,
    lines: list[str],
    encoding: str,
    patterns: Sequence[dialects.Dialect],
    order: DateOrder,
    hours: str,
    counts: ReadCounts,
) -> bool:
    """Whether the log has a twelve-hour clock. It also settles which number of a date is the day."""
    first = next(_stamps([lines], patterns), None)
    if first is None:
        return hours == "12"
    with ExitStack() as files:
        blocks = iter([lines])
        if path != STANDARD and path.is_file():
            blocks = log_lines(files.enter_context(open_bytes(path)), path, encoding, ReadCounts())
        dates = (date for stamp in _stamps(blocks, patterns) if (date := date_of(stamp)))
        if not (date := date_of(first)) or not is_open(date):
            return hours == "12" or (hours == AUTO and date is None and runs_twice(_stamps(blocks, patterns)))
        if ambiguous := order.settle_log(dates):
            counts.repair("open_date", f"{path}: {ambiguous} and all other dates are ambiguous, read as month/day")
    return False


def _stamps(blocks: Iterable[list[str]], patterns: Sequence[dialects.Dialect]) -> Iterator[str]:
    for line in chain.from_iterable(blocks):
        match = next((match for dialect in patterns if (match := dialect.line.fullmatch(line))), None)
        if match and match[STAMP]:
            yield match[STAMP]


def log_lines(packed: io.BufferedReader, path: Path, encoding: str, counts: ReadCounts) -> Iterator[list[str]]:
    """Yield blocks of lines. A line that is too long becomes an empty message, so it counts as repaired, not as skipped."""
    too_long = ReadCounts()
    stream, encoding = with_line_ends(packed, encoding)
    for numbers, block in blocks(stream, too_long, path, size=BLOCK_BYTES):
        if too_long.skipped:
            counts.repair("too_long", too_long.examples["too_long"][0])
            too_long = ReadCounts()
        yield text_lines(block, encoding, numbers.start, path, counts)


# --- choice of the dialect ------------------------------------------------------------------------------------------------


def _names(dialect: str) -> list[str]:
    """The names of the dialects to try."""
    if dialect == AUTO:
        return [name for name, candidate in DIALECTS.items() if candidate.guessed]
    names = [name.strip() for name in dialect.split(",")]
    if not all(name in DIALECTS for name in names):
        raise bad_option("dialect", f"auto or, separated by commas, some of {', '.join(DIALECTS)}", dialect)
    return names


def _chosen(lines: list[str], dialect: str, path: Path, first: int) -> list[dialects.Dialect]:
    """The dialect that fits most lines, then dialects that may be mixed with it; empty if there are no messages yet.

    From a pipe more lines will follow. A named dialect is then accepted without a check, and a few lines without a message
    do not settle the choice.
    """
    names = _names(dialect)
    sample = list(islice(((number, line) for number, line in enumerate(lines, first) if not _is_blank(line)), SAMPLE_LINES))
    if not sample:
        return []
    is_pipe = path == STANDARD or not path.is_file()
    if dialect != AUTO and (is_pipe or any(DIALECTS[name].line.fullmatch(line) for name in names for _, line in sample)):
        return [DIALECTS[name] for name in names]
    fits = {name: fit([line for _, line in sample], DIALECTS[name]) for name in names}
    if is_pipe and len(sample) < FEW_LINES and not any(fitted.telling for fitted in fits.values()):
        return []
    best = max(names, key=lambda name: fits[name].share)
    # In a log with times, a line without a time is more likely the rest of a longer message.
    chosen = [DIALECTS[best], *(DIALECTS[name] for name in names if name != best and DIALECTS[name].stamped)]
    read = sum(any(candidate.line.fullmatch(line) for candidate in chosen) for _, line in sample)
    if read * 2 < len(sample):
        raise RamifyError(_unknown(path, sample, fits))
    return chosen


def _unknown(path: Path, sample: list[tuple[int, str]], fits: Mapping[str, Fit]) -> str:
    tried = []
    for name, (share, _, misfit) in fits.items():
        number, line = sample[misfit or 0]
        tried.append(
            f"  {name:<9} {share:4.0%} of lines fit, not line {number} ({line!r:.60})\n{'':12}{DIALECTS[name].example}"
        )
    return (
        f"{path} fits no known dialect of IRC logs in its first {len(sample)} lines. Tried:\n"
        + "\n".join(tried)
        + f"\nIf it is a log, name the nearest dialect: --option dialect=NAME, one of {', '.join(DIALECTS)}.\n"
        f"The last is never guessed: {DIALECTS['colon'].example}."
    )


def _no_log(head: bytes, dialect: str, encoding: str, share: float, *, from_first_line: bool = False) -> str:
    """The reason why the first bytes of a file do not look like a log; "" if they do."""
    lines = head_lines(head, encoding)
    numbered = list(islice(((number, line) for number, line in enumerate(lines, 1) if not _is_blank(line)), SAMPLE_LINES))
    if not numbered:
        return "only blank lines"
    sample = [line for _, line in numbered]
    fits = {name: fit(sample, DIALECTS[name]) for name in _names(dialect)}
    best = max(fits, key=lambda name: fits[name].share)
    best_share, telling, misfit = fits[best]
    if best_share < share or (from_first_line and misfit == 0):
        number, line = numbered[misfit or 0]
        nearest = f"the dialect {best}, which fits {best_share:.0%} of the first lines" if best_share else "any known dialect"
        return f"line {number}: {line!r:.40} is not in {nearest}"
    unlike = "no line at its beginning names both an author and a time"
    if DIALECTS[best].stamped:
        if from_first_line and (what := _no_names(sample, DIALECTS[best])):
            return f"the dialect {best} would take {what} for names"
        return "" if telling else unlike
    if sum(STAMPED_TEXT.match(line) is not None for line in sample) * 2 > len(sample):
        return f"the dialect {best} would leave times in the texts"
    # Markdown lists begin with stars, and HTML elements look like names.
    closing = sum("</" in line for line in sample)
    return "" if telling * 2 >= len(sample) and closing * 10 <= len(sample) else unlike


def _no_names(lines: Sequence[str], dialect: Dialect) -> str:
    """The kind of text where most names would be, if it is no name: numbers, or levels as in the log of a machine."""
    names = [match[MESSAGE - 1] for line in lines if (match := dialect.line.fullmatch(line)) and match.lastindex == MESSAGE]
    if sum(not any(map(str.isalpha, name)) for name in names) * 2 > len(names):
        return "numbers"
    return "levels" if sum(LEVELS.fullmatch(name) is not None for name in names) * 2 > len(names) else ""


def _is_blank(line: str) -> bool:
    return not line or line.isspace()


# --- files ----------------------------------------------------------------------------------------------------------------


def _in_folder(folder: Path, dialect: str, encoding: str, counts: ReadCounts) -> list[Path]:
    def refused(path: Path) -> str:
        return _no_log(head_of(path), dialect, encoding, share=0.5)

    return logs_in(folder, refused, counts, "an IRC log")

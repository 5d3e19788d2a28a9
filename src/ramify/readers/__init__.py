"""File formats. Each format is a module of this package that turns files into trees or into batches of posts.

The module of a format is imported when the format is first used.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from ramify.errors import RamifyError, shortened
from ramify.files import STANDARD
from ramify.readers.listing import left_out, list_files

if TYPE_CHECKING:
    from ramify.readers.base import Policy, ReadCounts
    from ramify.readers.containers import Unpacked


@dataclass(frozen=True)
class Format:
    """A file format and its reader.

    `yields`: `posts` are single posts in any order, to be joined into trees; `trees` are whole trees; `logs` are the messages
    of a channel in order.
    """

    yields: Literal["posts", "trees", "logs"]
    module: str
    """The reader: `.name` in this package, or any other module."""
    summary: str
    numbered: bool = False
    """Whether annotations refer to messages by ids that are ascending whole numbers (in logs: line numbers, from 0)."""
    partial: bool = False
    """Whether files usually hold parts of discussions, so that any number of posts may answer one that is elsewhere."""
    unannotated: Mapping[str, str] = field(default_factory=dict)
    """The options that leave out what people annotated afterwards, because it is not part of the chat. Disentanglement sets
    them, unless the user sets them otherwise."""
    unsplit: Mapping[str, str] = field(default_factory=dict)
    """The options that leave the splits of all trees to their shares, although the files or their names give splits."""

    archives: Literal["none", "some", "all"] = "none"
    """The ZIP or tar archives that the reader opens itself. Others are unpacked for it."""
    flat: bool = False
    """Whether each record is one post, so that posts inside a record would be lost."""
    by_shares: Mapping[str, str] = field(default_factory=dict)
    """The options that leave the splits to shares that the user gives, where the names of the files give a single split."""

    @property
    def name(self) -> str:
        """The key in `FORMATS`."""
        return self.module.rpartition(".")[2].replace("_", "-")

    def load(self) -> ModuleType:
        """Import the reader's module, which defines `refuses` and either `read` or `logs` (see `readers.base`)."""
        return import_module(self.module, __package__)

    @property
    def reads(self) -> Callable[..., Iterator[Any]]:
        """The reader's function, which yields record batches, trees or logs."""
        return getattr(self.load(), "logs" if self.yields == "logs" else "read")

    def records(self, paths: Sequence[Path], counts: Any, policy: Any = None, **options: Any) -> Iterator[Any]:
        """Yield record batches of posts, or trees. A log is yielded as one tree.

        `policy` (a `readers.base.Policy`; None: the default policy) is passed to readers that handle ill-fitting posts
        themselves.
        """
        if self.takes_policy:
            from ramify.readers.base import Policy

            options["policy"] = policy or Policy()
        records = self.reads(paths, counts, **options)
        return (log.tree() for log in records) if self.yields == "logs" else records

    @property
    def options(self) -> list[str]:
        """The reader's options: its parameters other than files, counts and policy."""
        return [name for name in list(signature(self.reads).parameters)[2:] if name != "policy"]

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise `RamifyError` for the first name that is not an option of the reader, and for a value that its type rules out:
        one that is not among the values of a `Literal`, nor true or false."""
        known = self.options
        if unknown := next((name for name in options if name not in known), None):
            available = f"its options are {', '.join(known)}" if known else "it has no options"
            raise RamifyError(f"the format {self.name!r} has no option {unknown!r}; {available}.")
        types = get_type_hints(self.reads)
        for name, value in options.items():
            choices = _choices(types[name])
            if choices and value not in choices:
                from ramify.readers.base import bad_option

                *others, last = (f"{choice}".lower() for choice in choices)
                raise bad_option(name, f"{', '.join(others)} or {last}", value)

    def refuses(self, path: Path, head: bytes, columns: Mapping[str, str]) -> str:
        """The reason why a file is not in this format, from its first bytes; "" if it is. `columns`: see `open_inputs`."""
        from ramify.readers.base import archive_kind
        from ramify.readers.refusals import nested_posts

        if self.archives == "none" and (kind := archive_kind(head)):
            return f"{kind} in a folder. Name it as an input of its own, or unpack it"
        if columns and "columns" not in self.options and not columns.keys() <= {*self.options}:
            return f"it has no column {next(iter(columns))!r} to fill"
        if self.flat and (key := nested_posts(head)):
            return f'a list of posts in "{key}", which it would leave unread'
        refuses = self.load().refuses
        return refuses(path, head, columns) if "columns" in signature(refuses).parameters else refuses(path, head)

    @property
    def takes_policy(self) -> bool:
        """Whether the reader applies the policy itself."""
        return "policy" in signature(self.reads).parameters


def _choices(kind: Any) -> list[Any]:
    """The values that an option may have by its type; empty if they are not listed there."""
    choices: list[Any] = []
    for part in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if part is not bool and get_origin(part) is not Literal:
            return []
        choices += (True, False) if part is bool else get_args(part)
    return choices


FORMATS: dict[str, Format] = {
    # First, because `guess` takes the first match, and the metadata of Ramify's trees may look like another format.
    "jsonl": Format("trees", ".jsonl", "Ramify's own JSON lines, one tree per line", numbered=True),
    # Before Reddit's formats, whose files have some of the same keys.
    "nested": Format("posts", ".nested", "nested posts as JSON: Hacker News, Discourse, Lemmy, GitHub, …", partial=True),
    "pushshift": Format(
        "posts", ".pushshift", "Reddit dumps, submissions and comments, as JSON lines", partial=True, flat=True
    ),
    "reddit-api": Format("posts", ".reddit_api", "Reddit API responses, JSON with nested replies", partial=True),
    "stackexchange": Format("posts", ".stackexchange", "Stack Exchange dumps, one folder per site"),
    "convokit": Format("posts", ".convokit", "ConvoKit corpora, one folder per corpus"),
    "cmv-modes": Format("trees", ".cmv_modes", "change-my-view-modes, XML with claims and premises"),
    "cmv-chains": Format(
        "posts", ".cmv_chains", "chains of change-my-view comments, ad hominem or not", partial=True, archives="all"
    ),
    "oasst": Format("posts", ".oasst", "OpenAssistant's conversation trees"),
    "molweni": Format("trees", ".molweni", "Molweni's dialogues with discourse relations", unannotated={"annotations": "none"}),
    "mail": Format("posts", ".mail", "mail: mbox, Maildir, .eml; threads by References", partial=True),
    "chat-json": Format(
        "logs", ".chat_json", "chats as JSON: Messenger, Instagram, Google Chat, Zulip, Mattermost, Discord's package"
    ),
    "play": Format("trees", ".play", "plays as XML (Shakespeare's): act, scene, speech, line"),
    # Before Slack, which takes every damaged ZIP archive for one of its own.
    "book": Format("trees", ".book", "books: Standard Ebooks, EPUB, Gutenberg, Markdown, HTML, TEI", archives="some"),
    "slack": Format("logs", ".slack", "Slack exports: ZIP, folder, or days of one channel", archives="some"),
    "slackdump": Format("logs", ".slackdump", "Slack channels from slackdump: dumps and chunks"),
    "slack-xml": Format("logs", ".slack_xml", "Slack channels with annotated conversations, XML"),
    "discord": Format("logs", ".discord", "DiscordChatExporter's JSON"),
    "matrix": Format("logs", ".matrix", "Matrix rooms: Element's JSON, or events as JSON lines"),
    "telegram": Format("logs", ".telegram", "Telegram Desktop's result.json"),
    "nodes": Format("trees", ".nodes", "Ramify's own tables of nodes, as `data export` writes them", numbered=True),
    "table": Format("posts", ".table", "one post per row: CSV, TSV, Parquet or JSON lines", flat=True),
    "labelled": Format(
        "trees",
        ".labelled",
        "labelled texts and pairs: tables, GLUE, SuperGLUE, SQuAD, SNLI …",
        unsplit={"split": "none"},
        by_shares={"split": "shares"},
        archives="some",
        flat=True,
    ),
    "parallel": Format(
        "trees",
        ".parallel",
        "parallel texts: pairs of files, translated line by line",
        unsplit={"train": "shares", "val": "shares", "test": "shares"},
    ),
    "conll": Format("trees", ".conll", "CoNLL's tables of tokens with tags: a token per line", unsplit={"split": "none"}),
    "chat-table": Format("logs", ".chat_table", "one message per row, in the order of the channel", flat=True),
    # It leaves to `irc` all logs that `irc` reads as well.
    "chat-log": Format(
        "logs", ".chat_log", "chat logs as text in any layout: WhatsApp, …", numbered=True, unannotated={"annotations": "none"}
    ),
    # Last, because tab-separated values may look like a WeeChat log.
    "irc": Format(
        "logs", ".irc", "IRC logs, as written by clients and bots", numbered=True, unannotated={"annotations": "none"}
    ),
    "text": Format("posts", ".text", "plain text: documents, paragraphs or lines"),
}


@dataclass(frozen=True)
class Inputs:
    """Files and folders whose format is known, and the options of its reader. `counts` counts all that is read from them."""

    paths: list[Path]
    format: Format
    options: Mapping[str, Any]
    counts: "ReadCounts"
    given: list[Path]
    """The inputs as the user named them: archives are in `paths` as folders or files into which they were unpacked."""
    unpacked: "Sequence[Unpacked]" = ()

    def records(self, policy: "Policy | None" = None) -> Iterator[Any]:
        """Record batches of posts, or trees (see `Format.records`)."""
        # A generator, so that unpacked files remain while it is read.
        yield from _told(self.format.records(self.paths, self.counts, policy, **self.options), self.counts)

    def logs(self) -> Iterator[Any]:
        """The logs of a format of logs, whose messages stream."""
        for log in _told(self.format.reads(self.paths, self.counts, **self.options), self.counts):
            yield replace(log, messages=_told(log.messages, self.counts))

    def left_out(self) -> dict[str, list[str]]:
        """Folder or archive -> the files in it that are not read."""
        media = {str(archive.archive): archive.left_out for archive in self.unpacked if archive.left_out}
        return media | {self.counts.spelled(str(folder)): names for folder, names in left_out(self.paths).items()}


def _told(items: Iterator[Any], counts: "ReadCounts") -> Iterator[Any]:
    with _spelled(counts):
        yield from items


@contextmanager
def _spelled(counts: "ReadCounts") -> Iterator[None]:
    """Errors name archives in place of the folders into which they were unpacked. Whatever a reader raises beyond a record,
    which `base.guarded` counts, becomes a `RamifyError`."""
    try:
        yield
    except RamifyError as error:
        if (text := counts.spelled(f"{error}")) == f"{error}":
            raise
        raise RamifyError(text) from None
    except (OSError, MemoryError):
        raise
    except Exception as error:
        last = next((f" The last fault was {where[-1]}." for where in reversed(counts.examples.values())), "")
        raise RamifyError(
            f"the input cannot be read any further ({type(error).__name__}: {shortened(str(error))}).{last} Check that it is "
            "complete, or remove the damaged part."
        ) from error


_IMPLIED = {"pattern": "chat-log", "children": "nested"}
"""Option -> the only format that has it."""


def _ignore(line: str) -> None:
    pass


def open_inputs(
    paths: Sequence[str | Path],
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    unannotated: bool = False,
    verbose: bool = False,
    tell: Callable[[str], None] = _ignore,
) -> Inputs:
    """The way from files and folders to their records: leave out empty files, find the format, and check its options.

    Without a `format`, inputs with an option `pattern` are chat logs, and those with `children` are nested posts; otherwise
    the format is guessed. The options `text` and `label` name columns of every kind of table. `unannotated` leaves out what
    people annotated afterwards, unless an option asks for it. `verbose`: see `detect_format`. `tell` receives lines for the
    user: files that are left out of folders, and the guessed format. ZIP and tar archives that the reader does not open itself
    are unpacked first. Raises `RamifyError` if an input is missing, or if the format or an option is unknown.
    """
    from ramify.readers.base import ReadCounts

    given, options, counts = [Path(path) for path in paths], dict(options or {}), ReadCounts()
    check_paths(given)
    format = format or next((_IMPLIED[name] for name in options if name in _IMPLIED), None)
    files = _without_empty(given, counts)
    files, unpacked = _unpack(files, format, counts)
    with _spelled(counts):
        check_paths(files)
        guessed = format or detect_format(files, verbose=verbose, columns=_columns_in(options))
        reader = find_format(guessed)
        options = _with_columns(reader, options)
        reader.check(options)
        inputs = Inputs(files, reader, {**reader.unannotated, **options} if unannotated else options, counts, given, unpacked)
        for folder, names in inputs.left_out().items():
            tell(f"left out of {folder}: {_shortened(names)}")
        if format is None:
            tell(f"format: {guessed} ({reader.summary}), guessed; --format overrides it")
        elif reader.flat:
            _warn_of_nested(files, reader, counts, tell)
    return inputs


def _unpack(paths: list[Path], format: str | None, counts: "ReadCounts") -> tuple[list[Path], list["Unpacked"]]:
    """The paths, with the content of archives that no reader opens itself in place of them."""
    from ramify.readers.base import open_bytes
    from ramify.readers.containers import Unpacked, kind_of

    readers = [find_format(format)] if format else [reader for reader in FORMATS.values() if reader.archives != "none"]
    if format and readers[0].archives == "all":
        return paths, []
    files, unpacked = [], []
    for path in paths:
        if path != STANDARD and (kind := kind_of(path)):
            with open_bytes(path, archives=True) as stream:
                head = stream.read(1 << 16)
            if all(reader.archives == "none" or reader.refuses(path, head, {}) for reader in readers):
                unpacked.append(archive := Unpacked(path, kind))
                counts.spellings[str(archive.root)] = str(path)
                for name, times in (+archive.doubled).items():
                    counts.leave_out("doubled_file", f"{path}/{name}: only the last file of this name is read", times)
                path = archive.path
        files.append(path)
    return files, unpacked


def _warn_of_nested(paths: Sequence[Path], reader: Format, counts: "ReadCounts", tell: Callable[[str], None]) -> None:
    """Count the posts inside the records of files at whose beginning there are some, which the named format leaves unread."""
    from ramify.readers.base import ReadCounts, open_bytes
    from ramify.readers.documents import documents
    from ramify.readers.json_fields import posts_inside
    from ramify.readers.refusals import nested_posts

    for path in list_files(paths):
        if path != STANDARD and path.is_file() and path.stat().st_size:
            with open_bytes(path, archives=True) as stream:
                key = nested_posts(stream.read(1 << 16))
            if key:
                place = counts.spelled(f"{path}")
                tell(
                    f'note: {place} holds a list of posts in "{key}", which the format {reader.name} does not read; '
                    f"--children {key} without --format reads them"
                )
                number = sum(1 for _, value in documents(path, ReadCounts()) for _ in posts_inside(value))
                counts.leave_out("unread_posts", f'{place}: in "{key}"', number)


_NAMED = ("text", "label")
"""Columns that an option of their own names, in every kind of table."""


def _columns_in(options: Mapping[str, Any]) -> dict[str, str]:
    """The names of columns among the options."""
    columns = options.get("columns", {})
    named = {name: options[name] for name in _NAMED if name in options}
    return {**columns, **named} if isinstance(columns, Mapping) else named


def _without_empty(paths: list[Path], counts: "ReadCounts") -> list[Path]:
    """Leave out empty files, such as days without messages, and count them. If all files are empty, all are returned."""
    empty = [path for path in paths if path != STANDARD and path.is_file() and not path.stat().st_size]
    if len(empty) == len(paths):
        return paths
    for path in empty:
        counts.leave_out("empty_file", f"{path}")
    return [path for path in paths if path not in empty]


def _with_columns(reader: Format, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a reader of tables of posts, which has one option for all `columns`. Other readers' options stay."""
    named = {ours: options[ours] for ours in _NAMED if ours in options}
    if not named or "columns" not in reader.options:
        return dict(options)
    columns = options.get("columns", {})
    for ours, theirs in named.items():
        if ours in columns:
            raise RamifyError(f"--column {ours} is given twice, as {columns[ours]!r} and as {theirs!r}. Leave one out.")
    return {name: value for name, value in options.items() if name not in named} | {"columns": columns | named}


def find_format(name: str) -> Format:
    """Return the format of this name. Raises `RamifyError` with the list of formats if there is none."""
    if name not in FORMATS:
        known = "\n".join(f"  {key:<14} {format.summary}" for key, format in FORMATS.items())
        raise RamifyError(f"there is no format {name!r}. The formats are:\n{known}")
    return FORMATS[name]


def detect_format(paths: Sequence[Path], *, verbose: bool = False, columns: Mapping[str, str] | None = None) -> str:
    """Return the first format that accepts all inputs, or all files in them, by their names and first bytes.

    `columns`: canonical name of a column -> its name in a table, as the user gives it. Raises `RamifyError` with the reasons of
    the nearest formats if none does, or with `verbose`, of all formats.
    """
    from ramify.readers.base import A_FOLDER, open_bytes, read_twice
    from ramify.readers.refusals import describe

    check_paths(paths)
    if built := next((path for path in paths if _is_built(path)), None):
        raise RamifyError(
            f"{built} is a data set built by Ramify, not an input file. Name the files it was built from, or export it first: "
            f"ramify data export {built} --out {built.name}.jsonl"
        )
    reasons: dict[str, list[str]] = {name: [] for name in FORMATS}
    heads: dict[Path, bytes] = {}
    for inputs in (paths, list_files(paths)) if any(path.is_dir() for path in paths) else (paths,):
        heads = {}
        for path in inputs:
            read_twice(path, "Name its format with --format.")
            heads[path] = b""
            if not path.is_dir():
                if path != STANDARD and (inputs is not paths or len(paths) > 1) and path.is_file() and not path.stat().st_size:
                    del heads[path]  # a day without messages
                    continue
                with open_bytes(path, archives=True) as stream:
                    heads[path] = stream.read(1 << 16)
        if not heads:
            raise RamifyError(f"all files in {', '.join(map(str, paths))} are empty. Check that they were written completely.")
        for name, format in FORMATS.items():
            refusals = ((path, format.refuses(path, head, columns or {})) for path, head in heads.items())
            refused = next(((path, reason) for path, reason in refusals if reason), None)
            if refused is None:
                return name
            path, reason = refused
            if reason != A_FOLDER:
                whole = reason if len(heads) == 1 and inputs is paths else f"{path}: {reason}"
                # The reason for a folder may be that for a file in it.
                reasons[name] = [earlier for earlier in reasons[name] if not whole.endswith(earlier)] + [whole]
    raise RamifyError(describe(paths, reasons, heads, verbose=verbose))


def _is_built(path: Path) -> bool:
    try:
        info = json.loads((path / "dataset.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and info.keys() >= {"version", "hash", "splits"}


def check_paths(paths: Sequence[Path]) -> None:
    """Raise `RamifyError` if there is no input, if an input does not exist or is a folder without data, or if standard input
    (`-`) is named twice."""
    if not paths:
        raise RamifyError("there is no input. Name at least one file or folder.")
    if list(paths).count(STANDARD) > 1:
        raise RamifyError("- is given twice, but standard input can be read only once. Leave one out.")
    for path in paths:
        if path != STANDARD and not path.exists():
            raise RamifyError(f"there is no file or folder {path}. Check the spelling of the input.")
        if path.is_dir() and not list_files([path]):
            others = left_out([path]).get(path, [])
            holds = f"only {_shortened(others)}, which are not read from a folder" if others else "no files"
            raise RamifyError(f"the folder {path} holds {holds}. Check the spelling of the input, or name the file itself.")


def _shortened(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def read_logs(*paths: str | Path, format: str | None = None, **options: Any) -> Iterator[Any]:
    """Read the logs in files or folders, each as a `Tree`, for `model.disentangle`.

    The format is guessed unless it is named. `options` are passed to its reader. Reply links that people annotated afterwards
    (beside an IRC log, in Molweni) are left out unless the option `annotations` asks for them. Skipped and repaired records are
    not counted here; `open_inputs` counts them. Raises `RamifyError` for formats of posts, because those name their parents.
    """
    inputs = open_inputs(paths, format, options, unannotated=True)
    if inputs.format.yields == "posts":
        raise RamifyError(f"the format {inputs.format.name!r} holds posts, not logs. Read it with `ramify data build`.")
    yield from inputs.records()

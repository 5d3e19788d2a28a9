"""File formats: each a module of this package that turns files into trees, or into batches of posts.

Nothing heavy is imported before a format is used.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ramify.errors import RamifyError


@dataclass(frozen=True)
class Format:
    """`posts`: one post a record, in any order, to be joined into trees; `trees`: every record is a whole tree; `logs`: a
    channel's messages, one after the other."""

    yields: Literal["posts", "trees", "logs"]
    module: str
    summary: str
    numbered: bool = False
    """Do annotations call messages by their ids, where these are ascending whole numbers? (In logs: of their lines, from 0.)"""

    @property
    def name(self) -> str:
        """Its key in `FORMATS`."""
        return self.module.rpartition(".")[2].replace("_", "-")

    def load(self) -> ModuleType:
        """The reader's module, with its functions `read` or `logs`, and `refuses` (see `readers.base`)."""
        return import_module(self.module)

    @property
    def reads(self) -> Callable[..., Iterator[Any]]:
        """Yields record batches, trees, or logs."""
        return getattr(self.load(), "logs" if self.yields == "logs" else "read")

    def records(self, paths: Sequence[Path], report: Any, policy: Any = None, **options: Any) -> Iterator[Any]:
        """Record batches of posts, or trees, one of which may be a log.

        `policy` (a `readers.base.Policy`; None: the default one) is for readers that decide themselves about posts that do
        not fit.
        """
        if self.takes_policy:
            from ramify.readers.base import Policy

            options["policy"] = policy or Policy()
        records = self.reads(paths, report, **options)
        return (log.tree() for log in records) if self.yields == "logs" else records

    @property
    def options(self) -> list[str]:
        """The names of what the reader takes besides files, report and policy."""
        return [name for name in list(signature(self.reads).parameters)[2:] if name != "policy"]

    def check(self, options: Collection[str]) -> None:
        """Raise for the first name that is none of the reader's options."""
        known = self.options
        if unknown := next((name for name in options if name not in known), None):
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise RamifyError(f"the format {self.name!r} has no option {unknown!r}; {has}.")

    @property
    def takes_policy(self) -> bool:
        """Does the reader itself decide about posts that do not fit?"""
        return "policy" in signature(self.reads).parameters


FORMATS: dict[str, Format] = {
    # First, because `guess` takes the first that matches: what trees of ours say about themselves may look like others.
    "jsonl": Format("trees", "ramify.readers.jsonl", "Ramify's own JSON lines, one tree a line", numbered=True),
    "pushshift": Format("posts", "ramify.readers.pushshift", "Reddit dumps, submissions and comments, as JSON lines"),
    "reddit-api": Format("posts", "ramify.readers.reddit_api", "answers of Reddit's API, JSON with nested replies"),
    "stackexchange": Format("posts", "ramify.readers.stackexchange", "Stack Exchange dumps, a folder for each site"),
    "convokit": Format("posts", "ramify.readers.convokit", "ConvoKit corpora, a folder each"),
    "cmv-modes": Format("trees", "ramify.readers.cmv_modes", "change-my-view-modes, XML with claims and premises"),
    "cmv-chains": Format("posts", "ramify.readers.cmv_chains", "chains of change-my-view comments, ad hominem or not"),
    "oasst": Format("posts", "ramify.readers.oasst", "OpenAssistant's conversation trees"),
    "molweni": Format("trees", "ramify.readers.molweni", "Molweni's dialogues with discourse relations"),
    "slack": Format("logs", "ramify.readers.slack", "Slack's exports: ZIP, folder, or days of a channel"),
    "slack-xml": Format("logs", "ramify.readers.slack_xml", "Slack channels with conversations marked, XML"),
    "discord": Format("logs", "ramify.readers.discord", "DiscordChatExporter's JSON"),
    "matrix": Format("logs", "ramify.readers.matrix", "Matrix rooms: Element's JSON, or events as JSON lines"),
    "telegram": Format("logs", "ramify.readers.telegram", "Telegram Desktop's result.json"),
    "table": Format("posts", "ramify.readers.table", "one post a row: CSV, TSV, Parquet or JSON lines"),
    "chat-table": Format("logs", "ramify.readers.chat_table", "one message a row, in the order of the channel"),
    # Last, because tab-separated values may look like a log of WeeChat's.
    "irc": Format("logs", "ramify.readers.irc", "logs of IRC channels, as clients and bots write them", numbered=True),
}


def find(name: str) -> Format:
    """The format of this name; raises with the list of formats."""
    if name not in FORMATS:
        known = "\n".join(f"  {each:<14} {format.summary}" for each, format in FORMATS.items())
        raise RamifyError(f"there is no format {name!r}. The formats are:\n{known}")
    return FORMATS[name]


def guess(paths: Sequence[Path]) -> str:
    """The first format that refuses none of the inputs by their names and first bytes, or no file of the folders among them.

    Raises with what each format refused, and why.
    """
    from ramify.readers.base import A_FOLDER, open_bytes, read_twice

    check(paths)
    if built := next((path for path in paths if _is_built(path)), None):
        raise RamifyError(
            f"{built} is a data set that Ramify built, and no input. Give what it was built from, or write it out: "
            f"ramify data export {built} --out {built.name}.jsonl"
        )
    reasons: dict[str, list[str]] = {name: [] for name in FORMATS}
    for inputs in (paths, files(paths)) if any(path.is_dir() for path in paths) else (paths,):
        heads = {}
        for path in inputs:
            read_twice(path, "Name its format with --format.")
            heads[path] = b""
            if not path.is_dir():
                if (inputs is not paths or len(paths) > 1) and path.is_file() and not path.stat().st_size:
                    del heads[path]  # a day on which nobody said anything
                    continue
                with open_bytes(path) as stream:
                    heads[path] = stream.read(1 << 16)
        if not heads:
            raise RamifyError(f"all files in {', '.join(map(str, paths))} are empty. Check that they were written completely.")
        for name, format in FORMATS.items():
            refuses = format.load().refuses
            refused = next(((path, reason) for path, head in heads.items() if (reason := refuses(path, head))), None)
            if refused is None:
                return name
            path, reason = refused
            if reason != A_FOLDER:
                reasons[name].append(reason if len(heads) == 1 and inputs is paths else f"{path}: {reason}")
    tried = "\n".join(f"  {name:<14} {'; '.join(each)}" for name, each in reasons.items())
    raise RamifyError(
        f"cannot tell the format of {', '.join(map(str, paths))}. Each was tried, and refused it:\n{tried}\n"
        "If it is one of them all the same, name it with --format."
    )


def without_empty(paths: Sequence[Path], report: Any) -> list[Path]:
    """Without empty files, which are counted, unless all are: on some days nobody says a thing."""
    empty = [path for path in paths if path.is_file() and not path.stat().st_size]
    if len(empty) == len(paths):
        return list(paths)
    for path in empty:
        report.read += 1
        report.skip("empty_file", f"{path}")
    return [path for path in paths if path not in empty]


def _is_built(path: Path) -> bool:
    try:
        info = json.loads((path / "dataset.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and info.keys() >= {"version", "hash", "splits"}


def check(paths: Sequence[Path]) -> None:
    """Raise where there is nothing to read."""
    if not paths:
        raise RamifyError("nothing to build from: name at least one input file.")
    for path in paths:
        if not path.exists():
            raise RamifyError(f"there is no file or folder {path}. Check the spelling of the input.")
        if path.is_dir() and not files([path]):
            raise RamifyError(f"the folder {path} is empty. Check the spelling of the input.")


def files(paths: Sequence[Path]) -> list[Path]:
    """The files among the paths and, sorted and without hidden ones, in the folders among them."""
    found = []
    for path in paths:
        if path.is_dir():
            inside = (each for each in path.rglob("*") if each.is_file())
            found += sorted(each for each in inside if not any(part.startswith(".") for part in each.relative_to(path).parts))
        else:
            found.append(path)
    return found


def read_logs(*paths: str | Path, format: str | None = None, **options: Any) -> Iterator[Any]:
    """The logs in files or folders, each a `Tree`; the format is guessed unless it is named, and `options` are the format's.

    For `model.disentangle`. What a reader leaves out or mends is not told here: `ramify data build` and `disentangle` tell.
    Raises `RamifyError` for formats whose posts say themselves what they answer.
    """
    from ramify.readers.base import Report

    own = [Path(path) for path in paths]
    check(own)
    known = find(format or guess(own))
    if known.yields == "posts":
        raise RamifyError(f"the format {known.name!r} holds posts, no logs: read them with `ramify data build`.")
    known.check(options)
    yield from known.records(own, Report(), **options)

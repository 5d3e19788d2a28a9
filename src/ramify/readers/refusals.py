"""The message for an input that no format accepts: the formats that come nearest, and why they reject it."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ramify.readers.base import TAR, ZIP, archive_kind
from ramify.readers.json_fields import beginnings, posts_inside

SHAPES: dict[str, tuple[str, ...]] = {
    "json": (
        *("jsonl", "nested", "pushshift", "reddit-api", "convokit", "oasst", "molweni", "chat-json", "slack", "slackdump"),
        *("discord", "matrix", "telegram", "labelled", "table", "chat-table"),
    ),
    "xml": ("stackexchange", "cmv-modes", "book", "play", "slack-xml"),
    "zip": ("book", "slack", "labelled"),
    "tar": ("cmv-chains",),
    "table": ("labelled", "conll", "nodes", "table", "chat-table"),
    "text": ("book", "mail", "chat-log", "irc", "text"),
}
"""Shape of files -> the formats of such files. A format without a shape ranks between those of the right and of a wrong one."""

NEAREST = 3

_ABSENCE = re.compile(r"(?:^|: )(?:no|not) ")

_ADVICE: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb'class="message (?:default|service) clearfix'),
        "It is Telegram Desktop's export as HTML. Export the chat as machine-readable JSON, and name its result.json.",
    ),
    (
        re.compile(rb"DiscordChatExporter|chatlog__message"),
        "It is DiscordChatExporter's export as HTML. Export the channel as JSON (--format Json).",
    ),
    (re.compile(rb"\ASQLite format 3\0"), "It is an SQLite database. Export its tables as CSV (sqlite3 -csv -header)."),
)
"""First bytes of files that people have in place of one that is read -> the file to name instead."""


@lru_cache(maxsize=8)  # for several formats
def nested_posts(head: bytes) -> str:
    """The field with posts inside a record of JSON. "" if there is none."""
    return next((name for name, _ in posts_inside(beginnings(head))), "")


_SHAPE_NAMES = {
    "json": "JSON",
    "xml": "XML or HTML",
    "zip": "a ZIP archive",
    "tar": "a tar archive",
    "table": "a table",
    "text": "text",
    "": "a binary file",
}
_SIMILAR = {"text": "table", "table": "text"}
_PACKED = {ZIP: "zip", TAR: "tar"}
_MARKED = re.compile(r'"(\w+)"')
_TABLES = (".csv", ".tsv", ".parquet")


def shape_of(path: Path, head: bytes) -> str:
    """The shape of a file, by its name and its first bytes, decompressed: a value of `SHAPES`, or "" for other binary files."""
    if (kind := archive_kind(head)) in _PACKED:
        return _PACKED[kind]
    if head.startswith(b"PAR1"):
        return "table"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[{", b"[\n", b"[ ", b"[\r", b"[]")):
        return "json"
    if start.startswith(b"<") and re.match(rb"<[!?a-zA-Z]", start):
        # In chat logs, names stand in such brackets.
        first = start.splitlines()[0]
        if first.rstrip().endswith(b">") or first.startswith((b"<?xml", b"<!")):
            return "xml"
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ""
    return "table" if any(ending in path.name for ending in _TABLES) or _has_columns(head) else "text"


def _has_columns(head: bytes) -> bool:
    """Whether the first lines have equally many tabs or semicolons."""
    lines = [line for line in head.splitlines()[:-1] if line.strip()][:5]
    return len(lines) > 1 and any(lines[0].count(mark) and len({line.count(mark) for line in lines}) == 1 for mark in b"\t;")


def describe(
    paths: Sequence[Path], reasons: Mapping[str, Sequence[str]], heads: Mapping[Path, bytes], *, verbose: bool = False
) -> str:
    """The text of the error. `reasons`: format -> why it rejects the inputs. `heads`: the first bytes of some files."""
    shapes = {shape_of(path, head) for path, head in heads.items() if not path.is_dir()}
    near = {_SIMILAR[shape] for shape in shapes & _SIMILAR.keys()}
    content = b"\n".join(heads.values())

    def rank(name: str) -> tuple[int, float, bool]:
        its = {shape for shape, names in SHAPES.items() if name in names}
        fits = 0 if shapes & its else 1 if not its or near & its else 2
        marks = {mark for reason in reasons[name] for mark in _MARKED.findall(reason)}
        present = sum(f'"{mark}"'.encode() in content for mark in marks)
        is_absence = all(_ABSENCE.search(reason) for reason in reasons[name])
        return fits, -present / max(len(marks), 1), is_absence

    shown = list(reasons) if verbose else sorted(reasons, key=rank)[:NEAREST]
    width = max(map(len, shown), default=0) + 2
    lines = "\n".join(f"  {name:<{width}}{'; '.join(reasons[name])}" for name in shown)
    looks = f" It looks like {_SHAPE_NAMES[next(iter(shapes))]}." if len(shapes) == 1 else ""
    text = "If it is plain text, --format text reads it. " if shapes == {"text"} else ""
    if advice := next((advice for mark, advice in _ADVICE if mark.search(content)), ""):
        return f"cannot detect the format of {', '.join(map(str, paths))}. {advice}"
    others = len(reasons) - len(shown)
    more = f" --verbose lists the other {others}." if others > 0 else ""
    return (
        f"cannot detect the format of {', '.join(map(str, paths))}.{looks} "
        f"{'Every format rejects it' if verbose else 'The nearest formats reject it'}:\n{lines}\n"
        "If the input is in one of these formats, mend it as the reason says, or name the format with --format. "
        f"{text}Otherwise, Ramify has no format for it.{more}"
    )

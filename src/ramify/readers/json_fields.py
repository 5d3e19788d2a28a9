"""Fields of foreign JSON objects by the names that a table of layouts gives, and the first bytes of a file as a value."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from html import unescape
from typing import Any

from ramify.readers.base import ReadCounts
from ramify.readers.documents import loads
from ramify.readers.markup import html_to_text
from ramify.readers.values import identifier, parse_time, string

Field = str | Callable[[dict[str, Any]], Any]
"""A key, keys joined by points (`user.login`), or a function of the object."""

TEXTS = (
    *("text", "body", "content", "message", "comment", "post_text", "comment_text", "selftext", "raw", "bodyText"),
    *("content_html", "body_html", "bodyHTML", "cooked"),
)
"""Names of the texts of posts; those of HTML are last."""

_NO_POSTS = frozenset(
    (
        *("attachments", "blocks", "crosspost_parent_list", "elements", "embeds", "files", "links", "media", "poll", "polls"),
        *("reactions", "reactiongroups", "mentions", "link_flair_richtext", "author_flair_richtext", "urls"),
        *("annotations", "choices", "entities", "labels", "meta", "metadata", "options", "passage", "paragraphs", "qas"),
        *("sentences", "spans", "tags", "tokens", "words", "text", "text_entities", "body", "content", "facets", "fragments"),
        *("account", "author", "badges", "creator", "owner", "profile", "sender", "user"),
    )
)
"""Names of fields whose objects have texts, but are no posts: parts of a text, authors, attachments, and labelled data."""

_NAMES = ("display_name", "displayName", "username", "login", "acct", "name", "full_name", "email")
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},"]', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}
_ABSENT = object()

MAX_LINES = 100
"""The number of lines whose values tell the layout of JSON lines."""


def at(item: Any, field: Field, default: Any = None) -> Any:
    """The value of a field; the default if it is missing."""
    if not isinstance(field, str):
        return field(item)
    if isinstance(item, dict) and field in item:
        return item[field]
    for key in field.split("."):
        if not isinstance(item, dict) or key not in item:
            return default
        item = item[key]
    return item


def has(item: Any, field: Field) -> bool:
    """Whether an object has a field, be it null."""
    return at(item, field, _ABSENT) is not _ABSENT


def first(item: Any, names: Sequence[Field], document: Any = None) -> Any:
    """The first value that is neither missing, null, nor an empty text. A name that begins with "/" is of the document."""
    values = (at(document, name[1:]) if isinstance(name, str) and name[:1] == "/" else at(item, name) for name in names)
    return next((value for value in values if value is not None and value != ""), None)


def id_of(item: Any, names: Sequence[Field]) -> str | None:
    """The id in the first field that has one. A whole number may be written as a float."""
    value = first(item, names)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else identifier(value)


def author_of(item: Any, names: Sequence[Field]) -> str | None:
    """The name of an author, who may be an object with one of the usual keys."""
    value = first(item, names)
    return identifier(first(value, _NAMES) if isinstance(value, dict) else value)


def time_of(item: Any, names: Sequence[Field], counts: ReadCounts, where: str) -> float | None:
    """`parse_time` of the first value. A list or an object is counted as `bad_time`."""
    value = first(item, names)
    if isinstance(value, list | dict):
        counts.repair("bad_time", f"{where}: a list or an object")
        return None
    return parse_time(value, counts, where)


def text_of(item: Any, plain: Sequence[Field], html: Sequence[Field] = ()) -> str:
    """The first text that is not blank; those of `html` without their markup. Raises `TypeError` for another value."""
    blank = ""
    for names, convert in ((plain, str), (html, html_to_text)):
        value = first(item, names)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"its text is of the type {type(value).__name__}")
        if value and value.strip():
            return convert(value)
        blank = value or blank
    return blank


def title_of(item: Any, names: Sequence[Field], document: Any = None) -> str:
    return unescape(string(first(item, names, document)) or "")


def text_field(item: Any, names: Sequence[Field] = TEXTS) -> Field | None:
    """The first of the fields that holds a text; None if there is none, as in what is no post."""
    return next((name for name in names if isinstance(text := at(item, name), str) and text.strip()), None)


def posts_below(
    record: dict[str, Any], read: Iterable[str] = (), texts: Sequence[Field] = TEXTS
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (field, post) for the posts in lists, or in objects of nothing but objects, below the fields of a record.

    The fields in `read` are passed over. The posts in these posts are not yielded.
    """
    todo = [(name, value) for name, value in reversed(_fields(record)) if name not in read]
    while todo:
        name, value = todo.pop()
        are_alike = isinstance(value, list) or all(isinstance(part, dict) for part in value.values())
        for _, part in reversed(_fields(value)):
            if are_alike and isinstance(part, dict) and text_field(part, texts) and SPAN_START not in part:
                yield name, part
            else:
                todo.append((name, part))


SPAN_START = "answer_start"
"""A field of the parts of texts that answer questions. They are no posts."""


def _fields(value: dict[str, Any] | list[Any]) -> list[tuple[str, dict[str, Any] | list[Any]]]:
    """The objects and lists in an object or in a list, but for the fields that lead to no posts."""
    fields = value.items() if isinstance(value, dict) else (("", part) for part in value)
    return [(name, part) for name, part in fields if isinstance(part, dict | list) and name.lower() not in _NO_POSTS]


def posts_inside(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (field, post) for the posts that are inside the records of a value, or inside such posts.

    Records are the uppermost objects with a text of any name, in any lists, in objects without one, and in a list "data".
    """
    todo, records = [value] if isinstance(value, dict | list) else [], list[dict[str, Any]]()
    while todo:
        part = todo.pop()
        if isinstance(part, dict) and isinstance(part.get("data"), list):
            todo.append(part["data"])
        elif isinstance(part, dict) and any(isinstance(text, str) for text in part.values()):
            records.append(part)
        else:
            todo += [inside for _, inside in reversed(_fields(part))]
    for record in records:  # which grows
        for name, post in posts_below(record):
            records.append(post)
            yield name, post


@lru_cache(maxsize=8)
def beginnings(head: bytes) -> list[Any]:
    """The objects and lists in the first bytes of a file of JSON lines, or the value that they begin. They must not be changed.

    A value that goes on beyond the bytes is closed after its last complete member.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "ignore").lstrip()
    if not text.startswith(("{", "[")):
        return []
    values = [_loaded(line) for line in text.splitlines()[:MAX_LINES] if line.startswith(("{", "["))]
    if values and values[0] is not None:
        return [value for value in values if value is not None]
    opened: list[str] = []
    end = 0
    for match in _TOKENS.finditer(text):
        sign = match[0]
        if sign in _CLOSES:
            opened.append(sign)
            end = match.end()
        elif sign == ",":
            end = match.start()
        elif sign in ("}", "]"):
            if opened:
                opened.pop()
            end = match.end()
            if not opened:
                break
        elif sign == '"':
            break  # a text that goes on beyond the bytes
    # Nothing is opened or closed behind the last place, so what is open at the end is open there, too.
    value = _loaded(text[:end] + "".join(_CLOSES[sign] for sign in reversed(opened)))
    return [] if value is None else [value]


def _loaded(text: str) -> Any:
    try:
        return loads(text.encode())
    except (ValueError, RecursionError):
        return None

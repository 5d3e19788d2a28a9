"""HTML pages: headings divide a page, and semantic types do where it has them."""

import re
from html import unescape
from pathlib import Path

from ramify.readers.base import ReadCounts
from ramify.readers.book.container import read_whole
from ramify.readers.book.outline import Outline, Work, clean_line
from ramify.readers.book.xhtml import Page, decode_html, read_pages

SUFFIXES = (".html", ".htm", ".xhtml")

_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_META = re.compile(r"<meta\b[^>]*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_LANGUAGE = re.compile(r"""<html\b[^>]*\blang\s*=\s*["']?([\w-]+)""", re.IGNORECASE)
_NAMES = {
    **{"author": "author", "dc.creator": "author", "dcterms.creator": "author", "dc.title": "title", "dc.source": "source"},
    **dict.fromkeys(("language", "content-language", "dc.language", "dcterms.language"), "language"),
}


def looks_like_html(head: bytes) -> bool:
    start = head[:4096].lower()
    return b"<html" in start or b"<!doctype html" in start


def read(path: Path, counts: ReadCounts, name: str, language: str = "") -> Work:
    """Read a page. `name` becomes the id of its tree."""
    data = read_whole(path, counts)
    meta = _meta(decode_html(data[: 1 << 16])[0])
    outline = Outline(counts, f"{path}", language or meta.get("language", ""))
    read_pages([Page(data, is_html=not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<?xml"))], outline)
    return Work(name, f"{path}", outline, meta)


def _meta(head: str) -> dict[str, str]:
    meta: dict[str, str] = {}
    for tag in _META.findall(head):
        attributes = {key.lower(): "".join(values) for key, *values in _ATTRIBUTE.findall(tag)}
        name = _NAMES.get((attributes.get("name") or attributes.get("http-equiv", "")).lower())
        if name and (content := clean_line(unescape(attributes.get("content", "")))):
            meta.setdefault(name, content)
    if "title" not in meta and (title_match := _TITLE.search(head)) and (title := clean_line(unescape(title_match[1]))):
        meta["title"] = title
    if language_match := _LANGUAGE.search(head):
        meta["language"] = language_match[1]
    return meta

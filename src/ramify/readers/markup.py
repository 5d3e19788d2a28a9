"""Untrusted XML and HTML: a streaming XML parser that refuses entity definitions, and conversion of HTML to text."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from xml.parsers import expat

MAX_ELEMENT_DEPTH = 1_000
MAX_TOKEN_BYTES = 64 << 20
_INVALID_TOKEN = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]


class MarkupError(Exception):
    """Markup that is not well-formed or is refused.

    `line` (from 1) and `offset` are places in the data fed to the parser. They point at the unexpected character if `is_sign`,
    else at the start of the faulty tag.
    """

    def __init__(self, message: str, line: int, offset: int, is_sign: bool = False) -> None:
        super().__init__(message)
        self.line = line
        self.offset = offset
        self.is_sign = is_sign


class XmlParser:
    """A parser that calls `start(name, attributes)`, `end(name)` and `text(data)` as it is fed.

    `entity(name)` is called for an entity that only an external definition could explain, which is never read.

    Raises `MarkupError` for malformed XML, entity definitions, elements nested deeper than 1,000, and single tags over 64 MiB.
    Entity definitions are refused because they can expand without bound or open files and addresses.
    """

    def __init__(
        self,
        start: Callable[[str, dict[str, str]], None],
        end: Callable[[str], None] | None = None,
        text: Callable[[str], None] | None = None,
        entity: Callable[[str], None] | None = None,
    ) -> None:
        self._start, self._end = start, end
        self._depth = self._fed = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.EntityDeclHandler = self._on_entity
        if text:
            parser.CharacterDataHandler = text
        if entity:
            parser.SkippedEntityHandler = lambda name, is_parameter: None if is_parameter else entity(name)

    def feed(self, data: bytes, final: bool = False) -> None:
        self._fed += len(data)
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as error:
            is_sign = error.code == _INVALID_TOKEN
            raise MarkupError(expat.ErrorString(error.code), error.lineno, self._parser.ErrorByteIndex, is_sign) from None
        except (ValueError, LookupError) as error:
            raise self._error(str(error)) from None
        if self._fed - self._parser.CurrentByteIndex > MAX_TOKEN_BYTES:
            raise self._error(f"a tag longer than {MAX_TOKEN_BYTES:,} bytes")

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def _on_start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_ELEMENT_DEPTH:
            raise self._error(f"elements nested deeper than {MAX_ELEMENT_DEPTH:,}")
        self._start(name, attributes)

    def _on_end(self, name: str) -> None:
        self._depth -= 1
        if self._end:
            self._end(name)

    def _on_entity(self, name: str, *_: object) -> None:
        raise self._error(f"the definition of the entity {name!r} is refused")

    def _error(self, message: str) -> MarkupError:
        return MarkupError(message, self.line, self._parser.CurrentByteIndex)


# --- HTML ---------------------------------------------------------------------------------------------------------------

_PARAGRAPHS = re.compile("p|pre|blockquote|h[1-6]|[uod]l|table|hr|div|section|article|header|footer|figure").fullmatch
_LINES = re.compile("br|li|tr|dt|dd").fullmatch
_HIDDEN = frozenset(("script", "style", "template"))
_SPACE = re.compile(r"[ \t\n\r\f]+")


def html_to_text(html: str) -> str:
    """The visible text of HTML: blocks as paragraphs, code unchanged, links and pictures as their texts without addresses."""
    if "<" not in html and "&" not in html:
        return html.strip()
    parser = _TextOf()
    parser.feed(html)
    parser.close()
    return parser.result()


class LenientHtmlParser(HTMLParser):
    """An HTML parser that takes a malformed marked section, such as "<![x", for a comment instead of failing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i)


class _TextOf(LenientHtmlParser):
    def __init__(self) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._breaks = 0
        self._pre = 0
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._block(tag)
        if tag == "pre":
            self._pre += 1
        elif tag in _HIDDEN:
            self._hidden += 1
        elif tag == "img":
            self.handle_data(dict(attrs).get("alt") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN and tag != "pre":
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not _LINES(tag):
            self._block(tag)
        if tag == "pre":
            self._pre = max(0, self._pre - 1)
        elif tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)

    def _block(self, tag: str) -> None:
        if _PARAGRAPHS(tag):
            self._breaks = 2
        elif _LINES(tag):
            self._breaks = max(self._breaks, 1)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if not self._pre:
            data = _SPACE.sub(" ", data)
        if self._breaks:
            data = data.lstrip("\n") if self._pre else data.lstrip(" ")
        if not data:
            return
        if self._breaks and self._parts:
            self._parts[-1] = self._parts[-1].rstrip()
            self._parts.append("\n" * self._breaks)
        self._breaks = 0
        if data.startswith(" ") and not self._pre and self._parts and self._parts[-1].endswith((" ", "\n")):
            data = data[1:]
        self._parts.append(data)

    def result(self) -> str:
        return "".join(self._parts).strip()

"""Plays as XML in Jon Bosak's markup, such as Shakespeare's: documents of acts, scenes, speeches and lines."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers.base import ReadCounts, file_name, fitting_files
from ramify.readers.book.container import read_whole
from ramify.readers.listing import list_files
from ramify.readers.markup import MarkupError, XmlParser
from ramify.readers.messages import LogNames, head_of
from ramify.readers.names import unpacked
from ramify.tree import Node, Tree

LEVELS = ("act", "scene", "speech", "line")
_LEVEL_OF = {"ACT": 0, "INDUCT": 0, "SCENE": 1, "SPEECH": 2}
_EITHER = ("PROLOGUE", "EPILOGUE")
_LEFT_OUT = {
    "STAGEDIR": "stage_direction", "SUBHEAD": "stage_direction", "PERSONAE": "front_matter", "FM": "front_matter",
    "SCNDESCR": "front_matter", "PLAYSUBT": "front_matter",
}  # fmt: skip
_PLAY = re.compile(rb"<PLAY[\s>]")
_PARTS = re.compile(rb"<(?:ACT|SCENE|SPEECH|PERSONAE|FM|INDUCT|PROLOGUE)[\s>]")


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return "" if any(map(_is_play, list_files([path]))) else "a folder without plays"
    return "" if _PLAY.search(head) and _PARTS.search(head) else "no <PLAY> with acts among its first bytes"


def _is_play(file: Path) -> bool:
    return unpacked(file.name).lower().endswith(".xml") and not refuses(file, head_of(file))


def read(paths: Sequence[Path], counts: ReadCounts) -> Iterator[Tree]:
    """Yield a document per play. Raises `RamifyError` for XML that is not well-formed."""
    given = LogNames()
    for file in fitting_files(paths, _is_play, counts):
        play = _Play(file, counts)
        try:
            play.parser.feed(read_whole(file, counts), final=True)
        except MarkupError as error:
            raise RamifyError(f"{file}, line {error.line}: {error}. Expected well-formed XML. Repair the file.") from None
        counts.read += len(play.nodes)
        yield Tree(tuple(play.nodes), id=given.give(Path(unpacked(file_name(file))).stem), meta=play.meta)


@dataclass(eq=False)
class _Part:
    """An open act, scene or speech; its node is added with its first line."""

    title: str = ""
    speakers: tuple[str, ...] = ()
    node: int | None = None


class _Play:
    """Turns the events of a parser into nodes."""

    def __init__(self, path: Path, counts: ReadCounts) -> None:
        self.nodes = [Node(kind="document", id="0")]
        self.meta: dict[str, str] = {}
        self.parser = XmlParser(self._start, self._end, self._text)
        self._path, self._counts = path, counts
        self._tags: list[str] = []
        self._open: list[_Part | None] = [None, None, None]
        self._numbers: list[int] = [0, 0, 0, 0]
        self._words: list[str] = []
        self._left_out = 0

    @property
    def _where(self) -> str:
        return f"{self._path}, line {self.parser.line}"

    def _level(self, tag: str) -> int | None:
        return int(any(each in _LEVEL_OF for each in self._tags)) if tag in _EITHER else _LEVEL_OF.get(tag)

    def _start(self, tag: str, attributes: object) -> None:
        level = self._level(tag)
        self._tags.append(tag)
        if self._left_out or tag in _LEFT_OUT:
            self._left_out += 1
            if self._left_out == 1:
                self._counts.leave_out(_LEFT_OUT[tag], self._where)
        elif level is not None:
            self._open[level:] = [_Part(), *[None] * (2 - level)]
        elif tag in ("TITLE", "SPEAKER", "LINE"):
            self._words.clear()

    def _text(self, data: str) -> None:
        if not self._left_out:
            self._words.append(data)

    def _end(self, tag: str) -> None:
        self._tags.pop()
        if self._left_out:
            self._left_out -= 1
            return
        text = " ".join("".join(self._words).split())
        part = next((each for each in reversed(self._open) if each is not None), None)
        if tag == "LINE":
            self._line(text)
        elif tag == "SPEAKER" and part is not None and text:
            part.speakers = (*part.speakers, text)
        elif tag == "TITLE" and part is not None:
            part.title = text
        elif tag == "TITLE" and self._tags == ["PLAY"]:
            self.meta["title"] = text
        elif (level := self._level(tag)) is not None:
            ended = self._open[level]
            if ended is not None and ended.node is None:
                self._counts.leave_out("empty_division", f"{self._where}: <{tag}>")
            self._open[level:] = [None] * (3 - level)

    def _line(self, text: str) -> None:
        if not text:
            self._counts.leave_out("empty", self._where)
            return
        parent = 0
        for level, part in enumerate(self._open):
            if part is None:
                self._counts.repair("missing_level", f"{self._where}: no {LEVELS[level]}")
                part = self._open[level] = _Part()
            if part.node is None:
                part.node = self._add(level, parent, part.title, "", part)
            parent = part.node
        self._add(3, parent, "", text, self._open[2])

    def _add(self, level: int, parent: int, title: str, text: str, part: _Part | None) -> int:
        self._numbers[level:] = [self._numbers[level] + 1, *[0] * (3 - level)]
        name = ".".join(map(str, self._numbers[: level + 1]))
        author = ", ".join(part.speakers) if part is not None and part.speakers else None
        self.nodes.append(Node(text, (parent,), id=name, author=author, kind=LEVELS[level], label=title or None))
        return len(self.nodes) - 1

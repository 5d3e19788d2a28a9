"""The change-my-view-modes corpus (XML, versions 1.0 and 2.0): threads with annotated claims, premises and relations.

A file holds a submission and one chain of replies. Files about one submission become one tree, with one branch per chain. The
annotations are removed from the text, and a node's label is the list of its components:

    {"kind": "claim" | "premise", "id", "type", "start", "end", "relation", "refs", "relation_id"}

start and end count characters of the node's text (title, blank line, body). Ids are unique within a chain; the id of the
submission's title is "title". The outcome of a chain ("positive": a delta) is in the tree's meta, under its first reply.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ramify.readers.base import Held, ReadCounts, lacks, open_bytes, skip_record
from ramify.readers.listing import list_files
from ramify.readers.markup import MarkupError, XmlParser
from ramify.readers.reddit import author
from ramify.tree import Node, Tree, encodable

COMPONENTS = ("claim", "premise")
OUTCOMES = ("positive", "negative")
MAX_FILE_BYTES = 64 << 20


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        threads = any(_looks_like_a_thread(file) for file in list_files([path]) if file.suffix == ".xml")
        return "" if threads else "a folder without an .xml file of a <thread>"
    return lacks(path, head, b"<thread ID=", b"<OP")


def _looks_like_a_thread(path: Path) -> bool:
    with path.open("rb") as file:
        return not refuses(path, file.read(1 << 16))


def read(paths: Sequence[Path], counts: ReadCounts) -> Iterator[Tree]:
    """Read threads. A file that is not well-formed XML is skipped and counted once.

    The newer of two versions of a post is kept.
    """
    trees: dict[str, _Draft] = {}
    held = Held("and the files before it have", "Build from fewer or smaller files.")
    # Version 2.0 before 1.0.
    for path in sorted((file for file in list_files(paths) if file.suffix == ".xml" or file in paths), reverse=True):
        try:
            _add(trees, _parse(path, counts, held), path, counts)
        except MarkupError as error:
            counts.leave_out("bad_xml", f"{path}, line {error.line}: {error}")
        except Exception as error:
            skip_record(error, f"{path}", counts)
    for name, draft in sorted(trees.items()):
        yield Tree(tuple(draft.nodes), id=name, meta=draft.meta)


@dataclass
class _Part:
    """A title, a submission's body or a reply."""

    tag: str
    id: str
    author: str | None = None
    text: str = ""
    components: list[dict[str, Any]] = field(default_factory=list)

    def put(self, text: str, by: int) -> None:
        """Give the part another text, in which its components are shifted."""
        self.text = text
        for component in self.components:
            for name in ("start", "end"):
                component[name] = min(max(0, component[name] + by), len(text))


@dataclass
class _Draft:
    meta: dict[str, Any]
    nodes: list[Node] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)


def _add(trees: dict[str, _Draft], parts: list[_Part], path: Path, counts: ReadCounts) -> None:
    """Add a file's chain to its tree."""
    for part in parts:
        part.components.sort(key=lambda component: (component["start"], -component["end"]))
        part.put(part.text.strip(), len(part.text.lstrip()) - len(part.text))
    by_tag = {part.tag: part for part in reversed(parts)}
    title, source = (by_tag.get(tag, _Part(tag, "")) for tag in ("title", "source"))
    opening, name = by_tag.get("OP"), by_tag["thread"].id
    if opening is None or not name:
        counts.leave_out("not_a_post", f"{path}: no <OP>, or a thread without an ID")
        return
    draft = trees.setdefault(name, _Draft({"title": title.text, "source": source.text, "outcomes": {}}))
    text = "\n\n".join(part for part in (title.text, opening.text) if part)
    opening.put(text, len(title.text) + 2 if title.text else 0)
    opening.components = [each | {"id": each["id"] or "title"} for each in title.components] + opening.components
    opening.id = name
    parent = _attach(draft, opening, (), path, counts)
    replies = [part for part in parts if part.tag == "reply"]
    for place, reply in enumerate(replies, 1):
        reply.id = reply.id or encodable(f"{path.stem}-{place}")
        parent = _attach(draft, reply, (parent,), path, counts)
    if replies and path.parent.name in OUTCOMES:
        draft.meta["outcomes"].setdefault(replies[0].id, path.parent.name)


def _attach(draft: _Draft, part: _Part, parents: tuple[int, ...], path: Path, counts: ReadCounts) -> int:
    counts.read += 1
    if part.id in draft.places:
        # The submission is in every file of its tree.
        counts.skip("duplicate_id", f"{path}: {part.id}")
    else:
        draft.places[part.id] = len(draft.nodes)
        label = [{name: value for name, value in component.items() if value != ""} for component in part.components]
        draft.nodes.append(Node(part.text, parents, id=part.id, author=author(part.author), label=label))
    return draft.places[part.id]


def _parse(path: Path, counts: ReadCounts, held: Held) -> list[_Part]:
    """The thread, its title, source, submission and replies, in the order of the file."""
    parts: list[_Part] = []
    reading: list[_Part] = []
    opened: list[dict[str, Any]] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if reading:
            opened.append(_component(tag, attributes, len(reading[0].text)))
            return
        parts.append(_Part(tag, attributes.get("ID") or attributes.get("id", ""), attributes.get("author")))
        if tag != "thread":
            reading.append(parts[-1])

    def end(tag: str) -> None:
        if not opened:
            reading.clear()
        elif tag in COMPONENTS:
            reading[0].components.append(opened.pop() | {"end": len(reading[0].text)})
        else:
            opened.pop()

    def text(data: str) -> None:
        if reading:
            reading[0].text += data

    parser = XmlParser(start, end, text)
    with open_bytes(path, counts) as stream:
        data = stream.read(MAX_FILE_BYTES)
        if stream.read(1):
            raise MarkupError(f"longer than {MAX_FILE_BYTES:,} bytes", 1, 0)
    held.add(path, len(data))
    parser.feed(data, final=True)
    if parts[0].tag != "thread":
        raise MarkupError(f"expected <thread>, found <{parts[0].tag}>", 1, 0)
    return parts


def _component(tag: str, attributes: dict[str, str], place: int) -> dict[str, Any]:
    names = {name: attributes.get(name, "") for name in ("id", "type")}
    component: dict[str, Any] = {"kind": tag, **names, "start": place, "end": place}
    if "rel" in attributes:
        component["relation"] = attributes["rel"]
        component["refs"] = [ref for ref in attributes.get("ref", "").split("_") if ref]
    return component | ({"relation_id": attributes["rid"]} if "rid" in attributes else {})

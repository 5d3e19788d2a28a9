"""Trees from outlines: which divisions become levels, and the nodes of each level."""

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ramify.errors import shown
from ramify.readers.base import ReadCounts, bad_option
from ramify.readers.book.headings import Headings
from ramify.readers.book.outline import ABOVE, BELOW, CHAPTER, Division, Paragraph, Work, without_emphasis
from ramify.readers.sentences import sentences
from ramify.tree import DOCUMENT, Node, Tree, encodable

PARAGRAPH = "paragraph"
SENTENCE = "sentence"
DEFAULT_LEVELS = (CHAPTER, PARAGRAPH, SENTENCE)

ROOT_ID = "0"
"""The id of a document's root. Other nodes are numbered: "3.2" is the second child of the third."""

TITLES = " / "
"""Stands between the title of a node and those of divisions that are not levels."""

LONG_SENTENCE = 1_000
"""Words beyond which a sentence is counted. It is kept as it is."""

_PICTURES = re.compile(r"(?:list of )?illustrations", re.IGNORECASE).fullmatch

_SENTENCE_END = re.compile(r"[.!?…。！？][»”’\"')\]]*$").search
_WORD = re.compile(r"[^\W_]+")
_BESIDE_NAMES = ("by", "a", "an", "the", "novel")
"""Words that a title page may have besides the title and the author."""

Role = Literal["above", "chapter", "below"]


def parse_levels(levels: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the levels below the document, from the highest. Raises `RamifyError` if they are not usable."""
    names = [name.strip() for name in (levels.split(",") if isinstance(levels, str) else levels)]
    if names[:1] == [DOCUMENT]:
        names = names[1:]
    text_levels = [name for name in names if name in (PARAGRAPH, SENTENCE)]
    if (
        not text_levels
        or names[-len(text_levels) :] != sorted(text_levels)
        or len(set(names)) != len(names)
        or not all(names)
        or DOCUMENT in names
    ):
        raise bad_option(
            "levels",
            "different names from the highest level to the lowest, of which the last is paragraph or sentence, such as "
            "chapter,paragraph,sentence",
            levels,
        )
    return tuple(names)


def make_tree(work: Work, levels: Sequence[str], divisions: Literal["flatten", "level"], counts: ReadCounts) -> Tree | None:
    """The tree of a work, or None if it holds no paragraph. Left-out and added nodes are counted."""
    root = _unwrapped(work.outline.root)
    _drop_title_page(root, work, counts)
    _drop_empty(root, work, counts)
    if not root.content:
        counts.leave_out("empty_book", f"{work.where}: no paragraph")
        return None
    _join_titles(root)
    roles = _roles(root)
    places, names = _places(root, roles, levels, divisions)
    title = without_emphasis(root.title or str(work.meta.get("title", "")))
    builder = _Builder(title, names, [name for name in levels if name in (PARAGRAPH, SENTENCE)], work, counts)
    for event, item in _walk(root):
        if isinstance(item, Paragraph):
            builder.paragraph(item)
        elif item is not root:
            if event == "begin":
                builder.begin(item, places.get(id(item)))
            else:
                builder.end()
    counts.read += len(builder.nodes)
    return Tree(tuple(builder.nodes), id=work.id, meta={"title": title} | work.meta if title else work.meta)


def _walk(root: Division) -> Iterator[tuple[Literal["begin", "text", "end"], Division | Paragraph]]:
    """Yield the beginnings and ends of divisions, and the paragraphs, in reading order."""
    yield "begin", root
    stack: list[tuple[Division, Iterator[Division | Paragraph]]] = [(root, iter(root.content))]
    while stack:
        division, rest = stack[-1]
        item = next(rest, None)
        if item is None:
            stack.pop()
            yield "end", division
        elif isinstance(item, Paragraph):
            yield "text", item
        else:
            yield "begin", item
            stack.append((item, iter(item.content)))


def _divisions(root: Division) -> Iterator[tuple[Literal["begin", "end"], Division]]:
    """Yield the beginnings and ends of the divisions below the root, in reading order."""
    for event, item in _walk(root):
        if event != "text" and item is not root:
            assert isinstance(item, Division)
            yield event, item


# --- the outline ----------------------------------------------------------------------------------------------------------


def _unwrapped(root: Division) -> Division:
    """The root without a single heading around everything, which is the title of the work."""
    if len(root.content) == 1 and isinstance(only := root.content[0], Division):
        holds_named = any(division.kind or division.divisions for division in only.divisions) or len(only.divisions) > 1
        if not only.kind and holds_named:
            return Division(root.kind, only.title or root.title, only.content)
    return root


def _drop_empty(root: Division, work: Work, counts: ReadCounts) -> None:
    """Remove divisions without any paragraph, and printed tables of contents, and count them."""
    path = [root]
    titles = {item.title.strip(" .:").casefold() for event, item in _divisions(root) if event == "begin"}
    for event, item in list(_divisions(root)):
        if event == "begin":
            path.append(item)
            continue
        path.pop()
        title = item.title.strip(" .:")
        is_contents = not item.divisions and (
            _PICTURES(title) or (work.outline.headings.is_contents(title) and _lists(item, titles, work.outline.headings))
        )
        if is_contents or not item.content:
            path[-1].content = [child for child in path[-1].content if child is not item]
            counts.read += 1
            where = f"{work.where}: {item.kind or 'division'} {shown(item.title)}"
            if is_contents:
                counts.skip("contents", where)
            else:
                counts.skip("empty_division", where)


def _lists(division: Division, titles: Container[str], known: Headings) -> bool:
    """Whether most lines are entries of a table of contents rather than sentences."""
    lines = [line for item in division.content if isinstance(item, Paragraph) for line in item.text.split("\n")]
    sentences = [line for line in lines if _SENTENCE_END(line) and line.strip(" .:").casefold() not in titles]
    return 2 * sum(not known.is_heading(line) for line in sentences) < len(lines) or not lines


def _drop_title_page(root: Division, work: Work, counts: ReadCounts) -> None:
    """Leave out what stands before the first chapter and only repeats the title and the author."""
    names = {*_words(f"{root.title} {work.meta.get('title', '')} {work.meta.get('author', '')}")}
    known = {*names, *_BESIDE_NAMES}

    def repeats(item: Division | Paragraph) -> bool:
        texts = [item] if isinstance(item, Paragraph) else [Paragraph(item.title), *item.content]
        words = [word for part in texts if isinstance(part, Paragraph) for word in _words(part.text)]
        is_simple = isinstance(item, Paragraph) or not (item.kind or item.divisions)
        return is_simple and not names.isdisjoint(words) and all(word in known or len(word) == 1 for word in words)

    count = next((count for count, item in enumerate(root.content) if not repeats(item)), 0)
    if count:
        del root.content[:count]
        counts.leave_out("titlepage", f"{work.where}: it repeats the title and the author")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _join_titles(root: Division) -> None:
    """Let a division take over its only content if that is a heading: the second line of its title."""
    for event, item in list(_divisions(root)):
        if event == "end" and item.kind not in ABOVE:
            only = item.content[0]
            if len(item.content) == 1 and isinstance(only, Division) and only.rank is not None and not only.kind:
                item.title = f"{item.title}: {only.title}" if item.title else only.title
                item.content = only.content


def _roles(root: Division) -> dict[int, Role]:
    """id of a division -> whether it holds chapters, is one, or is inside of one.

    Named kinds decide. Divisions without a name are chapters at the depth where chapters stand: that of named chapters, or
    else the smallest depth with several divisions below all parts.
    """
    depths: list[tuple[int, Division]] = []
    depth = 0
    for event, item in _divisions(root):
        if event == "begin":
            depth += 1
            depths.append((depth, item))
        else:
            depth -= 1
    named = Counter(depth for depth, item in depths if item.kind == CHAPTER)
    if named:
        chapter_depth = named.most_common(1)[0][0]
    else:
        parts = max((depth for depth, item in depths if item.kind in ABOVE and item.divisions), default=0)
        counts = Counter(depth for depth, _ in depths)
        chapter_depth = next((depth for depth in sorted(counts) if depth > parts and counts[depth] > 1), parts + 1)
    roles: dict[int, Role] = {}
    path: list[Role] = []
    for event, item in _divisions(root):
        if event == "end":
            path.pop()
            continue
        holds = any(inner.kind not in BELOW for inner in item.divisions)
        if any(role != "above" for role in path):
            role = "below"
        elif item.kind in ABOVE:
            role = "above" if holds else "chapter"
        elif item.kind:
            role = "chapter"
        else:
            role = "above" if len(path) + 1 < chapter_depth and holds else "chapter"
        roles[id(item)] = role
        path.append(role)
    return roles


def _places(
    root: Division, roles: dict[int, Role], levels: Sequence[str], mode: Literal["flatten", "level"]
) -> tuple[dict[int, int], list[str]]:
    """id of a division -> the number of its level, for divisions that are levels; and the names of these levels.

    `levels` may name kinds of divisions. With the mode "level", the kinds that the work has are levels, too.
    """
    wanted = [name for name in levels if name not in (PARAGRAPH, SENTENCE)]
    above, below = _kinds(root, roles)
    if mode == "level":
        chapter = wanted.index(CHAPTER) if CHAPTER in wanted else len(wanted)
        names = _merged(wanted[:chapter], above) + _merged(wanted[chapter:], [*wanted[chapter : chapter + 1], *below])
    else:
        names = wanted
    places: dict[int, int] = {}
    # The path of open divisions: (the number of the level, or of the nearest one above; depth within its role).
    path: list[tuple[int, Role, int]] = []
    for event, item in _divisions(root):
        if event == "end":
            path.pop()
            continue
        outer, outer_role, outer_depth = path[-1] if path else (-1, "above", -1)
        role = roles[id(item)]
        depth = outer_depth + 1 if role == outer_role else 0
        if role == CHAPTER:
            candidates = [CHAPTER, item.kind]
        else:
            kinds = above if role == "above" else below
            candidates = [item.kind, kinds[depth]] if item.kind in kinds else [kinds[depth]]
        place = next((place for name in candidates if name in names and (place := names.index(name)) > outer), -1)
        if place > outer:
            places[id(item)] = place
        path.append((max(place, outer), role, depth))
    return places, names


def _merged(wanted: Sequence[str], present: Sequence[str]) -> list[str]:
    """The names of both, in the order of `present`. Each further one of `wanted` precedes the name that it precedes there."""
    merged = list(present)
    place = len(merged)
    for name in reversed(wanted):
        if name in merged:
            place = merged.index(name)
        else:
            merged.insert(place, name)
    return merged


def _kinds(root: Division, roles: dict[int, Role]) -> tuple[list[str], list[str]]:
    """The kinds of divisions above and below chapters, each from the highest: the most frequent name at every depth."""
    kinds: dict[Role, list[Counter[str]]] = {"above": [], "below": []}
    path: list[Role] = []
    for event, item in _divisions(root):
        if event == "end":
            path.pop()
            continue
        role = roles[id(item)]
        if role != CHAPTER:
            depth = path.count(role)
            if depth == len(kinds[role]):
                kinds[role].append(Counter())
            kinds[role][depth][item.kind] += 1
        path.append(role)
    fallback: dict[Role, list[str]] = {"above": ["part", "subpart"], "below": ["section", "subsection"]}
    result: list[list[str]] = []
    taken = {DOCUMENT, CHAPTER, PARAGRAPH, SENTENCE}
    for role in ("above", "below"):
        names: list[str] = []
        for depth, counts in enumerate(kinds[role]):
            candidates = [name for name, _ in counts.most_common() if name] + fallback[role]
            name = next((name for name in candidates if name not in taken), f"{fallback[role][-1]}-{depth + 1}")
            taken.add(name)
            names.append(name)
        result.append(names)
    return result[0], result[1]


# --- the nodes ------------------------------------------------------------------------------------------------------------


@dataclass
class _Container:
    """A node that may get children."""

    node: int
    id: str
    children: int = 0


@dataclass(frozen=True)
class _Open:
    """A division that is open: its level, if it is one, and the lowest level among it and those around it (-1: none)."""

    division: Division
    place: int | None
    lowest: int


class _Builder:
    """Makes the nodes of one tree. The node of a division is made when the first paragraph comes.

    The title of a division that is no level goes to the nodes of the next level inside of it. If there is no level below, it
    goes to the next paragraph.
    """

    def __init__(self, title: str, names: Sequence[str], text_levels: Sequence[str], work: Work, counts: ReadCounts) -> None:
        self.nodes = [Node(kind=DOCUMENT, id=ROOT_ID, label=encodable(title) or None)]
        self._names = names
        self._has_paragraphs, self._has_sentences = PARAGRAPH in text_levels, SENTENCE in text_levels
        self._work, self._counts = work, counts
        self._language = work.outline.language
        self._root = _Container(0, "")
        self._containers: list[_Container | None] = [None for _ in names]
        self._path: list[_Open] = []
        self._waiting: list[str] = []

    def begin(self, division: Division, place: int | None) -> None:
        outer = self._path[-1].lowest if self._path else -1
        if place is None and outer == len(self._names) - 1:
            if division.title:
                self._waiting.append(division.title)
        else:
            self._close(outer + 1 if place is None else place)
        self._path.append(_Open(division, place, outer if place is None else place))

    def end(self) -> None:
        closed = self._path.pop()
        outer = self._path[-1].lowest if self._path else -1
        if closed.place is not None:
            self._close(closed.place)
        elif outer < len(self._names) - 1:
            self._close(outer + 1)

    def paragraph(self, paragraph: Paragraph) -> None:
        parent = self._container()
        if self._has_paragraphs and self._has_sentences:
            node = self._add(parent, PARAGRAPH, self._waiting_title(), author=paragraph.author)
            parent = _Container(node, self.nodes[node].id)
        if not self._has_sentences:
            self._add(parent, PARAGRAPH, self._waiting_title(), paragraph.text, paragraph.author)
            return
        texts = paragraph.text.split("\n") if paragraph.is_verse else sentences(paragraph.text, self._language)
        for text in texts:
            node = self._add(parent, SENTENCE, self._waiting_title(), text, paragraph.author)
            if len(text) > LONG_SENTENCE and (words := len(text.split())) > LONG_SENTENCE:
                self._counts.repair("long_sentence", f"{self._work.where}: sentence {self.nodes[node].id}, {words:,} words", 1)

    def _container(self) -> _Container:
        """The node of the lowest level above paragraphs. Missing nodes on the way to it are made."""
        parent = self._root
        for place, name in enumerate(self._names):
            container = self._containers[place]
            if container is None:
                division = next((opened.division for opened in self._path if opened.place == place), None)
                titles = [
                    opened.division.title for opened in self._path if opened.place is None and opened.lowest == place - 1
                ] + [division.title if division else ""]
                node = self._add(parent, name, TITLES.join(title for title in titles if title))
                container = self._containers[place] = _Container(node, self.nodes[node].id)
                if division is None:
                    self._counts.repair("missing_level", f"{self._work.where}: {name} {container.id}")
            parent = container
        return parent

    def _add(self, parent: _Container, kind: str, title: str, text: str = "", author: str | None = None) -> int:
        parent.children += 1
        number = f"{parent.id}.{parent.children}" if parent.id else f"{parent.children}"
        label = encodable(title) if title else None
        self.nodes.append(Node(encodable(text), (parent.node,), id=number, author=author, kind=kind, label=label))
        return len(self.nodes) - 1

    def _waiting_title(self) -> str:
        title = TITLES.join(self._waiting)
        self._waiting.clear()
        return title

    def _close(self, place: int) -> None:
        self._containers[place:] = [None] * (len(self._names) - place)

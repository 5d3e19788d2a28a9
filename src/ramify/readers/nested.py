"""Posts in JSON that are nested in each other, or that name their parents, under any names.

`nested_layouts.py` has the names of known sites. For all others, the options `children` and `columns` give them. A file is one
value or JSON lines. Nothing recurses, so posts may be nested to any depth.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ramify.errors import RamifyError
from ramify.readers.base import Held, ReadCounts, bad_option, file_name, guarded, open_bytes
from ramify.readers.documents import documents
from ramify.readers.json_fields import (
    TEXTS,
    at,
    author_of,
    beginnings,
    first,
    has,
    id_of,
    posts_below,
    posts_inside,
    text_of,
    time_of,
    title_of,
)
from ramify.readers.messages import first_refusal, head_of, json_files, tops, tried
from ramify.readers.nested_layouts import LAYOUTS, Layout
from ramify.readers.reddit import submission_text
from ramify.readers.rows import LABELLED, Post, batches
from ramify.readers.table import SYNONYMS, TITLES
from ramify.readers.values import string

Html = Literal["auto"] | bool

ANY = Layout(marks=(), children=("children", "replies", "comments"))

_FIELDS = ("id", "parent", "tree", "text", "title", "author", "time", "kind", "label")
_IS_HTML = ("html", "cooked", "rendered")


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return first_refusal(path, json_files([path]), refuses)
    if _fitting(path, head) is not None:
        return ""
    if not (names := dict.fromkeys(name for name, _ in posts_inside(beginnings(head)))):
        return "no posts of a known site; other nested posts need --children KEY and --text KEY"
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"posts of an unknown site in {quoted}; read them with --children {','.join(names)}"


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    layout: str = "auto",
    children: str | None = None,
    columns: Mapping[str, str] | None = None,
    html: Html = "auto",
) -> Iterator[pa.RecordBatch]:
    """Read posts.

    `layout`: a name in `LAYOUTS`; by default, the one that fits the beginning of each file. `children`: the fields that hold
    answers, with commas between them, for a site that is in no layout; `-` before one leaves its posts out. `columns`: our name
    -> the field, such as `user.login`; other fields are found by the names that tables have, too. `html`: whether texts are
    HTML; by default, the name of the field says so. Posts of layouts that name parents but no tree are held in memory.
    """
    if layout != "auto" and layout not in LAYOUTS:
        raise bad_option("layout", f"auto or one of {', '.join(LAYOUTS)}", layout)
    named = None if layout == "auto" else LAYOUTS[layout]

    def chosen(path: Path) -> Layout | None:
        base = named if named is not None or children is not None else _fitting(path, head_of(path))
        return _named(base, children, columns or {}, html) if columns or children is not None else base

    return batches(_posts(paths, counts, chosen), counts, LABELLED)


def _named(base: Layout | None, children: str | None, columns: Mapping[str, str], html: Html) -> Layout:
    """A layout with the user's names in place of those of `base` or of those that tables have."""
    if unknown := next((name for name in columns if name not in _FIELDS), None):
        raise RamifyError(f"--column {unknown}={columns[unknown]} names no part of a post. Name one of {', '.join(_FIELDS)}.")
    if base is None:
        found = {name: SYNONYMS[name] for name in ("id", "author", "time", "kind", "label")}
        base = replace(ANY, **found, text=TEXTS, title=TITLES)
    layout = replace(base, **{name: (field,) for name, field in columns.items()})
    if children is not None:
        keys = tuple(key.strip() for key in children.split(",") if key.strip())
        if not keys:
            raise bad_option("children", "the names of fields with commas between them", children)
        unread = tuple(key[1:] for key in keys if key.startswith("-"))
        layout = replace(layout, children=tuple(key for key in keys if not key.startswith("-")), unread=unread)
    if base.marks:
        return layout
    is_html = [any(mark in str(name).lower() for mark in _IS_HTML) if html == "auto" else html for name in layout.text]
    return replace(
        layout,
        text=[name for name, marked in zip(layout.text, is_html, strict=True) if not marked],
        html=[name for name, marked in zip(layout.text, is_html, strict=True) if marked],
    )


def _fitting(path: Path, head: bytes) -> Layout | None:
    """The first layout whose marks a post at the beginning of the file has."""
    values = beginnings(head)
    late = next((layout for layout in LAYOUTS.values() if layout.late and file_name(path).endswith(layout.late)), None)
    if late is not None and values:
        with open_bytes(path) as stream:
            data = Held("is one JSON value of", "Write its comments to a file of their own.").read(stream, path)
        return late if any(_fits(late, value) for value in beginnings(data)) else None
    return next((layout for layout in LAYOUTS.values() if any(_fits(layout, value) for value in values)), None)


def _fits(layout: Layout, value: Any) -> bool:
    if not isinstance(value, dict | list) or not all(has(value, name) for name in layout.document):
        return False
    posts = (item for item, _ in _Walk(layout, ReadCounts()).items(value) if _is_post(layout, item))
    return any(all(has(item, mark) for mark in layout.marks) for item in posts)


# --- posts --------------------------------------------------------------------------------------------------------------


def _posts(paths: Sequence[Path], counts: ReadCounts, chosen: Callable[[Path], Layout | None]) -> Iterator[Post]:
    held = Held("and the files before it hold posts without the name of their tree,", "Build from fewer files at a time.")
    alone: list[Post] = []
    for path in json_files(paths):
        layout = chosen(path)
        if layout is None:
            raise RamifyError(
                f"{path} holds no posts of a known site at its beginning. Name the site with --option layout=NAME "
                f"({', '.join(LAYOUTS)}), or the fields with --children KEY --text KEY."
            )
        walk = _Walk(layout, counts, Path(file_name(path)).stem)
        infers = bool(layout.parent) and not layout.tree
        for where, document in documents(path, counts, held if infers else None):
            posts = walk.posts(document, where)
            if infers:
                alone += posts
            else:
                yield from posts
    top = tops({post.id: post.parent for post in reversed(alone)})
    yield from (post._replace(tree=top[post.id]) for post in alone)


def _is_post(layout: Layout, item: Any) -> bool:
    """Whether an object has a field for a text or a title, or is marked as lost."""
    if not isinstance(item, dict):
        return False
    return any(has(item, name) for name in (*layout.text, *layout.html, *layout.title)) or any(
        at(item, name) for name in layout.gone
    )


class _Walk:
    """Finds the posts in documents of one layout. `stem` names the trees of posts without ids."""

    def __init__(self, layout: Layout, counts: ReadCounts, stem: str = "") -> None:
        self._layout, self._counts, self._stem = layout, counts, stem
        self._roots: set[str] = set()
        self._serial, self._where = 0, ""
        self._texts = (*TEXTS, *layout.text, *layout.html)
        through = [f"{name}" for name in (*layout.text, *layout.html) if "." in f"{name}"]
        self._read = {f"{name}".partition(".")[0] for name in (*layout.children, *layout.label, *through)}

    def items(self, document: Any) -> Iterator[tuple[Any, list[Any]]]:
        """Yield each object that is no container, and everything else that is no list, depth first.

        Each comes with a list of what its children are given: the caller may append (id, tree).
        """
        layout = self._layout
        stack: list[tuple[Any, list[Any]]] = [(document, [])]
        while stack:
            value, above = stack.pop()
            if isinstance(value, list):
                stack += [(member, above) for member in reversed(value)]
            elif isinstance(value, dict) and not _is_post(layout, value) and (keys := self._within(value)):
                if layout.root is not None and has(value, layout.root.id[0]):
                    yield value, above
                said = {name: text for name, text in value.items() if isinstance(text, str)}
                answered = any(at(value, key) for key in layout.children)
                if not layout.marks and said and (answered or any(" " in text for text in said.values())):
                    title = max(said, key=lambda name: len(said[name]))
                    self._bad(f"posts below an object without a text; --column title={title} reads it", self._where)
                stack += [(value[key], above) for key in reversed(keys) if isinstance(value[key], list | dict)]
            else:
                own = [*above[-1:]]
                yield value, own
                for key in reversed(layout.children) if isinstance(value, dict) else ():
                    below = at(value, key)
                    if isinstance(below, list | dict):
                        stack.append((below, own))
                    elif isinstance(below, str) and below.strip():
                        self._bad(f"a text in place of the list {key!r}", self._where)

    def _within(self, value: dict[str, Any]) -> list[str]:
        """The keys of a container that lead to posts: in a layout without marks, all that hold lists or objects."""
        if self._layout.marks:
            return [key for key in self._layout.within if key in value]
        return [key for key, inside in value.items() if isinstance(inside, list | dict)]

    def posts(self, document: Any, where: str) -> Iterator[Post]:
        layout, self._where, number = self._layout, where, 0
        for item, above in self.items(document):
            has_root = layout.root is not None and has(item, layout.root.id[0])
            if has_root:
                yield from guarded(self._root, where, self._counts, item, where)
            if not _is_post(layout, item):
                if not has_root and item != {}:
                    self._bad("not a post", where)
                continue
            self._find_unread(item, where)
            parent, tree = above[-1] if above else (None, None)
            for post in tried(self._post, where, self._counts, item, parent, tree, document):
                number += 1
                above.append((post.id, post.tree))
                yield post
        missing = [len(ids) - number for name in layout.all_ids if isinstance(ids := at(document, name), list)]
        if missing and missing[0] > 0:
            self._counts.repair("more", where)
            self._counts.repair("more_comments", count=missing[0])

    def _bad(self, what: str, where: str) -> None:
        self._counts.leave_out("bad_row", f"{where}: {what}"[:300])

    def _find_unread(self, item: dict[str, Any], where: str) -> None:
        """Count the posts inside a post that are not read. Raises `RamifyError` unless the layout leaves them out."""
        layout = self._layout
        unread: dict[str, list[Any]] = {}
        for name, post in posts_below(item, self._read, self._texts):
            unread.setdefault(name, []).append(post)
        for name, posts in unread.items():
            if not layout.marks and name not in layout.unread:
                keys = ",".join(layout.children)
                raise RamifyError(
                    f"--children {keys} leaves posts unread: {where}: the field {name!r} of a post holds others. Read them "
                    f"with --children {keys},{name}, or leave them out with --children {keys},-{name}."
                )
            number = len(posts) + sum(1 for _ in posts_inside(posts))
            self._counts.leave_out("unread_posts", f"{where}: in the field {name!r}", number)

    def _root(self, item: Any, where: str) -> Iterator[Post]:
        """The post that a comment repeats, the first time that it is seen."""
        root = self._layout.root
        if root is None or (name := id_of(item, root.id)) is None or name in self._roots:
            return
        self._roots.add(name)
        title, time = title_of(item, root.title), time_of(item, root.time, self._counts, where)
        yield Post(name, None, name, time=time, text=submission_text(title, text_of(item, root.text)), meta=_meta(title, {}))
        self._counts.read += 1

    def _post(self, item: dict[str, Any], where: str, above: str | None, tree: str | None, document: Any) -> Post:
        layout = self._layout
        name = self._bare(id_of(item, layout.id))
        if name is None:
            if layout.marks:
                raise ValueError("it has no id")
            self._serial += 1
            name = f"{tree or self._stem}/{self._serial}"
        is_nested = tree is not None
        title = title_of(item, layout.title)
        tree = tree or self._bare(id_of(item, layout.tree)) or name
        is_comment = is_nested or layout.root is not None or (tree != name and not title)
        if layout.own_numbers and is_comment and name == tree.rpartition("#")[2]:
            name = f"{name}/comment"
        parent = above if is_nested else self._named_parent(item, name, tree, is_comment)
        if parent == name:
            self._counts.repair("own_parent", f"{where}: post {name!r:.80}")
            parent = None
        about = None
        if parent is None:
            title = title or title_of(item, layout.title, document)
            about = _meta(title, {key: string(first(item, names, document)) for key, names in layout.meta.items()})
        author = author_of(item, layout.author)
        self._count_missing(item, where)
        return Post(
            name,
            parent,
            tree,
            None if author in layout.nobody else author,
            time_of(item, layout.time, self._counts, f"{where}: post {name!r:.80}"),
            string(first(item, layout.kind)),
            self._text(item, title),
            about,
            first(item, layout.label),
        )

    def _text(self, item: dict[str, Any], title: str) -> str:
        layout = self._layout
        if lost := next((marker for name, marker in layout.gone.items() if at(item, name)), None):
            return lost
        text = text_of(item, layout.text, layout.html)
        if layout.null_is is not None and not title and all(at(item, name) is None for name in (*layout.text, *layout.html)):
            return layout.null_is
        return submission_text(title, text)

    def _named_parent(self, item: dict[str, Any], name: str, tree: str, is_comment: bool) -> str | None:
        layout = self._layout
        parent = self._bare(id_of(item, layout.parent))
        if parent is not None and parent not in layout.no_parent:
            return f"{parent}/comment" if layout.own_numbers and parent == tree.rpartition("#")[2] else parent
        if layout.top is not None:
            return None if name == layout.top else layout.top
        return tree if is_comment and parent is None else None

    def _bare(self, name: str | None) -> str | None:
        return self._layout.prefix.sub("", name, count=1) if name and self._layout.prefix else name

    def _count_missing(self, item: dict[str, Any], where: str) -> None:
        """Count the answers that the source has and the file lacks."""
        number = first(item, self._layout.num_children)
        if not isinstance(number, int):
            return
        below = [at(item, key) for key in self._layout.children]
        lists = [value.get(key) for value in below if isinstance(value, dict) for key in self._layout.within]
        listed = sum(len(value) for value in (*below, *lists) if isinstance(value, list))
        if number > listed:
            self._counts.repair("more", where)
            self._counts.repair("more_comments", count=number - listed)


def _meta(title: str, about: Mapping[str, str | None]) -> dict[str, str] | None:
    return {name: value for name, value in {"title": title or None, **about}.items() if value is not None} or None

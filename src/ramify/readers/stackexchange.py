"""Stack Exchange dumps: one folder per site with `Posts.xml` and `Comments.xml`, as published or individually compressed.

Questions are roots, answers are their children, and comments are children of either. A tree's id is `site/question`, where
`site` is the folder's name. A post's id is its number, a comment's id is `c` and its number.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

import pyarrow as pa

from ramify.errors import RamifyError
from ramify.readers.base import ReadCounts, check_not_standard, guarded, lacks, open_bytes
from ramify.readers.markup import MarkupError, XmlParser, html_to_text
from ramify.readers.rows import Post, batches
from ramify.readers.values import parse_time

QUESTION, ANSWER = "1", "2"

_CHUNK = 1 << 20
_NEXT_ROW = re.compile(rb"\n[ \t]{0,50}<row[ \t]")
_ROW_START_BYTES = 64
_PAGE = 1 << 16


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return "" if any(_sites(path)) else "a folder without a Posts.xml"
    return lacks(path, head, b"<posts>") if path.name.lower().startswith("posts.xml") else "not named Posts.xml"


def read(paths: Sequence[Path], counts: ReadCounts) -> Iterator[pa.RecordBatch]:
    """Read the posts of sites. A path is a site's folder, its `Posts.xml`, or a folder of sites.

    Wiki pages and tag descriptions are skipped.
    """
    sites = []
    for path in paths:
        check_not_standard(path, "a Stack Exchange site", "it holds several files")
        folders = sorted(_sites(path)) if path.is_dir() else [path.parent]
        if not folders:
            raise RamifyError(
                f"{path} holds no Posts.xml, and neither do its subfolders. Unpack the site's archive (.7z) into a folder."
            )
        sites += folders
    return batches((post for site in dict.fromkeys(sites) for post in _posts(site, counts)), counts)


def _sites(folder: Path) -> Iterator[Path]:
    for path in [*folder.glob("*"), *folder.glob("*/*")]:
        if path.name.lower().startswith("posts.xml") and path.is_file():
            yield path.parent


def _table(site: Path, name: str) -> Path | None:
    return next((path for path in sorted(site.iterdir()) if path.name.lower().startswith(f"{name}.xml")), None)


def _posts(site: Path, counts: ReadCounts) -> Iterator[Post]:
    name = site.resolve().name
    questions = _Questions()
    posts, comments = _table(site, "posts"), _table(site, "comments")
    if posts is None:
        raise RamifyError(f"{site} holds no Posts.xml.")
    for where, row in _rows(posts, counts):
        yield from guarded(_post, where, counts, row, name, questions, where, counts)
    for where, row in _rows(comments, counts) if comments else ():
        yield from guarded(_comment, where, counts, row, name, questions, where, counts)


def _post(row: dict[str, str], site: str, questions: "_Questions", where: str, counts: ReadCounts) -> list[Post]:
    """A question or an answer, or nothing."""
    posts = []
    post_id, kind = row.get("Id", ""), row.get("PostTypeId")
    question = row.get("ParentId", "") if kind == ANSWER else post_id
    if kind not in (QUESTION, ANSWER):
        questions.add(post_id, None)
        counts.skip("not_a_post", f"{where}: PostTypeId {kind}")
    elif not questions.add(post_id, question):
        counts.skip("bad_id", f"{where}: Id {post_id!r}, ParentId {row.get('ParentId')!r}")
    else:
        title, body = row.get("Title", ""), html_to_text(row.get("Body", ""))
        post = Post(
            id=post_id,
            parent=None if kind == QUESTION else question,
            tree=f"{site}/{question}",
            author=row.get("OwnerUserId") or row.get("OwnerDisplayName"),
            time=parse_time(row.get("CreationDate"), counts, where),
            kind="question" if kind == QUESTION else "answer",
            text="\n\n".join(part for part in (title, body) if part),
            meta=_meta(site, row) if kind == QUESTION else None,
        )
        posts.append(post)
    counts.read += 1
    return posts


def _comment(row: dict[str, str], site: str, questions: "_Questions", where: str, counts: ReadCounts) -> list[Post]:
    """A comment, or nothing."""
    comment_id, post = row.get("Id", ""), row.get("PostId", "")
    question = questions.of(post)
    if not comment_id or question is None:
        counts.leave_out("not_a_post" if comment_id else "bad_id", f"{where}: a comment on post {post!r}")
        return []
    comment = Post(
        id=f"c{comment_id}",
        parent=post,
        tree=f"{site}/{question}",
        author=row.get("UserId") or row.get("UserDisplayName"),
        time=parse_time(row.get("CreationDate"), counts, where),
        kind="comment",
        text=row.get("Text", "").strip(),
    )
    counts.read += 1
    return [comment]


def _meta(site: str, row: dict[str, str]) -> dict[str, str | list[str]]:
    meta: dict[str, str | list[str]] = {"site": site, "title": row.get("Title", "")}
    if tags := re.findall(r"[^<>|]+", row.get("Tags", "")):
        meta["tags"] = tags
    if accepted := row.get("AcceptedAnswerId"):
        meta["accepted"] = accepted
    return meta


class _Questions:
    """Maps posts to their questions. It takes four bytes per post, in pages, so that one large number costs little memory."""

    _UNKNOWN, _NO_QUESTION = 0, -1
    _HIGHEST = 2**31 - 1

    def __init__(self) -> None:
        self._blank = array("i", [self._UNKNOWN]) * _PAGE
        self._pages: dict[int, array[int]] = {}

    def add(self, post: str, question: str | None) -> bool:
        """Add a post. Returns False if `post` or `question` is not a valid id."""
        number, target = self._number(post), self._NO_QUESTION if question is None else self._number(question)
        if number is None or target is None:
            return False
        page = self._pages.get(number // _PAGE)
        if page is None:
            page = self._pages[number // _PAGE] = self._blank[:]
        page[number % _PAGE] = target
        return True

    def of(self, post: str) -> str | None:
        """The question of a post: its own number if it is not in the dump, None if it is neither question nor answer."""
        number = self._number(post)
        if number is None:
            return None
        question = self._pages.get(number // _PAGE, self._blank)[number % _PAGE]
        if question == self._NO_QUESTION:
            return None
        return str(question) if question != self._UNKNOWN else post

    def _number(self, text: str) -> int | None:
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            return None
        number = int(text)
        return number if 0 < number <= self._HIGHEST else None


def _rows(path: Path, counts: ReadCounts) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (file and line, attributes) of every row. After a fault, reading resumes at the next row that begins a line."""
    rows: list[tuple[int, dict[str, str]]] = []
    root = ""
    skipped = newlines = 0
    """Numbers of line ends before the parser's first byte, and before the chunk."""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal root
        root = root or name
        if name == "row":
            rows.append((skipped + parser.line, attributes))

    parser = XmlParser(start)
    with open_bytes(path, counts) as stream:
        fed, before, chunk = 0, b"", stream.read(_CHUNK)
        while True:
            fault = None
            try:
                parser.feed(chunk, final=not chunk)
            except MarkupError as error:
                fault = error
            for line, row in rows:
                yield f"{path}, line {line}", row
            rows.clear()
            if fault is None:
                if not chunk:
                    return
                fed, newlines = fed + len(chunk), newlines + chunk.count(b"\n")
                before = (before + chunk)[-_ROW_START_BYTES:]
                chunk = stream.read(_CHUNK)
                continue
            around, at = before + chunk, max(1, len(before) + fault.offset - fed)
            counts.leave_out("bad_xml", f"{path}, line {skipped + fault.line}: {fault}")
            if not chunk:
                return
            newlines -= before.count(b"\n")
            chunk, passed = _resume(stream, around, _cut_off(around, at) if fault.is_sign else at)
            before = b""
            if not chunk:
                return
            skipped = newlines = newlines + passed
            parser = XmlParser(start)
            opening = f"<{root or path.name.lower().partition('.')[0]}>".encode()
            parser.feed(opening)
            fed = len(opening)


def _cut_off(chunk: bytes, at: int) -> int:
    """Where to resume after an unexpected character.

    If a row was cut off, the character begins the next row, so reading resumes at the line end before it.
    """
    line = chunk.rfind(b"\n", 0, at)
    return line if line >= 0 and not chunk[line:at].strip() and chunk[:line].strip() else at


def _resume(stream: BufferedReader, chunk: bytes, at: int) -> tuple[bytes, int]:
    """The data from the next row on, and the number of line ends that were skipped."""
    passed = chunk.count(b"\n", 0, at)
    chunk = chunk[at:]
    while not (match := _NEXT_ROW.search(chunk)):
        cut = max(0, len(chunk) - _ROW_START_BYTES)
        passed += chunk.count(b"\n", 0, cut)
        more = stream.read(_CHUNK)
        if not more:
            return b"", passed
        chunk = chunk[cut:] + more
    return chunk[match.start() :], passed + chunk.count(b"\n", 0, match.start())

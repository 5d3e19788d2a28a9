"""Token tables of the CoNLL shared tasks: one token per line with its tags in columns, and a blank line after each sentence.

Columns are separated by tabs, or else by spaces. Lines that begin with -DOCSTART- separate documents. A sentence is a tree of
one node, whose text is its tokens with spaces between them. The node's label is

    {"tokens": [[start, end], …], "tags": [tag, …]}

where start and end count characters of the text. Trees are named FILE/NUMBER, with numbers of ten digits.

CoNLL-U (Universal Dependencies) is known by its ending, by its ten columns, of which the first numbers the words, or by the
names of the columns after `# global.columns =`. Its lines of comments are no rows; `# newdoc` separates documents.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from ramify.errors import RamifyError, shown
from ramify.readers.base import A_FOLDER, ReadCounts, bad_option, file_name, guarded
from ramify.readers.encodings import AUTO, check_encoding
from ramify.readers.listing import list_files
from ramify.readers.names import distinct_names, unpacked
from ramify.readers.parallel import lines_of
from ramify.readers.split_names import in_name
from ramify.tree import GROUP, SPLIT, Node, Tree, encodable

DOCUMENT = "-DOCSTART-"
COMMENT, NEW_DOCUMENT, COLUMN_NAMES = "#", "# newdoc", "# global.columns ="
"""Beginnings of lines in CoNLL-U."""
SOURCE = "#\t"
"""Begins a comment above a sentence in other tables with tabs, unless it is a row as wide as the others."""
UNIVERSAL, UNIVERSAL_COLUMNS = ".conllu", 10
FORM, UPOS = 2, 4
"""The columns of CoNLL-U that are read, from 1."""

LAST = "last"
"""The value of the option `tags` that means the last column."""

TOKENS, TAGS = "tokens", "tags"
"""The fields of a label: the place of each token, and its tag."""

ENDINGS = {".testa": "dev", ".testb": "test"}
"""Endings of CoNLL-2003's files, which name their splits in no other way."""

BEGINNING = 1000
"""The lines at the beginning of a file by which CoNLL-U is known."""

MAX_TOKENS = 1 << 20
"""The greatest number of tokens that a sentence may have. Longer ones are left out."""

_SPAN_TAG = re.compile(r"O|[BIES]-\S+")
_FIRST_WORD = re.compile(r"1(-\d+)?|0\.1", re.ASCII)
_HEAD = re.compile(r"\d+|_", re.ASCII)
_NO_WORD = {re.compile(r"\d+-\d+", re.ASCII): "multiword_token", re.compile(r"\d+\.\d+", re.ASCII): "empty_node"}
"""The first column of a row of CoNLL-U that is no word -> the reason with which the row is counted."""


def refuses(path: Path, head: bytes) -> str:
    """The last column must hold tags of spans, because other tables of words look alike."""
    if path.is_dir():
        return A_FOLDER
    # The last line may be cut.
    lines = head.decode("utf-8", "replace").splitlines()[: -1 if len(head) >= 1 << 16 else None]
    if is_universal(path, lines):
        return ""
    columns, by_tabs, tags = 0, False, set[str]()
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(DOCUMENT):
            continue
        by_tabs = by_tabs if columns else "\t" in line
        parts = _divided(line, by_tabs)
        columns = columns or len(parts)
        if len(parts) != columns or columns < 2:
            return f"line {number}: not a row of a token and its tags"
        if not _SPAN_TAG.fullmatch(parts[-1]):
            return f"line {number}: {shown(parts[-1], 40)} is no tag of a span, such as B-LOC or O"
        tags.add(parts[-1])
    return "" if tags - {"O"} else "no tag of a span, such as B-LOC, in the last column"


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    token: str | None = None,
    tags: str | None = None,
    split: Literal["file", "none"] = "file",
    encoding: str = AUTO,
) -> Iterator[Tree]:
    """Read sentences. `token` and `tags` are the numbers of columns, from 1; `tags=last` is the last column of each file. The
    default is the first and the last column; in CoNLL-U, the word (FORM) and its part of speech (UPOS).

    With `split=file`, a file whose name holds train, dev, test or a similar word has that split; `none` leaves the splits to
    shares. Sentences of one document have one group. A sentence that has a row with another number of columns than the first
    row of its file, or with an empty token or tag, is left out and counted. If a file has one column, its sentences have no
    tags. If the first column counts the words, `token` has to be given.
    """
    place = _column("token", token) if token else None
    tag_place = _column("tags", tags) if tags and tags != LAST else None
    check_encoding(encoding)
    files = list_files(paths)
    names = distinct_names(files, map(file_name, files))
    for path, name in zip(files, names, strict=True):
        meta = {SPLIT: its_split} if split == "file" and (its_split := _split(path)) else {}
        lines = lines_of(path, counts, encoding)
        beginning = list(islice(lines, BEGINNING))
        universal = is_universal(path, beginning)
        form, upos = _universal_columns(path, beginning, place, tags) if universal else (1, None)
        if not universal and not place and _counts_words(beginning):
            raise RamifyError(
                f"token=1: the first column of {path} counts the words, and holds none. Name the column of the words, such as "
                "--option token=2, and, if it is not the last, that of the tags, such as --option tags=3."
            )
        read = place or form, tag_place if tags else upos
        row = next((line for line in beginning if line and not line.startswith((SOURCE, DOCUMENT))), "")
        sizes = {"universal": universal, "width": len(_divided(row, by_tabs=True))}
        yield from _sentences(path, chain(beginning, lines), encodable(name), counts, *read, meta, **sizes)


def places(tokens: Sequence[str]) -> list[list[int]]:
    """Where tokens begin and end in the text that has a space between them."""
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token) + 1)
    return [[start, start + len(token)] for start, token in zip(starts, tokens, strict=False)]


def is_universal(path: Path, lines: Sequence[str]) -> bool:
    """Whether a file is CoNLL-U, by its name and its first lines."""
    line = next((line for line in lines if line.strip() and not line.startswith(COMMENT)), "").strip(" ")
    first = _divided(line, "\t" in line)
    is_named = Path(unpacked(path.name)).suffix.lower() == UNIVERSAL or any(line.startswith(COLUMN_NAMES) for line in lines)
    has_columns = len(first) == UNIVERSAL_COLUMNS and _FIRST_WORD.fullmatch(first[0]) and _HEAD.fullmatch(first[6])
    return is_named or bool(has_columns)


def _universal_columns(path: Path, lines: Sequence[str], token: int | None, tags: str | None) -> list[int]:
    """The columns of the words and of their parts of speech, from 1, which `# global.columns` may name."""
    line = next((line for line in lines if line.startswith(COLUMN_NAMES)), "")
    names = line.removeprefix(COLUMN_NAMES).split()
    for option, name, given in (("token", "FORM", token), ("tags", "UPOS", tags)):
        if names and name not in names and not given:
            raise RamifyError(
                f"{path} has no column {name}; it has {', '.join(names)}. Name one by its number, such as --option "
                f"{option}={len(names)}."
            )
    return [names.index(name) + 1 if name in names else place for name, place in (("FORM", FORM), ("UPOS", UPOS))]


def _counts_words(lines: Sequence[str]) -> bool:
    """Whether the first column counts the words of each sentence, from 0 or 1."""
    place = most = 0
    for line in lines:
        if not line.strip() or line.startswith((COMMENT, DOCUMENT)):
            place = 0
            continue
        if _divided(line.strip(" "), "\t" in line)[0] not in (str(place), str(place + 1)):
            return False
        place += 1
        most = max(most, place)
    return most > 1


def _sentences(
    path: Path,
    lines: Iterable[str],
    name: str,
    counts: ReadCounts,
    token: int,
    tags: int | None,
    meta: dict[str, str],
    *,
    universal: bool,
    width: int,
) -> Iterator[Tree]:
    """The sentences of one file. `token`, `tags`: numbers of columns, from 1; None: the last. `universal`: CoNLL-U.
    `width`: the number of columns of a table with tabs."""
    divider = NEW_DOCUMENT if universal else DOCUMENT
    columns = sentence = document = 0
    rows: list[list[str]] = []
    read: list[int] = []
    fault, first, by_tabs = "", 1, False
    for number, line in enumerate(chain(lines, [""]), 1):
        if universal and line.startswith(COMMENT) and not line.startswith(divider):
            continue
        if not (universal or rows or fault) and line.startswith(SOURCE) and len(_divided(line, by_tabs=True)) != width:
            continue
        if line and not line.startswith(divider):
            by_tabs = by_tabs if columns else "\t" in line
            parts = _divided(line, by_tabs)
            if not columns:
                columns = len(parts)
                for option, place in (("token", token), ("tags", tags or 0)):
                    if place > columns:
                        raise bad_option(option, f"a column from 1 to {columns}, as {path} has", place)
                read = [token - 1, *([(tags or columns) - 1] if columns > 1 else [])]
            if len(parts) != columns:
                fault = fault or f"line {number}: {len(parts)} columns, not {columns}"
            elif universal and token > 1 and (reason := _no_word(parts[0])):
                counts.repair(reason, f"{path}, line {number}: {parts[1]}")
            elif len(rows) == MAX_TOKENS:
                fault = fault or f"line {number}: the sentence from line {first} on has more than {MAX_TOKENS:,} tokens"
            elif not all(parts[place] for place in read):
                fault = fault or f"line {number}: an empty token or tag"
            else:
                rows.append([parts[place] for place in read])
            continue
        if rows or fault:
            sentence += 1
        if fault:
            counts.leave_out("bad_row", f"{path}, {fault}")
        elif rows:
            group = {GROUP: f"{name}/{document}"} if document else {}
            yield from guarded(_tree, f"{path}, line {first}", counts, rows, f"{name}/{sentence:010d}", meta | group, counts)
        document += line.startswith(divider)
        rows, fault, first = [], "", number + 1


def _tree(rows: list[list[str]], name: str, meta: dict[str, str], counts: ReadCounts) -> list[Tree]:
    tokens, *tags = ([*column] for column in zip(*rows, strict=True))
    label = {TOKENS: places(tokens)} | ({TAGS: tags[0]} if tags else {})
    tree = Tree((Node(" ".join(tokens), id="sentence", label=label),), name, meta)
    counts.read += 1
    return [tree]


def _no_word(number: str) -> str:
    """The reason why a row of CoNLL-U is no word; "" if it is one."""
    return next((reason for spelling, reason in _NO_WORD.items() if spelling.fullmatch(number)), "")


def _divided(line: str, by_tabs: bool) -> list[str]:
    """The columns of a row."""
    # Spaces of other kinds, such as those that do not break a line, may lie in tokens.
    return [part.strip() for part in line.split("\t")] if by_tabs else re.split("[ \t]+", line)


def _column(option: str, value: str) -> int:
    if not (str(value).isascii() and str(value).isdigit() and 0 < len(str(value)) < 5 and int(value)):
        last = f", or {LAST}" if option == "tags" else ""
        raise bad_option(option, f"the number of a column, from 1{last}", value)
    return int(value)


def _split(path: Path) -> str | None:
    return ENDINGS.get(Path(unpacked(path.name)).suffix.lower(), in_name(path))

"""Tables with one post per row, in any order: CSV, TSV, Parquet or JSON lines, compressed or not.

Columns are found by name: `id`, `parent` (empty for a root), `tree`, `author`, `time`, `text`, or one of their synonyms.
`columns` maps other names. `title`, `topic` and similar columns of a root become metadata of the tree.

Tables of Reddit's posts, with `link_id` and `parent_id` or with `selftext`, are read as the dumps that they come from.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ramify.files import STANDARD
from ramify.readers import reddit
from ramify.readers.base import A_FOLDER, EITHER, Policy, ReadCounts, pc, read_before
from ramify.readers.columns import (
    LINE,
    ROOT_MARKS,
    ROOT_NUMBERS,
    Columns,
    Layout,
    Missing,
    Spelling,
    among,
    batches,
    check,
    decoded,
    header,
    names_of,
    spelled,
    strings,
)
from ramify.readers.dates import DateOrder, First
from ramify.readers.labels import LabelColumn, LabelType, survey
from ramify.readers.listing import list_files
from ramify.readers.quoting import MARK, quote_of_tabs
from ramify.readers.rows import LABELLED
from ramify.tree import SPLIT

AUTHORS = (
    "author",
    "user",
    "username",
    "author_name",
    "user_name",
    "speaker",
    "poster",
    "by",
    "post_username",
    "comment_author",
)
ACCOUNTS = ("author_id", "user_id")
"""Numbers of authors, which are taken where no column has their names."""
SYNONYMS = {
    "id": ("id", "post_id", "comment_id", "message_id", "node_id"),
    "parent": ("parent", "parent_id", "reply_to", "in_reply_to", "in_reply_to_id", "parent_post_id", "comment_parent"),
    "tree": (
        *("tree", "tree_id", "thread", "thread_id", "discussion", "discussion_id", "conversation", "conversation_id"),
        *("topic_id", "comment_post_id"),
    ),
    "author": (*AUTHORS, *ACCOUNTS),
    "time": (
        "time",
        "timestamp",
        "created_utc",
        "created_at",
        "created",
        "date",
        "datetime",
        "post_time",
        "comment_date_gmt",
        "comment_date",
    ),
    "kind": ("kind",),
    "text": ("text", "body", "content", "message", "comment", "post_text", "comment_content"),
    "label": ("label",),
    "split": ("split",),
}
LOG = {"author", "time"}
"""Columns of a chat log, beside the text. A table with them and parents, but no trees, may be a channel with some replies."""
TITLES = ("title", "subject")
TREE_COLUMNS = (*TITLES, "topic", "subreddit", "forum", "section", "category", "url")
LAYOUT = Layout(SYNONYMS, required=("id", "parent", "tree", "text"), added=TREE_COLUMNS, numbered=True)
TREELESS = replace(LAYOUT, required=("id", "parent", "text"))
PAIRS = Layout({name: SYNONYMS[name] for name in ("id", "parent")}, required=("id", "parent"))
REDDIT = Layout(
    {
        **{name: SYNONYMS[name] for name in ("author", "time", "label", "split")},
        **{"id": ("id",), "parent": ("parent_id",), "tree": ("link_id",), "text": ("body",)},
    },
    required=("id",),
    added=("title", "selftext", "subreddit"),
    numbered=True,
)
TABLE = LABELLED.append(EITHER.field("or_parent"))

Entities = Literal["numeric", "all", "none"]
NUMERIC_ENTITY = re.compile(r"&#(?:[0-9]+|[xX][0-9a-fA-F]+);?")
ODD: dict[str, str] = {"numeric": "&#|[\u0080-\u009f]", "all": "&|[\u0080-\u009f]"}
WINDOWS_1252 = {code: bytes([code]).decode("cp1252", "replace") for code in range(0x80, 0xA0)}
"""C1 control characters -> the characters of the same bytes in Windows-1252. Texts never intend C1 control characters."""


def refuses(path: Path, head: bytes, columns: Mapping[str, str] = MappingProxyType({})) -> str:
    if path.is_dir():
        return A_FOLDER
    try:
        names = header(path, head)
    except (pa.ArrowException, OSError):
        return ""  # `read` reports the fault.
    if unknown := LAYOUT.unknown(names, columns):
        return unknown
    missing = [] if _is_reddit(names, columns) else [name for name in LAYOUT.lacking(names) if name not in columns]
    if missing == ["tree"] and (not LAYOUT.known(names).keys() | columns.keys() >= LOG or _are_replies(path, names, columns)):
        return ""  # The parents say which posts are one tree.
    remedy = f"; name them with --column {missing[0]}=NAME" if missing and len(names) > 1 else ""
    return f"line 1: no column for {', '.join(missing)}{remedy}" if missing else ""


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    policy: Policy = Policy(),  # noqa: B008
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    entities: Entities = "numeric",
    dates: First = "auto",
    label_type: LabelType = "auto",
    separator: str | None = None,
    missing: Missing = "marks",
) -> Iterator[pa.RecordBatch]:
    """Read tables of posts.

    `columns`: canonical name -> name in the table. `delimiter`: default, the most frequent of the known ones in the first line.
    `quote=""`: quotation marks are plain text; by default, the whole file decides if its columns have tabs between them.
    `entities`: the HTML entities to unescape; unless "none", C1 control characters are read as Windows-1252. `dates`: which
    number comes first in dates with slashes; "auto" infers it from the dates. `label_type=category` reads numbers as text,
    `separator` parts labels into lists, and `missing=empty` keeps labels and authors such as NA.
    """
    check(LAYOUT, columns, delimiter, MARK if quote is None else quote)
    columns = columns or {}
    labels = LabelColumn(columns.get("label", "label"), label_type, separator=separator, missing=missing)
    names = {path: names_of(path) for path in list_files(paths)}
    layouts = {path: REDDIT if _is_reddit(column_names, columns) else LAYOUT for path, column_names in names.items()}
    quotes = {path: quote_of_tabs(path, delimiter) if quote is None else quote for path in names}
    chosen = {ours: theirs for ours, theirs in columns.items() if ours == "label"}
    for path, layout in layouts.items():
        if chosen or "label" in layout.known(names[path]):
            label_batches = batches(path, ReadCounts(), layout.only("label"), chosen, delimiter, quotes[path])
            survey(labels, label_batches, path, f"{path}, row", delimiter)
    treeless = [
        path
        for path, layout in layouts.items()
        if layout is LAYOUT and "tree" not in columns and LAYOUT.lacking(names[path], ("tree",))
    ]
    layouts |= dict.fromkeys(treeless, TREELESS)
    trees = None
    if treeless:
        named = {ours: theirs for ours, theirs in columns.items() if ours in PAIRS.synonyms}
        trees = TreesOfParents(pair for path in treeless for pair in _pairs(path, named, delimiter, quotes[path]))
    for path, layout in layouts.items():
        row, order, spelling = 1, DateOrder(dates), Spelling()
        for batch in batches(path, counts, layout, columns, delimiter, quotes[path]):
            lines = batch.pop(LINE)
            label = pa.nulls(len(lines), pa.string())
            if "label" in batch:
                label = _as_json(labels.json(decoded(batch.pop("label"), path, row, counts), lines, f"{path}, row", counts))
            values = spelled(batch, path, row, counts, order, missing)
            if layout is REDDIT:
                yield from _reddit_posts(values, label, lines, path, policy, counts)
            else:
                values = spelling.alike(values)
                if trees is not None and "tree" not in values:
                    values["tree"] = trees.following(len(lines))
                yield _posts(values, label, path, row, entities, counts)
            row += len(lines)


_SAMPLE = 1000
_PARENTS = ("parent", "parent_id", "parent_post_id", "comment_parent")
"""Names of columns with parents that chats do not use."""


def _are_replies(path: Path, names: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Whether most of the first rows name a parent, in a column that does not look like that of a chat."""
    theirs = columns.get("parent") or LAYOUT.known(names)["parent"]
    parents = sample(path, theirs) if theirs.casefold() in _PARENTS else []
    return sum(parent not in (None, *ROOT_MARKS, *ROOT_NUMBERS) for parent in parents) * 2 > len(parents)


def sample(path: Path, column: str) -> list[str | None]:
    """The first values of a column; none from standard input, which is read once."""
    if path == STANDARD:
        return []
    batch = next(iter(batches(path, ReadCounts(), LAYOUT.only("parent"), {"parent": column}, None, MARK)), {})
    return strings(decoded(batch["parent"], path, 1, ReadCounts()))[:_SAMPLE].to_pylist() if batch else []


def _is_reddit(names: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Whether a table holds comments or submissions of Reddit. `columns` may name other columns for the posts."""
    if "id" not in names or columns.get("tree", "link_id") != "link_id" or columns.get("parent", "parent_id") != "parent_id":
        return False
    if {"link_id", "parent_id"} <= set(names) or ({"title", "selftext"} <= set(names) and "parent_id" not in names):
        return True
    return {"title", "subreddit"} <= set(names) and any(name not in columns for name in LAYOUT.lacking(names))


def _as_json(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values], pa.string())


def _pairs(path: Path, columns: Mapping[str, str], delimiter: str | None, quote: str) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the ids and the parents of a table, before it is read."""
    read_before(path)
    spelling = Spelling()
    for batch in batches(path, ReadCounts(), PAIRS, columns, delimiter, quote):
        pair = spelling.alike({name: strings(decoded(batch[name], path, 1, ReadCounts())) for name in ("id", "parent")})
        is_root = among(pair["parent"], ROOT_MARKS)
        yield pair["id"], pc.if_else(is_root, pa.scalar(None, pa.large_string()), pair["parent"])


class TreesOfParents:
    """The trees of posts that name no tree: posts connected by parents are one, named by its root.

    A parent that is not among the posts, nor one of `ROOT_NUMBERS`, is the root of those that name it. The ids are held in
    memory. `pairs` are batches of ids and parents.
    """

    def __init__(self, pairs: Iterable[tuple[pa.Array, pa.Array]]) -> None:
        names = pa.chunked_array([part for column in zip(*pairs, strict=True) for part in column], pa.large_string())
        encoded = names.combine_chunks().dictionary_encode()
        self._names = encoded.dictionary
        ids, parents = np.split(encoded.indices.fill_null(-1).to_numpy().astype(np.int64), 2)
        is_foreign = among(self._names, ROOT_NUMBERS).to_numpy(zero_copy_only=False)
        is_foreign[ids[ids >= 0]] = False
        is_link = (ids >= 0) & (parents >= 0) & (ids != parents)
        is_link[is_link] &= ~is_foreign[parents[is_link]]
        child, parent = ids[is_link], parents[is_link]
        size = len(self._names)
        # SciPy refuses a matrix without rows.
        links = coo_array((np.ones(len(child), np.int8), (child, parent)), (size + 1, size + 1))
        _, tree = connected_components(links, directed=False)
        # A cycle has no root, and is named by its first post.
        by_rank = np.lexsort((np.arange(size), np.isin(np.arange(size), child)))[::-1]
        root = np.zeros(size + 1, np.int64)
        root[tree[by_rank]] = by_rank
        self._trees = np.where(ids < 0, -1, root[tree[ids]])
        """[post]: the place of its tree's name, or -1."""

    def following(self, count: int) -> pa.Array:
        """The trees of the next posts, in the order of the pairs; null for a post without an id."""
        trees, self._trees = np.split(self._trees, [count])
        return self._names.take(pa.array(trees, mask=trees < 0))


# --- columns to posts -------------------------------------------------------------------------------------------------


def _posts(
    values: Columns, label: pa.Array, path: Path, first_row: int, entities: Entities, counts: ReadCounts
) -> pa.RecordBatch:
    absent = pa.nulls(len(label), pa.large_string())
    authors = values.get("author", absent)
    is_root = pc.or_(values["parent"].is_null(), among(values["parent"], ROOT_MARKS))
    # `or_parent` tells whether such a parent is a post, which may be in another batch.
    is_number = pc.and_(among(values["parent"], ROOT_NUMBERS), pc.not_equal(values["parent"], values["tree"]).fill_null(True))
    is_post = among(values["parent"], [name for name in ROOT_NUMBERS if pc.any(pc.equal(values["id"], name)).as_py()])
    texts, metas = _describe_trees(
        values, pc.or_(is_root, pc.and_not(is_number, is_post)), _repair(values["text"].fill_null(""), entities), entities
    )
    batch = pa.RecordBatch.from_pydict(
        {
            "id": values["id"].cast(pa.string()),
            "parent": pc.if_else(is_root, absent, values["parent"]).cast(pa.string()),
            "tree": values["tree"].cast(pa.string()),
            "author": pc.if_else(pc.equal(authors, reddit.NOBODY), absent, authors).cast(pa.string()),
            "time": values["time"],
            "kind": values.get("kind", absent).cast(pa.string()),
            "text": texts,
            "meta": metas,
            "label": label,
            "or_parent": pc.if_else(is_number, values["id"], absent).cast(pa.string()),
        }
    )
    is_complete = pc.and_(pc.not_equal(values["id"], "").fill_null(False), values["tree"].is_valid())
    for row in np.flatnonzero(~is_complete.to_numpy(zero_copy_only=False)).tolist():
        counts.skip("not_a_post", f"{path}, post {first_row + row}: no id or no tree")
    return batch.filter(is_complete).cast(TABLE)


def _reddit_posts(
    columns: Columns, label: pa.Array, lines: pa.Array, path: Path, policy: Policy, counts: ReadCounts
) -> Iterator[pa.RecordBatch]:
    """Convert rows to the posts of a dump."""
    has_submissions = "title" in columns or "selftext" in columns
    values = {name: column.to_pylist() for name, column in columns.items()}
    posts = []
    for place in range(len(lines)):
        row = {name: column[place] for name, column in values.items()}
        link, parent = (None if row.get(name) in ROOT_MARKS else row.get(name) for name in ("tree", "parent"))
        # Comma-separated values cannot tell an empty text from none.
        submitted = (row.get("selftext") or row.get("text") or "") if has_submissions and link is None else None
        posts.append(
            reddit.Post(
                id=row["id"] or None,
                link_id=link,
                parent_id=parent,
                author=row.get("author"),
                created_utc=row["time"],
                body=row.get("text"),
                title=row.get("title"),
                selftext=submitted,
                subreddit=row.get("subreddit"),
            )
        )
    bare = [reddit.bare_id(post.id) for post in posts]
    labels = {name: value for name, value in zip(bare[::-1], label.to_pylist()[::-1]) if value is not None}
    splits = {name: value for name, value in zip(bare, values.get("split", ())) if value}
    for batch in reddit.batches(lines.to_pylist(), posts, path, policy, counts):
        ids, metas = batch["id"].to_pylist(), batch["meta"].to_pylist()
        for place, (name, meta) in enumerate(zip(ids, metas)):
            if meta is not None and name in splits:
                metas[place] = json.dumps({SPLIT: splits[name], **json.loads(meta)}, ensure_ascii=False)
        added = {"meta": metas, "label": [labels.get(name) for name in ids]}
        arrays = [pa.array(added[name], pa.string()) if name in added else batch[name] for name in TABLE.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=TABLE)


def _describe_trees(values: Columns, is_root: pa.Array, texts: pa.Array, entities: Entities) -> tuple[pa.Array, pa.Array]:
    """The texts, with the title above a root's text, and the metadata of the trees, from the roots' other columns."""
    roots = pc.indices_nonzero(is_root)
    names = [name for name in (*TREE_COLUMNS, SPLIT) if name in values]
    descriptions = {name: _repair(values[name].take(roots).fill_null(""), entities).to_pylist() for name in names}
    metas = []
    root_texts = texts.take(roots).to_pylist()
    for row, text in enumerate(root_texts):
        meta = {name: descriptions[name][row] for name in names if descriptions[name][row]}
        title = next((meta[name] for name in TITLES if name in meta), "")
        root_texts[row] = f"{title}\n\n{text}" if title and text else title or text
        metas.append(json.dumps(meta, ensure_ascii=False) if meta else None)
    return (
        pc.replace_with_mask(texts, is_root, pa.array(root_texts, pa.large_string())),
        pc.replace_with_mask(pa.nulls(len(texts), pa.string()), is_root, pa.array(metas, pa.string())),
    )


def _repair(texts: pa.Array, entities: Entities) -> pa.Array:
    if entities == "none":
        return texts
    odd = pc.match_substring_regex(texts, ODD[entities])
    mended = unescape if entities == "all" else partial(NUMERIC_ENTITY.sub, lambda match: unescape(match[0]))
    replaced = [mended(text).translate(WINDOWS_1252) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(replaced, pa.large_string())) if replaced else texts

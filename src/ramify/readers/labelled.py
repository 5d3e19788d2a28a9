"""Labelled texts: tables with a text, or a pair of texts, and a label per row; and the published layouts of data sets.

A text is a tree of one node. A pair is a root and its child, which has the label. `labelled_sets` lists the known data sets.
"""

import csv
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from ramify.errors import RamifyError, counted, shown
from ramify.readers import columns as tables
from ramify.readers import labelled_records, labelled_rows
from ramify.readers.archives import ZIP
from ramify.readers.base import A_FOLDER, Policy, ReadCounts, bad_option, file_name, fitting_files, open_bytes, read_before
from ramify.readers.columns import LINE, PARQUET, Columns, Layout, Missing, decoded, header, present, strings
from ramify.readers.labelled_records import REVIEW_FOLDERS, SENTENCE_FILES, Found, line_aligned
from ramify.readers.labelled_sets import BY_NAME, Dataset, lacks_header, of_table, part_of, split_of
from ramify.readers.labels import LabelColumn, LabelType, number, renamed, survey
from ramify.readers.listing import list_files
from ramify.readers.quoting import MARK, detect_quote
from ramify.readers.records import is_json
from ramify.readers.split_names import named
from ramify.tree import GROUP, SPLIT, Node, Tree

SYNONYMS = {
    "text": (
        *("text", "sentence", "sentence1", "sentence_1", "sentence_a", "text1", "text_a", "premise", "question1"),
        *("review", "document", "content", "body", "message", "comment", "utterance"),
    ),
    "text_pair": ("text_pair", "sentence2", "sentence_2", "sentence_b", "text2", "text_b", "hypothesis", "question2"),
    "label": ("label", "gold_label", "labels", "class", "category", "sentiment", "target", "score", "rating"),
    "id": ("id", "idx", "index", "guid", "uid", "pairid", "pair_id"),
    "split": ("split",),
}
ANY = Layout(SYNONYMS, ())
CHAT = ("author", "user", "username", "speaker", "time", "timestamp", "date", "created_utc", "link_id", "parent_id", "nodes")
"""Columns of chats and posts. A table that has one of them may be labelled, but its format is not guessed."""

NONE, FILE, SHARES = "none", "file", "shares"
"""Values of `split`: no split from the data; the split in the name of the file; no split from the names of files if they give
only one. `NONE` is also a value of `dataset`: no known layout."""

SUFFIXES = ("tsv", "csv", "txt", "json", "jsonl", "ndjson", "parquet", "zip")
PACKED = ("gz", "zst", "bz2", "xz")

Reads = Literal["read", "none"]
"""Whether labels are read. none: a column of labels is left unread, and need not be there."""

LABEL = ("label",)
"""The columns that may hold lists and objects."""

KEPT = "meta "
"""Begins the canonical names of columns that become metadata."""

OTHER_ZIP = "zip"
UNREAD = {
    labelled_records.PLAYS: (
        "plays in XML, which are documents, not labelled texts",
        "Leave the file out, or read it with a format for documents.",
    ),
    OTHER_ZIP: ("other files than Pang and Lee's texts, in a ZIP archive", "Unpack it and name its tables."),
}
"""Shape of a file that is not read -> its content, and the remedy."""

MARKS = {
    "race": (b'"article"', b'"options"', b'"questions"'),
    "squad": (b'"data"', b'"paragraphs"'),
    "multirc": (b'"passage"', b'"questions"'),
    "record": (b'"passage"', b'"qas"', b'"entities"'),
    "wsc": (b'"target"', b'"span1_text"'),
}
"""Shape of a data set in JSON -> the keys among the first bytes of its files."""


def refuses(path: Path, head: bytes, columns: Mapping[str, str] = MappingProxyType({})) -> str:
    if path.is_dir():
        return _refuses_folder(path)
    if shape := _shape(path, head):
        return UNREAD[shape][0] if shape in UNREAD else ""
    try:
        names = header(path, head)
    except (pa.ArrowException, OSError):
        return "a damaged Parquet file"
    layout = Layout(SYNONYMS, ("text", "label"))
    if unknown := layout.unknown(names, columns):
        return unknown
    if of_table(path, names, _first_row(head)):
        return ""
    if missing := [name for name in layout.lacking(names) if name not in columns]:
        if len(missing) == len(layout.required) and (titles := _proposed_titles(head)):
            return f"line 1: names neither text nor label; if it is no header: --format labelled --option titles={titles}"
        return f"line 1: no column for {', '.join(missing)}"
    chats = [name for name in names if name.casefold() in CHAT and "label" not in columns]
    return f"line 1: a column {chats[0]}, as in chats" if chats else ""


def _refuses_folder(path: Path) -> str:
    """A folder with other files beside those of a known data set is accepted. Elsewhere, the files decide."""
    files = list_files([path])
    data = [file for file in files if _is_data_file(file)]
    if not data or len(data) == len(files):
        return A_FOLDER
    for file in data:
        head = _head(file)
        reason = refuses(file, head)
        if not reason and not _shape(file, head) and not of_table(file, header(file, head), _first_row(head)):
            reason = "no table of a known data set, in a folder with other files"
        if reason:
            return f"{file}: {reason}"
    return ""


def without_layout(path: Path) -> Path | None:
    """The first file, of those that are read of a file or folder, that has the layout of no published data set."""
    files = [file for file in list_files([path]) if file == path or _is_data_file(file)]
    for file in files:
        if not line_aligned(file):
            head = _head(file, archives=False)
            if not _shape(file, head) and not of_table(file, tables.names_of(file), _first_row(head)):
                return file
    return None


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    policy: Policy,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    dataset: str | None = None,
    label_type: LabelType = "auto",
    separator: str | None = None,
    missing: Missing = "marks",
    labels: Reads = "read",
    titles: str | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
) -> Iterator[Tree]:
    """Read labelled texts.

    `text`, `text_pair`, `label` and `id` name columns; an empty `label` reads no labels. Labels in a named column stay as they
    are; otherwise, the classes of a known data set have their names. `labels=none` reads no labels of tables, so no column has
    to hold them. `split` names a column, or is `file`, `none` or `shares` (as the default, but the name of the only split says
    nothing); by default, known data sets and files with different splits in their names have splits.
    `dataset` names the layout (`none`: a plain table). `label_type=category` reads numbers as text. `separator` parts labels
    into lists. `missing=empty`: labels such as NA are labels. `titles` names the columns of a file without a header, with
    commas between them. `quote=""`: quotation marks are plain text; by default, the whole file decides.
    """
    tables.check(ANY, None, delimiter, MARK if quote is None else quote)
    if dataset not in (None, NONE, *BY_NAME):
        raise bad_option("dataset", f"{NONE}, {', '.join(BY_NAME)}", dataset)
    if label == "":
        label, labels = None, "none"
    if labels == "none" and label is not None:
        raise RamifyError(f"label={label!r} names the column of labels, but labels=none reads none. Leave one of them out.")
    column_of_splits = None if split in (NONE, FILE, SHARES) else split
    names = {"text": text, "text_pair": text_pair, "label": label, "id": id, "split": column_of_splits}
    columns = {ours: theirs for ours, theirs in names.items() if theirs is not None}
    unread = {"label"} if labels == "none" else set()
    unread |= {"split"} if split in (NONE, FILE) else set()
    chosen = _Chosen(columns, unread, dataset, titles.split(",") if titles else (), delimiter, quote)
    sources = [_source(path, name, chosen) for path, name in _files(paths, counts)]
    _give_splits(sources, split)
    # The type of the labels is decided over all tables, except those of known data sets.
    column = LabelColumn("label" if label is None else label, label_type, separator=separator, missing=missing)
    for source in sources:
        if source.reads_labels:
            survey(column, source.only("label"), source.path, source.unit, source.delimiter)
    rows: Counter[tuple[str, str]] = Counter()
    for source in sources:
        read_shape = labelled_records.READERS.get(source.shape)
        found = read_shape(source.path, source.name, counts) if read_shape else _rows(source, column, policy, counts)
        for name, tree, count in found:
            of_row = tree.meta.get(SPLIT) if source.dataset and source.dataset.split else None
            rows[name, part_of(source.path, named(str(of_row or source.split_in_name or "")))] += count
            counts.datasets[name] += count
            yield _placed(tree, source.split)
    _compare(rows, counts)


# --- the files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chosen:
    """The user's options for tables. `columns`, `unread`: canonical names of columns that are named, and that are not read."""

    columns: Mapping[str, str]
    unread: set[str]
    dataset: str | None
    titles: Sequence[str]
    delimiter: str | None
    quote: str | None


@dataclass
class _Source:
    path: Path
    # Begins the ids of the trees.
    name: str
    shape: str
    # The split that the name of the file or of its folder names.
    split_in_name: str | None = None
    dataset: Dataset | None = None
    # Of tables only.
    titles: Sequence[str] = ()
    delimiter: str | None = None
    quote: str = MARK
    layout: Layout = ANY
    columns: Mapping[str, str] = field(default_factory=dict)
    # Whether the labels are those of a named or guessed column, rather than classes of a known data set.
    reads_labels: bool = False
    # The split of all trees of the file.
    split: str | None = None

    @property
    def unit(self) -> str:
        """The name of what the numbers of rows count."""
        return f"{self.path}, {'row' if self.quote else 'line'}"

    def batches(self, layout: Layout, columns: Mapping[str, str], counts: ReadCounts) -> Iterator[Columns]:
        return tables.batches(self.path, counts, layout, columns, self.delimiter, self.quote, self.titles)

    def only(self, name: str, **changes: Any) -> Iterator[Columns]:
        """One column of a table, before the table is read. `changes`: fields of the layout."""
        named_columns = {ours: theirs for ours, theirs in self.columns.items() if ours == name}
        return self.batches(replace(self.layout.only(name), **changes), named_columns, ReadCounts())


def _head(path: Path, *, archives: bool = True) -> bytes:
    with open_bytes(path, archives=archives) as stream:
        return stream.read(1 << 16)


def _is_data_file(path: Path) -> bool:
    """Whether a file in a folder may be part of a data set."""
    if line_aligned(path):
        return True
    endings = [ending for ending in path.name.lower().split(".")[1:] if ending not in PACKED]
    if not ({*endings[-1:]} & {*SUFFIXES} or path.name in SENTENCE_FILES) or labelled_records.beside_reviews(path):
        return False
    return path.suffix.lower() != ".zip" or labelled_records.shape_of(path) != labelled_records.PLAYS


def _files(paths: Sequence[Path], counts: ReadCounts) -> Iterator[tuple[Path, str]]:
    """The files to read, each with a different name for the ids of its trees."""
    names: dict[str, list[Path]] = {}
    for file in dict.fromkeys(line_aligned(file) or file for file in fitting_files(paths, _is_data_file, counts)):
        names.setdefault(_tree_name(file), []).append(file)
    for name, same in names.items():
        common = os.path.commonpath([file.resolve().parent for file in same])
        for file in same:
            # The names do not depend on the place of the data, and neither do the ids.
            yield file, name if len(same) == 1 else file.resolve().relative_to(common).as_posix()


def _tree_name(path: Path) -> str:
    """The name of a file without its ending, after that of its folder if only this tells the split."""
    stem = file_name(path)
    while (ending := stem.rpartition(".")[2].lower()) in (*SUFFIXES, *PACKED) and ending != stem.lower():
        stem = stem.rpartition(".")[0]
    folder = path.resolve().parent.name
    return stem if split_of(path) is None or named(folder) is None else f"{folder}/{stem}"


def _shape(path: Path, head: bytes) -> str | None:
    """The shape of a file that is not a table (see `labelled_records.READERS` and `UNREAD`), from its first bytes."""
    if line_aligned(path):
        return "squad-lines"
    if labelled_records.SENTENCE_TREE.match(head[:8].decode("utf-8", "replace")):
        return "sentence-trees"
    is_object = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    marked = next((shape for shape, marks in MARKS.items() if is_object and all(mark in head for mark in marks)), None)
    if marked == "race":
        return marked
    if head.startswith(ZIP):
        return labelled_records.shape_of(path) or OTHER_ZIP
    if path.suffix == ".txt" or path.name in SENTENCE_FILES:
        return labelled_records.shape_of(path)
    return marked or labelled_rows.shape_of(path, head)


def _first_row(head: bytes) -> list[str]:
    """The fields of the first line of a table: with tabs and without quoting, or with commas and quoting."""
    if head.startswith((PARQUET, b"{")):
        return []
    line = tables.first_line(head).rstrip("\r")
    if "\t" in line:
        return line.split("\t")
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return [line]


def _proposed_titles(head: bytes) -> str:
    """Names for the columns of a delimited table without names, by its first rows: the longest texts, and the label with the
    fewest different values. "" for other files."""
    if head.startswith(PARQUET) or is_json(head):
        return ""
    rows = tables.first_rows(head, 100)
    columns = list(zip(*(row for row in rows if len(row) == len(rows[0]))))
    if len(columns) < 2 or len(rows) < 2:
        return ""
    text = max(range(len(columns)), key=lambda place: sum(map(len, columns[place])))
    label = min((place for place in range(len(columns)) if place != text), key=lambda place: len({*columns[place]}))
    names = {text: "text", label: "label"}
    return ",".join(names.get(place, f"column{place + 1}") for place in range(len(columns)))


def _source(path: Path, name: str, chosen: _Chosen) -> _Source:
    if line_aligned(path):
        return _Source(path, name, "squad-lines")
    head, choice = _head(path), chosen.dataset
    is_parquet, split = head.startswith(PARQUET), split_of(path)
    shape = _shape(path, head)
    if (chosen.columns or choice == NONE) and labelled_rows.shape_of(path, head):
        shape = None
    if choice in BY_NAME and BY_NAME[choice].shape != "table" and shape != labelled_records.PLAYS:
        shape = BY_NAME[choice].shape
    if shape in UNREAD:
        what, remedy = UNREAD[shape]
        raise RamifyError(f"{path} holds {what}. {remedy}")
    if shape is not None:
        if chosen.columns.keys() - {"split"}:
            column = next(iter(chosen.columns.values()))
            raise RamifyError(f"{path} is not a table, so it has no column {column!r}. Leave out the names of columns.")
        folder = path.resolve().parent
        return _Source(path, name, shape, split or (named(folder.parent.name) if folder.name in REVIEW_FOLDERS else None))
    is_delimited = not is_parquet and not head.lstrip(b"\xef\xbb\xbf \n").startswith(b"{")
    titles = chosen.titles if is_delimited else ()
    with tables.complete_parquet(path):
        names = list(titles) or header(path, head)
    if is_delimited and not chosen.columns and {*labelled_rows.COLUMNS["squad"]} <= {*names}:
        raise RamifyError(
            f"{path} holds questions and answers as SQuAD, but the fields of a delimited table hold no lists of answers. "
            "Export JSON lines or Parquet; in pandas: table.to_json('FILE.jsonl', orient='records', lines=True)."
        )
    first_row = _first_row(head) if is_delimited and not titles else []
    known = None if choice == NONE else BY_NAME[choice] if choice else of_table(path, names, first_row)
    known = known and (known.fitting(names) or known)
    if known and lacks_header(known, first_row):
        names = titles = known.titles
    delimiter, quote = chosen.delimiter, chosen.quote
    if is_delimited:
        delimiter = delimiter or tables.delimiter_of(head)
        if quote is None:
            quote = "" if known and delimiter == "\t" else detect_quote(path, delimiter)
    elif quote is None:
        # The rows of Parquet are counted, and the lines of JSON.
        quote = MARK if is_parquet else ""
    source = _Source(path, name, "table", split, known, titles, delimiter, quote)
    if known:
        return _with_known_columns(source, known, names, chosen)
    return _with_columns(source, names, chosen, _proposed_titles(head))


def _with_known_columns(source: _Source, dataset: Dataset, names: Sequence[str], chosen: _Chosen) -> _Source:
    columns = {"text": dataset.text}
    if "text" not in chosen.columns:
        columns |= {f"text_pair{number or ''}": name for number, name in enumerate(dataset.pair)}
    columns |= {f"{KEPT}{name}": name for name in dataset.kept if name in names}
    optional = {"label": dataset.label, "split": dataset.split, "id": dataset.id if dataset.id in names else "idx"}
    # A column may have no name.
    columns |= {ours: name for ours, name in optional.items() if name and name in names and ours not in chosen.unread}
    columns |= chosen.columns
    if not {"label"} & (columns.keys() | chosen.unread) and source.split_in_name != "test" and {*dataset.rows} != {"test"}:
        raise RamifyError(
            f"{source.path} has no column {dataset.label!r}, which holds the labels of {dataset.name}. Its columns are "
            f"{', '.join(names)}. Name the column with --label NAME, or read the file as another table with --option "
            f"dataset={NONE}."
        )
    lists = LABEL if "label" in chosen.columns else ()
    layout = Layout({}, (), numbered=True, ignored=names, lists=lists, objects=lists)
    return replace(source, layout=layout, columns=columns, reads_labels="label" in chosen.columns)


def _with_columns(source: _Source, names: Sequence[str], chosen: _Chosen, titles: str) -> _Source:
    """`titles`: names for the columns of a table that may have none."""
    unread = {*chosen.unread}
    if "text" in chosen.columns and "text_pair" not in chosen.columns:
        unread.add("text_pair")
    theirs = chosen.columns.get("label") or ANY.known(names).get("label")
    if source.split_in_name == "test" and theirs not in names:
        # The labels of test sets are often secret.
        unread.add("label")
    synonyms = {ours: synonyms for ours, synonyms in SYNONYMS.items() if ours not in unread}
    required = [ours for ours in ("text", "label") if ours not in unread]
    remedy = "Choose one with --{ours} NAME."
    if titles and not source.titles and not {*required} & (chosen.columns.keys() | ANY.known(names).keys()):
        remedy += f" If the first row is no header, name the columns: --option titles={titles}"
    layout = Layout(synonyms, required, remedy=remedy, numbered=True, lists=LABEL, objects=LABEL)
    columns = {ours: theirs for ours, theirs in chosen.columns.items() if ours not in {"label"} & unread}
    return replace(source, layout=layout, columns=columns, reads_labels="label" not in unread)


def _give_splits(sources: Sequence[_Source], split: str | None) -> None:
    """Set the splits of the files by their names.

    A lone training file is left to the build, which divides it by its shares. So are tables of unknown data sets, unless their
    names hold several splits.
    """
    given = {source.split_in_name for source in sources if source.split_in_name}
    for source in sources:
        if split == FILE and source.split_in_name is None:
            raise RamifyError(
                f"split=file: the name of {source.path} names no split. Rename it so that it holds the word train, dev, val or "
                "test, or leave the option out."
            )
        is_known = source.dataset is not None or source.shape != "table"
        by_default = len(given) > 1 or (is_known and given != {"train"} and split is None)
        if split == FILE or (split in (None, SHARES) and by_default):
            source.split = source.split_in_name


def _compare(rows: Mapping[tuple[str, str], int], counts: ReadCounts) -> None:
    """Report differences from the published numbers of rows."""
    for (name, part), count in rows.items():
        published = BY_NAME[name].rows.get(part) if name in BY_NAME else None
        if published is not None and count != published:
            reason = "missing_rows" if count < published else "surplus_rows"
            where = f"{name}, {part}: {counted(count, 'row')}; {published:,} are published"
            counts.repair(reason, where, abs(published - count))


# --- tables -----------------------------------------------------------------------------------------------------------


def _rows(source: _Source, labels: LabelColumn, policy: Policy, counts: ReadCounts) -> Iterator[Found]:
    """One tree per row of a table. The ids of the rows are held, to find repeated ones."""
    dataset = source.dataset
    last = _last_rows(source) if policy.duplicate_id == "last" else {}
    seen: set[str] = set()
    kinds = dataset.kinds if dataset else ("", "")
    row, has_label, odd = 1, False, counts.kept["odd_json"]
    for batch in source.batches(source.layout, source.columns, counts):
        lines = batch[LINE].to_pylist()
        values = {name: decoded(column, source.path, row, counts) for name, column in batch.items() if name != LINE}
        row += len(lines)
        texts = _texts(values["text"])
        if dataset and dataset.newlines == "escaped":
            texts = [text.replace("\\n", "\n") for text in texts]
        pairs = [_texts(values[name]) for name in sorted(values) if name.startswith("text_pair")]
        row_labels = _labels(source, values, batch[LINE], labels, counts)
        has_label = has_label or any(label is not None for label in row_labels)
        kept = {name.removeprefix(KEPT): _kept(column) for name, column in values.items() if name.startswith(KEPT)}
        if "split" in values:
            kept = {SPLIT: present(strings(values["split"])).to_pylist(), **kept}
        ids = strings(values["id"]).to_pylist() if "id" in values else [str(line) for line in lines]
        for place, (line, row_id, text, label) in enumerate(zip(lines, ids, texts, row_labels, strict=True)):
            counts.read += len(pairs)
            if row_id in (None, ""):
                counts.skip("bad_id", f"{source.unit} {line}: no id", 1 + len(pairs))
                continue
            if row_id in seen or last.get(row_id, line) != line:
                counts.skip("duplicate_id", f"{source.unit} {line}: {row_id}", 1 + len(pairs))
                continue
            if "id" in values:
                seen.add(row_id)
            if label is None:
                counts.repair("no_label", f"{source.unit} {line}")
            nodes = [Node(text, id=row_id, kind=kinds[0], label=None if pairs else label)]
            for choice, column in enumerate(pairs):
                of_choice = label if len(pairs) == 1 or label is None else str(label) == str(choice)
                nodes.append(Node(column[place], (0,), id=f"{row_id}/{choice + 1}", kind=kinds[1], label=of_choice))
            meta = {name: column[place] for name, column in kept.items() if column[place] is not None}
            yield Found(dataset.name if dataset else "", Tree(tuple(nodes), f"{source.name}/{row_id}", meta), 1)
    if dataset and not source.reads_labels and not has_label and counts.kept["odd_json"] > odd:
        _check_lost_labels(source, dataset)


def _last_rows(source: _Source) -> dict[str, int]:
    """Id -> the last row with this id."""
    last: dict[str, int] = {}
    read_before(source.path)
    for batch in source.only("id"):
        if "id" in batch:
            last.update(zip(strings(decoded(batch["id"], source.path, 1, ReadCounts())).to_pylist(), batch[LINE].to_pylist()))
    return last


def _check_lost_labels(source: _Source, dataset: Dataset) -> None:
    """Raise `RamifyError` if labels are lists and objects, which are not classes of a data set."""
    for batch in source.only("label", lists=LABEL, objects=LABEL):
        if "label" in batch and pa.types.is_nested(batch["label"].type):
            raise RamifyError(
                f"{source.path}: no label of the column {dataset.label!r} is a class of {dataset.name}; they are lists or "
                f"objects. Keep them as they are with --label {dataset.label}, or read another table with --option "
                f"dataset={NONE}."
            )


def _texts(values: pa.Array) -> list[str]:
    return strings(values).fill_null("").to_pylist()


def _kept(values: pa.Array) -> list[Any]:
    """Values for metadata: numbers, also those spelled as text, and texts."""
    return [
        spelled if isinstance(value, str) and (spelled := number(value)) is not None else value for value in values.to_pylist()
    ]


def _labels(source: _Source, values: Columns, lines: pa.Array, labels: LabelColumn, counts: ReadCounts) -> list[Any]:
    dataset = source.dataset
    if "label" not in values:
        return [None] * len(lines)
    if dataset is None or source.reads_labels:
        return labels.json(values["label"], lines, source.unit, counts)
    classes, odd = renamed(values["label"], dataset.classes, dataset.unlabelled)
    for row in odd:
        counts.repair("unknown_label", f"{source.unit} {lines[row].as_py()}: {shown(classes[row])}")
    if not dataset.is_number:
        return classes
    numbers = LabelColumn(dataset.label, "number").json(pa.array(classes, pa.large_string()), lines, source.unit, counts)
    return [None if value is None else float(value) for value in numbers]


def _placed(tree: Tree, split: str | None) -> Tree:
    """The tree with its split and, unless it is held out, with a group: texts that begin alike stay in one split, also where
    shares divide train."""
    if split is not None and SPLIT not in tree.meta:
        tree = replace(tree, meta={SPLIT: split, **tree.meta})
    given = tree.meta.get(SPLIT)
    if GROUP in tree.meta or (given is not None and named(str(given)) != "train"):
        return tree
    digest = hashlib.blake2b(tree.nodes[0].text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return replace(tree, meta={GROUP: digest, **tree.meta})

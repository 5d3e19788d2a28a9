"""Vectors of whole corpora, streamed to a file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ramify.dataset.store import Store
from ramify.dataset.tables import rows_of, schema_of
from ramify.errors import RamifyError
from ramify.files import STANDARD, replacing
from ramify.inference.embed import EmbeddingPipeline
from ramify.inference.index import MADE_OF
from ramify.readers.jsonl import read_jsonl

BESIDE = ("split", "parent", "depth", "author", "time", "kind", "label", "text")
"""The columns that may be written beside the vectors. Labels are JSON."""

Kind = Literal["parquet", "npy"]

TREES = 256
"""Number of trees of a JSON lines file that are held at once."""

ROW_GROUP = 32 << 20
"""Size of a Parquet row group in bytes of vectors."""


def write_vectors(
    model: EmbeddingPipeline,
    data: Path,
    out: Path,
    kind: Kind,
    context: Literal["tree", "none"] | None,
    advance: Callable[[int], None],
    beside: Sequence[str] = (),
) -> dict[str, int]:
    """Write a vector for every node of a built data set, or of a JSON lines file of trees, in their order.

    Placeholder roots, which no input held, have no vector. Parquet has the columns tree, id, those of `beside` (keys of
    `tables.TYPES`) and vector, and records hashes of the model and of the data set; npy holds the matrix, and `OUT.ids.tsv`
    beside it has the other columns, without their names. Returns the numbers of vectors, of placeholders, of texts, and of
    texts and tokens that were cut.
    """
    check_output(data, out, kind, beside)
    names = ["tree", "id", *dict.fromkeys(beside)]
    totals = {"vectors": 0, "placeholders": 0, "texts": 0, "texts_over": 0, "tokens_over": 0}
    made_of = {MADE_OF: json.dumps(model.made_of(Store.open(data) if data.is_dir() else None, None, context))}
    with vector_file(out, kind, model.dim, schema_of(names), metadata=made_of) as sink:
        for store in _stores(data):
            forest = model.forest(store)
            for count in ("texts", "texts_over", "tokens_over"):
                totals[count] += forest.cut[count]
            for nodes, vectors in model.embed_batches(forest, context=context):
                advance(len(nodes))
                read = ~store.is_placeholder(nodes)
                nodes, vectors = nodes[read], vectors[read]
                sink.write(rows_of(store, nodes, names).columns, vectors)
                totals["vectors"] += len(nodes)
                totals["placeholders"] += int((~read).sum())
    return totals


def check_output(data: Path, out: Path, kind: Kind, beside: Sequence[str]) -> None:
    """Raise `RamifyError` if a file of vectors cannot be written there, or with these columns."""
    if other := [name for name in beside if name not in BESIDE]:
        raise RamifyError(f"there is no column {other[0]!r} to write beside the vectors. Choose from {', '.join(BESIDE)}.")
    if kind == "npy" and out == STANDARD:
        raise RamifyError("npy has a second file with the ids, so it cannot be written to standard output. Choose parquet.")
    if not out.parent.is_dir():
        raise RamifyError(f"{out}: the folder {out.parent} does not exist. Create it first.")
    if out.exists() and data.exists() and out.samefile(data):
        raise RamifyError(f"{out} is also the input. Choose another file for the vectors.")


@contextmanager
def vector_file(
    out: Path,
    kind: Kind,
    dim: int,
    before: pa.Schema,
    after: pa.Schema | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Iterator["VectorTable | VectorMatrix"]:
    """A file that vectors are written to. It replaces an earlier one when it is complete.

    `before` and `after` are the columns beside the vector; npy has them in a second file. `metadata` is for Parquet only.
    """
    with ExitStack() as stack:
        scratch = stack.enter_context(replacing(out))
        if kind == "parquet":
            yield stack.enter_context(VectorTable(scratch, dim, before, after or pa.schema([]), metadata))
        else:
            ids = stack.enter_context(replacing(out.with_name(f"{out.name}.ids.tsv")))
            yield stack.enter_context(VectorMatrix(scratch, ids, dim))


def _stores(data: Path) -> Iterator[Store]:
    if data.is_dir():
        yield Store.open(data)
        return
    trees = read_jsonl(data)
    while some := list(islice(trees, TREES)):
        yield Store.from_trees(some)


class VectorTable:
    """A Parquet file with the column `vector` among others."""

    def __init__(self, path: Path, dim: int, before: pa.Schema, after: pa.Schema, metadata: Mapping[str, str] | None) -> None:
        self.vector = pa.list_(pa.float32(), dim)
        self.schema = pa.schema([*before, pa.field("vector", self.vector), *after], metadata=metadata)
        # pyarrow's annotation lacks a list of columns.
        dictionary: Any = [name for name in before.names if name in ("tree", "split", "author", "kind", "level")]
        self.writer = pq.ParquetWriter(path, self.schema, use_dictionary=dictionary)
        self.waiting: list[pa.RecordBatch] = []

    def __enter__(self) -> "VectorTable":
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self.writer.close()

    def write(self, before: Sequence[pa.Array], vectors: np.ndarray, after: Sequence[pa.Array] = ()) -> None:
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=self.vector)
        self.waiting.append(pa.record_batch([*before, column, *after], schema=self.schema))
        if sum(waiting_batch.nbytes for waiting_batch in self.waiting) >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if any(map(len, self.waiting)):
            table = pa.Table.from_batches(self.waiting, schema=self.schema)
            self.writer.write_table(table, row_group_size=len(table))
        self.waiting = []


class VectorMatrix:
    """A .npy file whose number of rows is known only at the end. The header is written with spare room and again at the end."""

    def __init__(self, path: Path, names: Path, dim: int) -> None:
        self.dim, self.rows = dim, 0
        self.file = open(path, "wb")  # noqa: SIM115 (closed by __exit__)
        self.names = open(names, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
        self._header()

    def _header(self) -> None:
        # numpy pads the header so that any number of rows fits where zero rows were written.
        header = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.dim)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def __enter__(self) -> "VectorMatrix":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.seek(0)
        self._header()
        self.file.close()
        self.names.close()

    def write(self, before: Sequence[pa.Array], vectors: np.ndarray, after: Sequence[pa.Array] = ()) -> None:
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.rows += len(vectors)
        columns = (column.to_pylist() for column in (*before, *after))
        self.names.writelines("\t".join(map(_escaped, row)) + "\n" for row in zip(*columns, strict=True))


def _escaped(value: Any) -> str:
    """The value as text, without tabs and line ends, which separate the file's columns and rows. A missing value is empty."""
    name = "" if value is None else str(value)
    for mark, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        name = name.replace(mark, escape)
    return name

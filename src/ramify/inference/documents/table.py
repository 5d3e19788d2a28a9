"""Vectors of all nodes of a level, streamed to a file."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from ramify.dataset.store import Store
from ramify.dataset.tables import rows_of, schema_of
from ramify.errors import RamifyError
from ramify.inference.documents.pipeline import AnyDocumentPipeline
from ramify.inference.documents.vectors import NODES, encode_nodes, in_groups
from ramify.inference.index import MADE_OF
from ramify.inference.vectors import Kind, check_output, vector_file
from ramify.readers.jsonl import read_jsonl
from ramify.tree import Tree


@dataclass
class Totals:
    """Counts of the nodes of a level, and of all that happened to them."""

    vectors: int = 0
    cut: int = 0
    """Nodes that were cut into several rows."""
    filled: int = 0
    """Nodes that fill the level where documents lack it. They have no row in the file."""
    documents_without: int = 0
    """Documents without any stored node of the level."""
    left_out: int = 0
    """Children that no row holds (`input.overflow=truncate`)."""
    tokens: int = 0
    unknown: int = 0
    flattened: Counter[str] = field(default_factory=Counter)


def write_level(
    model: AnyDocumentPipeline,
    data: Path,
    out: Path,
    kind: Kind,
    level: str,
    advance: Callable[[int], None],
    beside: Sequence[str] = (),
) -> Totals:
    """Write a vector for every stored node of a level of a built data set, or of a JSON lines file of documents, in their
    order.

    The columns are tree, id, level, those of `beside`, vector and pieces, the number of rows into which a node was cut. `npy`
    holds the matrix, and `OUT.ids.tsv` beside it has the other columns, without their names. Parquet records hashes of the
    model and of the data set, which `SearchPipeline.index` compares. `advance` receives numbers of tokens. Memory holds one
    document, or some short ones. Raises `RamifyError` if no document has the level.
    """
    check_output(data, out, kind, beside)
    number = model.level_number(level)
    names = ["tree", "id", *dict.fromkeys(beside)]
    before = schema_of(names).insert(2, pa.field("level", pa.string()))
    after = pa.schema([("pieces", pa.int32())])
    made_of = model.made_of(Store.open(data) if data.is_dir() else None, level, None)
    totals = Totals()
    with vector_file(out, kind, model.dim_of(level), before, after, {MADE_OF: json.dumps(made_of)}) as sink:
        for store in _stores(data):
            for trees in in_groups(store):
                encoded = encode_nodes(model.backbone, model.tokenizer, model.input, store, trees, number, advance)
                kept = encoded.nodes.stored
                columns = rows_of(store, encoded.nodes.node[kept], names).columns
                columns.insert(2, pa.array([level] * int(kept.sum()), pa.string()))
                sink.write(columns, encoded.vectors[kept], [pa.array(encoded.pieces[kept], pa.int32())])
                totals.vectors += int(kept.sum())
                totals.cut += int((encoded.pieces[kept] > 1).sum())
                totals.filled += int((~kept).sum())
                totals.documents_without += len(trees) - len(np.unique(encoded.nodes.tree[kept]))
                totals.left_out += encoded.left_out
                totals.tokens += encoded.num_tokens
                totals.unknown += encoded.num_unknown
                totals.flattened.update(encoded.flattened)
        if not totals.vectors:
            others = "".join(f", or --level {name}" for name in model.levels if name != level)
            raise RamifyError(f"{data} holds no {level}. Choose other data{others}.")
    return totals


def _stores(data: Path) -> Iterator[Store]:
    """The data set, or a few documents of a file at a time."""
    if data.is_dir():
        yield Store.open(data)
        return
    waiting: list[Tree] = []
    for tree in read_jsonl(data):
        if waiting and sum(map(len, waiting)) + len(tree) > NODES:
            yield Store.from_trees(waiting)
            waiting = []
        waiting.append(tree)
    if waiting:
        yield Store.from_trees(waiting)

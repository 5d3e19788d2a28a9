"""Writing of stores in formats that other programs, and `build`, read."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
from pyarrow.parquet import ParquetWriter

from ramify.dataset.store import SPLITS, Store
from ramify.dataset.tables import batches, column_names, label_type, schema_of, with_label_values
from ramify.errors import RamifyError
from ramify.files import new_folder, replacing, writing
from ramify.readers.base import pc
from ramify.readers.convokit import write_convokit
from ramify.tree import Tree

Format = Literal["jsonl", "csv", "parquet", "convokit", "datasets"]

SPLIT_NAMES = {"train": "train", "dev": "validation", "test": "test"}
"""Our names of the splits -> those that Hugging Face `datasets` uses."""

Stores = Sequence[Store]


def export(stores: Stores, out: Path, format: Format) -> None:
    """Write all trees of some stores to a file or, as `convokit` and `datasets`, into a new folder.

    Raises `RamifyError` if the format cannot hold the trees. A failed export leaves no file, but may have written to
    standard output.
    """
    _WRITERS[format](stores, out)


def _jsonl(stores: Stores, out: Path) -> None:
    with writing(out) as file:
        file.writelines(f"{tree.to_json()}\n".encode() for tree in _trees(stores))


def _csv(stores: Stores, out: Path) -> None:
    names = column_names(stores)
    with writing(out) as file:
        write_csv((batch for store in stores for batch in _without_repeats(store, names)), file)


def _without_repeats(store: Store, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Batches for a file, in which only the first row of a tree has metadata."""
    row = 0
    for batch in batches(store, names):
        trees = store.tree_of(np.arange(row, row + len(batch)))
        is_first = store.offsets[trees] == np.arange(row, row + len(batch))
        metas = batch["meta"]
        metas = pa.DictionaryArray.from_arrays(pc.if_else(pa.array(is_first), metas.indices, None), metas.dictionary)
        yield batch.set_column(names.index("meta"), "meta", metas.dictionary_decode())
        row += len(batch)


def _parquet(stores: Stores, out: Path) -> None:
    names = column_names(stores)
    with replacing(out) as scratch, parquet_writer(scratch, schema_of(names)) as writer:
        for store in stores:
            for batch in batches(store, names):
                writer.write_batch(batch)


def _convokit(stores: Stores, out: Path) -> None:
    if log := next((store for store in stores if store.structure == "log"), None):
        raise RamifyError(
            f"--format convokit holds reply trees with one root, but {log.path} holds messages without a known parent, with "
            "several parents, or several roots. Use --format jsonl, csv or parquet."
        )
    write_convokit(_trees(stores), out)


def _trees(stores: Stores) -> Iterator[Tree]:
    return chain.from_iterable(store.trees() for store in stores)


def _datasets(stores: Stores, out: Path) -> None:
    """One Parquet file per split, and the card that tells `datasets.load_dataset` where they are."""
    names, kind = column_names(stores), label_type(stores)
    empty = pa.RecordBatch.from_pylist([], schema_of(names))
    schema = with_label_values(empty, kind).schema
    nodes: dict[str, int] = dict.fromkeys(SPLITS, 0)
    with new_folder(out, _refusal) as folder:
        (folder / "data").mkdir()
        with ExitStack() as opened:
            writers: dict[str, ParquetWriter] = {}
            for batch in chain.from_iterable(batches(store, names) for store in stores):
                labelled = with_label_values(batch, kind)
                for split in batch["split"].unique().to_pylist():
                    if split not in writers:
                        file = folder / "data" / f"{SPLIT_NAMES[split]}-00000-of-00001.parquet"
                        writers[split] = opened.enter_context(parquet_writer(file, schema))
                    part = labelled.filter(pc.equal(batch["split"], split))
                    nodes[split] += len(part)
                    writers[split].write_batch(part)
        (folder / "README.md").write_text(_card(stores, names, nodes), encoding="utf-8")


def _refusal(place: Path) -> str:
    is_empty = place.is_dir() and not any(place.iterdir())
    return "" if is_empty else "exists and is not an empty folder. Name another folder, or remove it first."


_MEANINGS = {
    "tree": "id of the tree",
    "split": "train, dev or test, as Ramify calls it",
    "id": "id of the node, unique within its tree",
    "parent": "id of the node's parent; null for a root",
    "parents": "ids of all parents; null if they are not annotated",
    "self_link": "whether the message starts a conversation, although it may also answer others",
    "depth": "number of edges to the root",
    "author": "name of the author",
    "time": "seconds since 1970",
    "kind": "type of the node",
    "label": "label of the node",
    "text": "text of the node",
    "meta": "metadata of the tree, as JSON",
}


def _card(stores: Stores, names: Sequence[str], nodes: dict[str, int]) -> str:
    kept = [split for split, count in nodes.items() if count]
    files = "\n".join(f"  - split: {SPLIT_NAMES[split]}\n    path: data/{SPLIT_NAMES[split]}-*.parquet" for split in kept)
    trees = {split: sum(len(store.split(split)) for store in stores) for split in SPLITS}
    counts = "\n".join(f"| {SPLIT_NAMES[split]} | {trees[split]:,} | {nodes[split]:,} |" for split in kept)
    columns = "\n".join(f"| `{name}` | {_MEANINGS[name]} |" for name in names)
    hashes = ", ".join(store.hash for store in stores)
    return (
        f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}\n---\n\n"
        "# Trees of text\n\nOne row per node. The nodes of a tree are consecutive, parents first.\n\n"
        f"| split | trees | nodes |\n|---|---|---|\n{counts}\n\n| column | meaning |\n|---|---|\n{columns}\n\n"
        f"Written by `ramify data export` from data with the content hash {hashes}. The licence is that of the source.\n"
    )


_WRITERS: dict[str, Callable[[Stores, Path], None]] = {
    "jsonl": _jsonl, "csv": _csv, "parquet": _parquet, "convokit": _convokit, "datasets": _datasets
}  # fmt: skip


# --- tables -------------------------------------------------------------------------------------------------------------


def write_csv(rows: Iterable[pa.RecordBatch], file: Any) -> None:
    """Write at least one batch of rows as CSV. All strings are quoted, so that they differ from missing values.

    Lists are written as JSON.
    """
    rows = iter(rows)
    first = _flat(next(rows))
    with pyarrow.csv.CSVWriter(file, first.schema) as writer:
        for batch in chain([first], map(_flat, rows)):
            writer.write_batch(batch)


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    for place, field in enumerate(batch.schema):
        if pa.types.is_list(field.type):
            lists = batch.column(place).to_pylist()
            texts = [None if values is None else json.dumps(values, ensure_ascii=False) for values in lists]
            batch = batch.set_column(place, field.name, pa.array(texts, pa.string()))
    return batch


@contextmanager
def parquet_writer(path: Path, schema: pa.Schema) -> Iterator[ParquetWriter]:
    # Without the schema of Arrow, readers see a dictionary as the strings that it holds.
    with ParquetWriter(path, schema, compression="zstd", store_schema=False) as writer:
        yield writer

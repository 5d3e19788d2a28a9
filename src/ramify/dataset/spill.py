"""Rows in temporary files by hash, to be read part by part in hash order."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

FANOUT_BITS = 6
FANOUT = 1 << FANOUT_BITS
HASH_BITS = 64


class Spill:
    """Rows with a column `hash` (uint64). Small amounts stay in memory.

    `parts` yields tables of about `part_bytes`, in the order of the leading bits of the hashes. All rows of a hash are in one
    part, in the order in which they were added, so only the rows of a single hash must fit into memory.
    """

    def __init__(self, folder: Path, part_bytes: int, skip_bits: int = 0) -> None:
        self._folder = folder
        self._part_bytes = part_bytes
        self._skip_bits = skip_bits
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files: dict[int, _File] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._part_bytes:
            self._scatter()

    def parts(self) -> Iterator[pa.Table]:
        """Yield all rows. They can be read once, because the files are removed."""
        if not self._files:
            if self._held:
                yield pa.Table.from_batches(self._held)
            return
        self._scatter()
        files = [file for _, file in sorted(self._files.items())]
        for file in files:
            file.writer.close()
        group: list[_File] = []
        for file in files:
            if group and sum(member.bytes for member in [*group, file]) > self._part_bytes:
                yield _take(group)
                group = []
            if file.bytes > self._part_bytes and file.hashes_differ:
                yield from self._scatter_further(file).parts()
            else:
                group.append(file)
        if group:
            yield _take(group)

    def _scatter(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held).combine_chunks()
        self._held, self._held_bytes = [], 0
        hashes = table["hash"].to_numpy()
        bucket = ((hashes << np.uint64(self._skip_bits)) >> np.uint64(HASH_BITS - FANOUT_BITS)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        table = table.take(pa.array(order))
        ends = np.cumsum(np.bincount(bucket, minlength=FANOUT))
        for number in np.unique(bucket).tolist():
            start = int(ends[number - 1]) if number else 0
            if number not in self._files:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._files[number] = _File(self._folder / f"{number:02d}.arrows", table.schema)
            self._files[number].write(table.slice(start, int(ends[number]) - start), hashes[order[start : ends[number]]])

    def _scatter_further(self, file: "_File") -> "Spill":
        """Scatter a file that is too large for a part by the next bits of the hash."""
        finer = Spill(file.path.with_suffix(""), self._part_bytes, self._skip_bits + FANOUT_BITS)
        with pa.ipc.open_stream(pa.memory_map(str(file.path))) as batches:
            for batch in batches:
                finer.add(batch)
        file.path.unlink()
        return finer


class _File:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.writer = pa.ipc.new_stream(str(path), schema)
        self.bytes = 0
        self._lowest, self._highest = np.iinfo(np.uint64).max, 0

    def write(self, rows: pa.Table, hashes: NDArray[np.uint64]) -> None:
        self.writer.write_table(rows)
        self.bytes += rows.nbytes
        self._lowest, self._highest = min(self._lowest, int(hashes.min())), max(self._highest, int(hashes.max()))

    @property
    def hashes_differ(self) -> bool:
        return self._lowest != self._highest


def _take(files: list[_File]) -> pa.Table:
    """Read files and remove them."""
    tables = []
    for file in files:
        with pa.ipc.open_stream(pa.memory_map(str(file.path))) as batches:
            tables.append(batches.read_all())
        file.path.unlink()
    return pa.concat_tables(tables)

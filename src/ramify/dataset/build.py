"""Build a store from files, out of core: scatter the records of readers by tree, then join, filter and write part by part."""

import contextlib
import errno
import hashlib
import json
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ramify import readers
from ramify.dataset import filters, posts, trees
from ramify.dataset.chunk import ADDED, EMPTIED, Chunk
from ramify.dataset.duplicates import Method, without_near_duplicates
from ramify.dataset.links import Links
from ramify.dataset.spill import Spill
from ramify.dataset.splits import DIVIDED, FILE, FILLED, GIVEN, NONE, Fold, Move, Splitter, by_file, is_table
from ramify.dataset.store import INFO_FILE, NODES, OWN_FILES, SPLITS, TREES, TREES_FILE, VERSION, Store, Structure
from ramify.errors import RamifyError, counted
from ramify.files import STANDARD, check_folder, new_folder
from ramify.readers.base import Policy, ReadCounts, pc
from ramify.tree import SPLIT, encodable
from ramify.version import __version__

Progress = Callable[[Literal["read", "write"], int, int, int], None]
"""Called with the stage, the amount done (bytes of input, or nodes), the total amount, and the number of posts read so far."""

SCRATCH = "scratch"

PARTS = 8
"""The number of parts that fit into the memory bound, because joining a part copies it a few times."""


def _ignore_progress(stage: str, done: int, total: int, posts: int) -> None:
    pass


def _ignore_line(line: str) -> None:
    pass


def build(
    inputs: Sequence[str | Path],
    format: str | None,
    out: str | Path,
    *,
    policy: Policy = Policy(),  # noqa: B008
    split: Sequence[float] | None = None,
    split_by: str | None = None,
    fold: str | None = None,
    clean: Sequence[str] = (),
    near_duplicates: Method | None = None,
    drop_bots: bool = False,
    bots: Sequence[str] = (),
    anonymise: bool = False,
    salt: str = "",
    min_nodes: int = 1,
    max_nodes: int = 0,
    min_depth: int = 0,
    memory: int = 512 << 20,
    overwrite: bool = False,
    options: Mapping[str, Any] | None = None,
    verbose: bool = False,
    progress: Progress = _ignore_progress,
    tell: Callable[[str], None] = _ignore_line,
) -> Store:
    """Build a store in the folder `out`.

    `format`, `options`, `verbose` and `tell` are those of `readers.open_inputs`. `split` gives the shares of train, dev and
    test (None: `splits.DEFAULT_SHARES`); the split of a tree depends on the id of the tree or of its group alone, unless the
    data give it (metadata `split`) or a split would be empty (`splits.Splitter.fill`). Where the data give train and test but
    no dev, `split` takes dev out of train. `tell` also receives a note on this, one if given shares have no
    effect, and one about empty splits. `split_by` is `none` (all trees in train), `file` (the names of the
    input files), a file with the split of every tree (`splits.read_table`), or the name of a column. `fold` ("2/5") makes the
    test split of one part of the trees, and dev of a tenth of them. `clean` lists keys of
    `filters.CLEANINGS` in order. `max_nodes=0` means no bound. `min_depth` bounds the number of edges from the root to the
    deepest node of a tree. Without a `salt`, `anonymise` uses a random one and discards it. `memory` bounds the bytes of data
    in memory: each tree must fit, the whole data need not. Raises `RamifyError` if the inputs, the options or `out` are not
    usable. A failed build leaves no files.
    """
    started = time.perf_counter(), time.process_time()
    opened, out = readers.open_inputs(inputs, format, options, verbose=verbose, tell=tell), Path(out)
    _check_out(out, overwrite, opened.given)
    splitter = Splitter(split, split_by, Fold.named(fold) if fold else None)
    filters.check_cleanings(clean)
    opened = _with_split_column(opened, split_by)
    if split is not None or fold is not None:
        opened = replace(opened, options={**opened.format.by_shares, **opened.options})
    used = {"policy": vars(policy), "split": list(splitter.shares), "split_by": split_by, "fold": fold, "clean": list(clean)}
    used |= {"near_duplicates": near_duplicates, "drop_bots": drop_bots, "bots": list(bots), "anonymise": anonymise}
    used |= {"min_nodes": min_nodes, "max_nodes": max_nodes, "min_depth": min_depth, "memory": memory}
    used |= {"reader": opened.options}
    with _written_beside(out, overwrite) as folder:
        scratch, part_bytes, counts = folder / SCRATCH, memory // PARTS, opened.counts
        spill, links = Spill(scratch / "posts", part_bytes), Links()
        sizes = _read(opened, policy, split_by, clean, spill, splitter, progress)
        splitter.seen(opened.format.unsplit)
        chunks = _joined(spill, opened, policy, links)
        if drop_bots:
            chunks = (filters.without_bots(chunk, bots, counts) for chunk in chunks)
        if near_duplicates:
            chunks = without_near_duplicates(chunks, near_duplicates, scratch / "texts", part_bytes, counts)
        if min_nodes > 1 or max_nodes or min_depth:
            chunks = (filters.bounded(chunk, min_nodes, max_nodes, min_depth, counts) for chunk in chunks)
        # With a known salt, anyone could find a name by hashing candidates.
        writer = _Writer(folder, splitter, (salt or secrets.token_hex(16)) if anonymise else None)
        for chunk in chunks:
            writer.add(chunk)
            progress("write", writer.nodes, counts.read, counts.read)
        if not opened.format.partial:
            links.check(opened.given, policy)
        if not writer.nodes:
            raise RamifyError(_no_trees(opened))
        source = {"inputs": sizes, "format": opened.format.name, "options": used, "left_out": opened.left_out()}
        _write_info(folder, writer.close(counts) | source | _costs(writer.comments, *started))
    for note in splitter.notes(opened.format.unsplit, by_shares=bool(opened.format.by_shares)):
        tell(f"note: {note}")
    return Store.open(out)


def _read(
    opened: readers.Inputs,
    policy: Policy,
    split_by: str | None,
    clean: Sequence[str],
    spill: Spill,
    splitter: Splitter,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Scatter the records of all inputs by the hashes of their trees. Returns the name and the bytes of each input."""
    sizes = {str(path): _size(path) for path in opened.given}
    total = sum(map(_size, opened.paths))
    inputs_of = by_file(opened.paths) if split_by == FILE else {None: opened.paths}
    for given, files in inputs_of.items():
        records = replace(opened, paths=files).records(policy)
        for batch in records if opened.format.yields == "posts" else trees.batches(records):
            splitter.see(batch.column("meta"))
            hashes = pa.array(tree_hashes(batch.column("group" if "group" in batch.schema.names else "tree")))
            batch = filters.cleaned(batch, clean).append_column("hash", hashes)
            if given is not None:
                batch = batch.append_column(GIVEN, pa.array(np.full(len(hashes), given, dtype=np.int8)))
            spill.add(batch)
            progress("read", opened.counts.bytes, total, opened.counts.read)
    if (name := str(STANDARD)) in sizes:
        sizes[name] = opened.counts.bytes - total
    return [{"name": name, "bytes": size} for name, size in sizes.items()]


def _joined(spill: Spill, opened: readers.Inputs, policy: Policy, links: Links) -> Iterator[Chunk]:
    """Whole trees from scattered records, without deleted and empty posts."""
    join = partial(posts.join, links=links) if opened.format.yields == "posts" else trees.gather
    for part in spill.parts():
        yield filters.without_blank(join(part, policy, opened.counts), policy, opened.counts)


def _write_info(folder: Path, info: Mapping[str, Any]) -> None:
    # File names may contain bytes that are not valid text.
    text = encodable(json.dumps(info, indent=1, ensure_ascii=False, default=str))
    (folder / INFO_FILE).write_text(text + "\n", encoding="utf-8")


def _size(path: Path) -> int:
    """The bytes of the files in an input; 0 for standard input, whose size is known only when it has been read."""
    return sum(0 if file == STANDARD else file.stat().st_size for file in readers.list_files([path]))


def tree_hashes(ids: pa.Array) -> NDArray[np.uint64]:
    """Hashes of tree or group ids, which determine the order of the trees in the store and their splits."""
    encoded = ids.dictionary_encode()
    digests = b"".join(hashlib.blake2b(id.encode(), digest_size=8).digest() for id in encoded.dictionary.to_pylist())
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)[encoded.indices.to_numpy()]


# --- checks before anything is written --------------------------------------------------------------------------------


def _check_out(out: Path, overwrite: bool, inputs: Sequence[Path]) -> None:
    check_folder(out)
    if out.exists() and (reason := _refusal(out, overwrite)):
        raise RamifyError(f"{out} {reason}")
    if (out / INFO_FILE).is_file():
        for path in inputs:
            if path.is_dir() and path.resolve() in out.resolve().parents:
                raise RamifyError(f"{out} is inside the input folder {path} and would be read as input. Remove it first.")


def _refusal(out: Path, overwrite: bool) -> str:
    """Why a build must not replace an existing file or folder; "" if it may."""
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else None
    if names == []:
        return ""
    if names is None or not (out / INFO_FILE).is_file():
        return "exists and is not a Ramify data set, so it is not touched. Choose another --out."
    if not overwrite:
        return "already holds a data set. Replace it with --overwrite, or choose another --out."
    foreign = next((name for name in names if not any(fnmatchcase(name, pattern) for pattern in OWN_FILES)), None)
    if foreign is not None:
        return (
            f"holds {foreign}, which is not part of a data set, so it is not touched. Move {foreign}, or choose another --out."
        )
    return ""


def _with_split_column(opened: readers.Inputs, split_by: str | None) -> readers.Inputs:
    """Let the reader take the splits from the column `split_by`, if it is one. Raises `RamifyError` if the format has none."""
    if not split_by or split_by in (NONE, FILE) or is_table(split_by):
        return opened
    if SPLIT in opened.format.options:
        return replace(opened, options={**opened.options, SPLIT: split_by})
    if "columns" in opened.format.options:
        return replace(opened, options={**opened.options, "columns": {**opened.options.get("columns", {}), SPLIT: split_by}})
    raise RamifyError(
        f"--split-by {split_by} is neither an existing file nor none or file, and the format {opened.format.name!r} has no "
        "columns. Check the spelling of the file."
    )


def _no_trees(opened: readers.Inputs) -> str:
    counts = opened.counts
    skipped = ", ".join(f"{reason} {count:,}" for reason, count in counts.skipped.most_common()) or "none"
    example = next((f" For example {where[0].rstrip('.')}." for where in counts.examples.values() if where), "")
    return (
        f"no tree found in {', '.join(map(str, opened.given))}: {counted(counts.read, 'record')} read as "
        f"{opened.format.name!r}, left out: {skipped}.{example} Check the format (--format)."
    )


def _costs(comments: int, wall: float, cpu: float) -> dict[str, Any]:
    """The version and the time since `wall` (elapsed) and `cpu` (of the processor), in seconds."""
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tick = time.get_clock_info("process_time").resolution
    return {
        "ramify": __version__,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "comments_per_cpu_second": comments / max(cpu, tick),
    }


# --- writing ----------------------------------------------------------------------------------------------------------

FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextlib.contextmanager
def _written_beside(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder that replaces `out` if the build succeeds, and is removed if it fails."""
    with new_folder(out, lambda folder: _refusal(folder, overwrite)) as folder:
        try:
            yield folder
        except OSError as error:
            if error.errno in FULL:
                raise RamifyError(
                    f"cannot write {out.resolve()}: the disk is full, or the file-size limit reached. No files remain. Free "
                    "some space (a build needs about twice the size of the text), or choose another --out."
                ) from None
            raise
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)


class _Writer:
    """Writes chunks to the files of a store, and counts and hashes their content."""

    def __init__(self, folder: Path, splitter: Splitter, salt: str | None) -> None:
        self.nodes = 0
        self.comments = 0
        self._blank_roots: Counter[str] = Counter()
        self._folder = folder
        self._splitter = splitter
        self._structures: set[Structure] = set()
        self._salt = salt
        self._files: list[str] = []
        self._splits = {name: Counter(trees=0, nodes=0) for name in SPLITS}
        self._digest = _Digest()
        self._trees = pa.ipc.new_file(str(folder / TREES_FILE), TREES)

    def add(self, chunk: Chunk) -> None:
        if not len(chunk):
            return
        nodes = chunk.node_table()
        if self._salt is not None:
            authors = filters.pseudonyms(nodes["author"].chunk(0), self._salt)
            nodes = nodes.set_column(NODES.get_field_index("author"), NODES.field("author"), authors)
        split = self._splitter.split(chunk)
        rows = pa.table([chunk.tree_ids, chunk.metas, chunk.lengths, split], schema=TREES)
        name = f"nodes-{len(self._files):05d}.arrow"
        with pa.ipc.new_file(str(self._folder / name), NODES) as file:
            file.write_table(nodes)
        self._trees.write_table(rows)
        self._files.append(name)
        self._digest.update(nodes, rows)
        self._structures.add(Store([nodes], rows, {}, None).structure)
        self.nodes += len(chunk)
        self._blank_roots["placeholder_roots"] += int((chunk.state == ADDED).sum())
        self._blank_roots["emptied_roots"] += int((chunk.state == EMPTIED).sum())
        self.comments += int((chunk.first_parent >= 0).sum())
        for number, split_name in enumerate(SPLITS):
            self._splits[split_name]["trees"] += int((split == number).sum())
            self._splits[split_name]["nodes"] += int((chunk.state[split[chunk.tree] == number] != ADDED).sum())

    def close(self, counts: ReadCounts) -> dict[str, Any]:
        """Fill splits that would be empty, and close the files. Returns the part of `dataset.json` about content and input."""
        self._trees.close()
        for group in self._splitter.divided:
            counts.repair(DIVIDED, group)
        moves = self._splitter.fill()
        for move in moves:
            old, new = SPLITS[move.old], SPLITS[move.new]
            counts.repair(FILLED, f"{new} takes the tree {move.group.name!r}")
            for split, sign in ((old, -1), (new, 1)):
                self._splits[split]["trees"] += sign * len(move.group.trees)
                self._splits[split]["nodes"] += sign * move.group.nodes
        if moves:
            _rewrite_splits(self._folder / TREES_FILE, moves)
        return {
            "version": VERSION,
            "hash": self._digest.hexdigest(),
            "files": self._files,
            "structure": _whole(self._structures),
            "trees": sum(split["trees"] for split in self._splits.values()),
            "nodes": self.nodes - self._blank_roots["placeholder_roots"],
            "placeholders": self._blank_roots["placeholder_roots"],
            "comments": self.comments,
            "read": counts.read,
            "skipped": dict(counts.skipped),
            "kept": dict(counts.kept + self._blank_roots),
            "examples": counts.examples,
            "unread_columns": counts.unread_columns,
            "datasets": dict(counts.datasets),
            "splits": {name: dict(split) for name, split in self._splits.items()},
        }


def _rewrite_splits(path: Path, moves: Sequence[Move]) -> None:
    """Change the splits of moved trees, one batch of trees at a time."""
    rewritten, start = path.with_name(f"{path.name}.new"), 0
    with pa.OSFile(str(path)) as source, pa.ipc.new_file(str(rewritten), TREES) as target:
        batches = pa.ipc.open_file(source)
        for number in range(batches.num_record_batches):
            batch = batches.get_batch(number)
            split = batch["split"].to_numpy().copy()
            for move in moves:
                trees = move.group.trees - start
                split[trees[(trees >= 0) & (trees < len(split))]] = move.new
            target.write_batch(batch.set_column(TREES.get_field_index("split"), TREES.field("split"), pa.array(split)))
            start += len(split)
    rewritten.replace(path)


def _whole(parts: set[Structure]) -> Structure:
    """The structure of a data set whose parts have these structures."""
    if "document" in parts:
        if len(parts) > 1:
            raise RamifyError("the input mixes documents with other trees. Build them apart.")
        return "document"
    return "log" if "log" in parts else "replies" if "replies" in parts else "texts"


class _Digest:
    """A hash of columns that depends neither on their division into files nor on the numbering of dictionaries."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}

    def update(self, nodes: pa.Table, trees: pa.Table) -> None:
        for side, table in (("node", nodes), ("tree", trees.drop_columns(["split"]))):
            for name in table.column_names:
                self._add(f"{side}.{name}", table[name].chunk(0))

    def hexdigest(self) -> str:
        whole = hashlib.sha256()
        for name, column in sorted(self._columns.items()):
            whole.update(name.encode() + column.digest())
        return whole.hexdigest()

    def _add(self, name: str, values: pa.Array) -> None:
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        if isinstance(values, pa.ListArray):
            self._add(name + "[]", values.flatten())
            values = values.value_lengths().fill_null(-1)
        elif isinstance(values, pa.StringArray | pa.LargeStringArray):
            self._feed(name + "''", _characters(values))
            values = pc.binary_length(values).fill_null(-1)
        self._feed(name, values.to_numpy(zero_copy_only=False).tobytes())

    def _feed(self, name: str, data: Any) -> None:
        self._columns.setdefault(name, hashlib.sha256()).update(data)


def _characters(values: pa.StringArray | pa.LargeStringArray) -> memoryview:
    """The UTF-8 bytes of all values in order, without the rest of the array's buffer."""
    _, offsets, data = values.buffers()
    if data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int64 if isinstance(values, pa.LargeStringArray) else np.int32)
    return memoryview(data)[ends[values.offset] : ends[values.offset + len(values)]]

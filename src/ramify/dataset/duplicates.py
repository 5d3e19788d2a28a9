"""Texts that occur again: leaving them out of a whole build, with a bounded part of it in memory.

`exact`: equal after folding case and white space and replacing links. `minhash`: at least JACCARD of the 5-word shingles of two
texts are common to both; candidates are found by locality-sensitive hashing (a pair at the threshold is found with
probability 0.95, one at 0.9 practically always) and compared. The text that stands first in the store stays.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ramify.dataset.chunk import Chunk
from ramify.dataset.filters import LINK
from ramify.dataset.spill import Spill
from ramify.dataset.store import TREES, Store, map_file
from ramify.readers.base import Report, pc
from ramify.tree import Indices

Method = Literal["exact", "minhash"]
Hashes = NDArray[np.uint64]

MIN_WORDS: dict[Method, int] = {"exact": 1, "minhash": 8}
"""Shorter texts are never called duplicates: an empty text says nothing, and few words have too few shingles."""
SHINGLE = 5
JACCARD = 0.8
BANDS, BAND_ROWS = 16, 8

BATCH_TEXTS = 8192


def without_near_duplicates(
    chunks: Iterable[Chunk], method: Method, folder: Path, part_bytes: int, report: Report
) -> Iterator[Chunk]:
    """Two passes: chunks are put aside in `folder` while their texts are compared, then come back without the duplicates."""
    aside = _Aside(folder / "chunks")
    # Sorting takes several times the memory of what is sorted.
    keys = Spill(folder / "keys", part_bytes // 4)
    for chunk in chunks:
        if not len(chunk):
            continue
        first = aside.num_nodes
        for texts, start in _slices(aside.put(chunk), first):
            keys.add(_keys(texts, start, method))
    pairs = _pairs(keys, aside.num_nodes, Spill(folder / "pairs", part_bytes // 4))
    store = aside.store()
    duplicate = np.zeros(aside.num_nodes, dtype=bool)
    for batch in pairs:
        duplicate[batch[:, 1] if method == "exact" else _similar(batch, duplicate, store)] = True
    for first, chunk in aside.chunks():
        yield chunk.without({"near_duplicate": duplicate[first : first + len(chunk)]}, report)


class _Aside:
    """Chunks on disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.num_nodes = 0
        self._folder = folder
        self._lengths: list[int] = []

    def put(self, chunk: Chunk) -> pa.Array:
        """Returns the chunk's texts."""
        nodes = chunk.node_table().append_column("state", pa.array(chunk.state))
        trees = {"id": chunk.tree_ids, "meta": chunk.metas, "length": chunk.lengths, "hash": chunk.hashes}
        for name, table in (("nodes", nodes), ("trees", pa.table(trees))):
            path = self._folder / f"{len(self._lengths)}.{name}"
            with pa.ipc.new_file(str(path), table.schema) as file:
                file.write_table(table)
        self._lengths.append(len(chunk))
        self.num_nodes += len(chunk)
        return nodes["text"].chunk(0)

    def store(self) -> Store:
        """Everything that was put aside, for looking texts up."""
        nodes = [nodes for nodes, _ in self._tables()]
        return Store(nodes, TREES.empty_table(), {}, None)

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """(number of its first node, chunk)."""
        first = 0
        for nodes, trees in self._tables():
            yield (
                first,
                Chunk.of(
                    nodes,
                    rows=np.arange(nodes.num_rows),
                    lengths=trees["length"].to_numpy(),
                    hashes=trees["hash"].to_numpy(),
                    tree_ids=trees["id"].chunk(0),
                    metas=trees["meta"].chunk(0),
                    state=nodes["state"].to_numpy(),
                ),
            )
            first += nodes.num_rows

    def _tables(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        for number in range(len(self._lengths)):
            yield map_file(self._folder / f"{number}.nodes"), map_file(self._folder / f"{number}.trees")


def _slices(texts: pa.Array, first: int) -> Iterator[tuple[pa.Array, int]]:
    for start in range(0, len(texts), BATCH_TEXTS):
        yield texts.slice(start, BATCH_TEXTS), first + start


# --- what must be equal for two texts to be compared --------------------------------------------------------------------


def _keys(texts: pa.Array, first: int, method: Method) -> pa.RecordBatch:
    """(key, node) of every text that is long enough; a method has one or several keys a text."""
    texts = _normal(texts)
    words = np.where(pc.equal(texts, "").to_numpy(zero_copy_only=False), 0, pc.count_substring(texts, " ").to_numpy() + 1)
    long_enough = np.flatnonzero(words >= MIN_WORDS[method])
    keys = METHODS[method](texts.take(pa.array(long_enough)))
    nodes = np.repeat(long_enough + first, keys.shape[1])
    return pa.RecordBatch.from_pydict({"hash": keys.ravel(), "node": nodes})


def _normal(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(pc.utf8_lower(texts), LINK, "<link>")
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, r"[\s\v\p{Z}\x{85}]+", " "))


def _whole(texts: pa.Array) -> Hashes:
    """[text, 1]: a hash of all of it."""
    return _hash_each(texts.to_pylist())[:, None]


def _bands(texts: pa.Array) -> Hashes:
    """[text, band]: hashes of the least values that 8 permutations give to the text's shingles."""
    if len(texts) == 0:
        return np.zeros((0, BANDS), dtype=np.uint64)
    words = pc.split_pattern(texts, " ")
    counts = pc.list_value_length(words).to_numpy()
    encoded = words.flatten().dictionary_encode()
    word = _hash_each(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
    shingle = np.zeros(len(word) - SHINGLE + 1, dtype=np.uint64)
    for place in range(SHINGLE):
        shingle = shingle * _MIX + word[place : len(word) - SHINGLE + 1 + place]
    starts = np.cumsum(counts) - counts
    kept = np.ones(len(word), dtype=bool)
    for place in range(1, SHINGLE):
        kept[starts + counts - place] = False
    shingle = shingle[kept[: len(shingle)]]
    shingle_starts = starts - np.arange(len(starts)) * (SHINGLE - 1)
    keys = np.zeros((len(texts), BANDS), dtype=np.uint64)
    for band in range(BANDS):
        key = np.full(len(texts), band, dtype=np.uint64)
        for factor, shift in _PERMUTATIONS[band]:
            key = key * _MIX + np.minimum.reduceat(shingle * factor + shift >> _HALF, shingle_starts)
        keys[:, band] = key * _MIX ^ (key >> _HALF)
    return keys


METHODS: dict[Method, Callable[[pa.Array], Hashes]] = {"exact": _whole, "minhash": _bands}

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_PERMUTATIONS = np.random.default_rng(0).integers(0, 2**64, (BANDS, BAND_ROWS, 2), dtype=np.uint64) | np.uint64(1)


def _hash_each(texts: list[str]) -> Hashes:
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint64)


# --- from keys to duplicates --------------------------------------------------------------------------------------------


def _pairs(keys: Spill, num_nodes: int, pairs: Spill) -> Iterator[Indices]:
    """[pair, 2]: (earlier, later) nodes with a common key: every node with the first that has it, and with the one before.

    Ordered by the later node, in batches that end where it changes.
    """
    bits = np.uint64(64 - num_nodes.bit_length())
    for part in keys.parts():
        key, node = part["hash"].to_numpy(), part["node"].to_numpy()
        order = np.lexsort((node, key))
        key, node = key[order], node[order]
        again = np.flatnonzero(key[1:] == key[:-1]) + 1
        first = np.maximum.accumulate(np.where(np.append(True, key[1:] != key[:-1]), np.arange(len(key)), 0))
        for before in (first[again], again - 1):
            later = node[again]
            pairs.add(
                pa.RecordBatch.from_pydict({"hash": later.astype(np.uint64) << bits, "earlier": node[before], "later": later})
            )
    for part in pairs.parts():
        found = np.stack([part["later"].to_numpy(), part["earlier"].to_numpy()], axis=1)
        yield np.unique(found, axis=0)[:, ::-1]


def _similar(pairs: Indices, duplicate: NDArray[np.bool_], store: Store) -> list[int]:
    """The later nodes of pairs that are similar, unless the earlier one is a duplicate itself."""
    found: set[int] = set()
    for start in range(0, len(pairs), BATCH_TEXTS):
        batch = pairs[start : start + BATCH_TEXTS]
        nodes = np.unique(batch)
        shingles = dict(zip(nodes.tolist(), map(_shingles, _normal(store.column("text", nodes)).to_pylist())))
        for earlier, later in batch[~duplicate[batch[:, 0]]].tolist():
            if later not in found and earlier not in found:
                common = len(shingles[earlier] & shingles[later])
                if common >= JACCARD * (len(shingles[earlier]) + len(shingles[later]) - common):
                    found.add(later)
    return sorted(found)


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split(" ")
    return set(zip(*(words[place:] for place in range(SHINGLE))))

"""Removal of repeated texts from a whole build, with bounded memory.

With `exact`, texts are duplicates if they are equal after case folding, normalization of white space and replacement of links.
With `minhash`, they are duplicates if the Jaccard similarity of their 5-word shingles is at least JACCARD. Locality-sensitive
hashing finds the candidates (a pair at the threshold with probability 0.95, a pair at 0.9 almost always), which are then
compared exactly. The first text in the order of the store remains.
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
from ramify.readers.base import ReadCounts, pc
from ramify.tree import Indices

Method = Literal["exact", "minhash"]
Hashes = NDArray[np.uint64]

MIN_WORDS: dict[Method, int] = {"exact": 1, "minhash": 8}
"""The least number of words of a duplicate. Empty texts carry no information, and short texts have too few shingles."""
SHINGLE = 5
JACCARD = 0.8
BANDS, BAND_ROWS = 16, 8

BATCH_TEXTS = 8192


def without_near_duplicates(
    chunks: Iterable[Chunk], method: Method, folder: Path, part_bytes: int, counts: ReadCounts
) -> Iterator[Chunk]:
    """Yield the chunks without duplicates. The first pass stores them in `folder` and compares texts, the second reads them."""
    saved = _SavedChunks(folder / "chunks")
    # Sorting takes several times the memory of the data.
    keys = Spill(folder / "keys", part_bytes // 4)
    for chunk in chunks:
        if not len(chunk):
            continue
        first = saved.num_nodes
        for texts, start in _slices(saved.put(chunk), first):
            keys.add(_keys(texts, start, method))
    pairs = _pairs(keys, saved.num_nodes, Spill(folder / "pairs", part_bytes // 4))
    store = saved.store()
    duplicate = np.zeros(saved.num_nodes, dtype=bool)
    for batch in pairs:
        duplicate[batch[:, 1] if method == "exact" else _similar(batch, duplicate, store)] = True
    for first, chunk in saved.chunks():
        yield chunk.without({"near_duplicate": duplicate[first : first + len(chunk)]}, counts)


class _SavedChunks:
    """Chunks in files of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.num_nodes = 0
        self._folder = folder
        self._lengths: list[int] = []

    def put(self, chunk: Chunk) -> pa.Array:
        """Save a chunk, and return its texts."""
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
        """All saved nodes as a store, for looking up texts."""
        nodes = [nodes for nodes, _ in self._tables()]
        return Store(nodes, TREES.empty_table(), {}, None)

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """Yield the number of the first node of each chunk, and the chunk."""
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


# --- keys: texts with a common key are compared -------------------------------------------------------------------------


def _keys(texts: pa.Array, first: int, method: Method) -> pa.RecordBatch:
    """The (key, node) rows of all texts that are long enough. `minhash` has several keys per text."""
    texts = _normalize(texts)
    words = np.where(pc.equal(texts, "").to_numpy(zero_copy_only=False), 0, pc.count_substring(texts, " ").to_numpy() + 1)
    long_enough = np.flatnonzero(words >= MIN_WORDS[method])
    keys = METHODS[method](texts.take(pa.array(long_enough)))
    nodes = np.repeat(long_enough + first, keys.shape[1])
    return pa.RecordBatch.from_pydict({"hash": keys.ravel(), "node": nodes})


def _normalize(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(pc.utf8_lower(texts), LINK, "<link>")
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, r"[\s\v\p{Z}\x{85}]+", " "))


def _whole(texts: pa.Array) -> Hashes:
    """[text, 1]: a hash of the whole text."""
    return _hash_each(texts.to_pylist())[:, None]


def _bands(texts: pa.Array) -> Hashes:
    """[text, band]: a hash of the text's minima under the permutations of each band of the MinHash signature."""
    if len(texts) == 0:
        return np.zeros((0, BANDS), dtype=np.uint64)
    words = pc.split_pattern(texts, " ")
    counts = pc.list_value_length(words).to_numpy()
    encoded = words.flatten().dictionary_encode()
    word = _hash_each(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
    shingle = np.zeros(len(word) - SHINGLE + 1, dtype=np.uint64)
    for offset in range(SHINGLE):
        shingle = shingle * _MIX + word[offset : len(word) - SHINGLE + 1 + offset]
    starts = np.cumsum(counts) - counts
    # A shingle must not cross the end of its text.
    within_text = np.ones(len(word), dtype=bool)
    for offset in range(1, SHINGLE):
        within_text[starts + counts - offset] = False
    shingle = shingle[within_text[: len(shingle)]]
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
    """Yield [pair, 2]: (earlier, later) nodes with a common key. A node is paired with the first and with the preceding node.

    Pairs are sorted by the later node, and all pairs of a later node are in one batch.
    """
    bits = np.uint64(64 - num_nodes.bit_length())
    for part in keys.parts():
        key, node = part["hash"].to_numpy(), part["node"].to_numpy()
        order = np.lexsort((node, key))
        key, node = key[order], node[order]
        repeated = np.flatnonzero(key[1:] == key[:-1]) + 1
        first = np.maximum.accumulate(np.where(np.append(True, key[1:] != key[:-1]), np.arange(len(key)), 0))
        for partner in (first[repeated], repeated - 1):
            later = node[repeated]
            pairs.add(
                pa.RecordBatch.from_pydict({"hash": later.astype(np.uint64) << bits, "earlier": node[partner], "later": later})
            )
    for part in pairs.parts():
        reversed_pairs = np.stack([part["later"].to_numpy(), part["earlier"].to_numpy()], axis=1)
        yield np.unique(reversed_pairs, axis=0)[:, ::-1]


def _similar(pairs: Indices, duplicate: NDArray[np.bool_], store: Store) -> list[int]:
    """The later nodes of similar pairs, without pairs whose earlier node is a duplicate itself."""
    similar: set[int] = set()
    for start in range(0, len(pairs), BATCH_TEXTS):
        batch = pairs[start : start + BATCH_TEXTS]
        nodes = np.unique(batch)
        shingles = dict(zip(nodes.tolist(), map(_shingles, _normalize(store.column("text", nodes)).to_pylist())))
        for earlier, later in batch[~duplicate[batch[:, 0]]].tolist():
            if later not in similar and earlier not in similar:
                common = len(shingles[earlier] & shingles[later])
                if common >= JACCARD * (len(shingles[earlier]) + len(shingles[later]) - common):
                    similar.add(later)
    return sorted(similar)


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split(" ")
    return set(zip(*(words[offset:] for offset in range(SHINGLE))))

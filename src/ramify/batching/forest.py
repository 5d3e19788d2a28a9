"""The nodes of many trees as arrays of structure and token ids, which views and batches read."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ramify.batching.characters import Lexicon
from ramify.dataset.store import TOKENS, Store
from ramify.errors import RamifyError
from ramify.files import scratch_folder
from ramify.progress import activity
from ramify.tokenizer import Layout, RowLayout, Tokenizer, UnknownTokens
from ramify.tree import depths, roots_of

Overflow = Literal["truncate", "chain"]
Ints = NDArray[np.int64]
Divide = Callable[[str], list[str]]
"""A division of texts into parts. Its name is part of the name of the folder with their token ids."""

Computed = TypeVar("Computed")

DONE = "done.json"
"""The file that marks a folder of `computed_once` as complete."""

WORDS = "words.json"
"""The file of the words that the vocabulary lacks, if the texts were encoded with `open_words`."""

COUNTED = 1 << 24
"""Number of tokens that are counted at a time."""


@dataclass(frozen=True)
class Forest:
    """Parallel arrays over nodes. Trees are consecutive: tree t has the nodes `offsets[t]` to `offsets[t + 1] - 1`."""

    store: Store
    offsets: Ints
    parent: Ints
    """The parent's index in the same arrays, -1 for a root."""
    root: Ints
    depth: Ints
    start: Ints
    """The index of a node's first token id in `ids`."""
    length: Ints
    ids: NDArray[np.unsignedinteger]
    node: Ints
    """The index of each node in the store. A chained text is several nodes here."""
    cut: dict[str, int]
    """Counts of texts that are not empty, of tokens, of texts and tokens truncated at `max_tokens`, and of chained texts."""
    layout: RowLayout
    """The special tokens around each text."""
    lexicon: Lexicon | None = None
    """The characters of all tokens, if words that the vocabulary lacks have numbers of their own in `ids`."""

    @classmethod
    def open(
        cls,
        store: Store,
        tokenizer: Tokenizer,
        max_tokens: int,
        overflow: Overflow = "truncate",
        layout: Layout = "bert",
        *,
        prompt: str = "",
        open_words: bool = False,
    ) -> "Forest":
        """Tokenize a store, or read its token cache, and build the arrays.

        `max_tokens` counts special tokens. `truncate` cuts longer texts when they are batched. `chain` splits a longer text
        into a chain of nodes: each further part is a child of the part before it, and replies are children of the last part.
        `prompt` stands before every text. `open_words`: for a model that reads characters, each word that the vocabulary lacks
        has an id.
        """
        tokenized = token_cache(store, tokenizer, prepended(prompt) if prompt else None, open_words=open_words)
        ids, starts = tokenized.ids, tokenized.starts
        length = np.diff(starts)
        parent = np.asarray(store.parent, dtype=np.int64)
        row_layout = tokenizer.layout(layout)
        room = max_tokens - row_layout.num_special
        over = np.maximum(length - room, 0)
        cut = {
            "texts": int((length > 0).sum()),
            "tokens": int(length.sum()),
            "texts_over": int((over > 0).sum()),
            "tokens_over": int(over.sum()),
        }
        offsets = np.asarray(store.offsets, dtype=np.int64)
        node = np.arange(len(length))
        start = starts[:-1]
        depth = np.asarray(store.depth, dtype=np.int64)
        if overflow == "chain":
            parts = np.maximum(-(-length // room), 1)
            first = np.cumsum(parts) - parts
            node = np.repeat(node, parts)
            place = np.arange(len(node)) - first[node]
            # A first part's parent is the last part of the text's parent; a further part's parent is the part before it.
            last = np.append(first + parts - 1, -1)
            parent = np.where(place == 0, last[parent[node]], np.arange(len(node)) - 1)
            start = start[node] + place * room
            length = np.minimum(length[node] - place * room, room)
            offsets = np.append(first, len(node))[offsets]
            depth = depths(parent)
            cut |= {"texts_over": 0, "tokens_over": 0, "texts_chained": cut["texts_over"]}
        elif overflow != "truncate":
            raise RamifyError(f"overflow must be 'truncate' or 'chain', but is {overflow!r}.")
        lexicon = Lexicon.of(tokenizer, tokenized.words) if open_words else None
        return cls(store, offsets, parent, roots_of(parent), depth, start, length, ids, node, cut, row_layout, lexicon)

    @property
    def num_trees(self) -> int:
        return len(self.offsets) - 1

    def tree_of(self, nodes: Ints) -> Ints:
        return np.searchsorted(self.offsets, nodes, side="right") - 1

    def gather(self, nodes: Ints, lengths: Ints) -> Ints:
        """Concatenate the first `lengths[i]` token ids of each node i."""
        ends = np.cumsum(lengths)
        places = np.repeat(self.start[nodes] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        return self.ids[places].astype(np.int64)

    def piece_counts(self, trees: Ints, vocab_size: int) -> Ints:
        """Count how often each piece of the vocabulary stands in the texts of these trees, which are in ascending order."""
        counts = np.zeros(vocab_size, dtype=np.int64)
        # The texts of consecutive trees are consecutive in `ids`.
        for first, stop in _consecutive(trees):
            nodes = slice(int(self.offsets[first]), int(self.offsets[stop]))
            end = int((self.start[nodes] + self.length[nodes]).max(initial=0))
            for start in range(int(self.start[nodes].min(initial=end)), end, COUNTED):
                ids = self.ids[start : min(start + COUNTED, end)]
                counts += np.bincount(ids if self.lexicon is None else ids[ids < vocab_size], minlength=vocab_size)
        return counts

    def unknown(self, trees: Ints, tokenizer: Tokenizer) -> UnknownTokens:
        """Count the unknown tokens in the texts of these trees, which are in ascending order."""
        counts = self.piece_counts(trees, tokenizer.vocab_size)
        return UnknownTokens(0 if tokenizer.unk_id is None else int(counts[tokenizer.unk_id]), int(counts.sum()))

    def with_text(self, node: int, ids: Sequence[int]) -> "Forest":
        """Return a copy of the forest with other token ids at one node."""
        start, length = self.start.copy(), self.length.copy()
        start[node], length[node] = len(self.ids), len(ids)
        return replace(self, start=start, length=length, ids=np.concatenate([self.ids, np.asarray(ids, dtype=self.ids.dtype)]))


def _consecutive(numbers: Ints) -> Iterator[tuple[int, int]]:
    """Ranges [first, stop) of consecutive numbers."""
    ends = np.flatnonzero(np.diff(numbers, append=-1) != 1) + 1
    for start, end in zip(np.append(0, ends)[:-1], ends, strict=True):
        yield int(numbers[start]), int(numbers[end - 1]) + 1


def ranges(starts: Ints, stops: Ints) -> Ints:
    """The numbers of many ranges `[start, stop)`, one range after the other."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(lengths.sum()))


def share_over(cut: Mapping[str, int]) -> float:
    """The share of all tokens that truncation removes, by the counts of `Forest.cut`."""
    return cut["tokens_over"] / max(1, cut["tokens"])


@dataclass(frozen=True)
class Tokenized:
    """The token ids of all texts of a store, without special tokens."""

    ids: NDArray[np.unsignedinteger]
    starts: Ints
    """The start of each text in `ids`, and the number of ids."""
    counts: Ints
    """The number of texts of each node: 1, unless the texts of nodes were divided."""
    words: tuple[str, ...] = ()
    """The words that the vocabulary lacks and that have ids of their own, which follow those of the vocabulary."""


def token_cache(store: Store, tokenizer: Tokenizer, divide: Divide | None = None, *, open_words: bool = False) -> Tokenized:
    """Tokenize the texts of a store, each divided by `divide` and tokenized part by part.

    With `open_words`, each word that the vocabulary lacks has an id of its own. The ids are computed once per store, tokenizer,
    name of `divide` and `open_words`. They are memory-mapped from a file in the store's folder, or in the user's cache folder
    if the store is not writable. Raises `RamifyError` if neither folder is writable.
    """
    if store.path is None:
        texts = store.texts(np.arange(store.num_nodes))
        parts = [[text] if divide is None else divide(text) for text in texts]
        words: dict[str, int] = {}
        flat = [part for divided in parts for part in divided]
        ids, lengths = tokenizer.encode_open(flat, words) if open_words else tokenizer.encode_batch(flat)
        counts = np.array([len(divided) for divided in parts], dtype=np.int64)
        return Tokenized(ids.astype(np.uint32), np.concatenate([[0], np.cumsum(lengths)]), counts, tuple(words))
    by = ("" if divide is None else f"-{divide.__name__}") + ("-open" if open_words else "")
    name = f"{TOKENS}{store.hash[:16]}-{tokenizer.hash}{by}"
    return computed_once(store.path, name, "token ids", partial(_tokenize, store, tokenizer, divide, open_words), _read)


def prepended(prompt: str) -> Divide:
    """A prompt before every text, which stays whole."""

    def divide(text: str) -> list[str]:
        return [prompt + text]

    divide.__name__ = f"prompt-{hashlib.sha256(prompt.encode()).hexdigest()[:16]}"
    return divide


def computed_once(
    folder: Path, name: str, what: str, write: Callable[[Path], None], read: Callable[[Path], Computed]
) -> Computed:
    """Read a folder of this name in `folder`, or in the user's cache folder if that is not writable. If neither has it, `write`
    fills it first, under another name.

    `what` names the content in messages. Raises `RamifyError` if neither folder is writable, or the content is damaged.
    """
    places = [folder, *_user_cache()]
    for place in places:
        if (place / name / DONE).exists():
            try:
                return read(place / name)
            except (OSError, ValueError, EOFError) as error:
                raise RamifyError(f"{place / name} is damaged ({error}). Remove this folder; it is then rebuilt.") from None
    for place in places:
        with ExitStack() as stack:
            try:
                scratch = stack.enter_context(scratch_folder(place / name))
            except OSError:
                continue
            try:
                write(scratch)
            except OSError as error:
                raise RamifyError(
                    f"{place / name}: {what} could not be written ({error.strerror}). Free disk space or make the folder "
                    "writable."
                ) from None
            # Another process may already have written the same content.
            with suppress(OSError):
                os.replace(scratch, place / name)
            return read(place / name)
    raise RamifyError(
        f"{what} cannot be stored, because {' and '.join(map(str, places))} cannot be written. Set XDG_CACHE_HOME to a "
        "writable folder."
    )


def _user_cache() -> Iterator[Path]:
    """Yield the user's cache folder. A process without a home folder has none."""
    with suppress(RuntimeError):
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ramify"


def _read(folder: Path) -> Tokenized:
    ids = np.load(folder / "ids.npy", mmap_mode="r")
    words = folder / WORDS
    known = tuple(json.loads(words.read_text("utf-8"))) if words.exists() else ()
    return Tokenized(ids, np.load(folder / "starts.npy"), np.load(folder / "counts.npy"), known)


def _tokenize(store: Store, tokenizer: Tokenizer, divide: Divide | None, open_words: bool, folder: Path) -> None:
    # The number of words that the vocabulary lacks is not known beforehand.
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 and not open_words else np.uint32)
    words: dict[str, int] = {}
    lengths, counts = [], []
    with open(folder / "ids.raw", "wb") as raw, activity("encoding texts", store.num_nodes) as advance:
        for texts in store.text_batches():
            parts = [[text] if divide is None else divide(text) for text in texts]
            flat_parts = [part for divided in parts for part in divided]
            ids, part_lengths = tokenizer.encode_open(flat_parts, words) if open_words else tokenizer.encode_batch(flat_parts)
            raw.write(ids.astype(dtype).tobytes())
            lengths.append(part_lengths)
            counts += map(len, parts)
            advance(len(texts))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths) if lengths else [])]).astype(np.int64)
    flat = np.memmap(folder / "ids.raw", dtype=dtype, mode="r") if starts[-1] else np.zeros(0, dtype)
    np.save(folder / "ids.npy", flat)
    np.save(folder / "starts.npy", starts)
    np.save(folder / "counts.npy", np.array(counts, dtype=np.int64))
    (folder / "ids.raw").unlink()
    if open_words:
        (folder / WORDS).write_text(json.dumps([*words]), "utf-8")
    (folder / DONE).write_text(json.dumps({"tokens": int(starts[-1]), "dtype": dtype.name}))


def node_seeds(store: Store, nodes: Sequence[int] | Ints) -> Ints:
    """Return a seed for every node. It depends only on the ids of the tree and the node, so batching cannot change it."""
    nodes = np.asarray(nodes)
    trees = store.tree_ids(store.tree_of(nodes))
    keys = (f"{tree}\n{node}".encode() for tree, node in zip(trees, store.ids(nodes), strict=True))
    digests = b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys)
    return np.frombuffer(digests, dtype=np.int64).copy()

"""Optional filters of a build: cleaning of texts, removal of bots and of trees by size, pseudonyms for authors."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ramify.dataset.chunk import INTACT, Chunk, Mask
from ramify.errors import RamifyError
from ramify.readers.base import MUTE_TEXTS, Policy, ReadCounts, pc
from ramify.tree import depths

LINK = r"(?:https?://|www\.)[^\s)\]>]+"

CLEANINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "quotes": ((r"(?m)^[ \t]*>.*\n?", ""),),
    "links": ((LINK, "<link>"),),
    "space": (
        ("[\u200b-\u200d\u2060\ufeff]|&#x200[bB];", ""),
        ("[\\p{Zs}\t]|&nbsp;", " "),
        (" *\n *", "\n"),
        (" {2,}", " "),
        ("\n{3,}", "\n\n"),
        (r"^\s+|\s+$", ""),
    ),
}
"""Name of a cleaning -> (pattern, replacement) pairs: remove quoted lines, replace links by a word, normalize white space and
remove invisible characters."""

BOTS = frozenset(
    [
        "automoderator",
        "autotldr",
        "bitcointip",
        "changetip",
        "dpkg",
        "imagesofnetwork",
        "mentioned_videos",
        "mtgcardfetcher",
        "totesmessenger",
        "tweetposter",
        "ubottu",
        "ubotu",
    ]
)
"""Names of bots that do not end in "bot", in lower case."""

PSEUDONYM_BYTES = 8
"""Short enough to read, and long enough that a collision among all authors of Reddit is unlikely."""


def check_cleanings(names: Sequence[str]) -> None:
    for name in names:
        if name not in CLEANINGS:
            raise RamifyError(f"there is no cleaning {name!r}. The cleanings are {', '.join(CLEANINGS)}.")


def cleaned(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Apply cleanings to the texts of a batch, in order."""
    texts = batch.column("text")
    for name in names:
        for pattern, replacement in CLEANINGS[name]:
            texts = pc.replace_substring_regex(texts, pattern, replacement)
    return batch.set_column(batch.schema.get_field_index("text"), batch.schema.field("text"), texts) if names else batch


def without_blank(chunk: Chunk, policy: Policy, counts: ReadCounts) -> Chunk:
    """Apply the policy to posts that are deleted, removed or empty. Containers of documents hold no text and stay."""
    intact = (chunk.state == INTACT) & ~chunk.is_container
    dropped, reattached = {}, {}
    for reason, mask in _blank(chunk.content["text"].chunk(0)).items():
        handling = policy.empty if reason == "empty" else policy.deleted
        mask = mask[chunk.rows] & intact
        if handling == "tree":
            dropped[f"tree_with_{reason}"] = chunk.whole(mask)
        elif handling == "drop":
            dropped[reason] = chunk.in_subtrees(mask)
        elif handling == "reattach":
            reattached[reason] = mask
    return chunk.without(dropped | reattached, counts)


def _blank(texts: pa.Array) -> dict[str, Mask]:
    """Reason -> mask of the posts without text for that reason."""
    masks: dict[str, Mask] = {"empty": pc.or_(pc.equal(texts, ""), pc.utf8_is_space(texts)).to_numpy(False)}
    for text, reason in MUTE_TEXTS.items():
        masks[reason] = masks.get(reason, False) | pc.equal(texts, text).to_numpy(False)
    return masks


def is_bot(author: str) -> bool:
    """Whether an account has the name of a bot."""
    name = author.casefold()
    return name in BOTS or name.endswith("bot")


def without_bots(chunk: Chunk, extra: Sequence[str], counts: ReadCounts) -> Chunk:
    """Remove the posts of known bots, of names that end in "bot" and of the names in `extra`."""
    authors = chunk.column("author").dictionary_encode()
    extra_names = {name.casefold() for name in extra}
    names = authors.dictionary.to_pylist()
    bots = np.array([is_bot(name) or name.casefold() in extra_names for name in names] + [False])
    indices = authors.indices.fill_null(len(names)).to_numpy()
    return chunk.without({"bot": bots[indices]}, counts)


def bounded(chunk: Chunk, min_nodes: int, max_nodes: int, min_depth: int, counts: ReadCounts) -> Chunk:
    """Remove trees with too few nodes, with too many (`max_nodes=0`: no bound), or whose deepest node is not deep enough."""
    deepest = np.zeros(len(chunk.lengths), dtype=np.int64)
    np.maximum.at(deepest, chunk.tree, depths(chunk.first_parent))
    reasons: dict[str, Mask] = {
        "small_tree": chunk.lengths < min_nodes,
        "large_tree": (chunk.lengths > max_nodes) & (max_nodes > 0),
        "shallow_tree": deepest < min_depth,
    }
    return chunk.without({reason: mask[chunk.tree] for reason, mask in reasons.items()}, counts)


def pseudonyms(authors: pa.DictionaryArray, salt: str) -> pa.DictionaryArray:
    """Replace authors by names that depend on the author and the salt, and do not reveal the author without the salt."""
    key = hashlib.blake2b(salt.encode(), digest_size=32).digest()
    names = [
        "user_" + hashlib.blake2b(name.encode(), digest_size=PSEUDONYM_BYTES, key=key).hexdigest()
        for name in authors.dictionary.to_pylist()
    ]
    return pa.DictionaryArray.from_arrays(authors.indices, pa.array(names, pa.string()))

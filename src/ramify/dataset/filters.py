"""What a build changes, leaves out or hides on request: noise in texts, bots, small trees, names."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ramify.dataset.chunk import SPEAKS, Chunk, Mask
from ramify.errors import RamifyError
from ramify.readers.base import MUTE_TEXTS, Policy, Report, pc
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
"""Names of cleanings -> patterns and what replaces them: quoted lines go; links become a word; invisible characters go, white
space is evened out."""

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
"""Accounts that are programs though their names do not end in "bot", in lower case."""

PSEUDONYM_BYTES = 8
"""Few enough to read, so many that among the authors of all of Reddit hardly two get one name."""


def check_cleanings(names: Sequence[str]) -> None:
    for name in names:
        if name not in CLEANINGS:
            raise RamifyError(f"there is no cleaning {name!r}; there are {', '.join(CLEANINGS)}.")


def cleaned(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with cleaned texts."""
    texts = batch.column("text")
    for name in names:
        for pattern, replacement in CLEANINGS[name]:
            texts = pc.replace_substring_regex(texts, pattern, replacement)
    return batch.set_column(batch.schema.get_field_index("text"), batch.schema.field("text"), texts) if names else batch


def without_mute(chunk: Chunk, policy: Policy, report: Report) -> Chunk:
    """Leave out posts that are gone or say nothing, as the policy says."""
    speaks = chunk.state == SPEAKS
    dropped, reattached = {}, {}
    for reason, mask in _mute(chunk.content["text"].chunk(0)).items():
        handling = policy.empty if reason == "empty" else policy.deleted
        mask = mask[chunk.rows] & speaks
        if handling == "tree":
            dropped[f"tree_with_{reason}"] = chunk.whole(mask)
        elif handling == "drop":
            dropped[reason] = chunk.below(mask)
        elif handling == "reattach":
            reattached[reason] = mask
    return chunk.without(dropped | reattached, report)


def _mute(texts: pa.Array) -> dict[str, Mask]:
    """Reason -> which posts have nothing to say for it."""
    masks: dict[str, Mask] = {"empty": pc.or_(pc.equal(texts, ""), pc.utf8_is_space(texts)).to_numpy(False)}
    for text, reason in MUTE_TEXTS.items():
        masks[reason] = masks.get(reason, False) | pc.equal(texts, text).to_numpy(False)
    return masks


def is_bot(author: str) -> bool:
    """Does an account's name say that it is a program?"""
    name = author.casefold()
    return name in BOTS or name.endswith("bot")


def without_bots(chunk: Chunk, extra: Sequence[str], report: Report) -> Chunk:
    """Leave out what known bots wrote, names in `extra` and names that end in "bot"."""
    authors = chunk.column("author").dictionary_encode()
    named = {name.casefold() for name in extra}
    names = authors.dictionary.to_pylist()
    bots = np.array([is_bot(name) or name.casefold() in named for name in names] + [False])
    indices = authors.indices.fill_null(len(names)).to_numpy()
    return chunk.without({"bot": bots[indices]}, report)


def bounded(chunk: Chunk, min_nodes: int, max_nodes: int, min_depth: int, report: Report) -> Chunk:
    """Leave out trees with fewer or more nodes (`max_nodes` 0: no bound), and those whose deepest node is less deep."""
    deepest = np.zeros(len(chunk.lengths), dtype=np.int64)
    np.maximum.at(deepest, chunk.tree, depths(chunk.first_parent))
    reasons: dict[str, Mask] = {
        "small_tree": chunk.lengths < min_nodes,
        "large_tree": (chunk.lengths > max_nodes) & (max_nodes > 0),
        "shallow_tree": deepest < min_depth,
    }
    return chunk.without({reason: mask[chunk.tree] for reason, mask in reasons.items()}, report)


def pseudonyms(authors: pa.DictionaryArray, salt: str) -> pa.DictionaryArray:
    """The same name for the same author and salt, from which the author cannot be told."""
    key = hashlib.blake2b(salt.encode(), digest_size=32).digest()
    names = [
        "user_" + hashlib.blake2b(name.encode(), digest_size=PSEUDONYM_BYTES, key=key).hexdigest()
        for name in authors.dictionary.to_pylist()
    ]
    return pa.DictionaryArray.from_arrays(authors.indices, pa.array(names, pa.string()))

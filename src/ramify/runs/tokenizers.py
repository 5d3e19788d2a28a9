"""The tokenizer of a run on texts: loaded, taken from a checkpoint, or trained on the training split."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ramify import hub
from ramify.config import check_fields
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.hub import RUN_FILE
from ramify.models import hf
from ramify.progress import track
from ramify.tokenizer import Kind, Tokenizer, reservoir_sample

TOKENIZER_BYTES = 64 * 2**20
"""Size of the uniform sample of the training split on which a tokenizer is trained."""


TRAINED = ("kind", "vocab_size", "lowercase")
"""Settings of a tokenizer that is trained."""


@dataclass(frozen=True)
class TokenizerConfig:
    """A tokenizer.json or its directory (`path`), or how to train one on the training split."""

    path: str = ""
    kind: Kind = "wordpiece"
    vocab_size: int = 16_384
    lowercase: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer.")


def tokenizer_of(
    config: TokenizerConfig,
    init: str,
    store: Store,
    out: Path,
    *,
    seed: int = 0,
    marks: bool = False,
    sentinels: int = 0,
) -> Tokenizer:
    """The tokenizer of a run in the folder `out`: its own if it is resumed, else the configured one, that of the checkpoint
    `init`, or a newly trained one, with `marks` for the ends of paragraphs and documents, and with so many `sentinels`."""
    saved = out / "tokenizer.json"
    if saved.exists() and (out / RUN_FILE).exists():
        return Tokenizer.load(saved)
    if config.path and init and hub.saved_config(init) is not None:
        raise RamifyError(f"--init {init} has its own tokenizer, which its weights require. Leave --tokenizer out.")
    path = config.path or init
    if path:
        tokenizer = Tokenizer.load(hf.locate(path) if not Path(path).is_file() else path)
        if config.path and init and Tokenizer.lies_in(hf.locate(init)):
            _check_pieces(tokenizer, Tokenizer.load(hf.locate(init)), config.path, init)
        return tokenizer
    if config.kind == "unigram" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RamifyError(
            "tokenizer.kind=unigram differs from process to process when each trains its own. Train one first with `ramify "
            "tokenizer train --kind unigram`, and name it with --tokenizer."
        )
    return train_tokenizer(store, config, seed=seed, marks=marks, sentinels=sentinels)


def _check_pieces(tokenizer: Tokenizer, theirs: Tokenizer, path: str, init: str) -> None:
    """Raise if the tokenizer lacks pieces of the checkpoint, whose vectors belong to them."""
    if other := [piece for piece, number in theirs.ids.items() if tokenizer.ids.get(piece) != number]:
        raise RamifyError(
            f"--tokenizer {path} lacks pieces of {init} or numbers them differently ({other[0]!r} and "
            f"{len(other) - 1:,} more). Leave --tokenizer out."
        )


def train_tokenizer(
    store: Store, config: TokenizerConfig, *, seed: int = 0, marks: bool = False, sentinels: int = 0
) -> Tokenizer:
    """A tokenizer trained on a sample of the training split, in bounded memory."""
    trees = store.split("train") if len(store.split("train")) else store.split("all")
    starts, stops = store.offsets[trees], store.offsets[trees + 1]
    nodes = (np.arange(start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True))
    texts = (text for tree_nodes in nodes for text in store.texts(tree_nodes))
    return Tokenizer.train(
        reservoir_sample(track("reading texts for the tokenizer", texts, int((stops - starts).sum())), TOKENIZER_BYTES, seed),
        kind=config.kind,
        vocab_size=config.vocab_size,
        lowercase=config.lowercase,
        marks=marks,
        sentinels=sentinels,
    )

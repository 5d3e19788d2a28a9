"""Vectors of a frozen level, computed once and memory-mapped, from which the levels above learn."""

import hashlib
import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ramify.batching.document_batch import DocumentCollator
from ramify.batching.forest import DONE, Ints, computed_once
from ramify.dataset.store import VECTORS, Store
from ramify.inference.base import TOKENS
from ramify.models.agent import Agent
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.progress import activity
from ramify.tensors import content_hash
from ramify.version import __version__

UNREAD: dict[str, Any] = {
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "decoder": "parallel",
    "causal_cells": False,
    "decoder_length": "full",
    "decompressor": "projected",
    "decompressor_skip": False,
    "decoder_position_scale": 1.0,
    "sibling_product": False,
    "compressor_skip": "none",
    "names": None,
}
"""Settings without an effect on the vectors of evaluation, so that runs which differ in them share a file. The addition to the
Compressor's vector is among the weights."""

UNREAD_BY_TOKENS: dict[str, Any] = {"token_skip": False, "children_norm": False, "mark_scale": "unit", "position_scale": 1.0}
"""Settings without an effect on the Compressor's vectors of the lowest level."""

CachedVectors = Float[NDArray, "row dim"]


class FrozenVectors:
    """The Compressor's vectors of all rows of a level whose encoder does not learn, and neither do those below it.

    They lie in the store's folder, or in the user's cache folder, under a hash of the weights that make them and of the rows.
    So runs share them, and a run never reads those of other data or another model. A store in memory keeps them in memory.
    """

    def __init__(
        self,
        agent: Agent,
        collator: DocumentCollator,
        store: Store,
        level: int,
        *,
        below: "FrozenVectors | None" = None,
    ) -> None:
        """`collator`: makes rows of the documents. `level`: that of the children of the frozen level's rows. `below`: the
        vectors of these children, from which those of the level are computed; without them, texts are encoded."""
        self.agent = agent
        given = 0 if below is None else level
        self.collator = DocumentCollator(collator.rows, level, TOKENS, padded=collator.padded, given=given, vectors=below)
        self.store = store
        self.level = level
        self.below = below
        self.vectors: CachedVectors | None = None

    def open(self) -> CachedVectors:
        """Read all vectors. If no file holds them, compute them with the encoder's weights of this moment."""
        if self.vectors is None:
            shape = (len(self.collator.rows.levels[self.level]), self.agent.config.dims[self.level + 1])
            if self.store.path is None:
                self.vectors = np.empty(shape, dtype=np.float32)
                self._compute(self.vectors)
            else:
                key, what = self._key(), f"vectors of {self.agent.config.levels[self.level]}s"
                write, read = partial(self._write, key, shape), partial(_read, key, shape)
                self.vectors = computed_once(self.store.path, f"{VECTORS}{key[:32]}", what, write, read)
        return self.vectors

    def __call__(self, rows: Ints) -> CachedVectors:
        """The vectors of some rows."""
        assert self.vectors is not None, "a stage opens the vectors before its first batch"
        return self.vectors[rows]

    def _key(self) -> str:
        """A hash of all that the vectors depend on. A row's content is that of all rows below it."""
        config, rows = self.agent.config, self.collator.rows.levels[self.level]
        modules = [f"encoders.{level}." for level in range(self.level + 1)]
        unread = [f"encoders.{self.level}.token_skip.", *self._skips_without_effect()]
        weights = content_hash(
            {
                name: tensor
                for name, tensor in self.agent.state_dict().items()
                if name.startswith(tuple(modules)) and not name.startswith(tuple(unread))
            }
        )
        settings = replace(
            config.with_levels(config.levels[: self.level + 1]), **UNREAD, **({} if self.level else UNREAD_BY_TOKENS)
        )
        content = hashlib.sha256(rows.content.tobytes()).hexdigest()
        # An option that a later version adds leaves the vectors of models without it as they are.
        changed = [field.name for field in fields(settings) if getattr(settings, field.name) != field.default]
        named = {name: getattr(settings, name) for name in changed}
        return hashlib.sha256(json.dumps([__version__, weights, named, content]).encode()).hexdigest()

    def _skips_without_effect(self) -> list[str]:
        """The modules that add zero to the vectors, and whose other weights depend on the seed alone."""
        skips = ((level, self.agent.encoder(level).compressor_skip) for level in range(self.level + 1))
        return [f"encoders.{level}.compressor_skip." for level, skip in skips if skip is not None and not skip.out.weight.any()]

    def _write(self, key: str, shape: tuple[int, int], folder: Path) -> None:
        vectors = open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=shape)
        self._compute(vectors)
        vectors.flush()
        (folder / DONE).write_text(json.dumps({"key": key, "rows": shape[0]}))

    @torch.no_grad()
    def _compute(self, vectors: CachedVectors) -> None:
        if self.below is not None:
            self.below.open()
        device, none = next(self.agent.parameters()).device, np.zeros(0, dtype=np.int64)
        name = self.agent.config.levels[self.level]
        with evaluating(self.agent), activity(f"encoding {name}s", len(vectors)) as advance:
            for start, stop in runs(np.maximum(self.collator.held_tokens, 1), TOKENS):
                batch = self.collator.batch(np.arange(start, stop), none).to(device)
                children = self.agent.given(batch)
                for level, rows in enumerate(batch.levels[batch.given : -1], batch.given):
                    children = self.agent.encode(level, children, rows)
                encoder, rows = self.agent.encoder(self.level), batch.levels[-1]
                states = encoder.states(encoder.items(children), rows.slots, rows.rows)
                vectors[rows.source] = encoder.compress(states, rows.slots, rows.rows).float().cpu().numpy()
                advance(stop - start)


def _read(key: str, shape: tuple[int, int], folder: Path) -> CachedVectors:
    """Map the vectors of a folder. Raises `ValueError` if they are others than expected."""
    record = json.loads((folder / DONE).read_text())
    vectors = np.load(folder / "vectors.npy", mmap_mode="c")
    if record != {"key": key, "rows": shape[0]} or vectors.shape != shape:
        raise ValueError("it holds vectors of other data or of another model")
    return vectors

"""Batches of texts whose words have tags."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ramify.batching.characters import Lexicon
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelCollator, LabelledBatch, known_states, token_places
from ramify.batching.movable import Movable, moved
from ramify.batching.views.tagged import TaggedText, TaggedView
from ramify.batching.windows import widest_context
from ramify.nn.ragged import Rows
from ramify.tokenizer import RowLayout


@dataclass(frozen=True)
class BatchWords(Movable):
    """The words of a batch, text after text in the order of the examples."""

    texts: Rows
    """The number of words of each text."""
    places: Int[Tensor, " word"]
    """The token of the batch's rows from which each word is read."""
    types: Int[Tensor, " word"] | None = None
    """The number of each word's spelling."""

    def to(self, device: torch.device | str) -> "BatchWords":
        return moved(self, device)


@dataclass(frozen=True)
class TagCollator(LabelCollator):
    """Lays texts flat. A text that is longer than a row is divided over several, all of which are in one batch."""

    layout: RowLayout
    longest: int
    overlap: int
    lexicon: Lexicon | None

    @classmethod
    def of(cls, view: TaggedView) -> "TagCollator":
        return cls(view.layout, view.longest, view.overlap, view.pieces.lexicon)

    def places(self, batch: LabelledBatch) -> Ints:
        """The place of each token of a batch among those of its texts."""
        return token_places(batch.input)

    def __call__(self, examples: Sequence[TaggedText]) -> LabelledBatch:
        """A batch whose `part` are its words. Its targets are their tags, and its order that of the examples."""
        nothing = np.zeros(0, dtype=np.int64)
        lengths = np.array([len(example.ids) for example in examples], dtype=np.int64)
        ids = np.concatenate([nothing, *(example.ids for example in examples)])
        rows = EncoderInput.of_texts((ids, lengths), self.layout, self.longest, long="split", overlap=self.overlap)
        words = np.array([len(example.first) for example in examples], dtype=np.int64)
        first = np.concatenate([nothing, *(example.first for example in examples)])
        places = widest_context(rows)[np.repeat(np.cumsum(lengths) - lengths, words) + first]
        targets, types = (_joined([getattr(example, name) for example in examples]) for name in ("tags", "types"))
        states = known_states(rows, [example.states for example in examples])
        if self.lexicon is not None:
            rows = rows.spelled(self.lexicon)
        part = BatchWords(Rows.build(words), torch.from_numpy(places), types)
        return LabelledBatch(rows, targets, np.arange(len(examples)), part=part, states=states)


def _joined(parts: Sequence[Ints | None]) -> Int[Tensor, " word"] | None:
    """Numbers of words, text after text; None if a text has none."""
    known = [part for part in parts if part is not None]
    return torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *known])) if len(known) == len(parts) else None

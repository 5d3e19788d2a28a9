"""Texts that are predicted token by token, perhaps each from a source text: the batches of generative models."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ramify.batching.batch import AnyBatch
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints
from ramify.batching.views.pairs import Pair
from ramify.nn.ragged import Rows, length_key


@dataclass(frozen=True)
class PairBatch(AnyBatch):
    """The rows that a decoder reads, and the token that follows each of their tokens."""

    target: EncoderInput
    """A beginning token and the tokens of each text."""
    labels: Int[Tensor, " total"]
    """The token after each token of `target`: those of the text, and at last the end token if the text ends."""
    source: EncoderInput | None
    """Row i belongs to row i of `target`, so its rows are in no order of length."""

    @property
    def device(self) -> torch.device:
        return self.labels.device

    @property
    def num_targets(self) -> int:
        return len(self.target.rows)

    @property
    def num_target_tokens(self) -> int:
        return self.target.rows.total


@dataclass(frozen=True)
class PairCollator:
    """Lays pairs flat. They are sorted by the length of the target, and then by that of the source."""

    begin: int
    """The token before a text that is predicted."""
    end: int
    """The token after every text, and after every source."""

    def __call__(self, pairs: Sequence[Pair]) -> PairBatch:
        """Raises `ValueError` if some of the pairs have a source, and some have none."""
        targets = [pair.target for pair in pairs]
        sources = [pair.source for pair in pairs if pair.source is not None]
        if sources and len(sources) < len(pairs):
            raise ValueError(f"{len(pairs) - len(sources)} of {len(pairs)} pairs have no source")
        lengths = np.array([pair.num_predicted for pair in pairs], dtype=np.int64)
        source_lengths = np.array([len(ids) + 1 for ids in sources] or np.zeros_like(lengths), dtype=np.int64)
        order = np.lexsort((length_key(source_lengths), length_key(lengths)))
        read = [part for place in order for part in ([self.begin], targets[place][: lengths[place] - 1])]
        labels = [part for place in order for part in (targets[place], [self.end] * pairs[place].ends)]
        return PairBatch(
            target=EncoderInput.of_rows(_flat(read), Rows.build(lengths[order])),
            labels=_flat(labels),
            source=self.sources([sources[place] for place in order]) if sources else None,
        )

    def sources(self, texts: Sequence[Ints]) -> EncoderInput:
        """The rows that an encoder reads, in the order of the texts."""
        rows = Rows.build(np.array([len(ids) + 1 for ids in texts], dtype=np.int64))
        return EncoderInput.of_rows(_flat([part for ids in texts for part in (ids, [self.end])]), rows)


def _flat(parts: Sequence[Ints | list[int]]) -> Int[Tensor, " total"]:
    return torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *parts]).astype(np.int64))

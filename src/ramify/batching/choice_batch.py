"""Batches of questions with choices: a row per choice, and the choices of each question."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput, fit_texts
from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelCollator, LabelledBatch
from ramify.batching.movable import Movable, moved
from ramify.batching.views.choices import ChoiceExample, ChoiceView
from ramify.nn.ragged import Rows
from ramify.tokenizer import RowLayout


@dataclass(frozen=True)
class ChoiceRows(Movable):
    """The choices of the questions of a batch."""

    place: Int[Tensor, " row"]
    """The place of each row on the axis of choices, question after question."""
    choices: Rows
    """The choices of each question."""

    def to(self, device: torch.device | str) -> "ChoiceRows":
        return moved(self, device)


@dataclass(frozen=True)
class ChoiceCollator(LabelCollator):
    """Lays the rows of all choices flat. The targets are the right choices, question after question."""

    layout: RowLayout
    longest: int
    """The longest row, with special tokens."""

    @classmethod
    def of(cls, view: ChoiceView) -> "ChoiceCollator":
        """The collator of a view."""
        return cls(view.layout, view.longest)

    def places(self, batch: LabelledBatch) -> Ints:
        """The place of the vector of each row of a batch among those of its questions."""
        assert isinstance(batch.part, ChoiceRows)
        return batch.part.place.cpu().numpy()

    def __call__(self, examples: Sequence[ChoiceExample]) -> LabelledBatch:
        right = [example.right for example in examples]
        targets = None if None in right else torch.tensor([place for place in right if place is not None])
        known = [example.features for example in examples if example.features is not None]
        if known:
            counts = np.array([len(features) for features in known], dtype=np.int64)
            nothing = EncoderInput.of_rows(
                torch.zeros(0, dtype=torch.int64), Rows.build(np.zeros(counts.sum(), dtype=np.int64))
            )
            part = ChoiceRows(torch.arange(int(counts.sum())), Rows.build(counts))
            order, tokens = np.repeat(np.arange(len(examples)), counts), sum(example.length for example in examples)
            return LabelledBatch(nothing, targets, order, torch.from_numpy(np.concatenate(known)), tokens, part=part)
        firsts = [ids for example in examples for ids in example.first]
        seconds = [ids for example in examples for ids in example.second]
        lengths, others = (np.array([len(ids) for ids in parts], dtype=np.int64) for parts in (firsts, seconds))
        kept = fit_texts(lengths, others, self.longest - self.layout.num_special - len(self.layout.separator))
        one, two = (
            (np.concatenate([np.zeros(0, np.int64), *(ids[:size] for ids, size in zip(parts, cut))]), cut)
            for parts, cut in zip((firsts, seconds), kept, strict=True)
        )
        rows = EncoderInput.of_pairs(one, two, self.layout, None)
        counts = np.array([len(example.second) for example in examples], dtype=np.int64)
        order = np.repeat(np.arange(len(examples)), counts)[rows.source]
        part = ChoiceRows(torch.from_numpy(rows.source.astype(np.int64)), Rows.build(counts))
        return LabelledBatch(rows, targets, order, part=part)

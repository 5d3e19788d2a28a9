"""Masked language modelling of rows with memory: BERT's objective on XLNet's data (Yang et al. 2019, section 3.4, "DAE")."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets
from ramify.batching.views.streams import StreamInput
from ramify.models.base import State, StreamBackbone
from ramify.tasks.spans import SpanConfig, check_split, choose_targets, halves, quotas, random_pieces
from ramify.tasks.stream_task import Predicted, StreamTask, StreamTaskConfig
from ramify.tokenizer import Tokenizer


@dataclass(frozen=True)
class DenoisingLMConfig(StreamTaskConfig, SpanConfig):
    """Defaults are BERT's masking, at the tokens that XLNet would predict."""

    mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of the chosen tokens that become the mask token, become a random piece, or stay unchanged."""
    random_special: bool = True
    """Whether a random piece may be a special token, as in BERT."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_spans()
        check_split(self.mask_split)

    @property
    def predicts_all_in_orders(self) -> bool:
        return False

    def build(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput) -> "DenoisingLM":
        return DenoisingLM(backbone, tokenizer, input, self)


class DenoisingLM(StreamTask):
    """Predict masked tokens, each alone, from the other tokens of the row and the memory before it.

    The reused part of a row reads nothing of the rest, as in permutation language modelling: the next row begins there, and
    memory would show it the words behind its masks.
    """

    name = "denoising_lm"
    config: DenoisingLMConfig

    def __init__(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput, config: DenoisingLMConfig) -> None:
        super().__init__(backbone, tokenizer, input, config)
        self.word_starts = tokenizer.word_starts
        self.spans = config.spans
        tokenizer.require(("mask",), "the task denoising-lm")
        self.choices = random_pieces(tokenizer, backbone.config.vocab_size, special=config.random_special)

    def draw(self, batch: StreamBatch, seeds: Ints) -> StreamBatch:
        parts = halves(batch)
        counts = quotas(batch, parts, 1 / self.config.k)
        order = np.repeat(np.arange(len(parts)), [stop - start for start, stop in parts])
        shown = batch.host_ids.copy()
        to_mask, to_random, _ = self.config.mask_split
        positions = []
        for row, seed in enumerate(seeds.tolist()):
            random = np.random.Generator(np.random.Philox(key=seed))
            chosen = choose_targets(batch, row, self.spans, self.word_starts, parts, counts, random)
            action = random.random(len(chosen))
            drawn = self.choices[random.integers(len(self.choices), size=len(chosen))]
            shown[row, chosen] = np.select(
                [action < to_mask, action < to_mask + to_random], [self.tokenizer.mask_id, drawn], shown[row, chosen]
            )
            positions.append(chosen)
        targets = StreamTargets.at(np.stack(positions), batch.input_ids, counts)
        return replace(
            batch,
            input_ids=torch.from_numpy(shown).to(batch.device),
            order=torch.from_numpy(np.tile(order, (len(shown), 1))).to(batch.device),
            parts=parts,
            answers=targets,
        )

    def counts(self, batch: StreamBatch, phase: str) -> dict[str, float]:
        return {self.name: 0.0 if batch.answers is None else batch.answers.total}

    def predict(self, batch: StreamBatch, state: State | None) -> Predicted:
        hidden = self.backbone(batch, state)
        assert hidden.tokens is not None
        assert batch.answers is not None
        index = batch.answers.positions[:, :, None].expand(-1, -1, hidden.tokens.shape[-1])
        return Predicted(hidden.tokens.gather(1, index).flatten(0, 1), batch.answers, hidden.tokens, hidden.state)

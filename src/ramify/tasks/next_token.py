"""Predict every token of a text from those before it, and from a source if the model reads one: causal language modelling
(Radford et al. 2018) and sequence-to-sequence learning (Vaswani et al. 2017, section 5)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.pair_batch import PairBatch, PairCollator
from ramify.batching.views.pairs import PairInput
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.base import GenerativeBackbone, State
from ramify.nn.cache import Cache
from ramify.nn.heads import VocabularyHead
from ramify.nn.ragged import Rows, on_device
from ramify.tasks.base import Decodes, Losses, Readings, Task
from ramify.tasks.constants import Frequencies
from ramify.tokenizer import Tokenizer

NEXT_TOKEN = "next_token"
"""The name of the loss."""


@dataclass(frozen=True)
class NextTokenConfig:
    """Every token of a text, and its end, is predicted from the tokens before it."""

    tie_weights: bool = True
    """Whether the output map is the token embedding of the decoder."""
    output_bias: bool = True
    """Whether the output map learns a bias. Those of GPT-2 and T5 have none."""
    label_smoothing: float = 0.0
    """The share of the target distribution that is spread evenly over the vocabulary (Szegedy et al. 2016, section 7). Training
    alone smooths; held-out losses do not."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        if not 0 <= self.label_smoothing < 1:
            raise RamifyError(f"task.label_smoothing must be at least 0 and below 1, but is {self.label_smoothing:g}.")


class NextTokenLM(Task[PairBatch], Decodes):
    """Predict every token of a text from those before it, and from a source if the model reads one."""

    main_loss = NEXT_TOKEN
    matching = ("tie_weights",)
    backbone: GenerativeBackbone
    config: NextTokenConfig
    input: PairInput

    def __init__(self, backbone: GenerativeBackbone, tokenizer: Tokenizer, input: PairInput, config: NextTokenConfig) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.config = config
        self.collator = PairCollator(tokenizer.begin_id, tokenizer.stop_id)
        self.head = VocabularyHead(
            backbone.out_dim,
            backbone.config.vocab_size,
            embedding=backbone.tied_embedding if config.tie_weights else None,
        )
        # It stays zero.
        self.frozen = () if config.output_bias else ("head.bias",)

    def corrupt(self, batch: PairBatch, generator: torch.Generator) -> PairBatch:
        return batch

    def counts(self, batch: PairBatch, phase: str) -> dict[str, float]:
        return {NEXT_TOKEN: float(batch.target.rows.total)}

    def losses(self, batch: PairBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any) -> Losses:
        states = self.backbone(batch)
        # Losses add up in the precision of their weights, and some models have states in half precision.
        precision = torch.promote_types(states.dtype, torch.float32)
        weights = states.new_full((len(states),), 1 / divisors[NEXT_TOKEN], dtype=precision)
        yield {NEXT_TOKEN: self.head.loss(states, batch.labels, weights, smoothing=self.config.label_smoothing)}, None

    def readings(self, batch: PairBatch, phase: str, state: State | None, shared: Any) -> Readings:
        states = self.backbone(batch)
        return self.target_readings(batch, states, self.head.measure(states, batch.labels)[0])

    def target_readings(self, batch: PairBatch, states: Float[Tensor, "total dim"], nats: Float[Tensor, " total"]) -> Readings:
        """The readings of a batch whose states and losses are known. The losses are those without smoothing."""
        constant = Frequencies.of(batch.labels, torch.ones_like(nats), self.backbone.config.vocab_size)
        return Readings({NEXT_TOKEN: nats.sum()}, {NEXT_TOKEN: constant}, {"predicted token": states})

    def start(
        self, prompts: EncoderInput, *, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        """As `Decodes.start`. The token before a text stands for an empty prompt. Row i of `source` belongs to row i of
        `prompts`."""
        states, cache = self.backbone.read_prompts(begun(prompts, self.collator.begin), source)
        return self.head(states), cache

    def step(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        states, cache = self.backbone.read_tokens(ids, cache)
        return self.head(states), cache


def begun(prompts: EncoderInput, begin: int, characters: UInt8[NDArray, " character"] | None = None) -> EncoderInput:
    """The rows of prompts, in the same order, with a token in those that are empty. `characters` are those of this token, which
    prompts with characters need."""
    lengths, device = prompts.rows.host_lengths, prompts.ids.device
    empty = (lengths == 0).astype(np.int64)
    if not empty.any():
        return prompts
    places = on_device(np.arange(prompts.rows.total) + np.repeat(np.cumsum(empty), lengths), device)
    ids = prompts.ids.new_full((len(places) + int(empty.sum()),), begin).index_copy_(0, places, prompts.ids)
    rows = EncoderInput.of_rows(ids, Rows.build(lengths + empty).to(device))
    spelled = None
    if prompts.characters is not None:
        assert characters is not None
        spelled = prompts.characters.placed(places, len(ids), characters)
    return replace(rows, source=prompts.source, spans=prompts.spans, offsets=prompts.offsets, characters=spelled)

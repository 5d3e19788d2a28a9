"""Masked language modelling of rows with memory: BERT's objective on XLNet's data (Yang et al. 2019, section 3.4, "DAE")."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets
from ramify.batching.views.streams import StreamInput
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.base import State, StreamBackbone
from ramify.nn.heads import VocabularyHead
from ramify.tasks.base import Losses, Task
from ramify.tasks.spans import SpanChoice, SpanUnit, check_split, choose_targets, quotas
from ramify.tokenizer import Tokenizer


@dataclass(frozen=True)
class DenoisingLMConfig:
    """Defaults are BERT's masking, at the tokens that XLNet would predict."""

    k: float = 6.0
    """One in K tokens is predicted."""
    span_unit: SpanUnit = "word"
    longest_span: int = 5
    mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of the chosen tokens that become the mask token, become a random piece, or stay unchanged."""
    tie_weights: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        if self.k < 1 or self.longest_span < 1:
            raise RamifyError(f"task.k={self.k:g} and task.longest_span={self.longest_span} must both be at least 1.")
        check_split(self.mask_split)


class DenoisingLM(Task[StreamBatch]):
    """Predict masked tokens, each alone, from all tokens of the row and the memory before it."""

    config: DenoisingLMConfig
    backbone: StreamBackbone
    input: StreamInput
    head: VocabularyHead

    def __init__(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput, config: DenoisingLMConfig) -> None:
        super().__init__()
        tokenizer.require(("mask",), "the task denoising-lm")
        self.config = config
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.head = VocabularyHead(
            backbone.out_dim,
            backbone.config.vocab_size,
            embedding=backbone.tied_embedding if config.tie_weights else None,
        )
        self.word_starts = tokenizer.word_starts
        self.spans = SpanChoice(config.span_unit, config.longest_span, config.k)

    def corrupt(self, batch: StreamBatch, generator: torch.Generator) -> StreamBatch:
        seeds = torch.randint(2**63 - 1, (len(batch.input_ids),), generator=generator, device=generator.device)
        return self.draw(batch, seeds.cpu().numpy())

    def draw(self, batch: StreamBatch, seeds: Ints) -> StreamBatch:
        """Choose and mask targets, with one seed per row."""
        whole = ((0, batch.host_ids.shape[1]),)
        counts = quotas(batch, whole, 1 / self.config.k)
        shown = batch.host_ids.copy()
        to_mask, to_random, _ = self.config.mask_split
        positions = []
        for row, seed in enumerate(seeds.tolist()):
            random = np.random.Generator(np.random.Philox(key=seed))
            chosen = choose_targets(batch, row, self.spans, self.word_starts, whole, counts, random)
            action = random.random(len(chosen))
            drawn = random.integers(self.backbone.config.vocab_size, size=len(chosen))
            shown[row, chosen] = np.select(
                [action < to_mask, action < to_mask + to_random], [self.tokenizer.mask_id, drawn], shown[row, chosen]
            )
            positions.append(chosen)
        targets = StreamTargets.at(np.stack(positions), batch.input_ids, counts)
        return replace(batch, input_ids=torch.from_numpy(shown).to(batch.device), targets=None, answers=targets)

    def counts(self, batch: StreamBatch, phase: str) -> dict[str, float]:
        return {"denoising_lm": 0.0 if batch.answers is None else batch.answers.total}

    def losses(self, batch: StreamBatch, divisors: Mapping[str, float], phase: str, state: State | None) -> Losses:
        states, state = self.read(batch, state)
        assert batch.answers is not None
        weights = batch.answers.weight.flatten() / divisors["denoising_lm"]
        yield {"denoising_lm": self.head.loss(states, batch.answers.labels.flatten(), weights)}, state

    def read(self, batch: StreamBatch, state: State | None) -> tuple[Float[Tensor, "target dim"], State | None]:
        """The states of the masked tokens, and the next state."""
        hidden = self.backbone(batch, state)
        assert hidden.tokens is not None
        assert batch.answers is not None
        index = batch.answers.positions[:, :, None].expand(-1, -1, hidden.tokens.shape[-1])
        return hidden.tokens.gather(1, index).flatten(0, 1), hidden.state

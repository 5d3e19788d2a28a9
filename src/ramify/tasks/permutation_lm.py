"""Permutation language modelling (Yang et al. 2019, sections 2.2 and 2.3)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets
from ramify.batching.views.streams import StreamInput
from ramify.errors import RamifyError
from ramify.models.base import State, StreamBackbone
from ramify.nn.cache import Cache
from ramify.nn.linear import Linear
from ramify.tasks.base import Decodes
from ramify.tasks.constants import Constant, Frequencies
from ramify.tasks.spans import Parts, SpanConfig, choose_targets, halves, quotas
from ramify.tasks.stream_task import Predicted, StreamTask, StreamTaskConfig
from ramify.tokenizer import Tokenizer

OrderKind = Literal["permutation", "forward"]


@dataclass(frozen=True)
class PermutationLMConfig(StreamTaskConfig, SpanConfig):
    """The tokens that are predicted come last in the factorization order. Defaults are the paper's."""

    order: OrderKind = "permutation"
    """forward: a token reads only those before it in its row, as in Transformer-XL. Rows that read backwards make its mirror
    image."""
    permutation_block: int | None = None
    """Blocks of this length are permuted inside and keep their order (`perm_size` in the published code); None: a whole part
    of the row is permuted."""
    next_segment: float = 0.0
    """Weight of a loss for whether segment B follows A. The paper has none; its ablation tries 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_spans()
        if self.permutation_block is not None and self.permutation_block < 1:
            raise RamifyError(f"task.permutation_block must be at least 1, but is {self.permutation_block}.")
        if self.next_segment < 0:
            raise RamifyError(f"task.next_segment must be at least 0, but is {self.next_segment}.")

    @property
    def predicts_all_in_orders(self) -> bool:
        return self.order == "permutation" and self.k == 1

    def build(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput) -> "PermutationLM":
        return PermutationLM(backbone, tokenizer, input, self)


class PermutationLM(StreamTask, Decodes):
    """Predict the last tokens of a random factorization order, each from its position and the tokens before it in the order."""

    name = "permutation_lm"
    config: PermutationLMConfig

    def __init__(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput, config: PermutationLMConfig) -> None:
        super().__init__(backbone, tokenizer, input, config)
        self.word_starts = tokenizer.word_starts
        self.spans = config.spans
        if config.next_segment and input.segments == "none":
            raise RamifyError(
                f"task.next_segment={config.next_segment:g} needs rows of two segments. Set input.segments=pair, or "
                "task.next_segment=0."
            )
        self.next_segment = NextSegmentHead(backbone.out_dim) if config.next_segment else None

    def draw(self, batch: StreamBatch, seeds: Ints) -> StreamBatch:
        parts = halves(batch)
        counts = quotas(batch, parts, 1 / self.config.k)
        order = np.empty(batch.host_ids.shape, dtype=np.int64)
        positions = []
        for row, seed in enumerate(seeds.tolist()):
            random = np.random.Generator(np.random.Philox(key=seed))
            positions.append(choose_targets(batch, row, self.spans, self.word_starts, parts, counts, random))
            order[row] = self._order(batch.functional[row], positions[-1], parts, random)
        targets = StreamTargets.at(np.stack(positions), batch.input_ids, counts)
        return replace(batch, order=torch.from_numpy(order).to(batch.device), parts=parts, targets=targets)

    def _order(self, functional: NDArray[np.bool_], targets: Ints, parts: Parts, random: np.random.Generator) -> Ints:
        if self.config.order == "forward":
            return np.arange(len(functional))
        late = functional.copy()
        late[targets] = True
        return factorization_order(late, parts, random, self.config.permutation_block)

    def counts(self, batch: StreamBatch, phase: str) -> dict[str, float]:
        counts = {self.name: 0.0 if batch.targets is None else batch.targets.total}
        if self.next_segment is not None:
            counts["next_segment"] = float(len(batch.input_ids))
        return counts

    def further_losses(self, predicted: Predicted, batch: StreamBatch, divisors: Mapping[str, float]) -> dict[str, Tensor]:
        if self.next_segment is None:
            return {}
        assert predicted.tokens is not None
        assert batch.is_next is not None
        loss = F.cross_entropy(self.next_segment(predicted.tokens[:, -1]), batch.is_next, reduction="sum")
        return {"next_segment": loss * (self.config.next_segment / divisors["next_segment"])}

    def further_constants(self, batch: StreamBatch) -> dict[str, Constant]:
        if self.next_segment is None:
            return {}
        assert batch.is_next is not None
        weights = torch.full(batch.is_next.shape, self.config.next_segment)
        return {"next_segment": Frequencies.of(batch.is_next, weights, 2)}

    def predict(self, batch: StreamBatch, state: State | None) -> Predicted:
        assert batch.targets is not None
        hidden = self.backbone(batch, state, targets_only=self.next_segment is None)
        assert hidden.queries is not None
        return Predicted(hidden.queries.flatten(0, 1), batch.targets, hidden.tokens, hidden.state)

    def start(
        self, prompts: EncoderInput, *, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        states, cache = self.backbone.read_prompts(prompts, source)
        return self.head(states), cache

    def step(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        states, cache = self.backbone.read_tokens(ids, cache)
        return self.head(states), cache


class NextSegmentHead(nn.Module):
    """Whether the second segment follows the first, from the state of the row's CLS."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = Linear(dim, dim)
        self.out = Linear(dim, 2)

    def forward(self, x: Float[Tensor, "row dim"]) -> Float[Tensor, "row 2"]:
        return self.out(self.dense(x).tanh())


def factorization_order(late: NDArray[np.bool_], parts: Parts, random: np.random.Generator, block: int | None = None) -> Ints:
    """A random factorization order of a row, as one number per token: a token reads those with lower or equal numbers, a
    target those with lower numbers.

    Within each part, tokens that are not `late` share the lowest number, so they read each other. `late` tokens (targets and
    separators) follow in random order. All numbers of a part are above those of the parts before it.
    """
    order = np.zeros(len(late), dtype=np.int64)
    base = 0
    for start, stop in parts:
        length = stop - start
        size = min(block or length, length)
        # Every block has the same permutation; a short last block keeps the ranks that it induces, so it may skip numbers.
        permutation, blocks = random.permutation(size), -(-length // size)
        index = np.arange(length) // size * size + np.tile(permutation, blocks)[:length]
        order[start:stop] = base + np.where(late[start:stop], 1 + index, 0)
        base += blocks * size + 1
    return order

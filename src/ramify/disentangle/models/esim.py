"""ESIM (Chen et al. 2017), the sequential model: two messages are encoded word by word, aligned, and encoded once more with
their alignment."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import ChatInput
from ramify.disentangle.models.base import WordModelConfig
from ramify.disentangle.models.pairs import PairConfig, PairEncoder, build_fusion, check_features
from ramify.models.base import check_config
from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear, linear
from ramify.nn.pairs import Pairs, align, pair_up, part_by_part
from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows
from ramify.nn.recurrent import BiLSTM


@dataclass(frozen=True)
class ESIMConfig(PairConfig, WordModelConfig):
    """Defaults are the paper's, except for the word vectors: the paper uses GloVe vectors of size 300."""

    vocab_size: int = 0
    dim: int = 100
    """Size of the word vectors."""
    hidden: int = 300
    """Size of each LSTM in one direction, and of hidden layers."""
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_config(self)
        check_features(self)

    def build(self) -> "ESIM":
        return ESIM(self)


class ESIM(PairEncoder):
    """The hidden layer (section 3.3) over the pooled states of both messages, child first."""

    config: ESIMConfig
    embedding: nn.Embedding

    def __init__(self, config: ESIMConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.encoding = BiLSTM(config.dim, hidden)
        self.projection = Linear(4 * self.encoding.out_dim, hidden)
        self.composition = BiLSTM(hidden, hidden)
        self.mean_pool, self.max_pool = (Pool(kind, self.composition.out_dim) for kind in ("mean", "max"))
        self.hidden = Linear(4 * self.composition.out_dim, hidden)
        self.fusion = build_fusion(config, hidden)

    @property
    def state_dim(self) -> int:
        return self.config.hidden

    @property
    def word_embedding(self) -> nn.Embedding:
        return self.embedding

    def check_input(self, input: ChatInput) -> None:
        return None

    def compute_states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        encoded = self.encoding(self._dropout(self.embedding(batch.input_ids)), batch.messages)
        # The projection of [a, ã, a - ã, a * ã] is a sum of four maps, and only the last map needs the pair: the map of a
        # mixture ã of words is the mixture of their maps.
        plain, mixed, difference, product = self.projection.weight.split(encoded.shape[1], dim=1)
        projected = torch.cat([encoded, linear(encoded, plain + difference, self.projection.bias)], dim=1)
        other = torch.cat([encoded, linear(encoded, mixed - difference)], dim=1)

        def compose(part: Pairs) -> Float[Tensor, "pair both"]:
            rows = Rows.build(np.concatenate([part.left.host_lengths, part.right.host_lengths])).to(encoded.device)
            tokens = torch.cat([part.left_tokens, part.right_tokens])
            sizes = [encoded.shape[1], self.config.hidden]
            a, of_a = projected.index_select(0, tokens).split(sizes, dim=1)
            aligned, of_aligned = torch.cat(align(encoded, other, part)).split(sizes, dim=1)
            x = self._dropout(torch.relu(of_a + of_aligned + linear(a * aligned, product)))
            x = self.composition(x, rows)
            pooled = torch.cat([self.mean_pool(x, rows), self.max_pool(x, rows)], dim=1)
            return torch.cat(pooled.tensor_split(2), dim=1)

        parts, place = pair_up(batch.messages, *batch.host_pairs, self.config.chunk_tokens)
        pooled = part_by_part(compose, parts).index_select(0, place)
        return self._dropout(torch.tanh(self.hidden(self._dropout(pooled))))

    def _dropout(self, x: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
        return dropout(x, self.config.dropout, self.training)

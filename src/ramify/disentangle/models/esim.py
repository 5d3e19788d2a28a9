"""ESIM (Chen et al. 2017), the sequential model: two messages are read word by word, aligned, and read once more with what was
found."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.models.pairs import PairConfig, PairEncoder, check_features, join_of
from ramify.models.base import check_config
from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear, linear
from ramify.nn.pairs import Pairs, align, pair_up, part_by_part
from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows
from ramify.nn.recurrent import BiLSTM


@dataclass(frozen=True)
class ESIMConfig(PairConfig):
    """Defaults are the paper's, but for the vectors of words: it has GloVe's of 300 numbers."""

    vocab_size: int = 0
    dim: int = 100
    """Of the words' vectors."""
    hidden: int = 300
    """Of every reading in one direction, and of hidden layers."""
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_config(self)
        check_features(self)


class ESIM(PairEncoder):
    """The hidden layer (section 3.3) over what both messages come to, the answering one first."""

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
        self.mean, self.highest = (Pool(kind, self.composition.out_dim) for kind in ("mean", "max"))
        self.hidden = Linear(4 * self.composition.out_dim, hidden)
        self.join = join_of(config, hidden)

    @property
    def state_dim(self) -> int:
        return self.config.hidden

    def states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        read = self.encoding(self._dropped(self.embedding(batch.input_ids)), batch.messages)
        # Of [a, ã, a - ã, a * ã] the projection is a sum of four, of which only the last needs the pair: what it makes of a
        # mixture ã of words is the mixture of what it makes of each.
        plain, mixed, difference, product = self.projection.weight.split(read.shape[1], dim=1)
        own = torch.cat([read, linear(read, plain + difference, self.projection.bias)], dim=1)
        other = torch.cat([read, linear(read, mixed - difference)], dim=1)

        def composed(part: Pairs) -> Float[Tensor, "pair both"]:
            rows = Rows.build(np.concatenate([part.left.host_lengths, part.right.host_lengths])).to(read.device)
            tokens = torch.cat([part.left_tokens, part.right_tokens])
            a, of_a = own.index_select(0, tokens).split([read.shape[1], self.config.hidden], dim=1)
            found, of_found = torch.cat(align(read, other, part)).split([read.shape[1], self.config.hidden], dim=1)
            x = self._dropped(torch.relu(of_a + of_found + linear(a * found, product)))
            x = self.composition(x, rows)
            pooled = torch.cat([self.mean(x, rows), self.highest(x, rows)], dim=1)
            return torch.cat(pooled.tensor_split(2), dim=1)

        parts, place = pair_up(batch.messages, *batch.host_pairs, self.config.chunk_tokens)
        pooled = part_by_part(composed, parts).index_select(0, place)
        return self._dropped(torch.tanh(self.hidden(self._dropped(pooled))))

    def _dropped(self, x: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
        return dropout(x, self.config.dropout, self.training)

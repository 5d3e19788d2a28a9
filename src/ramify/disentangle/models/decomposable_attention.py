"""Decomposable attention (Parikh et al. 2016): the words of two messages are aligned, compared and aggregated, without their
order."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

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
from ramify.nn.pairs import Pairs, align, mask_padding, pair_up, part_by_part
from ramify.nn.ragged import Rows, by_group, inverse, length_key, pad, places, reorder, unpad


@dataclass(frozen=True)
class DecomposableAttentionConfig(PairConfig, WordModelConfig):
    """Defaults are the paper's, except for the word vectors: the paper uses fixed GloVe vectors of size 300."""

    vocab_size: int = 0
    dim: int = 100
    """Size of the word vectors."""
    hidden: int = 200
    num_layers: int = 2
    """Layers of each network: attend, compare, aggregate."""
    dropout: float = 0.2
    intra: bool = False
    """Intra-sentence attention: append to each word the mixture that it attends to in its own message (section 3.4)."""
    max_distance: int = 10
    """Words farther apart than this share one distance bias (intra)."""

    def __post_init__(self) -> None:
        check_config(self)
        check_features(self)

    def build(self) -> "DecomposableAttention":
        return DecomposableAttention(self)


class DecomposableAttention(PairEncoder):
    """The hidden layer over the comparisons of both messages (section 3.3), child first."""

    config: DecomposableAttentionConfig
    embedding: nn.Embedding

    def __init__(self, config: DecomposableAttentionConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden
        word = 2 * hidden if config.intra else hidden
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.projection = Linear(config.dim, hidden, bias=False)
        self.intra_attend = self._build_network(hidden) if config.intra else None
        # By distance from right to left; the first and the last hold for all greater distances.
        self.distance_bias = nn.Parameter(torch.zeros(2 * config.max_distance + 3)) if config.intra else None
        self.attend = self._build_network(word)
        self.compare = self._build_network(2 * word)
        self.aggregate = self._build_network(2 * hidden)
        self.fusion = build_fusion(config, hidden)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def _build_network(self, dim: int) -> nn.ModuleList:
        sizes = [dim, *[self.config.hidden] * self.config.num_layers]
        return nn.ModuleList(Linear(size, following) for size, following in pairwise(sizes))

    @property
    def state_dim(self) -> int:
        return self.config.hidden

    @property
    def word_embedding(self) -> nn.Embedding:
        return self.embedding

    def check_input(self, input: ChatInput) -> None:
        return None

    def compute_states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        words = self.projection(self.embedding(batch.input_ids))
        if self.intra_attend is not None:
            words = torch.cat([words, self._attend_within(self.intra_attend, words, batch.messages)], dim=1)
        keys = self._apply_layers(self.attend, words)
        first, *others = self.compare
        assert isinstance(first, nn.Linear)
        # A layer on [word, mixture of words] is a sum of two maps, and the map of a mixture is the mixture of the words' maps.
        # So the first layer of `compare` is computed once per word, not once per word and pair.
        of_word, of_mixture = first.weight.split(words.shape[1], dim=1)
        from_word, from_mixture = linear(words, of_word, first.bias), linear(words, of_mixture)

        def compare(part: Pairs) -> Float[Tensor, "pair both"]:
            aligned = align(keys, from_mixture, part)
            sides = ((part.left, part.left_tokens), (part.right, part.right_tokens))
            sums = []
            for mixed, (rows, tokens) in zip(aligned, sides):
                x = self._activate(from_word.index_select(0, tokens) + mixed)
                x = self._apply_layers(others, x)
                sums.append(torch.segment_reduce(x, "sum", lengths=rows.lengths, axis=0, unsafe=True))
            return torch.cat(sums, dim=1)

        parts, place = pair_up(batch.messages, *batch.host_pairs, self.config.chunk_tokens)
        return self._apply_layers(self.aggregate, part_by_part(compare, parts).index_select(0, place))

    def _attend_within(
        self, network: nn.ModuleList, words: Float[Tensor, "total dim"], rows: Rows
    ) -> Float[Tensor, "total dim"]:
        """The mixture of words that each word attends to in its own message, itself included."""
        assert self.distance_bias is not None
        lengths, farthest = rows.host_lengths, self.config.max_distance + 1
        order = np.argsort(length_key(lengths), kind="stable")
        tokens = places(lengths, order)
        here, back = (torch.from_numpy(index).to(words.device) for index in (tokens, inverse(tokens)))
        rows = Rows.build(lengths[order]).to(words.device)
        words = reorder(words, here, back)
        keys = pad(self._apply_layers(network, words), rows)
        attended = []
        for group, key, value in zip(rows.groups, by_group(keys, rows), by_group(pad(words, rows), rows), strict=True):
            place = torch.arange(group.length, device=words.device)
            apart = (place[:, None] - place).clamp(-farthest, farthest) + farthest
            # The gradient of x[index] would depend on the order of threads.
            bias = self.distance_bias.index_select(0, apart.flatten()).view_as(apart)
            scores = key @ key.transpose(1, 2) + bias
            attended.append((mask_padding(scores, rows, group).softmax(2) @ value).flatten(0, 1))
        return reorder(unpad(torch.cat(attended), rows), back, here)

    def _apply_layers(self, layers: Iterable[nn.Module], x: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        for layer in layers:
            x = self._activate(layer(x))
        return x

    def _activate(self, x: Float[Tensor, "row out"]) -> Float[Tensor, "row out"]:
        return dropout(torch.relu(x), self.config.dropout, self.training)

"""A message and a candidate as one text for BERT (Devlin et al. 2019, section 3.2): a row of the encoder for every pair."""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import History
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.models.pairs import PairConfig, PairEncoder, check_features, check_pieces, join_of
from ramify.errors import RamifyError
from ramify.models.base import check_config
from ramify.models.bert import Bert, BertConfig
from ramify.nn.dropout import dropout
from ramify.nn.pairs import part_by_part
from ramify.nn.ragged import Rows, inverse, length_key, runs
from ramify.tokenizer import Frame


@dataclass(frozen=True)
class BertPairConfig(PairConfig):
    """The encoder is whatever the run starts from; a pair is cut to the places that it knows."""

    encoder: BertConfig = field(default_factory=lambda: BertConfig(pooling="cls"))
    chunk_tokens: int = 4096

    def __post_init__(self) -> None:
        check_config(self)
        check_features(self)
        if self.encoder.type_vocab_size < 2:
            raise RamifyError(
                f"model.encoder.type_vocab_size must be at least 2, for a pair's two texts, not {self.encoder.type_vocab_size}."
            )
        if self.encoder.max_tokens < 5:
            raise RamifyError(
                f"model.encoder.max_tokens must be at least 5: CLS, two SEP, two texts; not {self.encoder.max_tokens}."
            )

    @property
    def vocab_size(self) -> int:
        return self.encoder.vocab_size


class BertPair(PairEncoder):
    """The pooled state of `[CLS] candidate [SEP] target [SEP]`, of token types 0 and, from the target on, 1."""

    config: BertPairConfig
    encoder: Bert

    def __init__(self, config: BertPairConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Bert(config.encoder)
        self.join = join_of(config, config.encoder.dim)

    @property
    def state_dim(self) -> int:
        return self.config.encoder.dim

    def check(self, input: History) -> None:
        check_pieces(input)

    def states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        target, candidate = batch.host_pairs
        texts = batch.messages.host_lengths - batch.frame.num_special
        special = num_special(batch.frame)
        sizes = np.stack(fitting(texts[candidate], texts[target], self.config.encoder.max_tokens - special))
        total = sizes.sum(0) + special
        order = np.argsort(length_key(total), kind="stable")
        parts = [order[start:stop] for start, stop in runs(total[order], self.config.chunk_tokens)]

        def read(own: Ints) -> Float[Tensor, "pair state"]:
            places, types = laid_out(batch.messages.host_lengths, candidate[own], target[own], sizes[:, own], batch.frame)
            here, types = (torch.from_numpy(each).to(batch.device) for each in (places, types))
            rows = Rows.build(total[own]).to(batch.device)
            return self.encoder.encode(batch.input_ids.index_select(0, here), rows, types)

        states = part_by_part(read, parts).index_select(0, torch.from_numpy(inverse(order)).to(batch.device))
        return dropout(states, self.config.dropout, self.training)


def fitting(one: Ints, other: Ints, room: int) -> tuple[Ints, Ints]:
    """How much of two texts to keep, pair by pair, so that both fit: what is longer than half the room gives way."""
    kept = np.minimum(one, np.maximum(room - room // 2, room - other))
    return kept, np.minimum(other, room - kept)


def num_special(frame: Frame) -> int:
    """Special tokens of a pair's row: those of the candidate's, and after it those that end the target's."""
    return frame.num_special + frame.after


def laid_out(lengths: Ints, candidate: Ints, target: Ints, sizes: Int[NDArray, "2 pair"], frame: Frame) -> tuple[Ints, Ints]:
    """Where the tokens of `[CLS] candidate [SEP] target [SEP]` are found among messages `[CLS] text [SEP]` of these lengths,
    one pair after the other, with so much of both texts; and the token types."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    total = sizes.sum(0) + num_special(frame)
    place = np.arange(total.sum()) - np.repeat(np.cumsum(total) - total, total)
    first, second = (np.repeat(each, total) for each in sizes)
    # What opens the candidate's row and its text, what ends it, the target's text, and what ends that.
    text = frame.before + first
    middle = text + frame.after
    last = middle + second
    types = (place >= middle).astype(np.int64)
    found = np.repeat(starts[candidate], total) + place
    found = np.where(place >= text, np.repeat(ends[candidate], total) + place - middle, found)
    found = np.where(place >= middle, np.repeat(starts[target], total) + frame.before + place - middle, found)
    return np.where(place >= last, np.repeat(ends[target], total) + place - last - frame.after, found), types

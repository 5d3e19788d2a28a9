"""A message and a candidate as one text for BERT (Devlin et al. 2019, section 3.2), with one encoder row per pair."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput, fit_texts
from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.models.encoders import EncoderModelConfig
from ramify.disentangle.models.pairs import PairConfig, PairEncoder, build_fusion, check_features, check_pieces
from ramify.errors import RamifyError
from ramify.models.base import check_config
from ramify.models.bert import Bert, BertConfig
from ramify.nn.dropout import dropout
from ramify.nn.pairs import part_by_part
from ramify.nn.ragged import Rows, inverse, length_key, runs
from ramify.tokenizer import Frame


@dataclass(frozen=True)
class BertPairConfig(PairConfig, EncoderModelConfig):
    """The run's checkpoint sets the encoder. A pair is cut to the encoder's number of positions."""

    encoder: BertConfig = field(default_factory=lambda: BertConfig(pooling="cls"))
    chunk_tokens: int = 4096
    pools_texts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_config(self)
        check_features(self)
        if self.encoder.type_vocab_size < 2:
            raise RamifyError(
                f"model.encoder.type_vocab_size={self.encoder.type_vocab_size} is too small: a pair has two texts. Set it to "
                "2 or more."
            )
        if self.encoder.max_tokens < 5:
            raise RamifyError(
                f"model.encoder.max_tokens={self.encoder.max_tokens} is too small: a pair has CLS, two SEP and two texts. Set "
                "it to 5 or more."
            )

    def build(self) -> "BertPair":
        return BertPair(self)


class BertPair(PairEncoder):
    """The pooled state of `[CLS] candidate [SEP] target [SEP]`, with token type 0, and 1 from the target on."""

    config: BertPairConfig
    encoder: Bert

    def __init__(self, config: BertPairConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Bert(config.encoder)
        self.fusion = build_fusion(config, config.encoder.dim)

    @property
    def state_dim(self) -> int:
        return self.config.encoder.dim

    @property
    def word_embedding(self) -> None:
        return None

    def check_input(self, input: ChatInput) -> None:
        check_pieces(input)
        if input.layout != "bert":
            raise RamifyError(
                f"input.layout={input.layout} does not fit this model, which reads `[CLS] candidate [SEP] target [SEP]`. Set "
                "input.layout=bert."
            )

    def compute_states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        target, candidate = batch.host_pairs
        texts = batch.messages.host_lengths - batch.frame.num_special
        special = count_special(batch.frame)
        sizes = np.stack(fit_texts(texts[candidate], texts[target], self.config.encoder.max_tokens - special))
        total = sizes.sum(0) + special
        order = np.argsort(length_key(total), kind="stable")
        parts = [order[start:stop] for start, stop in runs(total[order], self.config.chunk_tokens)]

        def encode(pairs: Ints) -> Float[Tensor, "pair state"]:
            places, types = lay_out_pairs(
                batch.messages.host_lengths, candidate[pairs], target[pairs], sizes[:, pairs], batch.frame
            )
            here, types = (torch.from_numpy(array).to(batch.device) for array in (places, types))
            rows = Rows.build(total[pairs]).to(batch.device)
            return self.encoder.vectors(EncoderInput.of_rows(batch.input_ids.index_select(0, here), rows, types))

        states = part_by_part(encode, parts).index_select(0, torch.from_numpy(inverse(order)).to(batch.device))
        return dropout(states, self.config.dropout, self.training)


def count_special(frame: Frame) -> int:
    """The number of special tokens in a pair's row: the candidate's own, and those that end the target."""
    return frame.num_special + frame.after


def lay_out_pairs(
    lengths: Ints, candidate: Ints, target: Ints, sizes: Int[NDArray, "2 pair"], frame: Frame
) -> tuple[Ints, Ints]:
    """The places of the tokens of `[CLS] candidate [SEP] target [SEP]`, one pair after the other, among messages
    `[CLS] text [SEP]` of these lengths; and the token types. `sizes`: tokens of each pair's two texts."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    total = sizes.sum(0) + count_special(frame)
    place = np.arange(total.sum()) - np.repeat(np.cumsum(total) - total, total)
    first, second = (np.repeat(side, total) for side in sizes)
    # Ends of the parts: the candidate with its opening tokens, its closing tokens, the target's text.
    text = frame.before + first
    middle = text + frame.after
    last = middle + second
    types = (place >= middle).astype(np.int64)
    source = np.repeat(starts[candidate], total) + place
    source = np.where(place >= text, np.repeat(ends[candidate], total) + place - middle, source)
    source = np.where(place >= middle, np.repeat(starts[target], total) + frame.before + place - middle, source)
    return np.where(place >= last, np.repeat(ends[target], total) + place - last - frame.after, source), types

"""The Masked Hierarchical Transformer of Zhu et al. (2020): utterances are encoded one by one, then read each other along the
links that are known, and what each comes out as says whether the newest one answers it."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import History
from ramify.disentangle.models.pairs import (
    FeatureConfig,
    Joined,
    check_features,
    check_pieces,
    feature_layer,
    join_of,
    on_features,
)
from ramify.errors import RamifyError
from ramify.models.base import check_config
from ramify.models.bert import Bert, BertConfig
from ramify.nn.blocks import Stack
from ramify.nn.dropout import dropout
from ramify.nn.embeddings import PositionTable, init_weights
from ramify.nn.linear import Linear
from ramify.nn.ragged import Rows


@dataclass(frozen=True)
class MHTConfig(FeatureConfig):
    """Sizes default to the paper's. Its encoder is BERT-base with BERT's pooler; here it is whatever the run starts from."""

    encoder: BertConfig = field(default_factory=BertConfig)
    dim: int = 300
    num_layers: int = 4
    num_heads: int = 4
    ffn_dim: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    mask: Literal["ancestors", "temporal", "none"] = "ancestors"
    """What an earlier message reads, besides itself and the newest: what stands above it, the messages right before it, or
    all there are. The newest one reads nothing but itself, unless there is no mask."""
    depth: int = 0
    """Ancestors at most so many links up; 0: all (mask = ancestors)."""
    span: int = 1
    """So many messages right before it (mask = temporal)."""
    position: Literal["distance", "sinusoidal", "absolute", "none"] = "distance"
    """How an utterance knows its place: a learned vector, or sinusoids, by how far back it is; a learned vector by its place
    from the oldest on; or not. The paper does not say."""
    max_history: int = 128
    """Places that there are learned vectors for."""
    features: Literal["none", "head", "input"] = "none"
    """Where the features of message pairs come in: beside the Transformer's last states, through hidden layers; or added to
    the utterances' vectors. The paper does not say."""
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_config(self)
        check_features(self)
        if self.depth < 0:
            raise RamifyError(f"model.depth must not be negative, and is 0 for all ancestors, not {self.depth}.")

    @property
    def vocab_size(self) -> int:
        return self.encoder.vocab_size


class MaskedHierarchicalTransformer(Joined):
    """A state of every candidate, given the newest message and what stands above the candidate (section 3)."""

    config: MHTConfig
    encoder: Bert

    def __init__(self, config: MHTConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Bert(config.encoder)
        self.projection = Linear(config.encoder.dim, config.dim)
        kind = "sinusoidal" if config.position == "sinusoidal" else "learned"
        self.positions = None if config.position == "none" else PositionTable(config.max_history, config.dim, kind)
        self.stack = Stack(
            config.num_layers,
            config.dim,
            config.num_heads,
            config.ffn_dim,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            eps=config.eps,
        )
        self.feature_map = feature_layer(config, 0, config.dim) if config.features == "input" else None
        self.join = join_of(config, config.dim)
        for part in (self.projection, self.positions, self.stack, self.feature_map):
            if part is not None:
                init_weights(part)

    @property
    def state_dim(self) -> int:
        return self.config.dim

    @property
    def reads_structure(self) -> bool:
        return self.config.mask == "ancestors"

    @property
    def reads_history(self) -> bool:
        return True

    def check(self, input: History) -> None:
        check_pieces(input)
        if input.max_tokens > self.config.encoder.max_tokens:
            raise RamifyError(
                f"messages of up to {input.max_tokens} tokens are read, but the encoder knows "
                f"{self.config.encoder.max_tokens} places: lower input.max_tokens."
            )
        if self.config.position in ("distance", "absolute") and input.window >= self.config.max_history:
            raise RamifyError(
                f"a message may answer one {input.window} back, but there are {self.config.max_history} places: set "
                f"model.max_history={input.window + 1} or more, or lower input.window."
            )

    @property
    def makes_vectors(self) -> bool:
        return True

    def encode(self, ids: Int[Tensor, " total"], rows: Rows) -> Float[Tensor, "message encoder"]:
        """Vectors of the messages, from the shared encoder (section 3.2)."""
        return self.encoder.encode(ids, rows)

    def states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        vectors = self.encode(batch.input_ids, batch.messages) if batch.vectors is None else batch.vectors
        x = self.projection(vectors).index_select(0, batch.candidate)
        if self.positions is not None:
            x = x + self.positions(self._places(batch))
        if self.feature_map is not None:
            x = x + on_features(self.feature_map, batch, batch.pairs)
        x = dropout(x, self.config.dropout, self.training)
        return self.stack(x, batch.candidates, allowed=self.allowed(batch))

    def allowed(self, batch: LinkBatch) -> list[Bool[Tensor, "_target _place _place"]]:
        """The mask M (section 3.3), a block a group of targets with as many candidates. Places count from the newest message
        back, so the paper's last row and column are the first here."""
        rows, config = batch.candidates, self.config
        blocks = []
        for group in rows.groups:
            place = torch.arange(group.length, device=batch.device)
            real = place < rows.lengths[group.start : group.stop, None]
            back = place - place[:, None]
            if config.mask == "ancestors":
                assert batch.above is not None
                up = batch.above[group.start : group.stop, : group.length, : group.length]
                seen = (up > 0) & (up <= config.depth) if config.depth else up > 0
            elif config.mask == "temporal":
                seen = ((back > 0) & (back <= config.span)).expand(group.size, -1, -1)
            else:
                seen = torch.ones_like(back, dtype=torch.bool).expand(group.size, -1, -1)
            if config.mask != "none":
                # The newest message: everyone reads it, and it reads nobody else.
                seen = torch.where(place[:, None] == 0, False, seen | (place == 0))
            # Padding is read by nothing but itself.
            blocks.append((seen & real[:, None]) | (back == 0))
        return blocks

    def _places(self, batch: LinkBatch) -> Tensor:
        rows = batch.candidates
        if self.config.position != "absolute":
            return rows.positions
        return torch.repeat_interleave(rows.lengths, rows.lengths, output_size=rows.total) - 1 - rows.positions


def config_from_bert(theirs: BertConfig) -> dict[str, Any]:
    """What a checkpoint of the BERT family settles."""
    return {"encoder": theirs}

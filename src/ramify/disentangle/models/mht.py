"""The Masked Hierarchical Transformer of Zhu et al. (2020): utterances are encoded one by one, then attend to each other along
known links; each candidate's final state scores whether it is the parent of the newest utterance."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import ChatInput
from ramify.disentangle.models.encoders import EncoderModelConfig
from ramify.disentangle.models.pairs import (
    FeatureConfig,
    FusionBackbone,
    apply_feature_layer,
    build_feature_layer,
    build_fusion,
    check_features,
    check_pieces,
)
from ramify.errors import RamifyError
from ramify.models.base import check_config
from ramify.models.bert import Bert, BertConfig
from ramify.nn.blocks import Stack
from ramify.nn.dropout import dropout
from ramify.nn.embeddings import PositionTable, init_weights
from ramify.nn.linear import Linear


@dataclass(frozen=True)
class MHTConfig(FeatureConfig, EncoderModelConfig):
    """Sizes default to the paper's. The paper's encoder is BERT-base with BERT's pooler; here the run's checkpoint sets it."""

    encoder: BertConfig = field(default_factory=BertConfig)
    dim: int = 300
    num_layers: int = 4
    num_heads: int = 4
    ffn_dim: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    mask: Literal["ancestors", "temporal", "none"] = "ancestors"
    """The messages that an earlier message attends to, besides itself and the newest one: its ancestors, the messages right
    before it, or all. The newest message attends to itself alone, unless mask = none."""
    depth: int = 0
    """Greatest number of links up to an ancestor; 0: no limit (mask = ancestors)."""
    span: int = 1
    """Number of preceding messages that a message attends to (mask = temporal)."""
    position: Literal["distance", "sinusoidal", "absolute", "none"] = "distance"
    """Position vectors of utterances. distance: learned, by distance from the newest. sinusoidal: fixed, by the same distance.
    absolute: learned, by position from the oldest. The paper does not say."""
    max_history: int = 128
    """Number of learned position vectors."""
    features: Literal["none", "head", "input"] = "none"
    """Where features of message pairs enter. head: fused with the Transformer's last states, through hidden layers. input:
    added to the utterances' vectors. The paper does not say."""
    eps: float = 1e-12
    pools_texts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_config(self, depth=0)
        check_features(self)

    def build(self) -> "MaskedHierarchicalTransformer":
        return MaskedHierarchicalTransformer(self)


class MaskedHierarchicalTransformer(FusionBackbone):
    """A state of every candidate, given the newest message and the candidate's ancestors (section 3)."""

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
        self.feature_map = build_feature_layer(config, 0, config.dim) if config.features == "input" else None
        self.fusion = build_fusion(config, config.dim)
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

    def check_input(self, input: ChatInput) -> None:
        check_pieces(input)
        if input.max_tokens > self.config.encoder.max_tokens:
            raise RamifyError(
                f"input.max_tokens={input.max_tokens} is more than the encoder's {self.config.encoder.max_tokens} positions. "
                f"Lower input.max_tokens to {self.config.encoder.max_tokens}."
            )
        if self.config.position in ("distance", "absolute") and input.window >= self.config.max_history:
            raise RamifyError(
                f"input.window={input.window} needs {input.window + 1} position vectors, but model.max_history is "
                f"{self.config.max_history}. Set model.max_history={input.window + 1}, or lower input.window."
            )

    @property
    def word_embedding(self) -> None:
        return None

    @property
    def message_encoder(self) -> Bert:
        """The shared encoder (section 3.2)."""
        return self.encoder

    def compute_states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        vectors = batch.vectors
        if vectors is None:
            vectors = self.encoder.vectors(EncoderInput.of_rows(batch.input_ids, batch.messages))
        x = self.projection(vectors).index_select(0, batch.candidate)
        if self.positions is not None:
            x = x + self.positions(self._places(batch))
        if self.feature_map is not None:
            x = x + apply_feature_layer(self.feature_map, batch, batch.pair_features)
        x = dropout(x, self.config.dropout, self.training)
        return self.stack(x, batch.candidates, allowed=self.build_mask(batch))

    def build_mask(self, batch: LinkBatch) -> list[Bool[Tensor, "_target _place _place"]]:
        """The mask M (section 3.3), one block per group of targets with similar numbers of candidates. Places count
        from the newest message back, so the paper's last row and column are the first here."""
        rows, config = batch.candidates, self.config
        blocks = []
        for group in rows.groups:
            place = torch.arange(group.length, device=batch.device)
            real = place < rows.lengths[group.start : group.stop, None]
            back = place - place[:, None]
            if config.mask == "ancestors":
                assert batch.ancestor_distance is not None
                up = batch.ancestor_distance[group.start : group.stop, : group.length, : group.length]
                visible = (up > 0) & (up <= config.depth) if config.depth else up > 0
            elif config.mask == "temporal":
                visible = ((back > 0) & (back <= config.span)).expand(group.size, -1, -1)
            else:
                visible = torch.ones_like(back, dtype=torch.bool).expand(group.size, -1, -1)
            if config.mask != "none":
                # All messages attend to the newest one, which attends to no other.
                visible = torch.where(place[:, None] == 0, False, visible | (place == 0))
            # Padding attends to itself, and nothing else attends to it.
            blocks.append((visible & real[:, None]) | (back == 0))
        return blocks

    def _places(self, batch: LinkBatch) -> Tensor:
        rows = batch.candidates
        if self.config.position != "absolute":
            return rows.positions
        return torch.repeat_interleave(rows.lengths, rows.lengths, output_size=rows.total) - 1 - rows.positions

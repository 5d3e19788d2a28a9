"""Layers of a frozen model as features of another one (Peters et al. 2018, section 3.3)."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.characters import Spellings
from ramify.batching.encoder_input import EncoderInput
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.base import (
    AnyBackbone,
    Checkpoint,
    Encoded,
    Encodes,
    ModelConfig,
    PublishedForm,
    Read,
    ReadsCharacters,
    Regularized,
    TakesFeatures,
    reads_characters,
)
from ramify.models.elmo import ElmoConfig
from ramify.models.recurrent import RecurrentConfig
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import LayerPrefixes, under
from ramify.nn.mix import LayerMixes, mixable
from ramify.nn.modes import evaluating


class FrozenFeatures(nn.Module):
    """Mixes of the layers of a body whose weights stay as they are. γ and s of each mix are learned with the task.

    A task's model concatenates them to its inputs, token by token. They are computed without dropout in the body, and each text
    without a state. A layer that is not as wide as the last one is left out: the embedding of some bodies.
    """

    backbone: Any
    """An `Encodes`."""
    mixes: LayerMixes

    def __init__(
        self, backbone: Encodes, *, outputs: int = 1, layer_norm: bool = False, dropout: float = 0.5, l2: float = 0.0
    ) -> None:
        """`outputs` is the number of mixes."""
        super().__init__()
        self.backbone = backbone
        self.backbone.requires_grad_(False)
        self.layers = mixable(backbone.layer_dims())
        """The numbers of the layers that are mixed."""
        self.mixes = LayerMixes(len(self.layers), outputs=outputs, layer_norm=layer_norm, dropout=dropout, l2=l2)

    @property
    def dim(self) -> int:
        """The length of a feature vector."""
        return self.backbone.layer_dims()[-1]

    def forward(self, rows: EncoderInput) -> tuple[Float[Tensor, "total dim"], ...]:
        """One vector per token from each mix."""
        with torch.no_grad(), evaluating(self.backbone):
            layers = self.backbone.encode_rows(rows, layers=True).layers
        return self.mixes([layers[number] for number in self.layers])

    def penalty(self) -> Float[Tensor, ""]:
        """The term that the task adds to its loss (`LayerMixes.penalty`)."""
        return self.mixes.penalty()


@dataclass(frozen=True)
class ConcatConfig(ModelConfig):
    """A model that reads the mix of a frozen model's layers beside its own token vectors: [x_k; ELMo_k]."""

    reader: TakesFeatures = field(default_factory=RecurrentConfig)
    """The model that reads both, and learns."""
    source: ModelConfig = field(default_factory=ElmoConfig)
    """The frozen model."""
    layer_norm: bool = False
    """Whether each layer is standardized before layers are mixed."""
    dropout: float = 0.5
    """Rate on the mix."""
    l2: float = 0.001
    """The factor of the squared logits of the mix in the loss: the greater, the nearer the mix stays to the mean of the
    layers."""

    inner: ClassVar[tuple[str, ...]] = ("reader", "source")

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        if not isinstance(self.reader, TakesFeatures):
            raise RamifyError(
                f"model.reader is a {type(self.reader).__name__}, which reads no features. Choose a RecurrentConfig or a "
                "CnnConfig."
            )
        if not 0 <= self.dropout < 1:
            raise RamifyError(f"model.dropout must be at least 0 and below 1, but is {self.dropout:g}.")
        if self.l2 < 0:
            raise RamifyError(f"model.l2 must not be negative, but is {self.l2:g}.")

    # Configs are frozen, so nothing assigns to these properties.
    @property
    def vocab_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.source.vocab_size

    @property
    def published(self) -> PublishedForm:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.reader.published

    def build(self) -> "Concat":
        return Concat(self)

    def for_vocabulary(self, size: int) -> Self:
        return replace(self, reader=self.reader.for_vocabulary(size), source=self.source.for_vocabulary(size))

    def adapted_to(self, checkpoint: Checkpoint) -> "ConcatConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: "Concat", checkpoint: Checkpoint) -> None:
        """Load the weights of the frozen model, or those of a saved model of this kind."""
        if type(checkpoint.model) is ConcatConfig:
            checkpoint.fill(backbone, self)
        else:
            self.source.initialize(backbone.features.backbone, checkpoint)


class Concat(AnyBackbone, Encodes, ReadsCharacters, Regularized):
    """A reader of its own token vectors and of frozen features. All that it gives is the reader's."""

    config: ConcatConfig
    frozen = ("features.backbone",)

    def __init__(self, config: ConcatConfig) -> None:
        super().__init__()
        self.config = config
        source = config.source.build()
        if not isinstance(source, Encodes):
            raise RamifyError(
                f"model.source is a {type(source).__name__}, which gives no states of single texts. Choose a model of texts, "
                "such as an ElmoConfig."
            )
        self.features = FrozenFeatures(source, layer_norm=config.layer_norm, dropout=config.dropout, l2=config.l2)
        self.reader = config.reader.build(self.features.dim)

    @property
    def out_dim(self) -> int:
        return self.reader.out_dim

    @property
    def max_tokens(self) -> int | None:
        limits = [limit for limit in (self.reader.max_tokens, self.features.backbone.max_tokens) if limit is not None]
        return min(limits, default=None)

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def vector_dim(self) -> int:
        return self.reader.vector_dim

    @property
    def vector_read(self) -> Read:
        return self.reader.vector_read

    @property
    def reads_characters(self) -> bool:
        return reads_characters(self.features.backbone)

    def spell(self, spellings: Spellings) -> None:
        self.features.backbone.spell(spellings)

    def penalty(self) -> Float[Tensor, ""]:
        return self.features.penalty()

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return self.reader.layer_dims()

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        embedding, *layers = under("reader.", self.reader.layer_prefixes())
        return (("features.mixes.", *embedding), *layers)

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        (features,) = self.features(rows)
        return self.reader.encode_rows(replace(rows, features=features), layers=layers, read=read, record=record)

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        return self.reader.vector(encoded)

"""The common part of all tasks that predict labels of texts from a backbone (`Encodes`).

A task is a final subclass of `DownstreamTask` that adds its own output layer, and nothing else about models:

- **One vector per row** (classification; ranking of choices, with several rows per example and one score each): pass `head`
  to `DownstreamTask.__init__` and read `row_vectors(batch)`, in the order of the rows. `HEADS` holds what a head may be.
- **States of tokens** (tags, from the first piece of each word; span answers, from start and end scores of all tokens): pass
  `head=None` and read `token_states(batch)`. `Encoded.rows` says where rows begin, `EncoderInput.spans` where texts do.
- Both work alike whether the backbone is fine-tuned or gives features; both mix the layers in the latter case.
- Beside the task stand its view and collator (`batching/`; the batch is a `LabelledBatch`, whose `targets` or `part` are the
  task's), its pipeline (a `LabelPipeline`), and its kind of run (a `LabelRun`), each a final subclass, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.labelled_batch import LabelledBatch
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.base import BACKBONE, Encoded, Encodes, Read, Regularized, RowHead
from ramify.nn.dropout import dropout
from ramify.nn.mix import ScalarMix, mixable
from ramify.nn.modes import evaluating
from ramify.nn.row_heads import Place, TokenPooler, mean_states, token_states
from ramify.tasks.base import Task
from ramify.tokenizer import Tokenizer

Mode = Literal["finetune", "features"]
"""finetune: all weights learn. features: those of the backbone stay as they are, and it is used without dropout."""


@dataclass(frozen=True)
class DownstreamConfig(ABC):
    """Settings that all tasks on labelled texts share."""

    mode: Mode = "finetune"
    dropout: float = 0.1
    """Rate on the vectors or states that the output layer reads."""
    mix_norm: bool = False
    """With mode=features: standardize each layer before layers are mixed (Peters et al. 2018)."""
    max_norm: float | None = None
    """Bound of the norm of the weights of each output, which every update keeps (3 in Kim 2014, section 2.1). null: none."""
    keep_gib: float = 8.0
    """With mode=features: the most disk space, in GiB, for the vectors of the frozen model, which are then computed once.
    Larger ones are computed anew in every epoch."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        if not 0 <= self.dropout < 1:
            raise RamifyError(f"task.dropout must be at least 0 and below 1, but is {self.dropout:g}.")
        if self.keep_gib < 0:
            raise RamifyError(f"task.keep_gib must not be negative, but is {self.keep_gib:g}.")
        if self.max_norm is not None and self.max_norm <= 0:
            raise RamifyError(f"task.max_norm must be above 0, but is {self.max_norm:g}. Set it to null for no bound.")
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise `RamifyError` for settings of the task itself that do not fit together."""


class Head(nn.Module, ABC):
    """One vector per row from the states of a backbone."""

    fixed: bool
    """Whether the head learns nothing, so that a frozen backbone always gives the same vectors."""
    of_layers: bool
    """Whether it may be taken of each layer, before layers are mixed."""

    @abstractmethod
    def read(self, backbone: Encodes) -> Read:
        """The tokens that it reads."""

    @abstractmethod
    def dim(self, backbone: Encodes, *, context: bool) -> int:
        """The length of a vector."""

    @abstractmethod
    def forward(self, backbone: Encodes, encoded: Encoded) -> Float[Tensor, "row _dim"]: ...


class OwnVector(Head):
    """The vector that the backbone itself gives a row: the pooler of a BERT checkpoint, a mean, or final states."""

    fixed = True
    of_layers = False

    def read(self, backbone: Encodes) -> Read:
        return backbone.vector_read

    def dim(self, backbone: Encodes, *, context: bool) -> int:
        return backbone.vector_dim

    def forward(self, backbone: Encodes, encoded: Encoded) -> Float[Tensor, "row _dim"]:
        return backbone.vector(encoded)


class PooledToken(Head):
    """tanh, or another function, of a new linear map of one token's state."""

    fixed = False
    of_layers = False

    def __init__(self, dim: int, place: Place, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.pooler = TokenPooler(dim, place, activation)

    def read(self, backbone: Encodes) -> Read:
        return self.pooler.place

    def dim(self, backbone: Encodes, *, context: bool) -> int:
        return backbone.layer_dims(context=context)[-1]

    def forward(self, backbone: Encodes, encoded: Encoded) -> Float[Tensor, "row _dim"]:
        return self.pooler(encoded.last, encoded.rows)


class OneToken(Head):
    """The state of the first or the last token."""

    fixed = True
    of_layers = True

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place: Place = place

    def read(self, backbone: Encodes) -> Read:
        return self.place

    def dim(self, backbone: Encodes, *, context: bool) -> int:
        return backbone.layer_dims(context=context)[-1]

    def forward(self, backbone: Encodes, encoded: Encoded) -> Float[Tensor, "row _dim"]:
        return token_states(encoded.last, encoded.rows, self.place)


class MeanOfTokens(Head):
    """The mean state of all tokens, special ones included."""

    fixed = True
    of_layers = True

    def read(self, backbone: Encodes) -> Read:
        return "all"

    def dim(self, backbone: Encodes, *, context: bool) -> int:
        return backbone.layer_dims(context=context)[-1]

    def forward(self, backbone: Encodes, encoded: Encoded) -> Float[Tensor, "row _dim"]:
        return mean_states(encoded.last, encoded.rows)


HEADS = {
    "vector": lambda dim: OwnVector(),
    "pooler": lambda dim: PooledToken(dim, "first"),
    "rectifier": lambda dim: PooledToken(dim, "first", torch.relu),
    "summary": lambda dim: PooledToken(dim, "last"),
    "mean": lambda dim: MeanOfTokens(),
    "first": lambda dim: OneToken("first"),
    "last": lambda dim: OneToken("last"),
}
"""The heads of rows, by their names in settings (`RowHead`), made from the width of the last layer."""


class DownstreamTask(Task[LabelledBatch], ABC):
    """Labels of texts from a backbone, which is fine-tuned or gives features.

    Features are γ Σ s_l h_l of the layers h_l (Peters et al. 2018, equation 1), for every backbone; γ and s are learned.
    Layers of another width than the last one are left out, such as the token vectors of a recurrent model.
    """

    backbone: Any
    """An `AnyBackbone` that is an `Encodes`."""
    config: Any
    """A `DownstreamConfig`; each task narrows the type."""
    input: Any
    """A `LabelInput`, or other settings of rows with its `max_tokens`, `reads_above` and `context_as`."""
    head_name: RowHead | None
    """The name of `head`."""
    head: Head | None
    mix: ScalarMix | None
    output: nn.Linear
    """The output layer, which each task makes."""

    def __init__(
        self,
        backbone: Any,
        tokenizer: Tokenizer,
        input: Any,
        config: DownstreamConfig,
        head: Literal[RowHead, "default"] | None,
    ) -> None:
        """`head` makes one vector per row; "default": that of the backbone. None: the task reads states of tokens.

        Raises `RamifyError` for rows that the backbone cannot read.
        """
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.config = config
        self._check_rows()
        self.context = input.reads_above and input.context_as == "vectors"
        """Whether rows are read with the vectors of nodes, which some backbones read with other layers."""
        widths = backbone.layer_dims(context=self.context)
        self.mixed = mixable(widths)
        """The numbers of the layers that are mixed; 0 is the embedding."""
        frozen = config.mode == "features"
        published = backbone.config.published
        default: RowHead = published.frozen_head if frozen else published.head
        self.head_name = default if head == "default" else head
        self.head = None if self.head_name is None else HEADS[self.head_name](widths[-1])
        self.mix = None
        if frozen:
            layers = 1 if self.head is not None and self.head.fixed and not self.head.of_layers else len(self.mixed)
            self.mix = ScalarMix(layers, layer_norm=config.mix_norm)
            backbone.requires_grad_(False)
        self.frozen = ("backbone",) if frozen else tuple(BACKBONE + name for name in backbone.frozen)

    def _check_rows(self) -> None:
        backbone, input = self.backbone, self.input
        if backbone.max_tokens is not None and input.max_tokens > backbone.max_tokens:
            raise RamifyError(
                f"input.max_tokens={input.max_tokens} is more than the {backbone.max_tokens} tokens that the model reads. "
                "Lower input.max_tokens, or choose a model that reads longer texts."
            )
        if input.reads_above and input.context_as == "vectors" and not backbone.reads_context:
            raise RamifyError(
                f"input.context_as=vectors needs a model that reads vectors of nodes, but this {type(backbone).__name__} reads "
                "none. Set input.context_as=text, or start from a tree-mlm."
            )

    def after_update(self, phase: str) -> None:
        if self.config.max_norm is not None:
            self.output.weight.copy_(torch.renorm(self.output.weight, 2, 0, self.config.max_norm))

    def regularized(
        self, losses: dict[str, Float[Tensor, ""]], batch: LabelledBatch, divisors: Mapping[str, float], phase: str
    ) -> dict[str, Float[Tensor, ""]]:
        """The losses of a batch, with its share of the term that the backbone adds to an update."""
        if not isinstance(self.backbone, Regularized):
            return losses
        name = next(iter(losses))
        share = self.counts(batch, phase)[name] / divisors[name]
        return losses | {name: losses[name] + share * self.backbone.penalty()}

    @property
    def dim(self) -> int:
        """The length of a row's vector, or of a token's state if the task reads these."""
        if self.head is None:
            return self.backbone.layer_dims(context=self.context)[-1]
        return self.head.dim(self.backbone, context=self.context)

    @property
    def keeps_features(self) -> bool:
        """Whether the vectors of a text's layers never change, so that they may be computed once (`kept_layers`)."""
        return self.mix is not None and (self.head is None or self.head.fixed)

    @property
    def num_kept(self) -> int:
        """The number of vectors of a row, or of a token, that are kept."""
        return 1 if self.head is not None and not self.head.of_layers else len(self.mixed)

    def kept_layers(self, rows: EncoderInput) -> Float[Tensor, "vector layer dim"]:
        """The tensors that are kept: the vectors of rows or, for a task that reads tokens, the states of all."""
        return self.token_layers(rows) if self.head is None else self.row_layers(rows)

    def token_states(self, batch: LabelledBatch, read: Read = "all") -> Encoded:
        """The states of tokens, with dropout: those of the last layer, or mixed ones of a frozen backbone."""
        if batch.states is None:
            encoded = self._states(batch.input, read)
        else:
            assert self.mix is not None
            encoded = Encoded(batch.input.rows, (self.mix(batch.states.unbind(1)),), batch.input.ids)
        return Encoded(encoded.rows, (self._dropped(encoded.last),), encoded.ids)

    @torch.no_grad()
    def token_layers(self, rows: EncoderInput) -> Float[Tensor, "token layer dim"]:
        """The states of all tokens in each layer of a frozen backbone that is mixed."""
        with evaluating(self.backbone):
            encoded = self.backbone.encode_rows(rows, layers=True)
        return torch.stack([encoded.layers[number] for number in self.mixed], 1)

    def row_vectors(self, batch: LabelledBatch) -> Float[Tensor, "row dim"]:
        """One vector per row, with dropout."""
        assert self.head is not None
        if self.mix is not None and self.head.fixed:
            layers = self.row_layers(batch.input) if batch.features is None else batch.features
            return self._dropped(self.mix(layers.unbind(1)))
        # All tokens are kept where all layers are asked for.
        read = "all" if self.mix is not None else self.head.read(self.backbone)
        return self._dropped(self.head(self.backbone, self._states(batch.input, read)))

    @torch.no_grad()
    def row_layers(self, rows: EncoderInput) -> Float[Tensor, "row layer dim"]:
        """The vectors of each row that a frozen backbone gives: of each layer that is mixed, or the backbone's own alone."""
        assert self.head is not None
        with evaluating(self.backbone):
            if not self.head.of_layers:
                encoded = self.backbone.encode_rows(rows, read=self.head.read(self.backbone))
                return self.head(self.backbone, encoded)[:, None]
            encoded = self.backbone.encode_rows(rows, layers=True)
        each = [Encoded(encoded.rows, (encoded.layers[number],), encoded.ids) for number in self.mixed]
        return torch.stack([self.head(self.backbone, layer) for layer in each], 1)

    def _states(self, rows: EncoderInput, read: Read) -> Encoded:
        if self.mix is None:
            return self.backbone.encode_rows(rows, read=read)
        with torch.no_grad(), evaluating(self.backbone):
            encoded = self.backbone.encode_rows(rows, layers=True)
        return Encoded(encoded.rows, (self.mix([encoded.layers[number] for number in self.mixed]),), encoded.ids)

    def _dropped(self, x: Float[Tensor, "item dim"]) -> Float[Tensor, "item dim"]:
        return dropout(x, self.config.dropout, self.training)

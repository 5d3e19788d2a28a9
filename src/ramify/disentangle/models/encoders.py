"""Initialize the Bert inside a link model from a BERT-family checkpoint or from the encoder of a masked language model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ramify.disentangle.models.base import FREE, LinkModelConfig
from ramify.models import hf
from ramify.models.base import BACKBONE, BERT_FAMILY, RATES, Checkpoint
from ramify.models.bert import Bert, BertConfig, load_pretrained
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.tensors import load_strictly

NUM_TYPES = 2
"""Number of token types of a Bert made from a TreeMLM, which has none."""

POOL = "pool."


class EncoderModelConfig(LinkModelConfig):
    """The settings of a link model that contains a Bert. It starts from a model of its own kind or from a text model."""

    encoder: BertConfig
    pools_texts: ClassVar[bool]
    """Whether the encoder reads single texts, so it takes the pooling of the text model. If not, it keeps its own pooling."""

    # Configs are frozen, so nothing assigns to the property that replaces the field.
    @property
    def vocab_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.encoder.vocab_size

    def for_vocabulary(self, size: int) -> Self:
        return self._with_encoder(self.encoder.for_vocabulary(size))

    def adapted_to(self, checkpoint: Checkpoint) -> Self:
        if checkpoint.model is None:
            return self._with_encoder(self.encoder.adapted_to(checkpoint))
        if type(checkpoint.model) not in ENCODERS:
            return checkpoint.saved_as(self, f"a text model that Ramify saved, or from {BERT_FAMILY}")
        theirs = ENCODERS[type(checkpoint.model)].config(checkpoint.model)
        rates = {name: getattr(self.encoder, name) for name in RATES}
        pooling = theirs.pooling if self.pools_texts else self.encoder.pooling
        return self._with_encoder(replace(theirs, **rates, pooling=pooling))

    def initialize(self, backbone: Any, checkpoint: Checkpoint) -> None:
        if checkpoint.model is None:
            load_pretrained(backbone.encoder, checkpoint)
        elif type(checkpoint.model) in ENCODERS:
            theirs = ENCODERS[type(checkpoint.model)].config(checkpoint.model)
            settings = {name: getattr(self.encoder, name) for name in (*RATES, "pooling")}
            hf.require(self.encoder, vars(theirs) | settings, checkpoint.source, "model.encoder")
            load_encoder(backbone.encoder, checkpoint.model, checkpoint.tensors, checkpoint.source)
        else:
            checkpoint.fill(backbone, self, FREE)

    def _with_encoder(self, encoder: BertConfig) -> Self:
        settings: Any = self
        return replace(settings, encoder=encoder)


def load_encoder(encoder: Bert, model: Any, tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Load the tensors of a saved text model into a Bert, which keeps its own pooling layers if its `pooling` differs."""
    backbone = {name.removeprefix(BACKBONE): tensor for name, tensor in tensors.items() if name.startswith(BACKBONE)}
    saved = ENCODERS[type(model)].tensors(backbone, model)
    parameters = dict(encoder.named_parameters())
    if encoder.config.pooling != model.pooling:
        saved = {name: tensor for name, tensor in saved.items() if not name.startswith(POOL)}
        saved |= {name: tensor for name, tensor in parameters.items() if name.startswith(POOL)}
    load_strictly(parameters, saved, where)


def _tree_mlm_config(model: TreeMLMConfig) -> BertConfig:
    return BertConfig(
        vocab_size=model.vocab_size,
        dim=model.dim,
        num_layers=model.encoder_layers,
        num_heads=model.num_heads,
        ffn_dim=model.ffn_dim,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        activation=model.activation,
        norm=model.norm,
        max_tokens=model.max_tokens,
        position=model.position,
        type_vocab_size=NUM_TYPES,
        pooling=model.pooling,
        scale_embedding=model.scale_embedding,
        embedding_norm=model.embedding_norm,
        eps=model.eps,
    )


def _tree_mlm_tensors(tensors: Mapping[str, Tensor], model: TreeMLMConfig) -> dict[str, Tensor]:
    """The tensors of a TreeMLM's encoder under a Bert's names, with zeros for the token types, which a TreeMLM lacks."""
    renamed = {name: tensor for name, tensor in tensors.items() if name.startswith(POOL)}
    for theirs, ours in (("encoder.", "stack."), ("encoder_embeddings.", "embeddings.")):
        renamed |= {ours + name.removeprefix(theirs): tensor for name, tensor in tensors.items() if name.startswith(theirs)}
    renamed["embedding.weight"] = renamed.pop("embeddings.tokens.weight", tensors["embedding.weight"])
    return renamed | {"embeddings.types.weight": torch.zeros(NUM_TYPES, model.dim)}


@dataclass(frozen=True)
class AsBert:
    """Conversion of a text model to the Bert that computes the same vector for a text."""

    config: Callable[[Any], BertConfig]
    tensors: Callable[[Mapping[str, Tensor], Any], dict[str, Tensor]]
    """From the tensors of the backbone and the config of the model to the Bert's tensors."""


ENCODERS = {
    BertConfig: AsBert(lambda model: model, lambda tensors, model: dict(tensors)),
    TreeMLMConfig: AsBert(_tree_mlm_config, _tree_mlm_tensors),
}
"""Conversions of the text models from which the encoder of a link model may start."""

"""Text models as the Bert inside a link model: a BERT-family checkpoint, or the encoder of a masked language model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ramify.disentangle.models.base import FREE, LinkModelConfig
from ramify.models import hf
from ramify.models.base import BERT_FAMILY, RATES, Checkpoint
from ramify.models.bert import Bert, BertConfig, load_pretrained
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.tensors import load_strictly

MaskedLMModel = BertConfig | TreeMLMConfig

NUM_TYPES = 2
"""Rows of a Bert's table of token types, which a TreeMLM does not have."""

POOL = "pool."


class EncoderModelConfig(LinkModelConfig):
    """The settings of a model around a Bert, which starts from a model of its own kind or from a text model."""

    encoder: BertConfig
    pools_texts: ClassVar[bool]
    """Whether the encoder reads single texts, so that it pools them as the text model did. If not, its own pooling stays."""

    # Configs are frozen, so a property in place of the field is never set.
    @property
    def vocab_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.encoder.vocab_size

    def for_vocabulary(self, size: int) -> Self:
        return self._with_encoder(self.encoder.for_vocabulary(size))

    def adapted_to(self, checkpoint: Checkpoint) -> Self:
        if checkpoint.model is None:
            return self._with_encoder(self.encoder.adapted_to(checkpoint))
        if not isinstance(checkpoint.model, MaskedLMModel):
            return checkpoint.saved_as(self, f"a masked language model that Ramify saved, or from {BERT_FAMILY}")
        theirs = build_encoder_config(checkpoint.model)
        rates = {name: getattr(self.encoder, name) for name in RATES}
        pooling = theirs.pooling if self.pools_texts else self.encoder.pooling
        return self._with_encoder(replace(theirs, **rates, pooling=pooling))

    def initialize(self, backbone: Any, checkpoint: Checkpoint) -> None:
        if checkpoint.model is None:
            load_pretrained(backbone.encoder, checkpoint.directory)
        elif isinstance(checkpoint.model, MaskedLMModel):
            own = {name: getattr(self.encoder, name) for name in (*RATES, "pooling")}
            hf.require(self.encoder, vars(build_encoder_config(checkpoint.model)) | own, checkpoint.source, "model.encoder")
            load_encoder(backbone.encoder, checkpoint.model, checkpoint.tensors, checkpoint.source)
        else:
            checkpoint.fill(backbone, self, FREE)

    def _with_encoder(self, encoder: BertConfig) -> Self:
        settings: Any = self
        return replace(settings, encoder=encoder)


def build_encoder_config(model: MaskedLMModel) -> BertConfig:
    """The Bert that computes the same vector of a text as this model does (a TreeMLM: as its encoder does)."""
    if isinstance(model, BertConfig):
        return model
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


def load_encoder(encoder: Bert, model: MaskedLMModel, tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Fill that Bert from a saved model's tensors. Pooling layers that the model does not have stay as they are."""
    saved = {name.removeprefix("backbone."): each for name, each in tensors.items() if name.startswith("backbone.")}
    if isinstance(model, TreeMLMConfig):
        saved = _rename_tree_mlm(saved, model)
    own = dict(encoder.named_parameters())
    if encoder.config.pooling != model.pooling:
        saved = {name: each for name, each in saved.items() if not name.startswith(POOL)}
        saved |= {name: each for name, each in own.items() if name.startswith(POOL)}
    load_strictly(own, saved, where)


def _rename_tree_mlm(tensors: Mapping[str, Tensor], model: TreeMLMConfig) -> dict[str, Tensor]:
    """The tensors under a Bert's names, with zeros for token types, which the model does not have."""
    own = {name: each for name, each in tensors.items() if name.startswith(POOL)}
    for theirs, ours in (("encoder.", "stack."), ("encoder_embeddings.", "embeddings.")):
        own |= {ours + name.removeprefix(theirs): each for name, each in tensors.items() if name.startswith(theirs)}
    own["embedding.weight"] = own.pop("embeddings.tokens.weight", tensors["embedding.weight"])
    return own | {"embeddings.types.weight": torch.zeros(NUM_TYPES, model.dim)}

"""The text encoder of a masked language model of Ramify, as the Bert that encodes messages for other models."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.tensors import load_strictly

MaskedLMModel = BertConfig | TreeMLMConfig

NUM_TYPES = 2
"""Rows of a Bert's table of token types, which a TreeMLM does not have."""

POOL = "pool."


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

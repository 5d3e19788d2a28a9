"""What a masked language model of Ramify's reads texts with, as the Bert that reads the messages of other models."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.tensors import load_strictly

MaskedLMModel = BertConfig | TreeMLMConfig

KINDS_OF_TEXT = 2
"""Rows of a Bert's table of segments, which a TreeMLM has not."""

POOL = "pool."


def encoder_config(model: MaskedLMModel) -> BertConfig:
    """The Bert that makes of a text the vector which this model makes of it: of a TreeMLM, the one that its readers get."""
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
        type_vocab_size=KINDS_OF_TEXT,
        pooling=model.pooling,
        scale_embedding=model.scale_embedding,
        embedding_norm=model.embedding_norm,
        eps=model.eps,
    )


def load_encoder(encoder: Bert, model: MaskedLMModel, tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Fill that Bert from a saved model's tensors; layers of a pooling that the model has not stay as they are."""
    saved = {name.removeprefix("backbone."): each for name, each in tensors.items() if name.startswith("backbone.")}
    if isinstance(model, TreeMLMConfig):
        saved = _from_tree_mlm(saved, model)
    own = dict(encoder.named_parameters())
    if encoder.config.pooling != model.pooling:
        saved = {name: each for name, each in saved.items() if not name.startswith(POOL)}
        saved |= {name: each for name, each in own.items() if name.startswith(POOL)}
    load_strictly(own, saved, where)


def _from_tree_mlm(tensors: Mapping[str, Tensor], model: TreeMLMConfig) -> dict[str, Tensor]:
    """Under a Bert's names. Segments say nothing, for the model knows none."""
    own = {name: each for name, each in tensors.items() if name.startswith(POOL)}
    for theirs, ours in (("encoder.", "stack."), ("encoder_embeddings.", "embeddings.")):
        own |= {ours + name.removeprefix(theirs): each for name, each in tensors.items() if name.startswith(theirs)}
    own["embedding.weight"] = own.pop("embeddings.tokens.weight", tensors["embedding.weight"])
    return own | {"embeddings.types.weight": torch.zeros(KINDS_OF_TEXT, model.dim)}

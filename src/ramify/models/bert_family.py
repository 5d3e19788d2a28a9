"""Checkpoints of the BERT family, read under BERT's names of settings and tensors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramify.errors import RamifyError
from ramify.models import hf
from ramify.models.hf_heads import Forms, HeadForm, LabelHead, form_of, head_kind, read_head
from ramify.tokenizer import ROLES, Layout

LAYER_KEYS = {
    "attention.query": "attention.self.query",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "ffn_in": "intermediate.dense",
    "ffn_out": "output.dense",
    "ffn_norm": "output.LayerNorm",
}
"""From Ramify's names of a layer's parts to BERT's. BERT has one matrix each for keys and values, Ramify one for both."""

EMBEDDING_KEYS = {
    "tokens.weight": "word_embeddings.weight",
    "positions.weight": "position_embeddings.weight",
    "types.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}

HEAD_KEYS = {
    "dense.weight": "cls.predictions.transform.dense.weight",
    "dense.bias": "cls.predictions.transform.dense.bias",
    "norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "bias": "cls.predictions.bias",
}

POOLER_KEYS = {"hidden.weight": "pooler.dense.weight", "hidden.bias": "pooler.dense.bias"}

OUTPUT_WEIGHT, OUTPUT_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
"""The linear map of the head. Its weight may be the token embedding, and its bias stands under either name, or both."""

OUTSIDE = ("cls.", "classifier.", "pre_classifier.", "qa_outputs.")
"""The beginnings of names of tensors outside the encoder."""

POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
"""The required settings of a BERT's config.json."""

ENCODER = "Model"
"""The end of the names of classes that have no head."""

Keys = tuple[tuple[str, str], ...]


def _heads(rows: HeadForm, choices: HeadForm | None = None) -> Forms:
    """The heads on labelled texts, of which those on rows differ from architecture to architecture."""
    return {
        "rows": rows,
        "tokens": HeadForm("ForTokenClassification", "classifier"),
        "answers": HeadForm("ForQuestionAnswering", "qa_outputs"),
        "choices": replace(rows if choices is None else choices, ending="ForMultipleChoice"),
    }


POOLED = HeadForm("ForSequenceClassification", "classifier", ("pooler", "vector"), "pooler.dense")
"""BERT's head on rows: an output of its pooler."""


@dataclass(frozen=True)
class Family:
    """The spelling of an architecture where it differs from BERT's: parts of names of tensors, and names of settings."""

    name: str
    classes: str
    """The beginning of the names of its classes."""
    layout: Layout = "bert"
    keys: Keys = ()
    """From parts of BERT's names of tensors to its own, replaced one after the other."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """From BERT's names of settings to its own."""
    needed: Mapping[str, Any] = field(default_factory=dict)
    """The only supported values of some settings."""
    heads: Forms = field(default_factory=lambda: _heads(POOLED))
    """Its heads on labelled texts, under BERT's names."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """BERT's settings that the architecture does not have, and the values that it computes with."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of settings that a config may leave out, where they differ from BERT's."""

    def spell(self, name: str) -> str:
        """From BERT's name of a tensor to its own."""
        for part, replacement in self.keys:
            name = name.replace(part, replacement)
        return name


FAMILIES = {
    "bert": Family("BERT", "Bert"),
    "roberta": Family(
        "RoBERTa",
        "Roberta",
        "roberta",
        (
            ("cls.predictions.transform.dense.", "lm_head.dense."),
            ("cls.predictions.transform.LayerNorm.", "lm_head.layer_norm."),
            ("cls.predictions.", "lm_head."),
        ),
        # The head has this activation, whatever that of the layers.
        needed={"hidden_act": "gelu"},
        heads=_heads(replace(POOLED, output="classifier.out_proj", hidden="classifier.dense"), POOLED),
        defaults={"pad_token_id": 1},
    ),
    "distilbert": Family(
        "DistilBERT",
        "DistilBert",
        keys=(
            ("encoder.layer.", "transformer.layer."),
            (".attention.self.query.", ".attention.q_lin."),
            (".attention.self.key.", ".attention.k_lin."),
            (".attention.self.value.", ".attention.v_lin."),
            (".attention.output.dense.", ".attention.out_lin."),
            (".attention.output.LayerNorm.", ".sa_layer_norm."),
            (".intermediate.dense.", ".ffn.lin1."),
            (".output.dense.", ".ffn.lin2."),
            (".output.LayerNorm.", ".output_layer_norm."),
            ("cls.predictions.transform.dense.", "vocab_transform."),
            ("cls.predictions.transform.LayerNorm.", "vocab_layer_norm."),
            ("cls.predictions.decoder.", "vocab_projector."),
            ("cls.predictions.", "vocab_projector."),
        ),
        settings={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "hidden_act": "activation",
        },
        heads=_heads(replace(POOLED, reads=("rectifier",), hidden="pre_classifier")),
        fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    ),
    "albert": Family(
        "ALBERT",
        "Albert",
        keys=(
            ("embeddings.projection.", "encoder.embedding_hidden_mapping_in."),
            ("encoder.layer.0.", "encoder.albert_layer_groups.0.albert_layers.0."),
            (".attention.self.", ".attention."),
            (".attention.output.", ".attention."),
            (".intermediate.dense.", ".ffn."),
            (".output.dense.", ".ffn_output."),
            (".output.LayerNorm.", ".full_layer_layer_norm."),
            ("pooler.dense.", "pooler."),
            ("cls.predictions.transform.", "predictions."),
            ("cls.predictions.", "predictions."),
            ("cls.seq_relationship.", "sop_classifier.classifier."),
        ),
        needed={"num_hidden_groups": 1, "inner_group_num": 1},
        defaults={
            "embedding_size": 128,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
    ),
}
"""The architectures that are BERT's encoder under other names. ALBERT also shares its layers and factorizes its embeddings."""

ENCODERS = tuple(FAMILIES)
UNSHARED = tuple(name for name in FAMILIES if name != "albert")
"""The architectures whose layers have weights of their own."""

NEEDED = {
    "position_embedding_type": ("absolute", "adds positions inside attention"),
    "is_decoder": (False, "lets a token read only those before it, but Ramify's encoder reads both sides"),
    "add_cross_attention": (False, "adds layers that read another model's states, which Ramify's encoder does not have"),
}
"""The only supported values of settings that all families share, and the effect of any other."""

OLD = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
"""Spellings in the first published checkpoints."""

IGNORED = r"embeddings\.position_ids|cls\.seq_relationship\.(weight|bias)|sop_classifier\.classifier\.(weight|bias)"
"""Names of tensors that no model here reads."""


def read_config(directory: Path, kinds: Sequence[str] = UNSHARED) -> dict[str, Any]:
    """Read config.json of a BERT-family checkpoint, under BERT's names of settings. Raises `RamifyError` if its architecture is
    not one of `kinds`, or has a setting that Ramify lacks."""
    path = directory / hf.CONFIG
    config = hf.read_config(directory)
    kind = str(config.get("model_type"))
    if kind not in kinds:
        raise RamifyError(
            f"{path}: model_type={kind!r} is not supported here; only {', '.join(kinds)} are. Choose another checkpoint."
        )
    family = FAMILIES[kind]
    config = {**family.defaults, **config}
    for name, theirs in family.settings.items():
        if theirs in config:
            config[name] = config[theirs]
    if missing := [family.settings.get(name, name) for name in SIZES if type(config.get(name)) is not int]:
        raise RamifyError(
            f"{path}: {', '.join(missing)} must be whole numbers, so the checkpoint is not complete. Download it again."
        )
    hf.check_settings(path, config, NEEDED | {name: (value, "") for name, value in family.needed.items()}, family.name)
    if kind == "roberta":
        # The first positions are unused: see `_without_offset`.
        config["max_position_embeddings"] -= _first_position(config)
        if config.get("type_vocab_size", 2) == 1:
            config["type_vocab_size"] = 0
    elif kind == "distilbert":
        config["type_vocab_size"] = 0
    return config


def _first_position(config: Mapping[str, Any]) -> int:
    """The row of the position table that the first token reads: in RoBERTa's, the one after that of padding."""
    return int(config.get("pad_token_id") or 0) + 1 if config["model_type"] == "roberta" else 0


@dataclass(frozen=True)
class FamilyTensors:
    """The tensors of a checkpoint under BERT's names, without the prefix of the encoder."""

    tensors: dict[str, Tensor]
    source: Path
    layout: Layout
    """The layout of the rows that the architecture reads."""
    spell: Callable[[str], str]
    """From BERT's name of a tensor to the checkpoint's own."""
    label_head: LabelHead | None
    """The head on labelled texts, if it has one."""

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def require(self, names: Sequence[str], reason: str) -> None:
        """Raise `RamifyError` if tensors are missing. `reason` completes "holds no tensor …"."""
        if missing := [self.spell(name) for name in names if name not in self.tensors]:
            raise RamifyError(f"the checkpoint {self.source} holds no tensor {hf.listed(missing)}{reason}")

    def layer(self, number: int) -> dict[str, Tensor]:
        """The parameters of one layer, under Ramify's names."""
        there = f"encoder.layer.{number}"
        ours = {}
        for kind in ("weight", "bias"):
            for name, theirs in LAYER_KEYS.items():
                ours[f"{name}.{kind}"] = self[f"{there}.{theirs}.{kind}"]
            halves = [self[f"{there}.attention.self.{part}.{kind}"] for part in ("key", "value")]
            ours[f"attention.key_value.{kind}"] = torch.cat(halves)
        return ours

    def head(self) -> dict[str, Tensor]:
        """The masked-LM head, under Ramify's names; empty if the checkpoint has none. It has a `weight` only if that is not
        tied."""
        if HEAD_KEYS["bias"] not in self:
            return {}
        head = {name: self[theirs] for name, theirs in HEAD_KEYS.items()}
        if OUTPUT_WEIGHT in self and not torch.equal(self[OUTPUT_WEIGHT], self["embeddings.word_embeddings.weight"]):
            head["weight"] = self[OUTPUT_WEIGHT]
        return head


def read_tensors(directory: Path, stored: Mapping[str, Tensor] | None = None) -> FamilyTensors:
    """Read the tensors of a BERT-family checkpoint under BERT's names. `stored` are those of its files, if they are read.

    Raises `RamifyError` if the encoder or its head lacks tensors, or if there are tensors that neither has.
    """
    config = read_config(directory, ENCODERS)
    kind = config["model_type"]
    family, prefix = FAMILIES[kind], f"{kind}."
    stored = hf.read_tensors(directory) if stored is None else stored
    prefixed = any(key.startswith(prefix) for key in stored)

    def spell_in_full(name: str) -> str:
        return prefix * (prefixed and not name.startswith(OUTSIDE)) + family.spell(name)

    keys = {_modern(key).removeprefix(prefix): key for key in stored}
    encoder, head = _encoder_names(config), list(HEAD_KEYS.values())
    labelling = head_kind(config)
    where = f"{directory / hf.CONFIG}: {family.name}"
    labels = () if labelling is None else form_of(family.heads, labelling, where).names
    # DistilBERT spells both biases alike: the last one counts.
    known = (*encoder, *labels, *POOLER_KEYS.values(), OUTPUT_WEIGHT, OUTPUT_BIAS, *head)
    names = {family.spell(name): name for name in known}
    tensors = {name: stored[keys[spelling]] for spelling, name in names.items() if spelling in keys}
    if OUTPUT_BIAS in tensors:
        # If the two biases differ, that of the linear map counts.
        tensors[HEAD_KEYS["bias"]] = tensors.pop(OUTPUT_BIAS)
    # A part of a head is a damaged one.
    with_head = any(name in tensors for name in (*head, OUTPUT_WEIGHT))
    output = () if config.get("tie_word_embeddings", True) else (OUTPUT_WEIGHT,)
    needed = (*encoder, *labels, *((*head, *output) if with_head else ()))
    missing = [spell_in_full(name) for name in needed if name not in tensors]
    surplus = sorted(key for spelling, key in keys.items() if spelling not in names and re.fullmatch(IGNORED, spelling) is None)
    problems = []
    if missing:
        problems.append(
            f"holds no tensor {hf.listed(missing)}, so it is not a complete {family.name} encoder"
            + " with a masked-LM head" * with_head
            + f" with a head on {labelling}" * (labelling is not None)
        )
    if surplus:
        problems.append(f"holds tensors that {family.name} with a masked-LM head does not have: {hf.listed(surplus)}")
    again = "Download it again, or choose another one."
    if problems:
        raise RamifyError(f"the checkpoint {directory} {', and '.join(problems)}. {again}")
    rows = config["max_position_embeddings"] + _first_position(config)
    if len(tensors[POSITIONS]) != rows:
        raise RamifyError(
            f"the checkpoint {directory} holds {len(tensors[POSITIONS])} positions in {spell_in_full(POSITIONS)!r}, but its "
            f"config.json says max_position_embeddings={rows}, so the two do not belong together. {again}"
        )
    if kind == "roberta":
        _without_offset(config, tensors)
    label_head = read_head(config, directory / hf.CONFIG, family.heads, tensors.__getitem__)
    return FamilyTensors(tensors, directory, family.layout, spell_in_full, label_head)


def _modern(key: str) -> str:
    for old, new in OLD:
        key = key.replace(old, new)
    return key


def _encoder_names(config: Mapping[str, Any]) -> list[str]:
    """BERT's names of the tensors of an encoder."""
    both, kind = ("weight", "bias"), config["model_type"]
    names = [f"embeddings.{name}" for name in EMBEDDING_KEYS.values()]
    if kind == "distilbert":
        names.remove(TYPES)
    if kind == "albert":
        names += [f"embeddings.projection.{parameter}" for parameter in both]
    layers = 1 if kind == "albert" else config["num_hidden_layers"]
    parts = [*LAYER_KEYS.values(), "attention.self.key", "attention.self.value"]
    return names + [f"encoder.layer.{n}.{part}.{parameter}" for n in range(layers) for part in parts for parameter in both]


def _without_offset(config: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Give RoBERTa's embeddings BERT's form: position 0 is that of the first token, and a single token type, which every token
    has, is part of the positions."""
    tensors[POSITIONS] = tensors[POSITIONS][_first_position(config) :]
    if not config.get("type_vocab_size", 2):
        tensors[POSITIONS] = tensors[POSITIONS] + tensors.pop(TYPES)


def write(
    kind: str, architecture: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad_id: int | None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and the tensors of a checkpoint of the kind, from those under BERT's names.

    `architecture` is the end of its class's name. That of an encoder alone is Model, whose tensors have no prefix. Raises
    `RamifyError` without a padding token, from whose id RoBERTa counts positions.
    """
    family, config, tensors = FAMILIES[kind], {"model_type": kind, **config}, {**tensors}
    if kind == "roberta":
        if pad_id is None:
            raise RamifyError(
                f"the tokenizer has no pad token ({' or '.join(ROLES['pad'])}), from whose id RoBERTa counts positions. Use a "
                "tokenizer that has one, such as those that `ramify tokenizer train` makes."
            )
        positions = tensors[POSITIONS]
        unused = positions.new_zeros(_first_position(config | {"pad_token_id": pad_id}), positions.shape[1])
        tensors[POSITIONS] = torch.cat([unused, positions])
        config["max_position_embeddings"] = len(tensors[POSITIONS])
        if not config["type_vocab_size"]:
            config["type_vocab_size"], tensors[TYPES] = 1, positions.new_zeros(1, positions.shape[1])
    elif kind == "albert":
        config |= family.needed
    settings = {family.settings.get(name, name): value for name, value in config.items() if name not in family.fixed}
    prefix = "" if architecture == ENCODER else f"{kind}."
    spelled = {prefix * (not name.startswith(OUTSIDE)) + family.spell(name): tensor for name, tensor in tensors.items()}
    return {"architectures": [family.classes + architecture], **settings}, spelled


def layer_to_bert(ours: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    there = f"encoder.layer.{number}"
    theirs = {}
    for kind in ("weight", "bias"):
        for name, other in LAYER_KEYS.items():
            theirs[f"{there}.{other}.{kind}"] = ours[f"{name}.{kind}"]
        for part, half in zip(("key", "value"), ours[f"attention.key_value.{kind}"].chunk(2), strict=True):
            theirs[f"{there}.attention.self.{part}.{kind}"] = half.contiguous()
    return theirs


def first_positions(table: Tensor, max_tokens: int) -> Tensor:
    """The first rows of a checkpoint's position table, for a model with a lower `max_tokens`. Raises if it has too few."""
    if len(table) < max_tokens:
        raise RamifyError(
            f"max_tokens={max_tokens} is above the {len(table)} tokens that the checkpoint reads at most. Lower max_tokens."
        )
    return table[:max_tokens]

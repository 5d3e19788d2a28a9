"""Strict reading of Hugging Face checkpoints, and the parameter names of the BERT family."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramify import sample
from ramify.errors import RamifyError
from ramify.files import STANDARD, make_folder, read_json, write_text
from ramify.nn.blocks import Activation
from ramify.tensors import load_tensors, save_tensors
from ramify.tokenizer import Layout

A_CHECKPOINT = "a checkpoint"
"""The noun for checkpoints in messages."""

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

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu"}

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
"""The required settings of a BERT's config.json."""


@dataclass(frozen=True)
class Family:
    """The spelling of an architecture where it differs from BERT's: parts of keys, and names of settings."""

    name: str
    keys: tuple[tuple[str, str], ...] = ()
    """(regular expression, replacement) from the names of its tensors to BERT's, one after the other."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """From BERT's names of settings to its own."""
    layout: Layout = "bert"
    """The special tokens around one or two texts."""


FAMILIES = {
    "bert": Family("BERT", ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))),
    "roberta": Family(
        "RoBERTa",
        (
            (r"^lm_head\.dense\.", "cls.predictions.transform.dense."),
            (r"^lm_head\.layer_norm\.", "cls.predictions.transform.LayerNorm."),
            (r"^lm_head\.", "cls.predictions."),
        ),
        layout="roberta",
    ),
    "distilbert": Family(
        "DistilBERT",
        (
            (r"^transformer\.", "encoder."),
            (r"\.attention\.q_lin\.", ".attention.self.query."),
            (r"\.attention\.k_lin\.", ".attention.self.key."),
            (r"\.attention\.v_lin\.", ".attention.self.value."),
            (r"\.attention\.out_lin\.", ".attention.output.dense."),
            (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
            (r"\.ffn\.lin1\.", ".intermediate.dense."),
            (r"\.ffn\.lin2\.", ".output.dense."),
            (r"\.output_layer_norm\.", ".output.LayerNorm."),
            (r"^vocab_transform\.", "cls.predictions.transform.dense."),
            (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
            (r"^vocab_projector\.", "cls.predictions.decoder."),
        ),
        {
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "hidden_act": "activation",
        },
    ),
    "albert": Family(
        "ALBERT",
        (
            (r"^encoder\.embedding_hidden_mapping_in\.", "embeddings.projection."),
            (r"^encoder\.albert_layer_groups\.0\.albert_layers\.0\.", "encoder.layer.0."),
            (r"\.attention\.(query|key|value)\.", r".attention.self.\1."),
            (r"\.attention\.dense\.", ".attention.output.dense."),
            (r"\.attention\.LayerNorm\.", ".attention.output.LayerNorm."),
            (r"\.ffn\.", ".intermediate.dense."),
            (r"\.ffn_output\.", ".output.dense."),
            (r"\.full_layer_layer_norm\.", ".output.LayerNorm."),
            (r"^pooler\.(weight|bias)$", r"pooler.dense.\1"),
            (r"^predictions\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
            (r"^predictions\.", "cls.predictions."),
        ),
    ),
}
"""The architectures that are BERT's encoder under other names. ALBERT also shares its layers and factorizes its embeddings."""

ENCODERS = tuple(FAMILIES)
UNSHARED = tuple(name for name in FAMILIES if name != "albert")
"""The architectures whose layers have weights of their own."""

IGNORED = r"embeddings\.position_ids|cls\.seq_relationship\.(weight|bias)|sop_classifier\.classifier\.(weight|bias)"
"""Names of tensors that no model here reads."""

LISTED = 8
"""Number of names in a message."""


def locate(source: str | Path) -> Path:
    """Return the directory of a checkpoint: `source` itself, a model that ships with Ramify (`sample.MODELS`), or the
    downloaded snapshot of a hub id.

    `owner/name@revision` selects a branch, tag or commit. A folder with the name of a shipped model precedes it.
    """
    if Path(source) == STANDARD:
        raise RamifyError("- is standard input, which cannot be read here. Name a directory, or a hub id.")
    if Path(source).is_dir():
        return Path(source)
    if str(source) in sample.MODELS:
        return sample.MODELS[str(source)]
    if Path(source).exists():
        raise RamifyError(
            f"{source} is a file, not a checkpoint. Name the directory that holds config.json and model.safetensors."
        )
    text, _, revision = str(source).partition("@")
    if text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise RamifyError(
            f"{source} does not exist: it is neither a directory here, nor a hub id of the form owner/name, nor one of the "
            f"models that ship with Ramify ({sample.names()}). Check its spelling."
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        patterns = ["*.json", "*.safetensors", "*.txt", "*.md", "1_Pooling/*"]
        return Path(snapshot_download(text, revision=revision or None, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RamifyError(
            f"{source}: there is no such folder here, and it could not be fetched from the hub ({reason}). "
            "Check its spelling and the network, or name the path of a downloaded copy."
        ) from None


def read_config(directory: Path, kinds: Sequence[str] = UNSHARED) -> dict[str, Any]:
    """Read config.json of a BERT-family checkpoint, under BERT's names of settings. Raises `RamifyError` if its architecture is
    not one of `kinds`."""
    path = directory / "config.json"
    config = read_json(path, A_CHECKPOINT)
    kind = str(config.get("model_type"))
    if kind not in kinds:
        raise RamifyError(
            f"{path}: model_type={kind!r} is not supported here; only {', '.join(kinds)} are. Choose another checkpoint."
        )
    family = FAMILIES[kind]
    for name, theirs in family.settings.items():
        if theirs in config:
            config[name] = config[theirs]
    if missing := [family.settings.get(name, name) for name in SIZES if type(config.get(name)) is not int]:
        raise RamifyError(
            f"{path}: {', '.join(missing)} must be whole numbers, so the checkpoint is not complete. Download it again."
        )
    supported: dict[str, Any] = {"position_embedding_type": "absolute"}
    if kind == "roberta":
        # Its head has this activation, whatever that of its layers.
        supported["hidden_act"] = "gelu"
        # The first positions are unused: see `_without_offset`.
        config["max_position_embeddings"] -= _first_position(config)
        if config.get("type_vocab_size", 2) == 1:
            config["type_vocab_size"] = 0
    elif kind == "distilbert":
        config["type_vocab_size"] = 0
    elif kind == "albert":
        supported |= {"num_hidden_groups": 1, "inner_group_num": 1}
        config["embedding_size"] = config.get("embedding_size", 128)
    for name, value in supported.items():
        if config.get(name, value) != value:
            raise RamifyError(
                f"{path}: {name}={config[name]!r} is not supported for {family.name}; only {value!r} is. Choose another "
                "checkpoint."
            )
    return config


def _first_position(config: Mapping[str, Any]) -> int:
    """The row of RoBERTa's position table that the first token reads, after that of padding."""
    return int(config.get("pad_token_id") or 0) + 1


def require(config: Any, required: Mapping[str, Any], source: str | Path, part: str = "model") -> None:
    """Raise `RamifyError` if a config differs from the values that a checkpoint needs."""
    other = [
        f"{part}.{name} = {value!r} (not {getattr(config, name)!r})"
        for name, value in required.items()
        if getattr(config, name) != value
    ]
    if other:
        raise RamifyError(f"{source} needs {', '.join(other)}. Set these values, or start without this checkpoint.")


def first_positions(table: Tensor, max_tokens: int) -> Tensor:
    """The first rows of a checkpoint's position table, for a model with a lower `max_tokens`. Raises if it has too few."""
    if len(table) < max_tokens:
        raise RamifyError(
            f"max_tokens={max_tokens} is above the {len(table)} tokens that the checkpoint reads at most. Lower max_tokens."
        )
    return table[:max_tokens]


def activation(config: Mapping[str, Any]) -> Activation:
    """Ramify's name of a checkpoint's activation."""
    name = config.get("hidden_act", "gelu")
    if name not in ACTIVATIONS:
        raise RamifyError(
            f"config.json: hidden_act={name!r} is not one of {', '.join(ACTIVATIONS)}. Choose another checkpoint."
        )
    return ACTIVATIONS[name]


def content_hash(source: str | Path) -> str:
    """SHA-256 of a checkpoint's weights, as `read_tensors` reads them."""
    digest = hashlib.sha256()
    for file in _weights(locate(source)):
        with open(file, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _weights(directory: Path) -> list[Path]:
    """The paths of model.safetensors, or of its shards. Raises `RamifyError` if one does not exist."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        names = read_json(index, A_CHECKPOINT).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise RamifyError(f'{index} is damaged: it holds no "weight_map" from tensors to files. Download it again.')
        files = sorted({directory / name for name in names.values()})
    else:
        files = [directory / "model.safetensors"]
    for file in files:
        if not file.exists():
            hint = (
                "Pickled weights are never read. Convert them to safetensors."
                if any(directory.glob("*.bin"))
                else "Download the checkpoint again."
            )
            raise RamifyError(f"{directory} holds no {file.name}. {hint}")
    return files


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Read all tensors of model.safetensors, or of its shards. Pickled weights are never read."""
    tensors: dict[str, Tensor] = {}
    for file in _weights(directory):
        tensors |= load_tensors(file)
    return tensors


class Tensors(dict[str, Tensor]):
    """The tensors of a checkpoint. A missing tensor raises `RamifyError`, because the file is incomplete."""

    def __missing__(self, name: str) -> Tensor:
        raise RamifyError(f"the checkpoint holds no tensor {name!r}, so it is not a complete BERT encoder. Download it again.")


def layout_of(directory: Path) -> Layout:
    """The layout of the rows that a BERT-family checkpoint reads."""
    return FAMILIES[read_config(directory, ENCODERS)["model_type"]].layout


def bert_tensors(directory: Path) -> Tensors:
    """Read the tensors of a BERT-family checkpoint under BERT's current names, without the prefix of the encoder.

    Raises `RamifyError` if the encoder lacks tensors, or if there are tensors that neither it nor its heads have.
    """
    config = read_config(directory, ENCODERS)
    kind = config["model_type"]
    tensors, names = Tensors(), {}
    for key, value in read_tensors(directory).items():
        name = key.removeprefix(f"{kind}.")
        for pattern, replacement in FAMILIES[kind].keys:
            name = re.sub(pattern, replacement, name)
        if re.fullmatch(IGNORED, name) is None:
            tensors[name], names[name] = value, key
    decoder = "cls.predictions.decoder.bias"
    if kind == "distilbert" and decoder in tensors:
        tensors["cls.predictions.bias"] = tensors[decoder]
    _check_names(directory, config, tensors, names)
    if kind == "roberta":
        _without_offset(config, tensors)
    return tensors


def _check_names(directory: Path, config: Mapping[str, Any], tensors: Tensors, names: Mapping[str, str]) -> None:
    """Raise unless the encoder is complete and every other tensor belongs to a known head. `names` are the names in the
    file."""
    kind = config["model_type"]
    expected = {f"embeddings.{name}" for name in EMBEDDING_KEYS.values()}
    if kind == "distilbert":
        expected.remove("embeddings.token_type_embeddings.weight")
    both = ("weight", "bias")
    optional = {f"pooler.dense.{each}" for each in both} | {f"cls.predictions.decoder.{each}" for each in both}
    optional |= set(HEAD_KEYS.values())
    if kind == "albert":
        expected |= {f"embeddings.projection.{each}" for each in both}
    layers = 1 if kind == "albert" else config["num_hidden_layers"]
    parts = [*LAYER_KEYS.values(), "attention.self.key", "attention.self.value"]
    expected |= {f"encoder.layer.{n}.{part}.{each}" for n in range(layers) for part in parts for each in both}
    family = FAMILIES[kind].name
    problems = []
    if missing := sorted(expected - tensors.keys()):
        problems.append(f"holds no tensor {_listed(missing)}, so it is not a complete {family} encoder")
    if surplus := sorted(names[name] for name in tensors.keys() & names.keys() - expected - optional):
        problems.append(f"holds tensors that {family} with a masked-LM head does not have: {_listed(surplus)}")
    if problems:
        raise RamifyError(f"the checkpoint {directory} {', and '.join(problems)}. Download it again, or choose another one.")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(map(repr, names[:LISTED])) + more


def _without_offset(config: Mapping[str, Any], tensors: Tensors) -> None:
    """Give RoBERTa's embeddings BERT's form: position 0 is that of the first token, and a single token type, which every token
    has, is part of the positions."""
    name = "embeddings.position_embeddings.weight"
    tensors[name] = tensors[name][_first_position(config) :]
    if not config.get("type_vocab_size", 2):
        tensors[name] = tensors[name] + tensors.pop("embeddings.token_type_embeddings.weight")


def layer_from_bert(tensors: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """The parameters of one layer, under Ramify's names."""
    there = f"encoder.layer.{number}"
    ours = {}
    for kind in ("weight", "bias"):
        for name, theirs in LAYER_KEYS.items():
            ours[f"{name}.{kind}"] = tensors[f"{there}.{theirs}.{kind}"]
        halves = [tensors[f"{there}.attention.self.{part}.{kind}"] for part in ("key", "value")]
        ours[f"attention.key_value.{kind}"] = torch.cat(halves)
    return ours


def layer_to_bert(ours: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    there = f"encoder.layer.{number}"
    theirs = {}
    for kind in ("weight", "bias"):
        for name, other in LAYER_KEYS.items():
            theirs[f"{there}.{other}.{kind}"] = ours[f"{name}.{kind}"]
        for part, half in zip(("key", "value"), ours[f"attention.key_value.{kind}"].chunk(2), strict=True):
            theirs[f"{there}.attention.self.{part}.{kind}"] = half.contiguous()
    return theirs


def write(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write config.json and model.safetensors, as Hugging Face's loaders expect them."""
    make_folder(directory)
    save_tensors(directory / "model.safetensors", tensors)
    write_text(directory / "config.json", json.dumps(dict(config), indent=2) + "\n")

"""Strict reading of Hugging Face checkpoints, and the parameter names of the BERT family."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramify import sample
from ramify.errors import RamifyError
from ramify.files import STANDARD, make_folder, read_json, write_text
from ramify.nn.blocks import Activation
from ramify.tensors import load_tensors, save_tensors

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

MODEL_TYPES = {"bert"}
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
"""The required settings of a BERT's config.json."""


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


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json of a BERT-family checkpoint. Raises `RamifyError` for any other architecture."""
    path = directory / "config.json"
    config = read_json(path, A_CHECKPOINT)
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise RamifyError(
            f"{path}: model_type={kind!r} is not supported; only {', '.join(sorted(MODEL_TYPES))} is. Choose another "
            "checkpoint."
        )
    if missing := [name for name in SIZES if type(config.get(name)) is not int]:
        raise RamifyError(
            f"{path}: {', '.join(missing)} must be whole numbers, so the checkpoint is not complete. Download it again."
        )
    return config


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


def bert_tensors(directory: Path) -> Tensors:
    """Read the tensors of a BERT checkpoint, without their `bert.` prefix and with the current names of LayerNorms."""
    mended = Tensors()
    for key, value in read_tensors(directory).items():
        key = key.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
        mended[key.replace("LayerNorm.beta", "LayerNorm.bias")] = value
    mended.pop("embeddings.position_ids", None)
    return mended


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

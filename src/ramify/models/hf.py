"""Hugging Face checkpoints: strict reading, and the key table of the BERT family (shared by several systems)."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramify.errors import RamifyError
from ramify.files import make_folder, read_json, write_text
from ramify.nn.blocks import Activation
from ramify.tensors import load_tensors, save_tensors

A_CHECKPOINT = "a checkpoint"
"""The noun for messages about a folder without these files."""

LAYER_KEYS = {
    "attention.query": "attention.self.query",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "ffn_in": "intermediate.dense",
    "ffn_out": "output.dense",
    "ffn_norm": "output.LayerNorm",
}
"""Our names of a layer's parts, and BERT's. Keys and values are two matrices there and one here."""

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
"""The settings in every BERT's config.json."""


def locate(source: str | Path) -> Path:
    """A directory as it is, or a hub id, perhaps with a branch, tag or commit (`owner/name@revision`), as the directory of its
    downloaded snapshot."""
    if Path(source).is_dir():
        return Path(source)
    if Path(source).exists():
        raise RamifyError(f"{source} is a file; expected the directory of a checkpoint (config.json, model.safetensors).")
    text, _, revision = str(source).partition("@")
    if text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise RamifyError(f"{source} does not exist (neither a directory here nor a hub id of the form owner/name).")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        patterns = ["*.json", "*.safetensors", "*.txt", "*.md", "1_Pooling/*"]
        return Path(snapshot_download(text, revision=revision or None, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RamifyError(
            f"{source}: there is no such folder here, and it could not be fetched from the hub ({reason}). "
            "Check its spelling, give the path of a downloaded copy, or check the network."
        ) from None


def read_config(directory: Path) -> dict[str, Any]:
    """config.json of a BERT-family checkpoint; refuses other architectures by name."""
    path = directory / "config.json"
    config = read_json(path, A_CHECKPOINT)
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise RamifyError(
            f"{directory}: its config.json says model_type {kind!r}; "
            f"only {', '.join(sorted(MODEL_TYPES))} checkpoints can be read here."
        )
    if missing := [name for name in SIZES if type(config.get(name)) is not int]:
        raise RamifyError(f"{path} does not say {', '.join(missing)} as whole numbers: it is no complete checkpoint.")
    return config


def require(config: Any, required: Mapping[str, Any], source: str | Path, part: str = "model") -> None:
    """Raise where a config has other values than a checkpoint needs."""
    other = [
        f"{part}.{name} = {value!r} (not {getattr(config, name)!r})"
        for name, value in required.items()
        if getattr(config, name) != value
    ]
    if other:
        raise RamifyError(f"{source} needs {', '.join(other)}. Set it so, or start without this checkpoint.")


def first_positions(table: Tensor, max_tokens: int) -> Tensor:
    """The rows of a checkpoint's position table that a model needs, which may read shorter texts."""
    if len(table) < max_tokens:
        raise RamifyError(
            f"the checkpoint reads at most {len(table)} tokens, but the model is to read {max_tokens}: lower its max_tokens."
        )
    return table[:max_tokens]


def activation(config: Mapping[str, Any]) -> Activation:
    """Our name of a checkpoint's activation."""
    name = config.get("hidden_act", "gelu")
    if name not in ACTIVATIONS:
        raise RamifyError(f"config.json: hidden_act {name!r} is not one of {', '.join(ACTIVATIONS)}.")
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
    """model.safetensors, or its shards."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        names = read_json(index, A_CHECKPOINT).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise RamifyError(f'{index} is damaged: it holds no "weight_map" of tensors to files. Download it again.')
        files = sorted({directory / name for name in names.values()})
    else:
        files = [directory / "model.safetensors"]
    for file in files:
        if not file.exists():
            hint = "; pickled weights are never read: convert them to safetensors" if any(directory.glob("*.bin")) else ""
            raise RamifyError(f"{directory} holds no {file.name}{hint}.")
    return files


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors of model.safetensors (or of its shards). Pickled weights are refused."""
    tensors: dict[str, Tensor] = {}
    for file in _weights(directory):
        tensors |= load_tensors(file)
    return tensors


class Tensors(dict[str, Tensor]):
    """A checkpoint's tensors; asking for one that it lacks is the user's matter."""

    def __missing__(self, name: str) -> Tensor:
        raise RamifyError(f"the checkpoint holds no tensor {name!r}: it is not a complete BERT encoder.")


def bert_tensors(directory: Path) -> Tensors:
    """The tensors of a BERT checkpoint without their `bert.` prefix; old LayerNorm spellings are mended."""
    mended = Tensors()
    for key, value in read_tensors(directory).items():
        key = key.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
        mended[key.replace("LayerNorm.beta", "LayerNorm.bias")] = value
    mended.pop("embeddings.position_ids", None)
    return mended


def layer_from_bert(tensors: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """One layer's parameters under our names."""
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
    """config.json and model.safetensors, as Hugging Face's loaders expect them."""
    make_folder(directory)
    save_tensors(directory / "model.safetensors", tensors)
    write_text(directory / "config.json", json.dumps(dict(config), indent=2) + "\n")

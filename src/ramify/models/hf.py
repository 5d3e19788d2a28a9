"""Strict reading of checkpoints: their folder, config.json and tensors, whichever library wrote them."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramify import sample
from ramify.errors import RamifyError
from ramify.files import STANDARD, make_folder, read_json, write_text
from ramify.nn.blocks import Activation
from ramify.tensors import load_tensors, save_tensors

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

A_CHECKPOINT = "a checkpoint"
"""The noun for checkpoints in messages."""

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""From Hugging Face's names of activations to Ramify's. The first name of each is written."""

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


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json."""
    return read_json(directory / CONFIG, A_CHECKPOINT)


def check_settings(path: Path, settings: Mapping[str, Any], needed: Mapping[str, tuple[Any, str]], model: str) -> None:
    """Raise `RamifyError` for a setting with another value than the only supported one. The text beside that is the effect of
    any other value, for the message. A setting that is left out has the supported value."""
    for name, (value, effect) in needed.items():
        if settings.get(name, value) != value:
            given, only = (
                json.dumps(setting) if isinstance(setting, bool) else repr(setting) for setting in (settings[name], value)
            )
            reason = f", because {given} {effect}" if effect else ""
            raise RamifyError(
                f"{path}: {name}={given} is not supported for {model}; only {only} is{reason}. Choose another checkpoint."
            )


def require_output(path: Path, tensors: Mapping[str, Tensor], name: str) -> None:
    """Raise `RamifyError` if a config says that the output map is not the token embedding, and there is no tensor for it."""
    if read_json(path, A_CHECKPOINT).get("tie_word_embeddings") is False and name not in tensors:
        raise RamifyError(
            f"{path}: tie_word_embeddings=false needs the tensor {name!r}, which {path.parent} does not hold. Set it to true "
            "if words are predicted from the token embedding, or choose another checkpoint."
        )


def activation(settings: Mapping[str, Any], setting: str, default: str) -> Activation:
    """Ramify's name of the activation that a setting names. `default` is that of a config without the setting."""
    name = settings.get(setting, default)
    if name not in [*ACTIVATIONS]:
        raise RamifyError(f"config.json: {setting}={name!r} is not one of {', '.join(ACTIVATIONS)}. Choose another checkpoint.")
    return ACTIVATIONS[name]


def activation_to_hf(name: Activation) -> str:
    """Hugging Face's name of an activation."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == name)


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first of them if they are many."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(map(repr, names[:LISTED])) + more


def require(config: Any, required: Mapping[str, Any], source: str | Path, part: str = "model") -> None:
    """Raise `RamifyError` if a config differs from the values that a checkpoint needs."""
    other = [
        f"{part}.{name} = {value!r} (not {getattr(config, name)!r})"
        for name, value in required.items()
        if getattr(config, name) != value
    ]
    if other:
        raise RamifyError(f"{source} needs {', '.join(other)}. Set these values, or start without this checkpoint.")


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
        files = [directory / WEIGHTS]
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
    """Read all tensors of model.safetensors, or of its shards. Pickled weights are never read.

    Raises `RamifyError` if one holds NaN or an infinite number: every answer of such a model would be NaN.
    """
    tensors: dict[str, Tensor] = {}
    for file in _weights(directory):
        tensors |= load_tensors(file)
    if broken := [name for name, tensor in tensors.items() if not _is_finite(tensor)]:
        raise RamifyError(
            f"{directory} holds NaN or infinite weights in {listed(broken)}, so the model answers nothing. Train it again with "
            "a lower learning rate, or download it again."
        )
    return tensors


def _is_finite(tensor: Tensor) -> bool:
    # NaN is the minimum and maximum of all numbers beside it, so one pass finds both kinds of numbers.
    return not tensor.is_floating_point() or not tensor.numel() or all(map(math.isfinite, map(float, torch.aminmax(tensor))))


def write(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write config.json and model.safetensors, as Hugging Face's loaders expect them."""
    make_folder(directory)
    save_tensors(directory / WEIGHTS, tensors)
    write_text(directory / CONFIG, json.dumps(dict(config), indent=2) + "\n")

"""Tensors by name in safetensors files, and strict filling of a model with them."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ramify.errors import RamifyError
from ramify.files import replacing


def load_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of one safetensors file."""
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise RamifyError(f"{file} is not a readable safetensors file: {error}.") from None


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file under another name, then rename it."""
    with replacing(file) as scratch:
        try:
            save_file({key: value.contiguous() for key, value in tensors.items()}, scratch, {"format": "pt"})
        except SafetensorError as error:
            raise RamifyError(f"cannot write {file}: {error}. Make room there, or choose another place.") from None


def load_strictly(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Copy tensors into a model's own of the same names, or refuse (see `check_fit`)."""
    check_fit(own, tensors, where)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def check_fit(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Raise unless the tensors are those of a model by name: nothing missing, nothing left over, all shapes equal."""
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    shapes = [
        f"{key}: {tuple(tensors[key].shape)} there, {tuple(own[key].shape)} here"
        for key in sorted(own.keys() & tensors.keys())
        if tensors[key].shape != own[key].shape
    ]
    if missing or extra or shapes:
        parts = [
            f"{name} {', '.join(keys[:4])}{' …' if len(keys) > 4 else ''} ({len(keys)})"
            for name, keys in (("missing", missing), ("not expected", extra), ("of another shape:", shapes))
            if keys
        ]
        raise RamifyError(f"{where} does not fit this model: {'; '.join(parts)}. Is it another architecture?")

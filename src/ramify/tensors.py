"""Named tensors in safetensors files, and strict loading into a model."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ramify.errors import RamifyError
from ramify.files import replacing


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file. Raises `RamifyError` if it is not readable."""
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise RamifyError(f"{file} is not a readable safetensors file: {error}.") from None


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file atomically. Raises `RamifyError` if that fails."""
    with replacing(file) as scratch:
        try:
            save_file({key: value.contiguous() for key, value in tensors.items()}, scratch, {"format": "pt"})
        except SafetensorError as error:
            raise RamifyError(f"cannot write {file}: {error}. Free some space, or choose another path.") from None


def owned(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and persistent buffer once, under its first name. Tied weights have several names."""
    kept = model.state_dict(keep_vars=True).keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return dict(model.named_parameters()) | buffers


def content_hash(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names and values, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def load_strictly(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Copy tensors into the model's tensors of the same names. Raises `RamifyError` as `check_fit` does."""
    check_fit(expected, tensors, where)
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(tensors[name])


def check_fit(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Raise `RamifyError` unless both mappings have the same names and shapes."""
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    shapes = [
        f"{key}: {tuple(tensors[key].shape)} saved, {tuple(expected[key].shape)} expected"
        for key in sorted(expected.keys() & tensors.keys())
        if tensors[key].shape != expected[key].shape
    ]
    if missing or extra or shapes:
        parts = [
            f"{name} {', '.join(keys[:4])}{' …' if len(keys) > 4 else ''} ({len(keys)})"
            for name, keys in (("missing", missing), ("not expected", extra), ("of another shape:", shapes))
            if keys
        ]
        raise RamifyError(f"{where} does not fit this model: {'; '.join(parts)}. Was it saved by another architecture?")

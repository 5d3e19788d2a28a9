"""Checkpoints of a run: weights, optimizer and counters, from which it goes on to the same numbers. A checkpoint is written
whole, the last two are kept, and a damaged one is passed over."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.files import read_json, write_text
from ramify.tensors import load_tensors, save_tensors

FORMAT = 1
"""The layout of a checkpoint."""

CHECKPOINTS = "checkpoints"
WEIGHTS = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
COUNTERS = "state.json"


@dataclass
class Progress:
    """Where a run stands; all that a checkpoint holds besides tensors."""

    step: int = 0
    target_tokens: int = 0
    targets: int = 0
    seconds: float = 0.0
    best: float | None = None
    """The best value on the dev set so far, and the step that had it; none before the first."""
    best_step: int | None = None
    epoch: int = 0
    position: int = 0
    stage: int = 0
    bad: int = 0
    """Evaluations since the best one."""
    first_step: int = 0
    """Where this stage began: its step, and the target tokens seen before it."""
    first_tokens: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read; `path` is its folder."""

    path: Path
    progress: Progress
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]


class DamagedError(RamifyError):
    """A checkpoint that does not hold what was written there."""


def write_checkpoint(
    out: Path, progress: Progress, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], keep: int = 2
) -> None:
    """Write the checkpoint of a run's step, and remove all but the last ones."""
    folder = out / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{progress.step:08d}"
    scratch = folder / f".partial-{final.name}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    counters = asdict(progress)
    try:
        save_tensors(scratch / WEIGHTS, weights)
        save_tensors(scratch / OPTIMIZER, optimizer)
        checksums = {name: _file_checksum(scratch / name) for name in (WEIGHTS, OPTIMIZER)}
        record = {"format": FORMAT, "progress": counters, "sha256": checksums | {"progress": checksum(counters)}}
        write_text(scratch / COUNTERS, json.dumps(record, indent=1))
    except RamifyError:
        shutil.rmtree(scratch)
        raise
    shutil.rmtree(final, ignore_errors=True)
    scratch.rename(final)
    found = _folders(out)
    # A later one is a damaged one that this run went back behind.
    kept = [each for each in found if each.name <= final.name][-keep:]
    for old in found:
        if old not in kept:
            shutil.rmtree(old)


def newest_checkpoint(out: Path, warn: Callable[[str], None], check: Callable[[Progress], None]) -> Checkpoint | None:
    """The newest whole checkpoint of a run, or None before the first; raises where there are only damaged ones.

    `check` raises `DamagedError` for counters that the run cannot have.
    """
    found = _folders(out)
    for folder in reversed(found):
        try:
            return _read(folder, check)
        except DamagedError as error:
            warn(f"{folder} is damaged: {error} The checkpoint before it is read instead.")
    if found:
        raise RamifyError(
            f"none of the checkpoints in {out / CHECKPOINTS} can be read. Copy a whole one back there, or remove {out} and "
            "begin anew without --resume."
        )
    return None


def newest_weights(out: Path) -> Path | None:
    """The weights of a run's newest checkpoint."""
    found = _folders(out)
    return found[-1] / WEIGHTS if found else None


def checksum(counters: Mapping[str, Any]) -> str:
    """The SHA-256 of counters, as they are spelled in JSON."""
    return hashlib.sha256(json.dumps(counters).encode()).hexdigest()


def _file_checksum(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _folders(out: Path) -> list[Path]:
    return sorted((out / CHECKPOINTS).glob("step-*"))


def _read(folder: Path, check: Callable[[Progress], None]) -> Checkpoint:
    try:
        record = read_json(folder / COUNTERS, "a checkpoint of a run")
    except RamifyError as error:
        raise DamagedError(str(error)) from None
    if record.get("format", FORMAT) != FORMAT:
        raise RamifyError(
            f"{folder} was written by another version of Ramify (format {record['format']}, this one reads {FORMAT}). Go on "
            "with the version that wrote it, or begin anew in another folder."
        )
    counters, checksums = record.get("progress"), record.get("sha256")
    if "format" not in record or not isinstance(counters, dict) or not isinstance(checksums, dict):
        raise DamagedError(f"{COUNTERS} does not hold a format, counters and checksums.")
    if checksums.get("progress") != checksum(counters):
        raise DamagedError(f"the counters in {COUNTERS} do not have the checksum that it names.")
    progress = _progress(counters, folder)
    check(progress)
    return Checkpoint(folder, progress, _tensors(folder / WEIGHTS, checksums), _tensors(folder / OPTIMIZER, checksums))


def _progress(counters: dict[str, Any], folder: Path) -> Progress:
    """Counters of the right types that agree with each other; raises `DamagedError`."""
    if counters.keys() != vars(Progress()).keys():
        raise DamagedError(f"{COUNTERS} does not hold the counters of a run.")
    progress = Progress(**counters)
    try:
        check_fields(progress)
    except RamifyError as error:
        raise DamagedError(str(error)) from None
    if f"step-{progress.step:08d}" != folder.name:
        raise DamagedError(f"step {progress.step} is not that of its folder.")
    numbers = {name: value for name, value in vars(progress).items() if value is not None and name != "best"}
    for name, value in numbers.items():
        if value < 0:
            raise DamagedError(f"{name} must be at least 0, not {value}.")
    bounds = {"first_step": "step", "best_step": "step", "bad": "step", "first_tokens": "target_tokens"}
    for name, bound in bounds.items():
        if numbers.get(name, 0) > numbers[bound]:
            raise DamagedError(f"{name} {numbers[name]} is above {bound} {numbers[bound]}.")
    if (progress.best is None) != (progress.best_step is None):
        raise DamagedError(f"best is {progress.best}, and best_step {progress.best_step}.")
    return progress


def _tensors(file: Path, checksums: Mapping[str, Any]) -> dict[str, Tensor]:
    try:
        if _file_checksum(file) != checksums.get(file.name):
            raise DamagedError(f"{file.name} does not have the checksum that {COUNTERS} names.")
        return load_tensors(file)
    except (OSError, RamifyError) as error:
        raise DamagedError(str(error)) from None

"""Checkpoints of a run: weights, optimizer and counters, from which it goes on to the same numbers. A checkpoint is written
whole, the last two are kept, and a damaged one is passed over."""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from ramify.errors import RamifyError
from ramify.files import read_json, write_text
from ramify.tensors import load_tensors, save_tensors

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
    best: float = math.inf
    best_step: int = -1
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
    try:
        save_tensors(scratch / WEIGHTS, weights)
        save_tensors(scratch / OPTIMIZER, optimizer)
        # JSON knows no infinity.
        best = progress.best if math.isfinite(progress.best) else None
        write_text(scratch / COUNTERS, json.dumps(asdict(progress) | {"best": best}, indent=1))
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


def newest_checkpoint(out: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint of a run, or None before the first; raises where there are only damaged ones."""
    found = _folders(out)
    for folder in reversed(found):
        try:
            return _read(folder)
        except RamifyError as error:
            warn(f"{error} An older checkpoint is looked for.")
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


def _folders(out: Path) -> list[Path]:
    return sorted((out / CHECKPOINTS).glob("step-*"))


def _read(folder: Path) -> Checkpoint:
    counters = read_json(folder / COUNTERS, "a checkpoint of a run")
    if counters.keys() != vars(Progress()).keys():
        raise RamifyError(f"{folder / COUNTERS} is damaged: it does not hold the counters of a run.")
    progress = Progress(**counters)
    if counters["best"] is None:
        progress.best = math.inf
    return Checkpoint(folder, progress, load_tensors(folder / WEIGHTS), load_tensors(folder / OPTIMIZER))

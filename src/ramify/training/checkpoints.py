"""Checkpoints of a run: weights, moments, carried states and counters, from which it resumes to the same numbers. A checkpoint
is written as a whole, the last few are kept, and damaged ones are skipped."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ramify.config import check_fields
from ramify.errors import RamifyError, counted
from ramify.files import check_format, make_folder, read_json, replacing, write_text
from ramify.tensors import load_tensors, save_tensors

FORMAT = 1
"""The version of a checkpoint's layout."""

CHECKPOINTS = "checkpoints"
WEIGHTS = "model.safetensors"
MOMENTS = "optimizer.safetensors"
COUNTERS = "state.json"
BEST = "best.safetensors"
"""The weights with the best dev score so far, in the run's folder and in each of its checkpoints."""

KEPT = 2
"""The number of checkpoints that a run keeps, in case that the newest is damaged."""


def carried_file(rank: int) -> str:
    """Name of the file with the state that a rank carries from batch to batch."""
    return f"state-{rank}.safetensors"


@dataclass
class Progress:
    """Counters of a run: everything that a checkpoint holds besides tensors."""

    step: int = 0
    target_tokens: int = 0
    targets: int = 0
    seconds: float = 0.0
    best: float | None = None
    """The best value on the dev set so far; None before the first evaluation."""
    best_step: int | None = None
    best_checksum: str | None = None
    """The SHA-256 of the file with the best weights, as the first rank wrote it."""
    epoch: int = 0
    position: int = 0
    stage: int = 0
    bad: int = 0
    """Number of evaluations since the best one."""
    first_step: int = 0
    """The step at which this stage began; `first_tokens` is the number of target tokens before it."""
    first_tokens: int = 0

    def begin_stage(self, number: int, *, comparable: bool = True) -> None:
        """Move to the start of a stage. `comparable`: whether its dev values are compared with those of the stages before."""
        if not comparable:
            self.best = self.best_step = self.best_checksum = None
        self.stage, self.epoch, self.position, self.bad = number, 0, 0, 0
        self.first_step, self.first_tokens = self.step, self.target_tokens


@dataclass(frozen=True)
class ResumePoint:
    """The content of the checkpoint in the folder `path`, from which a run resumes."""

    path: Path
    progress: Progress
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    carried: dict[str, Tensor]
    """The state that this rank carried; empty if it carried none."""


class DamagedError(RamifyError):
    """Raised for a checkpoint whose content is not what was written."""


def scratch_folder(out: Path, step: int) -> Path:
    """The folder in which a step's checkpoint is written before it is moved into place."""
    return out / CHECKPOINTS / f".partial-step-{step:08d}"


def begin_checkpoint(out: Path, step: int) -> None:
    """Make an empty scratch folder for a step."""
    scratch = scratch_folder(out, step)
    shutil.rmtree(scratch, ignore_errors=True)
    make_folder(scratch)


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Write one file of a checkpoint. Returns its checksum by its name."""
    save_tensors(file, tensors)
    return {file.name: file_checksum(file)}


def finish_checkpoint(
    out: Path,
    progress: Progress,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
    carried: Mapping[str, str],
    keep: int,
) -> None:
    """Write the rest of a step's checkpoint, move it into place, and remove all but the last `keep` checkpoints.

    `carried` has the checksums of the states that ranks carry. Their files are already in the scratch folder. The best weights
    so far are copied into the checkpoint: a resumed run continues with these and not with later ones.
    """
    scratch = scratch_folder(out, progress.step)
    counters = asdict(progress)
    checksums = {
        **carried,
        **write_tensors(scratch / WEIGHTS, weights),
        **write_tensors(scratch / MOMENTS, moments),
        "progress": checksum(FORMAT, counters),
    }
    if progress.best_checksum is not None:
        _copy(out / BEST, scratch / BEST)
        checksums[BEST] = progress.best_checksum
    record = {"format": FORMAT, "progress": counters, "sha256": checksums}
    write_text(scratch / COUNTERS, json.dumps(record, indent=1))
    final = out / CHECKPOINTS / f"step-{progress.step:08d}"
    shutil.rmtree(final, ignore_errors=True)
    os.replace(scratch, final)
    folders = _folders(out)
    # Later checkpoints are damaged: this run resumed from an earlier one.
    kept = [folder for folder in folders if folder.name <= final.name][-keep:]
    for folder in folders:
        if folder not in kept:
            shutil.rmtree(folder)


def newest_checkpoint(
    out: Path, warn: Callable[[str], None], check: Callable[[Progress], None], *, rank: int = 0, world_size: int = 1
) -> ResumePoint | None:
    """The newest whole checkpoint of a run, or None if there is none yet. Raises if all are damaged.

    `check` raises `DamagedError` for counters that the run cannot have. All ranks verify all files, so that they agree on
    which checkpoint is whole.
    """
    folders = _folders(out)
    for folder in reversed(folders):
        try:
            return _read(folder, check, rank, world_size)
        except DamagedError as error:
            warn(f"{folder} is damaged: {error} The checkpoint before it is read instead.")
    if folders:
        raise RamifyError(
            f"none of the checkpoints in {out / CHECKPOINTS} can be read. Copy a whole one back there, or remove {out} and "
            "start again without --resume."
        )
    return None


def newest_progress(out: Path) -> Progress | None:
    """The counters of the newest checkpoint whose counters are whole; None if there is none."""
    for folder in reversed(_folders(out)):
        try:
            return _counters(folder)[0]
        except DamagedError:
            continue
    return None


def mean_weights(out: Path, number: int, buffers: Collection[str], *, after: int) -> tuple[list[int], dict[str, Tensor]]:
    """The steps of the last `number` checkpoints later than step `after`, and the mean of their weights. The `buffers`, such as
    queues, come from the last. Raises `RamifyError` if one is damaged."""
    steps: list[int] = []
    last: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    for folder in _folders(out)[-number:]:
        try:
            progress, checksums = _counters(folder)
            if progress.step <= after:
                continue
            _verify(folder / WEIGHTS, checksums.get(WEIGHTS))
            last = _tensors(folder / WEIGHTS)
        except DamagedError as error:
            raise RamifyError(
                f"{folder} is damaged: {error} train.average needs it. Remove it and all later checkpoints, and add --resume: "
                "the run writes them again."
            ) from None
        steps.append(progress.step)
        for name, tensor in last.items():
            if name not in buffers:
                sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return steps, last | {name: (total / len(steps)).to(last[name].dtype) for name, total in sums.items()}


def restore_best(out: Path, start: ResumePoint) -> None:
    """Make the best weights of a checkpoint those of the run, which may have written later ones before it stopped."""
    if start.progress.best_checksum is None:
        (out / BEST).unlink(missing_ok=True)
        return
    _copy(start.path / BEST, out / BEST)


def _copy(file: Path, place: Path) -> None:
    # A link would save space, but then one flipped bit damages the file of the run and of all its checkpoints.
    with replacing(place) as scratch:
        shutil.copyfile(file, scratch)


def newest_weights(out: Path) -> Path | None:
    """The weights of a run's newest checkpoint."""
    folders = _folders(out)
    return folders[-1] / WEIGHTS if folders else None


def checksum(format: object, counters: Mapping[str, Any]) -> str:
    """The SHA-256 of a format number and counters, as JSON spells them."""
    return hashlib.sha256(json.dumps([format, counters]).encode()).hexdigest()


def file_checksum(file: Path) -> str:
    """The SHA-256 of a file."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _folders(out: Path) -> list[Path]:
    return sorted((out / CHECKPOINTS).glob("step-*"))


def _counters(folder: Path) -> tuple[Progress, dict[str, Any]]:
    """The counters of a checkpoint, and the checksums of its files by name. Raises `DamagedError` if they are not whole."""
    try:
        record = read_json(folder / COUNTERS, "a checkpoint of a run")
    except RamifyError as error:
        raise DamagedError(str(error)) from None
    counters, checksums = record.get("progress"), record.get("sha256")
    if "format" not in record or not isinstance(counters, dict) or not isinstance(checksums, dict):
        raise DamagedError(f"{COUNTERS} does not hold a format, counters and checksums.")
    if checksums.get("progress") != checksum(record["format"], counters):
        raise DamagedError(f"the format and counters in {COUNTERS} do not have the checksum that it names.")
    check_format(record, FORMAT, folder)
    return _progress(counters, folder), checksums


def _read(folder: Path, check: Callable[[Progress], None], rank: int, world_size: int) -> ResumePoint:
    progress, checksums = _counters(folder)
    check(progress)
    carried = [name for name in checksums if name not in (WEIGHTS, MOMENTS, BEST, "progress")]
    if set(carried) != set(map(carried_file, range(len(carried)))):
        raise DamagedError(f"{COUNTERS} names files that are not a checkpoint's.")
    if carried and len(carried) != world_size:
        raise RamifyError(
            f"{folder} holds states of {counted(len(carried), 'process', 'es')}, but {world_size} resume from it. Start "
            f"{len(carried)}."
        )
    best = (BEST,) if progress.best_checksum is not None else ()
    for name in (WEIGHTS, MOMENTS, *best, *carried):
        _verify(folder / name, checksums.get(name))
    tensors = {name: _tensors(folder / name) for name in (WEIGHTS, MOMENTS)}
    state = _tensors(folder / carried_file(rank)) if carried else {}
    return ResumePoint(folder, progress, tensors[WEIGHTS], tensors[MOMENTS], state)


def _progress(counters: dict[str, Any], folder: Path) -> Progress:
    """Build `Progress` from counters. Raises `DamagedError` if they have wrong types or contradict each other."""
    if counters.keys() != vars(Progress()).keys():
        raise DamagedError(f"{COUNTERS} does not hold the counters of a run.")
    progress = Progress(**counters)
    try:
        check_fields(progress)
    except RamifyError as error:
        raise DamagedError(str(error)) from None
    if f"step-{progress.step:08d}" != folder.name:
        raise DamagedError(f"step {progress.step} does not match the folder's name.")
    numbers = {name: value for name, value in vars(progress).items() if isinstance(value, int | float) and name != "best"}
    for name, value in numbers.items():
        if value < 0:
            raise DamagedError(f"{name} must be at least 0, but is {value}.")
    bounds = {"first_step": "step", "best_step": "step", "bad": "step", "first_tokens": "target_tokens"}
    for name, bound in bounds.items():
        if numbers.get(name, 0) > numbers[bound]:
            raise DamagedError(f"{name} {numbers[name]} is above {bound} {numbers[bound]}.")
    if len({value is None for value in (progress.best, progress.best_step, progress.best_checksum)}) > 1:
        raise DamagedError(f"best is {progress.best}, best_step {progress.best_step}, best_checksum {progress.best_checksum}.")
    return progress


def _verify(file: Path, expected: object) -> None:
    try:
        actual = file_checksum(file)
    except OSError as error:
        raise DamagedError(f"{file.name} cannot be read ({error.strerror or error}).") from None
    if actual != expected:
        raise DamagedError(f"{file.name} does not have the checksum that {COUNTERS} names.")


def _tensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(file)
    except RamifyError as error:
        raise DamagedError(str(error)) from None

"""Execute a run: from its settings to a trained model in a folder."""

import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from ramify import hub
from ramify.errors import RamifyError, counted
from ramify.files import check_format, make_folder, read_json, write_text
from ramify.models import hf
from ramify.runs.base import RUN_FILE, SAMPLES, Prepared, Run
from ramify.tokenizer import ROLES_FILE, TOKENIZER
from ramify.training.checkpoints import BEST, CHECKPOINTS, Progress, newest_progress
from ramify.training.config import TrainConfig
from ramify.training.metrics_log import METRICS
from ramify.training.process import locked, own_device
from ramify.training.trainer import Trainer
from ramify.version import __version__

Kind = TypeVar("Kind", bound=Run)

FORMAT = 2
"""Version of the format of run.json."""

WRITTEN = (CHECKPOINTS, BEST, METRICS, hub.CONFIG, hub.WEIGHTS, hub.CARD, TOKENIZER, ROLES_FILE, "report.html", SAMPLES)
"""The files and folders that a run writes into its folder, beside RUN_FILE."""


def environment() -> dict[str, Any]:
    """The circumstances of a result: command, commit, versions and hardware."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "ramify": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": device,
        "threads": torch.get_num_threads(),
    }


@cache
def _commit() -> str:
    """The commit of this package's checkout, with a + if files have changed since; empty for an installed package."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    # git must take no lock, which a killed run would leave behind.
    git = ["git", "--no-optional-locks", "-C", str(root)]
    try:
        answers = (
            subprocess.run([*git, *command], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
        commit, changed = answers
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + "+" * bool(changed)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def execute(
    run: Run,
    out: Path,
    *,
    resume: bool = False,
    begin: Callable[[Prepared], None] | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
    cpu: bool = False,
) -> tuple[Prepared, Progress]:
    """Train a run in the folder `out` and save its best model there, for `ramify.load`.

    The first process calls `begin` before the first step, and every process calls `report` after each step.
    If training is interrupted, `out` holds a checkpoint and no config.json. A resumed run may be longer than before, and one
    that has ended goes on. Raises `RamifyError` if `out` holds another run, or any run without `resume`.
    """
    with locked(out):
        return _execute(run, out, resume, begin, report, cpu)


def _execute(
    run: Run,
    out: Path,
    resume: bool,
    begin: Callable[[Prepared], None] | None,
    report: Callable[[dict[str, Any]], None] | None,
    cpu: bool,
) -> tuple[Prepared, Progress]:
    before, saved = None, run
    if resume and (out / RUN_FILE).exists():
        before = read_record(out)
        if before["kind"] != run.name:
            raise RamifyError(f"--out {out} holds a run of kind {before['kind']}, not {run.name}. Choose another --out.")
        saved = run.from_json(before["run"])
        _check_same_settings(saved.normalized(), run.normalized(), out)
    elif (out / RUN_FILE).exists():
        raise RamifyError(f"--out {out} already holds a run. Add --resume to continue it, or choose another --out.")
    else:
        check_fresh(out)
    prepared = run.prepare(out)
    # A stage may run the model, e.g. to encode messages with a frozen encoder, so the model moves to its device first.
    task = prepared.task.to("cpu" if cpu else own_device())
    stages = [prepared.stage(number) for number in range(len(prepared.run.stages))]
    trainer = Trainer(task, stages, out, seed=run.seed, report=report, cpu=cpu)
    here = environment() | {"processes": trainer.accelerator.num_processes}
    if before is not None:
        _check_same(before, prepared, here, out)
        if saved.stages != run.stages:
            run = _lengthened(saved, run, prepared.run.stages, trainer, out)
    if trainer.accelerator.is_main_process:
        make_folder(out)
        record = {
            "format": FORMAT,
            "kind": run.name,
            "run": run.to_json(),
            "data_hash": prepared.store.hash,
            "split_hash": prepared.store.split_hash,
            "mean_step_weight": trainer.step_weights,
            **prepared.facts(),
            "parameters": sum(parameter.numel() for parameter in task.parameters()),
            "environment": here,
        }
        if before is None:
            record["weights_hash"] = {source: hf.content_hash(source) for source in run.weight_sources}
        else:
            record = before | {"run": run.to_json(), "resumed": [*before.get("resumed", []), here]}
        # run.json is written first: a folder without it holds no run, and nothing resumes from it.
        write_text(out / RUN_FILE, json.dumps(record, indent=2) + "\n")
        if not (out / "tokenizer.json").exists():
            task.tokenizer.save(out)
        if begin is not None:
            begin(prepared)
    progress = trainer.run(resume=before is not None)
    trainer.accelerator.wait_for_everyone()
    if not trainer.stopped and trainer.accelerator.is_main_process:
        trainer.load_chosen()
        hub.save(prepared.pipeline(), out)
    return prepared, progress


LENGTHS = ("steps", "epochs", "target_tokens")
"""The settings of a stage that define its length. They may differ when a run is resumed."""


def _check_same_settings(saved: Run, asked: Run, out: Path) -> None:
    """Raise unless a run differs from the one that `out` was started with in the length of stages alone."""
    different = [name for name in vars(asked) if name != "stages" and getattr(saved, name) != getattr(asked, name)]
    if len(saved.stages) != len(asked.stages):
        different.append("stages")
    else:
        pairs = enumerate(zip(saved.stages, asked.stages, strict=True))
        different += [
            f"stages.{number}.{name} was {old[name]}"
            for number, (old, new) in ((number, (vars(old), vars(new))) for number, (old, new) in pairs)
            for name in old
            if name not in LENGTHS and old[name] != new[name]
        ]
    if different:
        raise RamifyError(
            f"--out {out} was started with other settings ({', '.join(different)}). Resume it with the same command; only the "
            "length of a stage may be another."
        )


def _lengthened(saved: Run, asked: Run, stages: Sequence[TrainConfig], trainer: Trainer, out: Path) -> Run:
    """The run with the lengths that are asked for, but for stages that have ended before others. `stages` are all of its
    stages. Warns of what depends on the length. Raises `RamifyError` for a stage that would end before the updates it has."""
    progress = newest_progress(out) or Progress()
    # Several stages may share settings.
    current = next(number for number, stage in enumerate(asked.stages) if stage is stages[min(progress.stage, len(stages) - 1)])
    if ended := [number for number in range(current) if asked.stages[number] != saved.stages[number]]:
        trainer.warn(f"stages.{ended[-1]} has ended, so its length stays as it was. stages.{current} goes on.")
    old, new, taken = saved.stages[current], asked.stages[current], progress.step - progress.first_step
    for name, done in (("steps", taken), ("target_tokens", progress.target_tokens - progress.first_tokens)):
        if 0 < getattr(new, name) < min(done, getattr(old, name) or done):
            raise RamifyError(
                f"train.{name}={getattr(new, name)} is below the {done:,} that {out} has behind it. Set it to {done} or more."
            )
    if old != new and taken and new.follows_length:
        trainer.warn(
            f"stages.{current} has another length than in its first {counted(taken, 'update')}. The learning rate "
            f"(train.schedule={new.schedule}, train.warmup={new.warmup:g}) follows the share of the stage that is done, and "
            "goes on where it would be in a stage of the new length."
        )
    if trainer.accelerator.is_main_process:
        # It marks a finished run.
        (out / hub.CONFIG).unlink(missing_ok=True)
    return replace(asked, stages=(*saved.stages[:current], *asked.stages[current:]))


def read_record(out: Path) -> dict[str, Any]:
    """A run's run.json. Raises `RamifyError` if it is missing, incomplete, or of another format."""
    record = read_json(out / RUN_FILE, "a run")
    check_format(record, FORMAT, out / RUN_FILE)
    parts = ("kind", "run", "data_hash", "mean_step_weight", "parameters", "environment")
    if missing := [part for part in parts if part not in record]:
        raise RamifyError(f"{out / RUN_FILE} is damaged: it lacks {', '.join(missing)}.")
    return record


def own_run(kind: type[Kind], source: str) -> Kind | None:
    """The run of this kind in the folder `source`; None if there is none, or one of another kind."""
    folder = Path(source)
    record = read_record(folder) if (folder / RUN_FILE).exists() else None
    return kind.from_json(record["run"]) if record is not None and record["kind"] == kind.name else None


def check_fresh(out: Path, option: str = "--out") -> None:
    """Raise `RamifyError` if a folder holds files that a run or a saved model would overwrite."""
    if left := [name for name in (RUN_FILE, *WRITTEN) if (out / name).exists()]:
        raise RamifyError(
            f"{option} {out} holds {', '.join(left)}, which would be overwritten. Remove them, or choose another {option}."
        )


def _check_same(before: dict[str, Any], prepared: Prepared, here: dict[str, Any], out: Path) -> None:
    """Raise if data, weights or processes differ from those of the start, as the order of examples depends on them."""
    if before["data_hash"] != prepared.store.hash:
        raise RamifyError(f"--data {prepared.run.data} is not the data set that {out} was started with; it has been rebuilt.")
    if before["split_hash"] != prepared.store.split_hash:
        raise RamifyError(f"--data {prepared.run.data} has another split than when {out} was started; it has been rebuilt.")
    for source in prepared.run.weight_sources:
        if before["weights_hash"].get(source) != hf.content_hash(source):
            raise RamifyError(
                f"{source} does not hold the weights that {out} was started with. Restore them, or start a new run."
            )
    if before["environment"]["processes"] != here["processes"]:
        raise RamifyError(
            f"{out} was started with {counted(before['environment']['processes'], 'process', 'es')}, not "
            f"{here['processes']}. Resume it with the same number."
        )

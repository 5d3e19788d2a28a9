"""Executing a run: from its settings to a trained model in a folder."""

import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ramify import hub
from ramify.errors import RamifyError
from ramify.files import check_format, make_folder, read_json, write_text
from ramify.models import hf
from ramify.runs.base import RUN_FILE, Prepared, Run
from ramify.training.checkpoints import CHECKPOINTS, Progress
from ramify.training.metrics_log import METRICS
from ramify.training.process import locked, own_device
from ramify.training.trainer import BEST, Trainer
from ramify.version import __version__

FORMAT = 2
"""The number of run.json's format."""

WRITTEN = (CHECKPOINTS, BEST, METRICS, hub.CONFIG, hub.WEIGHTS, hub.CARD, "tokenizer.json", "report.html")
"""What a run leaves in its folder, beside RUN_FILE."""


def environment() -> dict[str, Any]:
    """What a result was had with: versions, hardware, command, commit."""
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


def _commit() -> str:
    """The commit of the checkout that this package lies in, with a + if files were changed since; nothing if installed."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    # Asking must take no lock: a run that is killed meanwhile would leave it behind.
    git = ["git", "--no-optional-locks", "-C", str(root)]
    try:
        found = (
            subprocess.run([*git, *command], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
        commit, changed = found
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
    run: Run, out: Path, *, resume: bool = False, report: Callable[[dict[str, Any]], None] | None = None, cpu: bool = False
) -> tuple[Prepared, Progress]:
    """Train a run under `out` and leave the best model there, ready for `ramify.load`. Returns before the end only if it was
    interrupted (then `out` holds a checkpoint and no config.json)."""
    with locked(out):
        return _execute(run, out, resume, report, cpu)


def _execute(
    run: Run, out: Path, resume: bool, report: Callable[[dict[str, Any]], None] | None, cpu: bool
) -> tuple[Prepared, Progress]:
    before: dict[str, Any] | None = None
    if resume and (out / RUN_FILE).exists():
        before = read_record(out)
        if before["kind"] != run.name:
            raise RamifyError(f"{out} holds a run of the kind {before['kind']}, not {run.name}. Choose another --out.")
        saved, asked = (each.normalized() for each in (run.from_json(before["run"]), run))
        different = [name for name in vars(run) if getattr(saved, name) != getattr(asked, name)]
        if different:
            raise RamifyError(
                f"{out} was started with other settings ({', '.join(different)}); resume it with the same command."
            )
    elif (out / RUN_FILE).exists():
        raise RamifyError(f"{out} already holds a run: add --resume to go on with it, or choose another --out.")
    else:
        check_fresh(out)
    prepared = run.prepare(out)
    # Stages are prepared with the model: what a frozen encoder makes of messages, say.
    task = prepared.task.to("cpu" if cpu else own_device())
    stages = [prepared.stage(number) for number in range(len(run.stages))]
    trainer = Trainer(task, stages, out, seed=run.seed, divisors=prepared.divisors(), report=report, cpu=cpu)
    here = environment() | {"processes": trainer.accelerator.num_processes}
    if before is not None:
        _check_same(before, prepared, here, out)
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
        # The first of all files: a folder without it holds no run, and nothing resumes from it.
        write_text(out / RUN_FILE, json.dumps(record, indent=2) + "\n")
        if not (out / "tokenizer.json").exists():
            task.tokenizer.save(out)
    progress = trainer.run(resume=before is not None)
    trainer.accelerator.wait_for_everyone()
    if not trainer.stopped and trainer.accelerator.is_main_process:
        if (out / BEST).exists():
            hub.load_weights(task, out / BEST)
        hub.save(prepared.pipeline(), out)
    return prepared, progress


def read_record(out: Path) -> dict[str, Any]:
    """A run's run.json. Raises `RamifyError` where it is absent, incomplete, or of another format."""
    record = read_json(out / RUN_FILE, "a run")
    check_format(record, FORMAT, out / RUN_FILE)
    parts = ("kind", "run", "data_hash", "mean_step_weight", "parameters", "environment")
    if missing := [part for part in parts if part not in record]:
        raise RamifyError(f"{out / RUN_FILE} is damaged: it does not hold {', '.join(missing)}.")
    return record


def check_fresh(out: Path, option: str = "--out") -> None:
    """Raise where a folder holds what a run, or a model that is saved there, would write anew."""
    if left := [name for name in (RUN_FILE, *WRITTEN) if (out / name).exists()]:
        raise RamifyError(
            f"{out} holds {', '.join(left)}, which would be written anew: remove them, or choose another {option}."
        )


def _check_same(before: dict[str, Any], prepared: Prepared, here: dict[str, Any], out: Path) -> None:
    """What a run was started with beside its settings: the order of its examples follows from these, too."""
    if before["data_hash"] != prepared.store.hash:
        raise RamifyError(f"{prepared.run.data} is not the data set that {out} was started with: it has been built anew.")
    if before.get("split_hash", prepared.store.split_hash) != prepared.store.split_hash:
        raise RamifyError(f"{prepared.run.data} is split otherwise than when {out} was started: it has been built anew.")
    for source in prepared.run.weight_sources:
        if before.get("weights_hash", {}).get(source) != hf.content_hash(source):
            raise RamifyError(
                f"{source} does not hold the weights that {out} was started with: bring them back, or start a run anew."
            )
    if before["environment"]["processes"] != here["processes"]:
        raise RamifyError(
            f"{out} was started on {before['environment']['processes']} process(es), not {here['processes']}: "
            "resume it on as many."
        )

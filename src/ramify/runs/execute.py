"""Executing a run: from its settings to a trained model in a folder."""

import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ramify import hub
from ramify.disentangle.config import LinkConfig
from ramify.training.checkpoints import CHECKPOINTS, Progress
from ramify.errors import RamifyError
from ramify.files import make_folder, write_text
from ramify.models import hf
from ramify.runs import chats, comment_trees
from ramify.runs.config import RUN_FILE, Run, from_json, read_record, to_json
from ramify.registry import TASKS
from ramify.runs.prepared import Prepared
from ramify.tasks.masked_lm import MaskedLMConfig
from ramify.training.trainer import BEST, METRICS, Trainer, own_device
from ramify.version import __version__
from ramify.batching.views.comment_trees import Reading

PREPARE: dict[type, Callable[[Run, Path], Prepared]] = {
    MaskedLMConfig: comment_trees.prepare,
    LinkConfig: chats.prepare,
}
"""How a run of a task opens its data and builds its model."""

WRITTEN = (CHECKPOINTS, BEST, METRICS, hub.CONFIG, hub.WEIGHTS, hub.CARD, "tokenizer.json", "report.html")
"""What a run leaves in its folder, beside RUN_FILE."""


def prepare(run: Run, out: Path) -> Prepared:
    """Open the data and build the model. `out` is where the run lies if it was begun before."""
    return PREPARE[type(run.task)](run, out)


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
    before: dict[str, Any] | None = None
    if resume and (out / RUN_FILE).exists():
        before = read_record(out)
        saved, asked = (_resolved(each) for each in (from_json(before["run"]), run))
        different = [name for name in vars(run) if getattr(saved, name) != getattr(asked, name)]
        if different:
            raise RamifyError(
                f"{out} was started with other settings ({', '.join(different)}); resume it with the same command."
            )
    elif (out / RUN_FILE).exists():
        raise RamifyError(f"{out} already holds a run: add --resume to go on with it, or choose another --out.")
    else:
        check_fresh(out)
    prepared = prepare(run, out)
    # Stages are prepared with the model: what a frozen encoder makes of messages, say.
    task = prepared.task.to("cpu" if cpu else own_device())
    stages = [prepared.stage(number) for number in range(len(run.stages))]
    trainer = Trainer(task, stages, out, seed=run.seed, divisors=prepared.divisors(), report=report, cpu=cpu)
    here = environment() | {"processes": trainer.accelerator.num_processes}
    if before is not None:
        _check_same(before, prepared, here, out)
    if trainer.accelerator.is_main_process:
        make_folder(out)
        if before is None:
            task.tokenizer.save(out)
        record = {
            "run": to_json(run),
            "data_hash": prepared.store.hash,
            "split_hash": prepared.store.split_hash,
            "mean_step_weight": trainer.step_weights,
            **prepared.facts(),
            "parameters": sum(parameter.numel() for parameter in task.parameters()),
            "environment": here,
        }
        if before is None:
            record["weights_hash"] = {source: hf.content_hash(source) for source in _sources(run)}
        else:
            record = before | {"run": to_json(run), "resumed": [*before.get("resumed", []), here]}
        write_text(out / RUN_FILE, json.dumps(record, indent=2) + "\n")
    progress = trainer.run(resume=before is not None)
    trainer.accelerator.wait_for_everyone()
    if not trainer.stopped and trainer.accelerator.is_main_process:
        if (out / BEST).exists():
            hub.load_weights(task, out / BEST)
        kind = next(kind for kind in TASKS.values() if type(run.task) is kind.config)
        hub.save(kind.pipeline(task, **{name: getattr(run, name) for name in kind.further}), out)
    return prepared, progress


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
    for source in _sources(prepared.run):
        if before.get("weights_hash", {}).get(source) != hf.content_hash(source):
            raise RamifyError(
                f"{source} does not hold the weights that {out} was started with: bring them back, or start a run anew."
            )
    if before["environment"]["processes"] != here["processes"]:
        raise RamifyError(
            f"{out} was started on {before['environment']['processes']} process(es), not {here['processes']}: "
            "resume it on as many."
        )


def _sources(run: Run) -> list[str]:
    """Models whose weights the run reads: what it starts from, and its teachers."""
    return [*filter(None, (run.init, *getattr(run.view, "teachers", ())))]


def _resolved(run: Run) -> Run:
    """As far as two spellings of one run are equal: where the data lies may change, for its hash is compared."""
    reading = run.reading
    if isinstance(reading, Reading):
        reading = replace(reading, max_context=reading.context_length)
    return replace(run, data="", reading=reading)

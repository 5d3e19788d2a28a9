"""The one training loop, on accelerate: one process or many, and a killed run resumes to the same numbers.

Every random draw of a step follows from (run seed, step, rank, micro-batch), so a checkpoint needs no generator states.
"""

import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast
from torch import Tensor, nn

from ramify.batching.batch import AnyBatch
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.base import Example, View
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.files import make_folder, write_text
from ramify.hub import find_device, load_own_tensors, own_tensors
from ramify.nn.precision import Precision
from ramify.tasks.base import Task
from ramify.tensors import save_tensors
from ramify.training.checkpoints import Checkpoint, Progress, newest_checkpoint, write_checkpoint

BEST = "best.safetensors"
METRICS = "metrics.jsonl"
DIVERGED = "Begin anew in another folder with a lower train.lr, a longer train.warmup, or a smaller train.clip."


@dataclass(frozen=True)
class TrainConfig:
    """One stage of training. It lasts `steps` updates, or until `target_tokens` tokens of targets were seen."""

    steps: int = 2000
    target_tokens: int = 0
    budget: int = 4096
    """What fills a micro-batch (`budget_unit`): all tokens that are computed; those of the predicted comments alone (then
    models that read different things see the same comments at the same step); or predicted comments."""
    budget_unit: Literal["tokens", "target_tokens", "targets"] = "tokens"
    accumulate: int = 1
    """Micro-batches an update and rank."""
    lr: float = 5e-4
    warmup: float = 0.1
    """Share of the stage over which the learning rate rises."""
    schedule: Literal["linear", "cosine", "constant", "epochs"] = "linear"
    """After the warm-up: down to nothing in a line or a half wave; as it is; or divided by 1 + `epoch_decay` × epochs done."""
    epoch_decay: float = 0.0
    optimizer: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    clip: float = 1.0
    """Largest norm of the whole gradient; 0 = no clipping."""
    lr_scale: tuple[tuple[str, float], ...] = ()
    """(pattern, factor): parameters whose name matches the regular expression learn at this multiple."""
    freeze: tuple[str, ...] = ()
    precision: Precision = "fp32"
    compile: bool = False
    deterministic: bool = True
    """On CUDA, sum in a fixed order, so that a killed run resumes to the same bits there too."""
    log_every: int = 10
    evaluate_every: int = 200
    checkpoint_every: int = 200
    """These three count updates; 0 = only at the end of the stage."""
    patience: int = 0
    """Evaluations without a better dev loss after which training stops; 0 = never."""

    def __post_init__(self) -> None:
        check_fields(self, "train.")
        if min(self.steps, self.target_tokens) < 0 or not (self.steps or self.target_tokens):
            raise RamifyError("train.steps or train.target_tokens must be positive, and neither negative.")
        if self.budget <= 0 or self.accumulate <= 0:
            raise RamifyError("train.budget and train.accumulate must be positive.")
        if min(self.log_every, self.evaluate_every, self.checkpoint_every, self.patience) < 0:
            raise RamifyError("train.log_every, evaluate_every, checkpoint_every and patience must not be negative.")
        if self.lr < 0 or self.eps <= 0:
            raise RamifyError(f"train.lr must not be negative and train.eps positive; they are {self.lr} and {self.eps}.")
        if not 0 <= self.warmup <= 1:
            raise RamifyError(f"train.warmup is a share of the stage, from 0 to 1, not {self.warmup}.")
        if min(self.clip, self.weight_decay, self.epoch_decay, *(factor for _, factor in self.lr_scale)) < 0:
            raise RamifyError("train.clip, weight_decay, epoch_decay and the factors of lr_scale must not be negative.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise RamifyError(f"train.betas must be at least 0 and below 1, not {list(self.betas)}.")


@dataclass(frozen=True)
class Stage:
    """What a stage trains on, and how it is measured on the dev set."""

    config: TrainConfig
    view: View
    collator: Callable[[Sequence[Example]], AnyBatch]
    dev: Callable[[], dict[str, float]] | None = None
    """Measures on held-out data by name; the smallest `dev_loss` is the best."""


def mean_step_weight(view: View, config: TrainConfig, seed: int, world_size: int) -> float:
    """The mean weight of a step over the first epoch: the constant that divides the loss (specification's W)."""
    # Updates go on across the ends of epochs, so an epoch may hold a fraction of one; only ranks wait for each other there.
    rounds = math.ceil(len(sampler(view, config, seed, world_size).steps(0)) / world_size)
    return float(view.weights.sum()) * config.accumulate / max(1, rounds)


def sampler(view: View, config: TrainConfig, seed: int, world_size: int = 1, rank: int = 0) -> TokenBudget:
    """The order of a stage's examples, cut into micro-batches."""
    costs = {"tokens": view.costs, "target_tokens": view.target_tokens, "targets": view.sizes}[config.budget_unit]
    return TokenBudget(costs, config.budget, seed=seed, world_size=world_size, rank=rank)


def _check_patterns(config: TrainConfig, names: Sequence[str]) -> None:
    """Raise where a pattern of a stage is no regular expression, or matches no parameter."""
    for field, patterns in (("freeze", config.freeze), ("lr_scale", [pattern for pattern, _ in config.lr_scale])):
        for pattern in patterns:
            try:
                found = any(re.search(pattern, name) for name in names)
            except re.error as error:
                raise RamifyError(f"train.{field}: {pattern!r} is not a regular expression ({error}).") from None
            if not found:
                raise RamifyError(
                    f"train.{field}: no parameter matches the pattern {pattern!r}; names look like {', '.join(names[:3])}."
                )

    if names and not any(learns(config, name) for name in names):
        raise RamifyError(f"train.freeze: the patterns {list(config.freeze)} leave no parameter that could learn.")


def learns(config: TrainConfig, name: str) -> bool:
    """Whether a stage changes the parameter of this name."""
    return not any(re.search(pattern, name) for pattern in config.freeze)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def step_seed(seed: int, *numbers: int) -> int:
    """A 63-bit seed for one draw of one step."""
    return int(np.random.SeedSequence([seed, *numbers]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def own_device() -> torch.device:
    """Where this process trains: of several on one machine each has a GPU of its own."""
    found = find_device()
    return found if found.type == "cpu" else torch.device(found.type, int(os.environ.get("LOCAL_RANK", "0")))


class Trainer:
    """Runs stages, writes metrics and checkpoints under `out`, and resumes from them."""

    def __init__(
        self,
        task: Task,
        stages: Sequence[Stage],
        out: Path,
        *,
        seed: int,
        divisors: dict[str, float] | None = None,
        report: Callable[[dict[str, Any]], None] | None = None,
        cpu: bool = False,
    ) -> None:
        for stage in stages:
            _check_patterns(stage.config, [name for name, _ in task.named_parameters()])
        precisions = {stage.config.precision for stage in stages}
        if len(precisions) > 1:
            raise RamifyError("all stages must have the same train.precision.")
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        # Unless told that it runs on CPU, accelerate gives each rank without a GPU a world of its own.
        cpu = cpu or find_device().type == "cpu"
        if world_size == 1:
            # Accelerate keeps the first device and precision of a process; a later run there may want others.
            AcceleratorState._reset_state(reset_partial_state=True)
        self.accelerator = Accelerator(mixed_precision="bf16" if precisions == {"bf16"} else "no", cpu=cpu)
        if self.accelerator.num_processes != world_size:
            raise RamifyError(
                f"{world_size} processes were started (WORLD_SIZE), but accelerate sees {self.accelerator.num_processes}. "
                "Start them with torchrun."
            )
        self.task = task.to(self.accelerator.device)
        self.stages = stages
        self.out = out
        self.seed = seed
        self.divisors = divisors or {}
        self.report = report or (lambda record: None)
        self.progress = Progress()
        self.step_weights = [
            mean_step_weight(stage.view, stage.config, seed + number, world_size) for number, stage in enumerate(stages)
        ]
        self.stop_asked = False
        self.stopped = False
        """Whether some rank was asked to stop and all have agreed to, after the same step."""
        for tensor in (*self.task.parameters(), *self.task.buffers()):
            broadcast(tensor.data, from_process=0)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self, *, resume: bool = False, until: int | None = None) -> Progress:
        """Train all stages; `until` stops before this step, as a kill would (for tests)."""
        start = self._load() if resume else None
        metrics = self._metrics_file(truncate_after=self.progress.step if resume else -1)
        deterministic = all(stage.config.deterministic for stage in self.stages) and self.accelerator.device.type == "cuda"
        with _flushed_denormals(), _deterministic(deterministic), metrics as log, self._interrupts():
            for number in range(self.progress.stage, len(self.stages)):
                if number > self.progress.stage:
                    self.progress.stage, self.progress.epoch, self.progress.position, self.progress.bad = number, 0, 0, 0
                if not self._stage(self.stages[number], number, start, log, until):
                    return self.progress
                start = None
        return self.progress

    def _stage(self, stage: Stage, number: int, start: Checkpoint | None, log: "_Log", until: int | None) -> bool:
        """False when training was stopped from outside."""
        config, progress, accelerator = stage.config, self.progress, self.accelerator
        parameters = self._parameters(config)
        optimizer = self._optimizer(config, parameters)
        if start is None:
            progress.first_step, progress.first_tokens = progress.step, progress.target_tokens
        else:
            _load_optimizer(optimizer, start.optimizer)
        order = sampler(stage.view, config, self.seed + number, accelerator.num_processes, accelerator.process_index)
        order.load_state({"epoch": progress.epoch, "position": progress.position})
        if config.compile:
            self.task.backbone.compile_passes()
        divisors = self.divisors or dict.fromkeys(self.task.loss_names, self.step_weights[number])
        steps = iter(order)
        while not self._done(config) and not self._out_of_patience(config):
            if until is not None and progress.step >= until:
                return False
            began = time.perf_counter()
            share = self._share(config)
            for group in optimizer.param_groups:
                group["lr"] = config.lr * group["scale"] * schedule(config, share, progress.epoch)
            batches = [self._draw(stage, steps, order, micro) for micro in range(config.accumulate)]
            record = self._update(stage, batches, parameters, optimizer, divisors)
            progress.step += 1
            progress.epoch, progress.position = order.epoch, order.position
            progress.seconds += time.perf_counter() - began
            record |= {"step": progress.step, "lr": optimizer.param_groups[0]["lr"], "seconds": progress.seconds}
            record |= {"target_tokens": progress.target_tokens, "targets": progress.targets}
            finished = self._done(config)
            if stage.dev is not None and (_due(progress.step, config.evaluate_every) or finished):
                with accelerator.autocast():
                    record |= stage.dev()
                if not math.isfinite(record["dev_loss"]):
                    raise RamifyError(f"step {progress.step}: the dev loss is {record['dev_loss']}. {DIVERGED}")
                if record["dev_loss"] < progress.best:
                    progress.best, progress.best_step, progress.bad = record["dev_loss"], progress.step, 0
                    self._save_weights(self.out / BEST)
                else:
                    progress.bad += 1
            record["progress"] = self._share(config)
            if _due(progress.step, config.log_every) or finished or "dev_loss" in record:
                log.write(record)
            self.report(record)
            over = finished or self._out_of_patience(config)
            if _due(progress.step, config.checkpoint_every) or over or self.stopped:
                self._save(optimizer)
            if self.stopped:
                return False
        return True

    def _out_of_patience(self, config: TrainConfig) -> bool:
        return 0 < config.patience <= self.progress.bad

    def _done(self, config: TrainConfig) -> bool:
        return self._share(config) >= 1.0

    def _share(self, config: TrainConfig) -> float:
        """How much of the stage is done."""
        progress = self.progress
        if config.target_tokens:
            return min(1.0, (progress.target_tokens - progress.first_tokens) / config.target_tokens)
        return min(1.0, (progress.step - progress.first_step) / config.steps)

    def _draw(self, stage: Stage, steps: Iterator[Any], order: TokenBudget, micro: int) -> AnyBatch:
        numbers = next(steps)
        batch = stage.collator([stage.view.example(int(number), order.epoch) for number in numbers])
        generator = torch.Generator().manual_seed(
            step_seed(self.seed, 1, self.progress.step, self.accelerator.process_index, micro)
        )
        return self.task.corrupt(batch.to(self.accelerator.device), generator)

    def _update(
        self,
        stage: Stage,
        batches: list[AnyBatch],
        parameters: list[tuple[str, nn.Parameter]],
        optimizer: torch.optim.Optimizer,
        divisors: dict[str, float],
    ) -> dict[str, Any]:
        accelerator, progress = self.accelerator, self.progress
        names = self.task.loss_names
        counts = torch.zeros(len(names) + 2, dtype=torch.float64, device=accelerator.device)
        for batch in batches:
            own = self.task.counts(batch)
            tokens = [float(batch.num_target_tokens), float(batch.num_targets)]
            counts += torch.tensor([own[name] for name in names] + tokens, dtype=torch.float64, device=accelerator.device)
        counts = _sum(accelerator, counts)
        own_counts = dict(zip(names, counts.tolist(), strict=False))
        divide = {name: divisors.get(name) or own_counts[name] or 1.0 for name in names}
        progress.target_tokens += int(counts[-2])
        progress.targets += int(counts[-1])

        self.task.train()
        optimizer.zero_grad(set_to_none=True)
        sums: dict[str, Tensor | float] = dict.fromkeys(names, 0.0)
        for micro, batch in enumerate(batches):
            if batch.num_targets == 0:
                continue
            torch.manual_seed(step_seed(self.seed, 2, progress.step, accelerator.process_index, micro))
            losses = self.task.losses(batch, divide)
            while True:
                with accelerator.autocast():
                    named = next(losses, None)
                if named is None:
                    break
                torch.stack(list(named.values())).sum().backward()
                for name in named.keys() & sums.keys():
                    sums[name] = sums[name] + named[name].detach().double()
        reduce_gradients(accelerator, [parameter for _, parameter in parameters])
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in parameters], self._clip(stage.config))
        if not torch.isfinite(norm):
            raise RamifyError(f"step {progress.step + 1}: the gradient is not finite (norm {norm.item()}). {DIVERGED}")
        optimizer.step()
        ends = (*(sums[name] for name in names), float(self.stop_asked))
        values = torch.stack([torch.as_tensor(end, dtype=torch.float64, device=accelerator.device) for end in ends])
        *values, stop = _sum(accelerator, values).tolist()
        self.stopped = stop > 0
        shown = {f"loss_{name}": value * divide[name] / max(own_counts[name], 1e-12) for name, value in zip(names, values)}
        return {"loss": sum(shown.values()), "grad_norm": float(norm)}

    @staticmethod
    def _clip(config: TrainConfig) -> float:
        return config.clip or math.inf

    # --- parameters --------------------------------------------------------------------------------------------------

    def _parameters(self, config: TrainConfig) -> list[tuple[str, nn.Parameter]]:
        named = list(self.task.named_parameters())
        for name, parameter in named:
            parameter.requires_grad_(learns(config, name))
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]

    def _optimizer(self, config: TrainConfig, parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in parameters:
            # Vectors (biases, LayerNorms) are not decayed.
            decay = config.weight_decay if parameter.ndim > 1 else 0.0
            scale = math.prod(factor for pattern, factor in config.lr_scale if re.search(pattern, name))
            groups.setdefault((decay, scale), []).append(parameter)
        settings = [{"params": each, "weight_decay": decay, "scale": scale} for (decay, scale), each in groups.items()]
        if config.optimizer == "sgd":
            return torch.optim.SGD(settings, lr=config.lr, fused=True)
        return torch.optim.AdamW(settings, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)

    # --- files -------------------------------------------------------------------------------------------------------

    def _save_weights(self, path: Path) -> None:
        if self.accelerator.is_main_process:
            save_tensors(path, own_tensors(self.task))

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        if self.accelerator.is_main_process:
            write_checkpoint(self.out, self.progress, own_tensors(self.task), _optimizer_tensors(optimizer))

    def _load(self) -> Checkpoint | None:
        """Take over the newest whole checkpoint, if there is one yet."""
        found = newest_checkpoint(self.out, self._warn)
        if found is not None:
            load_own_tensors(self.task, found.weights, found.path)
            self.progress = found.progress
        return found

    def _warn(self, text: str) -> None:
        if self.accelerator.is_main_process:
            print(f"warning: {text}", file=sys.stderr)

    @contextmanager
    def _metrics_file(self, truncate_after: int) -> Iterator["_Log"]:
        if not self.accelerator.is_main_process:
            yield _Log(None, None)
            return
        make_folder(self.out)
        path = self.out / METRICS
        kept = [record for record in read_metrics(self.out) if record["step"] <= truncate_after]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        with open(path, "a", encoding="utf-8") as file, _tensorboard(self.out / "tensorboard", truncate_after) as board:
            yield _Log(file, board)

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Ctrl-C and termination end the step that is under way, then write a checkpoint."""

        def ask(*_: Any) -> None:
            self.stop_asked = True

        try:
            before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread: the caller handles signals
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """What a run has logged so far. A last line that a kill cut short is left out."""
    path = out / METRICS
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    records = []
    # What stands after the last line end was not written to its end.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line) if line else {}
        except ValueError:
            record = None
        if not isinstance(record, dict) or (line and not {"step", "loss", "target_tokens"} <= record.keys()):
            raise RamifyError(
                f"{path}, line {number}: expected a JSON object with step, loss and target_tokens. Take the line out by hand."
            )
        if record:
            records.append(record)
    return records


class _Log:
    def __init__(self, file: Any, board: Any) -> None:
        self.file, self.board = file, board

    def write(self, record: dict[str, Any]) -> None:
        if self.file is None:
            return
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        if self.board is not None:
            for name in record.keys() - {"step"}:
                self.board.add_scalar(name, record[name], record["step"])


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Denormal numbers in gradients slow matrix products tenfold on CPU; here they count as zero."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def _deterministic(on: bool) -> Iterator[None]:
    """Torch's deterministic algorithms, where asked for."""
    before = torch.are_deterministic_algorithms_enabled()
    if on:
        # cuBLAS reads it when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def _tensorboard(folder: Path, step: int) -> Iterator[Any]:
    """A tensorboard writer where tensorboard is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    with SummaryWriter(str(folder), purge_step=step + 1 if step >= 0 else None) as board:
        yield board


def schedule(config: TrainConfig, share: float, epoch: int = 0) -> float:
    """The factor of the learning rate when this share of the stage, and so many epochs, are done."""
    if share < config.warmup:
        return min(1.0, max(share, 1e-4) / config.warmup)
    rest = (share - config.warmup) / max(1e-9, 1 - config.warmup)
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "epochs":
        return 1 / (1 + config.epoch_decay * epoch)
    return 1 - rest if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * rest))


def reduce_gradients(accelerator: Accelerator, parameters: Sequence[nn.Parameter]) -> None:
    """Add gradients up over ranks, in one reduction. A parameter that no rank used keeps no gradient at all."""
    if accelerator.num_processes == 1:
        return
    used = torch.tensor(
        [parameter.grad is not None for parameter in parameters], dtype=torch.float32, device=accelerator.device
    )
    used = _sum(accelerator, used)
    shared = [parameter for parameter, ranks in zip(parameters, used.tolist(), strict=True) if ranks]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in shared])
    flat = _sum(accelerator, flat)
    for parameter, gradient in zip(shared, flat.split([p.numel() for p in shared]), strict=True):
        parameter.grad = gradient.view_as(parameter).clone()


def _sum(accelerator: Accelerator, tensor: Tensor) -> Tensor:
    reduced = accelerator.reduce(tensor, reduction="sum")
    assert isinstance(reduced, Tensor)
    return reduced


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, entry in state.items() for name, value in entry.items()}


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in saved.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

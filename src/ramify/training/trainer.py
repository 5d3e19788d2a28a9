"""The one training loop, on accelerate: one process or many, and a killed run resumes to the same numbers.

Every random draw of a step follows from (run seed, step, rank, micro-batch), so a checkpoint needs no generator states.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast
from torch import Tensor, nn

from ramify.batching.batch import AnyBatch
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.base import Example, View
from ramify.errors import RamifyError
from ramify.hub import load_own_tensors, own_tensors
from ramify.tasks.base import Task
from ramify.tensors import save_tensors
from ramify.training.checkpoints import Checkpoint, DamagedError, Progress, newest_checkpoint, write_checkpoint
from ramify.training.config import TrainConfig, check_patterns, learns
from ramify.training.metrics_log import MetricsLog, metrics_log
from ramify.training.optimizers import load_moments, make_optimizer, moments, schedule
from ramify.training.process import (
    deterministic,
    flushed_denormals,
    interrupts,
    reduce_gradients,
    start_accelerator,
    sum_over_ranks,
)
from ramify.training.seeds import step_seed

BEST = "best.safetensors"
DIVERGED = "Begin anew in another folder with a lower train.lr, a longer train.warmup, or a smaller train.clip."


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
    rounds = sampler(view, config, seed, world_size).rounds(0)
    return float(view.weights.sum()) * config.accumulate / max(1, rounds)


def sampler(view: View, config: TrainConfig, seed: int, world_size: int = 1, rank: int = 0) -> TokenBudget:
    """The order of a stage's examples, cut into micro-batches."""
    costs = {"tokens": view.costs, "target_tokens": view.target_tokens, "targets": view.sizes}[config.budget_unit]
    return TokenBudget(costs, config.budget, seed=seed, world_size=world_size, rank=rank)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


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
        self.learnable = {name for name, parameter in task.named_parameters() if parameter.requires_grad}
        """What the task has not frozen itself: stages may freeze more, and never less."""
        for stage in stages:
            check_patterns(stage.config, [name for name, _ in task.named_parameters()], self.learnable)
        precisions = {stage.config.precision for stage in stages}
        if len(precisions) > 1:
            raise RamifyError("all stages must have the same train.precision.")
        self.accelerator = start_accelerator(bf16=precisions == {"bf16"}, cpu=cpu)
        world_size = self.accelerator.num_processes
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
        kept = self.progress.step if resume else -1
        fixed = all(stage.config.deterministic for stage in self.stages) and self.accelerator.device.type == "cuda"
        log = metrics_log(self.out, kept, main=self.accelerator.is_main_process)
        with flushed_denormals(), deterministic(fixed), log as log, interrupts(self._ask_to_stop), self._thawed_again():
            for number in range(self.progress.stage, len(self.stages)):
                if number > self.progress.stage:
                    self.progress.stage, self.progress.epoch, self.progress.position, self.progress.bad = number, 0, 0, 0
                if not self._stage(self.stages[number], number, start, log, until):
                    return self.progress
                start = None
        return self.progress

    def _stage(self, stage: Stage, number: int, start: Checkpoint | None, log: MetricsLog, until: int | None) -> bool:
        """False when training was stopped from outside."""
        config, progress, accelerator = stage.config, self.progress, self.accelerator
        parameters = self._parameters(config)
        optimizer = make_optimizer(config, parameters)
        if start is None:
            progress.first_step, progress.first_tokens = progress.step, progress.target_tokens
        else:
            load_moments(optimizer, start.optimizer, start.path)
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
                if progress.best is None or record["dev_loss"] < progress.best:
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

    def _ask_to_stop(self) -> None:
        self.stop_asked = True

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
        counts = sum_over_ranks(accelerator, counts)
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
        *values, stop = sum_over_ranks(accelerator, values).tolist()
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
            parameter.requires_grad_(name in self.learnable and learns(config, name))
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]

    @contextmanager
    def _thawed_again(self) -> Iterator[None]:
        """What stages froze may learn again afterwards."""
        try:
            yield
        finally:
            for name, parameter in self.task.named_parameters():
                parameter.requires_grad_(name in self.learnable)

    # --- files -------------------------------------------------------------------------------------------------------

    def _save_weights(self, path: Path) -> None:
        if self.accelerator.is_main_process:
            save_tensors(path, own_tensors(self.task))

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        if self.accelerator.is_main_process:
            write_checkpoint(self.out, self.progress, own_tensors(self.task), moments(optimizer))

    def _load(self) -> Checkpoint | None:
        """Take over the newest whole checkpoint, if there is one yet."""
        found = newest_checkpoint(self.out, self._warn, self._check)
        if found is not None:
            load_own_tensors(self.task, found.weights, found.path)
            self.progress = found.progress
        return found

    def _check(self, progress: Progress) -> None:
        """Raise for counters that these stages never come to."""
        if progress.stage >= len(self.stages):
            raise DamagedError(f"stage {progress.stage} is none of the run's {len(self.stages)}.")
        stage, taken = self.stages[progress.stage], progress.step - progress.first_step
        if not stage.config.target_tokens and taken > stage.config.steps:
            raise DamagedError(f"step {progress.step} is behind the end of stage {progress.stage}.")
        if progress.epoch > taken * stage.config.accumulate:
            raise DamagedError(f"epoch {progress.epoch} is not reached in {taken} steps.")
        order = sampler(stage.view, stage.config, self.seed + progress.stage, self.accelerator.num_processes)
        if progress.position > (rounds := order.rounds(progress.epoch)):
            raise DamagedError(f"position {progress.position} is behind the end of an epoch of {rounds}.")

    def _warn(self, text: str) -> None:
        if self.accelerator.is_main_process:
            print(f"warning: {text}", file=sys.stderr)

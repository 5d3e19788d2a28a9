"""The training loop, built on accelerate, for one process or many. A killed run resumes to the same numbers.

Every random draw of a step follows from (run seed, step, rank, micro-batch), so a checkpoint needs no generator states.
"""

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast, gather_object
from torch import Tensor

from ramify import checkpoints
from ramify.batching.batch import AnyBatch
from ramify.batching.samplers import Numbers, Sampler
from ramify.checkpoints import BEST, DamagedError, Progress, ResumePoint, file_checksum
from ramify.errors import RamifyError, counted
from ramify.hub import load_own_tensors, load_weights, own_tensors
from ramify.models.base import State
from ramify.nn.modes import seed_generators
from ramify.progress import activity
from ramify.tasks.base import TOTAL, Divisor, Task, belongs
from ramify.tensors import save_tensors
from ramify.training import meters
from ramify.training.config import TrainConfig, learns
from ramify.training.layers import held_layers, never_unfrozen, unfrozen_in_turn, with_layer_rates
from ramify.training.meters import TrainingBatch
from ramify.training.metrics_log import MetricsLog, averaged_record, metrics_log
from ramify.training.phases import PhaseOptimizer, learn_only, load_moments, phase_optimizers
from ramify.training.process import (
    deterministic,
    flushed_denormals,
    interrupts,
    reduce_gradients,
    start_accelerator,
    sum_over_ranks,
)
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage, check_stages, is_due

DIVERGED = "Start again in another folder with a lower train.lr, a longer train.warmup, or a smaller train.clip."
SHARED, CORRUPT, FORWARD = 0, 1, 2
"""Kinds of random draws, each with its own seeds. Phases after the first continue the count."""


class Trainer:
    """Runs stages, writes metrics and checkpoints under `out`, and resumes from them."""

    def __init__(
        self,
        task: Task[Any],
        stages: Sequence[Stage[Any]],
        out: Path,
        *,
        seed: int,
        report: Callable[[dict[str, Any]], None] | None = None,
        cpu: bool = False,
    ) -> None:
        self.learnable = {
            name for name, parameter in task.named_parameters() if parameter.requires_grad and not belongs(name, task.frozen)
        }
        """The parameters that the task itself has not frozen. Stages may freeze more parameters, but unfreeze none."""
        check_stages(task, stages, self.learnable)
        bf16 = any(stage.config.precision == "bf16" for stage in stages)
        self.accelerator = start_accelerator(bf16=bf16, cpu=cpu)
        self.task = task.to(self.accelerator.device)
        self.stages = [replace(stage, config=with_layer_rates(stage.config, task)) for stage in stages]
        self.out = out
        self.seed = seed
        self.report = report or (lambda record: None)
        self.progress = Progress()
        self.state: State | None = None
        """The state from which this rank's next batch continues."""
        with activity("counting an epoch"):
            self.step_weights = [
                stage.mean_step_weight(seed + number, self.accelerator.num_processes) for number, stage in enumerate(stages)
            ]
        parameters = {name for name, _ in self.task.named_parameters()}
        self.persistent = [name for name in own_tensors(self.task) if name not in parameters]
        self.parts: list[str] = []
        """Names of the losses whose sum is the last update's loss, if there are several."""
        self.stop_asked = False
        self.stopped = False
        """Whether a rank was asked to stop. All ranks agree on it after the same step."""
        self.warned: set[str] = set()
        """The causes that a warning has named."""
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
                if not self._run_stage(number, start, log, until):
                    return self.progress
                start = None
            self._average(log)
        return self.progress

    def _average(self, log: MetricsLog) -> None:
        """Load the mean of the last checkpoints' weights into the task, and measure it, if `train.average` asks for it."""
        if not self.stages or (stage := self.stages[-1]).config.average is None:
            return
        # The first rank writes the checkpoints.
        self.accelerator.wait_for_everyone()
        steps, tensors = checkpoints.mean_weights(
            self.out, stage.config.average, self.persistent, after=self.progress.first_step
        )
        if len(steps) < stage.config.average:
            self.warn(
                f"train.average={stage.config.average} is more than the {counted(len(steps), 'checkpoint')} of the last stage. "
                "Their mean is saved."
            )
        load_own_tensors(self.task, tensors, self.out / checkpoints.CHECKPOINTS)
        measured = {} if stage.dev is None else self._measure(stage, stage.dev)
        log.write(averaged_record(self.progress.step, steps, measured))

    def load_chosen(self) -> None:
        """Load the weights with the best dev score into the task. Without a dev score, it keeps its own, and with
        `train.average` the mean."""
        if self.progress.best_step is None or self.stages[-1].config.average is not None:
            return
        file = self.out / BEST
        if not file.exists() or file_checksum(file) != self.progress.best_checksum:
            raise RamifyError(
                f"{file} does not hold the best weights, which were written at step {self.progress.best_step}: it is damaged "
                "or missing. Add --resume: the newest checkpoint has a copy."
            )
        load_weights(self.task, file)

    def _run_stage(self, number: int, start: ResumePoint | None, log: MetricsLog, until: int | None) -> bool:
        """Take the steps of a stage, from its start or a checkpoint on. Returns False if training was stopped from outside."""
        stage, progress, config = self.stages[number], self.progress, self.stages[number].config
        self.warned.clear()
        phases, layers = self._phases(config), unfrozen_in_turn(config, self.task)
        if warning := never_unfrozen(config, layers):
            self.warn(warning)
        if stage.begin is not None:
            with self.accelerator.main_process_first():
                stage.begin()
        if start is None:
            if stage.initialize is not None:
                stage.initialize()
            progress.begin_stage(number, comparable=stage.comparable)
            self.state = None
        else:
            load_moments(phases, start.moments, start.path / checkpoints.MOMENTS)
            self.state = {name: tensor.to(self.task.device) for name, tensor in start.carried.items()} or None
        sampler = self._sampler(number, self.accelerator.process_index)
        sampler.load_state({"epoch": progress.epoch, "position": progress.position})
        self._forget_former_end(stage, sampler)
        micro_batches = iter(sampler)
        if config.compile:
            self.task.backbone.compile_passes()
        first = progress.step
        while not stage.is_over(progress, sampler):
            if until is not None and progress.step >= until:
                return False
            began, before, share = time.perf_counter(), sampler.epochs_done, stage.share_done(progress, sampler)
            for phase in phases:
                phase.held = held_layers(layers, int(before))
                phase.let_learn(True)
            self.task.updates, self.task.share_done = progress.step, share
            with activity("first step") if progress.step == first else nullcontext():
                chosen = [(next(micro_batches), sampler.epoch) for _ in range(config.accumulate)]
                batches = [self._draw(stage, *examples, micro) for micro, examples in enumerate(chosen)]
                state = self.state
                due = [phase for phase in phases if is_due(progress.step + 1, phase.every)]
                counts = self._count(due, batches)
                for phase in phases:
                    phase.set_rate(share, stage.share_done(progress, sampler, updates=1), progress.epoch)
                record = self._train_step(phases, due, counts, batches, self.step_weights[number])
            progress.step += 1
            progress.epoch, progress.position = sampler.epoch, sampler.position
            progress.seconds += time.perf_counter() - began
            record |= {"step": progress.step, "lr": phases[0].rate, "seconds": progress.seconds}
            record |= {"target_tokens": progress.target_tokens, "targets": progress.targets}
            share = stage.share_done(progress, sampler)
            done = share >= 1.0
            due = stage.measures_after(progress.step, before, sampler.epochs_done)
            measured = stage.dev is not None and (due or done)
            if measured:
                record |= self._evaluate(stage)
                updates = progress.step - progress.first_step
                record[meters.UPDATES] = updates
                evaluation = stage.evaluations(progress, sampler.epochs_done)
                if meters.gradients_due(evaluation, updates, is_regular=due, is_last=done):
                    examples, epoch = chosen[0]
                    # A state belongs to all rows of a batch.
                    few = meters.part_of(examples) if self.state is None else examples
                    part = len(few) / max(1, len(examples))
                    record |= self._read_gradients(phases, number, self._draw(stage, few, epoch, 0), part, state)
            record["progress"] = share
            if measured:
                self._warn_of_problems(record)
            if config.epochs is not None:
                record["epochs"] = sampler.epochs_done
            # The last step of a stopped run is logged, so that its report shows the state that was printed.
            if is_due(progress.step, config.log_every) or done or measured or self.stopped:
                log.write(record)
            shown = {"metric": stage.metric.name, "stages": len(self.stages)}
            self.report(record | shown | {"parts": self.parts, "meters": meters.lines(record)})
            if is_due(progress.step, config.checkpoint_every) or stage.is_over(progress, sampler) or self.stopped:
                self._save(phases)
            if self.stopped:
                return False
        return True

    def _forget_former_end(self, stage: Stage[Any], sampler: Sampler) -> None:
        """Forget the best weights if they are those of the end of a stage that was shorter when the checkpoint was written, and
        no others were measured before."""
        progress = self.progress
        is_only = (progress.stage == 0 or not stage.comparable) and not stage.evaluations(progress, sampler.epochs_done)
        if is_only and progress.best_step == progress.step and not stage.is_over(progress, sampler):
            progress.best = progress.best_step = progress.best_checksum = None

    def _ask_to_stop(self) -> None:
        self.stop_asked = True

    def _sampler(self, number: int, rank: int = 0) -> Sampler:
        return self.stages[number].sampler(self.seed + number, self.accelerator.num_processes, rank)

    def _seed(self, kind: int, micro: int) -> int:
        return step_seed(self.seed, kind, self.progress.step, self.accelerator.process_index, micro)

    # --- one update --------------------------------------------------------------------------------------------------

    def _draw(self, stage: Stage[Any], numbers: Numbers, epoch: int, micro: int) -> AnyBatch:
        batch = stage.collator([stage.view.example(int(number), epoch) for number in numbers])
        generator = torch.Generator().manual_seed(self._seed(CORRUPT, micro))
        return self.task.corrupt(batch.to(self.accelerator.device), generator)

    def _train_step(
        self,
        phases: list[PhaseOptimizer],
        due: list[PhaseOptimizer],
        counts: list[dict[str, float]],
        batches: list[AnyBatch],
        step_weight: float,
    ) -> dict[str, Any]:
        """Make one update from drawn micro-batches. Returns its measurements by name.

        Each phase that is due runs forward and backward over all micro-batches, sums its gradient over ranks, clips it, and
        updates its own parameters. `counts` are those of each.
        """
        step = self.progress.step + 1
        self.task.train()
        passed: list[_Passed] = []
        shared: dict[int, Any] = {}
        for phase, phase_counts in zip(due, counts, strict=True):
            if len(phases) > 1:
                learn_only(phase, phases)
            phase.optimizer.zero_grad(set_to_none=True)
            scale = phase.config.loss_scale
            divisors = {name: self._divisor(name, count, step_weight) / scale for name, count in phase_counts.items()}
            sums, state = self._forward_and_back(phase, batches, divisors, shared)
            reduce_gradients(self.accelerator, list(phase.parameters.values()))
            norm = phase.clip()
            if not torch.isfinite(norm):
                where = f"step {step}, phase {phase.name}" if len(phases) > 1 else f"step {step}"
                raise RamifyError(f"{where}: the gradient is not finite (norm {norm.item()}). {DIVERGED}")
            phase.optimizer.step()
            with torch.no_grad():
                self.task.after_update(phase.name)
            passed.append(_Passed(phase, phase_counts, divisors, sums, state, float(norm)))
        # Every phase started from the same state; the first phase takes part in every update.
        self.state = passed[0].state
        self._share_buffers()
        return self._measured(passed)

    def _count(self, phases: list[PhaseOptimizer], batches: list[AnyBatch]) -> list[dict[str, float]]:
        """The divisors of each phase's losses, summed over micro-batches and ranks before any loss is computed. Also updates
        the numbers of targets and their tokens."""
        names: list[list[str]] = []
        total: Tensor | float = 0.0
        for batch in batches:
            by_phase = [self.task.counts(batch, phase.name) for phase in phases]
            names = [list(counts) for counts in by_phase]
            numbers = [number for counts in by_phase for number in counts.values()]
            numbers += [float(batch.num_target_tokens), float(batch.num_targets)]
            total = total + torch.tensor(numbers, dtype=torch.float64, device=self.accelerator.device)
        assert isinstance(total, Tensor)
        *counts, tokens, targets = sum_over_ranks(self.accelerator, total).tolist()
        self.progress.target_tokens += int(tokens)
        self.progress.targets += int(targets)
        next_counts = iter(counts)
        return [{name: next(next_counts) for name in phase_names} for phase_names in names]

    def _divisor(self, name: str, count: float, step_weight: float) -> float:
        """The divisor of a loss with this count in the step. An empty step has the divisor 1."""
        divided_by = self.task.divided_by.get(name, Divisor.STEP)
        if isinstance(divided_by, Divisor):
            return (step_weight if divided_by is Divisor.EPOCH else 0.0) or count or 1.0
        return divided_by

    def _forward_and_back(
        self, phase: PhaseOptimizer, batches: list[AnyBatch], divisors: dict[str, float], shared: dict[int, Any]
    ) -> tuple[dict[str, Tensor | float], State | None]:
        """Compute a phase's losses over its micro-batches and leave the gradients in its parameters. Returns the sums of the
        losses and the state after the last micro-batch.

        `shared` holds the values that all phases of the update share, by micro-batch. The first phase fills it: no parameter
        has changed yet, and the state before each micro-batch is known.
        """
        sums: dict[str, Tensor | float] = dict.fromkeys(divisors, 0.0)
        state = self.state
        for micro, batch in enumerate(batches):
            if batch.num_targets == 0:
                continue
            if micro not in shared:
                seed_generators(self.accelerator.device, self._seed(SHARED, micro))
                with torch.no_grad(), self.accelerator.autocast():
                    shared[micro] = self.task.shared(batch, state)
            seed_generators(self.accelerator.device, self._seed(FORWARD + phase.number, micro))
            passes = self.task.losses(batch, divisors, phase.name, state, shared[micro])
            depends = False
            while True:
                with self.accelerator.autocast():
                    losses = next(passes, None)
                if losses is None:
                    break
                named, state = losses
                loss = torch.stack(list(named.values())).sum()
                # A pass through frozen layers alone has no gradient.
                if loss.requires_grad:
                    loss.backward()
                    depends = True
                for name in named.keys() & sums.keys():
                    sums[name] = sums[name] + named[name].detach().double()
            if not depends:
                raise RamifyError(
                    f"no loss of the phase {phase.name} depends on a parameter that it learns. Check train.freeze and the "
                    "task's phases."
                )
        return sums, state

    def _measured(self, passed: "list[_Passed]") -> dict[str, Any]:
        """Losses and norms of an update. Also sets `stopped` if any rank was asked to stop."""
        ends = [*(value for phase in passed for value in phase.sums.values()), float(self.stop_asked)]
        values = torch.stack([torch.as_tensor(end, dtype=torch.float64, device=self.accelerator.device) for end in ends])
        *values, stop = sum_over_ranks(self.accelerator, values).tolist()
        self.stopped = stop > 0
        record: dict[str, Any] = {}
        self.parts = []
        value = iter(values)
        for result in passed:
            losses = {name: next(value) * result.divisors[name] / max(count, 1e-12) for name, count in result.counts.items()}
            # Values of the first phase have plain names; the others' names end with the name of the phase.
            ending = "" if result is passed[0] else f"_{result.phase.name}"
            record |= {f"{TOTAL}{ending}": sum(losses.values()), f"grad_norm{ending}": result.norm}
            if len(losses) > 1:
                record |= {f"{name}{ending}": loss for name, loss in losses.items()}
                self.parts = [*self.parts, *(f"{name}{ending}" for name in losses)]
            if ending:
                record[f"lr{ending}"] = result.phase.rate
        return record

    def _share_buffers(self) -> None:
        """Copy the first rank's persistent buffers to all ranks. Values that differ by rank belong in a state."""
        if self.accelerator.num_processes > 1 and self.persistent:
            buffers = dict(self.task.named_buffers())
            for name in self.persistent:
                broadcast(buffers[name].data, from_process=0)

    def _evaluate(self, stage: Stage[Any]) -> dict[str, float]:
        """Measure on the dev set, and save the weights if they are the best so far."""
        assert stage.dev is not None
        scores = self._measure(stage, stage.dev)
        metric, progress = stage.metric, self.progress
        value = scores[metric.name]
        if metric.improves(value, progress.best):
            progress.best, progress.best_step, progress.bad = value, progress.step, 0
            if self.accelerator.is_main_process:
                save_tensors(self.out / BEST, own_tensors(self.task))
                progress.best_checksum = file_checksum(self.out / BEST)
        else:
            progress.bad += 1
        return scores

    def _read_gradients(
        self, phases: list[PhaseOptimizer], number: int, batch: AnyBatch, share: float, state: State | None
    ) -> dict[str, float]:
        """The meters of this share of the first micro-batch of an update, which began with this state. The first rank reads
        them."""
        config = self.stages[number].config
        if not self.accelerator.is_main_process or not batch.num_targets:
            return {}
        # The weight of a step counts all micro-batches.
        weight = self.step_weights[number] / config.accumulate
        training = TrainingBatch(
            batch,
            state,
            seed=self._seed(FORWARD, 0),
            divisors=lambda counts: {
                name: self._divisor(name, count / share, weight) * share / config.loss_scale for name, count in counts.items()
            },
            autocast=lambda: self.accelerator.autocast(),
        )
        return meters.read_gradients(self.task, phases, training)

    def _warn_of_problems(self, record: Mapping[str, Any]) -> None:
        """Warn of the faults that the meters show, once per cause and stage."""
        for cause, text in meters.problems(record).items():
            if cause not in self.warned:
                self.warned.add(cause)
                self.warn(text)

    def _measure(self, stage: Stage[Any], dev: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Measure on the dev set. Raises if the stage's metric is missing or not finite."""
        with self.accelerator.autocast():
            scores = dev()
        metric, step = stage.metric, self.progress.step
        value = scores.get(metric.name)
        if value is None:
            raise RamifyError(
                f"step {step}: the dev set has no {metric.label}, which chooses the weights; it has {', '.join(scores)}. "
                "Choose one of these."
            )
        if not math.isfinite(value):
            raise RamifyError(f"step {step}: the {metric.label} is {value}. {DIVERGED}")
        return scores

    # --- parameters --------------------------------------------------------------------------------------------------

    def _phases(self, config: TrainConfig) -> list[PhaseOptimizer]:
        learning = {}
        for name, parameter in self.task.named_parameters():
            parameter.requires_grad_(name in self.learnable and learns(config, name))
            if parameter.requires_grad:
                learning[name] = parameter
        names = [name for name, _ in self.task.named_parameters()]
        return phase_optimizers(config, self.task.phases, names, learning)

    @contextmanager
    def _thawed_again(self) -> Iterator[None]:
        """Let parameters that stages froze learn again afterwards."""
        try:
            yield
        finally:
            for name, parameter in self.task.named_parameters():
                parameter.requires_grad_(name in self.learnable)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def _save(self, phases: list[PhaseOptimizer]) -> None:
        """Write a checkpoint: each rank writes the state that it carries, and the first rank everything else."""
        accelerator, main = self.accelerator, self.accelerator.is_main_process
        step = self.progress.step
        scratch = checkpoints.scratch_folder(self.out, step)
        carrying = torch.tensor([float(self.state is not None)], device=accelerator.device)
        carried: dict[str, str] = {}
        try:
            if main:
                checkpoints.begin_checkpoint(self.out, step)
            if sum_over_ranks(accelerator, carrying).item():
                file = scratch / checkpoints.carried_file(accelerator.process_index)
                # Tensors that share memory cannot be saved as separate ones.
                state = {name: tensor.clone() for name, tensor in (self.state or {}).items()}
                carried = dict(gather_object(list(checkpoints.write_tensors(file, state).items())))
            if main:
                moments = {key: value for phase in phases for key, value in phase.moments().items()}
                keep = max(checkpoints.KEPT, self.stages[-1].config.average or 0)
                weights = own_tensors(self.task)
                checkpoints.finish_checkpoint(self.out, self.progress, weights, moments, carried, keep)
        except RamifyError:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _load(self) -> ResumePoint | None:
        """Load the newest whole checkpoint, if there is one."""
        rank, world_size = self.accelerator.process_index, self.accelerator.num_processes
        start = checkpoints.newest_checkpoint(self.out, self.warn, self._check_progress, rank=rank, world_size=world_size)
        if start is not None:
            load_own_tensors(self.task, start.weights, start.path)
            self.progress = start.progress
            if self.accelerator.is_main_process:
                checkpoints.restore_best(self.out, start)
        return start

    def _check_progress(self, progress: Progress) -> None:
        """Raise for counters that these stages cannot reach."""
        if progress.stage >= len(self.stages):
            raise DamagedError(f"stage {progress.stage} does not exist: the run has {counted(len(self.stages), 'stage')}.")
        config, taken = self.stages[progress.stage].config, progress.step - progress.first_step
        if 0 < config.steps < taken:
            raise DamagedError(f"step {progress.step} is after the end of stage {progress.stage}.")
        if progress.epoch > taken * config.accumulate:
            raise DamagedError(f"epoch {progress.epoch} is not reached in {taken} steps.")
        if progress.position > (rounds := self._sampler(progress.stage).rounds(progress.epoch)):
            raise DamagedError(f"position {progress.position} is after the end of an epoch of {rounds}.")

    def warn(self, text: str) -> None:
        """Print a warning, once for all ranks."""
        if self.accelerator.is_main_process:
            print(f"warning: {text}", file=sys.stderr)


@dataclass(frozen=True)
class _Passed:
    """Results of one phase in an update."""

    phase: PhaseOptimizer
    counts: dict[str, float]
    divisors: dict[str, float]
    sums: dict[str, Tensor | float]
    state: State | None
    norm: float

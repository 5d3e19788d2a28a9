"""Stages of training: the data of each stage, their order, its end, and the measurement on the dev set."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from ramify.batching.batch import AnyBatch
from ramify.batching.samplers import Sampler, Stream, TokenBudget, Units
from ramify.batching.views.base import UnitView, View
from ramify.errors import RamifyError
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.tasks.base import Task
from ramify.training.checkpoints import Progress
from ramify.training.config import TrainConfig, check_patterns, learns
from ramify.training.layers import check_layers
from ramify.training.phases import check_owners, parameters_by_phase


def token_budget(view: View[Any], config: TrainConfig, seed: int, world_size: int = 1, rank: int = 0) -> TokenBudget:
    """Examples in random order, in micro-batches filled up to `train.budget`."""
    costs = {"tokens": view.costs, "target_tokens": view.target_tokens, "targets": view.sizes}[config.budget_unit]
    return TokenBudget(costs, config.budget, seed=seed, world_size=world_size, rank=rank)


def units(view: UnitView[Any], config: TrainConfig, seed: int, world_size: int = 1, rank: int = 0) -> Units:
    """Batches of `train.units` units of many documents."""
    return Units(view.trees, view.apart, config.units, seed=seed, world_size=world_size, rank=rank)


def stream(streams: int) -> "MakeSampler[View[Any]]":
    """Examples in their own order, with so many streams of a view side by side, for tasks that carry a state."""
    return partial(_stream, streams)


def _stream(streams: int, view: View[Any], config: TrainConfig, seed: int, world_size: int, rank: int) -> Stream:
    return Stream(len(view), streams, world_size=world_size, rank=rank)


def is_due(step: int, every: int) -> bool:
    """Whether something that happens `every` so many steps happens after this one. 0: never."""
    return every > 0 and step % every == 0


ViewT = TypeVar("ViewT", bound=View[Any])

MakeSampler = Callable[[ViewT, TrainConfig, int, int, int], Sampler]
"""Makes a sampler from a view, the settings, a seed, the number of ranks, and the rank."""


@dataclass(frozen=True)
class Stage(Generic[ViewT]):
    """The data of a stage, their order, and the measurement on the dev set."""

    config: TrainConfig
    view: ViewT
    collator: Callable[[Sequence[Any]], AnyBatch]
    """Turns the view's examples into a batch."""
    dev: Callable[[], dict[str, float]] | None = None
    """Computes measures on held-out data, by name. A model that carries a state starts the evaluation with a new one."""
    metric: Metric = DEV_LOSS
    """The measure that chooses the best weights."""
    make_sampler: MakeSampler[ViewT] = token_budget
    begin: Callable[[], None] | None = None
    """Prepares what depends on the weights with which the stage starts. Every process calls it, the first one before all
    others, and also when the stage is resumed."""
    initialize: Callable[[], None] | None = None
    """Changes the weights with which the stage starts, after `begin`. It is not called when the stage is resumed."""
    comparable: bool = True
    """Whether the measure means the same as in the stage before. If not, the best weights are chosen anew."""

    def sampler(self, seed: int, world_size: int, rank: int = 0) -> Sampler:
        """The order of the stage's examples."""
        return self.make_sampler(self.view, self.config, seed, world_size, rank)

    def share_done(self, progress: Progress, sampler: Sampler, *, updates: int = 0) -> float:
        """The share of the stage that is done, up to the sampler's position and so many updates from now."""
        config, done = self.config, 0.0
        if config.target_tokens:
            done = (progress.target_tokens - progress.first_tokens) / config.target_tokens
        if config.steps:
            done = max(done, (progress.step + updates - progress.first_step) / config.steps)
        if config.epochs is not None:
            done = max(done, sampler.epochs_done / config.epochs)
        return min(1.0, done)

    def is_over(self, progress: Progress, sampler: Sampler) -> bool:
        """Whether the stage has taken all its steps, or has run out of patience."""
        return self.share_done(progress, sampler) >= 1.0 or 0 < self.config.patience <= progress.bad

    def measures_after(self, step: int, before: float, epochs: float) -> bool:
        """Whether the dev set is measured after this step, which began `before` and ended after this many `epochs`."""
        every = self.config.evaluate_every
        if self.config.evaluate_unit == "updates":
            return is_due(step, every)
        return every > 0 and epochs // every > before // every

    def evaluations(self, progress: Progress, epochs: float) -> int:
        """The number of regular measurements of the stage so far, after this many `epochs`."""
        every = self.config.evaluate_every
        if every == 0:
            return 0
        if self.config.evaluate_unit == "updates":
            return progress.step // every - progress.first_step // every
        return int(epochs // every)

    def mean_step_weight(self, seed: int, world_size: int) -> float:
        """The mean weight of a step over the first epoch: the constant that divides the loss (W in the specification)."""
        # Updates continue across epochs, so an epoch may end within one. Only ranks wait for each other at its end.
        rounds = self.sampler(seed, world_size).rounds(0)
        return float(self.view.weights.sum()) * self.config.accumulate / max(1, rounds)


def check_stages(task: Task[Any], stages: Sequence[Stage[Any]], learnable: Collection[str]) -> None:
    """Raise if stages do not fit the task or each other."""
    names = [name for name, _ in task.named_parameters()]
    check_owners(f"{type(task).__name__}.frozen", task.frozen, names)
    for stage in stages:
        if stage.config.units and stage.make_sampler is not units:
            raise RamifyError(f"train.units={stage.config.units} applies to runs on nested documents alone. Set train.units=0.")
        check_patterns(stage.config, names, learnable)
        check_layers(stage.config, task)
        learning = [name for name in names if name in learnable and learns(stage.config, name)]
        parameters_by_phase(task.phases, stage.config, names, learning)
        if stage.metric not in task.metrics:
            raise RamifyError(
                f"{type(task).__name__} has no metric {stage.metric.name}. Choose one of "
                f"{', '.join(metric.name for metric in task.metrics)}."
            )
    for what, values in (
        ("train.precision", {stage.config.precision: stage.config.precision for stage in stages}),
        ("metric", {stage.metric: stage.metric.name for stage in stages}),
        ("train.average", {stage.config.average: str(stage.config.average) for stage in stages}),
    ):
        if len(values) > 1:
            raise RamifyError(f"all stages must have the same {what}, but have {' and '.join(values.values())}. Choose one.")

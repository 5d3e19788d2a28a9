"""Meters of learning: each loss beside the best constant prediction, the spread of vectors, and the gradient of each loss.

They are read at evaluations. They touch neither parameters nor random states, so a run learns the same without them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.batch import AnyBatch
from ramify.batching.samplers import Numbers
from ramify.metrics.ranking import auroc
from ramify.metrics.vectors import effective_rank, spread
from ramify.models.base import State
from ramify.nn.modes import seed_generators, untouched
from ramify.tasks.base import MAIN, Readings, Task
from ramify.tasks.constants import Constant
from ramify.training.phases import PhaseOptimizer, learn_only

VALUE, CONSTANT, GRADIENT = "value", "constant", "gradient"
RANK, SPREAD, QUEUE = "rank", "spread", "auroc"
"""The beginnings of the names of meters in a record. The name of the loss or of the vectors follows, after a `_`."""

UPDATES = "stage_updates"
"""The number of updates of the stage."""

MOST_VECTORS = 2048
"""The first vectors of the dev set from which a rank is computed."""

LEAST_VECTORS = 16
"""Fewer vectors have no rank: it would be bounded by their number."""

LEAST_UPDATES, LEAST_SHARE = 200, 0.1
"""The updates and the share of a stage before which nothing is judged, unless the stage is over."""

LEAST_OVERALL = 50
"""The updates that a whole stage needs to be judged at its end."""

LEAST_GAIN = 0.01
"""A loss that is not below its constant by this share of it has learned next to nothing."""

LEAST_RANK = 3.0
"""Vectors of a lower effective rank have collapsed."""

LEAST_GRADIENT = 0.01
"""A loss whose gradient is a smaller share of another's teaches next to nothing."""

SEPARABLE = 0.9
"""AUROC above which a direction tells a batch's vectors from those of a queue."""


# --- on the dev set -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def read_meters(task: Task[Any], batches: Iterable[AnyBatch]) -> dict[str, float]:
    """Each loss, its constant, and the rank and spread of vectors, on drawn dev batches, by their names in a record.

    A loss has the weight of training. Batches have the order in which a state goes from one to the next.
    """
    sums = [MeterSums(task, phase.name) for phase in task.phases]
    with untouched(task, task.device), task.evaluating():
        for batch in batches:
            if not batch.num_targets:
                continue
            shared = task.shared(batch, sums[0].state)
            for phase in sums:
                phase.add(batch, task.readings(batch, phase.phase, phase.state, shared))
    meters: dict[str, float] = {}
    for phase in sums:
        meters |= phase.meters()
    return meters


class MeterSums:
    """The sums of the readings of one phase, from which its meters follow."""

    def __init__(self, task: Task[Any], phase: str = MAIN) -> None:
        self.task = task
        self.phase = phase
        self.losses: dict[str, float] = {}
        self.counts: dict[str, float] = {}
        self.constants: dict[str, Constant] = {}
        self.vectors: dict[str, list[Tensor]] = {}
        self.state: State | None = None

    def add(self, batch: AnyBatch, readings: Readings) -> None:
        self.state, counts = readings.state, self.task.counts(batch, self.phase)
        for name, loss in readings.losses.items():
            constant = readings.constants[name]
            self.losses[name] = self.losses.get(name, 0.0) + float(loss)
            self.counts[name] = self.counts.get(name, 0.0) + counts[name]
            self.constants[name] = self.constants[name] + constant if name in self.constants else constant
        for name, vectors in readings.vectors.items():
            kept = self.vectors.setdefault(name, [])
            room = MOST_VECTORS - sum(map(len, kept))
            if room > 0:
                kept.append(vectors[:room].float().cpu())

    def meters(self) -> dict[str, float]:
        """The meters by their names in a record. Those of phases after the first end with the name of the phase."""
        ending = "" if self.phase == self.task.phases[0].name else f"_{self.phase}"
        meters: dict[str, float] = {}
        for name, count in self.counts.items():
            if count:
                total = self.constants[name].total
                meters[f"{VALUE}_{name}{ending}"] = self.losses[name] / count
                meters |= {} if total is None else {f"{CONSTANT}_{name}{ending}": total / count}
        for name, parts in self.vectors.items():
            vectors = torch.cat(parts).numpy()
            if len(vectors) >= LEAST_VECTORS:
                meters[f"{RANK}_{name}{ending}"] = effective_rank(vectors)
                meters[f"{SPREAD}_{name}{ending}"] = spread(vectors)
        return meters


# --- on a batch of training ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingBatch:
    """A micro-batch that has been learned, and what the update computed it with."""

    batch: AnyBatch
    state: State | None
    """The state before it."""
    seed: int
    """The seed of its random draws."""
    divisors: Callable[[Mapping[str, float]], dict[str, float]]
    """The divisors of losses from their counts in the micro-batch."""
    autocast: Callable[[], AbstractContextManager[None]]


def gradients_due(evaluation: int, updates: int, *, is_regular: bool, is_last: bool) -> bool:
    """Whether gradients are read at an evaluation of a stage, after so many `updates` and regular evaluations.

    Reading takes as long as several updates, so it is done at the regular evaluations 1, 2, 4, 8 …, and at the last one if the
    stage was long enough to be judged.
    """
    return (is_regular and evaluation.bit_count() == 1) or (is_last and may_warn(updates, 1.0))


def may_warn(updates: int, share: float) -> bool:
    """Whether so many updates and this share of a stage are enough to warn of faults."""
    return share >= LEAST_SHARE and updates >= (LEAST_UPDATES if share < 1.0 else LEAST_OVERALL)


def part_of(examples: Numbers) -> Numbers:
    """About a quarter of a micro-batch, but at least two of its examples, from which gradients are read."""
    return examples[:: min(4, max(1, len(examples) // 2))]


def read_gradients(task: Task[Any], phases: Sequence[PhaseOptimizer], training: TrainingBatch) -> dict[str, float]:
    """The norm of each loss's gradient on one micro-batch, and how well a direction tells its vectors from queued ones."""
    meters: dict[str, float] = {}
    batch, state = training.batch, training.state
    with untouched(task, task.device):
        task.train()
        with torch.no_grad(), training.autocast():
            seed_generators(task.device, training.seed)
            shared = task.shared(batch, state)
            pairs = task.queued(batch)
        for name, (fresh, queued) in pairs.items():
            if min(len(fresh), len(queued)) >= LEAST_VECTORS:
                meters[f"{QUEUE}_{name}"] = separability(fresh, queued)
        for place, phase in enumerate(phases):
            if len(phases) > 1:
                learn_only(phase, phases)
            norms = _gradient_norms(task, phase, training, shared)
            ending = f"_{phase.name}" if place else ""
            meters |= {f"{GRADIENT}_{name}{ending}": norm for name, norm in norms.items()}
    return meters


def _gradient_norms(task: Task[Any], phase: PhaseOptimizer, training: TrainingBatch, shared: Any) -> dict[str, float]:
    """The norm of the gradient of each loss that has one, but for annealed and opposed ones.

    A loss of an objective with several backward passes needs all of them alone. The losses of a single pass share its graph.
    """
    parameters = list(phase.parameters.values())
    counts = task.counts(training.batch, phase.name)
    divisors = training.divisors(counts)
    names = [name for name, count in counts.items() if count and name not in (*task.annealed, *task.opposed)]
    norms: dict[str, float] = {}

    def norm_of(named: Mapping[str, Tensor], name: str) -> None:
        for other, loss in named.items():
            # A pass without a name of its own hands the gradient of the passes before it on.
            if (other == name or other not in counts) and loss.requires_grad:
                loss.backward(retain_graph=True)

    def norm() -> float:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))

    while names:
        name = names.pop(0)
        _clear(parameters)
        last: Mapping[str, Tensor] = {}
        number = 0
        # Passes may change buffers, which all losses start from.
        with untouched(task, task.device):
            for last in _passes(task, phase, training, divisors, shared):
                norm_of(last, name)
                number += 1
            norms[name] = norm()
            if number == 1:
                for name in names:
                    _clear(parameters)
                    norm_of(last, name)
                    norms[name] = norm()
                names = []
    return {name: value for name, value in norms.items() if value}


def _passes(
    task: Task[Any], phase: PhaseOptimizer, training: TrainingBatch, divisors: Mapping[str, float], shared: Any
) -> Iterator[dict[str, Tensor]]:
    """The named losses of the backward passes of one phase."""
    seed_generators(task.device, training.seed)
    passes = task.losses(training.batch, divisors, phase.name, training.state, shared)
    while True:
        with training.autocast():
            losses = next(passes, None)
        if losses is None:
            return
        yield losses[0]


def _clear(parameters: Iterable[Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None


def separability(one: Float[Tensor, "row dim"], other: Float[Tensor, "other dim"]) -> float:
    """AUROC of the direction from the mean of the other vectors to the mean of the first, taken from every second vector and
    measured on the rest: 1/2 if no direction separates them."""
    one, other = one.double(), other.double()
    direction = one[::2].mean(0) - other[::2].mean(0)
    return auroc((one[1::2] @ direction).cpu().numpy(), (other[1::2] @ direction).cpu().numpy())


# --- for people ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Meter:
    """The meters of one loss, or of the vectors of one name."""

    name: str
    values: Mapping[str, float]
    """By the beginnings of their names in the record."""


def losses_of(record: Mapping[str, Any]) -> list[Meter]:
    """The losses of a record with meters, in the order of training."""
    return _meters_of(record, VALUE, (VALUE, CONSTANT, GRADIENT))


def vectors_of(record: Mapping[str, Any]) -> list[Meter]:
    """The vectors of a record with meters."""
    return _meters_of(record, RANK, (RANK, SPREAD, QUEUE))


def _meters_of(record: Mapping[str, Any], first: str, kinds: Sequence[str]) -> list[Meter]:
    names = [key.removeprefix(f"{first}_") for key in record if key.startswith(f"{first}_")]
    return [Meter(name, {kind: record[f"{kind}_{name}"] for kind in kinds if f"{kind}_{name}" in record}) for name in names]


def lines(record: Mapping[str, Any]) -> list[str]:
    """The meters of a record for a terminal: one line per loss, and one for all vectors."""
    losses, vectors = losses_of(record), vectors_of(record)
    width = max((len(loss.name) for loss in losses), default=0)
    text = []
    for loss in losses:
        values = {kind: f"{loss.values[kind]:.4g}" if kind in loss.values else "–" for kind in (VALUE, CONSTANT, GRADIENT)}
        text.append(
            f"{loss.name.replace('_', ' '):<{width}}  {values[VALUE]:>8} on dev  "
            f"{values[CONSTANT]:>8} best constant  {values[GRADIENT]:>8} gradient"
        )
    shown = []
    for vector in vectors:
        queue = f", queued AUROC {vector.values[QUEUE]:.2f}" if QUEUE in vector.values else ""
        shown.append(f"{vector.name} rank {vector.values[RANK]:.1f}, spread {vector.values[SPREAD]:.2f}{queue}")
    return [*text, *([f"vectors: {'; '.join(shown)}"] if shown else [])]


def problems(record: Mapping[str, Any]) -> dict[str, str]:
    """The faults that a record with meters shows, by their causes, each with a remedy.

    A loss that is 0 or that teaches no parameter is not judged. Nothing is judged early in a stage.
    """
    updates = record[UPDATES]
    if not may_warn(updates, record["progress"]):
        return {}
    faults: dict[str, str] = {}
    causes: dict[str, str] = {}
    for vector in vectors_of(record):
        if vector.values[RANK] < LEAST_RANK:
            causes[vector.name] = (
                f"The vectors of each {vector.name} have effective rank {vector.values[RANK]:.1f} and lie "
                f"{vector.values[SPREAD]:.0%} of their length from their mean, so they hardly differ: they have collapsed. "
                "Lower train.lr, lengthen train.warmup, or raise the weight of the losses that need different vectors."
            )
            faults[f"{RANK}_{vector.name}"] = f"After {updates} updates: {causes[vector.name]}"
        elif vector.values.get(QUEUE, 0.0) > SEPARABLE:
            causes[vector.name] = (
                f"A direction tells new vectors of a {vector.name} from those of the queue (AUROC {vector.values[QUEUE]:.2f}). "
                "Shorten the queue, or leave it out."
            )
    losses = losses_of(record)
    learned = [loss for loss in losses if GRADIENT in loss.values and loss.values[VALUE]]
    for loss in learned:
        constant = loss.values.get(CONSTANT)
        # A dev set with a single answer has a constant of 0, which nothing beats.
        if constant and loss.values[VALUE] > (1 - LEAST_GAIN) * constant:
            faults[f"{CONSTANT}_{loss.name}"] = (
                f"{loss.name} is {loss.values[VALUE]:.4g} on dev after {updates} updates; the best constant prediction has "
                f"{constant:.4g}, so it has learned next to nothing. {_cause(loss, losses, causes)}"
            )
    strongest = max(learned, key=lambda loss: loss.values[GRADIENT], default=None)
    for loss in learned:
        if strongest is not None and loss.values[GRADIENT] < LEAST_GRADIENT * strongest.values[GRADIENT]:
            faults[f"{GRADIENT}_{loss.name}"] = (
                f"The gradient of {loss.name} is {loss.values[GRADIENT] / strongest.values[GRADIENT]:.2g} times that of "
                f"{strongest.name} after {updates} updates, so it teaches next to nothing. Raise its weight, or lower that of "
                f"{strongest.name}."
            )
    return faults


def _cause(loss: Meter, losses: Sequence[Meter], causes: Mapping[str, str]) -> str:
    """The likely cause of a loss that learns nothing: the fault of the vectors whose name ends its own, or of vectors whose
    name ends no loss."""
    for name, cause in causes.items():
        if loss.name.endswith(f"_{name}") or not any(other.name.endswith(f"_{name}") for other in losses):
            return cause
    return "Its rate may be too low or too high. Change train.lr, take a larger train.budget, or train longer."

"""The contract between an objective and the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.batch import AnyBatch
from ramify.batching.encoder_input import EncoderInput
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import State
from ramify.nn.cache import Cache
from ramify.nn.modes import evaluating
from ramify.tasks.constants import Constant
from ramify.tokenizer import Tokenizer

BatchT = TypeVar("BatchT", bound=AnyBatch)

MAIN = "main"
"""The one phase of most objectives."""


@dataclass(frozen=True)
class Phase:
    """A part of each update, with parameters and an optimizer of its own."""

    name: str
    parameters: tuple[str, ...] = ()
    """Names of the modules and parameters that the phase learns. One phase may have none; it learns all others."""
    every: int = 1
    """The phase takes part in every N-th update (2: the second, fourth …). The first phase takes part in all updates."""


class Divisor(Enum):
    """A divisor of a loss that is counted."""

    STEP = auto()
    """The loss's own count in the step."""
    EPOCH = auto()
    """The mean weight of a step over an epoch, counted before training."""


def belongs(name: str, owners: Collection[str]) -> bool:
    """Whether a tensor is one of `owners`, or lies in a module that is."""
    return any(name == owner or name.startswith(f"{owner}.") for owner in owners)


TOTAL = "loss"
"""The name of the sum of all losses among the logged values."""

Losses = Iterator[tuple[dict[str, Tensor], State | None]]


@dataclass(frozen=True)
class Readings:
    """The values of a batch from which meters show what a task has learned."""

    losses: Mapping[str, Tensor]
    """The sums of the named losses, as `losses` yields them with divisors of 1. A loss without a term may be missing."""
    constants: Mapping[str, Constant]
    """The loss of the best constant prediction, for each of the named losses."""
    vectors: Mapping[str, Float[Tensor, "row dim"]] = field(default_factory=dict)
    """The vectors that the losses teach, by their names."""
    state: State | None = None
    """The state after the batch."""


class Task(nn.Module, ABC, Generic[BatchT]):
    """An objective of a backbone: it corrupts a batch, counts it, and yields losses one backward pass at a time."""

    backbone: Any
    """An `AnyBackbone`; each kind of task narrows the type."""
    tokenizer: Tokenizer
    config: Any
    input: Any
    """Input settings. They are saved with the model, so that it is used as it was trained."""
    phases: tuple[Phase, ...] = (Phase(MAIN),)
    """The phases of an update, in order. `TrainConfig.phases` may change their optimizers."""
    frozen: tuple[str, ...] = ()
    """Names of modules and parameters that no phase learns."""
    divided_by: Mapping[str, Divisor | float] = {}
    """The divisor of each loss, or a constant in its place. A loss without an entry is divided by its own count in the step."""
    optional: tuple[str, ...] = ()
    """Names of modules and tensors that a saved task may lack or have in addition, when this task starts from it."""
    matching: tuple[str, ...] = ()
    """Names of task settings that a saved task must have in common with this one, when this task starts from it."""
    fresh: tuple[str, ...] = ()
    """Names of modules and tensors that begin anew when this task starts from a saved one."""
    annealed: tuple[str, ...] = ()
    """Names of losses whose weight falls to 0 in training. A small gradient of theirs is no fault."""
    opposed: tuple[str, ...] = ()
    """Names of losses of players against each other, which do not fall as both learn. Meters show them, and find no fault."""
    main_loss: str = TOTAL
    """The logged value that learning curves show: the sum of all losses, or the most important one."""
    metrics: tuple[Metric, ...] = (DEV_LOSS,)
    """The metrics that may choose the best weights."""
    context: bool = False
    """Whether the backbone reads rows with the vectors of nodes. Some read these with other layers."""
    updates: int = 0
    """The number of updates that are done. The loop sets it before each update, for objectives that change in training."""
    share_done: float = 0.0
    """The share of the stage's training that is done, set likewise."""

    @abstractmethod
    def corrupt(self, batch: BatchT, generator: torch.Generator) -> BatchT:
        """The batch with the objective's random draws (masks, orders), made on the batch's device."""

    @abstractmethod
    def counts(self, batch: BatchT, phase: str) -> dict[str, float]:
        """The divisor of each named loss of a phase, before any forward pass. The loop sums it over a step. Every batch has
        the same names."""

    def shared(self, batch: BatchT, state: State | None) -> Any:
        """Compute values that the phases of an update share, such as generated text.

        The loop calls it once per micro-batch, in training mode and without a gradient, before the first phase of the update
        changes a parameter.
        """
        return None

    @abstractmethod
    def losses(self, batch: BatchT, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any) -> Losses:
        """Yield the named losses of a phase, already divided, and the next state: one pair per backward pass.

        The caller back-propagates each pair before it requests the next one, because a two-phase gradient reads the gradients
        of earlier passes.

        `state` is the state after the previous batch of the same rows, or None at the start of a stage. A task that carries a
        state yields the next one, detached, with its last pass. All other passes and tasks yield None. Every phase of an update
        starts from the same state, and the next update starts from the state that the first phase yields. The loop skips
        batches without targets, which therefore leave the state unchanged. `shared` is the value of the method `shared`.
        """

    @abstractmethod
    def readings(self, batch: BatchT, phase: str, state: State | None, shared: Any) -> Readings:
        """The losses of a phase beside the best constant predictions, and the vectors that they teach. Meters call it without a
        gradient. Every loss that `counts` names has a constant; one that cannot have any says so (`NoConstant`)."""

    def queued(self, batch: BatchT) -> Mapping[str, tuple[Float[Tensor, "row dim"], Float[Tensor, "other dim"]]]:
        """The vectors of a batch, and those that a queue holds of earlier batches, by the names of the vectors. Meters call it
        without a gradient, and ask whether they can be told from each other. Most tasks have no queue."""
        return {}

    def after_update(self, phase: str) -> None:
        """Change parameters after the optimizer step of a phase, for example to bound their norms. The loop calls it without
        a gradient."""
        return None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def evaluating(self) -> AbstractContextManager[None]:
        """Switch off dropout inside this context and restore the mode afterwards."""
        return evaluating(self)


class Decodes(ABC):
    """The ability to continue sequences token by token. The scores come from the task's output map."""

    @abstractmethod
    def start(
        self, prompts: EncoderInput, *, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        """Read the prompts in one pass, and score the first token behind each. A prompt may be empty.

        Sequences have the order of the rows of `prompts`. `source` holds the texts that an encoder-decoder reads; its rows may
        have another order.
        """

    @abstractmethod
    def step(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        """Read one token of each sequence, and score the next one. The given cache may be used up."""

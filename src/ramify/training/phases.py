"""Phases of training: each with its parameters, its optimizer and learning rates, and the moments that a checkpoint keeps."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from ramify.errors import RamifyError
from ramify.tasks.base import Phase, belongs
from ramify.tensors import check_fit
from ramify.training.config import TrainConfig
from ramify.training.optimizers import make_optimizer
from ramify.training.schedules import schedule


class PhaseOptimizer:
    """The optimizer of one phase: it updates the phase's parameters, and nothing else."""

    def __init__(self, name: str, number: int, parameters: Mapping[str, nn.Parameter], config: TrainConfig, every: int) -> None:
        self.name = name
        self.number = number
        """The phase's index among those of the task."""
        self.parameters = parameters
        self.config = config
        self.every = every
        self.optimizer = make_optimizer(config, list(parameters.items()))
        self.rate = config.lr
        """The learning rate of parameters without a factor of their own."""
        self.held: tuple[str, ...] = ()
        """The beginnings of the names of parameters that do not learn yet."""

    def set_rate(self, before: float, share: float, epoch: int) -> None:
        """Set the learning rate of the update that takes the stage from one share to the next, after so many epochs."""
        factor = schedule(self.config, before, share, epoch)
        self.rate = self.config.lr * factor
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * group["scale"] * factor

    def let_learn(self, learns: bool) -> None:
        """Let the phase's parameters take gradients, apart from those that do not learn yet."""
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(learns and not name.startswith(self.held))

    def clip(self) -> Tensor:
        """Clip the gradient of the phase's parameters, and return its norm."""
        return nn.utils.clip_grad_norm_(self.parameters.values(), self.config.clip or math.inf)

    def moments(self) -> dict[str, Tensor]:
        """The optimizer's state of each parameter that it has updated."""
        return {
            f"{self.name}/{name}/{moment}": value
            for name, parameter in self.parameters.items()
            for moment, value in self.optimizer.state.get(parameter, {}).items()
        }

    def expected(self, name: str) -> dict[str, Tensor]:
        """Tensors with the names and shapes of the moments that the optimizer keeps of a parameter it has updated."""
        # One step of a copy shows which moments there are.
        copy = nn.Parameter(torch.zeros_like(self.parameters[name]))
        copy.grad = torch.zeros_like(copy)
        optimizer = make_optimizer(self.config, [(name, copy)])
        optimizer.step()
        return {f"{self.name}/{name}/{moment}": value for moment, value in optimizer.state.get(copy, {}).items()}

    def load(self, moments: Mapping[str, Tensor]) -> None:
        """Load the moments of the parameters that have any."""
        saved = self.optimizer.state_dict()
        for group in saved["param_groups"]:
            for name, index in zip(group["param_names"], group["params"], strict=True):
                head = f"{self.name}/{name}/"
                state = {key.removeprefix(head): value for key, value in moments.items() if key.startswith(head)}
                if state:
                    saved["state"][index] = state
        self.optimizer.load_state_dict(saved)


def parameters_by_phase(
    phases: Sequence[Phase], config: TrainConfig, names: Sequence[str], learning: Sequence[str]
) -> dict[str, list[str]]:
    """The names of the parameters that each phase learns, out of those that are `learning`. Phases that learn nothing are left
    out.

    Raises if the task's phases do not divide its parameters, `names`, or if the settings do not fit the phases.
    """
    _check_phases(phases, config, names)
    rest = next((phase.name for phase in phases if not phase.parameters), None)
    used: dict[str, list[str]] = {phase.name: [] for phase in phases}
    for name in learning:
        owners = [phase.name for phase in phases if belongs(name, phase.parameters)]
        if len(owners) > 1:
            raise RamifyError(f"{name} belongs to the phases {' and '.join(owners)} of the task. Name it in one phase alone.")
        if not owners and rest is None:
            raise RamifyError(f"{name} belongs to no phase of the task. Name it in a phase, or in `frozen`.")
        used[owners[0] if owners else str(rest)].append(name)
    used = {phase: learned for phase, learned in used.items() if learned}
    for phase in phases:
        every = interval(phase, config)
        if phase.name == next(iter(used), None) and every != 1:
            raise RamifyError(
                f"the phase {phase.name} has every={every}, but the first phase that learns takes part in every update. Set "
                "its every to 1 in train.phases, and adjust the other phases."
            )
    return used


def _check_phases(phases: Sequence[Phase], config: TrainConfig, names: Sequence[str]) -> None:
    known = [phase.name for phase in phases]
    for settings in config.phases:
        if settings.name not in known:
            raise RamifyError(
                f"train.phases: there is no phase {settings.name}. Choose one of the task's phases: {', '.join(known)}."
            )
    for phase in phases:
        check_owners(f"the phase {phase.name}", phase.parameters, names)
    rest = [phase.name for phase in phases if not phase.parameters]
    if len(rest) > 1:
        raise RamifyError(
            f"the phases {' and '.join(rest)} of the task name no parameters, but only one phase can learn all others. Name "
            "the parameters of all phases but one."
        )


def check_owners(what: str, owners: Sequence[str], names: Sequence[str]) -> None:
    """Raise if a module or parameter that a task names has no parameter. `what` says where the task names it."""
    for owner in owners:
        if not any(belongs(name, (owner,)) for name in names):
            raise RamifyError(
                f"{what} names {owner!r}, but the task has no such module or parameter. Correct it; parameters have names such "
                f"as {', '.join(names[:3])}."
            )


def interval(phase: Phase, config: TrainConfig) -> int:
    """The N of "every N-th update" for a phase: that of the settings, or else that of the task."""
    every = config.phase(phase.name).every
    return phase.every if every is None else every


def phase_optimizers(
    config: TrainConfig, phases: Sequence[Phase], names: Sequence[str], parameters: Mapping[str, nn.Parameter]
) -> list[PhaseOptimizer]:
    """The optimizers of a stage, in the order of the task's phases. Phases that learn nothing are left out.

    `names` are those of all parameters of the task, and `parameters` holds those that the stage learns.
    """
    used = parameters_by_phase(phases, config, names, list(parameters))
    return [
        PhaseOptimizer(
            phase.name,
            number,
            {name: parameters[name] for name in used[phase.name]},
            config.of_phase(phase.name),
            interval(phase, config),
        )
        for number, phase in enumerate(phases)
        if phase.name in used
    ]


def learn_only(phase: PhaseOptimizer, phases: Sequence[PhaseOptimizer]) -> None:
    """Let only the parameters of one phase take gradients.

    Gradients still flow through the other phases' layers to earlier layers, but the gradients of the other phases' parameters
    are not computed. Clearing these gradients afterwards would give the same updates at a higher cost.
    """
    for other in phases:
        other.let_learn(other is phase)


def load_moments(phases: Sequence[PhaseOptimizer], moments: Mapping[str, Tensor], where: str | Path) -> None:
    """Load the moments of all phases. Raises if they belong to other phases or parameters."""
    seen = {key.rpartition("/")[0] for key in moments}
    expected: dict[str, Tensor] = {}
    for phase in phases:
        for name in phase.parameters:
            if f"{phase.name}/{name}" in seen:
                expected |= phase.expected(name)
    check_fit(expected, moments, where)
    for phase in phases:
        phase.load(moments)

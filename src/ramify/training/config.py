"""Settings of training. This module does not import torch, so that recipes and commands load it quickly."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ramify.config import check_fields
from ramify.errors import RamifyError

Schedule = Literal["linear", "cosine", "constant", "epochs"]


@dataclass(frozen=True)
class Phase:
    """Settings of one phase of an objective that has several. Settings that are left out (null) come from the stage."""

    name: str
    parameters: tuple[str, ...] = ()
    """Regular expressions. The phase learns the parameters whose names match one. One phase may have no expressions; it learns
    all other parameters."""
    every: int = 1
    """The phase takes part in every N-th update (2: the second, fourth …). A task's first phase takes part in all updates."""
    optimizer: Literal["adamw", "sgd"] | None = None
    lr: float | None = None
    warmup: float | None = None
    schedule: Schedule | None = None
    epoch_decay: float | None = None
    weight_decay: float | None = None
    betas: tuple[float, float] | None = None
    eps: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, f"train.phases: {self.name}: ")
        if self.every < 1:
            raise RamifyError(f"train.phases: {self.name}: every must be at least 1, but is {self.every}.")


@dataclass(frozen=True)
class TrainConfig:
    """One stage of training. It lasts `steps` updates, or until `target_tokens` tokens of targets have been seen, whichever
    comes first. A limit of 0 does not count."""

    steps: int = 2000
    target_tokens: int = 0
    budget: int = 4096
    """Size of a micro-batch in the unit of `budget_unit`. tokens: all tokens that are computed. target_tokens: tokens of
    predicted comments alone, so that models with different contexts see the same comments at the same step. targets: predicted
    comments."""
    budget_unit: Literal["tokens", "target_tokens", "targets"] = "tokens"
    accumulate: int = 1
    """Number of micro-batches per update and rank."""
    lr: float = 5e-4
    warmup: float = 0.1
    """Share of the stage over which the learning rate rises."""
    schedule: Schedule = "linear"
    """Learning rate after the warm-up. linear, cosine: decays to zero. constant: stays. epochs: divided by 1 + `epoch_decay` ×
    epochs done."""
    epoch_decay: float = 0.0
    optimizer: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    clip: float = 1.0
    """Maximum norm of the whole gradient (0: no clipping)."""
    lr_scale: tuple[tuple[str, float], ...] = ()
    """(pattern, factor): parameters whose name matches the regular expression learn at this multiple of the learning rate."""
    freeze: tuple[str, ...] = ()
    """Regular expressions. Parameters whose name matches one do not learn. A phase left without parameters is skipped."""
    phases: tuple[Phase, ...] = ()
    """For objectives with several phases, such as an adversary: the parameters of each phase, the updates in which it takes
    part, and the optimizer settings in which it differs from the stage. A phase without an entry has the stage's settings."""
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    deterministic: bool = True
    """On CUDA, sum in a fixed order, so that a killed run resumes to the same bits there too."""
    log_every: int = 10
    evaluate_every: int = 200
    checkpoint_every: int = 200
    """Updates between checkpoints. 0 for this, `log_every` or `evaluate_every`: only at the end of the stage."""
    patience: int = 0
    """Number of evaluations without a better dev value after which training stops (0: never)."""

    def __post_init__(self) -> None:
        check_fields(self, "train.")
        if min(self.steps, self.target_tokens) < 0 or not (self.steps or self.target_tokens):
            raise RamifyError(
                f"train.steps={self.steps} and train.target_tokens={self.target_tokens} do not define the length of training. "
                "Set at least one to 1 or more, and neither below 0."
            )
        for name in ("budget", "accumulate"):
            if getattr(self, name) < 1:
                raise RamifyError(f"train.{name} must be at least 1, but is {getattr(self, name)}.")
        for name in (
            "log_every",
            "evaluate_every",
            "checkpoint_every",
            "patience",
            "lr",
            "clip",
            "weight_decay",
            "epoch_decay",
        ):
            if getattr(self, name) < 0:
                raise RamifyError(f"train.{name} must not be negative, but is {getattr(self, name)}.")
        if self.eps <= 0:
            raise RamifyError(f"train.eps must be above 0, but is {self.eps}.")
        if not 0 <= self.warmup <= 1:
            raise RamifyError(f"train.warmup is a share of the stage and must be from 0 to 1, but is {self.warmup}.")
        for pattern, factor in self.lr_scale:
            if factor < 0:
                raise RamifyError(f"train.lr_scale: the factor of {pattern!r} must not be negative, but is {factor}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise RamifyError(f"train.betas must be at least 0 and below 1, but are {list(self.betas)}.")
        names = [phase.name for phase in self.phases]
        for name in names:
            if names.count(name) > 1:
                raise RamifyError(f"train.phases names {name} more than once. Merge these entries.")
            self.of_phase(name)

    def phase(self, name: str) -> Phase:
        """The settings of a phase; empty ones if it has no entry in `phases`."""
        return next((phase for phase in self.phases if phase.name == name), Phase(name))

    def of_phase(self, name: str) -> "TrainConfig":
        """This stage's settings, replaced by those that a phase sets."""
        own = {key: value for key, value in vars(self.phase(name)).items() if key in vars(self) and value is not None}
        try:
            return replace(self, phases=(), **own)
        except RamifyError as error:
            raise RamifyError(f"phase {name}: {error}") from None


def learns(config: TrainConfig, name: str) -> bool:
    """Whether a stage changes the parameter of this name."""
    return not any(re.search(pattern, name) for pattern in config.freeze)


def check_patterns(config: TrainConfig, names: Sequence[str], learnable: Collection[str]) -> None:
    """Raise if a pattern of a stage is no regular expression or matches no parameter, or if no learnable parameter is left."""
    own = {f"phases: {phase.name}: parameters": phase.parameters for phase in config.phases}
    for field, patterns in {"freeze": config.freeze, "lr_scale": [each for each, _ in config.lr_scale], **own}.items():
        for pattern in patterns:
            try:
                found = any(re.search(pattern, name) for name in names)
            except re.error as error:
                raise RamifyError(f"train.{field}: {pattern!r} is not a regular expression ({error}). Correct it.") from None
            if not found:
                raise RamifyError(
                    f"train.{field}: no parameter matches the pattern {pattern!r}. Correct it; parameters have names such as "
                    f"{', '.join(names[:3])}."
                )
    if not any(learns(config, name) for name in learnable):
        raise RamifyError(f"train.freeze: the patterns {list(config.freeze)} leave no parameter that could learn. Remove one.")


def parameters_by_phase(config: TrainConfig, phases: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Names of the learning parameters of each phase. Raises if a parameter would belong to no phase or to two."""
    for phase in config.phases:
        if phase.name not in phases:
            raise RamifyError(
                f"train.phases: there is no phase {phase.name}. Choose one of the task's phases: {', '.join(phases)}."
            )
    rest = [phase for phase in phases if not config.phase(phase).parameters]
    if len(rest) > 1:
        raise RamifyError(
            f"train.phases: the phases {' and '.join(rest)} have no patterns for their parameters. Set parameters "
            "for all phases but one."
        )
    found: dict[str, list[str]] = {phase: [] for phase in phases}
    for name in names:
        owners = [phase for phase in phases if any(re.search(each, name) for each in config.phase(phase).parameters)]
        if len(owners) > 1:
            raise RamifyError(
                f"train.phases: {name} belongs to {' and '.join(owners)}. Narrow their patterns, so that each parameter "
                "has one phase."
            )
        if not owners and not rest:
            raise RamifyError(f"train.phases: {name} belongs to no phase. Add it to the parameters of one, or to train.freeze.")
        found[(owners or rest)[0]].append(name)
    used = {phase: own for phase, own in found.items() if own}
    first = next(iter(used), None)
    if first is not None and (every := config.phase(first).every) != 1:
        raise RamifyError(
            f"train.phases: {first}: every={every}, but the first phase takes part in every update. Set every=1, and "
            "adjust the other phases."
        )
    return used

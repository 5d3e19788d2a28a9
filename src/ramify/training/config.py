"""Settings of training. Nothing here needs torch, so that recipes and command lines can read them at once."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ramify.config import check_fields
from ramify.errors import RamifyError

Schedule = Literal["linear", "cosine", "constant", "epochs"]


@dataclass(frozen=True)
class Phase:
    """Settings of one phase of an objective that has several. Settings that are left out (null) are those of the stage."""

    name: str
    parameters: tuple[str, ...] = ()
    """Regular expressions: the phase learns the parameters whose names match one of them. One phase may have none; it
    learns all other parameters."""
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
            raise RamifyError(f"train.phases: {self.name}: every must be at least 1, not {self.every}.")


@dataclass(frozen=True)
class TrainConfig:
    """One stage of training. It lasts `steps` updates, or until `target_tokens` tokens of targets were seen."""

    steps: int = 2000
    target_tokens: int = 0
    budget: int = 4096
    """The unit that fills a micro-batch (`budget_unit`): all tokens that are computed; the tokens of predicted comments only,
    so that models with different contexts see the same comments at the same step; or predicted comments."""
    budget_unit: Literal["tokens", "target_tokens", "targets"] = "tokens"
    accumulate: int = 1
    """Number of micro-batches per update and rank."""
    lr: float = 5e-4
    warmup: float = 0.1
    """Share of the stage over which the learning rate rises."""
    schedule: Schedule = "linear"
    """After the warm-up: linear or cosine decay to zero; constant; or divided by 1 + `epoch_decay` × epochs done."""
    epoch_decay: float = 0.0
    optimizer: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    clip: float = 1.0
    """Maximum norm of the whole gradient (0: no clipping)."""
    lr_scale: tuple[tuple[str, float], ...] = ()
    """(pattern, factor): parameters whose name matches the regular expression learn at this multiple."""
    freeze: tuple[str, ...] = ()
    """Patterns: parameters whose name matches one do not learn, nor does a phase that this leaves without parameters."""
    phases: tuple[Phase, ...] = ()
    """For objectives with several phases, such as an adversary: the parameters of each phase, its updates, and the settings in
    which its optimizer differs from this stage's. A phase that is not named here has the stage's settings."""
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    deterministic: bool = True
    """On CUDA, sum in a fixed order, so that a killed run resumes to the same bits there too."""
    log_every: int = 10
    evaluate_every: int = 200
    checkpoint_every: int = 200
    """These three count updates (0: only at the end of the stage)."""
    patience: int = 0
    """Evaluations without a better value on the dev set after which training stops (0: never)."""

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
        names = [phase.name for phase in self.phases]
        for name in names:
            if names.count(name) > 1:
                raise RamifyError(f"train.phases names {name} more than once.")
            self.of_phase(name)

    def phase(self, name: str) -> Phase:
        """The settings of a phase, by default those of a phase without any of its own."""
        return next((phase for phase in self.phases if phase.name == name), Phase(name))

    def of_phase(self, name: str) -> "TrainConfig":
        """This stage's settings as one of its phases has them."""
        own = {key: value for key, value in vars(self.phase(name)).items() if key in vars(self) and value is not None}
        try:
            return replace(self, phases=(), **own)
        except RamifyError as error:
            raise RamifyError(f"phase {name}: {error}") from None


def learns(config: TrainConfig, name: str) -> bool:
    """Whether a stage changes the parameter of this name."""
    return not any(re.search(pattern, name) for pattern in config.freeze)


def check_patterns(config: TrainConfig, names: Sequence[str], learnable: Collection[str]) -> None:
    """Raise where a pattern of a stage is no regular expression or matches no parameter, or where nothing that may learn is
    left."""
    own = {f"phases: {phase.name}: parameters": phase.parameters for phase in config.phases}
    for field, patterns in {"freeze": config.freeze, "lr_scale": [each for each, _ in config.lr_scale], **own}.items():
        for pattern in patterns:
            try:
                found = any(re.search(pattern, name) for name in names)
            except re.error as error:
                raise RamifyError(f"train.{field}: {pattern!r} is not a regular expression ({error}).") from None
            if not found:
                raise RamifyError(
                    f"train.{field}: no parameter matches the pattern {pattern!r}; names look like {', '.join(names[:3])}."
                )
    if not any(learns(config, name) for name in learnable):
        raise RamifyError(f"train.freeze: the patterns {list(config.freeze)} leave no parameter that could learn.")


def parameters_by_phase(config: TrainConfig, phases: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Which of the parameters that learn belong to which of a task's phases. Raises where one would belong to none or two."""
    for phase in config.phases:
        if phase.name not in phases:
            raise RamifyError(f"train.phases: there is no phase {phase.name}. The task has {', '.join(phases)}.")
    rest = [phase for phase in phases if not config.phase(phase).parameters]
    if len(rest) > 1:
        raise RamifyError(
            f"train.phases: the phases {' and '.join(rest)} do not say which parameters they learn. Give all phases but one "
            "their parameters."
        )
    found: dict[str, list[str]] = {phase: [] for phase in phases}
    for name in names:
        owners = [phase for phase in phases if any(re.search(each, name) for each in config.phase(phase).parameters)]
        if len(owners) > 1:
            raise RamifyError(f"train.phases: {name} belongs to {' and '.join(owners)}. A parameter has one phase.")
        if not owners and not rest:
            raise RamifyError(f"train.phases: {name} belongs to no phase. Add it to one's parameters, or to train.freeze.")
        found[(owners or rest)[0]].append(name)
    used = {phase: own for phase, own in found.items() if own}
    first = next(iter(used), None)
    if first is not None and (every := config.phase(first).every) != 1:
        raise RamifyError(
            f"train.phases: {first}: every={every}, but the first phase takes part in every update. Set every=1, and the "
            "other phases' accordingly."
        )
    return used

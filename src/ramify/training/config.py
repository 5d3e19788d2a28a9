"""Settings of training."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ramify.config import check_choice, check_fields
from ramify.errors import RamifyError
from ramify.training.optimizers import OPTIMIZERS, OptimizerSettings
from ramify.training.schedules import SCHEDULES, ScheduleSettings, schedule


@dataclass(frozen=True)
class PhaseSettings:
    """Settings of one phase of an objective that has several. Settings that are left out (null) come from the stage, and
    `every` comes from the task."""

    name: str
    every: int | None = None
    """The phase takes part in every N-th update (2: the second, fourth …). A task's first phase takes part in all updates."""
    optimizer: str | None = None
    lr: float | None = None
    warmup: float | None = None
    schedule: str | None = None
    epoch_decay: float | None = None
    slant_ratio: float | None = None
    weight_decay: float | None = None
    betas: tuple[float, float] | None = None
    bias_correction: bool | None = None
    rho: float | None = None
    accumulator_start: float | None = None
    eps: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, f"train.phases: {self.name}: ")
        if self.every is not None and self.every < 1:
            raise RamifyError(f"train.phases: {self.name}: every must be at least 1, but is {self.every}.")


@dataclass(frozen=True)
class TrainConfig(OptimizerSettings, ScheduleSettings):
    """One stage of training. It lasts `steps` updates or `epochs` epochs, or until `target_tokens` tokens of targets have been
    seen, whichever comes first. A limit of 0 does not count."""

    steps: int = 2000
    epochs: float | None = None
    """Number of passes over the examples (`steps` must then be 0). null: `steps` or `target_tokens` decides."""
    target_tokens: int = 0
    budget: int = 4096
    """Size of a micro-batch in the unit of `budget_unit`. tokens: all tokens that are computed. target_tokens: tokens of
    predicted comments alone, so that models with different contexts see the same comments at the same step. targets: predicted
    comments."""
    budget_unit: Literal["tokens", "target_tokens", "targets"] = "tokens"
    units: int = 0
    """Number of units (chapters, or other nodes of the level below the document) of a micro-batch of nested documents, from at
    least half as many documents. `budget` then bounds the tokens of one graph. 0: `budget` decides how much a batch holds."""
    accumulate: int = 1
    """Number of micro-batches per update and rank."""
    lr: float = 5e-4
    warmup: float = 0.1
    """Share of the stage over which the learning rate rises. The first of n updates has 1/n of it."""
    schedule: str = "linear"
    """Learning rate after the warm-up. linear, cosine: decays to zero. constant: stays. epochs: divided by 1 + `epoch_decay` ×
    epochs done. noam: falls with the inverse square root of the updates (Vaswani et al. 2017, equation 3). slanted_triangle:
    starts at `lr` / `slant_ratio`, and falls back to it (Howard and Ruder 2018, equation 3)."""
    epoch_decay: float = 0.0
    slant_ratio: float = 32.0
    """Ratio of the highest to the lowest learning rate (slanted_triangle)."""
    optimizer: str = "adamw"
    """Weight decay is decoupled from the gradient in adamw, and added to the gradient in the others."""
    weight_decay: float = 0.01
    undecayed: tuple[str, ...] = ()
    """Regular expressions. Parameters whose name matches one are not decayed, and neither are vectors (biases, LayerNorms)."""
    betas: tuple[float, float] = (0.9, 0.98)
    bias_correction: bool = True
    """Whether adamw corrects its moments, which start at zero. false: as in the published BERT."""
    rho: float = 0.9
    """Decay of the running means of adadelta."""
    accumulator_start: float = 0.0
    """Start of the sum of squared gradients of adagrad."""
    eps: float = 1e-6
    loss_scale: float = 1.0
    """Factor of the loss before its gradient is clipped. It matters to the clip, and to optimizers such as adagrad, whose steps
    depend on the size of the gradient. Logged losses are those without it."""
    clip: float = 1.0
    """Maximum norm of the whole gradient (0: no clipping)."""
    lr_scale: tuple[tuple[str, float], ...] = ()
    """(pattern, factor): parameters whose name matches the regular expression learn at this multiple of the learning rate."""
    layer_decay: float | None = None
    """Factor of the learning rate from the head to the highest layer of the backbone, and from each layer to the one below it
    (1 / 2.6 in Howard and Ruder 2018, section 3.2). null: all have the same rate."""
    unfreeze: Literal["all", "gradual"] = "all"
    """all: every layer learns from the first update on. gradual: in the first epoch the head learns alone, and in each later
    epoch one more layer of the backbone, from the highest down to the embedding (Howard and Ruder 2018, section 3.3)."""
    freeze: tuple[str, ...] = ()
    """Regular expressions. Parameters whose name matches one do not learn. A phase left without parameters is skipped."""
    phases: tuple[PhaseSettings, ...] = ()
    """For objectives with several phases, such as an adversary: the updates in which a phase takes part, and the optimizer
    settings in which it differs from the stage. A phase without an entry has the stage's settings."""
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    deterministic: bool = True
    """On CUDA, sum in a fixed order, so that a killed run resumes to the same bits there too. An operation of torch without a
    fixed order raises an error."""
    log_every: int = 10
    evaluate_every: int = 200
    evaluate_unit: Literal["updates", "epochs"] = "updates"
    """Unit of `evaluate_every`."""
    checkpoint_every: int = 200
    """Updates between checkpoints. 0 for this, `log_every` or `evaluate_every`: only at the end of the stage."""
    patience: int = 0
    """Number of evaluations without a better dev value after which training stops (0: never)."""
    average: int | None = None
    """Number of checkpoints, the last ones of the last stage, whose mean weights are saved (Vaswani et al. 2017, section 6.1).
    They are saved instead of the weights with the best dev score, which then decides about `patience` alone. null: no mean."""

    def __post_init__(self) -> None:
        check_fields(self, "train.")
        self._check_names()
        self._check_length()
        for name in ("budget", "accumulate"):
            if getattr(self, name) < 1:
                raise RamifyError(f"train.{name} must be at least 1, but is {getattr(self, name)}.")
        for name in (
            "log_every",
            "evaluate_every",
            "checkpoint_every",
            "patience",
            "units",
            "lr",
            "clip",
            "weight_decay",
            "epoch_decay",
            "accumulator_start",
        ):
            if getattr(self, name) < 0:
                raise RamifyError(f"train.{name} must not be negative, but is {getattr(self, name)}.")
        for name in ("eps", "loss_scale"):
            if getattr(self, name) <= 0:
                raise RamifyError(f"train.{name} must be above 0, but is {getattr(self, name)}.")
        if not 0 <= self.warmup <= 1:
            raise RamifyError(f"train.warmup is a share of the stage and must be from 0 to 1, but is {self.warmup}.")
        if self.schedule == "noam" and not self.warmup:
            raise RamifyError(
                "train.schedule=noam falls with the inverse square root of the updates relative to the warm-up, but "
                "train.warmup=0. Set train.warmup above 0."
            )
        if self.slant_ratio < 1:
            raise RamifyError(f"train.slant_ratio must be at least 1, but is {self.slant_ratio}.")
        if not self.bias_correction and self.optimizer != "adamw":
            raise RamifyError(
                f"train.bias_correction=false applies to adamw alone, but train.optimizer={self.optimizer}. Set "
                "train.optimizer=adamw, or train.bias_correction=true."
            )
        if not 0 <= self.rho <= 1:
            raise RamifyError(f"train.rho must be from 0 to 1, but is {self.rho}.")
        self._check_average()
        for pattern, factor in self.lr_scale:
            if factor < 0:
                raise RamifyError(f"train.lr_scale: the factor of {pattern!r} must not be negative, but is {factor}.")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise RamifyError(
                f"train.layer_decay must be above 0 and at most 1, but is {self.layer_decay:g}. Set it to null for one rate."
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise RamifyError(f"train.betas must be at least 0 and below 1, but are {list(self.betas)}.")
        names = [phase.name for phase in self.phases]
        for name in names:
            if names.count(name) > 1:
                raise RamifyError(f"train.phases names {name} more than once. Merge these entries.")
            self.of_phase(name)

    def _check_names(self) -> None:
        """Raise for an optimizer or a schedule that no table has."""
        for name, table in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
            check_choice(f"train.{name}", getattr(self, name), table)

    def _check_length(self) -> None:
        """Raise unless the stage ends, by updates or by epochs."""
        if self.epochs is not None and self.epochs <= 0:
            raise RamifyError(
                f"train.epochs must be above 0, but is {self.epochs}. Set it to null for a length in train.steps."
            )
        if min(self.steps, self.target_tokens) < 0 or not (self.steps or self.target_tokens or self.epochs):
            raise RamifyError(
                f"train.steps={self.steps} and train.target_tokens={self.target_tokens} do not define the length of training. "
                "Set at least one to 1 or more, and neither below 0; or set train.epochs."
            )
        if self.steps and self.epochs is not None:
            raise RamifyError(
                f"train.epochs={self.epochs} and train.steps={self.steps} both define the length of training. Set "
                "train.steps=0 to train for epochs, or train.epochs=null to train for steps."
            )
        if self.epochs is not None and self.evaluate_unit == "epochs" and self.evaluate_every > self.epochs:
            raise RamifyError(
                f"train.evaluate_every={self.evaluate_every} epochs is longer than train.epochs={self.epochs}, so the dev "
                "score would come only at the end. Set train.evaluate_every=0 for the end alone, or train.epochs to "
                f"{self.evaluate_every} or more."
            )

    def _check_average(self) -> None:
        """Raise if the stage cannot write as many checkpoints as `average` needs."""
        if self.average is None:
            return
        if self.average < 2:
            raise RamifyError(f"train.average={self.average} is no mean of checkpoints. Set it to 2 or more, or to null.")
        written = math.ceil(self.steps / self.checkpoint_every) if self.checkpoint_every else 1
        if (self.steps or not self.checkpoint_every) and written < self.average:
            raise RamifyError(
                f"train.average={self.average} needs as many checkpoints, but train.steps={self.steps} and "
                f"train.checkpoint_every={self.checkpoint_every} give {written}. Lower train.checkpoint_every or train.average."
            )

    @property
    def follows_length(self) -> bool:
        """Whether a learning rate depends on the length of the stage."""
        phases = (self, *(self.of_phase(phase.name) for phase in self.phases))
        shares = (0.0, 0.5 * self.warmup, self.warmup, 0.5, 1.0)
        return any(len({schedule(phase, share, share) for share in shares}) > 1 for phase in phases)

    def phase(self, name: str) -> PhaseSettings:
        """The settings of a phase; empty ones if it has no entry in `phases`."""
        return next((phase for phase in self.phases if phase.name == name), PhaseSettings(name))

    def of_phase(self, name: str) -> "TrainConfig":
        """This stage's settings, replaced by those that a phase sets."""
        changes = {key: value for key, value in vars(self.phase(name)).items() if key in vars(self) and value is not None}
        try:
            return replace(self, phases=(), **changes)
        except RamifyError as error:
            raise RamifyError(f"phase {name}: {error}") from None


def learns(config: TrainConfig, name: str) -> bool:
    """Whether a stage changes the parameter of this name."""
    return not any(re.search(pattern, name) for pattern in config.freeze)


def check_patterns(config: TrainConfig, names: Sequence[str], learnable: Collection[str]) -> None:
    """Raise if a pattern of a stage is no regular expression or matches no parameter, or if no learnable parameter is left."""
    patterns_of = {
        "freeze": config.freeze,
        "lr_scale": [pattern for pattern, _ in config.lr_scale],
        "undecayed": config.undecayed,
    }
    for field, patterns in patterns_of.items():
        for pattern in patterns:
            try:
                matches = any(re.search(pattern, name) for name in names)
            except re.error as error:
                raise RamifyError(f"train.{field}: {pattern!r} is not a regular expression ({error}). Correct it.") from None
            if not matches:
                raise RamifyError(
                    f"train.{field}: no parameter matches the pattern {pattern!r}. Correct it, or set train.{field}=[] if it "
                    "is the recipe's and its part of the model is left out; parameters have names such as "
                    f"{', '.join(names[:3])}."
                )
    if not any(learns(config, name) for name in learnable):
        raise RamifyError(f"train.freeze: the patterns {list(config.freeze)} leave no parameter that could learn. Remove one.")

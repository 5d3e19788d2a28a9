"""The stages of a run: the part of the model that learns in each, and its parameters.

Without `task.frozen`, all levels learn in every stage. With it, the stages are, in this order:

- `LOWEST`: the frozen level and those below learn, from batches of `train.budget` tokens without the levels above.
- `ABOVE`: the levels above learn, and the vectors of tokens that are added to the frozen level's. They read the frozen level's
  vectors, which are computed once. With `task.above=in_turn`, this is one stage for each level above, from the lowest: it reads
  the vectors of the level below, which is then frozen, too. Documents learn beside their units, in the last of these stages.
- `DECODER`: the decoder of the frozen level learns, on the vectors that the levels above now read, from batches as of `LOWEST`.
- `ALL`: all levels learn from texts.

A run that starts from a saved model (`init`) leaves out the first. A run with fewer stages leaves out the last ones. A run's
settings of `ABOVE` apply to each of its stages.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ramify.batching.document_batch import Role
from ramify.batching.views.documents import unit_level
from ramify.errors import RamifyError, counted
from ramify.tasks.nested.task import NestedAutoencoder

SEQUENCE = (Role.LOWEST, Role.ABOVE, Role.DECODER, Role.ALL)

ON_LOWEST = (Role.LOWEST, Role.DECODER)
"""Roles whose batches hold the frozen level and those below alone."""

TEACH_TOKENS = (Role.LOWEST, Role.ALL)
"""Roles in which tokens learn, and with them a memory of names."""


@dataclass(frozen=True)
class Scope:
    """The levels that learn in a stage, counted from the lowest: `first` to `end` - 1. Its batches hold those below `end`."""

    role: Role
    first: int
    end: int

    @property
    def levels(self) -> slice:
        """The levels that learn, of all levels of a model."""
        return slice(self.first, self.end)

    def later(self, frozen: int) -> int:
        """The number of stages of `ABOVE` before this one. `frozen`: the number of levels that `task.frozen` freezes."""
        return self.first - frozen if self.role is Role.ABOVE else 0


def roles(frozen: str | None, init: str, number: int) -> tuple[Role, ...]:
    """The role of each of a run's settings of stages. Raises `RamifyError` if there are more settings than roles."""
    if frozen is None:
        return (Role.ALL,) * number
    sequence = SEQUENCE[1:] if init else SEQUENCE
    if number > len(sequence):
        names = ", ".join(role.name.lower() for role in sequence)
        raise RamifyError(
            f"task.frozen={frozen} has {counted(len(sequence), 'stage')} ({names}), but the run has {number}. Leave some out, "
            "or set task.frozen=none."
        )
    return sequence[:number]


def scopes(role: Role, frozen: int, levels: Sequence[str], *, in_turn: bool) -> tuple[Scope, ...]:
    """The stages with a role. `frozen`: the number of levels that `task.frozen` freezes. `in_turn`: whether each level above
    has a stage of its own."""
    depth = len(levels)
    match role:
        case Role.ALL:
            return (Scope(role, 0, depth),)
        case Role.LOWEST:
            return (Scope(role, 0, frozen),)
        case Role.DECODER:
            return (Scope(role, frozen - 1, frozen),)
        case Role.ABOVE:
            highest = max(frozen, unit_level(levels)) if in_turn else frozen
            return (*(Scope(role, level, level + 1) for level in range(frozen, highest)), Scope(role, highest, depth))


def frozen_levels(frozen: str | None, levels: Sequence[str], init_levels: Sequence[str] | None) -> int:
    """The number of levels that `task.frozen` freezes. `init_levels`: those of the model from which the run starts.

    Raises `RamifyError` if the level does not exist, is the highest, or has not been trained.
    """
    if frozen is None:
        return 0
    if frozen not in levels:
        raise RamifyError(f"task.frozen={frozen} is no level of the model. Its levels are {', '.join(levels)}.")
    if frozen == levels[-1]:
        raise RamifyError(f"task.frozen={frozen} is the highest level, so no level would learn. Choose a lower one.")
    if init_levels is not None and frozen not in init_levels:
        raise RamifyError(
            f"task.frozen={frozen} is no level of the model in --init, which has {', '.join(init_levels)}. Freeze one of "
            "these, or train that level first."
        )
    return levels.index(frozen) + 1


def frozen_parameters(task: NestedAutoencoder, scope: Scope) -> tuple[str, ...]:
    """The pattern of the parameters that do not learn in a stage, for `train.freeze`, if there are any."""
    # Every name is compared with every pattern: one for each parameter would take longer than the stage's updates.
    names = "|".join(re.escape(name) for name, _ in task.named_parameters() if not _learns(task, scope, name))
    return (f"^({names})$",) if names else ()


def _learns(task: NestedAutoencoder, scope: Scope, name: str) -> bool:
    # Documents that are read as a collection belong to the level after the highest.
    level = min(task.level_of(name), task.backbone.depth - 1)
    learns = scope.first <= level < scope.end
    match scope.role:
        case Role.ALL:
            return learns
        case Role.LOWEST:
            return learns and not task.adds_tokens(name)
        case Role.ABOVE:
            return learns or (scope.first == 1 and task.adds_tokens(name))
        case Role.DECODER:
            return learns and task.decodes(name)

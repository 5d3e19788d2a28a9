"""The stages of a run: the part of the model that learns in each, and its parameters.

Without `task.frozen`, all levels learn in every stage. With it, the stages are, in this order:

- `LOWEST`: the frozen level and those below learn, from batches of `train.budget` tokens without the levels above.
- `ABOVE`: the levels above learn, and the vectors of tokens that are added to the frozen level's. They read the frozen level's
  vectors, which are computed once.
- `DECODER`: the decoder of the frozen level learns, on the vectors that the levels above now read, from batches as of `LOWEST`.
- `ALL`: all levels learn from texts.

A run that starts from a saved model (`init`) leaves out the first. A run with fewer stages leaves out the last ones.
"""

import re
from collections.abc import Sequence

from ramify.batching.document_batch import Role
from ramify.errors import RamifyError, counted
from ramify.tasks.nested.task import NestedAutoencoder

SEQUENCE = (Role.LOWEST, Role.ABOVE, Role.DECODER, Role.ALL)

ON_LOWEST = (Role.LOWEST, Role.DECODER)
"""Roles whose batches hold the frozen level and those below alone."""


def roles(frozen: str | None, init: str, number: int) -> tuple[Role, ...]:
    """The role of each of a run's stages. Raises `RamifyError` if there are more stages than roles."""
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


def frozen_parameters(task: NestedAutoencoder, role: Role, frozen: int) -> tuple[str, ...]:
    """Patterns of the parameters that do not learn in a stage, for `train.freeze`. `frozen`: the number of frozen levels."""
    names = [name for name, _ in task.named_parameters()]
    return tuple(f"^{re.escape(name)}$" for name in names if not _learns(task, role, frozen, name))


def _learns(task: NestedAutoencoder, role: Role, frozen: int, name: str) -> bool:
    level = task.level_of(name)
    match role:
        case Role.ALL:
            return True
        case Role.LOWEST:
            return level < frozen and not task.adds_tokens(name)
        case Role.ABOVE:
            return level >= frozen or (frozen == 1 and task.adds_tokens(name))
        case Role.DECODER:
            return level == frozen - 1 and task.decodes(name)

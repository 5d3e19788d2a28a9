"""Recipes: functions whose signatures are the command lines of `ramify train NAME`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramify.inference.base import Pipeline
    from ramify.runs import Run


@dataclass(frozen=True)
class Positional:
    """Marks a parameter as an argument of the command line, not an option: `Annotated[str, Positional("A run.")]`."""

    help: str


class Recipe(ABC):
    """A way to train a model. Parameters carry their help text: `steps: Annotated[int, "Updates."] = 2000`.

    The module of a recipe must not import torch at its top, so that `--help` answers at once.
    """

    function: Callable[..., Any]
    pack: Callable[..., None] | None
    """Writes a trained model in half precision, with its card: `pack(run, data, out)`. Further parameters become options."""

    @abstractmethod
    def __call__(self, *arguments: Any, **options: Any) -> Any: ...


@dataclass(frozen=True)
class Training(Recipe):
    """A recipe whose function returns a `Run` to execute.

    The run has the settings that its data set determines, if that exists by now. `Run.changed` comes after them, so `--set`
    wins.
    """

    function: "Callable[..., Run]"
    pack: Callable[..., None] | None = None
    seeds: bool = False
    """Whether the command trains several seeds and keeps the best one on dev (`--seeds`)."""

    def __call__(self, *arguments: Any, **options: Any) -> "Run":
        from ramify.dataset.store import Store

        run = self.function(*arguments, **options)
        return run.adapt_to_data() if Store.is_in(run.data) else run


@dataclass(frozen=True)
class Fit(Recipe):
    """A recipe whose function fits a small part of a trained model and returns the model, within about a minute."""

    function: "Callable[..., Pipeline]"
    next_command: str
    """The `ramify` command to suggest afterwards, which takes the model by `--model`."""
    pack: Callable[..., None] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> "Pipeline":
        return self.function(*arguments, **options)

"""What a recipe is: a function whose signature is the command line of `ramify train NAME`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramify.inference.base import Pipeline
    from ramify.runs import Run


@dataclass(frozen=True)
class Positional:
    """Marks a parameter that the command line takes without an option's name: `Annotated[str, Positional("A run.")]`."""

    help: str


class Recipe(ABC):
    """A way to a trained model. Parameters carry their help text: `steps: Annotated[int, "Updates."] = 2000`.

    Nothing that a recipe's file imports at its top may import torch, so that `--help` answers at once.
    """

    function: Callable[..., Any]
    pack: Callable[..., None] | None
    """Writes a trained model small, with its card: `pack(run, data, out)`. Further parameters become options."""

    @abstractmethod
    def __call__(self, *arguments: Any, **options: Any) -> Any: ...


@dataclass(frozen=True)
class Training(Recipe):
    """A recipe whose function returns a `Run` to be carried out."""

    function: "Callable[..., Run]"
    pack: Callable[..., None] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> "Run":
        return self.function(*arguments, **options)


@dataclass(frozen=True)
class Fit(Recipe):
    """A recipe whose function adds a small part to a trained model and returns it, within a minute or so."""

    function: "Callable[..., Pipeline]"
    pack: Callable[..., None] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> "Pipeline":
        return self.function(*arguments, **options)

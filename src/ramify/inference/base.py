"""Pipelines: models behind methods that take trees, texts and messages, never tensors."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ramify.errors import CannotError, RamifyError, counted, printable, with_article
from ramify.inference.verbs import VERBS, Array, Option, Takes
from ramify.tokenizer import RowLayout, Tokenizer
from ramify.tree import Tree

TOKENS = 16_384
"""Number of tokens computed at once without gradients."""


SHOWN = 5
"""Number of labels in the `repr` of a model."""


class Pipeline(ABC):
    """A model ready for use. `ramify.load` returns a pipeline, and `ramify.save` writes one."""

    verbs: ClassVar[tuple[str, ...]]
    """Names of the methods that answer questions; `VERBS` describes them."""
    abilities: ClassVar[tuple[str, ...]] = ()
    """The abilities that some options of verbs need."""
    usage: ClassVar[tuple[str, ...]]
    """Lines of Python for the model card, in which `model` is the pipeline."""
    backbone: Any
    """An `AnyBackbone`; each kind of pipeline narrows the type."""
    tokenizer: Tokenizer
    input: Any
    """Input settings of the model, as in training."""
    kind: str | None = None
    """The name of the kind of run that makes and evaluates such a model; None: no run made it."""
    _labels: tuple[str, ...] = ()
    """The names of the labels that it predicts; empty if they have none."""
    _predicts: str = ""
    """The kind of its predictions, if these are no labels, as its `repr` names it."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """The module that holds all weights: the trained task, or the backbone alone."""

    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """The frozen settings that are saved beside the model's own, by name."""

    @property
    def layout(self) -> RowLayout:
        """The special tokens around a text that the model reads."""
        return self.tokenizer.layout(self.input.layout, self.backbone.config.vocab_size)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels that the model predicts. Raises `CannotError` if these are not classes or tags."""
        if not self._labels:
            raise self._lacking("labels")
        return self._labels

    def __repr__(self) -> str:
        """The task, the model, its size, its labels and the verbs, in a line."""
        parts = dict.fromkeys((type(self.module).__name__, self.backbone.title))
        weights = sum(parameter.numel() for parameter in self.module.parameters())
        facts = [counted(weights, "parameter"), counted(self.tokenizer.vocab_size, "piece")]
        if self._labels:
            names = [*map(printable, self._labels[:SHOWN]), *["…"] * (len(self._labels) > SHOWN)]
            facts.append(f"{counted(len(self._labels), 'label')} ({', '.join(names)})")
        elif self._predicts:
            facts.append(f"predicts {self._predicts}")
        return f"<{type(self).__name__}: {' of '.join(parts)}, {', '.join(facts)}; can {', '.join(self.verbs)}>"

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def to(self, device: torch.device | str) -> Self:
        """Move the weights, and return the pipeline."""
        self.module.to(device)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._lacking(name)

    def _lacking(self, name: str) -> CannotError:
        return CannotError(f"this {type(self).__name__} has no {name}; it can {', '.join(self.verbs)}.")


def longer_than_trained(lengths: Sequence[int], what: str, longest: int, setting: str) -> tuple[str, ...]:
    """A note about the texts that are longer than any text of training, if there are any.

    `lengths`: the tokens of each text. `what` names a text. `longest`: the tokens of the longest text that the model was
    trained on, because of `setting`.
    """
    over = [length for length in lengths if length > longest]
    if not over:
        return ()
    texts = f"the {what} has {counted(over[0], 'token')}"
    if len(lengths) > 1:
        have = "has" if len(over) == 1 else "have up to"
        texts = f"{len(over):,} of {counted(len(lengths), what)} {have} {counted(max(over), 'token')}"
    return (
        f"{texts}, but the model was trained on at most {longest:,} ({setting}). Longer texts are off its distribution; divide "
        "them.",
    )


def lacking(pipeline: Pipeline, verb: str, given: Mapping[str, Any]) -> Iterator[tuple[Option, Any]]:
    """The options of a verb that a model lacks and that have a value other than their default, with this value."""
    for option in VERBS[verb].options:
        value = given.get(option.name, option.default)
        if option.needs and option.needs not in pipeline.abilities and value != option.default:
            yield option, value


def check_options(pipeline: Pipeline, verb: str, given: Mapping[str, Any]) -> None:
    """Raise `RamifyError` for an option that the verb has for other models only."""
    for option, value in lacking(pipeline, verb, given):
        raise RamifyError(
            f"{option.name}={value!r} needs {option.needs}, but this is {with_article(type(pipeline).__name__)}. Leave "
            f"{option.name} out."
        )


def verb(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of a pipeline a verb of `VERBS`, which takes one item or a list, and gives one answer or a list of them.

    The method answers about its first argument. Where that may be a node of a tree, an item is a text, a tree of one node, or a
    pair of a tree and a node. Raises `RamifyError` for an option that the verb has for other models only.
    """
    name = method.__name__
    signature = inspect.signature(method)
    first = list(signature.parameters)[1]

    @wraps(method)
    def ask(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        pipeline, declared = args[0], VERBS[name]
        item: Any = bound.arguments.get(first)
        check_options(pipeline, name, bound.arguments)
        if declared.answer is Array or declared.together or first not in bound.arguments:
            return method(*args, **options)
        others = {name: value for name, value in bound.arguments.items() if name != first}
        if isinstance(item, list | tuple) and others.get("node") is not None:
            raise RamifyError(
                f"node={others['node']!r} names a node of one tree, but a {type(item).__name__} is given. Give pairs of a tree "
                "and a node."
            )

        def ask_one(item: Any) -> Any:
            if declared.takes is Takes.NODE and isinstance(item, tuple):
                if len(item) != 2:
                    raise RamifyError(
                        f"{name} got a tuple of {counted(len(item), 'value')}, but a tuple is a pair of a tree and a node. "
                        "Pass several texts or trees as a list."
                    )
                tree, node = item
                return method(**{**others, first: tree, "node": node})
            return method(**{**others, first: item})

        return [ask_one(element) for element in item] if declared.many and _is_list(item, declared.takes) else ask_one(item)

    return ask


def _is_list(item: Any, takes: Takes) -> bool:
    """Whether there are several items. The messages of one log may be a list, too."""
    return isinstance(item, list) and (takes is not Takes.LOG or any(isinstance(element, Tree | list) for element in item))

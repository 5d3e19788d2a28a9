"""Questions to a language model about single words of a node's text."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.batch import Batch, Collator, select_positions
from ramify.batching.forest import Forest
from ramify.batching.text_input import FOREIGN, Context, TextInput
from ramify.batching.views.base import Example
from ramify.batching.views.comment_trees import Discussions, units
from ramify.errors import RamifyError, with_article
from ramify.inference.base import TOKENS
from ramify.models.base import Backbone, decode_parts
from ramify.tasks.masked_lm import MaskedLM
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree


class Head(NamedTuple):
    """The first fields of answers about a node's text."""

    node: str
    context: str
    ancestors: tuple[str, ...]
    """The ids of the ancestors in the context, oldest first."""


class MaskQuery(ABC):
    """The text of a node, which may be varied, in its surroundings."""

    tokenizer: Tokenizer
    tree: Tree
    node: int

    @property
    @abstractmethod
    def head(self) -> "Head":
        """The first fields of every answer."""

    @abstractmethod
    def log_probabilities(
        self, texts: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]
    ) -> Float[Tensor, "text place vocab"]:
        """Log-probabilities at the `asked` places of every variant of the text, each given all tokens but the mask tokens. All
        variants have the same length and the same number of places."""


def chosen_node(tree: Tree | str, node: str | int | None) -> tuple[Tree, str | int]:
    """A node of a tree. A string is a tree of one node. Raises `RamifyError` if several nodes are given and none is named."""
    if isinstance(tree, str):
        tree = Tree((Node(tree),))
    if not isinstance(tree, Tree):
        raise RamifyError(f"a tree or a string is needed, not {with_article(type(tree).__name__)}. Pass a Tree or a string.")
    if node is None and len(tree) > 1:
        raise RamifyError(f"tree {tree.id!r} has {len(tree)} nodes. Name one of them as `node`, by its id or its place.")
    return tree, 0 if node is None else node


def node_of(tree: Tree, node: str | int) -> int:
    """The number of a node. Raises `RamifyError` if the tree lacks it."""
    place = tree.index(node) if isinstance(node, str) else node
    if not 0 <= place < len(tree):
        raise RamifyError(f"tree {tree.id!r} has no node {node}; its nodes are 0 to {len(tree) - 1}.")
    return place


@dataclass(frozen=True)
class NodeInContext:
    """A node's text and context, as a model reads them."""

    tokenizer: Tokenizer
    input: TextInput
    forest: Forest
    tree: Tree
    node: int
    part: int
    """The node's place in the forest; the place of its first part if long texts are chained."""
    context: tuple[int, ...]
    """Places of the context in the forest."""

    @classmethod
    def of(
        cls,
        backbone: Backbone,
        tokenizer: Tokenizer,
        input: TextInput,
        tree: Tree,
        node: str | int,
        context: Context | None,
    ) -> "NodeInContext":
        # A model trained on other comments' ancestors reads the node's own ones.
        context = context or ("tree" if input.context in FOREIGN else input.context)
        if context == "mismatched":
            raise RamifyError(
                "context=mismatched reads another tree, but there is no other tree. Set context to tree, parent, root or none."
            )
        if context == "sibling-branch":
            raise RamifyError(
                "context=sibling-branch reads a random other branch, so its answer would be random. Set context to tree, "
                "parent, root or none; `ramify evaluate` measures the loss with another branch."
            )
        place = node_of(tree, node)
        input = backbone.in_context(input, context)
        forest = input.forest([tree], tokenizer)
        part = int(np.searchsorted(forest.node, place))
        view = Discussions(forest, units(forest, [0], predict_post=True), input)
        whole = view.example(0)
        row = int(np.flatnonzero(whole.targets == part)[0])
        stop = int(whole.context_lengths[: row + 1].sum())
        start = stop - int(whole.context_lengths[row])
        return cls(tokenizer, input, forest, tree, place, part, tuple(whole.context[start:stop].tolist()))

    @property
    def head(self) -> Head:
        ancestors = tuple(self.tree.nodes[index].id for index in np.unique(self.forest.node[list(self.context)]))
        return Head(self.tree.nodes[self.node].id, self.input.context, ancestors)

    def batch(self, texts: Sequence[Sequence[int]]) -> tuple[Batch, int]:
        """Variants of the node's text, of equal length, as the targets of a batch, and the place of their first token in a row.

        Raises `RamifyError` if they are longer than the model reads.
        """
        length, room = len(texts[0]), self.input.room(self.tokenizer)
        if length > room:
            raise RamifyError(
                f"node {self.tree.nodes[self.node].id!r} has {length} tokens; this model reads {room}. Shorten the text."
            )
        forest = self.forest.with_text(self.part, texts[0])
        count = len(texts)
        example = Example(
            np.full(count, self.part),
            np.ones(count),
            np.tile(np.array(self.context, dtype=np.int64), count),
            np.full(count, len(self.context)),
        )
        batch = Collator(forest, self.tokenizer, self.input)([example])
        ids = batch.target_ids.view(count, -1).clone()
        first = ids.shape[1] - length - batch.frame.after
        ids[:, first : first + length] = torch.tensor([list(text) for text in texts])
        return replace(batch, target_ids=ids.flatten()), first


@dataclass(frozen=True)
class ContextQuery(MaskQuery):
    """A query of a masked language model, given the node's context."""

    task: MaskedLM
    tokenizer: Tokenizer
    tree: Tree
    node: int
    text: NodeInContext

    @classmethod
    def of(cls, task: MaskedLM, tree: Tree, node: str | int, context: Context | None) -> "ContextQuery":
        text = NodeInContext.of(task.backbone, task.tokenizer, task.input, tree, node, context)
        return cls(task, task.tokenizer, tree, text.node, text)

    @property
    def head(self) -> Head:
        return self.text.head

    @property
    def num_special(self) -> int:
        """The number of special tokens around the text."""
        return self.text.input.row_layout(self.tokenizer).num_special

    @torch.no_grad()
    def log_probabilities(
        self, texts: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]
    ) -> Float[Tensor, "text place vocab"]:
        task, count = self.task, len(texts)
        batch, first = self.text.batch(texts)
        places = torch.tensor([list(places) for places in asked]) + first
        index = (places + torch.arange(count)[:, None] * (len(batch.target_ids) // count)).flatten()
        batch = replace(
            batch,
            output_positions=select_positions(index, np.full(count, places.shape[1]), batch.targets, batch.readers),
        ).to(task.device)
        with task.evaluating():
            parts = decode_parts(task.backbone, batch, TOKENS)
            scores = [task.head(hidden.tokens).float().log_softmax(-1) for _, hidden in parts]
        return torch.cat(scores).unflatten(0, (count, -1)).cpu()

"""Settings of how texts and their contexts are read, saved with a model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ramify.batching.forest import Forest, Overflow
from ramify.config import check_fields
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tokenizer import RowLayout, TextLayout, Tokenizer
from ramify.tree import Tree

Context = Literal["tree", "none", "null", "parent", "root", "mismatched", "sibling-branch"]
"""The context of a target. tree: its ancestors. none: nothing. null: the model's learned null row alone. parent: its parent
alone. root: the post alone. mismatched: the ancestors of a comment of equal depth in another tree. sibling-branch: the
ancestors of a comment of the same tree that has equal depth and another parent."""

BLIND = ("none", "null")
"""Contexts in which a target reads no other node of its tree."""

FOREIGN = ("mismatched", "sibling-branch")
"""Contexts in which a target reads the ancestors of another comment."""

Rule = Literal["post_nearest", "nearest"]
"""The ancestors that a target keeps if it has too many: the post and the nearest, or the nearest alone."""


@dataclass(frozen=True)
class TextInput:
    """Input settings for texts and their context. They are saved with the model, so that it is used as it was trained."""

    max_tokens: int = 128
    """Longest text, with special tokens."""
    overflow: Overflow = "truncate"
    max_context: int = 0
    """Maximum number of nodes that a target reads (cl in the paper); 0: as many as `max_tokens`, as in the paper."""
    rule: Rule = "post_nearest"
    context: Context = "tree"
    concatenate: int = 0
    """Write the context's texts into the target's own row, up to this many tokens. 0: keep them out of it."""
    layout: TextLayout = "bert"
    """The special tokens around a text, and between the texts of one row."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        if self.max_tokens < 3:
            raise RamifyError(f"input.max_tokens must be at least 3, to hold special tokens, but is {self.max_tokens}.")
        if self.max_context < 0:
            raise RamifyError(f"input.max_context must be at least 1, or 0 for input.max_tokens, but is {self.max_context}.")
        if self.concatenate and self.concatenate < 3:
            raise RamifyError(f"input.concatenate must be at least 3 tokens, or 0 for no context, but is {self.concatenate}.")

    @property
    def context_length(self) -> int:
        return self.max_context or self.max_tokens

    @property
    def longest(self) -> int:
        """Maximum length of a row. Context never shortens a target's own text."""
        return max(self.max_tokens, self.concatenate)

    def row_layout(self, tokenizer: Tokenizer) -> RowLayout:
        return tokenizer.layout(self.layout)

    def room(self, tokenizer: Tokenizer) -> int:
        """Maximum length of a text without its special tokens."""
        return self.max_tokens - self.row_layout(tokenizer).num_special

    def forest(self, data: Store | Iterable[Tree], tokenizer: Tokenizer, prompt: str = "") -> Forest:
        """Tokenize trees, with a prompt before every text, and lay them out as these settings require."""
        store = data if isinstance(data, Store) else Store.from_trees(data)
        return Forest.open(store, tokenizer, self.max_tokens, self.overflow, self.layout, prompt=prompt)

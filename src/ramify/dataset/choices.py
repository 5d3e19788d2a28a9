"""Questions with choices in a data set: a text, the choices below it, and the right one.

The choices of a question are its children. A question may lie below a passage. Labels of choices are true and false.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.dataset.labels import node_labels, nodes_of
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.tree import Indices


@dataclass(frozen=True, eq=False)
class ChoiceSets:
    """Questions in ascending order, with their choices in the order of the data."""

    questions: Int[NDArray, " question"]
    """The node of each question."""
    choices: tuple[Int[NDArray, " _choice"], ...]
    """The nodes of the choices of each question."""

    def __len__(self) -> int:
        return len(self.questions)


@dataclass(frozen=True, eq=False)
class LabelledChoices:
    """The questions of a split whose right choice is known."""

    sets: ChoiceSets
    right: Int[NDArray, " question"]
    """The place of the right choice of each question."""
    unlabelled: int
    """Questions without a label."""
    unclear: int
    """Questions with several right choices, or without any."""

    def at(self, places: Int[NDArray, " chosen"]) -> "LabelledChoices":
        """Some of the questions. The counts stay those of the whole."""
        sets = ChoiceSets(self.sets.questions[places], tuple(self.sets.choices[place] for place in places.tolist()))
        return replace(self, sets=sets, right=self.right[places])


def choice_sets(store: Store, nodes: Indices) -> ChoiceSets:
    """The questions among some nodes of a store: those with at least two nodes below them, none of which has any below."""
    parent = np.asarray(store.parent, dtype=np.int64)
    children = np.bincount(parent[parent >= 0], minlength=store.num_nodes)
    inner = np.unique(parent[(parent >= 0) & (children > 0)])
    asked = np.zeros(store.num_nodes, dtype=bool)
    asked[nodes] = True
    # A node with a child that has children of its own is a passage.
    is_question = asked & (children >= 2)
    is_question[inner] = False
    questions = np.flatnonzero(is_question)
    below = np.flatnonzero((parent >= 0) & is_question[np.maximum(parent, 0)])
    order = below[np.argsort(parent[below], kind="stable")]
    return ChoiceSets(questions, tuple(np.split(order, np.cumsum(children[questions])[:-1])) if len(questions) else ())


def labelled_choices(store: Store, split: Split) -> LabelledChoices:
    """The questions of a split with one right choice each. Raises `RamifyError` if there is none."""
    labels = node_labels(store, split)
    where = f"{store.path or 'the data'}, split {split}"
    if others := [value for value in labels.values if not isinstance(value, bool)]:
        raise RamifyError(
            f"{where}: the label {others[0]!r:.80} is neither true nor false, so the texts are no choices. Build the data from "
            "a set with choices, such as COPA, SWAG or RACE, or train with `ramify train classify`."
        )
    sets = choice_sets(store, nodes_of(store, split))
    is_known, is_right = np.zeros((2, store.num_nodes), dtype=bool)
    is_known[labels.nodes] = True
    is_right[labels.nodes] = labels.values
    known = np.array([is_known[choices].all() for choices in sets.choices], dtype=bool)
    clear = np.array([is_right[choices].sum() == 1 for choices in sets.choices], dtype=bool) & known
    if not clear.any():
        raise RamifyError(
            f"{where}: {counted(len(sets), 'question')} with choices, and none has exactly one right choice. Choose another "
            "split, or build the data from a set with choices, such as COPA, SWAG or RACE."
        )
    kept = np.flatnonzero(clear)
    chosen = ChoiceSets(sets.questions[kept], tuple(sets.choices[place] for place in kept))
    right = np.array([int(is_right[sets.choices[place]].argmax()) for place in kept], dtype=np.int64)
    return LabelledChoices(chosen, right, int((~known).sum()), int((known & ~clear).sum()))

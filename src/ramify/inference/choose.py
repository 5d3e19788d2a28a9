"""The likeliest choices of questions from a trained model."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.choice_batch import ChoiceCollator
from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.views.choices import ChoiceView
from ramify.dataset.choices import ChoiceSets, LabelledChoices, choice_sets, labelled_choices
from ramify.dataset.labels import labels_at, nodes_of
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.inference.answers import Choice, Prediction
from ramify.inference.label_pipeline import Pairs, Predicts, Question, distinct_ids, label_batches
from ramify.tasks.base import Readings
from ramify.tasks.multiple_choice import MultipleChoice, rows_of
from ramify.tree import Indices, Node, Tree

EXAMPLE = 'Pass (text, ["a choice", "another"]), or a tree whose question has its choices below it'


class Chooser(Predicts):
    """The right one of several choices."""

    usage: ClassVar[tuple[str, ...]] = ('model.predict(("It rained.", ["The street is wet.", "The street is dry."]))',)
    task: MultipleChoice
    asked = "questions"

    def __init__(self, task: MultipleChoice) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def reads_pairs(self) -> Pairs:
        return "never"

    def predict_items(
        self, items: Sequence[Question], ids: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[Prediction]:
        """The likeliest choice of each question. The metadata of a tree may say what is asked for (`question`: cause or
        effect), and what stands before all choices (`sent2`). Raises `RamifyError` for an item without choices."""
        trees = [item if isinstance(item, Tree) else _tree(item) for item in items]
        if not trees:
            return []
        store = Store.from_trees(trees)
        sets = choice_sets(store, np.arange(store.num_nodes))
        trees_of = store.tree_of(sets.questions)
        if lacking := sorted(set(range(len(trees))) - set(trees_of.tolist())):
            name = repr(trees[lacking[0]].id) if trees[lacking[0]].id else str(lacking[0])
            raise RamifyError(f"tree {name} has no question, which is a node with two or more choices below it. {EXAMPLE}.")
        named = [
            question if isinstance(items[int(tree)], Tree) else ids[int(tree)]
            for question, tree in zip(distinct_ids(store, sets.questions), trees_of, strict=True)
        ]
        return self._answers(store, sets, named, progress)

    def predict_store(
        self,
        store: Store,
        nodes: Indices | None = None,
        ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
        *,
        split: Split = "all",
    ) -> list[Prediction]:
        """The likeliest choice of each question among some nodes of a store; None: among all of a split."""
        if not len(store.split(split)):
            raise store.no_trees(split)
        sets = choice_sets(store, nodes_of(store, split) if nodes is None else nodes)
        if not len(sets):
            raise RamifyError(
                f"{store.path or 'the data'} has no question, which is a text with two or more choices below it. Build the "
                "data from a set with choices, such as COPA, SWAG or RACE."
            )
        return self._answers(store, sets, distinct_ids(store, sets.questions) if ids is None else ids, progress)

    def _answers(
        self, store: Store, sets: ChoiceSets, ids: Sequence[str], progress: Callable[[int], None] | None
    ) -> list[Prediction]:
        scores = choice_scores(self.task, view_of(self.task, store, sets, None), progress=progress)
        answers: list[Prediction] = []
        for question, row, choices in zip(ids, scores, sets.choices, strict=True):
            shares = torch.from_numpy(row).softmax(0).tolist()
            texts = _distinct(store.texts(choices))
            right = next((text for text, label in zip(texts, labels_at(store, choices)) if label is True), None)
            answers.append(Choice(question, texts[int(row.argmax())], dict(zip(texts, shares, strict=True)), gold=right))
        return answers


def _tree(item: Any) -> Tree:
    """A tree of a question and its choices."""
    if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str) or isinstance(item[1], str):
        raise RamifyError(f"predict needs a text and its choices, but {type(item).__name__} {item!r:.60} is given. {EXAMPLE}.")
    text, choices = item
    if not isinstance(choices, Sequence) or not all(isinstance(choice, str) for choice in choices):
        raise RamifyError(f"the choices of {text!r:.60} must be a list of texts, but are {choices!r:.60}. {EXAMPLE}.")
    if len(choices) < 2:
        raise RamifyError(f"the text {text!r:.60} has fewer than two choices, so there is nothing to choose. {EXAMPLE}.")
    return Tree((Node(text, parents=()), *(Node(choice, parents=(0,)) for choice in choices)))


def _distinct(texts: Sequence[str]) -> list[str]:
    """The texts, with numbers behind those that occur before."""
    names: list[str] = []
    for text in texts:
        name, number = text, 1
        while name in names:
            number += 1
            name = f"{text} ({number})"
        names.append(name)
    return names


def view_of(task: MultipleChoice, store: Store, sets: ChoiceSets, right: Ints | None) -> ChoiceView:
    """Questions as a task reads them."""
    return ChoiceView(store, task.tokenizer, sets, task.input, right, task.backbone.config.vocab_size)


@torch.no_grad()
def choice_scores(
    task: MultipleChoice,
    view: ChoiceView,
    *,
    progress: Callable[[int], None] | None = None,
    read: Callable[[LabelledBatch, Readings], None] | None = None,
) -> list[Float[NDArray, " _choice"]]:
    """The scores of the choices of each question of a view, in their order. `read` is given each batch with its readings, for
    which the view needs the right choices."""
    found: dict[int, Float[NDArray, " _choice"]] = {}
    with task.evaluating():
        for numbers, batch in label_batches(view, ChoiceCollator.of(view), progress):
            moved = batch.to(task.device)
            vectors = task.row_vectors(moved)
            scores = task.table(vectors, moved)
            # Rows of one question are adjacent among the questions of the batch.
            questions = np.zeros(len(scores), dtype=np.int64)
            questions[batch.order] = numbers
            counts = rows_of(batch).choices.host_lengths.tolist()
            for number, row, count in zip(questions.tolist(), scores.double().cpu().numpy(), counts, strict=True):
                found[number] = row[:count]
            if read is not None:
                read(moved, task.target_readings(moved, vectors, scores))
    return [found[number] for number in range(len(view))]


def held_out(task: MultipleChoice, store: Store, split: Split) -> tuple[ChoiceView, LabelledChoices]:
    """The questions of a split that is scored."""
    labelled = labelled_choices(store, split)
    return view_of(task, store, labelled.sets, labelled.right), labelled

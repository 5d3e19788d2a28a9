"""The common part of the pipelines that predict labels of texts: the verb `predict` for texts, pairs of texts and trees.

A pipeline of another label task is a final subclass that adds `predict_nodes`, from a store and the nodes that are asked about
to one `Prediction` each. `predict`, files, tables and the command `ramify predict` come from here. The nodes are those that
have labels in training: with `input.text=parent` or `input.pair=parent`, the texts above them are read from the store, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa
from torch import nn

from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.base import View
from ramify.batching.views.labelled import LabelInput
from ramify.dataset.frames import ArrowStream, as_arrow, named_columns
from ramify.dataset.labels import nodes_of
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, with_article
from ramify.inference.answers import Prediction
from ramify.inference.base import TOKENS, Pipeline, verb
from ramify.tree import Indices, Node, Tree

Item = str | tuple[str, str] | Tree
"""A text, a pair of texts, or a tree whose nodes are asked about."""

Question = tuple[str, Sequence[str]] | Tree
"""A text and its choices, or a tree of a question and its choices, perhaps below a passage."""

Items = Item | Question | Sequence[Item | Question] | np.ndarray | ArrowStream
"""An item, or several: a list, an array, or a column of a data frame."""

ExampleT = TypeVar("ExampleT")


Pairs = Literal["always", "never", "either"]
"""Whether a model reads pairs of texts. The model of another library reads either, because it does not say."""


Asked = Literal["texts", "questions"]
"""The items of a file that a model is asked about. questions: trees of a question and its choices."""


class Predicts(Pipeline, ABC):
    """A trained task on labelled texts, as the command `ramify predict` uses it."""

    verbs: ClassVar[tuple[str, ...]] = ("predict",)
    task: Any
    """A `DownstreamTask`; each pipeline narrows the type."""
    input: Any
    asked: ClassVar[Asked] = "texts"

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

    @property
    @abstractmethod
    def reads_pairs(self) -> Pairs:
        """Whether an item may be a pair of texts."""

    @verb
    def predict(self, texts: Items, *, progress: Callable[[int], None] | None = None) -> Prediction | list[Prediction]:
        """The prediction for a text, for a pair of texts if the model reads pairs, or for a text and a list of its choices if
        the model chooses; of a list of them, a list.

        A tree gives a list: the prediction for each node that has the texts above it which the model reads, or for each
        question. An empty text is read as its special tokens alone. Raises `RamifyError` for items of another form, for whole
        data frames, and for texts without a node above them if the model was trained with a context.
        """
        if isinstance(texts, Tree):
            return self.predict_items([texts], [texts.id or "0"], progress)
        if isinstance(texts, str | tuple):
            return self.predict_items([texts], ["0"], progress)[0]
        items = _several(texts)
        return self.predict_items(items, [str(place) for place in range(len(items))], progress)

    @abstractmethod
    def predict_items(
        self, items: Sequence[Any], ids: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[Prediction]:
        """The prediction for each item, under these ids, and for what trees hold, under its own ids."""

    @abstractmethod
    def predict_store(
        self,
        store: Store,
        nodes: Indices | None = None,
        ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
        *,
        split: Split = "all",
    ) -> list[Prediction]:
        """The predictions for some nodes of a store, or for all of a split that the model reads."""


def _several(data: Any) -> list[Any]:
    """The items of a list, an array or a column. Raises `RamifyError` for a whole frame, and for data without an order."""
    arrow = as_arrow(data)
    kind = type(data).__name__
    if isinstance(arrow, pa.Table):
        columns = named_columns(arrow)
        name = "text" if "text" in columns.split(", ") else "NAME"
        raise RamifyError(f'predict got a {kind} with the columns {columns}. Pass frame["{name}"].')
    if arrow is not None:
        return arrow.to_pylist()
    if isinstance(data, np.ndarray) and data.ndim == 1:
        return data.tolist()
    if isinstance(data, Sequence) and not isinstance(data, bytes | bytearray | memoryview):
        return [*data]
    raise RamifyError(
        f"predict takes an item (a text, a tuple or a tree) or a list of items, not {with_article(kind)}. Pass a list, such as "
        '["a text", "another"].'
    )


READS_PAIRS: dict[str, Pairs] = {"parent": "always", "none": "never", "auto": "either"}
"""By `LabelInput.pair`."""


class LabelPipeline(Predicts, ABC):
    """A trained task that predicts something about each of some nodes."""

    input: LabelInput

    @property
    def reads_pairs(self) -> Pairs:
        return READS_PAIRS[self.input.pair]

    @abstractmethod
    def predict_nodes(
        self, store: Store, nodes: Indices, ids: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[Prediction]:
        """The prediction for each node of a store, in their order, under these ids. All have the texts above them that the
        model reads (`readable`)."""

    def predict_items(
        self, items: Sequence[Item], ids: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[Prediction]:
        """The prediction for each text or pair, under these ids, and for each node of trees, under its own id."""
        for item in items:
            self._check_item(item)
        if self.reads_pairs == "either" and len({isinstance(item, tuple) for item in items}) > 1:
            raise RamifyError(
                "texts and pairs of texts are given together, but the model reads either. Pass texts alone, or pairs alone."
            )
        if not items:
            return []
        trees = [item if isinstance(item, Tree) else self._tree(item) for item in items]
        if empty := [place for place, tree in enumerate(trees) if not len(tree)]:
            raise RamifyError(f"tree {empty[0]} has no nodes, so it has nothing to predict. Leave it out.")
        store = Store.from_trees(trees)
        nodes: list[Indices] = []
        named: list[str] = []
        for number, (item, item_id) in enumerate(zip(items, ids, strict=True)):
            first, stop = store.offsets[number : number + 2].tolist()
            if isinstance(item, Tree):
                own = self.readable(store, np.arange(first, stop))
                named += store.ids(own)
            else:
                own = np.array([stop - 1])
                named.append(item_id)
            nodes.append(own)
        only_trees = all(isinstance(item, Tree) for item in items)
        return self.predict_store(store, np.concatenate(nodes), None if only_trees else named, progress)

    def predict_store(
        self,
        store: Store,
        nodes: Indices | None = None,
        ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
        *,
        split: Split = "all",
    ) -> list[Prediction]:
        """The prediction for nodes of a store; None: for all of a split that have the texts above them which the model reads.

        Raises `RamifyError` if a model that was trained with a context would read none.
        """
        if not len(store.split(split)):
            raise store.no_trees(split)
        chosen = self.readable(store, nodes_of(store, split)) if nodes is None else nodes
        where = store.path or "the texts"
        if not len(chosen):
            needed = "a text above it" if self._needs_parent else "any text"
            raise RamifyError(f"{where} has no node with {needed}, which the model reads. Choose other data.")
        if self.input.reads_above and not self._has_above(store, chosen):
            raise RamifyError(
                f"the model was trained with input.context={self.input.context}, but no text of {where} has a text above it "
                "that it could read. Pass trees, or train a model with input.context=none."
            )
        return self.predict_nodes(store, chosen, distinct_ids(store, chosen) if ids is None else ids, progress)

    def readable(self, store: Store, nodes: Indices) -> Indices:
        """The nodes whose row has all its texts. Placeholders of missing posts are left out."""
        kept = ~store.is_placeholder(nodes)
        return nodes[kept & (store.depth[nodes] > 0)] if self._needs_parent else nodes[kept]

    @property
    def _needs_parent(self) -> bool:
        return self.input.pair == "parent" or self.input.text == "parent"

    def _has_above(self, store: Store, nodes: Indices) -> bool:
        """Whether any of the nodes has a node above the texts of its row."""
        return bool((store.depth[nodes] > self._needs_parent).any())

    def _check_item(self, item: Any) -> None:
        if isinstance(item, Tree):
            return
        if isinstance(item, str):
            if self.reads_pairs == "always":
                raise RamifyError(
                    "the model reads pairs of texts, but a single text is given. Pass a pair (text, text_pair); on the command "
                    "line, add --text-pair."
                )
            return
        if not isinstance(item, tuple) or len(item) != 2 or not all(isinstance(part, str) for part in item):
            raise RamifyError(
                f"predict takes texts, pairs of two texts, and trees, not {type(item).__name__}. Pass strings, tuples of two "
                "strings, or Tree objects."
            )
        if self.reads_pairs == "never":
            raise RamifyError(
                "the model reads single texts, but a pair is given. Pass the text alone; on the command line, leave out "
                "--text-pair."
            )

    def _tree(self, item: str | tuple[str, str]) -> Tree:
        """A tree whose last node is asked about."""
        if isinstance(item, tuple):
            return Tree((Node(item[0], parents=()), Node(item[1], parents=(0,))))
        if self.input.text == "parent":
            return Tree((Node(item, parents=()), Node("", parents=(0,))))
        return Tree((Node(item, parents=()),))


def distinct_ids(store: Store, nodes: Indices) -> list[str]:
    """The ids of nodes; behind those of their trees if nodes of several trees have one id, as those of tables of tokens."""
    ids = store.ids(nodes)
    if len(set(ids)) == len(ids):
        return ids
    return [f"{tree}/{node}" for tree, node in zip(store.tree_ids(store.tree_of(nodes)), ids, strict=True)]


def label_batches(
    view: View[ExampleT],
    collator: Callable[[Sequence[ExampleT]], LabelledBatch],
    progress: Callable[[int], None] | None = None,
    tokens: int = TOKENS,
) -> Iterator[tuple[Indices, LabelledBatch]]:
    """All examples of a view in batches of similar length, each with the examples of its rows."""
    for numbers, batch in example_batches(view, collator, progress, tokens):
        yield numbers[batch.order], batch


def example_batches(
    view: View[ExampleT],
    collator: Callable[[Sequence[ExampleT]], LabelledBatch],
    progress: Callable[[int], None] | None = None,
    tokens: int = TOKENS,
) -> Iterator[tuple[Indices, LabelledBatch]]:
    """As `label_batches`, each with the examples that it was made of."""
    order = np.argsort(view.costs, kind="stable")
    for step in TokenBudget(view.costs[order], tokens, seed=0, shuffle=False).steps(0):
        numbers = order[step]
        batch = collator([view.example(int(number)) for number in numbers])
        yield numbers, batch
        if progress is not None:
            progress(len(numbers))

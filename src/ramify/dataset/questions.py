"""Questions about passages, and their answers: spans of the passage, as in SQuAD (Rajpurkar et al. 2016 and 2018).

In a store, a question is a child of its passage. Its label is an object with the `texts` and `starts` of its answers, and
`is_impossible` if the passage may lack an answer.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted


@dataclass(frozen=True)
class QuestionCounts:
    """Counts of the questions of a split and of the answers that are left out, for run.json and for people."""

    questions: int
    passages: int
    impossible: int
    """Questions whose passage holds no answer, as their labels say."""
    unlabelled: int
    """Questions without a label, as those of a test set, which are left out."""
    empty: int
    """Questions and passages without a word. Nothing is learned from them."""
    moved: int
    """Answers that are not in the passage at the place that the label names. Nothing is learned from them."""

    def notes(self) -> list[str]:
        """The counts of what is left out, for people."""
        named = (
            (self.unlabelled, f"{counted(self.unlabelled, 'question')} without a label left out"),
            (
                self.empty,
                f"{counted(self.empty, 'question')} without words, or about an empty passage, left out of training",
            ),
            (self.moved, f"{counted(self.moved, 'answer')} not found in the passage left out of training"),
        )
        return [note for count, note in named if count]

    def to_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions about passages, with the gold answers if they are known."""

    texts: Sequence[str]
    passages: Sequence[str]
    passage: Int[NDArray, " question"]
    """The place of each question's passage in `passages`."""
    gold: Sequence[tuple[str, ...]]
    """The gold answers of each question, in the order of the data; none: the passage holds none, or they are unknown."""
    spans: Int[NDArray, "question 2"]
    """Where the first gold answer that is found begins and ends in the passage, in characters; 0 if there is none."""
    has_span: Bool[NDArray, " question"]
    learnable: Bool[NDArray, " question"]
    """Whether a question can be learned from: it has a word, its passage has one, and its answer is found or known to be
    missing."""
    nodes: Int[NDArray, " question"]
    """The nodes of the store; numbers from 0 without a store."""
    counts: QuestionCounts

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def about(cls, texts: Sequence[str], passages: Sequence[str]) -> "Questions":
        """Questions without gold answers, each about the passage at its place."""
        different: list[str] = list(dict.fromkeys(passages))
        places = {text: place for place, text in enumerate(different)}
        count = len(texts)
        return cls(
            texts,
            different,
            np.array([places[text] for text in passages], dtype=np.int64),
            [()] * count,
            np.zeros((count, 2), dtype=np.int64),
            np.zeros(count, dtype=bool),
            np.zeros(count, dtype=bool),
            np.arange(count),
            QuestionCounts(count, len(places), 0, count, 0, 0),
        )

    def select(self, chosen: Int[NDArray, " chosen"]) -> "Questions":
        """Some of the questions, with all passages. The counts stay those of the whole."""
        places: list[int] = chosen.tolist()
        return Questions(
            [self.texts[place] for place in places],
            self.passages,
            self.passage[chosen],
            [self.gold[place] for place in places],
            self.spans[chosen],
            self.has_span[chosen],
            self.learnable[chosen],
            self.nodes[chosen],
            self.counts,
        )


def read_questions(store: Store, split: Split) -> Questions:
    """The questions of a split that have a label. Raises `RamifyError` if there are none, and for labels of another form."""
    trees = store.split(split)
    child, parent = store.edges.T
    inside = np.isin(store.tree_of(child), trees)
    child, parent = child[inside], parent[inside]
    labels = store.column("label", child).to_pylist()
    labelled = [place for place, label in enumerate(labels) if label is not None]
    if not labelled:
        raise RamifyError(
            f"{store.path or 'the data'} has no question with an answer in the split {split!r}. Choose another split, or build "
            "data with questions: ramify data build FILE --format labelled, for a file in SQuAD's form."
        )
    decoded = [_label(store, int(child[place]), labels[place]) for place in labelled]
    nodes = child[labelled]
    passage_nodes, passage = np.unique(parent[labelled], return_inverse=True)
    texts, passages = store.texts(nodes), store.texts(passage_nodes)
    spans = np.zeros((len(nodes), 2), dtype=np.int64)
    has_span = np.zeros(len(nodes), dtype=bool)
    moved = 0
    for place, label in enumerate(decoded):
        context = passages[passage[place]]
        for answer, start in zip(label["texts"], label["starts"], strict=True):
            found = bool(answer.strip()) and start >= 0 and context[start : start + len(answer)] == answer
            moved += not found
            if found and not has_span[place]:
                spans[place], has_span[place] = (start, start + len(answer)), True
    filled = np.array([bool(text.strip()) and bool(passages[at].strip()) for text, at in zip(texts, passage)], dtype=bool)
    impossible = np.array([not label["texts"] for label in decoded], dtype=bool)
    counts = QuestionCounts(
        questions=len(nodes),
        passages=len(passages),
        impossible=int(impossible.sum()),
        unlabelled=len(labels) - len(labelled),
        empty=int((~filled).sum()),
        moved=moved,
    )
    gold = [tuple(label["texts"]) for label in decoded]
    return Questions(texts, passages, passage, gold, spans, has_span, filled & (has_span | impossible), nodes, counts)


def _label(store: Store, node: int, text: str) -> dict[str, Any]:
    """The label of a question. An answer of an impossible question is none."""
    label = json.loads(text)
    lists = [label.get(name) for name in ("texts", "starts")] if isinstance(label, dict) else [None, None]
    strings, numbers = (value if isinstance(value, list) else None for value in lists)
    if (
        strings is None
        or numbers is None
        or len(strings) != len(numbers)
        or not all(isinstance(value, str) for value in strings)
        or not all(type(value) is int for value in numbers)
    ):
        raise RamifyError(
            f"{store.path or 'the data'}, node {store.ids([node])[0]!r}: the label {text:.80} does not hold answers, which are "
            "an object with the lists `texts` and `starts`. Choose data in SQuAD's form, or train on other labels with `ramify "
            "train classify`."
        )
    return {"texts": [], "starts": []} if label.get("is_impossible") is True else {"texts": strings, "starts": numbers}

"""Labelled texts as examples: one text or a pair per row, perhaps with the texts above it.

`LabelInput` says what a row holds, `LabelledView` finds the tokens. Views of other label tasks (tagged texts, windows of a
passage, choices of a question) are final subclasses of `View`, too; they may take the parts of a row from `RowTexts`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.encoder_input import fit_texts
from ramify.batching.forest import Forest, Ints
from ramify.batching.views.base import FrozenView
from ramify.batching.views.comment_trees import Strangers, ancestors, tokens_above
from ramify.config import check_fields
from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.tokenizer import TextLayout, Tokenizer
from ramify.tree import Indices

LabelContext = Literal["none", "parent", "tree", "mismatched"]


@dataclass(frozen=True)
class LabelInput:
    """Input settings of models that predict labels of texts. They are saved with the model, so that it is used as it was
    trained."""

    max_tokens: int = 128
    """Longest row, with special tokens."""
    layout: Literal[TextLayout, "agent"] = "bert"
    """The special tokens around one or two texts."""
    label: str = ""
    """The field of the labels: a dotted path, in which digits are places in lists. Empty: the label itself."""
    text: Literal["own", "parent"] = "own"
    """The text that is classified: that of the labelled node, or that of its parent. With parent, the labelled node itself is
    never read."""
    pair: Literal["auto", "none", "parent"] = "auto"
    """parent: a row holds two texts, that of the parent and that of the node. auto: it does if the data are pairs of texts."""
    context: LabelContext = "none"
    """The nodes above the texts of a row that it reads, too. parent: the nearest one. tree: all. mismatched: those above a node
    of equal depth in another tree."""
    context_as: Literal["text", "vectors"] = "text"
    """text: their texts precede the others in the row; the oldest tokens are left out first, never those of the texts that are
    classified. vectors: the model reads one vector per node."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        if self.max_tokens < 3:
            raise RamifyError(f"input.max_tokens must be at least 3, to hold special tokens, but is {self.max_tokens}.")
        if self.text == "parent" and self.pair == "parent":
            raise RamifyError(
                "input.pair=parent writes the labelled text beside its parent's, but with input.text=parent it is never read. "
                "Set input.pair=none or input.text=own."
            )

    @property
    def reads_above(self) -> bool:
        """Whether a row reads nodes above its texts."""
        return self.context != "none"


@dataclass(frozen=True)
class LabelledText:
    """A text with the texts before it in its row, without special tokens, and its target."""

    text: Ints
    before: Ints | None
    """The tokens of the first text of a row of two: that of a pair, behind those of the context; None: a row of one text."""
    target: NDArray[Any] | None
    """None: the label is not known."""
    context: Ints
    """The nodes of the forest whose vectors the row reads, oldest first."""
    node: int
    """The node of the forest whose text it is."""
    length: int
    """The number of tokens of the row."""
    features: NDArray[np.float32] | None = None
    """[layer, dim]: vectors of a frozen model, which stand for all tokens."""


@dataclass(frozen=True)
class TextCounts:
    """Counts of what a view reads and cuts, for run.json and for people."""

    texts: int
    tokens: int
    """Tokens of all rows, special tokens included."""
    cut: int
    """Rows that cannot hold all tokens of their texts; context does not count."""
    empty: int
    """Rows whose text has no tokens. They are read with their special tokens, and have the zero vector without any."""
    left_out: int
    """Labelled nodes without the parent that a row needs."""
    alone: int
    """Rows without any text above, where texts above are read."""


class RowTexts:
    """The tokens of the rows of some nodes, by `LabelInput`, in a forest of their store."""

    def __init__(
        self,
        store: Store,
        tokenizer: Tokenizer,
        nodes: Indices,
        input: LabelInput,
        *,
        vocab_size: int | None = None,
        open_words: bool = False,
        trees: Indices | None = None,
        seed: int = 0,
    ) -> None:
        """`nodes` are labelled nodes of the store. `trees` are those from which `context=mismatched` draws; None: those of the
        nodes. Raises `RamifyError` for pairs of data that are none, and for unresolved settings (`pair=auto`)."""
        if input.pair == "auto":
            raise ValueError("input.pair=auto is resolved by `resolved_input`")
        self.input = input
        self.layout = tokenizer.layout(input.layout, vocab_size)
        self.forest = Forest.open(store, tokenizer, input.max_tokens, layout=input.layout, open_words=open_words)
        self.seed = seed
        parent = self.forest.parent[nodes]
        needs_parent = input.text == "parent" or input.pair == "parent"
        kept = parent >= 0 if needs_parent else np.ones(len(nodes), dtype=bool)
        self.kept = np.flatnonzero(kept)
        """The places in `nodes` of those that have a row."""
        self.text = parent[kept] if input.text == "parent" else nodes[kept]
        """The node whose text is classified, for each row."""
        self.first = parent[kept] if input.pair == "parent" else None
        """The node of the first text of each pair; None: rows have one text."""
        self.top = self.text if self.first is None else self.first
        """The highest node of each row, above which its context begins."""
        if self.two_texts and self.layout.between is None:
            tokenizer.require(("sep",), f"rows of two texts in the layout {input.layout}")
        self.others = None
        if input.context == "mismatched":
            within = np.unique(self.forest.tree_of(self.text)) if trees is None else trees
            self.others = Strangers(self.forest, np.asarray(within, dtype=np.int64))

    @property
    def two_texts(self) -> bool:
        """Whether rows are laid out as two texts. Those without a context then begin with an empty text."""
        return self.first is not None or (self.input.reads_above and self.input.context_as == "text")

    @property
    def room(self) -> int:
        """The number of tokens of texts that a row holds."""
        special = self.layout.num_special + (len(self.layout.separator) if self.two_texts else 0)
        room = self.input.max_tokens - special
        if room < 1:
            raise RamifyError(
                f"input.max_tokens={self.input.max_tokens} leaves no room for text beside {special} special tokens. Raise "
                "input.max_tokens."
            )
        return room

    @property
    def wanted(self) -> Ints:
        """The number of tokens of the texts of each row, before any is cut."""
        lengths = self.forest.length
        return lengths[self.text] + (0 if self.first is None else lengths[self.first])

    @property
    def lengths(self) -> Ints:
        """The number of tokens of each row. Contexts drawn at random count as the row's own."""
        special, text = self.input.max_tokens - self.room, np.minimum(self.wanted, self.room)
        if not self.input.reads_above or self.input.context_as == "vectors":
            return text + special
        separator, parent = len(self.layout.separator), self.forest.parent[self.top]
        if self.input.context == "parent":
            above = np.where(parent >= 0, self.forest.length[parent] + separator, 0)
        else:
            above = tokens_above(self.forest, self.forest.length + self.forest.layout.num_special)[self.top]
        left = self.room - text
        if self.first is None:
            # No separator stands between the last text above and that of a single text, but that of the pair of both.
            return text + np.minimum(np.where(parent >= 0, above - separator, 0), left) + special
        return text + np.where(left > separator, np.minimum(above, left), 0) + special

    def counts(self, total: int) -> TextCounts:
        """Counts of the rows; `total` is the number of labelled nodes."""
        empty = int((self.forest.length[self.text] == 0).sum())
        cut = int((self.wanted > self.room).sum())
        alone = int((self.forest.depth[self.top] == 0).sum()) if self.input.reads_above else 0
        return TextCounts(len(self.text), int(self.lengths.sum()), cut, empty, total - len(self.text), alone)

    def check_above(self, where: str) -> None:
        """Raise `RamifyError` if texts above are to be read, but no row has one. `where` names the texts."""
        counts = self.counts(len(self.text))
        if counts.alone and counts.alone == counts.texts:
            raise RamifyError(
                f"input.context={self.input.context} reads the texts above a text, but none of {where} has any. Choose data of "
                "trees, or a model with input.context=none."
            )

    def notes(self) -> tuple[str, ...]:
        """Reservations about the rows, for people: texts that are cut, empty ones, and those without a text above."""
        counts, notes = self.counts(len(self.text)), []
        if counts.cut:
            notes.append(
                f"{counts.cut:,} of {counted(counts.texts, 'text')} longer than a row of {self.input.max_tokens} tokens, and "
                "cut (input.max_tokens)"
            )
        if counts.empty:
            notes.append(f"{counts.empty:,} of {counted(counts.texts, 'text')} without a token, read as special tokens alone")
        if counts.alone:
            notes.append(f"{counts.alone:,} of {counted(counts.texts, 'text')} without a text above, read alone")
        return tuple(notes)

    def above(self, number: int, epoch: int) -> Ints:
        """The nodes that a row reads beside its texts, oldest first."""
        if not self.input.reads_above:
            return np.zeros(0, dtype=np.int64)
        node = self.top[number : number + 1]
        if self.input.context == "parent":
            parent = self.forest.parent[node]
            return parent[parent >= 0]
        if self.others is not None and self.forest.depth[node[0]] > 0:
            # The node decides, so that other texts around it change no draw.
            node = self.others.draw(node, np.random.Generator(np.random.Philox(key=[self.seed, (epoch << 32) + int(node[0])])))
        return ancestors(self.forest, node, self.input.max_tokens, "nearest")[0]

    def ids(self, node: int) -> Ints:
        """The tokens of a node's text."""
        start = int(self.forest.start[node])
        return self.forest.ids[start : start + int(self.forest.length[node])].astype(np.int64)

    def row(self, number: int, epoch: int = 0) -> tuple[Ints | None, Ints, Ints]:
        """The first text of a row, its text, and the nodes whose vectors it reads. Together, the texts fit into the row."""
        text, above, room = self.ids(int(self.text[number])), self.above(number, epoch), self.room
        as_vectors = self.input.context_as == "vectors"
        vectors = above if as_vectors else above[:0]
        if not self.two_texts:
            return None, text[:room], vectors
        first = None if self.first is None else self.ids(int(self.first[number]))
        if first is not None:
            one, other = fit_texts(np.array([len(first)]), np.array([len(text)]), room)
            first, text = first[: int(one[0])], text[: int(other[0])]
        text = text[:room]
        if as_vectors or not len(above):
            return np.zeros(0, dtype=np.int64) if first is None else first, text, vectors
        separator = np.array(self.layout.separator, dtype=np.int64)
        parts = [part for node in above.tolist() for part in (self.ids(node), separator)][:-1]
        if first is None:
            written, left = np.concatenate(parts), room - len(text)
            return written[len(written) - min(left, len(written)) :], text, vectors
        written, left = np.concatenate([*parts, separator]), room - len(text) - len(first)
        # Separators alone say nothing.
        written = written[len(written) - min(left, len(written)) :] if left > len(separator) else written[:0]
        return np.concatenate([written, first]), text, vectors


class LabelledView(FrozenView[LabelledText]):
    """The labelled texts of a split, one row each."""

    def __init__(
        self,
        rows: RowTexts,
        targets: NDArray[Any] | None,
        features: NDArray[np.float32] | None = None,
        group: Ints | None = None,
    ) -> None:
        """`targets` has a row per labelled node that has one (`RowTexts.kept`), and `features` too, [row, layer, dim].
        `group` numbers the rows that a metric takes together."""
        self.rows = rows
        self.targets = targets
        self.features = features
        self.group = group
        self._lengths = rows.lengths

    @property
    def vectors(self) -> Ints:
        return self.sizes

    @property
    def is_fixed(self) -> bool:
        return self.rows.others is None

    def content(self) -> Iterator[Ints]:
        yield from (self.rows.text, self.rows.top, self.rows.forest.length[self.rows.text], self.rows.forest.parent)

    @property
    def costs(self) -> Ints:
        return self._lengths

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(len(self._lengths))

    @property
    def sizes(self) -> Ints:
        return np.ones(len(self._lengths), dtype=np.int64)

    @property
    def target_tokens(self) -> Ints:
        return np.minimum(self.rows.forest.length[self.rows.text], self.rows.room)

    def example(self, number: int, epoch: int = 0) -> LabelledText:
        target = None if self.targets is None else np.asarray(self.targets[number])
        node, length = int(self.rows.text[number]), int(self._lengths[number])
        if self.features is not None:
            nothing = np.zeros(0, dtype=np.int64)
            return LabelledText(nothing, None, target, nothing, node, length, self.features[number])
        before, text, context = self.rows.row(number, epoch)
        return LabelledText(text, before, target, context, node, length)


def resolved_input(input: LabelInput, store: Store, nodes: Indices) -> LabelInput:
    """The settings with `pair=auto` decided by the data: parent if they are labelled texts (`data build --format labelled`),
    each of which has a text above it.

    Raises `RamifyError` for pairs or parents that no labelled text has.
    """
    depth = store.depth[nodes]
    if input.pair == "auto":
        # A reply to a post is no pair, but the format of labelled texts has no replies. In memory, pairs are trees of two.
        lengths = np.diff(store.offsets) if store.path is None else np.zeros(1)
        holds_pairs = store.info.get("format") == "labelled" or bool((lengths == 2).all())
        is_pair = holds_pairs and bool((depth == 1).all()) and input.text == "own"
        input = replace(input, pair="parent" if is_pair else "none")
    for name in ("pair", "text"):
        if getattr(input, name) == "parent" and not depth.any():
            raise RamifyError(
                f"input.{name}=parent needs the text above each labelled one, but {counted(len(nodes), 'labelled text')} of "
                f"{store.path or 'the data'} have none. Set input.{name}={'none' if name == 'pair' else 'own'}, or build the "
                "data with their second column (ramify data build … --text-pair NAME)."
            )
    return input

"""Documents that are copyedited: their text before and after."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ramify.batching.document_batch import JOIN, NUM_MARKS
from ramify.batching.forest import Ints, token_cache
from ramify.batching.levels import LevelRows, Levels
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.documents.copyedit import Copyediting, Copyeditor
from ramify.inference.documents.document_banks import banks_of
from ramify.inference.documents.node_reconstruction import bank
from ramify.inference.documents.vector_trees import NONE, VectorLevel, VectorTree, as_trees, encoded_tree
from ramify.inference.documents.vectors import Vectors, encode_documents, lay_out
from ramify.metrics.edits import change_rate, edit_distance
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree


@dataclass(frozen=True)
class CopyeditedDocument:
    """A document before and after copyediting."""

    before: Tree
    after: Tree
    change_rate: float
    """The edit distance of the tokens, divided by the greater number of tokens. Where sentences stay apart, the distances of
    all sentences are added up."""
    num_tokens: int
    num_unknown: int
    """The number of tokens that stand for text that the tokenizer cannot spell."""
    left_out: int
    """The number of children that no row holds."""
    is_whole: bool


def copyedit_document(
    task: NestedAutoencoder,
    document: Tree,
    settings: Copyediting,
    known: Sequence[Vectors] = (),
    progress: Callable[[int], None] | None = None,
) -> CopyeditedDocument:
    """Encode a document, copyedit its vectors, and carry the edits to its text.

    With propagate=delta, the document keeps its nodes, and the text of those without edits. With regenerate, its levels below
    the highest edited one are written anew. `progress` receives the number of passes over levels. Raises `RamifyError` if no
    node has siblings.
    """
    agent, tokenizer = task.backbone, task.tokenizer
    if agent.depth < 2:
        raise RamifyError(
            f"the model has the level {agent.config.levels[0]} alone, so its nodes have no siblings to be predicted from. "
            "Choose a model of more levels (`ramify train agent`)."
        )
    store = Store.from_trees([document])
    opened = Levels.open(store, tokenizer, agent.config.levels, np.arange(store.num_trees))
    view, collator = lay_out(agent, task.input, opened)
    encoded = encode_documents(agent, view, collator)
    tree = encoded_tree(collator, encoded)
    check_siblings(tree, agent.config.levels)
    candidates = [None, *(bank(task, level, vectors) for level, vectors in enumerate(encoded.vectors[:-1], 1))]
    banks = banks_of(task, collator)
    names = None if banks is None else banks.of_whole_documents(np.arange(store.num_trees))
    names_of_rows = None if banks is None else banks.of_rows(np.arange(len(view.rows.levels[0])))
    edited = Copyeditor(task, settings, known, candidates, names, names_of_rows).edited(tree, progress)
    if settings.propagate == "delta":
        before = [opened.ids[start:stop].astype(np.int64) for start, stop in pairwise(opened.levels[0].offsets)]
        after = edited_sentences(view.rows.levels[0], before, edited.levels[0])
        text = with_tokens(document, store, opened, before, after, tokenizer)
        distance = sum(edit_distance(one, other) for one, other in zip(before, after, strict=True))
        longest = max(sum(map(len, before)), sum(map(len, after)))
        rate = distance / longest if longest else 0.0
    elif np.array_equal(edited.levels[0].slots, tree.levels[0].slots):
        text, rate = document, 0.0
    else:
        (text,) = as_trees(edited, agent.config.levels, tokenizer)
        text, rate = replace(text, id=document.id), change_rate(opened.ids.astype(np.int64), tokens_of(edited))
    left_out = sum(rows.left_out for rows in view.rows.levels)
    unknown = tokenizer.unknown(opened.ids).count
    return CopyeditedDocument(document, text, rate, len(opened.ids), unknown, left_out, not edited.cut)


def check_siblings(tree: VectorTree, names: Sequence[str]) -> None:
    """Raise `RamifyError` if no node of a tree has siblings."""
    if any((level.counts > 1).any() for level in tree.levels[1:]):
        return
    what = "no text" if not len(tree.levels[0].lengths) else f"one {names[0]}" if len(tree.levels[0].lengths) == 1 else ""
    holds = f"holds {what}, so" if what else f"has no {names[1]} of several {names[0]}s, and"
    raise RamifyError(
        f"the document {holds} nothing has siblings from which it could be predicted. Choose a text of several {names[0]}s."
    )


def tokens_of(tree: VectorTree) -> Ints:
    """All tokens of a tree, in reading order."""
    slots = tree.levels[0].slots
    return slots[slots >= NUM_MARKS] - NUM_MARKS


def edited_sentences(rows: LevelRows, before: Sequence[Ints], edited: VectorLevel) -> list[Ints]:
    """The tokens of the lowest nodes after their rows were edited. `before` holds all tokens of each: truncation leaves the
    last ones out of the rows, and they stay."""
    offsets = rows.level.offsets
    pieces: list[list[Ints]] = [[] for _ in before]
    held = np.zeros(len(before), dtype=np.int64)
    for row in range(len(rows)):
        slots = edited.row(row)
        own = np.split(slots, np.flatnonzero(slots == JOIN))
        parts = range(int(rows.part_offsets[row]), int(rows.part_offsets[row + 1]))
        for part, tokens in zip(parts, own, strict=True):
            if rows.count[part]:
                # Of nodes without tokens, which begin at the same place, the last one is followed by the node of the part.
                node = int(np.searchsorted(offsets, rows.start[part], side="right")) - 1
                pieces[node].append(tokens[tokens >= NUM_MARKS] - NUM_MARKS)
                held[node] += rows.count[part]
    return [
        np.concatenate([NONE, *own, given[count:]]) for own, given, count in zip(pieces, before, held.tolist(), strict=True)
    ]


def with_tokens(
    document: Tree, store: Store, levels: Levels, before: Sequence[Ints], after: Sequence[Ints], tokenizer: Tokenizer
) -> Tree:
    """The document with the tokens of its lowest nodes in place of its own. Nodes whose tokens stay keep their text. Where
    several nodes of the document make up one of these, the first with text has all of the new text."""
    starts, offsets = token_cache(store, tokenizer).starts, levels.levels[0].offsets
    nodes = [*document.nodes]
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if np.array_equal(old, new):
            continue
        first, last = (
            int(np.searchsorted(starts, place, side="right")) - 1 for place in (offsets[number], offsets[number + 1] - 1)
        )
        nodes[first] = replace(nodes[first], text=tokenizer.decode(new.tolist()).strip())
        for other in range(first + 1, last + 1):
            nodes[other] = replace(nodes[other], text="")
    return replace(document, nodes=tuple(nodes))

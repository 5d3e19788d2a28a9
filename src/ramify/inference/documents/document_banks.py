"""Banks of names from the sentences of whole documents, for models with a memory of names."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ramify.batching.document_batch import Banks, DocumentCollator
from ramify.batching.forest import Ints
from ramify.batching.levels import DocumentRows
from ramify.inference.base import TOKENS
from ramify.models.name_memory import Answers, NameMemory
from ramify.nn.ragged import runs
from ramify.tasks.nested.task import NestedAutoencoder

NO_UNIT = -1
"""The number of a unit without rows: a bank for it leaves no sentence out."""


class DocumentBanks:
    """Makes the banks that rows of tokens read, each from all sentences of its document but its own.

    The answers of one document take four bytes times questions times dimensions for each sentence. Those of the latest document
    are kept, so banks are asked for in the order of documents.
    """

    def __init__(self, task: NestedAutoencoder, memory: NameMemory, collator: DocumentCollator) -> None:
        """`collator`: of the documents' rows, the lowest of which write."""
        self.task = task
        self.memory = memory
        self.collator = collator
        self.level = collator.rows.levels[0]
        self._latest: tuple[int, Answers] | None = None

    def of_rows(self, rows: Ints) -> Banks:
        """The bank of each of some lowest rows."""
        return self.of_units(self.level.node_of_row, self.level.node_of_row[rows], self.level.tree[rows])

    def of_units(self, unit_of_row: Ints, units: Ints, trees: Ints) -> Banks:
        """A bank for each of some units, which are sets of lowest rows, given the document of each. `unit_of_row`: the unit of
        each row. If the memory leaves out sentences, the bank of a unit leaves out all its rows."""
        count, dim = self.memory.questions.shape
        answers = torch.zeros(len(units), count, dim)
        known = torch.zeros(len(units), dtype=torch.bool)
        for tree in np.unique(trees).tolist():
            first, last = np.searchsorted(self.level.tree, [tree, tree + 1]).tolist()
            chosen = np.flatnonzero(trees == tree)
            written = self._answers(tree, first, last)
            # A row without tokens stands for each unit, some of which have no row.
            own = np.concatenate([unit_of_row[first:last], units[chosen]])
            sentence = np.append(self.level.node_of_row[first:last], np.full(len(chosen), NO_UNIT))
            has_tokens = np.append(self.level.children[first:last] > 0, np.zeros(len(chosen), dtype=bool))
            with_units = Answers.cat([written, Answers.nothing(len(chosen), count, dim, written.sums)])
            banks = self.memory.banks(with_units, sentence, np.zeros_like(own), has_tokens, unit=own)
            place = torch.from_numpy(chosen)
            answers[place], known[place] = banks.answers[last - first :], banks.known[last - first :]
        return Banks(answers, known)

    def of_whole_documents(self, trees: Ints) -> Banks:
        """The bank of each of some documents, for readers that are none of its sentences."""
        return self.of_units(self.level.node_of_row, np.full(len(trees), NO_UNIT), trees)

    @torch.no_grad()
    def _answers(self, tree: int, first: int, last: int) -> Answers:
        """The answers that the lowest rows of a document write."""
        if self._latest is not None and self._latest[0] == tree:
            return self._latest[1]
        self._latest = None
        none = np.zeros(0, dtype=np.int64)
        count, dim = self.memory.questions.shape
        parts = [Answers.nothing(0, count, dim, torch.zeros(0))]
        sources: list[Int[Tensor, " row"]] = []
        encoder = self.task.backbone.encoder(0)
        with self.task.evaluating():
            for start, stop in runs(self.collator.num_slots(0)[first:last], TOKENS):
                rows = self.collator.level(0, np.arange(first + start, first + stop), none, none).to(self.task.device)
                states = encoder.states(encoder.items(None), rows.slots, rows.rows)
                parts.append(self.memory.write(states, rows.rows, rows.is_child).cpu())
                sources.append(torch.from_numpy(rows.source))
        answers = Answers.cat(parts).at(torch.argsort(torch.cat(sources)))
        self._latest = (tree, answers)
        return answers


def banks_of(task: NestedAutoencoder, collator: DocumentCollator) -> DocumentBanks | None:
    """The banks of some documents; None if the model has no memory of names."""
    return None if task.name_memory is None else DocumentBanks(task, task.name_memory, collator)


def units_of_nodes(rows: DocumentRows, level: int) -> Ints:
    """The node of a level to which each of the lowest rows belongs. The nodes of that level share no row; lowest rows that
    truncation leaves out are units of their own."""
    above = np.arange(len(rows.levels[0]))
    for upper in rows.levels[1 : level + 1]:
        parents = np.full(upper.num_below, -1)
        parents[upper.held_children] = upper.child_row
        above = np.where(above >= 0, parents[above], -1)
    top = rows.levels[level]
    return np.where(above >= 0, top.row_node[above], len(top.num_rows) + np.arange(len(above)))

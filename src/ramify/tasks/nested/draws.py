"""The random draws for each level of a batch, made on the host, so that they are equal on every device."""

from dataclasses import dataclass

import numpy as np
import torch

from ramify.batching.document_batch import NUM_MARKS, DocumentBatch, LevelDraws
from ramify.batching.forest import Ints
from ramify.tasks.nested.candidates import Queue
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.corruption import Pool, RowChildren, mask_children, replace_children
from ramify.tokenizer import Tokenizer


@dataclass(frozen=True)
class LevelDrawer:
    """Draws masked and replaced children."""

    config: NestedAutoencoderConfig
    tokenizer: Tokenizer
    choices: Ints
    """The token ids that a random token may be."""

    def draw(self, batch: DocumentBatch, number: int, queue: Queue | None, random: np.random.Generator) -> LevelDraws:
        """The draws for one of the batch's levels. `queue`: that of its children; tokens have none."""
        config, level, rows = self.config, batch.lowest + number, batch.levels[number]
        child, row = rows.children.cpu().numpy(), rows.child_row.cpu().numpy()
        children = RowChildren(child, row, rows.counts)
        originals, pool = self._pools(batch, number, children, queue)
        masked = mask_children(
            children,
            config.mask_rate,
            config.mask_split,
            self.choices if level == 0 else pool.child,
            NUM_MARKS + self.tokenizer.mask_id if level == 0 else None,
            random,
            bernoulli=config.mask_draw == "bernoulli",
        )
        replaced = replace_children(children, originals, pool, "any" if level == 0 else config.replacement, random)
        child_slot = rows.child_slot.cpu()
        slots = rows.slots.cpu()
        chosen = child_slot.index_select(0, torch.from_numpy(masked.chosen))
        marked = torch.from_numpy(replaced.marked.astype(np.int64))
        segments = torch.zeros_like(slots).index_copy(0, child_slot, marked)
        return LevelDraws(
            masked_slots=slots.index_copy(0, chosen, torch.from_numpy(masked.shown)),
            masked=chosen,
            marked=child_slot[:0] if config.marks == "none" else child_slot[torch.from_numpy(replaced.marked)],
            replaced_slots=slots.index_copy(0, child_slot, torch.from_numpy(NUM_MARKS + replaced.shown)),
            segments=None if config.marks == "none" else segments,
            share=torch.from_numpy(replaced.share),
            checked=torch.from_numpy(np.flatnonzero(rows.counts)),
        )

    def _pools(self, batch: DocumentBatch, number: int, children: RowChildren, queue: Queue | None) -> tuple[Pool, Pool]:
        """The children themselves, and those that a random draw may take."""
        rows = batch.levels[number]
        tree = rows.tree.cpu().numpy()[children.row]
        if queue is None:
            tokens = Pool(children.child, children.child, children.row, tree)
            if self.config.replacement_tokens == "batch":
                return tokens, tokens
            none = np.zeros_like(self.choices)
            return tokens, Pool(self.choices, self.choices, none, none)
        content = np.concatenate([part.content.cpu().numpy() for part in batch.below(number)])
        nodes = Pool(children.child, content[children.child], children.row, tree)
        if (batch.chunks or not batch.parts) and self.config.replacement != "other_document":
            return nodes, nodes
        # A long document is alone in its batch, so that chapters of other documents come from the queue. Other batches may hold
        # parts of a single document, too.
        further = len(queue)
        kept = slice(0, further)
        return nodes, Pool(
            np.concatenate([nodes.child, len(content) + np.arange(further)]),
            np.concatenate([nodes.content, queue.content[kept].cpu().numpy()]),
            np.concatenate([nodes.parent, np.full(further, len(rows.rows))]),
            np.concatenate([nodes.tree, queue.tree[kept].cpu().numpy()]),
        )

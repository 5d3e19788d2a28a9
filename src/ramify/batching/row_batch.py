"""Rows of running text on the flat axis of a `Batch`, without nodes and contexts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ramify.batching.batch import Batch, join, target_rows
from ramify.batching.views.packed import TextRow
from ramify.nn.ragged import Rows, length_key
from ramify.tokenizer import Frame

NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class RowCollator:
    """Lays rows flat, sorted by length. Every row is a target, and all its tokens but the special ones are maskable."""

    frame: Frame
    """The special tokens around a row."""
    pairs: bool = False
    """Whether rows hold two segments, with a label each."""

    def __call__(self, rows: Sequence[TextRow]) -> Batch:
        lengths = np.array([len(row.ids) for row in rows], dtype=np.int64)
        order = np.argsort(length_key(lengths), kind="stable")
        rows, lengths = [rows[place] for place in order], lengths[order]
        ids = join([row.ids for row in rows])
        special = np.concatenate([row.special for row in rows]) if rows else np.zeros(0, dtype=bool)
        targets, contexts, readers = target_rows(lengths, np.zeros_like(lengths))
        pair_labels = [row.pair_label for row in rows if row.pair_label is not None]
        return Batch(
            input_ids=torch.from_numpy(NONE),
            nodes=Rows.build(NONE),
            depth=torch.from_numpy(NONE),
            target_ids=torch.from_numpy(ids),
            targets=targets,
            target_depth=torch.zeros(len(rows), dtype=torch.int64),
            maskable=torch.from_numpy(~special),
            weight=torch.ones(len(rows), dtype=torch.float64),
            context=torch.from_numpy(NONE),
            contexts=contexts,
            readers=readers,
            num_maskable=np.array([int((~row.special).sum()) for row in rows], dtype=np.int64),
            own_tokens=lengths,
            source=np.array([row.number for row in rows], dtype=np.int64),
            node_source=NONE,
            frame=self.frame,
            token_type_ids=torch.from_numpy(join([row.token_type_ids for row in rows])),
            pair_labels=torch.tensor(pair_labels, dtype=torch.int64) if self.pairs else None,
        )

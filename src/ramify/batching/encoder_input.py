"""Texts and pairs of texts as flat rows: the input of every backbone that encodes (`models.base.Encodes`)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.nn.ragged import Rows, length_key


@dataclass(frozen=True)
class NodeContext:
    """The nodes that rows read: the clean text of each node once, and the nodes of each row."""

    ids: Int[Tensor, " _token"]
    nodes: Rows
    depth: Int[Tensor, " node"]
    index: Int[Tensor, " key"]
    """The nodes that each row reads, row after row, oldest first."""
    contexts: Rows
    """The number of entries of `index` per row."""
    readers: Rows
    """The rows, grouped so that rows with similar numbers of nodes are adjacent."""
    row_depth: Int[Tensor, " row"]
    vectors: Float[Tensor, "node dim"] | None = None
    """The vectors of the nodes, if they are known; None: `ids` are encoded."""

    def to(self, device: torch.device | str) -> "NodeContext":
        return NodeContext(
            self.ids.to(device),
            self.nodes.to(device),
            self.depth.to(device),
            self.index.to(device),
            self.contexts.to(device),
            self.readers.to(device),
            self.row_depth.to(device),
            None if self.vectors is None else self.vectors.to(device),
        )


@dataclass(frozen=True)
class EncoderInput:
    """Rows of one or two texts with their special tokens, sorted by rounded length."""

    ids: Int[Tensor, " total"]
    rows: Rows
    token_types: Int[Tensor, " total"] | None
    """None: the layout of the rows has no types."""
    context: NodeContext | None
    """The nodes that rows read; None: every row is read alone."""
    source: NDArray[np.int64]
    """The text, or pair of texts, of each row. It undoes the sorting; a long text may have several rows."""
    spans: NDArray[np.int64]
    """[row, text, 2]: the places in its row where each text begins and ends."""

    def to(self, device: torch.device | str) -> "EncoderInput":
        return EncoderInput(
            self.ids.to(device),
            self.rows.to(device),
            None if self.token_types is None else self.token_types.to(device),
            None if self.context is None else self.context.to(device),
            self.source,
            self.spans,
        )


def bare_rows(texts: Sequence[Sequence[int]]) -> EncoderInput:
    """Each text alone in a row, without special tokens."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    order = np.argsort(length_key(lengths), kind="stable")
    spans = np.stack([np.zeros_like(lengths), lengths, lengths, lengths], 1).reshape(-1, 2, 2)
    return EncoderInput(
        ids=torch.tensor([token for text in order.tolist() for token in texts[text]], dtype=torch.int64),
        rows=Rows.build(lengths[order]),
        token_types=None,
        context=None,
        source=order,
        spans=spans[order],
    )

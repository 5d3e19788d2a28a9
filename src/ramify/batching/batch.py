"""The tensors of one forward pass: texts on a flat axis, and the nodes that each target reads. They are built on the host and
moved once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput, NodeContext
from ramify.batching.forest import Forest
from ramify.batching.movable import moved
from ramify.batching.text_input import TextInput
from ramify.batching.views.base import Example
from ramify.nn.blocks import OutputPositions
from ramify.nn.ragged import Rows, doubling_key, length_key, places
from ramify.tokenizer import Frame, RowLayout, Tokenizer

IGNORE = -100
"""The label of a position that is not predicted."""

KEYS_A_TOKEN = 4
"""Number of gathered vectors whose graph (keys and values per layer) is about as large as that of one token (all states)."""


@dataclass(frozen=True)
class AnyBatch(ABC):
    """The part of a batch that the training loop needs; tasks need more."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    @abstractmethod
    def num_targets(self) -> int: ...

    @property
    @abstractmethod
    def num_target_tokens(self) -> int:
        """Tokens of the targets' own texts."""

    def to(self, device: torch.device | str) -> Self:
        return self if self.device == torch.device(device) else moved(self, device)


@dataclass(frozen=True)
class Batch(AnyBatch):
    """Clean texts of the nodes that targets read, and for each target its own text and the nodes that it reads.

    A target's clean text is in `input_ids` only if another target reads it. A target sees itself through `target_ids` alone, so
    corrupting these ids hides the answer. An inner comment of a tree is both a clean node and a masked target.
    """

    input_ids: Int[Tensor, " total"]
    nodes: Rows
    depth: Int[Tensor, " node"]
    target_ids: Int[Tensor, " target_total"]
    targets: Rows
    target_depth: Int[Tensor, " target"]
    maskable: Bool[Tensor, " target_total"]
    """Whether corruption may choose each token of `target_ids`: the targets' own texts without special tokens."""
    weight: Float64[Tensor, " target"]
    context: Int[Tensor, " key"]
    """Rows of `nodes` that each target reads, oldest first."""
    contexts: Rows
    """The number of entries of the flat `context` per target."""
    readers: Rows
    """`targets`, grouped so that targets with similar numbers of context nodes are adjacent."""
    num_maskable: NDArray[np.int64]
    """Number of maskable tokens of each target."""
    own_tokens: NDArray[np.int64]
    """Number of tokens of each target's own text with its special tokens, to which the mask rate applies."""
    source: NDArray[np.int64]
    """The node in the store behind each target; the number of the row if rows are packed from running text."""
    node_source: NDArray[np.int64]
    """The node in the store behind each of `nodes`."""
    frame: Frame
    """Special tokens around each text."""
    node_weight: Float64[Tensor, " node"] | None = None
    """Weight of the losses of each node's own vector; None if the view gives none."""
    token_type_ids: Int[Tensor, " target_total"] | None = None
    pair_labels: Int[Tensor, " target"] | None = None
    """For rows of two segments, whether the second one is random (1) or follows the first one in its document (0), as in BERT;
    None for other rows."""
    output_positions: OutputPositions | None = None
    """The positions whose states are computed (None = all)."""
    labels: Int[Tensor, " position"] | None = None
    """The token to predict at each output position, IGNORE if there is none; None before corruption."""
    null_context: bool = False
    """Whether every target reads the model's learned null row alone."""

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    @property
    def num_target_tokens(self) -> int:
        # Special tokens count; context before a target's own text in its row does not.
        return int(self.own_tokens.sum())

    @property
    def device(self) -> torch.device:
        return self.target_ids.device

    @property
    def costs(self) -> NDArray[np.int64]:
        """The size of each target's graph in tokens: its own tokens, and one per `KEYS_A_TOKEN` vectors that it gathers."""
        return self.targets.host_lengths + self.contexts.host_lengths // KEYS_A_TOKEN

    def node_rows(self, start: int, stop: int) -> EncoderInput:
        """The clean texts of the nodes `[start, stop)` as rows that are read alone."""
        host = self.nodes.host_lengths
        ids = self.input_ids[int(host[:start].sum()) : int(host[:stop].sum())]
        return EncoderInput.of_rows(ids, Rows.build(host[start:stop]).to(ids.device))

    def rows(self, *, context: bool, vectors: Float[Tensor, "node dim"] | None = None) -> EncoderInput:
        """The targets as rows, alone or with the nodes that they read, whose `vectors` may be known. Each row is one text: its
        own, without the context that was written into its row."""
        lengths = self.targets.host_lengths
        spans = np.stack([lengths - self.own_tokens + self.frame.before, lengths - self.frame.after], 1)[:, None]
        return EncoderInput(
            self.target_ids,
            self.targets,
            self.token_type_ids,
            self.node_context(vectors) if context else None,
            self.source,
            spans,
            np.zeros((len(lengths), 1), dtype=np.int64),
        )

    def node_context(self, vectors: Float[Tensor, "node dim"] | None = None) -> NodeContext:
        """The nodes that the targets read, whose `vectors` may be known."""
        return NodeContext(
            self.input_ids, self.nodes, self.depth, self.context, self.contexts, self.readers, self.target_depth, vectors
        )

    def reading_its_own(self) -> tuple["Batch", Int[Tensor, " read"]]:
        """The batch reduced to the nodes that its targets read, and the indices of these nodes."""
        read, context = self.context.unique(return_inverse=True)
        host = read.cpu().numpy()
        tokens = torch.from_numpy(places(self.nodes.host_lengths, host)).to(read.device)
        reduced = replace(
            self,
            input_ids=self.input_ids[tokens],
            nodes=Rows.build(self.nodes.host_lengths[host]).to(read.device),
            depth=self.depth[read],
            node_weight=None if self.node_weight is None else self.node_weight[read],
            context=context,
            node_source=self.node_source[host],
        )
        return reduced, read

    def select(self, start: int, stop: int) -> "Batch":
        """The batch reduced to the targets `[start, stop)`, with all nodes."""
        host = self.targets.host_lengths
        tokens = slice(int(host[:start].sum()), int(host[:stop].sum()))
        keys = self.contexts.host_lengths
        context = slice(int(keys[:start].sum()), int(keys[:stop].sum()))
        device = self.target_ids.device
        targets, contexts, readers = target_rows(host[start:stop], keys[start:stop])
        output_positions, labels = None, self.labels
        if self.output_positions is not None:
            counts = self.output_positions.rows.host_lengths
            picked = slice(int(counts[:start].sum()), int(counts[:stop].sum()))
            output_positions = select_positions(
                self.output_positions.index[picked] - tokens.start, counts[start:stop], targets, readers
            )
            labels = None if labels is None else labels[picked]
        types, pair_labels = self.token_type_ids, self.pair_labels
        return replace(
            self,
            target_ids=self.target_ids[tokens],
            targets=targets.to(device),
            target_depth=self.target_depth[start:stop],
            maskable=self.maskable[tokens],
            weight=self.weight[start:stop],
            context=self.context[context],
            contexts=contexts.to(device),
            readers=readers.to(device),
            num_maskable=self.num_maskable[start:stop],
            own_tokens=self.own_tokens[start:stop],
            source=self.source[start:stop],
            token_type_ids=None if types is None else types[tokens],
            pair_labels=None if pair_labels is None else pair_labels[start:stop],
            output_positions=output_positions,
            labels=labels,
        )


def select_positions(
    index: Int[Tensor, " position"], counts: NDArray[np.int64], targets: Rows, readers: Rows
) -> OutputPositions:
    """Output positions: `counts[i]` places of target i. `index` has all places on the flat axis, in ascending order."""
    rows = Rows.build(counts, keys=targets.keys)
    cross_rows = Rows.build(counts, keys=readers.keys)
    return OutputPositions(index, rows.to(index.device), cross_rows.to(index.device))


def target_rows(lengths: NDArray[np.int64], keys: NDArray[np.int64]) -> tuple[Rows, Rows, Rows]:
    """Targets, their contexts, and the targets as readers; the last two share their group borders."""
    pairs = length_key(lengths) * 64 + doubling_key(keys)
    return Rows.build(lengths), Rows.build(keys, keys=pairs), Rows.build(lengths, keys=pairs)


@dataclass(frozen=True)
class Collator:
    """Lays examples flat: clean nodes sorted by length, targets sorted by length and number of context nodes.

    With `input.concatenate`, the context's texts are written into the target's row instead, `[CLS] oldest [SEP] … [SEP] own
    [SEP]`. A row that is too long loses its oldest tokens.
    """

    forest: Forest
    tokenizer: Tokenizer
    input: TextInput
    share: bool = True
    """Encode a node once per batch instead of once per example. The results are the same, at a lower cost."""

    @property
    def concatenate(self) -> int:
        return self.input.concatenate

    @cached_property
    def layout(self) -> RowLayout:
        return self.input.row_layout(self.tokenizer)

    def __call__(self, examples: Sequence[Example]) -> Batch:
        source = join([example.targets for example in examples])
        keys = join([example.context_lengths for example in examples])
        context = join([example.context for example in examples])
        weight = np.concatenate([example.weight for example in examples]) if examples else np.zeros(0)
        special, after = self.layout.num_special, len(self.layout.after)
        room = self.input.max_tokens - special
        text_lengths = np.minimum(self.forest.length[source], room)
        types = None
        before: list[NDArray[np.int64]] = []
        if not self.concatenate:
            lengths = text_lengths + special
        else:
            before, lengths = self._rows_with_context(text_lengths, keys, context)
            keys, context = np.zeros_like(keys), context[:0]
        # A stable order by (rounded length, context size class), so that equal batches are laid out alike.
        order = np.lexsort((doubling_key(keys), length_key(lengths)))
        entries = places(keys, order)
        context = context[entries]
        source, keys, weight = source[order], keys[order], weight[order]
        text_lengths, lengths = text_lengths[order], lengths[order]

        if not self.concatenate:
            target_ids = self._wrap(source, text_lengths)
        else:
            target_ids, types = self._concatenated([before[i] for i in order], source, text_lengths, lengths)
        targets, contexts, readers = target_rows(lengths, keys)
        # Only the target's own text is maskable, not the special tokens after it.
        back = np.repeat(lengths, lengths) - (np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths))
        maskable = (back > after) & (back <= np.repeat(text_lengths, lengths) + after)

        # The example's number distinguishes the same node of two examples.
        numbers = np.repeat(np.arange(len(examples)), [len(example.targets) for example in examples])[order]
        by_example = context + np.repeat(numbers, keys) * len(self.forest.length)
        nodes, context = np.unique(context if self.share else by_example, return_inverse=True)
        context = context.reshape(-1)
        nodes = nodes % max(1, len(self.forest.length))
        node_weight = None
        weights = [example.context_weight for example in examples if example.context_weight is not None]
        if not self.concatenate and len(weights) == len(examples) > 0:
            # Each example counts a node once, however many of its targets read it.
            _, once = np.unique(by_example, return_index=True)
            node_weight = np.bincount(context[once], np.concatenate(weights)[entries[once]], len(nodes))
            # Without nodes, bincount returns integers.
            node_weight = node_weight.astype(np.float64, copy=False)
        node_lengths = np.minimum(self.forest.length[nodes], room)
        by_length = np.argsort(length_key(node_lengths + special), kind="stable")
        rank = np.empty_like(by_length)
        rank[by_length] = np.arange(len(by_length))
        nodes, node_lengths = nodes[by_length], node_lengths[by_length]
        node_weight = None if node_weight is None else torch.from_numpy(node_weight[by_length])
        return Batch(
            input_ids=torch.from_numpy(self._wrap(nodes, node_lengths)),
            nodes=Rows.build(node_lengths + special),
            depth=torch.from_numpy(self.forest.depth[nodes]),
            target_ids=torch.from_numpy(target_ids),
            targets=targets,
            target_depth=torch.from_numpy(self.forest.depth[source]),
            maskable=torch.from_numpy(maskable),
            weight=torch.from_numpy(weight),
            context=torch.from_numpy(rank[context].astype(np.int64)),
            contexts=contexts,
            readers=readers,
            num_maskable=text_lengths,
            own_tokens=text_lengths + special,
            source=source,
            node_source=nodes,
            frame=self.layout.frame,
            node_weight=node_weight,
            token_type_ids=None if types is None or self.layout.types is None else torch.from_numpy(types),
            null_context=self.input.context == "null",
        )

    def _wrap(self, nodes: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the nodes' texts, one after the other."""
        return self.layout.wrap_batch(self.forest.gather(nodes, lengths), lengths)

    def _rows_with_context(
        self, text_lengths: NDArray[np.int64], keys: NDArray[np.int64], context: NDArray[np.int64]
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
        """The context tokens before each target's text, truncated from the oldest, and the lengths of the whole rows."""
        special, separator = self.layout.num_special, np.array(self.layout.separator, dtype=np.int64)
        lengths = np.minimum(self.forest.length[context], self.input.max_tokens - special)
        ids = self.forest.gather(context, lengths)
        ends = np.cumsum(lengths)
        before, key = [], 0
        for index, count in enumerate(keys.tolist()):
            parts: list[NDArray[np.int64]] = []
            for node in range(key, key + count):
                parts += [ids[ends[node] - lengths[node] : ends[node]], separator]
            key += count
            room = max(0, self.concatenate - int(text_lengths[index]) - special)
            joined = np.concatenate(parts) if parts else np.zeros(0, np.int64)
            kept = min(room, len(joined))
            before.append(joined[len(joined) - (kept if kept >= len(separator) else 0) :])
        return before, text_lengths + special + np.array([len(tokens) for tokens in before], dtype=np.int64)

    def _concatenated(
        self,
        before: list[NDArray[np.int64]],
        source: NDArray[np.int64],
        text_lengths: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows `[CLS] context own [SEP]` and their token types: 0 up to the context's end, 1 for the own text."""
        texts = np.split(self.forest.gather(source, text_lengths), np.cumsum(text_lengths)[:-1]) if len(text_lengths) else []
        ids, types = [], []
        for context, text in zip(before, texts, strict=True):
            if len(context):
                context = context[: len(context) - len(self.layout.separator)]
                row, kinds = self.layout.wrap_pair(context, text), self.layout.types_of(len(context), len(text))
            else:
                # Without a context, the own text still has the second type.
                row = self.layout.wrap(text)
                first = len(self.layout.before)
                kinds = np.repeat(self.layout.types or (0, 0), [first, len(row) - first])
            ids.append(row)
            types.append(kinds)
        return join(ids), join(types)


def join(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.zeros(0, np.int64)

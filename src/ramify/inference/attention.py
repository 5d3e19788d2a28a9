"""The attention weights of a text: of every layer and head, between tokens, and from tokens to ancestors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ramify.errors import CannotError, RamifyError
from ramify.inference.answers import HeadWeights, StackWeights
from ramify.inference.mask_query import NodeInContext
from ramify.inference.rows import recorded
from ramify.inference.verbs import VERBS
from ramify.models.base import AnyBackbone, Backbone
from ramify.nn.attention import AttentionRecord
from ramify.nn.modes import evaluating
from ramify.tokenizer import Tokenizer

MAX_PAIRS = 1 << 18
"""Most pairs of a query and a key, per head and layer, that are recorded. A row of 512 tokens has so many."""


@dataclass(frozen=True)
class AttentionTable:
    """The weights of one kind of attention, in all layers of a stack."""

    stack: str
    """encoder or decoder; output: the output attention of a TreeMLM; streams: those of an XLNet."""
    kind: str
    """self, cross (to ancestors, or to the source of a text), content or query."""
    node: str
    """The node whose text is read, itself or as a source."""
    queries: list[str]
    keys: list[str]
    layers: list[Float[Tensor, "head query key"]]


def node_attention(backbone: Backbone, text: NodeInContext, ids: Sequence[int]) -> list[AttentionTable]:
    """The weights of a model that reads a node in its context, and then those of its encoder for each ancestor."""
    check_records(backbone)
    batch, _ = text.batch([ids])
    nodes, rows = batch.nodes.host_lengths, batch.targets.host_lengths
    check_pairs(int((nodes**2).sum() + (rows**2).sum()), alone=not len(nodes))
    batch = batch.to(next(backbone.parameters()).device)
    with torch.no_grad(), evaluating(backbone):
        if batch.null_context:
            record: AttentionRecord = {}
            backbone(batch, record=record)
        else:
            record = recorded(backbone, batch.rows(context=backbone.reads_context))
    names = _names(text, batch.node_source.tolist())
    read = ["null"] if batch.null_context else [names[row] for row in batch.context.tolist()]
    node_id, tokens = text.tree.nodes[text.node].id, spelled(text.tokenizer, batch.target_ids)
    of_nodes = record.pop("encoder", []) if backbone.reads_context else []
    tables = text_tables(record, node_id, tokens, read)
    ancestors = torch.split(batch.input_ids, nodes.tolist())
    # Ancestors come in the order of the context, oldest first.
    for row in dict.fromkeys(batch.context.tolist()):
        words = spelled(text.tokenizer, ancestors[row])
        tables.append(AttentionTable("encoder", "self", names[row], words, words, [layer["self"][row] for layer in of_nodes]))
    return tables


def text_tables(record: AttentionRecord, node: str, tokens: list[str], ancestors: list[str]) -> list[AttentionTable]:
    """The weights of one text, among its tokens and from them to its ancestors."""
    tables = []
    for stack, layers in record.items():
        for kind in layers[0]:
            keys = ancestors if kind == "cross" else tokens
            # A text without ancestors has no weights of cross-attention.
            if keys:
                tables.append(AttentionTable(stack, kind, node, tokens, keys, [layer[kind][0] for layer in layers]))
    return tables


def check_records(backbone: AnyBackbone) -> None:
    """Raise if a model has no attention that can be recorded."""
    if not backbone.records_attention:
        raise CannotError(f"this {type(backbone).__name__} has no attention heads. Choose {VERBS['attention'].models}.")


def check_pairs(pairs: int, *, alone: bool) -> None:
    """Raise if there would be too many weights. `alone`: the text is read without a context that could be made smaller."""
    if pairs > MAX_PAIRS:
        remedy = "Shorten the text." if alone else "Shorten the text, or set context=parent or context=none."
        raise RamifyError(f"every head would have {pairs:,} weights, which is above {MAX_PAIRS:,}. {remedy}")


def spelled(tokenizer: Tokenizer, ids: Int[Tensor, " token"]) -> list[str]:
    """The spelling of each token, for people."""
    return [tokenizer.shown(token_id) for token_id in ids.tolist()]


def _names(text: NodeInContext, places: Sequence[int]) -> list[str]:
    """The ids of nodes of the forest. The parts of a chained text are numbered from the second on."""
    names = []
    for place in places:
        node = int(text.forest.node[place])
        part = place - int(text.forest.node.searchsorted(node))
        names.append(text.tree.nodes[node].id + (f" ({part + 1})" if part else ""))
    return names


class AttentionRequest(NamedTuple):
    """The layer and the head, counted from 1, whose weights are wanted (None: all), the factorization order, and the target."""

    layer: int | None
    head: int | None
    order: Literal["forward", "backward", "random"] | None
    seed: int
    target: str | None

    def of(self, tables: Sequence[AttentionTable]) -> tuple[StackWeights, ...]:
        """The wanted weights as NumPy arrays. Raises `RamifyError` if no table has this layer or head."""
        sizes = {
            "layer": max(len(table.layers) for table in tables),
            "head": max(len(weights) for table in tables for weights in table.layers),
        }
        for name, number in (("layer", self.layer), ("head", self.head)):
            if number is not None and not 1 <= number <= sizes[name]:
                raise RamifyError(f"{name}={number} is not in this model. Choose 1 to {sizes[name]}, or leave it out.")
        stacks = []
        for table in tables:
            heads = tuple(
                HeadWeights(place, number, weights.float().cpu().numpy())
                for place, of_heads in enumerate(table.layers, 1)
                for number, weights in enumerate(of_heads, 1)
                if self.layer in (None, place) and self.head in (None, number)
            )
            if heads:
                stacks.append(StackWeights(table.stack, table.kind, table.node, tuple(table.queries), tuple(table.keys), heads))
        return tuple(stacks)

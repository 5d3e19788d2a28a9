"""Conversion of the whole trees that readers yield to rows, and of scattered rows back to trees."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ramify.dataset.chunk import ADDED, BLANK_KINDS, EMPTIED, INTACT, Chunk
from ramify.dataset.store import NODES, node_columns, to_json
from ramify.readers.base import Policy, ReadCounts, pc
from ramify.tree import GROUP, Node, Tree

BATCH_NODES = 1 << 14

ROWS = pa.schema(
    [
        *(field for field in NODES if field.name not in ("depth", "author", "kind")),
        pa.field("author", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("tree", pa.string()),
        # Determines the split: trees of one group are in the same split.
        pa.field("group", pa.string()),
        pa.field("first", pa.bool_()),
        pa.field("state", pa.int8()),
        # On the first node of each tree.
        pa.field("meta", pa.string()),
    ]
)


def batches(trees: Iterable[Tree]) -> Iterator[pa.RecordBatch]:
    """Convert trees to rows (`ROWS`), one per node, in order."""
    pending: list[Tree] = []
    num_nodes = 0
    for tree in trees:
        if len(tree):
            pending.append(tree)
            num_nodes += len(tree)
        if num_nodes >= BATCH_NODES:
            yield _batch(pending)
            pending, num_nodes = [], 0
    if pending:
        yield _batch(pending)


def _batch(trees: list[Tree]) -> pa.RecordBatch:
    columns = node_columns(trees)
    columns["tree"] = [tree.id for tree in trees for _ in tree.nodes]
    columns["group"] = [str(tree.meta.get(GROUP, tree.id)) for tree in trees for _ in tree.nodes]
    columns["state"] = [_state(node) for tree in trees for node in tree.nodes]
    columns["first"] = [index == 0 for tree in trees for index in range(len(tree))]
    columns["meta"] = [to_json(dict(tree.meta) or None) if index == 0 else None for tree in trees for index in range(len(tree))]
    return pa.RecordBatch.from_pydict(columns, schema=ROWS)


def gather(rows: pa.Table, policy: Policy, counts: ReadCounts) -> Chunk:
    """Assemble the trees of some rows (`ROWS` and a column `hash`), sorted by hash. Only one tree per id remains."""
    content = rows.combine_chunks()
    starts = np.flatnonzero(content["first"].to_numpy())
    lengths = np.diff(starts, append=content.num_rows)
    hashes = content["hash"].to_numpy()[starts]
    ids = content["tree"].chunk(0).take(pa.array(starts))
    names = pc.rank(ids, tiebreaker="dense").to_numpy()
    order = np.lexsort((names, hashes))
    names = names[order]
    earlier_first = names if policy.duplicate_id == "first" else names[::-1]
    _, winners = np.unique(earlier_first, return_index=True)
    winners = np.sort(winners if policy.duplicate_id == "first" else len(names) - 1 - winners)
    losers = np.delete(order, winners)
    state = content["state"].to_numpy()
    placeholders = np.add.reduceat(state == ADDED, starts) if len(starts) else lengths
    counts.skip("duplicate_tree", count=int((lengths - placeholders)[losers].sum()))
    for tree in losers.tolist():
        counts.example("duplicate_tree", f"tree {ids[tree]}")
    trees = order[winners]
    lengths = lengths[trees]
    nodes = np.arange(lengths.sum()) + np.repeat(starts[trees] - (np.cumsum(lengths) - lengths), lengths)
    return Chunk.of(
        content,
        rows=nodes,
        lengths=lengths,
        hashes=hashes[trees],
        tree_ids=ids.take(pa.array(trees)),
        metas=content["meta"].chunk(0).take(pa.array(starts[trees])),
        state=state[nodes],
    )


def _state(node: Node) -> int:
    """The state of a node. A root that was blank in the store that its tree was exported from stays blank."""
    if node.is_placeholder:
        return ADDED
    return EMPTIED if node.kind == BLANK_KINDS[EMPTIED] and not node.parents and not node.text else INTACT

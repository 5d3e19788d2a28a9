"""Trees that readers yield whole, as columns that can be scattered and gathered again."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ramify.dataset.chunk import BLANK_KINDS, EMPTIED, MADE_UP, SPEAKS, Chunk
from ramify.dataset.store import NODES, node_columns, to_json
from ramify.readers.base import Policy, Report, pc
from ramify.tree import GROUP, Node, Tree

BATCH_NODES = 1 << 14

ROWS = pa.schema(
    [
        *(field for field in NODES if field.name not in ("depth", "author", "kind")),
        pa.field("author", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("tree", pa.string()),
        # What decides about its split: trees of one group are in the same.
        pa.field("group", pa.string()),
        pa.field("first", pa.bool_()),
        pa.field("state", pa.int8()),
        # On the first node of each tree.
        pa.field("meta", pa.string()),
    ]
)


def batches(trees: Iterable[Tree]) -> Iterator[pa.RecordBatch]:
    """One row a node, in order."""
    held: list[Tree] = []
    nodes = 0
    for tree in trees:
        if len(tree):
            held.append(tree)
            nodes += len(tree)
        if nodes >= BATCH_NODES:
            yield _batch(held)
            held, nodes = [], 0
    if held:
        yield _batch(held)


def _batch(trees: list[Tree]) -> pa.RecordBatch:
    columns = node_columns(trees)
    columns["tree"] = [tree.id for tree in trees for _ in tree.nodes]
    columns["group"] = [str(tree.meta.get(GROUP, tree.id)) for tree in trees for _ in tree.nodes]
    columns["state"] = [_state(node) for tree in trees for node in tree.nodes]
    columns["first"] = [place == 0 for tree in trees for place in range(len(tree))]
    columns["meta"] = [to_json(dict(tree.meta) or None) if place == 0 else None for tree in trees for place in range(len(tree))]
    return pa.RecordBatch.from_pydict(columns, schema=ROWS)


def gather(rows: pa.Table, policy: Policy, report: Report) -> Chunk:
    """The trees of some rows (`ROWS` and a column `hash`), by hash; of several trees with one id a single one stays."""
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
    made_up = np.add.reduceat(state == MADE_UP, starts) if len(starts) else lengths
    report.skip("duplicate_tree", count=int((lengths - made_up)[losers].sum()))
    for tree in losers.tolist():
        report.example("duplicate_tree", f"tree {ids[tree]}")
    kept = order[winners]
    lengths = lengths[kept]
    places = np.arange(lengths.sum()) + np.repeat(starts[kept] - (np.cumsum(lengths) - lengths), lengths)
    return Chunk.of(
        content,
        rows=places,
        lengths=lengths,
        hashes=hashes[kept],
        tree_ids=ids.take(pa.array(kept)),
        metas=content["meta"].chunk(0).take(pa.array(starts[kept])),
        state=state[places],
    )


def _state(node: Node) -> int:
    """Roots that said nothing in the store that their tree was exported from say nothing here."""
    if node.is_made_up:
        return MADE_UP
    return EMPTIED if node.kind == BLANK_KINDS[EMPTIED] and not node.parents and not node.text else SPEAKS

"""Posts in any order, joined into trees: a few passes over arrays, never a Python object for a post."""

import json

import numpy as np
import pyarrow as pa

from ramify.dataset.chunk import MADE_UP, SPEAKS, Chunk, Mask, jumps
from ramify.readers.base import EXAMPLES, Policy, Report, free_id, pc
from ramify.tree import GROUP, NO_PARENT, Indices, depths, roots_of

UNKNOWN_PARENT = -2


def join(posts: pa.Table, policy: Policy, report: Report) -> Chunk:
    """The trees of some posts: `POSTS` (and a `label`), and a column `hash` of the tree's id. All posts of a tree are there.

    A tree's nodes are ordered by time, but never before their parents; without times, and at equal times, by their order in
    the input.
    """
    draft = _Draft(posts, report)
    draft.link(policy)
    draft.add_roots(policy)
    draft.break_cycles(policy)
    draft.hang_orphans(policy)
    if policy.two_roots == "first":
        draft.drop_below("two_roots", draft.is_further_root)
    return draft.chunk(policy)


class _Draft:
    """The posts that remain, as parallel arrays in the order of the input. Its methods are the steps of `join`."""

    def __init__(self, posts: pa.Table, report: Report) -> None:
        self.report = report
        self.content = posts.drop_columns(["hash"]).combine_chunks()
        encoded = self.content["tree"].chunk(0).dictionary_encode()
        tree = encoded.indices.to_numpy()
        hashes = posts["hash"].to_numpy()[np.unique(tree, return_index=True)[1]]
        by_hash = np.argsort(hashes, kind="stable")
        self.hashes = hashes[by_hash]
        self.tree_ids = encoded.dictionary.take(pa.array(by_hash))
        self.row = np.arange(posts.num_rows)
        self.tree = _inverse(by_hash)[tree]
        self.state = np.full(posts.num_rows, SPEAKS, dtype=np.int8)
        parents = [self.content[name].chunk(0) for name in ("parent", "or_parent") if name in self.content.column_names]
        names = pa.concat_arrays([self.content["id"].chunk(0), self.tree_ids, *parents]).dictionary_encode()
        codes = names.indices.fill_null(NO_PARENT).to_numpy().astype(np.int64)
        own, of_tree, *above = np.split(
            codes, np.cumsum([len(tree), len(self.tree_ids), *(len(each) for each in parents[:-1])])
        )
        self.key = self.tree * len(names.dictionary) + own
        self.wanted = [np.where(each == NO_PARENT, NO_PARENT, self.tree * len(names.dictionary) + each) for each in above]
        """What is looked up as a post's parent; further arrays hold what is looked up where that is not there."""
        self.answers_tree = np.any([each == of_tree[self.tree] for each in above], axis=0)
        self.has_trees_id = own == of_tree[self.tree]
        self.parent = np.full(len(tree), UNKNOWN_PARENT, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def first_root(self) -> Indices:
        """[tree]: its first root, or -1."""
        places = np.flatnonzero(self.parent == NO_PARENT)[::-1]
        first = np.full(len(self.hashes), NO_PARENT, dtype=np.int64)
        first[self.tree[places]] = places
        return first

    @property
    def is_further_root(self) -> Mask:
        return (self.parent == NO_PARENT) & (self.first_root[self.tree] != np.arange(len(self)))

    def link(self, policy: Policy) -> None:
        """Look parents up by id; of several posts with one id a single one stays."""
        if policy.duplicate_id == "last":
            stays = len(self) - 1 - _find(self.key, self.key[::-1])
        else:
            stays = _find(self.key, self.key)
        first, *others = self.wanted
        found = np.where(first == NO_PARENT, NO_PARENT, _find(first, self.key))
        for other in others:
            again = (found == UNKNOWN_PARENT) & (other != NO_PARENT)
            found[again] = _find(other[again], self.key)
        self.parent = _renumber(found, stays)
        self._leave_out("duplicate_id", stays != np.arange(len(self)))

    def add_roots(self, policy: Policy) -> None:
        """Trees without a root get one, and what names the tree as its parent hangs on the root."""
        rootless = np.flatnonzero(self.first_root == NO_PARENT)
        if policy.missing_root == "drop":
            self._leave_out("missing_root", np.isin(self.tree, rootless))
        else:
            self._make_up_roots(rootless)
        answers = (self.parent == UNKNOWN_PARENT) & self.answers_tree
        self.parent[answers] = self.first_root[self.tree[answers]]

    def _make_up_roots(self, trees: Indices) -> None:
        count = len(trees)
        if count == 0:
            return
        names = self.tree_ids.take(pa.array(trees))
        columns = {"id": self._free_ids(trees, names), "tree": names, "text": pa.array([""] * count, pa.large_string())}
        schema = self.content.schema
        rows = pa.table([columns.get(field.name, pa.nulls(count, field.type)) for field in schema], schema=schema)
        self.row = np.append(self.row, self.content.num_rows + np.arange(count))
        self.content = pa.concat_tables([self.content, rows]).combine_chunks()
        self.tree = np.append(self.tree, trees)
        self.state = np.append(self.state, np.full(count, MADE_UP, dtype=np.int8))
        self.parent = np.append(self.parent, np.full(count, NO_PARENT))
        self.answers_tree = np.append(self.answers_tree, np.zeros(count, dtype=bool))
        self.has_trees_id = np.append(self.has_trees_id, np.zeros(count, dtype=bool))

    def _free_ids(self, trees: Indices, names: pa.Array) -> pa.Array:
        """The trees' ids, or others where a post has that."""
        clash = np.isin(trees, self.tree[self.has_trees_id])
        if not clash.any():
            return names
        ids = self.content["id"].chunk(0)
        taken = (
            set(ids.take(pa.array(self.row[self.tree == tree])).to_pylist()) if bad else () for tree, bad in zip(trees, clash)
        )
        return pa.array([free_id(name, each) for name, each in zip(names.to_pylist(), taken)], pa.string())

    def break_cycles(self, policy: Policy) -> None:
        """Posts that never reach a root stand on a ring, or hang on one."""
        far = np.full(len(self) + 1, len(self))
        for up in jumps(self.parent):
            far = up[up]
        stuck = far[:-1] != len(self)
        if policy.cycle == "drop":
            self._leave_out("cycle", stuck)
        elif stuck.any():
            ring = np.unique(far[:-1][stuck])
            lowest = np.arange(len(self))
            step = lowest.copy()
            step[ring] = self.parent[ring]
            for _ in range(len(ring).bit_length()):
                lowest, step = np.minimum(lowest, lowest[step]), step[step]
            cut = ring[lowest[ring] == ring]
            self.parent[cut] = self.first_root[self.tree[cut]]
            self._mend("cycle", cut)

    def hang_orphans(self, policy: Policy) -> None:
        orphan = self.parent == UNKNOWN_PARENT
        if policy.orphan == "drop":
            self.drop_below("orphan", orphan)
        else:
            self.parent[orphan] = self.first_root[self.tree[orphan]]
            self._mend("orphan", np.flatnonzero(orphan))

    def drop_below(self, reason: str, mask: Mask) -> None:
        """Leave posts out with everything below them."""
        below = np.append(mask, False)
        for up in jumps(self.parent):
            below |= below[up]
        self._leave_out(reason, below[:-1])

    def chunk(self, policy: Policy) -> Chunk:
        further = self.is_further_root if policy.two_roots == "split" else np.zeros(len(self), dtype=bool)
        self._mend("split_roots", np.flatnonzero(further))
        # A further root's nodes come after those of the first, by the root's id, and are a tree of their own.
        rank = np.full(len(self), NO_PARENT)
        places = np.flatnonzero(further)
        by_id = pc.sort_indices(self.content["id"].chunk(0).take(pa.array(self.row[places]))).to_numpy()
        rank[places[by_id]] = np.arange(len(places))
        part = rank[roots_of(self.parent)]
        time = np.nan_to_num(self.content["time"].chunk(0).to_numpy(zero_copy_only=False), nan=-np.inf)
        time = np.append(time[self.row], -np.inf)
        arrival = np.append(np.where(self.state == MADE_UP, NO_PARENT, np.arange(len(self))), NO_PARENT)
        for up in jumps(self.parent):
            time, arrival = np.maximum(time, time[up]), np.maximum(arrival, arrival[up])
        order = np.lexsort((depths(self.parent), arrival[:-1], time[:-1], part, self.tree))
        tree, part, parent, row = self.tree[order], part[order], self.parent[order], self.row[order]
        child = np.flatnonzero(parent != NO_PARENT)
        starts = np.flatnonzero((np.diff(tree, prepend=-1) != 0) | (np.diff(part, prepend=-1) != 0))
        return Chunk(
            content=self.content,
            rows=row,
            edges=np.stack([child, _inverse(order)[parent[child]]], axis=1),
            annotated=np.ones(len(row), dtype=bool),
            state=self.state[order],
            lengths=np.diff(starts, append=len(row)),
            hashes=self.hashes[tree[starts]],
            tree_ids=self._part_ids(tree[starts], row[starts], part[starts] != NO_PARENT),
            metas=self._part_metas(tree[starts], row[starts], part[starts] != NO_PARENT),
        )

    def _part_ids(self, trees: Indices, root_rows: Indices, further: Mask) -> pa.Array:
        """The trees' ids; the tree of a further root is called after both."""
        ids = self.tree_ids.take(pa.array(trees))
        if not further.any():
            return ids
        root_ids = self.content["id"].chunk(0).take(pa.array(root_rows))
        return pc.if_else(pa.array(further), pc.binary_join_element_wise(ids, root_ids, "/"), ids)

    def _part_metas(self, trees: Indices, root_rows: Indices, further: Mask) -> pa.Array:
        """What is said about the trees. Those of further roots are of the same group as the first's."""
        metas = self.content["meta"].chunk(0).take(pa.array(root_rows))
        if not further.any():
            return metas
        names = self.tree_ids.take(pa.array(trees[further])).to_pylist()
        own = [json.loads(meta or "{}") for meta in metas.filter(pa.array(further)).to_pylist()]
        grouped = [json.dumps({GROUP: name, **meta}, ensure_ascii=False) for name, meta in zip(names, own, strict=True)]
        return pc.replace_with_mask(metas, pa.array(further), pa.array(grouped, pa.string()))

    def _leave_out(self, reason: str, mask: Mask) -> None:
        """Forget posts that nothing which stays hangs on."""
        if not mask.any():
            return
        read = np.flatnonzero(mask & (self.state != MADE_UP))
        self.report.skip(reason, count=len(read))
        self._remember(reason, read)
        stays = ~mask
        self.parent = _renumber(self.parent[stays], np.cumsum(stays) - 1)
        self.row, self.tree, self.state = self.row[stays], self.tree[stays], self.state[stays]
        self.answers_tree, self.has_trees_id = self.answers_tree[stays], self.has_trees_id[stays]

    def _mend(self, reason: str, places: Indices) -> None:
        self.report.mend(reason, count=len(places))
        self._remember(reason, places)

    def _remember(self, reason: str, places: Indices) -> None:
        for row in self.row[places[:EXAMPLES]].tolist():
            self.report.example(reason, f"tree {self.content['tree'][row]}, post {self.content['id'][row]}")


def _find(wanted: Indices, keys: Indices) -> Indices:
    """Where each value first stands in `keys`, or UNKNOWN_PARENT."""
    return pc.index_in(pa.array(wanted), value_set=pa.array(keys)).fill_null(UNKNOWN_PARENT).to_numpy().astype(np.int64)


def _renumber(parent: Indices, number: Indices) -> Indices:
    """Parents by their new numbers; UNKNOWN_PARENT and NO_PARENT, which are -2 and -1, stay."""
    return np.append(number, [UNKNOWN_PARENT, NO_PARENT])[parent]


def _inverse(order: Indices) -> Indices:
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place

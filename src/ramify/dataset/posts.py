"""Joining of posts in any order into trees: a few passes over arrays, without a Python object per post."""

import json

import numpy as np
import pyarrow as pa

from ramify.dataset.chunk import ADDED, INTACT, Chunk, Mask, jumps
from ramify.dataset.links import Links
from ramify.readers.base import EXAMPLES, Policy, ReadCounts, free_id, pc
from ramify.tree import GROUP, NO_PARENT, Indices, depths, roots_of

UNKNOWN_PARENT = -2


def join(posts: pa.Table, policy: Policy, counts: ReadCounts, links: Links | None = None) -> Chunk:
    """Join posts into trees. The columns are those of `POSTS`, an optional `label` and the `hash` of the tree's id.

    `links` counts known and unknown parents.

    All posts of a tree must be present. The nodes of a tree are ordered by time, but follow their parents. Nodes with equal or
    missing times keep their order in the input.
    """
    draft = _Draft(posts, counts)
    draft.link(policy)
    draft.add_roots(policy)
    if links is not None:
        draft.count(links)
    draft.break_cycles(policy)
    draft.attach_orphans(policy)
    if policy.two_roots == "first":
        draft.drop_subtrees("two_roots", draft.is_further_root)
    return draft.chunk(policy)


class _Draft:
    """The remaining posts as parallel arrays in the order of the input. The methods are the steps of `join`."""

    def __init__(self, posts: pa.Table, counts: ReadCounts) -> None:
        self.counts = counts
        self.content = posts.drop_columns(["hash"]).combine_chunks()
        encoded = self.content["tree"].chunk(0).dictionary_encode()
        tree = encoded.indices.to_numpy()
        hashes = posts["hash"].to_numpy()[np.unique(tree, return_index=True)[1]]
        by_hash = np.argsort(hashes, kind="stable")
        self.hashes = hashes[by_hash]
        self.tree_ids = encoded.dictionary.take(pa.array(by_hash))
        self.row = np.arange(posts.num_rows)
        self.tree = _inverse(by_hash)[tree]
        self.state = np.full(posts.num_rows, INTACT, dtype=np.int8)
        parents = [self.content[name].chunk(0) for name in ("parent", "or_parent") if name in self.content.column_names]
        names = pa.concat_arrays([self.content["id"].chunk(0), self.tree_ids, *parents]).dictionary_encode()
        codes = names.indices.fill_null(NO_PARENT).to_numpy().astype(np.int64)
        post_codes, tree_codes, *parent_codes = np.split(
            codes, np.cumsum([len(tree), len(self.tree_ids), *(len(column) for column in parents[:-1])])
        )
        self.key = self.tree * len(names.dictionary) + post_codes
        self.parent_keys = [
            np.where(code == NO_PARENT, NO_PARENT, self.tree * len(names.dictionary) + code) for code in parent_codes
        ]
        """The keys of the parents. A later array gives the keys to look up if those of the earlier arrays are missing."""
        self.answers_tree = np.any([code == tree_codes[self.tree] for code in parent_codes], axis=0)
        self.has_trees_id = post_codes == tree_codes[self.tree]
        self.parent = np.full(len(tree), UNKNOWN_PARENT, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def first_root(self) -> Indices:
        """[tree]: the first root, or -1."""
        roots = np.flatnonzero(self.parent == NO_PARENT)[::-1]
        first = np.full(len(self.hashes), NO_PARENT, dtype=np.int64)
        first[self.tree[roots]] = roots
        return first

    @property
    def is_further_root(self) -> Mask:
        return (self.parent == NO_PARENT) & (self.first_root[self.tree] != np.arange(len(self)))

    def link(self, policy: Policy) -> None:
        """Look up parents by id. A post that is its own parent is a root. Of several posts with the same id, one remains."""
        if policy.duplicate_id == "last":
            representative = len(self) - 1 - _find(self.key, self.key[::-1])
        else:
            representative = _find(self.key, self.key)
        first, *others = self.parent_keys
        is_own_parent = first == self.key
        self._repair("own_parent", np.flatnonzero(is_own_parent))
        parent = np.where((first == NO_PARENT) | is_own_parent, NO_PARENT, _find(first, self.key))
        for other in others:
            unresolved = (parent == UNKNOWN_PARENT) & (other != NO_PARENT)
            parent[unresolved] = _find(other[unresolved], self.key)
            parent[unresolved & (other == self.key)] = NO_PARENT
        self.parent = _renumber(parent, representative)
        self._remove("duplicate_id", representative != np.arange(len(self)))

    def add_roots(self, policy: Policy) -> None:
        """Add a root to each tree without one, and attach posts whose parent is the tree's id to the root."""
        rootless = np.flatnonzero(self.first_root == NO_PARENT)
        if policy.missing_root == "drop":
            self._remove("missing_root", np.isin(self.tree, rootless))
        else:
            self._append_roots(rootless)
        answers = (self.parent == UNKNOWN_PARENT) & self.answers_tree
        self.parent[answers] = self.first_root[self.tree[answers]]

    def _append_roots(self, trees: Indices) -> None:
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
        self.state = np.append(self.state, np.full(count, ADDED, dtype=np.int8))
        self.parent = np.append(self.parent, np.full(count, NO_PARENT))
        self.answers_tree = np.append(self.answers_tree, np.zeros(count, dtype=bool))
        self.has_trees_id = np.append(self.has_trees_id, np.zeros(count, dtype=bool))

    def _free_ids(self, trees: Indices, names: pa.Array) -> pa.Array:
        """The ids of the trees, with a suffix if a post of the tree has the same id."""
        clash = np.isin(trees, self.tree[self.has_trees_id])
        if not clash.any():
            return names
        ids = self.content["id"].chunk(0)
        taken = (
            set(ids.take(pa.array(self.row[self.tree == tree])).to_pylist()) if has_clash else ()
            for tree, has_clash in zip(trees, clash)
        )
        return pa.array([free_id(name, tree_ids) for name, tree_ids in zip(names.to_pylist(), taken)], pa.string())

    def count(self, links: Links) -> None:
        """Count the replies, and those whose parent is unknown."""
        is_reply = self.parent != NO_PARENT
        is_unknown = np.zeros(self.content.num_rows, dtype=bool)
        is_unknown[self.row[self.parent == UNKNOWN_PARENT]] = True
        tree = np.full(self.content.num_rows, NO_PARENT)
        tree[self.row] = self.tree
        direct = int((is_reply & self.answers_tree).sum())
        links.add(self.content, tree, self.tree_ids, int(is_reply.sum()), direct, is_unknown)

    def break_cycles(self, policy: Policy) -> None:
        """Remove or attach the posts that never reach a root: they are on a cycle, or descend from one."""
        distant = np.full(len(self) + 1, len(self))
        for ancestor in jumps(self.parent):
            distant = ancestor[ancestor]
        rootless = distant[:-1] != len(self)
        if policy.cycle == "drop":
            self._remove("cycle", rootless)
        elif rootless.any():
            on_cycle = np.unique(distant[:-1][rootless])
            lowest = np.arange(len(self))
            step = lowest.copy()
            step[on_cycle] = self.parent[on_cycle]
            for _ in range(len(on_cycle).bit_length()):
                lowest, step = np.minimum(lowest, lowest[step]), step[step]
            cut = on_cycle[lowest[on_cycle] == on_cycle]
            self.parent[cut] = self.first_root[self.tree[cut]]
            self._repair("cycle", cut)

    def attach_orphans(self, policy: Policy) -> None:
        orphan = self.parent == UNKNOWN_PARENT
        if policy.orphan == "drop":
            self.drop_subtrees("orphan", orphan)
        else:
            self.parent[orphan] = self.first_root[self.tree[orphan]]
            self._repair("orphan", np.flatnonzero(orphan))

    def drop_subtrees(self, reason: str, mask: Mask) -> None:
        """Remove posts and their descendants."""
        inside = np.append(mask, False)
        for ancestor in jumps(self.parent):
            inside |= inside[ancestor]
        self._remove(reason, inside[:-1])

    def chunk(self, policy: Policy) -> Chunk:
        further = self.is_further_root if policy.two_roots == "split" else np.zeros(len(self), dtype=bool)
        self._repair("split_roots", np.flatnonzero(further))
        # The nodes of each further root are a tree of their own, after that of the first root and sorted by the root's id.
        rank = np.full(len(self), NO_PARENT)
        roots = np.flatnonzero(further)
        by_id = pc.sort_indices(self.content["id"].chunk(0).take(pa.array(self.row[roots]))).to_numpy()
        rank[roots[by_id]] = np.arange(len(roots))
        part = rank[roots_of(self.parent)]
        time = np.nan_to_num(self.content["time"].chunk(0).to_numpy(zero_copy_only=False), nan=-np.inf)
        time = np.append(time[self.row], -np.inf)
        arrival = np.append(np.where(self.state == ADDED, NO_PARENT, np.arange(len(self))), NO_PARENT)
        for ancestor in jumps(self.parent):
            time, arrival = np.maximum(time, time[ancestor]), np.maximum(arrival, arrival[ancestor])
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
        """The ids of the trees. The tree of a further root combines the id of the tree and that of the root."""
        ids = self.tree_ids.take(pa.array(trees))
        if not further.any():
            return ids
        root_ids = self.content["id"].chunk(0).take(pa.array(root_rows))
        return pc.if_else(pa.array(further), pc.binary_join_element_wise(ids, root_ids, "/"), ids)

    def _part_metas(self, trees: Indices, root_rows: Indices, further: Mask) -> pa.Array:
        """The metadata of the trees. The trees of further roots belong to the group of the first root's tree."""
        metas = self.content["meta"].chunk(0).take(pa.array(root_rows))
        if not further.any():
            return metas
        names = self.tree_ids.take(pa.array(trees[further])).to_pylist()
        further_metas = [json.loads(meta or "{}") for meta in metas.filter(pa.array(further)).to_pylist()]
        grouped = [
            json.dumps({GROUP: name, **meta}, ensure_ascii=False) for name, meta in zip(names, further_metas, strict=True)
        ]
        return pc.replace_with_mask(metas, pa.array(further), pa.array(grouped, pa.string()))

    def _remove(self, reason: str, mask: Mask) -> None:
        """Remove and count posts. No remaining post may have a removed parent."""
        if not mask.any():
            return
        read = np.flatnonzero(mask & (self.state != ADDED))
        self.counts.skip(reason, count=len(read))
        self._add_examples(reason, read)
        remaining = ~mask
        self.parent = _renumber(self.parent[remaining], np.cumsum(remaining) - 1)
        self.row, self.tree, self.state = self.row[remaining], self.tree[remaining], self.state[remaining]
        self.answers_tree, self.has_trees_id = self.answers_tree[remaining], self.has_trees_id[remaining]

    def _repair(self, reason: str, posts: Indices) -> None:
        self.counts.repair(reason, count=len(posts))
        self._add_examples(reason, posts)

    def _add_examples(self, reason: str, posts: Indices) -> None:
        for row in self.row[posts[:EXAMPLES]].tolist():
            self.counts.example(reason, f"tree {self.content['tree'][row]}, post {self.content['id'][row]}")


def _find(values: Indices, keys: Indices) -> Indices:
    """The first position of each value in `keys`, or UNKNOWN_PARENT."""
    return pc.index_in(pa.array(values), value_set=pa.array(keys)).fill_null(UNKNOWN_PARENT).to_numpy().astype(np.int64)


def _renumber(parent: Indices, number: Indices) -> Indices:
    """Replace parents by their new numbers. UNKNOWN_PARENT (-2) and NO_PARENT (-1) index the appended entries and stay."""
    return np.append(number, [UNKNOWN_PARENT, NO_PARENT])[parent]


def _inverse(order: Indices) -> Indices:
    """The inverse of a permutation."""
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[order] = np.arange(len(order))
    return inverse

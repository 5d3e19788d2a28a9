"""Examples of a forest: the regimes of training on comment trees, and the context of each target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Forest, Ints
from ramify.batching.text_input import BLIND, Context, Rule, TextInput
from ramify.batching.views.base import Example, View
from ramify.config import check_fields
from ramify.errors import RamifyError, counted
from ramify.nn.ragged import places
from ramify.tree import Bound, Piece, Weighting, multiplicity, split

MAX_REPEATS = 2**24
"""Maximum number of predictions by threads in one tree (those of a chain of 5,800 comments). More would take gigabytes."""

Regime = Literal["naive", "threads", "threads_debiased", "tree", "middle"]


class NothingToReadError(RamifyError):
    """The trees hold no comments that a target could read instead of its own ancestors."""


@dataclass(frozen=True)
class Units:
    """Parts of trees: flat targets with their weights, and the lowest depth of a comment that each may read (`top`)."""

    targets: Ints
    weights: NDArray[np.float64]
    ends: Ints
    top: Ints

    def __len__(self) -> int:
        return len(self.ends)

    def part(self, number: int) -> slice:
        return slice(int(self.ends[number - 1]) if number else 0, int(self.ends[number]))


def units(
    forest: Forest,
    trees: Sequence[int] | Ints,
    regime: Regime = "tree",
    *,
    max_tree_size: int = 60,
    pack: bool = True,
    bound: Bound = "strict",
    weighting: Weighting = "once",
    threads_over: Literal["all", "leaves"] = "all",
    step_per: Literal["piece", "tree"] = "piece",
    predict_post: bool = False,
    only: NDArray[np.bool_] | None = None,
) -> Units:
    """The units of a regime (Juneja 2021, section 3): `naive` predicts one comment per unit, `threads` all comments of a
    root-to-node path, `tree` a whole tree, `middle` bounded pieces, or all pieces of a tree (`step_per="tree"`).
    `threads_debiased` divides each comment's weight by the number of its predictions.

    The parts of a chained text together weigh as much as one text. Targets are comments, and posts with `predict_post`; in
    texts and documents, all nodes with tokens. `only` says for each node of the forest whether it may be a target; None: all
    may.
    """
    targets: list[Ints] = []
    weights: list[NDArray[np.float64]] = []
    top: list[Ints] = []
    if forest.store.predicts_roots:
        is_target = (forest.length > 0) | predict_post
    else:
        is_target = (np.asarray(forest.store.depth)[forest.node] > 0) | predict_post
    chained = np.bincount(forest.node, minlength=forest.store.num_nodes)[forest.node]
    for tree in np.asarray(trees, dtype=np.int64).tolist():
        span = slice(int(forest.offsets[tree]), int(forest.offsets[tree + 1]))
        asked = is_target[span].copy()
        if only is not None:
            asked &= only[span]
        if not asked.any():
            continue
        if regime == "tree":
            parts = [_all_of(np.flatnonzero(asked))]
        elif regime == "naive":
            parts = map(_all_of, np.flatnonzero(asked)[:, None])
        elif regime in ("threads", "threads_debiased"):
            parts = _threads(forest, tree, asked, threads_over, regime == "threads_debiased")
        elif regime == "middle":
            local = _local(forest, tree)
            name, depth = _name(forest, tree), forest.depth[span]
            parts = []
            for nodes, parent in _by_root(local, forest.root[span]):
                pieces = split(parent, max_tree_size, pack=pack, bound=bound, weighting=weighting, name=name)
                parts += [part._replace(nodes=nodes[part.nodes]) for part in _pieces(pieces, asked[nodes], depth[nodes])]
            if step_per == "tree" and parts:
                parts = [_Part(*map(np.concatenate, zip(*parts, strict=True)))]
            post = np.flatnonzero((local < 0) & asked)
            if len(post):  # the post is in every piece, but no piece has it as a target
                parts.insert(0, _all_of(post))
        else:
            raise RamifyError(f"regime must be naive, threads, threads_debiased, tree or middle, but is {regime!r}.")
        for part in parts:
            targets.append(part.nodes + span.start)
            weights.append(part.weights)
            top.append(part.top)
    if not targets:
        raise RamifyError(
            f"there is nothing to predict, because none of {counted(len(trees), 'tree')} holds a comment or, in texts and "
            "documents, a word. Choose other data, or, in training, set view.predict_post=true."
        )
    flat = np.concatenate(targets)
    return Units(
        flat,
        np.concatenate(weights) / chained[flat],
        np.cumsum([len(nodes) for nodes in targets]),
        np.concatenate(top),
    )


class _Part(NamedTuple):
    """A unit of one tree, with nodes counted from the tree's first node."""

    nodes: Ints
    weights: NDArray[np.float64]
    top: Ints


def _local(forest: Forest, tree: int) -> Ints:
    """The parents of a tree's nodes, counted from the tree's first node; -1 for a root."""
    first, stop = int(forest.offsets[tree]), int(forest.offsets[tree + 1])
    parent = forest.parent[first:stop]
    return np.where(parent >= 0, parent - first, -1)


def _by_root(local: Ints, root: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The nodes below each root of a tree, and their parents among these nodes. A chat log has several roots."""
    order = np.argsort(root, kind="stable")
    for nodes in np.split(order, np.flatnonzero(np.diff(root[order])) + 1):
        yield nodes, np.where(local[nodes] >= 0, np.searchsorted(nodes, local[nodes]), -1)


def _name(forest: Forest, tree: int) -> str:
    return f"tree {forest.store.tree_ids([tree])[0]!r}"


def _all_of(nodes: Ints, weights: NDArray[np.float64] | None = None) -> _Part:
    """A unit whose nodes may read all their ancestors."""
    return _Part(nodes, np.ones(len(nodes)) if weights is None else weights, np.ones(len(nodes), dtype=np.int64))


def _threads(
    forest: Forest, tree: int, asked: NDArray[np.bool_], over: Literal["all", "leaves"], debiased: bool
) -> Iterator[_Part]:
    local = _local(forest, tree)
    times = multiplicity(local, over)
    if (total := int(times[asked].sum())) > MAX_REPEATS:
        raise RamifyError(
            f"view.regime=threads{'_debiased' if debiased else ''} would predict the {counted(int(asked.sum()), 'comment')} of "
            f"{_name(forest, tree)} {total:,} times, which takes too much memory. Set view.regime=tree or middle, or "
            "view.threads_over=leaves, or leave the tree out of the data set."
        )
    ends = np.arange(len(local)) if over == "all" else np.flatnonzero(_childless(local))
    for end in ends.tolist():
        path = _path(local, end)
        path = path[asked[path]]
        if len(path):
            yield _all_of(path, 1.0 / times[path] if debiased else None)


def _pieces(pieces: Sequence[Piece], asked: NDArray[np.bool_], depth: Ints) -> Iterator[_Part]:
    for piece in pieces:
        targets = np.array(piece.targets, dtype=np.int64)
        kept = asked[targets]
        if kept.any():
            highest = depth[[*piece.context, *piece.targets]].min()
            yield _Part(targets[kept], np.array(piece.weights)[kept], np.full(kept.sum(), highest))


def _childless(local: Ints) -> NDArray[np.bool_]:
    leaf = np.ones(len(local), dtype=bool)
    leaf[local[local >= 0]] = False
    return leaf


def _path(local: Ints, end: int) -> Ints:
    path = [end]
    while (end := int(local[end])) >= 0:
        path.append(end)
    return np.array(path[::-1], dtype=np.int64)


@dataclass(frozen=True)
class RegimeConfig:
    """Settings of the units that training visits (Juneja 2021, section 3)."""

    regime: Regime = "tree"
    max_tree_size: int = 60
    pack: bool = True
    bound: Bound = "strict"
    weighting: Weighting = "once"
    threads_over: Literal["all", "leaves"] = "all"
    step_per: Literal["piece", "tree"] = "piece"
    predict_post: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.max_tree_size < 1:
            raise RamifyError(f"view.max_tree_size must be at least 1, but is {self.max_tree_size}.")


class Discussions(View[Example]):
    """Units of comment trees, with the context of each target."""

    def __init__(
        self,
        forest: Forest,
        parts: Units,
        input: TextInput,
        *,
        seed: int = 0,
        trees: Sequence[int] | Ints = (),
    ) -> None:
        """`trees` are the trees from which `context="mismatched"` draws."""
        self.forest = forest
        self.parts = parts
        self.input = input
        self.seed = seed
        special = forest.layout.num_special
        lengths = np.minimum(forest.length, input.max_tokens - special) + special
        self._readers = np.zeros(len(forest.parent), dtype=np.int32)
        """The number of units that read each node."""
        starts = np.concatenate([[0], parts.ends[:-1]])
        self._target_tokens = np.add.reduceat(lengths[parts.targets], starts)
        if input.concatenate:
            rows = lengths + (tokens_above(forest, lengths) if input.context not in BLIND else 0)
            self._costs = np.add.reduceat(np.maximum(lengths, np.minimum(rows, input.concatenate))[parts.targets], starts)
        else:
            self._costs = self._target_tokens.copy()
            for unit, node in _read_by_units(forest, parts, input):
                np.add.at(self._costs, unit, lengths[node])
                np.add.at(self._readers, node, 1)
        # A text without tokens has nothing to predict; it still serves as context.
        self._weight = np.where(forest.length[parts.targets] > 0, parts.weights, 0.0)
        self._weights = np.add.reduceat(self._weight, np.concatenate([[0], parts.ends[:-1]]))
        self._others = _others(forest, parts.targets, input.context, np.asarray(trees, dtype=np.int64))

    @property
    def costs(self) -> Ints:
        return self._costs

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._weights

    @property
    def target_tokens(self) -> Ints:
        return self._target_tokens

    @property
    def sizes(self) -> Ints:
        return np.diff(self.parts.ends, prepend=0)

    def example(self, number: int, epoch: int = 0) -> Example:
        part = self.parts.part(number)
        targets = self.parts.targets[part]
        top = self.parts.top[part]
        asked = targets
        if self._others is not None:
            asked = self._others.draw(targets, np.random.Generator(np.random.Philox(key=[self.seed, (epoch << 32) + number])))
        if self.input.context in BLIND:
            context, lengths = np.zeros(0, np.int64), np.zeros(len(targets), np.int64)
        elif self.input.context == "parent":
            parent, inside = _parents_inside(self.forest, targets, top)
            context, lengths = parent[inside], inside.astype(np.int64)
        elif self.input.context == "root":
            rooted = self.forest.parent[targets] >= 0
            context, lengths = self.forest.root[targets[rooted]], rooted.astype(np.int64)
        else:
            context, lengths = ancestors(self.forest, asked, self.input.context_length, self.input.rule, top)
        weight = None if self.input.concatenate else self._context_weight(context, targets, top)
        return Example(targets, self._weight[part], context, lengths, context_weight=weight)

    def _context_weight(self, context: Ints, targets: Ints, top: Ints) -> NDArray[np.float64]:
        """One over the number of units that read a node, so that it counts once in an epoch, whatever the regime.

        Nodes drawn at random share the weight of the nodes that they replace.
        """
        if self._others is None:
            return 1.0 / self._readers[context]
        replaced, _ = ancestors(self.forest, targets, self.input.context_length, self.input.rule, top)
        weight = (1.0 / self._readers[np.unique(replaced)]).sum()
        return np.full(len(context), weight / max(1, len(np.unique(context))))


def _parents_inside(forest: Forest, targets: Ints, top: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """The parent of every target, and whether the target reads it. Comments above depth `top` are outside the piece; the root
    never is."""
    parent = forest.parent[targets]
    depth = forest.depth[targets] - 1
    return parent, (parent >= 0) & ((depth == 0) | (depth >= top))


def _read_by_units(forest: Forest, parts: Units, input: TextInput) -> Iterator[tuple[Ints, Ints]]:
    """Yield units and nodes in arrays, every pair once: the nodes that some target of a unit reads.

    Ancestors drawn at random are not known yet; they count as the target's own.
    """
    if input.context in BLIND:
        return
    unit = np.repeat(np.arange(len(parts)), np.diff(parts.ends, prepend=0))
    count = len(forest.parent)
    if input.context == "parent":
        parent, seen = _parents_inside(forest, parts.targets, parts.top)
        keys = np.unique(unit[seen] * count + parent[seen])
        yield keys // count, keys % count
        return
    above = np.maximum(forest.depth[parts.targets] - parts.top, 0)
    nearest = input.rule == "nearest"
    rooted = forest.parent[parts.targets] >= 0
    if nearest and input.context != "root":
        rooted &= above < input.context_length
    keys = np.unique(unit[rooted] * count + forest.root[parts.targets[rooted]])
    yield keys // count, keys % count
    if input.context == "root":
        return
    limit = input.context_length - (not nearest)
    # Targets of one unit may read up to different depths. Within a group they read equally far.
    groups, group = np.unique(np.stack([unit, parts.top]), axis=1, return_inverse=True)
    owner, top = groups
    group = group.reshape(-1)
    seen = (above > 0) & (limit > 0)
    keys = group[seen] * count + forest.parent[parts.targets[seen]]
    level = forest.depth[parts.targets[seen]] - 1
    # Level by level from the deepest: a node is read by targets below it, directly or through a node that they read.
    order = np.argsort(level, kind="stable")
    keys, level = keys[order], level[order]
    reached, distance = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for depth in range(int(level.max(initial=0)), 0, -1):
        fresh = keys[np.searchsorted(level, depth) : np.searchsorted(level, depth, side="right")]
        joined = np.concatenate([fresh, reached])
        steps = np.concatenate([np.ones(len(fresh), np.int64), distance])
        # The nearest target that reads a node decides how much further up is read.
        joined, first = np.unique(joined[nearest_first := np.argsort(steps, kind="stable")], return_index=True)
        steps = steps[nearest_first][first]
        pairs = np.unique(owner[joined // count] * count + joined % count)
        yield pairs // count, pairs % count
        on = (steps < limit) & (depth > top[joined // count])
        reached, distance = joined[on] // count * count + forest.parent[joined[on] % count], steps[on] + 1


def tokens_above(forest: Forest, lengths: Ints) -> Ints:
    """Tokens of all ancestors of each node in a concatenated row, where a separator follows each text. `lengths` count a text
    with its special tokens."""
    separated = lengths - forest.layout.num_special + len(forest.layout.separator)
    total = np.zeros(len(lengths), dtype=np.int64)
    order = np.argsort(forest.depth, kind="stable")
    ends = np.cumsum(np.bincount(forest.depth))
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        nodes = order[start:stop]
        parent = forest.parent[nodes]
        total[nodes] = total[parent] + separated[parent]
    return total


def ancestors(forest: Forest, targets: Ints, limit: int, rule: Rule = "post_nearest", top: int | Ints = 1) -> tuple[Ints, Ints]:
    """Strict ancestors of every target, root first, one target after the other, and how many each has.

    Comments above depth `top` (one for all targets, or one each) are outside the piece and left out. The root stays, unless
    `rule="nearest"` and `limit` comments are nearer.
    """
    above = np.maximum(forest.depth[targets] - top, 0)
    rooted = forest.parent[targets] >= 0
    comments = np.minimum(above, limit - 1 if rule == "post_nearest" else limit)
    with_root = rooted & (np.ones(len(targets), bool) if rule == "post_nearest" else above < limit)
    lengths = comments + with_root
    ends = np.cumsum(lengths)
    flat = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    # Walk up from all targets at once; each step fills one place, from the right, of every unfinished row.
    current, rows = forest.parent[targets], np.arange(len(targets))
    for step in range(int(comments.max(initial=0))):
        going = comments[rows] > step
        rows, current = rows[going], current[going]
        flat[ends[rows] - 1 - step] = current
        current = forest.parent[current]
    flat[(ends - lengths)[with_root]] = forest.root[targets[with_root]]
    return flat, lengths


class Strangers:
    """For each comment of a tree, a random comment of equal depth in one other tree.

    If no other tree is as deep, the deepest other tree is used, and its deepest comments replace those that it lacks.
    """

    def __init__(self, forest: Forest, trees: Ints) -> None:
        self.forest = forest
        deepest = np.array(
            [int(forest.depth[forest.offsets[tree] : forest.offsets[tree + 1]].max(initial=0)) for tree in trees]
        )
        order = np.argsort(deepest, kind="stable")
        self.trees, self.deepest = trees[order], deepest[order]
        if (self.deepest > 0).sum() < 2:
            raise NothingToReadError(
                "context=mismatched draws ancestors from other trees, but of this split's "
                f"{counted(len(trees), 'tree')}, fewer than two hold a comment. Take more trees of this split, or build the "
                "data with a larger share for it (--split)."
            )

    def draw(self, targets: Ints, random: np.random.Generator) -> Ints:
        tree = int(self.forest.tree_of(targets[:1])[0])
        depth = self.forest.depth[targets]
        first = int(np.searchsorted(self.deepest, depth.max()))
        candidates = self.trees[first:]
        candidates = candidates[candidates != tree]
        if len(candidates) == 0:
            # No other tree is as deep.
            candidates = self.trees[self.trees != tree][-1:]
        other = int(candidates[random.integers(len(candidates))])
        nodes = np.arange(self.forest.offsets[other], self.forest.offsets[other + 1])
        levels = self.forest.depth[nodes]
        order = np.argsort(levels, kind="stable")
        starts = np.searchsorted(levels[order], np.arange(levels.max() + 2))
        wanted = np.minimum(depth, levels.max())
        counts = starts[wanted + 1] - starts[wanted]
        picks = starts[wanted] + np.minimum((random.random(len(targets)) * counts).astype(np.int64), counts - 1)
        return nodes[order[picks]]


@dataclass(frozen=True)
class _Branches:
    """For each node of some trees, the comments of the same tree that have equal depth and another parent.

    In `order` they are consecutive, interrupted only by the node and its siblings.
    """

    order: Ints
    """All nodes by tree, depth and parent."""
    start: Ints
    """The place in `order` of the tree's first node with the same depth."""
    family: Ints
    """The place in `order` of the first child of the same parent."""
    siblings: Ints
    """Number of children of the same parent, the node itself included."""
    count: Ints
    """Number of comments in other branches. It is 0 at depth 1, in a chain, and in other trees."""

    @classmethod
    def of(cls, forest: Forest, trees: Sequence[int] | Ints) -> "_Branches":
        nodes = places(np.diff(forest.offsets), np.asarray(trees, dtype=np.int64))
        nodes = nodes[np.lexsort((forest.parent[nodes], forest.depth[nodes], forest.root[nodes]))]
        tree, depth, parent = forest.root[nodes], forest.depth[nodes], forest.parent[nodes]
        levels, families = _first_of_run(tree, depth), _first_of_run(tree, depth, parent)
        branches = cls(nodes, *(np.zeros(len(forest.parent), np.int64) for _ in range(4)))
        branches.start[nodes], branches.family[nodes] = levels, families
        branches.siblings[nodes] = _run_sizes(families)
        branches.count[nodes] = _run_sizes(levels) - _run_sizes(families)
        return branches

    def draw(self, targets: Ints, random: np.random.Generator) -> Ints:
        """A random comment of another branch for each target; all are equally likely."""
        count = self.count[targets]
        picks = self.start[targets] + np.minimum((random.random(len(targets)) * count).astype(np.int64), count - 1)
        return self.order[picks + np.where(picks >= self.family[targets], self.siblings[targets], 0)]


def _first_of_run(*keys: Ints) -> Ints:
    """For each place of sorted keys, the first place with the same keys."""
    place = np.arange(len(keys[0]))
    begins = np.zeros(len(place), dtype=bool)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return np.maximum.accumulate(np.where(begins, place, 0))


def _run_sizes(first: Ints) -> Ints:
    """For each place, the number of places with the same first place."""
    return np.bincount(first, minlength=len(first))[first] if len(first) else first


def has_other_branch(forest: Forest, trees: Sequence[int] | Ints) -> NDArray[np.bool_]:
    """Whether a node of these trees can read `sibling-branch`, for every node of the forest."""
    return _Branches.of(forest, trees).count > 0


def _others(forest: Forest, targets: Ints, context: Context, trees: Ints) -> Strangers | _Branches | None:
    """The comments whose ancestors the targets read instead of their own."""
    if context == "mismatched":
        return Strangers(forest, trees)
    if context != "sibling-branch":
        return None
    branches = _Branches.of(forest, np.unique(forest.tree_of(targets)))
    if without := int((branches.count[targets] == 0).sum()):
        raise NothingToReadError(
            f"context=sibling-branch draws ancestors from another branch of the same tree, but {without:,} of "
            f"{counted(len(targets), 'target')} have none at their depth. Leave them out with units(only=has_other_branch(…))."
        )
    return branches


def encoder_runs(forest: Forest, view: Discussions) -> int:
    """Number of nodes to encode in one epoch, unit by unit: all nodes that some target of the unit reads."""
    return sum(len(np.unique(view.example(number).context)) for number in range(len(view)))

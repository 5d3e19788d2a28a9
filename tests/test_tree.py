"""Theorems about trees and their bounded split. Sets of pieces are compared, since the order of pieces is free."""

import json
import time
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import NAMES, SHAPES, W, chain, parent_arrays, star, uniform
from ramify.errors import RamifyError
from ramify.tree import (
    Node,
    Piece,
    Tree,
    depths,
    encodable,
    encodable_json,
    leaf_counts,
    multiplicity,
    roots_of,
    split,
    subtree_sizes,
)

limits = st.sampled_from([1, 2, 3, 4, 5, 7, 10, 60])
bounds = st.sampled_from(["strict", "soft"])
weightings = st.sampled_from(["once", "share", "seed"])

# --- the quantities of the theorems, computed by simple reference code ------------------------------------------------


def path_above(parent: list[int], node: int) -> list[int]:
    """The ancestors of a comment without the post, nearest first."""
    path = []
    while (node := parent[node]) > 0:
        path.append(node)
    return path


def subtree(parent: list[int], node: int) -> set[int]:
    return {other for other in range(len(parent)) if other == node or node in path_above(parent, other)}


def leaves(parent: list[int]) -> list[int]:
    return [node for node in range(1, len(parent)) if node not in set(parent)]


def nodes_of(piece: Piece) -> frozenset[int]:
    return frozenset(piece.context) | frozenset(piece.targets)


def encoder_runs(parent: list[int], pieces: list[Piece]) -> int:
    """The number of nodes to embed: the post, and the ancestors of targets within each piece."""
    runs = 0
    for piece in pieces:
        inside, needed = nodes_of(piece), {0}
        for target in piece.targets:
            above = parent[target]
            while above in inside:
                needed.add(above)
                above = parent[above]
        runs += len(needed)
    return runs


def split_by_the_book(parent: list[int], limit: int, pack: bool, bound: str) -> set[tuple[tuple, frozenset]]:
    """The split by its recursive definition."""
    sizes = subtree_sizes(parent).tolist()
    children = [[c for c in range(len(parent)) if parent[c] == n] for n in range(len(parent))]
    comments = len(parent) - 1
    if comments == 0:
        return set()
    if comments <= limit:
        return {((), frozenset(range(1, comments + 1)))}
    pieces = []

    def emit(path, pending, roots):
        kept = len(path) - pending
        below = {node for root in roots for node in subtree(parent, root)}
        pieces.append((tuple(path[:kept]), frozenset(path[kept:]) | below))

    def descend(path, pending, node):
        visited = sorted(children[node], key=lambda c: sizes[c]) if pack else children[node]
        small = [c for c in visited if len(path) + sizes[c] <= limit or (bound == "soft" and not children[c])]
        big = [c for c in visited if c not in small]
        buffer = []
        for c in small:
            if buffer and (not pack or len(path) + sum(sizes[b] for b in buffer) + sizes[c] > limit):
                emit(path, pending, buffer)
                pending, buffer = 0, []
            buffer.append(c)
        if buffer:
            emit(path, pending, buffer)
            pending = 0
        for c in big:
            longer, waiting = [*path, c], pending + 1
            if bound == "strict" and len(longer) >= limit:
                emit(longer, waiting, [])
                longer, waiting = longer[len(longer) - limit // 2 :], 0
            descend(longer, waiting, c)
            pending = 0

    descend([], 0, 0)
    assert len(set(pieces)) == len(pieces)
    return set(pieces)


def as_sets(pieces: list[Piece]) -> set[tuple[tuple, frozenset]]:
    assert len({(piece.context, frozenset(piece.targets)) for piece in pieces}) == len(pieces)
    return {(piece.context, frozenset(piece.targets)) for piece in pieces}


# --- the guarantees of the split --------------------------------------------------------------------------------------


def check_guarantees(parent: list[int], limit: int, pack: bool, bound: str) -> None:
    pieces = split(parent, limit, pack=pack, bound=bound)
    depth = depths(parent)
    targets = Counter(target for piece in pieces for target in piece.targets)
    assert targets == Counter(range(1, len(parent))), "every comment is a target exactly once"
    for piece in pieces:
        inside = nodes_of(piece)
        assert len(inside) == len(piece.context) + len(piece.targets), "no comment twice in a piece"
        assert 0 not in inside
        assert piece.weights == (1.0,) * len(piece.targets)
        allowed = limit if bound == "strict" else max(limit, int(depth.max()))
        assert len(inside) <= allowed
        assert all(parent[low] == high for high, low in zip(piece.context, piece.context[1:])), "context is a path"
        seen = set(piece.context)
        for target in piece.targets:
            above = path_above(parent, target)
            near = above if bound == "soft" else above[: limit // 2]
            assert inside.issuperset(near), "the nearest ancestors are in the piece, without a gap"
            assert parent[target] not in inside or parent[target] in seen, "parents stand before children"
            seen.add(target)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bound", ["strict", "soft"])
def test_guarantees_on_the_grid(shape, bound):
    for comments, pack in product((0, 1, 2, 5, 17, 60, 200), (True, False)):
        parent = SHAPES[shape](comments, seed=comments)
        for limit in (1, 2, 3, 4, 5, 10, 60, 100):
            check_guarantees(parent, limit, pack, bound)
    for limit, pack in product((3, 10, 60), (True, False)):
        check_guarantees(SHAPES[shape](500, seed=1), limit, pack, bound)


@given(parent_arrays(), limits, st.booleans(), bounds)
def test_guarantees_on_drawn_trees(parent, limit, pack, bound):
    check_guarantees(parent, limit, pack, bound)


@given(parent_arrays(), limits, st.booleans(), bounds)
def test_split_equals_its_recursive_definition(parent, limit, pack, bound):
    assert as_sets(split(parent, limit, pack=pack, bound=bound)) == split_by_the_book(parent, limit, pack, bound)


@given(parent_arrays(), limits, st.booleans(), bounds)
def test_piece_is_one_thread_and_whole_subtrees_below_its_end(parent, limit, pack, bound):
    for piece in split(parent, limit, pack=pack, bound=bound):
        inside = nodes_of(piece)
        tops = [node for node in inside if parent[node] not in inside]
        path = [tops[0]] if len(tops) == 1 else []
        while path and len(below := [node for node in inside if parent[node] == path[-1]]) == 1:
            path += below
        rest = inside.difference(path)
        assert all(subtree(parent, node) <= inside for node in rest)
        if bound == "soft" and path:
            assert parent[path[0]] == 0


@given(parent_arrays(), limits, bounds)
def test_literal_reading_gives_every_cut_child_its_own_piece(parent, limit, bound):
    for piece in split(parent, limit, pack=False, bound=bound):
        inside = nodes_of(piece)
        if len(parent) - 1 > limit:
            assert len([node for node in inside if parent[node] not in inside]) == 1


@given(parent_arrays(), limits, st.booleans())
def test_packing_never_makes_more_pieces(parent, limit, pack):
    assert len(split(parent, limit, pack=True)) <= len(split(parent, limit, pack=False))


@given(parent_arrays(), st.booleans(), weightings, bounds)
def test_tree_that_fits_is_one_piece(parent, pack, weighting, bound):
    comments = len(parent) - 1
    pieces = split(parent, max(1, comments), pack=pack, weighting=weighting, bound=bound)
    if comments == 0:
        assert pieces == []
    else:
        assert [set(piece.targets) for piece in pieces] == [set(range(1, len(parent)))]
        assert pieces[0].context == ()
        assert encoder_runs(parent, pieces) == len(set(parent[1:]) | {0})


# --- weightings -------------------------------------------------------------------------------------------------------


@given(parent_arrays(), limits, st.booleans(), bounds, weightings)
def test_weightings(parent, limit, pack, bound, weighting):
    once = split(parent, limit, pack=pack, bound=bound)
    pieces = split(parent, limit, pack=pack, bound=bound, weighting=weighting)
    assert [nodes_of(piece) for piece in pieces] == [nodes_of(piece) for piece in once]
    times = Counter(target for piece in pieces for target in piece.targets)
    total = Counter()
    for piece in pieces:
        assert len(piece.weights) == len(piece.targets) == len(set(piece.targets))
        assert not set(piece.targets) & set(piece.context)
        for target, weight in zip(piece.targets, piece.weights):
            assert weight == (1 / times[target] if weighting == "share" else 1)
            total[target] += weight
    assert set(total) == set(range(1, len(parent)))
    if weighting != "seed":
        assert all(weight == pytest.approx(1) for weight in total.values())


@given(parent_arrays(), limits, st.booleans(), bounds, st.sampled_from(["share", "seed"]))
def test_path_comments_are_targets_unless_their_near_ancestors_were_cut(parent, limit, pack, bound, weighting):
    for piece in split(parent, limit, pack=pack, bound=bound, weighting=weighting):
        inside = nodes_of(piece)
        excepted = set()
        if bound == "strict":
            excepted = {c for c in inside if not inside.issuperset(path_above(parent, c)[: limit // 2])}
        assert set(piece.targets) == inside - excepted
        assert set(piece.context) == excepted


# --- the soft bound's limit: M = 1 is the regime of root-to-leaf threads ----------------------------------------------


@given(parent_arrays(), st.booleans())
def test_soft_limit_gives_the_root_to_leaf_threads(parent, pack):
    threads = {frozenset([leaf, *path_above(parent, leaf)]) for leaf in leaves(parent)}
    for weighting in ("once", "share", "seed"):
        pieces = split(parent, 1, pack=pack, bound="soft", weighting=weighting)
        assert len(pieces) == len(threads)
        assert {nodes_of(piece) for piece in pieces} == threads
    seed = split(parent, 1, pack=pack, bound="soft", weighting="seed")
    assert {frozenset(piece.targets) for piece in seed} == threads
    times = Counter(target for piece in seed for target in piece.targets)
    assert [times[node] for node in range(1, len(parent))] == leaf_counts(parent)[1:].tolist()


@given(parent_arrays())
def test_strict_limit_sees_the_post_alone(parent):
    assert as_sets(split(parent, 1)) == {((), frozenset([node])) for node in range(1, len(parent))}


# --- the worked example: p -> a f j; a -> b c; b -> d e; f -> g -> h -> i ---------------------------------------------

ALL = "– : a b c d e f g h i j"
FOUR = "– : f g h i; – : j; – : a b d e; a : c"
THREADS = "– : j; – : a c; a : b d; a b : e; – : f g h i"


def named(pieces: list[Piece], names: str = NAMES) -> set[str]:
    def letters(nodes):
        return " ".join(names[node] for node in nodes)

    return {f"{letters(piece.context) or '–'} : {letters(sorted(piece.targets))}" for piece in pieces}


def expected(text: str) -> set[str]:
    return {
        f"{context.strip()} : {' '.join(sorted(targets.split()))}"
        for context, _, targets in (piece.partition(":") for piece in text.split(";"))
    }


@pytest.mark.parametrize(
    ("limit", "pack", "bound", "pieces", "runs"),
    [
        (10, True, "strict", ALL, 6),
        (10, False, "strict", ALL, 6),
        (11, True, "soft", ALL, 6),
        (5, True, "strict", "– : j f g h i; – : a b d e c", 7),
        (5, False, "strict", "– : a b d e c; – : f g h i; – : j", 8),
        (4, True, "strict", "– : j; – : f g h i; – : a c; a : b d e", 10),
        (4, False, "strict", FOUR, 10),
        (3, True, "strict", "– : j; – : f g h; h : i; – : a c; a : b d; a b : e", 14),
        (1, True, "strict", "; ".join(f"– : {name}" for name in NAMES[1:]), 10),
        (1, False, "strict", "; ".join(f"– : {name}" for name in NAMES[1:]), 10),
        (1, False, "soft", THREADS, 13),
        (2, False, "soft", THREADS, 13),
        (3, False, "soft", THREADS, 13),
        (4, False, "soft", FOUR, 10),
    ],
)
def test_worked_example(limit, pack, bound, pieces, runs):
    found = split(W, limit, pack=pack, bound=bound)
    assert named(found) == expected(pieces)
    assert encoder_runs(W, found) == runs
    assert sum(len(piece.targets) for piece in found) == 10


def test_worked_example_shares():
    pieces = split(W, 3, weighting="share")
    times = Counter(NAMES[target] for piece in pieces for target in piece.targets)
    assert (times["a"], times["b"], times["c"]) == (3, 2, 1)
    weights = {NAMES[t]: w for piece in pieces for t, w in zip(piece.targets, piece.weights)}
    assert (weights["a"], weights["b"], weights["e"]) == (1 / 3, 1 / 2, 1)


def test_worked_example_multiplicity():
    over_all = dict(zip(NAMES, multiplicity(W).tolist()))
    assert {name: over_all[name] for name in NAMES[1:]} == {
        n: {"a": 5, "f": 4, "b": 3, "g": 3, "h": 2}.get(n, 1) for n in NAMES[1:]
    }
    over_leaves = dict(zip(NAMES, multiplicity(W, over="leaves").tolist()))
    assert {name: over_leaves[name] for name in NAMES[1:]} == {n: {"a": 3, "b": 2}.get(n, 1) for n in NAMES[1:]}
    depth = depths(W)
    assert depth.sum() == 22
    assert depth[leaves(W)].sum() == 13
    assert sum(depth[1:] + 1) == 32, "as the seed counts: a thread costs its whole length"
    assert sum(depth[leaves(W)] + 1) == 18


@pytest.mark.parametrize("bound", ["strict", "soft"])
def test_edges_without_cuts(bound):
    assert split([-1], 3, bound=bound) == []
    assert split([-1, 0], 1, bound=bound) == [Piece((), (1,), (1.0,))]


@pytest.mark.parametrize(
    ("parent", "limit", "pack", "bound", "pieces"),
    [
        (chain(7), 4, True, "soft", "– : 1 2 3 4 5 6 7"),
        (chain(7), 4, True, "strict", "– : 1 2 3 4; 3 4 : 5 6; 5 6 : 7"),
        (chain(7), 3, True, "strict", "– : 1 2 3; 3 : 4 5; 5 : 6 7"),
        (star(7), 3, True, "strict", "– : 1 2 3; – : 4 5 6; – : 7"),
        (star(7), 3, False, "strict", "; ".join(f"– : {i}" for i in range(1, 8))),
        ([-1, 0] + [1] * 7, 4, True, "strict", "– : 1 2 3 4; 1 : 5 6 7; 1 : 8"),
    ],
)
def test_edges(parent, limit, pack, bound, pieces):
    assert named(split(parent, limit, pack=pack, bound=bound), "0123456789") == expected(pieces)


# --- how often the `threads` regime predicts a comment ----------------------------------------------------------------


@given(parent_arrays())
def test_multiplicity_counts_threads(parent):
    tree = tree_of(parent)
    for over in ("all", "leaves"):
        passing = Counter(node for thread in tree.threads(over) for node in thread)
        counted = multiplicity(parent, over)
        assert [passing[node] for node in range(1, len(parent))] == counted[1:].tolist()
        ends = range(1, len(parent)) if over == "all" else leaves(parent)
        assert counted[1:].sum() == depths(parent)[list(ends)].sum()


def full(branching: int, height: int) -> list[int]:
    """In breadth-first order, the children of node n are branching·n + 1 … branching·n + branching."""
    nodes = sum(branching**depth for depth in range(height + 1))
    return [(node - 1) // branching for node in range(nodes)]


@pytest.mark.parametrize(("branching", "height"), [(1, 6), (2, 5), (3, 4)])
def test_multiplicity_of_a_full_tree_falls_exponentially(branching, height):
    parent = full(branching, height)
    for node, depth in enumerate(depths(parent).tolist()):
        below = height - depth
        assert multiplicity(parent, "leaves")[node] == branching**below
        assert multiplicity(parent, "all")[node] == sum(branching**i for i in range(below + 1))


def test_multiplicity_of_the_ternary_tree():
    parent = full(3, 4)
    first = [depths(parent).tolist().index(depth) for depth in (1, 2, 3, 4)]
    assert multiplicity(parent, "leaves")[first].tolist() == [27, 9, 3, 1]
    assert multiplicity(parent, "all")[first].tolist() == [40, 13, 4, 1]


@pytest.mark.ill_typed
def test_multiplicity_refuses_other_threads():
    with pytest.raises(RamifyError, match=r"over='some' .* Use 'all' or 'leaves'"):
        multiplicity(W, "some")  # pyright: ignore[reportArgumentType]


@given(parent_arrays())
def test_structure_arrays(parent):
    assert depths(parent).tolist() == [0, *(len(path_above(parent, node)) + 1 for node in range(1, len(parent)))]
    sizes = subtree_sizes(parent)
    assert sizes[0] == len(parent)
    assert sizes.tolist()[1:] == [len(subtree(parent, node)) for node in range(1, len(parent))]
    ends = set(leaves(parent)) or {0}
    assert leaf_counts(parent)[0] == len(ends)


@pytest.mark.parametrize("parent", [[0], [1, 0], [-1, 2, 1], [1, 2, 0, -1, 0], [-1, *range(2, 9), 1], [*range(1, 1000), 0]])
def test_rings_are_refused(parent):
    with pytest.raises(RamifyError, match="cycle"):
        depths(parent)
    with pytest.raises(RamifyError, match="cycle"):
        roots_of(parent)


@given(st.lists(parent_arrays(), max_size=4), st.randoms())
def test_roots_of_a_forest_in_any_order(trees, dice):
    parent, root = [], []
    for tree in trees:
        start = len(parent)
        parent += [above + start if above >= 0 else above for above in tree]
        root += [start] * len(tree)
    order = list(range(len(parent)))
    dice.shuffle(order)
    place = [order.index(node) for node in range(len(order))]
    shuffled = [place[parent[node]] if parent[node] >= 0 else -1 for node in order]
    assert roots_of(shuffled).tolist() == [place[root[node]] for node in order]
    assert roots_of([-2, 0, -1, 1]).tolist() == [0, 0, 2, 0]


def test_expected_cost_of_naive_on_random_recursive_trees():
    comments = 200
    harmonic = sum(1 / k for k in range(1, comments + 1))
    mean = np.mean([depths(uniform(comments, seed)).sum() / comments for seed in range(200)])
    assert mean == pytest.approx(harmonic * (1 + 1 / comments) - 1, rel=0.03)
    assert depths(chain(200)).sum() / 200 == 100.5


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([-1, 2, 1], "node 1 has the parent 2.*cycle"),
        ([-1, 1], "node 1 has the parent 1"),
        ([1, -1], "node 0 has the parent 1"),
        ([-1, -1, 0], "has 2 roots"),
        ([], "has 0 roots"),
    ],
)
def test_split_refuses_input_that_is_not_one_tree(parent, message):
    with pytest.raises(RamifyError, match=f"tree 'x'.*{message}" if parent else message):
        split(parent, 3, name="tree 'x'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tree_size": 0}, "max_tree_size=0 is too small. Use at least 1"),
        ({"max_tree_size": 3, "bound": "hard"}, "bound='hard' is unknown. Use 'strict' or 'soft'"),
        ({"max_tree_size": 3, "weighting": "twice"}, "weighting='twice' is unknown. Use 'once', 'share' or 'seed'"),
    ],
)
@pytest.mark.ill_typed
def test_split_refuses_unknown_options(options, message):
    with pytest.raises(RamifyError, match=message):
        split(W, **options)


# --- size: nothing recurses, nothing is quadratic ---------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["once", "share"])
@pytest.mark.parametrize(
    ("parent", "bound", "pieces"),
    [
        (chain(100_000), "strict", 3_333),
        (chain(100_000), "soft", 1),
        (star(50_000), "strict", 834),
        (star(50_000), "soft", 834),
    ],
    ids=["chain-strict", "chain-soft", "star-strict", "star-soft"],
)
def test_deep_and_wide(parent, bound, pieces, weighting):
    start = time.process_time()
    assert len(split(parent, 60, bound=bound, weighting=weighting)) == pieces
    assert depths(parent).max() == (100_000 if len(parent) == 100_001 else 1)
    assert subtree_sizes(parent)[0] == leaf_counts(parent)[0] + (100_000 if len(parent) == 100_001 else 1)
    assert time.process_time() - start < 5


def test_deep_tree_object():
    tree = tree_of(chain(100_000))
    assert tree.depth[-1] == 100_000
    assert tree.thread(100_000) == tuple(range(100_001))
    assert len(tree.subtree(50_000)) == 50_001
    assert Tree.from_json(tree.to_json()) == tree


# --- Node and Tree ----------------------------------------------------------------------------------------------------


def tree_of(parent: list[int]) -> Tree:
    nodes = (Node(f"text {i}", () if p < 0 else (p,), id=f"n{i}") for i, p in enumerate(parent))
    return Tree(tuple(nodes), id="drawn")


@given(parent_arrays())
def test_tree_agrees_with_its_parent_array(parent):
    tree = tree_of(parent)
    assert len(tree) == len(parent)
    assert tree.parent.tolist() == parent
    assert tree.roots == (0,)
    assert tree.depth.tolist() == depths(parent).tolist()
    assert tree.subtree_sizes.tolist() == subtree_sizes(parent).tolist()
    assert list(tree.threads()) == [tree.thread(node) for node in range(1, len(parent))]
    assert [thread[-1] for thread in tree.threads("leaves")] == leaves(parent)
    for node in range(1, len(parent)):
        assert tree.ancestors(node) == (0, *reversed(path_above(parent, node)))
        assert set(tree.subtree(node)) == subtree(parent, node)
        assert node in tree.children[parent[node]]
        assert tree.index(f"n{node}") == node


def test_parent_must_precede_its_child():
    with pytest.raises(RamifyError, match="tree 't', node 0 \\('a'\\): its parent, node 1, does not precede it"):
        Tree((Node(id="a", parents=(1,)), Node(id="b")), id="t")
    with pytest.raises(RamifyError, match="its parent, node 0, does"):
        Tree((Node(id="a", parents=(0,)),))
    with pytest.raises(RamifyError, match="its parent, node -1, does"):
        Tree((Node(id="a"), Node(id="b", parents=(-1,))))


def test_chat_log():
    log = Tree((Node("hi", id="0"), Node("hi", id="1"), Node("yes", (0, 1), True, id="2"), Node("?", None, id="3")), id="log")
    assert log.roots == (0, 1, 3)
    assert log.children == ((2,), (2,), (), ())
    assert log.subtree(0) == (0, 2)
    with pytest.raises(RamifyError, match="node 2 \\('2'\\) has 2 parents"):
        _ = log.parent
    assert Tree.from_json(log.to_json()) == log


def test_index_of_an_unknown_node():
    with pytest.raises(RamifyError, match="tree 'drawn' has no node 'nobody'; it has 3 nodes"):
        tree_of(chain(2)).index("nobody")


# --- JSON lines -------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts, lambda inner: st.lists(inner, max_size=3), max_leaves=4
)


@st.composite
def whole_trees(draw: st.DrawFn) -> Tree:
    nodes = []
    for index in range(draw(st.integers(0, 6))):
        earlier = st.lists(st.integers(0, max(0, index - 1)), unique=True, max_size=3 if index else 0)
        nodes.append(
            Node(
                text=draw(texts),
                parents=draw(st.none() | earlier.map(tuple)),
                self_link=draw(st.booleans()),
                id=f"{index}{draw(texts)}",
                author=draw(st.none() | texts),
                time=draw(st.none() | st.floats(0, 2e9)),
                kind=draw(texts),
                label=draw(json_values),
            )
        )
    return Tree(tuple(nodes), id=draw(texts), meta=draw(st.dictionaries(texts, json_values, max_size=2)))


@given(whole_trees())
def test_json_round_trip(tree):
    line = tree.to_json()
    assert "\n" not in line
    assert Tree.from_json(line) == tree
    assert Tree.from_json(line.encode()) == tree
    assert Tree.from_json(line).to_json() == line


def test_nodes_without_ids_get_free_ones():
    tree = Tree((Node("a", id="1"), Node("b", parents=(0,)), Node("c", parents=(1,)), Node("d", parents=(2,), id="2")))
    again = Tree.from_json(tree.to_json())
    assert [node.parents for node in again.nodes] == [(), (0,), (1,), (2,)]
    assert [node.id for node in again.nodes] == ["1", "1'", "2'", "2"]


@pytest.mark.ill_typed
@pytest.mark.parametrize("time", [np.int64(5), np.float32(5), Fraction(10, 2), 5])
def test_times_are_finite_numbers(time):
    node = Node(id="x", time=time)
    assert (node.time, type(node.time)) == (5.0, float)
    assert '"time": 5.0' in Tree((node,)).to_json()


@pytest.mark.parametrize("time", [float("nan"), float("inf"), 1.6e12, -1e11, "2020", True, np.datetime64("2020-01-01")])
def test_times_outside_the_calendar(time):
    with pytest.raises(RamifyError, match="seconds since 1970"):
        Node("a", time=time)


def test_json_fills_in_optional_fields():
    tree = Tree.from_json('{"id": 7, "nodes": [{"id": 1, "parent": null, "text": "a"}, {"id": 2, "parent": 1, "text": "b"}]}')
    assert tree == Tree((Node("a", id="1"), Node("b", (0,), id="2")), id="7")


def test_half_surrogate_pairs():
    """Unpaired surrogates are replaced, whether escaped or raw. Pairs and escaped backslashes stay."""
    nodes = [
        {"id": "\ud83d", "text": "a\udc00b", "author": "\udfff", "kind": "\ud800"},
        {"id": "x", "parent": "\ud83d", "text": "\U0001f600 \\ud83d", "label": {"\ud83d": ["\ud83d"]}},
    ]
    record = {"id": "t\ud83d", "meta": {"k": "\ud83d"}, "nodes": nodes}
    expected = Tree(
        (
            Node("a\ufffdb", id="\ufffd", author="\ufffd", kind="\ufffd"),
            Node("\U0001f600 \\ud83d", (0,), id="x", label={"\ufffd": ["\ufffd"]}),
        ),
        id="t\ufffd",
        meta={"k": "\ufffd"},
    )
    escaped, raw = json.dumps(record), json.dumps(record, ensure_ascii=False)
    for line in (escaped, escaped.encode(), escaped.replace("ud", "uD"), raw, raw.encode("utf-8", "surrogatepass")):
        tree = Tree.from_json(line)
        assert tree.to_json().encode().decode().replace("uD83d", "ud83d") == expected.to_json()


@given(st.text(st.characters(), max_size=8))
def test_encodable_changes_only_half_pairs(text):
    sound = encodable(text)
    sound.encode()
    assert [a for a, b in zip(text, sound, strict=True) if a != b] == [a for a in text if "\ud800" <= a <= "\udfff"]
    assert encodable_json([text, {text: 1.5}, None]) == [sound, {sound: 1.5}, None]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "t"', "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"\x80 junk", "not valid JSON"),
        ("[" * 200_000, "not valid JSON"),
        ('{"id": ' + "9" * 5000 + ', "nodes": []}', "not valid JSON"),
        ("[]", 'a list "nodes"'),
        ('{"id": "t"}', 'a list "nodes"'),
        ('{"id": "t", "nodes": [3]}', "tree 't', node 0: expected an object"),
        ('{"id": "t", "nodes": [{"text": "a"}]}', "tree 't', node 0: expected an object"),
        ('{"id": "t", "nodes": [{"id": "a"}, {"id": "a"}]}', "node 'a': an earlier node has the same id"),
        ('{"id": "t", "nodes": [{"id": "a", "parent": "b"}, {"id": "b"}]}', "its parent 'b' does not precede it"),
        ('{"id": "t", "nodes": [{"id": "a", "parent": "a"}]}', "its parent 'a' does not precede it"),
        ('{"id": "t", "nodes": [{"id": "a", "parents": "b"}]}', '"parents" must be a list'),
        ('{"id": "t", "nodes": [{"id": "a", "text": 5}]}', '"text" must be a string, not int'),
        ('{"id": "t", "nodes": [{"id": "a", "time": "noon"}]}', '"time" must be a number'),
        ('{"id": "t", "nodes": [{"id": "a", "time": [1]}]}', '"time" must be a number'),
        ('{"id": "t", "meta": [1], "nodes": []}', '"meta" must be an object'),
    ],
)
def test_json_mistakes_are_named(line, message):
    with pytest.raises(RamifyError, match="f.jsonl, line 3: .*" + message):
        Tree.from_json(line, where="f.jsonl, line 3")

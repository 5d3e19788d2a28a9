"""The examples that a forest yields and the nodes that each target reads, against slow reference definitions."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import NAMES, SHAPES, W, chain, discussion, discussions, forest, parent_arrays, path_to, star, uniform
from ramify.batching.text_input import TextInput
from ramify.batching.views import comment_trees as views
from ramify.batching.views.comment_trees import Discussions, ancestors, encoder_runs, has_other_branch, units
from ramify.errors import RamifyError
from ramify.tree import leaf_counts, multiplicity, split, subtree_sizes

# --- ancestors ----------------------------------------------------------------------------------------------------------------


def visible_ancestors(path, limit, rule, top):
    """The strict ancestors (root first) that a target reads; comments above depth `top` are outside its piece."""
    comments = path[1:][max(0, top - 1) :]
    if not path:
        return []
    if rule == "post_nearest":
        return [path[0], *comments[max(0, len(comments) - (limit - 1)) :]]
    nearest = comments[max(0, len(comments) - limit) :]
    return [path[0], *nearest] if len(nearest) < limit else nearest


@given(
    parent=parent_arrays(max_comments=30),
    limit=st.integers(1, 8),
    rule=st.sampled_from(["post_nearest", "nearest"]),
    top=st.integers(1, 4),
    data=st.data(),
)
@settings(max_examples=150)
def test_ancestors(parent, limit, rule, top, data):
    own = forest([discussion(W, name="w"), discussion(parent, lengths=[1] * len(parent))])
    deep = [node for node in range(len(parent)) if len(path_to(parent, node)) >= top or node == 0]
    local = data.draw(st.lists(st.sampled_from(deep), max_size=12))
    nodes, lengths = ancestors(own, np.array(local, dtype=np.int64) + len(W), limit, rule, top)
    expected = [visible_ancestors(path_to(parent, node), limit, rule, top) for node in local]
    assert lengths.tolist() == [len(each) for each in expected]
    assert (nodes - len(W)).tolist() == [node for each in expected for node in each]
    assert max(lengths, default=0) <= limit


def test_ancestors_of_deep_chains():
    own = forest([discussion(chain(3000), lengths=[1] * 3001)])
    nodes, lengths = ancestors(own, np.array([3000, 1, 0]), 5)
    assert lengths.tolist() == [5, 1, 0]
    assert nodes.tolist() == [0, 2996, 2997, 2998, 2999, 0]


def test_default_context_limit_is_max_tokens():
    """Without a limit, the context is as long as the paper's cl."""
    own = forest([discussion(chain(40), lengths=[1] * 41)])
    for input, expected in ((TextInput(max_tokens=12), 12), (TextInput(max_tokens=12, max_context=3), 3)):
        assert len(Discussions(own, units(own, [0], "naive"), input).example(39).context) == expected


# --- units --------------------------------------------------------------------------------------------------------------------


def unit_list(own, **options):
    parts = units(own, np.arange(own.num_trees), **options)
    return [(parts.targets[parts.part(n)].tolist(), parts.weights[parts.part(n)].tolist()) for n in range(len(parts))]


def test_units_of_the_worked_example():
    own = forest([discussion(W)])

    def named(**options):
        return {" ".join(sorted(NAMES[node] for node in nodes)) for nodes, _ in unit_list(own, **options)}

    assert named(regime="tree") == {"a b c d e f g h i j"}
    assert named(regime="naive") == set("abcdefghij")
    assert named(regime="threads") == {"a", "a b", "a c", "a b d", "a b e", "f", "f g", "f g h", "f g h i", "j"}
    assert named(regime="threads", threads_over="leaves") == {"a c", "a b d", "a b e", "f g h i", "j"}
    assert named(regime="middle", max_tree_size=4) == {"j", "f g h i", "a c", "b d e"}
    assert named(regime="middle", max_tree_size=4, pack=False) == {"j", "f g h i", "a b d e", "c"}


@given(parent=parent_arrays(max_comments=25, min_comments=1), predict_post=st.booleans())
@settings(max_examples=40)
def test_units_of_every_regime(parent, predict_post):
    own = forest([discussion(parent, lengths=[1] * len(parent))])
    comments = list(range(0 if predict_post else 1, len(parent)))

    def times(**options):
        total = Counter()
        for nodes, weights in unit_list(own, predict_post=predict_post, **options):
            assert len(nodes) == len(set(nodes)) == len(weights)
            for node, weight in zip(nodes, weights):
                total[node] += weight
        return total

    once = dict.fromkeys(comments, 1)
    assert times(regime="tree") == once
    assert times(regime="naive") == once
    assert len(unit_list(own, regime="naive", predict_post=predict_post)) == len(comments)
    for over, counts in (("all", subtree_sizes(parent)), ("leaves", leaf_counts(parent))):
        assert times(regime="threads", threads_over=over) == {node: counts[node] for node in comments}
        debiased = times(regime="threads_debiased", threads_over=over)
        assert debiased.keys() == set(comments)
        assert np.allclose(list(debiased.values()), 1.0, rtol=0, atol=1e-12)


@given(
    parent=parent_arrays(max_comments=25, min_comments=1),
    limit=st.sampled_from([1, 2, 3, 5, 60]),
    pack=st.booleans(),
    bound=st.sampled_from(["strict", "soft"]),
    weighting=st.sampled_from(["once", "share", "seed"]),
)
@settings(max_examples=60)
def test_middle_units_are_the_pieces(parent, limit, pack, bound, weighting):
    """Targets and weights are those of the split; a target reads its ancestors inside the piece, and the post."""
    own = forest([discussion(W, name="w"), discussion(parent, lengths=[1] * len(parent))])
    options = {"pack": pack, "bound": bound, "weighting": weighting}
    parts = units(own, [1], "middle", max_tree_size=limit, **options)
    pieces = split(parent, limit, **options)
    view = Discussions(own, parts, TextInput(max_context=100))
    assert len(view) == len(pieces)
    for number, piece in enumerate(pieces):
        example = view.example(number)
        assert (example.targets - len(W)).tolist() == list(piece.targets)
        assert example.weight.tolist() == list(piece.weights)
        inside = {0, *piece.context, *piece.targets}
        read = np.split(example.context - len(W), np.cumsum(example.context_lengths)[:-1])
        for target, nodes in zip(piece.targets, read):
            assert nodes.tolist() == [node for node in path_to(parent, target) if node in inside]


def test_units_of_several_trees_do_not_mix():
    own = forest([discussion(W, name="w"), discussion([-1]), discussion(star(3), name="s")])
    parts = units(own, [2, 0, 1])
    assert [parts.targets[parts.part(n)].tolist() for n in range(len(parts))] == [[13, 14, 15], list(range(1, 11))]


def test_bare_posts_have_no_targets():
    own = forest([discussion([-1]), discussion([-1], name="u"), discussion([-1, 0], name="v")])
    with pytest.raises(RamifyError, match="nothing to predict"):
        units(own, [0, 1])
    assert len(units(own, [0, 1], predict_post=True)) == 2


@pytest.mark.ill_typed
def test_unknown_regime():
    with pytest.raises(RamifyError, match="regime must be naive"):
        units(forest([discussion(W)]), [0], "branches")  # pyright: ignore[reportArgumentType]


REGIMES = (
    {"regime": "naive"},
    {"regime": "threads"},
    {"regime": "threads", "threads_over": "leaves"},
    {"regime": "tree"},
    {"regime": "tree", "predict_post": True},
    {"regime": "middle", "max_tree_size": 4},
    {"regime": "middle", "max_tree_size": 4, "bound": "soft", "predict_post": True},
)


@pytest.mark.parametrize("context", ["tree", "none", "parent"])
@pytest.mark.parametrize("options", REGIMES, ids=str)
def test_view_counts_the_contents_of_its_examples(options, context):
    own = forest(discussions(3, 25))
    view = Discussions(own, units(own, [0, 1, 2], **options), TextInput(max_tokens=8, context=context))
    room = np.minimum(own.length, 6) + 2
    for number in range(len(view)):
        example = view.example(number)
        assert view.sizes[number] == len(example.targets)
        assert view.target_tokens[number] == room[example.targets].sum()
        assert view.weights[number] == pytest.approx(example.weight.sum())
        assert (example.weight[own.length[example.targets] == 0] == 0).all()
        assert view.costs[number] == view.target_tokens[number] + room[np.unique(example.context)].sum()


@given(
    parent=parent_arrays(max_comments=25, min_comments=1),
    options=st.sampled_from([*REGIMES, {"regime": "middle", "max_tree_size": 4, "step_per": "tree"}]),
    context=st.sampled_from(["tree", "parent", "root"]),
    rule=st.sampled_from(["nearest", "post_nearest"]),
    max_context=st.sampled_from([1, 2, 5, 100]),
)
@settings(max_examples=100)
def test_costs_count_each_node_that_a_unit_reads_once(parent, options, context, rule, max_context):
    own = forest([discussion(parent)])
    view = Discussions(own, units(own, [0], **options), TextInput(context=context, rule=rule, max_context=max_context))
    room = own.length + 2
    for number in range(len(view)):
        example = view.example(number)
        assert view.costs[number] == room[example.targets].sum() + room[np.unique(example.context)].sum()


@pytest.mark.parametrize("options", REGIMES[:5], ids=str)
@pytest.mark.parametrize("width", [5, 20, 1000])
def test_cost_of_concatenated_rows(options, width):
    own = forest(discussions(3, 25))
    view = Discussions(own, units(own, [0, 1, 2], **options), TextInput(max_tokens=8, concatenate=width))
    room = np.minimum(own.length, 6) + 2
    for number in range(len(view)):
        example = view.example(number)
        above = np.split(example.context, np.cumsum(example.context_lengths)[:-1])
        rows = [room[target] + (room[nodes] - 1).sum() for target, nodes in zip(example.targets, above, strict=True)]
        assert view.costs[number] == np.maximum(room[example.targets], np.minimum(rows, width)).sum()


@pytest.mark.parametrize("bound", ["strict", "soft"])
def test_pieces_and_the_post(bound):
    own = forest(discussions(2, 20))
    parts = units(own, [0, 1], "middle", max_tree_size=5, bound=bound, predict_post=True)
    assert np.array_equal(np.sort(parts.targets), np.arange(len(own.length)))


@pytest.mark.parametrize("regime", ["naive", "threads", "threads_debiased", "tree", "middle"])
def test_chained_text_weighs_one_and_chained_post_is_no_target(regime):
    own = forest([discussion([-1, 0, 1, 0], lengths=[8, 8, 2, 2])], max_tokens=5, overflow="chain")
    parts = units(own, [0], regime, max_tree_size=3)
    assert set(own.node[parts.targets]) == {1, 2, 3}
    if regime not in ("threads", "threads_debiased"):
        assert np.bincount(own.node[parts.targets], parts.weights).tolist() == pytest.approx([0, 1, 1, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 2}, r"input\.max_tokens.* at least 3"),
        ({"max_context": -1}, r"input\.max_context"),
        ({"concatenate": -1}, r"input\.concatenate"),
        ({"context": "sibling"}, r"input\.context must be one of tree, none"),
        ({"rule": "oldest"}, r"input\.rule must be one of"),
        ({"overflow": "wrap"}, r"input\.overflow must be one of truncate, chain"),
    ],
    ids=str,
)
def test_invalid_inputs_are_refused(options, message):
    with pytest.raises(RamifyError, match=message):
        TextInput(**options)


# --- the control: ancestors of a stranger -------------------------------------------------------------------------------------


def mismatched_view(own, regime=None, seed=0, **input):
    trees = np.arange(own.num_trees)
    return Discussions(
        own, units(own, trees, **(regime or {})), TextInput(context="mismatched", **input), seed=seed, trees=trees
    )


@given(seed=st.integers(0, 1000), limit=st.sampled_from([2, 100]), regime=st.sampled_from(["tree", "threads", "middle"]))
@settings(max_examples=40)
def test_mismatched_ancestors_are_of_another_tree_at_equal_depth(seed, limit, regime):
    """Both trees are equally deep, so every target finds a match. Each target reads a real path of the other tree."""
    own = forest([discussion(uniform(20, seed + n), lengths=[1] * 21, name=f"t{n}") for n in range(3)])
    deepest = [int(own.depth[own.tree_of(np.arange(63)) == tree].max()) for tree in range(3)]
    regular = Discussions(own, units(own, [0, 1, 2], regime, max_tree_size=5), TextInput(max_context=limit))
    view = mismatched_view(own, {"regime": regime, "max_tree_size": 5}, seed, max_context=limit)
    for number in range(len(view)):
        example, right = view.example(number), regular.example(number)
        assert example.targets.tolist() == right.targets.tolist()
        tree = int(own.tree_of(example.targets[:1])[0])
        others = {int(other) for other in own.tree_of(example.context)}
        assert len(others) == 1
        assert tree not in others
        reach = deepest[others.pop()]
        read = np.split(example.context, np.cumsum(example.context_lengths)[:-1])
        rightly = np.split(right.context, np.cumsum(right.context_lengths)[:-1])
        for target, nodes, own_nodes in zip(example.targets, read, rightly):
            if own.depth[target] <= reach:
                assert own.depth[nodes].tolist() == own.depth[own_nodes].tolist()
            # A path: every node but the post is a child of the node before.
            assert (own.parent[nodes[2:]] == nodes[1:-1]).all()
            assert nodes[0] == own.root[nodes[-1]]
        # The mismatched node is as deep as the unit needs, wherever another tree is that deep.
        needed = int(own.depth[example.targets].max())
        assert reach >= min(needed, max(deepest[other] for other in range(3) if other != tree))


def test_mismatched_nodes_change_every_epoch_and_repeat_by_seed():
    own = forest(discussions(6, 30))
    view, other = mismatched_view(own), mismatched_view(own, seed=1)
    drawn = [view.example(0, epoch).context.tolist() for epoch in range(4)]
    assert drawn == [mismatched_view(own).example(0, epoch).context.tolist() for epoch in range(4)]
    assert len({tuple(each) for each in drawn}) == 4
    assert other.example(0).context.tolist() != drawn[0]


def test_mismatched_nodes_are_uniform_within_a_depth():
    own = forest([discussion([-1, 0], name="a"), discussion(star(4), name="b")])
    lone = mismatched_view(own)
    # The only comment of tree a may read as any comment of tree b: all read that tree's post.
    assert {tuple(lone.example(0, epoch).context.tolist()) for epoch in range(20)} == {(2,)}
    deep = forest([discussion(chain(2), name="a"), discussion([-1, 0, 0, 0, 1, 2, 3], name="b")])
    parents = Counter(int(mismatched_view(deep).example(0, epoch).context[2]) for epoch in range(600))
    assert parents.keys() == {4, 5, 6}
    assert max(abs(count - 200) for count in parents.values()) < 5 * (600 * 2 / 9) ** 0.5


def test_mismatched_context_needs_a_second_tree():
    with pytest.raises(RamifyError, match="fewer than two hold a comment"):
        mismatched_view(forest([discussion(W), discussion([-1], name="u")]))


# --- the controls in the same tree: the post, and another branch --------------------------------------------------------------


def test_root_context_is_the_post_alone():
    own = forest([discussion(chain(2), name="x"), discussion(W)])
    view = Discussions(own, units(own, [0, 1], predict_post=True), TextInput(context="root"))
    for number, tree in enumerate((0, 1)):
        example = view.example(number)
        assert (example.context == own.offsets[tree]).all()
        assert example.context_lengths.tolist() == [0] + [1] * (len(example.targets) - 1)
    cost = Discussions(own, units(own, [1]), TextInput(context="root")).costs
    texts = own.length[own.offsets[1] :] + own.layout.num_special
    assert cost.tolist() == [texts.sum()]


def branches_of(parent):
    """For each node, the nodes of equal depth with another parent."""
    depth = [len(path_to(parent, node)) for node in range(len(parent))]
    nodes = range(len(parent))
    return [[n for n in nodes if depth[n] == depth[node] and parent[n] != parent[node]] for node in nodes]


def sibling_view(own, seed=0, regime="tree", **input):
    trees = np.arange(own.num_trees)
    only = has_other_branch(own, trees)
    parts = units(own, trees, regime, max_tree_size=5, only=only)
    return Discussions(own, parts, TextInput(context="sibling-branch", **input), seed=seed, trees=trees)


@given(
    parent=parent_arrays(max_comments=25),
    regime=st.sampled_from(["tree", "naive", "threads", "middle"]),
    limit=st.sampled_from([2, 100]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80)
def test_sibling_branches_are_of_the_same_tree_and_depth_with_another_parent(parent, regime, limit, seed):
    own = forest([discussion(W, name="w"), discussion(parent, lengths=[1] * len(parent))])
    expected = [branches_of(W), branches_of(parent)]
    found = has_other_branch(own, [0, 1])
    assert found.tolist() == [bool(each) for tree in expected for each in tree]
    assert has_other_branch(own, [1]).tolist() == [False] * len(W) + found[len(W) :].tolist()
    assert not found[own.depth <= 1].any()
    view = sibling_view(own, seed, regime, max_context=limit)
    plain = Discussions(own, view.parts, TextInput(max_context=limit))
    seen = set()
    for number in range(len(view)):
        example, regular = view.example(number), plain.example(number)
        # As many nodes, at the same depths, as the target's own ancestors.
        assert example.context_lengths.tolist() == regular.context_lengths.tolist()
        assert own.depth[example.context].tolist() == own.depth[regular.context].tolist()
        read = np.split(example.context, np.cumsum(example.context_lengths)[:-1])
        for target, nodes in zip(example.targets.tolist(), read):
            seen.add(target)
            tree = int(own.tree_of(np.array([target]))[0])
            others = {n + int(own.offsets[tree]) for n in expected[tree][target - int(own.offsets[tree])]}
            if len(nodes) > 1:
                assert nodes[-1] in {own.parent[other] for other in others}
                assert nodes[-1] != own.parent[target]
            assert (own.parent[nodes[2:]] == nodes[1:-1]).all()
            assert nodes[0] == own.offsets[tree]
    assert seen == set(np.flatnonzero(found).tolist())


def test_sibling_branches_change_every_epoch_and_are_uniform():
    #        post; two comments; three replies to the first, one to the second; their replies
    own = forest([discussion([-1, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6])])
    view = sibling_view(own)
    assert view.parts.targets.tolist() == list(range(3, 11))
    drawn = [view.example(0, epoch).context.tolist() for epoch in range(600)]
    assert drawn == [sibling_view(own).example(0, epoch).context.tolist() for epoch in range(600)]
    assert sibling_view(own, seed=1).example(0).context.tolist() != drawn[0]
    # Node 10 stands below 6; it reads the path of 7, 8 or 9.
    parents = Counter(each[-1] for each in drawn)
    assert parents.keys() == {3, 4, 5}
    assert max(abs(count - 200) for count in parents.values()) < 5 * (600 * 2 / 9) ** 0.5
    # Nodes 3, 4 and 5 are siblings: all they can read is the path of 6.
    assert {tuple(each[:6]) for each in drawn} == {(0, 2, 0, 2, 0, 2)}


def test_targets_without_another_branch_are_refused():
    own = forest([discussion(W), discussion(chain(3), name="x")])
    with pytest.raises(RamifyError, match=r"context=sibling-branch .* 3 of \d+ targets have none"):
        Discussions(own, units(own, [1]), TextInput(context="sibling-branch"))


# --- costs --------------------------------------------------------------------------------------------------------------------


def runs(parent, **options):
    """(encoder runs, decoder runs) of one epoch."""
    own = forest([discussion(parent, lengths=[1] * len(parent))])
    view = Discussions(own, units(own, [0], **options), TextInput(max_context=10**6))
    return encoder_runs(own, view), int(view.sizes.sum())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"regime": "naive"}, (22, 10)),
        ({"regime": "threads"}, (22, 22)),
        ({"regime": "threads", "threads_over": "leaves"}, (13, 13)),
        ({"regime": "tree"}, (6, 10)),
        ({"regime": "middle", "max_tree_size": 10}, (6, 10)),
        ({"regime": "middle", "max_tree_size": 5}, (7, 10)),
        ({"regime": "middle", "max_tree_size": 5, "pack": False}, (8, 10)),
        ({"regime": "middle", "max_tree_size": 4}, (10, 10)),
        ({"regime": "middle", "max_tree_size": 4, "pack": False}, (10, 10)),
        ({"regime": "middle", "max_tree_size": 3}, (14, 10)),
        ({"regime": "middle", "max_tree_size": 1}, (10, 10)),
        ({"regime": "middle", "max_tree_size": 1, "pack": False, "bound": "soft"}, (13, 10)),
        ({"regime": "middle", "max_tree_size": 2, "pack": False, "bound": "soft"}, (13, 10)),
        ({"regime": "middle", "max_tree_size": 3, "pack": False, "bound": "soft"}, (13, 10)),
        ({"regime": "middle", "max_tree_size": 4, "pack": False, "bound": "soft"}, (10, 10)),
    ],
    ids=str,
)
def test_costs_of_the_worked_example(options, expected):
    assert runs(W, **options) == expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("comments", [1, 7, 60])
def test_closed_forms_of_costs(shape, comments):
    """naive: Σ depth; threads: Σ depth of the threads' ends, for both; tree: one for every inner comment, and the post."""
    for seed in range(3):
        parent = SHAPES[shape](comments, seed)
        depth = [len(path_to(parent, node)) for node in range(len(parent))]
        leaves = [node for node in range(1, len(parent)) if node not in parent]
        inner = sum(node in parent for node in range(1, len(parent)))
        assert runs(parent, regime="naive") == (sum(depth), comments)
        assert runs(parent, regime="threads") == (sum(depth), sum(depth))
        over_leaves = sum(depth[leaf] for leaf in leaves)
        assert runs(parent, regime="threads", threads_over="leaves") == (over_leaves, over_leaves)
        assert runs(parent, regime="tree") == (inner + 1, comments)
        assert sum(depth) == int(multiplicity(parent)[1:].sum())


# --- refusals, and the bounds of pieces -----------------------------------------------------------------------------------


def test_threads_of_a_tree_that_is_too_deep_are_refused(monkeypatch):
    """The comments are counted before anything is laid out."""
    data = forest([discussion(chain(30), name="deep")])
    monkeypatch.setattr(views, "MAX_REPEATS", 464)
    for regime in ("threads", "threads_debiased"):
        with pytest.raises(RamifyError, match=r"would predict the 30 comments of tree 'deep' 465 times"):
            units(data, [0], regime)
        assert len(units(data, [0], regime, threads_over="leaves").targets) == 30
    monkeypatch.setattr(views, "MAX_REPEATS", 465)
    assert len(units(data, [0], "threads").targets) == 465


def test_parent_outside_the_piece_is_not_read():
    """A chain in strict pieces of one comment: every parent lies in another piece, except the post."""
    data = forest([discussion(chain(5), lengths=[3] * 6)])
    parts = units(data, [0], "middle", max_tree_size=1)
    view = Discussions(data, parts, TextInput(max_tokens=32, context="parent"))
    read = {}
    for number in range(len(view)):
        example = view.example(number)
        read[int(example.targets[0])] = example.context.tolist()
    assert read == {1: [0], 2: [], 3: [], 4: [], 5: []}
    assert view.costs.tolist() == [10, 5, 5, 5, 5]
    soft = units(data, [0], "middle", max_tree_size=1, bound="soft")
    view = Discussions(data, soft, TextInput(max_tokens=32, context="parent"))
    assert [view.example(number).context.tolist() for number in range(len(view))] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("step_per", ["piece", "tree"])
def test_each_root_of_a_chat_log_is_cut_alone(step_per):
    """A message belongs to one root, so its pieces are those of a tree of its own."""
    log = [-1, 0, -1, 1, 2, 1, 4, 3, 2, 7, 5]
    own = forest([discussion(log)])
    found = units(own, [0], "middle", max_tree_size=3, step_per=step_per)
    assert sorted(found.targets.tolist()) == [node for node, parent in enumerate(log) if parent >= 0]
    pieces = []
    for root in (0, 2):
        nodes = [node for node in range(len(log)) if root in (node, *path_to(log, node))]
        parent = [nodes.index(log[node]) if log[node] >= 0 else -1 for node in nodes]
        pieces += [[nodes[target] for target in piece.targets] for piece in split(parent, 3)]
    parts = [found.targets[found.part(number)].tolist() for number in range(len(found))]
    assert parts == (pieces if step_per == "piece" else [[node for piece in pieces for node in piece]])

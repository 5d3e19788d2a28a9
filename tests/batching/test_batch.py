"""Batches hold every token and every example exactly once, whatever the order or the neighbours."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import (
    W,
    bert_task,
    discussion,
    discussions,
    forest,
    masked,
    parent_arrays,
    path_to,
    tokenizer,
    tree_task,
    view_of,
    whole,
)
from ramify.batching.batch import Collator
from ramify.batching.samplers import TokenBudget
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import Discussions, has_other_branch, units
from ramify.nn.blocks import OutputPositions
from ramify.nn.ragged import Rows
from ramify.tasks.base import MAIN

CLS, SEP = tokenizer().cls_id, tokenizer().sep_id


def framed(own, node, room):
    start = own.start[node]
    return [CLS, *own.ids[start : start + min(own.length[node], room)].tolist(), SEP]


def rows(flat, layout):
    return [each.tolist() for each in torch.split(flat, layout.host_lengths.tolist())]


# --- collate ------------------------------------------------------------------------------------------------------------------


@given(
    parents=st.lists(parent_arrays(max_comments=12, min_comments=1), min_size=1, max_size=3),
    context=st.sampled_from(["tree", "none", "null", "parent"]),
    regime=st.sampled_from(["tree", "naive", "threads"]),
    max_tokens=st.sampled_from([3, 6, 32]),
    data=st.data(),
)
@settings(max_examples=60)
def test_every_id_is_accounted_for(parents, context, regime, max_tokens, data):
    own = forest([discussion(parent, seed=n, name=f"t{n}") for n, parent in enumerate(parents)], max_tokens)
    input = TextInput(max_tokens=max_tokens, context=context, max_context=3)
    view = Discussions(own, units(own, np.arange(len(parents)), regime), input)
    numbers = data.draw(st.lists(st.integers(0, len(view) - 1), max_size=4, unique=True))
    examples = [view.example(number) for number in numbers]
    batch = Collator(own, tokenizer(), input)(examples)
    room = max_tokens - 2

    # Targets: the multiset of (node, weight, what it reads) is that of the examples.
    def facts(targets, weights, contexts):
        return sorted(zip(targets, weights, map(tuple, contexts)))

    read = rows(torch.from_numpy(batch.node_source)[batch.context], batch.contexts)
    found = facts(batch.source.tolist(), batch.weight.tolist(), read)
    expected = []
    for example in examples:
        contexts = np.split(example.context, np.cumsum(example.context_lengths)[:-1])
        expected += facts(example.targets.tolist(), example.weight.tolist(), [nodes.tolist() for nodes in contexts])
    assert found == sorted(expected)

    # Texts: each target and each node that is read shows CLS, its own words up to the limit, SEP.
    assert rows(batch.target_ids, batch.targets) == [framed(own, node, room) for node in batch.source]
    assert sorted(batch.node_source.tolist()) == sorted({node for example in examples for node in example.context.tolist()})
    assert rows(batch.input_ids, batch.nodes) == [framed(own, node, room) for node in batch.node_source]
    assert batch.target_depth.tolist() == own.depth[batch.source].tolist()
    assert batch.depth.tolist() == own.depth[batch.node_source].tolist()
    assert batch.costs.tolist() == [
        own + read // 4 for own, read in zip(batch.targets.host_lengths, batch.contexts.host_lengths)
    ]

    # All words are maskable; CLS and SEP are not. There is nothing to predict yet.
    special = (batch.target_ids == CLS) | (batch.target_ids == SEP)
    assert torch.equal(batch.maskable, ~special)
    assert batch.labels is None
    assert batch.num_maskable.tolist() == [min(own.length[node], room) for node in batch.source]
    assert batch.null_context == (context == "null")

    # Three layouts of one list of targets.
    assert batch.readers.host_lengths.tolist() == batch.targets.host_lengths.tolist()
    assert [group.start for group in batch.readers.groups] == [group.start for group in batch.contexts.groups]


def test_targets_of_similar_length_are_grouped():
    own = forest(discussions(5, 30))
    task = tree_task()
    batch = whole(task, own)
    for layout in (batch.targets, batch.nodes):
        # At most four groups hold texts of 2 to 13 tokens, whatever their order was.
        assert len(layout.groups) <= 2
    assert len(batch.readers.groups) < 12


def test_groups_do_not_depend_on_the_order_of_examples():
    own = forest(discussions(4, 8))
    view, collate = view_of(tree_task(), own)
    one, other = (collate([view.example(number) for number in order]) for order in ([0, 1, 2, 3], [3, 1, 0, 2]))
    for name in ("targets", "nodes", "readers", "contexts"):
        assert getattr(one, name).groups == getattr(other, name).groups


def test_empty_batch():
    own = forest(discussions(1, 8))
    for task in (tree_task(), bert_task(), bert_task(input=TextInput(max_tokens=32, concatenate=20))):
        batch = Collator(own, task.tokenizer, task.input)([])
        assert (len(batch.targets), len(batch.nodes), len(batch.costs)) == (0, 0, 0)
        corrupted = task.corrupt(batch, torch.Generator().manual_seed(0))
        assert task.counts(corrupted, MAIN) == {"masked_lm": 0.0}


# --- weights of nodes ---------------------------------------------------------------------------------------------------------

UNITS = (
    {"regime": "naive"},
    {"regime": "threads"},
    {"regime": "threads", "threads_over": "leaves"},
    {"regime": "threads_debiased"},
    {"regime": "tree"},
    {"regime": "tree", "predict_post": True},
    {"regime": "middle", "max_tree_size": 4},
    {"regime": "middle", "max_tree_size": 4, "weighting": "share"},
    {"regime": "middle", "max_tree_size": 4, "bound": "soft"},
    {"regime": "middle", "max_tree_size": 4, "bound": "soft", "weighting": "seed"},
    {"regime": "middle", "max_tree_size": 4, "step_per": "tree"},
    {"regime": "middle", "max_tree_size": 4, "step_per": "tree", "weighting": "share", "predict_post": True},
)


def weights_of_an_epoch(view, collate, budget, epoch=0):
    """For every node, its weight in each row of each step that encodes it; and the total weight of every step."""
    rows_of, totals = {}, []
    for numbers in TokenBudget(view.costs, budget, seed=1).steps(epoch):
        batch = collate([view.example(int(number), epoch) for number in numbers])
        for node, weight in zip(batch.node_source.tolist(), batch.node_weight.tolist(), strict=True):
            rows_of.setdefault(node, []).append(weight)
        totals.append(float(batch.node_weight.sum()))
    return rows_of, totals


@pytest.mark.parametrize("options", UNITS, ids=lambda options: " ".join(map(str, options.values())))
@given(
    parents=st.lists(parent_arrays(max_comments=14, min_comments=1), min_size=1, max_size=2),
    context=st.sampled_from(["tree", "parent", "root"]),
    rule=st.sampled_from(["nearest", "post_nearest"]),
    max_context=st.sampled_from([1, 2, 3, 100]),
    share=st.booleans(),
    budget=st.sampled_from([1, 60, 10**6]),
)
@settings(max_examples=8)
def test_every_node_that_is_read_weighs_one_in_an_epoch(options, parents, context, rule, max_context, share, budget):
    """However many units encode a node, and however they fall into steps: nothing of the regime's multiplicity is left."""
    own = forest([discussion(parent, seed=n, name=f"t{n}") for n, parent in enumerate(parents)])
    input = TextInput(max_tokens=32, context=context, rule=rule, max_context=max_context)
    view = Discussions(own, units(own, np.arange(len(parents)), **options), input)
    readers = {}
    for number in range(len(view)):
        for node in set(view.example(number).context.tolist()):
            readers[node] = readers.get(node, 0) + 1
    found, _ = weights_of_an_epoch(view, Collator(own, tokenizer(), input, share=share), budget)
    assert found.keys() == readers.keys()
    for node, count in readers.items():
        assert sum(found[node]) == pytest.approx(1.0, abs=1e-12)
        if not share:
            assert found[node] == pytest.approx([1.0 / count] * count, abs=1e-12)
    if budget == 10**6 and share:
        assert all(len(each) == 1 for each in found.values())


@pytest.mark.parametrize("context", ["mismatched", "sibling-branch"])
@pytest.mark.parametrize("options", UNITS, ids=lambda options: " ".join(map(str, options.values())))
@pytest.mark.parametrize("share", [True, False])
def test_ancestors_of_other_comments_weigh_as_much_as_the_right_ones(options, context, share):
    """In every step of every epoch, so that a control learns from as many words."""
    if options.get("predict_post") and context == "sibling-branch":
        return
    own = forest(discussions(3, 20, seed=4))
    trees = np.arange(3)
    only = has_other_branch(own, trees) if context == "sibling-branch" else None
    parts = units(own, trees, **options, only=only)
    for epoch in (0, 1):
        totals = []
        for each in ("tree", context):
            input = TextInput(max_tokens=32, context=each, max_context=3)
            collate = Collator(own, tokenizer(), input, share=share)
            view = Discussions(own, parts, input, seed=5, trees=trees)
            found, total = weights_of_an_epoch(view, collate, 100, epoch)
            totals.append(total)
            assert all(weight > 0 for weights in found.values() for weight in weights)
        assert totals[1] == pytest.approx(totals[0], abs=1e-12)
        assert len(totals[0]) > 1


@pytest.mark.parametrize("share", [True, False])
def test_weights_of_a_strangers_nodes_follow_their_rows(share):
    """Nodes are laid out by length: each row has the weight that its example gives to its node."""
    own = forest(discussions(3, 12, seed=4))
    input = TextInput(max_tokens=32, context="mismatched")
    view = Discussions(own, units(own, np.arange(3), "naive"), input, trees=np.arange(3))
    examples = [view.example(number) for number in range(len(view))]
    batch = Collator(own, tokenizer(), input, share=share)(examples)
    expected = {}
    for example in examples:
        for node, weight in dict(zip(example.context.tolist(), example.context_weight.tolist())).items():
            expected.setdefault(node, []).append(weight)
    found = {}
    for node, weight in zip(batch.node_source.tolist(), batch.node_weight.tolist()):
        found.setdefault(node, []).append(weight)
    assert found.keys() == expected.keys()
    assert len({round(weight, 6) for weights in expected.values() for weight in weights}) > 3
    for node, weights in expected.items():
        assert sorted(found[node]) == pytest.approx([sum(weights)] if share else sorted(weights), abs=1e-12)


def test_contexts_without_vectors_have_no_node_weights():
    own = forest(discussions(2, 8))
    for task in (tree_task(input=TextInput(max_tokens=32, context="none")), bert_task()):
        batch = whole(task, own)
        assert batch.node_weight is not None
        assert len(batch.node_weight) == len(batch.nodes) == 0
    assert whole(bert_task(input=TextInput(max_tokens=32, concatenate=20)), own).node_weight is None


# --- parts of a batch ---------------------------------------------------------------------------------------------------------


def same(left, right):
    """Equal in every field that a computation can see."""
    for field in fields(left):
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        if isinstance(ours, OutputPositions):
            same(ours, theirs)
        elif isinstance(ours, Rows):
            assert ours.host_lengths.tolist() == theirs.host_lengths.tolist(), field.name
            assert [(g.start, g.stop, g.length) for g in ours.groups] == [(g.start, g.stop, g.length) for g in theirs.groups]
        elif isinstance(ours, torch.Tensor | np.ndarray):
            assert ours.tolist() == theirs.tolist(), field.name
        else:
            assert ours == theirs, field.name


@pytest.mark.parametrize("concatenate", [0, 24])
@pytest.mark.parametrize("corrupt", [False, True])
def test_select_equals_collating_the_subset(concatenate, corrupt):
    """The part keeps all nodes, because the vectors that it reads are indexed by their places in the whole."""
    input = TextInput(max_tokens=32, concatenate=concatenate, max_context=4)
    task = bert_task(input=input) if concatenate else tree_task(input=input)
    own = forest(discussions(2, 12))
    batch = whole(task, own)
    view, collate = view_of(task, own, regime="naive")
    number = {int(view.example(n).targets[0]): n for n in range(len(view))}
    mask = (lambda each: masked(task, own, each)) if corrupt else (lambda each: each)
    whole_batch = mask(batch)
    for start, stop in [(0, len(batch.targets)), (0, 1), (3, 11), (20, 24), (5, 5)]:
        part = whole_batch.select(start, stop)
        subset = mask(collate([view.example(number[int(node)]) for node in batch.source[start:stop]]))
        read = torch.from_numpy(part.node_source)[part.context].tolist()
        assert read == torch.from_numpy(subset.node_source)[subset.context].tolist()
        nodes = ("input_ids", "nodes", "depth", "context", "node_source", "node_weight")
        same(part, replace(subset, **{name: getattr(part, name) for name in nodes}))


def test_node_parts_cover_the_nodes():
    own = forest(discussions(2, 12))
    batch = whole(tree_task(), own)
    ids = []
    for start, stop in batch.nodes.runs(20):
        part = batch.node_rows(start, stop)
        assert part.rows.host_lengths.tolist() == batch.nodes.host_lengths[start:stop].tolist()
        ids += part.ids.tolist()
    assert ids == batch.input_ids.tolist()


# --- the context's texts in the target's own row ------------------------------------------------------------------------------


@given(parent=parent_arrays(max_comments=10, min_comments=1), width=st.sampled_from([14, 20, 40, 400]), seed=st.integers(0, 50))
@settings(max_examples=40)
@pytest.mark.parametrize("layout", ["bert", "roberta"])
def test_concatenated_rows(parent, width, seed, layout):
    input = TextInput(max_tokens=12, concatenate=width, max_context=3, layout=layout)
    own = input.forest([discussion(parent, seed=seed)], tokenizer())
    task = bert_task(input=input)
    batch = whole(task, own)
    assert len(batch.nodes) == len(batch.context) == 0
    assert (batch.token_type_ids is None) == (layout == "roberta")
    separator = [SEP] if layout == "bert" else [SEP, SEP]
    all_types = torch.zeros_like(batch.target_ids) if batch.token_type_ids is None else batch.token_type_ids
    for node, ids, types, maskable in zip(
        batch.source.tolist(),
        rows(batch.target_ids, batch.targets),
        rows(all_types, batch.targets),
        rows(batch.maskable, batch.targets),
    ):
        above = path_to(parent, node)
        above = [above[0], *above[1:][max(0, len(above) - 3) :]]
        before = [token for ancestor in above for token in [*framed(own, ancestor, 10)[1:-1], *separator]]
        text = framed(own, node, 10)[1:-1]
        # The oldest tokens are cut first; the target's own text is never cut.
        room = max(0, width - len(text) - 2)
        before = before[max(0, len(before) - room) :] if room >= len(separator) else []
        assert ids == [CLS, *before, *text, SEP]
        if layout == "bert":
            assert types == [0] * (1 + len(before)) + [1] * (len(text) + 1)
        assert maskable == [False] * (1 + len(before)) + [True] * len(text) + [False]
        assert len(ids) <= max(width, len(text) + 2)


# --- steps --------------------------------------------------------------------------------------------------------------------


def ranks(costs, budget, world_size, **options):
    return [TokenBudget(costs, budget, world_size=world_size, rank=rank, **options) for rank in range(world_size)]


costs_of_examples = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@given(costs=costs_of_examples, budget=st.integers(1, 60), world_size=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=100)
def test_every_example_once_an_epoch(costs, budget, world_size, seed):
    samplers = ranks(np.array(costs), budget, world_size, seed=seed)
    for epoch in range(2):
        steps = samplers[0].steps(epoch)
        for step in steps:
            assert sum(costs[n] for n in step) <= budget or len(step) == 1
        rounds = -(-len(steps) // world_size)
        seen = []
        for sampler in samplers:
            iterator = iter(sampler)
            own = []
            for _ in range(rounds):
                own.append(next(iterator))
                assert sampler.epoch == epoch
            # All but the last round are full on every rank.
            assert all(len(step) for step in own[:-1])
            seen += [n for step in own for n in step.tolist()]
            sampler.load_state({"epoch": epoch + 1, "position": 0})
        assert sorted(seen) == list(range(len(costs)))


@given(costs=costs_of_examples, budget=st.integers(1, 60), world_size=st.integers(1, 3), taken=st.integers(0, 40))
def test_position_round_trip(costs, budget, world_size, taken):
    sampler = ranks(np.array(costs), budget, world_size, seed=3)[-1]
    iterator = iter(sampler)
    for _ in range(taken):
        next(iterator)
    other = ranks(np.array(costs), budget, world_size, seed=3)[-1]
    other.load_state(sampler.state())
    resumed = iter(other)
    for _ in range(10):
        assert next(resumed).tolist() == next(iterator).tolist()
        assert other.state() == sampler.state()


def test_order_follows_from_seed_and_epoch():
    costs = np.ones(50, dtype=np.int64)

    def order(seed, epoch, shuffle=True):
        return np.concatenate(TokenBudget(costs, 7, seed=seed, shuffle=shuffle).steps(epoch)).tolist()

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    assert order(0, 0, shuffle=False) == order(5, 3, shuffle=False) == list(range(50))


def test_shuffling_is_uniform():
    """The position of the first example of 20: chi-square over 2,000 epochs."""
    sampler = TokenBudget(np.ones(20, dtype=np.int64), 1, seed=0)
    places = [np.concatenate(sampler.steps(epoch)).tolist().index(0) for epoch in range(2000)]
    counts = np.bincount(places, minlength=20)
    # 19 degrees of freedom: above 60 once in a hundred thousand.
    assert ((counts - 100) ** 2 / 100).sum() < 60


def test_a_large_example_is_a_step_of_its_own():
    steps = TokenBudget(np.array([5, 100, 5, 5]), 12, seed=0, shuffle=False).steps(0)
    assert [step.tolist() for step in steps] == [[0], [1], [2, 3]]


def test_steps_have_the_costs_of_the_worked_example():
    own = forest([discussion(W, name=f"w{n}") for n in range(3)])
    view, _ = view_of(tree_task(), own, regime="naive")
    steps = TokenBudget(view.sizes, 4, seed=0).steps(0)
    assert [len(step) for step in steps] == [4] * 7 + [2]


def test_targets_are_batched_with_their_nodes():
    own = forest(discussions(3, 12))
    batch = whole(tree_task(), own)
    for start, stop in ((0, 1), (3, 9), (0, len(batch.targets))):
        part = batch.select(start, stop)
        alone, read = part.reading_its_own()
        assert alone.node_source[alone.context].tolist() == part.node_source[part.context].tolist()
        assert sorted(set(alone.context.tolist())) == list(range(len(alone.nodes)))
        assert alone.node_source.tolist() == batch.node_source[read].tolist()
        assert rows(alone.input_ids, alone.nodes) == [rows(batch.input_ids, batch.nodes)[node] for node in read.tolist()]
        assert torch.equal(alone.depth, batch.depth[read])
        assert torch.equal(alone.node_weight, batch.node_weight[read])
        assert torch.equal(alone.target_ids, part.target_ids)

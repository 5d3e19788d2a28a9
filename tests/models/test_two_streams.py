"""XLNet, stated as theorems: which token moves which state, sums of probabilities, equal rows, and memory as longer rows."""

from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures.streams import code, letters, pieces, plain, plain_layer, rows_of, xlnet
from ramify.errors import RamifyError
from ramify.models.xlnet import XLNetConfig
from ramify.nn.heads import VocabularyHead
from ramify.tasks.permutation_lm import factorization_order

EXACT = {"rtol": 0, "atol": 1e-10}
REUSED, TOKENS = 7, 15
PARTS = ((0, REUSED), (REUSED, TOKENS))
COUNTS = (3, 2)
SEGMENTS = np.repeat([0, 1, 2], [11, 3, 1])


def drawn(seed, rows=1, **changes):
    """Rows of two parts of odd lengths with separators, drawn targets and a drawn order."""
    random = np.random.default_rng(seed)
    functional = np.zeros((rows, TOKENS), dtype=bool)
    functional[:, [10, 13, 14]] = True
    positions, order = [], []
    for row in range(rows):
        chosen = [
            np.sort(start + random.choice(np.flatnonzero(~functional[row, start:stop]), count, replace=False))
            for (start, stop), count in zip(PARTS, COUNTS, strict=True)
        ]
        positions.append(np.concatenate(chosen))
        late = functional[row].copy()
        late[positions[-1]] = True
        order.append(factorization_order(late, PARTS, random))
    rest = {"counts": COUNTS, "parts": PARTS, "segments": SEGMENTS, "functional": functional, "reused": REUSED}
    return rows_of(letters(random, (rows, TOKENS)), order=np.stack(order), positions=np.stack(positions), **(rest | changes))


def with_token(batch, place, row=0):
    """The same batch with another token at a place."""
    ids = batch.input_ids.clone()
    ids[row, place] = 5 + (ids[row, place] - 5 + 1) % (pieces().vocab_size - 5)
    return replace(batch, input_ids=ids, host_ids=ids.numpy())


def equal(left, right):
    torch.testing.assert_close(left, right, **EXACT)


def gradients(model, loss):
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def weighted(states):
    """A number that depends on every entry."""
    return (states * torch.arange(1, states.numel() + 1).view_as(states).sin()).sum()


# --- the plain definition -----------------------------------------------------------------------------------------------------


def test_one_layer_by_hand():
    model = xlnet(num_layers=1)
    layer = model.layers[0]
    torch.manual_seed(0)
    x, mixed = torch.randn(2, 2, 5, 8, dtype=torch.float64)
    equal(layer(x, mixed), plain_layer(layer, x, mixed))


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        ({}, {}),
        ({"activation": "relu"}, {"segments": None}),
        ({"max_distance": 4}, {"direction": [-1, 1, -1]}),
        ({"position": "absolute"}, {"segments": None}),
        ({"untie_biases": False}, {"direction": -1}),
        ({"memory": 2}, {"begins": [True, False, False], "kept": [7, 2, 0], "continues": [True, False, False]}),
        ({"memory": 30, "memory_start": "zeros"}, {"kept": [7, 7, 3], "continues": [True, True, False]}),
    ],
    ids=str,
)
def test_chosen_queries_equal_scattered_ones(model, batch):
    """Three batches, each of which reads the memory of the ones before it."""
    own = xlnet(**model)
    state = None
    for seed in range(3):
        rows = drawn(seed, rows=3, **batch)
        read = state
        if state is None and own.config.memory_start == "zeros":
            zeros = torch.zeros(3, 3, 30, 8, dtype=torch.float64)
            read = {"memory": zeros, "valid": torch.full((3,), 30)}
        with torch.no_grad():
            hidden = own(rows, state)
            content, queries = plain(own, rows, read)
        equal(hidden.tokens, content)
        equal(hidden.queries, queries.gather(1, rows.targets.positions[:, :, None].expand(-1, -1, 8)))
        equal(own(rows, state, targets_only=True).queries, hidden.queries)
        state = hidden.state


# --- which token moves which state --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [False, True], ids=["no memory", "memory"])
def test_token_moves_nothing_before_it(memory):
    """Bit by bit: a changed target or separator moves no target up to it in the order, itself included, and no context before
    it. The next batch's memory shows nothing of the second part."""
    model = xlnet().eval()
    state = model(drawn(7)).state if memory else None
    batch = drawn(8)
    base, alone, order = model(batch, state), model(batch, state, targets_only=True), batch.order[0]
    of_targets = order[batch.targets.positions[0]]
    for place in range(TOKENS):
        changed = model(with_token(batch, place), state)
        same = (changed.tokens == base.tokens)[0].all(-1)
        assert same[order < order[place]].all()
        assert not same[order >= order[place]].any()
        # Every later target sees the token, in the first layer already.
        only = model(with_token(batch, place), state, targets_only=True)
        for left, right in ((changed.queries, base.queries), (only.queries, alone.queries)):
            same = (left == right)[0].all(-1)
            assert same[of_targets <= order[place]].all()
            assert not same[of_targets > order[place]].any()
        assert torch.equal(changed.state["memory"], base.state["memory"]) == (place >= REUSED)


def test_identity_order_is_causal(monkeypatch):
    model = xlnet()
    batch = rows_of(letters(np.random.default_rng(0), (2, 9)), order=np.arange(9), positions=np.tile(np.arange(9), (2, 1)))
    hidden = model(batch)
    # In one direction only (`uni` in the published code), no distance is negative.
    monkeypatch.setattr("fixtures.streams.code", lambda distance, dim: code(distance.where(distance >= 0, torch.nan), dim))
    for found, expected in zip((hidden.tokens, hidden.queries), plain(model, batch), strict=True):
        equal(found, expected)
    for place in range(9):
        changed = model(with_token(batch, place))
        assert torch.equal(changed.queries[0, : place + 1], hidden.queries[0, : place + 1])
        assert torch.equal(changed.tokens[0, :place], hidden.tokens[0, :place])
        assert not torch.equal(changed.queries[0, place + 1 :], hidden.queries[0, place + 1 :]) or place == 8


def test_one_state_cannot_predict_two_positions():
    """The orders (3, 4, 2, 1, 5) and (3, 4, 2, 5, 1) share their first three tokens, so one content state would predict the
    first token in one and the last in the other. Two query states differ."""
    model = xlnet()
    ids = letters(np.random.default_rng(1), (1, 5))
    first, other = (
        model(rows_of(ids, order=np.argsort(z), positions=np.array([[z[3]]]))) for z in ([2, 3, 1, 0, 4], [2, 3, 1, 4, 0])
    )
    assert torch.equal(first.tokens[0, [2, 3, 1]], other.tokens[0, [2, 3, 1]])
    assert (first.queries - other.queries).abs().max() > 0.01


# --- sums of probabilities ----------------------------------------------------------------------------------------------------


@cache
def log_probabilities():
    """log p(x | z) of all strings of four of three letters, for all orders z: [order, string]."""
    model = xlnet(vocab_size=3, memory=0)
    head = VocabularyHead(8, 3, embedding=model.tied_embedding).double()
    torch.nn.init.normal_(head.bias)
    strings = np.array(list(product(range(3), repeat=4)))
    found = []
    with torch.no_grad():
        for ranks in permutations(range(4)):
            batch = rows_of(strings, order=1 + np.array(ranks), positions=np.tile(np.arange(4), (81, 1)))
            scores = head(model(batch).queries.flatten(0, 1)).log_softmax(-1)
            found.append(scores.gather(1, batch.targets.labels.flatten()[:, None]).view(81, 4).sum(1))
    return torch.stack(found)


def test_probabilities_of_all_strings_add_up_to_one():
    """For every order, so the mixture of the orders adds up as well. The first token of an order sees nothing at all."""
    sums = log_probabilities().exp().sum(1)
    assert len(sums) == 24
    equal(sums, torch.ones_like(sums))
    equal(log_probabilities().exp().mean(0).sum(), sums[0])


def test_objective_bounds_the_likelihood():
    """Jensen's inequality, string by string. Without positions of their own, strings of one letter are equally likely in every
    order; all others show a gap."""
    gap = log_probabilities().exp().mean(0).log() - log_probabilities().mean(0)
    assert (gap > -1e-12).all()
    assert (gap > 1e-5).sum() == 78


# --- equal rows ---------------------------------------------------------------------------------------------------------------


def test_reversed_row_with_negated_distances_is_the_reversed_output():
    model = xlnet(max_distance=6)
    batch = drawn(3, parts=())
    flipped = rows_of(
        batch.host_ids[:, ::-1].copy(),
        order=batch.order.flip(1),
        segments=SEGMENTS[::-1],
        positions=TOKENS - 1 - batch.targets.positions.numpy(),
        direction=-1,
    )
    batch = replace(batch, targets=replace(batch.targets, counts=(5,)))
    hidden, other = model(batch), model(flipped)
    equal(hidden.tokens, other.tokens.flip(1))
    equal(hidden.queries, other.queries)
    # The direction matters.
    assert (model(replace(flipped, direction=-flipped.direction)).tokens - other.tokens).abs().max() > 0.01


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_by_order_changes_nothing(side):
    model = xlnet()
    batch = drawn(4, parts=())
    batch = replace(batch, targets=replace(batch.targets, counts=(5,)))
    left, right = (4, 0) if side == "left" else (0, 4)
    pads = F.pad(batch.input_ids, (left, right), value=1)
    padded = rows_of(
        pads,
        order=F.pad(batch.order, (left, right), value=10**6),
        segments=F.pad(batch.segments, (left, right), value=1).numpy(),
        positions=batch.targets.positions.numpy() + left,
    )
    hidden, other = model(batch), model(padded)
    equal(hidden.tokens, other.tokens[:, left : left + TOKENS])
    equal(hidden.queries, other.queries)


def test_batch_mates_change_nothing():
    model = xlnet()
    options = {"direction": [1, -1, 1], "kept": [7, 2, 0], "continues": [True, False, False], "begins": [False, False, True]}
    rows = [drawn(seed, rows=3, **options) for seed in (0, 1)]
    state = model(rows[0]).state
    together = model(rows[1], state)
    for row in range(3):
        own = slice(row, row + 1)
        targets = rows[1].targets
        alone = rows_of(
            rows[1].host_ids[own],
            order=rows[1].order[own],
            segments=SEGMENTS,
            positions=targets.positions[own].numpy(),
            counts=COUNTS,
            parts=PARTS,
            **{name: values[row] for name, values in options.items() if name != "kept"},
        )
        hidden = model(alone, {"memory": state["memory"][:, own], "valid": state["valid"][own]})
        equal(hidden.tokens, together.tokens[own])
        equal(hidden.queries, together.queries[own])


def test_leaving_work_out_changes_neither_loss_nor_gradient():
    """The last layer's content stream, and the keys of the second part for the first part's queries."""
    model = xlnet()
    batch = drawn(5, rows=2, direction=[1, -1])
    state = model(drawn(6, rows=2)).state
    whole = replace(batch, parts=(), targets=replace(batch.targets, counts=(sum(COUNTS),)))
    expected = model(whole, state)
    loss = weighted(expected.queries)
    right = gradients(model, loss)
    assert right.keys() == dict(model.named_parameters()).keys()
    for rows in (batch, whole):
        for only in (False, True):
            hidden = model(rows, state, targets_only=only)
            equal(hidden.queries, expected.queries)
            equal(hidden.state["memory"], expected.state["memory"])
            if not only:
                equal(hidden.tokens, expected.tokens)
            left = gradients(model, weighted(hidden.queries))
            assert left.keys() == right.keys()
            for name, gradient in right.items():
                torch.testing.assert_close(left[name], gradient, **EXACT, msg=name)


def test_only_equality_of_segments_counts():
    model = xlnet()
    batch = drawn(9)
    plainly = model(replace(batch, segments=None))
    hidden = model(batch)
    assert (hidden.queries - plainly.queries).abs().max() > 1e-3
    equal(model(replace(batch, segments=torch.full_like(batch.segments, 2))).tokens, plainly.tokens)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.segments += torch.randn(2, 4, dtype=torch.float64)
    equal(model(batch).queries, hidden.queries)


# --- memory -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [4, 5])
def test_memory_is_one_pass(length):
    """If no token reads a later segment, and memory holds all segments before."""
    model = xlnet(memory=3 * length)
    random = np.random.default_rng(0)
    ids, count = letters(random, (2, 3 * length)), 2
    orders = np.stack([[random.permutation(length) + length * part for part in range(3)] for _ in range(2)])
    positions = np.stack([[np.sort(random.choice(length, count, replace=False)) for _ in range(3)] for _ in range(2)])
    offsets = length * np.arange(3)[:, None]
    joined = rows_of(
        ids, order=orders.reshape(2, -1), positions=(positions + offsets).reshape(2, -1), direction=[1, -1], counts=(6,)
    )
    expected, state = model(joined), None
    for part in range(3):
        own = slice(length * part, length * (part + 1))
        batch = rows_of(ids[:, own], order=orders[:, part], positions=positions[:, part], reused=length, direction=[1, -1])
        hidden = model(batch, state)
        equal(hidden.tokens, expected.tokens[:, own])
        equal(hidden.queries, expected.queries[:, count * part : count * (part + 1)])
        state = hidden.state
        assert state["valid"].tolist() == [length * (part + 1)] * 2
    assert state["memory"].shape == (3, 2, 3 * length, 8)


def test_memory_has_no_gradient():
    """The gradient of a batch is that with its memory as a constant."""
    model = xlnet()
    first, second = drawn(1), drawn(2)
    state = model(first).state
    assert not any(each.requires_grad for each in state.values())
    ids = set(second.host_ids.flatten().tolist())
    loss = weighted(model(second, state).queries)
    found = gradients(model, loss)["embedding.weight"]
    moved = set(np.flatnonzero(found.abs().amax(1)).tolist())
    assert moved <= ids
    assert set(first.host_ids.flatten().tolist()) - ids
    # Memory matters all the same.
    assert (loss - weighted(model(second).queries)).abs() > 0.01


def test_memory_holds_the_inputs_of_layers_of_the_reused_tokens():
    model = xlnet(memory=10)
    batches = [drawn(seed, rows=2) for seed in range(3)]
    state, inputs = None, []
    for batch in batches:
        state = model(batch, state).state
        inputs.append(model.embedding(batch.input_ids[:, :REUSED]))
    equal(state["memory"][0], torch.cat(inputs, 1)[:, -10:])
    assert state["memory"].shape == (3, 2, 10, 8)


def test_memory_length_of_every_row():
    model = xlnet(memory=10)
    steps = [
        # kept, continues, begins, and how much of the memory the next batch reads
        ([7, 3, 0], [True, False, False], [True, True, True], [7, 3, 0]),
        ([7, 7, 7], [True, True, True], [False, False, False], [10, 10, 7]),
        ([7, 2, 7], [True, False, True], [False, False, True], [10, 2, 7]),
    ]
    state = None
    for seed, (kept, continues, begins, valid) in enumerate(steps):
        batch = drawn(seed, rows=3, kept=kept, continues=continues, begins=begins)
        state = model(batch, state).state
        assert state["valid"].tolist() == valid


@pytest.mark.parametrize("valid", [0, 1, 4, 6])
def test_states_beyond_the_memory_length_are_not_read(valid):
    model, batch = xlnet(), drawn(2)
    state = model(drawn(1)).state
    limited = {"memory": state["memory"], "valid": torch.tensor([valid])}
    hidden = model(batch, limited)
    other = state["memory"].clone()
    other[:, :, : 6 - valid] = 1e3
    assert torch.equal(model(batch, {"memory": other, "valid": limited["valid"]}).queries, hidden.queries)
    short = {"memory": state["memory"][:, :, 6 - valid :], "valid": limited["valid"]}
    equal(model(batch, short if valid else None).queries, hidden.queries)
    other[:, :, 6 - valid - 1 :] += 1
    assert not torch.equal(model(batch, {"memory": other, "valid": torch.tensor([valid + 1])}).queries, hidden.queries)


def test_row_that_begins_a_text_reads_no_memory():
    model, batch = xlnet(), drawn(2, begins=True)
    state = model(drawn(1)).state
    for targets_only in (False, True):
        hidden = model(batch, state, targets_only=targets_only)
        equal(hidden.queries, model(batch, targets_only=targets_only).queries)
    assert hidden.state["valid"].tolist() == [6]
    # As many states as were reused, and none of those before them.
    assert xlnet(memory=10)(batch, xlnet(memory=10)(drawn(1)).state).state["valid"].tolist() == [REUSED]


def test_memory_of_zeros():
    """Zeros before the first batch are read, as in the published code, and so they are wherever a text begins."""
    empty, zeros = xlnet(memory=10), xlnet(memory=10, memory_start="zeros")
    first, begins = drawn(1, begins=True), drawn(2, begins=True)
    before = {"memory": torch.zeros(3, 1, 10, 8, dtype=torch.float64), "valid": torch.tensor([10])}
    expected = empty(replace(first, begins=torch.tensor([False])), before)
    hidden = zeros(first)
    equal(hidden.queries, expected.queries)
    assert (hidden.queries - empty(first).queries).abs().max() > 0.01
    assert hidden.state["valid"].tolist() == [10]
    again = zeros(begins, hidden.state)
    equal(again.queries, zeros(begins).queries)
    equal(again.state["memory"], zeros(begins).state["memory"])
    # A text that ends inside the row leaves neither zeros nor states before its end.
    assert zeros(drawn(1, begins=True, kept=[3], continues=False)).state["valid"].tolist() == [3]


@pytest.mark.parametrize(("model", "reused"), [({"memory": 0}, 7), ({}, 0)], ids=["memory of 0", "nothing reused"])
def test_no_memory(model, reused):
    for start in ("empty", "zeros"):
        assert xlnet(**model, memory_start=start)(drawn(0, reused=reused)).state is None


# --- options ------------------------------------------------------------------------------------------------------------------


def test_tied_biases_are_one_parameter():
    model = xlnet(untie_biases=False)
    assert len({id(layer.attention.biases) for layer in model.layers}) == 1
    names = {name for name, _ in model.named_parameters()}
    assert [name for name in names if name.endswith("biases")] == ["layers.0.attention.biases"]
    untied = xlnet()
    assert {name for name, _ in untied.named_parameters()} - names == {f"layers.{n}.attention.biases" for n in (1, 2)}
    # The gradient is the sum of those of the layers of an untied model with equal biases.
    untied.load_state_dict(model.state_dict())
    left, right = (gradients(each, weighted(each(drawn(0)).queries)) for each in (model, untied))
    equal(left["layers.0.attention.biases"], sum(right[f"layers.{n}.attention.biases"] for n in range(3)))


def test_greatest_distance():
    """Tokens at the limit and beyond it are equally far: their places can be exchanged."""
    model = xlnet(num_layers=1, max_distance=3)
    ids = letters(np.random.default_rng(0), (1, 8))
    swapped = ids.copy()
    swapped[0, [0, 2]] = ids[0, [2, 0]]
    assert ids[0, 0] != ids[0, 2]
    left, right = (model(rows_of(each)).tokens[0] for each in (ids, swapped))
    equal(left[5:], right[5:])
    assert (left[4] - right[4]).abs().max() > 1e-3
    without = xlnet(num_layers=1)
    assert (without(rows_of(ids)).tokens[0, 5:] - without(rows_of(swapped)).tokens[0, 5:]).abs().max() > 1e-3


def test_absolute_positions():
    """States without relative positions: a row reads its memory in any order, and equal tokens differ by their places."""
    model = xlnet(position="absolute")
    batch, state = drawn(2), model(drawn(1)).state
    mixed = {"memory": state["memory"].flip(2), "valid": state["valid"]}
    equal(model(batch, mixed).queries, model(batch, state).queries)
    hidden = model(rows_of(np.full((1, 5), 9), order=np.zeros(5, dtype=np.int64), positions=np.array([[1, 3]])))
    for left, right in ((hidden.queries[0, 0], hidden.queries[0, 1]), (hidden.tokens[0, 1], hidden.tokens[0, 3])):
        assert (left - right).abs().max() > 1e-3
    assert (xlnet()(batch, mixed).queries - xlnet()(batch, state).queries).abs().max() > 1e-3


def test_dropout_is_drawn_in_training_alone():
    model, batch = xlnet(dropout=0.2, attention_dropout=0.2), drawn(0)
    torch.manual_seed(0)
    first, second = model.train()(batch), model(batch)
    assert not torch.equal(first.queries, second.queries)
    assert torch.equal(model.eval()(batch).queries, model(batch).queries)
    equal(model(batch).queries, xlnet()(batch).queries)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 10, "num_heads": 4}, "must be a multiple of model.num_heads=4"),
        ({"memory": -1}, "model.memory must be at least 0"),
        ({"max_distance": 0}, "model.max_distance must be at least 1"),
        ({"attention_dropout": 1.0}, "model.attention_dropout must be"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(RamifyError, match=message):
        XLNetConfig(**changes)

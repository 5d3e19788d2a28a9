"""All options of `attend` against loops over rows, heads and queries in double precision."""

import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramify.nn import attention as module
from ramify.nn.attention import Order, Ties, attend
from ramify.nn.ragged import Rows, by_group, doubling_key, length_key, pad

HEADS, SIZE = 2, 3


def rows_of(q_lengths, k_lengths):
    queries, keys = (np.array(lengths, dtype=np.int64) for lengths in (q_lengths, k_lengths))
    borders = length_key(queries) * 64 + doubling_key(keys)
    return Rows.build(queries, keys=borders), Rows.build(keys, keys=borders)


@dataclass
class Case:
    """The arguments of a call of `attend`. The loops read the same masks, biases and order row by row."""

    q_rows: Rows
    k_rows: Rows
    q: torch.Tensor
    kv: torch.Tensor
    options: dict
    biases: list[torch.Tensor]

    def call(self, **more):
        return attend(self.q, self.kv, self.q_rows, self.k_rows, **self.options, **more)

    @property
    def inputs(self):
        return [self.q, self.kv, *(bias for bias in self.biases if bias.requires_grad)]


def drawn(seed, least=0, learned=False):
    """A random case: rows of at least `least` tokens, any number of keys (or memory plus one per token), random options."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    count = rng.integers(1, 5)
    q_lengths = np.sort(rng.integers(least, rng.choice([5, 10]), count))
    k_lengths = rng.integers(least, 8, count) + (q_lengths if rng.random() < 0.4 else 0)
    q_rows, k_rows = rows_of(q_lengths, k_lengths)
    q = torch.randn(q_rows.total, HEADS, SIZE, dtype=torch.float64, requires_grad=True)
    kv = torch.randn(k_rows.total, 2, HEADS, SIZE, dtype=torch.float64, requires_grad=True)
    options, biases = {}, []
    groups = list(zip(q_rows.groups, k_rows.groups, strict=True))
    if rng.random() < 0.5:
        share = rng.choice([0.1, 0.5, 0.9])
        options["allowed"] = []
        for q_group, k_group in groups:
            real = torch.arange(k_group.length) < k_rows.lengths[k_group.start : k_group.stop, None, None]
            block = torch.rand(q_group.size, q_group.length, k_group.length) < share
            options["allowed"].append(block & real)
    if rng.random() < 0.6:
        ties = Ties.VISIBLE if rng.random() < 0.5 else Ties.HIDDEN
        highest = rng.choice([1, 3, 20])
        queries = q_rows.positions if rng.random() < 0.3 else torch.randint(highest, (q_rows.total,))
        options["order"] = Order(queries, torch.randint(-1, highest, (k_rows.total,)), ties)
    if learned or rng.random() < 0.7:
        wide = rng.random(2) < 0.6
        for q_group, k_group in groups:
            shape = (q_group.size if wide[0] else 1, HEADS if wide[1] else 1, q_group.length, k_group.length)
            biases.append(torch.randn(shape, dtype=torch.float64))
        if learned or rng.random() < 0.5:
            for each in biases:
                each.requires_grad_()
        options["bias"] = biases.__getitem__
    if rng.random() < 0.5:
        options["scale"] = float(rng.choice([1.0, 0.3]))
    if rng.random() < 0.5:
        options["dropout"] = 0.25
    return Case(q_rows, k_rows, q, kv, options, biases)


def by_loops(case, dropped):
    """The result of every query and the weights of every row. `dropped` has the dropout factor of each weight, in blocks."""
    order, scale = case.options.get("order"), case.options.get("scale", SIZE**-0.5)
    queries, keys = case.q.split(case.q_rows.lengths.tolist()), case.kv.split(case.k_rows.lengths.tolist())
    results, rows = [torch.zeros(0, HEADS, SIZE, dtype=torch.float64)], []
    for number, group in enumerate(case.q_rows.groups):
        for place, row in enumerate(range(group.start, group.stop)):
            weights = torch.zeros(HEADS, len(queries[row]), len(keys[row]), dtype=torch.float64)
            for query, vector in enumerate(queries[row]):
                seen = list(range(len(keys[row])))
                if "allowed" in case.options:
                    allowed = case.options["allowed"][number][place, query].tolist()
                    seen = [key for key in seen if allowed[key]]
                if order is not None:
                    own = int(order.queries[case.q_rows.offsets[row] + query])
                    others = order.keys[case.k_rows.offsets[row] : case.k_rows.offsets[row + 1]].tolist()
                    seen = [key for key in seen if others[key] < own or (others[key] == own and order.ties is Ties.VISIBLE)]
                mixed = []
                for head in range(HEADS):
                    if not seen:
                        mixed.append(0 * vector[head])
                        continue
                    scores = scale * (keys[row][seen, 0, head] @ vector[head])
                    if case.biases:
                        bias = case.biases[number]
                        scores = scores + bias[place % bias.shape[0], head % bias.shape[1], query, seen]
                    shares = scores.exp() / scores.exp().sum()
                    weights[head, query, seen] = shares.detach()
                    if number in dropped:
                        shares = shares * dropped[number][place, head, query, seen]
                    mixed.append(shares @ keys[row][seen, 1, head])
                results.append(torch.stack(mixed)[None])
            rows.append(weights)
    return torch.cat(results), rows


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=300)
def test_attend_equals_loops(seed):
    """Results, gradients and recorded weights are right for all options, and recording leaves the result unchanged."""
    case = drawn(seed)
    blocks = [
        number
        for number, (queries, keys) in enumerate(zip(case.q_rows.groups, case.k_rows.groups, strict=True))
        if queries.length and keys.length
    ]
    dropped = {}

    def drop(weights, p, training):
        if p == 0:
            return weights
        number = blocks[len(dropped)]
        dropped.setdefault(number, (torch.rand_like(weights) >= p) / (1 - p))
        return weights * dropped[number]

    record = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "drop", drop)
        found = case.call(record=record)
        expected, weights = by_loops(case, dropped)
        if not case.options.get("dropout"):
            assert torch.equal(case.call(), found)
    close(found, expected)
    assert len(record) == len(weights) == len(case.q_rows)
    for recorded, expected_weights in zip(record, weights, strict=True):
        close(recorded, expected_weights)
        total = recorded.sum(-1)
        assert ((total - 1).abs() < 1e-12).logical_or(total == 0).all()
    blind = torch.cat([(row == 0).all(-1).all(0) for row in weights])
    assert (found[blind] == 0).all()
    if not found.requires_grad:
        # No query sees a key.
        assert blind.all()
        return
    weight = torch.randn_like(found)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), case.inputs, allow_unused=True, materialize_grads=True)
    gradients = torch.autograd.grad((found * weight).sum(), case.inputs, allow_unused=True, materialize_grads=True)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        close(gradient, expected_gradient)
    assert (gradients[0][blind] == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_gradients_equal_finite_differences(seed):
    """Gradients of queries, keys, values and a learned bias are right, and those of the first three with a fixed bias, too."""
    case = drawn(seed, least=1, learned=True)
    case.options["dropout"] = 0.0

    def result(*inputs):
        options = case.options | {"bias": inputs[2:].__getitem__}
        return attend(inputs[0], inputs[1], case.q_rows, case.k_rows, **options)

    assert torch.autograd.gradcheck(result, (case.q, case.kv, *case.biases))
    fixed = [bias.detach() for bias in case.biases]
    assert torch.autograd.gradcheck(lambda q, kv: result(q, kv, *fixed), (case.q, case.kv))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recording_weights_changes_nothing(dtype):
    """Recording changes neither the result nor the next random number. The record is in single precision, without a graph."""
    case = drawn(5, least=3, learned=True)
    q, kv = case.q.to(dtype), case.kv.to(dtype)

    def run(**more):
        torch.manual_seed(1)
        options = case.options | {"dropout": 0.3}
        return attend(q, kv, case.q_rows, case.k_rows, **options, **more), torch.rand(())

    record = []
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        (found, after), (expected, then) = run(record=record), run()
    assert torch.equal(found, expected)
    assert torch.equal(after, then)
    assert found.dtype == dtype
    assert all(weights.dtype == torch.float32 and not weights.requires_grad for weights in record)


@pytest.mark.parametrize("learned", [False, True])
def test_half_precision_is_computed_in_single(learned):
    """On CPU `attend` computes in single precision. This includes a bias, which autocast may create in either precision."""
    case = drawn(3, least=3, learned=True)
    q, kv = case.q.detach().bfloat16(), case.kv.detach().bfloat16()
    biases = [bias.detach().bfloat16().requires_grad_(learned) for bias in case.biases]
    options = case.options | {"dropout": 0.0, "bias": biases.__getitem__}
    found = attend(q, kv, case.q_rows, case.k_rows, **options)
    options["bias"] = [bias.float() for bias in biases].__getitem__
    assert torch.equal(found, attend(q.float(), kv.float(), case.q_rows, case.k_rows, **options).bfloat16())


@pytest.mark.parametrize("learned", [False, True])
def test_only_one_bias_is_in_memory(learned):
    """A bias is as large as the scores, so it is freed before the next is made and not kept for the backward pass."""
    q_rows, k_rows = rows_of([4, 12, 20, 30], [9, 20, 40, 70])
    assert len(q_rows.groups) == 4
    q, kv = torch.randn(q_rows.total, HEADS, SIZE), torch.randn(k_rows.total, 2, HEADS, SIZE)
    strength = torch.ones((), requires_grad=learned)
    made = []

    def bias(number):
        assert all(reference() is None for reference in made)
        distances = torch.arange(q_rows.groups[number].length)[:, None] - torch.arange(k_rows.groups[number].length)
        added = distances[None, None] + strength
        made.append(weakref.ref(added))
        return added

    attend(q, kv, q_rows, k_rows, bias=bias, order=Order(q_rows.positions, k_rows.positions))
    assert len(made) == 4
    assert all(reference() is None for reference in made)


def test_order_numbers_express_every_mask():
    """Equal numbers mean no mask, positions a causal mask, and one factorization order gives both streams of XLNet."""
    torch.manual_seed(0)
    rows = Rows.build([4, 7, 2])
    q, kv = torch.randn(13, HEADS, SIZE, dtype=torch.float64), torch.randn(13, 2, HEADS, SIZE, dtype=torch.float64)
    same = torch.zeros(13, dtype=torch.int64)
    close(attend(q, kv, rows, rows, order=Order(same, same)), attend(q, kv, rows, rows))
    assert not attend(q, kv, rows, rows, order=Order(same, same, Ties.HIDDEN)).any()
    record = []
    attend(q, kv, rows, rows, order=Order(rows.positions, rows.positions), record=record)
    for weights in record:
        assert torch.equal(weights > 0, torch.ones_like(weights, dtype=torch.bool).tril())
    # The third token first, then the second, the fourth and the first.
    ranks = torch.tensor([3, 1, 0, 2])
    row = Rows.build([4])
    content, query = [], []
    attend(q[:4], kv[:4], row, row, order=Order(ranks, ranks), record=content)
    attend(q[:4], kv[:4], row, row, order=Order(ranks, ranks, Ties.HIDDEN), record=query)
    assert [(weights > 0).nonzero()[:, 0].tolist() for weights in content[0][0]] == [[0, 1, 2, 3], [1, 2], [2], [1, 2, 3]]
    assert [(weights > 0).nonzero()[:, 0].tolist() for weights in query[0][0]] == [[1, 2, 3], [2], [], [1, 2]]


def test_two_streams_with_memory_and_relative_positions():
    """XLNet's attention (Yang et al. 2019, sections 2.3 to 2.6). Keys are a memory and the row. The query stream covers only
    some positions. Each group's relative term is computed from padded queries; for whole rows it is a shifted view."""
    torch.manual_seed(0)
    lengths, memories, targets = [3, 5, 9], [4, 4, 6], [[2, 0], [], [8, 3, 4]]
    rows = Rows.build(lengths, keys=np.array([0, 0, 1]))
    t_rows = Rows.build([len(places) for places in targets], keys=rows.keys)
    k_rows = Rows.build(np.add(lengths, memories), keys=rows.keys)
    selected = torch.cat([start + torch.tensor(places, dtype=torch.int64) for start, places in zip(rows.offsets, targets)])
    content, queries = (torch.randn(layout.total, HEADS, SIZE, dtype=torch.float64) for layout in (rows, t_rows))
    keys = torch.randn(k_rows.total, 2, HEADS, SIZE, dtype=torch.float64)
    furthest = 19
    by_distance = torch.randn(2 * furthest, HEADS, SIZE, dtype=torch.float64, requires_grad=True)  # For distances 19, 18 … -18.
    ranks = [torch.randperm(length) for length in lengths]
    key_ranks = torch.cat([torch.cat([torch.full((memory,), -1), own]) for memory, own in zip(memories, ranks)])

    def scores(x, rows, number):
        return torch.einsum("rqhs,dhs->rhqd", by_group(pad(x, rows), rows)[number], by_distance).contiguous() * SIZE**-0.5

    def shifted(number):
        every = scores(content, rows, number)
        size, heads, length, count = every.shape
        keys, memory = k_rows.groups[number].length, memories[k_rows.groups[number].start]
        # Each query is one position further from every key than the previous query.
        strides = (*every.stride()[:2], count - 1, 1)
        return every.as_strided((size, heads, length, keys), strides, furthest - memory)

    def gathered(number):
        positions = by_group(rows.positions[selected][t_rows.padded], t_rows)[number]
        distances = (
            memories[k_rows.groups[number].start] + positions[:, None, :, None] - torch.arange(k_rows.groups[number].length)
        )
        return scores(queries, t_rows, number).gather(3, (furthest - distances).expand(-1, HEADS, -1, -1))

    own_ranks = torch.cat(ranks)
    streams = [
        (content, rows, [range(length) for length in lengths], Order(own_ranks, key_ranks), shifted),
        (queries, t_rows, targets, Order(own_ranks[selected], key_ranks, Ties.HIDDEN), gathered),
    ]
    for x, x_rows, places, order, bias in streams:
        found = attend(x, keys, x_rows, k_rows, order=order, bias=bias)
        expected = []
        for row, vectors in enumerate(x.split(x_rows.lengths.tolist())):
            k, v = keys.split(k_rows.lengths.tolist())[row].unbind(1)
            memory = memories[row]
            for vector, place in zip(vectors, places[row], strict=True):
                bound = int(ranks[row][place]) + (order.ties is Ties.VISIBLE)
                seen = [*range(memory), *(memory + other for other in range(lengths[row]) if ranks[row][other] < bound)]
                relative = by_distance[[furthest - (memory + place - key) for key in seen]]
                weights = (torch.einsum("khs,hs->hk", k[seen] + relative, vector) * SIZE**-0.5).softmax(-1)
                expected.append(torch.einsum("hk,khs->hs", weights, v[seen]))
        expected = torch.stack(expected)
        close(found, expected)
        gradient, expected_gradient = (
            torch.autograd.grad(result.square().sum(), by_distance)[0] for result in (found, expected)
        )
        close(gradient, expected_gradient)

"""Attention over ragged rows against a plain implementation, row by row."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ramify.nn import attention as module
from ramify.nn.attention import Order, Ties, attend
from ramify.nn.blocks import Attention, ContextVectors, Layer, OutputPositions, Stack
from ramify.nn.ragged import Rows, doubling_key, length_key

HEADS, SIZE = 2, 4
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]

pairs_of_lengths = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=12)


def rows_of(pairs, device="cpu"):
    queries, keys = (np.array(lengths, dtype=np.int64) for lengths in zip(*pairs))
    borders = length_key(queries) * 64 + doubling_key(keys)
    return Rows.build(queries, keys=borders).to(device), Rows.build(keys, keys=borders).to(device)


def inputs(q_rows, k_rows, dtype=torch.float64, device="cpu", size=SIZE):
    torch.manual_seed(0)
    q = torch.randn(q_rows.total, HEADS, size, dtype=torch.float64)
    kv = torch.randn(k_rows.total, 2, HEADS, size, dtype=torch.float64)
    return tuple(x.to(device, dtype).requires_grad_() for x in (q, kv))


def plainly(q, kv, q_lengths, k_lengths):
    """softmax(q kᵀ / √size) v of every row; a row without keys is zero."""
    out = []
    for q_row, kv_row in zip(q.split(q_lengths), kv.split(k_lengths)):
        k, v = kv_row.unbind(1)
        if len(k) == 0:
            out.append(torch.zeros_like(q_row) + 0 * q_row)
            continue
        scores = torch.einsum("qhs,khs->hqk", q_row, k) / math.sqrt(SIZE)
        out.append(torch.einsum("hqk,khs->qhs", scores.softmax(-1), v))
    return torch.cat(out)


@given(pairs=pairs_of_lengths)
@settings(max_examples=60)
def test_attend_equals_a_plain_softmax(pairs):
    q_rows, k_rows = rows_of(pairs)
    q, kv = inputs(q_rows, k_rows)
    expected = plainly(q, kv, q_rows.lengths.tolist(), k_rows.lengths.tolist())
    found = attend(q, kv, q_rows, k_rows)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    if not any(queries and keys for queries, keys in pairs):
        assert not found.any()
        return
    weight = torch.randn_like(found)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), (q, kv))
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), (q, kv)), expected_gradients):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


def drawn_masks(lengths, seed):
    """A random mask for each row, and the same masks as blocks of the groups. A padding token attends to itself."""
    generator = torch.Generator().manual_seed(seed)
    masks = [(torch.rand(size, size, generator=generator) < 0.4) | torch.eye(size, dtype=torch.bool) for size in lengths]
    blocks = []
    for group in Rows.build(lengths).groups:
        block = torch.eye(group.length, dtype=torch.bool).repeat(group.size, 1, 1)
        for padded, mask in zip(block, masks[group.start : group.stop], strict=True):
            padded[: len(mask), : len(mask)] = mask
        blocks.append(block)
    return masks, blocks


def blocks_of(q_rows, k_rows, sees):
    """`sees(row, query, key)` as one block per group of rows. Padding neither sees nor is seen."""
    blocks = []
    for q_group, k_group in zip(q_rows.groups, k_rows.groups, strict=True):
        block = torch.zeros(q_group.size, q_group.length, k_group.length, dtype=torch.bool)
        for row in range(q_group.start, q_group.stop):
            for query, key in product(range(q_rows.host_lengths[row]), range(k_rows.host_lengths[row])):
                block[row - q_group.start, query, key] = sees(row, query, key)
        blocks.append(block)
    return blocks


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=10), seed=st.integers(0, 99))
@example(lengths=[1, 5, 8, 9, 3, 17, 20], seed=0)
@settings(max_examples=25)
def test_attend_with_masks_equals_a_masked_softmax(dropout, lengths, seed):
    """This also holds for the path with dropout, which the patch keeps from dropping anything."""
    rows = Rows.build(lengths)
    masks, blocks = drawn_masks(lengths, seed)
    q, kv = inputs(rows, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "drop", lambda x, p, training: x)
        found = attend(q, kv, rows, rows, dropout=dropout, allowed=blocks)
    expected = []
    for q_row, kv_row, mask in zip(q.split(lengths), kv.split(lengths), masks, strict=True):
        k, v = kv_row.unbind(1)
        for head in range(HEADS):
            scores = (q_row[:, head] @ k[:, head].T / math.sqrt(SIZE)).masked_fill(~mask, -math.inf)
            expected.append(scores.softmax(1) @ v[:, head])
    expected = torch.cat([torch.stack(expected[row : row + HEADS], 1) for row in range(0, len(expected), HEADS)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight = torch.randn_like(found)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), (q, kv))
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), (q, kv)), expected_gradients):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", ["none", "fixed", "learned"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("way", ["allowed", "order", "both", "lengths"])
def test_blind_queries_give_zeros(way, dropout, bias, dtype, device):
    """Blind queries become exact zeros without a gradient; all other results are finite. The first query of each row is blind,
    except with `lengths`, where only rows without keys are. The head size suits the variable-length kernel."""
    q_rows, k_rows = rows_of([(3, 3), (5, 5), (8, 6), (2, 0), (20, 9), (1, 1)], device)
    q, kv = inputs(q_rows, k_rows, dtype, device, size=8)
    options = {}
    if way in ("allowed", "both"):
        options["allowed"] = [mask.to(device) for mask in blocks_of(q_rows, k_rows, lambda row, query, key: query > 0)]
    if way in ("order", "both"):
        options["order"] = Order(q_rows.positions, k_rows.positions, Ties.HIDDEN)
    if bias != "none":
        groups = list(zip(q_rows.groups, k_rows.groups, strict=True))
        biases = [torch.randn(q.size, HEADS, q.length, k.length, device=device) for q, k in groups]
        for each in biases:
            each.requires_grad_(bias == "learned")
        options["bias"] = biases.__getitem__
    found = attend(q, kv, q_rows, k_rows, dropout=dropout, **options)
    blind = torch.repeat_interleave(k_rows.lengths == 0, q_rows.lengths)
    if way != "lengths":
        blind |= q_rows.positions == 0
    assert blind.sum() == (2 if way == "lengths" else 7)
    assert (found[blind] == 0).all()
    assert torch.isfinite(found).all()
    assert dropout > 0 or (found[~blind] != 0).all()
    sources = (q, kv, *(biases if bias == "learned" else ()))
    gradients = torch.autograd.grad(found.float().square().sum(), sources, allow_unused=True, materialize_grads=True)
    assert all(bool(torch.isfinite(each).all()) for each in gradients)
    assert all(bool(each.any()) for each in gradients[:2])
    assert (gradients[0][blind] == 0).all()


def test_full_mask_equals_no_mask():
    lengths = [3, 7, 1, 12, 16, 5]
    rows = Rows.build(lengths)
    q, kv = inputs(rows, rows)
    masks = [torch.arange(group.length) < rows.lengths[group.start : group.stop, None, None] for group in rows.groups]
    blocks = [mask.repeat(1, group.length, 1) for mask, group in zip(masks, rows.groups, strict=True)]
    assert len(blocks) == 3
    torch.testing.assert_close(attend(q, kv, rows, rows, allowed=blocks), attend(q, kv, rows, rows), rtol=0, atol=1e-12)


def test_masks_apply_to_every_layer_of_a_stack():
    """Tokens that attend only to themselves give the same result as rows of one token."""
    torch.manual_seed(0)
    stack = Stack(3, 8, 2, 16, dropout=0.0).double()
    rows = Rows.build([4, 9, 2])
    x = torch.randn(15, 8, dtype=torch.float64)
    blocks = [torch.eye(group.length, dtype=torch.bool).repeat(group.size, 1, 1) for group in rows.groups]
    torch.testing.assert_close(stack(x, rows, allowed=blocks), stack(x, Rows.build([1] * 15)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_half_precision_on_cpu_is_computed_in_single(dropout):
    q_rows, k_rows = rows_of([(5, 4), (3, 0), (8, 7), (7, 7)])
    q, kv = inputs(q_rows, k_rows, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(1)
        found = attend(q, kv, q_rows, k_rows, dropout=dropout)
    torch.manual_seed(1)
    assert torch.equal(found, attend(q.float(), kv.float(), q_rows, k_rows, dropout=dropout).bfloat16())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "pairs",
    [
        [(3, 0), (5, 4), (8, 0)],
        [(5, 0), (5, 0)],
        [(4, 2), (6, 0), (7, 1), (20, 0), (1, 3)],
        [(0, 0), (3, 2), (0, 4)],
        [(2, 0)],
    ],
    ids=str,
)
def test_blind_rows_are_zero(pairs, dtype, device):
    """Such rows become exact zeros with finite gradients. The others are right within the precision of the type."""
    q_rows, k_rows = rows_of(pairs, device)
    q, kv = inputs(q_rows, k_rows, dtype, device)
    found = attend(q, kv, q_rows, k_rows)
    blind = torch.repeat_interleave(k_rows.lengths == 0, q_rows.lengths)
    assert blind.any() or (0, 0) in pairs
    assert (found[blind] == 0).all()
    exact = plainly(q.double().cpu(), kv.double().cpu(), q_rows.lengths.tolist(), k_rows.lengths.tolist())
    torch.testing.assert_close(found.double().cpu(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)
    if k_rows.total == 0:
        return
    gradients = torch.autograd.grad(found.float().square().sum(), (q, kv))
    assert all(bool(torch.isfinite(each).all()) for each in gradients)
    assert (gradients[0][blind] == 0).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("distance", [False, True])
def test_cross_attention_layer_leaves_blind_rows_unchanged(dtype, device, distance):
    """Cross-attention adds nothing to such rows, although its output has a bias, and all gradients are finite."""
    torch.manual_seed(0)
    layer = Layer(8, 2, 16, dropout=0.0, cross=True).to(device, dtype)
    assert layer.cross is not None
    torch.nn.init.normal_(layer.cross.out.bias)
    q_rows, k_rows = rows_of([(3, 0), (4, 2), (9, 0), (9, 1)], device)
    kinds = torch.randn(4, 8, device=device, dtype=dtype) if distance else None
    context = ContextVectors(
        torch.randn(3, 8, device=device, dtype=dtype, requires_grad=True),
        torch.tensor([0, 2, 1], device=device),
        q_rows,
        k_rows,
        kinds,
        torch.tensor([1, 2, 3], device=device) if distance else None,
    )
    x = torch.randn(q_rows.total, 8, device=device, dtype=dtype, requires_grad=True)
    added = layer.cross.read(x, context, q_rows)
    blind = torch.repeat_interleave(k_rows.lengths == 0, q_rows.lengths)
    assert (added[blind] == 0).all()
    assert (added[~blind] != 0).any(1).all()
    layer(x, q_rows, context).float().square().sum().backward()
    assert x.grad is not None
    assert context.vectors.grad is not None
    for gradient in (x.grad, context.vectors.grad, *(parameter.grad for parameter in layer.parameters())):
        assert gradient is not None
        assert torch.isfinite(gradient).all()


def test_pair_vectors_are_added_before_projection():
    """Projecting pair vectors separately equals adding them to the gathered vectors before the projection."""
    torch.manual_seed(0)
    attention = Attention(8, 2, 0.0).double()
    q_rows, k_rows = rows_of([(3, 2), (4, 3)])
    vectors, kinds = torch.randn(4, 8, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
    index, pair = torch.tensor([0, 1, 0, 2, 3]), torch.tensor([2, 1, 2, 1, 0])
    x = torch.randn(7, 8, dtype=torch.float64)
    found = attention.read(x, ContextVectors(vectors, index, q_rows, k_rows, kinds, pair), q_rows)
    torch.testing.assert_close(found, attention(x, vectors[index] + kinds[pair], q_rows, k_rows), rtol=0, atol=1e-12)


def test_attention_dropout_is_unbiased_and_only_in_training():
    torch.manual_seed(0)
    q_rows, k_rows = rows_of([(3, 9), (5, 9)])
    q, kv = (x.detach() for x in inputs(q_rows, k_rows))
    exact = attend(q, kv, q_rows, k_rows)
    draws = torch.stack([attend(q, kv, q_rows, k_rows, dropout=0.3) for _ in range(3000)])
    assert float(draws.std(0).min()) > 0.01
    error = (draws.mean(0) - exact).abs() / (draws.std(0) / 3000**0.5)
    assert float(error.max()) < 5
    module = Attention(HEADS * SIZE, HEADS, 0.3).double()
    x = torch.randn(q_rows.total, HEADS * SIZE, dtype=torch.float64)
    assert not torch.equal(module(x, x, q_rows, q_rows), module(x, x, q_rows, q_rows))
    module.eval()
    assert torch.equal(module(x, x, q_rows, q_rows), module(x, x, q_rows, q_rows))


@pytest.mark.parametrize("norm", ["post", "pre"])
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6), data=st.data())
@settings(max_examples=20)
def test_output_positions_equal_the_full_computation(norm, lengths, data):
    """The last layer computes only the selected positions, with the values of the full computation."""
    torch.manual_seed(0)
    stack = Stack(2, 8, 2, 16, norm=norm, dropout=0.0, cross=True).double()
    keys = np.array([length % 3 for length in lengths], dtype=np.int64)
    host = np.array(lengths, dtype=np.int64)
    borders = length_key(host) * 64 + doubling_key(keys)
    rows, readers, contexts = Rows.build(host), Rows.build(host, keys=borders), Rows.build(keys, keys=borders)
    counts = np.array([data.draw(st.integers(0, length)) for length in lengths], dtype=np.int64)
    starts = np.cumsum(host) - host
    index = torch.from_numpy(np.concatenate([start + np.arange(count) for start, count in zip(starts, counts)]))
    output_positions = OutputPositions(index, Rows.build(counts, keys=rows.keys), Rows.build(counts, keys=readers.keys))
    vectors = torch.randn(4, 8, dtype=torch.float64)
    context = ContextVectors(vectors, torch.randint(4, (contexts.total,)), readers, contexts)
    x = torch.randn(rows.total, 8, dtype=torch.float64)
    torch.testing.assert_close(stack(x, rows, context, output_positions), stack(x, rows, context)[index], rtol=0, atol=1e-12)

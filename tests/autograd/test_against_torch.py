"""Random graphs over all operations agree with torch in float64 to 1e-10."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from ramify import autograd
from ramify.autograd import Graph, Tensor, differences

SHAPES = [(), (3,), (1,), (2, 3), (1, 3), (2, 1), (2, 3, 4), (3, 4)]


class Pool:
    """Pairs of nodes, ours and torch's, from which a random graph grows."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.leaves: list[tuple[Tensor, torch.Tensor]] = []
        self.pairs: list[tuple[Tensor, torch.Tensor]] = []
        for _ in range(3):
            self.leaf(*SHAPES[self.random.integers(len(SHAPES))])

    def leaf(self, *shape: int) -> tuple[Tensor, torch.Tensor]:
        value = self.random.normal(size=shape)
        pair = (Tensor(value.copy()), torch.tensor(value, dtype=torch.float64, requires_grad=True))
        self.leaves.append(pair)
        self.pairs.append(pair)
        return pair

    def any(self, min_axes: int = 0) -> tuple[Tensor, torch.Tensor]:
        """A random pair with at least this many axes."""
        fit = [pair for pair in self.pairs if len(pair[0].shape) >= min_axes]
        if not fit:
            return self.leaf(2, 3, 4)
        return fit[self.random.integers(len(fit))]

    def fitting(self, shape: tuple[int, ...]) -> tuple[Tensor, torch.Tensor]:
        """A random pair that broadcasts with this shape."""
        fit = []
        for pair in self.pairs:
            try:
                np.broadcast_shapes(pair[0].shape, shape)
            except ValueError:
                continue
            fit.append(pair)
        return fit[self.random.integers(len(fit))] if fit else self.leaf(*shape)

    def axis(self, pair: tuple[Tensor, torch.Tensor]) -> int:
        return int(self.random.integers(-len(pair[0].shape), len(pair[0].shape)))


def binary(ours, theirs):
    def grow(pool: Pool):
        a = pool.any()
        b = pool.fitting(a[0].shape)
        return ours(a[0], b[0]), theirs(a[1], b[1])

    return grow


def unary(ours, theirs):
    def grow(pool: Pool):
        a = pool.any()
        return ours(a[0]), theirs(a[1])

    return grow


def same(function):
    return unary(function, function)


def power(pool: Pool):
    exponent = [0, 1, 2, 3, -1, 0.5, -1.5][pool.random.integers(7)]
    a = pool.any()
    return (a[0] * a[0] + 0.5) ** exponent, (a[1] * a[1] + 0.5) ** exponent


def matmul(pool: Pool):
    n, m, k = pool.random.integers(1, 4, 3).tolist()
    left, right = [
        ((n,), (n,)),
        ((n, m), (m,)),
        ((n,), (n, m)),
        ((n, m), (m, k)),
        ((2, n, m), (m, k)),
        ((2, n, m), (2, m, k)),
        ((3, 1, n, m), (2, m, k)),
        ((m,), (2, m, k)),
        ((2, n, m), (m,)),
    ][pool.random.integers(9)]
    a, b = pool.leaf(*left), pool.leaf(*right)
    return a[0] @ b[0], a[1] @ b[1]


def reduction(ours, theirs):
    def grow(pool: Pool):
        a = pool.any(1)
        axis, keepdims = pool.axis(a), bool(pool.random.integers(2))
        if pool.random.integers(3) == 0 and len(a[0].shape) > 1:
            axis = tuple(range(len(a[0].shape)))[:2]
        return ours(a[0], axis, keepdims), theirs(a[1], axis, keepdims)

    return grow


def softmax(pool: Pool):
    a = pool.any(1)
    axis = pool.axis(a)
    return autograd.softmax(a[0], axis), a[1].softmax(axis)


def layernorm(pool: Pool):
    a = pool.any(1)
    size = a[0].shape[-1]
    gain, bias = pool.leaf(size), pool.leaf(size)
    return autograd.layernorm(a[0], gain[0], bias[0], 0.1), F.layer_norm(a[1], (size,), gain[1], bias[1], 0.1)


def embedding(pool: Pool):
    table, ids = pool.leaf(5, 3), pool.random.integers(0, 5, (2, 4))
    return autograd.embedding(table[0], ids), F.embedding(torch.from_numpy(ids), table[1])


def gather(pool: Pool):
    a = pool.any(1)
    axis = pool.axis(a)
    index = pool.random.integers(0, a[0].shape[axis], a[0].shape)
    return autograd.gather(a[0], index, axis), a[1].gather(axis, torch.from_numpy(index))


def concat(pool: Pool):
    a = pool.any(1)
    axis = pool.axis(a)
    return autograd.concat([a[0], a[0] * 2, a[0]], axis), torch.cat([a[1], a[1] * 2, a[1]], axis)


def reshape(pool: Pool):
    a = pool.any()
    shape = (1, *reversed(a[0].shape))
    return a[0].reshape(*shape), a[1].reshape(shape)


def transpose(pool: Pool):
    a = pool.any(2)
    axes = pool.random.permutation(len(a[0].shape)).tolist()
    return a[0].transpose(*axes), a[1].permute(axes)


def where(pool: Pool):
    a = pool.any()
    b = pool.fitting(a[0].shape)
    condition = pool.random.random(np.broadcast_shapes(a[0].shape, b[0].shape)) < 0.5
    return autograd.where(condition, a[0], b[0]), torch.where(torch.from_numpy(np.asarray(condition)), a[1], b[1])


def dropout(pool: Pool):
    a = pool.any()
    mask = pool.random.random(a[0].shape) >= 0.3
    return autograd.dropout(a[0], mask, 0.3), a[1] * torch.from_numpy(np.asarray(mask)) / 0.7


def index(pool: Pool):
    a = pool.any(1)
    key = pool.random.integers(0, a[0].shape[0], 3)
    return a[0][key], a[1][torch.from_numpy(key)]


def conv1d(pool: Pool):
    stride, padding, width = (int(pool.random.integers(*bounds)) for bounds in ((1, 4), (0, 3), (1, 4)))
    a, filters, bias = pool.leaf(2, 3, 7), pool.leaf(4, 3, width), pool.leaf(4)
    ours = autograd.conv1d(a[0], filters[0], bias[0], stride, padding)
    return ours, F.conv1d(a[1], filters[1], bias[1], stride, padding)


OPERATIONS = {
    "add": binary(lambda a, b: a + b, lambda a, b: a + b),
    "sub": binary(lambda a, b: a - b, lambda a, b: a - b),
    "mul": binary(lambda a, b: a * b, lambda a, b: a * b),
    "div": binary(lambda a, b: a / (b * b + 0.5), lambda a, b: a / (b * b + 0.5)),
    "numbers on the left": same(lambda a: 2 - 3 / (1 + a * a) + 2 ** (0.1 * a / (1 + a * a))),
    "neg": same(lambda a: -a),
    "pow": power,
    "pow of nodes": binary(lambda a, b: (a * a + 0.5) ** (b / (1 + b * b)), lambda a, b: (a * a + 0.5) ** (b / (1 + b * b))),
    "matmul": matmul,
    "exp": unary(lambda a: autograd.exp(autograd.tanh(a)), lambda a: a.tanh().exp()),
    "log": unary(lambda a: autograd.log(a * a + 0.5), lambda a: (a * a + 0.5).log()),
    "sqrt": unary(lambda a: autograd.sqrt(a * a + 0.5), lambda a: (a * a + 0.5).sqrt()),
    "sin": unary(autograd.sin, torch.sin),
    "cos": unary(autograd.cos, torch.cos),
    "abs": same(abs),
    "tanh": unary(autograd.tanh, torch.tanh),
    "sigmoid": unary(autograd.sigmoid, torch.sigmoid),
    "relu": unary(autograd.relu, torch.relu),
    "gelu": unary(autograd.gelu, F.gelu),
    "gelu by tanh": unary(lambda a: autograd.gelu(a, approximate=True), lambda a: F.gelu(a, approximate="tanh")),
    "softmax": softmax,
    "logsumexp": reduction(autograd.logsumexp, torch.logsumexp),
    "sum": reduction(Tensor.sum, torch.sum),
    "mean": reduction(Tensor.mean, torch.mean),
    "max": reduction(Tensor.max, torch.amax),
    "min": reduction(Tensor.min, torch.amin),
    "maximum": binary(autograd.maximum, torch.maximum),
    "minimum": binary(autograd.minimum, torch.minimum),
    "layernorm": layernorm,
    "embedding": embedding,
    "gather": gather,
    "concat": concat,
    "reshape": reshape,
    "transpose": transpose,
    "where": where,
    "dropout": dropout,
    "index": index,
    "conv1d": conv1d,
}


def check(seed: int, names: list[str]) -> None:
    pool = Pool(seed)
    for name in names:
        ours, theirs = OPERATIONS[name](pool)
        np.testing.assert_allclose(ours.value, theirs.detach().numpy(), rtol=1e-10, atol=1e-10, err_msg=name)
        pool.pairs.append((ours, theirs))
    output, expected = Tensor(0.0), torch.zeros((), dtype=torch.float64)
    for ours, theirs in pool.pairs:
        weight = pool.random.normal(size=ours.shape)
        output = output + (ours * weight).mean()
        expected = expected + (theirs * torch.from_numpy(np.asarray(weight))).mean()
    output.backward()
    expected.backward()
    for ours, theirs in pool.leaves:
        assert ours.gradient is not None
        assert theirs.grad is not None
        scale = max(1.0, float(theirs.grad.abs().max()))
        np.testing.assert_allclose(ours.gradient / scale, theirs.grad.numpy() / scale, rtol=0, atol=1e-10)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32 - 1), names=st.lists(st.sampled_from(list(OPERATIONS)), min_size=1, max_size=12))
def test_random_graphs(seed, names):
    check(seed, names)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_in_every_shape(name):
    for seed in range(12):
        check(seed, [name, name])


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_against_differences(name):
    """The differences come from forward passes of the same graph with changed leaves."""
    for seed in range(3):
        pool = Pool(seed)
        found, _ = OPERATIONS[name](pool)
        output = (found * pool.random.normal(size=found.shape)).sum()
        graph, leaves = Graph(output), [leaf for leaf, _ in pool.leaves]
        graph.backward()
        gradients = [np.zeros(leaf.shape) if leaf not in graph.nodes else leaf.known_gradient for leaf in leaves]

        def moved(*values, graph=graph, leaves=leaves):
            for leaf, value in zip(leaves, values, strict=True):
                leaf.value = np.asarray(value)
            graph.forward()
            return graph.output

        for slope, gradient in zip(differences(moved, [leaf.known for leaf in leaves]), gradients, strict=True):
            scale = max(1.0, np.abs(slope).max(initial=0.0))
            np.testing.assert_allclose(gradient / scale, slope / scale, rtol=0, atol=1e-6)


# --- special values, which random numbers never hit --------------------------------------------------------------------------

POINTS = [0.0, -0.0, 1.0, -1.0, 800.0, -800.0, 1e-300, np.inf, -np.inf, np.nan]

EVERY = {
    "exp": (autograd.exp, torch.exp),
    "log": (autograd.log, torch.log),
    "sqrt": (autograd.sqrt, torch.sqrt),
    "sin": (autograd.sin, torch.sin),
    "cos": (autograd.cos, torch.cos),
    "tanh": (autograd.tanh, torch.tanh),
    "sigmoid": (autograd.sigmoid, torch.sigmoid),
    "relu": (autograd.relu, torch.relu),
    "square": (lambda a: a**2, lambda a: a**2),
    "to the 0": (lambda a: a**0, lambda a: a**0),
    "to the 1": (lambda a: a**1, lambda a: a**1),
    "inverse": (lambda a: a**-1, lambda a: a**-1),
    "division": (lambda a: 1 / a, lambda a: 1 / a),
}


@pytest.mark.filterwarnings("ignore:(overflow|divide by zero|invalid value|underflow)")
@pytest.mark.parametrize("name", EVERY)
def test_special_points(name):
    ours, theirs = EVERY[name]
    x, same = Tensor(POINTS), torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    found, expected = ours(x), theirs(same)
    np.testing.assert_allclose(found.known, expected.detach().numpy(), rtol=1e-12)
    found.sum().backward()
    expected.sum().backward()
    assert same.grad is not None
    np.testing.assert_allclose(x.known_gradient, same.grad.numpy(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value)")
def test_powers_of_zero():
    bases, exponents = [0.0, 0.0, 0.0, 2.0, -2.0, 1.0], [0.0, 1.0, 2.0, 0.0, 2.0, -1.0]
    a, b = Tensor(bases), Tensor(exponents)
    same_a, same_b = (torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (bases, exponents))
    (a**b).sum().backward()
    (same_a**same_b).sum().backward()
    assert same_a.grad is not None
    assert same_b.grad is not None
    np.testing.assert_allclose(a.known_gradient, same_a.grad.numpy())
    np.testing.assert_allclose(b.known_gradient, same_b.grad.numpy())


ROWS = [[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [1000.0, 999.0, -1000.0], [-np.inf, 0.0, 1.0], [np.nan, 1.0, 2.0]]


@pytest.mark.parametrize(
    "rows", [ROWS, [[-np.inf, -np.inf, -np.inf]], [[np.inf, 1.0, 2.0]]], ids=["ties", "nothing", "infinity"]
)
@pytest.mark.parametrize("name", ["max", "min", "softmax", "logsumexp"])
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value|overflow)")
def test_special_rows(name, rows):
    ours, theirs = {
        "max": (lambda a: a.max(-1), lambda a: a.amax(-1)),
        "min": (lambda a: a.min(-1), lambda a: a.amin(-1)),
        "softmax": (autograd.softmax, lambda a: a.softmax(-1)),
        "logsumexp": (autograd.logsumexp, lambda a: a.logsumexp(-1)),
    }[name]
    x, same = Tensor(rows), torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    found, expected = ours(x), theirs(same)
    np.testing.assert_allclose(found.known, expected.detach().numpy(), rtol=1e-12)
    weights = np.arange(1.0, 1 + found.known.size).reshape(found.shape)
    (found * weights).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    assert same.grad is not None
    np.testing.assert_allclose(x.known_gradient, same.grad.numpy(), rtol=1e-12)


def test_slope_of_abs_at_its_kink():
    points = [0.0, -0.0, 2.0, -3.0, np.inf, -np.inf]
    x, same = Tensor(points), torch.tensor(points, dtype=torch.float64, requires_grad=True)
    abs(x).sum().backward()
    same.abs().sum().backward()
    assert same.grad is not None
    np.testing.assert_array_equal(x.known_gradient, same.grad.numpy())
    # torch gives 0 here, which hides the error.
    unknown = Tensor(np.nan)
    abs(unknown).backward()
    assert np.isnan(unknown.known_gradient)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(autograd.maximum, torch.maximum), (autograd.minimum, torch.minimum)], ids=["max", "min"]
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_values_that_tie_share_the_gradient(ours, theirs):
    pairs = [([1.0, 2.0, 3.0, -np.inf, np.inf, 0.0], [[2.0, 2.0, 2.0, -np.inf, np.inf, -0.0], [1.0] * 6]), (2.0, [2.0, 1.0])]
    for left, right in pairs:
        a, b = Tensor(left), Tensor(right)
        same_a, same_b = (torch.tensor(side, dtype=torch.float64, requires_grad=True) for side in (left, right))
        weights = np.arange(1.0, 1 + b.known.size).reshape(b.shape)
        found, expected = ours(a, b), theirs(same_a, same_b)
        np.testing.assert_array_equal(found.known, expected.detach().numpy())
        (found * weights).sum().backward()
        (expected * torch.tensor(weights)).sum().backward()
        for tensor, same in ((a, same_a), (b, same_b)):
            assert same.grad is not None
            np.testing.assert_array_equal(tensor.known_gradient, same.grad.numpy())
    three = [Tensor(1.0) for _ in range(3)]
    ours(*three).backward()
    assert [tensor.gradient for tensor in three] == [1 / 3] * 3


@pytest.mark.filterwarnings("ignore:invalid value")
def test_empty_tensors():
    x = Tensor(np.zeros((0, 3)))
    assert x.mean(1).shape == (0,)
    assert np.isnan(x.mean().known)
    assert x.sum().item() == 0
    assert autograd.embedding(Tensor(np.ones((4, 2))), []).shape == (0, 2)


def test_gather_reads_up_to_its_index():
    a, same = Tensor(np.arange(12.0).reshape(4, 3)), torch.arange(12.0).reshape(4, 3).double().requires_grad_()
    for axis, index in ((1, [[0, 2, 1]]), (0, [[3, 1]]), (1, [[0], [2]]), (-2, [[1, 1, 1], [0, 0, 0]])):
        found, expected = autograd.gather(a, index, axis), same.gather(axis, torch.tensor(index))
        assert np.array_equal(found.known, expected.detach().numpy())
        found.sum().backward()
        same.grad = None
        expected.sum().backward()
        assert same.grad is not None
        assert np.array_equal(a.known_gradient, same.grad.numpy())


A = Tensor(np.ones((2, 3, 5)))


@pytest.mark.parametrize(
    "formula",
    [
        lambda: autograd.gather(Tensor(np.ones((1, 2))), [[0], [0], [0]], 1),
        lambda: autograd.gather(Tensor(np.ones((2, 2))), [0, 1], 1),
        lambda: autograd.gather(Tensor(np.ones((2, 2))), [[0, 5]], 1),
        lambda: autograd.embedding(Tensor(np.ones((2, 2))), [True, False]),
        lambda: autograd.embedding(Tensor(np.ones((2, 2))), [0.5]),
        lambda: autograd.embedding(Tensor(np.ones((2, 2))), [2]),
        lambda: autograd.conv1d(A, np.ones((4, 1, 2)), np.ones(4)),
        lambda: autograd.conv1d(A, np.ones((4, 3, 2)), np.ones(1)),
        lambda: autograd.conv1d(A, np.ones((4, 3, 9)), np.ones(4)),
        lambda: autograd.conv1d(A, np.ones((4, 3, 2)), np.ones(4), stride=0),
        lambda: autograd.concat([A, Tensor(1.0)]),
        lambda: autograd.concat([]),
        lambda: A.reshape(7),
        lambda: A.sum(axis=3),
        lambda: A[5],
        lambda: Tensor(1.0) @ A,
        lambda: autograd.dropout(A, np.ones(2), 1.0),
    ],
)
def test_mismatched_arguments_are_refused_at_once(formula):
    with pytest.raises(autograd.GraphError):
        formula()

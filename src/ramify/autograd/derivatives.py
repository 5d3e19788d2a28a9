"""Whole Jacobians, and gradient checks by finite differences. Both are for inspection and tests; training needs neither."""

from collections.abc import Callable, Sequence

import numpy as np

from ramify.autograd.graph import Graph
from ramify.autograd.tensor import Tensor, no_grad
from ramify.autograd.values import Array, full_like


def jacobian(output: Tensor, of: Tensor) -> Array:
    """∂output/∂of, of shape output.shape + of.shape, by one backward pass per element of the output.

    The gradients of all nodes in the graph are reset to None.
    """
    graph = Graph(output, inputs=[of])
    value = output.known
    rows = np.empty((value.size, *of.shape), dtype=of.known.dtype)
    for element in range(value.size):
        z = full_like(value, 0)
        z.flat[element] = full_like(value, 1).flat[0]
        for _ in graph.backward_steps(z=z):
            pass
        rows[element] = of.gradient
    for node in graph.nodes:
        node.gradient = None
    return rows.reshape(value.shape + of.shape)


def local_jacobian(node: Tensor, slot: int) -> Array:
    """∂f/∂(parent number `slot`) of the node's own function, the other parents held fixed: the derivative on that arc."""
    assert node.function is not None
    value, parents = node.known, [parent.known for parent in node.parents]
    with no_grad():
        leaves = [Tensor(parent) for parent in parents]
    copy = Tensor(value)
    copy.function, copy.parents = node.function, tuple(leaves)
    return jacobian(copy, leaves[slot])


def differences(function: Callable[..., Tensor], values: Sequence[Array], step: float = 1e-6) -> list[Array]:
    """Central differences (f(x + h) − f(x − h)) / 2h of a scalar function, for every element of every input.

    The step h is `step` times the element's size, but at least `step`.
    """
    results = []
    for number, value in enumerate(values):
        slopes = np.zeros_like(value, dtype=np.float64)
        for index in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = np.array(value, dtype=np.float64)
                # A step in proportion to the number stays well above float64's rounding.
                size = step * max(1.0, abs(float(value[index])))
                moved[index] += sign * size
                with no_grad():
                    ends.append(float(function(*[*values[:number], moved, *values[number + 1 :]]).item()))
            slopes[index] = (ends[0] - ends[1]) / (2 * size)
        results.append(slopes)
    return results


def gradient_error(function: Callable[..., Tensor], *values: Array, step: float = 1e-6) -> float:
    """The largest difference between a gradient and central differences, relative to the input's steepest slope.

    Below 1e-6 the backward pass is right. At a kink, such as relu's at 0, the figure has no meaning. `function` accepts
    tensors as well as arrays and returns a scalar tensor.
    """
    leaves = [Tensor(value) for value in values]
    output = function(*leaves)
    output.backward()
    # The differences of a nearly constant function are rounding errors.
    min_scale = 1e-3 * abs(float(output.item())) + np.finfo(np.float64).tiny
    worst = 0.0
    for leaf, slope in zip(leaves, differences(function, [leaf.known for leaf in leaves], step), strict=True):
        gradient = np.zeros_like(slope) if leaf.gradient is None else leaf.gradient
        scale = max(min_scale, float(np.abs(slope).max(initial=0.0)), float(np.abs(gradient).max(initial=0.0)))
        worst = max(worst, float(np.abs(gradient - slope).max(initial=0.0)) / scale)
    return worst

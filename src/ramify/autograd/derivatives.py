"""Whole Jacobians, and gradients checked against differences: for looking and testing, not for learning."""

from collections.abc import Callable, Sequence

import numpy as np

from ramify.autograd.graph import Graph
from ramify.autograd.tensor import Tensor, no_grad
from ramify.autograd.values import Array, full_like


def jacobian(output: Tensor, of: Tensor) -> Array:
    """∂output/∂of, of shape output.shape + of.shape: one backward pass for every element of the output.

    The gradients that the graph's nodes have are lost.
    """
    graph = Graph(output, inputs=[of])
    value = output.known
    rows = np.empty((value.size, *of.shape), dtype=of.known.dtype)
    for place in range(value.size):
        z = full_like(value, 0)
        z.flat[place] = full_like(value, 1).flat[0]
        for _ in graph.backward_steps(z=z):
            pass
        rows[place] = of.gradient
    for node in graph.nodes:
        node.gradient = None
    return rows.reshape(value.shape + of.shape)


def local_jacobian(node: Tensor, slot: int) -> Array:
    """∂f/∂(its parent number `slot`) of the node's own function alone, all else held: what stands on that arc."""
    assert node.function is not None
    value, parents = node.known, [parent.known for parent in node.parents]
    with no_grad():
        leaves = [Tensor(parent) for parent in parents]
    again = Tensor(value)
    again.function, again.parents = node.function, tuple(leaves)
    return jacobian(again, leaves[slot])


def differences(function: Callable[..., Tensor], values: Sequence[Array], step: float = 1e-6) -> list[Array]:
    """Central differences (f(x + h) − f(x − h)) / 2h of a scalar function, by every element of every input."""
    found = []
    for number, value in enumerate(values):
        slopes = np.zeros_like(value, dtype=np.float64)
        for place in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = np.array(value, dtype=np.float64)
                # A step that grows with the number keeps its share of what float64 can tell apart.
                size = step * max(1.0, abs(float(value[place])))
                moved[place] += sign * size
                with no_grad():
                    ends.append(float(function(*[*values[:number], moved, *values[number + 1 :]]).item()))
            slopes[place] = (ends[0] - ends[1]) / (2 * size)
        found.append(slopes)
    return found


def gradient_error(function: Callable[..., Tensor], *values: Array, step: float = 1e-6) -> float:
    """The largest distance of a gradient from central differences, as a share of the input's steepest slope. Below 1e-6 a
    backward pass is right; it means nothing at a kink, such as relu's at 0.

    `function` takes tensors, or arrays, and gives a scalar.
    """
    leaves = [Tensor(value) for value in values]
    output = function(*leaves)
    output.backward()
    # Differences of a function that hardly moves are rounding.
    least = 1e-3 * abs(float(output.item())) + np.finfo(np.float64).tiny
    worst = 0.0
    for leaf, slope in zip(leaves, differences(function, [leaf.known for leaf in leaves], step), strict=True):
        gradient = np.zeros_like(slope) if leaf.gradient is None else leaf.gradient
        scale = max(least, float(np.abs(slope).max(initial=0.0)), float(np.abs(gradient).max(initial=0.0)))
        worst = max(worst, float(np.abs(gradient - slope).max(initial=0.0)) / scale)
    return worst

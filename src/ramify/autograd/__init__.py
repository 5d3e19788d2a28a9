"""A small backpropagation engine on NumPy: a computation graph, its two passes, and the layers to train a model.

x, y = Tensor(1.0, name="x"), Tensor(2.0, name="y")
f = (x + y) * x * y**2
f.backward()
x.gradient  # 16
"""

from ramify.autograd.derivatives import differences, gradient_error, jacobian, local_jacobian
from ramify.autograd.errors import GraphError
from ramify.autograd.graph import Graph
from ramify.autograd.order import check_order, children, count_orders, topological_order, topological_orders
from ramify.autograd.slot_node import SlotNode
from ramify.autograd.tensor import (
    Tensor,
    apply,
    concat,
    conv1d,
    cos,
    dropout,
    embedding,
    exp,
    gather,
    gelu,
    layernorm,
    log,
    logsumexp,
    maximum,
    minimum,
    no_grad,
    relu,
    sigmoid,
    sin,
    softmax,
    sqrt,
    tanh,
    where,
)

__all__ = [
    "Graph",
    "GraphError",
    "SlotNode",
    "Tensor",
    "apply",
    "check_order",
    "children",
    "concat",
    "conv1d",
    "cos",
    "count_orders",
    "differences",
    "dropout",
    "embedding",
    "exp",
    "gather",
    "gelu",
    "gradient_error",
    "jacobian",
    "layernorm",
    "local_jacobian",
    "log",
    "logsumexp",
    "maximum",
    "minimum",
    "no_grad",
    "relu",
    "sigmoid",
    "sin",
    "softmax",
    "sqrt",
    "tanh",
    "topological_order",
    "topological_orders",
    "where",
]

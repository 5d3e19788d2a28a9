"""`ramify backprop`: show the values and gradients of a formula, node by node."""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.shared import Json, check_beside

if TYPE_CHECKING:
    from collections.abc import Callable

    from ramify.autograd import Graph, Tensor
    from ramify.autograd.values import Array

MAX_DIGITS = 10_000
GUARDS = (10, 50, 200, 1000, 5000)
"""Numbers of additional digits, tried in turn until the shown digits no longer change."""
MAX_ORDERS = 1000


def backprop(
    expression: Annotated[str, typer.Argument(help='The formula, such as "(x + y) * x * y**2" or "s = x + y; s * s".')],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE…", help="The values of the inputs: numbers or nested lists, such as x=1 w=[[1,2],[3,4]]."
        ),
    ] = None,
    json_: Json = False,
    decimal: Annotated[
        int | None,
        typer.Option(
            "--decimal",
            metavar="DIGITS",
            min=1,
            max=MAX_DIGITS,
            help="Compute with decimal numbers of unlimited range and show this many digits. JSON holds them as strings.",
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Also draw the graph as an SVG file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page that shows both passes step by step.")] = None,
    orders: Annotated[
        bool, typer.Option("--orders", help=f"Also print the topological orders (at most {MAX_ORDERS:,}).")
    ] = False,
) -> None:
    """Compute the values and gradients of a formula in a forward and a backward pass over its graph.

    A formula may hold + - * / ** @, parentheses, and the functions exp, log, sqrt, tanh, sigmoid, relu, gelu, gelu_tanh,
    softmax, logsumexp, sum, mean, max and transpose. A part with a name is computed once: "s = x + y; s * s".

    Example: ramify backprop "(x + y) * x * y**2" x=1 y=2

    Example: ramify backprop "log(exp(2*x**3 + 10))" x=42 --decimal 30

    Example: ramify backprop "sum(softmax(w @ x) * t)" x=[1,2] w=[[1,0],[0,1]] t=[0,1] --html passes.html
    """
    import numpy as np

    from ramify.autograd import GraphError
    from ramify.autograd.drawing import as_page, as_svg
    from ramify.autograd.values import decimals
    from ramify.errors import RamifyError
    from ramify.files import write_text

    for path, option in ((svg, "--svg"), (html, "--html")):
        check_beside(path, option)
    digits = decimal or 12
    try:
        # Non-finite numbers are reported below.
        with np.errstate(all="ignore"):
            graph = _exact(expression, values or [], decimal) if decimal else _floats(expression, values or [])
            # A page runs both passes again.
            with decimals(digits):
                if svg:
                    write_text(svg, as_svg(graph, expression))
                if html:
                    write_text(html, as_page(graph, expression))
    except GraphError as error:
        raise RamifyError(str(error)) from None
    listed = _orders(graph) if orders else None
    if json_:
        print(json.dumps(_as_json(graph) | ({} if listed is None else {"orders": listed})))
    else:
        print("\n".join([_table(graph, expression, digits), *(" ".join(order) for order in listed or [])]))
    for node, what in graph.not_finite():
        print(_not_finite(node, what), file=sys.stderr)


def _floats(expression: str, values: list[str]) -> "Graph[Tensor]":
    from ramify.autograd.expression import read

    graph = read(expression, _given(values, float))
    graph.backward()
    return graph


def _exact(expression: str, values: list[str], digits: int) -> "Graph[Tensor]":
    """Compute with more and more digits until the first `digits` of them no longer change, and round to these.

    Raises:
        GraphError: they still change with the most digits.
    """
    from ramify.autograd import GraphError
    from ramify.autograd.expression import read
    from ramify.autograd.values import decimals, read_decimal, rounded

    before = None
    for guard in GUARDS:
        with decimals(digits + guard):
            graph = read(expression, _given(values, read_decimal), read_decimal)
            graph.backward()
        for node in graph.nodes:
            node.value, node.gradient = rounded(node.known, digits), rounded(node.known_gradient, digits)
        rows = [array.astype(str).tolist() for node in graph.nodes for array in (node.known, node.known_gradient)]
        if rows == before:
            return graph
        before = rows
    raise GraphError(
        f"--decimal {digits}: the digits still change between {GUARDS[-2]} and {GUARDS[-1]} additional ones. Raise --decimal."
    )


def _given(values: list[str], number: "Callable[[str], Any]") -> dict[str, Any]:
    from ramify.autograd import GraphError
    from ramify.autograd.expression import value_of

    result = {}
    for text in values:
        name, is_given, value = text.partition("=")
        if not is_given or not name.strip().isidentifier():
            raise GraphError(f"an input is given as NAME=VALUE, not {text!r}.")
        if name.strip() in result:
            raise GraphError(f"{name.strip()!r} is given twice.")
        if not value.strip():
            raise GraphError(f"{name.strip()!r} has no value. Give it as {name.strip()}=NUMBER.")
        result[name.strip()] = value_of(value, number)
    return result


def _as_json(graph: "Graph[Tensor]") -> dict[str, Any]:
    return {
        "value": _number(graph.output.value),
        "gradients": {node.name: _number(node.gradient) for node in graph.inputs},
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "value": _number(node.value),
                "gradient": _number(node.gradient),
                "parents": [parent.name for parent in node.parents],
            }
            for node in graph.nodes
        ],
    }


def _number(value: "Array | None") -> Any:
    """Numbers for JSON. Decimals are text, because JSON readers would turn them into floats."""
    from ramify.autograd.values import is_decimal

    assert value is not None
    return (value.astype(str) if is_decimal(value) else value).tolist()


def _table(graph: "Graph[Tensor]", expression: str, digits: int) -> str:
    from ramify.autograd.drawing import shown
    from ramify.autograd.expression import write

    rows = [("node", "from", "value", "gradient")]
    for node in graph.nodes:
        origin = "a constant" if node.op == "const" else write(node)
        rows.append((node.name, origin, shown(node.value, digits), shown(node.gradient, digits)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{name:<{widths[0]}}  {origin:<{widths[1]}}  {value:>{widths[2]}}  {gradient:>{widths[3]}}"
        for name, origin, value, gradient in rows
    ]
    return "\n".join([f"{expression} = {shown(graph.output.value, digits)}", "", *lines])


def _not_finite(node: "Tensor", what: str) -> str:
    from ramify.autograd.drawing import shown
    from ramify.autograd.expression import write

    if what == "gradient":
        return f"the gradient of {node.name} is {_culprit(node.known_gradient)}"
    if not node.function:
        return f"{node.name} is given as {_culprit(node.known)}"
    given = ", ".join(f"{parent.name} = {shown(parent.value)}" for parent in dict.fromkeys(node.parents))
    return f"{node.name} = {write(node)} is {_culprit(node.known)} (with {given})"


def _culprit(value: "Array") -> str:
    """The first non-finite number and its index."""
    import numpy as np

    from ramify.autograd.values import is_finite

    indices = (index for index in np.ndindex(value.shape) if not is_finite(value[index].reshape(()) if value.shape else value))
    index = next(indices)
    where = f" at {list(index)}" if index else ""
    return f"{float(value[index])}{where}"


def _orders(graph: "Graph[Tensor]") -> list[list[str]]:
    from ramify.autograd import topological_orders

    listed = [[node.name for node in order] for order in islice(topological_orders(graph.parents), MAX_ORDERS + 1)]
    if len(listed) > MAX_ORDERS:
        print(f"there are more than {MAX_ORDERS:,} orders; only the first {MAX_ORDERS:,} are listed", file=sys.stderr)
    return listed[:MAX_ORDERS]

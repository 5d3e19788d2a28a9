"""`ramify backprop`: a formula's values and gradients, node by node."""

import json
import sys
from contextlib import nullcontext
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.shared import Json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ramify.autograd import Graph, Tensor
    from ramify.autograd.values import Array

MOST_DIGITS = 10_000
GUARD = 10
"""Digits that are computed with and not shown: the last one shown is then right."""
MOST_ORDERS = 1000


def backprop(
    expression: Annotated[str, typer.Argument(help='Such as "(x + y) * x * y**2", or "s = x + y; s * s".')],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE…", help="Numbers, or lists of them: x=1 w=[[1,2],[3,4]].")
    ] = None,
    json_: Json = False,
    decimal: Annotated[
        int | None,
        typer.Option(
            "--decimal", metavar="DIGITS", min=1, max=MOST_DIGITS, help="Compute with so many decimal digits, of any size."
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the graph into this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="A page to go through both passes step by step.")] = None,
    orders: Annotated[
        bool, typer.Option("--orders", help=f"Print the topological orders, too (at most {MOST_ORDERS:,}).")
    ] = False,
) -> None:
    """Values forward and gradients backward through the graph of an expression, in topological order.

    It knows + - * / ** @, brackets, and exp log sqrt tanh sigmoid relu gelu gelu_tanh softmax logsumexp sum mean max transpose.
    Parts may be named, as in "s = x + y; s * s".

    Example: ramify backprop "(x + y) * x * y**2" x=1 y=2

    Example: ramify backprop "log(exp(2*x**3 + 10))" x=42 --decimal 30

    Example: ramify backprop "sum(softmax(w @ x) * t)" x=[1,2] w=[[1,0],[0,1]] t=[0,1] --html passes.html
    """
    import numpy as np

    from ramify.autograd import GraphError
    from ramify.autograd.drawing import as_page, as_svg
    from ramify.autograd.expression import read
    from ramify.autograd.values import decimals
    from ramify.errors import RamifyError
    from ramify.files import write_text

    try:
        # What is not finite is named below.
        with np.errstate(all="ignore"), decimals(decimal + GUARD) if decimal else nullcontext():
            number = Decimal if decimal else float
            graph = read(expression, _given(values or [], number), number)
            graph.backward()
            print(json.dumps(_as_json(graph, decimal or 0)) if json_ else _table(graph, expression, decimal or 12))
            for node, what in graph.not_finite():
                print(_overflow(node, what), file=sys.stderr)
            if orders:
                _print_orders(graph)
            if svg:
                write_text(svg, as_svg(graph, expression))
            if html:
                write_text(html, as_page(graph, expression))
    except GraphError as error:
        raise RamifyError(str(error)) from None


def _given(values: list[str], number: "Callable[[str], Any]") -> dict[str, Any]:
    from ramify.autograd import GraphError
    from ramify.autograd.expression import value_of

    found = {}
    for text in values:
        name, is_given, value = text.partition("=")
        if not is_given or not name.strip().isidentifier():
            raise GraphError(f"values are given as NAME=VALUE, not {text!r}.")
        if name.strip() in found:
            raise GraphError(f"{name.strip()!r} is given twice.")
        if not value.strip():
            raise GraphError(f"{name.strip()!r} has no value: give it as {name.strip()}=NUMBER.")
        found[name.strip()] = value_of(value, number)
    return found


def _as_json(graph: "Graph", digits: int) -> dict[str, Any]:
    number = partial(_number, digits=digits)
    return {
        "value": number(graph.output.value),
        "gradients": {node.name: number(node.gradient) for node in graph.inputs if node.op == "input"},
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "value": number(node.value),
                "gradient": number(node.gradient),
                "parents": [parent.name for parent in node.parents],
            }
            for node in graph.nodes
        ],
    }


def _number(value: "Array | None", digits: int) -> Any:
    """For JSON; Decimals as text, because its readers would make floats of them."""
    from ramify.autograd.values import is_decimal, rounded

    assert value is not None
    return (rounded(value, digits).astype(str) if is_decimal(value) else value).tolist()


def _table(graph: "Graph", expression: str, digits: int) -> str:
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


def _overflow(node: "Tensor", what: str) -> str:
    from ramify.autograd.drawing import shown
    from ramify.autograd.expression import write

    if what == "gradient":
        return f"the gradient of {node.name} is {shown(node.gradient)}"
    given = ", ".join(f"{parent.name} = {shown(parent.value)}" for parent in dict.fromkeys(node.parents))
    return f"{node.name} = {write(node)} is {shown(node.value)}" + (f" (with {given})" if given else "")


def _print_orders(graph: "Graph") -> None:
    from ramify.autograd import topological_orders

    for count, order in enumerate(topological_orders(graph.parents)):
        if count == MOST_ORDERS:
            print(f"and more: {MOST_ORDERS:,} are shown", file=sys.stderr)
            return
        print(" ".join(node.name for node in order))

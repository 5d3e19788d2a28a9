"""`ramify backprop`: show the values and gradients of a formula, node by node."""

import json
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.shared import Json, check_beside, draw_page, file_kind, tell
from ramify.errors import RamifyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ramify.autograd import Graph, Tensor
    from ramify.autograd.values import Array

MAX_DIGITS = 10_000
DIGITS = 12
"""Digits that are shown without `--decimal`."""
GUARDS = (10, 50, 200, 1000, 5000)
"""Numbers of additional digits, tried in turn until the shown digits no longer change."""
MAX_ORDERS = 1000


Formula = Annotated[
    str | None,
    typer.Argument(help='The formula, such as "(x+y)xy^2" or "s = x + y; s * s".', show_default=False),
]

Values = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE…", help="The values of the inputs: numbers or nested lists, such as x=1 w=[[1,2],[3,4]]."
    ),
]

Decimal = Annotated[
    int | None,
    typer.Option(
        "--decimal",
        metavar="DIGITS",
        min=1,
        max=MAX_DIGITS,
        help="Compute with decimal numbers of unlimited range and show this many digits. JSON holds them as strings.",
    ),
]

Out = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        help="Draw the graph into this file: a picture (.svg), or a page that shows both passes step by step (.html); "
        "repeatable. Default: the page backprop.html; with --json, none.",
    ),
]

Orders = Annotated[bool, typer.Option("--orders", help=f"Also print the topological orders (at most {MAX_ORDERS:,}).")]

Seed = Annotated[
    int | None,
    typer.Option(
        min=0, help="Draw the masks of dropout from this seed. Without it, dropout returns its value, as in evaluation."
    ),
]

Arcs = Annotated[
    str | None,
    typer.Option(
        metavar="PARENT-CHILD,…",
        help="Instead of a formula: the arcs of a graph, to print its inputs, parents, children and topological orders.",
    ),
]


def backprop(
    expression: Formula = None,
    values: Values = None,
    as_json: Json = False,
    decimal: Decimal = None,
    out: Out = None,
    orders: Orders = False,
    seed: Seed = None,
    arcs: Arcs = None,
) -> None:
    """Compute the values and gradients of a formula in a forward and a backward pass over its graph.

    A formula may hold + - * / ^ ** @, brackets, products without a sign (2x, xy, x(y + 1)), and the functions exp, log, sqrt,
    sin, cos, tanh, abs, sigmoid, relu, gelu, gelu_tanh, softmax, logsumexp, sum, mean, max, min, transpose and dropout. A part
    with a name is computed once: "s = x + y; s * s".

    Example: ramify backprop "(x+y)xy^2" x=1 y=2

    Example: ramify backprop "log(exp(2x^3 + 10))" x=42 --decimal 30

    Example: ramify backprop "sum(softmax(w @ x) * t)" x=[1,2] w=[[1,0],[0,1]] t=[0,1] --out passes.html

    Example: ramify backprop --arcs "1-3,1-5,2-4,3-4,4-6,5-6"
    """
    import numpy as np

    from ramify.autograd import GraphError
    from ramify.autograd.drawing import as_page

    if arcs is not None:
        _check_alone({"a formula": expression, "--decimal": decimal, "--out": out or None, "--seed": seed})
        return _print_graph(arcs, as_json)
    if expression is None:
        raise RamifyError('backprop needs a formula, such as "(x+y)xy^2" x=1 y=2, or the arcs of a graph: --arcs 1-3,2-3.')
    digits, given, files = decimal or DIGITS, values or [], _drawings(out or [])
    try:
        # Non-finite numbers are reported below.
        with np.errstate(all="ignore"):
            graph = _floats(expression, given, seed) if decimal is None else _exact(expression, given, seed, decimal)
    except GraphError as error:
        raise RamifyError(str(error)) from None
    for path, form in files.items():
        _draw(graph, expression, digits, form, path)
        tell(f"drawn: {path}")
    if seed is not None and all(node.op != "dropout" for node in graph.nodes):
        raise RamifyError(f"--seed {seed} draws the masks of dropout, which the formula does not use. Remove --seed.")
    listed = _orders({node.name: [parent.name for parent in node.parents] for node in graph.nodes})[0] if orders else None
    if as_json:
        print(json.dumps(_as_json(graph) | ({} if listed is None else {"orders": listed})))
    else:
        print("\n".join([_table(graph, expression, digits), *(" ".join(order) for order in listed or [])]))
    if not (files or as_json):
        draw_page(None, None, "backprop", partial(_draw, graph, expression, digits, as_page), needed=False)
    _report_not_finite(graph, lambda: _exact_graph(expression, given, seed, REMEDY_DIGITS))


def _check_alone(others: "Mapping[str, object]") -> None:
    """Raise if `--arcs` stands beside an option of formulas."""
    for name, value in others.items():
        if value is not None:
            raise RamifyError(f"--arcs describes a graph without functions, so {name} has no meaning. Remove one of the two.")


def _drawings(out: "Sequence[Path]") -> "dict[Path, Callable[[Graph[Tensor], str], str]]":
    """The function that draws each file of `--out`."""
    from ramify.autograd.drawing import as_page, as_svg

    for path in out:
        check_beside(path, "--out")
    return {path: file_kind(path, {".svg": as_svg, ".html": as_page}) for path in out}


def _draw(
    graph: "Graph[Tensor]", expression: str, digits: int, form: "Callable[[Graph[Tensor], str], str]", path: Path
) -> None:
    import numpy as np

    from ramify.autograd import GraphError
    from ramify.autograd.values import decimals
    from ramify.files import write_text

    try:
        with np.errstate(all="ignore"), decimals(digits):
            write_text(path, form(graph, expression))
    except GraphError as error:
        raise RamifyError(str(error)) from None


REMEDY_DIGITS = 18


def _report_not_finite(graph: "Graph[Tensor]", exactly: "Callable[[], Graph[Tensor]]") -> None:
    """Name the nodes where infinities and NaNs begin, and the remedy if decimals hold one of these numbers.

    `exactly` computes the same graph with decimals.
    """
    import numpy as np

    from ramify.autograd import GraphError
    from ramify.autograd.values import is_decimal, is_finite

    not_finite = graph.not_finite()
    for node, what in not_finite:
        print(_not_finite(node, what), file=sys.stderr)
    if not not_finite or is_decimal(graph.output.known):
        return
    try:
        with np.errstate(all="ignore"):
            exact = {node.name: node for node in exactly().nodes}
    except GraphError:
        # A function or a size that decimals do not support.
        return
    if any(
        is_finite(exact[node.name].known if what == "value" else exact[node.name].known_gradient) for node, what in not_finite
    ):
        print(
            f"The range of float64 is too small for this formula. Add --decimal {REMEDY_DIGITS} to compute with decimals of "
            "unlimited range.",
            file=sys.stderr,
        )


def _floats(expression: str, values: list[str], seed: int | None) -> "Graph[Tensor]":
    from ramify.autograd.expression import read

    graph = read(expression, _given(values, float), seed=seed)
    graph.backward()
    return graph


def _exact_graph(expression: str, values: list[str], seed: int | None, digits: int) -> "Graph[Tensor]":
    from ramify.autograd.expression import read
    from ramify.autograd.values import decimals, read_decimal

    with decimals(digits):
        graph = read(expression, _given(values, read_decimal), read_decimal, seed=seed)
        graph.backward()
    return graph


def _exact(expression: str, values: list[str], seed: int | None, digits: int) -> "Graph[Tensor]":
    """Compute with more and more digits until the first `digits` of them no longer change, and round to these.

    Raises:
        GraphError: they still change with the most digits.
    """
    from ramify.autograd import GraphError
    from ramify.autograd.values import rounded

    before = None
    for guard in GUARDS:
        graph = _exact_graph(expression, values, seed, digits + guard)
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


def _orders(parents: "Mapping[str, Sequence[str]]") -> tuple[list[list[str]], int | None]:
    """The first topological orders, and the number of all if it can be counted."""
    from ramify.autograd import count_orders, topological_orders

    listed = list(islice(topological_orders(parents), MAX_ORDERS + 1))
    if len(listed) <= MAX_ORDERS:
        return listed, len(listed)
    count = count_orders(parents)
    exactly = f", {count:,} in all" if count else ""
    print(f"there are more than {MAX_ORDERS:,} orders{exactly}; only the first {MAX_ORDERS:,} are listed", file=sys.stderr)
    return listed[:MAX_ORDERS], count


# --- graphs without functions -------------------------------------------------------------------------------------------------


def _print_graph(arcs: str, json_: bool) -> None:
    from ramify.autograd import GraphError, children
    from ramify.autograd.arcs import read_arcs
    from ramify.errors import RamifyError

    try:
        pa = read_arcs(arcs)
        ch = children(pa)
        orders, count = _orders(pa)
    except GraphError as error:
        raise RamifyError(f"--arcs: {error}") from None
    inputs = [node for node in pa if not pa[node]]
    others = [node for node in pa if pa[node]]
    if json_:
        graph = {"V": list(pa), "V_I": inputs, "V_N": others, "pa": pa, "ch": ch}
        print(json.dumps(graph | {"orders": orders, "order_count": count}))
        return
    rows = [("i", "pa(i)", "ch(i)"), *((node, " ".join(pa[node]), " ".join(ch[node])) for node in pa)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    number = f"{len(orders)} topological order{'s' * (len(orders) > 1)}"
    if len(orders) == MAX_ORDERS and count != MAX_ORDERS:
        number = f"the first {len(orders):,} of {f'{count:,}' if count else 'many'} topological orders"
    lines = [
        *(f"{name:<3}  {' '.join(nodes) or '–'}" for name, nodes in (("V", list(pa)), ("V_I", inputs), ("V_N", others))),
        "",
        *("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
        "",
        number,
        *map(" ".join, orders),
    ]
    print("\n".join(lines))

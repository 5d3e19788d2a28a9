"""Parse a formula, such as `(x+y)xy^2`, into a graph. Only the functions and operators listed here are evaluated.

s = x + y; s * s        parts may have names; the last formula is the output
sum(softmax(x) * y)     values may be arrays
max(x, y, 0)            the largest of several values; max(x) is the largest element of one
dropout(x, 0.1)         with a mask from a seed; dropout(x, m, 0.1) with the mask m
a @ b                   matrix product
2x, xy, x(y + 1)        products without a sign
x^2, x**2               powers

A name is read as a whole if it is an input, a named part or, before a bracket, a function. Any other name is a product of
inputs and named parts. A product without a sign binds like one with a sign. It is refused where it could be read in two ways:
after / or @, as in 1/2x, and after an exponent that is a name, as in 2^xy. The sign of -x^2 comes last: it is -(x^2).
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ramify.autograd import functions as f
from ramify.autograd.errors import GraphError
from ramify.autograd.graph import Graph
from ramify.autograd.order import topological_order
from ramify.autograd.tensor import Tensor, apply
from ramify.autograd.values import as_array, is_decimal

MAX_LENGTH = 1_000_000
"""Longest formula, in characters."""

MAX_ELEMENTS = 10_000_000
"""Largest value, in numbers."""
MAX_DECIMALS = 100_000
"""Largest value, in decimal numbers."""
MAX_PRODUCT = 100
"""Longest product of names without signs, such as xyz, in characters."""

MOST_EXPONENT_DIGITS = 9
"""A longer integer exponent becomes a constant node, like any other number."""

FUNCTIONS: dict[str, Callable[[], f.Function]] = {
    "exp": f.Exp,
    "log": f.Log,
    "sqrt": f.Sqrt,
    "sin": f.Sin,
    "cos": f.Cos,
    "tanh": f.Tanh,
    "sigmoid": f.Sigmoid,
    "abs": f.Abs,
    "relu": f.ReLU,
    "gelu": f.GELU,
    "gelu_tanh": lambda: f.GELU(approximate=True),
    "softmax": f.Softmax,
    "logsumexp": lambda: f.LogSumExp(),
    "sum": lambda: f.Sum(),
    "mean": lambda: f.Mean(),
    "max": lambda: f.Max(),
    "min": lambda: f.Min(),
    "transpose": lambda: f.Transpose(),
}
FUNCTIONS_OF_SEVERAL: dict[str, Callable[[], f.Function]] = {
    "max": lambda: f.ExtremeOf(f.Max),
    "min": lambda: f.ExtremeOf(f.Min),
}
"""Functions of two or more values."""
DROPOUT = "dropout"
KNOWN = (*FUNCTIONS, DROPOUT)
POWERS = ("**", "^")

OPERATORS: dict[str, tuple[int, Callable[[], f.Function]]] = {
    "+": (1, f.Add),
    "-": (1, f.Subtract),
    "*": (2, f.Multiply),
    "/": (2, f.Divide),
    "@": (2, f.MatMul),
    "**": (4, f.Power),
    "^": (4, f.Power),
}
"""Binding strength of each operator. A sign, as in -x**2, has strength 3."""
SIGN = "a sign"
BINDS = {name: strength for name, (strength, _) in OPERATORS.items()} | {SIGN: 3}

TOKEN = re.compile(
    r"\s*+(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|[-+*/^@();=,])|(?P<other>\S))"
)


@dataclass(frozen=True)
class DropoutCall:
    """The arguments of dropout after the value, as text."""

    p: str
    mask: str
    """Empty for a mask from a seed."""


@dataclass(eq=False)
class Part:
    """A future node: an input or a named part (`name`), a constant (`number`), or a function of other parts."""

    at: int
    """Index in the text."""
    name: str = ""
    number: str = ""
    function: f.Function | None = None
    dropout: DropoutCall | None = None
    """Its function needs the shape of its parent."""
    parents: "list[Part]" = field(default_factory=list)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return f"{_shortened(self.text)} at position {self.at + 1}"


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def tokens(text: str) -> list[Token]:
    if len(text) > MAX_LENGTH:
        raise GraphError(f"the formula has {len(text):,} characters. The limit is {MAX_LENGTH:,}. Build the graph in Python.")
    result = []
    for match in TOKEN.finditer(text.rstrip()):
        kind = match.lastgroup or ""
        token = Token(kind, match.group(kind), match.start(kind))
        if kind == "other" or (kind == "name" and not token.text.isidentifier()):
            raise GraphError(
                f"{token} has no meaning in a formula. Use numbers, names, brackets and + - * / ^ @; write a power as x^2."
            )
        result.append(token)
    return result


# --- names ---------------------------------------------------------------------------------------------------------------


def _opens(formula: Sequence[Token], index: int) -> bool:
    """Whether a bracket opens at this index."""
    return index < len(formula) and formula[index].text == "("


def _split(formula: Sequence[Token], known: Collection[str]) -> Iterator[Token]:
    """Replace names that are products of known names, such as xy, by their factors.

    Raises:
        GraphError: a name can be split in two ways.
    """
    for index, token in enumerate(formula):
        opens = _opens(formula, index + 1)
        is_whole = token.kind != "name" or token.text in known or token.text in KNOWN
        products = [] if is_whole else _products(token.text, known, KNOWN if opens else ())
        if len(products) > 1:
            first, second = ("*".join(factors) for factors in products)
            raise GraphError(f"{token} can be read as {first} and as {second}. Write the product with *.")
        at = token.at
        for factor in products[0] if products else (token.text,):
            yield Token(token.kind, factor, at)
            at += len(factor)


def _products(text: str, known: Collection[str], functions: Collection[str]) -> list[tuple[str, ...]]:
    """The first two ways to read a name as a product of known names; a function may come last."""
    if len(text) > MAX_PRODUCT:
        return []
    ends_well = [False] * len(text) + [True]
    followers: list[list[int]] = [[] for _ in text]
    for start in reversed(range(len(text))):
        for end in range(start + 1, len(text) + 1):
            factor = text[start:end]
            if ends_well[end] and (factor in known or (end == len(text) and factor in functions)):
                ends_well[start] = True
                followers[start].append(end)
    results: list[tuple[str, ...]] = []
    waiting: list[tuple[int, tuple[str, ...]]] = [(0, ())] if ends_well[0] else []
    while waiting and len(results) < 2:
        start, factors = waiting.pop()
        if start == len(text):
            results.append(factors)
        else:
            waiting += [(end, (*factors, text[start:end])) for end in followers[start]]
    return results


# --- one formula -----------------------------------------------------------------------------------------------------------

EXPECTED = "Write a number, a name, a function or a bracket there."


class _Formula:
    """One parsed formula. Two stacks (Dijkstra's shunting yard) replace recursion, so the depth of brackets has no limit."""

    def __init__(self, formula: Sequence[Token], known: Collection[str], where: str) -> None:
        self.parts: list[Part] = []
        self.done: list[Part] = []
        self.open: list[Token] = []
        self.counts: list[int] = []
        """Number of values of each open function."""
        self.absorbed: set[Part] = set()
        """Constants that belong to a function: exponents and dropout's p."""
        self.known = known
        formula = list(_split(formula, known))
        wants_value = True
        for index, token in enumerate(formula):
            if not wants_value and (token.kind == "name" or token.text == "("):
                self._multiply(token, formula[index - 1])
                wants_value = True
            wants_value = self._value(token, _opens(formula, index + 1)) if wants_value else self._between(token)
        if wants_value:
            raise GraphError(f"a value is missing {f'after {formula[-1]}' if formula else where}. {EXPECTED}")
        while self.open:
            if self.open[-1].text == "(":
                raise GraphError(f"the bracket at position {self.open[-1].at + 1} is never closed. Add ) after its value.")
            self._close()
        (self.root,) = self.done
        self.parts = [part for part in self.parts if part not in self.absorbed]

    def _make(self, part: Part) -> None:
        self.parts.append(part)
        self.done.append(part)

    def _value(self, token: Token, opens: bool) -> bool:
        """Consume a token where a value must begin; return whether a value is still missing.

        `opens`: whether an opening bracket follows the token.
        """
        if token.kind == "number":
            self._make(Part(token.at, number=token.text))
            return False
        if token.kind == "name":
            if not opens or (token.text in self.known and token.text not in KNOWN):
                self._make(Part(token.at, name=token.text))
                return False
            if token.text not in KNOWN:
                product = f"For a product, give it as {_shortened(token.text)[1:-1]}=VALUE."
                raise GraphError(f"{token} is not a function. Known functions: {', '.join(KNOWN)}. {product}")
            self.open.append(token)
            self.counts.append(1)
        elif token.text == "(":
            self.open.append(token)
        elif token.text == "-":
            self.open.append(Token("operator", SIGN, token.at))
        elif token.text != "+":
            raise GraphError(f"a value is missing before {token}. {EXPECTED}")
        return True

    def _between(self, token: Token) -> bool:
        """Consume a token after a complete value; return whether another value must follow."""
        if token.text in (")", ","):
            while self.open and self.open[-1].text != "(":
                self._close()
            of_function = len(self.open) > 1 and self.open[-2].kind == "name"
            if token.text == ",":
                if not of_function:
                    raise GraphError(
                        f"the comma at position {token.at + 1} has no meaning: it is not between a function's values."
                    )
                self.counts[-1] += 1
                return True
            if not self.open:
                raise GraphError(f"the bracket at position {token.at + 1} closes nothing. Remove it, or add ( before it.")
            self.open.pop()
            if of_function:
                self._close()
            return False
        if token.text == "=":
            raise GraphError(f"{token} does not follow a name at the beginning of a part. Write NAME = FORMULA; FORMULA.")
        if token.text not in OPERATORS:
            remedy = "Write a power as x^2, and a product as 2x or x*2."
            raise GraphError(f"an operator is missing before {token}. {remedy}")
        # x ** y ** z is x ** (y ** z); all other operators associate from left to right.
        self._operator(token, BINDS[token.text] + (token.text in POWERS))
        return True

    def _operator(self, token: Token, min_strength: int) -> None:
        """Open an operator after closing those that bind at least so strongly."""
        while self.open and BINDS.get(self.open[-1].text, 0) >= min_strength:
            self._close()
        self.open.append(Token("operator", token.text, token.at))

    def _multiply(self, token: Token, previous: Token) -> None:
        """Open a product without a sign between two values.

        Raises:
            GraphError: the product could be read in two ways.
        """
        for pending in reversed(self.open):
            if pending.text in ("/", "@") or (pending.text in POWERS and previous.kind == "name"):
                raise GraphError(
                    f"the product before {token} can be read in two ways, because {pending} comes before it. "
                    f"Write (a{pending.text}b)c or a{pending.text}(bc)."
                )
            if pending.text not in POWERS and pending.text != SIGN:
                break
        self._operator(Token("operator", "*", token.at), BINDS["*"])

    def _close(self) -> None:
        """Make the part of the operator or function that was opened last; its operands are complete."""
        token = self.open.pop()
        if token.kind == "name":
            self._call(token, self.counts.pop())
            return
        last = self.done.pop()
        if token.text == SIGN:
            if last.number:
                last.number, last.at = f"-{last.number}".removeprefix("--"), token.at
                self.done.append(last)
            else:
                self._make(Part(token.at, function=f.Negate(), parents=[last]))
            return
        first = self.done.pop()
        if token.text in POWERS and last.number.lstrip("-").isdecimal() and len(last.number) <= MOST_EXPONENT_DIGITS:
            self.absorbed.add(last)
            self._make(Part(token.at, function=f.PowerOf(int(last.number)), parents=[first]))
        else:
            self._make(Part(token.at, function=OPERATORS[token.text][1](), parents=[first, last]))

    def _call(self, token: Token, count: int) -> None:
        arguments = self.done[-count:]
        del self.done[-count:]
        if token.text == DROPOUT:
            self._make(self._dropout(token, arguments))
        elif count == 1:
            self._make(Part(token.at, function=FUNCTIONS[token.text](), parents=arguments))
        elif token.text in FUNCTIONS_OF_SEVERAL:
            self._make(Part(token.at, function=FUNCTIONS_OF_SEVERAL[token.text](), parents=arguments))
        else:
            several = " and ".join(FUNCTIONS_OF_SEVERAL)
            raise GraphError(
                f"{token} takes one value, not {count}. Only {several} take several; separate formulas by a semicolon."
            )

    def _dropout(self, token: Token, arguments: Sequence[Part]) -> Part:
        value, *masks, p = arguments if len(arguments) > 1 else (*arguments, Part(token.at))
        if not p.number or len(masks) > 1 or not all(mask.name for mask in masks):
            raise GraphError(
                f"{token} takes a value and the probability to drop, as in dropout(x, 0.1), or an input as mask between them, "
                "as in dropout(x, m, 0.1)."
            )
        self.absorbed.add(p)
        return Part(token.at, dropout=DropoutCall(p.number, masks[0].name if masks else ""), parents=[value])


# --- the graph -------------------------------------------------------------------------------------------------------------


def _parse(text: str, inputs: Collection[str]) -> tuple[dict[str, _Formula], _Formula]:
    """The named parts and the output."""
    parts: list[list[Token]] = [[]]
    for token in tokens(text):
        if token.text == ";":
            parts.append([])
        else:
            parts[-1].append(token)
    names: list[str] = []
    formulas: list[Sequence[Token]] = []
    for part in filter(None, parts):
        name, is_named = part[0], len(part) > 1 and part[1].text == "="
        if is_named and name.kind != "name":
            raise GraphError(f"{name} is not a name. Write NAME = FORMULA.")
        if is_named and name.text in names:
            raise GraphError(f"{_shortened(name.text)} is defined twice. Remove or rename one of the two.")
        names.append(name.text if is_named else "")
        formulas.append(part[2:] if is_named else part)
    if not formulas:
        raise GraphError("the formula is empty. Write one, such as (x + y)xy^2.")
    known = {*inputs, *filter(None, names)}
    parsed = [_Formula(formula, known, f"in part {number}") for number, formula in enumerate(formulas, 1)]
    return {name: formula for name, formula in zip(names, parsed, strict=True) if name}, parsed[-1]


def read(
    text: str, values: Mapping[str, Any], number: Callable[[str], Any] = float, *, seed: int | None = None
) -> Graph[Tensor]:
    """Parse a formula into a graph in which every node has a name.

    Inputs come first, in the order of `values`. The other nodes follow in topological order; among those that are ready, the
    first in the text comes first. A constant is a node of its own, but an integer exponent belongs to its power.

    Args:
        values: The inputs by name. An input that the formula does not mention has the gradient 0.
        number: Converts the text of a number to its value.
        seed: Draws the masks of dropout. Without a seed, dropout returns its value, as in evaluation.

    Raises:
        GraphError: the text is not a formula, a name has no value, named parts form a cycle, or shapes do not fit.
    """
    named, output = _parse(text, values)
    for name in named:
        if name in values:
            raise GraphError(f"{_shortened(name)} has a given value and a definition. Remove one of the two.")
    formulas = list(dict.fromkeys([*named.values(), output]))
    inputs = {name: Part(-1, name=name) for name in values}
    for formula in formulas:
        for part in formula.parts:
            if part.name and part.name not in inputs and part.name not in named:
                raise GraphError(_no_value(part))
            if part.dropout and part.dropout.mask and part.dropout.mask not in inputs:
                raise GraphError(f"the mask of dropout at position {part.at + 1} is not an input. Give it as MASK=[1, 0, …].")
    meanings = dict(inputs)
    mentions = {name: [part.name for part in formula.parts if part.name in named] for name, formula in named.items()}
    for name in topological_order(mentions):
        root = named[name].root
        meanings[name] = meanings[root.name] if root.name else root
    created = sorted((part for formula in formulas for part in formula.parts if not part.name), key=lambda part: part.at)
    for part in created:
        part.parents = [meanings[parent.name] if parent.name else parent for parent in part.parents]
    for name in named:
        meanings[name].name = meanings[name].name or name
    root = meanings[output.root.name] if output.root.name else output.root
    return _Builder(values, number, np.random.default_rng(seed) if seed is not None else None).graph(
        {part: part.parents for part in [*inputs.values(), *created]}, root, taken={*values, *named}
    )


def _no_value(part: Part) -> str:
    name = part.name
    if name in KNOWN:
        return f"{name!r} at position {part.at + 1} is a function. Write its value in brackets: {name}(…)."
    hint = ""
    if len(name) > MAX_PRODUCT:
        hint = f" A product without signs may have at most {MAX_PRODUCT} characters."
    elif len(name) > 1:
        hint = " In a product without signs, every factor needs a value; a number comes first, as in 2x, or after ^, as in x^2."
    return f"{_shortened(name)} at position {part.at + 1} has no value. Give it as {_shortened(name)[1:-1]}=VALUE.{hint}"


@dataclass(frozen=True)
class _Builder:
    """Creates nodes from parts."""

    values: Mapping[str, Any]
    number: Callable[[str], Any]
    random: np.random.Generator | None
    """Draws the masks of dropout in training."""

    def graph(self, parents: dict[Part, list[Part]], root: Part, taken: set[str]) -> Graph[Tensor]:
        """`taken`: names that generated ones must avoid."""
        nodes: dict[Part, Tensor] = {}
        for serial, part in enumerate(topological_order(parents), 1):
            name = part.name or new_name(serial, taken)
            if part.number:
                nodes[part] = Tensor(self._constant(part.number, part.at), name, is_constant=True)
            elif not part.parents:
                nodes[part] = Tensor(self.values[name], name)
            else:
                operands = [nodes[parent] for parent in part.parents]
                function = part.function or self._dropout(part, operands[0].shape)
                try:
                    _check_size(function, operands)
                    nodes[part] = apply(function, *operands, name=name)
                except GraphError as error:
                    raise GraphError(f"at position {part.at + 1}, {error}") from None
        return Graph(nodes[root], inputs=[node for node in nodes.values() if node.op == "input"])

    def _constant(self, text: str, at: int) -> Any:
        try:
            return self.number(text)
        except ValueError as error:
            raise GraphError(f"the number at position {at + 1}: {error}.") from None

    def _dropout(self, part: Part, shape: tuple[int, ...]) -> f.Dropout:
        assert part.dropout is not None
        where, p = f"dropout at position {part.at + 1}", self._constant(part.dropout.p, part.at)
        if not 0 <= p < 1:
            raise GraphError(f"p={part.dropout.p} of {where} is out of range. Use 0 <= p < 1.")
        if part.dropout.mask:
            mask = as_array(self.values[part.dropout.mask])
            if mask.shape != shape:
                raise GraphError(
                    f"the mask {part.dropout.mask} of {where} has the shape {mask.shape}. Give it the shape {shape}."
                )
            if not np.isin(mask, (0, 1)).all():
                raise GraphError(f"the mask {part.dropout.mask} of {where} has other entries than 0 and 1. 1 keeps a number.")
            return f.Dropout(mask, p, f"{part.dropout.mask}, {part.dropout.p}")
        if self.random is None:
            return f.Dropout(np.ones(shape), p * 0, part.dropout.p)
        return f.Dropout(self.random.random(shape) >= float(p), p, part.dropout.p)


def new_name(serial: int, taken: Collection[str]) -> str:
    """A name for a node without one."""
    name = f"v{serial}"
    while name in taken:
        name += "_"
    return name


def _check_size(function: f.Function, parents: Sequence[Tensor]) -> None:
    """Refuse a value that would outgrow its parents and the limit. Shapes that do not fit are left to `apply`."""
    shapes = [parent.shape for parent in parents]
    if len(shapes) == 1:
        return
    try:
        if isinstance(function, f.MatMul):
            rows, columns = ((1, *shape) if len(shape) == 1 else shape for shape in shapes)
            shape = (*np.broadcast_shapes(rows[:-2], columns[:-2]), *rows[-2:-1], *columns[-1:])
        else:
            shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return
    limit = MAX_DECIMALS if is_decimal(parents[0].known) else MAX_ELEMENTS
    if (size := math.prod(shape)) > max(limit, *map(math.prod, shapes)):
        named = " and ".join(f"{parent} of shape {parent.shape}" for parent in parents)
        raise GraphError(f"{function.name} of {named} has {size:,} numbers. The limit is {limit:,}. Use smaller arrays.")


def value_of(text: str, number: Callable[[str], Any] = float) -> Any:
    """Parse the value in `NAME=VALUE`: a number, or nested lists of numbers such as [[1, 2], [3, 4]].

    Raises:
        GraphError: the text is neither.
    """
    try:
        return number(text)
    except ValueError:
        pass
    try:
        value = json.loads(text, parse_float=number, parse_int=number, parse_constant=number)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise GraphError(f"{text!r} is neither a number nor a list of numbers, such as [1, 2.5].")
    return value


def write(node: Tensor) -> str:
    """The formula of a node in terms of its parents; empty for inputs and constants."""
    if node.function is None:
        return ""
    return node.function.write(*(_shown(parent) for parent in node.parents))


def _shown(node: Tensor) -> str:
    if not node.is_constant:
        return str(node)
    text = f"{node.known.item():.12g}"
    return f"({text})" if text.startswith("-") else text

"""Parse a formula, such as `(x + y) * x * y**2`, into a graph. Only the functions and operators listed here are evaluated.

s = x + y; s * s        parts may have names; the last formula is the output
sum(softmax(x) * y)     a function takes one value, which may be an array
a @ b                   matrix product
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ramify.autograd import functions as f
from ramify.autograd.errors import GraphError
from ramify.autograd.graph import Graph
from ramify.autograd.order import topological_order
from ramify.autograd.tensor import Tensor, apply

MAX_LENGTH = 1_000_000
"""Longest formula, in characters."""

MOST_EXPONENT_DIGITS = 9
"""A longer integer exponent becomes a constant node, like any other number."""

FUNCTIONS: dict[str, Callable[[], f.Function]] = {
    "exp": f.Exp,
    "log": f.Log,
    "sqrt": f.Sqrt,
    "tanh": f.Tanh,
    "sigmoid": f.Sigmoid,
    "relu": f.ReLU,
    "gelu": f.GELU,
    "gelu_tanh": lambda: f.GELU(approximate=True),
    "softmax": f.Softmax,
    "logsumexp": lambda: f.LogSumExp(),
    "sum": lambda: f.Sum(),
    "mean": lambda: f.Mean(),
    "max": lambda: f.Max(),
    "transpose": lambda: f.Transpose(),
}

OPERATORS: dict[str, tuple[int, Callable[[], f.Function]]] = {
    "+": (1, f.Add),
    "-": (1, f.Subtract),
    "*": (2, f.Multiply),
    "/": (2, f.Divide),
    "@": (2, f.MatMul),
    "**": (4, f.Power),
}
"""Binding strength of each operator. A sign, as in -x**2, has strength 3."""
SIGN = "a sign"
BINDS = {name: strength for name, (strength, _) in OPERATORS.items()} | {SIGN: 3}

TOKEN = re.compile(
    r"\s*+(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|[-+*/@();=,])|(?P<other>\S))"
)


@dataclass(eq=False)
class Part:
    """A future node: an input or a named part (`name`), a constant (`number`), or a function of other parts."""

    at: int
    """Index in the text."""
    name: str = ""
    number: str = ""
    function: f.Function | None = None
    parents: "list[Part]" = field(default_factory=list)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    if len(text) > MAX_LENGTH:
        raise GraphError(f"the formula has {len(text):,} characters. The limit is {MAX_LENGTH:,}.")
    result = []
    for match in TOKEN.finditer(text.rstrip()):
        kind = match.lastgroup or ""
        token = Token(kind, match.group(kind), match.start(kind))
        if kind == "other" or (kind == "name" and not token.text.isidentifier()):
            hint = " Write a power as x**y." if token.text == "^" else ""
            raise GraphError(f"{token.text!r} at position {token.at + 1} has no meaning in a formula.{hint}")
        result.append(token)
    return result


class _Formula:
    """One parsed formula. Two stacks (Dijkstra's shunting yard) replace recursion, so the depth of brackets has no limit."""

    def __init__(self, formula: Sequence[Token], where: str) -> None:
        self.parts: list[Part] = []
        self.done: list[Part] = []
        self.open: list[Token] = []
        self.exponents: set[Part] = set()
        wants_value = True
        for index, token in enumerate(formula):
            if wants_value:
                wants_value = self._value(
                    token, opens=[following.text for following in formula[index + 1 : index + 2]] == ["("]
                )
            else:
                wants_value = self._between(token)
        if wants_value:
            after = f"after {formula[-1].text!r} at position {formula[-1].at + 1}" if formula else where
            raise GraphError(f"a value is missing {after}.")
        while self.open:
            if self.open[-1].text == "(":
                raise GraphError(f"the bracket at position {self.open[-1].at + 1} is never closed.")
            self._close()
        (self.root,) = self.done
        self.parts = [part for part in self.parts if part not in self.exponents]

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
            if not opens:
                self._make(Part(token.at, name=token.text))
                return False
            if token.text not in FUNCTIONS:
                known = ", ".join(FUNCTIONS)
                raise GraphError(f"{token.text!r} at position {token.at + 1} is not a function. Known functions: {known}.")
            self.open.append(token)
        elif token.text == "(":
            self.open.append(token)
        elif token.text == "-":
            self.open.append(Token("operator", SIGN, token.at))
        elif token.text != "+":
            raise GraphError(f"a value is missing before {token.text!r} at position {token.at + 1}.")
        return True

    def _between(self, token: Token) -> bool:
        """Consume a token after a complete value; return whether another value must follow."""
        if token.text == ")":
            while self.open and self.open[-1].text != "(":
                self._close()
            if not self.open:
                raise GraphError(f"the bracket at position {token.at + 1} closes nothing.")
            self.open.pop()
            if self.open and self.open[-1].kind == "name":
                self._close()
            return False
        if token.text == ",":
            raise GraphError(f"the comma at position {token.at + 1} has no meaning: a function takes one value.")
        if token.text not in OPERATORS:
            raise GraphError(f"an operator is missing before {token.text!r} at position {token.at + 1}.")
        # x ** y ** z is x ** (y ** z); all other operators associate from left to right.
        min_strength = BINDS[token.text] + (token.text == "**")
        while self.open and BINDS.get(self.open[-1].text, 0) >= min_strength:
            self._close()
        self.open.append(Token("operator", token.text, token.at))
        return True

    def _close(self) -> None:
        """Make the part of the operator or function that was opened last; its operands are complete."""
        token = self.open.pop()
        if token.kind == "name":
            self._make(Part(token.at, function=FUNCTIONS[token.text](), parents=[self.done.pop()]))
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
        if token.text == "**" and last.number.lstrip("-").isdecimal() and len(last.number) <= MOST_EXPONENT_DIGITS:
            self.exponents.add(last)
            self._make(Part(token.at, function=f.PowerOf(int(last.number)), parents=[first]))
        else:
            self._make(Part(token.at, function=OPERATORS[token.text][1](), parents=[first, last]))


def _parse(text: str) -> tuple[dict[str, _Formula], _Formula]:
    """The named parts and the output."""
    parts: list[list[Token]] = [[]]
    for token in tokens(text):
        if token.text == ";":
            parts.append([])
        else:
            parts[-1].append(token)
    named: dict[str, _Formula] = {}
    last: _Formula | None = None
    for number, part in enumerate(part for part in parts if part):
        name = ""
        if len(part) > 1 and part[1].text == "=":
            if part[0].kind != "name":
                raise GraphError(f"{part[0].text!r} at position {part[0].at + 1} is not a name.")
            name = part[0].text
            if name in named:
                raise GraphError(f"{name!r} is defined twice.")
            part = part[2:]
        last = _Formula(part, f"in part {number + 1}")
        if name:
            named[name] = last
    if last is None:
        raise GraphError("the formula is empty.")
    return named, last


def read(text: str, values: Mapping[str, Any], number: Callable[[str], Any] = float) -> Graph[Tensor]:
    """Parse a formula into a graph in which every node has a name.

    Inputs come first, in the order of `values`. The other nodes follow in topological order; among those that are ready, the
    first in the text comes first. A constant is a node of its own, but an integer exponent belongs to its power.

    Args:
        values: The inputs by name. An input that the formula does not mention has the gradient 0.
        number: Converts the text of a number to its value.

    Raises:
        GraphError: the text is not a formula, a name has no value, named parts form a cycle, or shapes do not fit.
    """
    named, output = _parse(text)
    for name in named:
        if name in values:
            raise GraphError(f"{name!r} has a given value and a definition. Remove one of the two.")
    formulas = list(dict.fromkeys([*named.values(), output]))
    inputs = {name: Part(-1, name=name) for name in values}
    for formula in formulas:
        for part in formula.parts:
            if part.name and part.name not in inputs and part.name not in named:
                raise GraphError(f"{part.name!r} at position {part.at + 1} has no value. Give it as {part.name}=VALUE.")
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
    return _graph({part: part.parents for part in [*inputs.values(), *created]}, root, values, number, taken={*values, *named})


def _graph(
    parents: dict[Part, list[Part]], root: Part, values: Mapping[str, Any], number: Callable[[str], Any], taken: set[str]
) -> Graph[Tensor]:
    """`taken`: names that generated ones must avoid."""
    nodes: dict[Part, Tensor] = {}
    for serial, part in enumerate(topological_order(parents), 1):
        name = part.name
        if not name:
            name = f"v{serial}"
            while name in taken:
                name += "_"
        if part.function:
            nodes[part] = apply(part.function, *(nodes[parent] for parent in part.parents), name=name)
        elif part.number:
            nodes[part] = Tensor(_constant(part, number), name, is_constant=True)
        else:
            nodes[part] = Tensor(values[name], name)
    return Graph(nodes[root], inputs=[node for node in nodes.values() if node.op == "input"])


def _constant(part: Part, number: Callable[[str], Any]) -> Any:
    try:
        return number(part.number)
    except ValueError as error:
        raise GraphError(f"the number at position {part.at + 1}: {error}.") from None


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

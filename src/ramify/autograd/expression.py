"""Formulas as text, such as `(x + y) * x * y**2`, read into a graph. Nothing is evaluated but what is named here.

s = x + y; s * s        parts may be given names; the last formula is the output
sum(softmax(x) * y)     functions of one value, which may be an array
a @ b                   the product of matrices
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
"""Characters of a formula."""

MOST_EXPONENT_DIGITS = 9
"""A longer whole number behind ** is a constant, a node as any other."""

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
"""How tightly each binds; a sign, as in -x**2, is at 3."""
SIGN = "a sign"
BINDS = {name: strength for name, (strength, _) in OPERATORS.items()} | {SIGN: 3}

TOKEN = re.compile(
    r"\s*+(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|[-+*/@();=,])|(?P<other>\S))"
)


@dataclass(eq=False)
class Part:
    """A node to be: an input or a named part by its name, a constant, or a function of other parts."""

    at: int
    """Where in the text it appears."""
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
        raise GraphError(f"a formula may have {MAX_LENGTH:,} characters, and this has {len(text):,}.")
    found = []
    for match in TOKEN.finditer(text.rstrip()):
        kind = match.lastgroup or ""
        token = Token(kind, match.group(kind), match.start(kind))
        if kind == "other" or (kind == "name" and not token.text.isidentifier()):
            hint = " Powers are written **." if token.text == "^" else ""
            raise GraphError(f"{token.text!r} at place {token.at + 1} means nothing in a formula.{hint}")
        found.append(token)
    return found


class _Reading:
    """One formula, by two stacks (Dijkstra's shunting yard), so that brackets may be as deep as the text is long."""

    def __init__(self, found: Sequence[Token], where: str) -> None:
        self.parts: list[Part] = []
        self.done: list[Part] = []
        self.open: list[Token] = []
        self.exponents: set[Part] = set()
        wants_value = True
        for place, token in enumerate(found):
            if wants_value:
                wants_value = self._value(token, opens=[each.text for each in found[place + 1 : place + 2]] == ["("])
            else:
                wants_value = self._between(token)
        if wants_value:
            after = f"after {found[-1].text!r} at place {found[-1].at + 1}" if found else where
            raise GraphError(f"a value is missing {after}.")
        while self.open:
            if self.open[-1].text == "(":
                raise GraphError(f"the bracket at place {self.open[-1].at + 1} is never closed.")
            self._close()
        (self.root,) = self.done
        self.parts = [part for part in self.parts if part not in self.exponents]

    def _make(self, part: Part) -> None:
        self.parts.append(part)
        self.done.append(part)

    def _value(self, token: Token, opens: bool) -> bool:
        """Take a token where a value is to begin (`opens`: a bracket follows it); whether one still is."""
        if token.kind == "number":
            self._make(Part(token.at, number=token.text))
            return False
        if token.kind == "name":
            if not opens:
                self._make(Part(token.at, name=token.text))
                return False
            if token.text not in FUNCTIONS:
                raise GraphError(f"{token.text!r} at place {token.at + 1} is no function; known: {', '.join(FUNCTIONS)}.")
            self.open.append(token)
        elif token.text == "(":
            self.open.append(token)
        elif token.text == "-":
            self.open.append(Token("operator", SIGN, token.at))
        elif token.text != "+":
            raise GraphError(f"a value is missing before {token.text!r} at place {token.at + 1}.")
        return True

    def _between(self, token: Token) -> bool:
        """Take a token where a value has ended; whether another has to begin."""
        if token.text == ")":
            while self.open and self.open[-1].text != "(":
                self._close()
            if not self.open:
                raise GraphError(f"the bracket at place {token.at + 1} closes nothing.")
            self.open.pop()
            if self.open and self.open[-1].kind == "name":
                self._close()
            return False
        if token.text == ",":
            raise GraphError(f"a function takes one value: the comma at place {token.at + 1} has no meaning.")
        if token.text not in OPERATORS:
            raise GraphError(f"an operator is missing before {token.text!r} at place {token.at + 1}.")
        # x ** y ** z is x ** (y ** z); all others go from left to right.
        least = BINDS[token.text] + (token.text == "**")
        while self.open and BINDS.get(self.open[-1].text, 0) >= least:
            self._close()
        self.open.append(Token("operator", token.text, token.at))
        return True

    def _close(self) -> None:
        """Make the part that was opened last: what it reads is there."""
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


def _formulas(text: str) -> tuple[dict[str, _Reading], _Reading]:
    """The named parts, and the output."""
    parts: list[list[Token]] = [[]]
    for token in tokens(text):
        if token.text == ";":
            parts.append([])
        else:
            parts[-1].append(token)
    named: dict[str, _Reading] = {}
    last: _Reading | None = None
    for number, part in enumerate(each for each in parts if each):
        name = ""
        if len(part) > 1 and part[1].text == "=":
            if part[0].kind != "name":
                raise GraphError(f"{part[0].text!r} at place {part[0].at + 1} is no name.")
            name = part[0].text
            if name in named:
                raise GraphError(f"{name!r} is defined twice.")
            part = part[2:]
        last = _Reading(part, f"in part {number + 1}")
        if name:
            named[name] = last
    if last is None:
        raise GraphError("the formula is empty.")
    return named, last


def read(text: str, values: Mapping[str, Any], number: Callable[[str], Any] = float) -> Graph:
    """The graph of a formula, in which every node has a name.

    Inputs come first, in the order of `values`; then, of all parts that are ready, the one that appears first in the text. A
    constant is a node of its own, but a whole number behind ** belongs to the power.

    Args:
        values: Of the inputs, those too that the formula does not mention: its gradient by them is 0.
        number: What a number in the text is read with.

    Raises:
        GraphError: the text is no formula, a name has no value, parts are defined by each other, or shapes do not fit.
    """
    named, output = _formulas(text)
    for name in named:
        if name in values:
            raise GraphError(f"{name!r} is given a value and defined, too.")
    formulas = list(dict.fromkeys([*named.values(), output]))
    inputs = {name: Part(-1, name=name) for name in values}
    for formula in formulas:
        for part in formula.parts:
            if part.name and part.name not in inputs and part.name not in named:
                raise GraphError(f"{part.name!r} at place {part.at + 1} has no value: give it as {part.name}=VALUE.")
    means = dict(inputs)
    mentions = {name: [part.name for part in formula.parts if part.name in named] for name, formula in named.items()}
    for name in topological_order(mentions):
        root = named[name].root
        means[name] = means[root.name] if root.name else root
    made = sorted((part for formula in formulas for part in formula.parts if not part.name), key=lambda part: part.at)
    for part in made:
        part.parents = [means[each.name] if each.name else each for each in part.parents]
    for name in named:
        means[name].name = means[name].name or name
    root = means[output.root.name] if output.root.name else output.root
    return _graph({part: part.parents for part in [*inputs.values(), *made]}, root, values, number, taken={*values, *named})


def _graph(
    parents: dict[Part, list[Part]], root: Part, values: Mapping[str, Any], number: Callable[[str], Any], taken: set[str]
) -> Graph:
    """`taken`: names that mean something already."""
    nodes: dict[Part, Tensor] = {}
    for place, part in enumerate(topological_order(parents), 1):
        name = part.name
        if not name:
            name = f"v{place}"
            while name in taken:
                name += "_"
        if part.function:
            nodes[part] = apply(part.function, *(nodes[each] for each in part.parents), name=name)
        elif part.number:
            nodes[part] = Tensor(_constant(part, number), name, is_constant=True)
        else:
            nodes[part] = Tensor(values[name], name)
    return Graph(nodes[root], inputs=[node for node in nodes.values() if node.op == "input"])


def _constant(part: Part, number: Callable[[str], Any]) -> Any:
    try:
        return number(part.number)
    except ValueError as error:
        raise GraphError(f"the number at place {part.at + 1}: {error}.") from None


def value_of(text: str, number: Callable[[str], Any] = float) -> Any:
    """What `NAME=` is followed by: a number, or numbers in brackets, as in [[1, 2], [3, 4]].

    Raises:
        GraphError: it is neither.
    """
    try:
        return number(text)
    except ValueError:
        pass
    try:
        found = json.loads(text, parse_float=number, parse_int=number, parse_constant=number)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise GraphError(f"{text!r} is neither a number nor a list of numbers, such as [1, 2.5].")
    return found


def write(node: Tensor) -> str:
    """How a node comes from its parents."""
    if node.function is None:
        return ""
    return node.function.write(*(_shown(parent) for parent in node.parents))


def _shown(node: Tensor) -> str:
    if not node.is_constant:
        return str(node)
    text = f"{node.known.item():.12g}"
    return f"({text})" if text.startswith("-") else text

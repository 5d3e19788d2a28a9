"""The attention heads of a text as an HTML page: a small picture per layer and head, and one head in detail."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from math import ceil
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.errors import RamifyError, counted
from ramify.inference.answers import Attention, StackWeights
from ramify.report.html import HtmlSection, shortened, text
from ramify.report.page import write_page

KIND = "Attention heads"
"""The line above the title."""

MAX_SHOWN = 4_000_000
"""Most weights per page; more would overload a browser."""

GOLDEN_ANGLE = 137.508

WIDTH, MARGIN = 76, 3
"""Width of a small picture, and of the space beside its lines."""

MANY, SMALLER = 6, 0.58
"""With more heads per layer than this, small pictures shrink to this share."""

LEVELS = 8
"""Number of strengths of lines in small pictures. They spare a browser one element per line."""

FAINTEST = 0.02
"""Smallest weight with a line in small pictures."""

SCALE = 65535
"""Weights are stored as 16-bit numbers: this one is 1."""

TITLES = {
    ("encoder", "self"): "Self-attention",
    ("decoder", "self"): "Decoder: self-attention",
    ("decoder", "cross"): "Decoder: attention to ancestors",
    ("output", "cross"): "Output attention to ancestors",
    ("streams", "content"): "Content stream",
    ("streams", "query"): "Query stream",
}

OF_TRANSLATORS = {
    ("encoder", "self"): ("Encoder: self-attention", "Tokens of the source read each other."),
    ("decoder", "self"): (
        "Decoder: self-attention",
        "Each token of the target reads itself and the tokens before it. The first one marks the beginning.",
    ),
    ("decoder", "cross"): (
        "Decoder: attention to the source",
        "The left column has the tokens that are predicted: those of the target, and its end.",
    ),
}
"""Titles and explanations of the attention of a source and its target."""

_HOW = (
    "<p>Tokens on the left read tokens on the right. A small picture shows one head of one layer; choose it to see it in "
    "detail. The stronger a line, the greater its weight; the weights of a token that reads add up to 1. Point at a token, or "
    "move to it with the Tab key, to see its weights; click it, or press Enter, to keep them in view.</p>"
)


def write_attention(path: Path, answer: Attention, model: str, texts: Mapping[str, str]) -> None:
    """Write a self-contained page about the answer of `TextPipeline.attention`.

    `texts` has the texts of the node and its ancestors, by id. Raises `RamifyError` if the page would hold too many weights.
    """
    tables = answer.attention
    total = sum(head.weights.size for table in tables for head in table.heads)
    if total > MAX_SHOWN:
        raise RamifyError(
            f"the page would hold {total:,} weights, which is too much for a browser (at most {MAX_SHOWN:,}). Choose a layer "
            "or a head, shorten the text, or print JSON."
        )
    templates = files("ramify.report")
    style, script = (templates.joinpath(f"attention.{kind}").read_text("utf-8").strip() for kind in ("css", "js"))
    sections = [HtmlSection("How to read this page", f"{_HOW}<style>{style}</style>")]
    sections += [_section(table, answer, texts) for table in tables]
    # The script comes after the elements that it uses.
    sections[-1] = replace(sections[-1], body=sections[-1].body + f"<script>{script}</script>")
    node = f"node {text(answer.node)}" if answer.node else "this text"
    ancestors = f" and {counted(len(answer.ancestors), 'ancestor')}" if answer.ancestors else ""
    end = "." if answer.target is None else f" as the source of this target: “{text(shortened(answer.target, 300))}”"
    lead = f"<p>{text(model)} reads {node}{ancestors}{_order(answer)}{end}</p>"
    title = shortened(texts.get(answer.node, ""), 120) or answer.node or "(no text)"
    write_page(path, kind=KIND, title=title, lead=lead, sections=sections)


def _order(answer: Attention) -> str:
    """The factorization order of an XLNet, if one was chosen."""
    if not answer.ranks:
        return ""
    named = answer.attention[0].keys
    words = " → ".join(named[place] for place in np.argsort(answer.ranks))
    return f" in the factorization order {text(words)}"


def _section(table: StackWeights, answer: Attention, texts: Mapping[str, str]) -> HtmlSection:
    title, lead = _title(table, answer)
    to_ancestors = table.kind == "cross" and answer.target is None
    queries = [text(token) for token in table.queries]
    keys = [_ancestor(name, texts) if to_ancestors else text(name) for name in table.keys]
    layers = sorted({head.layer for head in table.heads})
    numbers = sorted({head.head for head in table.heads})
    pictures = {(head.layer, head.head): head.weights for head in table.heads}
    many = len(numbers) > MANY
    columns = "".join(f'<th scope="col">{"" if many else "Head "}{number}</th>' for number in numbers)
    rows = "".join(
        f'<tr><th scope="row">Layer {layer}</th>'
        + "".join(
            f"<td>{_picture(layer, number, pictures[layer, number], SMALLER if many else 1.0)}</td>" for number in numbers
        )
        + "</tr>"
        for layer in layers
    )
    grid = f'<table class="heads"><thead><tr><td></td>{columns}</tr></thead><tbody>{rows}</tbody></table>'
    body = (
        f'<div class="attention"><div class="wide">{grid}</div><div class="head"><h3></h3>'
        f'<div class="links{" ancestors-read" if to_ancestors else ""}">{_tokens("queries", queries, "reads")}'
        f'<svg class="lines" aria-hidden="true"></svg>{_tokens("keys", keys, "is read")}</div>'
        '<p class="reading" aria-live="polite"></p></div></div>'
    )
    return HtmlSection(title, body, lead)


def _title(table: StackWeights, answer: Attention) -> tuple[str, str]:
    """The title of a section, and its explanation."""
    if answer.target is not None:
        return OF_TRANSLATORS[table.stack, table.kind]
    of_ancestor = table.stack == "encoder" and table.node != answer.node
    title = f"Encoder: ancestor {table.node}" if of_ancestor else TITLES[table.stack, table.kind]
    return title, _lead(table, answer)


def _lead(table: StackWeights, answer: Attention) -> str:
    if table.kind == "query" and not answer.ranks:
        return "Each token on the left is predicted from the other words: its own word is hidden from it."
    if table.kind == "query":
        return "Each token on the left is predicted from the tokens before it in the order."
    if table.kind == "content" and answer.ranks:
        return "Each token reads itself and the tokens before it in the order."
    if table.stack == "output":
        return "After the last layer, each state reads the ancestors once more."
    if table.kind == "cross":
        return "The right column has the ancestors, oldest first: one vector each."
    return ""


def _ancestor(name: str, texts: Mapping[str, str]) -> str:
    words = shortened(texts.get(name, ""), 90)
    return f"<b>{text(name)}</b> {text(words)}" if words else f"<b>{text(name)}</b>"


def _tokens(kind: str, tokens: list[str], what: str) -> str:
    """A column of tokens, each a button. `tokens` is HTML."""
    buttons = "".join(
        f'<li><button type="button" aria-pressed="false" title="{what}"><bdi>{token or "&nbsp;"}</bdi><i></i></button></li>'
        for token in tokens
    )
    return f'<ol class="{kind}">{buttons}</ol>'


def _picture(layer: int, number: int, weights: Float[NDArray, "query key"], scale: float) -> str:
    """A button with a small picture of a head, which also holds its weights for the script."""
    queries, keys = weights.shape
    height = min(max(64, 4 * max(queries, keys)), 200)
    left, right = ((np.arange(count) + 0.5) * height / count for count in (queries, keys))
    levels: dict[int, list[str]] = {}
    for query, key in zip(*np.nonzero(weights >= FAINTEST), strict=True):
        level = min(LEVELS, ceil(LEVELS * float(weights[query, key])))
        levels.setdefault(level, []).append(f"M{MARGIN} {left[query]:.4g}L{WIDTH - MARGIN} {right[key]:.4g}")
    lines = "".join(f'<path d="{"".join(moves)}" opacity="{level / LEVELS:.3g}"/>' for level, moves in sorted(levels.items()))
    stored = base64.b64encode(np.rint(weights.clip(0, 1) * SCALE).astype("<u2").tobytes()).decode()
    shown = f'width="{WIDTH * scale:.0f}" height="{height * scale:.0f}"'
    return (
        f'<button type="button" aria-pressed="false" aria-label="Layer {layer}, head {number}" style="{_colour(number)}" '
        f'data-weights="{stored}"><svg viewBox="0 0 {WIDTH} {height}" {shown} aria-hidden="true">'
        f"{lines}</svg></button>"
    )


def _colour(number: int) -> str:
    """A colour per head; heads with close numbers have distant hues."""
    return f"--hue:{(205 + (number - 1) * GOLDEN_ANGLE) % 360:.0f}"

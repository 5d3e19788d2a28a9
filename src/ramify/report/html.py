"""Render sections of a report as HTML. All text from data and users is escaped here."""

import unicodedata
from dataclasses import dataclass
from html import escape
from typing import Any, assert_never

from ramify.errors import percent
from ramify.report.charts import dot_chart, line_chart, scatter_chart
from ramify.runs.sections import (
    Block,
    Cell,
    Chart,
    Charts,
    Code,
    Definitions,
    DotChart,
    FilledMask,
    FilledMasks,
    MarkedText,
    MarkedTexts,
    Notice,
    ScatterChart,
    Section,
    Spans,
    Strong,
    Table,
    WeightMap,
)

ANCESTOR_CHARS = 160
"""Characters shown of an ancestor's text."""

AROUND = 240
"""Characters shown on either side of a masked word."""


@dataclass(frozen=True)
class HtmlSection:
    """A section as HTML. Its title is text."""

    title: str
    body: str
    lead: str = ""


def draw(section: Section) -> HtmlSection:
    return HtmlSection(section.title, "".join(_block(block) for block in section.blocks), spans(section.lead))


def spans(parts: Spans) -> str:
    """Text with its emphasis, as HTML."""
    return "".join(_span(part) for part in parts)


def text(value: Any) -> str:
    """A value as escaped text on one line. Control characters and lone surrogates become U+FFFD."""
    return _cleaned(" ".join(str(value).split()))


def _cleaned(value: str) -> str:
    return escape(
        "".join(letter if unicodedata.category(letter) not in ("Cc", "Cs") else "\N{REPLACEMENT CHARACTER}" for letter in value)
    )


def _span(part: str | Strong | Code) -> str:
    if isinstance(part, str):
        return _cleaned(part)
    name = "b" if isinstance(part, Strong) else "code"
    return f"<{name}>{text(part.text)}</{name}>"


def shortened(value: str, length: int) -> str:
    """The beginning of a text, cut between words."""
    whole = " ".join(value.split())
    if len(whole) <= length:
        return whole
    return whole[:length].rsplit(" ", 1)[0] + " …"


# --- blocks -----------------------------------------------------------------------------------------------------------


def _block(block: Block) -> str:
    if isinstance(block, Charts):
        return _charts(block)
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, FilledMasks):
        return f'<div class="cards">{"".join(_card(mask) for mask in block.masks)}</div>'
    if isinstance(block, MarkedTexts):
        return f'<div class="cards">{"".join(_marked(marked) for marked in block.texts)}</div>'
    if isinstance(block, WeightMap):
        return _weight_map(block)
    if isinstance(block, Definitions):
        return _definitions(block)
    if isinstance(block, Notice):
        return f'<p class="notice">{spans(block.text)}</p>'
    assert_never(block)


def _charts(block: Charts) -> str:
    legend = "".join(f'<span class="key {kind}">{text(name)}</span>' for kind, name in block.legend)
    figures = "".join(f"<figure>{_chart(chart)}</figure>" for chart in block.charts)
    return f'<p class="legend">{legend}</p><div class="figures">{figures}</div>'


def _chart(chart: Chart | DotChart | ScatterChart) -> str:
    if isinstance(chart, DotChart):
        return dot_chart(chart)
    return scatter_chart(chart) if isinstance(chart, ScatterChart) else line_chart(chart)


def _table(block: Table) -> str:
    head = "".join(f"<th>{text(column)}</th>" for column in block.columns)
    rows = []
    for first, *cells in block.rows:
        parts = "".join(f"<td>{_cell(cell)}</td>" for cell in cells)
        rows.append(f"<tr><th scope='row'>{text(first.text)}</th>{parts}</tr>")
    table = f'<table class="{block.style}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _cell(cell: Cell) -> str:
    return text(cell.text) + (f"<small>{text(cell.small)}</small>" if cell.small else "")


def _card(mask: FilledMask) -> str:
    ancestors = "".join(
        f"<li>{text(shortened(ancestor, ANCESTOR_CHARS)) or '<i>(no text)</i>'}</li>" for ancestor in mask.ancestors
    )
    ancestors = f'<ol class="ancestors">{ancestors}</ol>' if ancestors else ""
    sentence = _sentence(mask.before, mask.word, mask.after)
    guesses = "".join(_guess(*guess, mask.word) for guess in mask.guesses)
    title = f"<h3>{text(shortened(mask.title, 80))}</h3>" if mask.title else ""
    return f"<article>{title}{ancestors}{sentence}<table>{guesses}</table></article>"


def _guess(kind: str, name: str, probability: float, likeliest: tuple[tuple[str, float], ...], word: str) -> str:
    best = " · ".join(f"{text(token)} {percent(share)}" for token, share in likeliest)
    return f"<tr class='{kind}'><th>{text(name)}</th><td>{text(word)} <b>{percent(probability)}</b></td><td>{best}</td></tr>"


def _marked(marked: MarkedText) -> str:
    notes = "".join(f"<li>{text(shortened(note, ANCESTOR_CHARS))}</li>" for note in marked.notes)
    sentence = _sentence(marked.before, marked.marked, marked.after)
    return f"<article><h3>{text(shortened(marked.title, ANCESTOR_CHARS))}</h3>{sentence}<ul>{notes}</ul></article>"


def _sentence(before: str, word: str, after: str) -> str:
    """A word, marked between the nearest parts of the texts before and after it."""
    start = "… " + before[-AROUND:].split(" ", 1)[-1] if len(before) > AROUND else before
    gap = " " if start[-1:].isspace() else ""
    behind = " " if after[:1].isspace() else ""
    mark = f"<mark>{text(word)}</mark>" if word else ""
    return f"<p>{text(start)}{gap}{mark}{behind}{text(shortened(after, AROUND))}</p>"


def _weight_map(block: WeightMap) -> str:
    head = "".join(f"<th scope='col'><span>{text(key)}</span></th>" for key in block.keys)
    rows = []
    for query, weights in zip(block.queries, block.weights, strict=True):
        cells = "".join(f"<td style='--weight:{weight:.0%}' title='{weight:.2f}'></td>" for weight in weights)
        rows.append(f"<tr><th scope='row'>{text(query)}</th>{cells}</tr>")
    caption = f"<caption>{text(block.title)}</caption>"
    return (
        f'<div class="wide"><table class="weights">{caption}<thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _definitions(block: Definitions) -> str:
    pairs = f"<dl>{''.join(f'<dt>{text(name)}</dt><dd>{text(value)}</dd>' for name, value in block.pairs)}</dl>"
    if block.folded is None:
        return pairs
    title, content = block.folded
    return pairs + f"<details><summary>{text(title)}</summary><pre>{escape(content)}</pre></details>"

"""Render sections of a report as HTML. All text from data and users is escaped here."""

import unicodedata
from dataclasses import dataclass
from html import escape
from math import floor, log10
from typing import Any, assert_never

from ramify.report.charts import interval_mark, line_chart
from ramify.runs.sections import (
    Block,
    Cell,
    Charts,
    Code,
    Definitions,
    FilledMask,
    FilledMasks,
    Notice,
    Section,
    Spans,
    Strong,
    Table,
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
        "".join(each if unicodedata.category(each) not in ("Cc", "Cs") else "\N{REPLACEMENT CHARACTER}" for each in value)
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


def percent(share: float) -> str:
    """A share in percent with two significant digits, down to a millionth of a percent."""
    digits = 1 - floor(log10(max(100 * share, 1e-6)))
    return f"{100 * share:.{max(0, digits)}f} %"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


# --- blocks -----------------------------------------------------------------------------------------------------------


def _block(block: Block) -> str:
    if isinstance(block, Charts):
        return _charts(block)
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, FilledMasks):
        return f'<div class="cards">{"".join(_card(mask) for mask in block.masks)}</div>'
    if isinstance(block, Definitions):
        return _definitions(block)
    if isinstance(block, Notice):
        return f'<p class="notice">{spans(block.text)}</p>'
    assert_never(block)


def _charts(block: Charts) -> str:
    legend = "".join(f'<span class="key {kind}">{text(name)}</span>' for kind, name in block.legend)
    figures = "".join(f"<figure>{line_chart(chart)}</figure>" for chart in block.charts)
    return f'<p class="legend">{legend}</p><div class="figures">{figures}</div>'


def _table(block: Table) -> str:
    drawn = [cell.interval for row in block.rows for cell in row if cell.interval is not None]
    scale = (min((low for _, low, _ in drawn), default=0.0), max((high for *_, high in drawn), default=1.0))
    wide = {True: ' colspan="2"', False: ""}
    head = "".join(f"<th{wide[column.drawn]}>{text(column.title)}</th>" for column in block.columns)
    rows = []
    for first, *cells in block.rows:
        parts = [f"<th scope='row'>{text(first.text)}</th>"]
        for cell, column in zip(cells, block.columns[1:], strict=True):
            parts.append(f"<td>{_cell(cell)}</td>")
            if column.drawn:
                mark = "" if cell.interval is None else interval_mark(*cell.interval, *scale)
                parts.append(f"<td>{mark}</td>")
        rows.append(f"<tr>{''.join(parts)}</tr>")
    table = f'<table class="{block.style}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _cell(cell: Cell) -> str:
    return text(cell.text) + (f"<small>{text(cell.small)}</small>" if cell.small else "")


def _card(mask: FilledMask) -> str:
    ancestors = "".join(f"<li>{text(shortened(each, ANCESTOR_CHARS)) or '<i>(no text)</i>'}</li>" for each in mask.ancestors)
    ancestors = f'<ol class="ancestors">{ancestors}</ol>' if ancestors else ""
    before = "… " + mask.before[-AROUND:].split(" ", 1)[-1] if len(mask.before) > AROUND else mask.before
    after = shortened(mask.after, AROUND)
    gap = " " if before[-1:].isspace() else ""
    behind = " " if mask.after[:1].isspace() else ""
    sentence = f"<p>{text(before)}{gap}<mark>{text(mask.word)}</mark>{behind}{text(after)}</p>"
    guesses = "".join(_guess(*guess, mask.word) for guess in mask.guesses)
    title = f"<h3>{text(shortened(mask.title, 80))}</h3>" if mask.title else ""
    return f"<article>{title}{ancestors}{sentence}<table>{guesses}</table></article>"


def _guess(kind: str, name: str, probability: float, likeliest: tuple[tuple[str, float], ...], word: str) -> str:
    best = " · ".join(f"{text(token)} {percent(share)}" for token, share in likeliest)
    return f"<tr class='{kind}'><th>{text(name)}</th><td>{text(word)} <b>{percent(probability)}</b></td><td>{best}</td></tr>"


def _definitions(block: Definitions) -> str:
    pairs = f"<dl>{''.join(f'<dt>{text(name)}</dt><dd>{text(value)}</dd>' for name, value in block.pairs)}</dl>"
    if block.folded is None:
        return pairs
    title, content = block.folded
    return pairs + f"<details><summary>{text(title)}</summary><pre>{escape(content)}</pre></details>"

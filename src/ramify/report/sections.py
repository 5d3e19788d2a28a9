"""The parts of a report, each a heading and its HTML. Everything that comes from data or from users is escaped here."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from typing import Any

import numpy as np

from ramify.batching.forest import share_over
from ramify.batching.views.comment_trees import Seen
from ramify.inference.evaluation import Scores, gain
from ramify.metrics import DEPTH_BINS, Interval, bootstrap_ratio
from ramify.report.charts import Line, interval_mark, line_chart, smooth
from ramify.report.measure import BLIND, NAMES, RULE, Filling, Guess, Measured

ABOVE = 160
"""Characters shown of an ancestor's text."""

AROUND = 240
"""Characters shown on either side of a masked word."""


@dataclass(frozen=True)
class Section:
    title: str
    body: str
    lead: str = ""
    """A sentence under the heading, as HTML."""


def text(value: Any) -> str:
    """Escaped, on one line, without control characters (nor lone surrogates, which no file can hold)."""
    shown = (
        each if unicodedata.category(each) not in ("Cc", "Cs") else "\N{REPLACEMENT CHARACTER}"
        for each in " ".join(str(value).split())
    )
    return escape("".join(shown))


def shortened(value: str, length: int) -> str:
    """The beginning of a text, cut at a word."""
    whole = " ".join(value.split())
    if len(whole) <= length:
        return whole
    return whole[:length].rsplit(" ", 1)[0] + " …"


def number(value: float, form: str) -> str:
    """A formatted number with a real minus sign."""
    return f"{value:{form}}".replace("-", "−")


def percent(share: float) -> str:
    """Two digits, down to a millionth of a percent."""
    digits = 1 - floor(log10(max(100 * share, 1e-6)))
    return f"{100 * share:.{max(0, digits)}f} %"


def counted(count: int, what: str, ending: str = "s") -> str:
    return f"{count:,} {what}{'' if count == 1 else ending}"


def trees_of(split: str) -> str:
    return "all trees" if split == "all" else f"the {split} trees"


# --- curves -----------------------------------------------------------------------------------------------------------


def curves(metrics: Sequence[Mapping[str, float]], seen: Seen, title: str = "Learning curves") -> Section:
    """Loss against steps and tokens, and where dev was also measured without context, the gain against tokens."""
    if not metrics:
        return Section(title, "<p>Nothing was logged yet.</p>")
    window = max(1, len(metrics) // 15)
    with_gain = any("dev_loss_none" in record for record in metrics)
    by_step, by_tokens = (
        line_chart(_losses(metrics, key, window, seen), label, "nats")
        for key, label in (("step", "updates"), ("target_tokens", "tokens of predicted comments seen"))
    )
    figures = [figure(by_step), figure(by_tokens)]
    if with_gain:
        figures.append(figure(_gain_chart(metrics)))
    if any("context_spread" in record for record in metrics):
        figures.append(figure(_spread_chart(metrics)))
    every = f", mean of {window} logged steps" if window > 1 else ""
    keys = [("train", f"train (as it is minimised: per comment){every}")]
    if any("dev_loss" in record for record in metrics):
        keys.append(("dev", f"dev, {NAMES[seen]} (per masked token)"))
    if with_gain:
        keys += [("none", "dev, the same model without context"), ("gain", "gain: the difference of the two")]
    if any("context_spread" in record for record in metrics):
        keys.append(("spread", "how much the encoder's vectors differ from text to text (near zero no ancestor can help)"))
    legend = "".join(f'<span class="key {kind}">{text(name)}</span>' for kind, name in keys)
    return Section(title, f'<p class="legend">{legend}</p><div class="figures">{"".join(figures)}</div>')


def _losses(metrics: Sequence[Mapping[str, float]], key: str, window: int, seen: Seen) -> list[Line]:
    loss = np.array([record["loss"] for record in metrics])
    lines = [Line("train", "train", np.array([float(record[key]) for record in metrics]), smooth(loss, window))]
    for name, field, kind in ((f"dev, {NAMES[seen]}", "dev_loss", "dev"), ("dev, without context", "dev_loss_none", "none")):
        had = [record for record in metrics if field in record]
        x, y = (np.array([float(record[each]) for record in had]) for each in (key, field))
        lines.append(Line(name, kind, x, y, marks=True))
    return lines


def _gain_chart(metrics: Sequence[Mapping[str, float]]) -> str:
    had = [record for record in metrics if "dev_loss_none" in record]
    tokens = np.array([float(record["target_tokens"]) for record in had])
    gains = np.array([record["dev_loss_none"] - record["dev_loss"] for record in had])
    line = Line("gain", "gain", tokens, gains, marks=True)
    return line_chart([line], "tokens of predicted comments seen", "gain, nats per masked token", zero=True)


def _spread_chart(metrics: Sequence[Mapping[str, float]]) -> str:
    had = [record for record in metrics if "context_spread" in record]
    x, y = (np.array([float(record[each]) for record in had]) for each in ("target_tokens", "context_spread"))
    line = Line("spread", "spread", x, y, marks=True)
    return line_chart([line], "tokens of predicted comments seen", "spread of the context vectors, share", zero=True)


def figure(svg: str) -> str:
    return f"<figure>{svg}</figure>"


# --- the table by depth -----------------------------------------------------------------------------------------------


def by_depth(measured: Measured, title: str = "What the context is worth, by depth") -> Section:
    """Loss of one model by what it reads, and the differences, with bootstrap intervals over trees."""
    own = measured.scores[measured.own]
    others: list[Seen] = [seen for seen in measured.scores if seen != measured.own]
    gains = [gain(own, measured.scores[seen]) for seen in others]
    shown = [interval for each in gains for interval in each.values()]
    scale = (min((i.low for i in shown), default=0.0), max((i.high for i in shown), default=1.0))
    head = "".join(f"<th>{text(NAMES[seen])}</th>" for seen in measured.scores)
    head += "".join(f'<th colspan="2">saved, against the same model {text(NAMES[seen])}</th>' for seen in others)
    rows = [
        _depth_row(name, measured.scores, gains, scale)
        for name in ("all", *DEPTH_BINS)
        if name == "all" or own.count[:, list(DEPTH_BINS).index(name)].any()
    ]
    table = f'<table class="numbers"><thead><tr><th>depth</th><th>masked tokens</th>{head}</tr></thead>'
    table += f"<tbody>{''.join(rows)}</tbody></table>"
    lead = (
        f"Loss in nats per masked token on {trees_of(measured.split)}: {measured.trees:,} trees, {measured.comments:,} "
        f"comments, {counted(measured.draws, 'draw')} of masks each, the same masks in every column. In "
        "small print, 95 % intervals (bootstrap over trees, 10,000 resamples; paired for differences)."
    )
    return Section(title, f'<div class="wide">{table}</div>', lead)


def _depth_row(
    name: str, scores: Mapping[Seen, Scores], gains: Sequence[Mapping[str, Interval]], scale: tuple[float, float]
) -> str:
    columns = slice(None) if name == "all" else slice(place := list(DEPTH_BINS).index(name), place + 1)
    count = next(iter(scores.values())).count[:, columns].sum(1)
    cells = [f"<th scope='row'>{text(name)}</th><td>{count.sum():,}</td>"]
    for each in scores.values():
        cells.append(f"<td>{_estimate(bootstrap_ratio(each.loss[:, columns].sum(1), count), count, '.3f')}</td>")
    for each in gains:
        interval = each[name]
        mark = interval_mark(interval.value, interval.low, interval.high, *scale) if _trees(count) > 1 else ""
        cells.append(f"<td>{_estimate(interval, count, '+.3f')}</td><td>{mark}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _trees(count: np.ndarray) -> int:
    return int((count > 0).sum())


def _estimate(interval: Interval, count: np.ndarray, form: str) -> str:
    """An interval over a single tree says nothing."""
    value, low, high = (number(each, form) for each in (interval.value, interval.low, interval.high))
    return f"{value}<small>{'one tree only' if _trees(count) < 2 else f'{low} to {high}'}</small>"


# --- filled masks -----------------------------------------------------------------------------------------------------


def filled(examples: Sequence[Filling], title: str = "Masks filled") -> Section:
    """Masked words with the likeliest pieces, by what the comment reads."""
    if not examples:
        return Section(title, "<p>No comment stands at depth 2 or deeper in these trees.</p>")
    cards = "".join(_card(example) for example in examples)
    return Section(
        title,
        f'<div class="cards">{cards}</div>',
        f"{text(RULE)} Higher is better: the share that the model gives to the word that stood there.",
    )


def _card(example: Filling) -> str:
    reads = not all(seen in BLIND for seen in example.guesses)
    above = "".join(f"<li>{text(shortened(each, ABOVE)) or '<i>(no text)</i>'}</li>" for each in example.ancestors)
    above = f'<ol class="above">{above}</ol>' if reads else ""
    before, after = example.before, example.after
    before = "… " + before[-AROUND:].split(" ", 1)[-1] if len(before) > AROUND else before
    after = shortened(after, AROUND)
    gap = " " if before[-1:].isspace() else ""
    behind = " " if example.after[:1].isspace() else ""
    own = f"<p>{text(before)}{gap}<mark>{text(example.word)}</mark>{behind}{text(after)}</p>"
    guesses = "".join(_guess(seen, guess, example.word) for seen, guess in example.guesses.items())
    title = f"<h3>{text(shortened(example.title, 80))}</h3>" if example.title else ""
    return f"<article>{title}{above}{own}<table>{guesses}</table></article>"


def _guess(seen: Seen, guess: Guess, word: str) -> str:
    best = " · ".join(f"{text(token)} {percent(share)}" for token, share in guess.tokens)
    return (
        f"<tr class='{'none' if seen in BLIND else 'dev'}'><th>{text(NAMES[seen])}</th>"
        f"<td>{text(word)} <b>{percent(guess.probability)}</b></td><td>{best}</td></tr>"
    )


# --- data and circumstances -------------------------------------------------------------------------------------------


def data(info: Mapping[str, Any], unread: Sequence[tuple[str, str]] = ()) -> Section:
    """What the data set holds, what was left out of it and why, and what the model could not read."""
    pairs: list[tuple[str, str]] = []
    if info:
        pairs += [
            ("trees, nodes, comments", " · ".join(f"{info[name]:,}" for name in ("trees", "nodes", "comments"))),
            *((f"{name} split", f"{each['trees']:,} trees, {each['nodes']:,} nodes") for name, each in info["splits"].items()),
            ("format", str(info["format"])),
            ("inputs", "; ".join(f"{each['name']} ({each['bytes']:,} bytes)" for each in info["inputs"])),
            ("posts read", f"{info['read']:,}"),
            *((f"left out: {reason}", f"{count:,}") for reason, count in info["skipped"].items()),
            *((f"kept, though {reason}", f"{count:,}") for reason, count in info["kept"].items() if count),
            ("content hash", str(info["hash"])),
        ]
        if not any(info["skipped"].values()):
            pairs.append(("left out", "nothing"))
    pairs += unread
    return Section("Data", _definitions(pairs))


def unread(cut: Mapping[str, int], without_tokens: int) -> list[tuple[str, str]]:
    """What of the texts the model could not read."""
    lost = f"{cut['tokens_over']:,} ({share_over(cut):.2%}), in {cut['texts_over']:,} texts"
    return [
        ("tokens", f"{cut['tokens']:,} in {cut['texts']:,} texts"),
        ("tokens past the model's longest text", lost),
        *([("texts cut into a chain of nodes", f"{cut['texts_chained']:,}")] if "texts_chained" in cut else []),
        ("texts without a token", f"{without_tokens:,}"),
    ]


def circumstances(record: Mapping[str, Any], metrics: Sequence[Mapping[str, float]]) -> Section:
    """Command, seed, commit, hardware, time; and all settings, folded away."""
    run, where = record["run"], record["environment"]
    pairs = [
        ("command", where["command"]),
        ("seed", run["seed"]),
        ("commit", where["commit"] or "not known (no git repository)"),
        (
            "hardware",
            f"{where['hardware']}, {counted(where['threads'], 'thread')}, {counted(where['processes'], 'process', 'es')}",
        ),
        ("versions", f"ramify {where['ramify']}, torch {where['torch']}, Python {where['python']}"),
        ("parameters", f"{record['parameters']:,}"),
    ]
    for again in record.get("resumed", []):
        pairs.append(("resumed", f"at commit {again['commit'] or 'not known'}, on {again['hardware']}"))
    if metrics:
        last = metrics[-1]
        pace = last["target_tokens"] / max(1e-9, last["seconds"])
        what = "messages whose links are learned" if "messages" in record else "predicted comments"
        pairs.append(("training time", f"{duration(last['seconds'])}, {pace:,.0f} tokens of {what} a second"))
    settings = json.dumps(run, indent=2, ensure_ascii=False)
    body = _definitions(pairs) + f"<details><summary>All settings</summary><pre>{escape(settings)}</pre></details>"
    return Section("How it was run", body)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _definitions(pairs: Sequence[tuple[str, Any]]) -> str:
    return f"<dl>{''.join(f'<dt>{text(name)}</dt><dd>{text(value)}</dd>' for name, value in pairs)}</dl>"

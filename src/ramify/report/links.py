"""The parts of a report on a model of who replied to whom."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramify.dataset.store import Split
from ramify.metrics.conversations import bootstrap, score
from ramify.report.charts import Line, line_chart, smooth
from ramify.report.sections import Section, figure, text
from ramify.tasks.linking import Measured

NAMES = {
    "link": "links",
    "cluster": "conversations, found exactly (two messages or more)",
    "vi": "1 − variation of information",
    "one_to_one": "one-to-one overlap",
    "ari": "adjusted Rand index",
    "nmi": "normalised mutual information",
    "shen_f": "Shen's F",
    "local_3": "Local-3",
}


def curves(metrics: Sequence[Mapping[str, float]]) -> Section:
    """Loss, and the scores on dev, against updates."""
    title = "Learning curves"
    if not metrics:
        return Section(title, "<p>Nothing was logged yet.</p>")
    window = max(1, len(metrics) // 15)
    steps, losses = (np.array([float(record[name]) for record in metrics]) for name in ("step", "loss"))
    dev = [record for record in metrics if "dev_nats" in record]
    at = np.array([float(record["step"]) for record in dev])

    def line(name: str, field: str, kind: str) -> Line:
        return Line(name, kind, at, np.array([float(record[field]) for record in dev]), marks=True)

    loss = [Line("train", "train", steps, smooth(losses, window))]
    figures, keys = [], [("train", f"train{f', mean of {window} logged steps' if window > 1 else ''}")]
    if dev:
        loss.append(line("dev", "dev_nats", "dev"))
        keys += [("dev", "dev; F of links"), ("gain", "F of whole conversations")]
        scores = [line("links", "dev_link_f1", "dev"), line("conversations", "dev_cluster_f1", "gain")]
        figures.append(figure(line_chart(scores, "updates", "F on dev, percent")))
    figures.insert(0, figure(line_chart(loss, "updates", "nats a message")))
    legend = "".join(f'<span class="key {kind}">{text(name)}</span>' for kind, name in keys)
    return Section(title, f'<p class="legend">{legend}</p><div class="figures">{"".join(figures)}</div>')


def table(measured: Measured, split: Split) -> Section:
    """All scores by the official protocol, with intervals over logs."""
    found = measured.match
    scores = score(found.logs)
    intervals = bootstrap(found.logs) if len(found.logs) > 1 else None
    rows = []
    for name, spelled in NAMES.items():
        values: dict[str, Any] = scores[name] if isinstance(scores[name], dict) else {"": scores[name]}
        for part, value in values.items():
            between = ""
            if intervals is not None:
                own = intervals[name][part] if part else intervals[name]
                between = f"{own.low:.2f} to {own.high:.2f}"
            what = f"{spelled}: {part.replace('f1', 'F')}" if part else spelled
            rows.append(f"<tr><th>{text(what)}</th><td>{value:.2f}</td><td>{between}</td></tr>")
    messages = sum(len(log.messages) for log in found.logs)
    lead = (
        f"{messages:,} messages whose link is known, in {len(found.logs):,} logs of the split {text(split)}; percent, by the "
        "official protocol (sums over all logs). Intervals: 95 %, logs drawn with replacement. Here {measured.told}."
    )
    body = f"<table><thead><tr><th>score</th><th>value</th><th>interval</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return Section("Links and conversations", body, lead)


def data(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the model could not learn from."""
    return [
        ("training messages", f"{record['messages']:,}, of {record['messages_with_links']:,} the link is known"),
        ("links beyond the window", f"{record['beyond_window']:,}"),
        ("unknown words", f"{record['unknown_words']:.2%}"),
    ]

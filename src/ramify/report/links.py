"""The parts of a report on a model of who replied to whom."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramify.dataset.store import Split
from ramify.disentangle.inference.evaluation import HISTORY_TEXT, LinkEvaluation, ReadHistory
from ramify.disentangle.inference.reply_trees import ReplyEvaluation
from ramify.metrics.conversations import bootstrap, score
from ramify.report.charts import Line, line_chart, smooth
from ramify.report.sections import Section, figure, text

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


REPLY_NAMES = {
    "graph_accuracy": "comments whose parent is found (graph accuracy)",
    "graph_accuracy_without_first": "without the first of each conversation, which can answer nothing but the post",
    "conv_accuracy": "conversations all of whose parents are found (conversation accuracy)",
}


def curves(metrics: Sequence[Mapping[str, float]], history: ReadHistory | None = None) -> Section:
    """Loss, and the scores on dev, against updates; `history` is what the model was told there."""
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
        replies = "dev_graph_accuracy" in dev[0]
        names = ("dev_graph_accuracy", "dev_conv_accuracy") if replies else ("dev_link_f1", "dev_cluster_f1")
        score_name = "accuracy" if replies else "F"
        keys += [("dev", f"dev; {score_name} of links"), ("gain", f"{score_name} of whole conversations")]
        scores = [line("links", names[0], "dev"), line("conversations", names[1], "gain")]
        figures.append(figure(line_chart(scores, "updates", f"{score_name} on dev, percent")))
    figures.insert(0, figure(line_chart(loss, "updates", "nats a message")))
    legend = "".join(f'<span class="key {kind}">{text(name)}</span>' for kind, name in keys)
    lead = text(f"On dev {HISTORY_TEXT[history]}.") if dev and history else ""
    return Section(title, f'<p class="legend">{legend}</p><div class="figures">{"".join(figures)}</div>', lead)


def table(measured: LinkEvaluation, split: Split) -> Section:
    """All scores by the official protocol, with intervals over logs."""
    found = measured.match
    scores = score(found.logs)
    intervals = bootstrap(found.logs) if len(found.logs) > 1 else None
    rows: list[tuple[str, float, str]] = []
    for name, spelled in ((name, spelled) for name, spelled in NAMES.items() if name not in measured.unknown):
        values: dict[str, Any] = scores[name] if isinstance(scores[name], dict) else {"": scores[name]}
        for part, value in values.items():
            between = ""
            if intervals is not None:
                own = intervals[name][part] if part else intervals[name]
                between = f"{own.low:.2f} to {own.high:.2f}"
            what = f"{spelled}: {part.replace('f1', 'F')}" if part else spelled
            rows.append((what, value, between))
    messages = sum(len(log.messages) for log in found.logs)
    lead = (
        f"{messages:,} messages whose {measured.gold[:-1]} is known, in {len(found.logs):,} logs of the split {text(split)}; "
        "percent, by the official protocol (sums over all logs). Intervals: 95 %, logs drawn with replacement. Here "
        f"{measured.describe()}."
    )
    return Section("Links and conversations", _table(rows), lead)


def replies_table(measured: ReplyEvaluation, split: Split) -> Section:
    """Accuracies of the model, and of rules that do not read."""
    systems = {"the model": measured.model} | {f"rule: {name}": each for name, each in measured.baselines.items()}
    rows = [
        (f"{system}: {REPLY_NAMES[name]}", each.value, f"{each.low:.2f} to {each.high:.2f}")
        for system, replies in systems.items()
        for name, each in replies.intervals().items()
    ]
    comments = measured.model.comments
    lead = (
        f"{comments.sum():,} comments in {len(comments):,} conversations of the split {text(split)}; percent. Intervals: 95 %, "
        f"conversations drawn with replacement. Here {HISTORY_TEXT[measured.history]}."
    )
    return Section("Replies", _table(rows), lead)


def _table(rows: Sequence[tuple[str, float, str]]) -> str:
    """Names of scores, their values and their intervals."""
    lines = "".join(f"<tr><th>{text(what)}</th><td>{value:.2f}</td><td>{between}</td></tr>" for what, value, between in rows)
    head = "<thead><tr><th>score</th><th>value</th><th>interval</th></tr></thead>"
    return f'<table class="scores">{head}<tbody>{lines}</tbody></table>'


def data(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the model could not learn from."""
    return [
        ("training messages", f"{record['messages']:,}, of {record['messages_with_links']:,} the link is known"),
        ("links beyond the window", f"{record['beyond_window']:,}"),
        ("unknown words", f"{record['unknown_words']:.2%}"),
    ]

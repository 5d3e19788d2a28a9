"""Reports on disentanglement models: curves, scores of links and conversations, accuracy of replies."""

from collections.abc import Mapping
from typing import Any

from ramify.dataset.store import Split, Store
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import (
    HISTORY_TEXT,
    LinkEvaluation,
    ReadHistory,
    evaluate_links,
    find_history,
)
from ramify.disentangle.inference.reply_trees import ReplyEvaluation, evaluate_replies
from ramify.disentangle.task import CLUSTER_F1, CONV_ACCURACY, GRAPH_ACCURACY, LINK_F1, ReplyLinking
from ramify.errors import RamifyError, counted
from ramify.metrics.conversations import bootstrap, score
from ramify.metrics.metric import DEV_LOSS
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.curves import TITLE, Metrics, dev_line, no_curves, smoothing, train_line
from ramify.runs.sections import Cell, Chart, Charts, Section, Spans, Strong, Table, chosen_on_dev

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
    "graph_accuracy_without_first": "the same without first comments, which can only answer the post",
    "conv_accuracy": "conversations in which every parent is found (conversation accuracy)",
}

SCORE_COLUMNS = ("score", "value", "interval")


def parts(window: int, history: Any, request: ReportRequest) -> ReportParts:
    """The parts of a report on a run with this `input.window` and `dev.history`."""
    store, split = request.store, request.split
    links = request.pipeline if isinstance(request.pipeline, Disentangler) else None
    sections, headline, missing = [curves(request.metrics, find_history(links.task, history) if links else None)], (), ""
    if links is not None and store is not None:
        try:
            table, headline = _replies(links, store, split) if store.structure == "replies" else _links(links, store, split)
            sections.append(table)
        except RamifyError as error:
            missing = str(error)
    return ReportParts(
        purpose=f"finds the messages that a message answers, among the {window} before it",
        examples="messages",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=data(request.record),
    )


def _links(model: Disentangler, store: Store, split: Split) -> tuple[Section, Spans]:
    measured = evaluate_links(model, store, split)
    scores = score(measured.match.logs)
    headline = (
        f"On the {split} logs it finds ",
        Strong(f"{scores['link']['f1']:.1f} %"),
        " of the links and ",
        Strong(f"{scores['cluster']['f1']:.1f} %"),
        " of the conversations (F).",
        *chosen_on_dev(split),
    )
    return table(measured, split), headline


def _replies(model: Disentangler, store: Store, split: Split) -> tuple[Section, Spans]:
    if not store.has_targets(split):
        raise RamifyError(f"The data set has no trees in the split {split!r} that hold a comment.")
    measured = evaluate_replies(model, store, split)
    scores = measured.model.scores()
    headline = (
        f"In the {split} trees it finds the parents of ",
        Strong(f"{scores['graph_accuracy']:.1f} %"),
        " of the comments, and all parents in ",
        Strong(f"{scores['conv_accuracy']:.1f} %"),
        " of the conversations.",
        *chosen_on_dev(split),
    )
    return replies_table(measured, split), headline


def curves(metrics: Metrics, history: ReadHistory | None = None) -> Section:
    """Loss and dev scores against updates. `history` is the reply history that the model had on dev."""
    if not metrics:
        return no_curves()
    loss = [train_line(metrics, "step", ReplyLinking.main_loss)]
    charts, legend = [], [("train", f"train{smoothing(metrics)}")]
    # Without known links within the window, dev has scores and no loss.
    if any(DEV_LOSS.name in record for record in metrics):
        loss.append(dev_line(metrics, "step", DEV_LOSS.name))
    measured = next((record for record in metrics if record.keys() & {GRAPH_ACCURACY.name, LINK_F1.name}), None)
    if measured is not None:
        replies = GRAPH_ACCURACY.name in measured
        links, conversations = (GRAPH_ACCURACY, CONV_ACCURACY) if replies else (LINK_F1, CLUSTER_F1)
        score_name = "accuracy" if replies else "F"
        legend += [("dev", f"dev; {score_name} of links"), ("gain", f"{score_name} of whole conversations")]
        scores = (
            dev_line(metrics, "step", links.name, "links"),
            dev_line(metrics, "step", conversations.name, "conversations", "gain"),
        )
        charts.append(Chart(scores, "updates", f"{score_name} on dev, percent"))
    charts.insert(0, Chart(tuple(loss), "updates", "nats per message"))
    lead = (f"On dev {HISTORY_TEXT[history]}.",) if measured is not None and history else ()
    return Section(TITLE, (Charts(tuple(charts), tuple(legend)),), lead)


def table(measured: LinkEvaluation, split: Split) -> Section:
    """All scores under the official protocol, with intervals over logs."""
    match = measured.match
    scores = score(match.logs)
    intervals = bootstrap(match.logs) if len(match.logs) > 1 else None
    rows: list[tuple[Cell, ...]] = []
    for name, spelled in ((name, spelled) for name, spelled in NAMES.items() if name not in measured.unknown):
        values: dict[str, Any] = scores[name] if isinstance(scores[name], dict) else {"": scores[name]}
        for part, value in values.items():
            between = ""
            if intervals is not None:
                interval = intervals[name][part] if part else intervals[name]
                between = f"{interval.low:.2f} to {interval.high:.2f}"
            what = f"{spelled}: {part.replace('f1', 'F')}" if part else spelled
            rows.append((Cell(what), Cell(f"{value:.2f}"), Cell(between)))
    messages = sum(len(log.messages) for log in match.logs)
    lead = (
        f"{counted(messages, 'message')} whose {measured.gold[:-1]} is known, in {counted(len(match.logs), 'log')} of the "
        "split "
        f"{split}; in percent, under the official protocol (sums over all logs). Intervals: 95 %, bootstrap over logs. Here "
        f"{measured.describe()}."
    )
    return Section("Links and conversations", (Table(SCORE_COLUMNS, tuple(rows), "scores"),), (lead,))


def replies_table(measured: ReplyEvaluation, split: Split) -> Section:
    """Accuracy of the model, and of rules that read no text."""
    systems = {"the model": measured.model} | {f"rule: {name}": baseline for name, baseline in measured.baselines.items()}
    rows = tuple(
        (
            Cell(f"{system}: {REPLY_NAMES[name]}"),
            Cell(f"{interval.value:.2f}"),
            Cell(f"{interval.low:.2f} to {interval.high:.2f}"),
        )
        for system, replies in systems.items()
        for name, interval in replies.intervals().items()
    )
    comments = measured.model.comments
    lead = (
        f"{counted(int(comments.sum()), 'comment')} in {counted(len(comments), 'conversation')} of the split {split}; in "
        f"percent. Intervals: 95 %, bootstrap over conversations. Here {HISTORY_TEXT[measured.history]}."
    )
    return Section("Replies", (Table(SCORE_COLUMNS, rows, "scores"),), (lead,))


def data(record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Facts about the training messages."""
    return (
        ("training messages", f"{record['messages']:,}, {record['messages_with_links']:,} with a known link"),
        ("links beyond the window", f"{record['beyond_window']:,}"),
        ("unknown words", f"{record['unknown_words']:.2%}"),
    )

"""The report of a run directory, finished or not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from ramify import hub
from ramify.batching.views.comment_trees import Seen
from ramify.dataset.store import Split, Store
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import evaluate_links, find_history
from ramify.disentangle.inference.reply_trees import evaluate_replies
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.inference.evaluation import gain
from ramify.metrics.conversations import score
from ramify.report import links, sections
from ramify.report.measure import BLIND, NAMES, Measured, fillings, measure
from ramify.report.page import write_page
from ramify.report.sections import Section, number, text, trees_of
from ramify.runs import RUN_FILE, from_json, prepare, read_record
from ramify.tasks.base import Task
from ramify.tasks.masked_lm import MaskedLM
from ramify.training.checkpoints import newest_weights
from ramify.training.trainer import BEST, read_metrics

REPORT = "report.html"

NO_COMMENTS = "The data set has no trees in the split {split!r} that hold a comment."

DRAWS, COMMENTS = 2, 2000
"""Masks and comments of the evaluation that ends a training run: enough to see, quick to have."""


def write_report(
    run_dir: str | Path,
    data: str | Path | None = None,
    *,
    split: Split = "dev",
    draws: int = DRAWS,
    comments: int = COMMENTS,
    evaluate: bool = True,
    device: str | torch.device | None = None,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Write `report.html` into a run directory: curves, the table by depth, filled masks, data and circumstances.

    `data` is the built data set, by default the run's own. Without `evaluate`, and where the data or any weights are missing,
    the page says so in place of the parts that need them. An interrupted run is shown with the weights that it left.
    """
    run_dir = Path(run_dir)
    if not (run_dir / RUN_FILE).is_file():
        raise RamifyError(f"{run_dir} is not a run: it has no {RUN_FILE}. Train one with: ramify train RECIPE --out {run_dir}")
    record = read_record(run_dir)
    metrics = read_metrics(run_dir)
    run = record["run"]
    store, missing = (Store.open(data), "") if data else _store(run["data"])
    task = None
    if not evaluate:
        missing = "This page was written without an evaluation."
    elif store is not None:
        task, missing = _model(run_dir, record, store, device or "cpu")
    if run["task"].get("name") == "reply-to":
        history = find_history(task, run["dev"]["history"]) if isinstance(task, ReplyLinking) else None
        shown = _Shown([links.curves(metrics, history)])
    else:
        shown = _Shown([sections.curves(metrics, cast(Seen, run["reading"]["seen"]))])
    if isinstance(task, ReplyLinking) and store is not None:
        shown = _links(Disentangler(task, from_json(run).decoding), store, split, shown.parts)
    elif isinstance(task, MaskedLM) and store is not None:
        shown = _masked_words(task, store, split, draws, comments, progress, shown.parts)
    parts, missing = shown.parts, missing or shown.missing
    if missing:
        again = f"ramify report {run_dir} --data DIR"
        parts.append(Section("Evaluation", f'<p class="notice">{text(missing)} To add it: <code>{text(again)}</code></p>'))
    parts.append(_data(record, store))
    parts.append(sections.circumstances(record, metrics))
    title = f"{run['recipe']} on {Path(run['data']).name}"
    lead = _lead(run_dir, record, metrics) + shown.lead
    write_page(run_dir / REPORT, kind="Report of a training run", title=title, lead=lead, sections=parts)
    return run_dir / REPORT


class _Shown(NamedTuple):
    """What a report shows of a model: sections, its one number, or why there is none."""

    parts: list[Section]
    lead: str = ""
    missing: str = ""


def _masked_words(
    task: MaskedLM,
    store: Store,
    split: Split,
    draws: int,
    comments: int,
    progress: Callable[[int], None] | None,
    parts: list[Section],
) -> _Shown:
    if not store.has_comments(split):
        return _Shown(parts, missing=NO_COMMENTS.format(split=split))
    found = measure(task, store, split, draws=draws, comments=comments, progress=progress)
    return _Shown([*parts, sections.by_depth(found), sections.filled(fillings(task, store, split))], _gain(found))


def _links(model: Disentangler, store: Store, split: Split, parts: list[Section]) -> _Shown:
    if store.holds_reply_trees:
        return _replies(model, store, split, parts)
    try:
        measured = evaluate_links(model, store, split)
    except RamifyError as error:
        return _Shown(parts, missing=str(error))
    scores = score(measured.match.logs)
    lead = (
        f"<p>On the {split} logs it finds <b>{scores['link']['f1']:.1f} %</b> of the links and "
        f"<b>{scores['cluster']['f1']:.1f} %</b> of the conversations (F).{_chosen_on_dev(split)}</p>"
    )
    return _Shown([*parts, links.table(measured, split)], lead)


def _replies(model: Disentangler, store: Store, split: Split, parts: list[Section]) -> _Shown:
    if not store.has_comments(split):
        return _Shown(parts, missing=NO_COMMENTS.format(split=split))
    measured = evaluate_replies(model, store, split)
    scores = measured.model.scores()
    lead = (
        f"<p>In the {split} trees it finds what <b>{scores['graph_accuracy']:.1f} %</b> of the comments answer, and all of "
        f"that in <b>{scores['conv_accuracy']:.1f} %</b> of the conversations.{_chosen_on_dev(split)}</p>"
    )
    return _Shown([*parts, links.replies_table(measured, split)], lead)


def _store(path: str) -> tuple[Store | None, str]:
    try:
        return Store.open(path), ""
    except RamifyError as error:
        return None, f"The data set is not at hand ({error})."


def _model(run_dir: Path, record: dict[str, Any], store: Store, device: str | torch.device) -> tuple[Task | None, str]:
    """The trained model; of an unfinished run the best or newest weights that it left."""
    if (run_dir / hub.CONFIG).exists():
        return hub.load(run_dir, device=device).task, ""
    weights = run_dir / BEST if (run_dir / BEST).exists() else newest_weights(run_dir)
    if weights is None:
        return None, "This run has not written any weights yet."
    try:
        task = prepare(replace(from_json(record["run"]), data=str(store.path)), run_dir).task
    except RamifyError as error:
        return None, f"The unfinished run's model cannot be built again ({error})."
    hub.load_weights(task, weights)
    return task.to(hub.find_device(device)), ""


def _data(record: dict[str, Any], store: Store | None) -> Section:
    if store is not None and store.hash != record["data_hash"]:
        section = sections.data(store.info)
        return Section(section.title, section.body, "This is not the data set that the model was trained on.")
    unread = sections.unread(record["cut"], record["without_tokens"]) if "cut" in record else links.data(record)
    return sections.data(store.info if store else {}, unread)


def _lead(run_dir: Path, record: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    """What the run is, and how far it came."""
    run = record["run"]
    if run["task"].get("name") == "reply-to":
        does, tokens = f"says which of the {run['reading']['window']} messages before it a message answers", "messages"
    else:
        does, tokens = f"fills masked words in comments, each read {NAMES[run['reading']['seen']]}", "predicted comments"
    what = f"A {run['model']['name']} model of {record['parameters'] / 1e6:.1f} million parameters"
    start = f", started from {run['init']}," if run["init"] else ", trained from scratch,"
    lines = [f"{what}{start} {does}."]
    last = metrics[-1] if metrics else None
    if last is None:
        lines.append("It has not logged a step yet.")
    else:
        state = (
            "It saw" if (run_dir / hub.CONFIG).exists() else f"It stands at {last['progress']:.0%}, unfinished, and saw so far"
        )
        lines.append(f"{state} {last['target_tokens']:,} tokens of {tokens} in {last['step']:,} updates.")
    return f"<p>{text(' '.join(lines))}</p>"


def _gain(found: Measured) -> str:
    """The one number of a model that fills masks."""
    if found.own in BLIND:
        return ""
    saved = gain(found.scores[found.own], found.scores["none"])["all"]
    interval = (
        f"95 % interval {number(saved.low, '+.4f')} to {number(saved.high, '+.4f')}" if found.trees > 1 else "one tree only"
    )
    return (
        f"<p>On {trees_of(found.split)}, reading comments {text(NAMES[found.own])} instead of without saves the "
        f"model <b>{number(saved.value, '+.4f')} nats per masked token</b> ({interval})."
        f"{_chosen_on_dev(found.split)} This compares one model with itself: how a model fares that was trained "
        "without context is a matter of another run.</p>"
    )


def _chosen_on_dev(split: Split) -> str:
    return " The weights were chosen on these; <code>--split test</code> has not seen them." if split == "dev" else ""

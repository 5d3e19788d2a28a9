"""The report of a run directory, finished or not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from ramify import hub
from ramify.checkpoints import newest_weights
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.evaluate import gain
from ramify.report import sections
from ramify.report.measure import BLIND, NAMES, Measured, fillings, measure
from ramify.report.page import write_page
from ramify.report.sections import Section, number, text, trees_of
from ramify.run import RUN_FILE, from_json, prepare, read_record
from ramify.tasks.masked_lm import MaskedLM
from ramify.train import BEST, read_metrics
from ramify.views import Seen

REPORT = "report.html"

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
    found, parts = None, [sections.curves(metrics, cast(Seen, run["reading"]["seen"]))]
    if not evaluate:
        missing = "This page was written without an evaluation."
    elif store is not None:
        task, missing = _model(run_dir, record, store, device or "cpu")
        if task is not None and not store.has_comments(split):
            missing = f"The data set has no trees in the split {split!r} that hold a comment."
        elif task is not None:
            found = measure(task, store, split, draws=draws, comments=comments, progress=progress)
            parts += [sections.by_depth(found), sections.filled(fillings(task, store, split))]
    if missing:
        again = f"ramify report {run_dir} --data DIR"
        parts.append(Section("Evaluation", f'<p class="notice">{text(missing)} To add it: <code>{text(again)}</code></p>'))
    parts.append(_data(record, store))
    parts.append(sections.circumstances(record, metrics))
    title = f"{run['recipe']} on {Path(run['data']).name}"
    lead = _lead(run_dir, record, metrics, found)
    write_page(run_dir / REPORT, kind="Report of a training run", title=title, lead=lead, sections=parts)
    return run_dir / REPORT


def _store(path: str) -> tuple[Store | None, str]:
    try:
        return Store.open(path), ""
    except RamifyError as error:
        return None, f"The data set is not at hand ({error})."


def _model(run_dir: Path, record: dict[str, Any], store: Store, device: str | torch.device) -> tuple[MaskedLM | None, str]:
    """The trained model; of an unfinished run the best or newest weights that it left."""
    if (run_dir / hub.CONFIG).exists():
        task = hub.load(run_dir, device=device)
        return (task, "") if isinstance(task, MaskedLM) else (None, "This model does not fill masks.")
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
    return sections.data(store.info if store else {}, record["cut"], record["without_tokens"])


def _lead(run_dir: Path, record: dict[str, Any], metrics: list[dict[str, Any]], found: Measured | None) -> str:
    """What the run is, how far it came, and its one number."""
    run = record["run"]
    seen = run["reading"]["seen"]
    what = f"A {run['model']['name']} model of {record['parameters'] / 1e6:.1f} million parameters"
    start = f", started from {run['init']}," if run["init"] else ", trained from scratch,"
    lines = [f"{what}{start} fills masked words in comments, each read {NAMES[seen]}."]
    last = metrics[-1] if metrics else None
    if last is None:
        lines.append("It has not logged a step yet.")
    else:
        state = (
            "It saw" if (run_dir / hub.CONFIG).exists() else f"It stands at {last['progress']:.0%}, unfinished, and saw so far"
        )
        lines.append(f"{state} {last['target_tokens']:,} tokens of predicted comments in {last['step']:,} updates.")
    paragraphs = [f"<p>{text(' '.join(lines))}</p>"]
    if found is not None and found.own not in BLIND:
        saved = gain(found.scores[found.own], found.scores["none"])["all"]
        paragraphs.append(
            f"<p>On {trees_of(found.split)}, reading comments {text(NAMES[found.own])} instead of without saves the "
            f"model <b>{number(saved.value, '+.4f')} nats per masked token</b> (95 % interval {number(saved.low, '+.4f')} to "
            f"{number(saved.high, '+.4f')})."
            f"{_chosen_on_dev(found.split)} This compares one model with itself: how a model fares that was trained "
            "without context is a matter of another run.</p>"
        )
    return "".join(paragraphs)


def _chosen_on_dev(split: Split) -> str:
    return " The weights were chosen on these trees; <code>--split test</code> has not seen them." if split == "dev" else ""

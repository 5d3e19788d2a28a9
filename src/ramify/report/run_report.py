"""The report of a run directory, finished or not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ramify import hub
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.evaluate import gain
from ramify.report import sections
from ramify.report.measure import BLIND, NAMES, Measured, fillings, measure
from ramify.report.page import write_page
from ramify.report.sections import Section, text
from ramify.run import RUN_FILE, from_json, prepare
from ramify.tasks.masked_lm import MaskedLM
from ramify.train import BEST, CHECKPOINTS, read_metrics
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
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Write `report.html` into a run directory: curves, the table by depth, filled masks, data and circumstances.

    `data` is the built data set, by default the run's own. Without `evaluate`, and where the data or any weights are missing,
    the page says so in place of the parts that need them.
    """
    run_dir = Path(run_dir)
    try:
        record = json.loads((run_dir / RUN_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        raise RamifyError(
            f"{run_dir} is not a run: it has no {RUN_FILE}. Train one with: ramify train RECIPE --out {run_dir}"
        ) from None
    metrics = read_metrics(run_dir)
    seen = cast(Seen, record["run"]["reading"]["seen"])
    store, missing = _store(Path(data or record["run"]["data"]))
    parts = [sections.curves(metrics, seen)]
    found = None
    if not evaluate:
        missing = "This page was written without an evaluation."
    elif store is not None:
        task, missing = _model(run_dir, record)
        if task is not None:
            found, missing = _measured(task, store, split, draws, comments, progress)
        if task is not None and found is not None:
            parts += [sections.by_depth(found), sections.filled(fillings(task, store, split))]
    if missing:
        again = f"ramify report {run_dir} --data DIR"
        parts.append(Section("Evaluation", f'<p class="notice">{text(missing)} To add it: <code>{text(again)}</code></p>'))
    info = store.info if store else {}
    parts.append(sections.data(info, record["cut"], record["without_tokens"]))
    parts.append(sections.circumstances(record, metrics))
    path = run_dir / REPORT
    run = record["run"]
    title = f"{run['recipe']} on {Path(run['data']).name}"
    write_page(path, kind="Report of a training run", title=title, lead=_lead(run_dir, record, metrics, found), sections=parts)
    return path


def _store(path: Path) -> tuple[Store | None, str]:
    try:
        return Store.open(path), ""
    except RamifyError as error:
        return None, f"The data set is not at hand ({error})."


def _model(run_dir: Path, record: dict[str, Any]) -> tuple[MaskedLM | None, str]:
    """The trained model; of an unfinished run the best or newest weights that it left."""
    if (run_dir / hub.CONFIG).exists():
        task = hub.load(run_dir)
        return (task, "") if isinstance(task, MaskedLM) else (None, "This model does not fill masks.")
    newest = sorted((run_dir / CHECKPOINTS).glob("step-*/model.safetensors"))
    weights = run_dir / BEST if (run_dir / BEST).exists() else newest[-1] if newest else None
    if weights is None:
        return None, "This run has not written any weights yet."
    try:
        task = prepare(from_json(record["run"]), run_dir).task
    except RamifyError as error:
        return None, f"The unfinished run's model cannot be built again ({error})."
    hub.load_weights(task, weights)
    return task, ""


def _measured(
    task: MaskedLM, store: Store, split: Split, draws: int, comments: int, progress: Callable[[int], None] | None
) -> tuple[Measured | None, str]:
    try:
        return measure(task, store, split, draws=draws, comments=comments, progress=progress), ""
    except RamifyError as error:
        return None, str(error)


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
            f"<p>On the {text(found.split)} trees, reading its comments {text(NAMES[found.own])} instead of without saves the model "
            f"<b>{saved.value:+.4f} nats per masked token</b> (95 % interval {saved.low:+.4f} to {saved.high:+.4f})."
            f"{_chosen_on_dev(found.split)} This compares one model with itself: how a model fares that was trained "
            "without context is a matter of another run.</p>"
        )
    return "".join(paragraphs)


def _chosen_on_dev(split: Split) -> str:
    return " The weights were chosen on these trees; <code>--split test</code> has not seen them." if split == "dev" else ""

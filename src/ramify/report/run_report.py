"""The report of a run, finished or not."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ramify import hub
from ramify.dataset import statistics
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted, in_words
from ramify.hub import RUN_FILE
from ramify.inference.base import Pipeline
from ramify.report.html import draw, spans, text
from ramify.report.page import write_page
from ramify.runs import read_run
from ramify.runs.base import ReportParts, ReportRequest, Run
from ramify.runs.learning import learning
from ramify.runs.sections import Code, Definitions, Notice, Section
from ramify.training.metrics_log import read_metrics

REPORT = "report.html"

DRAWS, COMMENTS = 2, 2000
"""Masks per comment and number of comments in the quick evaluation at the end of training."""


def write_report(
    run_dir: str | Path,
    data: str | Path | None = None,
    *,
    out: Path | None = None,
    split: Split = "dev",
    draws: int = DRAWS,
    comments: int = COMMENTS,
    evaluate: bool = True,
    device: str | torch.device | None = None,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Write the report of a run, in its folder or to `out`: curves, scores, examples, data and settings.

    `data` is a built data set; the default is the run's own. Without `evaluate`, or if the data or the weights are missing, a
    notice replaces the parts that need them. An unfinished run is evaluated with its best weights so far.
    """
    run_dir = Path(run_dir)
    if not (run_dir / RUN_FILE).is_file():
        raise RamifyError(f"{run_dir} is not a run: it has no {RUN_FILE}. Train one with: ramify train RECIPE --out {run_dir}")
    run, record = read_run(run_dir)
    metrics = read_metrics(run_dir)
    store, missing = (Store.open(data), "") if data else _store(run.data)
    pipeline = None
    if not evaluate:
        missing = "This report was written without an evaluation."
    elif store is not None:
        pipeline, missing = _pipeline(run_dir, device)
    parts = run.report_sections(
        ReportRequest(record, metrics, pipeline, store if evaluate else None, split, draws, comments, progress)
    )
    sections = [*parts.sections, *learning(metrics)]
    if missing := missing or parts.missing:
        again = Code(f"ramify report {run_dir} --data DIR")
        sections.append(Section("Evaluation", (Notice((f"{missing} To add one: ", again)),)))
    sections.append(_data(record, store, parts))
    sections.append(circumstances(record, metrics, parts.examples))
    lead = _lead(run_dir, run, record, metrics, parts)
    title = f"{run.recipe} on {Path(run.data).name}"
    page = out or run_dir / REPORT
    write_page(
        page,
        kind="Report of a training run",
        title=title,
        lead=lead,
        sections=[draw(section) for section in sections],
    )
    return page


def _store(path: str) -> tuple[Store | None, str]:
    try:
        return Store.open(path), ""
    except RamifyError as error:
        return None, f"The data set cannot be opened ({error})."


def _pipeline(run_dir: Path, device: str | torch.device | None) -> tuple[Pipeline | None, str]:
    """The trained model, or the reason why there is none."""
    try:
        return hub.load(run_dir, device=device), ""
    except RamifyError as error:
        if (run_dir / hub.CONFIG).exists():
            raise
        return None, f"There is no model to evaluate ({error})."


def _lead(run_dir: Path, run: Run, record: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], parts: ReportParts) -> str:
    """The model, its progress, and its main score, as HTML."""
    name = record["run"]["model"]["name"]
    start = f", started from {run.init}," if run.init else ", trained from scratch,"
    article = "An" if name.startswith(("a", "e", "i", "o", "x")) else "A"
    weights = record["parameters"]
    size = f"{weights / 1e6:.1f} million parameters" if weights > 50_000 else counted(weights, "parameter")
    lines = [f"{article} {name} model of {size}{start} {parts.purpose}."]
    if not run.stages:
        lines.append("It was fitted in closed form.")
    elif not metrics:
        lines.append("It has not logged a step yet.")
    else:
        last = metrics[-1]
        finished = (run_dir / hub.CONFIG).exists()
        state = "It saw" if finished else f"It is unfinished, at {last['progress']:.0%}, and has seen"
        lines.append(
            f"{state} {counted(last['target_tokens'], 'token')} of {parts.examples} in {counted(last['step'], 'update')}."
        )
        if "epochs" in last:
            lines.append(f"The last stage has read its examples {last['epochs']:.1f} times.")
    headline = f"<p>{spans(parts.headline)}</p>" if parts.headline else ""
    return f"<p>{text(' '.join(lines))}</p>{headline}"


# --- data and circumstances -------------------------------------------------------------------------------------------


def _data(record: Mapping[str, Any], store: Store | None, parts: ReportParts) -> Section:
    if store is not None and store.hash != record["data_hash"]:
        return replace(data(store.info), lead=("This is not the data set that the model was trained on.",))
    return data(store.info if store else {}, parts.data)


def data(info: Mapping[str, Any], further: Sequence[tuple[str, str]] = ()) -> Section:
    """Counts of the data set, of posts left out by reason, and the `further` facts of a run."""
    pairs: list[tuple[str, str]] = []
    if info:
        tree, node = statistics.NOUNS[info["structure"]]
        pairs += [
            ("content", statistics.content(info)),
            *(
                (f"{name} split", f"{counted(split['trees'], tree)}, {counted(split['nodes'], 'node')}")
                for name, split in info["splits"].items()
            ),
            ("format", str(info["format"])),
            ("inputs", "; ".join(f"{file['name']} ({file['bytes']:,} bytes)" for file in info["inputs"])),
            ("read", counted(info["read"], node)),
            *((f"left out: {reason}", f"{count:,}") for reason, count in info["skipped"].items()),
            *((f"kept: {reason}", f"{count:,}") for reason, count in info["kept"].items() if count),
            ("content hash", str(info["hash"])),
        ]
        if not any(info["skipped"].values()):
            pairs.append(("left out", "nothing"))
    return Section("Data", (Definitions((*pairs, *further)),))


def circumstances(record: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], examples: str) -> Section:
    """Command, seed, commit, hardware and time; and all settings, folded."""
    run, where = record["run"], record["environment"]
    pairs = [
        ("command", where["command"]),
        ("seed", str(run["seed"])),
        ("commit", where["commit"] or "unknown (no git repository)"),
        (
            "hardware",
            f"{where['hardware']}, {counted(where['threads'], 'thread')}, {counted(where['processes'], 'process', 'es')}",
        ),
        ("versions", f"ramify {where['ramify']}, torch {where['torch']}, Python {where['python']}"),
        ("parameters", f"{record['parameters']:,}"),
    ]
    for again in record.get("resumed", []):
        pairs.append(("resumed", f"at commit {again['commit'] or 'unknown'}, on {again['hardware']}"))
    if metrics:
        last = metrics[-1]
        pace = last["target_tokens"] / max(1e-9, last["seconds"])
        pairs.append(("training time", f"{in_words(last['seconds'])}, {pace:,.0f} tokens of {examples} per second"))
    settings = json.dumps(run, indent=2, ensure_ascii=False)
    return Section("Circumstances of the run", (Definitions(tuple(pairs), folded=("All settings", settings)),))

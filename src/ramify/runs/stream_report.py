"""Reports on models of running text: learning curves and held-out scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramify.batching.views.streams import StreamConfig
from ramify.errors import RamifyError, counted
from ramify.inference.permutation import StreamPipeline
from ramify.runs import stream_scores
from ramify.runs.base import ReportParts, ReportRequest, no_progress
from ramify.runs.comment_tree_report import chosen_on_dev
from ramify.runs.sections import Cell, Chart, Charts, Line, Notice, Section, Spans, Strong, Table, smooth


def parts(config: StreamConfig, request: ReportRequest) -> ReportParts:
    """The parts of a report. `config` says how the held-out text is cut into streams."""
    sections: list[Section] = [curves(request.metrics)]
    headline: Spans = ()
    missing = ""
    model, store = request.pipeline, request.store
    if isinstance(model, StreamPipeline) and store is not None:
        try:
            options = {"draws": request.draws, "rows": request.comments or None, "progress": no_progress}
            found = stream_scores.score(model, str(store.path), store, request.split, config, options)
        except RamifyError as error:
            missing = str(error)
        else:
            section, headline = scores(request.split, found)
            sections.append(section)
    facts = request.record["text"]
    return ReportParts(
        purpose="predicts words of running text from other words of it and from the text before",
        examples="rows",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple((name.replace("_", " "), f"{value:,}") for name, value in facts.items()),
    )


def curves(metrics: Sequence[Mapping[str, Any]]) -> Section:
    """Loss against updates and tokens."""
    if not metrics:
        return Section("Learning curves", (Notice(("No steps have been logged yet.",)),))
    window = max(1, len(metrics) // 15)
    measured = [record for record in metrics if "dev_loss" in record]

    def lines(key: str) -> tuple[Line, ...]:
        places, losses = (np.array([float(record[each]) for record in metrics]) for each in (key, "loss"))
        x, y = (np.array([float(record[each]) for record in measured]) for each in (key, "dev_loss"))
        return Line("train", "train", places, smooth(losses, window)), Line("dev", "dev", x, y, marks=True)

    charts = tuple(
        Chart(lines(key), label, "nats per target") for key, label in (("step", "updates"), ("target_tokens", "tokens read"))
    )
    every = f", mean of {window} logged steps" if window > 1 else ""
    return Section("Learning curves", (Charts(charts, (("train", f"train{every}"), ("dev", "dev"))),))


def scores(split: str, found: stream_scores.StreamEvaluation) -> tuple[Section, Spans]:
    """The held-out scores as a table, and the main one as a sentence."""
    own, footing = found.scores.summary(), found.footing
    shared = f"{footing.per_byte:.3f} nats per byte"
    table = (
        (Cell("targets, as in training"), *map(Cell, (f"{own['loss']:.3f}", f"{own['accuracy']:.1%}", f"{own['count']:,}"))),
        (
            Cell("one token given all others", shared),
            *map(Cell, (f"{footing.per_token:.3f}", "–", f"{len(footing.nats):,}")),
        ),
    )
    lead = f"On {counted(found.rows, 'row')} of the {split} split, {counted(found.draws, 'draw')} each."
    headline = (
        f"On the {split} split, it predicts its targets at ",
        Strong(f"{own['loss']:.3f} nats"),
        f", and one token given all others at {shared}.",
        *chosen_on_dev(split),
    )
    return Section("Held-out scores", (Table(("predictions", "loss, nats", "accuracy", "count"), table),), (lead,)), headline

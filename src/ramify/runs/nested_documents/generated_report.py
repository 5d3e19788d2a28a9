"""Reports on generators of nested documents: losses of both players, the watch for collapse, floors and texts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramify.errors import RamifyError, counted
from ramify.inference.documents.generate import DocumentGenerator
from ramify.inference.documents.generated_measures import NGRAMS
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.curves import TITLE, no_curves, smoothing, window
from ramify.runs.nested_documents import generated_scores
from ramify.runs.sections import Cell, Chart, Charts, Line, Section, Table, chosen_on_dev, smooth
from ramify.tasks.adversarial import DISCRIMINATOR, GENERATOR, loss_name
from ramify.tasks.base import TOTAL
from ramify.tasks.nested_adversary import ENERGY
from ramify.training.meters import CONSTANT, VALUE

MEASURES = {
    ENERGY.name: "energy distance to held-out vectors, 0 to 1",
    "classifier_accuracy": "accuracy of a fresh classifier against held-out vectors (0.5: none tells them apart)",
    "coverage": "held-out vectors with a generated one among their nearest",
    "effective_rank": "effective rank of the vectors",
    "held_out_effective_rank": "the same of held-out vectors",
    "nearest_training": "cosine with the nearest training vector, mean",
    "held_out_nearest_training": "the same of held-out vectors",
    "near_copies": "nearly copies of training vectors",
    "held_out_near_copies": "the same of held-out vectors",
    "coherence": "coherence of decoded children, by probing",
    **{f"distinct_{n}": f"distinct {n}-grams, share of all" for n in NGRAMS},
    "self_bleu": "BLEU-4 of each text with the others as references",
}
"""Names of measures in a report."""

OF_DISCRIMINATORS = (
    "Both players of a level learn against each other, so neither loss has to fall. The discriminator's is log 2 if it tells "
    "nothing, and 0 if it tells all nodes apart."
)
OF_CHECKERS = (
    "The generator of a level learns from its coherence checker, which is frozen. The loss falls as the checker finds the "
    "generated vectors coherent."
)
"""The texts above the curves of runs with and without discriminators."""


def parts(request: ReportRequest) -> ReportParts:
    """The parts of a report."""
    metrics = request.metrics
    levels = list(request.record["real"])
    sections = [*curves(metrics, levels), *watched(metrics, levels)]
    model, store, missing = request.pipeline, request.store, ""
    if isinstance(model, DocumentGenerator) and store is not None:
        try:
            options = {"rows": request.comments} if request.comments else {}
            scores = generated_scores.evaluate(model, str(store.path), store, request.split, options)
        except RamifyError as error:
            missing = str(error)
        else:
            sections += [floors(request.split, scores, level) for level in scores.levels]
    return ReportParts(
        purpose="generates the vectors of sentences, paragraphs, chapters and documents, and decodes them into text",
        examples="nodes",
        sections=tuple(sections),
        missing=missing,
        data=tuple((f"{name}s", counted(number, "real vector")) for name, number in request.record["real"].items()),
    )


def curves(metrics: Sequence[Mapping[str, Any]], levels: Sequence[str]) -> list[Section]:
    """The losses of the players of each level against updates, beside those of judges that know nothing."""
    if not metrics:
        return [no_curves()]
    endings = _endings(metrics)
    charts = []
    for level in levels:
        for player, ending in endings.items():
            name = f"{loss_name(player, level)}{ending}"
            # A phase with a single loss logs the total alone.
            steps, losses = _known(metrics, name if len(levels) > 1 else f"{TOTAL}{ending}")
            lines = [
                Line("train", "train", steps, smooth(losses, min(window(metrics), max(1, len(losses))))),
                Line("dev", "dev", *_known(metrics, f"{VALUE}_{name}"), marks=True),
                Line("constant", "constant", *_known(metrics, f"{CONSTANT}_{name}")),
            ]
            charts.append(Chart(tuple(lines), "updates", f"{level}: {player}, nats"))
    if DISCRIMINATOR in endings:
        constant, lead = "a discriminator that knows nothing", OF_DISCRIMINATORS
    else:
        constant, lead = "a checker that knows nothing", OF_CHECKERS
    legend = (("train", f"train{smoothing(metrics)}"), ("dev", "dev"), ("constant", constant))
    return [Section(TITLE, (Charts(tuple(charts), legend),), (lead,))]


def _endings(metrics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The ending of the names of each player that learns. Only phases after the first end their names, with their own: that of
    the autoencoder is before the discriminators', and without both the generators' is the first."""
    later = [player for player in (DISCRIMINATOR, GENERATOR) if any(f"{TOTAL}_{player}" in record for record in metrics)]
    if not later:
        return {GENERATOR: ""}
    return {player: f"_{player}" if player in later else "" for player in (DISCRIMINATOR, GENERATOR)}


def _known(metrics: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, Any]:
    pairs = [(float(record["step"]), float(record[name])) for record in metrics if name in record]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def watched(metrics: Sequence[Mapping[str, Any]], levels: Sequence[str]) -> list[Section]:
    """The watch for collapse at each evaluation, one section per level."""
    measured = [record for record in metrics if ENERGY.name in record]
    sections = []
    for level in levels:
        names = [name for name in MEASURES if any(f"{name}_{level}" in record for record in measured)]
        if not names:
            continue
        shown = measured if len(measured) <= 8 else [measured[place * (len(measured) - 1) // 7] for place in range(8)]
        columns = ("measure", *(f"update {record['step']:,}" for record in shown))
        rows = tuple(
            (Cell(MEASURES[name]), *(Cell(_shown(record.get(f"{name}_{level}", math.nan))) for record in shown))
            for name in names
        )
        lead = (
            "Generated vectors have collapsed if their effective rank is far below that of held-out ones, or if their texts "
            "share most n-grams. They are learned by heart if they are nearer to training vectors than held-out ones are."
        )
        sections.append(Section(f"Watch for collapse: {level}", (Table(columns, rows, "scores"),), (lead,)))
    return sections


def floors(split: str, scores: generated_scores.GeneratedEvaluation, level: str) -> Section:
    """The measures of a level's generator beside those of its floors."""
    by_source = scores.levels[level]
    names = list(next(iter(by_source.values())))
    rows = tuple((Cell(MEASURES[name]), *(Cell(_shown(measures[name])) for measures in by_source.values())) for name in names)
    training, held_out = scores.counts[level]
    lead = (
        f"{counted(held_out, 'held-out vector')} of the {split} split, and {counted(training, 'training vector')}. gaussian: a "
        "normal distribution with their mean and covariance. noise: the generator's input. resampled: training vectors."
    )
    table = Table(("measure", *by_source), rows, "scores")
    return Section(f"Against floors: {level}", (table,), (lead, *chosen_on_dev(split)))


def _shown(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"

"""Reports on models that predict labels: curves, scores beside floors, confusions, calibration, slices and wrong examples.

`assembled` makes the reports of all label tasks; `slices`, `calibration` and `most_wrong` are sections of several.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.classify import Classifier
from ramify.metrics.classification import (
    ClassPredictions,
    ClassScores,
    NumberPredictions,
    Reliability,
    SeveralPredictions,
    reliability,
    reliability_of,
)
from ramify.metrics.depths import DEPTH_BINS
from ramify.metrics.metric import Metric
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.curves import TITLE, Metrics, dev_line, loss_charts, no_curves, smoothing
from ramify.runs.labelled.scores import Scored, ScoredTexts, score_texts
from ramify.runs.sections import (
    Cell,
    Chart,
    Charts,
    Cloud,
    Line,
    Notice,
    ScatterChart,
    Section,
    Spans,
    Strong,
    Table,
    WeightMap,
    chosen_on_dev,
    number,
)
from ramify.runs.seeds import LearningCurve, SeedScores
from ramify.tasks.classification import LABEL

ModelT = TypeVar("ModelT", bound=Pipeline)
ScoredT = TypeVar("ScoredT", bound=Scored)

RESAMPLES = 500
"""Resamples of the intervals of a report."""

EXAMPLES = 20
"""Wrong predictions that a report shows."""

POINTS = 2_000
"""Numbers that a report draws."""

SHOWN_CHARS = 300
"""Characters shown of a text."""

MOST_CELLS = 8
"""Classes up to which confusions are numbers; those of more classes are shades."""

LENGTHS = (0, 9, 17, 33, 65, 129)
"""The first lengths of the bins of rows, in tokens."""


def parts(request: ReportRequest, metric: Metric | None) -> ReportParts:
    """The parts of a report. `metric` is that of the run; None: the first one of the task."""
    return assembled(
        request,
        training(request, metric),
        metric,
        Classifier,
        score_texts,
        _details,
        purpose="predicts labels of texts",
        examples="texts",
    )


def assembled(
    request: ReportRequest,
    first: Sequence[Section],
    metric: Metric | None,
    kind: type[ModelT],
    score: Callable[[ModelT, Store, Split, Mapping[str, Any]], ScoredT],
    details: Callable[[ModelT, Store, ScoredT, Metric], Iterable[Section]],
    *,
    purpose: str,
    examples: str,
) -> ReportParts:
    """The parts of a report on any label task: its first sections (`training`), held-out scores, and their `details`.

    `metric` is that of the run; None: the first one of the task. `purpose` and `examples` are those of `ReportParts`.
    """
    model, store = request.pipeline, request.store
    sections = list(first)
    headline: Spans = ()
    missing = ""
    if isinstance(model, kind) and store is not None:
        try:
            scored = score(model, store, request.split, {})
            task: Any = model.module
            chosen = task.metrics[0] if metric is None else metric
            section, headline = held_out_scores(request.split, scored, chosen)
            sections += [section, *details(model, store, scored, chosen)]
        except RamifyError as error:
            missing = str(error)
    return ReportParts(
        purpose=purpose,
        examples=examples,
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple(facts(request.record["text"])),
    )


def facts(text: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The facts about the training texts from run.json."""
    for name, value in text.items():
        if isinstance(value, Mapping):
            yield name, ", ".join(f"{key} {count:,}" for key, count in value.items())
        else:
            yield name.replace("_", " "), f"{value:,}"


def training(request: ReportRequest, metric: Metric | None, loss: str = LABEL, unit: str = "label") -> list[Section]:
    """The curves of a training, or the settings of a fit; and the scores of other seeds or other numbers of examples."""
    fit = request.record.get("fit")
    return [curves(request.metrics, metric, loss, unit) if fit is None else tried(fit), *variants(request.record)]


def curves(metrics: Metrics, metric: Metric | None, loss: str = LABEL, unit: str = "label") -> Section:
    """Loss against updates and tokens, and the dev metric. `loss` is the name of the loss, which is a mean over units."""
    if not metrics:
        return no_curves()
    charts = list(loss_charts(metrics, loss, f"loss per {unit}", tokens="tokens"))
    if metric is not None:
        charts.append(Chart((dev_line(metrics, "step", metric.name),), "updates", f"dev {metric.label}"))
    return Section(TITLE, (Charts(tuple(charts), (("train", f"train{smoothing(metrics)}"), ("dev", "dev"))),))


def tried(fit: Mapping[str, Any]) -> Section:
    """The settings of a fit in closed form, with their dev scores."""
    names = [name for name in fit["tried"][0] if name != "dev"]
    rows = tuple(
        (*(Cell(f"{each[name]:g}") for name in names), Cell("–" if each["dev"] is None else f"{each['dev']:.4f}"))
        for each in fit["tried"]
    )
    if not names:
        return Section("Fit", (Notice(("The model is fitted in closed form, and has no settings.",)),))
    lead = "The model is fitted in closed form. The dev split chose the best of these settings."
    return Section("Fit", (Table((*names, f"dev {fit['metric'].replace('_', ' ')}"), rows, "scores"),), (lead,))


def seeds(record: Mapping[str, Any]) -> Section:
    """The dev scores of all seeds, and how far each is from their mean."""
    found = SeedScores.from_json(record)
    rows = tuple(
        (
            Cell(score.folder),
            Cell(f"{score.value:.4f}"),
            Cell(number(score.value - found.mean, "+.4f")),
            Cell(f"{score.step:,}"),
        )
        for score in found.scores
    )
    lead = (
        f"The mean is {found.mean:.4f}, with a standard deviation of {found.spread:.4f}. This page is about seed "
        f"{found.best.seed}, the best one on dev ({found.lead}), whose score is too high by being chosen."
    )
    columns = ("seed", f"dev {found.metric.replace('_', ' ')}", "less the mean", "update")
    return Section("Seeds", (Table(columns, rows, "scores"),), (lead,))


def learning_curve(record: Mapping[str, Any]) -> Section:
    """The dev score over the number of training examples."""
    found = LearningCurve.from_json(record)
    name = f"dev {found.metric.replace('_', ' ')}"
    numbers = np.array([score.examples for score in found.scores], dtype=np.float64)
    values = np.array([score.value for score in found.scores])
    chart = Chart((Line(name, "dev", numbers, values, marks=True),), "training examples", name)
    rows = tuple((Cell(f"{score.examples:,}"), Cell(f"{score.value:.4f}"), Cell(f"{score.step:,}")) for score in found.scores)
    lead = (
        f"Each number of examples has a run of its own, in the folder examples-K. This page is about that of "
        f"{found.best.examples:,}, the best one on dev. Smaller numbers are parts of larger ones."
    )
    return Section(
        "Scores by number of examples", (Charts((chart,)), Table(("examples", name, "update"), rows, "scores")), (lead,)
    )


def variants(record: Mapping[str, Any]) -> Iterator[Section]:
    """The other seeds of a run, or the other numbers of its examples, if there are any."""
    if "seeds" in record:
        yield seeds(record["seeds"])
    if "curve" in record:
        yield learning_curve(record["curve"])


def held_out_scores(
    split: Split,
    scored: Scored,
    metric: Metric,
) -> tuple[Section, Spans]:
    """All metrics with their intervals beside those of a floor, and the main one as a sentence."""
    predicted, floors = scored.predictions, scored.floor or {}
    names = [metric.name, *(name for name in predicted.metrics if name != metric.name)]
    rows = []
    for name in names:
        interval = predicted.interval(name, units=scored.trees, resamples=RESAMPLES)
        spread = f"{interval.low:.3f} to {interval.high:.3f}"
        beside = [Cell(f"{floors[name]:.3f}")] if floors else []
        rows.append((Cell(name.replace("_", " ")), Cell(f"{interval.value:.3f}", spread), *beside))
    value = predicted.metrics[metric.name]()
    headline: Spans = (
        f"On the {split} split, its {metric.label} is ",
        Strong(f"{value:.3f}"),
        f"; {scored.floor_name}, it is {floors[metric.name]:.3f}." if floors else ".",
        f" But {scored.only_prediction}." if scored.only_prediction else "",
    )
    lead = (
        f"On {counted(len(predicted), scored.example)} of the {split} split, with 95 % bootstrap intervals over "
        f"{scored.resampled}."
    )
    columns = ("score", "value")
    if floors:
        lead, columns = f"{lead} {scored.floor_name.capitalize()}: {scored.floor_is}.", (*columns, scored.floor_name)
    section = Section("Held-out scores", (Table(columns, tuple(rows)),), (lead,))
    return section, (*headline, *chosen_on_dev(split))


def _details(model: Classifier, store: Store, scored: ScoredTexts, metric: Metric) -> Iterator[Section]:
    classes = model.task.config.classes
    predicted = scored.predictions
    if isinstance(predicted, ClassPredictions):
        yield _confusions(predicted, classes)
        yield _per_class(predicted.per_class, classes)
        yield _calibration(model, scored)
    elif isinstance(predicted, SeveralPredictions):
        yield _per_class(predicted.per_class, classes)
        yield _calibration_of_several(model, scored)
    elif isinstance(predicted, NumberPredictions):
        yield _numbers(predicted)
    yield slices("Scores by length", scored, metric, "tokens of the row", bins_of(scored.view.costs, LENGTHS))
    yield from depth_slices(store, scored, metric)
    yield from _most_wrong(model, store, scored)


def _per_class(scores: ClassScores, classes: Sequence[str]) -> Section:
    columns = (scores.precision, scores.recall, scores.f1)
    rows = tuple(
        (Cell(name), *(Cell(f"{values[place]:.3f}") for values in columns), Cell(f"{scores.support[place]:,}"))
        for place, name in enumerate(classes)
    )
    return Section("Scores by class", (Table(("class", "precision", "recall", "F1", "texts"), rows, "scores"),))


def _confusions(predicted: ClassPredictions, classes: Sequence[str]) -> Section:
    """The counts of predicted classes by right ones."""
    counts = predicted.confusion
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    lead = "A row holds the texts of one class; its columns are the predicted classes."
    if len(classes) <= MOST_CELLS:
        rows = tuple(
            (Cell(name), *(Cell(f"{count:,}", f"{share:.0%}") for count, share in zip(*cells, strict=True)))
            for name, *cells in zip(classes, counts.tolist(), shares.tolist(), strict=True)
        )
        shown: Table | WeightMap = Table(("right class", *classes), rows, "scores")
    else:
        shown = WeightMap("Shares of the texts of each right class.", tuple(classes), tuple(classes), shares)
    return Section("Confusions", (shown,), (lead,))


TEMPERATURES = {"before": "before the temperature", "after": "after it"}


def _calibration(model: Classifier, scored: ScoredTexts) -> Section:
    """The accuracy of predictions by their probability, before and after the temperature."""
    measured = {name: reliability(shares, scored.targets) for name, shares in _shares(model, scored).items()}
    return calibration(measured, _temperature(model), "text", legend=TEMPERATURES)


def _calibration_of_several(model: Classifier, scored: ScoredTexts) -> Section:
    """The share of texts that have a class by its probability, over all classes, and the errors of each class."""
    shares, given = _shares(model, scored), scored.targets > 0
    measured = {name: reliability_of(found.ravel(), given.ravel()) for name, found in shares.items()}
    lead = f"{_temperature(model)} Each class of each text is a prediction."
    axes = ("probability of a class", "share that has the class")
    section = calibration(measured, lead, "prediction", legend=TEMPERATURES, axes=axes)
    rows = tuple(
        (Cell(name), *(Cell(f"{reliability_of(found[:, place], given[:, place]).error:.3f}") for found in shares.values()))
        for place, name in enumerate(model.task.config.classes)
    )
    columns = ("class", *(f"calibration error {TEMPERATURES[name]}" for name in shares))
    return replace(section, blocks=(*section.blocks, Table(columns, rows, "scores")))


def _shares(model: Classifier, scored: ScoredTexts) -> dict[str, Float[NDArray, "row output"]]:
    """The probabilities of the classes, before and after the temperature."""
    scores = torch.from_numpy(scored.scores).to(model.device)
    found = {"before": scores * model.task.temperature, "after": scores}
    return {name: model.task.probabilities(values).cpu().numpy() for name, values in found.items()}


def _temperature(model: Classifier) -> str:
    return f"The temperature that fits the dev split best is {float(model.task.temperature):.3g}."


CHART_KINDS = ("none", "dev")
"""The looks of the lines of a calibration, in their order; the last one is that of the probabilities that users get."""


def calibration(
    measured: Mapping[str, Reliability],
    lead: str,
    unit: str,
    *,
    legend: Mapping[str, str],
    axes: tuple[str, str] = ("probability of the prediction", "share that is right"),
) -> Section:
    """The share of right predictions by their probability, as the two `axes` say. `measured` has one or two names, which
    `legend` explains; `unit` names what is predicted."""
    diagonal = np.array([0.0, 1.0])
    kinds = dict(zip(measured, CHART_KINDS[-len(measured) :], strict=True))
    lines = (
        Line("perfect", "constant", diagonal, diagonal),
        *(_reliability_line(name, kinds[name], found) for name, found in measured.items()),
    )
    rows = tuple((Cell(legend[name]), Cell(f"{found.error:.3f}")) for name, found in measured.items())
    bins = next(iter(measured.values())).count
    lead = (
        f"{lead} The calibration error is the mean distance of probability and share, over {counted(len(bins), 'bin')} of "
        "equal width."
    ).strip()
    names = (("constant", "perfectly calibrated"), *((kinds[name], legend[name]) for name in measured))
    counts = tuple(
        Line(name, kinds[name], (found.edges[1:] + found.edges[:-1]) / 2, found.count.astype(np.float64), marks=True)
        for name, found in measured.items()
    )
    charts = Charts((Chart(lines, *axes), Chart(counts, axes[0], f"{unit}s")), names)
    return Section("Calibration", (charts, Table(("probabilities", "calibration error"), rows, "scores")), (lead,))


def _reliability_line(name: str, kind: str, measured: Reliability) -> Line:
    filled = measured.count > 0
    return Line(name, kind, measured.confidence[filled], measured.accuracy[filled], marks=True)


def _numbers(predicted: NumberPredictions) -> Section:
    """Predicted numbers beside the right ones, and the errors."""
    right, found = predicted.gold, predicted.predicted
    errors = found - right
    shown = np.linspace(0, len(right) - 1, min(len(right), POINTS)).astype(np.int64)
    clouds = (
        Cloud("right", "constant", right[shown], right[shown]),
        Cloud("predicted", "dev", right[shown], found[shown]),
    )
    spread = (
        ("mean error", errors.mean()),
        ("mean absolute error", np.abs(errors).mean()),
        ("root of the mean squared error", np.sqrt((errors**2).mean())),
        ("standard deviation of the right numbers", right.std()),
    )
    rows = tuple((Cell(name), Cell(number(float(value), ".4g"))) for name, value in spread)
    lead = "An error is the predicted number less the right one."
    if len(shown) < len(right):
        lead += f" The chart shows {len(shown):,} of {len(right):,} texts, evenly spaced."
    names = (("constant", "right"), ("dev", "predicted"))
    charts = Charts((ScatterChart(clouds, "right number", "predicted number"),), names)
    return Section("Predicted numbers", (charts, Table(("errors", "value"), rows, "scores")), (lead,))


# --- slices -----------------------------------------------------------------------------------------------------------


Bins = Sequence[tuple[str, Bool[NDArray, " row"]]]
"""Parts of the examples, by their names."""


def slices(title: str, scored: Scored, metric: Metric, what: str, bins: Bins) -> Section:
    """The main metric of parts of the examples, with its intervals."""
    rows = []
    for name, chosen in bins:
        if chosen.any():
            places = np.flatnonzero(chosen)
            part = scored.predictions.take(places).interval(metric.name, units=scored.trees[places], resamples=RESAMPLES)
            rows.append((Cell(name), Cell(f"{part.value:.3f}", f"{part.low:.3f} to {part.high:.3f}"), Cell(f"{len(places):,}")))
    return Section(title, (Table((what, metric.label, f"{scored.example}s"), tuple(rows), "scores"),))


def bins_of(lengths: NDArray[np.int64], firsts: Sequence[int]) -> Bins:
    """Parts by length, given the first length of each."""
    return [
        (f"{max(first, 1)}–{stop - 1}" if stop else f"{first} or more", (lengths >= first) & (lengths < (stop or np.inf)))
        for first, stop in zip(firsts, [*firsts[1:], None], strict=True)
    ]


def depth_slices(store: Store, scored: Scored, metric: Metric) -> Iterator[Section]:
    """Parts by the depth of the examples in their trees; nothing if all have one depth."""
    depths = store.depth[scored.nodes]
    if len(np.unique(depths)) > 1:
        bins = [(name, (depths >= first) & (depths <= last)) for name, (first, last) in DEPTH_BINS.items()]
        yield slices("Scores by depth", scored, metric, "depth", [("0", depths == 0), *bins])


# --- wrong examples -----------------------------------------------------------------------------------------------------


def _most_wrong(model: Classifier, store: Store, scored: ScoredTexts) -> Iterator[Section]:
    """The texts whose right label is the least likely, or whose number is the farthest."""
    task, targets = model.task, scored.targets
    shares = task.probabilities(torch.from_numpy(scored.scores).to(model.device)).cpu().numpy()
    if task.config.labels == "numbers":
        error = np.abs(shares[:, 0] - targets)
    elif task.config.labels == "classes":
        # The probability of the right class; right predictions are no errors.
        right = shares[np.arange(len(shares)), targets]
        error = np.where(shares.argmax(1) == targets, -1.0, 1 - right)
    else:
        # The class that is most wrong.
        error = np.abs(shares - targets).max(1)
        error = np.where(error < 0.5, -1.0, error)
    order = [place for place in np.argsort(-error, kind="stable")[:EXAMPLES].tolist() if error[place] > 0]
    rows = [_example(model, store, scored, place, shares[place]) for place in order]
    columns = ("text", "right", "predicted", "probabilities")
    yield from most_wrong(scored, columns, rows, "those with the least likely right label first")


def most_wrong(scored: Scored, columns: tuple[str, ...], rows: Sequence[tuple[Cell, ...]], order: str) -> Iterator[Section]:
    """Wrong predictions, in an `order` that completes a sentence; nothing if there is none."""
    if rows:
        lead = f"{counted(len(rows), scored.example)}, {order}."
        yield Section("Most wrong", (Table(columns, tuple(rows), "texts"),), (lead,))


def _example(
    model: Classifier, store: Store, scored: ScoredTexts, place: int, shares: Float[NDArray, " output"]
) -> tuple[Cell, ...]:
    config, rows = model.task.config, scored.view.rows
    nodes = rows.forest.node
    texts = store.texts(nodes[[int(rows.text[place])]])
    if rows.first is not None:
        texts = [*store.texts(nodes[[int(rows.first[place])]]), *texts]
    shown = " ⟶ ".join(shortened(text) for text in texts)
    target = scored.targets[place]
    if config.labels == "numbers":
        return Cell(shown), Cell(f"{float(target):.4g}"), Cell(f"{float(shares[0]):.4g}"), Cell("–")
    likeliest = sorted(zip(config.classes, shares.tolist(), strict=True), key=lambda pair: -pair[1])[:3]
    probabilities = Cell(" · ".join(f"{name} {share:.0%}" for name, share in likeliest))
    if config.labels == "classes":
        return Cell(shown), Cell(config.classes[int(target)]), Cell(likeliest[0][0]), probabilities
    right = ", ".join(name for name, given in zip(config.classes, target, strict=True) if given) or "none"
    chosen = ", ".join(name for name, share in zip(config.classes, shares, strict=True) if share >= 0.5) or "none"
    return Cell(shown), Cell(right), Cell(chosen), probabilities


def shortened(text: str) -> str:
    """The beginning of a text on one line."""
    whole = " ".join(text.split())
    return whole if len(whole) <= SHOWN_CHARS else whole[:SHOWN_CHARS] + " …"

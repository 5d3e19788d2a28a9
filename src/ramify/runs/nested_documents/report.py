"""Reports on models of nested documents: curves of every loss and level, and held-out measures of every level."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError, counted
from ramify.inference.documents.evaluation import DocumentScores
from ramify.inference.documents.measures import Measure, Measures
from ramify.inference.documents.pipeline import DocumentPipeline
from ramify.inference.documents.sentence_space import Plane, planes
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.curves import TITLE, no_curves, smoothing, window
from ramify.runs.nested_documents import scores
from ramify.runs.sections import (
    Block,
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
    smooth,
)
from ramify.tasks.base import TOTAL
from ramify.tasks.nested.reconstruction import Reconstruction
from ramify.tasks.nested.task import LOSSES

QUICK_TOKENS = 300_000
"""A report measures the first documents of the split that hold about so many tokens."""

QUICK_ROWS = 500
"""Rows per level and measure in the report at the end of training."""

MEASURES = {
    "reconstruction_loss": "reconstruction, nats per place",
    "mlm_loss": "masked, nats each",
    "coherence_loss": "share of replaced, squared error",
    "autoencoder_loss": "Decompressor's output, squared error",
    "length_loss": "number of children, nats",
    "foreign_loss": "marked child replaced or kept, nats",
    "token_accuracy": "tokens right, by place",
    "exact_match": "rows right as a whole",
    "right_ends": "ends right",
    "bleu": "BLEU-4",
    "child_accuracy": "children right, by place",
    "hidden_word_accuracy": "words hidden as a whole, all tokens right",
    "hidden_word_loss": "words hidden as a whole, nats per token",
    "name_gate_auroc": "tokens of names above others, ignore gate",
    "retrieval_recall_at_10": "child among the first 10, from the vector",
    "retrieval_auroc": "nodes ranked below the child, from the vector",
    "member_recall_at_10": "child among the first 10 candidates, from the vector, at any place",
    "member_accuracy": "child first, from the vector, at any place",
    "member_auroc": "candidates ranked below the child, from the vector, at any place",
    "decoded_token_accuracy": "tokens right, by place, decoded through all levels",
    "decoded_exact_match": "sentences right as a whole, decoded through all levels",
    "decoded_right_ends": "ends of sentences right, decoded through all levels",
    "decoded_bleu": "BLEU-4 of sentences decoded through all levels",
    "mlm_recall_at_10": "hidden node among the first 10",
    "mlm_accuracy": "hidden node first",
    "mlm_auroc": "candidates ranked below the hidden node",
    "coherence_mse": "share of replaced, squared error, 4 and more children",
    "probing_auroc": "replaced against kept child, AUROC",
    "spread": "distance of vectors from their mean, share of their length",
    "effective_rank": "effective rank of the vectors",
    "duplicates": "rows with the content of another one",
    "only_children": "rows with a single child",
    "empty": "rows without children",
    "cut": "nodes cut into several rows",
    "packed": "nodes that share a row",
    "children_left_out": "children left out",
}
"""Names of measures in a report."""

CHOICES = {
    "nearby": "nearby",
    "same_document": "same document",
    "other_documents": "other documents",
    "foreign": "child by child",
    "three_or_more": "3 and more siblings",
    "names": "names",
    "recurring": "other words of several sentences",
    "new": "words of one sentence",
    "function_words": "function words",
}

SETTLED = 0.1
"""A loss has settled when no more than this share of its whole fall remains."""


def parts(request: ReportRequest) -> ReportParts:
    """The parts of a report."""
    levels = list(request.record["levels"])
    sections = curves(request.metrics)
    if len(levels) > 1:
        sections.append(stability(request.metrics, levels))
    headline: Spans = ()
    missing = ""
    model, store = request.pipeline, request.store
    if isinstance(model, DocumentPipeline) and store is not None:
        try:
            options: dict[str, Any] = {"rows": min(request.comments, QUICK_ROWS)} if request.comments else {}
            evaluation = scores.evaluate(
                model,
                str(store.path),
                store,
                request.split,
                options,
                advance=request.progress,
                most_tokens=QUICK_TOKENS,
            )
        except RamifyError as error:
            missing = str(error)
        else:
            sections += measures(request.split, evaluation.scores)
            sections += space(planes(model.task, store, store.split(request.split)))
            sections += names(evaluation.scores)
            headline = main_scores(request.split, evaluation.scores)
    facts = request.record["levels"]
    rows = [(f"{name}s", f"{level['nodes']:,} nodes in {level['rows']:,} rows") for name, level in facts.items()]
    return ReportParts(
        purpose="turns sentences, paragraphs, chapters and documents into vectors, and vectors into text",
        examples="nodes",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=(("tokens", f"{request.record['tokens']:,}"), *rows),
    )


# --- curves ---------------------------------------------------------------------------------------------------------------


def curves(metrics: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Every loss of every level against updates, and the sum of all losses."""
    if not metrics:
        return [no_curves()]
    legend = (("train", f"train{smoothing(metrics)}"), ("dev", "dev"))
    sums = (
        _chart(metrics, TOTAL, "sum of all losses"),
        _chart(metrics, TOTAL, "sum of all losses", "target_tokens", "tokens read"),
    )
    lead = "Losses of batches in training depend on the number of candidates in a batch, and each has its weight."
    sections = [Section(TITLE, (Charts(sums, legend),), (lead,))]
    for loss in LOSSES:
        charts = tuple(
            _chart(metrics, name, f"{name.removeprefix(loss.name(''))}, {loss.unit}")
            for name in losses_of(metrics, loss.kind)
            if len(_known(metrics, name)[0])
        )
        if charts:
            sections.append(Section(loss.title, (Charts(charts, legend),)))
    return sections


def losses_of(metrics: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """The names of a kind of loss, from the lowest level."""
    return list(dict.fromkeys(name for record in metrics for name in record if name.startswith(f"{kind}_")))


def _chart(metrics: Sequence[Mapping[str, Any]], name: str, label: str, key: str = "step", x_label: str = "updates") -> Chart:
    steps, losses = _known(metrics, name, key)
    lines = (
        Line("train", "train", steps, smooth(losses, min(window(metrics), max(1, len(losses))))),
        Line("dev", "dev", *_known(metrics, f"dev_{name}", key), marks=True),
    )
    return Chart(lines, x_label, label)


def _known(
    metrics: Sequence[Mapping[str, Any]], name: str, key: str = "step"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Updates and values of a loss. It is 0 in updates whose batch holds nothing of its level, which are left out."""
    pairs = [(float(record[key]), float(record[name])) for record in metrics if record.get(name)]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def settled(steps: NDArray[np.float64], losses: NDArray[np.float64]) -> float:
    """The update from which on no more than a tenth of a loss's whole fall remains; NaN if it has not fallen."""
    if len(losses) < 2:
        return math.nan
    smoothed = smooth(losses, window(losses))
    fall = smoothed[0] - smoothed[-1]
    if fall <= 0:
        return math.nan
    above = np.flatnonzero(smoothed > smoothed[-1] + SETTLED * fall)
    return float(steps[above[-1] + 1]) if len(above) else float(steps[0])


def stability(metrics: Sequence[Mapping[str, Any]], levels: Sequence[str]) -> Section:
    """The update at which each level's reconstruction has settled, and whether lower levels settle first."""
    title = "Do levels become stable from the lowest to the highest?"
    rows, updates = [], []
    for level in levels:
        steps, losses = _known(metrics, Reconstruction.name(level))
        step = settled(steps, losses)
        updates.append(step)
        ends = (f"{losses[0]:.3f}", f"{losses[-1]:.3f}") if len(losses) else ("–", "–")
        rows.append((Cell(level), *map(Cell, ends), Cell("–" if math.isnan(step) else f"{step:,.0f}")))
    table = Table(("reconstruction", "first loss", "last loss", "settled at update"), tuple(rows), "scores")
    lead = f"A loss has settled when no more than {SETTLED:.0%} of its whole fall remains."
    if any(map(math.isnan, updates)):
        verdict = "The loss of some level has not fallen yet, so the order is open."
    elif all(one <= other for one, other in pairwise(updates)):
        verdict = "Yes: no level settled before the one below it."
    else:
        verdict = "No: some level settled before the one below it."
    return Section(title, (Notice((verdict,)), table), (lead,))


# --- the space of sentences -----------------------------------------------------------------------------------------------


def space(drawn: Sequence[Plane]) -> list[Section]:
    """The states of sentences and the vectors of paragraphs, beside those after sentences were dealt anew."""
    if not drawn:
        return []
    charts = []
    for each in drawn:
        clouds = (("as they are", "dev", each.coherent), ("dealt anew", "none", each.shuffled))
        label = f"{each.name}: first component ({each.explained:.0%} of variance shown)"
        dots = tuple(Cloud(name, kind, points[:, 0], points[:, 1]) for name, kind, points in clouds)
        charts.append(ScatterChart(dots, label, "second component"))
    lead = (
        "The lowest nodes as the Encoder reads them among their siblings, and the vectors of the nodes above; and the same "
        "after the lowest nodes were dealt anew among these nodes, on the plane of the two principal components of both. "
        "Where the colours part, the model tells coherent nodes from others without a checker. Two components are few: where "
        "the colours mix, other directions may still tell them apart."
    )
    legend = (("dev", "as they are"), ("none", "dealt anew"))
    return [Section("The space of sentences", (Charts(tuple(charts), legend),), (lead,))]


# --- measures -------------------------------------------------------------------------------------------------------------


def measures(split: str, evaluated: DocumentScores) -> list[Section]:
    """The held-out measures, one section per level."""
    sections = []
    lead = f"On {counted(evaluated.documents, 'document')} of the {split} split, {counted(evaluated.unknown.tokens, 'token')}. "
    for level, by_name in evaluated.levels.items():
        plain = {name: measure for name, measure in by_name.items() if shown(name, measure) and not _is_length(name)}
        tables = [
            Table(("measure", "value", "baseline", "chance", "count"), tuple(_row(*pair) for pair in plain.items()), "scores")
        ]
        by_length = lengths(by_name)
        if by_length is not None:
            tables.append(by_length)
        sections.append(Section(f"Held-out measures: {level}", tuple(tables), (lead + " ".join(evaluated.notes),)))
        lead, evaluated = "", replace(evaluated, notes=[])
    return sections


def shown(name: str, measure: Measure) -> bool:
    """Whether a measure has something to show."""
    return bool(measure.count) and (name not in scores.COUNTS or bool(measure.value))


def _is_length(name: str) -> bool:
    _, _, choice = name.partition(".")
    return bool(choice) and choice.split(".")[0] not in CHOICES


def _row(name: str, measure: Measure) -> tuple[Cell, ...]:
    value, baseline, chance, count = scores.figures(name, measure)
    base, *choices = name.split(".")
    label = ", ".join([MEASURES[base], *(CHOICES[choice] for choice in choices)])
    p = f"p {measure.p:.4f}" if not math.isnan(measure.p) else ""
    return (
        Cell(label),
        Cell(value, p),
        Cell(baseline, scores.others(measure).replace("_", " ")),
        Cell(chance),
        Cell(count),
    )


def lengths(measures: Measures) -> Table | None:
    """Reconstruction by the number of tokens of a row; None if there is none."""
    ranges = list(dict.fromkeys(name.partition(".")[2] for name in measures if _is_length(name)))
    if not ranges:
        return None
    kinds = [kind for kind in ("token_accuracy", "exact_match", "right_ends", "bleu") if f"{kind}.{ranges[0]}" in measures]
    rows = []
    for bounds in ranges:
        cells = []
        for kind in kinds:
            value, baseline, _, _ = scores.figures(kind, measures[f"{kind}.{bounds}"])
            cells.append(Cell(value, f"baseline {baseline}"))
        rows.append(
            (
                Cell(bounds.replace("-", " to ", 1).replace("over to ", "over ")),
                *cells,
                Cell(f"{measures[f'exact_match.{bounds}'].count:,}"),
            )
        )
    return Table(("tokens in a row", *(MEASURES[kind] for kind in kinds), "rows"), tuple(rows), "scores")


QUESTIONS = 12
"""Questions in the picture of names: those with the greatest attention to one of them."""


def names(evaluated: DocumentScores) -> list[Section]:
    """The memory of names on the documents: its gates in a sentence, its questions, and its filters."""
    reading = evaluated.names
    if reading is None:
        return []
    blocks: list[Block] = []
    if reading.example is None:
        blocks.append(Notice(("No document has a name that two of its sentences hold.",)))
    else:
        example = reading.example
        gates = np.stack([example.ignore, example.update])
        blocks.append(
            WeightMap(
                "Gates in a sentence: how much of each token is written, and replaced",
                ("written", "read"),
                example.tokens,
                gates,
            )
        )
        best = np.sort(np.argsort(-example.found.max(0), kind="stable")[:QUESTIONS])
        keys = tuple(f"question {number + 1}" for number in best.tolist())
        title = "Which questions find which names: attention to a name in the sentences that hold it, before the gate"
        blocks.append(WeightMap(title, example.names, keys, example.found[:, best]))
    rows = [
        (
            Cell(f"{number + 1}.{place + 1}"),
            Cell(", ".join(token for token, _ in tokens), ", ".join(f"{share:.2f}" for _, share in tokens)),
        )
        for number, group in enumerate(reading.filters.groups)
        for place, tokens in enumerate(group)
    ]
    blocks.append(Table(("filter", "tokens that choose it most, with their mean shares"), tuple(rows), "texts"))
    lead = (
        "Sentences write answers to learned questions, and tokens of the other sentences read their mean. Filters are those of "
        "the ignore gate; eight share a softmax."
    )
    return [Section("Memory of names", tuple(blocks), (lead,))]


def main_scores(split: str, evaluated: DocumentScores) -> Spans:
    """The reconstruction of tokens, and the recall of hidden nodes of the level above, as a sentence."""
    lowest = list(evaluated.levels)[1]
    written, hidden = evaluated.levels[lowest].get("token_accuracy"), evaluated.levels[lowest].get("mlm_recall_at_10")
    if written is None or math.isnan(written.value):
        return ()
    text: list[str | Strong] = [
        f"On the {split} split, one vector gives back ",
        Strong(f"{written.value:.1%} of the tokens of a {lowest}"),
        f" (a trigram model that reads the true tokens before each place: {written.baseline:.1%})",
    ]
    if hidden is not None and hidden.count:
        text += [
            f", and a hidden {lowest} is among the first ten candidates for ",
            Strong(f"{hidden.value:.1%}"),
            f" (mean of its siblings: {hidden.baseline:.1%}; chance: {hidden.chance:.1%})",
        ]
    return (*text, ".", *chosen_on_dev(split))

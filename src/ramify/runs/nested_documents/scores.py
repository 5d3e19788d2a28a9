"""Held-out scores of models of nested documents."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ramify.dataset.store import Split, Store
from ramify.errors import counted
from ramify.inference.documents.evaluation import ROWS, DocumentScores, evaluate_documents, num_steps
from ramify.inference.documents.measures import Measure
from ramify.inference.documents.pipeline import DocumentPipeline
from ramify.runs.base import Evaluation, check_options, scoring

OPTIONS = ("rows", "levels", "precision", "progress")

COUNTS = ("duplicates", "only_children", "empty", "cut", "packed", "children_left_out")
"""Measures whose value is a number of nodes."""


@dataclass(frozen=True)
class NestedEvaluation(Evaluation):
    """Measures of each level."""

    scores: DocumentScores

    def to_json(self) -> dict[str, Any]:
        levels = {
            level: {name: measure.to_json() for name, measure in measures.items()}
            for level, measures in self.scores.levels.items()
        }
        reading = self.scores.names
        names = {} if reading is None else {"names": {"filters": reading.filters.to_json()}}
        return {"levels": levels} | names | self.unknown_tokens()

    def lines(self) -> list[str]:
        rows = [("level", "measure", "value", "baseline", "chance", "count", "p", "other baselines")]
        for level, measures in self.scores.levels.items():
            rows += [
                (level, name, *figures(name, measure), shown_p(measure), others(measure))
                for name, measure in measures.items()
                if name not in COUNTS or measure.value
            ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        text = [
            "  ".join(
                cell.ljust(width) if column in (0, 1, 7) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths))
            )
            for row in rows
        ]
        read = f"{counted(self.scores.documents, 'document')} of {counted(self.scores.unknown.tokens, 'token')}."
        return [read, *self.scores.notes, "", *(line.rstrip() for line in text)]


def figures(name: str, measure: Measure) -> tuple[str, str, str, str]:
    """Value, baseline, chance and count of a measure for a table; – for an unknown value."""
    form = ",.0f" if name in COUNTS else ".2f" if name.startswith("bleu") else ".4f"
    values = (measure.value, measure.baseline, measure.chance)
    one, two, three = (f"{value:{form}}" if value == value else "–" for value in values)
    return one, two, three, f"{measure.count:,}"


def shown_p(measure: Measure) -> str:
    return f"{measure.p:.4f}" if measure.p == measure.p else ""


def others(measure: Measure) -> str:
    """The further baselines of a measure."""
    return ", ".join(f"{name} {value:.4f}" for name, value in measure.others.items() if value == value)


def evaluate(
    pipeline: DocumentPipeline,
    source: str,
    store: Store,
    split: Split,
    options: Mapping[str, Any],
    *,
    most_tokens: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> NestedEvaluation:
    """Score a model on the documents of a split. Options: `OPTIONS`.

    `most_tokens`: only the first documents, up to about so many tokens. `advance` receives the progress in place of a bar.
    """
    check_options(options, OPTIONS, source, "a model of documents")
    rows, levels = options.get("rows", ROWS), options.get("levels")
    with scoring(pipeline, num_steps(pipeline.task), options) as step:
        scores = evaluate_documents(
            pipeline.task, store, split, rows=rows, most_tokens=most_tokens, levels=levels, advance=advance or step
        )
    return NestedEvaluation(scores, unknown_pieces=scores.unknown)

"""The parts that reports on models of running text share."""

from collections.abc import Mapping, Sequence
from typing import Any

from ramify.inference.common_footing import FootingScores
from ramify.runs.base import ReportParts
from ramify.runs.sections import Cell, Section, Spans, Strong, Table, chosen_on_dev

COLUMNS = ("predictions", "loss, nats", "accuracy", "count")


def report_parts(
    purpose: str, record: Mapping[str, Any], sections: Sequence[Section], headline: Spans, missing: str
) -> ReportParts:
    """The parts of a report, with the facts about the training text from run.json."""
    return ReportParts(
        purpose=purpose,
        examples="rows",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple((name.replace("_", " "), f"{value:,}") for name, value in record["text"].items()),
    )


def held_out(
    split: str, target: str, scores: Mapping[str, Mapping[str, Any]], asked: str, footing: FootingScores | None, lead: str
) -> tuple[Section, Spans]:
    """The held-out scores as a table, and the main one as a sentence.

    `scores` has the scores of all kinds of predictions by their names, the main one first; `target` is the noun for it in the
    sentence. `asked` describes the predictions of the common footing, if there is one.
    """
    rows = [
        (Cell(name), Cell(f"{score['loss']:.3f}"), Cell(f"{score['accuracy']:.1%}"), Cell(f"{score['count']:,}"))
        for name, score in scores.items()
    ]
    end = "."
    if footing is not None:
        per_byte, per_token = footing.per_byte, footing.per_token
        shared = "no score, because all windows hold unknown tokens" if per_byte is None else f"{per_byte:.3f} nats per byte"
        token_loss = "–" if per_token is None else f"{per_token:.3f}"
        rows.append((Cell(asked, shared), Cell(token_loss), Cell("–"), Cell(f"{len(footing.nats):,}")))
        end = f", and {asked} at {shared}."
    main = next(iter(scores.values()))
    headline = (
        f"On the {split} split, it predicts {target} at ",
        Strong(f"{main['loss']:.3f} nats"),
        end,
        *chosen_on_dev(split),
    )
    return Section("Held-out scores", (Table(COLUMNS, tuple(rows)),), (lead,)), headline

"""Held-out scores of models of nested documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ramify.dataset.store import Split, Store
from ramify.inference.documents import DocumentPipeline
from ramify.runs.base import Evaluation, check_options

OPTIONS = ("precision", "progress")


@dataclass(frozen=True)
class NestedEvaluation(Evaluation):
    """Measures of each level."""

    levels: dict[str, dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {"levels": self.levels}

    def lines(self) -> list[str]:
        return []


def score(pipeline: DocumentPipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> NestedEvaluation:
    """Score a model on the documents of a split. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a model of documents")
    return NestedEvaluation({})

"""Held-out scores of generators of nested documents, beside honest floors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.dataset.store import Split, Store
from ramify.inference.documents.generate import DocumentGenerator
from ramify.inference.documents.generated_measures import Known, floor_measures
from ramify.inference.documents.real_vectors import CachedVectors
from ramify.inference.documents.reconstruction import NO_BLEU, has_bleu
from ramify.runs.base import Evaluation, check_options, scoring

OPTIONS = ("rows", "precision", "progress")

ROWS = 1_000
"""Generated vectors per level, by default, and the most real ones beside them."""

TEXTS = 32
"""The vectors of each source that are decoded down to text."""

SEED = 0


@dataclass(frozen=True)
class GeneratedEvaluation(Evaluation):
    """The measures of each level: those of its generator, and of each floor."""

    levels: Mapping[str, Mapping[str, Mapping[str, float]]]
    counts: Mapping[str, tuple[int, int]]
    """The number of training and of held-out vectors of each level."""

    def to_json(self) -> dict[str, Any]:
        known = {
            level: {
                source: {name: value if np.isfinite(value) else None for name, value in measures.items()}
                for source, measures in by_source.items()
            }
            for level, by_source in self.levels.items()
        }
        counts = {level: {"training": one, "held_out": other} for level, (one, other) in self.counts.items()}
        return {"levels": known, "vectors": counts}

    def lines(self) -> list[str]:
        lines = [*self.left_out]
        for level, by_source in self.levels.items():
            training, held_out = self.counts[level]
            lines += ["", f"{level}: {held_out:,} held-out vectors, {training:,} of training"]
            names = list(next(iter(by_source.values())))
            width = max(map(len, names))
            lines.append(" ".join([" " * width, *(f"{source:>10}" for source in by_source)]))
            for name in names:
                values = (f"{measures[name]:.4f}" if np.isfinite(measures[name]) else "–" for measures in by_source.values())
                lines.append(" ".join([f"{name:<{width}}", *(f"{value:>10}" for value in values)]))
        return lines


def evaluate(
    pipeline: DocumentGenerator, source: str, store: Store, split: Split, options: Mapping[str, Any]
) -> GeneratedEvaluation:
    """Score the generators of a model on the documents of a split. Options: `OPTIONS`.

    The floors are made of the vectors of the train split. Raises `RamifyError` if a level has too few nodes in either.
    """
    check_options(options, OPTIONS, source, "a model with generators of nested documents")
    rows = options.get("rows", ROWS)
    adversary = pipeline.adversary
    known = {}
    for name, trees in (("train", store.split("train")), (split, store.evaluation_trees(split))):
        vectors = CachedVectors(adversary, store, trees)
        vectors.check(f"the split {name} of {store.path}")
        known[name] = vectors
    training, held_out = known["train"], known[split]
    levels, counts = {}, {}
    with scoring(pipeline, len(adversary.learning), options) as step:
        training.open()
        held_out.open()
        banks = training.banks()
        for level in adversary.learning:
            real = Known(training.of_level(level), held_out.of_level(level, rows))
            name = adversary.names[level]
            levels[name] = floor_measures(adversary, level, real, banks, number=rows, texts=TEXTS, seed=SEED)
            counts[name] = (len(real.training), len(real.held_out))
            step(1)
    return GeneratedEvaluation(levels, counts, left_out=() if has_bleu() else (NO_BLEU,))

"""Ranks of right candidates: each query's target is looked for among its candidates by several systems."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.inference.documents.measures import Measure, Measures, mean
from ramify.metrics.ranking import sign_flips

MODEL = "model"
BASELINES = ("dot", "cosine")
"""Systems of which the better one is the baseline: a mean vector that is compared by dot product, or by cosine. All others are
further baselines."""


@dataclass(frozen=True)
class Ranks:
    """The rank of every query's target by every system, from 1."""

    unit: Ints
    """The row that each target is a child of. Queries of one row depend on each other."""
    siblings: Ints
    """The number of children of that row."""
    candidates: Ints
    """The number of candidates of each query, the target included."""
    systems: Mapping[str, NDArray[np.float64]]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`."""
        systems = {name: values for name, values in arrays.items() if name not in ("unit", "siblings", "candidates")}
        return cls(arrays["unit"], arrays["siblings"], arrays["candidates"], systems)

    @classmethod
    def pooled(cls, parts: Sequence["Ranks"]) -> Self:
        """The queries of several models. Queries of the same row stay one unit."""
        names = parts[0].arrays()
        return cls.of({name: np.concatenate([part.arrays()[name] for part in parts]) for name in names})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All values by name, one per query."""
        return {"unit": self.unit, "siblings": self.siblings, "candidates": self.candidates, **self.systems}

    def some(self, chosen: NDArray[np.bool_]) -> "Ranks":
        return Ranks.of({name: values[chosen] for name, values in self.arrays().items()})

    def first(self, most: int) -> Measure:
        """The share of queries whose target is among the first `most`."""
        return self._measured({"": self._hits(most)})[""]

    def auroc(self) -> Measure:
        """The mean share of the other candidates that rank below the target."""
        return self._measured({"": self._below()})[""]

    def measures(self, prefix: str, choice: str = "") -> Measures:
        """Recall at 10, accuracy and AUROC of all queries, and of those whose target has two or more siblings. `choice` names
        the candidates."""
        found: Measures = {}
        for suffix, ranks in ((choice, self), (f"{choice}.three_or_more", self.some(self.siblings >= 3))):
            values = {"recall_at_10": ranks._hits(10), "accuracy": ranks._hits(1), "auroc": ranks._below()}
            found |= {f"{prefix}_{name}{suffix}": measure for name, measure in ranks._measured(values).items()}
        return found

    def _hits(self, most: int) -> "_Values":
        chance = mean(np.minimum(1.0, most / self.candidates))
        return {name: (values <= most).astype(np.float64) for name, values in self.systems.items()}, chance

    def _below(self) -> "_Values":
        chance = 0.5 if len(self.unit) else math.nan
        return {name: 1 - (values - 1) / (self.candidates - 1) for name, values in self.systems.items()}, chance

    def _measured(self, kinds: Mapping[str, "_Values"]) -> Measures:
        """The measures with these values, by name."""
        # Chosen on the queries themselves, in favour of the baseline.
        better = [max(BASELINES, key=lambda name: float(values[name].sum())) for values, _ in kinds.values()]
        differences = [values[MODEL] - values[name] for (values, _), name in zip(kinds.values(), better, strict=True)]
        ps = sign_flips(np.stack(differences), self.unit)
        found: Measures = {}
        for (kind, (values, chance)), name, p in zip(kinds.items(), better, ps, strict=True):
            others = {name: mean(value) for name, value in values.items() if name not in (MODEL, *BASELINES)}
            found[kind] = Measure(mean(values[MODEL]), mean(values[name]), chance, len(self.unit), p, others, self.arrays())
        return found


_Values = tuple[Mapping[str, NDArray[np.float64]], float]
"""The value of each query by system, and chance."""

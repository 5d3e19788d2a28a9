"""Held-out losses of models of nested documents, with fixed draws."""

from collections.abc import Callable

import numpy as np
import torch

from ramify.batching.document_batch import DocumentCollator
from ramify.batching.forest import Ints
from ramify.batching.views.documents import Documents
from ramify.nn.ragged import runs
from ramify.tasks.nested_autoencoder import NestedAutoencoder


@torch.no_grad()
def held_out_losses(
    task: NestedAutoencoder,
    view: Documents,
    collator: DocumentCollator,
    budget: int,
    *,
    examples: Ints | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """The mean of every loss over the examples of a view (None: all), each weighted as in training."""
    chosen = np.arange(len(view)) if examples is None else examples
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    with task.evaluating():
        for start, stop in runs(view.costs[chosen], budget):
            batch = collator([view.example(int(number)) for number in chosen[start:stop]]).to(task.device)
            batch = task.draw(batch, seed + start)
            ones = dict.fromkeys(task.counts(batch, "main"), 1.0)
            for name, count in task.counts(batch, "main").items():
                counts[name] = counts.get(name, 0.0) + count
            for losses, _ in task.losses(batch, ones, "main", None):
                for name, loss in losses.items():
                    sums[name] = sums.get(name, 0.0) + float(loss)
            if progress is not None:
                progress(stop - start)
    return {name: total / max(counts[name], 1.0) for name, total in sums.items() if counts.get(name)}

"""Candidate pruning: a linear map of features ranks all candidates of a message, and the model scores the highest alone
(Ramify's own)."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.disentangle.batch import LinkBatch, count_pair_features
from ramify.disentangle.features.pairs import PARENT_FEATURES
from ramify.errors import RamifyError
from ramify.nn.ragged import Rows, as_table, highest
from ramify.progress import activity, track

MESSAGES = 10_000
"""Messages that a pruner is fitted to, at most: it has one weight per feature."""
WEIGHT_DECAY = 1e-4
ITERATIONS = 200


class CandidatePruner(nn.Module):
    """Keeps `num_candidates` candidates of each message. The message itself is always kept: it may start a conversation."""

    def __init__(self, num_candidates: int, with_context: bool) -> None:
        super().__init__()
        self.num_candidates = num_candidates
        self.pair = nn.Linear(count_pair_features(with_context), 1, bias=False)
        self.parent = nn.Linear(len(PARENT_FEATURES), 1, bias=False)

    def forward(self, batch: LinkBatch) -> Float[Tensor, " key"]:
        parent = self.parent(batch.all_parent_features).index_select(0, batch.parent_index)
        return (self.pair(batch.pair_features) + parent).squeeze(1)

    @torch.no_grad()
    def select(self, batch: LinkBatch, excluded: Int[Tensor, " key"] | None = None) -> tuple[Int[Tensor, " chosen"], Rows]:
        """The candidates to score, and how many of them each target has. Excluded candidates come after all others."""
        with torch.autocast(batch.device.type, enabled=False):
            scores = self(batch)
        if excluded is not None:
            table, cells = as_table(scores, batch.candidates, -torch.inf)
            # WordRanks, not scores lowered by a constant: rounding would make those equal.
            rank = table.argsort(dim=1, descending=True, stable=True).argsort(dim=1).flatten().index_select(0, cells)
            scores = -(rank + excluded * table.shape[1]).float()
        scores = scores.masked_fill(batch.is_self.bool(), torch.inf)
        return highest(scores, batch.candidates, self.num_candidates)


def fit_candidate_pruner(
    examples: Iterable[tuple[LinkBatch, Float[Tensor, " key"]]], num_candidates: int, with_context: bool
) -> CandidatePruner:
    """Fit a pruner to the probabilities that a model gives the candidates of some batches; gold links are not needed. Raises
    `RamifyError` where no message has a candidate but itself."""
    pruner = CandidatePruner(num_candidates, with_context)
    features, targets, lengths, count = [], [], [], 0
    for batch, probabilities in track("predicting links", examples):
        other = ~batch.is_self.bool()
        columns = torch.cat([batch.pair_features, batch.all_parent_features.index_select(0, batch.parent_index)], dim=1)
        features.append(columns[other].cpu())
        targets.append(probabilities[other].float().cpu())
        lengths.append(batch.candidates.host_lengths - 1)
        count += batch.num_targets
        if count >= MESSAGES:
            break
    if not sum(map(len, targets)):
        raise RamifyError(
            "No message of these logs has a candidate but itself, so a candidate pruner has nothing to learn from."
        )
    x, p, sizes = torch.cat(features), torch.cat(targets), np.concatenate(lengths)
    rows = Rows.build(sizes[sizes > 0])
    mean, scale = x.mean(0), x.std(0, correction=0) + 1e-3
    x = (x - mean) / scale
    weights = torch.zeros(x.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def compute_loss() -> Tensor:
        optimizer.zero_grad()
        table, cells = as_table(x @ weights, rows, -torch.inf)
        loss = -(p * F.log_softmax(table, dim=1).flatten().index_select(0, cells)).sum() / len(rows.host_lengths)
        loss = loss + WEIGHT_DECAY * weights.square().sum()
        loss.backward()
        return loss

    with activity("fitting the candidate pruner"):
        optimizer.step(compute_loss)
    with torch.no_grad():
        # The features' mean shifts the scores of all candidates of a message alike, so it is left out.
        of_pair, of_parent = (weights / scale).split([pruner.pair.in_features, pruner.parent.in_features])
        pruner.pair.weight.copy_(of_pair)
        pruner.parent.weight.copy_(of_parent)
    return pruner

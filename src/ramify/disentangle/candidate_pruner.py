"""A first look at all candidates of a message, by a linear map of features alone: the model reads those that are likeliest by
it (Ramify's own)."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.disentangle.batch import LinkBatch, pair_width
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.features.pairs import ANSWERED
from ramify.errors import RamifyError
from ramify.nn.ragged import Rows, as_table, highest

if TYPE_CHECKING:
    from ramify.disentangle.task import ReplyTo

MESSAGES = 10_000
"""What it is learned from, at most; there is one weight for a feature."""
WEIGHT_DECAY = 1e-4
ITERATIONS = 200


class FirstLook(nn.Module):
    """Scores of pairs. A message's own place among its candidates is read in any case: it may start a conversation."""

    def __init__(self, among: int, with_surroundings: bool) -> None:
        super().__init__()
        self.among = among
        self.pair = nn.Linear(pair_width(with_surroundings), 1, bias=False)
        self.answered = nn.Linear(len(ANSWERED), 1, bias=False)

    def forward(self, batch: LinkBatch) -> Float[Tensor, " key"]:
        answered = self.answered(batch.all_answered).index_select(0, batch.answered_as)
        return (self.pair(batch.pairs) + answered).squeeze(1)

    @torch.no_grad()
    def chosen(self, batch: LinkBatch, hidden: Int[Tensor, " key"] | None = None) -> tuple[Int[Tensor, " chosen"], Rows]:
        """Which candidates the model is to read, and how they fall to the targets; the hidden ones where there
        are too few others, the likeliest first."""
        with torch.autocast(batch.device.type, enabled=False):
            scores = self(batch)
        if hidden is not None:
            table, cells = as_table(scores, batch.candidates, -torch.inf)
            # Places, not scores far below the others: those would be rounded alike, and who is read left to chance.
            place = table.argsort(dim=1, descending=True, stable=True).argsort(dim=1).flatten().index_select(0, cells)
            scores = -(place + hidden * table.shape[1]).float()
        scores = scores.masked_fill(batch.is_self.bool(), torch.inf)
        return highest(scores, batch.candidates, self.among)


def learn(task: "ReplyTo", logs: Logs, among: int, seed: int = 0) -> FirstLook:
    """Fit a first look to what a model believes of messages drawn from some logs; what they answer need not be known. Raises
    `RamifyError` where no message has a candidate but itself."""
    from ramify.disentangle.inference.decode import batches, collator, keep_vectors

    look = FirstLook(among, task.backbone.reads_surroundings)
    features, shares, lengths, seen = [], [], [], 0
    with task.evaluating(), torch.no_grad():
        collate = collator(task, logs, keep_vectors(task, logs, np.arange(len(logs))))
        for batch in batches(task, collate, logs.offsets[:-1], shuffle_by=seed):
            other = ~batch.is_self.bool()
            found = torch.cat([batch.pairs, batch.all_answered.index_select(0, batch.answered_as)], dim=1)
            features.append(found[other].cpu())
            shares.append(task.probabilities(task.scores(batch), batch)[other].float().cpu())
            lengths.append(batch.candidates.host_lengths - 1)
            seen += batch.num_targets
            if seen >= MESSAGES:
                break
    if not sum(map(len, shares)):
        raise RamifyError("no message of these logs has a candidate: there is nothing to learn by.")
    x, p, rows = torch.cat(features), torch.cat(shares), np.concatenate(lengths)
    rows = Rows.build(rows[rows > 0])
    mean, scale = x.mean(0), x.std(0, correction=0) + 1e-3
    x = (x - mean) / scale
    weights = torch.zeros(x.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        table, cells = as_table(x @ weights, rows, -torch.inf)
        nats = -(p * F.log_softmax(table, dim=1).flatten().index_select(0, cells)).sum() / len(rows.host_lengths)
        nats = nats + WEIGHT_DECAY * weights.square().sum()
        nats.backward()
        return nats

    optimizer.step(loss)
    with torch.no_grad():
        # What is subtracted from features is the same for all candidates of a message.
        of_pair, of_answered = (weights / scale).split([look.pair.in_features, look.answered.in_features])
        look.pair.weight.copy_(of_pair)
        look.answered.weight.copy_(of_answered)
    return look

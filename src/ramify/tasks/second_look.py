"""A second look at the likeliest candidates of a message: at first sight all are decided, and then each is seen in the
conversation that it belongs to (Ramify's own)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.chat.channel import Ints
from ramify.chat.conversing import CONVERSING, Course, conversing
from ramify.chat.logs import Logs
from ramify.errors import RamifyError

if TYPE_CHECKING:
    from ramify.tasks.decoding import Opinion
    from ramify.tasks.reply_to import ReplyTo

AMONG = 16
"""Candidates that are seen again; what is believed of the others stays."""
EPOCHS, UPDATES, LEAST, MOST = 8, 100, 16, 512
"""Epochs of about so many updates, of so many messages at least, and at most."""
RATE, WEIGHT_DECAY = 2e-3, 1e-2


class SecondLook(nn.Module):
    """What is to be added to the logarithm of each candidate's probability."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(len(CONVERSING), hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, features: Float[Tensor, "message place conversing"]) -> Float[Tensor, "message place"]:
        return self.last(F.gelu(self.second(F.gelu(self.first(features))))).squeeze(-1)

    @torch.no_grad()
    def again(self, opinion: "Opinion", course: Course) -> "Opinion":
        """What is believed after a second look. The messages come in order; the course goes on with what the first says."""
        seen = _Shortlist.of(opinion, course)
        device = self.last.weight.device
        with torch.autocast(device.type, enabled=False):
            more = self(torch.from_numpy(seen.features).to(device)).cpu().numpy()
        real = seen.chances > 0
        more = np.where(real, more, -np.inf)
        weight = seen.chances * np.exp(more - more.max(axis=1, keepdims=True))
        weight *= seen.chances.sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
        probabilities = opinion.probabilities.copy()
        probabilities[seen.places[real]] = weight[real]
        return replace(opinion, probabilities=probabilities)


class _Shortlist:
    """The likeliest candidates of each message, in the conversations of the first sight."""

    def __init__(self, places: Ints, candidates: Ints, chances: NDArray[np.float32], features: NDArray[np.float32]) -> None:
        self.places, self.candidates, self.chances, self.features = places, candidates, chances, features

    @classmethod
    def of(cls, opinion: "Opinion", course: Course) -> "_Shortlist":
        course.answered[opinion.messages], _ = opinion.likeliest_by_conversation(course.conversation)
        inside = np.arange(int(opinion.lengths.max(initial=1))) < opinion.lengths[:, None]
        table = np.full(inside.shape, -1.0, dtype=np.float32)
        # No chance is so small that it would look like none at all.
        table[inside] = np.maximum(opinion.probabilities, np.finfo(np.float32).tiny)
        order = np.argsort(-table, axis=1, kind="stable")[:, :AMONG]
        chances = np.maximum(np.take_along_axis(table, order, axis=1), 0)
        order = np.where(chances > 0, order, 0)
        places = (np.cumsum(opinion.lengths) - opinion.lengths)[:, None] + order
        candidates = opinion.candidates[places]
        return cls(places, candidates, chances, conversing(course, opinion.messages, candidates, chances))


def learn(seen: Iterable[tuple["ReplyTo", Logs]], hidden: int, seed: int = 0) -> SecondLook:
    """Fit a second look to what models believe of logs that they were not trained on (of those that they were, they believe
    too much), where it is known what messages answer. Raises `RamifyError` where that is of none."""
    from ramify.tasks.decoding import opinions

    features, chances, gold = [], [], []
    for task, logs in seen:
        course = Course.of(logs)
        for opinion in opinions(task, logs):
            own = _Shortlist.of(opinion, course)
            right = logs.is_link(np.repeat(opinion.messages, own.candidates.shape[1]), own.candidates.ravel())
            right = (right.reshape(own.candidates.shape) & (own.chances > 0)).astype(np.float32)
            found = right.any(axis=1)
            for kept, every in ((features, own.features), (chances, own.chances), (gold, right)):
                kept.append(_filled(every[found]))
    if not sum(map(len, gold)):
        raise RamifyError("nobody says of any message of these logs what it answers: there is nothing to learn by.")
    x, p, right = (torch.from_numpy(np.concatenate(each)) for each in (features, chances, gold))
    right = right / right.sum(1, keepdim=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        look = SecondLook(hidden)
    mean, scale = x.mean((0, 1)), x.std((0, 1)) + 1e-3
    x = (x - mean) / scale
    size = min(max(len(x) // UPDATES, LEAST), MOST)
    steps = EPOCHS * -(-len(x) // size)
    optimizer = torch.optim.AdamW(look.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(x), generator=generator).split(size):
            # Where a message has fewer candidates, the others' chance is zero, and stays next to nothing.
            scores = p[part].clamp_min(torch.finfo(p.dtype).tiny).log() + look(x[part])
            loss = -(right[part] * F.log_softmax(scores, dim=1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    _take_in(look, mean, scale)
    return look


def _filled(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """With as many places as all others have."""
    return np.pad(rows, [(0, 0), (0, AMONG - rows.shape[1]), *[(0, 0)] * (rows.ndim - 2)])


@torch.no_grad()
def _take_in(look: SecondLook, mean: Float[Tensor, " conversing"], scale: Float[Tensor, " conversing"]) -> None:
    """Let the first layer do what was done to the features: they come as they are, afterwards."""
    look.first.weight /= scale
    look.first.bias.sub_(look.first.weight @ mean)

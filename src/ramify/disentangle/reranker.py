"""A second look at the likeliest candidates of a message: at first sight all are decided, and then each is seen in the
conversation that it belongs to, and with hindsight beside what is said later (Ramify's own)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.features.conversation import CONVERSING, Course, conversing
from ramify.disentangle.features.lookahead import AHEAD, HINDSIGHT, hindsight
from ramify.errors import RamifyError
from ramify.nn.heads import nats_of_any

if TYPE_CHECKING:
    from ramify.disentangle.inference.decode import Opinion
    from ramify.disentangle.task import ReplyTo

AMONG = 16
"""Candidates that are seen again; what is believed of the others stays."""
EPOCHS, UPDATES, LEAST, MOST = 8, 100, 16, 512
"""Epochs of about so many updates, of so many messages at least, and at most."""
RATE, WEIGHT_DECAY = 2e-3, 1e-2


class SecondLook(nn.Module):
    """What is to be added to the logarithm of each candidate's probability."""

    def __init__(self, hidden: int, hindsight: bool = False) -> None:
        super().__init__()
        self.hindsight = hindsight
        width = len(CONVERSING) + (len(HINDSIGHT) if hindsight else 0)
        self.first, self.second, self.last = nn.Linear(width, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, features: Float[Tensor, "message place feature"]) -> Float[Tensor, "message place"]:
        return self.last(F.gelu(self.second(F.gelu(self.first(features))))).squeeze(-1)

    def again(self, first: "Iterable[Opinion]", course: Course) -> "Iterator[Opinion]":
        """What is believed after a second look, of what was believed at first sight. The messages come in order; the course
        goes on with what the first sight says."""
        for opinion, seen in _seen(first, course, self.hindsight):
            yield self._weighed(opinion, seen)

    @torch.no_grad()
    def _weighed(self, opinion: "Opinion", seen: "_Shortlist") -> "Opinion":
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
    def of(cls, opinion: "Opinion", course: Course, following: "Opinion | None") -> "_Shortlist":
        """`following`, for a look with hindsight: what is believed of these messages, and of those after them."""
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
        features = conversing(course, opinion.messages, candidates, chances)
        if following is not None:
            later = hindsight(course, following.messages, following.by_distance(course.window), candidates, chances > 0)
            features = np.concatenate([features, later], axis=2)
        return cls(places, candidates, chances, features)


def _seen(first: "Iterable[Opinion]", course: Course, hindsight: bool) -> "Iterator[tuple[Opinion, _Shortlist]]":
    """Each opinion with what is seen at a second look."""
    for opinion, following in _followed(first, AHEAD if hindsight else 0):
        yield opinion, _Shortlist.of(opinion, course, following if hindsight else None)


def _followed(parts: "Iterable[Opinion]", ahead: int) -> "Iterator[tuple[Opinion, Opinion]]":
    """Each with itself and what follows it: `ahead` messages at least, where there are as many."""
    held: list[Opinion] = []
    for part in parts:
        held.append(part)
        while held and sum(len(each.messages) for each in held[1:]) >= ahead:
            yield held[0], held[0].joined(held)
            del held[0]
    while held:
        yield held[0], held[0].joined(held)
        del held[0]


def learn(
    seen: Iterable[tuple["ReplyTo", Logs]],
    hidden: int,
    seed: int = 0,
    *,
    hindsight: bool = False,
    conversation_weight: float = 0.0,
) -> SecondLook:
    """Fit a second look to what models believe of logs that they were not trained on (of those that they were, they believe
    too much), where it is known what messages answer; `conversation_weight` as in `ReplyToConfig`. Raises `RamifyError` where
    that is of none."""
    from ramify.disentangle.inference.decode import opinions

    features, chances, gold, joined = [], [], [], []
    for task, logs in seen:
        for opinion, own in _seen(opinions(task, logs), Course.of(logs), hindsight):
            real, messages = own.chances > 0, opinion.messages[:, None]
            right = logs.is_link(np.repeat(opinion.messages, real.shape[1]), own.candidates.ravel()).reshape(real.shape) & real
            together = (logs.conversation[own.candidates] == logs.conversation[messages]) & (own.candidates != messages) & real
            found = right.any(axis=1)
            parts = (own.features, own.chances, right.astype(np.float32), right | together)
            for kept, every in zip((features, chances, gold, joined), parts):
                kept.append(_filled(every[found]))
    if not sum(map(len, gold)):
        raise RamifyError("nobody says of any message of these logs what it answers: there is nothing to learn by.")
    x, p, right, together = (torch.from_numpy(np.concatenate(each)) for each in (features, chances, gold, joined))
    right = right / right.sum(1, keepdim=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        look = SecondLook(hidden, hindsight)
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
            log_shares = F.log_softmax(scores, dim=1)
            loss = -(right[part] * log_shares).sum(1).mean()
            if conversation_weight:
                said = nats_of_any(log_shares.masked_fill(~together[part], -torch.inf))
                loss = loss + conversation_weight * said / len(part)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    _take_in(look, mean, scale)
    return look


def _filled(rows: NDArray) -> NDArray:
    """With as many places as all others have."""
    return np.pad(rows, [(0, 0), (0, AMONG - rows.shape[1]), *[(0, 0)] * (rows.ndim - 2)])


@torch.no_grad()
def _take_in(look: SecondLook, mean: Float[Tensor, " feature"], scale: Float[Tensor, " feature"]) -> None:
    """Let the first layer do what was done to the features: they come as they are, afterwards."""
    look.first.weight /= scale
    look.first.bias.sub_(look.first.weight @ mean)

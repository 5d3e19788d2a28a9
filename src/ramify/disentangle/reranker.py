"""Reranking: the likeliest candidates of a message are scored once more by the conversations that they belong to, and with
lookahead by later messages, too (Ramify's own)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.features.conversation import CONVERSATION_FEATURES, ConversationState, compute_conversation_features
from ramify.disentangle.features.lookahead import LOOKAHEAD, LOOKAHEAD_FEATURES, compute_lookahead_features
from ramify.disentangle.posterior import LinkPosterior
from ramify.errors import RamifyError
from ramify.nn.heads import marginal_nll
from ramify.progress import track

CANDIDATES = 16
"""Candidates that are reranked; the others keep their probabilities."""
EPOCHS, UPDATES, MIN_BATCH, MAX_BATCH = 8, 100, 16, 512
"""Epochs of about so many updates, with a least and a greatest number of messages per update."""
RATE, WEIGHT_DECAY = 2e-3, 1e-2


class Reranker(nn.Module):
    """Adds a learned term to the logarithm of each candidate's probability."""

    def __init__(self, dim: int, lookahead: bool = False) -> None:
        super().__init__()
        self.lookahead = lookahead
        width = len(CONVERSATION_FEATURES) + (len(LOOKAHEAD_FEATURES) if lookahead else 0)
        self.input_layer, self.hidden_layer, self.output_layer = nn.Linear(width, dim), nn.Linear(dim, dim), nn.Linear(dim, 1)
        nn.init.zeros_(self.output_layer.weight)
        nn.init.zeros_(self.output_layer.bias)

    def forward(self, features: Float[Tensor, "message rank feature"]) -> Float[Tensor, "message rank"]:
        return self.output_layer(F.gelu(self.hidden_layer(F.gelu(self.input_layer(features))))).squeeze(-1)

    def rerank(self, posteriors: Iterable[LinkPosterior], state: ConversationState) -> Iterator[LinkPosterior]:
        """The posteriors, reranked. They come in the order of the messages; `state` is updated with the decisions that they
        lead to before reranking."""
        for posterior, shortlist in list_candidates(posteriors, state, self.lookahead):
            yield self._reweigh(posterior, shortlist)

    @torch.no_grad()
    def _reweigh(self, posterior: LinkPosterior, shortlist: "Shortlist") -> LinkPosterior:
        device = self.output_layer.weight.device
        with torch.autocast(device.type, enabled=False):
            terms = self(torch.from_numpy(shortlist.features).to(device)).cpu().numpy()
        before = shortlist.probabilities
        real = before > 0
        terms = np.where(real, terms, -np.inf)
        weight = before * np.exp(terms - terms.max(axis=1, keepdims=True))
        weight *= before.sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
        probabilities = posterior.probabilities.copy()
        probabilities[shortlist.places[real]] = weight[real]
        return replace(posterior, probabilities=probabilities)


@dataclass(frozen=True)
class Shortlist:
    """The likeliest candidates of each message, the likeliest first, with their features."""

    places: Ints
    """Where each stands in the posterior."""
    candidates: Ints
    probabilities: NDArray[np.float32]
    """Zero behind the candidates of a message that has fewer than others."""
    features: NDArray[np.float32]

    @classmethod
    def build(cls, posterior: LinkPosterior, state: ConversationState, following: LinkPosterior | None) -> "Shortlist":
        """`following`, for lookahead: the posterior of these messages and of those after them."""
        state.parent[posterior.messages], _ = posterior.choose_by_conversation(state.conversation)
        inside = np.arange(int(posterior.lengths.max(initial=1))) < posterior.lengths[:, None]
        table = np.full(inside.shape, -1.0, dtype=np.float32)
        # A candidate's probability is never so small that the candidate would look absent.
        table[inside] = np.maximum(posterior.probabilities, np.finfo(np.float32).tiny)
        order = np.argsort(-table, axis=1, kind="stable")[:, :CANDIDATES]
        probabilities = np.maximum(np.take_along_axis(table, order, axis=1), 0)
        order = np.where(probabilities > 0, order, 0)
        places = (np.cumsum(posterior.lengths) - posterior.lengths)[:, None] + order
        candidates = posterior.candidates[places]
        features = compute_conversation_features(state, posterior.messages, candidates, probabilities)
        if following is not None:
            later = compute_lookahead_features(
                state, following.messages, following.tabulate(state.window), candidates, probabilities > 0
            )
            features = np.concatenate([features, later], axis=2)
        return cls(places, candidates, probabilities, features)


def list_candidates(
    posteriors: Iterable[LinkPosterior], state: ConversationState, lookahead: bool
) -> Iterator[tuple[LinkPosterior, Shortlist]]:
    """Each posterior with the candidates that are reranked."""
    for posterior, following in _pair_with_following(posteriors, LOOKAHEAD if lookahead else 0):
        yield posterior, Shortlist.build(posterior, state, following if lookahead else None)


def _pair_with_following(parts: Iterable[LinkPosterior], num_messages: int) -> Iterator[tuple[LinkPosterior, LinkPosterior]]:
    """Each part with the concatenation of itself and the next parts, which hold at least so many messages where there are as
    many."""
    held: list[LinkPosterior] = []
    for part in parts:
        held.append(part)
        while held and sum(len(later.messages) for later in held[1:]) >= num_messages:
            yield held[0], LinkPosterior.concatenate(held)
            del held[0]
    while held:
        yield held[0], LinkPosterior.concatenate(held)
        del held[0]


def fit_reranker(
    examples: Iterable[tuple[Logs, Iterable[LinkPosterior]]],
    dim: int,
    seed: int = 0,
    *,
    lookahead: bool = False,
    conversation_weight: float = 0.0,
) -> Reranker:
    """Fit a reranker to annotated logs, given the posteriors of models that were not trained on them (a model is too sure of
    its own training logs). `conversation_weight` as in `LinkConfig`. Raises `RamifyError` where no message is annotated."""
    x, p, is_parent, in_conversation = _collect(examples, lookahead)
    target = is_parent / is_parent.sum(1, keepdim=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        reranker = Reranker(dim, lookahead)
    mean, scale = x.mean((0, 1)), x.std((0, 1)) + 1e-3
    x = (x - mean) / scale
    size = min(max(len(x) // UPDATES, MIN_BATCH), MAX_BATCH)
    steps = EPOCHS * -(-len(x) // size)
    optimizer = torch.optim.AdamW(reranker.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for _ in track("fitting the reranker", range(EPOCHS), EPOCHS):
        for part in torch.randperm(len(x), generator=generator).split(size):
            # An absent candidate has the probability zero, and stays next to it.
            scores = p[part].clamp_min(torch.finfo(p.dtype).tiny).log() + reranker(x[part])
            log_shares = F.log_softmax(scores, dim=1)
            loss = -(target[part] * log_shares).sum(1).mean()
            if conversation_weight:
                nll = marginal_nll(log_shares.masked_fill(~in_conversation[part], -torch.inf))
                loss = loss + conversation_weight * nll / len(part)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    _absorb_standardization(reranker, mean, scale)
    return reranker


def _collect(
    examples: Iterable[tuple[Logs, Iterable[LinkPosterior]]], lookahead: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and probabilities of the candidates of all messages whose parent is on their shortlist, with flags of parents
    and of messages in a parent's conversation."""
    collected: tuple[list[NDArray], ...] = ([], [], [], [])
    for logs, posteriors in examples:
        candidates_of = list_candidates(posteriors, ConversationState.start(logs), lookahead)
        for posterior, shortlist in track("predicting links", candidates_of):
            candidates, real = shortlist.candidates, shortlist.probabilities > 0
            child = np.broadcast_to(posterior.messages[:, None], real.shape)
            is_parent = logs.is_link(child.ravel(), candidates.ravel()).reshape(real.shape) & real
            same_conversation = (logs.conversation[candidates] == logs.conversation[child]) & (candidates != child) & real
            annotated = is_parent.any(axis=1)
            parts = (shortlist.features, shortlist.probabilities, is_parent.astype(np.float32), is_parent | same_conversation)
            for kept, part in zip(collected, parts):
                kept.append(_widen(part[annotated]))
    if not sum(map(len, collected[0])):
        raise RamifyError(
            "No message of these logs has a gold link to one of its candidates, so a reranker has nothing to learn from."
        )
    x, p, is_parent, in_conversation = (torch.from_numpy(np.concatenate(kept)) for kept in collected)
    return x, p, is_parent, in_conversation


def _widen(rows: NDArray) -> NDArray:
    """Padded to `CANDIDATES` columns."""
    return np.pad(rows, [(0, 0), (0, CANDIDATES - rows.shape[1]), *[(0, 0)] * (rows.ndim - 2)])


@torch.no_grad()
def _absorb_standardization(reranker: Reranker, mean: Float[Tensor, " feature"], scale: Float[Tensor, " feature"]) -> None:
    """Make the first layer take the features as they are."""
    reranker.input_layer.weight /= scale
    reranker.input_layer.bias.sub_(reranker.input_layer.weight @ mean)

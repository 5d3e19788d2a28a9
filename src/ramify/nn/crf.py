"""Linear-chain conditional random fields on rows (Lafferty et al. 2001), without padding."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ramify.nn.pooling import row_sums
from ramify.nn.ragged import Rows
from ramify.nn.recurrent import Packing


@dataclass(frozen=True)
class Allowed:
    """The sequences of tags that are possible, such as those of a BIO scheme."""

    start: Bool[Tensor, " tag"]
    transitions: Bool[Tensor, "tag tag"]
    """Whether a tag (row) may stand before another (column)."""
    end: Bool[Tensor, " tag"]

    def to(self, device: torch.device) -> "Allowed":
        return Allowed(self.start.to(device), self.transitions.to(device), self.end.to(device))


@dataclass(frozen=True)
class Transitions:
    """The scores of a chain beside those of single tokens. A score of −∞ forbids."""

    start: Float[Tensor, " tag"]
    between: Float[Tensor, "tag tag"]
    """The score of a tag (row) before another (column)."""
    end: Float[Tensor, " tag"]
    forbids: bool = False
    """Whether some scores are −∞."""

    @classmethod
    def none(cls, like: Float[Tensor, "total tag"]) -> "Transitions":
        """Zeros, with which the tokens of a row are independent."""
        tags = like.shape[1]
        return cls(like.new_zeros(tags), like.new_zeros(tags, tags), like.new_zeros(tags))

    def within(self, allowed: Allowed) -> "Transitions":
        """The scores with −∞ for all that is not allowed."""
        start, between, end = (
            scores.masked_fill(~mask, -math.inf)
            for scores, mask in (
                (self.start, allowed.start),
                (self.between, allowed.transitions),
                (self.end, allowed.end),
            )
        )
        return Transitions(start, between, end, forbids=True)


class CRF(nn.Module):
    """Scores of tags that follow each other. Scores of tokens come from the model.

    A row's sequence of tags y has the probability exp(score(y)) / Z. Its score is the sum of its tokens' scores, of the
    transitions between its tags, and of the scores of its first and its last tag. All scores begin with 0.
    """

    start: nn.Parameter
    between: nn.Parameter
    end: nn.Parameter

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(num_tags))
        self.between = nn.Parameter(torch.zeros(num_tags, num_tags))
        self.end = nn.Parameter(torch.zeros(num_tags))

    @property
    def transitions(self) -> Transitions:
        return Transitions(self.start, self.between, self.end)

    def loss(self, scores: Float[Tensor, "total tag"], tags: Int[Tensor, " total"], rows: Rows) -> Float[Tensor, " row"]:
        """−log p(tags) of each row, in nats; 0 for a row without tokens."""
        return log_partition(scores, rows, self.transitions) - path_score(scores, tags, rows, self.transitions)


def log_partition(scores: Float[Tensor, "total tag"], rows: Rows, transitions: Transitions) -> Float[Tensor, " row"]:
    """log Z of each row, by the forward algorithm, in single precision or better; 0 for a row without tokens.

    −∞ for a row all of whose sequences are forbidden; its gradient is 0.
    """
    scores = _precise(scores)
    partition = scores.new_zeros(len(rows))
    if rows.total == 0:
        return partition
    packing = Packing.of(rows)
    last = _at_ends(_forward(_steps(scores, packing), transitions))
    return partition.index_copy(0, packing.order, _log_sum(last + transitions.end, 1, transitions.forbids))


def path_score(
    scores: Float[Tensor, "total tag"], tags: Int[Tensor, " total"], rows: Rows, transitions: Transitions
) -> Float[Tensor, " row"]:
    """The score of one sequence of tags per row."""
    if rows.total == 0:
        return _precise(scores).new_zeros(len(rows))
    ends = (rows.offsets[1:].to(torch.int64) - 1)[rows.lengths > 0]
    first = rows.positions == 0
    # The gradient of `index_select` does not depend on the number of threads.
    before = transitions.between.flatten().index_select(0, tags.roll(1) * scores.shape[1] + tags)
    entering = torch.where(first, transitions.start.index_select(0, tags), before)
    leaving = torch.zeros_like(entering).index_copy(0, ends, transitions.end.index_select(0, tags.index_select(0, ends)))
    of_tokens = _precise(scores).gather(1, tags[:, None])[:, 0]
    return row_sums((of_tokens + entering + leaving)[:, None], rows)[:, 0]


def best_path(
    scores: Float[Tensor, "total tag"], rows: Rows, transitions: Transitions
) -> tuple[Int[Tensor, " total"], Float[Tensor, " row"]]:
    """The sequence of tags with the highest score of each row (Viterbi), and its score.

    Of several, the one whose last tags have the lowest numbers. A row without tokens has the score 0.
    """
    scores = _precise(scores)
    highest = scores.new_zeros(len(rows))
    if rows.total == 0:
        return torch.zeros(0, dtype=torch.int64, device=scores.device), highest
    packing = Packing.of(rows)
    steps = _steps(scores, packing)
    best, came_from = [transitions.start + steps[0]], []
    for step in steps[1:]:
        value, tag = (best[-1][: len(step), :, None] + transitions.between).max(1)
        best.append(value + step)
        came_from.append(tag)
    value, tag = (_at_ends(best) + transitions.end).max(1)
    path, chosen = [], tag[:0]
    for number in reversed(range(len(steps))):
        # Rows that end at this step begin their way back here.
        chosen = torch.cat([chosen, tag[len(chosen) : len(steps[number])]])
        path.append(chosen)
        if number:
            chosen = came_from[number - 1].gather(1, chosen[:, None])[:, 0]
    flat = torch.cat(path[::-1]).index_select(0, packing.to_flat)
    return flat, highest.index_copy(0, packing.order, value)


@dataclass(frozen=True)
class Posterior:
    """The probabilities of the tags of rows, given all of the row (forward-backward algorithm)."""

    scores: Float[Tensor, "total tag"]
    transitions: Transitions
    forward: Float[Tensor, "total tag"]
    """log Σ exp(score) over the sequences that end with this token and tag."""
    backward: Float[Tensor, "total tag"]
    """Likewise over the sequences behind this token and tag."""
    log_z: Float[Tensor, " total"]
    """log Z of each token's row."""

    @classmethod
    def of(cls, scores: Float[Tensor, "total tag"], rows: Rows, transitions: Transitions) -> "Posterior":
        """Raises `ValueError` for a row all of whose sequences are forbidden."""
        scores = _precise(scores)
        if rows.total == 0:
            return cls(scores, transitions, scores, scores, scores.new_zeros(0))
        packing = Packing.of(rows)
        steps = _steps(scores, packing)
        after = [transitions.end.expand(len(steps[-1]), -1)]
        for number in reversed(range(len(steps) - 1)):
            value = transitions.between + (steps[number + 1] + after[-1])[:, None, :]
            ended = len(steps[number]) - len(steps[number + 1])
            after.append(torch.cat([_log_sum(value, 2, transitions.forbids), transitions.end.expand(ended, -1)]))
        forward, backward = (packing.unpack(torch.cat(parts)) for parts in (_forward(steps, transitions), after[::-1]))
        log_z = _log_sum(forward + backward, 1, transitions.forbids)
        if bool(log_z.isinf().any()):
            raise ValueError("every sequence of tags of a row is forbidden")
        return cls(scores, transitions, forward, backward, log_z)

    @cached_property
    def marginals(self) -> Float[Tensor, "total tag"]:
        """The probability of each tag of each token."""
        return (self.forward + self.backward - self.log_z[:, None]).exp()

    def of_stretch(
        self, start: int, tags: Int[Tensor, " stretch"], may_follow: Bool[Tensor, " tag"] | None
    ) -> Float[Tensor, ""]:
        """The probability that the tokens from the flat index `start` have these tags, and that the next token of the row has
        one that `may_follow`; None: the row ends there."""
        stop = start + len(tags)
        own = self.scores[start:stop].gather(1, tags[:, None])[1:].sum() + self.transitions.between[tags[:-1], tags[1:]].sum()
        if may_follow is None:
            behind = self.transitions.end[tags[-1]]
        else:
            following = self.transitions.between[tags[-1]] + self.scores[stop] + self.backward[stop]
            behind = following.masked_fill(~may_follow, -math.inf).logsumexp(0)
        return (self.forward[start, tags[0]] + own + behind - self.log_z[start]).exp()


def _precise(scores: Float[Tensor, "total tag"]) -> Float[Tensor, "total tag"]:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _steps(scores: Float[Tensor, "total tag"], packing: Packing) -> list[Float[Tensor, "_active tag"]]:
    """The scores of all first tokens, of all second tokens …, long rows first."""
    return list(packing.pack(scores).data.split(packing.sizes.tolist()))


def _forward(steps: Sequence[Float[Tensor, "_active tag"]], transitions: Transitions) -> list[Float[Tensor, "_active tag"]]:
    values = [transitions.start + steps[0]]
    for step in steps[1:]:
        reached = _log_sum(values[-1][: len(step), :, None] + transitions.between, 1, transitions.forbids)
        values.append(reached + step)
    return values


def _at_ends(values: Sequence[Float[Tensor, "_active tag"]]) -> Float[Tensor, "filled tag"]:
    """The values at the last token of each row, long rows first."""
    longer = [len(value) for value in values[1:]] + [0]
    return torch.cat([value[count:] for value, count in reversed(list(zip(values, longer, strict=True)))])


def _log_sum(x: Float[Tensor, "*axes"], dim: int, forbids: bool) -> Float[Tensor, "*rest"]:
    """log Σ exp(x). The gradient of a sum without terms is 0, where that of torch's `logsumexp` is not a number."""
    if not forbids:
        return x.logsumexp(dim)
    nothing = (x == -math.inf).all(dim, keepdim=True)
    return x.masked_fill(nothing, 0.0).logsumexp(dim).masked_fill(nothing.squeeze(dim), -math.inf)

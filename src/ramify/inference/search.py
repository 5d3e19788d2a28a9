"""Search for continuations of prompts: greedy decoding, sampling and beam search. It knows tokens only, and no text.

A `Decodes` scores the next token of each sequence. `Limits` says which tokens may follow and where a sequence ends, `Sampling`
chooses one token per sequence, and `Beam` keeps the best continuations. A sequence that has ended leaves the batch. Results do
not depend on the other sequences of the batch.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ramify.batching.encoder_input import EncoderInput
from ramify.config import check_fields, check_seed
from ramify.errors import RamifyError
from ramify.nn.cache import Cache
from ramify.nn.counter_rng import uniform
from ramify.nn.ragged import on_device
from ramify.tasks.base import Decodes

STEEPEST = 10.0
"""The greatest exponent of the length penalty. A greater one would overflow."""


@dataclass(frozen=True)
class Limits:
    """The tokens that may follow, and the ends of sequences."""

    stop: tuple[int, ...] = ()
    """Tokens that end a sequence. They are not part of it."""
    forbidden: tuple[int, ...] = ()
    """Tokens that no sequence takes."""
    min_tokens: int = 0
    """The number of tokens before which no sequence stops."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.min_tokens < 0:
            raise RamifyError(f"min_tokens={self.min_tokens} must be at least 0.")

    def check(self, vocab_size: int) -> None:
        """Raise `RamifyError` for tokens that a vocabulary lacks, and if no token may follow."""
        for name in ("stop", "forbidden"):
            if lacking := [token for token in getattr(self, name) if not 0 <= token < vocab_size]:
                raise RamifyError(f"{name}={lacking[0]} is not one of the {vocab_size:,} tokens of this model. Leave it out.")
        never = {*self.forbidden, *(self.stop if self.min_tokens else ())}
        if len(never) == vocab_size:
            raise RamifyError(f"forbidden={self.forbidden} leaves no token that may follow. Forbid fewer tokens.")

    def allowed(self, scores: Float[Tensor, "sequence vocab"], done: int) -> Float[Tensor, "sequence vocab"]:
        """The scores after `done` tokens, −∞ for tokens that may not follow."""
        never = [*self.forbidden, *(self.stop if done < self.min_tokens else ())]
        return scores.index_fill(1, on_device(np.array(never, dtype=np.int64), scores.device), -math.inf)


@dataclass(frozen=True)
class Sampling:
    """The choice of one token per sequence, at random."""

    temperature: float = 1.0
    """Divides the scores. Below 1, likelier tokens become still likelier; in the limit 0, the likeliest is certain."""
    top_k: int | None = None
    """The number of likeliest tokens that may be chosen; None: all."""
    top_p: float | None = None
    """The probability of the likeliest tokens that may be chosen, together; None: all. The token that passes it is kept."""

    def __post_init__(self) -> None:
        # A comparison with NaN is false.
        if not 0 <= self.temperature < math.inf:
            raise RamifyError(f"temperature={self.temperature:g} must be finite and at least 0. Choose such a number.")
        if self.top_k is not None and self.top_k < 1:
            raise RamifyError(f"top_k={self.top_k} must be at least 1. Choose such a number, or leave it out.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise RamifyError(f"top_p={self.top_p:g} must be above 0 and at most 1. Choose such a number, or leave it out.")
        check_fields(self)

    def choose(
        self, scores: Float[Tensor, "sequence vocab"], seeds: Int[Tensor, " sequence"], step: int
    ) -> Int[Tensor, " sequence"]:
        """One token per sequence, which its scores, its seed and the number of the step determine."""
        if self.temperature == 0:
            return scores.argmax(1)
        scores = scores.double()
        shares = ((scores - scores.amax(1, keepdim=True)) / self.temperature).softmax(1)
        shares = shares * self._kept(shares)
        # Tokens keep the order of the vocabulary. In that of their shares, rounding could swap two equally likely ones.
        total = shares.cumsum(1)
        return (total <= uniform(seeds, step)[:, None] * total[:, -1:]).sum(1)

    def _kept(self, shares: Float[Tensor, "sequence vocab"]) -> Bool[Tensor, "sequence vocab"]:
        kept = torch.ones_like(shares, dtype=torch.bool)
        if self.top_k is None and self.top_p is None:
            return kept
        ranked, tokens = shares.sort(dim=1, descending=True, stable=True)
        if self.top_k is not None:
            kept[:, self.top_k :] = False
        if self.top_p is not None:
            kept &= ranked.cumsum(1) - ranked < self.top_p
        return torch.empty_like(kept).scatter_(1, tokens, kept)


GREEDY = Sampling(temperature=0.0)
"""Takes the likeliest token. Of equally likely ones, it takes the first of the vocabulary."""


@dataclass(frozen=True)
class Beam:
    """The number of continuations of a prompt that are kept, and their scores."""

    width: int = 4
    """The number of continuations that are extended at each step."""
    n_best: int = 1
    """The number of continuations that are returned."""
    length_penalty: float = 0.6
    """α of the score log p / ((5 + length) / 6)^α (Wu et al. 2016, section 7; Vaswani et al. 2017, section 6.1). 0: log p."""

    def check(self, vocab_size: int) -> None:
        """Raise `RamifyError` if the beam is as wide as the vocabulary."""
        if self.width >= vocab_size:
            raise RamifyError(
                f"beam={self.width} must be below the size of the vocabulary, {vocab_size:,}, because a text has no more first "
                "tokens. Choose a small number, such as 4."
            )

    def __post_init__(self) -> None:
        if self.width < 1:
            raise RamifyError(
                f"beam={self.width} must be at least 1, the width of a greedy search. Choose a small number, such as 4."
            )
        if not 1 <= self.n_best <= self.width:
            raise RamifyError(f"n_best={self.n_best} must be between 1 and the width of the beam, which is {self.width}.")
        if not 0 <= self.length_penalty <= STEEPEST:
            raise RamifyError(f"length_penalty={self.length_penalty:g} must be between 0 and {STEEPEST:g}.")
        check_fields(self)

    def score(self, log_probability: float, length: int) -> float:
        return log_probability / ((5 + length) / 6) ** self.length_penalty


@dataclass(frozen=True)
class Hypothesis:
    """A continuation that beam search has found."""

    ids: tuple[int, ...]
    log_probability: float
    """In nats, that of the stop token included."""
    score: float
    """See `Beam.length_penalty`. The length counts the stop token."""
    stopped: bool
    """Whether a stop token ends it. Otherwise, it has the greatest length."""


@dataclass(frozen=True)
class Step:
    """One more token of every sequence that had not ended."""

    sequences: NDArray[np.int64]
    """The numbers of their prompts (`EncoderInput.source`)."""
    ids: NDArray[np.int64]
    stopped: NDArray[np.bool_]
    """Whether the token is a stop token."""
    ended: NDArray[np.bool_]
    """Whether the sequence ends, at a stop token or at its greatest length."""


def sample(
    decoder: Decodes,
    prompts: EncoderInput,
    sampling: Sampling,
    limits: Limits,
    *,
    maximums: Sequence[int],
    seeds: Sequence[int],
    source: EncoderInput | None = None,
) -> Iterator[Step]:
    """Continue prompts token by token.

    Each prompt has a maximum of tokens and a seed. Sequences with equal prompts and seeds are equal, in any batch. Raises
    `RamifyError` for a seed outside of [0, 2^63).
    """
    _check_maximums(maximums, limits)
    for seed in seeds:
        check_seed(seed)
    sequences, most = prompts.source, np.asarray(maximums, dtype=np.int64)
    scores, cache = _start(decoder, prompts, source)
    limits.check(scores.shape[1])
    draw_seeds = torch.tensor([seeds[sequence] for sequence in sequences.tolist()], dtype=torch.int64, device=scores.device)
    done = 0
    while len(sequences):
        ids = sampling.choose(limits.allowed(scores, done), draw_seeds, done)
        done += 1
        chosen = ids.cpu().numpy()
        stopped = np.isin(chosen, limits.stop)
        ended = stopped | (most[sequences] <= done)
        yield Step(sequences, chosen, stopped, ended)
        if ended.any():
            index = np.flatnonzero(~ended)
            places = on_device(index, scores.device)
            ids, draw_seeds, sequences = ids.index_select(0, places), draw_seeds.index_select(0, places), sequences[index]
            cache = cache.reorder(index)
        if len(sequences):
            scores, cache = _step(decoder, ids, cache)


def collect(steps: Iterable[Step], count: int) -> list[list[int]]:
    """The tokens of `count` sequences, without stop tokens."""
    collected: list[list[int]] = [[] for _ in range(count)]
    for step in steps:
        for sequence, token, stopped in zip(step.sequences.tolist(), step.ids.tolist(), step.stopped.tolist(), strict=True):
            collected[sequence] += [] if stopped else [token]
    return collected


def beam_search(
    decoder: Decodes,
    prompts: EncoderInput,
    beam: Beam,
    limits: Limits,
    *,
    maximums: Sequence[int],
    source: EncoderInput | None = None,
) -> list[list[Hypothesis]]:
    """The best continuations of each prompt, best first, no two of the same tokens. Equal scores are ordered by the tokens.

    A step ranks all continuations of a prompt by their probability. Of the first `beam.width`, those that stop are results, and
    the first that go on are extended. Stop tokens behind the same tokens are one continuation, with the score of the likeliest.
    The search for a prompt ends when nothing that goes on can become better than its `n_best` results. Probabilities are the
    model's: forbidden tokens keep their share.
    """
    _check_maximums(maximums, limits)
    scores, cache = _start(decoder, prompts, source)
    limits.check(scores.shape[1])
    searches = [_BeamSearch(beam, limits, maximums[sequence]) for sequence in prompts.source.tolist()]
    # At most so many of the best stop, so that enough of the others remain.
    width, of_sequence = beam.width + beam.width * len(limits.stop), beam.width + len(limits.stop)
    done = 0
    while True:
        choices = _Choices.of(scores, limits, done, width, of_sequence)
        index: list[int] = []
        ids: list[int] = []
        first = 0
        for search in searches:
            rows = len(search.live)
            for parent, token in search.extend(choices.best(search.totals, first)) if rows else ():
                index.append(first + parent)
                ids.append(token)
            first += rows
        if not ids:
            break
        done += 1
        if index != [*range(len(scores))]:
            cache = cache.reorder(np.array(index))
        scores, cache = _step(decoder, on_device(np.array(ids), scores.device), cache)
    results = dict(zip(prompts.source.tolist(), searches, strict=True))
    return [results[sequence].ended for sequence in range(len(searches))]


class _BeamSearch:
    """The search for the continuations of one prompt."""

    def __init__(self, beam: Beam, limits: Limits, maximum: int) -> None:
        self.beam = beam
        self.limits = limits
        self.maximum = maximum
        self.live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        """Tokens and log-probabilities, likeliest first."""
        self.ended: list[Hypothesis] = []
        """Best first."""

    @property
    def totals(self) -> list[float]:
        """The log-probabilities of all that is live."""
        return [total for _, total in self.live]

    def extend(self, ranked: Sequence["Continuation"]) -> list[tuple[int, int]]:
        """Extend all that is live by one token. Returns the number of the extended one and the token for all that lives on."""
        length = len(self.live[0][0]) + 1
        stop, width = self.limits.stop, self.beam.width
        live, grown, ends = [], [], set[int]()
        for total, parent, token in ranked:
            ids = self.live[parent][0]
            if token not in stop:
                grown.append((parent, token))
                live.append(((*ids, token), total))
            elif parent not in ends and len(live) + len(ends) < width:
                ends.add(parent)
                self._end(ids, total, length, stopped=True)
        self.live, grown = live[:width], grown[:width]
        if length == self.maximum:
            for ids, total in self.live:
                self._end(ids, total, length, stopped=False)
        self.ended = sorted(self.ended, key=lambda hypothesis: (-hypothesis.score, hypothesis.ids))[: self.beam.n_best]
        if length == self.maximum or self._settled():
            self.live, grown = [], []
        return grown

    def _end(self, ids: tuple[int, ...], total: float, length: int, *, stopped: bool) -> None:
        self.ended.append(Hypothesis(ids, total, self.beam.score(total, length), stopped))

    def _settled(self) -> bool:
        """Whether nothing that is live can become as good as the results: a probability only falls, and the greatest length
        improves its score most."""
        if len(self.ended) < self.beam.n_best or not self.live:
            return False
        return self.ended[-1].score > self.beam.score(self.live[0][1], self.maximum)


Continuation = tuple[float, int, int]
"""The log-probability of a continuation, the number of the sequence that it extends, and its last token."""


@dataclass(frozen=True)
class _Choices:
    """The likeliest next tokens of all sequences. Only these leave the device, and only they are ranked."""

    allowed: Float[Tensor, "sequence vocab"]
    """The scores of all tokens, −∞ for those that may not follow."""
    normalizers: Float[Tensor, " sequence"]
    """The logarithm of the sum of all exponentiated scores, those of tokens that may not follow included."""
    width: int
    highest: list[list[float]]
    """The log-probabilities of the likeliest tokens of each sequence."""
    tokens: list[list[int]]
    certain: list[bool]
    """Whether no other token of the sequence is as likely as one of these."""

    @classmethod
    def of(cls, scores: Float[Tensor, "sequence vocab"], limits: Limits, done: int, width: int, of_sequence: int) -> "_Choices":
        """`width` is the number of continuations that are ranked for a prompt, and `of_sequence` the greatest number of those
        that extend the same sequence and are needed."""
        # A sum in half precision would round every log-probability to about a hundredth.
        precise = scores.to(torch.promote_types(scores.dtype, torch.float32))
        normalizers, allowed = precise.logsumexp(1).double(), limits.allowed(scores, done)
        highest, tokens = _highest(allowed, min(of_sequence + 1, scores.shape[1]))
        certain = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
        if highest.shape[1] > of_sequence:
            last, next_one = highest[:, of_sequence - 1], highest[:, of_sequence]
            certain = (last > next_one) | (last == -math.inf)
            highest, tokens = highest[:, :of_sequence], tokens[:, :of_sequence]
        highest = highest.double() - normalizers[:, None]
        # All three leave the device together, so that it is waited for once. Tokens are exact in double precision.
        host = torch.cat([highest, tokens.double(), certain.double()[:, None]], 1).cpu()
        count = highest.shape[1]
        chosen = host[:, count:-1].long().tolist()
        return cls(allowed, normalizers, width, host[:, :count].tolist(), chosen, host[:, -1].bool().tolist())

    def best(self, totals: Sequence[float], first: int) -> list[Continuation]:
        """The `width` likeliest continuations of consecutive sequences with these log-probabilities. `first` is the number of
        the first sequence. They are ordered as by `best_continuations`."""
        part = slice(first, first + len(totals))
        if not all(self.certain[part]):
            log_probabilities = self.allowed[part].double() - self.normalizers[part, None]
            return best_continuations(self.normalizers.new_tensor(totals)[:, None] + log_probabilities, self.width)
        continuations = [
            (total + value, number, token)
            for number, (total, values, tokens) in enumerate(zip(totals, self.highest[part], self.tokens[part], strict=True))
            for value, token in zip(values, tokens, strict=True)
            if value > -math.inf
        ]
        continuations.sort(key=lambda continuation: (-continuation[0], *continuation[1:]))
        return continuations[: self.width]


BLOCK = 64
"""Number of tokens whose maximum is compared first."""


def _highest(
    scores: Float[Tensor, "sequence vocab"], count: int
) -> tuple[Float[Tensor, "sequence {count}"], Int[Tensor, "sequence {count}"]]:
    """The `count` highest scores of each sequence, highest first, and their tokens.

    They are among the `count` blocks of tokens with the highest maximums, so a large vocabulary is not sorted.
    """
    vocab = scores.shape[1]
    blocks = -(-vocab // BLOCK)
    if blocks <= count:
        highest, tokens = scores.topk(count, dim=1)
        return highest, tokens
    surplus = blocks * BLOCK - vocab
    table = (F.pad(scores, (0, surplus), value=-math.inf) if surplus else scores).view(len(scores), blocks, BLOCK)
    chosen = table.amax(2).topk(count, dim=1).indices
    within = table.gather(1, chosen[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    highest, places = within.topk(count, dim=1)
    tokens = chosen.gather(1, places // BLOCK) * BLOCK + places % BLOCK
    # Where few tokens may follow, filling is among the highest, with a score of −∞.
    return highest, tokens.clamp(max=vocab - 1)


def best_continuations(totals: Float[Tensor, "beam choice"], width: int) -> list[Continuation]:
    """(total, beam, choice) of the `width` greatest totals, greatest first. Of equal totals, the first come first.

    Totals of −∞ are left out.
    """
    flat = totals.flatten()
    width = min(width, len(flat))
    # `topk` alone orders equal values at will.
    places = (flat >= flat.topk(width).values[-1]).nonzero().squeeze(1)
    values, order = flat[places].sort(descending=True, stable=True)
    ranked = zip(values[:width].tolist(), places[order][:width].tolist(), strict=True)
    choices = totals.shape[1]
    return [(value, place // choices, place % choices) for value, place in ranked if value > -math.inf]


@torch.no_grad()
def _start(
    decoder: Decodes, prompts: EncoderInput, source: EncoderInput | None
) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
    return decoder.start(prompts, source=source)


@torch.no_grad()
def _step(decoder: Decodes, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
    return decoder.step(ids, cache)


def _check_maximums(maximums: Sequence[int], limits: Limits) -> None:
    for maximum in maximums:
        if maximum < max(1, limits.min_tokens):
            raise RamifyError(f"tokens={maximum} must be at least {max(1, limits.min_tokens)}. Choose such a number.")

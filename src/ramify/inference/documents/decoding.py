"""Children from vectors, without knowledge of their true number: every row ends where the model predicts its end."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ramify.batching.document_batch import BOS, CONT, EOS, JOIN, NUM_MARKS, Banks
from ramify.batching.forest import Ints, ranges
from ramify.nn.heads import MAX_LOGITS
from ramify.nn.linear import linear
from ramify.nn.modes import evaluating
from ramify.nn.ragged import Rows, length_key
from ramify.tasks.nested.base import first_places
from ramify.tasks.nested.similarity import Similarity
from ramify.tasks.nested.task import NestedAutoencoder

Passing = Literal["raw", "rescaled", "bank_mean", "snap"]
"""The vector that is passed on for a decoder's state. raw: the vector of the level for which the state stands
(`restored_children`). rescaled: this vector, with the mean length of known vectors. bank_mean: the mean of known vectors,
weighted by their probabilities. snap: the likeliest known vector."""

ROWS = 256
"""Number of rows that are decoded at once."""

ENDS = (EOS, CONT)


@dataclass(frozen=True)
class DecodedRow:
    """The children that a vector was decoded into."""

    slots: NDArray[np.int64]
    """One slot per place before the end: a mark between packed nodes, or NUM_MARKS plus a token id or a candidate's number."""
    continues: bool
    """Whether the row ends in the mark of continuation."""
    ended: bool
    """Whether the row ends before its last place."""
    states: NDArray[np.float32]
    """The vector that is passed on for each of these places, and for the end mark if there is one; in rows of tokens, the
    decoder's state."""
    queries: NDArray[np.float32]
    """The query at each of these places: its dot products with the keys of candidates are their scores."""


@dataclass(frozen=True)
class PassRule:
    """A way to pass vectors on, and the known vectors of each level above the tokens, from the lowest. The first way needs
    none."""

    passing: Passing = "raw"
    known: Sequence[Float[NDArray, "_vector _dim"]] = ()

    def children(self, task: NestedAutoencoder, level: int, states: Float[Tensor, "place dim"]) -> Float[Tensor, "place dim"]:
        """The vectors of a level of children for the decoder's states. States of tokens stay as they are."""
        return self._of(level, states, task.restored_children(level, states), task.child_similarity(level))

    def masked(self, task: NestedAutoencoder, level: int, states: Float[Tensor, "masked dim"]) -> Float[Tensor, "masked dim"]:
        """As `children`, for predictions of masked children."""
        return self._of(level, states, task.restored_masked(level, states), task.masked_similarity(level))

    def _of(
        self,
        level: int,
        states: Float[Tensor, "place dim"],
        restored: Float[Tensor, "place dim"],
        similarity: Similarity,
    ) -> Float[Tensor, "place dim"]:
        if level == 0 or self.passing == "raw":
            return restored
        known = torch.from_numpy(self.known[level - 1]).to(restored)
        if self.passing == "rescaled":
            return F.normalize(restored, dim=1) * torch.linalg.vector_norm(known, dim=1).mean()
        parts = []
        for part in states.split(max(1, MAX_LOGITS // len(known))):
            scores = similarity.scores(part, known)
            parts.append(known[scores.argmax(1)] if self.passing == "snap" else torch.softmax(scores, 1) @ known)
        return torch.cat(parts)


RAW = PassRule()


class ChildScores:
    """The scores of a place's candidates: the end marks, the mark between packed nodes, and the level's tokens or vectors."""

    def __init__(self, task: NestedAutoencoder, level: int, candidates: Float[Tensor, "candidate dim"] | None) -> None:
        """`candidates`: the vectors among which children are chosen; None for level 0, whose candidates are all tokens."""
        table = task.backbone.encoder(level).items(candidates)
        self.table = table
        self.similarity = task.child_similarity(level)
        self.keys = self.similarity.keys(table)
        self.end_slots = torch.tensor(ENDS, device=table.device)
        self.bias = task.reconstruction_head.bias if level == 0 else None
        allowed = torch.ones(len(table), dtype=torch.bool, device=table.device)
        allowed[:NUM_MARKS] = False
        allowed[[EOS, CONT]] = True
        # Elsewhere no row has held it, so that its score means nothing.
        allowed[JOIN] = task.input.overflow == "pack"
        if level == 0:
            banned = torch.tensor(sorted(task.tokenizer.special_ids), dtype=torch.int64, device=table.device)
            allowed[NUM_MARKS + banned] = False
        self.allowed = allowed
        self.ends = task.ends[level - 1] if level > 0 and task.ends is not None else None
        if self.ends is not None:
            self.allowed[:NUM_MARKS] = False

    def best(self, states: Float[Tensor, "place dim"]) -> Int[Tensor, " place"]:
        """The best candidate of each place, which may be an end mark."""
        return self._highest(states, self)

    def children(self, states: Float[Tensor, "place dim"]) -> Int[Tensor, " place"]:
        """The best candidate of each place where no row ends."""
        return self._highest(states, lambda part: self._candidates(part).index_fill_(1, self.end_slots, -math.inf))

    def _highest(
        self,
        states: Float[Tensor, "place dim"],
        scores: Callable[[Float[Tensor, "place dim"]], Float[Tensor, "place candidate"]],
    ) -> Int[Tensor, " place"]:
        """The candidate with the highest score of each place. Scores are computed in chunks."""
        step = max(1, MAX_LOGITS // len(self.table))
        return torch.cat([scores(part).argmax(1) for part in states.split(step)])

    def _candidates(self, states: Float[Tensor, "place dim"]) -> Float[Tensor, "place candidate"]:
        return linear(self.similarity.queries(states), self.keys, self.bias).float().masked_fill_(~self.allowed, -math.inf)

    def __call__(self, states: Float[Tensor, "place dim"]) -> Float[Tensor, "place candidate"]:
        """The scores of all candidates. Those of many places over a large vocabulary fill gigabytes."""
        scores = self._candidates(states)
        if self.ends is None:
            return scores
        # The end marks win wherever they are likelier than not.
        ends = self.ends(states, self.table).float()
        above = scores.amax(1, keepdim=True).nan_to_num(neginf=0.0) + 1 + ends
        return scores.index_copy_(1, self.end_slots, torch.where(ends > 0, above, -math.inf))

    def last(self, states: Float[Tensor, "row dim"]) -> Int[Tensor, " row"]:
        """The better end mark of each place where a row ends."""
        if self.ends is not None:
            scores = self.ends(states, self.table)
        else:
            bias = None if self.bias is None else self.bias[list(ENDS)]
            scores = linear(self.similarity.queries(states), self.keys[list(ENDS)], bias)
        return self.end_slots.index_select(0, scores.argmax(1))


@torch.no_grad()
def decode_children(
    task: NestedAutoencoder,
    level: int,
    vectors: Float[NDArray, "row dim"],
    candidates: Float[NDArray, "candidate child"] | None = None,
    banks: Banks | None = None,
    rule: PassRule = RAW,
) -> list[DecodedRow]:
    """Decode vectors of level `level + 1` into children of `level`, each the best-scoring candidate.

    Above the tokens, `candidates` are the known vectors among which a child is looked up, and `rule` makes the vectors of
    children. `banks`: what a model with a memory of names reads for tokens, one bank per vector.
    """
    device = task.device
    known = None if candidates is None else torch.from_numpy(candidates).to(device)
    with evaluating(task):
        scores = ChildScores(task, level, known)
        decoded: list[DecodedRow] = []
        for start in range(0, len(vectors), ROWS):
            part = torch.from_numpy(np.ascontiguousarray(vectors[start : start + ROWS], dtype=np.float32)).to(device)
            numbers = torch.arange(start, start + len(part))
            own = None if banks is None else banks.at(numbers).to(device)
            decoded += _decode(task, level, part, scores, own, rule)
    return decoded


def _decode(
    task: NestedAutoencoder,
    level: int,
    vectors: Float[Tensor, "row dim"],
    scores: ChildScores,
    banks: Banks | None,
    rule: PassRule,
) -> list[DecodedRow]:
    decoder = task.decoder.level(level)
    if decoder.length is None:
        laid = decoder.all_places(len(vectors), vectors.device)
    else:
        laid = Rows.build((decoder.length(vectors).argmax(1) + 1).cpu().numpy()).to(vectors.device)
    decompressed = task.read_names(level, decoder.decompress(vectors, laid), laid, banks)
    if decoder.autoregressive:
        states = _one_by_one(task, level, decompressed, laid, scores, rule)
    else:
        states = decoder.parallel(decompressed, laid)
    if decoder.length is None:
        slots = scores.best(states)
    else:
        # With a predicted length, rows end at their last places and nowhere else.
        last = laid.offsets[1:].long() - 1
        slots = scores.children(states).index_copy(0, last, scores.last(states.index_select(0, last)))
    starts = np.cumsum(laid.host_lengths)[:-1]
    matrices = (rule.children(task, level, states), scores.similarity.queries(states))
    vectors_, queries = (np.split(matrix.float().cpu().numpy(), starts) for matrix in matrices)
    rows = zip(np.split(slots.cpu().numpy(), starts), vectors_, queries, strict=True)
    return [_row(*row, fixed=decoder.length is not None) for row in rows]


@torch.no_grad()
def children_at(
    task: NestedAutoencoder,
    level: int,
    vectors: Float[NDArray, "row dim"],
    slots: Ints,
    lengths: Ints,
    children: Float[NDArray, "child child_dim"],
    rule: PassRule = RAW,
) -> Float[NDArray, "slot child_dim"]:
    """Decode vectors of level `level + 1` at the places of known rows above the tokens: a vector for each of their slots.

    `slots` and `lengths` are those of `VectorLevel`, and `children` the vectors that slots show. An autoregressive decoder
    reads the true child before each place.
    """
    encoder, decoder = task.backbone.encoder(level), task.decoder.level(level)
    decoded = np.zeros((len(slots), children.shape[1]), dtype=np.float32)
    device, starts = task.device, np.cumsum(lengths) - lengths
    with evaluating(task):
        for first in range(0, len(vectors), ROWS):
            chosen = np.arange(first, min(first + ROWS, len(vectors)))
            chosen = chosen[np.argsort(length_key(lengths[chosen]), kind="stable")]
            true = Rows.build(lengths[chosen]).to(device)
            at = ranges(starts[chosen], starts[chosen] + lengths[chosen])
            laid = true if decoder.length is not None else decoder.all_places(len(true), device)
            decompressed = decoder.decompress(torch.from_numpy(vectors[chosen]).to(device), laid)
            if decoder.autoregressive:
                shown = torch.from_numpy(slots[at]).to(device)
                before = torch.where(true.positions == 0, BOS, torch.cat([shown.new_zeros(1), shown[:-1]]))
                previous = F.embedding(before, encoder.items(torch.from_numpy(children).to(device))) * encoder.scale
                states = decoder.after(previous, true, decompressed, laid)
            else:
                places = torch.from_numpy(first_places(laid.host_lengths, true.host_lengths)).to(device)
                states = decoder.parallel(decompressed, laid).index_select(0, places)
            decoded[at] = rule.children(task, level, states).float().cpu().numpy()
    return decoded


def _row(slots: NDArray[np.int64], vectors: NDArray[np.float32], queries: NDArray[np.float32], *, fixed: bool) -> DecodedRow:
    ends = np.flatnonzero(np.isin(slots, ENDS))
    end = len(slots) - 1 if fixed else int(ends[0]) if len(ends) else len(slots)
    ended = end < len(slots)
    continues = ended and int(slots[end]) == CONT
    return DecodedRow(slots[:end], continues, ended, vectors[: end + 1], queries[: end + 1])


def _one_by_one(
    task: NestedAutoencoder,
    level: int,
    decompressed: Float[Tensor, "key dim"],
    laid: Rows,
    scores: ChildScores,
    rule: PassRule,
) -> Float[Tensor, "place dim"]:
    """Decode place after place. Tokens are fed back as their embeddings, and states above them as the vectors that they stand
    for."""
    encoder, decoder = task.backbone.encoder(level), task.decoder.level(level)
    lengths = laid.host_lengths
    places = int(lengths.max(initial=0))
    device = decompressed.device
    previous = F.embedding(torch.full((len(lengths), 1), BOS, device=device), scores.table) * encoder.scale
    states: list[Tensor] = []
    for place in range(places):
        so_far = Rows.build([place + 1] * len(lengths)).to(device)
        out = decoder.after(previous.flatten(0, 1), so_far, decompressed, laid).unflatten(0, (len(lengths), place + 1))
        states.append(out[:, -1])
        if level == 0:
            best = scores.best(out[:, -1]) if decoder.length is None else scores.children(out[:, -1])
            fed = F.embedding(best, scores.table) * encoder.scale
        else:
            fed = rule.children(task, level, out[:, -1])
        previous = torch.cat([previous, fed[:, None]], 1)
    every = torch.stack(states, 1) if states else decompressed.new_zeros(len(lengths), 0, decompressed.shape[1])
    inside = torch.from_numpy(np.flatnonzero(np.arange(places) < lengths[:, None])).to(device)
    return every.flatten(0, 1).index_select(0, inside)


def joined(rows: Sequence[DecodedRow]) -> NDArray[np.int64]:
    """The slots of the rows of one node, one row after the other."""
    return np.concatenate([row.slots for row in rows]) if rows else np.zeros(0, dtype=np.int64)

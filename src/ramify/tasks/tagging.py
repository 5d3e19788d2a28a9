"""Tags of words: parts of speech, or spans written as BIO. Words are tagged alone, or those of a text together by a CRF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.tagged_batch import BatchWords
from ramify.batching.views.labelled import LabelInput
from ramify.dataset.bio import OUTSIDE, tag_name, tag_parts
from ramify.dataset.token_tags import Scheme
from ramify.errors import RamifyError, counted
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import State
from ramify.nn.crf import CRF, Allowed, Posterior, Transitions, best_path
from ramify.nn.dropout import dropout
from ramify.nn.recurrent import BiLSTM
from ramify.tasks.base import Losses, Readings
from ramify.tasks.constants import Frequencies
from ramify.tasks.downstream import DownstreamConfig, DownstreamTask
from ramify.tokenizer import Tokenizer

TAG = "tag"
"""The name of the loss."""

DEV_METRICS: dict[Scheme, tuple[Metric, ...]] = {
    "spans": (Metric("span_f1", True), Metric("accuracy", True)),
    "plain": (Metric("accuracy", True), Metric("macro_f1", True)),
}
"""The metrics of each scheme; the first one is the default."""


@dataclass(frozen=True)
class TaggingConfig(DownstreamConfig):
    """Tags of words."""

    decoder: Literal["linear", "crf", "majority"] = "linear"
    """linear: the tag of each word is predicted alone. crf: the tags of a text are predicted together (Lafferty et al. 2001),
    and those of spans are well formed. majority: each word has its most frequent tag in training, whatever the model says."""
    between: Literal["nothing", "bilstm"] = "nothing"
    """A bidirectional LSTM over the words of a text, between the states of the model and the tags (as Peters et al. 2018)."""
    hidden: int = 128
    """Its size in one direction."""
    overlap: float = 0.25
    """The share of a row that the next row of a long text repeats. A word is predicted from the row that has most tokens around
    it."""
    scheme: Scheme = "spans"
    """spans: tags are BIO. plain: tags stand alone. The training data decide."""
    tags: tuple[str, ...] = ()
    """The names of the tags, which the training data determine."""

    word_types: int = 0
    """The number of different words of the training data, which they determine."""

    def check(self) -> None:
        if self.hidden < 1:
            raise RamifyError(f"task.hidden must be at least 1, but is {self.hidden}.")
        if not 0 <= self.overlap < 1:
            raise RamifyError(f"task.overlap must be at least 0 and below 1, but is {self.overlap:g}.")


class Tagging(DownstreamTask):
    """The tag of each word from the state of its first piece."""

    main_loss = TAG
    matching = ("scheme", "tags")
    # A CRF begins as none, the mix of layers is that of features, and the most frequent tags are those of the data.
    optional = ("crf", "mix")
    fresh = ("word_table",)
    config: TaggingConfig

    def __init__(self, backbone: Any, tokenizer: Tokenizer, input: LabelInput, config: TaggingConfig) -> None:
        super().__init__(backbone, tokenizer, input, config, None)
        self._check()
        self.bilstm = BiLSTM(self.dim, config.hidden) if config.between == "bilstm" else None
        self.output = nn.Linear(self.dim if self.bilstm is None else self.bilstm.out_dim, len(config.tags))
        nn.init.trunc_normal_(self.output.weight, std=0.02, a=-0.04, b=0.04)
        nn.init.zeros_(self.output.bias)
        self.crf = CRF(len(config.tags)) if config.decoder == "crf" else None
        self.metrics = (*DEV_METRICS[config.scheme], DEV_LOSS)
        self.allowed = allowed_tags(config.tags) if config.scheme == "spans" and self.crf is not None else None
        """The sequences that may be predicted; None: any."""
        self.word_table = WordTable(config.word_types, len(config.tags))

    def _check(self) -> None:
        """Raise `RamifyError` for input settings that tagged texts cannot have."""
        for name, value in (("context", "none"), ("text", "own")):
            if (given := getattr(self.input, name)) != value:
                raise RamifyError(
                    f"input.{name}={given} does not apply to the tags of words, whose rows hold their own text alone. Set "
                    f"input.{name}={value}."
                )

    @property
    def overlap(self) -> int:
        """The number of tokens that consecutive rows of a text share."""
        layout = self.tokenizer.layout(self.input.layout, self.backbone.config.vocab_size)
        return int(self.config.overlap * (self.input.max_tokens - layout.num_special))

    @property
    def types(self) -> tuple[str, ...]:
        """The types of spans, or the tags that stand alone."""
        if self.config.scheme == "plain":
            return self.config.tags
        return tuple(dict.fromkeys(kind for prefix, kind in map(tag_parts, self.config.tags) if prefix != OUTSIDE))

    # --- targets -----------------------------------------------------------------------------------------------------

    def targets_of(self, tags: Sequence[Sequence[str]]) -> list[Ints]:
        """The numbers of tags. Raises `RamifyError` for a tag that the task does not know."""
        number = {name: place for place, name in enumerate(self.config.tags)}
        if unknown := sorted({tag for row in tags for tag in row if tag not in number}):
            shown = ", ".join(unknown[:5]) + (" …" if len(unknown) > 5 else "")
            known = ", ".join(self.config.tags[:10]) + (" …" if len(self.config.tags) > 10 else "")
            raise RamifyError(
                f"{counted(len(unknown), 'tag')} of the texts {'does' if len(unknown) == 1 else 'do'} not occur in the "
                f"training data: {shown}. The model knows {known}. Build the data so that train holds every tag, or correct "
                "the tags."
            )
        return [np.array([number[tag] for tag in row], dtype=np.int64) for row in tags]

    # --- the objective -----------------------------------------------------------------------------------------------

    def corrupt(self, batch: LabelledBatch, generator: torch.Generator) -> LabelledBatch:
        return batch

    def counts(self, batch: LabelledBatch, phase: str) -> dict[str, float]:
        return {TAG: float(words_of_batch(batch).texts.total)}

    def losses(
        self, batch: LabelledBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        loss = self.loss(self.scores(self.word_states(batch)), batch) / divisors[TAG]
        yield self.regularized({TAG: loss}, batch, divisors, phase), None

    def word_states(self, batch: LabelledBatch) -> Float[Tensor, "word _dim"]:
        """The vectors from which the tags of words are predicted, in the order of the batch's words."""
        words = words_of_batch(batch)
        if self.config.decoder == "majority":
            assert words.types is not None
            return self.word_table(words.types)
        states = self.token_states(batch).last.index_select(0, words.places)
        if self.bilstm is None:
            return states
        return dropout(self.bilstm(states, words.texts), self.config.dropout, self.training)

    def scores(self, states: Float[Tensor, "word _dim"]) -> Float[Tensor, "word tag"]:
        scores = states if self.config.decoder == "majority" else self.output(states)
        return scores.to(torch.promote_types(scores.dtype, torch.float32))

    def loss(self, scores: Float[Tensor, "word tag"], batch: LabelledBatch) -> Float[Tensor, ""]:
        """The sum of the losses of all words."""
        assert batch.targets is not None
        if self.crf is None:
            return F.cross_entropy(scores, batch.targets, reduction="sum")
        return self.crf.loss(scores, batch.targets, words_of_batch(batch).texts).sum()

    def readings(self, batch: LabelledBatch, phase: str, state: State | None, shared: Any) -> Readings:
        states = self.word_states(batch)
        return self.target_readings(batch, states, self.scores(states))

    def target_readings(
        self, batch: LabelledBatch, states: Float[Tensor, "word _dim"], scores: Float[Tensor, "word tag"]
    ) -> Readings:
        """The readings of a batch whose states and scores are known."""
        assert batch.targets is not None
        constant = Frequencies.of(batch.targets, torch.ones(len(batch.targets)), len(self.config.tags))
        return Readings({TAG: self.loss(scores, batch)}, {TAG: constant}, {"word": states})

    # --- answers -----------------------------------------------------------------------------------------------------

    def transitions(self, scores: Float[Tensor, "word tag"]) -> Transitions:
        """The scores of tags that follow each other, with −∞ for those that may not; zeros without a CRF."""
        if self.crf is None:
            return Transitions.none(scores)
        return self.crf.transitions if self.allowed is None else self.crf.transitions.within(self.allowed.to(scores.device))

    def predictions(self, scores: Float[Tensor, "word tag"], batch: LabelledBatch) -> Int[Tensor, " word"]:
        """The likeliest tags of each text."""
        if self.crf is None:
            return scores.argmax(1)
        return best_path(scores, words_of_batch(batch).texts, self.transitions(scores))[0]

    def posterior(self, scores: Float[Tensor, "word tag"], batch: LabelledBatch) -> Posterior:
        """The probabilities of all tags, given the whole of each text."""
        return Posterior.of(scores, words_of_batch(batch).texts, self.transitions(scores))


class WordTable(nn.Module):
    """The most frequent tag of each training word, and of all other words."""

    hashes: Int[Tensor, " word_type"]
    """The training words, in ascending order (`word_hashes`)."""
    tags: Int[Tensor, " entry"]
    """The tag of each training word, and behind them that of all others: the most frequent tag."""
    shares: Float[Tensor, " entry"]
    """The shares of these tags, as if each tag had occurred once more."""

    def __init__(self, word_types: int, num_tags: int) -> None:
        super().__init__()
        self.num_tags = num_tags
        self.register_buffer("hashes", torch.zeros(word_types, dtype=torch.int64))
        self.register_buffer("tags", torch.zeros(word_types + 1, dtype=torch.int64))
        self.register_buffer("shares", torch.zeros(word_types + 1))

    def fit(self, words: Sequence[Sequence[str]], tags: Sequence[Ints]) -> None:
        """Count the tags of the training words. Of equally frequent tags, the first one is taken."""
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *tags])
        types, number = np.unique(word_hashes(words), return_inverse=True)
        counts = np.zeros((len(types) + 1, self.num_tags), dtype=np.int64)
        np.add.at(counts, (number, flat), 1)
        counts[-1] = counts.sum(0)
        self.hashes.copy_(torch.from_numpy(types))
        self.tags.copy_(torch.from_numpy(counts.argmax(1)))
        self.shares.copy_(torch.from_numpy((counts.max(1) + 1) / (counts.sum(1) + self.num_tags)))

    def numbers(self, words: Sequence[Sequence[str]]) -> list[Ints]:
        """The entry of each word of some texts."""
        if not len(words):
            return []
        hashes, known = word_hashes(words), self.hashes.cpu().numpy()
        place = np.searchsorted(known, hashes)
        is_known = np.append(known, 0)[place] == hashes
        entries = np.where(is_known & (place < len(known)), place, len(known))
        return np.split(entries, np.cumsum([len(row) for row in words])[:-1])

    def forward(self, entries: Int[Tensor, " word"]) -> Float[Tensor, "word tag"]:
        """The logarithms of the probabilities of tags. Those of all other tags are equal."""
        share = self.shares[entries, None]
        others = ((1 - share) / max(1, self.num_tags - 1)).log().expand(-1, self.num_tags)
        return others.scatter(1, self.tags[entries, None], share.log())


def words_of_batch(batch: LabelledBatch) -> BatchWords:
    """The words of a batch that `TagCollator` made."""
    assert isinstance(batch.part, BatchWords)
    return batch.part


def word_hashes(words: Sequence[Sequence[str]]) -> Int[NDArray, " word"]:
    """A number for each word of some texts, by its spelling."""
    digests = (blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest() for row in words for word in row)
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def allowed_tags(tags: Sequence[str]) -> Allowed:
    """The well-formed sequences of BIO tags."""
    parts = [tag_parts(tag) for tag in tags]
    inside = torch.tensor([prefix == "I" for prefix, _ in parts])
    between = torch.tensor(
        [[after != "I" or (before in ("B", "I") and its == other) for after, other in parts] for before, its in parts]
    )
    return Allowed(~inside, between, torch.ones(len(tags), dtype=torch.bool))


def tag_names(tags: Sequence[Sequence[str]], scheme: Scheme) -> tuple[str, ...]:
    """The names of all tags that a model needs, in order: those of spans are O, and B and I of every type."""
    distinct = {tag for row in tags for tag in row}
    if scheme == "plain":
        return tuple(sorted(distinct))
    kinds = sorted({kind for prefix, kind in map(tag_parts, distinct) if prefix != OUTSIDE})
    return (OUTSIDE, *(tag_name(prefix, kind) for kind in kinds for prefix in ("B", "I")))

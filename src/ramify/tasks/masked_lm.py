"""Masked language modelling (Devlin et al. 2019, section 3.1), with or without context."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.batch import IGNORE, Batch, select_positions
from ramify.batching.text_input import BLIND, TextInput
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.base import Backbone, Hidden, State, decode_parts, encode_context, no_vectors
from ramify.nn import counter_rng
from ramify.nn.heads import BagOfWordsHead, Bags, SpanBoundaryHead, VocabularyHead, start_projection
from ramify.nn.modes import generator_state, restored_generator
from ramify.nn.ragged import Rows
from ramify.tasks.base import Divisor, Losses, Readings, Task
from ramify.tasks.constants import Constant, Frequencies
from ramify.tasks.mask_units import Chosen, MaskUnit, Words, choose, span_lengths
from ramify.tasks.spans import check_split, random_pieces
from ramify.tokenizer import Tokenizer

LossNorm = Literal["constant", "sum", "step", "tokens"]
Schedule = Literal["constant", "last_third"]
"""Whether a value stays the same, or changes linearly over the last third of a stage of training."""

BERT_MASK_RATE = 0.15

MASKED_LM, NEXT_SENTENCE, SPAN_BOUNDARY = "masked_lm", "next_sentence", "span_boundary"
VECTOR_LOSSES = ("own_words", "reply_words")
"""Losses that teach the vectors of nodes directly, beside the masked words."""

DIVISORS: dict[LossNorm, Divisor | float] = {
    "constant": Divisor.EPOCH,
    "sum": 1.0,
    "step": Divisor.STEP,
    "tokens": Divisor.STEP,
}


@dataclass(frozen=True)
class MaskedLMConfig:
    """Defaults are BERT's masking and the paper's loss, a mean over a comment's masked tokens."""

    mask_rate: float = BERT_MASK_RATE
    mask_rate_schedule: Schedule = "constant"
    """last_third: in training, the rate goes linearly to BERT's 15 % over the last third. Evaluation keeps `mask_rate`."""
    mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of the chosen tokens that become the mask token, become a random piece, or stay unchanged."""
    random_special: bool = True
    """Whether a random piece may be a special token, as in BERT."""
    comment_loss: Literal["mean", "token"] = "mean"
    """Whether a comment's loss is the mean over its masked tokens (as in the paper) or their sum."""
    loss_norm: LossNorm = "constant"
    """The divisor of a step's loss. constant: the mean weight of a step, counted over an epoch before training. sum: none, as
    in the paper. step: the weight of this step, which is biased if steps differ in their number of comments. tokens: the number
    of masked tokens of this step, as in BERT; it needs comment_loss=token."""
    max_predictions: int | None = None
    """Maximum number of masked tokens in a text (BERT: 20 in a row of 128 tokens); null: no maximum."""
    mask_unit: MaskUnit = "piece"
    """piece: single pieces. word: whole words. span: spans of one to ten whole words (SpanBERT), each replaced as one."""
    next_sentence: float = 0.0
    """Weight of BERT's next-sentence loss, for rows of two segments. It needs model.pooling=pooler."""
    span_boundary: float = 0.0
    """Weight of SpanBERT's second loss, in training: the tokens on both sides of a span predict each token inside it. It needs
    task.mask_unit=span."""
    masking: Literal["uniform", "content"] = "uniform"
    """content: in training, rare words are chosen more often than frequent ones. Evaluation always chooses uniformly."""
    own_words: float = 0.0
    """Weight of a bag-of-words loss: the vector of a node predicts the words of its own text. The paper has none."""
    reply_words: float = 0.0
    """Weight of a bag-of-words loss: the vector of a target's nearest context node predicts the words of the target."""
    vector_loss_schedule: Schedule = "constant"
    """last_third: the weights of own_words and reply_words fall linearly to zero over the last third of training."""
    frequent_word: float = 3e-4
    """Relative frequency t above which a word counts less: at frequency f it weighs √(t/f), as in word2vec's subsampling."""
    head: Literal["linear", "bert"] = "linear"
    """linear: one linear map (Figure 1). bert: also a dense layer, the activation and a LayerNorm before it, as in BERT."""
    tie_weights: bool = True
    two_phase: Literal["auto", "always", "never"] = "auto"
    """Whether the gradient of a whole tree is computed in bounded memory; auto: only for batches above `chunk_tokens`. Models
    that read no context process their targets in parts."""
    chunk_tokens: int = 8_192
    """Maximum number of tokens in the graph of one part of a two-phase gradient. Four context vectors count as one token."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        if self.chunk_tokens < 1:
            raise RamifyError(f"task.chunk_tokens must be at least 1, but is {self.chunk_tokens}.")
        _check_rate(self.mask_rate, "task.mask_rate")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise RamifyError(
                f"task.max_predictions must be at least 1, but is {self.max_predictions}. Set it to null for no maximum."
            )
        if self.loss_norm == "tokens" and self.comment_loss != "token":
            raise RamifyError(
                f"task.loss_norm=tokens divides by the number of masked tokens, but task.comment_loss={self.comment_loss} "
                "weighs them by text. Set task.comment_loss=token."
            )
        if self.masking == "content" and self.mask_unit != "piece":
            raise RamifyError(
                f"task.masking=content chooses single pieces by their frequency, not each {self.mask_unit}. Set "
                "task.mask_unit=piece or task.masking=uniform."
            )
        if self.span_boundary and self.mask_unit != "span":
            raise RamifyError(
                f"task.span_boundary={self.span_boundary:g} predicts spans, but task.mask_unit={self.mask_unit} masks none. "
                "Set task.mask_unit=span or task.span_boundary=0."
            )
        for name in (*VECTOR_LOSSES, "next_sentence", "span_boundary"):
            if getattr(self, name) < 0:
                raise RamifyError(f"task.{name} must be at least 0, but is {getattr(self, name)}.")
        if not 0 < self.frequent_word <= 1:
            raise RamifyError(f"task.frequent_word must be above 0 and at most 1, but is {self.frequent_word}.")
        check_split(self.mask_split)


def _check_rate(rate: float, name: str) -> None:
    if not 0 < rate <= 1:
        raise RamifyError(f"{name} must be above 0 and at most 1, but is {rate}.")


def last_third(share_done: float) -> float:
    """The share that is done of the last third of training."""
    return max(0.0, 3 * share_done - 2)


class MaskedLM(Task[Batch]):
    """Predict the masked tokens of every target, given its context."""

    optional = (*VECTOR_LOSSES, "word_weight", "next_head", "boundary_head")
    matching = ("head", "tie_weights")
    main_loss = MASKED_LM
    config: MaskedLMConfig
    backbone: Backbone
    input: TextInput
    head: VocabularyHead
    own_words: BagOfWordsHead | None
    reply_words: BagOfWordsHead | None
    next_head: nn.Linear | None
    """Scores of the pooled first token for a following and for a random second segment."""
    boundary_head: SpanBoundaryHead | None
    """Scores of the tokens of a span from the tokens around it."""
    word_starts: NDArray[np.bool_] | None
    """Whether each piece begins a word, if words are masked whole."""
    choices: Tensor
    word_weight: Tensor
    """The weight of each piece in bag-of-words losses and in `masking="content"`."""

    def __init__(
        self, backbone: Backbone, tokenizer: Tokenizer, input: TextInput | None = None, config: MaskedLMConfig | None = None
    ) -> None:
        super().__init__()
        self.config = config or MaskedLMConfig()
        self.divided_by = dict.fromkeys(
            (MASKED_LM, NEXT_SENTENCE, SPAN_BOUNDARY, *VECTOR_LOSSES), DIVISORS[self.config.loss_norm]
        )
        self.annealed = VECTOR_LOSSES if self.config.vector_loss_schedule == "last_third" else ()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input or TextInput()
        tokenizer.require(("cls", "sep", "mask"), "the task masked-lm")
        if self.input.concatenate and backbone.reads_context:
            raise RamifyError(
                f"input.concatenate={self.input.concatenate} writes ancestors' texts into a comment's row, but "
                f"{type(backbone).__name__} reads their vectors. Set input.concatenate=0, or train the model bert."
            )
        if backbone.carries_state:
            raise RamifyError(
                f"{type(backbone).__name__} carries a state from batch to batch, but masked-lm reads texts in random order. "
                "Train a model without a state, or choose another task."
            )
        vocab_size, transform = backbone.config.vocab_size, self.config.head == "bert"
        width = backbone.tied_embedding.embedding_dim
        if self.config.tie_weights and not transform and width != backbone.out_dim:
            raise RamifyError(
                f"task.head=linear cannot share the token embedding of width {width} (model.embedding_dim) with states of "
                f"width {backbone.out_dim} (model.dim). Set task.head=bert, or task.tie_weights=false."
            )
        self.head = VocabularyHead(
            backbone.out_dim,
            vocab_size,
            transform=transform,
            width=width if transform else backbone.out_dim,
            activation=backbone.config.activation,
            embedding=backbone.tied_embedding if self.config.tie_weights else None,
            eps=backbone.config.eps,
        )
        self.next_head = self._next_sentence_head() if self.config.next_sentence else None
        self.word_starts = None if self.config.mask_unit == "piece" else tokenizer.word_starts
        choices = random_pieces(tokenizer, vocab_size, special=self.config.random_special)
        self.register_buffer("choices", torch.from_numpy(choices), persistent=False)
        self.own_words = self.reply_words = None
        if self.config.own_words:
            self.own_words = self._bag_of_words("own_words", backbone.context_projection)
        if self.config.reply_words:
            self.reply_words = self._bag_of_words("reply_words", None)
        if self.weighs_words:
            words = torch.ones(vocab_size)
            words[list(tokenizer.special_ids)] = 0.0
            self.register_buffer("word_weight", words)
        self.boundary_head = self._span_boundary_head() if self.config.span_boundary else None

    def _span_boundary_head(self) -> SpanBoundaryHead:
        backbone, frame = self.backbone, self.tokenizer.layout(self.input.layout).frame
        setting = f"task.span_boundary={self.config.span_boundary:g}"
        if backbone.reads_context:
            raise RamifyError(
                f"{setting} needs a model that reads texts alone, but this is {type(backbone).__name__}. Set "
                "task.span_boundary=0, or train bert or roberta."
            )
        if not (frame.before and frame.after):
            raise RamifyError(
                f"{setting} needs a token on both sides of every text, but input.layout={self.input.layout} has none on one. "
                "Set input.layout=bert."
            )
        embedding = backbone.tied_embedding if self.config.tie_weights else None
        width = backbone.tied_embedding.embedding_dim if self.config.tie_weights else backbone.out_dim
        return SpanBoundaryHead(
            backbone.out_dim, backbone.config.vocab_size, width, embedding=embedding, eps=backbone.config.eps
        )

    def _next_sentence_head(self) -> nn.Linear:
        if not self.backbone.has_pooler:
            raise RamifyError(
                f"task.next_sentence={self.config.next_sentence} needs a bert with model.pooling=pooler, whose vector of the "
                f"first token predicts the label; this {type(self.backbone).__name__} has no pooler. Set model.pooling=pooler, "
                "or task.next_sentence=0."
            )
        head = nn.Linear(self.backbone.out_dim, 2)
        nn.init.normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)
        return head

    def _bag_of_words(self, name: str, projection: nn.Linear | None) -> BagOfWordsHead:
        backbone, context = self.backbone, self.input.context
        setting = f"task.{name}={getattr(self.config, name)}"
        if not backbone.reads_context:
            raise RamifyError(
                f"{setting} teaches the vectors of nodes, but {type(backbone).__name__} reads none. Set task.{name}=0, or "
                "train the model tree-mlm."
            )
        if context in BLIND:
            raise RamifyError(
                f'{setting} teaches the vectors of nodes, which a model with input.context="{context}" does not read. Set '
                "task.own_words=0 and task.reply_words=0."
            )
        if projection is None:
            projection = nn.Linear(backbone.out_dim, backbone.out_dim, bias=False)
            start_projection(projection)
        return BagOfWordsHead(projection, self.head.weight, backbone.config.eps)

    @property
    def weighs_words(self) -> bool:
        """Whether training needs `count_words` first."""
        return bool(self.config.own_words or self.config.reply_words) or self.config.masking == "content"

    def count_words(self, counts: NDArray[np.int64]) -> None:
        """Set the weights of words from the number of times that each piece stands in the training texts."""
        share = torch.from_numpy(counts / max(1, counts.sum()))
        weight = (self.config.frequent_word / share.clamp(min=1e-30)).clamp(max=1.0).sqrt()
        weight[list(self.tokenizer.special_ids)] = 0.0
        self.word_weight.copy_(weight)

    def corrupt(self, batch: Batch, generator: torch.Generator) -> Batch:
        device = batch.target_ids.device
        seeds = torch.randint(-(2**63), 2**63 - 1, (len(batch.targets),), generator=generator, device=generator.device)
        return self.mask(batch, seeds.to(device), self.training_mask_rate, masking=self.config.masking)

    @property
    def training_mask_rate(self) -> float:
        """The share of tokens that the next update masks."""
        rate = self.config.mask_rate
        if self.config.mask_rate_schedule == "constant":
            return rate
        return rate + last_third(self.share_done) * (BERT_MASK_RATE - rate)

    def vector_loss_weight(self, name: str) -> float:
        """The weight that the next update gives to one of `VECTOR_LOSSES`."""
        weight: float = getattr(self.config, name)
        return weight if self.config.vector_loss_schedule == "constant" else weight * (1 - last_third(self.share_done))

    def mask(
        self,
        batch: Batch,
        seeds: Int[Tensor, " target"],
        rate: float | None = None,
        masking: Literal["uniform", "content"] = "uniform",
        boundaries: bool = True,
    ) -> Batch:
        """Mask tokens with one seed per target. If the task has a loss for the boundaries of spans, they are output positions,
        too, without a label; `boundaries=False` leaves them out.

        The chosen tokens depend only on the seed, the target's length and the
        rate, and on its words if `masking` is `content`.

        `rate` is the share of masked tokens; None: `mask_rate`. Raises `RamifyError` if it is no share.
        """
        config = self.config
        rate = config.mask_rate if rate is None else rate
        _check_rate(rate, "mask_rate")
        num_maskable = batch.num_maskable
        # The length counts special tokens. Halves are rounded to even, as by Python's `round`.
        whole = batch.own_tokens
        chosen = np.minimum(np.maximum(np.round(rate * whole), 1), num_maskable).astype(np.int64)
        if config.max_predictions is not None:
            chosen = np.minimum(chosen, config.max_predictions)
        rows = torch.repeat_interleave(
            torch.arange(len(batch.targets), device=seeds.device),
            batch.targets.lengths,
            output_size=batch.targets.total,
        )
        # A text has the same draws wherever it stands in its row.
        first = batch.targets.lengths - batch.frame.after - torch.from_numpy(num_maskable).to(seeds.device)
        place = batch.targets.positions - first.index_select(0, rows)
        seed = seeds.index_select(0, rows)
        random = counter_rng.random_bits(seed, place * 4) & (2**32 - 1)
        if self.word_starts is None:
            index = leader = self._pieces(batch, rows, random, chosen, masking)
        else:
            words = self._words(batch, random, counter_rng.uniform(seed, place * 4 + 3), chosen)
            index, leader = (torch.from_numpy(tokens).to(seeds.device) for tokens in (words.index, words.leader))
            chosen = words.counts

        answers = batch.target_ids.index_select(0, index)
        seed, own_place, place = seed.index_select(0, index), place.index_select(0, index), place.index_select(0, leader)
        action = counter_rng.uniform(seed, place * 4 + 1)
        drawn = self.choices[counter_rng.randint(len(self.choices), seed, own_place * 4 + 2)]
        to_mask, to_random, _ = config.mask_split
        shown = torch.where(action < to_mask, self.tokenizer.mask_id, torch.where(action < to_mask + to_random, drawn, answers))
        target_ids = batch.target_ids.index_copy(0, index, shown)
        if self._predicts_next(batch):
            # The state of the first token is computed, too.
            index, order = torch.cat([index, batch.targets.offsets[:-1].long()]).sort()
            answers = torch.cat([answers, answers.new_full((len(batch.targets),), IGNORE)]).index_select(0, order)
            chosen = chosen + 1
        if boundaries and self.boundary_head is not None:
            kept = torch.zeros_like(batch.target_ids, dtype=torch.bool)
            masked = index[answers != IGNORE]
            for places in (index, masked - 1, masked + 1):
                kept[places] = True
            labels = torch.full_like(batch.target_ids, IGNORE).index_copy(0, index, answers)
            index = kept.nonzero()[:, 0]
            answers = labels.index_select(0, index)
            chosen = rows.index_select(0, index).bincount(minlength=len(batch.targets)).cpu().numpy()
        return replace(
            batch,
            target_ids=target_ids,
            output_positions=select_positions(index, chosen, batch.targets, batch.readers),
            labels=answers,
        )

    def _pieces(
        self, batch: Batch, rows: Tensor, random: Tensor, chosen: NDArray[np.int64], masking: Literal["uniform", "content"]
    ) -> Int[Tensor, " masked"]:
        """Random maskable tokens of each row, in ascending order."""
        if masking == "content":
            # The smallest of −log(u)/w come first: a weighted sample without replacement (Efraimidis & Spirakis 2006). The bits
            # of positive floats have the order of their values.
            uniform = (random.double() + 0.5) / 2**32
            key = -uniform.log() / self.word_weight.index_select(0, batch.target_ids)
            random = key.float().view(torch.int32).long()
        # Maskable tokens come first in each row, in random order. The first `chosen` of each row are masked.
        order = torch.argsort((rows << 33) | ((~batch.maskable).long() << 32) | random, stable=True)
        lengths = batch.targets.host_lengths
        starts = np.cumsum(lengths) - lengths
        taken = np.repeat(starts - (np.cumsum(chosen) - chosen), chosen) + np.arange(chosen.sum())
        return order.index_select(0, torch.from_numpy(taken).to(random.device)).sort().values

    def _words(self, batch: Batch, random: Tensor, uniform: Tensor, budget: NDArray[np.int64]) -> Chosen:
        """Random words or spans of each row. They are chosen one after the other, which is fastest on the host."""
        assert self.word_starts is not None
        lengths = batch.targets.host_lengths
        ids, maskable = batch.target_ids.cpu().numpy(), batch.maskable.cpu().numpy()
        words = Words.of(self.word_starts[ids], maskable, np.cumsum(lengths) - lengths)
        order = random.cpu().numpy()[words.begin]
        spans = span_lengths(uniform.cpu().numpy()[words.begin]) if self.config.mask_unit == "span" else None
        return choose(words, budget, order, spans)

    def _predicts_next(self, batch: Batch) -> bool:
        """Whether this batch has rows of two segments, and the task predicts if the second follows the first."""
        return self.next_head is not None and batch.pair_labels is not None

    def counts(self, batch: Batch, phase: str) -> dict[str, float]:
        """The total weight of the targets with a token to predict (of their masked tokens with loss_norm=tokens), of pairs, and
        of the vectors that predict words."""
        weight = batch.weight
        if self.config.loss_norm == "tokens":
            weight = weight * self._num_masked(batch)
        counts = {MASKED_LM: float(weight.sum())}
        if self.next_head is not None:
            counts[NEXT_SENTENCE] = float(len(batch.targets)) if batch.pair_labels is not None else 0.0
        if self.boundary_head is not None:
            counts[SPAN_BOUNDARY] = counts[MASKED_LM]
        if self.own_words is not None:
            # A batch without examples has no node weights. It occurs on ranks that have no part in the last step of an epoch.
            spoken = batch.nodes.lengths > batch.frame.num_special
            counts["own_words"] = 0.0 if batch.node_weight is None else float((batch.node_weight * spoken).sum())
        if self.reply_words is not None:
            counts["reply_words"] = float((batch.weight * (batch.contexts.lengths > 0)).sum())
        return counts

    def losses(self, batch: Batch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any) -> Losses:
        if not self._in_parts(batch):
            if not self._teaches_vectors(batch):
                yield self._target_losses(self.backbone(batch), batch, divisors), None
                return
            vectors = self.backbone.vectors(batch.node_context().texts)
            losses = self._target_losses(self.backbone(batch, vectors=vectors), batch, divisors)
            yield losses | self._vector_losses(vectors, batch, divisors), None
            return
        if not self.backbone.reads_context or batch.null_context:
            # The computations of targets do not depend on each other, so each part has a graph of its own.
            for part, hidden in decode_parts(self.backbone, batch, self.config.chunk_tokens):
                yield self._target_losses(hidden, part, divisors), None
            return
        # Phase one: encode every node without a graph. The generator's state before each chunk is kept, so that phase three
        # draws the same dropout.
        device = batch.target_ids.device
        chunks = list(batch.nodes.runs(self.config.chunk_tokens))
        parts = [batch.node_rows(start, stop) for start, stop in chunks]
        drawn, vectors = [], []
        with torch.no_grad():
            for rows in parts:
                drawn.append(generator_state(device))
                vectors.append(self.backbone.vectors(rows))
        leaf = torch.cat(vectors) if vectors else no_vectors(self.backbone)
        leaf = leaf.detach().requires_grad_()
        # Phase two: decode in chunks. The gradient of the nodes' vectors accumulates in `leaf.grad`.
        for part, hidden in decode_parts(self.backbone, batch, self.config.chunk_tokens, leaf):
            yield self._target_losses(hidden, part, divisors), None
        if self._teaches_vectors(batch):
            # These losses need no other state than the vectors.
            yield self._vector_losses(leaf, batch, divisors), None
        # Phase three: encode again with a graph, and back-propagate the accumulated gradient.
        if leaf.grad is None:
            return
        for rows, (start, stop), before in zip(parts, chunks, drawn, strict=True):
            with restored_generator(device, before):
                vectors = self.backbone.vectors(rows)
            yield {"encoder": (vectors * leaf.grad[start:stop]).sum()}, None

    def readings(self, batch: Batch, phase: str, state: State | None, shared: Any) -> Readings:
        ones, limit = dict.fromkeys(self.counts(batch, phase), 1.0), self.config.chunk_tokens
        context = None
        if self.backbone.reads_context and not batch.null_context:
            context = encode_context(self.backbone, batch, limit)
        losses: dict[str, Tensor] = {}
        parts: dict[str, list[Tensor]] = {}
        for part, hidden in decode_parts(self.backbone, batch, limit, context):
            nats, _ = self.head.measure(*self.masked_states(hidden, part))
            read = self.target_readings(hidden, part, nats)
            for name, loss in read.losses.items():
                losses[name] = losses.get(name, 0.0) + loss
            for name, part_vectors in read.vectors.items():
                parts.setdefault(name, []).append(part_vectors)
        vectors = {name: torch.cat(part_vectors) for name, part_vectors in parts.items()}
        if context is not None:
            vectors["context"] = context
            if self._teaches_vectors(batch):
                losses |= self._vector_losses(context, batch, ones)
        return Readings(losses, self._constants(batch), vectors)

    def target_readings(self, hidden: Hidden, batch: Batch, nats: Float[Tensor, " masked"]) -> Readings:
        """The readings of targets whose masked tokens have these losses. They leave out what vectors of nodes predict."""
        weights = self._label_weights(batch, len(nats), nats.dtype)
        losses = {MASKED_LM: (nats * weights).sum()} | self._next_loss(hidden, batch, 1.0)
        if self.boundary_head is not None:
            states, labels = self._between(hidden, batch)
            around, _ = self.boundary_head.words.measure(states, labels)
            losses[SPAN_BOUNDARY] = (around * weights).sum() * self.config.span_boundary
        vectors = {"masked token": self.masked_states(hidden, batch)[0]}
        if self._predicts_next(batch):
            vectors["row"] = self.backbone.vector(hidden.encoded(batch))
        return Readings(losses, self._constants(batch), vectors)

    def _constants(self, batch: Batch) -> dict[str, Constant]:
        """The frequencies of masked tokens and of the words of bags, and those of random second segments."""
        config, size = self.config, self.backbone.config.vocab_size
        assert batch.labels is not None
        labels, none = batch.labels[batch.labels != IGNORE], torch.zeros(0, dtype=torch.int64)
        constants: dict[str, Constant] = {MASKED_LM: Frequencies.of(labels, self._label_weights(batch, len(labels)), size)}
        if self.boundary_head is not None:
            weights = self._label_weights(batch, len(labels)) * self.config.span_boundary
            constants[SPAN_BOUNDARY] = Frequencies.of(labels, weights, size)
        if self.next_head is not None:
            labels = none if batch.pair_labels is None else batch.pair_labels
            constants[NEXT_SENTENCE] = Frequencies.of(labels, torch.full(labels.shape, config.next_sentence), 2)
        for name, head, bags in self._bags_by_loss():
            if head is not None:
                words = bags(batch) if self._teaches_vectors(batch) else Bags(none, none, none.double())
                constants[name] = Frequencies.of(words.piece, words.weight * self.vector_loss_weight(name), size)
        return constants

    def _in_parts(self, batch: Batch) -> bool:
        if self.config.two_phase == "never":
            return False
        return self.config.two_phase == "always" or batch.nodes.total + int(batch.costs.sum()) > self.config.chunk_tokens

    def _teaches_vectors(self, batch: Batch) -> bool:
        """Whether vectors of this batch predict words. A batch of posts alone reads no vectors."""
        return (self.own_words is not None or self.reply_words is not None) and len(batch.nodes) > 0

    def _vector_losses(
        self, vectors: Float[Tensor, "node dim"], batch: Batch, divisors: Mapping[str, float]
    ) -> dict[str, Tensor]:
        """The bag-of-words losses of a batch: means over a text's words, weighted by node or target."""
        losses: dict[str, Tensor] = {}
        for name, head, bags in self._bags_by_loss():
            if head is not None:
                losses[name] = head.loss(vectors, bags(batch)) * (self.vector_loss_weight(name) / divisors[name])
        return losses

    def _bags_by_loss(self) -> tuple[tuple[str, BagOfWordsHead | None, Callable[[Batch], Bags]], ...]:
        """The losses of vectors: their heads, and what they predict."""
        return (
            ("own_words", self.own_words, self._own_bags),
            ("reply_words", self.reply_words, self._reply_bags),
        )

    def _own_bags(self, batch: Batch) -> Bags:
        """The words of every node, predicted by its own vector."""
        assert batch.node_weight is not None, "own_words needs a view with context weights"
        return self._bags(batch.input_ids, batch.nodes, torch.arange(len(batch.nodes), device=batch.device), batch.node_weight)

    def _reply_bags(self, batch: Batch) -> Bags:
        """The words of every target, predicted by the vector of its nearest context node, which is the last."""
        assert batch.output_positions is not None
        assert batch.labels is not None
        clean = batch.target_ids.index_copy(0, batch.output_positions.index, batch.labels)
        reads = batch.contexts.lengths > 0
        last = (batch.contexts.offsets[1:].long() - 1).clamp(min=0)
        nearest = batch.context.index_select(0, last)
        return self._bags(clean, batch.targets, nearest, batch.weight * reads)

    def _bags(
        self,
        ids: Int[Tensor, " total"],
        rows: Rows,
        vector: Int[Tensor, " row"],
        weight: Float64[Tensor, " row"],
    ) -> Bags:
        """The words of texts, each with the vector that predicts it. The words of a text together weigh as much as the text."""
        row = torch.repeat_interleave(torch.arange(len(rows), device=ids.device), rows.lengths, output_size=rows.total)
        words = self.word_weight.index_select(0, ids)
        total = torch.zeros(len(rows), dtype=words.dtype, device=ids.device).index_add(0, row, words)
        share = weight.to(torch.promote_types(words.dtype, torch.float32)) / total.clamp(min=1e-12)
        return Bags(vector.index_select(0, row), ids, words * share.index_select(0, row))

    def _target_losses(self, hidden: Hidden, batch: Batch, divisors: Mapping[str, float]) -> dict[str, Tensor]:
        """The losses of the targets' masked tokens and second segments."""
        losses = {MASKED_LM: self._loss(*self.masked_states(hidden, batch), batch) * (1.0 / divisors[MASKED_LM])}
        if self.boundary_head is not None:
            states, labels = self._between(hidden, batch)
            weights = self._label_weights(batch, len(labels), torch.promote_types(states.dtype, torch.float32))
            loss = self.boundary_head.words.loss(states, labels, weights)
            losses[SPAN_BOUNDARY] = loss * (self.config.span_boundary / divisors[SPAN_BOUNDARY])
        return losses | self._next_loss(hidden, batch, divisors.get(NEXT_SENTENCE, 1.0))

    def _between(self, hidden: Hidden, batch: Batch) -> tuple[Float[Tensor, "masked dim"], Int[Tensor, " masked"]]:
        """What the tokens around each span say of each of its tokens, and the labels of these."""
        assert self.boundary_head is not None
        assert batch.output_positions is not None
        assert batch.labels is not None
        index, masked = batch.output_positions.index, batch.labels != IGNORE
        # Tokens without a label stand around every span, so the nearest output positions without one are its borders.
        order = torch.arange(len(index), device=index.device)
        left = torch.where(masked, -1, order).cummax(0).values[masked]
        right = torch.where(masked, len(index), order).flip(0).cummin(0).values.flip(0)[masked]
        place = index[masked] - index.index_select(0, left) - 1
        tokens = hidden.tokens
        states = self.boundary_head(tokens.index_select(0, left), tokens.index_select(0, right), place)
        return states, batch.labels[masked]

    def _next_loss(self, hidden: Hidden, batch: Batch, divisor: float) -> dict[str, Tensor]:
        """The loss of second segments; none for rows of one."""
        if not self._predicts_next(batch) or batch.pair_labels is None:
            return {}
        loss = F.cross_entropy(self.next_scores(hidden, batch), batch.pair_labels, reduction="sum")
        return {NEXT_SENTENCE: loss * (self.config.next_sentence / divisor)}

    def masked_states(self, hidden: Hidden, batch: Batch) -> tuple[Float[Tensor, "masked dim"], Int[Tensor, " masked"]]:
        """The states of a corrupted batch's masked tokens, and their labels."""
        assert batch.output_positions is not None
        assert batch.labels is not None
        if self.boundary_head is not None:
            index = (batch.labels != IGNORE).nonzero()[:, 0]
            return hidden.tokens.index_select(0, index), batch.labels.index_select(0, index)
        if not self._predicts_next(batch):
            return hidden.tokens, batch.labels
        counts = batch.output_positions.rows.host_lengths
        # The first output position of each row is its first token.
        masked = np.delete(np.arange(int(counts.sum())), np.cumsum(counts) - counts)
        index = torch.from_numpy(masked).to(batch.device)
        return hidden.tokens.index_select(0, index), batch.labels.index_select(0, index)

    def next_scores(self, hidden: Hidden, batch: Batch) -> Float[Tensor, "target 2"]:
        """The scores of a following and of a random second segment."""
        assert self.next_head is not None, "task.next_sentence is 0"
        return self.next_head(self.backbone.vector(hidden.encoded(batch))).float()

    def _num_masked(self, batch: Batch) -> Int[Tensor, " target"]:
        """Number of masked tokens of each target of a corrupted batch."""
        assert batch.output_positions is not None
        rows = batch.output_positions.rows
        counts = rows.lengths
        if self.boundary_head is not None:
            assert batch.labels is not None
            row = torch.repeat_interleave(torch.arange(len(rows), device=counts.device), counts, output_size=rows.total)
            return torch.zeros_like(counts).index_add(0, row, (batch.labels != IGNORE).to(counts.dtype))
        return counts - 1 if self._predicts_next(batch) else counts

    def _loss(self, states: Float[Tensor, "position dim"], labels: Int[Tensor, " position"], batch: Batch) -> Float[Tensor, ""]:
        weights = self._label_weights(batch, len(labels), torch.promote_types(states.dtype, torch.float32))
        return self.head.loss(states, labels, weights)

    def _label_weights(self, batch: Batch, number: int, dtype: torch.dtype = torch.float64) -> Float[Tensor, " masked"]:
        """The weight of each masked token of a corrupted batch, which has this number of them."""
        counts = self._num_masked(batch)
        weight = batch.weight
        if self.config.comment_loss == "mean":
            weight = weight / counts.clamp(min=1)
        return torch.repeat_interleave(weight.to(dtype), counts, output_size=number)

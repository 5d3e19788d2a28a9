"""The answer to a question as a span of a passage (Devlin et al. 2019, sections 4.2 and 4.3; Yang et al. 2019)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.question_windows import QuestionCollator, Windows
from ramify.batching.views.questions import QuestionInput
from ramify.errors import RamifyError
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import State
from ramify.nn.pooling import on_tokens, row_sums
from ramify.nn.ragged import Rows, as_table
from ramify.nn.span_heads import Answerability, ConditionalEnd
from ramify.tasks.base import Losses, Readings
from ramify.tasks.constants import Bernoulli, Constant, Known
from ramify.tasks.downstream import DownstreamConfig, DownstreamTask
from ramify.tokenizer import Tokenizer

START, END, ANSWERABLE = "start", "end", "answerable"
"""The names of the losses."""

F1, EXACT_MATCH = Metric("f1", greater_is_better=True), Metric("exact_match", greater_is_better=True)


@dataclass(frozen=True)
class SpanQAConfig(DownstreamConfig):
    """The first and the last token of the answer, each a choice among the tokens of a row.

    The loss is the mean of the two cross-entropies. The choice in a window that does not hold the answer is a special token.
    """

    dropout: float = 0.0
    """Rate on the states that the output layers read."""
    end: Literal["independent", "conditional"] = "independent"
    """conditional: the end is scored given the start, and answers are found by a beam (XLNet)."""
    candidates: Literal["row", "passage"] = "row"
    """The tokens of the two choices. row: all tokens (BERT). passage: those of the passage, and the special token (XLNet)."""
    null: Literal["auto", "none", "token", "classifier"] = "auto"
    """The score that the passage holds no answer. none: every question has one (SQuAD 1.1). token: that of the special token as
    the start and the end, less that of the best span (BERT). classifier: an output layer of its own, with half a binary
    cross-entropy as a third loss (XLNet). auto: none if every training question has an answer; else classifier with
    end=conditional, and token with end=independent."""
    answer_tokens: int = 30
    """Tokens of the longest answer."""
    start_beam: int = 5
    """With end=conditional: number of starts for which ends are scored."""
    end_beam: int = 5
    """With end=conditional: number of ends of each start."""
    classifier_dropout: float = 0.1
    """With null=classifier: rate inside its output layer."""

    def check(self) -> None:
        for name in ("answer_tokens", "start_beam", "end_beam"):
            if getattr(self, name) < 1:
                raise RamifyError(f"task.{name} must be at least 1, but is {getattr(self, name)}.")
        if not 0 <= self.classifier_dropout < 1:
            raise RamifyError(f"task.classifier_dropout must be at least 0 and below 1, but is {self.classifier_dropout:g}.")

    def for_data(self, *, impossible: bool) -> Self:
        """The settings with `null=auto` decided by the training questions. `impossible`: some have no answer."""
        if self.null != "auto":
            return self
        published = "classifier" if self.end == "conditional" else "token"
        return replace(self, null=published if impossible else "none")


@dataclass(frozen=True)
class Spans:
    """The best spans of each row, best first, as places in the row. Rows that have fewer end with scores of −∞."""

    starts: Int[Tensor, "row span"]
    ends: Int[Tensor, "row span"]
    scores: Float[Tensor, "row span"]
    null: Float[Tensor, " row"] | None
    """The score that the row holds no answer; None: the task has none."""


class SpanQA(DownstreamTask):
    """The start and the end of an answer from the states of a row's tokens."""

    main_loss = "loss"
    metrics = (F1, EXACT_MATCH, DEV_LOSS)
    optional = ("answerability", "mix")
    fresh = ("threshold",)
    matching = ("end",)
    config: SpanQAConfig
    input: QuestionInput
    answerability: Answerability | None
    threshold: Tensor
    """The null score above which a question has no answer. It is chosen on dev."""

    def __init__(self, backbone: Any, tokenizer: Tokenizer, input: QuestionInput, config: SpanQAConfig) -> None:
        super().__init__(backbone, tokenizer, input, config, None)
        if config.null == "auto":
            raise ValueError("task.null=auto is resolved by `SpanQAConfig.for_data`")
        layout = tokenizer.layout(input.layout, backbone.config.vocab_size)
        if not layout.num_special and config.null != "none":
            raise RamifyError(
                f"task.null={config.null} needs a special token that stands for rows without the answer, but input.layout="
                f"{input.layout} has none. Choose another layout, such as input.layout=bert, or leave out questions without an "
                "answer and set task.null=none."
            )
        # A state that has read nothing but itself cannot say that there is no answer. A question's token is never an answer.
        first = not layout.num_special or (layout.before and backbone.vector_read != "last")
        self.collator = QuestionCollator(layout, input, "first" if first else "last")
        conditional = config.end == "conditional"
        self.output = nn.Linear(self.dim, 1 if conditional else 2)
        nn.init.trunc_normal_(self.output.weight, std=0.02, a=-0.04, b=0.04)
        nn.init.zeros_(self.output.bias)
        self.end = ConditionalEnd(self.dim) if conditional else None
        self.answerability = Answerability(self.dim, config.classifier_dropout) if config.null == "classifier" else None
        self.register_buffer("threshold", torch.zeros((), dtype=torch.float64))

    # --- the objective -----------------------------------------------------------------------------------------------

    def corrupt(self, batch: LabelledBatch, generator: torch.Generator) -> LabelledBatch:
        return batch

    def counts(self, batch: LabelledBatch, phase: str) -> dict[str, float]:
        return dict.fromkeys(self._losses, float(len(batch.order)))

    @property
    def _losses(self) -> tuple[str, ...]:
        return (START, END) if self.answerability is None else (START, END, ANSWERABLE)

    def losses(
        self, batch: LabelledBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        sums = self.loss_sums(batch, self.states(batch))
        losses = {name: loss / divisors[name] for name, loss in sums.items()}
        yield self.regularized(losses, batch, divisors, phase), None

    def loss_sums(self, batch: LabelledBatch, states: Float[Tensor, "total dim"]) -> dict[str, Float[Tensor, ""]]:
        """Half the cross-entropy of each choice, summed over rows."""
        assert batch.targets is not None
        rows, windows, (first, last) = batch.input.rows, Windows.of(batch), batch.targets.unbind(1)
        starts = self.start_table(batch, states)
        ends = self.end_table(batch, states, first)
        sums = {
            START: F.cross_entropy(starts, first, reduction="sum") / 2,
            END: F.cross_entropy(ends, last, reduction="sum") / 2,
        }
        if self.answerability is not None:
            scores = self._no_answer(rows, windows, states, starts)
            missing = (~windows.answered).to(scores.dtype)
            sums[ANSWERABLE] = F.binary_cross_entropy_with_logits(scores, missing, reduction="sum") / 2
        return sums

    def readings(self, batch: LabelledBatch, phase: str, state: State | None, shared: Any) -> Readings:
        return self.state_readings(batch, self.states(batch))

    def state_readings(self, batch: LabelledBatch, states: Float[Tensor, "total dim"]) -> Readings:
        """`readings`, given the states of all tokens."""
        return Readings(self.loss_sums(batch, states), self.constants(batch))

    def constants(self, batch: LabelledBatch) -> dict[str, Constant]:
        """A choice among equally likely tokens, and the shares of rows with and without the answer."""
        windows = Windows.of(batch)
        counts = batch.input.rows.lengths.double()
        if self.config.candidates == "passage":
            counts = row_sums(windows.passage.double()[:, None], batch.input.rows)[:, 0] + 1
        choice = Known(float(counts.log().sum()) / 2)
        constants: dict[str, Constant] = {START: choice, END: choice}
        if self.answerability is not None:
            answered = float(windows.answered.sum())
            constants[ANSWERABLE] = Bernoulli(answered / 2, (len(windows.answered) - answered) / 2)
        return constants

    # --- scores ------------------------------------------------------------------------------------------------------

    def states(self, batch: LabelledBatch) -> Float[Tensor, "total dim"]:
        """The states of all tokens, in at least single precision."""
        states = self.token_states(batch).last
        return states.to(torch.promote_types(states.dtype, torch.float32))

    def start_table(self, batch: LabelledBatch, states: Float[Tensor, "total dim"]) -> Float[Tensor, "row place"]:
        """The score of each place of each row as the start; −∞ where none can be."""
        return self._table(batch, self.output(states)[:, 0])

    def end_table(
        self, batch: LabelledBatch, states: Float[Tensor, "total dim"], starts: Int[Tensor, " row"]
    ) -> Float[Tensor, "row place"]:
        """The score of each place as the end, given a start for each row. An independent end does not depend on it."""
        if self.end is None:
            return self._table(batch, self.output(states)[:, 1])
        return self._ends(batch, states, self.end.of_tokens(states), starts)

    def _ends(
        self,
        batch: LabelledBatch,
        states: Float[Tensor, "total dim"],
        of_tokens: Float[Tensor, "total dim"],
        starts: Int[Tensor, " row"],
    ) -> Float[Tensor, "row place"]:
        assert self.end is not None
        rows = batch.input.rows
        chosen = states.index_select(0, rows.offsets[:-1].to(torch.int64) + starts)
        return self._table(batch, self.end(of_tokens, on_tokens(chosen, rows)))

    def _table(self, batch: LabelledBatch, scores: Float[Tensor, " total"]) -> Float[Tensor, "row place"]:
        table, _ = as_table(scores, batch.input.rows, -math.inf)
        if self.config.candidates == "row":
            return table
        windows = Windows.of(batch)
        candidates = flags_table(windows.passage, batch.input.rows)
        return table.masked_fill(~candidates.scatter(1, windows.null[:, None], True), -math.inf)

    def _no_answer(
        self,
        rows: Rows,
        windows: Windows,
        states: Float[Tensor, "total dim"],
        starts: Float[Tensor, "row place"],
    ) -> Float[Tensor, " row"]:
        assert self.answerability is not None
        first = rows.offsets[:-1].to(torch.int64)
        _, cells = as_table(states[:, 0], rows, 0.0)
        shares = starts.softmax(1).flatten().index_select(0, cells)
        expected = row_sums(shares[:, None] * states, rows)
        return self.answerability(expected, states.index_select(0, first + windows.null))

    # --- answers -----------------------------------------------------------------------------------------------------

    def null_score(self, null: float, best: float) -> float | None:
        """The score that a passage holds no answer, from the least score `null` of its windows and the score of its best span.
        None: every question has an answer."""
        if self.config.null == "none":
            return None
        return null - best if self.config.null == "token" else null

    @torch.no_grad()
    def spans(self, batch: LabelledBatch, states: Float[Tensor, "total dim"], n_best: int) -> Spans:
        """The best spans of each row that lie in its passage and whose first token is read there.

        A row in which a token with letters is read has at least one. The score of a span is the sum of two scores with an
        independent end, and of two log-probabilities otherwise.
        """
        windows, rows = Windows.of(batch), batch.input.rows
        starts = self.start_table(batch, states)
        first_tokens = flags_table(windows.read_here & windows.lettered, rows)
        last_tokens = flags_table(windows.lettered, rows)
        if self.end is None:
            ends = self.end_table(batch, states, windows.null)
            null = (starts + ends).gather(1, windows.null[:, None])[:, 0]
            first, last, scores = best_spans(
                starts.masked_fill(~first_tokens, -math.inf),
                ends.masked_fill(~last_tokens, -math.inf),
                n_best,
                self.config.answer_tokens,
            )
        else:
            first, last, scores = self._beam(batch, states, starts, first_tokens, last_tokens)
            ends = self.end_table(batch, states, windows.null)
            null = (starts.log_softmax(1) + ends.log_softmax(1)).gather(1, windows.null[:, None])[:, 0]
            scores, order = scores.topk(min(n_best, scores.shape[1]), dim=1)
            first, last = first.gather(1, order), last.gather(1, order)
        if self.config.null == "none":
            return Spans(first, last, scores, None)
        if self.answerability is not None:
            null = self._no_answer(rows, windows, states, starts)
        return Spans(first, last, scores, null)

    def _beam(
        self,
        batch: LabelledBatch,
        states: Float[Tensor, "total dim"],
        starts: Float[Tensor, "row place"],
        first_tokens: Bool[Tensor, "row place"],
        last_tokens: Bool[Tensor, "row place"],
    ) -> tuple[Int[Tensor, "row span"], Int[Tensor, "row span"], Float[Tensor, "row span"]]:
        """The likeliest starts of each row, and the likeliest ends of each, among those that make valid spans.

        The published code selects among all tokens and drops invalid spans later, which may leave none.
        """
        assert self.end is not None
        of_tokens = self.end.of_tokens(states)
        likely = starts.log_softmax(1).masked_fill(~first_tokens, -math.inf)
        start_scores, first = likely.topk(min(self.config.start_beam, starts.shape[1]), dim=1)
        places = torch.arange(starts.shape[1], device=starts.device)
        firsts, lasts, scores = [], [], []
        for place, score in zip(first.unbind(1), start_scores.unbind(1), strict=True):
            # A beam beyond the candidates of a short row has no state.
            known = place.clamp(max=starts.shape[1] - 1).minimum(batch.input.rows.lengths - 1)
            length = places - known[:, None] + 1
            valid = last_tokens & (length >= 1) & (length <= self.config.answer_tokens)
            ends = self._ends(batch, states, of_tokens, known).log_softmax(1).masked_fill(~valid, -math.inf)
            end_scores, last = ends.topk(min(self.config.end_beam, ends.shape[1]), dim=1)
            firsts.append(known[:, None].expand_as(last))
            lasts.append(last)
            scores.append(score[:, None] + end_scores)
        return torch.cat(firsts, 1), torch.cat(lasts, 1), torch.cat(scores, 1)


def best_spans(
    starts: Float[Tensor, "row place"], ends: Float[Tensor, "row place"], n_best: int, longest: int
) -> tuple[Int[Tensor, "row span"], Int[Tensor, "row span"], Float[Tensor, "row span"]]:
    """The spans of up to `longest` tokens with the highest sums of two scores, best first: their starts, ends and sums."""
    longest = min(longest, starts.shape[1])
    ahead = F.pad(ends, (0, longest - 1), value=-math.inf).unfold(1, longest, 1)
    sums = (starts[:, :, None] + ahead).flatten(1)
    scores, cells = sums.topk(min(n_best, sums.shape[1]), dim=1)
    first = cells // longest
    return first, (first + cells % longest).clamp(max=starts.shape[1] - 1), scores


def flags_table(flags: Bool[Tensor, " total"], rows: Rows) -> Bool[Tensor, "row place"]:
    """Flags as a table, one line per row; false behind the end of a row."""
    return as_table(flags.to(torch.float32), rows, 0.0)[0] > 0

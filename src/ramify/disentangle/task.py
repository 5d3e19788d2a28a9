"""Which earlier messages does a message answer? (Zhu et al. 2020, section 3.4; Kummerfeld et al. 2019, section 4)"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.config import check_fields
from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.candidate_pruner import FirstLook
from ramify.disentangle.config import History
from ramify.disentangle.models.base import LinkBackbone
from ramify.disentangle.reranker import SecondLook
from ramify.errors import RamifyError
from ramify.nn.heads import nats_of_any
from ramify.nn.ragged import as_table, highest
from ramify.tasks.base import Task
from ramify.tokenizer import Tokenizer

HIDDEN_SCORE = -1e9


@dataclass(frozen=True)
class ReplyToConfig:
    objective: Literal["listwise", "ranking", "binary"] = "listwise"
    """One choice among the message itself and its history; among its history alone; or a decision on each of them."""
    score: Literal["sum", "linear"] = "linear"
    """A pair's score: the plain sum of its state, as in Kummerfeld et al.'s code, or a learned map of it."""
    positive_weight: float = 1.0
    """How much more a link counts than a pair that is none (binary)."""
    conversation_weight: float = 0.0
    """How much it counts, beside the link, that the conversation is right: beside the probability of the message that is
    answered, training raises that of all candidates of its conversation together (listwise). Not in the papers."""
    start_odds: float = 1.0
    """What the odds that a message starts a conversation are multiplied by when it is decided what it answers. A start that is
    none costs a conversation more than a link that is wrong; choose on logs that were held out (listwise)."""
    decide: Literal["link", "conversation", "comembership"] = "link"
    """A message answers the likeliest of all candidates; or the likeliest of that conversation, as they were decided so far,
    whose messages are likeliest all told; or of that one which has the message with which it is likeliest to share one
    (`inference.comembership`), and none where that is less likely than not (the last two are listwise). Not in the papers."""
    threshold: float = 0.0
    """A message answers, beside the likeliest candidate, all that are at least so probable, of its conversation alone where
    conversations decide (0: the likeliest alone, which makes the published figures). The paper does not say; choose on logs
    that were held out."""
    answers: Literal["anyone", "others"] = "anyone"
    """Whom a message may answer when that is decided: also its own author, where it goes on with what he said before; or
    others alone, as where a data set does not call that an answer (listwise, binary). Not in the papers."""
    starts: bool = True
    """Whether messages may start a conversation when that is decided. Reply trees have one, and are always read without. (Of
    `ranking` none may.)"""

    first_look: int = 0
    """How many candidates of a message are read: itself, and the others that a first look, by a linear map of features alone,
    finds likeliest (`candidate_pruner`); what is left is not answered. 0: all are read. It is learned after all else,
    by `ramify train first-look` (listwise). Not in the papers."""
    second_look: int = 0
    """Size of the hidden layers of a second look at the likeliest candidates (`disentangle.reranker`); 0: there is none. It is
    learned after all else, by `ramify train second-look` (listwise). Not in the papers."""
    hindsight: bool = False
    """Whether the second look is at what is said later, too (`features.lookahead`). A live channel has the first sight of such
    a model alone."""
    as_live: bool = False
    """Decide on a whole log as on a live channel: without hindsight, where the model has it."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        for name in ("first_look", "second_look"):
            if getattr(self, name) < 0:
                raise RamifyError(f"task.{name} must not be negative, not {getattr(self, name)}.")
            if name == "first_look" and self.first_look == 1:
                raise RamifyError("task.first_look=1 would read nothing but the message itself: set 2 or more, or 0.")
            if getattr(self, name) and self.objective != "listwise":
                raise RamifyError(f"task.{name} is for task.objective=listwise, not {self.objective}.")
        if self.hindsight and not self.second_look:
            raise RamifyError("task.hindsight is for models that look twice (task.second_look).")
        if not 0 <= self.threshold < 1:
            raise RamifyError(f"task.threshold must be at least 0 and below 1, not {self.threshold}.")
        if self.decide != "link" and self.objective != "listwise":
            raise RamifyError(f"task.decide={self.decide} is for task.objective=listwise, not {self.objective}.")
        if self.threshold and self.objective == "ranking":
            raise RamifyError("task.threshold is for messages that may answer several; task.objective=ranking knows one.")
        if self.answers == "others" and self.objective == "ranking":
            raise RamifyError("task.answers=others is not for task.objective=ranking: a message may have its author's alone.")
        if self.conversation_weight < 0:
            raise RamifyError(f"task.conversation_weight must not be negative, not {self.conversation_weight}.")
        if self.conversation_weight and self.objective != "listwise":
            raise RamifyError(f"task.conversation_weight is for task.objective=listwise, not {self.objective}.")
        if self.start_odds <= 0:
            raise RamifyError(f"task.start_odds must be positive, not {self.start_odds}.")
        if self.start_odds != 1 and self.objective != "listwise":
            raise RamifyError(f"task.start_odds is for task.objective=listwise, not {self.objective}.")
        if self.positive_weight <= 0:
            raise RamifyError(f"task.positive_weight must be positive, not {self.positive_weight}.")


DECIDING = ("start_odds", "decide", "threshold", "answers", "starts", "as_live")
"""What concerns nothing that is learned: a trained model may be asked to decide otherwise than it was trained to."""


class ReplyTo(Task[LinkBatch]):
    """Score every candidate of every target."""

    config: ReplyToConfig
    backbone: LinkBackbone
    input: History
    head: nn.Linear | None
    first: FirstLook | None
    second: SecondLook | None
    loss_names = ("links",)

    def __init__(
        self, backbone: LinkBackbone, tokenizer: Tokenizer, input: History | None = None, config: ReplyToConfig | None = None
    ) -> None:
        super().__init__()
        self.config = config or ReplyToConfig()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input or History()
        if self.input.texts == "pieces":
            tokenizer.require(("cls", "sep"), "the task reply-to with input.texts=pieces")
        self.head = nn.Linear(backbone.out_dim, 1) if self.config.score == "linear" else None
        first, second = self.config.first_look, self.config.second_look
        self.first = FirstLook(first, backbone.reads_surroundings) if first else None
        self.second = SecondLook(second, self.config.hindsight) if second else None
        if self.first is not None and backbone.reads_history:
            raise RamifyError("task.first_look is for models that read one candidate at a time: to this one all are history.")
        if self.second is not None and backbone.reads_structure:
            raise RamifyError(
                "task.second_look is for models that decide on all messages at once: this one reads its own decisions already."
            )
        if next(self.parameters(), None) is None:
            raise RamifyError("there is nothing to learn: task.score=sum, and the model has no weights; set task.score=linear.")

    def corrupt(self, batch: LinkBatch, generator: torch.Generator) -> LinkBatch:
        return batch

    def counts(self, batch: LinkBatch) -> dict[str, float]:
        return {"links": float(batch.num_targets)}

    def losses(self, batch: LinkBatch, divisors: Mapping[str, float]) -> Iterator[dict[str, Tensor]]:
        yield {"links": self.loss(self._read(batch), batch) / divisors["links"]}

    def scores(self, batch: LinkBatch) -> Float[Tensor, " key"]:
        """Of every candidate; logits, whatever the objective. Of those that are not read after a first look, next to none."""
        if self.first is None:
            return self._read(batch)
        chosen, candidates = self.first.chosen(batch, hidden=batch.is_own if self.config.answers == "others" else None)
        found = self._read(batch.only(chosen, candidates))
        return found.new_full(batch.is_self.shape, HIDDEN_SCORE).index_copy(0, chosen, found)

    def _read(self, batch: LinkBatch) -> Float[Tensor, " key"]:
        states = self.backbone(batch)
        scores = self._scored(states, batch.is_self)
        if not self.backbone.reads_together:
            return scores
        if not self.backbone.shortlist:
            return self._scored(self.backbone.read_together(states, batch.candidates), batch.is_self)
        chosen, rows = highest(scores.detach(), batch.candidates, self.backbone.shortlist)
        compared = self.backbone.read_together(states.index_select(0, chosen), rows)
        return scores.index_copy(0, chosen, self._scored(compared, batch.is_self.index_select(0, chosen)))

    def _scored(self, states: Float[Tensor, "key out"], is_self: Int[Tensor, " key"]) -> Float[Tensor, " key"]:
        scores = (states.sum(1) if self.head is None else self.head(states).squeeze(1)).float()
        return scores.masked_fill(is_self.bool(), HIDDEN_SCORE) if self.config.objective == "ranking" else scores

    def loss(self, scores: Float[Tensor, " key"], batch: LinkBatch) -> Float[Tensor, ""]:
        """Sum over the targets; where several links are known, each is an equal share of what is to be said."""
        if self.config.objective == "binary":
            is_link = (batch.gold > 0).to(scores.dtype)
            weight = torch.full_like(scores[:1], self.config.positive_weight)
            loss = F.binary_cross_entropy_with_logits(scores, is_link, pos_weight=weight, reduction="none")
            # The mean over a target's candidates.
            count = torch.ones_like(scores) if batch.stands_for is None else batch.stands_for
            table, _ = as_table(count, batch.candidates, 0.0)
            return (loss * count / torch.repeat_interleave(table.sum(dim=1), batch.candidates.lengths)).sum()
        if batch.stands_for is not None:
            # What is added up over the candidates is then, on the average, what it is over all (Bengio and Senécal 2008).
            scores = scores + batch.stands_for.log()
        log_shares = self._log_shares(scores, batch)
        links = -(batch.gold * log_shares).sum()
        if batch.together is None:
            return links
        in_conversation, _ = as_table(log_shares.masked_fill(batch.together == 0, -math.inf), batch.candidates, -math.inf)
        return links + self.config.conversation_weight * nats_of_any(in_conversation)

    def probabilities(self, scores: Float[Tensor, " key"], batch: LinkBatch) -> Float[Tensor, " key"]:
        """Of each candidate, that it is answered: one for the target together, or each for itself (binary)."""
        if self.config.answers == "others":
            scores = scores.masked_fill(batch.is_own.bool(), HIDDEN_SCORE)
        if not self.config.starts:
            scores = scores.masked_fill(batch.is_self.bool(), HIDDEN_SCORE)
        if self.config.objective == "binary":
            return torch.sigmoid(scores)
        scores = scores + math.log(self.config.start_odds) * batch.is_self
        return self._log_shares(scores, batch).exp()

    @staticmethod
    def _log_shares(scores: Float[Tensor, " key"], batch: LinkBatch) -> Float[Tensor, " key"]:
        """Softmax over each target's candidates, in logarithms."""
        # Less than a hidden score: where a message has no candidate but itself, padding takes no share.
        table, cells = as_table(scores, batch.candidates, -math.inf)
        return F.log_softmax(table, dim=1).flatten().index_select(0, cells)

"""Reply linking: a distribution over the candidate parents of a message (Zhu et al. 2020, section 3.4; Kummerfeld et al. 2019,
section 4)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.encoder_input import EncoderInput
from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.candidate_pruner import CandidatePruner
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.models.base import LinkBackbone
from ramify.disentangle.reranker import Reranker
from ramify.errors import RamifyError
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import State
from ramify.nn.heads import marginal_nll
from ramify.nn.ragged import as_table, highest
from ramify.tasks.base import Losses, Readings, Task, belongs
from ramify.tasks.constants import Bernoulli, Constant, Known
from ramify.tokenizer import Tokenizer

MASKED_SCORE = -1e9

LINK_F1 = Metric("dev_link_f1", greater_is_better=True)
CLUSTER_F1 = Metric("dev_cluster_f1", greater_is_better=True)
GRAPH_ACCURACY = Metric("dev_graph_accuracy", greater_is_better=True)
"""Reply trees: the share of comments whose parent is found."""
CONV_ACCURACY = Metric("dev_conv_accuracy", greater_is_better=True)
"""Reply trees: the share of conversations in which every parent is found."""


class ReplyLinking(Task[LinkBatch]):
    """Scores every candidate of every target."""

    fresh = ("candidate_pruner", "reranker")
    """They were fitted to the probabilities of the saved model, which training changes."""
    config: LinkConfig
    backbone: LinkBackbone
    input: ChatInput
    head: nn.Linear | None
    candidate_pruner: CandidatePruner | None
    reranker: Reranker | None
    metrics = (LINK_F1, CLUSTER_F1, GRAPH_ACCURACY, CONV_ACCURACY, DEV_LOSS)

    def __init__(
        self, backbone: LinkBackbone, tokenizer: Tokenizer, input: ChatInput | None = None, config: LinkConfig | None = None
    ) -> None:
        super().__init__()
        self.config = config or LinkConfig()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input or ChatInput()
        if self.input.texts == "pieces":
            tokenizer.require(("cls", "sep"), "the task reply-to with input.texts=pieces")
        self.head = nn.Linear(backbone.out_dim, 1) if self.config.score == "linear" else None
        num_candidates, dim = self.config.num_candidates, self.config.reranker_dim
        self.candidate_pruner = CandidatePruner(num_candidates, backbone.reads_context_features) if num_candidates else None
        self.reranker = Reranker(dim, self.config.lookahead) if dim else None
        if self.candidate_pruner is not None and backbone.reads_history:
            raise RamifyError(
                f"task.num_candidates={num_candidates} needs a model that scores candidates independently; "
                f"{type(backbone).__name__} reads all candidates as a history. Set task.num_candidates=0."
            )
        if self.reranker is not None and backbone.reads_structure:
            raise RamifyError(
                f"task.reranker_dim={dim} needs a model that reads no reply structure; {type(backbone).__name__} already reads "
                "its own decisions. Set task.reranker_dim=0."
            )
        if next(self.parameters(), None) is None:
            raise RamifyError(
                "task.score=sum leaves nothing to learn, because the model has no weights. Set task.score=linear."
            )

    @property
    def encoder_parameters(self) -> list[str]:
        """The names of the parameters that encode texts, of messages or pairs."""
        return [name for name, _ in self.named_parameters() if belongs(name, ("backbone.encoder",))]

    def corrupt(self, batch: LinkBatch, generator: torch.Generator) -> LinkBatch:
        return batch

    def counts(self, batch: LinkBatch, phase: str) -> dict[str, float]:
        return {"links": float(batch.num_targets)}

    def losses(self, batch: LinkBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any) -> Losses:
        yield {"links": self.loss(self.score_all(batch), batch) / divisors["links"]}, None

    def readings(self, batch: LinkBatch, phase: str, state: State | None, shared: Any) -> Readings:
        encoder, vectors = self.backbone.message_encoder, {}
        # Vectors that were computed before do not learn.
        if batch.vectors is None and encoder is not None:
            vectors["message"] = encoder.vectors(EncoderInput.of_rows(batch.input_ids, batch.messages))
            batch = replace(batch, vectors=vectors["message"])
        loss = self.loss(self.score_all(batch), batch)
        return Readings({"links": loss}, {"links": self._constant(batch)}, vectors)

    def _constant(self, batch: LinkBatch) -> Constant:
        """The loss if all candidates of a target score alike; for decisions, with one probability for all candidates."""
        scores = torch.zeros(batch.is_self.shape, dtype=torch.float64, device=batch.device)
        if self.config.objective != "binary":
            if self.config.objective == "ranking":
                scores = scores.masked_fill(batch.is_self.bool(), MASKED_SCORE)
            return Known(float(self.loss(scores, batch)))
        is_link = batch.target_probability > 0
        count, total = self._candidate_counts(batch, torch.float64)
        weight = torch.where(is_link, self.config.positive_weight, 1.0) * count / total
        return Bernoulli(float(weight[is_link].sum()), float(weight[~is_link].sum()))

    def scores(self, batch: LinkBatch, decoding: DecodingConfig) -> Float[Tensor, " key"]:
        """Logits of all candidates, whatever the objective; `MASKED_SCORE` for pruned ones."""
        if self.candidate_pruner is None:
            return self.score_all(batch)
        excluded = batch.same_author if decoding.answers == "others" else None
        chosen, candidates = self.candidate_pruner.select(batch, excluded)
        scores = self.score_all(batch.select(chosen, candidates))
        return scores.new_full(batch.is_self.shape, MASKED_SCORE).index_copy(0, chosen, scores)

    def score_all(self, batch: LinkBatch) -> Float[Tensor, " key"]:
        """Logits of all candidates, without pruning."""
        states = self.backbone(batch)
        scores = self._score_states(states, batch.is_self)
        attend = self.backbone.candidate_attention
        if attend is None:
            return scores
        if not attend.limit:
            return self._score_states(attend(states, batch.candidates), batch.is_self)
        chosen, rows = highest(scores.detach(), batch.candidates, attend.limit)
        compared = attend(states.index_select(0, chosen), rows)
        return scores.index_copy(0, chosen, self._score_states(compared, batch.is_self.index_select(0, chosen)))

    def _score_states(self, states: Float[Tensor, "key out"], is_self: Int[Tensor, " key"]) -> Float[Tensor, " key"]:
        scores = (states.sum(1) if self.head is None else self.head(states).squeeze(1)).float()
        return scores.masked_fill(is_self.bool(), MASKED_SCORE) if self.config.objective == "ranking" else scores

    def loss(self, scores: Float[Tensor, " key"], batch: LinkBatch) -> Float[Tensor, ""]:
        """The sum of the losses of all targets. Several gold links of a target have equal target probabilities."""
        if self.config.objective == "binary":
            return self._binary_loss(scores, batch)
        if batch.importance_weight is not None:
            # Sums over the kept candidates then estimate sums over all candidates (Bengio and Senécal 2008).
            scores = scores + batch.importance_weight.log()
        log_shares = self._log_softmax(scores, batch)
        links = -(batch.target_probability * log_shares).sum()
        if batch.same_conversation is None:
            return links
        in_conversation, _ = as_table(
            log_shares.masked_fill(batch.same_conversation == 0, -math.inf), batch.candidates, -math.inf
        )
        return links + self.config.conversation_weight * marginal_nll(in_conversation)

    def _binary_loss(self, scores: Float[Tensor, " key"], batch: LinkBatch) -> Float[Tensor, ""]:
        """The sum over targets of the mean loss of each target's candidates."""
        is_link = (batch.target_probability > 0).to(scores.dtype)
        weight = torch.full_like(scores[:1], self.config.positive_weight)
        loss = F.binary_cross_entropy_with_logits(scores, is_link, pos_weight=weight, reduction="none")
        count, total = self._candidate_counts(batch, scores.dtype)
        return (loss * count / total).sum()

    @staticmethod
    def _candidate_counts(batch: LinkBatch, dtype: torch.dtype) -> tuple[Float[Tensor, " key"], Float[Tensor, " key"]]:
        """The number of candidates that each candidate stands for, and that of all candidates of its target."""
        count = batch.importance_weight
        count = torch.ones(batch.is_self.shape, dtype=dtype, device=batch.device) if count is None else count
        table, _ = as_table(count, batch.candidates, 0.0)
        return count, torch.repeat_interleave(table.sum(dim=1), batch.candidates.lengths)

    def probabilities(self, scores: Float[Tensor, " key"], batch: LinkBatch, decoding: DecodingConfig) -> Float[Tensor, " key"]:
        """The probability that each candidate is a parent: one distribution per target, or one decision per candidate
        (binary)."""
        if decoding.answers == "others":
            scores = scores.masked_fill(batch.same_author.bool(), MASKED_SCORE)
        if not decoding.starts:
            scores = scores.masked_fill(batch.is_self.bool(), MASKED_SCORE)
        if self.config.objective == "binary":
            return torch.sigmoid(scores)
        scores = scores + math.log(decoding.start_odds) * batch.is_self
        return self._log_softmax(scores, batch).exp()

    @staticmethod
    def _log_softmax(scores: Float[Tensor, " key"], batch: LinkBatch) -> Float[Tensor, " key"]:
        """Log-probabilities over each target's candidates."""
        # Padding is lower than a masked score, so it gets no share even if all candidates of a target are masked.
        table, cells = as_table(scores, batch.candidates, -math.inf)
        return F.log_softmax(table, dim=1).flatten().index_select(0, cells)

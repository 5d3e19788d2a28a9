"""The perplexity of texts under a model that scores them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ramify.errors import RamifyError, with_article
from ramify.inference.answers import Score
from ramify.inference.base import Pipeline
from ramify.inference.verbs import VERBS


@dataclass(frozen=True)
class Surprise:
    """The perplexity of some texts under a model."""

    nats: float
    """The negative log-likelihood of all tokens together."""
    tokens: int

    @property
    def perplexity(self) -> float | None:
        """The exponential of the mean of a token; None without tokens."""
        return math.exp(self.nats / self.tokens) if self.tokens else None


def surprise(model: Pipeline, texts: Iterable[str]) -> Surprise:
    """Score some texts, each alone. Under a masked language model, likelihoods are pseudo-likelihoods (Salazar et al. 2020).

    Tokens are the model's own, so two models do not compare. Raises `RamifyError` for a model that scores no texts.
    """
    if "score" not in model.verbs:
        raise RamifyError(
            f"{with_article(type(model).__name__)} cannot {VERBS['score'].can}, so it gives no perplexity. Choose "
            f"{VERBS['score'].models}."
        )
    scoring: Any = model
    nats, tokens = 0.0, 0
    for text in texts:
        if len(model.tokenizer.encode(text)):
            score: Score = scoring.score(text)
            nats, tokens = nats - score.value, tokens + score.num_tokens
    return Surprise(nats, tokens)

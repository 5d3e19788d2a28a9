"""The perplexity of texts under a model that scores them."""

import math
from collections.abc import Iterable
from typing import Any

from ramify.errors import RamifyError, with_article
from ramify.inference.answers import Score
from ramify.inference.base import Pipeline
from ramify.inference.verbs import VERBS


def perplexity(model: Pipeline, texts: Iterable[str]) -> float | None:
    """The exponential of the mean negative log-likelihood of all tokens of some texts, each scored alone; None without tokens.

    Of a masked language model, it is the pseudo-perplexity (Salazar et al. 2020). Tokens are the model's own, so two models do
    not compare. Raises `RamifyError` for a model that scores no texts.
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
    return math.exp(nats / tokens) if tokens else None

"""The pseudo-log-likelihood of a text under a masked language model."""

from typing import Any

from ramify.inference.base import TOKENS
from ramify.inference.mask_query import MaskQuery


def pseudo_log_likelihood(query: MaskQuery) -> dict[str, Any]:
    """Σ log p(piece | all other pieces, context) in nats (Salazar et al. 2020), and the term of each piece."""
    tokenizer = query.tokenizer
    ids = tokenizer.encode(query.tree.nodes[query.node].text)
    each = []
    step = max(1, TOKENS // (len(ids) + query.num_special))
    for start in range(0, len(ids), step):
        places = range(start, min(start + step, len(ids)))
        rows = [[*ids[:place], tokenizer.mask_id, *ids[place + 1 :]] for place in places]
        found = query.log_probabilities(rows, [[place] for place in places])[:, 0]
        each += [float(found[row, ids[place]]) for row, place in enumerate(places)]
    tokens = [{"token": tokenizer.token(token), "log_probability": value} for token, value in zip(ids, each, strict=True)]
    return {**query.head, "pseudo_log_likelihood": float(sum(each)), "tokens": tokens}

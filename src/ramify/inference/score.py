"""Likelihoods of texts: the verb, and the pseudo-log-likelihood under a masked language model."""

from abc import ABC, abstractmethod

from ramify.batching.forest import Ints
from ramify.batching.text_input import Context
from ramify.errors import RamifyError
from ramify.inference.answers import PseudoLikelihood, Score, TokenScore
from ramify.inference.base import TOKENS, Pipeline, verb
from ramify.inference.mask_query import ContextQuery
from ramify.tokenizer import Tokenizer, UnknownTokens
from ramify.tree import Tree


class ScoringPipeline(Pipeline, ABC):
    """A pipeline of a model that scores texts."""

    @verb
    def score(
        self,
        tree: Tree | str,
        node: str | int | None = None,
        *,
        context: Context | None = None,
        order: str | None = None,
        seed: int = 0,
        begin: bool = True,
    ) -> Score:
        """The log-likelihood of a text, or of a node's text, in nats.

        A masked language model gives the pseudo-log-likelihood (`PseudoLikelihood`), and each piece's share of it. A
        permutation language model gives the log-likelihood under a factorization `order` (`Likelihood`), without separators or
        memory: forward (None, too), backward, or random:N for N random orders, which `seed` determines. It raises `RamifyError`
        for a text without tokens.

        A model that predicts the next token gives the log-likelihood behind the token before each text of training, whatever
        `generate` begins with. Without it (`begin=False`), the first token of the text is not scored, as in the loss of
        transformers.
        """
        return self._score(tree, node, context, order, seed, begin)

    @abstractmethod
    def _score(
        self, tree: Tree | str, node: str | int | None, context: Context | None, order: str | None, seed: int, begin: bool
    ) -> Score:
        """`score` of one text. Only models that know factorization orders are given one, and only those with a token before
        each text of training are asked to leave it out."""


def pseudo_log_likelihood(query: ContextQuery) -> PseudoLikelihood:
    """Σ log p(piece | all other pieces, context) in nats (Salazar et al. 2020), and the term of each piece."""
    tokenizer, text = query.tokenizer, query.tree.nodes[query.node].text
    ids = tokenizer.encode(text)
    unknown = known_part(tokenizer, ids, text)
    values: list[float] = []
    step = max(1, TOKENS // max(1, len(ids) + query.num_special))
    for start in range(0, len(ids), step):
        places = range(start, min(start + step, len(ids)))
        rows = [[*ids[:place], tokenizer.mask_id, *ids[place + 1 :]] for place in places]
        scores = query.log_probabilities(rows, [[place] for place in places])[:, 0]
        values += [float(scores[row, ids[place]]) for row, place in enumerate(places)]
    tokens = tuple(TokenScore(tokenizer.token(token), value) for token, value in zip(ids, values, strict=True))
    return PseudoLikelihood(*query.head, float(sum(values)), tokens, unknown.count, notes=unknown.notes("the text"))


def known_part(tokenizer: Tokenizer, ids: Ints | list[int], text: str) -> UnknownTokens:
    """Count the unknown tokens of a text. Raises `RamifyError` if the others hold spaces alone: such texts look all alike."""
    unknown = tokenizer.unknown(ids)
    # Unigram spells the beginning of a word by itself, so an unknown word is a space and an unknown token.
    if unknown and not tokenizer.decode([int(token) for token in ids if token != tokenizer.unk_id]).strip():
        raise RamifyError(
            f"the tokenizer can spell nothing of the text {text[:40]!r}, so its likelihood would be that of any unknown text. "
            "Choose a text in the alphabet of the training data."
        )
    return unknown

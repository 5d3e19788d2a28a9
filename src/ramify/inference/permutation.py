"""Pipelines of models of running text: likelihoods under any factorization order, generation, single words, and vectors."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ramify.batching.forest import Forest, Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets, plain_rows
from ramify.batching.views.comment_trees import Context
from ramify.batching.views.streams import StreamInput
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.base import TOKENS
from ramify.inference.fill_mask import FillingPipeline
from ramify.inference.mask_query import MaskQuery, node_of
from ramify.models.base import StreamBackbone
from ramify.nn.modes import evaluating
from ramify.tasks.denoising_lm import DenoisingLM
from ramify.tasks.permutation_lm import PermutationLM
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree

Order = Literal["forward", "backward"] | int
"""A factorization order: of the text, its reverse, or as many random ones."""


class StreamPipeline(FillingPipeline, ABC):
    """A trained model of running text. It fills masks and embeds texts, each alone, without separators or memory."""

    task: PermutationLM | DenoisingLM
    backbone: StreamBackbone
    input: StreamInput

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

    @property
    def max_tokens(self) -> int:
        return self.input.row_tokens

    def forest(self, data: Store | Iterable[Tree]) -> Forest:
        store = data if isinstance(data, Store) else Store.from_trees(data)
        return Forest.open(store, self.tokenizer, self.input.row_tokens)

    def mask_query(self, tree: Tree, node: str | int, context: Context | None) -> "StreamQuery":
        if context not in (None, "none"):
            raise RamifyError(
                f"context={context} needs a model that reads context; this {type(self.backbone).__name__} reads a text alone. "
                "Set context=none."
            )
        return StreamQuery(self, self.tokenizer, tree, node_of(tree, node))

    def embed_batches(
        self, forest: Forest, *, context: Literal["tree", "none"] | None = None, tokens: int = TOKENS
    ) -> Iterator[tuple[Ints, Float[NDArray, "node dim"]]]:
        if context == "tree":
            raise RamifyError(
                f"context=tree needs a model that reads ancestors; {type(self.backbone).__name__} embeds texts alone. Set "
                "context=none."
            )
        room = self.input.row_tokens - self.tokenizer.num_special
        lengths = np.minimum(forest.length, room)
        for length in np.unique(lengths).tolist():
            nodes = np.flatnonzero(lengths == length)
            step = max(1, tokens // max(1, length))
            for start in range(0, len(nodes), step):
                chosen = nodes[start : start + step]
                if length == 0:
                    yield forest.node[chosen], np.zeros((len(chosen), self.dim), dtype=np.float32)
                    continue
                ids = forest.gather(chosen, lengths[chosen]).reshape(len(chosen), length)
                with torch.no_grad(), evaluating(self.module):
                    states = self.backbone(plain_rows(ids).to(self.device)).tokens
                assert states is not None
                yield forest.node[chosen], states.float().mean(1).cpu().numpy()

    @abstractmethod
    def _states(self, ids: Ints, places: Ints) -> Float[Tensor, "row place dim"]:
        """The states from which the tokens at some places are predicted."""

    def log_probabilities(
        self, texts: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]
    ) -> Float[Tensor, "text place vocab"]:
        """Log-probabilities at places of texts of equal length, each given all tokens that are no mask tokens."""
        ids, places = np.array(texts, dtype=np.int64), np.array(asked, dtype=np.int64)
        parts = []
        step = max(1, TOKENS // ids.shape[1])
        for start in range(0, len(ids), step):
            with torch.no_grad(), evaluating(self.module):
                states = self._states(ids[start : start + step], places[start : start + step])
                parts.append(self.task.head(states.flatten(0, 1)).float().log_softmax(-1).unflatten(0, states.shape[:2]).cpu())
        return torch.cat(parts)


class DenoisingPipeline(StreamPipeline):
    """A masked language model of running text."""

    verbs = ("embed", "fill_mask")
    usage = ('model.fill_mask(ramify.Tree((ramify.Node("Some [MASK] text."),)), 0)', 'model.embed("Some text.")')

    def __init__(self, task: DenoisingLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    def _states(self, ids: Ints, places: Ints) -> Float[Tensor, "row place dim"]:
        hidden = self.backbone(plain_rows(ids).to(self.device)).tokens
        assert hidden is not None
        index = torch.from_numpy(places).to(self.device)[:, :, None].expand(-1, -1, hidden.shape[-1])
        return hidden.gather(1, index)


class PermutationPipeline(StreamPipeline):
    """A permutation language model, which also scores texts under factorization orders and generates text."""

    verbs = ("score", "generate", "fill_mask", "embed")
    usage = ('model.score("Some text.", order="forward")', 'model.generate("Some", tokens=20, seed=0)["text"]')

    def __init__(self, task: PermutationLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def knows_full_orders(self) -> bool:
        """Whether training predicted all tokens of a row, so that no token of a full order is far from training."""
        return self.task.config.k == 1

    def score(self, text: str, *, order: Order = "forward", seed: int = 0) -> dict[str, Any]:
        """The log-likelihood of a text in nats: Σ log p(token | tokens before it in the order), without separators or memory.

        With a number as `order`, the text is scored under so many random orders, which `seed` determines: `log_likelihood`
        holds the likelihood of the first, `orders` those of all, `mean` their mean (the negative objective, a lower bound) and
        `log_mean_exp` the logarithm of the mean likelihood. Raises `RamifyError` for a text without tokens.
        """
        ids = np.array(self.tokenizer.encode(text), dtype=np.int64)
        if not len(ids):
            raise RamifyError(f"the text {text[:40]!r} has no tokens, so it has no likelihood. Pass another text.")
        forward = np.arange(len(ids))
        if isinstance(order, int):
            if order < 1:
                raise RamifyError(f"order={order} is no number of random orders. Set it to at least 1.")
            random = np.random.Generator(np.random.Philox(key=seed))
            ranks = np.stack([random.permutation(len(ids)) for _ in range(order)])
        elif order in ("forward", "backward"):
            ranks = (forward if order == "forward" else forward[::-1])[None]
        else:
            raise RamifyError(f"order={order!r} is not forward, backward, or a number of random orders. Choose one of them.")
        found = self.log_likelihoods(ids, ranks)
        named = f"random:{order}" if isinstance(order, int) else order
        answer: dict[str, Any] = {
            "log_likelihood": float(found[0]),
            "tokens": len(ids),
            "bytes": len(text.encode()),
            "order": named,
        }
        if isinstance(order, int):
            answer |= {"orders": found.tolist(), "mean": float(found.mean())}
            answer["log_mean_exp"] = float(np.logaddexp.reduce(found) - np.log(len(found)))
        return answer

    def log_likelihoods(self, ids: Ints, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """The log-likelihood of one text under each order. `ranks` has the place of every token in the order, [order, token].

        Raises `RamifyError` if a row of `ranks` is no permutation.
        """
        if ranks.shape[1:] != ids.shape or not (np.sort(ranks, 1) == np.arange(len(ids))).all():
            raise RamifyError(f"an order of {len(ids)} tokens must hold each number from 0 to {len(ids) - 1} once. Check it.")
        every = np.tile(np.arange(len(ids)), (len(ranks), 1))
        return self.ordered_log_probabilities(np.tile(ids, (len(ranks), 1)), ranks, every).sum(1)

    def ordered_log_probabilities(self, texts: Ints, order: Ints, places: Ints) -> NDArray[np.float64]:
        """log p of the tokens at places of texts of equal length, each given the tokens with lower numbers in the order.

        Tokens of equal numbers read each other, but none of them reads a token of a higher number. `order` is [text, token],
        `places` is [text, place].
        """
        found = []
        step = max(1, TOKENS // (2 * texts.shape[1]))
        for start in range(0, len(texts), step):
            part = slice(start, start + step)
            ids, asked = np.ascontiguousarray(texts[part]), places[part]
            labels = torch.from_numpy(np.take_along_axis(ids, asked, 1).flatten()).to(self.device)
            with torch.no_grad(), evaluating(self.module):
                states = self._targets(plain_rows(ids, np.ascontiguousarray(order[part])), asked)
                losses, _ = self.task.head.measure(states.flatten(0, 1), labels)
            found.append(-losses.double().view(asked.shape).cpu().numpy())
        return np.concatenate(found)

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        cached: bool = True,
    ) -> dict[str, Any]:
        """Sample `tokens` tokens after the prompt, from left to right. Special tokens are never sampled.

        `temperature` 0 takes the likeliest token. `top_k` and `top_p` keep the likeliest tokens, so many or of so much
        probability together. Without `cached`, every step reads the whole text again, with the same result.
        """
        _check_sampling(tokens, temperature, top_k, top_p)
        given = self.tokenizer.encode(prompt)
        ids = list(given)
        random = torch.Generator().manual_seed(seed)
        never = torch.tensor(self.tokenizer.special_ids)
        state, unread = None, list(given)
        with torch.no_grad(), evaluating(self.module):
            for _ in range(tokens):
                # The row's last token only stands for the next one: nobody sees it.
                row = np.array([[*(unread if cached else ids), 0]])
                batch = plain_rows(row, np.arange(row.shape[1])[None], reused=row.shape[1] - 1)
                batch = replace(batch, remembered=len(given) + tokens if cached else 0)
                batch = replace(batch, targets=StreamTargets.at(np.array([[row.shape[1] - 1]]), batch.input_ids))
                hidden = self.backbone(batch.to(self.device), state, targets_only=True)
                assert hidden.queries is not None
                scores = self.task.head(hidden.queries[0])[0].float().cpu()
                scores[never] = -torch.inf
                ids.append(_sample(scores, temperature, top_k, top_p, random))
                state, unread = (hidden.state, ids[-1:]) if cached else (None, [])
        return {"prompt": prompt, "text": self.tokenizer.decode(ids[len(given) :]), "tokens": tokens}

    def _states(self, ids: Ints, places: Ints) -> Float[Tensor, "row place dim"]:
        hidden_words = (ids == self.tokenizer.mask_id).astype(np.int64)
        return self._targets(plain_rows(ids, hidden_words), places)

    def _targets(self, batch: StreamBatch, places: Ints) -> Float[Tensor, "row place dim"]:
        batch = replace(batch, targets=StreamTargets.at(places, batch.input_ids))
        states = self.backbone(batch.to(self.device), targets_only=True).queries
        assert states is not None
        return states


@dataclass(frozen=True)
class StreamQuery(MaskQuery):
    """A question about a text, read alone."""

    pipeline: StreamPipeline
    tokenizer: Tokenizer
    tree: Tree
    node: int

    @property
    def head(self) -> dict[str, Any]:
        return {"node": self.tree.nodes[self.node].id, "context": "none", "ancestors": []}

    def log_probabilities(
        self, texts: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]
    ) -> Float[Tensor, "text place vocab"]:
        return self.pipeline.log_probabilities(texts, asked)


def _check_sampling(tokens: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if tokens < 1:
        raise RamifyError(f"tokens={tokens} must be at least 1.")
    if temperature < 0:
        raise RamifyError(f"temperature={temperature:g} must be at least 0.")
    if top_k is not None and top_k < 1:
        raise RamifyError(f"top_k={top_k} must be at least 1.")
    if top_p is not None and not 0 < top_p <= 1:
        raise RamifyError(f"top_p={top_p:g} must be above 0 and at most 1.")


def _sample(
    scores: Float[Tensor, " vocab"], temperature: float, top_k: int | None, top_p: float | None, random: torch.Generator
) -> int:
    if temperature == 0:
        return int(scores.argmax())
    scores, pieces = (scores / temperature).sort(descending=True, stable=True)
    probabilities = scores.softmax(0)
    if top_k is not None:
        probabilities[top_k:] = 0
    if top_p is not None:
        # The token that passes the bound is kept.
        probabilities[probabilities.cumsum(0) - probabilities >= top_p] = 0
    return int(pieces[torch.multinomial(probabilities, 1, generator=random)])

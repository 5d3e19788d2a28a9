"""Held-out measurements of masked language models: loss and filled masks by context."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramify.batching.batch import Collator
from ramify.batching.forest import Forest, Ints, node_seeds
from ramify.batching.text_input import BLIND, Context
from ramify.batching.views.comment_trees import Discussions, NothingToReadError, RegimeConfig, has_other_branch, units
from ramify.dataset.store import Split, Store
from ramify.errors import counted
from ramify.inference.evaluation import Scores, Tally, gain, tally
from ramify.inference.mask_query import ContextQuery
from ramify.inference.word_classes import AncestorWords
from ramify.metrics import Interval
from ramify.tasks.masked_lm import MaskedLM
from ramify.tree import Tree

NAMES: dict[str, str] = {
    "tree": "with ancestors",
    "parent": "with the parent",
    "root": "with the post",
    "mismatched": "with another tree's ancestors",
    "sibling-branch": "with another branch's ancestors",
    "none": "without context",
    "null": "without context",
}
"""The names of contexts in reports."""

CACHE_WEIGHTS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Weights of the cache from which the dev split chooses."""

CACHE_DRAWS = 2
"""Masks drawn per dev comment to choose the weight of the cache."""

FILLINGS = 10
RULE = (
    "The first ten comments, in the order of a hash of their ids, that stand at depth 2 or deeper and that the model can read "
    "whole; in each, the longest word that is a single piece of the vocabulary (the first of several) is masked."
)
"""The rule that chooses the masked words of a report."""


@dataclass(frozen=True)
class Measured:
    """Held-out loss of one model on the same masks, by context. The first context is that of training."""

    split: Split
    trees: int
    comments: int
    draws: int
    scores: dict[Context, Scores]
    limited: dict[Context, Scores]
    """The scores with the context of training on those comments that can read a context, if not all can."""
    cached: dict[Context, Scores] = field(default_factory=dict)
    """The scores of the mixture of the model in a context and a cache of the ancestors' words (see `Tally`)."""

    @property
    def training_context(self) -> Context:
        return next(iter(self.scores))

    def scores_beside(self, context: Context) -> Scores:
        """The scores with the context of training, on the comments that were scored with `context`."""
        return self.limited.get(context, self.scores[self.training_context])

    @cached_property
    def saved(self) -> dict[Context, dict[str, Interval]]:
        """Nats per masked token that the context of training saves over each other context (see `gain`)."""
        return {
            context: gain(self.scores_beside(context), scores)
            for context, scores in self.scores.items()
            if context != self.training_context
        }


@dataclass(frozen=True)
class Guess:
    """The likeliest pieces for a masked word, and the probability of the word that stood there."""

    probability: float
    tokens: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Filling:
    """One masked word, the text around it, its ancestors, and the model's guesses by context."""

    title: str
    ancestors: tuple[str, ...]
    before: str
    word: str
    after: str
    guesses: dict[Context, Guess]


def measure(
    task: MaskedLM,
    store: Store,
    split: Split,
    *,
    draws: int,
    comments: int = 0,
    controls: tuple[Context, ...] = (),
    caches: Mapping[Context, float] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Measured:
    """Score a model on a split: with its own context, without context if it reads one, and with the contexts in `controls`.

    A control is left out if the trees hold no other comments to read. `comments` limits the evaluation to the first trees that
    together hold so many comments (0 = all). `caches` gives the weight of a cache by the context beside which it is scored.
    """
    forest = task.input.forest(store, task.tokenizer)
    trees = chosen_trees(forest, store, split, comments)
    trained = task.input.context
    others: list[Context] = [] if trained in BLIND else ["none", *(context for context in controls if context != trained)]
    only = readable(forest, trees, trained)
    views: dict[Context, tuple[Discussions, Collator]] = {trained: discussions(task, forest, trees, only=only)}
    limits: dict[Context, NDArray[np.bool_]] = {}
    for context in others:
        with suppress(NothingToReadError):
            limit = readable(forest, trees, context)
            if limit is not None:
                limits[context] = limit if only is None else limit & only
            views[context] = discussions(task, forest, trees, context=context, only=limits.get(context, only))
    words = ancestor_words(task, forest)
    tallies = [Tally(), *(Tally(only=limit) for limit in limits.values())]
    scores: dict[Context, Scores] = {}
    limited: dict[Context, Scores] = {}
    cached: dict[Context, Scores] = {}
    for context, view in views.items():
        asked = tallies if context == trained else tallies[:1]
        mixed = [Tally(cache=caches[context])] if caches and context in caches else []
        scores[context], *rest = tally(task, *view, trees, [*asked, *mixed], draws=draws, words=words, progress=progress)
        if mixed:
            cached[context] = rest.pop()
        limited |= dict(zip(limits, rest))
    count = int((store.offsets[trees + 1] - store.offsets[trees] - (not store.predicts_roots)).sum())
    return Measured(split, len(trees), count, draws, scores, limited, cached)


def chosen_trees(forest: Forest, store: Store, split: Split, comments: int) -> Ints:
    trees = store.evaluation_trees(split)
    return first_trees(forest, trees, comments) if comments else trees


def fillings(task: MaskedLM, store: Store, split: Split, *, count: int = FILLINGS, top_k: int = 3) -> list[Filling]:
    """Masked words chosen by `RULE`, filled by a model that reads context."""
    with_context: Context = "parent" if task.input.context == "parent" else "tree"
    kinds: tuple[Context, ...] = (task.input.context,) if task.input.context in BLIND else (with_context, "none")
    filled = []
    for thread in _threads(store, split):
        node = len(thread) - 1
        ids = task.tokenizer.encode(thread.nodes[node].text)
        masked = mask_longest_word(task, thread.nodes[node].text, ids)
        if masked is None:
            continue
        start, stop, place = masked
        text = thread.nodes[node].text
        guesses: dict[Context, Guess] = {context: _guess(task, thread, node, ids, place, context, top_k) for context in kinds}
        filled.append(
            Filling(
                title=str(thread.meta.get("title", "")),
                ancestors=tuple(ancestor.text for ancestor in thread.nodes[:node]),
                before=text[:start],
                word=text[start:stop],
                after=text[stop:],
                guesses=guesses,
            )
        )
        if len(filled) == count:
            break
    return filled


def _threads(store: Store, split: Split) -> Iterator[Tree]:
    """Threads that end in comments of depth 2 or deeper, in the order of a hash of the comments' ids."""
    inside = np.isin(store.tree_of(np.arange(store.num_nodes)), store.split(split))
    nodes = np.flatnonzero(inside & (np.asarray(store.depth) >= 2))
    for node in nodes[np.argsort(node_seeds(store, nodes), kind="stable")].tolist():
        number = int(store.tree_of([node])[0])
        tree = store.tree(number)
        path = tree.thread(node - int(store.offsets[number]))
        path_nodes = [replace(tree.nodes[index], parents=(place - 1,) if place else ()) for place, index in enumerate(path)]
        yield replace(tree, nodes=tuple(path_nodes))


def mask_longest_word(task: MaskedLM, text: str, ids: list[int]) -> tuple[int, int, int] | None:
    """(start, end, place among the pieces) of the longest word that is one piece; None if there is none, or if the text is
    longer than the model reads."""
    if len(ids) > task.input.room(task.tokenizer):
        return None
    tokenizer = task.tokenizer
    mask = tokenizer.token(tokenizer.mask_id)
    for word in sorted(re.finditer(r"[^\W\d_]+", text), key=lambda match: match.start() - match.end()):
        masked = tokenizer.encode(text[: word.start()] + mask + text[word.end() :], masks=True)
        if len(masked) != len(ids):
            continue
        different = [place for place, (old, new) in enumerate(zip(ids, masked, strict=True)) if old != new]
        if len(different) == 1 and masked[different[0]] == tokenizer.mask_id:
            return word.start(), word.end(), different[0]
    return None


def _guess(task: MaskedLM, thread: Tree, node: int, ids: list[int], place: int, context: Context, top_k: int) -> Guess:
    masked = [*ids[:place], task.tokenizer.mask_id, *ids[place + 1 :]]
    probabilities = ContextQuery.of(task, thread, node, context).log_probabilities([masked], [[place]])[0, 0].exp()
    best = probabilities.topk(min(top_k, len(probabilities)))
    tokens = [(task.tokenizer.token(token), share) for token, share in zip(best.indices.tolist(), best.values.tolist())]
    return Guess(float(probabilities[ids[place]]), tuple(tokens))


def discussions(
    task: MaskedLM,
    forest: Forest,
    trees: Ints,
    *,
    context: Context | None = None,
    regime: RegimeConfig | None = None,
    seed: int = 0,
    only: NDArray[np.bool_] | None = None,
) -> tuple[Discussions, Collator]:
    """Units of some trees as a task reads them (or with another `context`), and their collator.

    `only` says for each node of the forest whether it may be a target; None: all that can read the context.
    """
    input = task.backbone.in_context(task.input, context)
    if only is None:
        only = readable(forest, trees, input.context)
    parts = units(forest, trees, **asdict(regime or RegimeConfig()), only=only)
    return Discussions(forest, parts, input, seed=seed, trees=trees), Collator(forest, task.tokenizer, input)


def cache_losses(
    task: MaskedLM,
    forest: Forest,
    trees: Ints,
    *,
    words: AncestorWords,
    context: Context | None = None,
    draws: int = CACHE_DRAWS,
    mask_rate: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[float, float]:
    """The loss on some trees of a model in its own or another context, for each weight of the cache (see `Tally`)."""
    view, collator = discussions(task, forest, trees, context=context)
    mixtures = [Tally(cache=weight) for weight in CACHE_WEIGHTS]
    tallied = tally(task, view, collator, trees, mixtures, draws=draws, mask_rate=mask_rate, words=words, progress=progress)
    return {weight: scores.summary()["loss"] for weight, scores in zip(CACHE_WEIGHTS, tallied, strict=True)}


def cache_weights(task: MaskedLM, store: Store, contexts: tuple[Context, ...]) -> dict[Context, float]:
    """The weight of the cache beside the model in each context that has the lowest loss on the dev trees."""
    forest = task.input.forest(store, task.tokenizer)
    trees, words = chosen_trees(forest, store, "dev", 0), ancestor_words(task, forest)
    weights: dict[Context, float] = {}
    for context in contexts:
        by_weight = cache_losses(task, forest, trees, words=words, context=context)
        weights[context] = min(by_weight, key=by_weight.__getitem__)
    return weights


def ancestor_words(task: MaskedLM, forest: Forest) -> AncestorWords:
    """The word classes of a forest, with ancestors as this task would read them."""
    return AncestorWords.of(forest, task.input, task.tokenizer.vocab_size)


def readable(forest: Forest, trees: Ints, context: Context) -> NDArray[np.bool_] | None:
    """Whether each node of the forest can read a context as a node of these trees; None if all can."""
    if context != "sibling-branch":
        return None
    has_branch = has_other_branch(forest, trees)
    if not has_branch.any():
        raise NothingToReadError(
            "context=sibling-branch reads another branch of the same tree, but no comment of "
            f"{counted(len(trees), 'tree')} has one at its depth. Choose another context, or trees in which several comments "
            "have replies."
        )
    return has_branch


def first_trees(forest: Forest, trees: Ints, targets: int) -> Ints:
    """The first trees that together hold this many comments; none if no tree has a comment."""
    comments = forest.offsets[trees + 1] - forest.offsets[trees] - (not forest.store.predicts_roots)
    if not comments.any():
        return trees[:0]
    return trees[: int(np.searchsorted(np.cumsum(comments), targets)) + 1]

"""Floors of words: logistic regression over words among their neighbours, and answers that read nothing but places.

Some settings are tried; the dev split chooses one by the metric of the task (`PreparedLabels.best_of`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ramify.batching.forest import Ints
from ramify.batching.question_windows import Windows
from ramify.batching.tagged_batch import TagCollator
from ramify.batching.views.questions import QuestionView
from ramify.batching.views.tagged import TaggedView
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.inference.label_pipeline import label_batches
from ramify.metrics.answers import NO_ANSWER, score_answers
from ramify.models.word_windows import Features, WordWindow, WordWindowConfig
from ramify.runs.labelled.base import Candidate
from ramify.runs.labelled.floors import LEAST, check_strengths, log_odds, logistic_weights, set_weights
from ramify.tasks.span_qa import SpanQA
from ramify.tasks.tagging import Tagging, words_of_batch

NUM_ASKED = 50
"""Frequent words of questions that form pairs with the shapes of words."""

OTHERS = 10
"""About so many words of a passage stand for all that are no start or end of the answer."""

STARTS, SIZES = (0, 1, 2, 4, 8, 16), (1, 2, 4, 8, 16)
"""The spans, in tokens, that are tried as the answer to all questions."""


@dataclass(frozen=True)
class WindowFit:
    """The settings of a linear model of words among which the dev split chooses. Without one, the first ones are taken."""

    windows: tuple[int, ...] = (2, 1)
    """Neighbours on each side."""
    strengths: tuple[float, ...] = (1.0, 0.1)
    """Inverse strengths of the regularization (C of scikit-learn)."""

    def __post_init__(self) -> None:
        check_fields(self, "fit.")
        if not self.windows or min(self.windows) < 0:
            raise RamifyError(f"fit.windows={list(self.windows)} does not hold numbers of neighbours alone. Set, say, [1, 2].")
        check_strengths(self.strengths)


def tag_candidates(task: Tagging, view: TaggedView, fit: WindowFit) -> Iterator[Candidate]:
    """Floors of tags: the most frequent tag of each word, or logistic regression."""
    if task.config.decoder == "majority":
        yield {}, task
        return
    count = len(task.config.tags)
    for window in fit.windows:
        backbone = _reading(replace(task.backbone.config, window=window, dim=count), task)
        matrix, targets = tag_matrix(backbone, view)
        shares = np.bincount(targets, minlength=count) / len(targets)
        for strength in fit.strengths:
            weights, biases = np.zeros((count, backbone.config.num_features)), np.log(np.clip(shares, LEAST, 1))
            logistic_weights(matrix, targets, strength, weights, biases)
            fitted = Tagging(_reading(backbone.config, task), task.tokenizer, task.input, task.config)
            fitted.word_table.load_state_dict(task.word_table.state_dict())
            set_weights(fitted, weights, biases)
            yield {"window": window, "strength": strength}, fitted


def tag_matrix(backbone: WordWindow, view: TaggedView) -> tuple[csr_array, Ints]:
    """[word, feature]: the features of all tagged words, and their tags."""
    parts, targets = [], []
    for _, batch in label_batches(view, TagCollator.of(view)):
        assert batch.targets is not None
        places = words_of_batch(batch).places.numpy()
        # Words that share a piece have the same features.
        parts.append(_matrix(backbone.features(batch.input), batch.input.rows.total, backbone)[places])
        targets.append(batch.targets.numpy())
    return csr_array(vstack(parts)), np.concatenate(targets)


def answer_candidates(task: SpanQA, view: QuestionView, fit: WindowFit) -> Iterator[Candidate]:
    """Floors of answers: one span for all passages, or logistic regression of starts and of ends against other words."""
    model: WordWindowConfig = replace(task.backbone.config, num_texts=2)
    if model.reads == "place":
        backbone = model.build()
        span = constant_span(view)
        if span is not None:
            backbone.span.copy_(torch.tensor(span))
        # Higher than the score of any span, or lower.
        backbone.outside.fill_(model.max_tokens * (1 if span is None else -1))
        fitted = SpanQA(backbone, task.tokenizer, task.input, task.config)
        set_weights(fitted, np.zeros((2, 0)), np.zeros(2))
        yield {}, fitted
        return
    words, counts = np.unique(_reading(model, task).word.numpy()[view.question_ids], return_counts=True)
    asked = np.sort(words[np.argsort(-counts, kind="stable")][:NUM_ASKED])
    for window in fit.windows:
        known = replace(model, window=window, num_asked=len(asked))
        matrix, is_end = answer_matrix(_asked(known, task, view, asked), task, view)
        for strength in fit.strengths:
            columns = [log_odds(matrix, ends, strength) for ends in is_end.T]
            fitted = SpanQA(_asked(known, task, view, asked), task.tokenizer, task.input, task.config)
            biases = np.array([bias for _, bias in columns])
            set_weights(fitted, np.stack([weights for weights, _ in columns]), biases)
            # The score that there is no answer is the log-odds of the best span with its sign changed.
            fitted.backbone.outside.fill_(-float(biases.mean()))
            yield {"window": window, "strength": strength}, fitted


def answer_matrix(backbone: WordWindow, task: SpanQA, view: QuestionView) -> tuple[csr_array, Bool[NDArray, "word 2"]]:
    """[word, feature]: the starts and ends of answers and some other words, and whether a word is a start and an end. The other
    words are drawn alike in all runs."""
    random = np.random.default_rng(0)
    parts, ends = [], []
    for _, batch in label_batches(view, task.collator):
        assert batch.targets is not None
        lengths = batch.input.rows.host_lengths
        is_passage = Windows.of(batch).passage.numpy()
        is_end = np.zeros((len(is_passage), 2), dtype=bool)
        is_end[(np.cumsum(lengths) - lengths)[:, None] + batch.targets.numpy(), [0, 1]] = True
        chosen = random.random(len(is_passage)) < np.repeat(OTHERS / lengths, lengths)
        chosen = is_passage & (chosen | is_end.any(1))
        parts.append(_matrix(backbone.features(batch.input), len(is_passage), backbone)[np.flatnonzero(chosen)])
        ends.append(is_end[chosen])
    return csr_array(vstack(parts)), np.concatenate(ends)


def constant_span(view: QuestionView) -> tuple[int, int] | None:
    """The places of the first and the last token of the span that has the best F1 on all questions; None: no answer has."""
    questions = view.questions
    rules = "2.0" if questions.counts.impossible else "1.1"
    most = np.diff(view.tokens.offsets)[questions.passage] - 1

    def f1(answers: list[str]) -> float:
        return score_answers(answers, questions.gold, rules).scores()["f1"]

    best, score = None, f1([NO_ANSWER] * len(questions))
    for start in STARTS:
        for size in SIZES:
            first, last = np.clip(start, 0, most), np.clip(start + size - 1, 0, most)
            begin, end = view.tokens.characters(questions.passage, first, last)
            answers = [view.passage(number)[begin[number] : end[number]] for number in range(len(questions))]
            found = f1(answers)
            if found > score:
                best, score = (start, start + size - 1), found
    return best


def _reading(config: WordWindowConfig, task: Tagging | SpanQA) -> WordWindow:
    """A model that knows the spellings of words, without weights."""
    backbone = replace(config, vocab_size=task.tokenizer.vocab_size).build()
    backbone.learn_spellings(task.tokenizer)
    return backbone


@torch.no_grad()
def _asked(config: WordWindowConfig, task: SpanQA, view: QuestionView, asked: Ints) -> WordWindow:
    """A model that knows the frequent words of questions, too, and the rarity of words: ln((1 + passages) / (1 + passages with
    the word)) + 1. Special tokens have none."""
    backbone = _reading(config, task)
    backbone.asked.copy_(torch.from_numpy(asked))
    offsets = view.tokens.offsets
    vocab, passages = backbone.config.vocab_size, len(offsets) - 1
    keys = np.repeat(np.arange(passages), np.diff(offsets)) * vocab + backbone.word.numpy()[view.tokens.ids]
    frequency = np.bincount(np.unique(keys) % vocab, minlength=vocab)
    backbone.rarity.copy_(torch.from_numpy(np.log((1 + passages) / (1 + frequency)) + 1))
    backbone.rarity[task.tokenizer.special_ids] = 0
    return backbone


def _matrix(found: Features, count: int, backbone: WordWindow) -> csr_array:
    cells = (found.value.numpy(), (found.token.numpy(), found.feature.numpy()))
    return csr_array(cells, shape=(count, backbone.config.num_features), dtype=np.float64)

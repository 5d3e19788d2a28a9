"""Tags of the words of texts from a trained tagger."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.tagged_batch import TagCollator
from ramify.batching.views.tagged import TaggedView, WordPieces
from ramify.dataset.bio import spans_of, tag_parts
from ramify.dataset.labels import labels_at
from ramify.dataset.store import Split, Store
from ramify.dataset.token_tags import NodeTags, Words, node_tags, node_words
from ramify.inference.answers import Prediction, TaggedText, TextSpans, TextTags
from ramify.inference.label_pipeline import LabelPipeline, label_batches
from ramify.models.base import reads_characters
from ramify.nn.crf import Posterior
from ramify.tasks.tagging import Tagging, words_of_batch
from ramify.tree import Indices


class Tagger(LabelPipeline):
    """Spans in texts, or the tags of their words."""

    usage: ClassVar[tuple[str, ...]] = ('model.predict("a text")',)
    task: Tagging

    def __init__(self, task: Tagging) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input
        self._labels = task.types

    @torch.no_grad()
    def predict_nodes(
        self, store: Store, nodes: Indices, ids: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[Prediction]:
        texts, gold = store.texts(nodes), labels_at(store, nodes, self.input.label)
        words, are_tables = node_words(store, nodes)
        answers: dict[int, TextSpans | TextTags] = {}
        for batch in tagged_batches(self.task, view_of(self.task, texts, words, None), progress):
            posterior = self.task.posterior(batch.scores, batch.batch)
            for number, part in zip(batch.numbers, batch.texts, strict=True):
                numbers, text, places = batch.tags[part], texts[number], words[number]
                answers[number] = self._answer(ids[number], text, places, are_tables[number], numbers, posterior, part)
        return [replace(answers[number], gold=label) for number, label in enumerate(gold)]

    def _answer(
        self,
        text_id: str,
        text: str,
        words: Words,
        is_table: bool,
        numbers: Int[Tensor, " word"],
        posterior: Posterior,
        part: slice,
    ) -> TextSpans | TextTags:
        """The answer about a text whose words have these numbers of tags, and lie in this part of the batch."""
        tags = [self.task.config.tags[number] for number in numbers.tolist()]
        shares = posterior.marginals[part].gather(1, numbers[:, None])[:, 0].tolist()
        places = words.tolist()
        tokens = tuple(
            TaggedText(text[start:end], start, end, tag, share)
            for (start, end), tag, share in zip(places, tags, shares, strict=True)
        )
        if self.task.config.scheme == "plain":
            return TextTags(text_id, tokens)
        spans = []
        for span in spans_of(tags):
            start, end = places[span.start][0], places[span.stop - 1][1]
            follow = None if span.stop == len(tags) else self._may_follow(span.type).to(numbers.device)
            share = posterior.of_stretch(part.start + span.start, numbers[span.start : span.stop], follow)
            spans.append(TaggedText(text[start:end], start, end, span.type, float(share)))
        return TextSpans(text_id, tuple(spans), tokens if is_table else ())

    def _may_follow(self, kind: str) -> Tensor:
        """The tags that end a span of a type: all but those inside one of its type."""
        return torch.tensor([tag_parts(tag) != ("I", kind) for tag in self.task.config.tags])


@dataclass(frozen=True)
class TaggedBatch:
    """Texts with their predicted tags."""

    numbers: list[int]
    """The number of each text in its view."""
    texts: list[slice]
    """The words of each text on the axis of the batch."""
    batch: LabelledBatch
    states: Float[Tensor, "word dim"]
    """The vectors from which tags are predicted."""
    scores: Float[Tensor, "word tag"]
    tags: Int[Tensor, " word"]


@torch.no_grad()
def tagged_batches(task: Tagging, view: TaggedView, progress: Callable[[int], None] | None = None) -> Iterator[TaggedBatch]:
    """All texts of a view with their predicted tags, in batches of similar length."""
    with task.evaluating():
        for numbers, batch in label_batches(view, TagCollator.of(view), progress):
            moved = batch.to(task.device)
            states = task.word_states(moved)
            scores = task.scores(states)
            tags = task.predictions(scores, moved)
            ends = words_of_batch(batch).texts.host_lengths.cumsum().tolist()
            texts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
            yield TaggedBatch(numbers.tolist(), texts, moved, states, scores, tags)


@torch.no_grad()
def predicted_tags(
    task: Tagging,
    view: TaggedView,
    *,
    progress: Callable[[int], None] | None = None,
    read: Callable[[TaggedBatch], None] | None = None,
) -> list[list[str]]:
    """The likeliest tags of every text of a view. `read` is given each batch."""
    found: dict[int, list[str]] = {}
    for batch in tagged_batches(task, view, progress):
        tags = batch.tags.tolist()
        for number, part in zip(batch.numbers, batch.texts, strict=True):
            found[number] = [task.config.tags[tag] for tag in tags[part]]
        if read is not None:
            read(batch)
    return [found[number] for number in range(len(view))]


def view_of(task: Tagging, texts: Sequence[str], words: Sequence[Words], tags: Sequence[Ints] | None) -> TaggedView:
    """Texts as a task reads them."""
    pieces = WordPieces.of(task.tokenizer, texts, words, open_words=reads_characters(task.backbone))
    layout = task.tokenizer.layout(task.input.layout, task.backbone.config.vocab_size)
    types = task.word_table.numbers(spellings(texts, words)) if task.config.decoder == "majority" else None
    return TaggedView(pieces, tags, layout, longest=task.input.max_tokens, overlap=task.overlap, types=types)


def spellings(texts: Sequence[str], words: Sequence[Words]) -> list[list[str]]:
    """The words of texts as they are written."""
    return [[text[start:end] for start, end in row.tolist()] for text, row in zip(texts, words, strict=True)]


def held_out(task: Tagging, store: Store, split: Split) -> tuple[TaggedView, NodeTags]:
    """The tagged texts of a split that is scored. Raises `RamifyError` for a tag that the task does not know."""
    tagged = node_tags(store, split, task.input.label)
    return view_of(task, store.texts(tagged.nodes), tagged.words, task.targets_of(tagged.tags)), tagged

"""Pipelines of models that predict texts token by token: from a source, as in translation, or from a beginning."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints
from ramify.batching.pair_batch import PairBatch
from ramify.batching.text_input import Context
from ramify.batching.views.pairs import Pair, PairInput
from ramify.errors import RamifyError, counted
from ramify.inference.answers import Likelihood, NodeAttention, Translation, TranslationHypothesis, nothing_written
from ramify.inference.attention import AttentionRequest, AttentionTable, check_pairs, check_records, spelled
from ramify.inference.base import TOKENS, longer_than_trained, verb
from ramify.inference.embed import TextPipeline
from ramify.inference.generate import GeneratingPipeline
from ramify.inference.lone_texts import LoneTextPipeline
from ramify.inference.mask_query import chosen_node
from ramify.inference.score import ScoringPipeline, known_part
from ramify.inference.search import Beam, Hypothesis, Limits, beam_search
from ramify.inference.texts import read_texts
from ramify.inference.verbs import BEGINS, READS_SOURCES
from ramify.models.base import GenerativeBackbone
from ramify.nn.attention import AttentionRecord
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.tasks.next_token import NextTokenLM
from ramify.tokenizer import sentinel_piece
from ramify.tree import Tree

EXTRA_TOKENS = 50
"""The number of tokens by which a translation may be longer than its source (Vaswani et al. 2017, section 6.1)."""


class SourceWeights(NamedTuple):
    """Attention of predicted tokens to the tokens of a source."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: Float[NDArray, "query key"]


class NextTokenPipeline(LoneTextPipeline, TextPipeline, ABC):
    """A model that predicts every token of a text from those before it."""

    task: NextTokenLM
    backbone: GenerativeBackbone
    input: PairInput

    @property
    def max_tokens(self) -> int:
        return self.input.max_source_tokens if self.backbone.reads_source else self.input.max_tokens

    @property
    def room(self) -> int:
        return self.max_tokens - self.layout.num_special

    @abstractmethod
    def attending_pair(self, text: str, target: str | None) -> tuple[Pair, str | None]:
        """The tokens whose attention is shown, and the target if the text is a source."""

    def _attention(
        self, tree: Tree | str, node: str | int | None, context: Context | None, wanted: AttentionRequest
    ) -> NodeAttention:
        check_records(self.backbone)
        tree, node = chosen_node(tree, node)
        read = tree.nodes[self.number_alone(tree, node, context)]
        pair, target = self.attending_pair(read.text, wanted.target)
        source, predicted = 0 if pair.source is None else len(pair.source) + 1, pair.num_predicted
        check_pairs(source * (source + predicted) + predicted**2, alone=True)
        return NodeAttention(read.id, "none", (), wanted.of(self.attention_tables(pair, read.id)), target=target)

    def _batch(self, pair: Pair, *, begin: bool) -> PairBatch:
        """A text behind the token that stands before each text of training, or behind its own first token."""
        if begin or pair.source is not None or not len(pair.target):
            return self.task.collator([pair])
        return replace(self.task.collator, begin=int(pair.target[0]))([replace(pair, target=pair.target[1:])])

    def attention_tables(self, pair: Pair, node: str = "") -> list[AttentionTable]:
        """The weights among the tokens of a source, among those of its target, and from these to the source."""
        batch = self._batch(pair, begin=self.input.begin)
        record: AttentionRecord = {}
        with torch.no_grad(), evaluating(self.module):
            self.backbone(batch.to(self.device), record=record)
        read, predicted = spelled(self.tokenizer, batch.target.ids), spelled(self.tokenizer, batch.labels)
        source = [] if batch.source is None else spelled(self.tokenizer, batch.source.ids)
        names = {
            ("encoder", "self"): (source, source),
            ("decoder", "self"): (read, read),
            ("decoder", "cross"): (predicted, source),
        }
        return [
            AttentionTable(stack, kind, node, *names[stack, kind], [layer[kind][0] for layer in layers])
            for stack, layers in record.items()
            for kind in layers[0]
        ]


class Translator(NextTokenPipeline):
    """A model that predicts a text from another one: its translation, or a reply to it."""

    verbs = ("translate", "embed", "attention", "nearest")
    abilities = (*NextTokenPipeline.abilities, READS_SOURCES)
    usage = ('model.translate("Some text.").translations[0].text', 'model.embed("Some text.")')

    def __init__(self, task: NextTokenLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @verb
    def translate(
        self,
        source: str | Sequence[str],
        *,
        beam: int = Beam.width,
        n_best: int = 1,
        length_penalty: float = Beam.length_penalty,
        progress: Callable[[int], None] | None = None,
    ) -> Translation | list[Translation]:
        """Translate a text, or a list of texts, by beam search. A beam of 1 always takes the likeliest token.

        The `n_best` translations are ordered by log p / ((5 + length) / 6)^`length_penalty`, where the length counts the end.
        They have at most `EXTRA_TOKENS` tokens more than the source. A source without tokens has no translation. Of a source
        with sentinels (`<extra_id_0>`, …), a T5 predicts what they stand for: sentinels, each before its text. Raises
        `RamifyError` for a source that is longer than the model reads, and for one without sentinels if the model has learned
        from corrupted text alone.
        """
        texts = _sources(source)
        ids = [self._encoded(text) for text in texts]
        self._check_sentinels(ids)
        self._check_lengths(np.array([len(tokens) for tokens in ids], dtype=np.int64))
        best = self.translations(ids, Beam(beam, n_best, length_penalty), progress=progress)
        unknown = self.tokenizer.unknown(np.concatenate([np.zeros(0, dtype=np.int64), *ids]))
        # One note of each kind about all sources: a note for each would bury the translations of a file.
        long = longer_than_trained(
            [len(tokens) for tokens in ids], "source", self.input.max_source_tokens - 1, "input.max_source_tokens"
        )
        blank = nothing_written([translations[0].text if translations else "" for translations in best])
        notes = [(*long, *unknown.notes("the sources" if len(texts) > 1 else "the source"), *blank), *[()] * len(texts)]
        answers = [Translation(text, translations, notes=note) for text, translations, note in zip(texts, best, notes)]
        return answers[0] if isinstance(source, str) else answers

    def translations(
        self, sources: Sequence[Ints], beam: Beam, *, progress: Callable[[int], None] | None = None
    ) -> list[tuple[TranslationHypothesis, ...]]:
        """The best translations of the tokens of each source, best first; none if it has no tokens. Raises `RamifyError` for a
        beam as wide as the vocabulary."""
        beam.check(self.backbone.config.vocab_size)
        lengths = np.array([len(ids) for ids in sources], dtype=np.int64)
        best: list[tuple[TranslationHypothesis, ...]] = [()] * len(sources)
        sentinels = self.tokenizer.sentinels
        filled = np.array([bool(np.isin(ids, sentinels).any()) for ids in sources], dtype=bool)
        for allowed, chosen in (((), ~filled), (sentinels, filled)):
            # Sources of similar length share a batch.
            order = np.argsort(lengths, kind="stable")
            order = order[(lengths[order] > 0) & chosen[order]]
            for start, stop in runs((2 * lengths[order] + EXTRA_TOKENS) * beam.width, TOKENS):
                batch = order[start:stop].tolist()
                results = self._search([sources[number] for number in batch], beam, allowed)
                for number, hypotheses in zip(batch, results, strict=True):
                    best[number] = tuple(map(self._spelled, hypotheses))
                if progress is not None:
                    progress(len(batch))
        return best

    def source_attention(self, source: Ints, translation: str) -> SourceWeights | None:
        """The weights from each token of a translation, and its end, to the tokens of its source; None if the model has none.

        They are those of the last layer, averaged over its heads. Tokens beyond those that the model reads are left out.
        """
        if not self.backbone.records_attention:
            return None
        tables = self.attention_tables(self._translated_pair(source, translation))
        (table,) = [table for table in tables if table.kind == "cross"]
        weights = table.layers[-1].double().mean(0).cpu().numpy()
        return SourceWeights(tuple(table.queries), tuple(table.keys), weights)

    def attending_pair(self, text: str, target: str | None) -> tuple[Pair, str]:
        source = self._encoded(text)
        if not len(source):
            raise RamifyError(f"the text {text[:40]!r} has no tokens, so nothing can be predicted from it. Pass another text.")
        if target is not None:
            return Pair(self._encoded(target), source), target
        # Before a long search.
        check_pairs(len(source) ** 2, alone=True)
        answer = self.translate(text)
        assert isinstance(answer, Translation)
        translation = answer.translations[0].text
        return self._translated_pair(source, translation), translation

    def _translated_pair(self, source: Ints, translation: str) -> Pair:
        """A source and a translation of the model's own."""
        target, longest = self._encoded(translation), self.backbone.max_tokens
        # The longest translation has no end, and one that is encoded anew may have more tokens.
        is_long = longest is not None and len(target) >= longest
        return Pair(target[:longest], source, ends=not is_long)

    def _encoded(self, text: str) -> Ints:
        return np.array(self.tokenizer.encode_sentinels(text), dtype=np.int64)

    def _check_lengths(self, lengths: Ints) -> None:
        longest = self.backbone.max_tokens
        if longest is not None and (over := np.flatnonzero(lengths >= longest)).size:
            number = int(over[0])
            raise RamifyError(
                f"source {number + 1} has {counted(int(lengths[number]), 'token')}, but this model reads at most {longest - 1} "
                "and the end. Shorten or divide it, for example into sentences."
            )

    def _check_sentinels(self, sources: Sequence[Ints]) -> None:
        if self.input.source == "corrupted":
            for number, ids in enumerate(sources, 1):
                if len(ids) and not np.isin(ids, self.tokenizer.sentinels).any():
                    raise RamifyError(
                        f"source {number} has no {sentinel_piece(0)}, but this model has learned to fill gaps alone "
                        f"(input.source=corrupted). Mark each gap: one {sentinel_piece(0)} two {sentinel_piece(1)}."
                    )

    def _search(self, sources: Sequence[Ints], beam: Beam, allowed: Sequence[int]) -> list[list[Hypothesis]]:
        """The best translations of each source, of pieces and the special tokens that are `allowed`."""
        collator, longest = self.task.collator, self.backbone.max_tokens
        nothing = np.zeros(0, dtype=np.int64), np.zeros(len(sources), dtype=np.int64)
        prompts = EncoderInput.of_texts(nothing, self.tokenizer.layout("plain"), None).to(self.device)
        ends = self.tokenizer.role_ids("stop")
        forbidden = tuple(token for token in self.tokenizer.special_ids if token not in (*ends, *allowed))
        maximums = [len(ids) + EXTRA_TOKENS for ids in sources]
        if longest is not None:
            maximums = [min(maximum, longest) for maximum in maximums]
        with evaluating(self.module):
            return beam_search(
                self.task,
                prompts,
                beam,
                Limits(ends, forbidden),
                maximums=maximums,
                source=collator.sources(sources).to(self.device),
            )

    def _spelled(self, hypothesis: Hypothesis) -> TranslationHypothesis:
        return TranslationHypothesis(self.tokenizer.decode(hypothesis.ids).strip(), hypothesis.score)


class TextGenerator(NextTokenPipeline, ScoringPipeline, GeneratingPipeline):
    """A model that continues texts, and scores them from left to right."""

    abilities = (*NextTokenPipeline.abilities, *GeneratingPipeline.abilities, BEGINS)
    verbs = ("score", "generate", "embed", "attention", "nearest")
    usage = (
        'model.generate("Some", tokens=20, seed=0).text',
        'model.score("Some text.").log_likelihood',
        'model.embed("Some text.")',
    )

    def __init__(self, task: NextTokenLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input
        self.ends = task.tokenizer.role_ids("stop")
        self.longest = task.backbone.max_tokens
        self.begin_id, self.begins = task.collator.begin, task.input.begin

    def attending_pair(self, text: str, target: str | None) -> tuple[Pair, None]:
        return Pair(np.array(self.tokenizer.encode(text), dtype=np.int64)), None

    def _score(
        self, tree: Tree | str, node: str | int | None, context: Context | None, order: str | None, seed: int, begin: bool
    ) -> Likelihood:
        tree, node = chosen_node(tree, node)
        text = tree.nodes[self.number_alone(tree, node, context)].text
        ids = np.array(self.tokenizer.encode(text), dtype=np.int64)
        if not len(ids):
            raise RamifyError(f"the text {text[:40]!r} has no tokens, so it has no likelihood. Pass another text.")
        if self.longest is not None and len(ids) > self.longest:
            raise RamifyError(
                f"the text {text[:40]!r} has {counted(len(ids), 'token')}, but this model reads at most {self.longest}. "
                "Divide it."
            )
        unknown = known_part(self.tokenizer, ids, text)
        if not begin and len(ids) == 1:
            raise RamifyError(
                f"begin=False leaves nothing to score of the text {text[:40]!r}, which has one token. Set begin=True."
            )
        with torch.no_grad(), evaluating(self.module):
            batch = self._batch(Pair(ids, ends=False), begin=begin).to(self.device)
            nats = self.task.head.measure(self.backbone(batch), batch.labels)[0]
        notes = (*self._notes(len(ids)), *unknown.notes("the text"))
        longer = len(ids) > self.max_tokens
        # The end of the token that is not scored.
        start = 0 if begin else int(self.tokenizer.encode_offsets([text])[3][0])
        size = len(text[start:].encode())
        return Likelihood(-float(nats.double().sum()), len(nats), size, "forward", longer, unknown.count, notes=notes)

    def _notes(self, tokens: int) -> tuple[str, ...]:
        return longer_than_trained([tokens], "text", self.max_tokens, "input.max_tokens")


def next_token_pipeline(task: NextTokenLM) -> NextTokenPipeline:
    """The pipeline of a task: a translator if its model reads sources."""
    return Translator(task) if task.backbone.reads_source else TextGenerator(task)


def _sources(source: Any) -> list[str]:
    """The texts in a string, a list or a column of a data frame."""
    texts: list[str] = []
    for text in read_texts(source, "translate").items:
        if not isinstance(text, str):
            raise RamifyError("translate reads strings, not a Tree. Pass the texts of its nodes.")
        texts.append(text)
    return texts

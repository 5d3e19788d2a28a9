"""Masked language models on rows of running text: BERT's sentence pairs and RoBERTa's full sentences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ramify.batching.row_batch import RowCollator
from ramify.batching.running_text import RunningText
from ramify.batching.samplers import Sampler, TokenBudget
from ramify.batching.text_input import TextInput
from ramify.batching.views.packed import (
    FullSentences,
    NothingToPairError,
    PackConfig,
    PairConfig,
    SentencePairs,
    TextRows,
)
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.row_evaluation import evaluate_rows, spread_rows
from ramify.models.bert import BertConfig
from ramify.progress import activity
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, of_kind
from ramify.runs.execute import own_run
from ramify.runs.language_models import PreparedLanguageModel, training_store
from ramify.runs.masked_lms import build_masked_lm
from ramify.runs.packed_text import report, scores
from ramify.runs.packed_text.report import DEV_NEXT_SENTENCE
from ramify.runs.running_text import RowDevConfig, RunningTextRun
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.training.config import TrainConfig
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage

RowKind = Literal["pairs", "sentences"]


def rows_of(
    store: Store, task: MaskedLM, split: Split, rows: RowKind, pairs: PairConfig, packing: PackConfig, seed: int
) -> tuple[TextRows, RowCollator]:
    """The rows of a split as a task reads them, and their collator. Raises `RamifyError` if the split has no text."""
    text, frame = RunningText.open(store, task.tokenizer, split), task.input.row_layout(task.tokenizer).frame
    longest, layout = task.input.max_tokens, task.input.layout
    if rows == "pairs":
        view = SentencePairs(text, task.tokenizer, longest, pairs, layout=layout, seed=seed)
        return view, RowCollator(frame, pairs=True)
    return FullSentences(text, task.tokenizer, longest, packing, layout=layout), RowCollator(frame)


@dataclass(frozen=True)
class PreparedRows(PreparedLanguageModel):
    """A run with its rows, for training and dev scores."""

    run: "PackedTextRun"
    task: MaskedLM
    view: TextRows
    collator: RowCollator

    def stage(self, number: int) -> Stage[TextRows]:
        return Stage(self.run.stages[number], self.view, self.collator, self._dev_loss(), make_sampler=_drawn_rows)

    def facts(self) -> dict[str, Any]:
        text = self.view.text
        counts = {"documents": len(text.documents) - 1, "sentences": len(text.sentences) - 1}
        return {"text": counts | self.view.facts()}

    def reads(self) -> str:
        facts = self.facts()["text"]
        rows = f"{counted(facts['rows'], 'row')} of up to {counted(self.task.input.max_tokens, 'token')}"
        text = f"{counted(facts['tokens'], 'token')} in {counted(facts['documents'], 'document')}; {rows}"
        if "random_next" not in facts:
            return f"{text}; {counted(facts['sentences_cut'], 'sentence')} longer than a row and cut in pieces"
        share, cut = facts["random_next"] / facts["rows"], facts["tokens_cut"] / facts["tokens"]
        return f"{text} in each pass, {share:.0%} with a random second segment; truncation removes {cut:.1%} of the tokens"

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        facts = self.facts()["text"]
        warnings = []
        if facts["tokens"] < self.task.input.room(self.task.tokenizer):
            warnings.append(
                f"the training split has {counted(facts['tokens'], 'token')}, fewer than one row of input.max_tokens="
                f"{self.task.input.max_tokens}. Add text, or lower input.max_tokens."
            )
        if "random_next" not in facts:
            return warnings
        if facts["random_next"] in (0, facts["rows"]) and self.task.next_head is not None:
            kind = "random" if facts["random_next"] else "the next sentences"
            warnings.append(
                f"all second segments are {kind}, so task.next_sentence has nothing to learn from. It needs documents of "
                "several sentences; ramify train roberta needs none."
            )
        if facts["documents"] == 1:
            warnings.append(
                "the text is one document, so random second segments come from other places in it, not from others."
            )
        return warnings

    def _dev_loss(self) -> Callable[[], dict[str, float]] | None:
        """The measure on the dev rows; None if the dev split has none."""
        config, task, run = self.run.dev, self.task, self.run
        if not len(self.store.split("dev")):
            return None
        try:
            view, collator = rows_of(self.store, task, "dev", run.rows, run.pairs, run.packing, run.seed)
        except NothingToPairError:
            return None
        numbers = spread_rows(view, config.rows)

        def measure() -> dict[str, float]:
            measured = evaluate_rows(task, view, collator, numbers, draws=config.draws, mask_rate=config.mask_rate)
            record = {"dev_loss": measured.masked.summary()["loss"]}
            if measured.next_sentence.count:
                record[DEV_NEXT_SENTENCE] = measured.next_sentence.summary()["accuracy"]
            return record

        return measure


def _drawn_rows(view: TextRows, config: TrainConfig, seed: int, world_size: int, rank: int) -> Sampler:
    """Rows in random order, in micro-batches filled up to `train.budget`. Each epoch has its own rows."""

    def costs(epoch: int) -> Any:
        lengths = view.lengths(epoch)
        return np.ones_like(lengths) if config.budget_unit == "targets" else lengths

    return TokenBudget(costs, config.budget, seed=seed, world_size=world_size, rank=rank)


@dataclass(frozen=True, kw_only=True)
class PackedTextRun(RunningTextRun):
    """A masked language model on rows of running text, in random order."""

    name: ClassVar[str] = "packed-text"

    model: BertConfig
    task: MaskedLMConfig = field(default_factory=MaskedLMConfig)
    input: TextInput = field(default_factory=lambda: TextInput(context="none"))
    rows: RowKind = "pairs"
    """pairs: two segments per row, as in BERT. sentences: consecutive full sentences, as in RoBERTa."""
    pairs: PairConfig = field(default_factory=PairConfig)
    packing: PackConfig = field(default_factory=PackConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: RowDevConfig = field(default_factory=RowDevConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind, default in (("pairs", "pairs", PairConfig()), ("packing", "sentences", PackConfig())):
            changed = [key for key, value in asdict(getattr(self, name)).items() if value != getattr(default, key)]
            if changed and self.rows != kind:
                raise RamifyError(
                    f"{name}.{changed[0]} applies to rows={kind}, but rows={self.rows}. Set rows={kind}, or leave it out."
                )
        if self.task.next_sentence and self.rows != "pairs":
            raise RamifyError(
                f"task.next_sentence={self.task.next_sentence} needs rows of two segments, but rows={self.rows}. Set "
                "rows=pairs, or task.next_sentence=0."
            )
        if self.input.context != "none" or self.input.concatenate:
            raise RamifyError(
                f"input.context={self.input.context} and input.concatenate={self.input.concatenate} belong to comments; rows "
                "of running text have no ancestors. Set input.context=none and input.concatenate=0."
            )
        if self.rows == "pairs" and self.model.type_vocab_size == 1:
            raise RamifyError(
                "model.type_vocab_size=1 has no type for the second segment of a pair. Set it to 2, or to 0 for a model "
                "without token types, or set rows=sentences."
            )

    def notes(self) -> list[str]:
        return []

    def prepare(self, out: Path) -> PreparedRows:
        store = training_store(self.data)
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed)
        torch.manual_seed(step_seed(self.seed, 0))
        task = build_masked_lm(self.model, tokenizer, self.input, self.task, self.init)
        view, collator = rows_of(store, task, "train", self.rows, self.pairs, self.packing, self.seed)
        if task.weighs_words:
            with activity("counting words"):
                task.count_words(np.bincount(view.text.ids, minlength=task.backbone.config.vocab_size))
        return PreparedRows(self, store, task, view, collator)

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Held-out loss on rows as in training, and on the common footing. Options: those of `scores`."""
        model = of_kind(pipeline, MaskFiller, source, "a masked language model")
        run = own_run(cls, source)
        rows: RowKind = "pairs" if model.task.next_head is not None else "sentences"
        if run is not None:
            rows = run.rows
        pairs, packing, seed = (run.pairs, run.packing, run.seed) if run else (PairConfig(), PackConfig(), 0)
        view, collator = rows_of(store, model.task, split, rows, pairs, packing, seed)
        return scores.evaluate(model, source, view, collator, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        pipeline, store = request.pipeline, request.store
        view: tuple[TextRows, RowCollator] | None = None
        missing = ""
        if isinstance(pipeline, MaskFiller) and store is not None:
            try:
                view = rows_of(store, pipeline.task, request.split, self.rows, self.pairs, self.packing, self.seed)
            except RamifyError as error:
                missing = str(error)
        return report.parts(request, view, missing)

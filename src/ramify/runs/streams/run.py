"""Language models on rows of running text that continue each other: XLNet and its relatives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from ramify.batching.running_text import RunningText
from ramify.batching.stream_batch import collate_streams
from ramify.batching.views.streams import StreamConfig, StreamInput, StreamRow, Streams
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.stream_evaluation import evaluate_streams, held_out_streams
from ramify.inference.streams import StreamPipeline
from ramify.models.base import StreamModelConfig, reads_characters
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, of_kind
from ramify.runs.execute import own_run
from ramify.runs.language_models import PreparedLanguageModel, initialized, training_store, with_vocabulary
from ramify.runs.running_text import RowDevConfig, RunningTextRun
from ramify.runs.streams import report, scores
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.permutation_lm import PermutationLMConfig
from ramify.tasks.stream_task import StreamTask, StreamTaskConfig
from ramify.tokenizer import Tokenizer
from ramify.training.meters import MeterSums
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage, stream


@dataclass(frozen=True)
class PreparedStreams(PreparedLanguageModel):
    """A run with its streams, for training and dev scores."""

    run: "StreamRun"
    task: StreamTask
    view: Streams

    def stage(self, number: int) -> Stage[Streams]:
        config = self.run.stages[number]
        input = self.run.input

        def collate(rows: Sequence[StreamRow]) -> Any:
            return collate_streams(rows, input)

        return Stage(config, self.view, collate, self._dev_loss(), make_sampler=stream(self.view.config.num_rows))

    def facts(self) -> dict[str, Any]:
        text, view = self.view.text, self.view
        counts = {"documents": len(text.documents) - 1, "sentences": len(text.sentences) - 1, "tokens": text.num_tokens}
        streams = {"streams": view.config.num_rows, "rows_per_stream": view.per_stream, "left_out": view.left_out}
        if text.lexicon is not None:
            # Words without a token of their own, which differ in their characters alone.
            lacking = len(text.lexicon.spellings) - text.lexicon.vocab_size
            counts |= {"words_by_characters": lacking, "words_cut": text.lexicon.num_cut}
        return {"text": counts | streams}

    def reads(self) -> str:
        facts = self.facts()["text"]
        return (
            f"{counted(facts['tokens'], 'token')} in {counted(facts['documents'], 'document')}; "
            f"{counted(facts['streams'], 'stream')} of {counted(facts['rows_per_stream'], 'row')}, "
            f"{self.run.input.row_tokens} tokens each; {facts['left_out']:,} tokens at the ends of streams are left out"
        )

    def notes(self) -> list[str]:
        asked, streams = self.run.view.streams, self.view.config.streams
        if streams == asked:
            return super().notes()
        adapted = (
            f"view.streams={asked} is more than a text of {counted(self.view.text.num_tokens, 'token')} can fill with rows of "
            f"input.row_tokens={self.run.input.row_tokens}: {counted(streams, 'stream')} in each direction."
        )
        return [*super().notes(), adapted]

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return []

    def _dev_loss(self) -> Callable[[], dict[str, float]] | None:
        """The measure on the dev streams; None if the dev split has no text, or less than one row."""
        config, run = self.run.dev, self.run
        if not len(self.store.split("dev")):
            return None
        open_words = reads_characters(self.task.backbone)
        text = RunningText.open(self.store, self.task.tokenizer, "dev", marks=True, open_words=open_words)
        if text.num_tokens < run.input.row_tokens:
            return None
        view = held_out_streams(self.task, text, run.view, seed=run.seed)

        def measure() -> dict[str, float]:
            sums = MeterSums(self.task)
            scores = evaluate_streams(self.task, view, rows=config.rows, draws=config.draws, read=sums.add)
            return {"dev_loss": scores.summary()["loss"]} | sums.meters()

        return measure


@dataclass(frozen=True, kw_only=True)
class StreamRun(RunningTextRun):
    """A language model on rows of running text in stored order, each of which continues where the row before it ended."""

    name: ClassVar[str] = "streams"

    model: StreamModelConfig
    task: StreamTaskConfig = field(default_factory=PermutationLMConfig)
    input: StreamInput = field(default_factory=StreamInput)
    view: StreamConfig = field(default_factory=StreamConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: RowDevConfig = field(default_factory=RowDevConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dev.mask_rate is not None:
            raise RamifyError(
                f"dev.mask_rate={self.dev.mask_rate} belongs to masked language models; the objective of this run draws its "
                "targets itself. Leave dev.mask_rate out."
            )

    def notes(self) -> list[str]:
        if not (self.task.predicts_all_in_orders and self.input.overlap):
            return []
        return [
            f"input.reused_tokens={self.input.reused_tokens} is less than input.row_tokens={self.input.row_tokens}, so rows "
            "are read in two parts, and no token of the first part is predicted from the second. For full orders of rows, set "
            f"input.reused_tokens={self.input.row_tokens}."
        ]

    def prepare(self, out: Path) -> PreparedStreams:
        store = training_store(self.data)
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed, marks=True)
        torch.manual_seed(step_seed(self.seed, 0))
        model = with_vocabulary(self.model, tokenizer)
        task = self._task(model, tokenizer)
        text = RunningText.open(store, tokenizer, "train", marks=True, open_words=reads_characters(task.backbone))
        streams = min(self.view.streams, max(1, text.num_tokens // self.input.row_tokens))
        view = Streams(text, tokenizer, self.input, replace(self.view, streams=streams), seed=self.seed)
        model.check_streams(self.input, self.view, view.length)
        return PreparedStreams(self, store, task, view)

    def _task(self, model: StreamModelConfig, tokenizer: Tokenizer) -> StreamTask:
        backbone = model.build()
        return initialized(lambda: self.task.build(backbone, tokenizer, self.input), backbone, model, self.init)

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Held-out loss in the objective's own terms, and on the common footing. Options: those of `scores`."""
        model, run = of_kind(pipeline, StreamPipeline, source, "a model of running text"), own_run(cls, source)
        return scores.evaluate(
            model, source, store, split, run.view if run else StreamConfig(directions=model.backbone.directions), options
        )

    def report_sections(self, request: ReportRequest) -> ReportParts:
        return report.parts(self.view, request)

"""Models that predict texts token by token: translation, replies to comments, and running text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from ramify.batching.views.pairs import GenerativeView, NothingToPredictError, PairInput, generative_view
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.next_token_evaluation import evaluate_next_tokens, spread_examples
from ramify.inference.translate import NextTokenPipeline
from ramify.models.base import GenerativeModelConfig
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, of_kind
from ramify.runs.generative import report, scores
from ramify.runs.language_models import LanguageModelRun, PreparedLanguageModel, initialized, training_store, with_vocabulary
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM
from ramify.tokenizer import Tokenizer
from ramify.training.meters import MeterSums
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage

SENTINELS = 100
"""The number of sentinels of a trained tokenizer, as in T5's."""


@dataclass(frozen=True)
class GenerativeDevConfig:
    """The dev loss during training, in nats per token and without smoothing."""

    examples: int = 1000
    """Number of pairs or rows, evenly spaced over the dev split."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")
        if self.examples < 1:
            raise RamifyError(f"dev.examples must be at least 1, but is {self.examples}.")


@dataclass(frozen=True)
class PreparedGenerative(PreparedLanguageModel):
    """A run with its texts, for training and dev scores."""

    run: "GenerativeRun"
    task: NextTokenLM
    view: GenerativeView

    def stage(self, number: int) -> Stage[GenerativeView]:
        return Stage(self.run.stages[number], self.view, self.task.collator, self._dev_loss())

    def facts(self) -> dict[str, Any]:
        return {"text": asdict(self.view.counts)}

    def reads(self) -> str:
        counts, input = self.view.counts, self.run.input
        if input.source == "corrupted":
            rows = f"{counted(counts.examples, 'row')} of running text with spans of {input.noise_rate:.0%} of their tokens"
            return f"{rows}; {counted(counts.source_tokens, 'token')} of sources and {counts.tokens:,} of targets"
        if not self.task.backbone.reads_source:
            rows = f"{counted(counts.examples, 'row')} of up to {input.max_tokens}"
            return f"{counted(counts.tokens, 'token')} to predict, in {rows}"
        what = (
            f"{counted(counts.examples, 'pair')}, {counted(counts.source_tokens, 'token')} of sources and {counts.tokens:,} of "
            "targets"
        )
        if counts.empty:
            what += f"; {counted(counts.empty, 'pair')} with an empty side left out"
        if counts.long:
            done = "left out" if input.long == "leave_out" else "truncated"
            limits = f"input.max_source_tokens={input.max_source_tokens} or input.max_tokens={input.max_tokens}"
            what += f"; {counted(counts.long, 'pair')} longer than {limits} {done} (input.long={input.long})"
        return what

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return []

    def _dev_loss(self) -> Callable[[], dict[str, float]] | None:
        """The measure on the dev split; None if it holds nothing to predict."""
        if not len(self.store.split("dev")):
            return None
        task = self.task
        try:
            view = scores.held_out(task, self.store, "dev")
        except NothingToPredictError:
            return None
        numbers = spread_examples(view, self.run.dev.examples)

        def measure() -> dict[str, float]:
            sums = MeterSums(task)
            tallied = evaluate_next_tokens(task, view, numbers, read=sums.add)
            return {"dev_loss": tallied.summary()["loss"]} | sums.meters()

        return measure


@dataclass(frozen=True, kw_only=True)
class GenerativeRun(LanguageModelRun):
    """A model that predicts every token of a text from those before it.

    A model that reads sources learns from all pairs of a text and the text that it answers or translates, or from corrupted
    running text (`input.source`). Others learn from rows of running text.
    """

    name: ClassVar[str] = "generative"

    model: GenerativeModelConfig
    task: NextTokenConfig = field(default_factory=NextTokenConfig)
    input: PairInput = field(default_factory=PairInput)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: GenerativeDevConfig = field(default_factory=GenerativeDevConfig)

    def notes(self) -> list[str]:
        return []

    def normalized(self) -> Self:
        return replace(self, data="")

    def prepare(self, out: Path) -> PreparedGenerative:
        store = training_store(self.data)
        sentinels = SENTINELS if self.input.source == "corrupted" else 0
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed, sentinels=sentinels)
        torch.manual_seed(step_seed(self.seed, 0))
        task = self._task(tokenizer)
        view = generative_view(store, tokenizer, "train", self.input, sources=task.backbone.reads_source, seed=self.seed)
        return PreparedGenerative(self, store, task, view)

    def _task(self, tokenizer: Tokenizer) -> NextTokenLM:
        model = with_vocabulary(self.model, tokenizer)
        backbone = model.build()
        longest = backbone.max_tokens
        read = {"max_tokens": self.input.max_tokens}
        if backbone.reads_source:
            read["max_source_tokens"] = self.input.max_source_tokens
        for name, tokens in read.items():
            if longest is not None and tokens > longest:
                raise RamifyError(
                    f"input.{name}={tokens} is more than the {longest} tokens that the model reads. Lower input.{name}, or "
                    "choose a model that reads longer texts."
                )
        return initialized(lambda: NextTokenLM(backbone, tokenizer, self.input, self.task), backbone, model, self.init)

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Held-out loss, and BLEU of translations. Options: those of `scores`."""
        model = of_kind(pipeline, NextTokenPipeline, source, "a model that predicts texts token by token")
        return scores.evaluate(model, source, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        return report.parts(request)

"""Autoencoders of nested documents: AGENT."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from ramify import hub
from ramify.batching.document_batch import DocumentCollator
from ramify.batching.levels import Divisions, Levels, kinds_of, level_names
from ramify.batching.views.documents import Documents, LevelInput
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.documents.evaluation import drawn_examples
from ramify.inference.documents.pipeline import DocumentPipeline
from ramify.models.agent import AgentConfig
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, of_kind
from ramify.runs.language_models import LanguageModelRun, PreparedLanguageModel, training_store, with_vocabulary
from ramify.runs.nested_documents import report, scores
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import Tokenizer
from ramify.training.meters import VALUE, losses_of, read_meters
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage


@dataclass(frozen=True)
class NestedConfig:
    """The levels of documents, and the treatment of documents that are longer than a batch."""

    divisions: Divisions = "flatten"
    """flatten: those levels of `model.levels` that the data has. level: all levels of the data, so that parts and books of a
    work are levels, too."""
    whole_documents: bool = True
    """Whether a document that is longer than a batch is an example of its own, from which the highest level learns."""
    document_draws: int = 8
    """Copies of such a document in its batch, each with random draws of its own."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.document_draws < 1:
            raise RamifyError(f"view.document_draws must be at least 1, but is {self.document_draws}.")


@dataclass(frozen=True)
class NestedDevConfig:
    """The dev loss during training, on about `tokens` tokens of the dev split, with fixed draws."""

    tokens: int = 65_536

    def __post_init__(self) -> None:
        check_fields(self, "dev.")
        if self.tokens < 1:
            raise RamifyError(f"dev.tokens must be at least 1, but is {self.tokens}.")


@dataclass(frozen=True)
class PreparedNested(PreparedLanguageModel):
    """A run with its documents, for training and dev scores."""

    run: "NestedRun"
    task: NestedAutoencoder
    levels: Levels

    def stage(self, number: int) -> Stage[Documents]:
        config = self.run.stages[number]
        view = self._view(self.levels, config.budget)
        return Stage(config, view, self._collator(view, config.budget), self._dev_loss(config.budget))

    def _view(self, levels: Levels, budget: int) -> Documents:
        sizes = self.task.backbone.config
        whole = self.run.view.whole_documents
        return Documents(levels, sizes.max_children, self.task.input, budget=budget, whole_documents=whole)

    def _collator(self, view: Documents, budget: int) -> DocumentCollator:
        sizes = self.task.backbone.config
        padded = sizes.max_children if sizes.padding == "full" else None
        return DocumentCollator(view.rows, view.unit, budget, self.run.view.document_draws, padded)

    def facts(self) -> dict[str, Any]:
        view = self._view(self.levels, self.run.stages[0].budget)
        levels = {
            level.level.name: {
                "nodes": len(level.level.node),
                "rows": len(level),
                "cut": level.num_cut,
                "packed": level.num_packed,
                "children_left_out": level.left_out,
                "filled": int((~level.level.stored).sum()),
            }
            for level in view.rows.levels
        }
        return {"levels": levels, "tokens": len(self.levels.ids), "flattened": self.levels.flattened}

    def reads(self) -> str:
        facts = self.facts()
        nodes = ", ".join(counted(level["nodes"], name) for name, level in facts["levels"].items())
        notes = [
            f"{level[key]:,} of {counted(level['nodes'], name)} {text}"
            for name, level in facts["levels"].items()
            for key, text in (("cut", "cut into several rows"), ("packed", "packed"), ("filled", "fill a missing level"))
            if level[key]
        ]
        left = [
            f"{level['children_left_out']:,} children of {name}s left out"
            for name, level in facts["levels"].items()
            if level["children_left_out"]
        ]
        flat = [f"{counted(count, kind)} flattened" for kind, count in facts["flattened"].items()]
        return "; ".join([f"{counted(facts['tokens'], 'token')} in {nodes}", *notes, *left, *flat])

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return []

    def _dev_loss(self, budget: int) -> Callable[[], dict[str, float]] | None:
        """The measure on the dev split; None if it has no documents."""
        trees = self.store.split("dev")
        if not len(trees):
            return None
        view = self._view(Levels.open(self.store, self.task.tokenizer, self.levels.names, trees), budget)
        collator = self._collator(view, budget)
        # Spread evenly over the split, so that every book has a part in it.
        share = min(1.0, self.run.dev.tokens / max(1, int(view.target_tokens.sum())))
        chosen = np.unique(np.linspace(0, len(view) - 1, max(1, round(share * len(view)))).astype(np.int64))

        def measure() -> dict[str, float]:
            meters = read_meters(self.task, drawn_examples(self.task, view, collator, budget, chosen, self.run.seed))
            losses = {loss.name: loss.values[VALUE] for loss in losses_of(meters)}
            return {"dev_loss": sum(losses.values())} | {f"dev_{name}": value for name, value in losses.items()} | meters

        return measure


@dataclass(frozen=True, kw_only=True)
class NestedRun(LanguageModelRun):
    """An autoencoder of nested documents."""

    name: ClassVar[str] = "nested-documents"

    model: AgentConfig
    task: NestedAutoencoderConfig = field(default_factory=NestedAutoencoderConfig)
    input: LevelInput = field(default_factory=LevelInput)
    view: NestedConfig = field(default_factory=NestedConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: NestedDevConfig = field(default_factory=NestedDevConfig)

    def notes(self) -> list[str]:
        store = Store.open(self.data)
        if len(store.split("dev")):
            return []
        return [f"{self.data} has no dev documents, so no dev loss is computed and the last weights are kept."]

    def prepare(self, out: Path) -> PreparedNested:
        if self.task.encoder_only:
            raise RamifyError("task.encoder_only=true leaves no loss to train. Leave it out.")
        store = training_store(self.data)
        names = self._levels(store)
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed)
        tokenizer.require(("mask",), "agent")
        torch.manual_seed(step_seed(self.seed, 0))
        model = self.model if self.init else self.model.with_levels(names)
        model = with_vocabulary(model, tokenizer)
        levels = Levels.open(store, tokenizer, model.levels, store.split("train"))
        if not len(levels.ids):
            raise RamifyError(f"{self.data} has no text in its training documents. Choose other data.")
        return PreparedNested(self, store, self._task(model, tokenizer), levels)

    def _levels(self, store: Store) -> tuple[str, ...]:
        """The levels of the model, from the lowest. Raises `RamifyError` if the data has none of them."""
        if self.view.divisions == "level":
            return level_names(store, "level")
        kinds = kinds_of(store)
        names = tuple(name for name in self.model.levels if name in kinds)
        if not names:
            raise RamifyError(
                f"{self.data} has the levels {', '.join(sorted(kinds))}, but none of {', '.join(self.model.levels)}. Set "
                "model.levels, or view.divisions=level."
            )
        return names

    def _task(self, model: AgentConfig, tokenizer: Tokenizer) -> NestedAutoencoder:
        backbone = model.build()
        task = NestedAutoencoder(backbone, tokenizer, self.input, self.task)
        if self.init:
            hub.start_from(task, hub.checkpoint(self.init).tensors, self.init)
        return task

    def normalized(self) -> Self:
        return replace(self, data="")

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Held-out measures of every level. Options: those of `scores`."""
        model = of_kind(pipeline, DocumentPipeline, source, "a model of documents")
        return scores.evaluate(model, source, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        return report.parts(request)

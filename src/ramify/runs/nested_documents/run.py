"""Autoencoders of nested documents: AGENT."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from ramify import hub
from ramify.batching.document_batch import DocumentCollator, Role
from ramify.batching.levels import Divisions, Levels, kinds_of, level_names
from ramify.batching.views.documents import Documents, LevelInput
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.documents.cached_vectors import CachedVectors, FrozenVectors
from ramify.inference.documents.evaluation import held_out_losses
from ramify.inference.documents.pipeline import DocumentPipeline
from ramify.models.agent import AgentConfig
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, of_kind
from ramify.runs.language_models import LanguageModelRun, PreparedLanguageModel, training_store, with_vocabulary
from ramify.runs.nested_documents import report, scores, stages
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import Tokenizer
from ramify.training.config import TrainConfig
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage, token_budget, units


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
    roles: tuple[Role, ...]
    """The part of the model that learns in each stage."""
    frozen: int
    """The number of levels that are frozen in some stages."""

    def stage(self, number: int) -> Stage[Documents]:
        role, config = self.roles[number], self.run.stages[number]
        if role in stages.ON_LOWEST:
            config = replace(config, units=0)
        freeze = (*config.freeze, *stages.frozen_parameters(self.task, role, self.frozen))
        config = replace(config, freeze=freeze)
        view, collator, vectors = self._data(self.levels, config, role)
        self.run.check_replacement(view, config)
        dev, opened = self._dev_loss(config, role)

        def begin() -> None:
            if vectors is not None:
                self._fit_tokens(vectors.open())
            if opened is not None:
                opened.open()

        return Stage(
            config,
            view,
            collator,
            dev,
            make_sampler=units if config.units else token_budget,
            begin=begin,
            comparable=number == 0 or role is self.roles[number - 1],
        )

    def _data(
        self, levels: Levels, config: TrainConfig, role: Role
    ) -> tuple[Documents, DocumentCollator, FrozenVectors | None]:
        """Examples of documents for a stage, their collator, and the vectors that the collator reads, if any."""
        if role in stages.ON_LOWEST:
            levels = replace(levels, levels=levels.levels[: self.frozen])
        view = self._view(levels, config)
        sizes = self.task.backbone.config
        padded = sizes.max_children if sizes.padding == "full" else None
        collator = DocumentCollator(
            view.rows,
            view.unit,
            config.budget,
            self.run.view.document_draws,
            padded,
            chunked=bool(config.units) and role is Role.ALL,
            role=role,
        )
        if role is not Role.ABOVE:
            return view, collator, None
        vectors = FrozenVectors(self.task.backbone, collator, self.store, self.frozen - 1)
        return view, replace(collator, given=self.frozen, vectors=vectors), vectors

    def _view(self, levels: Levels, config: TrainConfig) -> Documents:
        return Documents(
            levels,
            self.task.backbone.config.max_children[: len(levels.levels)],
            self.task.input,
            budget=config.budget,
            whole_documents=self.run.view.whole_documents,
            divided=bool(config.units),
        )

    def _fit_tokens(self, vectors: CachedVectors) -> None:
        """Standardize the frozen level's vectors before tokens are added, unless the model has learned with tokens before."""
        skip = self.task.backbone.encoder(self.frozen - 1).token_skip
        if skip is not None and not skip.is_fitted:
            skip.fit(torch.from_numpy(vectors).to(self.task.device))

    def facts(self) -> dict[str, Any]:
        view = self._view(self.levels, self.run.stages[0])
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

    @cached_property
    def dev_levels(self) -> Levels | None:
        """The documents of the dev split; None if it has none."""
        trees = self.store.split("dev")
        return Levels.open(self.store, self.task.tokenizer, self.levels.names, trees) if len(trees) else None

    def _dev_loss(self, config: TrainConfig, role: Role) -> tuple[Callable[[], dict[str, float]] | None, FrozenVectors | None]:
        """The measure on the dev split, and the vectors that it reads, if any; None if the split has no documents."""
        if self.dev_levels is None:
            return None, None
        view, collator, vectors = self._data(self.dev_levels, config, role)
        # Spread evenly over the split, so that every book has a part in it.
        share = min(1.0, self.run.dev.tokens / max(1, int(view.target_tokens.sum())))
        chosen = np.unique(np.linspace(0, len(view) - 1, max(1, round(share * len(view)))).astype(np.int64))

        def measure() -> dict[str, float]:
            losses = held_out_losses(
                self.task, view, collator, config.budget, examples=chosen, units=config.units, seed=self.run.seed
            )
            return {"dev_loss": sum(losses.values())} | {f"dev_{name}": value for name, value in losses.items()}

        return measure, vectors


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
        roles = stages.roles(self.task.frozen, self.init, len(self.stages))
        self._check_queue()
        store = training_store(self.data)
        names = self._levels(store)
        begun = hub.checkpoint(self.init).model.levels if self.init else None
        if begun is not None:
            names = continued(begun, self.model.levels, names, self.init)
        frozen = stages.frozen_levels(self.task.frozen, names, begun)
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed)
        tokenizer.require(("mask",), "agent")
        torch.manual_seed(step_seed(self.seed, 0))
        model = with_vocabulary(self.model.with_levels(names), tokenizer)
        levels = Levels.open(store, tokenizer, model.levels, store.split("train"))
        if not len(levels.ids):
            raise RamifyError(f"{self.data} has no text in its training documents. Choose other data.")
        return PreparedNested(self, store, self._task(model, tokenizer, begun), levels, roles, frozen)

    def _check_queue(self) -> None:
        """Raise `RamifyError` for a queue beside batches of units: its vectors are of earlier weights, and easy to tell from
        those of the batch."""
        if self.task.queue and (number := max(stage.units for stage in self.stages)):
            raise RamifyError(
                f"task.queue={self.task.queue} adds candidates from earlier weights to batches of train.units={number}, which "
                "have enough of their own. Set task.queue=0."
            )

    def check_replacement(self, view: Documents, config: TrainConfig) -> None:
        """Raise `RamifyError` if no batch of a stage holds a second document from which children could be replaced."""
        if self.task.replacement != "other_document" or self.task.queue or len(view.rows.levels) == 1:
            return
        if config.units:
            alone = bool(view.apart.any())
        else:
            costs = [view.costs[view.trees == tree].min() for tree in np.unique(view.trees)]
            alone = sum(sorted(costs)[:2]) > config.budget or len(costs) < 2
        if alone:
            raise RamifyError(
                "task.replacement=other_document finds no other document in batches of a single one, and task.queue=0 holds "
                "none. Set task.replacement=any, or view.whole_documents=false and train.units to 2 or more."
            )

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

    def _task(self, model: AgentConfig, tokenizer: Tokenizer, begun: Sequence[str] | None) -> NestedAutoencoder:
        """The task with fresh weights, or with those of `init` on the levels that it has begun."""
        backbone = model.build()
        task = NestedAutoencoder(backbone, tokenizer, self.input, self.task)
        if begun is not None:
            added = (name for name in hub.own_tensors(task) if task.level_of(name) >= len(begun))
            task.optional = (*task.optional, *added)
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


def continued(begun: tuple[str, ...], wanted: tuple[str, ...], levels: tuple[str, ...], init: str) -> tuple[str, ...]:
    """The levels of a run that starts from a model with the levels `begun`: those, or more above them.

    `wanted` are those of the model's settings, and `levels` those that the data has among them. Raises `RamifyError` if the
    data lacks one.
    """
    if begun == wanted:
        return begun
    if levels[: len(begun)] != begun:
        raise RamifyError(
            f"--init {init} has the levels {', '.join(begun)}, but the data has {', '.join(levels)}, from the lowest. Start "
            "from a model of its lowest levels."
        )
    return levels

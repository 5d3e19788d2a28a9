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
from ramify.batching.forest import Ints
from ramify.batching.levels import Divisions, Levels, kinds_of, level_names
from ramify.batching.samplers import fewest_documents, fillable
from ramify.batching.views.documents import Documents, LevelInput, unit_level
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.documents.cached_vectors import CachedVectors, FrozenVectors
from ramify.inference.documents.evaluation import drawn_examples
from ramify.inference.documents.pipeline import DocumentPipeline
from ramify.models.agent import AgentConfig, as_json
from ramify.registry import task_name
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, of_kind
from ramify.runs.language_models import LanguageModelRun, PreparedLanguageModel, training_store, with_vocabulary
from ramify.runs.nested_documents import report, scores, stages
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.task import MATCHING_ABOVE, NestedAutoencoder
from ramify.tokenizer import Tokenizer
from ramify.training.config import TrainConfig
from ramify.training.meters import VALUE, losses_of, read_meters
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage, token_budget, units


@dataclass(frozen=True)
class NestedConfig:
    """The levels of documents, and the treatment of documents that are longer than a batch."""

    divisions: Divisions = "flatten"
    """flatten: those levels of `model.levels` that the data has. level: all levels of the data, so that parts and books of a
    work are levels, too."""
    whole_documents: bool = True
    """Whether documents are examples, from which the highest level learns. A document that is longer than a batch, and every
    one with `train.units`, is an example beside its chapters. false: chapters alone are read, and the highest level does not
    learn."""
    units_factor: int = 1
    """With task.above=in_turn, batches of the second level above the frozen one hold this many times `train.units`, those of
    the third again as many times more, and so on, as far as the data can fill them: a unit has few nodes of a high level."""
    neighbours: int = 0
    """Where examples would be single sentences, because no level above them is read: neighbouring sentences of a document, up
    to about so many tokens, are one example (0: each sentence is one). model.names needs it."""
    document_draws: int = 8
    """Copies of such a document in its batch, each with random draws of its own."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        for name in ("units_factor", "document_draws"):
            if getattr(self, name) < 1:
                raise RamifyError(f"view.{name} must be at least 1, but is {getattr(self, name)}.")
        if self.neighbours < 0:
            raise RamifyError(f"view.neighbours must not be negative, but is {self.neighbours}.")


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
    """The run with the settings of each stage: those of `ABOVE` are there once for each of its stages."""
    task: NestedAutoencoder
    levels: Levels
    scopes: tuple[stages.Scope, ...]
    """The part of the model that learns in each stage."""
    frozen: int
    """The number of levels that are frozen in some stages."""
    begun: int
    """The number of levels with weights from `init`."""

    def stage(self, number: int) -> Stage[Documents]:
        scope, config = self.scopes[number], self.run.stages[number]
        freeze = (*config.freeze, *stages.frozen_parameters(self.task, scope))
        config = replace(config, freeze=freeze)
        view, collator, vectors = self._data(self.levels, config, scope)
        config = replace(config, units=self._units(config, scope, view))
        self.run.check_replacement(view, config, self.run.seed + number)
        dev, opened = self._dev_loss(config, scope)

        def begin() -> None:
            if self.frozen and scope.role is not Role.ABOVE:
                self.task.clear_queues()
            if vectors is not None:
                self._fit_tokens(scope.first, vectors.open())
            if opened is not None:
                opened.open()

        return Stage(
            config,
            view,
            collator,
            dev,
            make_sampler=units if config.units else token_budget,
            begin=begin,
            comparable=number == 0 or scope == self.scopes[number - 1],
        )

    @cached_property
    def units(self) -> tuple[int, ...]:
        """The number of units of each stage's batches."""
        pairs = zip(self.run.stages, self.scopes, strict=True)
        return tuple(self._units(config, scope, self._view(self.levels, config, scope)) for config, scope in pairs)

    def _units(self, config: TrainConfig, scope: stages.Scope, view: Documents) -> int:
        """The number of units of a stage's batches, as far as the data can fill them."""
        if scope.role in stages.ON_LOWEST or not config.units:
            return 0
        return fillable(view.trees[~view.apart], config.units * self.run.view.units_factor ** scope.later(self.frozen))

    def _data(
        self, levels: Levels, config: TrainConfig, scope: stages.Scope
    ) -> tuple[Documents, DocumentCollator, FrozenVectors | None]:
        """Examples of documents for a stage, their collator, and the vectors that the collator reads, if any."""
        view = self._view(levels, config, scope)
        sizes = self.task.backbone.config
        padded = sizes.max_children if sizes.padding == "full" else None
        collator = DocumentCollator(
            view.rows,
            view.unit,
            config.budget,
            self.run.view.document_draws,
            padded,
            chunked=bool(config.units) and scope.role is Role.ALL,
            role=scope.role,
            depth=scope.end,
        )
        if scope.role is not Role.ABOVE:
            return view, collator, None
        vectors = FrozenVectors(self.task.backbone, collator, self.store, self.frozen - 1)
        for level in range(self.frozen, scope.first):
            vectors = FrozenVectors(self.task.backbone, collator, self.store, level, below=vectors)
        return view, replace(collator, given=scope.first, vectors=vectors), vectors

    def _view(self, levels: Levels, config: TrainConfig, scope: stages.Scope) -> Documents:
        if scope.role in stages.ON_LOWEST:
            levels = levels.lowest(scope.end)
        return Documents(
            levels,
            self.task.backbone.config.max_children[: len(levels.levels)],
            self.task.input,
            budget=config.budget,
            whole_documents=self.run.view.whole_documents and scope.end == len(levels.levels),
            divided=bool(config.units) and scope.role not in stages.ON_LOWEST,
            neighbours=self.run.view.neighbours,
        )

    def _fit_tokens(self, frozen: int, vectors: CachedVectors) -> None:
        """Standardize the vectors of the highest of some frozen levels before tokens are added, unless the model has learned
        with tokens before."""
        skip = self.task.backbone.encoder(frozen - 1).token_skip
        if skip is not None and not skip.is_fitted:
            skip.fit(torch.from_numpy(vectors).to(self.task.device))

    def facts(self) -> dict[str, Any]:
        everything = stages.Scope(Role.ALL, 0, len(self.levels.levels))
        view = self._view(self.levels, self.run.stages[0], everything)
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
        parts = [
            {"role": scope.role.name.lower(), "levels": self.levels.names[scope.levels], "units": units}
            for scope, units in zip(self.scopes, self.units, strict=True)
        ]
        return {"levels": levels, "tokens": len(self.levels.ids), "flattened": self.levels.flattened, "parts": parts}

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
        larger = [text for units, wanted, text in self._batches() if units > wanted]
        flat = [f"{counted(count, kind)} flattened" for kind, count in facts["flattened"].items()]
        return "; ".join([f"{counted(facts['tokens'], 'token')} in {nodes}", *notes, *left, *flat, *larger])

    def notes(self) -> list[str]:
        smaller = [(wanted, text) for units, wanted, text in self._batches() if 0 < units < wanted]
        if not smaller:
            return super().notes()
        adapted = (
            f"train.units={max(smaller)[0]} is more than {counted(len(self.store.split('train')), 'training document')} can "
            f"fill, because half of a batch's units are of different documents: {', '.join(text for _, text in smaller)}."
        )
        return [*super().notes(), adapted]

    def _batches(self) -> list[tuple[int, int, str]]:
        """The units of each stage's batches, as they are and as in the settings, and a clause about them."""
        names = self.levels.names
        return [
            (units, config.units, f"batches of {counted(units, names[unit_level(names)])} while {names[scope.first]}s learn")
            for config, scope, units in zip(self.run.stages, self.scopes, self.units, strict=True)
        ]

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        learned = self.begun
        for config, scope in zip(self.run.stages, self.scopes, strict=True):
            if scope.role is not Role.DECODER:
                learned = max(learned, self._view(self.levels, config, scope).num_levels)
        fresh = [
            f"No example of training holds a {name}, so vectors of {name}s are those of fresh weights. Set "
            "view.whole_documents=true if they are needed."
            for name in self.levels.names[learned:]
        ]
        return [*fresh, *self._without_decoder()]

    def _without_decoder(self) -> list[str]:
        """A warning if the lowest frozen level's decoder has not learned the vectors that the levels above read."""
        if not self.frozen or self.scopes[-1].role is not Role.ABOVE:
            return []
        name = self.levels.names[self.frozen - 1]
        return [
            f"The run ends before the stage in which the decoder of {name}s learns their vectors, so decoded text is "
            "worthless. Train that stage, too, if text is to be decoded (--decoder-tokens)."
        ]

    @cached_property
    def dev_levels(self) -> Levels | None:
        """The documents of the dev split; None if it has none."""
        trees = self.store.split("dev")
        return Levels.open(self.store, self.task.tokenizer, self.levels.names, trees) if len(trees) else None

    def _dev_loss(
        self, config: TrainConfig, scope: stages.Scope
    ) -> tuple[Callable[[], dict[str, float]] | None, FrozenVectors | None]:
        """The measure on the dev split, and the vectors that it reads, if any; None if the split has no documents."""
        if self.dev_levels is None:
            return None, None
        view, collator, vectors = self._data(self.dev_levels, config, scope)
        # Spread evenly over the split, so that every book has a part in it.
        share = min(1.0, self.run.dev.tokens / max(1, int(view.target_tokens.sum())))
        chosen = np.unique(np.linspace(0, len(view) - 1, max(1, round(share * len(view)))).astype(np.int64))

        def measure() -> dict[str, float]:
            batches = drawn_examples(self.task, view, collator, config.budget, chosen, units=config.units, seed=self.run.seed)
            meters = read_meters(self.task, batches)
            losses = {loss.name: loss.values[VALUE] for loss in losses_of(meters)}
            return {"dev_loss": sum(losses.values())} | {f"dev_{name}": value for name, value in losses.items()} | meters

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

    def changed(self, settings: Mapping[str, str]) -> Self:
        run = super().changed(settings)
        in_turn = run.task.above == "in_turn" and any(stage.units for stage in run.stages)
        if "view.units_factor" in settings and not in_turn:
            raise RamifyError(
                f"view.units_factor={settings['view.units_factor']} enlarges batches of train.units where each level has a "
                "stage of its own. Set task.above=in_turn and train.units, or leave it out."
            )
        return run

    def notes(self) -> list[str]:
        store = Store.open(self.data)
        if len(store.split("dev")):
            return []
        return [f"{self.data} has no dev documents, so no dev loss is computed and the last weights are kept."]

    def prepare(self, out: Path) -> PreparedNested:
        if self.task.encoder_only:
            raise RamifyError("task.encoder_only=true leaves no loss to train. Leave it out.")
        roles = stages.roles(self.task.frozen, self.init, len(self.stages))
        self._check_units(roles)
        store = training_store(self.data)
        names = self._levels(store)
        begun = None
        if self.init:
            checkpoint = hub.checkpoint(self.init)
            begun = checkpoint.model.levels
            names = continued(begun, self.model.levels, names, self.init)
            self.model.check_options(checkpoint)
        frozen = stages.frozen_levels(self.task.frozen, names, begun)
        self._check_documents(store, names)
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed)
        tokenizer.require(("mask",), "agent")
        torch.manual_seed(step_seed(self.seed, 0))
        model = with_vocabulary(self.model.with_levels(names), tokenizer)
        levels = Levels.open(store, tokenizer, model.levels, store.split("train"))
        if not len(levels.ids):
            raise RamifyError(f"{self.data} has no text in its training documents. Choose other data.")
        task = self._task(model, tokenizer, begun)
        self._check_tokens(task, frozen)
        self._check_names(model, roles)
        in_turn = self.task.above == "in_turn"
        pairs = [
            (config, scope)
            for config, role in zip(self.stages, roles, strict=True)
            for scope in stages.scopes(role, frozen, names, in_turn=in_turn)
        ]
        run = replace(self, stages=tuple(config for config, _ in pairs))
        scopes = tuple(scope for _, scope in pairs)
        return PreparedNested(run, store, task, levels, scopes, frozen, len(begun or ()))

    def _check_units(self, roles: Sequence[Role]) -> None:
        """Raise `RamifyError` for settings that do not fit batches of units."""
        task, number = self.task, max(stage.units for stage in self.stages)
        if task.queue and number and task.frozen is None:
            # Vectors of earlier weights are easy to tell from those of the batch.
            raise RamifyError(
                f"task.queue={task.queue} adds candidates from earlier weights to batches of train.units={number}, which "
                "have enough of their own. Set task.queue=0, or task.frozen."
            )
        chunked = any(stage.units and role is Role.ALL for stage, role in zip(self.stages, roles, strict=True))
        if chunked and task.autoencoder and task.autoencoder_distance == "relative":
            raise RamifyError(
                f"task.autoencoder_distance=relative is a ratio of means over all rows, but batches of train.units={number} "
                "are learned in chunks. Set task.autoencoder_distance=squared, or train.units=0."
            )

    def _check_documents(self, store: Store, names: Sequence[str]) -> None:
        """Raise `RamifyError` if children are to be replaced from another document, and the data have one."""
        if self._replaces_from_others() and len(names) > 1 and len(store.split("train")) == 1:
            raise RamifyError(
                f"task.replacement=other_document takes children from other documents, but {self.data} has one training "
                "document. Set task.replacement=any."
            )

    def _replaces_from_others(self) -> bool:
        """Whether each replaced child comes from another document of its batch."""
        return self.task.replacement == "other_document" and not (self.task.queue and self.task.frozen is None)

    def _check_tokens(self, task: NestedAutoencoder, frozen: int) -> None:
        """Raise `RamifyError` if tokens are added to vectors that no stage standardizes."""
        skip = task.backbone.encoder(0).token_skip
        if skip is not None and not skip.is_fitted and frozen != 1:
            raise RamifyError(
                f"model.token_skip=true with task.frozen={self.task.frozen or 'none'} adds tokens to vectors that are not "
                f"standardized: this happens when {task.names[1]} is frozen. Set task.frozen={task.names[1]}, or "
                "model.token_skip=false, or start from a model (--init) that was trained so."
            )

    def _check_names(self, model: AgentConfig, roles: Sequence[Role]) -> None:
        """Raise `RamifyError` if a memory of names learns in no stage, or reads no other sentences of a document."""
        if model.names is None:
            return
        live = any(role in stages.TEACH_TOKENS for role in roles)
        saved = hub.checkpoint(self.init).model if self.init else None
        if not live and (saved is None or saved.names is None):
            raise RamifyError(
                f"model.names={as_json(model.names)} adds a memory of names to --init {self.init}, but it learns with the "
                f"tokens, and task.frozen={self.task.frozen} leaves the run no stage in which they learn. Train it with the "
                "sentences (agent-sentence --names), or add a stage of all levels (--all-tokens)."
            )
        alone = unit_level(model.levels) == 0 or any(role in stages.ON_LOWEST for role in roles)
        if alone and not self.view.neighbours:
            raise RamifyError(
                f"model.names={as_json(model.names)} reads other sentences of a document, but view.neighbours=0 makes every "
                "sentence an example of its own where sentences learn alone. Set view.neighbours to a number of tokens, such "
                "as 512, or model.names=null."
            )

    def check_replacement(self, view: Documents, config: TrainConfig, seed: int) -> None:
        """Raise `RamifyError` if a batch of a stage holds a single document, so that no child could be replaced from another.
        Batches of tokens are those of the first epoch, which the seed determines."""
        if not self._replaces_from_others() or len(view.rows.levels) == 1:
            return
        if view.apart.any():
            cause = "view.whole_documents=true"
        elif config.units:
            cause = f"train.units={config.units}" if fewest_documents(view.trees, config.units) < 2 else ""
        else:
            batches = token_budget(view, config, seed).steps(0)
            cause = f"train.budget={config.budget}" if _any_of_one_document(view.trees, batches) else ""
        if cause:
            raise RamifyError(
                f"task.replacement=other_document finds no other document in batches of a single one, and {cause} makes such "
                "batches. Set task.replacement=any, or view.whole_documents=false and train.units to 3 or more."
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
            saved = hub.saved_config(self.init)
            assert saved is not None
            if not isinstance(saved.parts["task"], NestedAutoencoderConfig):
                raise RamifyError(
                    f"--init {self.init} holds a model of the task {task_name(saved.parts['task'])}, from which no autoencoder "
                    "starts. Name the run of `ramify train agent` from which it was made."
                )
            if saved.parts["task"].top == "collection" and len(begun) < backbone.depth:
                raise RamifyError(
                    f"--init {self.init} has no level above its {begun[-1]}s, which it reads as a collection "
                    "(task.top=collection), so it cannot start a model with more levels. Start from a model with task.top=none."
                )
            above = MATCHING_ABOVE if len(begun) > 1 else ()
            highest = ("top",) if len(begun) == backbone.depth else ()
            task.matching = (*task.matching, *above, *highest)
            hub.check_settings(task, saved, f"--init {self.init}")
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


def _any_of_one_document(trees: Ints, batches: Sequence[Ints]) -> bool:
    """Whether the examples of some batch are all of one document. `trees`: the document of each example."""
    starts = np.cumsum([0, *map(len, batches)])[:-1]
    documents = trees[np.concatenate(batches)]
    return bool((np.minimum.reduceat(documents, starts) == np.maximum.reduceat(documents, starts)).any())


def continued(begun: tuple[str, ...], wanted: tuple[str, ...], levels: tuple[str, ...], init: str) -> tuple[str, ...]:
    """The levels of a run that starts from a model with the levels `begun`: those, or more above them.

    `wanted` are those of the model's settings, and `levels` those that the data has among them. If a run adds no level, nodes
    fill levels that the data lacks. Raises `RamifyError` if it adds some, and the data lacks one below them.
    """
    if begun == wanted:
        return begun
    if levels[: len(begun)] != begun:
        raise RamifyError(
            f"--init {init} has the levels {', '.join(begun)}, but the data has {', '.join(levels)}, from the lowest. Start "
            "from a model of its lowest levels."
        )
    return levels

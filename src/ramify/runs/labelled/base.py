"""The common part of all runs on labelled texts: the backbone and where it starts, the tokenizer, the settings, and dev scores.

A kind of run for another label task is a final subclass of `LabelRun` with a final `PreparedLabels`:

- `LabelRun` declares `task` (a `DownstreamConfig`) and adds `prepare`, `adapt_to_data`, `score` and `report_sections`. In
  `prepare`, `started(…)` gives the backbone with its weights and the tokenizer, and `store_of` the data.
- `PreparedLabels` holds the training view and its collator, and adds `dev`: a function that scores the dev split by the task's
  metrics and loss. `dev.metric` names one of `Task.metrics`; it chooses the weights and stops early.
- The task, its pipeline, the view and the metrics are those of the subclass; nothing here knows about classes.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from ramify import hub
from ramify.batching.characters import vocabulary_spellings
from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelCollator
from ramify.batching.views.base import FrozenView, View
from ramify.batching.views.labelled import LabelInput
from ramify.checkpoints import Progress
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.kept_features import GIB, keep_features, kept_bytes
from ramify.metrics.classification import Predictions
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import ModelConfig, ReadsCharacters
from ramify.models.features import Concat, ConcatConfig
from ramify.progress import activity
from ramify.runs.base import Evaluation, Fitted, Prepared, Run, check_options, evaluation_command, of_kind
from ramify.runs.execute import own_run
from ramify.runs.labelled.scores import OPTIONS, LabelEvaluation, Scored
from ramify.runs.language_models import training_store, with_vocabulary
from ramify.runs.seeds import CURVE, SEEDS
from ramify.runs.token_vectors import start_with_vectors
from ramify.runs.tokenizers import TRAINED, TokenizerConfig, tokenizer_of
from ramify.tasks.downstream import DownstreamConfig, DownstreamTask
from ramify.tokenizer import Tokenizer
from ramify.training.meters import MeterSums
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage

DEFAULT = "default"

FIXED = (
    *("train.", "stages.", "model.", "task.mode", "task.head", "task.dropout", "task.max_norm", "task.decoder"),
    *("task.between", "task.hidden", "task.reads", "task.end", "task.candidates"),
)
"""Beginnings of the settings that a floor does not have."""

Candidate = tuple[dict[str, Any], DownstreamTask]
"""Settings, and a task that is fitted with them in closed form."""
MOST_FREQUENT = "most_frequent"
"""The key in metrics.jsonl of the share of the most frequent prediction."""
ONE_FOR_ALL = "the model predicts one thing for every dev example"

KEPT = "kept"
TOO_LARGE = "more than task.keep_gib, so computed anew in every epoch"
DRAWN = "computed anew in every epoch, because their contexts are drawn anew"
"""The treatment of the vectors of a frozen model."""


def said(facts: Mapping[str, int], *parts: tuple[str, str]) -> str:
    """The counts among facts that are not zero, for people, behind the amount of training data."""
    return "".join(f"; {facts[key]:,} {text}" for key, text in parts if facts[key])


def shared_folder(out: Path) -> Path:
    """The folder in which a run keeps what its other seeds, or the other points of a learning curve, can use, too."""
    return out.parent if any((out.parent / name).exists() for name in (SEEDS, CURVE)) else out


@dataclass(frozen=True)
class LabelDevConfig:
    """The dev score during training."""

    metric: str = DEFAULT
    """The metric that chooses the weights and stops early. default: the first one of the task, such as accuracy."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")

    def chosen(self, task: DownstreamTask) -> Metric:
        """The metric. Raises `RamifyError` if the task has none of this name."""
        named = {metric.name: metric for metric in task.metrics}
        if self.metric == DEFAULT:
            return task.metrics[0]
        if self.metric not in named:
            raise RamifyError(f"dev.metric={self.metric} is not a metric of these labels. Choose {', '.join(named)}.")
        return named[self.metric]

    def reported(self, task: DownstreamTask) -> Metric:
        """The metric of evaluations and reports: the chosen one or, because a loss is not comparable, the first one of the
        task."""
        metric = self.chosen(task)
        return task.metrics[0] if metric == DEV_LOSS else metric


@dataclass(frozen=True)
class ExamplesConfig:
    """The training examples."""

    examples: int | None = None
    """The number of labelled examples to train on, for learning curves. Smaller numbers take a part of larger ones, which the
    seed of the run draws. null: all."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.examples is not None and self.examples < 1:
            raise RamifyError(f"view.examples must be at least 1, but is {self.examples}.")

    def chosen(self, store: Store, nodes: Ints, seed: int, example: str) -> Ints:
        """The places of the examples among labelled nodes, in ascending order. Raises `RamifyError` if there are fewer.

        `example` names an example in messages."""
        if self.examples is None:
            return np.arange(len(nodes))
        if self.examples > len(nodes):
            raise RamifyError(
                f"view.examples={self.examples} is more than the {counted(len(nodes), example)} of the training split. Lower "
                "view.examples."
            )
        # A hash of its id decides on an example, so that the number of others does not.
        ids = zip(store.tree_ids(store.tree_of(nodes)), store.ids(nodes), strict=True)
        keys = [hashlib.blake2b(f"{seed}\n{tree}\n{node}".encode(), digest_size=8).digest() for tree, node in ids]
        first = sorted(range(len(keys)), key=lambda place: keys[place])[: self.examples]
        return np.sort(np.array(first, dtype=np.int64))


@dataclass(frozen=True)
class PreparedLabels(Prepared, ABC):
    """A run on labelled texts with its data opened and its model built."""

    run: "LabelRun"
    task: DownstreamTask
    folder: Path
    """The folder of the run, or that of all its seeds, which share the vectors of a frozen model."""
    train: Any
    """The training examples, a `FrozenView`; each kind of run narrows the type."""
    held_out: Any
    """The examples of the dev split; None: it has no labels."""
    fit: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Facts about a fit in closed form; none for models that are trained."""
    data_warnings: tuple[str, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def collator_of(self, view: Any) -> LabelCollator: ...

    @abstractmethod
    def measured(self, view: Any, sums: MeterSums) -> Predictions:
        """The predictions on the dev split, whose readings are added to `sums`. It may fit what dev decides on, so that the
        best weights are saved with it."""

    def dev(self) -> Callable[[], dict[str, float]] | None:
        """The measure on the dev split: the task's metrics, `dev_loss` and meters. None: the split has no labels."""
        if self.held_out is None:
            return None

        def measure() -> dict[str, float]:
            sums = MeterSums(self.task)
            predictions = self.measured(self.held_out, sums)
            found = predictions.scores() | {MOST_FREQUENT: predictions.most_frequent.share}
            loss = sum(sums.losses[name] / sums.counts[name] for name in sums.losses)
            return found | {"dev_loss": loss} | sums.meters()

        return measure

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        measured = [record for record in metrics if self.metric.name in record]
        best: Mapping[str, Any] = {}
        for record in measured:
            if self.metric.improves(record[self.metric.name], best.get(self.metric.name)):
                best = record
        only = [f"at its best dev score, of step {best['step']}, {ONE_FOR_ALL}."] if best.get(MOST_FREQUENT) == 1 else []
        return [*self.data_warnings, *only]

    @property
    def metric(self) -> Metric:
        """The metric that chooses the weights."""
        return self.run.dev.chosen(self.task)

    @property
    def collator(self) -> LabelCollator:
        return self.collator_of(self.train)

    @property
    def views(self) -> Sequence[tuple[FrozenView[Any], LabelCollator]]:
        """The views of train and dev, each with its collator."""
        return [(view, self.collator_of(view)) for view in (self.train, self.held_out) if view is not None]

    def begin(self) -> None:
        """Compute what depends on the device of the model, before the first step: the vectors of a frozen model."""
        if self.kept.get("how") == KEPT:
            for view, collator in self.views:
                keep_features(self.task, view, collator, self.folder, self.store.hash)

    @property
    def kept(self) -> dict[str, Any]:
        """The size of the vectors of a frozen model, and whether they are kept; nothing for a model that learns."""
        if not self.task.keeps_features:
            return {}
        size = sum(kept_bytes(self.task, view) for view, _ in self.views) / GIB
        fixed = all(view.is_fixed for view, _ in self.views)
        how = DRAWN if not fixed else KEPT if size <= self.task.config.keep_gib else TOO_LARGE
        return {"gib": round(size, 6), "how": how}

    def kept_note(self) -> str:
        """The same for people, behind the amount of training data."""
        found = self.kept
        return f"; vectors of the frozen model, {found['gib']:.3g} GiB: {found['how']}" if found else ""

    def stage(self, number: int) -> Stage[View[Any]]:
        return Stage(self.run.stages[number], self.train, self.collator, self.dev(), self.metric, begin=self.begin)

    def best_of(self, candidates: Iterable[Candidate]) -> Self:
        """The run with the fitted task that is best on dev; without a dev score, with the first one."""
        tried: list[dict[str, Any]] = []
        best: Self | None = None
        with activity("fitting"):
            for settings, task in candidates:
                fitted = replace(self, task=task, run=replace(self.run, model=task.backbone.config))
                measure, metric = fitted.dev(), fitted.metric
                measured = {} if measure is None else measure()
                score = measured.get(metric.name)
                tried.append({**settings, "dev": score})
                if best is None or (score is not None and metric.improves(score, best.fit["dev"])):
                    note = ONE_FOR_ALL if measured.get(MOST_FREQUENT) == 1 else ""
                    best = replace(
                        fitted, fit=tried[-1] | {"metric": metric.name, "tried": tried}, fitted=Fitted(metric, score, note)
                    )
        assert best is not None
        return best

    @property
    def fit_facts(self) -> dict[str, Any]:
        """The part of run.json about a fit in closed form."""
        return {"fit": dict(self.fit)} if self.fit else {}

    def best_score(self, progress: Progress) -> str:
        return f"best dev {self.metric.label.removeprefix('dev ')} {progress.best:.4f} at step {progress.best_step}"


@dataclass(frozen=True, kw_only=True)
class LabelRun(Run, ABC):
    """A run on labelled texts: from scratch, or from the backbone of any saved model or checkpoint (`init`)."""

    model: ModelConfig
    task: DownstreamConfig
    input: Any = field(default_factory=LabelInput)
    """Each kind of run declares its type."""
    view: ExamplesConfig = field(default_factory=ExamplesConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: LabelDevConfig = field(default_factory=LabelDevConfig)
    start: Literal["whole", "backbone"] = "whole"
    """The weights of `init` if it is a model with the same task. whole: all of them, which needs the same labels. backbone: the
    output layer begins anew."""

    pipeline: ClassVar[type[Pipeline]]
    """The models that the run trains."""
    purpose: ClassVar[str]
    """A name for them in messages, such as "a model that predicts tags of words"."""

    @classmethod
    @abstractmethod
    def score(cls, model: Any, store: Store, split: Split, options: Mapping[str, Any]) -> Scored:
        """The predictions of a model, which is a `pipeline`, on a split."""

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Scores beside a floor and, with the option `against`, another model on the same examples. Options: `OPTIONS`."""
        check_options(options, OPTIONS, source, cls.purpose)
        model: Any = of_kind(pipeline, cls.pipeline, source, cls.purpose)
        metric, difference = cls.metric_of(source, model.task), None
        scored = cls.score(model, store, split, options)
        if "against" in options:
            against = str(options["against"])
            other = of_kind(hub.load(against, device=pipeline.device), cls.pipeline, f"--against {against}", cls.purpose)
            difference = scored.difference(cls.score(other, store, split, options), metric.name, source, against)
        return LabelEvaluation(metric, scored, difference, unknown_pieces=scored.unknown_pieces, left_out=scored.left_out)

    @classmethod
    def metric_of(cls, source: str, task: DownstreamTask) -> Metric:
        """The metric that evaluates a model: that of the run in the folder `source`, or else the first one of the task."""
        run = own_run(cls, source)
        return (LabelDevConfig() if run is None else run.dev).reported(task)

    def check_settings(self, settings: Mapping[str, str]) -> None:
        if "init" in settings:
            raise RamifyError(
                f"--set init={settings['init']} cannot choose the model, whose layout and size come with it. Use --init."
            )
        for key in settings:
            if not self.stages and key.startswith(FIXED):
                raise RamifyError(
                    f"--set {key}={settings[key]} has no effect on a floor, which is fitted in closed form. Leave it out, or "
                    "choose another --model."
                )
            if self.stages and key.startswith("fit."):
                raise RamifyError(
                    f"--set {key}={settings[key]} is for a floor that is fitted in closed form, but this model is trained. "
                    "Leave it out, or choose --model tfidf."
                )
        fixed = [f"tokenizer.{name}" for name in TRAINED] if self.init else []
        for key in fixed:
            if key in settings:
                raise RamifyError(
                    f"--set {key}={settings[key]} is for a tokenizer that the run trains, but it takes that of --init "
                    f"{self.init}. Leave {key} out."
                )

    def notes(self) -> list[str]:
        return []

    def normalized(self) -> Self:
        return replace(self, data="")

    @property
    def weight_sources(self) -> tuple[str, ...]:
        return tuple(filter(None, [self.init]))

    def next_command(self, out: Path, store: Store) -> str:
        return evaluation_command(out, self.data, store)

    def store_of(self) -> Store:
        """The data set. Raises `RamifyError` if none of its trees is for training."""
        return training_store(self.data)

    def started(self, store: Store, out: Path) -> tuple[Any, Tokenizer]:
        """The backbone with its first weights, and its tokenizer. The seed of the run determines fresh weights, also those of
        what is built next."""
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed)
        torch.manual_seed(step_seed(self.seed, 0))
        model = with_vocabulary(self.model, tokenizer)
        backbone = model.build()
        if self.init:
            checkpoint = hub.checkpoint(self.init)
            model.initialize(backbone, checkpoint)
            if isinstance(backbone, Concat) and not isinstance(checkpoint.model, ConcatConfig):
                start_with_vectors(backbone.reader, tokenizer)
            return backbone, tokenizer
        if isinstance(backbone, ReadsCharacters) and backbone.reads_characters:
            backbone.spell(vocabulary_spellings(tokenizer))
        start_with_vectors(backbone, tokenizer)
        return backbone, tokenizer

    def continued(self, task: DownstreamTask) -> None:
        """Load all weights of `init` into the task, if `init` is a model with the same task (`start`).

        Raises `RamifyError` if its labels are others.
        """
        saved = hub.saved_config(self.init) if self.init else None
        if saved is None or self.start == "backbone" or type(saved.parts["task"]) is not type(task.config):
            return
        if type(saved.model) is not type(self.model):
            # Its layers are features.
            return
        for name in task.matching:
            theirs, ours = getattr(saved.parts["task"], name), getattr(task.config, name)
            if theirs != ours:
                raise RamifyError(
                    f"init={self.init} was trained with {name}={_shown(theirs)}, but the labels of {self.data} have "
                    f"{name}={_shown(ours)}. Take its backbone alone with --set start=backbone, or choose another checkpoint."
                )
        hub.start_from(task, hub.checkpoint(self.init).tensors, self.init)


def _shown(value: Any) -> str:
    """A setting for a message; of long lists, the number and the first entries."""
    if not isinstance(value, tuple):
        return str(value)
    more = ", …" if len(value) > 5 else ""
    return f"[{', '.join(map(str, value[:5]))}{more}] ({len(value)})"

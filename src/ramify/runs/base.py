"""The contracts of runs: settings, the prepared model and data, evaluation, and the content of reports."""

import shlex
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ramify import hub
from ramify.checkpoints import Progress
from ramify.config import check_fields, check_seed, from_record
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, with_article
from ramify.inference.base import Pipeline
from ramify.metrics.metric import Metric
from ramify.nn.precision import autocast
from ramify.registry import MODELS, TASKS, model_of, model_record, task_name
from ramify.runs.sections import Section, Spans
from ramify.runs.settings import Texts, set_fields
from ramify.tasks.base import Task
from ramify.tokenizer import UnknownTokens
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage

Kind = TypeVar("Kind", bound=Pipeline)

NO_DEV_SCORE = "no dev score: the dev split holds nothing to score"

SAMPLES = "samples"
"""The folder of texts that a run generates while it trains, one file per evaluation."""


@dataclass(frozen=True)
class Fitted:
    """The result of a fit in closed form."""

    metric: Metric
    score: float | None
    """The best dev score; None: the dev split holds nothing to score."""
    note: str = ""
    """A reservation about the score."""

    def line(self) -> str:
        if self.score is None:
            return f"fitted, {NO_DEV_SCORE}"
        return f"fitted, dev {self.metric.label} {self.score:.4f}{self.note and f'; {self.note}'}"


@dataclass(frozen=True)
class Prepared(ABC):
    """A run with its data opened and its model built."""

    run: "Run"
    store: Store
    task: Task[Any]
    fitted: Fitted | None = field(default=None, kw_only=True)
    """The result of a fit in closed form; None: the model is trained in stages."""
    adapted: tuple[str, ...] = field(default=(), kw_only=True)
    """Settings that the data cannot fill, and what the run does instead, for users."""

    @abstractmethod
    def stage(self, number: int) -> Stage[Any]:
        """The training data and the dev measure of a stage."""

    def pipeline(self) -> Pipeline:
        """The trained task, wrapped for use, with the name of its kind of run."""
        pipeline = TASKS[task_name(self.run.task)].wrap(self.task, vars(self.run))
        pipeline.kind = self.run.name
        return pipeline

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Facts for run.json about the data as this run reads it."""

    @abstractmethod
    def reads(self) -> str:
        """The amount of training data, and the share of it that the longest text cuts, for the terminal before training."""

    def notes(self) -> list[str]:
        """Facts for users before training: `adapted`, and the reason why a model whose kind has another library's form cannot
        be saved in it."""
        if not hub.has_foreign_form(self.run.model):
            return [*self.adapted]
        try:
            hub.foreign_files(self.pipeline())
        except RamifyError as error:
            return [*self.adapted, f"the trained model cannot be saved in Hugging Face's form: {error}"]
        return [*self.adapted]

    @abstractmethod
    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        """Problems in training that did not stop it."""

    @abstractmethod
    def best_score(self, progress: Progress) -> str:
        """The best dev score, its step, and how it was measured, for the terminal."""


@dataclass(frozen=True)
class ReportRequest:
    """The inputs of a report. `pipeline` and `store` are None if they are missing or no evaluation is requested."""

    record: Mapping[str, Any]
    """The run's run.json."""
    metrics: Sequence[Mapping[str, Any]]
    pipeline: Pipeline | None
    store: Store | None
    split: Split
    draws: int
    comments: int
    progress: Callable[[int], None] | None = None


@dataclass(frozen=True)
class ReportParts:
    """The parts of a report that a kind of run writes, as plain data."""

    purpose: str
    """The purpose of the model, as a clause that completes "This model …"."""
    examples: str
    """A name for the run's targets, such as "predicted comments"."""
    sections: tuple[Section, ...]
    headline: Spans = ()
    """One sentence with the model's main score."""
    missing: str = ""
    """The reason why a requested evaluation is missing."""
    data: tuple[tuple[str, str], ...] = ()
    """Facts about the training data, as (name, value)."""


@dataclass(frozen=True)
class Evaluation(ABC):
    """Scores of a model on a split."""

    unknown_pieces: UnknownTokens | None = field(default=None, kw_only=True)
    """The unknown tokens of the split; None for models that read no pieces of words."""
    left_out: tuple[str, ...] = field(default=(), kw_only=True)
    """Why some scores are left out, for people."""

    def unknown_tokens(self) -> dict[str, int]:
        """The number of unknown tokens, as a part of the JSON."""
        return {} if self.unknown_pieces is None else {"unknown_tokens": self.unknown_pieces.count}

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @abstractmethod
    def lines(self) -> list[str]:
        """The scores as lines for a terminal."""


@dataclass(frozen=True, kw_only=True)
class Run(ABC):
    """Everything that decides a result, as one frozen value that run.json stores.

    Each kind of run is a final subclass in a file of its own, with concretely typed parts: `model`, `task`, `input`, `view`,
    `tokenizer`, `dev`.
    """

    name: ClassVar[str]
    """The name of this kind in run.json and in `RUNS`."""

    recipe: str
    data: str
    """The folder of a built data set."""
    model: Any
    task: Any
    """Each kind of run declares the types of `model` and `task`."""
    stages: tuple[TrainConfig, ...] = (TrainConfig(),)
    init: str = ""
    """A checkpoint to start from, as a directory or hub id. The model takes its sizes: see `sized`."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)

    # --- settings ----------------------------------------------------------------------------------------------------

    def changed(self, settings: Mapping[str, str]) -> Self:
        """A copy with settings from text. Raises `RamifyError` for unknown keys and invalid values.

        Keys are `model.dim`, `task.…`, `input.…`, `view.…`, `tokenizer.…`, `dev.…`, `train.…` (every stage), `stages.0.…`,
        `seed`, and `init`, which is applied first because it sizes the model.
        """
        self.check_settings(settings)
        run = self.sized(settings.get("init", ""))
        run_settings: dict[str, tuple[str, str]] = {}
        changes: list[dict[str, tuple[str, str]]] = [{} for _ in run.stages]
        for key, text in settings.items():
            head, _, rest = key.partition(".")
            if key in ("recipe", "data"):
                raise RamifyError(f"--set {key}={text} cannot change the {key} of a run. Name it in the command itself.")
            if head == "train":
                for stage in changes:
                    stage[rest] = (text, key)
            elif head == "stages":
                number, _, name = rest.partition(".")
                if not number.isdigit() or int(number) >= len(changes):
                    raise RamifyError(f"--set {key} names no stage of the run, which has {len(run.stages)}, counted from 0.")
                changes[int(number)][name] = (text, key)
            else:
                run_settings[key] = (text, key)
        stages = tuple(map(set_fields, run.stages, map(_with_one_length, changes)))
        return set_fields(replace(run, stages=stages), run_settings)

    def to_json(self) -> dict[str, Any]:
        """The settings. Model and task carry their registered names."""
        record = asdict(self)
        record["model"] = model_record(self.model)
        record["task"] = {"name": task_name(self.task), **record["task"]}
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """A run from the output of `to_json`. Raises `RamifyError` if settings are missing or unknown."""
        kinds = typing.get_type_hints(cls)
        try:
            values: dict[str, Any] = dict(record)
            values["stages"] = tuple(from_record(TrainConfig, stage) for stage in record["stages"])
            for name, table in (("model", MODELS), ("task", {name: kind.config for name, kind in TASKS.items()})):
                config = table[record[name]["name"]]
                if not issubclass(config, kinds[name]):
                    raise ValueError(f"{name} {record[name]['name']!r} in a run of kind {cls.name}")
                values[name] = model_of(record[name]) if name == "model" else from_record(config, _unnamed(record[name]))
            for name, value in record.items():
                if name not in ("stages", "model", "task") and is_dataclass(kinds.get(name)):
                    values[name] = from_record(kinds[name], _unnamed(value), f"{name}.")
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RamifyError(f"the settings are damaged or from another version of Ramify ({error!r}).") from None

    # --- before training ---------------------------------------------------------------------------------------------

    def sized(self, init: str) -> Self:
        """A copy with the sizes and conventions of a checkpoint. Raises `RamifyError` if it does not fit the model."""
        return replace(self, model=self.model.adapted_to(hub.checkpoint(init))) if init else self

    @abstractmethod
    def check_settings(self, settings: Mapping[str, str]) -> None:
        """Raise `RamifyError` if `--set` may not change one of these keys."""

    @abstractmethod
    def adapt_to_data(self) -> Self:
        """A copy with the settings that the data set determines. Recipes call it."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Warnings for the user before training starts."""

    @abstractmethod
    def prepare(self, out: Path) -> Prepared:
        """Open the data and build the model. A resumed run reads its tokenizer from its folder, `out`."""

    @abstractmethod
    def normalized(self) -> Self:
        """A copy for comparisons: equivalent settings are spelled alike, and the path of the data is empty."""

    @property
    @abstractmethod
    def weight_sources(self) -> tuple[str, ...]:
        """The checkpoints whose weights the run reads."""

    # --- afterwards --------------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Score a model on a split. `source` names the model in messages. Raises `RamifyError` for a model of another kind.

        Every kind has the options `precision` and `progress`, a function from the number of examples to a context manager such
        as `no_progress`. Raises `RamifyError` for an option that this kind does not have.
        """

    @abstractmethod
    def report_sections(self, request: ReportRequest) -> ReportParts:
        """The parts of a report that depend on the kind of run."""

    @abstractmethod
    def next_command(self, out: Path, store: Store) -> str:
        """The `ramify` command to suggest after training."""


def _with_one_length(settings: Texts) -> Texts:
    """Settings of a stage, in which a length in updates replaces one in epochs, and the other way round."""
    for name, other, none in (("steps", "epochs", "null"), ("epochs", "steps", "0")):
        if name in settings and other not in settings and settings[name][0].lower() not in ("0", "null", "none"):
            return {**settings, other: (none, settings[name][1])}
    return settings


def _unnamed(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "name"}


def evaluation_command(out: Path, data: str, store: Store) -> str:
    """The `ramify` command that evaluates a run on the test split; without test trees, on dev; without either, on all."""
    split = "" if len(store.split("test")) else " --split dev" if len(store.split("dev")) else " --split all"
    return f"evaluate {shlex.quote(str(out))} --data {shlex.quote(data)}{split}"


def of_kind(pipeline: Pipeline, kind: type[Kind], source: str, what: str) -> Kind:
    """The pipeline. Raises `RamifyError` if it is not of this kind, which `what` describes."""
    if not isinstance(pipeline, kind):
        raise RamifyError(f"{source} holds {with_article(type(pipeline).__name__)}, not {what}. Choose another model.")
    return pipeline


@contextmanager
def no_progress(total: int) -> Iterator[Callable[[int], None]]:
    """A silent progress bar. Yields a function that takes the number of examples done."""
    yield lambda count: None


@contextmanager
def scoring(pipeline: Pipeline, total: int, options: Mapping[str, Any]) -> Iterator[Callable[[int], None]]:
    """Compute with the precision and the progress bar over `total` examples that the options of an evaluation give. Yields what
    `no_progress` does."""
    bar, precision = options.get("progress", no_progress), options.get("precision", "fp32")
    with bar(total) as advance, autocast(pipeline.device, precision):
        yield advance


def check_options(options: Mapping[str, Any], known: Sequence[str], source: str, what: str) -> None:
    """Raise `RamifyError` for an option outside `known`. `what` describes `source` in the message."""
    for name in options:
        if name not in known:
            raise RamifyError(f"--{name.replace('_', '-')} does not apply to {source}, which holds {what}. Leave it out.")

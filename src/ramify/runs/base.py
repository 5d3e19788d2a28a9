"""What every kind of run is: settings that decide a result, and what the rest of the program asks of them."""

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from ramify.config import check_fields, from_record
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.inference.base import Pipeline
from ramify.registry import MODELS, model_name, task_name
from ramify.runs.sections import Section, Spans
from ramify.runs.settings import set_fields
from ramify.tasks.base import Task
from ramify.training.checkpoints import Progress
from ramify.training.config import TrainConfig
from ramify.training.trainer import Stage

RUN_FILE = "run.json"
"""A folder that has it is a run's."""


@dataclass(frozen=True)
class Prepared(ABC):
    """A run with its data opened and its model built."""

    run: "Run"
    store: Store
    task: Task[Any]

    @abstractmethod
    def stage(self, number: int) -> Stage:
        """What a stage of the run trains on, and how the dev set measures it."""

    @abstractmethod
    def pipeline(self) -> Pipeline:
        """The task as users get it."""

    @abstractmethod
    def divisors(self) -> dict[str, float] | None:
        """What divides each loss of a step. None: the mean weight of a step. 0: the step's own weight."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What run.json records about the data as this run reads it."""

    @abstractmethod
    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        """What went wrong in training without stopping it."""

    @abstractmethod
    def best_score(self, progress: Progress) -> str:
        """The best score on dev, its step, and how it was measured, for the terminal."""


@dataclass(frozen=True)
class ReportRequest:
    """What a report is written from. `pipeline` and `store` are None where they are absent or not asked for."""

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
    """What a kind of run adds to a report, as plain data."""

    purpose: str
    """A clause that completes "This model …": what it does."""
    examples: str
    """What the run's target tokens belong to, such as "predicted comments"."""
    sections: tuple[Section, ...]
    headline: Spans = ()
    """One sentence with the model's main figure."""
    missing: str = ""
    """Why the model could not be measured, where it was asked for."""
    data: tuple[tuple[str, str], ...] = ()
    """Facts about the training data: name and value."""


@dataclass(frozen=True)
class Evaluation(ABC):
    """Scores of a model on a split."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @abstractmethod
    def lines(self) -> list[str]:
        """The scores as a terminal shows them."""


@dataclass(frozen=True, kw_only=True)
class Run(ABC):
    """Everything that decides a result, as one frozen value; run.json holds it.

    Each kind of run is a final subclass in a file of its own, with concretely typed parts: `model`, `task`, `input`, `view`,
    `tokenizer`, `dev`.
    """

    name: ClassVar[str]
    """What run.json and the table of runs call this kind."""

    recipe: str
    data: str
    """The folder of a built data set."""
    model: Any
    task: Any
    """Each kind of run says of which type these two are."""
    stages: tuple[TrainConfig, ...] = (TrainConfig(),)
    init: str = ""
    """A checkpoint (directory or hub id) to start from. The model takes over its sizes: see `sized`."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.seed < 2**63:
            raise RamifyError(f"seed must be at least 0 and below 2^63, not {self.seed}.")

    # --- settings ----------------------------------------------------------------------------------------------------

    def changed(self, settings: Mapping[str, str]) -> Self:
        """With settings from text: `model.dim`, `task.…`, `input.…`, `view.…`, `tokenizer.…`, `dev.…`, `train.…` (every
        stage), `stages.0.…`, `seed`, and `init`, which is applied first because it sizes the model."""
        self.check_settings(settings)
        run = self.sized(settings.get("init", ""))
        own: dict[str, tuple[str, str]] = {}
        stages: list[dict[str, tuple[str, str]]] = [{} for _ in run.stages]
        for key, text in settings.items():
            head, _, rest = key.partition(".")
            if head == "train":
                for stage in stages:
                    stage[rest] = (text, key)
            elif head == "stages":
                number, _, name = rest.partition(".")
                if not number.isdigit() or int(number) >= len(run.stages):
                    raise RamifyError(f"--set {key}: this recipe has {len(run.stages)} stage(s), counted from 0.")
                stages[int(number)][name] = (text, key)
            else:
                own[key] = (text, key)
        return set_fields(replace(run, stages=tuple(map(set_fields, run.stages, stages))), own)

    def to_json(self) -> dict[str, Any]:
        """The settings; model and task carry their registered names."""
        record = asdict(self)
        record["model"] = {"name": model_name(self.model), **record["model"]}
        record["task"] = {"name": task_name(self.task), **record["task"]}
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """A run from what `to_json` wrote. Raises `RamifyError` where it holds other settings."""
        kinds = typing.get_type_hints(cls)
        try:
            values: dict[str, Any] = dict(record)
            values["stages"] = tuple(from_record(TrainConfig, stage) for stage in record["stages"])
            values["model"] = from_record(MODELS[record["model"]["name"]][0], _unnamed(record["model"]))
            for name, value in record.items():
                if name not in ("stages", "model") and is_dataclass(kinds.get(name)):
                    values[name] = from_record(kinds[name], _unnamed(value))
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RamifyError(f"the settings are damaged, or another version of Ramify wrote them ({error!r}).") from None

    # --- before training ---------------------------------------------------------------------------------------------

    @abstractmethod
    def sized(self, init: str) -> Self:
        """With what a checkpoint settles: its sizes and conventions. Raises `RamifyError` where it does not suit the model."""

    @abstractmethod
    def check_settings(self, settings: Mapping[str, str]) -> None:
        """Raise where `--set` may not change one of these keys."""

    @abstractmethod
    def adapt_to_data(self) -> Self:
        """With the settings that the data set leaves no choice about."""

    @abstractmethod
    def notes(self) -> list[str]:
        """What a user should know before training starts."""

    @abstractmethod
    def prepare(self, out: Path) -> Prepared:
        """Open the data and build the model. `out` is the run's folder: an earlier start left its tokenizer there."""

    @abstractmethod
    def normalized(self) -> Self:
        """With one spelling for settings that mean the same, and without the data's path, so that runs can be compared."""

    @property
    @abstractmethod
    def weight_sources(self) -> tuple[str, ...]:
        """The models whose weights the run reads."""

    # --- afterwards --------------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def evaluates(cls, pipeline: Pipeline) -> bool:
        """Whether `evaluate` scores models like this one."""

    @classmethod
    @abstractmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Score a model on a split. `source` is where the model comes from, for messages.

        Options that every kind has: `precision`, and `progress`, a function from the number of examples to a context manager
        such as `no_progress`. Raises `RamifyError` for an option that this kind does not have.
        """

    @abstractmethod
    def report_sections(self, request: ReportRequest) -> ReportParts:
        """The parts of a report that only this kind of run knows."""

    @abstractmethod
    def next_command(self, out: Path, store: Store) -> str:
        """The `ramify` command that a user would want next."""


def _unnamed(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "name"}


@contextmanager
def no_progress(total: int) -> Iterator[Callable[[int], None]]:
    """In place of a progress bar of so many examples: yields a function that is told of each that is done."""
    yield lambda count: None


def check_options(options: Mapping[str, Any], known: Sequence[str], source: str, what: str) -> None:
    """Raise where an option is given that the models at hand do not have."""
    for name in options:
        if name not in known:
            raise RamifyError(f"--{name.replace('_', '-')} does not apply to {source}, which holds {what}. Leave it out.")

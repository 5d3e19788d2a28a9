"""The parts that all runs of language models share: their base, the training data, and the size of the vocabulary."""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from ramify import hub
from ramify.checkpoints import Progress
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.models.base import GenerativeModelConfig, ModelConfig, StreamModelConfig
from ramify.runs.base import Prepared, Run, evaluation_command
from ramify.runs.tokenizers import TRAINED
from ramify.tasks.base import Task
from ramify.tokenizer import Tokenizer

Model = TypeVar("Model", bound=ModelConfig)
TaskT = TypeVar("TaskT", bound=Task[Any])


@dataclass(frozen=True)
class PreparedLanguageModel(Prepared, ABC):
    """A run of a language model with its data opened and its model built."""

    def best_score(self, progress: Progress) -> str:
        return f"best dev loss {progress.best:.4f} at step {progress.best_step}"


@dataclass(frozen=True, kw_only=True)
class LanguageModelRun(Run, ABC):
    """A run of a language model. The data set determines none of its settings."""

    def check_settings(self, settings: Mapping[str, str]) -> None:
        init = settings.get("init", self.init)
        for key in (f"tokenizer.{name}" for name in TRAINED if init):
            if key in settings:
                raise RamifyError(
                    f"--set {key}={settings[key]} is for a tokenizer that the run trains, but it takes that of --init {init}. "
                    f"Leave {key} out."
                )

    def adapt_to_data(self) -> Self:
        return self

    @property
    def weight_sources(self) -> tuple[str, ...]:
        return tuple(filter(None, [self.init]))

    def next_command(self, out: Path, store: Store) -> str:
        return evaluation_command(out, self.data, store)


def training_store(data: str) -> Store:
    """Open the data set of a run. Raises `RamifyError` if none of its trees is for training."""
    store = Store.open(data)
    if len(store.split("train")) == 0:
        raise RamifyError(f"{data} has no training trees. Build it with a larger share for train (--split).")
    return store


def initialized(
    build: Callable[[], TaskT], backbone: Any, model: GenerativeModelConfig | StreamModelConfig, init: str
) -> TaskT:
    """The task of a backbone, which `build` makes. If `init` names a saved model, both start from its weights.

    Raises `RamifyError` for weights that fit neither.
    """
    if not init:
        return build()
    checkpoint = hub.checkpoint(init)
    model.initialize(backbone, checkpoint)
    task = build()
    saved = hub.saved_config(init)
    if saved is None:
        hub.load_own_tensors(task, hub.own_tensors(task) | hub.foreign_heads(checkpoint, model), init)
    else:
        hub.check_settings(task, saved, init)
        hub.start_from(task, checkpoint.tensors, init)
    return task


def with_vocabulary(model: Model, tokenizer: Tokenizer) -> Model:
    """The model with the tokenizer's vocabulary, unless it has a size of its own. Raises `RamifyError` if that is too small."""
    config = model if model.vocab_size else model.for_vocabulary(tokenizer.vocab_size)
    if config.vocab_size < tokenizer.vocab_size:
        raise RamifyError(
            f"model.vocab_size={config.vocab_size} is too small for the {tokenizer.vocab_size} pieces of the tokenizer."
        )
    return config

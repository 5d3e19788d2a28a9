"""The contract of Hugging Face forms: an adapter reads a checkpoint of the other library as a model of ours, and writes one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from ramify.models.base import Checkpoint, ModelConfig
from ramify.models.hf_heads import LabelHead
from ramify.tokenizer import Layout, Role

Config = TypeVar("Config", bound=ModelConfig)


@dataclass(frozen=True)
class PortableModel(Generic[Config]):
    """A model between its two forms: all that a checkpoint says, in Ramify's terms."""

    config: Config
    backbone: Mapping[str, Tensor]
    """The backbone's tensors. Tied ones stand under all their names."""
    heads: Mapping[str, Tensor] = field(default_factory=dict)
    """The tensors of the heads under the names that the task gives them; empty if the checkpoint has no head."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task: those that the heads need in a checkpoint that was read, all in a model to be written."""
    input: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the input: those that the checkpoint states, such as the layout of rows, or all."""
    label_head: LabelHead | None = None
    """The head of a task on labelled texts, in place of `heads`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the config other than these, for which a checkpoint that was read has weights, too."""
    pad_id: int | None = None
    """The padding token of a model to be written; None: its tokenizer has none."""


@dataclass(frozen=True)
class ForeignFiles:
    """The content of a checkpoint in Hugging Face's form."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    layout: Layout
    """The special tokens around one and two texts, which the tokenizer adds."""
    tokenizer: Mapping[str, Any]
    """Settings of tokenizer_config.json that the model determines."""
    roles: Mapping[str, Role] = field(
        default_factory=lambda: {"pad_token_id": "pad", "bos_token_id": "bos", "eos_token_id": "eos"}
    )
    """The special tokens that config.json states, by the names of their ids."""


class HFAdapter(ABC, Generic[Config]):
    """The Hugging Face form of a model."""

    @property
    @abstractmethod
    def model(self) -> type[Config]:
        """The class of the models' config."""

    @abstractmethod
    def read_config(self, directory: Path) -> Config:
        """Read the config of a checkpoint. Raises `RamifyError` for a setting that Ramify lacks."""

    @abstractmethod
    def read(self, checkpoint: Checkpoint, config: Config) -> PortableModel[Config]:
        """Read a checkpoint for a model of this config, which may differ from the checkpoint's in settings without weights.

        Raises `RamifyError`, which names every tensor that is missing or not expected, as the checkpoint spells it.
        """

    @abstractmethod
    def write(self, model: PortableModel[Config]) -> ForeignFiles:
        """The model in Hugging Face's form. Raises `RamifyError` for settings that have none."""

"""Use of models of nested documents: vectors of every level, text from vectors, and coherence."""

from typing import Any, ClassVar

from ramify.inference.base import Pipeline
from ramify.models.agent import Agent
from ramify.tasks.nested_autoencoder import NestedAutoencoder


class DocumentPipeline(Pipeline):
    """A model that turns each sentence, paragraph, chapter and document into a vector."""

    verbs: ClassVar[tuple[str, ...]] = ()
    usage: ClassVar[tuple[str, ...]] = ()
    backbone: Agent

    def __init__(self, task: NestedAutoencoder) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def module(self) -> NestedAutoencoder:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

"""The pipeline that finds who replied to whom."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from ramify.disentangle.config import History
from ramify.disentangle.inference.links import Disentangled, disentangle
from ramify.disentangle.inference.streaming import Live
from ramify.disentangle.models.base import LinkBackbone
from ramify.disentangle.task import ReplyTo
from ramify.inference.base import Pipeline
from ramify.tree import Node, Tree


class Disentangler(Pipeline):
    """A trained model of reply links: it disentangles whole logs and live channels."""

    verbs = ("disentangle", "live")
    backbone: LinkBackbone
    input: History

    def __init__(self, task: ReplyTo) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

    def disentangle(self, log: Tree | Sequence[Node], *, keep_replies: bool = False, beam: int = 1) -> Disentangled:
        """What each message of a log answers, and which conversations they make (see `links.disentangle`)."""
        return disentangle([self.task], log, keep_replies=keep_replies, beam=beam)

    def live(self) -> Live:
        """A channel that goes on, to be heard message by message."""
        return Live(self.task)

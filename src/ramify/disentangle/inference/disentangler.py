"""The pipeline that finds who replied to whom."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from ramify.disentangle.config import ChatInput, DecodingConfig
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.result import Disentangled, Message, add_links, find_recorded, to_log
from ramify.disentangle.inference.streaming import LiveChannel
from ramify.disentangle.models.base import LinkBackbone
from ramify.disentangle.task import ReplyLinking
from ramify.inference.answers import LinkPrediction
from ramify.inference.base import Pipeline, verb
from ramify.tree import Tree


class Disentangler(Pipeline):
    """A trained model of reply links and the way to decide by it. It disentangles whole logs and live channels."""

    verbs = ("disentangle", "follow")
    usage = ("model.disentangle(messages).conversations()  # a list of ramify.Node, in the order of the channel",)
    backbone: LinkBackbone
    input: ChatInput

    def __init__(self, task: ReplyLinking, decoding: DecodingConfig | None = None) -> None:
        self.task = task
        self.decoding = decoding or DecodingConfig()
        self.decoding.check(task.config.objective)
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input, "decoding": self.decoding}

    @verb
    def disentangle(self, log: Tree | Iterable[Message], *, ignore_replies: bool = False, beam: int = 1) -> Disentangled:
        """The links and conversations of a log: a tree, or messages as nodes or as pairs of author and text.

        A message keeps the parents that the log records (see `find_recorded`), and other messages are decided given these. To
        measure how well a model finds known links, set `ignore_replies`: then nothing reads them. `beam` is for models that
        read their own decisions (see `predict_links`).
        """
        log = to_log(log)
        recorded = {} if ignore_replies else find_recorded(log)
        logs = Logs.build([log], self.input).tokenize(self.tokenizer)
        decisions = predict_links(self.task, self.decoding, logs, beam=beam, recorded=recorded)
        return add_links(log, *decisions.list_parents(), recorded)

    @verb
    def follow(self, messages: Iterable[Message], *, ignore_replies: bool = False) -> Iterator[LinkPrediction]:
        """Yield the links of each message of a live channel before the next one is read (see `live`)."""
        return map(self.live(ignore_replies=ignore_replies).predict, messages)

    def live(self, *, ignore_replies: bool = False) -> LiveChannel:
        """A live channel, whose messages come one by one. `ignore_replies`: nothing reads the parents that messages have, and
        memory does not grow with the channel; otherwise 16 bytes per message are held."""
        return LiveChannel(self.task, self.decoding, ignore_replies=ignore_replies)

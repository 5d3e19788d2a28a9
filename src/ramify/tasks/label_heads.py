"""From tasks on labelled texts to the heads of other libraries' checkpoints (`models.hf_heads.LabelHead`), and back."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ramify.dataset.labels import LabelKind
from ramify.dataset.token_tags import scheme_of
from ramify.errors import RamifyError
from ramify.models.hf_heads import LabelHead, Problem
from ramify.tasks.classification import Classification
from ramify.tasks.downstream import DownstreamTask, PooledToken
from ramify.tasks.multiple_choice import MultipleChoice
from ramify.tasks.span_qa import SpanQA
from ramify.tasks.tagging import Tagging

PROBLEMS: dict[LabelKind, Problem] = {
    "classes": "single_label_classification",
    "several": "multi_label_classification",
    "numbers": "regression",
}
"""The names of objectives in config.json."""

NUMBER = "LABEL_0"
"""The name that transformers gives the output of a regression."""


class HeadOfTask(ABC):
    """The form of a task's output layer in a checkpoint of another library."""

    input: Mapping[str, Any] = {}
    """Settings of the input that the task needs, whatever the checkpoint."""

    @abstractmethod
    def settings(self, head: LabelHead) -> dict[str, Any]:
        """The settings of a task with this head."""

    @abstractmethod
    def write(self, task: Any) -> LabelHead:
        """The head of a task. Raises `RamifyError` if no other library has it."""

    def tensors(self, head: LabelHead) -> dict[str, Tensor]:
        """The tensors of a task with this head, beside those of its backbone and those that it keeps."""
        tensors = {"output.weight": head.weight} | ({} if head.bias is None else {"output.bias": head.bias})
        if head.hidden_weight is not None and head.hidden_bias is not None:
            tensors |= {"head.pooler.hidden.weight": head.hidden_weight, "head.pooler.hidden.bias": head.hidden_bias}
        return tensors


class RowsHead(HeadOfTask):
    """Labels of texts. The temperature, and the unit of numbers, become part of the output layer."""

    def settings(self, head: LabelHead) -> dict[str, Any]:
        (labels,) = (labels for labels, problem in PROBLEMS.items() if problem == head.problem)
        settings = {"labels": labels, "head": head.read, "output_bias": head.bias is not None}
        return settings if labels == "numbers" else settings | {"classes": head.labels}

    def write(self, task: Classification) -> LabelHead:
        config = task.config
        output, factor, shift = task.output, 1 / task.temperature, torch.zeros(())
        if config.labels == "numbers":
            factor, shift = task.spread, task.center
        bias = factor * (0.0 if output.bias is None else output.bias.detach()) + shift
        return LabelHead(
            "rows",
            output.weight.detach() * factor,
            None if output.bias is None and not shift.any() else bias.expand(len(output.weight)).clone(),
            **row_vector(task),
            labels=config.classes or (NUMBER,),
            problem=PROBLEMS[config.labels],
        )


class ChoicesHead(HeadOfTask):
    """A score of each choice."""

    def settings(self, head: LabelHead) -> dict[str, Any]:
        return {"head": head.read}

    def write(self, task: MultipleChoice) -> LabelHead:
        return LabelHead("choices", task.output.weight.detach(), task.output.bias.detach(), **row_vector(task))


class TokensHead(HeadOfTask):
    """Tags of words, each from its first piece."""

    input: Mapping[str, Any] = {"pair": "none"}

    def settings(self, head: LabelHead) -> dict[str, Any]:
        return {"tags": head.labels, "scheme": scheme_of([head.labels])}

    def write(self, task: Tagging) -> LabelHead:
        check_states(task)
        for name, value in (("decoder", "linear"), ("between", "nothing")):
            check_setting(task, name, value, "whose tags are linear maps of the states of the last layer")
        return LabelHead("tokens", task.output.weight.detach(), task.output.bias.detach(), labels=task.config.tags)


class AnswersHead(HeadOfTask):
    """The start and the end of an answer. No checkpoint says whether a question may have none, so every question has one, as in
    the pipeline of transformers."""

    def settings(self, head: LabelHead) -> dict[str, Any]:
        return {"null": "none"}

    def write(self, task: SpanQA) -> LabelHead:
        check_states(task)
        check_setting(task, "end", "independent", "whose ends do not depend on starts")
        return LabelHead("answers", task.output.weight.detach(), task.output.bias.detach())


def row_vector(task: DownstreamTask) -> Mapping[str, Any]:
    """The vector of a row that the head of a task reads."""
    check_states(task)
    vector: dict[str, Any] = {"read": task.head_name}
    if isinstance(task.head, PooledToken):
        hidden = task.head.pooler.hidden
        vector |= {"hidden_weight": hidden.weight.detach(), "hidden_bias": hidden.bias.detach()}
    return vector


def check_setting(task: DownstreamTask, name: str, value: str, reason: str) -> None:
    """Raise `RamifyError` for a setting of a task with another value than the one that has a form. `reason` describes that."""
    given = getattr(task.config, name)
    if given != value:
        raise RamifyError(f"task.{name}={given} has no Hugging Face form, {reason}. Train a model with task.{name}={value}.")


def check_states(task: DownstreamTask) -> None:
    """Raise `RamifyError` for a task whose states no other library's form gives."""
    if task.mix is not None:
        raise RamifyError(
            "task.mode=features has no Hugging Face form, whose heads read the last layer. Train a model with "
            "task.mode=finetune."
        )
    if task.context:
        raise RamifyError(
            "input.context_as=vectors has no Hugging Face form, whose models read no vectors of nodes. Train a model with "
            "input.context_as=text."
        )

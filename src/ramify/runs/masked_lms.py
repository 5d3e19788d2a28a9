"""The parts that runs of masked language models share: their weights, and the divisors of their losses."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ramify import hub
from ramify.batching.views.comment_trees import TextInput
from ramify.errors import RamifyError
from ramify.models import hf
from ramify.models.base import NO_DECODER, TextModelConfig
from ramify.runs.language_models import PreparedLanguageModel, with_vocabulary
from ramify.tasks.masked_lm import VECTOR_LOSSES, MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer

OPTIONAL = (*(f"{name}." for name in VECTOR_LOSSES), "word_weight", "next_head.")
"""Beginnings of the names of a task's tensors that a checkpoint may lack, and that may be left out of it."""


@dataclass(frozen=True)
class PreparedMaskedLM(PreparedLanguageModel, ABC):
    """A run of a masked language model with its data opened and its model built."""

    task: MaskedLM

    def divisors(self) -> dict[str, float] | None:
        norm = self.task.config.loss_norm
        if norm == "constant":
            return None
        return dict.fromkeys(("masked_lm", "next_sentence", *VECTOR_LOSSES), 1.0 if norm == "sum" else 0.0)


def build_masked_lm(
    model: TextModelConfig,
    tokenizer: Tokenizer,
    input: TextInput,
    task: MaskedLMConfig,
    init: str,
    *,
    init_decoder: bool = True,
) -> MaskedLM:
    """The task of a run, with the weights of its checkpoint `init` if it has one.

    Raises `RamifyError` if the sizes of the model fit neither the tokenizer nor the rows, or if the checkpoint does not fit.
    """
    config = with_vocabulary(model, tokenizer)
    if config.max_tokens < input.longest:
        raise RamifyError(
            f"model.max_tokens={config.max_tokens} is too small for rows of up to {input.longest} tokens. Raise "
            "model.max_tokens, or lower input.max_tokens or input.concatenate."
        )
    backbone = config.build()
    if not init:
        if not init_decoder:
            raise RamifyError(NO_DECODER)
        return MaskedLM(backbone, tokenizer, input, task)
    checkpoint = hub.checkpoint(init)
    config.initialize(backbone, checkpoint, decoder=init_decoder)
    saved = hub.saved_config(init)
    built = MaskedLM(backbone, tokenizer, input, task)
    if saved is not None:
        hf.require(task, {name: getattr(saved.parts["task"], name) for name in ("head", "tie_weights")}, init, "task")
        hub.load_own_tensors(built, _fitting_tensors(built, checkpoint.tensors), init)
    return built


def _fitting_tensors(task: MaskedLM, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's tensors, without the optional heads that the task lacks, and with fresh ones that the checkpoint lacks."""
    own = hub.own_tensors(task)
    fitting = {name: tensor for name, tensor in saved.items() if name in own or not name.startswith(OPTIONAL)}
    return {name: tensor for name, tensor in own.items() if name.startswith(OPTIONAL)} | fitting

"""The start of a masked language model: from fresh weights, or from those of a checkpoint."""

from ramify import hub
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.models.base import NO_DECODER, TextModelConfig
from ramify.runs.language_models import with_vocabulary
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer


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
        hub.check_settings(built, saved, init)
        hub.start_from(built, checkpoint.tensors, init)
    return built

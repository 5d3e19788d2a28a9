"""The objectives, one a file. `TASKS` names them for runs and saved models."""

from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig

TASKS = {
    "masked-lm": (MaskedLMConfig, MaskedLM),
}

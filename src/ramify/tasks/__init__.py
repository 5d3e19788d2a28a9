"""The objectives, one a file. `TASKS` names them for runs and saved models."""

from ramify.chat.history import History
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tasks.reply_to import ReplyTo, ReplyToConfig
from ramify.views import Reading

TASKS = {
    "masked-lm": (MaskedLMConfig, MaskedLM),
    "reply-to": (ReplyToConfig, ReplyTo),
}

READINGS = {
    "masked-lm": Reading,
    "reply-to": History,
}
"""How a model of each reads: saved with it."""

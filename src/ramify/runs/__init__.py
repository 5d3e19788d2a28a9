"""Runs: what they are made of, and their execution. One module for each kind of data that a run may read."""

from ramify.runs.chats import fitting
from ramify.runs.comment_trees import discussions, first_trees, train_tokenizer
from ramify.runs.config import RUN_FILE, BlockConfig, DevConfig, LinkDevConfig, ModelConfig, RegimeConfig, Run, TokenizerConfig, WordsConfig, from_json, read_record, redecided, sized, to_json
from ramify.runs.execute import check_fresh, environment, execute, prepare

__all__ = [
    "RUN_FILE",
    "BlockConfig",
    "DevConfig",
    "LinkDevConfig",
    "ModelConfig",
    "RegimeConfig",
    "Run",
    "TokenizerConfig",
    "WordsConfig",
    "check_fresh",
    "discussions",
    "environment",
    "execute",
    "first_trees",
    "fitting",
    "from_json",
    "prepare",
    "read_record",
    "redecided",
    "sized",
    "to_json",
    "train_tokenizer",
]

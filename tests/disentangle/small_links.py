"""A small model, some logs, and the probabilities of one message alone, for tests of prediction and decoding."""

from functools import cache

import numpy as np
import torch

from fixtures import channel, mht_task
from ramify.disentangle.batch import LinkCollator
from ramify.disentangle.config import ChatInput, DecodingConfig
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.pieces import format_message
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyLinking
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree

PLAIN = DecodingConfig()
INPUT = ChatInput(window=5, texts="pieces", max_tokens=12)
SIZES = (7, 1, 12, 4, 7)
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@cache
def tokenizer() -> Tokenizer:
    return learn_vocabulary((format_message(node, author=True).lower().split() for node in channel(60, 0).nodes), min_count=1)


def read(*trees: Tree) -> Logs:
    return Logs.build(trees, INPUT).tokenize(tokenizer())


TREES = [channel(size, seed) for seed, size in enumerate(SIZES)]
LOGS = read(*TREES)


def task(seed: int = 0, objective: str = "listwise", **changes: object) -> ReplyLinking:
    """A model of some thousand parameters, with weights that are large enough for clear predictions."""
    return mht_task(tokenizer(), INPUT, seed, objective, **changes)


def feature_task() -> ReplyLinking:
    torch.manual_seed(0)
    return ReplyLinking(
        FeatureModel(FeatureModelConfig(vocab_size=tokenizer().vocab_size, dim=4, hidden=8)), tokenizer(), INPUT
    )


@torch.no_grad()
def shares(own: ReplyLinking, logs: Logs, message: int, structure: ReplyStructure) -> dict[int, float]:
    """The probability of each candidate of one message, computed without a batch; the message itself is first."""
    own.eval()
    view = Blocks(logs, np.array([message]), block=1)
    batch = LinkCollator(logs, structure=structure)([view.example(0)])
    probabilities = own.probabilities(own.scores(batch, PLAIN), batch, PLAIN)
    return dict(zip(batch.key_source.tolist(), probabilities.tolist(), strict=True))


def likeliest(probabilities: dict[int, float]) -> int:
    return max(probabilities, key=lambda message: probabilities[message])

"""Small pair encoders, chats with messages of all lengths, and a plain computation for each pair."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fixtures import channel
from ramify.disentangle.batch import LinkBatch, LinkCollator
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.features.context import CONTEXT_FEATURES
from ramify.disentangle.features.pairs import YEARS, compute_features
from ramify.disentangle.models.bert_pair import BertPair, BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttention, DecomposableAttentionConfig
from ramify.disentangle.models.esim import ESIM, ESIMConfig
from ramify.disentangle.models.pairs import PairEncoder
from ramify.models.bert import BertConfig
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree

WORDS = ChatInput(window=9)
PIECES = ChatInput(window=9, texts="pieces", max_tokens=20)
Model = TypeVar("Model", bound=PairEncoder)


def chat(number: int, seed: int = 0) -> Tree:
    """Messages of zero to thirty words."""
    random = np.random.default_rng(seed)
    tree = channel(number, seed)
    vocabulary = [f"{letter}{other}" for letter in "abcdef" for other in "xyz"]
    nodes = [replace(node, text=" ".join(random.choice(vocabulary, random.choice([0, 1, 4, 9, 30])))) for node in tree.nodes]
    return Tree(tuple(nodes), id=tree.id)


@cache
def tokenizer() -> Tokenizer:
    return learn_vocabulary((f"{node.author} : {node.text}".lower().split() for node in chat(200).nodes), min_count=1)


def read(*trees: Tree, input: ChatInput = WORDS) -> Logs:
    return Logs.build(trees, input).tokenize(tokenizer())


def batch_of(logs: Logs, targets: list[int] | None = None, block: int = 5, context_features: bool = False) -> LinkBatch:
    """A batch of these messages (all by default), in double precision."""
    view = Blocks(logs, np.arange(len(logs)) if targets is None else np.array(targets), block=block)
    batch = LinkCollator(logs, context_features=context_features)([view.example(number) for number in range(len(view))])
    names = ("child_features", "parent_features", "self_features", "pair_features", "target_probability")
    return replace(batch, **{name: getattr(batch, name).double() for name in names})


def spread(model: Model) -> Model:
    """The model in double precision, without dropout, with larger weights than training starts from."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.double().eval()


def decomposable_attention(**changes: Any) -> DecomposableAttention:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": tokenizer().vocab_size, "dim": 5, "hidden": 6, "dropout": 0.0, "max_distance": 3}
    return spread(DecomposableAttention(DecomposableAttentionConfig(**(sizes | changes))))


def esim(**changes: Any) -> ESIM:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": tokenizer().vocab_size, "dim": 5, "hidden": 4, "dropout": 0.0}
    return spread(ESIM(ESIMConfig(**(sizes | changes))))


def bert(**changes: Any) -> BertConfig:
    sizes: dict[str, Any] = {"dim": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 12, "max_tokens": 64}
    return BertConfig(**({"vocab_size": tokenizer().vocab_size, "dropout": 0.0, "pooling": "cls"} | sizes | changes))


def bert_pair(**changes: Any) -> BertPair:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"encoder": bert(), "feature_hidden": 6, "dropout": 0.0}
    return spread(BertPair(BertPairConfig(**(sizes | changes))))


def plainly(model: PairEncoder, tree: Tree, input: ChatInput, state: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The state of every message of a log with each of its candidates, one pair after another; `state` maps the ids of both
    texts to their state."""
    logs = read(tree, input=input)
    ids = [
        torch.from_numpy(logs.ids[start:stop].astype(np.int64))
        for start, stop in zip(logs.token_offsets[:-1], logs.token_offsets[1:])
    ]
    around = batch_of(logs, context_features=True).pair_features[:, -len(CONTEXT_FEATURES) :]
    rows = []
    for target in range(len(ids)):
        for candidate in range(target, max(-1, target - input.window - 1), -1):
            own = state(ids[target], ids[candidate])
            if model.fusion is not None:
                known = compute_features(logs.channels[0], np.array([target]), np.array([[candidate]]))[0, 0]
                known = torch.from_numpy(known).double()
                known[: len(YEARS)] *= model.config.years
                # Context features: their values are tested in test_context_features.py.
                known = torch.cat([known, around[len(rows)]]) if model.config.context_features else known
                own = torch.cat([known, own])
                for layer in model.fusion.layers:
                    own = F.gelu(dense(layer, own))
            rows.append(own)
    return torch.stack(rows)


def dense(layer: nn.Module, x: Tensor) -> Tensor:
    weights = dict(layer.named_parameters())
    return x @ weights["weight"].T + weights.get("bias", torch.zeros(()))

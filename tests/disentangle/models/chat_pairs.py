"""What tests of pair encoders share: chats with messages of all lengths, their batches, and what must hold of every encoder."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ramify
from fixtures import channel
from ramify import hub
from ramify.disentangle.batch import LinkBatch, LinkCollator
from ramify.disentangle.config import History
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_words
from ramify.disentangle.features.context import SURROUNDINGS
from ramify.disentangle.features.pairs import YEARS, features
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.models.pairs import PairEncoder
from ramify.disentangle.task import ReplyTo
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree

WORDS = History(window=9)
PIECES = History(window=9, texts="pieces", max_tokens=20)


def chat(number: int, seed: int = 0) -> Tree:
    """Messages of no word to thirty."""
    random = np.random.default_rng(seed)
    said = channel(number, seed)
    vocabulary = [f"{letter}{other}" for letter in "abcdef" for other in "xyz"]
    nodes = [replace(node, text=" ".join(random.choice(vocabulary, random.choice([0, 1, 4, 9, 30])))) for node in said.nodes]
    return Tree(tuple(nodes), id=said.id)


@cache
def tokenizer() -> Tokenizer:
    return learn_words((f"{node.author} : {node.text}".lower().split() for node in chat(200).nodes), least=1)


def read(*trees: Tree, input: History = WORDS) -> Logs:
    return Logs.of(trees, input).read_with(tokenizer())


def batch_of(logs: Logs, targets: list[int] | None = None, block: int = 5, surroundings: bool = False) -> LinkBatch:
    """Of these messages (all, unless named), in double precision."""
    view = Blocks(logs, np.arange(len(logs)) if targets is None else np.array(targets), block=block)
    batch = LinkCollator(logs, surroundings=surroundings)([view.example(number) for number in range(len(view))])
    names = ("answering", "answered", "answered_by_itself", "pairs", "gold")
    return replace(batch, **{name: getattr(batch, name).double() for name in names})


def spread(model: PairEncoder) -> PairEncoder:
    """In double precision, without dropout, with larger weights than training starts from."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.double().eval()


def plainly(model: PairEncoder, tree: Tree, input: History, state: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """What a model makes of every message of a log and each of its candidates, pair after pair; `state` is of the ids of
    both."""
    logs = read(tree, input=input)
    ids = [torch.from_numpy(logs.ids[start:stop].astype(np.int64)) for start, stop in zip(logs.starts[:-1], logs.starts[1:])]
    around = batch_of(logs, surroundings=True).pairs[:, -len(SURROUNDINGS) :]
    rows = []
    for target in range(len(ids)):
        for candidate in range(target, max(-1, target - input.window - 1), -1):
            own = state(ids[target], ids[candidate])
            if model.join is not None:
                known = features(logs.channels[0], np.array([target]), np.array([[candidate]]))[0, 0]
                known = torch.from_numpy(known).double()
                known[: len(YEARS)] *= model.config.years
                # What is said around a pair: its values are tested in tests/chat.
                known = torch.cat([known, around[len(rows)]]) if model.config.surroundings else known
                own = torch.cat([known, own])
                for layer in model.join.layers:
                    own = F.gelu(dense(layer, own))
            rows.append(own)
    return torch.stack(rows)


def dense(layer: nn.Module, x: Tensor) -> Tensor:
    weights = dict(layer.named_parameters())
    return x @ weights["weight"].T + weights.get("bias", torch.zeros(()))


def in_parts(make: Callable[..., PairEncoder], input: History, limit: int) -> tuple[Tensor, dict[str, Tensor]]:
    """States, and gradients of something that hangs on all of them, read at most `limit` tokens at a time."""
    model = make(chunk_tokens=limit, features="head")
    states = model(batch_of(read(chat(23, 2), chat(8, 3), input=input)))
    (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
    return states.detach(), {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def check_parts(make: Callable[..., PairEncoder], input: History) -> None:
    """However few tokens are read at once, states and gradients are the same."""
    states, gradients = in_parts(make, input, 10**6)
    assert gradients.keys() == {name for name, _ in make(features="head").named_parameters()}
    for limit in (1, 100, 1000):
        again, other = in_parts(make, input, limit)
        torch.testing.assert_close(again, states, rtol=0, atol=1e-12)
        for name, gradient in gradients.items():
            torch.testing.assert_close(other[name], gradient, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def check_batches(model: PairEncoder, input: History) -> None:
    """A pair does not depend on what else is in the batch."""
    logs = read(chat(23, 2), chat(8, 3), input=input)
    batch = batch_of(logs)
    together = model(batch).split(batch.candidates.host_lengths.tolist())
    for target, states in enumerate(together):
        torch.testing.assert_close(model(batch_of(logs, [target])), states, rtol=0, atol=1e-12)


@torch.no_grad()
def check_gold(model: PairEncoder, input: History) -> None:
    """What is known to answer what moves nothing."""
    tree = chat(15, 4)
    other = Tree(tuple(replace(node, parents=(), self_link=True) for node in tree.nodes), id=tree.id)
    batches = [batch_of(read(each, input=input)) for each in (tree, other)]
    assert not torch.equal(batches[0].gold, batches[1].gold)
    assert torch.equal(*map(model, batches))


@torch.no_grad()
def check_saved(model: PairEncoder, input: History, folder: Path) -> None:
    task = ReplyTo(model.float(), tokenizer(), input).eval()
    hub.save(Disentangler(task), folder)
    loaded = ramify.load(folder).task
    assert isinstance(loaded, ReplyTo)
    assert loaded.backbone.config == model.config
    assert loaded.input == input
    logs = read(chat(15, 4), input=input)
    view = Blocks(logs, np.arange(15), block=4)
    batch = LinkCollator(logs)([view.example(number) for number in range(len(view))])
    assert torch.equal(loaded.scores(batch), task.scores(batch))
    found = Disentangler(loaded).disentangle(chat(15, 4))
    assert len(found.conversations()) > 0

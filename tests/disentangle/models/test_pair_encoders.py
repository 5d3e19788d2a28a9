"""Properties that all pair encoders share: decomposable attention, ESIM and BERT on pairs."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chat_pairs import PIECES, WORDS, batch_of, bert_pair, chat, decomposable_attention, esim, read, tokenizer
from torch import Tensor

import ramify
from ramify import hub
from ramify.disentangle.batch import LinkCollator
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig
from ramify.disentangle.models.esim import ESIMConfig
from ramify.disentangle.models.pairs import PairEncoder
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.tree import Tree

Build = Callable[..., PairEncoder]

ENCODERS = [
    pytest.param(decomposable_attention, WORDS, id="decomposable attention"),
    pytest.param(partial(decomposable_attention, intra=True), WORDS, id="decomposable attention, intra"),
    pytest.param(esim, WORDS, id="ESIM"),
    pytest.param(bert_pair, PIECES, id="BERT pair"),
]


def states_and_gradients(build: Build, input: ChatInput, chunk_tokens: int) -> tuple[Tensor, dict[str, Tensor]]:
    """States, and the gradients of a weighted sum of them, encoded in chunks of at most `chunk_tokens` tokens."""
    model = build(chunk_tokens=chunk_tokens, features="head")
    states = model(batch_of(read(chat(13, 2), chat(8, 3), input=input)))
    (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
    return states.detach(), {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize(("build", "input"), ENCODERS)
def test_chunks_do_not_change_states_or_gradients(build: Build, input: ChatInput) -> None:
    states, gradients = states_and_gradients(build, input, 10**6)
    assert gradients.keys() == {name for name, _ in build(features="head").named_parameters()}
    for chunk_tokens in (1, 100, 1000):
        chunked_states, chunked_gradients = states_and_gradients(build, input, chunk_tokens)
        torch.testing.assert_close(chunked_states, states, rtol=0, atol=1e-12)
        for name, gradient in gradients.items():
            torch.testing.assert_close(chunked_gradients[name], gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("build", "input"), ENCODERS)
@torch.no_grad()
def test_pair_does_not_depend_on_the_batch(build: Build, input: ChatInput) -> None:
    model, logs = build(), read(chat(23, 2), chat(8, 3), input=input)
    batch = batch_of(logs)
    together = model(batch).split(batch.candidates.host_lengths.tolist())
    for target, states in enumerate(together):
        torch.testing.assert_close(model(batch_of(logs, [target])), states, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("build", "input"), ENCODERS)
@torch.no_grad()
def test_gold_links_change_no_state(build: Build, input: ChatInput) -> None:
    tree = chat(15, 4)
    other = Tree(tuple(replace(node, parents=(), self_link=True) for node in tree.nodes), id=tree.id)
    batches = [batch_of(read(each, input=input)) for each in (tree, other)]
    assert not torch.equal(batches[0].target_probability, batches[1].target_probability)
    assert torch.equal(*map(build(features="head"), batches))


@pytest.mark.parametrize("config", [{}, {"features": "head", "years": False}], ids=str)
@pytest.mark.parametrize(("build", "input"), ENCODERS)
@torch.no_grad()
def test_saved_model_scores_equally(build: Build, input: ChatInput, config: dict[str, Any], tmp_path: Path) -> None:
    model = build(**config)
    task = ReplyLinking(model.float(), tokenizer(), input).eval()
    hub.save(Disentangler(task), tmp_path)
    loaded = ramify.load(tmp_path).task
    assert isinstance(loaded, ReplyLinking)
    assert loaded.backbone.config == model.config
    assert loaded.input == input
    logs = read(chat(15, 4), input=input)
    view = Blocks(logs, np.arange(15), block=4)
    batch = LinkCollator(logs)([view.example(number) for number in range(len(view))])
    assert torch.equal(loaded.score_all(batch), task.score_all(batch))
    found = Disentangler(loaded).disentangle(chat(15, 4))
    assert len(found.conversations()) > 0


SHARED: list[dict[str, Any]] = [{"dropout": 1.0}, {"chunk_tokens": 0}, {"features": "input"}, {"years": 1}]
"""Invalid settings of every pair encoder."""
INVALID: dict[Callable[..., object], list[dict[str, Any]]] = {
    DecomposableAttentionConfig: [{"hidden": 0}, {"dim": 0}, {"num_layers": 0}, {"max_distance": 0}, {"intra": 1}],
    ESIMConfig: [{"hidden": 0}, {"dim": 0}],
    BertPairConfig: [{"feature_hidden": 0}, {"feature_layers": 0}, {"context_features": True}],
}


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    ("config", "values"), [(config, each) for config, values in INVALID.items() for each in (*values, *SHARED)], ids=str
)
def test_invalid_settings_are_refused(config: Callable[..., object], values: dict[str, Any]) -> None:
    with pytest.raises(RamifyError, match=rf"model\.{next(iter(values))}"):
        config(**values)

"""ESIM against a plain computation for each pair."""

from typing import Any

import pytest
import torch
from chat_pairs import WORDS, batch_of, chat, dense, esim, plainly, read
from torch import Tensor, nn

from ramify.disentangle.models.esim import ESIM


def both_ways(lstm: nn.LSTM, x: Tensor) -> Tensor:
    """Word by word: gates in torch's order, input, forget, cell, output."""
    weights = dict(lstm.named_parameters())
    directions = []
    for suffix, words in (("", list(x)), ("_reverse", list(x)[::-1])):
        hidden = cell = torch.zeros(lstm.hidden_size, dtype=x.dtype)
        states = []
        for word in words:
            gates = weights[f"weight_ih_l0{suffix}"] @ word + weights[f"bias_ih_l0{suffix}"]
            gates = gates + weights[f"weight_hh_l0{suffix}"] @ hidden + weights[f"bias_hh_l0{suffix}"]
            enter, forget, new, leave = gates.chunk(4)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            states.append(hidden)
        directions.append(torch.stack(states[::-1] if suffix else states))
    return torch.cat(directions, dim=1)


def state(own: ESIM, target: Tensor, candidate: Tensor) -> Tensor:
    """Sections 3.1 to 3.3."""
    a, b = (both_ways(own.encoding.lstm, own.embedding.weight[ids]) for ids in (target, candidate))
    scores = a @ b.T
    found = {"a": scores.softmax(1) @ b, "b": scores.softmax(0).T @ a}
    pooled = []
    for words, other in ((a, found["a"]), (b, found["b"])):
        enhanced = torch.cat([words, other, words - other, words * other], dim=1)
        composed = both_ways(own.composition.lstm, torch.relu(dense(own.projection, enhanced)))
        pooled += [composed.mean(0), composed.max(0).values]
    return torch.tanh(dense(own.hidden, torch.cat(pooled)))


@pytest.mark.parametrize(
    "config", [{}, {"chunk_tokens": 70}, {"features": "head"}, {"features": "head", "years": False}], ids=str
)
@torch.no_grad()
def test_states_equal_a_plain_computation_for_each_pair(config: dict[str, Any]) -> None:
    own, tree = esim(**config), chat(11, 5)
    expected = plainly(own, tree, WORDS, lambda target, candidate: state(own, target, candidate))
    found = own(batch_of(read(tree)))
    assert found.shape[1] == own.out_dim
    assert found.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)

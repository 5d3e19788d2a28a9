"""Decomposable attention against a plain computation for each pair."""

from typing import Any

import pytest
import torch
from chat_pairs import WORDS, batch_of, chat, decomposable_attention, dense, plainly, read
from torch import Tensor

from ramify.disentangle.models.decomposable_attention import DecomposableAttention


def through(layers: torch.nn.ModuleList | None, x: Tensor) -> Tensor:
    assert layers is not None
    for layer in layers:
        x = torch.relu(dense(layer, x))
    return x


def state(own: DecomposableAttention, target: Tensor, candidate: Tensor) -> Tensor:
    """Sections 3.1 to 3.4, word by word."""
    sides = []
    for ids in (target, candidate):
        words = [dense(own.projection, own.embedding.weight[number]) for number in ids]
        if own.distance_bias is not None:
            keys = [through(own.intra_attend, word) for word in words]
            reach, inner = own.config.max_distance, []
            for i, key in enumerate(keys):
                apart = [max(-reach - 1, min(reach + 1, i - j)) for j in range(len(keys))]
                scores = torch.stack([key @ keys[j] + own.distance_bias[apart[j] + reach + 1] for j in range(len(keys))])
                inner.append(torch.stack(words).T @ scores.softmax(0))
            words = [torch.cat(both) for both in zip(words, inner)]
        sides.append(words)
    keys = [[through(own.attend, word) for word in words] for words in sides]
    sums = []
    for here, there in ((0, 1), (1, 0)):
        total = torch.zeros(own.config.hidden, dtype=torch.float64)
        for word, key in zip(sides[here], keys[here]):
            weights = torch.stack([key @ other for other in keys[there]]).softmax(0)
            found = torch.stack(sides[there]).T @ weights
            total = total + through(own.compare, torch.cat([word, found]))
        sums.append(total)
    return through(own.aggregate, torch.cat(sums))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"intra": True},
        {"intra": True, "max_distance": 1, "num_layers": 1},
        {"num_layers": 3, "chunk_tokens": 70},
        {"features": "head"},
        {"features": "head", "years": False, "intra": True},
    ],
    ids=str,
)
@torch.no_grad()
def test_states_equal_a_plain_computation_for_each_pair(config: dict[str, Any]) -> None:
    own, tree = decomposable_attention(**config), chat(13, 5)
    expected = plainly(own, tree, WORDS, lambda target, candidate: state(own, target, candidate))
    found = own(batch_of(read(tree)))
    assert found.shape[1] == own.out_dim
    assert found.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_word_order_counts_only_with_intra_attention() -> None:
    """Without intra-attention a message is a bag of words."""
    logs = read(chat(9, 6))
    batch = batch_of(logs)
    for intra in (False, True):
        own = decomposable_attention(intra=intra)
        turned = batch_of(logs)
        rows = turned.input_ids.split(turned.messages.host_lengths.tolist())
        turned.input_ids.copy_(torch.cat([row.flip(0) for row in rows]))
        assert torch.allclose(own(turned), own(batch), rtol=0, atol=1e-9) != intra

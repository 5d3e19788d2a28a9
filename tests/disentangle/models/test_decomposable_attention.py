"""Decomposable attention against a plain computation for each pair."""

from pathlib import Path

import pytest
import torch
from chat_pairs import (
    WORDS,
    batch_of,
    chat,
    check_batches,
    check_gold,
    check_parts,
    check_saved,
    dense,
    plainly,
    read,
    spread,
    tokenizer,
)
from torch import Tensor

from ramify.disentangle.models.decomposable_attention import DecomposableAttention, DecomposableAttentionConfig
from ramify.errors import RamifyError


def model(**changes: object) -> DecomposableAttention:
    torch.manual_seed(0)
    sizes = {"vocab_size": tokenizer().vocab_size, "dim": 5, "hidden": 6, "dropout": 0.0, "max_distance": 3}
    own = DecomposableAttention(DecomposableAttentionConfig(**(sizes | changes)))  # pyright: ignore[reportArgumentType]
    assert spread(own) is own
    return own


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
def test_states_are_those_of_a_plain_computation_for_each_pair(config: dict[str, object]) -> None:
    own, tree = model(**config), chat(13, 5)
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
        own = model(intra=intra)
        turned = batch_of(logs)
        rows = turned.input_ids.split(turned.messages.host_lengths.tolist())
        turned.input_ids.copy_(torch.cat([row.flip(0) for row in rows]))
        assert torch.allclose(own(turned), own(batch), rtol=0, atol=1e-9) != intra


def test_chunks_do_not_change_states_or_gradients() -> None:
    check_parts(model, WORDS)
    check_parts(lambda **changes: model(intra=True, **changes), WORDS)


@pytest.mark.parametrize("intra", [False, True])
def test_pair_does_not_depend_on_the_batch(intra: bool) -> None:
    check_batches(model(intra=intra), WORDS)


def test_gold_links_change_no_state() -> None:
    check_gold(model(features="head"), WORDS)


@pytest.mark.parametrize("config", [{}, {"intra": True, "features": "head", "years": False}], ids=str)
def test_saved_model_scores_equally(config: dict[str, object], tmp_path: Path) -> None:
    check_saved(model(**config), WORDS, tmp_path)


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    "values",
    [
        {"hidden": 0},
        {"dim": 0},
        {"num_layers": 0},
        {"dropout": 1.0},
        {"chunk_tokens": 0},
        {"max_distance": 0},
        {"intra": 1},
        {"features": "input"},
        {"years": 1},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(RamifyError, match=rf"model\.{next(iter(values))}"):
        DecomposableAttentionConfig(**values)  # pyright: ignore[reportArgumentType]

"""XLNet against transformers: equal outputs with permutation masks, target mappings, memory and segments."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ramify.batching.stream_batch import StreamBatch, StreamTargets
from ramify.models.xlnet import XLNet, XLNetConfig, config_to_hf, tensors_from_hf, tensors_to_hf

transformers = pytest.importorskip("transformers", reason="needs transformers")

ROWS, TOKENS, MEMORY, TARGETS = 3, 12, 5, 4


def theirs(**changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "d_model": 16, "n_layer": 3, "n_head": 4, "d_inner": 24, "dropout": 0.0, "mem_len": MEMORY}
    model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**(sizes | changes))).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def ours(model, **changes):
    sizes = {"vocab_size": 50, "dim": 16, "num_layers": 3, "num_heads": 4, "ffn_dim": 24, "dropout": 0.0, "memory": MEMORY}
    config = XLNetConfig(**(sizes | changes))
    tensors, head = tensors_from_hf(model.state_dict(), config, "theirs")
    own = XLNet(config).eval()
    own.load_state_dict(tensors)
    return own, head


def batch(random, order, targets, reused=TOKENS):
    ids = torch.from_numpy(random.integers(50, size=(ROWS, TOKENS)))
    return StreamBatch(
        input_ids=ids,
        segments=torch.from_numpy(random.integers(3, size=(ROWS, TOKENS))),
        direction=np.ones(ROWS, dtype=np.int64),
        begins=torch.zeros(ROWS, dtype=torch.bool),
        reused=reused,
        kept=torch.full((ROWS,), reused),
        continues=torch.ones(ROWS, dtype=torch.bool),
        host_ids=ids.numpy(),
        functional=np.zeros((ROWS, TOKENS), dtype=bool),
        order=order,
        targets=targets,
    )


@pytest.mark.parametrize(
    ("changes", "own", "reused"),
    [
        ({}, {}, TOKENS),
        ({"clamp_len": 4, "ff_activation": "relu"}, {"max_distance": 4, "activation": "relu"}, TOKENS),
        ({"reuse_len": 7}, {}, 7),
    ],
    ids=["plain", "greatest distance", "part of the row reused"],
)
def test_two_streams_with_memory_and_segments(changes, own, reused):
    random = np.random.default_rng(0)
    reference = theirs(**changes)
    model, _ = ours(reference, **own)
    state = mems = None
    for _ in range(3):
        # The first token of the order has a key to see: itself in the content stream, and memory or another context token.
        order = torch.from_numpy(np.stack([np.maximum(random.permutation(TOKENS) - 3, 0) for _ in range(ROWS)]))
        positions = torch.stack([row.argsort()[-TARGETS:] for row in order])
        targets = StreamTargets(positions, positions, torch.ones(ROWS, TARGETS), (TARGETS,), float(ROWS * TARGETS))
        row = batch(random, order, targets, reused)
        hidden = model(row, state)
        state = hidden.state
        # Hugging Face frees the diagonal of the content stream, and masks what a query must not see.
        perm_mask = (order[:, None, :] >= order[:, :, None]).float()
        tied = (order[:, None, :] == order[:, :, None]).float() * (order == 0).float()[:, :, None]
        mapping = torch.nn.functional.one_hot(positions, TOKENS).float()
        with torch.no_grad():
            output = reference.transformer(
                row.input_ids, mems=mems, perm_mask=perm_mask - tied, target_mapping=mapping, token_type_ids=row.segments
            )
        mems = output.mems
        torch.testing.assert_close(hidden.queries, output.last_hidden_state, rtol=0, atol=1e-5)
        torch.testing.assert_close(state["memory"], torch.stack(mems).transpose(1, 2), rtol=0, atol=1e-5)


def test_attention_weights_of_both_streams():
    random = np.random.default_rng(0)
    reference = theirs()
    model, _ = ours(reference)
    order = torch.from_numpy(np.stack([random.permutation(TOKENS) for _ in range(ROWS)]))
    positions = torch.stack([row.argsort()[-TARGETS:] for row in order])
    row = batch(random, order, StreamTargets.at(positions.numpy(), order))
    record = {}
    with torch.no_grad():
        model(row, record=record)
        output = reference.transformer(
            row.input_ids,
            perm_mask=(order[:, None, :] >= order[:, :, None]).float(),
            target_mapping=torch.nn.functional.one_hot(positions, TOKENS).float(),
            token_type_ids=row.segments,
            output_attentions=True,
        )
    for own, (content, query) in zip(record["streams"], output.attentions, strict=True):
        torch.testing.assert_close(torch.stack(own["content"]), content, rtol=0, atol=1e-5)
        # Hugging Face maps queries to all places of a row.
        targets = [weights[:, places] for weights, places in zip(query, positions, strict=True)]
        torch.testing.assert_close(torch.stack(own["query"]), torch.stack(targets), rtol=0, atol=1e-5)


def test_content_alone():
    """As in fine-tuning: every token reads the whole row, and the masked padding on its left is read by none."""
    reference = theirs()
    model, _ = ours(reference)
    row = batch(np.random.default_rng(1), None, None)
    order = torch.zeros(ROWS, TOKENS, dtype=torch.long)
    order[1, :4] = 1
    with torch.no_grad():
        expected = reference.transformer(row.input_ids, token_type_ids=row.segments, input_mask=order.float())
        hidden = model(replace(row, order=order))
    assert hidden.queries is None
    real = order == 0
    torch.testing.assert_close(hidden.tokens[real], expected.last_hidden_state[real], rtol=0, atol=1e-5)


def test_both_ways():
    reference = theirs()
    model, head = ours(reference)
    assert set(head) == {"bias"}
    there = tensors_to_hf(model.state_dict(), model.config, head["bias"])
    assert there.keys() == reference.state_dict().keys()
    for name, tensor in reference.state_dict().items():
        assert torch.equal(there[name], tensor), name
    assert transformers.XLNetConfig(**config_to_hf(model.config)).d_head == 4

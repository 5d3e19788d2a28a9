"""The recorded attention weights of whole models: their names, sums and places. Recording leaves every output unchanged."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import W, bert_task, discussion, forest, masked, tree_task, whole, words_task
from fixtures.streams import letters, rows_of, xlnet
from ramify.batching.text_input import TextInput

TASKS = {
    "bert": lambda: bert_task(),
    "albert": lambda: bert_task(shared_layers=True),
    "relative": lambda: bert_task(position="relative"),
    "context in the row": lambda: bert_task(input=TextInput(max_tokens=32, concatenate=64)),
    "tree": lambda: tree_task(norm="pre"),
    "output attention": lambda: words_task(context_position="distance"),
    "null": lambda: tree_task(input=TextInput(max_tokens=32, context="null")),
    "none": lambda: tree_task(input=TextInput(max_tokens=32, context="none")),
}


def recorded(task):
    data = forest([discussion(W)])
    batch = masked(task, data, whole(task, data, predict_post=True))
    record = {}
    with torch.no_grad(), task.evaluating():
        plain, observed = task.backbone(batch), task.backbone(batch, record=record)
    assert torch.equal(plain.tokens, observed.tokens)
    return batch, record


def ones(rows):
    total = torch.cat([row.sum(-1).flatten() for row in rows])
    torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("name", TASKS)
def test_weights_are_named_and_sum_to_one(name):
    task = TASKS[name]()
    assert task.backbone.records_attention
    batch, record = recorded(task)
    asked = batch.output_positions.rows.host_lengths.tolist()
    texts, contexts = (each.host_lengths.tolist() for each in (batch.targets, batch.contexts))
    if not task.backbone.reads_context:
        assert record.keys() == {"encoder"}
        layers = record["encoder"]
        assert [layer.keys() for layer in layers] == [{"self"}] * 2
    else:
        stacks = {"decoder", "encoder", "output"} - ({"encoder"} if name == "null" else set())
        assert record.keys() == stacks - (set() if name == "output attention" else {"output"})
        layers = record["decoder"]
        assert [layer.keys() for layer in layers] == [{"self", "cross"}] * 2
        read = [1] * len(texts) if name == "null" else contexts
        crosses = [layer["cross"] for layer in layers] + [layer["cross"] for layer in record.get("output", [])]
        for number, rows in enumerate(crosses):
            queries = texts if number == 0 else asked
            heads = 2 if number < 2 else 1
            assert [row.shape for row in rows] == [(heads, *each) for each in zip(queries, read, strict=True)]
            for row, count in zip(rows, read, strict=True):
                # A text without ancestors has no keys.
                torch.testing.assert_close(row.sum(-1), torch.full_like(row.sum(-1), float(count > 0)))
        for layer in record.get("encoder", []):
            assert layer.keys() == {"self"}
            assert [row.shape for row in layer["self"]] == [(2, size, size) for size in batch.nodes.host_lengths.tolist()]
            if layer["self"]:
                ones(layer["self"])
    for layer, queries in zip(layers, (texts, asked), strict=True):
        assert [row.shape for row in layer["self"]] == [(2, *each) for each in zip(queries, texts, strict=True)]
        ones(layer["self"])
        assert all(not row.requires_grad for row in layer["self"])


def test_every_weight_has_its_place():
    """The first decoder layer's weights, from its own maps."""
    task = tree_task()
    backbone = task.backbone
    batch, record = recorded(task)
    first = backbone.decoder.layers[0]
    with torch.no_grad():
        vectors = backbone.vectors(batch.node_context().texts)
        x = backbone.decoder_embeddings(batch.target_ids, batch.targets.positions)
        after = first.attention_norm(x + first.attention(x, x, batch.targets, batch.targets))
        begin = 0
        offsets = batch.targets.offsets.tolist()
        for row, count in enumerate(batch.contexts.host_lengths.tolist()):
            own = slice(offsets[row], offsets[row + 1])
            read = vectors[batch.context[begin : begin + count]]
            begin += count
            for kind, attention, queries, keys in (
                ("self", first.attention, x[own], x[own]),
                ("cross", first.cross, after[own], read),
            ):
                q = attention.query(queries).unflatten(-1, (2, 4))
                k = attention.key_value(keys)[:, : backbone.out_dim].unflatten(-1, (2, 4))
                expected = (torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5).softmax(-1)
                torch.testing.assert_close(record["decoder"][0][kind][row], expected)
    assert begin == len(batch.context) > 10


def test_both_streams_in_parts_with_memory():
    random = np.random.default_rng(0)
    model = xlnet(num_layers=2).eval()
    before = rows_of(letters(random, (3, 7)), reused=4)
    order = np.array([5, 0, 3, 1, 4, 0, 2])
    batch = rows_of(
        letters(random, (3, 7)),
        order=order,
        positions=np.tile([2, 4, 6], (3, 1)),
        counts=(1, 2),
        parts=((0, 4), (4, 7)),
        reused=4,
    )
    record, targets_only = {}, {}
    with torch.no_grad():
        state = model(before).state
        plain, observed = model(batch, state), model(batch, state, record=record)
        model(batch, state, targets_only=True, record=targets_only)
    assert torch.equal(plain.tokens, observed.tokens)
    assert torch.equal(plain.queries, observed.queries)
    memory = state["memory"].shape[2]
    visible = np.arange(memory) >= memory - int(state["valid"][0])
    assert visible.sum() > 0
    same_part = np.arange(7) < np.array([4] * 4 + [7] * 3)[:, None]
    reads = {"content": order <= order[:, None], "query": (order < order[:, None])[[2, 4, 6]]}
    parts = {"content": same_part, "query": same_part[[2, 4, 6]]}
    for layer in record["streams"]:
        assert layer.keys() == {"content", "query"}
        for stream, rows in layer.items():
            expected = np.concatenate([np.tile(visible, (len(reads[stream]), 1)), reads[stream] & parts[stream]], 1)
            assert len(rows) == 3
            for weights in rows:
                assert np.array_equal(weights.numpy() > 0, np.broadcast_to(expected, weights.shape))
                assert weights.sum(-1).numpy() == pytest.approx(1)
    assert [set(layer) for layer in targets_only["streams"]] == [{"content", "query"}, {"query"}]
    last = zip(targets_only["streams"][1]["query"], record["streams"][1]["query"], strict=True)
    for alone, beside in last:
        torch.testing.assert_close(alone, beside)


def test_first_token_of_an_order_reads_nothing():
    model = xlnet(num_layers=1).eval()
    batch = rows_of(letters(np.random.default_rng(0), (1, 3)), order=np.arange(3), positions=np.arange(3)[None])
    record = {}
    with torch.no_grad():
        model(batch, record=record)
    assert record["streams"][0]["query"][0].sum(-1).tolist() == pytest.approx(np.array([[0.0, 1, 1]] * 2))
    without = {}
    with torch.no_grad():
        model(replace(batch, targets=None), record=without)
    assert [layer.keys() for layer in without["streams"]] == [{"content"}]

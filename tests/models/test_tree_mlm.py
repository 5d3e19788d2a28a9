"""Options of TreeMLM and their effect on the states."""

from dataclasses import fields, replace
from math import inf, nan

import numpy as np
import pytest
import torch

from fixtures import W, chain, discussion, forest, masked, path_to, tokenizer, tree_task, view_of, whole
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig
from ramify.nn.embeddings import sinusoids
from ramify.tasks.masked_lm import MaskedLM

SIZES = TreeMLMConfig(
    vocab_size=tokenizer().vocab_size,
    dim=8,
    num_heads=2,
    ffn_dim=16,
    encoder_layers=2,
    decoder_layers=2,
    max_tokens=32,
    dropout=0.0,
)


def fresh(**options):
    torch.manual_seed(0)
    return TreeMLM(replace(SIZES, **options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share_embeddings": False},
        {"share_embeddings": False, "scale_embedding": False},
        {"context_position": "distance", "pooling": "attn"},
        {"position": "learned", "embedding_norm": True, "norm": "pre"},
        {"cross_init": "zero"},
    ],
    ids=str,
)
def test_seed_gives_the_same_weights_every_time(options):
    """Sets and hash tables must not decide the order in which weights are drawn."""
    first = fresh(**options).state_dict()
    for _ in range(5):
        again = fresh(**options).state_dict()
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_shared_and_separate_embeddings():
    shared, apart = fresh(), fresh(share_embeddings=False)
    assert shared.encoder_embeddings.tokens is shared.decoder_embeddings.tokens is shared.embedding
    assert apart.encoder_embeddings.tokens is not apart.decoder_embeddings.tokens
    assert apart.decoder_embeddings.tokens is apart.embedding
    difference = sum(p.numel() for p in apart.parameters()) - sum(p.numel() for p in shared.parameters())
    assert difference == SIZES.vocab_size * SIZES.dim


def test_output_attention_is_the_only_difference_in_parameters():
    """The model of the paper has none of them, and nothing after its decoder."""
    paper, more = fresh(), fresh(output_attention=True)
    assert paper.output_attention is None
    assert paper.context_projection is None
    names = {name for name, _ in more.named_parameters()} - {name for name, _ in paper.named_parameters()}
    parts = ("query.weight", "key.weight", "value.weight", "gate.weight", "gate.bias")
    assert names == {f"output_attention.{part}" for part in parts}
    data = forest([discussion(W)])
    for model, decoded in ((paper, False), (more, True)):
        task = MaskedLM(model, tokenizer(), TextInput(max_tokens=32))
        assert (model(masked(task, data, whole(task, data))).decoded is not None) == decoded


def test_scaled_embeddings_have_unit_variance():
    model = fresh(vocab_size=5000, dim=64)
    scaled = model.embedding.weight.detach() * model.decoder_embeddings.scale
    assert float(scaled.std()) == pytest.approx(1.0, rel=0.02)
    plain = fresh(vocab_size=5000, dim=64, scale_embedding=False).embedding.weight.detach()
    assert float(plain.std()) == pytest.approx(0.02, rel=0.02)


def states(model, input, data):
    task = MaskedLM(model, tokenizer(), input)
    batch = masked(task, data, whole(task, data))
    rows = torch.split(model(batch).tokens, batch.output_positions.rows.host_lengths.tolist())
    return torch.cat([rows[place] for place in np.argsort(batch.source)])


def test_zero_initialised_cross_attention_starts_without_context():
    """The output then equals that of the same model without context; with the usual initialization it does not."""
    data = forest([discussion(W, lengths=[4] * len(W))])
    tree, none = TextInput(max_tokens=32), TextInput(max_tokens=32, context="none")
    zero, normal = fresh(cross_init="zero"), fresh()
    torch.testing.assert_close(states(zero, tree, data), states(zero, none, data), rtol=0, atol=1e-6)
    assert float((states(normal, tree, data) - states(normal, none, data)).detach().abs().max()) > 1e-5
    # The model can learn to use the context: its output projection has a gradient.
    states(zero, tree, data).square().sum().backward()
    for layer in zero.decoder.layers:
        gradient = layer.cross.out.weight.grad
        assert gradient is not None
        assert gradient.abs().max() > 0


# --- positions of ancestors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
@pytest.mark.parametrize("rows", [3, 128])
def test_depth_is_counted_in_the_whole_tree(kind, rows):
    """This holds in pieces that were cut out of the tree, too; depths past the table share its last row."""
    task = tree_task(context_position="depth", context_position_kind=kind, context_positions=rows)
    data = forest([discussion(chain(9), lengths=[2] * 10)])
    view, collate = view_of(task, data, regime="middle", max_tree_size=4)
    table = task.backbone.context_table.weight
    if kind == "sinusoidal":
        torch.testing.assert_close(table, sinusoids(rows, 8).double())
    cut = 0
    for number in range(len(view)):
        batch = collate([view.example(number)])
        vectors = torch.randn(len(batch.nodes), 8, dtype=torch.float64)
        context = task.backbone.contextualize(batch.node_context(vectors))
        expected = [table[min(node, rows - 1)] for node in batch.node_source.tolist()]
        torch.testing.assert_close(context.node_positions, torch.stack(expected), rtol=0, atol=0)
        assert context.vectors is vectors
        assert context.pair_vectors is None
        cut += 1 not in batch.node_source
    assert cut


@pytest.mark.parametrize("rows", [3, 128])
def test_distance_is_counted_for_each_pair(rows):
    task = tree_task(context_position="distance", context_positions=rows)
    data = forest([discussion(W, lengths=[2] * len(W))])
    batch = whole(task, data)
    vectors = torch.randn(len(batch.nodes), 8, dtype=torch.float64)
    context = task.backbone.contextualize(batch.node_context(vectors))
    assert context.vectors is vectors
    assert context.pair_vectors is task.backbone.context_table.weight
    expected = []
    for target in batch.source.tolist():
        above = path_to(W, target)
        expected += [min(len(above) - depth, rows - 1) for depth in range(len(above))]
    assert context.pair_index.tolist() == expected


def test_without_positions_there_is_no_table():
    task = tree_task()
    assert task.backbone.context_table is None
    assert not any("context_table" in name for name, _ in task.named_parameters())


# --- output attention ---------------------------------------------------------------------------------------------------------


def words_of_ancestors(model, batch, vectors, target):
    """For one target, slowly: LN(v), with its position where keys have one, of every node that it reads."""
    first = int(batch.contexts.host_lengths[:target].sum())
    for row in batch.context[first : first + int(batch.contexts.host_lengths[target])].tolist():
        vector = vectors[row]
        variance = ((vector - vector.mean()) ** 2).mean()
        position = torch.zeros_like(vector)
        if model.config.context_position == "depth":
            position = model.context_table.weight[int(batch.depth[row])]
        elif model.config.context_position == "distance":
            position = model.context_table.weight[int(batch.target_depth[target] - batch.depth[row])]
        yield (vector - vector.mean()) / (variance + model.config.eps).sqrt(), position


def slow_output_attention(model, x, batch, vectors, target):
    """One state of a target by the formula of `OutputAttention`."""
    part = model.output_attention
    scores, values = [], []
    for normed, position in words_of_ancestors(model, batch, vectors, target):
        key = part.key.weight @ normed + part.key.weight @ position
        scores.append((part.query.weight @ x) @ key / len(x) ** 0.5)
        values.append(part.value.weight @ normed)
    if not values:
        return x
    gate = 1 / (1 + torch.exp(-(part.gate.weight[0] @ x + part.gate.bias[0])))
    return x + gate * (torch.softmax(torch.stack(scores), 0) @ torch.stack(values))


@pytest.mark.parametrize("position", ["none", "depth", "distance"])
@pytest.mark.parametrize("every_state", [True, False])
def test_output_attention_is_its_formula(position, every_state):
    task = tree_task(context_position=position, output_attention=True)
    model = task.backbone
    data = forest([discussion(W, seed=4), discussion(chain(3), seed=5, name="u")])
    batch = whole(task, data, predict_post=True)
    batch = batch if every_state else masked(task, data, batch)
    vectors = model.vectors(batch.node_context().texts).detach().requires_grad_()
    hidden = model(batch, vectors=vectors)
    counts = batch.targets.host_lengths if every_state else batch.output_positions.rows.host_lengths
    target_of = np.repeat(np.arange(len(batch.targets)), counts)
    alone = torch.from_numpy(batch.contexts.host_lengths[target_of] == 0)
    assert alone.any()
    # States without an ancestor keep their bits; all others move.
    assert torch.equal(hidden.tokens[alone], hidden.decoded[alone])
    assert (hidden.tokens[~alone] != hidden.decoded[~alone]).any(1).all()
    expected = [slow_output_attention(model, x, batch, vectors, target) for x, target in zip(hidden.decoded, target_of)]
    expected = torch.stack(expected)
    torch.testing.assert_close(hidden.tokens, expected, rtol=0, atol=1e-12)
    # The same gradients, too: of the vectors, and of the path's own parameters.
    weights = torch.randn(expected.shape, dtype=expected.dtype)
    inputs = [vectors, *(each for each in model.output_attention.parameters())]
    found, right = (
        torch.autograd.grad((each * weights).sum(), inputs, retain_graph=True) for each in (hidden.tokens, expected)
    )
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_positions_reach_the_keys_of_output_attention_alone():
    """A target with one ancestor gives it all its attention, so its words do not depend on its position."""
    data = forest([discussion([-1, 0, 0], lengths=[4, 4, 4])])
    for position in ("depth", "distance"):
        model = tree_task(context_position=position, output_attention=True).backbone
        task = MaskedLM(model, tokenizer(), TextInput(max_tokens=32))
        batch = whole(task, data)
        vectors = model.vectors(batch.node_context().texts)
        x = torch.randn(batch.targets.total, 8, dtype=torch.float64)
        found = []
        for _ in range(2):
            found.append(model.output_attention(x, model.contextualize(batch.node_context(vectors)), batch.readers))
            with torch.no_grad():
                model.context_table.weight.add_(1.0)
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)
        assert (found[0] != x).any(1).all()


def test_output_attention_starts_from_the_words_of_vectors():
    """P starts at twice the identity, whatever the seed, and the gate half open."""
    model = fresh(output_attention=True)
    assert torch.equal(model.output_attention.value.weight, 2 * torch.eye(8))
    assert torch.equal(model.output_attention.gate.bias, torch.zeros(1))
    assert model.context_projection is model.output_attention.value
    with torch.no_grad():
        model.output_attention.gate.weight.zero_()
        model.output_attention.key.weight.zero_()
    data = forest([discussion(W, lengths=[4] * len(W))])
    task = MaskedLM(model, tokenizer(), TextInput(max_tokens=32, context="parent"))
    batch = whole(task, data)
    hidden = model(batch)
    parent = torch.repeat_interleave(batch.context, batch.targets.lengths)
    vectors = model.vectors(batch.node_context().texts).index_select(0, parent)
    # Half of twice the parent's normalized vector.
    expected = torch.nn.functional.layer_norm(vectors, (8,), eps=model.config.eps)
    torch.testing.assert_close(hidden.tokens - hidden.decoded, expected, rtol=0, atol=1e-5)


# --- one model, many inputs ---------------------------------------------------------------------------------------------------


def test_every_context_has_the_same_parameters():
    """Compared models differ in their inputs, not in their parameters."""
    counts = {
        context: sum(p.numel() for p in tree_task(input=TextInput(max_tokens=32, context=context)).parameters())
        for context in ("tree", "none", "null", "parent", "root", "mismatched", "sibling-branch")
    }
    assert len(set(counts.values())) == 1


def test_only_ancestors_are_encoded():
    """Leaves are never read, so nothing is computed for them; the post is always encoded."""
    task = tree_task()
    data = forest([discussion(W, lengths=[2] * len(W))])
    assert sorted(whole(task, data).node_source.tolist()) == [0, 1, 2, 6, 7, 8]
    assert len(np.unique(W)) - 1 == 6


COUNTS = ("dim", "num_heads", "ffn_dim", "encoder_layers", "decoder_layers", "num_layers", "context_positions")
RATES = ("dropout", "attention_dropout")


REFUSED = [
    ({"dim": 10, "num_heads": 4}, r"model\.dim=10 must be a multiple of model\.num_heads=4"),
    ({"max_tokens": 2}, r"model\.max_tokens must be at least 3, but is 2"),
    ({"vocab_size": -1}, r"model\.vocab_size must be at least 0, but is -1"),
    *(({name: value}, rf"model\.{name} must be at least 1, but is {value}") for name in COUNTS for value in (0, -4)),
    *(({name: value}, rf"model\.{name} must be at least 0 and below 1") for name in RATES for value in (-0.1, 1.0)),
    *(({"eps": value}, r"model\.eps must be positive") for value in (0.0, -1e-5)),
    *(({name: value}, rf"model\.{name} must be of the form number, not") for name in ("eps", *RATES) for value in (inf, nan)),
]
ILL_TYPED = [
    ({"eps": "1"}, r"model\.eps must be of the form number, not '1'"),
    *(({name: "sideways"}, rf"model\.{name} must be one of") for name in ("norm", "activation", "context_position", "pooling")),
    ({"dim": 8.0}, r"model\.dim must be of the form whole number, not 8\.0"),
    ({"max_tokens": None}, r"model\.max_tokens must be of the form whole number, not None"),
    ({"share_embeddings": 1}, r"model\.share_embeddings must be of the form true or false, not 1"),
]


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        pytest.param(config, options, message, marks=marks)
        for config in (TreeMLMConfig, BertConfig)
        for refused, marks in ((REFUSED, ()), (ILL_TYPED, pytest.mark.ill_typed))
        for options, message in refused
        if options.keys() <= {field.name for field in fields(config)}
    ],
)
def test_refused_sizes(config, options, message):
    with pytest.raises(RamifyError, match=message):
        config(**options)

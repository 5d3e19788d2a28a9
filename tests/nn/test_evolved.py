"""The Evolved Transformer against its equations, one row at a time, and what holds for all encoders and decoders of rows."""

import math

import pytest
import torch
from torch.nn import functional as F

from ramify.errors import RamifyError
from ramify.nn import evolved
from ramify.nn.blocks import TransformerDecoder, TransformerEncoder
from ramify.nn.evolved import EvolvedDecoder, EvolvedEncoder, first_heads
from ramify.nn.ragged import Rows

DIM, HEADS, CELLS = 16, 2, 2
LENGTHS = [3, 1, 0, 5, 14, 30]
ENCODER_LENGTHS = [2, 7, 4, 0, 30, 1]
EXACT = {"rtol": 0, "atol": 1e-10}
ENCODERS = [EvolvedEncoder, TransformerEncoder]
DECODERS = [EvolvedDecoder, TransformerDecoder]


def built(kind, dropout=0.0, attention_dropout=0.0, **options):
    """A module with weights so large that everything has an influence."""
    torch.manual_seed(0)
    module = kind(DIM, HEADS, CELLS, dropout=dropout, attention_dropout=attention_dropout, **options).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module


def drawn(lengths, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(lengths), DIM, generator=generator, dtype=torch.float64)
    return x.requires_grad_(), Rows.build(lengths)


def decoded(module, x, rows, encoder_output, encoder_rows):
    """The states of a decoder, or of an encoder, which reads no other output."""
    return module(x, rows) if isinstance(module, tuple(ENCODERS)) else module(x, rows, encoder_output, encoder_rows)


def modules():
    encoders = [pytest.param(kind, {}, id=kind.__name__) for kind in ENCODERS]
    return encoders + [
        pytest.param(kind, {"causal": causal}, id=f"{kind.__name__}-{'causal' if causal else 'parallel'}")
        for kind in DECODERS
        for causal in (False, True)
    ]


# The equations, for one row [token, dim].


def normed(x, norm):
    mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-6).sqrt() * norm.weight + norm.bias


def attended(attention, x, keys, num_heads, causal=False):
    if len(keys) == 0:
        return torch.zeros_like(x)
    size = x.shape[1] // num_heads
    key_weight, value_weight = attention.key_value.weight.chunk(2)
    mixed = []
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        q, k, v = x @ attention.query.weight[part].T, keys @ key_weight[part].T, keys @ value_weight[part].T
        scores = q @ k.T / math.sqrt(size)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
        mixed.append(scores.softmax(1) @ v)
    return torch.cat(mixed, 1) @ attention.out.weight.T


def convolved(conv, x, causal=False):
    weight = conv.weight[..., 0]
    size = weight.shape[2]
    before = size - 1 if causal else size // 2
    padded = F.pad(x.T, (before, size - 1 - before))
    return F.conv1d(padded[None], weight, conv.bias, groups=conv.groups)[0].T


def separably(module, x, causal=False):
    depthwise = module.depthwise.conv
    assert depthwise.groups == depthwise.in_channels == depthwise.out_channels
    assert depthwise.bias is None
    return convolved(depthwise, x, causal) @ module.pointwise.weight.T + module.pointwise.bias


def mapped(layer, x):
    return x @ layer.weight.T + layer.bias


def plus(wide, narrow):
    out = wide.clone()
    out[:, : narrow.shape[1]] += narrow
    return out


def plain_encoder(module, x, drop):
    for cell in module.cells:
        y, gate = mapped(cell.gate, normed(x, cell.gate_norm)).chunk(2, 1)
        x = x + drop(y * torch.sigmoid(gate))
        h = normed(x, cell.branch_norm)
        left, right = drop(torch.relu(mapped(cell.left, h))), drop(torch.relu(convolved(cell.right.conv, h)))
        x = plus(x, drop(separably(cell.joined, normed(plus(left, right), cell.joined_norm))))
        h = normed(x, cell.attention_norm)
        x = x + drop(attended(cell.attention, h, h, HEADS))
        hidden = drop(torch.relu(mapped(cell.ffn_in, normed(x, cell.ffn_norm))))
        x = x + drop(mapped(cell.ffn_out, hidden))
    return normed(x, module.final_norm)


def plain_decoder(module, x, encoder_output, drop):
    causal = module.causal
    for cell in module.cells:
        h = normed(x, cell.first_norm)
        left, right = (
            attended(cell.first_attention, h, h, 2 * HEADS, causal),
            attended(cell.first_cross, h, encoder_output, HEADS),
        )
        x = x + drop(left) + drop(right)
        h = normed(x, cell.branch_norm)
        left, right = drop(torch.relu(separably(cell.left, h, causal))), drop(separably(cell.right, h, causal))
        x = x + drop(separably(cell.joined, normed(plus(left, right), cell.joined_norm), causal))
        h = normed(x, cell.attention_norm)
        x = x + drop(attended(cell.attention, h, h, HEADS, causal))
        x = x + drop(attended(cell.cross, normed(x, cell.cross_norm), encoder_output, HEADS))
        hidden = mapped(cell.ffn_in, normed(x, cell.ffn_norm))
        hidden = normed(drop(hidden * torch.sigmoid(hidden)), cell.hidden_norm)
        x = x + drop(mapped(cell.ffn_out, hidden))
    return normed(x, module.final_norm)


@pytest.fixture(params=["without dropout", "scaled"])
def scale(request, monkeypatch):
    """Dropout that scales all entries instead of dropping some shows where it is applied."""
    if request.param == "without dropout":
        return 1.0
    monkeypatch.setattr(evolved, "drop", lambda x, p, training: x * (1 + p) if training else x)
    monkeypatch.setattr(evolved, "add_dropout", lambda residual, x, p, training: residual + evolved.drop(x, p, training))
    return 1.5


def check_gradients(found, expected, sources):
    torch.manual_seed(2)
    weight = torch.randn_like(found)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), sources)
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), sources), expected_gradients):
        scale = float(expected_gradient.abs().max())
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-10 * max(scale, 1.0))


def test_encoder_follows_its_equations(scale):
    module = built(EvolvedEncoder, dropout=scale - 1)
    x, rows = drawn(LENGTHS)
    found = module(x, rows)
    expected = torch.cat([plain_encoder(module, row, lambda x: scale * x) for row in x.split(LENGTHS) if len(row)])
    torch.testing.assert_close(found, expected, **EXACT)
    check_gradients(found, expected, (x, *module.parameters()))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("encoder_lengths", [ENCODER_LENGTHS, LENGTHS], ids=["other lengths", "equal lengths"])
def test_decoder_follows_its_equations(encoder_lengths, causal, scale):
    module = built(EvolvedDecoder, dropout=scale - 1, causal=causal)
    x, rows = drawn(LENGTHS)
    encoder_output, encoder_rows = drawn(encoder_lengths, seed=2)
    found = module(x, rows, encoder_output, encoder_rows)
    both = zip(x.split(LENGTHS), encoder_output.split(encoder_lengths))
    expected = torch.cat([plain_decoder(module, row, own, lambda x: scale * x) for row, own in both if len(row)])
    torch.testing.assert_close(found, expected, **EXACT)
    check_gradients(found, expected, (x, encoder_output, *module.parameters()))


@pytest.mark.parametrize("causal", [False, True])
def test_transformer_decoder_is_that_of_torch(causal):
    module = built(TransformerDecoder, causal=causal)
    theirs = torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(DIM, HEADS, 4 * DIM, 0.0, layer_norm_eps=1e-6, norm_first=True),
        2 * CELLS,
        torch.nn.LayerNorm(DIM, 1e-6),
    ).double()
    with torch.no_grad():
        for one, other in zip(module.stack.layers, theirs.layers, strict=True):
            for own, attention in ((one.attention, other.self_attn), (one.cross, other.multihead_attn)):
                attention.in_proj_weight.copy_(torch.cat([own.query.weight, own.key_value.weight]))
                attention.in_proj_bias.copy_(torch.cat([own.query.bias, own.key_value.bias]))
                attention.out_proj.load_state_dict(own.out.state_dict())
            for own, layer in ((one.ffn_in, other.linear1), (one.ffn_out, other.linear2)):
                layer.load_state_dict(own.state_dict())
            for own, norm in zip((one.attention_norm, one.cross_norm, one.ffn_norm), (other.norm1, other.norm2, other.norm3)):
                norm.load_state_dict(own.state_dict())
    theirs.norm.load_state_dict(module.stack.final_norm.state_dict())
    lengths, encoder_lengths = [4, 7, 20], [3, 9, 1]
    (x, rows), (encoder_output, encoder_rows) = drawn(lengths), drawn(encoder_lengths, seed=2)
    expected = []
    for row, own in zip(x.split(lengths), encoder_output.split(encoder_lengths)):
        mask = torch.ones(len(row), len(row)).triu(1).bool() if causal else None
        expected.append(theirs(row[:, None], own[:, None], tgt_mask=mask)[:, 0])
    torch.testing.assert_close(module(x, rows, encoder_output, encoder_rows), torch.cat(expected), **EXACT)


@pytest.mark.parametrize(("kind", "options"), modules())
def test_row_alone_equals_row_in_a_batch(kind, options):
    module = built(kind, **options)
    (x, rows), (encoder_output, encoder_rows) = drawn(LENGTHS), drawn(ENCODER_LENGTHS, seed=2)
    found = decoded(module, x, rows, encoder_output, encoder_rows).split(LENGTHS)
    for row, own, together in zip(x.split(LENGTHS), encoder_output.split(ENCODER_LENGTHS), found):
        alone = decoded(module, row, Rows.build([len(row)]), own, Rows.build([len(own)]))
        torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "options"), modules())
def test_other_rows_get_no_gradient(kind, options):
    module = built(kind, **options)
    (x, rows), (encoder_output, encoder_rows) = drawn(LENGTHS), drawn(ENCODER_LENGTHS, seed=2)
    found = decoded(module, x, rows, encoder_output, encoder_rows).split(LENGTHS)
    for number in range(len(LENGTHS)):
        loss = (found[number] * torch.arange(DIM)).sum()
        gradients = torch.autograd.grad(loss, (x, encoder_output), retain_graph=True, materialize_grads=True, allow_unused=True)
        for gradient, lengths in zip(gradients, (LENGTHS, ENCODER_LENGTHS)):
            parts = gradient.split(lengths)
            assert not any(bool(part.any()) for other, part in enumerate(parts) if other != number)
        if LENGTHS[number]:
            assert gradients[0].split(LENGTHS)[number].any(1).all()
            reads_encoder = "causal" in options and ENCODER_LENGTHS[number] > 0
            assert gradients[1].split(ENCODER_LENGTHS)[number].any() == reads_encoder


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("place", [1, 6, 13])
def test_causal_decoder_sees_nothing_of_later_tokens(kind, place):
    (x, rows), (encoder_output, encoder_rows) = drawn([4, 14]), drawn([3, 2], seed=2)
    changed = x.detach().clone()
    changed[4 + place] += 1.0
    later = 4 + place
    for causal in (True, False):
        module = built(kind, causal=causal)
        before, after = (module(each, rows, encoder_output, encoder_rows) for each in (x, changed))
        moved = (before != after).any(1)
        assert moved[later:].all()
        assert not moved[:4].any()
        assert moved[4:later].all() == (not causal)
        assert moved[4:later].any() == (not causal)


@pytest.mark.parametrize("dim", [8, 64, 512])
def test_number_of_parameters(dim):
    def count(module):
        return sum(parameter.numel() for parameter in module.parameters())

    for cells in (1, 2):
        assert count(EvolvedEncoder(dim, 2, cells)) == cells * (43 * dim**2 + 128 * dim) // 2 + 2 * dim
        assert count(EvolvedDecoder(dim, 2, cells, causal=True)) == cells * (57 * dim**2 + 125 * dim) // 2 + 2 * dim
        # A layer has 4 dim² per attention and 8 dim² of feed-forward, with biases and LayerNorms.
        assert count(TransformerEncoder(dim, 2, cells)) == 2 * cells * (12 * dim**2 + 13 * dim) + 2 * dim
        assert count(TransformerDecoder(dim, 2, cells, causal=True)) == 2 * cells * (16 * dim**2 + 19 * dim) + 2 * dim
    if dim == 512:
        assert count(EvolvedEncoder(dim, 8, 1).cells) == 5_668_864
        assert count(EvolvedDecoder(dim, 8, 1, causal=False).cells) == 7_503_104


def test_number_of_heads():
    assert [first_heads(number) for number in (1, 4, 8, 12, 16, 20)] == [2, 8, 16, 16, 16, 20]
    module = EvolvedDecoder(48, 12, 1, causal=True)
    (cell,) = module.cells
    attentions = (cell.first_attention, cell.first_cross, cell.attention, cell.cross)
    assert [each.num_heads for each in attentions] == [16, 12, 12, 12]


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: EvolvedEncoder(9, 3, 1), "dim=9"),
        (lambda: EvolvedDecoder(9, 3, 1, causal=True), "dim=9"),
        (lambda: EvolvedEncoder(10, 4, 1), "dim=10.*num_heads=4"),
        (lambda: EvolvedDecoder(10, 4, 1, causal=True), "dim=10.*num_heads=4"),
        (lambda: EvolvedDecoder(12, 4, 1, causal=True), "dim=12.*multiple of 8.*num_heads=4"),
        (lambda: TransformerEncoder(10, 4, 1), "dim=10.*num_heads=4"),
        (lambda: TransformerDecoder(10, 4, 1, causal=True), "dim=10.*num_heads=4"),
    ],
)
def test_impossible_sizes(build, named):
    with pytest.raises(RamifyError, match=named):
        build()


@pytest.mark.parametrize(("kind", "options"), modules())
@pytest.mark.parametrize("rates", [{"dropout": 0.3}, {"attention_dropout": 0.3}], ids=["all", "attention"])
def test_dropout_only_in_training(kind, options, rates):
    module, without = built(kind, **rates, **options), built(kind, **options)
    (x, rows), (encoder_output, encoder_rows) = drawn(LENGTHS), drawn(ENCODER_LENGTHS, seed=2)
    expected = decoded(without, x, rows, encoder_output, encoder_rows)
    for _ in range(2):
        assert not torch.equal(decoded(module, x, rows, encoder_output, encoder_rows), expected)
    module.eval()
    assert torch.equal(decoded(module, x, rows, encoder_output, encoder_rows), expected)


@pytest.mark.parametrize(("kind", "options"), modules())
@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_no_tokens(kind, options, lengths):
    module = built(kind, **options)
    x, rows = drawn(lengths)
    encoder_output, encoder_rows = drawn([3 for _ in lengths])
    assert decoded(module, x, rows, encoder_output, encoder_rows).shape == (0, DIM)


@pytest.mark.parametrize("kind", DECODERS)
def test_encoder_output_has_one_row_per_row(kind):
    (x, rows), (encoder_output, encoder_rows) = drawn([4, 2]), drawn([3])
    with pytest.raises(AssertionError, match="2 rows cannot attend to 1 rows"):
        built(kind, causal=False)(x, rows, encoder_output, encoder_rows)


@pytest.mark.parametrize(("kind", "options"), modules())
def test_recorded_weights_are_those_of_every_row(kind, options):
    module = built(kind, **options)
    (x, rows), (encoder_output, encoder_rows) = drawn(LENGTHS), drawn(ENCODER_LENGTHS, seed=2)
    record = []
    if options:
        found = module(x, rows, encoder_output, encoder_rows, record)
    else:
        found = module(x, rows, record)
    assert torch.equal(found, decoded(module, x, rows, encoder_output, encoder_rows))
    assert len(record) == (CELLS if kind is EvolvedEncoder else 2 * CELLS)
    for number, layer in enumerate(record):
        assert set(layer) == ({"self", "cross"} if options else {"self"})
        for name in layer:
            keys = LENGTHS if name == "self" else ENCODER_LENGTHS
            heads = 2 * HEADS if (kind, name, number % 2) == (EvolvedDecoder, "self", 0) else HEADS
            for weights, query, key in zip(layer[name], LENGTHS, keys, strict=True):
                assert weights.shape == (heads, query, key)
                torch.testing.assert_close(weights.sum(2), torch.full((heads, query), float(key > 0), dtype=torch.float64))
        if options.get("causal"):
            assert not any(weights.triu(1).any() for weights in layer["self"])

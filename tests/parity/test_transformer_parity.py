"""Our Transformer against torch's modules with the same weights, in double precision."""

import numpy as np
import pytest
import torch
from torch import nn

from fixtures import bare_rows
from ramify.batching.pair_batch import PairCollator
from ramify.batching.views.pairs import Pair
from ramify.models.transformer import TransformerConfig

SIZES = {"vocab_size": 13, "dim": 16, "num_heads": 4, "ffn_dim": 24, "encoder_layers": 2, "decoder_layers": 3, "dropout": 0.0}
SOURCES = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 12, 3, 4, 5, 6, 7], [4, 4]]
TARGETS = [[5, 4, 3], [6, 7, 8, 9, 10, 11, 12, 3, 4], [3], [8, 8, 8, 9]]


def model_of(**changes):
    torch.manual_seed(0)
    model = TransformerConfig(**SIZES | changes).build().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@torch.no_grad()
def copy_attention(theirs, ours):
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def copy_layers(theirs, ours):
    """Copy the weights of a stack into torch's encoder or decoder."""
    for there, layer in zip(theirs.layers, ours.layers, strict=True):
        copy_attention(there.self_attn, layer.attention)
        norms = [layer.attention_norm, layer.ffn_norm]
        if layer.cross is not None:
            copy_attention(there.multihead_attn, layer.cross)
            norms.insert(1, layer.cross_norm)
        for number, norm in enumerate(norms, 1):
            getattr(there, f"norm{number}").load_state_dict(norm.state_dict())
        there.linear1.load_state_dict(layer.ffn_in.state_dict())
        there.linear2.load_state_dict(layer.ffn_out.state_dict())
    if ours.final_norm is not None:
        theirs.norm.load_state_dict(ours.final_norm.state_dict())


def stacks_of(model):
    """Torch's encoder and decoder with the weights of our model."""
    config = model.config
    settings = {
        "dim_feedforward": config.ffn_dim,
        "dropout": 0.0,
        "activation": config.activation,
        "layer_norm_eps": config.eps,
        "batch_first": True,
        "norm_first": config.norm == "pre",
        "dtype": torch.float64,
    }

    def norm():
        ends = config.norm == "pre" or config.final_norm
        return nn.LayerNorm(config.dim, config.eps, dtype=torch.float64) if ends else None

    size = config.dim, config.num_heads
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*size, **settings), config.encoder_layers, norm(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*size, **settings), config.decoder_layers, norm())
    copy_layers(encoder, model.encoder)
    copy_layers(decoder, model.decoder)
    return encoder.eval(), decoder.eval()


def padded(embeddings, texts):
    """The embeddings of texts in a table, and which of its places are padding."""
    rows = [embeddings(torch.tensor(text), torch.arange(len(text))) for text in texts]
    lengths = torch.tensor([len(text) for text in texts])
    table = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return table, torch.arange(table.shape[1]) >= lengths[:, None]


FORMS = {
    "post": {},
    "pre": {"norm": "pre", "activation": "gelu"},
    "final": {"final_norm": True, "position": "learned"},
}


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
def test_encoder_and_decoder_of_torch(form):
    model = model_of(**FORMS[form])
    encoder, decoder = stacks_of(model)
    batch = PairCollator(1, 2)([Pair(np.array(t), np.array(s)) for s, t in zip(SOURCES, TARGETS, strict=True)])
    source = [ids.tolist() for ids in batch.source.ids.split(batch.source.rows.host_lengths.tolist())]
    target = [ids.tolist() for ids in batch.target.ids.split(batch.target.rows.host_lengths.tolist())]
    x, source_padding = padded(model.source_embeddings, source)
    y, padding = padded(model.target_embeddings, target)
    encoded = encoder(x, src_key_padding_mask=source_padding)
    torch.testing.assert_close(model.encode_rows(batch.source).last, encoded[~source_padding], rtol=0, atol=1e-10)
    later = torch.ones(y.shape[1], y.shape[1]).triu(1).bool()
    masks = {"tgt_mask": later, "tgt_key_padding_mask": padding, "memory_key_padding_mask": source_padding}
    expected = decoder(y, encoded, **masks)[~padding]
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-10)
    if form == "final":
        whole = nn.Transformer(16, 4, 2, 3, 24, 0.0, batch_first=True, dtype=torch.float64).eval()
        whole.encoder.use_nested_tensor = False
        whole.encoder.load_state_dict(encoder.state_dict())
        whole.decoder.load_state_dict(decoder.state_dict())
        joined = whole(x, y, src_key_padding_mask=source_padding, **masks)
        torch.testing.assert_close(model(batch), joined[~padding], rtol=0, atol=1e-10)


def test_gradients_are_those_of_torch():
    model = model_of()
    encoder, _ = stacks_of(model)
    rows = bare_rows(sorted(SOURCES, key=len))
    weight = torch.randn(rows.rows.total, 16, dtype=torch.float64)
    (model.encode_rows(rows).last * weight).sum().backward()
    x, padding = padded(model.source_embeddings, [ids.tolist() for ids in rows.ids.split(rows.rows.host_lengths.tolist())])
    (encoder(x.detach(), src_key_padding_mask=padding)[~padding] * weight).sum().backward()
    for theirs, ours in zip(encoder.layers, model.encoder.layers, strict=True):
        expected = theirs.self_attn.in_proj_weight.grad.split([16, 32])
        torch.testing.assert_close(ours.attention.query.weight.grad, expected[0], rtol=0, atol=1e-9)
        torch.testing.assert_close(ours.attention.key_value.weight.grad, expected[1], rtol=0, atol=1e-9)
        torch.testing.assert_close(ours.ffn_in.weight.grad, theirs.linear1.weight.grad, rtol=0, atol=1e-9)

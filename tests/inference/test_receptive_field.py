"""Receptive fields: exact norms, and which inputs each kind of model reads."""

from typing import Any

import numpy as np
import pytest
import torch

from fixtures import bare_rows
from ramify.errors import RamifyError
from ramify.inference import receptive_field as module
from ramify.inference.receptive_field import receptive_field
from ramify.models.bert import BertConfig
from ramify.models.elmo import ElmoConfig
from ramify.models.recurrent import RecurrentConfig, RecurrentEncoder
from ramify.models.transformer import TransformerConfig
from ramify.models.xlnet import XLNetConfig

ROW = bare_rows([[5, 9, 6, 5, 8, 7]])
LENGTH = ROW.rows.total
PLACES = np.arange(LENGTH)
EARLIER, LATER = PLACES[:, None] > PLACES, PLACES[:, None] < PLACES
SIZES = {"vocab_size": 12, "dim": 8, "dropout": 0.0}
HEADS = {"num_heads": 2, "ffn_dim": 12}


def built(config: Any) -> Any:
    torch.manual_seed(0)
    model = config.build().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def recurrent(**changes: Any) -> RecurrentEncoder:
    return built(RecurrentConfig(**(SIZES | {"hidden": 6, "num_layers": 3} | changes)))


def test_norms_are_those_of_the_whole_jacobian():
    """In a model with layers of unequal widths, however many copies of the row are computed at once."""
    model = recurrent(num_layers=2)
    words = model.embedding(ROW.ids).detach()
    for layer, norms in enumerate(receptive_field(model, ROW, parts=2)):
        jacobian = torch.autograd.functional.jacobian(
            lambda x, layer=layer: model.recurrent(x, ROW.rows).layers[layer].unflatten(1, (2, -1)), words
        )
        np.testing.assert_allclose(norms, jacobian.square().sum((2, 4)).sqrt().permute(1, 0, 2), rtol=1e-9)


def test_copies_are_counted_in_several_batches(monkeypatch):
    model = recurrent()
    expected = receptive_field(model, ROW)
    monkeypatch.setattr(module, "TOKENS", 5 * LENGTH)
    np.testing.assert_allclose(receptive_field(model, ROW), expected, rtol=1e-9)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_one_direction_reads_nothing_that_follows(cell):
    for norms in receptive_field(recurrent(cell=cell, direction="forward"), ROW)[:, 0]:
        assert (norms[LATER] == 0).all()
        assert (norms[~LATER] > 0).all()


def test_two_directions_read_both_sides():
    """Each half of the first layer has one side; above it, each half has both."""
    fields = receptive_field(recurrent(), ROW, parts=2)
    assert (fields[0, 0][LATER] == 0).all()
    assert (fields[0, 1][EARLIER] == 0).all()
    assert (fields[1:] > 0).all()
    assert (receptive_field(recurrent(), ROW) > 0).all()


@pytest.mark.parametrize("input", ["words", "characters"])
def test_the_directions_of_an_elmo_stay_apart_in_every_layer(input):
    config = ElmoConfig(**SIZES, hidden=10, num_layers=3, input=input, char_dim=4, filters=((1, 4), (2, 5)), num_highways=1)
    model = built(config)
    if input == "characters":
        model.spell(np.random.default_rng(0).integers(0, 256, size=(12, 50), dtype=np.uint8))
    for forward, backward in receptive_field(model, ROW, parts=2):
        assert (forward[LATER] == 0).all()
        assert (backward[EARLIER] == 0).all()
        assert (forward[~LATER] > 0).all()
        assert (backward[~EARLIER] > 0).all()


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(**SIZES, **HEADS),
        TransformerConfig(**SIZES, **HEADS, norm="pre"),
        BertConfig(**SIZES, **HEADS),
        XLNetConfig(**SIZES, **HEADS, num_layers=2),
    ],
)
def test_every_layer_of_a_transformer_encoder_reads_the_whole_row(config):
    assert (receptive_field(built(config), ROW)[0] > 0).all()


def test_a_decoder_reads_nothing_that_follows():
    for norms in receptive_field(built(TransformerConfig(**SIZES, **HEADS, encoder_layers=0)), ROW)[:, 0]:
        assert (norms[LATER] == 0).all()
        assert (norms[~LATER] > 0).all()


@pytest.mark.parametrize("texts", [[[5, 6], [7]], [[]], []])
def test_one_row_with_tokens_is_needed(texts):
    with pytest.raises(RamifyError, match=r"row holds .*Pass one row with tokens"):
        receptive_field(recurrent(), bare_rows(texts))

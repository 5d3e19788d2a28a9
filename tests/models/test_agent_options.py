"""AGENT's additions to the paper: ways around the Compressor, normalized children, scales, and products with siblings."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fixtures import tokenizer
from fixtures.nested import batch_of, books, config, gradients, losses, rows_of, task
from ramify.batching.document_batch import EOS, NUM_MARKS, PAD, DocumentBatch
from ramify.config import from_record
from ramify.errors import RamifyError
from ramify.hub import own_tensors, start_from
from ramify.models.agent import Agent, AgentConfig
from ramify.models.base import BACKBONE, Checkpoint
from ramify.nn.ragged import Rows
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tensors import save_tensors

EXACT = {"rtol": 0, "atol": 1e-10}
ALL = {
    "token_skip": True,
    "compressor_skip": "gelu",
    "decompressor_skip": True,
    "children_norm": True,
    "mark_scale": "root_dim",
    "position_scale": 0.25,
    "decoder_position_scale": 0.5,
    "sibling_product": True,
}
"""Other values than the defaults of all options."""
CASES = {
    **{name: {name: value} for name, value in ALL.items()},
    "linear": {"compressor_skip": "linear"},
    "all": ALL,
    "all, padded": ALL | {"padding": "full", "positions": "learned"},
    "all, odd": ALL | {"dims": (8, 12, 16, 15), "cells": "transformer"},
    "one level, odd": {
        "levels": ("sentence",),
        "dims": (8, 11),
        "max_children": (6,),
        "encoder_cells": (1,),
        "decoder_cells": (1,),
        "token_skip": True,
        "compressor_skip": "gelu",
    },
}


def fitted(model: dict[str, Any], **changes: Any) -> NestedAutoencoder:
    """A model whose sentences are standardized by the statistics of some of them."""
    own = task(model, **changes)
    skip = own.backbone.encoder(0).token_skip
    if skip is not None:
        with torch.no_grad():
            skip.mean.normal_()
            skip.std.uniform_(0.5, 2.0)
    return own


def inputs_of_row(backbone: Agent, number: int, items: Tensor, slots: list[int], segments: list[int] | None = None) -> Tensor:
    """The input of the Encoder for one row, slot by slot."""
    sizes, states = backbone.config, backbone.encoder(number).states
    dim = sizes.dims[number]
    above = number > 0
    x = []
    for slot in slots:
        vector = items[slot]
        if not above or (slot < NUM_MARKS and sizes.mark_scale == "root_dim"):
            vector = vector * math.sqrt(dim)
        elif slot >= NUM_MARKS and sizes.children_norm:
            spread = ((vector - vector.mean()).square().mean() + 1e-5).sqrt()
            vector = (vector - vector.mean()) / spread * states.norm.weight + states.norm.bias
        x.append(vector)
    read = []
    for place, (vector, slot) in enumerate(zip(x, slots, strict=True)):
        siblings = [other for at, other in enumerate(x) if at != place and slots[at] >= NUM_MARKS]
        segment = segments[place] if segments is not None else 0
        if segment and sizes.sibling_product and siblings:
            assert slot >= NUM_MARKS
            vector = vector + vector * torch.stack(siblings).mean(0)
        mark = states.segments[segment] * (math.sqrt(dim) if above and sizes.mark_scale == "root_dim" else 1)
        position = states.positions.weight[place] * (sizes.position_scale if above else 1)
        read.append(vector + position + mark)
    return torch.stack(read)


def vector_of_row(backbone: Agent, number: int, x: Tensor, slots: list[int]) -> Tensor:
    """The vector of one row, from the input of its Encoder."""
    sizes, encoder = backbone.config, backbone.encoder(number)
    states = encoder.states.encoder(x, Rows.build([len(slots)]))
    vector = encoder.compressor.lstm(states[:, None])[1][0][:, 0].flatten()
    vector = vector if encoder.out is None else encoder.out(vector)
    children = [place for place, slot in enumerate(slots) if slot >= NUM_MARKS]
    if children and sizes.compressor_skip != "none":
        units = []
        for place in children:
            unit = states[place]
            if sizes.compressor_skip == "gelu":
                unit = encoder.compressor_skip.hidden.weight @ unit + encoder.compressor_skip.hidden.bias
                unit = unit * 0.5 * (1 + torch.erf(unit / math.sqrt(2)))
            units.append(unit)
        vector = vector + encoder.compressor_skip.out.weight @ torch.stack(units).mean(0)
    if number == 0 and sizes.token_skip:
        skip = encoder.token_skip
        vector = (vector - skip.mean) / skip.std
        for place in children:
            vector = vector + skip.table.weight[slots[place] - NUM_MARKS] / math.sqrt(len(children))
    return vector


def padded(backbone: Agent, number: int, slots: list[int]) -> list[int]:
    places = backbone.config.max_children[number] if backbone.config.padding == "full" else len(slots)
    return slots + [PAD] * (places - len(slots))


def drawn(own: NestedAutoencoder) -> DocumentBatch:
    return own.draw(batch_of(own, books(4)), 5)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_vectors_are_those_of_the_equations(name):
    own = fitted(CASES[name]).eval()
    batch = batch_of(own, books(3))
    backbone, vectors = own.backbone, None
    for number, (level, computed) in enumerate(zip(batch.levels, backbone(batch).nodes, strict=True)):
        items = backbone.encoder(number).items(vectors)
        rows = []
        for slots, _ in rows_of(level):
            slots = padded(backbone, number, slots)
            rows.append(vector_of_row(backbone, number, inputs_of_row(backbone, number, items, slots), slots))
        vectors = torch.stack(rows)
        torch.testing.assert_close(computed, vectors, **EXACT)
        assert vectors.shape[1] == backbone.config.dims[number + 1]


@pytest.mark.parametrize("name", ["sibling_product", "mark_scale", "all", "all, padded"])
@torch.no_grad()
def test_vectors_with_marked_children_are_those_of_the_equations(name):
    own = fitted(CASES[name]).eval()
    batch = drawn(own)
    backbone, vectors = own.backbone, None
    for number, (level, draws) in enumerate(zip(batch.levels, batch.draws, strict=True)):
        encoder = backbone.encoder(number)
        items = encoder.items(vectors)
        assert draws.segments is not None
        states = encoder.states(items, draws.replaced_slots, level.rows, draws.segments)
        computed = encoder.row_vectors(states, draws.replaced_slots, level.rows)
        lengths = level.rows.host_lengths.tolist()
        rows = zip(draws.replaced_slots.split(lengths), draws.segments.split(lengths), strict=True)
        for vector, (slots, segments) in zip(computed, rows, strict=True):
            x = inputs_of_row(backbone, number, items, slots.tolist(), segments.tolist())
            torch.testing.assert_close(vector, vector_of_row(backbone, number, x, slots.tolist()), **EXACT)
        vectors = backbone.encode(number, vectors, level)


@pytest.mark.parametrize("options", [{"sibling_product": True}, ALL], ids=["alone", "all"])
@torch.no_grad()
def test_rows_without_marked_children_are_unchanged(options):
    """P = 0: bit-equal to the vector of the encoder, whatever the other rows hold."""
    own = fitted(options, dtype=torch.float32).eval()
    batch = drawn(own)
    vectors, changed = None, 0
    for number, (level, draws) in enumerate(zip(batch.levels, batch.draws, strict=True)):
        encoder = own.backbone.encoder(number)
        states = encoder.states(encoder.items(vectors), draws.replaced_slots, level.rows, draws.segments)
        again = encoder.row_vectors(states, draws.replaced_slots, level.rows)
        vectors = own.backbone.encode(number, vectors, level)
        is_marked = torch.zeros(len(level.rows), dtype=torch.bool)
        is_marked[level.child_row[draws.segments[level.child_slot] == 1]] = True
        assert torch.equal(again[~is_marked], vectors[~is_marked])
        assert (again[is_marked] != vectors[is_marked]).any(1).all()
        changed += int(is_marked.sum())
        assert not is_marked.all()
    assert changed > 3


@torch.no_grad()
def test_an_only_child_has_no_siblings(near):
    plain, own = task().eval(), task({"sibling_product": True}).eval()
    slots, rows = torch.tensor([NUM_MARKS + 1, EOS]), Rows.build([2])
    segments = torch.tensor([1, 0])
    one, other = (each.backbone.encoder(0) for each in (plain, own))
    near(one.states(one.items(None), slots, rows, segments), other.states(other.items(None), slots, rows, segments))


@pytest.mark.parametrize("padding", ["packed", "full"])
@pytest.mark.parametrize("kind", ["linear", "gelu"])
@torch.no_grad()
def test_a_row_without_children_has_the_final_states_alone(kind, padding):
    own = fitted({"compressor_skip": kind, "token_skip": True, "padding": padding}).eval()
    for number in (0, 1):
        encoder = own.backbone.encoder(number)
        slots = torch.tensor(padded(own.backbone, number, [EOS]))
        rows = Rows.build([len(slots)])
        items = encoder.items(None if number == 0 else torch.zeros(0, 12, dtype=torch.float64))
        states = encoder.states(items, slots, rows)
        vector = encoder.compress(states, slots, rows)
        torch.testing.assert_close(vector[0], encoder.compressor.lstm(states[:, None])[1][0][:, 0].flatten(), **EXACT)
        if number == 0:
            skip = encoder.token_skip
            torch.testing.assert_close(encoder.with_tokens(vector, slots, rows), (vector - skip.mean) / skip.std, **EXACT)
        else:
            assert torch.equal(encoder.with_tokens(vector, slots, rows), vector)
        # No rows at all.
        nothing = Rows.build([])
        empty = encoder.row_vectors(states[:0], slots[:0], nothing)
        assert empty.shape == (0, own.backbone.config.dims[number + 1])


@pytest.mark.parametrize("padding", ["packed", "full"])
@torch.no_grad()
def test_texts_have_the_vectors_of_their_rows(padding):
    own = fitted(ALL | {"padding": padding}).eval()
    backbone, level = own.backbone, batch_of(own, books(3)).levels[0]
    vectors = backbone.vectors(level.token_rows(tokenizer().vocab_size))
    torch.testing.assert_close(vectors, backbone.encode(0, None, level), **EXACT)
    encoder = backbone.encoder(0)
    compressed = encoder.compress(encoder.states(encoder.items(None), level.slots, level.rows), level.slots, level.rows)
    torch.testing.assert_close(vectors, encoder.with_tokens(compressed, level.slots, level.rows), **EXACT)
    assert (vectors - compressed).abs().max() > 0.1


@pytest.mark.parametrize("decoder", ["parallel", "autoregressive"])
@torch.no_grad()
def test_positions_of_the_decoder_are_scaled_above_the_tokens(decoder):
    own = task({"decoder_position_scale": 0.5, "decoder": decoder}).eval()
    rows = Rows.build([3])
    for level, scale in enumerate([1.0, 0.5, 0.5]):
        read = own.decoder.level(level)
        x = torch.randn(3, own.backbone.config.dims[level], dtype=torch.float64)
        expected = read.decoder(x + read.positions(rows.positions) * scale, rows, x, rows)
        states = read.parallel(x, rows) if decoder == "parallel" else read.after(x, rows, x, rows)
        torch.testing.assert_close(states, expected, **EXACT)


# --- gradients ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", [name for name in CASES if name != "one level, odd"])
def test_gradients_numerically(name, number):
    """Finite differences of a level's vectors, by its children's vectors and by the parameters of the options."""
    backbone = fitted(CASES[name]).eval().backbone
    encoder = backbone.encoder(number)
    filled = [padded(backbone, number, slots) for slots in ([7, 6, EOS], [EOS], [8, 9, 7, EOS])]
    slots, rows = torch.tensor([slot for row in filled for slot in row]), Rows.build([len(row) for row in filled])
    segments = torch.zeros_like(slots)
    segments[[0, len(filled[0]) + len(filled[1])]] = 1
    options = ("compressor_skip", "token_skip", "norm", "segments", "positions")
    inputs = [value for name, value in encoder.named_parameters() if any(option in name for option in options)]
    children = torch.randn(4, 12, dtype=torch.float64, requires_grad=True) if number else None

    def vectors(*_: Tensor) -> Tensor:
        # The inputs are changed in place.
        return encoder.row_vectors(encoder.states(encoder.items(children), slots, rows, segments), slots, rows)

    assert torch.autograd.gradcheck(vectors, inputs if children is None else [*inputs, children], fast_mode=True)


def test_every_parameter_of_an_option_learns():
    """A parameter without a gradient would stop training on several ranks."""
    plain = {name for name, _ in task(top="collection").named_parameters()}
    own = fitted(ALL, top="collection")
    learning = gradients(own, own.draw(batch_of(own, books(4)), 2))
    added = {name for name, _ in own.named_parameters()} - plain
    assert {name.rpartition(".")[0].removeprefix(BACKBONE) for name in added} == {
        "encoders.0.token_skip.table",
        *(f"encoders.{level}.compressor_skip.{name}" for level in range(3) for name in ("hidden", "out")),
        *(f"encoders.{level}.states.norm" for level in (1, 2)),
        *(f"decoder.decoders.{level}.skip" for level in range(3)),
        "collection.states.norm",
    }
    for name in added:
        assert float(learning[name].abs().max()) > 0, name


def test_candidates_are_the_vectors_themselves():
    own = fitted(ALL).eval()
    batch = drawn(own)
    vectors = own.backbone(batch).nodes[0]
    encoded = own.encode(batch, 1, vectors)
    assert torch.equal(encoded.items[NUM_MARKS : NUM_MARKS + len(vectors)], vectors)
    assert torch.equal(encoded.items[:NUM_MARKS], own.backbone.encoder(1).table.weight)
    assert all(torch.isfinite(value) for value in losses(own, batch).values())


# --- standardization ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_vectors_are_standardized_by_those_that_were_fitted():
    own = task({"token_skip": True}).eval()
    skip = own.backbone.encoder(0).token_skip
    assert skip is not None
    slots, rows = torch.full((20_000,), EOS), Rows.build([1] * 20_000)
    vectors = torch.randn(20_000, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 5
    vectors[:, 2] = 0.1
    assert torch.equal(skip(vectors, slots, rows), vectors)
    skip.fit(vectors)
    standard = skip(vectors, slots, rows)
    torch.testing.assert_close(standard.mean(0), torch.zeros(12, dtype=torch.float64), **EXACT)
    expected = torch.ones(12, dtype=torch.float64)
    expected[2] = 0
    torch.testing.assert_close(standard.std(0, correction=0), expected, **EXACT)
    saved = own_tensors(own)
    again = task({"token_skip": True})
    start_from(again, saved, "here")
    assert torch.equal(again.backbone.encoder(0).token_skip.mean, skip.mean)
    assert torch.equal(again.backbone.encoder(0).token_skip.std, skip.std)


# --- checkpoints and settings -------------------------------------------------------------------------------------------------


def test_a_model_with_options_starts_from_one_without():
    """New parameters stay fresh, and sentences keep the vectors of their Compressor."""
    saved = task()
    torch.manual_seed(7)
    own = NestedAutoencoder(config(**ALL).build(), tokenizer(), saved.input, saved.config).double()
    before = {name: tensor.clone() for name, tensor in own_tensors(own).items()}
    start_from(own, own_tensors(saved), "here")
    fresh = [name for name in before if name not in own_tensors(saved)]
    assert any("token_skip.std" in name for name in fresh)
    for name in fresh:
        assert torch.equal(own_tensors(own)[name], before[name])
    batch = batch_of(own, books(2))
    rows = batch.levels[0]
    with torch.no_grad():
        encoder = own.eval().backbone.encoder(0)
        states = encoder.states(encoder.items(None), rows.slots, rows.rows)
        compressed = encoder.compress(states, rows.slots, rows.rows)
        torch.testing.assert_close(compressed, saved.eval().backbone(batch).nodes[0], **EXACT)


@pytest.mark.parametrize("name", ALL)
def test_an_option_that_a_checkpoint_leaves_out_may_be_on(name):
    checkpoint = Checkpoint("here", Path(), config())
    wanted = config(**{name: ALL[name], "dims": (16, 16, 16, 16), "dropout": 0.3})
    assert wanted.adapted_to(checkpoint) == replace(config(**{name: ALL[name]}), dropout=0.3)
    saved = Checkpoint("here", Path(), config(**ALL))
    assert wanted.adapted_to(saved) == replace(config(**ALL), dropout=0.3)


@pytest.mark.parametrize("name", ALL)
def test_options_of_trained_levels_stay(name):
    """They may be added to a model of its lowest level alone, whose vectors they do not change."""
    plain, own = config(), config(**{name: ALL[name]})
    alone, with_option = plain.with_levels(["sentence"]), own.with_levels(["sentence"])
    own.check_options(Checkpoint("here", Path(), own))
    own.check_options(Checkpoint("here", Path(), alone))
    for wanted, saved in ((own, plain), (plain, own), (plain, with_option)):
        with pytest.raises(RamifyError, match=rf"model\.{name}=.* which --init here has trained with model\.{name}="):
            wanted.check_options(Checkpoint("here", Path(), saved))


def test_a_backbone_starts_with_its_statistics(tmp_path):
    saved, own = fitted(ALL), task(ALL)
    save_tensors(tmp_path / "model.safetensors", own_tensors(saved))
    own.backbone.config.initialize(own.backbone, Checkpoint("here", tmp_path, saved.backbone.config))
    for name, tensor in own_tensors(own.backbone).items():
        assert torch.equal(tensor, own_tensors(saved.backbone)[name]), name


def test_settings_of_older_models_leave_the_options_out():
    record = {name: value for name, value in vars(config()).items() if name not in ALL}
    assert from_record(AgentConfig, record) == config()
    assert not {name for name in own_tensors(task()) if "skip" in name or "states.norm" in name}


def test_fresh_weights_do_not_depend_on_options_without_parameters():
    plain, own = (own_tensors(task(options)) for options in ({}, {"mark_scale": "root_dim", "sibling_product": True}))
    assert plain.keys() == own.keys()
    assert all(torch.equal(plain[name], own[name]) for name in plain)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ({"position_scale": -0.5}, {}, r"model\.position_scale must not be negative, but is -0\.5"),
        ({"sibling_product": True}, {"marks": "none"}, r"model\.sibling_product=true changes .* Set task\.marks=seed"),
    ],
)
def test_settings_that_cannot_be(model, settings, message):
    with pytest.raises(RamifyError, match=message):
        task(model, **settings)


@pytest.mark.ill_typed
@pytest.mark.parametrize("changes", [{"compressor_skip": "relu"}, {"mark_scale": "dim"}], ids=str)
def test_unknown_options_are_refused(changes):
    with pytest.raises(RamifyError, match=rf"model\.{next(iter(changes))}"):
        config(**changes)

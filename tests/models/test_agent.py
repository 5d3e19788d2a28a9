"""AGENT: vectors from rows and rows from vectors, level by level; ends and lengths; sizes that are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import tokenizer
from fixtures.nested import EVERY_OPTION, SIZES, batch_of, book, books, config, rows_of, task
from ramify.batching.document_batch import BOS, CONT, EOS, JOIN, MASK, NUM_MARKS, PAD
from ramify.errors import RamifyError
from ramify.inference.documents import decoding
from ramify.inference.documents.decoding import ChildScores, decode_children, joined
from ramify.models.agent import AgentConfig, CoherenceChecker, LevelDecoder, LevelEncoder
from ramify.nn.evolved import EvolvedDecoder, EvolvedEncoder
from ramify.nn.linear import linear
from ramify.nn.ragged import Rows

EXACT = {"rtol": 0, "atol": 1e-10}
VARIANTS = {
    "parallel": {},
    "causal cells": {"causal_cells": True},
    "autoregressive": {"decoder": "autoregressive"},
    "predicted": {"decoder_length": "predicted"},
    "autoregressive, predicted": {"decoder": "autoregressive", "decoder_length": "predicted"},
}
CELLS = ["evolved", "transformer"]


# --- the encoder --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("padding", ["packed", "full"])
@torch.no_grad()
def test_vectors_are_those_of_the_equations(cells, padding):
    """Row by row: children and the end mark, (padding,) positions, segment A, Encoder, and the last states of the LSTM."""
    own = task({"cells": cells, "padding": padding, "dims": (8, 12, 16, 15)}).eval()
    batch = batch_of(own, books(3))
    vectors = None
    found = own.backbone(batch).nodes
    for number, level in enumerate(batch.levels):
        encoder = own.backbone.encoder(number)
        table = encoder.table.weight
        items = table if vectors is None else torch.cat([table, vectors])
        rows = []
        for slots, children in rows_of(level):
            assert slots == [*(NUM_MARKS + child for child in children), slots[-1]]
            length = own.backbone.config.max_children[number] if padding == "full" else len(slots)
            padded = slots + [PAD] * (length - len(slots))
            x = items[padded] * (math.sqrt(8) if number == 0 else 1)
            x = x + encoder.states.positions.weight[:length] + encoder.states.segments[0]
            states = encoder.states.encoder(x, Rows.build([length]))
            last = encoder.compressor.lstm(states[:, None])[1][0][:, 0].flatten()
            rows.append(last if encoder.out is None else encoder.out(last))
        vectors = torch.stack(rows)
        torch.testing.assert_close(found[number], vectors, **EXACT)
        assert vectors.shape[1] == own.backbone.config.dims[number + 1]
    assert own.backbone.encoder(2).out is not None
    assert own.backbone.encoder(1).out is None
    assert own.backbone.out_dim == 15
    assert own.backbone.depth == 3


@torch.no_grad()
def test_the_second_segment_is_added_to_its_slots():
    own = task().eval()
    level = batch_of(own, books(1)).levels[0]
    encoder = own.backbone.encoder(0)
    segments = torch.zeros_like(level.slots)
    segments[1] = 1
    found = encoder.states(encoder.items(None), level.slots, level.rows, segments)
    own_items = torch.cat([encoder.items(None), encoder.items(None)[level.slots[1]][None]])
    own_items[-1] += (encoder.states.segments[1] - encoder.states.segments[0]) / encoder.scale
    slots = level.slots.clone()
    slots[1] = len(own_items) - 1
    torch.testing.assert_close(found, encoder.states(own_items, slots, level.rows), **EXACT)
    assert torch.equal(
        encoder.states(own_items, slots, level.rows), encoder.states(own_items, slots, level.rows, torch.zeros_like(slots))
    )
    assert (found - encoder.states(encoder.items(None), level.slots, level.rows)).abs().max() > 1e-3


def test_the_order_and_the_end_of_a_row_matter():
    own = task().eval()
    words = tokenizer().encode("aa ae")

    def vector(tokens, end):
        slots = torch.tensor([*(NUM_MARKS + token for token in tokens), end])
        encoder = own.backbone.encoder(0)
        rows = Rows.build([len(slots)])
        return encoder.row_vectors(encoder.states(encoder.items(None), slots, rows), slots, rows)

    for other in (vector(words[::-1], EOS), vector(words, CONT), vector(words[:1], EOS), vector([], EOS)):
        assert (vector(words, EOS) - other).abs().max() > 1e-3


# --- the decoder --------------------------------------------------------------------------------------------------------------


def vectors_of(level, count, own, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, own.backbone.config.dims[level + 1], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("decompressor", ["projected", "literal"])
@torch.no_grad()
def test_decompressor_reads_the_vector_at_every_place_and_nothing_else(decompressor):
    own = task({"decompressor": decompressor})
    for level in range(3):
        decoder = own.decoder.level(level)
        vectors = vectors_of(level, 4, own)
        lengths = [3, 1, 4, 4]
        found = decoder.decompress(vectors, Rows.build(lengths))
        expected = []
        for vector, length in zip(vectors, lengths, strict=True):
            states = decoder.decompressor.lstm(vector.repeat(length, 1, 1).reshape(length, 1, -1))[0][:, 0]
            expected.append(states if decoder.out is None else decoder.out(states))
        torch.testing.assert_close(found, torch.cat(expected), **EXACT)
        dim, vector = own.backbone.config.dims[level : level + 2]
        hidden = (vector if decompressor == "projected" else dim) // 2
        assert decoder.decompressor.lstm.hidden_size == hidden
        assert (decoder.out is None) == (decompressor == "literal")
        if decompressor == "literal":
            assert found.abs().max() < 1


def reshaped(own, batch, number, lengths):
    """The level of a batch as if its rows held the first `lengths` of the same children, and their vectors stayed."""
    level = batch.levels[number]
    slots = [[*slots[: length - 1], EOS] for (slots, _), length in zip(rows_of(level), lengths, strict=True)]
    flat = torch.tensor([slot for row in slots for slot in row])
    is_child = flat >= NUM_MARKS
    return replace(
        level,
        rows=Rows.build(lengths),
        slots=flat,
        true_slots=torch.arange(len(flat)),
        lengths=np.asarray(lengths),
        counts=np.asarray(lengths) - 1,
        is_child=is_child,
        child_slot=torch.nonzero(is_child)[:, 0],
        child_place=torch.nonzero(is_child)[:, 0],
        child_row=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[is_child],
    )


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("name", ["parallel", "causal cells", "autoregressive"])
@torch.no_grad()
def test_the_true_length_moves_no_logit(cells, name):
    """With the vector fixed, the outputs at the places that both lengths have are the same to the bit."""
    own = task(VARIANTS[name] | {"cells": cells}).eval()
    batch = batch_of(own, books(4))
    vectors = None
    for number, level in enumerate(batch.levels):
        encoded = own.encode(batch, number, vectors)
        vectors = encoded.parents
        shorter = [max(1, length - 1) for length in level.lengths.tolist()]
        other = replace(encoded, rows=reshaped(own, batch, number, shorter))
        one, two = own.decode(encoded), own.decode(other)
        whole = torch.split(one.states, level.lengths.tolist())
        cut = torch.split(two.states, shorter)
        compared = 0
        for left, right in zip(whole, cut, strict=True):
            if name == "autoregressive":
                # The batch of another shape is computed by other blocks of the same matrix product.
                torch.testing.assert_close(left[: len(right)], right, rtol=0, atol=1e-12)
            else:
                assert torch.equal(left[: len(right)], right)
            compared += len(right)
        assert compared > len(shorter)
        halves = zip(torch.split(one.decompressed, level.lengths.tolist()), torch.split(two.decompressed, shorter), strict=True)
        assert all(torch.equal(left[: len(right)], right) for left, right in halves)


@torch.no_grad()
def test_a_predicted_length_is_read_by_the_decoder():
    """In training it is the true one, which moves the outputs. Evaluation takes the predicted one."""
    own = task(VARIANTS["predicted"]).eval()
    batch = batch_of(own, books(4))
    encoded = own.encode(batch, 0, None)
    shorter = [max(1, length - 1) for length in batch.levels[0].lengths.tolist()]
    one, two = own.decode(encoded), own.decode(replace(encoded, rows=reshaped(own, batch, 0, shorter)))
    first = zip(torch.split(one.states, batch.levels[0].lengths.tolist()), torch.split(two.states, shorter), strict=True)
    assert max((left[: len(right)] - right).abs().max() for left, right in first) > 1e-3
    torch.testing.assert_close(one.length_scores, two.length_scores, rtol=0, atol=0)


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("name", ["parallel", "causal cells"])
def test_places_before_a_parallel_decoders_place(cells, name):
    """With causal cells, a place's state does not depend on later rows of the decoder's input; without, it does."""
    own = task(VARIANTS[name] | {"cells": cells}).eval()
    decoder = own.decoder.level(0)
    rows = Rows.build([6, 6])
    x = torch.randn(12, 8, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(12, 8, dtype=torch.float64)
    states = decoder.decoder(x, rows, memory, rows)
    (gradient,) = torch.autograd.grad(states[2].square().sum(), x)
    assert gradient[:3].abs().max() > 1e-4
    assert bool(gradient[3:6].abs().max() > 1e-4) == (name == "parallel")
    assert not gradient[6:].any()


@pytest.mark.parametrize("cells", CELLS)
def test_an_autoregressive_place_reads_the_children_before_it(cells):
    own = task(VARIANTS["autoregressive"] | {"cells": cells}).eval()
    batch = batch_of(own, [book([[5, 4, 3]])])
    level = batch.levels[0]
    encoded = own.encode(batch, 0, None)
    # A place's own child and those after it change nothing; the vector is held fixed.
    items = encoded.items.detach().clone()
    fixed = replace(encoded, items=items, parents=encoded.parents.detach())
    before = own.decode(fixed).states
    length = int(level.lengths[0])
    assert length > 3
    for place in range(length - 1):
        slots = level.slots.clone()
        slots[place] = NUM_MARKS + tokenizer().encode("hw")[0]
        after = own.decode(replace(fixed, rows=replace(level, slots=slots))).states
        torch.testing.assert_close(after[: place + 1], before[: place + 1], **EXACT)
        assert (after[place + 1] - before[place + 1]).abs().max() > 1e-4
        torch.testing.assert_close(after[length:], before[length:], **EXACT)


def test_the_first_place_reads_the_mark_of_a_start():
    own = task(VARIANTS["autoregressive"]).eval()
    batch = batch_of(own, books(2))
    encoded = own.encode(batch, 1, own.backbone(batch).nodes[0])
    items = encoded.items.detach().clone()
    fixed = replace(encoded, items=items, parents=encoded.parents.detach())
    before = own.decode(fixed).states
    for mark, moves in ((BOS, True), (EOS, False), (PAD, False), (MASK, False), (JOIN, False)):
        changed = items.clone()
        # (The same on all dimensions would vanish in a LayerNorm.)
        changed[mark, 0] += 1
        after = own.decode(replace(fixed, items=changed)).states
        assert bool((after - before).abs().max() > 1e-6) == moves, mark


# --- decoding -----------------------------------------------------------------------------------------------------------------


def single(own):
    """The task in single precision, as decoding reads it."""
    return own.to(torch.float32).eval()


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("level", [0, 1])
def test_scores_of_few_places_are_held_at_once(name, level, monkeypatch):
    own = single(task(VARIANTS[name]))
    vectors, known = vectors_of(level, 9, own).float().numpy(), candidates(own, level)
    whole = decode_children(own, level, vectors, known)
    held = []
    monkeypatch.setattr(decoding, "MAX_LOGITS", 100)
    monkeypatch.setattr(decoding, "linear", lambda *args: held.append(linear(*args)) or held[-1])
    parts = decode_children(own, level, vectors, known)
    assert [row.slots.tolist() for row in parts] == [row.slots.tolist() for row in whole]
    width = len(ChildScores(own, level, None if known is None else torch.from_numpy(known)).table)
    assert len(held) > 1
    assert max(each.numel() for each in held if each.shape[1] == width) <= max(100, width)


def candidates(own, level, count=7):
    return None if level == 0 else np.random.default_rng(3).normal(size=(count, own.backbone.config.dims[level])).astype("f4")


@pytest.mark.parametrize("changes", [{}, EVERY_OPTION], ids=["plain", "every option"])
@pytest.mark.parametrize("ends", ["class", "logistic"])
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("level", [0, 1, 2])
@torch.no_grad()
def test_decoded_rows_are_those_of_teacher_forcing_on_their_own_output(name, level, ends, changes):
    """The model is given what it wrote as the true children, and gives the same states and the same best children."""
    own = single(task(VARIANTS[name], ends=ends, **changes))
    vectors = vectors_of(level, 9, own).float()
    known = candidates(own, level)
    decoder, encoder = own.decoder.level(level), own.backbone.encoder(level)
    found = decode_children(own, level, vectors.numpy(), known)
    scores = ChildScores(own, level, None if known is None else torch.from_numpy(known))
    for vector, row in zip(vectors, found, strict=True):
        places = decoder.places
        if decoder.length is not None:
            places = int(decoder.length(vector[None]).argmax()) + 1
            # With a predicted length, the last place is the end.
            assert len(row.slots) == places - 1
            assert row.ended
        laid = Rows.build([places])
        decompressed = decoder.decompress(vector[None], laid)
        written = torch.from_numpy(row.states)
        if decoder.autoregressive:
            fed = torch.nn.functional.embedding(torch.from_numpy(row.slots), scores.table) * encoder.scale
            # Above the tokens, the decoded vector is fed back, not that of the best candidate.
            fed = fed if level == 0 else written[: len(row.slots)]
            start = scores.table[BOS][None] * encoder.scale
            previous = torch.cat([start, fed])[: len(written)]
            states = decoder.after(previous, Rows.build([len(written)]), decompressed, laid)
        else:
            states = decoder.parallel(decompressed, laid)[: len(written)]
        torch.testing.assert_close(own.restored_children(level, states), written, rtol=0, atol=1e-5)
        table = scores(states)
        if decoder.length is None:
            best = table.argmax(1)
            assert row.ended == (len(row.slots) < places)
            if row.ended:
                assert int(best[len(row.slots)]) in (EOS, CONT)
                assert row.continues == (int(best[len(row.slots)]) == CONT)
        else:
            # A row ends at its last place and nowhere else.
            if ends == "class" or level == 0:
                assert row.continues == bool(table[-1, CONT] > table[-1, EOS])
            best = table.index_fill(1, torch.tensor([EOS, CONT]), -math.inf).argmax(1)
        assert best[: len(row.slots)].tolist() == row.slots.tolist()
        assert not np.isin(row.slots, (EOS, CONT, PAD, BOS, MASK)).any()
        if level == 0:
            assert not np.isin(row.slots - NUM_MARKS, sorted(tokenizer().special_ids)).any()


@torch.no_grad()
def test_the_first_end_mark_ends_a_row():
    """A row with the end's bias raised is empty; one without ends fills all places."""
    own = single(task())
    vectors = vectors_of(0, 5, own).float().numpy()
    own.reconstruction_head.bias[[EOS, CONT]] = -100.0
    full = decode_children(own, 0, vectors)
    assert [len(row.slots) for row in full] == [6] * 5
    assert not any(row.ended or row.continues for row in full)
    own.reconstruction_head.bias[CONT] = 100.0
    empty = decode_children(own, 0, vectors)
    assert [(len(row.slots), row.ended, row.continues) for row in empty] == [(0, True, True)] * 5
    own.reconstruction_head.bias[EOS] = 200.0
    assert not any(row.continues for row in decode_children(own, 0, vectors))
    assert joined(full).tolist() == [slot for row in full for slot in row.slots.tolist()]
    assert len(joined([])) == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_are_decoded_alike_in_any_company(name, monkeypatch):
    own = single(task(VARIANTS[name]))
    vectors = vectors_of(1, 11, own).float().numpy()
    known = candidates(own, 1)
    together = decode_children(own, 1, vectors, known)
    monkeypatch.setattr(decoding, "ROWS", 3)
    for one, other in zip(together, decode_children(own, 1, vectors, known), strict=True):
        assert one.slots.tolist() == other.slots.tolist()
        np.testing.assert_allclose(one.states, other.states, atol=1e-5)
    assert decode_children(own, 1, vectors[:0], known) == []


@pytest.mark.parametrize("name", ["parallel", "predicted"])
def test_a_trained_model_decodes_its_sentences(name):
    """A few sentences are learnt by heart: predicted ends and tokens are right in every kind of decoder."""
    sizes = {"levels": ("sentence",), "dims": (16, 32), "max_children": (6,), "encoder_cells": (1,), "decoder_cells": (1,)}
    own = task(sizes | VARIANTS[name] | {"cells": "transformer"}, dtype=torch.float32)
    batch = batch_of(own, [book([[5, 1, 3, 2]], seed=2)])
    optimizer = torch.optim.Adam(own.parameters(), lr=5e-3)
    counts = own.counts(drawn := own.draw(batch, 0), "main")
    for _ in range(100):
        optimizer.zero_grad()
        named = next(iter(own.losses(drawn, counts, "main", None, None)))[0]
        sum(named[each] for each in named if each.startswith(("reconstruction", "length"))).backward()
        optimizer.step()
    with torch.no_grad():
        vectors = own.eval().backbone(batch).nodes[0].numpy()
    for row, (slots, _) in zip(decode_children(own, 0, vectors), rows_of(batch.levels[0]), strict=True):
        assert row.slots.tolist() == slots[:-1]
        assert row.ended


@torch.no_grad()
def test_logistic_ends_of_decoded_rows():
    """A row ends at the first place whose cosine with an end mark is on the right side; the likelier mark ends it."""
    own = single(task(ends="logistic"))
    vectors, known = vectors_of(1, 12, own).float(), candidates(own, 1)
    scorer = own.ends[0]
    items = own.backbone.encoder(1).items(torch.from_numpy(known))
    decoder = own.decoder.level(1)
    seen = set()
    for bias in (-9.0, 0.0, 9.0):
        scorer.bias.fill_(bias)
        for vector, row in zip(vectors, decode_children(own, 1, vectors.numpy(), known), strict=True):
            laid = decoder.all_places(1, torch.device("cpu"))
            states = decoder.parallel(decoder.decompress(vector[None], laid), laid)
            cosines = torch.nn.functional.cosine_similarity(states[:, None], items[[EOS, CONT]][None], dim=2)
            ends = torch.sigmoid(cosines * scorer.scale + scorer.bias) > 0.5
            expected = int(ends.any(1).nonzero()[0]) if ends.any() else decoder.places
            assert len(row.slots) == expected
            assert row.ended == (expected < decoder.places)
            assert row.continues == (row.ended and bool(cosines[expected, 1] > cosines[expected, 0]))
            assert (row.slots >= NUM_MARKS).all()
            seen.add(row.ended)
    assert seen == {True, False}


# --- sizes --------------------------------------------------------------------------------------------------------------------


def test_sizes_of_modules():
    own = task({"num_heads": 2, "encoder_cells": (2, 1, 3), "decoder_cells": (1, 2, 1)})
    for level, (dim, out, encoders, decoders) in enumerate(((8, 12, 2, 1), (12, 16, 1, 2), (16, 16, 3, 1))):
        encoder, decoder = own.backbone.encoder(level), own.decoder.level(level)
        assert isinstance(encoder, LevelEncoder)
        assert isinstance(decoder, LevelDecoder)
        assert isinstance(encoder.states.encoder, EvolvedEncoder)
        assert isinstance(decoder.decoder, EvolvedDecoder)
        assert len(encoder.states.encoder.cells) == encoders
        assert len(decoder.decoder.cells) == decoders
        # The closed form of the cells, and the final LayerNorm.
        number = sum(each.numel() for each in encoder.states.encoder.parameters())
        assert number == encoders * (21.5 * dim**2 + 64 * dim) + 2 * dim
        assert sum(each.numel() for each in decoder.decoder.parameters()) == decoders * (28.5 * dim**2 + 62.5 * dim) + 2 * dim
        assert tuple(encoder.table.weight.shape) == (NUM_MARKS + (tokenizer().vocab_size if level == 0 else 0), dim)
        assert tuple(encoder.states.segments.shape) == (2, dim)
        assert isinstance(own.checkers[level], CoherenceChecker)
        assert encoder.compressor.out_dim == out


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_every_weight_of_a_fresh_model_has_a_value(positions, monkeypatch):
    """Memory that nobody filled holds anything, mostly zeros, so here it holds nothing."""
    empty = torch.empty

    def poisoned(*size, **options):
        made = empty(*size, **options)
        return made.fill_(math.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)
    own = task({"positions": positions, "decoder_length": "predicted", "dims": (8, 12, 16, 15)})
    for name, parameter in own.named_parameters():
        assert torch.isfinite(parameter).all(), name
    assert any("positions" in name for name, _ in own.named_parameters()) == (positions == "learned")


def test_levels_of_the_data_take_sizes_from_the_lowest():
    sizes = AgentConfig()
    two = sizes.with_levels(("sentence", "document"))
    assert (two.levels, two.dims, two.max_children) == (("sentence", "document"), (128, 256, 384), (64, 16))
    assert (two.encoder_cells, two.decoder_cells) == ((2, 1), (1, 1))
    six = sizes.with_levels(("sentence", "paragraph", "chapter", "part", "volume", "document"))
    assert six.dims == (128, 256, 384, 512, 512, 512, 512)
    assert six.max_children == (64, 16, 128, 64, 64, 64)
    assert sizes.with_levels(sizes.levels) == sizes
    assert sizes.for_vocabulary(9).vocab_size == 9
    assert sorted(sizes.dims) == list(sizes.dims)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": ()}, r"model\.levels=\(\) must name at least one level"),
        ({"levels": ("a", "b", "a")}, r"model\.levels=.* and none twice"),
        ({"dims": (8, 12, 16)}, r"model\.dims=\[8, 12, 16\] must hold 4 numbers, because model\.levels has 3 names"),
        *(
            ({name: (2, 2)}, rf"model\.{name}=\[2, 2\] must hold 3 numbers")
            for name in ("max_children", "encoder_cells", "decoder_cells")
        ),
        ({"dims": (8, 12, 16, 1)}, r"model\.dims=\[8, 12, 16, 1\] must hold numbers of at least 2"),
        ({"max_children": (6, 1, 5)}, r"model\.max_children=\[6, 1, 5\] must hold numbers of at least 2"),
        ({"encoder_cells": (1, 0, 1)}, r"model\.encoder_cells=\[1, 0, 1\] must hold numbers of at least 1"),
        ({"decoder_cells": (1, 1, 0)}, r"model\.decoder_cells=\[1, 1, 0\] must hold numbers of at least 1"),
        (
            {"dims": (8, 13, 16, 16)},
            r"model\.dims=\[8, 13, 16, 16\] must hold multiples of 4, but for the last, because model\.num_heads=2",
        ),
        ({"dropout": 1.0}, r"model\.dropout must be at least 0 and below 1, but is 1\.0"),
        ({"attention_dropout": -0.1}, r"model\.attention_dropout must be at least 0 and below 1, but is -0\.1"),
        ({"causal_cells": True, "decoder": "autoregressive"}, r"model\.causal_cells=true is for model\.decoder=parallel"),
        ({"num_heads": 0}, r"model\.num_heads must be at least 1, but is 0"),
        ({"vocab_size": -1}, r"model\.vocab_size must be at least 0, but is -1"),
        ({"dims": (8, 10, 16, 16)}, r"model\.dims=\[8, 10, 16, 16\] must hold multiples of 4"),
        ({"dims": (8, 13, 16, 16), "cells": "transformer"}, r"must hold multiples of 2, but for the last, because"),
    ],
    ids=str,
)
def test_impossible_sizes_are_refused(changes, message):
    with pytest.raises(RamifyError, match=message):
        config(**changes)


def test_sizes_that_other_cells_allow():
    """Evolved decoder cells begin with twice as many heads; Transformer ones do not."""
    assert config(dims=(8, 10, 16, 16), cells="transformer").build().depth == 3
    assert config(dims=(8, 12, 16, 15)).build().out_dim == 15
    assert SIZES["num_heads"] == 2


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    "changes", [{"cells": "gru"}, {"decoder": "both"}, {"padding": "none"}, {"positions": "none"}], ids=str
)
def test_unknown_options_are_refused(changes):
    with pytest.raises(RamifyError, match=rf"model\.{next(iter(changes))}"):
        config(**changes)

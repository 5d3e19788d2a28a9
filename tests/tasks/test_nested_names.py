"""The memory of names in the losses of tokens: what reads it, what it reads, and which gradients flow through it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures.nested import MIXED, batch_of, encoded_levels, gradients, levels_of, losses, part, read, task, tree_of
from ramify.batching.document_batch import NUM_MARKS, DocumentCollator, Role
from ramify.batching.views.documents import Documents, LevelInput
from ramify.errors import RamifyError
from ramify.hub import own_tensors, start_from
from ramify.inference.documents.decoding import decode_children
from ramify.models.name_memory import NameMemoryConfig
from ramify.tasks.base import MAIN

EXACT = {"rtol": 0, "atol": 1e-10}
MEMORY = NameMemoryConfig(questions=4, filters=16)
WITH_NAMES = {"names": MEMORY}
KINDS = {
    "parallel": {},
    "autoregressive": {"decoder": "autoregressive"},
    "predicted": {"decoder_length": "predicted"},
    "full": {"padding": "full"},
}


def drawn(own, trees=MIXED, seed=3):
    return own.draw(batch_of(own, trees), seed)


def opened(own):
    """The same task with update gates that are all but closed by default."""
    with torch.no_grad():
        own.name_memory.update_gate.out.bias.fill_(0.5)
    return own


@pytest.mark.parametrize("kind", KINDS)
def test_both_losses_of_tokens_read_the_bank(kind):
    """From the reading on, everything is as without a memory: the decoder's input and memory, and the head of masked tokens."""
    own = opened(task(KINDS[kind] | WITH_NAMES)).eval()
    batch = drawn(own)
    (level, *_), (draws, *_) = batch.levels, batch.draws
    encoded, memory, decoder = encoded_levels(own, batch)[0], own.name_memory, own.decoder.level(0)
    answers = memory.write(encoded.states, level.rows, level.is_child)
    banks = memory.banks(answers, level.node, level.document, level.counts > 0)
    torch.testing.assert_close(encoded.names.banks.answers, banks.answers, **EXACT)
    found = losses(own, batch)
    # Masked tokens: the banks come from the clean pass, the states from the masked one.
    states = own.backbone.encoder(0).states(encoded.items, draws.masked_slots, level.rows)
    states = memory.read(states, level.rows, banks)[draws.masked]
    labels = level.slots[draws.masked]
    scores = own.mlm_heads[0](states) @ own.backbone.encoder(0).table.weight.T + own.mlm_head.bias
    torch.testing.assert_close(found["mlm_token"], F.cross_entropy(scores, labels, reduction="sum"), **EXACT)
    # Reconstruction, for a parallel decoder.
    if kind in ("parallel", "full"):
        laid = decoder.all_places(len(level.rows), torch.device("cpu"))
        rebuilt = memory.read(decoder.decompress(encoded.parents, laid), laid, banks)
        out = decoder.decoder(rebuilt + decoder.positions(laid.positions), laid, rebuilt, laid)
        places = np.concatenate([np.arange(length) + 6 * row for row, length in enumerate(level.lengths.tolist())])
        scores = out[places] @ own.backbone.encoder(0).table.weight.T + own.reconstruction_head.bias
        expected = F.cross_entropy(scores, level.slots[level.true_slots], reduction="sum")
        torch.testing.assert_close(found["reconstruction_sentence"], expected, **EXACT)
    without = losses(own, replace(batch, banks=banks.without_answers()))
    for name, value in found.items():
        changes = name in ("mlm_token", "reconstruction_sentence")
        assert torch.equal(without[name], value) != changes, name


@pytest.mark.parametrize("kind", KINDS)
def test_without_answers_the_losses_are_those_without_a_memory(kind):
    """To the bit: the memory is drawn after all other weights."""
    torch.manual_seed(0)
    plain, own = task(KINDS[kind], dtype=torch.float32).eval(), task(KINDS[kind] | WITH_NAMES, dtype=torch.float32).eval()
    own.load_state_dict(plain.state_dict(), strict=False)
    batch = drawn(own)
    banks = encoded_levels(own, batch)[0].names.banks
    found, expected = losses(own, replace(batch, banks=banks.without_answers())), losses(plain, batch)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    other = losses(own, batch)
    assert not torch.equal(other["mlm_token"], expected["mlm_token"])


def test_a_model_without_a_memory_is_drawn_as_ever():
    torch.manual_seed(0)
    plain = task()
    torch.manual_seed(0)
    own = task(WITH_NAMES)
    names = [name for name, _ in plain.named_parameters()]
    assert [name for name, _ in own.named_parameters()][: len(names)] == names
    assert own_tensors(plain).keys() < own_tensors(own).keys()


def test_a_document_of_one_sentence_reads_nothing():
    own = opened(task(WITH_NAMES)).eval()
    alone = [tree_of(part("paragraph", "aa ae ai"), name="a"), tree_of(part("paragraph", "ai aa"), name="b")]
    batch = drawn(own, alone)
    plain = task().eval()
    plain.load_state_dict(own.state_dict(), strict=False)
    assert not encoded_levels(own, batch)[0].names.banks.known.any()
    found, expected = losses(own, batch), losses(plain, batch)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_a_gradient(kind):
    """So processes that add up gradients wait for no other one."""
    own = opened(task(KINDS[kind] | WITH_NAMES))
    found = gradients(own, drawn(own))
    assert found.keys() == {name for name, parameter in own.named_parameters()}
    assert all(found[name].abs().max() > 0 for name in found if name.startswith("name_memory."))


# For torch, an LSTM in half precision is a matter of the processor, and for oneDNN, of this variable, too.
@pytest.mark.skipif(
    "os.environ.get('ONEDNN_MAX_CPU_ISA') in {'SSE41', 'AVX2'}", reason="oneDNN lacks an LSTM in half precision"
)
def test_half_precision():
    own = opened(task(WITH_NAMES, dtype=torch.float32))
    batch = drawn(own)
    expected = losses(own.eval(), batch)
    with torch.autocast("cpu", torch.bfloat16):
        found = losses(own, batch)
        torch.stack(list(found.values())).sum().backward()
    for name in ("mlm_token", "reconstruction_sentence"):
        assert float(found[name].detach()) == pytest.approx(float(expected[name].detach()), rel=0.05)
    assert all(torch.isfinite(parameter.grad).all() for parameter in own.parameters())


def test_gradients_equal_finite_differences():
    # The distance of vectors does not move the vectors themselves.
    own = opened(task(WITH_NAMES, vector_distance=0.0)).eval()
    batch = drawn(own)
    found = gradients(own, batch)
    random = torch.Generator().manual_seed(0)
    watched = [name for name in found if name.startswith("name_memory.")] + ["backbone.encoders.0.states.table.weight"]
    for name in watched:
        parameter = dict(own.named_parameters())[name]
        direction = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                parameter.add_(step * direction)
                values.append(sum(float(value) for value in losses(own, batch).values()))
                parameter.sub_(step * direction)
        slope = (values[0] - values[1]) / 2e-6
        assert slope == pytest.approx(float((found[name] * direction).sum()), rel=1e-5, abs=1e-6), name


def test_the_own_sentence_is_not_in_its_bank():
    """A sentence whose tokens all change, in place, reads the same bank; pieces of a long sentence are left out together."""
    own = opened(task(WITH_NAMES, dtype=torch.float32)).eval()
    words = ("aa ae ai aa ae ai aa ae", "ae ai", "ai aa ai", "aa")
    trees = [tree_of(part("paragraph", *words[:2]), part("paragraph", *words[2:]))]
    batch = batch_of(own, trees)
    level = batch.levels[0]
    assert len(level.rows) == 5
    banks = encoded_levels(own, batch)[0].names.banks
    for node in np.unique(level.node).tolist():
        slots, chosen = level.slots.clone(), torch.from_numpy(level.node == node)
        changed = level.is_child & torch.repeat_interleave(chosen, level.rows.lengths)
        slots[changed] = NUM_MARKS + 40
        other = replace(batch, levels=(replace(level, slots=slots), *batch.levels[1:]))
        again = encoded_levels(own, other)[0].names.banks
        assert torch.equal(again.answers[chosen], banks.answers[chosen])
        assert (again.answers[~chosen] != banks.answers[~chosen]).flatten(1).any(1).all()


@pytest.mark.parametrize("overflow", ["cut", "pack"])
def test_packed_sentences_are_one_and_pieces_are_one(overflow):
    own = task(WITH_NAMES, LevelInput(overflow=overflow))
    words = ("aa ae ai aa ae ai aa ae", "ae", "ai aa", "aa")
    level = batch_of(own, [tree_of(part("paragraph", *words[:2]), part("paragraph", *words[2:]))]).levels[0]
    order = np.argsort(level.source)
    nodes = level.node[order].tolist()
    # The first sentence fills two rows. `ai aa` and `aa` share one with `pack`.
    assert nodes == ([0, 0, 1, 2, 3] if overflow == "cut" else [0, 0, 1, 2])
    assert set(level.document.tolist()) == {0}


def test_long_documents_in_parts_read_the_bank_of_their_part():
    """The unit of a long document is a batch of its own, whose sentences alone write its banks."""
    own = opened(task(WITH_NAMES)).eval()
    trees = [tree_of(part("paragraph", "aa ae", "ai"), part("paragraph", "ai ai", "ae aa ai"), name="a")]
    view, collator = read(own, trees, budget=6)
    whole = [view.example(number) for number in range(len(view)) if not view.example(number).apart]
    assert len(whole) == 2
    both, one = collator(whole), collator(whole[:1])
    banks = {
        int(source): encoded_levels(own, batch)[0].names.banks.answers[row]
        for batch in (one,)
        for row, source in enumerate(batch.levels[0].source)
    }
    together = encoded_levels(own, both)[0].names.banks
    for row, source in enumerate(both.levels[0].source.tolist()):
        if source in banks:
            assert not torch.equal(together.answers[row], banks[source])


def test_frozen_tokens_leave_the_memory_alone():
    own = task(WITH_NAMES)
    assert own.level_of("name_memory.questions") == 0
    assert not own.decodes("name_memory.questions")
    batch = drawn(own)
    decoder = replace(batch, levels=batch.levels[:1], draws=batch.draws[:1], role=Role.DECODER)
    assert set(own.counts(decoder, MAIN)) == set(own.loss_names)
    assert {name for name, _ in losses(own, decoder).items()} == {"reconstruction_sentence"}


def test_decoding_reads_the_bank_of_each_row():
    """As training does, at all places."""
    own = opened(task(WITH_NAMES, dtype=torch.float32)).eval()
    batch = batch_of(own, MIXED)
    encoded = encoded_levels(own, batch)[0]
    banks, vectors = encoded.names.banks, encoded.parents.detach().numpy()
    with torch.no_grad():
        found = decode_children(own, 0, vectors, None, banks)
        laid = own.decoder.level(0).all_places(len(vectors), torch.device("cpu"))
        states = own.decoder.level(0).parallel(
            own.name_memory.read(own.decoder.level(0).decompress(encoded.parents, laid), laid, banks), laid
        )
    for row, made in enumerate(found):
        size = len(made.states)
        torch.testing.assert_close(torch.from_numpy(made.states), states[6 * row : 6 * row + size], rtol=0, atol=1e-5)
    nothing = decode_children(own, 0, vectors, None, banks.without_answers())
    assert any(not np.array_equal(one.states, other.states) for one, other in zip(found, nothing, strict=True))
    with pytest.raises(AssertionError, match="need a bank per row"):
        decode_children(own, 0, vectors)
    with pytest.raises(RamifyError, match=r"the model has no memory of names .* agent-sentence --names"):
        decode_children(task(dtype=torch.float32), 0, vectors, None, banks)


def test_a_model_without_a_memory_may_start_one_with_it():
    plain, own = task(), task(WITH_NAMES)
    fresh = {name: tensor.clone() for name, tensor in own_tensors(own).items()}
    start_from(own, own_tensors(plain), "saved")
    for name, tensor in own_tensors(own).items():
        assert torch.equal(tensor, fresh[name] if name.startswith("name_memory.") else own_tensors(plain)[name])


def test_stretches_of_sentences():
    """Neighbours of a document, up to a number of tokens, with all pieces of a sentence."""
    rows = Documents(levels_of(MIXED, ("sentence",)), (6,), LevelInput(), budget=100).rows.levels[0]
    for limit in (1, 7, 12, 10_000):
        found = Documents(levels_of(MIXED, ("sentence",)), (6,), LevelInput(), budget=100, neighbours=limit)
        spans = [(example.start, example.stop) for example in found.examples]
        assert [row for start, stop in spans for row in range(start, stop)] == list(range(len(rows)))
        for start, stop in spans:
            assert len(set(rows.tree[start:stop].tolist())) == 1
            nodes = rows.node_of_row
            assert start == 0 or nodes[start] != nodes[start - 1]
            assert rows.tokens[start:stop].sum() <= limit or len(set(nodes[start:stop].tolist())) == 1
        assert found.costs.tolist() == [max(1, int(rows.tokens[start:stop].sum())) for start, stop in spans]
        assert found.trees.tolist() == [int(rows.tree[start]) for start, _ in spans]
        assert found.sizes.tolist() == [stop - start for start, stop in spans]
    assert len(found) == len(np.unique(rows.tree))
    batch = DocumentCollator(found.rows, found.unit, 100)([found.example(0), found.example(len(found) - 1)])
    assert set(batch.levels[0].document.tolist()) == {int(found.trees[0]), int(found.trees[-1])}

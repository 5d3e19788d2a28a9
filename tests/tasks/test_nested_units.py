"""Batches of units: the lowest level in chunks has the gradient of one graph, given vectors replace it, children come from
other documents."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures.nested import book, books, gradients, levels_of, task
from ramify.batching.document_batch import NUM_MARKS, DocumentCollator, LevelDraws, Role
from ramify.batching.views.documents import Documents
from ramify.tasks.base import MAIN

TREES = [*books(4), book([[9, 2], [1]], seed=8, name="f")]
EXACT = {"rtol": 0, "atol": 1e-10}


def collator_of(own, trees=TREES, budget=12, **how):
    """The examples of documents, each unit one of its own, and a collator for them."""
    sizes = own.backbone.config
    view = Documents(levels_of(trees, sizes.levels), sizes.max_children, own.input, budget=budget, divided=True)
    return view, DocumentCollator(view.rows, view.unit, budget, **how)


def units_of(view):
    return [view.example(int(number)) for number in np.flatnonzero(~view.apart)]


def divisors(own, batch):
    return {name: count or 1.0 for name, count in own.counts(batch, MAIN).items()}


def by_source(levels):
    """The place of each row of data among the rows of some levels, one level after the other."""
    return {int(source): place for place, source in enumerate(np.concatenate([level.source for level in levels]))}


def as_whole(chunks, whole):
    """The draws of a batch in chunks, laid out as a batch of one graph with the same rows."""
    parts, lowest = [part.levels[0] for part in chunks.parts], whole.levels[0]
    place = by_source(parts)
    order = [place[int(source)] for source in lowest.source]
    starts = np.cumsum([0, *np.concatenate([level.rows.host_lengths for level in parts])])
    slots = torch.from_numpy(np.concatenate([np.arange(starts[row], starts[row + 1]) for row in order]))
    back = torch.empty_like(slots).scatter_(0, slots, torch.arange(len(slots)))

    def joined(name):
        return torch.cat([getattr(part.draws[0], name) for part in chunks.parts])

    def places(name):
        ends = np.cumsum([0, *(len(level.slots) for level in parts)])
        shifted = [getattr(part.draws[0], name) + int(start) for part, start in zip(chunks.parts, ends)]
        return back[torch.cat(shifted)].sort().values

    lower = LevelDraws(
        masked_slots=joined("masked_slots")[slots],
        masked=places("masked"),
        marked=places("marked"),
        replaced_slots=joined("replaced_slots")[slots],
        segments=joined("segments")[slots],
        share=joined("share")[order],
        checked=torch.from_numpy(np.flatnonzero(lowest.counts)),
    )
    inverse = torch.from_numpy(np.argsort(order))

    def renumbered(shown):
        is_child = shown >= NUM_MARKS
        return torch.where(is_child, NUM_MARKS + inverse[(shown - NUM_MARKS).clamp(min=0)], shown)

    upper = chunks.draws[0]
    upper = replace(upper, masked_slots=renumbered(upper.masked_slots), replaced_slots=renumbered(upper.replaced_slots))
    assert torch.equal(renumbered(chunks.levels[0].slots), whole.levels[1].slots)
    return replace(whole, draws=(lower, upper))


def test_chunks_have_the_gradient_of_one_graph():
    """All parameters, all losses and all counts."""
    own = task(queue=0)
    view, collator = collator_of(own)
    chunks = own.draw(replace(collator, chunked=True)(units_of(view)), 3)
    assert len(chunks.parts) > 3
    whole = as_whole(chunks, collator(units_of(view)))
    counts = own.counts(whole, MAIN)
    assert own.counts(chunks, MAIN) == counts
    assert counts["mlm_token"] > 0
    assert counts["coherence_paragraph"] > 0
    assert chunks.num_target_tokens == whole.num_target_tokens > 0
    found, expected = (gradients(own, batch, divisors(own, whole)) for batch in (chunks, whole))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, **EXACT, msg=name)


def test_chunks_have_the_same_dropout_in_both_passes():
    own = task({"dropout": 0.3, "attention_dropout": 0.3}, queue=0).train()
    view, collator = collator_of(own, chunked=True)
    batch = own.draw(collator(units_of(view)), 3)
    torch.manual_seed(11)
    found = gradients(own, batch)
    own.zero_grad(set_to_none=True)
    torch.manual_seed(11)
    ones = dict.fromkeys(own.counts(batch, MAIN), 1.0)
    encoded = [own.encode(part, 0, None) for part in batch.parts]
    losses = list(own.level_losses(batch, torch.cat([each.parents for each in encoded]), ones).values())
    for part, each in zip(batch.parts, encoded, strict=True):
        losses += own._encoded_losses(part, each, part.draws[0], ones).values()
    torch.stack(losses).sum().backward()
    for name, parameter in own.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, **EXACT, msg=name)


def test_evaluation_of_chunks_has_the_losses_of_one_graph():
    own = task(queue=0).eval()
    view, collator = collator_of(own)
    chunks = own.draw(replace(collator, chunked=True)(units_of(view)), 3)
    whole = as_whole(chunks, collator(units_of(view)))
    sums = []
    for batch in (chunks, whole):
        ones = dict.fromkeys(own.counts(batch, MAIN), 1.0)
        total: dict[str, float] = {}
        with torch.no_grad():
            for named, _ in own.losses(batch, ones, MAIN, None, None):
                total |= {name: total.get(name, 0.0) + float(value) for name, value in named.items()}
        sums.append(total)
    assert sums[0] == pytest.approx(sums[1], abs=1e-9)
    assert set(sums[0]) <= set(own.loss_names)


def vectors_of(own, view):
    """The Compressor's vectors of all sentences."""
    collator = DocumentCollator(view.rows, 0, 10_000)
    batch = collator.batch(np.arange(len(view.rows.levels[0])), np.zeros(0, dtype=np.int64))
    rows, encoder = batch.levels[0], own.backbone.encoder(0)
    with torch.no_grad():
        compressed = encoder.compress(encoder.states(encoder.items(None), rows.slots, rows.rows), rows.slots, rows.rows)
    vectors = np.empty(compressed.shape)
    vectors[rows.source] = compressed.numpy()
    return vectors


@pytest.mark.parametrize("token_skip", [False, True])
def test_given_vectors_replace_the_lowest_level(token_skip):
    """The levels above have the losses and gradients of texts; the lowest level has none, but for its added tokens."""
    own = task({"token_skip": token_skip}, queue=0).eval()
    view, collator = collator_of(own, budget=10_000)
    vectors = vectors_of(own, view)
    of_texts = own.draw(collator(units_of(view)), 3)
    given = replace(collator, role=Role.ABOVE, given=1, vectors=lambda rows: vectors[rows])(units_of(view))
    given = replace(own.draw(given, 3), draws=of_texts.draws[1:])
    counts = own.counts(given, MAIN)
    above = {name for name, count in own.counts(of_texts, MAIN).items() if count and not is_of_tokens(name)}
    assert {name for name, count in counts.items() if count} == above
    found = gradients(own, given, divisors(own, given))
    without = [name for name in own.loss_names if is_of_tokens(name)]
    other = task({"token_skip": token_skip}, queue=0, without=tuple(without)).eval()
    expected = gradients(other, of_texts, divisors(own, of_texts))
    kept = {name for name in expected if own.level_of(name) > 0 or own.adds_tokens(name)}
    assert kept == {name for name in found if own.level_of(name) > 0 or own.adds_tokens(name)}
    assert any(map(own.adds_tokens, kept)) == token_skip
    for name in kept:
        torch.testing.assert_close(found[name], expected[name], **EXACT, msg=name)
    assert not any(found[name].any() for name in found.keys() - kept)


def is_of_tokens(name):
    return name in {f"{kind}_sentence" for kind in ("reconstruction", "coherence", "autoencoder", "length")} | {"mlm_token"}


def test_documents_are_read_from_given_vectors():
    """A whole document in parts, too."""
    own = task(queue=0).eval()
    view, collator = collator_of(own)
    vectors = vectors_of(own, view)
    apart = [view.example(int(np.flatnonzero(view.apart)[0]))]
    given = replace(collator, role=Role.ABOVE, given=1, vectors=lambda rows: vectors[rows])(apart)
    of_texts = own.draw(collator(apart), 3)
    given = own.draw(given, 3)
    losses = []
    for batch in (given, of_texts):
        ones = dict.fromkeys(own.counts(batch, MAIN), 1.0)
        losses.append(
            {name: float(value) for named, _ in own.losses(batch, ones, MAIN, None, None) for name, value in named.items()}
        )
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)


def test_a_decoder_learns_alone():
    own = task({"token_skip": True, "dropout": 0.5, "decoder_length": "predicted"}, queue=0).train()
    _, collator = collator_of(own, budget=10_000, role=Role.DECODER)
    lowest = replace(collator, unit=0)
    batch = own.draw(lowest.batch(np.arange(5), np.zeros(0, dtype=np.int64)), 3)
    counts = own.counts(batch, MAIN)
    assert {name for name, count in counts.items() if count} == {"reconstruction_sentence", "length_sentence"}
    own.requires_grad_(False)
    for name, parameter in own.named_parameters():
        parameter.requires_grad_(own.decodes(name) and own.level_of(name) == 0)
    own.backbone.encoder(0).token_skip.fit(torch.randn(50, 12, dtype=torch.float64))
    read = []
    own.decoder.level(0).decompressor.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0].detach()))
    found = [gradients(own, batch) for _ in range(2)]
    assert all(own.decodes(name) for name in found[0])
    assert {"decoder.decoders.0.length.weight", "reconstruction_head.bias"} <= found[0].keys()
    # Its encoder has no dropout, and it reads vectors with their tokens; the decoder has its dropout.
    assert torch.equal(read[0], read[1])
    rows = batch.levels[0]
    expected = own.eval().backbone.encode(0, None, rows)
    torch.testing.assert_close(read[0][rows.rows.positions == 0] if len(read[0]) == rows.rows.total else read[0][:0], expected)
    assert any(not torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_the_lowest_level_is_trained_without_added_tokens():
    """As a model without them."""
    plain, own = task(queue=0), task({"token_skip": True}, queue=0)
    own.load_state_dict(plain.state_dict(), strict=False)
    _, collator = collator_of(own, budget=10_000, role=Role.LOWEST)
    batch = replace(collator, unit=0).batch(np.arange(6), np.zeros(0, dtype=np.int64))
    found, expected = (gradients(each, each.draw(batch, 3)) for each in (own, plain))
    assert not any(map(own.adds_tokens, found))
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, **EXACT, msg=name)
    assert own.backbone.encoder(0).token_skip is not None


@pytest.mark.parametrize("queued", [False, True])
def test_replaced_children_come_from_other_documents(queued):
    """From the batch, and from the queue if the batch holds one document."""
    own = task(queue=64, replacement="other_document")
    trees = TREES[:1] if queued else TREES
    view, collator = collator_of(own, trees, chunked=not queued, budget=12 if not queued else 10_000)
    batch = collator(units_of(view))
    if queued:
        _, other = collator_of(own, TREES[1:])
        rows = other.batch(np.arange(3), np.zeros(0, dtype=np.int64)).levels[0]
        rows = replace(rows, tree=rows.tree + 100)
        own.queue(1).add(torch.randn(len(rows.rows), 12, dtype=torch.float64), rows)
    number = 0 if batch.chunks else 1
    tree = torch.cat([part.tree for part in batch.below(number)]).tolist()
    tree += own.queue(1).tree[: len(own.queue(1))].tolist()
    replaced = 0
    for seed in range(20):
        drawn = own.draw(batch, seed)
        rows, draws = drawn.levels[number], drawn.draws[number]
        changed = (draws.replaced_slots != rows.slots).nonzero()[:, 0].tolist()
        replaced += len(changed)
        for slot in changed:
            assert tree[int(draws.replaced_slots[slot]) - NUM_MARKS] != tree[int(rows.slots[slot]) - NUM_MARKS]
    assert replaced > 5

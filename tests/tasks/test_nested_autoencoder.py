"""The objectives of nested documents: every loss against a plain computation, exact gradients, queues and schedules."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures import tokenizer
from fixtures.nested import (
    EVERY_OPTION,
    MIXED,
    batch_of,
    book,
    encoded_levels,
    filled,
    gradients,
    losses,
    read,
    rows_of,
    task,
)
from ramify.batching.document_batch import BOS, CONT, EOS, NUM_MARKS
from ramify.batching.views.documents import LevelInput
from ramify.errors import RamifyError
from ramify.hub import load_own_tensors, own_tensors
from ramify.models.agent import CoherenceChecker
from ramify.tasks.base import MAIN
from ramify.tasks.nested import schedule
from ramify.tasks.nested.autoencoder import AutoencoderDistance
from ramify.tasks.nested.base import LevelPass, relative_distance
from ramify.tasks.nested.candidates import Classes, Queue
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.task import LOSSES

EXACT = {"rtol": 0, "atol": 1e-10}
LONG = [book([[3], [2, 1], [4, 2], [2, 2, 8], [5]], seed=1), book([[1, 1], [6], [2]], seed=2, name="e")]
FURTHER = {
    "plain": ({}, {}),
    "autoregressive": ({"decoder": "autoregressive"}, {}),
    "causal cells": ({"causal_cells": True}, {"balanced": True}),
    "predicted length": ({"decoder_length": "predicted"}, {}),
    "literal": ({"decompressor": "literal"}, {"autoencoder_distance": "relative", "per_class": True, "scores": "scaled"}),
    "full": ({"padding": "full"}, {"marks": "none", "label_smoothing": 0.1}),
    "logistic ends": ({}, {"ends": "logistic"}),
    "collection": ({}, {"top": "collection"}),
    "every option": ({}, EVERY_OPTION),
    "cosine, collection": (
        {"decoder": "autoregressive"},
        {"scores": "cosine", "ends": "logistic", "head": "devlin", "sibling_path": True, "top": "collection"},
    ),
    "odd": ({"dims": (8, 12, 16, 15), "positions": "learned"}, {}),
}


def drawn(own, trees=MIXED, seed=3, **how):
    return own.draw(batch_of(own, trees, **how), seed)


def divisors(own, batch):
    return {name: count or 1.0 for name, count in own.counts(batch, MAIN).items()}


# --- reconstruction -----------------------------------------------------------------------------------------------------------


def log_of_right(scores, is_right):
    """The negative logarithm of the sum of the probabilities of the right classes."""
    probabilities = [math.exp(score) for score in scores]
    right = sum(each for each, counts in zip(probabilities, is_right, strict=True) if counts)
    return -math.log(right / sum(probabilities))


@pytest.mark.parametrize(("per_class", "scale"), [(False, 1.0), (True, 0.5)])
def test_duplicates_are_several_right_answers(per_class, scale):
    generator = torch.Generator().manual_seed(0)
    vectors, states = torch.randn(9, 4, generator=generator).double(), torch.randn(5, 4, generator=generator).double()
    content = torch.tensor([0, 1, 7, 7, 8, 9, 7, 9, 10])
    labels = torch.tensor([2, 3, 5, 8, 0])
    found = Classes(vectors, content, scale, per_class=per_class).loss(states, labels)
    expected = [
        log_of_right((scale * (vectors @ state)).tolist(), (content == content[label]).tolist())
        for state, label in zip(states, labels, strict=True)
    ]
    divisor = math.log(9) if per_class else 1.0
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64) / divisor, **EXACT)
    assert found.dtype == torch.float64
    assert found[0] != found[1]
    assert Classes(vectors[:1], content[:1], per_class=True).loss(states[:1], labels[4:]).tolist() == [0.0]


@pytest.mark.parametrize(("scores", "balanced"), [("plain", True), ("scaled", False)])
def test_scores_or_losses_above_the_tokens_are_divided_by_the_square_root_of_the_width(scores, balanced):
    own = filled(task(scores=scores, balanced=balanced, mask_rate=0.5)).eval()
    batch = drawn(own)
    found = losses(own, batch)
    for number, name in ((1, "sentence"), (2, "paragraph")):
        encoded, draws = encoded_levels(own, batch)[number], batch.draws[number]
        items = encoded.items[: len(encoded.classes.content)]
        root = math.sqrt(items.shape[1])
        logits = own.masked_states(encoded, draws) @ items.T / (root if scores == "scaled" else 1)
        labels = batch.levels[number].slots[draws.masked]
        right = encoded.classes.content[None] == encoded.classes.content[labels][:, None]
        expected = -(logits.softmax(1) * right).sum(1).log().sum() / (root if balanced else 1)
        torch.testing.assert_close(found[f"mlm_{name}"], expected, **EXACT)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_reconstructed_tokens_are_a_softmax_over_the_vocabulary(smoothing):
    """Label smoothing is torch's, over the marks and all tokens."""
    own = task(label_smoothing=smoothing)
    batch = drawn(own)
    encoded = encoded_levels(own, batch)[0]
    states = own.decode(encoded).states
    scores = states @ own.backbone.encoder(0).table.weight.T + own.reconstruction_head.bias
    labels = batch.levels[0].slots
    expected = F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(losses(own, batch)["reconstruction_sentence"], expected, **EXACT)
    assert own.reconstruction_head.weight is own.mlm_head.weight is own.backbone.encoder(0).table.weight


@pytest.mark.parametrize(("queue", "training"), [(0, True), (16, True), (16, False)])
def test_reconstructed_vectors_are_compared_with_all_of_the_batch_and_the_queue(queue, training):
    """Rows, marks and, in training, queued vectors are candidates without a bias; equal sentences are equally right."""
    own = filled(task(queue=queue, vector_distance=0.0))
    batch = drawn(own)
    queued = {level: (own.queue(level).vectors.clone(), own.queue(level).content.clone()) for level in (1, 2)}
    found = {name: float(loss.detach()) for name, loss in losses(own.train(training), batch).items()}
    for number, name in ((1, "paragraph"), (2, "document")):
        encoded = encoded_levels(own, batch)[number]
        below = batch.levels[number - 1]
        vectors = own.backbone(batch).nodes[number - 1]
        kept = min(queue, len(below.rows)) if training else 0
        queued_vectors, queued_content = (each[:kept] for each in queued[number])
        marks = own.backbone.encoder(number).table.weight
        classes = torch.cat([marks, vectors, queued_vectors])
        content = [*range(NUM_MARKS), *below.content.tolist(), *queued_content.tolist()]
        assert len(classes) == len(content) == NUM_MARKS + len(below.rows) + kept
        states, classes = own.decode(encoded).states.detach(), classes.detach()
        expected = sum(
            log_of_right((classes @ state).tolist(), [each == content[label] for each in content])
            for state, label in zip(states, batch.levels[number].slots.tolist(), strict=True)
        )
        assert found[f"reconstruction_{name}"] == pytest.approx(expected, abs=1e-9)
    contents = batch.levels[0].content.tolist()
    assert len(set(contents)) < len(contents)


def test_distance_of_reconstructed_vectors():
    """It is weighted by the number of slots, on children alone, and does not move the vectors themselves."""
    with_it, without = (task(vector_distance=weight) for weight in (0.3, 0.0))
    batch = drawn(with_it)
    for number, name in ((1, "paragraph"), (2, "document")):
        level = batch.levels[number]
        encoded = encoded_levels(with_it.eval(), batch)[number]
        states, slots = with_it.decode(encoded).states, level.slots
        own = encoded.items[slots[level.is_child]]
        other = states[level.is_child]
        norms = own.norm(dim=1).mean() + other.norm(dim=1).mean()
        expected = 2 * (own - other).norm(dim=1).mean() / norms
        found = losses(with_it, batch)[f"reconstruction_{name}"] - losses(without.eval(), batch)[f"reconstruction_{name}"]
        torch.testing.assert_close(found, 0.3 * len(slots) * expected, **EXACT)


def test_relative_distance():
    one, other = torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert relative_distance(one, one) == 0
    assert relative_distance(one, -one) == pytest.approx(2)
    assert relative_distance(one, torch.zeros_like(one)) == pytest.approx(2)
    assert relative_distance(one, other) == relative_distance(other, one)
    torch.testing.assert_close(relative_distance(1000 * one, 1000 * other), relative_distance(one, other))
    assert 0 < relative_distance(one, other) < 2
    assert relative_distance(one, 3 * one) == pytest.approx(1)
    zeros = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    distance = relative_distance(zeros, zeros.detach())
    distance.backward()
    assert distance == 0
    assert torch.isfinite(zeros.grad).all()


@pytest.mark.parametrize("per_class", [False, True])
def test_logistic_ends(per_class):
    """Children are compared with vectors alone, and every place says by its cosines whether the row ends there."""
    own = filled(task(ends="logistic", vector_distance=0.0, per_class=per_class)).eval()
    batch = drawn(own)
    found = losses(own, batch)
    for number, name in ((1, "paragraph"), (2, "document")):
        encoded, level = encoded_levels(own, batch)[number], batch.levels[number]
        states, scorer = own.decode(encoded).states, own.ends[number - 1]
        items = encoded.items[NUM_MARKS : len(encoded.classes.content)]
        candidates = Classes(items, encoded.classes.content[NUM_MARKS:], per_class=per_class)
        children = candidates.loss(states[level.is_child], level.children).sum()
        marks = encoded.items[[EOS, CONT]]
        logits = F.cosine_similarity(states[:, None], marks[None], dim=2) * scorer.scale + scorer.bias
        wanted = torch.stack([level.slots == EOS, level.slots == CONT], 1)
        right = torch.where(wanted, torch.sigmoid(logits), 1 - torch.sigmoid(logits))
        torch.testing.assert_close(found[f"reconstruction_{name}"], children - right.log().sum() / 2, **EXACT)
    assert (batch.levels[0].slots == CONT).any()


# --- the other losses ---------------------------------------------------------------------------------------------------------


def test_masked_children_are_predicted_from_what_is_shown():
    own = filled(task(mask_rate=0.5))
    batch = drawn(own)
    found = losses(own.eval(), batch)
    for number, name in ((0, "token"), (1, "sentence"), (2, "paragraph")):
        level, draws = batch.levels[number], batch.draws[number]
        encoded = encoded_levels(own, batch)[number]
        states = own.backbone.encoder(number).states(encoded.items, draws.masked_slots, level.rows)[draws.masked]
        hidden = F.gelu(own.mlm_heads[number].dense(states))
        labels = level.slots[draws.masked]
        if number == 0:
            scores = hidden @ own.backbone.encoder(0).table.weight.T + own.mlm_head.bias
            expected = F.cross_entropy(scores, labels, reduction="sum")
        else:
            expected = encoded.classes.loss(hidden, labels).sum()
        torch.testing.assert_close(found[f"mlm_{name}"], expected, **EXACT)
        assert len(draws.masked) > 0


def test_what_a_masked_child_holds_changes_no_prediction():
    """The states that predict it follow from what is shown."""
    own = task(mask_rate=0.5, mask_split=(1.0, 0.0, 0.0)).eval()
    batch = drawn(own)
    encoded = encoded_levels(own, batch)[1]
    draws = batch.draws[1]
    assert not set(draws.masked_slots[draws.masked].tolist()) - {5}
    hidden = set(batch.levels[1].slots[draws.masked].tolist()) - set(draws.masked_slots.tolist())
    assert hidden
    items = encoded.items.clone()
    items[list(hidden)] = 100.0
    assert torch.equal(own.masked_states(replace(encoded, items=items), draws), own.masked_states(encoded, draws))


@pytest.mark.parametrize("marks", ["seed", "none"])
def test_coherence_is_the_squared_error_of_the_share(marks):
    own = task(marks=marks).eval()
    batch = drawn(own)
    found = losses(own, batch)
    for number, name in enumerate(own.names[1:]):
        level, draws = batch.levels[number], batch.draws[number]
        encoder, encoded = own.backbone.encoder(number), encoded_levels(own, batch)[number]
        states = encoder.states(encoded.items, draws.replaced_slots, level.rows, draws.segments)
        judged = own.checkers[number](encoder.row_vectors(states, draws.replaced_slots, level.rows))
        has_children = torch.from_numpy(level.counts > 0)
        expected = (judged - draws.share)[has_children].square().sum()
        torch.testing.assert_close(found[f"coherence_{name}"], expected, **EXACT)
        assert bool(judged.min() > 0)
        assert bool(judged.max() < 1)
    assert (batch.levels[1].counts == 0).any()


@pytest.mark.parametrize("changes", [{}, EVERY_OPTION], ids=["plain", "every option"])
def test_a_row_without_marks_has_its_own_vector(changes):
    """P = 0: no child is marked, and the checker reads the vector of the encoder."""
    own = task(**changes).eval()
    batch = drawn(own)
    for number in range(3):
        level, draws = batch.levels[number], batch.draws[number]
        encoded, encoder = encoded_levels(own, batch)[number], own.backbone.encoder(number)
        states = encoder.states(encoded.items, draws.replaced_slots, level.rows, draws.segments)
        again = encoder.row_vectors(states, draws.replaced_slots, level.rows)
        is_marked = torch.zeros(len(level.rows), dtype=torch.bool)
        is_marked[level.child_row[draws.segments[level.child_slot] == 1]] = True
        torch.testing.assert_close(again[~is_marked], encoded.parents[~is_marked], **EXACT)
        if is_marked.any():
            # A mark alone changes the vector.
            assert ((again - encoded.parents)[is_marked].abs().amax(1) > 1e-6).all()


def test_checker_is_tanh_layers_and_a_sigmoid():
    own = task(checker_layers=3, checker_width=1.5)
    checker = own.checkers[0]
    assert [tuple(layer.weight.shape) for layer in checker.layers] == [(18, 12), (18, 18), (18, 18)]
    vectors = torch.randn(4, 12, dtype=torch.float64)
    x = vectors
    for layer in checker.layers:
        x = torch.tanh(x @ layer.weight.T + layer.bias)
    expected = torch.sigmoid(x @ checker.out.weight.T + checker.out.bias)[:, 0]
    torch.testing.assert_close(checker(vectors), expected, **EXACT)
    assert [tuple(layer.weight.shape) for layer in task(checker_layers=0).checkers[0].layers] == []


def test_deep_checkers_learn():
    """A sigmoid that starts at 1/2 falls to 0 within these updates, and stays there."""
    torch.manual_seed(0)
    vectors = torch.randn(64, 256)
    share = (vectors[:, 0] > 1).float() / 4
    checker = CoherenceChecker(256, 4, 512)
    assert 0.08 < checker(vectors).mean() < 0.18
    optimizer = torch.optim.AdamW(checker.parameters(), 1e-3)
    for _ in range(60):
        optimizer.zero_grad()
        loss = (checker(vectors) - share).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < share.var(unbiased=False) / 4


@pytest.mark.parametrize("distance", ["squared", "relative"])
@pytest.mark.parametrize("detached", [False, True])
def test_regulariser_between_compressor_and_decompressor(distance, detached):
    own = task(autoencoder=0.2, autoencoder_distance=distance, autoencoder_detached=detached).eval()
    batch = drawn(own)
    found = losses(own, batch)
    for number, name in enumerate(own.names[1:]):
        encoded = encoded_levels(own, batch)[number]
        decoded, states = own.decode(encoded).decompressed, encoded.states
        if distance == "squared":
            expected = (decoded - states).square().mean() * len(states)
        else:
            norms = states.norm(dim=1).mean() + decoded.norm(dim=1).mean()
            expected = 2 * (decoded - states).norm(dim=1).mean() / norms * len(states)
        torch.testing.assert_close(found[f"autoencoder_{name}"], 0.2 * expected, **EXACT)
    own.zero_grad()
    losses(own, batch)["autoencoder_document"].backward()
    # With or without it, the vector that the Decompressor reads learns.
    assert own.backbone.encoder(2).compressor.lstm.weight_ih_l0.grad.abs().max() > 0
    only_states = own.backbone.encoder(2).states.encoder
    through_states = sum(parameter.grad.abs().sum() for parameter in only_states.parameters())
    assert through_states > 0


def regulariser_weight(own):
    (loss,) = (loss for loss in own.per_level if isinstance(loss, AutoencoderDistance))
    return loss.weight


def test_weight_of_the_regulariser_falls_to_exactly_zero():
    own = task(autoencoder=0.1, autoencoder_until=0.6)
    batch = drawn(own)
    weights = []
    for share in (0.0, 0.15, 0.3, 0.45, 0.599999):
        own.share_done = share
        weights.append(regulariser_weight(own))
        assert "autoencoder_sentence" in losses(own, batch)
    cosine = [0.1 * (1 + math.cos(math.pi * share / 0.6)) / 2 for share in (0.0, 0.15, 0.3, 0.45, 0.599999)]
    assert weights == pytest.approx(cosine)
    assert weights[0] == 0.1
    assert weights[2] == pytest.approx(0.05)
    assert sorted(weights, reverse=True) == weights
    for share in (0.6, 0.8, 1.0):
        own.share_done = share
        assert regulariser_weight(own) == 0.0
        assert not any(name.startswith("autoencoder") for name in losses(own, batch))
    assert regulariser_weight(task(autoencoder_until=0.0)) == 0.0


def test_predicted_length_is_a_class():
    own = task({"decoder_length": "predicted"}).eval()
    batch = drawn(own)
    found = losses(own, batch)
    for number, name in enumerate(own.names[1:]):
        encoded = encoded_levels(own, batch)[number]
        scores = own.decoder.level(number).length(encoded.parents)
        assert scores.shape[1] == own.backbone.config.max_children[number]
        lengths = torch.tensor([len(slots) for slots, _ in rows_of(batch.levels[number])])
        torch.testing.assert_close(found[f"length_{name}"], F.cross_entropy(scores, lengths - 1, reduction="sum"), **EXACT)


def test_documents_of_a_collection_are_masked_in_reading_order():
    own = filled(task(top="collection", mask_rate=0.5)).eval()
    batch = drawn(own)
    draws, top = batch.collection, batch.levels[-1]
    # Rows of at most max_children places, in the order of the data.
    rows = torch.split(draws.slots, draws.rows.host_lengths.tolist())
    assert all(len(row) <= own.backbone.config.max_children[-1] and row[-1] == EOS for row in rows)
    documents = torch.cat([row[:-1] - NUM_MARKS for row in rows])
    assert (np.diff(top.source[documents.numpy()]) > 0).all()
    assert len(documents) == len(top.rows)
    assert (draws.slots[draws.masked] >= NUM_MARKS).all()
    several = [len(row) - 1 for row in rows if len(row) > 2]
    assert len(draws.masked) == sum(max(1, round(0.5 * count)) for count in several)
    unmasked = torch.ones(len(draws.slots), dtype=torch.bool).index_fill(0, draws.masked, False)
    assert torch.equal(draws.masked_slots[unmasked], draws.slots[unmasked])
    assert own.counts(batch, MAIN)["mlm_document"] == len(draws.masked)
    vectors = own.backbone(batch).nodes[-1]
    queue = own.queue(3)
    encoder = own.collection.states
    items = torch.cat([encoder.table.weight, vectors, queue.vectors[: len(queue)]])
    content = torch.cat([torch.arange(NUM_MARKS), top.content, queue.content[: len(queue)]])
    states = encoder(items, draws.masked_slots, draws.rows)[draws.masked]
    hidden = F.gelu(own.mlm_heads[3].dense(states))
    expected = Classes(items, content).loss(hidden, draws.slots[draws.masked]).sum()
    torch.testing.assert_close(losses(own, batch)["mlm_document"], expected, **EXACT)
    # The draws of the other levels are those of a task without it, and a long document is no collection.
    plain = task(mask_rate=0.5).draw(batch_of(own, MIXED), 3)
    assert all(torch.equal(a.masked_slots, b.masked_slots) for a, b in zip(plain.draws, batch.draws, strict=True))
    apart = drawn(own, LONG, budget=9)
    assert apart.collection is None
    assert own.counts(apart, MAIN)["mlm_document"] == 0
    assert "mlm_document" not in losses(own, apart)
    losses(own.train(), batch)
    assert len(own.queue(3)) > 0


# --- names, counts and weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FURTHER)
def test_names_of_losses(name):
    """3 terms per pair of levels and the regularisers, and the lengths where they are predicted."""
    model, changes = FURTHER[name]
    own = task(model, **changes)
    batch = drawn(own)
    found = losses(own, batch)
    kinds = ["reconstruction", "mlm", "coherence", "autoencoder", *(["length"] if name == "predicted length" else [])]
    expected = {
        f"{kind}_{lower if kind == 'mlm' else upper}"
        for lower, upper in zip(own.names, own.names[1:], strict=False)
        for kind in kinds
    }
    expected |= {"mlm_document"} if name.endswith("collection") else set()
    expected |= {"foreign_sentence", "foreign_paragraph"} if name == "every option" else set()
    assert set(own.loss_names) == set(own.counts(batch, MAIN)) == set(found) == expected
    assert len(own.loss_names) == len(expected)
    assert all(torch.isfinite(loss) for loss in found.values())


def test_reports_know_every_loss_in_the_order_in_which_they_run():
    assert tuple(map(type, task({"decoder_length": "predicted"}, foreign=1.0).per_level)) == LOSSES
    assert tuple(map(type, task().per_level)) == LOSSES[:-2]


def test_counts_are_what_losses_are_divided_by():
    own = task({"decoder_length": "predicted"})
    batch = drawn(own)
    counts = own.counts(batch, MAIN)
    for number, name in enumerate(own.names[1:]):
        rows = rows_of(batch.levels[number])
        slots = sum(len(slots) for slots, _ in rows)
        assert counts[f"reconstruction_{name}"] == counts[f"autoencoder_{name}"] == slots
        assert counts[f"length_{name}"] == len(rows)
        assert counts[f"coherence_{name}"] == sum(bool(children) for _, children in rows)
        assert counts[f"mlm_{own.names[number]}"] == sum(
            max(1, round(0.15 * len(children))) for _, children in rows if len(children) > 1
        )
    # A loss is its sum, divided.
    sums, means = losses(own.eval(), batch), losses(own, batch, counts)
    for each, total in sums.items():
        torch.testing.assert_close(means[each], total / counts[each], **EXACT)


def test_losses_of_batches_add_up():
    """Divided by the counts of both, the losses and gradients of two batches of sentences are those of one."""
    sizes = {"levels": ("sentence",), "dims": (8, 12), "max_children": (6,), "encoder_cells": (1,), "decoder_cells": (1,)}
    own = task(sizes, mask_rate=0.0, replacement_tokens="vocabulary").eval()
    batch = own.draw(batch_of(own, MIXED), 5)
    view, collator = read(own, MIXED)
    halves = [collator([view.example(int(number)) for number in each]) for each in np.array_split(np.arange(len(view)), 2)]
    halves = [own.draw(half, 5) for half in halves]
    total = own.counts(batch, MAIN)
    assert total["reconstruction_sentence"] == sum(own.counts(half, MAIN)["reconstruction_sentence"] for half in halves)
    for name in ("reconstruction_sentence", "autoencoder_sentence"):
        whole, *parts = (losses(own, each, total)[name] for each in (batch, *halves))
        torch.testing.assert_close(parts[0] + parts[1], whole, **EXACT)
        found, one, two = (torch.autograd.grad(each, own.backbone.encoder(0).table.weight)[0] for each in (whole, *parts))
        torch.testing.assert_close(one + two, found, **EXACT)


def test_weights_scale_their_losses():
    weights = {"reconstruction": 2.0, "mlm": 3.0, "coherence": 5.0, "autoencoder": 0.7}
    plain, weighted = task(autoencoder=0.1), task(**weights)
    batch = drawn(plain)
    one, other = losses(plain.eval(), batch), losses(weighted.eval(), batch)
    for name, loss in one.items():
        kind = name.partition("_")[0]
        if kind == "reconstruction":
            continue
        torch.testing.assert_close(other[name], loss * weights[kind] * (10 if kind == "autoencoder" else 1), **EXACT)
    plain, weighted = task(vector_distance=0.0), task(vector_distance=0.0, reconstruction=2.0, label_smoothing=0.0)
    one, other = losses(plain.eval(), batch), losses(weighted.eval(), batch)
    for name in own_reconstructions(plain):
        torch.testing.assert_close(other[name], 2 * one[name], **EXACT)


def own_reconstructions(own):
    return [name for name in own.loss_names if name.startswith("reconstruction")]


# --- gradients ----------------------------------------------------------------------------------------------------------------


STEPS = (1e-7, 1e-6, 2e-8)
"""Steps of central differences. A unit of ReLU that changes sides inside a step spoils it, so the best of them counts."""


def derivatives(own, batch, modules, generator):
    """The derivative of every loss along a random direction of each module's weights: by central differences, and exactly."""
    every = [parameter for parameters in modules.values() for parameter in parameters]
    exact = {
        name: torch.autograd.grad(loss, every, allow_unused=True, retain_graph=True)
        for name, loss in losses(own, batch).items()
    }
    start = 0
    for key, parameters in modules.items():
        directions = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in parameters]
        along = {
            name: sum(
                float((each * way).sum())
                for each, way in zip(gradient[start : start + len(parameters)], directions, strict=True)
                if each is not None
            )
            for name, gradient in exact.items()
        }
        best = dict.fromkeys(along, math.inf)
        for step in STEPS:
            for name, found in differences(own, batch, parameters, directions, step).items():
                best[name] = min(best[name], found, key=lambda each, name=name: abs(each - along[name]))
            if all(best[name] == pytest.approx(along[name], rel=1e-6) for name in along):
                break
        for name, found in best.items():
            yield key, name, found, along[name]
        start += len(parameters)


@torch.no_grad()
def differences(own, batch, parameters, directions, step):
    before = [parameter.clone() for parameter in parameters]
    ends = []
    for factor in (step, -step):
        for parameter, start, way in zip(parameters, before, directions, strict=True):
            parameter.copy_(start + factor * way)
        ends.append(losses(own, batch))
    for parameter, start in zip(parameters, before, strict=True):
        parameter.copy_(start)
    return {name: float(ends[0][name] - ends[1][name]) / (2 * step) for name in ends[0]}


def by_module(own, within=""):
    """Parameters by module: the encoder and the decoder of each level, heads and checkers."""
    found = {}
    for name, parameter in own.named_parameters():
        if name.startswith(within):
            found.setdefault(".".join(name.split(".")[:3]), []).append(parameter)
    return found


@pytest.mark.parametrize("cells", ["transformer", "evolved"])
@pytest.mark.parametrize("name", FURTHER)
def test_gradients_of_every_loss_equal_finite_differences(cells, name):
    """Along a random direction of all weights. (The distance of vectors is left to a later test.)"""
    model, changes = FURTHER[name]
    own = filled(task(model | {"cells": cells}, vector_distance=0.0, **changes)).eval()
    checked = set()
    # Every level has a marked child.
    batch = drawn(own, MIXED[2:], seed=6 if own.config.foreign else 3)
    for _, loss, found, exact in derivatives(own, batch, {"all": list(own.parameters())}, torch.Generator().manual_seed(1)):
        assert found == pytest.approx(exact, rel=1e-6), loss
        assert abs(exact) > 1e-3, loss
        checked.add(loss)
    assert checked == set(own.loss_names)


def test_gradients_of_every_module_equal_finite_differences():
    """A loss moves the modules below it, and no other."""
    own = filled(task(vector_distance=0.0)).eval()
    moved: dict[str, set[str]] = {}
    for key, loss, found, exact in derivatives(own, drawn(own, MIXED[2:]), by_module(own), torch.Generator().manual_seed(1)):
        assert found == pytest.approx(exact, rel=1e-6, abs=1e-6), (key, loss)
        if exact:
            moved.setdefault(loss, set()).add(key)
    heads = {"reconstruction_head.bias", "mlm_head.bias"}
    for number, name in enumerate(own.names[1:]):
        below = {key for key in by_module(own, "backbone") if int(key.split(".")[2]) <= number}
        assert moved[f"autoencoder_{name}"] == below | {f"decoder.decoders.{number}"}
        # The table of tokens is that of the lowest encoder.
        decoders = {f"decoder.decoders.{number}"} | (heads - {"mlm_head.bias"} if number == 0 else set())
        assert moved[f"reconstruction_{name}"] == below | decoders
        checker = set(by_module(own, f"checkers.{number}"))
        assert moved[f"coherence_{name}"] == below | checker
        mlm = moved[f"mlm_{own.names[number]}"]
        assert mlm == below | {f"mlm_heads.{number}.dense"} | ({"mlm_head.bias"} if number == 0 else set())


@pytest.mark.parametrize("changes", [{}, {"classes_detached": True}, {"autoencoder_detached": True}], ids=str)
def test_gradients_of_decoders_equal_finite_differences(changes):
    """The decoders' weights move no encoded vector, so that detached vectors change nothing about their derivatives."""
    own = filled(task({"cells": "transformer"}, **changes)).eval()
    checked = 0
    for key, loss, found, exact in derivatives(
        own, drawn(own, MIXED[2:]), by_module(own, "decoder"), torch.Generator().manual_seed(1)
    ):
        assert found == pytest.approx(exact, rel=1e-6, abs=1e-6), (key, loss)
        checked += abs(exact) > 1e-3
    assert checked == 2 * own.backbone.depth


def test_detached_vectors_learn_nothing_from_being_classes_or_targets():
    """The sentences of a paragraph are its classes. Their encoder learns from that unless they are detached, and never from the
    distance to their reconstructions."""
    found = {}
    for name, changes in (
        ("attached", {"vector_distance": 0.0}),
        ("detached", {"vector_distance": 0.0, "classes_detached": True}),
        ("distance", {"vector_distance": 0.5, "classes_detached": True}),
    ):
        own = task(**changes).eval()
        batch = drawn(own)
        encoded = own.encode(batch, 1, (vectors := own.backbone(batch).nodes[0].detach().requires_grad_()))
        # The Compressor's output is held fixed, so that classes and targets are the only way back.
        encoded = replace(encoded, parents=encoded.parents.detach())
        reconstruction, *_ = own.per_level
        loss = reconstruction.value(LevelPass(encoded, own.decoder.level(1), batch.draws[1]), 1.0)
        (gradient,) = torch.autograd.grad(loss, vectors, allow_unused=True)
        found[name] = 0.0 if gradient is None else float(gradient.abs().max())
    assert found["attached"] > 1e-3
    assert found["detached"] == found["distance"] == 0.0


@pytest.mark.parametrize(
    ("dropout", "overflow", "changes"),
    [(0.0, "cut", {}), (0.0, "pack", {}), (0.3, "cut", {}), (0.3, "pack", EVERY_OPTION)],
    ids=str,
)
def test_two_phases_have_the_one_graph_gradient(dropout, overflow, changes):
    """All parameters, with the same dropout in both passes."""
    model = {"dropout": dropout, "attention_dropout": dropout}
    own = filled(task(model, LevelInput(overflow=overflow), upper="two_phase", **changes), LONG).train()
    batch = drawn(own, LONG, budget=9, document_draws=2)
    assert len(batch.parts) > 3
    own_divisors = divisors(own, batch)
    before = own_tensors(own)
    before = {name: tensor.clone() for name, tensor in before.items()}
    torch.manual_seed(11)
    found = gradients(own, batch, own_divisors)
    own.load_state_dict(own.state_dict() | before)
    own.zero_grad(set_to_none=True)
    torch.manual_seed(11)
    vectors = torch.cat([own.backbone(each).nodes[-1] for each in batch.parts])
    torch.stack(list(own.level_losses(batch, vectors, own_divisors).values())).sum().backward()
    expected = {name: parameter.grad for name, parameter in own.named_parameters() if parameter.grad is not None}
    assert found.keys() == expected.keys()
    assert sum(name.startswith("backbone.encoders.0") for name in expected) > 10
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-10, msg=name)
    assert max(float(gradient.abs().max()) for name, gradient in expected.items() if "encoders.0" in name) > 1e-4


def test_a_document_in_parts_has_the_one_graph_gradient_of_one_batch():
    """The losses of the highest level of a whole document in one batch, with the same draws."""
    own = task(upper="two_phase")
    apart = drawn(own, LONG[:1], budget=9)
    whole = batch_of(own, LONG[:1])
    # The numbers of the children follow the parts' rows; those of the whole batch follow its own.
    source = np.concatenate([each.levels[-1].source for each in apart.parts])
    place = {number: row for row, number in enumerate(whole.levels[1].source.tolist())}
    number = torch.tensor([place[each] for each in source.tolist()])

    def renumbered(slots):
        is_child = slots >= NUM_MARKS
        return torch.where(is_child, NUM_MARKS + number[(slots - NUM_MARKS).clamp(min=0)], slots)

    draws = apart.draws[0]
    draws = replace(draws, masked_slots=renumbered(draws.masked_slots), replaced_slots=renumbered(draws.replaced_slots))
    assert torch.equal(renumbered(apart.levels[0].slots), whole.levels[2].slots)
    whole = replace(whole, draws=(*own.draw(whole, 1).draws[:2], draws))
    expected = [name for name in own.loss_names if name in ("mlm_paragraph",) or name.endswith("_document")]
    found = gradients(own.eval(), apart)
    own.zero_grad(set_to_none=True)
    every = losses(own, whole)
    torch.stack([every[name] for name in expected]).sum().backward()
    for name, parameter in own.named_parameters():
        if parameter.grad is None or not parameter.grad.any():
            continue
        torch.testing.assert_close(found[name], parameter.grad, rtol=0, atol=1e-10, msg=name)
    assert found["backbone.encoders.0.states.table.weight"].abs().max() > 1e-4


def test_detached_documents_teach_lower_levels_nothing():
    own = task(upper="detached")
    batch = drawn(own, LONG, budget=9)
    found = gradients(own, batch)
    assert not any(name.startswith(("backbone.encoders.0", "backbone.encoders.1")) for name in found)
    assert any(name.startswith("backbone.encoders.2") for name in found)
    two = task(upper="two_phase")
    exact = gradients(two, batch)
    for name, gradient in found.items():
        torch.testing.assert_close(exact[name], gradient, **EXACT)


def test_losses_of_documents_in_parts_equal_those_of_one_graph():
    """Sums over the highest level alone; the lower levels are counted by their own examples."""
    own = task().eval()
    batch = drawn(own, LONG, budget=9)
    counts = own.counts(batch, MAIN)
    assert {name for name, count in counts.items() if count} == set(losses(own, batch))
    assert set(losses(own, batch)) <= {"mlm_paragraph", *(name for name in own.loss_names if name.endswith("_document"))}


# --- queues -------------------------------------------------------------------------------------------------------------------


def test_queue_holds_the_newest_vectors_in_a_ring():
    batch = batch_of(task(), MIXED)
    rows = batch.levels[0]
    queue = Queue(5, 2).double()
    assert len(queue) == 0
    number = 0
    held = []
    for count in (2, 2, 3, 0, 1, 9, 4):
        some = replace(rows, content=torch.arange(number, number + count), tree=100 + torch.arange(number, number + count))
        vectors = torch.arange(number, number + count, dtype=torch.float64)[:, None].repeat(1, 2).requires_grad_()
        queue.add(vectors, some)
        held = (held + list(range(number, number + count)))[-5:]
        number += count
        kept = len(queue)
        assert kept == min(5, number)
        assert sorted(queue.content[:kept].tolist()) == held
        assert torch.equal(queue.vectors[:kept, 0], queue.content[:kept].double())
        assert torch.equal(queue.tree[:kept], queue.content[:kept] + 100)
        assert not queue.vectors.requires_grad
    empty = Queue(0, 2)
    empty.add(torch.ones(3, 2), rows)
    assert len(empty) == 0


def test_queues_take_a_batch_after_its_losses_in_training_alone():
    own = task(queue=64)
    batch = drawn(own)
    first = losses(own.eval(), batch)
    assert [len(queue) for queue in own.queues] == [0, 0]
    trained = losses(own.train(), batch)
    for name, loss in first.items():
        torch.testing.assert_close(trained[name], loss, **EXACT)
    vectors = own.backbone(batch).nodes
    for level, queue in enumerate(own.queues, 1):
        rows = batch.levels[level - 1]
        assert len(queue) == len(rows.rows)
        torch.testing.assert_close(queue.vectors[: len(queue)], vectors[level - 1], **EXACT)
        assert torch.equal(queue.content[: len(queue)], rows.content)
        assert torch.equal(queue.tree[: len(queue)], rows.tree)
    # The same contents are right again, wherever they stand: the loss differs from one without them by less than log 2.
    again = losses(own.eval(), batch)["reconstruction_paragraph"] / len(batch.levels[1].slots)
    assert again < first["reconstruction_paragraph"] / len(batch.levels[1].slots) + math.log(2)
    # Documents are no children of anything.
    assert len(own.queues) == 2


def test_queues_are_saved_and_restored():
    own = task()
    losses(own.train(), drawn(own))
    saved = {name: tensor.clone() for name, tensor in own_tensors(own).items()}
    assert {f"queues.{level}.{name}" for level in (0, 1) for name in ("vectors", "content", "tree", "filled", "next")} <= set(
        saved
    )
    other = task()
    load_own_tensors(other, saved, "here")
    batch = drawn(own, seed=8)
    one, two = losses(own, batch), losses(other, batch)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], loss) for name, loss in losses(task(), batch).items())


# --- schedules ----------------------------------------------------------------------------------------------------------------

LEVELS_OF = {"reconstruction": 1, "coherence": 1, "autoencoder": 1, "mlm": 0}


def levels_of(own, names):
    """The levels of children that losses belong to."""
    found = set()
    for name in names:
        kind, _, level = name.partition("_")
        found.add(own.names.index(level) - LEVELS_OF[kind])
    return found


def test_staged_training_unlocks_level_by_level():
    own = task(schedule="staged", unlock_steps=10).train()
    for updates, expected in ((0, {0}), (9, {0}), (10, {0, 1}), (19, {0, 1}), (20, {0, 1, 2}), (500, {0, 1, 2})):
        own.updates = updates
        batch = drawn(own)
        counts = own.counts(batch, MAIN)
        assert levels_of(own, losses(own, batch)) == expected
        assert levels_of(own, [name for name, count in counts.items() if count]) == expected
        assert set(counts) == set(own.loss_names)
        learnt = gradients(own, batch, divisors(own, batch))
        assert {int(name.split(".")[2]) for name in learnt if name.startswith("backbone.")} == expected
        assert {int(name.split(".")[2]) for name in learnt if name.startswith("decoder.")} == expected


def test_levels_below_can_be_frozen():
    own = task(schedule="staged", unlock_steps=10, freeze_below=True, upper="two_phase").train()
    for updates, level in ((0, 0), (10, 1), (20, 2), (99, 2)):
        own.updates = updates
        batch = drawn(own)
        assert levels_of(own, losses(own, batch)) == {level}
        assert levels_of(own, [name for name, count in own.counts(batch, MAIN).items() if count]) == {level}
        learnt = gradients(own, batch, divisors(own, batch))
        assert {int(name.split(".")[2]) for name in learnt if name.startswith(("backbone.", "decoder."))} == {level}
    # A frozen level is frozen for a document in parts, too.
    learnt = gradients(own, drawn(own, LONG, budget=9))
    assert {int(name.split(".")[2]) for name in learnt if name.startswith("backbone.")} == {2}


def test_a_batch_of_which_no_level_learns_is_empty():
    """A long document before its level is unlocked, and units after they are frozen. Evaluation covers all levels."""
    own = task(schedule="staged", unlock_steps=10, freeze_below=True).train()
    apart = batch_of(own, LONG, budget=9)
    view, collator = read(own, LONG, budget=9)
    units = collator([view.example(0)])
    for updates, batch in ((0, apart), (10, apart), (20, units)):
        own.updates = updates
        empty = own.draw(batch, 1)
        assert empty.num_targets == 0
        assert not any(own.counts(empty, MAIN).values())
    own.updates = 0
    with own.evaluating():
        assert own.draw(apart, 1).num_targets > 0
        assert levels_of(own, losses(own, drawn(own))) == {0, 1, 2}


def test_a_level_begins_when_the_losses_below_fall_no_further(monkeypatch):
    monkeypatch.setattr(schedule, "WINDOW", 5)
    own = task(schedule="staged", unlock_steps=100, plateau=0.1).train()
    watch = own.watch

    def observed(start, count, loss):
        for updates in range(start, start + count):
            watch.observe(loss, updates, 0.1, 100)

    observed(0, 5, 10.0)
    observed(5, 5, 8.0)
    assert int(watch.unlocked) == 1
    observed(10, 5, 7.5)
    assert int(watch.unlocked) == 2
    # It begins with the next update, because this one is counted already.
    for updates, levels in ((14, {0}), (15, {0, 1})):
        own.updates = updates
        assert own.active == (0, len(levels))
        assert levels_of(own, losses(own, drawn(own))) == levels
    # No plateau: the greatest number of updates.
    loss = 1e6
    for updates in range(15, 14 + 100):
        loss *= 0.5
        watch.observe(loss, updates, 0.1, 100)
    assert int(watch.unlocked) == 2
    watch.observe(loss, 14 + 100, 0.1, 100)
    assert int(watch.unlocked) == 3


def test_a_plateau_is_watched_in_training_alone():
    own = task(schedule="staged", unlock_steps=1, plateau=0.1)
    batch = drawn(own)
    for each in (own.eval(), own.train()):
        each.updates = 4
        for _ in each.losses(each.draw(batch_of(each, MIXED), 1), dict.fromkeys(each.loss_names, 1.0), MAIN, None, None):
            pass
        assert int(each.watch.unlocked) == (2 if each.training else 1)
    assert own.active == (0, 1)
    own.updates = 5
    assert own.active == (0, 2)
    assert {"watch.unlocked", "watch.began", "watch.sums"} <= set(own_tensors(own))
    assert batch.num_targets > 0


# --- settings -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({name: -1}, rf"task\.{name} must be at least 0, but is -1")
            for name in (
                "reconstruction",
                "mlm",
                "coherence",
                "autoencoder",
                "vector_distance",
                "queue",
                "foreign",
                "unlock_steps",
                "plateau",
            )
        ),
        *(
            ({name: value}, rf"task\.{name} must be at least 0 and at most 1, but is {value}")
            for name in ("autoencoder_until", "label_smoothing", "mask_rate")
            for value in (-0.5, 1.5)
        ),
        ({"mask_split": (0.8, 0.1, 0.2)}, r"task\.mask_split=.* is not three shares that add up to 1"),
        ({"mask_split": (1.2, -0.1, -0.1)}, r"task\.mask_split=.* is not three shares that add up to 1"),
        ({"checker_layers": -1}, r"task\.checker_layers=-1 must be at least 0"),
        ({"checker_width": 0.0}, r"task\.checker_width=0 above 0"),
        (
            {"foreign": 5.0, "marks": "none"},
            r"task\.foreign=5 asks of marked children .* Set task\.marks=seed, or task\.foreign=0",
        ),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(RamifyError, match=message):
        NestedAutoencoderConfig(**changes)


def test_logistic_ends_of_packed_rows_are_refused():
    with pytest.raises(RamifyError, match=r"task\.ends=logistic predicts no mark between packed nodes"):
        task(input=LevelInput(overflow="pack"), ends="logistic")


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    "changes", [{"upper": "both"}, {"mask_split": (0.5, 0.5)}, {"marks": "all"}, {"head": "bert"}], ids=str
)
def test_settings_of_another_type_are_refused(changes):
    with pytest.raises(RamifyError, match=rf"task\.{next(iter(changes))}"):
        NestedAutoencoderConfig(**changes)


def test_an_encoder_alone_has_no_other_weights():
    own = task(encoder_only=True)
    assert {name.split(".")[0] for name, _ in own.named_parameters()} == {"backbone"}
    assert own.loss_names == []
    assert len(list(own.buffers())) == 0 or all("queue" not in name for name, _ in own.named_buffers())
    assert own.choices.tolist() == [token for token in range(tokenizer().vocab_size) if token not in tokenizer().special_ids]
    assert BOS < NUM_MARKS

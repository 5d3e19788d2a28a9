"""Measures of generated vectors: coherence by probing, floors, and the watch for collapse."""

import numpy as np
import pytest
import torch

from fixtures import tokenizer
from fixtures.nested import NAMES, books, config
from fixtures.nested import task as nested_task
from ramify.batching.document_batch import CONT, EOS, NUM_MARKS
from ramify.batching.levels import Levels
from ramify.batching.views.documents import LevelInput
from ramify.dataset.store import Store
from ramify.inference.documents.decoding import DecodedRow
from ramify.inference.documents.generated_measures import (
    GAUSSIAN,
    GENERATOR,
    NOISE,
    RESAMPLED,
    Known,
    floor_measures,
    generated,
    names_of,
    probed_coherence,
    sources,
    vector_measures,
    watch,
)
from ramify.inference.documents.measures import slots_of
from ramify.inference.documents.node_coherence import judge
from ramify.inference.documents.real_vectors import CachedVectors, LiveVectors
from ramify.inference.documents.vectors import encode_documents, lay_out
from ramify.models.name_memory import NameMemoryConfig
from ramify.tasks.nested_adversary import NestedAdversary, NestedAdversaryConfig


def adversary(**settings):
    torch.manual_seed(0)
    own = NestedAdversary(config().build(), tokenizer(), LevelInput(), NestedAdversaryConfig(maps=4, **settings))
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return own.eval()


@pytest.fixture(scope="module")
def store():
    return Store.from_trees(books(12))


@pytest.mark.parametrize("marks", ["seed", "none"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_probing_of_decoded_rows_is_that_of_documents(store, level, marks):
    """A row that holds the true children, vectors and end of a node has the node's coherence."""
    task = nested_task(dtype=torch.float32, marks=marks).eval()
    trees = np.arange(store.num_trees)
    levels = Levels.open(store, task.tokenizer, NAMES, trees)
    view, collator = lay_out(task.backbone, task.input, levels)
    vectors = encode_documents(task.backbone, view, collator).vectors
    rows = collator.rows.levels[level]
    below = np.arange(rows.num_below if level else 0)
    made = []
    for slots in slots_of(collator.level(level, np.arange(len(rows)), below, below)):
        inside, end = slots[:-1], int(slots[-1])
        assert end in (EOS, CONT)
        states = np.zeros((len(slots), task.backbone.config.dims[level]), dtype=np.float32)
        if level:
            is_child = inside >= NUM_MARKS
            states[:-1][is_child] = vectors[level - 1][inside[is_child] - NUM_MARKS]
        made.append(DecodedRow(inside, end == CONT, True, states, states))
    scores = probed_coherence(task, level, made)
    judged = judge(task, store, trees, [level]).scores[level]
    whole = np.flatnonzero(rows.num_rows == 1)
    assert len(whole) > 5
    assert scores[rows.first_row[whole]] == pytest.approx(judged.node_scores[whole], abs=1e-5, nan_ok=True)


def test_a_row_without_children_has_no_coherence():
    task = nested_task(dtype=torch.float32).eval()
    empty = np.zeros((1, 8), dtype=np.float32)
    assert np.isnan(probed_coherence(task, 0, [DecodedRow(np.zeros(0, dtype=np.int64), False, True, empty, empty)])).all()


@pytest.mark.parametrize("padding", ["packed", "full"])
@pytest.mark.parametrize("level", [0, 1])
def test_a_row_that_never_ends_has_no_end_mark(level, padding, monkeypatch):
    task = nested_task({"padding": padding}, dtype=torch.float32).eval()
    sizes, read = task.backbone.config, []
    places = sizes.max_children[level]
    replaced = task.replaced_children

    def judged(number, items, slots, *others):
        read.append(slots)
        return replaced(number, items, slots, *others)

    monkeypatch.setattr(task, "replaced_children", judged)
    slots = NUM_MARKS + np.arange(places)
    states = np.random.default_rng(0).standard_normal((places, sizes.dims[level])).astype(np.float32)
    rows = [DecodedRow(slots, False, False, states, states), DecodedRow(slots[:-1], True, True, states, states)]
    assert np.isfinite(probed_coherence(task, level, rows)).all()
    expected = [slots, np.append(slots[:-1], CONT)]
    assert all((each.numpy().reshape(-1, places) == own).all() for each, own in zip(read, expected, strict=True))


def test_cached_and_live_vectors_are_equal(store):
    own = adversary()
    kinds = [kind(own, store, np.arange(store.num_trees)) for kind in (CachedVectors, LiveVectors)]
    for vectors in kinds:
        vectors.open()
    for level in own.learning:
        one, other = (vectors.of_level(level) for vectors in kinds)
        assert len(one) == len(kinds[0].pools[level])
        # Each is in an order of its own.
        assert np.sort(one.sum(1)) == pytest.approx(np.sort(other.sum(1)), abs=1e-4)
        few = kinds[0].of_level(level, 3)
        assert len(few) == 3
    for one, other in zip(*(vectors.banks() for vectors in kinds), strict=True):
        assert (one is None) == (other is None)


def test_the_watch_measures_every_level_that_learns(store):
    own = adversary(levels=("sentence", "document"))
    real = CachedVectors(own, store, np.arange(store.num_trees))
    real.open()
    measures, samples = watch(own, real, real, vectors=20, texts=3, seed=0)
    assert set(samples) == {1, 3}
    assert all(len(texts) == 3 for texts in samples.values())
    distances = [measures["energy_distance_sentence"], measures["energy_distance_document"]]
    assert measures["energy_distance"] == pytest.approx(np.mean(distances))
    assert not any(name.endswith("paragraph") for name in measures)
    again, texts = watch(own, real, real, vectors=20, texts=3, seed=0)
    assert (again, texts) == (measures, samples)
    # Held-out vectors are training vectors here.
    assert measures["held_out_near_copies_sentence"] == 1
    assert measures["near_copies_sentence"] < 1


def test_a_collapsed_generator_is_seen(store):
    own = adversary(levels=("sentence",))
    real = CachedVectors(own, store, np.arange(store.num_trees))
    real.open()
    with torch.no_grad():
        own.generators[0].layers[-1].weight.zero_()
    measures, _ = watch(own, real, real, vectors=20, texts=4, seed=0)
    assert measures["effective_rank_sentence"] == 0
    assert measures["held_out_effective_rank_sentence"] > 1
    if "self_bleu_sentence" in measures and "distinct_1_sentence" in measures:
        assert measures["self_bleu_sentence"] == pytest.approx(100)


def test_sources_are_what_they_are_called():
    own = adversary()
    random = np.random.default_rng(0)
    training = (random.standard_normal((40, 12)) * 3 + 5).astype(np.float32)
    found = sources(own, 1, training, 30, seed=0)
    assert list(found) == [GENERATOR, GAUSSIAN, NOISE, RESAMPLED]
    assert all(vectors.shape == (30, 12) for vectors in found.values())
    assert (found[GENERATOR] == generated(own, 1, 30, 0)).all()
    assert abs(found[NOISE].mean()) < 0.3
    assert abs(found[GAUSSIAN].mean() - 5) < 1
    rows = {tuple(row) for row in training.tolist()}
    assert len({tuple(row) for row in found[RESAMPLED].tolist()} & rows) == 30


def test_names_and_vectors_have_noise_of_their_own(monkeypatch):
    torch.manual_seed(0)
    backbone = config(names=NameMemoryConfig(questions=3, filters=8)).build()
    own = NestedAdversary(backbone, tokenizer(), LevelInput(), NestedAdversaryConfig(maps=4)).eval()
    generator, drawn = own.generator(own.backbone.depth), []
    noise = generator.noise

    def recorded(*given):
        drawn.append(noise(*given))
        return drawn[-1]

    monkeypatch.setattr(generator, "noise", recorded)
    vectors = generated(own, own.backbone.depth, 4, seed=3)
    names_of(own, 1, generated(own, 1, 4, seed=3), seed=3)
    one, other = drawn
    assert vectors.shape == one.shape == other.shape
    assert not (one == other).any()


def test_real_vectors_come_nearest_to_real_ones(store):
    own = adversary(levels=("paragraph",))
    real = CachedVectors(own, store, np.arange(store.num_trees))
    real.open()
    vectors = real.of_level(2)
    known = Known(vectors[::2], vectors[1::2])
    measures = floor_measures(own, 2, known, real.banks(), number=50, texts=4, seed=0)
    assert measures[RESAMPLED]["energy_distance"] < measures[NOISE]["energy_distance"]
    assert measures[RESAMPLED]["near_copies"] == 1
    for by_source in measures.values():
        assert 0 <= by_source["classifier_accuracy"] <= 1
        assert 0 <= by_source["coverage"] <= 1 or np.isnan(by_source["coverage"])
    alone = vector_measures(known, known.training)
    assert alone["near_copies"] == 1

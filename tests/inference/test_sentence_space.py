"""The space of sentences: states in context, before and after sentences are dealt anew, on a plane; and its picture."""

import numpy as np
import pytest
import torch

from fixtures.letters import letters, pipeline
from fixtures.nested import novels
from ramify.batching.document_batch import EOS, NUM_MARKS
from ramify.dataset.store import Store
from ramify.inference.documents.sentence_space import plane, planes
from ramify.nn.ragged import Rows
from ramify.report.charts import scatter_chart
from ramify.runs.nested_documents.report import space
from ramify.runs.sections import Cloud, ScatterChart


def test_a_plane_holds_the_two_directions_of_greatest_variance():
    random = np.random.default_rng(0)
    axes = np.linalg.qr(random.standard_normal((6, 6)))[0]
    points = random.standard_normal((50, 6)) * [5, 3, 1, 0.1, 0.1, 0.1] @ axes.T
    found = plane("x", points[:30], points[30:])
    every = np.concatenate([found.coherent, found.shuffled])
    centred = points - points.mean(0)
    variances = np.linalg.eigvalsh(centred.T @ centred)[::-1]
    np.testing.assert_allclose((every**2).sum(0), variances[:2], rtol=1e-9)
    assert found.explained == pytest.approx(variances[:2].sum() / variances.sum())
    # Distances along the two directions are kept.
    projected = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    np.testing.assert_allclose(np.abs(every), np.abs(projected), rtol=0, atol=1e-9)
    single = plane("x", points[:1, :1], points[:1, :1])
    assert single.explained == 1.0
    assert not single.coherent.any()


def test_sentences_are_read_in_their_paragraphs_and_dealt_anew():
    model = pipeline(max_children=(20, 6, 6, 6))
    store = Store.from_trees(letters())
    sentences, paragraphs = planes(model.task, store, np.arange(3), seed=3)
    assert (sentences.name, paragraphs.name) == ("sentences in their paragraphs", "paragraphs")
    # Paragraphs of two and more sentences.
    assert len(paragraphs.coherent) == len(paragraphs.shuffled) == 4
    assert len(sentences.coherent) == len(sentences.shuffled) == 10
    assert np.abs(sentences.coherent - sentences.shuffled).max() > 1e-3
    vectors = torch.from_numpy(model.embed(letters()[0], level="sentence"))[:2]
    with torch.no_grad():
        encoder = model.backbone.encoder(1)
        states = encoder.states(encoder.items(vectors), torch.tensor([NUM_MARKS, NUM_MARKS + 1, EOS]), Rows.build([3]))
    # The distance on the plane is at most that of the states.
    distances = np.linalg.norm(sentences.coherent[:, None] - sentences.coherent, axis=-1)
    assert np.linalg.norm(states[0] - states[1]) >= distances[np.triu_indices(10, 1)].min() - 1e-5


def test_models_and_documents_without_siblings_have_no_space():
    store = Store.from_trees(letters())
    assert planes(pipeline(levels=("sentence",)).task, store, np.arange(3)) == []
    assert planes(pipeline().task, store, np.array([2])) == []
    assert planes(pipeline().task, store, np.zeros(0, dtype=np.int64)) == []
    assert space([]) == []


def test_few_paragraphs_of_the_first_documents_are_drawn(monkeypatch):
    monkeypatch.setattr("ramify.inference.documents.sentence_space.MOST_ROWS", 3)
    store = Store.from_trees(novels(3))
    _, paragraphs = planes(pipeline().task, store, np.arange(3))
    assert len(paragraphs.coherent) == 3
    (section,) = space(planes(pipeline().task, store, np.arange(3)))
    sentences, _ = section.blocks[0].charts
    assert [cloud.name for cloud in sentences.clouds] == ["as they are", "dealt anew"]


def test_points_are_drawn_to_one_scale_inside_the_frame():
    x = np.array([0.0, 10.0, np.nan, 5.0])
    drawn = scatter_chart(ScatterChart((Cloud("a <b>", "dev", x, x), Cloud("c", "none", x * 2, x / 2)), "one", "two"))
    assert drawn.count("<circle") == 6
    assert "a &lt;b&gt;" in drawn
    places = [
        [float(part.split('"')[1]) for part in circle.split() if part[:2] in ("cx", "cy")]
        for circle in drawn.split("<circle")[1:]
    ]
    first, second = places[0], max(places, key=lambda place: place[0])
    # (0, 0) and (20, 5): four times as far to the right as up.
    assert second[0] - first[0] == pytest.approx(4 * (first[1] - second[1]), rel=0.02)
    assert all(0 < px < 430 and 0 < py < 280 for px, py in places)
    assert "nothing to draw" in scatter_chart(ScatterChart((Cloud("a", "dev", np.zeros(0), np.zeros(0)),), "one", "two"))

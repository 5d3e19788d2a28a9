"""Losses, targets and answers of classifiers, against torch, scikit-learn and plain formulas."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures import bert_task, text, tokenizer
from ramify.batching.labelled_batch import LabelledCollator
from ramify.batching.views.labelled import LabelInput, LabelledView
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.classify import Classifier, label_scores, rows_of
from ramify.tasks.base import MAIN
from ramify.tasks.classification import LABEL, Classification, ClassificationConfig
from ramify.tasks.downstream import HEADS
from ramify.tree import Node, Tree

CLASSES = ("a", "b", "c")


def made(values, *, seed=0, model=None, **settings):
    """A task with large weights, and a view of as many texts as there are values."""
    backbone = bert_task(**(model or {})).backbone
    task = Classification(backbone, tokenizer(), LabelInput(max_tokens=16, pair="none"), ClassificationConfig(**settings))
    with torch.no_grad():
        for parameter in task.output.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    random = np.random.default_rng(seed)
    store = Store.from_trees([Tree((Node(text(random, length)),)) for length in random.integers(0, 9, size=len(values))])
    targets = task.targets_of(values)
    task.fit(targets)
    return task.double(), LabelledView(rows_of(task, store, np.arange(len(values))), targets)


def batch_of(view):
    return LabelledCollator.of(view.rows)([view.example(number) for number in range(len(view))])


def loss_of(task, batch):
    (losses, state), *rest = task.losses(batch, task.counts(batch, MAIN), MAIN, None, None)
    assert (state, rest) == (None, [])
    return losses[LABEL]


VALUES = ["b", "a", "a", "c", "a", "b", "a", "a"]


def test_one_class():
    task, view = made(VALUES, classes=CLASSES)
    batch = batch_of(view)
    scores = task.eval().scores(batch)
    expected = F.cross_entropy(scores, torch.tensor([CLASSES.index(VALUES[place]) for place in batch.order]))
    torch.testing.assert_close(loss_of(task, batch), expected)
    assert task.counts(batch, MAIN) == {LABEL: 8.0}


def test_class_weights_are_those_of_scikit_learn():
    weights = pytest.importorskip("sklearn.utils.class_weight")
    task, view = made(VALUES, classes=CLASSES, class_weights="balanced")
    expected = torch.from_numpy(weights.compute_class_weight("balanced", classes=np.array(CLASSES), y=np.array(VALUES)))
    torch.testing.assert_close(task.class_weights.double(), expected)
    batch = batch_of(view)
    loss = F.cross_entropy(task.eval().scores(batch), batch.targets, expected)
    torch.testing.assert_close(loss_of(task, batch), loss)


def test_several_classes():
    values = [["a"], ["a", "c"], [], ["b"], ["a", "b", "c"]]
    task, view = made(values, labels="several", classes=CLASSES)
    assert view.targets.tolist() == [[1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]
    batch = batch_of(view)
    scores = task.eval().scores(batch)
    torch.testing.assert_close(loss_of(task, batch), F.binary_cross_entropy_with_logits(scores, batch.targets.double()))
    torch.testing.assert_close(task.probabilities(scores), scores.sigmoid())
    assert task.majority(view.targets).predicted[0].tolist() == [True, False, False]


def test_numbers_are_learned_in_units_of_their_deviation():
    values = [100.0, 300.0, 200.0, 400.0]
    task, view = made(values, labels="numbers")
    batch = batch_of(view)
    scores = task.eval().scores(batch)
    numbers = torch.tensor([values[place] for place in batch.order], dtype=torch.float64)
    torch.testing.assert_close(loss_of(task, batch), F.mse_loss(scores[:, 0], (numbers - 250) / np.std(values)))
    predicted = task.probabilities(scores)[:, 0].detach()
    torch.testing.assert_close(predicted, scores[:, 0].detach() * np.std(values) + 250)
    assert task.predictions(scores.detach().numpy(), numbers.numpy()).predicted == pytest.approx(predicted.numpy())
    assert task.majority(view.targets).predicted.tolist() == [250.0] * 4


@pytest.mark.parametrize(
    ("values", "settings", "constant"),
    [
        (VALUES, {"classes": CLASSES}, None),
        ([["a"], ["a", "b"], [], ["b"]] * 3, {"labels": "several", "classes": ("a", "b")}, 24 * np.log(2)),
        ([1.0, 2.0, 6.0], {"labels": "numbers"}, 3.0),
    ],
)
def test_readings(values, settings, constant):
    task, view = made(values, **settings)
    batch = batch_of(view)
    readings = task.eval().readings(batch, MAIN, None, None)
    torch.testing.assert_close(readings.losses[LABEL] / task.counts(batch, MAIN)[LABEL], loss_of(task, batch))
    assert readings.vectors["text"].shape == (len(values), 8)
    if constant is not None:
        assert readings.constants[LABEL].total == pytest.approx(constant)


def test_the_temperature_lowers_the_loss_and_changes_no_class():
    random = np.random.default_rng(0)
    task, view = made([CLASSES[place] for place in random.integers(3, size=60)], classes=CLASSES)
    scores = label_scores(task, view) * 8
    before = F.cross_entropy(torch.from_numpy(scores), torch.from_numpy(view.targets))
    task.fit_temperature(scores, view.targets)
    shares = task.probabilities(torch.from_numpy(scores))
    assert F.nll_loss(shares.log(), torch.from_numpy(view.targets)) < before - 0.1
    assert task.temperature > 2
    assert shares.argmax(1).tolist() == scores.argmax(1).tolist()


def test_the_temperature_of_several_labels():
    task, _ = made([["a"], ["b"]], labels="several", classes=("a", "b"))
    random = np.random.default_rng(0)
    scores = random.normal(size=(400, 2)) * 6
    targets = (random.random((400, 2)) < 1 / (1 + np.exp(-scores / 3))).astype(np.float32)
    task.fit_temperature(scores, targets)
    assert task.temperature == pytest.approx(3, rel=0.15)
    losses = [
        float(F.binary_cross_entropy_with_logits(torch.from_numpy(scores / t), torch.from_numpy(targets).double()))
        for t in (float(task.temperature) * 0.9, float(task.temperature), float(task.temperature) * 1.1)
    ]
    assert losses[1] < min(losses[0], losses[2])


def test_a_class_that_training_never_saw():
    task, _ = made(VALUES, classes=CLASSES)
    with pytest.raises(RamifyError, match=r"the labels hold 2 classes that the training data lack: d, e"):
        task.targets_of(["a", "d", "e"])
    with pytest.raises(RamifyError, match=r"correct the labels\.$"):
        task.targets_of(["a", "d"])
    with pytest.raises(RamifyError, match=r"lack: 47\. .* read as classes; --label-kind numbers trains on them as numbers\.$"):
        made([3, 12, 3], classes=("3", "12"))[0].targets_of([3, 47])


def test_truth_values_and_whole_numbers_are_classes():
    task, _ = made([True, False, True], classes=("false", "true"))
    assert task.targets_of([True, False]).tolist() == [1, 0]
    task, _ = made([1, 5, 10], classes=("1", "5", "10"))
    assert task.targets_of([10, 1]).tolist() == [2, 0]


@pytest.mark.parametrize("mode", ["finetune", "features"])
@pytest.mark.parametrize("head", [*HEADS, "default"])
def test_heads(head, mode):
    """Each row alone has the scores that it has in a batch, whatever the head; an empty text has finite ones."""
    task, view = made(VALUES, classes=CLASSES, head=head, mode=mode)
    together = label_scores(task, view)
    collate = LabelledCollator.of(view.rows)
    with torch.no_grad():
        for number in range(len(view)):
            alone = task.eval().scores(collate([view.example(number)]))
            np.testing.assert_allclose(alone[0].numpy(), together[number], atol=1e-12)


def test_a_mix_of_one_layer_is_that_layer():
    task, view = made(VALUES, classes=CLASSES, mode="features")
    batch = batch_of(view)
    with torch.no_grad():
        task.eval().mix.logits.copy_(torch.tensor([-1e4, 0.0, -1e4]))
        task.mix.gamma.fill_(1.5)
        states = task.backbone.encode_rows(batch.input, layers=True)
        rows = states.rows.offsets.tolist()
        means = [states.layers[1][start:stop].mean(0) for start, stop in pairwise(rows)]
        torch.testing.assert_close(task.row_vectors(batch), 1.5 * torch.stack(means))


def test_frozen_weights_have_no_gradient():
    task, view = made(VALUES, classes=CLASSES, mode="features", head="pooler")
    loss_of(task.train(), batch_of(view)).backward()
    named = dict(task.named_parameters())
    assert {name for name, parameter in named.items() if parameter.grad is not None} == {
        *("mix.logits", "mix.gamma", "output.weight", "output.bias"),
        *("head.pooler.hidden.weight", "head.pooler.hidden.bias"),
    }


def test_rows_that_the_model_cannot_read():
    with pytest.raises(RamifyError, match=r"input.max_tokens=100 is more than the 64 tokens"):
        Classification(
            bert_task().backbone, tokenizer(), LabelInput(max_tokens=100, pair="none"), ClassificationConfig(classes=("a", "b"))
        )
    vectors = LabelInput(max_tokens=16, pair="none", context="tree", context_as="vectors")
    with pytest.raises(RamifyError, match=r"input.context_as=vectors needs a model that reads vectors .* this Bert reads none"):
        Classification(bert_task().backbone, tokenizer(), vectors, ClassificationConfig(classes=("a", "b")))


def test_questions_that_do_not_fit():
    task, _ = made(VALUES, classes=CLASSES)
    model = Classifier(task)
    with pytest.raises(RamifyError, match="reads single texts, but a pair is given"):
        model.predict(("ba", "be"))
    task.input.__dict__["pair"] = "parent"
    with pytest.raises(RamifyError, match=r"reads pairs of texts, but a single text is given.*--text-pair"):
        model.predict("ba")
    assert model.predict(("ba", "be")).label in CLASSES


def test_a_floor_is_known_after_training_data_only():
    task, _ = made([1.0, 2.0, 4.0], labels="numbers")
    assert task.is_fitted
    fresh = Classification(
        bert_task().backbone, tokenizer(), LabelInput(max_tokens=16, pair="none"), ClassificationConfig(labels="numbers")
    )
    assert not fresh.is_fitted

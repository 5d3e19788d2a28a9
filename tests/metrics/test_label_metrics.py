"""Scores of labels against scikit-learn and SciPy."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as reference
from hypothesis import given
from hypothesis import strategies as st

from ramify.metrics.answers import score_answers
from ramify.metrics.choices import ChoicePredictions
from ramify.metrics.classification import (
    TEMPERATURES,
    ClassPredictions,
    NumberPredictions,
    SeveralPredictions,
    benchmark_score,
    bootstrap,
    log_loss,
    log_softmax,
    reliability,
    temperature,
)
from ramify.metrics.intervals import bootstrap_ratio
from ramify.metrics.spans import score_spans, score_tags

CLASSES = 4


def pairs(seed, size=60, classes=CLASSES):
    random = np.random.default_rng(seed)
    gold = random.integers(classes, size=size)
    return gold, np.where(random.random(size) < 0.6, gold, random.integers(classes, size=size))


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1, max_size=12))
def test_classes_are_scored_as_by_scikit_learn(rows):
    """Rows are few, so that classes without gold labels or predictions occur."""
    gold, predicted = np.array(rows).T
    scores = ClassPredictions(gold, predicted, CLASSES).scores()
    assert scores["accuracy"] == reference.accuracy_score(gold, predicted)
    assert scores["macro_f1"] == pytest.approx(reference.f1_score(gold, predicted, average="macro", zero_division=0))
    assert scores["matthews"] == pytest.approx(reference.matthews_corrcoef(gold, predicted), abs=1e-12)
    recall = reference.recall_score(gold, predicted, labels=np.unique(gold), average="macro", zero_division=0)
    assert scores["macro_recall"] == pytest.approx(recall)


def test_scores_of_each_class():
    gold, predicted = pairs(0)
    found = ClassPredictions(gold, predicted, CLASSES)
    precision, recall, f1, support = reference.precision_recall_fscore_support(gold, predicted)
    np.testing.assert_allclose(found.per_class.precision, precision)
    np.testing.assert_allclose(found.per_class.recall, recall)
    np.testing.assert_allclose(found.per_class.f1, f1)
    np.testing.assert_array_equal(found.per_class.support, support)
    np.testing.assert_array_equal(found.confusion, reference.confusion_matrix(gold, predicted))


@pytest.mark.parametrize("positive", [0, 1])
def test_f1_of_the_positive_class(positive):
    gold, predicted = pairs(1, classes=2)
    found = ClassPredictions(gold, predicted, 2, positive=positive).scores()
    assert found["f1"] == pytest.approx(reference.f1_score(gold, predicted, pos_label=positive))
    assert "f1" not in ClassPredictions(gold, predicted, 2).scores()


def test_scores_of_groups():
    gold = np.array([1, 0, 1, 0, 0])
    predicted = np.array([1, 0, 0, 1, 1])
    group = np.array([7, 7, 3, 3, 5])
    scores = ClassPredictions(gold, predicted, 2, group=group).scores()
    assert scores["exact_match"] == pytest.approx(1 / 3)
    assert scores["parity"] == pytest.approx(1 / 3)


@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 4))
def test_several_classes_are_scored_as_by_scikit_learn(seed, rows, classes):
    random = np.random.default_rng(seed)
    gold, predicted = random.random((2, rows, classes)) < 0.4
    scores = SeveralPredictions(gold, predicted).scores()
    # scikit-learn has one meaning for a column alone, and another for several.
    one, other = (np.concatenate([values, np.zeros((rows, 1), bool)], 1) for values in (gold, predicted))
    assert scores["micro_f1"] == pytest.approx(reference.f1_score(one, other, average="micro", zero_division=0))
    occurs = np.flatnonzero((gold | predicted).any(0))
    if len(occurs):
        mean = reference.f1_score(one, other, average="macro", labels=occurs, zero_division=0)
        assert scores["macro_f1"] == pytest.approx(mean)
    else:
        assert scores["macro_f1"] == 0
    assert scores["subset_accuracy"] == reference.accuracy_score(one, other)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=15))
def test_numbers_are_scored_as_by_scipy(rows):
    gold, predicted = np.array(rows, np.float64).T
    scores = NumberPredictions(gold, predicted).scores()
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        assert scores["pearson"] == scores["spearman"] == 0
    else:
        assert scores["pearson"] == pytest.approx(scipy.stats.pearsonr(gold, predicted).statistic, abs=1e-9)
        assert scores["spearman"] == pytest.approx(scipy.stats.spearmanr(gold, predicted).statistic, abs=1e-9)
    assert scores["mean_squared_error"] == pytest.approx(reference.mean_squared_error(gold, predicted))


def test_pearson_of_single_precision():
    gold = np.array([1e4, 1e4 + 1, 1e4 + 2], np.float32)
    assert NumberPredictions(gold, gold).scores()["pearson"] == pytest.approx(1)


FLAGS = np.array([[True, False], [True, False], [False, False]])


@pytest.mark.parametrize(
    ("predictions", "count", "total", "name"),
    [
        (ClassPredictions(np.array([0, 1, 1]), np.array([1, 1, 1]), 2), 3, 3, "cold"),
        (ClassPredictions(np.array([0, 1, 1]), np.array([1, 0, 1]), 2), 2, 3, "cold"),
        (SeveralPredictions(FLAGS, FLAGS), 2, 3, "hot"),
        (SeveralPredictions(FLAGS, np.zeros((3, 2), bool)), 3, 3, "no label"),
        (NumberPredictions(np.array([1.0, 2.0]), np.array([0.25, 0.25])), 2, 2, "0.25"),
        (score_answers(["", "", "a boat"], [["a boat"], [], []], "2.0"), 2, 3, "no answer"),
        (score_spans([["B-P", "O"], ["O"]], [["O", "O"], ["O"]]), 2, 2, "no span"),
        (score_spans([["B-P", "O"], ["O"]], [["B-P", "O"], ["B-P"]]), 0, 2, "no span"),
        (score_tags([["N", "V"], ["N"]], [["N", "N"], ["N"]]), 3, 3, "N"),
        (ChoicePredictions(np.array([0, 1]), np.array([1, 1]), np.array([2, 2])), 2, 2, "choice 2"),
    ],
)
def test_the_most_frequent_prediction(predictions, count, total, name):
    found = predictions.most_frequent
    assert (found.count, found.total, found.is_only) == (count, total, count == total)
    assert predictions.named(found.value, ("hot", "cold")) == name


def test_intervals_of_accuracy_are_those_of_its_ratio():
    gold, predicted = pairs(2, size=200)
    found = ClassPredictions(gold, predicted, CLASSES).interval("accuracy")
    expected = bootstrap_ratio((gold == predicted).astype(np.float64), np.ones(200, np.int64))
    assert found.value == expected.value
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.01)


def test_intervals_cover_the_truth():
    """Of 40 intervals of 95 %, at least 34 hold the true macro-F1."""
    whole = ClassPredictions(*pairs(0, size=200_000), CLASSES).scores()["macro_f1"]
    found = [ClassPredictions(*pairs(seed, 100), CLASSES).interval("macro_f1", resamples=100) for seed in range(1, 41)]
    assert sum(each.low <= whole <= each.high for each in found) >= 34
    assert all(each.high - each.low < 0.3 for each in found)


def test_difference_of_two_models():
    gold, good = pairs(3, size=300)
    bad = np.random.default_rng(4).integers(CLASSES, size=300)
    one, other = (ClassPredictions(gold, predicted, CLASSES) for predicted in (good, bad))
    found = one.difference(other, "macro_f1", resamples=300)
    assert found.value == pytest.approx(one.scores()["macro_f1"] - other.scores()["macro_f1"])
    assert found.low > 0
    assert found.p < 0.01
    same = one.difference(one, "macro_f1", resamples=300)
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_units_are_drawn_whole():
    """Ten copies of each text say no more than one."""
    gold, predicted = pairs(5, size=50)
    one = ClassPredictions(gold, predicted, CLASSES)
    rows = np.tile(np.arange(50), 10)
    many = one.take(rows)
    expected = one.interval("accuracy")
    assert many.interval("accuracy", units=rows) == expected
    narrow = many.interval("accuracy")
    assert narrow.high - narrow.low < 0.5 * (expected.high - expected.low)


def test_seeds_of_the_bootstrap():
    values = np.random.default_rng(0).random(40)

    def mean(rows):
        return float(values[rows].mean())

    one, same, other = (bootstrap(mean, np.arange(40), resamples=50, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_reliability():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.95, 0.05]])
    found = reliability(probabilities, np.array([0, 0, 0, 1]), bins=2)
    assert found.count.tolist() == [1, 3]
    assert found.accuracy.tolist() == [1, pytest.approx(1 / 3)]
    assert found.confidence.tolist() == [0.5, pytest.approx((0.9 + 0.8 + 0.95) / 3)]
    assert found.error == pytest.approx((0.5 + 3 * ((0.9 + 0.8 + 0.95) / 3 - 1 / 3)) / 4)


def test_error_of_calibrated_probabilities():
    random = np.random.default_rng(0)
    confidence = random.uniform(0.5, 1, 100_000)
    probabilities = np.stack([confidence, 1 - confidence], 1)
    gold = (random.random(100_000) > confidence).astype(np.int64)
    assert reliability(probabilities, gold).error < 0.01
    assert reliability(probabilities**3 / (probabilities**3).sum(1, keepdims=True), gold).error > 0.1


def test_log_loss():
    logits, gold = np.random.default_rng(0).normal(size=(30, 3)), np.random.default_rng(1).integers(3, size=30)
    assert log_loss(logits, gold) == pytest.approx(reference.log_loss(gold, np.exp(log_softmax(logits)), labels=[0, 1, 2]))
    assert np.isfinite(log_loss(1e4 * logits, gold))


@pytest.mark.parametrize("true", [0.3, 1.0, 5.0])
def test_temperature(true):
    random = np.random.default_rng(0)
    logits = random.normal(size=(20_000, 3)) * 2
    gold = (random.random((20_000, 1)) > np.exp(log_softmax(logits)).cumsum(1)).sum(1)
    assert temperature(logits * true, gold) == pytest.approx(true, rel=0.05)


@given(st.integers(0, 2**31))
def test_temperature_minimizes_the_loss(seed):
    random = np.random.default_rng(seed)
    logits, gold = random.normal(size=(20, 3)) * random.uniform(0.1, 10), random.integers(3, size=20)
    best = temperature(logits, gold)
    others = np.geomspace(*TEMPERATURES, 50)
    assert log_loss(logits / best, gold) <= min(log_loss(logits / other, gold) for other in others) + 1e-9


def test_temperature_without_an_optimum():
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert temperature(logits, np.array([0, 1])) == 1
    assert temperature(logits, np.array([1, 0])) == TEMPERATURES[1]


GLUE = [
    ((0.0, 83.2, (81.1, 71.1), (74.3, 73.6), (62.2, 83.4), (70.2, 70.3), 81.5, 57.2), 64.2),
    ((0.0, 85.9, (81.1, 71.8), (75.4, 73.3), (66.4, 86.2), (74.8, 74.3), 84.1, 57.9), 65.8),
    ((27.8, 89.7, (83.4, 76.2), (78.8, 77.0), (68.1, 87.0), (77.6, 77.0), 86.4, 61.8), 71.2),
    ((38.0, 89.6, (86.6, 81.6), (80.4, 78.4), (69.6, 87.9), (80.0, 79.1), 87.7, 62.2), 73.5),
]
"""The test figures of small BERT models (Turc et al. 2019), and their published scores."""


@pytest.mark.parametrize(("figures", "score"), GLUE)
def test_score_of_glue(figures, score):
    """The published figures, with the most frequent class of WNLI, give the published score up to their rounding."""
    tasks = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
    results = {task: np.atleast_1d(figure).tolist() for task, figure in zip(tasks, figures, strict=True)}
    assert benchmark_score({**results, "wnli": [62.3]}) == pytest.approx(score, abs=0.1)


def test_score_without_tasks():
    with pytest.raises(ValueError, match="no tasks"):
        benchmark_score({})

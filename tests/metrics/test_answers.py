"""Exact match and F1 of answers, and the threshold of the null score."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.metrics.answers import exact_match, f1, normalized, null_thresholds, score_answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat,\tsat!", "cat sat"),
        ("an apple a day", "apple day"),
        ("U.S.A.", "usa"),
        ("the-a-an", "theaan"),
        ("the", ""),
        ("“The” — ‘dog’", "“ ” — ‘dog’"),
        ("10,000 €", "10000 €"),
        ("Éa the\u00a0É", "éa é"),
        ("a\u2009priori", "priori"),
        ("theatre anthem", "theatre anthem"),
    ],
)
def test_normalization_removes_ascii_punctuation_and_whole_articles(text: str, expected: str) -> None:
    assert normalized(text) == expected


def test_full_width_and_curly_punctuation_counts_as_text() -> None:
    assert exact_match("dog’s", ["dog's"], "1.1") == 0
    assert exact_match("dog's", ["DOGS"], "1.1") == 1
    assert exact_match("yes。", ["yes"], "1.1") == 0
    assert f1("yes 。", ["yes"], "1.1") == pytest.approx(2 / 3)


def test_f1_counts_repeated_words_once_each() -> None:
    assert f1("new new york", ["new york city"], "1.1") == pytest.approx(2 * 2 / 6)
    assert f1("new york", ["york new"], "1.1") == 1
    assert exact_match("new york", ["york new"], "1.1") == 0


def test_the_most_similar_gold_answer_counts() -> None:
    gold = ["in the city of Rome", "Rome"]
    assert exact_match("rome.", gold, "1.1") == 1
    assert f1("old Rome", gold, "1.1") == pytest.approx(2 / 3)
    # Exact match and F1 may come from different gold answers.
    assert f1("Rome city", gold, "1.1") == pytest.approx(2 * 2 / 6)


def test_questions_without_an_answer() -> None:
    assert (exact_match("", [], "2.0"), f1("", [], "2.0")) == (1, 1)
    assert (exact_match("Rome", [], "2.0"), f1("Rome", [], "2.0")) == (0, 0)
    assert (exact_match("", ["Rome"], "2.0"), f1("", ["Rome"], "2.0")) == (0, 0)
    # An answer without a word is none, in the rules of 2.0.
    assert (exact_match("The", [], "2.0"), f1("The", [], "2.0")) == (1, 1)
    assert exact_match("", ["the", "Rome"], "2.0") == 0
    assert (exact_match("", ["the"], "2.0"), f1("", ["the"], "2.0")) == (1, 1)


def test_empty_texts_have_no_f1_in_the_rules_of_1_1() -> None:
    assert (exact_match("", ["the"], "1.1"), f1("", ["the"], "1.1")) == (1, 0)


def test_means_of_parts() -> None:
    scores = score_answers(["Rome", "old Paris", "", "x"], [["Rome"], ["Paris"], [], []], "2.0")
    assert scores.scores() == pytest.approx(
        {
            "exact_match": 2 / 4,
            "f1": (1 + 2 / 3 + 1) / 4,
            "has_answer_exact_match": 1 / 2,
            "has_answer_f1": (1 + 2 / 3) / 2,
            "no_answer_exact_match": 1 / 2,
            "no_answer_f1": 1 / 2,
        }
    )
    assert list(replace(scores, rules="1.1").scores()) == ["exact_match", "f1"]
    answered = score_answers(["Rome"], [["Rome"]], "2.0")
    assert list(answered.scores()) == ["exact_match", "f1", "has_answer_exact_match", "has_answer_f1"]


def test_thresholds_of_a_case_by_hand() -> None:
    thresholds = null_thresholds(
        np.array([0.5, -1.0, 2.0, -1.0]), np.array([0.0, 1.0, 0.5, 0.0]), np.array([False, True, True, False])
    )
    assert thresholds.values[1:].tolist() == [-1.0, 0.5, 2.0]
    assert thresholds.values[0] < -1
    assert thresholds.scores.tolist() == pytest.approx([2 / 4, 2 / 4, 1 / 4, 1.5 / 4])
    assert thresholds.answered.tolist() == [0, 0.5, 0.75, 1]
    # Of equally good thresholds the lowest.
    assert thresholds.best == 0


questions = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0.0, 0.25, 1.0]), st.booleans()), min_size=1, max_size=12)


@given(questions)
def test_thresholds_equal_their_definition(rows: list[tuple[int, float, bool]]) -> None:
    null = np.array([row[0] for row in rows], dtype=np.float64)
    has_answer = np.array([row[2] for row in rows])
    scores = np.where(has_answer, [row[1] for row in rows], 0.0)

    def mean(threshold: float) -> float:
        return float(np.where(null > threshold, ~has_answer, scores).mean())

    thresholds = null_thresholds(null, scores, has_answer)
    assert thresholds.scores == pytest.approx([mean(value) for value in thresholds.values])
    assert (np.diff(thresholds.values) > 0).all()
    assert thresholds.scores[thresholds.best] == pytest.approx(max(mean(value) for value in np.linspace(-4, 4, 17)))

"""Span scores: cases of our own, and an independent definition of spans by pairs of neighbours, as conlleval states it."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.dataset.bio import TokenSpan, bio_tags, is_bio, spans_of, tag_parts
from ramify.metrics.spans import SpanCounts, score_spans, score_tags

TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("X", "Y")), "B", "I"]
BIO = [tag for tag in TAGS if tag[0] in "OBI"]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("O O", []),
        ("B-X", [(0, 1, "X")]),
        ("B-X I-X O B-Y", [(0, 2, "X"), (3, 4, "Y")]),
        ("B-X B-X", [(0, 1, "X"), (1, 2, "X")]),
        # IOB1: B only between neighbours of one type.
        ("I-X I-X B-X I-X I-Y", [(0, 2, "X"), (2, 4, "X"), (4, 5, "Y")]),
        # Ill-formed BIO.
        ("O I-X I-X", [(1, 3, "X")]),
        ("B-X I-Y", [(0, 1, "X"), (1, 2, "Y")]),
        ("I-X I-Y I-X", [(0, 1, "X"), (1, 2, "Y"), (2, 3, "X")]),
        # BIOES, well-formed and not.
        ("B-X I-X E-X S-X", [(0, 3, "X"), (3, 4, "X")]),
        ("B-X E-X I-X E-X", [(0, 2, "X"), (2, 4, "X")]),
        ("S-X I-X", [(0, 1, "X"), (1, 2, "X")]),
        ("E-X E-X", [(0, 1, "X"), (1, 2, "X")]),
        ("B-a-b I-a-b", [(0, 2, "a-b")]),
        ("B I O", [(0, 2, "")]),
    ],
)
def test_spans(tags, spans):
    assert spans_of(tags.split()) == [TokenSpan(*span) for span in spans]


def by_neighbours(tags):
    """conlleval's two tables, end and start of a chunk, written out over pairs of neighbours."""
    padded = ["O-", *(tag if "-" in tag else f"{tag}-" for tag in tags), "O-"]
    pairs = [tag.split("-", 1) for tag in padded]
    starts, ends = [], []
    for place, ((before, its), (after, other)) in enumerate(itertools.pairwise(pairs)):
        code = before + after
        end = code in {"BB", "BS", "BO", "IB", "IS", "IO", "EE", "EI", "EO", "EB", "ES", "SE", "SI", "SO", "SB", "SS"}
        end |= before != "O" and its != other
        start = code in {"BB", "IB", "OB", "EB", "SB", "BS", "IS", "OS", "ES", "SS", "EE", "EI", "OE", "OI", "SE", "SI"}
        start |= after != "O" and its != other
        if end:
            ends.append(place)
        if start:
            starts.append((place, other))
    return [TokenSpan(start, end, kind) for (start, kind), end in zip(starts, ends, strict=True)]


@given(st.lists(st.sampled_from(TAGS), max_size=12))
def test_spans_against_the_tables_of_conlleval(tags):
    assert spans_of(tags) == by_neighbours(tags)


@given(st.lists(st.sampled_from(BIO), max_size=12))
def test_bio_from_spans(tags):
    written = bio_tags(spans_of(tags), len(tags))
    assert is_bio(written)
    assert spans_of(written) == spans_of(tags)
    assert (written == tags) == is_bio(tags)


@given(st.lists(st.sampled_from(BIO), max_size=12))
def test_well_formed_spans_are_those_of_a_pattern(tags):
    """Of well-formed BIO, a regular expression finds the spans."""
    tags = bio_tags(spans_of(tags), len(tags))
    letters = "".join({"O": "o", "B-X": "X", "I-X": "x", "B-Y": "Y", "I-Y": "y", "B": "Z", "I": "z"}[tag] for tag in tags)
    found = [TokenSpan(*match.span(), match[0][0].strip("Z")) for match in re.finditer("Xx*|Yy*|Zz*", letters)]
    assert spans_of(tags) == found


@pytest.mark.parametrize("spans", [[(0, 2, "X"), (1, 3, "Y")], [(0, 0, "X")], [(2, 4, "X")], [(-1, 1, "X")]])
def test_spans_that_no_tags_can_have(spans):
    with pytest.raises(ValueError, match="span"):
        bio_tags([TokenSpan(*span) for span in spans], 3)


@pytest.mark.parametrize("tag", ["", "X", "b-X", "B-", "-X", "O-X", "BX", "U-X"])
def test_unknown_tags(tag):
    with pytest.raises(ValueError, match="neither O nor"):
        tag_parts(tag)


def test_scores_by_hand():
    annotated = [["B-X", "I-X", "O", "B-Y"], ["B-X", "O"], []]
    predicted = [["B-X", "I-X", "O", "B-X"], ["I-X", "I-X"], []]
    scores = score_spans(annotated, predicted)
    assert scores.per_type == {"X": SpanCounts(1, 3, 2), "Y": SpanCounts(0, 0, 1)}
    assert scores.whole == SpanCounts(1, 3, 3)
    x = scores.per_type["X"]
    assert (x.precision, x.recall, x.f1) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert scores.per_type["Y"].f1 == 0
    assert (scores.right_words.tolist(), scores.words.tolist()) == ([3, 0, 0], [4, 2, 0])
    assert scores.accuracy == pytest.approx(3 / 6)


def test_nothing_to_find():
    scores = score_spans([["O", "O"]], [["O", "O"]])
    assert (scores.whole.precision, scores.whole.recall, scores.whole.f1, scores.accuracy) == (0, 0, 0, 1)
    assert score_spans([], []).accuracy == 0


@given(st.lists(st.tuples(st.sampled_from(BIO), st.sampled_from(BIO)), max_size=12))
def test_perfect_and_mirrored_scores(pairs):
    one, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    assert score_spans([one], [one]).whole.right == len(spans_of(one))
    forth, back = score_spans([one], [other]), score_spans([other], [one])
    assert forth.whole.precision == back.whole.recall
    assert forth.whole.f1 == pytest.approx(back.whole.f1)
    if sum_of := forth.whole.precision + forth.whole.recall:
        assert forth.whole.f1 == pytest.approx(2 * forth.whole.precision * forth.whole.recall / sum_of)


def test_sequences_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="argument 2 is longer"):
        score_spans([["O"]], [["O", "O"]])


def test_names_of_metrics_and_texts_that_are_taken():
    annotated = [["B-X", "O"], ["B-Y", "I-Y"], ["O"]]
    scores = score_spans(annotated, [["B-X", "O"], ["B-Y", "O"], ["B-X"]])
    assert scores.scores() == pytest.approx(
        {"span_f1": 2 / 5, "precision": 1 / 3, "recall": 1 / 2, "accuracy": 3 / 5, "f1_X": 2 / 3, "f1_Y": 0}
    )
    assert scores.take(np.array([0, 0])).scores() == {
        "span_f1": 1,
        "precision": 1,
        "recall": 1,
        "accuracy": 1,
        "f1_X": 1,
        "f1_Y": 0,
    }
    assert 0 <= scores.interval("span_f1", resamples=50).low <= scores.whole.f1


def test_tags_that_stand_alone():
    scores = score_tags([["N", "V"], ["N"]], [["N", "N"], ["N"]])
    assert scores.scores() == pytest.approx({"accuracy": 2 / 3, "macro_f1": 0.4, "f1_N": 0.8, "f1_V": 0})


@given(st.lists(st.sampled_from("NVD"), min_size=1, max_size=20), st.integers(0, 99))
def test_tags_against_scikit_learn(tags, seed):
    sklearn = pytest.importorskip("sklearn.metrics")
    guesses = np.random.default_rng(seed).choice(list("NVD"), size=len(tags)).tolist()
    scores = score_tags([tags], [guesses])
    labels = sorted({*tags, *guesses})
    assert [scores.per_type[tag].f1 for tag in labels] == pytest.approx(
        sklearn.f1_score(tags, guesses, labels=labels, average=None, zero_division=0)
    )

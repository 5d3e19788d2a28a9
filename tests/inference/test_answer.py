"""Answers from windows to the characters of a passage."""

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import text
from fixtures.questions import PASSAGE, batch_for, bert_qa, questions, xlnet_qa
from ramify.batching.question_windows import Windows, row_parts
from ramify.batching.views.questions import QuestionInput
from ramify.dataset.questions import Questions
from ramify.errors import RamifyError
from ramify.inference.answer import Answerer, decided, find_spans
from ramify.tokenizer import Tokenizer

ASKED = Questions.about(["ha hi", "he", "ba"], [PASSAGE, "Ga GE", PASSAGE])


def test_spans_are_the_best_of_all_windows() -> None:
    """Against a loop over windows, spans and tokens."""
    task = bert_qa(null="token", answer_tokens=3)
    view = Answerer(task).view(ASKED)
    found = find_spans(task, view, 7)
    batch = batch_for(task, ASKED)
    windows, offsets = Windows.of(batch), batch.input.rows.offsets.tolist()
    states = task.states(batch)
    starts, ends = task.start_table(batch, states), task.end_table(batch, states, windows.null)
    for number in range(len(ASKED)):
        best: dict[str, tuple[int, int, float]] = {}
        null = []
        spans = []
        for row in np.flatnonzero(batch.order == number):
            null.append((starts[row, 0] + ends[row, 0]).item())
            inside = (flags[offsets[row] : offsets[row + 1]].tolist() for flags in (windows.read_here, windows.passage))
            here, passage = inside
            for one in range(len(here)):
                for other in range(one, min(one + 3, len(here))):
                    if here[one] and passage[other]:
                        places = np.array([one, other]) + windows.shift[row]
                        start, end = view.tokens.characters(view.questions.passage[[number]], places[:1], places[1:])
                        spans.append(((starts[row, one] + ends[row, other]).item(), int(start[0]), int(end[0])))
        for score, start, end in sorted(spans, reverse=True):
            best.setdefault(view.passage(number)[start:end], (start, end, score))
        expected = list(best.values())[:7]
        assert list(zip(found[number].starts, found[number].ends)) == [span[:2] for span in expected]
        assert found[number].scores == pytest.approx([span[2] for span in expected], rel=1e-4)
        assert found[number].null == pytest.approx(min(null) - expected[0][2], rel=1e-4)


@pytest.mark.parametrize("make", [bert_qa, xlnet_qa])
def test_parts_of_batches_change_nothing(make) -> None:
    task = make(null="classifier" if make is xlnet_qa else "none")
    view = Answerer(task).view(ASKED)
    whole, parts = find_spans(task, view), find_spans(task, view, tokens=30)
    for one, other in zip(whole, parts, strict=True):
        assert (one.starts, one.ends) == (other.starts, other.ends)
        assert one.scores == pytest.approx(other.scores, rel=1e-4)
        assert (one.null is None) == (make is bert_qa)
        assert one.null is None or one.null == pytest.approx(other.null, rel=1e-4)
    batch = batch_for(task, ASKED)
    cut = list(row_parts(batch, 30))
    assert len(cut) > 3
    assert torch.equal(torch.cat([part.input.ids for part in cut]), batch.input.ids)
    assert np.concatenate([part.order for part in cut]).tolist() == batch.order.tolist()


def test_answers_are_texts_of_the_original_passage() -> None:
    model = Answerer(bert_qa())
    passage = "  ga\u00a0GE,  ba\n\nha  "
    answer = model.answer("he", passage, n_best=30)
    assert answer.question == "he"
    assert answer.best is answer.spans[0]
    assert len(answer.spans) > 5
    for span in answer.spans:
        assert passage[span.start : span.end] == span.text
        assert span.text.strip() == span.text != ""
        assert not span.no_answer
    assert len({span.text for span in answer.spans}) == len(answer.spans)
    assert sum(span.score for span in answer.spans) == pytest.approx(1)
    assert [span.score for span in answer.spans] == sorted((span.score for span in answer.spans), reverse=True)
    record = json.loads(json.dumps(answer.to_json()))
    assert list(record[0]) == ["text", "start", "end", "score", "no_answer"]


@pytest.mark.parametrize("threshold", [-1000.0, 1000.0])
def test_the_threshold_decides_whether_there_is_an_answer(threshold) -> None:
    model = Answerer(bert_qa(null="token"))
    model.task.threshold.fill_(threshold)
    none, *_ = model.answer("he", PASSAGE, n_best=2).spans
    assert none.no_answer == (threshold < 0)
    if none.no_answer:
        assert (none.text, none.start, none.end) == ("", 0, 0)
    found = find_spans(model.task, model.view(ASKED))
    assert [text == "" for text in decided(found, model.view(ASKED), threshold)] == [threshold < 0] * 3


def test_a_null_score_at_the_threshold_is_an_answer() -> None:
    model = Answerer(bert_qa(null="token"))
    view = model.view(ASKED.select(np.array([0])))
    null = find_spans(model.task, view)[0].null
    assert null is not None
    for threshold, expected in ((null, False), (np.nextafter(null, -np.inf), True)):
        model.task.threshold.fill_(float(threshold))
        assert model.answer(ASKED.texts[0], PASSAGE).best.no_answer == expected
        assert (decided(find_spans(model.task, view), view, float(threshold)) == [""]) == expected


def test_a_list_of_questions_gives_a_list_of_answers() -> None:
    model = Answerer(bert_qa())
    both = model.answer(["ha hi", "he"], PASSAGE)
    assert [answer.best.text for answer in both] == [model.answer(text, PASSAGE).best.text for text in ("ha hi", "he")]
    assert model.answer([], PASSAGE) == []


def test_long_questions_are_noted() -> None:
    model = Answerer(bert_qa())
    (note,) = model.answer("ha hi ha hi ha", PASSAGE).notes
    assert note == "the question has 5 tokens, of which the first 4 are read (input.question_tokens)."
    assert model.answer("ha hi", PASSAGE).notes == ()


@pytest.mark.parametrize("null", ["none", "token"])
def test_a_passage_without_a_token_has_no_answer(null) -> None:
    words = Tokenizer.train(["ga he"] * 4, kind="wordpiece", vocab_size=40)
    model = Answerer(bert_qa(null=null, tokenizer=words))
    view = model.view(Questions.about(["he", "he"], ["\u00ad", "ga"]))
    assert np.diff(view.tokens.offsets).tolist() == [0, 1]
    empty, whole = find_spans(model.task, view)
    assert (empty.starts, empty.ends, empty.scores) == ((), (), ())
    assert (whole.starts, whole.ends) == ((0,), (2,))
    # Whatever the threshold is.
    assert decided([empty, whole], view, 1e9) == ["", "ga"]
    with pytest.raises(RamifyError, match=r"passage='\\xad' holds no letter that the tokenizer keeps, so it has no answer"):
        model.answer("he", "\u00ad")


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    """A tokenizer that has a piece for white space alone."""
    return Tokenizer.train(["ab ba 12 . a b"] * 4, kind="unigram", vocab_size=40)


@given(
    seed=st.integers(0, 10_000),
    words=st.lists(st.sampled_from(["ga", "ge", "ha", "hi", "ba"]), min_size=1, max_size=30),
    beams=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    longest=st.integers(1, 4),
)
@settings(max_examples=20, deadline=None)
def test_every_passage_has_an_answer_where_every_question_has_one(seed, words, beams, longest) -> None:
    """The narrowest beams of a conditional end, and scores that prefer any other token."""
    task = xlnet_qa(seed=seed, null="none", start_beam=beams[0], end_beam=beams[1], answer_tokens=longest)
    passage = " ".join(words)
    best = Answerer(task).answer("he ga", passage).best
    assert not best.no_answer
    assert 0 < len(best.text.split()) <= longest
    assert best.text == passage[best.start : best.end]
    assert 0 < best.score <= 1


@given(seed=st.integers(0, 10_000), words=st.integers(1, 24), longest=st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_a_beam_wide_enough_finds_what_an_exhaustive_search_finds(seed, words, longest) -> None:
    task = xlnet_qa(seed=seed, null="none", start_beam=20, end_beam=20, answer_tokens=longest)
    passage = " ".join(PASSAGE.split()[:words])
    asked = Questions.about(["he ga"], [passage])
    (found,) = find_spans(task, Answerer(task).view(asked))
    batch = batch_for(task, asked)
    windows, offsets, states = Windows.of(batch), batch.input.rows.offsets.tolist(), task.states(batch)
    starts = task.start_table(batch, states).log_softmax(1)
    scores = {}
    for row, place in itertools.product(range(len(windows.null)), range(starts.shape[1])):
        here, inside = (flags[offsets[row] : offsets[row + 1]].tolist() for flags in (windows.read_here, windows.passage))
        if place >= len(here) or not here[place]:
            continue
        ends = task.end_table(batch, states, torch.full_like(windows.null, place).minimum(batch.input.rows.lengths - 1))
        ends = ends.log_softmax(1)
        for last in range(place, min(place + longest, len(here))):
            if inside[last]:
                token = place + int(windows.shift[row])
                start, end = 3 * token, 3 * (last + int(windows.shift[row])) + 2
                scores[start, end] = float(starts[row, place] + ends[row, last])
    assert found.scores[0] == pytest.approx(max(scores.values()), rel=1e-4)
    assert scores[found.starts[0], found.ends[0]] == pytest.approx(found.scores[0], rel=1e-4)


def test_answers_never_begin_or_end_with_a_token_of_white_space(pieces) -> None:
    passage = "  漢  ab"
    for seed in range(4):
        task = xlnet_qa(seed=seed, null="none", start_beam=1, end_beam=1, tokenizer=pieces)
        model = Answerer(task)
        lettered = model.view(Questions.about(["ab"], [passage])).tokens.lettered
        assert not lettered.all()
        best = model.answer("ab", passage).best
        assert best.text == best.text.strip() != ""


@pytest.mark.parametrize(
    ("question", "passage", "message"),
    [
        (" ", PASSAGE, r"question=' ' holds no words. Ask a question."),
        ("he", "\n ", r"passage='\\n ' holds no words, so it has no answer"),
    ],
)
def test_empty_texts_are_refused(question, passage, message) -> None:
    with pytest.raises(RamifyError, match=message):
        Answerer(bert_qa()).answer(question, passage)
    with pytest.raises(RamifyError, match="n_best=0"):
        Answerer(bert_qa()).answer("he", PASSAGE, n_best=0)


def test_an_answer_in_the_second_window_is_found() -> None:
    """A model that was overfitted on a passage longer than a row: 128 tokens, and 64 between two windows."""
    passage = text(np.random.default_rng(0), 170)
    words = passage.split(" ")
    asked = questions(("ha hi", " ".join(words[130:132])), ("he", " ".join(words[20:22])), passage=passage)
    task = bert_qa(QuestionInput(max_tokens=128, stride=64, question_tokens=4), spread=0.0).train()
    batch = batch_for(task, asked)
    windows = Windows.of(batch)
    holds = {int(windows.shift[row]): bool(windows.answered[row]) for row in np.flatnonzero(batch.order == 0)}
    assert list(dict(sorted(holds.items())).values()) == [False, True]
    optimizer = torch.optim.Adam(task.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        sum(task.loss_sums(batch, task.states(batch)).values()).backward()
        optimizer.step()
    model = Answerer(task.eval())
    answers = [model.answer(text, passage).best for text in asked.texts]
    assert [answer.text for answer in answers] == [texts[0] for texts in asked.gold]
    assert [(answer.start, answer.end) for answer in answers] == [tuple(span) for span in asked.spans.tolist()]

"""Windows of questions and passages, and answers as tokens and as characters."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.question_windows import QuestionCollator, Windows
from ramify.batching.views.questions import PassageTokens, QuestionInput, QuestionView
from ramify.dataset.questions import Questions, read_questions
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree

TEXT = "The café's naïve owner said: “Zürich is 10,000 km away”, and left for Rome — or Paris. " * 2
KINDS = ("wordpiece", "bpe", "unigram")


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: Tokenizer.train([TEXT] * 4, kind=kind, vocab_size=340) for kind in KINDS}


def asked(passage: str, question: str, answer: tuple[int, int] | None) -> Questions:
    found = [] if answer is None else [answer]
    label = {"texts": [passage[start:end] for start, end in found], "starts": [start for start, _ in found]}
    nodes = (Node(passage, id="p"), Node(question, (0,), id="q", label=label))
    return read_questions(Store.from_trees([Tree(nodes, "t")]), "all")


def batch_of(questions: Questions, tokenizer: Tokenizer, input: QuestionInput) -> tuple[QuestionView, LabelledBatch]:
    layout = tokenizer.layout(input.layout)
    view = QuestionView(questions, tokenizer, layout, input)
    return view, QuestionCollator(layout, input)([view.example(number) for number in range(len(view))])


def brute_force_owners(windows: list[tuple[int, int]]) -> dict[int, int]:
    """Token -> the window in which it has maximum context, straight from the definition."""
    owners: dict[int, tuple[float, int]] = {}
    for number, (begin, length) in enumerate(windows):
        for token in range(begin, begin + length):
            context = min(token - begin, begin + length - 1 - token) + 0.01 * length
            if token not in owners or context > owners[token][0]:
                owners[token] = (context, number)
    return {token: number for token, (_, number) in owners.items()}


passages = st.lists(
    st.sampled_from(
        [
            "Rome",
            "rome",
            "Zürich",
            "Zu\u0308rich",
            "ﬁne",
            "½",
            "İstanbul",
            "東京",
            "🎉",
            "👩‍👩‍👧",
            "e\u0301a",
            "10,000",
            "“x”",
            "a\u200db",
            "\u00a0",
        ]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4),
    min_size=1,
    max_size=60,
)


@given(
    words=passages,
    gap=st.sampled_from([" ", "", "\n", "\u2003"]),
    places=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    stride=st.integers(1, 12),
    layout=st.sampled_from(["bert", "roberta", "xlnet", "t5"]),
    order=st.sampled_from(["question_first", "passage_first"]),
)
@pytest.mark.parametrize("kind", KINDS)
def test_gold_answers_on_token_borders_survive_windows_and_projection(
    tokenizers, kind, words, gap, places, stride, layout, order
) -> None:
    tokenizer, passage = tokenizers[kind], gap.join(words)
    tokens = PassageTokens.of([passage], tokenizer)
    lettered = np.flatnonzero(tokens.starts < tokens.ends)
    assume(len(lettered))
    one, other = sorted(lettered[int(share * (len(lettered) - 1))] for share in places)
    answer = int(tokens.starts[one]), int(tokens.ends[other])
    assume(answer[0] < answer[1])
    # A vulgar fraction is several tokens, of which the last may reach into the next word.
    assume(not any(((tokens.starts < border) & (border < tokens.ends)).any() for border in answer))
    input = QuestionInput(max_tokens=24, stride=stride, question_tokens=6, layout=layout, order=order)
    view, batch = batch_of(asked(passage, "Where is Rome?", answer), tokenizer, input)
    # Characters to tokens and back.
    span = view.answers[0]
    assert span is not None
    start, end = view.tokens.characters(np.array([0]), np.array(span[:1]), np.array(span[1:]))
    assert (start[0], end[0]) == answer
    # Each row holds the question, and its part of the passage.
    assert batch.targets is not None
    windows_here, rows, text = Windows.of(batch), batch.input, 1 if order == "question_first" else 0
    offsets = rows.rows.offsets.tolist()
    spans, skipped = rows.spans[:, text], rows.offsets[:, text]
    windows = [(int(skip), int(stop - begin)) for (begin, stop), skip in zip(spans, skipped)]
    example = view.example(0)
    for row, (begin, length) in enumerate(windows):
        ids = rows.ids[offsets[row] : offsets[row + 1]].numpy()
        assert len(ids) <= input.max_tokens
        np.testing.assert_array_equal(ids[spans[row, 0] : spans[row, 1]], example.passage[begin : begin + length])
        np.testing.assert_array_equal(ids[slice(*rows.spans[row, 1 - text])], example.question)
        inside = torch.zeros(len(ids), dtype=torch.bool)
        inside[spans[row, 0] : spans[row, 1]] = True
        assert torch.equal(windows_here.passage[offsets[row] : offsets[row + 1]], inside)
        # The target is the answer if the window holds it, else the special token.
        holds = begin <= span[0] and span[1] < begin + length
        assert bool(windows_here.answered[row]) == holds
        target = tuple(batch.targets[row].tolist())
        place = windows_here.null[row].item()
        assert target == (tuple(np.array(span) - begin + spans[row, 0]) if holds else (place, place))
        assert not windows_here.passage[offsets[row] + place]
        assert windows_here.shift[row] + spans[row, 0] == begin
    # Each token is read from one window, that of maximum context.
    order_of_windows = np.argsort([begin for begin, _ in windows])
    owners = brute_force_owners([windows[row] for row in order_of_windows])
    read = {}
    for row, (begin, length) in enumerate(windows):
        here = windows_here.read_here[offsets[row] : offsets[row + 1]].numpy()
        for place in np.flatnonzero(here):
            token = int(place + windows_here.shift[row])
            assert token not in read
            assert begin <= token < begin + length
            read[token] = row
    assert read == {token: order_of_windows[number] for token, number in owners.items()}
    assert len(read) == len(example.passage)
    # The window from which the answer's first token is read holds short answers whole.
    overlap = max(int(input.room(tokenizer.layout(layout), np.array([len(example.question)]))[0]) - stride, 0)
    if 2 * (span[1] - span[0] + 2) <= overlap:
        assert windows_here.answered[read[span[0]]]
    assert view.costs.tolist() == [rows.rows.total]
    assert view.sizes.tolist() == [len(rows.rows)]


def test_windows_of_several_questions_do_not_mix(tokenizers) -> None:
    tokenizer = tokenizers["wordpiece"]
    questions = Questions.about(["Where is Rome?", "Who left?", "Zürich?"], [TEXT, "Rome", TEXT[:90]])
    view, batch = batch_of(questions, tokenizer, QuestionInput(max_tokens=24, stride=7, question_tokens=6))
    counts = np.bincount(np.repeat(batch.input.source, batch.input.rows.host_lengths)[Windows.of(batch).read_here.numpy()])
    assert counts.tolist() == [len(view.example(number).passage) for number in range(3)]
    assert np.bincount(batch.input.source).tolist() == view.sizes.tolist()
    assert not Windows.of(batch).answered.any()


def test_long_questions_are_cut_and_counted(tokenizers) -> None:
    tokenizer = tokenizers["wordpiece"]
    view, _ = batch_of(
        Questions.about([TEXT, "Who?"], ["Rome"] * 2), tokenizer, QuestionInput(max_tokens=32, question_tokens=6)
    )
    assert view.long_questions == {0: len(tokenizer.encode(TEXT))}
    np.testing.assert_array_equal(view.example(0).question, tokenizer.encode(TEXT)[:6])
    assert len(view.example(1).question) < 6


def test_answers_inside_words_become_all_words_that_they_touch(tokenizers) -> None:
    tokens = PassageTokens.of(["old Rome", "Rome stands"], tokenizers["wordpiece"])
    for passage, text, start, end, expected in ((0, "old Rome", 5, 6, "Rome"), (1, "Rome stands", 0, 6, "Rome stands")):
        span = tokens.covering(passage, start, end)
        assert span is not None
        begin, stop = tokens.characters(np.array([passage]), np.array(span[:1]), np.array(span[1:]))
        assert expected.startswith(text[begin[0] : stop[0]][:4])
        assert begin[0] <= start < end <= stop[0]
    assert tokens.covering(0, 3, 4) is None


def test_questions_without_an_answer_to_learn_are_left_out(tokenizers) -> None:
    tokenizer = tokenizers["wordpiece"]
    input = QuestionInput(max_tokens=24, question_tokens=6)
    questions = asked("old Rome", "Where?", None)
    assert len(QuestionView(questions, tokenizer, tokenizer.layout("bert"), input, learn=True)) == 1
    empty = asked("", "Where?", None)
    with pytest.raises(RamifyError, match=r"no question to learn from, of 1 in the split train \(1 question without words"):
        QuestionView(empty, tokenizer, tokenizer.layout("bert"), input, learn=True)


def test_input_settings_that_leave_no_room_are_refused(tokenizers) -> None:
    with pytest.raises(RamifyError, match=r"input.max_tokens=70 leaves no room .* Set input.question_tokens=17, or raise"):
        QuestionInput(max_tokens=70)
    with pytest.raises(RamifyError, match=r"input.stride must be at least 1"):
        QuestionInput(stride=0)


def test_the_last_token_of_a_passage_may_be_an_answer(tokenizers) -> None:
    passage = "left for Rome"
    questions = asked(passage, "Where?", (len(passage) - 4, len(passage)))
    for layout, order in (("bert", "question_first"), ("xlnet", "passage_first")):
        input = QuestionInput(max_tokens=24, question_tokens=6, layout=layout, order=order)
        view, batch = batch_of(questions, tokenizers["wordpiece"], input)
        assert Windows.of(batch).answered.tolist() == [True]
        answer = view.answers[0]
        assert answer is not None
        assert answer[1] == len(view.example(0).passage) - 1

"""Running text: every token of a split once, in stored order, with the borders of sentences, paragraphs and documents."""

import itertools
import re

import numpy as np
import pytest

from fixtures import built
from ramify import Node, RamifyError, Tree
from ramify.batching.characters import spell
from ramify.batching.running_text import RunningText, by_sentence
from ramify.batching.views.streams import StreamConfig, StreamInput, Streams
from ramify.dataset.store import Store
from ramify.tokenizer import Tokenizer

TEXTS = ["One came in. Two went out!\nThree stayed.", "Four? Five."]


@pytest.fixture(scope="module")
def tokenizer():
    words = ["one came in . two went out ! three stayed four ? five"]
    return Tokenizer.train(words * 20, vocab_size=90, marks=True)


def read(tokenizer, trees, **options):
    return RunningText.open(Store.from_trees(trees), tokenizer, "all", **options)


def parts(tokenizer, text, borders):
    return [tokenizer.decode(text.ids[start:stop].tolist()) for start, stop in itertools.pairwise(borders)]


def test_every_token_once_in_stored_order(tokenizer):
    trees = [Tree([Node(text) for text in TEXTS[:1]]), Tree([Node(TEXTS[1])])]
    text = read(tokenizer, trees)
    ids, _ = tokenizer.encode_batch(TEXTS)
    assert np.array_equal(text.ids, ids)
    assert parts(tokenizer, text, text.sentences) == ["one came in.", "two went out!", "three stayed.", "four?", "five."]
    assert text.paragraphs.tolist() == text.documents.tolist() == [0, 3, 5]
    assert text.document_ends.tolist()[-1] == text.num_tokens


def test_marks_end_paragraphs_and_documents(tokenizer):
    thread = Tree([Node("One came in."), Node("Two went out!", parents=(0,)), Node(" ", parents=(0,))])
    text = read(tokenizer, [thread, Tree([Node("Three stayed.")])], marks=True)
    eop, eod = tokenizer.eop_id, tokenizer.eod_id
    ends = text.ids[text.sentences[1:] - 1].tolist()
    # A node without tokens is no paragraph, so the document ends with the second comment.
    assert ends == [eop, eod, eod]
    assert text.documents.tolist() == [0, 2, 3]
    assert read(tokenizer, [thread]).num_tokens == 8


def test_document_is_the_lowest_division_with_paragraphs(tokenizer):
    kinds = [
        "document",
        "chapter",
        "paragraph",
        "sentence",
        "sentence",
        "paragraph",
        "sentence",
        "chapter",
        "paragraph",
        "sentence",
    ]
    parents = [(), (0,), (1,), (2,), (2,), (1,), (5,), (0,), (7,), (8,)]
    texts = {3: "One came in.", 4: "Two went out! Three stayed.", 6: "Four?", 9: "Five."}
    book = Tree([Node(texts.get(i, ""), kind=kind, parents=parent) for i, (kind, parent) in enumerate(zip(kinds, parents))])
    text = read(tokenizer, [book])
    # Sentences of books are taken as they are.
    assert parts(tokenizer, text, text.sentences) == ["one came in.", "two went out! three stayed.", "four?", "five."]
    assert text.paragraphs.tolist() == [0, 2, 3, 4]
    assert text.documents.tolist() == [0, 3, 4]


def test_texts_of_a_file_are_one_document(tokenizer):
    trees = [Tree([Node("Four?")], id=str(i), meta={"group": "a" if i < 2 else "b"} if i < 3 else {}) for i in range(5)]
    assert read(tokenizer, trees).documents.tolist() == [0, 2, 3, 4, 5]


def test_text_without_tokens_is_refused(tokenizer):
    with pytest.raises(RamifyError, match="no text in the split 'all'"):
        read(tokenizer, [Tree([Node(" ")])])


def test_division_loses_no_letter():
    for text in (*TEXTS, "", "\n\n", "“Oh!” she said. No.\r\nYes"):
        assert "".join("".join(by_sentence(text)).split()) == "".join(text.split())


def test_words_that_the_vocabulary_lacks_are_told_apart(tmp_path):
    """In memory, from the cache of a store, and read again; rows in both directions spell each token."""
    own = Tokenizer.train(["one came in . two went out ! three stayed"] * 2, kind="word", vocab_size=14, marks=True)
    trees = [Tree([Node(text)], id=str(number)) for number, text in enumerate(TEXTS * 4)]
    store = built(trees, tmp_path, split=(1, 0, 0))
    # A store has an order of its own.
    trees = list(store.trees())
    plain = read(own, trees)
    texts = [read(own, trees, open_words=True), *(RunningText.open(store, own, "all", open_words=True) for _ in range(2))]
    expected = [word for tree in trees for word in re.findall(r"\w+|[^\w\s]", tree.nodes[0].text.lower())]
    for text in texts:
        lexicon = text.lexicon
        assert np.array_equal(lexicon.in_vocabulary(text.ids.astype(np.int64)), plain.ids)
        assert own.unknown(plain.ids).count > 0
        assert np.array_equal(lexicon.spellings[text.ids], spell(expected))
        view = Streams(text, own, StreamInput(row_tokens=6, reused_tokens=5, segments="none"), StreamConfig(2), seed=0)
        for number in range(len(view.costs)):
            row = view.example(number)
            sign, stream = row.direction, number // view.per_stream % 2
            place = number % view.per_stream * 5
            words = expected[stream * view.length : (stream + 1) * view.length][::sign][place : place + 6]
            assert np.array_equal(row.characters, spell(words))
            assert row.ids.max() < own.vocab_size
    closed = Streams(plain, own, view.input, StreamConfig(2), seed=0)
    assert closed.example(0).characters is None

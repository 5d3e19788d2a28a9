"""Running text: every token of a split once, in stored order, with the borders of sentences, paragraphs and documents."""

import itertools

import numpy as np
import pytest

from ramify import Node, RamifyError, Tree
from ramify.batching.running_text import RunningText, by_sentence
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

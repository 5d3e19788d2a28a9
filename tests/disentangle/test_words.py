"""Vocabularies of words, and their initial vectors."""

import numpy as np
import pytest

from ramify.disentangle.data.splitting import USER
from ramify.disentangle.data.words import encode_words, find_shape, learn_vocabulary, learn_word_vectors
from ramify.tokenizer import SPECIAL, Tokenizer

MESSAGES = [
    *[["mount", "the", "disk", "2.0"]] * 6,
    *[["play", "the", "sound", "3.1"]] * 6,
    ["unheard", "of", "7.5"],
    ["other", "42", "8.25"],
]


def words(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    return [tokenizer.token(int(each)) for each in ids]


def test_frequent_words_are_in_the_vocabulary_and_others_map_to_shapes() -> None:
    tokenizer = learn_vocabulary(MESSAGES, min_count=2)
    vocabulary = set(tokenizer.engine.get_vocab())
    assert {"mount", "the", "disk", "2.0", USER, *SPECIAL} <= vocabulary
    assert not {"unheard", "42", "of"} & vocabulary
    # Two rare words of one shape make the shape frequent.
    assert "<aaa>" in vocabulary
    ids, starts = encode_words(tokenizer, [["mount", "zzzzzzz", "?!"], [], [USER]])
    assert starts.tolist() == [0, 4, 5, 7]
    assert words(tokenizer, ids) == ["[CLS]", "mount", "<aaa>", "[UNK]", "[CLS]", "[CLS]", USER]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("unheard", "<aaa>"),
        ("a", "<a>"),
        ("eth0", "<aaa0>"),
        ("2.6.8", "<0.0.0>"),
        ("-----", "<--->"),
        ("ÄÖ", "<aa>"),
    ],
)
def test_shapes(word: str, expected: str) -> None:
    assert find_shape(word) == expected


def test_shapes_are_short() -> None:
    assert len(find_shape("a1b2c3d4e5f6g7h8i9")) <= 14


def test_vocabulary_does_not_depend_on_the_order_of_messages() -> None:
    assert learn_vocabulary(MESSAGES).json == learn_vocabulary(MESSAGES[::-1]).json


def test_vocabulary_is_saved_as_tokenizer_json(tmp_path) -> None:
    tokenizer = learn_vocabulary(MESSAGES, min_count=2)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.json == tokenizer.json
    assert np.array_equal(encode_words(again, MESSAGES)[0], encode_words(tokenizer, MESSAGES)[0])
    # `Tokenizer.load` gives the same words.
    assert again.encode("Mount the DISK") == encode_words(tokenizer, [["mount", "the", "disk"]])[0][1:].tolist()


def test_words_in_similar_contexts_have_similar_vectors() -> None:
    random = np.random.default_rng(0)
    topics = [["disk", "mount", "usb", "fstab"], ["sound", "alsa", "mute", "volume"]]
    messages = [[*random.permutation(topics[number % 2])[:3], "the"] for number in range(400)]
    tokenizer = learn_vocabulary(messages)
    ids, starts = encode_words(tokenizer, messages)
    vectors = learn_word_vectors(ids, starts, tokenizer.vocab_size, 6)
    assert vectors.shape == (tokenizer.vocab_size, 6)
    assert np.isfinite(vectors).all()
    place = tokenizer.engine.get_vocab()
    unit = {word: vectors[place[word]] / np.linalg.norm(vectors[place[word]]) for topic in topics for word in topic}
    assert min(unit["disk"] @ unit[word] for word in topics[0]) > max(unit["disk"] @ unit[word] for word in topics[1]) + 0.1
    assert np.array_equal(vectors, learn_word_vectors(ids, starts, tokenizer.vocab_size, 6))
    # These words are in no message, so there is nothing to learn.
    assert np.abs(vectors[place["[PAD]"]]).max() < 1e-6


def test_more_dimensions_than_words() -> None:
    tokenizer = learn_vocabulary([["a", "b"]] * 9)
    ids, starts = encode_words(tokenizer, [["a", "b"]] * 9)
    vectors = learn_word_vectors(ids, starts, tokenizer.vocab_size, 50)
    assert vectors.shape == (tokenizer.vocab_size, 50)
    assert np.isfinite(vectors).all()

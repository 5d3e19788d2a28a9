"""Words and their first pieces, windows of long texts, and batches of tagged words."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers

from ramify.batching.encoder_input import EncoderInput, num_rows
from ramify.batching.tagged_batch import TagCollator
from ramify.batching.views.tagged import TaggedView, WordPieces
from ramify.batching.windows import widest_context
from ramify.dataset.token_tags import words_of
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer

TEXTS = ["the crust goes soft, an hour out of the oven", "Ähm, don't 日本 👍🏽 cafe\u0301s", "", "a\u0000b x", "\u0000 \u200b"]


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tokenizer(request):
    size = {"wordpiece": 92, "bpe": 400, "unigram": 92}[request.param]
    return Tokenizer.train([*TEXTS, "out of the oven an hour"] * 5, kind=request.param, vocab_size=size)


def made(words):
    return Tokenizer.train([words], kind="word", vocab_size=30)


def pieces_of(tokenizer, texts, words=None):
    return WordPieces.of(tokenizer, texts, [words_of(text) for text in texts] if words is None else words)


def test_first_pieces(tokenizer):
    pieces = pieces_of(tokenizer, TEXTS)
    for text, ids, first in zip(TEXTS, pieces.ids, pieces.first, strict=True):
        words = words_of(text)
        assert len(first) == len(words)
        assert (np.diff(first) >= 0).all()
        # Without words that the tokenizer drops, the pieces are those of the text.
        assert ids.tolist() == tokenizer.encode(text)
        _, _, starts, ends = tokenizer.encode_offsets([text])
        for (start, end), place in zip(words.tolist(), first.tolist(), strict=True):
            assert starts[place] < end
            assert ends[place] > start
            # No earlier piece has a part of the word.
            assert not any(ends[:place] > start) or kind_of(tokenizer) == "unigram"


def kind_of(tokenizer):
    return type(tokenizer.engine.model).__name__.lower()


def test_words_that_the_tokenizer_drops_are_unknown():
    own = made("a b c")
    words = [np.array([[0, 1], [2, 3], [4, 5], [6, 7]])]
    # U+FFFD is dropped by BERT's normalization.
    pieces = pieces_of(own, ["a \ufffd b \ufffd"], words)
    assert pieces.ids[0].tolist() == [*own.encode("a"), own.unk_id, *own.encode("b"), own.unk_id]
    assert pieces.first[0].tolist() == [0, 1, 2, 3]
    assert pieces.unknown(own).count == 2


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=15))
def test_every_word_of_any_text_has_a_piece(tokenizer, text):
    pieces = pieces_of(tokenizer, [text])
    ids, first = pieces.ids[0], pieces.first[0]
    assert len(first) == len(words_of(text))
    assert (np.diff(first) >= 0).all()
    assert not len(first) or (first[0] >= 0 and first[-1] < len(ids))
    own = tokenizer.encode(text)
    assert len(ids) >= len(own)
    # What is added is unknown.
    assert sorted(ids.tolist()) == sorted([*own, *[tokenizer.unk_id] * (len(ids) - len(own))])


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    room=st.integers(2, 9),
    share=st.integers(0, 8),
    frame=st.booleans(),
)
def test_every_token_is_read_where_most_surrounds_it(lengths, room, share, frame):
    layout = made("a b").layout("bert" if frame else "plain")
    overlap, special = min(share, room - 1), layout.num_special
    # Each token's id says where it stands.
    ids = np.concatenate([np.arange(length) + 100 * number for number, length in enumerate(lengths)] or [[]]).astype(np.int64)
    rows = EncoderInput.of_texts((ids, np.array(lengths)), layout, room + special, long="split", overlap=overlap)
    counts = num_rows(np.array(lengths), room, overlap)
    assert counts.tolist() == [int((rows.source == text).sum()) for text in range(len(lengths))]
    text, place = np.divmod(ids, 100)
    chosen = widest_context(rows)
    np.testing.assert_array_equal(rows.ids.numpy()[chosen], ids)
    starts = np.cumsum(rows.rows.host_lengths) - rows.rows.host_lengths
    for one, at, flat in zip(text, place, chosen, strict=True):
        scores = {}
        for row in np.flatnonzero(rows.source == one):
            begin, length = rows.offsets[row, 0], rows.spans[row, 0, 1] - rows.spans[row, 0, 0]
            if begin <= at < begin + length:
                scores[row] = min(at - begin, begin + length - 1 - at) + 0.01 * length
        row = int(np.searchsorted(starts, flat, "right")) - 1
        assert scores[row] == max(scores.values())


def test_a_batch_of_words():
    own = made("a b c d e f g h")
    texts = ["a b c d e f g h", "", "c , a"]
    pieces = pieces_of(own, texts)
    tags = [np.arange(len(first)) for first in pieces.first]
    view = TaggedView(pieces, tags, own.layout("bert"), longest=6, overlap=2)
    assert view.costs.tolist() == [8 + 2 * 2 + 3 * 2, 2, 3 + 2]
    assert (view.counts().texts, view.counts().words, view.counts().divided) == (3, 11, 1)
    batch = TagCollator.of(view)([view.example(number) for number in range(3)])
    assert int(batch.input.rows.total) == view.costs.sum()
    assert batch.part.texts.host_lengths.tolist() == [8, 0, 3]
    assert batch.targets.tolist() == [*range(8), 0, 1, 2]
    read = batch.input.ids.index_select(0, batch.part.places)
    assert read.tolist() == [*own.encode("a b c d e f g h"), *own.encode("c , a")]
    assert batch.num_targets == 3


def test_no_tags_and_no_words():
    own = made("a")
    view = TaggedView(pieces_of(own, ["", ""]), None, own.layout("plain"), longest=4, overlap=0)
    batch = TagCollator.of(view)([view.example(0), view.example(1)])
    assert batch.targets is None
    assert batch.part.places.shape == (0,)
    assert batch.part.places.dtype == torch.int64


def test_a_tokenizer_without_an_unknown_token_says_so():
    engine = Engine(models.WordLevel({"a": 0}, unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer()
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(RamifyError, match=r"no token for the word .* of 1 character, and none for unknown words"):
        pieces_of(Tokenizer(engine), ["a \ufffd"])

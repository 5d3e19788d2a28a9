"""Texts and pairs as rows: every token once and in its place, in every layout, whatever is too long."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import tokenizer
from ramify.batching.encoder_input import EncoderInput, Texts
from ramify.errors import RamifyError
from ramify.nn.ragged import length_key
from ramify.tokenizer import LAYOUTS

TEXTS = st.lists(st.lists(st.integers(5, 60), max_size=30), max_size=7)


def flat(texts: list[list[int]]) -> Texts:
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    return np.array([token for text in texts for token in text], dtype=np.int64), lengths


def check(rows: EncoderInput, texts: list[list[list[int]]], name: str, longest: int | None) -> list[list[list[int]]]:
    """Rows are complete and sorted. The parts of the texts in each row, in the order of the rows."""
    layout = tokenizer().layout(name)
    lengths = rows.rows.host_lengths
    assert (np.diff(length_key(lengths)) >= 0).all()
    assert longest is None or lengths.max(initial=0) <= longest
    held = []
    for place, (source, start) in enumerate(zip(rows.source.tolist(), np.cumsum(lengths) - lengths, strict=True)):
        ids = rows.ids[start : start + lengths[place]].tolist()
        parts = [ids[begin:end] for begin, end in rows.spans[place].tolist()]
        for text, part, offset in zip(texts, parts, rows.offsets[place].tolist(), strict=True):
            assert part == text[source][offset : offset + len(part)]
        expected = layout.wrap(*parts) if len(parts) == 1 else layout.wrap_pair(*parts)
        assert ids == expected.tolist()
        if layout.types is None:
            assert rows.token_types is None
        else:
            types = layout.types_of(*map(len, parts)).tolist()
            assert rows.token_types[start : start + lengths[place]].tolist() == types
        held.append(parts)
    return held


@given(texts=TEXTS, name=st.sampled_from([*LAYOUTS]), longest=st.one_of(st.none(), st.integers(4, 40)))
def test_truncated_texts(texts, name, longest):
    rows = EncoderInput.of_texts(flat(texts), tokenizer().layout(name), longest, long="truncate")
    held = check(rows, [texts], name, longest)
    assert sorted(rows.source.tolist()) == list(range(len(texts)))
    room = 10**9 if longest is None else longest - tokenizer().layout(name).num_special
    for source, (part,) in zip(rows.source.tolist(), held, strict=True):
        assert part == texts[source][:room]


@given(texts=TEXTS, name=st.sampled_from([*LAYOUTS]), longest=st.integers(6, 20), overlap=st.integers(0, 3))
def test_divided_texts(texts, name, longest, overlap):
    """Parts cover their text: each but the first repeats `overlap` tokens, and no text has a row more than it needs."""
    rows = EncoderInput.of_texts(flat(texts), tokenizer().layout(name), longest, long="split", overlap=overlap)
    held = check(rows, [texts], name, longest)
    room = longest - tokenizer().layout(name).num_special
    for number, text in enumerate(texts):
        own = sorted((rows.offsets[row, 0], part) for row, (part,) in enumerate(held) if rows.source[row] == number)
        assert len(own) == max(1, -(-(len(text) - overlap) // (room - overlap))) or len(text) <= room
        assert len(own) == 1 or len(text) > room
        joined = [token for offset, part in own for token in part[overlap if offset else 0 :]]
        assert joined == text


@given(
    texts=st.lists(st.tuples(*[st.lists(st.integers(5, 60), max_size=20)] * 2), max_size=6),
    name=st.sampled_from(["bert", "roberta", "xlnet", "t5", "begin", "plain"]),
    longest=st.integers(8, 50),
)
def test_pairs(texts, name, longest):
    one, other = ([pair[place] for pair in texts] for place in (0, 1))
    layout = tokenizer().layout(name)
    special = layout.num_special + len(layout.separator)
    rows = EncoderInput.of_pairs(flat(one), flat(other), layout, longest, long="truncate")
    for source, parts in zip(rows.source.tolist(), check(rows, [one, other], name, longest), strict=True):
        whole = len(one[source]) + len(other[source])
        assert len(parts[0]) + len(parts[1]) == min(whole, longest - special)
        assert (rows.offsets == 0).all()
    short = [text[: (longest - special) // 2] for text in one]
    if longest - special > 3:
        rows = EncoderInput.of_pairs(flat(short), flat(other), layout, longest, long="split", overlap=1)
        held = check(rows, [short, other], name, longest)
        for number, (first, second) in enumerate(zip(short, other, strict=True)):
            own = sorted((rows.offsets[row, 1], *parts) for row, parts in enumerate(held) if rows.source[row] == number)
            assert all(part == first for _, part, _ in own)
            assert [token for offset, _, part in own for token in part[1 if offset else 0 :]] == second


def test_texts_that_do_not_fit_are_refused():
    layout = tokenizer().layout("bert")
    with pytest.raises(RamifyError, match=r"text 1 has 5 tokens, but its row has room for 4\. Shorten the text, or pass long="):
        EncoderInput.of_texts(flat([[7], [7] * 5]), layout, 6)
    with pytest.raises(RamifyError, match=r"text 0 has 5 tokens, but its row has room for 1"):
        EncoderInput.of_pairs(flat([[7] * 3]), flat([[7] * 5]), layout, 7)
    with pytest.raises(RamifyError, match=r"rows of 2 tokens hold no text, because 2 of them are special tokens"):
        EncoderInput.of_texts(flat([]), layout, 2)
    with pytest.raises(RamifyError, match=r"overlap=4 leaves no room for new tokens in rows that hold 4 tokens of a text"):
        EncoderInput.of_texts(flat([[7] * 9]), layout, 6, long="split", overlap=4)
    with pytest.raises(RamifyError, match=r"overlap=-1 would leave out tokens between rows"):
        EncoderInput.of_texts(flat([[7] * 9]), layout, 6, long="split", overlap=-1)
    with pytest.raises(RamifyError, match=r"overlap=0 leaves no room for new tokens in rows that hold 0 tokens of a text"):
        EncoderInput.of_pairs(flat([[7] * 9]), flat([[7]]), layout, 6, long="split")


def test_moved_rows_keep_their_place_in_the_texts():
    rows = EncoderInput.of_texts(flat([[7, 8], [], [9] * 9]), tokenizer().layout("xlnet"), None)
    moved = rows.to("meta")
    assert {each.device.type for each in (moved.ids, moved.token_types, moved.rows.offsets)} == {"meta"}
    assert moved.source is rows.source
    assert moved.spans is rows.spans

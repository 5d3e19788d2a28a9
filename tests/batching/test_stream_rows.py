"""Rows of running text: every row continues the one before it, and its segments and memory follow loops over the text."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fixtures import tokenizer
from fixtures.streams import running_text
from ramify.batching.samplers import Stream
from ramify.batching.stream_batch import collate_streams
from ramify.batching.views.streams import StreamConfig, StreamInput, Streams
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer


def view_of(text, *, streams=2, backward=True, seed=3, **input):
    settings = StreamInput(**({"row_tokens": 24, "reused_tokens": 10} | input))
    return Streams(text, tokenizer(), settings, StreamConfig(streams, "both" if backward else "forward"), seed=seed)


def random_text(seed=0, sentences=120, longest=7):
    """Every token is its own position. Documents have up to five sentences."""
    random = np.random.default_rng(seed)
    documents = []
    while (left := sentences - sum(documents)) > 0:
        documents.append(min(left, int(random.integers(1, 6))))
    return running_text(random.integers(1, longest + 1, sentences), documents, distinct=True)


@st.composite
def texts(draw):
    sentences = draw(st.lists(st.integers(1, draw(st.sampled_from([3, 9, 40]))), min_size=1, max_size=40))
    documents, left = [], len(sentences)
    while left:
        documents.append(draw(st.integers(1, left)))
        left -= documents[-1]
    return running_text(sentences, documents, distinct=True)


class Reading:
    """The text of a stream in its own direction, as lists: position by position, the token, and whether a sentence begins."""

    def __init__(self, view, stream):
        length, text = view.text.num_tokens // view.config.streams, view.text
        offset = stream % view.config.streams * length
        self.length, self.forward = length, stream < view.config.streams
        self.tokens = list(range(offset, offset + length))
        self.document = np.searchsorted(text.document_ends, self.tokens, side="right").tolist()
        borders = [int(border) - offset for border in text.sentences if offset <= border <= offset + length]
        if not self.forward:
            self.tokens.reverse()
            self.document.reverse()
            borders = [length - border for border in borders]
        # A stream begins and ends a sentence even if it cuts one.
        self.borders = {0, length, *borders}
        self.cuts = set(borders)


def by_hand(reading, reused, start, room, random, avoid_overlap=False):
    """The published rule for A and B after the tokens from `reused` to `start`, token by token: lists of positions, and whether
    B follows A."""
    length = reading.length
    cuts, end = [], start + 1
    while end < length and (end not in reading.cuts or end - start < room):
        cuts += [end] if end in reading.cuts else []
        end += 1
    follows = bool(cuts) and random.random() >= 0.5
    stop = int(random.choice(cuts)) if cuts else end
    if follows:
        first, last = stop, end
    else:
        size = max(1, room - (stop - start))
        if avoid_overlap:
            # The place after A, too, because B would follow A there.
            after = start + room - size
            taken = set(range(reused, after))
            places = (begin for begin in range(length - size + 1) if begin != after)
            free = [begin for begin in places if not taken & set(range(begin, begin + size))]
            first = int(free[random.integers(len(free))])
            last = first + size
        else:
            first = int(random.integers(length - size + 1))
            last = first + size
            while first not in reading.borders:
                first -= 1
            while last not in reading.borders:
                last += 1
    one, other = list(range(start, stop)), list(range(first, last))
    while len(one) + len(other) > room:
        (one if len(one) > len(other) else other).pop()
    return one, other, follows


def draws(view, number, epoch=0):
    return np.random.Generator(np.random.Philox(key=[view.seed, epoch], counter=[0, 0, 0, number]))


def parts_of(row, reused):
    """The reused tokens, A and B of a row, between its separators."""
    first, second, last = np.flatnonzero(row.functional)
    assert (second, last) == (len(row.ids) - 2, len(row.ids) - 1)
    return row.ids[:reused].tolist(), row.ids[reused:first].tolist(), row.ids[first + 1 : second].tolist()


# --- rows ---------------------------------------------------------------------------------------------------------------------


@given(
    text=texts(),
    streams=st.integers(1, 3),
    reused=st.integers(1, 12),
    room=st.integers(2, 14),
    epoch=st.integers(0, 2),
    seed=st.integers(0, 99),
    backward=st.booleans(),
)
@settings(max_examples=60)
def test_segments_follow_the_published_rule(text, streams, reused, room, epoch, seed, backward):
    assume(text.num_tokens // streams >= reused + room + 3)
    view = view_of(text, streams=streams, backward=backward, seed=seed, row_tokens=reused + room + 3, reused_tokens=reused)
    readings = [Reading(view, stream) for stream in range(view.config.num_rows)]
    for number in range(len(view)):
        row, (stream, place) = view.example(number, epoch), divmod(number, view.per_stream)
        reading, start = readings[stream], place * reused
        one, other, follows = by_hand(reading, start, start + reused, room, draws(view, number, epoch))
        here, first, second = parts_of(row, reused)
        assert here == reading.tokens[start : start + reused]
        assert first == [reading.tokens[place] for place in one]
        assert second == [reading.tokens[place] for place in other]
        assert row.is_next == follows
        assert len(first) + len(second) == room
        assert first
        assert second
        assert row.segments.tolist() == [0] * (reused + len(first) + 1) + [1] * (len(second) + 1) + [2]
        sep, cls = tokenizer().sep_id, tokenizer().cls_id
        assert row.ids[row.functional].tolist() == [sep, sep, cls]
        # No token comes from another stream.
        assert set(first + second) <= set(reading.tokens)
        assert row.direction == (1 if reading.forward else -1)


@pytest.mark.parametrize("segments", ["pair", "none"])
def test_rows_continue_exactly(segments):
    """The reused tokens of a stream's rows, one after the other, are its text; backward rows are the reversed text."""
    view = view_of(random_text(), segments=segments)
    assert len(view) == 4 * view.per_stream
    for stream in range(4):
        rows = [view.example(stream * view.per_stream + place) for place in range(view.per_stream)]
        reading = Reading(view, stream)
        reused = np.concatenate([row.ids[:10] for row in rows]).tolist()
        assert reused == reading.tokens[: len(reused)]
        assert len(reading.tokens) - len(reused) < 10 + 24
        for row, following in pairwise(rows):
            if segments == "none":
                assert row.ids[10:].tolist()[:10] == following.ids[:10].tolist()
            else:
                # A begins where the next row begins.
                size = min(10, len(parts_of(row, 10)[1]))
                assert row.ids[10 : 10 + size].tolist() == following.ids[:size].tolist()
        if segments == "none":
            for place, row in enumerate(rows):
                assert row.ids.tolist() == reading.tokens[10 * place : 10 * place + 24]
                assert not row.functional.any()


def test_last_row_is_the_last_that_fits():
    """One token more makes another row."""
    for tokens, rows in ((24, 1), (33, 1), (34, 2), (44, 3)):
        view = view_of(running_text([tokens], [1], distinct=True), streams=1)
        assert (view.per_stream, len(view)) == (rows, 2 * rows)
        assert view.left_out == tokens - 10 * rows


def test_half_of_the_pairs_follow_each_other():
    view = view_of(random_text(sentences=4000, longest=4), streams=1)
    for epoch in range(2):
        found = np.mean([view.example(number, epoch).is_next for number in range(len(view))])
        assert abs(found - 0.5) < 4.5 * 0.5 / np.sqrt(len(view))
    # A sentence that is longer than the room for A and B leaves no place to cut.
    long = view_of(running_text([400], [1], distinct=True), streams=1)
    assert not any(long.example(number).is_next for number in range(len(long)))


@given(seed=st.integers(0, 999))
@settings(max_examples=15)
def test_random_segment_avoids_the_rest_of_the_row(seed):
    view = view_of(random_text(seed, sentences=50, longest=5), streams=1, seed=seed, avoid_overlap=True)
    readings = [Reading(view, stream) for stream in range(2)]
    for number in range(len(view)):
        stream, place = divmod(number, view.per_stream)
        here, one, other = parts_of(view.example(number), 10)
        assert not set(other) & set(here + one)
        assert len(set(here + one + other)) == 21
        expected = by_hand(readings[stream], 10 * place, 10 * place + 10, 11, draws(view, number), avoid_overlap=True)
        assert view.example(number).is_next or other[0] != one[-1] + (1 if stream == 0 else -1)
        assert [one, other] == [[readings[stream].tokens[each] for each in part] for part in expected[:2]]


def test_random_segment_finds_room_in_the_shortest_stream():
    """Also if no sentence ends in the room for A and B, and only separators' places are left beside them."""
    for tokens in range(24, 60):
        view = view_of(running_text([tokens], [1], distinct=True), streams=1, avoid_overlap=True)
        for number in range(len(view)):
            here, one, other = parts_of(view.example(number), 10)
            assert len(set(here + one + other)) == 21


def test_random_segment_may_repeat_the_row_in_the_published_code():
    view = view_of(random_text(sentences=50, longest=5), streams=1)
    rows = [parts_of(view.example(number), 10) for number in range(len(view))]
    assert any(set(other) & set(here + one) for here, one, other in rows)


def test_draws_depend_on_seed_epoch_and_number_alone():
    text = random_text()

    def ids(view, numbers, epoch=0):
        return {number: view.example(number, epoch).ids.tolist() for number in numbers}

    view = view_of(text)
    numbers = range(len(view))
    first = ids(view, numbers)
    assert ids(view_of(text), reversed(numbers)) == first
    assert ids(view, numbers) == first
    for other in (ids(view_of(text, seed=4), numbers), ids(view, numbers, epoch=1)):
        assert sum(other[number] != first[number] for number in numbers) > len(numbers) / 2
        assert all(other[number][:10] == first[number][:10] for number in numbers)


# --- memory -------------------------------------------------------------------------------------------------------------------


@given(
    text=texts(),
    streams=st.integers(1, 2),
    reused=st.integers(1, 9),
    tail=st.integers(0, 8),
    segments=st.sampled_from(["pair", "none"]),
)
@settings(max_examples=60)
def test_memory_ends_at_the_border_of_a_document(text, streams, reused, tail, segments):
    """Along a stream, a row may read as many tokens before it as belong to the document in which it begins."""
    tail += 5 if segments == "pair" else 0
    assume(text.num_tokens // streams >= reused + tail)
    view = view_of(text, streams=streams, row_tokens=reused + tail, reused_tokens=reused, segments=segments)
    for stream in range(2 * streams):
        document, valid = Reading(view, stream).document, 0
        for place in range(view.per_stream):
            row, start = view.example(stream * view.per_stream + place), place * reused
            assert row.begins == (place == 0)
            assert 0 <= row.kept <= reused
            before = start
            while before > 0 and document[before - 1] == document[start]:
                before -= 1
            assert valid == start - before
            valid = row.kept + (valid if row.continues else 0)
            assert row.kept == reused or not row.continues


def test_memory_that_is_never_reset():
    view = view_of(random_text(), memory_reset="never")
    for number in range(len(view)):
        row = view.example(number)
        assert (row.begins, row.kept, row.continues) == (False, 10, True)


# --- batches ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_every_rank_reads_its_own_rows(world_size):
    """Side by side, every step continues the step before it, and an epoch reads every row once."""
    view, seen = view_of(random_text()), []
    for rank in range(world_size):
        sampler = Stream(len(view), view.config.num_rows, world_size=world_size, rank=rank)
        steps = sampler.own_steps(0)
        seen += np.concatenate(steps).tolist()
        batches = [collate_streams([view.example(int(number)) for number in step], view.input) for step in steps]
        assert len(batches) == view.per_stream
        assert batches[0].begins.all()
        assert not any(batch.begins.any() for batch in batches[1:])
        for before, after in pairwise(batches):
            step = after.host_ids[:, 0] - before.host_ids[:, 9]
            assert step.tolist() == before.direction.tolist()
    assert sorted(seen) == list(range(len(view)))


def test_batch_holds_its_rows():
    view = view_of(random_text())
    numbers = [0, 3 * view.per_stream + 2, view.per_stream]
    rows = [view.example(number) for number in numbers]
    batch = collate_streams(rows, view.input)
    assert batch.input_ids.dtype == torch.int64
    for name in ("ids", "segments", "functional", "direction", "begins", "kept", "continues", "is_next"):
        found = getattr(batch, {"ids": "input_ids"}.get(name, name))
        assert np.array_equal(np.asarray(found), np.stack([getattr(row, name) for row in rows])), name
    assert np.array_equal(batch.host_ids, batch.input_ids.numpy())
    assert batch.direction.tolist() == [1, -1, 1]
    assert (batch.reused, batch.num_targets, batch.num_target_tokens) == (10, 3, 72)
    plain = view_of(random_text(), segments="none")
    batch = collate_streams([plain.example(0)], plain.input)
    assert batch.segments is None
    assert batch.is_next is None
    with pytest.raises(ValueError, match="at least one row"):
        collate_streams([], view.input)


def test_forward_rows_alone():
    view = view_of(random_text(), backward=False)
    assert len(view) == 2 * view.per_stream
    assert all(view.example(number).direction == 1 for number in range(len(view)))


# --- refusals -----------------------------------------------------------------------------------------------------------------


def test_text_that_is_too_short_is_refused():
    with pytest.raises(RamifyError, match=r"47 tokens, too few for view\.streams=2 with rows"):
        view_of(running_text([47], [1]))
    assert len(view_of(running_text([48], [1]))) == 4


@pytest.mark.parametrize(
    ("input", "message"),
    [
        ({"row_tokens": 14, "reused_tokens": 10}, "Set input.row_tokens to at least 15"),
        ({"row_tokens": 9, "reused_tokens": 10, "segments": "none"}, "Set input.row_tokens to at least 10"),
        ({"reused_tokens": 0}, r"at least 1"),
        pytest.param({"memory_reset": "always"}, "input.memory_reset", marks=pytest.mark.ill_typed),
    ],
    ids=str,
)
def test_impossible_rows_are_refused(input, message):
    with pytest.raises(RamifyError, match=message):
        StreamInput(**input)


def test_no_streams_are_refused():
    with pytest.raises(RamifyError, match=r"view\.streams must be at least 1"):
        StreamConfig(streams=0)


def test_segments_need_separators():
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    bare = Tokenizer(Engine(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")))
    text = running_text([60], [1])
    with pytest.raises(RamifyError, match="rows with two segments"):
        Streams(text, bare, StreamInput(24, 10), StreamConfig(1), seed=0)
    assert len(Streams(text, bare, StreamInput(24, 10, segments="none"), StreamConfig(1), seed=0)) == 8

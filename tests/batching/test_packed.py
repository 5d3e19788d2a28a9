"""Rows of running text against brute force: BERT's sentence pairs, and rows of full sentences."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import tokenizer
from ramify.batching.row_batch import RowCollator
from ramify.batching.running_text import RunningText
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.packed import (
    NEXT,
    RANDOM,
    FullSentences,
    NothingToPairError,
    PackConfig,
    PairConfig,
    SentencePairs,
)
from ramify.errors import RamifyError

TOKENIZER = tokenizer()
CLS, SEP = TOKENIZER.cls_id, TOKENIZER.sep_id


def text_of(documents):
    """Documents as lists of sentence lengths. Token i of the text is i, so every token can be recognised."""
    lengths = [length for document in documents for length in document]
    borders = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype(np.int64)
    return RunningText(np.arange(borders[-1], dtype=np.uint32), borders, ends, ends)


def random_text(seed, documents=12, longest=30):
    random = np.random.default_rng(seed)
    return text_of([random.integers(1, longest, random.integers(1, 12)).tolist() for _ in range(documents)])


TEXTS = st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=6), min_size=1, max_size=6)


# --- sentence pairs -----------------------------------------------------------------------------------------------------------


def create_pretraining_data(text, room, config, random):
    """BERT's create_instances_from_document, on lists of tokens and segment by segment, with the same draws."""
    sentences = [text.ids[start:stop].tolist() for start, stop in pairwise(text.sentences)]
    documents = [sentences[start:stop] for start, stop in pairwise(text.documents)]
    found = []
    for number, document in enumerate(documents):
        target = room
        if random.random() < config.short_seq_prob:
            target = int(random.integers(2, room + 1))
        chunk, place = [], 0
        while place < len(document):
            chunk.append(document[place])
            if place == len(document) - 1 or sum(map(len, chunk)) >= target:
                end = int(random.integers(1, len(chunk))) if len(chunk) >= 2 else 1
                first = joined(chunk[:end])
                label, second = NEXT, joined(chunk[end:])
                ordered = config.second == "order"
                if len(chunk) == 1 or (not ordered and random.random() < config.random_next):
                    label, second = RANDOM, []
                    others = [n for n in range(len(documents)) if n != number]
                    other = documents[others[int(random.integers(len(others)))]]
                    borders = np.cumsum([0, *(len(each) for each in documents)])
                    index = next(n for n, each in enumerate(documents) if each is other)
                    start = int(random.integers(borders[index], borders[index + 1])) - int(borders[index])
                    for segment in other[start:]:
                        second = second + segment
                        if len(second) >= target - len(first):
                            break
                    place -= len(chunk) - end
                elif ordered and random.random() < config.random_next:
                    label, first, second = RANDOM, second, first
                found.append((*truncate(first, second, room, random), label))
                chunk = []
            place += 1
    return found


def joined(segments):
    return [token for segment in segments for token in segment]


def truncate(first, second, room, random):
    """Remove tokens of the longer segment one by one. The number at the front is drawn at once for each segment."""
    excess = {0: 0, 1: 0}
    sizes = [len(first), len(second)]
    while sum(sizes) > room:
        longer = 0 if sizes[0] > sizes[1] else 1
        sizes[longer] -= 1
        excess[longer] += 1
    kept = []
    for segment, number in ((first, excess[0]), (second, excess[1])):
        front = int(random.binomial(number, 0.5)) if number else 0
        kept.append(segment[front : len(segment) - (number - front)])
    return kept


def pairs_of(view, epoch=0):
    """The rows of a view as (first segment, second segment, label)."""
    found = []
    for number in range(len(view.lengths(epoch))):
        row = view.example(number, epoch)
        assert len(row.ids) == view.lengths(epoch)[number]
        inside = np.flatnonzero(row.special)
        assert [row.ids[place] for place in inside] == [CLS, SEP, SEP]
        assert (inside[0], inside[-1]) == (0, len(row.ids) - 1)
        assert row.token_type_ids.tolist() == [0] * (inside[1] + 1) + [1] * (len(row.ids) - inside[1] - 1)
        found.append((row.ids[1 : inside[1]].tolist(), row.ids[inside[1] + 1 : -1].tolist(), row.pair_label))
    return found


@pytest.mark.parametrize("second", ["random", "order"])
@pytest.mark.parametrize("seed", range(8))
def test_pairs_equal_the_published_construction(seed, second):
    """Those of BERT, and of ALBERT, whose second segments change places with the first."""
    text, config = random_text(seed), PairConfig(short_seq_prob=0.3, second=second)
    for max_tokens in (8, 20, 64):
        view = SentencePairs(text, TOKENIZER, max_tokens, config, seed=seed)
        for epoch in (0, 1, 3):
            draws = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch))))
            expected = create_pretraining_data(text, max_tokens - 3, config, draws)
            assert pairs_of(view, epoch) == [(first, second, label) for first, second, label in expected]


def test_sentence_order_moves_segments_and_draws_none():
    text = text_of([[4] * 40, [4] * 40])
    view = SentencePairs(text, TOKENIZER, 23, PairConfig(short_seq_prob=0.0, second="order"), seed=1)
    pairs = pairs_of(view, 0)
    for first, second, label in pairs:
        ahead, behind = (second, first) if label == RANDOM else (first, second)
        assert [*ahead, *behind] == list(range(ahead[0], behind[-1] + 1))
    facts = view.facts()
    assert (facts["swapped"], facts["random_next"], facts["tokens_drawn"]) == (sum(label for *_, label in pairs), 0, 0)
    assert facts["tokens_used"] + facts["tokens_cut"] == facts["tokens"]
    assert 0 < facts["swapped"] < len(pairs)
    assert "swapped" not in SentencePairs(text, TOKENIZER, 23, seed=1).facts()


@given(TEXTS, st.integers(5, 40), st.integers(0, 5))
@settings(max_examples=60)
def test_pairs_lose_nothing_but_what_is_counted(documents, max_tokens, epoch):
    text = text_of(documents)
    if len(text.sentences) < 3:
        with pytest.raises(NothingToPairError, match="a single sentence"):
            SentencePairs(text, TOKENIZER, max_tokens)
        return
    view = SentencePairs(text, TOKENIZER, max_tokens, seed=1)
    own = []
    for first, second, label in pairs_of(view, epoch):
        assert 2 <= len(first) + len(second) <= max_tokens - 3
        assert first == list(range(first[0], first[0] + len(first)))
        assert second == list(range(second[0], second[0] + len(second)))
        document = [int(np.searchsorted(text.document_ends, each[0], side="right")) for each in (first, second)]
        if label == NEXT:
            assert document[0] == document[1]
            assert second[0] > first[-1]
        elif len(documents) > 1:
            assert document[0] != document[1]
        own += first + (second if label == NEXT else [])
    # Every token stands at most once in its own order; truncation removes the rest.
    assert len(own) == len(set(own))
    assert own == sorted(own)
    assert len(own) + view.drawn(epoch).cut == text.num_tokens
    facts = view.facts()
    assert facts["tokens_used"] + facts["tokens_cut"] == facts["tokens"] == text.num_tokens


def test_half_of_the_second_segments_are_random():
    text = text_of([[5] * 12] * 900)
    view = SentencePairs(text, TOKENIZER, 28, PairConfig(short_seq_prob=0.0), seed=0)
    random = [label == RANDOM for _, _, label in pairs_of(view)]
    # A last chunk of one sentence is always random.
    several = view.drawn(0)
    assert len(random) > 2000
    assert 0.5 <= np.mean(random) < 0.75
    forced = [label == RANDOM for first, _, label in pairs_of(view) if len(first) < 25]
    assert 0.45 < np.mean(forced) < 0.6
    assert several.cut < text.num_tokens * 0.2
    never = SentencePairs(text, TOKENIZER, 28, PairConfig(random_next=0.0, short_seq_prob=0.0), seed=0)
    assert sum(label == RANDOM for _, _, label in pairs_of(never)) < len(never) * 0.1


def test_passes_are_drawn_anew_and_then_repeated():
    text = random_text(3)
    view = SentencePairs(text, TOKENIZER, 32, PairConfig(dupe_factor=3), seed=5)
    passes = [pairs_of(view, epoch) for epoch in range(5)]
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert passes[3:] == passes[:2]
    again = SentencePairs(text, TOKENIZER, 32, PairConfig(dupe_factor=3), seed=5)
    assert pairs_of(again, 1) == passes[1]
    assert pairs_of(SentencePairs(text, TOKENIZER, 32, seed=6)) != passes[0]


def test_a_single_document_is_paired_with_other_places_in_it():
    text = text_of([[4] * 30])
    view = SentencePairs(text, TOKENIZER, 23, PairConfig(short_seq_prob=0.0), seed=2)
    rows = pairs_of(view)
    assert {label for _, _, label in rows} == {NEXT, RANDOM}
    for first, second, label in rows:
        if label == RANDOM:
            assert not set(first) & set(second)
    # A chunk that is the whole text has no other place: its second segment follows.
    assert [label for *_, label in pairs_of(SentencePairs(text_of([[4, 4]]), TOKENIZER, 40))] == [NEXT]


@pytest.mark.parametrize("first", range(1, 14))
@pytest.mark.parametrize("second", range(1, 14))
def test_truncation_takes_from_the_longer_segment(first, second):
    view = SentencePairs(
        text_of([[first, second], [1]]), TOKENIZER, 12, PairConfig(short_seq_prob=0.0, random_next=0.0), seed=first
    )
    one, two, _ = pairs_of(view)[0]
    assert [one, two] == truncate(*_segments(first, second), 9, _Draws(one, two, first, second))


def _segments(first, second):
    # A first sentence that fills the chunk gets a random second segment.
    return list(range(first)), (list(range(first, first + second)) if first < 9 else [first + second])


class _Draws:
    """Answers with the numbers of tokens that the view has removed at the front."""

    def __init__(self, one, two, first, second):
        self.fronts = [one[0]] if len(one) < first else []
        self.fronts += [two[0] - first] if first < 9 and len(two) < second else []

    def binomial(self, number, probability):
        front = self.fronts.pop(0)
        assert 0 <= front <= number
        return front


# --- rows of full sentences ---------------------------------------------------------------------------------------------------


def packed(text, room, cross):
    """Rows of full sentences by a plain loop: tokens, with None for a separator between documents."""
    rows, row = [], []
    for first, stop in pairwise(text.documents.tolist()):
        new_document = True
        for sentence in range(first, stop):
            tokens = text.ids[text.sentences[sentence] : text.sentences[sentence + 1]].tolist()
            for start in range(0, len(tokens), room):
                piece = tokens[start : start + room]
                between = [None] if row and new_document else []
                if row and (len(row) + len(between) + len(piece) > room or (new_document and not cross)):
                    rows.append(row)
                    row, between = [], []
                row = row + between + piece
                new_document = False
    return [*rows, row]


@given(TEXTS, st.integers(3, 40), st.booleans())
@settings(max_examples=150)
def test_packing_equals_a_plain_loop(documents, max_tokens, cross):
    text = text_of(documents)
    view = FullSentences(text, TOKENIZER, max_tokens, PackConfig(cross_documents=cross))
    expected = packed(text, max_tokens - 2, cross)
    assert len(view) == len(expected)
    tokens = []
    for number, row in enumerate(expected):
        found = view.example(number)
        assert found.ids.tolist() == [CLS, *(SEP if token is None else token for token in row), SEP]
        assert found.special.tolist() == [True, *(token is None for token in row), True]
        assert found.pair_label is None
        assert len(found.ids) == view.costs[number] <= max_tokens
        tokens += found.ids[~found.special].tolist()
    # Every token of the text once, in order.
    assert tokens == list(range(text.num_tokens))
    facts = view.facts()
    assert facts["tokens_used"] == facts["tokens"] == text.num_tokens
    assert facts["sentences_cut"] == sum(length > max_tokens - 2 for each in documents for length in each)


# --- batches and samplers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [True, False])
def test_batch_of_rows(pairs):
    text = random_text(1, longest=9)
    text = RunningText(text.ids % 40 + 8, text.sentences, text.paragraphs, text.documents)
    view = SentencePairs(text, TOKENIZER, 24) if pairs else FullSentences(text, TOKENIZER, 24)
    rows = [view.example(number) for number in range(len(view))]
    batch = RowCollator(TOKENIZER.layout("bert").frame, pairs)(rows)
    assert batch.num_targets == len(rows)
    assert batch.num_target_tokens == int(view.costs.sum())
    assert len(batch.nodes) == batch.context.numel() == 0
    start = 0
    for place, number in enumerate(batch.source.tolist()):
        row, length = rows[number], int(batch.targets.host_lengths[place])
        own = slice(start, start + length)
        start += length
        assert batch.target_ids[own].tolist() == row.ids.tolist()
        assert batch.maskable[own].tolist() == (~row.special).tolist()
        assert batch.token_type_ids[own].tolist() == row.token_type_ids.tolist()
        assert batch.num_maskable[place] == int((~row.special).sum())
        assert batch.own_tokens[place] == length
        if pairs:
            assert batch.pair_labels[place] == row.pair_label
    assert (batch.pair_labels is None) == (not pairs)
    empty = RowCollator(TOKENIZER.layout("bert").frame, pairs)([])
    assert (empty.num_targets, empty.num_target_tokens) == (0, 0)


def test_sampler_reads_every_row_of_every_epoch():
    view = SentencePairs(random_text(4), TOKENIZER, 24, seed=3)
    ranks = [TokenBudget(view.lengths, 200, seed=1, world_size=2, rank=rank) for rank in (0, 1)]
    for epoch in (0, 1, 2):
        seen = np.concatenate([step for rank in ranks for step in rank.own_steps(epoch)])
        assert sorted(seen.tolist()) == list(range(len(view.lengths(epoch))))
    assert len({len(view.lengths(epoch)) for epoch in range(6)}) > 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PairConfig(short_seq_prob=1.5), r"pairs\.short_seq_prob is a probability"),
        (lambda: PairConfig(dupe_factor=0), r"pairs\.dupe_factor must be at least 1"),
        (lambda: SentencePairs(random_text(0), TOKENIZER, 4), r"input\.max_tokens=4 is too short for two segments"),
        (lambda: FullSentences(random_text(0), TOKENIZER, 2), r"input\.max_tokens=2 leaves no room"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(RamifyError, match=message):
        make()

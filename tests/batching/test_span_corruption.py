"""T5's span corruption: counts, random divisions, sources and targets; and the view that corrupts running text."""

from itertools import pairwise

import numpy as np
import pytest

from fixtures import built, discussions
from ramify.batching.views.pairs import CorruptedText, PairInput, generative_view
from ramify.batching.views.span_corruption import SpanCounts, corrupted, divided, longest_text
from ramify.errors import RamifyError
from ramify.runs.tokenizers import TokenizerConfig, train_tokenizer


def drawn(seed=0):
    return np.random.default_rng(seed)


def test_a_case_by_hand():
    """Figure 2 of the paper: "Thank you for inviting me to your party last week." """
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    numbers = np.arange(len(words))
    names = {**dict(enumerate(words)), 97: "<X>", 98: "<Y>", 99: "<Z>"}
    kept, noise = np.array([2, 4]), np.array([2, 1])
    source, target = corrupted(numbers[:9], kept, noise, [97, 98, 99])
    assert [names[token] for token in source] == ["Thank", "you", "<X>", "me", "to", "your", "party", "<Y>"]
    assert [names[token] for token in target] == ["<X>", "for", "inviting", "<Y>", "last", "<Z>"]


def published_counts(length, rate, mean):
    """Those of `random_spans_noise_mask` in google-research/text-to-text-transfer-transformer."""
    noise = min(max(round(length * rate), 1), length - 1)
    return noise, max(round(noise / mean), 1)


@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.15, 1.0), (0.5, 3.0), (0.3, 10.0)])
def test_counts_are_those_of_the_published_code(rate, mean):
    length = np.arange(2, 700)
    counts = SpanCounts.of(length, rate, mean)
    expected = np.array([published_counts(int(number), rate, mean) for number in length])
    assert np.array_equal(counts.noise, expected[:, 0])
    assert np.array_equal(counts.spans, np.minimum(expected[:, 1], length - counts.noise))
    assert counts.noise[-1] / length[-1] == pytest.approx(rate, abs=1e-3)
    assert counts.noise[-1] / counts.spans[-1] == pytest.approx(mean, rel=0.05)


def test_published_length_of_a_row():
    """Rows of 512 tokens have 568 before corruption. The published targets of 114 lack the last sentinel."""
    assert longest_text(0.15, 3.0, 512, 115) == 568
    counts = SpanCounts.of(np.array([568]), 0.15, 3.0)
    assert (counts.source[0] + 1, counts.target[0] + 1) == (512, 115)
    assert longest_text(0.15, 3.0, 512, 3) == 1


def test_all_divisions_are_equally_likely():
    random = drawn()
    found = [tuple(divided(5, 3, random).tolist()) for _ in range(6000)]
    counts = {division: found.count(division) for division in set(found)}
    assert set(counts) == {(1, 1, 3), (1, 3, 1), (3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert all(abs(count - 1000) < 4 * np.sqrt(6000 * 1 / 6 * 5 / 6) for count in counts.values())


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(discussions(30, 12), tmp_path_factory.mktemp("data"), (0.8, 0.1, 0.1))


@pytest.fixture(scope="module")
def tokenizer(store):
    return train_tokenizer(store, TokenizerConfig(vocab_size=200), sentinels=100)


def view(store, tokenizer, seed=0, **input):
    made = generative_view(store, tokenizer, "train", PairInput(source="corrupted", **input), sources=True, seed=seed)
    assert isinstance(made, CorruptedText)
    return made


def restored(pair, sentinels):
    """The text of a source and its target."""
    marks = np.flatnonzero(np.isin(pair.target, sentinels))
    spans = {int(pair.target[start]): pair.target[start + 1 : stop] for start, stop in pairwise(marks)}
    assert [*spans, pair.target[-1]] == sentinels[: len(spans) + 1]
    return np.concatenate([spans.get(token, [token]) for token in pair.source.tolist()])


def test_sources_and_targets_hold_the_text_between_them(store, tokenizer):
    rows = view(store, tokenizer, max_source_tokens=40, max_tokens=30)
    rates = []
    for number in range(len(rows)):
        pair = rows.example(number, epoch=3)
        start, stop = int(rows._start[number]), int(rows._stop[number])
        assert restored(pair, tokenizer.sentinels).tolist() == rows.text.ids[start:stop].tolist()
        assert pair.num_predicted == rows.target_tokens[number] <= 30
        assert len(pair.source) + 1 + pair.num_predicted == rows.costs[number]
        assert len(pair.source) < 40
        spans = int(np.isin(pair.source, tokenizer.sentinels).sum())
        rates.append((len(pair.target) - spans - 1, spans, stop - start))
    noise, spans, length = np.sum([rate for rate in rates if rate[2] >= 30], axis=0)
    assert noise / length == pytest.approx(0.15, abs=0.01)
    assert noise / spans == pytest.approx(3, rel=0.15)


def test_spans_follow_from_seed_epoch_and_row(store, tokenizer):
    one, same, other = (view(store, tokenizer, seed) for seed in (1, 1, 2))
    sources = [[one.example(number, epoch).source.tolist() for number in range(len(one))] for epoch in (0, 1)]
    # In any order.
    assert [same.example(number).source.tolist() for number in reversed(range(len(one)))] == sources[0][::-1]
    assert sources[0] != sources[1]
    assert other.example(0).source.tolist() != sources[0][0]


def test_what_cannot_be_corrupted_is_refused(store, tokenizer):
    few = train_tokenizer(store, TokenizerConfig(vocab_size=200), sentinels=2)
    for source, input, words, message in (
        (
            True,
            {},
            few,
            r"input\.source=corrupted with input\.max_source_tokens=128 needs \d sentinels \(<extra_id_0>, .* has 2\.",
        ),
        (True, {"max_tokens": 3}, tokenizer, r"input\.max_tokens=3 leaves no room .* at least 4\."),
        (False, {}, tokenizer, r"input\.source=corrupted needs a model that reads a source"),
    ):
        with pytest.raises(RamifyError, match=message):
            generative_view(store, words, "train", PairInput(source="corrupted", **input), sources=source)
    for input, message in (
        ({"noise_rate": 1.0}, "input.noise_rate must be above 0 and"),
        ({"mean_span": 0.5}, "input.mean_span"),
    ):
        with pytest.raises(RamifyError, match=message):
            PairInput(**input)


def test_sentinels_are_read_where_they_are_asked_for(tokenizer):
    first, second = tokenizer.sentinels[:2]
    assert len(tokenizer.sentinels) == 100
    around = tokenizer.encode("ba"), tokenizer.encode("be")
    assert tokenizer.encode_sentinels("ba <extra_id_0> be<extra_id_1>") == [*around[0], first, *around[1], second]
    assert first not in tokenizer.encode("ba <extra_id_0> be")
    assert tokenizer.encode_sentinels("ba be ") == tokenizer.encode("ba be ")

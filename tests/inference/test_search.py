"""Greedy decoding, sampling and beam search on small decoders that know no attention: a table of pairs and a GRU."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import bare_rows, tokenizer
from fixtures.decoders import Gru, GruConfig, NextToken, NextTokenConfig, States
from fixtures.parallel import SEQ2SEQ, TRANSFORMER
from fixtures.running import WHOLE_ROWS
from ramify import RamifyError
from ramify.inference.search import (
    GREEDY,
    Beam,
    Limits,
    Sampling,
    beam_search,
    best_continuations,
    collect,
    sample,
)
from ramify.nn.cache import KeyValueCache
from ramify.tasks.base import Decodes

VOCAB, STOP = 5, 4
FREE = Limits()


class Pairs(Decodes):
    """The scores of a token, given the token before it."""

    def __init__(self, scores):
        self.scores = torch.as_tensor(scores, dtype=torch.float64)
        """[token before, token]; the last line is that of an empty text."""

    def start(self, prompts, *, source=None):
        assert source is None
        ends = [int(ids[-1]) if len(ids) else len(self.scores) - 1 for ids in prompts.ids.split(prompts.rows.lengths.tolist())]
        last = torch.tensor(ends, dtype=torch.int64)
        return self.scores[last], States(last, prompts.rows.lengths)

    def step(self, ids, cache):
        return self.scores[ids], States(ids, cache.lengths + 1)


@pytest.fixture(scope="module")
def recurrent():
    torch.manual_seed(0)
    backbone = Gru(GruConfig(vocab_size=VOCAB, dim=6))
    model = NextToken(backbone, tokenizer(), WHOLE_ROWS, NextTokenConfig(tie_weights=False)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=1.5)
    return model


PROMPTS = [[0, 1, 2], [], [3], [2, 2, 1, 0, 1, 3, 2, 1, 0, 2]]


def sampled(decoder, prompts, sampling=GREEDY, limits=FREE, maximums=None, seeds=None):
    maximums = maximums or [12] * len(prompts)
    seeds = seeds or range(len(prompts))
    return collect(sample(decoder, bare_rows(prompts), sampling, limits, maximums=maximums, seeds=seeds), len(prompts))


def every_continuation(decoder, prompt, limits, beam, maximum):
    """All continuations of a prompt with their scores, best first, each with the likeliest of its stop tokens."""
    found, table = {}, decoder.scores.log_softmax(1).tolist()
    for length in range(1, maximum + 1):
        for ids in product(range(VOCAB), repeat=length):
            stopped = ids[-1] in limits.stop
            never = set(limits.forbidden) & set(ids) or set(limits.stop) & set(ids[:-1])
            if never or (stopped and length <= limits.min_tokens) or not (stopped or length == maximum):
                continue
            last = prompt[-1] if prompt else VOCAB
            total = sum(table[before][token] for before, token in zip([last, *ids], ids, strict=False))
            one = (beam.score(total, length), ids[: length - stopped], total, stopped)
            found[one[1]] = max(found.get(one[1], one), one)
    return sorted(found.values(), key=lambda each: (-each[0], each[1]))


# --- beam search ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    n_best=st.integers(1, 20),
    penalty=st.sampled_from([0.0, 0.6, 2.0]),
    limits=st.sampled_from([Limits(), Limits((STOP,)), Limits((STOP, 0), (1,)), Limits((STOP,), (), 2)]),
    tied=st.booleans(),
)
@torch.no_grad()
def test_beam_that_covers_everything_finds_the_best(seed, n_best, penalty, limits, tied):
    """Also where many continuations are equally likely: their tokens order them."""
    random = np.random.default_rng(seed)
    scores = random.normal(scale=2, size=(VOCAB + 1, VOCAB))
    decoder = Pairs(scores.round() if tied else scores)
    beam = Beam(VOCAB**3, n_best, penalty)
    prompts, maximums = [[1], [], [0, 2]], [3, max(1, limits.min_tokens), 2]
    found = beam_search(decoder, bare_rows(prompts), beam, limits, maximums=maximums)
    for prompt, maximum, hypotheses in zip(prompts, maximums, found, strict=True):
        every = every_continuation(decoder, prompt, limits, beam, maximum)
        expected = every[:n_best]
        # The same pairs in another order have the same probability, up to rounding.
        is_unique = not tied and (-np.diff([each[0] for each in every[: n_best + 1]])).min(initial=1.0) > 1e-9
        np.testing.assert_allclose([each.score for each in hypotheses], [each[0] for each in expected], rtol=0, atol=1e-12)
        if is_unique:
            assert [(each.ids, each.stopped) for each in hypotheses] == [(each[1], each[3]) for each in expected]
            np.testing.assert_allclose([each.log_probability for each in hypotheses], [each[2] for each in expected])


def test_stop_tokens_behind_the_same_text_are_one():
    """Three stop tokens are the likeliest first ones. The likeliest of them gives the score, and the others take no place."""
    scores = np.zeros((6, 5))
    scores[:5, :2] = -9.0
    scores[5] = [0.0, -1.0, 3.0, 4.0, 3.0]
    limits, shares = Limits((2, 3, 4)), torch.tensor(scores).log_softmax(1)
    best = beam_search(Pairs(scores), bare_rows([[]]), Beam(3, 3, 0.0), limits, maximums=[2])[0]
    assert [each.ids for each in best] == [(), (0,), (1,)]
    expected = [shares[5, 3], shares[5, 0] + shares[0, 2], shares[5, 1] + shares[1, 2]]
    np.testing.assert_allclose([each.score for each in best], expected, rtol=0, atol=1e-12)


def test_beam_of_one_is_greedy(recurrent):
    for limits in (Limits(), Limits((STOP,)), Limits((), (0, 1))):
        found = beam_search(recurrent, bare_rows(PROMPTS), Beam(1), limits, maximums=[9] * 4)
        assert [[*best.ids] for (best,) in found] == sampled(recurrent, PROMPTS, limits=limits, maximums=[9] * 4)


def test_hypotheses_do_not_depend_on_the_batch(recurrent):
    limits, maximums = Limits((STOP,)), [4, 7, 9, 2]
    wide = beam_search(recurrent, bare_rows(PROMPTS), Beam(4, 3), limits, maximums=maximums)
    for prompt, maximum, together in zip(PROMPTS, maximums, wide, strict=True):
        (alone,) = beam_search(recurrent, bare_rows([prompt]), Beam(4, 3), limits, maximums=[maximum])
        assert [each.ids for each in alone] == [each.ids for each in together]
        assert all(len(each.ids) <= maximum for each in together)


def test_equally_likely_continuations_have_an_order():
    hypotheses = beam_search(Pairs(np.zeros((6, 5))), bare_rows([[0]]), Beam(3, 3), Limits(), maximums=[1])[0]
    assert [each.ids for each in hypotheses] == [(0,), (1,), (2,)]
    totals = torch.zeros(3, 1000)
    assert best_continuations(totals, 4) == [(0.0, 0, choice) for choice in range(4)]
    totals[1, 7] = totals[2, 3] = 1.0
    assert best_continuations(totals, 3) == [(1.0, 1, 7), (1.0, 2, 3), (0.0, 0, 0)]
    assert best_continuations(torch.tensor([[-math.inf, 0.0]]), 2) == [(0.0, 0, 1)]


def test_length_penalty_prefers_longer_texts():
    """A stop now is likelier than two tokens and a stop, and its score falls behind as the penalty grows."""
    chain = np.log(np.full((6, 5), 1e-9))
    chain[0, [STOP, 1]] = np.log([0.4, 0.6])
    chain[1, [2, 3]] = chain[2, [STOP, 3]] = np.log([0.8, 0.2])
    best = {
        penalty: beam_search(Pairs(chain), bare_rows([[0]]), Beam(4, 1, penalty), Limits((STOP,)), maximums=[9])[0][0]
        for penalty in (0.0, 2.0)
    }
    assert best[0.0].ids == ()
    assert best[2.0].ids == (1, 2)
    assert best[0.0].score == best[0.0].log_probability == pytest.approx(math.log(0.4))
    assert best[2.0].score == pytest.approx(math.log(0.6 * 0.8 * 0.8) / (8 / 6) ** 2)


# --- greedy decoding and sampling ----------------------------------------------------------------------------------------


@torch.no_grad()
def test_greedy_takes_the_likeliest(recurrent):
    found = sampled(recurrent, PROMPTS)
    for prompt, ids in zip(PROMPTS, found, strict=True):
        for place, token in enumerate(ids):
            scores, _ = recurrent.start(bare_rows([prompt + ids[:place]]))
            assert token == int(scores.argmax())
    assert sampled(Pairs(np.zeros((6, 5))), [[1]], maximums=[3]) == [[0, 0, 0]]


def test_draws_depend_on_seed_and_step_alone(recurrent):
    """In any batch, in any order, and after others have ended."""
    sampling, limits = Sampling(1.3, top_p=0.95), Limits((STOP,))
    seeds, maximums = [5, 6, 2**63 - 1, 5], [12, 3, 20, 7]
    together = sampled(recurrent, PROMPTS, sampling, limits, maximums, seeds)
    assert len({len(ids) for ids in together}) > 1
    for number in range(4):
        chosen = [[each[number]] for each in (PROMPTS, maximums, seeds)]
        assert sampled(recurrent, chosen[0], sampling, limits, *chosen[1:]) == [together[number]]
    turned = sampled(recurrent, PROMPTS[::-1], sampling, limits, maximums[::-1], seeds[::-1])
    assert turned[::-1] == together
    # A shorter maximum cuts the same text.
    assert sampled(recurrent, PROMPTS, sampling, limits, [2] * 4, seeds) == [ids[:2] for ids in together]
    assert sampled(recurrent, [[0]] * 9, Sampling(), seeds=range(9)) != sampled(recurrent, [[0]] * 9, Sampling(), seeds=[0] * 9)


@pytest.mark.parametrize(
    ("sampling", "shares"),
    [
        (Sampling(), [0.4, 0.3, 0.2, 0.1]),
        (Sampling(0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        (Sampling(top_k=2), [4 / 7, 3 / 7, 0, 0]),
        (Sampling(top_p=0.7), [4 / 7, 3 / 7, 0, 0]),
        (Sampling(top_p=0.71), [4 / 9, 3 / 9, 2 / 9, 0]),
        (Sampling(top_p=1e-9), [1, 0, 0, 0]),
        (Sampling(top_k=3, top_p=0.5), [4 / 7, 3 / 7, 0, 0]),
        (Sampling(0.0, top_k=3), [1, 0, 0, 0]),
        (Sampling(1e-300), [1, 0, 0, 0]),
    ],
)
def test_tokens_are_drawn_by_their_probabilities(sampling, shares):
    """The places of the likeliest tokens in the vocabulary do not matter."""
    count, places = 40_000, [2, 4, 0, 3]
    scores = torch.full((5,), -math.inf)
    scores[places] = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    drawn = sampling.choose(scores.expand(count, -1), torch.arange(count), 3)
    frequencies = torch.bincount(drawn, minlength=5)[places] / count
    expected = torch.tensor(shares, dtype=torch.float64)
    assert ((frequencies - expected).abs() <= 4 * (expected * (1 - expected) / count).sqrt() + 1e-12).all()


def test_ended_sequences_leave_the_batch(recurrent, monkeypatch):
    calls = []
    step = recurrent.step
    monkeypatch.setattr(recurrent, "step", lambda ids, cache: (calls.append(len(ids)), step(ids, cache))[1])
    steps = [*sample(recurrent, bare_rows(PROMPTS), GREEDY, Limits(), maximums=[3, 1, 5, 3], seeds=[0] * 4)]
    assert [len(step.ids) for step in steps] == [4, 3, 3, 1, 1]
    # Nobody reads the last token of a sequence.
    assert calls == [3, 3, 1, 1]
    assert [sorted(step.sequences[step.ended].tolist()) for step in steps] == [[1], [], [0, 3], [], [2]]
    assert not any(step.stopped.any() for step in steps)


def test_iterating_leaves_the_gradient_mode_alone(recurrent):
    for _ in sample(recurrent, bare_rows([[0]]), Sampling(), Limits(), maximums=[2], seeds=[0]):
        assert torch.is_grad_enabled()


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**63 - 1),
    stop=st.sets(st.integers(0, 4), max_size=2),
    forbidden=st.sets(st.integers(0, 4), max_size=2),
    min_tokens=st.integers(0, 3),
    maximum=st.integers(3, 8),
)
def test_limits_hold(seed, stop, forbidden, min_tokens, maximum):
    decoder = Pairs(np.random.default_rng(seed % 2**32).normal(size=(6, 5)))
    limits = Limits(tuple(stop), tuple(forbidden), min_tokens)
    steps = [*sample(decoder, bare_rows([[1]] * 3), Sampling(), limits, maximums=[maximum] * 3, seeds=[seed, 0, 1])]
    found = collect(steps, 3)
    ends = dict(pair for step in steps for pair in zip(step.sequences.tolist(), step.stopped.tolist(), strict=True))
    for number, ids in enumerate(found):
        assert not {*ids} & (stop | forbidden)
        assert min_tokens <= len(ids) <= maximum
        assert ends[number] == (len(ids) < maximum)
    for hypotheses in beam_search(decoder, bare_rows([[1]]), Beam(3, 3), limits, maximums=[maximum]):
        for each in hypotheses:
            assert not {*each.ids} & (stop | forbidden)
            assert min_tokens <= len(each.ids) <= maximum


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda value=value: Sampling(temperature=value), "temperature") for value in (-1.0, math.nan, math.inf)),
        *((lambda value=value: Sampling(top_k=value), "top_k") for value in (0, -3)),
        *((lambda value=value: Sampling(top_p=value), "top_p") for value in (0.0, 1.5, math.nan)),
        *((lambda value=value: Beam(length_penalty=value), "length_penalty") for value in (-0.1, math.nan, 1e6)),
        (lambda: Beam(0), "beam=0"),
        *((lambda value=value: Beam(3, value), f"n_best={value}") for value in (0, 4)),
        (lambda: Limits(min_tokens=-1), "min_tokens=-1"),
        (lambda: sampled(Pairs(np.zeros((6, 5))), [[1]], limits=Limits((5,))), "stop=5 is not one of the 5 tokens"),
        (lambda: sampled(Pairs(np.zeros((6, 5))), [[1]], limits=Limits((), (-1,))), "forbidden=-1"),
        (lambda: sampled(Pairs(np.zeros((6, 5))), [[1]], limits=Limits((4,), (0, 1, 2, 3), 1)), "leaves no token"),
        (
            lambda: sampled(Pairs(np.zeros((6, 5))), [[1]], limits=Limits((4,), (), 5), maximums=[4]),
            "tokens=4 must be at least 5",
        ),
        (lambda: sampled(Pairs(np.zeros((6, 5))), [[1]], maximums=[-2]), "tokens=-2"),
        *((lambda value=value: sampled(Pairs(np.zeros((6, 5))), [[1]], seeds=[value]), "seed=") for value in (-1, 2**63)),
    ],
)
def test_settings_without_a_meaning_are_refused(make, message):
    with pytest.raises(RamifyError, match=message):
        make()


# --- caches -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("config", [TRANSFORMER, replace(SEQ2SEQ, cell="gru")])
def test_decoding_waits_for_no_device(config):
    """Tensors of the device `meta` have no values, so whoever asks for one fails."""
    model = config.for_vocabulary(VOCAB).build().eval().to("meta")
    _, cache = model.read_prompts(bare_rows([[1], [2, 1], [1]]).to("meta"), bare_rows([[1, 2], [3], [1, 3, 2]]).to("meta"))
    for index in ([0, 0, 1, 2, 2], [4, 1, 1], [2, 0], [1, 0]):
        cache = cache.reorder(np.array(index))
        states, cache = model.read_tokens(torch.zeros(len(index), dtype=torch.int64, device="meta"), cache)
        assert states.shape == (len(index), 16)


# --- keys and values -----------------------------------------------------------------------------------------------------


def test_keys_and_values_grow_and_follow_their_sequences():
    """Against one table per sequence: appended, repeated, dropped, and without the columns in which none has begun."""
    torch.manual_seed(0)
    cache = KeyValueCache(2, np.array([3, 0, 2]), torch.device("cpu"))
    whole = [torch.zeros(2, 3, 2, 0, 4)] * 2

    def grow(tokens):
        for layer in range(2):
            new = torch.randn(2, len(cache), 2, tokens, 4)
            whole[layer] = torch.cat([whole[layer], new], 3)
            assert torch.equal(cache.append(layer, new), whole[layer])

    grow(4)
    mask = cache.visible(2, 5)
    assert mask is not None
    assert mask[:, 0, 0].long().tolist() == [[0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    assert cache.positions(2).tolist() == [[1, 2], [4, 5], [2, 3]]
    for _ in range(30):
        grow(1)
    assert cache.lengths.tolist() == [31, 34, 32]
    cache = cache.reorder(np.array([2, 0, 2]))
    whole = [each[:, [2, 0, 2], :, 2:] for each in whole]
    assert cache.lengths.tolist() == [32, 31, 32]
    grow(1)
    cache = cache.reorder(np.array([1]))
    whole = [each[:, [1], :, 1:] for each in whole]
    assert (cache.columns, cache.lengths.tolist()) == (32, [32])
    # A single sequence has no columns to hide.
    assert cache.visible(2, 33) is None
    grow(2)
    assert cache.visible(2, 36).shape == (1, 1, 2, 36)


def test_log_probabilities_of_scores_in_half_precision():
    """Only the scores themselves are rounded, and not the sum that normalizes them."""
    decoder = Pairs(np.random.default_rng(0).normal(loc=20, scale=3, size=(VOCAB + 1, VOCAB)))
    decoder.scores = decoder.scores.bfloat16()
    table = decoder.scores.double().log_softmax(1)
    (found,) = beam_search(decoder, bare_rows([[]]), Beam(4, 4, 0.0), FREE, maximums=[1])
    np.testing.assert_allclose(
        [each.log_probability for each in found], table[-1].sort(descending=True).values[:4], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("vocab", [63, 200, 1000])
@pytest.mark.parametrize("tied", [False, True])
def test_beam_search_ranks_a_large_vocabulary(vocab, tied):
    """Every step of a beam that is as wide as its continuations is that of a full ranking; forbidden tokens never appear."""
    scores = np.random.default_rng(vocab).normal(scale=3, size=(vocab + 1, vocab))
    decoder = Pairs(scores.round() if tied else scores)
    table = decoder.scores.log_softmax(1)
    for limits in (Limits((0,)), Limits((5,), tuple(range(7, vocab)))):
        (found,) = beam_search(decoder, bare_rows([[]]), Beam(4, 4, 0.0), limits, maximums=[1])
        first = table[-1].index_fill(0, torch.tensor(limits.forbidden, dtype=torch.int64), -math.inf)
        expected = sorted(enumerate(first.tolist()), key=lambda pair: (-pair[1], pair[0]))
        stops, others = ([pair for pair in expected[:8] if (pair[0] in limits.stop) == stop] for stop in (True, False))
        best = sorted((stops if stops and expected.index(stops[0]) < 4 else []) + others[:4], key=lambda pair: -pair[1])[:4]
        np.testing.assert_allclose([each.log_probability for each in found], [total for _, total in best], rtol=0, atol=1e-12)

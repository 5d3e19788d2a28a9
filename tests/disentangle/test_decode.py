"""Deciding what messages answer: side by side, by what is known, and by beam, against deciding message by message."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from fixtures import channel, mht_task
from ramify.disentangle.batch import LinkCollator, Vectors
from ramify.disentangle.config import History
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.pieces import line
from ramify.disentangle.data.structure import Structure
from ramify.disentangle.data.words import learn_words
from ramify.disentangle.inference import decode as decoding
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.inference.decode import (
    Known,
    Opinion,
    decide,
    heard_from,
    keep_vectors,
    lead_in,
    opinions,
    with_history,
)
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyTo, ReplyToConfig
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree

HISTORY = History(window=5, texts="pieces", max_tokens=12)
SIZES = (7, 1, 12, 4, 7)
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@cache
def tokenizer() -> Tokenizer:
    return learn_words((line(node, author=True).lower().split() for node in channel(60, 0).nodes), least=1)


def read(*trees: Tree) -> Logs:
    return Logs.of(trees, HISTORY).read_with(tokenizer())


TREES = [channel(size, seed) for seed, size in enumerate(SIZES)]
LOGS = read(*TREES)


def task(seed: int = 0, objective: str = "listwise", **changes: object) -> ReplyTo:
    """A model of some thousand parameters, whose weights are large enough for it to have opinions."""
    return mht_task(tokenizer(), HISTORY, seed, objective, **changes)


def feature_task() -> ReplyTo:
    torch.manual_seed(0)
    return ReplyTo(FeatureModel(FeatureModelConfig(vocab_size=tokenizer().vocab_size, dim=4, hidden=8)), tokenizer(), HISTORY)


@torch.no_grad()
def shares(own: ReplyTo, logs: Logs, message: int, structure: Structure) -> dict[int, float]:
    """What a model thinks of each candidate of one message by itself, itself first."""
    own.eval()
    view = Blocks(logs, np.array([message]), block=1)
    batch = LinkCollator(logs, structure=structure)([view.example(0)])
    chances = own.probabilities(own.scores(batch), batch)
    return dict(zip(batch.key_source.tolist(), chances.tolist(), strict=True))


def likeliest(chances: dict[int, float]) -> int:
    return max(chances, key=lambda message: chances[message])


def one_by_one(own: ReplyTo, logs: Logs, start: int = 0, structure: Structure | None = None) -> Iterator[dict[int, float]]:
    """Of the one log from a message on: with a structure given, or else with what was decided before."""
    decided = Structure()
    for message in range(start, len(logs)):
        found = shares(own, logs, message, decided if structure is None else structure)
        decided.link(message, likeliest(found))
        yield found


def by_message(found: Iterator[Opinion]) -> dict[int, dict[int, float]]:
    """[message][candidate]"""
    whole = Opinion.joined(list(found))
    ends = np.cumsum(whole.lengths)
    return {
        message: dict(zip(whole.candidates[end - size : end].tolist(), whole.probabilities[end - size : end].tolist()))
        for message, end, size in zip(whole.messages.tolist(), ends, whole.lengths)
    }


def flat(found: dict[int, dict[int, float]]) -> np.ndarray:
    """All probabilities in the order of the logs."""
    return np.array([chance for message in sorted(found) for chance in found[message].values()])


def assert_same(found: dict[int, dict[int, float]], expected: dict[int, dict[int, float]]) -> None:
    assert found.keys() == expected.keys()
    for message, chances in expected.items():
        assert list(found[message]) == list(chances)
    np.testing.assert_allclose(flat(found), flat(expected), **CLOSE)


def alone(own: ReplyTo, *, start: Ints | None = None, known: bool = False) -> dict[int, dict[int, float]]:
    """Each log by itself, with messages numbered as in all logs together."""
    found = {}
    for number, (tree, first) in enumerate(zip(TREES, LOGS.offsets.tolist())):
        logs = read(tree)
        own_start = 0 if start is None else int(start[number]) - first
        structure = Structure.known(logs) if known else None
        for message, chances in enumerate(one_by_one(own, logs, own_start, structure), first + own_start):
            found[message] = {first + candidate: chance for candidate, chance in chances.items()}
    return found


# --- side by side -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "keys"), [({}, 16_384), ({}, 12), ({"depth": 1, "features": "head"}, 18), ({"objective": "binary"}, 16_384)]
)
def test_logs_decided_side_by_side_are_decided_as_each_alone(
    config: dict[str, object], keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = task(**config)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(decoding, "KEYS", keys)
    parts = list(opinions(own, LOGS))
    # A message of each log at once, where so many pairs are scored at once.
    most = max(len(part.messages) for part in parts)
    assert most == len(SIZES) if keys == 16_384 else most < len(SIZES)
    found = by_message(iter(parts))
    expected = alone(own)
    assert_same(found, expected)
    # What was decided before is read: with nothing to read it thinks otherwise.
    blind = {message: shares(own, LOGS, message, Structure()) for message in range(len(LOGS))}
    assert np.abs(flat(found) - flat(blind)).max() > 0.01
    answered, probability, *_ = decide(own, LOGS)
    assert answered.tolist() == [likeliest(expected[message]) for message in range(len(LOGS))]
    np.testing.assert_allclose(probability, [max(expected[message].values()) for message in range(len(LOGS))], **CLOSE)


def test_a_message_may_be_where_deciding_begins() -> None:
    own, start = task(), LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    found = by_message(opinions(own, LOGS, start=start))
    assert_same(found, alone(own, start=start))
    answered, probability, *_ = decide(own, LOGS, start=start)
    left_out = np.setdiff1d(np.arange(len(LOGS)), list(found))
    assert len(left_out) == 15
    assert answered[left_out].tolist() == left_out.tolist()
    assert not probability[left_out].any()
    assert (probability[list(found)] > 0).all()


def test_what_is_known_is_neither_read_nor_believed_while_deciding() -> None:
    own = task()
    unknown = [Tree(tuple(replace(node, parents=None, self_link=False) for node in tree.nodes), id=tree.id) for tree in TREES]
    assert_same(by_message(opinions(own, read(*unknown))), by_message(opinions(own, LOGS)))


def test_known_links_are_read_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    own = task()
    monkeypatch.setattr(decoding, "_BLOCK", 4)
    found = by_message(opinions(own, LOGS, history="gold"))
    assert_same(found, alone(own, known=True))
    assert np.abs(flat(found) - flat(by_message(opinions(own, LOGS)))).max() > 0.01
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    later = by_message(opinions(own, LOGS, history="gold", start=start))
    assert_same(later, alone(own, start=start, known=True))
    assert_same(later, {message: found[message] for message in later})


@torch.no_grad()
def test_logs_that_are_known_as_they_would_be_decided_are_decided_so() -> None:
    """Then each message's history is the same either way."""
    own = task()
    answered, probability, *_ = decide(own, LOGS)
    trees = []
    for tree, first in zip(TREES, LOGS.offsets.tolist()):
        links = answered[first : first + len(tree)] - first
        nodes = (
            replace(node, parents=() if above == number else (above,), self_link=False)
            for number, (node, above) in enumerate(zip(tree.nodes, links.tolist()))
        )
        trees.append(Tree(tuple(nodes), id=tree.id))
    again, chances, *_ = decide(own, read(*trees), history="gold")
    assert again.tolist() == answered.tolist()
    np.testing.assert_allclose(chances, probability, **CLOSE)


@pytest.mark.parametrize("history", ["predicted", "gold"])
def test_dropout_is_off_while_deciding_and_on_again_afterwards(history: Known) -> None:
    own = task(dropout=0.5)
    expected = by_message(opinions(own, LOGS, history=history))
    own.train()
    assert_same(by_message(opinions(own, LOGS, history=history)), expected)
    assert own.training
    assert own.backbone.training


# --- vectors that were computed before ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["predicted", "gold"])
def test_vectors_computed_before_make_no_difference(history: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    own = task()
    expected = by_message(opinions(own, LOGS, history=history))
    monkeypatch.setattr(decoding, "TOKENS", 30)
    vectors = keep_vectors(own, LOGS, np.arange(len(LOGS)))
    assert vectors is not None
    assert vectors.table.shape == (len(LOGS), 8)
    assert_same(by_message(opinions(own, LOGS, history=history, vectors=vectors)), expected)
    # They are what is read, and nothing is encoded once more.
    other = by_message(opinions(own, LOGS, history=history, vectors=Vectors(vectors.table.flip(0), vectors.row)))
    assert np.abs(flat(other) - flat(expected)).max() > 0.01
    monkeypatch.setattr(type(own.backbone), "encode", None)
    assert_same(by_message(opinions(own, LOGS, history=history, vectors=vectors)), expected)


def test_each_message_has_the_vector_of_its_own_words() -> None:
    own = task()
    messages = np.array([30, 2, 11, 3, 23])
    vectors = keep_vectors(own, LOGS, messages)
    assert vectors is not None
    assert np.flatnonzero(vectors.row >= 0).tolist() == sorted(messages)
    for message in messages.tolist():
        one = keep_vectors(own, LOGS, np.array([message]))
        assert one is not None
        torch.testing.assert_close(vectors.of(np.array([message])), one.table, rtol=1e-4, atol=1e-5)
    assert torch.cdist(vectors.table, vectors.table).add(torch.eye(5)).min() > 1e-3


def test_a_model_that_makes_no_vectors_has_none_to_keep() -> None:
    own = feature_task()
    assert keep_vectors(own, LOGS, np.arange(len(LOGS))) is None
    assert len(by_message(opinions(own, LOGS))) == len(LOGS)


# --- what is read -------------------------------------------------------------------------------------------------------------


def test_deciding_leads_in_by_two_windows() -> None:
    def log(number: int, known_from: int) -> Tree:
        nodes = channel(number).nodes
        return Tree(
            tuple(replace(node, parents=() if place >= known_from else None) for place, node in enumerate(nodes)), id="log"
        )

    logs = Logs.of([log(30, 17), log(30, 4), log(30, 0), log(12, 10), log(30, 29)], HISTORY)
    assert logs.offsets.tolist() == [0, 30, 60, 90, 102, 132]
    assert logs.first_known.tolist() == [17, 34, 60, 100, 131]
    assert lead_in(logs).tolist() == [7, 30, 60, 90, 121]
    # The first log's end is not known from, though the second one is.
    assert Logs.of([log(30, 30), log(30, 4)], HISTORY).first_known.tolist() == [30, 34]


def test_messages_are_read_with_all_that_they_may_answer() -> None:
    random = np.random.default_rng(0)
    for size in (0, 1, 3, 10, 31):
        messages = np.sort(random.choice(len(LOGS), size=size, replace=False))
        expected = {
            earlier
            for message in messages.tolist()
            for earlier in range(
                max(message - HISTORY.window, int(LOGS.offsets[LOGS.log_of(np.array([message]))[0]])), message + 1
            )
        }
        assert with_history(LOGS, messages).tolist() == sorted(expected)


def test_what_is_read_begins_a_window_before_deciding_does() -> None:
    start = LOGS.offsets[:-1] + np.array([6, 0, 6, 4, 2])
    expected = [*range(1, 7), 7, *range(9, 20), *range(24, 31)]
    assert LOGS.offsets.tolist() == [0, 7, 8, 20, 24, 31]
    assert heard_from(LOGS, start).tolist() == expected
    own = task()
    vectors = keep_vectors(own, LOGS, heard_from(LOGS, start))
    assert vectors is not None
    # So much is enough: it is what deciding reads by itself.
    assert_same(by_message(opinions(own, LOGS, start=start, vectors=vectors)), by_message(opinions(own, LOGS, start=start)))


# --- beams --------------------------------------------------------------------------------------------------------------------


def beam_of(own: ReplyTo, logs: Logs, width: int, start: Ints | None = None) -> tuple[list[int], np.ndarray]:
    answered, probability = np.arange(len(logs)), np.zeros(len(logs), dtype=np.float32)
    decoding._search(own, logs, width, start, answered, probability)
    return answered.tolist(), probability


def exhaustive(own: ReplyTo, logs: Logs) -> tuple[float, tuple[int, ...], list[float]]:
    """The likeliest of all structures of one log: its probability, which is the product of its links'; and its links."""

    @cache
    def after(links: tuple[int, ...]) -> dict[int, float]:
        structure = Structure()
        for message, answered in enumerate(links):
            structure.link(message, answered)
        return shares(own, logs, len(links), structure)

    every = product(*(range(message + 1) for message in range(len(logs))))
    chances = {links: [after(links[:place])[above] for place, above in enumerate(links)] for links in every}
    assert len(chances) == math.factorial(len(logs))
    assert sum(map(math.prod, chances.values())) == pytest.approx(1, abs=1e-4)
    best = max(chances, key=lambda links: math.prod(chances[links]))
    return math.prod(chances[best]), best, chances[best]


def test_a_beam_of_one_is_one_link_after_the_other() -> None:
    own = task()
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    for begin in (None, start):
        answered, probability, *_ = decide(own, LOGS, start=begin)
        found, chances = beam_of(own, LOGS, 1, begin)
        assert found == answered.tolist()
        np.testing.assert_allclose(chances, probability, **CLOSE)


@pytest.mark.parametrize(("objective", "seed"), [("listwise", 3), ("listwise", 4), ("ranking", 7)])
def test_a_wide_beam_finds_the_likeliest_of_all_structures(objective: str, seed: int) -> None:
    own, logs = task(seed, objective), read(channel(5, seed))
    total, links, chances = exhaustive(own, logs)
    # Before the last message there are 24 structures.
    answered, probability, *_ = decide(own, logs, beam=24)
    assert answered.tolist() == list(links)
    np.testing.assert_allclose(probability, chances, **CLOSE)
    # With these weights, one likeliest link after the other makes a less likely one.
    one_after_the_other, shares_of_it, *_ = decide(own, logs)
    assert one_after_the_other.tolist() != answered.tolist()
    assert math.prod(shares_of_it.tolist()) < total


def test_a_beam_is_a_beam_of_each_log_by_itself() -> None:
    own = task()
    answered, probability, *_ = decide(own, LOGS, beam=3)
    for tree, first in zip(TREES, LOGS.offsets.tolist()):
        found, chances, *_ = decide(own, read(tree), beam=3)
        assert (found + first).tolist() == answered[first : first + len(tree)].tolist()
        np.testing.assert_allclose(chances, probability[first : first + len(tree)], **CLOSE)
    # Its structures are none that are read by mistake: the chances are those of the links given those before.
    structure = Structure()
    for message, above in enumerate(answered.tolist()):
        assert shares(own, LOGS, message, structure)[above] == pytest.approx(float(probability[message]), rel=1e-3, abs=1e-5)
        structure.link(message, above)


def test_before_deciding_begins_a_beam_says_nothing() -> None:
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    answered, probability, *_ = decide(task(), LOGS, beam=2, start=start)
    for first, begin, end in zip(LOGS.offsets, start, LOGS.offsets[1:]):
        assert answered[first:begin].tolist() == list(range(first, begin))
        assert not probability[first:begin].any()
        assert (probability[begin:end] > 0).all()


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(feature_task, id="feature model"),
        pytest.param(lambda: task(objective="binary"), id="binary"),
        pytest.param(lambda: task(mask="temporal"), id="temporal mask"),
        pytest.param(lambda: task(mask="none"), id="no mask"),
    ],
)
def test_there_is_no_beam_where_links_do_not_hang_on_each_other(own) -> None:
    with pytest.raises(RamifyError, match="a beam is for models that read what earlier messages answer"):
        decide(own(), LOGS, beam=2)


def random_opinion(seed: int, messages: int = 200, window: int = 9, start_odds: float = 1.0) -> Opinion:
    """On all messages of a log, some of them sure, with equals among the others."""
    random = np.random.default_rng(seed)
    lengths = np.minimum(np.arange(messages), window) + 1
    parts = [random.integers(1, 4, length) ** random.choice([1.0, 6.0]) for length in lengths]
    for part in parts:
        part[0] *= start_odds * random.choice([1.0, 1.0, 3.0, 9.0])
    candidates = [number - np.arange(length) for number, length in enumerate(lengths)]
    probabilities = np.concatenate([part / part.sum() for part in parts]).astype(np.float32)
    return Opinion(np.arange(messages), np.concatenate(candidates), lengths, probabilities)


@pytest.mark.parametrize("seed", range(5))
def test_messages_join_the_conversation_that_is_likeliest_as_a_whole(seed: int) -> None:
    opinion = random_opinion(seed)
    conversation, expected = list(range(200)), []
    by_message = np.split(np.arange(len(opinion.candidates)), np.cumsum(opinion.lengths)[:-1])
    for message, own in enumerate(by_message):
        shares = dict(zip(opinion.candidates[own].tolist(), opinion.probabilities[own].tolist()))
        total: dict[int, float] = {}
        for candidate, share in shares.items():
            total[conversation[candidate]] = total.get(conversation[candidate], 0.0) + share
        most = max(total.values())
        # Of equal conversations the oldest, and there of equal messages the nearest.
        best = min(number for number, share in total.items() if share == most)
        inside = {candidate: share for candidate, share in shares.items() if conversation[candidate] == best}
        expected.append(max(inside, key=lambda candidate: (inside[candidate], candidate)))
        conversation[message] = conversation[expected[-1]]
    numbers = np.arange(200)
    answered, probability = opinion.likeliest_by_conversation(numbers)
    assert answered.tolist() == expected
    assert numbers.tolist() == conversation
    starts = np.cumsum(opinion.lengths) - opinion.lengths
    assert (probability == opinion.probabilities[starts + np.arange(200) - answered]).all()
    # Links alone say other things, and make other conversations.
    assert 5 < (answered != opinion.likeliest()[0]).sum() < 150
    assert 3 < len(set(conversation)) < 150


@pytest.mark.parametrize("seed", range(5))
def test_messages_join_whom_they_are_likeliest_to_share_a_conversation_with(seed: int) -> None:
    opinion = random_opinion(seed, start_odds=0.2)
    by_message = np.split(np.arange(len(opinion.candidates)), np.cumsum(opinion.lengths)[:-1])
    window = int(opinion.lengths.max()) - 1
    together = np.eye(200)
    conversation, expected = list(range(200)), []
    for message, own in enumerate(by_message):
        shares = dict(zip(opinion.candidates[own].tolist(), opinion.probabilities[own].tolist()))
        within = range(message - 1, max(message - window, 0) - 1, -1)
        for other in within:
            together[message, other] = together[other, message] = sum(
                share * together[candidate, other] for candidate, share in shares.items() if candidate != message
            )
        # Of equals the nearest.
        companion = max(within, key=lambda other: together[message, other], default=message)
        if companion == message or together[message, companion] < 0.5:
            expected.append(message)
            continue
        conversation[message] = conversation[companion]
        inside = {candidate: share for candidate, share in shares.items() if conversation[candidate] == conversation[companion]}
        inside.pop(message, None)
        expected.append(max(inside, key=lambda candidate: inside[candidate]) if inside else companion)
    numbers = np.arange(200)
    of = Comemberships(np.array([0, 200]), window).of
    answered, probability = opinion.likeliest_by_comembership(numbers, of)
    assert answered.tolist() == expected
    assert numbers.tolist() == conversation
    starts = np.cumsum(opinion.lengths) - opinion.lengths
    back = np.arange(200) - answered
    read = back < opinion.lengths
    assert (probability[read] == opinion.probabilities[(starts + back)[read]]).all()
    assert (probability[~read] == 0).all()
    assert 5 < (answered != opinion.likeliest()[0]).sum() < 150
    assert (answered != opinion.likeliest_by_conversation(np.arange(200))[0]).any()
    assert 3 < len(set(conversation)) < 150


def test_deciding_by_conversation_is_joining_message_by_message() -> None:
    own = task()
    by_link = decide(own, LOGS)
    own.config = replace(own.config, decide="conversation")
    decided, numbers = decide(own, LOGS), np.arange(len(LOGS))
    structure = Structure()
    for log in range(len(SIZES)):
        for message in range(*LOGS.offsets[log : log + 2].tolist()):
            chances = shares(own, LOGS, message, structure)
            one = Opinion(
                np.array([message]), np.array(list(chances)), np.array([len(chances)]), np.array(list(chances.values()))
            )
            answered, _ = one.likeliest_by_conversation(numbers)
            structure.link(message, int(answered[0]))
            assert decided.answered[message] == answered[0]
    assert (decided.answered != by_link.answered).any()


@pytest.mark.parametrize("decide_by", ["link", "conversation", "comembership"])
def test_further_answers_are_likely_enough_and_of_the_conversation(decide_by: str) -> None:
    opinion, numbers = random_opinion(1, start_odds=0.2), np.arange(200)
    config = ReplyToConfig(decide=decide_by, threshold=0.2)  # pyright: ignore[reportArgumentType]
    chosen = opinion.choose(config, numbers, Comemberships(np.array([0, 200]), 40).of)
    expected = [
        [message, candidate]
        for message, own in enumerate(np.split(np.arange(len(opinion.candidates)), np.cumsum(opinion.lengths)[:-1]))
        for candidate, share in zip(opinion.candidates[own].tolist(), opinion.probabilities[own].tolist())
        if share >= np.float32(0.2) and candidate != chosen.answered[message]
        if decide_by == "link" or (candidate != message and numbers[candidate] == numbers[message])
    ]
    assert chosen.further.tolist() == expected
    alone = opinion.choose(replace(config, threshold=0.0), np.arange(200), Comemberships(np.array([0, 200]), 40).of)
    assert (chosen.answered == alone.answered).all()
    assert len(expected) > 20
    assert len(alone.further) == 0


@pytest.mark.parametrize("decide_by", ["conversation", "comembership"])
def test_a_beam_does_not_look_for_conversations(decide_by: str) -> None:
    own = task()
    own.config = replace(own.config, decide=decide_by)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RamifyError, match=rf"task\.decide=link, not {decide_by}"):
        decide(own, LOGS, beam=2)


def test_of_no_messages_nothing_is_decided() -> None:
    own, logs = task(), read()
    for history in ("predicted", "gold"):
        assert [len(each) for each in decide(own, logs, history=history)] == [0, 0, 0, 0]
    assert [len(each) for each in decide(own, logs, beam=3)] == [0, 0, 0, 0]
    answered, *_ = decide(own, read(Tree((), id="empty"), channel(3)), beam=2)
    assert len(answered) == 3

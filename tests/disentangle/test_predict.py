"""Posteriors of whole logs, in batches, with gold links and with precomputed vectors, against one message at a time."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_links import CLOSE, INPUT, LOGS, PLAIN, SIZES, TREES, feature_task, likeliest, read, shares, task

from fixtures import channel
from ramify.disentangle.batch import MessageVectors
from ramify.disentangle.data.candidates import add_candidates
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.targets import decode_start, list_read_messages
from ramify.disentangle.inference import batches
from ramify.disentangle.inference import vectors as encoding
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.predict import ReplyHistory, predict_posterior
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.task import ReplyLinking
from ramify.tree import Tree


def one_by_one(
    own: ReplyLinking, logs: Logs, start: int = 0, structure: ReplyStructure | None = None
) -> Iterator[dict[int, float]]:
    """The probabilities of one log from a message on, given a structure or else the earlier decisions."""
    decided = ReplyStructure()
    for message in range(start, len(logs)):
        found = shares(own, logs, message, decided if structure is None else structure)
        decided.add_link(message, likeliest(found))
        yield found


def by_message(found: Iterator[LinkPosterior]) -> dict[int, dict[int, float]]:
    """Probabilities as [message][candidate]."""
    whole = LinkPosterior.concatenate(list(found))
    ends = np.cumsum(whole.lengths)
    return {
        message: dict(zip(whole.candidates[end - size : end].tolist(), whole.probabilities[end - size : end].tolist()))
        for message, end, size in zip(whole.messages.tolist(), ends, whole.lengths)
    }


def flat(found: dict[int, dict[int, float]]) -> np.ndarray:
    """All probabilities in the order of the logs."""
    return np.array([probability for message in sorted(found) for probability in found[message].values()])


def assert_same(found: dict[int, dict[int, float]], expected: dict[int, dict[int, float]]) -> None:
    assert found.keys() == expected.keys()
    for message, probabilities in expected.items():
        assert list(found[message]) == list(probabilities)
    np.testing.assert_allclose(flat(found), flat(expected), **CLOSE)


def alone(own: ReplyLinking, *, start: Ints | None = None, known: bool = False) -> dict[int, dict[int, float]]:
    """The probabilities of each log alone, with messages numbered as in all logs together."""
    found = {}
    for number, (tree, first) in enumerate(zip(TREES, LOGS.offsets.tolist())):
        logs = read(tree)
        own_start = 0 if start is None else int(start[number]) - first
        structure = ReplyStructure.from_gold(logs) if known else None
        for message, probabilities in enumerate(one_by_one(own, logs, own_start, structure), first + own_start):
            found[message] = {first + candidate: probability for candidate, probability in probabilities.items()}
    return found


# --- batches ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "keys"), [({}, 16_384), ({}, 12), ({"depth": 1, "features": "head"}, 18), ({"objective": "binary"}, 16_384)]
)
def test_batched_logs_equal_each_log_alone(config: dict[str, object], keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = task(**config)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(batches, "KEYS", keys)
    parts = list(predict_posterior(own, PLAIN, LOGS))
    # If the limit on pairs allows it, one message of each log is scored at once.
    most = max(len(part.messages) for part in parts)
    assert most == len(SIZES) if keys == 16_384 else most < len(SIZES)
    found = by_message(iter(parts))
    expected = alone(own)
    assert_same(found, expected)
    # Earlier decisions are read: without them the probabilities differ.
    blind = {message: shares(own, LOGS, message, ReplyStructure()) for message in range(len(LOGS))}
    assert np.abs(flat(found) - flat(blind)).max() > 0.01
    parents, probability, *_ = predict_links(own, PLAIN, LOGS)
    assert parents.tolist() == [likeliest(expected[message]) for message in range(len(LOGS))]
    np.testing.assert_allclose(probability, [max(expected[message].values()) for message in range(len(LOGS))], **CLOSE)


def test_decoding_may_start_at_any_message() -> None:
    own, start = task(), LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    found = by_message(predict_posterior(own, PLAIN, LOGS, start=start))
    assert_same(found, alone(own, start=start))
    parents, probability, *_ = predict_links(own, PLAIN, LOGS, start=start)
    left_out = np.setdiff1d(np.arange(len(LOGS)), list(found))
    assert len(left_out) == 15
    assert parents[left_out].tolist() == left_out.tolist()
    assert not probability[left_out].any()
    assert (probability[list(found)] > 0).all()


def test_gold_links_are_not_read_while_decoding() -> None:
    own = task()
    unknown = [Tree(tuple(replace(node, parents=None, self_link=False) for node in tree.nodes), id=tree.id) for tree in TREES]
    assert_same(by_message(predict_posterior(own, PLAIN, read(*unknown))), by_message(predict_posterior(own, PLAIN, LOGS)))


def test_gold_history_reads_gold_links(monkeypatch: pytest.MonkeyPatch) -> None:
    own = task()
    monkeypatch.setattr(batches, "BLOCK", 4)
    found = by_message(predict_posterior(own, PLAIN, LOGS, history="gold"))
    assert_same(found, alone(own, known=True))
    assert np.abs(flat(found) - flat(by_message(predict_posterior(own, PLAIN, LOGS)))).max() > 0.01
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    later = by_message(predict_posterior(own, PLAIN, LOGS, history="gold", start=start))
    assert_same(later, alone(own, start=start, known=True))
    assert_same(later, {message: found[message] for message in later})


@torch.no_grad()
def test_gold_links_equal_to_predictions_reproduce_them() -> None:
    """Each message's history is then the same with gold links and with predicted ones."""
    own = task()
    parents, probability, *_ = predict_links(own, PLAIN, LOGS)
    trees = []
    for tree, first in zip(TREES, LOGS.offsets.tolist()):
        links = parents[first : first + len(tree)] - first
        nodes = (
            replace(node, parents=() if parent == number else (parent,), self_link=False)
            for number, (node, parent) in enumerate(zip(tree.nodes, links.tolist()))
        )
        trees.append(Tree(tuple(nodes), id=tree.id))
    again, probabilities, *_ = predict_links(own, PLAIN, read(*trees), history="gold")
    assert again.tolist() == parents.tolist()
    np.testing.assert_allclose(probabilities, probability, **CLOSE)


@pytest.mark.parametrize("history", ["predicted", "gold"])
def test_dropout_is_off_while_decoding_only(history: ReplyHistory) -> None:
    own = task(dropout=0.5)
    expected = by_message(predict_posterior(own, PLAIN, LOGS, history=history))
    own.train()
    assert_same(by_message(predict_posterior(own, PLAIN, LOGS, history=history)), expected)
    assert own.training
    assert own.backbone.training


# --- precomputed vectors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["predicted", "gold"])
def test_precomputed_vectors_change_nothing(history: ReplyHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    own = task()
    expected = by_message(predict_posterior(own, PLAIN, LOGS, history=history))
    monkeypatch.setattr(encoding, "TOKENS", 30)
    vectors = encode_messages(own, LOGS, np.arange(len(LOGS)))
    assert vectors is not None
    assert vectors.table.shape == (len(LOGS), 8)
    assert_same(by_message(predict_posterior(own, PLAIN, LOGS, history=history, vectors=vectors)), expected)
    # The given vectors are read, and nothing is encoded again.
    other = by_message(
        predict_posterior(own, PLAIN, LOGS, history=history, vectors=MessageVectors(vectors.table.flip(0), vectors.row))
    )
    assert np.abs(flat(other) - flat(expected)).max() > 0.01
    monkeypatch.setattr(type(own.backbone.message_encoder), "vectors", None)
    assert_same(by_message(predict_posterior(own, PLAIN, LOGS, history=history, vectors=vectors)), expected)


def test_each_message_has_the_vector_of_its_own_text() -> None:
    own = task()
    messages = np.array([30, 2, 11, 3, 23])
    vectors = encode_messages(own, LOGS, messages)
    assert vectors is not None
    assert np.flatnonzero(vectors.row >= 0).tolist() == sorted(messages)
    for message in messages.tolist():
        one = encode_messages(own, LOGS, np.array([message]))
        assert one is not None
        torch.testing.assert_close(vectors.select(np.array([message])), one.table, rtol=1e-4, atol=1e-5)
    assert torch.cdist(vectors.table, vectors.table).add(torch.eye(5)).min() > 1e-3


def test_model_without_vectors_precomputes_none() -> None:
    own = feature_task()
    assert encode_messages(own, LOGS, np.arange(len(LOGS))) is None
    assert len(by_message(predict_posterior(own, PLAIN, LOGS))) == len(LOGS)


# --- messages that are read ---------------------------------------------------------------------------------------------------


def test_decoding_starts_two_windows_early() -> None:
    def log(number: int, known_from: int) -> Tree:
        nodes = channel(number).nodes
        return Tree(
            tuple(replace(node, parents=() if place >= known_from else None) for place, node in enumerate(nodes)), id="log"
        )

    logs = Logs.build([log(30, 17), log(30, 4), log(30, 0), log(12, 10), log(30, 29)], INPUT)
    assert logs.offsets.tolist() == [0, 30, 60, 90, 102, 132]
    assert logs.first_annotated.tolist() == [17, 34, 60, 100, 131]
    assert decode_start(logs).tolist() == [7, 30, 60, 90, 121]
    # The first log has no annotated messages, although the second one has some.
    assert Logs.build([log(30, 30), log(30, 4)], INPUT).first_annotated.tolist() == [30, 34]


def test_messages_are_read_with_all_their_candidates() -> None:
    random = np.random.default_rng(0)
    for size in (0, 1, 3, 10, 31):
        messages = np.sort(random.choice(len(LOGS), size=size, replace=False))
        expected = {
            earlier
            for message in messages.tolist()
            for earlier in range(
                max(message - INPUT.window, int(LOGS.offsets[LOGS.find_log(np.array([message]))[0]])), message + 1
            )
        }
        assert add_candidates(LOGS, messages).tolist() == sorted(expected)


def test_reading_starts_one_window_before_decoding() -> None:
    start = LOGS.offsets[:-1] + np.array([6, 0, 6, 4, 2])
    expected = [*range(1, 7), 7, *range(9, 20), *range(24, 31)]
    assert LOGS.offsets.tolist() == [0, 7, 8, 20, 24, 31]
    assert list_read_messages(LOGS, start).tolist() == expected
    own = task()
    vectors = encode_messages(own, LOGS, list_read_messages(LOGS, start))
    assert vectors is not None
    # These vectors are sufficient, because decoding reads no more.
    assert_same(
        by_message(predict_posterior(own, PLAIN, LOGS, start=start, vectors=vectors)),
        by_message(predict_posterior(own, PLAIN, LOGS, start=start)),
    )

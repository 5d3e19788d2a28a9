"""A channel that forgets old messages has the same features as a channel that keeps all messages."""

import numpy as np
import pytest

from ramify.disentangle.data.candidates import list_candidates
from ramify.disentangle.data.channel_builder import ChannelBuilder, build_channel
from ramify.disentangle.features.pairs import compute_features
from ramify.errors import RamifyError
from ramify.readers.chat import SYSTEM
from ramify.tree import Node

WINDOW = 9


def chatter(count: int, seed: int) -> list[Node]:
    """A few authors who write often, many who write once and return late; joins, actions, bots, odd clocks."""
    random = np.random.default_rng(seed)
    often, seldom = ["ann", "Bob", "carl", "ubotu"], [f"guest{number}" for number in range(12)]
    nodes = []
    minute = 0.0
    for _ in range(count):
        minute += float(random.integers(-1, 4))
        author = str(random.choice(often if random.random() < 0.8 else seldom))
        kind = str(random.choice(["", "", "", "", "action", SYSTEM]))
        called = f"{random.choice([*often, *seldom])}: " if random.random() < 0.4 else ""
        words = " ".join(random.choice(["disk", "mount", "the", "usb", "why", "not"], size=3))
        without_author = kind == SYSTEM and random.random() < 0.5
        time = None if random.random() < 0.1 else 1e9 + 60 * minute
        nodes.append(Node(f"{called}{words}", None, author=None if without_author else author, time=time, kind=kind))
    return nodes


@pytest.mark.parametrize("reproduce_published", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_forgetting_old_messages_changes_no_feature(seed: int, reproduce_published: bool) -> None:
    nodes = chatter(160, seed)
    whole = build_channel(nodes, causal=True, reproduce_published=reproduce_published)
    builder = ChannelBuilder(causal=True, reproduce_published=reproduce_published)
    for number, node in enumerate(nodes):
        builder.update(node)
        if number % 4 == 0:
            builder.forget(number - WINDOW - 1)
        near = list_candidates(np.array([number]), WINDOW)
        expected = compute_features(whole, np.array([number]), near)
        for now in (builder.build(), builder.build(number - WINDOW - 1)):
            row = len(now) - 1
            assert now.number[row] == number
            found = compute_features(now, np.array([row]), np.where(near >= 0, near - number + row, -1))
            np.testing.assert_array_equal(found, expected, err_msg=str(number))
            assert now.tokens[-1] == whole.tokens[number]


def test_memory_grows_with_authors_and_not_with_messages() -> None:
    builder = ChannelBuilder(causal=True)
    sizes = []
    for number, node in enumerate(chatter(3000, 0)):
        builder.update(node)
        builder.forget(number - WINDOW - 1)
        sizes.append(len(builder.build()))
    people = 16
    assert max(sizes) <= 2 * WINDOW + people + 2
    assert len(builder.held) == sizes[-1]
    assert builder.count == 3000
    assert len(builder.build().mention_events) < 16 * 16 + 2 * WINDOW


def test_window_for_features_is_bounded() -> None:
    """This holds for any number of authors and of names in messages."""
    builder = ChannelBuilder(causal=True)
    for number in range(600):
        builder.update(Node(f"guest{number * 7 % (number + 1)}: hi", None, author=f"guest{number % 200}"))
        builder.forget(number - WINDOW - 1)
    near = builder.build(600 - WINDOW - 1)
    assert len(builder.build()) > 200
    assert len(near) <= 2 * (WINDOW + 1)
    assert len(near.mention_events) <= len(near) ** 2
    assert len(near.mention_events) < len(builder.build().mention_events) / 10


def test_words_are_distinguished_after_clearing_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ramify.disentangle.data.channel_builder._MAX_WORDS", 5)
    nodes = [Node(f"word{number % 7} word{number % 3} common", None, author="ann", time=None) for number in range(40)]
    whole = build_channel(nodes, causal=True)
    builder = ChannelBuilder(causal=True)
    for number, node in enumerate(nodes):
        builder.update(node)
        builder.forget(number - 4)
    now = builder.build()
    row = len(now) - 1
    expected = compute_features(whole, np.array([39]), list_candidates(np.array([39]), 3))
    np.testing.assert_array_equal(compute_features(now, np.array([row]), row - np.arange(4)[None]), expected)


def test_dataset_tokens_replace_the_tokenization() -> None:
    messages = [Node("It's me", None, author="ann", label={"tokens": "it 's <unka.>"})]
    assert build_channel(messages, dataset_tokens=True).tokens == (("it", "'s", "<unka.>"),)
    assert build_channel(messages).tokens == (("it's", "me"),)
    with pytest.raises(RamifyError, match="tokens=beside"):
        build_channel([Node("hi", None, id="7", author="ann")], dataset_tokens=True)
    with pytest.raises(RamifyError, match="tokens=beside"):
        build_channel([Node("hi", None, id="7", author="ann", label={"tokens": ["hi"]})], dataset_tokens=True)


def test_authors_are_distinguished_by_exact_names() -> None:
    authors = ["Ann Lee", "ann_lee", "ANN LEE", "bob", " bob", "Ann  Lee "]
    assert build_channel([Node("hi", None, author=author) for author in authors]).author.tolist() == [0, 1, 0, 2, 2, 0]

"""Features of the messages around a pair: on a handwritten log, and against a slow computation from the features' names."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models

from ramify.disentangle.data.candidates import list_candidates
from ramify.disentangle.data.channel_builder import build_channel
from ramify.disentangle.data.words import WordRanks, learn_vocabulary, tabulate_words
from ramify.disentangle.features.context import CONTEXT_FEATURES, compute_context_features
from ramify.readers.chat import SYSTEM
from ramify.tokenizer import Tokenizer
from ramify.tree import Node

WORDS = WordRanks({"<user>": 1, "the": 2, ":": 3, "disk": 4, "mount": 5})


def message(minute: float, author: str | None, text: str, kind: str = "") -> Node:
    return Node(text, None, author=author, time=1e9 + 60 * minute, kind=kind)


def features_of(log: Sequence[Node], targets: Sequence[int], window: int, *, causal: bool = True) -> np.ndarray:
    """[target candidate feature], in the collator's layout."""
    channel = build_channel(log, causal=causal)
    near = list_candidates(np.array(targets), window)
    near = near[:, : max(targets) + 1]
    messages, place = np.unique(near[near >= 0], return_inverse=True)
    near[near >= 0] = place
    words, rarity = tabulate_words((channel.tokens[message] for message in messages.tolist()), WORDS)
    return compute_context_features(channel, messages, near, words, rarity)


LOG = (
    message(0, "ann", "how to mount the disk ?"),
    message(1, "bob", "ann : which disk"),
    message(2, "carl", "hello"),
    message(2, "ann", "bob: the big disk"),
    message(5, "dora", "carl: hi"),
    message(9, "bob", "ann: mount it by hand"),
)
RARE = math.log(6)
"""The rarity of words outside the vocabulary."""


def values(child: int, parent: int) -> dict[str, float]:
    found = features_of(LOG, [child], 10)[0, child - parent]
    return dict(zip(CONTEXT_FEATURES, found.tolist(), strict=True))


def test_similarity_weighs_common_words_by_rarity() -> None:
    own = values(5, 0)
    assert own["similarity"] == pytest.approx(math.log(5) / 20)
    # <user>, ":", "mount", and three unknown words: "it", "by", "hand".
    assert own["similarity, share of child"] == pytest.approx(math.log(5) / (math.log(3) + math.log(5) + 3 * RARE))
    assert own["similarity, share of parent"] == pytest.approx(
        math.log(5) / (math.log(2) + math.log(4) + math.log(5) + 3 * RARE), rel=1e-5
    )
    assert own["most similar"] == 1
    assert values(5, 3)["most similar"] == 0
    # Among ann's words, "mount" is the most similar, whichever message it is in.
    assert values(5, 3)["similarity to a message of parent's author"] == pytest.approx(math.log(5) / 20)
    assert values(5, 2)["similarity to a message of parent's author"] == 0


def test_earlier_messages_of_the_childs_author_count() -> None:
    # bob asked "which disk", and ann mentions a disk.
    assert values(5, 3)["parent's similarity to a message of child's author"] == pytest.approx(
        (math.log(3) + math.log(4)) / 20, rel=1e-5
    )
    assert values(5, 4)["parent's similarity to a message of child's author"] == pytest.approx(math.log(3) / 20)


def test_mentions_between_parent_and_child() -> None:
    assert values(5, 3)["child mentions parent's author, whose last message it is"] == 1
    assert values(5, 0)["child mentions parent's author, whose last message it is"] == 0
    assert values(5, 0)["messages that mention parent's author between"] == pytest.approx(1 / 5)
    assert values(5, 2)["parent's author silent, but mentioned between"] == 1
    assert values(5, 3)["parent was last to mention child's author"] == 1
    assert values(5, 0)["child's author was last mentioned by parent's"] == 1
    assert values(5, 0)["parent's author was last mentioned by child's"] == 1
    assert values(5, 2)["child mentions another in the window"] == 1
    assert values(5, 4)["parent mentions another"] == 1
    assert values(5, 0)["authors between"] == pytest.approx(4 / 20)
    assert values(5, 0)["minutes apart, logarithm"] == pytest.approx(math.log(10) / 5)


def test_missing_candidates_have_no_features() -> None:
    found = features_of(LOG, [1, 5], 10)
    assert (found[0, 2:] == 0).all()
    assert found[1].any(axis=1).all()


PEOPLE = ("ann", "bob", "carl")


@st.composite
def logs(draw: st.DrawFn) -> list[Node]:
    minute = 0.0
    nodes = []
    for _ in range(draw(st.integers(1, 12))):
        minute += draw(st.integers(0, 3))
        author = draw(st.sampled_from([*PEOPLE, None]))
        called = draw(st.sampled_from(["", *(f"{name}: " for name in PEOPLE)]))
        words = draw(st.lists(st.sampled_from(["disk", "mount", "the", "zebra", "gnu"]), max_size=4))
        nodes.append(message(minute, author, called + " ".join(words), "" if author else SYSTEM))
    return nodes


def plainly(log: Sequence[Node], late: int, early: int, window: int) -> list[float]:
    """The features, computed from their names."""
    channel = build_channel(log, causal=True)
    window_of = range(max(0, late - window), late)

    def speaker(message: int) -> object:
        return log[message].author or message

    def words(message: int) -> set[str]:
        return set(channel.tokens[message])

    def rarity(some: set[str]) -> float:
        return sum(math.log(WORDS.get(word, 6)) for word in some)

    def alike(one: int, two: int) -> float:
        return 0.0 if one == two else rarity(words(one) & words(two))

    def names(message: int, whom: int) -> bool:
        return log[whom].author is not None and bool(channel.mentions_author_of(np.array([message]), np.array([whom]))[0])

    def calls(message: int) -> bool:
        return bool(channel.has_mention[message])

    own = max(1.0, rarity(words(late)))
    others = max(1.0, rarity(words(early)))
    itself = early == late
    theirs = [each for each in [*window_of, late] if speaker(each) == speaker(early)]
    mine = [each for each in window_of if speaker(each) == speaker(late)]
    between = [each for each in window_of if each > early]
    again = [each for each in between if speaker(each) == speaker(early)]
    called = [each for each in between if names(each, early)]
    best = max((alike(late, each) for each in window_of), default=0.0)
    nearest_best = max((each for each in window_of if alike(late, each) == best), default=-1)
    my_call = max((each for each in mine if calls(each)), default=None)
    call_of_me = max((each for each in window_of if names(each, late)), default=None)
    with_theirs = max(alike(late, each) for each in theirs)
    with_mine = max((alike(early, each) for each in mine), default=0.0)
    gap = ((log[late].time or 0) - (log[early].time or 0)) / 60
    to_early = not itself and names(late, early)
    return [
        min(alike(late, early) / 20, 2),
        alike(late, early) / own,
        alike(late, early) / others,
        alike(late, early) > 0 and early == nearest_best,
        min(with_theirs / 20, 2),
        with_theirs / own,
        min(with_mine / 20, 2),
        with_mine / others,
        alike(late, early) > 0 and not again,
        math.log1p(len(words(late))) / 4,
        math.log1p(len(words(early))) / 4,
        math.log1p(gap) / 5,
        sum(log[each].kind != SYSTEM for each in between) / 100,
        len({speaker(each) for each in between}) / 20,
        min(len(again), 5) / 5,
        min(sum(speaker(each) == speaker(late) for each in between), 5) / 5,
        min(len(called), 5) / 5,
        bool(called) and not again,
        my_call is not None and names(my_call, early),
        call_of_me is not None and speaker(early) == speaker(call_of_me),
        early == call_of_me,
        min(sum(names(each, late) for each in theirs if each != late), 5) / 5,
        calls(early) and (itself or not names(early, late)),
        any(names(late, each) for each in window_of) and not to_early,
        to_early and not again,
    ]


@settings(deadline=None, max_examples=60)
@given(logs(), st.integers(1, 9), st.data())
def test_context_features_follow_their_names(log: list[Node], window: int, data: st.DataObject) -> None:
    late = data.draw(st.integers(0, len(log) - 1))
    found = features_of(log, [late], window)[0]
    for early in range(max(0, late - window), late + 1):
        expected = plainly(log, late, early, window)
        for name, one, other in zip(CONTEXT_FEATURES, found[late - early], expected, strict=True):
            assert one == pytest.approx(float(other), abs=1e-5), (name, late, early)


@settings(deadline=None, max_examples=20)
@given(logs(), st.integers(1, 5))
def test_features_depend_on_no_later_message_and_no_other_target(log: list[Node], window: int) -> None:
    targets = list(range(len(log)))
    whole = features_of(log, targets, window)
    for late in targets:
        alone = features_of(log[: late + 1], [late], window)[0]
        size = min(window, late) + 1
        np.testing.assert_allclose(whole[late, :size], alone[:size], atol=1e-6)


def test_rarity_is_the_logarithm_of_the_rank() -> None:
    messages = [["a", "b", "b", "c"], ["b", "c"], ["b"]]
    ranks = WordRanks.build(learn_vocabulary(messages, min_count=1), pieces=False)
    # <user> has the first rank.
    assert ranks == {"<user>": 1, "b": 2, "c": 3, "a": 4}
    words, rarity = tabulate_words([["b", "c", "b"], [], ["new"]], ranks)
    assert words.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert rarity.tolist() == pytest.approx([math.log(2), math.log(3), math.log(5)])


def test_ranks_among_word_pieces() -> None:
    """Single letters and signs, unused tokens and word endings have no rank of their own."""
    pieces = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "!", "[", "a", "the", "##s", "of", "##ing", "disk"]
    engine = Engine(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    ranks = WordRanks.build(Tokenizer(engine), pieces=True)
    assert ranks == {"!": 1, "[": 1, "a": 1, "the": 1, "of": 2, "disk": 3}
    assert ranks["mount"] == 4


@pytest.mark.parametrize("sign", ["▁▂▃▄", "Ġunju"])
def test_ranks_among_word_pieces_with_a_lone_word_mark(sign: str) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "!", "a", "the", "##s", sign, "disk", ""]
    engine = Engine(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    assert WordRanks.build(Tokenizer(engine), pieces=True) == {"!": 1, "a": 1, "the": 1, sign: 2, "disk": 3}


def test_ranks_among_pieces_with_word_start_marks() -> None:
    """In vocabularies like RoBERTa's, a piece without a mark continues a word and is not a word itself."""
    pieces = ["<s>", "</s>", "<mask>", "<unk>", "<pad>", "!", "a", "Ġthe", "ing", "Ġof", "ĠThe", "Ġdisk", "Ġ"]
    engine = Engine(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="<s>"))
    assert WordRanks.build(Tokenizer(engine), pieces=True) == {"!": 1, "a": 1, "the": 1, "of": 2, "disk": 3}

"""Messages as word pieces: the tokens around them, the limit of their length, and the names before them."""

from itertools import pairwise

import numpy as np
import pytest

from fixtures import tokenizer
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data import pieces
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.pieces import encode_pieces, format_message
from ramify.errors import RamifyError
from ramify.tree import Node, Tree

CLS, SEP = tokenizer().cls_id, tokenizer().sep_id
LAYOUT = tokenizer().layout("bert")
MESSAGES = [
    Node("aa be ci", author="ga"),
    Node("", author="ga"),
    Node("", author=None),
    Node("ha hu", author=None, kind="system"),
    Node("aa ae ai ao au ay aw ba be bi", author="he"),
    Node("bo", author=""),
]


def rows(messages: list[Node], *, author: bool = False, max_tokens: int = 20) -> tuple[list[list[int]], int]:
    ids, starts, cut = encode_pieces(tokenizer(), messages, author=author, max_tokens=max_tokens, layout=LAYOUT)
    assert starts[0] == 0
    assert starts[-1] == len(ids)
    assert len(starts) == len(messages) + 1
    return [ids[first:stop].tolist() for first, stop in pairwise(starts.tolist())], cut


def pieces_of(text: str) -> list[int]:
    return tokenizer().encode(text)


@pytest.mark.parametrize("author", [False, True])
def test_each_message_starts_with_cls_and_ends_with_sep(author: bool) -> None:
    found, cut = rows(MESSAGES, author=author)
    texts = [f"{each.author}: {each.text}" if author and each.author else each.text for each in MESSAGES]
    assert found == [[CLS, *pieces_of(text), SEP] for text in texts]
    assert cut == 0


def test_authors_are_prefixed_if_present() -> None:
    assert [format_message(each, author=True) for each in MESSAGES[:4]] == ["ga: aa be ci", "ga: ", "", "ha hu"]
    assert format_message(MESSAGES[5], author=True) == "bo"
    assert format_message(MESSAGES[0], author=False) == "aa be ci"


def test_message_without_text_is_cls_and_sep() -> None:
    found, _ = rows(MESSAGES)
    assert found[1] == found[2] == [CLS, SEP]


@pytest.mark.parametrize("longest", [1, 2, 3, 5, 9, 10, 11])
def test_long_messages_are_truncated_and_counted(longest: int) -> None:
    found, cut = rows(MESSAGES, max_tokens=longest + 2)
    assert found == [[CLS, *pieces_of(each.text)[:longest], SEP] for each in MESSAGES]
    assert cut == sum(len(each.text.split()) > longest for each in MESSAGES)


def test_author_name_counts_towards_the_length() -> None:
    # "he", ":" and ten words.
    for max_tokens, cut in ((14, 0), (13, 1)):
        (found,), counted = rows(MESSAGES[4:5], author=True, max_tokens=max_tokens)
        assert len(found) == max_tokens
        assert counted == cut


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7])
def test_pieces_do_not_depend_on_the_batch_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encode_pieces(tokenizer(), MESSAGES, author=True, max_tokens=6, layout=LAYOUT)
    monkeypatch.setattr(pieces, "_CHUNK", size)
    again = encode_pieces(tokenizer(), MESSAGES, author=True, max_tokens=6, layout=LAYOUT)
    assert np.array_equal(whole[0], again[0])
    assert np.array_equal(whole[1], again[1])
    assert whole[2] == again[2] == 2


def test_no_messages_give_no_pieces() -> None:
    assert rows([]) == ([], 0)


@pytest.mark.parametrize("author", [False, True])
def test_logs_are_tokenized_as_the_input_specifies(author: bool) -> None:
    trees = [Tree(tuple(MESSAGES[:3]), id="one"), Tree(tuple(MESSAGES[3:]), id="two")]
    input = ChatInput(texts="pieces", author_in_text=author, max_tokens=5)
    logs = Logs.build(trees, input).tokenize(tokenizer())
    expected, cut = rows(MESSAGES, author=author, max_tokens=5)
    assert logs.num_truncated == cut
    ids, lengths = logs.select_tokens(np.array([4, 0, 4]))
    assert ids.tolist() == [*expected[4], *expected[0], *expected[4]]
    assert lengths.tolist() == [len(expected[4]), len(expected[0]), len(expected[4])]
    words = Logs.build(trees, ChatInput(texts="words", max_tokens=5)).tokenize(tokenizer())
    # Whole words get no SEP, and messages are not cut.
    assert words.num_truncated == 0
    assert SEP not in words.ids


def test_max_tokens_leaves_room_for_one_piece() -> None:
    with pytest.raises(RamifyError, match=r"input\.max_tokens .*at least 3, .*but is 2"):
        ChatInput(texts="pieces", max_tokens=2)

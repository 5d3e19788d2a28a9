"""Views of generative models: pairs of texts, rows of running text, and their batches."""

import numpy as np
import pytest

from fixtures import discussion, tokenizer
from ramify.batching.pair_batch import PairCollator
from ramify.batching.views.pairs import Pair, PairInput, Pairs, TextRows
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tree import Node, Tree

WORDS = tokenizer()
BEGIN, END = WORDS.cls_id, WORDS.sep_id
ASKED = Tree(
    (
        Node("ba be bi", id="post"),
        Node("ce", (0,), id="reply"),
        Node("", (0,), id="deleted"),
        Node("ha hi", (2,), id="below"),
        Node("da de di do du", (1,), id="long"),
    )
)


def ids(text):
    return WORDS.encode(text)


def test_every_text_with_the_text_that_it_answers():
    view = Pairs(Store.from_trees([ASKED]), WORDS, "all", PairInput())
    read = [(pair.source.tolist(), pair.target.tolist(), pair.ends) for pair in map(view.example, range(len(view)))]
    assert read == [(ids("ba be bi"), ids("ce"), True), (ids("ce"), ids("da de di do du"), True)]
    assert view.target_tokens.tolist() == [2, 6]
    assert view.costs.tolist() == [6, 8]
    assert (view.counts.examples, view.counts.empty, view.counts.long) == (2, 2, 0)
    assert (view.counts.tokens, view.counts.source_tokens) == (8, 6)


def test_long_texts_are_left_out_or_truncated():
    store = Store.from_trees([ASKED])
    view = Pairs(store, WORDS, "all", PairInput(max_tokens=5))
    assert (len(view), view.counts.long) == (1, 1)
    view = Pairs(store, WORDS, "all", PairInput(max_tokens=5, max_source_tokens=3, long="truncate"))
    assert (len(view), view.counts.long) == (2, 2)
    assert view.example(0).source.tolist() == ids("ba be")
    # A truncated target has no end.
    assert (view.example(1).target.tolist(), view.example(1).ends) == (ids("da de di do du"), False)
    assert view.target_tokens.tolist() == [2, 5]


def test_data_without_pairs():
    alone = Store.from_trees([Tree((Node("ba be"),))])
    with pytest.raises(RamifyError, match=r"holds no text in the split 'all' that answers.*--format parallel"):
        Pairs(alone, WORDS, "all", PairInput())
    with pytest.raises(RamifyError, match="leave out all pairs of the split 'all'"):
        Pairs(Store.from_trees([discussion([-1, 0], lengths=[9, 9])]), WORDS, "all", PairInput(max_tokens=4))
    with pytest.raises(RamifyError, match="no pair of the split 'all' in which both texts have words"):
        Pairs(Store.from_trees([Tree((Node(""), Node("ba", (0,))))]), WORDS, "all", PairInput())


def test_rows_of_running_text_hold_every_token_once_and_the_ends_of_documents():
    trees = [discussion([-1, 0, 0], lengths=[3, length, 2], seed=length, name=f"t{length}") for length in range(1, 30)]
    view = TextRows(Store.from_trees(trees), WORDS, "all", PairInput(max_tokens=12))
    rows = [view.example(number) for number in range(len(view))]
    assert all(row.num_predicted == tokens <= 12 for row, tokens in zip(rows, view.target_tokens, strict=True))
    labels = [token for row in rows for token in PairCollator(BEGIN, END)([row]).labels.tolist()]
    texts = [[node.text for node in tree.nodes] for tree in trees]
    assert labels == [token for words in texts for token in [*ids(" ".join(words)), END]]


def test_a_batch_shows_what_follows_each_token():
    pairs = [
        Pair(np.array([7, 8, 9]), np.array([5])),
        Pair(np.array([6]), np.array([4, 3]), ends=True),
        Pair(np.array([8, 7]), np.array([2]), ends=False),
    ]
    batch = PairCollator(BEGIN, END)(pairs)
    target, lengths = batch.target.ids.split(batch.target.rows.host_lengths.tolist()), batch.target.rows.host_lengths
    labels = batch.labels.split(lengths.tolist())
    sources = batch.source.ids.split(batch.source.rows.host_lengths.tolist())
    read = {tuple(row.tolist()): (after.tolist(), source.tolist()) for row, after, source in zip(target, labels, sources)}
    assert read == {
        (BEGIN, 7, 8, 9): ([7, 8, 9, END], [5, END]),
        (BEGIN, 6): ([6, END], [4, 3, END]),
        (BEGIN, 8): ([8, 7], [2, END]),
    }

"""Rows of labelled texts: which texts they hold, and which tokens are left out first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import discussion, parent_arrays, tokenizer
from ramify.batching.labelled_batch import LabelledCollator
from ramify.batching.views.labelled import LabelInput, LabelledView, RowTexts, resolved_input
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tree import Node, Tree

WORDS = tokenizer()
CLS, SEP = WORDS.cls_id, WORDS.sep_id


def rows_of(trees, nodes, **settings):
    return RowTexts(Store.from_trees(trees), WORDS, np.array(nodes), LabelInput(**{"pair": "none", **settings}))


def laid_out(rows):
    view = LabelledView(rows, np.arange(len(rows.text)))
    batch = LabelledCollator.of(rows)([view.example(number) for number in range(len(view))])
    ids = np.split(batch.input.ids.numpy(), batch.input.rows.offsets[1:-1].numpy())
    assert batch.targets.tolist() == batch.order.tolist()
    assert sum(view.costs) == batch.input.rows.total
    return {int(number): row.tolist() for number, row in zip(batch.order, ids, strict=True)}


def plain(tree, node, settings, longest):
    """The same row, token by token."""
    parent = [each.parents[0] if each.parents else -1 for each in tree.nodes]

    def encoded(number):
        return WORDS.encode(tree.nodes[number].text)

    text = encoded(node if settings.get("text") != "parent" else parent[node])
    node = node if settings.get("text") != "parent" else parent[node]
    first = encoded(parent[node]) if settings.get("pair") == "parent" else None
    top = parent[node] if first is not None else node
    context = settings.get("context", "none")
    if first is None and context == "none":
        return [CLS, *text[: longest - 2], SEP]
    room = longest - 3
    before = first or []
    while len(before) + len(text) > room:
        # The longer text loses a token; of two equal ones, the second.
        if len(before) > max(len(text), room - room // 2) or len(text) <= room // 2:
            before = before[:-1]
        else:
            text = text[:-1]
    above = []
    while parent[top] >= 0 and context != "none" and len(above) < (1 if context == "parent" else 99):
        top = parent[top]
        above.insert(0, encoded(top))
    joined = [token for part in above for token in (*part, SEP)]
    if first is None:
        joined = joined[:-1]
    left = room - len(before) - len(text)
    if first is not None and left < 2:
        joined = []
    return [CLS, *joined[max(0, len(joined) - left) :], *before, SEP, *text, SEP]


SETTINGS = [
    {},
    {"text": "parent"},
    {"pair": "parent"},
    {"context": "parent"},
    {"context": "tree"},
    {"text": "parent", "context": "tree"},
    {"pair": "parent", "context": "tree"},
    {"pair": "parent", "context": "parent"},
]


@given(parent_arrays(max_comments=8, min_comments=1), st.sampled_from(SETTINGS), st.integers(5, 30), st.integers(0, 9))
def test_rows_are_those_of_a_plain_loop(parent, settings, longest, seed):
    tree = discussion(parent, seed=seed)
    nodes = [*range(1, len(parent))]
    rows = laid_out(rows_of([tree], nodes, max_tokens=longest, **settings))
    for number, node in enumerate(nodes):
        assert rows[number] == plain(tree, node, settings, longest)
        assert len(rows[number]) <= longest


def test_the_oldest_tokens_are_left_out_first():
    tree = discussion((-1, 0, 1, 2), lengths=(4, 4, 4, 4))
    encoded = [WORDS.encode(node.text) for node in tree.nodes]
    for longest in range(7, 30):
        (row,) = laid_out(rows_of([tree], [3], max_tokens=longest, context="tree")).values()
        above = [*encoded[0], SEP, *encoded[1], SEP, *encoded[2]]
        left = longest - 3 - 4
        assert row == [CLS, *above[max(0, len(above) - left) :], SEP, *encoded[3], SEP]


def test_nodes_without_a_parent_are_left_out_and_counted():
    tree = discussion((-1, 0, 0), lengths=(2, 0, 3))
    rows = rows_of([tree], [0, 1, 2], pair="parent")
    assert rows.kept.tolist() == [1, 2]
    counts = rows.counts(3)
    assert (counts.texts, counts.left_out, counts.empty, counts.cut) == (2, 1, 1, 0)


def test_pairs_are_found_in_the_data():
    assert resolved_input(LabelInput(), Store.from_trees([discussion((-1, 0))]), np.array([1])).pair == "parent"
    store = Store.from_trees([discussion((-1, 0, 0))])
    store.info["format"] = "labelled"
    input = LabelInput()
    assert resolved_input(input, store, np.array([1])).pair == "parent"
    assert resolved_input(input, store, np.array([0, 1])).pair == "none"
    store.info["format"] = "jsonl"
    assert resolved_input(input, store, np.array([1])).pair == "none"
    with pytest.raises(RamifyError, match=r"input.pair=parent needs the text above .* second column"):
        resolved_input(LabelInput(pair="parent"), store, np.array([0]))
    with pytest.raises(RamifyError, match=r"input.text=parent needs the text above"):
        resolved_input(LabelInput(text="parent"), store, np.array([0]))


def test_settings_that_contradict_each_other():
    with pytest.raises(RamifyError, match=r"input.pair=parent .* with input.text=parent it is never read"):
        LabelInput(text="parent", pair="parent")


def test_rows_too_short_for_their_special_tokens():
    with pytest.raises(RamifyError, match=r"input.max_tokens=3 leaves no room for text beside 3 special tokens"):
        laid_out(rows_of([Tree((Node("ba"), Node("be", parents=(0,))))], [1], max_tokens=3, pair="parent"))

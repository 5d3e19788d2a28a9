"""Copyediting: its invariants, its controls, and the way from edited vectors to text."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import built
from fixtures.letters import letter, letters, pipeline
from fixtures.nested import writing
from ramify import Node, RamifyError, Tree
from ramify.batching.document_batch import CONT, EOS, JOIN, MASK, NUM_MARKS
from ramify.batching.views.documents import LevelInput
from ramify.dataset.store import Store
from ramify.inference.documents import copyedit
from ramify.inference.documents.copyedit import (
    Copyediting,
    Copyeditor,
    TokenShares,
    predicted_children,
    siblings_mean,
    with_edits,
)
from ramify.inference.documents.copyedited_documents import copyedit_document
from ramify.inference.documents.decoding import RAW, ChildScores, PassRule, children_at, decode_children
from ramify.inference.documents.known_vectors import KnownVectors
from ramify.inference.documents.node_reconstruction import as_text, reconstruct
from ramify.inference.documents.vector_trees import VectorTree, as_trees, decoded_tree, encoded_tree
from ramify.inference.documents.vectors import encode_documents, read_documents
from ramify.metrics.edits import change_rate, edit_distance
from ramify.models.name_memory import NameMemoryConfig
from ramify.nn.ragged import Rows
from ramify.tasks.nested.config import NestedAutoencoderConfig

EVERY_OPTION = {"scores": "cosine", "classes": "children", "head": "deep", "sibling_path": True, "balanced": False}


def loud(model):
    writing(model.task, 0.15)
    return model


@pytest.fixture(scope="module", params=["plain", "cosine"])
def model(request):
    config = NestedAutoencoderConfig(queue=0, **(EVERY_OPTION if request.param == "cosine" else {}))
    return loud(pipeline(task=config, decoder_length="predicted"))


def tree_of(model, trees=None):
    store = Store.from_trees(letters() if trees is None else trees)
    view, collator = read_documents(model.backbone, model.tokenizer, model.input, store, np.arange(store.num_trees))
    return encoded_tree(collator, encode_documents(model.backbone, view, collator))


@cache
def known_of(model):
    return KnownVectors.of(model.backbone, model.tokenizer, model.input, Store.from_trees(letters()))


def edited(model, tree, **given):
    known = known_of(model).levels
    return Copyeditor(model.task, Copyediting(**given), known, [None, *known]).edited(tree)


def generated(model, passing="raw"):
    """Documents decoded from random vectors."""
    random = np.random.default_rng(3)
    vectors = random.standard_normal((9, model.backbone.config.dims[-1])).astype(np.float32)
    known = known_of(model).levels
    return decoded_tree(model.task, model.backbone.depth - 1, vectors, np.arange(9), [None, *known], PassRule(passing, known))


def same(one, other):
    return all(
        np.array_equal(a.vectors, b.vectors) and np.array_equal(a.slots, b.slots) and np.array_equal(a.lengths, b.lengths)
        for a, b in zip(one.levels, other.levels, strict=True)
    )


def moved(one, other):
    """Whether each level's vectors differ."""
    return [not np.array_equal(a.vectors, b.vectors) for a, b in zip(one.levels, other.levels, strict=True)]


# --- invariants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("towards", "order"),
    [
        ("masked", "per_level"),
        ("masked", "traversal"),
        ("siblings_mean", "per_level"),
        ("random_vector", "traversal"),
        ("noise", "per_level"),
    ],
)
def test_a_step_of_zero_changes_no_given_text(model, order, towards):
    tree = tree_of(model)
    options = {"order": order, "towards": towards, "passes": 2}
    assert same(edited(model, tree, epsilon=0.0, **options), tree)
    assert not same(edited(model, tree, epsilon=0.5, **options), tree)
    assert copyedit_document(model.task, letters()[0], Copyediting(epsilon=0.0)).after == letters()[0]


@pytest.mark.parametrize(
    ("propagate", "order", "passing"),
    [
        ("regenerate", "per_level", "raw"),
        ("regenerate", "traversal", "rescaled"),
        ("regenerate", "per_level", "snap"),
        ("regenerate", "traversal", "bank_mean"),
        ("delta", "per_level", "bank_mean"),
        ("delta", "traversal", "raw"),
    ],
)
def test_a_step_of_zero_changes_no_generated_tree(model, propagate, order, passing):
    tree = generated(model, passing)
    sizes = [len(level.lengths) for level in tree.levels]
    assert min(sizes)
    assert sum(sizes) > 20
    options = {"propagate": propagate, "order": order, "passing": passing, "passes": 2}
    assert same(edited(model, tree, epsilon=0.0, **options), tree)
    assert not same(edited(model, tree, epsilon=0.5, **options), tree)


@pytest.mark.parametrize("update", ["simultaneous", "sequential"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_nothing_moves_where_every_node_is_as_predicted(model, monkeypatch, epsilon, update):
    tree = tree_of(model)

    def as_it_is(task, level, parents, vectors, asked, rule):
        return vectors[parents.child[asked]]

    monkeypatch.setattr(copyedit, "predicted_children", as_it_is)
    for towards in ("masked", "noise"):
        assert same(edited(model, tree, epsilon=epsilon, passes=3, update=update, towards=towards), tree)


def test_sequential_updates_read_the_new_vectors_of_earlier_siblings(model):
    tree = tree_of(model)
    at_once, in_turn = (edited(model, tree, epsilon=0.5, update=update) for update in ("simultaneous", "sequential"))
    chapters = -2
    first = tree.levels[-1].child[tree.levels[-1].child_row == 0]
    assert len(first) == 2
    before, one, other = (each.levels[chapters].vectors for each in (tree, at_once, in_turn))
    # The first chapter of a document is predicted from old vectors in both; the second reads the first.
    np.testing.assert_allclose(one[first[0]], other[first[0]], rtol=0, atol=1e-6)
    assert np.abs(one[first[1]] - other[first[1]]).max() > 1e-4
    assert np.abs(one[first] - before[first]).max() > 1e-4


@pytest.mark.parametrize("towards", ["masked", "noise", "random_vector"])
def test_the_order_of_documents_changes_nothing(model, towards):
    tree = tree_of(model)
    turned = tree_of(model, letters()[::-1])
    # A document keeps its number.
    turned = replace(turned, document=2 - turned.document)
    options = {"epsilon": 0.3, "passes": 2, "towards": towards}
    one, other = (as_trees(edited(model, each, **options), model.levels, model.tokenizer) for each in (tree, turned))
    assert one == other
    tops = edited(model, tree, **options), edited(model, turned, **options)
    for level in range(len(tree.levels)):
        for number in range(3):
            vectors = [each.levels[level].vectors[each.document_of[level] == number] for each in tops]
            np.testing.assert_allclose(*vectors, rtol=0, atol=1e-5)


def test_random_steps_depend_on_the_seed_and_on_nothing_else(model):
    tree = tree_of(model)
    for towards in ("noise", "random_vector"):
        one, again, other = (edited(model, tree, towards=towards, seed=seed) for seed in (1, 1, 2))
        assert same(one, again)
        assert not same(one, other)


def test_a_step_of_noise_is_as_long_as_that_towards_the_prediction(model):
    tree, chapters = tree_of(model), -2
    lengths = []
    for towards in ("masked", "noise"):
        step = edited(model, tree, epsilon=0.2, towards=towards).levels[chapters].vectors - tree.levels[chapters].vectors
        lengths.append(np.linalg.norm(step, axis=1))
    assert (lengths[0] > 1e-4).sum() == 5
    np.testing.assert_allclose(*lengths, rtol=1e-4, atol=1e-7)


def test_the_mean_of_siblings_is_that_of_all_others(model):
    tree = tree_of(model)
    parents, vectors = tree.levels[1], tree.levels[0].vectors
    asked = np.flatnonzero(parents.counts[parents.child_row] > 1)
    for place, mean in zip(asked.tolist(), siblings_mean(parents, vectors, asked)):
        others = [child for child in np.flatnonzero(parents.child_row == parents.child_row[place]) if child != place]
        np.testing.assert_allclose(mean, vectors[parents.child[others]].mean(0), rtol=1e-5, atol=1e-6)


# --- predictions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["packed", "full"])
def test_a_node_is_predicted_from_its_siblings_alone_and_through_the_way_back(padding):
    config = NestedAutoencoderConfig(queue=0, **EVERY_OPTION)
    model = loud(pipeline(task=config, padding=padding))
    tree = tree_of(model)
    parents, vectors = tree.levels[1], tree.levels[0].vectors
    asked = np.flatnonzero(parents.counts[parents.child_row] > 1)
    found = predicted_children(model.task, 1, parents, vectors, asked, RAW)
    place = int(asked[1])
    row = parents.row(int(parents.child_row[place])).copy()
    own = int(parents.child_place[place] - parents.starts[parents.child_row[place]])
    row[own] = MASK
    if padding == "full":
        row = np.concatenate([row, np.full(4 - len(row), 3)])
    with torch.no_grad():
        items = model.backbone.encoder(1).items(torch.from_numpy(vectors))
        states = model.task.masked_predictions(1, items, torch.from_numpy(row), Rows.build([len(row)]), torch.tensor([own]))
        right = model.task.mlm_spaces[0].restore(states)
    np.testing.assert_allclose(found[1], right[0].numpy(), rtol=1e-4, atol=1e-5)
    assert np.abs(found[1] - states[0].numpy()).max() > 1e-3
    # Its own vector is not read, and its sibling's is.
    other = vectors.copy()
    other[parents.child[place]] += 1
    again = predicted_children(model.task, 1, parents, other, asked[1:2], RAW)
    np.testing.assert_allclose(again[0], found[1], rtol=0, atol=1e-5)
    other[parents.child[asked[0]]] += 1
    assert np.abs(predicted_children(model.task, 1, parents, other, asked[1:2], RAW)[0] - found[1]).max() > 1e-3


@pytest.mark.parametrize("kind", ["children", "masked"])
def test_vectors_are_passed_on_in_four_ways(model, kind):
    known = known_of(model).levels
    task, states = model.task, torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        raw, rescaled, mean, snap = (
            getattr(PassRule(name, known), kind)(task, 1, states) for name in ("raw", "rescaled", "bank_mean", "snap")
        )
        space = task.reconstruction_spaces if kind == "children" else task.mlm_spaces
        restored = states if space is None else space[0].restore(states)
        vectors = torch.from_numpy(known[0])
        if space is None:
            scores = states @ vectors.T
        else:
            keys = torch.nn.functional.normalize(space[0].classes(vectors - task.centre(1).mean), dim=1)
            scores = torch.nn.functional.normalize(states, dim=1) @ keys.T / 0.1
    assert torch.equal(raw, restored)
    torch.testing.assert_close(torch.linalg.vector_norm(rescaled, dim=1), vectors.norm(dim=1).mean().expand(5))
    torch.testing.assert_close(torch.cosine_similarity(rescaled, restored), torch.ones(5))
    if space is not None:
        scores = scores * 0.1 * torch.exp(-space[0].log_temperature)
    torch.testing.assert_close(mean, torch.softmax(scores, 1) @ vectors, rtol=1e-4, atol=1e-5)
    assert torch.equal(snap, vectors[scores.argmax(1)])
    states = torch.randn(5, 8)
    assert torch.equal(PassRule("snap", known).children(task, 0, states), states)


# --- trees --------------------------------------------------------------------------------------------------------------


def test_a_tree_of_vectors_is_the_document(model):
    (harbour, garden, note) = as_trees(tree_of(model), model.levels, model.tokenizer)
    for found, right in ((harbour, letters()[0]), (garden, letters()[1]), (note, letters()[2])):
        assert [node.kind for node in found.nodes] == [node.kind for node in right.nodes]
        assert [node.id for node in found.nodes] == [node.id for node in right.nodes]
        assert [node.parents for node in found.nodes] == [node.parents for node in right.nodes]
        assert [node.text for node in found.nodes] == [node.text.lower() for node in right.nodes]


@pytest.mark.parametrize("overflow", ["cut", "pack"])
def test_pieces_and_packed_nodes_are_documents_again(overflow):
    model = pipeline(max_children=(12, 4, 4, 4), input=LevelInput(overflow=overflow))
    long = letter("long", [[["the boat came in " * 4, "Ann."], ["We ate.", "Ann."]] * 2] * 2)
    tree = tree_of(model, [long])
    assert {int(slot) for level in tree.levels for slot in level.slots if slot < NUM_MARKS} == (
        {EOS, CONT} if overflow == "cut" else {EOS, CONT, JOIN}
    )
    (found,) = as_trees(tree, model.levels, model.tokenizer)
    assert [(node.kind, node.id, node.text) for node in found.nodes] == [
        (node.kind, node.id, " ".join(node.text.lower().split())) for node in long.nodes
    ]


@pytest.mark.parametrize("overflow", ["cut", "pack"])
def test_the_mark_between_packed_nodes_is_decoded_only_where_nodes_are_packed(overflow):
    task = pipeline(input=LevelInput(overflow=overflow)).task
    for level in range(2):
        candidates = None if level == 0 else torch.zeros(3, task.backbone.config.dims[level])
        assert bool(ChildScores(task, level, candidates).allowed[JOIN]) == (overflow == "pack")


def test_decoded_trees_have_the_text_of_reconstructions(model):
    store = Store.from_trees(letters())
    found = reconstruct(model.task, store, np.arange(3), 3)
    tree = tree_of(model)
    tops = tree.levels[-1].vectors
    decoded = decoded_tree(model.task, 3, tops, tree.document, [None, *(level.vectors for level in tree.levels)])
    trees = as_trees(decoded, model.levels, model.tokenizer)
    assert any(len(each.nodes) > 3 for each in trees)
    for own, right in zip(trees, found.decoded, strict=True):
        words = " ".join(node.text for node in own.nodes if node.text).split()
        assert words == as_text(model.tokenizer, model.levels, right).split()


def test_one_level_of_many_nodes_is_cut_and_counted(model, monkeypatch):
    whole = generated(model)
    assert not whole.cut
    most = max(np.bincount(numbers).max() for numbers in whole.document_of[:-1])
    monkeypatch.setattr("ramify.inference.documents.vector_trees.MOST_ROWS", int(most) - 1)
    cut = generated(model)
    assert cut.cut
    assert max(np.bincount(numbers).max() for numbers in cut.document_of[:-1]) == most - 1


# --- the levels below ---------------------------------------------------------------------------------------------------


def test_children_are_decoded_at_their_places(model):
    """Differences are those of two decoders' outputs at the same places, whatever length either vector predicts."""
    tree = tree_of(model)
    chapters, paragraphs = tree.levels[2], tree.levels[1]
    found = children_at(model.task, 2, chapters.vectors, chapters.slots, chapters.lengths, paragraphs.vectors)
    task, decoder = model.task, model.task.decoder.level(2)
    for row in range(len(chapters.lengths)):
        laid = Rows.build([int(chapters.lengths[row])])
        with torch.no_grad():
            states = decoder.parallel(decoder.decompress(torch.from_numpy(chapters.vectors[row : row + 1]), laid), laid)
            right = task.restored_children(2, states).numpy()
        start = chapters.starts[row]
        np.testing.assert_allclose(found[start : start + chapters.lengths[row]], right, rtol=1e-4, atol=1e-5)


def test_a_delta_moves_children_by_the_difference_of_what_is_decoded(model):
    tree = tree_of(model)
    after = edited(model, tree, epsilon=0.4)
    chapters, old = after.levels[2], tree.levels[2]
    before, now = (
        children_at(model.task, 2, level.vectors, old.slots, old.lengths, tree.levels[1].vectors) for level in (old, chapters)
    )
    difference = (now - before)[old.child_place]
    # Paragraphs without siblings are not edited themselves.
    alone = np.flatnonzero(old.counts[old.child_row] == 1)
    assert len(alone) == 3
    child = old.child[alone]
    np.testing.assert_allclose(
        after.levels[1].vectors[child] - tree.levels[1].vectors[child], difference[alone], rtol=1e-3, atol=1e-5
    )
    assert np.abs(difference[alone]).max() > 1e-3


LINES = letter("lines", [[["The boat came in."], ["We ate."], ["Then the rain came."]]])
"""A document whose sentences have no siblings."""


@pytest.mark.parametrize("order", ["per_level", "traversal"])
def test_edits_of_nodes_above_sentences_reach_the_text(model, order):
    given = copyedit_document(model.task, LINES, Copyediting(epsilon=0.0, order=order))
    assert (given.after, given.change_rate) == (LINES, 0.0)
    found = copyedit_document(model.task, LINES, Copyediting(epsilon=1.0, order=order))
    assert found.after != LINES
    assert found.change_rate > 0
    tree = tree_of(model, [LINES])
    assert same(edited(model, tree, epsilon=0.0, order=order), tree)
    after = edited(model, tree, epsilon=1.0, order=order)
    sentences, old = after.levels[0], tree.levels[0]
    # Tokens follow the whole movement of a sentence, all of which comes from its paragraph.
    before, now = (decode_children(model.task, 0, level.vectors) for level in (old, sentences))
    for row in range(3):
        right = with_edits(old.row(row), before[row].slots, now[row].slots, 8)
        np.testing.assert_array_equal(sentences.row(row), right)


def test_regenerated_levels_are_what_the_edited_vectors_decode_to(model):
    tree = tree_of(model)
    after = edited(model, tree, epsilon=0.4, propagate="regenerate", passes=2)
    known = known_of(model).levels
    chapters = after.levels[2]
    below = decoded_tree(model.task, 2, chapters.vectors, after.document_of[2], [None, *known])
    assert np.array_equal(below.levels[2].slots, chapters.slots)
    paragraphs = after.levels[1].vectors
    assert paragraphs.shape == below.levels[1].vectors.shape
    alone = chapters.child[chapters.counts[chapters.child_row] == 1]
    np.testing.assert_array_equal(paragraphs[alone], below.levels[1].vectors[alone])
    # The document's own vector has no siblings, so its chapters are edited, and not decoded anew.
    assert np.array_equal(after.levels[3].vectors, tree.levels[3].vectors)
    assert np.array_equal(after.levels[3].slots, tree.levels[3].slots)


@pytest.mark.parametrize("order", ["per_level", "traversal"])
def test_regenerated_levels_that_are_cut_are_counted(model, monkeypatch, order):
    tree, options = tree_of(model), {"epsilon": 0.4, "propagate": "regenerate", "order": order, "passes": 2}
    whole = edited(model, tree, **options)
    assert not whole.cut
    assert model.copyedit(letters()[0], **options).notes == ()
    sizes = np.array([np.bincount(numbers, minlength=3) for numbers in whole.document_of[:2]]).max(0)
    monkeypatch.setattr("ramify.inference.documents.vector_trees.MOST_ROWS", int(sizes.max()) - 1)
    cut = edited(model, tree, **options)
    assert cut.cut == set(np.flatnonzero(sizes == sizes.max()).tolist())
    monkeypatch.setattr("ramify.inference.documents.vector_trees.MOST_ROWS", 1)
    assert not copyedit_document(model.task, letters()[0], Copyediting(**options)).is_whole
    (note,) = model.copyedit(letters()[0], **options).notes
    assert "which is the limit" in note


def test_a_second_traversal_discards_what_the_first_one_edited_below():
    model = pipeline(task=NestedAutoencoderConfig(queue=0), decoder_length="predicted")
    model = loud(model)
    tree = tree_of(model)
    options = {"epsilon": 0.4, "propagate": "regenerate"}
    per_level, traversal = (edited(model, tree, passes=2, order=order, **options) for order in ("per_level", "traversal"))
    # Both have two passes of the highest edited level, and the traversal has one below.
    np.testing.assert_array_equal(per_level.levels[2].vectors, traversal.levels[2].vectors)
    assert any(moved(per_level, traversal)[:2])
    # One traversal from the chapters that two passes have made.
    once = edited(model, tree, passes=1, **options).levels[2].vectors
    rest = replace(tree, levels=(*tree.levels[:2], replace(tree.levels[2], vectors=once), tree.levels[3]))
    assert same(edited(model, rest, passes=1, **options), traversal)


def test_edits_of_decoded_tokens_are_made_to_the_given_ones():
    def slots(text):
        return np.array([NUM_MARKS + ord(letter) if letter not in "|$" else {"|": JOIN, "$": EOS}[letter] for letter in text])

    def shown(row):
        marks = {JOIN: "|", EOS: "$"}
        return "".join(marks[slot] if slot < NUM_MARKS else chr(slot - NUM_MARKS) for slot in row.tolist())

    def result(given, before, after, places=9):
        return shown(with_edits(slots(given), slots(before), slots(after), places))

    assert result("abcd$", "wxyz", "wxyz") == "abcd$"
    assert result("abcd$", "wxyz", "wqyz") == "aqcd$"
    assert result("abcd$", "wxyz", "wxyzq") == "abcdq$"
    assert result("abcd$", "wxyz", "qwxyz") == "qabcd$"
    assert result("abcd$", "wxyz", "wyz") == "acd$"
    # Behind the last given token there is nothing to change.
    assert result("ab$", "wxyz", "wxyq") == "ab$"
    assert result("ab$", "wxyz", "wqqz") == "aqq$"
    # No row grows beyond its places, and borders between packed nodes stay.
    assert result("abcd$", "wxyz", "qwxyz", places=5) == "abcd$"
    assert result("ab|cd$", "wx|yz", "wxqyz") == "ab|cd$"
    assert result("ab|cd$", "wx|yz", "wx|qz") == "ab|qd$"
    assert result("$", "w", "q") == "$"


def test_only_edited_sentences_have_another_text(model):
    document = letters()[1]
    found = copyedit_document(model.task, document, Copyediting(epsilon=1.0, passes=2))
    assert 0 < found.change_rate <= 1
    pairs = list(zip(document.nodes, found.after.nodes, strict=True))
    changed = [one for one, other in pairs if one.text != other.text]
    assert changed
    assert all(replace(other, text=one.text) == one for one, other in pairs)
    tokens = [[model.tokenizer.encode(node.text) for node in each.nodes] for each in (document, found.after)]
    assert sum(one == other for one, other in zip(*tokens)) >= len(pairs) - len(changed)


def test_texts_of_several_nodes_of_one_level_are_edited_together(model):
    nodes = [Node("Ann came.", id="0", kind="document"), Node("He left.", (0,), id="1", kind="note")]
    nodes += [Node(f"We {word} ate the boat.", (0,), id=word, kind="sentence") for word in ("all", "then")]
    found = copyedit_document(model.task, Tree(tuple(nodes), id="odd"), Copyediting(epsilon=1.0, passes=3))
    first, second = found.after.nodes[:2]
    assert (first.text, second.text) == ("Ann came.", "He left.") or second.text == ""


# --- tokens -------------------------------------------------------------------------------------------------------------


def edited_tokens_of(model, tree, **given):
    """The tokens after passes over tokens alone: no other level has siblings."""
    alone = VectorTree(tree.levels[:1], np.arange(len(tree.levels[0].lengths)))
    return edited(model, alone, lowest="token", **given).levels[0].slots


def test_tokens_become_what_is_predicted_of_them_behind_the_mask_of_the_vocabulary(model):
    tree = tree_of(model)
    slots = tree.levels[0].slots
    for towards in ("masked", "siblings_mean", "random_vector", "noise"):
        assert np.array_equal(edited_tokens_of(model, tree, epsilon=0.0, towards=towards, passes=2), slots)
    found = edited_tokens_of(model, tree, epsilon=1.0)
    rows, task = tree.levels[0], model.task
    number = 0
    for row in range(len(rows.lengths)):
        for place in np.flatnonzero(rows.row(row) >= NUM_MARKS).tolist():
            at = rows.starts[row] + place
            if rows.counts[row] == 1:
                assert found[at] == slots[at]
                continue
            shown = torch.from_numpy(rows.row(row)).clone()
            shown[place] = NUM_MARKS + model.tokenizer.mask_id
            with torch.no_grad():
                items = model.backbone.encoder(0).items(None)
                states = task.masked_predictions(0, items, shown, Rows.build([len(shown)]), torch.tensor([place]))
                scores = task.mlm_head(states)[0, NUM_MARKS:]
            scores[sorted(model.tokenizer.special_ids)] = -np.inf
            assert found[at] - NUM_MARKS == int(scores.argmax())
            number += found[at] != slots[at]
    assert number > 10
    # Below a half, one pass cannot outweigh the token itself.
    assert np.array_equal(edited_tokens_of(model, tree, epsilon=0.49), slots)
    assert not np.array_equal(edited_tokens_of(model, tree, epsilon=0.49, passes=12), slots)


def test_tokens_have_orders_controls_and_seeds_of_their_own(model):
    tree = tree_of(model)
    one, other = (edited_tokens_of(model, tree, epsilon=1.0, update=update) for update in ("simultaneous", "sequential"))
    assert not np.array_equal(one, other)
    for towards in ("random_vector", "noise"):
        first, again, second = (
            edited_tokens_of(model, tree, epsilon=1.0, passes=3, towards=towards, seed=seed) for seed in (1, 1, 2)
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, second)
    special = [NUM_MARKS + token for token in model.tokenizer.special_ids]
    assert not np.isin(edited_tokens_of(model, tree, epsilon=1.0, towards="random_vector"), special).any()


@pytest.mark.parametrize("towards", ["masked", "siblings_mean", "random_vector", "noise"])
def test_steps_of_tokens(model, towards):
    tree = tree_of(model)
    rows = tree.levels[0]
    editor = Copyeditor(model.task, Copyediting(towards=towards))
    shares = torch.softmax(torch.randn(len(rows.child), model.tokenizer.vocab_size), 1)
    own = TokenShares(editor, rows, np.zeros((len(rows.lengths), 2), dtype=np.int64), None)
    (group,) = editor.groups(rows)
    step = own._steps(shares, group, 0)
    goal = step + shares[group]
    if towards == "noise":
        masked = TokenShares(Copyeditor(model.task, Copyediting()), rows, own.names, None)._steps(shares, group, 0)
        torch.testing.assert_close(step.norm(dim=1), masked.norm(dim=1))
    else:
        torch.testing.assert_close(goal.sum(1), torch.ones(len(goal)))
        assert goal.min() > -1e-6
    if towards == "siblings_mean":
        place = int(group[4])
        others = np.flatnonzero(rows.child_row == rows.child_row[place])
        torch.testing.assert_close(goal[4], shares[others[others != place]].mean(0))


@pytest.mark.parametrize("towards", ["masked", "random_vector", "noise"])
@pytest.mark.parametrize("lowest", ["sentence", "token"])
def test_rows_that_truncation_leaves_out_stay(towards, lowest):
    model = loud(pipeline(max_children=(8, 3, 3, 4), input=LevelInput(overflow="truncate")))
    lines = [["The boat came in.", "Ann.", "We ate."], ["We ate.", "The rope broke."], ["Then the rain came.", "We ate."]]
    document = letter("long", [lines, lines])
    tree = tree_of(model, [document])
    after = edited(model, tree, epsilon=1.0, passes=2, towards=towards, lowest=lowest)
    for level, (old, new) in enumerate(zip(tree.levels, after.levels, strict=True)):
        numbers = tree.document_of[level]
        left_out = np.flatnonzero(numbers < 0)
        assert len(left_out) == [6, 2, 0, 0][level]
        np.testing.assert_array_equal(new.vectors[left_out], old.vectors[left_out])
        if level == 0:
            assert all(np.array_equal(new.row(row), old.row(row)) for row in left_out.tolist())
            assert any(not np.array_equal(new.row(row), old.row(row)) for row in np.flatnonzero(numbers == 0).tolist())
    settings = Copyediting(epsilon=1.0, towards=towards, lowest=lowest)
    found = copyedit_document(model.task, document, settings, known_of(model).levels)
    assert found.left_out > 0
    texts = [[node.text for node in each.nodes if node.id in ("1.1.3", "1.3.1", "1.3.2")] for each in (document, found.after)]
    assert texts[0] == texts[1]
    assert found.after != document


def test_rows_that_truncation_leaves_out_read_no_names():
    names = NameMemoryConfig(questions=3, filters=8)
    held = {"max_children": (8, 4, 4, 4), "input": LevelInput(overflow="truncate"), "decoder_length": "predicted"}
    model = loud(pipeline(names=names, **held))
    document = letter("long", [[["The boat came in.", "Ann."], ["We ate."]]] * 6)
    tree = tree_of(model, [document])
    assert (tree.document_of[2] < 0).any()
    found = copyedit_document(model.task, document, Copyediting(epsilon=1.0, propagate="regenerate"))
    assert found.left_out > 0
    assert found.after != document


@pytest.mark.parametrize("towards", ["random_vector", "noise"])
def test_draws_of_tokens_are_those_of_their_document(model, towards):
    tree = tree_of(model)
    turned = tree_of(model, letters()[::-1])
    turned = replace(turned, document=2 - turned.document)
    one, other = (edited(model, each, epsilon=1.0, towards=towards, lowest="token") for each in (tree, turned))
    assert as_trees(one, model.levels, model.tokenizer) == as_trees(other, model.levels, model.tokenizer)


def test_tokens_follow_all_levels_above(model):
    document = letters()[1]
    plain, tokens = (
        copyedit_document(model.task, document, Copyediting(epsilon=1.0, lowest=lowest)).after
        for lowest in ("sentence", "token")
    )
    assert plain != tokens
    assert copyedit_document(model.task, document, Copyediting(epsilon=0.0, lowest="token")).after == document


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (letter("one", [[["Come at six."]]]), "holds one sentence, so nothing has siblings"),
        (letter("none", []), "holds no text, so nothing has siblings"),
    ],
)
def test_a_document_without_siblings_is_refused(model, tree, reason):
    with pytest.raises(RamifyError, match=reason):
        copyedit_document(model.task, tree, Copyediting())


def test_a_model_of_one_level_is_refused():
    with pytest.raises(RamifyError, match=r"level sentence alone, .*`ramify train agent`"):
        copyedit_document(pipeline(levels=("sentence",)).task, letters()[0], Copyediting())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epsilon": 1.5}, r"epsilon=1.5 .* from 0 to 1"),
        ({"epsilon": -0.1}, "epsilon"),
        ({"passes": -1}, "passes=-1"),
        ({"seed": -1}, r"seed=-1 is out of range"),
    ],
)
def test_impossible_settings_are_refused(options, reason):
    with pytest.raises(RamifyError, match=reason):
        Copyediting(**options)


# --- known vectors --------------------------------------------------------------------------------------------------------


def test_known_vectors_are_those_of_training_nodes(tmp_path, monkeypatch):
    model = pipeline(max_children=(40, 8, 8, 8))
    store = built(letters(), tmp_path, (0.67, 0.33, 0.0))
    known = KnownVectors.of(model.backbone, model.tokenizer, model.input, store)
    assert set(store.tree_of(known.nodes[0])) == set(store.split("train"))
    own = model.embed(store.trees(store.split("train")), level="sentence")
    np.testing.assert_allclose(known.levels[0], own, rtol=0, atol=1e-5)
    texts = [node.text for tree in store.trees(store.split("train")) for node in tree.nodes if node.kind == "sentence"]
    assert store.texts(known.nodes[0]) == texts
    monkeypatch.setattr("ramify.inference.documents.known_vectors._compute", lambda *given: 1 / 0)
    again = KnownVectors.of(model.backbone, model.tokenizer, model.input, store)
    assert all(np.array_equal(one, other) for one, other in zip(known.levels, again.levels))
    known.check(model.backbone, model.tokenizer, model.input)
    other = loud(pipeline(max_children=(40, 8, 8, 8)))
    with pytest.raises(RamifyError, match=r"the bank of .* was made by another model"):
        known.check(other.backbone, other.tokenizer, other.input)


# --- edit distance --------------------------------------------------------------------------------------------------------


def by_definition(one, other):
    table = [[*range(len(other) + 1)]]
    for row, item in enumerate(one, 1):
        line = [row]
        for column, right in enumerate(other, 1):
            line.append(min(table[-1][column] + 1, line[-1] + 1, table[-1][column - 1] + (item != right)))
        table.append(line)
    return table[-1][-1]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_edit_distances_are_those_of_the_definition(one, other):
    distance = by_definition(one, other)
    assert edit_distance(np.array(one), np.array(other)) == distance
    assert change_rate(np.array(one), np.array(other)) == (distance / max(len(one), len(other)) if one or other else 0)

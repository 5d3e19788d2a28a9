"""The view of documents, and batches: complete units, documents that are encoded in parts, and all content in the slots."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures import WORDS
from fixtures.nested import batch_of, book, books, config, levels_of, nested, part, parts_of, read, rebuilt, task, tree_of
from ramify.batching.document_batch import CONT, EOS, JOIN, MASK, NUM_MARKS, PAD, DocumentCollator
from ramify.batching.levels import DocumentRows
from ramify.batching.views.documents import DocumentExample, Documents, LevelInput
from ramify.errors import RamifyError

SENTENCE, PARAGRAPH, DOCUMENT = range(3)


def all_units(rows, unit):
    return np.arange(len(rows.levels[unit]))


def whole(levels, longest, overflow="cut", unit=PARAGRAPH, padded=None, most_tokens=None):
    """One batch of all documents."""
    rows = DocumentRows.of(levels, longest, overflow, most_tokens=most_tokens)
    collator = DocumentCollator(rows, unit, 10_000, padded=padded)
    return collator.batch(all_units(rows, unit), all_units(rows, unit + 1))


# --- slots --------------------------------------------------------------------------------------------------------------------


@st.composite
def documents(draw: st.DrawFn) -> Any:
    sentence = st.lists(st.sampled_from(WORDS[:5]), max_size=9).map(" ".join)
    paragraph = st.lists(sentence, max_size=7).map(lambda each: part("paragraph", *each))
    trees = draw(st.lists(st.lists(paragraph, max_size=6), min_size=1, max_size=3))
    return levels_of([tree_of(*each, name=f"d{number}") for number, each in enumerate(trees)])


def by_tree(batch):
    """Every document, rebuilt from the slots."""
    top = batch.levels[-1]
    order = np.argsort(top.source, kind="stable")
    trees = top.tree.numpy()[order]
    found = []
    for tree in np.unique(trees):
        found += rebuilt(batch, len(batch.levels) - 1, order[trees == tree].tolist())
    return found


@given(
    levels=documents(),
    longest=st.tuples(st.integers(2, 6), st.integers(2, 5), st.integers(2, 4)),
    overflow=st.sampled_from(["cut", "pack"]),
    is_padded=st.booleans(),
    limit=st.sampled_from([None, 5]),
)
def test_documents_can_be_rebuilt_from_slots(levels, longest, overflow, is_padded, limit):
    """The slots hold every token in its sentence, paragraph and document, in order, and nothing else."""
    padded = longest if is_padded else None
    batch = whole(levels, longest, overflow, padded=padded, most_tokens=[None, limit, None])
    assert by_tree(batch) == nested(levels)
    assert batch.num_tokens == len(levels.ids)
    for level, places in zip(batch.levels, longest, strict=True):
        lengths = level.rows.host_lengths
        assert (lengths == places).all() if is_padded else (lengths == level.lengths).all()
        assert level.lengths.max(initial=0) <= places
        slots = level.slots.numpy()
        starts = np.cumsum(lengths) - lengths
        for start, length, own, count in zip(starts, lengths, level.lengths, level.counts, strict=True):
            row = slots[start : start + length]
            # The end mark is last; padding follows it, and nothing else does.
            assert row[own - 1] in (EOS, CONT)
            assert (row[own:] == PAD).all()
            assert not np.isin(row[:own], (PAD, MASK)).any()
            assert (row >= NUM_MARKS).sum() == count
        is_child = slots >= NUM_MARKS
        assert np.array_equal(level.is_child.numpy(), is_child)
        assert np.array_equal(level.child_slot.numpy(), np.flatnonzero(is_child))
        row_of_slot = np.repeat(np.arange(len(lengths)), lengths)
        assert np.array_equal(level.child_row.numpy(), row_of_slot[is_child])
        assert np.array_equal(level.children.numpy(), slots[is_child] - NUM_MARKS)
        true = np.flatnonzero(slots != PAD)
        assert np.array_equal(level.true_slots.numpy(), true)
        assert np.array_equal(true[level.child_place.numpy()], np.flatnonzero(is_child))


def test_truncated_documents_hold_the_first_children():
    levels = levels_of([book([[5, 1, 1, 1], [1], [1], [2]])])
    batch = whole(levels, (4, 3, 4), "truncate")
    (document,) = nested(levels)
    assert by_tree(batch) == [[[sentence[:3] for sentence in paragraph[:2]] for paragraph in document[:3]]]
    rows = DocumentRows.of(levels, (4, 3, 4), "truncate")
    assert [level.left_out for level in rows.levels] == [2, 2, 1]
    assert not any((level.slots == CONT).any() for level in batch.levels)


def test_marks_of_cut_and_packed_rows():
    levels = levels_of([book([[5, 1, 1], [1]])])
    cut = whole(levels, (4, 4, 4)).levels[SENTENCE]
    order = np.argsort(cut.source)
    rows = np.split(cut.slots.numpy(), np.cumsum(cut.lengths)[:-1])
    assert [rows[place][-1] for place in order] == [CONT, EOS, EOS, EOS, EOS]
    packed = whole(levels, (6, 4, 4), "pack").levels[SENTENCE]
    rows = [row[row < NUM_MARKS].tolist() for row in np.split(packed.slots.numpy(), np.cumsum(packed.lengths)[:-1])]
    assert sorted(rows) == [[EOS], [EOS], [JOIN, EOS]]


def test_equal_rows_have_equal_hashes_and_documents():
    trees = [tree_of(part("paragraph", "aa ae", "ai"), part("paragraph", "aa ae"), name=name) for name in "de"]
    batch = whole(levels_of(trees), (4, 4, 4))
    sentences, paragraphs, top = batch.levels
    by_text = {}
    for (parts, _), number in zip(parts_of(sentences), sentences.content.tolist(), strict=True):
        by_text.setdefault(str(parts), set()).add(number)
    assert [len(numbers) for numbers in by_text.values()] == [1, 1]
    assert len(set(paragraphs.content.tolist())) == 2
    assert len(set(top.content.tolist())) == 1
    assert sorted(top.tree.tolist()) == [0, 1]


# --- the view -----------------------------------------------------------------------------------------------------------------


def test_a_document_that_fits_is_one_example_and_a_longer_one_is_many():
    """Each paragraph of the long one, and the document apart, whose tokens are counted once."""
    levels = levels_of([book([[2], [3]], name="a"), book([[4], [5], [6]], name="b"), book([[1]], name="c")])
    view = Documents(levels, (8, 4, 5), LevelInput(), budget=6)
    assert view.unit == PARAGRAPH
    assert view.examples == [
        DocumentExample(0, 2, 0, 1, False),
        *(DocumentExample(unit, unit + 1, 1, 1, False) for unit in (2, 3, 4)),
        DocumentExample(2, 5, 1, 2, True),
        DocumentExample(5, 6, 2, 3, False),
    ]
    assert view.costs.tolist() == [5, 4, 5, 6, 15, 1]
    assert view.sizes.tolist() == [2, 1, 1, 1, 1, 1]
    assert view.target_tokens.tolist() == [5, 4, 5, 6, 0, 1]
    assert view.target_tokens.sum() == len(levels.ids)
    without = Documents(levels, (8, 4, 5), LevelInput(), budget=6, whole_documents=False)
    assert without.examples == [DocumentExample(unit, unit + 1, 0, 0, False) for unit in range(6)]


def test_the_unit_is_the_level_below_the_document_or_the_highest():
    trees = [tree_of(part("chapter", part("paragraph", "aa", "ae")), part("chapter", part("paragraph", "ai")))]
    for names, unit in (
        (("sentence", "paragraph", "chapter", "document"), 2),
        (("sentence", "document"), 0),
        (("document",), 0),
        (("sentence", "paragraph"), 1),
        (("sentence",), 0),
    ):
        view = Documents(levels_of(trees, names), (4,) * len(names), LevelInput(), budget=100)
        assert view.unit == unit, names
        batch = DocumentCollator(view.rows, view.unit, 100)([view.example(number) for number in range(len(view))])
        assert [level.rows.host_lengths.sum() > 0 for level in batch.levels] == [True] * len(names)
        assert batch.num_tokens == 3


def test_long_units_are_cut():
    """By their tokens, so that a batch can hold every row of the unit's level, a packed one included."""
    levels = levels_of([book([[3, 3, 3], [1, 1], [2], [3]])])
    for overflow, sizes in (("cut", [6, 3, 2, 2, 3]), ("pack", [6, 3, 4, 3])):
        rows = Documents(levels, (4, 9, 9), LevelInput(overflow=overflow, unit_tokens=6), budget=100).rows
        assert rows.levels[PARAGRAPH].tokens.tolist() == sizes
        assert rows.levels[PARAGRAPH].continued.tolist() == [True] + [False] * (len(sizes) - 1)


@pytest.mark.parametrize("overflow", ["cut", "pack", "truncate"])
def test_costs_are_the_tokens_that_batches_hold(overflow):
    """Truncation leaves sentences out of their paragraph, but not out of the batch, which holds every row of a level."""
    levels = levels_of([book([[9, 2, 3, 1], [2], [1, 1]], name="a"), book([[3, 3], [8], [2]], name="b")])
    view = Documents(levels, (5, 3, 3), LevelInput(overflow=overflow), budget=15)
    collator = DocumentCollator(view.rows, view.unit, 15)
    for number, example in enumerate(view.examples):
        batch = collator([example])
        below = [part.levels[0] for part in batch.parts] or batch.levels[:1]
        assert view.costs[number] == batch.num_tokens == sum(len(level.children) for level in below)
        assert example.apart == (example.document_stop > example.document_start and batch.num_tokens > 15)
    assert view.target_tokens.sum() == (len(levels.ids) if overflow != "truncate" else len(levels.ids) - 5 - 4)


def test_an_empty_document_and_empty_paragraphs_are_rows():
    levels = levels_of([tree_of(name="a"), tree_of(part("paragraph"), part("paragraph", "aa"), name="b")])
    view = Documents(levels, (4, 4, 4), LevelInput(), budget=10)
    assert view.costs.min() == 1
    batch = DocumentCollator(view.rows, view.unit, 10)([view.example(number) for number in range(len(view))])
    assert by_tree(batch) == nested(levels) == [[], [[], [levels.ids.tolist()]]]
    alone = DocumentCollator(view.rows, view.unit, 10)([view.example(0)])
    assert alone.num_targets == 0


def test_unit_tokens_are_at_least_one():
    with pytest.raises(RamifyError, match=r"input\.unit_tokens must be at least 1, but is 0"):
        LevelInput(unit_tokens=0)


@given(levels=documents(), budget=st.integers(1, 40), overflow=st.sampled_from(["cut", "pack"]))
def test_examples_cover_every_row_once(levels, budget, overflow):
    """Every unit is in one example with its tokens, and every document is complete."""
    view = Documents(levels, (5, 4, 3), LevelInput(overflow=overflow, unit_tokens=7), budget=budget)
    units = [unit for each in view.examples if not each.apart for unit in range(each.start, each.stop)]
    rows = [row for each in view.examples for row in range(each.document_start, each.document_stop)]
    assert sorted(units) == list(range(len(view.rows.levels[PARAGRAPH])))
    assert sorted(rows) == list(range(len(view.rows.levels[DOCUMENT])))
    assert view.target_tokens.sum() == len(levels.ids)
    for each in view.examples:
        if each.document_stop > each.document_start:
            spans = view.rows.levels[DOCUMENT].spans
            assert (each.start, each.stop) == (spans[each.document_start], spans[each.document_stop])
            tokens = view.rows.levels[PARAGRAPH].tokens[each.start : each.stop].sum()
            assert each.apart == (tokens > budget)


# --- documents that are encoded in parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", ["cut", "pack"])
@pytest.mark.parametrize("padding", ["packed", "full"])
def test_a_document_encoded_in_parts_has_the_vectors_of_one_graph(overflow, padding):
    own = task({"padding": padding}, LevelInput(overflow=overflow, unit_tokens=9)).eval()
    trees = [book([[2, 5, 3], [7, 1], [4, 4, 1, 1, 2], [1], [2, 2, 9]], seed=1)]
    apart, together = batch_of(own, trees, budget=12), batch_of(own, trees)
    assert len(apart.parts) > 2
    assert (apart.lowest, len(apart.levels)) == (DOCUMENT, 1)
    assert all(sum(part.num_tokens for part in each.parts) == 0 for each in apart.parts)
    assert sum(part.num_tokens for part in apart.parts) == together.num_tokens
    assert (apart.num_target_tokens, together.num_target_tokens) == (0, together.num_tokens)
    below, top = own.backbone(apart).nodes
    every = own.backbone(together).nodes
    torch.testing.assert_close(top, every[-1], rtol=0, atol=1e-10)
    # The units are the same, part by part in the order of the slots.
    source = np.concatenate([part.levels[-1].source for part in apart.parts])
    there = {number: place for place, number in enumerate(together.levels[-2].source.tolist())}
    expected = every[-2][[there[number] for number in source.tolist()]]
    torch.testing.assert_close(below, expected, rtol=0, atol=1e-10)
    assert top.abs().max() > 0.05


def test_children_of_a_document_in_parts_have_the_numbers_of_the_parts_rows():
    own = task()
    trees = [book([[9], [1], [4, 4, 1], [1, 3], [2, 2]], seed=1)]
    batch = batch_of(own, trees, budget=10)
    source = np.concatenate([part.levels[-1].source for part in batch.parts])
    view, _ = read(own, trees, budget=10)
    rows = [row[row >= NUM_MARKS] - NUM_MARKS for row in torch.split(batch.levels[0].slots, batch.levels[0].lengths.tolist())]
    for row, number in zip(rows, batch.levels[0].source, strict=True):
        spans = view.rows.levels[DOCUMENT].spans
        assert source[row.numpy()].tolist() == list(range(spans[number], spans[number + 1]))
    # Budgets hold, except for a unit that is longer than one.
    assert all(part.num_tokens <= 10 or len(part.levels[-1].source) == 1 for part in batch.parts)


def test_copies_of_a_document_in_parts():
    """Each copy has the same slots; the parts are encoded once."""
    own = task()
    trees = [book([[3], [1], [4, 2], [2, 2]], seed=1)]
    one, three = batch_of(own, trees, budget=5), batch_of(own, trees, budget=5, document_draws=3)
    assert len(three.parts) == len(one.parts)
    assert len(three.levels[0].rows) == 3 * len(one.levels[0].rows)
    vectors = own.eval().backbone(three).nodes[-1]
    assert (vectors - own.backbone(one).nodes[-1][0]).abs().max() < 1e-12


# --- padding ------------------------------------------------------------------------------------------------------------------


def vectors_by_content(own, trees):
    """The vector of every row, by its level and its content."""
    batch = batch_of(own, trees)
    found = {}
    with torch.no_grad():
        for number, vectors in enumerate(own.backbone(batch).nodes):
            for name, vector in zip(batch.levels[number].content.tolist(), vectors, strict=True):
                found[number, name] = vector
    return found


@pytest.mark.parametrize("cells", ["evolved", "transformer"])
@pytest.mark.parametrize("padding", ["packed", "full"])
def test_a_vector_does_not_depend_on_the_rest_of_the_batch(cells, padding):
    own = task({"cells": cells, "padding": padding}).eval()
    trees = books(6, paragraphs=4)
    together = vectors_by_content(own, trees)
    compared = 0
    for tree in trees:
        for name, vector in vectors_by_content(own, [tree]).items():
            torch.testing.assert_close(together[name], vector, rtol=0, atol=1e-12)
            compared += 1
    assert compared > 50


def test_padding_has_a_gradient_and_an_influence_in_full_alone():
    """`full` reads the trainable padding up to max_children; `packed` never does."""
    trees = books(2)
    for padding in ("packed", "full"):
        own = task({"padding": padding})
        batch = batch_of(own, trees)
        own.zero_grad(set_to_none=True)
        sum(vectors.square().sum() for vectors in own.backbone(batch).nodes).backward()
        for level in range(own.backbone.depth):
            gradient = own.backbone.encoder(level).table.weight.grad
            assert bool(gradient[PAD].abs().max() > 1e-6) == (padding == "full"), level
            assert gradient[EOS].abs().max() > 1e-6
        own.eval()
        more = task({"padding": padding, "max_children": (8, 6, 7)}).eval()
        # Sinusoidal positions have no weights, so that both models have the same ones.
        encoder = {name: tensor for name, tensor in own.backbone.state_dict().items() if "positions" not in name}
        missing = more.backbone.load_state_dict(encoder, strict=False).missing_keys
        assert all("positions" in name for name in missing)
        vectors = [each.backbone(batch_of(each, trees)).nodes[0] for each in (own, more)]
        difference = (vectors[0] - vectors[1]).abs().max()
        # The codes of positions are in single precision.
        assert difference > 1e-3 if padding == "full" else difference < 1e-6


def test_a_batch_moves_with_its_parts():
    own = task()
    batch = batch_of(own, [book([[3], [1], [4, 2]], seed=1)], budget=4)
    drawn = own.draw(batch, 1).to("meta")
    assert {level.slots.device.type for level in drawn.levels} == {"meta"}
    assert {part.levels[0].slots.device.type for part in drawn.parts} == {"meta"}
    assert drawn.draws[0].masked.device.type == "meta"
    assert drawn.device.type == "meta"
    assert config().levels == own.names[1:]

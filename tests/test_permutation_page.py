"""The page on permutation language modelling: its pictures show the package's own masks, rows and counts."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fixtures.pages import check_drawings, check_named_tests, check_page_shows_all, figures_of, page_of

PAGE = page_of("permutation")


@pytest.fixture(scope="module")
def figures():
    return figures_of("stream_figures")


def test_every_drawing_and_table_is_in_the_page(figures):
    check_page_shows_all(PAGE, figures)


def test_drawings_are_well_formed_and_inside_their_frames(figures):
    check_drawings(figures)


def test_named_tests_exist():
    check_named_tests(PAGE)


# --- masks ----------------------------------------------------------------------------------------------------------------


def matrix(*lines):
    return np.array([[mark == "x" for mark in line] for line in lines])


def test_streams_of_the_order_3_2_4_1(figures):
    """Two columns of memory, then four tokens: token 3 comes first and sees memory only."""
    found = figures.seen(figures.ranks((3, 2, 4, 1)), range(4), memory=2)
    np.testing.assert_array_equal(found.content, matrix("xxxxxx", "xx.xx.", "xx..x.", "xx.xxx"))
    np.testing.assert_array_equal(found.queries, matrix("xx.xxx", "xx..x.", "xx....", "xx.xx."))


@pytest.mark.parametrize(
    ("order", "seen"), [((3, 2, 4, 1), "x...."), ((2, 4, 3, 1), "x.x.x"), ((1, 4, 2, 3), "xxx.x"), ((4, 3, 1, 2), "x...x")]
)
def test_third_token_under_four_orders(figures, order, seen):
    assert order in figures.PANELS
    np.testing.assert_array_equal(figures.seen(figures.ranks(order), range(4), memory=1).queries[2], matrix(seen)[0])


def test_row_of_two_halves(figures):
    """The masks equal the three rules of the page, token by token."""
    order, border = figures.worked_order(), figures.HALVES[0][1]
    late = {*figures.TARGETS, *figures.SEPARATORS}

    def sees(query, key):
        if (query < border) != (key < border):
            return key < border
        if key not in late:
            return True
        return query in late and order[key] < order[query]

    tokens = range(len(figures.WORDS))
    found = figures.seen(order, figures.TARGETS, 0, figures.HALVES)
    expected = np.array([[sees(query, key) for key in tokens] for query in tokens])
    np.testing.assert_array_equal(found.content, expected | np.eye(len(order), dtype=bool))
    of_targets = expected[[*figures.TARGETS]]
    of_targets[range(len(figures.TARGETS)), figures.TARGETS] = False
    np.testing.assert_array_equal(found.queries, of_targets)
    words = [figures.WORDS[place] for place in figures.TARGETS]
    assert words == ["wind", "rose", "boats", "in"]
    assert order[2] < order[1], "the caption says that 'rose' precedes 'wind'"


# --- rows, distances, spans ------------------------------------------------------------------------------------------------


def test_rows_and_their_memory(figures):
    rows = figures.shown_rows()
    assert [(each.row.direction, each.place) for each in rows] == [(sign, place) for sign in (1, -1) for place in range(3)]
    reused = [(each.row.ids[: figures.LAYOUT.reused_tokens] - figures.OFFSET).tolist() for each in rows]
    assert reused == [
        [*range(start, start + sign * 8, sign)] for sign in (1, -1) for start in ((0, 8, 16) if sign > 0 else (43, 35, 27))
    ]
    # The last six of the eight reused tokens; fewer if a document ends among them.
    assert [each.memory for each in rows] == [
        [],
        [2, 3, 4, 5, 6, 7],
        [13, 14, 15],
        [],
        [41, 40, 39, 38, 37, 36],
        [33, 32, 31, 30, 29, 28],
    ]
    third = rows[2].row
    of_a = third.ids[(third.segments == 0) & ~third.functional][figures.LAYOUT.reused_tokens :]
    of_b = third.ids[third.segments == 1]
    assert (of_a - figures.OFFSET).tolist() == [24, 25, 26] == (of_b[:3] - figures.OFFSET).tolist()
    assert not third.is_next


@pytest.mark.parametrize("sign", [1, -1])
def test_distances(figures, sign):
    along, columns, found = figures.distances(sign)
    expected = figures.BEFORE + np.arange(figures.QUERIES)[:, None] - np.arange(figures.BEFORE + figures.QUERIES)
    np.testing.assert_array_equal(found, sign * expected)
    np.testing.assert_array_equal(along, sign * np.arange(5, -4, -1))
    assert [row[0] for row in columns.tolist()] == [3, 2, 1, 0]


def test_spans_of_the_sentence(figures):
    pieces, starts = figures.sentence()
    words, cut = figures.drawn_spans("word"), figures.drawn_spans("piece")
    assert len(words) == len(cut) == len(figures.drawn_spans("token")) == 6
    following = [each + 1 for each in words if each + 1 not in words and each + 1 < len(pieces)]
    assert all(starts[each] for each in following)
    place = pieces.index("break")
    assert {place, place + 1} <= {*words}
    assert place in cut
    assert place + 1 not in cut


def test_counted_spans(figures):
    """The text of the page: nearly a fifth of the spans of pieces is cut, and fewer spans of words."""
    words, pieces = (figures.count_spans(unit, 512) for unit in ("word", "piece"))
    assert words.rows == pieces.rows
    assert words.targets == pieces.targets == words.rows * 85
    assert words.cut / words.spans < 0.05 < 0.13 < pieces.cut / pieces.spans < 0.2


# --- counts ---------------------------------------------------------------------------------------------------------------


def test_counted_operations(figures):
    for name, variants in figures.savings().items():
        totals = [attention + maps for _, attention, maps in variants]
        assert totals == sorted(totals, reverse=True), name
        assert totals[-1] < 0.7 * totals[0], name


def test_published_operations_are_those_of_transformers(figures):
    """The port computes as the published code does; torch counts its products."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    row = figures.Row(tokens=24, memory=10, dim=128, layers=2)
    config = transformers.XLNetConfig(
        vocab_size=8, d_model=128, n_layer=2, n_head=2, d_inner=512, mem_len=10, reuse_len=12, dropout=0.0
    )
    model = transformers.XLNetModel(config).eval().requires_grad_(False)
    ids = torch.zeros(1, 24, dtype=torch.long)
    inputs = {
        "mems": [torch.zeros(10, 1, 128) for _ in range(2)],
        "perm_mask": torch.zeros(1, 24, 24),
        "target_mapping": torch.zeros(1, sum(row.targets), 24),
        "token_type_ids": ids,
    }
    with FlopCounterMode(display=False) as counter:
        model(ids, **inputs)
    assert counter.get_total_flops() / 2 == sum(figures.published(row))


@pytest.mark.parametrize(
    ("name", "embedding", "rest"), [("XLNet-Base", 24_576_000, 92_142_336), ("XLNet-Large", 32_768_000, 327_500_800)]
)
def test_parameters_of_the_published_sizes(figures, name, embedding, rest):
    assert figures.parameters(figures.PUBLISHED_SIZES[name]) == (embedding, rest)

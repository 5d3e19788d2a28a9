"""Levels of documents against a plain definition, and the rows that they are cut into."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import WORDS, built, discussions, tokenizer
from fixtures.nested import NAMES, Part, levels_of, nested, part, tree_of
from ramify.batching.levels import DocumentRows, Levels, level_names
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tree import Node, Tree

BOOK = ("sentence", "paragraph", "chapter", "document")


def ids(*words: str) -> list[int]:
    return [token for word in words for token in tokenizer().encode(word)]


# --- levels -------------------------------------------------------------------------------------------------------------------


def arranged(items: list[tuple[int, int, Any]], level: int) -> list[Any]:
    """The children of a node of `level + 1` from its direct contents: (level, node, content), and (-1, node, tokens) for texts.

    Contents of `level` are children. One child fills in for each run of neighbours below it.
    """
    if level < 0:
        return [token for _, _, tokens in items for token in tokens]
    found = []
    for is_own, run in itertools.groupby(items, lambda item: item[0] == level):
        each = list(run)
        if is_own:
            found += [(True, node, arranged(inner, level - 1)) for _, node, inner in each]
        else:
            found.append((False, each[0][1], arranged(each, level - 1)))
    return found


def plain(store: Store, names: tuple[str, ...]) -> list[Any]:
    """The nodes of the highest level: whether each is stored, its number, and its children."""
    kinds = store.column("kind", np.arange(store.num_nodes)).to_pylist()
    texts = store.column("text", np.arange(store.num_nodes)).to_pylist()
    found = []
    for start, stop in itertools.pairwise(store.offsets.tolist()):
        top: list[Any] = []
        inside: dict[int, list[Any]] = {}
        for node in range(start, stop):
            around = top if store.parent[node] < 0 else inside[int(store.parent[node])]
            if kinds[node] in names:
                own: list[Any] = []
                around.append((names.index(kinds[node]), node, own))
                around = own
            inside[node] = around
            tokens = tokenizer().encode(texts[node])
            if tokens:
                around.append((-1, node, tokens))
        found += arranged(top, len(names) - 1)
    return found


def unfolded(levels: Levels) -> list[Any]:
    """The same of levels."""
    below: list[Any] = levels.ids.tolist()
    for level in levels.levels:
        edges = itertools.pairwise(level.offsets.tolist())
        below = [
            (stored, node, below[start:stop])
            for stored, node, (start, stop) in zip(level.stored.tolist(), level.node.tolist(), edges, strict=True)
        ]
    return below


@st.composite
def parts(draw: st.DrawFn, below: int, depth: int = 0) -> Part:
    """A part whose level is lower than `below`, or which is on no level."""
    level = draw(st.integers(-1, below - 1))
    kind = BOOK[level] if level >= 0 else draw(st.sampled_from(["part", "note", ""]))
    inner = level if level >= 0 else below
    words = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=2)))
    children = () if depth > 4 else tuple(draw(st.lists(parts(inner, depth + 1), max_size=3)))
    return Part(kind, children, words)


@st.composite
def stores(draw: st.DrawFn) -> Store:
    trees = []
    for number in range(draw(st.integers(1, 3))):
        words = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=2)))
        trees.append(tree_of(*draw(st.lists(parts(3), max_size=4)), name=f"d{number}", text=words))
    return Store.from_trees(trees)


@settings(max_examples=60)
@given(store=stores(), names=st.sampled_from([BOOK, BOOK[:2], BOOK[1:], ("sentence", "document"), ("document",)]))
def test_levels_are_those_of_the_definition(store, names):
    """Order, stored nodes and fillers, and no token is lost, whichever levels the documents lack and the reader wants."""
    kinds = store.column("kind", np.arange(store.num_nodes)).to_pylist()
    if not set(kinds) & set(names):
        with pytest.raises(RamifyError, match="but none of"):
            Levels.open(store, tokenizer(), names, np.arange(store.num_trees))
        return
    levels = Levels.open(store, tokenizer(), names, np.arange(store.num_trees))
    assert unfolded(levels) == plain(store, names)
    assert levels.names == names
    for level in levels.levels:
        # Every stored node once, and in order.
        assert level.node[level.stored].tolist() == [node for node, kind in enumerate(kinds) if kind == level.name]
        assert level.tree.tolist() == store.tree_of(level.node).tolist()
    for lower, upper in itertools.pairwise(levels.levels):
        assert upper.counts.sum() == len(lower.node)
    texts = store.column("text", np.arange(store.num_nodes)).to_pylist()
    assert levels.ids.tolist() == [token for each in texts for token in tokenizer().encode(each)]
    assert levels.levels[0].counts.sum() == len(levels.ids)
    assert levels.filled == {level.name: int((~level.stored).sum()) for level in levels.levels}
    others = [kind for kind in kinds if kind not in names]
    assert levels.flattened == {kind: others.count(kind) for kind in set(others)}


def test_missing_levels_are_filled():
    """A preface of sentences, a paragraph directly under the document, and a title before a chapter's paragraphs."""
    tree = tree_of(
        "aa ae",
        "ai",
        part("paragraph", "ao"),
        part("chapter", part("note", text="au"), part("paragraph", "ay", "aw")),
        part("chapter", part("paragraph")),
    )
    levels = levels_of([tree], BOOK)
    assert nested(levels) == [
        [[[ids("aa", "ae"), ids("ai")], [ids("ao")]], [[ids("au")], [ids("ay"), ids("aw")]], [[]]],
    ]
    assert levels.filled == {"sentence": 1, "paragraph": 2, "chapter": 1, "document": 0}
    assert levels.flattened == {"note": 1}
    store = Store.from_trees([tree])
    chapters = levels.levels[2]
    assert store.ids(chapters.node) == ["d.1", "d.5", "d.10"]
    assert chapters.stored.tolist() == [False, True, True]


def test_parts_are_flattened_or_a_level():
    tree = tree_of(
        part("part", part("chapter", part("paragraph", "aa")), part("chapter", part("paragraph", "ae"))),
        part("part", part("chapter", part("paragraph", "ai"))),
    )
    store = Store.from_trees([tree])
    assert level_names(store) == BOOK
    levels = levels_of([tree], BOOK)
    assert levels.flattened == {"part": 2}
    assert nested(levels) == [[[[ids("aa")]], [[ids("ae")]], [[ids("ai")]]]]
    assert level_names(store, "level") == ("sentence", "paragraph", "chapter", "part", "document")
    levels = levels_of([tree], level_names(store, "level"))
    assert levels.flattened == {}
    assert nested(levels) == [[[[[ids("aa")]], [[ids("ae")]]], [[[ids("ai")]]]]]


def test_levels_that_the_data_lacks_are_left_out():
    assert level_names(Store.from_trees([tree_of(part("paragraph", "aa"))])) == NAMES
    assert level_names(Store.from_trees([tree_of("aa")]), "level") == ("sentence", "document")


def test_kinds_without_an_order_are_refused():
    tree = tree_of(part("part", part("book", "aa")), part("book", part("part", "ae")))
    with pytest.raises(RamifyError, match=r"the kinds of nodes have no order, because there is .* inside .*divisions=flatten"):
        level_names(Store.from_trees([tree]), "level")


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (part("paragraph", part("chapter", "aa")), "a chapter lies inside a paragraph"),
        (part("paragraph", part("paragraph", "aa")), "a paragraph lies inside a paragraph"),
        (part("chapter", part("sentence", part("note", part("paragraph", "aa")))), "a paragraph lies inside a sentence"),
    ],
    ids=str,
)
def test_a_level_inside_a_lower_one_is_refused(inner, message):
    with pytest.raises(RamifyError, match=rf"document 'd', node 'd\.\d': {message}"):
        levels_of([tree_of("ae", inner)], BOOK)


def test_nodes_out_of_reading_order_are_refused():
    """A sentence of the first chapter after the second chapter would be read as part of the second."""
    nodes = (
        Node(kind="document", id="d"),
        Node(kind="chapter", parents=(0,), id="one"),
        Node(kind="chapter", parents=(0,), id="two"),
        Node("aa", kind="sentence", parents=(1,), id="late"),
    )
    with pytest.raises(RamifyError, match=r"document 'x', node 'late': .* 'one'.*reading order"):
        levels_of([Tree(nodes, id="x")], BOOK)


@pytest.mark.parametrize("trees", [discussions(2, 4), [Tree((Node("aa", id="a"),), id="t")]], ids=["replies", "texts"])
def test_other_trees_than_documents_are_refused(trees):
    store = Store.from_trees(trees)
    with pytest.raises(RamifyError, match=r"holds (replies|texts), not documents\. Build documents with"):
        level_names(store)
    with pytest.raises(RamifyError, match="not documents"):
        Levels.open(store, tokenizer(), NAMES, np.arange(store.num_trees))


def test_data_without_any_of_the_levels_are_refused():
    with pytest.raises(RamifyError, match="the documents have the levels document, note, but none of chapter, part"):
        levels_of([tree_of(part("note", text="aa"))], ("chapter", "part"))


def test_a_stored_data_set_has_the_same_levels(tmp_path):
    """Trees that are chosen from a store on disk, whose nodes do not begin at 0."""
    trees = [tree_of(part("paragraph", f"a{vowel}", "ba"), name=f"d{vowel}") for vowel in "aeiou"]
    store = built(trees, tmp_path)
    chosen = np.array([1, 3, 4])
    levels = Levels.open(store, tokenizer(), NAMES, chosen)
    words = [next(tree for tree in trees if tree.id == name).nodes[2].text for name in store.tree_ids(chosen)]
    assert nested(levels) == [[[ids(word), ids("ba")]] for word in words]
    assert levels.levels[-1].tree.tolist() == chosen.tolist()


# --- rows ---------------------------------------------------------------------------------------------------------------------


def plain_rows(node: list[Any], places: int, overflow: str, sizes: Any, limit: float) -> list[list[Any]]:
    """The children of each row of one node, one by one. `sizes` gives the tokens of a child."""
    rows: list[list[Any]] = []
    tokens = 0
    for number, child in enumerate(node):
        # A node is cut after every `places - 1` children, and further where there are too many tokens.
        if number % (places - 1) == 0 or tokens + sizes(child) > limit:
            rows.append([])
            tokens = 0
        rows[-1].append(child)
        tokens += sizes(child)
    rows = rows or [[]]
    return rows[:1] if overflow == "truncate" else rows


@st.composite
def documents(draw: st.DrawFn) -> Levels:
    sentence = st.lists(st.sampled_from(WORDS[:3]), max_size=9).map(" ".join)
    paragraph = st.lists(sentence, max_size=7).map(lambda each: part("paragraph", *each))
    trees = draw(st.lists(st.lists(paragraph, max_size=6), min_size=1, max_size=3))
    return levels_of([tree_of(*each, name=f"d{number}") for number, each in enumerate(trees)])


LONGEST = st.tuples(st.integers(2, 6), st.integers(2, 5), st.integers(2, 4))
LIMITS = st.sampled_from([[None, None, None], [None, 4, None], [3, 7, 20]])


def children_of(rows: DocumentRows, level: int) -> list[list[tuple[list[int], bool]]]:
    """The parts of every row: their children's numbers, and whether the row continues."""
    own = rows.levels[level]
    parts = [list(range(start, start + count)) for start, count in zip(own.start.tolist(), own.count.tolist(), strict=True)]
    return [
        [(each, continued) for each in parts[start:stop]]
        for (start, stop), continued in zip(itertools.pairwise(own.part_offsets.tolist()), own.continued.tolist(), strict=True)
    ]


@given(levels=documents(), longest=LONGEST, limits=LIMITS, overflow=st.sampled_from(["cut", "truncate"]))
def test_rows_of_cut_and_truncated_nodes(levels, longest, limits, overflow):
    """Pieces in order make the node; all but its last continue; no row is longer than its places or has more tokens."""
    rows = DocumentRows.of(levels, longest, overflow, most_tokens=limits)
    tokens_below = np.ones(len(levels.ids), dtype=np.int64)
    first_below, number_below = np.arange(len(levels.ids)), np.ones(len(levels.ids), dtype=np.int64)
    for level, own, places, limit in zip(levels.levels, rows.levels, longest, limits, strict=True):
        found = children_of(rows, rows.levels.index(own))
        left_out = expected_row = 0
        for node, (start, stop) in enumerate(itertools.pairwise(level.offsets.tolist())):
            below = [
                row
                for child in range(start, stop)
                for row in range(first_below[child], first_below[child] + number_below[child])
            ]
            pieces = plain_rows(below, places, overflow, lambda row, sizes=tokens_below: sizes[row], limit or np.inf)
            left_out += len(below) - sum(map(len, pieces))
            assert (own.first_row[node], own.num_rows[node]) == (expected_row, len(pieces))
            for number, piece in enumerate(pieces):
                assert found[expected_row] == [(piece, number + 1 < len(pieces))]
                assert len(piece) + 1 <= places
                assert own.tokens[expected_row] == tokens_below[piece].sum()
                assert limit is None or own.tokens[expected_row] <= limit or len(piece) == 1
                assert own.tree[expected_row] == level.tree[node]
                expected_row += 1
        assert (len(own), own.left_out) == (expected_row, left_out)
        assert own.num_cut == int((own.num_rows > 1).sum())
        assert own.num_packed == 0
        assert overflow == "truncate" or own.left_out == 0
        first_below, number_below, tokens_below = own.first_row, own.num_rows, own.tokens


@given(levels=documents(), longest=LONGEST, limits=LIMITS)
def test_rows_of_packed_nodes(levels, longest, limits):
    """Neighbours of one parent share a row while it has room, one place for each mark between them. A cut node shares none."""
    rows = DocumentRows.of(levels, longest, "pack", most_tokens=limits)
    parents = [*(np.repeat(np.arange(len(level.node)), level.counts) for level in levels.levels[1:]), levels.levels[-1].tree]
    tokens_below = np.ones(len(levels.ids), dtype=np.int64)
    below = [[token] for token in range(len(levels.ids))]
    for number, (level, own, parent, places, limit) in enumerate(
        zip(levels.levels, rows.levels, parents, longest, limits, strict=True)
    ):
        expected: list[list[tuple[list[int], bool]]] = []
        homes: list[list[int]] = []
        last = None
        for node, (start, stop) in enumerate(itertools.pairwise(level.offsets.tolist())):
            # Packed children share a row, which is one child.
            children = sorted({row for child in range(start, stop) for row in below[child]})
            pieces = plain_rows(children, places, "cut", lambda row, sizes=tokens_below: sizes[row], limit or np.inf)
            if len(pieces) == 1 and last == parent[node]:
                held = [row for each, _ in expected[-1] for row in each]
                fits = len(held) + len(expected[-1]) + len(children) + 1 <= places
                if fits and tokens_below[held + children].sum() <= (limit or np.inf):
                    expected[-1].append((children, False))
                    homes.append([len(expected) - 1])
                    continue
            homes.append([])
            for place, piece in enumerate(pieces):
                homes[-1].append(len(expected))
                expected.append([(piece, place + 1 < len(pieces))])
            last = parent[node] if len(pieces) == 1 else None
        assert children_of(rows, number) == expected
        assert [list(range(first, first + count)) for first, count in zip(own.first_row, own.num_rows)] == homes
        assert own.num_packed == sum(len(each) for each in expected if len(each) > 1)
        for row, each in enumerate(expected):
            assert sum(len(piece) + 1 for piece, _ in each) <= places
            assert own.tokens[row] == sum(int(tokens_below[piece].sum()) for piece, _ in each)
            assert limit is None or own.tokens[row] <= limit or sum(len(piece) for piece, _ in each) <= 1
        tokens_below, below = own.tokens, homes


@given(levels=documents(), longest=LONGEST, overflow=st.sampled_from(["cut", "pack", "truncate"]))
def test_hashes_are_equal_exactly_for_equal_content(levels, longest, overflow):
    rows = DocumentRows.of(levels, longest, overflow)
    below: list[Any] = levels.ids.tolist()
    for number, own in enumerate(rows.levels):
        below = [
            (tuple(tuple(below[child] for child in piece) for piece, _ in row), row[-1][1]) for row in children_of(rows, number)
        ]
        numbers = dict(zip(below, own.content.tolist(), strict=True))
        assert [numbers[each] for each in below] == own.content.tolist()
        assert len(set(numbers.values())) == len(numbers)


def test_rows_without_documents():
    levels = levels_of([tree_of()], NAMES)
    rows = DocumentRows.of(levels, (3, 3, 3), "pack", most_tokens=[None, 5, None])
    assert [len(level) for level in rows.levels] == [0, 0, 1]
    assert rows.levels[-1].children.tolist() == [0]

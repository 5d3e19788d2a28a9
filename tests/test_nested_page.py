"""The page on nested documents: its pictures show the package's own rows, modules and counts."""

from dataclasses import asdict

import numpy as np
import pytest

from fixtures.nested import part, tree_of
from fixtures.pages import check_drawings, check_named_tests, check_page_shows_all, figures_of, page_of
from ramify.batching.document_batch import NUM_MARKS
from ramify.batching.levels import DocumentRows, Levels
from ramify.dataset import Store
from ramify.nn.evolved import DecoderCell, EncoderCell
from ramify.recipes.nested import agent

PAGE = page_of("nested_documents")


@pytest.fixture(scope="module")
def figures():
    return figures_of("nested_figures")


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_every_drawing_and_table_is_in_the_page(figures):
    check_page_shows_all(PAGE, figures)


def test_drawings_are_well_formed_and_inside_their_frames(figures):
    check_drawings(figures)


def test_named_tests_exist():
    check_named_tests(PAGE)


def test_the_table_of_the_recipe_has_all_options_that_it_turns_on(figures):
    head, _, *rows = cells(figures.recipe_table())
    assert head == ["setting", "`ramify train agent`", "default, and `--joint`"]
    shown = {name.strip("`"): (value, default) for name, value, default in rows}
    run, joint = agent("data"), agent("data", joint=True)
    assert shown["model.token_skip"] == ("`true`", "`false`")
    assert shown["task.scores"] == (f"`{run.task.scores}`", "`plain`")
    for kind in ("model", "task", "view"):
        config, by_default = asdict(getattr(run, kind)), asdict(getattr(joint, kind))
        assert {name for name in config if config[name] != by_default[name]} == {
            name.partition(".")[2] for name in shown if name.startswith(f"{kind}.")
        }


# --- the worked example -------------------------------------------------------------------------------------------------


def test_rows_of_the_letter(figures):
    """The sentences of the page, and the cuts that its captions name."""
    quoted = [line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> ")]
    assert quoted == [" ".join(each.replace(" .", ".").replace(" ?", "?") for each in part) for part in figures.LETTER]
    _, (sentences, paragraphs, documents) = figures.example_rows("cut")
    assert [row.slots for row in documents] == [("1", "2", "3", "4", "EoS")]
    assert [" ".join(row.slots) for row in paragraphs] == ["1 2 3 CONT", "4 EoS", "5 6 7 EoS", "8 9 EoS"]
    assert sentences[4].slots == ("She", "took", "the", "old", "key", "from", "the", "CONT")
    assert sentences[5].slots[-1] == "EoS"
    assert [row.slots[-1] for row in sentences].count("CONT") == 1


def test_packed_and_truncated_rows_of_the_letter(figures):
    _, (sentences, paragraphs, _) = figures.example_rows("pack")
    assert " ".join(sentences[1].slots) == "Ann called . JOIN Nobody came . EoS"
    assert [" ".join(row.slots) for row in paragraphs] == ["1 2 3 EoS", "4 5 6 EoS", "7 EoS"]
    rows, (sentences, paragraphs, _) = figures.example_rows("truncate")
    assert [each.left_out for each in rows.levels] == [6, 1, 0]
    assert not any("CONT" in row.slots for row in (*sentences, *paragraphs))


def test_divisions_and_missing_levels(figures):
    flat, deep = (figures.division_levels(divisions) for divisions in ("flatten", "level"))
    assert flat.names == ("sentence", "paragraph", "chapter", "document")
    assert flat.flattened == {"part": 1}
    assert flat.filled == {"sentence": 0, "paragraph": 0, "chapter": 1, "document": 0}
    assert deep.names == ("sentence", "paragraph", "chapter", "part", "document")
    assert deep.flattened == {}
    assert deep.filled["part"] == deep.filled["chapter"] == 1


# --- the architecture ---------------------------------------------------------------------------------------------------


def test_architecture_shows_the_sizes_of_the_default_model(figures):
    svg = figures.architecture().svg()
    config = figures.DEFAULT
    for level, places in enumerate(config.max_children):
        dim, out = config.dims[level : level + 2]
        shown = figures.level_texts(level)
        assert all(text in svg.replace("&gt;", ">") for text in shown.values())
        assert shown["vector"] == f"{config.levels[level]}: vector of {out}"
        assert shown["decompressor"] == f"Decompressor: BiLSTM, 2 × {out // 2} → {dim}"
        assert shown["scores"].startswith(f"{places} places")
        assert f"{config.encoder_cells[level]} cell" in shown["encoder"]


def test_blocks_of_cells_hold_all_their_parameters(figures):
    """Each closed form is the counted number, for several widths, and no module of a cell is left out."""
    for dim in (64, 512):
        made = figures.cells(dim)
        for kind, blocks, cell in (
            ("encoder", figures.ENCODER_BLOCKS, EncoderCell),
            ("decoder", figures.DECODER_BLOCKS, DecoderCell),
        ):
            assert isinstance(made[kind], cell)
            named = [name for modules, *_ in blocks.values() for name in modules]
            assert sorted(named) == sorted(name for name, _ in made[kind].named_children())
            for modules, square, linear, _ in blocks.values():
                counted = sum(figures.count(getattr(made[kind], name)) for name in modules)
                assert counted == square * dim**2 + linear * dim


def test_sizes_add_up_to_the_whole_model(figures):
    whole = figures.count(figures.built().task)
    assert sum(sum(own.values()) for own in figures.level_sizes()) == whole
    assert cells(figures.sizes_table())[-1][-1].strip("* |") == f"{whole:,}"
    inputs = figures.level_sizes()[0]["inputs"]
    assert inputs == (figures.DEFAULT.vocab_size + NUM_MARKS) * (128 + 2) + 2 * 128


# --- draws, cost --------------------------------------------------------------------------------------------------------


def test_rates_of_masked_children(figures):
    assert figures.drawn_masks(np.arange(2, 15)).tolist() == [max(1, round(0.15 * n)) for n in range(2, 15)]
    rates = figures.mask_rates()
    assert set(rates) == {"token", "sentence", "paragraph", "chapter"}
    assert rates["sentence"][3] > 0.2 > rates["token"][3] > 0.15
    assert rates["sentence"][1] > 0.35


def test_numbers_of_the_page_are_those_of_the_novels(figures):
    found = figures.shapes()
    text = " ".join(PAGE.split())
    assert f"rows of {found['documents']} novels" in text
    assert f"vocabulary of {found['vocabulary']:,} pieces" in text
    assert f"embedding of {figures.DEFAULT.vocab_size:,} tokens" in text
    assert f"*Moby-Dick*, {figures.novel_tokens():,} tokens" in text
    assert found["name"].endswith("moby-dick")
    for own in (found["novel"], found["novels"]):
        for below, above in zip(list(own.values())[:-1], list(own.values())[1:]):
            # The children of a level are the rows of the one below.
            assert np.arange(len(above["rows"])) @ above["rows"] == sum(below["rows"])
        for level, longest in zip(own.values(), figures.DEFAULT.max_children, strict=True):
            assert len(level["rows"]) <= longest
            assert sum(level["rows"]) >= level["nodes"][0] + level["cut"][0]


def test_counted_operations_are_those_of_the_closed_forms(figures):
    """Terms of d are left out, and attention pads rows of nearly equal length."""
    novel = figures.shapes()["novel"].values()
    for level, (own, cost) in enumerate(zip(novel, figures.level_costs(), strict=True)):
        dim, out = figures.DEFAULT.dims[level : level + 2]
        lengths = figures.row_lengths(own["rows"])
        assert cost.places == lengths.sum()
        assert cost.compressor == 8 * (out // 2) * (dim + out // 2) * cost.places
        expected = figures.DEFAULT.encoder_cells[level] * (21.5 * dim**2 * cost.places + 2 * dim * (lengths**2).sum())
        assert 0.98 * expected < cost.encoder < 1.06 * expected
    assert figures.flat_cost(1000) == 4 * (12 * 128**2 * 1000 + 2 * 128 * 1000**2)


@pytest.mark.parametrize(("branching", "depth"), [(4, 2), (4, 3), (8, 2)])
def test_pairs_of_a_balanced_document(figures, branching, depth):
    """Counted from the rows of a document in which each node has so many children; marks are no children."""
    child = " ".join(["The"] * branching)
    if depth == 3:
        child = part("paragraph", *[child] * branching)
    tree = tree_of(*[child] * branching)
    kinds = ("sentence", "paragraph", "document") if depth == 3 else ("sentence", "document")
    levels = Levels.open(Store.from_trees([tree]), figures.words(), kinds, np.array([0]))
    rows = DocumentRows.of(levels, [branching + 1] * depth)
    assert len(levels.ids) == branching**depth
    pairs = sum(int((each.children**2).sum()) for each in rows.levels)
    assert figures.balanced_pairs(len(levels.ids), depth) == pytest.approx(pairs)
    assert pairs <= 2 * branching ** (depth + 1)

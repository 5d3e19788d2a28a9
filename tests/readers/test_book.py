"""Books: outlines to trees, XHTML, and the folders of Standard Ebooks."""

import re
import xml.etree.ElementTree as ET
import zipfile
from collections import Counter

import pytest
from books import CONTAINER, folder, page, read, shape
from hypothesis import given
from hypothesis import strategies as st

from ramify.errors import RamifyError
from ramify.readers.base import ReadCounts
from ramify.readers.book.levels import make_tree, parse_levels
from ramify.readers.book.outline import Outline, Work

CHAPTER = '<section data-parent="{part}" id="{id}" epub:type="chapter"><h3 epub:type="ordinal">{title}</h3>{text}</section>'
PAGES = {
    "titlepage.xhtml": page('<section epub:type="titlepage"><h1>The Kiln</h1></section>'),
    "preface.xhtml": page('<section id="preface" epub:type="preface"><h2>Preface</h2><p>Read it.</p></section>'),
    "part-1.xhtml": page(
        '<section id="part-1" epub:type="part"><hgroup><h2>Part <span>I</span></h2><p epub:type="title">Clay</p></hgroup>'
        "</section>"
    ),
    "chapter-1.xhtml": page(CHAPTER.format(part="part-1", id="c1", title="I", text="<p>One. Two.</p><p>Three.</p>")),
    "chapter-2.xhtml": page(
        CHAPTER.format(
            part="part-1",
            id="c2",
            title="II",
            text='<section id="c2-1" epub:type="z3998:subchapter"><h4>Night</h4><p>Four.</p></section>',
        )
    ),
    "part-2.xhtml": page('<section id="part-2" epub:type="part"><h2>Part II</h2></section>'),
    "chapter-3.xhtml": page(CHAPTER.format(part="part-2", id="c3", title="III", text="<p>Five.</p>")),
    "colophon.xhtml": page('<section epub:type="colophon"><p>Made by hand.</p></section>', body="backmatter"),
}


def test_folder(tmp_path):
    trees, counts = read(folder(tmp_path, PAGES))
    (tree,) = trees
    assert (tree.id, tree.meta) == (
        "ann-oak_the-kiln",
        {"title": "The Kiln", "author": "Ann Oak", "language": "en", "source": "https://example.org/kiln"},
    )
    assert shape(tree) == [
        "doc [The Kiln]",
        " cha [Preface]",
        "  par",
        "   sen Read it.",
        " cha [Part I: Clay / I]",
        "  par",
        "   sen One.",
        "   sen Two.",
        "  par",
        "   sen Three.",
        " cha [Part I: Clay / II]",
        "  par [Night]",
        "   sen Four.",
        " cha [Part II / III]",
        "  par",
        "   sen Five.",
    ]
    assert [node.id for node in tree.nodes[:8]] == ["0", "1", "1.1", "1.1.1", "2", "2.1", "2.1.1", "2.1.2"]
    assert (counts.skipped, counts.kept) == ({"titlepage": 1, "colophon": 1}, {})
    assert counts.read == len(tree) + 2


def test_divisions_as_levels(tmp_path):
    (tree,), counts = read(folder(tmp_path, PAGES), divisions="level")
    assert shape(tree) == [
        "doc [The Kiln]",
        " par",
        "  cha [Preface]",
        "   sub",
        "    par",
        "     sen Read it.",
        " par [Part I: Clay]",
        "  cha [I]",
        "   sub",
        "    par",
        "     sen One.",
        "     sen Two.",
        "    par",
        "     sen Three.",
        "  cha [II]",
        "   sub [Night]",
        "    par",
        "     sen Four.",
        " par [Part II]",
        "  cha [III]",
        "   sub",
        "    par",
        "     sen Five.",
    ]
    assert counts.kept == {"missing_level": 4}
    assert counts.examples["missing_level"][0].endswith("the-kiln: part 1")
    kinds = [node.kind for node in tree.nodes]
    assert kinds[1:6] == ["part", "chapter", "subchapter", "paragraph", "sentence"]


@pytest.mark.parametrize(
    ("levels", "lines"),
    [
        (
            "chapter,paragraph",
            ["doc [The Kiln]", " cha [Preface]", "  par Read it.", " cha [Part I: Clay / I]", "  par One. Two."],
        ),
        (
            "document,chapter,sentence",
            ["doc [The Kiln]", " cha [Preface]", "  sen Read it.", " cha [Part I: Clay / I]", "  sen One."],
        ),
        (["paragraph"], ["doc [The Kiln]", " par [Preface] Read it.", " par [Part I: Clay / I] One. Two.", " par Three."]),
        ("book,paragraph", ["doc [The Kiln]", " boo [Preface]", "  par Read it."]),
    ],
)
def test_levels(tmp_path, levels, lines):
    (tree,), _ = read(folder(tmp_path, PAGES), levels=levels)
    assert shape(tree)[: len(lines)] == lines


def test_named_levels_join_those_of_the_work(tmp_path):
    """A level that the work lacks stands where the option puts it."""
    (tree,), _ = read(folder(tmp_path, PAGES), levels="volume,part,chapter,paragraph", divisions="level")
    assert [tree.nodes[index].kind for index in tree.thread(len(tree) - 1)] == [
        *("document", "volume", "part", "chapter", "subchapter", "paragraph")
    ]


@pytest.mark.parametrize(
    "levels", ["", "chapter", "sentence,paragraph", "paragraph,chapter", "chapter,chapter,paragraph", "a,,paragraph"]
)
def test_levels_that_cannot_be(levels):
    with pytest.raises(RamifyError, match=r"the option levels=.* is invalid\. Expected different names from the highest"):
        parse_levels(levels)


def texts(tmp_path, content, **options):
    (tree,), counts = read(folder(tmp_path, {"a.xhtml": page(f'<section epub:type="chapter">{content}</section>')}), **options)
    return [node.text for node in tree.nodes if node.text], counts


def test_spaces_and_invisible_characters(tmp_path):
    found, _ = texts(tmp_path, "<p>A\u2060\u2014b\u00ad \u200a c\u00a0d\n\t\te.</p>")
    assert found == ["A\u2014b c d e."]


def test_verse(tmp_path):
    stanza = (
        "<blockquote epub:type='z3998:verse'><p><span>The kiln is cold.</span><br/><span>The</span> clay waits</p></blockquote>"
    )
    assert texts(tmp_path, stanza)[0] == ["The kiln is cold.", "The clay waits"]
    assert texts(tmp_path / "2", stanza, levels="chapter,paragraph")[0] == ["The kiln is cold.\nThe clay waits"]


def test_notes_pictures_and_scene_breaks(tmp_path):
    found, counts = texts(
        tmp_path,
        '<p>Hot<a href="#n" epub:type="noteref">1</a>.</p><hr/><figure><img src="a.png" alt="A kiln"/></figure>'
        '<p>***</p><aside epub:type="footnote"><p>Very.</p></aside><p>Cold.</p>',
    )
    assert found == ["Hot.", "Cold."]
    assert counts.skipped == {"scene_break": 2, "picture": 1, "footnote": 1}
    assert counts.kept == {"note_mark": 1}


def test_text_outside_of_paragraphs(tmp_path):
    content = (
        "<blockquote>Loose<p>Set</p><cite>Ann</cite></blockquote><table><tr><td>a</td><td>b</td></tr></table>"
        "<ul><li>x</li><li><p>y</p></li></ul>"
    )
    assert texts(tmp_path, content, levels="paragraph")[0] == ["Loose", "Set", "Ann", "a b", "x", "y"]


def test_headings_inside_a_section(tmp_path):
    content = "<h2>I</h2><h3>The Wheel</h3><p>Turn.</p><h3>Glaze</h3><p>Dip.</p>"
    (tree,), _ = read(
        folder(tmp_path, {"a.xhtml": page(f'<section epub:type="chapter">{content}</section>')}), levels="chapter,paragraph"
    )
    assert shape(tree) == ["doc [The Kiln]", " cha [I]", "  par [The Wheel] Turn.", "  par [Glaze] Dip."]
    (tree,), _ = read(
        folder(tmp_path / "2", {"a.xhtml": page('<section epub:type="chapter"><h2>I</h2><h3>Clay</h3><p>Dig.</p></section>')}),
        levels="chapter,paragraph",
    )
    assert shape(tree) == ["doc [The Kiln]", " cha [I: Clay]", "  par Dig."]


def test_the_title_of_the_page_names_a_section_without_heading(tmp_path):
    pages = {"a.xhtml": page('<section epub:type="dedication"><p>To B.</p></section>', title="Dedication")}
    (tree,), _ = read(folder(tmp_path, pages))
    assert tree.nodes[1].label == "Dedication"


def test_a_chapter_without_paragraphs_is_counted(tmp_path):
    pages = {
        "a.xhtml": page('<section epub:type="chapter"><h2>I</h2></section>'),
        "b.xhtml": page('<section epub:type="chapter"><h2>II</h2><p>Fire.</p></section>'),
    }
    (tree,), counts = read(folder(tmp_path, pages))
    assert [node.label for node in tree.nodes if node.kind == "chapter"] == ["II"]
    assert counts.skipped == {"empty_division": 1}
    assert counts.examples["empty_division"][0].endswith("chapter 'I'")


def test_a_book_without_paragraphs_is_counted(tmp_path):
    trees, counts = read(folder(tmp_path, {"a.xhtml": page("<h1>Nothing</h1>")}))
    assert not trees
    assert counts.skipped == {"empty_division": 1, "empty_book": 1}


def test_a_long_sentence_is_kept_and_counted(tmp_path):
    found, counts = texts(tmp_path, f"<p>{'clay ' * 5_000}.</p>")
    assert [len(text.split()) for text in found] == [5_001]
    assert counts.kept == {"long_sentence": 1}
    assert counts.examples["long_sentence"][0].endswith("sentence 1.1.1, 5,001 words")


def test_books_of_one_name_get_different_ids(tmp_path):
    for name in ("a", "b"):
        folder(tmp_path / name, {"a.xhtml": page("<p>Clay.</p>")})
    trees, _ = read(tmp_path)
    assert [tree.id for tree in trees] == ["ann-oak_the-kiln", "b/ann-oak_the-kiln"]
    trees, _ = read(tmp_path / "a", tmp_path / "b")
    assert [tree.id for tree in trees] == ["ann-oak_the-kiln", "ann-oak_the-kiln (2)"]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(["part", "book", "chapter", "section", "preface", ""])),
        st.tuples(st.just("end"), st.just("")),
        st.tuples(st.just("heading"), st.integers(1, 4)),
        st.tuples(st.just("paragraph"), st.sampled_from(["One. Two.", "Three", "a\nb", "***"])),
    ),
    max_size=25,
)


@given(
    steps,
    st.sampled_from(["chapter,paragraph,sentence", "part,chapter,section,paragraph", "sentence"]),
    st.sampled_from(["flatten", "level"]),
)
def test_any_outline_becomes_a_document(steps, levels, divisions):
    """No paragraph is lost or moved, all leaves are on one level, and every level has the kind that its depth says."""
    counts = ReadCounts()
    outline = Outline(counts, "x")
    written = []
    for number, (step, value) in enumerate(steps):
        if step == "begin":
            outline.begin(value, f"{value} {number}")
        elif step == "end":
            outline.end()
        elif step == "heading":
            outline.heading(value, f"Heading {number}")
        else:
            outline.paragraph(value)
            written += value.split() if value != "***" else []
    tree = make_tree(Work("x", "x", outline, {}), parse_levels(levels), divisions, counts)
    if tree is None:
        assert not written
        assert counts.read == counts.skipped.total()
        return
    assert " ".join(node.text for node in tree.nodes if node.text).split() == written
    assert counts.read == len(tree) + counts.skipped.total()
    assert len({node.id for node in tree.nodes}) == len(tree)
    kinds = {}
    leaves = set()
    for index, node in enumerate(tree.nodes):
        assert kinds.setdefault(int(tree.depth[index]), node.kind) == node.kind
        assert bool(node.text) == (not tree.children[index])
        if node.text:
            leaves.add(int(tree.depth[index]))
        # Reading order: a node follows its parent or the last descendant of its sibling.
        assert not node.parents or node.parents[0] in (index - 1, *tree.ancestors(index - 1))
    assert len(leaves) == 1
    assert list(kinds.values())[-1] == levels.rpartition(",")[2]


# --- published books --------------------------------------------------------------------------------------------------------

XHTML, OPF, TYPE = "{http://www.w3.org/1999/xhtml}", "{http://www.idpf.org/2007/opf}", "{http://www.idpf.org/2007/ops}type"
FRONT_AND_BACK = {"titlepage", "halftitlepage", "imprint", "colophon", "copyright-page", "endnotes", "loi"}
DIVISIONS = {"chapter", "preface", "prologue", "epilogue", "introduction", "foreword", "dedication", "epigraph", "preamble"}
OUTSIDE = {f"{XHTML}{tag}" for tag in ("hgroup", "h1", "h2", "h3", "h4", "h5", "h6")}


def bare(text):
    return "".join(text.replace("\u2060", "").split())


def plain_count(root):
    """(text without white space, paragraphs, chapters) of a book, counted with ElementTree alone."""
    opf = ET.parse(root / "src/epub/content.opf").getroot()
    files = {item.get("id"): item.get("href") for item in opf.iter(f"{OPF}item")}
    text, paragraphs, chapters = [], 0, 0

    def walk(element):
        nonlocal paragraphs
        if element.tag in OUTSIDE or element.get(TYPE) == "noteref":
            return
        paragraphs += element.tag == f"{XHTML}p" and bool(bare("".join(element.itertext())))
        text.append(element.text or "")
        for child in element:
            walk(child)
            text.append(child.tail or "")

    for ref in opf.iter(f"{OPF}itemref"):
        body = ET.parse(root / "src/epub" / files[ref.get("idref")]).getroot().find(f"{XHTML}body")
        if set(body[0].get(TYPE, "").split()) & FRONT_AND_BACK:
            continue
        chapters += sum(bool(set(section.get(TYPE, "").split()) & DIVISIONS) for section in body.iter(f"{XHTML}section"))
        walk(body)
    return bare("".join(text)), paragraphs, chapters


@pytest.mark.data
def test_a_published_book_as_epub_equals_its_folder(data_dir, tmp_path):
    root = data_dir("books") / "e-m-forster_a-room-with-a-view"
    path = tmp_path / "room.epub"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/container.xml", CONTAINER.replace("OEBPS", "epub"))
        for file in (root / "src").rglob("*.*"):
            archive.write(file, file.relative_to(root / "src").as_posix())
    (from_folder,), (from_epub,) = read(root)[0], read(path)[0]
    assert from_epub.nodes == from_folder.nodes
    assert from_epub.meta == from_folder.meta


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    [
        "jane-austen_emma",
        "mark-twain_the-adventures-of-huckleberry-finn",
        "fyodor-dostoevsky_crime-and-punishment_constance-garnett",
        "oscar-wilde_the-picture-of-dorian-gray",
    ],
)
def test_published_books_are_complete_and_in_order(data_dir, name):
    root = data_dir("books") / name
    (tree,), counts = read(root)
    text, paragraphs, chapters = plain_count(root)
    levels = Counter(node.kind for node in tree.nodes)
    assert (levels["paragraph"], levels["chapter"]) == (paragraphs, chapters)
    assert bare("".join(node.text for node in tree.nodes)) == text
    assert not re.search("[\u2060\u00a0\u200a]", "".join(node.text for node in tree.nodes))
    assert set(counts.kept) <= {"note_mark"}

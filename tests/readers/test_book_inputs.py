"""The kinds of input: EPUB, Project Gutenberg's text, Markdown, HTML and TEI, each good and bad, and their recognition."""

import gzip
import zipfile
from pathlib import Path

import pytest
from books import epub, folder, package, page, read, shape

from ramify.errors import RamifyError
from ramify.readers import archives, book, detect_format
from ramify.readers.book import container, tei, xhtml
from ramify.readers.sentences import sentences

PLAIN = {"1.xhtml": page("<h2>Chapter I</h2><p>Clay.</p>"), "2.xhtml": page("<h2>Chapter II</h2><p>Fire.</p>")}
TWO_CHAPTERS = ["doc [The Kiln]", " cha [Chapter I]", "  par Clay.", " cha [Chapter II]", "  par Fire."]

# --- EPUB ---------------------------------------------------------------------------------------------------------------


def test_epub_without_contents_is_divided_by_headings(tmp_path):
    (tree,), _ = read(epub(tmp_path / "kiln.epub", PLAIN), levels="chapter,paragraph")
    assert tree.id == "kiln"
    assert shape(tree) == TWO_CHAPTERS


NCX = """<?xml version="1.0"?><!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docTitle><text>The Kiln</text></docTitle><navMap>
<navPoint id="p"><navLabel><text>Part One</text></navLabel><content src="text/a.xhtml"/>
 <navPoint id="x"><navLabel><text>1. Clay</text></navLabel><content src="text/a.xhtml#x"/></navPoint>
 <navPoint id="y"><navLabel><text>2. Fire</text></navLabel><content src="text/c.xhtml"/></navPoint>
</navPoint></navMap></ncx>"""
NCX_ITEM = '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'


def test_epub_2_is_divided_by_its_table_of_contents(tmp_path):
    """A file without an entry continues the chapter; a heading that repeats its entry is no text; the guide names the cover."""
    pages = {
        "cover.xhtml": page("<p>Cover</p>"),
        "a.xhtml": page('<h1>Part One</h1><p>Before.</p><h2><a id="x"></a>Clay</h2><p>Dig.</p>'),
        "b.xhtml": page("<p>Dig on.</p>"),
        "c.xhtml": page("<h2>2. Fire</h2><h3>Night</h3><p>Burn.</p>"),
    }
    guide = '<guide><reference type="cover" href="text/cover.xhtml"/></guide>'
    opf = package(pages, NCX_ITEM, 'toc="ncx"', guide)
    path = epub(tmp_path / "kiln.epub", pages, opf, {"OEBPS/toc.ncx": NCX})
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert shape(tree) == [
        "doc [The Kiln]",
        " cha [Part One]",
        "  par Before.",
        " cha [Part One / 1. Clay]",
        "  par Dig.",
        "  par Dig on.",
        " cha [Part One / 2. Fire: Night]",
        "  par Burn.",
    ]
    assert (counts.skipped, counts.kept) == ({"cover": 1}, {"missing_level": 1})


def test_a_table_of_contents_that_is_not_well_formed_is_counted(tmp_path):
    path = epub(tmp_path / "k.epub", PLAIN, package(PLAIN, NCX_ITEM, 'toc="ncx"'), {"OEBPS/toc.ncx": NCX.replace("</ncx>", "")})
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert shape(tree) == TWO_CHAPTERS
    assert counts.kept == {"bad_xml": 1}
    assert "toc.ncx, line 6: no element found" in counts.examples["bad_xml"][0]


NAV = page(
    '<nav epub:type="toc"><ol><li><a href="text/a.xhtml#one">One</a></li><li><a href="text/a.xhtml#two">Two</a></li></ol></nav>'
    '<nav epub:type="landmarks"><ol><li><a epub:type="copyright-page" href="text/c.xhtml">Rights</a></li></ol></nav>'
)


def test_epub_3_navigation_and_landmarks(tmp_path):
    pages = {"a.xhtml": page('<p id="one">Clay.</p><p>Soft.</p><p id="two">Fire.</p>'), "c.xhtml": page("<p>All rights.</p>")}
    opf = package(pages, '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>')
    (tree,), counts = read(epub(tmp_path / "k.epub", pages, opf, {"OEBPS/nav.xhtml": NAV}), levels="chapter,paragraph")
    assert shape(tree) == ["doc [The Kiln]", " cha [One]", "  par Clay.", "  par Soft.", " cha [Two]", "  par Fire."]
    assert counts.skipped == {"copyright": 1}


@pytest.mark.parametrize("part", ["<span>Part Two</span>", "Part Two", "<a>Part Two</a>"])
def test_an_entry_of_the_contents_without_a_place_holds_the_next_one(tmp_path, part):
    """The title of a part that no file has: its chapters are not below the chapter before them."""
    pages = {name: page(f"<p>{name}</p>") for name in ("a.xhtml", "b.xhtml", "c.xhtml")}
    links = {name: f'<li><a href="text/{name}">{name[0].upper()}</a></li>' for name in pages}
    nav = page(
        f'<nav epub:type="toc"><ol>{links["a.xhtml"]}<li>{part}<ol>{links["b.xhtml"]}{links["c.xhtml"]}</ol></li></ol></nav>'
    )
    opf = package(pages, '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>')
    shapes = [" cha [A]", "  par a.xhtml", " cha [Part Two / B]", "  par b.xhtml", " cha [Part Two / C]", "  par c.xhtml"]
    (tree,), _ = read(epub(tmp_path / "3.epub", pages, opf, {"OEBPS/nav.xhtml": nav}), levels="chapter,paragraph")
    assert shape(tree)[1:] == shapes

    points = {
        name: f'<navPoint><navLabel><text>{name[0].upper()}</text></navLabel><content src="text/{name}"/></navPoint>'
        for name in pages
    }
    place = '<content src=""/>' if part.startswith("<") else ""
    ncx = (
        f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points["a.xhtml"]}<navPoint>'
        f"<navLabel><text>Part Two</text></navLabel>{place}{points['b.xhtml']}{points['c.xhtml']}</navPoint></navMap></ncx>"
    )
    opf = package(pages, NCX_ITEM, 'toc="ncx"')
    (tree,), _ = read(epub(tmp_path / "2.epub", pages, opf, {"OEBPS/toc.ncx": ncx}), levels="chapter,paragraph")
    assert shape(tree)[1:] == shapes


def test_a_page_that_repeats_title_and_author_is_left_out(tmp_path):
    pages = {"0.xhtml": page('<h1>The Kiln</h1><p class="author">By Ann Oak</p>'), **PLAIN}
    (tree,), counts = read(epub(tmp_path / "kiln.epub", pages), levels="chapter,paragraph")
    assert shape(tree) == TWO_CHAPTERS
    assert counts.skipped == {"titlepage": 1}


def test_bytes_that_are_not_utf_8_are_read_one_by_one(tmp_path):
    """The rest of the line, which may be the whole page, stays UTF-8."""
    content = page("<p>\u201cNa\u00efve\u201d caf@.</p>").replace("\n", "").encode().replace(b"@", b"\xe9")
    (tree,), counts = read(epub(tmp_path / "k.epub", {"a.xhtml": content}), levels="paragraph")
    assert tree.nodes[-1].text == "\u201cNa\u00efve\u201d caf\u00e9."
    assert counts.kept == {"bad_xml": 1, "encoding": 1}
    assert counts.examples["encoding"][0].endswith("a.xhtml, line 1")


def test_semantic_types_divide_an_epub(tmp_path):
    pages = {
        "a.xhtml": page(
            '<section id="p" epub:type="part"><h1>Part I</h1><section epub:type="chapter"><p>Clay.</p></section></section>'
        ),
        "b.xhtml": page(
            '<section id="p" epub:type="part"><section epub:type="chapter"><p>Fire.</p></section></section>', title="Fire"
        ),
    }
    (tree,), _ = read(epub(tmp_path / "k.epub", pages), divisions="level", levels="chapter,paragraph")
    assert [(node.kind, node.label) for node in tree.nodes if not node.text] == [
        ("document", "The Kiln"),
        ("part", "Part I"),
        ("chapter", None),
        ("chapter", "Fire"),
    ]


def test_pages_that_are_not_well_formed_are_read_as_html(tmp_path):
    pages = {"a.xhtml": page("<h2>I</h2><p>Clay &nbsp;<b>wet</p><p>Fire<br>hot"), "b.xhtml": page("<h2>II</h2><p>Ash.</p>")}
    (tree,), counts = read(epub(tmp_path / "k.epub", pages), levels="chapter,paragraph")
    assert [node.text for node in tree.nodes if node.text] == ["Clay wet", "Fire\nhot", "Ash."]
    assert counts.kept == {"bad_xml": 1}
    assert "OEBPS/text/a.xhtml, line " in counts.examples["bad_xml"][0]


def test_entities_of_a_dtd_are_not_lost(tmp_path):
    doctype = '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">'
    content = page("<p>Clay&mdash;wet&nbsp;clay &odd;</p>").replace("<html", doctype + "<html")
    (tree,), counts = read(epub(tmp_path / "k.epub", {"a.xhtml": content}), levels="paragraph")
    assert tree.nodes[1].text == "Clay\u2014wet clay &odd;"
    assert counts.kept == {"unknown_entity": 1}


BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
ENCRYPTION = """<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"
 xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData><enc:EncryptionMethod Algorithm="{}"/>
 <enc:CipherData><enc:CipherReference URI="OEBPS/text/1.xhtml"/></enc:CipherData></enc:EncryptedData></encryption>"""


@pytest.mark.parametrize(
    ("opf", "more", "message"),
    [
        (
            None,
            {"META-INF/encryption.xml": ENCRYPTION.format("http://www.w3.org/2001/04/xmlenc#aes256-cbc")},
            r"is encrypted \(OEBPS",
        ),
        (None, {"../../etc/x": "y"}, "holds a file '../../etc/x', whose name leads out of the archive"),
        (None, {"/etc/x": "y"}, "leads out of the archive"),
        (None, {"C:\\x": "y"}, "leads out of the archive"),
        (package(["../../../x"]), {}, r"content\.opf: the reading order names the item .*, whose file is outside of the book"),
        (package(["missing.xhtml"]), {}, "names the file 'OEBPS/text/missing.xhtml', which is missing"),
        (package([]), {}, "names no text"),
        (BOMB + "<package>&b;</package>", {}, r"content\.opf, line 1: the definition of the entity 'a' is refused"),
        ("<package>", {}, r"content\.opf, line 1: no element found\. Expected well-formed XML"),
    ],
)
def test_epubs_that_are_refused(tmp_path, opf, more, message):
    with pytest.raises(RamifyError, match=message):
        read(epub(tmp_path / "k.epub", PLAIN, opf, more))


def test_disguised_fonts_are_no_encryption(tmp_path):
    more = {"META-INF/encryption.xml": ENCRYPTION.format("http://www.idpf.org/2008/embedding")}
    (tree,), _ = read(epub(tmp_path / "k.epub", PLAIN, None, more), levels="chapter,paragraph")
    assert shape(tree) == TWO_CHAPTERS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"%PDF-1.7 ...", "is a PDF file, and an EPUB is a ZIP archive"),
        (b"", "is empty"),
        (b"PK\x03\x04 cut", "is not a complete ZIP file"),
        (b"just text", "is no ZIP archive, and an EPUB is"),
    ],
)
def test_files_that_are_no_epub(tmp_path, data, message):
    path = tmp_path / "k.epub"
    path.write_bytes(data)
    with pytest.raises(RamifyError, match=f"{path} {message}"):
        read(path)


def test_truncated_epub(tmp_path):
    path = epub(tmp_path / "k.epub", PLAIN)
    path.write_bytes(path.read_bytes()[:-40])
    assert detect_format([path]) == "book"
    with pytest.raises(RamifyError, match="is not a complete ZIP file"):
        read(path)


def test_damaged_page(tmp_path):
    path = epub(tmp_path / "k.epub", PLAIN)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("OEBPS/text/1.xhtml")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len(info.filename) + 5] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RamifyError, match=r"k\.epub is damaged \(OEBPS/text/1\.xhtml: "):
        read(path)


def test_other_archives_are_no_books(tmp_path):
    path = tmp_path / "k.epub"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(RamifyError, match=r"a ZIP archive without META-INF/container\.xml, so it is not an EPUB"):
        read(path)


def test_encrypted_files(tmp_path):
    path = epub(tmp_path / "k.epub", PLAIN)
    data = bytearray(path.read_bytes())
    # The flag of encryption in the directory's entry of the first page.
    entry = data.rindex(b"PK\x01\x02", 0, data.rindex(b"OEBPS/text/1.xhtml"))
    data[entry + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(RamifyError, match=r"is encrypted \(OEBPS/text/1\.xhtml\)"):
        read(path)


def test_zip_bombs(tmp_path, monkeypatch):
    path = epub(tmp_path / "k.epub", {"a.xhtml": page(" " * (4 << 20))})
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    with pytest.raises(RamifyError, match=r"a\.xhtml unpacks from .* to 4,19\d,\d+ bytes, more than 200 times as many"):
        read(path)
    monkeypatch.undo()
    monkeypatch.setattr(container, "MAX_FILE_BYTES", 2 << 20)
    with pytest.raises(RamifyError, match=r"a\.xhtml is larger than 2 MiB"):
        read(path)
    monkeypatch.setattr(container, "MAX_FILE_BYTES", 8 << 20)
    monkeypatch.setattr(container, "MAX_BOOK_BYTES", 3 << 20)
    with pytest.raises(RamifyError, match=r"k\.epub is larger than 3 MiB"):
        read(path)


def test_bomb_in_a_page_does_not_grow(tmp_path):
    content = BOMB + page("<p>x &b; y</p>").partition("?>")[2]
    (tree,), counts = read(epub(tmp_path / "k.epub", {"a.xhtml": content}), levels="paragraph")
    assert [node.text for node in tree.nodes[1:]] == ["x &b; y"]
    assert counts.kept == {"bad_xml": 1}


def test_elements_nested_too_deeply(tmp_path):
    path = tmp_path / "deep.html"
    path.write_text("<html><body>" + "<div>" * 2_000 + "x")
    with pytest.raises(RamifyError, match=r"deep\.html, line 1: elements nested deeper than 1,000"):
        read(path)


# --- Project Gutenberg --------------------------------------------------------------------------------------------------

GUTENBERG = """\ufeffThe Project Gutenberg eBook of The Kiln

Title: The Kiln
       A Tale
Author: Ann Oak
Release date: May 1, 2001 [eBook #99999]
Language: English

*** START OF THE PROJECT GUTENBERG EBOOK THE KILN ***

Produced by Bo Elm

THE KILN

CONTENTS

 CHAPTER I. Clay
 CHAPTER II. Fire

BOOK ONE

CHAPTER I.

Clay

It was _wet_ clay--
the best.[1] He dug.

    The kiln is cold,
      The clay waits.

[Illustration: A spade]

* * * * *

“Dig!” she said.

[Footnote 1: So it is
said.]

CHAPTER II. Fire

It burned.

BOOK TWO

CHAPTER I

THE ASH

Grey.

*** END OF THE PROJECT GUTENBERG EBOOK THE KILN ***

Section 1. Terms of Use
"""


def test_gutenberg(tmp_path):
    path = tmp_path / "kiln.txt"
    path.write_text(GUTENBERG.replace("\n", "\r\n"), "utf-8", newline="")
    assert detect_format([path]) == "book"
    (tree,), counts = read(path, levels="chapter,paragraph", divisions="level")
    assert tree.meta == {
        "title": "The Kiln A Tale",
        "author": "Ann Oak",
        "language": "en",
        "source": "https://www.gutenberg.org/ebooks/99999",
    }
    assert shape(tree) == [
        "doc [The Kiln A Tale]",
        " boo [BOOK ONE]",
        "  cha [CHAPTER I: Clay]",
        "   par It was wet clay--the best. He dug.",
        "   par The kiln is cold,\nThe clay waits.",
        "   par “Dig!” she said.",
        "  cha [CHAPTER II. Fire]",
        "   par It burned.",
        " boo [BOOK TWO]",
        "  cha [CHAPTER I: THE ASH]",
        "   par Grey.",
    ]
    parts = {"licence": 2, "credits": 1, "contents": 1, "picture": 1, "scene_break": 1, "footnote": 1, "titlepage": 1}
    assert counts.skipped == parts
    assert counts.kept == {"note_mark": 1}
    assert "Terms" not in "".join(node.text for node in tree.nodes)


@pytest.mark.parametrize(
    "note",
    [
        "Produced by Bo Elm and the Online Distributed\nProofreading Team",
        "E-text prepared by Bo Elm",
        "This etext was typed by Bo Elm",
        "This eBook was produced by Bo Elm <bo@elm.example>",
        "HTML version by Bo Elm.",
        "Scanned and proofed by Bo Elm",
        "This file was made from images of a library.",
        "Transcribed from the 1901 edition by Bo Elm",
        "[This file was produced from images\ngenerously made available by a library.]",
        "Note: Project Gutenberg also has an HTML version of this\nfile which includes the pictures.",
        "Note: Images of the original pages are available",
        "[Transcriber's Note: Spelling is kept.\n\nSo are the commas.]",
        "Transcriber’s Notes:\n\nSpelling is kept.\n\nSo are the commas.\n\n",
        "[Redactor's note: Spelling is kept.]",
        "NOTES ON THE E-TEXT: Spelling is kept.",
        "A note from the transcriber:\n\nSpelling is kept.\n\n",
        "E-text notes: Spelling is kept.",
    ],
)
@pytest.mark.parametrize("place", ["Produced by Bo Elm", "Grey.\n"])
def test_notes_of_the_makers(tmp_path, note, place):
    """Notes that are named so are left out anywhere; the names of the makers, before the first heading."""
    if place != "Produced by Bo Elm" and not any(word in note.lower() for word in ("transcriber", "redactor", "notes")):
        return
    path = tmp_path / "kiln.txt"
    path.write_text(GUTENBERG.replace(place, f"{note}\n\n" if place != "Grey.\n" else f"Grey.\n\n\n\n{note}\n"), "utf-8")
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert [node.text for node in tree.nodes if node.text] == [
        "It was wet clay--the best. He dug.", "The kiln is cold,\nThe clay waits.", "“Dig!” she said.", "It burned.", "Grey.",
    ]  # fmt: skip
    assert counts.skipped["credits"] == 1 + (place == "Grey.\n")


def test_prose_that_speaks_of_makers_stays(tmp_path):
    path = tmp_path / "kiln.txt"
    said = "The pots were produced by Bo Elm.\n\nThis book was given to me.\n\nA transcriber noted it."
    path.write_text(GUTENBERG.replace("Grey.", said), "utf-8")
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert [node.text for node in tree.nodes][-3:] == said.split("\n\n")
    assert counts.skipped["credits"] == 1


def test_a_chapter_outside_of_the_folder_of_its_book(tmp_path):
    book_folder = folder(tmp_path / "kiln", PLAIN)
    chapter = next(book_folder.rglob("2.xhtml"))
    (tmp_path / "secret.xhtml").write_text(page("<p>Secret.</p>"))
    chapter.unlink()
    chapter.symlink_to(tmp_path / "secret.xhtml")
    with pytest.raises(RamifyError, match=r"2\.xhtml is a link to .*secret\.xhtml, outside of the book's folder"):
        read(book_folder)


def test_a_text_outside_of_the_folder_of_texts(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "1.md").write_text("# One\n\nClay.\n")
    (tmp_path / "secret.md").write_text("# Two\n\nSecret.\n")
    (tmp_path / "book" / "2.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(RamifyError, match=r"2\.md is a link to .*secret\.md, outside of the book's folder"):
        read(tmp_path / "book")


@pytest.mark.parametrize("above", ["", "shelf"])
def test_an_unpacked_epub(tmp_path, above):
    packed = epub(tmp_path / "kiln.epub", PLAIN)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "shelf" / "kiln")
    (expected,), _ = read(packed)
    where = tmp_path / "shelf" if above else tmp_path / "shelf" / "kiln"
    (tree,), counts = read(where)
    assert tree == expected
    assert counts.skipped == {}
    assert detect_format([where]) == "book"


def test_notes_that_begin_with_their_mark(tmp_path):
    """A block is a note only if an earlier block has its mark."""
    path = tmp_path / "kiln.txt"
    path.write_text("CHAPTER I\n\n[3] spades.\n\nIt was wet.[1]\n\n[1] Very.\n\nHe dug.\n")
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert [node.text for node in tree.nodes if node.text] == ["spades.", "It was wet.", "He dug."]
    assert (counts.skipped, counts.kept) == ({"footnote": 1}, {"note_mark": 2})


def test_numbered_chapters_and_mixed_encodings(tmp_path):
    path = tmp_path / "kiln.txt"
    path.write_bytes("I\n\nCaf\u00e9.\n\nII\n\n".encode() + b"Na\xefve \x93clay\x94.\n")
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert shape(tree) == ["doc", " cha [I]", "  par Caf\u00e9.", " cha [II]", "  par Na\u00efve \u201cclay\u201d."]
    assert counts.kept == {"encoding": 1}
    assert counts.examples["encoding"] == [f"{path}, line 7"]


def test_text_without_headings_gets_a_chapter(tmp_path):
    path = tmp_path / "kiln.txt.gz"
    path.write_bytes(gzip.compress(b"Clay. Fire.\n\nAsh.\n"))
    (tree,), counts = read(path)
    assert tree.id == "kiln"
    assert shape(tree) == ["doc", " cha", "  par", "   sen Clay.", "   sen Fire.", "  par", "   sen Ash."]
    assert counts.kept == {"missing_level": 1}


# --- Markdown and HTML --------------------------------------------------------------------------------------------------

MARKDOWN = """---
title: "The Kiln"
author: Ann Oak
---
# Part I

## Clay

It is *wet* [clay](http://x.y)[^1], `red`
or grey.

- dig
- knead

| a | b |
|---|---|
| c | d |

![A spade](s.png)

[^1]: Very
    wet.

### Wheel

Turn.

```
x = 1
[^2]: y
```

---

## Fire

Burn.\\
Hot.
"""


def test_markdown(tmp_path):
    path = tmp_path / "kiln.md"
    path.write_text(MARKDOWN)
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert tree.meta == {"title": "The Kiln", "author": "Ann Oak"}
    assert shape(tree) == [
        "doc [The Kiln]",
        " cha [Part I / Clay]",
        "  par It is wet clay, red or grey.",
        "  par dig",
        "  par knead",
        "  par a b",
        "  par c d",
        "  par [Wheel] Turn.",
        "  par x = 1\n[^2]: y",
        " cha [Part I / Fire]",
        "  par Burn.\nHot.",
    ]
    assert counts.skipped == {"front_matter": 1, "footnote": 1, "picture": 1, "scene_break": 1}
    assert counts.kept == {"note_mark": 1}
    assert counts.examples["footnote"] == [f"{path}, line 21"]


def test_attributes_of_headings_are_no_text(tmp_path):
    path = tmp_path / "kiln.md"
    path.write_text("# Clay {#clay .wet}\n\nDig.\n\n# Fire {: #fire}\n\nBurn.\n\n# The set {a}\n\nAsh.\n")
    (tree,), _ = read(path, levels="chapter,paragraph")
    assert [node.label for node in tree.nodes if node.kind == "chapter"] == ["Clay", "Fire", "The set {a}"]


def test_one_heading_around_everything_is_the_title(tmp_path):
    path = tmp_path / "kiln.md"
    path.write_text("# The Kiln\n\nBefore.\n\n## Clay\n\nDig.\n\n## Fire\n\nBurn.\n")
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert shape(tree) == ["doc [The Kiln]", " cha", "  par Before.", " cha [Clay]", "  par Dig.", " cha [Fire]", "  par Burn."]
    assert counts.kept == {"missing_level": 1}


def test_html(tmp_path):
    path = tmp_path / "kiln.html"
    path.write_bytes(
        b"<!DOCTYPE html><html lang=en><head><title>The Kiln</title><meta name=author content='Ann Oak'><meta charset=latin-1>"
        b"<style>p {}</style></head><body><h2>PART I</h2><h2>Chapter 1</h2><h3>Clay</h3><p>Caf\xe9 <i>wet</i><p>Dry"
        b"<h2>Chapter 2</h2>Loose<br><br>text<ul><li>a<li>b</ul><h2>PART II</h2><h2>Chapter 1</h2>"
        b"<p class=poem>x<br>y</p></body></html>"
    )
    (tree,), _ = read(path, divisions="level", levels="chapter,paragraph")
    assert tree.meta == {"title": "The Kiln", "author": "Ann Oak", "language": "en"}
    assert shape(tree) == [
        "doc [The Kiln]",
        " par [PART I]",
        "  cha [Chapter 1: Clay]",
        "   par Caf\u00e9 wet",
        "   par Dry",
        "  cha [Chapter 2]",
        "   par Loose",
        "   par text",
        "   par a",
        "   par b",
        " par [PART II]",
        "  cha [Chapter 1]",
        "   par x\ny",
    ]


# --- TEI ----------------------------------------------------------------------------------------------------------------

TEI = """<?xml version="1.0"?><TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><fileDesc>
<titleStmt><title>The Kiln</title><author>Ann Oak</author></titleStmt><publicationStmt><idno>K1</idno></publicationStmt>
<sourceDesc><bibl><title>Other</title></bibl></sourceDesc></fileDesc>
<profileDesc><langUsage><language ident="en">English</language></langUsage></profileDesc></teiHeader>
<text><front><titlePage><docTitle><titlePart>The Kiln</titlePart></docTitle></titlePage></front><body>
<div type="part"><head>Part I</head><div type="chapter" n="1"><p>Wet<note>Very.</note> cl<lb break="no"/>ay
<choice><sic>iz</sic><corr>is</corr></choice><lb/>good.</p><lg><l>Cold kiln</l><l>Clay waits</l></lg>
<sp><speaker>ANN</speaker><l>Dig!</l><stage>digs</stage><p>More <quote>clay</quote>.</p></sp></div></div></body></text></TEI>"""


def test_tei(tmp_path):
    path = tmp_path / "kiln.xml"
    path.write_text(TEI)
    assert detect_format([path]) == "book"
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert tree.meta == {"title": "The Kiln", "author": "Ann Oak", "source": "K1", "language": "en"}
    assert shape(tree) == [
        "doc [The Kiln]",
        " cha [Part I / chapter 1]",
        "  par Wet clay is good.",
        "  par Cold kiln\nClay waits",
        "  par Dig!",
        "  par More clay.",
    ]
    assert [node.author for node in tree.nodes] == [None, None, None, None, "ANN", "ANN"]
    assert (counts.skipped, counts.kept) == ({"titlepage": 1, "footnote": 1, "stage_direction": 1}, {"alternative": 1})


def test_titles_name_divisions_of_unknown_types(tmp_path):
    path = tmp_path / "kiln.xml"
    path.write_text(
        TEI.replace('type="part"', 'type="level1"').replace('type="chapter" n="1">', 'type="level2"><head>Chapter 1</head>')
    )
    (tree,), _ = read(path, levels="chapter,paragraph")
    assert shape(tree)[1] == " cha [Part I / Chapter 1]"


def test_a_tei_corpus_is_several_documents(tmp_path):
    path = tmp_path / "all.xml"
    one = TEI.partition("?>")[2]
    path.write_text(f'<teiCorpus xmlns="http://www.tei-c.org/ns/1.0"><teiHeader/>{one}{one}</teiCorpus>')
    assert [tree.id for tree in read(path)[0]] == ["all", "all/2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("</lg>", ""), r"kiln\.xml, line \d+: mismatched tag\. Expected well-formed TEI"),
        (
            lambda text: text.replace("<TEI", '<!DOCTYPE x [<!ENTITY a "b">]><TEI'),
            "the definition of the entity 'a' is refused",
        ),
    ],
)
def test_bad_tei(tmp_path, change, message):
    path = tmp_path / "kiln.xml"
    path.write_text(change(TEI))
    with pytest.raises(RamifyError, match=message):
        read(path)


# --- recognition --------------------------------------------------------------------------------------------------------


def test_books_are_guessed(tmp_path):
    root = folder(tmp_path, PLAIN)
    assert detect_format([root]) == "book"
    epub(tmp_path / "kiln.epub", PLAIN)
    (tmp_path / "AUTHORS").write_text("Ann Oak")
    (tmp_path / "README.md").write_text("# Read me")
    assert detect_format([tmp_path]) == "book"
    trees, counts = read(tmp_path)
    assert [tree.id for tree in trees] == ["ann-oak_the-kiln", "kiln"]
    assert counts.skipped == {"not_a_book": 1}
    assert counts.examples["not_a_book"] == [f"{tmp_path / 'AUTHORS'}"]


@pytest.mark.parametrize(
    ("name", "content"), [("README.md", "# A"), ("a.html", "<html></html>"), ("a.txt", "CHAPTER I\n\nx\n")]
)
def test_what_may_be_anything_is_not_guessed(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    assert "need --format book" in book.refuses(path, content.encode())
    reason = (
        "a folder without books" if name == "README.md" else "a folder with other texts (--format book reads them as books)"
    )
    assert book.refuses(tmp_path, b"") == reason


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.bin", b"\x00\x01\x02", "cannot be read as a book. Expected a folder of Standard Ebooks"),
        ("a.txt", b"\x7fELF\x00\x00", "is not text"),
        ("a.txt", b"", "is empty"),
        ("a.xml", b"<slack></slack>", "cannot be read as a book"),
    ],
)
def test_files_that_are_no_book(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(RamifyError, match=message):
        read(path)


def test_a_folder_without_books(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(RamifyError, match=r"holds no book\. Expected folders of Standard Ebooks"):
        read(tmp_path)


def test_reasons_are_documented():
    """Reasons in tables, which the test of literal ones does not see."""
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")
    tables = (*xhtml.LEFT_OUT.values(), *xhtml.CLASSES_LEFT_OUT.values(), *xhtml.MARKS.values(), *tei.LEFT_OUT.values())
    tables += (*tei.REMOVED.values(), xhtml.RUBY["rt"])
    assert not [reason for reason in tables if f"`{reason}`" not in page]


# --- sentences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He dug. She came.", 2),
        ("“Dig. Dig on.” He dug.", 3),
        ("“Oh!” she said. “Why?” Ann slowly asked. “So?” I said.", 3),
        ("“Why?” He repeated the words.", 2),
        ("Mr. Oak and Dr. B. C. Elm, Esq., met Mrs. Oak—Mr. Elm smiled.", 1),
        ("It is for me. I dug. He said no. Never. She is ill. Anne is not.", 6),
        ("Ann, Bo and I. We dug.", 2),
        ("Never! ’Tis clay. “‘Yes.’ ”", 3),
        ("He dug. (She did not. He knew.) “Dig,” he said.", 4),
        ("Look!—the kiln … and the fire! and ash", 1),
        ('He said. "No. Never." Then "Why?" she said.', 4),
        ("Clay", 1),
    ],
)
def test_sentences(text, expected):
    found = sentences(text)
    assert len(found) == expected, found
    assert "".join("".join(found).split()) == "".join(text.split())


def test_sentences_in_other_languages():
    assert sentences("Er kommt am 3. Mai. Gut.", "de") == ["Er kommt am 3. Mai.", "Gut."]
    assert sentences("一つ。二つ。", "ja") == ["一つ。", "二つ。"]
    assert sentences("Wan. Tu.", "zz") == ["Wan.", "Tu."]

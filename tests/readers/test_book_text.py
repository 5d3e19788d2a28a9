"""What leaves the text of books: ruby readings, marks of notes, deletions; and what becomes of speakers and emphasis."""

import pytest
from books import epub, gutenberg, package, page, read, sentences_of, shape

from ramify.readers.book.outline import without_emphasis

FLAT = {"levels": "chapter,paragraph"}


def written(tmp_path, name, content, **options):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    (tree,), counts = read(path, **options)
    return tree, counts


# --- ruby -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ruby", "count"),
    [
        ("<ruby>窯<rp>（</rp><rt>かま</rt><rp>）</rp></ruby>", 1),
        ("<ruby>\n <rb>窯</rb>\n <rt>かま</rt>\n</ruby>", 1),
        ("<ruby><rb>窯</rb><rtc><rt>かま</rt></rtc><rtc>kiln</rtc></ruby>", 2),
    ],
)
def test_ruby_readings_and_their_brackets_leave_the_text(tmp_path, ruby, count):
    path = epub(tmp_path / "k.epub", {"a.xhtml": page(f"<h1>{ruby}</h1><p>赤い{ruby}が冷えた。</p>")})
    (tree,), counts = read(path, **FLAT)
    assert (tree.nodes[1].label, tree.nodes[-1].text) == ("窯", "赤い窯が冷えた。")
    assert counts.kept == {"ruby": 2 * count}


def test_titles_of_the_table_of_contents_have_no_readings_and_no_marks_of_notes(tmp_path):
    pages = {
        "a.xhtml": page("<p><ruby>窯<rt>かま</rt></ruby></p>"),
        "b.xhtml": page('<h1>Fire<a href="#x">2</a></h1><p>Hot.</p><p class="footnote" id="x">Very.</p>'),
        "c.xhtml": page("<h1>Clay</h1><p>Wet.</p>"),
    }
    titles = ("<ruby>窯<rp>(</rp><rt>かま</rt><rp>)</rp></ruby>", "Fire<sup>2</sup>", "Clay 2")
    links = "".join(f'<li><a href="text/{name}">{title}</a></li>' for name, title in zip(pages, titles, strict=True))
    opf = package(pages, '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>')
    path = epub(tmp_path / "k.epub", pages, opf, {"OEBPS/nav.xhtml": page(f'<nav epub:type="toc"><ol>{links}</ol></nav>')})
    (tree,), _ = read(path, **FLAT)
    assert [node.label for node in tree.nodes if node.kind == "chapter"] == ["窯", "Fire", "Clay 2"]


def test_ruby_without_end_tags_in_html(tmp_path):
    body = "<p><ruby>粘<rp>(<rt>ねん<rp>)<rb>土<rt>ど</ruby>と<ruby><rb>赤<rb>土<rtc><rt>あか<rt>つち</rtc><rb>色</ruby>だ。"
    tree, counts = written(tmp_path, "k.html", f"<html lang=ja><body>{body}</body></html>", levels="paragraph")
    assert tree.nodes[-1].text == "粘土と赤土色だ。"
    assert counts.kept == {"ruby": 3}


def test_ruby_in_markdown_and_in_japanese_plain_text(tmp_path):
    tree, counts = written(tmp_path, "k.md", "赤い<ruby>窯<rp>(</rp><rt>かま</rt><rp>)</rp></ruby>。\n", levels="paragraph")
    assert (tree.nodes[-1].text, counts.kept) == ("赤い窯。", {"ruby": 1})
    text = "赤い窯《かま》の｜Kiln《キルン》と《赤》。"
    tree, counts = written(tmp_path, "ja.txt", gutenberg("Japanese", text), levels="paragraph")
    assert (tree.nodes[-1].text, counts.kept) == ("赤い窯のKilnと《赤》。", {"ruby": 2})
    tree, counts = written(tmp_path, "zh.txt", gutenberg("Chinese", text), levels="paragraph")
    assert (tree.nodes[-1].text, counts.kept) == (text, {})


# --- marks of notes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "note"),
    [
        ('<sup><a href="#k4">4</a></sup>', '<p class="footnote" id="k4">4 Very.</p>'),
        (' [<a href="#k4">4</a>]', '<aside epub:type="footnote"><p><a id="k4"></a>Very.</p></aside>'),
        ('<a href="#k4">[4]</a>', '<div class="endnotes"><p id="k4">Very.</p></div>'),
        ('<a href="#a4">†</a>,<a href="#b4">‡</a>', '<div class="footnotes"><p id="a4">A</p><p id="b4">B</p></div>'),
        ('<a id="_ftnref4" href="#_ftn4">[4]</a>', '<p class="x"><a href="#_ftnref4" name="_ftn4">[4]</a> Very.</p>'),
        ('<a href="#ftn4">4</a>', '<div id="ftn4"><p class="MsoFootnoteText">4 Very.</p><p>So.</p></div>'),
        ('<a href="#fn4" class="footnote-ref" role="doc-noteref"><sup>4</sup></a>', '<ul><li id="fn4"><p>Very.</p></li></ul>'),
        ('<a href="#Footnote_4_4">[D]</a>', '<div class="footnote"><p><a id="Footnote_4_4"></a>[D] Very.</p></div>'),
        ('<a id="m4" href="#k4"><sup>iv</sup></a>', '<div><p><a id="k4" href="#m4">iv</a> Very.</p></div>'),
        ('<sup id="m4"><a href="#k4">[4]</a></sup>', '<ol><li id="k4">↑ <a href="#m4">a</a> <i>Very</i>.</li></ol>'),
        ('<a id="m4" href="#k4">*</a>', '<ol><li id="k4"><p>Very. <a href="#m4">↩</a></p></li></ol>'),
    ],
)
def test_the_mark_of_a_note_that_is_left_out_leaves_with_it(tmp_path, mark, note):
    content = page(f"<p>The clay{mark}. It is dry{mark} now.</p>{note}<p>Fire.</p>")
    (tree,), counts = read(epub(tmp_path / "k.epub", {"a.xhtml": content}), levels="paragraph")
    assert sentences_of(tree) == ["The clay. It is dry now.", "Fire."]
    assert counts.kept == {"note_mark": 4 if "‡" in mark else 2}
    assert counts.skipped.total() == 1


def test_marks_lead_to_other_files_and_back(tmp_path):
    pages = {
        "a.xhtml": page(
            '<h1>I</h1><p>Wet<a href="notes.xhtml#x">1</a>. See <a href="b.xhtml#c2">2</a>, <a href="b.xhtml#c2">so</a>.</p>'
        ),
        "b.xhtml": page('<h1 id="c2">II</h1><p>Dry. <a href="a.xhtml#m">↩</a></p>'),
        "notes.xhtml": page('<section epub:type="endnotes"><ol><li id="x"><p>Very.</p></li></ol></section>'),
    }
    (tree,), counts = read(epub(tmp_path / "k.epub", pages), **FLAT)
    assert sentences_of(tree) == ["Wet. See 2, so.", "Dry."]
    assert (counts.kept["note_mark"], counts.skipped) == (2, {"endnotes": 1})


def test_a_division_of_notes_is_left_out_with_their_marks(tmp_path):
    """Only its blocks that marks lead to are notes."""
    pages = {
        "a.xhtml": page('<h1>I</h1><p>Wet<a href="n.xhtml#x">i</a>, see <a href="b.xhtml#y">2</a>.</p><p id="z">Hot.</p>'),
        "b.xhtml": page('<h1>II</h1><p id="y">Dry<a class="noteref" href="n.xhtml#w">ii</a>.</p>'),
        "n.xhtml": page(
            '<h1>Endnotes</h1><p id="x">Very. <a href="a.xhtml">Back</a></p><p id="w">So.</p><p id="v">Ann wrote these.</p>'
        ),
    }
    (tree,), counts = read(epub(tmp_path / "k.epub", pages), **FLAT)
    assert sentences_of(tree) == ["Wet, see 2.", "Hot.", "Dry.", "Ann wrote these."]
    assert (counts.kept, counts.skipped) == ({"note_mark": 2}, {"footnote": 2})


def test_numbers_that_lead_to_each_other_are_no_notes(tmp_path):
    """As between a list of chapters and their headings, and between paragraphs with numbers and what is said of them."""
    body = (
        '<p><a id="t1" href="#c1">1</a> Clay</p><h2><a id="c1" href="#t1">1</a> Clay</h2>'
        '<p><a id="v1" href="#w1">2</a> Wet.</p><p><a id="w1" href="#v1">2</a> Dry.</p>'
    )
    tree, counts = written(tmp_path, "k.html", f"<html><body>{body}</body></html>", levels="paragraph")
    assert sentences_of(tree) == ["1 Clay", "2 Wet.", "2 Dry."]
    assert (counts.kept, counts.skipped) == ({}, {})


def test_links_to_text_and_words_that_lead_to_notes_stay(tmp_path):
    body = (
        '<p>As <a href="#n1">the note on clay</a> says, see chapter <a href="#two">2</a>. H<sub>2</sub>O.</p>'
        '<h2 id="two">Two</h2><p id="kept">[3] Fire<a href="#kept">3</a>.</p><p class=footnote id=n1>Clay.</p>'
    )
    tree, counts = written(tmp_path, "k.html", f"<html><body><h2>One</h2>{body}</body></html>", **FLAT)
    assert sentences_of(tree) == ["As the note on clay says, see chapter 2. H2O.", "[3] Fire3."]
    assert (counts.kept, counts.skipped) == ({}, {"footnote": 1})


def test_a_chapter_with_the_title_of_a_table_of_contents_stays(tmp_path):
    body = (
        "<h2>Table</h2><p>1. Le four.</p><p>La nuit.</p><p>II Le feu 7</p><h2>Le four</h2><p>Sec.</p>"
        "<h2>La nuit</h2><p>Froid.</p><h2>Table</h2><p>On mange.</p><p>C'est bon!</p>"
    )
    tree, counts = written(tmp_path, "k.html", f"<html lang=fr><body>{body}</body></html>", **FLAT)
    assert sentences_of(tree) == ["Sec.", "Froid.", "On mange.", "C'est bon!"]
    assert counts.skipped == {"contents": 1}


# --- TEI ------------------------------------------------------------------------------------------------------------------

TEI = """<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><fileDesc><titleStmt><title>The Kiln</title></titleStmt></fileDesc>
<profileDesc><particDesc><listPerson><person xml:id="ivo"><persName>Ivo <surname>Elm</surname></persName></person></listPerson>
</particDesc></profileDesc></teiHeader><text xml:lang="en"><front><castList><castItem>
<role xml:id="una"> <persName>Una</persName></role></castItem>
</castList></front><body>{}</body></text></TEI>"""


def tei(tmp_path, body, **options):
    return written(tmp_path, "kiln.xml", TEI.format(body), **(FLAT | options))


def test_descriptions_and_directions_beside_names_are_no_text(tmp_path):
    body = """<div><desc><title>About</title></desc><head>I</head><p>Dry <gap><desc>torn</desc></gap>clay.</p>
    <sp><speaker>Bo (softly) [aside].</speaker><p>Dig.</p></sp></div>"""
    tree, counts = tei(tmp_path, body)
    assert [(node.author, node.text) for node in tree.nodes if node.text] == [(None, "Dry clay."), ("Bo", "Dig.")]
    assert tree.nodes[1].label == "I"
    assert (counts.skipped, counts.kept) == ({"front_matter": 2, "stage_direction": 2}, {"gap": 1})


def test_speakers_are_authors_and_stage_directions_are_left_out(tmp_path):
    body = """<div type="act"><head>Act 1</head><div type="scene"><head>Scene 1</head><stage>A yard.</stage>
    <sp who="#wren"><speaker>WREN.</speaker><lg><l>The kiln is cold,</l><stage>Digs.</stage><l>the clay waits.</l></lg></sp>
    <sp who="#ivo"><p>So it <stage type="delivery">(aside)</stage> is. Dig!</p></sp><p>Night.</p>
    <sp who="#wren #una"><p>We dig.</p></sp><sp who="#bo"><ab>No, <persName>Ann</persName>.</ab></sp>
    <sp who="#ivo"><speaker>IVO.</speaker><p>Again!</p></sp>
    <sp><speaker>ALL</speaker></sp></div></div>"""
    tree, counts = tei(tmp_path, body, levels="chapter,paragraph,sentence")
    assert [(node.author, node.text) for node in tree.nodes if node.text] == [
        ("WREN", "The kiln is cold,"),
        ("WREN", "the clay waits."),
        ("Ivo Elm", "So it is."),
        ("Ivo Elm", "Dig!"),
        (None, "Night."),
        ("WREN, Una", "We dig."),
        ("bo", "No, Ann."),
        ("Ivo Elm", "Again!"),
    ]
    assert [node.author for node in tree.nodes if node.kind == "paragraph"] == [
        *("WREN", "Ivo Elm", None, "WREN, Una", "bo"),
        "Ivo Elm",
    ]
    assert counts.skipped == {"front_matter": 1, "stage_direction": 3, "empty_division": 1}


@pytest.mark.parametrize(
    ("text", "expected", "kept"),
    [
        ("a <del>b</del><add>c</add> d", "a c d", {"deletion": 1}),
        ("a <subst>\n <del>b</del>\n <add>c</add>\n</subst>d", "a cd", {"deletion": 1}),
        ("a <restore><del>b</del></restore>", "a b", {}),
        ("a<choice>\n <reg>b</reg>\n <orig>c</orig>\n</choice>d", "abd", {"alternative": 1}),
        ("a <choice><abbr>b</abbr><expan>c</expan></choice> d", "a c d", {"alternative": 1}),
        ("a <choice><sic>b</sic></choice> d", "a b d", {}),
        ("a <choice><unclear>b</unclear><unclear>c</unclear></choice> d", "a b d", {"alternative": 1}),
        ("a <app><lem>b</lem><rdgGrp><rdg>c</rdg><rdg>d</rdg></rdgGrp></app> e", "a b e", {"alternative": 1}),
        ("a <app><rdg>b</rdg><rdg>c</rdg></app> d", "a b d", {"alternative": 1}),
        ("clay<gap/> wet", "clay wet", {"gap": 1}),
        ("Ver-<lb/>\nstand, Anglo-<lb/>Saxon a - <lb/>b", "Verstand, Anglo-Saxon a - b", {}),
        ("prom-\n<pb break='no'/><fw>12</fw><lb break='no'/>ise, wa<lb break='no'/>ter", "promise, water", {"page_number": 1}),
        ("clay<pb n='2'/> wet<lb/>dry", "clay wet dry", {}),
        (
            "Wet<ref target='#n1'>1</ref>, see <ref target='#d2'>2</ref>.<note xml:id='n1'>So.</note>",
            "Wet, see 2.",
            {"note_mark": 1},
        ),
    ],
)
def test_readings_deletions_and_breaks(tmp_path, text, expected, kept):
    tree, counts = tei(tmp_path, f"<div><p>{text}</p></div>")
    assert (tree.nodes[-1].text, counts.kept) == (expected, kept)


# --- emphasis -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("I: _To Ann._ and =Bo=", "I: To Ann. and Bo"),
        ("*To* **Ann**, ***oh***", "To Ann, oh"),
        ("+A+ ~B~ ~~C~~ ==D== e+f=g~h", "A B C D e+f=g~h"),
        *(
            (title, title)
            for title in ("snake_case_names and __init__", "Two * three * four", "Note*", "_so", "a = b = c", "5*6*7")
        ),
    ],
)
def test_marks_of_emphasis_leave_titles(title, expected):
    assert without_emphasis(title) == expected


def test_titles_lose_emphasis_in_all_formats(tmp_path):
    tree, _ = written(
        tmp_path, "k.txt", gutenberg("English", "_LETTER I_\n\n_To Mr. Elmwood._\n\nDig.\n\nLETTER II. *Bo*\n\nDig on."), **FLAT
    )
    assert shape(tree)[1:] == [" cha [LETTER I: To Mr. Elmwood]", "  par Dig.", " cha [LETTER II. Bo]", "  par Dig on."]
    tree, _ = written(tmp_path, "k.html", "<html><body><h2>_Clay_</h2><p>_a_</p><h2>Fire</h2><p>b</p></body></html>", **FLAT)
    assert shape(tree)[1:] == [" cha [Clay]", "  par _a_", " cha [Fire]", "  par b"]
    tree, _ = written(tmp_path, "k.md", "# *Clay* of **Ann**\n\na\n\n# ~~\\*Fire\\*~~ `_x_`\n\nb\n", **FLAT)
    assert [node.label for node in tree.nodes if node.kind == "chapter"] == ["Clay of Ann", "*Fire* _x_"]

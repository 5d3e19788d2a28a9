import gzip
import itertools
import json
import lzma
import os
import threading
from bz2 import compress as bzip2
from functools import partial
from textwrap import fill

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ramify import dataset, readers
from ramify.errors import RamifyError
from ramify.readers import base, text
from ramify.readers.base import ReadCounts

WIKITEXT = (
    " \n = Green tea = \n \n Tea is a drink . \n It is green . \n \n = = Making = = \n \n Pour water . \n = no heading = \n \n"
    " = Rain = \n \n Rain falls . \n"
)


def read(*paths, **options):
    counts = ReadCounts()
    rows = [row for batch in text.read(paths, counts, **options) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


def texts(*paths, **options):
    return [row["text"] for row in read(*paths, **options)[0]]


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


# --- units --------------------------------------------------------------------------------------------------------------


def test_units(write):
    path = write("One.\nTwo.\n\n \t\nThree.\n")
    assert texts(path) == texts(path, unit="document") == ["One.\nTwo.\n\n \t\nThree."]
    rows, _ = read(path, unit="paragraph")
    assert [row["text"] for row in rows] == ["One.\nTwo.", "Three."]
    assert [row["tree"] for row in rows] == [row["id"] for row in rows] == ["a.txt/0000000001", "a.txt/0000000002"]
    assert json.loads(rows[1]["meta"]) == {"file": "a.txt", "line": 5, "group": rows[1]["group"]}
    assert texts(path, unit="line") == ["One.", "Two.", "", "", "Three."]


def test_wikitext_headings_end_documents(write):
    rows, _ = read(write(WIKITEXT))
    titles = [json.loads(row["meta"])["title"] for row in rows]
    assert titles == ["Green tea", "Rain"]
    assert rows[0]["text"].startswith("= Green tea =")
    assert rows[0]["text"].endswith("Pour water . \n = no heading =")
    assert [json.loads(row["meta"])["line"] for row in rows] == [2, 12]
    assert [row["group"] for row in rows] == [row["tree"] for row in rows]
    assert len(texts(write(WIKITEXT), headings="none")) == 1


def test_headings_count_only_in_files_that_begin_with_one(write):
    path = write("Foreword\n\n" + WIKITEXT)
    assert len(texts(path)) == 1
    rows, _ = read(path, headings="wikitext")
    assert [json.loads(row["meta"]).get("title") for row in rows] == [None, "Green tea", "Rain"]
    # Formats that number headings with equals signs have no blanks around the line.
    assert len(texts(write("= Tea =\n\nText\n\n= Rain =\n\nText\n"))) == 1


def test_published_file(data_dir):
    path = data_dir("wikitext-2") / "valid.txt"
    assert len(texts(path)) == 60
    lines, counts = read(path, unit="line")
    assert (len(lines), sum(not row["text"] for row in lines), counts.kept) == (3760, 1299, {})
    paragraphs = texts(path, unit="paragraph")
    inside = [line.strip() for paragraph in paragraphs for line in paragraph.split("\n")]
    assert inside == [row["text"] for row in lines if row["text"]]
    assert not text.refuses(path, path.read_bytes()[: 1 << 16])


LINES = st.lists(
    st.sampled_from(["", " ", "a", "b c ", " = A = ", " = = B = = ", " = C =", "é" * 9, "x\x0cy", "\t"]), max_size=30
)


@given(lines=LINES, size=st.integers(1, 40), first=st.sampled_from(["", " = T = \n \n"]), end=st.sampled_from(["", "\n"]))
def test_results_do_not_depend_on_blocks(tmp_path_factory, lines, size, first, end):
    """The units of a plain computation over all lines; every line that is not blank is in one unit."""
    path = tmp_path_factory.mktemp("text") / "a.txt"
    content = first + "\n".join(lines) + end or "\n"
    path.write_bytes(content.encode())
    whole = content.replace("\x0c", " ").removesuffix("\n").split("\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_READ_BYTES", size)
        headings = "auto" if first else "none"
        by_unit = {unit: texts(path, unit=unit, headings=headings) for unit in ("line", "paragraph", "document")}
    assert by_unit["line"] == [line.strip() for line in whole]
    runs = itertools.groupby(whole, key=lambda line: bool(line.strip()))
    assert by_unit["paragraph"] == ["\n".join(run).strip() for filled, run in runs if filled]
    padded = ["", *whole, ""]
    heads = [
        place
        for place, line in enumerate(whole)
        if first and line.strip() in ("= T =", "= A =", "= C =") and not padded[place].strip() and not padded[place + 2].strip()
    ]
    edges = sorted({0, *heads, len(whole)})
    assert by_unit["document"] == ["\n".join(whole[one:other]).strip() for one, other in itertools.pairwise(edges)]


# --- order, groups and names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["line", "paragraph"])
def test_splits_are_contiguous_blocks_in_order(write, tmp_path, unit):
    path = write("".join(f"line {number} of the file\n\n" for number in range(3_000)))
    rows, _ = read(path, unit=unit)
    block = max(path.stat().st_size // text.BLOCKS, text.SMALLEST_BLOCK)
    assert len({row["group"] for row in rows}) == -(-path.stat().st_size // block)
    store = dataset.build([path], "text", tmp_path / "store", options={"unit": unit}, memory=8 << 20)
    assert (store.num_trees, store.info["skipped"].get("empty", 0)) == (3_000, 3_000 * (unit == "line"))
    split_of = {name: split for split in dataset.store.SPLITS for name in store.tree_ids(store.split(split))}
    groups: dict[str, list[str]] = {}
    for tree in store.trees():
        groups.setdefault(tree.meta["group"], []).append(tree.id)
    assert all(len({split_of[name] for name in names}) == 1 for names in groups.values())
    assert all(names == sorted(names) for names in groups.values())
    # A group is stored in one piece, and its numbers are those of a contiguous part of the file.
    assert sum(one.meta["group"] != other.meta["group"] for one, other in itertools.pairwise(store.trees())) == len(groups) - 1
    assert sorted(names for names in groups.values()) == sorted(groups.values(), key=lambda names: names[0])


@pytest.mark.parametrize("pack", [gzip.compress, bzip2, lzma.compress, zstandard.compress])
def test_compressed_files_have_the_same_units_and_groups(write, pack):
    content = "".join(f"A sentence with number {number}.\n" for number in range(20_000)).encode()
    plain, _ = read(write(content), unit="line")
    packed, _ = read(write(pack(content), "packed.txt.gz"), unit="line")
    numbered = [(row["text"], row["group"].partition("#")[2]) for row in plain]
    assert [(row["text"], row["group"].partition("#")[2]) for row in packed] == numbered


def test_names_of_files(write, tmp_path):
    for name in ("x/a.txt", "x/sub/a.txt", "y/a.txt", "y/b.txt"):
        write("Text.", name)
    # A single folder, or a single file, has the same names wherever it lies.
    assert [row["tree"] for row in read(tmp_path / "x")[0]] == ["x/a.txt/0000000001", "x/sub/a.txt/0000000001"]
    both = read(tmp_path / "x" / "a.txt", tmp_path / "y" / "a.txt", tmp_path / "y" / "b.txt")[0]
    assert [json.loads(row["meta"])["file"] for row in both] == ["x/a.txt", "y/a.txt", "b.txt"]
    with pytest.raises(RamifyError, match=r"a\.txt is named twice"):
        read(tmp_path / "x", tmp_path / "x" / "a.txt")


def test_other_files_in_a_folder_are_counted(write, tmp_path):
    for name, content in {"a.TXT": "Text.", "b.txt.gz": gzip.compress(b"More."), "c.json": "{}", "empty.txt": ""}.items():
        write(content, name)
    write(b"%PDF-1.7", "d.txt")
    rows, counts = read(tmp_path)
    assert [row["text"] for row in rows] == ["Text.", "More."]
    assert counts.skipped == {"not_text": 2, "empty_file": 1}
    assert counts.examples["not_text"][1].endswith("d.txt: its first bytes are those of a PDF file. Convert it to text first")
    # Without any file of that ending, all are read, as the files of the 1 Billion Word Benchmark.
    for name in ("news.en-00001-of-00100", "news.en-00002-of-00100"):
        write("One .\nTwo .\n", f"words/{name}")
    assert texts(tmp_path / "words", unit="line") == ["One .", "Two ."] * 2


def test_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("One.\nTwo.\n" * 10_000))
    writer.start()
    rows, _ = read(pipe, unit="line")
    writer.join()
    assert (len(rows), rows[-1]["group"]) == (20_000, f"pipe#{(100_000 - 5) // text.BLOCK_OF_PIPE:06d}")


# --- characters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(write, encoding, end):
    path = write(f"Grüße{end}{end}zwei \u2028 drei{end}vier{end}".encode(encoding))
    rows, counts = read(path, unit="paragraph")
    assert [row["text"] for row in rows] == ["Grüße", "zwei \u2028 drei\nvier"]
    assert counts.kept == {}


def test_mixed_encodings_are_counted(write):
    path = write("Käse\n".encode() + "Käse – gut\n".encode("cp1252") + b"plain\n" * 9)
    rows, counts = read(path, unit="line")
    assert [row["text"] for row in rows[:3]] == ["Käse", "Käse – gut", "plain"]
    assert counts.kept == {"encoding": 1}
    assert counts.examples["encoding"] == [f"{path}, line 2"]


@pytest.mark.parametrize("encoding", ["koi8-r", "cp1251", "gb18030", "shift-jis"])
def test_other_encodings_must_be_named(write, encoding):
    line = "Дождь идёт.\n" if encoding in ("koi8-r", "cp1251") else "今日は雨です。\n"
    path = write((line * 9).encode(encoding))
    with pytest.raises(RamifyError, match=r"neither UTF-8 nor Windows-1252.*--option encoding"):
        read(path)
    assert texts(path, unit="line", encoding=encoding) == [line.strip()] * 9


def test_damaged_lines_of_utf_8_are_counted(write):
    rows, counts = read(write("Дождь идёт.\n".encode() * 9 + b"\xd0\n" + "Дождь".encode()), unit="line")
    assert (rows[0]["text"], len(rows), counts.kept) == ("Дождь идёт.", 11, {"encoding": 1})


def test_control_characters(write):
    path = write("a\x00b\n\x0cpage\n\x0c\nesc\x1b \x7f\ta\n" + "x" * 999)
    rows, counts = read(path, unit="line")
    assert [row["text"] for row in rows[:4]] == ["a b", "page", "", "esc   \ta"]
    assert counts.kept == {"control": 2}
    assert counts.examples["control"] == [f"{path}, line 1", f"{path}, line 4"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"%PDF-1.7 ...", "a PDF file"),
        (b"PK\x03\x04 ...", "a ZIP archive"),
        (bytes(range(256)) * 9, "control characters"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", r"a 7z archive, .* Unpack it \(7z x FILE\)"),
        ("\u65e5\u672c\n".encode("iso2022_jp"), r"escapes of iso-2022-jp, .*--option encoding=iso-2022-jp"),
        (b"", r"is empty\. Check"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "pointer of Git LFS"),
    ],
)
def test_other_files_are_refused(write, content, message):
    with pytest.raises(RamifyError, match=message):
        read(write(content))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(write, encoding):
    assert texts(write("Hello there.\n".encode(encoding))) == ["Hello there."]


def test_iso_2022_by_its_name(write):
    assert texts(write("\u65e5\u672c\n".encode("iso2022_jp")), encoding="iso2022_jp") == ["\u65e5\u672c"]


def test_blank_files(write, tmp_path):
    assert texts(write(" \n\n")) == [""]
    assert texts(write(b"\xef\xbb\xbf"), unit="paragraph") == []
    with pytest.raises(RamifyError, match=r"no tree found .* 1 record read as 'text', left out: empty 1"):
        dataset.build([write(" \n\n")], "text", tmp_path / "store")


def test_unknown_encoding(write):
    with pytest.raises(RamifyError, match="the option encoding='other' is invalid"):
        read(write("x"), encoding="other")


# --- caps ---------------------------------------------------------------------------------------------------------------


def test_long_lines_are_left_out(write, monkeypatch):
    monkeypatch.setattr(text, "blocks", partial(base.blocks, max_line_bytes=50))
    monkeypatch.setattr(text, "_READ_BYTES", 16)
    path = write("a\n\nb\n" + "x" * 200 + "\nc\n\nd\n")
    rows, counts = read(path, unit="line")
    assert [(row["text"], row["id"][-2:]) for row in rows][3:] == [("c", "05"), ("", "06"), ("d", "07")]
    assert counts.skipped == {"too_long": 1}
    assert counts.examples["too_long"][0].startswith(f"{path}, line 4: a line of more than")
    assert texts(path, unit="paragraph") == ["a", "d"]
    rows, counts = read(path)
    assert (rows, counts.skipped) == ([], {"too_long": 1})
    assert counts.examples["too_long"][0].endswith("; choose a smaller unit, or divide a single line (fold -s -w 1000)")


def test_long_units_are_left_out(write, monkeypatch):
    monkeypatch.setattr(text, "MAX_CHARACTERS", 40)
    monkeypatch.setattr(text, "_READ_BYTES", 8)
    path = write(" = A = \n \n" + "words\n" * 9 + " \n = B = \n \nshort\n")
    rows, counts = read(path)
    assert [row["text"] for row in rows] == ["= B = \n \nshort"]
    assert counts.skipped == {"too_long": 1}
    assert len(texts(path, unit="paragraph")) == 3


# --- the guess ----------------------------------------------------------------------------------------------------------

SENTENCES = [
    "The kettle was on the stove before anybody had come down to the kitchen.",
    "She looked out of the window, where the rain had stopped at last.",
    "“Two minutes,” he said, “and not a second longer.”",
    "Nobody answered, because the cat had jumped onto the table again!",
    "In the garden the first leaves were falling, although it was only August.",
    "After breakfast they walked down to the harbour and counted the boats.",
    "Who had left the gate open, and why did the dog not bark?",
    "Old maps of the coast hung between the doors of the long corridor.",
    "Later, when the lamps were lit, their uncle told them about the storm.",
    "It would take years until the bridge across the river was rebuilt.",
    "Most of the letters had been burnt, but one of them was found behind a drawer.",
    "Then the bell rang twice.",
]


def paragraphs(wrapped):
    blocks = [" ".join(SENTENCES[place : place + 3]) for place in range(0, len(SENTENCES), 3)]
    if wrapped:
        blocks = [fill(block, 60) for block in blocks]
    return "\n\n".join(blocks) + "\n"


PROSE = {
    "paragraphs": paragraphs(False),
    "wrapped": paragraphs(True),
    "one paragraph per line": paragraphs(False).replace("\n\n", "\n"),
    "sentences": "\n".join(SENTENCES) + "\n",
    "tokenized": "\n".join(sentence.replace(".", " .").replace(",", " ,") for sentence in SENTENCES) + "\n",
    "wikitext": WIKITEXT,
    "page breaks": paragraphs(True).replace("\n\n", "\n\n\x0c", 3),
}


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_guessed(write, name):
    assert readers.detect_format([write(PROSE[name])]) == "text"
    assert readers.detect_format([write(gzip.compress(PROSE[name].encode()), "a.txt.gz")]) == "text"
    # Other endings, or none, are not those of plain text.
    with pytest.raises(RamifyError, match=r"text +not named \.txt"):
        readers.detect_format([write(PROSE[name], "a.dat")], verbose=True)


def chat(template, names=("Ann", "Bob", "Cy")):
    return "".join(
        template.format(name=names[number % len(names)], text=sentence, n=number, minute=number % 60)
        for number, sentence in enumerate(SENTENCES * 2)
    )


OTHERS = {
    **{
        template: chat(template)
        for template in (
            "{name}: {text}\n", "{name} | {text}\n", "{name} > {text}\n", "{name} - {text}\n", "{name} — {text}\n",
            "<{name}> {text}\n", "{name} {text}\n", "{name}\n{text}\n\n", "{name}, 10:{minute:02}\n{text}\n\n",
            "{text} ({name})\n", "At 10:{minute:02} {name} wrote: {text}\n", "10:{minute:02} {name} {text}\n",
            "{name} ({n}) {text}\n", "#{n} {name} {text}\n", "{name}\t{text}\n", "{name};{text}\n", "{text} -- {name}\n",
            "{n}. {text}\n", "{name} says {text}\n", "[{n}] {text}\n", "{name} (10.{minute:02}): {text}\n\n",
            "{name} wrote on 3 May 2011 10:{minute:02}:\n{text}\n{text}\n\n", "{name}, {text}\n",
        )
    },
    "csv": "sentence,label\n" + "".join(f'"{sentence}",{number % 2}\n' for number, sentence in enumerate(SENTENCES)),
    "labels": "".join(f"{number % 2} {sentence}\n" for number, sentence in enumerate(SENTENCES)),
    "labels after": "".join(f"{sentence} {number % 2}\n" for number, sentence in enumerate(SENTENCES)),
    "words as labels": "".join(f"{['Good', 'Bad'][number % 2]} {sentence}\n" for number, sentence in enumerate(SENTENCES)),
    "fasttext": "".join(f"__label__{number % 2} {sentence}\n" for number, sentence in enumerate(SENTENCES)),
    "json": json.dumps({"text": SENTENCES}, indent=1),
    "json lines": "".join(json.dumps({"text": sentence}) + "\n" for sentence in SENTENCES),
    "html": "<html><body>" + "".join(f"<p>{sentence}</p>\n" for sentence in SENTENCES),
    "gutenberg": "The Project Gutenberg eBook of Tea\n\n" + PROSE["wrapped"],
    "chapters": "TEA\n\nCHAPTER I. In the Kitchen\n\n" + PROSE["wrapped"],
    "mail": "From: Ann\nSubject: Tea\n\n" + PROSE["wrapped"],
    "a poem": "\n".join(f"and {' '.join(sentence.split()[:5])}" for sentence in SENTENCES * 3),
    "words": "\n".join(" ".join(SENTENCES).split()),
    "little": SENTENCES[0],
    "program": "".join(f"def f{number}(x):\n    return x[{number}] + {number}\n\n" for number in range(40)),
    "subtitles": "".join(f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{text}\n\n" for n, text in enumerate(SENTENCES)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_texts_are_not_guessed(write, name):
    path = write(OTHERS[name])
    assert text.refuses(path, path.read_bytes()).endswith("If it is plain text, name it with --format text")


# --- files from elsewhere -----------------------------------------------------------------------------------------------


@given(st.binary(max_size=200), st.sampled_from(["document", "paragraph", "line"]))
def test_no_bytes_end_in_another_error(tmp_path_factory, data, unit):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(data)
    try:
        rows, _ = read(path, unit=unit)
    except RamifyError:
        return
    for row in rows:
        assert "\n" not in row["text"] or unit != "line"
        assert isinstance(json.loads(row["meta"]), dict)
        assert text.refuses(path, data)

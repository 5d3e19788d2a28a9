import bz2
import gzip
import io
import lzma
import os
import re
from pathlib import Path

import pytest
import zstandard

from ramify.errors import RamifyError
from ramify.readers import FORMATS, base, check_paths, detect_format, find_format, left_out, list_files, open_inputs, read_logs
from ramify.readers.base import Policy, ReadCounts, blocks, lines, open_bytes

TEXT = b"".join(b"line %d, some text\n" % number for number in range(5_000))

PACKERS = {
    "zst": zstandard.compress,
    "two frames.zst": lambda data: zstandard.compress(data[:1000]) + zstandard.compress(data[1000:]),
    "long window.zst": lambda data: zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True)
    ).compress(data),
    "bz2": bz2.compress,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "txt": bytes,
}


def stream_of(data):
    return io.BufferedReader(io.BytesIO(data), buffer_size=16)


@pytest.mark.parametrize("name", PACKERS)
def test_archives_are_recognised_by_content(tmp_path, name):
    packed = PACKERS[name](TEXT)
    path = tmp_path / "no-suffix"
    path.write_bytes(packed)
    counts = ReadCounts()
    with open_bytes(path, counts) as stream:
        assert stream.read() == TEXT
    assert counts.bytes == len(packed)


@pytest.mark.parametrize("name", ["zst", "two frames.zst", "bz2", "gz", "xz"])
@pytest.mark.parametrize("left", [0.5, -1])
def test_truncated_archive_is_refused(tmp_path, name, left):
    packed = PACKERS[name](TEXT)
    path = tmp_path / "half"
    path.write_bytes(packed[: int(len(packed) * left) if left > 0 else left])
    with pytest.raises(RamifyError, match=r"half is truncated .* again"), open_bytes(path) as stream:
        stream.read()


@pytest.mark.parametrize("name", ["bz2", "xz"])
def test_archives_of_several_streams(tmp_path, name):
    """Several streams, as pbzip2 writes them; a damaged later stream is not the end of the file."""
    half = len(TEXT) // 2
    first, second = PACKERS[name](TEXT[:half]), PACKERS[name](TEXT[half:])
    padding = b"\0" * 8 if name == "xz" else b""
    path = tmp_path / "two"
    path.write_bytes(first + padding + second + padding)
    with open_bytes(path) as stream:
        assert stream.read() == TEXT
    broken = bytearray(second)
    broken[5] ^= 255
    path.write_bytes(first + broken)
    with pytest.raises(RamifyError, match="two cannot be read"), open_bytes(path) as stream:
        stream.read()
    path.write_bytes(first + second[:-20])
    with pytest.raises(RamifyError, match="two is truncated"), open_bytes(path) as stream:
        stream.read()


def test_damaged_archive_is_refused(tmp_path):
    path = tmp_path / "damaged"
    path.write_bytes(zstandard.compress(TEXT)[:4] + b"x" * 400)
    with pytest.raises(RamifyError, match="damaged cannot be read"), open_bytes(path) as stream:
        stream.read()


@pytest.mark.parametrize("content", [b"", zstandard.compress(b""), gzip.compress(b"", mtime=0)], ids=["plain", "zst", "gz"])
def test_empty_file_is_refused(tmp_path, content):
    path = tmp_path / "nothing"
    path.write_bytes(content)
    with pytest.raises(RamifyError, match="nothing is empty"):
        open_bytes(path)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_blocks_hold_whole_lines(size):
    data = TEXT[:2_000] + b"no end"
    found = list(blocks(stream_of(data), ReadCounts(), Path("f"), size=size))
    assert b"".join(block for _, block in found) == data
    assert all(block.endswith(b"\n") for _, block in found[:-1])
    numbers = [number for numbers, _ in found for number in numbers]
    assert numbers == list(range(1, data.count(b"\n") + 2))


def test_lines_end_at_newlines_only_and_without_a_byte_order_mark():
    data = "\ufeffone\x85still one\r\n\n\x1cthree".encode()
    assert [line for block in lines(stream_of(data), ReadCounts(), Path("f")) for line in block] == [
        "one\x85still one\r".encode(),
        b"",
        b"\x1cthree",
    ]


@pytest.mark.parametrize("size", [4, 64, 1_000])
def test_long_line_is_skipped_and_numbers_stay(size):
    data = b"one\n" + b"x" * 5_000 + b"\nthree\n" + b"y" * 5_000
    counts = ReadCounts()
    found = list(blocks(stream_of(data), counts, Path("f"), size=size, max_line_bytes=100))
    joined = b"".join(block for _, block in found)
    assert joined.split(b"\n")[:3] == [b"one", b"", b"three"]
    assert b"xx" not in joined
    assert counts.skipped["too_long"] == counts.read == 2
    assert counts.examples["too_long"] == ["f, line 2: longer than 100 bytes", "f, line 4: longer than 100 bytes"]


def test_report_keeps_ten_examples():
    counts = ReadCounts()
    for number in range(20):
        counts.skip("odd", f"line {number}")
    counts.skip("none", count=0)
    counts.repair("mended", count=3)
    assert counts.skipped == {"odd": 20}
    assert counts.kept == {"mended": 3}
    assert counts.examples == {"odd": [f"line {number}" for number in range(base.EXAMPLES)]}


def test_policy_names():
    assert Policy.named({"cycle": "root"}) == Policy(cycle="root")
    with pytest.raises(RamifyError, match=r"the policy cycle='keep' does not exist. Choose drop or root"):
        Policy.named({"cycle": "keep"})
    with pytest.raises(RamifyError, match="The cases are deleted, empty, orphan"):
        Policy.named({"bots": "drop"})


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_readers(name):
    module = find_format(name).load()
    assert callable(find_format(name).reads)
    assert module.refuses(Path("nothing.of-the-kind"), b"\x00\x01")


def test_unknown_format_lists_the_formats():
    with pytest.raises(RamifyError, match=r"no format 'nope'(.|\n)*jsonl(.|\n)*pushshift"):
        find_format("nope")


def test_guess(tmp_path):
    path = tmp_path / "x"
    path.write_text('{"id": "a", "nodes": []}\n')
    assert detect_format([path]) == "jsonl"
    path.write_text('{"id": "a", "parent": null, "tree": "t", "text": "x"}\n')
    assert detect_format([path]) == "table"
    path.write_text("id\tparent\ttree\ttext\n")
    assert detect_format([path]) == "table"
    path.write_text('{"id": "a", "link_id": "t3_b", "parent_id": "t3_b", "body": ""}\n')
    assert detect_format([path]) == "pushshift"
    assert detect_format([tmp_path]) == "pushshift"
    path.write_text('{"id": "a", "meta": {"title": "T", "subreddit": "s"}, "nodes": [{"id": "p", "text": "x"}]}\n')
    assert detect_format([path]) == "jsonl"
    path.write_text('{"id": "a", "title": "T", "subreddit": "s", "selftext": "say \\"nodes\\": [1]"}\n')
    assert detect_format([path]) == "pushshift"
    with pytest.raises(RamifyError, match="there is no file or folder"):
        detect_format([tmp_path / "absent"])


def test_failed_guess_gives_the_reason_of_each_format(tmp_path):
    path = tmp_path / "x"
    path.write_text("\n<wren> hi\nnothing that anybody knows\nnor this\n")
    with pytest.raises(RamifyError, match=rf"cannot detect the format of {path}\. It looks like text\. Every") as raised:
        detect_format([path], verbose=True)
    tried = dict(line.split(maxsplit=1) for line in str(raised.value).splitlines()[1:-1])
    assert list(tried) == list(FORMATS)
    assert tried["jsonl"] == 'line 2: no JSON object with a list "nodes"'
    assert tried["slack"].startswith("not a ZIP archive")
    assert tried["table"] == "line 1: no column for id, parent, tree, text"
    assert tried["irc"] == "line 3: 'nothing that anybody knows' is not in the dialect plain, which fits 33% of the first lines"
    # For several files the message names the file; for a folder, the missing files and the unsuitable ones, each once.
    other = tmp_path / "log"
    other.write_text("[09:05] <wren> hi\n")
    with pytest.raises(RamifyError, match=rf"irc +{path}: line 3: "):
        detect_format([other, path])
    with pytest.raises(
        RamifyError, match=rf"slack +no channels\.json in it, .*; {other}: not a ZIP archive(.|\n)*irc +{path}: line 3"
    ):
        detect_format([tmp_path], verbose=True)


def test_pipes_are_not_guessed(tmp_path):
    """Bytes read for the guess would be missing later."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RamifyError, match=r"pipe is a pipe, .* --format"):
        detect_format([tmp_path / "pipe"])
    for name in ("chat-table", "discord", "slack"):
        with pytest.raises(RamifyError, match=r"pipe is a pipe, .* to a file first"):
            next(find_format(name).reads([tmp_path / "pipe"], ReadCounts()))


def test_folders_are_read_as_their_files(tmp_path):
    for name in ("b/2", "b/1", "a", ".hidden", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [str(file.relative_to(tmp_path)) for file in list_files([tmp_path])] == ["a", "b/1", "b/2"]


def test_files_that_cannot_be_data_are_left_out(tmp_path):
    names = {
        False: (
            "LICENSE", "licence.txt", "LICENSE-MIT", "LICENSE-2.0.txt", "README", "README.md", "ReadMe.txt", "read_me.html",
            "NOTICE", "CHANGELOG.md", "CITATION.cff", "COPYING", "notes.md", "Thumbs.db", "desktop.ini", ".DS_Store",
            ".git/config", "__MACOSX/a/._b.json", "sub/README", "sub/.cache/x.json",
        ),
        True: ("a.json", "readme_posts.csv", "licenses.json", "sub/notice.log", "b.txt", "cool.readme", "md"),
    }  # fmt: skip
    for name in [name for each in names.values() for name in each]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert {file.relative_to(tmp_path).as_posix() for file in list_files([tmp_path])} == set(names[True])
    shown = {name.split("/")[0] + "/" if name.startswith((".git", "__")) else name for name in names[False]}
    assert left_out([tmp_path]) == {tmp_path: sorted({"sub/.cache/" if "cache" in name else name for name in shown})}
    # A file that is named is read.
    assert list_files([tmp_path / "LICENSE"]) == [tmp_path / "LICENSE"]
    assert left_out([tmp_path / "LICENSE"]) == {}


def test_markdown_is_read_from_a_folder_of_nothing_else(tmp_path):
    for name in ("README.md", "cover.png", "one.md", "two.md"):
        (tmp_path / name).write_text("x")
    assert [file.name for file in list_files([tmp_path])] == ["cover.png", "one.md", "two.md"]
    for name in ("cover.png", "one.md", "two.md"):
        (tmp_path / name).unlink()
    with pytest.raises(RamifyError, match=r"holds only README\.md, which are not read from a folder"):
        check_paths([tmp_path])


def test_cache_of_a_hub_without_a_single_snapshot(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots").mkdir()
    with pytest.raises(RamifyError, match="a cache of the Hugging Face hub with no snapshot"):
        list_files([tmp_path])
    for name in ("a", "b"):
        (tmp_path / "snapshots" / name).mkdir()
    with pytest.raises(RamifyError, match="2 snapshots, and refs/main names none of them"):
        list_files([tmp_path])


LOG = "10:00 ann> hi\n10:01 bob> ho\n"


def test_inputs_are_opened_with_what_the_user_is_told(tmp_path):
    (tmp_path / "README.txt").write_text("about")
    (tmp_path / "a.jsonl").write_text('{"id": "t", "nodes": [{"id": "a", "text": "words"}]}\n')
    told = []
    inputs = open_inputs([tmp_path], tell=told.append)
    assert (inputs.format.name, [tree.id for tree in inputs.records()], inputs.counts.read) == ("jsonl", ["t"], 1)
    assert told[0] == f"left out of {tmp_path}: README.txt"
    assert re.fullmatch(r"format: jsonl \(.*\), guessed; --format overrides it", told[1])
    told.clear()
    assert open_inputs([tmp_path / "a.jsonl"], "jsonl", tell=told.append).format.name == "jsonl"
    assert told == []


def test_empty_files_are_left_out_in_python_too(tmp_path):
    (tmp_path / "a.log").write_text("[10:00] <ann> hi\n")
    (tmp_path / "b.log").write_text("")
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    inputs = open_inputs(paths, "irc")
    assert (inputs.paths, inputs.counts.skipped) == (paths[:1], {"empty_file": 1})
    (log,) = read_logs(*paths)
    assert [node.text for node in log.nodes] == ["hi"]
    assert open_inputs(paths[1:], "irc").paths == paths[1:]


def test_a_pattern_tells_the_format(tmp_path):
    (tmp_path / "a.log").write_text(LOG)
    (log,) = read_logs(tmp_path / "a.log", pattern="{time} {author}> {text}")
    assert [(node.author, node.text) for node in log.nodes] == [("ann", "hi"), ("bob", "ho")]
    (unannotated, given) = (
        open_inputs([tmp_path / "a.log"], "irc", options, unannotated=True).options
        for options in ({}, {"annotations": "beside"})
    )
    assert (unannotated, given) == ({"annotations": "none"}, {"annotations": "beside"})


def test_options_that_name_columns_fit_every_kind_of_table(tmp_path):
    (tmp_path / "a.csv").write_text("id,parent,tree,body\n1,,t,words\n")
    table = open_inputs([tmp_path / "a.csv"], "table", {"columns": {"id": "id"}, "text": "body"})
    assert table.options == {"columns": {"id": "id", "text": "body"}}
    assert open_inputs([tmp_path / "a.csv"], "labelled", {"text": "body"}).options == {"text": "body"}
    with pytest.raises(RamifyError, match=r"--column text is given twice, as 'tree' and as 'body'"):
        open_inputs([tmp_path / "a.csv"], "table", {"columns": {"text": "tree"}, "text": "body"})
    with pytest.raises(RamifyError, match="has no option 'text'"):
        open_inputs([tmp_path / "a.csv"], "irc", {"text": "body"})


def test_links_to_folders_are_named(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.csv").write_text("id,parent,tree,text\n1,,t,a\n")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "here").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RamifyError, match=r"links holds only here/, which are not read from a folder"):
        check_paths([tmp_path / "links"])
    (tmp_path / "links" / "b.csv").symlink_to(tmp_path / "elsewhere" / "a.csv")
    assert detect_format([tmp_path / "links"]) == "table"
    assert left_out([tmp_path / "links"]) == {tmp_path / "links": ["here/"]}


@pytest.mark.parametrize(
    ("format", "option", "value", "takes"),
    [
        ("molweni", "repeated", "yes", "keep or drop"),
        ("slack", "names", "nick", "name or id"),
        ("matrix", "names", 3, "name or id"),
        ("reddit-api", "unescape", "no", "true or false"),
        ("nested", "html", "no", "auto, true or false"),
        ("cmv-chains", "chains", "pair", "pairs or threads"),
        ("book", "divisions", "parts", "flatten or level"),
        ("chat-table", "order", "id", "file or time"),
        ("chat-table", "dates", "year", "auto, day or month"),
        ("chat-log", "dates", "first", "auto, month, day or year"),
        ("irc", "hours", "13", "auto, 12 or 24"),
        ("irc", "annotations", "yes", "beside or none"),
        ("parallel", "val", "held", "train, dev, test or shares"),
        ("conll", "split", "dev", "file or none"),
        ("table", "entities", False, "numeric, all or none"),
        ("labelled", "label_type", "guess", "auto, category or number"),
        ("text", "unit", "word", "document, paragraph or line"),
    ],
)
def test_values_of_options_are_checked_by_their_types(tmp_path, format, option, value, takes):
    path = tmp_path / "a.txt"
    path.write_text("x")
    with pytest.raises(RamifyError, match=rf"the option {option}={value!r} is invalid\. Expected {takes}\."):
        open_inputs([path], format, {option: value})


def test_values_of_each_type_pass():
    FORMATS["nested"].check({"html": True, "layout": "any name", "columns": {"text": "body"}})
    FORMATS["irc"].check({"hours": "12", "dialect": "irssi"})

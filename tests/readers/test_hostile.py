"""Inputs that were made to break readers: each fault is counted and listed, and the rest is read."""

import json
import pkgutil
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ramify.dataset import build
from ramify.errors import RamifyError, shown
from ramify.readers import FORMATS, open_inputs
from ramify.readers.base import ReadCounts, guarded
from ramify.readers.values import is_deep

DEEP = "[" * 3000 + "]" * 3000
NESTED = json.loads("[" * 300 + "]" * 300)

CONVOKIT = '{"id": ID, "conversation_id": "u", "speaker": "ann", "reply-to": PARENT, "timestamp": 1, "text": "words"}'
OASST = '{"message_tree_id": TREE, "prompt": {"message_id": "p", "text": "words", "replies": []}}'
MATRIX = (
    '{"type": "m.room.message", "event_id": "$ID", "room_id": "!r", "sender": "@ann:x", "origin_server_ts": TIME, '
    '"content": {"msgtype": "m.text", "body": "words"}}'
)


def read(path, format, **options):
    inputs = open_inputs([path], format, options)
    return list(inputs.records()), inputs.counts


def write(tmp_path, name, *lines):
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_values_in_messages_are_bounded():
    assert shown("a" * 500, 20) == "'" + "a" * 19
    assert shown({"a": [1, 2.5, None]}) == "{'a': [1, 2.5, None]}"
    assert len(shown(NESTED)) <= 80
    assert len(shown([list(range(10**5))] * 10**4)) <= 80
    assert shown(10**5000) == "a value of the type int"


def test_nested_values():
    value = 0
    for depth in range(1, 130):
        value = [value] if depth % 2 else {"a": value}
        assert is_deep(value) == (depth >= 100)


def test_one_guard_for_one_record():
    def read(fault):
        yield "first"
        raise fault

    counts = ReadCounts()
    for fault in (RecursionError("deep"), pa.ArrowInvalid("bad"), ZeroDivisionError(), KeyError("x"), UnicodeDecodeError):
        assert list(guarded(read, "a.json, line 3", counts, fault)) == ["first"]
    assert counts.skipped == {"bad_row": 5}
    assert counts.read == 5
    assert counts.examples["bad_row"][0] == "a.json, line 3: RecursionError: deep"
    for fault in (RamifyError("the user's"), OSError("the system's"), MemoryError()):
        with pytest.raises(type(fault)):
            list(guarded(read, "", counts, fault))


def test_a_deep_id_costs_one_utterance(tmp_path):
    lines = [CONVOKIT.replace("ID", '"u"').replace("PARENT", "null"), CONVOKIT.replace("ID", '"b"').replace("PARENT", DEEP)]
    folder = tmp_path / "corpus"
    folder.mkdir()
    write(folder, "utterances.jsonl", *lines, CONVOKIT.replace("ID", '"c"').replace("PARENT", '"u"'))
    batches, counts = read(folder, None)
    assert [row["id"] for batch in batches for row in batch.to_pylist()] == ["u", "c"]
    assert counts.skipped == {"bad_row": 1}
    assert counts.read == 3
    assert "line 2: RecursionError" in counts.examples["bad_row"][0]


def test_deep_records_of_other_formats(tmp_path):
    path = write(tmp_path, "trees.jsonl", OASST.replace("TREE", DEEP), OASST.replace("TREE", '"t"'))
    (batch,), counts = read(path, "oasst")
    assert batch["tree"].to_pylist() == ["t"]
    assert counts.skipped == {"bad_row": 1}
    path = write(tmp_path, "a.jsonl", json.dumps({"kind": "Listing", "data": {"children": []}}), f'{{"odd": {DEEP}}}')
    assert read(path, "reddit-api")[1].skipped == {"not_a_post": 1}
    events = [MATRIX.replace("TIME", DEEP), MATRIX.replace("TIME", "1700000000000").replace("$ID", "$b")]
    (tree,), counts = read(write(tmp_path, "room.jsonl", *events), "matrix")
    assert [node.time for node in tree.nodes] == [None, 1_700_000_000.0]
    assert counts.kept == {"bad_time": 1}
    edus = f'{{"id": 1, "edus": [{{"text": "x", "speaker": {DEEP}}}, {{"text": "y", "speaker": "b"}}], "relations": [{DEEP}]}}'
    (tree,), counts = read(write(tmp_path, "dev.json", f"[{edus}]"), "molweni")
    assert [node.text for node in tree.nodes] == ["x", "y"]
    assert counts.kept == {"bad_relation": 1}


def test_deep_labels_and_metadata_are_left_out(tmp_path):
    path = tmp_path / "WSC" / "val.jsonl"
    path.parent.mkdir()
    target = f'{{"span1_text": "he", "span1_index": 0, "span2_text": "it", "span2_index": 1, "more": {DEEP}}}'
    path.write_text(f'{{"text": "He ate it.", "target": {target}, "label": true, "idx": 0}}\n')
    store = build([path], None, tmp_path / "store")
    assert (store.info["format"], store.info["kept"]["odd_json"]) == ("labelled", 1)
    (tree,) = store.trees()
    assert json.loads(tree.to_json())["nodes"][0]["text"] == "He ate it."
    node = {"id": "a", "parent": None, "text": "x", "label": NESTED}
    (tree,), counts = read(write(tmp_path, "t.jsonl", json.dumps({"id": "t", "nodes": [node]})), "jsonl")
    assert tree.nodes[0].label is None
    assert counts.kept == {"odd_json": 1}


def test_examples_are_bounded(tmp_path):
    nodes = [{"id": "a" * 10**5, "parent": None, "text": "x"}, {"id": "b", "parent": "c" * 10**5, "text": "y"}]
    _, counts = read(write(tmp_path, "t.jsonl", json.dumps({"id": "t" * 10**5, "nodes": nodes})), "jsonl")
    assert counts.kept["orphan"] == 1
    assert all(len(where) < 1100 and " … " in where for where in counts.examples["orphan"])


def test_lone_surrogates_of_any_json(tmp_path):
    folder = tmp_path / "ReCoRD"
    folder.mkdir()
    passage = '{"text": "it \\ud83d is", "entities": [{"start": 0, "end": 1}]}'
    write(folder, "val.jsonl", f'{{"idx": 1, "passage": {passage}, "qas": [{{"query": "@placeholder \\udc00", "idx": 2}}]}}')
    (tree,), _ = read(folder, None)
    assert [node.text for node in tree.nodes] == ["it \ufffd is", "@placeholder \ufffd"]
    tree.to_json().encode()


def write_parquet(path, columns):
    pa.parquet.write_table(pa.table(columns), path)
    return path


def broken_text(*values):
    """A column of strings whose bytes are not checked."""
    sound = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), sound.buffers())


def test_parquet_with_texts_that_are_not_utf_8(tmp_path):
    columns = {"id": ["1", "2"], "author": ["a", "b"], "time": [1, 2], "text": broken_text(b"Gl\xe4ser", "Gläser".encode())}
    (tree,), counts = read(write_parquet(tmp_path / "chat.parquet", columns), "chat-table")
    assert [node.text for node in tree.nodes] == ["Gläser", "Gläser"]
    assert counts.kept == {"encoding": 1}
    nodes = {name: pa.nulls(1, pa.string()) for name in FORMATS["nodes"].load().LAYOUT.required}
    nodes |= {"tree": ["t"], "id": ["a"], "depth": [0], "text": broken_text(b"\xe9")}
    (tree,), counts = read(write_parquet(tmp_path / "nodes.parquet", nodes), "nodes")
    assert tree.nodes[0].text == "é"
    assert counts.kept["encoding"] == 1


def test_parquet_with_a_broken_column_name(tmp_path):
    path = write_parquet(tmp_path / "posts.parquet", {"id": ["1"], "textual": ["x"]})
    path.write_bytes(path.read_bytes().replace(b"textual", b"text\xce\xce\xce"))
    for format in (None, "chat-table"):
        with pytest.raises(RamifyError, match=r"posts\.parquet is not a complete Parquet file"):
            read(path, format)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([2**62, None], pa.int64()).cast(pa.timestamp("us")),
        pa.array([-(2**62), None], pa.int64()).cast(pa.timestamp("us")),
        pa.array([b"\xff\xfe", None], pa.binary()),
        pa.array([2**63 - 1, None], pa.int64()),
    ],
)
def test_times_that_are_none(tmp_path, times):
    columns = {"id": ["1", "2"], "author": ["a", "b"], "text": ["x", "y"], "time": times}
    (tree,), counts = read(write_parquet(tmp_path / "x.parquet", columns), "chat-table")
    assert [node.time for node in tree.nodes] == [None, None]
    assert counts.kept["bad_time"] == 1


@pytest.mark.parametrize("name", [".", "/", ""])
def test_odd_names_in_archives(tmp_path, name):
    path = tmp_path / "e.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), "")
        archive.writestr("general/2024-01-05.json", json.dumps([{"type": "message", "ts": "1704445200.000100", "text": "x"}]))
        archive.writestr("channels.json", "[]")
    (tree,), _ = read(path, None)
    assert [node.text for node in tree.nodes] == ["x"]
    with pytest.raises(RamifyError, match=r"e\.zip holds no book"):
        read(path, "book")


def test_undecodable_names_in_archives(tmp_path):
    path = tmp_path / "k.epub"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("naïve.txt", "x")
    path.write_bytes(path.read_bytes().replace("ï".encode(), b"\xab\xab"))
    with pytest.raises(RamifyError, match="is not a complete ZIP file"):
        read(path, "book")


def test_damaged_lzma_in_an_archive(tmp_path):
    path = tmp_path / "e.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("g/2024-01-05.json", json.dumps([{"ts": "1704445200.000100", "text": "x" * 500}]))
        archive.writestr("channels.json", "[]")
    data = bytearray(path.read_bytes())
    data[60:90] = bytes(np.arange(30) * 7 % 251)
    path.write_bytes(data)
    with pytest.raises(RamifyError, match=r"e\.zip is damaged"):
        read(path, "slack")


def test_a_build_that_takes_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr("time.process_time", lambda: 1.0)
    store = build(
        [write(tmp_path, "t.jsonl", json.dumps({"id": "t", "nodes": [{"id": "a", "text": "x"}]}))], None, tmp_path / "s"
    )
    assert store.info["comments_per_cpu_second"] == 0


def test_a_reader_that_fails_beyond_a_record(tmp_path, monkeypatch):
    def fail(*_, **__):
        yield from ()
        raise IndexError("no such place")

    path = write(tmp_path, "t.jsonl", json.dumps({"id": "t", "nodes": [{"id": "a", "text": "x"}]}))
    monkeypatch.setattr("ramify.readers.jsonl.read", fail)
    with pytest.raises(RamifyError, match=r"cannot be read any further \(IndexError: no such place\)"):
        read(path, "jsonl")


def squad(*contexts):
    paragraphs = [{"context": text, "qas": [{"id": text, "question": f"{text}?", "answers": []}]} for text in contexts]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


BROKEN = {
    "stackexchange": (
        {
            "Posts.xml": [
                f'<row Id="{n}" PostTypeId="1" Body="{text}"/>' for n, text in enumerate(("one", "broken", "three"), 1)
            ]
        },
        "ramify.readers.stackexchange.html_to_text",
        "Posts.xml, line 3",
    ),
    "cmv-modes": (
        {
            f"{text}.xml": [f'<thread ID="{text}"><title>t</title><OP author="ann">{text}</OP></thread>']
            for text in ("one", "broken", "three")
        },
        "ramify.readers.cmv_modes._attach",
        "broken.xml",
    ),
    "slack-xml": (
        {
            "team.xml": [
                f'<message conversation_id="1"><ts>{n}</ts><user>ann</user><text>{text}</text></message>'
                for n, text in enumerate(("one", "broken", "three"))
            ]
        },
        "ramify.readers.slack_xml.plain",
        "team.xml, line 3",
    ),
    "labelled": (
        {"squad.json": [squad("one", "broken", "three")]},
        "ramify.readers.labelled_records._answers",
        "squad.json, line 1, 't', paragraph 2",
    ),
    "conll": ({"a.conll": ["one B-X", "", "broken O", "", "three O"]}, "ramify.readers.conll.places", "a.conll, line 3"),
    "parallel": (
        {"a.en": ["one", "broken", "three"], "b.de": ["eins", "zwei", "drei"]},
        "ramify.readers.parallel.Node",
        "a.en, line 2",
    ),
    "irc": (
        {"a.log": ["[10:00] <ann> one", "[10:01] -!- broken has joined #a", "[10:02] <ann> three"]},
        "ramify.readers.irc.system_author",
        "a.log, line 2",
    ),
    "chat-log": (
        {"a.txt": ["2024-01-31 10:00 ann: one", "2024-02-31 10:01 ann: broken", "2024-01-31 10:02 ann: three"]},
        "ramify.readers.clock.Clock.set",
        "a.txt, line 2",
    ),
}
"""Format -> files with lines, a function that a record of which breaks, and the place of this record."""

AROUND = {"Posts.xml": (["<posts>"], ["</posts>"]), "team.xml": (["<slack><team_domain>t</team_domain>"], ["</slack>"])}


@pytest.mark.parametrize("format", BROKEN)
def test_a_record_that_raises_is_counted_and_listed(tmp_path, monkeypatch, format):
    files, function, place = BROKEN[format]
    for name, lines in files.items():
        begin, end = AROUND.get(name, ((), ()))
        write(tmp_path, name, *begin, *lines, *end)
    owner, _, name = function.rpartition(".")
    owner = pkgutil.resolve_name(owner)
    works = getattr(owner, name)

    def fail(*arguments, **others):
        if any(mark in f"{argument}" for argument in arguments for mark in ("broken", "2024-02-31")):
            raise RecursionError("too deep")
        return works(*arguments, **others)

    monkeypatch.setattr(owner, name, fail)
    # Parallel texts are named as files, because their order says which belong together.
    paths = [tmp_path / name for name in files] if len(files) < 3 else [tmp_path]
    options = {"pattern": "{date} {time} {author}: {text}"} if format == "chat-log" else {}
    inputs = open_inputs(paths, format, options)
    records = list(inputs.records())
    texts = [text for record in records for text in texts_of(record)]
    counter = inputs.counts.kept if format == "irc" else inputs.counts.skipped
    assert counter["bad_row"] == 1
    (where,) = inputs.counts.examples["bad_row"]
    assert where.endswith(f"{place}: RecursionError: too deep")
    assert any("one" in text for text in texts)
    assert any("three" in text for text in texts)
    # Lines of IRC are numbered, so that none is left out.
    assert [text for text in texts if "broken" in text] == (["[10:01] -!- broken has joined #a"] if format == "irc" else [])
    assert inputs.counts.read == len(texts) + inputs.counts.skipped.total()


def texts_of(record):
    return record["text"].to_pylist() if isinstance(record, pa.RecordBatch) else [node.text for node in record.nodes]

import gzip
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ramify.dataset import build
from ramify.errors import RamifyError
from ramify.readers import FORMATS, columns, detect_format, table
from ramify.readers.base import ReadCounts, open_bytes

ROWS = [
    {"id": "1", "parent": None, "tree": "t", "author": "ann", "time": 10.0, "text": "root, with a comma"},
    {"id": "2", "parent": "1", "tree": "t", "author": None, "time": 20.5, "text": "reply\nof two lines"},
    {"id": "3", "parent": "2", "tree": "t", "author": "bob", "time": 30.0, "text": 'said "so"'},
]
EXPECTED = [row | {"kind": None, "meta": None, "label": None, "or_parent": None} for row in ROWS]


def read(path, **options):
    counts = ReadCounts()
    rows = [row for batch in table.read([path], counts, **options) for row in batch.to_pylist()]
    assert counts.read == len(rows) + counts.skipped.total()
    return rows, counts


def key(row):
    return row["id"], row["parent"], row["tree"], row["text"]


def delimited(rows, delimiter=",", quote='"'):
    def cell(value):
        return "" if value is None else quote + str(value).replace('"', '""') + quote if quote else str(value)

    lines = [delimiter.join(rows[0]), *(delimiter.join(cell(value) for value in row.values()) for row in rows)]
    return "\n".join(lines) + "\n"


WRITERS = {
    "csv": lambda path: path.write_text(delimited(ROWS)),
    "tsv": lambda path: path.write_text(delimited(ROWS, "\t")),
    "semicolons": lambda path: path.write_text(delimited(ROWS, ";")),
    "csv.gz": lambda path: path.write_bytes(gzip.compress(delimited(ROWS).encode())),
    "marked": lambda path: path.write_text("\ufeff" + delimited(ROWS), encoding="utf-8"),
    "windows": lambda path: path.write_bytes(delimited(ROWS).replace("\n", "\r\n").replace("of\r\n", "of\n").encode()),
    "parquet": lambda path: pa.parquet.write_table(pa.Table.from_pylist(ROWS), path),
    "jsonl": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_kinds_of_tables(tmp_path, kind):
    path = tmp_path / "posts"
    WRITERS[kind](path)
    head = gzip.decompress(path.read_bytes()) if kind == "csv.gz" else path.read_bytes()
    assert not table.refuses(path, head)
    rows, _ = read(path)
    expected = [row | {"text": row["text"].replace("\n", "\r\n")} for row in EXPECTED] if kind == "windows" else EXPECTED
    assert rows == expected


def test_synonyms_and_named_columns(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("Post_ID,reply_to,thread_id,what\n7,,t,x\n8,7,t,y\n")
    with pytest.raises(RamifyError, match=r"no column for text: none of text, body.* --column text=NAME"):
        read(path)
    rows, _ = read(path, columns={"text": "what"})
    assert [(row["id"], row["parent"], row["tree"], row["text"]) for row in rows] == [
        ("7", None, "t", "x"),
        ("8", "7", "t", "y"),
    ]
    with pytest.raises(RamifyError, match="has no column 'nope'"):
        read(path, columns={"text": "nope"})
    with pytest.raises(RamifyError, match="The columns are id, parent, tree"):
        read(path, columns={"title": "what"})


def test_titles_and_topics_describe_the_tree(tmp_path):
    path = tmp_path / "posts.jsonl"
    records = [
        ROWS[0] | {"title": "A title", "topic": "Talk"},
        ROWS[1],
        ROWS[0] | {"id": "9", "tree": "u", "title": "Alone", "text": ""},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    rows, _ = read(path)
    assert [row["text"] for row in rows] == ["A title\n\nroot, with a comma", "reply\nof two lines", "Alone"]
    assert [row["meta"] and json.loads(row["meta"]) for row in rows] == [
        {"title": "A title", "topic": "Talk"},
        None,
        {"title": "Alone"},
    ]


def test_numbers_as_ids(tmp_path):
    """Parquet files often store ids as integers, and parents as floats, because some are missing."""
    path = tmp_path / "posts.parquet"
    pa.parquet.write_table(pa.table({"id": [1, 2], "parent": [None, 1.0], "tree": [5, 5], "text": ["a", "b"]}), path)
    rows, _ = read(path)
    assert [key(row) for row in rows] == [("1", None, "5", "a"), ("2", "1", "5", "b")]
    path = tmp_path / "posts.jsonl"
    path.write_text(
        '{"id": 1, "parent": null, "tree": 5, "text": "a"}\n{"id": "x", "parent": 1, "tree": 5, "text": 3}\n'
        '{"id": 12345678901234567890123, "parent": [1], "tree": true, "text": null}\n'
    )
    rows, _ = read(path)
    assert [(row["id"], row["parent"], row["tree"], row["text"]) for row in rows][:2] == [
        ("1", None, "5", "a"),
        ("x", "1", "5", "3"),
    ]
    assert rows[2]["id"] == "12345678901234567890123"


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("12.5", 12.5),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01 00:01:00", 60.0),
        ("1970-01-02", 86400.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("", None),
        ("soon", None),
    ],
)
def test_times(tmp_path, time, seconds):
    path = tmp_path / "posts.csv"
    path.write_text(f"id,parent,tree,time,text\n1,,t,{time},x\n")
    rows, counts = read(path)
    assert rows[0]["time"] == seconds
    assert counts.kept["bad_time"] == (time == "soon")


def test_column_of_lists_is_refused(tmp_path):
    path = tmp_path / "posts.parquet"
    pa.parquet.write_table(
        pa.table({"id": ["1"], "parent": [None], "tree": ["t"], "text": [["a", "b"]], "words": ["a b"]}), path
    )
    with pytest.raises(
        RamifyError, match=r"the column 'text' holds list<.*>, which cannot be a post's text\. .*--column text=NAME"
    ):
        read(path)
    assert read(path, columns={"text": "words"})[0][0]["text"] == "a b"


def test_timestamps_of_parquet(tmp_path):
    path = tmp_path / "posts.parquet"
    times = pa.array([1_500, None], pa.timestamp("ms"))
    columns = {"id": ["1", "2"], "parent": [None, "1"], "tree": ["t"] * 2, "text": ["a"] * 2, "time": times}
    pa.parquet.write_table(pa.table(columns), path)
    assert [row["time"] for row in read(path)[0]] == [1.5, None]


@pytest.mark.parametrize(
    ("entities", "text"),
    [
        ("numeric", "it’s &amp; • a’b"),
        ("all", "it’s & • a’b"),
        ("none", "it&#8217;s &amp; \x95 a&#146;b"),
    ],
)
def test_entities(tmp_path, entities, text):
    path = tmp_path / "posts.jsonl"
    path.write_text(json.dumps(ROWS[0] | {"text": "it&#8217;s &amp; \x95 a&#146;b"}) + "\n")
    assert read(path, entities=entities)[0][0]["text"] == text


def test_bad_rows_are_counted(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_bytes(b"id,parent,tree,text\n1,,t,x\n2,1,t\n,1,t,nameless\n4,1,,homeless\n5,1,t,\xff\n")
    rows, counts = read(path)
    assert [row["text"] for row in rows] == ["x", "ÿ"]
    assert counts.skipped == {"bad_row": 1, "not_a_post": 2}
    assert counts.kept == {"encoding": 1}
    assert "post 2" in counts.examples["not_a_post"][0]


def test_quotation_marks_can_be_text(tmp_path):
    path = tmp_path / "posts.tsv"
    path.write_text('id\tparent\ttree\ttext\n1\t\tt\t"half a quotation\n2\t1\tt\tmore\n')
    assert [row["text"] for row in read(path, quote="")[0]] == ['"half a quotation', "more"]


@pytest.mark.parametrize(
    ("option", "value", "takes"),
    [
        ("delimiter", "", "one ASCII character"),
        ("delimiter", r"\t", "one ASCII character"),
        ("delimiter", "\n", "one ASCII character"),
        ("delimiter", "\0", "one ASCII character"),
        ("delimiter", "é", "one ASCII character"),
        pytest.param("delimiter", True, "one ASCII character", marks=pytest.mark.ill_typed),
        ("delimiter", '"', "a character other than the delimiter"),
        ("quote", "''", "one ASCII character other than a line end, or nothing"),
        pytest.param("quote", 7, "one ASCII character other than a line end, or nothing", marks=pytest.mark.ill_typed),
        ("quote", ",", "a character other than the delimiter of .*posts.csv"),
        pytest.param("columns", "text=what", "names of the table's columns", marks=pytest.mark.ill_typed),
    ],
)
def test_bad_options(tmp_path, option, value, takes):
    path = tmp_path / "posts.csv"
    path.write_text(delimited(ROWS))
    named = "quote" if value == '"' else option
    with pytest.raises(RamifyError, match=f"the option {named}=.* is invalid. Expected {takes}"):
        read(path, **{option: value})


def test_header_in_other_quotation_marks(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text(delimited(ROWS).replace("id,parent,tree", '"id","parent","tree"'))
    assert len(read(path)[0]) == 3
    with pytest.raises(RamifyError, match=r"posts\.csv cannot be read as a table"):
        read(path, quote="'")


def test_half_surrogate_pairs(tmp_path):
    path = tmp_path / "posts.jsonl"
    path.write_text(r'{"id": "1", "parent": null, "tree": "t", "text": "\ud83d", "author": ["\ud83d"]}')
    (row,), counts = read(path)
    assert (row["text"], row["author"]) == ("\ufffd", None)
    assert counts.kept == {"odd_json": 2}


def write_parquet(path, table):
    pyarrow.parquet.write_table(table, path)
    return path


def test_compressed_parquet_file_is_read(tmp_path):
    plain = write_parquet(tmp_path / "posts.parquet", pa.Table.from_pylist(ROWS))
    packed = tmp_path / "posts.parquet.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read(packed)[0] == EXPECTED
    assert not table.refuses(packed, plain.read_bytes()[:1000])


def test_damaged_parquet_file_is_guessed_as_a_table(tmp_path):
    path = tmp_path / "posts.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    assert not table.refuses(path, path.read_bytes())
    with pytest.raises(RamifyError, match="is not a complete Parquet file"):
        read(path)


@pytest.mark.parametrize(
    ("type", "value", "seconds"),
    [
        (pa.timestamp("ns"), 1_500_000_000_123_456_789, 1_500_000_000.123456),
        (pa.timestamp("s", "UTC"), 1_500_000_000, 1_500_000_000.0),
        (pa.date32(), 1, 86_400.0),
        (pa.time32("s"), 3_600, None),
        (pa.duration("ms"), 3_600, None),
    ],
)
def test_time_types_of_parquet(tmp_path, type, value, seconds):
    posts = pa.Table.from_pylist(ROWS).set_column(4, "time", pa.array([value, None, value], type))
    rows, counts = read(write_parquet(tmp_path / "posts.parquet", posts))
    assert [row["time"] for row in rows] == [seconds, None, seconds]
    assert counts.kept["bad_time"] == (2 if seconds is None else 0)


def test_invalid_utf8_in_parquet(tmp_path):
    texts = pa.array([b"r\xff", b"caf\xc3\xa9", None], pa.binary())
    posts = pa.Table.from_pylist(ROWS).set_column(5, "text", texts)
    rows, counts = read(write_parquet(tmp_path / "posts.parquet", posts))
    assert [row["text"] for row in rows] == ["rÿ", "café", ""]
    assert counts.kept["encoding"] == 1


def test_spaces_around_column_names(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id, parent , tree,text\n1,,t,root\n2,1,t,reply\n")
    assert [key(row) for row in read(path)[0]] == [("1", None, "t", "root"), ("2", "1", "t", "reply")]


def test_late_json_fields(tmp_path):
    """The fields appear after the first lines, which determine the columns, and under two names."""
    path = tmp_path / "posts.jsonl"
    roots = [{"id": f"{number}", "tree": f"{number}", "text": "x" * 500} for number in range(3000)]
    replies = [
        {"id": "a", "reply_to": "0", "tree": "0", "text": "one", "user": "ann", "created": 5},
        {"id": "b", "parent": "1", "tree": "1", "text": "two", "author": "bob"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in roots + replies))
    rows, _ = read(path)
    assert [(row["parent"], row["author"], row["time"]) for row in rows[-3:]] == [
        (None, None, None),
        ("0", "ann", 5.0),
        ("1", "bob", None),
    ]


def test_json_field_used_as_two_columns(tmp_path):
    path = tmp_path / "posts.jsonl"
    path.write_text('{"id": "1", "parent": null, "text": "root"}\n')
    rows, _ = read(path, columns={"tree": "id"})
    assert [(row["id"], row["tree"]) for row in rows] == [("1", "1")]


def test_json_lines_without_any_parent(tmp_path):
    path = tmp_path / "posts.jsonl"
    path.write_text('{"id": "1", "tree": "t", "text": "root"}\n')
    with pytest.raises(RamifyError, match="has no column for parent"):
        read(path)


def test_truncated_parquet_file(tmp_path):
    path = tmp_path / "posts.parquet"
    WRITERS["parquet"](path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RamifyError, match="not a complete Parquet file"):
        read(path)


def test_other_formats_are_refused():
    assert table.refuses(Path("x"), b'{"id": "a", "nodes": [{"id": "1"}]}')
    assert table.refuses(Path("x"), b"some text, and more text\n")


@pytest.mark.data
def test_forum_posts(data_dir):
    counts = ReadCounts()
    batches = list(table.read([data_dir("iac-4forums")], counts))
    posts = pa.Table.from_batches(batches)
    assert (counts.read, posts.num_rows, posts["parent"].null_count) == (162_973, 162_973, 4_940)
    assert posts["meta"].null_count == 162_973 - 4_940


def test_columns_used_twice_and_named_twice(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,parent,tree,text\n1,,t,hello\n")
    rows, _ = read(path, columns={"text": "id"})
    assert (rows[0]["id"], rows[0]["text"]) == ("1", "1")
    names, columns = ["id", "parent", "tree", "text", "text"], [["1"], [None], ["t"], ["a"], ["b"]]
    whole = pa.Table.from_arrays([pa.array(each, pa.string()) for each in columns], names)
    pa.parquet.write_table(whole, path := tmp_path / "t.parquet")
    with pytest.raises(RamifyError, match="several columns called 'text'"):
        read(path)


def test_stray_quotation_mark_is_noticed(tmp_path):
    """It silently swallows rows; an inch mark does not, nor does a quoted table in a sound file."""
    path = tmp_path / "t.csv"
    path.write_text('id,parent,tree,text\n1,,t,"hello"\n2,1,t,"unclosed\n3,1,t,x\n4,1,t,"y"\n')
    rows, counts = read(path)
    assert [row["id"] for row in rows] == ["1", "2"]
    assert counts.kept == {"swallowed_rows": 1}
    assert counts.examples["swallowed_rows"][0].startswith(f"{path}, post 2: ")
    path.write_text('id,parent,tree,text,author\n1,,t,a,bob\n3,1,t,hello,"ann\n4,1,t,y,x\n5,1,t,y,x\n')
    assert read(path)[1].kept["swallowed_rows"] == 1
    path.write_text('id,parent,tree,text\n1,,t,"unclosed\n2,1,t,x\n3,1,t,y"\n4,1,t,z\n')
    assert read(path)[1].kept["swallowed_rows"] == 1
    for sound in ('2,1,t,5" wide\n3,1,t,x\n', '2,1,t,"see\n1,2,3,4\nthere"\n'):
        path.write_text("id,parent,tree,text\n1,,t,a\n" + sound)
        assert not read(path)[1].kept


def test_places_of_repaired_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"id,parent,tree,time,text,author\n1,,t,5,a,ann\n2,1,t,noon,\xff,[deleted]\n")
    rows, counts = read(path)
    assert [row["author"] for row in rows] == ["ann", None]
    assert counts.kept == {"encoding": 1, "bad_time": 1}
    assert counts.examples == {"encoding": [f"{path}, post 2"], "bad_time": [f"{path}, post 2: 'noon'"]}


def test_very_wide_tables(tmp_path):
    path = tmp_path / "t.csv"
    more = [f"c{number}" for number in range(1500)]
    path.write_text(",".join(["id", "parent", "tree", "text", *more]) + "\n" + ",".join(["1", "", "t", "hello", *more]) + "\n")
    assert [row["text"] for row in read(path)[0]] == ["hello"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_impossible_times(tmp_path, suffix):
    path = tmp_path / f"posts.{suffix}"
    rows = [("1", "nan"), ("2", "1e999"), ("3", "-inf"), ("4", "7")]
    if suffix == "csv":
        path.write_text("id,parent,tree,text,time\n" + "".join(f"{id},,t{id},a,{time}\n" for id, time in rows))
    else:
        spelled = {"nan": "NaN", "1e999": "Infinity", "-inf": "-Infinity", "7": "7"}
        path.write_text(
            "".join(f'{{"id": "{id}", "parent": null, "tree": "t{id}", "text": "a", "time": {spelled[t]}}}\n' for id, t in rows)
        )
    counts = ReadCounts()
    times = [time for batch in table.read([path], counts) for time in batch.column("time").to_pylist()]
    assert times == [None, None, None, 7.0]
    assert counts.kept["bad_time"] == 3


def test_large_numbers(tmp_path):
    """Ids past 2**63 are unchanged; times in milliseconds are read, and invalid times are counted."""
    path = tmp_path / "posts.jsonl"
    rows = [{"id": 1e19, "parent": None, "tree": "a", "text": "x", "time": 1.6e12}]
    rows += [{"id": 2e19, "parent": 1e19, "tree": "a", "text": "y", "time": 1.6e30}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = build([path], "table", tmp_path / "store")
    (tree,) = store.trees([0])
    assert [node.time for node in tree.nodes] == [1.6e9, None]
    assert tree.nodes[1].parents == (0,)
    assert store.info["kept"]["bad_time"] == 1


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_float_parents_of_pandas(tmp_path, kind):
    """There, a column of integers with gaps is a column of floats: NaN for a gap, 1.0 for 1."""
    path = tmp_path / f"posts.{kind}"
    ids = [10_000_000_001, 10_000_000_002, 10_000_000_003]
    if kind == "csv":
        path.write_text(f"id,parent,tree,text\n{ids[0]},,7,a\n{ids[1]},{ids[0]}.0,7,b\n{ids[2]},{ids[1]}.0,7,c\n")
    else:
        parents = np.array([np.nan, *ids[:2]])
        pa.parquet.write_table(pa.table({"id": ids, "parent": parents, "tree": [7] * 3, "text": list("abc")}), path)
    (tree,) = build([path], "table", tmp_path / "store").trees([0])
    assert [node.parents for node in tree.nodes] == [(), (0,), (1,)]
    assert [node.id for node in tree.nodes] == [str(each) for each in ids]


def test_float_parents_of_pandas_among_others(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,parent,tree,text\n1,,7,a\n2,1.0,7,b\n3,t3_2,7,c\n4,2.0,7,d\n")
    (tree,) = build([path], "table", tmp_path / "store").trees([0])
    above = {node.id: [tree.nodes[parent].id for parent in node.parents or ()] for node in tree.nodes}
    assert [above[name] for name in "124"] == [[], ["1"], ["2"]]


def test_ids_that_look_like_versions_stay(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,parent,tree,text\n1.0,,7,a\n2.0,1.0,7,b\n")
    (tree,) = build([path], "table", tmp_path / "store").trees([0])
    assert [node.id for node in tree.nodes] == ["1.0", "2.0"]
    assert tree.nodes[1].parents == (0,)


def test_one_id_with_a_point_keeps_float_parents(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,parent,tree,text\n1,,7,a\n2.5,1.0,7,b\n3,2.5,7,c\n4,3.0,7,d\n")
    store = build([path], "table", tmp_path / "store")
    (tree,) = store.trees([0])
    assert [node.id for node in tree.nodes] == ["1", "2.5", "3", "4"]
    assert [node.parents for node in tree.nodes] == [(), (0,), (1,), (2,)]


def test_table_in_utf_16(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,parent,tree,text\n1,,7,a\n", encoding="utf-16")
    store = build([path], None, tmp_path / "store")
    assert (store.info["format"], list(store.texts([0]))) == ("table", ["a"])


def test_decimal_ids_stay_decimal_in_the_whole_file(tmp_path):
    """Turns of dialogues are such ids: 2.0 is a turn, even if the last rows that are read together hold no turn 0."""
    path = tmp_path / "turns.parquet"
    ids = ["0.5", "2.0", *(f"9.{number}" for number in range(1, 20_000))]
    rows = {"id": [*ids, "3.1"], "parent": [None, "0.5", *ids[1:-1], "2.0"], "tree": ["7"] * 20_002, "text": ["x"] * 20_002}
    pa.parquet.write_table(pa.table(rows), path, row_group_size=20_001)
    store = build([path], "table", tmp_path / "store")
    (tree,) = store.trees([0])
    assert tree.nodes[tree.parent[tree.index("3.1")]].id == "2.0"
    assert "orphan" not in store.info["kept"] | store.info["skipped"]


def test_bad_row_with_invalid_utf8_is_counted_once(tmp_path, capfd):
    path = tmp_path / "posts.csv"
    path.write_bytes(b"id,parent,tree,text\n1,,7,a\n2,1,7,caf\xe9,extra\n3,1,7,b\xe9\n")
    store = build([path], "table", tmp_path / "store")
    assert store.info["skipped"] == {"bad_row": 1}
    assert store.info["kept"]["encoding"] == 1
    assert sorted(store.texts(range(2))) == ["a", "bé"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("long.csv", "id,parent,tree,text\n1,,7,a\n2,1,7," + "word " * 50_000 + "\n3,1,7,b\n", "a row is longer than 0 MiB"),
        ("header.csv", "id,parent,tree,text", "no tree found in"),
        ("other.jsonl", '{"a": 1, "b": 2}', r"Its columns are a, b\. Choose one"),
    ],
)
def test_tables_without_posts_are_refused(tmp_path, monkeypatch, name, content, message):
    monkeypatch.setattr(columns, "CSV_BLOCK_BYTES", 1 << 16)
    (tmp_path / name).write_text(content)
    with pytest.raises(RamifyError, match=message):
        build([tmp_path / name], "table", tmp_path / "store")


def test_json_lines_that_are_long_or_nested(tmp_path):
    path = tmp_path / "posts.jsonl"
    rows = [{"id": 1, "parent": None, "tree": 7, "text": "word " * 300_000}, {"id": 2, "parent": 1, "tree": 7, "text": ["b"]}]
    path.write_text("\n".join([json.dumps(rows[0]), json.dumps(rows[1]), '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"]))
    store = build([path], "table", tmp_path / "store")
    assert (store.num_nodes, store.info["skipped"]) == (1, {"bad_json": 1, "empty": 1})
    assert store.info["kept"]["odd_json"] == 1
    assert "line 2" in store.info["examples"]["odd_json"][0]


def test_damaged_parquet_file_is_named(tmp_path):
    path = tmp_path / "posts.parquet"
    size = 9000
    rows = {"id": range(size), "parent": [None, *range(size - 1)], "tree": [7] * size, "text": list(map(str, range(size)))}
    pa.parquet.write_table(pa.table({name: list(values) for name, values in rows.items()}), path)
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 40] = b"x" * 40
    path.write_bytes(content)
    with pytest.raises(RamifyError, match=r"posts\.parquet is not a complete Parquet file"):
        build([path], "table", tmp_path / "store")


ENDS = {
    "an error": """
try:
    for _ in table.read([path], ReadCounts()):
        pass
except RamifyError as error:
    sys.exit(f"error: {error}")
""",
    "a reader that is kept": """
batches = table.read([path], ReadCounts())
next(batches)
sys.exit("error: enough")
""",
}
READER = """
import sys
from pathlib import Path
from ramify.errors import RamifyError
from ramify.readers import table
from ramify.readers.base import ReadCounts, open_bytes
path = Path(sys.argv[1])
"""


@pytest.fixture(scope="module")
def large_tables(tmp_path_factory):
    """Tables that a thread would still read while the process ends. In one table, the first quotation mark is never closed."""
    folder = tmp_path_factory.mktemp("large")
    rows = b"1,,t,some words and some more of them\n" * 30_000
    with open(folder / "never closed.csv", "wb") as file:
        file.write(b'id,parent,tree,text\n0,,t,"never closed\n')
        while file.tell() < 80 << 20:
            file.write(rows)
    # 300 MB before compression.
    (folder / "sound.csv.gz").write_bytes(gzip.compress(b"id,parent,tree,text\n") + gzip.compress(rows) * 270)
    yield folder
    for path in folder.iterdir():
        path.unlink()


def ended(commands):
    """Exit status and stderr of each command, two at a time. A hanging command is killed and raises."""

    def run(command):
        process = subprocess.run(command, capture_output=True, text=True, timeout=100)
        return process.returncode, process.stderr

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, commands))


@pytest.mark.parametrize(("end", "name", "expected"), [
    ("an error", "never closed.csv", "a quotation mark is never closed"), ("a reader that is kept", "sound.csv.gz", "enough"),
])  # fmt: skip
def test_process_ends_while_a_table_is_read(large_tables, end, name, expected):
    """No thread reads on: it would abort the process at its exit, or keep it alive."""
    command = [sys.executable, "-c", READER + ENDS[end], str(large_tables / name)]
    for status, err in ended([command] * 2):
        assert (status, err.count("\n")) == (1, 1), err
        assert expected in err


def test_build_ends_at_an_unclosed_quotation_mark(large_tables, tmp_path):
    command = [sys.executable, "-c", "from ramify.cli import main; main()", "data", "build", "--format", "table"]
    path = str(large_tables / "never closed.csv")
    for status, err in ended([[*command, path, "--out", str(tmp_path / f"{number}")] for number in range(4)]):
        assert status == 2, err
        assert "a quotation mark is never closed" in err.replace("\n", " ")
        assert "Fatal" not in err
    assert list(tmp_path.iterdir()) == []


# --- Reddit -----------------------------------------------------------------------------------------------------------


def shuffled_thread(count=60):
    dice = np.random.default_rng(0)
    posts = [
        {"id": "s", "title": "Tea &amp; cake", "selftext": "", "subreddit": "food", "author": "op", "created_utc": 1.0},
        {"id": "u", "title": "Other", "selftext": "a &lt; b", "subreddit": "food", "author": "[deleted]", "created_utc": 2.0},
    ]
    for number in range(count):
        parent = f"t1_c{dice.integers(number)}" if number > 2 else "t3_s"
        body = ["[deleted]", "so &gt; that", 'two\nlines, "quoted"', "NA"][number % 4]
        posts.append(
            {"id": f"c{number}", "link_id": "t3_s", "parent_id": parent, "body": body, "author": "ann", "created_utc": 3.0}
        )
    return [posts[place] for place in dice.permutation(len(posts))]


def in_table(kind, posts, path):
    if kind == "jsonl":
        path.write_text("".join(json.dumps(post) + "\n" for post in posts))
    elif kind == "parquet":
        names = dict.fromkeys(name for post in posts for name in post)
        pa.parquet.write_table(pa.Table.from_pylist([{name: post.get(name) for name in names} for post in posts]), path)
    else:
        names = ["", *dict.fromkeys(name for post in posts for name in post)]
        rows = [{"": place} | dict.fromkeys(names[1:]) | post for place, post in enumerate(posts)]
        path.write_text(delimited(rows, "\t" if kind == "tsv" else ","))
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("apart", [False, True])
def test_tables_of_reddit_equal_the_dump(tmp_path, kind, apart):
    posts = shuffled_thread()
    if apart:
        files = [[post for post in posts if ("body" in post) is has_body] for has_body in (True, False)]
        posts = [post for file in files for post in file]
    else:
        files = [posts]
    dump = build([in_table("jsonl", posts, tmp_path / "dump")], "pushshift", tmp_path / "expected")
    assert dump.num_trees == 2
    assert dump.depth.max() > 3
    paths = [in_table(kind, file, tmp_path / f"{place}.{kind}") for place, file in enumerate(files)]
    store = build(paths, "table", tmp_path / "out")
    assert store.hash == dump.hash
    assert (store.info["skipped"], store.info["kept"]) == (dump.info["skipped"], dump.info["kept"])
    assert not store.info["unread_columns"]


def test_names_of_reddit_columns_may_be_given(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,link_id,parent_id,words,score\nt1_b,t3_s,t1_a,two,5\na,s,,one,6\n")
    rows, counts = read(path, columns={"text": "words", "tree": "link_id"})
    assert [(row["id"], row["parent"], row["tree"], row["text"]) for row in rows] == [
        ("b", "a", "s", "two"),
        ("a", "s", "s", "one"),
    ]
    assert counts.kept == {"missing_parent": 1}
    assert counts.unread_columns == {str(path): ["score"]}
    # Another column is the tree, so this is no table of Reddit.
    path.write_text("id,link_id,parent_id,thread,text\nt1_b,x,t1_a,t,two\n")
    rows, _ = read(path, columns={"tree": "thread"})
    assert key(rows[0]) == ("t1_b", "t1_a", "t", "two")


@pytest.mark.parametrize("name", ["reddit-college"])
def test_real_posts_in_tables_equal_the_dump(data_dir, tmp_path, name):
    pandas = pytest.importorskip("pandas")
    comments, submissions = (
        [json.loads(line) for _, line in zip(range(count), open_bytes(next(data_dir(name).glob(f"{prefix}*"))))]
        for prefix, count in (("RC", 6_000), ("RS", 16_000))
    )
    links = {comment["link_id"] for comment in comments}
    submissions = [post for post in submissions if post["name"] in links]
    assert len(submissions) > 20
    dump = build([in_table("jsonl", [*comments, *submissions], tmp_path / "dump")], "pushshift", tmp_path / "expected")
    for kind in ("csv", "parquet", "jsonl"):
        paths = [tmp_path / f"{prefix}.{kind}" for prefix in ("RC", "RS")]
        for path, posts in zip(paths, (comments, submissions), strict=True):
            frame = pandas.DataFrame(posts)
            write = {"csv": frame.to_csv, "parquet": frame.to_parquet, "jsonl": frame.to_json}[kind]
            write(path, **({"orient": "records", "lines": True} if kind == "jsonl" else {}))
        assert build(paths, "table", tmp_path / kind).hash == dump.hash


# --- labels and splits ------------------------------------------------------------------------------------------------


def test_labels_and_splits_of_posts(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,parent,tree,text,stars,fold\n1,,t,a,5,valid\n2,1,t,b,,\n3,2,t,c,2.5,train\n")
    store = build([path], "table", tmp_path / "out", options={"columns": {"label": "stars"}}, split_by="fold")
    assert [node.label for node in store.tree(0).nodes] == [5.0, None, 2.5]
    assert store.split("dev").tolist() == [0]
    path.write_text("id,parent,tree,text,label\n1,,t,a,5\n2,1,t,b,good\n")
    with pytest.raises(
        RamifyError, match=r"posts\.csv, row 3: the label 'good' of the column 'label' is not a number, but '5'"
    ):
        read(path)
    assert [row["label"] for row in read(path, label_type="category")[0]] == ['"5"', '"good"']


def test_labels_and_splits_of_reddit(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,link_id,parent_id,body,title,label,split\nc,t3_s,t3_s,hi,,kind,\ns,,,,Title,open,test\n")
    store = build([path], "table", tmp_path / "out")
    assert [node.label for node in store.tree(0).nodes] == ["open", "kind"]
    assert store.split("test").tolist() == [0]


def test_stray_mark_in_a_table_with_tabs_swallows_nothing(tmp_path):
    path = tmp_path / "posts.tsv"
    path.write_text('id\tparent\ttree\ttext\n1\t\tt\t"Never closed\n2\t1\tt\tends here"\n3\t1\tt\tplain\n')
    rows, counts = read(path)
    assert [row["text"] for row in rows] == ['"Never closed', 'ends here"', "plain"]
    assert not counts.kept


def test_unread_columns_are_named(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("Unnamed: 0,id,parent,tree,text,votes\n0,1,,t,a,3\n")
    assert read(path)[1].unread_columns == {str(path): ["votes"]}


# --- tables without some of the columns, and in other containers ------------------------------------------------------


TREELESS = [
    {"id": 1, "parent": None, "title": "Oars", "text": "who has oars?"},
    {"id": 2, "parent": 1, "text": "Ben"},
    {"id": 3, "parent": 2, "text": "no, Cleo"},
    {"id": 4, "parent": 4, "text": "its own parent"},
    {"id": 6, "parent": 9, "text": "answers a post that is missing"},
    {"id": 7, "parent": 9, "text": "so does this"},
]


def links(store):
    return {
        tree.id: {node.id: tree.nodes[node.parents[0]].id if node.parents else None for node in tree.nodes}
        for tree in store.trees()
    }


@pytest.mark.parametrize("format", [None, "table"])
def test_trees_from_parents(tmp_path, format):
    """Files are joined, so that posts may answer posts of another file."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("".join(json.dumps(row) + "\n" for row in TREELESS[1:]))
    second.write_text(json.dumps(TREELESS[0]) + "\n")
    store = build([first, second], format, tmp_path / "store")
    assert links(store) == {"1": {"1": None, "2": "1", "3": "2"}, "4": {"4": None}, "9": {"9": None, "6": "9", "7": "9"}}
    assert store.info["kept"]["own_parent"] == 1


class CountedNames:
    """Names that count how many of them are looked up."""

    def __init__(self, names):
        self._names, self.looked_up = names, 0

    def take(self, places):
        self.looked_up += len(places)
        return self._names.take(places)


def test_each_post_of_a_long_chain_looks_up_one_name():
    posts, size = 100_000, 500
    ids = pa.array([f"p{number}" for number in range(posts)], pa.large_string())
    parents = pa.concat_arrays([pa.nulls(1, pa.large_string()), ids[:-1]])
    trees = table.TreesOfParents((ids[at : at + size], parents[at : at + size]) for at in range(0, posts, size))
    trees._names = names = CountedNames(trees._names)
    found = [trees.following(size) for _ in range(0, posts, size)]
    assert names.looked_up == posts
    assert pa.chunked_array(found).unique().to_pylist() == ["p0"]


def test_trees_from_parents_in_a_cycle(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("id,parent,text\na,b,x\nb,a,y\nc,a,z\nd,,w\n")
    store = build([path], None, tmp_path / "store")
    assert links(store) == {"d": {"d": None}}
    assert store.info["skipped"] == {"cycle": 3}


def test_replies_in_most_rows_are_trees_and_few_are_a_chat(tmp_path):
    path = tmp_path / "p.csv"
    row = "{0},{1},ann,5,words {0}\n"
    for parents, format in ((["", 1, 1, 2], "table"), (["", "", "", 2], "chat-table")):
        path.write_text("id,parent,author,time,text\n" + "".join(map(row.format, range(1, 5), parents)))
        assert detect_format([path]) == format


@pytest.mark.parametrize("wrap", ["{}", '{{"data": {}}}', '{{"error": null, "data": {}, "more": {{}}}}', "\ufeff {}"])
def test_lists_of_posts(tmp_path, wrap):
    path = tmp_path / "posts.json"
    path.write_text(wrap.format(json.dumps(ROWS, indent=1)))
    rows, counts = read(path)
    assert [row["text"] for row in rows] == [row["text"] for row in ROWS]
    assert counts.read == len(ROWS)
    assert build([path], None, tmp_path / "store").info["format"] == "table"


def test_faults_in_lists_of_posts(tmp_path):
    path = tmp_path / "posts.json"
    path.write_text(json.dumps([ROWS[0], 5, ROWS[1] | {"text": ["no text"]}]))
    rows, counts = read(path)
    assert [row["text"] for row in rows] == [ROWS[0]["text"], ""]
    assert counts.skipped == {"bad_json": 1}
    assert counts.examples["bad_json"][0].startswith(f"{path}, record 2: expected a JSON object")


def test_prefixes_of_reddit_are_left_out_unless_ids_have_them(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("id,parent,tree,text\ns,,t3_s,a\nc,t3_s,t3_s,b\nd,t1_c,t3_s,c\n")
    assert links(build([path], None, tmp_path / "a")) == {"s": {"s": None, "c": "s", "d": "c"}}
    path.write_text("id,parent,tree,text\nt3_s,,x,a\nt1_c,t3_s,x,b\n")
    assert links(build([path], None, tmp_path / "b")) == {"x": {"t3_s": None, "t1_c": "t3_s"}}


def test_named_columns_reach_the_guess(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("nr,above,circle,words,who,when\n1,,t,a,ann,5\n2,1,t,b,bob,6\n")
    columns = {"id": "nr", "parent": "above", "tree": "circle", "text": "words"}
    assert detect_format([path], columns=columns) == "table"
    assert detect_format([path], columns={"text": "words", "author": "who", "time": "when"}) == "chat-table"
    assert detect_format([path], columns={"text": "words", "label": "circle"}) == "labelled"
    store = build([path], None, tmp_path / "store", options={"columns": columns})
    assert links(store) == {"t": {"1": None, "2": "1"}}
    with pytest.raises(RamifyError, match=r"table +line 1: no column 'wrods'"):
        detect_format([path], columns={"text": "wrods"}, verbose=True)


@pytest.mark.parametrize("key", ["comments", "replies", "children", "responses"])
def test_a_flat_format_does_not_leave_posts_unread(tmp_path, key):
    post = {"id": "s", "title": "Oars", "selftext": "who?", "subreddit": "boats", "parent": None, "tree": "s", "text": "x"}
    inside = {"id": "c", "author": {"name": "ann"}, "body": "me"}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(post | {key: [inside]}))
    with pytest.raises(RamifyError, match=rf'table +a list of posts in "{key}", which it would leave unread') as error:
        raise RamifyError(describe_all(path))
    assert 'pushshift      a list of posts in "' in str(error.value)
    told = []
    store = build([path], "pushshift", tmp_path / "store", tell=told.append)
    reason = f'note: {path} holds a list of posts in "{key}", which the format pushshift does not read'
    assert told[0] == f"{reason}; --children {key} without --format reads them"
    assert (store.num_nodes, store.info["skipped"]) == (1, {"unread_posts": 1})
    path.write_text(json.dumps(post | {key: {"c": inside | {"more": {"list": [inside]}}}}))
    assert build([path], "table", tmp_path / "keyed").info["skipped"] == {"unread_posts": 2}
    for harmless in ([], [2, 4], [{"id": "x"}], {"reactions": [inside]}):
        path.write_text(json.dumps(post | {key: harmless}))
        # A submission with comments inside is one of bdfr, also if it has none yet.
        assert detect_format([path]) == ("nested" if key == "comments" else "pushshift")


def describe_all(path):
    """The reasons of all formats against a file."""
    head = path.read_bytes()
    return "\n".join(f"{name:<14} {format.refuses(path, head, {})}" for name, format in FORMATS.items())


def test_links_that_name_threads_are_not_one_channel(tmp_path):
    path = tmp_path / "c.csv"
    row = "u/{0},5,2023-11-14 22:1{0},https://www.reddit.com/r/boats/comments/{1}/oars/{0}/,words {0}\n"
    path.write_text("author,score,created,link,body\n" + "".join(row.format(number, "ab"[number % 2]) for number in range(6)))
    with pytest.raises(RamifyError, match=r"links such as https://www.reddit.com/r/boats/comments/a/oars name the threads of"):
        detect_format([path])
    path.write_text("author,created,body,thread_id\nann,5,x,a\nbob,6,y,b\nann,7,z,a\n")
    store = build([path], None, tmp_path / "store")
    assert {tree.id: store_texts(tree) for tree in store.trees()} == {"a": ["x", "z"], "b": ["y"]}


@pytest.mark.parametrize(
    ("links", "is_channel"),
    [
        (["https://a.org/t/oars/7/1", "https://a.org/t/oars/7/2", "https://a.org/t/nets/8/1"], False),
        (["https://a.org/item?id=7", "https://a.org/item?id=8", "https://a.org/item?id=9"], False),
        (["/topic.php?t=7&p=1", "/topic.php?t=7&p=2", "/topic.php?t=8&p=3"], False),
        (["https://a.org/oars#c1", "https://a.org/oars#c2", "https://a.org/nets#c3"], False),
        (["/r/boats/comments/7/oars/1/", "/r/boats/comments/7/oars/2/", "/r/boats/comments/7/oars/3/"], False),
        (["https://a.org/channels/4/7/1", "https://a.org/channels/4/7/2", "https://a.org/channels/4/7/3"], True),
        (["https://a.org/#/boats/1", "https://a.org/#/boats/2", "https://a.org/#/boats/3"], True),
        (["https://a.org/x/1", "https://b.org/y/2", "https://c.org/z/3"], True),
        (["https://a.org/x/1", "", ""], True),
    ],
)
def test_links_to_posts_of_several_threads_are_not_one_channel(tmp_path, links, is_channel):
    path = tmp_path / "c.csv"
    rows = (f"u{number},2024-01-05 10:0{number},see /r/boats/comments/a,{link}\n" for number, link in enumerate(links))
    path.write_text("author,date,message,url\n" + "".join(rows))
    if is_channel:
        assert detect_format([path]) == "chat-table"
    else:
        with pytest.raises(RamifyError, match=r"name the threads of the posts, so they are not one channel"):
            detect_format([path])
    assert detect_format([path], columns={"channel": "author"}) == "chat-table"


def test_comments_of_wordpress(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text(
        "comment_ID,comment_post_ID,comment_author,comment_date,comment_content,comment_parent\n"
        "1,9,ann,2024-01-05 10:00:00,who?,0\n2,9,bo,2024-01-05 10:01:00,me,1\n4,10,cy,2024-01-05 10:03:00,yes,0\n"
    )
    store = build([path], None, tmp_path / "store")
    assert links(store) == {"9": {"1": None, "2": "1"}, "10": {"4": None}}
    assert {node.author for tree in store.trees() for node in tree.nodes} == {"ann", "bo", "cy"}


def test_a_table_of_unknown_columns_is_refused_with_the_option(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("nr,antwortauf,wer,inhalt\n1,,ann,wer?\n2,1,bo,ich\n")
    with pytest.raises(RamifyError, match=r"no column for id, parent, tree, text; name them with --column id=NAME"):
        detect_format([path])


def store_texts(tree):
    return [node.text for node in tree.nodes]


def test_windows_1252_in_one_row_leaves_the_others(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes("id,parent,tree,t\u00e4xt\n1,,t,\u65e5\u672c\n2,1,t,\u00fc ".encode() + b"Gl\xe4ser\x80\n")
    rows, counts = read(path, columns={"text": "täxt"})
    assert [row["text"] for row in rows] == ["日本", "ü Gläser€"]
    assert (counts.kept, counts.examples) == ({"encoding": 1}, {"encoding": [f"{path}, post 2"]})
    path.write_bytes(b"id,parent,tree,t\xe4xt\n1,,t,a\n")
    assert [row["text"] for row in read(path, columns={"text": "täxt"})[0]] == ["a"]


@pytest.mark.parametrize("mark", ["0", "-1", "\\N", "NULL", "none", "nan", "<NA>", "0.0", "NA", "n/a"])
@pytest.mark.parametrize("tree", ["", "tree"])
def test_a_parent_that_stands_for_none_begins_a_tree(tmp_path, mark, tree):
    path = tmp_path / "p.csv"
    rows = [
        ("id", "parent", "title", tree, "text"),
        ("1", mark, "T", "t", "a"),
        ("2", "1", "", "t", "b"),
        ("4", mark, "", "u", "c"),
    ]
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    found = links(build([path], None, tmp_path / "a"))
    assert sorted(found.values(), key=len) == [{"4": None}, {"1": None, "2": "1"}]
    assert read(path)[0][0]["text"] == "T\n\na"


@pytest.mark.parametrize("tree", ["", ",t"])
def test_numbers_that_stand_for_no_parent_are_parents_if_posts_have_them_as_ids(tmp_path, tree):
    path = tmp_path / "p.csv"
    head = f"id,parent,text{',tree' if tree else ''}\n"
    # The post 0 is in another batch than its reply.
    filler = "".join(f"x{number},,{'long ' * 200}{tree}\n" for number in range(17_000))
    path.write_text(f"{head}1,0,b{tree}\n2,-1,c{tree}\n{filler}0,,a{tree}\n")
    dataset = build([path], None, tmp_path / "a")
    edges = {node: above for tree in links(dataset).values() for node, above in tree.items() if len(node) == 1}
    assert edges == {"0": None, "1": "0", "2": None}


def test_missing_authors_and_labels_of_posts_are_counted(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("id,parent,tree,author,text,label\n1,NA,t,NULL,NA,NA\n2,1,t,none,None,x|y\n3,1,t,,c,x\n")
    rows, counts = read(path, separator="|")
    assert [(row["parent"], row["author"], row["text"]) for row in rows] == [
        (None, None, "NA"), ("1", "none", "None"), ("1", None, "c")
    ]  # fmt: skip
    assert [row["label"] for row in rows] == [None, '["x", "y"]', '["x"]']
    assert counts.examples == {
        "missing_author": [f"{path}, post 1: the author 'NULL' is read as a missing one; --option missing=empty keeps it"],
        "missing_label": [f"{path}, row 2: the label 'NA' is read as a missing one; --option missing=empty keeps it"],
    }
    rows, counts = read(path, missing="empty")
    assert [(row["author"], row["label"]) for row in rows[::2]] == [("NULL", '"NA"'), (None, '"x"')]
    assert "missing_author" not in counts.kept


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_excel_names_the_delimiter_of_posts(tmp_path, encoding):
    path = tmp_path / "p.csv"
    path.write_bytes("sep=;\r\nid;parent;tree;text\r\n1;;t;a, b, c, d, e\r\n2;1;t;b;\r\n3;1;t;c\r\n".encode(encoding))
    dataset = build([path], None, tmp_path / "a")
    assert links(dataset) == {"t": {"1": None, "3": "1"}}
    assert dataset.info["examples"]["bad_row"] == [f"{path}, row 4: 5 columns, not 4"]


def test_a_tree_called_0_is_still_answered(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("id,parent,tree,text\na,0,0,x\nb,0,0,y\nc,1,1,z\n")
    assert links(build([path], None, tmp_path / "a")) == {"0": {"0": None, "a": "0", "b": "0"}, "1": {"1": None, "c": "1"}}


@pytest.mark.parametrize(
    "rows",
    [
        "id,parent_id,text\nt3_s,,a\nt1_c,s,b\nt1_d,c,c\n",
        "id,parent_id,thread,text\nt3_s,0,t3_s,a\nt1_c,t3_s,t3_s,b\nt1_d,c,t3_s,c\n",
        "id,parent_id,thread,text\nt3_s,,s,a\nt1_c,t3_s,s,b\nt1_d,t1_c,s,c\n",
    ],
)
def test_prefixes_of_reddit_are_left_out_if_only_some_names_have_them(tmp_path, rows):
    path = tmp_path / "p.csv"
    path.write_text(rows)
    assert links(build([path], None, tmp_path / "a")) == {"s": {"s": None, "c": "s", "d": "c"}}


def test_json_lines_in_windows_1252(tmp_path):
    rows = [
        '{"id": 1, "parent": null, "tree": "t", "text": "Gl\xe4ser?"}',
        '{"id": 2, "parent": 1, "tree": "t", "text": "f\xfcr dich"}',
    ]
    path = tmp_path / "p.jsonl"
    path.write_bytes("\n".join(rows).encode("cp1252"))
    store = build([path], None, tmp_path / "store")
    assert [node.text for node in store.tree(0).nodes] == ["Gl\xe4ser?", "f\xfcr dich"]
    assert store.info["kept"] == {"encoding": 2}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(tmp_path, encoding):
    path = tmp_path / "p.csv"
    path.write_bytes("id,parent,tree,text\n1,,t,\u201eWhich clay?\u201c\n2,1,t,red \U0001f600\n".encode(encoding))
    assert [node.text for node in build([path], None, tmp_path / "store").tree(0).nodes][1] == "red \U0001f600"


def test_escapes_of_another_encoding_are_named(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes("id,parent,tree,text\n1,,t,\u65e5\u672c\n".encode("iso-2022-jp"))
    with pytest.raises(RamifyError, match=r"escapes of iso-2022-jp, .*\. Convert it \(iconv -f iso-2022-jp"):
        build([path], None, tmp_path / "store")

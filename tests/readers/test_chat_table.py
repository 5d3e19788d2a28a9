import gzip
import json
import tempfile
from calendar import timegm
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from chats import read
from hypothesis import given
from hypothesis import strategies as st
from junk import JUNK, altered

from ramify.errors import RamifyError
from ramify.readers import base, chat_table, table

ROWS = [
    {"author": "ann", "time": 10.0, "text": "who, then?"},
    {"author": "bob", "time": 20.0, "text": "not me\nnor you"},
    {"author": None, "time": None, "text": "🤷"},
]


def write_csv(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def write_lines(path, rows):
    return write_csv(path, "".join(json.dumps(row) + "\n" for row in rows))


CSV = 'author,time,text\nann,10,"who, then?"\nbob,20,"not me\nnor you"\n,,🤷\n'
WRITERS = {
    "csv": lambda path: write_csv(path, CSV),
    "semicolons": lambda path: write_csv(path, 'nick;sent_at;msg\nann;10;"who, then?"\nbob;20;"not me\nnor you"\n;;🤷\n'),
    "tsv": lambda path: write_csv(path, 'User\tTimestamp\tMessage\nann\t10\twho, then?\nbob\t20\t"not me\nnor you"\n\t\t🤷\n'),
    "jsonl": lambda path: write_lines(path, ROWS),
    "parquet": lambda path: pa.parquet.write_table(pa.Table.from_pylist(ROWS), path),
}


def test_authors_that_spell_a_missing_value_may_be_kept(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", [{"author": name, "time": 1.0, "text": "x"} for name in ("NA", "", "ann")])
    (tree,), counts = read(chat_table, path)
    assert ([node.author for node in tree.nodes], counts.kept) == ([None, None, "ann"], {"missing_author": 1})
    (tree,), counts = read(chat_table, path, missing="empty")
    assert ([node.author for node in tree.nodes], counts.kept) == (["NA", None, "ann"], {})


@pytest.mark.parametrize("kind", WRITERS)
def test_kinds_of_tables(tmp_path, kind):
    path = tmp_path / "log.x"
    WRITERS[kind](path)
    (tree,), counts = read(chat_table, path)
    assert tree.id == "log"
    packed = tmp_path / "log.x.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    if kind != "parquet":
        assert [each.id for each in read(chat_table, packed)[0]] == ["log"]
    assert [(node.id, node.text, node.author, node.time, node.parents) for node in tree.nodes] == [
        ("1", "who, then?", "ann", 10.0, None),
        ("2", "not me\nnor you", "bob", 20.0, None),
        ("3", "🤷", None, None, None),
    ]
    assert counts.skipped == counts.kept == {}
    assert not chat_table.refuses(path, path.read_bytes())
    assert table.refuses(path, path.read_bytes())


def test_replies(tmp_path):
    path = write_csv(
        tmp_path / "log.csv", "id,reply_to,user,date,text\na,,ann,1,x\nb,a,bob,2,y\nc,zz,ann,3,z\n,b,eve,4,w\nd,None,eve,5,v\n"
    )
    (tree,), counts = read(chat_table, path)
    assert [(node.id, node.parents) for node in tree.nodes] == [
        ("a", None), ("b", (0,)), ("c", None), ("row 4", (1,)), ("d", None),
    ]  # fmt: skip
    assert counts.kept == {"missing_parent": 1}
    assert counts.examples["missing_parent"] == [f"{path}, post 3"]


def test_channels_are_logs(tmp_path):
    path = write_csv(tmp_path / "log.csv", "channel,author,time,text\nx,ann,1,a\ny,bob,2,b\nx,eve,3,c\n,eve,4,d\n")
    other = write_csv(tmp_path / "more.csv", "channel,author,time,text\nx,ann,1,e\n")
    trees, _ = read(chat_table, path, other)
    assert {tree.id: [node.text for node in tree.nodes] for tree in trees} == {
        "x": ["a", "c"], "y": ["b"], "log": ["d"], "more/x": ["e"],
    }  # fmt: skip


def test_orders(tmp_path):
    """Rows keep their order, unless a parent would follow its child."""
    path = write_csv(tmp_path / "log.csv", "author,time,text\nann,3,c\nann,1,a\nann,2,b\n")
    (tree,), counts = read(chat_table, path)
    assert ([node.text for node in tree.nodes], counts.kept) == (["c", "a", "b"], {"clock_back": 1})
    (tree,), counts = read(chat_table, path, order="time")
    assert ([node.text for node in tree.nodes], counts.kept) == (["a", "b", "c"], {})
    newest_first = write_csv(tmp_path / "back.csv", "id,parent,time,text\n3,2,3,c\n2,1,2,b\n1,,1,a\n")
    (tree,), counts = read(chat_table, newest_first)
    assert [(node.text, node.parents) for node in tree.nodes] == [("a", None), ("b", (0,)), ("c", (1,))]
    assert counts.kept == {"sorted_by_time": 1}
    assert counts.examples["sorted_by_time"] == [f"{newest_first}, post 1 and those after it"]


@pytest.mark.parametrize(
    ("written", "options", "expected", "kept"),
    [
        (["31.01.2024", "1.2.2024 09:05", "01.02.2024, 09:05:30 PM"], {}, [(1, 31, 0), (2, 1, 32_700), (2, 1, 75_930)], {}),
        (["2024/01/31 10:00", "2024-02-01 10:00 +0100"], {}, [(1, 31, 36_000), (2, 1, 32_400)], {}),
        (["02/01/2024", "02/13/2024 1:00 PM"], {}, [(2, 1, 0), (2, 13, 46_800)], {}),
        (["02/01/2024", "13/02/2024"], {}, [(1, 2, 0), (2, 13, 0)], {}),
        (["02/01/2024", "02/01/2024"], {}, [(2, 1, 0), (2, 1, 0)], {"open_date": 1}),
        (["02/01/2024", "02/01/2024"], {"dates": "day"}, [(1, 2, 0), (1, 2, 0)], {}),
        (
            ["02/13/2024", "13/02/2024", "30.02.2024", "1.1.24"],
            {},
            [(2, 13, 0), None, None, (1, 1, 0)],
            {"bad_time": 2, "clock_back": 1},
        ),
        (
            ["05-Jan-24 01:00 PM", "5. Januar 2024, 14:00", "2024年1月6日 上午9:00"],
            {},
            [(1, 5, 46_800), (1, 5, 50_400), (1, 6, 32_400)],
            {},
        ),
    ],
)
def test_dates(tmp_path, written, options, expected, kept):
    rows = [{"author": "ann", "time": each, "text": "x"} for each in written]
    (tree,), counts = read(chat_table, write_lines(tmp_path / "log.jsonl", rows), **options)
    times = [each and timegm((2024, *each[:2], 0, 0, 0)) + each[2] for each in expected]
    assert [node.time for node in tree.nodes] == times
    assert counts.kept == kept


def test_named_columns(tmp_path):
    path = write_csv(tmp_path / "log.csv", "who,what\nann,x\n")
    with pytest.raises(RamifyError, match=r"no column for text: .*--column text=NAME"):
        read(chat_table, path)
    assert read(chat_table, path, columns={"text": "what", "author": "who"})[0][0].nodes[0].author == "ann"
    with pytest.raises(RamifyError, match="The columns are id, parent, channel"):
        read(chat_table, path, columns={"tree": "who"})
    with pytest.raises(RamifyError, match=r"the option delimiter='.*' is invalid. Expected one ASCII character"):
        read(chat_table, path, delimiter="ab")


def test_bad_rows_are_counted(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"id,author,time,text\n1,ann,noon,x\n2,ann\n1,ann,5,x\n1,bob,5,y\n3,bob,nan,\xff\n")
    (tree,), counts = read(chat_table, path)
    assert [(node.id, node.text, node.time) for node in tree.nodes] == [
        ("1", "x", None), ("1/2", "y", 5.0), ("3", "ÿ", None),
    ]  # fmt: skip
    assert counts.skipped == {"bad_row": 1, "duplicate_id": 1}
    assert counts.kept["encoding"] == counts.kept["shared_id"] == 1
    assert counts.kept["bad_time"] >= 1


def test_late_ids_are_ignored(tmp_path):
    """A log may be endless, so it is not held: past the first block, late ids are ignored."""
    rows = [{"author": "ann", "time": place, "text": "x" * 900_000} for place in range(10)]
    path = write_lines(tmp_path / "log.jsonl", [*rows, {"id": "a", "author": "bob", "time": 11, "text": "y"}])
    (tree,), counts = read(chat_table, path)
    assert (len(tree), tree.nodes[-1].id) == (11, "11")
    assert counts.kept == {"late_column": 1}


def test_log_without_relations_is_not_held(tmp_path, monkeypatch):
    plain = write_csv(tmp_path / "plain.csv", "author,text\n" + "ann,hello\n" * 1000)
    related = write_csv(tmp_path / "related.csv", "channel,author,text\n" + "a,ann,hello\n" * 1000)
    monkeypatch.setattr(base, "MAX_HELD_BYTES", 1000)
    assert len(read(chat_table, plain)[0][0]) == 1000
    with pytest.raises(RamifyError, match=r"related\.csv is a table with ids, parents or channels of more than"):
        read(chat_table, related)


def test_other_formats_are_refused():
    others = [
        b"id,parent,tree,author,time,text\n",
        b"author,text\n",
        b'{"id": "a", "body": "x", "author": "y", "created_utc": 1, "link_id": "t3_x", "subreddit": "z"}\n',
        b"[12:01] <ann> hello, all\n",
        b'[{"author": "x"}]',
        b"PAR1" + bytes(100),
    ]
    assert all(chat_table.refuses(Path(__file__), head) for head in others)


WHOLE = [
    {"id": "1", "parent": "2", "channel": "x", "author": "ann", "time": 3, "kind": "k", "text": "t"},
    {"text": "u", "time": "4"},
]


@given(st.lists(altered(WHOLE), max_size=6), JUNK)
def test_junk_never_crashes(rows, name):
    with tempfile.TemporaryDirectory() as folder:
        try:
            trees, _ = read(chat_table, write_lines(Path(folder) / "log.jsonl", [*WHOLE[:1], *rows, name]))
        except RamifyError:
            return
        for tree in trees:
            tree.to_json().encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"time | author | text\n-----|--------|-----\n10:00 | ann | hi\n", "line 2: a rule"),
        (b'time\tauthor\ttext\n10:00\tann\t"never", he said\n', "--option quote="),
    ],
)
def test_tables_laid_out_as_text_and_loose_quotes_are_not_guessed(tmp_path, content, reason):
    assert reason in chat_table.refuses(tmp_path / "a.tsv", content)


def test_names_come_before_the_numbers_of_accounts(tmp_path):
    rows = "msg_id,user_id,user_name,sent_at,body\n1,102,ann,10,hi\n2,105,bob,20,ho\n"
    (tree,), _ = read(chat_table, write_csv(tmp_path / "log.csv", rows))
    assert [node.author for node in tree.nodes] == ["ann", "bob"]

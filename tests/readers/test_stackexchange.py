import bz2
import tracemalloc

import pytest

from ramify import dataset, readers
from ramify.errors import RamifyError
from ramify.readers import stackexchange
from ramify.readers.base import ReadCounts

POSTS = """\ufeff<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="3" PostTypeId="2" ParentId="1" CreationDate="2020-01-02T00:00:00.500" OwnerDisplayName="user9"
    Body="&lt;p&gt;Use &lt;code&gt;a &amp;lt; b&lt;/code&gt;.&lt;/p&gt;" />
  <row Id="1" PostTypeId="1" AcceptedAnswerId="3" CreationDate="2020-01-01T00:00:00.000" OwnerUserId="7"
    Body="&lt;p&gt;Is it?&lt;/p&gt;" Title="Less &lt; more" Tags="&lt;maths&gt;&lt;order-theory&gt;" />
  <row Id="2" PostTypeId="5" CreationDate="2020-01-01T00:00:00.000" Body="a wiki page" />
  <row Id="70000" PostTypeId="1" CreationDate="sometime" Body="" Title="Alone" Tags="|new|" />
</posts>"""
COMMENTS = """<?xml version="1.0" encoding="utf-8"?>
<comments>
  <row Id="1" PostId="3" Text="thanks &amp; bye" CreationDate="2020-01-03T00:00:00.000" UserId="7" />
  <row Id="3" PostId="1" Text="why?" CreationDate="2020-01-03T00:00:00.000" UserDisplayName="gone" />
  <row Id="4" PostId="2" Text="on the wiki page" />
  <row Id="5" PostId="99" Text="on a post that is not here" />
  <row PostId="1" Text="no id" />
</comments>"""


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "maths.example.com"
    folder.mkdir()
    (folder / "Posts.xml").write_text(POSTS, encoding="utf-8")
    (folder / "Comments.xml").write_text(COMMENTS, encoding="utf-8")
    return folder


def read(*paths):
    counts = ReadCounts()
    rows = [row for batch in stackexchange.read(paths, counts) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


def test_site(site):
    rows, counts = read(site)
    by_id = {row["id"]: row for row in rows}
    assert {name: row["parent"] for name, row in by_id.items()} == {
        "3": "1", "1": None, "70000": None, "c1": "3", "c3": "1", "c5": "99",
    }  # fmt: skip
    assert {name: row["tree"] for name, row in by_id.items()} == {
        name: f"maths.example.com/{question}"
        for name, question in {"3": 1, "1": 1, "70000": 70000, "c1": 1, "c3": 1, "c5": 99}.items()
    }
    assert by_id["1"]["text"] == "Less < more\n\nIs it?"
    assert by_id["3"]["text"] == "Use a < b."
    assert by_id["70000"]["text"] == "Alone"
    assert by_id["c1"]["text"] == "thanks & bye"
    assert [by_id[name]["author"] for name in ("1", "3", "c3", "c5")] == ["7", "user9", "gone", None]
    assert [by_id[name]["kind"] for name in ("1", "3", "c1")] == ["question", "answer", "comment"]
    assert [by_id[name]["time"] for name in ("3", "1", "70000")] == [1577923200.5, 1577836800.0, None]
    assert by_id["1"]["meta"] == (
        '{"site": "maths.example.com", "title": "Less < more", "tags": ["maths", "order-theory"], "accepted": "3"}'
    )
    assert counts.skipped == {"not_a_post": 2, "bad_id": 1}


def test_ways_to_name_a_site(site, tmp_path):
    expected, _ = read(site)
    assert read(tmp_path)[0] == expected
    assert read(site / "Posts.xml")[0] == expected
    assert read(site, site)[0] == expected
    (site / "Posts.xml.bz2").write_bytes(bz2.compress((site / "Posts.xml").read_bytes()))
    (site / "Posts.xml").unlink()
    assert read(site)[0] == expected
    assert readers.detect_format([site]) == readers.detect_format([tmp_path]) == "stackexchange"


def test_store(site, tmp_path):
    store = dataset.build([site], None, tmp_path / "store")
    assert store.num_trees == 3
    tree = store.tree(store.find_tree("maths.example.com/1"))
    assert {node.id: tree.nodes[node.parents[0]].id if node.parents else None for node in tree.nodes} == {
        "1": None, "3": "1", "c1": "3", "c3": "1",
    }  # fmt: skip


def test_folder_without_posts_is_refused(tmp_path):
    with pytest.raises(RamifyError, match=r"holds no Posts\.xml.*Unpack"):
        read(tmp_path)


ROWS = [f'  <row Id="{i}" PostTypeId="1" Body="question {i}" Title="t" />' for i in range(1, 2_001)]


@pytest.mark.parametrize(
    "bad", ['<row Id="x" Body="a < b" />', "<row Id=", '  <row Id="2&#2;" />', "</posts>", "\x01", "<row>" * 1_001]
)
def test_fault_skips_the_rest_of_its_line(site, bad, monkeypatch):
    monkeypatch.setattr(stackexchange, "_CHUNK", 4_096)
    rows = [*ROWS[:1_000], bad, *ROWS[1_000:]]
    (site / "Posts.xml").write_text("<posts>\n" + "\n".join(rows) + "\n</posts>\n", encoding="utf-8")
    (site / "Comments.xml").unlink()
    found, counts = read(site)
    assert len(found) >= 1_999
    assert len({row["id"] for row in found}) == len(found)
    assert counts.skipped["bad_xml"] == 1
    assert counts.examples["bad_xml"][0].startswith(f"{site / 'Posts.xml'}, line 100")
    number = next(row["id"] for row in found if int(row["id"]) > 1_001)
    assert number == "1002"


@pytest.mark.parametrize("cut", ['  <row Id="8" PostTypeId="1" Body="un', '  <row Id="8" PostTypeId="1"'])
def test_truncated_row_skips_no_other_row(site, cut):
    (site / "Comments.xml").unlink()
    (site / "Posts.xml").write_text("<posts>\n" + "\n".join([*ROWS[:5], cut, *ROWS[5:9]]) + "\n</posts>\n", encoding="utf-8")
    found, counts = read(site)
    assert len(found) == 9
    assert counts.skipped == {"bad_xml": 1}
    assert counts.read == 10


def test_truncated_row_skips_no_other_row_at_any_chunk_border(site, monkeypatch):
    (site / "Comments.xml").unlink()
    content = "<posts>\n" + "\n".join([*ROWS[:3], '  <row Id="8" PostTypeId="1" Body="un', *ROWS[3:6]]) + "\n</posts>\n"
    (site / "Posts.xml").write_text(content, encoding="utf-8")
    for size in range(40, len(content), 3):
        monkeypatch.setattr(stackexchange, "_CHUNK", size)
        found, counts = read(site)
        assert (len(found), counts.skipped) == (6, {"bad_xml": 1}), size


def test_row_with_an_unknown_entity_is_counted_once(site):
    (site / "Comments.xml").unlink()
    rows = [*ROWS[:3], '  <row Id="8" PostTypeId="1" Body="&nothing;" />', *ROWS[3:6]]
    (site / "Posts.xml").write_text("<posts>\n" + "\n".join(rows) + "\n</posts>\n", encoding="utf-8")
    found, counts = read(site)
    assert (len(found), counts.skipped, counts.read) == (6, {"bad_xml": 1}, 7)


def test_row_with_an_unknown_entity_after_a_truncated_row(site, monkeypatch):
    (site / "Comments.xml").unlink()
    odd = ['  <row Id="8" PostTypeId="1" Body="un', '  <row Id="9" PostTypeId="1" Body="&nothing;" />']
    content = "<posts>\n" + "\n".join([*ROWS[:3], *odd, *ROWS[3:6]]) + "\n</posts>\n"
    (site / "Posts.xml").write_text(content, encoding="utf-8")
    for size in range(40, len(content), 3):
        monkeypatch.setattr(stackexchange, "_CHUNK", size)
        found, counts = read(site)
        assert (len(found), counts.skipped, counts.read) == (6, {"bad_xml": 2}, 8), size


def test_invalid_dates_are_counted(site):
    (site / "Comments.xml").unlink()
    rows = [*ROWS[:3], '  <row Id="8" PostTypeId="1" CreationDate="noon" Body="x" />']
    (site / "Posts.xml").write_text("<posts>\n" + "\n".join(rows) + "\n</posts>\n", encoding="utf-8")
    found, counts = read(site)
    assert (len(found), counts.kept) == (4, {"bad_time": 1})


def test_line_numbers_are_right_after_faults(site):
    rows = [*ROWS[:5], "<", *ROWS[5:10], "<", '  <row Id="99" PostTypeId="4" />', "</posts>"]
    (site / "Posts.xml").write_text("<posts>\n" + "\n".join(rows), encoding="utf-8")
    _, counts = read(site)
    assert counts.examples["not_a_post"][0].partition(", ")[2] == "line 14: PostTypeId 4"


def test_truncated_file(site):
    (site / "Posts.xml").write_text("<posts>\n" + "\n".join(ROWS[:100])[:-20], encoding="utf-8")
    (site / "Comments.xml").unlink()
    found, counts = read(site)
    assert len(found) == 99
    assert counts.skipped == {"bad_xml": 1}


def test_entities_are_refused(site):
    bomb = (
        '<!DOCTYPE posts [<!ENTITY a "haha"><!ENTITY b "&a;&a;&a;">]>\n<posts>\n'
        + '  <row Id="1" PostTypeId="1" Body="&b;" />\n</posts>'
    )
    (site / "Posts.xml").write_text(bomb, encoding="utf-8")
    (site / "Comments.xml").unlink()
    found, counts = read(site)
    assert found == []
    assert counts.skipped["bad_xml"] == 2


@pytest.mark.parametrize("number", ["0", "-1", "99999999999", "2147483648", "x", "", "١"])
def test_odd_ids(site, number):
    (site / "Posts.xml").write_text(f'<posts>\n<row Id="{number}" PostTypeId="1" Body="b" />\n</posts>', encoding="utf-8")
    found, counts = read(site)
    assert counts.skipped["bad_id"] >= 1
    assert not any(row["kind"] == "question" for row in found)


def test_huge_ids_use_no_memory(site):
    (site / "Posts.xml").write_text('<posts>\n<row Id="2147483647" PostTypeId="1" Body="b" />\n</posts>', encoding="utf-8")
    tracemalloc.start()
    found, _ = read(site)
    assert any(row["id"] == "2147483647" for row in found)
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()


@pytest.mark.data
def test_published_sites(data_dir):
    rows, counts = read(data_dir("stackexchange"))
    kinds = [row["kind"] for row in rows]
    assert [kinds.count(kind) for kind in ("question", "answer", "comment")] == [1_033, 1_809, 4_578]
    assert set(counts.skipped) == {"not_a_post"}

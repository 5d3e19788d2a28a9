"""Tables of nodes, as `data export` writes them, and what users make of them."""

import csv
import io
import json

import pytest

from ramify.errors import RamifyError
from ramify.readers import detect_format
from ramify.readers.base import Policy, ReadCounts
from ramify.readers.nodes import read
from ramify.readers.rows import NODE_COLUMNS

ROW = {"tree": "t", "split": "dev", "id": "p", "parent": "", "depth": "0", "author": "ann", "time": "1.5", "kind": "",
       "label": "", "text": "hi", "meta": '{"title": "T"}'}  # fmt: skip


def table(tmp_path, *rows, more=()):
    """A CSV file with these rows, each of which differs from `ROW` in the given fields."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*NODE_COLUMNS, *more], lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROW | dict.fromkeys(more, "") | row for row in rows)
    path = tmp_path / "nodes.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return path


def trees_in(path, **options):
    counts = ReadCounts()
    return list(read([path], counts, policy=Policy(), **options)), counts


def test_tree_from_rows(tmp_path):
    path = table(tmp_path, {}, {"id": "a", "parent": "p", "author": "", "time": "", "label": '{"x": 1}', "meta": ""})
    assert detect_format([path]) == "nodes"
    (tree,), counts = trees_in(path)
    assert (tree.id, tree.meta, counts.read) == ("t", {"title": "T"}, 2)
    root, reply = tree.nodes
    assert (root.id, root.author, root.time, root.parents) == ("p", "ann", 1.5, ())
    assert (reply.id, reply.author, reply.time, reply.parents, reply.label) == ("a", None, None, (0,), {"x": 1})


def test_labels_that_are_no_json_are_strings(tmp_path):
    labels = ["positive", "1", '"1"', "null", "[", "true", "[" * 100_000]
    (tree,), _ = trees_in(table(tmp_path, {}, *({"id": f"{n}", "parent": "p", "label": each} for n, each in enumerate(labels))))
    assert [node.label for node in tree.nodes[1:]] == ["positive", 1, "1", None, "[", True, "[" * 100_000]


def test_split_column_is_read_on_demand(tmp_path):
    path = table(tmp_path, {})
    assert "split" not in trees_in(path)[0][0].meta
    assert trees_in(path, split="split")[0][0].meta == {"title": "T", "split": "dev"}
    with pytest.raises(RamifyError, match="the option split='fold' is invalid"):
        trees_in(path, split="fold")


def test_rows_that_do_not_stand_together_are_refused(tmp_path):
    rows = ({}, {"id": "a", "parent": "p"}, {"tree": "u"}, {"id": "b", "parent": "a"})
    with pytest.raises(RamifyError, match=r"nodes.csv, post 4: the first row of the tree 't' answers 'a'.*Sort the rows"):
        trees_in(table(tmp_path, *rows))


def test_faulty_trees_are_repaired_and_counted_as_in_json_lines(tmp_path):
    rows = (
        {"meta": "[1]"},
        {"id": "a", "parent": "gone"},
        {"id": "a", "parent": "p"},
        {"id": "c", "parent": "p", "time": "noon"},
    )
    (tree,), counts = trees_in(table(tmp_path, *rows))
    assert [(node.id, node.parents, node.time) for node in tree.nodes] == [("p", (), 1.5), ("a", (0,), 1.5), ("c", (0,), None)]
    assert (counts.read, counts.skipped) == (4, {"duplicate_id": 1})
    assert counts.kept == {"bad_meta": 1, "orphan": 1, "bad_time": 1}


def test_lists_of_parents(tmp_path):
    more = ("parents", "self_link")
    rows = ({"parents": "[]"}, {"id": "a"}, {"id": "b", "parents": json.dumps(["p", "a"]), "self_link": "true"})
    (tree,), _ = trees_in(table(tmp_path, *rows, more=more))
    assert [(node.parents, node.self_link) for node in tree.nodes] == [((), False), (None, False), ((0, 1), True)]
    with pytest.raises(RamifyError, match=r"nodes.csv, post 2: parents='p, q' is not a JSON list of ids"):
        trees_in(table(tmp_path, {"parents": "[]"}, {"id": "a", "parents": "p, q"}, more=more))


def test_other_tables_are_not_taken_for_it(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,parent,tree,author,time,text\na,,t,ann,1,hi\n")
    assert detect_format([path]) == "table"

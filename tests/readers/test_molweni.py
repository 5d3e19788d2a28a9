import json

import pytest

from ramify import dataset, readers
from ramify.dataset.labels import node_labels
from ramify.errors import RamifyError
from ramify.readers import base, molweni
from ramify.readers.base import ReadCounts


def dialogue(name, texts, *relations):
    return {
        "id": name,
        "edus": [{"speaker": each[0], "text": each} for each in texts],
        "relations": [{"x": x, "y": y, "type": type_} for x, y, type_ in relations],
    }


DIALOGUES = [
    dialogue("1", ["ann: hi?", "bob: yes", "eve: who?", "ann: both"], (0, 1, "QAP"), (1, 3, "Result"), (2, 3, "QAP")),
    dialogue("2", ["joe: alone"]),
    dialogue("3", ["bob: yes", "eve: later"], (0, 1, "Comment")),
]


def read(path, dialogues, **options):
    path.write_text(json.dumps(dialogues, indent=1), encoding="utf-8")
    counts = ReadCounts()
    trees = list(molweni.read([path], counts, **options))
    assert counts.read == sum(map(len, trees)) + sum(counts.skipped.values())
    return trees, counts


def test_dialogues_are_forests(tmp_path):
    trees, counts = read(tmp_path / "dev.json", DIALOGUES)
    assert [tree.id for tree in trees] == ["1", "2", "3"]
    assert [node.parents for node in trees[0].nodes] == [(), (0,), (), (1, 2)]
    assert [node.author for node in trees[0].nodes] == ["a", "b", "e", "a"]
    assert trees[0].nodes[1].label == [{"parent": "0", "type": "QAP"}]
    assert [each["type"] for each in trees[0].nodes[3].label] == ["Result", "QAP"]
    assert trees[0].nodes[0].label is None
    assert counts.skipped == counts.kept == {}
    assert readers.detect_format([tmp_path / "dev.json"]) == "molweni"


def test_overlapping_windows_are_one_group(tmp_path):
    trees, _ = read(tmp_path / "dev.json", [*DIALOGUES, dialogue("4", ["eve: later", "joe: new"])])
    assert [tree.meta["group"] for tree in trees] == ["1", "2", "1", "1"]


def test_repeated_relations_are_dropped(tmp_path):
    """Only labels are: the links to parents stay, and so does a relation between other utterances with the same texts."""
    window = dialogue("4", ["bob: yes", "eve: who?", "ann: both"], (0, 2, "Comment"), (1, 2, "QAP"))
    trees, counts = read(tmp_path / "dev.json", [DIALOGUES[0], window, window], repeated="drop")
    assert trees[0] == read(tmp_path / "dev.json", DIALOGUES)[0][0]
    assert [node.label for node in trees[1].nodes] == [None] * 3
    assert trees[1].nodes[2].parents == (0, 1)
    assert counts.kept == {"repeated_relation": 4}


def test_store_keeps_several_parents(tmp_path):
    trees, _ = read(tmp_path / "dev.json", DIALOGUES)
    store = dataset.build([tmp_path / "dev.json"], None, tmp_path / "store")
    assert store.tree(store.find_tree("1")) == trees[0]


@pytest.mark.parametrize(
    "relation", [(3, 1, "x"), (1, 1, "x"), (0, 4, "x"), (-1, 2, "x"), ("0", 2, "x"), (None, 2, "x"), (False, 1, "x")]
)
def test_bad_relations_are_counted(tmp_path, relation):
    trees, counts = read(tmp_path / "dev.json", [dialogue("1", ["a", "b", "c", "d"], relation)])
    assert [node.parents for node in trees[0].nodes] == [()] * 4
    assert counts.kept == {"bad_relation": 1}


def test_relations_other_than_a_list_are_counted(tmp_path):
    trees, counts = read(tmp_path / "dev.json", [{**dialogue("1", ["a", "b"]), "relations": 7}])
    assert (len(trees[0]), counts.kept) == (2, {"bad_relation": 1})


def test_invalid_dialogues_are_counted(tmp_path):
    trees, counts = read(tmp_path / "dev.json", [DIALOGUES[1], {"id": "x"}, 3, {"id": "y", "edus": [{"text": 5}, 6]}])
    assert [[node.text for node in tree.nodes] for tree in trees] == [["joe: alone"], ["", ""]]
    assert counts.skipped == {"not_a_post": 2}


def test_half_surrogate_pairs(tmp_path):
    half = "\ud83d"
    record = {"id": half, "edus": [{"speaker": half, "text": half}] * 2, "relations": [{"x": 0, "y": 1, "type": half}]}
    read(tmp_path / "dev.json", [record])
    store = dataset.build([tmp_path / "dev.json"], "molweni", tmp_path / "store")
    tree = store.tree(0)
    assert (tree.id, tree.meta) == ("\ufffd", {"group": "\ufffd"})
    assert [(node.text, node.author) for node in tree.nodes] == [("\ufffd", "\ufffd")] * 2
    assert tree.nodes[1].label == [{"parent": "0", "type": "\ufffd"}]


def test_held_bytes_are_bounded(tmp_path, monkeypatch):
    """The size of all files together counts, however their lines are cut."""
    line = json.dumps(DIALOGUES[1])
    for name, content in (("a", line), ("b", f"[\n{line}\n]"), ("c", f"{line}\n{line}")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.setattr(base, "MAX_HELD_BYTES", 3 * len(line))
    assert len(list(molweni.read([tmp_path / "a", tmp_path / "b"], ReadCounts()))) == 2
    with pytest.raises(RamifyError, match=r"c and the files before it have more than .* fewer or smaller files"):
        list(molweni.read([tmp_path / name for name in "abc"], ReadCounts()))


@pytest.mark.data
def test_published_dialogues(data_dir):
    counts = ReadCounts()
    trees = list(molweni.read([data_dir("molweni") / "dev.json"], counts))
    assert len(trees) == 500
    assert counts.read == sum(map(len, trees)) == 4_386
    assert [len(tree.roots) for tree in trees].count(2) == 6
    assert max(len(node.parents or ()) for tree in trees for node in tree.nodes) == 1


@pytest.mark.data
def test_published_relations_without_repeated_ones(data_dir, tmp_path):
    path = data_dir("molweni") / "dev.json"
    store = dataset.build([path], "molweni", tmp_path / "store", options={"repeated": "drop"})
    assert len(node_labels(store, "all", "0.type").values) == 1_699
    assert store.info["kept"]["repeated_relation"] == 3_880 - 1_699
    assert len({meta["group"] for meta in store.metas(range(store.num_trees))}) == 199

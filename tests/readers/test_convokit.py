import json
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify import dataset, readers
from ramify.errors import RamifyError
from ramify.readers import base, convokit
from ramify.readers.base import ReadCounts
from ramify.readers.reddit import NOBODY
from ramify.readers.rows import LABELLED, Post, batches
from ramify.tree import Node, Tree

UTTERANCES = [
    {
        "id": "b",
        "conversation_id": "k",
        "speaker": "bob",
        "reply-to": "a",
        "timestamp": "2.5",
        "text": "no",
        "meta": {"rude": True},
    },
    {"id": "a", "conversation_id": "k", "speaker": "ann", "reply-to": None, "timestamp": 1, "text": "yes?", "meta": {}},
    {"id": "z", "conversation_id": "l", "speaker": "[deleted]", "reply-to": None, "timestamp": None, "text": None, "meta": {}},
]
CONVERSATIONS = {"k": {"meta": {"topic": "manners"}, "vectors": []}, "l": {"meta": {}, "vectors": []}}


def read(*paths):
    counts = ReadCounts()
    rows = [row for batch in convokit.read(paths, counts) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_lines(folder / "utterances.jsonl", UTTERANCES)
    (folder / "conversations.json").write_text(json.dumps(CONVERSATIONS), encoding="utf-8")
    return folder


def test_corpus(corpus):
    rows, counts = read(corpus)
    assert [(row["id"], row["parent"], row["tree"], row["author"], row["time"], row["text"]) for row in rows] == [
        ("b", "a", "k", "bob", 2.5, "no"),
        ("a", None, "k", "ann", 1.0, "yes?"),
        ("z", None, "l", None, None, ""),
    ]
    assert [row["meta"] for row in rows] == [None, '{"topic": "manners"}', None]
    assert [row["label"] for row in rows] == ['{"rude": true}', None, None]
    assert counts.skipped == {}
    assert readers.detect_format([corpus]) == readers.detect_format([corpus / "utterances.jsonl"]) == "convokit"
    assert read(corpus / "utterances.jsonl")[0] == rows


def test_times_in_milliseconds_and_invalid_times(corpus):
    times = [1600000000000, "1600000000030", "noon", 1e18, "", None]
    utterances = [{"id": f"u{number}", "conversation_id": "u0", "speaker": "ann", "text": "x"} for number in range(len(times))]
    write_lines(corpus / "utterances.jsonl", [each | {"timestamp": time} for each, time in zip(utterances, times)])
    rows, counts = read(corpus)
    assert [row["time"] for row in rows] == [1.6e9, 1600000000.03, None, None, None, None]
    assert counts.kept == {"bad_time": 2}


def test_deeply_nested_records_are_skipped(corpus):
    deep = []
    for _ in range(5000):
        deep = [deep]
    counts = ReadCounts()
    (batch,) = batches([Post("a", None, "a", text="x", label=deep)], counts, LABELLED)
    assert (batch["label"].to_pylist(), counts.kept) == ([None], {"odd_json": 1})


def test_older_versions(tmp_path):
    old = [
        {"id": "a", "root": "k", "user": {"id": "ann"}, "reply_to": None, "timestamp": 1, "text": "yes?"},
        {"id": "b", "root": "k", "user": "bob", "reply_to": "a", "timestamp": 2, "text": "no"},
    ]
    (tmp_path / "utterances.json").write_text(json.dumps(old, indent=1), encoding="utf-8")
    (tmp_path / "conversations.json").write_text('{"k": {"topic": "manners"}}', encoding="utf-8")
    rows, _ = read(tmp_path)
    assert [(row["id"], row["parent"], row["tree"], row["author"]) for row in rows] == [
        ("a", None, "k", "ann"),
        ("b", "a", "k", "bob"),
    ]
    assert rows[0]["meta"] == '{"topic": "manners"}'


def test_invalid_utterances_are_counted(corpus):
    write_lines(corpus / "utterances.jsonl", [*UTTERANCES, 5, {"text": "no id"}, {"id": "q", "reply-to": "a"}, {"id": "r"}])
    rows, counts = read(corpus)
    assert [row["id"] for row in rows] == ["b", "a", "z", "r"]
    assert rows[-1]["tree"] == "r"
    assert counts.skipped == {"not_a_post": 3}


def test_mistakes(tmp_path, corpus):
    with pytest.raises(RamifyError, match=r"holds no utterances\.jsonl"):
        read(tmp_path)
    (corpus / "conversations.json").write_text("{", encoding="utf-8")
    with pytest.raises(RamifyError, match=r"conversations\.json is not valid JSON"):
        read(corpus)


def test_held_bytes_are_bounded(corpus, monkeypatch):
    monkeypatch.setattr(base, "MAX_HELD_BYTES", 60)
    with pytest.raises(RamifyError, match=r"conversations\.json is one JSON value of more than .* Remove it"):
        read(corpus)
    (corpus / "conversations.json").unlink()
    assert len(read(corpus)[0]) == 3


# --- archives -----------------------------------------------------------------------------------------------------------


def pack(corpus, path, root="", extra=()):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(corpus.iterdir()):
            archive.write(file, f"{root}{file.name}")
        for name in extra:
            archive.writestr(name, "{}")
    return path


@pytest.mark.parametrize("root", ["", "manners-corpus/"])
def test_archive(corpus, tmp_path, root):
    (corpus / "speakers.json").write_text("{}")
    path = pack(corpus, tmp_path / "manners-corpus.zip", root, ["__MACOSX/manners-corpus/._utterances.jsonl"])
    inputs = readers.open_inputs([path])
    assert inputs.format.name == "convokit"
    assert [row for batch in inputs.records() for row in batch.to_pylist()] == read(corpus)[0]


def test_faults_in_an_archive_are_located(corpus, tmp_path):
    write_lines(corpus / "utterances.jsonl", [*UTTERANCES, 5])
    path = pack(corpus, tmp_path / "c.zip", "c/")
    inputs = readers.open_inputs([path])
    list(inputs.records())
    assert inputs.counts.examples["not_a_post"] == [
        f"{path}/c/utterances.jsonl, line 4: not an utterance with an id and a conversation: 5"
    ]
    data = bytearray(path.read_bytes())
    data[data.index(b"c/utterances.jsonl") + 40] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RamifyError, match=r"c\.zip is damaged \(c/utterances\.jsonl: .*Download it again"):
        readers.open_inputs([path])


def test_other_archives_are_refused(corpus, tmp_path):
    other = pack(corpus, tmp_path / "other.zip", "one/", ["two/utterances.jsonl"])
    with pytest.raises(RamifyError, match=r"other\.zip holds no utterances\.jsonl or utterances\.json"):
        list(readers.open_inputs([other], "convokit").records())


# --- the round trip -----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
labels = (
    st.none() | st.integers(-9, 9) | texts | st.lists(texts, max_size=2) | st.dictionaries(texts, texts, min_size=1, max_size=2)
)
labels |= st.sampled_from([{}, {"label": 1}, {"label": {"label": 1}, "x": 2}, {"kind": "x"}, {"parents": ["a"], "x": 2}])


@st.composite
def discussions(draw: st.DrawFn, number: int = 0) -> Tree:
    nodes = tuple(
        Node(
            text=draw(texts) + "x",
            parents=(draw(st.integers(0, place - 1)),) if place else (),
            id=f"{number}/{place}",
            author=draw(st.none() | texts.filter(lambda name: name not in ("", NOBODY))),
            time=float(place) if draw(st.booleans()) else None,
            kind=draw(texts),
            label=draw(labels),
        )
        for place in range(draw(st.integers(1, 5)))
    )
    return Tree(
        nodes, id=f"tree {number}", meta=draw(st.dictionaries(texts.filter(lambda key: key != "meta"), texts, max_size=2))
    )


def as_read(tree: Tree) -> list[tuple]:
    ids = [node.id for node in tree.nodes]
    return [
        (node.id, ids[node.parents[0]] if node.parents else None, tree.id, node.author, node.time, node.kind or None, node.text,
         dict(tree.meta) or None if not node.parents else None, node.label)
        for node in tree.nodes
    ]  # fmt: skip


@given(st.tuples(discussions(0), discussions(1)))
def test_round_trip(tmp_path_factory, trees):
    folder = tmp_path_factory.mktemp("convokit") / "out"
    convokit.write_convokit(trees, folder)
    rows, counts = read(folder)
    loaded = [
        tuple(json.loads(row[name]) if name in ("meta", "label") and row[name] else row[name] for name in row) for row in rows
    ]
    assert loaded == [node for tree in trees for node in as_read(tree)]
    assert counts.skipped == {}


def test_store_to_corpus_to_store(tmp_path):
    nodes = (
        Node("q", id="p", author="ann", time=1.0),
        Node("a", (0,), id="c", author="bob", time=2.0, label={"score": 3}, kind="answer"),
        Node("b", (1,), id="d", time=3.0, label="good"),
    )
    lines = "\n".join(Tree(nodes, id=name, meta={"topic": name}).to_json() for name in ("one", "two"))
    (tmp_path / "trees.jsonl").write_text(lines, encoding="utf-8")
    store = dataset.build([tmp_path / "trees.jsonl"], "jsonl", tmp_path / "store")
    convokit.write_convokit(store.trees(), tmp_path / "corpus")
    again = dataset.build([tmp_path / "corpus"], "convokit", tmp_path / "again")
    assert again.num_trees == 2
    trees = {tree.id: tree for tree in again.trees()}
    for tree in store.trees():
        back = trees[tree.id]
        assert back.meta == tree.meta
        # The second tree's ids were taken, so they name their tree.
        assert [node.id.rpartition("/")[2] for node in back.nodes] == ["p", "c", "d"]
        assert [(node.text, node.parents, node.author, node.time, node.kind, node.label) for node in back.nodes] == [
            (node.text, node.parents, node.author, node.time, node.kind, node.label) for node in tree.nodes
        ]
    records = [json.loads(line) for line in (tmp_path / "corpus" / "utterances.jsonl").read_text().splitlines()]
    assert len({record["id"] for record in records}) == 6


def test_corpus_has_the_form_of_convokit(tmp_path):
    convokit.write_convokit(
        [Tree((Node("hé", id="a"), Node("b", (), id="b", author="bob"), Node("c", (0, 1), id="c", kind="chat")), id="log")],
        tmp_path / "corpus",
    )
    files = {path.name: path.read_text(encoding="ascii") for path in (tmp_path / "corpus").iterdir()}
    assert set(files) == {"utterances.jsonl", "conversations.json", "speakers.json", "corpus.json", "index.json"}
    records = [json.loads(line) for line in files["utterances.jsonl"].splitlines()]
    assert records[2] == {
        "id": "c",
        "conversation_id": "log",
        "text": "c",
        "speaker": "[deleted]",
        "meta": {"kind": "chat", "parents": ["a", "b"]},
        "reply-to": "b",
        "timestamp": None,
        "vectors": [],
    }
    assert json.loads(files["conversations.json"]) == {"log": {"meta": {}, "vectors": []}}
    assert set(json.loads(files["speakers.json"])) == {"bob", "[deleted]"}
    assert json.loads(files["index.json"]) == {
        "utterances-index": {"kind": [], "parents": []},
        "speakers-index": {},
        "conversations-index": {},
        "overall-index": {},
        "version": 1,
        "vectors": [],
    }


def test_failed_export_leaves_nothing(tmp_path):
    def failing():
        yield Tree((Node(id="a"),), id="t")
        raise RamifyError("no more")

    with pytest.raises(RamifyError, match="no more"):
        convokit.write_convokit(failing(), tmp_path / "corpus")
    with pytest.raises(RamifyError, match="two trees have the id 't'"):
        convokit.write_convokit([Tree((Node(id=name),), id="t") for name in "ab"], tmp_path / "corpus")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.txt").touch()
    with pytest.raises(RamifyError, match="is not an empty folder"):
        convokit.write_convokit([], tmp_path / "corpus")


def test_folder_created_meanwhile_is_not_touched(tmp_path):
    corpus = tmp_path / "corpus"

    def trees():
        with pytest.raises(RamifyError, match="corpus is being written by another process"):
            convokit.write_convokit([], corpus)
        corpus.mkdir()
        (corpus / "mine.txt").touch()
        yield Tree((Node(id="a"),), id="t")

    with pytest.raises(RamifyError, match=r"corpus has changed .* It is not touched"):
        convokit.write_convokit(trees(), corpus)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert [path.name for path in corpus.iterdir()] == ["mine.txt"]

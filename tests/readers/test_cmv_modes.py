import pytest

from ramify import dataset, readers
from ramify.errors import RamifyError
from ramify.readers import base, cmv_modes
from ramify.readers.base import ReadCounts

HEAD = """<?xml version="1.0"?>
<thread ID="abc">
<title><claim type="interpretation">CMV: tea</claim> beats coffee</title>
<source>http://example.com/abc</source>
<OP author="ann">

<premise type="logos" id="0" rel="support" ref="title">It&#8217;s <quote>calm</quote></premise>, so
<claim type="evaluation_rational" id="1">drink it</claim>.

</OP>
"""
FIRST = (
    HEAD
    + """<reply id="r1" author="bob">
<claim type="evaluation" id="2" rel="rebuttal" ref="1_title"><premise type="pathos" id="3">Never</premise> ever</claim>
</reply>
<reply id="r2" author="[deleted]">
fine
</reply>
</thread>"""
)
SECOND = (
    HEAD
    + """<reply id="r3" author="eve">  Indeed.
<premise type="ethos" id="2" rel="agreement" rid="a" ref="0">I do</premise></reply></thread>"""
)


@pytest.fixture
def corpus(tmp_path):
    for version, outcome, name, content in [
        ("v2.0", "positive", "1", FIRST),
        ("v2.0", "negative", "7", SECOND),
        ("v1.0", "positive", "1", FIRST.replace(' rel="support" ref="title"', "").replace("fine", "an older text")),
    ]:
        folder = tmp_path / version / outcome
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.xml").write_text(content, encoding="utf-8")
        (folder / f"{name}.ann").write_text("T1\tclaim 0 4\tnone of ours", encoding="utf-8")
    return tmp_path


def read(*paths):
    counts = ReadCounts()
    trees = list(cmv_modes.read(paths, counts))
    assert counts.read == sum(map(len, trees)) + sum(counts.skipped.values())
    return trees, counts


def test_threads_of_one_submission_are_one_tree(corpus):
    (tree,), counts = read(corpus)
    assert tree.id == "abc"
    assert tree.meta == {
        "title": "CMV: tea beats coffee",
        "source": "http://example.com/abc",
        "outcomes": {"r1": "positive", "r3": "negative"},
    }
    assert {node.id: tree.nodes[node.parents[0]].id if node.parents else None for node in tree.nodes} == {
        "abc": None, "r1": "abc", "r2": "r1", "r3": "abc",
    }  # fmt: skip
    assert {node.id: node.author for node in tree.nodes} == {"abc": "ann", "r1": "bob", "r2": None, "r3": "eve"}
    texts = {node.id: node.text for node in tree.nodes}
    assert texts == {
        "abc": "CMV: tea beats coffee\n\nIt\u2019s calm, so\ndrink it.",
        "r1": "Never ever",
        "r2": "fine",
        "r3": "Indeed.\nI do",
    }
    assert counts.read == 8
    assert counts.skipped == {"duplicate_id": 4}


def test_labels_are_spans_of_the_text(corpus):
    (tree,), _ = read(corpus)
    spans = {
        (node.id, each["id"]): (each["kind"], each["type"], node.text[each["start"] : each["end"]])
        for node in tree.nodes
        for each in node.label
    }
    assert spans == {
        ("abc", "title"): ("claim", "interpretation", "CMV: tea"),
        ("abc", "0"): ("premise", "logos", "It\u2019s calm"),
        ("abc", "1"): ("claim", "evaluation_rational", "drink it"),
        ("r1", "2"): ("claim", "evaluation", "Never ever"),
        ("r1", "3"): ("premise", "pathos", "Never"),
        ("r3", "2"): ("premise", "ethos", "I do"),
    }
    labels = {node.id: node.label for node in tree.nodes}
    assert labels["abc"][1] == {
        "kind": "premise", "id": "0", "type": "logos", "start": 23, "end": 32, "relation": "support", "refs": ["title"],
    }  # fmt: skip
    assert [labels["r1"][0][name] for name in ("relation", "refs")] == ["rebuttal", ["1", "title"]]
    assert labels["r3"][0]["relation_id"] == "a"
    assert labels["r2"] == []


def test_one_version_one_file(corpus):
    (tree,), _ = read(corpus / "v1.0")
    assert [node.text for node in tree.nodes][2] == "an older text"
    assert "relation" not in tree.nodes[0].label[1]
    (tree,), _ = read(corpus / "v2.0" / "negative" / "7.xml")
    assert [node.id for node in tree.nodes] == ["abc", "r3"]
    assert readers.detect_format([corpus]) == readers.detect_format([corpus / "v2.0" / "negative" / "7.xml"]) == "cmv-modes"


BOMB = FIRST.replace("<thread", '<!DOCTYPE thread [<!ENTITY a "&#104;a"><!ENTITY b "&a;&a;">]><thread')


@pytest.mark.parametrize("content", [FIRST[:-9], FIRST.replace("calm", "a < b"), "junk", BOMB, "<other/>", "<a>" * 5_000])
def test_bad_files_are_skipped(corpus, content):
    (corpus / "v2.0" / "positive" / "2.xml").write_text(content, encoding="utf-8")
    trees, counts = read(corpus)
    assert [len(tree) for tree in trees] == [4]
    assert counts.skipped["bad_xml"] == 1
    assert "2.xml, line" in counts.examples["bad_xml"][0]


def test_thread_without_submission(corpus):
    (corpus / "v2.0" / "positive" / "2.xml").write_text('<thread ID="q"><reply id="r">x</reply></thread>', encoding="utf-8")
    _, counts = read(corpus)
    assert counts.skipped["not_a_post"] == 1


def test_held_bytes_are_bounded(corpus, monkeypatch):
    monkeypatch.setattr(base, "MAX_HELD_BYTES", len(FIRST.encode()) + 100)
    read(corpus / "v2.0" / "positive")
    with pytest.raises(RamifyError, match=r"7\.xml and the files before it have more than .* fewer or smaller files"):
        read(corpus)


def test_store_keeps_the_labels(corpus, tmp_path):
    (tree,), _ = read(corpus)
    store = dataset.build([corpus], None, tmp_path / "store")
    assert store.tree(0) == tree


@pytest.mark.data
def test_published_corpus(data_dir):
    folder = data_dir("cmv-modes")
    trees, counts = read(folder)
    assert counts.skipped["bad_xml"] == 14
    # 177 files parse: one submission each, and 559 replies.
    assert counts.read == 14 + 177 + 559
    assert len(trees) == 36
    components = [each for tree in trees for node in tree.nodes for each in node.label]
    assert all(each["start"] < each["end"] for each in components)
    version_2, counts = read(folder / "v2.0")
    # Every submission is in each of its files; no reply is there twice.
    assert counts.read - sum(counts.skipped.values()) == sum(map(len, version_2))
    assert counts.skipped == {"bad_xml": 6, "duplicate_id": 107 - 36}

import io
import json
import tarfile

import pytest

from ramify import dataset, readers
from ramify.dataset.labels import node_labels
from ramify.errors import RamifyError
from ramify.readers import cmv_chains
from ramify.readers.base import Policy, ReadCounts


def comment(name, parent, link="t3_p", **more):
    return {
        "name": name,
        "parent_id": parent,
        "link_id": link,
        "body": f"{name} &gt;",
        "author_name": "ann",
        "created_utc": 1.0,
        **more,
    }


SUBMISSION = comment("t3_p", "", link="", title="Tea", author_name="[deleted]")
AD_HOMINEM = [SUBMISSION, comment("t1_a", "t3_p"), comment("t1_b", "t1_a", violated_rule=2, delta=False)]
DELTA = [comment("t1_a", "t3_p"), comment("t1_c", "t1_a", violated_rule=0, delta=True)]


def archive(path, files, mode="w:bz2"):
    with tarfile.open(path, mode) as tar:
        for name, lines in files.items():
            data = lines if isinstance(lines, bytes) else "\n".join(map(json.dumps, lines)).encode()
            member = tarfile.TarInfo(f"chains/{name}.json")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def read(path, chains="threads"):
    counts = ReadCounts()
    batches = cmv_chains.read([path], counts, policy=Policy(), chains=chains)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


@pytest.mark.parametrize("mode", ["w", "w:bz2", "w:gz"])
def test_chains(tmp_path, mode):
    path = archive(tmp_path / "chains.tar", {"1_ah": AD_HOMINEM, "2_delta": DELTA}, mode)
    rows, counts = read(path)
    assert [(row["id"], row["parent"], row["tree"]) for row in rows] == [
        ("p", None, "p"), ("a", "p", "p"), ("b", "a", "p"), ("a", "p", "p"), ("c", "a", "p"),
    ]  # fmt: skip
    assert rows[0]["text"] == "Tea\n\nt3_p >"
    assert rows[0]["author"] is None
    assert [json.loads(row["label"]) for row in rows if row["label"]] == [
        {"chain": "1_ah", "ad_hominem": True, "delta": False},
        {"chain": "2_delta", "ad_hominem": False, "delta": True},
    ]
    assert counts.skipped == {}
    assert readers.detect_format([path]) == "cmv-chains"
    store = dataset.build([path], None, tmp_path / "store", options={"chains": "threads"})
    assert [node.id for node in store.tree(0).nodes] == ["p", "a", "b", "c"]


def chain(*names, link="t3_p", **last):
    """Comments that answer each other; the first one answers the submission, or is the submission."""
    comments = [comment(f"t1_{name}", f"t1_{before}", link) for before, name in zip(("_", *names), names)]
    return [*comments[:-1], comments[-1] | last]


def test_pairs_before_the_last_comment(tmp_path):
    """Neither the last comment nor the length of the chain nor the submission is seen."""
    ad_hominem = chain("a", "b", "c", "d", violated_rule=2)
    delta = chain("e", "b", "f", violated_rule=0, delta=True)
    submission = [SUBMISSION, comment("t1_g", "t3_p"), comment("t1_h", "t1_g", delta=True)]
    files = {"1": ad_hominem, "2": delta, "3": submission, "4": [SUBMISSION, *ad_hominem], "5": ad_hominem[-2:]}
    path = archive(tmp_path / "chains.tar.bz2", files)
    rows, counts = read(path, "pairs")
    assert [(row["tree"], row["id"], row["parent"], row["text"], row["group"]) for row in rows] == [
        ("1", "b", None, "t1_b >", "p"), ("1", "c", "b", "t1_c >", "p"),
        ("2", "e", None, "t1_e >", "p"), ("2", "b", "e", "t1_b >", "p"),
        ("4", "b", None, "t1_b >", "p"), ("4", "c", "b", "t1_c >", "p"),
    ]  # fmt: skip
    assert [row["label"] and json.loads(row["label"])["ad_hominem"] for row in rows] == [None, True, None, False, None, True]
    assert counts.skipped == {"outside_pair": 2 + 1 + 3, "shows_submission": 3, "not_a_post": 2}
    store = dataset.build([path], None, tmp_path / "store")
    assert [len(tree) for tree in store.trees()] == [2, 2, 2]
    assert len({store.metas([tree])[0]["group"] for tree in range(3)}) == 1
    assert set(store.depth.tolist()) == {0, 1}


def test_removed_comments_of_pairs(tmp_path):
    """A removed comment before the last keeps its label only if the user wants it."""
    comments = chain("a", "b", "c", violated_rule=2)
    comments[1]["body"] = "[removed]"
    path = archive(tmp_path / "chains.tar.bz2", {"1": comments, "2": chain("d", "e", "f", link="t3_q", delta=True)})
    keep = dataset.build([path], None, tmp_path / "keep", policy=Policy(deleted="keep"))
    assert len(node_labels(keep, "all", "ad_hominem").values) == 2
    assert "[removed]" in keep.texts(range(keep.num_nodes))
    other = dataset.build([path], None, tmp_path / "other")
    assert len(node_labels(other, "all", "ad_hominem").values) == 1
    assert other.info["skipped"]["removed"] == 1


def test_bad_chains_are_counted(tmp_path):
    files = {
        "1": b'nonsense\n{"name": 5}',
        "2": [comment("t1_x", "t1_w", link="")],
        "3": DELTA,
        "4": b"",
        "5": [comment("", "t1_w")],
    }
    rows, counts = read(archive(tmp_path / "chains.tar.bz2", files))
    assert [row["id"] for row in rows] == ["a", "c"]
    assert counts.skipped == {"bad_json": 1, "not_a_post": 3}


def test_truncated_archives(tmp_path):
    path = archive(tmp_path / "chains.tar.bz2", {str(i): DELTA for i in range(200)})
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(RamifyError, match=r"chains\.tar\.bz2"):
        read(path)
    (tmp_path / "no.tar").write_bytes(b"no archive at all" * 100)
    with pytest.raises(RamifyError, match="not a readable tar archive"):
        read(tmp_path / "no.tar")


@pytest.mark.data
def test_published_chains(data_dir):
    rows, counts = read(data_dir("cmv-adhominem") / "threads.tar.bz2")
    labels = [json.loads(row["label"]) for row in rows if row["label"]]
    assert len(labels) == 2_010
    assert sum(label["ad_hominem"] for label in labels) == 1_018
    assert len(rows) == 1_018 * 4 + 992 * 3
    assert sum(row["parent"] is None for row in rows) == 50
    assert counts.skipped == {}


@pytest.mark.data
def test_published_pairs(data_dir, tmp_path):
    """Only six chains of which the first comment of the pair is the submission are lost; no removed last comment is."""
    path = data_dir("cmv-adhominem") / "threads.tar.bz2"
    store = dataset.build([path], None, tmp_path / "store", policy=Policy(deleted="keep"))
    labels = node_labels(store, "all", "ad_hominem")
    assert (len(labels.values), sum(labels.values), labels.unlabelled) == (2_010 - 6, 1_018, 0)
    assert (store.depth[labels.nodes] == 1).all()
    assert store.info["skipped"] == {"outside_pair": 2 * 1_018 + 986, "shows_submission": 6 * 3}
    groups = {split: {meta["group"] for meta in store.metas(store.split(split))} for split in ("train", "dev", "test")}
    assert sum(map(len, groups.values())) == len(set.union(*groups.values()))

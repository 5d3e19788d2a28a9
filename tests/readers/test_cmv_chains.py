import io
import json
import tarfile

import pytest

from ramify import dataset, readers
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


def read(path):
    counts = ReadCounts()
    rows = [row for batch in cmv_chains.read([path], counts, policy=Policy()) for row in batch.to_pylist()]
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
    store = dataset.build([path], None, tmp_path / "store")
    assert [node.id for node in store.tree(0).nodes] == ["p", "a", "b", "c"]


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

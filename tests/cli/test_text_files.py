"""Plain text from files to a trained model, and folders as people have them."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

SMALL = ["--set", "model.dim=16", "--set", "model.num_heads=2", "--set", "model.ffn_dim=16", "--steps", "2"]


def documents(number):
    return "".join(
        f" \n = Title {part} of {number} = \n \n Many plain words stand in sentence {part} . \n Others follow it . \n \n"
        for part in range(60)
    )


@pytest.mark.parametrize("unit", ["document", "paragraph", "line"])
def test_text_trains(ramify, tmp_path, unit):
    (tmp_path / "wiki.txt").write_text(documents(1))
    data = tmp_path / "data"
    arguments = ("--format", "text", "--unit", unit, "--split", "0.6,0.4,0", "--out", data)
    status, out, err = ramify("data", "build", tmp_path / "wiki.txt", *arguments)
    assert (status, err) == (0, "")
    assert f"{ {'document': 60, 'paragraph': 120, 'line': 180}[unit] } texts" in out
    status, out, _ = ramify("data", "stats", data, "--json")
    assert json.loads(out)["structure"] == "texts"
    status, _, err = ramify("train", "bert", "--data", data, "--out", tmp_path / "run", *SMALL)
    assert status == 0, err
    status, out, err = ramify("evaluate", tmp_path / "run", "--data", data, "--split", "dev", "--json")
    assert status == 0, err
    assert json.loads(out)["count"] > 0


def test_splits_by_file(ramify, tmp_path):
    """Folders of the splits may hold files of the same names."""
    for split in ("train", "valid", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.txt").write_text(documents(split))
    inputs = [tmp_path / split for split in ("train", "valid", "test")]
    status, out, err = ramify(
        "data", "build", *inputs, "--format", "text", "--split-by", "file", "--out", tmp_path / "data", "--json"
    )
    assert status == 0, err
    assert {name: split["trees"] for name, split in json.loads(out)["splits"].items()} == {"train": 60, "dev": 60, "test": 60}


def test_files_left_out_of_folders_are_named(ramify, tmp_path):
    folder = tmp_path / "corpus"
    for name in ("posts.csv", "LICENSE", "README.md", ".DS_Store", "__MACOSX/._posts.csv", "notes.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("id,parent,tree,author,text\n1,,t,ann,tea?\n2,1,t,bob,yes\n")
    said = f"left out of {folder}: .DS_Store, LICENSE, README.md, __MACOSX/, notes.md\n"
    status, out, err = ramify("data", "build", folder, "--out", tmp_path / "data", "--json")
    assert (status, err.startswith(said), "format: table" in err) == (0, True, True)
    assert json.loads(out)["nodes"] == 2
    assert json.loads(out)["left_out"] == {str(folder): [".DS_Store", "LICENSE", "README.md", "__MACOSX/", "notes.md"]}
    # A file that is named is read.
    status, _, err = ramify("data", "build", folder / "LICENSE", "--format", "table", "--out", tmp_path / "named")
    assert (status, "left out" in err) == (0, False)


def test_snapshot_of_a_hub(ramify, tmp_path):
    """Data are links to blobs; the folder of the cache holds each file twice."""
    cache = tmp_path / "datasets--ann--tea"
    snapshot = cache / "snapshots" / "0a1b"
    for folder in (cache / "blobs", cache / "refs", snapshot / "data"):
        folder.mkdir(parents=True)
    (cache / "refs" / "main").write_text("0a1b")
    (snapshot / "README.md").write_text("---\nlicense: mit\n---\n")
    (snapshot / ".gitattributes").write_text("*.parquet filter=lfs\n")
    for number, split in enumerate(["train", "test"]):
        rows = {
            "id": ["1", "2"],
            "parent": [None, "1"],
            "tree": [f"t{number}"] * 2,
            "author": ["ann"] * 2,
            "text": ["tea?", "yes"],
        }
        pyarrow.parquet.write_table(pa.table(rows), cache / "blobs" / f"f00d{number}")
        (snapshot / "data" / f"{split}-00000-of-00001.parquet").symlink_to(f"../../../blobs/f00d{number}")
    hashes = []
    for folder in (snapshot, cache):
        status, out, err = ramify("data", "build", folder, "--out", tmp_path / f"of-{folder.name}", "--json")
        assert status == 0, err
        info = json.loads(out)
        assert (info["trees"], info["nodes"], info["skipped"]) == (2, 4, {})
        hashes.append(info["hash"])
    assert hashes[0] == hashes[1]
    (cache / "blobs" / "f00d1").unlink()
    status, _, err = ramify("data", "build", snapshot, "--out", tmp_path / "torn")
    assert status == 2
    assert "test-00000-of-00001.parquet is a link to ../../../blobs/f00d1, which does not exist" in err

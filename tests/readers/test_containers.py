"""Archives of any reader's files: they are read like the folder that they unpack to."""

import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from ramify.dataset import build
from ramify.errors import RamifyError
from ramify.readers import detect_format, open_inputs

TALK = [("Ada", "has anybody seen the oars?"), ("Ben", "Ada: they are behind the boat house"), ("Ada", "thanks, Ben")] * 4
IRC = "".join(f"[{10 + number}:05] <{who}> {text}\n" for number, (who, text) in enumerate(TALK))
USERS = [{"id": "U1", "name": "ada", "profile": {"display_name": "Ada"}}]
DAY = [{"type": "message", "user": "U1", "ts": "1704445200.000100", "text": "oars?"}]


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tarred(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            data = data.encode() if isinstance(data, str) else data
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def built(tmp_path, path, format=None):
    told = []
    store = build([path], format, tmp_path / "store", tell=told.append, overwrite=True)
    return store, told


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", ["boats.log", "export/boats.log", "export\\deep\\boats.log", "./boats.log"])
def test_a_log_in_an_archive(tmp_path, pack, name):
    path = pack(tmp_path / "Boats.archive", {name: IRC})
    store, _ = built(tmp_path, path)
    (tree,) = store.trees()
    assert (store.info["format"], tree.id) == ("irc", "boats")
    assert [(node.author, node.text) for node in tree.nodes] == TALK
    assert store.info["inputs"] == [{"name": str(path), "bytes": path.stat().st_size}]


def test_media_beside_a_log_are_left_out_and_named(tmp_path):
    files = {"boats.log": IRC, "IMG-0001.jpg": b"\xff\xd8\xff", "__MACOSX/._boats.log": b"\x00"}
    store, told = built(tmp_path, zipped(tmp_path / "Boats.zip", files))
    assert told[0] == f"left out of {tmp_path / 'Boats.zip'}: IMG-0001.jpg"
    assert store.info["left_out"] == {str(tmp_path / "Boats.zip"): ["IMG-0001.jpg"]}
    assert store.info["nodes"] == len(TALK)


def test_backslashes_in_a_slack_export(tmp_path):
    files = {"users.json": json.dumps(USERS), "channels.json": "[]", "rowing\\2024-01-05.json": json.dumps(DAY)}
    for format in (None, "slack"):
        store, _ = built(tmp_path, zipped(tmp_path / "e.zip", files), format)
        (tree,) = store.trees()
        assert (tree.id, tree.nodes[0].author, tree.nodes[0].text) == ("rowing", "Ada", "oars?")


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_table_and_a_dump_in_archives(tmp_path, pack):
    table = pack(tmp_path / "t", {"posts.csv": "id,parent,tree,text\n1,,t,a\n2,1,t,b\n"})
    assert built(tmp_path, table)[0].info["format"] == "table"
    dump = {"RC_2020-01.jsonl": json.dumps({"id": "c", "link_id": "t3_s", "parent_id": "t3_s", "body": "x"})}
    assert built(tmp_path, pack(tmp_path / "d", dump))[0].info["format"] == "pushshift"


@pytest.mark.parametrize("module", [zipfile, tarfile])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_last_file_of_a_name_counts(tmp_path, module):
    path = tmp_path / "twice"
    if module is zipfile:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.log", "nothing of a log")
            archive.writestr("a.log", IRC)
    else:
        with tarfile.open(path, "w") as archive:
            for data in (b"nothing of a log", IRC.encode()):
                member = tarfile.TarInfo("a.log")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    store, _ = built(tmp_path, path)
    assert store.info["nodes"] == len(TALK)
    assert store.info["skipped"] == {"doubled_file": 1}
    assert store.info["examples"]["doubled_file"] == [f"{path}/a.log: only the last file of this name is read"]


def test_messages_name_the_archive(tmp_path):
    path = zipped(tmp_path / "t.zip", {"posts.csv": "id,parent,tree,text,time\n1,,t,a,noon\n"})
    store, _ = built(tmp_path, path)
    assert store.info["examples"]["bad_time"] == [f"{path}/posts.csv, post 1: 'noon'"]
    path = zipped(tmp_path / "u.zip", {"notes.csv": "what,where\n1,2\n"})
    with pytest.raises(RamifyError, match=rf"cannot detect the format of {path}/notes\.csv") as error:
        built(tmp_path, path)
    assert tempfile.gettempdir() + "/ramify-" not in str(error.value)


def test_unpacked_files_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    records = open_inputs([zipped(tmp_path / "b.zip", {"b.log": IRC})]).records()
    assert len(list(tmp_path.glob("ramify-*"))) == 1
    assert len(list(records)) == 1
    del records
    assert not list(tmp_path.glob("ramify-*"))


def test_an_archive_in_a_folder_is_never_text(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_text(IRC)
    zipped(folder / "b.zip", {"b.log": IRC})
    with pytest.raises(RamifyError, match=r"b\.zip: a ZIP archive in a folder\. Name it as an input of its own"):
        detect_format([folder], verbose=True)
    with pytest.raises(RamifyError, match=r"b\.zip is a ZIP archive, whose bytes are not text"):
        list(open_inputs([folder], "pushshift").records())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"../x.log": IRC}, r"holds '\.\./x\.log', a path that leaves the archive"),
        ({"/x.log": IRC}, "a path that leaves the archive"),
        ({"c:\\x.log": IRC}, "a path that leaves the archive"),
        ({"a.jpg": b"\xff"}, r"holds only pictures, recordings and the like \(1 file\)"),
    ],
)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_archives_that_are_refused(tmp_path, pack, files, message):
    with pytest.raises(RamifyError, match=message):
        built(tmp_path, pack(tmp_path / "b", files))
    assert not (tmp_path.parent / "x.log").exists()


def test_bombs_and_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("ramify.readers.containers.FREE_BYTES", 1 << 10)
    path = tarred(tmp_path / "bomb", {"x.log": b"\n" * (8 << 20)})
    with pytest.raises(RamifyError, match="more than 200 times its size"):
        built(tmp_path, path)
    whole = tarred(tmp_path / "x.tar", {"x.log": IRC * 50}, "w").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RamifyError, match=r"x\.tar cannot be unpacked: x\.log: unexpected end of data"):
        built(tmp_path, tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"7z\xbc\xaf\x27\x1c\x00\x04", r"a 7z archive.*7z x FILE"), (b"Rar!\x1a\x07\x01\x00", r"a RAR archive.*unrar x FILE")],
)
def test_archives_that_are_not_read_are_named(tmp_path, data, message):
    path = tmp_path / "posts"
    path.write_bytes(data + bytes(300))
    with pytest.raises(RamifyError, match=message):
        built(tmp_path, path)


def test_names_of_archives():
    from ramify.readers.containers import kind_of

    assert kind_of(Path(__file__)) == ""

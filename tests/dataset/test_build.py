import errno
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from filelock import FileLock

from ramify import Node, RamifyError, Tree
from ramify.dataset import Store, build


def posts(count, seed=0):
    """Comments of some threads in random order, in the format of Reddit dumps."""
    dice = random.Random(seed)
    threads = [f"thread{number}" for number in range(count // 10)]
    lines, earlier = [], {thread: [] for thread in threads}
    for thread in threads:
        lines.append({"id": thread, "title": f"About {thread}", "selftext": "", "author": "op", "created_utc": 1})
    for number in range(count):
        thread = dice.choice(threads)
        parent = f"t1_{dice.choice(earlier[thread])}" if earlier[thread] and dice.random() < 0.6 else f"t3_{thread}"
        earlier[thread].append(f"c{number}")
        body = dice.choice(["[deleted]", "some words", "many more words " * dice.randrange(40)])
        author = dice.choice(["ann", "bob", "helpful_bot", "AutoModerator", "[deleted]"])
        lines.append(
            {
                "id": f"c{number}",
                "link_id": f"t3_{thread}",
                "parent_id": parent,
                "author": author,
                "created_utc": number,
                "body": body,
            }
        )
    dice.shuffle(lines)
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dump") / "RC.json"
    path.write_text(posts(4_000))
    return path


def test_result_does_not_depend_on_the_memory(dump, tmp_path):
    """The posts stay in memory, go to 64 files, or go to files that are scattered again."""
    stores = [build([dump], "pushshift", tmp_path / str(memory), memory=memory) for memory in (64 << 20, 1 << 20, 20_000)]
    one, several, many = (len(store.info["files"]) for store in stores)
    assert 1 == one < several < many
    assert len({store.hash for store in stores}) == 1
    assert all(list(store.trees()) == list(stores[0].trees()) for store in stores[1:])
    assert not any((store.path / "scratch").exists() for store in stores)


def peak_mib(dump, out):
    """The peak memory of a separate process that keeps at most 32 MB of posts in memory."""
    program = "import sys; from ramify.dataset import build; build([sys.argv[1]], 'pushshift', sys.argv[2], memory=32 << 20)"
    process = subprocess.Popen([sys.executable, "-c", program, str(dump), str(out)])
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_maxrss / 1024


def test_memory_does_not_grow_with_the_dump(tmp_path):
    """Both dumps exceed the bound, one is 100 MB larger than the other, and their threads are scattered."""
    filler = "y" * 700
    peaks = []
    for comments in (50_000, 150_000):
        order = random.Random(0).sample(range(comments), comments)
        file = tmp_path / f"{comments}.json"
        with open(file, "w", encoding="utf-8") as lines:
            for number in order:
                thread = number // 100
                parent = f"t1_c{number - 1 - number % 7}" if number % 100 > 7 else f"t3_s{thread}"
                post = {"id": f"c{number}", "parent_id": parent, "link_id": f"t3_s{thread}", "created_utc": number}
                lines.write(json.dumps(post | {"body": f"{number} " * 40, "filler": filler}) + "\n")
        assert file.stat().st_size > (32 << 20) * (1.5 if comments == 50_000 else 4.5)
        peaks.append(peak_mib(file, tmp_path / f"store{comments}"))
        assert Store.open(tmp_path / f"store{comments}").info["nodes"] == comments
        file.unlink()
    assert peaks[1] < peaks[0] + 32


def test_hash_depends_on_the_content(dump, tmp_path):
    first = build([dump], "pushshift", tmp_path / "a")
    assert build([dump], "pushshift", tmp_path / "b", split=(0.5, 0.5, 0)).hash == first.hash
    assert build([dump], "pushshift", tmp_path / "c", anonymise=True).hash != first.hash
    changed = tmp_path / "changed.json"
    changed.write_text(dump.read_text().replace("some words", "same words", 1))
    assert build([changed], "pushshift", tmp_path / "d").hash != first.hash


def test_inputs_are_counted(dump, tmp_path):
    events = []
    store = build([dump], "pushshift", tmp_path / "store", progress=lambda *news: events.append(news))
    info = store.info
    assert info["read"] == 4_400 == info["nodes"] + sum(info["skipped"].values())
    assert info["nodes"] == store.num_nodes == sum(split["nodes"] for split in info["splits"].values())
    assert info["trees"] == store.num_trees == 400
    assert info["comments"] == store.num_nodes - 400
    assert info["inputs"] == [{"name": str(dump), "bytes": dump.stat().st_size}]
    assert info["options"]["policy"]["orphan"] == "root"
    assert events[0][0] == "read"
    assert events[-1] == ("write", store.num_nodes, 4_400, 4_400)


def test_splits_depend_only_on_the_tree(dump, tmp_path):
    def places(store):
        return {name: set(store.tree_ids(store.split(name))) for name in ("train", "dev", "test")}

    whole = places(build([dump], "pushshift", tmp_path / "whole"))
    assert 0.8 < len(whole["train"]) / 400 < 0.97
    some = tmp_path / "some.json"
    some.write_text("".join(dump.read_text().splitlines(keepends=True)[:1_000]))
    part = places(build([some], "pushshift", tmp_path / "part"))
    assert all(part[name] <= whole[name] for name in part)
    assert places(build([dump], "pushshift", tmp_path / "none", split=(1, 0, 0)))["train"] == set().union(*whole.values())


def test_whole_trees(tmp_path):
    trees = [
        Tree((Node("one", id="1"), Node("two", parents=(0,), id="2")), id="a"),
        Tree((Node("unnamed"),)),
        Tree((Node("again", id="1"),), id="a"),
        Tree(()),
    ]
    path = tmp_path / "trees.jsonl"
    path.write_text("".join(tree.to_json() + "\n" for tree in trees))
    for memory in (64 << 20, 100):
        store = build([path], "jsonl", tmp_path / "store", memory=memory, overwrite=True)
        assert {tree.id: [node.text for node in tree.nodes] for tree in store.trees()} == {
            "a": ["one", "two"],
            "1": ["unnamed"],
        }
        assert store.info["skipped"] == {"duplicate_tree": 1}
        assert store.info["kept"] == {"empty_tree": 1}
        assert store.info["read"] == 4


def test_old_store_stays_if_it_cannot_be_replaced(dump, tmp_path, monkeypatch):
    before = build([dump], "pushshift", tmp_path / "out").hash
    replace = os.replace

    def once(source, target):
        if ".partial-" in source.name:
            raise OSError(errno.EIO, "Input/output error")
        return replace(source, target)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(OSError, match="Input/output"):
        build([dump], "pushshift", tmp_path / "out", overwrite=True, min_nodes=2)
    assert Store.open(tmp_path / "out").hash == before
    assert not list(tmp_path.glob("*.old-*"))


@pytest.mark.parametrize("name", ["file", "folder", "store"])
def test_existing_outputs(dump, tmp_path, name):
    out = tmp_path / "out"
    if name == "file":
        out.write_text("mine")
    elif name == "folder":
        out.mkdir()
        (out / "mine").touch()
    else:
        build([dump], "pushshift", out)
        with pytest.raises(RamifyError, match=r"already holds a data set. Replace it with --overwrite"):
            build([dump], "pushshift", out)
        assert build([dump], "pushshift", out, overwrite=True, min_nodes=2).num_trees <= 400
        assert sorted(tmp_path.iterdir()) == [out]
        return
    with pytest.raises(RamifyError, match="is not a Ramify data set, so it is not touched"):
        build([dump], "pushshift", out, overwrite=True)


def occupy(path, kind):
    """Create a file, link or folder at the path of a data set, as another process may."""
    if kind == "file":
        path.write_text("mine")
    elif kind == "link":
        path.with_name("elsewhere").mkdir()
        path.symlink_to("elsewhere")
    else:
        path.mkdir()
        if kind == "folder":
            (path / "thesis.txt").write_text("mine")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["folder", "empty", "file", "link"])
def test_output_created_meanwhile_is_not_touched(dump, tmp_path, kind, overwrite):
    out = tmp_path / "out"

    def appear(*_):
        if not os.path.lexists(out):
            occupy(out, kind)

    with pytest.raises(RamifyError, match=r"out has changed .* It is not touched"):
        build([dump], "pushshift", out, overwrite=overwrite, progress=appear)
    assert {path.name for path in tmp_path.iterdir()} == {"out"} | ({"elsewhere"} if kind == "link" else set())
    if kind == "folder":
        assert (out / "thesis.txt").read_text() == "mine"
    elif kind == "file":
        assert out.read_text() == "mine"
    else:
        assert list(out.iterdir()) == []
    assert out.is_symlink() == (kind == "link")


@pytest.mark.parametrize("kind", ["folder", "empty", "file", "store"])
def test_replacement_of_an_old_store_is_not_touched(dump, tmp_path, kind):
    out, moved_away = tmp_path / "out", tmp_path / "kept"
    build([dump], "pushshift", out)

    def replace(*_):
        if not moved_away.exists():
            out.rename(moved_away)
            if kind == "store":
                build([dump], "pushshift", tmp_path / "other", min_nodes=2)
                (tmp_path / "other").rename(out)
            else:
                occupy(out, kind)

    with pytest.raises(RamifyError, match=r"out has changed .* It is not touched"):
        build([dump], "pushshift", out, overwrite=True, progress=replace)
    assert Store.open(moved_away).num_trees == 400
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "out"}


def test_old_store_may_be_removed_meanwhile(dump, tmp_path):
    out, moved_away = tmp_path / "out", tmp_path / "kept"
    build([dump], "pushshift", out)
    build(
        [dump], "pushshift", out, overwrite=True, min_nodes=2, progress=lambda *_: moved_away.exists() or out.rename(moved_away)
    )
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "out"}


@pytest.mark.parametrize("empty", [True, False])
def test_files_added_meanwhile_stay(dump, tmp_path, empty):
    """The folder is empty, or a store that the build replaces."""
    out = tmp_path / "out"
    if empty:
        out.mkdir()
    before = None if empty else build([dump], "pushshift", out).hash
    with pytest.raises(RamifyError, match=r"thesis\.txt.*not touched" if not empty else "it is not touched"):
        build(
            [dump], "pushshift", out, overwrite=True, min_nodes=2, progress=lambda *_: (out / "thesis.txt").write_text("mine")
        )
    assert (out / "thesis.txt").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]
    if not empty:
        assert Store.open(out).hash == before
        with pytest.raises(RamifyError, match=r"out holds thesis\.txt, which is not part of a data set, so it is not touched"):
            build([dump], "pushshift", out, overwrite=True)
        (out / "thesis.txt").unlink()
        # A new build discards existing token ids.
        (out / "tokens-0-0").mkdir()
        assert build([dump], "pushshift", out, overwrite=True, min_nodes=2).num_trees <= 400


def test_new_place_of_the_old_store_is_named(dump, tmp_path, monkeypatch):
    """The old store is kept under another name if it cannot be renamed back."""
    out = tmp_path / "out"
    before = build([dump], "pushshift", out).hash
    replace = os.replace

    def taken(source, target):
        if ".partial-" in source.name:
            occupy(out, "folder")
        return replace(source, target)

    monkeypatch.setattr(os, "replace", taken)
    with pytest.raises(RamifyError, match=r"out has changed .* The previous content is now at .*out\.old-"):
        build([dump], "pushshift", out, overwrite=True, min_nodes=2)
    (old,) = tmp_path.glob("out.old-*")
    assert Store.open(old).hash == before
    assert (out / "thesis.txt").read_text() == "mine"


BUILD = [sys.executable, "-c", "from ramify.cli import main; main()", "data", "build", "--format", "pushshift"]
HELD_UP = """
import sys, time
from pathlib import Path
from ramify.dataset import build
def wait(*_):
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.01)
build([sys.argv[1]], "pushshift", "out", progress=wait)
"""


def waiting_build(dump, folder):
    """A process that builds `out` and waits for a file `go`."""
    process = subprocess.Popen([sys.executable, "-c", HELD_UP, str(dump)], cwd=folder)
    while not (folder / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_second_concurrent_build_is_refused(dump, tmp_path):
    (tmp_path / "same").symlink_to(".")
    first = waiting_build(dump, tmp_path)
    for name in ("out", "same/out"):
        second = subprocess.run(
            [*BUILD, str(dump), "--out", name, "--overwrite"], cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
        assert second.returncode == 2
        assert "out is being written by another process" in second.stderr
        assert "Traceback" not in second.stderr
    with pytest.raises(RamifyError, match="is being written by another process"):
        build([dump], "pushshift", tmp_path / "out")
    build([dump], "pushshift", tmp_path / "other")
    (tmp_path / "go").touch()
    assert first.wait(100) == 0
    assert Store.open(tmp_path / "out").num_trees == 400
    assert {path.name for path in tmp_path.iterdir()} == {"begun", "go", "other", "out", "same"}


def test_one_of_several_concurrent_builds_succeeds(tmp_path_factory, tmp_path):
    large = tmp_path_factory.mktemp("large") / "RC"
    large.write_text(posts(20_000))
    builds = [
        subprocess.Popen(
            [*BUILD, str(large), "--out", "out"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(3)
    ]
    assert sorted(process.wait(100) for process in builds) == [0, 2, 2]
    assert Store.open(tmp_path / "out").num_trees == 2_000
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_lock_of_a_killed_build_blocks_no_other(dump, tmp_path):
    process = waiting_build(dump, tmp_path)
    process.kill()
    process.wait()
    assert (tmp_path / ".out.lock").exists()
    build([dump], "pushshift", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"begun", "out"}


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {}, "is empty"),
        (
            b"nothing\nnowhere\n",
            {},
            r"no tree found in .*: 2 records read as 'pushshift', left out: bad_json 2. For example .*line 1",
        ),
        (b"{}", {"split": (0.5, 0.5)}, "three shares .* that sum to 1"),
        (b"{}", {"split": (0.5, 0.6, 0.1)}, "three shares .* that sum to 1"),
        (b"{}", {"options": {"columns": {}}}, "the format 'pushshift' has no option 'columns'; it has no options"),
        (b"{}", {"clean": ["dirt"]}, "no cleaning 'dirt'. The cleanings are quotes, links, space"),
    ],
)
def test_errors_leave_nothing_behind(tmp_path, content, options, message):
    path = tmp_path / "input"
    path.write_bytes(content)
    with pytest.raises(RamifyError, match=message):
        build([path], "pushshift", tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == [path]


def test_empty_file_among_others_is_counted(dump, tmp_path):
    silent = tmp_path / "silent"
    silent.touch()
    both, alone = (build(inputs, None, tmp_path / name) for inputs, name in (([silent, dump], "both"), ([dump], "alone")))
    assert both.info["skipped"] == {**alone.info["skipped"], "empty_file": 1}
    assert both.info["nodes"] == alone.info["nodes"] > 0


def test_file_name_with_invalid_bytes(dump, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.symlink(dump, path)
    assert build([path], "pushshift", tmp_path / "out").info["inputs"][0]["name"] == f"{tmp_path}/\ufffd"


def test_missing_inputs_are_refused(tmp_path):
    for inputs, message in (([], "there is no input"), ([tmp_path / "x"], "no file or folder"), ([tmp_path], "holds no files")):
        with pytest.raises(RamifyError, match=message):
            build(inputs, "jsonl", tmp_path / "out")


def test_unwritable_outputs_are_refused(dump, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RamifyError, match=r"cannot write to .*file.*: Not a directory. Choose another --out"):
        build([dump], "pushshift", tmp_path / "file" / "out")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(RamifyError, match="Permission denied"):
            build([dump], "pushshift", tmp_path / "closed" / "out")


@pytest.mark.parametrize(("limit", "memory"), [(100, "64MB"), (4, "1MB")])
def test_full_disk(dump, tmp_path, limit, memory):
    """Either the store or the scattered posts exceed the limit."""
    ramify = f"{sys.executable} -c 'from ramify.cli import main; main()'"
    limited = f"ulimit -f {limit}; {ramify} data build {dump} --format pushshift --out out --memory {memory}"
    done = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "out: the disk is full, or the file-size limit reached." in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_killed_build(dump, tmp_path):
    """A terminated build removes its files. The next build removes those of a killed build, but not those of a running one."""
    (tmp_path / "large").write_text(posts(30_000))
    for number, left in ((signal.SIGTERM, 0), (signal.SIGKILL, 1)):
        process = subprocess.Popen([*BUILD, "large", "--out", "out"], cwd=tmp_path, stderr=subprocess.DEVNULL)
        while len(list(tmp_path.glob(".out.partial-*"))) < 2:
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(number)
        assert process.wait() != 0
        assert len(list(tmp_path.glob(".out.partial-*"))) == 2 * left
    (lock,) = tmp_path.glob(".out.partial-*.lock")
    with FileLock(lock):
        build([dump], "pushshift", tmp_path / "out")
        assert lock.with_suffix("").exists()
    build([dump], "pushshift", tmp_path / "out", overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"large", "out"}


def test_store_among_its_inputs(tmp_path):
    """The store in progress is not read as input; an existing store would be."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "RC.jsonl").write_text(posts(50))
    store = build([folder], "pushshift", folder / "store")
    assert store.hash == build([folder / "RC.jsonl"], "pushshift", tmp_path / "apart").hash
    with pytest.raises(RamifyError, match=r"store is inside the input folder .*in and would be read as input"):
        build([folder], "pushshift", folder / "store", overwrite=True)


def test_filters_work_together(dump, tmp_path):
    store = build(
        [dump], "pushshift", tmp_path / "store",
        drop_bots=True, anonymise=True, salt="s", min_nodes=3, clean=["space"], near_duplicates="exact",
    )  # fmt: skip
    info = store.info
    assert info["read"] == info["nodes"] + sum(info["skipped"].values())
    assert info["nodes"] + info["placeholders"] == store.num_nodes
    assert {"bot", "small_tree", "deleted", "near_duplicate"} <= set(info["skipped"])
    authors = set(store.column("author", range(store.num_nodes)).to_pylist())
    assert len(authors - {None}) == 3
    assert all(author is None or author.startswith("user_") for author in authors)


@pytest.mark.data
def test_reddit(data_dir, tmp_path):
    store = build([data_dir("reddit-college")], "pushshift", tmp_path / "store")
    assert (store.num_trees, store.info["read"]) == (15_897, 272_488 + 15_897)
    assert store.info["nodes"] == store.num_nodes == store.info["read"] - sum(store.info["skipped"].values())
    assert 0.015 < store.info["skipped"]["deleted"] / 272_488 < 0.02


@pytest.mark.data
def test_dumps_with_gaps(data_dir, tmp_path):
    store = build([data_dir("pushshift-2006")], "pushshift", tmp_path / "store")
    assert store.info["kept"]["orphan"] == 246
    assert isinstance(Store.open(tmp_path / "store").tree(0), Tree)

"""Atomic writing of files and folders."""

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from ramify.errors import RamifyError
from ramify.files import appending, new_folder, replacing, scratch_folder, write_text


@pytest.fixture(params=[0o022, 0o027])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_permissions_equal_those_of_a_new_file(tmp_path, umask):
    """The permissions hold even if the writer creates the file again for its owner alone."""
    with replacing(tmp_path / "secret") as scratch:
        scratch.unlink()
        os.close(os.open(scratch, os.O_CREAT, 0o600))
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o666 & ~umask


def test_old_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "text"
    write_text(path, "old")
    with contextlib.suppress(KeyboardInterrupt), replacing(path) as scratch:
        scratch.write_text("half of the n")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    (tmp_path / ".partial-text").write_text("left by a killed process")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["no/text", "file/text"])
def test_system_errors_name_the_path(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(RamifyError, match=rf"cannot write {tmp_path / place}: (No such file|Not a directory)"):
        write_text(tmp_path / place, "")


def test_target_of_a_link_is_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_dangling_link_is_named_as_given(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "real")
    with pytest.raises(RamifyError, match=rf"cannot write {tmp_path / 'link'}: No such file"):
        write_text(tmp_path / "link", "new")


def test_read_errors_on_the_same_name_are_not_write_errors(tmp_path):
    with pytest.raises(RamifyError, match=rf"cannot open {tmp_path / 'in' / 'text'}"), replacing(tmp_path / "text"):
        (tmp_path / "in" / "text").read_bytes()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link", "folder/1", "/tmp/../dev/fd/1"])
@pytest.mark.parametrize("way", ["write_text(path, 'whole')", "with appending(path) as file: file.write('whole')"])
def test_standard_output_is_appended_to(tmp_path, name, way):
    (tmp_path / "link").symlink_to("/dev/fd/1")
    (tmp_path / "folder").symlink_to("/dev/fd")
    log = tmp_path / "log"
    log.write_text("kept ")
    program = f"from pathlib import Path\nfrom ramify.files import *\npath = Path({name!r})\n{way}"
    with open(log, "a") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True, cwd=tmp_path)
    assert log.read_text() == "kept whole"


def test_later_output_of_the_shell_follows(tmp_path):
    program = "from pathlib import Path; from ramify.files import write_text; write_text(Path('/dev/stdout'), 'whole ')"
    command = f'(echo one; {sys.executable} -c "{program}"; echo two) > log'
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "log").read_text() == "one\nwhole two\n"


def test_inherited_file_is_not_replaced(tmp_path):
    log = tmp_path / "log"
    log.write_text("kept ")
    with open(log, "a") as out:
        write_text(Path(f"/dev/fd/{out.fileno()}"), "whole")
    assert log.read_text() == "kept whole"


def test_read_errors_while_writing_are_not_write_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="input"), appending(tmp_path / "out"):
        (tmp_path / "input").read_text()


@pytest.mark.parametrize("name", ["x" * 300, "loop", "/dev/full"])
@pytest.mark.parametrize("opens", [replacing, appending])
def test_unwritable_paths_are_named(tmp_path, name, opens):
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name
    with pytest.raises(RamifyError, match=f"cannot write {path}: "), opens(path) as place:
        place.write_text("said") if opens is replacing else place.write("said")


def test_pipes_are_written_atomically(tmp_path):
    """Writing to a pipe is atomic, and does not replace the pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "said")
    with contextlib.suppress(KeyboardInterrupt), replacing(pipe) as scratch:
        scratch.write_text("half")
        raise KeyboardInterrupt
    with appending(pipe) as file:
        file.write(" more")
    assert os.read(reader, 100) == b"said more"
    os.close(reader)
    assert pipe.is_fifo()


def test_scratch_folder_is_renamed_or_removed(tmp_path):
    with scratch_folder(tmp_path / "deep" / "out") as folder:
        (folder / "text").write_text("whole")
        folder.rename(tmp_path / "deep" / "out")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    # The exception is raised unchanged.
    for stop in (NotImplementedError, KeyboardInterrupt, OSError):
        with pytest.raises(stop, match="own"), scratch_folder(tmp_path / "deep" / "out"):
            raise stop("own")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_file_system_without_locks(tmp_path, monkeypatch):
    def acquire(_):
        raise NotImplementedError("no flock here")

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(OSError, match="the file system does not support locks"), scratch_folder(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_removed_lock_file_is_not_held(tmp_path, monkeypatch):
    """The next process creates a new lock file, and locks that."""
    flock = fcntl.flock

    def late(descriptor, operation):
        # The previous process finishes between opening and locking.
        (tmp_path / ".out.lock").unlink(missing_ok=True)
        flock(descriptor, operation)

    with (
        monkeypatch.context() as patch,
        pytest.raises(RamifyError, match="out is being written by another process"),
        patch.setattr(fcntl, "flock", late) or new_folder(tmp_path / "out", lambda _: ""),
    ):
        pytest.fail("The lock has no name: another process may hold the one that has.")
    with new_folder(tmp_path / "out", lambda _: ""):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_new_folder_replaces_the_old(tmp_path):
    out = tmp_path / "deep" / "out"

    def refusal(folder):
        return "is kept" if (folder / "kept").exists() else ""

    for number in range(3):
        with new_folder(out, refusal) as folder:
            (folder / f"{number}").touch()
        assert [path.name for path in out.iterdir()] == [f"{number}"]
    (out / "kept").touch()
    with pytest.raises(RamifyError, match=r"deep/out is kept"), new_folder(out, refusal):
        pytest.fail("It was to be refused before.")
    assert [path.name for path in out.parent.iterdir()] == ["out"]

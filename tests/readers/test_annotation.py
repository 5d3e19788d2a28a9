"""Files of reply links: both official forms are read and written."""

import gzip

import pytest

from ramify.errors import RamifyError
from ramify.readers.annotation import log_name, read_links, write_links


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("2004-11-15_03.annotation.txt", "2004-11-15_03"),
        ("dev/2004-11-15_03.ascii.txt", "2004-11-15_03"),
        ("C:\\logs\\one.tok.txt", "one"),
        ("a.raw.txt", "a"),
        ("a.annotation.txt.gz", "a"),
        ("2004-12-25.train-c.annotation.txt", "2004-12-25.train-c"),
        ("predicted.txt", "predicted.txt"),
    ],
)
def test_log_name(file, name):
    assert log_name(file) == name


def test_read_both_forms(tmp_path):
    folder = tmp_path / "gold"
    folder.mkdir()
    (folder / "b.annotation.txt").write_text("1002 1003 -\n1003 1003\r\n\n")
    (folder / "a.annotation.txt").write_bytes(b"\xef\xbb\xbf5 7 -")
    (folder / "a.ascii.txt").write_text("no link\n")
    predicted = tmp_path / "all.txt"
    predicted.write_text("dev/b.annotation.txt:1 2 -\nlog: with: colons:3 4 -\nb:2 3\n5 6 -\n")
    found = read_links([folder, predicted])
    assert {name: links.tolist() for name, links in found.items()} == {
        "a": [[5, 7]],
        "b": [[1002, 1003], [1003, 1003], [1, 2], [2, 3]],
        "log: with: colons": [[3, 4]],
        "all.txt": [[5, 6]],
    }


@pytest.mark.parametrize("line", ["1 x -", "1 -", "1 2 3 -", "a:b", "-1 4 -", "1 2 - more", "9" * 30 + " 3 -"])
def test_invalid_link_is_refused(tmp_path, line):
    path = tmp_path / "bad.txt"
    path.write_text(f"1 2 -\n{line}\n")
    with pytest.raises(RamifyError, match=r"bad\.txt, line 2: expected 'PARENT CHILD -'"):
        read_links([path])


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(RamifyError, match=r"holds no file \*\.annotation\.txt"):
        read_links([tmp_path])
    with pytest.raises(RamifyError, match="there is no file"):
        read_links([tmp_path / "absent"])
    (tmp_path / "empty").touch()
    with pytest.raises(RamifyError, match="is empty"):
        read_links([tmp_path / "empty"])


def test_two_files_of_one_name(tmp_path):
    for folder in ("p", "q"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.annotation.txt").write_text("1 2 -\n")
    with pytest.raises(RamifyError, match=r"p.s\.annotation\.txt and .*q.s\.annotation\.txt both hold links of 's'"):
        read_links([tmp_path / "p", tmp_path / "q"])
    (tmp_path / "q" / "s.annotation.txt").write_text("t:1 2 -\n")
    assert set(read_links([tmp_path / "p", tmp_path / "q"])) == {"s", "t"}


def test_log_without_links_and_a_packed_one(tmp_path):
    (tmp_path / "a.annotation.txt").write_text("\n\n")
    (tmp_path / "b.annotation.txt.gz").write_bytes(gzip.compress(b"1 2 -\n"))
    assert {name: links.tolist() for name, links in read_links([tmp_path]).items()} == {"a": [], "b": [[1, 2]]}


def test_written_annotations_are_read_back(tmp_path):
    links = {"one": [(1, 1), (1, 2)], "other": [(0, 5)]}
    write_links(tmp_path / "all.txt", links)
    assert (tmp_path / "all.txt").read_text() == "one:1 1 -\none:1 2 -\nother:0 5 -\n"
    found = read_links([tmp_path / "all.txt"])
    assert {name: [tuple(link) for link in each.tolist()] for name, each in found.items()} == links
    write_links(tmp_path / "one.annotation.txt", {"one": links["one"]}, named=False)
    assert read_links([tmp_path / "one.annotation.txt"])["one"].tolist() == [[1, 1], [1, 2]]
    with pytest.raises(RamifyError, match="would be read back as 'c'"):
        write_links(tmp_path / "two.txt", {"x/c": [(1, 1)]})
    with pytest.raises(RamifyError, match="need the logs' names"):
        write_links(tmp_path / "two.txt", links, named=False)

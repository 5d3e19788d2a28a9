import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify import dataset, readers
from ramify.readers import base, mail
from ramify.readers.base import ReadCounts


def letter(name, text, *references, sender="Una Vik <una@example.net>", subject="Re: kiln", **more):
    headers = {
        "From": sender,
        "Date": "Mon, 04 Mar 2024 08:00:00 +0100",
        "Subject": subject,
        "Message-ID": f"<{name}>",
        "In-Reply-To": f"<{references[-1]}>" if references else None,
        "References": " ".join(f"<{each}>" for each in references) or None,
    } | {header.replace("_", "-"): value for header, value in more.items()}
    return "".join(f"{header}: {value}\n" for header, value in headers.items() if value is not None) + f"\n{text}\n"


def mbox(*letters):
    return "".join(f"From una@example.net Mon Mar  4 08:00:00 2024\n{each}\n" for each in letters)


def read(path):
    counts = ReadCounts()
    rows = [row for batch in mail.read([path], counts) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


def read_text(tmp_path, text, name="list.mbox"):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
    return read(path)


def edges(rows):
    return [(row["tree"], row["id"], row["parent"]) for row in rows]


def test_threads(tmp_path):
    text = mbox(
        letter("a", "Which clay?", subject="=?utf-8?q?T=C3=B6pfern?= and kilns", sender="=?utf-8?q?Zo=C3=AB?= <z@example.net>"),
        letter("b", "Red.", "a"),
        letter("c", "Why red?\n>From here on it is white\n\nFrom here on, not.", "a", "b"),
        letter("d", "Another thread.", subject="glaze"),
    )
    rows, counts = read_text(tmp_path, text)
    assert edges(rows) == [("a", "a", None), ("a", "b", "a"), ("a", "c", "b"), ("d", "d", None)]
    assert rows[0]["text"] == "Töpfern and kilns\n\nWhich clay?"
    assert [row["author"] for row in rows] == ["Zoë", "Una Vik", "Una Vik", "Una Vik"]
    assert rows[2]["text"] == "Why red?\nFrom here on it is white\n\nFrom here on, not."
    assert rows[0]["time"] == 1709535600.0
    assert counts.skipped == {} == counts.kept
    assert readers.detect_format([tmp_path / "list.mbox"]) == "mail"
    (tmp_path / "2024-March.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert readers.detect_format([tmp_path / "2024-March.txt.gz"]) == "mail"
    assert len(read(tmp_path / "2024-March.txt.gz")[0]) == 4


def test_missing_mails(tmp_path):
    text = mbox(
        letter("b", "b", "root", "lost"),
        letter("c", "c", "root", "other"),
        letter("e", "e", "root", "lost", "b", "gone"),
        letter("s", "s", "s"),
        letter("x", "x", "y"),
        letter("y", "y", "x"),
    )
    rows, counts = read_text(tmp_path, text)
    assert edges(rows)[:4] == [("root", "b", "root"), ("root", "c", "root"), ("root", "e", "b"), ("s", "s", None)]
    assert counts.kept == {"missing_parent": 3, "own_parent": 1}
    assert len({row["tree"] for row in rows[4:]}) == 1
    store = dataset.build([tmp_path / "list.mbox"], None, tmp_path / "store")
    trees = {tree.id: [(node.id, node.parents) for node in tree.nodes] for tree in map(store.tree, range(store.num_trees))}
    assert trees["root"] == [("root", ()), ("b", (0,)), ("c", (0,)), ("e", (1,))]
    assert store.info["skipped"]["cycle"] == 2


def test_doubled_and_missing_ids(tmp_path):
    none = letter("x", "no id").replace("Message-ID: <x>\n", "")
    rows, counts = read_text(tmp_path, mbox(letter("a", "one"), letter("a", "one again"), none))
    assert [row["id"] for row in rows] == ["a", "a", "list.mbox/3"]
    assert counts.kept == {"no_id": 1}
    store = dataset.build([tmp_path / "list.mbox"], None, tmp_path / "store")
    assert store.info["skipped"] == {"duplicate_id": 1}


QUOTED = """On Monday, Wren
Ek wrote:

> Which
  > clay?

Red.

-----Original Message-----
From: Wren
Which clay?"""


def test_quotations_are_marked(tmp_path):
    rows, _ = read_text(tmp_path, mbox(letter("a", QUOTED, "z")))
    assert rows[0]["text"] == (
        "> On Monday, Wren\n> Ek wrote:\n\n> Which\n> clay?\n\n"
        "Red.\n\n> -----Original Message-----\n> From: Wren\n> Which clay?"
    )
    texts = [
        "Well:\nOn 4 Mar 2024 Wren\nEk\n<w@e.net> wrote:\n> x",
        "On 4 Mar I\n\nWren wrote:\n> x",
        "On it\nWren wrote:\n> x",
    ]
    rows, _ = read_text(tmp_path, mbox(*(letter(f"{number}", text) for number, text in enumerate(texts))))
    assert [row["text"].partition("\n\n")[2] for row in rows] == [
        "Well:\n> On 4 Mar 2024 Wren\n> Ek\n> <w@e.net> wrote:\n> x",
        "On 4 Mar I\n\n> Wren wrote:\n> x", "On it\n> Wren wrote:\n> x"
    ]  # fmt: skip
    html = "<p>Red.</p><blockquote type=cite>Which clay?<br>White?<blockquote>deeper</blockquote></blockquote>And you?"
    rows, _ = read_text(tmp_path, mbox(letter("a", html, "z", Content_Type="text/html; charset=utf-8")))
    assert rows[0]["text"] == "Red.\n\n> Which clay?\n> White?\n\n>> deeper\n\nAnd you?"
    flowed = "> Which \n> clay?\n a long \nline\n-- \nUna"
    rows, _ = read_text(tmp_path, mbox(letter("a", flowed, "z", Content_Type="text/plain; format=flowed")))
    assert rows[0]["text"] == "> Which clay?\na long line\n-- \nUna"


ALTERNATIVE = """--X
Content-Type: multipart/alternative; boundary=Y

--Y
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

T=F6pfern
--Y
Content-Type: text/html

<p>Other</p>
--Y--

--X
Content-Type: application/pdf
Content-Disposition: attachment; filename=a.pdf
Content-Transfer-Encoding: base64

AAAA
--X
Content-Type: text/html

<b>a &amp; b</b>
--X--
"""


def test_mime(tmp_path):
    mixed = letter("a", ALTERNATIVE, "z", Content_Type="multipart/mixed; boundary=X", MIME_Version="1.0")
    rows, counts = read_text(tmp_path, mbox(mixed))
    assert rows[0]["text"] == "Töpfern\n\na & b"
    assert counts.kept == {"missing_parent": 1, "attachment": 1}
    rows, counts = read_text(tmp_path, mbox(letter("a", "T\udcf6pfern", "z", Content_Type="text/plain; charset=nope")))
    assert rows[0]["text"] == "Töpfern"
    assert counts.kept == {"missing_parent": 1, "encoding": 1}
    locked = letter("a", "--X\n\n--X--", Content_Type="multipart/encrypted; boundary=X")
    rows, counts = read_text(tmp_path, mbox(locked))
    assert counts.kept == {"undecryptable": 1}


def test_faulty_mails_are_counted(tmp_path):
    deep = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(1200))
    faulty = [
        "Subject: date\nDate: no day\nFrom: Ann\nMessage-ID: <a>\n\ntext\n",
        f"From: ann\nMessage-ID: <deep>\n{deep}",
        "From: =?utf-8?b?!!!?= <a@b>\nSubject: =?nope?q?x?=\nMessage-ID: <c>\n\ntext\n",
    ]
    rows, counts = read_text(tmp_path, mbox(*faulty))
    assert counts.read == 3
    assert {"a", "c"} <= {row["id"] for row in rows}
    assert counts.kept["bad_time"] == 1
    assert counts.skipped["bad_row"] == 3 - len(rows)


def test_long_mails_are_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(mail, "MAX_MAIL_BYTES", 500)
    rows, counts = read_text(tmp_path, mbox(letter("a", "x\n" * 300), letter("b", "short")))
    assert [row["id"] for row in rows] == ["b"]
    assert counts.skipped == {"too_long": 1}
    monkeypatch.setattr(base, "MAX_HELD_BYTES", 1000)
    with pytest.raises(readers.RamifyError, match="Build from fewer files at a time"):
        read_text(tmp_path, mbox(*[letter(f"{n}", "x\n" * 10) for n in range(20)]))


def test_folders_of_mail(tmp_path):
    for name, text in (("cur/1.M1.host:2,S", letter("a", "Which clay?")), ("new/2.M2.host", letter("b", "Red.", "a"))):
        (tmp_path / "Mail" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "Mail" / name).write_text(text)
    (tmp_path / "Mail" / "dovecot.index").write_bytes(b"\x00\x01")
    rows, counts = read(tmp_path / "Mail")
    assert edges(rows) == [("a", "a", None), ("a", "b", "a")]
    assert counts.skipped == {"other_file": 1}
    assert readers.detect_format([tmp_path / "Mail"]) == "mail"
    for name in "ab":
        (tmp_path / "letters").mkdir(exist_ok=True)
        (tmp_path / "letters" / f"{name}.eml").write_text(letter(name, "x"))
    assert readers.detect_format([tmp_path / "letters"]) == "mail"
    assert len(read(tmp_path / "letters")[0]) == 2
    box = tmp_path / "Local Folders"
    (box / "Inbox.sbd").mkdir(parents=True)
    for name, text in (("Inbox", mbox(letter("a", "x"))), ("Inbox.sbd/kilns", mbox(letter("b", "y", "a"))), ("Trash", "")):
        (box / name).write_text(text)
        (box / f"{name}.msf").write_text("// <!-- <mdb:mork:z v='1.4'/> -->\n")
    assert readers.detect_format([box]) == "mail"
    rows, counts = read(box)
    assert edges(rows) == [("a", "a", None), ("a", "b", "a")]
    assert counts.skipped == {"other_file": 3, "empty_file": 1}
    (box / "notes").write_text("no mail\n")
    assert mail.refuses(box, b"").startswith("notes: neither a line `From ADDRESS DATE`")
    assert mail.refuses(tmp_path / "x", b"Title: a\nAuthor: b\n\ntext\n")
    assert mail.refuses(tmp_path / "x", b"From here on 10:00 2024\nwe go\n")


@given(data=st.binary(max_size=300), text=st.text(max_size=200))
def test_no_mail_is_fatal(data, text):
    with tempfile.TemporaryDirectory() as folder:
        for content in (data, text.encode("utf-8", "replace"), mbox(letter("a", text)).encode("utf-8", "replace")):
            path = Path(folder) / "x.mbox"
            path.write_bytes(b"From una@example.net Mon Mar  4 08:00:00 2024\n" + content)
            mail.refuses(path, path.read_bytes())
            read(path)

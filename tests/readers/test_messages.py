import pytest

from ramify.readers.base import ReadCounts
from ramify.readers.messages import Accounts, LogNames, Message, head_of, json_files, newest_first, nodes


def placed(*messages, **options):
    counts = ReadCounts(read=len(messages))
    found = list(nodes(messages, counts, **options))
    assert counts.read == len(found) + counts.skipped.total()
    return found, counts


def test_each_log_has_a_distinct_name():
    names = LogNames()
    given = [
        names.give(*each) for each in [("a", "x/a"), ("a", "x/a"), ("a", "x/a"), ("a", "x/a"), (None, ""), (None,), ("\ud800",)]
    ]
    assert given == ["a", "x/a", "x/a (2)", "x/a (3)", "log", "log (2)", "\ufffd"]


def test_accounts_never_share_a_name():
    accounts = Accounts("name")
    for account, *names in [
        ("1", "Ann", "ann"),
        ("2", "Ann", "ann"),
        ("3", "Ann", "annie"),
        ("1", "Other"),
        ("4", None, 5, " "),
    ]:
        accounts.add(account, *names)
    assert [accounts.name(account) for account in "12345"] == ["Ann", "ann", "annie", "4", "5"]
    by_id = Accounts("id")
    by_id.add("1", "Ann")
    assert by_id.name("1") == "1"


def test_records_of_one_message_in_any_order():
    original = Message("a", "old", "ann", 1.0)
    edit = Message("a", "new", "ann", 9.0, edited=9.0, event="edit")
    deletion = Message("a", "[deleted]", event="deletion")
    for records, text in (
        ((original, edit), "new"),
        ((original, deletion), "[deleted]"),
        ((original, edit, deletion), "[deleted]"),
    ):
        for each in (records, records[::-1]):
            (node,), counts = placed(*each)
            assert (node.text, node.author, node.time) == (text, "ann", 1.0)
            assert counts.skipped.total() == len(records) - 1
            assert "duplicate_id" not in counts.skipped


def test_latest_version_wins_and_keeps_older_fields():
    versions = [
        Message("a", "one", None, 1.0),
        Message("a", "three", "ann", 1.0, edited=7.0, answers="b"),
        Message("a", "two", "ann", 1.0, edited=5.0),
    ]
    found, counts = placed(Message("b", "root", "bob", 0.0), *versions)
    assert [(node.text, node.author, node.parents) for node in found] == [("root", "bob", None), ("three", "ann", (0,))]
    assert counts.skipped == {"duplicate_id": 2}


def test_half_surrogate_pairs_do_not_make_ids_equal():
    found, _ = placed(Message("\ud800", "a", answers=None), Message("\ud801", "b", answers="\ud800", label=["\ud800"]))
    assert [(node.id, node.label) for node in found] == [("\ufffd", None), ("\ufffd/2", ["\ufffd"])]
    assert found[1].parents == (0,)


@pytest.mark.parametrize("by_time", [True, False])
def test_times_may_be_missing(by_time):
    found, _ = placed(Message("a", time=5.0), Message("b"), Message("c", time=1.0), Message("d"), by_time=by_time)
    assert "".join(node.id for node in found) == ("cdab" if by_time else "abcd")


def test_starts_and_duplicate_ids():
    found, counts = placed(*(Message("a", f"{number}", starts=True) for number in range(2_000)))
    assert len({node.id for node in found}) == 2_000
    assert all(node.parents == () for node in found)
    assert counts.kept == {"shared_id": 1_999}


def test_files_of_an_export(tmp_path):
    for name in ("a.json", "b.jsonl.gz", "c.png", "d.json.txt", "json"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in json_files([tmp_path])] == ["a.json", "b.jsonl.gz", "d.json.txt"]
    assert json_files([tmp_path / "c.png"]) == [tmp_path / "c.png"]
    assert head_of(tmp_path / "a.json") == b""


@pytest.mark.parametrize(
    ("times", "expected"),
    [((3, 2, 2, 1), True), ((3, 2, 3, 1), False), ((2, 1), False), ((1, 1, 1), False)],
)
def test_newest_first(times, expected):
    assert newest_first([Message("a", time=float(time)) for time in times]) == expected

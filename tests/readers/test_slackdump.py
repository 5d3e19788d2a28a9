import gzip
import json

from ramify import readers
from ramify.readers import slackdump
from ramify.readers.base import ReadCounts


def message(ts, text, user="U1", **more):
    return {"type": "message", "ts": f"{1709539200 + ts}.000100", "text": text, "user": user, **more}


def thread(ts):
    return {"thread_ts": f"{1709539200 + ts}.000100"}


def read(path, **options):
    counts = ReadCounts()
    logs = {}
    for log in slackdump.logs([path], counts, **options):
        logs[log.name] = [(node.author, node.text, node.parents) for node in log.messages]
    return logs, counts


def test_a_dump(tmp_path):
    replies = [message(2, "Red, <@U1>.", "U2", **thread(1)), 7]
    dump = {
        "channel_id": "C1", "name": "clay",
        "messages": [message(1, "Which?", **thread(1), slackdump_thread_replies=replies), message(3, "late", **thread(9))],
    }  # fmt: skip
    path = tmp_path / "C1.json"
    path.write_text(json.dumps(dump))
    assert readers.detect_format([path]) == "slackdump"
    logs, counts = read(path)
    assert logs == {"clay": [("U1", "Which?", None), ("U2", "Red, @U1.", (0,)), ("U1", "late", None)]}
    assert counts.skipped == {"not_a_post": 1}
    assert counts.kept == {"missing_thread": 1}
    assert counts.read == 4


def test_chunks(tmp_path):
    files = {
        "users.json.gz": [{"t": 3, "ts": 1, "u": [{"id": "U1", "name": "wren", "profile": {"display_name": "Wren"}}]}],
        "channels.json.gz": [{"t": 4, "ts": 1, "ch": [{"id": "C1", "name": "clay", "topic": {"value": "kilns"}}]}],
        "workspace.json.gz": [{"t": 6, "ts": 1, "w": {"team": "x"}}],
        "C1.json.gz": [
            {"t": 0, "ts": 1, "id": "C1", "n": 1, "m": [message(1, "Which?", **thread(1))]},
            {"t": 1, "ts": 1, "id": "C1", "p": message(1, "Which?", **thread(1)), "m": [message(2, "Red.", "U2", **thread(1))]},
        ],
    }
    for name, chunks in files.items():
        (tmp_path / name).write_bytes(gzip.compress("\n".join(map(json.dumps, chunks)).encode()))
    assert readers.detect_format([tmp_path]) == "slackdump"
    logs, counts = read(tmp_path)
    assert logs == {"clay": [("Wren", "Which?", None), ("U2", "Red.", (0,))]}
    assert counts.skipped == {"duplicate_id": 1, "frame": 1}
    assert read(tmp_path, names="id")[0] == {"clay": [("U1", "Which?", None), ("U2", "Red.", (0,))]}


def test_other_json_is_refused(tmp_path):
    for value in ({"messages": [{"ts": "1"}]}, {"t": 1, "type": "x", "ts": 3}, [1], {"channel_id": "C1"}):
        assert slackdump.refuses(tmp_path / "x.json", json.dumps(value).encode())

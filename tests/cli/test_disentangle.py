"""`ramify disentangle`: a log in, conversations out."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

import numpy as np
import pytest

import ramify as ramify_package
from fixtures import built, channel, chat_store, several_parents
from ramify import hub
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.result import Disentangled
from ramify.disentangle.inference.streaming import LiveChannel
from ramify.readers import jsonl, read_logs
from ramify.readers.annotation import read_links
from ramify.recipes import RECIPES
from ramify.recipes.disentanglement import NOTES
from ramify.report.conversations import as_text, write_conversations
from ramify.runs import execute
from ramify.sample import LINKS
from ramify.tree import Node, Tree


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chats")
    settings = {"train.steps": "40", "train.budget": "32", "train.lr": "0.01", "model.hidden": "32", "model.dim": "8"}
    run = RECIPES["feature-model"](str(chat_store(folder).path)).changed(settings | {"tokenizer.min_count": "3"})
    execute(run, folder / "run", cpu=True)
    return folder / "run"


LINES = (
    "=== ann has joined #disks",
    "[10:00] <ann> mount disk usb the a",
    "[10:00] <Bob> ann: usb \x02bold\x0f disk \x1b[31mred & <b>tags</b>",
    "",
    "[10:01]  * gus plays sound",
    "no line of a log \U0001f600",
    "[10:02] <hal> gus: alsa mute the sound",
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "disks.log"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def run(ramify, log, model, to, out, *more):
    status, printed, err = ramify("disentangle", log, "--model", model, "--to", to, "--out", out, *more)
    assert (status, printed) == (0, ""), err
    return out.read_text("utf-8"), err


def test_text_holds_every_line_once(ramify, log, model, tmp_path):
    found, err = run(ramify, log, model, "text", tmp_path / "out.txt")
    assert str(tmp_path / "out.txt") in err
    numbers = [int(line.split()[0]) for line in found.split("\n") if re.match(r" *\d+ ", line)]
    assert sorted(numbers) == list(range(len(LINES)))
    assert "<Bob> ann: usb bold disk red & <b>tags</b>" in found
    assert "* gus plays sound" in found
    assert "[10:02]" in found
    assert not set(map(chr, range(32))) - {"\n"} & set(found)


def test_json_lines_are_trees_that_ramify_reads(ramify, log, model, tmp_path):
    run(ramify, log, model, "jsonl", tmp_path / "out.jsonl")
    trees = list(jsonl.read_jsonl(tmp_path / "out.jsonl"))
    assert sorted(int(node.id) for tree in trees for node in tree.nodes) == list(range(len(LINES)))
    assert all(isinstance(tree, Tree) and len(tree.roots) == 1 for tree in trees)
    assert [tree.id for tree in trees] == [f"disks/{number}" for number in range(len(trees))]
    assert all(0 < node.label["probability"] <= 1 for tree in trees for node in tree.nodes)
    record = json.loads((tmp_path / "out.jsonl").read_text().split("\n")[0])
    assert record["meta"]["log"] == "disks"


def test_annotations_have_a_link_for_every_line(ramify, log, model, tmp_path):
    run(ramify, log, model, "annotation", tmp_path / "out.txt")
    links = read_links([tmp_path / "out.txt"])["disks"]
    assert links[:, 1].tolist() == list(range(len(LINES)))
    assert (links[:, 0] <= links[:, 1]).all()


def test_several_logs_and_their_scores(ramify, model, tmp_path):
    """Gold links beside the logs are neither read nor needed."""
    for seed in (100, 101):
        tree = channel(60, seed)
        stamp = (datetime.fromtimestamp(node.time or 0, UTC) for node in tree.nodes)
        lines = (f"[{at:%H:%M}] <{node.author}> {node.text}" for at, node in zip(stamp, tree.nodes))
        (tmp_path / f"{seed}.ascii.txt").write_text("".join(f"{line}\n" for line in lines))
        known = ((node.parents[0] if node.parents else i, i) for i, node in enumerate(tree.nodes) if node.parents is not None)
        (tmp_path / f"{seed}.annotation.txt").write_text("".join(f"{parent} {child} -\n" for parent, child in known))
    logs = sorted(tmp_path.glob("*.ascii.txt"))
    out = tmp_path / "out.txt"
    with_gold, _ = run(ramify, logs[0], model, "annotation", out, logs[1])
    status, printed, _ = ramify("evaluate", "links", "--gold", tmp_path, "--predicted", out, "--json")
    assert status == 0
    assert json.loads(printed)["link"]["f1"] > 60
    for each in tmp_path.glob("*.annotation.txt"):
        each.unlink()
    assert run(ramify, logs[0], model, "annotation", out, logs[1])[0] == with_gold


def test_replies_recorded_in_the_log(ramify, model, tmp_path):
    export = {
        "channel": {"id": "1", "name": "disks"},
        "guild": {"name": "us"},
        "messages": [
            {
                "id": "10",
                "type": "Default",
                "timestamp": "2020-01-01T10:00:00+00:00",
                "content": "one",
                "author": {"name": "a"},
            },
            {
                "id": "11",
                "type": "Default",
                "timestamp": "2020-01-01T10:00:01+00:00",
                "content": "two",
                "author": {"name": "b"},
            },
            {
                "id": "12",
                "type": "Reply",
                "timestamp": "2020-01-01T10:00:02+00:00",
                "content": "three",
                "author": {"name": "c"},
                "reference": {"messageId": "10"},
            },
        ],
    }
    path = tmp_path / "disks.json"
    path.write_text(json.dumps(export))
    _, err = run(ramify, path, model, "jsonl", tmp_path / "kept.jsonl")
    assert "replies: 1 link recorded in the log and kept, " in err
    assert " found by the model. --ignore-replies predicts all links\n" in err
    nodes_by_id = {node.id: (tree, node) for tree in jsonl.read_jsonl(tmp_path / "kept.jsonl") for node in tree.nodes}
    tree, node = nodes_by_id["12"]
    assert [tree.nodes[parent].id for parent in node.parents or ()] == ["10"]
    assert node.label == {"probability": 1.0}
    text, _ = run(ramify, path, model, "text", tmp_path / "kept.txt")
    assert " · 1 reply link recorded\n" in text
    page, _ = run(ramify, path, model, "html", tmp_path / "kept.html")
    assert "; 1 reply link recorded in the log and kept, " in page
    assert 'title="answers 10, recorded"' in page
    _, err = run(ramify, path, model, "jsonl", tmp_path / "own.jsonl", "--ignore-replies")
    assert "recorded in the log" not in err
    assert "replies: " in err
    own = [node for tree in jsonl.read_jsonl(tmp_path / "own.jsonl") for node in tree.nodes]
    assert all(node.label["probability"] < 1 for node in own if node.id != "10")


def test_probabilities_are_added_to_existing_labels(ramify, model, tmp_path):
    """An existing `label` is kept; Ramify's own JSON lines are a log like any other."""
    path = tmp_path / "disks.jsonl"
    path.write_text(channel(1).to_json() + "\n")
    tree = jsonl_trees(path)[0]
    nodes = (replace(node, label={"topic": "disks"} if number % 2 else "x") for number, node in enumerate(tree.nodes))
    path.write_text(Tree(tuple(nodes), id="disks").to_json() + "\n")
    run(ramify, path, model, "jsonl", tmp_path / "out.jsonl")
    labels = {node.id: node.label for each in jsonl_trees(tmp_path / "out.jsonl") for node in each.nodes}
    assert labels.keys() == {node.id for node in tree.nodes}
    assert all(0 < label["probability"] <= 1 for label in labels.values())
    own = [labels[node.id] for node in tree.nodes]
    assert [label.get("topic") or label["label"] for label in own] == ["x", "disks"] * (len(own) // 2) + ["x"] * (len(own) % 2)


def jsonl_trees(path):
    return list(jsonl.read_jsonl(path))


SAID = "author,text\nann,mount disk usb\nbob,ann: usb disk\n"


@pytest.mark.parametrize(
    ("files", "format", "names"),
    [
        ({"01/disks.log": LINES[1], "02/disks.log": LINES[1]}, "irc", ["01-disks", "02-disks"]),
        ({"disks.csv": f"channel,{SAID}".replace("\n", "\na/b,", 2)}, "chat-table", ["a-b"]),
        ({"1.json": "1", "2.json": "1"}, "molweni", ["1", "1 (2)"]),
    ],
)
def test_annotations_of_logs_whatever_their_names(ramify, causal, tmp_path, files, format, names):
    """Every log has a distinct name, which is read back unchanged. This also holds for live channels."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if format == "molweni":
            edus = [{"text": "mount usb", "speaker": "ann"}, {"text": "ann: disk", "speaker": "bob"}]
            content = json.dumps([{"id": content, "edus": edus, "relations": []}])
        (tmp_path / name).write_text(content if content.endswith("\n") else f"{content}\n")
    paths = [tmp_path / name for name in files]
    words = ("--format", format, "--model", causal, "--to", "annotation", "--out", tmp_path / "out")
    for live in ((), ("--live",)) if format != "molweni" else ((),):
        status, _, err = ramify("disentangle", *paths, *words, *live)
        assert status == 0, err
        assert list(read_links([tmp_path / "out"])) == names


@pytest.mark.parametrize("ids", [["7", "3", "9"], ["1700000000.5", "b", "-3"], ["1" * 19, "2" * 19, "3" * 19]])
def test_annotations_number_messages_where_lines_have_no_numbers(ramify, causal, tmp_path, ids):
    path = tmp_path / "table.csv"
    path.write_text("id,author,text\n" + "".join(f"{each},ann,usb disk\n" for each in ids))
    for live in ((), ("--live",)):
        words = ("--format", "chat-table", "--to", "annotation", "--out", tmp_path / "out", "--model", causal, *live)
        status, _, err = ramify("disentangle", path, *words)
        assert status == 0, err
        assert sorted(read_links([tmp_path / "out"])["table"][:, 1].tolist()) == [0, 1, 2]


def test_columns_are_named(ramify, model, tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("who,when,said\nann,1600000000000,usb disk\nbob,1600000060000,ann: mount\n")
    columns = [word for name in ("author=who", "time=when", "text=said") for word in ("--column", name)]
    found, _ = run(ramify, path, model, "text", tmp_path / "out.txt", "--format", "chat-table", *columns)
    assert "[12:26] <ann> usb disk" in found  # milliseconds
    assert "[12:27]" in found
    posts = tmp_path / "posts.csv"
    posts.write_text("id,parent,tree,text\n1,,1,hi\n2,1,1,ho\n")
    status, _, err = ramify("disentangle", posts, "--model", model, "--to", "text", "--out", tmp_path / "out")
    assert status == 2
    assert "--format chat-table" in err


def test_text_shows_authors_and_times(ramify, model, tmp_path):
    path = tmp_path / "days.csv"
    path.write_text(
        "author,time,kind,text\nann,2024-01-31T23:59:00,message,usb disk mount\n"
        "ann,2024-02-01T00:01:00,system,joined\nann,2024-02-01T00:02:00,,ann: usb disk\n"
    )
    found, _ = run(ramify, path, model, "text", tmp_path / "out.txt", "--format", "chat-table")
    for line in ("[23:59] <ann> usb disk mount", "[00:01]   * ann joined", "[00:02] "):
        assert line in found


def test_text_marks_new_days():
    """The dates are in the heading of a conversation, and before the first message of each day."""
    times = [datetime(2024, 1, 31, 23, 59, tzinfo=UTC), datetime(2024, 2, 1, 0, 1, tzinfo=UTC)]
    nodes = [Node("one", (), id="0", author="ann", time=times[0].timestamp())]
    nodes += [Node("two", (0,), id="1", author="bob", time=times[1].timestamp())]
    lines = list(as_text(Disentangled(Tree(tuple(nodes), id="log"), np.ones(2), np.zeros(2, np.int64))))
    assert "2024-01-31 23:59 – 2024-02-01 00:01" in lines[2]
    assert [line.strip() for line in lines if re.fullmatch(r" *2024-\d\d-\d\d", line)] == ["2024-01-31", "2024-02-01"]


def test_conversations_show_their_days(tmp_path):
    """This includes conversations of one day and single messages. On the page, the date precedes the first message of each
    day."""
    times = [datetime(2024, 1, day, 10, minute, tzinfo=UTC).timestamp() for day in (30, 31) for minute in (0, 1)]
    nodes = [Node("said", (), id=str(number), author="ann", time=time) for number, time in enumerate(times)]
    nodes[1] = replace(nodes[1], parents=(0,))
    log = Tree(tuple(nodes), id="log")
    found = Disentangled(log, np.ones(4), np.array([0, 0, 1, 2]))
    lines = list(as_text(found))
    assert lines[2].endswith("2024-01-30 10:00–10:01")
    assert lines[6:9] == [
        "--- 2 messages without reply links",
        "       2024-01-31",
        "     2 [10:00] <ann> said",
    ]
    write_conversations(tmp_path / "page.html", [found], "none")
    page = (tmp_path / "page.html").read_text()
    assert re.findall(r'<li class="day">(.*?)</li>', page) == ["2024-01-30", "2024-01-31"]


def test_clock_without_dates_counts_days(tmp_path):
    times = [datetime(1970, 1, 1, 23, 59, tzinfo=UTC), datetime(1970, 1, 2, 0, 1, tzinfo=UTC)]
    nodes = [Node("one", (), id="0", author="ann", time=times[0].timestamp())]
    nodes += [Node("two", (0,), id="1", author="bob", time=times[1].timestamp())]
    found = Disentangled(Tree(tuple(nodes), id="log"), np.ones(2), np.zeros(2, np.int64))
    lines = list(as_text(found))
    assert "day 1 23:59 – day 2 00:01" in lines[2]
    assert [line.strip() for line in lines if line.strip().startswith("day")] == ["day 1", "day 2"]
    write_conversations(tmp_path / "page.html", [found], "none")
    page = (tmp_path / "page.html").read_text()
    assert '<time title="day 2 00:01:00">' in page
    assert "1970" not in page


def test_text_names_the_parent_where_indentation_does_not_show_it():
    parents = [(), (0,), (0,), (1,), (2,), (2, 1), *[(number,) for number in range(5, 14)]]
    nodes = [Node("said", own, id=str(number), author="ann") for number, own in enumerate(parents)]
    found = Disentangled(Tree(tuple(nodes), id="a\x1bb\nc"), np.ones(len(nodes)), np.zeros(len(nodes), np.int64))
    lines = list(as_text(found))
    assert lines[0].startswith("=== ab c · 15 messages")
    assert [line[7:] for line in lines[3:9]] == [
        "<ann> said",
        "  <ann> said",
        "  <ann> said",
        "    → 1 <ann> said",
        "    <ann> said",
        "    → 2, 1 <ann> said",
    ]
    # At this depth, indentation stops.
    assert [line.strip() for line in lines[14:18]] == ["11 " + " " * 16 + "<ann> said"] + [
        f"{number} {' ' * 16}→ {number - 1} <ann> said" for number in (12, 13, 14)
    ]


BOTH = ("0 0 -", "0 1 -", "0 2 -", "2 2 -", "1 3 -", "2 3 -")


def test_message_that_starts_a_conversation_may_have_parents(ramify, model, tmp_path):
    """Annotations and JSON lines give the links of a log unchanged."""
    log, out = tmp_path / "two.ascii.txt", tmp_path / "out"
    log.write_text("".join(f"[10:0{minute}] <ann> usb disk\n" for minute in range(4)))
    (tmp_path / "two.annotation.txt").write_text("".join(f"{line}\n" for line in BOTH))
    known = ("--option", "annotations=beside")
    found, _ = run(ramify, log, model, "annotation", out, *known)
    assert sorted(line.removeprefix("two:") for line in found.splitlines()) == sorted(BOTH)
    found, _ = run(ramify, log, model, "jsonl", tmp_path / "trees", *known)
    (tree,) = map(Tree.from_json, found.splitlines())
    assert [node.self_link for node in tree.nodes] == [False, False, True, False]
    assert [node.parents for node in tree.nodes] == [(), (0,), (0,), (1,)]


def test_predicted_links_are_scored_as_written(ramify, model, tmp_path):
    """With several links per message, starts included, `evaluate` agrees with `disentangle` followed by `evaluate links`."""
    logs = [several_parents(channel(60, seed, f"log{seed}")) for seed in range(2)]
    lines = tmp_path / "logs.jsonl"
    lines.write_text("".join(f"{log.to_json()}\n" for log in logs))
    gold, out = tmp_path / "gold.txt", tmp_path / "out"
    known = [Disentangled(each, np.ones(60), np.zeros(60, np.int64)).links().tolist() for each in logs]
    pairs = (
        f"{log.id}:{parent} {child} -"
        for log, links in zip(logs, known)
        for parent, child in links
        if log.nodes[child].parents is not None
    )
    gold.write_text("".join(f"{pair}\n" for pair in pairs))
    settings = ("--set", "decoding.decide=link", "--set", "decoding.threshold=0.1")
    found, _ = run(ramify, lines, model, "annotation", out, "--ignore-replies", *settings)
    found_links = [line.partition(":")[2].split() for line in found.splitlines()]
    starting = {child for parent, child, _ in found_links if parent == child}
    assert starting & {child for parent, child, _ in found_links if parent != child}
    status, printed, err = ramify("evaluate", "links", "--gold", gold, "--predicted", out, "--json")
    assert status == 0, err
    store = built(logs, tmp_path)
    status, own, err = ramify("evaluate", model, "--data", store.path, "--split", "all", "--json", *settings)
    assert status == 0, err
    assert json.loads(own)["link"] == pytest.approx(json.loads(printed)["link"])


def test_probability_is_that_of_the_first_parent(model):
    """If a message has a parent, its probability is that of the parent, even if a start is likelier."""
    loaded = ramify_package.load(model)
    log = channel(60, 0)
    alone = loaded.disentangle(log, ignore_replies=True)
    found = Disentangler(loaded.task, replace(loaded.decoding, threshold=0.05)).disentangle(log, ignore_replies=True)
    both = [number for number, node in enumerate(found.tree.nodes) if node.self_link and node.parents]
    assert both
    assert any(found.probability[number] < alone.probability[number] for number in both)
    for number, node in enumerate(found.tree.nodes):
        if not alone.tree.nodes[number].parents:
            assert (found.probability[number] == alone.probability[number]) == (not node.parents)
        else:
            assert node.parents[:1] == alone.tree.nodes[number].parents


def test_earlier_predictions_are_replaced():
    before = {"probability": 0.9, "also": ["gone"], "own": 1}
    found = Disentangled(Tree((Node("x", (), id="0", label=before),)), np.array([0.5]), np.zeros(1, np.int64))
    assert found.conversations()[0].nodes[0].label == {"own": 1, "probability": 0.5}


def test_known_starts_are_kept(ramify, model, tmp_path):
    """If no message of a log has a parent, or says that it starts a conversation, nothing is known."""
    nodes = (Node("usb disk", (), id="0", author="ann"), Node("ann: usb disk", (), id="1", author="bob"))
    path, out = tmp_path / "logs.jsonl", tmp_path / "out.jsonl"
    path.write_text(Tree(nodes, id="log").to_json() + "\n")
    run(ramify, path, model, "jsonl", out)
    assert len(out.read_text().splitlines()) == 1
    path.write_text(Tree((nodes[0], replace(nodes[1], self_link=True)), id="log").to_json() + "\n")
    _, err = run(ramify, path, model, "jsonl", out)
    assert len(out.read_text().splitlines()) == 2
    assert "replies: 0 links found by the model\n" in err
    path.write_text(Tree((nodes[0], replace(nodes[1], parents=(0,))), id="log").to_json() + "\n")
    _, err = run(ramify, path, model, "jsonl", out)
    assert "replies: 1 link recorded in the log and kept; the model had nothing to find. --ignore-replies predicts all" in err


SLACK = [
    {"type": "message", "user": "U1", "text": "which disk?", "ts": "1600000000.000100", "thread_ts": "1600000000.000100"},
    {"type": "message", "user": "U2", "text": "alsa is loud", "ts": "1600000010.000100"},
    {"type": "message", "user": "U2", "text": "the usb one", "ts": "1600000020.000100", "thread_ts": "1600000000.000100"},
    {"type": "message", "user": "U1", "text": "thanks", "ts": "1600000030.000100"},
]
TELEGRAM = {
    "name": "disks",
    "type": "private_group",
    "id": 1,
    "messages": [
        {
            "id": number,
            "type": "message",
            "date": f"2020-01-01T10:00:0{number}",
            "from": "ann",
            "from_id": "user1",
            "text": text,
        }
        | ({"reply_to_message_id": 1} if number == 3 else {})
        for number, text in enumerate(("which disk?", "alsa is loud", "the usb one", "thanks"), 1)
    ],
}
MATRIX = {
    "room_name": "disks",
    "messages": [
        {
            "type": "m.room.message",
            "sender": f"@{author}:example.org",
            "event_id": f"${number}",
            "origin_server_ts": 1600000000000 + number,
            "content": {"msgtype": "m.text", "body": text}
            | ({"m.relates_to": {"m.in_reply_to": {"event_id": "$0"}}} if number == 2 else {}),
        }
        for number, (author, text) in enumerate((("ann", "which disk?"), ("bob", "loud"), ("bob", "usb"), ("ann", "thanks")))
    ],
}
TABLE = "id,author,parent,text\n1,ann,,which disk?\n2,bob,,alsa is loud\n3,bob,1,the usb one\n4,ann,,thanks\n"


@pytest.mark.parametrize("live", [(), ("--live",), ("--live", "--every", 3)])
@pytest.mark.parametrize(
    ("format", "name", "content"),
    [
        ("slack", "2020-09-13.json", SLACK),
        ("telegram", "result.json", TELEGRAM),
        ("matrix", "room.json", MATRIX),
        ("chat-table", "chat.csv", TABLE),
    ],
)
def test_replies_of_exports_are_kept(ramify, causal, tmp_path, format, name, content, live):
    path, out = tmp_path / name, tmp_path / "found.links.txt"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    # By these settings, the model itself starts a conversation with every message.
    words = ("--format", format, "--model", causal, "--out", out, "--to", "annotation", "--set", "decoding.start_odds=1e9")
    status, _, err = ramify("disentangle", path, *words, *live)
    assert status == 0, err
    (links,) = read_links([out]).values()
    numbers = sorted(links[:, 1].tolist())
    first = links[links[:, 1] == numbers[2], 0].tolist()
    assert first == numbers[:1]
    assert (links[:, 0] == links[:, 1]).sum() == 3
    assert "replies: 1 link recorded in the log and kept, 0 links found by the model" in err
    status, _, err = ramify("disentangle", path, *words, *live, "--ignore-replies")
    assert status == 0, err
    (links,) = read_links([out]).values()
    assert (links[:, 0] == links[:, 1]).all()
    assert "recorded in the log" not in err


def test_gold_links_beside_a_log_are_not_its_replies(ramify, model, tmp_path):
    """Annotators wrote them. They are read only if a user asks for them."""
    log, out = tmp_path / "two.ascii.txt", tmp_path / "out.jsonl"
    log.write_text("".join(f"[10:0{minute}] <ann> usb disk\n" for minute in range(4)))
    (tmp_path / "two.annotation.txt").write_text("".join(f"{line}\n" for line in BOTH))
    with_gold, err = run(ramify, log, model, "jsonl", out)
    assert "recorded in the log" not in err
    _, err = run(ramify, log, model, "jsonl", out, "--option", "annotations=beside")
    assert "replies: 4 links recorded in the log and kept; the model had nothing to find" in err
    (tmp_path / "two.annotation.txt").unlink()
    assert run(ramify, log, model, "jsonl", out)[0] == with_gold


def test_printed_log_is_not_replaced(ramify, in_place_of, log, tmp_path):
    log_file = tmp_path / "kept"
    for more in ([], ["--live"]):
        log_file.write_text("kept\n")
        with open(log_file, "a") as file, in_place_of(1, file):
            status, _, err = ramify("disentangle", log, "--format", "irc", "--to", "jsonl", "--out", "/dev/stdout", *more)
        assert status == 0, err
        first, *rest = log_file.read_text().splitlines()
        assert first == "kept"
        assert all(json.loads(line) for line in rest)
        assert rest


@pytest.mark.parametrize("lines", [1, 2])
def test_tiny_logs(ramify, model, tmp_path, lines):
    path = tmp_path / "small.log"
    path.write_text("[10:00] <ann> hi\n" * lines)
    found, _ = run(ramify, path, model, "text", tmp_path / "out.txt", "--format", "irc")
    assert f"{lines} message" in found
    for to in ("jsonl", "annotation", "html"):
        run(ramify, path, model, to, tmp_path / f"out.{to}", "--format", "irc")


def test_days_without_messages_are_counted(ramify, log, model, tmp_path):
    silent = tmp_path / "silent.log"
    silent.touch()
    status, _, err = ramify("disentangle", silent, log, "--model", model, "--to", "text", "--out", tmp_path / "out")
    assert status == 0, err
    assert "format: irc (" in err
    assert f"left out: 1 empty file (first: {silent})" in err
    status, _, err = ramify("disentangle", silent, "--model", model, "--to", "text", "--out", tmp_path / "out")
    assert (status, "is empty" in err or "are empty" in err) == (2, True)


@pytest.mark.parametrize(
    ("before", "options", "unparsed"),
    [
        ("10:00 nobody says this", ["--option", "dialect=irssi"], 1),
        ("nobody says this", [], 1),
        ("--- Log opened Mon Nov 15 10:00:00 2021", [], 0),
    ],
)
def test_channel_may_begin_with_unparsed_lines(ramify, causal, monkeypatch, before, options, unparsed):
    (lines_read, lines_written), (results_read, results_written) = os.pipe(), os.pipe()
    printed: list[str] = []

    def talk() -> None:
        with open(lines_written, "w") as lines, open(results_read) as results:
            print(before, file=lines, flush=True)
            # The result arrives before the next line is written.
            if select.select([results], [], [], 60)[0]:
                printed.append(results.readline())
                lines.write("10:01 <ann> hi\n10:02 <bob> ann: hi\n")
            lines.close()
            printed.extend(results)

    speaker = threading.Thread(target=talk)
    with open(lines_read) as stdin, open(results_written, "w") as stdout, monkeypatch.context() as streams:
        streams.setattr(sys, "stdin", stdin)
        streams.setattr(sys, "stdout", stdout)
        speaker.start()
        words = ("disentangle", "-", "--format", "irc", "--live", "--model", causal, "--to", "jsonl", "--out", "-", *options)
        status, _, err = ramify(*words)
    speaker.join()
    assert status == 0, err
    assert [json.loads(line)["id"] for line in printed] == ["0", "1", "2"]
    assert err.count("unparsed") == unparsed
    assert not unparsed or "1 unparsed (first: -, line 1)" in err


def test_refused_arguments(ramify, model, log, tmp_path):
    out = tmp_path / "out"
    posts = tmp_path / "posts.csv"
    posts.write_text("id,parent,text\n1,,hi\n2,1,ho\n")
    for words, message in [
        ((tmp_path / "nothing", "--to", "text", "--out", out, "--model", model), "no file or folder"),
        ((posts, "--to", "text", "--out", out, "--model", model, "--format", "table"), "posts with known parents"),
        ((log, "--to", "text", "--out", out, "--model", tmp_path), "config.json"),
        ((log, "--to", "text", "--out", tmp_path / "no" / "such" / "out", "--model", model), "no"),
        ((log, "--to", "text", "--out", out, "--model", model, "--option", "dialect=dog"), "dialect"),
        ((log, "--to", "text", "--out", out, "--model", model, "--option", "foo=1"), "'irc' has no option 'foo'"),
        (
            (log, "--to", "text", "--out", out, "--model", model, "--set", "model.hidden=9"),
            "--set model.hidden cannot change a trained model",
        ),
        ((log, "--to", "text", "--out", out, "--model", model, "--set", "decoding.threshold=2"), "decoding.threshold"),
    ]:
        status, printed, err = ramify("disentangle", *words)
        assert (status, printed) == (2, ""), words
        assert message in err
        assert "Traceback" not in err
        assert not out.exists()


def test_page_with_too_many_messages_is_refused(ramify, model, log, tmp_path, monkeypatch):
    monkeypatch.setattr("ramify.report.conversations.MAX_SHOWN", 3)
    status, _, err = ramify("disentangle", log, "--model", model, "--to", "html", "--out", tmp_path / "out.html")
    assert status == 2
    assert "too much for a browser" in err


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_page_in_a_browser(ramify, model, log, tmp_path):
    """Texts of a log are text, not HTML. Lines are drawn, and a conversation can be selected."""
    page = tmp_path / "out.html"
    run(ramify, log, model, "html", page)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,900"]
    browser += [f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=2000"]
    shown = subprocess.run(
        [*browser, "--dump-dom", f"file://{page}"], check=True, capture_output=True, timeout=60, text=True
    ).stdout
    assert "red &amp; &lt;b&gt;tags&lt;/b&gt;" in shown
    assert shown.count('class="message') == len(LINES)
    answers = shown.count("data-answers=")
    assert shown.count("<path d=") == answers > 0
    subprocess.run(
        [*browser, f"--screenshot={tmp_path / 'page.png'}", f"file://{page}"], check=True, capture_output=True, timeout=60
    )
    from matplotlib import image

    picture = image.imread(tmp_path / "page.png")[..., :3]
    # Colours, not grey alone.
    assert (np.ptp(picture, axis=-1) > 0.25).mean() > 0.0003


def test_shipped_model(ramify, log, tmp_path):
    assert sum(file.stat().st_size for file in LINKS.iterdir()) < 10e6
    card = (LINKS / "README.md").read_text("utf-8")
    assert "license: cc-by-4.0" in card
    assert "ramify train links" in card
    assert "ramify train candidate-pruner" in card
    assert "ramify train reranker" in card
    shipped = ramify_package.load(LINKS)
    assert not shipped.backbone.config.years
    assert shipped.input.causal
    status, _, err = ramify("disentangle", log, "--to", "html", "--out", tmp_path / "out.html")
    assert status == 0, err
    assert "as predicted by the model that ships with Ramify" in (tmp_path / "out.html").read_text("utf-8")
    # The model follows names in messages, in conversations unlike those of its training.
    tree = channel(100, 7)
    found = shipped.disentangle(tree)
    called = [i for i, node in enumerate(tree.nodes) if ": " in node.text]
    parent_authors = [tree.nodes[(found.tree.nodes[i].parents or (i,))[0]].author for i in called]
    right = [author == tree.nodes[i].text.split(":")[0] for author, i in zip(parent_authors, called)]
    assert np.mean(right) > 0.8


def test_shipped_model_reaches_its_documented_score(ramify, data_dir, tmp_path):
    folder, out = data_dir("ubuntu-irc") / "dev", tmp_path / "found.txt"
    status, _, err = ramify("disentangle", *sorted(folder.glob("*.ascii.txt")), "--to", "annotation", "--out", out)
    assert status == 0, err
    status, printed, err = ramify("evaluate", "links", "--gold", folder, "--predicted", out, "--json", "--resamples", 0)
    assert status == 0, err
    found = json.loads(printed)
    scores = found["link"]["f1"], found["cluster"]["f1"], found["vi"], found["one_to_one"]
    # benchmarks/results.md; arithmetic differs a little from machine to machine.
    assert scores == pytest.approx((75.08, 48.11, 94.02, 84.64), abs=0.5)


def test_several_models_decide_together(ramify, log, model, tmp_path):
    out = tmp_path / "out.txt"
    alone, _ = run(ramify, log, model, "annotation", out)
    for ensemble in ("vote", "unanimous", "union", "union-most", "mean"):
        twice, _ = run(ramify, log, model, "annotation", out, "--model", model, "--ensemble", ensemble)
        assert twice == alone, ensemble
    run(ramify, log, model, "annotation", out, "--model", LINKS, "--ensemble", "union")
    union = read_links([out])["disks"].tolist()
    assert {child for _, child in union} == set(range(len(LINES)))
    for to in ("text", "jsonl", "html"):
        run(ramify, log, model, to, tmp_path / f"out.{to}", "--model", LINKS, "--ensemble", "union")


def test_candidate_pruner_is_fitted_and_used(ramify, log, model, tmp_path):
    data, out, packed = chat_store(tmp_path / "more").path, tmp_path / "quick", tmp_path / "packed"
    words = ("train", "candidate-pruner", model, "--data", data, "--num-candidates", 3)
    status, printed, err = ramify(*words, "--out", out, "--pack", packed)
    assert (status, printed) == (0, ""), err
    assert {"reading logs …", "predicting links …", "fitting the candidate pruner …"} <= {*err.splitlines()}
    for each in (out, packed):
        assert ramify_package.load(each).task.config.num_candidates == 3
        text, _ = run(ramify, log, each, "annotation", tmp_path / "out.txt")
        assert len(text.splitlines()) == len(LINES)
    status, printed, err = ramify("train", "candidate-pruner", out, "--data", data, "--out", tmp_path / "none")
    assert (status, printed, "has no pruner yet" in err) == (2, "", True), err
    assert not (tmp_path / "none").exists()
    weights = (model / "model.safetensors").read_bytes()
    for again in (("candidate-pruner", model, "--data", data), ("reranker", model, "--unseen", f"{model}={data}")):
        status, printed, err = ramify("train", *again, "--out", model)
        assert (status, printed, "which would be overwritten" in err) == (2, "", True), err
    assert (model / "model.safetensors").read_bytes() == weights


def test_reranker_is_fitted_and_used(ramify, log, model, tmp_path):
    data, out = chat_store(tmp_path / "more").path, tmp_path / "twice"
    status, printed, err = ramify("train", "reranker", model, "--unseen", f"{model}={data}", "--out", out)
    assert (status, printed) == (0, ""), err
    assert {"reading logs …", "predicting links …", "fitting the reranker …"} <= {*err.splitlines()}
    assert ramify_package.load(out).task.config.reranker_dim == 64
    words = ("--unseen", f"{model}={data}", "--lookahead", "--set", "decoding.threshold=0.4", "--out", tmp_path / "ahead")
    status, printed, err = ramify("train", "reranker", model, *words)
    assert (status, printed) == (0, ""), err
    ahead = ramify_package.load(tmp_path / "ahead")
    assert (ahead.task.config.reranker_dim, ahead.task.config.lookahead, ahead.decoding.threshold) == (64, True, 0.4)
    text, _ = run(ramify, log, out, "annotation", tmp_path / "out.txt")
    assert len(text.splitlines()) == len(LINES)
    for words, message in [
        ((model, "--unseen", f"{out}={data}"), "names a model that has a reranker"),
        (
            (model, "--unseen", f"{model}={data}", "--set", "task.objective=binary"),
            "--set task.objective cannot change a trained model",
        ),
        ((model, "--unseen", str(model)), "expected RUN=DATA"),
        ((data, "--unseen", f"{model}={data}"), "config.json"),
    ]:
        status, printed, err = ramify("train", "reranker", *words, "--out", tmp_path / "none")
        assert (status, printed, message in err) == (2, "", True), err
        assert not (tmp_path / "none").exists()


def test_evaluate_scores_links(ramify, model, tmp_path):
    data = chat_store(tmp_path).path
    status, printed, _ = ramify("evaluate", model, "--data", data, "--split", "dev", "--json")
    assert status == 0
    found = json.loads(printed)
    assert found["protocol"] == "official"
    assert found["link"]["f1"] > 60
    status, printed, _ = ramify("evaluate", model, "--data", data, "--split", "dev", "--json", "--no-starts")
    without = json.loads(printed)
    assert (status, found["starts"], without["starts"]) == (0, True, False)
    assert without["link"]["recall"] != found["link"]["recall"]
    status, printed, _ = ramify(
        "evaluate", model, "--data", data, "--split", "dev", "--json", "--set", "decoding.start_odds=1e9"
    )
    assert (status, json.loads(printed)["link"]["recall"] < found["link"]["recall"]) == (0, True)
    status, printed, _ = ramify("evaluate", model, "--data", data, "--split", "dev", "--protocol", "chunk50")
    assert (status, printed.split(",")[0]) == (0, "protocol chunk50")
    status, _, err = ramify("evaluate", model, "--data", data)
    assert (status, "nothing to score" in err) == (2, True)


def test_evaluate_with_known_conversations_only(ramify, model, tmp_path):
    """A chain through each conversation replaces the unknown links."""
    logs = [channel(60, seed) for seed in range(3)]
    labelled = []
    for log in logs:
        found = ramify_package.load(model).disentangle(log, ignore_replies=True)
        nodes = (
            replace(node, parents=None, label={"conversation": str(number)})
            for node, number in zip(log.nodes, found.conversation.tolist(), strict=True)
        )
        labelled.append(Tree(tuple(nodes), id=log.id))
    store = built(labelled, tmp_path)
    status, printed, _ = ramify("evaluate", model, "--data", store.path, "--split", "all", "--json")
    assert status == 0
    scores = json.loads(printed)
    # The model is scored against its own conversations, so every score is perfect.
    assert scores["cluster"]["f1"] == scores["vi"] == scores["one_to_one"] == 100
    assert scores["link"] is None
    assert scores["intervals"].keys() >= {"vi", "cluster f1"}
    assert "link f1" not in scores["intervals"]
    status, printed, _ = ramify("evaluate", model, "--data", store.path, "--split", "all")
    assert status == 0
    assert "link" not in printed.replace("and no links", "")
    assert "the data have gold conversations" in printed


@pytest.fixture(scope="module")
def causal(model, tmp_path_factory):
    """The same weights, saved as a model that was trained without looking ahead."""
    folder = tmp_path_factory.mktemp("causal") / "model"
    task = ramify_package.load(model).task
    task.input = replace(task.input, causal=True)
    hub.save(Disentangler(task), folder)
    return folder


def test_live_predictions_equal_those_of_the_whole_log(ramify, log, causal, tmp_path):
    run(ramify, log, causal, "annotation", tmp_path / "whole.txt")
    run(ramify, log, causal, "annotation", tmp_path / "live.txt", "--live")
    assert read_links([tmp_path / "live.txt"])["disks"].tolist() == read_links([tmp_path / "whole.txt"])["disks"].tolist()
    lines = [json.loads(line) for line in run(ramify, log, causal, "jsonl", tmp_path / "live.jsonl", "--live")[0].splitlines()]
    assert [line["id"] for line in lines] == [str(number) for number in range(len(LINES))]
    assert all((line["answers"] is None) or int(line["answers"]) < int(line["id"]) for line in lines)
    assert all(line["log"] == "disks" and 0 < line["probability"] <= 1 for line in lines)
    whole = read_links([tmp_path / "whole.txt"])["disks"].tolist()
    assert [line["answers"] for line in lines] == [None if parent == child else str(parent) for parent, child in whole]


def test_live_gives_all_parents_of_a_message(ramify, log, causal, tmp_path):
    several = ("--set", "decoding.decide=conversation", "--set", "decoding.start_odds=0.01", "--set", "decoding.threshold=0.05")
    run(ramify, log, causal, "annotation", tmp_path / "whole.txt", *several)
    run(ramify, log, causal, "annotation", tmp_path / "live.txt", "--live", *several)
    assert (tmp_path / "live.txt").read_text() == (tmp_path / "whole.txt").read_text()
    whole = read_links([tmp_path / "whole.txt"])["disks"].tolist()
    lines = run(ramify, log, causal, "jsonl", tmp_path / "live.jsonl", "--live", *several)[0].splitlines()
    for number, line in enumerate(map(json.loads, lines)):
        parents = {line["answers"] or str(number), *line.get("also", ())}
        assert parents == {str(parent) for parent, child in whole if child == number}
    assert len(whole) > len(LINES)
    # In JSON lines each message appears once per conversation, so that every conversation is a tree.
    run(ramify, log, causal, "jsonl", tmp_path / "out.jsonl", *several)
    conversations = list(jsonl.read_jsonl(tmp_path / "out.jsonl"))
    assert sum(len(each) for each in conversations) == len(LINES)
    for tree in conversations:
        for node, parent in zip(tree.nodes, tree.parent.tolist()):
            parents = {node.id} if parent < 0 else {tree.nodes[parent].id, *node.label.get("also", ())}
            assert parents == {str(parent) for parent, child in whole if str(child) == node.id}
    found, _ = run(ramify, log, causal, "text", tmp_path / "out.txt", *several)
    assert sorted(int(line.split()[0]) for line in found.split("\n") if re.match(r" *\d+ ", line)) == list(range(len(LINES)))


@pytest.fixture
def live_process(start, causal):
    """A process that disentangles the lines written to it, and has printed two results."""
    command = ["disentangle", "/dev/stdin", "--format", "irc", "--live", "--to", "jsonl", "--out", "/dev/stdout"]
    process = start(*command, "--model", causal)
    patience = threading.Timer(100, process.kill)
    patience.start()
    for number, line in enumerate(LINES[1:3]):
        process.stdin.write(f"{line}\n")
        # The result arrives before the next line is written.
        assert json.loads(process.stdout.readline())["id"] == str(number)
    yield process
    patience.cancel()
    process.kill()


def test_live_ends_with_its_input(live_process):
    rest, err = live_process.communicate()
    assert (rest, live_process.returncode) == ("", 0)
    assert err == "repaired: 1 no day (first: /dev/stdin: its times have no day, so days count from 1970-01-01)\n"


def test_live_ends_with_ctrl_c(live_process):
    """Nothing is printed but earlier results."""
    live_process.stdin.write(f"{LINES[5]}\n")
    assert json.loads(live_process.stdout.readline())["id"] == "2"
    live_process.send_signal(signal.SIGINT)
    rest, err = live_process.communicate()
    assert (rest, live_process.returncode) == ("", 130)
    # The input may end before the process does, and then lacks a day.
    assert err.splitlines()[0] == "repaired: 1 unparsed (first: /dev/stdin, line 3)"


def test_live_reports_undecided_messages(ramify, log, causal, tmp_path, monkeypatch):
    whole = LiveChannel.predict_each

    def stopped(live, messages):
        """Like Ctrl-C after four results."""
        yield from islice(whole(live, messages), 4)
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveChannel, "predict_each", stopped)
    out = tmp_path / "out.jsonl"
    status, _, err = ramify("disentangle", log, "--live", "--every", 6, "--model", causal, "--to", "jsonl", "--out", out)
    assert status == 130
    assert "read but not decided: the last 2 messages" in err
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["0", "1", "2", "3"]


def test_live_ends_when_its_output_closes(live_process):
    """Like `head`, which closes the pipe before the next line is printed."""
    live_process.stdout.close()
    live_process.stdin.write(f"{LINES[6]}\n")
    assert live_process.wait() == 1
    assert live_process.stderr.read() == ""


@pytest.mark.parametrize("every", [(), ("--every", 3), ("--every", 500)])
def test_live_may_decide_on_several_messages(ramify, log, causal, tmp_path, every):
    at_once = run(ramify, log, causal, "jsonl", tmp_path / "one.jsonl", "--live", "--every", 1)[0].splitlines()
    together = run(ramify, log, causal, "jsonl", tmp_path / "more.jsonl", "--live", *every)[0].splitlines()
    for one, other in zip(map(json.loads, at_once), map(json.loads, together), strict=True):
        assert one.pop("probability") == pytest.approx(other.pop("probability"), abs=2e-4)
        assert one == other
    status, _, err = ramify("disentangle", log, "--every", 3, "--model", causal, "--to", "jsonl", "--out", tmp_path / "out")
    assert status == 2
    assert "--every 3 needs --live" in err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--to", "html"], "jsonl or annotation"),
        (["--to", "jsonl", "--beam", "2"], "excludes --beam"),
        (["--to", "jsonl", "--out", "."], "--out . is a folder"),
        (["--to", "jsonl", "--out", "/no/such/folder"], "the folder /no/such does not exist. Create it"),
    ],
)
def test_live_refuses_unsupported_options(ramify, log, causal, tmp_path, options, reason):
    status, _, err = ramify("disentangle", log, "--live", "--model", causal, "--out", tmp_path / "out", *options)
    assert status == 2
    assert reason in err


def test_live_refuses_a_model_with_lookahead(ramify, log, model, tmp_path):
    status, _, err = ramify("disentangle", log, "--live", "--model", model, "--to", "jsonl", "--out", tmp_path / "out")
    assert status == 2
    assert "input.causal" in err


def test_logs_are_read_in_python(log, causal):
    (tree,) = ramify_package.read_logs(log)
    assert [node.id for node in tree.nodes] == [str(number) for number in range(len(LINES))]
    found = ramify_package.load(causal).disentangle(tree)
    assert len(found.probability) == len(LINES)
    with pytest.raises(ramify_package.RamifyError, match="has no option 'foo'"):
        next(ramify_package.read_logs(log, format="irc", foo=1))
    with pytest.raises(ramify_package.RamifyError, match="holds posts, not logs"):
        next(ramify_package.read_logs(log, format="pushshift"))


@pytest.mark.parametrize("options", [["--to", "text"], ["--to", "jsonl", "--live"]])
def test_input_is_not_overwritten(ramify, log, model, tmp_path, options):
    before = log.read_bytes()
    for out in (log, tmp_path / "link.log"):
        if out != log:
            out.symlink_to(log)
        status, _, err = ramify("disentangle", log, "--model", model, *options, "--out", out)
        assert status == 2
        assert f"--out {out} is also an input. Choose another file" in err
        assert log.read_bytes() == before


@pytest.mark.parametrize("live", [(), ("--live",)])
def test_nothing_is_written_without_messages(ramify, causal, tmp_path, live):
    """A table read in the wrong format is not an empty channel."""
    table, out = tmp_path / "channel.json", tmp_path / "out.jsonl"
    table.write_text('{"guild": {}, "channel": {}, "messages": [{"id":')
    out.write_text("kept")
    words = ("--format", "discord", "--model", causal, "--to", "jsonl", "--out", out)
    status, _, err = ramify("disentangle", table, *words, *live)
    assert status == 2
    assert "no message was found (" in err
    assert "bad json" in err
    assert out.read_text() == "kept"


def test_missing_log_is_not_reported_as_an_output_error(ramify, model, tmp_path):
    words = (
        "disentangle",
        tmp_path / "none.log",
        "--format",
        "irc",
        "--model",
        model,
        "--to",
        "text",
        "--out",
        tmp_path / "out",
    )
    status, _, err = ramify(*words)
    assert status == 2
    assert "none.log" in err
    assert "cannot write" not in err


def test_empty_log_does_not_stop_a_folder(ramify, log, model, tmp_path):
    days = tmp_path / "days"
    days.mkdir()
    log.rename(days / "disks.log")
    (days / "quiet.log").touch()
    _, err = run(ramify, days, model, "text", tmp_path / "out.txt")
    assert "quiet.log" in err


def test_folder_of_empty_logs_is_refused(ramify, model, tmp_path):
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "quiet.log").touch()
    status, _, err = ramify("disentangle", tmp_path / "days", "--model", model, "--to", "text", "--out", tmp_path / "out")
    assert status == 2
    assert "days are empty" in err


def test_side_files_of_a_log_are_not_overwritten(ramify, log, model, tmp_path):
    for option, ending in (("annotations", "annotation.txt"), ("tokens", "tok.txt")):
        beside = tmp_path / f"disks.{ending}"
        beside.write_text("kept")
        words = ("disentangle", log, "--model", model, "--to", "annotation", "--out", beside)
        status, _, err = ramify(*words, "--option", f"{option}=beside")
        assert status == 2
        assert f"--out {beside} is also an input" in err
        assert beside.read_text() == "kept"
    assert ramify(*words)[0] == 0


def test_packing_overwrites_no_model(ramify, model, tmp_path):
    data = chat_store(tmp_path / "more").path
    before = (model / "model.safetensors").read_bytes()
    words = ("train", "candidate-pruner", model, "--data", data, "--num-candidates", 3, "--out", tmp_path / "quick")
    (tmp_path / "file").touch()
    refused = (
        (model, "choose another --pack"),
        (tmp_path / "quick", "is the same folder as --out"),
        (tmp_path / "file", "is a file"),
    )
    for pack, message in refused:
        status, _, err = ramify(*words, "--pack", pack)
        assert status == 2
        assert message in err
        assert not (tmp_path / "quick").exists()
    assert (model / "model.safetensors").read_bytes() == before


def test_shipped_card_is_for_the_shipped_model(ramify, model, tmp_path):
    data = chat_store(tmp_path / "more").path
    words = ("train", "reranker", model, "--unseen", f"{model}={data}", "--lookahead")
    assert ramify(*words, "--out", tmp_path / "one", "--data", data, "--pack", tmp_path / "packed")[0] == 0
    assert ramify(*words, "--out", tmp_path / "two", "--data", data, "--pack", tmp_path / "again", "--shipped")[0] == 0
    refused = (
        (("--shipped",), "--shipped needs --pack"),
        (("--data", data), "--data needs --pack"),
        (("--pack", tmp_path / "bare"), f"--pack {tmp_path / 'bare'} needs --data"),
    )
    for options, expected in refused:
        status, _, err = ramify(*words, "--out", tmp_path / "three", *options)
        assert (status, expected in err) == (2, True)
        assert not (tmp_path / "three").exists()
    assert "Ubuntu" not in (tmp_path / "packed" / "README.md").read_text("utf-8")
    for card in (LINKS, tmp_path / "again"):
        assert NOTES in (card / "README.md").read_text("utf-8")


def test_file_name_with_invalid_utf_8(log, tmp_path):
    named = log.rename(tmp_path / os.fsdecode(b"caf\xe9.log"))
    (tree,) = read_logs(named)
    assert tree.id == "caf\ufffd"


def test_file_names_with_invalid_utf_8_stay_distinct(log, tmp_path):
    other = tmp_path / os.fsdecode(b"caf\xe8.log")
    other.write_bytes(log.read_bytes())
    log.rename(tmp_path / os.fsdecode(b"caf\xe9.log"))
    trees = [*read_logs(tmp_path)]
    assert len(trees) == len({tree.id for tree in trees}) == 2
    assert all("caf\ufffd" in tree.id for tree in trees)


ROOM = "".join(
    f"2024-01-31 10:{number:02} | {author}: {text}\n"
    for number, (author, text) in enumerate(
        [("ann", "usb disk?"), ("bob", "ann: which one\nred"), ("ann", "bob: the red one"), ("bob", "I see")]
    )
)


def test_logs_with_a_pattern(ramify, model, tmp_path):
    """Links name the first line of each message, whether the pattern is given or inferred."""
    log, out = tmp_path / "room.txt", tmp_path / "out"
    log.write_text(ROOM)
    found, err = run(ramify, log, model, "annotation", out, "--pattern", "{date} {time} | {author}: {text}")
    assert [int(line.split()[1]) for line in found.splitlines()] == [0, 1, 3, 4]
    assert "repaired: 1 continuation" in err
    assert "guessed" not in err
    inferred, err = run(ramify, log, model, "annotation", out)
    assert "format: chat-log" in err
    assert inferred == found
    status, _, err = ramify("disentangle", log, "--pattern", "{time} {author}: {text}", "--to", "text", "--out", out)
    assert status == 2
    assert "matches no line of" in err
    assert out.read_text() == found
    status, _, err = ramify("disentangle", log, "--format", "irc", "--pattern", "x", "--to", "text", "--out", out)
    assert (status, "the format 'irc' has no option 'pattern'" in err) == (2, True)


def test_live_logs_with_a_pattern(ramify, causal, tmp_path):
    log, out = tmp_path / "room.txt", tmp_path / "out"
    log.write_text(ROOM)
    found, _ = run(ramify, log, causal, "jsonl", out, "--live", "--pattern", "{date} {time} | {author}: {text}")
    assert [json.loads(line)["id"] for line in found.splitlines()] == ["0", "1", "3", "4"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("out.txt", "=== disks"),
        ("out.jsonl", '{"id": "disks/0"'),
        ("out.links.txt", "disks:0 0 -"),
        ("a.annotation.txt", "disks:0 0 -"),
        ("out.html", "<!doctype html>"),
    ],
)
def test_the_ending_of_out_tells_the_kind_of_output(ramify, log, model, tmp_path, name, first):
    status, printed, err = ramify("disentangle", log, "--model", model, "--out", tmp_path / name)
    assert (status, printed) == (0, ""), err
    assert (tmp_path / name).read_text("utf-8").startswith(first)
    assert err.endswith(f"{tmp_path / name}\n")


def test_unknown_endings_are_refused(ramify, log, model, tmp_path):
    status, _, err = ramify("disentangle", log, "--model", model, "--out", tmp_path / "out.pdf")
    assert status == 2
    assert "out.pdf does not end in .annotation.txt or .links.txt or .txt or .jsonl or .html or .csv or .parquet" in err
    assert "add --to" in err
    assert not (tmp_path / "out.pdf").exists()
    assert ramify("disentangle", log, "--model", model, "--to", "text", "--out", tmp_path / "out.pdf")[0] == 0


def test_a_log_alone_becomes_a_page_beside_it(ramify, log, model, tmp_path):
    page = log.with_name("disks.html")
    for _ in range(2):  # it replaces its own page
        status, printed, err = ramify("disentangle", log, "--model", model)
        assert (status, printed) == (0, ""), err
        assert err.endswith(f"{page}\n")
        assert '<p class="kind">Who replied to whom</p>' in page.read_text("utf-8")
        page.write_text(page.read_text("utf-8") + "<!-- earlier -->")
    assert "<!-- earlier -->" in page.read_text("utf-8")
    page.write_text("<!doctype html><title>My own page</title>")
    status, _, err = ramify("disentangle", log, "--model", model)
    assert status == 2
    assert f"{page} exists, and would be overwritten. Name the file to write with --out" in err
    assert "My own page" in page.read_text("utf-8")
    assert ramify("disentangle", log, "--model", model, "--out", page)[0] == 0


@pytest.mark.parametrize(
    ("to", "ending"), [("text", ".conversations.txt"), ("jsonl", ".conversations.jsonl"), ("annotation", ".links.txt")]
)
def test_other_outputs_stand_beside_the_log_under_new_names(ramify, log, model, tmp_path, to, ending):
    log = log.rename(tmp_path / "disks.ascii.txt")
    written = tmp_path / f"disks.ascii{ending}"
    status, _, err = ramify("disentangle", log, "--model", model, "--to", to)
    assert status == 0, err
    assert err.endswith(f"{written}\n")
    # The readers of logs do not take it for gold links.
    (tree,) = read_logs(log, annotations="beside")
    assert {node.parents for node in tree.nodes} == {None}
    written.write_text("mine")
    status, _, err = ramify("disentangle", log, "--model", model, "--to", to)
    assert (status, "would be overwritten" in err, written.read_text()) == (2, True, "mine")


def test_the_page_of_a_folder_or_an_archive_stands_beside_it(ramify, log, model, tmp_path, monkeypatch):
    (tmp_path / "days").mkdir()
    log.rename(tmp_path / "days" / "a.b.log")
    monkeypatch.chdir(tmp_path / "days")
    for given, page in ((tmp_path / "days", "days.html"), (".", "days.html"), ("a.b.log", "days/a.b.html")):
        (tmp_path / page).unlink(missing_ok=True)
        status, _, err = ramify("disentangle", given, "--format", "irc", "--model", model)
        assert status == 0, err
        assert (tmp_path / page).exists()


def test_live_output_without_a_file_is_standard_output(ramify, log, causal):
    status, out, err = ramify("disentangle", log, "--format", "irc", "--live", "--model", causal)
    assert status == 0, err
    assert [json.loads(line)["id"] for line in out.splitlines()] == [str(number) for number in range(len(LINES))]
    assert not list(log.parent.glob("*.html"))


def test_a_log_from_standard_input_is_printed_as_text(ramify, in_place_of, log, model, monkeypatch):
    command = ("disentangle", "--format", "irc", "--model", model)
    for name in ("/dev/stdin", "-"):
        with open(log, encoding="utf-8") as stdin, in_place_of(0, stdin):
            monkeypatch.setattr(sys, "stdin", stdin)
            status, out, err = ramify(*command, name)
        assert status == 0, err
        assert out.startswith("=== ")
    monkeypatch.chdir(log.parent)
    with open(log, encoding="utf-8") as stdin, in_place_of(0, stdin):
        monkeypatch.setattr(sys, "stdin", stdin)
        status, _, err = ramify(*command, "-", "--to", "html")
    assert (status, err.endswith("\ndisentangle.html\n"), (log.parent / "disentangle.html").exists()) == (0, True, True), err


def test_texts_are_no_chats(ramify, model, tmp_path):
    book = tmp_path / "book.md"
    book.write_text("# Title\n\n## One\n\nHello there. It is late.\n")
    for format, held in (("book", "books"), ("text", "plain texts")):
        status, _, err = ramify("disentangle", book, "--format", format, "--model", model, "--out", tmp_path / "out.txt")
        assert status == 2
        assert f"--format {format} holds {held}, so there is nothing to disentangle" in err
    assert not (tmp_path / "out.txt").exists()

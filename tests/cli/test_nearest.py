"""`ramify nearest` on comments. Documents are in `test_document_commands.py`."""

import json
import re
from dataclasses import replace

import pytest

from fixtures import ASKED
from ramify import Node, Tree

POST, ABOVE, BETWEEN, BELOW = ASKED.nodes
ESCAPES = replace(
    ASKED,
    nodes=(
        replace(POST, author="ann\x1b[2J"),
        ABOVE,
        replace(BETWEEN, text="ha\nhi \x1b]0;gu", author="bob"),
        BELOW,
    ),
)


@pytest.fixture
def asked(tmp_path):
    file = tmp_path / "asked.jsonl"
    file.write_text(Tree((Node("fe", id="post"),), id="before").to_json() + "\n" + ESCAPES.to_json() + "\n")
    return file


@pytest.fixture
def nearest(ramify, trained):
    def run(*words):
        status, out, err = ramify("nearest", trained, "--data", *words)
        assert (status, err) == (0, "")
        return out

    return run


@pytest.fixture
def refusal(ramify, trained):
    def run(*words, model=trained):
        status, out, err = ramify("nearest", model, "--data", *words)
        assert (status, out) == (2, "")
        return err

    return run


def test_a_text_and_a_comment_of_a_file(nearest, asked):
    answer = json.loads(nearest(asked, "--query", "ce da", "--context", "none", "-k", 2, "--json"))
    # Of two equal texts, rounding decides which is first.
    assert sorted((each["tree"], each["id"], each["text"]) for each in answer["nearest"]) == [
        ("asked", "above", "ce da"), ("asked", "below", "ce da"),
    ]  # fmt: skip
    answer = json.loads(nearest(asked, "--node", "below", "--context", "none", "--json"))
    assert answer["nearest"][0]["id"] == "above"
    assert {each["id"] for each in answer["nearest"]} == {"above", "between", "post"}
    of_post = json.loads(nearest(asked, "--node", "post", "--tree", "asked", "--json"))["nearest"]
    assert ("before", "post") in [(each["tree"], each["id"]) for each in of_post]


def test_lines_are_escaped(nearest, asked):
    lines = nearest(asked, "--query", "ba", "-k", 4).splitlines()
    assert len(lines) == 4
    assert not any("\x1b" in line for line in lines)
    assert any(re.fullmatch(r"-?[01]\.\d{3}  asked between by bob: ha hi \]0;gu", line) for line in lines)


def test_vectors_of_a_file(ramify, nearest, refusal, trained, store, tmp_path):
    file = tmp_path / "v.parquet"
    assert ramify("embed", trained, "--data", store.path, "--out", file, "--with", "author,text")[0] == 0
    asked = (store.path, "--query", "ba be", "--json")
    assert json.loads(nearest(*asked, "--vectors", file)) == json.loads(nearest(*asked))
    assert "has the vectors of context tree, not none" in refusal(*asked, "--vectors", file, "--context", "none")


def test_bad_questions(refusal, asked, tmp_path):
    assert "not with both" in refusal(asked)
    assert "the query '\\x00' holds no text" in refusal(asked, "--query", "\x00")
    assert "there is no node 'nobody'" in refusal(asked, "--node", "nobody")
    assert "is in 2 trees, such as 'before' and 'asked'. Name the tree (--tree)" in refusal(asked, "--node", "post")
    assert "there is no tree 'none'" in refusal(asked, "--node", "post", "--tree", "none")
    assert "--level sentence needs a model of nested documents" in refusal(asked, "--query", "ba", "--level", "sentence")
    assert "links cannot find nearest nodes" in refusal(asked, "--query", "ba", model="links")
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"id": "t", "nodes": []}\n')
    assert "the data holds no comment. Choose other data" in refusal(empty, "--query", "ba")

"""Commands on models of nested documents: train, embed, reconstruct, coherence, nearest."""

import io
import json
import re
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import ramify
from fixtures import built, discussions
from fixtures.commands import call, refusal
from fixtures.letters import LETTERS, letter, tokenizer
from fixtures.nested import writing
from ramify import Node, Tree
from ramify.batching.views.pairs import PairInput
from ramify.inference.documents import pipeline
from ramify.inference.translate import next_token_pipeline
from ramify.models.transformer import TransformerConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM

LEVELS = ("sentence", "paragraph", "chapter", "document")

SETTINGS = {
    "train.log_every": 1,
    "train.budget": 64,
    "model.dims": [8, 12, 16, 20, 20],
    "model.max_children": [12, 6, 6, 6],
    "model.encoder_cells": [1, 1, 1, 1],
    "model.num_heads": 2,
    "task.queue": 16,
    "tokenizer.vocab_size": 90,
    "tokenizer.kind": "wordpiece",
}

SET = [f"--set={key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in SETTINGS.items()]

TEXT = """The boat came in at noon. Nobody waved.

At night the wind rose.
"""


def answer(*words, **options):
    return json.loads(call(*words, "--json", **options).stdout)


@pytest.fixture(scope="session")
def letters(tmp_path_factory):
    """A data set of documents, with all splits."""
    trees = [letter(f"{name}-{copy}", chapters) for copy in range(5) for name, chapters in LETTERS.items()]
    store = built(trees, tmp_path_factory.mktemp("letters"), (0.6, 0.2, 0.2))
    assert all(len(store.split(name)) for name in ("train", "dev", "test"))
    return store


@pytest.fixture(scope="session")
def agent(letters, tmp_path_factory):
    out = tmp_path_factory.mktemp("agent") / "run"
    err = call("train", "agent", "--joint", "--data", letters.path, "--out", out, "--steps", 2, *SET).stderr
    assert {"training the tokenizer …", "encoding texts …", "reading levels …", "first step …"} <= {*err.splitlines()}
    return out


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "letter.txt"
    file.write_text(TEXT)
    return file


# --- train ----------------------------------------------------------------------------------------------------------------


def test_training_takes_all_levels_and_leaves_a_card(agent):
    record = json.loads((agent / "run.json").read_text())
    assert tuple(record["run"]["model"]["levels"]) == LEVELS
    assert "An Agent with" in (agent / "README.md").read_text()


def test_no_encoder_alone_is_trained(letters, tmp_path):
    assert "task.encoder_only=true leaves no loss" in refusal(
        *("train", "agent", "--data", letters.path, "--out", tmp_path / "run", "--set", "task.encoder_only=true")
    )


@pytest.fixture(scope="session")
def sentences(letters, tmp_path_factory):
    out = tmp_path_factory.mktemp("agent-sentence") / "run"
    sizes = ("model.dims=[8,12]", "model.max_children=[12]", "model.encoder_cells=[1]", "model.num_heads=2")
    shared = [f"--set={size}" for size in (*sizes, "train.budget=64", "tokenizer.vocab_size=90", "tokenizer.kind=wordpiece")]
    call("train", "agent-sentence", "--data", letters.path, "--out", out, "--steps", 1, *shared)
    return out


def test_training_starts_from_sentences(letters, sentences, tmp_path):
    settings = ("model.dims=[8,12,16,20,20]", "train.units=2", "train.budget=64")
    call(
        *("train", "agent", "--data", letters.path, "--init", sentences, "--out", tmp_path / "run", "--steps", 1),
        *(f"--set={setting}" for setting in settings),
    )
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert tuple(record["run"]["model"]["levels"]) == LEVELS
    assert record["run"]["model"]["max_children"][0] == 12
    assert len(record["run"]["stages"]) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["task.frozen=paragraph"], "task.frozen=paragraph is no level of the model in --init, which has sentence."),
        (["task.frozen=document"], "task.frozen=document is the highest level"),
        (["task.frozen=verse"], "task.frozen=verse is no level of the model. Its levels are sentence, paragraph"),
        (["model.dims=[16,12,16,20,20]"], "does not fit this model: of another shape"),
        (["task.queue=4", "task.frozen=none", "task.above=together"], "task.queue=4 adds candidates from earlier weights"),
        (
            ["task.replacement=other_document", "view.whole_documents=true"],
            "task.replacement=other_document finds no other document",
        ),
    ],
)
def test_training_from_sentences_refuses(letters, sentences, tmp_path, settings, message):
    small = {"model.dims": "[8,12,16,20,20]", "train.units": "2"} | dict(setting.split("=") for setting in settings)
    given = [f"--set={name}={value}" for name, value in small.items()]
    words = ("train", "agent", "--data", letters.path, "--init", sentences, "--out", tmp_path / "run", *given)
    assert message in refusal(*words)
    assert not (tmp_path / "run" / "run.json").exists()


def test_another_tokenizer_than_that_of_the_start_is_refused(letters, agent, sentences, tmp_path):
    words = ("train", "agent", "--data", letters.path, "--init", sentences, "--out", tmp_path / "run")
    assert "has its own tokenizer" in refusal(*words, "--tokenizer", agent)


def test_units_are_for_documents(letters, tmp_path):
    words = ("train", "xlnet-lm", "--data", letters.path, "--out", tmp_path / "run", "--steps", 1)
    small = (
        "train.units=4",
        "tokenizer.vocab_size=90",
        "tokenizer.kind=wordpiece",
        "view.streams=1",
        "input.row_tokens=16",
        "input.reused_tokens=8",
    )
    given = [f"--set={setting}" for setting in small]
    assert "train.units=4 applies to runs on nested documents alone. Set train.units=0." in refusal(*words, *given)


# --- embed ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_embed_writes_one_row_per_stored_node(agent, letters, level, tmp_path):
    out = tmp_path / "v.parquet"
    shown = call("embed", agent, "--data", letters.path, "--level", level, "--out", out)
    table = pq.read_table(out)
    assert table.column_names == ["tree", "id", "level", "vector", "pieces"]
    nodes = [(tree.id, node.id) for tree in letters.trees() for node in tree.nodes if node.kind == level]
    assert list(zip(table["tree"].to_pylist(), table["id"].to_pylist(), strict=True)) == nodes
    assert f"{len(nodes):,} vectors of size {8 + 4 * LEVELS.index(level) + 4 if level != 'document' else 20}" in shown.stderr
    vectors = np.array(table["vector"].to_pylist())
    np.testing.assert_allclose(vectors, ramify.load(agent).embed(letters.trees(), level=level), rtol=0, atol=2e-6)


def test_embed_counts_cut_nodes_and_missing_levels(agent, tmp_path):
    long = letter("long", [[["the boat came in " * 10]]])
    bare = Tree((Node(id="0", kind="document"), Node("Ann.", (0,), id="1", kind="paragraph")), id="bare")
    data = built([long, bare], tmp_path).path
    out = tmp_path / "v.parquet"
    shown = call("embed", agent, "--data", data, "--level", "sentence", "--out", out, "--with", "kind,text").stderr
    table = pq.read_table(out)
    assert table["tree"].to_pylist() == ["long"]
    assert table["kind"].to_pylist() == ["sentence"]
    assert table["pieces"].to_pylist()[0] > 1
    assert "cut into several rows, whose vectors are averaged: 1 sentence" in shown
    assert "1 document without any sentence" in shown
    assert "no row for 1 places" in shown


def test_embed_of_documents_refuses(agent, letters, tmp_path):
    out = ("--out", tmp_path / "v.parquet")
    data = ("--data", letters.path)
    assert "Choose --level sentence or paragraph or chapter or document" in refusal("embed", agent, *data, *out)
    assert "no level 'part'. Its levels are sentence" in refusal("embed", agent, *data, *out, "--level", "part")
    assert "--context none needs a model of comments or texts, and" in refusal(
        "embed", agent, *data, *out, "--level", "sentence", "--context", "none"
    )
    replies = built(discussions(4, 4), tmp_path / "replies").path
    assert "holds replies, not documents" in refusal("embed", agent, "--data", replies, *out, "--level", "sentence")
    assert "--level sentence needs a model of nested documents, and tree-mlm-small holds none" in refusal(
        "embed", "tree-mlm-small", *data, *out, "--level", "sentence"
    )
    assert not (tmp_path / "v.parquet").exists()


# --- reconstruct ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "ids"), [("sentence", ["1.1.1", "1.1.2", "1.2.1"]), ("paragraph", ["1.1", "1.2"])])
def test_reconstruct_a_text(agent, text, level, ids):
    found = answer("reconstruct", agent, text, "--level", level)
    assert found["level"] == level
    assert [node["id"] for node in found["nodes"]] == ids
    keys = {"id", "text", "reconstruction", "token_accuracy", "predicted_length"}
    assert all(keys <= node.keys() for node in found["nodes"])
    assert found["nodes"][0]["text"].startswith("The boat came in at noon.")
    assert all(0 <= node["token_accuracy"] <= 1 for node in found["nodes"])


def test_reconstruct_reads_stdin_and_data_sets(agent, text, letters):
    of_file = answer("reconstruct", agent, text, "--level", "chapter")
    assert answer("reconstruct", agent, "-", "--level", "chapter", stdin=TEXT)["nodes"] == of_file["nodes"]
    found = answer("reconstruct", agent, "--data", letters.path, "--tree", "harbour-2", "--level", "document")
    assert [node["id"] for node in found["nodes"]] == ["0"]


def test_reconstruct_prints_a_table_without_control_characters(agent, tmp_path):
    file = tmp_path / "letter.txt"
    file.write_text("Ann\x1b[31m came. Bob \x07left.")
    shown = call("reconstruct", agent, file).stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", shown)
    assert "1.1.1  " in shown
    assert "2 sentences, " in shown.splitlines()[-1]


# --- coherence ------------------------------------------------------------------------------------------------------------


def test_coherence_of_every_node_and_child(agent, text):
    found = answer("coherence", agent, text)
    assert [node["id"] for node in found["nodes"]] == ["0", "1", "1.1", "1.1.1", "1.1.2", "1.2", "1.2.1"]
    assert [node["level"] for node in found["nodes"]][:3] == ["document", "chapter", "paragraph"]
    paragraph = found["nodes"][2]
    assert [child["id"] for child in paragraph["children"]] == ["1.1.1", "1.1.2"]
    assert all(0 <= child["score"] <= 1 for node in found["nodes"] for child in node["children"])
    some = answer("coherence", agent, text, "--level", "paragraph,chapter")
    assert [node["id"] for node in some["nodes"]] == ["1", "1.1", "1.2"]


def test_coherence_prints_the_least_coherent_nodes_first(agent, text):
    lines = call("coherence", agent, text, "--top", 3).stdout.splitlines()
    scores = [float(line.split()[0]) for line in lines[:3]]
    assert scores == sorted(scores)
    assert lines[3] == "7 nodes scored, the least coherent first; 4 more nodes not shown (--top, --json)"


def test_the_page_is_self_contained_and_escaped(agent, tmp_path):
    tree = letter("harbour", [[["</script><script>alert(1)</script>", "Ann."]]])
    file = tmp_path / "t.jsonl"
    file.write_text(tree.to_json())
    out = tmp_path / "page.html"
    call("coherence", agent, file, "--out", out)
    page = out.read_text()
    assert "alert(1)" in page
    assert "</script><script>alert" not in page
    assert not re.search(r"(?:src|href)=|https?://|@import|url\(", page)
    data = json.loads(re.search(r'id="vector-tree">(.*?)</script>', page)[1])
    assert [node["id"] for node in data["nodes"]] == [node.id for node in tree.nodes]
    assert data["nodes"][3]["text"] == tree.nodes[3].text
    assert [node["parent"] for node in data["nodes"]] == [None, 0, 1, 2, 2]
    assert (data["nodes"][0]["start"], data["nodes"][0]["stop"]) == (0, sum(len(node.text) for node in tree.nodes))
    assert "fit" in data["nodes"][3]
    assert data["levels"] == list(LEVELS)


def test_the_page_does_not_mix_with_results(agent, text):
    assert "--out - would mix" in refusal("coherence", agent, text, "--out", "-")


def test_documents_that_are_decoded_to_nothing_are_said(agent, tmp_path, monkeypatch):
    file = tmp_path / "note.txt"
    file.write_text("The boat came in. Nobody waved.\n")
    monkeypatch.setattr("ramify.inference.documents.pipeline.as_text", lambda *args: " ")
    shown = call("reconstruct", agent, file, "--level", "sentence")
    assert "note: the model wrote nothing for 2 of 2 texts; the first is text 1." in shown.stderr
    assert [node["empty"] for node in answer("reconstruct", agent, file, "--level", "sentence")["nodes"]] == [True, True]
    monkeypatch.setattr("ramify.inference.documents.pipeline.texts_of_nodes", lambda *args: iter([""]))
    assert answer("copyedit", agent, file)["empty"]
    assert "note: the model wrote nothing: the text is empty." in call("copyedit", agent, file).stderr


@pytest.mark.parametrize("command", ["coherence", "copyedit"])
def test_a_page_is_drawn_beside_the_document(agent, tmp_path, command, monkeypatch):
    file, page = tmp_path / "note.txt", tmp_path / f"note.{command}.html"
    file.write_text("The boat came in. Nobody waved.\n")
    assert not page.exists() if answer(command, agent, file) else None
    assert f"page: {page}\n" in call(command, agent, file).stderr
    assert page.read_text().startswith("<!doctype html>")
    monkeypatch.setattr("ramify.report.vector_tree.MAX_SHOWN", 1)
    monkeypatch.setattr("ramify.report.text_trees.MAX_SHOWN", 1)
    shown = call(command, agent, file)
    assert "note: no page: the page would hold" in shown.stderr
    assert shown.stdout
    assert "the page would hold" in refusal(command, agent, file, "--out", page)
    page.write_text("mine")
    assert f"note: no page: {page} exists, and would be overwritten." in call(command, agent, file).stderr
    assert page.read_text() == "mine"


def test_the_page_does_not_replace_the_input(agent, text):
    assert "is also an input" in refusal("coherence", agent, text, "--out", text)
    assert text.read_text() == TEXT


# --- nearest --------------------------------------------------------------------------------------------------------------


def test_nearest_to_a_text_and_to_a_node(agent, letters):
    data = ("--data", letters.path, "--level", "sentence")
    found = answer("nearest", agent, *data, "--query", "The rope broke.", "-k", 5)
    assert found["level"] == "sentence"
    assert {(each["text"], each["id"]) for each in found["nearest"]} == {("The rope broke.", "2.1.2")}
    assert {each["tree"] for each in found["nearest"]} == {f"harbour-{copy}" for copy in range(5)}
    own = answer("nearest", agent, *data, "--node", "2.1.2", "--tree", "harbour-1", "-k", 4)
    assert {each["tree"] for each in own["nearest"]} == {f"harbour-{copy}" for copy in (0, 2, 3, 4)}
    lines = call("nearest", agent, *data, "--query", "The rope broke.", "-k", 2).stdout.splitlines()
    assert all(re.fullmatch(r"1\.000  harbour-\d 2\.1\.2: The rope broke\.", line) for line in lines)


@pytest.mark.parametrize("level", LEVELS)
def test_nearest_reads_vectors_from_a_file(agent, letters, level, tmp_path, monkeypatch):
    data = ("--data", letters.path, "--level", level)
    call("embed", agent, *data, "--out", tmp_path / "v.parquet", "--with", "text")
    expected = answer("nearest", agent, *data, "--query", "The rope broke.")
    monkeypatch.setattr(pipeline.AnyDocumentPipeline, "vectors_of", None)
    found = answer("nearest", agent, *data, "--query", "The rope broke.", "--vectors", tmp_path / "v.parquet")
    for own, other in zip(found["nearest"], expected["nearest"], strict=True):
        assert own == other | {"score": pytest.approx(other["score"], abs=1e-6)}


def test_nearest_refuses_vectors_of_something_else(agent, letters, tmp_path):
    data, query = ("--data", letters.path), ("--query", "The rope broke.")
    file = tmp_path / "v.parquet"

    def refused(*words, model=agent):
        return refusal("nearest", model, *data, *query, *words, "--vectors", file)

    call("embed", agent, *data, "--level", "paragraph", "--out", file)
    assert "has the vectors of level paragraph, not chapter" in refused("--level", "chapter")
    paragraph = ("--level", "paragraph")
    changed = ramify.load(agent)
    torch.nn.init.zeros_(next(changed.backbone.parameters()))
    ramify.save(changed, tmp_path / "changed")
    assert "written by another model" in refused(*paragraph, model=tmp_path / "changed")
    other = built(list(letters.trees())[1:], tmp_path / "other").path
    assert "was not written from" in refusal("nearest", agent, "--data", other, *paragraph, *query, "--vectors", file)
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    assert "exactly one row for each paragraph" in refused(*paragraph)
    pq.write_table(table.drop_columns("vector"), file)
    assert "is not a complete Parquet file" in refused(*paragraph)
    pq.write_table(table.replace_schema_metadata(None), file)
    assert "is not a complete Parquet file of vectors" in refused(*paragraph)
    file.write_text("no table")
    assert "is not a complete Parquet file of vectors" in refused(*paragraph)
    file.unlink()
    assert "is no file" in refused(*paragraph)
    lines = tmp_path / "letters.jsonl"
    call("data", "export", letters.path, "--out", lines)
    call("embed", agent, "--data", lines, *paragraph, "--out", file)
    assert "was not written from" in refused(*paragraph)


def test_nearest_refuses(agent, letters):
    data = ("--data", letters.path)
    assert "not with both" in refusal("nearest", agent, *data)
    assert "not with both" in refusal("nearest", agent, *data, "--query", "a", "--node", "1")
    assert "--tree x is for --node" in refusal("nearest", agent, *data, "--query", "a", "--tree", "x")
    assert "is in 15 trees" in refusal("nearest", agent, *data, "--level", "chapter", "--node", "1")
    assert "no chapter, but a sentence" in refusal(
        "nearest", agent, *data, "--level", "chapter", "--node", "1.1.1", "--tree", "harbour-1"
    )
    assert "the query '  ' holds no text" in refusal("nearest", agent, *data, "--query", "  ")


# --- bad input ------------------------------------------------------------------------------------------------------------


def both(agent, file):
    """The answers of both commands that read a document."""
    return answer("reconstruct", agent, file, "--level", "document"), answer("coherence", agent, file)


def test_one_sentence(agent, tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("Come at six")
    decoded, judged = both(agent, file)
    assert [node["text"] for node in decoded["nodes"]] == ["Come at six"]
    assert [node["level"] for node in judged["nodes"]] == [*reversed(LEVELS)]


def test_no_chapters(agent, text):
    shown = call("coherence", agent, text).stderr
    assert "repaired: 1 missing level" in shown
    assert "chapter 1" in shown


def test_a_sentence_of_5000_words(agent, tmp_path):
    file = tmp_path / "long.txt"
    file.write_text(" ".join(["boat"] * 5000) + ".")
    found = answer("reconstruct", agent, file, "--level", "paragraph")
    assert found["tokens"] >= 5000
    assert "long sentence" in call("reconstruct", agent, file, "--level", "paragraph").stderr
    out = tmp_path / "v.parquet"
    data = built([letter("long", [[[file.read_text()]]])], tmp_path / "d").path
    call("embed", agent, "--data", data, "--level", "sentence", "--out", out)
    assert pq.read_table(out)["pieces"].to_pylist() == [-(-found["tokens"] // 11)]


def test_empty_paragraphs(agent, tmp_path):
    tree = letter("gaps", [[(), ("Ann.", ""), ()], ()])
    file = tmp_path / "t.jsonl"
    file.write_text(tree.to_json())
    _, judged = both(agent, file)
    scores = {node["id"]: node["score"] for node in judged["nodes"]}
    assert [name for name, score in scores.items() if score is None] == ["1.1", "1.2.2", "1.3", "2"]
    shown = call("coherence", agent, file).stdout.splitlines()[-1]
    assert "; 4 nodes without children" in shown
    data = built([tree], tmp_path / "d").path
    call("embed", agent, "--data", data, "--level", "paragraph", "--out", tmp_path / "v.parquet")
    assert len(pq.read_table(tmp_path / "v.parquet")) == 3


def test_a_script_that_the_tokenizer_never_saw(agent, tmp_path):
    file = tmp_path / "strange.txt"
    file.write_text("ЖЩЮ ЭЪ. ЩЩ.\n\nЪЭ.")
    decoded, judged = both(agent, file)
    assert decoded["unknown_tokens"] == judged["unknown_tokens"] == 4
    assert re.search(r"note: 4 of 7 tokens of \S+ \(57 %\) are unknown", call("coherence", agent, file).stderr)
    out = ("--out", tmp_path / "v.parquet")
    data = built([letter("strange", [[["ЖЩЮ ЭЪ"]]])], tmp_path / "d").path
    assert "2 of 2 tokens" in call("embed", agent, "--data", data, "--level", "document", *out).stderr


def test_empty_and_unreadable_files(agent, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "empty" in refusal("reconstruct", agent, empty)
    empty.write_text("\n \n")
    assert "holds no text" in refusal("coherence", agent, empty)
    binary = tmp_path / "picture"
    binary.write_bytes(b"\x89PNG\x00\x00\x01")
    assert "is not text" in refusal("coherence", agent, binary)
    assert "cannot be read: No such file" in refusal("coherence", agent, tmp_path / "none.txt")


def test_a_missing_file_is_named(agent, tmp_path, monkeypatch, capsys):
    from ramify.cli import main

    monkeypatch.setattr("ramify.cli.keep_pages", lambda: None)
    monkeypatch.setattr(sys, "argv", ["ramify", "coherence", str(agent), str(tmp_path / "none.txt")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'none.txt'} cannot be read: No such file or directory. Check its path and permissions.\n"
    )


def test_the_next_command_names_a_split_with_documents(tmp_path, monkeypatch):
    data = built([letter("harbour", LETTERS["harbour"])], tmp_path / "d").path
    err = call("train", "agent", "--joint", "--data", data, "--out", tmp_path / "run", "--steps", 1, *SET).stderr
    command = re.search(r"next: ramify (.*)", err)[1].split()
    assert command[-2:] == ["--split", "all"]
    assert "1 document of" in call(*command, "--rows", 4).stdout
    levels = answer(*command, "--rows", 4, "--levels", "paragraph, chapter")["levels"]
    assert [level for level, measures in levels.items() if measures] == ["sentence", "paragraph", "chapter"]
    assert "levels=verse names verse, which the model does not have" in refusal(*command, "--levels", "verse")


def test_other_inputs_are_refused(agent, letters, text, tmp_path):
    assert "Name a file, or a document" in refusal("reconstruct", agent)
    assert "both name a document" in refusal("reconstruct", agent, text, "--data", letters.path)
    assert "holds 15 documents" in refusal("reconstruct", agent, "--data", letters.path)
    assert "Name it with --data" in refusal("coherence", agent, letters.path)
    assert "holds no document 'b', but 1 document: 'letter'" in refusal("coherence", agent, text, "--tree", "b")
    replies = built(discussions(4, 4), tmp_path / "replies").path
    assert "holds replies, not documents" in refusal("coherence", agent, "--data", replies)
    assert "holds replies, not documents" in refusal("nearest", agent, "--data", replies, "--query", "a")
    assert "no level 'part'" in refusal("reconstruct", agent, text, "--level", "part")
    assert "no level 'part'" in refusal("coherence", agent, text, "--level", "part")


@pytest.mark.parametrize("verb", ["reconstruct", "coherence"])
def test_models_of_other_kinds_are_refused(agent, letters, text, verb, tmp_path):
    can = {"reconstruct": "reconstruct documents", "coherence": "judge coherence"}[verb]
    assert f"tree-mlm-small cannot {can}; it supports embed, fill_mask" in refusal(verb, "tree-mlm-small", text)
    encoder = tmp_path / "encoder"
    ramify.save(ramify.load(agent).encoder_only(), encoder)
    assert f"cannot {can}; it supports embed, nearest. Choose a model of nested documents with" in refusal(verb, encoder, text)
    assert "holds a DocumentEncoder, not a model of documents. Choose another model." in refusal(
        "evaluate", encoder, "--data", letters.path
    )


@pytest.mark.parametrize("words", [["fill-mask", "--text", "a [MASK]"], ["score", "--text", "a"], ["generate"]])
def test_commands_for_other_models_refuse_documents(agent, words):
    assert "embed, reconstruct, coherence" in refusal(words[0], agent, *words[1:])


def test_models_with_fewer_levels(letters, text, tmp_path):
    out = tmp_path / "run"
    settings = [each for each in SET if "=model." not in each]
    sizes = ("--set=model.dims=[8,12]", "--set=model.num_heads=2", "--set=model.encoder_cells=[1]")
    call("train", "agent-sentence", "--data", letters.path, "--out", out, "--steps", 2, *settings, *sizes)
    found = answer("reconstruct", out, text)
    assert [node["text"] for node in found["nodes"]] == [
        "The boat came in at noon.",
        "Nobody waved.",
        "At night the wind rose.",
    ]
    assert {node["level"] for node in answer("coherence", out, text)["nodes"]} == {"sentence"}
    assert "Its levels are sentence." in refusal("reconstruct", out, text, "--level", "paragraph")


def test_the_whole_program_reads_a_pipe(agent, monkeypatch, capsys):
    from ramify.cli import main

    monkeypatch.setattr("ramify.cli.keep_pages", lambda: None)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    monkeypatch.setattr(sys, "argv", ["ramify", "reconstruct", str(agent), "-", "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    assert len(json.loads(capsys.readouterr().out)["nodes"]) == 3


# --- copyedit -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def loud(agent, tmp_path_factory):
    """A model with larger weights: what its decoders write depends on the vector."""
    model = ramify.load(agent)
    writing(model.task, 0.3)
    out = tmp_path_factory.mktemp("loud") / "model"
    ramify.save(model, out)
    return out


def test_copyediting_gives_both_texts_and_their_scores(loud, text, letters, tmp_path):
    found = answer("copyedit", loud, text, "--epsilon", 1, "--passes", 2)
    keys = ("before", "after", *(f"{kind}_{when}" for kind in ("coherence", "perplexity") for when in ("before", "after")))
    assert tuple(found) == (*keys, "change_rate")
    assert found["before"] == TEXT.strip()
    assert found["perplexity_before"] is found["perplexity_after"] is None
    assert 0 <= found["coherence_before"] <= 1
    assert 0 < found["change_rate"] <= 1
    assert found["after"] != found["before"]
    unchanged = answer("copyedit", loud, text, "--epsilon", 0)
    assert (unchanged["after"], unchanged["change_rate"]) == (TEXT.strip(), 0.0)
    assert unchanged["coherence_before"] == unchanged["coherence_after"] == found["coherence_before"]
    written = answer("copyedit", loud, text, "--towards", "random_vector", "--prediction", "snap", "--bank", letters.path)
    assert written["before"] == TEXT.strip()


def test_coherence_is_the_mean_of_nodes_with_several_children(agent, text):
    found = answer("copyedit", agent, text, "--epsilon", 0)
    nodes = answer("coherence", agent, text, "--level", "paragraph,chapter,document")["nodes"]
    several = [node["score"] for node in nodes if len(node["children"]) > 1]
    assert len(several) == 2
    assert found["coherence_before"] == pytest.approx(np.mean(several))


def test_copyedited_texts_are_drawn_and_escaped(loud, tmp_path):
    file, page = tmp_path / "letter.txt", tmp_path / "page.html"
    file.write_text("The <b>boat</b> came in. Nobody waved.\n\nThe wind rose.\n")
    result = call("copyedit", loud, file, "--epsilon", 1, "--passes", 3, "--out", page)
    assert "of tokens changed" in result.stderr
    assert "coherence " in result.stderr
    drawn = page.read_text()
    assert "&lt;b&gt;boat&lt;/b&gt;" in drawn
    assert "<b>boat" not in drawn
    assert drawn.count("<mark>") > 1
    assert "After: coherence" in drawn


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--towards", "random_vector"), r"towards=random_vector needs known vectors .*\(--bank DATA"),
        (("--passing", "snap"), "passing=snap needs known vectors"),
        (("--epsilon", 2), "epsilon=2 .* from 0 to 1"),
    ],
)
def test_copyediting_without_what_it_needs_is_refused(agent, text, options, reason):
    assert re.search(reason, refusal("copyedit", agent, text, *options))


def test_a_file_of_one_sentence_is_not_copyedited(agent, tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("Come at six.")
    assert "holds one sentence, so nothing has siblings" in refusal("copyedit", agent, file)


def test_another_model_judges_both_texts(loud, text, tmp_path):
    words = tokenizer()
    sizes = {"dim": 16, "num_heads": 2, "ffn_dim": 32, "encoder_layers": 0, "decoder_layers": 1}
    gpt = NextTokenLM(TransformerConfig(vocab_size=words.vocab_size, **sizes).build(), words, PairInput(), NextTokenConfig())
    ramify.save(next_token_pipeline(gpt.eval()), tmp_path / "judge")
    found = answer("copyedit", loud, text, "--epsilon", 1, "--judge", tmp_path / "judge")
    assert 1 < found["perplexity_before"] != found["perplexity_after"] > 1
    same = answer("copyedit", loud, text, "--epsilon", 0, "--judge", tmp_path / "judge")
    assert same["perplexity_before"] == same["perplexity_after"] == found["perplexity_before"]


def test_a_judge_must_score_texts(agent, text):
    assert "holds a model that scores no texts" in refusal("copyedit", agent, text, "--judge", agent)

import json
import os
import subprocess
import sys
import threading

import pytest

from ramify import Node, Tree
from ramify.dataset import Store
from ramify.tokenizer import Tokenizer

TREE = Tree(
    (
        Node("the post", id="p"),
        Node("one", parents=(0,), id="a"),
        Node("two", parents=(1,), id="b"),
        Node("three", parents=(2,), id="c"),
        Node("four", parents=(0,), id="d"),
    ),
    id="t",
    meta={"title": "Of trees"},
)


@pytest.fixture
def trees(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(TREE.to_json() + "\n")
    return path


@pytest.fixture
def folder(ramify, trees, tmp_path):
    assert ramify("data", "build", trees, "--format", "jsonl", "--out", tmp_path / "store")[0] == 0
    return tmp_path / "store"


def test_build(ramify, trees, tmp_path):
    status, out, err = ramify("data", "build", trees, "--out", tmp_path / "store")
    assert status == 0
    assert "1 tree, 5 nodes, 4 replies" in out
    assert err.startswith("format: jsonl (Ramify's own JSON lines, one tree per line), guessed; --format overrides it\n")


def test_build_takes_the_options_of_scripts(ramify, tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("nr,parent,tree,author,said\n1,,t,ann,root\n2,1,t,bob,[deleted]\n3,2,t,cy,> quoted\n4,3,t,xbot,more\n")
    options = (
        "--column id=nr --column text=said --option delimiter=, --policy deleted=drop --policy empty=keep --split 0,0,1 "
        "--clean quotes --drop-bots --bot cy --min-nodes 1 --anonymise --salt s --memory 64MB --json"
    )
    status, out, _ = ramify("data", "build", path, "--format", "table", "--out", tmp_path / "store", *options.split())
    info = json.loads(out)
    assert status == 0
    assert (info["trees"], info["nodes"], info["skipped"], info["splits"]["test"]["trees"]) == (1, 1, {"deleted": 3}, 1)
    assert info["options"]["reader"] == {"delimiter": ",", "columns": {"id": "nr", "text": "said"}}


def test_options_are_taken_literally(ramify, tmp_path):
    """The delimiter may be a blank."""
    path = tmp_path / "posts.csv"
    path.write_text("id\tparent\ttree\ttext\n1\t\tt\troot\n2\t1\tt\tmore\n")
    words = ("data", "build", path, "--format", "table", "--out", tmp_path / "store", "--json")
    status, out, _ = ramify(*words, "--option", "delimiter=\t")
    assert (status, json.loads(out)["nodes"]) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "nope"], "there is no format 'nope'. The formats are:\n  jsonl"),
        (["--policy", "cycle"], "--policy cycle has no equals sign; expected NAME=VALUE."),
        (["--policy", "cycle=keep"], "the policy cycle='keep' does not exist. Choose drop or root"),
        (["--split", "most"], "--split most is not a list of shares"),
        (["--split", "nan,0,1"], "split=(nan, 0.0, 1.0) is not three shares (train, dev, test) that sum to 1"),
        (["--memory", "much"], "--memory much is not a size"),
        (["--memory", "0MB"], "--memory 0MB is not a size"),
        (["--memory=-5MB"], "--memory -5MB is not a size"),
        (["--memory", "infGB"], "--memory infGB is not a size"),
        (["--bot", "ann"], "--bot ann needs --drop-bots"),
        (["--salt", "s"], "--salt needs --anonymise"),
        (["--option", "x=1"], "the format 'jsonl' has no option 'x'"),
        (["--column", "x=1"], "the format 'jsonl' has no option 'columns'"),
    ],
)
def test_mistakes(ramify, trees, tmp_path, arguments, message):
    status, out, err = ramify("data", "build", trees, "--out", tmp_path / "store", "--format", "jsonl", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert sorted(tmp_path.iterdir()) == [trees]


def test_policies_without_effect_are_reported(ramify, tmp_path):
    path = tmp_path / "dialogues.json"
    edus = [{"text": text, "speaker": "ann"} for text in ("one", "[deleted]")]
    path.write_text(json.dumps([{"id": "d", "edus": edus, "relations": [{"x": 0, "y": 1, "type": "Comment"}]}]))
    policies = ["--policy", "orphan=drop", "--policy", "duplicate_id=last", "--policy", "deleted=drop"]
    status, out, err = ramify("data", "build", path, "--out", tmp_path / "store", "--format", "molweni", "--json", *policies)
    assert (status, json.loads(out)["skipped"]) == (0, {"deleted": 1})
    assert "note: --policy orphan has no effect, because the format 'molweni' holds whole trees" in err


def test_show(ramify, folder):
    status, out, _ = ramify("data", "show", folder, "--tree", "t")
    assert status == 0
    assert out.splitlines()[:5] == [
        "tree t: 5 nodes, 3 deep",
        "title: Of trees",
        "(unknown): the post",
        "├─ (unknown): one",
        "│  └─ (unknown): two",
    ]
    assert ramify("data", "show", folder, "--max-nodes", "2")[1].endswith("… 3 more nodes\n")
    status, _, err = ramify("data", "show", folder, "--tree", "u")
    assert (status, err) == (2, "error: there is no tree 'u' among 1 tree. Ids look like 't'.\n")


def test_show_outlines_a_document(ramify, tmp_path):
    path = tmp_path / "kiln.md"
    path.write_text("# Part I\n\n## Clay\n\nDig. Dig on.\n\nKnead.\n\n## Fire\n\nBurn.\n\n# Part II\n\n## Ash\n\nSift.\n")
    options = ("--format", "book", "--divisions", "level", "--levels", "chapter,paragraph,sentence")
    status, out, _ = ramify("data", "build", path, *options, "--out", tmp_path / "store")
    assert status == 0
    assert "1 document, 15 nodes" in out
    assert ramify("data", "show", tmp_path / "store", "--max-nodes", "4")[1].splitlines() == [
        "tree kiln: 15 nodes, 4 deep",
        "2 parts, 3 chapters, 4 paragraphs, 5 sentences",
        "Part I  2 chapters, 3 paragraphs, 4 sentences",
        "  Clay  2 paragraphs, 3 sentences",
        "  Fire  1 paragraph, 1 sentence",
        "Part II  1 chapter, 1 paragraph, 1 sentence",
        "… 1 more",
    ]
    status, out, _ = ramify("data", "stats", tmp_path / "store", "--json")
    info = json.loads(out)
    assert info["structure"] == "document"
    assert info["levels"] == {"document": 1, "part": 2, "chapter": 3, "paragraph": 4, "sentence": 5}
    assert info["read"] == info["nodes"] + sum(info["skipped"].values())


def test_show_tells_what_was_taken_for_front_matter(ramify, tmp_path):
    path = tmp_path / "kiln.txt"
    lines = (
        "Title: The Kiln",
        "*** START OF THE PROJECT GUTENBERG EBOOK THE KILN ***",
        "Produced by Bo Elm",
        "THE KILN",
        "Clay.",
    )
    path.write_text("\n\n".join((*lines[:-1], "CHAPTER I", lines[-1], "CHAPTER II", "Fire.")))
    for inputs, said in (
        ((path,), ["left out as front matter: credits 1, titlepage 1", f"  credits: {path}, line 5",
                   f"  titlepage: {path}, line 7", "2 chapters, 2 paragraphs, 2 sentences"]),
        ((path, tmp_path / "b.txt"), ["left out as front matter of all documents: credits 2, titlepage 2",
                                      "2 chapters, 2 paragraphs, 2 sentences"]),
    ):  # fmt: skip
        inputs[-1].write_text(path.read_text())
        assert ramify("data", "build", *inputs, "--out", tmp_path / "store", "--overwrite")[0] == 0
        out = ramify("data", "show", tmp_path / "store", "--tree", "kiln")[1].splitlines()
        assert [line for line in out[1 : 2 + len(said)] if line != "title: The Kiln"] == said


def test_stats(ramify, folder, tmp_path):
    status, out, _ = ramify("data", "stats", folder, "--json", "--out", tmp_path / "shape.svg")
    found = json.loads(out)
    assert status == 0
    assert (found["trees"], found["nodes"], found["skipped"], found["read"]) == (1, 5, {}, 5)
    assert (tmp_path / "shape.svg").exists()
    assert "depth of a node" in ramify("data", "stats", folder)[1]
    status, _, err = ramify("data", "stats", tmp_path)
    assert status == 2
    assert "is not a Ramify data set" in err


def test_stats_count_truncated_tokens(ramify, trees, folder, tmp_path):
    texts = [node["text"] for line in trees.read_text().splitlines() for node in json.loads(line)["nodes"]]
    Tokenizer.train(texts, vocab_size=60).save(tmp_path)
    lengths = [len(Tokenizer.load(tmp_path).encode(text)) for text in texts]
    status, out, _ = ramify("data", "stats", folder, "--json", "--tokenizer", tmp_path, "--max-tokens", 3)
    found = json.loads(out)["tokens"]
    over = [max(0, length - 1) for length in lengths]
    assert status == 0
    assert (found["tokens"], found["tokens_over"], found["texts_over"]) == (sum(lengths), sum(over), sum(map(bool, over)))
    assert found["share_over"] == sum(over) / sum(lengths) > 0
    assert f"{sum(over)} (" in ramify("data", "stats", folder, "--tokenizer", tmp_path, "--max-tokens", 3)[1]


@pytest.mark.parametrize("source", ["file", "folder"])
def test_split(ramify, trees, folder, source):
    data = trees if source == "file" else folder
    status, out, _ = ramify("data", "split", data, "--max-tree-size", 2, "--json")
    pieces = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert all(piece.keys() == {"tree", "context", "targets", "weights"} for piece in pieces)
    assert sorted(target for piece in pieces for target in piece["targets"]) == ["a", "b", "c", "d"]
    assert all(len(piece["context"]) + len(piece["targets"]) <= 2 for piece in pieces)
    assert {"tree": "t", "context": ["b"], "targets": ["c"], "weights": [1.0]} in pieces
    assert "4 targets" in ramify("data", "split", data, "--max-tree-size", 60, "--bound", "soft", "--no-pack")[1]


def test_split_reads_pipes(ramify, trees, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(trees.read_text()))
    writer.start()
    found = ramify("data", "split", pipe, "--max-tree-size", 2, "--json")
    writer.join()
    assert found == ramify("data", "split", trees, "--max-tree-size", 2, "--json")
    assert found[0] == 0


def test_split_refuses_invalid_trees(ramify, tmp_path):
    path = tmp_path / "forest.jsonl"
    path.write_text(Tree((Node("one"), Node("two")), id="f").to_json())
    status, _, err = ramify("data", "split", path, "--max-tree-size", 2)
    assert status == 2
    assert f"{path}, line 1: tree 'f' has 2 roots" in err
    assert ramify("data", "split", path, "--max-tree-size", 0)[0] == 2
    path.write_text(Tree((Node("one", id="a"), Node("two", (0,), id="b"), Node("three", (0, 1), id="c")), id="f").to_json())
    assert f"{path}, line 1: tree 'f', node 2 ('c') has 2 parents" in ramify("data", "split", path, "--max-tree-size", 2)[2]


def test_help_is_quick_to_import():
    """Slow imports are left to the commands that need them."""
    code = "import sys, ramify.cli; print([name for name in ('torch', 'pyarrow', 'matplotlib') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_split_that_is_empty_is_said(ramify, tmp_path):
    (tmp_path / "one.jsonl").write_text('{"id": "t", "nodes": [{"id": "a", "text": "words", "label": "good"}]}\n')
    code, _, err = ramify("data", "build", tmp_path / "one.jsonl", "--split", "0,1,0", "--out", tmp_path / "a")
    assert (code, "empty. Change the shares" in err) == (0, False)
    code, _, err = ramify("data", "build", tmp_path / "one.jsonl", "--split", "0.9,0,0.1", "--out", tmp_path / "b")
    assert (code, "note: the split t" in err) == (0, True)
    code, out, _ = ramify("data", "stats", tmp_path / "a", "--json")
    found = json.loads(out)
    assert (found["structure"], found["levels"], found["labels"]) == ("texts", {}, {"good": 1})
    code, _, err = ramify("data", "build", tmp_path / "one.jsonl", "--unit", "line", "--out", tmp_path / "c")
    assert code == 2
    assert "has no option 'unit'" in err


def test_a_split_that_takes_a_tree_of_another_is_said(ramify, tmp_path):
    """Three texts whose hashes all fall into train."""
    lines = [f'{{"id": "{name}", "nodes": [{{"id": "a", "text": "words"}}]}}\n' for name in "abc"]
    (tmp_path / "texts.jsonl").write_text("".join(lines))
    code, out, err = ramify("data", "build", tmp_path / "texts.jsonl", "--split", "0.98,0.01,0.01", "--out", tmp_path / "a")
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert code == 0
    assert [note.split("'")[0] for note in notes] == ["note: dev takes the tree ", "note: test takes the tree "]
    assert all(note.endswith(", because no hash falls into its share") for note in notes)
    assert "repaired: filled_split 2" in out
    assert "repaired: filled_split 2" in ramify("data", "stats", tmp_path / "a")[1]


def test_texts_train(ramify, tmp_path):
    lines = [f'{{"id": "t{n}", "nodes": [{{"id": "a", "text": "many plain words of text {n}"}}]}}\n' for n in range(40)]
    (tmp_path / "texts.jsonl").write_text("".join(lines))
    assert ramify("data", "build", tmp_path / "texts.jsonl", "--split", "0.5,0.5,0", "--out", tmp_path / "data")[0] == 0
    for recipe in ("bert", "tree-mlm"):
        small = ["--set", "model.dim=16", "--set", "model.num_heads=2", "--set", "model.ffn_dim=16", "--steps", "2"]
        code, _, err = ramify("train", recipe, "--data", tmp_path / "data", "--out", tmp_path / recipe, *small)
        assert code == 0, err
        code, out, err = ramify("evaluate", tmp_path / recipe, "--data", tmp_path / "data", "--split", "dev", "--json")
        assert code == 0, err
        assert json.loads(out)["count"] > 0


def test_build_with_a_pattern(ramify, tmp_path):
    log, out = tmp_path / "room.txt", tmp_path / "data"
    log.write_text("10:00 ann> hi\nmore\n10:01 bob> ho\n")
    status, _, err = ramify("data", "build", log, "--pattern", "{time} {author}> {text}", "--split", "1,0,0", "--out", out)
    assert status == 0, err
    (tree,) = Store.open(out).trees()
    assert [(node.id, node.author, node.text) for node in tree.nodes] == [("0", "ann", "hi\nmore"), ("2", "bob", "ho")]


def test_columns_that_nothing_reads_are_named_with_the_option_that_fits(ramify, tmp_path):
    """Tables of posts take `--column`; labelled texts have options of their own."""
    posts, labelled = tmp_path / "posts.csv", tmp_path / "labelled.csv"
    posts.write_text("id,parent,tree,text,mood\na,,t,x,y\n")
    labelled.write_text("text,label,mood\na,b,c\n")
    notes = {path: ramify("data", "build", path, "--out", path.with_suffix(""))[2] for path in (posts, labelled)}
    assert "unused columns: mood. Name a column with --column OURS=THEIRS." in notes[posts]
    assert "unused columns: mood. Name columns with --text, --text-pair or --label." in notes[labelled]

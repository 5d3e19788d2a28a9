"""`ramify attention`: the page of heads, and the same as JSON."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import ramify as package
from ramify import Node, Tree
from ramify.errors import RamifyError
from ramify.inference.answers import HeadWeights, StackWeights, StreamAttention
from ramify.report import attention
from ramify.report.attention import FAINTEST, LEVELS, write_attention

HOSTILE = '<script>alert("x")</script> & <b onmouseover=go>'
TREE = Tree(
    (Node(HOSTILE, id=HOSTILE), Node("Green tea.", (0,), id="n1"), Node("It is too [MASK] & <b> for me.", (1,), id="n2")),
    id="t",
)


@pytest.fixture
def trees_path(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(TREE.to_json() + "\n")
    return path


class Page(HTMLParser):
    """The elements of a page: their names and attributes, and the text inside each open element's name."""

    VOID = ("meta", "br")

    def __init__(self, content):
        super().__init__()
        self.open, self.elements, self.said = [], [], {}
        self.feed(content)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.setdefault(self.open[-1] if self.open else "", []).append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_page_holds_every_weight(ramify, trees_path, tmp_path):
    out = tmp_path / "heads.html"
    ask = ("attention", "tree-mlm-small", "--data", trees_path, "--node", "n2")
    status, printed, err = ramify(*ask, "--out", out)
    assert (status, printed) == (0, ""), err
    assert err == f"page: {out}\n"
    status, printed, err = ramify(*ask, "--json")
    assert (status, err) == (0, "")
    answer = json.loads(printed)
    tables = answer["attention"]
    assert (answer["node"], answer["context"], answer["ancestors"]) == ("n2", "tree", [HOSTILE, "n1"])
    assert [len(table["heads"]) for table in tables] == [12, 12, 1, 8, 8]
    content = out.read_text()
    page = Page(content)
    # Only these elements come from the page itself: no text of the tree became one.
    assert len(page.all("script")) == 1
    assert all("onmouseover" not in attributes for _, attributes in page.elements)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", content)
    assert [each.strip() for each in page.said["h2"]] == [
        "How to read this page",
        "Decoder: self-attention",
        "Decoder: attention to ancestors",
        "Output attention to ancestors",
        f"Encoder: ancestor {HOSTILE}",
        "Encoder: ancestor n1",
    ]
    texts = {node.id: f" {node.text}" for node in TREE.nodes}
    tokens = [token for table in tables for side in ("queries", "keys") for token in table[side]]
    # Ancestors are shown with their texts.
    assert page.said["bdi"] == [texts.get(token, token) for token in tokens]
    assert page.said["b"] == [name for table in tables for name in table["keys"] if table["kind"] == "cross"]
    heads = [head["weights"] for table in tables for head in table["heads"]]
    pictures = [each for each in page.all("button") if "data-weights" in each]
    assert len(pictures) == len(heads) == 41
    assert pictures[5]["aria-label"] == "Layer 2, head 2"
    for weights, picture in zip(heads, pictures, strict=True):
        assert np.sum(weights, -1) == pytest.approx(1, abs=1e-4)
        stored = np.frombuffer(base64.b64decode(picture["data-weights"]), "<u2") / 65535
        assert stored.reshape(np.shape(weights)) == pytest.approx(np.array(weights), abs=1e-5)
    # Everything to choose is a button, which the keyboard reaches.
    assert all(each["type"] == "button" for each in page.all("button"))
    assert len(page.all("button")) == len(pictures) + len(tokens)


def test_one_head_of_a_text(ramify, tmp_path):
    out = tmp_path / "heads.html"
    ask = ("attention", "tree-mlm-small", "--text", "The tea is [MASK].", "--layer", "3", "--head", "2", "--out", out, "--json")
    status, printed, err = ramify(*ask)
    assert status == 0, err
    (table,) = json.loads(printed)["attention"]
    assert table["queries"] == ["[CLS]", "the", "tea", "is", "[MASK]", ".", "[SEP]"]
    assert [(head["layer"], head["head"]) for head in table["heads"]] == [(3, 2)]
    page = Page(out.read_text())
    assert page.said["h1"] == ["The tea is [MASK]."]
    assert page.said["th"] == ["Head 2", "Layer 3"]
    weights = np.array(table["heads"][0]["weights"])
    exact = package.load("tree-mlm-small").attention("The tea is [MASK].", layer=3, head=2).attention[0].heads[0]
    assert weights == pytest.approx(exact.weights, abs=1e-6)
    # A small picture has a line per weight, in groups of equal strength.
    lines = {round(float(path["opacity"]) * LEVELS): path["d"].count("M") for path in page.all("path")}
    strengths = np.ceil(exact.weights[exact.weights >= FAINTEST] * LEVELS).astype(int)
    assert lines == dict(zip(*np.unique(strengths, return_counts=True), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--json",), "Missing option '--data'. Name a node with --data and --node, or give a text"),
        (("--json", "--text", "Tea.", "--node", "n2"), "--text is a text of its own, but --node names a node"),
        (("--json", "--text", "Tea.", "--out", "-"), "--out - would mix with the results"),
        (("--json", "--text", "Tea.", "--layer", "4"), "layer=4 is not in this model. Choose 1 to 3"),
        (("--json", "--text", "Tea.", "--head", "5"), "head=5 is not in this model. Choose 1 to 4"),
        (("--json", "--text", "Tea.", "--order", "forward"), "--order forward needs an XLNet"),
        (("--json", "--text", "tea " * 300), "has 300 tokens; this model reads 254"),
        (("--json", "--text", "Tea.", "--context", "null"), 'context="null" needs a model that was trained on its null row'),
        (("--text", "Tea.", "--out", "/dev/null/heads.html"), "/dev/null"),
    ],
)
def test_wrong_requests(ramify, options, message):
    status, printed, err = ramify("attention", "tree-mlm-small", *options)
    assert (status, printed, message in err) == (2, "", True), err
    assert "Traceback" not in err


def test_the_page_has_a_name_of_its_own(ramify, trees_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    trees = trees_path.rename(tmp_path / "in" / "talks.jsonl")
    for given, page in ((("--text", "Tea."), "attention.html"), (("--data", trees, "--node", "n2"), "in/talks.attention.html")):
        for _ in range(2):  # it replaces its own page
            status, printed, err = ramify("attention", "tree-mlm-small", *given, "--layer", 1)
            assert (status, printed, err) == (0, "", f"page: {tmp_path / page if 'in' in page else page}\n")
    (tmp_path / "attention.html").write_text("mine")
    status, _, err = ramify("attention", "tree-mlm-small", "--text", "Tea.")
    assert (status, (tmp_path / "attention.html").read_text()) == (2, "mine")
    assert "error: attention.html exists, and would be overwritten. Name the file to write with --out" in err


def test_models_without_texts(ramify):
    status, _, err = ramify("attention", "links", "--text", "Tea.", "--json")
    assert (status, "links cannot show attention heads; it supports disentangle, follow." in err) == (2, True)


def test_page_on_standard_output(ramify):
    status, printed, _ = ramify("attention", "tree-mlm-small", "--text", "Tea.", "--layer", "1", "--out", "-")
    assert status == 0
    assert printed.startswith("<!doctype html>")


def test_orders_are_named_and_large_pages_refused(tmp_path, monkeypatch):
    weights = np.array([[0.0, 0.0], [1.0, 0.0]])
    words, heads = ("a", "<i>"), (HeadWeights(1, 1, weights),)
    tables = tuple(StackWeights("streams", kind, "", words, words, heads) for kind in ("content", "query"))
    answer = StreamAttention("", "none", (), "random", (1, 0), tables)
    write_attention(tmp_path / "page.html", answer, "run", {"": "a <i>"})
    page = Page((tmp_path / "page.html").read_text())
    assert "run reads this text in the factorization order <i> → a." in "".join(page.said["p"])
    assert [path["d"] for path in page.all("path")] == ["M3 48L73 16"] * 2
    monkeypatch.setattr(attention, "MAX_SHOWN", 7)
    with pytest.raises(RamifyError, match=r"the page would hold 8 weights, .* \(at most 7\)"):
        write_attention(tmp_path / "page.html", answer, "run", {})

"""Vectors, reconstruction, coherence and neighbours of the nodes of documents."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import ramify
from fixtures import built, discussion
from fixtures.letters import LETTERS, letter, letters, pipeline, tokenizer
from ramify import Node, RamifyError, Tree
from ramify.batching.document_batch import CONT, EOS, JOIN, NUM_MARKS
from ramify.batching.levels import Levels
from ramify.batching.views.documents import LevelInput
from ramify.dataset.store import Store
from ramify.errors import CannotError
from ramify.inference.documents import node_reconstruction, vectors
from ramify.inference.documents.decoding import DecodedRow
from ramify.inference.documents.node_reconstruction import DecodedText, as_text, token_accuracy
from ramify.inference.documents.pipeline import DocumentEncoder
from ramify.inference.documents.table import write_level
from ramify.inference.documents.text import as_document, texts_of_nodes
from ramify.inference.documents.vectors import encode_documents, encode_nodes, in_groups, read_documents
from ramify.nn.ragged import Rows
from ramify.tasks.nested.config import NestedAutoencoderConfig

LEVELS = ("sentence", "paragraph", "chapter", "document")


@pytest.fixture(scope="module")
def model():
    return pipeline()


def ids(level, trees=None):
    return [(tree.id, node.id) for tree in trees or letters() for node in tree.nodes if node.kind == level]


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


# --- text and documents ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "kinds"),
    [
        ("sentence", ["document", "sentence"]),
        ("paragraph", ["document", "paragraph", "sentence", "sentence"]),
        ("chapter", ["document", "chapter", "paragraph", "sentence", "paragraph", "sentence"]),
        ("document", ["document", "paragraph", "sentence", "paragraph", "sentence"]),
    ],
)
def test_a_text_is_one_node_of_a_level(level, kinds):
    text = "Ann came.\n\nBob\nleft." if level in ("chapter", "document") else "Ann came. Bob left."
    tree = as_document(text, LEVELS, LEVELS.index(level))
    assert [node.kind for node in tree.nodes] == kinds
    assert " ".join(node.text for node in tree.nodes if node.text) == "Ann came. Bob left."


def test_texts_of_nodes_separate_paragraphs_by_blank_lines():
    tree = letter("harbour", LETTERS["harbour"])
    texts = dict(zip((node.id for node in tree.nodes), texts_of_nodes(tree, range(len(tree)))))
    assert texts["1.1"] == "The boat came in at noon. Nobody waved."
    assert texts["1"] == "The boat came in at noon. Nobody waved.\n\nIt carried salt and two goats."
    assert texts["0"].count("\n\n") == 2
    assert texts["2.1.2"] == "The rope broke."


# --- vectors --------------------------------------------------------------------------------------------------------------


def test_strings_have_the_vector_of_the_equal_node(model):
    tree = letter("harbour", LETTERS["harbour"])
    of_tree = model.embed(tree, level="paragraph")
    of_text = model.embed(["The boat came in at noon. Nobody waved.", ""], level="paragraph")
    assert of_text.shape == (2, 16)
    close(of_text[0], of_tree[0])
    # A text has one chapter, and so have these two documents.
    one = letter("one", [LETTERS["harbour"][0]])
    close(model.embed("\n\n".join(texts_of_nodes(one, [0])), level="document"), model.embed(one, level="document"))


def test_vectors_do_not_depend_on_other_documents(model, monkeypatch, tmp_path):
    store = built(letters(), tmp_path)
    together = model.embed(store.trees(), level="paragraph")
    assert len(together) == len(ids("paragraph"))
    monkeypatch.setattr(vectors, "NODES", 1)
    monkeypatch.setattr(vectors, "TOKENS", 9)
    index = model.index(store, level="paragraph")
    close(index.vectors, together / np.linalg.norm(together, axis=1, keepdims=True))
    close(model.embed(store.trees(), level="paragraph"), together)


def test_a_node_that_was_cut_has_the_mean_of_its_pieces(model):
    long = " ".join(["the boat came in"] * 5)
    store = Store.from_trees([letter("long", [[[long]]])])
    found = encode_nodes(model.backbone, model.tokenizer, model.input, store, np.array([0]), 0)
    view, collator = read_documents(model.backbone, model.tokenizer, model.input, store, np.array([0]))
    rows = encode_documents(model.backbone, view, collator).vectors[0]
    assert found.pieces.tolist() == [len(rows)] == [-(-found.num_tokens // 7)]
    close(found.vectors[0], rows.mean(0))


def test_packed_nodes_are_encoded_without_their_neighbours():
    packed = pipeline(max_children=(16, 4, 4, 4), input=LevelInput(overflow="pack"))
    model = pipeline(max_children=(16, 4, 4, 4))
    tree = letter("pairs", [[["We ate.", "Ann.", "We began again."]]])
    store = Store.from_trees([tree])
    view, _ = read_documents(packed.backbone, packed.tokenizer, packed.input, store, np.array([0]))
    assert view.rows.levels[0].num_packed >= 2
    own = packed.embed(tree, level="sentence")
    close(own, np.concatenate([packed.embed(node.text, level="sentence") for node in tree.nodes if node.text]))
    close(own, model.embed(tree, level="sentence"))
    # Above, rows below stay packed.
    assert np.abs(packed.embed(tree, level="paragraph") - model.embed(tree, level="paragraph")).max() > 1e-4
    chapters = letter("two", [[["We ate."]], [["Ann."]]])
    assert Store.from_trees([chapters]).num_nodes == len(chapters)
    close(packed.embed(chapters, level="chapter")[1], packed.embed("Ann.", level="chapter")[0])


def test_truncated_children_are_counted():
    short = pipeline(input=LevelInput(overflow="truncate"))
    tree = letter("long", [[["the boat came in " * 5, "Ann."]]])
    found = encode_nodes(short.backbone, short.tokenizer, short.input, Store.from_trees([tree]), np.array([0]), 1)
    assert found.left_out == len(short.tokenizer.encode(tree.nodes[3].text)) - 7
    judged = short.coherence(tree)
    assert judged.children_left_out == found.left_out
    tokens = next(node for node in judged.nodes if node.level == "sentence").children
    assert [child.score is None for child in tokens] == [place >= 7 for place in range(len(tokens))]
    assert short.reconstruct(tree).children_left_out == found.left_out


def test_a_missing_level_is_filled_and_has_no_vector_of_its_own(model):
    tree = Tree((Node(id="0", kind="document"), Node("Ann came.", (0,), id="1", kind="sentence")), id="short")
    assert model.embed(tree, level="chapter").shape == (0, 20)
    assert model.embed(tree, level="sentence").shape == (1, 12)
    assert len(model.embed([tree, *letters()], level="chapter")) == len(ids("chapter"))
    index = model.index(letters(), level="chapter")
    with pytest.raises(RamifyError, match="holds no chapter"):
        model.index([tree], level="chapter")
    assert len(index) == 6


def test_a_document_without_any_level_of_the_model_is_read_beside_others():
    sentences = pipeline(levels=("sentence",))
    bare = Tree((Node(id="0", kind="document"), Node("Ann came.", (0,), id="1", kind="paragraph")), id="bare")
    store = Store.from_trees([bare, *letters()])
    found = encode_nodes(sentences.backbone, sentences.tokenizer, sentences.input, store, np.array([0]), 0)
    assert found.nodes.stored.tolist() == [False]
    assert found.flattened == {"document": 1, "paragraph": 1}
    with pytest.raises(RamifyError, match="the documents have the levels document, paragraph, but none of sentence"):
        sentences.embed(bare)


@pytest.mark.parametrize("padding", ["packed", "full"])
def test_rows_of_text_and_of_nothing(padding):
    model = pipeline(padding=padding)
    assert model.embed([], level="document").shape == (0, 20)
    assert np.isfinite(model.embed(["", " \n\n ", "Ann."], level="document")).all()
    close(model.embed("", level="document"), model.embed(" \n\n ", level="document"))


def test_what_is_refused(model):
    with pytest.raises(RamifyError, match=r"no level .part.\. Its levels are sentence, paragraph, chapter, document"):
        model.embed("Ann.", level="part")
    with pytest.raises(RamifyError, match="holds replies, not documents"):
        model.embed(discussion([-1, 0, 0]), level="sentence")


@pytest.mark.ill_typed
def test_other_types_are_refused(model):
    with pytest.raises(RamifyError, match="trees and strings, not int"):
        model.embed([3])


# --- files of vectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_one_row_per_stored_node_in_store_order(model, level, tmp_path):
    store = built(letters(), tmp_path)
    done = []
    totals = write_level(model, store.path, tmp_path / "v.parquet", "parquet", level, done.append, ["split", "text"])
    table = pq.read_table(tmp_path / "v.parquet")
    ordered = list(store.trees())
    assert table.column_names == ["tree", "id", "level", "split", "text", "vector", "pieces"]
    assert list(zip(table["tree"].to_pylist(), table["id"].to_pylist(), strict=True)) == ids(level, ordered)
    assert set(table["level"].to_pylist()) == {level}
    close(np.array(table["vector"].to_pylist()), model.embed(ordered, level=level))
    assert totals.vectors == len(table)
    assert totals.cut == sum(each > 1 for each in table["pieces"].to_pylist())
    assert sum(done) == totals.tokens


def test_a_matrix_and_a_file_of_trees(model, tmp_path):
    built(letters(), tmp_path)
    totals = write_level(model, tmp_path / "trees.jsonl", tmp_path / "v.npy", "npy", "paragraph", lambda _: None)
    close(np.load(tmp_path / "v.npy"), model.embed(letters(), level="paragraph"))
    lines = (tmp_path / "v.npy.ids.tsv").read_text().splitlines()
    assert [tuple(line.split("\t")[:2]) for line in lines] == ids("paragraph")
    assert lines[0].split("\t")[2:] == ["paragraph", "1"]
    assert totals.vectors == 10


def test_counts_of_a_data_set(model, tmp_path):
    strange = Tree((Node(id="0", kind="document"), Node("ЖЩЮ ЖЩЮ", (0,), id="1", kind="verse")), id="strange")
    store = built([*letters(), strange], tmp_path)
    totals = write_level(model, store.path, tmp_path / "v.parquet", "parquet", "chapter", lambda _: None)
    assert (totals.documents_without, totals.filled, dict(totals.flattened)) == (1, 1, {"verse": 1})
    assert totals.unknown == 2
    with pytest.raises(RamifyError, match="holds no chapter"):
        write_level(model, built([strange], tmp_path / "b").path, tmp_path / "n.parquet", "parquet", "chapter", lambda _: None)
    assert not (tmp_path / "n.parquet").exists()


# --- reconstruction -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", [{}, {"decoder": "autoregressive"}, {"decoder_length": "predicted"}])
@pytest.mark.parametrize("level", LEVELS)
def test_reconstruction_of_each_node(level, decoder):
    tree = letters()[1]
    found = pipeline(**decoder).reconstruct(tree, level=level)
    assert found.level == level
    assert [node.id for node in found.nodes] == [each for _, each in ids(level, [tree])]
    own = tokenizer()
    for node in found.nodes:
        assert (node.token_accuracy is None) == (not node.text and not node.predicted_length)
        assert node.complete
        assert bool(node.reconstruction) <= bool(node.predicted_length)
    assert found.tokens == sum(len(own.encode(node.text)) for node in tree.nodes)


def script(monkeypatch, *steps):
    """Let the decoders answer these rows, from the highest level down. A row is a list of slots that ends in a mark."""
    waiting = [*steps]

    def decode(task, level, vectors, candidates=None, banks=None):
        rows = waiting.pop(0)
        assert len(rows) == len(vectors)
        assert (candidates is None) == (level == 0)
        dim = task.backbone.config.dims[level]
        states = [np.zeros((len(row), dim), np.float32) for row in rows]
        return [
            DecodedRow(np.array(row[:-1], np.int64), row[-1] == CONT, True, zeros, zeros)
            for row, zeros in zip(rows, states, strict=True)
        ]

    monkeypatch.setattr(node_reconstruction, "decode_children", decode)


def spelled(model, text, end=EOS):
    return [NUM_MARKS + each for each in model.tokenizer.encode(text)] + [end]


def test_pieces_that_continue_are_glued(model, monkeypatch):
    child = NUM_MARKS
    script(
        monkeypatch,
        [[child, child, child, EOS]],
        [spelled(model, "the bo", CONT), spelled(model, "at came"), spelled(model, "we")],
    )
    node = model.reconstruct("Ann came.", level="paragraph").nodes[0]
    one = [*model.tokenizer.encode("the bo"), *model.tokenizer.encode("at came")]
    assert node.reconstruction == f"{model.tokenizer.decode(one)} we"
    assert node.predicted_length == len(one) + len(model.tokenizer.encode("we"))


def test_texts_of_longer_nodes_have_paragraphs_and_packed_sentences(model, monkeypatch):
    child = NUM_MARKS
    packed = [*spelled(model, "ann", JOIN), *spelled(model, "bob")]
    script(
        monkeypatch,
        [[child, child, EOS]],
        # The first paragraph continues in the second row, and an empty sentence stands in between.
        [[child, CONT], [child, child, JOIN, child, EOS]],
        [spelled(model, "we"), [EOS], packed, spelled(model, "it")],
    )
    assert model.reconstruct("x\n\ny", level="chapter").nodes[0].reconstruction == "we ann bob\n\nit"


def test_cut_nodes_are_decoded_piece_by_piece(model, monkeypatch):
    long = "the boat came in the boat came in"
    pieces = -(-len(model.tokenizer.encode(long)) // 7)
    script(monkeypatch, [spelled(model, "the boat", CONT)] * pieces)
    node = model.reconstruct(letter("long", [[[long]]])).nodes[0]
    assert node.predicted_length == pieces * len(model.tokenizer.encode("the boat"))


def test_a_runaway_decoder_is_stopped_and_said_to_be(model, monkeypatch):
    child = NUM_MARKS
    monkeypatch.setattr(node_reconstruction, "MOST_ROWS", 2)
    script(monkeypatch, [[child, child, child, EOS]], [spelled(model, "we"), spelled(model, "it")])
    node = model.reconstruct("Ann came.", level="paragraph").nodes[0]
    assert (node.reconstruction, node.complete) == ("we it", False)


def test_token_accuracy():
    def accuracy(one, other):
        return token_accuracy(np.array(one, dtype=np.int64), np.array(other, dtype=np.int64))

    assert accuracy([1, 2, 3], [1, 2, 3]) == 1
    assert accuracy([1, 2, 3], [1, 9]) == pytest.approx(1 / 3)
    assert accuracy([1, 2], [1, 2, 3, 4]) == 0.5
    assert accuracy([], [3]) == 0
    assert accuracy([], []) is None


def test_text_of_no_tokens():
    assert as_text(tokenizer(), LEVELS, DecodedText(np.zeros(0, np.int64), np.zeros(0, np.int64), True)) == ""


# --- coherence ------------------------------------------------------------------------------------------------------------


def by_probing(model, text):
    """The scores of a sentence's tokens, one pass each."""
    level = model.backbone.encoder(0)
    ids = model.tokenizer.encode(text)
    slots = torch.tensor([*(NUM_MARKS + each for each in ids), EOS])
    rows = Rows.build([len(slots)])
    found = []
    for place in range(len(ids)):
        segments = torch.zeros_like(slots)
        segments[place] = 1
        with torch.no_grad():
            vector = level.row_vectors(level.states(level.items(None), slots, rows, segments), slots, rows)
            found.append(1 - min(1.0, len(ids) * float(model.task.checkers[0](vector))))
    return found


def likelier(**task):
    """A model whose checkers say a small share, so that scores are neither 0 nor 1."""
    model = pipeline(max_children=(16, 4, 4, 4), task=NestedAutoencoderConfig(**task))
    with torch.no_grad():
        for checker in model.task.checkers:
            checker.out.bias.fill_(-4)
    return model


def test_probing_marks_each_child_alone():
    model = likelier()
    tree = letters()[0]
    found = model.coherence(tree)
    assert [(node.id, node.level) for node in found.nodes] == [(node.id, node.kind) for node in tree.nodes]
    for node in found.nodes:
        scores = [child.score for child in node.children]
        assert node.score == pytest.approx(np.mean(scores), abs=1e-9)
        assert 0 < node.score < 1
    sentence = next(node for node in found.nodes if node.id == "2.1.2")
    close([child.score for child in sentence.children], by_probing(model, "The rope broke."))
    assert [child.token for child in sentence.children] == [
        model.tokenizer.token(each) for each in model.tokenizer.encode("The rope broke.")
    ]
    chapter = next(node for node in found.nodes if node.id == "1")
    assert [child.id for child in chapter.children] == ["1.1", "1.2"]


def test_copies_of_rows_stay_apart_in_batches(monkeypatch):
    model = likelier()
    whole = model.coherence(letters()[1])
    monkeypatch.setattr("ramify.inference.documents.node_coherence.TOKENS", 7)
    for one, other in zip(model.coherence(letters()[1]).nodes, whole.nodes, strict=True):
        assert [child.id for child in one.children] == [child.id for child in other.children]
        close([each.score for each in one.children], [each.score for each in other.children])


def test_nodes_without_children_have_no_score():
    found = {node.id: node for node in likelier().coherence(letters()[1]).nodes}
    assert (found["1.1"].score, found["1.1"].children) == (None, ())
    assert found["3.1.2"].score is None
    assert found["0"].score is not None


def test_cut_and_packed_nodes_are_scored_one_by_one():
    tree = letter("long", [[["the boat came in " * 3, "Ann.", "We."]]])
    for model in (pipeline(), pipeline(max_children=(16, 4, 4, 4), input=LevelInput(overflow="pack"))):
        found = model.coherence(tree).nodes
        assert [node.id for node in found] == [node.id for node in tree.nodes]
        sentence = found[3]
        assert len(sentence.children) == len(model.tokenizer.encode(tree.nodes[3].text))
        assert all(child.score is not None for node in found for child in node.children)


def test_without_marks_nodes_are_judged_in_one_pass():
    model = likelier(marks="none")
    found = model.coherence("The rope broke.", levels=["sentence"])
    assert found.marks == "none"
    node = found.nodes[0]
    assert node.children is None
    level = model.backbone.encoder(0)
    slots = torch.tensor(spelled(model, "The rope broke."))
    rows = Rows.build([len(slots)])
    with torch.no_grad():
        vector = level.row_vectors(level.states(level.items(None), slots, rows), slots, rows)
        share = model.task.checkers[0](vector)
    assert node.score == pytest.approx(1 - float(share), abs=1e-6)


def test_models_of_sentences_judge_each_sentence_of_a_text():
    model = pipeline(levels=("sentence",))
    found = model.coherence("Ann planted beans. We ate them.\n\nIt rained.").nodes
    assert [node.level for node in found] == ["sentence"] * 3
    assert [len(node.children) for node in found] == [
        len(model.tokenizer.encode(each)) for each in ("Ann planted beans.", "We ate them.", "It rained.")
    ]


@pytest.mark.parametrize(("loss", "verb"), [("reconstruction", "reconstruct"), ("coherence", "coherence")])
def test_a_model_trained_without_a_loss_does_not_guess(loss, verb):
    model = pipeline(task=NestedAutoencoderConfig(**{loss: 0.0}))
    with pytest.raises(RamifyError, match=f"task.{loss}=0"):
        getattr(model, verb)("Ann.")


# --- neighbours -----------------------------------------------------------------------------------------------------------


def test_nearest_nodes(model):
    index = model.index(letters(), level="sentence")
    found = model.nearest("The rope broke.", index, k=3).nearest
    assert (found[0].tree, found[0].id, found[0].text) == ("harbour", "2.1.2", "The rope broke.")
    assert found[0].score == pytest.approx(1, abs=1e-5)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    vectors = model.embed(letters(), level="sentence")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    own = ids("sentence").index(("harbour", "2.1.2"))
    cosines = np.delete(vectors @ vectors[own], own)
    others = model.nearest(("harbour", "2.1.2"), index, k=100).nearest
    close([each.score for each in others], np.sort(cosines)[::-1])
    assert ("harbour", "2.1.2") not in [(each.tree, each.id) for each in others]


def test_nodes_that_an_index_lacks(model):
    index = model.index(letters(), level="paragraph")
    with pytest.raises(RamifyError, match="no paragraph, but a sentence"):
        index.nodes.place("1.1.1", "harbour")
    with pytest.raises(RamifyError, match="in 3 trees, such as 'harbour' and 'garden'"):
        index.nodes.place("1.1")
    with pytest.raises(RamifyError, match="vectors of length 12"):
        model.nearest("Ann.", index, level="sentence")
    note = Node("Fin.", (0,), id="9")
    index = model.index([Tree((*letters()[0].nodes, note), id="harbour")], level="paragraph")
    with pytest.raises(RamifyError, match="no paragraph, but a node without a kind"):
        index.nodes.place("9")


# --- saved models ---------------------------------------------------------------------------------------------------------


def test_a_saved_model_gives_the_same_answers(model, tmp_path):
    ramify.save(model, tmp_path / "model")
    loaded = ramify.load(tmp_path / "model")
    tree = letters()[0]
    close(loaded.embed(tree), model.embed(tree))
    assert loaded.reconstruct(tree) == model.reconstruct(tree)
    assert 'model.embed(trees, level="paragraph")' in (tmp_path / "model/README.md").read_text()


def test_the_encoder_alone(model, tmp_path):
    model.kind = "nested-documents"
    encoder = model.encoder_only()
    assert [name for name, _ in encoder.module.named_children()] == ["backbone"]
    ramify.save(encoder, tmp_path / "encoder")
    loaded = ramify.load(tmp_path / "encoder")
    assert isinstance(loaded, DocumentEncoder)
    assert loaded.kind == encoder.kind == model.kind
    assert json.loads((tmp_path / "encoder/config.json").read_text())["task"]["encoder_only"] is True
    for level in LEVELS:
        close(loaded.embed(letters(), level=level), model.embed(letters(), level=level))
    assert len(loaded.nearest("Ann.", loaded.index(letters()), k=2).nearest) == 2
    with pytest.raises(CannotError, match="has no reconstruct; it can embed, nearest"):
        loaded.reconstruct("Ann.")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("encoder",)]
    assert sizes[0] < sum(each.numel() * 4 for each in model.module.parameters())


def test_groups_hold_whole_documents(monkeypatch, tmp_path):
    assert [each.tolist() for each in in_groups(Store.from_trees(letters()))] == [[0, 1, 2]]
    store = built(letters(), tmp_path)
    monkeypatch.setattr(vectors, "NODES", 20)
    groups = [each.tolist() for each in in_groups(store)]
    assert [tree for group in groups for tree in group] == [0, 1, 2]
    assert len(groups) > 1
    levels = [Levels.open(store, tokenizer(), LEVELS, np.array(each)) for each in groups]
    assert sum(len(each.ids) for each in levels) == len(Levels.open(store, tokenizer(), LEVELS, np.arange(3)).ids)

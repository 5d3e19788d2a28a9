"""The command generate on models with generators."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

import ramify
from fixtures import built, tokenizer
from fixtures.commands import call, refusal
from fixtures.nested import SMALL_RUN, books, config, novels, writing
from ramify.batching.views.documents import LevelInput
from ramify.batching.views.pairs import PairInput
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.documents import generate
from ramify.inference.documents.generate import DocumentGenerator
from ramify.inference.documents.known_vectors import KnownVectors
from ramify.inference.translate import next_token_pipeline
from ramify.models.name_memory import NameMemoryConfig
from ramify.models.transformer import TransformerConfig
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.tasks.nested_adversary import NestedAdversary, NestedAdversaryConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM

SMALL = {"train.steps": "2", "train.evaluate_every": "2", "train.checkpoint_every": "2", "train.log_every": "1"}
OWN = {"task.maps": "4", "task.vectors": "8", "dev.vectors": "16", "dev.texts": "2", "train.budget": "8"}
LEVELS = ("sentence", "paragraph", "chapter", "document")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(novels(6), tmp_path_factory.mktemp("data"), split=(0.5, 0.3, 0.2))


@pytest.fixture(scope="module")
def agent(store, tmp_path_factory):
    settings = SMALL_RUN | SMALL | {"train.budget": "200", "task.queue": "0", "task.scores": "cosine", "task.balanced": "false"}
    settings |= {"model.decoder_length": "predicted"}
    out = tmp_path_factory.mktemp("agent") / "run"
    execute(RECIPES["agent"](str(store.path), joint=True).changed(settings), out, cpu=True)
    return out


@pytest.fixture(scope="module")
def generator(store, agent, tmp_path_factory):
    """A run whose model has larger weights, so that its decoders write."""
    out = tmp_path_factory.mktemp("generator") / "run"
    execute(RECIPES["agent-gan"](str(store.path), init=str(agent)).changed(SMALL | OWN), out, cpu=True)
    model = ramify.load(out)
    writing(model.task, 0.2)
    own = tmp_path_factory.mktemp("loud") / "run"
    ramify.save(model, own)
    (own / "run.json").write_text((out / "run.json").read_text())
    return own


def generated(*words):
    return json.loads(call("generate", *words, "--json").stdout)


@pytest.mark.parametrize("level", ["paragraph", "chapter", "document"])
def test_texts_are_generated_with_their_neighbours(generator, store, level):
    found = generated(generator, "--level", level, "--count", 3, "--seed", 4)
    assert len(found) == 3
    for each in found:
        assert list(each) == ["text", "coherence", "nearest_training_id", "nearest_text"]
        assert each["coherence"] is None or 0 <= each["coherence"] <= 1
        tree, node = each["nearest_training_id"].split(" ")
        number = store.find(node, tree)
        assert store.column("kind", [number]).to_pylist() == [level]
        assert store.tree_of([number])[0] in store.split("train")
        assert each["nearest_text"]
    assert found == generated(generator, "--level", level, "--count", 3, "--seed", 4)
    assert found[:2] == generated(generator, "--level", level, "--count", 2, "--seed", 4)
    # A random decoder may write documents without a sentence.
    if level != "document":
        assert any(each["text"] for each in found)
        assert found != generated(generator, "--level", level, "--count", 3, "--seed", 5)


def test_copyediting_that_moves_nothing_changes_no_text(generator):
    words = ("--level", "chapter", "--count", 2, "--seed", 4)
    assert generated(generator, *words, "--epsilon", 0) == generated(generator, *words, "--copyedit", 0)
    assert generated(generator, *words, "--epsilon", 1) != generated(generator, *words, "--epsilon", 0)


def test_the_nearest_neighbour_is_that_of_the_text(generator, store):
    model = ramify.load(generator)
    known = model.known_vectors(store)
    (text,) = model.generate(level="paragraph", seed=4, known=known, versions=True).texts
    document = text.versions[-1].document
    vectors = model.embed(document, level="paragraph")
    every = known.levels[1]
    cosines = (vectors[0] @ every.T) / np.linalg.norm(every, axis=1)
    node = known.nodes[1][cosines.argmax()]
    assert text.nearest_training_id == f"{store.tree_ids(store.tree_of([node]))[0]} {store.ids([node])[0]}"


def test_copyediting_comes_before_the_text_and_can_be_turned_off(generator, store):
    model = ramify.load(generator)
    known = model.known_vectors(store)
    plain, edited = (model.generate(level="chapter", count=4, copyedit=number, known=known) for number in (0, 3))
    assert model.generate(level="chapter", count=4, copyedit=0, known=known) == plain
    assert [each.text for each in plain.texts] != [each.text for each in edited.texts]
    (drawn,) = model.generate(level="chapter", copyedit=3, known=known, versions=True).texts
    before, after = drawn.versions
    assert " ".join(node.text for node in before.document.nodes if node.text).split() == plain.texts[0].text.split()
    assert " ".join(node.text for node in after.document.nodes if node.text).split() == edited.texts[0].text.split()
    (kept,) = model.generate(level="chapter", copyedit=0, known=known, versions=True).texts
    assert len(kept.versions) == 1


def test_generated_texts_are_drawn(generator, tmp_path):
    page = tmp_path / "page.html"
    shown = call("generate", generator, "--level", "chapter", "--count", 2, "--out", page)
    assert "nearest in training: d" in shown.stdout
    drawn = page.read_text()
    assert drawn.count("Before copyediting") == drawn.count("After copyediting") == 2
    assert "nearest, " in drawn


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--level", "page"), "the model has no level 'page'. Its levels are sentence, paragraph"),
        (("--prompt", "The moon"), "generates documents from noise alone"),
        (("--tokens", 9), "--tokens 9 needs a model that predicts the next token"),
        (("--data", "nowhere"), "nowhere"),
    ],
)
def test_what_generators_cannot_do_is_refused(generator, words, reason):
    assert reason in refusal("generate", generator, *words)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"seed": -1}, "seed=-1 is out of range"),
        ({"seed": -1, "copyedit": 0}, "seed=-1"),
        ({"copyedit": -1}, "copyedit=-1 is the"),
        ({"epsilon": 2.0}, "epsilon=2 is a share"),
    ],
)
def test_negative_numbers_are_refused(generator, options, reason):
    with pytest.raises(RamifyError, match=reason):
        ramify.load(generator).generate(level="paragraph", **options)


@pytest.mark.parametrize("command", ["generate", "copyedit"])
def test_commands_take_no_negative_seed(generator, store, command):
    words = {"generate": ("--level", "paragraph"), "copyedit": ("--data", store.path, "--tree", "d0")}[command]
    assert "seed=-1 is out of range" in refusal(command, generator, *words, "--seed", "-1")


def test_a_model_without_generators_names_the_recipe(agent):
    assert "`ramify train agent-gan`" in refusal("generate", agent, "--level", "paragraph")


def test_a_level_whose_generator_has_not_learned_is_refused(store, agent, tmp_path):
    out = tmp_path / "run"
    run = RECIPES["agent-gan"](str(store.path), init=str(agent)).changed(SMALL | OWN | {"task.levels": '["paragraph"]'})
    execute(run, out, cpu=True)
    assert re.search(
        r"level=chapter has a generator that has learned nothing; those of paragraph have.*agent-gan",
        refusal("generate", out, "--level", "chapter"),
    )


@pytest.mark.parametrize("level", ["paragraph", "document"])
def test_a_generated_document_reads_names_of_its_own(level, monkeypatch):
    torch.manual_seed(0)
    names = NameMemoryConfig(questions=3, filters=8)
    own = NestedAdversary(config(names=names).build(), tokenizer(), LevelInput(), NestedAdversaryConfig(maps=4)).eval()
    model = DocumentGenerator(own)
    makes, decodes, documents, decoded = own.generated_names, generate.decoded_tree, [], []

    def made(vectors, answers):
        documents.append(vectors)
        return makes(vectors, answers)

    def written(task, number, vectors, *others):
        decoded.append(torch.from_numpy(vectors))
        return decodes(task, number, vectors, *others)

    monkeypatch.setattr(own, "generated_names", made)
    monkeypatch.setattr(generate, "decoded_tree", written)
    model.generate(level=level, count=2, known=model.known_vectors(Store.from_trees(books(4))))
    (vectors,) = decoded
    assert len(documents) == len(vectors) == 2
    assert torch.equal(torch.cat(documents), vectors) == (level == "document")


def test_known_vectors_of_another_model_are_refused(generator, agent, store):
    other, model = ramify.load(agent), ramify.load(generator)
    known = KnownVectors.of(other.backbone, other.tokenizer, other.input, store)
    with pytest.raises(RamifyError, match="made by another model"):
        model.generate(level="paragraph", known=known)
    with pytest.raises(RamifyError, match="--data DIR"):
        model.generate(level="paragraph")


def test_other_splits_of_the_data_have_known_vectors_of_their_own(agent, store, tmp_path):
    model = ramify.load(agent)
    other = built(novels(6), tmp_path, split=(0.98, 0.01, 0.01))
    assert other.hash == store.hash
    first = KnownVectors.of(model.backbone, model.tokenizer, model.input, store)
    for folder in store.path.glob("vectors-known-*"):
        shutil.copytree(folder, other.path / folder.name)
    known = KnownVectors.of(model.backbone, model.tokenizer, model.input, other)
    assert set(other.tree_of(known.nodes[0])) == set(other.split("train"))
    assert set(other.tree_of(known.nodes[0])) != set(store.tree_of(first.nodes[0]))
    assert len(list(other.path.glob(f"vectors-known-{known.model[:16]}-*"))) == 2


def test_a_run_without_its_data_asks_for_them(generator, tmp_path):
    model = ramify.load(generator)
    ramify.save(model, tmp_path / "model")
    assert "has no run.json, which names its training data. Name the data set" in refusal("generate", tmp_path / "model")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--level", "paragraph"), "--level paragraph needs a model with generators of documents (`ramify train agent-gan`)"),
        (("--count", 2), "--count 2 needs a model with generators"),
        (("--copyedit", 3), "--copyedit 3 needs a model with generators"),
        (("--out", "page.html"), "--out page.html needs a model with generators"),
        (("--data", "data"), "--data data needs a model with generators"),
    ],
)
def test_options_of_generators_are_refused_by_language_models(tmp_path, words, reason):
    own = tokenizer()
    config = TransformerConfig(vocab_size=own.vocab_size, dim=16, num_heads=2, ffn_dim=32, encoder_layers=0, decoder_layers=1)
    model = next_token_pipeline(NextTokenLM(config.build(), own, PairInput(), NextTokenConfig()).eval())
    ramify.save(model, tmp_path / "gpt")
    assert reason in refusal("generate", tmp_path / "gpt", *words)
    assert call("generate", tmp_path / "gpt", "--tokens", 3, "--json").stdout

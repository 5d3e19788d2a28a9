"""Directories that the newest sentence-transformers saves embed here as there, and those of Ramify are loaded there."""

import json
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from test_bert_family import COMMON
from test_exports import TEXTS, trained

import ramify
from fixtures import built, discussions
from ramify.errors import RamifyError
from ramify.hub import export_hugging_face

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

ASKED = [*TEXTS, "", "UNTIL THE BREAD IS DONE " * 12]


@cache
def library():
    """Its import takes seconds, which only the process that runs these tests needs to wait."""
    return pytest.importorskip("sentence_transformers", reason="parity needs sentence-transformers")


PROMPTS = {"query": "what does the oven do: ", "document": "An answer: "}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A random BERT, with the tokenizer that both libraries read."""
    folder, whole = (tmp_path_factory.mktemp(name) for name in ("bare", "whole"))
    torch.manual_seed(0)
    tokenizer = trained("wordpiece", lowercase=False)
    model = transformers.BertModel(transformers.BertConfig(**COMMON | {"vocab_size": tokenizer.vocab_size}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    export_hugging_face(ramify.load(folder), whole)
    return whole


def saved(encoder, folder, mode="mean", *, normalize=False, pooled=True, prompts=None, default=None, **settings):
    """A model that the newest release saves, read by it again."""
    modules = library().sentence_transformer.modules
    first = modules.Transformer(str(encoder), **settings)
    parts = [first, modules.Pooling(COMMON["hidden_size"], mode, include_prompt=pooled)]
    parts += [modules.Normalize()] if normalize else []
    model = library().SentenceTransformer(modules=parts, prompts=prompts, default_prompt_name=default, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return library().SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def published(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    saved(encoder, folder, normalize=True)
    return folder


def change(file, **settings):
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def assert_same(theirs, own, texts=ASKED):
    np.testing.assert_allclose(own.embed(texts), theirs.encode(texts), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize": True, "prompts": PROMPTS},
        {"mode": "cls", "max_seq_length": 16},
        {"mode": "max", "normalize": True, "do_lower_case": True},
        {"prompts": PROMPTS, "default": "query", "do_lower_case": True},
        {"prompts": PROMPTS, "default": "query", "pooled": False, "normalize": True},
        {"mode": "cls", "prompts": PROMPTS, "default": "document", "pooled": False, "max_seq_length": 12},
    ],
)
def test_directories_of_the_newest_release_embed_as_there(encoder, tmp_path, settings):
    theirs = saved(encoder, tmp_path / "theirs", **settings)
    own = ramify.load(tmp_path / "theirs")
    assert_same(theirs, own)
    if not settings.get("pooled", True):
        with pytest.raises(RamifyError, match=r"input\.overflow=chain does not fit a prompt"):
            ramify.load(tmp_path / "theirs", input={"overflow": "chain"})
    assert own.max_tokens == theirs.max_seq_length
    export_hugging_face(own, tmp_path / "ours")
    again = library().SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert_same(again, own)
    assert_same(again, ramify.load(tmp_path / "ours"))


def test_a_query_reads_the_default_prompt_alone(encoder, tmp_path):
    """Prompts of other names are written by hand, as `encode_query` writes them."""
    theirs = saved(encoder, tmp_path, prompts=PROMPTS)
    own = ramify.load(tmp_path)
    query = "what asks for salt?"
    index = own.index(TEXTS)
    scores = theirs.similarity(theirs.encode(query), theirs.encode(TEXTS))[0]
    assert [found.score for found in own.nearest(query, index).nearest] == pytest.approx(
        sorted(scores.tolist())[::-1], abs=1e-5
    )
    asked = theirs.similarity(theirs.encode_query(query), theirs.encode(TEXTS))[0]
    found = own.nearest(PROMPTS["query"] + query, index).nearest
    assert [neighbour.score for neighbour in found] == pytest.approx(sorted(asked.tolist())[::-1], abs=1e-5)
    change(tmp_path / "config_sentence_transformers.json", default_prompt_name="query")
    prompted = ramify.load(tmp_path)
    np.testing.assert_allclose(prompted.embed([query]), theirs.encode_query([query]), rtol=0, atol=1e-5)
    with pytest.raises(RamifyError, match="made by another model"):
        prompted.nearest(query, index)
    assert len(prompted.attention(query).attention[0].queries) == 2 + len(own.tokenizer.encode(PROMPTS["query"] + query))


def test_stores_keep_the_tokens_of_each_prompt(encoder, tmp_path):
    plain, store = ramify.load(encoder), built(discussions(2, 3), tmp_path / "data")
    saved(encoder, tmp_path / "theirs", prompts=PROMPTS, default="query")
    own = ramify.load(tmp_path / "theirs")
    first = own.tokenizer.encode(PROMPTS["query"])
    for model, begins in ((own, first), (plain, []), (own, first)):
        forest = model.forest(store)
        text = store.tree(0).nodes[0].text
        assert forest.gather(np.array([0]), forest.length[:1]).tolist() == [*begins, *model.tokenizer.encode(text)]


@pytest.mark.parametrize("form", ["flags", "classes"])
def test_older_directories(encoder, tmp_path, form):
    """Until release 4, flags named the pooling, and classes lay elsewhere."""
    theirs = saved(encoder, tmp_path, "max", normalize=True)
    if form == "flags":
        flags = {"word_embedding_dimension": 32, "pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(flags))
        shutil.rmtree(tmp_path / "2_Normalize")
        (tmp_path / "config_sentence_transformers.json").unlink()
        (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20, "do_lower_case": False}))
        theirs.max_seq_length = 20
    modules = json.loads((tmp_path / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rsplit(".", 1)[-1]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert_same(theirs, ramify.load(tmp_path))


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        (
            "1_Pooling/config.json",
            {"pooling_mode": "lasttoken"},
            "pooling by lasttoken is not supported; only one of mean, cls",
        ),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pooling by cls, mean is not supported"),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name='token_embeddings' is not"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task='fill-mask' is not supported"),
        ("sentence_bert_config.json", {"model_args": {"attention": 1}}, "model_args=.* is not supported for embeddings"),
        ("sentence_bert_config.json", {"modality_config": {"text": {"method": "encode"}}}, "modality_config=.*'encode'"),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim=8 is not supported"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type='SparseEncoder' is not supported"),
        ("config_sentence_transformers.json", {"default_prompt_name": "passage"}, "'passage' is not one of its prompts"),
    ],
)
def test_settings_that_change_vectors_are_refused(published, tmp_path, file, settings, message):
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    change(tmp_path / file, **settings)
    with pytest.raises(RamifyError, match=message):
        ramify.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "named"), [("sentence_transformers.models.Dense", "Dense"), ("custom_code.Pooling", r"custom_code\.Pooling")]
)
def test_other_modules_are_refused(published, tmp_path, kind, named):
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1]["type"] = kind
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(RamifyError, match=rf"the modules Transformer, {named}, Normalize are not supported"):
        ramify.load(tmp_path)


def test_a_model_in_a_folder_of_its_own_is_refused(published, tmp_path):
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    (tmp_path / "0_Transformer").mkdir()
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).rename(tmp_path / "0_Transformer" / file)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(RamifyError, match="the module Transformer lies in 0_Transformer, but only one beside"):
        ramify.load(tmp_path)


def test_a_classifier_of_pairs_is_no_embedder(encoder, tmp_path):
    theirs = library().CrossEncoder(str(encoder), num_labels=3, device="cpu")
    theirs.save_pretrained(str(tmp_path))
    expected = theirs.predict([(TEXTS[0], TEXTS[1])], apply_softmax=True)[0]
    answer = ramify.load(tmp_path).predict((TEXTS[0], TEXTS[1]))
    assert [*answer.probabilities.values()] == pytest.approx(expected.tolist(), abs=1e-5)

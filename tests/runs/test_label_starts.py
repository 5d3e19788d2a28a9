"""Runs on labelled texts start from any model that encodes, ours or another library's."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ramify
from fixtures import bert_task, tree_task
from fixtures import tokenizer as words
from fixtures.labelled import labelled_store, sentences
from fixtures.letters import pipeline as document_pipeline
from fixtures.running import elmo_task
from fixtures.running import task as xlnet_task
from ramify import hub
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.views.documents import LevelInput
from ramify.batching.views.pairs import PairInput
from ramify.errors import RamifyError
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import PermutationPipeline
from ramify.inference.translate import next_token_pipeline
from ramify.models.recurrent import Seq2SeqConfig
from ramify.models.transformer import TransformerConfig
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM


def masked(task):
    return MaskFiller(task.float())


def generative(config, layout):
    backbone = config.for_vocabulary(words().vocab_size).build()
    return next_token_pipeline(NextTokenLM(backbone, words(), PairInput(layout=layout), NextTokenConfig()))


SIZES = {"dim": 8, "encoder_layers": 1, "decoder_layers": 1}
BLOCKS = {"num_heads": 2, "ffn_dim": 12}
GPT2 = {**SIZES, **BLOCKS, "encoder_layers": 0, "norm": "pre", "position": "learned", "activation": "gelu_tanh"}
GPT2 |= {"scale_embedding": False, "final_norm": True}

PIPELINES = {
    "bert": lambda: masked(bert_task()),
    "bert with a pooler": lambda: masked(bert_task(pooling="pooler")),
    "roberta": lambda: masked(bert_task(type_vocab_size=0)),
    "tree-mlm": lambda: masked(tree_task()),
    "xlnet": lambda: PermutationPipeline(xlnet_task()),
    "elmo": lambda: BidirectionalPipeline(elmo_task(own=words())),
    "elmo of words": lambda: BidirectionalPipeline(elmo_task(own=words(), input="words")),
    "gpt": lambda: generative(TransformerConfig(**GPT2), "roberta"),
    "transformer": lambda: generative(TransformerConfig(**SIZES, **BLOCKS), "t5"),
    "seq2seq": lambda: generative(Seq2SeqConfig(**SIZES, hidden=6), "t5"),
    "agent": lambda: document_pipeline(input=LevelInput()),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return labelled_store(sentences(40), tmp_path_factory.mktemp("labelled"))


def trained(store, out, init, **settings):
    run = RECIPES["classify"](str(store.path), init=str(init), epochs=1.0, mode=settings.pop("mode", "finetune"))
    execute(run.changed({"input.max_tokens": str(min(16, run.input.max_tokens)), **settings}), out, cpu=True)
    return ramify.load(out)


@pytest.mark.parametrize("name", PIPELINES)
def test_models_of_ours(store, tmp_path, name):
    pipeline = PIPELINES[name]()
    hub.save(pipeline, tmp_path / "start")
    features = trained(store, tmp_path / "features", tmp_path / "start", mode="features")
    rows = EncoderInput.of_texts(pipeline.tokenizer.encode_batch(["ba be"]), features.layout, None)
    pipeline.module.eval()
    with torch.no_grad():
        assert torch.equal(features.backbone.vectors(rows), pipeline.backbone.vectors(rows))
    tuned = trained(store, tmp_path / "tuned", tmp_path / "start")
    with torch.no_grad():
        assert not torch.equal(tuned.backbone.vectors(rows), pipeline.backbone.vectors(rows))
    # A classifier is a start, too: with all its weights.
    again = RECIPES["classify"](str(store.path), init=str(tmp_path / "tuned")).prepare(tmp_path / "new")
    assert torch.equal(again.task.output.weight, tuned.task.output.weight)


EXPORTED = {"bert": "bert", "bert with a pooler": "vector", "xlnet": "summary", "gpt": "vector"}
"""Models with a Hugging Face form."""


@pytest.mark.parametrize("name", EXPORTED)
def test_hugging_face_directories(store, tmp_path, name):
    pipeline = PIPELINES[name]()
    if name.startswith("bert"):
        pipeline = MaskFiller(bert_task(dtype=torch.float32, task={"head": "bert"}, pooling="mean"))
    hub.export_hugging_face(pipeline, tmp_path / "start")
    model = trained(store, tmp_path / "run", tmp_path / "start", mode="features")
    for key, value in pipeline.backbone.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[key], value), key


def test_a_pooler_of_a_checkpoint_is_the_head(store, tmp_path):
    pipeline = ramify.hub.load(_with_pooler(tmp_path / "start"))
    run = RECIPES["classify"](str(store.path), init=str(tmp_path / "start"))
    prepared = run.changed({"input.max_tokens": "16"}).prepare(tmp_path / "run")
    assert prepared.task.backbone.config.pooling == "pooler"
    assert prepared.task.backbone.has_pooler
    assert pipeline.backbone.config.pooling == "mean"
    stored = hub.checkpoint(tmp_path / "start").tensors["bert.pooler.dense.weight"]
    assert torch.equal(prepared.task.backbone.pool.hidden.weight, stored)


def _with_pooler(folder: Path) -> Path:
    task = bert_task(dtype=torch.float32, pooling="pooler", task={"head": "bert", "next_sentence": 1.0})
    hub.export_hugging_face(MaskFiller(task), folder)
    return folder


def test_models_that_read_no_texts(store, tmp_path):
    from fixtures import mht_task
    from ramify.disentangle.config import ChatInput, DecodingConfig
    from ramify.disentangle.inference.disentangler import Disentangler

    hub.save(Disentangler(mht_task(words(), ChatInput(texts="pieces")), DecodingConfig()), tmp_path / "mht")
    with pytest.raises(RamifyError, match="which gives no states of single texts"):
        RECIPES["classify"](str(store.path), init=str(tmp_path / "mht"))


def test_another_number_of_classes(store, tmp_path):
    hub.save(PIPELINES["bert"](), tmp_path / "start")
    trained(store, tmp_path / "run", tmp_path / "start")
    rows = [row | {"label": np.random.default_rng(place).choice(["a", "b", "c"])} for place, row in enumerate(sentences(40))]
    other = labelled_store(rows, tmp_path / "three")
    run = RECIPES["classify"](str(other.path), init=str(tmp_path / "run"))
    with pytest.raises(RamifyError) as raised:
        run.prepare(tmp_path / "new")
    assert "was trained with classes=[bad, good] (2), but the labels" in str(raised.value)
    assert "have classes=[a, b, c] (3). Take its backbone alone with --set start=backbone" in str(raised.value)
    assert run.changed({"start": "backbone"}).prepare(tmp_path / "new").task.output.out_features == 3

"""Runs on labelled texts start from any model that encodes, ours or another library's."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ramify
from fixtures import bert_task, tree_task
from fixtures import tokenizer as words
from fixtures.label_runs import label_run, label_stores
from fixtures.labelled import labelled_store, sentences
from fixtures.letters import pipeline as document_pipeline
from fixtures.running import elmo_task
from fixtures.running import task as xlnet_task
from ramify import hub
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.labelled_batch import LabelledBatch
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
    return next_token_pipeline(NextTokenLM(backbone, words(), PairInput(layout=layout), NextTokenConfig(output_bias=False)))


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


# --- layers beside token vectors ---------------------------------------------------------------------------------------------


def with_features(store, init, recipe="classify", **options):
    run = RECIPES[recipe](str(store.path), init=str(init), mode="concat", epochs=1.0, **options)
    return run.changed({"input.max_tokens": str(min(16, run.input.max_tokens))})


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    torch.manual_seed(0)
    hub.save(PIPELINES["elmo"](), folder)
    return folder


@pytest.mark.parametrize(
    ("name", "model", "size"), [("elmo", "", "hidden=5"), ("agent", "cnn", "maps=4"), ("gpt", "cnn", "maps=4")]
)
def test_layers_beside_token_vectors(store, tmp_path, name, model, size):
    """Peters et al. (2018), section 3.2: the frozen model stays as it is; the mix and the reader learn."""
    pipeline = PIPELINES[name]()
    hub.save(pipeline, tmp_path / "start")
    run = with_features(store, tmp_path / "start", model=model)
    key, _, value = size.partition("=")
    run = run.changed({"model.reader.dim": "6", f"model.reader.{key}": value})
    execute(run, tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    frozen = pipeline.backbone.state_dict()
    for key, value in model.backbone.features.backbone.state_dict().items():
        assert torch.equal(value, frozen[key]), key
    mix = model.backbone.features.mixes.mixes[0]
    assert mix.gamma != 1
    assert mix.logits.abs().min() > 0
    # The model that was loaded reads [x; γ Σ s h] of each token.
    rows = EncoderInput.of_texts(model.tokenizer.encode_batch(["ba be", "ba"]), model.layout, None)
    reader, body = model.backbone.reader, model.backbone.features.backbone
    with torch.no_grad():
        layers = body.encode_rows(rows, layers=True).layers
        layers = [layer for layer in layers if layer.shape[1] == layers[-1].shape[1]]
        mixed = mix.gamma * sum(share * layer for share, layer in zip(mix.logits.softmax(0), layers, strict=True))
        words = torch.cat([reader.embedding(rows.ids), mixed], 1)
        states = reader.recurrent(words, rows.rows).layers[-1] if name == "elmo" else reader._features(words, rows.rows)
        torch.testing.assert_close(model.backbone.encode_rows(rows).last, states)
    assert model.predict("ba be").label in ("bad", "good")


def test_the_mix_is_regularized_once_per_update(store, elmo, tmp_path):
    """λ‖w‖² belongs to an update, whatever the number of its batches."""
    task = with_features(store, elmo).changed({"model.l2": "0.5"}).prepare(tmp_path / "run").task.eval()
    mix = task.backbone.features.mixes.mixes[0]
    torch.nn.init.constant_(mix.logits, 2.0)
    rows = EncoderInput.of_texts(task.tokenizer.encode_batch(["ba be", "ba"]), task.tokenizer.layout("bert"), None)
    batch = LabelledBatch(rows, torch.tensor([0, 1]), np.arange(2))
    named = task.regularized({"label": torch.zeros(())}, batch, {"label": 8.0}, "main")
    assert float(named["label"].detach()) == pytest.approx(0.5 * len(mix.logits) * 4.0 * 2 / 8)


@pytest.mark.parametrize("task", ["tag", "answer"])
def test_tags_and_answers_from_layers_beside_token_vectors(elmo, tmp_path, task):
    data = label_stores(tmp_path / "data")[task]
    options = {"decoder": "crf"} if task == "tag" else {}
    execute(label_run(task, data, init=str(elmo), mode="concat", **options), tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    assert model.backbone.features.mixes.mixes[0].gamma != 1
    frozen = hub.load(elmo).backbone.state_dict()
    assert all(torch.equal(value, frozen[key]) for key, value in model.backbone.features.backbone.state_dict().items())
    spans = model.predict("aa ae ai").spans if task == "tag" else model.answer("aa ?", "aa ae ai").spans
    assert all(span.text in "aa ae ai" for span in spans)
    assert spans or task == "tag"


def test_words_that_the_vocabulary_lacks_differ(store, elmo, tmp_path):
    execute(with_features(store, elmo), tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    one, other = model.predict(["zyx", "qvw"])
    assert one.probabilities != other.probabilities


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "bert"}, r"--mode concat needs .*, but --model bert has none\. Choose --model bilstm or cnn\."),
        ({"model": "tfidf"}, r"--model tfidf has none\. Choose --model bilstm or cnn\."),
        (
            {"init": ""},
            r"--mode concat needs a model whose layers are read, but --init is not given\. Give --init CHECKPOINT\.",
        ),
    ],
)
def test_models_that_cannot_read_layers(store, elmo, options, message):
    with pytest.raises(RamifyError, match=message):
        RECIPES["classify"](str(store.path), **{"init": str(elmo), "mode": "concat", **options})

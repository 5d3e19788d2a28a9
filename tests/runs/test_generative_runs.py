"""Runs of generative models, from pairs or texts to a model that translates or generates; resumed runs; their reports."""

import json
import math
import os
import signal
import sys
from itertools import cycle, islice, pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures import built, discussions
from fixtures.parallel import SYLLABLES, TINY, pairs, parallel_store
from ramify.errors import CannotError, RamifyError
from ramify.inference.search import Beam
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute, kind_for
from ramify.runs.generative.scores import BLEU_KEYS
from ramify.training.metrics_log import read_metrics
from ramify.training.schedules import schedule
from ramify.tree import SPLIT, Node, Tree

LEARNING = {
    "model.dim": "64",
    "model.dropout": "0",
    "task.label_smoothing": "0",
    "tokenizer.kind": "wordpiece",
    "tokenizer.vocab_size": "60",
    "train.budget": "800",
    "train.schedule": "linear",
    "train.evaluate_every": "0",
    "train.checkpoint_every": "0",
}
"""Settings with which toy tasks are learned in seconds, with those of each model."""
TRANSFORMER = {
    "model.num_heads": "4",
    "model.ffn_dim": "128",
    "model.encoder_layers": "1",
    "model.decoder_layers": "1",
    "model.position": "learned",
    "train.steps": "250",
    "train.lr": "6e-3",
}
SEQ2SEQ = {"model.hidden": "64", "train.steps": "200", "train.lr": "1e-2"}


def reverse(words):
    return words[::-1]


def run_of(recipe, store, **settings):
    run = RECIPES[recipe](str(store.path))
    fitting = {key: value for key, value in TINY.items() if not key.startswith("model.") or hasattr(run.model, key[6:])}
    if recipe == "gpt":
        del fitting["model.encoder_layers"]
    if recipe == "t5":
        fitting["tokenizer.vocab_size"] = "160"
    return run.changed(fitting | settings)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return parallel_store(tmp_path_factory.mktemp("pairs"), pairs(120, reverse))


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    execute(run_of("transformer", store), out, cpu=True)
    return out


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [("transformer", TRANSFORMER), ("seq2seq", SEQ2SEQ)],
    ids=["transformer", "seq2seq"],
)
def test_reversing_is_learned_wholly(tmp_path, recipe, settings):
    store = parallel_store(tmp_path, pairs(1200, reverse, longest=4), (0.9, 0.05, 0.05))
    run = RECIPES[recipe](str(store.path)).changed(LEARNING | settings)
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    model = prepared.pipeline()
    trees = [store.tree(int(tree)) for tree in store.split("test")]
    answers = model.translate([tree.nodes[0].text for tree in trees], beam=1)
    assert [answer.translations[0].text for answer in answers] == [tree.nodes[1].text for tree in trees]


@pytest.mark.parametrize("recipe", ["transformer", "seq2seq", "gpt", "t5"])
def test_a_killed_run_resumes_to_the_same_bits(store, tmp_path, recipe):
    run = run_of(recipe, store, **{"model.dropout": "0.1"})
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    execute(run, tmp_path / "stopped", cpu=True, report=interrupt)
    execute(run, tmp_path / "stopped", cpu=True, resume=True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "stopped"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    losses = [[record["loss"] for record in read_metrics(tmp_path / name)] for name in ("straight", "stopped")]
    assert losses[0] == losses[1]


def test_smoothing_changes_training_but_not_held_out_losses(store, tmp_path):
    dev, first = [], []
    for smoothing in ("0", "0.3"):
        out = tmp_path / smoothing
        settings = {"task.label_smoothing": smoothing, "train.lr": "0", "train.steps": "1", "train.evaluate_every": "1"}
        execute(run_of("transformer", store, **settings, **{"train.checkpoint_every": "0"}), out, cpu=True)
        (record,) = read_metrics(out)
        dev.append(record["dev_loss"])
        first.append(record["loss"])
    assert dev[0] == dev[1]
    assert first[0] != first[1]


def test_a_dev_split_without_pairs_has_no_dev_loss(tmp_path):
    """Comments that nobody answers leave nothing to predict; the train split has pairs."""
    comment, reply = Node("ba be", id="0"), Node("be ba", (0,), id="1")
    trees = [Tree((comment, reply), f"pair{number}", {SPLIT: "train"}) for number in range(8)]
    trees += [Tree((comment,), f"lone{number}", {SPLIT: "dev"}) for number in range(2)]
    store = built(trees, tmp_path)
    assert len(store.split("dev")) == 2
    execute(run_of("transformer", store), tmp_path / "run", cpu=True)
    records = read_metrics(tmp_path / "run")
    assert len(records) == 6
    assert not any("dev_loss" in record for record in records)


def test_a_saved_model_is_scored_on_its_pairs(store, trained):
    model = ramify.load(trained)
    scores = kind_for(model, str(trained)).evaluate(model, str(trained), store, "test", {"beam": 2}).to_json()
    expected = {
        "loss",
        "perplexity",
        "bleu",
        "bleu_interval",
        "signature",
        "floor_copy",
        "count",
        "tokens",
        "accuracy",
        "unknown_tokens",
    }
    assert scores.keys() == expected
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert scores["count"] == len(store.split("test"))
    assert "version:" in scores["signature"]
    dev = kind_for(model, str(trained)).evaluate(model, str(trained), store, "dev", {}).to_json()["loss"]
    assert dev == pytest.approx(min(record["dev_loss"] for record in read_metrics(trained) if "dev_loss" in record))


def test_without_sacrebleu_loss_is_scored_and_one_line_names_the_extra(store, trained, monkeypatch):
    model = ramify.load(trained)
    whole = kind_for(model, str(trained)).evaluate(model, str(trained), store, "test", {"comments": 5})
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    scores = kind_for(model, str(trained)).evaluate(model, str(trained), store, "test", {"comments": 5})
    assert scores.to_json() == whole.to_json() | dict.fromkeys(BLEU_KEYS)
    assert len(scores.lines()) == 1
    (line,) = scores.left_out
    assert 'pip install "ramify[translate]"' in line
    assert not whole.left_out


def test_a_report_shows_translations_and_attention_to_the_source(trained):
    page = write_report(trained, draws=1).read_text()
    for part in ("Held-out scores", "BLEU of the copied sources", "Examples", "Attention to the source", 'class="weights"'):
        assert part in page


def test_weights_of_attention_to_the_source_add_up_to_one(trained):
    model = ramify.load(trained)
    table = model.source_attention(np.array(model.tokenizer.encode("ba be")), "be ba")
    assert table.keys[-1] == table.queries[-1] == "[SEP]"
    assert table.weights.shape == (len(table.queries), len(table.keys))
    assert table.weights.sum(1) == pytest.approx(1)
    # The longest translations are as long as the model reads, and have no end.
    longest = model.backbone.max_tokens
    for length in (longest - 1, longest, longest + 5):
        table = model.source_attention(np.array(model.tokenizer.encode("ba be")), " ".join(["ba"] * length))
        assert len(table.queries) == longest
        assert (table.queries[-1] == "[SEP]") == (length < longest)


def test_before_training_people_learn_what_is_left_out(tmp_path, store):
    run = run_of("transformer", store, **{"input.max_tokens": "4"})
    reads = run.prepare(tmp_path / "run").reads()
    assert "longer than input.max_source_tokens=128 or input.max_tokens=4 left out (input.long=leave_out)" in reads
    reads = run_of("transformer", store, **{"input.max_tokens": "4", "input.long": "truncate"}).prepare(tmp_path).reads()
    assert "truncated (input.long=truncate)" in reads


def test_texts_longer_than_the_model_are_refused(tmp_path, store):
    with pytest.raises(RamifyError, match=r"input\.max_source_tokens=128 is more than the 64 tokens that the model reads"):
        run_of("transformer", store, **{"model.max_tokens": "64", "input.max_tokens": "64"}).prepare(tmp_path)


def test_replies_are_pairs(tmp_path):
    store = built(discussions(30, 6), tmp_path / "data")
    settings = {"tokenizer.vocab_size": "90", "train.steps": "2", "train.evaluate_every": "0", "train.checkpoint_every": "0"}
    prepared, _ = execute(run_of("transformer", store, **settings), tmp_path / "run", cpu=True)
    assert "with an empty side left out" in prepared.reads()
    assert prepared.pipeline().translate("ba be").translations


def test_gpt_learns_from_texts_and_generates(tmp_path, store):
    run = run_of("gpt", store, **{"model.max_tokens": "128"})
    prepared, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.best is not None
    assert "tokens to predict, in" in prepared.reads()
    model = ramify.load(tmp_path / "run")
    answer = model.generate("ba be", tokens=8, seed=1)
    assert answer.tokens <= 8
    assert model.generate("ba be", tokens=8, temperature=0.0).text == model.generate("ba be", tokens=8, beam=1).text
    assert model.generate(["ba be", ""], tokens=8, seed=1)[0] == answer
    with pytest.raises(RamifyError, match="is more than the 128 tokens that this model reads"):
        model.generate("ba be", tokens=128)
    with pytest.raises(CannotError, match="has no fill_mask; it can"):
        model.fill_mask("ba [MASK]")
    scores = kind_for(model, "run").evaluate(model, "run", store, "test", {}).to_json()
    footing = {"per_byte", "per_token", "positions", "window", "windows_with_unknown_tokens", "given"}
    assert scores.keys() == {"loss", "perplexity", "count", "tokens", "accuracy", "unknown_tokens"} | footing
    with pytest.raises(RamifyError, match="--beam does not apply"):
        kind_for(model, "run").evaluate(model, "run", store, "test", {"beam": 2})
    assert json.loads((tmp_path / "run" / "config.json").read_text())["kind"] == "generative"


@pytest.fixture(scope="module", params=["1.0", "1.1"])
def filler(request, store, tmp_path_factory):
    """A T5 that has read a few corrupted rows."""
    out = tmp_path_factory.mktemp("t5") / request.param
    run = RECIPES["t5"](str(store.path), version=request.param)
    execute(run.changed(TINY | {"tokenizer.vocab_size": "160", "model.max_tokens": "128"}), out, cpu=True)
    return out


def test_t5_learns_from_corrupted_text_and_fills_gaps(store, filler):
    metrics = read_metrics(filler)
    assert metrics[-1]["loss"] < metrics[0]["loss"]
    model = ramify.load(filler)
    assert not model.task.head.bias.any()
    texts = ["ba <extra_id_0> bo", "", "<extra_id_0> ce <extra_id_1>"]
    answers = model.translate(texts, beam=2)
    assert [bool(answer.translations) for answer in answers] == [True, False, True]
    with pytest.raises(RamifyError, match=r"source 2 has no <extra_id_0>, but this model has learned to fill gaps alone"):
        model.translate(["<extra_id_0>", "ba be"])
    with pytest.raises(CannotError, match="has no fill_mask; it can translate, embed, attention, nearest"):
        model.fill_mask("ba [MASK]")
    scores = kind_for(model, "run").evaluate(model, "run", store, "test", {}).to_json()
    assert scores.keys() == {"loss", "perplexity", "count", "tokens", "accuracy", "unknown_tokens"}
    again = kind_for(model, "run").evaluate(model, "run", store, "test", {"rows": 2}).to_json()
    assert again["count"] == 2


def test_a_t5_learns_the_form_of_an_answer(tmp_path):
    """Of texts of syllables in a circle, it names the gap, fills it, and ends with the next sentinel."""
    circle = [" ".join(islice(cycle(SYLLABLES), start, start + length)) for start in range(7) for length in range(6, 20)]
    store = parallel_store(tmp_path, list(pairwise(circle)), (1.0, 0.0, 0.0))
    settings = {key: value for key, value in TRANSFORMER.items() if key != "model.position"}
    settings |= {"tokenizer.vocab_size": "160", "train.budget": "400", "train.steps": "120"}
    prepared, _ = execute(RECIPES["t5"](str(store.path)).changed(LEARNING | settings), tmp_path / "run", cpu=True)
    answer = prepared.pipeline().translate("ba be <extra_id_0> bu ca ce ba be bi bo bu", beam=1)
    first, *syllables, last = answer.translations[0].text.split()
    assert (first, last) == ("<extra_id_0>", "<extra_id_1>")
    assert set(syllables) <= set(SYLLABLES)


def test_a_t5_goes_on_with_pairs(store, filler, tmp_path):
    settings = {key: value for key, value in TINY.items() if not key.startswith(("model.", "tokenizer."))}
    run = RECIPES["transformer"](str(store.path), init=str(filler))
    if not ramify.load(filler).task.config.tie_weights:
        settings["task.tie_weights"] = "false"
    prepared, _ = execute(run.changed(settings), tmp_path / "run", cpu=True)
    assert prepared.pipeline().translate("ba be").translations


def test_a_report_on_corrupted_text_shows_gaps(filler):
    page = write_report(filler, draws=1).read_text()
    assert "&lt;extra_id_0&gt;" in page
    assert "Attention to the source" in page


def test_a_translation_is_what_the_search_finds(trained):
    model = ramify.load(trained)
    texts = ["ba be bi bo", "", "ce", "ca ca ba"]
    alone = [model.translate(text, n_best=3) for text in texts]
    together = model.translate(texts, n_best=3)
    for answers in zip(together, alone, strict=True):
        one, other = ([translation.text for translation in answer.translations] for answer in answers)
        assert one == other
        one, other = ([translation.score for translation in answer.translations] for answer in answers)
        assert one == pytest.approx(other)
    assert together[1].translations == ()
    scores = [translation.score for translation in together[0].translations]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    ids = [np.array(model.tokenizer.encode(text), dtype=np.int64) for text in texts]
    greedy = model.translate(texts, beam=1)
    assert [answer.translations for answer in greedy] == model.translations(ids, Beam(1))


def test_questions_that_cannot_be_answered(trained):
    model = ramify.load(trained)
    with pytest.raises(RamifyError, match=r"beam=0 must be at least 1"):
        model.translate("ba", beam=0)
    vocabulary = model.backbone.config.vocab_size
    with pytest.raises(RamifyError, match=rf"beam={vocabulary} must be below the size of the vocabulary, {vocabulary}"):
        model.translate("ba", beam=vocabulary)
    with pytest.raises(RamifyError, match=r"n_best=5 must be between 1 and the width of the beam, which is 4"):
        model.translate("ba", n_best=5)
    with pytest.raises(RamifyError, match=r"source 2 has 600 tokens, but this model reads at most 511 and the end"):
        model.translate(["ba", "ba " * 600])
    with pytest.raises(CannotError, match="has no fill_mask; it can translate, embed, attention, nearest"):
        model.fill_mask("ba [MASK]")


def test_unknown_characters_are_counted(trained):
    model = ramify.load(trained)
    assert not model.translate("ba").notes
    (note,) = model.translate(["ba", "ba ж ж"])[0].notes
    assert note.startswith("2 of 4 tokens of the sources (50")


def test_the_published_transformer():
    run = RECIPES["transformer"]("somewhere", published=True)
    (stage,) = run.stages
    model = run.model.for_vocabulary(37_000)
    assert (model.dim, model.num_heads, model.ffn_dim, model.encoder_layers, model.decoder_layers) == (512, 8, 2048, 6, 6)
    assert (stage.betas, stage.eps, stage.average, run.task.label_smoothing) == ((0.9, 0.98), 1e-9, 5, 0.1)
    for step in (1000, 4000, 50_000):
        rate = stage.lr * schedule(stage, (step - 1) / stage.steps, step / stage.steps)
        assert rate == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in model.build().parameters())
    # Table 3 of the paper rounds to 65 million.
    assert 60e6 < count < 66e6

"""Runs on running text: BERT's pairs and RoBERTa's rows, from a store to a model; resumed runs; refused settings."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures import bert_task, built
from ramify import Node, Tree
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.models.bert import Bert, BertConfig
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute, kind_for, read_run
from ramify.runs.packed_text.run import PackedTextRun
from ramify.tasks.masked_lm import MaskedLMConfig
from ramify.training.config import TrainConfig
from ramify.training.metrics_log import read_metrics

WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "house",
    "man",
    "store",
    "garden",
    "runs",
    "barked",
    "walked",
    "went",
    "sang",
    "away",
    "home",
    "quickly",
    "slowly",
    "green",
    "blue",
    "old",
]
SMALL = {
    "model.dim": "16",
    "model.num_heads": "2",
    "model.num_layers": "1",
    "model.ffn_dim": "32",
    "tokenizer.vocab_size": "300",
    "train.steps": "6",
    "train.budget": "400",
    "train.log_every": "1",
    "train.evaluate_every": "3",
    "train.checkpoint_every": "2",
    "dev.rows": "20",
}


def texts(count, seed=0, longest=9):
    random = np.random.default_rng(seed)

    def sentence():
        return " ".join(random.choice(WORDS, size=random.integers(4, 12))).capitalize() + "."

    return [
        Tree((Node(" ".join(sentence() for _ in range(random.integers(1, longest)))),), id=f"t{number}")
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(texts(80), tmp_path_factory.mktemp("data"), split=(0.6, 0.2, 0.2))


def small(store, recipe, **settings):
    given = {key: settings.pop(key) for key in ("rows", "init") if key in settings}
    run = RECIPES[recipe](str(store.path), max_tokens=32, **given)
    changed = {} if "init" in given else SMALL
    return run.changed({**SMALL, **changed, **{key.replace("__", "."): value for key, value in settings.items()}})


@pytest.mark.parametrize(("recipe", "rows"), [("bert", "pairs"), ("roberta", "sentences"), ("roberta", "documents")])
def test_execution(store, tmp_path, recipe, rows):
    run, out = small(store, recipe, rows=rows), tmp_path / "run"
    prepared, progress = execute(run, out, cpu=True)
    assert progress.step == 6
    assert read_run(out)[0] == run
    record = json.loads((out / "run.json").read_text())
    assert record["text"]["tokens"] == record["text"]["tokens_used"] + record["text"].get("tokens_cut", 0)
    assert "32 tokens" in prepared.reads()
    metrics = read_metrics(out)
    guess = np.log(record["run"]["tokenizer"]["vocab_size"])
    assert guess + 0.1 > metrics[0]["loss"] - metrics[0].get("next_sentence", 0) > 3
    assert len([each for each in metrics if "dev_loss" in each]) == 2
    assert ("dev_next_sentence" in metrics[-1]) == ("next_sentence" in metrics[-1]) == (recipe == "bert")
    # Every update divides by its own masked tokens, so the sum of both losses is the objective.
    if recipe == "bert":
        assert metrics[0]["loss"] == pytest.approx(metrics[0]["masked_lm"] + metrics[0]["next_sentence"])
    model = ramify.load(out)
    (mask,) = model.fill_mask("the man went to the [MASK]").masks
    assert len(mask.tokens) == 5
    assert model.embed(["a dog barked.", "the cat"]).shape == (2, 16)
    assert len(model.score("the dog barked.").tokens) >= 4
    page = write_report(out).read_text("utf-8")
    for words in ("Held-out scores", "one masked token given all others", "Masks filled", "Learning curves"):
        assert words in page
    assert "Held-out scores" not in write_report(out, evaluate=False).read_text("utf-8")


@pytest.mark.parametrize(("recipe", "rows"), [("bert", "pairs"), ("roberta", "sentences")])
def test_evaluation_is_repeatable_and_counts(store, tmp_path, recipe, rows):
    out = tmp_path / "run"
    execute(small(store, recipe, rows=rows), out, cpu=True)
    model = ramify.load(out)
    kind = kind_for(model, str(out))
    assert kind is PackedTextRun
    found = [kind.evaluate(model, str(out), store, "test", {}).to_json() for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].keys() >= {"loss", "per_byte", "count", "perplexity", "accuracy", "window", "positions"}
    assert ("next_sentence" in found[0]) == (recipe == "bert")
    twice = kind.evaluate(model, str(out), store, "test", {"draws": 2}).to_json()
    assert twice["count"] == 2 * found[0]["count"] > 0
    assert twice["per_byte"] == found[0]["per_byte"]
    assert "common footing" in "\n".join(kind.evaluate(model, str(out), store, "test", {}).lines())
    with pytest.raises(RamifyError, match=r"--context does not apply to .*running text"):
        kind.evaluate(model, str(out), store, "test", {"context": "none"})


@pytest.mark.parametrize("recipe", ["bert", "roberta"])
def test_saved_model_is_evaluated_as_its_run(store, tmp_path, recipe):
    """Without a run.json, config.json names the kind of run: a RoBERTa is not scored as a model of comments."""
    execute(small(store, recipe), tmp_path / "run", cpu=True)
    run, saved = ramify.load(tmp_path / "run"), tmp_path / "saved"
    ramify.save(run, saved)
    again = ramify.load(saved)
    assert [kind_for(run, "run"), kind_for(again, "saved")] == [PackedTextRun, PackedTextRun]
    of_run, of_saved = (
        PackedTextRun.evaluate(model, str(source), store, "test", {}).to_json()
        for model, source in ((run, tmp_path / "run"), (again, saved))
    )
    assert of_run == of_saved


def test_models_without_a_kind_of_run_are_not_evaluated(store, tmp_path):
    with pytest.raises(RamifyError, match=r"here cannot be evaluated, because no kind of run made it \(answers, "):
        kind_for(MaskFiller(bert_task()), "here")
    model = MaskFiller(bert_task())
    model.kind = "fortunes"
    with pytest.raises(RamifyError, match=r"here was made by a run of kind='fortunes'; .* knows answers, "):
        kind_for(model, "here")


@pytest.mark.parametrize(
    ("recipe", "settings"), [("bert", {"pairs__dupe_factor": "2"}), ("roberta", {"task__mask_unit": "span"})]
)
def test_stopped_and_resumed_runs_are_equal_to_the_bit(store, tmp_path, recipe, settings):
    """The stop lies in a later epoch, whose rows are drawn anew."""
    run = small(store, recipe, train__steps="30", model__dropout="0.1", train__budget="1500", **settings)
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 17:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "stopped"
    _, progress = execute(run, out, cpu=True, report=interrupt)
    assert 17 <= progress.step < 30
    assert progress.epoch >= 1
    execute(run, out, cpu=True, resume=True)
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "straight", out))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    losses = [[record["loss"] for record in read_metrics(folder)] for folder in (tmp_path / "straight", out)]
    assert losses[0] == losses[1]


def test_a_run_starts_from_another(store, tmp_path):
    execute(small(store, "bert"), tmp_path / "first", cpu=True)
    second = RECIPES["bert"](str(store.path), init=str(tmp_path / "first")).changed(
        {"train.steps": "2", "input.max_tokens": "32"}
    )
    assert second.model == ramify.load(tmp_path / "first").backbone.config
    prepared = second.prepare(tmp_path / "none")
    saved = load_file(tmp_path / "first" / "model.safetensors")
    for name, parameter in prepared.task.named_parameters():
        if name in saved:
            assert torch.equal(parameter, saved[name]), name
    # The comments of a discussion go on from it, without its head for the next sentence.
    comments = RECIPES["bert"](str(store.path), rows="comments", init=str(tmp_path / "first"), max_tokens=32)
    comments = comments.changed({"task.head": "bert"})
    assert comments.prepare(tmp_path / "none").task.next_head is None


def test_dev_masks_may_have_a_rate_of_their_own(store, tmp_path):
    """The dev losses of untrained models are equal, whatever the rate of training."""

    def dev_loss(name, **settings):
        execute(small(store, "roberta", train__lr="0", model__dropout="0", **settings), tmp_path / name, cpu=True)
        return read_metrics(tmp_path / name)[-1]["dev_loss"]

    few, many = (dev_loss(f"own-{rate}", task__mask_rate=rate) for rate in ("0.15", "0.5"))
    assert few != many
    assert [dev_loss(f"dev-{rate}", task__mask_rate=rate, dev__mask_rate="0.15") for rate in ("0.15", "0.5")] == [few, few]


@pytest.mark.parametrize("position", ["sinusoidal", "relative"])
def test_positions_train_and_resume_to_the_bit(store, tmp_path, position):
    run = small(store, "bert", model__position=position, model__dropout="0.1")
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    execute(run, tmp_path / "stopped", cpu=True, report=interrupt)
    execute(run, tmp_path / "stopped", cpu=True, resume=True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "stopped"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any("positions" in name for name in before)
    # A model of other positions does not start from it.
    other = RECIPES["bert"](str(store.path), init=str(tmp_path / "straight"), max_tokens=32)
    other = other.changed({"model.position": "learned"})
    with pytest.raises(RamifyError, match=rf"needs model\.position = '{position}' \(not 'learned'\)"):
        other.prepare(tmp_path / "none")


@pytest.mark.parametrize("parts", [{"model__embedding_dim": "8", "model__shared_layers": "true", "model__num_layers": "3"}])
def test_albert_trains(store, tmp_path, parts):
    prepared, _ = execute(small(store, "bert", **parts), tmp_path / "run", cpu=True)
    names = [name for name, _ in prepared.task.backbone.named_parameters()]
    assert not any("layers.1." in name for name in names)
    assert "embeddings.projection.weight" in names
    assert ramify.load(tmp_path / "run").fill_mask("a [MASK]").masks


def test_comments_are_running_text_too(tmp_path):
    trees = [Tree((tree.nodes[0], Node("Yes. It barked.", (0,)), Node("No!", (1,))), id=tree.id) for tree in texts(40)]
    store = built(trees, tmp_path / "data")
    assert store.structure == "replies"
    prepared, _ = execute(small(store, "bert"), tmp_path / "run", cpu=True)
    assert prepared.facts()["text"]["documents"] == len(store.split("train"))


def test_one_sentence_texts_are_named(tmp_path):
    """Every second segment is random, so there is nothing to learn from the label."""
    store = built(texts(60, longest=2), tmp_path / "data")
    prepared, _ = execute(small(store, "bert"), tmp_path / "run", cpu=True)
    assert any("all second segments are random" in each for each in prepared.warnings([]))
    one = built([Tree((Node(" ".join(tree.nodes[0].text for tree in texts(60))),))], tmp_path / "one", split=(1.0, 0.0, 0.0))
    prepared = small(one, "bert").prepare(tmp_path / "none")
    assert any("the text is one document" in each for each in prepared.warnings([]))


# --- published sizes ----------------------------------------------------------------------------------------------------------


def parameters(config):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Bert(config).parameters())


def test_published_sizes():
    """BERT-base and BERT-large, with the pooler and without the heads of pretraining."""
    base = RECIPES["bert"]("data", size="paper").model.for_vocabulary(30_522)
    assert parameters(base) == 109_482_240
    large = BertConfig(**{**vars(base), "dim": 1024, "num_layers": 24, "num_heads": 16, "ffn_dim": 4096})
    assert parameters(large) == 335_141_888
    # roberta-base has 124,055,040 without its pooler; its two unused positions and its one token type are not kept here.
    roberta = RECIPES["roberta"]("data", size="paper").model.for_vocabulary(50_265)
    assert parameters(roberta) == 124_055_040 - 3 * 768


def test_published_schedules():
    bert, roberta = (RECIPES[name]("data", size="paper") for name in ("bert", "roberta"))
    stage = bert.stages[0]
    assert (stage.steps, stage.lr, stage.betas, stage.eps, stage.weight_decay) == (1_000_000, 1e-4, (0.9, 0.999), 1e-6, 0.01)
    assert stage.steps * stage.warmup == 10_000
    assert stage.budget == 256 * 128
    assert (bert.task.max_predictions, bert.pairs.short_seq_prob, bert.pairs.dupe_factor) == (20, 0.1, 10)
    assert RECIPES["bert"]("data", size="paper", max_tokens=512).task.max_predictions == 77
    assert roberta.stages[0].budget * roberta.stages[0].accumulate == 8192 * 512
    assert (roberta.task.max_predictions, roberta.task.next_sentence, roberta.tokenizer.kind) == (None, 0.0, "bpe")


LAYERS = {"small": (128, 2, 2, 512), "base": (256, 4, 4, 1024)}
RATES = {"small": 1e-3, "base": 5e-4}


@pytest.mark.parametrize("size", LAYERS)
def test_published_recipes(size):
    """Every setting of the published training, which one flag restores at the sizes for little text."""
    sizes = dict(zip(("dim", "num_layers", "num_heads", "ffn_dim"), LAYERS[size], strict=True))
    stage = TrainConfig(steps=2000, budget=4096, lr=RATES[size], warmup=0.1, betas=(0.9, 0.999))
    bert, roberta = (RECIPES[name]("data", size=size, published=True) for name in ("bert", "roberta"))
    assert bert.model == BertConfig(**sizes, norm="post", position="learned", pooling="pooler", max_tokens=128)
    losses = {"head": "bert", "comment_loss": "token", "loss_norm": "tokens", "mask_rate": 0.15}
    assert bert.task == MaskedLMConfig(**losses, next_sentence=1.0, max_predictions=20)
    assert bert.stages == (stage,)
    assert roberta.model == BertConfig(**sizes, norm="post", position="learned", type_vocab_size=0, max_tokens=128, eps=1e-5)
    assert roberta.task == MaskedLMConfig(**losses)
    assert roberta.stages == (replace(stage, betas=(0.9, 0.98)),)


@pytest.mark.parametrize("recipe", ["bert", "roberta"])
def test_small_sizes_learn_sooner(recipe):
    """The default reads distances, masks more, and makes smaller updates of as many tokens. Nothing else differs from the
    published training."""
    updates = {"small": {"steps": 16_000, "budget": 512}, "base": {}}
    for size in LAYERS:
        own, published = (RECIPES[recipe]("data", size=size, published=flag) for flag in (False, True))
        stage = replace(published.stages[0], **updates[size])
        assert stage.steps * stage.budget == 2000 * 4096
        task = replace(published.task, mask_rate=0.4, max_predictions=52 if recipe == "bert" else None)
        assert own == replace(published, model=replace(published.model, position="relative"), task=task, stages=(stage,))
    assert RECIPES[recipe]("data", size="paper") == RECIPES[recipe]("data", size="paper", published=True)
    comments = RECIPES["bert"]("data", rows="comments")
    assert comments.model.position == "learned"


# --- refusals -----------------------------------------------------------------------------------------------------------------


def test_concatenation_needs_comments():
    with pytest.raises(RamifyError, match=r"--concatenate 256 prepends .* Add --rows comments"):
        RECIPES["bert"]("data", concatenate=256)


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("roberta", {"pairs__dupe_factor": "3"}, r"pairs\.dupe_factor applies to rows=pairs, but rows=sentences"),
        ("bert", {"packing__cross_documents": "false"}, r"packing\.cross_documents applies to rows=sentences"),
        ("roberta", {"task__next_sentence": "1"}, r"task\.next_sentence=1\.0 needs rows of two segments"),
        ("bert", {"input__context": "tree"}, r"input\.context=tree and input\.concatenate=0 belong to comments"),
        ("bert", {"model__type_vocab_size": "1"}, r"model\.type_vocab_size=1 has no type for the second segment"),
        ("bert", {"dev__mask_rate": "0"}, r"dev\.mask_rate must be above 0 and at most 1, but is 0\.0"),
        ("bert", {"dev__rows": "0"}, r"dev\.rows=0 and dev\.draws=1 must both be at least 1"),
        ("bert", {"task__max_predictions": "few"}, r"--set task\.max_predictions=few is not a whole number"),
    ],
)
def test_bad_settings_are_refused(store, recipe, settings, message):
    with pytest.raises(RamifyError, match=message):
        small(store, recipe, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model__max_tokens": "20"}, r"model\.max_tokens=20 is too small for rows of up to 32 tokens"),
        ({"model__pooling": "mean"}, r"needs a bert with model\.pooling=pooler"),
        ({"model__vocab_size": "9"}, r"model\.vocab_size=9 is too small for the"),
    ],
)
def test_settings_that_do_not_fit_are_refused(store, tmp_path, settings, message):
    with pytest.raises(RamifyError, match=message):
        small(store, "bert", **settings).prepare(tmp_path)


def test_texts_without_a_second_segment_are_refused(tmp_path):
    store = built([Tree((Node("One sentence " * 40),))], tmp_path / "data", split=(1.0, 0.0, 0.0))
    with pytest.raises(RamifyError, match=r"holds a single sentence.*ramify train roberta"):
        small(store, "bert").prepare(tmp_path / "run")
    assert small(store, "roberta").prepare(tmp_path / "run").facts()["text"]["sentences_cut"] == 1
    empty = built([Tree((Node(" "),)), Tree((Node("\n"),))], tmp_path / "empty", split=(1.0, 0.0, 0.0))
    with pytest.raises(RamifyError, match=r"no text in the split 'train'|too small|no training trees"):
        small(empty, "roberta").prepare(tmp_path / "run")


def test_next_sentences_of_comments_are_refused(store, tmp_path):
    run = RECIPES["bert"](str(store.path), rows="comments").changed({"task.next_sentence": "1"})
    with pytest.raises(RamifyError, match="comments are single texts"):
        run.prepare(tmp_path)


def test_a_store_without_held_out_text_trains_without_a_dev_score(tmp_path):
    store = built(texts(40), tmp_path / "data", split=(1.0, 0.0, 0.0))
    _, progress = execute(small(store, "bert"), tmp_path / "run", cpu=True)
    assert progress.best is None
    model = ramify.load(tmp_path / "run")
    with pytest.raises(RamifyError, match="no text in the split 'test'"):
        PackedTextRun.evaluate(model, str(tmp_path / "run"), Store.open(store.path), "test", {})

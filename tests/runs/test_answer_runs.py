"""Runs on questions: from SQuAD's files to a model that answers, its scores, its report, resumed runs, and refused input."""

import copy
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures.labelled import labelled_store, sentences, settings_for
from fixtures.questions import question_store, squad
from ramify.errors import RamifyError
from ramify.inference.answer import Answerer
from ramify.recipes import RECIPES
from ramify.recipes.backbones import SCRATCH
from ramify.report.run_report import write_report
from ramify.runs import execute
from ramify.runs.labelled.answers import AnswerRun
from ramify.training.metrics_log import read_metrics

PARTS = {"train": 120, "dev": 30, "test": 20}


def files(impossible=False):
    return {name: squad(count, seed, impossible=impossible) for seed, (name, count) in enumerate(PARTS.items())}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return question_store(tmp_path_factory.mktemp("squad"), files())


@pytest.fixture(scope="module")
def store2(tmp_path_factory):
    return question_store(tmp_path_factory.mktemp("squad2"), files(impossible=True))


def run_of(store, *, model="bert", epochs=1.0, settings=None, **options):
    run = RECIPES["answer"](str(store.path), model=model, epochs=epochs, max_tokens=16, stride=6, **options)
    tiny = settings_for(run, input__question_tokens="4", train__budget="16")
    return run.changed(tiny | (settings or {}))


def trained(store, out, **options):
    execute(run_of(store, **options), out, cpu=True)
    return ramify.load(out)


def scores(model, out, store, split="dev"):
    return AnswerRun.evaluate(model, str(out), store, split, {}).to_json()


LEARNING = {"epochs": 5.0, "lr": 0.01}


@pytest.fixture(scope="module")
def run2(store2, tmp_path_factory):
    out = tmp_path_factory.mktemp("run2") / "run"
    trained(store2, out, **LEARNING)
    return out


@pytest.fixture(scope="module")
def run1(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("run1") / "run"
    trained(store, out, **LEARNING)
    return out


def test_it_learns_to_answer(store, run1):
    model = ramify.load(run1)
    found = scores(model, run1, store)
    assert list(found) == ["metric", "value", "metrics", "majority", "count", "most_frequent"]
    assert list(found["metrics"]) == ["exact_match", "f1"]
    assert found["metric"] == "f1"
    assert found["value"] == found["metrics"]["f1"] > 0.9 > 3 * found["majority"]
    assert found["count"] == len(_questions(files()["dev"]))
    assert isinstance(model, Answerer)
    assert model.task.config.null == "none"
    answer = model.answer("au aa", "de di ba da he do")
    assert (answer.best.text, answer.best.start, answer.best.end) == ("ba", 6, 8)


def test_it_learns_that_there_is_no_answer(store2, run2):
    model = ramify.load(run2)
    assert isinstance(model, Answerer)
    assert model.task.config.null == "token"
    found = scores(model, run2, store2)
    parts = ["exact_match", "f1", "has_answer_exact_match", "has_answer_f1", "no_answer_exact_match", "no_answer_f1"]
    assert list(found["metrics"]) == parts
    assert found["value"] > 0.8 > found["majority"]
    missing = sum(not each["answers"] for each in _questions(files(impossible=True)["dev"]))
    # The best constant answer is that there is none.
    assert found["majority"] == pytest.approx(missing / found["count"])
    assert model.answer("au aa", "de di da ha do he ga").best.no_answer
    assert model.answer("au aa", "de di da ba do he ga").best.text == "ba"


def _questions(content):
    return [each for entry in content["data"] for part in entry["paragraphs"] for each in part["qas"]]


def test_dev_chooses_weights_and_threshold(store2, run2):
    metrics = [record for record in read_metrics(run2) if "f1" in record]
    assert {"dev_loss", "exact_match", "value_start", "constant_end", "no_answer_f1"} <= metrics[0].keys()
    best = max(record["f1"] for record in metrics)
    assert scores(ramify.load(run2), run2, store2)["value"] == pytest.approx(best)
    threshold = load_file(run2 / "model.safetensors")["threshold"]
    assert threshold.dtype == torch.float64
    assert threshold != 0


def test_conditional_ends_and_the_classifier_of_no_answer(store2, tmp_path):
    model = trained(store2, tmp_path / "run", model="xlnet")
    assert isinstance(model, Answerer)
    config, input = model.task.config, model.input
    assert (config.end, config.candidates, config.null) == ("conditional", "passage", "classifier")
    assert (input.layout, input.order) == ("xlnet", "passage_first")
    assert 0 <= scores(model, tmp_path / "run", store2)["value"] <= 1


@pytest.mark.parametrize("name", ["bilstm", "gpt", "elmo", "tree-mlm", "cnn"])
def test_other_models_answer(store2, tmp_path, name):
    model = trained(store2, tmp_path / "run", model=name)
    assert isinstance(model, Answerer)
    assert model.answer("au aa", "de di ba da he do", n_best=3).spans


@pytest.mark.parametrize("name", SCRATCH)
def test_every_model_from_scratch_reads_the_rows_that_the_recipe_sets(name):
    run = RECIPES["answer"]("data", model=name)
    assert run.input.max_tokens == 384
    longest = run.model.for_vocabulary(100).build().max_tokens
    assert longest is None or longest >= 384


def test_features_leave_the_model_as_it_is(store, run1, tmp_path):
    model = trained(store, tmp_path / "run", model="", init=str(run1), mode="features", settings={"start": "backbone"})
    before, after = (load_file(folder / "model.safetensors") for folder in (run1, tmp_path / "run"))
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("backbone."))
    assert isinstance(model, Answerer)
    assert model.task.mix is not None
    assert model.task.mix.gamma != 1
    # An answerer that gives features may start with the output layer of one that does not.
    run_of(store, model="", init=str(run1), mode="features").prepare(tmp_path / "whole")


@pytest.mark.parametrize(("model", "mode"), [("bert", "finetune"), ("xlnet", "finetune"), ("bert", "features")])
def test_a_killed_run_resumes_to_the_same_bits(store2, tmp_path, model, mode):
    run = run_of(store2, model=model, mode=mode, settings={"train.checkpoint_every": "1", "model.dropout": "0.1"})

    def interrupt(record):
        if record["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    execute(run, tmp_path / "straight", cpu=True)
    execute(run, tmp_path / "stopped", cpu=True, report=interrupt)
    execute(run, tmp_path / "stopped", cpu=True, resume=True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "stopped"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    losses = [[record["loss"] for record in read_metrics(tmp_path / name)] for name in ("straight", "stopped")]
    assert len(losses[0]) > 4
    assert losses[0] == losses[1]


def test_the_test_split_changes_nothing_that_is_chosen(tmp_path):
    """Other questions, passages and answers in the test split: the same weights and the same threshold, to the bit."""
    clean = files(impossible=True)
    poisoned = clean | {"test": squad(20, 99, impossible=True)}
    stores = [question_store(tmp_path / str(number), content) for number, content in enumerate((clean, poisoned))]
    assert stores[0].hash != stores[1].hash
    # The tokenizer is trained on the training texts alone.
    for number, store in enumerate(stores):
        trained(store, tmp_path / f"run-{number}")
    one, other = (load_file(tmp_path / f"run-{number}" / "model.safetensors") for number in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_permuted_answers_fall_to_the_floor(store, run1, tmp_path):
    """The answers of training are words at random places."""
    random = np.random.default_rng(0)
    content = copy.deepcopy(files())
    for entry in content["train"]["data"]:
        for part in entry["paragraphs"]:
            word = str(random.choice(part["context"].split(" ")))
            for question in part["qas"]:
                question["answers"] = [{"text": word, "answer_start": part["context"].index(word)}]
    permuted = question_store(tmp_path / "data", content)
    model = trained(permuted, tmp_path / "run", **LEARNING)
    assert scores(model, tmp_path / "run", store)["value"] < 0.4
    assert scores(ramify.load(run1), run1, store)["value"] > 0.9


def test_the_report_shows_answers_in_their_passages(store2, tmp_path):
    trained(store2, tmp_path / "run", epochs=1.0, lr=0.001)
    page = write_report(tmp_path / "run", str(store2.path)).read_text()
    for expected in (
        "Right answers",
        "<mark>",
        "Most wrong answers",
        "shortest gold answer",
        "question word",
        "No answer",
        "A question has no answer if its null score exceeds",
        "without the question",
    ):
        assert expected in page, expected


def test_foreign_text_is_escaped_in_the_report(tmp_path):
    content = files()
    for each in _questions(content["dev"]):
        each["question"] = "<script>alert(1)</script> " + each["question"]
    store = question_store(tmp_path / "data", content)
    trained(store, tmp_path / "run")
    page = write_report(tmp_path / "run", str(store.path)).read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


# --- bad input ------------------------------------------------------------------------------------------------------------


def test_left_out_questions_are_counted_and_said(tmp_path):
    content = files()
    one, other, *_ = content["train"]["data"]
    one["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    other["paragraphs"][0]["qas"][0]["question"] = "au aa da de di do"
    del _questions(content["train"])[-1]["answers"]
    store = question_store(tmp_path / "data", content)
    prepared = run_of(store).prepare(tmp_path / "run")
    facts = prepared.facts()["text"]
    assert {name: facts[name] for name in ("moved", "unlabelled", "cut_questions")} == {
        "moved": 1,
        "unlabelled": 1,
        "cut_questions": 1,
    }
    everything = len(_questions(content["train"]))
    assert facts["learned"] == everything - 2
    assert (facts["questions"], facts["impossible"], facts["empty"]) == (everything - 1, 0, 0)
    said = prepared.reads()
    for part in (
        f"{everything - 2} questions about ",
        "1 question longer than 4 tokens cut",
        "1 question without a label left out",
        "1 answer not found in the passage left out of training",
    ):
        assert part in said, said


def test_other_data_are_refused(tmp_path):
    store = labelled_store(sentences(20), tmp_path)
    with pytest.raises(RamifyError, match="no question with an answer in the split 'train'"):
        RECIPES["answer"](str(store.path), model="bert").prepare(tmp_path / "run")


def test_a_checkpoint_of_another_task_gives_its_backbone(store, tmp_path):
    texts = labelled_store(sentences(20), tmp_path)
    run = RECIPES["classify"](str(texts.path), model="bert", epochs=1.0)
    execute(run.changed(settings_for(run)), tmp_path / "classifier", cpu=True)
    task = run_of(store, model="", init=str(tmp_path / "classifier")).prepare(tmp_path / "run").task
    before = load_file(tmp_path / "classifier" / "model.safetensors")
    after = task.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("backbone."))


def test_a_saved_answerer_with_another_form_is_refused(store, run1, tmp_path):
    with pytest.raises(RamifyError, match="was trained with end=independent"):
        run_of(store, model="", init=str(run1), end="conditional").prepare(tmp_path / "run")
    run_of(store, model="", init=str(run1), end="conditional", settings={"start": "backbone"}).prepare(tmp_path / "run")


def test_a_model_of_another_kind_cannot_answer(store, tmp_path):
    texts = labelled_store(sentences(20), tmp_path)
    run = RECIPES["classify"](str(texts.path), model="bert", epochs=1.0)
    execute(run.changed(settings_for(run)), tmp_path / "classifier", cpu=True)
    model = ramify.load(tmp_path / "classifier")
    with pytest.raises(RamifyError, match="not a model that answers questions"):
        scores(model, tmp_path / "classifier", store)


def test_without_dev_the_threshold_is_zero(tmp_path):
    store = question_store(tmp_path / "data", {"train": squad(20, 0, impossible=True)}, split_by="none")
    run = run_of(store)
    assert "no dev split" in run.adapt_to_data().notes()[0]
    model = trained(store, tmp_path / "run")
    assert isinstance(model, Answerer)
    assert model.task.threshold == 0

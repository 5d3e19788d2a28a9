"""Runs on tags of words: from any backbone to a model that tags, beside its floor."""

import json
import os
import signal
from collections import Counter, defaultdict
from itertools import accumulate

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures.labelled import settings_for
from fixtures.tagged import OTHERS, sentences, tagged_store
from ramify import Node, RamifyError, Tree
from ramify.dataset.build import build
from ramify.inference.answers import TextSpans
from ramify.metrics.spans import score_spans
from ramify.readers.base import Policy
from ramify.recipes import RECIPES
from ramify.recipes.backbones import SCRATCH
from ramify.runs import execute
from ramify.runs.labelled.tagging import TaggingRun
from ramify.training.metrics_log import read_metrics

tag = RECIPES["tag"]
TRAIN, DEV, TEST = sentences(200), sentences(20, seed=1), sentences(30, seed=2)
LEARNING = {"train__budget": "8", "model__dropout": "0"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tagged_store(tmp_path_factory.mktemp("tagged"), TRAIN, DEV, TEST)


def run_of(store, settings=None, **options):
    run = tag(str(store.path), **options)
    return run.changed(settings_for(run, **(settings or {})))


def trained(store, out, settings=None, **options):
    execute(run_of(store, settings, **options), out, cpu=True)
    return ramify.load(out)


def score(out, store, split="test"):
    return TaggingRun.evaluate(ramify.load(out), str(out), store, split, {}).to_json()


@pytest.fixture(scope="module", params=["linear", "crf"])
def out(request, store, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param) / "run"
    trained(store, out, LEARNING, model="bilstm", decoder=request.param, epochs=6.0, lr=0.02)
    return out


@pytest.mark.parametrize("name", SCRATCH)
def test_every_model_from_scratch_and_as_features(store, tmp_path, name):
    model = trained(store, tmp_path / "run", model=name, epochs=1.0)
    assert isinstance(model.predict("aa ae"), TextSpans)
    weights = {key: value.clone() for key, value in model.backbone.state_dict().items()}
    settings = {"start": "backbone"}
    options = {"init": str(tmp_path / "run"), "mode": "features", "decoder": "crf", "epochs": 1.0}
    again = trained(store, tmp_path / "features", settings, **options)
    assert again.task.bilstm is not None
    assert again.task.mix is not None
    for key, value in again.backbone.state_dict().items():
        assert torch.equal(value, weights[key]), key


def test_it_learns(store, out):
    found = score(out, store)
    assert [*found][:6] == ["metric", "value", "metrics", "majority", "count", "most_frequent"]
    assert found["metric"] == "span_f1"
    assert found["value"] == found["metrics"]["span_f1"] > 0.9
    assert found["metrics"].keys() == {"span_f1", "precision", "recall", "accuracy", "f1_LOC", "f1_PER"}
    assert found["count"] == 30
    model = ramify.load(out)
    assert sorted(model.labels) == ["LOC", "PER"]
    assert "2 labels (" in repr(model)
    # The floor: the most frequent tag of each word in training.
    counts = defaultdict(Counter)
    for word, name in (pair for sentence in TRAIN for pair in sentence):
        counts[word][name] += 1
    guesses = [[counts[word].most_common(1)[0][0] if word in counts else "O" for word, _ in row] for row in TEST]
    floor = score_spans([[name for _, name in row] for row in TEST], guesses).whole.f1
    assert found["majority"] == pytest.approx(floor)
    assert 0 < floor < found["value"]


def test_dev_chooses_the_weights(store, out):
    records = [record for record in read_metrics(out) if "span_f1" in record]
    assert {"dev_loss", "accuracy", "precision", "recall", "value_tag", "constant_tag"} <= records[0].keys()
    assert score(out, store, "dev")["value"] == pytest.approx(max(record["span_f1"] for record in records))


def test_the_answer(store, out):
    model = ramify.load(out)
    text = f"  ba bo, aa ae {OTHERS[0]} "
    one = model.predict(text)
    assert json.loads(json.dumps(one.to_json())) == {"id": "0", "spans": [span.to_json() for span in one.spans]}
    for span in one.spans:
        assert text[span.start : span.end] == span.text
        assert 0 < span.probability <= 1
    assert [(span.text, span.tag) for span in one.spans if span.text.startswith("a")] == [("aa ae", "PER")]
    # Tables of tokens have the tag of each token, too.
    table_answer = model.predict_store(store)[0]
    assert table_answer.tokens
    assert table_answer.to_json()["tokens"][0].keys() == {"text", "start", "end", "tag", "probability"}


def test_predictions_do_not_read_tags(store, out, tmp_path):
    """Tokens with other tags, or without any, get the same answer."""
    model = ramify.load(out)
    bare = tmp_path / "bare.txt"
    bare.write_text("\n".join("".join(f"{word}\n" for word, _ in row) for row in TEST))
    other = build([bare], "conll", tmp_path / "bare", split=(0, 0, 1))

    def answers(of):
        nodes = np.concatenate([np.arange(of.offsets[tree], of.offsets[tree + 1]) for tree in of.split("test")])
        found = model.predict_store(of, nodes)
        return {of.texts([int(node)])[0]: [token.tag for token in answer.tokens] for node, answer in zip(nodes, found)}

    assert answers(other) == answers(store)


def test_rows_do_not_read_each_other(out):
    """What stands in the other texts of a batch changes no bit of an answer."""
    model = ramify.load(out)
    texts = [" ".join(word for word, _ in row) for row in TEST if len(row) == 4]
    assert len(texts) > 2
    whole = model.predict(texts)
    others = model.predict([texts[0], *["aa ae aw ay"] * (len(texts) - 1)])
    assert others[0] == whole[0]
    # In batches of other sizes, products are added up in another order.
    alone = model.predict(texts[0])
    assert [(span.start, span.end, span.tag) for span in alone.spans] == [(s.start, s.end, s.tag) for s in whole[0].spans]
    assert [span.probability for span in alone.spans] == pytest.approx([span.probability for span in whole[0].spans], rel=1e-4)


def test_long_texts_are_read_in_windows(store, out):
    """Each word has the tag that it has in the row with most of its surroundings; a CRF decodes the whole text."""
    model = ramify.load(out)
    words = [word for row in TEST[:12] for word, _ in row]
    text = " ".join(words)
    assert len(words) > 3 * model.input.max_tokens
    answer = model.predict(text)
    gold = [name for row in TEST[:12] for _, name in row]
    from ramify.dataset.bio import spans_of

    starts = list(accumulate((len(word) + 1 for word in words), initial=0))
    expected = {(starts[span.start], starts[span.stop] - 1, span.type) for span in spans_of(gold)}
    found = {(span.start, span.end, span.tag) for span in answer.spans}
    assert len(found & expected) > 0.8 * len(expected)
    assert all(text[span.start : span.end] == span.text for span in answer.spans)


def test_a_killed_run_resumes_to_the_same_bits(store, tmp_path):
    run = run_of(store, {"train__checkpoint_every": "1"}, model="bilstm", decoder="crf", epochs=3.0)
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    execute(run, tmp_path / "stopped", cpu=True, report=interrupt)
    execute(run, tmp_path / "stopped", cpu=True, resume=True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "stopped"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_permuted_tags_are_not_learned(tmp_path):
    """Tags that have nothing to do with their words leave the model at its floor."""
    random = np.random.default_rng(0)

    def permuted(made):
        names = [name for row in made for _, name in row]
        shuffled = iter(random.permutation(names).tolist())
        return [[(word, next(shuffled)) for word, _ in row] for row in made]

    store = tagged_store(tmp_path, permuted(TRAIN), permuted(DEV), permuted(TEST))
    trained(store, tmp_path / "run", LEARNING, model="bilstm", decoder="crf", epochs=4.0, lr=0.02)
    assert score(tmp_path / "run", store)["value"] < 0.35


def test_the_test_split_chooses_nothing(store, tmp_path):
    poisoned = tagged_store(tmp_path / "p", TRAIN, DEV, [[(word, "B-LOC") for word, _ in row] for row in TEST])
    settings = {"train__checkpoint_every": "0"}
    for data, name in ((store, "clean"), (poisoned, "poisoned")):
        trained(data, tmp_path / name, settings, model="bilstm", epochs=2.0)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("clean", "poisoned"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_tag_that_is_seen_in_dev_only(tmp_path):
    store = tagged_store(tmp_path, TRAIN, [[("ba", "B-ORG")]])
    with pytest.raises(
        RamifyError, match=r"2 tags|1 tag of the texts does not occur in the training data: B-ORG\. The model knows O, B-LOC"
    ):
        execute(run_of(store, model="bilstm", epochs=1.0), tmp_path / "run", cpu=True)


def test_one_tag_alone(tmp_path):
    store = tagged_store(tmp_path, [[("ba", "O"), ("bo", "O")]], [[("ba", "O")]])
    with pytest.raises(RamifyError, match=r"all 2 tags of the training split are 'O', so there is nothing to learn"):
        run_of(store, model="bilstm").adapt_to_data()


def test_tokens_without_tags(tmp_path):
    (tmp_path / "train.txt").write_text("ba\nbo\n\nbu\n")
    store = build([tmp_path / "train.txt"], "conll", tmp_path / "store")
    with pytest.raises(RamifyError, match="the tokens of 2 texts have no tags"):
        run_of(store, model="bilstm").adapt_to_data()


def test_settings_that_do_not_apply(store):
    for key, message in (
        ("input__context", r"input\.context=parent does not apply to the tags of words"),
        ("input__text", r"input\.text=parent does not apply"),
    ):
        with pytest.raises(RamifyError, match=message):
            run_of(store, {key: "parent"}, model="bilstm").prepare(store.path.parent / "out")
    with pytest.raises(RamifyError, match=r"task\.overlap must be at least 0 and below 1"):
        run_of(store, {"task__overlap": "1"}, model="bilstm")


def test_spans_by_characters(tmp_path):
    """Annotated spans become tags of words, overlapping ones are counted, and answers have the places of the text."""
    random = np.random.default_rng(3)
    trees = []
    for number in range(60):
        words = [str(word) for word in random.choice(["naïve", "日本", "e\u0301té", "👍🏽", "go"], size=6)]
        text, at = " ".join(words), 0
        spans = []
        for word in words:
            if word == "日本":
                spans.append({"kind": "claim", "start": at, "end": at + len(word)})
            at += len(word) + 1
        if number == 0:
            spans += [{"kind": "claim", "start": 0, "end": len(text)}]
        split = ("train", "train", "dev")[number % 3]
        trees.append(Tree((Node(text, id="0", label=spans),), f"t{number}", {"split": split}))
    file = tmp_path / "trees.jsonl"
    file.write_text("".join(tree.to_json() + "\n" for tree in trees))
    store = build([file], "jsonl", tmp_path / "store")
    prepared, _ = execute(
        run_of(store, LEARNING, model="bilstm", decoder="crf", epochs=8.0, lr=0.02), tmp_path / "run", cpu=True
    )
    assert any("overlap" in warning for warning in prepared.warnings([]))
    model = ramify.load(tmp_path / "run")
    text = "e\u0301té 👍🏽 日本 naïve 日本"
    answer = model.predict(text)
    assert {span.text for span in answer.spans} == {"日本"}
    assert [(span.start, span.end) for span in answer.spans] == [
        (text.index("日"), text.index("日") + 2),
        (len(text) - 2, len(text)),
    ]


def test_the_floor_is_a_model(store, out, tmp_path):
    run = tag(str(store.path), model="majority")
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    assert prepared.fitted.line().startswith("fitted, dev span f1 0.")
    found, beside = score(tmp_path / "run", store), score(out, store)
    assert found["value"] == found["majority"] == beside["majority"]
    model = ramify.load(tmp_path / "run")
    place, person = model.predict("ba aa").spans
    assert (place.text, place.tag, person.text, person.tag) == ("ba", "LOC", "aa", "PER")
    # The shares of the most frequent tags, as if each of the five tags had occurred once more.
    shares = {}
    for word in ("ba", "aa"):
        counts = Counter(name for row in TRAIN for own, name in row if own == word)
        shares[word] = (counts.most_common(1)[0][1] + 1) / (counts.total() + 5)
    # The next word does not go on with the place.
    assert place.probability == pytest.approx(shares["ba"] * (1 - (1 - shares["aa"]) / 4))
    with pytest.raises(RamifyError, match=r"--set train\.lr=1 has no effect on a floor"):
        run.changed({"train.lr": "1"})
    with pytest.raises(RamifyError, match="--decoder crf has no effect on --model majority"):
        tag(str(store.path), model="majority", decoder="crf")


def test_a_tagger_goes_on(store, out, tmp_path):
    """A linear tagger may get a CRF. The states that its output layer reads must stay, and its tags."""
    continued = run_of(store, init=str(out), decoder="crf").prepare(tmp_path / "a").task
    assert torch.equal(continued.output.weight, ramify.load(out).task.output.weight)
    assert run_of(store, init=str(out), decoder="crf").stages[0].lr_scale == ((r"^crf\.", 50.0),)
    assert run_of(store, init=str(out), decoder="linear").stages[0].lr_scale == ()
    with pytest.raises(RamifyError, match=r"task\.between=bilstm does not fit init=.* Set task\.between=nothing, or take"):
        run_of(store, init=str(out), mode="features").prepare(tmp_path / "b")
    other = tagged_store(tmp_path / "other", [[("ba", "B-ORG"), ("bo", "O")]], [[("ba", "B-ORG")]])
    with pytest.raises(RamifyError, match=r"was trained with tags=\[O, B-LOC, .*\] \(5\), but the labels of .* have tags="):
        run_of(other, init=str(out)).prepare(tmp_path / "c")


def test_texts_without_words(tmp_path):
    """They are left out of training, and predicted to have no span."""
    labelled = [Node("ba bo", id="0", label=[{"kind": "x", "start": 0, "end": 2}]), Node("\u200b", id="0", label=[])]
    trees = [Tree((labelled[number % 2],), f"t{number}", {"split": "train"}) for number in range(8)]
    trees += [Tree((labelled[1],), "d", {"split": "dev"})]
    file = tmp_path / "trees.jsonl"
    file.write_text("".join(tree.to_json() + "\n" for tree in trees))
    store = build([file], "jsonl", tmp_path / "store", policy=Policy(empty="keep"))
    run = run_of(store, {"train__budget": "1", "train__evaluate_every": "0"}, model="bilstm", epochs=1.0)
    prepared, progress = execute(run, tmp_path / "run", cpu=True)
    assert (len(prepared.train), progress.step, prepared.dev()) == (4, 4, None)
    assert all(np.isfinite(record["loss"]) for record in read_metrics(tmp_path / "run"))
    model = ramify.load(tmp_path / "run")
    assert model.predict("").spans == model.predict(" \n").spans == ()
    assert score(tmp_path / "run", store, "dev")["count"] == 1


def test_plain_tags(tmp_path):
    def plain(made):
        return [[(word, {"O": "NN", "B-LOC": "VB"}.get(name, "DT")) for word, name in row] for row in made]

    store = tagged_store(tmp_path, plain(TRAIN), plain(DEV), plain(TEST))
    model = trained(store, tmp_path / "run", LEARNING, model="bilstm", epochs=5.0, lr=0.02)
    found = score(tmp_path / "run", store)
    assert (found["metric"], [*found["metrics"]]) == ("accuracy", ["accuracy", "macro_f1", "f1_DT", "f1_NN", "f1_VB"])
    assert found["value"] > 0.9
    answer = model.predict("ba bo").to_json()
    assert answer.keys() == {"id", "tokens"}
    assert [token["text"] for token in answer["tokens"]] == ["ba", "bo"]

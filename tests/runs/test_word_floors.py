"""Floors of choices, tags and answers against independent computations, and what no run on labels may learn from."""

import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import ramify
from fixtures.labelled import BAD, GOOD, OTHERS, labelled_store, sentences, settings_for
from fixtures.questions import question_store, squad
from fixtures.tagged import sentences as tagged_sentences
from fixtures.tagged import tagged_store
from ramify.batching.question_windows import Windows
from ramify.batching.tagged_batch import TagCollator
from ramify.batching.views.choices import row_texts
from ramify.dataset import build
from ramify.dataset.choices import labelled_choices
from ramify.errors import RamifyError
from ramify.inference.label_pipeline import label_batches
from ramify.metrics.answers import f1
from ramify.models.word_windows import REACHES, shape_of
from ramify.recipes import RECIPES
from ramify.recipes.backbones import SCRATCH
from ramify.report import write_report
from ramify.runs import RUNS, execute
from ramify.runs.labelled import word_floors

ONE_WINDOW = {"fit.windows": "[1]", "fit.strengths": "[2]"}


# --- data of each task, perhaps with labels that mean nothing, or with another test split ----------------------------------


def classify_store(folder, *, permuted=False, poisoned=False):
    rows = sentences(300)
    if permuted:
        labels = np.random.default_rng(1).permutation([row["label"] for row in rows])
        rows = [row | {"label": str(label)} for row, label in zip(rows, labels, strict=True)]
    if poisoned:
        rows = [row | ({"text": "ha ha", "label": "bad"} if row["split"] == "test" else {}) for row in rows]
    return labelled_store(rows, folder)


def choose_store(folder, *, permuted=False, poisoned=False):
    """The right choice holds a good word, and the wrong one a bad one."""
    random = np.random.default_rng(3)
    (folder / "COPA").mkdir(parents=True)
    for name, count in (("train", 160), ("val", 60), ("test", 60)):
        lines = []
        for number in range(count):
            right = int(random.integers(2))
            texts = [f"{random.choice(OTHERS)} {random.choice(GOOD if place == right else BAD)}" for place in (0, 1)]
            row = {"premise": f"{random.choice(OTHERS)} {name} {number}", "question": "cause", "idx": number, "label": right}
            row |= {"choice1": texts[0], "choice2": texts[1]}
            if permuted:
                row["label"] = int(random.integers(2))
            if poisoned and name == "test":
                row |= {"premise": f"ha {number}", "choice1": "ha", "choice2": "ba", "label": 1}
            lines.append(json.dumps(row) + "\n")
        (folder / "COPA" / f"{name}.jsonl").write_text("".join(lines))
    return build([folder / "COPA"], "labelled", folder / "store")


def tag_store(folder, *, permuted=False, poisoned=False):
    random = np.random.default_rng(0)
    parts = [tagged_sentences(count, seed) for seed, count in enumerate((150, 30, 30))]
    if permuted:
        for place, part in enumerate(parts):
            tags = iter(random.permutation([tag for row in part for _, tag in row]).tolist())
            parts[place] = [[(word, next(tags)) for word, _ in row] for row in part]
    if poisoned:
        parts[2] = [[("ha", "B-LOC") for _ in row] for row in parts[2]]
    return tagged_store(folder, *parts)


def answer_store(folder, *, permuted=False, poisoned=False, impossible=False):
    files = {
        name: squad(count, seed, impossible=impossible)
        for seed, (name, count) in enumerate({"train": 60, "dev": 20, "test": 30}.items())
    }
    if poisoned:
        files["test"] = squad(30, 99, impossible=impossible)
    if permuted:
        random = np.random.default_rng(0)
        for entry in files["train"]["data"]:
            for part in entry["paragraphs"]:
                word = str(random.choice(part["context"].split(" ")))
                for question in part["qas"]:
                    question["answers"] = [{"text": word, "answer_start": part["context"].index(word)}]
    return question_store(folder, files)


STORES = {"classify": classify_store, "choose": choose_store, "tag": tag_store, "answer": answer_store}


def fitted(task, store, out, model="tfidf", settings=None, **options):
    run = RECIPES[task](str(store.path), model=model, **options)
    if model not in ("majority", "tfidf"):
        run = run.changed(settings_for(run, train__budget="16") | ({"input.question_tokens": "4"} if task == "answer" else {}))
    prepared, _ = execute(run.changed(settings or {}), out, cpu=True)
    return prepared, ramify.load(out)


def score(model, out, store, split="test"):
    return RUNS[model.kind].evaluate(model, str(out), store, split, {}).to_json()


@pytest.mark.parametrize(("task", "model"), [*product(STORES, ["tfidf"]), ("choose", "bag")])
def test_permuted_labels_fall_to_the_floor(tmp_path, task, model):
    # Three standard deviations of 60 coins; a tag or a word that is guessed.
    ceiling = {"classify": 0.7, "choose": 0.7, "tag": 0.35, "answer": 0.4}[task]
    found = {}
    for permuted in (False, True):
        folder = tmp_path / str(permuted)
        store = STORES[task](folder, permuted=permuted)
        options = {} if model == "tfidf" else {"epochs": 8.0, "lr": 0.05, "patience": 0}
        _, trained = fitted(task, store, folder / "run", model, **options)
        found[permuted] = score(trained, folder / "run", store)["value"]
    assert found[True] < ceiling
    assert found[False] > 0.8


@pytest.mark.parametrize(("task", "model"), [*product(STORES, ["majority", "tfidf", "bag"])])
def test_nothing_of_the_test_split_is_read(tmp_path, task, model):
    options = {"epochs": 1.0} if model == "bag" else {}
    hashes, saved = set(), []
    for name in ("clean", "poisoned"):
        store = STORES[task](tmp_path / name, poisoned=name == "poisoned")
        hashes.add(store.hash)
        fitted(task, store, tmp_path / name / "run", model, **options)
        files = ("model.safetensors", "tokenizer.json", "config.json")
        saved.append([(tmp_path / name / "run" / file).read_bytes() for file in files])
    assert len(hashes) == 2
    assert saved[0] == saved[1]


# --- what the floors say ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "model"), [*product(("choose", "tag", "answer"), ("majority", "tfidf"))])
def test_a_floor_is_a_model(tmp_path, monkeypatch, task, model):
    """It is saved, evaluated, reported and fitted again like any other, and needs scikit-learn for the fit alone."""
    store = STORES[task](tmp_path / "data")
    prepared, loaded = fitted(task, store, tmp_path / "run", model)
    found = score(loaded, tmp_path / "run", store, "dev")
    assert found["value"] == pytest.approx(prepared.fit["dev"])
    frequent = found["most_frequent"]
    only = frequent["count"] == frequent["total"]
    assert only == ((task, model) == ("choose", "majority"))
    note = "; the model predicts one thing for every dev example" * only
    assert prepared.fitted.line() == f"fitted, dev {prepared.metric.label} {prepared.fit['dev']:.4f}{note}"
    lines = RUNS[loaded.kind].evaluate(loaded, str(tmp_path / "run"), store, "dev", {}).lines()
    assert (f"are predicted as “{frequent['prediction']}”" in lines[0]) == only
    page = write_report(tmp_path / "run").read_text()
    assert (f"are predicted as “{frequent['prediction']}”." in page) == only
    assert ("and has no settings." if model == "majority" else "The dev split chose the best of these settings.") in page
    weights = loaded.task.state_dict()
    execute(RECIPES[task](str(store.path), model=model), tmp_path / "run", resume=True, cpu=True)
    again = ramify.load(tmp_path / "run").task.state_dict()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert score(ramify.load(tmp_path / "run"), tmp_path / "run", store, "dev") == found
    if model == "tfidf":
        assert found["value"] > 0.8 > found["majority"]
        with pytest.raises(
            RamifyError, match=r"^--model tfidf needs sklearn\. Install it with: pip install 'ramify\[sklearn\]'$"
        ):
            fitted(task, store, tmp_path / "other")


def test_the_place_that_is_right_most_often(tmp_path):
    store = choose_store(tmp_path)
    _, model = fitted("choose", store, tmp_path / "run", "majority")
    counts = Counter(labelled_choices(store, "train").right.tolist())
    answer = model.predict(("a text", ["one", "two"]))
    expected = [(counts[place] + 1) / (counts.total() + 2) for place in (0, 1)]
    assert list(answer.probabilities.values()) == pytest.approx(expected)
    # Of equally frequent places, the first one; a place that no training question has is the last to be chosen.
    model.task.places.copy_(torch.tensor([3, 3]))
    assert model.predict(("a text", ["one", "two", "three"])).label == "one"
    model.task.places.copy_(torch.tensor([1, 3]))
    assert model.predict(("a text", ["one", "two", "three"])).label == "two"


def test_choices_are_those_of_scikit_learn(tmp_path):
    store = choose_store(tmp_path)
    settings = {"fit.ngrams": "[1]", "fit.strengths": "[2]"}
    prepared, model = fitted("choose", store, tmp_path / "run", settings=settings)
    assert prepared.task.backbone.config.overlap
    tokenizer, splits = prepared.task.tokenizer, {}
    for split in ("train", "dev"):
        labelled = labelled_choices(store, split)
        firsts, seconds = row_texts(store, labelled.sets, "connective")
        rights = [place == right for texts, right in zip(firsts, labelled.right, strict=True) for place in range(len(texts))]
        splits[split] = (*([text for texts in each for text in texts] for each in (firsts, seconds)), rights)

    def words(text):
        return [str(number) for number in tokenizer.encode(text) if number not in tokenizer.special_ids]

    def vectorizer():
        return TfidfVectorizer(
            tokenizer=words,
            token_pattern=None,
            lowercase=False,
            sublinear_tf=True,
            vocabulary=map(str, range(tokenizer.vocab_size)),
        )

    fits = [vectorizer().fit(splits["train"][place]) for place in (0, 1)]

    def matrix(split):
        one, two = (fit.transform(splits[split][place]).toarray() for place, fit in enumerate(fits))
        # A word that no training text has is no term.
        seen = [fit.transform(splits["train"][place]).toarray().any(0) for place, fit in enumerate(fits)]
        one, two = (part * known for part, known in zip((one, two), seen, strict=True))
        one, two = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-9) for part in (one, two))
        return np.concatenate([one, two, (one * two).sum(1, keepdims=True)], 1)

    expected = LogisticRegression(C=2, max_iter=1000).fit(matrix("train"), splits["train"][2])
    scores = expected.decision_function(matrix("dev")).reshape(-1, 2)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    answers = model.predict_store(store, labelled_choices(store, "dev").sets.questions)
    assert 0 < matrix("dev")[:, -1].max() < 1
    for row, answer in zip(shares, answers, strict=True):
        assert list(answer.probabilities.values()) == pytest.approx(row.tolist(), abs=1e-4)


def test_overlap_decides_between_choices(tmp_path):
    """Terms alone do not: each word is as often in right choices as in wrong ones."""
    random = np.random.default_rng(0)
    (tmp_path / "COPA").mkdir()
    for name, count in (("train", 200), ("val", 60)):
        lines = []
        for number in range(count):
            words, right = random.choice(OTHERS, size=4, replace=False), number % 2
            texts = [f"{words[0]} {words[2]}", f"{words[3]} {words[1]}"]
            row = {"premise": f"{words[0]} {words[1]}", "question": "cause", "idx": number, "label": right}
            texts[1 - right] = f"{words[2]} {words[3]}"
            lines.append(json.dumps(row | {"choice1": texts[0], "choice2": texts[1]}) + "\n")
        (tmp_path / "COPA" / f"{name}.jsonl").write_text("".join(lines))
    store = build([tmp_path / "COPA"], "labelled", tmp_path / "store")
    _, model = fitted("choose", store, tmp_path / "run")
    assert score(model, tmp_path / "run", store, "dev")["value"] > 0.95


def naive(row, place, window, question=(), asked=(), rarity=None, passage=range(0)):
    """The features of one word, by their names."""
    found = defaultdict(float)
    for shift in range(-window, window + 1):
        if 0 <= place + shift < len(row):
            word = row[place + shift]
            found[f"word {shift} {word.lower()}"] = 1
            found[f"shape {shift} {'other' if word.startswith('[') else shape_of(word)}"] = 1
    different = {word.lower() for word in question}
    total = sum(rarity[word] for word in different) if different else 1
    if row[place].lower() in different:
        found["here"] = rarity[row[place].lower()] / total
    for near, far in pairwise(REACHES):
        for side in (-1, 1):
            others = [place + side * step for step in range(near + 1, far + 1)]
            words = [row[other].lower() for other in others if other in passage]
            found[f"reach {side * far}"] = sum(rarity[word] for word in words if word in different) / total
    for word in different & set(asked):
        found[f"asked {word} {shape_of(row[place])}"] = 1
    return {name: value for name, value in found.items() if value}


def test_tags_are_those_of_scikit_learn(tmp_path):
    """With words of both cases, and numbers."""
    made = [[(("Ba" if word == "ba" else word.upper()) if number % 3 == 0 else word, tag) for word, tag in row]
            for number, row in enumerate(tagged_sentences(60))]  # fmt: skip
    made += [[("12", "B-LOC"), ("b2", "O"), ("!", "O")]] * 2
    store = tagged_store(tmp_path, made, made[:10])
    prepared, model = fitted("tag", store, tmp_path / "run", settings=ONE_WINDOW)
    # The store has an order of its own.
    rows = [text.split() for text in store.texts(prepared.tagged.nodes)]
    assert sorted(rows) == sorted([word for word, _ in row] for row in made)
    features = [naive(row, place, 1) for row in rows for place in range(len(row))]
    vectorizer = DictVectorizer()
    tags = [tag for row in prepared.tagged.tags for tag in row]
    expected = LogisticRegression(C=2, max_iter=1000).fit(vectorizer.fit_transform(features), tags)
    known = [prepared.task.config.tags.index(tag) for tag in expected.classes_]
    shares = np.zeros((len(features), len(prepared.task.config.tags)))
    # No training word has the tag I-LOC.
    shares[:, known] = expected.predict_proba(vectorizer.transform(features))
    assert len(known) == shares.shape[1] - 1
    ends = np.cumsum([len(row) for row in rows])
    for numbers, batch in label_batches(prepared.train, TagCollator.of(prepared.train)):
        found = model.task.scores(model.task.word_states(batch)).softmax(1).detach().numpy()
        wanted = np.concatenate([shares[ends[number] - len(rows[number]) : ends[number]] for number in numbers])
        np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_starts_and_ends_are_those_of_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setattr(word_floors, "OTHERS", 10**9)
    store = answer_store(tmp_path)
    prepared, model = fitted("answer", store, tmp_path / "run", settings=ONE_WINDOW)
    view = prepared.train
    passages = [text.lower().split() for text in view.questions.passages]
    counts = Counter(word for words in passages for word in set(words))
    rarity = defaultdict(lambda: np.log(1 + len(passages)) + 1)
    rarity |= {word: np.log((1 + len(passages)) / (1 + count)) + 1 for word, count in counts.items()}
    asked = {word for text in view.questions.texts for word in text.split()}
    features, ends, places = [], [], {}
    for number, text in enumerate(view.questions.texts):
        question, words = text.split(), view.passage(number).split()
        row = ["[CLS]", *question, "[SEP]", *words, "[SEP]"]
        inside = range(len(question) + 2, len(row) - 1)
        places[number] = slice(len(features), len(features) + len(words))
        features += [naive(row, place, 1, question, asked, rarity, inside) for place in inside]
        ends += [[place == end for end in view.answers[number]] for place in range(len(words))]
    vectorizer = DictVectorizer()
    matrix = vectorizer.fit_transform(features)
    for place, is_end in enumerate(np.array(ends).T):
        expected = LogisticRegression(C=2, max_iter=1000).fit(matrix, is_end).decision_function(matrix)
        for numbers, batch in label_batches(view, model.task.collator):
            scores = model.task.output(model.task.states(batch))[:, place].detach()
            found = scores[Windows.of(batch).passage].numpy()
            wanted = np.concatenate([expected[places[number]] for number in numbers])
            np.testing.assert_allclose(found, wanted, atol=5e-3)


@pytest.mark.parametrize("impossible", [False, True])
def test_the_constant_answer_with_the_best_f1(tmp_path, impossible):
    store = answer_store(tmp_path, impossible=impossible)
    prepared, model = fitted("answer", store, tmp_path / "run", "majority")
    questions, rules = prepared.train.questions, "2.0" if impossible else "1.1"

    def mean(answer):
        passages = [questions.passages[place].split() for place in questions.passage]
        return np.mean([f1(answer(words), gold, rules) for words, gold in zip(passages, questions.gold, strict=True)])

    def span(start, size):
        def answer(words):
            last = len(words) - 1
            return " ".join(words[min(start, last) : min(start + size - 1, last) + 1])

        return answer

    trials = {each: mean(span(*each)) for each in product(word_floors.STARTS, word_floors.SIZES)}
    best = max(trials, key=trials.get)
    passage = "ab ac ad ae af ag ah ai aj ak al am an ao ap aq ar as at au"
    if impossible:
        assert mean(lambda words: "") > trials[best]
        assert model.answer("au aa", passage).best.text == ""
    else:
        found = [model.answer("au", text).best.text for text in (passage, "ab ac")]
        assert found == [span(*best)(text.split()) for text in (passage, "ab ac")]


def test_most_questions_without_an_answer_and_no_dev(tmp_path):
    """The threshold is 0 then, and the constant answer is what was best in training."""
    store = question_store(tmp_path, {"train": squad(40, 0, impossible=True)}, split_by="none")
    _, model = fitted("answer", store, tmp_path / "run", "majority")
    assert float(model.task.threshold) == 0
    assert model.answer("au aa", "da de di").best.text == ""


# --- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", STORES)
def test_unknown_models_and_settings_of_training(task):
    recipe = RECIPES[task]
    known = ", ".join(SCRATCH)
    with pytest.raises(
        RamifyError, match=rf"^--model x is neither one of {known} nor one of the floors majority, tfidf\. Choose"
    ):
        recipe("data", model="x")
    for options in ({"mode": "features"}, {"epochs": 2.0}, {"lr": 0.1}, {"patience": 0}):
        ((name, value),) = options.items()
        with pytest.raises(
            RamifyError, match=rf"--{name} {value} has no effect on --model tfidf, which is fitted in closed form"
        ):
            recipe("data", model="tfidf", **options)
    for key in ("train.lr", "stages.0.lr", "model.dim", "task.dropout"):
        with pytest.raises(RamifyError, match=rf"--set {key}=1 has no effect on a floor"):
            recipe("data", model="majority").changed({key: "1"})
    with pytest.raises(
        RamifyError, match=r"--set fit\.strengths=\[1\] is for a floor .* Leave it out, or choose --model tfidf"
    ):
        recipe("data", model="bag").changed({"fit.strengths": "[1]"})


def test_other_settings_of_floors():
    with pytest.raises(RamifyError, match="--decoder crf has no effect on --model tfidf"):
        RECIPES["tag"]("data", model="tfidf", decoder="crf")
    with pytest.raises(RamifyError, match="--end conditional has no effect on --model majority"):
        RECIPES["answer"]("data", model="majority", end="conditional")
    with pytest.raises(RamifyError, match=r"fit\.windows=\[-1\] does not hold numbers of neighbours alone"):
        RECIPES["tag"]("data", model="tfidf").changed({"fit.windows": "[-1]"})

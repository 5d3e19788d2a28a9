"""Parts of reports on label tasks: calibration of several classes, errors of numbers, and scores by depth."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import ramify
from fixtures import built
from fixtures.label_runs import label_stores
from fixtures.labelled import BAD, GOOD, sentences
from ramify.metrics.depths import DEPTH_BINS
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute
from ramify.runs.labelled.scores import score_texts
from ramify.tree import Node, Tree

ONE = {"fit.strengths": "[2]", "fit.ngrams": "[1]"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return label_stores(tmp_path_factory.mktemp("data"))


def texts_store(folder, label):
    """Sentences of two kinds of words, labelled by their words and their number."""
    rows = enumerate(sentences(150))
    trees = [
        Tree((Node(row["text"], label=label(row, place), id="0"),), f"t{place}", {"split": row["split"]}) for place, row in rows
    ]
    return built(trees, folder)


def fitted(store, out, task="classify", model="tfidf"):
    """The scored dev split of a floor, and the parts of its report by their titles."""
    execute(RECIPES[task](str(store.path), model=model).changed(ONE if model == "tfidf" else {}), out, cpu=True)
    page = write_report(out).read_text("utf-8")
    return {part.partition("</h2>")[0]: part for part in page.split("<h2>")[1:]}


def rows_of(section):
    """The texts of the cells of all rows of its tables."""
    rows = re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)] for row in rows]


def calibration_error(shares, given, bins=15):
    """By its definition: each bin holds its upper edge."""
    place = np.maximum(np.ceil(shares * bins) - 1, 0)
    filled = [place == number for number in range(bins) if (place == number).any()]
    return sum(chosen.sum() * abs(shares[chosen].mean() - given[chosen].mean()) for chosen in filled) / len(shares)


def test_calibration_of_several_classes(tmp_path):
    def label(row, place):
        # Some labels are missing, so that not all predictions are right.
        return [name for name, words in (("good", GOOD), ("bad", BAD)) if {*row["text"].split()} & {*words} and place % 7]

    store = texts_store(tmp_path / "data", label)
    section = fitted(store, tmp_path / "run")["Calibration"]
    model = ramify.load(tmp_path / "run")
    scored, temperature = score_texts(model, store, "dev", {}), float(model.task.temperature)
    assert temperature != pytest.approx(1, abs=0.01)
    given = scored.targets > 0
    shares = [expit(scored.scores), expit(scored.scores / temperature)]
    rows = rows_of(section)
    for name, found in zip(("before the temperature", "after it"), shares, strict=True):
        assert [name, f"{calibration_error(found.ravel(), given.ravel()):.3f}"] in rows
    for place, name in enumerate(model.task.config.classes):
        assert [name, *(f"{calibration_error(found[:, place], given[:, place]):.3f}" for found in shares)] in rows
    assert "share that has the class" in section
    assert f"The temperature that fits the dev split best is {temperature:.3g}." in section


def test_errors_of_numbers(tmp_path):
    store = texts_store(tmp_path / "data", lambda row, place: float(len(row["text"])) / 7)
    sections = fitted(store, tmp_path / "run")
    predicted = score_texts(ramify.load(tmp_path / "run"), store, "dev", {}).predictions
    errors = predicted.predicted - predicted.gold
    rows = dict(rows_of(sections["Predicted numbers"]))
    assert float(rows["mean absolute error"]) == pytest.approx(np.abs(errors).mean(), rel=1e-3)
    assert float(rows["root of the mean squared error"]) == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-3)
    assert float(rows["mean error"].replace("−", "-")) == pytest.approx(errors.mean(), rel=1e-3)
    # Each text twice: the right number on the diagonal, and the predicted one.
    assert sections["Predicted numbers"].count("<circle") == 2 * len(errors)
    assert "Calibration" not in sections


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "choose"])
def test_scores_by_depth(data, tmp_path, task):
    """Half of the trees lie below a post, so examples have two depths."""
    store = data[task]
    assert "Scores by depth" not in fitted(store, tmp_path / "flat", task, "majority")
    trees = []
    for split in ("train", "dev"):
        for number, tree in enumerate(store.trees(store.split(split))):
            nodes = tree.nodes
            if number % 3 == 0:
                below = (replace(node, parents=tuple(parent + 1 for parent in node.parents) or (0,)) for node in nodes)
                nodes = (Node("a post", (), id="post"), *below)
            trees.append(Tree(nodes, tree.id, {"split": split}))
    deeper = built(trees, tmp_path / "deeper")
    rows = rows_of(fitted(deeper, tmp_path / "run", task, "majority")["Scores by depth"])
    first = {"classify": 0, "tag": 0, "answer": 1, "choose": 0}[task]
    names = ["0", *DEPTH_BINS]
    assert [row[0] for row in rows[1:]] == names[first : first + 2]
    whole, lifted = len(store.split("dev")), len(range(0, len(store.split("dev")), 3))
    each = 2 if task == "answer" else 1
    assert [int(row[-1]) for row in rows[1:]] == [each * (whole - lifted), each * lifted]

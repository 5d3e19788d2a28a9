import json
from typing import get_args

import pytest

from ramify.dataset import build
from ramify.dataset.labels import class_names, label_kind, node_labels
from ramify.metrics.classification import ClassPredictions, NumberPredictions
from ramify.metrics.published import Published, metric_groups, published_metrics
from ramify.readers.labelled_sets import DATASETS, Grouping

ANSWERS = {"f1", "exact_match"}


def store_of(path, rows, **options):
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return build([path], "labelled", path.parent / "store", options=options)


def test_metrics_of_all_data_sets_exist():
    """The metrics of a set are defined for its labels, with its positive class and its groups."""
    import numpy as np

    zeros = np.zeros(2, np.int64)
    for dataset in DATASETS:
        assert dataset.groups in get_args(Grouping)
        if dataset.positive and dataset.classes:
            assert dataset.positive in dataset.classes.values()
        positive, group = 0 if dataset.positive else None, None if dataset.groups == "none" else zeros
        defined = {
            "classes": ClassPredictions(zeros, zeros, 2, positive, group).metrics.keys(),
            "numbers": NumberPredictions(zeros * 1.0, zeros * 1.0).metrics.keys(),
            "answers": ANSWERS,
        }
        assert {*dataset.metrics} <= {*defined[dataset.label_kind]}, dataset.name


def test_metrics_of_stores(tmp_path):
    stsb = store_of(tmp_path / "stsb" / "dev.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 2.5, "index": 0}])
    assert published_metrics(stsb, "numbers").names == ("pearson", "spearman")
    rows = [{"sentence": "He ate.", "label": 1, "idx": 0}]
    cola = store_of(tmp_path / "cola" / "dev.jsonl", rows)
    assert published_metrics(cola, "classes").names == ("matthews", "accuracy")
    assert published_metrics(cola, "classes", field="x") == Published(("accuracy", "macro_f1"))
    assert published_metrics(cola, "numbers") == Published(("pearson", "spearman"))
    unknown = store_of(tmp_path / "mine" / "dev.jsonl", rows)
    assert unknown.info["datasets"] == {"": 1}
    assert published_metrics(unknown, "classes") == Published(("accuracy", "macro_f1"))


def test_f1_is_about_the_published_class(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": label, "idx": label} for label in (0, 1)]
    store = store_of(tmp_path / "mrpc" / "dev.jsonl", rows)
    published = published_metrics(store, "classes")
    values = node_labels(store, "dev").values
    assert published.names == ("f1", "accuracy")
    assert published.positive in class_names(values, label_kind(values))


def test_data_sets_with_other_metrics_have_the_usual_ones(tmp_path):
    for name, row in (
        ("cola", {"sentence": "He ate.", "label": 1, "idx": 0}),
        ("sst2", {"sentence": "Good.", "label": 1, "idx": 0}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dev.jsonl").write_text(json.dumps(row) + "\n")
    store = build([tmp_path / "cola", tmp_path / "sst2"], "labelled", tmp_path / "store")
    assert store.info["datasets"] == {"cola": 1, "sst2": 1}
    assert published_metrics(store, "classes") == Published(("accuracy", "macro_f1"))


@pytest.mark.parametrize("grouping", ["parent", "pair_id"])
def test_groups(tmp_path, grouping):
    if grouping == "parent":
        answers = [{"text": "a", "idx": 0, "label": 1}, {"text": "b", "idx": 1, "label": 0}]
        questions = [{"question": "q?", "idx": 0, "answers": answers}, {"question": "r?", "idx": 1, "answers": answers[:1]}]
        store = store_of(tmp_path / "multirc" / "val.jsonl", [{"passage": {"text": "p", "questions": questions}, "idx": 0}])
    else:
        rows = [
            {"premise": "A", "hypothesis": f"B{idx}", "label": "entailment", "pair_id": idx // 2, "idx": idx}
            for idx in range(3)
        ]
        store = store_of(tmp_path / "ax-g" / "ax-g.jsonl", rows)
    published = published_metrics(store, "classes")
    assert published.groups == grouping
    nodes = node_labels(store, "all").nodes
    group = metric_groups(store, nodes, published.groups)
    assert sorted((group[:, None] == group).sum(1).tolist()) == [1, 2, 2]
    assert metric_groups(store, nodes, "none") is None

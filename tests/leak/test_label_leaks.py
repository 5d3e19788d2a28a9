"""A predicted label depends on the texts that the settings name, and on no other, to the bit."""

import numpy as np
import pytest
import torch

from fixtures import bert_task, discussion, tokenizer, tree_task, with_text
from ramify.batching.views.labelled import LabelInput
from ramify.dataset.store import Store
from ramify.inference.classify import Classifier
from ramify.tasks.classification import Classification, ClassificationConfig

# 0 ─ 1 ─ 2 ─ 3 (asked about), 3 ─ 6; 1 ─ 4; 0 ─ 5.
PARENT = (-1, 0, 1, 2, 1, 0, 3)
LENGTHS = (5, 4, 6, 5, 3, 4, 3)
NODE = 3
OTHER_WORDS = "ha he hi ho hu"

CASES = {
    # settings -> the nodes of its own tree that a prediction reads
    "none": ({}, {3}),
    "parent": ({"context": "parent"}, {2, 3}),
    "tree": ({"context": "tree"}, {0, 1, 2, 3}),
    "mismatched": ({"context": "mismatched"}, {3}),
    "pair": ({"pair": "parent"}, {2, 3}),
    "pair in its tree": ({"pair": "parent", "context": "tree"}, {0, 1, 2, 3}),
    "pair and the one above": ({"pair": "parent", "context": "parent"}, {1, 2, 3}),
    "pair, mismatched": ({"pair": "parent", "context": "mismatched"}, {2, 3}),
    "text of the parent": ({"text": "parent"}, {2}),
    "text of the parent in its tree": ({"text": "parent", "context": "tree"}, {0, 1, 2}),
    "text of the parent, mismatched": ({"text": "parent", "context": "mismatched"}, {2}),
}


def classifier(settings, context_as, mode="finetune"):
    own = tree_task(context_position="distance") if context_as == "vectors" else bert_task()
    input = LabelInput(**{"max_tokens": 32, "pair": "none", "context_as": context_as, **settings})
    config = ClassificationConfig(classes=("a", "b"), mode=mode)
    task = Classification(own.backbone, tokenizer(), input, config).double()
    with torch.no_grad():
        task.output.weight.mul_(20)
    return Classifier(task)


def trees(changed=None):
    own = discussion(PARENT, lengths=LENGTHS, seed=1, name="own")
    if changed is not None:
        own = with_text(own, changed, " ".join(OTHER_WORDS.split()[: LENGTHS[changed]]))
    return [own, discussion((-1, 0, 1, 2), lengths=(3, 4, 5, 4), seed=2, name="other")]


def share(model, changed=None):
    return model.predict_store(Store.from_trees(trees(changed)), np.array([NODE]))[0].probabilities["a"]


@pytest.mark.parametrize("mode", ["finetune", "features"])
@pytest.mark.parametrize("context_as", ["text", "vectors"])
@pytest.mark.parametrize("case", CASES)
def test_what_a_prediction_reads(case, context_as, mode):
    settings, read = CASES[case]
    model = classifier(settings, context_as, mode)
    before = share(model)
    moved = {node for node in range(len(PARENT)) if share(model, node) != before}
    assert moved == read


@pytest.mark.parametrize("context_as", ["text", "vectors"])
def test_mismatched_reads_the_other_tree(context_as):
    model = classifier({"context": "mismatched"}, context_as)
    before = share(model)
    own, other = trees()
    for node, moves in ((0, True), (2, True), (3, False)):
        store = Store.from_trees([own, with_text(other, node, OTHER_WORDS)])
        after = model.predict_store(store, np.array([NODE]))[0].probabilities["a"]
        assert (after != before) == moves

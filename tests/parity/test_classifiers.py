"""Classifiers with the weights of transformers' give their logits: BERT's pooler and XLNet's summary, for texts and pairs."""

import numpy as np
import pytest
import torch

from fixtures import tokenizer
from ramify import hub
from ramify.batching.labelled_batch import LabelledCollator
from ramify.batching.views.labelled import LabelInput, LabelledView
from ramify.dataset.store import Store
from ramify.inference.classify import rows_of
from ramify.recipes.backbones import FLOORS, start_of
from ramify.tasks.classification import Classification, ClassificationConfig
from ramify.tree import Node, Tree

transformers = pytest.importorskip("transformers")

WORDS = tokenizer()
TEXTS = ["ba", "ba be aa hi ho", "hu he ha aa ba be bi bo", ""]
CLASSES = ("a", "b", "c")


def spread(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.double().eval()


def bert():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=WORDS.vocab_size, max_position_embeddings=40, num_labels=3, **sizes)
    theirs = spread(transformers.BertForSequenceClassification(config))
    return theirs, theirs.bert, {"output": theirs.classifier}


def xlnet():
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24}
    config = transformers.XLNetConfig(vocab_size=WORDS.vocab_size, num_labels=3, **sizes)
    theirs = spread(transformers.XLNetForSequenceClassification(config))
    whole = transformers.XLNetLMHeadModel(config).double()
    whole.transformer = theirs.transformer
    return theirs, whole, {"output": theirs.logits_proj, "head.pooler.hidden": theirs.sequence_summary.summary}


# XLNet's sinusoids are computed in single precision by transformers.
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(("make", "distance"), [(bert, 1e-10), (xlnet, 1e-7)])
def test_logits(tmp_path, make, distance, pairs):
    theirs, body, heads = make()
    body.save_pretrained(tmp_path)
    WORDS.save(tmp_path)
    start = start_of("", str(tmp_path), FLOORS)
    backbone = start.model.build().double()
    start.model.initialize(backbone, hub.checkpoint(tmp_path))
    input = LabelInput(max_tokens=32, layout=start.layout, pair="parent" if pairs else "none")
    task = Classification(backbone, WORDS, input, ClassificationConfig(classes=CLASSES)).double()
    with torch.no_grad():
        for name, linear in heads.items():
            ours = task.get_submodule(name)
            ours.weight.copy_(linear.weight)
            ours.bias.copy_(linear.bias)
    if pairs:
        trees = [Tree((Node(TEXTS[2 - place]), Node(text, parents=(0,)))) for place, text in enumerate(TEXTS[:3])]
        nodes = np.arange(3) * 2 + 1
    else:
        trees, nodes = [Tree((Node(text),)) for text in TEXTS], np.arange(len(TEXTS))
    view = LabelledView(rows_of(task, Store.from_trees(trees), nodes), np.zeros(len(nodes), dtype=np.int64))
    batch = LabelledCollator.of(view.rows)([view.example(number) for number in range(len(view))])
    with torch.no_grad():
        ours = task.eval().scores(batch)
        for row, (start_place, stop) in enumerate(
            zip(batch.input.rows.offsets[:-1].tolist(), batch.input.rows.offsets[1:].tolist(), strict=True)
        ):
            assert batch.input.token_types is not None
            expected = theirs(
                input_ids=batch.input.ids[None, start_place:stop],
                token_type_ids=batch.input.token_types[None, start_place:stop],
            ).logits[0]
            torch.testing.assert_close(ours[row], expected, atol=distance, rtol=0)

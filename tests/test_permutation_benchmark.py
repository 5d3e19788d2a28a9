"""The benchmarks of models of running text: orders are measured on texts as long as the rows of training, and both sides of a
timed step run."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from fixtures.running import WHOLE_ROWS, documents, tokenizer
from ramify.batching.views.streams import StreamInput
from ramify.dataset.store import Store
from ramify.inference.permutation import PermutationPipeline
from ramify.models.xlnet import XLNet, XLNetConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig


def loaded(name):
    file = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    sys.path.insert(0, str(file.parent))
    try:
        spec = importlib.util.spec_from_file_location(f"{name}_benchmark", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module


@pytest.fixture(scope="module")
def benchmark():
    return loaded("running_text")


def language_model(input, k=1.0):
    own = tokenizer()
    model = XLNet(XLNetConfig(vocab_size=own.vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=12))
    return PermutationPipeline(PermutationLM(model, own, input, PermutationLMConfig(k=k)))


def test_orders_are_measured_on_whole_rows(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "TEXTS", 2)
    monkeypatch.setattr(benchmark, "RANDOM_ORDERS", 3)
    trees = documents(2)
    store = Store.from_trees(trees)
    monkeypatch.setattr(Store, "split", lambda self, name: np.arange(len(trees)))
    shapes = []
    monkeypatch.setattr(
        PermutationPipeline, "log_likelihoods", lambda self, ids, ranks: shapes.append(ranks.shape) or -np.arange(5.0)
    )
    found = benchmark.measure_orders(language_model(WHOLE_ROWS), store, "C-xlnet-lm")
    assert shapes == [(5, WHOLE_ROWS.row_tokens)] * 2
    assert len(found["orders"]) == 3


@pytest.mark.parametrize(
    ("input", "k", "knows"),
    [
        (WHOLE_ROWS, 1.0, True),
        (WHOLE_ROWS, 6.0, False),
        (StreamInput(row_tokens=20, reused_tokens=10, segments="none"), 1.0, False),
    ],
)
def test_orders_of_other_models_are_not_measured(benchmark, input, k, knows):
    model = language_model(input, k)
    assert model.knows_full_orders is knows
    if not knows:
        with pytest.raises(AssertionError, match="not trained on full orders"):
            benchmark.measure_orders(model, Store.from_trees(documents(1)), "C-xlnet-lm")


@pytest.mark.parametrize("dropout", [0.1, 0.0])
def test_both_sides_of_a_timed_step_have_the_same_dropout(monkeypatch, dropout):
    pytest.importorskip("transformers", reason="needs transformers")
    speed = loaded("xlnet_speed")
    for name, size in {"ROWS": 2, "VOCAB": 50, "DIM": 8, "LAYERS": 1, "HEADS": 2, "FFN": 12}.items():
        monkeypatch.setattr(speed, name, size)
    batch = next(speed.batches(128))
    ours, theirs = (make(128, dropout) for make in (speed.Ours, speed.Theirs))
    for side in (ours, theirs):
        side.step(batch)
    assert theirs.model.config.dropout == ours.config.dropout == ours.config.attention_dropout == dropout
    assert (theirs.model.config.reuse_len, theirs.model.config.mem_len) == (64, ours.config.memory)

"""Losses of ten steps with a fixed seed. A change of these losses changes every result, so it must be intended.

They are computed in double precision, so that machines with different rounding agree to the fourth digit.

After an intended change, `python tests/golden/test_golden.py` prints the new lists. The change log must give the reason.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from fixtures import bert_task, discussions, forest, tokenizer, tree_task, view_of
from fixtures.nested import book, books, read
from fixtures.nested import task as nested_task
from ramify.batching.text_input import TextInput
from ramify.models.bag import BagConfig
from ramify.models.base import TextModelConfig
from ramify.models.cnn import CnnConfig
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.training.config import TrainConfig
from ramify.training.metrics_log import read_metrics
from ramify.training.trainer import Stage, Trainer


def text_task(config: TextModelConfig) -> MaskedLM:
    torch.manual_seed(0)
    backbone = config.for_vocabulary(tokenizer().vocab_size).build()
    input = TextInput(max_tokens=32, context="none")
    return MaskedLM(backbone, tokenizer(), input, MaskedLMConfig(tie_weights=False)).double()


TASKS = {
    "tree-mlm": lambda: tree_task(dropout=0.1, dim=32, num_heads=4, ffn_dim=64),
    "tree-mlm, distance, attn": lambda: tree_task(context_position="distance", pooling="attn"),
    "tree-mlm, two phases": lambda: tree_task(task={"two_phase": "always", "chunk_tokens": 100}),
    "bert": lambda: bert_task(dropout=0.1, dim=32, num_heads=4, ffn_dim=64),
    "bert, concatenated": lambda: bert_task(input=TextInput(max_tokens=32, concatenate=64)),
    "cnn": lambda: text_task(CnnConfig(dim=16, maps=8)),
    "bag": lambda: text_task(BagConfig(dim=16)),
    "agent": lambda: nested_task({"dropout": 0.1}),
    "agent, two phases": lambda: nested_task({"decoder": "autoregressive", "cells": "transformer"}, upper="two_phase"),
}

LOSSES = {
    "tree-mlm": [6.0751, 6.59932, 5.64447, 6.25946, 5.85212, 6.00225, 5.20845, 5.31751, 5.12083, 5.26935],
    "tree-mlm, distance, attn": [4.80963, 5.03946, 5.64849, 4.65325, 5.09225, 4.66705, 4.45858, 4.95436, 4.53719, 4.32536],
    "tree-mlm, two phases": [5.60365, 5.14197, 5.80175, 5.85479, 5.11746, 5.20886, 5.5932, 5.25665, 4.76401, 4.77358],
    "bert": [5.96525, 5.51122, 5.46387, 5.89063, 5.19745, 4.8681, 4.76276, 4.32766, 4.5032, 4.92728],
    "bert, concatenated": [4.21034, 4.48019, 4.1729, 4.39961, 4.61427, 4.90217, 4.46197, 4.23649, 4.64682, 4.89549],
    "cnn": [4.11095, 4.11076, 4.11162, 4.11027, 4.10928, 4.10672, 4.10944, 4.10894, 4.10667, 4.10605],
    "bag": [4.1135, 4.11432, 4.11589, 4.10836, 4.10356, 4.09774, 4.10655, 4.09866, 4.10541, 4.09991],
    "agent": [22.64406, 22.9678, 22.69581, 23.51373, 21.85201, 21.9313, 20.25765, 20.70293, 20.90214, 20.08465],
    "agent, two phases": [21.33907, 22.29395, 22.06602, 23.05026, 22.16869, 21.18555, 20.6778, 21.74665, 20.5063, 20.53946],
}


def losses(task: MaskedLM | NestedAutoencoder, out: Path) -> list[float]:
    config = TrainConfig(steps=10, budget=300, lr=3e-3, log_every=1)
    if isinstance(task, NestedAutoencoder):
        config = replace(config, budget=30)
        # One document is longer than a batch.
        stage = Stage(config, *read(task, [*books(6), book([[5, 5], [4, 4, 4], [3, 3]])], config.budget, 2))
    else:
        stage = Stage(config, *view_of(task, forest(discussions(12, 10, seed=5))))
    Trainer(task, [stage], out, seed=11, cpu=True).run()
    return [record["loss"] for record in read_metrics(out)]


@pytest.mark.parametrize("name", TASKS)
def test_losses_of_ten_steps(tmp_path, name):
    found = losses(TASKS[name](), tmp_path)
    assert found == pytest.approx(LOSSES[name], abs=1e-4)
    assert len(found) == 10


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    for key, make in TASKS.items():
        with TemporaryDirectory() as folder:
            print(f'    "{key}": {[round(loss, 5) for loss in losses(make(), Path(folder))]},')

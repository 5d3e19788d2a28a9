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
    "tree-mlm": [6.0751, 6.13455, 5.49647, 6.10208, 5.78463, 5.84466, 5.17608, 5.25529, 4.85499, 5.04131],
    "tree-mlm, distance, attn": [4.80963, 4.82596, 5.33192, 4.55099, 4.85045, 4.48271, 4.29781, 4.81485, 4.54118, 4.21973],
    "tree-mlm, two phases": [5.60365, 5.12554, 5.67348, 5.63675, 5.04858, 4.93826, 5.466, 5.12406, 4.56483, 4.52511],
    "bert": [5.96525, 5.24951, 5.30941, 5.65525, 5.05848, 4.76218, 4.73854, 4.1783, 4.39906, 4.88273],
    "bert, concatenated": [4.21034, 4.53496, 4.17525, 4.41225, 4.631, 4.92718, 4.44848, 4.24552, 4.68063, 4.88501],
    "cnn": [4.11095, 4.11106, 4.1129, 4.10902, 4.10851, 4.10604, 4.11007, 4.10801, 4.10616, 4.10604],
    "bag": [4.1135, 4.11678, 4.11816, 4.10545, 4.10075, 4.09533, 4.11025, 4.09838, 4.10332, 4.10216],
    "agent": [22.64406, 20.99679, 21.57177, 22.72751, 21.28192, 21.49692, 19.72056, 20.14576, 20.63349, 20.09283],
    "agent, two phases": [21.33907, 20.8647, 21.59747, 22.55768, 21.68403, 20.75032, 20.34277, 21.41595, 20.11835, 20.24962],
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

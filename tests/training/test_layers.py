"""Rates and unfreezing by layer: factors by hand, frozen layers to the bit, and exact resume."""

import re
from dataclasses import replace

import pytest
import torch

from fixtures import bert_task, discussions, forest, tree_task, view_of
from fixtures.toys import NextLetter, Texts
from ramify.errors import RamifyError
from ramify.models.bag import BagConfig
from ramify.training.config import TrainConfig
from ramify.training.layers import held_layers, layers_of, with_layer_rates
from ramify.training.metrics_log import read_metrics
from ramify.training.schedules import schedule
from ramify.training.stage import Stage
from ramify.training.trainer import Trainer

DECAY = 1 / 2.6
CONFIG = TrainConfig(
    steps=0,
    epochs=5,
    budget=150,
    lr=0.01,
    schedule="slanted_triangle",
    warmup=0.1,
    weight_decay=0.0,
    eps=1e-12,
    layer_decay=DECAY,
    log_every=1,
    checkpoint_every=1,
    evaluate_every=0,
)


def task_of(**changes):
    return bert_task(num_layers=2, dropout=0.1, **changes)


def trainer_of(out, config=CONFIG, task=None):
    task = task or task_of()
    return Trainer(task, [Stage(config, *view_of(task, forest(discussions(8, 6, seed=5))))], out, seed=3, cpu=True)


def layer_of(task, name):
    """The number of a parameter's layer, and that of the head, which is the highest."""
    layers = layers_of(task)
    return next((number for number, prefixes in enumerate(layers) if name.startswith(prefixes)), len(layers))


def test_layers_are_the_embedding_and_those_above_it_and_the_rest_is_the_head():
    task = task_of()
    assert [layer_of(task, name) for name in ("backbone.embedding.weight", "backbone.stack.layers.0.ffn_in.bias")] == [0, 1]
    assert {layer_of(task, name) for name, _ in task.named_parameters() if name.startswith("head.")} == {3}
    # ALBERT's layers share their weights, which belong to the first one.
    assert len(layers_of(task_of(shared_layers=True))) == 2
    # The layers of rows with a context are those of the decoder.
    tree = tree_task()
    alone = layers_of(tree)
    tree.context = True
    assert layers_of(tree) != alone
    assert layers_of(tree)[1] == ("backbone.decoder.layers.0.",)


def test_first_step_of_adam_moves_every_layer_by_its_rate(tmp_path):
    """Its size is the learning rate, whatever the gradient."""
    task = task_of()
    before = {name: parameter.detach().clone() for name, parameter in task.named_parameters()}
    trainer = trainer_of(tmp_path, replace(CONFIG, clip=0.0, lr_scale=(("ffn_in", 3.0),)), task)
    trainer.run(until=1)
    by_hand = [CONFIG.lr * schedule(CONFIG, 0.0, 0.0) * factor for factor in (1 / 2.6**3, 1 / 2.6**2, 1 / 2.6, 1.0)]
    seen = set()
    for name, parameter in task.named_parameters():
        moved = float((parameter.detach() - before[name]).abs().max())
        if moved:
            layer = layer_of(task, name)
            assert moved == pytest.approx(by_hand[layer] * (3.0 if "ffn_in" in name else 1.0), rel=1e-4), name
            seen.add(layer)
    assert seen == {0, 1, 2, 3}
    # The logged rate is that of the head.
    assert read_metrics(tmp_path)[0]["lr"] == pytest.approx(by_hand[-1])


def test_patterns_of_the_settings_and_factors_of_layers_multiply():
    config = with_layer_rates(replace(CONFIG, lr_scale=(("^head", 0.5),)), task_of())
    assert config.layer_decay is None
    assert [factor for _, factor in config.lr_scale] == pytest.approx([0.5, 1 / 2.6, 1 / 2.6**2, 1 / 2.6**3])
    name = "backbone.stack.layers.1.ffn_in.weight"
    assert [bool(re.search(pattern, name)) for pattern, _ in config.lr_scale] == [False, True, False, False]


def test_one_more_layer_learns_in_every_epoch(tmp_path):
    """The others keep their bits, have no moments, and take no gradient."""
    trainer = trainer_of(tmp_path, replace(CONFIG, unfreeze="gradual"))
    task, rounds = trainer.task, trainer._sampler(0).rounds(0)
    assert rounds > 1
    start = {name: parameter.detach().clone() for name, parameter in task.named_parameters()}
    for epoch in range(5):
        trainer.run(resume=epoch > 0, until=trainer.progress.step + trainer._sampler(0).rounds(epoch))
        assert trainer.progress.step == sum(trainer._sampler(0).rounds(each) for each in range(epoch + 1))
        moved = {layer_of(task, name) for name, parameter in task.named_parameters() if not torch.equal(parameter, start[name])}
        assert moved == set(range(max(0, 3 - epoch), 4))


@pytest.mark.parametrize("kill", [1, 4, 9])
def test_a_killed_run_ends_with_the_same_bits(tmp_path, kill):
    config = replace(CONFIG, unfreeze="gradual", checkpoint_every=2)
    straight, resumed = trainer_of(tmp_path / "straight", config), trainer_of(tmp_path / "killed", config)
    straight.run()
    trainer_of(tmp_path / "killed", config).run(until=kill)
    resumed.run(resume=True)
    assert straight.progress.step == resumed.progress.step > kill
    for one, other in zip(straight.task.parameters(), resumed.task.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.requires_grad


def test_layers_are_held_from_the_bottom():
    layers = (("a.",), ("b.", "c."), ("d.",))
    assert [held_layers(layers, epochs) for epochs in range(5)] == [
        ("a.", "b.", "c.", "d."),
        ("a.", "b.", "c."),
        ("a.",),
        (),
        (),
    ]


def test_too_few_epochs_are_named(tmp_path, capsys):
    trainer_of(tmp_path, replace(CONFIG, unfreeze="gradual", epochs=2)).run(until=1)
    assert "train.epochs=2 never reaches the lowest 2 layers of 3. Set train.epochs=4 or more" in capsys.readouterr().err
    trainer_of(tmp_path / "long", replace(CONFIG, unfreeze="gradual", epochs=4)).run(until=1)
    assert not capsys.readouterr().err


def test_models_without_layers_are_refused(tmp_path):
    texts = Texts(5, 3, 4)
    for change, message in (
        ({"layer_decay": 0.5}, r"train\.layer_decay=0\.5 needs layers that learn, but the Cell of this NextLetter has none"),
        ({"unfreeze": "gradual"}, r"train\.unfreeze=gradual needs layers that learn.* Set train\.unfreeze=all"),
    ):
        config = TrainConfig(steps=2, budget=3, budget_unit="targets", **change)
        with pytest.raises(RamifyError, match=message):
            Trainer(NextLetter(), [Stage(config, texts, texts.collate)], tmp_path, seed=0, cpu=True)
    frozen = task_of()
    frozen.frozen = ("backbone",)
    assert layers_of(frozen) == ()
    with pytest.raises(RamifyError, match=r"train\.layer_decay must be above 0 and at most 1, but is 2\.6"):
        TrainConfig(layer_decay=2.6)
    assert BagConfig(9).build().layer_prefixes() == (("embedding.",),)

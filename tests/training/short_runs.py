"""Trainers and runs of eight steps, shared by the tests of this folder."""

import torch

from fixtures import tree_task, view_of
from ramify.training.config import TrainConfig
from ramify.training.metrics_log import read_metrics
from ramify.training.trainer import Stage, Trainer

SHORT = TrainConfig(steps=8, budget=150, lr=1e-2, log_every=1, evaluate_every=3, checkpoint_every=2)


def stage_of(task, data, config=SHORT, dev=None, **regime):
    return Stage(config, *view_of(task, data, **regime), dev)


def trainer_of(out, data, config=SHORT, *, task=None, dev=None, regime=None, **options):
    task = task or tree_task(dtype=torch.float32, dropout=0.1)
    return Trainer(task, [stage_of(task, data, config, dev, **(regime or {}))], out, seed=3, cpu=True, **options)


def weights(trainer):
    return {name: parameter.detach().clone() for name, parameter in trainer.task.named_parameters()}


def records(out):
    """The metrics without the times."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in read_metrics(out)]


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def measured(trainer):
    """A dev measure that depends on the weights, so that the best step is not known in advance."""
    return lambda: {"dev_loss": float(sum(p.detach().abs().sum() for p in trainer[0].task.parameters()))}


def run(out, data, config=SHORT, *, resume=False, until=None, regime=None, task=None):
    holder = []
    trainer = trainer_of(out, data, config, task=task, dev=measured(holder), regime=regime)
    holder.append(trainer)
    progress = trainer.run(resume=resume, until=until)
    return trainer, progress

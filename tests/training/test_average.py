"""The mean of the last checkpoints: it equals the mean, resumes to the same bits, and is measured."""

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from short_runs import SHORT, equal, measured, records, trainer_of

from fixtures import discussions, forest
from fixtures.toys import NextLetter, Texts
from ramify.errors import RamifyError
from ramify.training.config import TrainConfig
from ramify.training.metrics_log import AVERAGED, read_average
from ramify.training.stage import Stage, stream
from ramify.training.trainer import Trainer

MEAN = replace(SHORT, average=3)


@pytest.fixture(scope="module")
def data():
    return forest(discussions(8, 9))


def run(out, data, config=MEAN, *, resume=False, until=None):
    holder = []
    trainer = trainer_of(out, data, config, dev=measured(holder))
    holder.append(trainer)
    trainer.run(resume=resume, until=until)
    return trainer


def state(trainer):
    return {name: tensor.clone() for name, tensor in trainer.task.state_dict().items()}


def checkpoint(out, step):
    return load_file(out / f"checkpoints/step-{step:08d}/model.safetensors")


def test_saved_weights_are_the_mean_of_the_last_checkpoints(tmp_path, data):
    trainer = run(tmp_path, data)
    parts = [checkpoint(tmp_path, step) for step in (4, 6, 8)]
    own = dict(trainer.task.named_parameters())
    for name in parts[0].keys() & own.keys():
        expected = torch.stack([part[name].double() for part in parts]).mean(0)
        torch.testing.assert_close(own[name].detach().double(), expected, rtol=1e-6, atol=1e-9)
    assert sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir()) == [f"step-{n:08d}" for n in (4, 6, 8)]
    mean = read_average(tmp_path)
    assert mean == {"step": 8, AVERAGED: [4, 6, 8], **measured([trainer])()}
    # Records of steps, such as learning curves need, are those of a run without a mean.
    run(tmp_path / "plain", data, SHORT)
    assert read_average(tmp_path / "plain") is None
    assert records(tmp_path) == records(tmp_path / "plain")
    # The mean is saved, whatever its dev score.
    before = state(trainer)
    trainer.load_chosen()
    assert equal(state(trainer), before)


@pytest.mark.parametrize("kill", [1, 3, 5, 7])
def test_mean_resumes_to_the_same_bits(tmp_path, data, kill):
    straight = run(tmp_path / "straight", data)
    run(tmp_path / "killed", data, until=kill)
    assert read_average(tmp_path / "killed") is None
    resumed = run(tmp_path / "killed", data, resume=True)
    assert equal(state(resumed), state(straight))
    assert read_average(tmp_path / "killed") == read_average(tmp_path / "straight")
    again = run(tmp_path / "killed", data, resume=True)
    assert equal(state(again), state(straight))
    assert read_average(tmp_path / "killed") == read_average(tmp_path / "straight")
    assert len((tmp_path / "killed/metrics.jsonl").read_text().splitlines()) == 9


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_buffers_come_from_the_last_checkpoint(tmp_path, dtype):
    texts = Texts(4, 3, 4)
    config = TrainConfig(steps=6, budget=4, budget_unit="targets", checkpoint_every=2, average=2)
    stage = Stage(config, texts, texts.collate, make_sampler=stream(2))
    task = NextLetter()
    task.num_letters = task.num_letters.to(dtype)
    trainer = Trainer(task, [stage], tmp_path, seed=0, cpu=True)
    trainer.run()
    assert trainer.task.num_letters == checkpoint(tmp_path, 6)["num_letters"] != checkpoint(tmp_path, 4)["num_letters"]


def test_damaged_checkpoint_is_not_averaged(tmp_path, data):
    straight = state(run(tmp_path, data))
    file = tmp_path / "checkpoints/step-00000006/model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RamifyError, match=r"step-00000006 is damaged.*Remove it and all later checkpoints, and add --resume"):
        run(tmp_path, data, resume=True)
    for step in (6, 8):
        shutil.rmtree(tmp_path / f"checkpoints/step-{step:08d}")
    assert equal(state(run(tmp_path, data, resume=True)), straight)


def test_only_checkpoints_of_the_last_stage_count(tmp_path, data, capsys):
    """A stage that ends early may have fewer: patience ends it after two evaluations."""
    config = replace(MEAN, average=4, evaluate_every=1, checkpoint_every=1, patience=1)
    trainer = run(tmp_path, data, config)
    found = read_average(tmp_path)
    written = trainer.progress.step
    assert written < 4
    assert found[AVERAGED] == list(range(1, written + 1))
    assert f"train.average=4 is more than the {written} checkpoints of the last stage" in capsys.readouterr().err
    other = [trainer.stages[0], replace(trainer.stages[0], config=replace(config, average=3))]
    with pytest.raises(RamifyError, match=r"all stages must have the same train\.average, but have 4 and 3"):
        Trainer(trainer.task, other, tmp_path, seed=3, cpu=True)
    second = [replace(trainer.stages[0], dev=None, config=replace(config, steps=4, average=4, patience=0))] * 2
    Trainer(trainer.task, second, tmp_path / "two", seed=3, cpu=True).run()
    assert read_average(tmp_path / "two")[AVERAGED] == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"average": 1}, r"train\.average=1 is no mean of checkpoints"),
        (
            {"average": 5, "steps": 800},
            r"but train\.steps=800 and train\.checkpoint_every=200 give 4",
        ),
        ({"average": 2, "steps": 0, "target_tokens": 9, "checkpoint_every": 0}, "needs as many checkpoints"),
    ],
)
def test_refused_settings(settings, message):
    with pytest.raises(RamifyError, match=message):
        TrainConfig(**settings)

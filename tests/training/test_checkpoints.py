"""Checkpoints: a damaged checkpoint is skipped, and one of another model is refused."""

import hashlib
import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from short_runs import SHORT, equal, records, run, weights
from torch import Tensor

from fixtures import discussions, forest, tree_task, words_task
from ramify import hub
from ramify.checkpoints import checksum
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.tasks.masked_lm import MaskedLM


@pytest.fixture(scope="module")
def data():
    return forest(discussions(6, 10))


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def flip(path, bit=0):
    """Flip one bit of the last byte, which in a file of tensors belongs to a number."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1 << bit
    path.write_bytes(content)


def again(folder, **counters):
    """Change the counters of a checkpoint, as a bug in the program would: its checksums stay valid."""
    record = json.loads((folder / "state.json").read_text())
    record["progress"] |= counters
    record["sha256"]["progress"] = checksum(record["format"], record["progress"])
    (folder / "state.json").write_text(json.dumps(record))


def reword(folder, old, new):
    path = folder / "state.json"
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))


DAMAGE = {
    "cut weights": lambda folder: cut(folder / "model.safetensors"),
    "cut optimizer": lambda folder: cut(folder / "optimizer.safetensors"),
    "no optimizer": lambda folder: (folder / "optimizer.safetensors").unlink(),
    "a bit of the weights": lambda folder: flip(folder / "model.safetensors"),
    "a bit of the moments": lambda folder: flip(folder / "optimizer.safetensors", 3),
    "a bit of the best weights": lambda folder: flip(folder / "best.safetensors"),
    "a bit of the run's best weights too": lambda folder: [
        flip(folder / "best.safetensors"),
        flip(folder.parents[1] / "best.safetensors"),
    ],
    "a bit of the format": lambda folder: reword(folder, '"format": 1', '"format": 5'),
    "no JSON": lambda folder: (folder / "state.json").write_text('{"step": '),
    "a number without end": lambda folder: (folder / "state.json").write_text('{"format": ' + "9" * 5000 + "}"),
    "no object": lambda folder: (folder / "state.json").write_text("[]"),
    "no counters": lambda folder: (folder / "state.json").write_text('{"format": 1}'),
    "a bit of a counter": lambda folder: reword(folder, '"target_tokens": ', '"target_tokens": 1'),
    "no checksums": lambda folder: reword(folder, '"sha256"', '"sha255"'),
    "no step": lambda folder: reword(folder, '"step"', '"stop"'),
    "nothing": lambda folder: [file.unlink() for file in folder.iterdir()],
    "step as text": lambda folder: again(folder, step="6"),
    "step as a fraction": lambda folder: again(folder, step=6.0),
    "a step that is true": lambda folder: again(folder, bad=True),
    "another step than its folder's": lambda folder: again(folder, step=10**6),
    "a stage that there is none of": lambda folder: again(folder, stage=1),
    "a negative stage": lambda folder: again(folder, stage=-1),
    "a negative count": lambda folder: again(folder, targets=-1),
    "a first step after this one": lambda folder: again(folder, first_step=7),
    "more tokens before the stage than in all": lambda folder: again(folder, first_tokens=10**9),
    "a place beyond the epoch": lambda folder: again(folder, position=10**6),
    "more epochs than steps": lambda folder: again(folder, epoch=7),
    "a best step that is to come": lambda folder: again(folder, best_step=7),
    "a clock that is none": lambda folder: again(folder, seconds=math.nan),
}


@pytest.fixture(scope="module")
def straight_and_killed(data, tmp_path_factory):
    """The weights and the folder of a run that ends, and the folder of one that was killed."""
    folder = tmp_path_factory.mktemp("runs")
    straight, _ = run(folder / "straight", data)
    run(folder / "killed", data, until=7)
    return weights(straight), folder / "straight", folder / "killed"


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoint_is_skipped(tmp_path, data, straight_and_killed, capsys, damage):
    """The run continues from the previous checkpoint, with the same bits and the same log."""
    expected, straight, killed = straight_and_killed
    shutil.copytree(killed, tmp_path / "killed")
    checkpoints = tmp_path / "killed" / "checkpoints"
    assert sorted(folder.name for folder in checkpoints.iterdir()) == ["step-00000004", "step-00000006"]
    DAMAGE[damage](checkpoints / "step-00000006")
    run(tmp_path / "killed", data, resume=True, until=5)
    warning = capsys.readouterr().err
    assert warning.startswith("warning: ")
    assert "step-00000006" in warning
    assert [record["step"] for record in records(tmp_path / "killed")] == [1, 2, 3, 4, 5]
    resumed, _ = run(tmp_path / "killed", data, resume=True)
    assert equal(weights(resumed), expected)
    assert records(tmp_path / "killed") == records(straight)
    best = [(folder / "best.safetensors").read_bytes() for folder in (straight, tmp_path / "killed")]
    assert best[0] == best[1]


def test_schedules_of_masks_and_losses_resume_to_the_same_bits(tmp_path, data):
    """Both depend on the share of training that is done. The run is killed within the last third."""

    def task():
        schedules = {"mask_rate": 0.3, "mask_rate_schedule": "last_third", "vector_loss_schedule": "last_third"}
        return words_task(dtype=torch.float32, dropout=0.1, task=schedules)

    straight, _ = run(tmp_path / "straight", data, task=task())
    run(tmp_path / "killed", data, task=task(), until=7)
    resumed, _ = run(tmp_path / "killed", data, task=task(), resume=True)
    assert equal(weights(resumed), weights(straight))
    assert records(tmp_path / "killed") == records(tmp_path / "straight")


def test_checkpoint_beyond_its_stage_is_skipped(tmp_path, data):
    """A run would end there untrained and call itself finished."""
    straight, _ = run(tmp_path / "straight", data)
    run(tmp_path / "killed", data, until=7)
    newest = tmp_path / "killed" / "checkpoints" / "step-00000006"
    newest.rename(later := newest.with_name("step-00000009"))
    again(later, step=9)
    resumed, progress = run(tmp_path / "killed", data, resume=True)
    assert progress.step == 8
    assert equal(weights(resumed), weights(straight))


def test_warning_names_the_damage(tmp_path, data, capsys):
    run(tmp_path, data, until=7)
    newest = tmp_path / "checkpoints" / "step-00000006"
    for damage, reason in (
        (lambda: flip(newest / "model.safetensors"), "model.safetensors does not have the checksum that state.json names"),
        (lambda: again(newest, targets=-1), "targets must be at least 0, but is -1"),
    ):
        damage()
        run(tmp_path, data, resume=True, until=4)
        assert f"warning: {newest} is damaged: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("change", ["name", "shape"])
def test_tensors_of_another_model_are_refused(tmp_path, data, file, change):
    """Such tensors were written that way, so an older checkpoint would not fit either."""
    run(tmp_path, data, until=7)
    folder = tmp_path / "checkpoints" / "step-00000006"
    tensors = load_file(folder / file)
    name = next(name for name, tensor in tensors.items() if tensor.ndim > 1)
    if change == "name":
        tensors["wings"] = tensors.pop(name)
    else:
        tensors[name] = tensors[name][1:].clone()
    save_file(tensors, folder / file)
    record = json.loads((folder / "state.json").read_text())
    record["sha256"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    (folder / "state.json").write_text(json.dumps(record))
    with pytest.raises(
        RamifyError, match=rf"step-00000006.* does not fit this model: .*{'wings' if change == 'name' else name}"
    ):
        run(tmp_path, data, resume=True)


@pytest.mark.parametrize("number", [0, 2, "one"])
def test_checkpoint_of_another_format_is_refused(tmp_path, data, number):
    run(tmp_path, data, until=7)
    folder = tmp_path / "checkpoints" / "step-00000006"
    reword(folder, '"format": 1', f'"format": {json.dumps(number)}')
    again(folder)
    message = rf"step-00000006 was written by another version of Ramify \(format {number}, this one reads 1\)\. Use the"
    with pytest.raises(RamifyError, match=message):
        run(tmp_path, data, resume=True)


class Counting(MaskedLM):
    """Its buffers count how often each token was predicted, and the number of steps."""

    seen: Tensor

    def losses(self, batch, divisors, phase, state, shared):
        self.seen += torch.bincount(batch.labels, minlength=len(self.seen))
        self.backbone.steps += 1
        yield from super().losses(batch, divisors, phase, state, shared)


def counting():
    task = tree_task(dtype=torch.float32, dropout=0.1)
    task.__class__ = Counting
    task.register_buffer("seen", torch.zeros(61, dtype=torch.int64))
    task.backbone.register_buffer("steps", torch.zeros(()))
    task.backbone.register_buffer("scratch", torch.ones(3), persistent=False)
    return task


def test_buffers_are_kept(tmp_path, data):
    """The buffers are in checkpoints and with the best weights; those that are recomputed are not."""
    straight, progress = run(tmp_path / "straight", data, task=counting())
    run(tmp_path / "killed", data, task=counting(), until=5)
    resumed, _ = run(tmp_path / "killed", data, task=counting(), resume=True)
    assert equal(weights(resumed), weights(straight))
    for trainer in (straight, resumed):
        assert trainer.task.backbone.steps == 8
        assert trainer.task.seen.sum() > 50
    assert torch.equal(resumed.task.seen, straight.task.seen)
    best = load_file(tmp_path / "killed" / "best.safetensors")
    assert best.keys() - weights(resumed).keys() == {"seen", "backbone.steps"}
    assert best["backbone.steps"] == progress.best_step
    hub.load_weights(resumed.task, tmp_path / "killed" / "best.safetensors")
    assert resumed.task.backbone.steps == progress.best_step


def test_integer_buffers_are_exact_in_half_precision(tmp_path):
    task = tree_task()
    task.register_buffer("seen", torch.arange(3))
    hub.save(MaskFiller(task), tmp_path, dtype=torch.float16)
    saved = load_file(tmp_path / "model.safetensors")
    assert saved["seen"].tolist() == [0, 1, 2]
    assert {tensor.dtype for tensor in saved.values()} == {torch.float16, torch.int64}


def test_damaged_checkpoint_does_not_count_towards_the_limit(tmp_path, data):
    """The two that stay are complete."""
    config = replace(SHORT, checkpoint_every=1)
    run(tmp_path, data, config, until=7)
    for folder in (tmp_path / "checkpoints").iterdir():
        if folder.name == "step-00000007":
            DAMAGE["no JSON"](folder)
    (tmp_path / "checkpoints" / "step-00000099").mkdir()
    run(tmp_path, data, config, resume=True, until=7)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000006", "step-00000007"]


def test_all_checkpoints_damaged_is_refused(tmp_path, data):
    run(tmp_path, data)
    for folder in (tmp_path / "checkpoints").iterdir():
        DAMAGE["cut weights"](folder)
    with pytest.raises(RamifyError, match=rf"none of the checkpoints in {tmp_path / 'checkpoints'} can be read\. Copy"):
        run(tmp_path, data, resume=True)


def test_checkpoints_of_another_model_are_refused(tmp_path, data):
    run(tmp_path, data)
    with pytest.raises(RamifyError, match="does not fit this model"):
        run(tmp_path, data, resume=True, task=tree_task(dtype=torch.float32, ffn_dim=20))

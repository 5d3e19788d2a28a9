"""Checkpoints: a damaged one is passed over, one of another model is refused."""

from dataclasses import replace

import pytest
import torch
from short_runs import SHORT, equal, records, run, weights

from fixtures import discussions, forest, tree_task
from ramify.errors import RamifyError


@pytest.fixture(scope="module")
def data():
    return forest(discussions(6, 10))


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


DAMAGE = {
    "cut weights": lambda folder: cut(folder / "model.safetensors"),
    "cut optimizer": lambda folder: cut(folder / "optimizer.safetensors"),
    "no optimizer": lambda folder: (folder / "optimizer.safetensors").unlink(),
    "no JSON": lambda folder: (folder / "state.json").write_text('{"step": '),
    "no object": lambda folder: (folder / "state.json").write_text("[]"),
    "no step": lambda folder: (folder / "state.json").write_text('{"first_step": 0, "first_tokens": 0}'),
    "nothing": lambda folder: [file.unlink() for file in folder.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, data, capsys, damage):
    """The run goes on from the one before, to the same bits and the same log."""
    straight, _ = run(tmp_path / "straight", data)
    run(tmp_path / "killed", data, until=7)
    checkpoints = tmp_path / "killed" / "checkpoints"
    assert sorted(folder.name for folder in checkpoints.iterdir()) == ["step-00000004", "step-00000006"]
    DAMAGE[damage](checkpoints / "step-00000006")
    run(tmp_path / "killed", data, resume=True, until=5)
    warning = capsys.readouterr().err
    assert warning.startswith("warning: ")
    assert "step-00000006" in warning
    assert [record["step"] for record in records(tmp_path / "killed")] == [1, 2, 3, 4, 5]
    resumed, _ = run(tmp_path / "killed", data, resume=True)
    assert equal(weights(resumed), weights(straight))
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
    best = [(tmp_path / side / "best.safetensors").read_bytes() for side in ("straight", "killed")]
    assert best[0] == best[1]


def test_a_damaged_checkpoint_takes_no_place(tmp_path, data):
    """The two that stay are whole."""
    config = replace(SHORT, checkpoint_every=1)
    run(tmp_path, data, config, until=7)
    for folder in (tmp_path / "checkpoints").iterdir():
        if folder.name == "step-00000007":
            DAMAGE["no JSON"](folder)
    (tmp_path / "checkpoints" / "step-00000099").mkdir()
    run(tmp_path, data, config, resume=True, until=7)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000006", "step-00000007"]


def test_checkpoints_that_are_all_damaged(tmp_path, data):
    run(tmp_path, data)
    for folder in (tmp_path / "checkpoints").iterdir():
        DAMAGE["cut weights"](folder)
    with pytest.raises(RamifyError, match=rf"none of the checkpoints in {tmp_path / 'checkpoints'} can be read\. Copy"):
        run(tmp_path, data, resume=True)


def test_checkpoints_of_another_model_are_refused(tmp_path, data):
    run(tmp_path, data)
    with pytest.raises(RamifyError, match="does not fit this model"):
        run(tmp_path, data, resume=True, task=tree_task(dtype=torch.float32, ffn_dim=20))

"""XLNet's memory belongs to rows, and rows to ranks. A killed run resumes to the same bits, on one rank and on two."""

import pytest
import torch
import xlnet_ranks
from ranks import on_two_ranks
from safetensors.torch import load_file

from fixtures.running import INPUT, WHOLE_ROWS


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xlnet")
    on_two_ranks(folder, xlnet_ranks.main, folder)
    return [load_file(folder / f"rank-{rank}.safetensors") for rank in (0, 1)]


def test_killed_run_resumes_to_the_same_bits_on_two_ranks(ranks):
    for own in ranks:
        straight = {name: tensor for name, tensor in own.items() if name.startswith("straight.")}
        assert straight
        for name, tensor in straight.items():
            assert torch.equal(own[name.replace("straight.", "resumed.")], tensor), name
    memory = [own["straight.state.memory"] for own in ranks]
    assert memory[0].shape == memory[1].shape == (2, 2, 10, 8)
    assert not torch.equal(*memory)


@pytest.mark.parametrize("input", [INPUT, WHOLE_ROWS], ids=["overlapping rows", "whole rows"])
def test_killed_run_resumes_to_the_same_bits_on_one_rank(input, tmp_path):
    straight = xlnet_ranks.train(tmp_path / "straight", input)
    for kill in (3, 7):
        xlnet_ranks.train(tmp_path / "killed", input, resume=True, until=kill)
    resumed = xlnet_ranks.train(tmp_path / "killed", input, resume=True)
    assert straight["state.memory"].shape == (2, 4, 10, 8)
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(resumed[name], tensor) for name, tensor in straight.items())


def test_memory_matters(tmp_path, monkeypatch):
    """Without memory, the same steps give other weights."""
    straight = xlnet_ranks.train(tmp_path / "straight")
    with_memory = xlnet_ranks.task
    monkeypatch.setattr(xlnet_ranks, "task", lambda: with_memory(memory=1))
    other = xlnet_ranks.train(tmp_path / "other")
    assert any(not torch.equal(other[name], tensor) for name, tensor in straight.items() if not name.startswith("state."))

"""The state of a model of running text belongs to rows, and rows to ranks. A killed run resumes to the same bits, on one rank
and on two."""

import memory_ranks
import pytest
import torch
from ranks import on_two_ranks
from safetensors.torch import load_file

STATES = {
    "xlnet": {"state.memory": (2, 4, 10, 8), "state.valid": (4,)},
    "xlnet, whole rows": {"state.memory": (2, 4, 10, 8), "state.valid": (4,)},
    "elmo": {"state.hidden": (2, 4, 8), "state.cell": (2, 4, 10)},
}
"""The shapes of states of four rows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    on_two_ranks(folder, memory_ranks.main, folder)
    return folder


@pytest.mark.parametrize("name", ["xlnet", "elmo"])
def test_killed_run_resumes_to_the_same_bits_on_two_ranks(folder, name):
    ranks = [load_file(folder / name / f"rank-{rank}.safetensors") for rank in (0, 1)]
    for own in ranks:
        straight = {key: tensor for key, tensor in own.items() if key.startswith("straight.")}
        assert straight
        for key, tensor in straight.items():
            assert torch.equal(own[key.replace("straight.", "resumed.")], tensor), key
    for key, (layers, rows, *sizes) in ((key, shape) for key, shape in STATES[name].items() if len(shape) > 1):
        one, other = (own[f"straight.{key}"] for own in ranks)
        assert one.shape == other.shape == (layers, rows // 2, *sizes)
        assert not torch.equal(one, other)


@pytest.mark.parametrize("name", memory_ranks.KINDS)
def test_killed_run_resumes_to_the_same_bits_on_one_rank(name, tmp_path):
    straight = memory_ranks.train(tmp_path / "straight", name)
    for kill in (3, 7):
        memory_ranks.train(tmp_path / "killed", name, resume=True, until=kill)
    resumed = memory_ranks.train(tmp_path / "killed", name, resume=True)
    assert {key: tuple(straight[key].shape) for key in straight if key.startswith("state.")} == STATES[name]
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(resumed[key], tensor) for key, tensor in straight.items())


@pytest.mark.parametrize("name", ["xlnet", "elmo"])
def test_the_state_matters(name, tmp_path):
    """Without it, the same steps give other weights."""
    straight = memory_ranks.train(tmp_path / "straight", name)
    other = memory_ranks.train(tmp_path / "other", name, forgetful=True)
    assert any(not torch.equal(other[key], tensor) for key, tensor in straight.items() if not key.startswith("state."))

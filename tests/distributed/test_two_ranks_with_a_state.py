"""Two ranks that read rows of their own, each with a state. Gradients are compared, not losses."""

import pytest
import stream_ranks
import torch
from ranks import on_two_ranks
from safetensors.torch import load_file

from ramify.training.metrics_log import read_metrics

HALF = stream_ranks.ROWS // 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    on_two_ranks(folder, stream_ranks.main, folder)
    return folder


@pytest.fixture(scope="module")
def ranks(folder):
    return [load_file(folder / f"rank-{rank}.safetensors") for rank in (0, 1)]


def part(tensors, name):
    return {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}


def test_gradients_equal_one_process_over_all_rows(ranks, tmp_path):
    """This holds at every step, also in the second epoch; the states of the ranks are the rows of one state."""
    expected = stream_ranks.gradients(tmp_path)
    assert len({key.split(".")[0] for key in expected}) == 6 > stream_ranks.LENGTH
    for rank, own in enumerate(part(tensors, "gradients") for tensors in ranks):
        assert own.keys() == expected.keys()
        for key, tensor in expected.items():
            rows = tensor[rank * HALF : (rank + 1) * HALF] if ".state." in key else tensor
            torch.testing.assert_close(own[key], rows, rtol=0, atol=1e-10)
    assert max(tensor.abs().max() for key, tensor in expected.items() if ".state." not in key) > 1e-2
    # The state matters: a memory that survives the end of an epoch changes the gradients there.
    on = stream_ranks.gradients(tmp_path / "on", forgets=False)
    for key, tensor in expected.items():
        # (The last letter of a piece is the same in either case.)
        assert key.endswith("last") or torch.equal(on[key], tensor) == (int(key.split(".")[0]) <= stream_ranks.LENGTH)


@pytest.mark.parametrize(("how", "out"), [("resumed", "killed"), ("damaged", "damaged")])
def test_killed_run_resumes_to_the_same_bits_on_every_rank(ranks, folder, how, out):
    """Weights, buffers, and each rank's own state."""
    for own in ranks:
        straight, other = part(own, "straight"), part(own, how)
        assert straight.keys() == other.keys()
        assert all(torch.equal(other[name], tensor) for name, tensor in straight.items())
    straight, other = ([record | {"seconds": 0} for record in read_metrics(folder / name)] for name in ("straight", out))
    assert straight == other


def test_ranks_share_weights_and_buffers_but_not_states(ranks):
    one, two = (part(own, "straight") for own in ranks)
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]) != name.startswith("state.")
    assert one["num_letters"] > 0


def test_each_rank_has_a_file_of_its_state(ranks, folder):
    newest = folder / "straight" / "checkpoints" / "step-00000009"
    for rank, own in enumerate(ranks):
        saved = load_file(newest / f"state-{rank}.safetensors")
        assert all(torch.equal(saved[name], tensor) for name, tensor in part(part(own, "straight"), "state").items())


def test_damaged_state_is_reported_once(folder):
    warnings = [line for line in (folder / "log").read_text().splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "step-00000004 is damaged: state-1.safetensors does not have the checksum" in warnings[0]

"""AGENT on two ranks: gradients of one process, and runs that resume to the same bits, queues included."""

import agent_ranks
import pytest
import torch
from ranks import on_two_ranks
from safetensors.torch import load_file

from fixtures import built
from fixtures.nested import losses, novels, read, task
from ramify.batching.samplers import TokenBudget
from ramify.tasks.base import MAIN

pytestmark = pytest.mark.skipif("config.getoption('--rounding')", reason="the ranks round as this processor does")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent")
    built(novels(16), folder / "data", split=(0.7, 0.2, 0.1))
    on_two_ranks(folder, agent_ranks.main, folder)
    return [load_file(folder / f"rank-{rank}.safetensors") for rank in (0, 1)]


def part(tensors, name):
    return {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}


def test_gradients_equal_one_process_over_the_examples_of_both_ranks(ranks):
    own = task(agent_ranks.SENTENCES, autoencoder_until=1.0)
    own.__class__ = agent_ranks.SameDraws
    view, collator = read(own, agent_ranks.TREES, agent_ranks.BUDGET)
    steps = TokenBudget(view.costs, agent_ranks.BUDGET, seed=3, world_size=2).steps(0)
    for number in range(agent_ranks.STILL.steps):
        own.share_done = number / agent_ranks.STILL.steps
        examples = [view.example(int(each)) for step in steps[2 * number : 2 * number + 2] for each in step]
        batch = own.corrupt(collator(examples), torch.Generator())
        own.zero_grad(set_to_none=True)
        torch.stack(list(losses(own, batch, own.counts(batch, MAIN)).values())).sum().backward()
        for name, parameter in own.named_parameters():
            for rank in ranks:
                found = part(rank, f"gradients.{number + 1}")[name]
                torch.testing.assert_close(found, parameter.grad, rtol=0, atol=1e-10, msg=f"{number} {name}")
        assert max(parameter.grad.abs().max() for parameter in own.parameters()) > 1e-2


@pytest.mark.parametrize("upper", ["detached", "two_phase"])
def test_killed_run_resumes_to_the_same_bits_on_two_ranks(ranks, upper):
    for own in ranks:
        straight, resumed = part(own, f"straight.{upper}"), part(own, f"resumed.{upper}")
        assert straight.keys() == resumed.keys()
        assert all(torch.equal(resumed[name], tensor) for name, tensor in straight.items())
        assert int(straight["queues.1.filled"]) > 0


def test_one_rank_writes_the_vectors_that_both_read(ranks):
    # Those of sentences and of paragraphs, of train and of dev.
    assert [int(part(own, "units")["written"]) for own in ranks] == [4, 0]


@pytest.mark.parametrize("kind", ["straight.detached", "straight.two_phase", "staged", "units"])
def test_ranks_share_weights_and_queues(ranks, kind):
    one, two = ({name: tensor for name, tensor in part(own, kind).items() if name != "written"} for own in ranks)
    assert one.keys() == two.keys()
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    assert all(torch.isfinite(tensor.double()).all() for tensor in one.values())

"""Deterministic algorithms are on while a stage trains, and every flag of torch is restored."""

import pytest
import torch

from ramify.errors import RamifyError
from ramify.training.process import deterministic


def flags() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def test_an_operation_without_a_deterministic_form_names_the_setting():
    with (
        pytest.raises(RamifyError, match=r"grid_kernel has no such form in torch .*\. Set train\.deterministic=false\."),
        deterministic(True),
    ):
        raise RuntimeError("grid_kernel does not have a deterministic implementation, but you set …")
    with pytest.raises(RuntimeError, match="out of memory"), deterministic(True):
        raise RuntimeError("out of memory")
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("before", [(False, False), (True, True), (True, False)])
def test_flags_are_set_and_restored(before):
    on, only_warns = before
    was = flags()
    try:
        torch.use_deterministic_algorithms(on, warn_only=only_warns)
        with deterministic(True):
            assert flags() == (True, False, False)
        assert flags() == (*before, was[2])
        with deterministic(False):
            assert flags() == (*before, was[2])
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])

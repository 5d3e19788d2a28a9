"""Deterministic algorithms are on while a stage trains, and every flag of torch is restored."""

import pytest
import torch

from ramify.training.process import deterministic


def flags() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


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

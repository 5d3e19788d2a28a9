"""Modules in evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards as it was."""
    if not any(each.training for each in module.modules()):
        # To tell every module takes a tenth of the time that a live channel has for a message.
        yield
        return
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)

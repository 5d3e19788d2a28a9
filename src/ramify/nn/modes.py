"""Switch modules between training and evaluation, and repeat random draws."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode inside this context and restore the modes of all its parts afterwards."""
    # `eval` and `train` set every part: a tenth of the time that online prediction has per message.
    training = [child for child in module.modules() if child.training]
    for child in training:
        child.training = False
    try:
        yield
    finally:
        for child in training:
            child.training = True


def generator_state(device: torch.device) -> Tensor:
    """The state of a device's generator, from which `restored_generator` repeats the draws that follow."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed the host's generator, and those of CUDA devices if the device is one.

    `torch.manual_seed` draws the same. It also formats the stack for every kind of device that is not there, which takes longer
    than an update of a small model.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def set_generator_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


@contextmanager
def restored_generator(device: torch.device, state: Tensor) -> Iterator[None]:
    """Repeat the draws that followed an earlier state inside this context, and go on with the present one afterwards."""
    present = generator_state(device)
    set_generator_state(device, state)
    try:
        yield
    finally:
        set_generator_state(device, present)


@contextmanager
def untouched(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore a module's mode, buffers and gradients, which parameters learn, and the generators' states afterwards."""
    host, state = torch.get_rng_state(), generator_state(device)
    modes = {child: child.training for child in module.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    parameters = [(parameter, parameter.requires_grad, parameter.grad) for parameter in module.parameters()]
    try:
        yield
    finally:
        for child, training in modes.items():
            child.training = training
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for parameter, learns, gradient in parameters:
            parameter.requires_grad_(learns)
            parameter.grad = gradient
        torch.set_rng_state(host)
        set_generator_state(device, state)


@contextmanager
def without_gradients(*modules: nn.Module) -> Iterator[None]:
    """Compute with the parameters of some modules as constants inside this context. A gradient flows through their layers, and
    none reaches the parameters."""
    learning = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)

"""The training process and its ranks: device, arithmetic, signals, sums over ranks."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from ramify.errors import RamifyError
from ramify.files import sole_writer
from ramify.hub import find_device


def own_device() -> torch.device:
    """The device of this process. If a machine runs several processes, each has its own GPU."""
    device = find_device()
    return device if device.type == "cpu" else torch.device(device.type, int(os.environ.get("LOCAL_RANK", "0")))


def start_accelerator(*, bf16: bool, cpu: bool) -> Accelerator:
    """Join the ranks that torchrun started. Raises if accelerate sees a different number of ranks."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    # Without cpu=True, accelerate gives each rank that has no GPU a world of its own.
    cpu = cpu or find_device().type == "cpu"
    if world_size == 1:
        # Accelerate keeps the first device and precision of a process, but a later run in it may need others.
        AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(mixed_precision="bf16" if bf16 else "no", cpu=cpu)
    if accelerator.num_processes != world_size:
        raise RamifyError(
            f"{world_size} processes were started (WORLD_SIZE), but accelerate sees {accelerator.num_processes}. "
            "Start them with torchrun."
        )
    return accelerator


def sum_over_ranks(accelerator: Accelerator, tensor: Tensor) -> Tensor:
    reduced = accelerator.reduce(tensor, reduction="sum")
    assert isinstance(reduced, Tensor)
    return reduced


def reduce_gradients(accelerator: Accelerator, parameters: Sequence[nn.Parameter]) -> None:
    """Sum gradients over ranks in one reduction. A parameter that no rank used has no gradient afterwards."""
    if accelerator.num_processes == 1:
        return
    used = torch.tensor(
        [parameter.grad is not None for parameter in parameters], dtype=torch.float32, device=accelerator.device
    )
    used = sum_over_ranks(accelerator, used)
    shared = [parameter for parameter, ranks in zip(parameters, used.tolist(), strict=True) if ranks]
    if not shared:
        return
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in shared])
    flat = sum_over_ranks(accelerator, flat)
    for parameter, gradient in zip(shared, flat.split([p.numel() for p in shared]), strict=True):
        parameter.grad = gradient.view_as(parameter).clone()


def locked(out: Path) -> AbstractContextManager[None]:
    """Lock a run folder, so that no other process trains there. The first rank holds the lock. Raises `RamifyError` if the
    folder is already locked."""
    return sole_writer(out, "trained") if int(os.environ.get("RANK", "0")) == 0 else nullcontext()


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat denormal numbers as zero: in gradients, they slow matrix products tenfold on CPU."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def deterministic(on: bool) -> Iterator[None]:
    """Use torch's deterministic algorithms if `on`. Raises `RamifyError` for an operation that has none."""
    before, only_warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic  # its attribute is made at run time
    fills = memory.fill_uninitialized_memory
    if on:
        # cuBLAS reads this variable on its first use.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # With warnings alone, the kernels of attention keep their non-deterministic backward pass.
        torch.use_deterministic_algorithms(True)
        # No operation reads memory before it is written, and filling it would take a sixth of a step.
        memory.fill_uninitialized_memory = False
    try:
        yield
    except RuntimeError as error:
        if "does not have a deterministic implementation" not in str(error):
            raise
        raise RamifyError(
            f"train.deterministic=true needs deterministic operations, but {str(error).split()[0]} has no such form in torch "
            f"{torch.__version__}. Set train.deterministic=false."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)
        memory.fill_uninitialized_memory = fills


@contextmanager
def interrupts(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` on Ctrl-C and termination, instead of ending the process."""

    def handle(*_: Any) -> None:
        ask()

    try:
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: the caller handles signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

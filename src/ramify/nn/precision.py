"""Half precision: linear maps in bfloat16, weights, sums and losses in single precision. Training has accelerate's own."""

from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Compute what runs inside with this precision; weights stay as they are."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")

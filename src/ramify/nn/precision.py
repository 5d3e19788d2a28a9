"""Half precision: linear maps use bfloat16; weights, sums and losses stay in single precision. Training uses accelerate's."""

from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Compute with this precision inside the context. Weights stay as they are."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")

"""Rounding on other processors: the tolerance behind the fixture `near`, and the kernels behind `--rounding`."""

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

UNITS = 64
"""By how many units in the last place of its largest value an array may differ from the same one computed over other shapes."""

_DECIMAL = re.compile(r"-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)")


def near(found: Any, expected: Any) -> None:
    """Asserts equality, but for the rounding of numbers that were computed over other shapes.

    Both may be tensors, arrays, numbers, texts that print decimals, and lists, mappings and dataclasses of these. Floats of
    Python count as single precision and as at least one in size. A printed decimal may also differ by one in its last digit.
    """
    if isinstance(expected, Tensor | np.ndarray | np.generic):
        one, other = torch.as_tensor(found).detach(), torch.as_tensor(expected).detach()
        assert one.dtype == other.dtype
        largest = other.abs().nan_to_num(0, 0, 0).max() if other.numel() else 0
        torch.testing.assert_close(one, other, rtol=0, atol=_allowed(other.dtype, float(largest)), equal_nan=True)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=0, abs=_allowed(torch.float32, max(abs(expected), 1)), nan_ok=True)
    elif isinstance(expected, str):
        assert _DECIMAL.sub("#", found) == _DECIMAL.sub("#", expected)
        for one, other in zip(_DECIMAL.findall(found), _DECIMAL.findall(expected), strict=True):
            digit = 10.0 ** min(_last_place(one), _last_place(other))
            assert float(one) == pytest.approx(
                float(other), rel=0, abs=max(1.01 * digit, _allowed(torch.float32, abs(float(other))))
            )
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            near(one, other)
    elif isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        near([found[key] for key in expected], list(expected.values()))
    elif is_dataclass(expected):
        assert type(found) is type(expected)
        near(vars(found), vars(expected))
    else:
        assert found == expected


def _last_place(decimal: str) -> int:
    digits, _, power = decimal.partition("e")
    return int(power or 0) - len(digits.partition(".")[2])


def _allowed(dtype: torch.dtype, largest: float) -> float:
    return UNITS * torch.finfo(dtype).eps * largest if dtype.is_floating_point else 0


ROUNDED = {
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "convolution_backward", "mkldnn_rnn_layer"),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"),
    *("_softmax_backward_data", "_log_softmax_backward_data", "logsumexp", "segment_reduce"),
    *("native_layer_norm", "native_layer_norm_backward", "sum", "mean", "cumsum", "linalg_vector_norm", "var", "std"),
    *("exp", "expm1", "log1p", "tanh", "tanh_backward", "sigmoid", "sigmoid_backward", "log_sigmoid_forward"),
    *("softplus", "gelu", "gelu_backward", "erf", "pow", "sin", "cos", "embedding_dense_backward", "index_add", "scatter_add"),
}
"""The operations whose result depends on the order of sums, on fused products or on the width of vector registers."""


@lru_cache(maxsize=10_000)
def _factors(seed: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """One, or one of its two neighbours, for every place of a result."""
    units = np.random.default_rng(seed).integers(-1, 2, size=tuple(shape))
    return torch.as_tensor(1 + units * torch.finfo(dtype).eps, dtype=dtype)


class AnotherRounding(TorchDispatchMode):
    """Rounds every result of a kernel as another processor might: the operation and the shapes decide, never the values.

    Equal calls are therefore equal to the bit, and no value reaches another place. A text in another batch, or in another place
    of it, differs in the last digit. Whole numbers and eighths stay: their sums are exact everywhere.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        is_exact = name == "segment_reduce" and args[1] == "max"
        if name.rstrip("_") in ROUNDED and not is_exact:
            shapes = [tuple(each.shape) for each in args if isinstance(each, Tensor)]
            for place, each in enumerate(results if isinstance(results, tuple) else (results,)):
                if type(each) is Tensor and each.is_floating_point() and each.device.type == "cpu" and each.numel():
                    factors = _factors(crc32(repr((name, place, shapes)).encode()), each.shape, each.dtype)
                    eighths = each * 8
                    each.copy_(torch.where(eighths == eighths.round(), each, each * factors))
        return results

"""A counter-based random number generator: a value depends only on seed and counter, not on batches or order."""

from jaxtyping import Float, Int
from torch import Tensor

# SplitMix64 (Steele, Lea & Flood 2014), in two's complement.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def words(seeds: Int[Tensor, "*axes"], counters: Int[Tensor, "*axes"] | int) -> Int[Tensor, "*axes"]:
    """64 random bits for every (seed, counter)."""
    step = counters * _GAMMA
    if isinstance(step, int):
        # A product of tensors wraps around, but torch rejects a Python integer beyond 64 bits.
        step = (step + 2**63) % 2**64 - 2**63
    return _mix(_mix(seeds) + step)


def uniform(seeds: Int[Tensor, "*axes"], counters: Int[Tensor, "*axes"] | int) -> Float[Tensor, "*axes"]:
    """Uniform numbers on [0, 1) with 32 random bits, in double precision."""
    return _right(words(seeds, counters), 32).double() / 2**32


def below(limit: int, seeds: Int[Tensor, "*axes"], counters: Int[Tensor, "*axes"] | int) -> Int[Tensor, "*axes"]:
    """Integers on [0, limit), uniform to within limit / 2^32."""
    return (uniform(seeds, counters) * limit).long()


def _right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift. Torch's own shift of signed integers copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = x + _GAMMA
    x = (x ^ _right(x, 30)) * _FIRST
    x = (x ^ _right(x, 27)) * _SECOND
    return x ^ _right(x, 31)

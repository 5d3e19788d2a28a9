"""Seeds of all random draws in training. They follow from the run's seed and from counters, so a checkpoint needs no generator
states."""

import numpy as np


def step_seed(seed: int, *numbers: int) -> int:
    """A 63-bit seed for one draw of one step."""
    return int(np.random.SeedSequence([seed, *numbers]).generate_state(1, np.uint64)[0] >> np.uint64(1))

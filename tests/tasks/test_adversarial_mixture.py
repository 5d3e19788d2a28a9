"""Eight Gaussians on a circle, generated with the losses and phases of AGENT's generators.

`benchmarks/mixture.py` takes 4,000 updates; these are 800 of the same training.
"""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import mixture
finally:
    sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("loss", ["non_saturating", "minimax"])
def test_every_mode_is_generated(tmp_path, loss):
    found = mixture.learned(loss, 0, tmp_path, steps=800)
    assert found["least_mode"] >= 0.04
    assert found["near"] >= 0.5

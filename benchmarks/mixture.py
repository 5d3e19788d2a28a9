"""Eight Gaussians on a circle, recovered by a generator with the losses and phases that generate AGENT's vectors.

    python benchmarks/mixture.py --seeds 0,1,2

A generator and a discriminator, with two hidden layers of 128 units each, take 4,000 updates of 128 points.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ramify.batching.batch import AnyBatch
from ramify.batching.forest import Ints
from ramify.batching.views.base import View
from ramify.models.adversary import Generator
from ramify.models.base import State
from ramify.tasks import adversarial
from ramify.tasks.adversarial import DISCRIMINATORS, GENERATORS, GeneratorLoss, Match
from ramify.tasks.base import Losses, Readings, Task
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage
from ramify.training.trainer import Trainer

MODES, RADIUS, DEVIATION = 8, 2.0, 0.05
STEPS, POINTS = 4000, 128
SAMPLES = 10_000


@dataclass(frozen=True)
class Points(AnyBatch):
    """Real points."""

    points: Tensor

    @property
    def device(self) -> torch.device:
        return self.points.device

    @property
    def num_targets(self) -> int:
        return len(self.points)

    @property
    def num_target_tokens(self) -> int:
        return len(self.points)


def centres() -> NDArray[np.float64]:
    angles = 2 * math.pi * np.arange(MODES) / MODES
    return RADIUS * np.stack([np.cos(angles), np.sin(angles)], 1)


class Mixture(View[int]):
    """Batches of points of the mixture, one per example."""

    @property
    def costs(self) -> Ints:
        return np.full(STEPS, POINTS)

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.full(STEPS, float(POINTS))

    @property
    def sizes(self) -> Ints:
        return self.costs

    @property
    def target_tokens(self) -> Ints:
        return self.costs

    def example(self, number: int, epoch: int = 0) -> int:
        return number

    def collate(self, examples: Sequence[int]) -> Points:
        random = np.random.default_rng(examples[0])
        mode = random.integers(MODES, size=POINTS)
        points = centres()[mode] + DEVIATION * random.standard_normal((POINTS, 2))
        return Points(torch.from_numpy(points).float())


class Judge(nn.Module):
    """The log-odds that a point is real."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, points: Tensor) -> Tensor:
        return self.layers(points)[:, 0]


class PlaneAdversary(Task[Points]):
    """A generator of points and its discriminator."""

    phases = (DISCRIMINATORS, GENERATORS)

    def __init__(self, loss: GeneratorLoss) -> None:
        super().__init__()
        self.loss: GeneratorLoss = loss
        self.discriminators = Judge()
        self.generators = Generator(2, 3, 128)

    def corrupt(self, batch: Points, generator: torch.Generator) -> Points:
        return batch

    def shared(self, batch: Points, state: State | None) -> Tensor:
        return self.generators.noise(len(batch.points))

    def counts(self, batch: Points, phase: str) -> dict[str, float]:
        return {adversarial.loss_name(phase, "plane"): self._match(batch, batch.points).count(phase)}

    def losses(self, batch: Points, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any) -> Losses:
        yield adversarial.losses_of({"plane": self._match(batch, shared)}, divisors, phase), None

    def readings(self, batch: Points, phase: str, state: State | None, shared: Any) -> Readings:
        match, name = self._match(batch, shared), adversarial.loss_name(phase, "plane")
        return Readings(adversarial.losses_of({"plane": match}, {name: 1.0}, phase), {name: match.at_prior(phase)})

    def _match(self, batch: Points, noise: Tensor) -> Match:
        return Match(self.discriminators, lambda: self.generators(noise), lambda: batch.points, len(batch.points), self.loss)


def learned(loss: GeneratorLoss, seed: int, out: Path, **settings: Any) -> dict[str, float]:
    """The least share of generated points near a mode, and the share near any, after training in the folder `out`. Near: within
    three standard deviations."""
    torch.manual_seed(seed)
    task = PlaneAdversary(loss)
    config = TrainConfig(**(SETTINGS | settings))
    view = Mixture()
    Trainer(task, [Stage(config, view, view.collate)], out, seed=seed, cpu=True).run()
    noise = task.generators.noise(SAMPLES, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        points = task.generators(noise).numpy()
    distances = np.linalg.norm(points[:, None] - centres(), axis=2)
    near = distances.min(1) <= 3 * DEVIATION
    shares = np.bincount(distances.argmin(1)[near], minlength=MODES) / SAMPLES
    return {"least_mode": float(shares.min()), "near": float(near.mean())}


SETTINGS: dict[str, Any] = {
    "steps": STEPS,
    "budget": POINTS,
    "optimizer": "adam",
    "lr": 1e-3,
    "betas": (0.5, 0.999),
    "eps": 1e-8,
    "weight_decay": 0.0,
    "warmup": 0.0,
    "schedule": "linear",
    "clip": 0.0,
    "log_every": 0,
    "evaluate_every": 0,
    "checkpoint_every": 0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated")
    arguments = parser.parse_args()
    losses: tuple[GeneratorLoss, ...] = ("non_saturating", "minimax")
    found = []
    for loss in losses:
        for seed in map(int, arguments.seeds.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                found.append({"loss": loss, "seed": seed, **learned(loss, seed, Path(folder))})
            print(f"{loss}, seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

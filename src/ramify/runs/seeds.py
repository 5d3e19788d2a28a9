"""Several seeds of one run: a folder each, the best one on dev in the folder of all, and the mean and spread of scores."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ramify import hub
from ramify.config import from_record
from ramify.errors import RamifyError
from ramify.files import check_format, make_folder, read_json, replacing, write_text
from ramify.metrics.metric import Metric
from ramify.runs.base import RUN_FILE, Prepared, Run
from ramify.runs.execute import check_fresh, execute
from ramify.training.metrics_log import METRICS

SEEDS = "seeds.json"
"""The file of a folder with several seeds of a run."""

FORMAT = 1
"""Version of the format of seeds.json."""

COPIED = (METRICS, hub.WEIGHTS, hub.CARD, "tokenizer.json", RUN_FILE, hub.CONFIG)
"""The files of the best seed that the folder of all seeds holds, too, in the order in which they are written."""


@dataclass(frozen=True)
class SeedScore:
    """The best dev score of one seed."""

    seed: int
    folder: str
    value: float
    step: int


@dataclass(frozen=True)
class SeedScores:
    """The dev scores of several seeds of a run."""

    metric: str
    greater_is_better: bool
    scores: tuple[SeedScore, ...]

    @property
    def best(self) -> SeedScore:
        """The best seed; of equal ones, the first."""
        choose = max if self.greater_is_better else min
        return choose(self.scores, key=lambda score: score.value)

    @property
    def mean(self) -> float:
        return float(np.mean([score.value for score in self.scores]))

    @property
    def spread(self) -> float:
        """The standard deviation of a seed's score, estimated from all."""
        return float(np.std([score.value for score in self.scores], ddof=1))

    @property
    def lead(self) -> str:
        """The best score beside the mean, for people."""
        ahead = self.best.value - self.mean
        deviations = f", {abs(ahead) / self.spread:.1f} standard deviations" if self.spread else ""
        return f"{ahead:+.4f} from the mean{deviations}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "best": self.best.seed, "mean": self.mean, "spread": self.spread}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "SeedScores":
        scores = tuple(from_record(SeedScore, score) for score in record["scores"])
        return cls(record["metric"], record["greater_is_better"], scores)

    def line(self) -> str:
        name = self.metric.replace("_", " ")
        return (
            f"{len(self.scores)} seeds: dev {name} {self.mean:.4f} on average, standard deviation {self.spread:.4f}; the best, "
            f"{self.best.value:.4f}, is seed {self.best.seed} ({self.lead})"
        )


@contextmanager
def _no_display() -> Iterator[Callable[[dict[str, Any]], None]]:
    yield lambda record: None


def execute_seeds(
    run: Run,
    out: Path,
    count: int,
    *,
    resume: bool = False,
    begin: Callable[[Prepared], None] | None = None,
    display: Callable[[], AbstractContextManager[Callable[[dict[str, Any]], None]]] = _no_display,
    cpu: bool = False,
) -> tuple[Prepared, SeedScores] | None:
    """Train a run with `count` seeds, from its own on, each in a folder `seed-K` of `out`. The best one on dev is copied to
    `out`, for `ramify.load`.

    The arguments are those of `execute`; `display` makes a `report` for each seed.

    None: training was interrupted, and `resume` continues it. Raises `RamifyError` if there is no dev split to choose by.
    """
    if count < 2:
        raise RamifyError(f"--seeds {count} is no number of seeds to compare. Choose at least 2, or leave it out.")
    if not run.stages:
        raise RamifyError(
            f"--seeds {count} has no effect on a model that is fitted in closed form, because all seeds give the same. Leave "
            "--seeds out."
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RamifyError(
            f"--seeds {count} trains in one process, but torchrun started {os.environ['WORLD_SIZE']}. Train each seed in "
            "a run of its own (--seed K), or start one process."
        )
    if (out / SEEDS).exists() and not resume:
        raise RamifyError(f"--out {out} already holds seeds of a run. Add --resume to continue them, or choose another --out.")
    if not (out / SEEDS).exists():
        check_fresh(out)
    make_folder(out)
    if not (out / SEEDS).exists():
        write_text(out / SEEDS, json.dumps({"format": FORMAT}) + "\n")
    scores = []
    prepared, metric = None, Metric("", True)
    for seed in range(run.seed, run.seed + count):
        folder = out / f"seed-{seed}"
        with display() as report:
            prepared, progress = execute(replace(run, seed=seed), folder, resume=resume, begin=begin, report=report, cpu=cpu)
        if not (folder / hub.CONFIG).exists():
            return None
        if progress.best is None or progress.best_step is None:
            raise RamifyError(
                f"--seeds {count} chooses the best seed on dev, but {run.data} has no dev split to score. Build the data "
                "with a share for dev (--split), or train single seeds."
            )
        metric = prepared.stage(len(prepared.run.stages) - 1).metric
        scores.append(SeedScore(seed, folder.name, progress.best, progress.best_step))
    assert prepared is not None
    found = SeedScores(metric.name, metric.greater_is_better, tuple(scores))
    _take(out, found)
    return prepared, found


def _take(out: Path, found: SeedScores) -> None:
    """Copy the files of the best seed, and write the scores of all."""
    source = out / found.best.folder
    # config.json marks a complete directory.
    (out / hub.CONFIG).unlink(missing_ok=True)
    for name in COPIED:
        if not (source / name).exists():
            continue
        if name == RUN_FILE:
            record = json.loads((source / name).read_text("utf-8")) | {"seeds": found.to_json()}
            write_text(out / name, json.dumps(record, indent=2) + "\n")
            continue
        with replacing(out / name) as scratch:
            shutil.copyfile(source / name, scratch)
    write_text(out / SEEDS, json.dumps({"format": FORMAT} | found.to_json(), indent=2) + "\n")


def read_seeds(out: Path) -> SeedScores | None:
    """The scores of the seeds in a folder; None: it holds none, or not all."""
    if not (out / SEEDS).exists():
        return None
    record = read_json(out / SEEDS, "seeds of a run")
    check_format(record, FORMAT, out / SEEDS)
    if "scores" not in record:
        return None
    return SeedScores.from_json(record)

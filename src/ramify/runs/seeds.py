"""Several variants of one run, in a folder each, and the best one on dev in the folder of all: seeds, with the mean and
spread of their scores, or numbers of training examples, which make a learning curve."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ramify import hub
from ramify.config import from_record
from ramify.errors import RamifyError
from ramify.files import check_format, make_folder, read_json, replacing, write_text
from ramify.hub import RUN_FILE
from ramify.metrics.metric import Metric
from ramify.runs.base import Prepared, Run
from ramify.runs.execute import check_fresh, execute
from ramify.tokenizer import ROLES_FILE, TOKENIZER
from ramify.training.metrics_log import METRICS

SEEDS = "seeds.json"
"""The file of a folder with several seeds of a run."""

CURVE = "examples.json"
"""The file of a folder with a run on several numbers of examples."""

FORMAT = 1
"""Version of the format of these files."""

HELD = {SEEDS: "seeds of a run", CURVE: "a run on several numbers of examples"}
"""The content of a folder, by its file, for messages."""

COPIED = (METRICS, hub.WEIGHTS, hub.CARD, TOKENIZER, ROLES_FILE, RUN_FILE, hub.CONFIG)
"""The files of the best variant that the folder of all holds, too, in the order in which they are written."""


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
    run: Any,
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
    option = f"--seeds {count}"
    if not run.stages and run.view.examples is None:
        raise RamifyError(
            f"{option} has no effect on a model that is fitted in closed form on all examples, because all seeds give the "
            "same. Leave --seeds out, or let each seed draw some of the examples (--set view.examples=N)."
        )
    seeds = range(run.seed, run.seed + count)
    runs = {f"seed-{seed}": replace(run, seed=seed) for seed in seeds}
    done = _execute_all(runs, out, SEEDS, option, resume=resume, begin=begin, display=display, cpu=cpu)
    if done is None:
        return None
    metric = done.metric
    scores = tuple(SeedScore(seed, folder, *done.best[folder]) for seed, folder in zip(seeds, runs, strict=True))
    found = SeedScores(metric.name, metric.greater_is_better, scores)
    _take(out, found.best.folder, SEEDS, "seeds", found.to_json())
    return done.prepared, found


@dataclass(frozen=True)
class CurvePoint:
    """The best dev score on a number of training examples."""

    examples: int
    folder: str
    value: float
    step: int


@dataclass(frozen=True)
class LearningCurve:
    """The dev scores on several numbers of training examples."""

    metric: str
    greater_is_better: bool
    scores: tuple[CurvePoint, ...]

    @property
    def best(self) -> CurvePoint:
        """The best point; of equal ones, that of the fewest examples."""
        choose = max if self.greater_is_better else min
        return choose(self.scores, key=lambda score: score.value)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "best": self.best.examples}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "LearningCurve":
        scores = tuple(from_record(CurvePoint, score) for score in record["scores"])
        return cls(record["metric"], record["greater_is_better"], scores)

    def line(self) -> str:
        points = ", ".join(f"{score.value:.4f} on {score.examples:,}" for score in self.scores)
        return f"dev {self.metric.replace('_', ' ')} {points} examples; this folder holds the model of {self.best.examples:,}"


def execute_curve(
    run: Any,
    out: Path,
    numbers: Sequence[int],
    *,
    resume: bool = False,
    begin: Callable[[Prepared], None] | None = None,
    display: Callable[[], AbstractContextManager[Callable[[dict[str, Any]], None]]] = _no_display,
    cpu: bool = False,
) -> tuple[Prepared, LearningCurve] | None:
    """As `execute_seeds`, for one run on several numbers of training examples (`view.examples`), each in a folder
    `examples-K` of `out`."""
    numbers = sorted(set(numbers))
    option = f"--examples {','.join(map(str, numbers))}"
    if len(numbers) < 2:
        raise RamifyError(f"{option} makes no curve. Give at least two numbers, or set one with --set view.examples=N.")
    if run.view.examples is not None:
        raise RamifyError(f"{option} sets view.examples={run.view.examples}, which is given, too. Leave out one of the two.")
    runs = {f"examples-{number}": replace(run, view=replace(run.view, examples=number)) for number in numbers}
    done = _execute_all(runs, out, CURVE, option, resume=resume, begin=begin, display=display, cpu=cpu)
    if done is None:
        return None
    scores = tuple(CurvePoint(number, folder, *done.best[folder]) for number, folder in zip(numbers, runs, strict=True))
    found = LearningCurve(done.metric.name, done.metric.greater_is_better, scores)
    _take(out, found.best.folder, CURVE, "curve", found.to_json())
    return done.prepared, found


@dataclass(frozen=True)
class _Done:
    """Variants of a run that are all trained."""

    prepared: Prepared
    """The last one."""
    metric: Metric
    best: Mapping[str, tuple[float, int]]
    """The best dev score and its step, by folder."""


def _execute_all(
    runs: Mapping[str, Run],
    out: Path,
    file: str,
    option: str,
    *,
    resume: bool,
    begin: Callable[[Prepared], None] | None,
    display: Callable[[], AbstractContextManager[Callable[[dict[str, Any]], None]]],
    cpu: bool,
) -> _Done | None:
    """Train runs in folders of `out`, which `file` marks. None: training was interrupted."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RamifyError(
            f"{option} trains in one process, but torchrun started {os.environ['WORLD_SIZE']}. Train each run alone "
            "(--seed K, --set view.examples=N), or start one process."
        )
    if (out / file).exists() and not resume:
        raise RamifyError(f"--out {out} already holds {HELD[file]}. Add --resume to continue them, or choose another --out.")
    if not (out / file).exists():
        check_fresh(out)
        for other in HELD.keys() - {file}:
            if (out / other).exists():
                raise RamifyError(f"--out {out} holds {HELD[other]}. Choose another --out.")
    if not (out / file).exists():
        # The last one reads the most examples: if its data are refused, nothing is trained before.
        name, run = [*runs.items()][-1]
        prepared = run.prepare(out / name)
        held_out = prepared.stage(0).dev if prepared.fitted is None else prepared.fitted.score
        if held_out is None:
            raise RamifyError(
                f"{option} chooses the best {'seed' if file == SEEDS else 'number of examples'} on dev, but {run.data} has no "
                "dev split to score. Build the data with a share for dev (--split), or train single runs."
            )
        make_folder(out)
        write_text(out / file, json.dumps({"format": FORMAT}) + "\n")
    best: dict[str, tuple[float, int]] = {}
    prepared, metric = None, Metric("", True)
    for name, run in runs.items():
        with display() as report:
            prepared, progress = execute(run, out / name, resume=resume, begin=begin, report=report, cpu=cpu)
        if not (out / name / hub.CONFIG).exists():
            return None
        # Of the last stage, or of a fit in closed form, which makes no steps.
        value, step = progress.best, progress.best_step
        if prepared.fitted is None:
            metric = prepared.stage(len(prepared.run.stages) - 1).metric
        else:
            metric, value, step = prepared.fitted.metric, prepared.fitted.score, 0
        assert value is not None, "the dev split holds examples"
        assert step is not None
        best[name] = (value, step)
    assert prepared is not None
    return _Done(prepared, metric, best)


def _take(out: Path, folder: str, file: str, key: str, scores: Mapping[str, Any]) -> None:
    """Copy the files of the best variant, and write the scores of all, in run.json under a key."""
    source = out / folder
    # config.json marks a complete directory.
    (out / hub.CONFIG).unlink(missing_ok=True)
    for name in COPIED:
        if not (source / name).exists():
            continue
        if name == RUN_FILE:
            record = json.loads((source / name).read_text("utf-8")) | {key: scores}
            write_text(out / name, json.dumps(record, indent=2) + "\n")
            continue
        with replacing(out / name) as scratch:
            shutil.copyfile(source / name, scratch)
    write_text(out / file, json.dumps({"format": FORMAT} | dict(scores), indent=2) + "\n")


def read_seeds(out: Path) -> SeedScores | None:
    """The scores of the seeds in a folder; None: it holds none, or not all."""
    if not (out / SEEDS).exists():
        return None
    record = read_json(out / SEEDS, "seeds of a run")
    check_format(record, FORMAT, out / SEEDS)
    if "scores" not in record:
        return None
    return SeedScores.from_json(record)

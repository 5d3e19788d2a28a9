"""Experiments of many runs: a list of runs with their evaluations, carried out command by command, and their figures."""

import datetime
import json
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from rows import Row, slug


@dataclass(frozen=True)
class Item:
    """A trained model and its scores, as commands. DATA, OUT, RATE and RUN (its folder) are filled in when they are carried
    out."""

    name: str
    train: str
    """A recipe of `ramify train` and its options."""
    hours: float
    """Core-hours of training and scoring, estimated from the first runs."""
    rate_of: str = ""
    """The model whose learning rate, chosen on dev, is filled in for RATE."""
    scores: Mapping[str, str] = field(default_factory=dict)
    """Commands that print JSON about RUN, by label."""
    trained: str = ""
    """The run that holds the trained model, if it is another item's."""


def train_command(item: Item, data: Path, out: Path, rate: str, folder: Path | None = None) -> str:
    """`folder` takes the run; None: the folder of the item's name in `out`, which holds the runs."""
    return f"ramify train {_filled(item.train, data, out, rate)} --out {folder or out / item.name}"


def score_command(item: Item, label: str, data: Path, out: Path, rate: str = "RATE") -> str:
    folder = out / (item.trained or item.name).replace("RATE", rate)
    return _filled(item.scores[label].replace("RUN", str(folder)), data, out, rate)


def _filled(words: str, data: Path, out: Path, rate: str) -> str:
    return " ".join(words.replace("DATA", str(data)).replace("OUT", str(out)).replace("RATE", rate).split())


def print_plan(items: Sequence[Item]) -> None:
    """Print the runs, their commands and their cost."""
    for item in items:
        print(f"{item.name}: {item.hours} core-hours")
        if not item.trained:
            print(f"    {train_command(item, Path('DATA'), Path('OUT'), 'RATE')}")
        for label in item.scores:
            print(f"    {score_command(item, label, Path('DATA'), Path('OUT'))}")
    print(f"{sum(item.hours for item in items):.1f} core-hours in total")


def carry_out(
    items: Sequence[Item], names: Sequence[str], data: Path, out: Path, rate_of: Callable[[str], str] = lambda model: ""
) -> None:
    """Carry out the commands of some items whose results are not there yet. An interrupted run is continued."""
    known = {item.name: item for item in items}
    for name in names:
        item = known[name]
        rate = rate_of(item.rate_of) if item.rate_of else ""
        folder = out / name
        if not item.trained and not (folder / "config.json").exists():
            resume = " --resume" if (folder / "run.json").exists() else ""
            _run(train_command(item, data, out, rate) + resume)
        folder.mkdir(exist_ok=True)
        for label in item.scores:
            if not (folder / f"{label}.json").exists():
                (folder / f"{label}.json").write_text(_run(score_command(item, label, data, out, rate)))


def _run(command: str) -> str:
    print(f"$ {command}", flush=True)
    began = time.perf_counter()
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True)
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return done.stdout


def found_in(folder: Path, label: str) -> dict[str, Any] | None:
    """The scores of an item under a label; None: they are not there yet."""
    file = folder / f"{label}.json"
    return json.loads(file.read_text()) if file.exists() else None


def copy_curve(source: Path, target: Path, columns: Sequence[str]) -> bool:
    """Keep these columns of the logged steps that hold a dev loss. Returns whether there are any."""
    from ramify.training.metrics_log import read_metrics

    records = [record for record in read_metrics(source) if "dev_loss" in record]
    if records:
        target.mkdir(parents=True, exist_ok=True)
        kept = [{name: record[name] for name in columns if name in record} for record in records]
        (target / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    return bool(records)


@dataclass
class Figures:
    """Rows of results that share their origin."""

    trained: str
    """Commit of the training and evaluation."""
    measured: str
    """Commit of the measurements whose commands begin with `measuring`."""
    machine: str
    measuring: str = ""
    rows: list[Row] = field(default_factory=list)

    def add(
        self,
        table: str,
        row: str,
        column: str,
        value: float,
        command: str,
        *,
        unit: str = "nats",
        seeds: Sequence[int] = (0,),
        interval: Mapping[str, float] | None = None,
        spread: float | None = None,
        digits: int = 4,
        p: float | None = None,
        note: str = "",
    ) -> None:
        """`interval` has the keys low and high, and p where it is a test against zero."""

        def short(number: float) -> Decimal:
            return Decimal(f"{number:.{digits}f}") + 0  # never −0

        p = interval.get("p") if interval is not None else p
        is_measured = bool(self.measuring) and command.startswith(self.measuring)
        self.rows.append(
            Row(
                name=f"{table}.{slug(row)}.{slug(column)}",
                value=short(value),
                unit=unit,
                command=command,
                commit=self.measured if is_measured else self.trained,
                hardware=self.machine,
                date=datetime.date.today(),
                seeds=tuple(seeds),
                note=note,
                table=table,
                row=row,
                column=column,
                spread=None if spread is None else short(spread),
                interval=None if interval is None else (short(interval["low"]), short(interval["high"])),
                p=None if p is None else short(p),
            )
        )

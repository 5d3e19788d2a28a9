"""Generators of AGENT's vectors against honest floors, and the mixture of eight Gaussians.

    python benchmarks/adversary.py plan
    python benchmarks/adversary.py run --data DATA --out OUT mixture G-2-0
    python benchmarks/adversary.py keep --out OUT --to benchmarks/scores/adversary.parquet
    python benchmarks/adversary.py table --out benchmarks/scores/adversary.parquet [--rows ROWS.jsonl]

DATA is made by `nested_runs.py prepare`, and OUT holds the run A-learn-0 of `nested_learning.py`, from which all runs start.
ROWS.jsonl is benchmarks/results/adversary.jsonl. `run` carries out the commands of the plan and skips those whose results are
already there; the same command continues an interrupted run.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments import Figures, Item, carry_out, copy_curve, found_in, print_plan, score_command
from nested_runs import add_table
from raw_scores import add_keep, adding_runs, reads_runs
from rows import current_commit, replace_rows

LAYERS = (1, 2, 3, 4)
SEEDS = (0, 1, 2)
SEVERAL = 2
"""The number of layers that several seeds have: the default."""

OTHERS = {"G-random": "start=random", "G-minimax": "loss=minimax"}
"""Runs with the default number of layers that differ from the others in one setting."""

LEVELS = ("sentence", "paragraph")
"""The levels that A-learn-0 has learned."""

AGENT = "OUT/A-learn-0"
STEPS = 600

HOURS = 0.25
"""Core-hours of one run of generators and its scores."""

MIXTURE = "mixture"

TEXTS = 10
TEXT = f"ramify generate RUN --level paragraph --count {TEXTS} --seed 0 --data DATA/books --json"
"""Paragraphs of the first run with the default number of layers, by a seed: nobody chose among them."""

COLUMNS = {
    "classifier_accuracy": "accuracy of a fresh classifier",
    "coverage": "coverage",
    "energy_distance": "energy distance",
    "effective_rank": "effective rank",
    "near_copies": "nearly copies of training vectors",
    "coherence": "coherence, by probing",
    "distinct_1": "distinct words",
    "distinct_2": "distinct pairs of words",
    "self_bleu": "BLEU with each other",
}
"""The measures of a table, and its columns."""

FLOORS = {
    "gaussian": "normal distribution with the real mean and covariance",
    "noise": "noise",
    "resampled": "real vectors of training",
}


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    points = {MIXTURE: f"python benchmarks/mixture.py --seeds {','.join(map(str, SEEDS))}"}
    plan_ = [Item(MIXTURE, "", 0.05, scores=points, trained=MIXTURE)]
    scores = {split: f"ramify evaluate RUN --data DATA/books --split {split} --json" for split in ("dev", "test")}
    for layers in LAYERS:
        for seed in SEEDS if layers == SEVERAL else SEEDS[:1]:
            train = f"agent-gan --data DATA/books --init {AGENT} --levels {','.join(LEVELS)} --steps {STEPS}"
            train += f" --set task.layers={layers} --seed {seed}"
            texts = {"text": TEXT} if (layers, seed) == (SEVERAL, 0) else {}
            plan_.append(Item(f"G-{layers}-{seed}", train, HOURS, scores=scores | texts))
    for name, setting in OTHERS.items():
        train = f"agent-gan --data DATA/books --init {AGENT} --levels {','.join(LEVELS)} --steps {STEPS} --set task.{setting}"
        plan_.append(Item(name, train, HOURS, scores=scores))
    return plan_


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def run(arguments: argparse.Namespace) -> None:
    carry_out(items(), arguments.names, arguments.data, arguments.out)


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores and the last samples of finished runs to a table, without the models."""
    with adding_runs(arguments.to) as to:
        for item in items():
            source, target = arguments.out / item.name, to / item.name
            copy_curve(source, target, ("step", "loss", "energy_distance"))
            for label in item.scores:
                found: Any = found_in(source, label)
                if found is not None:
                    target.mkdir(parents=True, exist_ok=True)
                    kept = [beside_nearest(each) for each in found] if label == "text" else found
                    (target / f"{label}.json").write_text(json.dumps(kept))
            samples = sorted((source / "samples").glob("*.jsonl"))
            if samples and target.is_dir():
                shutil.copyfile(samples[-1], target / "samples.jsonl")


def beside_nearest(text: Mapping[str, Any]) -> dict[str, Any]:
    """A generated text with the share of its pairs of words that the nearest one of training has, in place of the latter."""
    if "nearest_text" not in text:
        return dict(text)
    own, nearest = (list(pairwise(text[name].split())) for name in ("text", "nearest_text"))
    shared = sum(pair in set(nearest) for pair in own) / max(1, len(own))
    return {name: value for name, value in text.items() if name != "nearest_text"} | {"shared_pairs": shared}


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Print the rows of all finished runs, or write them to a file of results."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.measured or commit, arguments.machine)
    add_mixture(figures, arguments.out)
    for level in LEVELS:
        add_level(figures, arguments.out, level)
    add_texts(figures, arguments.out)
    if arguments.rows is None:
        for row in figures.rows:
            print(f"{row.name}: {row.value} {row.unit}")
    else:
        replace_rows(arguments.rows, figures.rows)


def add_mixture(figures: Figures, out: Path) -> None:
    """The shares of generated points that are near a mode, and near the rarest one: the least of all seeds."""
    found: Any = found_in(out / MIXTURE, MIXTURE)
    item = next(item for item in items() if item.name == MIXTURE)
    for loss in dict.fromkeys(each["loss"] for each in found or ()):
        own = [each for each in found if each["loss"] == loss]
        for name, column in (("near", "points near a mode"), ("least_mode", "points of the rarest mode")):
            figures.add(
                "adversary-mixture",
                loss.replace("_", " "),
                column,
                min(each[name] for each in own),
                score_command(item, MIXTURE, Path("DATA"), Path("OUT")),
                unit="share",
                seeds=[each["seed"] for each in own],
                note="least of the seeds",
            )


def add_level(figures: Figures, out: Path, level: str, label: str = "test") -> None:
    """A generator per number of layers beside the floors, which are those of the first run that is finished."""
    scores = {item.name: found_in(out / item.name, label) for item in items()}
    known = {name: found["levels"][level] for name, found in scores.items() if found and level in found.get("levels", {})}
    commands = {item.name: score_command(item, label, Path("DATA"), Path("OUT")) for item in items() if item.name in known}
    rows: dict[str, list[str]] = {}
    for layers in LAYERS:
        title = f"generator of {layers} layers" if layers > 1 else "generator of 1 layer, a linear map"
        rows[title] = [name for seed in SEEDS if (name := f"G-{layers}-{seed}") in known]
    for name, setting in OTHERS.items():
        rows[f"generator of 2 layers, {setting}"] = [name] if name in known else []
    for title, names in rows.items():
        _add_row(figures, level, title, [known[name]["generator"] for name in names], [commands[name] for name in names])
    for source, title in FLOORS.items():
        for name in list(known)[:1]:
            _add_row(figures, level, title, [known[name][source]], [commands[name]])


def _add_row(figures: Figures, level: str, title: str, measured: list[Mapping[str, Any]], commands: list[str]) -> None:
    """The mean of the seeds of each measure that all have, with its spread."""
    for name, column in COLUMNS.items():
        values = [measures[name] for measures in measured if measures.get(name) is not None]
        if not values or len(values) < len(measured):
            continue
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        figures.add(
            f"adversary-{level}",
            title,
            column,
            float(np.mean(values)),
            commands[0],
            unit="%" if name == "self_bleu" else "dimensions" if name == "effective_rank" else "share",
            seeds=range(len(values)),
            spread=spread,
        )


def add_texts(figures: Figures, out: Path) -> None:
    """Generated paragraphs, each with its coherence and the paragraph of the training novels that is nearest to it."""
    item = next(item for item in items() if "text" in item.scores)
    command = score_command(item, "text", Path("DATA"), Path("OUT"))
    texts: Any = found_in(out / item.name, "text")
    for number, each in enumerate(map(beside_nearest, texts or ()), 1):
        note = f"{' '.join(each['text'].split())} (nearest: {each['nearest_training_id']})"
        row = f"paragraph {number}"
        for name, column in {
            "shared_pairs": "pairs of words that the nearest has",
            "coherence": "coherence, by probing",
        }.items():
            if each[name] is not None:
                figures.add("adversary-text", row, column, each[name], command, unit="share", note=note)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("plan", help="print all runs").set_defaults(call=plan)
    run_ = commands.add_parser("run", help="carry out runs")
    run_.set_defaults(call=run)
    run_.add_argument("--data", type=Path, required=True)
    run_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    run_.add_argument("names", nargs="+")
    add_keep(commands, keep)
    add_table(commands, table)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

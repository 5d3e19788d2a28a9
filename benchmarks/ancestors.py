"""Measure what the right ancestors are worth: models trained with the right and with wrong ones, on the same masks.

    python benchmarks/ancestors.py plan
    python benchmarks/ancestors.py run --out runs/ancestors --data DATA A-reddit-tree-0
    python benchmarks/ancestors.py table --out runs/ancestors

DATA holds the built stores reddit, iac, open, open-without-oasst, open-without-stackexchange, oasst, stackexchange and modes.
`run` carries out the `ramify` commands of the plan, prints them, and skips those whose results are already there; the same
command continues an interrupted run. OUT/NAME holds the trained model, and per evaluation LABEL.json and LABEL.npz (sums by
tree, depth and word class), from which `table` computes paired bootstrap intervals over trees.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ramify.inference.evaluation import Scores, describe, gain, pool
from rows import add_options, append_rows

TOKENS = 5_000_000
COMMENTS = 4_000
SEEDS = (0, 1, 2)
STORES = ("reddit", "iac")
RATE = "--mask-rate 0.15"
"""BERT's rate. Training masks more tokens, which teaches more in a short training."""

WITHOUT_VECTOR_LOSSES = "--set task.own_words=0 --set task.reply_words=0"
CONTEXTS = {
    "tree": "",
    "mismatched": "--set input.context=mismatched",
    "none": f"--set input.context=null {WITHOUT_VECTOR_LOSSES}",
    "paper": f"--set model.output_attention=false {WITHOUT_VECTOR_LOSSES}",
}
"""Settings of the models: the right ancestors, those of another tree, one learned null row, and the paper's paths alone."""

CONTROLS = ("mismatched", "sibling-branch", "parent", "root", "none")


@dataclass(frozen=True)
class Item:
    """A trained model and its evaluations, as `ramify` commands. DATA and OUT are filled in when they are carried out."""

    name: str
    train: str
    hours: float
    """Core-hours of training and scoring, estimated from the first runs."""
    scores: dict[str, str] = field(default_factory=dict)
    """Options of `ramify evaluate`, by label."""


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    dev = "--set dev.targets=1500 --set dev.mask_rate=0.15 --set train.evaluate_every=400 --set train.checkpoint_every=400"
    own = {store: {"own": f"--data DATA/{store} {RATE} --comments {COMMENTS} --draws 8"} for store in STORES}
    found = []
    for seed in SEEDS:
        for store in STORES:
            for model, settings in CONTEXTS.items():
                if seed and model in ("none", "paper"):
                    continue
                scores = dict(own[store])
                first = f"A-{store}-tree-0"
                # One tokenizer for all models, so that all have the same masks.
                same = "" if (model, seed) == ("tree", 0) else f"--tokenizer OUT/{first}"
                if not seed and model in ("tree", "paper"):
                    short = f"--data DATA/{store} {RATE} --comments {COMMENTS} --draws 2"
                    scores |= {control: f"{short} --context {control}" for control in CONTROLS} | {"cache": f"{short} --cache"}
                train = f"tree-mlm --data DATA/{store} --target-tokens {TOKENS} --seed {seed} {settings} {same} {dev}"
                found.append(Item(f"A-{store}-{model}-{seed}", train, 0.32, scores))
    text = (
        f"bert --data DATA/reddit --target-tokens {TOKENS} --max-tokens 64 --concatenate 256 --tokenizer OUT/A-reddit-tree-0 "
        "--set model.dim=128 --set model.num_heads=4 --set model.ffn_dim=512 --set model.num_layers=4 --set model.norm=pre "
        "--set task.mask_rate=0.3 --set input.max_context=8 --set train.lr=2e-3 --set train.budget=2048 "
        f"--set train.budget_unit=target_tokens {dev}"
    )
    found.append(Item("B-reddit-text-0", text, 0.75, own["reddit"]))
    for model in ("tree", "mismatched"):
        long = f"tree-mlm --data DATA/reddit --target-tokens {2 * TOKENS} --seed 0 --tokenizer OUT/A-reddit-tree-0"
        found.append(Item(f"C-reddit-{model}-0", f"{long} {CONTEXTS[model]} {dev}", 0.55, own["reddit"]))
    # The model that ships, and the same recipe without one of its sets, scored on that set and on trees that it never saw.
    for store, unseen in (
        ("open", ("modes", "reddit", "iac")),
        ("open-without-oasst", ("oasst",)),
        ("open-without-stackexchange", ("stackexchange",)),
    ):
        scores = {}
        for other in (store, *unseen):
            data = f"--data DATA/{other} {RATE} {f'--comments {COMMENTS}' if other in STORES else ''} --draws 4"
            split = "--split all" if other in ("modes", "oasst", "stackexchange") else ""
            scores |= {f"{other}-{control}": f"{data} {split} --context {control}" for control in ("mismatched", "none")}
        found.append(Item(f"D-{store}-0", f"shipped --data DATA/{store}", 0.5, scores))
    return found


def plan(arguments: argparse.Namespace) -> None:
    """Print the runs, their commands and their cost."""
    for item in items():
        print(f"{item.name}: {item.hours} core-hours\n    {_train(item, Path('DATA'), Path('OUT'))}")
        for label in item.scores:
            print(f"    {_score(item, label, Path('DATA'), Path('OUT'))}")
    print(f"{sum(item.hours for item in items()):.1f} core-hours in total")


def run(arguments: argparse.Namespace) -> None:
    known = {item.name: item for item in items()}
    for name in arguments.names:
        item = known[name]
        folder = arguments.out / name
        if not (folder / "config.json").exists():
            resume = " --resume" if (folder / "run.json").exists() else ""
            _carry_out(_train(item, arguments.data, arguments.out) + resume)
        for label in item.scores:
            if (folder / f"{label}.json").exists():
                continue
            found = _carry_out(_score(item, label, arguments.data, arguments.out))
            (folder / f"{label}.json").write_text(found)
            row = f"{name}, {label}"
            command = _score(item, label, Path("DATA"), Path("OUT"))
            append_rows(arguments, "ancestors", row, json.loads(found), (int(name[-1]),), command)


def _train(item: Item, data: Path, out: Path) -> str:
    return f"ramify train {_filled(item.train, data, out)} --out {out / item.name}"


def _score(item: Item, label: str, data: Path, out: Path) -> str:
    folder = out / item.name
    return f"ramify evaluate {folder} {_filled(item.scores[label], data, out)} --save {folder / label}.npz --json"


def _filled(words: str, data: Path, out: Path) -> str:
    return " ".join(words.replace("DATA", str(data)).replace("OUT", str(out)).split())


def _carry_out(command: str) -> str:
    print(f"$ {command}", flush=True)
    began = time.perf_counter()
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True)
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return done.stdout


def table(arguments: argparse.Namespace) -> None:
    """Print what the right ancestors save, by depth and by class, over models trained with other contexts."""
    for store in STORES:
        own = {seed: _scores(arguments.out / f"A-{store}-tree-{seed}") for seed in SEEDS}
        for model in ("mismatched", "none", "paper"):
            other = {seed: _scores(arguments.out / f"A-{store}-{model}-{seed}") for seed in SEEDS}
            seeds = [seed for seed in SEEDS if own[seed] and other[seed]]
            if not seeds:
                continue
            one, two = (pool([scores for seed in seeds if (scores := each[seed])]) for each in (own, other))
            found = describe(gain(one, two))
            print(json.dumps({"store": store, "over": model, "seeds": seeds, **found}))
            append_rows(arguments, "ancestors", f"{store}: tree over {model}", found, seeds)


def _scores(folder: Path) -> Scores | None:
    file = folder / "own.npz"
    return Scores.load(file) if file.exists() else None


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("plan").set_defaults(call=plan)
    running = commands.add_parser("run")
    running.set_defaults(call=run)
    running.add_argument("--data", type=Path, required=True, help="folder of the built stores")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("names", nargs="+")
    add_options(running)
    tables = commands.add_parser("table")
    tables.set_defaults(call=table)
    tables.add_argument("--out", type=Path, required=True)
    add_options(tables)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

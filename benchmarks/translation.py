"""Translate English captions into German: a Transformer and recurrent models of about equal parameters.

    python benchmarks/translation.py prepare --source MULTI30K --out DATA
    python benchmarks/translation.py plan
    python benchmarks/translation.py run --data DATA --out OUT transformer-0 seq2seq-0

MULTI30K holds {train,val}.{en,de}.gz. `prepare` makes dev of the 1,000 training pairs with the least hash, and test of the val
files, which are scored once. `run` carries out the commands of the plan and skips those whose results are already there; the
same command continues an interrupted run.
"""

import argparse
import gzip
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import Item, carry_out, print_plan
from ramify.files import write_text

SEEDS = (0, 1)
DEV = 1_000
"""Training pairs that choose the weights and decide when a run ends."""
SIDES = ("en", "de")

MODELS = {
    "transformer": ("transformer --set train.precision=bf16", 2_000, 0.67),
    "seq2seq": ("seq2seq", 4_000, 0.42),
    "without-attention": ("seq2seq --no-attention", 4_000, 0.42),
}
"""The recipe, its updates, and the core-hours of each model."""


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    data = (
        "--data DATA/captions --set tokenizer.vocab_size=4096 --set train.evaluate_every=200 --set train.checkpoint_every=100"
    )
    test = "ramify evaluate RUN --data DATA/captions --split test --json"
    scores = {"dev": test.replace("test", "dev"), "test": test, "greedy": f"{test} --beam 1"}
    return [
        Item(f"{name}-{seed}", f"{recipe} {data} --steps {updates} --seed {seed}", hours, scores=scores)
        for seed in SEEDS
        for name, (recipe, updates, hours) in MODELS.items()
    ]


def prepare(arguments: argparse.Namespace) -> None:
    """Write the pairs of each split as files, and build the data set."""
    pairs = {split: read(arguments.source, split) for split in ("train", "val")}
    order = sorted(range(len(pairs["train"])), key=lambda place: hash_of(pairs["train"][place]))
    dev = {*order[:DEV]}
    splits = {
        "train": [pair for place, pair in enumerate(pairs["train"]) if place not in dev],
        "dev": [pairs["train"][place] for place in sorted(dev)],
        "test": pairs["val"],
    }
    files = []
    arguments.out.mkdir(parents=True, exist_ok=True)
    for split, lines in splits.items():
        for side, name in enumerate(SIDES):
            files.append(arguments.out / f"{split}.{name}")
            write_text(files[-1], "".join(f"{pair[side]}\n" for pair in lines))
    command = ["ramify", "data", "build", *map(str, files), "--format", "parallel", "--out", str(arguments.out / "captions")]
    subprocess.run(command, check=True)


def hash_of(pair: tuple[str, str]) -> bytes:
    return hashlib.sha256("\t".join(pair).encode()).digest()


def read(source: Path, split: str) -> list[tuple[str, str]]:
    """The pairs of a split."""
    sides = [gzip.decompress((source / f"{split}.{name}.gz").read_bytes()).decode().splitlines() for name in SIDES]
    return list(zip(*sides, strict=True))


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def run(arguments: argparse.Namespace) -> None:
    carry_out(items(), arguments.names, arguments.data, arguments.out)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    prepare_ = commands.add_parser("prepare", help="write the splits and build the data set")
    prepare_.set_defaults(call=prepare)
    prepare_.add_argument("--source", type=Path, required=True)
    prepare_.add_argument("--out", type=Path, required=True)
    commands.add_parser("plan", help="print all runs").set_defaults(call=plan)
    run_ = commands.add_parser("run", help="carry out runs")
    run_.set_defaults(call=run)
    run_.add_argument("--data", type=Path, required=True)
    run_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    run_.add_argument("names", nargs="+")
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Train the models of the foundations and compare them: translation, replies, and language models of running text.

    python benchmarks/foundations.py prepare --pairs MULTI30K --sites STACKEXCHANGE --out DATA
    python benchmarks/foundations.py plan
    python benchmarks/foundations.py run --data DATA --out OUT transformer-0 seq2seq-0
    python benchmarks/foundations.py keep --out OUT --to SCORES
    python benchmarks/foundations.py table --out SCORES --rows benchmarks/results/foundations.jsonl
    python benchmarks/foundations.py picture --out SCORES --svg benchmarks/pictures/foundations.svg

SCORES is benchmarks/scores/foundations.parquet, and MULTI30K holds {train,val}.{en,de}.gz. `prepare` makes DATA/captions, whose
dev split is the 1,000 training pairs with the least hash, and whose test split is the val files, which are scored once; and
DATA/answers of the sites. Language models read DATA/text, which `running_text.py prepare` makes. `run` carries out the commands
of the plan and skips those whose results are already there; the same command continues an interrupted run. Run
transformer-mean-0 first: it leaves its best weights as transformer-0, which then need no training of their own.
"""

import argparse
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from experiments import Figures, Item, carry_out, copy_curve, found_in, print_plan, score_command, train_command
from ramify.files import write_text
from raw_scores import add_figures, add_keep, adding_runs, reads_runs
from rows import current_commit, replace_rows
from tables import in_full

SEEDS = (0, 1)
DEV = 1_000
"""Training pairs that choose the weights and decide when a run ends."""
SIDES = ("en", "de")
EPOCH = 491_562
"""Tokens of the targets of all training pairs, their ends included."""

CAPTIONS = "--data DATA/captions --set tokenizer.vocab_size=4096 --set train.checkpoint_every=100"
MODELS = {
    "transformer": (
        "transformer --set train.precision=bf16 --steps 7000 --set train.evaluate_every=700",
        "Transformer, 3 + 3 layers",
        0.5,
    ),
    "seq2seq": ("seq2seq --steps 2800 --set train.evaluate_every=200", "LSTM with attention", 0.42),
    "without-attention": ("seq2seq --attention none --steps 2800 --set train.evaluate_every=200", "LSTM without", 0.42),
}
"""The recipe, the title and the core-hours of each translator. An update of the Transformer reads 1,024 tokens, and one of
an LSTM twice as many."""
MEAN, BEST = "transformer-mean-0", "transformer-0"
"""One training of seed 0, with the mean of its last five checkpoints and with its best weights on dev."""
ANSWERS = "answers"

TEXT = "--data DATA/text --tokenizer DATA/tokenizer.json"
LANGUAGE_MODELS = {
    "elmo": (f"elmo --input words {TEXT} --target-tokens 4000000", "ELMo, both directions"),
    "forward": (f"elmo --input words --directions forward {TEXT} --target-tokens 2000000", "ELMo, forward alone"),
    "gpt": (f"gpt {TEXT} --set train.budget=2048 --steps 1000", "Transformer decoder, 4 layers"),
}
"""The recipe and the title of each language model. All read 2 M tokens of text; ELMo reads them in both directions."""


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    test = "ramify evaluate RUN --data DATA/captions --split test --json"
    scores = {"dev": test.replace("test", "dev"), "test": test, "greedy": f"{test} --beam 1"}
    translators = [
        Item(f"{name}-{seed}", f"{recipe} {CAPTIONS} --seed {seed}", hours, scores=scores)
        for seed in SEEDS
        for name, (recipe, _, hours) in MODELS.items()
    ]
    average = f"{MODELS['transformer'][0]} {CAPTIONS} --seed 0 --set train.average=5"
    answers = "ramify evaluate RUN --data DATA/answers --split test --json"
    reply = "transformer --data DATA/answers --set train.precision=bf16 --set input.long=truncate --steps 1000"
    held_out = "ramify evaluate RUN --data DATA/text --split test --json"
    language_models = [
        Item(name, f"{recipe} --seed 0", 0.25, scores={"dev": held_out.replace("test", "dev"), "test": held_out})
        for name, (recipe, _) in LANGUAGE_MODELS.items()
    ]
    return [
        Item(MEAN, average, 0.5, scores=scores),
        *translators,
        *language_models,
        Item(ANSWERS, reply, 0.25, scores={"dev": answers.replace("test", "dev"), "test": answers}),
    ]


# --- data ------------------------------------------------------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> None:
    """Write the pairs of each split as files, and build the data sets."""
    pairs = {split: read(arguments.pairs, split) for split in ("train", "val")}
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
    _build(files, "parallel", arguments.out / "captions")
    _build(sorted(arguments.sites.iterdir()), "stackexchange", arguments.out / "answers")


def _build(files: Sequence[Path], format: str, out: Path) -> None:
    if not out.exists():
        subprocess.run(["ramify", "data", "build", *map(str, files), "--format", format, "--out", str(out)], check=True)


def hash_of(pair: tuple[str, str]) -> bytes:
    return hashlib.sha256("\t".join(pair).encode()).digest()


def read(source: Path, split: str) -> list[tuple[str, str]]:
    """The pairs of a split."""
    sides = [gzip.decompress((source / f"{split}.{name}.gz").read_bytes()).decode().splitlines() for name in SIDES]
    return list(zip(*sides, strict=True))


# --- runs ------------------------------------------------------------------------------------------------------------------


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def run(arguments: argparse.Namespace) -> None:
    for name in arguments.names:
        carry_out(items(), [name], arguments.data, arguments.out)
        if name == MEAN:
            best_weights(arguments.out / MEAN, arguments.out / BEST)


def best_weights(source: Path, out: Path) -> None:
    """The run that `source` would have been without a mean of checkpoints: all else is equal."""
    if out.exists():
        return
    out.mkdir()
    for file in ("run.json", "tokenizer.json", "metrics.jsonl"):
        shutil.copyfile(source / file, out / file)
    shutil.copyfile(source / "best.safetensors", out / "model.safetensors")
    # Last: it is the mark of a finished run.
    shutil.copyfile(source / "config.json", out / "config.json")


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores and the dev losses of finished runs to a table, without the models."""
    with adding_runs(arguments.to) as to:
        for item in items():
            source = arguments.out / item.name
            scores = [source / f"{label}.json" for label in item.scores]
            if not all(file.exists() for file in scores):
                continue
            copy_curve(source, to / item.name, ("step", "seconds", "target_tokens", "loss", "dev_loss"))
            for file in scores:
                shutil.copyfile(file, to / item.name / file.name)


# --- results ---------------------------------------------------------------------------------------------------------------

DATA, OUT = Path("DATA"), Path("OUT")


def curve(out: Path, name: str) -> list[dict[str, Any]]:
    """The records with a dev loss, without that of a mean of checkpoints."""
    file = out / name / "metrics.jsonl"
    records = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return [record for record in records if "seconds" in record]


def late_gain(records: Sequence[dict[str, Any]]) -> float:
    """The fall of the best dev loss within the last fifth of the updates."""
    early = [record["dev_loss"] for record in records if record["step"] <= 0.8 * records[-1]["step"]]
    return min(early) - min(record["dev_loss"] for record in records)


def _add_translators(figures: Figures, out: Path) -> None:
    known = {item.name: item for item in items()}
    for model, (_, title, _) in MODELS.items():
        seeds = [seed for seed in SEEDS if found_in(out / f"{model}-{seed}", "test")]
        if not seeds:
            continue
        names = [f"{model}-{seed}" for seed in seeds]

        def add(
            column: str, values: Sequence[float], command: str, title: str = title, seeds: list[int] = seeds, **options: Any
        ) -> None:
            spread = stdev(values) if len(values) > 1 else None
            figures.add("translation", title, column, mean(values), command, seeds=seeds, spread=spread, **options)

        found = {label: [_found(out, name, label) for name in names] for label in ("dev", "test", "greedy")}
        commands = {label: score_command(known[names[0]], label, DATA, OUT) for label in found}
        add("BLEU", [scores["bleu"] for scores in found["test"]], commands["test"], unit="", digits=1)
        add("BLEU, beam of 1", [scores["bleu"] for scores in found["greedy"]], commands["greedy"], unit="", digits=1)
        add("BLEU on dev", [scores["bleu"] for scores in found["dev"]], commands["dev"], unit="", digits=1)
        add("perplexity", [scores["perplexity"] for scores in found["test"]], commands["test"], unit="", digits=2)
        halves = [(high - low) / 2 for low, high in (scores["bleu_interval"] for scores in found["test"])]
        add("half of BLEU's interval", halves, commands["test"], unit="", digits=1)
        curves = [curve(out, name) for name in names]
        train = train_command(known[names[0]], DATA, OUT, "")
        best = [min(records, key=lambda record: record["dev_loss"]) for records in curves]
        add("best update", [float(record["step"]) for record in best], train, unit="", digits=0)
        add("minutes of training", [records[-1]["seconds"] / 60 for records in curves], train, unit="min", digits=1)
        add("dev loss gained in the last fifth", [late_gain(records) for records in curves], train, digits=3)
        floor = found["test"][0]["floor_copy"]
        if model == "transformer":
            figures.add("translation", "copied source", "BLEU", floor, commands["test"], unit="", digits=1, seeds=())


def _add_mean(figures: Figures, out: Path) -> None:
    known = {item.name: item for item in items()}
    for name, title in (("transformer-0", "best weights on dev"), (MEAN, "mean of the last five checkpoints")):
        for label, column in (("test", "BLEU"), ("greedy", "BLEU, beam of 1"), ("dev", "BLEU on dev")):
            if scores := found_in(out / name, label):
                command = score_command(known[name], label, DATA, OUT)
                figures.add("averaged", title, column, scores["bleu"], command, unit="", digits=1)


def _add_language_models(figures: Figures, out: Path) -> None:
    known = {item.name: item for item in items()}
    for name, (_, title) in LANGUAGE_MODELS.items():
        if (scores := found_in(out / name, "test")) and (dev := found_in(out / name, "dev")):
            command, train = score_command(known[name], "test", DATA, OUT), train_command(known[name], DATA, OUT, "")
            figures.add("language-models", title, "nats per byte, tokens before alone", scores["per_byte"], command)
            figures.add("language-models", title, "perplexity per token", scores["perplexity"], command, unit="", digits=1)
            figures.add("language-models", title, "the same on dev", dev["perplexity"], command, unit="", digits=1)
            seconds = curve(out, name)[-1]["seconds"]
            figures.add("language-models", title, "minutes of training", seconds / 60, train, unit="min", digits=1)


def _add_answers(figures: Figures, out: Path) -> None:
    if scores := found_in(out / ANSWERS, "test"):
        command = score_command(next(item for item in items() if item.name == ANSWERS), "test", DATA, OUT)
        for column, key, digits in (
            ("loss", "loss", 3),
            ("perplexity", "perplexity", 1),
            ("BLEU", "bleu", 2),
            ("BLEU of the copied text", "floor_copy", 2),
            ("pairs", "count", 0),
        ):
            unit = "nats" if key == "loss" else ""
            figures.add("answers", "test", column, scores[key], command, unit=unit, digits=digits)


def _found(out: Path, name: str, label: str) -> dict[str, Any]:
    scores = found_in(out / name, label)
    assert scores is not None
    return scores


ADDED: tuple[Callable[[Figures, Path], None], ...] = (_add_translators, _add_mean, _add_language_models, _add_answers)


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    figures = Figures(arguments.commit or current_commit()[0], "", arguments.machine)
    for add in ADDED:
        add(figures, arguments.out)
    for row in figures.rows:
        print(f"{row.table:<22} {row.row:<40} {row.column:<34} {in_full(row)}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot dev losses of the translators over minutes and over epochs."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "ramify"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
    for number, (model, (_, title, _)) in enumerate(MODELS.items()):
        label = title
        for seed in SEEDS:
            if records := curve(arguments.out, f"{model}-{seed}"):
                losses = [record["dev_loss"] for record in records]
                for axes, x, unit in ((left, "seconds", 60), (right, "target_tokens", EPOCH)):
                    at = [record[x] / unit for record in records]
                    axes.plot(at, losses, "o-", markersize=3, color=f"C{number}", label=label)
                label = "_"
    left.set(xlabel="minutes of training", ylabel="dev loss, nats per token")
    right.set(xlabel="epochs")
    right.legend(fontsize=8)
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    prepare_ = commands.add_parser("prepare", help="write the splits and build the data sets")
    prepare_.set_defaults(call=prepare)
    prepare_.add_argument("--pairs", type=Path, required=True)
    prepare_.add_argument("--sites", type=Path, required=True)
    prepare_.add_argument("--out", type=Path, required=True)
    commands.add_parser("plan", help="print all runs").set_defaults(call=plan)
    run_ = commands.add_parser("run", help="carry out runs")
    run_.set_defaults(call=run)
    run_.add_argument("--data", type=Path, required=True)
    run_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    run_.add_argument("names", nargs="+")
    add_keep(commands, keep)
    add_figures(commands, table, picture, rows="foundations.jsonl", machine="C")
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

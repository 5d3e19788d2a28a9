"""Measure what the right ancestors are worth: models trained with the right and with wrong ones, on the same masks.

    python benchmarks/ancestors.py plan
    python benchmarks/ancestors.py run --out runs/ancestors --data DATA A-reddit-tree-0
    python benchmarks/ancestors.py keep --out runs/ancestors --to benchmarks/scores/ancestors.parquet
    python benchmarks/ancestors.py table --out benchmarks/scores/ancestors.parquet --rows benchmarks/results/ancestors.jsonl
    python benchmarks/ancestors.py picture --out benchmarks/scores/ancestors.parquet --svg benchmarks/pictures/ancestors.svg

DATA holds the built stores reddit, iac, open, open-without-oasst, open-without-stackexchange, oasst, stackexchange and modes,
and minilm, a copy of all-MiniLM-L6-v2. The card of the shipped checkpoint has the commands for open; the stores without a set
leave it out of the export. modes leaves out the four submissions that cmv-adhominem has, too:

    ramify data build cmv-modes/v1.0 cmv-modes/v2.0 --format cmv-modes --out DATA/modes-all
    ramify data export DATA/modes-all --out DATA/modes-all.jsonl
    grep -vE '^."id": "(2qaf6l|2qc1rl|2qe6up|2rmwcd)"' DATA/modes-all.jsonl > DATA/modes.jsonl
    ramify data build DATA/modes.jsonl --format jsonl --out DATA/modes

`run` carries out the `ramify` commands of the plan, prints them, and skips those whose results are already there; the same
command continues an interrupted run. OUT/NAME holds the trained model, and per evaluation LABEL.json and LABEL.npz (sums by
tree, depth and word class), from which `table` computes paired bootstrap intervals over trees. `keep` adds what `table`
and `picture` read to a table.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from experiments import Figures, Item, carry_out, copy_curve, found_in, print_plan, score_command
from ramify.inference.evaluation import Scores, describe, gain, pool
from ramify.metrics import DEPTH_BINS
from ramify.training.metrics_log import read_metrics
from raw_scores import add_figures, add_keep, adding_runs, reads_runs
from rows import current_commit, replace_rows
from tables import in_full

TOKENS = 5_000_000
SAME_TIME_TOKENS = 1_500_000
"""Tokens that the text model sees while tree-mlm sees TOKENS, by `cost.py --regimes additions,text`."""
COMMENTS = 4_000
SEEDS = (0, 1, 2)
STORES = ("reddit", "iac")
SETS = {"reddit": "reddit-college", "iac": "iac-4forums"}
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
                found.append(Item(f"A-{store}-{model}-{seed}", train, 0.3, scores=_evaluations(scores)))
    text = (
        "bert --rows comments --data DATA/reddit --max-tokens 64 --concatenate 256 --tokenizer OUT/A-reddit-tree-0 "
        "--set model.dim=128 --set model.num_heads=4 --set model.ffn_dim=512 --set model.num_layers=4 --set model.norm=pre "
        "--set task.mask_rate=0.3 --set input.max_context=8 --set train.lr=2e-3 --set train.budget=2048 "
        f"--set train.budget_unit=target_tokens {dev}"
    )
    found.append(Item("B-reddit-text-0", f"{text} --target-tokens {TOKENS}", 0.5, scores=_evaluations(own["reddit"])))
    # The text model with the embeddings of tree-mlm, in the time that tree-mlm takes for TOKENS.
    like_tree = "--set model.position=sinusoidal --set model.scale_embedding=true --set model.embedding_norm=false"
    equal_time = f"{text} {like_tree} --set model.activation=relu --target-tokens {SAME_TIME_TOKENS}"
    found.append(Item("B-reddit-scaled-text-0", equal_time, 0.2, scores=_evaluations(own["reddit"])))
    # The encoder's states do not lie in the space of the embedding: can the bag-of-words loss teach the map between them?
    minilm = (
        f"tree-mlm --data DATA/reddit --init DATA/minilm --target-tokens {TOKENS // 20} --max-tokens 64 "
        f"--set model.decoder_layers=2 {dev}"
    )
    scores = {"mismatched": f"--data DATA/reddit {RATE} --comments {COMMENTS // 4} --draws 2 --context mismatched"}
    found.append(Item("M-reddit-minilm-0", minilm, 0.15, scores=_evaluations(scores)))
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
            scores[other] = f"{data} {split} --context mismatched"
        tokens = 4_000_000 if store == "open" else 2_000_000
        found.append(
            Item(
                f"D-{store}-0",
                f"shipped --data DATA/{store} --target-tokens {tokens}",
                tokens / 8e6,
                scores=_evaluations(scores),
            )
        )
    for model in ("tree", "mismatched"):
        long = f"tree-mlm --data DATA/reddit --target-tokens {2 * TOKENS} --seed 0 --tokenizer OUT/A-reddit-tree-0"
        found.append(Item(f"C-reddit-{model}-0", f"{long} {CONTEXTS[model]} {dev}", 0.45, scores=_evaluations(own["reddit"])))
    return found


def _evaluations(options: Mapping[str, str]) -> dict[str, str]:
    """Commands of evaluations, from their options by label."""
    return {label: f"ramify evaluate RUN {each} --save RUN/{label}.npz --json" for label, each in options.items()}


def plan(arguments: argparse.Namespace) -> None:
    """Print the runs, their commands and their cost."""
    print_plan(items())


def run(arguments: argparse.Namespace) -> None:
    carry_out(items(), arguments.names, arguments.data, arguments.out)


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores and the dev losses of finished runs, a few kilobytes each, to a table, without the models."""
    with adding_runs(arguments.to) as to:
        for item in items():
            source, target = arguments.out / item.name, to / item.name
            done = [label for label in item.scores if (source / f"{label}.json").exists()]
            if not done:
                continue
            target.mkdir(parents=True, exist_ok=True)
            for label in done:
                shutil.copyfile(source / f"{label}.json", target / f"{label}.json")
            if "own" in done:
                shutil.copyfile(source / "own.npz", target / "own.npz")
            copy_curve(source, target, ("step", "seconds", "target_tokens", "loss", "dev_loss"))


def add_gains(
    figures: Figures, table: str, row: str, gains: Mapping[str, Mapping[str, float]], command: str, **more: Any
) -> None:
    """Add the gain in total, by depth and by word class."""
    for name, each in gains.items():
        column = "saved" if name == "all" else f"depth {name.replace('-', '–')}" if name[0].isdigit() else name
        figures.add(table, row, column, each["value"], command, interval=each, **more)


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.commit or commit, arguments.machine)
    for store in STORES:
        _add_headline(figures, arguments.out, store)
        _add_controls(figures, arguments.out, store)
    _add_text(figures, arguments.out)
    _add_long(figures, arguments.out)
    _add_minilm(figures, arguments.out)
    _add_unseen(figures, arguments.out)
    for row in figures.rows:
        print(f"{row.table:<22} {row.row:<50} {row.column:<16} {in_full(row)}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


def _add_headline(figures: Figures, out: Path, store: str) -> None:
    """Trained and tested with the right ancestors, against trained and tested with other contexts."""
    command = "python benchmarks/ancestors.py table --out OUT"
    for model in CONTEXTS:
        for seed in SEEDS:
            if scores := _scores(out / f"A-{store}-{model}-{seed}"):
                loss = scores.summary()["loss"]
                figures.add("ancestors-losses", f"{SETS[store]}, seed {seed}", f"({model})", loss, command, seeds=[seed])
    for model in ("mismatched", "none", "paper"):
        both = {}
        for seed in SEEDS:
            own, other = (_scores(out / f"A-{store}-{each}-{seed}") for each in ("tree", model))
            if own and other:
                both[seed] = own, other
                row = f"{SETS[store]}, over ({model}), seed {seed}"
                add_gains(figures, "ancestors-saved", row, describe(gain(own, other)), command, seeds=[seed])
        if len(both) > 1:
            pooled = describe(gain(*(pool(each) for each in zip(*both.values(), strict=True))))
            row = f"{SETS[store]}, over ({model}), {len(both)} seeds"
            add_gains(figures, "ancestors-saved", row, pooled, command, seeds=list(both))
            each = [gain(*pair)["all"].value for pair in both.values()]
            figures.add(
                "ancestors-spread", SETS[store], f"over ({model})", mean(each), command, seeds=list(both), spread=stdev(each)
            )


def _add_controls(figures: Figures, out: Path, store: str) -> None:
    """One model, evaluated with other contexts, and with a cache of the ancestors' words."""
    for model in ("tree", "paper"):
        name = f"A-{store}-{model}-0"
        item = next(item for item in items() if item.name == name)
        for label in (*CONTROLS, "cache"):
            found, command = found_in(out / name, label), score_command(item, label, Path("DATA"), Path("OUT"))
            if found is None:
                continue
            if label == "cache":
                saved = found["cache"]["saved"]
                add_gains(figures, "ancestors-cache", f"{SETS[store]}, ({model})", saved, command)
                figures.add(
                    "ancestors-cache", f"{SETS[store]}, ({model})", "weight", found["cache"]["weight"], command, unit=""
                )
            else:
                add_gains(figures, "ancestors-controls", f"{SETS[store]}, ({model}) over {label}", found["saved"], command)


def _add_text(figures: Figures, out: Path) -> None:
    """The gain of (tree) over models that read the ancestors as text."""
    own, command = _scores(out / "A-reddit-tree-0"), "python benchmarks/ancestors.py table --out OUT"
    texts = {"equal tokens": "B-reddit-text-0", "equal time, embeddings of (tree)": "B-reddit-scaled-text-0"}
    for row, name in texts.items():
        text = _scores(out / name)
        if own and text:
            figures.add("ancestors-text", row, "loss of (text)", text.summary()["loss"], command)
            figures.add("ancestors-text", row, "loss of (tree)", own.summary()["loss"], command)
            add_gains(figures, "ancestors-text", row, describe(gain(own, text)), command)


def _add_long(figures: Figures, out: Path) -> None:
    """The right ancestors over mismatched ones, for models that see twice as many tokens."""
    command = "python benchmarks/ancestors.py table --out OUT"
    for prefix, tokens in (("A", TOKENS), ("C", 2 * TOKENS)):
        own, other = (_scores(out / f"{prefix}-reddit-{model}-0") for model in ("tree", "mismatched"))
        if own and other:
            row = f"{tokens // 10**6} M tokens"
            for model, scores in (("tree", own), ("mismatched", other)):
                figures.add("ancestors-long", row, f"loss of ({model})", scores.summary()["loss"], command)
            add_gains(figures, "ancestors-long", row, describe(gain(own, other)), command)


def _add_minilm(figures: Figures, out: Path) -> None:
    for item in items():
        if item.name.startswith("M-") and (found := found_in(out / item.name, "mismatched")):
            add_gains(
                figures,
                "ancestors-minilm",
                "MiniLM's ancestors over mismatched ones",
                found["saved"],
                score_command(item, "mismatched", Path("DATA"), Path("OUT")),
            )


def _add_unseen(figures: Figures, out: Path) -> None:
    """The shipped model, and its recipe without a set, on trees that they never saw."""
    for item in items():
        if item.name.startswith("D-"):
            for label in item.scores:
                if found := found_in(out / item.name, label):
                    row = f"trained on {item.name.removeprefix('D-').removesuffix('-0')}, tested on {label}"
                    command = score_command(item, label, Path("DATA"), Path("OUT"))
                    figures.add("ancestors-unseen", row, "loss, own ancestors", found["own"]["loss"], command)
                    add_gains(figures, "ancestors-unseen", row, found["saved"], command)


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot what the right ancestors save: on dev against tokens seen, and on held-out trees by depth and by word class."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 4), layout="constrained", width_ratios=(5, 4, 3))
    for number, store in enumerate(STORES):
        for prefix, line in (("A", "o-"), ("C", "s--")):
            label = SETS[store] if prefix == "A" else f"{SETS[store]}, trained twice as long"
            for seed in SEEDS:
                curves = [_dev(arguments.out / f"{prefix}-{store}-{model}-{seed}") for model in ("tree", "mismatched")]
                shared = sorted(curves[0].keys() & curves[1].keys())
                if shared:
                    saved = [curves[1][at] - curves[0][at] for at in shared]
                    left.plot([at / 1e6 for at in shared], saved, line, markersize=3, color=f"C{number}", label=label)
                    label = "_"
        pairs = []
        for seed in SEEDS:
            own, other = (_scores(arguments.out / f"A-{store}-{model}-{seed}") for model in ("tree", "mismatched"))
            if own and other:
                pairs.append((own, other))
        if not pairs:
            continue
        own, other = (pool(each) for each in zip(*pairs, strict=True))
        gains, trees = gain(own, other), (own.count.sum(2) > 0).sum(0)
        depths = [depth for depth, count in zip(DEPTH_BINS, trees, strict=True) if count > 4]
        for axes, names in ((middle, depths), (right, own.classes)):
            values = np.array([[gains[name].value, gains[name].low, gains[name].high] for name in names]).T
            place = np.arange(len(names)) + (number - 0.5) * 0.2
            bars = [values[0] - values[1], values[2] - values[0]]
            axes.errorbar(place, values[0], bars, fmt="o", markersize=4, color=f"C{number}", label=SETS[store])
            axes.set_xticks(range(len(names)), names, rotation=0 if axes is middle else 12)
    left.set(xlabel="tokens of predicted comments seen, millions", ylabel="nats per masked token saved")
    left.set_title("on dev, during training", fontsize=10)
    middle.set_title("on held-out trees, by depth of the comment", fontsize=10)
    right.set_title("by word class", fontsize=10)
    for axes in (left, middle, right):
        axes.axhline(0, color="grey", linewidth=0.8)
    left.legend(fontsize=8)
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


def _dev(folder: Path) -> dict[int, float]:
    """Dev loss by tokens seen."""
    return {record["target_tokens"]: record["dev_loss"] for record in read_metrics(folder) if "dev_loss" in record}


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
    add_keep(commands, keep)
    add_figures(commands, table, picture, rows="ancestors.jsonl", machine="B")
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Measure the gain from context: five models on one data set, with the same comments per step and the same evaluation masks.

    python benchmarks/context_gain.py plan
    python benchmarks/context_gain.py run --data STORE --init MINILM --model tree --seed 0 --out runs/gain/reddit
    python benchmarks/context_gain.py keep --out runs/gain/reddit --to benchmarks/scores/reddit-college.parquet
    python benchmarks/context_gain.py table --out benchmarks/scores/reddit-college.parquet
    python benchmarks/context_gain.py picture --out benchmarks/scores/reddit-college.parquet --svg gain.svg

An ablation is a run such as `--model tree --name cls --set model.pooling=cls`. Without `--init`, a run trains from scratch.

The same command resumes an interrupted run. OUT/MODEL-SEED/ holds the trained model, its metrics, and scores-CONTEXT.npz (sums
by tree, depth and word class), from which `table` computes paired bootstrap intervals over trees. `keep` adds the scores and
metrics of runs to a table, so that the two runs of a comparison may come from different machines; `table` and `picture` read
the table, or the folder of the runs.

All models train with 40 % of the tokens masked, which teaches more in a short training, and are scored with 15 %.

Models: tree (ancestors), none (one learned null row), mismatched (trained with the ancestors of another tree's comment of
equal depth), parent (the parent only), text (a BERT on the concatenated ancestors, rows of 256 tokens).
"""

import argparse
import json
import time
from pathlib import Path
from typing import get_args

from ramify.memory import keep_pages

keep_pages()  # before torch is imported

import numpy as np

import ramify
from ramify.dataset.store import Store
from ramify.inference.evaluation import Scores, describe, evaluate, gain, pool
from ramify.inference.held_out import ancestor_words, discussions
from ramify.metrics import DEPTH_BINS
from ramify.nn.precision import Precision, autocast
from ramify.recipes import RECIPES
from ramify.runs import Run, execute
from ramify.tasks.masked_lm import MaskedLMConfig
from ramify.training.metrics_log import read_metrics
from raw_scores import add_keep, add_runs, reads_runs
from rows import add_options, append_rows

MODELS = ("tree", "none", "mismatched", "parent", "text")
CONTEXT_OF = {"tree": "tree", "none": "null", "mismatched": "mismatched", "parent": "parent", "text": "tree"}
CONTROLS = {"tree": ("tree", "none", "mismatched", "parent")}
"""Evaluation contexts by model. Other models are evaluated with their training context."""

COLOURS: dict[str | tuple[str, str], str] = {"none": "C0", "mismatched": "C1", "parent": "C2", "text": "C3"}
COLOURS |= {("tree", context): f"C{number}" for number, context in enumerate(("none", "mismatched", "parent"), 4)}
"""Colours of the models and of the evaluation contexts of `tree`."""

SETTINGS = {
    "train.budget": "1024",
    "train.budget_unit": "target_tokens",
    "train.lr": "3e-4",
    "train.evaluate_every": "200",
    "train.checkpoint_every": "100",
    "task.mask_rate": "0.4",
}
TREE_SETTINGS = {
    "model.cross_init": "zero",
    "model.context_position": "distance",
}


def make_run(model: str, data: str, init: str, seed: int, target_tokens: int, changes: dict[str, str]) -> Run:
    if model == "text":
        run = RECIPES["bert"](data, init=init, target_tokens=target_tokens, seed=seed, rows="comments", concatenate=256)
        return run.changed(SETTINGS | changes)
    run = RECIPES["tree-mlm"](data, size="base", paper=True, init=init, target_tokens=target_tokens, seed=seed)
    return run.changed(SETTINGS | TREE_SETTINGS | {"input.context": CONTEXT_OF[model]} | changes)


def train_and_score(arguments: argparse.Namespace) -> None:
    name = f"{arguments.model}.{arguments.name}" if arguments.name else arguments.model
    out = arguments.out / f"{name}-{arguments.seed}"
    changes = {"train.precision": arguments.precision} | dict(each.split("=", 1) for each in arguments.set)
    run = make_run(arguments.model, str(arguments.data), arguments.init, arguments.seed, arguments.target_tokens, changes)
    if not (out / "config.json").exists():
        execute(run, out, resume=(out / "run.json").exists(), report=_say)
    if not (out / "config.json").exists() or arguments.draws == 0:
        return
    task = ramify.load(out).task
    store = Store.open(arguments.data)
    forest = task.input.forest(store, task.tokenizer)
    trees = store.split(arguments.split)[: arguments.trees]
    words = ancestor_words(task, forest)
    for context in arguments.contexts or CONTROLS.get(arguments.model, (arguments.model,)):
        file = out / f"scores-{context}.npz"
        if file.exists():
            continue
        began = time.perf_counter()
        view, collator = discussions(
            task, forest, trees, context=CONTEXT_OF[arguments.model] if context == arguments.model else context
        )
        with autocast(task.device, arguments.precision):
            scores = evaluate(
                task, view, collator, trees, draws=arguments.draws, mask_rate=MaskedLMConfig().mask_rate, words=words
            )
        scores.save(file)
        summary = scores.summary() | {"model": arguments.model, "context": context, "seed": arguments.seed}
        summary["precision"] = arguments.precision
        print(json.dumps(summary | {"seconds": round(time.perf_counter() - began)}), flush=True)
        append_rows(arguments, "gain", f"{name}, evaluated with {context}", scores.summary(), seeds=(arguments.seed,))


def _say(record: dict) -> None:
    if record["step"] % 10 == 0 or "dev_loss" in record:
        shown = {key: record[key] for key in ("step", "loss", "dev_loss", "target_tokens", "seconds") if key in record}
        print(json.dumps(shown), flush=True)


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores and the metrics of scored runs to a table."""
    add_runs(arguments.out, arguments.to, scores=("scores-*.npz",), more=("metrics.jsonl",))


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Print the loss of each model, and the gain of `tree` over it pooled over seeds."""
    found = _found(arguments.out)
    reference = found.get(("tree", "tree"), {})
    for (model, context), by_seed in found.items():
        losses = [scores.summary()["loss"] for scores in by_seed.values()]
        spread = np.std(losses, ddof=1) if len(losses) > 1 else float("nan")
        print(f"{model} evaluated with {context}: {np.mean(losses):.4f} (sd {spread:.4f}, {len(losses)} seeds)")
        shared = sorted(by_seed.keys() & reference.keys())
        if shared and (model, context) != ("tree", "tree"):
            pooled = gain(pool([reference[seed] for seed in shared]), pool([by_seed[seed] for seed in shared]))
            print("  gain of tree: " + json.dumps(describe(pooled)))


def _found(out: Path) -> dict[tuple[str, str], dict[int, Scores]]:
    """Return scores by (model, evaluation context) and seed."""
    found: dict[tuple[str, str], dict[int, Scores]] = {}
    for file in sorted(out.glob("*-*/scores-*.npz")):
        model, seed = file.parent.name.rsplit("-", 1)
        found.setdefault((model, file.stem.removeprefix("scores-")), {})[int(seed)] = Scores.load(file)
    return found


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot the gain of `tree` over the others: on dev during training, one line per seed; on held-out trees by depth."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 5), layout="constrained")
    by_run = {run.parent.name: read_metrics(run.parent) for run in sorted(arguments.out.glob("*-*/metrics.jsonl"))}
    curves = {name: {m["target_tokens"]: m for m in metrics if "dev_loss" in m} for name, metrics in by_run.items()}
    seeds = sorted(int(name.removeprefix("tree-")) for name in curves if name.startswith("tree-"))
    for other in ("none", "mismatched", "parent", "text", "itself, without context"):
        label = f"over {other}"
        for seed in seeds:
            own = curves[f"tree-{seed}"]
            against = {at: m["dev_loss"] for at, m in curves.get(f"{other}-{seed}", {}).items()}
            if other.startswith("itself"):
                against = {at: m["dev_loss_none"] for at, m in own.items()}
            shared = sorted(own.keys() & against.keys())
            if shared:
                gains = [against[at] - own[at]["dev_loss"] for at in shared]
                left.plot(
                    [at / 1e6 for at in shared],
                    gains,
                    "o-",
                    markersize=3,
                    color=COLOURS.get(other, COLOURS["tree", "none"]),
                    label=label,
                )
                label = "_"
    left.set(xlabel="tokens of predicted comments seen, millions", ylabel="dev, 40 % masked: nats per masked token saved")
    found = _found(arguments.out)
    reference = found.get(("tree", "tree"), {})
    others = [key for key in found if key != ("tree", "tree") and "." not in key[0]]
    for number, (model, context) in enumerate(others):
        shared = sorted(found[model, context].keys() & reference.keys())
        if not shared:
            continue
        colour = COLOURS[model, context] if model == "tree" else COLOURS[model]
        by_seed = [gain(reference[seed], found[model, context][seed]) for seed in shared]
        gains = gain(pool([reference[seed] for seed in shared]), pool([found[model, context][seed] for seed in shared]))
        # A bin with a single tree has no interval.
        trees = (reference[shared[0]].count.sum(2) > 0).sum(0)
        depths = [depth for depth, count in zip(DEPTH_BINS, trees) if count > 1]
        values = np.array([[gains[d].value, gains[d].low, gains[d].high] for d in depths]).T
        place = np.arange(len(depths)) + (number - (len(others) - 1) / 2) * 0.1
        shown = f"tree, evaluated with {context}" if model == "tree" else model
        bars = [values[0] - values[1], values[2] - values[0]]
        label = f"over {shown}, seed {', '.join(map(str, shared))}"
        right.errorbar(place, values[0], bars, fmt="o", markersize=4, color=colour, label=label)
        for each in by_seed:
            right.plot(place, [each[depth].value for depth in depths], "_", color=colour, markersize=10)
        right.set_xticks(range(len(depths)), depths)
    right.set(xlabel="depth of the comment", ylabel="held out: nats per masked token saved")
    right.set_title("bars: 95 % over trees; dashes: single seeds", fontsize=9)
    for axes in (left, right):
        axes.axhline(0, color="grey", linewidth=0.8)
        # Below the axes: anywhere inside, the legend would hide a seed.
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


def plan(arguments: argparse.Namespace) -> None:
    """Print the runs and their cost on two cores of machine A of results.md, measured on the first runs."""
    for data, models in (("reddit-college", ("tree", "none", "mismatched")), ("iac-4forums", MODELS)):
        for seed in range(3):
            print(f"{data}: " + ", ".join(f"{model}-{seed}" for model in models))
    print("24 runs of 2 M target tokens, 42 scorings. Two in parallel in bf16: 22 minutes per run, 12 per scoring;")
    print("about 9 hours in total.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("plan").set_defaults(call=plan)
    running = commands.add_parser("run")
    running.set_defaults(call=train_and_score)
    running.add_argument("--data", type=Path, required=True)
    running.add_argument("--init", default="", help="BERT-family checkpoint to start from (default: train from scratch)")
    running.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the run")
    running.add_argument("--name", default="", help="name of the ablation")
    running.add_argument("--model", choices=MODELS, required=True)
    running.add_argument("--precision", choices=get_args(Precision), default="fp32", help="precision of training and scoring")
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--target-tokens", type=int, default=2_000_000)
    running.add_argument(
        "--draws", type=int, default=8, help="masks per comment in scoring; 0 trains only, for pilots on the dev loss"
    )
    running.add_argument("--split", default="test", help="split to score; dev for choosing settings")
    running.add_argument("--trees", type=int, help="score only the first N trees")
    running.add_argument("--contexts", nargs="*", help="evaluation contexts of the model (default for tree: all its controls)")
    running.add_argument("--out", type=Path, required=True)
    add_options(running)
    add_keep(commands, keep)
    pictures = commands.add_parser("picture")
    pictures.set_defaults(call=picture)
    pictures.add_argument("--out", type=Path, required=True)
    pictures.add_argument("--svg", type=Path, required=True)
    tables = commands.add_parser("table")
    tables.set_defaults(call=table)
    tables.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()

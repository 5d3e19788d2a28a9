"""Parents of comments, after Zhu et al. (2020): the Masked Hierarchical Transformer, its masks, and baselines that do not read.

    python benchmarks/replies.py plan
    python benchmarks/replies.py run --data STORE --init BERT --model mht --seed 0 --out runs/replies/small
    python benchmarks/replies.py run --data STORE --model first --out runs/replies/small
    python benchmarks/replies.py run --data STORE --model decatt --steps 3000 --out runs/replies/small
    python benchmarks/replies.py keep --out runs/replies/small --to benchmarks/scores/replies-small.parquet
    python benchmarks/replies.py table --out benchmarks/scores/replies-small.parquet
    python benchmarks/replies.py picture --out benchmarks/scores/replies-small.parquet --svg replies.svg

Data: docs/conversations.md gives the commands for the stand-ins of Reddit-small and Reddit-large. Further ablations:
`--model mht --name absolute --set model.position=absolute`.

A run is resumable: the same command continues it and skips finished parts. It leaves OUT/MODEL-SEED/ with the trained model,
its metrics, and scores-HISTORY.npz (counts by conversation), from which `table` makes paired bootstrap intervals over
conversations. `keep` adds the counts to a table; `table` and `picture` read it, or the folder of the runs.

Models: mht (ancestor mask), no-mask, depth-1 to depth-11 (ancestors at most that many links up), span-1 to span-9 (the messages
right before); decatt, esim and bert-pair, which read two messages at a time; first and previous are baselines.
"""

import argparse
import json
import time
from pathlib import Path
from typing import get_args

from ramify.memory import keep_pages

keep_pages()  # before torch comes in

import numpy as np

import ramify
from ramify.dataset.store import Store
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.reply_trees import build_reply_logs
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.reply_trees import BASELINES, evaluate_replies, predict_baseline, score_parents
from ramify.metrics import bootstrap_ratio
from ramify.metrics.replies import ReplyCounts
from ramify.nn.precision import Precision, autocast
from ramify.recipes import RECIPES
from ramify.runs import Run, execute
from raw_scores import add_keep, add_runs, reads_runs
from rows import add_options, append_rows

DEPTHS, SPANS = range(1, 12), range(1, 10)
VARIANTS: dict[str, dict[str, str]] = {
    "mht": {},
    "no-mask": {"model.mask": "none"},
    **{f"depth-{depth}": {"model.depth": str(depth)} for depth in DEPTHS},
    **{f"span-{span}": {"model.mask": "temporal", "model.span": str(span)} for span in SPANS},
}
PAIRED = ("decatt", "esim", "bert-pair")
RULED = {"mht": "-", "no-mask": "-.", "first": "--", "previous": ":"}
"""Models without a limit, which the picture shows as lines."""
SCORES = {"graph_accuracy": "Graph", "graph_accuracy_without_first": "without first", "conv_accuracy": "Conv"}


def make_run(model: str, data: str, init: str, seed: int, steps: int, fine_steps: int, changes: dict[str, str]) -> Run:
    if model in PAIRED:
        run = RECIPES[model](data, init=init, steps=steps, seed=seed)
    else:
        run = RECIPES["mht"](data, init=init, steps=steps, fine_steps=fine_steps, seed=seed)
    return run.changed(VARIANTS.get(model, {}) | changes)


def train_and_score(arguments: argparse.Namespace) -> None:
    name = f"{arguments.model}.{arguments.name}" if arguments.name else arguments.model
    out = arguments.out / f"{name}-{arguments.seed}"
    store = Store.open(arguments.data)
    if arguments.model in BASELINES:
        logs = build_reply_logs(store.trees(store.evaluation_trees(arguments.split)), ChatInput())
        _keep(arguments, out, "unread", score_parents(logs, predict_baseline(logs, arguments.model)))
        return
    changes = {"train.precision": arguments.precision} | dict(each.split("=", 1) for each in arguments.set)
    sizes = arguments.steps, arguments.fine_steps
    run = make_run(arguments.model, str(arguments.data), arguments.init, arguments.seed, *sizes, changes)
    if not (out / "config.json").exists():
        execute(run, out, resume=(out / "run.json").exists(), report=_say)
    if not (out / "config.json").exists():
        return
    model = ramify.load(out)
    assert isinstance(model, Disentangler)
    task = model.task
    for history in arguments.histories if task.backbone.reads_structure else ("unread",):
        if not _file(out, history).exists():
            began = time.perf_counter()
            with autocast(task.device, arguments.precision):
                known = "gold" if history == "unread" else history
                found = evaluate_replies(model, store, arguments.split, history=known).model
            print(json.dumps({"seconds": round(time.perf_counter() - began)}))
            _keep(arguments, out, history, found)


def _file(out: Path, history: str) -> Path:
    return out / f"scores-{history}.npz"


def _keep(arguments: argparse.Namespace, out: Path, history: str, found: ReplyCounts) -> None:
    out.mkdir(parents=True, exist_ok=True)
    np.savez(_file(out, history), **vars(found))
    print(json.dumps({"run": out.name, "history": history} | found.scores()), flush=True)
    append_rows(arguments, "replies", f"{out.name}, history {history}", found.scores(), seeds=(arguments.seed,))


def _say(record: dict) -> None:
    if record["step"] % 100 == 0 or "dev_loss" in record:
        shown = {key: record[key] for key in ("step", "loss", "dev_loss", "dev_conv_accuracy", "seconds") if key in record}
        print(json.dumps(shown), flush=True)


def _found(out: Path) -> dict[tuple[str, str], dict[int, ReplyCounts]]:
    """Counts by (model, history) and seed."""
    found: dict[tuple[str, str], dict[int, ReplyCounts]] = {}
    for file in sorted(out.glob("*-*/scores-*.npz")):
        model, seed = file.parent.name.rsplit("-", 1)
        with np.load(file) as counts:
            found.setdefault((model, file.stem.removeprefix("scores-")), {})[int(seed)] = ReplyCounts(**counts)
    return found


def _values(by_seed: dict[int, ReplyCounts], score: str) -> list[float]:
    return [value for found in by_seed.values() if (value := found.scores()[score]) is not None]


def keep(arguments: argparse.Namespace) -> None:
    """Add the counts of scored runs to a table."""
    add_runs(arguments.out, arguments.to, scores=("scores-*.npz",))


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Accuracies, mean and spread over seeds, and each model's distance to mht, with intervals over conversations."""
    found = _found(arguments.out)
    reference = found.get(("mht", "gold"), {})
    for (model, history), by_seed in found.items():
        shown = []
        for score, name in SCORES.items():
            values = _values(by_seed, score)
            spread = f" (sd {np.std(values, ddof=1):.2f})" if len(values) > 1 else ""
            shown.append(f"{name} {np.mean(values):.2f}{spread}" if values else f"{name} none")
        print(f"{model}, history {history}, {len(by_seed)} seed(s): {', '.join(shown)}")
        if (model, history) != ("mht", "gold") and reference:
            own, other = _pooled(by_seed), _pooled(reference)
            for score, (right, counts) in own.items():
                gain = bootstrap_ratio(100.0 * (other[score][0] - right), counts)
                print(f"  {SCORES[score]}: mht {gain.value:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})")


def _pooled(by_seed: dict[int, ReplyCounts]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Numerators (means over seeds) and denominators of the scores by conversation, the unit of the bootstrap."""
    sums = [found.sums() for found in by_seed.values()]
    return {score: (np.mean([each[score][0] for each in sums], axis=0), sums[0][score][1]) for score in SCORES}


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Graph and conversation accuracy against the depth limit and against the span; bars are the spread over seeds."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    found = _found(arguments.out)
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    marks = {"graph_accuracy": "o-", "conv_accuracy": "s--"}
    for axes, (kind, limits, label) in zip(
        panels,
        (
            ("depth", DEPTHS, "greatest number of links to a visible ancestor"),
            ("span", SPANS, "number of visible messages right before"),
        ),
    ):
        for number, (score, mark) in enumerate(marks.items()):
            points = []
            for limit in limits:
                values = [value for key, each in found.items() if key[0] == f"{kind}-{limit}" for value in _values(each, score)]
                if values:
                    points.append((limit, np.mean(values), np.std(values, ddof=1) if len(values) > 1 else 0.0))
            if points:
                limit, mean, spread = zip(*points)
                axes.errorbar(limit, mean, spread, fmt=mark, markersize=4, color=f"C{number}", label=SCORES[score])
            for name, style in RULED.items():
                values = [value for key, each in found.items() if key[0] == name for value in _values(each, score)]
                if values:
                    axes.axhline(np.mean(values), color=f"C{number}", linestyle=style, linewidth=0.9, alpha=0.6)
        axes.set(xlabel=label, xticks=list(limits))
        for name, style in RULED.items():
            axes.plot([], [], linestyle=style, color="black", linewidth=0.9, label=name)
    panels[0].set(ylabel="percent")
    panels[1].legend(fontsize=8)
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


def plan(arguments: argparse.Namespace) -> None:
    """Print the runs, the most informative first."""
    for name in BASELINES:
        print(f"{name}-0")
    for seed in range(3):
        print(f"mht-{seed}, no-mask-{seed}")
    for name in VARIANTS:
        if name.startswith(("depth", "span")):
            print(f"{name}-0")
    print("26 trained models for each data set. With MiniLM in fp32, one on small-like costs roughly (from runs of a minute,")
    print("two cores, half of them taken): 15 to 30 minutes to encode the training messages once, 30 for 3,000 updates with")
    print("the encoder frozen, an hour for 1,000 of all parameters, and 2 to score; --fine-steps 0 leaves out the third.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("plan").set_defaults(call=plan)
    running = commands.add_parser("run")
    running.set_defaults(call=train_and_score)
    running.add_argument("--data", type=Path, required=True)
    running.add_argument("--init", default="", help="a BERT-family checkpoint that encodes the messages")
    running.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the run")
    running.add_argument("--name", default="", help="what the change is called")
    running.add_argument("--model", choices=[*BASELINES, *PAIRED, *VARIANTS], required=True)
    running.add_argument("--precision", choices=get_args(Precision), default="fp32", help="of training and of scoring")
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--steps", type=int, default=3000, help="updates; of mht, those with the encoder frozen")
    running.add_argument("--fine-steps", type=int, default=1000, help="of mht, updates of all parameters")
    running.add_argument("--split", default="test", help="what is scored: dev for whatever is chosen by it")
    running.add_argument("--histories", nargs="*", choices=["gold", "predicted"], default=["gold"])
    running.add_argument("--out", type=Path, required=True)
    add_options(running)
    add_keep(commands, keep)
    tables = commands.add_parser("table")
    tables.set_defaults(call=table)
    tables.add_argument("--out", type=Path, required=True)
    pictures = commands.add_parser("picture")
    pictures.set_defaults(call=picture)
    pictures.add_argument("--out", type=Path, required=True)
    pictures.add_argument("--svg", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()

"""Compare the regimes at equal predicted comments and updates: held-out loss by depth, speed and gradient noise.

    python benchmarks/regimes.py data --data STORE --out SMALL
    python benchmarks/regimes.py train --data SMALL --regime tree --seed 0 --out runs/regimes
    python benchmarks/regimes.py noise --data STORE --regime tree --out runs/regimes
    python benchmarks/regimes.py keep --out runs/regimes --to benchmarks/scores/regimes.parquet
    python benchmarks/regimes.py table --out benchmarks/scores/regimes.parquet
    python benchmarks/regimes.py picture --out benchmarks/scores/regimes.parquet --svg regimes.svg

`data` leaves out trees of more than `--most` comments: a tree of 14,000 would be a single update of `tree` and hundreds of
updates of the others. `train` makes `--steps` updates of `--comments` predicted comments on average, for any regime (a unit is
never cut, so the budget of a step is chosen for that mean). It then scores the test split with BERT's masks; settings were
chosen on dev. `noise` measures tr Cov(g) / |E g|² over steps of exactly `--comments` predicted comments at fixed parameters.
`keep` adds the scores of runs to a table; `table` and `picture` read it, or the folder of the runs.
"""

import argparse
import json
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from ramify.memory import keep_pages

keep_pages()  # before torch is imported

import numpy as np
import torch

import ramify
import ramify.runs.comment_trees.run
from ramify.batching.forest import Ints
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.base import Example
from ramify.batching.views.comment_trees import Discussions, Units, units
from ramify.dataset.store import Store
from ramify.inference.evaluation import Scores, describe, evaluate, gain
from ramify.inference.held_out import discussions
from ramify.metrics import DEPTH_BINS
from ramify.recipes import RECIPES
from ramify.runs import Run, execute
from ramify.tasks.base import MAIN
from ramify.tasks.masked_lm import MaskedLMConfig
from raw_scores import add_keep, add_runs, reads_runs
from rows import add_options, append_rows

REGIMES: dict[str, dict[str, str]] = {
    "naive": {"view.regime": "naive"},
    "threads-all": {"view.regime": "threads"},
    "threads-leaves": {"view.regime": "threads", "view.threads_over": "leaves"},
    "threads-debiased": {"view.regime": "threads_debiased"},
    "tree": {"view.regime": "tree"},
    # The control: steps as uneven as those of `tree`, but of unrelated comments.
    "scattered": {"view.regime": "tree"},
    **{
        f"middle-{size}-{bound}": {"view.regime": "middle", "view.max_tree_size": str(size), "view.bound": bound}
        for size in (5, 20, 60, 200)
        for bound in ("strict", "soft")
    },
}

MODEL = {
    "model.dim": "128",
    "model.num_heads": "2",
    "model.ffn_dim": "512",
    "model.encoder_layers": "2",
    "model.decoder_layers": "2",
    "model.cross_init": "zero",
    "model.context_position": "distance",
    "tokenizer.vocab_size": "8192",
}


LEARNING = {"task.mask_rate": "0.4", "train.lr": "2e-3"}


def make_run(arguments: argparse.Namespace, seed: int) -> Run:
    run = RECIPES["tree-mlm"](str(arguments.data), steps=arguments.steps, tokenizer=arguments.tokenizer, seed=seed)
    settings = {"train.budget_unit": "targets", "train.budget": str(arguments.comments), "train.evaluate_every": str(10**9)}
    return run.changed(MODEL | settings | REGIMES[arguments.regime])


def small_trees(arguments: argparse.Namespace) -> None:
    store = Store.open(arguments.data)
    small = np.flatnonzero(np.diff(store.offsets) - 1 <= arguments.most)
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "trees.jsonl"
        with open(lines, "w", encoding="utf-8") as file:
            file.writelines(tree.to_json() + "\n" for tree in store.trees(small))
        kept = ramify.build([lines], "jsonl", arguments.out)
    print(f"{len(small):,} of {store.num_trees:,} trees, {kept.info['comments']:,} of {store.info['comments']:,} comments")


def scatter() -> None:
    """Replace `units` by a function that keeps the unit sizes and shuffles comments over all trees."""

    def scattered(*arguments: Any, **options: Any) -> Units:
        parts = units(*arguments, **options)
        order = np.random.Generator(np.random.Philox(key=0)).permutation(len(parts.targets))
        return replace(parts, targets=parts.targets[order], weights=parts.weights[order], top=parts.top[order])

    ramify.runs.comment_trees.units = scattered


def budget_for(run: Run, out: Path, comments: int) -> int:
    """Find the step budget with which this run predicts `comments` comments per step on average."""
    prepared = run.prepare(out)
    sizes = prepared.view(prepared.store.split("train"), train=True)[0].sizes
    low, high = 1, comments * 4
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _mean(sizes, middle, run) > comments else (middle, high)
    return min(low, high, key=lambda budget: abs(_mean(sizes, budget, run) - comments))


def _mean(sizes: Ints, budget: int, run: Run) -> float:
    sampler = TokenBudget(sizes, budget, seed=run.seed)
    return float(np.mean([sizes[step].sum() for step in islice(sampler, run.stages[0].steps)]))


def train(arguments: argparse.Namespace) -> None:
    out = arguments.out / f"{arguments.regime}-{arguments.seed}"
    run = make_run(arguments, arguments.seed)
    if arguments.regime == "scattered":
        scatter()
    if not (out / "config.json").exists():
        run = run.changed(LEARNING | {"train.budget": str(budget_for(run, out, arguments.comments))})
        _, progress = execute(run, out, resume=(out / "run.json").exists())
        if not (out / "config.json").exists():
            return  # interrupted; the same command resumes
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        speed = progress.target_tokens / progress.seconds
        record = {"regime": arguments.regime, "seed": arguments.seed, "predicted": progress.targets, "steps": progress.step}
        record |= {"target_tokens_per_second": speed, "peak_mib": peak}
        (out / "cost.json").write_text(json.dumps(record))
        print(json.dumps(record), flush=True)
        append_rows(arguments, "regime-speed", arguments.regime, record, seeds=(arguments.seed,))
    task = ramify.load(out).task
    store = Store.open(arguments.data)
    trees = store.split(arguments.split)
    view, collator = discussions(task, task.input.forest(store, task.tokenizer), trees)
    scores = evaluate(task, view, collator, trees, draws=2, mask_rate=MaskedLMConfig().mask_rate)
    scores.save(out / "scores.npz")
    print(json.dumps(scores.summary()), flush=True)
    append_rows(arguments, "learned", arguments.regime, scores.summary(), seeds=(arguments.seed,))


def exact_steps(view: Discussions, comments: int, seed: int) -> Iterator[list[Example]]:
    """Yield steps of exactly `comments` predicted comments from shuffled units; a cut unit continues in the next step."""
    random = np.random.Generator(np.random.Philox(key=seed))
    held: list[Example] = []
    room = comments
    while True:
        for number in random.permutation(len(view)).tolist():
            rest = view.example(number)
            while len(rest.targets) >= room:
                first, rest = _cut(rest, room)
                yield [*held, first]
                held, room = [], comments
            if len(rest.targets):
                held.append(rest)
                room -= len(rest.targets)


def _cut(example: Example, count: int) -> tuple[Example, Example]:
    keys = int(example.context_lengths[:count].sum())
    parts = [(slice(0, count), slice(0, keys)), (slice(count, None), slice(keys, None))]
    first, rest = (
        Example(example.targets[t], example.weight[t], example.context[k], example.context_lengths[t]) for t, k in parts
    )
    return first, rest


def noise(arguments: argparse.Namespace) -> None:
    """Measure gradient noise at the initial parameters or at those of a trained run (`--at`); `--seed` selects the steps."""
    run = make_run(arguments, seed=0)
    prepared = run.prepare(arguments.out)
    task = prepared.task if arguments.at is None else ramify.load(arguments.at).task
    trees: Ints = prepared.store.split("train")
    view, collator = discussions(task, prepared.forest, trees, regime=run.view)
    generator = torch.Generator().manual_seed(arguments.seed)
    task.eval()  # noise from the data and the masks, not from dropout
    total: torch.Tensor | None = None
    squares = 0.0
    for number, examples in enumerate(exact_steps(view, arguments.comments, seed=arguments.seed + 1)):
        if number == arguments.steps:
            break
        batch = task.corrupt(collator(examples), generator)
        task.zero_grad()
        for losses, _ in task.losses(batch, {"masked_lm": float(arguments.comments)}, MAIN, None, None):
            torch.stack(list(losses.values())).sum().backward()
        gradient = torch.cat([p.grad.flatten().double() for p in task.parameters() if p.grad is not None])
        total = gradient if total is None else total + gradient
        squares += float(gradient @ gradient)
    assert total is not None
    count = arguments.steps
    mean = total / count
    covariance = (squares - count * float(mean @ mean)) / (count - 1)
    signal = float(mean @ mean) - covariance / count
    record = {
        "regime": arguments.regime,
        "seed": arguments.seed,
        "at": str(arguments.at or "start"),
        "steps": count,
        "comments": arguments.comments,
    }
    record |= {"trace_covariance": covariance, "squared_mean": signal, "noise": covariance / signal}
    out = arguments.out / f"noise-{arguments.regime}-{arguments.seed}-{'start' if arguments.at is None else arguments.at.name}"
    out.mkdir(parents=True, exist_ok=True)
    (out / "noise.json").write_text(json.dumps(record))
    print(json.dumps(record), flush=True)
    append_rows(arguments, "noise", arguments.regime, record, seeds=(arguments.seed,))


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores, the cost and the gradient noise of finished runs to a table."""
    add_runs(arguments.out, arguments.to, scores=("scores.npz", "noise.json"), more=("cost.json",))


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Print the loss of each regime by depth over seeds, its difference to `tree`, cost, and noise."""
    found = _found(arguments.out)
    for regime, by_seed in found.items():
        rows = [scores.summary() for scores in by_seed.values()]
        losses = {depth: [row["by_depth"][depth]["loss"] for row in rows] for depth in rows[0]["by_depth"]}
        shown = {
            depth: f"{np.mean(each):.4f}±{np.std(each, ddof=1) if len(each) > 1 else 0:.4f}" for depth, each in losses.items()
        }
        print(regime, f"{np.mean([row['loss'] for row in rows]):.4f}", json.dumps(shown, ensure_ascii=False))
        shared = sorted(by_seed.keys() & found.get("tree", {}).keys())
        if regime != "tree" and shared:
            print("  behind tree:", json.dumps([describe(gain(found["tree"][seed], by_seed[seed]))["all"] for seed in shared]))
    for file in sorted([*arguments.out.glob("*/cost.json"), *arguments.out.glob("noise-*/noise.json")]):
        print(file.read_text())


def _found(out: Path) -> dict[str, dict[int, Scores]]:
    """Return scores by regime and seed, in the order of REGIMES."""
    found: dict[str, dict[int, Scores]] = {}
    for regime in REGIMES:
        for file in sorted(out.glob(f"{regime}-[0-9]*/scores.npz")):
            seed = file.parent.name.removeprefix(f"{regime}-")
            if seed.isdigit():
                found.setdefault(regime, {})[int(seed)] = Scores.load(file)
    return found


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot each regime's loss minus that of `tree` by depth (one dot per seed), and its gradient noise."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5), layout="constrained")
    found = _found(arguments.out)
    reference = found.get("tree", {})
    for number, (regime, by_seed) in enumerate((name, seeds) for name, seeds in found.items() if name != "tree"):
        shared = sorted(by_seed.keys() & reference.keys())
        behind = [gain(reference[seed], by_seed[seed]) for seed in shared]
        depths = [depth for depth in DEPTH_BINS if behind and depth in behind[0]]
        values = np.array([[each[depth].value for depth in depths] for each in behind]).reshape(len(shared), len(depths))
        place = np.arange(len(depths)) + (number - len(found) / 2) * 0.06
        color = pyplot.get_cmap("tab20")(number)  # the default cycle has fewer colours than there are regimes
        left.plot(place, values.mean(0), "_", color=color, markersize=10)
        left.plot(np.tile(place, (len(shared), 1)).T, values.T, ".", color=color, markersize=4)
        left.plot([], [], "s", color=color, label=regime)
        left.set_xticks(range(len(depths)), depths)
    left.axhline(0, color="grey", linewidth=0.8)
    left.set(xlabel="depth of the comment", ylabel="test loss minus that of tree, nats per masked token")
    figure.legend(fontsize=8, ncols=6, loc="outside lower center")
    records = [json.loads(file.read_text()) for file in sorted(arguments.out.glob("noise-*-start/noise.json"))]
    drawn = {regime: [record["noise"] for record in records if record["regime"] == regime] for regime in REGIMES}
    for regime, values in drawn.items():
        if not values:
            continue
        right.barh(regime, np.mean(values), color="C0")
        right.plot(values, [regime] * len(values), "k.", markersize=4)
    right.invert_yaxis()
    right.set(xlabel="gradient noise at the start, tr Cov(g) / |E g|²")
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, call, steps in (("train", train, 2000), ("noise", noise, 200)):
        command = commands.add_parser(name)
        command.set_defaults(call=call)
        command.add_argument("--data", type=Path, required=True)
        # In `noise` all steps have equal size, so `scattered` would not be a control there.
        regimes = [regime for regime in REGIMES if call is train or regime != "scattered"]
        command.add_argument("--regime", choices=regimes, required=True)
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--steps", type=int, default=steps)
        command.add_argument("--comments", type=int, default=32 if call is train else 64)
        command.add_argument("--split", default="test", choices=["dev", "test"], help="split to score (train)")
        command.add_argument("--tokenizer", default="", help="tokenizer.json shared by all runs")
        command.add_argument("--out", type=Path, required=True)
        add_options(command)
        command.add_argument("--at", type=Path, help="trained run that provides the fixed parameters (noise)")
    data = commands.add_parser("data")
    data.set_defaults(call=small_trees)
    data.add_argument("--data", type=Path, required=True)
    data.add_argument("--most", type=int, default=500, help="number of comments of the largest tree to keep")
    data.add_argument("--out", type=Path, required=True)
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

"""`ramify demo`: build, train, evaluate and report, on discussions and a checkpoint that ship with Ramify."""

import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.errors import RamifyError
from ramify.files import make_folder, sole_writer
from ramify.sample import CHECKPOINT, DISCUSSIONS

if TYPE_CHECKING:
    from ramify.dataset.store import Store
    from ramify.inference.evaluation import Scores
    from ramify.inference.held_out import Filling, Measured
    from ramify.metrics import Interval
    from ramify.runs.sections import Section
    from ramify.tasks.masked_lm import MaskedLM

STEPS = 450
"""Updates of the small model: about a minute on one core."""

SETTINGS = {
    "tokenizer.vocab_size": "4096",
    "train.budget": "512",
    "train.lr": "1e-3",
    "train.evaluate_every": "50",
    "train.checkpoint_every": "1000000",
}

TOO_FEW = (
    "Six hundred comments are far too few to learn a language from, let alone how a reply depends on its parent. The model "
    "soon learns its few comments by heart, and the dev losses, with and without ancestors, say nothing about either: the "
    "curves show the training loop, not a result."
)
CHECKPOINT_USED = (
    "The rest of the demo uses the shipped checkpoint: a small model trained on other, openly licensed discussions, which "
    "has never seen these. It is evaluated with and without the ancestors of each comment, on the same masks. "
    "benchmarks/results.md has the results at real size."
)
CARD = (
    "From the checkpoint's card: held-out trees of its own data. Losses and savings are in nats per masked token, and all have "
    "the same masks."
)
SHOWN = 3
"""The number of filled masks on screen; the report has ten."""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the data set, the run and the report.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Number of updates of the small model.")] = STEPS,
    draws: Annotated[int, typer.Option(min=1, help="Number of mask draws per comment in the evaluation.")] = 8,
) -> None:
    """Build a sample data set, train a small model for a minute, and measure how much ancestors help the shipped model.

    Example: ramify demo --out runs/demo
    """
    import torch

    began = time.perf_counter()
    with sole_writer(out):
        _claim(out)
        # Matrices this small gain little from a second thread, and lose much on shared cores.
        torch.set_num_threads(1)
        _step(1, f"Build a data set from {DISCUSSIONS.name}: forty discussions that ship with Ramify")
        store = _build(out / "data")
        _step(2, f"Train a small TreeMLM from scratch, {steps} updates")
        record, metrics = _train(out / "data", out / "run", steps)
        _say(TOO_FEW)
        _step(3, "Measure what ancestors save the shipped checkpoint")
        _say(CHECKPOINT_USED)
        task, measured = _evaluate(store, draws)
        _step(4, "Fill masked words, with and without ancestors")
        examples = _fill(task, store)
        _report(out, task, store, record, metrics, measured, examples)
        print(f"\n{out / 'report.html'} holds the curves, the table by depth and {len(examples)} filled masks.")
    print(f"The demo took {time.perf_counter() - began:.0f} seconds.")


def _claim(out: Path) -> None:
    """Mark the folder as the demo's and remove the run of an earlier demo. Raises if the folder holds anything else."""
    from ramify.hub import RUN_FILE

    mark = out / ".ramify-demo"
    if mark.exists():
        if (out / "run" / RUN_FILE).exists():
            shutil.rmtree(out / "run")
    elif out.is_dir() and any(out.iterdir()):
        raise RamifyError(f"--out {out} holds other files, which the demo would replace. Choose another folder.")
    make_folder(out)
    mark.touch()


def _step(number: int, what: str) -> None:
    print(f"\n{number}  {what}\n", flush=True)


def _say(paragraph: str) -> None:
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    print(textwrap.fill(paragraph, width, initial_indent="   ", subsequent_indent="   "), flush=True)


def _build(folder: Path) -> "Store":
    from ramify.cli.tree_view import draw
    from ramify.dataset import build

    store = build([DISCUSSIONS], "jsonl", folder, split=(0.8, 0.2, 0.0), overwrite=True)
    splits = store.info["splits"]
    trained, held_out = splits["train"]["trees"], splits["dev"]["trees"]
    print(f"   {store.num_trees} trees, {store.info['comments']} comments; {trained} trees to train on, {held_out} held out\n")
    for line in draw(store.tree(0), 100, 8):
        print(f"   {line}")
    return store


def _train(data: Path, out: Path, steps: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The run's record and its logged metrics."""
    import json

    from ramify.cli.progress import progress_display
    from ramify.hub import RUN_FILE
    from ramify.recipes import RECIPES
    from ramify.runs import execute
    from ramify.runs.curves import train_loss
    from ramify.tasks.masked_lm import MaskedLM
    from ramify.training.metrics_log import read_metrics

    run = RECIPES["tree-mlm"](str(data), steps=steps).changed(SETTINGS)
    with progress_display() as report:
        execute(run, out, report=report)
    if not (out / "config.json").exists():
        raise typer.Exit(130)
    metrics = read_metrics(out)
    measured = [record for record in metrics if "dev_loss" in record]
    print()
    for name, values in (
        ("train, a mean per comment", [train_loss(record, MaskedLM.main_loss) for record in metrics]),
        ("dev, with ancestors", [record["dev_loss"] for record in measured]),
        ("dev, without", [record["dev_loss_none"] for record in measured]),
    ):
        print(f"   {name:<26} {values[0]:.3f} {_sparkline(values)} {values[-1]:.3f} nats per masked token")
    print()
    return json.loads((out / RUN_FILE).read_text("utf-8")), metrics


def _sparkline(values: Sequence[float], width: int = 40) -> str:
    """A curve as one line of text."""
    blocks = "▁▂▃▄▅▆▇█"
    kept = [values[place * len(values) // min(width, len(values))] for place in range(min(width, len(values)))]
    low, high = min(kept), max(kept)
    return "".join(blocks[round((value - low) / max(high - low, 1e-9) * (len(blocks) - 1))] for value in kept)


def _evaluate(store: "Store", draws: int) -> tuple["MaskedLM", "Measured"]:
    """The shipped checkpoint's loss on the whole sample: with ancestors, without context, and with another tree's ancestors."""
    import numpy as np

    import ramify
    from ramify.cli.progress import bar
    from ramify.inference.evaluation import gain
    from ramify.inference.held_out import NAMES, cache_weights, measure

    task = ramify.load(CHECKPOINT).task
    caches = cache_weights(task, store, ("none",))
    with bar("evaluating", 3 * store.info["comments"]) as advance:
        measured = measure(task, store, "all", draws=draws, controls=("mismatched",), caches=caches, progress=advance)
    count = measured.scores["tree"].count.sum()
    print(f"\n   {count:,} masked tokens in {measured.trees} trees, loss in nats per masked token:")
    losses = {NAMES[context]: scores for context, scores in measured.scores.items()}
    _print_losses(losses)
    # The weight would be judged too well on the trees that chose it.
    others = store.tree_ids(np.setdiff1d(store.split("all"), store.split("dev")))
    losses["without context, cache of ancestors' words"] = measured.cached["none"]
    print(
        f"\n   The cache has weight {caches['none']:g}, chosen on the {len(store.split('dev'))} trees that are held out above. "
        f"On the other {len(others)} trees:"
    )
    _print_losses({name: scores.of_trees(others) for name, scores in losses.items()})
    print()
    for other in ("none", "mismatched"):
        print(saving(NAMES[other], gain(measured.scores["tree"], measured.scores[other])["all"]))
    print()
    _say(CARD)
    for name, *values in card_results():
        print(f"   {name:<64} {'  '.join(values)}")
    return task, measured


def _print_losses(losses: "Mapping[str, Scores]") -> None:
    for name, scores in losses.items():
        print(f"   {name:<42} {scores.summary()['loss']:.4f}")


def card_results() -> list[list[str]]:
    """The cells of the held-out results on the card of the shipped checkpoint, without the line below the head."""
    _, _, results = (CHECKPOINT / "README.md").read_text("utf-8").partition("## Held-out results")
    head, _, *lines = (line for line in results.splitlines() if line.startswith("|"))
    return [line.replace("**", "").strip("| ").split(" | ") for line in (head, *lines)]


def saving(other: str, saved: "Interval") -> str:
    """The nats that ancestors save, as a sentence. It says if the interval holds zero."""
    interval = f"(95 % interval {saved.low:+.4f} to {saved.high:+.4f}, paired bootstrap over trees)"
    said = f"   ancestors save, against the same model {other}: {saved.value:+.4f} {interval}"
    if saved.low <= 0 <= saved.high:
        return f"{said}\n   The interval holds zero, so this sample shows no difference."
    return said


def _fill(task: "MaskedLM", store: "Store") -> "list[Filling]":
    from ramify.errors import percent
    from ramify.inference.held_out import NAMES, RULE, fillings
    from ramify.report.html import shortened

    examples = fillings(task, store, "all")
    _say(f"{RULE} The first {SHOWN}:")
    for example in examples[:SHOWN]:
        print(f"\n   above: {shortened(example.ancestors[-1], 110)}")
        before = example.before if len(example.before) < 80 else "… " + example.before[-80:].split(" ", 1)[-1]
        print(f"   reply: {' '.join(before.split())} [{example.word}] {shortened(example.after, 60)}")
        for context, guess in example.guesses.items():
            best = ", ".join(f"{token} {percent(share)}" for token, share in guess.tokens)
            print(f"     {NAMES[context]:<16} {example.word} {percent(guess.probability)}; likeliest: {best}")
    return examples


def _report(
    out: Path,
    task: "MaskedLM",
    store: "Store",
    record: Mapping[str, Any],
    metrics: Sequence[Mapping[str, float]],
    measured: "Measured",
    examples: "Sequence[Filling]",
) -> None:
    from dataclasses import replace

    from ramify.inference.evaluation import gain
    from ramify.report import run_report, write_page
    from ramify.report.html import draw
    from ramify.runs.comment_trees import report as comment_tree_report
    from ramify.runs.sections import number

    saved = {}
    for other in ("none", "mismatched"):
        interval = gain(measured.scores["tree"], measured.scores[other])["all"]
        value, low, high = (number(nats, "+.4f") for nats in (interval.value, interval.low, interval.high))
        unclear = ", which holds zero" if interval.low <= 0 <= interval.high else ""
        saved[other] = f"<b>{value} nats per masked token</b> (95 % interval {low} to {high}{unclear})"
    lead = (
        "<p>Forty discussions that ship with Ramify, read by two models: a small one trained on them for a minute, and the "
        "checkpoint that ships with Ramify.</p><p>Reading each comment with its ancestors instead of without saves the shipped "
        f"checkpoint {saved['none']}; instead of with another tree's ancestors, {saved['mismatched']}. Intervals are from a "
        "paired bootstrap over trees.</p>"
    )
    sections = [
        replace(comment_tree_report.curves(metrics, "tree", "A minute of training from scratch"), lead=(TOO_FEW,)),
        comment_tree_report.gains(measured, "Gain from ancestors for the shipped checkpoint"),
        comment_tree_report.filled(examples, "Masks filled by the shipped checkpoint"),
        _checkpoint(task),
        run_report.data(store.info, comment_tree_report.unread(record["cut"], record["without_tokens"])),
        replace(run_report.circumstances(record, metrics, "predicted comments"), title="How the small model was trained"),
    ]
    write_page(
        out / "report.html", kind="Ramify", title="The demo", lead=lead, sections=[draw(section) for section in sections]
    )


def _checkpoint(task: "MaskedLM") -> "Section":
    from ramify.recipes.shipped import LICENSE
    from ramify.runs.sections import Section

    parameters = sum(parameter.numel() for parameter in task.parameters())
    size = sum(file.stat().st_size for file in CHECKPOINT.iterdir()) / 1e6
    body = (
        f"{parameters:,} parameters, states of size {task.backbone.out_dim}, {size:.1f} MB in half precision, licence "
        f"{LICENSE}. The README.md in ramify/sample/checkpoint gives its training data, its commands and its scores on "
        "held-out trees of that data."
    )
    return Section("The shipped checkpoint", (), lead=(body,))

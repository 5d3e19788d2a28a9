"""Measure the shipped tree model beside other models of its size: the same comments and the same masks.

    python benchmarks/shipped.py score --data DATA --out runs/shipped shipped=RUN/packed bert=RUN paper=FOLDER additions=FOLDER
    python benchmarks/shipped.py keep --out runs/shipped --to benchmarks/scores/shipped.parquet
    python benchmarks/shipped.py table --out benchmarks/scores/shipped.parquet --rows benchmarks/results/shipped.jsonl
    python benchmarks/shipped.py picture --out benchmarks/scores/shipped.parquet --svg benchmarks/pictures/shipped.svg
    python benchmarks/shipped.py ship RUN/packed

DATA holds the built stores of `SETS`; the card of the shipped model and `benchmarks/ancestors.py` have the commands for them.
`score` writes OUT/NAME/SET-PIECES-READING.npz for each model (sums by tree, depth and word class), and keeps what is there.
OUT/NAME/model.json has the hash of the weights, and other weights under that name are refused. A
text is read up to its first 256 pieces, and once more up to its first 128, because older models read no more. Each reading has
masks of its own, which all models share. `paper` and `additions` are the folder src/ramify/sample/checkpoint at the commits
f0c91a1 and 3544564. The first has another form of config.json: it lacks format, kind and pieces, which are those of the second,
and says `reading` and `seen` for `input` and `context`.

`ship` replaces the model in src/ramify/sample/checkpoint. Then `python benchmarks/tables.py` fills in its card.
"""

import argparse
import itertools
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments import Figures
from ramify import RamifyError
from ramify.batching.text_input import Context
from ramify.dataset.store import Split, Store
from ramify.files import make_folder, write_text
from ramify.inference.evaluation import Scores, describe, gain
from ramify.sample import CHECKPOINT
from ramify.tensors import content_hash
from ramify.training.metrics_log import read_metrics
from raw_scores import add_figures, add_keep, add_runs, reads_runs
from rows import current_commit, replace_rows
from tables import in_full

if TYPE_CHECKING:
    from ramify.inference.fill_mask import MaskFiller
    from ramify.tasks.masked_lm import MaskedLM

SHIPPED = "shipped"
MODELS = {SHIPPED: "this model", "bert": "BERT", "paper": "earlier, 8 M tokens", "additions": "earlier, 4 M tokens"}
READINGS = {
    "own": "",
    "own-cache": ", with cache",
    "mismatched": ", another tree's ancestors",
    "none": ", no context",
    "none-cache": ", no context, with cache",
}
"""The own context of a model, other contexts of the shipped one, and mixtures with a unigram model of the ancestors' words."""

RATE = 0.15


class TestSet(NamedTuple):
    """Comments to score."""

    split: Split
    draws: int
    pieces: tuple[int, ...]
    """The numbers of pieces up to which texts are read."""
    comments: int = 0
    """The first trees that hold so many comments; 0: all."""


SETS = {
    "open": TestSet("test", 8, (256, 128)),
    "demo": TestSet("all", 8, (256, 128)),
    "modes": TestSet("all", 4, (256,)),
    "reddit": TestSet("test", 4, (256,), comments=1500),
    "iac": TestSet("test", 4, (256,), comments=1500),
}


# --- scores ------------------------------------------------------------------------------------------------------------------


def score(arguments: argparse.Namespace) -> None:
    """Score models on the sets, and keep their learning curves."""
    import ramify

    folders = dict(pair.split("=", 1) for pair in arguments.models)
    pipelines = {name: ramify.load(folder, device="cpu") for name, folder in folders.items()}
    hashes = {pipeline.tokenizer.text_hash for pipeline in pipelines.values()}
    if len(hashes) > 1:
        raise RamifyError(f"{', '.join(folders.values())} have different tokenizers, so their masks would differ.")
    for name, folder in folders.items():
        _claim(arguments.out / name, folder, pipelines[name])
        _keep_curve(Path(folder), arguments.out / name)
        for pieces in sorted({pieces for label in arguments.sets for pieces in SETS[label].pieces}):
            labels = [label for label in arguments.sets if pieces in SETS[label].pieces]
            if pieces <= pipelines[name].backbone.config.max_tokens:
                _score(pipelines[name], arguments.data, labels, pieces, arguments.out / name, controls=name == SHIPPED)


def _claim(out: Path, folder: str, pipeline: "MaskFiller") -> None:
    """Record the weights that the scores of a folder are of. Raises `RamifyError` if it holds those of another model."""
    record, weights = out / "model.json", content_hash(pipeline.module.state_dict())
    if any(out.glob("*")) and (not record.exists() or json.loads(record.read_text("utf-8"))["weights"] != weights):
        raise RamifyError(
            f"{out} holds scores of other weights than those of {folder}. Name another --out, or remove the folder."
        )
    make_folder(out)
    write_text(record, json.dumps({"weights": weights}) + "\n")


def _score(pipeline: "MaskFiller", data: Path, labels: Sequence[str], pieces: int, out: Path, *, controls: bool) -> None:
    """Score a model on those sets that it has no scores of, and read texts up to so many pieces."""
    from ramify.inference.held_out import cache_weights

    labels = [label for label in labels if not _file(out, label, pieces, "own").exists()]
    if not labels:
        return
    task = pipeline.task
    task.config = replace(task.config, mask_rate=RATE)
    task.input = replace(pipeline.input, max_tokens=pieces)
    trained = task.input.context
    mixed: tuple[Context, ...] = (trained, "none") if controls else (trained,)
    caches = cache_weights(task, Store.open(data / "open"), mixed)
    for label in labels:
        _score_set(task, Store.open(data / label), label, pieces, out, caches, controls=controls)


def _score_set(
    task: "MaskedLM", store: Store, label: str, pieces: int, out: Path, caches: Mapping[Context, float], *, controls: bool
) -> None:
    from ramify.inference.held_out import measure

    test, trained = SETS[label], task.input.context
    wrong: tuple[Context, ...] = ("mismatched",) if controls else ()
    measured = measure(task, store, test.split, draws=test.draws, comments=test.comments, controls=wrong, caches=caches)
    readings = {"own": measured.scores[trained], "own-cache": measured.cached[trained]}
    if controls:
        readings |= {"none": measured.scores["none"], "none-cache": measured.cached["none"]}
        readings |= {"mismatched": measured.scores["mismatched"]}
    weights = {f"{'own' if context == trained else 'none'}-cache": weight for context, weight in caches.items()}
    write_text(out / f"{label}-{pieces}.json", json.dumps({"comments": measured.comments, "caches": weights}) + "\n")
    for reading, scores in readings.items():
        print(f"{out.name} {label} {pieces} {reading}: {scores.summary()['loss']:.4f}", flush=True)
    # The file that says that all are there comes last.
    for reading in reversed(readings):
        readings[reading].save(_file(out, label, pieces, reading))


def _file(out: Path, label: str, pieces: int, reading: str) -> Path:
    return out / f"{label}-{pieces}-{reading}.npz"


def _keep_curve(folder: Path, out: Path) -> None:
    """Write the dev losses of a run, each with the mean train loss since the one before, by epoch."""
    from ramify.recipes.shipped import target_tokens_per_epoch
    from ramify.runs.curves import train_loss
    from ramify.tasks.masked_lm import MaskedLM

    run_folder = folder if (folder / "run.json").exists() else folder.parent
    if not (run_folder / "run.json").exists() or (out / "curve.jsonl").exists():
        return
    epoch = target_tokens_per_epoch(run_folder)
    losses: list[float] = []
    lines = []
    for record in read_metrics(run_folder):
        losses.append(train_loss(record, MaskedLM.main_loss))
        if "dev_loss" in record:
            epochs = record["target_tokens"] / epoch
            lines.append({"epochs": epochs, "train": float(np.mean(losses)), "dev": record["dev_loss"]})
            losses = []
    write_text(out / "curve.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores and the curves of models to a table, a few kilobytes each."""
    add_runs(arguments.out, arguments.to, ["*.npz"], ["*.json", "*.jsonl"])


# --- figures -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """All scores of a folder."""

    out: Path

    def of(self, model: str, label: str, pieces: int, reading: str = "own") -> Scores | None:
        file = _file(self.out / model, label, pieces, reading)
        return Scores.load(file) if file.exists() else None

    def weight(self, model: str, label: str, pieces: int, reading: str) -> float:
        return json.loads((self.out / model / f"{label}-{pieces}.json").read_text("utf-8"))["caches"][reading]

    def rivals(self, label: str, pieces: int) -> Iterator[tuple[str, Scores]]:
        """The other readings and models that the shipped one is compared with."""
        for reading in ("mismatched", "none", "none-cache"):
            if scores := self.of(SHIPPED, label, pieces, reading):
                yield f"over itself{READINGS[reading]}", scores
        for model in (name for name in MODELS if name != SHIPPED):
            for reading in ("own", "own-cache"):
                if scores := self.of(model, label, pieces, reading):
                    yield f"over {MODELS[model]}{READINGS[reading]}", scores


def _of_all_words(scores: Scores) -> Scores:
    """Scores without word classes. The words that can be recovered from ancestors depend on how much of these a model reads."""
    loss, correct, count = (values.sum(-1, keepdims=True) for values in (scores.loss, scores.correct, scores.count))
    return Scores(scores.trees, loss, correct, count, ("all",))


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all scores that are there, print them, and write them to the rows of a page."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.commit or commit, arguments.machine)
    scored, command = Scored(arguments.out), "python benchmarks/shipped.py table --out benchmarks/scores/shipped.parquet"
    for label, pieces in ((label, pieces) for label, test in SETS.items() for pieces in test.pieces):
        column = f"{label}, {pieces}"
        for model, reading in itertools.product(MODELS, READINGS):
            if scores := scored.of(model, label, pieces, reading):
                mixed = reading.endswith("-cache")
                note = f"weight of the cache on {column}: {scored.weight(model, label, pieces, reading):g}" if mixed else ""
                row = f"{MODELS[model]}{READINGS[reading]}"
                figures.add("tree-losses", row, column, scores.summary()["loss"], command, note=note)
        if shipped := scored.of(SHIPPED, label, pieces):
            for rival, scores in scored.rivals(label, pieces):
                saved = describe(gain(_of_all_words(shipped), _of_all_words(scores)))["all"]
                figures.add("tree-saved", rival, column, saved["value"], command, interval=saved)
            figures.add("tree-masked", "masked tokens", column, int(shipped.count.sum()), command, unit="", digits=0)
    for row in figures.rows:
        print(f"{row.table:<12} {row.row:<50} {row.column:<12} {in_full(row)}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot the train and dev losses of the shipped model and of BERT by epoch."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for number, model in enumerate(name for name in MODELS if (arguments.out / name / "curve.jsonl").exists()):
        lines = (arguments.out / model / "curve.jsonl").read_text("utf-8").splitlines()
        points: list[Mapping[str, float]] = [json.loads(line) for line in lines]
        for kind, style in (("train", ":"), ("dev", "-")):
            values = [point[kind] for point in points]
            axes.plot(
                [point["epochs"] for point in points], values, style, color=f"C{number}", label=f"{MODELS[model]}: {kind}"
            )
    axes.set(xlabel="epochs", ylabel="nats per masked token")
    axes.legend(fontsize=8)
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


# --- the shipped model -------------------------------------------------------------------------------------------------------


def ship(arguments: argparse.Namespace) -> None:
    """Replace the shipped model by a packed one, whose card takes its results from the rows."""
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copyfile(arguments.packed / file, CHECKPOINT / file)
    card = (arguments.packed / "README.md").read_text("utf-8")
    block = "\\1<!-- block: checkpoint-held-out -->\n<!-- /block -->\n"
    write_text(CHECKPOINT / "README.md", re.sub(r"(## Held-out results\n\n).*", block, card, flags=re.DOTALL))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    scoring = commands.add_parser("score")
    scoring.set_defaults(call=score)
    scoring.add_argument("--data", type=Path, required=True, help="folder of the built stores")
    scoring.add_argument("--out", type=Path, required=True)
    scoring.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    scoring.add_argument("models", nargs="+", metavar="NAME=FOLDER", help=f"saved models: {', '.join(MODELS)}")
    add_keep(commands, keep)
    add_figures(commands, table, picture, rows="shipped.jsonl", machine="B")
    shipping = commands.add_parser("ship")
    shipping.set_defaults(call=ship)
    shipping.add_argument("packed", type=Path)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

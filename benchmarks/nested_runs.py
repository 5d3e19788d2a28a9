"""Train models of nested documents on novels, and measure them on whole held-out novels.

    python benchmarks/nested_runs.py plan
    python benchmarks/nested_runs.py prepare --data DATA --books BOOKS
    python benchmarks/nested_runs.py run --data DATA --out runs/nested A
    python benchmarks/nested_runs.py curve --data DATA --out runs/nested --weights SNAPSHOTS A
    python benchmarks/nested_runs.py keep --out runs/nested --to benchmarks/scores/nested.parquet
    python benchmarks/nested_runs.py table --out benchmarks/scores/nested.parquet --rows benchmarks/results/nested.jsonl
    python benchmarks/nested_runs.py picture --out benchmarks/scores/nested.parquet --svg benchmarks/pictures/nested.svg

`prepare` makes the data set DATA/books of 38 novels, of which the seven of authors with several are the test split and two are
dev; DATA/few of five of its novels; and the tokenizer of all models, DATA/tokenizer.json. DATA/minilm is a copy of
all-MiniLM-L6-v2, for comparisons. `run` carries out the commands of the plan, prints them, and skips those whose results are
already there; the same command continues an interrupted run. `curve` scores weights from the middle of training. `keep` adds
what `table` and `picture` read to a table.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import Figures, Item, carry_out, copy_curve, found_in, print_plan, score_command, train_command
from raw_scores import add_keep, adding_runs, reads_runs
from rows import current_commit, replace_rows

TEST = ("charles-dickens", "jane-austen", "leo-tolstoy")
"""The authors with several novels, all of which are held out."""
DEV = ("arthur-conan-doyle", "e-m-forster")
FEW = ("mary-shelley", "edith-wharton", "bram-stoker", "arthur-conan-doyle", "e-m-forster")
"""The authors of the novels of the short runs."""
VOCABULARY = 8_192

NO_DROPOUT = "--set model.dropout=0 --set model.attention_dropout=0"
UPDATES = "--set train.budget=512 --set input.unit_tokens=1024"
"""Runs of all levels make many small updates; chapters of more than 1,024 tokens are cut."""
BOOKS = "--data DATA/books --tokenizer DATA/tokenizer.json"
SENTENCES, LEVELS, SHORT = 2_600_000, 1_300_000, 270_000
"""Tokens of the runs on sentences, on all levels, and of each short run."""
CHOICE = 600_000

EVALUATE = "ramify evaluate RUN --data DATA/books --json"
MEASURE = "python benchmarks/nested_documents.py"

SCALED = "--set task.scores=scaled --set task.balanced=false"
VARIANTS = {
    "base": SCALED,
    "checkers-mended": SCALED,
    "classes-learn": f"{SCALED} --set task.classes_detached=false",
    "plain-scores": "--set task.balanced=false --set task.classes_detached=false",
    "transformer-cells": f"{SCALED} --set model.cells=transformer",
    "no-sentence-mlm": f"{SCALED} --set 'task.without=[\"mlm_sentence\"]'",
    "no-coherence": f"{SCALED} --set task.coherence=0",
    "staged": f"{SCALED} --set task.schedule=staged --set task.unlock_steps=70",
    "two-phase": f"{SCALED} --set task.upper=two_phase",
}
"""The short runs of all levels, which differ from the first one in one setting. (Scores without a scale differ in two.) The
checkers of *checkers-mended*, the last run, started at the expected share; those of all other runs at 1/2."""


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    choice = f"agent-sentence {BOOKS} --target-tokens {CHOICE} --set train.schedule=constant"
    levels = f"agent {BOOKS} --target-tokens {LEVELS} {NO_DROPOUT} {UPDATES} --set train.evaluate_every=150"
    levels += " --set train.checkpoint_every=50 --set dev.tokens=32768"
    found = [
        Item("S-2048", f"agent-sentence {BOOKS} --steps 300", 0.12),
        Item("S-512", f"{choice} --set train.budget=512", 0.17),
        Item("S-512-no-dropout", f"{choice} --set train.budget=512 {NO_DROPOUT}", 0.15),
        Item(
            "A",
            f"agent-sentence {BOOKS} --target-tokens {SENTENCES} {NO_DROPOUT} --set train.budget=512 "
            "--set train.evaluate_every=250 --set train.checkpoint_every=250",
            0.7,
            scores={"test": EVALUATE, "sick": f"{MEASURE} sick --run RUN --minilm DATA/minilm --threads 1"},
        ),
        # Stopped after 1.8 M tokens, because the vectors of all sentences had become alike.
        Item(
            "B-plain-scores",
            f"agent {BOOKS} --target-tokens 2000000 {NO_DROPOUT} --set train.budget=1024 --set input.unit_tokens=2048 "
            "--set train.evaluate_every=100 --set train.checkpoint_every=50 --set dev.tokens=32768 "
            "--set task.balanced=false --set task.classes_detached=false",
            0.8,
        ),
        Item("B-scaled", f"{levels} {SCALED}", 0.65, scores={"test": EVALUATE}),
        Item(
            "B",
            levels,
            0.9,
            scores={
                "test": EVALUATE,
                "sick": f"{MEASURE} sick --run RUN --minilm DATA/minilm --threads 1",
                "retrieval": f"{MEASURE} retrieval --run RUN --data DATA/books --minilm DATA/minilm --threads 1",
                "author": f"{MEASURE} author --run RUN --data DATA/books --minilm DATA/minilm --threads 1",
                "spread": f"{MEASURE} spread --run RUN --data DATA/few --threads 1",
                "checker": f"{MEASURE} checker --run RUN --data DATA/books --steps 500 --threads 1",
                "cost": f"{MEASURE} cost --run RUN --data DATA/books --threads 2",
            },
        ),
    ]
    short = f"agent --data DATA/few --tokenizer DATA/tokenizer.json --target-tokens {SHORT} {NO_DROPOUT} {UPDATES}"
    short += " --set train.evaluate_every=50 --set dev.tokens=32768"
    for name, settings in VARIANTS.items():
        scores = {"dev": "ramify evaluate RUN --data DATA/few --split dev --json"}
        if name in ("base", "classes-learn", "plain-scores"):
            scores["spread"] = f"{MEASURE} spread --run RUN --data DATA/few --threads 1"
        if name in ("base", "no-sentence-mlm"):
            scores["sick"] = f"{MEASURE} sick --run RUN --threads 1"
        found.append(Item(f"C-{name}", f"{short} {settings}", 0.2, scores=scores))
    return found


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def prepare(arguments: argparse.Namespace) -> None:
    """Build the data sets and train the tokenizer."""
    arguments.data.mkdir(parents=True, exist_ok=True)
    names = sorted(folder.name for folder in arguments.books.iterdir() if folder.is_dir())
    splits = {name: "test" if name.startswith(TEST) else "dev" if name.startswith(DEV) else "train" for name in names}
    file = arguments.data / "splits.tsv"
    file.write_text("".join(f"{name}\t{split}\n" for name, split in splits.items()))
    few = [arguments.books / name for name in names if name.startswith(FEW)]
    for name, sources in (("books", [arguments.books]), ("few", few)):
        if not (arguments.data / name).exists():
            sources = list(map(str, sources))
            build = ["ramify", "data", "build", *sources, "--format", "book", "--split-by", str(file)]
            subprocess.run([*build, "--out", str(arguments.data / name)], check=True)
    tokenizer = arguments.data / "tokenizer.json"
    if not tokenizer.exists():
        train = ["ramify", "tokenizer", "train", str(arguments.data / "books"), "--kind", "unigram", "--no-lowercase"]
        subprocess.run([*train, "--vocab-size", str(VOCABULARY), "--out", str(tokenizer)], check=True)


def run(arguments: argparse.Namespace) -> None:
    carry_out(items(), arguments.names, arguments.data, arguments.out)


# --- curves ----------------------------------------------------------------------------------------------------------------

ROWS = 500
"""Sentences that are decoded for each point of a curve."""


def curve(arguments: argparse.Namespace) -> None:
    """Token accuracy, exact matches and right ends on dev for weights from the middle of training, by tokens seen.

    The folder of weights holds a file per update: STEP.safetensors."""
    import ramify
    from ramify import Store
    from ramify.inference.documents.evaluation import evaluate_documents
    from ramify.training.metrics_log import read_metrics
    from ramify.training.trainer import load_weights

    for name in arguments.names:
        folder = arguments.out / name
        model = ramify.load(folder)
        store = Store.open(arguments.data / "books")
        tokens = {record["step"]: record["target_tokens"] for record in read_metrics(folder)}
        points = []
        files = sorted(arguments.weights.glob("*.safetensors"), key=lambda file: int(file.stem))
        for step, file in [(int(file.stem), file) for file in files]:
            load_weights(model.module, file)
            found = evaluate_documents(model.module, store, "dev", rows=ROWS).levels["sentence"]
            points.append({"step": step, "tokens": tokens[step]})
            for key in ("token_accuracy", "exact_match", "right_ends", "bleu", "reconstruction_loss"):
                if key in found:
                    floors = {"trigrams": found[key].baseline} | found[key].others
                    points[-1][key] = found[key].value
                    known = {floor: value for floor, value in floors.items() if value is not None and math.isfinite(value)}
                    points[-1] |= {f"{key}_{floor}": value for floor, value in known.items()}
            print(points[-1], flush=True)
        (folder / "curve.json").write_text(json.dumps(points))


# --- results ---------------------------------------------------------------------------------------------------------------


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores and the dev losses of finished runs to a table, without the models."""
    keep_items(items(), arguments.out, arguments.to)


def keep_items(runs: Sequence[Item], out: Path, table_: Path) -> None:
    """Add the scores, the curves and the queries (items.npz) of runs to a table."""
    levels = ("token", "sentence", "paragraph", "chapter", "document")
    losses = [f"dev_{kind}_{level}" for kind in ("reconstruction", "mlm", "coherence") for level in levels]
    with adding_runs(table_) as to:
        for item in runs:
            source, target = out / item.name, to / item.name
            copy_curve(source, target, ("step", "target_tokens", "loss", "dev_loss", *losses))
            for name in (*(f"{label}.json" for label in (*item.scores, "curve")), "items.npz"):
                if (source / name).exists():
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source / name, target / name)


LENGTHS = {"1-5": "1–5", "6-10": "6–10", "11-20": "11–20", "21-31": "21–31", "": "all"}
"""Bins of the tokens of a sentence, as in the names of measures and in tables."""


def _over_siblings(measure: Mapping[str, Any]) -> bool:
    return measure["value"] >= 1.5 * measure["baseline"] and measure["p"] < 0.01


def _below_marks(measure: Mapping[str, Any]) -> bool:
    return measure["value"] <= 0.85 * measure["baseline"] and measure["p"] < 0.01


GOALS: dict[tuple[str, str], tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    ("sentence", "mlm_recall_at_10.three_or_more"): ("1.5 times the siblings' mean, p < .01", _over_siblings),
    ("sentence", "probing_auroc"): ("at least .85", lambda measure: measure["value"] >= 0.85),
    **{
        (level, "coherence_mse"): ("at most .85 of the marks alone, p < .01", _below_marks)
        for level in ("sentence", "paragraph", "chapter", "document")
    },
    ("paragraph", "probing_auroc"): ("at least .70", lambda measure: measure["value"] >= 0.7),
}
"""Goals that were set before the runs, by level and measure."""

SHOWN = (
    "token_accuracy",
    "exact_match",
    "right_ends",
    "bleu",
    "child_accuracy",
    "retrieval_recall_at_10",
    "retrieval_auroc",
    "mlm_accuracy",
    "mlm_recall_at_10",
    "mlm_recall_at_10.three_or_more",
    "mlm_recall_at_10.nearby.three_or_more",
    "coherence_mse",
    "probing_auroc",
    "probing_auroc.nearby",
)
"""Measures of the table of all levels."""
SENTENCE_MEASURES = ("mlm_accuracy", "coherence_mse", "probing_auroc")
NAMES = {"bleu": "bleu (of 100)", "coherence_mse": "coherence mse, four or more children"}


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.measured or commit, arguments.machine, MEASURE)
    for add in (_add_choice, _add_sentences, _add_levels, _add_short, _add_cost, _add_use):
        add(figures, arguments.out)
    for row in figures.rows:
        print(f"{row.table:<18} {row.row:<50} {row.column:<22} {row.value} {row.unit}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


def _item(name: str) -> Item:
    return {each.name: each for each in items()}[name]


def _command(name: str, label: str) -> str:
    return score_command(_item(name), label, Path("DATA"), Path("OUT"))


def dev_losses(folder: Path, name: str = "dev_loss") -> dict[int, float]:
    """A dev loss by tokens seen; empty before the first one."""
    file = folder / "metrics.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {record["target_tokens"]: record[name] for record in records if name in record}


def _add_choice(figures: Figures, out: Path) -> None:
    for item in items():
        if item.name.startswith("S-") and (losses := dev_losses(out / item.name)):
            command = train_command(item, Path("DATA"), Path("OUT"), "")
            figures.add("nested-choice", item.name.removeprefix("S-"), "dev loss", min(losses.values()), command)


def _add_sentences(figures: Figures, out: Path) -> None:
    """Sentences from one vector by length, beside the floors."""
    if not (found := found_in(out / "A", "test")):
        return
    own, command = found["levels"]["sentence"], _command("A", "test")
    for key, length in LENGTHS.items():
        for measure in ("token_accuracy", "exact_match", "right_ends", "bleu"):
            name = f"{measure}.{key}" if key else measure
            if name not in own:
                continue
            values = {"vector": own[name]["value"], "trigrams, true words before": own[name]["baseline"]}
            values["commonest per place"] = own[name].get("others", {}).get("commonest_per_place")
            if measure == "right_ends":
                values["commonest length"] = own[name]["chance"]
            for row, value in values.items():
                if value is not None:
                    scale, unit = (1, "of 100") if measure == "bleu" else (100, "%")
                    column = measure.replace("_", " ")
                    figures.add(
                        "nested-sentences", f"{row}, {length} tokens", column, scale * value, command, unit=unit, digits=2
                    )


def _add_levels(figures: Figures, out: Path) -> None:
    """Measures of every level beside their baselines and chance. Decoded sentences of run A are in a table of their own."""
    for run_, table_, shown in (("A", "nested-sentence-measures", SENTENCE_MEASURES), ("B", "nested-levels", SHOWN)):
        for level, own in (found_in(out / run_, "test") or {}).get("levels", {}).items():
            for name in shown:
                if name in own and own[name]["count"]:
                    _add_measure(figures, table_, level, name, own[name], _command(run_, "test"))


def _add_measure(figures: Figures, table_: str, level: str, name: str, own: Mapping[str, Any], command: str) -> None:
    row = f"{level}: {NAMES.get(name, name.replace('_', ' ').replace('.', ', '))}"
    goal, note = GOALS.get((level, name)), ""
    if goal is not None:
        p = f" (p of the difference: {own['p']:.2g})" if "p <" in goal[0] else ""
        note = f"goal: {goal[0]}: {'reached' if goal[1](own) else 'missed'}{p}"
    for column in ("value", "baseline", "chance"):
        if own[column] is not None:
            more = {"p": own.get("p"), "note": note} if column == "value" else {}
            figures.add(table_, row, column, own[column], command, unit="", **more)
    for other, value in own.get("others", {}).items():
        if value is not None:
            figures.add(table_, row, other.replace("_", " "), value, command, unit="")
    figures.add(table_, row, "count", own["count"], command, unit="items", digits=0)


SHORT_LOSSES = {
    "mlm_token": "masked tokens",
    "reconstruction_sentence": "tokens of a sentence",
    "mlm_sentence": "masked sentences",
    "reconstruction_paragraph": "sentences of a paragraph",
    "mlm_paragraph": "masked paragraphs",
    "reconstruction_chapter": "paragraphs of a chapter",
    "coherence_sentence": "replaced tokens",
    "coherence_paragraph": "replaced sentences",
    "coherence_chapter": "replaced paragraphs",
}
QUEUED = ("classes-learn", "plain-scores")
"""Short runs whose dev losses above the tokens have the queue among their candidates, as no later run has."""


def _add_short(figures: Figures, out: Path) -> None:
    """The short runs: dev losses at their end, and how alike the vectors of their best weights are."""
    for name in VARIANTS:
        folder = out / f"C-{name}"
        for loss, column in SHORT_LOSSES.items():
            coherence = loss.startswith("coherence")
            if coherence and name == "no-coherence":
                # Nothing is replaced, so the error is 0.
                continue
            own = loss in ("mlm_token", "reconstruction_sentence") or coherence
            if (losses := dev_losses(folder, f"dev_{loss}")) and (own or name not in QUEUED):
                command = train_command(_item(f"C-{name}"), Path("DATA"), Path("OUT"), "")
                unit = "squared error" if coherence else "nats"
                figures.add("nested-short", name, column, losses[max(losses)], command, unit=unit, digits=3)
    for run_ in ("C-base", "C-classes-learn", "C-plain-scores", "B"):
        for level, own in (found_in(out / run_, "spread") or {}).items():
            if level != "document":
                figures.add("nested-alike", run_, level, own["spread"], _command(run_, "spread"), unit="", digits=3)


def _add_cost(figures: Figures, out: Path) -> None:
    if not (found := found_in(out / "B", "cost")):
        return
    command = _command("B", "cost")
    for name in ("ours", "flat"):
        title = {"ours": "AGENT's encoder", "flat": "flat Transformer"}[name]
        for each in found[name]:
            row = f"{title}, {each['tokens']:,} tokens"
            figures.add("nested-cost", row, "multiply-adds", each["operations"] / 1e9, command, unit="billions", digits=2)
            figures.add("nested-cost", row, "time", each["seconds"], command, unit="s", digits=2)
        if name == "flat":
            for each in found["ours"]:
                if each["tokens"] > 1.1 * max(one["tokens"] for one in found["flat"]):
                    row, counted = f"{title}, {each['tokens']:,} tokens", each["flat_operations"] / 1e9
                    figures.add("nested-cost", row, "multiply-adds", counted, command, unit="billions", digits=2)
        for kind, column in (("operations", "multiply-adds"), ("seconds", "time")):
            if f"{name}_slope_{kind}" in found:
                slope = found[f"{name}_slope_{kind}"]
                figures.add("nested-cost", f"{title}, slope", column, slope, command, unit="log-log", digits=3)
    row = f"a novel from its text, {found['novel']['tokens']:,} tokens"
    figures.add("nested-cost", row, "time", found["novel"]["seconds"], command, unit="s", digits=1)
    figures.add("nested-cost", row, "peak memory", found["novel"]["peak_mib"], command, unit="MiB", digits=0)


def add_sick(figures: Figures, table_: str, row: str, found: Mapping[str, Any], command: str) -> None:
    for key, value in found.items():
        if key not in ("pairs", "sentences"):
            figures.add(table_, row, key.replace("_", " "), value, command, unit="Spearman")


def add_retrieval(figures: Figures, table_: str, found: Mapping[str, Any], command: str) -> None:
    for level, own in found.items():
        for name, measure in own.items() if level != "notes" else ():
            if "recall_at_10" in name and measure["count"]:
                values = {"AGENT": measure["value"], "siblings, own mean": measure["baseline"]}
                values |= {key: measure.get("others", {}).get(key) for key in ("tfidf",)}
                values |= {"siblings, MiniLM mean": measure["minilm"], "chance": measure["chance"]}
                for column, value in values.items():
                    if value is not None:
                        row = f"{level}: {name.replace('_', ' ').replace('.', ', ')}"
                        figures.add(table_, row, column, 100 * value, command, unit="%", digits=2)


def add_author(figures: Figures, tables: tuple[str, str], found: Mapping[str, Any], command: str) -> None:
    """Authors of nodes, and of runs of sentences, in a table each."""
    of_nodes, of_runs = tables
    for level in ("paragraph", "chapter"):
        for key, value in found.get(level, {}).items():
            if key != "nodes":
                figures.add(of_nodes, level, key.replace("_", " "), 100 * value, command, unit="%", digits=2)
    for size, own in found["growing_text"].items():
        for key, value in own.items():
            if isinstance(value, float):
                figures.add(of_runs, key.replace("_", " "), f"{size}", 100 * value, command, unit="%", digits=2)


def _add_use(figures: Figures, out: Path) -> None:
    """Relatedness of sentences, authors of nodes, and the depth of checkers."""
    for name in ("A", "B", "C-base", "C-no-sentence-mlm"):
        if found := found_in(out / name, "sick"):
            add_sick(figures, "nested-sick", name, found, _command(name, "sick"))
    if found := found_in(out / "B", "retrieval"):
        add_retrieval(figures, "nested-retrieval", found, _command("B", "retrieval"))
    if found := found_in(out / "B", "author"):
        add_author(figures, ("nested-author", "nested-growing"), found, _command("B", "author"))
    if found := found_in(out / "B", "checker"):
        command = _command("B", "checker")
        for level, own in found.items():
            for key, value in own.items():
                if not key.endswith(("spread", "rows")):
                    spread = own.get(f"{key}_spread")
                    seeds = (0, 1, 2) if spread is not None else ()
                    figures.add(
                        "nested-checker",
                        level,
                        key.replace("_", " "),
                        value,
                        command,
                        unit="",
                        spread=spread,
                        seeds=seeds,
                        digits=5,
                    )


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot reconstruction of sentences against tokens, and the losses of all levels during training."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "ramify"
    figure, ((left, middle), (right, last)) = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for number, name in enumerate(("S-2048", "S-512", "S-512-no-dropout", "A")):
        if losses := dev_losses(arguments.out / name, "dev_reconstruction_sentence"):
            left.plot([at / 1e6 for at in losses], list(losses.values()), "o-", markersize=3, color=f"C{number}", label=name)
    left.set(xlabel="tokens, millions", ylabel="nats per token", title="dev loss of a sentence from its vector")
    points = found_list(arguments.out / "A", "curve")
    for number, point in enumerate(("token_accuracy", "right_ends", "bleu", "exact_match")):
        name = point.replace("_", " ")
        for line, style, label in (
            (point, "o-", name),
            (f"{point}_trigrams", "--", f"{name}, trigrams"),
            (f"{point}_commonest_per_place", ":", f"{name}, commonest tokens"),
        ):
            # Floors of BLEU and exact matches lie below 1.
            if points and line in points[0] and (style == "o-" or point in ("token_accuracy", "right_ends")):
                values = [each[line] * (1 if point == "bleu" else 100) for each in points]
                tokens = [each["tokens"] / 1e6 for each in points]
                middle.plot(tokens, values, style, markersize=3, color=f"C{number}", label=label)
    middle.set(xlabel="tokens, millions", ylabel="% (BLEU: of 100)", title="sentences of dev from one vector (A)")
    # Room for the legend.
    middle.set_ylim(-3, 145)
    for number, level in enumerate(("sentence", "paragraph", "chapter", "document")):
        if losses := dev_losses(arguments.out / "B", f"dev_reconstruction_{level}"):
            right.plot([at / 1e6 for at in losses], list(losses.values()), "o-", markersize=3, color=f"C{number}", label=level)
    right.set_yscale("log")
    right.set_yticks([0.3, 0.5, 1, 2, 5], labels=["0.3", "0.5", "1", "2", "5"], minor=False)
    right.set_yticks([], minor=True)
    right.set(
        xlabel="tokens, millions",
        ylabel="loss (nats; above tokens divided by √d)",
        title="dev loss of a node's children from its vector (B)",
    )
    for number, level in enumerate(("sentence", "paragraph", "chapter")):
        for name, style in (("base", "o-"), ("staged", "s--")):
            if losses := dev_losses(arguments.out / f"C-{name}", f"dev_reconstruction_{level}"):
                tokens = [at / 1e3 for at in losses]
                last.plot(tokens, list(losses.values()), style, markersize=3, color=f"C{number}", label=f"{level}, {name}")
    last.set(
        xlabel="tokens, thousands",
        ylabel="nats per child",
        title="dev loss of a node's children from its vector (C-base, C-staged)",
    )
    for axes in (left, middle, right, last):
        axes.title.set_fontsize(10)
        if axes.get_legend_handles_labels()[0]:
            place = {"loc": "upper left", "ncols": 2} if axes is middle else {"loc": "best" if axes is left else "center right"}
            axes.legend(fontsize=7, **place)
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


def found_list(folder: Path, label: str) -> list[Mapping[str, Any]]:
    file = folder / f"{label}.json"
    return json.loads(file.read_text()) if file.exists() else []


def add_table(commands: Any, call: Callable[[argparse.Namespace], None]) -> None:
    """Add the command `table` to those of a benchmark."""
    command = commands.add_parser("table", help=(call.__doc__ or "").partition("\n")[0])
    command.set_defaults(call=call)
    command.add_argument("--out", type=Path, required=True, help="folder of the runs, or the table that `keep` wrote")
    command.add_argument("--rows", type=Path, help="file of rows to write, benchmarks/results/EXPERIMENT.jsonl")
    command.add_argument("--commit", help="commit of the runs (default: that of the checkout)")
    command.add_argument("--measured", help="commit of the measurements (default: that of the checkout)")
    command.add_argument("--machine", default="A", help="key of the hardware in results/machines.toml")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    add_keep(commands, keep)
    add_table(commands, table)
    for function in (plan, prepare, run, curve, picture):
        own = commands.add_parser(function.__name__, help=(function.__doc__ or "").partition("\n")[0])
        own.set_defaults(call=function)
        if function in (prepare, run, curve):
            own.add_argument("--data", type=Path, required=True)
        if function not in (plan, prepare):
            own.add_argument("--out", type=Path, required=True, help="folder of the runs, or the table that `keep` wrote")
        if function in (run, curve):
            own.add_argument("names", nargs="+")
        if function is prepare:
            own.add_argument("--books", type=Path, required=True, help="folder of Standard Ebooks")
        if function is curve:
            own.add_argument("--weights", type=Path, required=True, help="folder of STEP.safetensors")
        if function is picture:
            own.add_argument("--svg", type=Path, required=True)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

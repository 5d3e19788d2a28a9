"""Train levels above sentences on the vectors of trained sentences, measure them on held-out novels, and pool their seeds.

    python benchmarks/nested_learning.py plan
    python benchmarks/nested_learning.py run --data DATA --out OUT A-sentences A-learn-0
    python benchmarks/nested_learning.py keep --out OUT --to benchmarks/scores/nested_learning.parquet
    python benchmarks/nested_learning.py table --out benchmarks/scores/nested_learning.parquet [--rows ROWS.jsonl]

DATA is made by `nested_runs.py prepare`, and DATA/minilm is a copy of all-MiniLM-L6-v2. `run` carries out the commands of the
plan and skips those whose results are already there; the same command continues an interrupted run. ROWS.jsonl is
benchmarks/results/nested_learning.jsonl. Settings are chosen on dev.
"""

import argparse
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import Figures, Item, carry_out, found_in, print_plan, score_command
from nested_runs import (
    BOOKS,
    EVALUATE,
    MEASURE,
    NO_DROPOUT,
    SENTENCES,
    add_table,
    add_use,
    keep_items,
)
from ramify.inference.documents.coherence import error_difference
from ramify.inference.documents.measures import Measure
from ramify.inference.documents.ranks import Ranks
from raw_scores import add_keep, reads_runs
from rows import current_commit, replace_rows

SEEDS = (0, 1, 2)
QUERIES = 2_500
"""Hidden nodes, decoded rows and probed children per level and seed. On dev, 84 % of the hidden sentences have parents of
`LEAST_CHILDREN`, which would leave more than 2,000."""

LEAST_CHILDREN = 3
"""Only children of rows with at least so many are looked for: a single sibling is no context."""

ABOVE, REFIT, THAWED = 6_000_000, 500_000, 300_000
"""Tokens of each level above sentences, of the sentences' decoder, and of the last run, in which all levels learn."""

WITH_SIBLING_PATH = "--set task.sibling_path=true"
"""All runs have it but the one without, after which the recipe left it out."""

WITHOUT = {
    "token-skip": "model.token_skip=false train.lr_scale=[] train.undecayed=[]",
    "compressor-skip": "model.compressor_skip=none",
    "decompressor-skip": "model.decompressor_skip=false",
    "short-positions": "model.decoder_position_scale=1",
    "sibling-path": "task.sibling_path=false",
    # Both settings keep vectors from collapsing that have no cosine scores.
    "cosine": "task.scores=plain task.balanced=true task.classes_detached=true",
    "deep-head": "task.head=gelu",
    "foreign": "task.foreign=0",
    "sibling-product": "model.sibling_product=false",
    "children-classes": "task.classes=all_marks",
    "norm-and-scales": "model.children_norm=false model.mark_scale=unit",
}
"""The options that are left out one by one, and the settings that leave them out."""

OF_CHAPTERS = (
    *(f"{kind}_chapter" for kind in ("reconstruction", "coherence", "autoencoder", "length")),
    "mlm_paragraph",
    "foreign_paragraph",
)
"""The losses of chapters, which the runs of the ablation leave out: options are judged by paragraphs."""


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    above = "agent --data DATA/books --init OUT/A-sentences"
    measures = f"{MEASURE} measures --run RUN --data DATA/books --items RUN/items.npz --rows {QUERIES} --threads 1"
    upper = "--levels paragraph,chapter,document"
    plan_ = [
        Item(
            "A-sentences",
            f"agent-sentence {BOOKS} --target-tokens {SENTENCES} {NO_DROPOUT} --set train.budget=512 "
            "--set train.evaluate_every=500 --set train.checkpoint_every=250",
            0.8,
            scores={"test": EVALUATE, "sick": f"{MEASURE} sick --run RUN --minilm DATA/minilm --threads 1"},
        ),
    ]
    for seed in SEEDS:
        scores = {"test": f"{measures} {'' if seed == 0 else upper}"}
        if seed == 0:
            scores |= {
                "sick": f"{MEASURE} sick --run RUN --minilm DATA/minilm --threads 1",
                "retrieval": f"{MEASURE} retrieval --run RUN --data DATA/books --minilm DATA/minilm --threads 1",
                "author": f"{MEASURE} author --run RUN --data DATA/books --minilm DATA/minilm --threads 1",
            }
        long = f"{above} --above-tokens {ABOVE} --decoder-tokens {REFIT} --all-tokens 0"
        plan_.append(Item(f"A-learn-{seed}", f"{long} {WITH_SIBLING_PATH} --seed {seed}", 0.35, scores=scores))
    # Without the stage of the sentences' decoder.
    short = f"{above} --above-tokens {ABOVE} --decoder-tokens 0 --all-tokens 0"
    short += f" --set task.above=together --set {shlex.quote(f'task.without={json.dumps(OF_CHAPTERS)}')}"
    dev = {"dev": "ramify evaluate RUN --data DATA/books --split dev --levels paragraph --rows 1500 --json"}
    plan_ += [Item(f"A-6M-{seed}", f"{short} {WITH_SIBLING_PATH} --seed {seed}", 0.12, scores=dev) for seed in SEEDS]
    for name, settings in WITHOUT.items():
        changed = " ".join(f"--set {setting}" for setting in settings.split())
        path = "" if "sibling_path" in settings else f" {WITH_SIBLING_PATH}"
        plan_.append(Item(f"A-without-{name}", f"{short}{path} {changed}", 0.12, scores=dev))
    thawed = (
        f"agent --data DATA/books --init OUT/A-learn-0 {WITH_SIBLING_PATH} --set task.frozen=null --set task.above=together"
    )
    thawed += f" --set train.lr=5e-4 --above-tokens {THAWED} --decoder-tokens 0 --all-tokens 0"
    plan_.append(Item("A-thawed", thawed, 0.15, scores=dev))
    return plan_


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def run(arguments: argparse.Namespace) -> None:
    carry_out(items(), arguments.names, arguments.data, arguments.out)


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores, the queries and the dev losses of finished runs to a table, without the models."""
    keep_items(items(), arguments.out, arguments.to)


# --- pooled seeds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seeds:
    """The scores of one model that was trained with several seeds."""

    levels: Sequence[Mapping[str, Mapping[str, Any]]]
    """For each seed: measures by level and name."""
    items: Sequence[Mapping[str, NDArray[Any]]]
    """For each seed: the arrays that `nested_documents.py measures` writes."""

    @classmethod
    def finished(cls, out: Path, names: Sequence[str], label: str = "test") -> "Seeds":
        """The scores of those runs that have them."""
        folders = [out / name for name in names if found_in(out / name, label)]
        files = [folder / "items.npz" for folder in folders]
        arrays = [dict(np.load(file)) if file.exists() else {} for file in files]
        return cls([(found_in(folder, label) or {})["levels"] for folder in folders], arrays)

    def __len__(self) -> int:
        return len(self.levels)

    def values(self, level: str, name: str) -> list[Mapping[str, Any]]:
        """A measure of each seed that has it."""
        measures = (levels.get(level, {}).get(name) for levels in self.levels)
        return [measure for measure in measures if measure and measure["count"]]

    def arrays(self, level: str, name: str) -> list[dict[str, NDArray[Any]]]:
        """The arrays behind a measure, of each seed that has them."""
        start = f"{level}/{name}/"
        by_seed = [
            {key.removeprefix(start): values for key, values in items.items() if key.startswith(start)} for items in self.items
        ]
        return [arrays for arrays in by_seed if arrays]

    def ranks(self, level: str, name: str) -> list[Ranks]:
        """The queries of each seed whose targets have enough siblings. Seeds have the same queries."""
        parts = [Ranks.of(part) for part in self.arrays(level, name)]
        parts = [part.some(part.siblings >= LEAST_CHILDREN) for part in parts]
        return [part for part in parts if len(part.unit)]

    def error(self, level: str, name: str) -> Measure | None:
        """The checker's error on the rows of all seeds, beside that of the marks alone."""
        parts = self.arrays(level, name)
        if not any(len(part["error"]) for part in parts):
            return None
        error, marks = (np.concatenate([part[key] for part in parts]) for key in ("error", "by_marks"))
        row = np.concatenate([np.arange(len(part["error"])) for part in parts])
        p = error_difference(error, marks, row)
        return Measure(float(error.mean()), float(marks.mean()), math.nan, len(parts[0]["error"]), p)


Test = Callable[[float], bool]


@dataclass(frozen=True)
class Goal:
    """A figure that was set before the runs."""

    text: str
    reached: Test
    p: bool = False
    """Whether the difference from the baseline must have p < .01."""

    def note(self, value: float, p: float | None) -> str:
        good = self.reached(value) and (not self.p or (p is not None and p < 0.01))
        return f"goal: {self.text}: {'reached' if good else 'missed'}"


def at_least(least: float, *, p: bool = False) -> Goal:
    return Goal(f"at least {least:g}{', p < .01' if p else ''}", lambda value: value >= least, p)


def more_than(bound: float) -> Goal:
    return Goal(f"more than {bound:g}", lambda value: value > bound)


def at_most(most: float, *, p: bool = False) -> Goal:
    return Goal(f"at most {most:g}{', p < .01' if p else ''}", lambda value: value <= most, p)


@dataclass(frozen=True)
class Line:
    """A line of the table of a level: a figure of pooled seeds, beside its baselines."""

    title: str
    value: float
    baselines: Mapping[str, float]
    count: int
    """The number of items of one seed."""
    p: float | None = None
    by_seed: Sequence[float] = ()


GOALS = {
    ("paragraph", "hidden child, first ten / own siblings"): at_least(1.3, p=True),
    ("paragraph", "hidden child, AUROC"): at_least(0.8),
    ("paragraph", "hidden child of the same chapter, first ten / TF-IDF"): at_least(0.9),
    ("paragraph", "squared error of the share of intruders / marks alone"): at_most(0.95, p=True),
    ("paragraph", "intruder of another book, AUROC of the checker"): at_least(0.72),
    ("paragraph", "intruder of the same book, AUROC of the checker"): at_least(0.68),
    ("paragraph", "child from the vector, first ten"): at_least(0.6),
    ("paragraph", "effective rank"): at_least(15),
    ("paragraph", "decoded sentences, token accuracy / trigrams, true words before"): more_than(1),
    ("chapter", "squared error of the share of intruders / marks alone"): at_most(1),
}
"""Goals by the level whose model is measured and the line of its table."""

NEAR = {"paragraph": "of the same chapter", "chapter": "of the same book", "document": "of the same work"}
"""Near candidates of the children of each level. A document has none."""
CHILD = {"paragraph": "sentence", "chapter": "paragraph", "document": "chapter"}


def lines(seeds: Seeds, level: str) -> Iterator[Line]:
    """All figures of a level above sentences."""
    for choice, near in (("", ""), (".nearby", f" {NEAR[level]}")):
        yield from _ranked(f"hidden child{near}", "own siblings", seeds.ranks(CHILD[level], f"mlm_auroc{choice}"))
    for choice, near in (("", ""), (".nearby", f" {NEAR[level]}")):
        ranks = seeds.ranks(level, f"member_auroc{choice}")
        yield from _ranked(f"child from the vector{near}", "mean of all children", ranks)
    if error := seeds.error(level, "coherence_mse.other_documents"):
        title = "squared error of the share of intruders"
        yield Line(title, error.value, {"marks alone": error.baseline}, error.count, error.p)
        yield from _ratio(title, error.value, "marks alone", error.baseline, error.count, error.p)
    for choice, source in (("", "of another book"), (".nearby", NEAR[level]), (".same_document", "of the same book")):
        for system, judge in (("", "the checker"), (".foreign", "the head of children")):
            values = seeds.values(level, f"probing_auroc{choice}{system}")
            yield from _means(f"intruder {source}, AUROC of {judge}", values, {"own cosine": "baseline"})
    for name in ("effective_rank", "spread"):
        yield from _means(name.replace("_", " "), seeds.values(level, name), {})
    trigrams = "trigrams, true words before"
    for name in ("token_accuracy", "exact_match", "right_ends", "bleu"):
        title = f"decoded sentences, {name.replace('_', ' ')}"
        for line in _means(title, seeds.values(level, f"decoded_{name}"), {trigrams: "baseline", "own vectors": "own_vector"}):
            yield line
            if name == "token_accuracy" and trigrams in line.baselines:
                yield from _ratio(title, line.value, trigrams, line.baselines[trigrams], line.count)
    floors = {"baseline": "baseline", "chance": "chance"}
    for name in ("child_accuracy", "right_ends", "retrieval_recall_at_10", "retrieval_auroc"):
        yield from _means(f"children in place, {name.replace('_', ' ')}", seeds.values(level, name), floors)


OTHERS = {"centred": "own siblings, centred", "tfidf": "TF-IDF"}
"""Further baselines of ranks: their keys and their columns."""


def _ranked(title: str, baseline: str, by_seed: Sequence[Ranks]) -> Iterator[Line]:
    """Recall at 10 and AUROC of the queries of all seeds, and the ratios of the former to its baselines."""
    if not by_seed:
        return
    ranks, count = Ranks.pooled(by_seed), len(by_seed[0].unit)
    first, auroc = ranks.first(10), ranks.auroc()
    for kind, measure in (("first ten", first), ("AUROC", auroc)):
        beside = {baseline: measure.baseline, "chance": measure.chance}
        beside |= {OTHERS[key]: value for key, value in measure.others.items()}
        yield Line(f"{title}, {kind}", measure.value, beside, count, measure.p)
    yield from _ratio(f"{title}, first ten", first.value, baseline, first.baseline, count, first.p)
    for key, value in first.others.items():
        yield from _ratio(f"{title}, first ten", first.value, OTHERS[key], value, count)


def _ratio(title: str, value: float, name: str, baseline: float, count: int, p: float | None = None) -> Iterator[Line]:
    """The ratio of a figure to a baseline that is not 0."""
    if baseline:
        yield Line(f"{title} / {name}", value / baseline, {}, count, p)


def _means(title: str, values: Sequence[Mapping[str, Any]], baselines: Mapping[str, str]) -> Iterator[Line]:
    """The mean over seeds of a measure and of its baselines, which are named by their keys."""
    if not values:
        return
    by_seed = [float(value["value"]) for value in values]
    columns = {name: [value.get("others", {}).get(key, value.get(key)) for value in values] for name, key in baselines.items()}
    means = {name: float(np.mean(column)) for name, column in columns.items() if None not in column}
    yield Line(title, float(np.mean(by_seed)), means, values[0]["count"], by_seed=by_seed)


# --- results ---------------------------------------------------------------------------------------------------------------


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.measured or commit, arguments.machine, MEASURE)
    add_levels(figures, arguments.out)
    add_ablation(figures, arguments.out)
    add_use(figures, arguments.out, _command, "nested-learn", ("A-sentences", "A-learn-0"), "A-learn-0")
    for row in figures.rows:
        print(f"{row.table:<22} {row.row:<60} {row.column:<26} {row.value} {row.unit} {row.note}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


def _command(name: str, label: str) -> str:
    return score_command({item.name: item for item in items()}[name], label, Path("DATA"), Path("OUT"))


def add_levels(figures: Figures, out: Path) -> None:
    """All figures of each level, with the seeds pooled."""
    names = [f"A-learn-{seed}" for seed in SEEDS]
    seeds = Seeds.finished(out, names)
    for level in CHILD if len(seeds) else ():
        for line in lines(seeds, level):
            add_line(figures, f"nested-learn-{level}", level, line, _command(names[0], "test"), range(len(seeds)))


def add_line(figures: Figures, table_: str, level: str, line: Line, command: str, seeds: Sequence[int]) -> None:
    goal = GOALS.get((level, line.title))
    spread = float(np.std(line.by_seed, ddof=1)) if len(line.by_seed) > 1 else None
    note = "" if goal is None else goal.note(line.value, line.p)
    figures.add(
        table_, line.title, "value", line.value, command, unit="", p=line.p, note=note, spread=spread, seeds=tuple(seeds)
    )
    for name, value in line.baselines.items():
        figures.add(table_, line.title, name, value, command, unit="", seeds=tuple(seeds))
    figures.add(table_, line.title, "count", line.count, command, unit="items", digits=0, seeds=tuple(seeds))


ABLATED: Mapping[str, tuple[str, str]] = {
    "hidden sentence, AUROC": ("sentence", "mlm_auroc"),
    "hidden sentence, first ten": ("sentence", "mlm_recall_at_10"),
    "intruders, error / marks alone": ("paragraph", "coherence_mse.other_documents"),
    "intruder, AUROC": ("paragraph", "probing_auroc"),
    "sentence from the vector, first ten": ("paragraph", "member_recall_at_10"),
    "effective rank": ("paragraph", "effective_rank"),
    "hidden sentence of the same chapter, first ten": ("sentence", "mlm_recall_at_10.nearby"),
    "intruder of the same book, AUROC": ("paragraph", "probing_auroc.same_document"),
}
"""The columns of the ablation: level and measure. Options are judged by the first and the third, those of the decoder by the
fifth."""


def add_ablation(figures: Figures, out: Path) -> None:
    """The measures on dev of each run that leaves an option out, and of the one in which all levels learn at last, below the
    mean and the spread of the runs with all options."""
    base = Seeds.finished(out, [f"A-6M-{seed}" for seed in SEEDS], "dev")
    runs = [("all options", base, "A-6M-0")]
    for name in WITHOUT:
        runs.append((f"without {name}", Seeds.finished(out, [f"A-without-{name}"], "dev"), f"A-without-{name}"))
    runs.append(("then all levels together", Seeds.finished(out, ["A-thawed"], "dev"), "A-thawed"))
    for row, seeds, first in runs:
        for column, (level, name) in ABLATED.items():
            values = [shown_value(column, measure) for measure in seeds.values(level, name)]
            if values:
                spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
                figures.add(
                    "nested-ablation",
                    row,
                    column,
                    float(np.mean(values)),
                    _command(first, "dev"),
                    unit="",
                    spread=spread,
                    seeds=tuple(range(len(values))),
                )


def shown_value(column: str, measure: Mapping[str, Any]) -> float:
    """The value of a measure, or its ratio to the baseline in columns that say so."""
    return measure["value"] / measure["baseline"] if "/" in column else measure["value"]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("plan", help="print all runs").set_defaults(call=plan)
    run_ = commands.add_parser("run", help="carry out runs")
    run_.set_defaults(call=run)
    run_.add_argument("--data", type=Path, required=True)
    run_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    run_.add_argument("names", nargs="+")
    add_keep(commands, keep)
    add_table(commands, table)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

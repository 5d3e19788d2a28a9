"""Copyediting with controls: does a step towards the prediction from siblings do more than a step towards their mean?

    python benchmarks/copyedit.py plan
    python benchmarks/copyedit.py run --data DATA --out OUT checker judge copyedited copyedited-test
    python benchmarks/copyedit.py keep --out OUT --to benchmarks/scores/copyedit.parquet
    python benchmarks/copyedit.py table --out benchmarks/scores/copyedit.parquet [--rows ROWS.jsonl]

DATA is made by `nested_runs.py prepare`. OUT holds two runs of `nested_learning.py`: A-sentences and A-learn-0, the model that
copyedits. The checker is of another seed, learns from vectors of the same frozen sentences, without marks, and takes no part
in the training of that model. The judge is a gpt on the same books. A document is one paragraph of a held-out novel, so that
only vectors of sentences are edited: the level whose predictions that model has learned. ε is chosen on dev: the one at which
the step towards the prediction gains most coherence. The claim holds only if this step gains more coherence than that towards
the mean of the siblings.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments import Figures, Item, carry_out, found_in, print_plan, score_command
from nested_runs import add_table, keep_items
from ramify.metrics.intervals import bootstrap_ratio
from raw_scores import add_keep, reads_runs
from rows import current_commit, replace_rows

if TYPE_CHECKING:
    from ramify.dataset.store import Store
    from ramify.inference.documents.pipeline import DocumentPipeline
    from ramify.tree import Tree

EDITOR = "A-learn-0"
DEV, TEST = "copyedited", "copyedited-test"
TOWARDS = ("masked", "siblings_mean", "random_vector", "noise")
EPSILONS = (0.1, 0.3, 0.6)
PASSES = 3
DOCUMENTS = {"dev": 150, "test": 500}
SENTENCES = 4
"""The fewest sentences of a paragraph that is copyedited."""
TITLES = {
    "masked": "prediction from siblings",
    "siblings_mean": "mean of siblings",
    "random_vector": "random known vector",
    "noise": "noise of equal length",
}


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    unmarked = " ".join(f"--set {setting}" for setting in ("task.marks=none", "task.foreign=0", "model.sibling_product=false"))
    checker = (
        "agent --data DATA/books --init OUT/A-sentences --above-tokens 6000000 --decoder-tokens 0 --all-tokens 0 --seed 1 "
        f"{unmarked}"
    )
    measure_ = (
        "python benchmarks/copyedit.py measure --run RUN --checker OUT/checker --judge OUT/judge --data DATA/books --threads 1"
    )
    scores = {
        split: f"{measure_} --split {split} --documents {number} --passes {PASSES}" for split, number in DOCUMENTS.items()
    }
    return [
        Item("checker", checker, 0.35),
        Item("judge", "gpt --data DATA/books --tokenizer DATA/tokenizer.json --steps 800", 0.3),
        Item(
            DEV,
            "",
            0.3,
            scores={f"{epsilon:g}": f"{scores['dev']} --epsilon {epsilon:g}" for epsilon in EPSILONS},
            trained=EDITOR,
        ),
        Item(TEST, "", 0.3, rate_of=DEV, scores={"test": f"{scores['test']} --epsilon RATE"}, trained=EDITOR),
    ]


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def run(arguments: argparse.Namespace) -> None:
    def epsilon(name: str) -> str:
        return f"{chosen_epsilon(arguments.out / name):g}"

    carry_out(items(), arguments.names, arguments.data, arguments.out, epsilon)


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores of finished runs to a table, without the models."""
    keep_items(items(), arguments.out, arguments.to)


# --- measurements ----------------------------------------------------------------------------------------------------------


def documents(store: "Store", split: Any, most: int) -> Iterator["Tree"]:
    """At most so many paragraphs of a split with `SENTENCES` sentences or more, evenly spread, each as a document of its own.
    Nodes keep their ids."""
    from ramify.inference.documents.measures import spread
    from ramify.tree import DOCUMENT, Node, Tree

    found: list[tuple[int, int]] = []
    trees = {int(number): store.tree(int(number)) for number in store.split(split)}
    for number, tree in trees.items():
        # A paragraph's subtree is itself and its sentences.
        found += [
            (number, top)
            for top, node in enumerate(tree.nodes)
            if node.kind == "paragraph" and tree.subtree_sizes[top] > SENTENCES
        ]
    for place in spread(len(found), most).tolist():
        number, top = found[place]
        tree = trees[number]
        paragraph, *sentences = tree.nodes[top : top + int(tree.subtree_sizes[top])]
        nodes = [Node(kind=DOCUMENT, id=tree.nodes[0].id), replace(paragraph, parents=(0,))]
        nodes += [replace(sentence, parents=(1,)) for sentence in sentences]
        yield Tree(tuple(nodes), id=f"{tree.id} {paragraph.id}")


def measure(arguments: argparse.Namespace) -> None:
    """Copyedit documents towards each goal. Prints, per document, the coherence, the surprise and the edits of each
    version."""
    import torch

    import ramify
    from ramify.dataset.store import Store
    from ramify.inference.documents.copyedit import Copyediting
    from ramify.inference.documents.copyedited_documents import copyedit_document
    from ramify.inference.documents.text import passages
    from ramify.inference.perplexity import surprise

    torch.set_num_threads(arguments.threads)
    editor: Any = ramify.load(arguments.run)
    checker: Any = ramify.load(arguments.checker)
    judge = ramify.load(arguments.judge)
    store = Store.open(arguments.data)
    known = editor.known_vectors(store).levels
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("before", *TOWARDS)}
    for document in documents(store, arguments.split, arguments.documents):
        versions: dict[str, tuple[Tree, float]] = {"before": (document, 0.0)}
        for towards in TOWARDS:
            settings = Copyediting(
                arguments.epsilon, arguments.passes, propagate=arguments.propagate, towards=towards, seed=arguments.seed
            )
            edited = copyedit_document(editor.task, document, settings, known)
            versions[towards] = edited.after, edited.change_rate
        for name, (tree, rate) in versions.items():
            under = surprise(judge, passages(tree))
            record = {"document": document.id, "coherence": coherence(checker, tree), "change_rate": rate}
            found[name].append(record | {"nats": under.nats, "tokens": under.tokens})
    print(json.dumps(found))


def coherence(checker: "DocumentPipeline", tree: "Tree") -> float | None:
    """The mean coherence of a document's nodes above sentences with several children; None if there is none."""
    scores = checker.mean_coherence(tree)
    return None if math.isnan(scores) else scores


# --- results ---------------------------------------------------------------------------------------------------------------


def paired(found: dict[str, list[dict[str, Any]]], one: str, other: str, measure_: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The difference of two versions of each document that has the measure, and a weight for each."""
    pairs = [(a, b) for a, b in zip(found[one], found[other], strict=True) if a["coherence"] is not None is not b["coherence"]]
    if measure_ == "coherence":
        differences = [a["coherence"] - b["coherence"] for a, b in pairs]
    else:
        # Nats per token of each document: a document counts once, however long it is.
        differences = [a["nats"] / max(1, a["tokens"]) - b["nats"] / max(1, b["tokens"]) for a, b in pairs]
    return np.array(differences, dtype=np.float64), np.ones(len(differences), dtype=np.int64)


def gain(found: dict[str, list[dict[str, Any]]], towards: str) -> float:
    """The mean gain of coherence."""
    differences, _ = paired(found, towards, "before", "coherence")
    return float(differences.mean()) if len(differences) else -math.inf


def chosen_epsilon(out: Path) -> float:
    """The ε at which the step towards the prediction gains most coherence on dev, whose scores are in this folder."""
    gains = {epsilon: found_in(out, f"{epsilon:g}") for epsilon in EPSILONS}
    known = {epsilon: gain(found, "masked") for epsilon, found in gains.items() if found is not None}
    return max(known, key=lambda epsilon: known[epsilon])


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.measured or commit, arguments.machine, "python")
    known = {item.name: item for item in items()}
    for epsilon in EPSILONS:
        found = found_in(arguments.out / DEV, f"{epsilon:g}")
        if found is not None:
            command = score_command(known[DEV], f"{epsilon:g}", Path("DATA"), Path("OUT"))
            add_versions(figures, f"dev, ε = {epsilon:g}", found, command)
    found = found_in(arguments.out / TEST, "test")
    if found is not None:
        epsilon = f"{chosen_epsilon(arguments.out / DEV):g}"
        command = score_command(known[TEST], "test", Path("DATA"), Path("OUT"), epsilon)
        add_versions(figures, f"test, ε = {epsilon}", found, command)
    for row in figures.rows:
        print(f"{row.table:<12} {row.row:<36} {row.column:<28} {row.value} {row.unit} {row.note}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


def add_versions(figures: Figures, where: str, found: dict[str, list[dict[str, Any]]], command: str) -> None:
    """The figures of the versions of documents at one ε. The claim is judged on test."""
    table_ = f"copyedit-{where.partition(',')[0]}"

    def compared(row: str, column: str, one: str, other: str, measure_: str, unit: str, goal: str = "") -> None:
        differences, weights = paired(found, one, other, measure_)
        if not len(differences):
            return
        found_ = bootstrap_ratio(differences, weights)
        bounds = {"low": found_.low, "high": found_.high, "p": found_.p}
        note = goal and f"{goal}: {'holds' if found_.low > 0 else 'does not hold'}"
        figures.add(table_, f"{row}, {where}", column, found_.value, command, unit=unit, interval=bounds, note=note)

    known = [record for record in found["before"] if record["coherence"] is not None]
    coherence_ = float(np.mean([record["coherence"] for record in known]))
    figures.add(table_, f"before, {where}", "coherence", coherence_, command, unit="of 1")
    nats = float(np.mean([record["nats"] / max(1, record["tokens"]) for record in known]))
    figures.add(table_, f"before, {where}", "surprise", nats, command, unit="nats per token")
    for towards, title in TITLES.items():
        compared(title, "gain of coherence", towards, "before", "coherence", "of 1")
        compared(title, "change of surprise", towards, "before", "nats", "nats per token")
        rate = float(np.mean([record["change_rate"] for record in found[towards]]))
        figures.add(table_, f"{title}, {where}", "change rate", rate, command, unit="of tokens")
    for other in TOWARDS[1:]:
        goal = "claim" if table_ == "copyedit-test" and other == "siblings_mean" else ""
        row = f"prediction less {TITLES[other]}"
        compared(row, "gain of coherence", "masked", other, "coherence", "of 1", goal)
        compared(row, "change of surprise", "masked", other, "nats", "nats per token")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("plan", help="print all runs").set_defaults(call=plan)
    run_ = commands.add_parser("run", help="carry out runs")
    run_.set_defaults(call=run)
    run_.add_argument("--data", type=Path, required=True)
    run_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    run_.add_argument("names", nargs="+")
    measure_ = commands.add_parser("measure", help="copyedit documents towards each goal")
    measure_.set_defaults(call=measure)
    measure_.add_argument("--run", type=Path, required=True, help="the model that copyedits")
    measure_.add_argument("--checker", type=Path, required=True, help="another model with levels, which judges coherence")
    measure_.add_argument("--judge", type=Path, required=True, help="a language model, which judges fluency")
    measure_.add_argument("--data", type=Path, required=True, help="a built data set of documents")
    measure_.add_argument("--split", default="test")
    measure_.add_argument("--documents", type=int, default=DOCUMENTS["test"])
    measure_.add_argument("--epsilon", type=float, required=True)
    measure_.add_argument("--passes", type=int, default=PASSES)
    measure_.add_argument("--propagate", choices=("delta", "regenerate"), default="delta")
    measure_.add_argument("--seed", type=int, default=0, help="of random vectors and noise")
    measure_.add_argument("--threads", type=int, default=1)
    add_keep(commands, keep)
    add_table(commands, table)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

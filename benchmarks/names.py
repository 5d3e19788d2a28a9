"""Names that recur in a document: does a memory of names find them in other sentences, where they are planted, and in books?

    python benchmarks/names.py prepare --out DATA
    python benchmarks/names.py plan
    python benchmarks/names.py run --data DATA --out OUT leave-one-out-0 no-memory-0
    python benchmarks/names.py keep --out OUT --to benchmarks/scores/names.parquet
    python benchmarks/names.py table --out benchmarks/scores/names.parquet [--rows ROWS.jsonl]

`prepare` writes two data sets. In a document of DATA/names, each of 16 roles has one of 2,000 names, drawn at random. Four
sentences, at least five apart, mention the role with its name. So a hidden name can be known from the role alone by who has
read another of these sentences: without, one of 2,000 names is right by chance, and with all names of the document but not
their roles, one of 16. DATA/once is for the leak: there, each sentence has a name that no other sentence of its document has.

The runs on books need DATA/books, which `nested_runs.py prepare` makes, and OUT/A-sentences of `nested_learning.py`: a trained
model goes on with a memory, and without one.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments import Figures, Item, carry_out, found_in, print_plan, score_command
from nested_runs import NO_DROPOUT, add_table, keep_items
from raw_scores import add_keep, reads_runs
from rows import current_commit, replace_rows

if TYPE_CHECKING:
    from ramify.inference.documents.measures import HeldOut
    from ramify.inference.documents.name_measures import Gated
    from ramify.inference.documents.words import Words
    from ramify.tree import Tree

ROLES = (
    *("captain", "baker", "doctor", "teacher", "judge", "sailor", "painter", "farmer"),
    *("singer", "smith", "nurse", "guard", "priest", "clerk", "hunter", "queen"),
)
NAMES = 2_000
MENTIONS = 4
APART = 5
"""Sentences from one mention of a role to the next."""

VERBS = ("saw", "left", "found", "crossed", "watched", "liked", "feared", "knew", "entered", "sold", "painted", "guarded")
FORMS = ("{role} {name} {verb}", "{name} the {role} {verb}", "{verb} {role} {name}", "{verb} the {name} {role}")
"""Short, so that names are a fourth of all words, and two million tokens hold many of them."""
ONSETS, VOWELS, CODAS = "bdfgklmnprstvz", "aeiou", ("", "l", "n", "r", "s")
DOCUMENTS = {"train": 8_000, "dev": 40, "test": 200}
ONCE = 100
"""Documents whose names occur in one sentence."""


def all_names() -> list[str]:
    """The names, which are none of the other words."""
    syllables = [onset + vowel for onset in ONSETS for vowel in VOWELS]
    random = np.random.Generator(np.random.Philox(key=7))
    every = [f"{one}{other}{coda}".title() for one in syllables for other in syllables for coda in CODAS]
    return sorted(random.choice(every, NAMES, replace=False).tolist())


def order_of_roles(random: np.random.Generator) -> list[int]:
    """The role of each sentence: each occurs `MENTIONS` times, at least `APART` sentences apart."""
    while True:
        left, last = np.full(len(ROLES), MENTIONS), np.full(len(ROLES), -APART)
        order: list[int] = []
        for place in range(MENTIONS * len(ROLES)):
            # Roles with many mentions to come are likelier, so that few orders end in a corner.
            weights = np.where(last <= place - APART, left.astype(np.float64) ** 2, 0.0)
            if not weights.any():
                break
            role = int(random.choice(len(ROLES), p=weights / weights.sum()))
            left[role] -= 1
            last[role] = place
            order.append(role)
        else:
            return order


def document(name: str, names: Sequence[str], random: np.random.Generator, *, once: bool) -> dict[str, Any]:
    """A document as JSON. `once`: no name occurs in two sentences."""
    order = order_of_roles(random)
    chosen = random.choice(len(names), len(order) if once else len(ROLES), replace=False)
    nodes: list[dict[str, Any]] = [{"id": "0", "parent": None, "kind": "document", "text": ""}]
    for number, role in enumerate(order):
        form, verb = (each[int(random.integers(len(each)))] for each in (FORMS, VERBS))
        own = names[int(chosen[number if once else role])]
        text = form.format(role=ROLES[role], name=own, verb=verb)
        nodes.append({"id": str(number + 1), "parent": "0", "kind": "sentence", "text": text})
    return {"id": name, "nodes": nodes}


def documents(split: str, count: int, *, once: bool) -> Iterator[dict[str, Any]]:
    names = all_names()
    random = np.random.Generator(np.random.Philox(key=np.array([list(DOCUMENTS).index(split), once])))
    for number in range(count):
        yield document(f"{split}-{number}", names, random, once=once)


def prepare(arguments: argparse.Namespace) -> None:
    """Write the documents, and build the data sets."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, counts in (("names", DOCUMENTS), ("once", {"test": ONCE})):
        file, splits = arguments.out / f"{name}.jsonl", arguments.out / f"{name}-splits.tsv"
        made = [(split, each) for split, count in counts.items() for each in documents(split, count, once=name == "once")]
        file.write_text("".join(json.dumps(each) + "\n" for _, each in made))
        splits.write_text("".join(f"{each['id']}\t{split}\n" for split, each in made))
        build = ["ramify", "data", "build", str(file), "--format", "jsonl", "--split-by", str(splits)]
        subprocess.run([*build, "--out", str(arguments.out / name)], check=True)


# --- runs ------------------------------------------------------------------------------------------------------------------

SEEDS = (0, 1, 2)
QUERIES = 2_000
"""Hidden words of each class of books."""
SENTENCES = 3_000
"""Sentences of a test novel, from its beginning, that are read."""
GATED = 2_000
"""Sentences of books whose gates are opened."""
STEPS = 1_200
SIZES = {
    "model.dims": "[48,64]",
    "model.max_children": "[16]",
    "model.encoder_cells": "[1]",
    "model.decoder_cells": "[1]",
    "model.cells": "transformer",
    # Small at the start, unlike sinusoids: what all hidden tokens share would lead them to one question.
    "model.positions": "learned",
    "model.num_heads": "2",
    "model.dropout": "0",
    "model.attention_dropout": "0",
    # Names are single pieces.
    "tokenizer.kind": "word",
    "tokenizer.vocab_size": "2200",
    "tokenizer.lowercase": "false",
    # One word of each sentence is hidden, so that names often are.
    "task.mask_rate": "0.3",
    "task.queue": "0",
    # Masked words alone: nothing is decoded.
    "task.without": '["reconstruction_sentence","coherence_sentence","autoencoder_sentence"]',
    # A document is one example, and a batch holds four.
    "view.neighbours": "1000",
    "train.budget": "2048",
    "train.lr": "3e-3",
    "train.evaluate_every": "200",
    "train.checkpoint_every": "600",
    "dev.tokens": "10000",
}
BOOK_TOKENS = 400_000
# The gate of the runs that are kept. The default, as in the paper, is `states`.
MEMORY = "--names --set model.names.questions=128 --set model.names.update_gate=answers"
TOKENS = f"{MEMORY} --set model.names.average=tokens"
WAYS = {
    "leave-one-out": TOKENS,
    "with the own sentence": f"{TOKENS} --set model.names.leave_one_out=false",
    "mean of sentences": MEMORY,
    "mean of all sentences": f"{MEMORY} --set model.names.leave_one_out=false",
    "no memory": "",
}
"""The models, and the options by which they differ. The mean of all sentences is the paper's, with another gate."""


WIDTHS = (16, 96, 192)
"""Lengths of sentence vectors that are compared with and without a memory."""
SMALL_STEPS = 600


def settings_of(sizes: Mapping[str, str]) -> str:
    return " ".join(f"--set {shlex.quote(f'{name}={value}')}" for name, value in sizes.items())


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    settings = settings_of(SIZES)
    measure_ = "python benchmarks/names.py measure --run RUN --data DATA --items RUN/items.npz --threads 1"
    return (
        [
            Item(
                f"{way.replace(' ', '-')}-{seed}",
                f"agent-sentence --data DATA/names --steps {STEPS} --seed {seed} {settings} {options}",
                0.13,
                scores={"names": measure_},
            )
            for seed in SEEDS
            for way, options in WAYS.items()
        ]
        + [
            Item(
                f"books-{name}",
                f"agent-sentence --data DATA/books --init OUT/A-sentences --target-tokens {BOOK_TOKENS} {NO_DROPOUT} "
                f"--set view.neighbours=512 --set train.budget=2048 --set train.evaluate_every=100 {options}",
                0.2,
                scores={
                    "books": "python benchmarks/names.py books --run RUN --data DATA/books --items RUN/items.npz --threads 1"
                },
            )
            for name, options in (("with-names", TOKENS), ("no-memory", ""))
        ]
        + [
            Item(
                f"vectors-{width}-{way}",
                f"agent-sentence --data DATA/names --steps {SMALL_STEPS} --seed 0 {options} "
                + settings_of(
                    SIZES | {"model.dims": f"[64,{width}]", "task.without": '["coherence_sentence","autoencoder_sentence"]'}
                ),
                0.1,
                scores={"decoded": "python benchmarks/names.py decoded --run RUN --data DATA/names --threads 1"},
            )
            for width in WIDTHS
            for way, options in (("with-names", TOKENS), ("no-memory", ""))
        ]
    )


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def run(arguments: argparse.Namespace) -> None:
    carry_out(items(), arguments.names, arguments.data, arguments.out)


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores, the hidden names and the dev losses of finished runs to a table, without the models."""
    keep_items(items(), arguments.out, arguments.to)


def measure(arguments: argparse.Namespace) -> None:
    """Hide each name of the test documents, and predict it with each bank."""
    import torch

    import ramify
    from ramify.dataset.store import Store
    from ramify.inference.documents.measures import HeldOut
    from ramify.inference.documents.name_measures import BANKS, gate_measures, gated_tokens, hidden_words
    from ramify.inference.documents.vectors import encode_documents, read_documents
    from ramify.inference.documents.words import words_of
    from ramify.tasks.nested.task import NestedAutoencoder

    torch.set_num_threads(arguments.threads)
    task = ramify.load(arguments.run).module
    assert isinstance(task, NestedAutoencoder)
    spelled = {name.casefold() for name in all_names()}
    found: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for data in ("names", "once"):
        store = Store.open(arguments.data / data)
        trees = store.split("test")
        view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, trees)
        held = HeldOut(task, collator, encode_documents(task.backbone, view, collator))
        words = words_of(store, task.tokenizer, view.rows)
        is_name = np.array([spelling in spelled for spelling in words.spellings], dtype=bool)[words.type]
        chosen = np.flatnonzero(is_name)
        hidden = hidden_words(held, words, chosen)
        found[data] = {"count": len(chosen)}
        for place, bank in enumerate(BANKS):
            found[data] |= {f"accuracy_{bank}": mean(hidden.right[place]), f"nats_{bank}": mean(hidden.nats[place])}
            arrays |= {f"{data}/right/{bank}": hidden.right[place], f"{data}/nats/{bank}": hidden.nats[place]}
        arrays[f"{data}/document"] = words.tree[chosen]
        if data == "names" and task.name_memory is not None:
            gated = gated_tokens(held, task.name_memory, np.unique(words.row))
            found["gate_auroc"] = gate_measures(words, is_name, gated)["name_gate_auroc"].value
            found["filters"] = best_filters(held, words, is_name, gated)
    np.savez(arguments.items, **arrays)
    print(json.dumps(found))


def decoded(arguments: argparse.Namespace) -> None:
    """Decode sentences of the test documents from their vectors: the share of right words, and of right names."""
    import torch

    import ramify
    from ramify.batching.document_batch import NUM_MARKS
    from ramify.dataset.store import Store
    from ramify.inference.documents.measures import HeldOut, spread
    from ramify.inference.documents.reconstruction import decoded_sentences
    from ramify.inference.documents.vectors import encode_documents, read_documents
    from ramify.tasks.nested.task import NestedAutoencoder

    torch.set_num_threads(arguments.threads)
    task = ramify.load(arguments.run).module
    assert isinstance(task, NestedAutoencoder)
    store = Store.open(arguments.data)
    view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, store.split("test"))
    held = HeldOut(task, collator, encode_documents(task.backbone, view, collator))
    spelled = {task.tokenizer.encode(name)[0] for name in all_names()}
    rows = spread(len(held.level(0)), QUERIES)
    count, right = {"words": 0, "names": 0}, {"words": 0, "names": 0}
    for row, slots in zip(rows.tolist(), decoded_sentences(held, rows, lambda number: None), strict=True):
        written = dict(enumerate((slots - NUM_MARKS).tolist()))
        for place, token in enumerate(held.rows.ids[held.children_of(0, row)].tolist()):
            for kind in ("words", "names") if token in spelled else ("words",):
                count[kind] += 1
                right[kind] += written.get(place) == token
    print(json.dumps({kind: right[kind] / max(1, count[kind]) for kind in count} | {"count": count}))


def books(arguments: argparse.Namespace) -> None:
    """Hide words of the test books, class by class, and predict them with each bank."""
    import torch

    import ramify
    from ramify.dataset.store import Store
    from ramify.inference.documents.measures import HeldOut, spread
    from ramify.inference.documents.name_measures import gate_measures, gated_tokens, hidden_words, word_measures
    from ramify.inference.documents.vectors import encode_documents, read_documents
    from ramify.inference.documents.words import CLASSES, words_of
    from ramify.tasks.nested.task import NestedAutoencoder

    torch.set_num_threads(arguments.threads)
    task = ramify.load(arguments.run).module
    assert isinstance(task, NestedAutoencoder)
    whole = Store.open(arguments.data)
    # The answers of a whole novel's sentences take a gigabyte and more.
    trees = [beginning(whole.tree(int(number)), SENTENCES) for number in whole.split("test")]
    store = Store.from_trees(trees)
    view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, np.arange(len(trees)))
    held = HeldOut(task, collator, encode_documents(task.backbone, view, collator))
    words = words_of(store, task.tokenizer, view.rows)
    places = [np.flatnonzero(words.classes == number) for number in range(len(CLASSES))]
    chosen = np.sort(np.concatenate([each[spread(len(each), QUERIES)] for each in places]))
    measures = word_measures(words, hidden_words(held, words, chosen))
    arrays: dict[str, Any] = {f"{name}/{key}": value for name, each in measures.items() for key, value in each.items.items()}
    np.savez(arguments.items, **arrays)
    found: dict[str, Any] = {"measures": {name: each.to_json() for name, each in measures.items()}}
    if task.name_memory is not None:
        rows = np.unique(words.row)
        gated = gated_tokens(held, task.name_memory, rows[spread(len(rows), GATED)])
        found["gate_auroc"] = gate_measures(words, words.is_name, gated)["name_gate_auroc"].value
        found["filters"] = best_filters(held, words, words.is_name, gated)
        found["alice"] = alice(task)
    print(json.dumps(found))


def beginning(tree: "Tree", sentences: int) -> "Tree":
    """The first nodes of a document, up to so many sentences."""
    from ramify.tree import Tree

    places = [place for place, node in enumerate(tree.nodes) if node.kind == "sentence"]
    return Tree(tree.nodes[: places[sentences]], id=tree.id) if len(places) > sentences else tree


def best_filters(held: "HeldOut", words: "Words", is_name: NDArray[np.bool_], gated: "Gated") -> list[dict[str, Any]]:
    """The filter of each group of the ignore gate that tells names from other words best, and its likeliest tokens."""
    from ramify.inference.documents.name_measures import filters_of
    from ramify.metrics.ranking import auroc

    choices, filters = np.concatenate(gated.choices), filters_of(held, gated).groups
    name, other = (np.isin(gated.tokens, words.tokens(chosen)) for chosen in (is_name, ~is_name))
    found = []
    for group, each in enumerate(filters if name.any() else ()):
        areas = [auroc(choices[name, group, place], choices[other, group, place]) for place in range(len(each))]
        best = int(np.argmax(areas))
        found.append({"filter": best, "auroc": float(areas[best]), "tokens": [token for token, _ in each[best]]})
    return found


ALICE = (
    "{} sat by the river with her sister.",
    "The day was hot, and there was nothing to do.",
    "At last {} got up and went down to the water.",
    "A white rabbit ran past her and looked at its watch.",
    "\u201cWait for me!\u201d cried {}, but the rabbit did not stop.",
    "When it came back, it bowed and gave {} the watch.",
)
"""A little document. The name in its last sentence is hidden."""
PEOPLE = ("Alice", "Harriet")


def alice(task: Any) -> dict[str, Any]:
    """The hidden name's loss with the bank of its document, with that of the same sentences about someone else, and without."""
    from ramify.dataset.store import Store
    from ramify.inference.documents.measures import HeldOut
    from ramify.inference.documents.name_measures import BANKS, hidden_words
    from ramify.inference.documents.vectors import encode_documents, read_documents
    from ramify.inference.documents.words import words_of
    from ramify.tree import DOCUMENT, Node, Tree

    trees = [
        Tree(
            (Node(kind=DOCUMENT, id="0"), *(Node(text.format(name), parents=(0,), kind="sentence") for text in ALICE)), id=name
        )
        for name in PEOPLE
    ]
    store = Store.from_trees(trees)
    view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, np.arange(len(trees)))
    held = HeldOut(task, collator, encode_documents(task.backbone, view, collator))
    words = words_of(store, task.tokenizer, view.rows)
    spelled = np.array([spelling == PEOPLE[0].casefold() for spelling in words.spellings], dtype=bool)[words.type]
    hidden = hidden_words(held, words, np.concatenate([np.flatnonzero(spelled)[-1:], np.flatnonzero(words.tree == 1)[-1:]]))
    return {bank: float(hidden.nats[place, 0]) for place, bank in enumerate(BANKS)}


def mean(values: NDArray[Any]) -> float | None:
    return None if np.isnan(values).any() else float(values.mean())


# --- results ---------------------------------------------------------------------------------------------------------------

COLUMNS = {
    "bank of the other sentences": ("names", "own"),
    "nothing read": ("names", "nothing"),
    "bank of another document": ("names", "other_document"),
    "names of one sentence, own bank": ("once", "own"),
    "names of one sentence, nothing read": ("once", "nothing"),
}
GAIN, LEFT = 0.30, 0.02
"""Goals that were set before the runs: the accuracy that the bank adds, and what is left of this with another document's."""


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.measured or commit, arguments.machine, "python")
    for way in WAYS:
        names = [f"{way.replace(' ', '-')}-{seed}" for seed in SEEDS]
        found = {name: scores for name in names if (scores := found_in(arguments.out / name, "names")) is not None}
        if found:
            add_way(figures, way, found)
    known = {item.name: item for item in items()}
    first = found_in(arguments.out / "leave-one-out-0", "names")
    if first is not None:
        add_reading(
            figures, "planted names", score_command(known["leave-one-out-0"], "names", Path("DATA"), Path("OUT")), first
        )
    for name in ("with-names", "no-memory"):
        if scores := found_in(arguments.out / f"books-{name}", "books"):
            add_books(figures, f"books-{name}", scores)
            add_reading(figures, "books", score_command(known[f"books-{name}"], "books", Path("DATA"), Path("OUT")), scores)
    for width in WIDTHS:
        for way in ("with-names", "no-memory"):
            if shares := found_in(arguments.out / f"vectors-{width}-{way}", "decoded"):
                command = score_command(known[f"vectors-{width}-{way}"], "decoded", Path("DATA"), Path("OUT"))
                row = f"{width} dimensions, {way.replace('-', ' ')}"
                for kind in ("words", "names"):
                    figures.add("names-vectors", row, f"right {kind}", shares[kind], command, unit="share")
    for row in figures.rows:
        print(f"{row.row:<16} {row.column:<40} {row.value} {row.unit} {row.note}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


def add_way(figures: Figures, way: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """The figures of the seeds of one kind of model."""
    first = next(iter(found))
    command = score_command({item.name: item for item in items()}[first], "names", Path("DATA"), Path("OUT"))
    seeds = tuple(int(name.rpartition("-")[2]) for name in found)

    def add(column: str, values: Sequence[float | None], note: str = "", unit: str = "of names") -> None:
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
            value = float(np.mean(known))
            table = "names-nats" if unit == "nats" else "names-planted"
            figures.add(table, way, column, value, command, unit=unit, seeds=seeds, spread=spread, note=note)

    for column, (data, bank) in COLUMNS.items():
        for kind, unit in (("accuracy", "of names"), ("nats", "nats")):
            values = [scores[data][f"{kind}_{bank}"] for scores in found.values()]
            add(column, values, unit=unit)
    gains = _differences(found, "names", "own")
    left = _differences(found, "names", "other_document")
    if None not in gains:
        reached = float(np.mean([gain for gain in gains if gain is not None])) >= GAIN
        add("gain", gains, f"goal: at least {GAIN:g}: {'reached' if reached else 'missed'}")
    if None not in left:
        reached = float(np.mean([gain for gain in left if gain is not None])) <= LEFT
        add("gain with another document's bank", left, f"goal: at most {LEFT:g}: {'reached' if reached else 'missed'}")
    add("leak", _differences(found, "once", "own"))
    add("gate, AUROC", [scores.get("gate_auroc") for scores in found.values()], unit="")


def add_books(figures: Figures, name: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """The measures of one model of books, class by class."""
    command = score_command({item.name: item for item in items()}[name], "books", Path("DATA"), Path("OUT"))
    for measure_name, values in found["measures"].items():
        kind, _, of = measure_name.removeprefix("hidden_word_").partition(".")
        columns = {
            "bank of the other sentences": values["value"],
            "nothing read": values["baseline"],
            "bank of another document": values["others"]["other_document"],
        }
        for column, value in columns.items():
            if value is not None:
                p = values.get("p") if value == values["value"] else None
                row, unit = (
                    f"{of.replace('_', ' ')}, {name.removeprefix('books-').replace('-', ' ')}",
                    ("nats" if kind == "loss" else "of words"),
                )
                figures.add("names-books", row, f"{column}, {kind}", value, command, unit=unit, p=p)


def add_reading(figures: Figures, data: str, command: str, found: Mapping[str, Any]) -> None:
    """The filters of each group that tell names best, the gate of books, and the hidden name of the little document."""
    for group, each in enumerate(found.get("filters", ())):
        tokens = ", ".join(each["tokens"])
        figures.add("names-filters", f"{data}, group {group + 1}", "AUROC", each["auroc"], command, unit="", note=tokens)
    for bank, nats in found.get("alice", {}).items():
        figures.add("names-alice", bank.replace("_", " "), "loss of the name", nats, command)
    if data == "books" and found.get("filters"):
        figures.add("names-filters", "books, the gate itself", "AUROC", found["gate_auroc"], command, unit="")


def _differences(found: Mapping[str, Mapping[str, Any]], data: str, bank: str) -> list[float | None]:
    """The accuracy of each seed with a bank, less that without."""
    pairs = [(scores[data][f"accuracy_{bank}"], scores[data]["accuracy_nothing"]) for scores in found.values()]
    return [None if one is None or other is None else one - other for one, other in pairs]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    prepare_ = commands.add_parser("prepare", help="write the documents, and build the data sets")
    prepare_.set_defaults(call=prepare)
    prepare_.add_argument("--out", type=Path, required=True)
    commands.add_parser("plan", help="print all runs").set_defaults(call=plan)
    run_ = commands.add_parser("run", help="carry out runs")
    run_.set_defaults(call=run)
    run_.add_argument("--data", type=Path, required=True)
    run_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    run_.add_argument("names", nargs="+")
    measure_ = commands.add_parser("measure", help="hide each name of the test documents, and predict it with each bank")
    measure_.set_defaults(call=measure)
    books_ = commands.add_parser("books", help="hide words of the test books, and predict them with each bank")
    books_.set_defaults(call=books)
    decoded_ = commands.add_parser("decoded", help="decode sentences of the test documents from their vectors")
    decoded_.set_defaults(call=decoded)
    for command in (measure_, books_, decoded_):
        command.add_argument("--run", type=Path, required=True)
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--threads", type=int, default=1)
    for command in (measure_, books_):
        command.add_argument("--items", type=Path, required=True, help="file for the figures of each hidden word")
    add_keep(commands, keep)
    add_table(commands, table)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Names that a document plants: does a memory of names find them in other sentences? And in books?

    python benchmarks/names.py prepare --out DATA
    python benchmarks/names.py plan
    python benchmarks/names.py run --data DATA --out OUT names-0 plain-0
    python benchmarks/names.py keep --out OUT --to benchmarks/scores/names.parquet
    python benchmarks/names.py table --out benchmarks/scores/names.parquet [--rows ROWS.jsonl]

`prepare` writes two data sets. In a document of DATA/names, each of 16 roles has one of 2,000 names, drawn at random. Four
sentences, at least five apart, mention the role with its name. So a hidden name can be known from the role alone by who has
read another of these sentences: without, one of 2,000 names is right by chance, and with all names of the document but not
their roles, one of 16. DATA/once is for the leak: there, each sentence has a name that no other sentence of its document has.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROLES = (
    *("captain", "baker", "doctor", "teacher", "judge", "sailor", "painter", "farmer"),
    *("singer", "smith", "nurse", "guard", "priest", "clerk", "hunter", "queen"),
)
NAMES = 2_000
MENTIONS = 4
APART = 5
"""Sentences from one mention of a role to the next."""

PLACES = ("harbour", "market", "tower", "garden", "bridge", "kitchen", "station", "forest", "chapel", "cellar", "hill", "inn")
VERBS = ("saw", "left", "found", "crossed", "watched", "liked", "feared", "knew", "entered", "sold", "painted", "guarded")
FORMS = (
    "the {role} {name} {verb} the {place} .",
    "{name} the {role} {verb} the {place} .",
    "at the {place} the {role} {name} slept .",
    "then {name} , the {role} , {verb} it .",
)
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
        form, verb, place = (each[int(random.integers(len(each)))] for each in (FORMS, VERBS, PLACES))
        own = names[int(chosen[number if once else role])]
        text = form.format(role=ROLES[role], name=own, verb=verb, place=place)
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


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    prepare_ = commands.add_parser("prepare", help="write the documents, and build the data sets")
    prepare_.set_defaults(call=prepare)
    prepare_.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

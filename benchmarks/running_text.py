"""Pretrain XLNet, BERT and their relatives on the same running text, and measure what differs between them.

    python benchmarks/running_text.py plan
    python benchmarks/running_text.py prepare --data DATA --books BOOKS --forum POSTS.jsonl.zst --reddit RS.zst RC.zst
    python benchmarks/running_text.py run --data DATA --out runs/running_text A-xlnet-1
    python benchmarks/running_text.py measure --data DATA --out runs/running_text B-xlnet
    python benchmarks/running_text.py keep --out runs/running_text --to benchmarks/scores/running_text
    python benchmarks/running_text.py table --out benchmarks/scores/running_text --rows benchmarks/results/xlnet.jsonl
    python benchmarks/running_text.py picture --out benchmarks/scores/running_text --svg benchmarks/pictures/xlnet.svg

`prepare` makes the data set DATA/text of books (a tree per chapter, books held out whole) and discussions, and the tokenizer of
all models, DATA/tokenizer.json. `run` carries out the `ramify` commands of the plan, prints them, and skips those whose results
are already there; the same command continues an interrupted run. The learning rate of each model is the one with the lowest dev
loss among its runs of group L. `measure` takes the measurements that no `ramify` command offers. `keep` copies what `table` and
`picture` read.
"""

import argparse
import datetime
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROW_TOKENS = 2_048
"""Tokens per update of every model: 16 rows of 128 for XLNet, and a budget for BERT."""
SHORT = 488
"""Updates that read 1 M tokens."""
LONG = 8 * SHORT
RATES = ("3e-4", "6e-4", "1e-3")
SEEDS = (0, 1, 2)
FORUM_BYTES = 11_000_000
"""Bytes of text from each of the two forums, beside all books."""
TOKENIZER_BYTES = 6_000_000
VOCABULARY = 8_192

STREAMS = "--set model.memory=96"
BUDGET = "--set train.budget=2048"
MODELS = {
    "xlnet": f"xlnet {STREAMS}",
    "bert": f"bert {BUDGET}",
    "roberta": f"roberta {BUDGET}",
    "forward": f"xlnet --order forward {STREAMS}",
}
"""The models of experiment A, each with its own list of learning rates."""

ABLATION = {
    "dae": ("xlnet --objective denoising --set model.memory=96", "xlnet"),
    "k7": (f"xlnet --set task.k=7 {STREAMS}", "xlnet"),
    "no-memory": ("xlnet --set model.memory=0", "xlnet"),
    "no-span": (f"xlnet --set task.span_unit=token {STREAMS}", "xlnet"),
    "no-bi-data": (f"xlnet --set view.backward=false --set view.rows=16 {STREAMS}", "xlnet"),
    "next-segment": (f"xlnet --set task.next_segment=1 {STREAMS}", "xlnet"),
}
"""Experiment E beside BERT and XLNet (K = 6) of A: the recipe, and the model whose learning rate it takes."""


@dataclass(frozen=True)
class Item:
    """A trained model and its evaluations, as `ramify` commands. DATA and OUT are filled in when they are carried out."""

    name: str
    train: str
    hours: float
    """Core-hours of training and scoring, estimated from the first runs."""
    rate_of: str = ""
    """The model whose learning rate, chosen on dev, is filled in for RATE."""
    scores: Mapping[str, str] = field(default_factory=dict)
    """Options of `ramify evaluate`, by label."""
    trained: str = ""
    """The run that holds the trained model, if it is another item's."""


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    dev = "--set train.evaluate_every=61 --set train.checkpoint_every=244 --set dev.rows=256"
    common = "--data DATA/text --tokenizer DATA/tokenizer.json"
    found = []
    for model, recipe in MODELS.items():
        for rate in RATES:
            train = f"{recipe} {common} --steps {SHORT} --seed 0 --set train.lr={rate} {dev}"
            found.append(Item(f"L-{model}-{rate}", train, 0.05))
    for model, recipe in MODELS.items():
        for seed in SEEDS if model in ("xlnet", "bert") else SEEDS[:1]:
            train = f"{recipe} {common} --steps {SHORT} --seed {seed} --set train.lr=RATE {dev}"
            if seed:
                found.append(Item(f"A-{model}-{seed}", train, 0.06, model, _own(model)))
            else:
                # The model is the best one of group L, so only its evaluation costs time.
                found.append(Item(f"A-{model}-0", train, 0.01, model, _own(model), trained=f"L-{model}-RATE"))
    for name, (recipe, model) in ABLATION.items():
        train = f"{recipe} {common} --steps {SHORT} --seed 0 --set train.lr=RATE {dev}"
        found.append(Item(f"E-{name}-0", train, 0.055, model, _own(name)))
    long = f"--steps {LONG} --seed 0 --set train.lr=RATE --set train.evaluate_every=488 --set train.checkpoint_every=244"
    memories = {f"memory-{size}": f"--data DATA/text --rows 1024 --memory {size}" for size in (0, 64, 128, 384)}
    for name, recipe, model in (
        ("xlnet", "xlnet --set model.memory=128", "xlnet"),
        ("dae", "xlnet --objective denoising --set model.memory=128", "xlnet"),
        ("bert", MODELS["bert"], "bert"),
    ):
        scores = _own(name) | (memories if name == "xlnet" else {})
        found.append(Item(f"B-{name}", f"{recipe} {common} {long} --set dev.rows=256", 0.4, model, scores))
    lm = f"xlnet-lm --set model.memory=96 {common} --steps {2 * SHORT} --seed 0 --set train.lr=RATE {dev}"
    found.append(Item("C-xlnet-lm", lm, 0.15, "xlnet", _own("xlnet-lm")))
    return found


def _own(model: str) -> dict[str, str]:
    """The evaluation of a model in its own terms and on the common footing, on about as many rows for all."""
    return {"own": "--data DATA/text" + ("" if model in ("bert", "roberta") else " --rows 1024")}


def plan(arguments: argparse.Namespace) -> None:
    """Print the runs, their commands and their cost."""
    for item in items():
        print(f"{item.name}: {item.hours} core-hours\n    {_train(item, Path('DATA'), Path('OUT'), 'RATE')}")
        for label in item.scores:
            print(f"    {_score(item, label, Path('DATA'), Path('OUT'))}")
    print(f"{sum(item.hours for item in items()):.1f} core-hours in total")


# --- data ------------------------------------------------------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> None:
    """Build DATA/text and train DATA/tokenizer.json on a sample of its training split."""
    import ramify
    from ramify import Store, Tokenizer
    from ramify.batching.running_text import RunningText
    from ramify.tokenizer import sample

    data = arguments.data
    data.mkdir(parents=True, exist_ok=True)
    if not (data / "text").exists():
        sources = {"forum": ([arguments.forum], "table"), "reddit": (arguments.reddit, "pushshift")}
        for name, (files, format) in sources.items():
            if not (data / name).exists():
                words = ["ramify", "data", "build", *map(str, files), "--format", format, "--out", str(data / name)]
                subprocess.run([*words, "--min-nodes", "3", "--max-nodes", "500"], check=True)
        with (data / "text.jsonl").open("w", encoding="utf-8") as lines:
            lines.writelines(f"{tree.to_json()}\n" for tree in _chapters(arguments.books))
            for name in sources:
                lines.writelines(f"{tree.to_json()}\n" for tree in _discussions(Store.open(data / name), name))
        ramify.build([data / "text.jsonl"], "jsonl", data / "text")
    store = Store.open(data / "text")
    if not (data / "tokenizer.json").exists():
        trees = store.split("train").tolist()
        texts = (text for tree in trees for text in store.texts(range(store.offsets[tree], store.offsets[tree + 1])))
        trained = Tokenizer.train(
            sample(texts, TOKENIZER_BYTES, 0), kind="unigram", vocab_size=VOCABULARY, lowercase=False, marks=True
        )
        trained.save(data / "tokenizer.json")
    tokenizer = Tokenizer.load(data / "tokenizer.json")
    for split in ("train", "dev", "test"):
        text = RunningText.open(store, tokenizer, split)
        books = {tree.meta["group"] for tree in _trees(store, split) if "group" in tree.meta}
        size = int(tokenizer.piece_bytes[text.ids].sum())
        print(f"{split}: {text.num_tokens:,} tokens, {size:,} bytes, {len(text.documents) - 1:,} documents, {len(books)} books")


def _chapters(books: Path) -> Iterator[Any]:
    """Chapters as trees: the first paragraph is the root, the others follow under it."""
    from ramify import Node, Tree
    from ramify.readers import find_format
    from ramify.readers.base import Report

    folders = sorted(folder for folder in books.iterdir() if folder.is_dir())
    for book in find_format("book").records(folders, Report(), levels="chapter,paragraph"):
        chapters: dict[int, list[str]] = {}
        for node in book.nodes:
            if node.kind == "paragraph":
                chapters.setdefault(node.parents[0], []).append(node.text)
        for number, paragraphs in enumerate(chapters.values()):
            nodes = [Node(text, () if index == 0 else (0,)) for index, text in enumerate(paragraphs)]
            yield Tree(nodes, f"book/{book.id}/{number:04}", {"group": f"book/{book.id}"})


def _discussions(store: Any, name: str) -> Iterator[Any]:
    """Discussions in the order of a hash of their ids, until they hold enough text."""
    size = 0
    for tree in sorted(store.trees(store.split("all")), key=lambda tree: hashlib.sha256(tree.id.encode()).digest()):
        if size >= FORUM_BYTES:
            return
        size += sum(len(node.text.encode()) for node in tree.nodes)
        yield replace(tree, id=f"{name}/{tree.id}", meta={})


def _trees(store: Any, split: str) -> Iterator[Any]:
    return store.trees(store.split(split))


# --- runs ------------------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> None:
    known = {item.name: item for item in items()}
    for name in arguments.names:
        item = known[name]
        rate = best_rate(arguments.out, item.rate_of) if item.rate_of else ""
        folder = arguments.out / name
        if not item.trained and not (folder / "config.json").exists():
            resume = " --resume" if (folder / "run.json").exists() else ""
            _carry_out(_train(item, arguments.data, arguments.out, rate) + resume)
        folder.mkdir(exist_ok=True)
        for label in item.scores:
            if not (folder / f"{label}.json").exists():
                (folder / f"{label}.json").write_text(_carry_out(_score(item, label, arguments.data, arguments.out, rate)))


def best_rate(out: Path, model: str) -> str:
    """The learning rate with which a model reaches the lowest dev loss after its last update."""
    return min(RATES, key=lambda rate: dev_losses(out / f"L-{model}-{rate}")[SHORT])


def dev_losses(folder: Path) -> dict[int, float]:
    """Dev loss by update."""
    from ramify.training.metrics_log import read_metrics

    return {record["step"]: record["dev_loss"] for record in read_metrics(folder) if "dev_loss" in record}


def _train(item: Item, data: Path, out: Path, rate: str) -> str:
    return f"ramify train {_filled(item.train, data, out, rate)} --out {out / item.name}"


def _score(item: Item, label: str, data: Path, out: Path, rate: str = "RATE") -> str:
    folder = out / (item.trained or item.name).replace("RATE", rate)
    return f"ramify evaluate {folder} {_filled(item.scores[label], data, out, rate)} --json"


def _filled(words: str, data: Path, out: Path, rate: str) -> str:
    return " ".join(words.replace("DATA", str(data)).replace("OUT", str(out)).replace("RATE", rate).split())


def _carry_out(command: str) -> str:
    print(f"$ {command}", flush=True)
    began = time.perf_counter()
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True)
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return done.stdout


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("plan").set_defaults(call=plan)
    preparing = commands.add_parser("prepare")
    preparing.set_defaults(call=prepare)
    preparing.add_argument("--data", type=Path, required=True, help="folder to write")
    preparing.add_argument("--books", type=Path, required=True, help="folder of Standard Ebooks")
    preparing.add_argument("--forum", type=Path, required=True, help="posts of iac-4forums")
    preparing.add_argument("--reddit", type=Path, nargs="+", required=True, help="submissions and comments of reddit-college")
    running = commands.add_parser("run")
    running.set_defaults(call=run)
    running.add_argument("--data", type=Path, required=True, help="folder that prepare wrote")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("names", nargs="+")
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

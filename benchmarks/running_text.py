"""Pretrain XLNet, BERT and their relatives on the same running text, and measure what differs between them.

    python benchmarks/running_text.py plan
    python benchmarks/running_text.py prepare --data DATA --books BOOKS --forum POSTS.jsonl.zst --reddit RS.zst RC.zst
    python benchmarks/running_text.py run --data DATA --out runs/running_text A-xlnet-1
    python benchmarks/running_text.py time --data DATA
    python benchmarks/running_text.py measure --data DATA --out runs/running_text B-xlnet
    python benchmarks/running_text.py keep --out runs/running_text --to benchmarks/scores/running_text.parquet
    python benchmarks/running_text.py table --out benchmarks/scores/running_text.parquet --rows benchmarks/results/xlnet.jsonl
    python benchmarks/running_text.py picture --out benchmarks/scores/running_text.parquet --svg benchmarks/pictures/xlnet.svg

`prepare` makes the data set DATA/text of books (a tree per chapter, books held out whole) and discussions, and the tokenizer of
all models, DATA/tokenizer.json. `run` carries out the `ramify` commands of the plan, prints them, and skips those whose results
are already there; the same command continues an interrupted run. The learning rate of each model is the one with the lowest dev
loss among its runs of group L or R. `time` times the first updates of experiment M and prints the core-hours of all. `measure`
takes the measurements that no `ramify` command offers. `keep` adds what `table` and `picture` read to a table.
"""

import argparse
import hashlib
import json
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from experiments import Figures, Item, carry_out, copy_curve, found_in, print_plan, score_command, train_command
from raw_scores import add_figures, add_keep, adding_runs, reads_runs
from rows import current_commit, replace_rows
from tables import in_full

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
MEMORIES = (0, 64, 128, 384)
"""Remembered states per layer. The long runs train with 128."""

MODELS = {
    "xlnet": f"xlnet {STREAMS}",
    "bert": f"bert --published {BUDGET}",
    "roberta": f"roberta --published {BUDGET}",
    "forward": f"xlnet --order forward {STREAMS}",
}
"""The models of experiment A, each with its own list of learning rates."""

ABLATION = {
    "dae": ("xlnet --objective denoising --set model.memory=96", "xlnet"),
    "k7": (f"xlnet --set task.k=7 {STREAMS}", "xlnet"),
    "no-memory": ("xlnet --set model.memory=0", "xlnet"),
    "no-span": (f"xlnet --set task.span_unit=token {STREAMS}", "xlnet"),
    "no-bi-data": (f"xlnet --set view.directions=forward --set view.streams=16 {STREAMS}", "xlnet"),
    "next-segment": (f"xlnet --set task.next_segment=1 {STREAMS}", "xlnet"),
}
"""Experiment E beside BERT and XLNet (K = 6) of A: the recipe, and the model whose learning rate it takes."""


TAKE_OFF = 0.2
"""Nats per masked token below the frequencies of pieces at which a model has left their plateau."""
RELATIVE = {"model.position": "relative"}
MORE_MASKS = {"task.max_predictions": "null", "task.mask_rate": 0.4}

SEARCH: dict[str, dict[str, Any]] = {
    "learned": {},
    "sinusoidal": {"model.position": "sinusoidal"},
    "relative": RELATIVE,
    "relative-batch-512": RELATIVE | {"train.budget": 512},
    "relative-batch-1024": RELATIVE | {"train.budget": 1024},
    "relative-pre": RELATIVE | {"model.norm": "pre"},
    "relative-masks-30": RELATIVE | {"task.max_predictions": "null", "task.mask_rate": 0.3},
    "relative-masks-40": RELATIVE | MORE_MASKS,
    "relative-rate-5e-4": RELATIVE | {"train.lr": "5e-4"},
    "relative-rate-2e-3": RELATIVE | {"train.lr": "2e-3"},
    "relative-warm-up-40": RELATIVE | {"train.warmup": 0.4},
    "relative-batch-512-masks-40": RELATIVE | {"train.budget": 512} | MORE_MASKS,
    "relative-batch-512-masks-40-pre": RELATIVE | {"train.budget": 512, "model.norm": "pre"} | MORE_MASKS,
    "learned-batch-512-masks-40": {"train.budget": 512} | MORE_MASKS,
}
"""Experiment T: which setting makes BERT leave the plateau soonest, one at a time, and then the best ones together. The rate is
1e-3 after a warm-up of 50 k tokens, and then constant, because the runs are the beginnings of longer ones. Masks of dev rows
are the same in all runs."""


def search_items() -> list[Item]:
    """The runs of experiment T, with a dev loss after every 125 k tokens. Positions and the best settings together read 1 M
    tokens, others half of it, which is enough to compare them with the beginning of T-relative."""
    items = []
    for name, changes in SEARCH.items():
        between = SHORT * ROW_TOKENS // changes.get("train.budget", ROW_TOKENS) // 8
        parts = 8 if name in ("learned", "sinusoidal", "relative") or "batch-512-masks" in name else 4
        settings = {
            "train.budget": ROW_TOKENS,
            "train.lr": "1e-3",
            "train.warmup": 0.4 / parts,
            "train.schedule": "constant",
            "train.evaluate_every": between,
            "train.checkpoint_every": parts * between // 2,
            "dev.rows": 256,
            "dev.mask_rate": 0.15,
        } | changes
        words = " ".join(f"--set {key}={value}" for key, value in settings.items())
        common = f"--data DATA/text --tokenizer DATA/tokenizer.json --seed 0 --steps {parts * between}"
        items.append(Item(f"T-{name}", f"bert --published {common} {words}", 0.006 * parts))
    return items


LEARNED = {
    "xlnet": (LONG, (0, 1), "xlnet --set model.memory=128 --set train.lr=1e-3"),
    "bert": (LONG, (0, 1), "bert --set train.lr=RATE"),
    "dae": (LONG, (0,), "xlnet --objective denoising --set model.memory=128 --set train.lr=RATE"),
    "roberta": (2 * SHORT, (0,), "roberta --set train.lr=RATE"),
    "forward": (2 * SHORT, (0,), f"xlnet --order forward {STREAMS} --set train.lr=1e-3"),
}
"""Experiment M, models that have left the plateau: updates of `ROW_TOKENS`, seeds and recipe of each. XLNet has the rate that
group L chose; the new recipe of BERT, whose rate RoBERTa shares, and DAE have rates of their own, chosen by group R."""
RATES_OF = {"bert": "bert", "dae": "dae", "roberta": "bert"}
"""The model of group R whose rate a model of experiment M takes."""
NEW_RATES = {"bert": ("5e-4", "1e-3", "2e-3"), "dae": RATES}


SMALL_UPDATES = {"bert": 4, "roberta": 4}
"""Models whose recipe makes updates of this fraction of `ROW_TOKENS`, and as many times the updates."""


def learned_items() -> list[Item]:
    """The runs of group R, of 1 M tokens each, and of experiment M. All have a dev loss after every 500 k tokens or fewer."""
    items = []

    def add(name: str, model: str, recipe: str, updates: int, seed: int, between: int, **options: Any) -> None:
        rate = " --set dev.mask_rate=0.15" if model in SMALL_UPDATES else ""
        more = SMALL_UPDATES.get(model, 1)
        every = f"--set train.evaluate_every={more * between} --set train.checkpoint_every={more * 244}"
        common = f"--data DATA/text --tokenizer DATA/tokenizer.json --seed {seed} --set dev.rows=256{rate}"
        items.append(Item(name, f"{recipe} {common} --steps {more * updates} {every}", 0.05 * updates / SHORT, **options))

    for model, rates in NEW_RATES.items():
        for rate in rates:
            add(f"R-{model}-{rate}", model, LEARNED[model][2].replace("RATE", rate), SHORT, 0, 61)
    for model, (updates, seeds, recipe) in LEARNED.items():
        own = _own(model, "--mask-rate 0.15")
        for seed in seeds:
            add(f"M-{model}-{seed}", model, recipe, updates, seed, 244, rate_of=RATES_OF.get(model, ""), scores=own)
    return items


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
    memories = {
        f"memory-{size}": f"ramify evaluate RUN --data DATA/text --rows 1024 --memory {size} --json" for size in MEMORIES
    }
    for name, recipe, model in (
        ("xlnet", "xlnet --set model.memory=128", "xlnet"),
        ("dae", "xlnet --objective denoising --set model.memory=128", "xlnet"),
        ("bert", MODELS["bert"], "bert"),
    ):
        scores = _own(name) | (memories if name == "xlnet" else {})
        found.append(Item(f"B-{name}", f"{recipe} {common} {long} --set dev.rows=256", 0.4, model, scores))
    lm = f"xlnet-lm --set model.memory=96 {common} --steps {2 * SHORT} --seed 0 --set train.lr=RATE {dev}"
    found.append(Item("C-xlnet-lm", lm, 0.15, "xlnet", _own("xlnet-lm")))
    return found + search_items() + learned_items()


def _own(model: str, masks: str = "") -> dict[str, str]:
    """The evaluation of a model in its own terms and on the common footing, on about as many rows for all."""
    rows = masks if model in ("bert", "roberta") else "--rows 1024"
    return {"own": f"ramify evaluate RUN --data DATA/text {rows} --json"}


def plan(arguments: argparse.Namespace) -> None:
    """Print the runs, their commands and their cost."""
    print_plan(items())


# --- data ------------------------------------------------------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> None:
    """Build DATA/text and train DATA/tokenizer.json on a sample of its training split."""
    import ramify
    from ramify import Store, Tokenizer
    from ramify.batching.running_text import RunningText
    from ramify.tokenizer import reservoir_sample

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
            reservoir_sample(texts, TOKENIZER_BYTES, 0), kind="unigram", vocab_size=VOCABULARY, lowercase=False, marks=True
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
    from ramify.readers.base import ReadCounts

    folders = sorted(folder for folder in books.iterdir() if folder.is_dir())
    for book in find_format("book").records(folders, ReadCounts(), levels="chapter,paragraph"):
        chapters: dict[int, list[str]] = {}
        for node in book.nodes:
            if node.kind == "paragraph":
                chapters.setdefault(node.parents[0], []).append(node.text)
        for number, paragraphs in enumerate(chapters.values()):
            nodes = tuple(Node(text, () if index == 0 else (0,)) for index, text in enumerate(paragraphs))
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
    """Carry out runs of the plan."""
    known = {item.name: item for item in items()}
    for name in arguments.names:
        carry_out(items(), [name], arguments.data, arguments.out, lambda _, item=known[name]: chosen_rate(arguments.out, item))


def best_rate(out: Path, model: str, rates: Sequence[str] = RATES, group: str = "L") -> str:
    """The learning rate with which a model reaches the lowest dev loss in its own terms."""
    return min(rates, key=lambda rate: min(dev_losses(out / f"{group}-{model}-{rate}").values()))


def chosen_rate(out: Path, item: Item) -> str:
    """The learning rate that is filled in for an item; empty if it states its own."""
    if not item.rate_of:
        return ""
    if item.name.startswith("M-"):
        return best_rate(out, item.rate_of, NEW_RATES[item.rate_of], "R")
    return best_rate(out, item.rate_of)


TIMED_UPDATES = 10, 110


def time_updates(arguments: argparse.Namespace) -> None:
    """Time the first updates of each model of experiment M, and print the core-hours of all its runs and of group R.

    CPU seconds of a short run are subtracted from those of a longer one, so the start does not count for every update.
    """
    total, timed = 0.0, {}
    for item in learned_items():
        recipe, updates = re.sub(r"--seed \d+|--steps \d+|--set train.lr=\S+", "", item.train), _updates(item)
        kind = recipe.split(" --data")[0]
        if kind not in timed:
            few, many = (_cpu_seconds(f"{recipe} --steps {count}", arguments.data) for count in TIMED_UPDATES)
            timed[kind] = few, (many - few) / (TIMED_UPDATES[1] - TIMED_UPDATES[0])
        few, update = timed[kind]
        hours = (few + update * (updates - TIMED_UPDATES[0])) / 3600
        total += hours
        print(f"{item.name}: {updates} updates of {update:.3f} s, {hours:.3f} core-hours", flush=True)
    print(f"{total:.2f} core-hours of training in total")


def _updates(item: Item) -> int:
    (count,) = re.findall(r"--steps (\d+)", item.train)
    return int(count)


def _cpu_seconds(train: str, data: Path) -> float:
    """CPU seconds of a training run, its start included."""
    with tempfile.TemporaryDirectory() as folder:
        item = Item("timed", train, 0.0)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = shlex.split(train_command(item, data, Path(folder), "1e-3"))
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dev_losses(folder: Path) -> dict[int, float]:
    """Dev loss by update; empty before the first one."""
    from ramify.training.metrics_log import read_metrics

    return {record["step"]: record["dev_loss"] for record in read_metrics(folder) if "dev_loss" in record}


# --- measurements ----------------------------------------------------------------------------------------------------------

LENGTHS = (16, 32, 64, 126, 256, 512)
"""Context lengths in tokens. BERT and RoBERTa end at 126: their position tables have 128 rows."""
POSITIONS = 1_000
"""Predicted tokens per context length, the same for all lengths and models."""
SPANS = 500
"""Spans of each length from 2 to 5 pieces."""
WINDOW = 126
TEXTS, RANDOM_ORDERS = 500, 16
TIMED = (128, 256, 512, 1024, 2048, 4096)
GAINED = 20

MEASURES = {
    "context": [f"A-{model}-0" for model in MODELS] + ["B-xlnet", "B-dae", "B-bert"] + ["M-xlnet-0", "M-dae-0", "M-bert-0"],
    "new_york": ["B-xlnet", "B-dae", "B-bert", "M-xlnet-0", "M-dae-0", "M-bert-0"],
    "left": ["A-forward-0"],
    "orders": ["C-xlnet-lm"],
    "memory": ["B-xlnet"],
    "time": ["B-xlnet"],
}
"""Measurements by name, with the items whose models they measure."""


def measure(arguments: argparse.Namespace) -> None:
    """Take the measurements of these items and write them to OUT/ITEM/MEASUREMENT.json."""
    import torch

    import ramify
    from ramify import Store, Tokenizer

    torch.set_num_threads(1)
    store = Store.open(arguments.data / "text")
    known = {item.name: item for item in items()}
    for name in arguments.names:
        if name in WITHOUT_CONTEXT:
            (arguments.out / name).mkdir(parents=True, exist_ok=True)
            found = WITHOUT_CONTEXT[name](store, Tokenizer.load(arguments.data / "tokenizer.json"))
            (arguments.out / name / "own.json").write_text(json.dumps(found))
            continue
        item = known[name]
        rate = chosen_rate(arguments.out, item)
        model = ramify.load(arguments.out / (item.trained or name).replace("RATE", rate))
        for kind, names in MEASURES.items():
            file = arguments.out / name / f"{kind}.json"
            if name in names and not file.exists():
                began = time.process_time()
                found = globals()[f"measure_{kind}"](model, store, name)
                file.write_text(json.dumps(found))
                print(f"{name} {kind}: {time.process_time() - began:.0f} s of CPU", flush=True)


def measure_unigram(store: Any, tokenizer: Any) -> dict[str, float]:
    """The common footing of a model without context: the frequencies of the pieces in the training split, plus one."""
    import numpy as np

    from ramify.batching.running_text import RunningText
    from ramify.inference.common_footing import CommonFooting

    log_shares = _log_shares(store, tokenizer)
    footing = CommonFooting.of(RunningText.open(store, tokenizer, "test"), tokenizer)
    scores = footing.measure(lambda rows, positions: log_shares[rows[np.arange(len(rows)), positions]])
    return {"per_byte": scores.per_byte, "per_token": scores.per_token}


def measure_masked_unigram(store: Any, tokenizer: Any) -> dict[str, float]:
    """The dev loss of the same frequencies, on the masked tokens on which experiment T measures BERT."""
    import numpy as np
    import torch

    from ramify.batching.row_batch import RowCollator
    from ramify.batching.running_text import RunningText
    from ramify.batching.text_input import TextInput
    from ramify.batching.views.packed import SentencePairs
    from ramify.inference.row_evaluation import spread_rows
    from ramify.models.bert import BertConfig
    from ramify.nn import counter_rng
    from ramify.tasks.masked_lm import MaskedLM

    size = TextInput(max_tokens=128, context="none")
    task = MaskedLM(BertConfig(tokenizer.vocab_size, dim=2, num_heads=1, num_layers=1).build(), tokenizer, size)
    view = SentencePairs(RunningText.open(store, tokenizer, "dev"), tokenizer, size.max_tokens, layout=size.layout)
    rows = [view.example(int(number)) for number in spread_rows(view, 256)]
    batch = RowCollator(size.row_layout(tokenizer).frame, pairs=True)(rows)
    masked = task.mask(batch, counter_rng.random_bits(torch.from_numpy(batch.source), 0))
    assert masked.labels is not None
    losses = -_log_shares(store, tokenizer)[masked.labels.numpy()]
    return {"loss": float(np.mean(losses)), "count": len(losses)}


WITHOUT_CONTEXT = {"unigram": measure_unigram, "masked-unigram": measure_masked_unigram}


def _log_shares(store: Any, tokenizer: Any) -> Any:
    """The logarithms of the shares of the pieces in the training split."""
    import numpy as np

    from ramify.batching.running_text import RunningText

    counts = 1 + np.bincount(RunningText.open(store, tokenizer, "train").ids, minlength=tokenizer.vocab_size)
    return np.log(counts / counts.sum())


def measure_left(model: Any, store: Any, name: str) -> dict[str, float]:
    """The common footing of a model that reads only to the left, given the left part of each window alone."""
    import numpy as np

    from ramify.batching.running_text import RunningText
    from ramify.inference.common_footing import CommonFooting

    def predict(rows: Any, positions: Any) -> Any:
        order = np.tile(np.arange(rows.shape[1]), (len(rows), 1))
        return model.ordered_log_probabilities(rows, order, positions[:, None])[:, 0]

    scores = CommonFooting.of(RunningText.open(store, model.tokenizer, "test"), model.tokenizer).measure(predict)
    return {"per_byte": scores.per_byte, "per_token": scores.per_token}


def measure_context(model: Any, store: Any, name: str) -> dict[str, Any]:
    """−log p of the same tokens given all others of a window, by the length of the window. Longer windows hold shorter ones.

    A model that reads only to the left is also scored on the left part of the windows.
    """
    import numpy as np

    from ramify.batching.running_text import RunningText
    from ramify.inference.row_evaluation import masked_log_probabilities
    from ramify.inference.stream_evaluation import OneToken
    from ramify.models.bert import Bert

    text, tokenizer = RunningText.open(store, model.tokenizer, "test"), model.tokenizer
    random = np.random.Generator(np.random.Philox(key=0))
    sizes = tokenizer.piece_bytes[text.ids.astype(np.int64)]
    chosen = np.sort(random.choice(np.flatnonzero(sizes > 0), POSITIONS, replace=False))
    share = random.random(POSITIONS)
    is_bert = isinstance(model.backbone, Bert)
    predict = masked_log_probabilities(model.task) if is_bert else OneToken(model)
    found: dict[str, Any] = {"bytes": int(sizes[chosen].sum()), "positions": POSITIONS, "all": {}}
    for length in LENGTHS:
        if is_bert and length > WINDOW:
            continue
        starts = np.clip(chosen - (share * length).astype(np.int64), 0, len(text.ids) - length)
        rows = text.ids[starts[:, None] + np.arange(length)].astype(np.int64)
        nats = -np.concatenate([predict(rows[at : at + 50], (chosen - starts)[at : at + 50]) for at in range(0, POSITIONS, 50)])
        found["all"][str(length)] = float(nats.sum())
        if name.startswith("A-forward"):
            order = np.tile(np.arange(length), (POSITIONS, 1))
            left = -model.ordered_log_probabilities(rows, order, (chosen - starts)[:, None])
            found.setdefault("left", {})[str(length)] = float(left.sum())
    return found


def measure_new_york(model: Any, store: Any, name: str) -> dict[str, Any]:
    """For spans of n pieces: I = Σ log p(piece | text without the span), C = Σ log p(piece | the same and the span's earlier
    pieces). Both are sums over the span."""
    import numpy as np

    from ramify import Node, Tree
    from ramify.batching.running_text import RunningText
    from ramify.inference.permutation import PermutationPipeline
    from ramify.metrics.intervals import bootstrap_ratio

    text, tokenizer = RunningText.open(store, model.tokenizer, "test"), model.tokenizer
    trees = store.tree_ids(store.split("test"))
    assert len(trees) == len(text.document_ends)
    rows, places, lengths = _spans(text, tokenizer)
    starts = rows[:, 0]
    windows = text.ids[starts[:, None] + np.arange(WINDOW)].astype(np.int64)
    in_book = np.array(
        [
            trees[int(np.searchsorted(text.document_ends, start + place, side="right"))].startswith("book/")
            for start, place in zip(starts, places, strict=True)
        ]
    )
    alone, chained = np.zeros(len(rows)), np.zeros(len(rows))
    query = None if not hasattr(model.task, "mask") else model.mask_query(Tree((Node("a"),)), 0, None)
    for length in range(2, 6):
        of = np.flatnonzero(lengths == length)
        ids, asked = windows[of], places[of][:, None] + np.arange(length)
        if isinstance(model, PermutationPipeline):
            order = np.zeros_like(ids)
            np.put_along_axis(order, asked, 1, 1)
            alone[of] = model.ordered_log_probabilities(ids, order, asked).sum(1)
            np.put_along_axis(order, asked, 1 + np.arange(length)[None].repeat(len(of), 0), 1)
            chained[of] = model.ordered_log_probabilities(ids, order, asked).sum(1)
            continue
        predict = (query or model).log_probabilities
        for at in range(0, len(of), 50):
            part = slice(at, at + 50)
            labels = np.take_along_axis(ids[part], asked[part], 1)
            for done in range(length):
                shown = ids[part].copy()
                np.put_along_axis(shown, asked[part][:, done:], tokenizer.mask_id, 1)
                scores = predict(shown.tolist(), asked[part][:, done:].tolist()).double().numpy()
                own = np.take_along_axis(scores, labels[:, done:, None], 2)[:, :, 0]
                if done == 0:
                    alone[of[part]] = own.sum(1)
                chained[of[part]] += own[:, 0]
    gains = chained - alone
    found: dict[str, Any] = {"by_length": {}}
    for length in (2, 3, 4, 5, 0):
        of = lengths == length if length else lengths > 0
        ones = np.ones(of.sum(), dtype=np.int64)
        found["by_length"][str(length or "all")] = {
            key: vars_of(bootstrap_ratio(values[of], ones)) for key, values in (("I", alone), ("C", chained), ("gain", gains))
        }
    words = [
        tokenizer.decode(windows[at, place : place + size].tolist()) for at, (place, size) in enumerate(zip(places, lengths))
    ]
    pieces = [
        " ".join(tokenizer.token(int(token)) for token in windows[at, place : place + size])
        for at, (place, size) in enumerate(zip(places, lengths, strict=True))
    ]
    # Only books are in the public domain.
    found["books"] = [
        {"text": words[at], "pieces": pieces[at], "gain": round(float(gains[at]), 4)} for at in np.flatnonzero(in_book)
    ]
    return found


def _spans(text: Any, tokenizer: Any) -> Any:
    """Spans of running text inside one sentence, with a window around each: [span, window] positions, places, lengths."""
    import numpy as np

    random = np.random.Generator(np.random.Philox(key=35))
    sizes = tokenizer.piece_bytes[text.ids.astype(np.int64)]
    sentence = np.repeat(np.arange(len(text.sentences) - 1), np.diff(text.sentences))
    found = []
    for length in range(2, 6):
        whole = sentence[length - 1 :] == sentence[: len(sentence) - length + 1]
        readable = np.lib.stride_tricks.sliding_window_view(sizes > 0, length).all(1)
        for start in np.sort(random.choice(np.flatnonzero(whole & readable), SPANS, replace=False)).tolist():
            window = min(max(start - int(random.integers(WINDOW - length + 1)), 0), len(text.ids) - WINDOW)
            found.append((window, start - window, length))
    array = np.array(found)
    return array[:, :1], array[:, 1], array[:, 2]


def measure_orders(model: Any, store: Any, name: str) -> dict[str, Any]:
    """−log p of texts as long as a row under the order of the text, its reverse, and random orders, in nats per token.

    Training permutes the tokens of a whole row together, so all of these orders are in its distribution.
    """
    import numpy as np

    from ramify.batching.running_text import RunningText
    from ramify.metrics.intervals import bootstrap_ratio

    assert model.knows_full_orders, f"{name} was not trained on full orders of rows"
    text = RunningText.open(store, model.tokenizer, "test", marks=True)
    random = np.random.Generator(np.random.Philox(key=0))
    size = model.input.row_tokens
    windows = text.ids[: len(text.ids) // size * size].reshape(-1, size)
    chosen = np.sort(random.choice(len(windows), TEXTS, replace=False))
    forward = np.arange(size)
    # The orders are the same for all texts, so that the spread over orders is one of orders.
    ranks = np.stack([forward, forward[::-1], *(random.permutation(size) for _ in range(RANDOM_ORDERS))])
    scores = np.stack([model.log_likelihoods(windows[at].astype(np.int64), ranks) for at in chosen])
    mixed = scores[:, 2:]
    counts = np.full(TEXTS, size)
    mean = mixed.mean(1)
    together = np.logaddexp.reduce(mixed, 1) - np.log(RANDOM_ORDERS)
    values = {
        "forward": -scores[:, 0],
        "backward": -scores[:, 1],
        "mean of random orders (the bound)": -mean,
        "log-mean-exp of random orders": -together,
        "gap": together - mean,
        "backward − forward": scores[:, 0] - scores[:, 1],
        "mean of random orders − forward": scores[:, 0] - mean,
    }
    each = (-mixed.sum(0) / counts.sum()).tolist()
    return {"orders": each} | {label: vars_of(bootstrap_ratio(value, counts)) for label, value in values.items()}


def measure_memory(model: Any, store: Any, name: str) -> dict[str, Any]:
    """Nats per target that remembered states save over a row alone, on the rows of `ramify evaluate --rows 1024`."""
    import numpy as np
    import torch

    from ramify.batching.running_text import RunningText
    from ramify.batching.stream_batch import collate_streams
    from ramify.batching.views.streams import StreamConfig
    from ramify.inference.stream_evaluation import held_out_streams, num_places
    from ramify.metrics.intervals import bootstrap_ratio
    from ramify.nn import counter_rng

    task = model.task
    view = held_out_streams(task, RunningText.open(store, task.tokenizer, "test", marks=True), StreamConfig())
    losses: dict[int, Any] = {}
    with torch.no_grad(), task.evaluating():
        for memory in MEMORIES:
            state, parts = None, []
            for place in range(num_places(view, 1024)):
                numbers = np.arange(view.config.num_rows) * view.per_stream + place
                batch = collate_streams([view.example(int(number)) for number in numbers], task.input)
                seeds = counter_rng.random_bits(torch.from_numpy(numbers), 0).numpy() & (2**63 - 1)
                found = task.predict(task.draw(replace(batch, remembered=memory), seeds), state)
                state = found.state
                each, _ = task.head.measure(found.states, found.targets.labels.flatten())
                parts.append(each.double().view(len(numbers), -1).numpy())
            losses[memory] = np.stack(parts)
    # A unit is a stretch of eight consecutive rows of a stream, because neighbouring rows share text.
    place, rows, targets = losses[0].shape
    saved = {}
    for memory in MEMORIES[1:]:
        gain = (losses[0] - losses[memory]).sum(2)[: place // 8 * 8].reshape(-1, 8, rows).sum(1).flatten()
        saved[str(memory)] = vars_of(bootstrap_ratio(gain, np.full(len(gain), 8 * targets)))
    return {"loss": {str(memory): float(each.mean()) for memory, each in losses.items()}, "saved": saved}


def measure_time(model: Any, store: Any, name: str) -> dict[str, Any]:
    """Milliseconds of CPU per token to encode a text of so many tokens: in one pass, and in rows of 128 that remember 128."""
    import numpy as np
    import torch

    from ramify.batching.stream_batch import plain_rows

    backbone, random = model.backbone.eval(), np.random.Generator(np.random.Philox(key=0))
    config = backbone.config
    rows, size, memory = 2, 128, config.memory
    found: dict[str, Any] = {"rows": rows, "one pass": {}, "memory": {}}

    def timed(read: Any) -> float:
        times = []
        for _ in range(7):
            began = time.process_time()
            read()
            times.append(time.process_time() - began)
        return float(np.median(times[1:]))

    def counted(tokens: int, keys: int) -> float:
        """Multiply-adds per token and layer: linear maps of tokens, of remembered states and of distances; attention."""
        dim, distances = config.dim, tokens + keys - 1
        linear = 4 * dim**2 + 2 * dim * config.ffn_dim + 2 * dim**2 * (keys - tokens) / tokens
        return linear + dim**2 * distances / tokens / rows + dim * (2 * keys + distances)

    for tokens in TIMED:
        ids = random.integers(10, config.vocab_size, size=(rows, tokens))

        def whole(ids: Any = ids) -> None:
            backbone(plain_rows(ids))

        def streamed(ids: Any = ids, tokens: int = tokens) -> None:
            state = None
            for start in range(0, tokens, size):
                state = backbone(plain_rows(ids[:, start : start + size], reused=size), state).state

        with torch.no_grad():
            for label, read in (("one pass", whole), ("memory", streamed)):
                # The first row has no memory.
                number = 1 if label == "one pass" else tokens // size
                row = tokens // number
                parts = [counted(row, row + (memory if place else 0)) for place in range(number)]
                found[label][str(tokens)] = {
                    "ms": timed(read) * 1000 / (rows * tokens),
                    "counted": sum(parts) / number,
                }
    for label in ("one pass", "memory"):
        long = [tokens for tokens in TIMED if tokens >= 512]
        for column in ("ms", "counted"):
            values = [found[label][str(tokens)][column] for tokens in long]
            found[label][f"slope of {column}"] = float(np.polyfit(np.log(long), np.log(values), 1)[0])
    return found


def vars_of(interval: Any) -> dict[str, float]:
    return {name: getattr(interval, name) for name in ("value", "low", "high", "p")}


# --- results ---------------------------------------------------------------------------------------------------------------


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores and the dev losses of finished runs to a table, without the models."""
    with adding_runs(arguments.to) as to:
        for name in (*(item.name for item in items()), *WITHOUT_CONTEXT):
            source, target = arguments.out / name, to / name
            scores = sorted(source.glob("*.json"))
            scores = [file for file in scores if file.stem in ("own", *MEASURES) or file.stem.startswith("memory-")]
            if (source / "metrics.jsonl").exists() and not (source / "config.json").exists():
                continue  # still in training
            copy_curve(source, target, ("step", "target_tokens", "loss", "dev_loss"))
            for file in scores:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target / file.name)


TITLES = {
    "xlnet": "XLNet",
    "bert": "BERT",
    "roberta": "RoBERTa-style",
    "forward": "XLNet, forward only",
    "dae": "DAE",
}
EXPECTED = {
    "bert": "BERT",
    "dae": "DAE + Transformer-XL",
    "k7": "XLNet, K = 7",
    "xlnet": "XLNet, K = 6",
    "no-memory": "− memory",
    "no-span": "− span",
    "no-bi-data": "− bi-directional data",
    "next-segment": "+ next segment",
}
"""The rows of the paper's ablation."""

MEASURE = "python benchmarks/running_text.py measure --data DATA --out OUT"
TABLE = "python benchmarks/running_text.py table --out OUT"


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    commit, _ = current_commit()
    figures = Figures(arguments.commit or commit, arguments.measured or commit, arguments.machine, f"{MEASURE} ")
    for add in (
        _add_rates,
        _add_footing,
        _add_context,
        _add_new_york,
        _add_orders,
        _add_memory,
        _add_ablation,
        _add_search,
        _add_learned,
    ):
        add(figures, arguments.out)
    for row in figures.rows:
        print(f"{row.table:<22} {row.row:<40} {row.column:<24} {in_full(row)}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


def _add_rates(figures: Figures, out: Path) -> None:
    for item in items():
        if item.name.startswith("L-") and (losses := dev_losses(out / item.name)):
            _, model, rate = item.name.split("-", 2)
            command = train_command(item, Path("DATA"), Path("OUT"), "")
            figures.add("running-rates", TITLES[model], f"lr {rate}", min(losses.values()), command)


def _add_footing(figures: Figures, out: Path) -> None:
    """Own losses and the common footing, with the spread over seeds."""
    known = {item.name: item for item in items()}
    for model in MODELS:
        found = {seed: scores for seed in SEEDS if (scores := found_in(out / f"A-{model}-{seed}", "own"))}
        if found:
            command = score_command(known[f"A-{model}-0"], "own", Path("DATA"), Path("OUT")).replace(
                f"L-{model}-RATE", f"A-{model}-SEED"
            )
            for column, key in (("own loss", "loss"), ("per byte", "per_byte"), ("per token", "per_token")):
                values = [scores[key] for scores in found.values()]
                spread = stdev(values) if len(values) > 1 else None
                figures.add("running-footing", TITLES[model], column, mean(values), command, seeds=list(found), spread=spread)
            for seed, scores in found.items() if len(found) > 1 else ():
                figures.add("running-seeds", TITLES[model], f"seed {seed}", scores["per_byte"], command, seeds=[seed])
    for row, name, label in (
        ("XLNet, forward only, left part of the window", "A-forward-0", "left"),
        ("frequencies of pieces", "unigram", "own"),
    ):
        if found := found_in(out / name, label):
            command = f"{MEASURE} {name}"
            for column, key in (("per byte", "per_byte"), ("per token", "per_token")):
                figures.add("running-footing", row, column, found[key], command)
    for model in ("xlnet", "dae", "bert"):
        if found := found_in(out / f"B-{model}", "own"):
            command = score_command(known[f"B-{model}"], "own", Path("DATA"), Path("OUT"))
            for column, key in (("own loss", "loss"), ("per byte", "per_byte"), ("per token", "per_token")):
                figures.add("running-long", TITLES[model], column, found[key], command)


def _add_context(figures: Figures, out: Path) -> None:
    for name in MEASURES["context"]:
        if found := found_in(out / name, "context"):
            group, model = name.split("-")[:2]
            tokens = "1 M" if group == "A" else "8 M"
            command = f"{MEASURE} {name}"
            for key, suffix in (("all", ""), ("left", ", left part of the window")):
                for length, nats in found.get(key, {}).items():
                    row = f"{TITLES[model]}, {tokens}{suffix}"
                    figures.add("running-context", row, length, nats / found["bytes"], command)


def _add_new_york(figures: Figures, out: Path) -> None:
    books = {}
    for name in MEASURES["new_york"]:
        if found := found_in(out / name, "new_york"):
            model = TITLES[name.split("-")[1]]
            command = f"{MEASURE} {name}"
            for length, each in found["by_length"].items():
                row = f"{model}, all" if length == "all" else f"{model}, {length} pieces"
                for column, key in (("I", "I"), ("C", "C"), ("C − I", "gain")):
                    interval = each[key] if key == "gain" else None
                    figures.add("new-york", row, column, each[key]["value"], command, interval=interval)
            books[model] = found["books"]
    if first := books.get(TITLES["xlnet"]):
        for rank, place in enumerate(sorted(range(len(first)), key=lambda at: -first[at]["gain"])[:GAINED], 1):
            for model, spans in books.items():
                assert spans[place]["pieces"] == first[place]["pieces"]
                row = f"{rank}. {first[place]['pieces']}"
                figures.add("new-york-spans", row, model, spans[place]["gain"], TABLE, digits=2)


def _add_orders(figures: Figures, out: Path) -> None:
    if found := found_in(out / "C-xlnet-lm", "orders"):
        command = f"{MEASURE} C-xlnet-lm"
        orders = found.pop("orders")
        for row, each in found.items():
            figures.add("orders", row, "nats per token", each["value"], command, interval=each)
        for row, value in (("best random order", min(orders)), ("worst random order", max(orders))):
            figures.add("orders", row, "nats per token", value, command)


def _add_memory(figures: Figures, out: Path) -> None:
    item = next(item for item in items() if item.name == "B-xlnet")
    for label in item.scores:
        if label != "own" and (found := found_in(out / item.name, label)):
            command = score_command(item, label, Path("DATA"), Path("OUT"))
            figures.add("memory-loss", label.replace("-", " "), "loss", found["loss"], command)
    if found := found_in(out / item.name, "memory"):
        command = f"{MEASURE} B-xlnet"
        for memory, each in found["saved"].items():
            figures.add("memory-loss", f"memory {memory}", "saved over memory 0", each["value"], command, interval=each)
    if found := found_in(out / item.name, "time"):
        command = f"{MEASURE} B-xlnet"
        for label in ("one pass", "memory"):
            title = "rows of 128 with memory 128" if label == "memory" else label
            for tokens in map(str, TIMED):
                each = found[label][tokens]
                figures.add("memory-time", f"{title}, ms per token", tokens, each["ms"], command, unit="ms")
                counted = each["counted"] / 1000
                figures.add("memory-time", f"{title}, thousand multiply-adds", tokens, counted, command, unit="", digits=0)
            for column, row in (("ms", "ms per token"), ("counted", "thousand multiply-adds")):
                value = found[label][f"slope of {column}"]
                figures.add("memory-time", f"{title}, {row}", "slope", value, command, unit="", digits=2)


def _add_ablation(figures: Figures, out: Path) -> None:
    seeds = [scores["per_byte"] for seed in SEEDS if (scores := found_in(out / f"A-xlnet-{seed}", "own"))]
    if len(seeds) < len(SEEDS) or not any(found_in(out / f"E-{name}-0", "own") for name in ABLATION):
        return
    known = {item.name: item for item in items()}
    for model, title in EXPECTED.items():
        name = f"{'A' if model in MODELS else 'E'}-{model}-0"
        if found := found_in(out / name, "own"):
            command = score_command(known[name], "own", Path("DATA"), Path("OUT"))
            figures.add("running-ablation", title, "per byte", found["per_byte"], command)
            away = (found["per_byte"] - mean(seeds)) / stdev(seeds)
            figures.add("running-ablation", title, "SDs from XLNet", away, TABLE, unit="", digits=1)


def _add_search(figures: Figures, out: Path) -> None:
    """Dev losses by tokens, and the tokens at the first dev loss that has left the plateau."""
    plateau = found_in(out / "masked-unigram", "own")
    if plateau is None:
        return
    columns = {"0.25 M": 2, "0.5 M": 4, "1 M": 8}
    for column in columns:
        figures.add("take-off", "frequencies of pieces", column, plateau["loss"], f"{MEASURE} masked-unigram", digits=3)
    rows = [(item, item.name.removeprefix("T-").replace("-", " ")) for item in search_items()]
    start = "R-bert-"
    recipe = [item for item in learned_items() if item.name.startswith(start)]
    rows += [(item, f"recipe, rate {item.name.removeprefix(start)}") for item in recipe]
    for item, row in rows:
        if losses := list(dev_losses(out / item.name).values()):
            command = train_command(item, Path("DATA"), Path("OUT"), "")
            for column, number in columns.items():
                if len(losses) >= number:
                    figures.add("take-off", row, column, losses[number - 1], command, digits=3)
            if left := [number for number, loss in enumerate(losses, 1) if loss <= plateau["loss"] - TAKE_OFF]:
                figures.add("take-off", row, "take-off", left[0] / 8, command, unit="M tokens", digits=3)


def _add_learned(figures: Figures, out: Path) -> None:
    """Own losses and the common footing of experiment M, with the spread over seeds."""
    known = {item.name: item for item in learned_items()}
    for model, (_, seeds, _) in LEARNED.items():
        scores = {seed: found for seed in seeds if (found := found_in(out / f"M-{model}-{seed}", "own"))}
        if not scores:
            continue
        command = score_command(known[f"M-{model}-0"], "own", Path("DATA"), Path("OUT")).replace(
            f"M-{model}-0", f"M-{model}-SEED"
        )
        for column, key in (("own loss", "loss"), ("per byte", "per_byte"), ("per token", "per_token")):
            values = [found[key] for found in scores.values()]
            spread = stdev(values) if len(values) > 1 else None
            figures.add("running-learned", TITLES[model], column, mean(values), command, seeds=list(scores), spread=spread)


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot dev losses during training, the loss by context length, and what earlier pieces of a span save."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "ramify"
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for number, model in enumerate(TITLES):
        label = TITLES[model]
        for seed in SEEDS:
            name = f"A-{model}-{seed}"
            if not seed and model in MODELS:
                rates = [rate for rate in RATES if dev_losses(arguments.out / f"L-{model}-{rate}")]
                name = f"L-{model}-{best_rate(arguments.out, model)}" if len(rates) == len(RATES) else name
            if losses := dev_losses(arguments.out / (name if model in MODELS else f"E-{model}-{seed}")):
                at = [step * ROW_TOKENS / 1e6 for step in losses]
                left.plot(at, list(losses.values()), "o-", markersize=3, color=f"C{number}", label=label)
                label = "_"
        if losses := dev_losses(arguments.out / f"B-{model}"):
            at = [step * ROW_TOKENS / 1e6 for step in losses]
            left.plot(at, list(losses.values()), "s--", markersize=3, color=f"C{number}", label=f"{TITLES[model]}, 8 M")
        for group, line, tokens in (("A", "o-", "1 M"), ("B", "s--", "8 M")):
            name = f"A-{model}-0" if group == "A" else f"B-{model}"
            if found := found_in(arguments.out / name, "context"):
                for key, suffix in (("all", ""), ("left", ", left part")):
                    if curve := found.get(key):
                        style = line if key == "all" else "^:"
                        values = [nats / found["bytes"] for nats in curve.values()]
                        title = f"{TITLES[model]}, {tokens}{suffix}"
                        middle.plot(
                            [int(length) for length in curve], values, style, markersize=3, color=f"C{number}", label=title
                        )
        if found := found_in(arguments.out / f"B-{model}", "new_york"):
            lengths = [length for length in found["by_length"] if length != "all"]
            gains = [found["by_length"][length]["gain"] for length in lengths]
            bars = [[each["value"] - each["low"] for each in gains], [each["high"] - each["value"] for each in gains]]
            place = [int(length) + (number - 2) * 0.05 for length in lengths]
            values = [each["value"] for each in gains]
            right.errorbar(place, values, bars, fmt="o-", markersize=4, color=f"C{number}", label=TITLES[model])
    left.set(xscale="log", xlabel="tokens of rows, millions", ylabel="nats per predicted token")
    most = max((line.get_xdata()[-1] for line in left.get_lines()), default=1)
    ticks = [(at, label) for at, label in zip((0.125, 0.25, 0.5, 1, 2, 4, 8), "⅛¼½1248", strict=True) if at < 1.1 * most]
    left.set_xticks(*map(list, zip(*ticks, strict=True)))
    left.minorticks_off()
    left.set_title("dev loss in each model's own terms", fontsize=10)
    middle.set(xlabel="tokens of the window", ylabel="nats per byte", xscale="log")
    middle.set_xticks(LENGTHS, list(map(str, LENGTHS)))
    middle.minorticks_off()
    middle.set_title("held-out loss of one token given all others", fontsize=10)
    right.set(xlabel="pieces of the span", ylabel="C − I, nats per span")
    right.set_xticks(range(2, 6))
    right.axhline(0, color="grey", linewidth=0.8)
    right.set_title("what the earlier pieces of a span save (8 M)", fontsize=10)
    for axes in (left, middle, right):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
        else:
            axes.remove()
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


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
    timing = commands.add_parser("time")
    timing.set_defaults(call=time_updates)
    timing.add_argument("--data", type=Path, required=True, help="folder that prepare wrote")
    measuring = commands.add_parser("measure")
    measuring.set_defaults(call=measure)
    measuring.add_argument("--data", type=Path, required=True)
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("names", nargs="+")
    add_keep(commands, keep)
    tables = add_figures(commands, table, picture, rows="xlnet.jsonl", machine="A")
    tables.add_argument("--measured", help="commit of the measurements of `measure` (default: that of the checkout)")
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())

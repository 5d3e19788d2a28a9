"""Check Ramify on one CUDA device, and measure it: the tests marked `cuda`, training steps, and sentence embedding.

    python benchmarks/gpu.py --out runs/gpu.json         at most five minutes; `make gpu` sets up .venv first
    python benchmarks/gpu.py --tiny                      the same code with tiny sizes on the CPU, in seconds
    python benchmarks/gpu.py keep runs/gpu.json          adds the figures to benchmarks/results/gpu.jsonl

`PYTHONPATH=src python3 benchmarks/gpu.py` needs the core dependencies alone; tests need pytest and hypothesis.

Models are trained by their recipes on texts that are drawn here, in bf16 and with deterministic algorithms, which are the
default. A step is what `ramify train` does for one update: drawing and masking the batch, forward, backward, clipping and the
optimizer. Each measure is the median over steps after a
warm-up, with its range. Operations are counted by torch in a first pass over the same batches: two per multiply-add of a matrix
product, convolution, attention or LSTM. The share of the peak is operations / time / the device's dense bf16 rate. Tokens are
those of targets, as the training log counts them, or of the embedded texts. A measure is null where its device has none.
"""

import argparse
import datetime
import gc
import json
import math
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
import torch.nn.attention.varlen  # torch counts its kernel once it is imported
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

from cost import random_tree
from ramify.dataset.build import build
from ramify.nn.precision import autocast
from ramify.recipes import RECIPES
from ramify.runs.base import Prepared
from ramify.runs.execute import environment
from ramify.tokenizer import Tokenizer
from ramify.training.trainer import Trainer
from ramify.tree import DOCUMENT, SPLIT, Node, Tree
from rows import ROOT, Row, replace_rows, slug
from tables import RESULTS, settings

FORMAT = 1
SECONDS = 270
"""No measurement starts later than this many seconds after the start."""
TEST_SECONDS = 120
PEAKS = {
    "B200": 2250.0,
    "H200 NVL": 835.5,
    "H200": 989.4,
    "H100 NVL": 835.5,
    "H100 PCIe": 756.5,
    "H100": 989.4,
    "A100": 311.9,
    "L40S": 362.1,
    "L4": 121.0,
}
"""Dense bf16 operations per second, in 10¹², by a part of the device's name. The first match counts."""

FULL_SIZES, TINY_SIZES = ("small", "base"), ("tiny",)


@dataclass(frozen=True)
class Case:
    """A recipe on a data set, and its settings by size. tiny: a few numbers. small: 256 × 4 layers. base: those of BERT-base.
    links is the shipped recipe in its size small."""

    recipe: str
    data: str
    tokenizer: str
    options: Mapping[str, Any]
    sizes: Mapping[str, Mapping[str, str]]


def _layers(dim: int, number: int, *names: str) -> dict[str, str]:
    """Settings of a model with heads of 64 and feed-forward layers four times as wide."""
    sizes = {"dim": dim, "num_heads": dim // 64, "ffn_dim": 4 * dim, **dict.fromkeys(names, number)}
    return {f"model.{name}": str(value) for name, value in sizes.items()}


_TREE = ("encoder_layers", "decoder_layers")
_LONG_ROWS = {"model.memory": "384", "input.row_tokens": "512", "input.reused_tokens": "256"}
_SHORT_ROWS = {"model.memory": "48", "input.row_tokens": "64", "input.reused_tokens": "32"}
_DEEP = {"model.encoder_cells": "[4, 2, 2, 2]", "model.decoder_cells": "[4, 2, 2, 2]"}
_WORDS = {"tokenizer.vectors": "random"}  # to train them takes half a minute
CASES = {
    "tree-mlm": Case(
        "tree-mlm",
        "discussions",
        "wordpiece",
        {"size": "base"},
        {
            "tiny": _layers(64, 1, *_TREE) | {"train.budget": "200"},
            "small": _layers(256, 4, *_TREE) | {"model.vocab_size": "16384", "train.budget": "16384"},
            "base": _layers(768, 12, *_TREE) | {"model.vocab_size": "30522", "train.budget": "16384"},
        },
    ),
    "bert": Case(
        "bert",
        "books",
        "wordpiece",
        {"size": "base", "published": True},
        {
            "tiny": _layers(64, 2, "num_layers") | {"train.budget": "512"},
            "small": _layers(256, 4, "num_layers") | {"model.vocab_size": "16384", "train.budget": "32768"},
            "base": _layers(768, 12, "num_layers") | {"model.vocab_size": "30522", "train.budget": "32768"},
        },
    ),
    "xlnet": Case(
        "xlnet",
        "books",
        "unigram",
        {"size": "base"},
        {
            "tiny": _layers(64, 1, "num_layers") | _SHORT_ROWS | {"view.streams": "1"},
            "small": _layers(256, 4, "num_layers") | {"model.vocab_size": "16384", "view.streams": "32"},
            "base": _layers(768, 12, "num_layers") | _LONG_ROWS | {"model.vocab_size": "32000", "view.streams": "8"},
        },
    ),
    "agent": Case(
        "agent",
        "books",
        "unigram",
        {"joint": True},
        {
            "tiny": {"model.dims": "[16, 16, 16, 16, 16]", "model.max_children": "[12, 4, 4, 4]", "train.budget": "512"},
            "small": {"train.budget": "8192"},
            "base": _DEEP | {"model.dims": "[256, 512, 768, 1024, 1024]", "model.vocab_size": "32000", "train.budget": "8192"},
        },
    ),
    "transformer": Case(
        "transformer",
        "discussions",
        "unigram",
        {},
        {
            "tiny": _layers(64, 1, *_TREE) | {"train.budget": "512"},
            "small": _layers(256, 3, *_TREE) | {"train.budget": "16384"},
            "base": _layers(512, 6, *_TREE) | {"train.budget": "32768"},
        },
    ),
    "seq2seq": Case(
        "seq2seq",
        "discussions",
        "unigram",
        {},
        {
            "tiny": {"model.hidden": "32", "train.budget": "512"},
            "small": {"train.budget": "16384"},
            "base": {"model.dim": "512", "model.hidden": "2048", "train.budget": "32768"},
        },
    ),
    "elmo": Case(
        "elmo",
        "books",
        "unigram",
        {"input": "words"},
        {
            "tiny": {"model.dim": "16", "model.hidden": "32", "view.streams": "2"},
            "small": {"view.streams": "128"},
            "base": {"model.dim": "512", "model.hidden": "4096", "view.streams": "128"},
        },
    ),
    "links": Case(
        "links",
        "logs",
        "",
        {},
        {
            "tiny": _WORDS | {"model.hidden": "32", "train.budget": "16"},
            "small": _WORDS,
            "base": _WORDS | {"model.hidden": "1024", "model.attention_dim": "512", "train.budget": "512"},
        },
    ),
}
EMBEDDERS = ("tree-mlm", "bert")
"""The models whose sentence embedding is measured: with the ancestors, and of texts alone."""


# --- data: all texts are drawn here ------------------------------------------------------------------------------------------


def _sentence(random: np.random.Generator, words: int = 20) -> str:
    return " ".join(f"w{number}" for number in random.integers(0, 6000, size=random.integers(3, 2 * words))) + "."


def _book(random: np.random.Generator, chapters: int, paragraphs: int, sentences: int) -> tuple[Node, ...]:
    nodes = [Node(kind=DOCUMENT)]
    for _ in range(chapters):
        chapter = len(nodes)
        nodes.append(Node(parents=(0,), kind="chapter"))
        for _ in range(paragraphs):
            paragraph = len(nodes)
            nodes.append(Node(parents=(chapter,), kind="paragraph"))
            nodes += [Node(_sentence(random), parents=(paragraph,), kind="sentence") for _ in range(sentences)]
    return tuple(nodes)


def _log(random: np.random.Generator, messages: int) -> tuple[Node, ...]:
    """A channel in which each message answers one of the last twelve, or starts a conversation."""
    nodes = []
    for index in range(messages):
        starts = index == 0 or random.random() < 0.1
        parents = () if starts else (int(random.integers(max(0, index - 12), index)),)
        author = f"user{random.integers(20)}"
        nodes.append(Node(_sentence(random, 8), parents, starts, str(index), author, 1.7e9 + 20.0 * index))
    return tuple(nodes)


def discussions(count: int, comments: int) -> list[Tree]:
    random = np.random.default_rng(0)
    return [random_tree("reddit", comments, random) for _ in range(count)]


def write_data(folder: Path, tiny: bool) -> None:
    """Build the data sets and train their tokenizers. One tree in eight is for dev."""
    random = np.random.default_rng(1)
    books, logs, trees, comments = (12, 2, 8, 10) if tiny else (120, 8, 160, 40)
    # A book fits into a batch of AGENT, so that all of its steps are alike.
    sizes = (2, 1, 2) if tiny else (4, 7, 6)
    made: dict[str, list[Tree]] = {
        "discussions": discussions(trees, comments),
        "books": [Tree(_book(random, *sizes)) for _ in range(books)],
        "logs": [Tree(_log(random, 100 if tiny else 1200)) for _ in range(logs)],
    }
    for name, drawn in made.items():
        file = folder / f"{name}.jsonl"
        split = [{SPLIT: "dev" if number == 0 else "train"} for number in range(len(drawn))]
        named = (replace(tree, id=str(number), meta=split[number]) for number, tree in enumerate(drawn))
        file.write_text("".join(tree.to_json() + "\n" for tree in named), "utf-8")
        build([file], "jsonl", folder / name)
    texts = [node.text for name in ("discussions", "books") for tree in made[name] for node in tree.nodes]
    for kind in ("wordpiece", "unigram"):
        Tokenizer.train(texts, kind=kind, vocab_size=512 if tiny else 8192, marks=True).save(folder / kind)


# --- measurements ------------------------------------------------------------------------------------------------------------


def _convolution_backward(
    out: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, out_shape: Any = None, **_: Any
) -> int:
    """Each gradient that `rest[-1]` asks for costs as much as the convolution. Torch's own count takes no account of groups."""
    return sum(rest[-1][:2]) * flop_counter.conv_flop_count([*x], [*weight], [*out])


def _lstm(x: Sequence[int], weights: Sequence[Sequence[int]], *_: Any, **__: Any) -> int:
    """Packed rows: `x` is [token, dim]. Torch does not count cuDNN's kernel."""
    return 2 * x[0] * sum(math.prod(shape) for shape in weights if len(shape) == 2)


def _lstm_backward(*shapes: Any, **_: Any) -> int:
    return 2 * _lstm(*shapes[:2])


def _attention(*shapes: Any, **_: Any) -> int:
    return flop_counter.sdpa_flop_count(*shapes[:3])


def _attention_backward(*shapes: Any, **_: Any) -> int:
    return flop_counter.sdpa_backward_flop_count(*shapes[:4])


FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten.convolution_backward: _convolution_backward,
    torch.ops.aten._cudnn_rnn: _lstm,
    torch.ops.aten._cudnn_rnn_backward: _lstm_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""Operations of kernels that torch does not count, or counts wrongly."""


def counter() -> FlopCounterMode:
    return FlopCounterMode(display=False, custom_mapping=FORMULAS)


@dataclass(frozen=True)
class Step:
    seconds: float
    operations: float
    tokens: float


def peak_rate(device: torch.device) -> float | None:
    """Operations per second; None: unknown."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((1e12 * rate for part, rate in PEAKS.items() if re.search(rf"\b{part}\b", name)), None)


def free_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def measures(steps: Sequence[Step], device: torch.device) -> list[dict[str, Any]]:
    """Rows of the measures of some steps."""
    peak = peak_rate(device)

    def row(measure: str, unit: str, values: Sequence[float]) -> dict[str, Any]:
        named: dict[str, Any] = {"measure": measure, "unit": unit, "value": None, "range": None}
        return named | ({"value": statistics.median(values), "range": [min(values), max(values)]} if values else {})

    memory = [torch.cuda.max_memory_allocated(device) / 2**20] if device.type == "cuda" else []
    return [
        row("step time", "ms", [1e3 * step.seconds for step in steps]),
        row("operations per step", "10⁹", [step.operations / 1e9 for step in steps]),
        row("share of peak", "%", [] if peak is None else [100 * step.operations / step.seconds / peak for step in steps]),
        row("peak memory", "MiB", memory),
        row("tokens per second", "tokens/s", [step.tokens / step.seconds for step in steps]),
    ]


def prepared(case: Case, size: str, data: Path, out: Path) -> Prepared:
    tokenizer = {"tokenizer": str(data / case.tokenizer)} if case.tokenizer else {}
    run = RECIPES[case.recipe](str(data / case.data), **case.options, **tokenizer)
    changes = {"train.precision": "bf16", "train.evaluate_every": "0", "train.checkpoint_every": "0"}
    return run.changed({**changes, **case.sizes[size]}).prepare(out)


def training_steps(run: Prepared, out: Path, steps: int, warm_up: int, device: torch.device) -> list[Step]:
    """Train twice on the same batches: first operations are counted, then time is measured."""

    def train(count: Callable[[], float]) -> list[list[float]]:
        """Seconds, tokens and the difference of `count` of every step after the warm-up."""
        totals: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)]
        trainer = Trainer(
            run.task,
            [run.stage(0)],
            out,
            seed=run.run.seed,
            report=lambda record: totals.append((record["seconds"], record["target_tokens"], count())),
            cpu=device.type == "cpu",
        )
        # A step ends when its loss is read, so the device has finished.
        trainer.run(until=warm_up + steps)
        if trainer.stopped:
            raise KeyboardInterrupt
        return np.diff(totals, axis=0)[warm_up:].tolist()

    run.task.to(device)
    with counter() as counted:
        operations = [each for *_, each in train(counted.get_total_flops)]
    free_memory(device)
    timed = train(lambda: 0.0)
    return [Step(seconds, each, tokens) for (seconds, tokens, _), each in zip(timed, operations, strict=True)]


def embedding_steps(run: Prepared, trees: list[Tree], steps: int, warm_up: int, device: torch.device) -> list[Step]:
    """Embed the same comments several times, as `model.embed` does it, tokenization included."""
    model: Any = run.pipeline().to(device)
    tokens = sum(len(model.tokenizer.encode(node.text)) for tree in trees for node in tree.nodes)

    def embed() -> float:
        began = time.perf_counter()
        with autocast(device, "bf16"):
            vectors = model.embed(trees)  # NumPy: the device has finished
        assert len(vectors) == sum(map(len, trees))
        return time.perf_counter() - began

    with counter() as counted:
        embed()
    free_memory(device)
    times = [embed() for _ in range(warm_up + steps)][warm_up:]
    return [Step(seconds, counted.get_total_flops(), tokens) for seconds in times]


def measure(family: str, size: str, data: Path, device: torch.device, steps: int, warm_up: int) -> list[dict[str, Any]]:
    """The rows of a family: a key of `CASES`, or `embed NAME`."""
    free_memory(device)
    name = family.removeprefix("embed ")
    with tempfile.TemporaryDirectory() as folder:
        run = prepared(CASES[name], size, data, Path(folder))
        if name == family:
            taken = training_steps(run, Path(folder), steps, warm_up, device)
        else:
            trees = discussions(3, 10) if size in TINY_SIZES else discussions(100, 40)
            taken = embedding_steps(run, trees, steps, warm_up, device)
        return [{"family": family, "size": size, **row} for row in measures(taken, device)]


# --- tests -------------------------------------------------------------------------------------------------------------------


def marked_files() -> list[Path]:
    """The files with tests marked `cuda`."""
    return [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.cuda" in file.read_text("utf-8")]


def marked_tests(files: Sequence[Path], missing: str = "") -> dict[str, Any]:
    """Run the tests marked `cuda` in a process of their own. `missing` is a reason not to."""
    missing = missing or ", ".join(f"{name} is not installed" for name in ("pytest", "hypothesis") if find_spec(name) is None)
    if missing:
        return {"outcome": "not run", "reason": missing}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "cuda",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            *map(str, files),
        ]
        try:
            done = subprocess.run(command, cwd=ROOT, timeout=TEST_SECONDS, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return {"outcome": "failed", "reason": f"the tests took more than {TEST_SECONDS} s"}
        suite = ElementTree.parse(report).find("testsuite") if report.exists() else None
    numbers = {key: 0 if suite is None else int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    passed = numbers["tests"] - numbers["failures"] - numbers["errors"] - numbers["skipped"]
    return {
        "outcome": "failed" if done.returncode else "passed" if passed else "skipped",
        "passed": passed,
        "failed": numbers["failures"] + numbers["errors"],
        "skipped": numbers["skipped"],
        "seconds": round(time.perf_counter() - began, 1),
        "reason": done.stdout[-4000:] if done.returncode else "",
    }


# --- the whole check ---------------------------------------------------------------------------------------------------------


def no_device() -> str:
    """The reason why torch has no CUDA device, and the remedy."""
    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} at {Path(torch.__file__).parent} is built without CUDA: pip took a CPU-only wheel, as "
            "its index decides. Install a build with CUDA there (https://pytorch.org/get-started), or run the script by a "
            "Python that has one: PYTHONPATH=src python3 benchmarks/gpu.py. --tiny needs no device."
        )
    return (
        f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no device. Check that nvidia-smi lists one and that its "
        "driver is new enough, or add --tiny for the CPU."
    )


def described(device: torch.device) -> dict[str, Any]:
    """The device by name, memory and driver. A CPU has only a name."""
    if device.type != "cuda":
        return {"name": platform.processor() or platform.machine(), "memory_mib": None, "driver": None, "cuda": None}
    properties = torch.cuda.get_device_properties(device)
    memory = properties.total_memory // 2**20
    return {"name": properties.name, "memory_mib": memory, "driver": _driver(), "cuda": torch.version.cuda}


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def check(out: Path, tiny: bool, steps: int, warm_up: int) -> int:
    """Run tests and measurements, and write them to `out`. Returns the exit status: 1 if anything failed."""
    began = time.perf_counter()
    device = torch.device("cpu" if tiny else "cuda")
    tests = marked_tests(marked_files(), "--tiny measures the CPU" if tiny else "")
    print(f"tests: {tests['outcome']} {tests['reason']}", flush=True)
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), tiny)
        for size in TINY_SIZES if tiny else FULL_SIZES:
            for family in (*CASES, *(f"embed {name}" for name in EMBEDDERS)):
                error = "" if time.perf_counter() - began < SECONDS else f"not started: {SECONDS} s are over"
                try:
                    new = [] if error else measure(family, size, Path(folder), device, steps, warm_up)
                except Exception as reason:  # whatever it is, the other families are measured
                    new, error = [], f"{type(reason).__name__}: {reason}"
                rows += new
                failed += [{"family": family, "size": size, "error": error}] if error else []
                shown = (f"{row['measure']} {row['value']:.4g} {row['unit']}" for row in new if row["value"] is not None)
                print(f"{family}, {size}: {error or ', '.join(shown)}", flush=True)
    record = {
        "format": FORMAT,
        "date": datetime.date.today().isoformat(),
        "seconds": round(time.perf_counter() - began, 1),
        **{key: value for key, value in environment().items() if key != "hardware"},
        "device": described(device),
        "precision": "bf16",
        "steps": steps,
        "counts_varlen_attention": torch.ops.torch_attn._varlen_attn in flop_counter.flop_registry,
        "tests": tests,
        "rows": rows,
        "failed": failed,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{out}: {len(rows)} rows in {record['seconds']:.0f} s")
    return 1 if failed or tests["outcome"] == "failed" else 0


# --- results -----------------------------------------------------------------------------------------------------------------


def kept_rows(record: Mapping[str, Any], machines: Mapping[str, Mapping[str, Any]], commit: str = "") -> list[Row]:
    """The figures of a check as rows of results. Raises `ValueError` if its machine or its commit is unknown."""
    device = record["device"]["name"]
    machine = next((key for key, machine in machines.items() if machine["processor"] == device), None)
    if machine is None:
        raise ValueError(f"machines.toml has no machine with processor = {device!r}. Add it.")
    commit = commit or record["commit"]
    if not commit:
        raise ValueError("the file names no commit, because the code was not a checkout. Add --commit.")

    def short(number: float) -> Decimal:
        return Decimal(f"{number:.3g}") if abs(number) < 100 else Decimal(round(number))

    return [
        Row(
            name=f"gpu.{slug(machine)}_{slug(row['family'])}_{row['size']}.{slug(row['measure'])}",
            value=short(row["value"]),
            unit=row["unit"],
            command="python benchmarks/gpu.py",
            commit=commit.removesuffix("+"),
            hardware=machine,
            date=datetime.date.fromisoformat(record["date"]),
            seeds=(0,),
            note="with changes that are not committed" if commit.endswith("+") else "",
            table="gpu",
            row=f"{machine}: {row['family']}, {row['size']}",
            column=row["measure"],
            range=(short(row["range"][0]), short(row["range"][1])) if row["range"][0] < row["range"][1] else None,
        )
        for row in record["rows"]
        if row["value"] is not None
    ]


def keep(file: Path, commit: str) -> int:
    record = json.loads(file.read_text("utf-8"))
    if record["format"] != FORMAT:
        raise ValueError(f"{file} has format {record['format']}, not {FORMAT}. Measure again.")
    rows = kept_rows(record, settings("machines"), commit)
    replace_rows(RESULTS / "gpu.jsonl", rows)
    print(f"{RESULTS / 'gpu.jsonl'}: {len(rows)} rows. Now run python benchmarks/tables.py.")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs/gpu.json")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each family and size")
    parser.add_argument("--warm-up", type=int, default=3)
    keeping = parser.add_subparsers(dest="call").add_parser("keep", help="add the figures of a check to the results")
    keeping.add_argument("file", type=Path)
    keeping.add_argument("--commit", default="", help="commit of the check, if the file names none")
    arguments = parser.parse_args()
    if arguments.call == "keep":
        return keep(arguments.file, arguments.commit)
    if not arguments.tiny and not torch.cuda.is_available():
        sys.exit(f"error: {no_device()}")
    return check(arguments.out, arguments.tiny, arguments.steps, arguments.warm_up)


if __name__ == "__main__":
    sys.exit(main())

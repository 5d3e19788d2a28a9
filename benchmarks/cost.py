"""Measure the cost of each regime: time per predicted comment, peak memory, and counted operations.

    python benchmarks/cost.py --source STORE --trees 25 --repeats 7 --json results.json

Regimes are interleaved in one process; times are medians with their range. Counted operations are multiply-adds of linear maps
and attention, so their ratios are exact for these. Measured ratios also include norms, dropout, the optimizer and Python. Peak
memory is measured in a fresh subprocess per regime.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from ramify.memory import keep_pages

keep_pages()  # before torch is imported

import numpy as np
import torch

from ramify.batching.batch import Batch, Collator
from ramify.batching.forest import Forest
from ramify.batching.samplers import TokenBudget
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import Discussions, units
from ramify.dataset.store import Store
from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig
from ramify.nn.precision import Precision, autocast
from ramify.tasks.base import MAIN
from ramify.tasks.masked_lm import VECTOR_LOSSES, MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree
from rows import add_options, append_rows

VOCABULARY = 8192
ADDITIONS = "additions"
"""Whole trees with output attention and both bag-of-words losses."""
TEXT = "text"
"""BERT on rows of the ancestors' texts and the comment's, of at most `TEXT_LENGTH` tokens."""
TEXT_LENGTH = 256
SHARED = ("comments", "trees", "dim", "layers", "budget", "mask_rate", "max_tokens", "max_context", "threads")
"""Options of the subprocess that measures memory."""
HALF = "-bf16"
"""Suffix of the name of a regime in half precision."""
REGIMES = {
    "naive": {"regime": "naive"},
    "threads": {"regime": "threads", "threads_over": "leaves"},
    "tree": {"regime": "tree"},
    "middle": {"regime": "middle", "max_tree_size": 60},
}


def random_tree(shape: str, comments: int, random: np.random.Generator) -> Tree:
    """Draw a post and comments of geometric lengths (mean 30 words).

    `uniform` attaches a comment to any earlier node; `reddit` attaches 30 % to the post and the others to one of the last 12.
    """
    nodes = []
    for index in range(comments + 1):
        if index == 0:
            parents: tuple[int, ...] = ()
        elif shape == "chain":
            parents = (index - 1,)
        elif shape == "star" or (shape == "reddit" and random.random() < 0.3):
            parents = (0,)
        elif shape == "reddit":
            parents = (int(random.integers(max(0, index - 12), index)),)
        else:
            parents = (int(random.integers(index)),)
        words = " ".join(f"w{number}" for number in random.integers(0, 6000, size=random.geometric(1 / 30)))
        nodes.append(Node(text=words, parents=parents, id=str(index)))
    return Tree(tuple(nodes), id=f"{shape}-{comments}")


def operations(batch: Batch, dim: int, layers: int, context: bool, additions: bool = False) -> float:
    """Count the multiply-adds of a forward pass: 12 d² per token and layer (14 d² with cross-attention), attention, and the
    vocabulary at the masked positions. The last decoder layer computes only these, and keys and values for all tokens.

    Additions: a key and a value per node, a query per masked position and their attention; in both bag-of-words losses, a
    projection and the vocabulary per node.
    """

    def attention(lengths: np.ndarray) -> float:
        return 2 * dim * float((lengths.astype(np.float64) ** 2).sum())

    assert batch.output_positions is not None
    masked = batch.output_positions.rows.total
    target, per_token = batch.targets, (14 if context else 12) * dim**2
    full = layers - 1
    total = full * (target.total * per_token + attention(target.host_lengths))
    total += (
        2 * dim**2 * target.total
        + (per_token - 2 * dim**2) * masked
        + 2 * dim * float((target.host_lengths * batch.output_positions.rows.host_lengths).sum())
    )
    if context:
        keys, queries = batch.contexts.host_lengths, target.host_lengths
        total += full * 2 * dim * float((keys * queries).sum()) + layers * 2 * dim**2 * len(batch.nodes)
        total += layers * (batch.nodes.total * 12 * dim**2 + attention(batch.nodes.host_lengths))
    if additions:
        asked = batch.output_positions.rows.host_lengths
        total += len(batch.nodes) * (2 * dim**2 + 2 * (dim**2 + dim * VOCABULARY))
        total += masked * dim**2 + 2 * dim * float((batch.contexts.host_lengths * asked).sum())
    return total + masked * dim * VOCABULARY


class Case:
    """Prepared steps of one regime on one data set, with their counts."""

    def __init__(
        self,
        name: str,
        forest: Forest,
        trees: np.ndarray,
        tokenizer: Tokenizer,
        dim: int,
        layers: int,
        budget: int,
        rate: float,
        max_tokens: int,
        max_context: int,
    ) -> None:
        self.name = name
        self.precision: Precision = "bf16" if name.endswith(HALF) else "fp32"
        name = name.removesuffix(HALF)
        regime = REGIMES.get(name, REGIMES["tree"])
        text = TEXT_LENGTH if name == TEXT else 0
        input = TextInput(max_tokens, max_context=max_context, context="none" if name == "bert" else "tree", concatenate=text)
        reads_vectors = name not in ("bert", TEXT)
        # The text model has as many layers as the encoder and the decoder together.
        depth = 2 * layers if name == TEXT else layers
        shared = {"dropout": 0.1, "num_heads": max(1, dim // 64), "ffn_dim": 4 * dim, "dim": dim, "vocab_size": VOCABULARY}
        torch.manual_seed(0)
        if not reads_vectors:
            backbone: Bert | TreeMLM = Bert(BertConfig(num_layers=depth, max_tokens=input.longest, **shared))
        else:
            config = TreeMLMConfig(encoder_layers=layers, decoder_layers=layers, **shared)
            backbone = TreeMLM(replace(config, output_attention=name == ADDITIONS))
        words = 0.3 if name == ADDITIONS else 0.0
        task = MaskedLMConfig(mask_rate=rate, own_words=words, reply_words=words, chunk_tokens=budget)
        phase = "always" if name == "two-phase" else "never"
        self.task = MaskedLM(backbone, tokenizer, input, replace(task, two_phase=phase)).train()
        view = Discussions(forest, units(forest, trees, **regime), input)
        # The paper's units are independent: every unit that reads a node encodes it again.
        collate = Collator(forest, tokenizer, input, share=name not in ("naive", "threads", "middle"))
        generator = torch.Generator().manual_seed(0)
        # Two phases take whole trees; other regimes fill steps up to the budget.
        steps = TokenBudget(view.costs, budget if name != "two-phase" else 2**40, seed=0).steps(0)
        self.batches = [self.task.corrupt(collate([view.example(int(n)) for n in step]), generator) for step in steps]
        self.predicted = sum(len(batch.targets) for batch in self.batches)
        if name == "threads":
            self.predicted = len(np.unique(np.concatenate([batch.source for batch in self.batches])))
        self.encoder_runs = sum(len(batch.nodes) for batch in self.batches)
        forward = sum(operations(batch, dim, depth, reads_vectors, name == ADDITIONS) for batch in self.batches)
        encoder = sum(
            layers * (batch.nodes.total * 12 * dim**2 + 2 * dim * float((batch.nodes.host_lengths**2).sum()))
            for batch in self.batches
        )
        # A backward pass costs two forward passes. A two-phase gradient encodes once more.
        self.operations = 3 * forward + (encoder if name == "two-phase" else 0.0)

    def run(self) -> float:
        began = time.perf_counter()
        for batch in self.batches:
            self.task.zero_grad(set_to_none=True)
            passes = self.task.losses(batch, dict.fromkeys(("masked_lm", *VECTOR_LOSSES), 1.0), MAIN, None, None)
            while True:
                with autocast(self.task.device, self.precision):
                    found = next(passes, None)
                if found is None:
                    break
                losses, _ = found
                torch.stack(list(losses.values())).sum().backward()
        return time.perf_counter() - began


def measure(cases: list[Case], repeats: int) -> list[dict]:
    times: dict[str, list[float]] = {case.name: [] for case in cases}
    for case in cases:
        case.run()
    for _ in range(repeats):
        for case in cases:
            times[case.name].append(case.run())
    rows = []
    for case in cases:
        each = sorted(1e3 * seconds / case.predicted for seconds in times[case.name])
        rows.append(
            {
                "regime": case.name,
                "predicted": case.predicted,
                "encoder_runs": case.encoder_runs,
                "ms_per_comment": statistics.median(each),
                "range": [each[0], each[-1]],
                "operations_per_comment": case.operations / case.predicted,
            }
        )
    return rows


def prepare(source: str, comments: int, max_trees: int, max_tokens: int, seed: int = 0) -> tuple[Forest, np.ndarray, Tokenizer]:
    """Return random trees of a shape, or the first trees of a built store."""
    if source in ("uniform", "reddit", "chain", "star"):
        random = np.random.Generator(np.random.Philox(key=seed))
        store = Store.from_trees([replace(random_tree(source, comments, random), id=str(n)) for n in range(max_trees)])
        nodes = np.arange(store.num_nodes)
        tokenizer = Tokenizer.train(store.texts(nodes), vocab_size=VOCABULARY)
        trees = np.arange(max_trees)
    else:
        store = Store.open(source)
        train = store.split("train")
        sizes = store.offsets[train + 1] - store.offsets[train]
        trees = train[sizes > 1][:max_trees]
        texts = [text for tree in trees[:2000] for text in store.texts(np.arange(store.offsets[tree], store.offsets[tree + 1]))]
        tokenizer = Tokenizer.train(texts, vocab_size=VOCABULARY)
        store = Store.from_trees(store.trees(trees))
        trees = np.arange(store.num_trees)
    return Forest.open(store, tokenizer, max_tokens), trees, tokenizer


def peak(arguments: argparse.Namespace) -> None:
    """Measure how much one pass of a regime adds to the memory of a fresh process."""
    forest, trees, tokenizer = prepare(arguments.source, arguments.comments, arguments.trees, arguments.max_tokens)
    case = Case(
        arguments.peak,
        forest,
        trees,
        tokenizer,
        arguments.dim,
        arguments.layers,
        arguments.budget,
        arguments.mask_rate,
        arguments.max_tokens,
        arguments.max_context,
    )
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _resident("VmRSS")
    seconds = case.run()
    found = {"mib": _resident("VmHWM") - before, "comments": case.predicted, "seconds": seconds}
    print(json.dumps(found))
    append_rows(arguments, "peak", f"{arguments.source}: {arguments.peak}", found)


def _resident(name: str) -> float:
    """Return a field of this process's status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="uniform", help="uniform, reddit, chain, star, or the folder of a built store")
    parser.add_argument("--comments", type=int, default=500, help="number of comments of a random tree")
    parser.add_argument("--trees", type=int, default=1)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--budget", type=int, default=8192, help="tokens per step and per two-phase chunk")
    parser.add_argument("--mask-rate", type=float, default=0.15)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--max-context", type=int, default=0, help="ancestors that a comment reads (0: all)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--regimes",
        default="naive,threads,tree,middle,two-phase,bert",
        help="comma-separated, also additions and text; the suffix -bf16 selects half precision",
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peak", help="measure only the peak memory of this regime")
    parser.add_argument("--json", type=Path)
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    if arguments.peak:
        peak(arguments)
        return
    forest, trees, tokenizer = prepare(arguments.source, arguments.comments, arguments.trees, arguments.max_tokens)
    names = arguments.regimes.split(",")
    sizes = arguments.dim, arguments.layers, arguments.budget, arguments.mask_rate, arguments.max_tokens, arguments.max_context
    cases = [Case(name, forest, trees, tokenizer, *sizes) for name in names]
    rows = measure(cases, arguments.repeats)
    tree = next((row for row in rows if row["regime"] == "tree"), rows[0])
    columns = {
        "regime": 10,
        "comments": 9,
        "encoded": 8,
        "ms/comment": 11,
        "range": 16,
        "÷ tree": 7,
        "counted ÷ tree": 15,
        "MiB": 7,
    }
    print(*(f"{name:>{width}}" for name, width in columns.items()))
    for row in rows:
        own = [sys.executable, __file__, "--peak", row["regime"], "--source", arguments.source]
        own += [f"--{name.replace('_', '-')}={getattr(arguments, name)}" for name in SHARED]
        row["mib"] = json.loads(subprocess.run(own, capture_output=True, text=True, check=True).stdout)["mib"]
        row["ratio"] = row["ms_per_comment"] / tree["ms_per_comment"]
        row["counted_ratio"] = row["operations_per_comment"] / tree["operations_per_comment"]
        low, high = row["range"]
        append_rows(arguments, "regime-cost", f"{arguments.source}: {row['regime']}", row)
        print(
            f"{row['regime']:>10} {row['predicted']:>9,} {row['encoder_runs']:>8,} {row['ms_per_comment']:>11.3f} "
            f"{low:>8.3f}-{high:<7.3f} {row['ratio']:>7.2f} {row['counted_ratio']:>15.2f} {row['mib']:>7.0f}"
        )
    print(json.dumps({"source": arguments.source, "comments": arguments.comments, "rows": rows}))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

"""Compare the backpropagation engine with torch: time per operation, and training of the same Transformer.

    python benchmarks/backprop.py speed
    python benchmarks/backprop.py learn --data sst2

`speed` measures microseconds per operation, forward and backward, on a graph of scalars and on a graph of matrices: medians of
interleaved rounds. It includes micrograd on scalars if that is installed. `learn` trains a tiny encoder on sentences of SST-2,
in step with the same model in torch, both in float64. It prints the largest difference of the two losses, accuracy on dev, and
seconds.
"""

import argparse
import csv
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ramify.autograd import Tensor, no_grad, relu
from ramify.autograd.layers import SentenceClassifier, cross_entropy
from ramify.autograd.optimizers import Adam
from rows import add_options, append_rows

ROUNDS = 9

# --- speed -----------------------------------------------------------------------------------------------------------------


def tree(leaf: Callable[[float], Any], rectified: Callable[[Any], Any], depth: int) -> tuple[Any, int]:
    """Build a binary tree of sums, products and ReLUs. Return its root and its number of operations."""
    level = [leaf(0.5 + 0.001 * number) for number in range(2**depth)]
    operations = 0
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2], strict=True))
        level = [
            a + b if number % 3 == 0 else a * b if number % 3 == 1 else rectified(a + b) for number, (a, b) in enumerate(pairs)
        ]
        operations += sum(2 if number % 3 == 2 else 1 for number in range(len(pairs)))
    return level[0], operations


def scalars() -> Iterator[tuple[str, Callable[[], int]]]:
    def run(leaf: Callable[[float], Any], rectified: Callable[[Any], Any]) -> Callable[[], int]:
        def once() -> int:
            output, operations = tree(leaf, rectified, 9)
            output.backward()
            return operations

        return once

    yield "ramify", run(Tensor, relu)
    yield "torch", run(lambda value: torch.tensor(value, dtype=torch.float64, requires_grad=True), torch.relu)
    if find_spec("micrograd"):
        from micrograd.engine import Value  # pyright: ignore[reportMissingImports]

        yield "micrograd", run(Value, lambda value: value.relu())


def matrices() -> Iterator[tuple[str, Callable[[], int]]]:
    start = np.random.default_rng(0).normal(size=(128, 128)) / 12

    def run(leaf: Callable[[NDArray[np.float64]], Any], rectified: Callable[[Any], Any]) -> Callable[[], int]:
        def once() -> int:
            x, w = leaf(start), leaf(start)
            for _ in range(30):
                x = rectified(x @ w) + x
            x.sum().backward()
            return 91

        return once

    yield "ramify", run(Tensor, relu)
    yield "torch", run(lambda value: torch.tensor(value, requires_grad=True), torch.relu)


def speed(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    for what, kinds in (("single numbers", scalars()), ("matrices of 128 × 128", matrices())):
        runs = dict(kinds)
        spent: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, run in runs.items():
                began = time.perf_counter()
                operations = run()
                spent[name].append((time.perf_counter() - began) / operations * 1e6)
        found = {"microseconds_an_operation": {name: round(median(each), 2) for name, each in spent.items()}}
        print(json.dumps({"graph": what} | found))
        append_rows(arguments, "engine-speed", what, found)


# --- learning ---------------------------------------------------------------------------------------------------------------


class Twin(torch.nn.Module):
    """The same classifier built from torch's layers."""

    def __init__(self, words: int, classes: int, size: int, heads: int, layers: int, inner: int, places: int) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, size), torch.nn.Embedding(places, size)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(size, heads, inner, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = torch.nn.Linear(size, classes)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        there = torch.arange(ids.shape[1]) < lengths[:, None]
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~there)
        return self.head((x * there[:, :, None]).sum(1) / lengths[:, None])

    @torch.no_grad()
    def start_as(self, model: SentenceClassifier) -> None:
        ours = {name: torch.from_numpy(tensor.known) for name, tensor in model.named_parameters()}
        taken = set()
        for name, parameter in self.named_parameters():
            old = (
                name.replace("self_attn.out_proj", "attention.out")
                .replace("linear1", "ffn_in")
                .replace("linear2", "ffn_out")
                .replace("norm1", "attention_norm")
                .replace("norm2", "ffn_norm")
            )
            parts = [old]
            if "self_attn.in_proj" in name:
                layer, kind = name.split("self_attn.in_proj_")
                parts = [f"{layer}attention.{each}.{kind}" for each in ("query", "key", "value")]
            parameter.copy_(torch.cat([ours[part] for part in parts]))
            taken.update(parts)
        assert taken == set(ours)


SIZES = {"size": 32, "heads": 4, "layers": 2, "inner": 64, "places": 64}


def sentences(file: Path, count: int) -> tuple[list[list[str]], NDArray[np.int64]]:
    with file.open(encoding="utf-8", newline="") as rows:
        found = list(csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE))[:count]
    return [row["sentence"].split()[: SIZES["places"]] for row in found], np.array([int(row["label"]) for row in found])


def batches(
    texts: list[list[str]], known: dict[str, int], chosen: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids, padded with zeros, and lengths."""
    own = [[known.get(word, 0) for word in texts[number]] for number in chosen]
    lengths = np.array([len(each) for each in own])
    ids = np.zeros((len(own), lengths.max()), dtype=np.int64)
    for row, each in zip(ids, own, strict=True):
        row[: len(each)] = each
    return ids, lengths


def learn(data: Path, *, count: int, steps: int, size: int = 32, seed: int = 0) -> dict[str, Any]:
    """Train both models on the same sentences in the same order."""
    texts, labels = sentences(data / "train.tsv", count)
    frequent = Counter(word for text in texts for word in text)
    known = {word: number for number, (word, often) in enumerate(frequent.most_common(), 1) if often > 1}
    generator = np.random.default_rng(seed)
    model = SentenceClassifier(len(known) + 1, 2, generator, **SIZES)
    twin = Twin(len(known) + 1, 2, **SIZES).double()
    twin.start_as(model)
    ours, theirs = Adam(model.parameters(), lr=1e-3), torch.optim.Adam(twin.parameters(), lr=1e-3)
    losses, seconds = [], [0.0, 0.0]
    for _ in range(steps):
        chosen = generator.choice(len(texts), size, replace=False)
        ids, lengths = batches(texts, known, chosen)
        began = time.perf_counter()
        loss = cross_entropy(model(ids, lengths), labels[chosen])
        loss.backward(retain=False)
        ours.step()
        between = time.perf_counter()
        theirs.zero_grad()
        expected = F.cross_entropy(twin(torch.from_numpy(ids), torch.from_numpy(lengths)), torch.from_numpy(labels[chosen]))
        expected.backward()
        theirs.step()
        seconds[0] += between - began
        seconds[1] += time.perf_counter() - between
        losses.append((float(loss.item()), expected.item()))
    dev, gold = sentences(data / "dev.tsv", 1000)
    with no_grad():
        scores = model(*batches(dev, known, np.arange(len(dev)))).known
    return {
        "steps": steps,
        "first_loss": losses[0][0],
        "last_loss": float(np.mean([each for each, _ in losses[-20:]])),
        "largest_distance": max(abs(a - b) for a, b in losses),
        "dev_accuracy": float((scores.argmax(axis=1) == gold).mean()),
        "seconds": {"ramify": seconds[0], "torch": seconds[1]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "learn"])
    parser.add_argument("--data", type=Path, help="folder with train.tsv and dev.tsv of SST-2")
    parser.add_argument("--sentences", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=1000)
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.what == "speed":
        speed(arguments)
    elif arguments.data is None:
        parser.error("learn needs sentences of SST-2. Set --data to the folder of train.tsv and dev.tsv.")
    else:
        torch.set_num_threads(1)
        found = learn(arguments.data, count=arguments.sentences, steps=arguments.steps)
        print(json.dumps(found))
        append_rows(arguments, "engine-learn", "SST-2", found, seeds=(0,))


if __name__ == "__main__":
    main()

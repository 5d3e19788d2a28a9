"""Compare a masked-LM step with `BertForMaskedLM`, and `embed` with sentence-transformers.

    python benchmarks/huggingface.py step --data STORE --init MINILM --dim 256 --layers 4
    python benchmarks/huggingface.py embed --data STORE --init MINILM

`pip install -e .[bench]` installs both references.

All sides use the same comments (in the store's order), tokenizer, ids truncated to 128, configuration and threads, fused AdamW,
and fp32 unless noted. They are interleaved in one process; speeds are medians. tokens/s counts real tokens, never padding.
`counted` is the ratio of multiply-adds per real token in linear maps and attention, forward. It excludes the rest of a step,
above all the optimizer.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ramify.memory import keep_pages

if "--keep-pages" in sys.argv:  # before torch is imported
    keep_pages()

import numpy as np
import torch

import ramify
from ramify.batching.batch import Collator
from ramify.batching.forest import Forest
from ramify.batching.samplers import TokenBudget
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import Discussions, units
from ramify.dataset.store import Store
from ramify.models.bert import Bert, BertConfig, config_to_hf
from ramify.tasks.base import MAIN
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer
from rows import add_options, append_rows

MAX_TOKENS = 128
BATCH = 32


def comments(data: Path, tokenizer: Tokenizer, count: int) -> tuple[Forest, np.ndarray]:
    """Return the first comments of the training split that have text, and a forest of their trees."""
    store = Store.open(data)
    trees = store.split("train")
    sizes = store.offsets[trees + 1] - store.offsets[trees]
    trees = trees[sizes > 1]
    trees = trees[: int(np.searchsorted(np.cumsum(sizes[sizes > 1]), 2 * count)) + 1]
    forest = Forest.open(Store.from_trees(store.trees(trees)), tokenizer, MAX_TOKENS)
    nodes = np.flatnonzero((forest.parent >= 0) & (forest.length > 0))[:count]
    return forest, nodes


def rows(forest: Forest, nodes: np.ndarray, tokenizer: Tokenizer) -> list[list[int]]:
    own = np.minimum(forest.length[nodes], MAX_TOKENS - 2)
    flat = np.split(forest.gather(nodes, own), np.cumsum(own)[:-1])
    return [[tokenizer.cls_id, *ids.tolist(), tokenizer.sep_id] for ids in flat]


class Theirs:
    """`BertForMaskedLM` with the masks of DataCollatorForLanguageModeling, on shuffled batches of 32 padded to the longest row.

    `grouped` sorts by length within 50 batches, as `group_by_length` does.
    """

    def __init__(self, config: BertConfig, ids: list[list[int]], tokenizer: Tokenizer, grouped: bool) -> None:
        from transformers import BertConfig as Config
        from transformers import BertForMaskedLM

        torch.manual_seed(0)
        fields = config_to_hf(config) | {"attn_implementation": "sdpa"}
        self.model = BertForMaskedLM(Config(**{key: value for key, value in fields.items() if key != "architectures"})).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.tokenizer = tokenizer
        order = np.random.Generator(np.random.Philox(key=0)).permutation(len(ids))
        if grouped:
            mega = [order[start : start + 50 * BATCH] for start in range(0, len(order), 50 * BATCH)]
            order = np.concatenate([sorted(each, key=lambda row: -len(ids[row])) for each in mega])
        self.batches = [[ids[row] for row in order[start : start + BATCH]] for start in range(0, len(order), BATCH)]
        self.next = 0
        self.generator = torch.Generator().manual_seed(0)

    def step(self) -> int:
        batch = self.batches[self.next % len(self.batches)]
        self.next += 1
        longest = max(map(len, batch))
        ids = torch.zeros(len(batch), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, each in enumerate(batch):
            ids[row, : len(each)] = torch.tensor(each)
            mask[row, : len(each)] = 1
        special = (ids == self.tokenizer.cls_id) | (ids == self.tokenizer.sep_id) | (mask == 0)
        chosen = (torch.rand(ids.shape, generator=self.generator) < 0.15) & ~special
        labels = torch.where(chosen, ids, -100)
        action = torch.rand(ids.shape, generator=self.generator)
        drawn = torch.randint(len(self.model.bert.embeddings.word_embeddings.weight), ids.shape, generator=self.generator)
        shown = torch.where(chosen & (action < 0.8), self.tokenizer.mask_id, ids)
        shown = torch.where(chosen & (action >= 0.8) & (action < 0.9), drawn, shown)
        loss = self.model(input_ids=shown, attention_mask=mask, labels=labels).loss
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return int(mask.sum())


class Ours:
    """The same model on flat batches with as many comments per step."""

    def __init__(self, config: BertConfig, forest: Forest, nodes: np.ndarray, tokenizer: Tokenizer, bf16: bool) -> None:
        torch.manual_seed(0)
        input = TextInput(max_tokens=MAX_TOKENS, context="none")
        self.task = MaskedLM(Bert(config), tokenizer, input, MaskedLMConfig(head="bert")).train()
        self.optimizer = torch.optim.AdamW(self.task.parameters(), lr=1e-4, fused=True)
        parts = units(forest, np.unique(forest.tree_of(nodes)), "naive")
        parts = replace(
            parts, targets=nodes, weights=np.ones(len(nodes)), ends=np.arange(1, len(nodes) + 1), top=np.ones(len(nodes))
        )
        self.view = Discussions(forest, parts, input)
        self.collate = Collator(forest, tokenizer, input)
        self.steps = iter(TokenBudget(self.view.sizes, BATCH, seed=0))
        self.generator = torch.Generator().manual_seed(0)
        self.bf16 = bf16

    def step(self) -> int:
        batch = self.collate([self.view.example(int(number)) for number in next(self.steps)])
        batch = self.task.corrupt(batch, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            ((losses, _),) = list(self.task.losses(batch, self.task.counts(batch, MAIN), MAIN, None, None))
        losses["masked_lm"].backward()
        self.optimizer.step()
        return batch.targets.total


def operations(config: BertConfig, rows: np.ndarray, widths: np.ndarray, asked: np.ndarray) -> float:
    """Count forward multiply-adds per real token: `widths` are padded lengths, `asked` counts positions of the last layer."""
    d = config.dim
    layer = widths * (4 * d * d + 2 * d * config.ffn_dim) + 2 * widths**2 * d
    last = widths * 2 * d * d + asked * (2 * d * d + 2 * d * config.ffn_dim) + 2 * asked * widths * d
    total = (config.num_layers - 1) * layer + last + asked * (d * d + d * config.vocab_size)
    return float(total.sum() / rows.sum())


def interleave(sides: dict[str, Callable[[], int]], repeats: int, steps: int) -> dict[str, list[float]]:
    """Measure tokens (or texts) per second of each side in turns of `steps` calls."""
    for step in sides.values():
        step()
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, step in sides.items():
            began = time.perf_counter()
            done = sum(step() for _ in range(steps))
            speeds[name].append(done / (time.perf_counter() - began))
    return speeds


def show(
    arguments: argparse.Namespace,
    speeds: dict[str, list[float]],
    reference: str,
    unit: str,
    note: dict,
    operations: dict[str, float] | None = None,
) -> None:
    medians = {name: statistics.median(each) for name, each in speeds.items()}
    for name, each in speeds.items():
        ratio = medians[name] / medians[reference]
        counted = f", counted {operations[reference] / operations[name]:.2f}x" if operations else ""
        print(f"{name:>24} {medians[name]:>9,.0f} {unit}  ({min(each):,.0f} to {max(each):,.0f})  {ratio:.2f}x{counted}")
    found = note | {"medians": medians, "threads": torch.get_num_threads(), "amx": torch.cpu._is_amx_tile_supported()}
    print(json.dumps(found))
    append_rows(arguments, "hugging-face", arguments.call.__name__, found)


def step(arguments: argparse.Namespace) -> None:
    tokenizer = Tokenizer.load(arguments.init)
    forest, nodes = comments(arguments.data, tokenizer, arguments.comments)
    ids = rows(forest, nodes, tokenizer)
    config = BertConfig(
        vocab_size=30522,
        dim=arguments.dim,
        num_layers=arguments.layers,
        num_heads=arguments.dim // 64,
        ffn_dim=4 * arguments.dim,
        dropout=arguments.dropout,
        attention_dropout=arguments.dropout,
        max_tokens=MAX_TOKENS,
    )
    padded, grouped = (Theirs(config, ids, tokenizer, grouped) for grouped in (False, True))
    ours = Ours(config, forest, nodes, tokenizer, False)
    sides = {"transformers, padded": padded.step, "transformers, grouped": grouped.step, "ramify": ours.step}
    lengths = np.array([len(row) for row in ids])
    rate = ours.task.config.mask_rate
    counted = {"ramify": operations(config, lengths, lengths, np.clip(np.round(rate * lengths), 1, lengths - 2))}
    for name, side in (("transformers, padded", padded), ("transformers, grouped", grouped)):
        widths = np.concatenate([[max(map(len, batch))] * len(batch) for batch in side.batches])
        counted[name] = operations(config, lengths, widths, widths)
    if torch.cpu._is_amx_tile_supported():
        sides["ramify, bf16"] = Ours(config, forest, nodes, tokenizer, True).step
        counted["ramify, bf16"] = counted["ramify"]
    speeds = interleave(sides, arguments.repeats, arguments.steps)
    show(
        arguments,
        speeds,
        "transformers, padded",
        "tokens/s",
        {"dim": arguments.dim, "layers": arguments.layers, "dropout": arguments.dropout},
        counted,
    )


def embed(arguments: argparse.Namespace) -> None:
    from sentence_transformers import SentenceTransformer

    model = ramify.load(arguments.init)
    theirs = SentenceTransformer(arguments.init, device="cpu")
    store = Store.open(arguments.data)
    nodes = np.arange(min(arguments.comments, store.num_nodes))
    texts = store.texts(nodes)
    trees = [ramify.Tree((ramify.Node(text=text, id=str(number)),), id=str(number)) for number, text in enumerate(texts)]
    held = Store.from_trees(trees)

    def ours_once() -> int:
        forest = model.forest(held)
        found.update(ours=np.concatenate([vectors[np.argsort(nodes)] for nodes, vectors in model.embed_batches(forest)]))
        return len(texts)

    def theirs_once() -> int:
        found.update(theirs=theirs.encode(texts, batch_size=32, show_progress_bar=False))
        return len(texts)

    found: dict[str, np.ndarray] = {}
    speeds = interleave({"sentence-transformers": theirs_once, "ramify": ours_once}, arguments.repeats, 1)
    note = {"texts": len(texts), "largest_difference": float(np.abs(found["ours"] - found["theirs"]).max())}
    show(arguments, speeds, "sentence-transformers", "texts/s", note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, call in (("step", step), ("embed", embed)):
        command = commands.add_parser(name)
        command.set_defaults(call=call)
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--init", required=True, help="directory of MiniLM, for its tokenizer and for `embed`")
        command.add_argument("--comments", type=int, default=4000)
        command.add_argument("--repeats", type=int, default=7)
        command.add_argument("--keep-pages", action="store_true", help="use Ramify's allocator settings for both sides")
        command.add_argument("--threads", type=int, default=torch.get_num_threads())
        add_options(command)
        if name == "step":
            command.add_argument("--steps", type=int, default=3, help="steps of 32 comments per turn")
            command.add_argument("--dim", type=int, default=256)
            command.add_argument("--layers", type=int, default=4)
            command.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    arguments.call(arguments)


if __name__ == "__main__":
    main()

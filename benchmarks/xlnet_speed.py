"""Compare an XLNet step with `XLNetLMHeadModel` of transformers.

    python benchmarks/xlnet_speed.py step --tokens 512
    python benchmarks/xlnet_speed.py step --tokens 128
    python benchmarks/xlnet_speed.py step --tokens 128 --dropout 0
    python benchmarks/xlnet_speed.py peak --tokens 512

`pip install -e .[bench]` installs the reference.

Both sides of `step` have the same sizes (d 256, 4 layers, 4 heads), vocabulary, dropout, rows, targets, masks (two
halves), segments and memory (three quarters of a row). A step is forward, backward, clipping and a fused AdamW update.
`--dropout 0` leaves dropout out on both sides. The ratio then falls by the share of Ramify's own dropout (`nn/dropout.py`). The
sides alternate in one process and one thread; the ratio is the median of paired ratios of process time. Rows are
random tokens, because words do not change the cost. `counted` is the ratio of forward multiply-adds in linear maps and
attention. `peak` is the memory that a side needs beyond the started process, in a process of its own.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ramify.batching.stream_batch import StreamBatch, StreamTargets, plain_rows
from ramify.models.xlnet import XLNet, XLNetConfig, config_to_hf
from ramify.nn.heads import VocabularyHead
from ramify.tasks.permutation_lm import factorization_order
from rows import add_options, append_rows

ROWS, VOCAB, DIM, LAYERS, HEADS, FFN = 8, 8192, 256, 4, 4, 1024
TARGETS = {512: 85, 128: 21}
"""Targets of a row, by its length."""


def batches(tokens: int, seed: int = 0) -> Any:
    """An endless sequence of batches: half of the rows read backwards."""
    random = np.random.default_rng(seed)
    half, later = tokens // 2, TARGETS[tokens] // 2
    counts = (TARGETS[tokens] - later, later)
    parts = ((0, half), (half, tokens))
    while True:
        ids = random.integers(VOCAB, size=(ROWS, tokens))
        positions, order = [], []
        for _ in range(ROWS):
            own = [
                np.sort(random.choice(np.arange(*part), count, replace=False))
                for part, count in zip(parts, counts, strict=True)
            ]
            late = np.zeros(tokens, dtype=bool)
            late[np.concatenate(own)] = True
            positions.append(np.concatenate(own))
            order.append(factorization_order(late, parts, random))
        segments = torch.zeros(ROWS, tokens, dtype=torch.int64)
        segments[:, 3 * tokens // 4 :], segments[:, -1] = 1, 2
        batch = plain_rows(ids, np.stack(order), reused=half)
        direction = np.repeat([1, -1], ROWS // 2)
        targets = StreamTargets.at(np.stack(positions), batch.input_ids, counts)
        yield replace(batch, segments=segments, direction=direction, parts=parts, targets=targets)


class Ours:
    def __init__(self, tokens: int, dropout: float) -> None:
        torch.manual_seed(0)
        self.config = XLNetConfig(
            vocab_size=VOCAB,
            dim=DIM,
            num_layers=LAYERS,
            num_heads=HEADS,
            ffn_dim=FFN,
            dropout=dropout,
            attention_dropout=dropout,
            memory=3 * tokens // 4,
        )
        self.model = XLNet(self.config).train()
        self.head = VocabularyHead(DIM, VOCAB, embedding=self.model.embedding)
        self.parameters = [*self.model.parameters(), self.head.bias]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)
        self.state: Any = None

    def step(self, batch: StreamBatch) -> None:
        assert batch.targets is not None
        hidden = self.model(batch, self.state, targets_only=True)
        self.state = hidden.state
        weights = batch.targets.weight.flatten() / batch.targets.total
        self.head.loss(hidden.queries.flatten(0, 1), batch.targets.labels.flatten(), weights).backward()
        _update(self.parameters, self.optimizer)


class Theirs:
    def __init__(self, tokens: int, dropout: float) -> None:
        from transformers import XLNetConfig as Config
        from transformers import XLNetLMHeadModel

        torch.manual_seed(0)
        fields = config_to_hf(Ours(tokens, dropout).config) | {"reuse_len": tokens // 2}
        del fields["model_type"], fields["d_head"]
        self.model = XLNetLMHeadModel(Config(**fields)).train()
        self.parameters = [*self.model.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)
        self.memory: Any = None

    def step(self, batch: StreamBatch) -> None:
        """Their masks, from the order: 1 hides a token, and a target hides itself from its own query."""
        assert batch.targets is not None
        assert batch.order is not None
        order = batch.order
        tokens = order.shape[1]
        hidden = (order[:, None, :] > order[:, :, None]).float()
        predicted = torch.zeros_like(order, dtype=torch.bool).scatter(1, batch.targets.positions, True)
        hidden = torch.maximum(hidden, torch.eye(tokens) * predicted[:, :, None])
        mapping = torch.nn.functional.one_hot(batch.targets.positions, tokens).float()
        found = self.model(
            batch.input_ids,
            mems=self.memory,
            perm_mask=hidden,
            target_mapping=mapping,
            token_type_ids=batch.segments,
            labels=batch.targets.labels,
            use_mems=True,
        )
        self.memory = [each.detach() for each in found.mems]
        found.loss.backward()
        _update(self.parameters, self.optimizer)


def _update(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


SIDES: dict[str, Callable[[int, float], Any]] = {"transformers": Theirs, "ramify": Ours}


def operations(tokens: int, side: str) -> float:
    """Forward multiply-adds of one row with full memory."""
    d, memory, targets = DIM, 3 * tokens // 4, TARGETS[tokens]
    keys = tokens + memory
    distances = keys + tokens
    own_ffn, target_ffn = 2 * tokens * d * FFN, 2 * targets * d * FFN
    if side == "transformers":
        # Queries of the second stream are spread over all positions before attention.
        projections = (2 * (tokens + keys * 2) + 2 * targets + tokens) * d * d
        attention = 2 * (2 * tokens * keys + tokens * distances) * d
        layer = projections + attention + distances * d * d + own_ffn + target_ffn
        return LAYERS * layer + targets * d * VOCAB
    later = targets // 2
    halves = ((tokens // 2, targets - later, memory + tokens // 2), (tokens - tokens // 2, later, keys))
    content = sum(n * (2 * k + n + k) * d for n, _, k in halves)
    query = sum(m * (2 * k + n + k) * d for n, m, k in halves)
    # One table of distances per direction serves all rows.
    shared = (2 * keys + 2 * distances / ROWS) * d * d
    layer = shared + 2 * tokens * d * d + content + own_ffn + 2 * targets * d * d + query + target_ffn
    skipped = 2 * tokens * d * d + content + own_ffn
    return LAYERS * layer - skipped + targets * d * VOCAB


def matmul_rate() -> float:
    """Multiply-adds per second of a large product in single precision, the best of five."""
    one, two = torch.randn(2048, 1024), torch.randn(1024, 1024)
    best = min(_timed(lambda: one @ two) for _ in range(5))
    return 2048 * 1024 * 1024 / best


def _timed(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def step(arguments: argparse.Namespace) -> None:
    sides = {name: make(arguments.tokens, arguments.dropout) for name, make in SIDES.items()}
    source = batches(arguments.tokens)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(arguments.repeats + 2):
        batch = next(source)
        for name, side in sides.items():
            spent = _timed(lambda side=side, batch=batch: side.step(batch))
            # The first two steps fill memory.
            times[name] += [spent] if number >= 2 else []
    ratios = [theirs / ours for theirs, ours in zip(times["transformers"], times["ramify"], strict=True)]
    counts = {name: operations(arguments.tokens, name) for name in sides}
    seconds = {name: statistics.median(each) for name, each in times.items()}
    # Backward passes take two products for each of the forward pass.
    share = 3 * ROWS * counts["ramify"] / seconds["ramify"] / matmul_rate()
    found = {
        "speed-up": statistics.median(ratios),
        "least, speed-up": min(ratios),
        "greatest, speed-up": max(ratios),
        "counted, speed-up": counts["transformers"] / counts["ramify"],
        "share of the matmul rate": share,
        **{f"{name}, ms per step": 1000 * each for name, each in seconds.items()},
    }
    print(json.dumps(found | {"processor": torch.backends.cpu.get_cpu_capability()}))
    append_rows(arguments, "xlnet_speed", f"{arguments.tokens} tokens, dropout {arguments.dropout:g}", found)


def peak(arguments: argparse.Namespace) -> None:
    """The peak memory of each side, in a process of its own."""
    if arguments.side:
        side, source = SIDES[arguments.side](arguments.tokens, arguments.dropout), batches(arguments.tokens)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(4):
            side.step(next(source))
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        return
    found = {}
    for name in SIDES:
        sizes = ["--tokens", str(arguments.tokens), "--dropout", str(arguments.dropout)]
        command = [sys.executable, __file__, "peak", *sizes, "--side", name]
        found[f"{name}, MiB above the start"] = float(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
    print(json.dumps(found))
    append_rows(arguments, "xlnet_speed", f"{arguments.tokens} tokens, dropout {arguments.dropout:g}", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("call", choices=("step", "peak"))
    parser.add_argument("--tokens", type=int, choices=sorted(TARGETS), default=512)
    parser.add_argument("--dropout", type=float, default=0.1, help="of states and attention, on both sides (default: 0.1)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--side", choices=sorted(SIDES), default="")
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    {"step": step, "peak": peak}[arguments.call](arguments)


if __name__ == "__main__":
    main()

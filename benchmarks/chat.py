"""How fast chat logs are read by models of who replied to whom.

    python benchmarks/chat.py features --logs ubuntu-irc/dev/*.ascii.txt
    python benchmarks/chat.py disentangle --logs ubuntu-irc/dev/*.ascii.txt [--model RUN]
    python benchmarks/chat.py live --logs ubuntu-irc/dev/*.ascii.txt [--model RUN]
    python benchmarks/chat.py encode --logs ubuntu-irc/dev/*.ascii.txt --model RUN

`features`: seconds for the 77 features of 2,000 messages with a hundred candidates each, columns of the log included.
`disentangle`: messages a second, from read messages to conversations. `live`: the same message by message, of one log.
`encode`: vectors of messages by the encoder of a Masked Hierarchical Transformer, and which share that is of the rate at which
this machine multiplies large matrices. Medians of several rounds.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from ramify.memory import keep_pages

keep_pages()  # before torch comes in

import numpy as np
import torch

import ramify
from ramify.chat.features import candidates, features
from ramify.chat.hearing import channel_of
from ramify.chat.logs import Logs
from ramify.cli.disentangle import LINKS
from ramify.models.mht import MaskedHierarchicalTransformer
from ramify.nn.precision import Precision, autocast
from ramify.readers import irc
from ramify.readers.base import Report
from ramify.tasks.decoding import keep_vectors
from ramify.tasks.reply_to import ReplyTo
from ramify.tree import Tree

MESSAGES, WINDOW, ROUNDS = 2000, 100, 5
SIDE = 2048
"""Rows and columns of a large matrix."""
TIMES = 20
"""How often it is multiplied in a round: once is over before a core has its speed."""
PRECISIONS: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["features", "disentangle", "live", "encode"])
    parser.add_argument("--logs", type=Path, nargs="+", required=True)
    parser.add_argument("--model", default=str(LINKS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logs = [log.tree() for log in irc.logs(arguments.logs, Report(), annotations="none")]
    nodes = [node for log in logs for node in log.nodes]
    rows: dict[str, Any] = {"threads": arguments.threads}
    if arguments.what == "features":
        some = nodes[: MESSAGES + WINDOW]
        targets = np.arange(len(some) - MESSAGES, len(some))

        def work() -> int:
            features(channel_of(some), targets, candidates(targets, WINDOW))
            return len(targets)

        rows |= {"pairs a message": WINDOW + 1, "features": _rate(work)}
    else:
        model = ramify.load(arguments.model)
        assert isinstance(model, ReplyTo)

        def work() -> int:
            if arguments.what == "live":
                channel = model.live()
                for node in logs[0].nodes:
                    channel.hear(node)
                return len(logs[0])
            for log in logs:
                model.disentangle(log)
            return len(nodes)

        rows["pairs a message"] = model.reading.window + 1
        for precision, dtype in PRECISIONS.items():
            with autocast(torch.device("cpu"), precision):
                rows[precision] = _encoding(model, logs, dtype) if arguments.what == "encode" else _rate(work)
    print(json.dumps(rows, indent=1))


def _encoding(model: ReplyTo, trees: list[Tree], dtype: torch.dtype) -> dict[str, float]:
    """Of all messages, in the order and the batches of a frozen encoder's vectors for training."""
    backbone = model.backbone
    if not isinstance(backbone, MaskedHierarchicalTransformer):
        raise SystemExit("`encode` is for runs of `ramify train mht`: give --model.")
    encoder = backbone.config.encoder
    logs = Logs.of(trees, model.reading).read_with(model.tokenizer)
    messages = np.arange(len(logs))

    def work() -> int:
        keep_vectors(model, logs, messages)
        return len(messages)

    lengths = np.diff(logs.starts).astype(np.float64)
    # Multiply-adds: queries, keys, values and what attention gives, two maps of the feed-forward part, and attention itself.
    of_token = encoder.num_layers * (4 * encoder.dim**2 + 2 * encoder.dim * encoder.ffn_dim)
    operations = 2 * (of_token * lengths.sum() + encoder.num_layers * 2 * encoder.dim * (lengths**2).sum())
    large = torch.ones(SIDE, SIDE, dtype=dtype)

    def multiply() -> int:
        for _ in range(TIMES):
            torch.mm(large, large)
        return TIMES * 2 * SIDE**3

    found = _rate(work)
    rate, most = operations / found["seconds"], _rate(multiply)["messages a second"]
    return found | {
        "tokens a message": round(float(lengths.mean()), 1),
        "GFLOP/s": round(rate / 1e9),
        "GFLOP/s of large matrices": round(most / 1e9),
        "share": round(rate / most, 2),
    }


def _rate(work: Callable[[], int]) -> dict[str, float]:
    count = work()
    wall, cpu = [], []
    for _ in range(ROUNDS):
        before = time.perf_counter(), time.process_time()
        count = work()
        wall.append((time.perf_counter() - before[0]) / count)
        cpu.append((time.process_time() - before[1]) / count)
    return {
        "messages": count,
        "seconds": round(count * median(wall), 3),
        "messages a second": round(1 / median(wall)),
        "messages a CPU second": round(1 / median(cpu)),
    }


if __name__ == "__main__":
    main()

"""Speed of models of who replied to whom on chat logs.

    python benchmarks/chat.py features --logs ubuntu-irc/dev/*.ascii.txt
    python benchmarks/chat.py disentangle --logs ubuntu-irc/dev/*.ascii.txt [--model RUN] [--online]
    python benchmarks/chat.py live --logs ubuntu-irc/dev/*.ascii.txt [--model RUN] [--after 50000] [--every 64]
    python benchmarks/chat.py arriving --logs ubuntu-irc/dev/*.ascii.txt [--model RUN] [--pace 1000]
    python benchmarks/chat.py scores [--messages 100000]
    python benchmarks/chat.py encode --logs ubuntu-irc/dev/*.ascii.txt --model RUN

`features`: seconds for the 77 features of 2,000 messages with a hundred candidates each, with the columns of the log.
`disentangle`: messages per second, from parsed messages to conversations; `--online`: without lookahead. `live`: the same on
one live channel made of all logs, `--every` so many messages at a time, after the first `--after`. `arriving`: as `ramify
disentangle --live` does, all messages together that have arrived in the meantime, as fast as the lines are read or at a
`--pace` per second; and milliseconds from the arrival of a message to its prediction. `encode`: message vectors by the encoder
of a Masked Hierarchical Transformer, and the share of this machine's rate at large matrix products. `scores`: seconds to score
so many generated messages by the official protocol. All but `arriving`, which runs once, are medians of several rounds.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ramify.memory import keep_pages

keep_pages()  # before torch comes in

import numpy as np
import torch

import ramify
from ramify.cli.disentangle import LIVE_BATCH
from ramify.disentangle.data.candidates import list_candidates
from ramify.disentangle.data.channel_builder import build_channel
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.features.pairs import compute_features
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.prefetch import prefetch_batches
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer
from ramify.metrics.conversations import match, score
from ramify.nn.precision import Precision, autocast
from ramify.readers import irc
from ramify.readers.annotation import Links
from ramify.readers.base import ReadCounts
from ramify.sample import LINKS
from ramify.tree import Node, Tree
from rows import add_options, append_rows

MESSAGES, WINDOW, ROUNDS = 2000, 100, 5
LIVE, EVERY = 200, 4096
"""The least number of messages in a round; and how many are predicted together before the first round."""
SIDE = 2048
"""Rows and columns of a large matrix."""
TIMES = 20
"""How often it is multiplied in a round: once is over before a core has its speed."""
PRECISIONS: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["features", "disentangle", "live", "arriving", "scores", "encode"])
    parser.add_argument("--logs", type=Path, nargs="+", default=[])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--model", default=str(LINKS))
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--pace", type=float, default=math.inf)
    parser.add_argument("--online", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.what == "scores":
        scored = {
            "one log": _measure_rate(_make_scoring(arguments.messages, 1)),
            "50": _measure_rate(_make_scoring(arguments.messages, 50)),
        }
        print(json.dumps(scored))
        append_rows(arguments, "scores", f"{arguments.messages} messages", scored)
        return
    if not arguments.logs:
        parser.error("--logs says what is read.")
    logs = [log.tree() for log in irc.logs(arguments.logs, ReadCounts(), annotations="none")]
    nodes = [node for log in logs for node in log.nodes]
    rows: dict[str, Any] = {"threads": arguments.threads}
    if arguments.what == "features":
        some = nodes[: MESSAGES + WINDOW]
        targets = np.arange(len(some) - MESSAGES, len(some))

        def work() -> int:
            compute_features(build_channel(some), targets, list_candidates(targets, WINDOW))
            return len(targets)

        rows |= {"pairs a message": WINDOW + 1, "features": _measure_rate(work)}
    else:
        model = ramify.load(arguments.model)
        assert isinstance(model, Disentangler)
        model = Disentangler(model.task, replace(model.decoding, online=arguments.online))

        def work() -> int:
            for log in logs:
                model.disentangle(log, ignore_replies=True)
            return len(nodes)

        rows["pairs a message"] = model.input.window + 1
        for precision, dtype in PRECISIONS.items():
            with autocast(torch.device("cpu"), precision):
                if arguments.what == "encode":
                    rows[precision] = _measure_encoding(model, logs, dtype)
                elif arguments.what == "live":
                    rows[precision] = _measure_live(model, nodes, arguments.after, arguments.every)
                elif arguments.what == "arriving":
                    rows[precision] = _measure_arriving(model, arguments.logs, arguments.pace)
                else:
                    rows[precision] = _measure_rate(work)
    print(json.dumps(rows, indent=1))
    append_rows(arguments, arguments.what, arguments.model, rows)


def _make_scoring(messages: int, logs: int) -> Callable[[], int]:
    """All scores of so many messages, each with one of the ten before it as its parent, or none."""
    random = np.random.default_rng(0)
    sizes = [messages // logs] * logs

    def annotated() -> dict[str, Links]:
        return {
            f"{log}": np.stack([np.maximum(children - random.integers(10, size=size), 0), children], axis=1)
            for log, size in enumerate(sizes)
            for children in [np.arange(size)]
        }

    gold, found = annotated(), annotated()

    def work() -> int:
        score(match(gold, found).logs)
        return sum(sizes)

    return work


def _measure_live(model: Disentangler, nodes: list[Node], after: int, every: int) -> dict[str, float]:
    """Messages per second of a live channel, `every` at a time, after the first `after`."""
    size = -(-LIVE // every) * every
    if len(nodes) < after + (ROUNDS + 1) * size:
        raise SystemExit(
            f"the logs have {len(nodes):,} messages: too few for --after {after:,} and {(ROUNDS + 1) * size:,} more."
        )
    channel, rest = model.live(ignore_replies=True), iter(nodes)
    before = islice(rest, after)
    while some := list(islice(before, EVERY)):
        channel.predict_all(some)

    def work() -> int:
        for _ in range(size // every):
            channel.predict_all(islice(rest, every))
        return size

    return _measure_rate(work)


def _measure_arriving(model: Disentangler, logs: list[Path], pace: float) -> dict[str, float]:
    """Rates and delays of lines that arrive at a pace per second, each log as a channel of its own."""
    model.live().predict_all(Node(f"{number}", author="ann") for number in range(LIVE_BATCH))
    start = time.perf_counter()
    paces = count()

    def coming(messages: Iterable[Node]) -> Iterator[tuple[float, Node]]:
        for message in messages:
            due = start + next(paces) / pace if pace < math.inf else time.perf_counter()
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            yield due, message

    waited: list[float] = []
    runs = 0
    for log in irc.logs(logs, ReadCounts(), annotations="none"):
        channel = model.live(ignore_replies=True)
        for run in prefetch_batches(coming(log.messages), LIVE_BATCH):
            channel.predict_all(message for _, message in run)
            finished = time.perf_counter()
            waited += [1000 * (finished - came) for came, _ in run]
            runs += 1
    return {
        "messages per second": len(waited) / (time.perf_counter() - start),
        "messages at once": len(waited) / runs,
        "milliseconds, median": median(waited),
        "milliseconds, 99 %": float(np.quantile(waited, 0.99)),
    }


def _measure_encoding(model: Disentangler, trees: list[Tree], dtype: torch.dtype) -> dict[str, float]:
    """The encoder on all messages, in the order and batches that training with a frozen encoder has."""
    backbone = model.backbone
    if not isinstance(backbone, MaskedHierarchicalTransformer):
        raise SystemExit("`encode` is for runs of `ramify train mht`: give --model.")
    encoder = backbone.config.encoder
    logs = Logs.build(trees, model.input).tokenize(model.tokenizer)
    messages = np.arange(len(logs))

    def work() -> int:
        encode_messages(model.task, logs, messages)
        return len(messages)

    lengths = np.diff(logs.token_offsets).astype(np.float64)
    # Multiply-adds: queries, keys, values and what attention gives, two maps of the feed-forward part, and attention itself.
    of_token = encoder.num_layers * (4 * encoder.dim**2 + 2 * encoder.dim * encoder.ffn_dim)
    operations = 2 * (of_token * lengths.sum() + encoder.num_layers * 2 * encoder.dim * (lengths**2).sum())
    large = torch.ones(SIDE, SIDE, dtype=dtype)

    def multiply() -> int:
        for _ in range(TIMES):
            torch.mm(large, large)
        return TIMES * 2 * SIDE**3

    found, most = _measure_rate(work), _time_rounds(multiply)
    rate, most = operations / found["seconds"], most.count / most.wall
    return found | {
        "tokens a message": round(float(lengths.mean()), 1),
        "GFLOP/s": round(rate / 1e9),
        "GFLOP/s of large matrices": round(most / 1e9),
        "share": round(rate / most, 2),
    }


class _Timing(NamedTuple):
    count: int
    wall: float
    """Seconds of a round, the median."""
    cpu: float


def _time_rounds(work: Callable[[], int]) -> _Timing:
    work()
    count, wall, cpu = 0, [], []
    for _ in range(ROUNDS):
        before = time.perf_counter(), time.process_time()
        count = work()
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    return _Timing(count, median(wall), median(cpu))


def _measure_rate(work: Callable[[], int]) -> dict[str, float]:
    found = _time_rounds(work)
    return {
        "messages": found.count,
        "seconds": round(found.wall, 3),
        "messages per second": round(found.count / found.wall),
        "messages per CPU second": round(found.count / found.cpu),
    }


if __name__ == "__main__":
    main()

"""How fast chat logs are read by models of who replied to whom.

    python benchmarks/chat.py features --logs ubuntu-irc/dev/*.ascii.txt
    python benchmarks/chat.py disentangle --logs ubuntu-irc/dev/*.ascii.txt [--model RUN]
    python benchmarks/chat.py live --logs ubuntu-irc/dev/*.ascii.txt [--model RUN]

`features`: seconds for the 77 features of 2,000 messages with a hundred candidates each, columns of the log included.
`disentangle`: messages a second, from read messages to conversations. `live`: the same message by message, of one log. Medians
of several rounds.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from ramify.memory import keep_pages

keep_pages()  # before torch comes in

import numpy as np
import torch

import ramify
from ramify.chat.features import candidates, features
from ramify.chat.hearing import channel_of
from ramify.cli.disentangle import LINKS
from ramify.nn.precision import autocast
from ramify.readers import irc
from ramify.readers.base import Report
from ramify.tasks.reply_to import ReplyTo

MESSAGES, WINDOW, ROUNDS = 2000, 100, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["features", "disentangle", "live"])
    parser.add_argument("--logs", type=Path, nargs="+", required=True)
    parser.add_argument("--model", default=str(LINKS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logs = [log.tree() for log in irc.logs(arguments.logs, Report(), annotations="none")]
    nodes = [node for log in logs for node in log.nodes]
    if arguments.what == "features":
        some = nodes[: MESSAGES + WINDOW]
        targets = np.arange(len(some) - MESSAGES, len(some))

        def work() -> int:
            features(channel_of(some), targets, candidates(targets, WINDOW))
            return len(targets)

        rows, window = {"features": _rate(work)}, WINDOW
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

        window = model.reading.window
        rows = {}
        for precision in ("fp32", "bf16"):
            with autocast(torch.device("cpu"), precision):
                rows[precision] = _rate(work)
    print(json.dumps({"threads": arguments.threads, "pairs a message": window + 1, **rows}, indent=1))


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

"""Two ranks without torchrun, which imports torch three times: they are forked from a server that has imported it once."""

import os
import socket
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from fixtures.processes import SERVER
from ramify.cli import main


def start(log: Path, target: Callable[..., None], *arguments: object) -> list[BaseProcess]:
    """Run a function on two ranks. Both append what they print to the log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [SERVER.Process(target=_run, args=(rank, port, log, target, arguments)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    return list(ranks)


def finish(ranks: list[BaseProcess], log: Path, expected: tuple[int, int] = (0, 0)) -> None:
    """Wait until both ranks end with these exit statuses."""
    for rank in ranks:
        rank.join(300)
        rank.kill()
        rank.join()
    statuses = tuple(rank.exitcode for rank in ranks)
    assert statuses == expected, (statuses, log.read_text("utf-8"))


def on_two_ranks(folder: Path, target: Callable[..., None], *arguments: object) -> str:
    """Run a function on two ranks to its end. Returns what they print."""
    log = folder / "log"
    finish(start(log, target, *arguments), log)
    return log.read_text("utf-8")


def ramify(*words: object) -> None:
    """A command, as a rank runs it."""
    sys.argv = ["ramify", *map(str, words)]
    main()


def ramify_under_torchrun(port: int, *words: object) -> None:
    """A command, as a rank runs it that torchrun started, whose store listens at the port."""
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", MASTER_PORT=str(port))
    ramify(*words)


def _run(rank: int, port: int, log: Path, target: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with open(log, "a") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    target(*arguments)

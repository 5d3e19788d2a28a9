"""By link or by conversation, one answer or several? Ways to decide, on chat logs that the model which decides has not seen.

    python benchmarks/decisions.py train --logs ubuntu-irc/train --fold 0 --out runs/folds
    python benchmarks/decisions.py table --out runs/folds

Folds 0 to 3 are each a fourth of the training logs, but for the tenth on which the best weights are chosen; `train` leaves one
out and trains `links` on the others. `table` scores all logs, each by the model that was trained without it, and makes paired
bootstrap intervals over logs. What is decided on the dev logs has no part in it.
"""

import argparse
import hashlib
import json
from pathlib import Path

from ramify.memory import keep_pages

keep_pages()  # before torch comes in

import numpy as np

import ramify
from ramify.dataset import Policy
from ramify.dataset.build import build
from ramify.dataset.store import Store
from ramify.metrics.conversations import Log, score
from ramify.recipes import RECIPES
from ramify.run import execute
from ramify.tasks.linking import measure
from ramify.tasks.reply_to import ReplyTo, ReplyToConfig

FOLDS = 4
WAYS = {"link": ReplyToConfig(score="sum")} | {
    f"conversation, {threshold}": ReplyToConfig(score="sum", decide="conversation", threshold=threshold)
    for threshold in (0.0, 0.25, 0.3, 0.33, 0.36, 0.4)
}
RESAMPLES = 1000


def train(arguments: argparse.Namespace) -> None:
    out, fold = arguments.out, arguments.fold
    policy = Policy(empty="keep")
    files = {file.name.removesuffix(".ascii.txt"): file for file in sorted(arguments.logs.glob("*.ascii.txt"))}
    if not (out / "all").exists():
        build([*files.values()], "irc", out / "all", policy=policy, split=(0.9, 0.1, 0.0))
    whole = Store.open(out / "all")
    unseen = [name for name in whole.tree_ids(whole.split("train")) if _fold(name) == fold]
    if not (out / f"unseen-{fold}").exists():
        build([files[name] for name in unseen], "irc", out / f"unseen-{fold}", policy=policy, split=(0.0, 1.0, 0.0))
    if not (out / f"seen-{fold}").exists():
        seen = [file for name, file in files.items() if name not in unseen]
        build(seen, "irc", out / f"seen-{fold}", policy=policy, split=(0.9, 0.1, 0.0))
    changes = {"train.precision": arguments.precision} | dict(each.split("=", 1) for each in arguments.set)
    run = RECIPES["links"](str(out / f"seen-{fold}"), seed=10 + fold).changed(changes)
    place = out / f"fold-{fold}"
    execute(run, place, resume=(place / "run.json").exists())


def _fold(name: str) -> int:
    return int(hashlib.sha1(name.encode()).hexdigest(), 16) % FOLDS


def table(arguments: argparse.Namespace) -> None:
    logs: dict[str, list[Log]] = {way: [] for way in WAYS}
    for fold in range(FOLDS):
        task = ramify.load(arguments.out / f"fold-{fold}")
        assert isinstance(task, ReplyTo)
        for way, found in logs.items():
            task.config = WAYS[way]
            found += measure(task, Store.open(arguments.out / f"unseen-{fold}"), "dev").match.logs
    for way, found in logs.items():
        print(
            json.dumps(
                {"decide": way, "logs": len(found), "messages": sum(len(log.messages) for log in found)} | _scores(found)
            )
        )
    _, *others = WAYS
    for way in others:
        random = np.random.default_rng(0)
        differences = []
        for _ in range(RESAMPLES):
            drawn = random.integers(0, len(logs["link"]), len(logs["link"]))
            one, other = (_scores([logs[each][number] for number in drawn]) for each in ("link", way))
            differences.append([other[name] - one[name] for name in one])
        low, high = np.percentile(differences, [2.5, 97.5], axis=0).round(2).tolist()
        print(json.dumps({"decide": way, "more than link, 95 %": dict(zip(_scores(logs["link"]), zip(low, high)))}))


def _scores(logs: list[Log]) -> dict[str, float]:
    found = score(logs)
    values = {"link": found["link"]["f1"], "cluster": found["cluster"]["f1"], "vi": found["vi"], "1-1": found["one_to_one"]}
    return {name: round(value, 2) for name, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.set_defaults(call=train)
    training.add_argument("--logs", type=Path, required=True)
    training.add_argument("--fold", type=int, choices=range(FOLDS), required=True)
    training.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    training.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    scoring = commands.add_parser("table")
    scoring.set_defaults(call=table)
    for command in (training, scoring):
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()

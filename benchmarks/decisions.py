"""Ways to decide links: by link or by conversation, with one parent or several, on chat logs that the deciding model has not
seen.

    python benchmarks/decisions.py train --logs ubuntu-irc/train --fold 0 --out runs/folds
    python benchmarks/decisions.py table --out runs/folds
    python benchmarks/decisions.py table --out runs/folds --reranker lookahead

Folds 0 to 3 are each a fourth of the training logs, except for the tenth on which the best weights are chosen; `train` leaves
one out and trains `links` on the others. `table` scores all logs, each by the model that was trained without it, with paired
bootstrap intervals over logs. With `--reranker` each model gets a reranker, fitted to the posteriors of the three others on the
logs that they have not seen; the way "link" stays without it. The dev logs have no part in any of this.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

from ramify.memory import keep_pages

keep_pages()  # before torch comes in

import numpy as np
from numpy.typing import NDArray

import ramify
from ramify.dataset import Policy
from ramify.dataset.build import build
from ramify.dataset.store import Store
from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.targets import decode_start
from ramify.disentangle.inference.decode import decode
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import match_links
from ramify.disentangle.inference.predict import predict_posterior
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.reranker import fit_reranker
from ramify.metrics.conversations import Agreement, Log, count_agreement
from ramify.recipes import RECIPES
from ramify.runs import execute
from rows import add_options, append_rows

FOLDS = 4
WAYS = {"link": DecodingConfig()} | {
    f"conversation, {threshold}": DecodingConfig(decide="conversation", threshold=threshold)
    for threshold in (0.0, 0.25, 0.3, 0.33, 0.36, 0.4)
}
WAYS["comembership, 0.33"] = DecodingConfig(decide="comembership", threshold=0.33)
SHOWN = ("link", "cluster", "vi", "1-1", "shen_f")
WEIGHT = 1.0
"""The conversation's weight in the rerankers' loss, as in `links`."""
RESAMPLES = 10_000


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
    stores = [Store.open(arguments.out / f"unseen-{fold}") for fold in range(FOLDS)]
    for fold, store in enumerate(stores):
        model, names = _load_fold(arguments.out, fold), store.tree_ids(store.split("dev"))
        own = _read_logs(model, store)
        plain = _predict(model, own)
        if arguments.reranker is not None:
            others = [each for each in range(FOLDS) if each != fold]
            lookahead = arguments.reranker == "lookahead"
            examples = (_predict_unseen(arguments.out, each, stores[each]) for each in others)
            model.task.reranker = fit_reranker(examples, 64, lookahead=lookahead, conversation_weight=WEIGHT)
        reranked = _predict(model, own)
        for way, found in logs.items():
            posterior = plain if way == "link" else reranked
            found += match_links(own, names, decode([posterior], own, WAYS[way]).links).logs
    sums = {way: np.array([astuple(count_agreement(log)) for log in found]) for way, found in logs.items()}
    number = len(logs["link"])
    times = np.random.default_rng(0).multinomial(number, [1 / number] * number, size=RESAMPLES)
    for way, own in sums.items():
        more = [_scores(mine) - _scores(by_link) for mine, by_link in zip(times @ own, times @ sums["link"])]
        intervals = np.percentile(more, [2.5, 97.5], axis=0).round(2).T.tolist()
        found = [*zip(SHOWN, _scores(own.sum(axis=0)).round(2).tolist(), intervals)]
        print(json.dumps({"decide": way, "logs": number} | {name: value for name, value, _ in found}))
        print(json.dumps({"more than link, 95 %": {name: interval for name, _, interval in found}}))
        append_rows(arguments, "out-of-fold", way, {name: value for name, value, _ in found})


def _load_fold(out: Path, fold: int) -> Disentangler:
    model = ramify.load(out / f"fold-{fold}")
    assert isinstance(model, Disentangler)
    return model


def _read_logs(model: Disentangler, store: Store) -> Logs:
    return Logs.build(store.trees(store.split("dev")), model.input).tokenize(model.tokenizer)


def _predict(model: Disentangler, logs: Logs) -> LinkPosterior:
    parts = predict_posterior(model.task, model.decoding, logs, start=decode_start(logs))
    return LinkPosterior.concatenate(list(parts))


def _predict_unseen(out: Path, fold: int, store: Store) -> tuple[Logs, Iterator[LinkPosterior]]:
    """The logs that a fold's model has not seen, and its posteriors on them."""
    model = _load_fold(out, fold)
    logs = _read_logs(model, store)
    return logs, predict_posterior(model.task, model.decoding, logs)


def _scores(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    found = Agreement(*sums.tolist()).scores()
    return np.array([found["link"]["f1"], found["cluster"]["f1"], found["vi"], found["one_to_one"], found["shen_f"]])


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
    scoring.add_argument("--reranker", choices=["plain", "lookahead"])
    add_options(scoring)
    for command in (training, scoring):
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()

"""Who replied to whom, scored: links between messages, and the conversations that links make.

Whatever is reported is a function of sums over logs, which `Agreement` holds: sums of logs add up, and a bootstrap over logs
is a product of two matrices. The semantics are those of the official evaluation of Kummerfeld et al. (2019).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, min_weight_full_bipartite_matching

from ramify.errors import RamifyError
from ramify.metrics.intervals import interval
from ramify.readers.annotation import Links

Numbers = NDArray[np.int64]

Protocol = Literal["official", "chunk50"]

CHUNK = 50
NEAR = 3
SHOWN = 20


@dataclass(frozen=True)
class Log:
    """One log, annotated twice: `gold` and `predicted` hold links of the same `messages`, and each message's conversation."""

    name: str
    messages: Numbers
    gold: Links
    predicted: Links
    gold_conversation: Numbers
    predicted_conversation: Numbers

    def part(self, start: int, stop: int) -> "Log":
        """Some consecutive messages of the log; conversations stay those of the whole, restricted."""
        messages = self.messages[start:stop]
        return Log(
            self.name,
            messages,
            self.gold[np.isin(self.gold[:, 1], messages)],
            self.predicted[np.isin(self.predicted[:, 1], messages)],
            self.gold_conversation[start:stop],
            self.predicted_conversation[start:stop],
        )


@dataclass(frozen=True)
class Match:
    """Logs ready to be scored, and how many predicted links were left out, by reason."""

    logs: tuple[Log, ...]
    dropped: Mapping[str, int]
    missing: int


def match(gold: Mapping[str, Links], predicted: Mapping[str, Links], *, missing: Literal["error", "self"] = "error") -> Match:
    """Join two annotations by the names of the logs.

    The messages of a log are the children of its gold links. Predicted links of other messages are dropped and counted before
    anything is scored, so that links between lines of context never join two conversations. Raises `RamifyError` where a
    message has no predicted link; `missing="self"` lets it start a conversation instead.
    """
    if not gold:
        raise RamifyError("there is no gold annotation to score against.")
    logs, lost = [], []
    strange = {name: len(links) for name, links in predicted.items() if name not in gold}
    dropped = {"other_log": sum(strange.values())}
    dropped |= {"before_first_message": 0, "not_annotated": 0}
    for name, links in gold.items():
        links = _ordered(links)
        if not len(links):
            raise RamifyError(f"the gold annotation of {name!r} holds no link: there is nothing to score it against.")
        messages = np.unique(links[:, 1])
        found = _ordered(predicted.get(name, np.empty((0, 2), dtype=np.int64)))
        known = np.isin(found[:, 1], messages)
        early = int((found[:, 1] < messages[0]).sum())
        dropped["before_first_message"] += early
        dropped["not_annotated"] += int((~known).sum()) - early
        found = found[known]
        unlinked = np.setdiff1d(messages, found[:, 1])
        lost += [(name, number) for number in unlinked.tolist()]
        if len(unlinked):
            found = _ordered(np.concatenate([found, np.stack([unlinked, unlinked], axis=1)]))
        logs.append(Log(name, messages, links, found, conversations(links, messages), conversations(found, messages)))
    if lost and missing == "error":
        shown = ", ".join(f"{name}:{number}" for name, number in lost[:SHOWN])
        if strange:
            raise RamifyError(
                f"{len(lost):,} messages have no predicted link ({shown}{' …' if len(lost) > SHOWN else ''}), but "
                f"{dropped['other_log']:,} predicted links are of logs that gold has not: {', '.join(list(strange)[:5])}. "
                "Name the file of predictions like its log, or write LOG:PARENT CHILD."
            )
        raise RamifyError(
            f"{len(lost):,} messages have no predicted link: {shown}{' …' if len(lost) > SHOWN else ''}. Every annotated "
            "message needs one, its own number where it starts a conversation; --missing self counts the absent ones so."
        )
    return Match(tuple(logs), dropped, len(lost))


def _ordered(links: Links) -> Links:
    """Without repetitions, and the later message as the child, however a file puts it."""
    return np.unique(np.sort(links, axis=1), axis=0)


def conversations(links: Links, messages: Numbers) -> Numbers:
    """The conversation of each message: a label of its connected component, through whatever messages `links` name."""
    nodes, places = np.unique(np.concatenate([links.ravel(), messages]), return_inverse=True)
    ends = places[: links.size].reshape(-1, 2)
    graph = coo_array((np.ones(len(ends), dtype=bool), (ends[:, 0], ends[:, 1])), shape=(len(nodes), len(nodes)))
    _, component = connected_components(graph, directed=False)
    return component[places[links.size :]].astype(np.int64)


@dataclass(frozen=True)
class Agreement:
    """The sums from which all scores of links and conversations follow.

    `spread_…`: Σ n log2 n over conversations (`_both`: over the cells of the contingency table); `pairs_…`: pairs of messages
    in one conversation; `overlap`: messages in common under the best one-to-one assignment of conversations; `best_f`:
    Σ over gold conversations of its size × its best F with a predicted one; `near`: pairs at most three lines apart.
    """

    links_both: float
    links_gold: float
    links_predicted: float
    messages: float
    spread_both: float
    spread_gold: float
    spread_predicted: float
    pairs_both: float
    pairs_gold: float
    pairs_predicted: float
    overlap: float
    best_f: float
    conversations_both: float
    conversations_gold: float
    conversations_predicted: float
    near_agreed: float
    near: float

    def scores(self) -> dict[str, Any]:
        """Percentages.

        `link` and `cluster` (exact matches, conversations of one message ignored): precision, recall, f1; `vi` is
        1 − VI / log2 n; `nmi` divides by the mean of both entropies.
        """
        n = self.messages
        every = n * (n - 1) / 2
        expected = self.pairs_gold * self.pairs_predicted / every if every else 0.0
        gold, predicted = (n * np.log2(n) - spread for spread in (self.spread_gold, self.spread_predicted))
        apart = self.spread_gold + self.spread_predicted - 2 * self.spread_both
        shared = (gold + predicted - apart) / 2
        return {
            "link": _f(self.links_both, self.links_gold, self.links_predicted),
            "cluster": _f(self.conversations_both, self.conversations_gold, self.conversations_predicted),
            "vi": 100 * (1 - _ratio(apart, n * np.log2(n), 0.0)),
            "one_to_one": 100 * self.overlap / n,
            "ari": 100 * _ratio(self.pairs_both - expected, (self.pairs_gold + self.pairs_predicted) / 2 - expected, 1.0),
            "nmi": 100 * _ratio(2 * shared, gold + predicted, 1.0),
            "shen_f": 100 * self.best_f / n,
            "local_3": 100 * _ratio(self.near_agreed, self.near, 1.0),
        }


def agreement(log: Log) -> Agreement:
    """Compare the two annotations of a log, or of a part of it."""
    _, gold = np.unique(log.gold_conversation, return_inverse=True)
    _, predicted = np.unique(log.predicted_conversation, return_inverse=True)
    gold_size, predicted_size = np.bincount(gold), np.bincount(predicted)
    cells, both = np.unique(gold * len(predicted_size) + predicted, return_counts=True)
    row, column = np.divmod(cells, len(predicted_size))
    best = np.zeros(len(gold_size))
    np.maximum.at(best, row, 2 * both / (gold_size[row] + predicted_size[column]))
    whole = (both == gold_size[row]) & (both == predicted_size[column]) & (both > 1)
    near, agreed = 0, 0
    for step in range(1, NEAR + 1):
        close = log.messages[step:] - log.messages[:-step] <= NEAR
        same = [each[step:] == each[:-step] for each in (gold, predicted)]
        near += int(close.sum())
        agreed += int((close & (same[0] == same[1])).sum())
    shared = set(map(tuple, log.gold.tolist())) & set(map(tuple, log.predicted.tolist()))
    return Agreement(
        links_both=len(shared),
        links_gold=len(log.gold),
        links_predicted=len(log.predicted),
        messages=len(log.messages),
        spread_both=_spread(both),
        spread_gold=_spread(gold_size),
        spread_predicted=_spread(predicted_size),
        pairs_both=_pairs(both),
        pairs_gold=_pairs(gold_size),
        pairs_predicted=_pairs(predicted_size),
        overlap=_overlap(row, column, both),
        best_f=float(gold_size @ best),
        conversations_both=int(whole.sum()),
        conversations_gold=int((gold_size > 1).sum()),
        conversations_predicted=int((predicted_size > 1).sum()),
        near_agreed=agreed,
        near=near,
    )


def chunks(log: Log) -> Iterator[Log]:
    """Parts of fifty annotated messages, in order; the last may be shorter."""
    for start in range(0, len(log.messages), CHUNK):
        yield log.part(start, start + CHUNK)


def score(logs: Sequence[Log], protocol: Protocol = "official") -> dict[str, Any]:
    """`official`: sums over all logs, then scores. `chunk50`: the scores of every fifty messages, then their mean."""
    if protocol == "official":
        return total(agreement(log) for log in logs).scores()
    return _mean([agreement(part).scores() for log in logs for part in chunks(log)])


def total(agreements: Iterable[Agreement]) -> Agreement:
    return Agreement(*np.sum([astuple(each) for each in agreements], axis=0).tolist())


def bootstrap(
    logs: Sequence[Log], protocol: Protocol = "official", *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Intervals of what `score` returns, over logs drawn with replacement."""
    random = np.random.Generator(np.random.Philox(key=seed))
    times = random.multinomial(len(logs), [1 / len(logs)] * len(logs), size=resamples)
    if protocol == "official":
        sums = times @ np.array([astuple(agreement(log)) for log in logs])
        drawn = [Agreement(*row).scores() for row in sums.tolist()]
    else:
        parts = [[agreement(part).scores() for part in chunks(log)] for log in logs]
        drawn = [_mean([each for log, count in zip(parts, row) for each in log * count]) for row in times.tolist()]
    return _each(lambda value, *values: interval(value, np.array(values), level), score(logs, protocol), *drawn)


def _mean(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return _each(lambda *values: float(np.mean(values)), *scores)


def _each(function: Any, *scores: dict[str, Any]) -> dict[str, Any]:
    """The function of every number in dictionaries of one form."""
    return {
        name: (_each if isinstance(value, dict) else _apply)(function, *(each[name] for each in scores))
        for name, value in scores[0].items()
    }


def _apply(function: Any, *values: float) -> Any:
    return function(*values)


def _f(both: float, gold: float, predicted: float) -> dict[str, float]:
    """Two empty sides agree; one empty side has a precision and a recall of zero."""
    if not gold and not predicted:
        return {"precision": 100.0, "recall": 100.0, "f1": 100.0}
    return {
        "precision": 100 * _ratio(both, predicted, 0.0),
        "recall": 100 * _ratio(both, gold, 0.0),
        "f1": 200 * both / (gold + predicted),
    }


def _ratio(part: float, whole: float, empty: float) -> float:
    """`empty` where the whole is nothing, but for rounding."""
    return float(part / whole) if abs(whole) > 1e-9 else empty


def _spread(sizes: Numbers) -> float:
    return float((sizes * np.log2(sizes)).sum())


def _pairs(sizes: Numbers) -> float:
    return float((sizes * (sizes - 1) // 2).sum())


def _overlap(row: Numbers, column: Numbers, both: Numbers) -> float:
    """The most messages that a one-to-one assignment of conversations can have in common.

    For logs of 100,000 messages: pairs that have no rival are taken at once, and the rest is a sparse assignment. There every
    row may also take a column of its own that is worth nothing, so that all rows find one; all worths are one more than they
    are, because a sparse matrix has no zeros.
    """
    alone = (np.bincount(row)[row] == 1) & (np.bincount(column)[column] == 1)
    taken, both = float(both[alone].sum()), both[~alone]
    if not len(both):
        return taken
    _, row = np.unique(row[~alone], return_inverse=True)
    _, column = np.unique(column[~alone], return_inverse=True)
    if row.max() > column.max():
        row, column = column, row
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    free = np.arange(rows)
    worth = np.concatenate([both + 1, np.ones(rows, dtype=np.int64)]).astype(np.float64)
    table = csr_array(
        (worth, (np.concatenate([row, free]), np.concatenate([column, columns + free]))), shape=(rows, columns + rows)
    )
    chosen = min_weight_full_bipartite_matching(table, maximize=True)
    return taken + float(table[chosen[0], chosen[1]].sum() - rows)

"""Scores of reply links and of the conversations that they form.

Every score is a function of sums over logs, which `Agreement` holds: the sums of several logs add up, and a bootstrap over logs
is a product of two matrices. The definitions are those of the official evaluation of Kummerfeld et al. (2019).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, min_weight_full_bipartite_matching

from ramify.errors import RamifyError, counted
from ramify.metrics.intervals import interval
from ramify.readers.annotation import Links

Numbers = NDArray[np.int64]

Protocol = Literal["official", "chunk50"]

CHUNK = 50
MAX_LINES = 3
NUM_SHOWN = 20


@dataclass(frozen=True)
class Log:
    """One log with two annotations: `gold` and `predicted` links of the same `messages`, and each message's conversations."""

    name: str
    messages: Numbers
    gold: Links
    predicted: Links
    gold_conversation: Numbers
    predicted_conversation: Numbers

    def slice(self, start: int, stop: int) -> "Log":
        """Some consecutive messages of the log, in the conversations of the whole log."""
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
    """Logs ready to be scored, and the number of predicted links that were dropped, by reason."""

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
        raise RamifyError("There is no gold annotation to score against. Give at least one log with gold links.")
    logs, lost = [], []
    strange = {name: len(links) for name, links in predicted.items() if name not in gold}
    dropped = {"other_log": sum(strange.values())}
    dropped |= {"before_first_message": 0, "not_annotated": 0}
    for name, links in gold.items():
        links = _order_links(links)
        if not len(links):
            raise RamifyError(
                f"The gold annotation of log {name!r} has no links, so there is nothing to score against. Leave the log out."
            )
        messages = np.unique(links[:, 1])
        predicted_links = _order_links(predicted.get(name, np.empty((0, 2), dtype=np.int64)))
        known = np.isin(predicted_links[:, 1], messages)
        early = int((predicted_links[:, 1] < messages[0]).sum())
        dropped["before_first_message"] += early
        dropped["not_annotated"] += int((~known).sum()) - early
        predicted_links = predicted_links[known]
        unlinked = np.setdiff1d(messages, predicted_links[:, 1])
        lost += [(name, number) for number in unlinked.tolist()]
        if len(unlinked):
            predicted_links = _order_links(np.concatenate([predicted_links, np.stack([unlinked, unlinked], axis=1)]))
        logs.append(
            Log(
                name,
                messages,
                links,
                predicted_links,
                find_conversations(links, messages),
                find_conversations(predicted_links, messages),
            )
        )
    if lost and missing == "error":
        shown = ", ".join(f"{name}:{number}" for name, number in lost[:NUM_SHOWN]) + (" …" if len(lost) > NUM_SHOWN else "")
        unlinked = f"{counted(len(lost), 'message')} without a predicted link"
        if strange:
            raise RamifyError(
                f"{unlinked} ({shown}), but "
                f"{dropped['other_log']:,} predicted links belong to logs without a gold annotation: "
                f"{', '.join(list(strange)[:5])}. Name each file of predictions after its log, or write LOG:PARENT CHILD."
            )
        raise RamifyError(
            f"{unlinked}: {shown}. Every annotated "
            "message needs one (a message that starts a conversation is its own parent). Add the links, or count these "
            "messages as starts with --missing self."
        )
    return Match(tuple(logs), dropped, len(lost))


def _order_links(links: Links) -> Links:
    """Without duplicates, and with the later message as the child, in whatever order a file has them."""
    return np.unique(np.sort(links, axis=1), axis=0)


def find_conversations(links: Links, messages: Numbers) -> Numbers:
    """The conversation of each message: the number of its connected component in the graph of all links."""
    nodes, places = np.unique(np.concatenate([links.ravel(), messages]), return_inverse=True)
    ends = places[: links.size].reshape(-1, 2)
    graph = coo_array((np.ones(len(ends), dtype=bool), (ends[:, 0], ends[:, 1])), shape=(len(nodes), len(nodes)))
    _, component = connected_components(graph, directed=False)
    return component[places[links.size :]].astype(np.int64)


@dataclass(frozen=True)
class Agreement:
    """The sums from which all scores of links and conversations follow.

    `nlogn_…`: Σ n log2 n over conversations (`_both`: over the cells of the contingency table); `pairs_…`: pairs of messages
    in one conversation; `overlap`: messages in common under the best one-to-one assignment of conversations; `best_f`:
    Σ over gold conversations of its size × its best F with a predicted one; `near`: pairs at most three lines apart.
    """

    links_both: float
    links_gold: float
    links_predicted: float
    messages: float
    nlogn_both: float
    nlogn_gold: float
    nlogn_predicted: float
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
        gold, predicted = (n * np.log2(n) - nlogn for nlogn in (self.nlogn_gold, self.nlogn_predicted))
        apart = self.nlogn_gold + self.nlogn_predicted - 2 * self.nlogn_both
        shared = (gold + predicted - apart) / 2
        return {
            "link": _compute_f(self.links_both, self.links_gold, self.links_predicted),
            "cluster": _compute_f(self.conversations_both, self.conversations_gold, self.conversations_predicted),
            "vi": 100 * (1 - _divide(apart, n * np.log2(n), 0.0)),
            "one_to_one": 100 * self.overlap / n,
            "ari": 100 * _divide(self.pairs_both - expected, (self.pairs_gold + self.pairs_predicted) / 2 - expected, 1.0),
            "nmi": 100 * _divide(2 * shared, gold + predicted, 1.0),
            "shen_f": 100 * self.best_f / n,
            "local_3": 100 * _divide(self.near_agreed, self.near, 1.0),
        }


def count_agreement(log: Log) -> Agreement:
    """Compare the two annotations of a log, or of a slice of it."""
    _, gold = np.unique(log.gold_conversation, return_inverse=True)
    _, predicted = np.unique(log.predicted_conversation, return_inverse=True)
    gold_size, predicted_size = np.bincount(gold), np.bincount(predicted)
    cells, both = np.unique(gold * len(predicted_size) + predicted, return_counts=True)
    row, column = np.divmod(cells, len(predicted_size))
    best = np.zeros(len(gold_size))
    np.maximum.at(best, row, 2 * both / (gold_size[row] + predicted_size[column]))
    whole = (both == gold_size[row]) & (both == predicted_size[column]) & (both > 1)
    near, agreed = 0, 0
    for step in range(1, MAX_LINES + 1):
        close = log.messages[step:] - log.messages[:-step] <= MAX_LINES
        same = [conversation[step:] == conversation[:-step] for conversation in (gold, predicted)]
        near += int(close.sum())
        agreed += int((close & (same[0] == same[1])).sum())
    shared = set(map(tuple, log.gold.tolist())) & set(map(tuple, log.predicted.tolist()))
    return Agreement(
        links_both=len(shared),
        links_gold=len(log.gold),
        links_predicted=len(log.predicted),
        messages=len(log.messages),
        nlogn_both=_sum_nlogn(both),
        nlogn_gold=_sum_nlogn(gold_size),
        nlogn_predicted=_sum_nlogn(predicted_size),
        pairs_both=_count_pairs(both),
        pairs_gold=_count_pairs(gold_size),
        pairs_predicted=_count_pairs(predicted_size),
        overlap=_assign(row, column, both),
        best_f=float(gold_size @ best),
        conversations_both=int(whole.sum()),
        conversations_gold=int((gold_size > 1).sum()),
        conversations_predicted=int((predicted_size > 1).sum()),
        near_agreed=agreed,
        near=near,
    )


def split_chunks(log: Log) -> Iterator[Log]:
    """Parts of fifty annotated messages, in order; the last may be shorter."""
    for start in range(0, len(log.messages), CHUNK):
        yield log.slice(start, start + CHUNK)


def score(logs: Sequence[Log], protocol: Protocol = "official") -> dict[str, Any]:
    """official: the scores of the sums over all logs. chunk50: the mean of the scores of every fifty messages."""
    if protocol == "official":
        return sum_agreements(count_agreement(log) for log in logs).scores()
    return _mean_scores([count_agreement(part).scores() for log in logs for part in split_chunks(log)])


def sum_agreements(agreements: Iterable[Agreement]) -> Agreement:
    return Agreement(*np.sum([astuple(agreement) for agreement in agreements], axis=0).tolist())


def bootstrap(
    logs: Sequence[Log], protocol: Protocol = "official", *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Bootstrap intervals of the scores of `score`, over logs drawn with replacement."""
    random = np.random.Generator(np.random.Philox(key=seed))
    times = random.multinomial(len(logs), [1 / len(logs)] * len(logs), size=resamples)
    if protocol == "official":
        sums = times @ np.array([astuple(count_agreement(log)) for log in logs])
        drawn = [Agreement(*row).scores() for row in sums.tolist()]
    else:
        parts = [[count_agreement(part).scores() for part in split_chunks(log)] for log in logs]
        drawn = [_mean_scores([part for log, count in zip(parts, row) for part in log * count]) for row in times.tolist()]
    return _map_scores(lambda value, *values: interval(value, np.array(values), level), score(logs, protocol), *drawn)


def _mean_scores(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return _map_scores(lambda *values: float(np.mean(values)), *scores)


def _map_scores(function: Any, *scores: dict[str, Any]) -> dict[str, Any]:
    """Apply a function to the numbers at each place of dictionaries of the same form."""
    return {
        name: (_map_scores if isinstance(value, dict) else _apply)(function, *(record[name] for record in scores))
        for name, value in scores[0].items()
    }


def _apply(function: Any, *values: float) -> Any:
    return function(*values)


def _compute_f(both: float, gold: float, predicted: float) -> dict[str, float]:
    """Precision, recall and F. Two empty sides agree; if one is empty, precision and recall are zero."""
    if not gold and not predicted:
        return {"precision": 100.0, "recall": 100.0, "f1": 100.0}
    return {
        "precision": 100 * _divide(both, predicted, 0.0),
        "recall": 100 * _divide(both, gold, 0.0),
        "f1": 200 * both / (gold + predicted),
    }


def _divide(part: float, whole: float, empty: float) -> float:
    """The ratio; `empty` where the whole is zero up to rounding."""
    return float(part / whole) if abs(whole) > 1e-9 else empty


def _sum_nlogn(sizes: Numbers) -> float:
    return float((sizes * np.log2(sizes)).sum())


def _count_pairs(sizes: Numbers) -> float:
    return float((sizes * (sizes - 1) // 2).sum())


def _assign(row: Numbers, column: Numbers, both: Numbers) -> float:
    """The greatest number of common messages under a one-to-one assignment of conversations.

    For the sake of logs of 100,000 messages, pairs without a rival are assigned at once, and the rest is a sparse assignment
    problem. There every row also has a column of its own with weight zero, so that all rows find one. All weights are raised by
    one, because a sparse matrix holds no zeros.
    """
    alone = (np.bincount(row)[row] == 1) & (np.bincount(column)[column] == 1)
    assigned, both = float(both[alone].sum()), both[~alone]
    if not len(both):
        return assigned
    _, row = np.unique(row[~alone], return_inverse=True)
    _, column = np.unique(column[~alone], return_inverse=True)
    if row.max() > column.max():
        row, column = column, row
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    free = np.arange(rows)
    weight = np.concatenate([both + 1, np.ones(rows, dtype=np.int64)]).astype(np.float64)
    table = csr_array(
        (weight, (np.concatenate([row, free]), np.concatenate([column, columns + free]))), shape=(rows, columns + rows)
    )
    chosen = min_weight_full_bipartite_matching(table, maximize=True)
    return assigned + float(table[chosen[0], chosen[1]].sum() - rows)

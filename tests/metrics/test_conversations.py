"""Scores of links and conversations: against definitions, scikit-learn, and the published results on the Ubuntu IRC data."""

from dataclasses import astuple
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, mutual_info_score, normalized_mutual_info_score

from ramify.errors import RamifyError
from ramify.metrics.conversations import (
    bootstrap,
    count_agreement,
    find_conversations,
    match,
    score,
    split_chunks,
    sum_agreements,
)
from ramify.readers.annotation import read_links

FIRST = 7  # lines before it are context


def links(*pairs):
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@st.composite
def annotations(draw, size):
    """Links of messages FIRST … FIRST + size - 1, up to two each, some of them into the context."""
    pairs = []
    for child in range(FIRST, FIRST + size):
        parents = draw(st.lists(st.integers(max(0, child - 9), child), min_size=1, max_size=2, unique=True))
        pairs += [(parent, child) for parent in parents]
    return links(*pairs)


logs = st.integers(1, 14).flatmap(lambda size: st.tuples(annotations(size), annotations(size)))


def flat(scores):
    return [number for each in scores.values() for number in (each.values() if isinstance(each, dict) else [each])]


def sets(labels):
    return [frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)]


@given(logs)
def test_every_score_follows_its_definition(pair):
    (log,) = match({"a": pair[0]}, {"a": pair[1]}).logs
    found = count_agreement(log).scores()
    gold, predicted = sets(log.gold_conversation), sets(log.predicted_conversation)
    n = len(log.messages)

    true, predicted_links = ({tuple(link) for link in each.tolist()} for each in pair)
    assert found["link"]["precision"] == pytest.approx(100 * len(true & predicted_links) / len(predicted_links))
    assert found["link"]["recall"] == pytest.approx(100 * len(true & predicted_links) / len(true))

    exact = [{each for each in side if len(each) > 1} for side in (gold, predicted)]
    whole = len(exact[0]) + len(exact[1])
    assert found["cluster"]["f1"] == pytest.approx(200 * len(exact[0] & exact[1]) / whole if whole else 100)

    overlap = np.array([[len(one & other) for other in predicted] for one in gold])
    chosen = linear_sum_assignment(overlap, maximize=True)
    assert found["one_to_one"] == pytest.approx(100 * overlap[chosen].sum() / n)

    f = [max(2 * len(one & other) / (len(one) + len(other)) for other in predicted) for one in gold]
    assert found["shen_f"] == pytest.approx(100 * sum(map(len, gold)) and 100 * np.dot(f, list(map(len, gold))) / n)

    labels = log.gold_conversation, log.predicted_conversation
    assert found["ari"] == pytest.approx(100 * adjusted_rand_score(*labels), abs=1e-9)
    assert found["nmi"] == pytest.approx(100 * normalized_mutual_info_score(*labels), abs=1e-6)
    entropies = mutual_info_score(labels[0], labels[0]) + mutual_info_score(labels[1], labels[1])
    distance = entropies - 2 * mutual_info_score(*labels)
    assert found["vi"] == pytest.approx(100 * (1 - distance / np.log(n) if n > 1 else 1), abs=1e-6)

    near = [(i, j) for i, j in combinations(range(n), 2) if log.messages[j] - log.messages[i] <= 3]
    agreed = [(labels[0][i] == labels[0][j]) == (labels[1][i] == labels[1][j]) for i, j in near]
    assert found["local_3"] == pytest.approx(100 * np.mean(agreed) if near else 100)


@given(logs, logs)
def test_scores_of_logs_are_additive(one, other):
    """The sums of two logs are those of their concatenation."""
    apart = match({"a": one[0], "b": other[0]}, {"b": other[1], "a": one[1]}).logs
    # The offset keeps every line of the second log more than three lines from the first.
    later = [links + 1000 for links in other]
    together = match({"a": np.concatenate([one[0], later[0]])}, {"a": np.concatenate([one[1], later[1]])}).logs
    assert astuple(sum_agreements(map(count_agreement, apart))) == pytest.approx(astuple(count_agreement(*together)))
    assert flat(score(apart)) == pytest.approx(flat(score(together)))


@given(logs)
def test_identical_annotations_score_100(pair):
    (log,) = match({"a": pair[0]}, {"a": pair[0][::-1, ::-1]}).logs
    assert flat(count_agreement(log).scores()) == pytest.approx([100.0] * 12)


def test_conversations_are_joined_through_context_but_not_by_links_of_context():
    gold = {"a": links((2, 10), (2, 11), (12, 12))}
    (log,) = match(gold, {"a": links((3, 10), (4, 11), (3, 4), (12, 12))}).logs
    assert sets(log.gold_conversation) == [{0, 1}, {2}]
    assert sets(log.predicted_conversation) == [{0}, {1}, {2}]


def test_unscored_messages_are_counted():
    gold = {"a": links((9, 10), (10, 12))}
    predicted = {"a": links((9, 10), (9, 10), (10, 12), (3, 4), (10, 11), (12, 13)), "b": links((0, 0))}
    found = match(gold, predicted)
    assert found.dropped == {"other_log": 1, "before_first_message": 1, "not_annotated": 2}
    assert score(found.logs)["link"] == {"precision": 100, "recall": 100, "f1": 100}


def test_messages_without_a_prediction():
    gold = {"a": links((9, 10), (10, 11), (12, 12)), "b": links(*((n, n) for n in range(30)))}
    predicted = {"a": links((10, 11))}
    with pytest.raises(RamifyError, match=r"32 messages .*: a:10, a:12, b:0, .* …\. .*--missing self"):
        match(gold, predicted)
    found = match(gold, predicted, missing="self")
    assert found.missing == 32
    assert found.logs[0].predicted.tolist() == [[10, 10], [10, 11], [12, 12]]
    with pytest.raises(RamifyError, match="'c' has no links"):
        match({"c": links()}, {})
    with pytest.raises(RamifyError, match="no gold annotation"):
        match({}, predicted)
    with pytest.raises(
        RamifyError, match=r"1 predicted links belong to logs without a gold annotation: preds\.txt\. Name each file"
    ):
        match(gold, {"preds.txt": links((10, 11))})


def test_conversations_of_many_messages():
    """A chain of 100,000 messages does not exhaust the recursion limit."""
    count = 100_000
    chain = np.stack([np.arange(count), np.arange(1, count + 1)], axis=1)
    assert len(np.unique(find_conversations(chain, np.arange(count + 1)))) == 1
    (log,) = match({"a": chain}, {"a": np.repeat(chain[:, 1:], 2, axis=1)}).logs
    assert count_agreement(log).scores()["one_to_one"] == pytest.approx(100 / count)


@pytest.mark.parametrize("side", ["gold", "predicted", "both"])
def test_conversations_of_one_message_each(side):
    """There are a hundred thousand conversations; those without a rival need no assignment."""
    count = 100_000
    alone = np.stack([np.arange(count)] * 2, axis=1)
    together = np.stack([np.maximum(np.arange(count) - 1, 0), np.arange(count)], axis=1)
    gold, predicted = alone if side != "predicted" else together, alone if side != "gold" else together
    (log,) = match({"a": gold}, {"a": predicted}).logs
    assert count_agreement(log).scores()["one_to_one"] == pytest.approx(100 if side == "both" else 100 / count)


def test_chunks_restrict_the_conversations_of_the_log():
    """Messages 0 and 1 are one conversation through message 50, which lies in the second chunk."""
    gold = {"a": links((0, 50), (1, 50), *((n, n) for n in range(50)), *((n, n) for n in range(51, 120)))}
    (log,) = match(gold, gold).logs
    first, second, third = split_chunks(log)
    assert [len(part.messages) for part in (first, second, third)] == [50, 50, 20]
    assert first.gold_conversation[0] == first.gold_conversation[1] == second.gold_conversation[0]
    assert sorted(len(part.gold) for part in (first, second, third)) == [20, 50, 51]
    alone = match(gold, {}, missing="self").logs
    parts = [count_agreement(part).scores() for part in split_chunks(alone[0])]
    assert parts[0]["cluster"]["recall"] == 0
    assert parts[1]["cluster"]["recall"] == 100
    assert score(alone, "chunk50")["vi"] == pytest.approx(np.mean([part["vi"] for part in parts]))


@pytest.mark.parametrize("protocol", ["official", "chunk50"])
def test_bootstrap_over_logs(protocol):
    random = np.random.default_rng(0)
    gold, predicted = {}, {}
    for name in range(30):
        child = np.arange(100)
        gold[str(name)] = np.stack([np.maximum(child - 1, 0), child], axis=1)
        right = random.random(100) < random.uniform(0.3, 0.9)
        predicted[str(name)] = np.stack([np.where(right, np.maximum(child - 1, 0), child), child], axis=1)
    logs = match(gold, predicted).logs
    found = bootstrap(logs, protocol, resamples=200)
    assert found == bootstrap(logs, protocol, resamples=200) != bootstrap(logs, protocol, resamples=200, seed=1)
    each = [count_agreement(log).scores()["link"]["f1"] for log in logs]
    error = 1.96 * np.std(each) / len(each) ** 0.5
    link = found["link"]["f1"]
    assert link.value == score(logs, protocol)["link"]["f1"] == pytest.approx(np.mean(each))
    assert link.high - link.value == pytest.approx(error, rel=0.25)
    assert link.value - link.low == pytest.approx(error, rel=0.25)


# --- published results --------------------------------------------------------------------------------------------------------


def previous(lines):
    """The nearest earlier line that is no system message; system messages link to themselves."""
    last, pairs = None, []
    for number, line in enumerate(lines):
        system = line.startswith("===")
        pairs.append((number if system or last is None else last, number))
        last = last if system else number
    return pairs


def literal(lines):
    return [(max(0, number - 1), number) for number in range(len(lines))]


def itself(lines):
    return [(number, number) for number in range(len(lines))]


@pytest.mark.data
@pytest.mark.parametrize(
    ("predict", "link", "vi", "ari", "one_to_one", "shen", "local"),
    [
        (previous, (30.84, 29.57, 30.19), 66.20, 14.88, 23.92, 21.62, 48.27),
        (literal, (22.84, 21.90, 22.36), 60.82, 13.01, 17.20, 14.12, 36.16),
        (itself, (18.48, 17.72, 18.09), 68.60, 0.00, 19.76, 25.67, 63.84),
    ],
)
def test_published_rows_of_dev(data_dir, predict, link, vi, ari, one_to_one, shen, local):
    folder = data_dir("ubuntu-irc") / "dev"
    gold = read_links([folder])
    predicted = {}
    for name in gold:
        # The last line has a line end, too.
        lines = (folder / f"{name}.ascii.txt").read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        predicted[name] = links(*predict(lines))
    found = score(match(gold, predicted).logs)
    assert tuple(found["link"].values()) == pytest.approx(link, abs=0.005)
    assert found["cluster"] == {"precision": 0, "recall": 0, "f1": 0}
    scores = [found[name] for name in ("vi", "ari", "one_to_one", "shen_f", "local_3")]
    assert scores == pytest.approx([vi, ari, one_to_one, shen, local], abs=0.005)


@pytest.mark.data
def test_published_conversations(data_dir):
    folder = data_dir("ubuntu-irc")
    for split, count in (("dev", 494), ("train", 17_267)):
        gold = read_links([folder / f"gold.{split}.graphs.txt"])
        given = set()
        for line in (folder / f"gold.{split}.clusters.txt").read_text().splitlines():
            name, numbers = line.rsplit(":", 1)
            given.add((name, frozenset(map(int, numbers.split()))))
        found = set()
        for log in match(gold, gold).logs:
            found |= {(log.name, frozenset(log.messages[sorted(each)].tolist())) for each in sets(log.gold_conversation)}
        assert found == given
        assert len(found) == count

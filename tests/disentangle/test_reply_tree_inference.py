"""Parents of comments: the inputs that decisions do not depend on, and the scores."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import chain, channel, discussion, mht_task, reddit, star, tokenizer, uniform
from ramify.dataset.build import Policy, build
from ramify.dataset.store import Store
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.reply_trees import build_reply_logs
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import evaluate_links
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.predict import ReplyHistory, predict_posterior
from ramify.disentangle.inference.reply_trees import evaluate_replies, predict_baseline, score_parents
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.metrics.replies import ReplyCounts
from ramify.tree import Tree

PLAIN = DecodingConfig()
INPUT = ChatInput(window=8, texts="pieces", max_tokens=12)
TREES = [
    *(
        discussion(shape(12, seed), seed=seed, name=f"{shape.__name__}-{seed}")
        for shape in (uniform, reddit)
        for seed in (0, 1)
    ),
    discussion(chain(5), seed=9, name="chain"),
    discussion(star(1), name="pair"),
    discussion(star(0), name="bare"),
]


def read(trees: Sequence[Tree], input: ChatInput = INPUT) -> Logs:
    return build_reply_logs(trees, input).tokenize(tokenizer())


def ranking(seed: int = 0, **changes: object) -> ReplyLinking:
    return mht_task(tokenizer(), INPUT, seed, "ranking", **changes)


def features() -> ReplyLinking:
    torch.manual_seed(0)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=tokenizer().vocab_size, dim=4, hidden=8))
    return ReplyLinking(backbone, tokenizer(), INPUT, LinkConfig(objective="ranking")).eval()


def with_parent(tree: Tree, comment: int, parent: int) -> Tree:
    """The same tree, in which one comment has another parent."""
    nodes = list(tree.nodes)
    nodes[comment] = replace(nodes[comment], parents=(int(parent),))
    return Tree(tuple(nodes), id=tree.id)


def shares(own: ReplyLinking, logs: Logs, history: ReplyHistory = "gold") -> dict[int, np.ndarray]:
    """[message]: the probability of each of its candidates."""
    whole = LinkPosterior.concatenate(list(predict_posterior(own, PLAIN, logs, history=history)))
    ends = np.cumsum(whole.lengths)
    return {
        message: whole.probabilities[end - size : end]
        for message, end, size in zip(whole.messages.tolist(), ends, whole.lengths)
    }


# --- leaks --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [pytest.param(ranking, id="mht"), pytest.param(features, id="feature model")])
@pytest.mark.parametrize("tree", TREES[:3], ids=lambda tree: tree.id)
def test_gold_parent_does_not_change_its_own_prediction(own, tree):
    model = own()
    before = shares(model, read([tree]))
    later_moved = False
    for comment in range(2, len(tree)):
        known = tree.parent[comment]
        for parent in {0, comment - 1, comment // 2} - {known}:
            after = shares(model, read([with_parent(tree, comment, parent)]))
            for message in range(comment + 1):
                np.testing.assert_array_equal(after[message], before[message])
            later_moved |= any((after[message] != before[message]).any() for message in range(comment + 1, len(tree)))
    # If the model reads earlier links, later comments depend on them.
    assert later_moved == model.backbone.reads_structure


def test_later_comments_change_no_prediction():
    model, tree = ranking(), TREES[0]
    before = shares(model, read([tree]))
    for size in range(2, len(tree)):
        after = shares(model, read([Tree(tree.nodes[:size], id="cut")]))
        for message, expected in list(before.items())[:size]:
            np.testing.assert_allclose(after[message], expected, rtol=1e-5, atol=1e-7)


# --- decisions ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["gold", "predicted"])
@pytest.mark.parametrize("mask", ["ancestors", "temporal", "none"])
def test_comment_never_answers_itself(history: ReplyHistory, mask: str):
    logs = read(TREES)
    parents, probability, *_ = predict_links(ranking(mask=mask), PLAIN, logs, history=history)
    is_post = np.isin(np.arange(len(logs)), logs.offsets)
    assert (parents[is_post] == np.flatnonzero(is_post)).all()
    assert (parents < np.arange(len(logs)))[~is_post].all()
    assert ((probability > 0) & (probability <= 1.0001)).all()
    # The first comment has only one candidate.
    assert (parents[logs.offsets[:-2] + 1] == logs.offsets[:-2]).all()


def with_parents(trees: Sequence[Tree], parents: Ints) -> list[Tree]:
    """The trees with predicted parents."""
    starts = np.cumsum([0, *map(len, trees)])
    return [
        Tree(
            tuple(
                replace(node, parents=(int(parents[start + place] - start),) if place else ())
                for place, node in enumerate(tree.nodes)
            ),
            id=tree.id,
        )
        for tree, start in zip(trees, starts.tolist())
    ]


@pytest.mark.parametrize("seed", range(4))
def test_conversation_accuracy_is_equal_for_both_histories(seed):
    """One wrong link makes a conversation wrong, and up to that link both histories are equal."""
    model = ranking(seed)
    trees = with_parents(TREES, predict_links(model, PLAIN, read(TREES))[0])
    # Two trees equal the predictions except for one comment each.
    trees[0], trees[2] = (
        with_parent(tree, comment, (tree.parent[comment] + 1) % comment) for tree, comment in ((trees[0], 6), (trees[2], 12))
    )
    store = Store.from_trees(trees)
    predicted, gold = (
        evaluate_replies(Disentangler(model), store, "all", history=history) for history in ("predicted", "gold")
    )
    assert (predicted.history, gold.history) == ("predicted", "gold")
    whole = [found.model.correct == found.model.comments for found in (predicted, gold)]
    assert whole[0].tolist() == whole[1].tolist() == [False, True, False, True, True, True]
    assert predicted.model.scores()["conv_accuracy"] == gold.model.scores()["conv_accuracy"] == pytest.approx(400 / 6)


# --- scores -------------------------------------------------------------------------------------------------------------------


def test_baselines_are_first_and_previous():
    logs = read(TREES)
    for name, expected in (("first", lambda place: 0), ("previous", lambda place: place - 1)):
        found = score_parents(logs, predict_baseline(logs, name))
        right = [sum(tree.parent[place] == expected(place) for place in range(1, len(tree))) for tree in TREES if len(tree) > 1]
        assert found.correct.tolist() == right
        assert found.comments.tolist() == [len(tree) - 1 for tree in TREES if len(tree) > 1]
        assert found.first_correct.all()


def test_parents_beyond_the_window_are_not_trained_on_and_count_as_wrong():
    tree = discussion(star(20), name="star")
    logs = read([tree])
    assert logs.linked.tolist() == list(range(1, 9))
    found = evaluate_replies(Disentangler(ranking()), Store.from_trees([tree]), "all")
    assert found.beyond_window == 12
    assert found.model.comments.tolist() == [20]
    assert found.model.correct[0] <= 8
    assert found.baselines["first"].scores()["conv_accuracy"] == 100


def test_model_without_structure_has_no_history():
    assert evaluate_replies(Disentangler(features()), Store.from_trees(TREES), "all").history == "unread"


def test_unsuitable_models_and_settings_are_refused():
    with pytest.raises(RamifyError, match="reply trees"):
        evaluate_links(Disentangler(ranking()), Store.from_trees(TREES), "all")
    with pytest.raises(RamifyError, match="cannot read gold links"):
        evaluate_replies(Disentangler(ranking()), Store.from_trees(TREES), "all", beam=2)
    assert evaluate_replies(
        Disentangler(ranking()), Store.from_trees(TREES[:1]), "all", history="predicted", beam=2
    ).model.comments.tolist() == [12]


def test_chat_logs_are_ranked_without_starts():
    logs = Logs.build([channel(40)], INPUT)
    assert (logs.links[:, 0] == logs.links[:, 1]).any()
    left = logs.drop_starts()
    assert left.links.tolist() == [[late, early] for late, early in logs.links.tolist() if late != early]
    found = evaluate_links(Disentangler(ranking()), Store.from_trees([channel(40)]), "all")
    assert not found.starts
    assert "start a conversation are not scored" in found.describe()
    assert sum(len(log.gold) for log in found.match.logs) == len(left.links)


@pytest.mark.parametrize(
    ("bounds", "threads", "first", "previous"),
    [
        ({"min_nodes": 3, "max_nodes": 51}, 10_380, (56.25, 26.98), (35.15, 13.79)),
        ({"min_depth": 6, "max_nodes": 101}, 884, (39.15, 0.00), (26.62, 6.79)),
    ],
)
def test_stand_ins_for_published_data_sets(data_dir, tmp_path, bounds, threads, first, previous):
    files = sorted(data_dir("reddit-college").glob("*.zst"))
    store = build(files, "pushshift", tmp_path / "store", policy=Policy(deleted="tree"), **bounds)
    assert store.num_trees == threads
    posts = store.offsets[:-1]
    comments = np.delete(np.arange(store.num_nodes), posts)
    lengths = np.diff(store.offsets) - 1
    for parents, expected in ((np.repeat(posts, lengths), first), (comments - 1, previous)):
        found = ReplyCounts.count(parents, store.parent[comments], lengths).scores()
        assert (found["graph_accuracy"], found["conv_accuracy"]) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("objective", ["listwise", "binary"])
def test_models_of_logs_never_make_comments_start_conversations(objective, tmp_path) -> None:
    """Their one parent is the prediction among the other messages alone."""
    own = mht_task(tokenizer(), INPUT, 0, objective)
    logs = read(TREES)
    with torch.no_grad():
        assert own.head is not None
        for parameter in own.head.parameters():
            parameter.zero_()  # all candidates are equal: ties go to the nearest, which is the message itself
    assert (predict_links(own, PLAIN, logs, history="gold").parent == np.arange(len(logs))).all()
    found = evaluate_replies(Disentangler(own), Store.from_trees(TREES), "all")
    assert vars(found.model).keys() == vars(found.baselines["previous"]).keys()
    for name, counts in vars(found.model).items():
        np.testing.assert_array_equal(counts, vars(found.baselines["previous"])[name])

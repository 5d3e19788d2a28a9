"""Losses and probabilities of links against their definitions, and the inputs that predictions do not depend on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures import channel, several_parents
from ramify.disentangle.batch import LinkBatch, LinkCollator
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.inference import batches
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.predict import predict_posterior
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.nn.ragged import Rows
from ramify.tasks.base import MAIN
from ramify.tree import Node, Tree

INPUT, PLAIN = ChatInput(window=6), DecodingConfig()


def logs_of(*trees: Tree) -> Logs:
    logs = Logs.build(trees, INPUT)
    return logs.tokenize(learn_vocabulary((words for own in logs.channels for words in own.tokens), min_count=2))


TREES = several_parents(channel(40, 0)), several_parents(channel(25, 1))
LOGS = logs_of(*TREES)


def task(model: dict[str, int] | None = None, **config: object) -> ReplyLinking:
    torch.manual_seed(1)
    backbone = FeatureModel(
        FeatureModelConfig(**{"vocab_size": int(LOGS.ids.max()) + 1, "dim": 4, "hidden": 8} | (model or {}))
    )
    if backbone.candidate_attention is not None:
        torch.nn.init.normal_(backbone.candidate_attention.expand.weight)
    words = learn_vocabulary([["a"]], min_count=1)
    return ReplyLinking(backbone, words, INPUT, LinkConfig(**config)).eval()  # pyright: ignore[reportArgumentType]


def batch(logs: Logs = LOGS, known: bool = True) -> LinkBatch:
    view = Blocks(logs, logs.linked if known else np.arange(len(logs)), block=3)
    return LinkCollator(logs)([view.example(number) for number in range(len(view))])


def rows(values: torch.Tensor, own: LinkBatch) -> list[torch.Tensor]:
    return list(values.split(own.candidates.host_lengths.tolist()))


def test_listwise_loss_is_the_cross_entropy_with_the_known_links() -> None:
    own, data = task(), batch()
    scores = own.score_all(data)
    expected = sum(
        -(target * F.log_softmax(row, 0)).sum() for row, target in zip(rows(scores, data), rows(data.target_probability, data))
    )
    torch.testing.assert_close(own.loss(scores, data), expected)
    ((named, _),) = own.losses(data, {"links": 7.0}, MAIN, None, None)
    torch.testing.assert_close(named["links"], own.loss(scores, data) / 7)
    assert any((target > 0).sum() > 1 for target in rows(data.target_probability, data))
    assert any(target[0] > 0 and (target[1:] > 0).any() for target in rows(data.target_probability, data))


def one_conversation(message: int, other: int) -> bool:
    """Whether known links connect one message to the other."""
    seen, ahead = {message}, [message]
    while ahead:
        near = ahead.pop()
        further = {end for link in LOGS.links.tolist() if near in link for end in link} - seen
        seen |= further
        ahead += further
    return other in seen


def test_conversation_loss_is_added_to_the_link_loss() -> None:
    own, view = task(conversation_weight=2.0), Blocks(LOGS, np.arange(len(LOGS)), block=3)
    data = LinkCollator(LOGS, same_conversation=True)([view.example(number) for number in range(len(view))])
    scores, first = own.score_all(data), 0
    expected = task().loss(scores, data)
    for message, row in zip(data.source.tolist(), rows(scores, data)):
        shares, links = F.softmax(row, 0), LOGS.links.tolist()
        candidates = data.key_source[first : first + len(row)].tolist()
        inside = [
            share
            for share, other in zip(shares, candidates)
            if [message, other] in links or (other != message and one_conversation(message, other))
        ]
        if LOGS.annotated[message] and inside:
            expected = expected - 2 * torch.stack(inside).sum().log()
        first += len(row)
    assert data.same_conversation is not None
    assert data.same_conversation.sum() > (data.target_probability > 0).sum()
    torch.testing.assert_close(own.loss(scores, data), expected)
    assert not LOGS.annotated.all()


def test_unknown_conversations_add_no_loss() -> None:
    bare = logs_of(*(replace(tree, nodes=tuple(replace(node, parents=None) for node in tree.nodes)) for tree in TREES))
    own, view = task(conversation_weight=1.0), Blocks(bare, np.arange(len(bare)), block=3)
    data = LinkCollator(bare, same_conversation=True)([view.example(number) for number in range(len(view))])
    loss = own.loss(own.score_all(data), data)
    loss.backward()
    assert loss == 0
    assert all(weight.grad is None or not weight.grad.any() for weight in own.parameters())


def test_ranking_never_predicts_the_message_itself() -> None:
    own, data = task(objective="ranking"), batch(known=False)
    for number, (shares, itself) in enumerate(
        zip(rows(own.probabilities(own.score_all(data), data, PLAIN), data), rows(data.is_self, data))
    ):
        if len(shares) > 1:
            assert shares[itself.bool()].item() == 0, number
            assert shares.sum().item() == pytest.approx(1)


def test_binary_loss_is_a_mean_over_candidates() -> None:
    own, data = task(objective="binary", positive_weight=3.0), batch()
    scores = own.score_all(data)
    expected = torch.zeros(())
    for row, target in zip(rows(scores, data), rows(data.target_probability, data)):
        probability = torch.sigmoid(row)
        expected = expected + -torch.where(target > 0, 3 * probability.log(), (1 - probability).log()).mean()
    torch.testing.assert_close(own.loss(scores, data), expected)
    torch.testing.assert_close(own.probabilities(scores, data, PLAIN), torch.sigmoid(scores))


@pytest.mark.parametrize("config", [{}, {"conversation_weight": 1.0}, {"objective": "binary"}])
def test_importance_weight_equals_repeated_candidates(config: dict) -> None:
    own, data = task(**config), batch()
    scores = own.score_all(data).detach()
    times = torch.where(data.target_probability > 0, 1, 1 + torch.arange(len(scores)) % 3)
    sizes = [int(row.sum()) for row in rows(times, data)]
    if own.config.conversation_weight:
        # Candidates in the same conversation may be sampled like others.
        data = replace(data, same_conversation=((data.target_probability > 0) | (torch.arange(len(scores)) % 4 == 0)).float())
    written_out = data.select(torch.arange(len(scores)).repeat_interleave(times), Rows.build(sizes))
    found = own.loss(scores, replace(data, importance_weight=times.float()))
    torch.testing.assert_close(found, own.loss(scores.repeat_interleave(times), written_out))
    assert abs(float(found - own.loss(scores, data))) > 0.1


def test_binary_decisions_answer_the_likeliest() -> None:
    """This holds even if every candidate is unlikely."""
    own, data = task(objective="binary"), batch()
    with torch.no_grad():
        assert own.head is not None
        own.head.bias.fill_(-20.0)
    posterior = LinkPosterior.concatenate(list(predict_posterior(own, PLAIN, LOGS)))
    parents, probability = posterior.choose_likeliest()
    scores = own.score_all(batch(known=False))
    best = [int(row.argmax()) for row in rows(scores, batch(known=False))]
    assert (parents == posterior.messages - np.array(best)).all()
    assert probability.max() < 1e-3
    assert len(parents) == len(LOGS) > data.num_targets


def test_start_odds_multiply_the_probability_of_a_start() -> None:
    model, data = task(), batch(known=False)
    scores = model.score_all(data)
    own = [rows(model.probabilities(scores, data, each), data) for each in (PLAIN, DecodingConfig(start_odds=0.25))]
    for before, after in zip(*own):
        if len(before) > 1:
            torch.testing.assert_close(after[0] / (1 - after[0]), 0.25 * before[0] / (1 - before[0]))
            torch.testing.assert_close(after[1:] / after[1:].sum(), before[1:] / before[1:].sum())


@pytest.mark.parametrize("objective", ["listwise", "binary"])
def test_answers_others_excludes_the_same_author(objective: str) -> None:
    model, data = task(objective=objective), batch(known=False)
    scores = model.score_all(data)
    author = [(number, node.author) for number, tree in enumerate(TREES) for node in tree.nodes]
    own = []
    both = (model.probabilities(scores, data, each) for each in (PLAIN, DecodingConfig(answers="others")))
    for source, before, after in zip(data.source, *(rows(each, data) for each in both)):
        by_author = [author[source - back] == author[source] for back in range(len(before))]
        hidden = torch.tensor([same and author[source][1] is not None for same in by_author])
        hidden[0] = False
        remaining = torch.where(hidden, 0.0, before)
        torch.testing.assert_close(after, remaining / remaining.sum() if objective == "listwise" else remaining)
        own.append(int(hidden.sum()))
    assert max(own) > 1


@pytest.mark.parametrize(
    ("decoding", "objective"),
    [
        ({"answers": "others"}, "ranking"),
        ({"threshold": 0.5}, "ranking"),
        ({"start_odds": 0.5}, "binary"),
        ({"start_odds": 0.5}, "ranking"),
        ({"decide": "conversation"}, "binary"),
        ({"decide": "comembership"}, "ranking"),
    ],
)
def test_decoding_for_another_objective_is_refused(decoding: dict[str, Any], objective: str) -> None:
    """The message names the setting, the objective that it needs, and the value that suits the present objective."""
    ((name, value),) = decoding.items()
    needed = rf"decoding\.{name}={value} needs a model of task\.objective=listwise.*, not {objective}\. Set decoding\.{name}="
    with pytest.raises(RamifyError, match=needed):
        Disentangler(task(objective=objective), DecodingConfig(**decoding))


@pytest.mark.parametrize("decoding", [{"threshold": 0.5}, {"answers": "others"}, {"starts": False}, {"online": True}])
def test_decoding_settings_of_binary_models(decoding: dict[str, Any]) -> None:
    assert Disentangler(task(objective="binary"), DecodingConfig(**decoding)).decoding == DecodingConfig(**decoding)


@pytest.mark.parametrize("setting", [(-1.0, "listwise"), (0.5, "binary")])
def test_invalid_conversation_weights_are_refused(setting: tuple[float, Any]) -> None:
    weight, objective = setting
    with pytest.raises(RamifyError, match=r"task\.conversation_weight"):
        LinkConfig(conversation_weight=weight, objective=objective)


@pytest.mark.parametrize("decoding", [{"start_odds": -1.0}, {"start_odds": 0.0}, {"threshold": 1.0}, {"threshold": -0.1}])
def test_decoding_values_out_of_range_are_refused(decoding: dict[str, float]) -> None:
    with pytest.raises(RamifyError, match=rf"decoding\.{next(iter(decoding))} must be"):
        DecodingConfig(**decoding)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("score", ["sum", "linear"])
def test_scores_are_the_head_of_the_states(score: str) -> None:
    own, data = task(score=score), batch()
    states = own.backbone(data)
    expected = states.sum(1) if own.head is None else states @ own.head.weight[0] + own.head.bias
    torch.testing.assert_close(own.score_all(data), expected)


def test_loss_without_weights_is_refused() -> None:
    linear = task({"num_layers": 0, "dim": 0})
    assert sum(weight.numel() for weight in linear.parameters()) == linear.backbone.out_dim + 1
    with pytest.raises(RamifyError, match=r"nothing to learn.*task\.score=linear"):
        task({"num_layers": 0, "dim": 0}, score="sum")


def test_gold_links_do_not_change_posteriors() -> None:
    """Gold links of this message and of all others change only the loss."""
    own = task()
    log = several_parents(channel(40, 0))
    bare = [replace(node, parents=None, self_link=False) for node in log.nodes]
    other = Tree(tuple(replace(node, parents=(index - 1,) if index else ()) for index, node in enumerate(bare)))
    none = Tree(tuple(bare))
    scores = []
    for tree in (log, other, none):
        logs = replace(logs_of(tree), ids=LOGS.ids[: LOGS.token_offsets[40]], token_offsets=LOGS.token_offsets[:41])
        scores.append(own.score_all(batch(logs, known=False)))
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_ties_go_to_the_nearest_candidate() -> None:
    posterior = LinkPosterior(
        np.array([1, 2]), np.array([1, 0, 2, 1, 0]), np.array([2, 3]), np.array([0.5, 0.5, 0.2, 0.4, 0.4], dtype=np.float32)
    )
    parents, probability = posterior.choose_likeliest()
    assert parents.tolist() == [1, 1]
    assert probability.tolist() == pytest.approx([0.5, 0.4])


def test_posteriors_do_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    own = task()
    whole = LinkPosterior.concatenate(list(predict_posterior(own, PLAIN, LOGS)))
    monkeypatch.setattr(batches, "KEYS", 40)
    monkeypatch.setattr(batches, "BLOCK", 4)
    parts = list(predict_posterior(own, PLAIN, LOGS))
    assert len(parts) > 5
    again = LinkPosterior.concatenate(parts)
    assert np.array_equal(again.candidates, whole.candidates)
    np.testing.assert_allclose(again.probabilities, whole.probabilities, rtol=1e-5)


def test_posterior_of_no_messages_is_empty() -> None:
    assert LinkPosterior.concatenate(list(predict_posterior(task(), PLAIN, logs_of()))).choose_likeliest()[0].tolist() == []
    alone = Disentangler(task()).disentangle(Tree((Node("hi"),)))
    assert alone.conversation.tolist() == [0]
    assert alone.probability.tolist() == [1.0]


COMPARING = {"attention_layers": 1, "attention_dim": 8, "attention_heads": 2}


@pytest.mark.parametrize("objective", ["listwise", "ranking", "binary"])
def test_only_the_likeliest_candidates_attend_to_each_other(objective: str) -> None:
    own = batch()
    model = COMPARING | {"attention_candidates": 3}
    together = task(model, objective=objective)
    found = rows(together.score_all(own), own)
    states = together.backbone(own)
    apart = rows(together._score_states(states, own.is_self), own)
    for start, before, after in zip(own.candidates.offsets.tolist(), apart, found, strict=False):
        likeliest = before.argsort(descending=True, stable=True)[:3].sort().values
        others = torch.ones_like(before, dtype=torch.bool)
        others[likeliest] = False
        torch.testing.assert_close(after[others], before[others])
        if len(likeliest) == 3:
            expected = together._score_states(
                together.backbone.candidate_attention(states[likeliest + start], Rows.build([3])),
                own.is_self[likeliest + start],
            )
            torch.testing.assert_close(after[likeliest], expected)


def test_shortlist_of_all_candidates_changes_nothing() -> None:
    own = batch()
    torch.testing.assert_close(task(COMPARING | {"attention_candidates": 7}).score_all(own), task(COMPARING).score_all(own))


def test_several_answers_by_a_threshold() -> None:
    own = task(objective="binary")
    log = channel(25, 1)
    alone = Disentangler(own).disentangle(log, ignore_replies=True)
    (posterior,) = list(predict_posterior(own, PLAIN, Logs.build([log], INPUT).tokenize(own.tokenizer)))
    by_message = {
        int(message): dict(zip(candidates.tolist(), shares.tolist(), strict=True))
        for message, candidates, shares in zip(
            posterior.messages,
            np.split(posterior.candidates, np.cumsum(posterior.lengths)[:-1]),
            np.split(posterior.probabilities, np.cumsum(posterior.lengths)[:-1]),
            strict=True,
        )
    }
    threshold = float(np.quantile(posterior.probabilities, 0.8))
    found = Disentangler(own, DecodingConfig(threshold=threshold)).disentangle(log, ignore_replies=True)
    for number, (one, node) in enumerate(zip(alone.tree.nodes, found.tree.nodes, strict=True)):
        likely = {each for each, share in by_message[number].items() if share >= threshold}
        assert set(node.parents or ()) == (likely | {*(one.parents or ())}) - {number}
    assert any(len(node.parents or ()) > 1 for node in found.tree.nodes)
    # Further links can lower precision, but not recall.
    assert len(found.links()) > len(alone.links())
    own.input = replace(INPUT, causal=True)
    with pytest.raises(RamifyError, match=r"decoding\.threshold=.* that a live channel has already separated"):
        Disentangler(own, DecodingConfig(threshold=threshold)).live()

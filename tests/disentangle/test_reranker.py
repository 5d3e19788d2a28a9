"""Reranking: the probabilities that change, the training, and the models that accept a reranker."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify import hub
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.features.conversation import CONVERSATION_FEATURES, ConversationState
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.predict import predict_posterior
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.reranker import CANDIDATES, Reranker, fit_reranker
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError

TREES = [channel(80, seed) for seed in range(3)]
INPUT = ChatInput(window=25, causal=True)
PLAIN = DecodingConfig()


def plain_task(**config: object) -> ReplyLinking:
    torch.manual_seed(0)
    words = learn_vocabulary([["a"]], min_count=1)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=words.vocab_size, dim=0, hidden=8))
    return ReplyLinking(backbone, words, INPUT, LinkConfig(**config)).eval()  # pyright: ignore[reportArgumentType]


def reranked_task(model: Reranker) -> ReplyLinking:
    task = plain_task()
    task.config = replace(task.config, reranker_dim=model.input_layer.out_features, lookahead=model.lookahead)
    task.reranker = model
    return task


def random_reranker(lookahead: bool = False) -> Reranker:
    torch.manual_seed(1)
    model = Reranker(8, lookahead)
    torch.nn.init.normal_(model.output_layer.weight)
    return model


LOGS = Logs.build(TREES, INPUT).tokenize(plain_task().tokenizer)


def predict(task: ReplyLinking, decoding: DecodingConfig = PLAIN) -> LinkPosterior:
    return LinkPosterior.concatenate(list(predict_posterior(task, decoding, LOGS)))


def fit(task: ReplyLinking, dim: int, logs: Logs = LOGS, **settings: Any) -> Reranker:
    return fit_reranker([(logs, predict_posterior(task, PLAIN, logs))], dim, **settings)


def nats(found: LinkPosterior) -> float:
    starts = np.cumsum(found.lengths) - found.lengths
    is_link = LOGS.is_link(np.repeat(found.messages, found.lengths), found.candidates)
    link_probability = np.add.reduceat(np.where(is_link, found.probabilities, 0), starts)
    return float(-np.log(link_probability[np.add.reduceat(is_link, starts) > 0]).mean())


def test_untrained_reranker_changes_nothing() -> None:
    np.testing.assert_allclose(
        predict(reranked_task(Reranker(8))).probabilities, predict(plain_task()).probabilities, rtol=1e-5
    )


def test_reranking_redistributes_the_probability_of_the_likeliest() -> None:
    before, after = predict(plain_task()), predict(reranked_task(random_reranker()))
    assert np.array_equal(before.candidates, after.candidates)
    assert np.abs(before.probabilities - after.probabilities).max() > 0.01
    start = 0
    for length in before.lengths.tolist():
        one, other = (each.probabilities[start : start + length] for each in (before, after))
        again = np.argsort(-one, kind="stable")
        np.testing.assert_allclose(other[again[:CANDIDATES]].sum(), one[again[:CANDIDATES]].sum(), rtol=1e-5)
        np.testing.assert_array_equal(other[again[CANDIDATES:]], one[again[CANDIDATES:]])
        start += length


HOW = pytest.mark.parametrize("lookahead", [False, True])


@HOW
def test_posteriors_do_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch, lookahead: bool) -> None:
    whole = predict(reranked_task(random_reranker(lookahead)))
    monkeypatch.setattr("ramify.disentangle.inference.batches.KEYS", 60)
    monkeypatch.setattr("ramify.disentangle.inference.batches.BLOCK", 3)
    np.testing.assert_allclose(
        predict(reranked_task(random_reranker(lookahead))).probabilities, whole.probabilities, rtol=1e-4, atol=1e-7
    )


@HOW
def test_logs_are_reranked_independently(lookahead: bool) -> None:
    task = reranked_task(random_reranker(lookahead))
    together = predict_links(task, PLAIN, LOGS).parent
    for number, tree in enumerate(TREES):
        first, stop = LOGS.offsets[number : number + 2]
        alone = predict_links(task, PLAIN, Logs.build([tree], INPUT).tokenize(task.tokenizer)).parent
        assert (alone + first == together[first:stop]).all()


def test_only_lookahead_reads_later_messages() -> None:
    """Logs decoded online are an exception."""
    early = [replace(tree, nodes=tree.nodes[:50]) for tree in TREES]
    logs = Logs.build(early, INPUT).tokenize(plain_task().tokenizer)
    for model, online in (
        (random_reranker(), False),
        (random_reranker(lookahead=True), True),
        (random_reranker(lookahead=True), False),
    ):
        task, decoding = reranked_task(model), DecodingConfig(online=online)
        whole, part = (
            np.concatenate([each.tabulate(INPUT.window) for each in predict_posterior(task, decoding, own)])[first : first + 50]
            for own, first in ((LOGS, int(LOGS.offsets[1])), (logs, 50))
        )
        assert (np.abs(whole - part).max() > 1e-3) == (model.lookahead and not online)


def test_online_decoding_skips_a_reranker_with_lookahead() -> None:
    task = reranked_task(random_reranker(lookahead=True))
    assert np.abs(predict(task).probabilities - predict(plain_task()).probabilities).max() > 0.01
    assert np.array_equal(predict(task, DecodingConfig(online=True)).probabilities, predict(plain_task()).probabilities)


@HOW
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_reranker_learns_and_survives_saving(tmp_path, lookahead: bool, weight: float) -> None:
    task = plain_task()
    settings: dict[str, Any] = {"seed": 3, "lookahead": lookahead, "conversation_weight": weight}
    model = fit(task, 16, **settings)
    better = reranked_task(model)
    assert nats(predict(better)) < nats(predict(task)) - 0.05
    again = fit(plain_task(), 16, **settings)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters()))
    hub.save(Disentangler(better), tmp_path)
    loaded = hub.load(tmp_path).task
    assert isinstance(loaded, ReplyLinking)
    assert np.array_equal(predict(loaded).probabilities, predict(better).probabilities)


def test_features_are_standardized() -> None:
    """The mean and the scale from training are part of the first layer."""
    model = fit(plain_task(), 16)
    state = ConversationState.start(LOGS)
    assert model.input_layer.in_features == len(CONVERSATION_FEATURES)
    for posterior in predict_posterior(plain_task(), PLAIN, LOGS):
        assert np.isfinite(next(model.rerank([posterior], state)).probabilities).all()


def test_invalid_reranker_settings_are_refused() -> None:
    for setting in ({"reranker_dim": -1}, {"reranker_dim": 8, "objective": "binary"}, {"lookahead": True}):
        with pytest.raises(RamifyError, match=r"task\.reranker_dim"):
            plain_task(**setting)
    bare = [replace(tree, nodes=tuple(replace(node, parents=None) for node in tree.nodes)) for tree in TREES]
    with pytest.raises(RamifyError, match="nothing to learn from"):
        fit(plain_task(), 8, Logs.build(bare, INPUT).tokenize(plain_task().tokenizer))

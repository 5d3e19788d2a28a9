"""A live channel gives the same links as the whole log."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify.disentangle.candidate_pruner import CandidatePruner
from ramify.disentangle.config import ChatInput, DecodingConfig
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.streaming import LinkPrediction
from ramify.disentangle.models.base import LinkBackbone
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.disentangle.reranker import Reranker
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree

LOG = channel(64, 3)
WORDS = learn_vocabulary([node.text.lower().split() for node in LOG.nodes], min_count=1)


def feature_model(decoding: DecodingConfig | None = None, **changes: object) -> Disentangler:
    torch.manual_seed(0)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, dim=4, hidden=8))
    input = ChatInput(window=12, **({"causal": True} | changes))  # pyright: ignore[reportArgumentType]
    return Disentangler(ReplyLinking(backbone, WORDS, input), decoding)


def sharpened(model: Disentangler, times: float) -> Disentangler:
    with torch.no_grad():
        for layer in model.backbone.layers:
            layer.weight.mul_(times)
    return model


def by_conversation(threshold: float = 0.0) -> Disentangler:
    # With nearly equal candidates, the largest conversation would take all messages.
    return sharpened(feature_model(DecodingConfig(decide="conversation", start_odds=2, threshold=threshold)), 4)


def by_comembership() -> Disentangler:
    return sharpened(feature_model(DecodingConfig(decide="comembership", threshold=0.03)), 8)


def structured_by_comembership() -> Disentangler:
    model = structured_with_several_answers()
    return Disentangler(model.task, replace(model.decoding, decide="comembership", start_odds=0.1))


def with_several_answers() -> Disentangler:
    return by_conversation(threshold=0.08)


def answering_others() -> Disentangler:
    return feature_model(DecodingConfig(answers="others"))


def reranked(lookahead: bool = False) -> Disentangler:
    model = with_several_answers()
    torch.manual_seed(1)
    model.task.config = replace(model.task.config, reranker_dim=8, lookahead=lookahead)
    reranker = model.task.reranker = Reranker(8, lookahead=lookahead)
    torch.nn.init.normal_(reranker.output_layer.weight)
    return model


def with_lookahead() -> Disentangler:
    """Decides on whole logs as on a live channel, without later messages."""
    model = reranked(lookahead=True)
    return Disentangler(model.task, replace(model.decoding, online=True))


def structured_with_several_answers() -> Disentangler:
    return Disentangler(mht().task, DecodingConfig(decide="conversation", start_odds=2, threshold=0.05))


def in_context(attention_candidates: int = 0) -> Disentangler:
    """Reads the messages around a pair, and all candidates jointly."""
    torch.manual_seed(0)
    sizes = {"dim": 4, "hidden": 8, "context_features": True, "attention_layers": 1, "attention_dim": 8, "attention_heads": 2}
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, attention_candidates=attention_candidates, **sizes))
    assert backbone.candidate_attention is not None
    torch.nn.init.normal_(backbone.candidate_attention.expand.weight)
    return Disentangler(ReplyLinking(backbone, WORDS, ChatInput(window=12, causal=True)))


def among_the_likeliest() -> Disentangler:
    return in_context(attention_candidates=4)


def pruned() -> Disentangler:
    model = in_context()
    torch.manual_seed(1)
    model.task.config = replace(model.task.config, num_candidates=5)
    model.task.candidate_pruner = CandidatePruner(5, with_context=True)
    return model


def pruned_of_others() -> Disentangler:
    return Disentangler(pruned().task, DecodingConfig(answers="others"))


def mht() -> Disentangler:
    torch.manual_seed(1)
    tokenizer = Tokenizer.train([node.text for node in LOG.nodes] * 2, vocab_size=150)
    encoder = BertConfig(vocab_size=tokenizer.vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=8, max_tokens=16)
    config = MHTConfig(encoder=encoder, dim=8, num_layers=2, num_heads=2, ffn_dim=8, features="head", feature_hidden=8)
    backbone: LinkBackbone = MaskedHierarchicalTransformer(config)
    # A fresh head makes all candidates nearly equal; large weights keep links away from ties.
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.mul_(8) if parameter.dim() > 1 else None
    input = ChatInput(window=12, causal=True, texts="pieces", max_tokens=12)
    return Disentangler(ReplyLinking(backbone, tokenizer, input))


SEVERAL = [
    with_several_answers,
    reranked,
    with_lookahead,
    structured_with_several_answers,
    by_comembership,
    structured_by_comembership,
]
OTHERS = [in_context, among_the_likeliest, pruned, pruned_of_others, mht]
EVERY_KIND = [feature_model, by_conversation, answering_others, *SEVERAL, *OTHERS]


@cache
def predictions_one_by_one(make):
    live = make().live(ignore_replies=True)
    return [live.predict(node) for node in LOG.nodes]


@pytest.mark.parametrize("make", EVERY_KIND)
def test_live_predictions_equal_offline_predictions(make) -> None:
    model = make()
    whole = model.disentangle(LOG, ignore_replies=True)
    predictions = predictions_one_by_one(make)
    parents = [node.parents or (number,) for number, node in enumerate(whole.tree.nodes)]
    assert [(each.parent, *each.also) for each in predictions] == parents
    assert any(each.also for each in predictions) == (make in SEVERAL)
    assert [each.number for each in predictions] == list(range(len(LOG)))
    np.testing.assert_allclose([each.probability for each in predictions], whole.probability, atol=1e-5)
    assert [each.conversation for each in predictions] == whole.conversation.tolist()
    assert 3 < len(set(parents)) < len(LOG)
    assert 1 < whole.conversation.max() < len(LOG) - 1


def with_recorded_replies(seed: int) -> Tree:
    """Half of the messages record a parent, up to twice the window back, and some record that they start a conversation."""
    random = np.random.default_rng(seed)
    nodes = []
    for number, node in enumerate(LOG.nodes):
        reach = int(random.integers(1, 30))
        parents = (max(0, number - reach),) if number and random.random() < 0.5 else None
        nodes.append(replace(node, parents=parents, self_link=False))
    for number in range(5, len(nodes), 6):
        nodes[number] = replace(nodes[number], parents=(), self_link=True)
    return Tree(tuple(nodes), id=LOG.id)


@cache
def whole_log_with_recorded_replies(make):
    return make().disentangle(with_recorded_replies(seed=4))


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("make", EVERY_KIND)
def test_recorded_replies_are_kept_on_live_channels_as_in_whole_logs(make, size) -> None:
    model, log = make(), with_recorded_replies(seed=4)
    whole = whole_log_with_recorded_replies(make)
    known = {number: node.parents for number, node in enumerate(log.nodes) if node.parents is not None}
    assert whole.recorded == known.keys()
    assert sum(number - parents[0] > model.input.window for number, parents in known.items() if parents) > 5
    for number, parents in known.items():
        assert whole.tree.nodes[number].parents == parents
        assert whole.probability[number] == 1
        assert whole.conversation[number] == whole.conversation[parents[0] if parents else number]
    live = model.live()
    predictions = [each for start in range(0, len(log), size) for each in live.predict_all(log.nodes[start : start + size])]
    assert {each.number for each in predictions if each.recorded} == known.keys()
    parents = [node.parents or (number,) for number, node in enumerate(whole.tree.nodes)]
    assert [(each.parent, *each.also) for each in predictions] == parents
    np.testing.assert_allclose([each.probability for each in predictions], whole.probability, atol=1e-5)
    assert [each.conversation for each in predictions] == whole.conversation.tolist()


DECIDES_BY_EARLIER_LINKS = [by_conversation, by_comembership, reranked, structured_with_several_answers, mht]


@pytest.mark.parametrize("make", DECIDES_BY_EARLIER_LINKS)
def test_other_messages_are_decided_given_the_recorded_replies(make) -> None:
    model, log = make(), with_recorded_replies(seed=4)
    kept, ignored = model.disentangle(log), model.disentangle(log, ignore_replies=True)
    assert not ignored.recorded
    assert (
        ignored.links().tolist() == model.disentangle(Tree(tuple(replace(n, parents=None) for n in LOG.nodes))).links().tolist()
    )
    others = [number for number in range(len(log)) if number not in kept.recorded]
    assert not np.allclose(kept.probability[others], ignored.probability[others], atol=1e-4)


def test_recorded_parents_must_be_earlier_messages() -> None:
    live = feature_model().live()
    live.predict(Node("a"))
    with pytest.raises(RamifyError, match="message 1 of the channel has the parent 1, which is not an earlier message"):
        live.predict(Node("b", (1,)))
    assert live.predict(Node("b", (0,))) == LinkPrediction(1, 0, 1.0, 0, recorded=True)


def test_a_channel_is_followed_message_by_message() -> None:
    """Each answer comes before the next message is read."""
    model, read = feature_model(), []

    def messages() -> Iterator[Node]:
        for node in LOG.nodes[:5]:
            read.append(node)
            yield node

    answers = model.follow(messages())
    assert [(next(answers), len(read))[1] for _ in range(5)] == [1, 2, 3, 4, 5]
    live = model.live()
    assert list(model.follow(LOG.nodes[:5])) == [live.predict(node) for node in LOG.nodes[:5]]


def test_pairs_of_author_and_text_are_messages() -> None:
    pairs = [(node.author, node.text) for node in LOG.nodes[:30]]
    nodes = [Node(text, None, author=author) for author, text in pairs]
    model = feature_model()
    found = model.disentangle(pairs)
    assert found.links().tolist() == model.disentangle(nodes).links().tolist()
    assert [node.author for node in found.tree.nodes] == [author for author, _ in pairs]
    assert model.live().predict_all(pairs) == model.live().predict_all(nodes)
    assert model.disentangle(iter(pairs)).links().tolist() == found.links().tolist()


@pytest.mark.ill_typed
@pytest.mark.parametrize("strange", ["hi", ("ann", 3), ("ann", "hi", "there"), {"text": "hi"}])
def test_other_values_are_not_messages(strange) -> None:
    with pytest.raises(
        RamifyError, match=r"A message is a ramify\.Node\(text, author=…, time=…\), not .*A pair \(author, text\)"
    ):
        feature_model().disentangle([Node("a"), strange])


@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize("make", EVERY_KIND)
def test_several_messages_per_update(make, size) -> None:
    together = make().live(ignore_replies=True)
    expected = predictions_one_by_one(make)
    found = [each for start in range(0, len(LOG), size) for each in together.predict_all(LOG.nodes[start : start + size])]
    assert [(each.number, each.parent, each.also, each.conversation) for each in found] == [
        (each.number, each.parent, each.also, each.conversation) for each in expected
    ]
    np.testing.assert_allclose([each.probability for each in found], [each.probability for each in expected], atol=1e-5)
    assert together.predict_all([]) == []


def test_structured_model_decides_each_message_before_the_next() -> None:
    live = structured_with_several_answers().live()
    for number, prediction in enumerate(live.predict_each(LOG.nodes[:20])):
        assert prediction.number == number == max(live._messages)


def test_live_predictions_do_not_depend_on_later_messages() -> None:
    model = feature_model()
    log = Tree(tuple(replace(node, parents=None) for node in LOG.nodes))
    early = [model.disentangle(Tree(log.nodes[:size])).tree.nodes[-1].parents for size in range(1, 40)]
    assert early == [node.parents for node in model.disentangle(log).tree.nodes[:39]]


def test_memory_does_not_grow_with_the_log() -> None:
    live = feature_model().live(ignore_replies=True)
    sizes = []
    for number in range(400):
        live.predict(LOG.nodes[number % len(LOG)])
        sizes.append(len(live._messages))
    assert max(sizes[100:]) == max(sizes[300:]) < 60
    assert len(live._conversations) == 0


@pytest.mark.ill_typed
@pytest.mark.parametrize("message", ["", "hi", {"text": "hi"}])
def test_invalid_messages_are_refused(message) -> None:
    live = feature_model().live()
    with pytest.raises(TypeError, match=r"A message is a ramify\.Node\(text, author=…, time=…\), not (str|dict)\."):
        live.predict_all(each for each in [Node("a", None), message])
    assert live.predict(Node("b", None)).number == 0


def test_live_channel_refuses_a_model_with_lookahead() -> None:
    with pytest.raises(RamifyError, match=r"input\.causal"):
        feature_model(causal=False).live()


def test_first_message_starts_a_conversation() -> None:
    assert feature_model().live().predict(Node("hi", None)) == LinkPrediction(0, 0, 1.0, 0)

"""A live channel finds what the whole log would be found to hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify.disentangle.candidate_pruner import FirstLook
from ramify.disentangle.config import History
from ramify.disentangle.data.words import learn_words
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.streaming import Heard, Live
from ramify.disentangle.models.base import LinkBackbone
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.disentangle.reranker import SecondLook
from ramify.disentangle.task import ReplyTo, ReplyToConfig
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree

LOG = channel(90, 3)
WORDS = learn_words([node.text.lower().split() for node in LOG.nodes], least=1)


def feature_model(config: ReplyToConfig | None = None, **changes: object) -> ReplyTo:
    torch.manual_seed(0)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, dim=4, hidden=8))
    history = History(window=12, **({"causal": True} | changes))  # pyright: ignore[reportArgumentType]
    return ReplyTo(backbone, WORDS, history, config)


def surer(task: ReplyTo, times: float) -> ReplyTo:
    with torch.no_grad():
        for layer in task.backbone.layers:
            layer.weight.mul_(times)
    return task


def by_conversation() -> ReplyTo:
    # Of candidates that are nearly alike, the conversation with most of them would take all.
    return surer(feature_model(ReplyToConfig(decide="conversation", start_odds=2)), 4)


def by_comembership() -> ReplyTo:
    return surer(feature_model(ReplyToConfig(decide="comembership", threshold=0.03)), 8)


def structured_by_comembership() -> ReplyTo:
    task = structured_with_several_answers()
    task.config = replace(task.config, decide="comembership", start_odds=0.1)
    return task


def with_several_answers() -> ReplyTo:
    task = by_conversation()
    task.config = replace(task.config, threshold=0.08)
    return task


def of_others() -> ReplyTo:
    task = feature_model()
    task.config = ReplyToConfig(answers="others")
    return task


def looking_twice() -> ReplyTo:
    task = with_several_answers()
    torch.manual_seed(1)
    task.config, task.second = replace(task.config, second_look=8), SecondLook(8)
    torch.nn.init.normal_(task.second.last.weight)
    return task


def with_hindsight() -> ReplyTo:
    """Decides on whole logs as on a live channel, for this has none."""
    task = with_several_answers()
    torch.manual_seed(1)
    task.config = replace(task.config, second_look=8, hindsight=True, as_live=True)
    task.second = SecondLook(8, hindsight=True)
    torch.nn.init.normal_(task.second.last.weight)
    return task


def structured_with_several_answers() -> ReplyTo:
    task = mht()
    task.config = ReplyToConfig(decide="conversation", start_odds=2, threshold=0.05)
    return task


def in_context(among: int = 0) -> ReplyTo:
    """Reads what is said around a pair, and all candidates together."""
    torch.manual_seed(0)
    sizes = {"dim": 4, "hidden": 8, "surroundings": True, "context_layers": 1, "context_dim": 8, "context_heads": 2}
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, context_among=among, **sizes))
    assert backbone.context is not None
    torch.nn.init.normal_(backbone.context.expand.weight)
    return ReplyTo(backbone, WORDS, History(window=12, causal=True))


def among_the_likeliest() -> ReplyTo:
    return in_context(among=4)


def reading_a_few() -> ReplyTo:
    task = in_context()
    torch.manual_seed(1)
    task.config, task.first = replace(task.config, first_look=5), FirstLook(5, with_surroundings=True)
    return task


def reading_a_few_of_others() -> ReplyTo:
    task = reading_a_few()
    task.config = replace(task.config, answers="others")
    return task


def mht() -> ReplyTo:
    torch.manual_seed(1)
    tokenizer = Tokenizer.train([node.text for node in LOG.nodes] * 2, vocab_size=150)
    encoder = BertConfig(vocab_size=tokenizer.vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=8, max_tokens=16)
    config = MHTConfig(encoder=encoder, dim=8, num_layers=2, num_heads=2, ffn_dim=8, features="head", feature_hidden=8)
    backbone: LinkBackbone = MaskedHierarchicalTransformer(config)
    # Fresh heads find all alike: with weights as large as these, links are far from ties.
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.mul_(8) if parameter.dim() > 1 else None
    return ReplyTo(backbone, tokenizer, History(window=12, causal=True, texts="pieces", max_tokens=12))


SEVERAL = [
    with_several_answers,
    looking_twice,
    with_hindsight,
    structured_with_several_answers,
    by_comembership,
    structured_by_comembership,
]
OTHERS = [in_context, among_the_likeliest, reading_a_few, reading_a_few_of_others, mht]
EVERY_KIND = [feature_model, by_conversation, of_others, *SEVERAL, *OTHERS]


@pytest.mark.parametrize("make", EVERY_KIND)
def test_live_is_as_offline(make) -> None:
    task = make()
    whole = Disentangler(task).disentangle(LOG)
    live = Live(task)
    heard = [live.hear(node) for node in LOG.nodes]
    answered = [node.parents or (number,) for number, node in enumerate(whole.tree.nodes)]
    assert [(each.answered, *each.also) for each in heard] == answered
    assert any(each.also for each in heard) == (make in SEVERAL)
    assert [each.number for each in heard] == list(range(len(LOG)))
    np.testing.assert_allclose([each.probability for each in heard], whole.probability, atol=1e-5)
    assert [each.conversation for each in heard] == whole.conversation.tolist()
    assert 3 < len(set(answered)) < len(LOG)
    assert 1 < whole.conversation.max() < len(LOG) - 1


@pytest.mark.parametrize("size", [2, 7, 40, 1000])
@pytest.mark.parametrize("make", EVERY_KIND)
def test_several_messages_at_a_time(make, size) -> None:
    one_by_one, together = Live(make()), Live(make())
    expected = [one_by_one.hear(node) for node in LOG.nodes]
    found = [each for start in range(0, len(LOG), size) for each in together.hear_all(LOG.nodes[start : start + size])]
    assert [(each.number, each.answered, each.also, each.conversation) for each in found] == [
        (each.number, each.answered, each.also, each.conversation) for each in expected
    ]
    np.testing.assert_allclose([each.probability for each in found], [each.probability for each in expected], atol=1e-5)
    assert together.hear_all([]) == []


def test_a_model_that_reads_its_own_decisions_answers_each_before_it_hears_the_next() -> None:
    live = Live(structured_with_several_answers())
    for number, heard in enumerate(live.hear_each(LOG.nodes[:20])):
        assert heard.number == number == max(live._kept)


def test_what_a_message_is_said_to_answer_does_not_hang_on_later_ones() -> None:
    task = feature_model()
    early = [Disentangler(task).disentangle(Tree(LOG.nodes[:size])).tree.nodes[-1].parents for size in range(1, 40)]
    assert early == [node.parents for node in Disentangler(task).disentangle(LOG).tree.nodes[:39]]


def test_memory_does_not_grow_with_the_log() -> None:
    live = Live(feature_model())
    sizes = []
    for number in range(400):
        live.hear(LOG.nodes[number % len(LOG)])
        sizes.append(len(live._kept))
    assert max(sizes[100:]) == max(sizes[300:]) < 60


@pytest.mark.ill_typed
@pytest.mark.parametrize("heard", ["", "hi", {"text": "hi"}])
def test_what_is_no_message_is_not_heard(heard) -> None:
    live = Live(feature_model())
    with pytest.raises(TypeError, match=r"a message is a ramify\.Node\(text, author=…, time=…\), not (str|dict)\."):
        live.hear_all(each for each in [Node("a", None), heard])
    assert live.hear(Node("b", None)).number == 0


def test_a_model_that_looks_ahead_cannot_listen() -> None:
    with pytest.raises(RamifyError, match=r"input\.causal"):
        Live(feature_model(causal=False))


def test_the_first_message_starts_a_conversation() -> None:
    assert Live(feature_model()).hear(Node("hi", None)) == Heard(0, 0, 1.0, 0)

"""A task that starts from a saved one: the tensors that begin anew, those that may be missing or left over, and all others."""

import pytest
import torch

from fixtures import bert_task, tree_task, words_task
from fixtures.nested import batch_of, books, losses
from fixtures.nested import task as nested_task
from fixtures.streams import pieces, xlnet
from ramify.batching.views.streams import StreamInput
from ramify.disentangle.config import ChatInput, LinkConfig
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.hub import own_tensors, start_from
from ramify.tasks.base import belongs
from ramify.tasks.denoising_lm import DenoisingLM, DenoisingLMConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig

INPUT = StreamInput(segments="pair")


def plain():
    return tree_task(output_attention=True)


def permutation(**config):
    return PermutationLM(xlnet(), pieces(), INPUT, PermutationLMConfig(**config))


def denoising():
    return DenoisingLM(xlnet(), pieces(), INPUT, DenoisingLMConfig())


def agent(**config):
    own = nested_task(queue=4, **config)
    losses(own.train(), own.draw(batch_of(own, books(3)), 1))
    return own


def links(**config):
    words = learn_vocabulary([["a"]], min_count=1)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=words.vocab_size, dim=0, hidden=8))
    return ReplyLinking(backbone, words, ChatInput(), LinkConfig(**config))


def free(task):
    return (*task.fresh, *task.optional, *(f"backbone.{name}" for name in task.backbone.optional))


STARTS = {
    "words from plain": (plain, words_task),
    "plain from words": (words_task, plain),
    "next sentences from none": (
        lambda: bert_task(pooling="pooler"),
        lambda: bert_task(pooling="pooler", task={"next_sentence": 1.0}),
    ),
    "segments from none": (permutation, lambda: permutation(next_segment=1.0)),
    "none from segments": (lambda: permutation(next_segment=1.0), permutation),
    "masks from segments": (lambda: permutation(next_segment=1.0), denoising),
    "agent": (agent, agent),
    "options of agent from none": (agent, lambda: agent(model={"token_skip": True, "compressor_skip": "gelu"})),
    "links from fitted": (lambda: links(num_candidates=4, reranker_dim=8), links),
}


@pytest.mark.parametrize("name", STARTS)
def test_declared_tensors_alone_begin_anew(name):
    make_saved, make = STARTS[name]
    saved, task = own_tensors(make_saved()), make()
    saved = {key: tensor + 1 for key, tensor in saved.items()}
    if name != "agent":
        # Optional or fitted parts differ between the two tasks.
        assert saved.keys() != own_tensors(task).keys()
    before = {key: tensor.clone() for key, tensor in own_tensors(task).items()}
    start_from(task, saved, "here")
    for key, tensor in own_tensors(task).items():
        anew = belongs(key, task.fresh) or key not in saved
        assert torch.equal(tensor, before[key] if anew else saved[key]), key
        assert not anew or belongs(key, free(task))


def test_queues_begin_anew():
    saved, task = agent(), nested_task(queue=4)
    assert len(saved.queue(1)) == 4
    start_from(task, own_tensors(saved), "here")
    assert len(task.queue(1)) == 0
    # Another size of the queue is no obstacle.
    start_from(nested_task(queue=7), own_tensors(saved), "here")


@pytest.mark.parametrize("name", STARTS)
def test_all_other_tensors_must_fit(name):
    make_saved, make = STARTS[name]
    saved = own_tensors(make_saved())
    needed = next(key for key in saved if not belongs(key, free(make())))
    with pytest.raises(RamifyError, match=f"here does not fit this model: missing {needed}"):
        start_from(make(), {key: tensor for key, tensor in saved.items() if key != needed}, "here")
    with pytest.raises(RamifyError, match=r"not expected headlong\.weight"):
        start_from(make(), saved | {"headlong.weight": torch.zeros(1)}, "here")


def test_names_end_at_the_borders_of_modules():
    assert belongs("critic", ("critic",))
    assert belongs("critic.0.weight", ("forger", "critic"))
    assert not belongs("critics.0.weight", ("critic",))
    assert not belongs("critic.0.weight", ())

"""The pipelines of XLNet: likelihoods under orders, generation, masks, vectors, and Hugging Face's form."""

import json
import math

import numpy as np
import pytest
import torch

import ramify
from ramify import Node, RamifyError, Tree, hub
from ramify.batching.views.streams import StreamInput
from ramify.inference.permutation import DenoisingPipeline, PermutationPipeline
from ramify.models.xlnet import XLNet, XLNetConfig
from ramify.tasks.denoising_lm import DenoisingLM, DenoisingLMConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig
from ramify.tokenizer import Tokenizer

TEXT = "the moon had not risen over the hill"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT] * 30, kind="unigram", vocab_size=60, marks=True)


def backbone(tokenizer, dtype=torch.float64, **settings):
    torch.manual_seed(0)
    sizes = {"vocab_size": tokenizer.vocab_size, "dim": 16, "num_layers": 2, "num_heads": 2, "ffn_dim": 24, "memory": 3}
    model = XLNet(XLNetConfig(**(sizes | settings))).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model


@pytest.fixture(scope="module")
def model(tokenizer):
    config = PermutationLMConfig(k=1)
    pipeline = PermutationPipeline(PermutationLM(backbone(tokenizer), tokenizer, StreamInput(), config).double())
    pipeline.module.eval()
    return pipeline


@pytest.mark.parametrize("memory_start", ["empty", "zeros"])
@pytest.mark.parametrize("prompt", ["", "the moon", TEXT])
def test_cached_generation_is_full_recomputation(tokenizer, prompt, memory_start):
    """Also beyond the model's own memory, of 3 tokens here, and whatever memory training began with."""
    task = PermutationLM(backbone(tokenizer, memory_start=memory_start), tokenizer, StreamInput(), PermutationLMConfig(k=1))
    model = PermutationPipeline(task.double())
    for options in ({"temperature": 0}, {"top_k": 5}, {"top_p": 0.8, "temperature": 0.7}):
        cached, again = (model.generate(prompt, tokens=12, seed=3, cached=cached, **options) for cached in (True, False))
        assert cached == again
        assert cached.tokens == 12
    assert model.generate(prompt, tokens=12, seed=4) != model.generate(prompt, tokens=12, seed=5)


def test_generation_follows_the_forward_likelihood(model, tokenizer):
    """The likeliest next token is that which makes the forward likelihood of the longer text greatest."""
    given = tokenizer.encode("the moon had")
    words = [token for token in range(tokenizer.vocab_size) if token not in tokenizer.special_ids]
    forward = np.arange(len(given) + 1)[None]
    likelihoods = [model.log_likelihoods(np.array([*given, word]), forward)[0] for word in words]
    best = tokenizer.decode([*given, words[int(np.argmax(likelihoods))]])
    assert "the moon had" + model.generate("the moon had", tokens=1, temperature=0).text == best


def test_scores(model):
    forward = model.score(TEXT)
    assert (forward.order, forward.bytes) == ("forward", len(TEXT))
    many = model.score(TEXT, order="random:5", seed=1)
    assert many.log_likelihood == many.orders[0]
    assert many.mean == pytest.approx(sum(many.orders) / 5)
    assert many.log_mean_exp == pytest.approx(math.log(sum(map(math.exp, many.orders)) / 5))
    assert many.mean <= many.log_mean_exp
    assert len({forward.log_likelihood, model.score(TEXT, order="backward").log_likelihood, *many.orders}) == 7
    assert model.score(TEXT, order="random:5", seed=1) == many != model.score(TEXT, order="random:5", seed=2)


def test_probabilities_of_chosen_places_under_an_order(model, tokenizer):
    """Places with one number do not read each other, so they are masked words; a chain adds up to the likelihood."""
    ids = np.array([tokenizer.encode(TEXT)])
    places, order = np.array([[1, 2, 5]]), np.zeros_like(ids)
    order[0, places] = 1
    masked = ids.copy()
    masked[0, places] = tokenizer.mask_id
    alone = model.log_probabilities(masked.tolist(), places.tolist())[0].double().numpy()
    found = model.ordered_log_probabilities(ids, order, places)[0]
    np.testing.assert_allclose(found, alone[np.arange(3), ids[0, places[0]]], rtol=0, atol=1e-6)
    order[0, places] = [1, 2, 3]
    chained = model.ordered_log_probabilities(ids, order, places)[0]
    assert chained[0] == pytest.approx(found[0], abs=1e-10)
    assert abs(chained[1:] - found[1:]).min() > 1e-6
    ranks = np.random.default_rng(0).permutation(ids.shape[1])[None]
    every = np.arange(ids.shape[1])[None]
    total = model.ordered_log_probabilities(ids, ranks, every).sum()
    assert total == pytest.approx(model.log_likelihoods(ids[0], ranks)[0], abs=1e-10)


def test_order_that_is_no_permutation_is_refused(model, tokenizer):
    ids = np.array(tokenizer.encode(TEXT))
    with pytest.raises(RamifyError, match=rf"{len(ids)} tokens must hold each number from 0 to {len(ids) - 1} once"):
        model.log_likelihoods(ids, np.zeros((1, len(ids)), dtype=np.int64))
    for order, message in (("random:0", "at least 1"), ("sideways", "forward, backward, or random:N")):
        with pytest.raises(RamifyError, match=message):
            model.score(TEXT, order=order)
    with pytest.raises(RamifyError, match="no tokens"):
        model.score("")
    for options in ({"tokens": 0}, {"temperature": -1}, {"top_k": 0}, {"top_p": 0.0}):
        with pytest.raises(RamifyError, match=next(iter(options))):
            model.generate("the", **({"tokens": 1} | options))


def test_masks_do_not_see_each_other_or_themselves(model, tokenizer):
    """Two masks: each is predicted from the words alone, and the same whatever stands behind the other mask."""
    mask = tokenizer.token(tokenizer.mask_id)
    filled = model.fill_mask(f"the {mask} had {mask} risen", top_k=3)
    assert len(filled.masks) == 2
    assert filled.context == "none"
    ids = np.array(tokenizer.encode(f"the {mask} had {mask} risen", masks=True))
    places = np.flatnonzero(ids == tokenizer.mask_id)
    # The same by a likelihood: the order is all words, then the mask.
    alone = model.log_probabilities([ids.tolist()], [places[:1].tolist()])[0, 0]
    both = model.log_probabilities([ids.tolist()], [places.tolist()])[0, 0]
    torch.testing.assert_close(alone, both)
    with pytest.raises(RamifyError, match="reads a text alone"):
        model.fill_mask(f"the {mask}", context="tree")


def test_vectors_do_not_depend_on_other_texts(model):
    tree = Tree([Node("the moon"), Node("", parents=(0,)), Node(TEXT, parents=(0,))])
    vectors = model.embed([tree, "the hill"])
    assert vectors.shape == (4, 16)
    assert not vectors[1].any()
    np.testing.assert_allclose(vectors[3], model.embed("the hill")[0], atol=1e-6)
    with pytest.raises(RamifyError, match="embeds texts alone"):
        model.embed(tree, context="tree")


def test_denoising_model_fills_and_embeds_only(tokenizer):
    task = DenoisingLM(backbone(tokenizer, torch.float32), tokenizer, StreamInput(), DenoisingLMConfig())
    model = DenoisingPipeline(task)
    mask = tokenizer.token(tokenizer.mask_id)
    assert len(model.fill_mask(f"the {mask} had", top_k=2).masks[0].tokens) == 2
    assert model.embed(TEXT).shape == (1, 16)
    with pytest.raises(RamifyError, match="no score"):
        model.score(TEXT)


def test_saved_and_in_hugging_face_form(model, tokenizer, tmp_path):
    single = PermutationPipeline(PermutationLM(backbone(tokenizer, torch.float32), tokenizer, StreamInput(), model.task.config))
    with torch.no_grad():
        single.task.head.bias.normal_()
    score = single.score(TEXT)
    hub.save(single, tmp_path / "own")
    assert ramify.load(tmp_path / "own").score(TEXT) == score
    hub.export_hugging_face(single, tmp_path / "theirs")
    again = ramify.load(tmp_path / "theirs")
    assert again.score(TEXT).log_likelihood == pytest.approx(score.log_likelihood, abs=1e-4)
    assert again.input.reused_tokens == single.input.reused_tokens == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "gpt2"),
        ({"attn_type": "uni"}, "attn_type='uni' is not supported"),
        ({"d_model": "16"}, "d_model must be whole numbers"),
        ({"n_layer": 3}, "theirs holds no tensor 'transformer.layer.2"),
        ({"n_layer": 1}, "theirs also holds 'transformer.layer.1"),
        ({"vocab_size": 30}, "vocab_size is 30|word_embedding|embedding.weight"),
    ],
)
def test_other_checkpoints_are_refused(tokenizer, tmp_path, changes, message):
    single = PermutationPipeline(
        PermutationLM(backbone(tokenizer, torch.float32), tokenizer, StreamInput(), PermutationLMConfig())
    )
    hub.export_hugging_face(single, tmp_path / "theirs")
    file = tmp_path / "theirs" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(RamifyError, match=message):
        ramify.load(tmp_path / "theirs")


def test_pickled_weights_are_refused(tokenizer, tmp_path):
    single = PermutationPipeline(
        PermutationLM(backbone(tokenizer, torch.float32), tokenizer, StreamInput(), PermutationLMConfig())
    )
    hub.export_hugging_face(single, tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").rename(tmp_path / "theirs" / "pytorch_model.bin")
    with pytest.raises(RamifyError, match="Pickled weights are never read"):
        ramify.load(tmp_path / "theirs")

"""The pipelines of XLNet: likelihoods under orders, generation, masks, vectors, and Hugging Face's form."""

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

import ramify
from fixtures import bare_rows
from ramify import Node, RamifyError, Tree, hub
from ramify.batching.stream_batch import StreamTargets, plain_rows
from ramify.batching.views.streams import StreamInput
from ramify.inference.permutation import DenoisingPipeline, PermutationPipeline
from ramify.inference.search import Beam, Limits, Sampling, beam_search, collect, sample
from ramify.models.xlnet import XLNet, XLNetConfig
from ramify.nn.cache import Cache
from ramify.tasks.base import Decodes
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


class Recomputing(Decodes):
    """Reads the whole text again at each step, in a row of the training batch."""

    @dataclass
    class Texts(Cache):
        texts: list[list[int]]

        @property
        def lengths(self):
            return torch.tensor([len(text) for text in self.texts])

        def reorder(self, index):
            return Recomputing.Texts([[*self.texts[row]] for row in index.tolist()])

    def __init__(self, task):
        self.task = task

    def start(self, prompts, *, source=None):
        texts = [part.tolist() for part in prompts.ids.split(prompts.rows.lengths.tolist())]
        return self.scores(texts), Recomputing.Texts(texts)

    def step(self, ids, cache):
        texts = [[*text, token] for text, token in zip(cache.texts, ids.tolist(), strict=True)]
        return self.scores(texts), Recomputing.Texts(texts)

    def scores(self, texts):
        found = []
        for text in texts:
            # Nobody reads the row's last token, which stands for the next one.
            row = np.array([[*text, 0]])
            batch = plain_rows(row, np.arange(row.shape[1])[None])
            batch = replace(batch, targets=StreamTargets.at(np.array([[len(text)]]), batch.input_ids))
            found.append(self.task.head(self.task.backbone(batch, targets_only=True).queries[0]))
        return torch.cat(found)


KINDS = [{}, {"memory_start": "zeros"}, {"max_distance": 3}, {"position": "absolute"}, {"untie_biases": False}]
PROMPTS = ["the moon", "", TEXT]


def decoder(tokenizer, dtype=torch.float64, **settings):
    """A model whose likeliest tokens change from place to place."""
    task = PermutationLM(
        backbone(tokenizer, dtype, **settings), tokenizer, StreamInput(), PermutationLMConfig(tie_weights=False)
    )
    torch.nn.init.normal_(task.head.weight, std=2.0)
    with torch.no_grad():
        task.backbone.mask_embedding.zero_()
    return task.to(dtype).eval()


@pytest.mark.parametrize("settings", KINDS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=str)
@torch.no_grad()
def test_cached_scores_are_recomputed_ones(tokenizer, settings, dtype, tolerance):
    """Also those of unequal and empty prompts, repeated beams, and after other sequences have left."""
    task = decoder(tokenizer, dtype, **settings)
    random, again = np.random.default_rng(0), Recomputing(task)
    prompts = bare_rows([random.integers(tokenizer.vocab_size, size=size).tolist() for size in (5, 0, 30, 1, 12)])
    (scores, cache), (expected, texts) = task.start(prompts), again.start(prompts)
    torch.testing.assert_close(scores, expected, rtol=0, atol=tolerance)
    for index in (None, None, [0, 0, 4, 2, 1, 1], None, [1, 0, 5], *[None] * 12, [2, 2], None, []):
        if index is not None:
            cache, texts = (each.reorder(np.array(index, dtype=np.int64)) for each in (cache, texts))
            if not index:
                break
        ids = torch.from_numpy(random.integers(tokenizer.vocab_size, size=len(cache.lengths)))
        (scores, cache), (expected, texts) = task.step(ids, cache), again.step(ids, texts)
        torch.testing.assert_close(scores, expected, rtol=0, atol=tolerance)
        assert cache.lengths.tolist() == texts.lengths.tolist()
    assert not len(cache.lengths)


def test_cached_generation_is_full_recomputation(tokenizer):
    """Also beyond the model's own memory, of 3 tokens here; and every text of a batch is that of the prompt alone."""
    task = decoder(tokenizer)
    model = PermutationPipeline(task)
    limits = Limits(forbidden=tuple(tokenizer.special_ids))
    for options in ({"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.8, "temperature": 0.7}):
        found = model.generate(PROMPTS, tokens=8, seed=3, **options)
        assert found == [model.generate(prompt, tokens=8, seed=3, **options) for prompt in PROMPTS]
        prompts = bare_rows([tokenizer.encode(prompt) for prompt in PROMPTS])
        steps = sample(Recomputing(task), prompts, Sampling(**options), limits, maximums=[8] * 3, seeds=[3] * 3)
        texts = [tokenizer.encode(prompt) + ids for prompt, ids in zip(PROMPTS, collect(steps, 3), strict=True)]
        assert [answer.prompt + answer.text for answer in found] == [tokenizer.decode(ids) for ids in texts]
        assert {answer.tokens for answer in found} == {8}
    found = model.generate(PROMPTS, tokens=4, beam=3, n_best=2)
    for prompt, answer in zip(PROMPTS, found, strict=True):
        (expected,) = beam_search(Recomputing(task), bare_rows([tokenizer.encode(prompt)]), Beam(3, 2), limits, maximums=[4])
        assert [each.tokens for each in answer.hypotheses] == [len(each.ids) for each in expected]
        scores = [each.log_probability for each in answer.hypotheses]
        assert scores == pytest.approx([each.log_probability for each in expected], abs=1e-10)
        assert model.generate(prompt, tokens=4, beam=3, n_best=2).text == answer.text


def test_read_tokens_and_distances_are_projected_once(tokenizer):
    task = decoder(tokenizer)
    rows = {name: [] for name in ("key_value", "distance")}
    for layer in task.backbone.layers:
        for name, counted in rows.items():
            getattr(layer.attention, name).register_forward_pre_hook(lambda _, given, to=counted: to.append(len(given[0])))
    PermutationPipeline(task).generate(PROMPTS[:1], tokens=200, temperature=0.0)
    layers, read = len(task.backbone.layers), len(tokenizer.encode(PROMPTS[0])) + 199
    assert sum(rows["key_value"]) == layers * read
    # A table of distances has room for half as many again, and grows a few times.
    assert layers * (read + 1) <= sum(rows["distance"]) <= layers * (1.5 * read + 17)
    assert len(rows["distance"]) <= layers * 8


def test_generation_with_stops_seeds_and_lists(model, tokenizer):
    assert model.generate("the moon", tokens=12, seed=4) != model.generate("the moon", tokens=12, seed=5)
    two = model.generate(["the moon", "the moon"], tokens=12, seed=[4, 5])
    assert two == [model.generate("the moon", tokens=12, seed=seed) for seed in (4, 5)]
    assert model.generate([], tokens=12) == []
    free = model.generate("the moon", tokens=30, seed=4)
    ids = tokenizer.encode("the moon")
    following = tokenizer.encode("the moon" + free.text)[len(ids) :]
    stop = tokenizer.token(following[3])
    short = model.generate("the moon", tokens=30, seed=4, stop=stop)
    assert short.tokens == following.index(following[3])
    assert free.text.startswith(short.text)
    # A special token stops, too, and is chosen then.
    end = tokenizer.token(tokenizer.eod_id)
    assert any(model.generate("the", tokens=60, seed=seed, stop=end).tokens < 60 for seed in range(9))
    found = model.generate("the moon", tokens=3, beam=2, n_best=2, length_penalty=0.0)
    assert [each.score for each in found.hypotheses] == [each.log_probability for each in found.hypotheses]
    for options, message in (
        ({"stop": "no piece"}, "stop='no piece'"),
        ({"beam": 2, "top_k": 3}, "draws no tokens"),
        ({"n_best": 2}, "needs a beam search"),
        ({"beam": 2, "n_best": 3}, "n_best=3"),
        ({"seed": [1, 2]}, "one seed for each of 1 prompt"),
    ):
        with pytest.raises(RamifyError, match=message):
            model.generate("the", tokens=2, **options)
    with pytest.raises(RamifyError, match="source needs an encoder-decoder"):
        model.task.start(bare_rows([[1]]), source=bare_rows([[1]]))


@pytest.mark.ill_typed
def test_generation_takes_strings_and_columns_of_them(model):
    frame = pd.DataFrame({"author": ["a", "b"], "text": ["the moon", "the hill"]})
    alike = model.generate(["the moon", "the hill"], tokens=2, seed=3)
    assert model.generate(frame["text"], tokens=2, seed=3) == alike
    # A seed may come from NumPy.
    assert model.generate(["the moon", "the hill"], tokens=2, seed=np.int64(3)) == alike
    for data, message in (
        (frame, "generate got a DataFrame with the columns author, text"),
        (Tree((Node("the moon"),)), "generate continues strings, not a Tree"),
        ([3], "generate takes .*strings, not int"),
    ):
        with pytest.raises(RamifyError, match=message):
            model.generate(data)


def test_sampled_text_is_shown_in_parts(model, tokenizer):
    stop = tokenizer.token(tokenizer.encode("the moon" + model.generate("the moon", tokens=9, seed=4).text)[-2])
    for options in ({"temperature": 0}, {"seed": 4}, {"seed": 4, "stop": stop}):
        parts: list[str] = []
        answer = model.generate("the moon", tokens=30, show=parts.append, **options)
        assert "".join(parts) == answer.text
        assert answer == model.generate("the moon", tokens=30, **options)
        assert len(parts) == answer.tokens
    silent: list[str] = []
    assert model.generate("the moon", tokens=4, beam=2, show=silent.append).text
    assert not silent
    with pytest.raises(RamifyError, match=r"show=.* shows one text, but a list of prompts is given"):
        model.generate(["the moon"], tokens=2, show=silent.append)


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
    for options in (
        {"tokens": 0},
        *({"temperature": value} for value in (-1, math.nan, math.inf)),
        {"top_k": 0},
        *({"top_p": value} for value in (0.0, 1.1, math.nan)),
        *({"seed": value} for value in (-1, 2**63)),
    ):
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
    tree = Tree((Node("the moon"), Node("", parents=(0,)), Node(TEXT, parents=(0,))))
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
        ({"model_type": "gptj"}, "gptj"),
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


def test_vectors_come_in_the_order_of_the_data(model):
    """However long the texts of a batch are."""
    words = TEXT.split()
    forest = model.forest([Tree((Node(" ".join(words[: number * 5 % 8])),)) for number in range(20)])
    batches = [nodes for nodes, _ in model.embed_batches(forest, tokens=30)]
    assert len(batches) > 3
    assert np.concatenate(batches).tolist() == list(range(20))

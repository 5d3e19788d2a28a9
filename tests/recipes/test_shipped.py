"""Packing the demo's checkpoint: half precision, BERT's masks, and a card with the packed model's own numbers."""

import json

import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures import built, discussions
from ramify.inference import held_out
from ramify.inference.evaluation import Tally, gain, tally
from ramify.inference.held_out import ancestor_words, cache_losses, cache_weights, measure
from ramify.recipes.shipped import pack, shipped
from ramify.runs import execute
from ramify.training.metrics_log import read_metrics


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shipped")
    store = built(discussions(30, 8), folder / "data", split=(0.4, 0.3, 0.3))
    sizes = {"model.dim": "16", "model.num_heads": "2", "model.ffn_dim": "32", "tokenizer.vocab_size": "200"}
    few = {"train.target_tokens": "0", "train.steps": "2"}
    execute(shipped(str(store.path)).changed(sizes | few), folder / "run", cpu=True)
    pack(folder / "run", store.path, folder / "packed")
    return store, folder / "packed"


def test_weights_are_in_half_precision(packed):
    assert {tensor.dtype for tensor in load_file(packed[1] / "model.safetensors").values()} == {torch.float16}


def test_masks_follow_bert(packed):
    assert json.loads((packed[1] / "config.json").read_text())["task"]["mask_rate"] == 0.15


def test_card_gives_the_results_of_the_packed_model(packed):
    store, folder = packed
    card = (folder / "README.md").read_text("utf-8")
    task = ramify.load(folder).task
    caches = cache_weights(task, store, ("tree", "none"))
    measured = measure(task, store, "test", draws=8, controls=("mismatched",), caches=caches)
    for scores in (*measured.scores.values(), *measured.cached.values()):
        assert f"{scores.summary()['loss']:.4f}" in card
    for other in ("none", "mismatched"):
        saved = gain(measured.scores["tree"], measured.scores[other])["all"]
        assert f"{saved.value:+.4f} (95 % interval over trees {saved.low:+.4f} to {saved.high:+.4f})" in card


def test_card_states_licence_sources_and_commands(packed):
    card = (packed[1] / "README.md").read_text("utf-8")
    assert "\nlicense: cc-by-sa-4.0\n" in card.split("---")[1]
    assert "Stack Exchange" in card
    assert "ramify data build" in card
    assert "ramify train shipped" in card


def test_card_tells_how_much_the_run_read(packed):
    store, folder = packed
    card = " ".join((folder / "README.md").read_text("utf-8").split())
    tokenizer = ramify.load(folder).tokenizer
    comments = [node for number in store.split("train") for node in store.tree(int(number)).nodes[1:]]
    # With the tokens before and after.
    lengths = [2 + len(tokenizer.encode(comment.text)) for comment in comments]
    assert max(lengths) < 256
    seen = read_metrics(folder.parent / "run")[-1]["target_tokens"]
    assert f"reads the first 256 of each text, {seen / sum(lengths):.1f} times over" in card
    assert "{" not in card


def test_cache_is_scored_beside_each_context(packed):
    store, folder = packed
    task = ramify.load(folder, device="cpu").task
    forest = task.input.forest(store, task.tokenizer)
    words, dev = ancestor_words(task, forest), store.split("dev")
    for context, weight in cache_weights(task, store, ("tree", "none")).items():
        losses = cache_losses(task, forest, dev, words=words, context=context)
        assert losses[weight] == min(losses.values())
    assert cache_losses(task, forest, dev, words=words, context="none") != cache_losses(task, forest, dev, words=words)
    measured = measure(task, store, "test", draws=2, caches={"none": 0.5})
    assert measured.cached.keys() == {"none"}
    trees = store.split("test")
    view, collator = held_out.discussions(task, forest, trees, context="none")
    (expected,) = tally(task, view, collator, trees, [Tally(cache=0.5)], draws=2, words=words)
    assert measured.cached["none"].loss.tolist() == expected.loss.tolist()
    assert measured.cached["none"].loss.sum() != measured.scores["none"].loss.sum()

"""Vectors of nodes, with the context above them or from their text alone."""

import numpy as np
import pytest
import torch

from fixtures import W, bert_task, discussion, discussions, forest, tree_task, view_of, whole
from ramify.batching.text_input import BLIND, TextInput
from ramify.errors import CannotError, RamifyError
from ramify.inference import embed
from ramify.inference.embed import Embedder
from ramify.inference.fill_mask import MaskFiller
from ramify.models.hf_sentences import SentenceForm
from ramify.tree import Node, Tree


def one_by_one(task, tree, context):
    """The vector of every node in a batch of its own, unmasked. A model trained without context uses its decoder."""
    alone = context == "none" and task.input.context not in BLIND
    task.input = TextInput(max_tokens=task.input.max_tokens, context=context)
    data = forest([tree], task.input.max_tokens)
    view, collate = view_of(task, data, regime="naive", predict_post=True)
    out = np.zeros((len(tree), 8))
    for number in range(len(view)):
        batch = collate([view.example(number)])
        with torch.no_grad():
            if alone:
                vector = task.backbone.vectors(batch.rows(context=False))
            else:
                vector = task.backbone.vector(task.backbone(batch).encoded(batch))
        out[int(batch.source[0])] = vector[0].numpy()
    return out


@pytest.mark.parametrize("context", ["tree", "none"])
@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "attn"])
def test_vectors_of_a_tree(context, pooling):
    tree = discussion(W, seed=1)
    found = MaskFiller(tree_task(pooling=pooling)).embed(tree, context=context)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, one_by_one(tree_task(pooling=pooling), tree, context), rtol=0, atol=1e-6)


@pytest.mark.parametrize("context", ["tree", "none", "null", "parent"])
@pytest.mark.parametrize("position", ["none", "distance"])
def test_vectors_are_pooled_before_output_attention(context, position):
    """They are those of the same weights without it: a vector is of its own text, not of its ancestors' words."""
    input = TextInput(max_tokens=32, context=context)
    more = tree_task(input=input, context_position=position, output_attention=True)
    paper = tree_task(input=input, context_position=position)
    paper.load_state_dict({name: value for name, value in more.state_dict().items() if "output_attention" not in name})
    trees = [discussion(W, seed=1), *discussions(2, 9)]
    data = forest(trees)
    for each in (None, "tree", "none"):
        np.testing.assert_array_equal(MaskFiller(more).embed(trees, context=each), MaskFiller(paper).embed(trees, context=each))
    batch = whole(more, data)
    moved = (more.backbone(batch).tokens != paper.backbone(batch).tokens).any()
    assert moved == (context != "none")


def test_default_context_is_the_tree():
    tree = discussion(W, seed=1)
    model = MaskFiller(tree_task())
    np.testing.assert_array_equal(model.embed(tree), model.embed(tree, context="tree"))
    assert np.abs(model.embed(tree) - model.embed(tree, context="none")).max() > 1e-3
    changed = Tree((Node("ho hu", id="t.0"), *tree.nodes[1:]), id="t")
    moved = np.abs(model.embed(changed) - model.embed(tree)).max(1) > 1e-9
    assert moved.all()
    alone = np.abs(model.embed(changed, context="none") - model.embed(tree, context="none")).max(1) > 1e-9
    assert alone.tolist() == [True] + [False] * 10


@pytest.mark.parametrize("context", ["tree", "none", "null", "parent", "root", "mismatched", "sibling-branch"])
def test_default_context_is_that_of_training(context):
    tree = discussion(W, seed=1)
    task = tree_task(input=TextInput(max_tokens=32, context=context))
    found = MaskFiller(task).embed(tree)
    expected = one_by_one(task, tree, "tree" if context in ("mismatched", "sibling-branch") else context)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("context", ["none", "null"])
def test_no_context_with_an_untrained_encoder_uses_the_decoder(context):
    """The encoder was never trained to be read, so the decoder represents the text, as in training."""
    tree = discussion(W, seed=1)
    model = MaskFiller(tree_task(input=TextInput(max_tokens=32, context=context)))
    np.testing.assert_array_equal(model.embed(tree, context="none"), model.embed(tree))
    assert np.abs(model.embed(tree) - MaskFiller(tree_task()).embed(tree, context="none")).max() > 1e-3


def test_interrupted_embedding_leaves_the_model_unchanged():
    task = tree_task().train()
    model = MaskFiller(task)
    batches = model.embed_batches(model.forest(discussions(5, 9)), tokens=1)
    next(batches)
    assert not task.training
    batches.close()
    assert task.training


def test_many_trees_are_the_same_in_any_batch():
    trees = discussions(5, 9)
    model = MaskFiller(tree_task())
    together = model.embed(trees)
    assert together.shape == (50, 8)
    np.testing.assert_allclose(together, np.concatenate([model.embed(tree) for tree in trees]), rtol=0, atol=1e-6)
    data = model.forest(trees)
    for tokens in (1, 60):
        out = np.zeros_like(together)
        for nodes, vectors in model.embed_batches(data, tokens=tokens):
            out[nodes] = vectors
        np.testing.assert_allclose(out, together, rtol=0, atol=1e-6)


def test_chained_text_has_the_mean_of_its_parts():
    tree = discussion([-1, 0], lengths=[3, 20])
    model = MaskFiller(tree_task(input=TextInput(max_tokens=10, overflow="chain")))
    for context in ("tree", "none"):
        words = tree.nodes[1].text.split()
        parts = [" ".join(words[start : start + 8]) for start in (0, 8, 16)]
        chained = Tree((tree.nodes[0], *(Node(part, (place,)) for place, part in enumerate(parts))), id="u")
        expected = model.embed(chained, context=context)
        found = model.embed(tree, context=context)
        np.testing.assert_allclose(found, [expected[0], expected[1:].mean(0)], rtol=0, atol=1e-6)


def test_normalized():
    task = bert_task()
    tree = discussion(W)
    plain, normalized = (
        Embedder(task.backbone, task.tokenizer, task.input, SentenceForm("mean", normalize)).embed(tree)
        for normalize in (False, True)
    )
    np.testing.assert_allclose(normalized, plain / np.linalg.norm(plain, axis=1, keepdims=True), rtol=0, atol=1e-6)


def test_bert_reads_only_the_text():
    tree = discussion(W, seed=1)
    task = bert_task()
    batch = whole(task, forest([tree]), predict_post=True)
    with torch.no_grad():
        expected = task.backbone.vector(task.backbone(batch).encoded(batch))[np.argsort(batch.source)].numpy()
    for context in (None, "none"):
        np.testing.assert_allclose(MaskFiller(task).embed(tree, context=context), expected, rtol=0, atol=1e-6)
    with pytest.raises(RamifyError, match="embeds texts alone"):
        MaskFiller(task).embed(tree, context="tree")


def test_embedding_leaves_the_model_unchanged():
    task = tree_task(dropout=0.5).train()
    tree = discussion(W)
    model = MaskFiller(task)
    assert np.array_equal(model.embed(tree), model.embed(tree))
    assert task.training


def test_supported_verbs_are_listed():
    model = MaskFiller(tree_task())
    assert model.verbs == ("embed", "fill_mask", "score", "attention", "nearest")
    for name in ("disentangle", "generate"):
        with pytest.raises(CannotError, match=f"this MaskFiller has no {name}; it can embed, fill_mask, score"):
            getattr(model, name)
        assert not hasattr(model, name)


def test_strings_are_trees_of_one_node():
    model = MaskFiller(tree_task())
    alone = [Tree((Node(text),)) for text in ("aa ab", "be")]
    assert np.array_equal(model.embed(["aa ab", "be"]), model.embed(alone))
    assert np.array_equal(model.embed("be"), model.embed(alone[1]))
    assert model.embed([]).shape == (0, model.backbone.config.dim)


@pytest.mark.ill_typed
def test_values_other_than_texts_are_refused():
    with pytest.raises(RamifyError, match="trees and strings, not int"):
        MaskFiller(tree_task()).embed([0])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("context", ["mismatched", "sibling-branch", "parent"])
def test_contexts_that_need_other_comments_are_refused(context):
    with pytest.raises(RamifyError, match=f"context={context} is not a context of embed"):
        MaskFiller(tree_task()).embed(discussion(W), context=context)


def test_vectors_do_not_depend_on_the_batch_size(monkeypatch):
    """The number of nodes per batch changes no vector."""
    model, trees = MaskFiller(tree_task()), discussions(6, 9)
    whole = model.embed(trees)
    monkeypatch.setattr(embed, "NODES", 5)
    assert np.allclose(model.embed(trees), whole, atol=1e-12)

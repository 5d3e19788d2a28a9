"""Held-out loss: equal masks for every model and batch, sums by tree and depth, paired gains."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures import bert_task, chain, discussion, discussions, forest, tokenizer, tree_task, uniform, view_of
from ramify.batching.forest import node_seeds
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import has_other_branch
from ramify.errors import RamifyError
from ramify.inference.evaluation import (
    BINS,
    Scores,
    Tally,
    context_spread,
    describe,
    evaluate,
    gain,
    tally,
    with_cache,
)
from ramify.inference.word_classes import WORD_CLASSES, AncestorWords
from ramify.metrics import DEPTH_BINS, depth_bin
from ramify.nn import counter_rng

COMMON_HERE = 15
"""Number of function words among the fixtures' 56 words."""


@pytest.fixture(scope="module")
def data():
    return forest([*discussions(3, 15), discussion(chain(25), seed=9, name="deep")])


def words_of(data, limit=32, common=COMMON_HERE, **input):
    return AncestorWords.of(data, TextInput(max_tokens=limit, **input), tokenizer().vocab_size, common)


def scores(task, data, *, trees=None, **options):
    trees = np.arange(data.num_trees) if trees is None else trees
    view, collate = view_of(task, data, trees, regime="tree")
    return evaluate(task, view, collate, trees, **options)


def test_sums_by_tree_and_depth(data):
    """The reference takes one comment at a time, masked by the hash of its id and the number of the draw."""
    task = tree_task()
    found = scores(task, data, draws=2)
    loss, correct, count = (np.zeros((4, BINS)) for _ in range(3))
    view, collate = view_of(task, data, regime="naive")
    for number in range(len(view)):
        batch = collate([view.example(number)])
        (node,) = batch.source.tolist()
        cell = int(data.tree_of(np.array([node]))[0]), int(depth_bin(data.depth[[node]])[0])
        for draw in range(2):
            seeds = counter_rng.random_bits(torch.from_numpy(node_seeds(data.store, [node])), draw)
            batch_masked = task.mask(batch, seeds)
            with torch.no_grad():
                logits = task.head(task.backbone(batch_masked).tokens)
            loss[cell] += float(F.cross_entropy(logits, batch_masked.labels, reduction="sum"))
            correct[cell] += int((logits.argmax(-1) == batch_masked.labels).sum())
            count[cell] += len(batch_masked.labels)
    assert found.trees == data.store.tree_ids(range(4))
    assert found.classes == ("all",)
    np.testing.assert_allclose(found.loss[..., 0], loss, rtol=0, atol=1e-4)
    assert found.correct[..., 0].tolist() == correct.tolist()
    assert found.count[..., 0].tolist() == count.tolist()
    # The chain reaches every bin.
    assert (found.count[3] > 0).all()


def test_context_spread_is_the_relative_variance_of_vectors(data):
    task = tree_task()
    view, collate = view_of(task, data, regime="tree")
    batch = collate([view.example(number) for number in range(len(view))])
    with torch.no_grad():
        vectors = task.backbone.vectors(batch.node_context().texts).numpy()
    expected = vectors.var(0).sum() / (vectors**2).sum(1).mean()
    assert 0.01 < expected < 1
    assert context_spread(task, view, collate) == pytest.approx(expected, abs=1e-12)
    # An encoder whose last LayerNorm returns only its bias gives all texts the same vector.
    with torch.no_grad():
        task.backbone.encoder.layers[-1].ffn_norm.weight.zero_()
    assert context_spread(task, view, collate) == pytest.approx(0, abs=1e-12)


def test_context_spread_without_a_node_encoder(data):
    task = bert_task()
    assert context_spread(task, *view_of(task, data, regime="tree")) is None
    lone = forest([discussion([-1, 0], lengths=[3, 3])])
    assert context_spread(tree_task(), *view_of(tree_task(), lone, regime="tree")) is None


def test_summary(data):
    found = scores(tree_task(), data, draws=1, words=words_of(data))
    summary = found.summary()
    assert summary["count"] == found.count.sum()
    assert summary["loss"] == pytest.approx(found.loss.sum() / found.count.sum())
    assert summary["perplexity"] == pytest.approx(np.exp(summary["loss"]))
    assert summary["accuracy"] == pytest.approx(found.correct.sum() / found.count.sum())
    assert list(summary["by_depth"]) == list(DEPTH_BINS)
    for place, row in enumerate(summary["by_depth"].values()):
        assert row["count"] == found.count[:, place].sum()
        assert row["loss"] == pytest.approx(found.loss[:, place].sum() / row["count"])
        assert row["accuracy"] == pytest.approx(found.correct[:, place].sum() / row["count"])
    assert tuple(summary["by_class"]) == found.classes == WORD_CLASSES
    for place, row in enumerate(summary["by_class"].values()):
        assert row["count"] == found.count[..., place].sum()
        assert row["share"] == row["count"] / summary["count"]
        assert row["loss"] == pytest.approx(found.loss[..., place].sum() / row["count"])
        assert row["accuracy"] == pytest.approx(found.correct[..., place].sum() / row["count"])


def test_summary_without_classes(data):
    whole, classified = scores(tree_task(), data, draws=1), scores(tree_task(), data, draws=1, words=words_of(data))
    np.testing.assert_allclose(classified.loss.sum(2), whole.loss.sum(2), rtol=1e-12)
    assert classified.correct.sum(2).tolist() == whole.correct.sum(2).tolist()
    assert classified.count.sum(2).tolist() == whole.count.sum(2).tolist()
    assert "by_class" not in whole.summary()


def test_empty_bins_are_left_out():
    own = forest([discussion([-1, 0, 0], lengths=[3, 3, 3])])
    assert list(scores(tree_task(), own).summary()["by_depth"]) == ["1"]


def shown(task, data, monkeypatch, **options):
    """The shown tokens and the labels of every comment, draw by draw."""
    seen = defaultdict(list)
    plain = type(task).mask

    def mask(self, batch, seeds, rate, **options):
        masked = plain(self, batch, seeds, rate, **options)
        rows = torch.split(masked.target_ids, masked.targets.host_lengths.tolist())
        for node, own, ids in zip(masked.source.tolist(), masked.num_maskable.tolist(), rows):
            seen[node].append(ids[len(ids) - 1 - own : -1].tolist())
        return masked

    with monkeypatch.context() as patch:
        patch.setattr(type(task), "mask", mask)
        scores(task, data, draws=3, **options)
    return dict(seen)


def test_masks_are_the_same_for_every_model_and_batch(data, monkeypatch):
    reference = shown(tree_task(), data, monkeypatch)
    assert all(len(draws) == 3 for draws in reference.values())
    long = [draws for node, draws in reference.items() if data.length[node] > 8]
    assert any(draws[0] != draws[1] for draws in long)
    others = [
        tree_task(context_position="depth", pooling="attn"),
        tree_task(input=TextInput(max_tokens=32, context="none")),
        tree_task(input=TextInput(max_tokens=32, context="null")),
        tree_task(input=TextInput(max_tokens=32, context="mismatched")),
        bert_task(),
        bert_task(input=TextInput(max_tokens=32, concatenate=50)),
    ]
    for task in others:
        assert shown(task, data, monkeypatch) == reference
    for tokens in (1, 100):
        assert shown(tree_task(), data, monkeypatch, tokens=tokens) == reference
    turned = forest([discussion(uniform(15, 1), seed=1, name="t1"), discussion(uniform(15, 0), seed=0, name="t0")])
    again = shown(tree_task(), turned, monkeypatch)
    assert again == {node: reference[(node + 16) % 32] for node in range(32) if node % 16}


@pytest.mark.parametrize("make", [tree_task, bert_task])
def test_scores_do_not_depend_on_the_batch(data, make):
    one, other = (scores(make(), data, draws=2, tokens=tokens) for tokens in (10**6, 40))
    np.testing.assert_allclose(one.loss, other.loss, rtol=0, atol=1e-4)
    assert one.correct.tolist() == other.correct.tolist()
    assert one.count.tolist() == other.count.tolist()


def test_mask_rate_overrides_the_rate_of_training(data):
    tasks = [tree_task(task={"mask_rate": rate}) for rate in (0.15, 0.4)]
    own = [scores(task, data, draws=1) for task in tasks]
    assert own[1].count.sum() > 1.5 * own[0].count.sum()
    at_one_rate = scores(tasks[1], data, draws=1, mask_rate=0.15)
    assert np.array_equal(at_one_rate.count, own[0].count)
    assert np.array_equal(at_one_rate.loss, own[0].loss)


def test_chained_texts():
    """All parts of a long text count, at the text's own depth, each with masks of its own."""
    tree = discussion([-1, 0, 1], lengths=[3, 40, 4])
    task = tree_task(input=TextInput(max_tokens=12, overflow="chain"), task={"mask_rate": 1.0})
    own = forest([tree], 12, "chain")
    found = scores(task, own, draws=1)
    assert found.count[0, :, 0].tolist() == [40, 4, 0, 0, 0, 0]


def test_some_trees(data):
    whole, part = scores(tree_task(), data, draws=1), scores(tree_task(), data, trees=np.array([2, 0]), draws=1)
    assert part.trees == [whole.trees[2], whole.trees[0]]
    np.testing.assert_allclose(part.loss, whole.loss[[2, 0]], rtol=0, atol=1e-4)


def test_save_and_load(data, tmp_path):
    found = scores(tree_task(), data, draws=1, words=words_of(data))
    found.save(tmp_path / "deep" / "scores.npz")
    again = Scores.load(tmp_path / "deep" / "scores.npz")
    assert (again.trees, again.classes) == (found.trees, found.classes)
    for name in ("loss", "correct", "count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


def test_paired_gain(data):
    """The gain is the difference of the losses; pairing makes its interval far narrower than those of its parts."""
    task = tree_task()
    better = scores(task, data, draws=2, words=words_of(data))
    random = np.random.default_rng(0)
    # A second model that loses .2 nats at every token, with a little noise.
    worse = replace(better, loss=better.loss + better.count * (0.2 + random.normal(0, 0.01, better.count.shape)))
    found = gain(better, worse)
    assert list(found) == ["all", *DEPTH_BINS, *WORD_CLASSES]
    for names, axis in ((DEPTH_BINS, 1), (WORD_CLASSES, 2)):
        for place, name in enumerate(names):
            saved, count = ((worse.loss - better.loss).take(place, axis), better.count.take(place, axis))
            assert found[name].value == pytest.approx(saved.sum() / count.sum())
            assert found[name].low <= found[name].value <= found[name].high
    assert 0.15 < found["all"].low < found["all"].value < found["all"].high < 0.25
    assert gain(worse, better)["all"].value == pytest.approx(-found["all"].value)
    assert gain(better, better)["all"].value == 0.0
    assert describe(found)["all"] == vars(found["all"])


def test_gain_in_accuracy(data):
    better = scores(tree_task(), data, draws=2)
    worse = replace(better, correct=better.correct - np.minimum(better.correct, 1))
    expected = (better.correct - worse.correct).sum() / better.count.sum()
    assert gain(better, worse, accuracy=True)["all"].value == pytest.approx(expected)


def test_only_equal_masks_are_paired(data):
    one = scores(tree_task(), data, draws=1)
    others = [scores(tree_task(), data, draws=2), scores(tree_task(), data, trees=np.array([0, 1]), draws=1)]
    others.append(scores(tree_task(), data, draws=1, words=words_of(data)))
    for other in others:
        with pytest.raises(RamifyError, match="cannot be paired"):
            gain(one, other)


@pytest.mark.parametrize("make", [tree_task, bert_task])
def test_cache_is_a_mixture_with_the_share_of_the_piece_in_the_ancestors(data, make):
    """Against the formula, comment by comment, in double precision."""
    task = make(task={"mask_rate": 0.4})
    view, collate = view_of(task, data, regime="naive", predict_post=True)
    weights = (0.0, 0.1, 0.5)
    expected = np.zeros((len(weights), data.num_trees))
    for number in range(len(view)):
        batch = collate([view.example(number)])
        (node,) = batch.source.tolist()
        tree, above, up = int(data.tree_of(np.array([node]))[0]), [], node
        while (up := int(data.parent[up])) >= 0:
            above += data.gather(np.array([up]), np.array([min(data.length[up], 30)])).tolist()
        seeds = counter_rng.random_bits(torch.from_numpy(node_seeds(data.store, [node])), 0)
        masked = task.mask(batch, seeds)
        with torch.no_grad():
            p = task.head(task.backbone(masked).tokens).float().softmax(-1).gather(1, masked.labels[:, None])[:, 0].double()
        for place, weight in enumerate(weights):
            share = torch.tensor([above.count(label) / max(1, len(above)) for label in masked.labels.tolist()])
            mixed = (1 - weight) * p + weight * share if above else p
            expected[place, tree] -= float(mixed.log().sum())
    trees = np.arange(data.num_trees)
    view, collate = view_of(task, data, regime="tree", predict_post=True)
    found = tally(task, view, collate, trees, [Tally(cache=weight) for weight in weights], draws=1, words=words_of(data))
    np.testing.assert_allclose([each.loss.sum((1, 2)) for each in found], expected, rtol=0, atol=1e-4)
    plain = evaluate(task, view, collate, trees, draws=1, words=words_of(data))
    assert found[0].loss.tolist() == plain.loss.tolist()
    for each in found:
        assert each.correct.tolist() == plain.correct.tolist()
        assert each.count.tolist() == plain.count.tolist()


def test_cache_formula_in_double_precision():
    random = np.random.default_rng(0)
    p, share = random.random(50), random.random(50)
    share[:10] = 0
    share[10:20] = np.nan
    for weight in (0.01, 0.3):
        expected = np.where(np.isnan(share), p, (1 - weight) * p + weight * share)
        np.testing.assert_allclose(np.exp(-with_cache(-np.log(p), share, weight)), expected, rtol=1e-12)


def test_cache_needs_the_words_of_the_ancestors(data):
    view, collate = view_of(tree_task(), data)
    with pytest.raises(RamifyError, match="a cache needs the ancestors' words"):
        tally(tree_task(), view, collate, np.arange(data.num_trees), [Tally(cache=0.1)])


def test_tally_of_some_targets(data):
    """One pass yields the sums of all targets and of a part."""
    task, trees = tree_task(), np.arange(data.num_trees)
    only = has_other_branch(data, trees)
    view, collate = view_of(task, data)
    whole, part = tally(task, view, collate, trees, [Tally(), Tally(only=only)], draws=1)
    assert whole.loss.tolist() == scores(task, data, draws=1).loss.tolist()
    alone = evaluate(task, *view_of(task, data, only=only), trees, draws=1)
    assert part.count.tolist() == alone.count.tolist()
    assert 0 < part.count.sum() < whole.count.sum()
    np.testing.assert_allclose(part.loss, alone.loss, rtol=0, atol=1e-4)


def test_masks_of_another_task(data):
    """Two models with different rates and splits are scored on the same masks."""
    task = tree_task(task={"mask_rate": 0.3, "mask_split": (1.0, 0.0, 0.0)})
    own = scores(tree_task(), data, draws=1)
    found = scores(task, data, draws=1, masker=tree_task())
    assert found.loss.tolist() == own.loss.tolist()
    assert scores(task, data, draws=1).count.tolist() != own.count.tolist()


def test_evaluation_leaves_the_model_unchanged(data):
    task = tree_task(dropout=0.5).train()
    before = scores(task, data, draws=1)
    assert task.training
    assert scores(task, data, draws=1).loss.tolist() == before.loss.tolist()

"""Masked language modelling on trees, stated as theorems about masks, about each regime's gradient, and about visible nodes."""

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fixtures import (
    NAMES,
    SHAPES,
    UNDIVIDED,
    W,
    bert_task,
    chain,
    discussion,
    discussions,
    distance,
    forest,
    gradient,
    masked,
    masked_units,
    one_graph_over_chunks,
    parent_arrays,
    path_to,
    reddit,
    size,
    star,
    text,
    tokenizer,
    tree_task,
    uniform,
    view_of,
    whole,
    with_text,
    word_losses,
    words_task,
)
from ramify.batching.batch import KEYS_A_TOKEN
from ramify.batching.forest import node_seeds
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.inference.evaluation import evaluate
from ramify.models.base import decode_parts
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig
from ramify.nn import ragged
from ramify.nn.heads import VocabularyHead
from ramify.nn.ragged import runs
from ramify.tasks.base import MAIN
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tree import Node, Tree, multiplicity

EXACT = 1e-10

SIZES = TreeMLMConfig(tokenizer().vocab_size, 8, encoder_layers=1, decoder_layers=1, num_heads=2, ffn_dim=16, max_tokens=32)

# --- masks --------------------------------------------------------------------------------------------------------------------


def wanted_by_target(batch):
    """For every target: the flat places of its labels."""
    counts = batch.output_positions.rows.host_lengths
    return np.split(batch.output_positions.index.numpy(), np.cumsum(counts)[:-1])


@given(lengths=st.lists(st.integers(0, 60), min_size=1, max_size=12), rate=st.sampled_from([0.05, 0.15, 0.5, 1.0]))
@settings(max_examples=40)
def test_number_of_masks(lengths, rate):
    task = tree_task(input=TextInput(max_tokens=48), task={"mask_rate": rate})
    data = forest([discussion(star(len(lengths)), lengths=[3, *lengths])], max_tokens=48)
    batch = masked(task, data, whole(task, data))
    for node, places in zip(batch.source.tolist(), wanted_by_target(batch)):
        # Texts are cut at 48 tokens, CLS and SEP included; the length that the rate applies to counts both.
        own = min(lengths[node - 1], 46)
        assert len(places) == min(max(1, round(rate * (own + 2))), own)


@pytest.mark.parametrize("concatenate", [0, 20])
def test_candidates_are_the_targets_own_words(concatenate):
    input = TextInput(max_tokens=32, concatenate=concatenate)
    task = bert_task(input=input, task={"mask_rate": 1.0}) if concatenate else tree_task(task={"mask_rate": 1.0})
    data = forest(discussions(3, 12))
    clean = whole(task, data)
    batch = masked(task, data, clean)
    ends = np.cumsum(clean.targets.host_lengths)
    asked = 0
    for node, end, places in zip(batch.source.tolist(), ends.tolist(), wanted_by_target(batch)):
        own = data.length[node]
        # With rate 1 all candidates are chosen: the target's own words, which end before the last SEP.
        assert places.tolist() == list(range(end - 1 - own, end - 1))
        asked += own
    words = data.ids[np.concatenate([np.arange(data.start[n], data.start[n] + data.length[n]) for n in batch.source])]
    assert batch.labels.tolist() == words.tolist()
    assert len(batch.labels) == asked > 0


def test_unchosen_tokens_stay_unchanged():
    task = tree_task()
    data = forest(discussions(3, 20))
    clean = whole(task, data)
    batch = masked(task, data, clean)
    others = np.setdiff1d(np.arange(clean.targets.total), batch.output_positions.index.numpy())
    assert torch.equal(batch.target_ids[others], clean.target_ids[others])
    # The clean nodes that serve as context are never touched.
    assert torch.equal(batch.input_ids, clean.input_ids)


def one_long_batch(task, words=30, comments=2000):
    data = forest([discussion(star(comments), lengths=[1] + [words] * comments)], max_tokens=words + 2)
    return masked(task, data, whole(task, data))


def within(count: int, total: int, share: float, deviations: float = 5) -> bool:
    """Whether a binomial count is within this many standard deviations."""
    return abs(count - total * share) <= deviations * (total * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.1), (0.5, 0.3, 0.2), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
def test_shares_of_mask_random_and_unchanged(shares):
    batch = one_long_batch(tree_task(task={"mask_split": shares}))
    shown, answer = batch.target_ids[batch.output_positions.index], batch.labels
    total, vocabulary = len(answer), tokenizer().vocab_size
    assert total == 2000 * round(0.15 * 32)
    to_mask, to_random, to_same = shares
    # A random piece is the mask, or the answer, once in a vocabulary.
    assert within(int((shown == tokenizer().mask_id).sum()), total, to_mask + to_random / vocabulary)
    assert within(int((shown == answer).sum()), total, to_same + to_random / vocabulary)


def test_random_pieces_are_uniform_over_the_vocabulary():
    batch = one_long_batch(tree_task(task={"mask_split": (0.0, 1.0, 0.0)}))
    shown = batch.target_ids[batch.output_positions.index].tolist()
    counts = np.bincount(shown, minlength=tokenizer().vocab_size)
    expected = len(shown) / tokenizer().vocab_size
    assert counts.min() > 0
    # Chi-square with 60 degrees of freedom: above 120 once in a hundred thousand.
    assert ((counts - expected) ** 2 / expected).sum() < 120


def test_random_special():
    batch = one_long_batch(tree_task(task={"mask_split": (0.0, 1.0, 0.0), "random_special": False}))
    counts = np.bincount(batch.target_ids[batch.output_positions.index].tolist(), minlength=tokenizer().vocab_size)
    assert counts[tokenizer().special_ids].sum() == 0
    assert (counts[len(tokenizer().special_ids) :] > 0).all()


def test_positions_are_chosen_equally_often():
    batch = one_long_batch(tree_task())
    places = batch.targets.positions[batch.output_positions.index].numpy()
    counts = np.bincount(places, minlength=32)
    assert counts[0] == counts[31] == 0
    expected = len(places) / 30
    # Without replacement the counts vary less than chi-square with 29 degrees of freedom, which passes 75 once in 10^5.
    assert ((counts[1:31] - expected) ** 2 / expected).sum() < 75


def test_masks_differ_by_seed_and_repeat_with_it():
    task = tree_task()
    clean = whole(task, forest(discussions(2, 30)))
    draws = [task.corrupt(clean, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0].target_ids, draws[1].target_ids)
    assert not torch.equal(draws[0].target_ids, draws[2].target_ids)


def test_masks_do_not_depend_on_the_batch():
    task = tree_task()
    data = forest(discussions(3, 12))
    together = masked(task, data, whole(task, data))
    found = dict(zip(together.source.tolist(), shown_by_target(together)))
    for batch in masked_units(task, data, regime="naive"):
        (own,) = shown_by_target(batch)
        assert own == found[int(batch.source[0])]


def shown_by_target(batch):
    return [ids.tolist() for ids in torch.split(batch.target_ids, batch.targets.host_lengths.tolist())]


def test_nothing_to_mask():
    task = tree_task()
    data = forest([discussion(chain(3), lengths=[2, 0, 4, 0])])
    batch = masked(task, data, whole(task, data))
    by_node = dict(zip(batch.source.tolist(), zip(batch.weight.tolist(), batch.output_positions.rows.host_lengths.tolist())))
    # Comments without words have no weight; the second still serves as context.
    assert by_node == {1: (0.0, 0), 2: (1.0, 1), 3: (0.0, 0)}
    assert 1 in batch.node_source
    assert task.counts(batch, MAIN) == {"masked_lm": 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_rate": 0.0}, "task.mask_rate"),
        ({"mask_rate": 1.5}, "task.mask_rate"),
        ({"mask_split": (0.8, 0.1, 0.2)}, "task.mask_split"),
        pytest.param({"mask_split": (0.8, 0.2)}, "task.mask_split", marks=pytest.mark.ill_typed),
        ({"mask_split": (1.2, -0.1, -0.1)}, "task.mask_split"),
        ({"own_words": -0.1}, r"task\.own_words must be at least 0, but is -0\.1"),
        ({"reply_words": -1.0}, r"task\.reply_words must be at least 0, but is -1\.0"),
        ({"own_words": math.nan}, r"task\.own_words must be of the form number"),
        ({"frequent_word": 0.0}, r"task\.frequent_word must be above 0 and at most 1, but is 0\.0"),
        ({"frequent_word": -3e-4}, r"task\.frequent_word"),
        ({"frequent_word": 1.01}, r"task\.frequent_word"),
        pytest.param({"masking": "rare"}, r"task\.masking must be one of uniform, content", marks=pytest.mark.ill_typed),
    ],
)
def test_refused_options(options, message):
    with pytest.raises(RamifyError, match=message):
        MaskedLMConfig(**options)


def test_texts_are_not_joined_for_a_model_that_reads_vectors():
    with pytest.raises(RamifyError, match=r"input\.concatenate=64 .* TreeMLM reads their vectors"):
        tree_task(input=TextInput(concatenate=64))


@pytest.mark.parametrize("name", ["own_words", "reply_words"])
@pytest.mark.parametrize("context", ["none", "null"])
def test_vectors_that_no_target_reads_are_not_taught(name, context):
    remedy = r"Set task\.own_words=0 and task\.reply_words=0\."
    message = rf'task\.{name}=0\.3 teaches .* with input\.context="{context}" does not read\. {remedy}'
    with pytest.raises(RamifyError, match=message):
        tree_task(input=TextInput(max_tokens=32, context=context), task={name: 0.3})


@pytest.mark.parametrize("name", ["own_words", "reply_words"])
@pytest.mark.parametrize("concatenate", [0, 64])
def test_models_without_vectors_are_not_taught_words(name, concatenate):
    input = TextInput(max_tokens=32, concatenate=concatenate)
    message = rf"task\.{name}=0\.3 teaches the vectors of nodes, but Bert reads none\. Set task\.{name}=0, or"
    with pytest.raises(RamifyError, match=message):
        bert_task(input=input, task={name: 0.3})


# --- schedules ----------------------------------------------------------------------------------------------------------------


def scheduled(**task):
    return words_task(task={"mask_rate": 0.3, "own_words": 0.4, "reply_words": 0.2, **task})


def at_share(task, share):
    """The task when this share of training is done."""
    task.share_done = share
    return task


def test_schedules_change_the_last_third_of_training():
    task = scheduled(mask_rate_schedule="last_third", vector_loss_schedule="last_third")
    factors = {0.0: 1.0, 2 / 3: 1.0, 5 / 6: 0.5, 1.0: 0.0}
    for share, factor in factors.items():
        at_share(task, share)
        assert task.training_mask_rate == pytest.approx(0.15 + 0.15 * factor)
        assert task.vector_loss_weight("own_words") == pytest.approx(0.4 * factor)
        assert task.vector_loss_weight("reply_words") == pytest.approx(0.2 * factor)


def test_constant_schedules_change_nothing():
    task, data = scheduled(), forest(discussions(2, 8))
    batch = whole(task, data)
    start, end = (at_share(task, share).corrupt(batch, torch.Generator().manual_seed(0)) for share in (0.0, 1.0))
    assert torch.equal(start.target_ids, end.target_ids)
    assert task.vector_loss_weight("own_words") == 0.4


def test_scheduled_weights_and_rates_reach_the_losses():
    task, data = scheduled(mask_rate_schedule="last_third", vector_loss_schedule="last_third"), forest(discussions(2, 8))
    batch = whole(task, data)
    before, half, after = (
        at_share(task, share).corrupt(batch, torch.Generator().manual_seed(0)) for share in (0.0, 5 / 6, 1.0)
    )
    lengths = [len(corrupted.labels) for corrupted in (before, half, after)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[1] > lengths[2]
    whole_loss, half_loss, no_loss = (word_losses_at(task, before, share) for share in (0.0, 5 / 6, 1.0))
    for name in ("own_words", "reply_words"):
        assert half_loss[name] == pytest.approx(whole_loss[name] / 2)
        assert no_loss[name] == 0.0


def word_losses_at(task, batch, share):
    divisors = dict.fromkeys(("masked_lm", "own_words", "reply_words"), 1.0)
    at_share(task, share)
    ((losses, _),) = task.losses(batch, divisors, MAIN, None, None)
    return {name: loss.item() for name, loss in losses.items()}


def test_evaluation_masks_at_the_rate_of_the_settings():
    task, data = scheduled(mask_rate_schedule="last_third"), forest(discussions(2, 8))
    batch = whole(task, data)
    seeds = torch.arange(len(batch.targets))
    start, end = (at_share(task, share).mask(batch, seeds) for share in (0.0, 1.0))
    assert torch.equal(start.target_ids, end.target_ids)


# --- the loss -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("comment_loss", ["mean", "token"])
def test_loss_is_the_weighted_sum_over_comments(comment_loss):
    task = tree_task(task={"comment_loss": comment_loss, "mask_rate": 0.5})
    data = forest([discussion(W)])
    batch = masked(task, data, whole(task, data))
    batch = replace(batch, weight=torch.rand(len(batch.weight), dtype=torch.float64) * (batch.weight > 0))
    ((found, state),) = task.losses(batch, {"masked_lm": 7.0}, MAIN, None, None)
    assert state is None
    logits = task.head(task.backbone(batch).tokens)
    expected = 0.0
    start = 0
    for weight, count in zip(batch.weight, batch.output_positions.rows.host_lengths.tolist()):
        own = slice(start, start + count)
        start += count
        if count:
            loss = F.cross_entropy(logits[own], batch.labels[own], reduction="mean" if comment_loss == "mean" else "sum")
            expected += weight * loss
    torch.testing.assert_close(found["masked_lm"], expected / 7.0, rtol=0, atol=EXACT)


# --- content masking ----------------------------------------------------------------------------------------------------------

FIVE = ("aa", "be", "co", "di", "fu")
WEIGHTS = (1.0, 0.5, 0.3, 0.15, 0.05)


def content_task(make=tree_task, **options):
    """A task that masks words in proportion to `WEIGHTS`; words that these do not name weigh one."""
    task = make(task={"masking": "content", **options})
    for word, weight in zip(FIVE, WEIGHTS):
        task.word_weight[tokenizer().ids[word]] = weight
    return task


def choices_of_five(task, comments=3000):
    """For each of many comments with the same five words: the places that are chosen, in ascending order."""
    tree = discussion(star(comments), lengths=[1] + [5] * comments)
    nodes = [node if number == 0 else Node(" ".join(FIVE), node.parents, id=node.id) for number, node in enumerate(tree.nodes)]
    data = forest([Tree(tuple(nodes), id=tree.id)])
    seeds = torch.from_numpy(node_seeds(data.store, data.node[1:]))
    batch = whole(task, data)
    batch = task.mask(batch, seeds[torch.from_numpy(batch.source) - 1], masking=task.config.masking)
    places = (batch.targets.positions[batch.output_positions.index] - 1).tolist()
    ends = np.cumsum(batch.output_positions.rows.host_lengths)
    return [tuple(places[start:end]) for start, end in zip([0, *ends[:-1]], ends)]


@pytest.mark.parametrize("make", [tree_task, bert_task], ids=["tree-mlm", "bert"])
def test_first_choice_is_proportional_to_the_weights(make):
    found = Counter(choices_of_five(content_task(make, mask_rate=0.1)))
    expected = {(place,): 3000 * weight / sum(WEIGHTS) for place, weight in enumerate(WEIGHTS)}
    assert found.keys() == expected.keys()
    # Chi-square with 4 degrees of freedom: above 28.5 once in a hundred thousand.
    assert sum((found[each] - count) ** 2 / count for each, count in expected.items()) < 28.5


def test_content_masking_samples_without_replacement():
    """Pairs of words: the second is drawn in proportion to the weights of those that are left."""
    found = Counter(choices_of_five(content_task(mask_rate=0.3)))
    total, expected = sum(WEIGHTS), Counter()
    for first, second in permutations(range(5), 2):
        pair = (min(first, second), max(first, second))
        expected[pair] += 3000 * WEIGHTS[first] / total * WEIGHTS[second] / (total - WEIGHTS[first])
    assert sum(expected.values()) == pytest.approx(3000)
    assert found.keys() <= expected.keys()
    # Chi-square with 9 degrees of freedom: above 39.4 once in a hundred thousand.
    assert sum((found[each] - count) ** 2 / count for each, count in expected.items()) < 39.4


def test_number_of_masks_does_not_depend_on_their_choice():
    data = forest(discussions(3, 12))
    counts = []
    for masking in ("uniform", "content"):
        task = tree_task(task={"masking": masking, "mask_rate": 0.4})
        batch = task.corrupt(whole(task, data), torch.Generator().manual_seed(0))
        counts.append((batch.source.tolist(), batch.output_positions.rows.host_lengths.tolist()))
        special = torch.tensor([tokenizer().cls_id, tokenizer().sep_id])
        assert not torch.isin(batch.labels, special).any()
    assert counts[0] == counts[1]


def test_words_without_weight_are_chosen_last():
    """An unknown word is a special token, so it weighs nothing; it is chosen if no other word is left."""
    tree = with_text(discussion(star(1)), 1, "unheard-of aa be")
    data = forest([tree])
    unknown = tokenizer().engine.token_to_id("[UNK]")
    length = int(data.length[1])
    for rate, masked_unknown in ((0.1, 0), (1.0, 1)):
        task = tree_task(task={"masking": "content", "mask_rate": rate})
        for seed in range(20):
            batch = task.corrupt(whole(task, data), torch.Generator().manual_seed(seed))
            assert (unknown in batch.labels.tolist()) == bool(masked_unknown)
            assert len(batch.labels) == (length if masked_unknown else 1)


def test_content_masks_repeat_with_their_seed_in_any_batch():
    task = content_task(mask_rate=0.4)
    data = forest(discussions(3, 12))
    clean = whole(task, data)
    draws = [task.corrupt(clean, torch.Generator().manual_seed(seed)).target_ids for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])

    def shown(batch):
        seeds = torch.from_numpy(node_seeds(data.store, data.node[batch.source]))
        return shown_by_target(task.mask(batch, seeds, masking="content"))

    together = dict(zip(clean.source.tolist(), shown(clean)))
    view, collate = view_of(task, data, regime="naive")
    for number in range(len(view)):
        batch = collate([view.example(number)])
        assert shown(batch) == [together[int(batch.source[0])]]


def test_evaluation_masks_uniformly():
    """Two models with the same weights have the same scores, whatever words they were trained on."""
    data = forest(discussions(3, 12))
    uniform, content = tree_task(task={"mask_rate": 0.3}), content_task(mask_rate=0.3)
    content.load_state_dict(uniform.state_dict(), strict=False)
    found = []
    for task in (uniform, content):
        scores = evaluate(task, *view_of(task, data), np.arange(3), draws=2)
        found.append((scores.loss.tolist(), scores.correct.tolist(), scores.count.tolist()))
    assert found[0] == found[1]
    clean = whole(content, data)
    trained = [task.corrupt(clean, torch.Generator().manual_seed(0)).output_positions.index for task in (uniform, content)]
    assert not torch.equal(trained[0], trained[1])


# --- additions to the paper ---------------------------------------------------------------------------------------------------

OFF = {"own_words": 0.0, "reply_words": 0.0, "masking": "uniform"}


def test_task_without_additions_is_the_paper():
    """It has the parameters of the backbone and the head alone, and draws nothing else. The golden losses fix the values."""
    torch.manual_seed(0)
    task = MaskedLM(TreeMLM(SIZES), tokenizer(), TextInput(max_tokens=32), MaskedLMConfig(**OFF))
    after = torch.rand(3)
    torch.manual_seed(0)
    backbone = TreeMLM(SIZES)
    head = VocabularyHead(SIZES.dim, SIZES.vocab_size, embedding=backbone.embedding)
    assert torch.equal(torch.rand(3), after)
    expected = {f"backbone.{name}": value for name, value in backbone.state_dict().items()}
    expected |= {f"head.{name}": value for name, value in head.state_dict().items()}
    found = task.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert not task.weighs_words
    data = forest([discussion(W)])
    batch = task.corrupt(whole(task, data), torch.Generator().manual_seed(1))
    assert task.counts(batch, MAIN).keys() == {"masked_lm"}
    assert [named.keys() for named, _ in task.losses(batch, {"masked_lm": 1.0}, MAIN, None, None)] == [{"masked_lm"}]


def test_word_losses_leave_the_masked_loss_and_the_masks_unchanged():
    """Bag-of-words losses are added beside the paper's loss, which keeps its bits."""
    paper, words = tree_task(task=OFF), tree_task(task={"own_words": 0.3, "reply_words": 0.2})
    words.load_state_dict(paper.state_dict(), strict=False)
    data = forest(discussions(2, 12))
    found = []
    for task in (paper, words):
        batch = task.corrupt(whole(task, data), torch.Generator().manual_seed(1))
        ((named, _),) = task.losses(batch, UNDIVIDED, MAIN, None, None)
        found.append((batch.target_ids, batch.labels, named))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert torch.equal(found[0][2]["masked_lm"], found[1][2]["masked_lm"])
    assert found[1][2].keys() == {"masked_lm", "own_words", "reply_words"}


@given(
    parent=parent_arrays(max_comments=12, min_comments=1),
    context=st.sampled_from(["tree", "parent", "root", "mismatched"]),
    rate=st.sampled_from([0.15, 1.0]),
    seed=st.integers(0, 100),
)
@settings(max_examples=12)
def test_word_losses_are_means_over_texts(parent, context, rate, seed):
    """Text by text: the words of every node from its own vector, and the clean words of every target from the vector of its
    nearest context node, each weighted by √min(1, t/f). Here texts are cut at nine words."""
    input = TextInput(max_tokens=11, max_context=3, context=context)
    task = words_task(input=input, task={"mask_rate": rate})
    data = forest([discussion(parent, seed=seed), discussion(W, seed=seed, name="w")], max_tokens=11)
    batch = masked(task, data, whole(task, data, regime="naive", predict_post=True))
    batch = replace(batch, node_weight=torch.rand(len(batch.nodes), dtype=torch.float64))
    batch = replace(batch, weight=torch.rand(len(batch.targets), dtype=torch.float64) * (batch.weight > 0))
    vectors = task.backbone.vectors(batch.node_context().texts)
    expected = word_losses(task, data, batch, vectors)
    ((found, _),) = task.losses(batch, {"masked_lm": 1.0, "own_words": 2.0, "reply_words": 4.0}, MAIN, None, None)
    torch.testing.assert_close(found["own_words"], expected["own_words"] / 2.0, rtol=0, atol=1e-12)
    torch.testing.assert_close(found["reply_words"], expected["reply_words"] / 4.0, rtol=0, atol=1e-12)


def test_word_losses_of_one_reply():
    """The smallest case by hand: a post of two words and its reply of one. Each loss is a mean over words, and a special token
    is no word."""
    task = words_task()
    first, second, third = ("aa", "be", "co")
    tree = with_text(with_text(discussion(star(1)), 0, f"{first} {second}"), 1, third)
    data = forest([tree])
    batch = masked(task, data, whole(task, data))
    vector = task.backbone.vectors(batch.node_context().texts)[0]
    ids = [tokenizer().ids[word] for word in (first, second, third)]
    weight = [float(task.word_weight[id]) for id in ids]
    own, reply = (torch.log_softmax(head(vector[None])[0], 0) for head in (task.own_words, task.reply_words))
    ((found, _),) = task.losses(batch, UNDIVIDED, MAIN, None, None)
    expected = -(weight[0] * own[ids[0]] + weight[1] * own[ids[1]]) / (weight[0] + weight[1])
    torch.testing.assert_close(found["own_words"], 0.3 * expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found["reply_words"], -0.2 * reply[ids[2]], rtol=0, atol=1e-12)


def test_replies_are_predicted_from_clean_words():
    """The masks do not matter: every word of the target counts, and none that it shows instead."""
    task = words_task(task={"mask_rate": 0.5, "mask_split": (0.4, 0.6, 0.0)})
    data = forest(discussions(2, 12))
    clean = whole(task, data)
    found = []
    for seed in (1, 2):
        batch = task.corrupt(clean, torch.Generator().manual_seed(seed))
        assert not torch.equal(batch.target_ids, clean.target_ids)
        ((named, _),) = task.losses(batch, UNDIVIDED, MAIN, None, None)
        found.append(named)
    assert torch.equal(found[0]["reply_words"], found[1]["reply_words"])
    assert not torch.equal(found[0]["masked_lm"], found[1]["masked_lm"])


@pytest.mark.parametrize("frequent_word", [3e-4, 0.02, 1.0])
def test_frequent_words_weigh_less(frequent_word):
    """√min(1, t/f) for a word of frequency f. Special tokens weigh nothing, and a word that no text holds weighs one."""
    task = tree_task(task={"own_words": 0.3, "frequent_word": frequent_word})
    size = tokenizer().vocab_size
    counts = np.random.default_rng(0).integers(0, 1000, size) * (np.arange(size) % 3 > 0)
    task.count_words(counts)
    for id in range(size):
        share = counts[id] / counts.sum()
        expected = 0.0 if id in tokenizer().special_ids else 1.0 if share <= frequent_word else (frequent_word / share) ** 0.5
        assert float(task.word_weight[id]) == pytest.approx(expected, abs=1e-12)
    task.count_words(np.zeros(size, dtype=np.int64))
    assert int(task.word_weight.sum()) == size - len(tokenizer().special_ids)


def test_texts_without_words_teach_nothing():
    """Empty texts have no gradient from their own words or as replies, and their divisor is that of the other texts."""
    task = words_task()
    data = forest([discussion(chain(4), lengths=[0, 3, 0, 2, 0])])
    batch = masked(task, data, whole(task, data))
    vectors = task.backbone.vectors(batch.node_context().texts).detach().requires_grad_()
    found = task._vector_losses(vectors, batch, UNDIVIDED)
    by_node = dict(zip(batch.node_source.tolist(), range(len(batch.nodes))))
    for name, taught in (("own_words", {1, 3}), ("reply_words", {0, 2})):
        (gradient,) = torch.autograd.grad(found[name], vectors)
        assert {node for node, row in by_node.items() if bool((gradient[row] != 0).any())} == taught
    assert task.counts(batch, MAIN) == {"masked_lm": 2.0, "own_words": 2.0, "reply_words": 2.0}


@pytest.mark.parametrize("phases", ["never", "always"])
def test_batches_without_context_have_no_word_losses(phases):
    """A step may hold posts alone, or nothing. It has the divisors of every other step."""
    task = words_task(task={"two_phase": phases})
    data = forest([discussion([-1], lengths=[4]), discussion([-1], lengths=[3], name="u")])
    view, collate = view_of(task, data, predict_post=True)
    posts = task.corrupt(collate([view.example(0), view.example(1)]), torch.Generator())
    assert task.counts(posts, MAIN) == {"masked_lm": 2.0, "own_words": 0.0, "reply_words": 0.0}
    assert gradient(task, [posts]).keys() >= {"head.bias", "backbone.embedding.weight"}
    nothing = task.corrupt(collate([]), torch.Generator())
    assert task.counts(nothing, MAIN) == {"masked_lm": 0.0, "own_words": 0.0, "reply_words": 0.0}


# --- the regimes' gradients ---------------------------------------------------------------------------------------------------

EQUAL = {
    "naive": {"regime": "naive"},
    "debiased threads": {"regime": "threads_debiased"},
    "debiased leaf threads": {"regime": "threads_debiased", "threads_over": "leaves"},
    "middle, soft, packed": {"regime": "middle", "bound": "soft", "max_tree_size": 4},
    "middle, soft, literal": {"regime": "middle", "bound": "soft", "max_tree_size": 4, "pack": False},
    "middle, soft, of one": {"regime": "middle", "bound": "soft", "max_tree_size": 1},
    "middle, soft, share": {"regime": "middle", "bound": "soft", "max_tree_size": 4, "weighting": "share"},
    "middle, soft, one step": {"regime": "middle", "bound": "soft", "max_tree_size": 4, "step_per": "tree"},
    "middle, soft, share, one step": {
        "regime": "middle",
        "bound": "soft",
        "max_tree_size": 4,
        "weighting": "share",
        "step_per": "tree",
    },
    "middle, larger than the tree": {"regime": "middle", "max_tree_size": 10_000},
}


MAKE = {"paper": tree_task, "additions": words_task}
with_and_without_additions = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@with_and_without_additions
@pytest.mark.parametrize("regime", EQUAL.values(), ids=EQUAL)
@given(parent=parent_arrays(max_comments=14, min_comments=1), seed=st.integers(0, 100))
@settings(max_examples=5)
def test_equal_gradients(regime, make, parent, seed):
    """Summed over an epoch, with the same masks, at fixed parameters: the same gradient as the whole tree's."""
    task = make()
    data = forest([discussion(parent, seed=seed)])
    expected = gradient(task, masked_units(task, data, regime="tree"))
    assert distance(gradient(task, masked_units(task, data, **regime)), expected) < EXACT


@pytest.mark.parametrize(
    ("shape", "position"),
    [
        *((shape, "distance") for shape in SHAPES),
        *(("uniform", "depth"), ("chain", "depth"), ("star", "none"), ("reddit", "none")),
    ],
)
def test_equal_gradients_by_shape_and_position(shape, position):
    task = tree_task(context_position=position, pooling="attn")
    data = forest([discussion(SHAPES[shape](12, 3), seed=5), discussion(SHAPES[shape](7, 4), seed=6, name="u")])
    expected = gradient(task, masked_units(task, data, regime="tree"))
    assert size(expected) > 1e-3
    assert expected.keys() == {name for name, _ in task.named_parameters()} - {"backbone.null"}
    for regime in EQUAL.values():
        assert distance(gradient(task, masked_units(task, data, **regime)), expected) < EXACT
    together = gradient(task, [masked(task, data, whole(task, data))])
    assert distance(together, expected) < EXACT


def test_equal_gradients_of_several_trees_with_additions():
    """The same node may be read by units of several steps, or by one step that holds all trees."""
    task = words_task(context_position="distance", pooling="attn")
    data = forest([discussion(uniform(12, 3), seed=5), discussion(reddit(7, 4), seed=6, name="u")])
    expected = gradient(task, masked_units(task, data, regime="tree"))
    assert size(expected) > 1e-3
    assert expected.keys() == {name for name, _ in task.named_parameters()} - {"backbone.null"}
    for regime in EQUAL.values():
        assert distance(gradient(task, masked_units(task, data, **regime)), expected) < EXACT
        assert distance(gradient(task, [masked(task, data, whole(task, data, **regime))]), expected) < EXACT


@pytest.mark.parametrize("rule", ["post_nearest", "nearest"])
@pytest.mark.parametrize(
    ("limit", "make"), [(1, tree_task), (1, words_task), (2, words_task), (3, tree_task)], ids=["1", "1+", "2+", "3"]
)
def test_equal_gradients_with_cut_contexts(rule, limit, make):
    """The equality holds for any context length: the whole path is in every unit, and is cut the same way."""
    task = make(input=TextInput(max_tokens=32, max_context=limit, rule=rule))
    data = forest([discussion(uniform(12, 8), seed=8)])
    expected = gradient(task, masked_units(task, data, regime="tree"))
    for regime in EQUAL.values():
        assert distance(gradient(task, masked_units(task, data, **regime)), expected) < EXACT


@with_and_without_additions
@pytest.mark.parametrize("over", ["all", "leaves"])
@given(parent=parent_arrays(max_comments=12, min_comments=1))
@settings(max_examples=5)
def test_threads_weigh_each_comment_by_its_count(over, make, parent):
    """The gradient of `threads` is Σ count(c) ∂ℓ(c): this is the regime's whole bias. Words of nodes have none."""
    task = make()
    data = forest([discussion(parent)])
    counts = multiplicity(parent, over)
    weighted = (
        replace(batch, weight=batch.weight * float(counts[batch.source[0]]))
        for batch in masked_units(task, data, regime="naive")
    )
    expected = gradient(task, weighted)
    assert distance(gradient(task, masked_units(task, data, regime="threads", threads_over=over)), expected) < EXACT


def test_threads_are_biased():
    task = tree_task()
    data = forest([discussion(W)])
    tree = gradient(task, masked_units(task, data, regime="tree"))
    for over in ("all", "leaves"):
        threads = gradient(task, masked_units(task, data, regime="threads", threads_over=over))
        assert distance(threads, tree) > 0.1 * size(tree)


@with_and_without_additions
@given(parent=parent_arrays(max_comments=12, min_comments=1), pack=st.booleans())
@settings(max_examples=6)
def test_pieces_of_one_comment_are_the_leaf_threads(make, parent, pack):
    """The limit theorem, gradient for gradient: soft bound, M = 1, every comment of a piece a target of weight 1."""
    task = make()
    data = forest([discussion(parent)])
    threads = gradient(task, masked_units(task, data, regime="threads", threads_over="leaves"))
    options = {"max_tree_size": 1, "bound": "soft", "weighting": "seed", "pack": pack}
    assert distance(gradient(task, masked_units(task, data, regime="middle", **options)), threads) < EXACT


@with_and_without_additions
@pytest.mark.parametrize("weighting", ["once", "share", "seed"])
@given(parent=parent_arrays(max_comments=14, min_comments=1), seed=st.integers(0, 100))
@settings(max_examples=5)
def test_all_pieces_in_one_step(weighting, make, parent, seed):
    """With the strict bound, each target keeps the context of its own piece: one step has the summed gradient of the pieces."""
    task = make()
    data = forest([discussion(parent, seed=seed)])
    options = {"regime": "middle", "max_tree_size": 3, "weighting": weighting}
    together = masked_units(task, data, **options, step_per="tree")
    assert distance(gradient(task, together), gradient(task, masked_units(task, data, **options))) < EXACT


def test_cut_paths_change_the_gradient():
    """The strict bound hides ancestors, so the equality must not hold for it."""
    task = tree_task()
    data = forest([discussion(chain(12), seed=1, lengths=[5] * 13)])
    expected = gradient(task, masked_units(task, data, regime="tree"))
    assert distance(gradient(task, masked_units(task, data, regime="middle", max_tree_size=4)), expected) > 1e-3


# --- the whole tree's gradient in bounded memory ------------------------------------------------------------------------------


@with_and_without_additions
@pytest.mark.parametrize("chunk", [1, 20, 60, 10_000])
@given(parent=parent_arrays(max_comments=14, min_comments=1), seed=st.integers(0, 100))
@settings(max_examples=4)
def test_two_phases_give_the_one_graph_gradient(chunk, make, parent, seed):
    data = forest([discussion(parent, seed=seed), discussion(W, seed=seed, name="w")])
    one = make(task={"two_phase": "never"})
    two = make(task={"two_phase": "always", "chunk_tokens": chunk})
    expected = gradient(one, [masked(one, data, whole(one, data))])
    assert distance(gradient(two, [masked(two, data, whole(two, data))]), expected) < EXACT


@with_and_without_additions
@pytest.mark.parametrize("position", ["none", "depth", "distance"])
@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "attn"])
def test_two_phases_with_every_option(position, pooling, make):
    options = {"context_position": position, "pooling": pooling, "share_embeddings": False, "norm": "pre"}
    data = forest([discussion(W, seed=2)])
    one = make(task={"two_phase": "never", "tie_weights": False, "head": "bert"}, **options)
    two = make(task={"two_phase": "always", "tie_weights": False, "head": "bert", "chunk_tokens": 30}, **options)
    expected = gradient(one, [masked(one, data, whole(one, data))])
    assert expected.keys() == {name for name, _ in one.named_parameters()} - {"backbone.null"}
    assert distance(gradient(two, [masked(two, data, whole(two, data))]), expected) < EXACT


@pytest.mark.parametrize(
    ("make", "attention_dropout"),
    [(tree_task, 0.0), (tree_task, 0.2), (words_task, 0.2)],
    ids=["paper-0.0", "paper-0.2", "additions-0.2"],
)
@pytest.mark.parametrize("chunk", [20, 60])
def test_two_phases_with_dropout(chunk, make, attention_dropout):
    task = make(
        task={"two_phase": "always", "chunk_tokens": chunk}, dropout=0.3, attention_dropout=attention_dropout, encoder_layers=2
    ).train()
    data = forest([discussion(uniform(25, 1), seed=1)])
    batch = masked(task, data, whole(task, data))
    assert len(list(batch.nodes.runs(chunk))) > 1
    assert len(list(runs(batch.costs, chunk))) > 1
    expected = one_graph_over_chunks(task, data, batch, seed=3)
    torch.manual_seed(3)
    assert distance(gradient(task, [batch]), expected) < EXACT
    # The generator must matter, or the equality would be trivial.
    torch.manual_seed(4)
    assert distance(gradient(task, [batch]), expected) > 1e-3


@with_and_without_additions
def test_two_phases_leave_the_generator_as_decoding_did(make):
    """Draws after the step must not depend on the number of encodings of each chunk."""
    task = make(task={"two_phase": "always", "chunk_tokens": 30}, dropout=0.3).train()
    data = forest([discussion(W, seed=2)])
    batch = masked(task, data, whole(task, data))
    torch.manual_seed(5)
    gradient(task, [batch])
    after = torch.rand(3)
    torch.manual_seed(5)
    with torch.no_grad():
        for _ in decode_parts(task.backbone, batch, 30):
            pass
    assert torch.equal(torch.rand(3), after)


def test_two_phases_only_where_configured():
    data = forest([discussion(W, seed=2)])

    def passes(make=tree_task, **options):
        task = make(task=options)
        found = []
        for named, _ in task.losses(masked(task, data, whole(task, data)), UNDIVIDED, MAIN, None, None):
            found += named
            torch.stack(list(named.values())).sum().backward()
        return Counter(found)

    assert passes(chunk_tokens=10_000) == {"masked_lm": 1}
    assert passes(chunk_tokens=20, two_phase="never") == {"masked_lm": 1}
    assert passes(chunk_tokens=10_000, two_phase="always") == {"masked_lm": 1, "encoder": 1}
    many = passes(chunk_tokens=20)
    assert min(many["masked_lm"], many["encoder"]) > 1
    # Words of vectors are predicted once, from the vectors of all chunks.
    words = {"own_words": 1, "reply_words": 1}
    assert passes(words_task, chunk_tokens=10_000) == {"masked_lm": 1, **words}
    assert passes(words_task, chunk_tokens=20) == many | words


@pytest.mark.parametrize("make", [bert_task, partial(tree_task, input=TextInput(max_tokens=32, context="null"))])
def test_independent_targets_are_processed_in_chunks(make):
    """However large the batch, one graph holds at most `chunk_tokens` tokens; the gradient is the same."""
    data = forest([discussion(uniform(40), seed=2)])
    one, many = make(task={"two_phase": "never"}), make(task={"chunk_tokens": 60})
    batch = masked(one, data, whole(one, data))
    assert distance(gradient(one, [batch]), gradient(many, [batch])) < EXACT
    assert len(list(many.losses(batch, {"masked_lm": 1.0}, MAIN, None, None))) == len(list(runs(batch.costs, 60))) > 1


def test_chunk_of_deep_targets_gathers_a_bounded_number_of_vectors():
    """The graph of a chunk also holds the vectors that its targets read: on a chain these are far more than their tokens."""
    task = tree_task(task={"two_phase": "always", "chunk_tokens": 80})
    for parent in (chain(60), reddit(60)):
        data = forest([discussion(parent, lengths=[2] * 61)])
        batch = masked(task, data, whole(task, data))
        parts = [part for part, _ in decode_parts(task.backbone, batch, 80)]
        assert sum(len(part.targets) for part in parts) == 60
        assert all(part.costs.sum() <= 80 or len(part.targets) == 1 for part in parts)
        assert all(part.contexts.total < 80 * KEYS_A_TOKEN for part in parts)
        assert max(len(part.nodes) for part in parts) < len(batch.nodes)


# --- visible nodes ------------------------------------------------------------------------------------------------------------


def losses_and_vectors(task, data):
    """ℓ(x) of every target in one graph over all targets, and the nodes' vectors that it depends on."""
    batch = masked(task, data, whole(task, data))
    vectors = task.backbone.vectors(batch.node_context().texts).detach().requires_grad_()
    logits = task.head(task.backbone.decode(batch, task.backbone.contextualize(batch.node_context(vectors))).tokens)
    each = F.cross_entropy(logits, batch.labels, reduction="none")
    counts = batch.output_positions.rows.host_lengths
    return batch, vectors, [part.mean() if len(part) else None for part in torch.split(each, counts.tolist())]


@with_and_without_additions
@pytest.mark.parametrize("position", ["none", "depth", "distance"])
@given(parent=parent_arrays(max_comments=16, min_comments=2), limit=st.sampled_from([1, 2, 3, 100]))
@settings(max_examples=6)
def test_gradient_locality(position, make, parent, limit):
    """∂ℓ(x)/∂e(c) is exactly zero unless c is a strict ancestor of x, and not zero for every one within the context length."""
    task = make(input=TextInput(max_tokens=32, max_context=limit), context_position=position)
    data = forest([discussion(parent, lengths=[4] * len(parent))])
    batch, vectors, losses = losses_and_vectors(task, data)
    nodes = batch.node_source.tolist()
    for target, loss in zip(batch.source.tolist(), losses):
        (reached,) = torch.autograd.grad(loss, vectors, retain_graph=True)
        touched = {node for node, row in zip(nodes, reached) if bool((row != 0).any())}
        above = path_to(parent, target)
        assert touched == {above[0], *above[1:][max(0, len(above) - limit) :]}


def test_words_teach_their_own_vector_and_their_parents_vector():
    """`own_words` ends the claim that only its descendants teach a node: its own text does, and no other text. `reply_words`
    teaches it with its children alone."""
    task = words_task()
    tree = discussion(W, lengths=[4] * len(W))
    vectors, found = None, {}
    for changed in (None, *range(len(W))):
        data = forest([tree if changed is None else with_text(tree, changed, "ho hu hi hy")])
        batch = masked(task, data, whole(task, data))
        if vectors is None:
            vectors = task.backbone.vectors(batch.node_context().texts).detach().requires_grad_()
        losses = task._vector_losses(vectors, batch, UNDIVIDED)
        for name, loss in losses.items():
            (gradient,) = torch.autograd.grad(loss, vectors, retain_graph=True)
            found[name, changed] = dict(zip(batch.node_source.tolist(), gradient))
    inner = set(found["own_words", None])
    assert inner == set(W) - {-1}
    for changed in range(len(W)):
        for name, taught in (("own_words", {changed} & inner), ("reply_words", {W[changed]} & inner)):
            before, after = found[name, None], found[name, changed]
            assert {node for node in inner if not torch.equal(before[node], after[node])} == taught


@with_and_without_additions
def test_gradient_of_the_masked_loss_reaches_vectors_as_in_the_paper(make):
    """The losses of vectors are passes or terms of their own: the masked loss has the locality that the paper claims."""
    task = make(task={"two_phase": "never"})
    data = forest([discussion(W, lengths=[4] * len(W))])
    batch = masked(task, data, whole(task, data))
    row = batch.node_source.tolist().index(8)
    # Weigh the comments outside the subtree of node 8 alone: its vector gets no gradient from the masked loss.
    outside = torch.tensor([8 not in path_to(W, node) for node in batch.source.tolist()])
    batch = replace(batch, weight=batch.weight * outside)
    vectors = task.backbone.vectors(batch.node_context().texts).detach().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task.backbone, "vectors", lambda rows, record=None: vectors)
        ((named, _),) = task.losses(batch, UNDIVIDED, MAIN, None, None)
    (masked_gradient,) = torch.autograd.grad(named["masked_lm"], vectors, retain_graph=True)
    assert torch.equal(masked_gradient[row], torch.zeros(8, dtype=torch.float64))
    assert (masked_gradient != 0).any(1).sum() == len(batch.nodes) - 1
    if "own_words" in named:
        (own,) = torch.autograd.grad(named["own_words"], vectors)
        assert (own != 0).any(1).all()


def test_post_and_no_context_are_exact_zeros():
    """Cross-attention and output attention add nothing where no row is visible, whatever their parameters."""
    task = tree_task(input=TextInput(max_tokens=32, context="none"), output_attention=True)
    data = forest([discussion(W, seed=3)])
    batch = masked(task, data, whole(task, data, predict_post=True))
    before = task.backbone(batch).tokens
    with torch.no_grad():
        for part in (*(layer.cross for layer in task.backbone.decoder.layers), task.backbone.output_attention):
            for parameter in part.parameters():
                parameter.normal_()
    assert torch.equal(task.backbone(batch).tokens, before)
    # The post sees nothing in the tree either: same states, among comments that do see their ancestors.
    task.input = replace(task.input, context="tree")
    tree = masked(task, data, whole(task, data, predict_post=True))
    states = by_node(tree, task.backbone(tree).tokens)
    alone = by_node(batch, before)
    torch.testing.assert_close(states[0], alone[0], rtol=0, atol=1e-12)
    assert any(not torch.allclose(states[node], alone[node]) for node in range(1, len(W)) if len(alone[node]))


def by_node(batch, rows):
    parts = torch.split(rows, batch.output_positions.rows.host_lengths.tolist())
    return dict(zip(batch.source.tolist(), parts, strict=True))


@pytest.mark.parametrize("context", ["tree", "none", "null", "parent", "root", "mismatched"])
def test_parameters_that_each_context_trains(context):
    task = tree_task(input=TextInput(max_tokens=32, context=context), output_attention=True)
    data = forest(discussions(3, 10))
    trained = gradient(task, [masked(task, data, whole(task, data))])
    moved = {name for name, own in trained.items() if bool((own != 0).any())}
    assert ("backbone.null" in moved) == (context == "null")
    assert any(name.startswith("backbone.encoder.") for name in moved) == (context not in ("none", "null"))
    assert any(".cross." in name for name in moved) == (context != "none")
    assert any("output_attention" in name for name in moved) == (context != "none")


def test_null_context_is_one_row_for_all_targets():
    task = tree_task(input=TextInput(max_tokens=32, context="null"), output_attention=True)
    data = forest([discussion(W, seed=3)])
    batch = masked(task, data, whole(task, data))
    assert len(batch.nodes) == 0
    before = task.backbone(batch).tokens
    with torch.no_grad():
        task.backbone.null.add_(1.0)
    after = task.backbone(batch).tokens
    assert (before != after).any(1).all()


@with_and_without_additions
def test_parent_context_reads_only_the_parent(make):
    task = make(input=TextInput(max_tokens=32, context="parent"))
    data = forest([discussion(W, lengths=[4] * len(W))])
    batch, vectors, losses = losses_and_vectors(task, data)
    for target, loss in zip(batch.source.tolist(), losses):
        (reached,) = torch.autograd.grad(loss, vectors, retain_graph=True)
        assert batch.node_source[(reached != 0).any(1).numpy()].tolist() == [W[target]], NAMES[target]


# --- invariances --------------------------------------------------------------------------------------------------------------


def logits_by_node(task, data, batch):
    batch = masked(task, data, batch)
    return by_node(batch, task.head(task.backbone(batch).tokens))


@pytest.mark.parametrize("make", [tree_task, words_task, bert_task], ids=["tree-mlm", "tree-mlm, additions", "bert"])
def test_logits_do_not_depend_on_the_batch(make):
    task = make()
    data = forest(discussions(4, 10))
    view, collate = view_of(task, data, regime="tree")
    together = logits_by_node(task, data, whole(task, data))
    backwards = logits_by_node(task, data, collate([view.example(number) for number in (3, 1, 2, 0)]))
    for node, rows in together.items():
        torch.testing.assert_close(rows, backwards[node], rtol=0, atol=1e-12)
    seen = Counter()
    for batch in masked_units(task, data, regime="naive"):
        (node,) = batch.source.tolist()
        torch.testing.assert_close(task.head(task.backbone(batch).tokens), together[node], rtol=0, atol=1e-12)
        seen[node] += 1
    assert seen == Counter(dict.fromkeys(together, 1))


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "attn"])
@pytest.mark.parametrize("output_attention", [False, True])
def test_padding_is_invisible(monkeypatch, pooling, output_attention):
    """Pooling never meets padding: it reads the flat axis. Attention pads rows to the longest of their group, so the logits
    must not depend on how coarse the groups are."""
    task = tree_task(pooling=pooling, output_attention=output_attention)
    data = forest(discussions(3, 12))
    found = []
    for step in (1, 8, 64):
        monkeypatch.setattr(ragged, "ROUND_TO", step)
        batch = whole(task, data)
        if step == 64:
            assert len(batch.nodes.groups) == 1
            assert not batch.nodes.groups[0].full
        found.append(logits_by_node(task, data, batch))
    for node, rows in found[0].items():
        torch.testing.assert_close(rows, found[1][node], rtol=0, atol=1e-12)
        torch.testing.assert_close(rows, found[2][node], rtol=0, atol=1e-12)


@pytest.mark.parametrize("output_attention", [False, True])
@pytest.mark.parametrize("position", ["none", "depth", "distance"])
def test_ancestors_are_a_set_without_positions(position, output_attention):
    """Exchange the texts of two ancestors: the comment below reads the same set of vectors in another order."""
    task = tree_task(context_position=position, output_attention=output_attention)
    lengths = [5, 6, 7, 4, 8]
    tree = discussion(chain(4), lengths=lengths)
    swapped = with_text(with_text(tree, 0, tree.nodes[2].text), 2, tree.nodes[0].text)
    rows = []
    for each in (tree, swapped):
        data = forest([each])
        rows.append(logits_by_node(task, data, whole(task, data))[4])
    difference = float((rows[0] - rows[1]).detach().abs().max())
    assert difference < 1e-12 if position == "none" else difference > 1e-4


def test_special_tokens_are_not_maskable():
    """Special tokens are not maskable, so they cannot be output positions."""
    task = tree_task()
    data = forest(discussions(2, 10))
    batch = whole(task, data)
    special = torch.isin(batch.target_ids, torch.tensor(tokenizer().special_ids))
    assert torch.equal(batch.maskable, ~special)


def test_unknown_word_can_be_a_label():
    task = tree_task(task={"mask_rate": 1.0})
    random = np.random.default_rng(0)
    data = forest([with_text(discussion(star(1)), 1, f"{text(random, 2)} unheard-of")])
    batch = masked(task, data, whole(task, data))
    unknown = tokenizer().engine.token_to_id("[UNK]")
    assert unknown in batch.labels.tolist()

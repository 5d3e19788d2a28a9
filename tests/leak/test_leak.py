"""No target leaks: changing a hidden text does not move a comment's scores by one bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import (
    W,
    bert_task,
    discussion,
    forest,
    masked,
    parent_arrays,
    path_to,
    text,
    tokenizer,
    tree_task,
    whole,
    with_text,
    words_task,
)
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import has_other_branch
from ramify.tree import NO_PARENT

LIMIT = 32
TASKS = {
    "tree-mlm": lambda **options: tree_task(**options),
    "tree-mlm, depth, attn": lambda **options: tree_task(context_position="depth", pooling="attn", **options),
    "tree-mlm, distance, pre-norm": lambda **options: tree_task(context_position="distance", norm="pre", **options),
    "tree-mlm, additions": lambda **options: words_task(**options),
    "tree-mlm, additions, distance": lambda **options: words_task(context_position="distance", cross_init="zero", **options),
    "bert": lambda **options: bert_task(**options),
    "bert, concatenated": lambda **options: bert_task(input=TextInput(max_tokens=LIMIT, concatenate=64), **options),
}


@pytest.fixture(scope="module", params=TASKS.values(), ids=TASKS)
def make(request):
    return request.param


@pytest.fixture(scope="module")
def task(make):
    return make(dtype=torch.float32).eval()


def logits(task, tree, **regime):
    """Scores at the masked places of every comment, by node; masks depend on the comment's id and length alone."""
    data = forest([tree], LIMIT)
    batch = masked(task, data, whole(task, data, **regime))
    rows = task.head(task.backbone(batch).tokens).detach()
    counts = batch.output_positions.rows.host_lengths.tolist()
    return dict(zip(batch.source.tolist(), torch.split(rows, counts), strict=True))


def another(tree, node, seed=0):
    """The node's text with other words, as many as before."""
    random = np.random.default_rng([seed, node])
    words = tree.nodes[node].text.split()
    return " ".join(new if new != old else text(random, 1) for old, new in zip(words, text(random, len(words)).split()))


def moved(before, after):
    return {node for node in before if not torch.equal(before[node], after[node])}


def below(parent, node):
    return {other for other in range(len(parent)) if node in path_to(parent, other)}


def reads_ancestors(task):
    return task.input.context == "tree"


@given(parent=parent_arrays(max_comments=14, min_comments=2), data=st.data())
@settings(max_examples=15)
def test_unrelated_comments_do_not_change_scores(task, parent, data):
    """(i) A changed text reaches its own scores and its descendants' scores, and no others."""
    tree = discussion(parent, seed=data.draw(st.integers(0, 99)))
    node = data.draw(st.integers(0, len(parent) - 1))
    before, after = logits(task, tree), logits(task, with_text(tree, node, another(tree, node)))
    allowed = {node} | (below(parent, node) if reads_ancestors(task) else set())
    assert moved(before, after) <= allowed


def test_ancestors_change_scores(task):
    """The control: the tests above would pass on a model that reads nothing."""
    tree = discussion(W, lengths=[4] * len(W))
    for node in range(len(W)):
        found = moved(logits(task, tree), logits(task, with_text(tree, node, another(tree, node))))
        assert found - {node} == (below(W, node) if reads_ancestors(task) else set())


@given(parent=parent_arrays(max_comments=10, min_comments=1), data=st.data())
@settings(max_examples=15)
def test_masked_word_changes_no_score_of_its_comment(task, parent, data):
    """(ii) Change the word at one chosen place that shows the mask or a random piece: only descendants' scores may move."""
    tree = discussion(parent, seed=data.draw(st.integers(0, 99)), lengths=[8] * len(parent))
    places = hidden_places(task, tree)
    node = data.draw(st.sampled_from(sorted(places)))
    if not places[node]:
        return
    place = data.draw(st.sampled_from(places[node]))
    words = tree.nodes[node].text.split()
    words[place] = data.draw(st.sampled_from([word for word in ("aa", "be", "co") if word != words[place]]))
    before, after = logits(task, tree), logits(task, with_text(tree, node, " ".join(words)))
    assert moved(before, after) <= (below(parent, node) if reads_ancestors(task) else set())


def hidden_places(task, tree):
    """For every comment: the places in its text that have a label and do not show their own word."""
    data = forest([tree], LIMIT)
    clean = whole(task, data)
    batch = masked(task, data, clean)
    index, counts = batch.output_positions.index.numpy(), batch.output_positions.rows.host_lengths
    first = clean.targets.host_lengths - 1 - clean.num_maskable
    starts = np.cumsum(clean.targets.host_lengths) - clean.targets.host_lengths
    changed = (batch.target_ids[batch.output_positions.index] != batch.labels).numpy()
    found = {}
    for row, places in enumerate(np.split(np.arange(len(index)), np.cumsum(counts)[:-1])):
        own = index[places[changed[places]]] - starts[row] - first[row]
        found[int(batch.source[row])] = own.tolist()
    return found


def test_every_comment_has_hidden_labels():
    """The control for (ii): there are such places, and their labels are the words."""
    task = tree_task(dtype=torch.float32)
    tree = discussion(W, lengths=[8] * len(W))
    places = hidden_places(task, tree)
    assert sum(map(len, places.values())) >= len(W) - 1
    data = forest([tree], LIMIT)
    batch = masked(task, data, whole(task, data))
    answers = {tokenizer().token(label) for label in batch.labels.tolist()}
    assert {tree.nodes[node].text.split()[place] for node, own in places.items() for place in own} <= answers


@pytest.mark.parametrize("place", range(8))
def test_labels_change_nothing_with_every_word_masked(make, place):
    """If every word is a label and none is shown, no word of the comment matters."""
    task = make(dtype=torch.float32, task={"mask_rate": 1.0, "mask_split": (1.0, 0.0, 0.0)}).eval()
    tree = discussion(W, lengths=[8] * len(W))
    words = tree.nodes[9].text.split()
    words[place] = "aa" if words[place] != "aa" else "be"
    assert moved(logits(task, tree), logits(task, with_text(tree, 9, " ".join(words)))) == set()


@given(parent=parent_arrays(max_comments=12, min_comments=2), length=st.integers(0, 25), data=st.data())
@settings(max_examples=15)
def test_lengths_of_other_comments_do_not_change_scores(make, parent, length, data):
    """A text of another length changes the layout of the batch and so the rounding: compared in double precision."""
    task = make(dtype=torch.float64).eval()
    tree = discussion(parent, seed=data.draw(st.integers(0, 99)))
    node = data.draw(st.integers(0, len(parent) - 1))
    words = text(np.random.default_rng(length), length)
    before, after = logits(task, tree), logits(task, with_text(tree, node, words))
    for other in before.keys() - {node} - (below(parent, node) if reads_ancestors(task) else set()):
        torch.testing.assert_close(before[other], after[other], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "regime",
    [
        {"regime": "threads"},
        {"regime": "middle", "max_tree_size": 3},
        {"regime": "middle", "max_tree_size": 4, "bound": "soft"},
    ],
    ids=["threads", "middle", "soft"],
)
@pytest.mark.parametrize("make", [tree_task, words_task], ids=["paper", "additions"])
def test_no_training_regime_leaks(regime, make):
    task = make(dtype=torch.float32).eval()
    tree = discussion(W, lengths=[4] * len(W))
    for node in range(len(W)):
        changed = with_text(tree, node, another(tree, node))
        assert moved(logits(task, tree, **regime), logits(task, changed, **regime)) <= {node} | below(W, node)


@pytest.mark.parametrize("make", [tree_task, words_task], ids=["paper", "additions"])
def test_mismatched_ancestors_are_of_another_tree(make):
    """The control of mismatched ancestors reads nothing of the comment's own tree."""
    task = make(dtype=torch.float32, input=TextInput(max_tokens=LIMIT, context="mismatched")).eval()
    tree = discussion(W, lengths=[4] * len(W))
    stranger = discussion(W, lengths=[4] * len(W), seed=9, name="u")

    def both(one, other):
        data = forest([one, other], LIMIT)
        batch = masked(task, data, whole(task, data))
        rows = torch.split(task.head(task.backbone(batch).tokens).detach(), batch.output_positions.rows.host_lengths.tolist())
        return dict(zip(batch.source.tolist(), rows))

    before = both(tree, stranger)
    own = set(range(len(W)))
    for node in range(len(W)):
        assert moved(before, both(with_text(tree, node, another(tree, node)), stranger)) & own <= {node}
    assert moved(before, both(tree, with_text(stranger, 0, another(stranger, 0)))) >= own - {0}


@pytest.mark.parametrize("make", [tree_task, words_task], ids=["paper", "additions"])
def test_another_branch_holds_nothing_of_the_own_path(make):
    """The control of another branch reads neither the target's parent nor anything at the target's depth or below."""
    task = make(dtype=torch.float32, input=TextInput(max_tokens=LIMIT, context="sibling-branch")).eval()
    tree = discussion(W, lengths=[4] * len(W))
    only = has_other_branch(forest([tree], LIMIT), [0])
    before = logits(task, tree, only=only)
    assert before.keys() == set(np.flatnonzero(only).tolist())
    for node in range(len(W)):
        found = moved(before, logits(task, with_text(tree, node, another(tree, node)), only=only))
        deeper = {other for other in before if len(path_to(W, other)) > len(path_to(W, node)) and W[other] != node}
        # All paths begin with the post.
        assert found == before.keys() if node == 0 else found <= {node} | deeper


@pytest.mark.parametrize("make", [tree_task, words_task], ids=["paper", "additions"])
def test_root_context_holds_the_post_alone(make):
    task = make(dtype=torch.float32, input=TextInput(max_tokens=LIMIT, context="root")).eval()
    tree = discussion(W, lengths=[4] * len(W))
    before = logits(task, tree)
    for node in range(len(W)):
        found = moved(before, logits(task, with_text(tree, node, another(tree, node))))
        assert found == (before.keys() if node == 0 else {node})


@pytest.mark.parametrize("make", [tree_task, words_task], ids=["paper", "additions"])
def test_roots_have_no_context(make):
    """A predicted post has no ancestors: no other text of its tree may matter."""
    task = make(dtype=torch.float32).eval()
    tree = discussion([NO_PARENT, 0, 1], lengths=[6, 6, 6])
    before = logits(task, tree, predict_post=True)
    for node in (1, 2):
        assert 0 not in moved(before, logits(task, with_text(tree, node, another(tree, node)), predict_post=True))

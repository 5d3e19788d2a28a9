"""Filled masks and scores of texts, against the model's logits at one mask at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import W, bert_task, discussion, forest, tokenizer, tree_task, with_text
from ramify.batching.batch import Collator, select_positions
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import Discussions, units
from ramify.errors import RamifyError
from ramify.inference import mask_query, score
from ramify.inference.fill_mask import MaskFiller
from ramify.tree import NO_PARENT, Node, Tree

MASK = tokenizer().mask_id


@pytest.fixture(scope="module")
def model():
    return MaskFiller(tree_task().eval())


@pytest.fixture(scope="module")
def tree():
    return with_text(discussion(W, lengths=[5] * len(W)), 9, "aa be [MASK] co [MASK] da")


def probabilities(task, tree, node, ids, place, context="tree"):
    """p(· | ids, what the node reads) at one place: one text in a batch of its own, through the whole model."""
    shown = with_text(tree, node, " ".join("aa" for _ in ids))
    own = forest([shown])
    input = replace(task.input, context=context)
    view = Discussions(own, units(own, [0], "naive", predict_post=True), input)
    batch = Collator(own, task.tokenizer, input)([view.example(node)])
    assert batch.source.tolist() == [node]
    offset = int(batch.targets.host_lengths[0]) - 1 - len(ids)
    target_ids = batch.target_ids.clone()
    target_ids[offset : offset + len(ids)] = torch.tensor(ids)
    index = torch.tensor([offset + place])
    batch = replace(
        batch, target_ids=target_ids, output_positions=select_positions(index, np.array([1]), batch.targets, batch.readers)
    )
    with torch.no_grad():
        return task.head(task.backbone(batch).tokens)[0].softmax(-1)


IDS = tokenizer().encode("aa be [MASK] co [MASK] da", masks=True)


@pytest.mark.parametrize("context", ["tree", "none", "parent", "null"])
def test_likeliest_pieces(tree, context):
    model = MaskFiller(tree_task(input=TextInput(max_tokens=32, context="null" if context == "null" else "tree")).eval())
    answer = model.fill_mask(tree, "t.9", top_k=4, context=context)
    ancestors = {"tree": ["t.0", "t.6", "t.7", "t.8"], "parent": ["t.8"], "none": [], "null": []}
    assert (answer.node, answer.context, answer.ancestors) == ("t.9", context, tuple(ancestors[context]))
    assert [mask.position for mask in answer.masks] == [2, 4]
    for mask in answer.masks:
        top = torch.topk(probabilities(model.task, tree, 9, IDS, mask.position, context), 4)
        assert [each.token for each in mask.tokens] == [tokenizer().token(token) for token in top.indices.tolist()]
        assert [each.probability for each in mask.tokens] == pytest.approx(top.values.tolist(), abs=1e-6)


def test_null_context_needs_a_trained_null_row(model, tree):
    with pytest.raises(RamifyError, match="needs a model that was trained on its null row"):
        model.fill_mask(tree, 9, context="null")


def test_context_matters(model, tree):
    first, second = (model.fill_mask(tree, 9, context=context).masks[0].tokens for context in ("tree", "none"))
    assert first != second
    changed = with_text(tree, 0, "ho hu hy")
    assert model.fill_mask(changed, 9).masks[0].tokens != first
    assert model.fill_mask(with_text(tree, 4, "ho hu hy"), 9).masks[0].tokens == first


def test_default_context_is_that_of_the_model(tree):
    own = MaskFiller(tree_task(input=TextInput(max_tokens=32, context="parent")).eval())
    assert own.fill_mask(tree, 9).context == "parent"
    assert own.fill_mask(tree, 9, context="tree").ancestors == ("t.0", "t.6", "t.7", "t.8")


def test_candidates_with_equal_tokens_are_merged(model, tree, near):
    plain = model.fill_mask(tree, 9, candidates=["ga", "ge"])
    near(model.fill_mask(tree, 9, candidates=["ga", "ge", "ga", " ga"]).masks, plain.masks)
    with pytest.raises(RamifyError, match="must be a list of words, but is the string 'ga'"):
        model.fill_mask(tree, 9, candidates="ga")


def test_candidates_share_the_probability(model, tree):
    """A word of one piece has that piece's probability. A word of two pieces takes two masks, filled from left to right."""
    answer = model.fill_mask(tree, 9, candidates=["ga", "ge", "ba bu"])
    pair = tokenizer().encode("ba bu")
    for mask in answer.masks:
        place = mask.position
        singles = probabilities(model.task, tree, 9, IDS, place)
        scores = {word: float(singles[tokenizer().encode(word)[0]]) for word in ("ga", "ge")}
        wide = [*IDS[:place], MASK, MASK, *IDS[place + 1 :]]
        filled = [*IDS[:place], pair[0], MASK, *IDS[place + 1 :]]
        first = probabilities(model.task, tree, 9, wide, place)[pair[0]]
        scores["ba bu"] = float(first * probabilities(model.task, tree, 9, filled, place + 1)[pair[1]])
        total = sum(scores.values())
        found = {each.token: each.probability for each in mask.tokens}
        assert found == pytest.approx({word: score / total for word, score in scores.items()}, abs=1e-6)
        assert list(found.values()) == sorted(found.values(), reverse=True)


def test_joint_filling_is_a_beam_search(model, tree):
    """Both masks together: a beam as wide as the vocabulary finds the best of all pairs, left to right."""
    vocabulary = tokenizer().vocab_size
    answer = model.fill_mask(tree, 9, top_k=vocabulary, joint=True)
    first = probabilities(model.task, tree, 9, IDS, 2)
    best = (0.0, ())
    for token in range(vocabulary):
        second = probabilities(model.task, tree, 9, [*IDS[:2], token, *IDS[3:]], 4)
        best = max(best, (float(first[token] * second.max()), (token, int(second.argmax()))))
    top = answer.joint[0]
    assert top.probability == pytest.approx(best[0], abs=1e-7)
    assert top.tokens == tuple(tokenizer().token(token) for token in best[1])
    assert top.text == tokenizer().decode([*IDS[:2], best[1][0], IDS[3], best[1][1], IDS[5]])
    joint = [each.probability for each in answer.joint]
    assert joint == sorted(joint, reverse=True)


def test_joint_filling_keeps_to_the_candidates(model, tree):
    """Each pair's probability is that of the first word times that of the second given the first. Longer words shift the
    rest."""
    words = ["ga", "ba bu"]
    answer = model.fill_mask(tree, 9, top_k=4, candidates=words, joint=True)
    expected = {}
    for first in answer.masks[0].tokens:
        text = tree.nodes[9].text.replace("[MASK]", first.token, 1)
        (second,) = model.fill_mask(with_text(tree, 9, text), 9, candidates=words).masks
        for each in second.tokens:
            probability = first.probability * each.probability
            expected[first.token, each.token, text.replace("[MASK]", each.token)] = probability
    found = {(*each.tokens, each.text): each.probability for each in answer.joint}
    assert found == pytest.approx(expected, abs=1e-9)
    assert sum(found.values()) == pytest.approx(1)
    joint = [each.probability for each in answer.joint]
    assert joint == sorted(joint, reverse=True)
    (best,) = model.fill_mask(tree, 9, top_k=1, candidates=["ga"], joint=True).joint
    assert (best.tokens, best.probability) == (("ga", "ga"), pytest.approx(1))


def test_masks_are_filled_one_by_one_unless_jointly(model, tree):
    answer = model.fill_mask(tree, 9)
    assert answer.joint == ()
    assert "joint" not in answer.to_json()


@pytest.mark.parametrize("context", ["tree", "none"])
def test_pseudo_log_likelihood(model, tree, context, monkeypatch):
    """Σ log p(piece | all others): each place is masked alone, whatever the batches."""
    ids = tokenizer().encode(tree.nodes[4].text)
    expected = [
        float(probabilities(model.task, tree, 4, [*ids[:place], MASK, *ids[place + 1 :]], place, context)[token].log())
        for place, token in enumerate(ids)
    ]
    for tokens in (16_384, 1):
        for module in (mask_query, score):
            monkeypatch.setattr(module, "TOKENS", tokens)
        answer = model.score(tree, "t.4", context=context)
        assert answer.pseudo_log_likelihood == pytest.approx(sum(expected), abs=1e-5)
        assert [each.log_probability for each in answer.tokens] == pytest.approx(expected, abs=1e-5)
        assert [each.token for each in answer.tokens] == tree.nodes[4].text.split()
        assert answer.context == context


def test_score_of_an_empty_text(model):
    assert model.score(Tree((Node("", id="a"),), id="t"), "a").pseudo_log_likelihood == 0.0


def test_score_of_an_empty_text_without_special_tokens():
    input = TextInput(max_tokens=32, context="none", layout="plain")
    assert MaskFiller(bert_task(input=input)).score("").pseudo_log_likelihood == 0.0


def test_post_can_be_filled(model):
    tree = Tree((Node("aa [MASK] be", id="a"), Node("co", (0,), id="b")), id="t")
    answer = model.fill_mask(tree, "a")
    assert answer.ancestors == ()
    expected = probabilities(model.task, tree, 0, tokenizer().encode("aa [MASK] be", masks=True), 1).max()
    assert answer.masks[0].tokens[0].probability == pytest.approx(float(expected), abs=1e-6)


def test_bert_with_ancestors_in_its_row():
    model = MaskFiller(bert_task(input=TextInput(max_tokens=32, concatenate=40)).eval())
    tree = Tree((Node("aa be co", id="a"), Node("da [MASK]", (0,), id="b")), id="t")
    ids = tokenizer().encode("da [MASK]", masks=True)
    answer = model.fill_mask(tree, "b", top_k=1)
    expected = probabilities(model.task, tree, 1, ids, 1)
    assert answer.masks[0].tokens[0].probability == pytest.approx(float(expected.max()), abs=1e-6)
    changed = with_text(tree, 0, "ha he hi")
    assert model.fill_mask(changed, "b", top_k=1) != answer


def test_filling_leaves_the_model_unchanged(model, tree):
    model.task.train()
    model.fill_mask(tree, 9)
    model.score(tree, 9)
    assert model.task.training
    model.task.eval()
    model.score(tree, 9)
    assert not model.task.training


def test_chained_models_fill_whole_texts(tree):
    """A model that chains long texts fills a text in one row, which may be as long as the model's positions."""
    model = MaskFiller(tree_task(input=TextInput(max_tokens=8, overflow="chain")).eval())
    long = with_text(tree, 0, " ".join(["aa"] * 20))
    answer = model.fill_mask(long, 9, top_k=1)
    assert [mask.position for mask in answer.masks] == [2, 4]
    assert answer.ancestors == ("t.0", "t.6", "t.7", "t.8")
    # The ancestors are the post in four parts and the three comments, as if each were a node of its own.
    chained = Tree(
        (
            Node(" ".join(["aa"] * 6), id="0"),
            *(Node(" ".join(["aa"] * size), (parent,), id=str(parent + 1)) for parent, size in enumerate((6, 6, 2))),
            *(Node(long.nodes[6 + place].text, (3 + place,), id=str(4 + place)) for place in range(4)),
        ),
        id="u",
    )
    assert model.fill_mask(chained, 7, top_k=1).masks == answer.masks


@pytest.mark.parametrize(
    ("node", "options", "message"),
    [
        ("t.9", {"context": "mismatched"}, "no other tree"),
        ("t.9", {"context": "sibling-branch"}, "reads a random other branch"),
        ("t.3", {}, r"holds no \[MASK\]"),
        ("zz", {}, "no node 'zz'"),
        (99, {}, "no node 99"),
        ("t.9", {"candidates": ["aa", ""]}, "no piece"),
    ],
)
def test_invalid_requests_are_refused(model, tree, node, options, message):
    with pytest.raises(RamifyError, match=message):
        model.fill_mask(tree, node, **options)


def test_a_text_without_a_mask_is_named(model):
    with pytest.raises(RamifyError, match=r"the text 'aa be' holds no \[MASK\]"):
        model.fill_mask("aa be")


def test_texts_too_long_are_refused(model):
    tree = Tree((Node("aa " * 40 + "[MASK]", id="a"),), id="t")
    with pytest.raises(RamifyError, match="41 tokens; this model reads 30"):
        model.fill_mask(tree, "a")


def test_roots_of_a_forest(model):
    """A chat log has several roots; each is a post that reads nothing."""
    tree = Tree((Node("aa", id="a"), Node("be [MASK]", id="b"), Node("co [MASK]", (1,), id="c")), id="t")
    assert tree.parent.tolist() == [NO_PARENT, NO_PARENT, 1]
    assert model.fill_mask(tree, "b").ancestors == ()
    assert model.fill_mask(tree, "c").ancestors == ("b",)


@pytest.mark.parametrize(
    ("asked", "reason"), [({"top_k": 0}, "top_k must be at least 1"), ({"candidates": []}, "holds no words")]
)
def test_empty_requests_are_refused(asked, reason):
    with pytest.raises(RamifyError, match=reason):
        MaskFiller(tree_task()).fill_mask(Tree((Node("aa [MASK]"),)), 0, **asked)


def test_root_context_reads_the_post_alone(model, tree):
    assert model.fill_mask(tree, "t.9", context="root").ancestors == ("t.0",)
    assert model.score(tree, "t.9", context="root").ancestors == ("t.0",)


@pytest.mark.parametrize("context", ["mismatched", "sibling-branch"])
def test_model_trained_on_other_comments_ancestors_reads_the_tree(context):
    model = MaskFiller(tree_task(input=TextInput(max_tokens=32, context=context)))
    tree = Tree((Node("ab ba"), Node("aa [MASK]", parents=(0,))))
    assert model.fill_mask(tree, 1).context == "tree"

"""The attention weights of a text: their tokens, kinds and sums, the streams of XLNet, and sources and targets."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import bert_task, tree_task, words_task
from fixtures.parallel import SEQ2SEQ, TRANSFORMER, translations
from ramify.batching.text_input import TextInput
from ramify.batching.views.streams import StreamInput
from ramify.errors import CannotError, RamifyError
from ramify.inference import attention, permutation
from ramify.inference.embed import Embedder
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import DenoisingPipeline, PermutationPipeline
from ramify.inference.translate import TextGenerator, Translator, next_token_pipeline
from ramify.models.xlnet import XLNet, XLNetConfig
from ramify.tasks.denoising_lm import DenoisingLM, DenoisingLMConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree

TREE = Tree(
    (
        Node("ba be bi", id="post"),
        Node("ce da", (0,), id="above"),
        Node("ha hi gu", (0,), id="aside"),
        Node("ce [MASK] da", (1,), id="below"),
    ),
    id="t",
)
OWN = ("[CLS]", "ce", "[MASK]", "da", "[SEP]")


def kinds(answer):
    return [(table.stack, table.kind, table.node) for table in answer.attention]


def sums(table):
    return np.stack([head.weights.sum(-1) for head in table.heads])


def test_a_node_and_its_ancestors():
    answer = MaskFiller(words_task().eval()).attention(TREE, "below")
    assert (answer.node, answer.context, answer.ancestors) == ("below", "tree", ("post", "above"))
    own, cross, output, *encoder = answer.attention
    assert kinds(answer) == [
        ("decoder", "self", "below"),
        ("decoder", "cross", "below"),
        ("output", "cross", "below"),
        ("encoder", "self", "post"),
        ("encoder", "self", "above"),
    ]
    assert (own.queries, own.keys) == (OWN, OWN)
    for table in (cross, output):
        assert (table.queries, table.keys) == (OWN, ("post", "above"))
    assert [table.keys for table in encoder] == [("[CLS]", *text.split(), "[SEP]") for text in ("ba be bi", "ce da")]
    assert [(head.layer, head.head) for head in own.heads] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [(head.layer, head.head) for head in output.heads] == [(1, 1)]
    for table in answer.attention:
        assert sums(table) == pytest.approx(1)
        assert {head.weights.shape for head in table.heads} == {(len(table.queries), len(table.keys))}


def test_columns_belong_to_their_ancestors():
    """Another text of an ancestor changes the weights as if the columns changed places when the two texts do."""
    model = MaskFiller(tree_task().eval())
    swapped = Tree((Node("ce da", id="post"), Node("ba be bi", (0,), id="above"), *TREE.nodes[2:]), id="t")
    weights, other = (model.attention(tree, "below").attention[1].heads[0].weights for tree in (TREE, swapped))
    assert np.abs(weights[:, 0] - weights[:, 1]).max() > 1e-3
    assert other == pytest.approx(weights[:, ::-1])


@pytest.mark.parametrize(
    ("context", "read"), [("tree", ["post", "above"]), ("parent", ["above"]), ("root", ["post"]), ("none", [])]
)
def test_context(context, read):
    answer = MaskFiller(tree_task().eval()).attention(TREE, "below", context=context)
    crosses = [("decoder", "cross", "below")] if read else []
    assert kinds(answer) == [("decoder", "self", "below"), *crosses, *(("encoder", "self", each) for each in read)]
    assert [table.keys for table in answer.attention if table.kind == "cross"] == ([tuple(read)] if read else [])


def test_null_context():
    answer = MaskFiller(tree_task(input=TextInput(max_tokens=32, context="null")).eval()).attention(TREE, "below")
    assert kinds(answer) == [("decoder", "self", "below"), ("decoder", "cross", "below")]
    assert answer.attention[1].keys == ("null",)


def test_parts_of_chained_ancestors():
    words = "ba be bi ce da"
    tree = Tree((Node(words, id="long"), Node("ha", (0,), id="short")), id="t")
    answer = MaskFiller(tree_task(input=TextInput(max_tokens=4, overflow="chain")).eval()).attention(tree, "short")
    assert answer.attention[1].keys == ("long", "long (2)", "long (3)")
    assert [table.keys[1:-1] for table in answer.attention[2:]] == [("ba", "be"), ("bi", "ce"), ("da",)]


def test_models_of_the_bert_family():
    model = MaskFiller(bert_task().eval())
    answer = model.attention("ce [MASK] da")
    assert kinds(answer) == [("encoder", "self", "")]
    assert answer.attention[0].queries == OWN
    bare = Embedder(model.backbone, model.tokenizer, model.input)
    for own, other in zip(answer.attention[0].heads, bare.attention("ce [MASK] da").attention[0].heads, strict=True):
        assert np.array_equal(own.weights, other.weights)
    beside = MaskFiller(bert_task(input=TextInput(max_tokens=32, concatenate=64)).eval()).attention(TREE, "below")
    assert beside.attention[0].keys == (
        "[CLS]",
        "ba",
        "be",
        "bi",
        "[SEP]",
        "ce",
        "da",
        "[SEP]",
        "ce",
        "[MASK]",
        "da",
        "[SEP]",
    )
    assert model.attention("").attention[0].keys == ("[CLS]", "[SEP]")


def test_layers_and_heads_are_chosen():
    model = MaskFiller(tree_task().eval())
    whole = model.attention(TREE, "below")
    for layer, head in ((2, None), (None, 2), (1, 2)):
        found = {
            (each.layer, each.head)
            for table in model.attention(TREE, "below", layer=layer, head=head).attention
            for each in table.heads
        }
        assert found == {
            (number, each) for number in (1, 2) for each in (1, 2) if layer in (None, number) and head in (None, each)
        }
    # The encoder has one layer.
    assert kinds(model.attention(TREE, "below", layer=2)) == [("decoder", "self", "below"), ("decoder", "cross", "below")]
    chosen = model.attention(TREE, "below", layer=2, head=1).attention[0].heads
    assert [(each.layer, each.head) for each in chosen] == [(2, 1)]
    assert np.array_equal(chosen[0].weights, whole.attention[0].heads[2].weights)
    for wrong, message in (({"layer": 3}, "layer=3 is not in this model. Choose 1 to 2"), ({"head": 0}, "Choose 1 to 2")):
        with pytest.raises(RamifyError, match=message):
            model.attention(TREE, "below", **wrong)


def test_refusals(monkeypatch):
    model = MaskFiller(tree_task().eval())
    with pytest.raises(RamifyError, match=r"has 4 nodes\. Name one of them"):
        model.attention(TREE)
    with pytest.raises(RamifyError, match="has 40 tokens; this model reads 30"):
        model.attention("ba " * 40)
    monkeypatch.setattr(attention, "MAX_PAIRS", 5**2 + 5**2 + 4**2 - 1)
    with pytest.raises(RamifyError, match="every head would have 66 weights, which is above 65"):
        model.attention(TREE, "below")
    assert model.attention(TREE, "below", context="parent")
    monkeypatch.setattr(type(model.backbone), "records_attention", False)
    with pytest.raises(CannotError, match=r"this TreeMLM has no attention heads\. Choose a Transformer of texts"):
        model.attention("ba")


# --- XLNet --------------------------------------------------------------------------------------------------------------------

TEXT = "the moon had not risen over the hill"


@pytest.fixture(scope="module")
def words():
    return Tokenizer.train([TEXT] * 30, kind="unigram", vocab_size=60, marks=True)


def backbone(words):
    torch.manual_seed(0)
    sizes = {"dim": 16, "num_layers": 2, "num_heads": 2, "ffn_dim": 24, "memory": 3, "memory_start": "zeros"}
    model = XLNet(XLNetConfig(vocab_size=words.vocab_size, **sizes)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model


@pytest.fixture(scope="module")
def model(words):
    return PermutationPipeline(PermutationLM(backbone(words), words, StreamInput(), PermutationLMConfig()).double().eval())


def streams(answer):
    assert kinds(answer) == [("streams", "content", ""), ("streams", "query", "")]
    return [np.stack([head.weights for head in table.heads]) for table in answer.attention]


def test_each_token_is_predicted_from_all_others(model, words, monkeypatch):
    answer = model.attention(TEXT)
    named = tuple(words.token(each) for each in words.encode(TEXT))
    assert [(table.queries, table.keys) for table in answer.attention] == [(named, named)] * 2
    content, query = streams(answer)
    count = len(named)
    assert content.shape == query.shape == (4, count, count)
    assert (content > 0).all()
    assert np.array_equal(query > 0, np.broadcast_to(~np.eye(count, dtype=bool), query.shape))
    assert content.sum(-1) == pytest.approx(1)
    assert query.sum(-1) == pytest.approx(1)
    # One at a time gives the same.
    monkeypatch.setattr(permutation, "RECORDED", 1)
    assert streams(model.attention(TEXT))[1] == pytest.approx(query)


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_streams_follow_an_order(model, order):
    answer = model.attention(TEXT, order=order, seed=3)
    ranks = np.array(answer.ranks)
    count = len(ranks)
    expected = {"forward": list(range(count)), "backward": list(range(count))[::-1]}
    assert sorted(ranks) == list(range(count))
    assert answer.order == order
    assert order == "random" or ranks.tolist() == expected[order]
    content, query = streams(answer)
    assert np.array_equal(content > 0, np.broadcast_to(ranks <= ranks[:, None], content.shape))
    assert np.array_equal(query > 0, np.broadcast_to(ranks < ranks[:, None], query.shape))
    assert query.sum(-1) == pytest.approx(np.broadcast_to(ranks > 0, query.shape[:2]).astype(float))
    assert model.attention(TEXT, order=order, seed=3).ranks == answer.ranks


def test_masks_read_all_other_words(model, words):
    text = "the moon [MASK] not risen [MASK] the hill"
    ids = np.array(words.encode(text, masks=True))
    content, query = streams(model.attention(text))
    hidden = ids == words.mask_id
    assert query.shape == (4, 2, len(ids))
    assert np.array_equal(query > 0, np.broadcast_to(~hidden, query.shape))
    assert np.array_equal(content[:, ~hidden] > 0, np.broadcast_to(~hidden, content[:, ~hidden].shape))
    with pytest.raises(RamifyError, match=r"order=forward needs a text without \[MASK\]"):
        model.attention(text, order="forward")


def test_other_streams(words, model):
    denoising = DenoisingPipeline(DenoisingLM(backbone(words), words, StreamInput(), DenoisingLMConfig()).double().eval())
    answer = denoising.attention(TEXT, layer=1, head=2)
    assert kinds(answer) == [("streams", "content", "")]
    (head,) = answer.attention[0].heads
    assert (head.layer, head.head) == (1, 2)
    assert (head.weights > 0).all()
    for wrong, message in (
        (("",), "has 0 tokens; this model reads 1 to"),
        ((TEXT * 200,), "tokens; this model reads 1 to"),
    ):
        for each in (model, denoising):
            with pytest.raises(RamifyError, match=message):
                each.attention(*wrong)
    with pytest.raises(RamifyError, match="context=tree needs a model that reads context"):
        model.attention(TEXT, context="tree")


@pytest.mark.ill_typed
def test_unknown_order(model):
    with pytest.raises(RamifyError, match="order='up' is not forward, backward or random"):
        model.attention(TEXT, order="up")


# --- models that predict texts token by token ---------------------------------------------------------------------------------

SOURCE, END, BEGIN = ("ba", "be", "bi", "[SEP]"), "[SEP]", "[CLS]"


def predictor(config):
    task, _ = translations(config)
    return next_token_pipeline(task.double().eval())


@pytest.fixture(scope="module")
def translator():
    return predictor(TRANSFORMER)


@pytest.fixture(scope="module")
def causal():
    return predictor(replace(TRANSFORMER, encoder_layers=0))


def test_a_source_and_its_target(translator):
    answer = translator.attention("ba be bi", target="ce da")
    assert (answer.node, answer.context, answer.ancestors, answer.target) == ("", "none", (), "ce da")
    assert kinds(answer) == [("encoder", "self", ""), ("decoder", "self", ""), ("decoder", "cross", "")]
    encoder, own, cross = answer.attention
    assert (encoder.queries, encoder.keys) == (SOURCE, SOURCE)
    assert own.queries == own.keys == (BEGIN, "ce", "da")
    # Weights belong to the token that is predicted with them.
    assert (cross.queries, cross.keys) == (("ce", "da", END), SOURCE)
    for table in answer.attention:
        assert [(head.layer, head.head) for head in table.heads] == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert {head.weights.shape for head in table.heads} == {(len(table.queries), len(table.keys))}
        assert sums(table) == pytest.approx(1)
        assert all((np.triu(head.weights, 1) == 0).all() for head in table.heads) == (table is own)
    mean = translator.source_attention(np.array(translator.tokenizer.encode("ba be bi")), "ce da")
    assert (mean.queries, mean.keys) == (cross.queries, cross.keys)
    assert mean.weights == pytest.approx(np.mean([head.weights for head in cross.heads if head.layer == 2], 0), abs=1e-6)


def test_a_source_without_a_target_is_translated(translator):
    tree = Tree((Node("ba be bi", id="one"), Node("ce", (0,), id="two")), id="t")
    answer = translator.attention(tree, "one", layer=1)
    best = translator.translate("ba be bi").translations[0].text
    assert (answer.node, answer.target) == ("one", best)
    given = translator.attention("ba be bi", layer=1, target=best)
    cross, other = (each.attention[-1] for each in (answer, given))
    # The longest translation has no end.
    assert cross.queries == other.queries[: len(cross.queries)]
    for head, again in zip(cross.heads, other.heads, strict=True):
        assert head.weights == pytest.approx(again.weights[: len(head.weights)])


def test_attention_of_a_recurrent_decoder():
    answer = predictor(SEQ2SEQ).attention("ba be bi", target="ce")
    assert kinds(answer) == [("decoder", "cross", "")]
    (table,) = answer.attention
    assert (table.queries, table.keys) == (("ce", END), SOURCE)
    assert sums(table) == pytest.approx(1)


def test_a_causal_model_reads_the_beginning_of_a_text(causal):
    assert isinstance(causal, TextGenerator)
    whole, part = (causal.attention(text) for text in ("ba be bi bo", "ba be"))
    assert kinds(whole) == [("decoder", "self", "")]
    assert whole.target is None
    assert whole.attention[0].queries == whole.attention[0].keys == (BEGIN, "ba", "be", "bi", "bo")
    assert sums(whole.attention[0]) == pytest.approx(1)
    for head, beginning in zip(whole.attention[0].heads, part.attention[0].heads, strict=True):
        assert head.weights[:3] == pytest.approx(np.pad(beginning.weights, ((0, 0), (0, 2))))
    assert causal.attention("").attention[0].keys == (BEGIN,)


def test_refusals_of_models_that_predict_texts(translator, causal, monkeypatch):
    assert isinstance(translator, Translator)
    recurrent = replace(SEQ2SEQ, attention="none")
    for model in map(predictor, (recurrent, replace(recurrent, encoder_layers=0))):
        with pytest.raises(CannotError, match=r"this Seq2Seq has no attention heads\. Choose .*model\.attention=dot"):
            model.attention("ba")
    with pytest.raises(RamifyError, match="target='ba' needs a model that predicts texts from sources, but this is a TextGen"):
        causal.attention("ba", target="ba")
    for model in (translator, causal):
        with pytest.raises(RamifyError, match="context=tree needs a model that reads context; this Transformer reads a text"):
            model.attention("ba", context="tree")
    with pytest.raises(RamifyError, match="the text ' ' has no tokens, so nothing can be predicted from it"):
        translator.attention(" ")
    monkeypatch.setattr(attention, "MAX_PAIRS", 4**2 + 3 * 4 + 3**2 - 1)
    with pytest.raises(RamifyError, match="every head would have 37 weights, which is above 36"):
        translator.attention("ba be bi", target="ce da")
    assert translator.attention("ba be", target="ce da")
    longest = TRANSFORMER.max_tokens
    monkeypatch.setattr(attention, "MAX_PAIRS", longest**3)
    with pytest.raises(RamifyError, match=f"a text of {longest + 1} tokens is longer than model.max_tokens={longest}"):
        causal.attention("ba " * longest)

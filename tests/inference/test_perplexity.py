"""Likelihoods of texts under a gpt, and the perplexity of texts under models that score them."""

import math

import pytest
import torch

from fixtures import bert_task, tokenizer
from fixtures.letters import letters, pipeline
from ramify import Node, RamifyError, Tree
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.views.pairs import PairInput
from ramify.inference.documents.text import passages
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.perplexity import surprise
from ramify.inference.translate import next_token_pipeline
from ramify.models.transformer import TransformerConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM

TEXTS = ["ba be ba", "ce", "da de di do"]


@pytest.fixture(scope="module")
def gpt():
    torch.manual_seed(0)
    words = tokenizer()
    config = TransformerConfig(
        vocab_size=words.vocab_size, dim=16, num_heads=2, ffn_dim=32, encoder_layers=0, decoder_layers=1,
        position="learned", max_tokens=24, dropout=0.0,
    )  # fmt: skip
    return next_token_pipeline(NextTokenLM(config.build(), words, PairInput(), NextTokenConfig()).eval())


def test_a_likelihood_is_the_product_of_the_probabilities_of_generation(gpt):
    ids = gpt.tokenizer.encode(TEXTS[2])
    prompts = EncoderInput.of_texts(gpt.tokenizer.encode_batch([""]), gpt.tokenizer.layout("plain"), None)
    total = 0.0
    with torch.no_grad():
        scores, cache = gpt.task.start(prompts)
        for token in ids:
            total += float(torch.log_softmax(scores.double(), 1)[0, token])
            scores, cache = gpt.task.step(torch.tensor([token]), cache)
    found = gpt.score(TEXTS[2])
    assert found.log_likelihood == pytest.approx(total, rel=1e-5)
    assert (found.tokens, found.bytes, found.order) == (len(ids), 11, "forward")
    assert gpt.score(TEXTS) == [gpt.score(text) for text in TEXTS]


def test_texts_that_a_gpt_cannot_score_are_refused(gpt):
    for text, reason in (("", "has no tokens"), ("ba " * 40, "but this model reads at most 24"), ("語", "can spell nothing")):
        with pytest.raises(RamifyError, match=reason):
            gpt.score(text)
    with pytest.raises(RamifyError, match="order='backward' needs an XLNet"):
        gpt.score("ba", order="backward")


@pytest.mark.parametrize("kind", ["gpt", "masked"])
def test_perplexity_is_that_of_all_tokens_together(gpt, kind):
    model = gpt if kind == "gpt" else MaskFiller(bert_task().eval())
    scores = [model.score(text) for text in TEXTS]
    found = surprise(model, [*TEXTS, "", " "])
    assert found.tokens == sum(score.num_tokens for score in scores)
    assert found.perplexity == pytest.approx(math.exp(-sum(score.value for score in scores) / found.tokens))
    assert surprise(model, [""]).perplexity is None


def test_a_model_that_scores_no_texts_is_no_judge():
    with pytest.raises(RamifyError, match="a DocumentPipeline cannot score texts, so it gives no perplexity"):
        surprise(pipeline(), TEXTS)


def test_passages_are_sentences_of_one_paragraph():
    tree = letters()[1]
    whole = passages(tree)
    assert whole[:2] == ["Ann planted beans.", "They grew over the wall. The neighbour complained."]
    assert " ".join(whole).split() == " ".join(node.text for node in tree.nodes).split()
    assert passages(tree, words=3)[1:3] == ["They grew over the wall.", "The neighbour complained."]
    nodes = (Node("One two.", kind="document"), Node("Three.", (0,), kind="paragraph"), Node("Four.", (1,), kind="sentence"))
    assert passages(Tree(nodes)) == ["One two.", "Three.", "Four."]

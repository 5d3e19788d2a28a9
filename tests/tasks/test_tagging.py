"""The tagging task: its losses by enumeration, its windows, and frozen features of biLMs and of encoders of translators."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ramify
from fixtures import bert_task
from fixtures import tokenizer as words
from fixtures.running import elmo_task
from fixtures.tagged import sentences, tagged_store
from ramify import hub
from ramify.batching.tagged_batch import TagCollator
from ramify.batching.views.labelled import LabelInput
from ramify.batching.views.pairs import PairInput
from ramify.dataset.token_tags import words_of
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.inference.tag import tagged_batches, view_of
from ramify.inference.translate import next_token_pipeline
from ramify.models.recurrent import Seq2SeqConfig
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM
from ramify.tasks.tagging import Tagging, TaggingConfig, allowed_tags, tag_names

TAGS = ("O", "B-X", "I-X")
TEXTS = ["aa ae ba", "", "bi", "ba be bi bo bu ca ce"]


def made(*, max_tokens=32, input=None, **settings):
    torch.manual_seed(0)
    config = TaggingConfig(tags=TAGS, dropout=0.0, **settings)
    task = Tagging(bert_task().backbone, words(), input or LabelInput(max_tokens=max_tokens, pair="none"), config)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return task.double().eval()


def batch_of(task, texts=TEXTS, seed=0):
    random = np.random.default_rng(seed)
    places = [words_of(text) for text in texts]
    tags = [random.integers(len(TAGS), size=len(row)) for row in places]
    view = view_of(task, texts, places, tags)
    return TagCollator.of(view)([view.example(number) for number in range(len(texts))]), view


@pytest.mark.parametrize("max_tokens", [32, 6])
def test_the_loss_of_a_crf_over_the_windows_of_a_text(max_tokens):
    """The negative log-probability of a text's tags, of all sequences of tags, however many rows it has."""
    task = made(decoder="crf", max_tokens=max_tokens)
    batch, _ = batch_of(task)
    assert (len(batch.input.rows) > len(TEXTS)) == (max_tokens == 6)
    scores = task.scores(task.word_states(batch)).detach()
    expected = 0.0
    for its_scores, its_tags in zip(
        scores.split(batch.part.texts.host_lengths.tolist()), batch.targets.split(batch.part.texts.host_lengths.tolist())
    ):
        if not len(its_tags):
            continue
        values = {}
        for path in itertools.product(range(3), repeat=len(its_tags)):
            value = float(task.crf.start[path[0]].detach() + task.crf.end[path[-1]].detach())
            value += sum(float(its_scores[place, tag]) for place, tag in enumerate(path))
            values[path] = value + sum(float(task.crf.between[pair].detach()) for pair in itertools.pairwise(path))
        z = torch.tensor(list(values.values()), dtype=torch.float64).logsumexp(0)
        expected += float(z) - values[tuple(its_tags.tolist())]
    found = next(iter(task.losses(batch, {"tag": 1.0}, "main", None, None)))[0]["tag"]
    assert found.item() == pytest.approx(expected, abs=1e-9)
    assert task.counts(batch, "main") == {"tag": 11.0}


def test_the_loss_of_single_words():
    task = made()
    batch, _ = batch_of(task)
    scores = task.scores(task.word_states(batch))
    found = next(iter(task.losses(batch, {"tag": 2.0}, "main", None, None)))[0]["tag"]
    torch.testing.assert_close(found, F.cross_entropy(scores, batch.targets, reduction="sum") / 2)


def test_scores_of_words_are_those_of_their_texts_alone():
    """Windows, batches and orders change no score by more than rounding."""
    for settings in ({}, {"between": "bilstm", "hidden": 3}):
        task = made(max_tokens=6, **settings)
        batch, _ = batch_of(task)
        with torch.no_grad():
            together = task.scores(task.word_states(batch)).split(batch.part.texts.host_lengths.tolist())
            for text, scores in zip(TEXTS, together, strict=True):
                alone, _ = batch_of(task, [text])
                torch.testing.assert_close(task.scores(task.word_states(alone)), scores, rtol=1e-9, atol=1e-9)


def test_predictions_are_well_formed_with_a_crf():
    names = tag_names([["B-X", "O", "I-Y"]], "spans")
    assert names == ("O", "B-X", "I-X", "B-Y", "I-Y")
    allowed = allowed_tags(names)
    assert allowed.start.tolist() == [True, True, False, True, False]
    assert allowed.transitions[:, 2].tolist() == [False, True, True, False, False]
    assert allowed.transitions[:, 0].all()
    assert tag_names([["N", "V"]], "plain") == ("N", "V")
    task = made(decoder="crf")
    with torch.no_grad():
        # The tag inside a span is the likeliest by far.
        task.output.bias.copy_(torch.tensor([0.0, 0.0, 30.0]))
    _, view = batch_of(task)
    for batch in tagged_batches(task, view):
        for part in batch.texts:
            tags = batch.tags[part].tolist()
            assert not tags or tags == [1, *[2] * (len(tags) - 1)]
        marginals = task.posterior(batch.scores, batch.batch).marginals
        torch.testing.assert_close(marginals.sum(1), torch.ones(len(batch.tags), dtype=torch.float64))


def test_span_probabilities_add_up_to_the_marginals():
    """All spans that begin with a word have together the probability of its tag B."""
    for decoder in ("linear", "crf"):
        task = made(decoder=decoder)
        _, view = batch_of(task, ["aa ae ba be"])
        (batch,) = tagged_batches(task, view)
        with torch.no_grad():
            posterior = task.posterior(batch.scores, batch.batch)
        ends = torch.tensor([True, True, False])
        for start in range(4):
            spans = {more: torch.tensor([1, *[2] * more]) for more in range(4 - start)}
            with torch.no_grad():
                shares = [
                    posterior.of_stretch(start, tags, None if start + more == 3 else ends) for more, tags in spans.items()
                ]
            total = float(sum(shares))
            assert total == pytest.approx(float(posterior.marginals[start, 1]), abs=1e-9)


def test_logits_equal_those_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")
    torch.manual_seed(0)
    sizes = {"vocab_size": words().vocab_size, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    theirs = transformers.BertForTokenClassification(
        transformers.BertConfig(**sizes, intermediate_size=40, max_position_embeddings=40, num_labels=3)
    ).eval()
    theirs.bert.save_pretrained(tmp_path)
    words().save(tmp_path)
    start = hub.encoder_of(str(tmp_path))
    backbone = start.model.build()
    start.model.initialize(backbone, hub.checkpoint(str(tmp_path)))
    task = Tagging(backbone, words(), LabelInput(max_tokens=32, pair="none"), TaggingConfig(tags=TAGS)).eval()
    task.output.load_state_dict(theirs.classifier.state_dict())
    batch, _ = batch_of(task)
    with torch.no_grad():
        ours = task.scores(task.word_states(batch)).split(batch.part.texts.host_lengths.tolist())
        for text, scores in zip(TEXTS, ours, strict=True):
            ids = torch.tensor(np.array([words().layout("bert").wrap(words().encode(text))]))
            # Every word is one token.
            torch.testing.assert_close(scores, theirs(ids).logits[0, 1:-1], rtol=0, atol=1e-5)


# --- features of frozen models -----------------------------------------------------------------------------------------


def translator():
    backbone = Seq2SeqConfig(dim=16, encoder_layers=1, decoder_layers=1, hidden=16).for_vocabulary(words().vocab_size).build()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return next_token_pipeline(NextTokenLM(backbone, words(), PairInput(layout="t5"), NextTokenConfig()))


STARTS = {
    # Peters et al. 2018: all layers of a biLM of characters.
    "ELMo": lambda: BidirectionalPipeline(elmo_task(own=words())),
    # Peters et al. 2017: a biLM of words.
    "TagLM": lambda: BidirectionalPipeline(elmo_task(own=words(), input="words")),
    # McCann et al. 2017: the encoder of a translator.
    "CoVe": translator,
}


@pytest.mark.parametrize("name", STARTS)
def test_a_tagger_on_frozen_states(tmp_path, name):
    """The states of a frozen model go into a BiLSTM-CRF tagger, which learns; the model stays as it is to the bit."""
    pipeline = STARTS[name]()
    hub.save(pipeline, tmp_path / "start")
    store = tagged_store(tmp_path / "data", sentences(150), sentences(20, seed=1))
    run = RECIPES["tag"](str(store.path), init=str(tmp_path / "start"), mode="features", decoder="crf", epochs=8.0, lr=0.02)
    run = run.changed({"input.max_tokens": "16", "task.hidden": "24", "train.budget": "8", "train.patience": "0"})
    prepared, progress = execute(run, tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    for key, value in pipeline.backbone.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[key], value), key
    assert model.task.mix.gamma != 1
    assert len(model.task.mix.weights) == len(model.task.mixed)
    assert progress.best > 0.4
    assert prepared.task.bilstm is not None


def test_an_elmo_tags_words_that_its_vocabulary_lacks_by_their_letters(tmp_path):
    hub.save(STARTS["ELMo"](), tmp_path / "start")
    store = tagged_store(tmp_path / "data", sentences(20), sentences(5, seed=1))
    run = RECIPES["tag"](str(store.path), init=str(tmp_path / "start"), mode="features")
    task = run.changed({"input.max_tokens": "16"}).prepare(tmp_path / "run").task.eval()
    texts = ["xyzzy ba", "plugh ba", "xyzzy ba"]
    batch = TagCollator.of(view := view_of(task, texts, [words_of(text) for text in texts], None))(
        [view.example(number) for number in range(3)]
    )
    assert (batch.input.ids == words().unk_id).sum() == 3
    with torch.no_grad():
        one, other, again = task.scores(task.word_states(batch)).view(3, 2, -1).unbind()
    assert not torch.allclose(one[0], other[0])
    torch.testing.assert_close(one, again)
    assert math.isfinite(float(one.sum()))

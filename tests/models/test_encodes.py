"""Every backbone that encodes keeps the contract of `Encodes`, whatever its rows, layers and vectors."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from fixtures import W, bert_task, discussion, forest, text, tree_task, whole
from fixtures import tokenizer as words
from fixtures.letters import pipeline as document_pipeline
from fixtures.letters import tokenizer as letter_pieces
from fixtures.running import elmo_task
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.stream_batch import plain_rows
from ramify.batching.text_input import TextInput
from ramify.batching.views.documents import LevelInput
from ramify.batching.views.pairs import PairInput
from ramify.batching.views.streams import StreamInput
from ramify.errors import RamifyError
from ramify.inference.base import Pipeline
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import DenoisingPipeline, PermutationPipeline
from ramify.inference.translate import NextTokenPipeline, next_token_pipeline
from ramify.models.bag import BagConfig
from ramify.models.base import Encodes, TextModelConfig
from ramify.models.cnn import CnnConfig
from ramify.models.recurrent import RecurrentConfig, RecurrentEncoder, Seq2SeqConfig
from ramify.models.transformer import TransformerConfig
from ramify.models.xlnet import XLNet, XLNetConfig
from ramify.nn.ragged import Rows, inverse
from ramify.tasks.denoising_lm import DenoisingLM, DenoisingLMConfig
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig


def xlnet_pipeline(kind: Any = PermutationPipeline, **changes: Any) -> Pipeline:
    torch.manual_seed(0)
    sizes = {"vocab_size": words().vocab_size, "dim": 8, "num_layers": 3, "num_heads": 2, "ffn_dim": 12, "dropout": 0.0}
    backbone = XLNet(XLNetConfig(**(sizes | changes)))
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    task: Any = PermutationLM(backbone, words(), StreamInput(row_tokens=30, reused_tokens=10), PermutationLMConfig())
    if kind is DenoisingPipeline:
        task = DenoisingLM(backbone, words(), StreamInput(row_tokens=30, reused_tokens=10), DenoisingLMConfig())
    return kind(task.double())


def agent_pipeline(**changes: Any) -> Pipeline:
    pipeline = document_pipeline(max_children=(30, 4, 4, 4), input=LevelInput(), dropout=0.0, attention_dropout=0.0, **changes)
    pipeline.module.double()
    return pipeline


BLIND = TextInput(max_tokens=32, context="none")


def recurrent_pipeline(**changes: Any) -> Pipeline:
    torch.manual_seed(0)
    sizes = {"vocab_size": words().vocab_size, "dim": 8, "hidden": 6, "num_layers": 2, "dropout": 0.0, "max_tokens": 64}
    backbone = RecurrentEncoder(RecurrentConfig(**(sizes | changes)))
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.mul_(2)
    return MaskFiller(MaskedLM(backbone, words(), BLIND, MaskedLMConfig(head="bert")).double())


def small_pipeline(config: TextModelConfig) -> Pipeline:
    torch.manual_seed(0)
    backbone = config.for_vocabulary(words().vocab_size).build()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return MaskFiller(MaskedLM(backbone, words(), BLIND, MaskedLMConfig(tie_weights=False)).double())


def generative_pipeline(config: Any) -> Pipeline:
    torch.manual_seed(0)
    backbone = config.for_vocabulary(words().vocab_size).build()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    layout = "t5" if backbone.reads_source else "roberta"
    task = NextTokenLM(backbone, words(), PairInput(max_tokens=32, max_source_tokens=32, layout=layout), NextTokenConfig())
    return next_token_pipeline(task.double())


def transformer_pipeline(**changes: Any) -> Pipeline:
    sizes = {"dim": 8, "num_heads": 2, "ffn_dim": 12, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    return generative_pipeline(TransformerConfig(**(sizes | changes)))


def seq2seq_pipeline(**changes: Any) -> Pipeline:
    sizes = {"dim": 8, "hidden": 6, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    return generative_pipeline(Seq2SeqConfig(**(sizes | changes)))


T5 = {"norm": "pre", "norm_kind": "rms", "bias": False, "position": "relative", "attention_scale": "none", "gated": True}

PIPELINES: dict[str, Callable[[], Pipeline]] = {
    **{
        f"bert, {pooling}": lambda pooling=pooling: MaskFiller(bert_task(pooling=pooling))
        for pooling in ("mean", "cls", "pooler")
    },
    "bert, pre-norm": lambda: MaskFiller(bert_task(norm="pre", pooling="attn")),
    "bert, relative": lambda: MaskFiller(bert_task(position="relative", pooling="pooler", norm="pre")),
    "albert, relative": lambda: MaskFiller(bert_task(position="relative", shared_layers=True, task={"head": "bert"})),
    "albert": lambda: MaskFiller(bert_task(shared_layers=True, num_layers=3, embedding_dim=4, task={"head": "bert"})),
    "tree-mlm": lambda: MaskFiller(tree_task()),
    "tree-mlm, cls": lambda: MaskFiller(tree_task(pooling="cls", share_embeddings=False, norm="pre")),
    "bag": lambda: small_pipeline(BagConfig(dim=8)),
    "cnn": lambda: small_pipeline(CnnConfig(dim=8, maps=5, dropout=0.0)),
    "cnn, wide": lambda: small_pipeline(CnnConfig(dim=8, widths=(1, 9), maps=5, dropout=0.0, activation="gelu")),
    "cnn, multichannel": lambda: small_pipeline(CnnConfig(dim=8, maps=4, dropout=0.0, channels="multichannel", vectors="-")),
    "recurrent, lstm": recurrent_pipeline,
    "recurrent, gru": lambda: recurrent_pipeline(cell="gru", direction="forward"),
    "recurrent, rnn": lambda: recurrent_pipeline(cell="rnn", direction="backward"),
    "recurrent, projection": lambda: recurrent_pipeline(projection=3, num_layers=3, residual=True),
    **{
        f"elmo, {name}, recurrent": lambda settings=settings: BidirectionalPipeline(
            elmo_task(torch.float64, own=words(), dropout=0.0, **settings)
        )
        for name, settings in {
            "characters": {},
            "words": {"input": "words", "num_layers": 3},
            "forward": {"directions": "forward", "clip": 0.2},
        }.items()
    },
    "transformer": transformer_pipeline,
    "transformer, gpt": lambda: transformer_pipeline(encoder_layers=0, norm="pre", position="learned"),
    "transformer, t5": lambda: transformer_pipeline(**T5),
    "recurrent, seq2seq": seq2seq_pipeline,
    "recurrent, decoder": lambda: seq2seq_pipeline(encoder_layers=0, attention="none"),
    "xlnet": xlnet_pipeline,
    "xlnet, absolute": lambda: xlnet_pipeline(position="absolute", untie_biases=False),
    "xlnet, denoising": lambda: xlnet_pipeline(DenoisingPipeline, max_distance=4),
    "agent": agent_pipeline,
    "agent, transformer": lambda: agent_pipeline(cells="transformer"),
    "agent, full": lambda: agent_pipeline(padding="full"),
    "agent, skips": lambda: agent_pipeline(token_skip=True, compressor_skip="gelu"),
}


@dataclass(frozen=True)
class Case:
    name: str
    pipeline: Pipeline
    texts: list[str]

    @property
    def backbone(self) -> Any:
        return self.pipeline.backbone

    def rows(self, texts: list[str] | None = None) -> EncoderInput:
        encoded = self.pipeline.tokenizer.encode_batch(self.texts if texts is None else texts)
        return EncoderInput.of_texts(encoded, self.pipeline.layout, self.longest, long="truncate")

    @property
    def longest(self) -> int:
        """The length at which `embed` truncates rows."""
        input = self.pipeline.input
        if isinstance(self.pipeline, NextTokenPipeline):
            return self.pipeline.max_tokens
        if isinstance(input, TextInput):
            return input.max_tokens
        return input.room(self.pipeline.tokenizer) if isinstance(input, StreamInput) else self.backbone.max_tokens

    @property
    def pads(self) -> bool:
        """Whether rows are longer than their texts, so that the last state of a row is that of padding."""
        return self.name == "agent, full"


@pytest.fixture(params=PIPELINES, scope="module")
def case(request) -> Case:
    pipeline = PIPELINES[request.param]()
    pipeline.module.eval()
    random = np.random.default_rng(0)
    texts = [text(random, length) for length in (3, 11, 1, 0, 24, 8, 3, 60)]
    if "agent" in request.param:
        letters = letter_pieces().pieces[6:]
        texts = [" ".join(random.choice(letters, size=length)) for length in (3, 5, 1, 0, 7, 4)]
    return Case(request.param, pipeline, texts)


def parts(states: torch.Tensor, rows: Rows) -> list[torch.Tensor]:
    return list(states.split(rows.host_lengths.tolist()))


def equal(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_batch_is_each_row_alone(case):
    rows = case.rows()
    assert sorted(rows.source.tolist()) == list(range(len(case.texts)))
    together = case.backbone.encode_rows(rows, layers=True)
    vectors = case.backbone.vector(together)
    assert vectors.shape == (len(case.texts), case.backbone.vector_dim)
    for place, source in enumerate(rows.source.tolist()):
        alone = case.backbone.encode_rows(case.rows([case.texts[source]]), layers=True)
        for one, other in zip(together.layers, alone.layers, strict=True):
            equal(parts(one, together.rows)[place], other)
        equal(vectors[place], case.backbone.vector(alone)[0])


@torch.no_grad()
def test_layers_have_their_widths_and_end_with_the_last(case):
    rows = case.rows()
    every, last = case.backbone.encode_rows(rows, layers=True), case.backbone.encode_rows(rows)
    assert tuple(layer.shape[1] for layer in every.layers) == case.backbone.layer_dims()
    assert {len(layer) for layer in every.layers} == {every.rows.total}
    assert len(last.layers) == 1
    assert torch.equal(every.last, last.last)
    if not case.pads:
        assert every.rows.host_lengths.tolist() == rows.rows.host_lengths.tolist()
    for one, other in itertools.pairwise(every.layers):
        assert one.shape != other.shape or float((one - other).abs().max()) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("read", ["first", "last"])
def test_one_token_of_each_row_has_the_state_that_it_has_among_all(case, read):
    rows = case.rows()
    every, found = case.backbone.encode_rows(rows), case.backbone.encode_rows(rows, read=read)
    assert found.rows.host_lengths.tolist() == np.minimum(every.rows.host_lengths, 1).tolist()
    place = 0 if read == "first" else -1
    equal(found.last, torch.stack([part[place] for part in parts(every.last, every.rows) if len(part)]))
    with pytest.raises(RamifyError, match=rf'layers=True keeps all tokens, so read="{read}" cannot apply'):
        case.backbone.encode_rows(rows, layers=True, read=read)


@torch.no_grad()
@pytest.mark.parametrize("read", ["first", "last"])
def test_rows_without_tokens_may_share_a_group_with_others(case, read):
    lengths = np.array([3, 0, 2])
    rows = EncoderInput.of_rows(torch.arange(5, 10), Rows.build(lengths, keys=np.zeros(3, dtype=np.int64)))
    apart = EncoderInput.of_rows(rows.ids, Rows.build(lengths, keys=np.arange(3)))
    one = case.backbone.encode_rows(rows, read=read)
    assert one.rows.host_lengths.tolist() == [1, 0, 1]
    equal(one.last, case.backbone.encode_rows(apart, read=read).last)


@torch.no_grad()
def test_vectors_read_the_tokens_that_the_model_names(case):
    rows = case.rows()
    equal(case.backbone.vectors(rows), case.backbone.vector(case.backbone.encode_rows(rows)))


@torch.no_grad()
def test_recording_changes_nothing(case):
    rows = case.rows()
    record = {}
    observed = case.backbone.encode_rows(rows, layers=True, record=record)
    for one, other in zip(observed.layers, case.backbone.encode_rows(rows, layers=True).layers, strict=True):
        assert torch.equal(one, other)
    if any(name in case.name for name in ("recurrent", "cnn", "bag")):
        assert not record
        return
    ((_, layers),) = record.items()
    assert len(layers) == len(case.backbone.layer_dims()) - 1
    for layer in layers:
        ((_, weights),) = layer.items()
        sizes = observed.rows.host_lengths.tolist()
        assert [row.shape[1:] for row in weights] == [(size, size) for size in sizes]
        for row in weights:
            equal(row.sum(-1), torch.ones_like(row.sum(-1)))


def test_layers_have_parameters_of_their_own_and_none_is_left_out(case):
    """Each parameter of the path to a vector has one layer; the others get no gradient."""
    backbone = case.backbone
    prefixes = backbone.layer_prefixes()
    assert len(prefixes) == len(backbone.layer_dims())
    backbone.zero_grad(set_to_none=True)
    backbone.vectors(case.rows()).square().sum().backward()
    for name, parameter in backbone.named_parameters():
        layers = [number for number, names in enumerate(prefixes) if name.startswith(names)]
        assert len(layers) <= 1, name
        if parameter.grad is not None and parameter.grad.abs().sum() > 0:
            assert layers, name
    backbone.zero_grad(set_to_none=True)


def test_a_layer_receives_no_gradient_from_below_it(case):
    """The states after layer n depend on the parameters of layers up to n alone, so a name stands in the right layer."""
    backbone = case.backbone
    prefixes = backbone.layer_prefixes()
    for number in range(len(prefixes)):
        backbone.zero_grad(set_to_none=True)
        states = backbone.encode_rows(case.rows(), layers=True).layers[number]
        (states * torch.randn_like(states)).sum().backward()
        touched = {
            layer
            for name, parameter in backbone.named_parameters()
            for layer, names in enumerate(prefixes)
            if name.startswith(names) and parameter.grad is not None and parameter.grad.abs().sum() > 0
        }
        assert max(touched) <= number
        assert 0 in touched
        # A layer that shares all parameters with one below has none of its own.
        assert number in touched or not any(name.startswith("layers") for name in prefixes[number])
    backbone.zero_grad(set_to_none=True)


@torch.no_grad()
def test_a_row_without_tokens_has_the_zero_vector(case):
    layout = case.pipeline.tokenizer.layout("plain")
    ids, lengths = case.pipeline.tokenizer.encode_batch(["", case.texts[0], ""])
    rows = EncoderInput.of_texts((ids, lengths), layout, None)
    vectors = case.backbone.vectors(rows)[inverse(rows.source)]
    assert not vectors[0].any()
    assert not vectors[2].any()
    alone = EncoderInput.of_texts((ids, lengths[1:2]), layout, None)
    equal(vectors[1], case.backbone.vectors(alone)[0])
    empty = EncoderInput.of_texts((ids[:0], lengths[:1]), layout, None)
    assert not case.backbone.vectors(empty).any()
    assert len(case.backbone.vectors(EncoderInput.of_texts((ids[:0], lengths[:0]), layout, None))) == 0


@torch.no_grad()
def test_vectors_are_those_that_embed_gives(case):
    # In the layout of the saved input settings; a model that was trained with a context reads texts alone here.
    pipeline: Any = case.pipeline
    embedded = pipeline.embed(case.texts) if "agent" in case.name else pipeline.embed(case.texts, context="none")
    rows = case.rows()
    found = case.backbone.vectors(rows).numpy()
    np.testing.assert_allclose(found.astype(np.float32), embedded[rows.source], rtol=0, atol=2e-6)


def test_gradients_do_not_depend_on_the_batch(case):
    backbone = case.backbone

    def gradient(batches: list[list[str]]) -> dict[str, torch.Tensor]:
        backbone.zero_grad(set_to_none=True)
        for batch in batches:
            # Rows without tokens have a vector without a graph.
            if (rows := case.rows(batch)).rows.total:
                backbone.vectors(rows).pow(3).sum().backward()
        return {name: each.grad.clone() for name, each in backbone.named_parameters() if each.grad is not None}

    together, alone = gradient([case.texts]), gradient([[each] for each in case.texts])
    assert together.keys() == alone.keys()
    for name, each in together.items():
        assert torch.isfinite(each).all()
        torch.testing.assert_close(each, alone[name], rtol=1e-9, atol=1e-9)
    backbone.zero_grad(set_to_none=True)


def test_what_each_model_declares(case):
    backbone = case.backbone
    assert isinstance(backbone, Encodes)
    assert backbone.reads_context == ("tree" in case.name)
    assert backbone.max_tokens is None or backbone.max_tokens >= 28


# --- XLNet ----------------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"position": "absolute"}, {"max_distance": 3}, {"memory_start": "zeros"}])
def test_padding_is_never_read(changes):
    """Every row has the states that it has in a batch of rows of its own length."""
    pipeline = xlnet_pipeline(**changes)
    random = np.random.default_rng(3)
    lengths = np.array([1, 2, 5, 8, 9, 16, 17, 23])
    ids = random.integers(5, words().vocab_size, size=lengths.sum())
    rows = EncoderInput.of_texts((ids, lengths), pipeline.layout, None)
    encoded = pipeline.backbone.eval().encode_rows(rows)
    for place, part in enumerate(parts(encoded.last, encoded.rows)):
        expected = pipeline.backbone(plain_rows(np.split(ids, np.cumsum(lengths)[:-1])[rows.source[place]][None])).tokens[0]
        equal(part, expected)
        equal(pipeline.backbone.vector(encoded)[place], expected.mean(0))


@torch.no_grad()
def test_types_are_segments():
    pipeline = xlnet_pipeline()
    layout = words().layout("xlnet")
    one, other = words().encode_batch(["aa ab", "ba be bi"]), words().encode_batch(["ca", "do du"])
    rows = EncoderInput.of_pairs(one, other, layout, None)
    encoded = pipeline.backbone.eval().encode_rows(rows)
    for place, part in enumerate(parts(encoded.last, encoded.rows)):
        pieces = slice(int(rows.rows.offsets[place]), int(rows.rows.offsets[place + 1]))
        assert rows.token_types[pieces].tolist()[-1] == 2
        batch = replace(plain_rows(rows.ids[pieces][None].numpy()), segments=rows.token_types[pieces][None])
        equal(part, pipeline.backbone(batch).tokens[0])


# --- TreeMLM --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("position", ["none", "depth", "distance"])
@pytest.mark.parametrize("known", [False, True])
def test_rows_with_a_context_are_read_by_the_decoder(position, known):
    task = tree_task(context_position=position, output_attention=True).eval()
    batch = whole(task, forest([discussion(W, seed=1)]), predict_post=True)
    vectors = task.backbone.vectors(batch.node_context().texts)
    rows = batch.rows(context=True, vectors=vectors if known else None)
    expected = task.backbone(batch).decoded
    found = task.backbone.encode_rows(rows, layers=True)
    assert torch.equal(found.last, expected)
    assert tuple(each.shape[1] for each in found.layers) == task.backbone.layer_dims(context=True)
    for read, place in (("first", 0), ("last", -1)):
        kept = task.backbone.encode_rows(rows, read=read)
        equal(kept.last, torch.stack([part[place] for part in parts(expected, batch.targets)]))
    record = {}
    assert torch.equal(task.backbone.encode_rows(rows, record=record).last, expected)
    assert record.keys() == {"decoder", "output"} | (set() if known else {"encoder"})


def test_layers_of_rows_with_a_context_have_all_parameters():
    task = tree_task(context_position="distance", pooling="attn", share_embeddings=False, norm="pre")
    prefixes = task.backbone.layer_prefixes(context=True)
    assert len(prefixes) == len(task.backbone.layer_dims(context=True))
    batch = whole(task, forest([discussion(W, seed=1)]), predict_post=True)
    task.backbone.vectors(batch.rows(context=True)).square().sum().backward()
    for name, parameter in task.backbone.named_parameters():
        layers = [number for number, names in enumerate(prefixes) if name.startswith(names)]
        assert len(layers) == (parameter.grad is not None), name


@torch.no_grad()
def test_an_empty_context_is_not_a_missing_one():
    """The decoder of a model that was trained without context represents its texts; the encoder learned nothing."""
    task = tree_task(input=BLIND).eval()
    batch = whole(task, forest([discussion(W, seed=1)]), predict_post=True)
    read, alone = (task.backbone.vectors(batch.rows(context=context)) for context in (True, False))
    assert float((read - alone).abs().max()) > 1e-3
    equal(read, task.backbone.vector(task.backbone(batch).encoded(batch)))


def test_spans_of_a_batch_are_the_own_texts():
    task = bert_task(input=TextInput(max_tokens=32, concatenate=64))
    data = forest([discussion(W, seed=1)])
    batch = whole(task, data, predict_post=True)
    rows = batch.rows(context=False)
    starts = rows.rows.offsets[:-1].tolist()
    for place, (node, ((begin, end),)) in enumerate(zip(rows.source.tolist(), rows.spans.tolist(), strict=True)):
        own = data.gather(np.array([node]), data.length[[node]]).tolist()
        assert rows.ids[starts[place] + begin : starts[place] + end].tolist() == own

"""An encoder-decoder with T5's settings against transformers' T5ForConditionalGeneration, both ways, on random weights."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers

import ramify
from fixtures import bare_rows, built, discussions
from ramify.batching.pair_batch import Pair, PairCollator
from ramify.errors import RamifyError
from ramify.hub import export_hugging_face
from ramify.inference.search import GREEDY, Beam, Limits, beam_search, collect, sample
from ramify.models.base import Checkpoint
from ramify.models.hf import write
from ramify.models.transformer import ADAPTER
from ramify.nn.linear import linear
from ramify.nn.relative import DistanceScores
from ramify.recipes import RECIPES
from ramify.tasks.base import Decodes
from ramify.tensors import load_strictly
from ramify.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

BEGIN, END = 0, 1
SIZES = {
    "vocab_size": 31,
    "d_model": 24,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "decoder_start_token_id": BEGIN,
}
SOURCES = [[5], [6, 7, 8], [9, 10, 11, 12, 13, 14, 15], [*range(4, 30), 3]]
TARGETS = [[3, 4], [7, 8, 9], [10, 11, 12, 13, 14, 15, 16], [*range(5, 27)]]


def saved(folder, **changes):
    """A random transformers model with well-spread weights, in a directory."""
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**SIZES | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return model.double()


V11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
"""The settings of T5 1.1."""


def saved_v11(folder):
    """A random model of version 1.1, whose output map is not its token embedding, in a directory as it was published."""
    saved(folder, **V11)
    tensors, settings = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    output = torch.randn(tensors["shared.weight"].shape, generator=torch.Generator().manual_seed(1))
    save_file(tensors | {"lm_head.weight": output}, folder / "model.safetensors", {"format": "pt"})
    del settings["scale_decoder_outputs"]
    (folder / "config.json").write_text(json.dumps(settings | V11))
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).double().eval()


def loaded(folder):
    checkpoint = Checkpoint(str(folder), folder, None)
    portable = ADAPTER.read(checkpoint, ADAPTER.read_config(folder))
    model = portable.config.build().eval()
    load_strictly(model.state_dict(), portable.backbone, folder)
    return model.double(), portable


class Words(Decodes):
    """The scores of a bare output map."""

    def __init__(self, model):
        self.model = model

    def start(self, prompts, *, source=None):
        states, cache = self.model.read_prompts(prompts, source)
        return linear(states, self.model.embedding.weight), cache

    def step(self, ids, cache):
        states, cache = self.model.read_tokens(ids, cache)
        return linear(states, self.model.embedding.weight), cache


def exact_norms(monkeypatch):
    """Transformers computes the variance in single precision."""
    kind = transformers.models.t5.modeling_t5.T5LayerNorm

    def forward(norm, states):
        return norm.weight * states * torch.rsqrt(states.square().mean(-1, keepdim=True) + norm.variance_epsilon)

    monkeypatch.setattr(kind, "forward", forward)


@torch.no_grad()
@pytest.mark.parametrize("scaled", [True, False])
def test_scores_are_those_of_transformers(tmp_path, monkeypatch, scaled):
    exact_norms(monkeypatch)
    theirs, (model, portable) = saved(tmp_path, tie_word_embeddings=scaled), loaded(tmp_path)
    assert portable.task == {"tie_weights": True, "output_bias": False}
    assert portable.config.scale_states == scaled
    pairs = [Pair(np.array(target), np.array(source)) for source, target in zip(SOURCES, TARGETS, strict=True)]
    batch = PairCollator(BEGIN, END)(pairs)
    scores = linear(model(batch), model.embedding.weight)
    read, sources, found = (
        values.split(rows.rows.host_lengths.tolist())
        for values, rows in ((batch.target.ids, batch.target), (batch.source.ids, batch.source), (scores, batch.target))
    )
    for ids, source, row in zip(read, sources, found, strict=True):
        expected = theirs(input_ids=source[None], decoder_input_ids=ids[None])
        torch.testing.assert_close(row, expected.logits[0], rtol=0, atol=1e-10)
        encoded = model.encode_rows(bare_rows([source.tolist()]))
        torch.testing.assert_close(encoded.last, expected.encoder_last_hidden_state[0], rtol=0, atol=1e-10)


@torch.no_grad()
def test_version_1_1_has_the_scores_of_transformers_and_is_exported_as_such(tmp_path, monkeypatch):
    exact_norms(monkeypatch)
    theirs, (model, portable) = saved_v11(tmp_path / "theirs"), loaded(tmp_path / "theirs")
    config = portable.config
    assert (config.gated, config.activation, config.scale_states) == (True, "gelu_tanh", False)
    assert portable.task == {"tie_weights": False, "output_bias": False}
    files = ADAPTER.write(portable)
    write(tmp_path / "ours", files.config, files.tensors)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").double().eval()
    for source, target in zip(SOURCES, TARGETS, strict=True):
        batch = PairCollator(BEGIN, END)([Pair(np.array(target), np.array(source))])
        scores = linear(model(batch), portable.heads["head.weight"].double())
        for other in (theirs, again):
            expected = other(input_ids=batch.source.ids[None], decoder_input_ids=batch.target.ids[None]).logits[0]
            torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)
    with pytest.raises(RamifyError, match=r"task\.tie_weights=false with model\.scale_states=true has no Hugging Face form"):
        ADAPTER.write(replace(portable, config=replace(config, scale_states=True)))


@torch.no_grad()
@pytest.mark.parametrize(
    "changes",
    [
        # The proportions of the small model of version 1.1.
        {"d_model": 16, "num_heads": 3, "d_kv": 8, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"d_kv": 5, "feed_forward_proj": "gated-silu"},
        {"feed_forward_proj": "gated-relu"},
        {"feed_forward_proj": "gated-gelu_python"},
        {"feed_forward_proj": "silu"},
        {"feed_forward_proj": "gelu"},
        {"feed_forward_proj": "gelu_new"},
        {"dense_act_fn": "tanh", "is_gated_act": True},
    ],
)
def test_feed_forward_layers_and_heads_of_every_kind(tmp_path, monkeypatch, changes):
    """Scores and texts are those of transformers, and an exported model is the same."""
    exact_norms(monkeypatch)
    theirs, (model, portable) = saved(tmp_path / "theirs", **changes), loaded(tmp_path / "theirs")
    files = ADAPTER.write(portable)
    write(tmp_path / "ours", {**files.config, "decoder_start_token_id": BEGIN}, files.tensors)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").double().eval()
    batch = PairCollator(BEGIN, END)([Pair(np.array(TARGETS[2]), np.array(SOURCES[2]))])
    scores = linear(model(batch), model.embedding.weight)
    source = PairCollator(BEGIN, END).sources([np.array(SOURCES[2])])
    steps = sample(Words(model), bare_rows([[BEGIN]]), GREEDY, Limits((END,)), maximums=[12], seeds=[0], source=source)
    (text,) = collect(steps, 1)
    for other in (theirs, again):
        expected = other(input_ids=batch.source.ids[None], decoder_input_ids=batch.target.ids[None]).logits[0]
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)
        answer = other.generate(input_ids=source.ids[None], do_sample=False, max_new_tokens=12, use_cache=False)
        assert text == [token for token in answer[0, 1:].tolist() if token != END]


@torch.no_grad()
def test_texts_are_generated_as_by_transformers(tmp_path, near):
    theirs, (model, _) = saved(tmp_path), loaded(tmp_path)
    source = PairCollator(BEGIN, END).sources([np.array(ids) for ids in SOURCES])
    steps = sample(
        Words(model), bare_rows([[BEGIN]] * 4), GREEDY, Limits((END,)), maximums=[30] * 4, seeds=[0] * 4, source=source
    )
    beams = beam_search(
        Words(model), bare_rows([[BEGIN]] * 4), Beam(4, length_penalty=0.0), Limits((END,)), maximums=[30] * 4, source=source
    )
    for ids, tokens, hypotheses in zip(SOURCES, collect(steps, 4), beams, strict=True):
        # Their cache has as many layers as the encoder.
        settings = {"do_sample": False, "max_new_tokens": 30, "use_cache": False}
        expected = theirs.generate(input_ids=torch.tensor([[*ids, END]]), **settings)[0, 1:].tolist()
        assert tokens == [token for token in expected if token != END]
        settings |= {"num_beams": 4, "length_penalty": 0.0, "early_stopping": "never"}
        best = theirs.generate(
            input_ids=torch.tensor([[*ids, END]]), return_dict_in_generate=True, output_scores=True, **settings
        )
        found = [*hypotheses[0].ids, *[END] * hypotheses[0].stopped]
        assert best.sequences[0, 1 : 1 + len(found)].tolist() == found
        near(hypotheses[0].score, float(best.sequences_scores[0]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (32, 40)])
def test_distances_have_the_buckets_of_transformers(causal, buckets, distance):
    offsets = torch.arange(-300, 301)
    kind = transformers.models.t5.modeling_t5.T5Attention
    expected = kind._relative_position_bucket(offsets, not causal, buckets, distance)
    assert torch.equal(DistanceScores(2, buckets, distance, causal=causal).buckets(offsets), expected)


@torch.no_grad()
def test_exported_models_are_read_by_transformers(tmp_path, monkeypatch):
    exact_norms(monkeypatch)
    saved(tmp_path / "theirs")
    model, portable = loaded(tmp_path / "theirs")
    files = ADAPTER.write(portable)
    write(tmp_path / "ours", files.config, files.tensors)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").double().eval()
    batch = PairCollator(BEGIN, END)([Pair(np.array(TARGETS[2]), np.array(SOURCES[2]))])
    expected = theirs(input_ids=batch.source.ids[None], decoder_input_ids=batch.target.ids[None]).logits[0]
    torch.testing.assert_close(linear(model(batch), model.embedding.weight), expected, rtol=0, atol=1e-10)
    with pytest.raises(RamifyError, match=r"model\.bias=true has no Hugging Face form, which is that of t5"):
        ADAPTER.write(replace(portable, config=replace(portable.config, bias=True)))


def test_refused_checkpoints(tmp_path):
    saved(tmp_path)
    tensors, settings = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    surplus = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    save_file(tensors | {surplus: torch.zeros(8, 4)}, tmp_path / "model.safetensors")
    loaded(tmp_path)
    gone = "encoder.block.1.layer.0.SelfAttention.k.weight"
    save_file({name: tensor for name, tensor in tensors.items() if name != gone}, tmp_path / "model.safetensors")
    with pytest.raises(RamifyError, match=r"holds no tensor 'encoder\.block\.1\.layer\.0\.SelfAttention\.k\.weight', so it"):
        loaded(tmp_path)
    for changes, message in (
        ({"dense_act_fn": "mish"}, r"dense_act_fn='mish' is not one of gelu"),
        ({"num_layers": None}, "num_layers must be whole numbers"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(settings | changes))
        with pytest.raises(RamifyError, match=message):
            ADAPTER.read_config(tmp_path)


@torch.no_grad()
def test_published_form_is_loaded_and_translates(tmp_path):
    theirs = saved(tmp_path)
    pieces = ["<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(28))]
    engine = Engine(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(pieces[:3])
    tokenizer = Tokenizer(engine)
    tokenizer.save(tmp_path)
    model = ramify.load(tmp_path)
    texts = ["w4", "w1 w2 w3", "w20 w19 w18 w17 w16 w15"]
    for text, answer in zip(texts, model.translate(texts, beam=1), strict=True):
        ids = tokenizer.encode(text)
        settings = {"do_sample": False, "use_cache": False, "max_new_tokens": len(ids) + 50, "suppress_tokens": [0, 2]}
        expected = theirs.generate(input_ids=torch.tensor([[*ids, END]]), **settings)[0, 1:].tolist()
        assert answer.translations[0].text == tokenizer.decode([token for token in expected if token != END])
    export_hugging_face(model, tmp_path / "exported")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "exported")
    assert (back.config.decoder_start_token_id, back.config.eos_token_id, back.config.pad_token_id) == (BEGIN, END, 0)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_loss_of_corrupted_text_is_that_of_transformers(tmp_path, monkeypatch, version):
    """A run of the recipe, exported: the same texts with the same gaps, loss and gradient."""
    exact_norms(monkeypatch)
    store = built(discussions(12, 6), tmp_path / "data", (1.0, 0.0, 0.0))
    settings = {"model.dim": "24", "model.ffn_dim": "40", "model.dropout": "0", "tokenizer.kind": "wordpiece"}
    run = RECIPES["t5"](str(store.path), version=version).changed(settings | {"tokenizer.vocab_size": "170"})
    prepared = run.prepare(tmp_path / "run")
    export_hugging_face(prepared.pipeline(), tmp_path / "exported")
    theirs, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "exported", output_loading_info=True)
    assert not any(report.values())
    theirs, task = theirs.double(), prepared.task.double()
    batch = task.collator([prepared.view.example(number, epoch=1) for number in range(4)])
    ((losses, _),) = task.losses(batch, task.counts(batch, "all"), "all", None, None)
    losses["next_token"].backward()
    assert batch.source is not None
    lengths = batch.source.rows.host_lengths.tolist(), batch.target.rows.host_lengths.tolist()
    sources, labels = (
        torch.nn.utils.rnn.pad_sequence(ids.split(sizes), batch_first=True, padding_value=-100)
        for ids, sizes in zip((batch.source.ids, batch.labels), lengths)
    )
    read = sources >= 0
    loss = theirs(input_ids=sources.clamp(min=0), attention_mask=read.long(), labels=labels).loss
    loss.backward()
    torch.testing.assert_close(losses["next_token"], loss, rtol=0, atol=1e-9)
    torch.testing.assert_close(task.backbone.embedding.weight.grad, theirs.shared.weight.grad, rtol=0, atol=1e-9)
    # The tokenizer of the export reads sentinels, and lays out a source as the model reads it.
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    own = prepared.pipeline().tokenizer
    assert fast("ba <extra_id_0> be")["input_ids"] == [*own.encode_sentinels("ba <extra_id_0> be"), own.stop_id]

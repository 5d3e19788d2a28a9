"""The Transformer: causality, padding, its cache, what it encodes, and what it refuses. Torch's modules are its references in
`tests/parity`."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import bare_rows
from ramify.batching.pair_batch import PairCollator
from ramify.batching.views.pairs import Pair
from ramify.errors import RamifyError
from ramify.models.transformer import Transformer, TransformerConfig
from ramify.nn.embeddings import sinusoids

VOCAB, BEGIN, END = 13, 1, 2
SMALL = TransformerConfig(
    vocab_size=VOCAB, dim=16, num_heads=4, ffn_dim=24, encoder_layers=2, decoder_layers=3, dropout=0.0, max_tokens=40
)
FORMS = {
    "encoder-decoder": SMALL,
    "pre-norm": replace(SMALL, norm="pre", position="learned", share_embeddings=False, activation="gelu"),
    "unscaled": replace(SMALL, attention_scale="none", final_norm=True),
    "decoder": replace(SMALL, encoder_layers=0),
    "relative": replace(
        SMALL,
        norm="pre",
        position="relative",
        norm_kind="rms",
        bias=False,
        scale_states=True,
        attention_scale="none",
        distance_buckets=8,
        max_distance=9,
    ),
    "decoder, relative": replace(SMALL, encoder_layers=0, position="relative", distance_buckets=4, max_distance=6),
    "decoder, pre-norm": replace(SMALL, encoder_layers=0, norm="pre", position="learned", scale_embedding=False),
}
SOURCES = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 12, 3, 4, 5, 6, 7], [4, 4]]
TARGETS = [[5, 4, 3], [6, 7, 8, 9, 10, 11, 12, 3, 4], [3], [8, 8, 8, 9]]


def built(config: TransformerConfig) -> Transformer:
    torch.manual_seed(0)
    model = config.build().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture(params=FORMS, scope="module")
def model(request) -> Transformer:
    return built(FORMS[request.param])


def batch_of(model, sources, targets):
    pairs = [
        Pair(np.array(target), np.array(source) if model.reads_source else None)
        for source, target in zip(sources, targets, strict=True)
    ]
    return PairCollator(BEGIN, END)(pairs)


def sources_of(model, sources):
    return PairCollator(BEGIN, END).sources([np.array(source) for source in sources]) if model.reads_source else None


def alone(model, source, target):
    """The decoder's states of one text: those of BEGIN and of each of its tokens."""
    return model(batch_of(model, [source], [target]))


def states_of(model, sources, targets):
    """The decoder's states of several texts, sorted as the texts are."""
    batch = batch_of(model, sources, targets)
    parts = model(batch).split(batch.target.rows.host_lengths.tolist())
    read = batch.target.ids.split(batch.target.rows.host_lengths.tolist())
    found = {tuple(ids.tolist()[1:]): part for ids, part in zip(read, parts, strict=True)}
    return [found[tuple(target)] for target in targets]


def prompts_of(texts):
    """Prompts in the order of the texts, which are sorted by length."""
    rows = bare_rows(texts)
    assert rows.source.tolist() == [*range(len(texts))]
    return rows


# --- causality, padding -------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_no_state_depends_on_later_tokens(model):
    """To the bit."""
    before = states_of(model, SOURCES, TARGETS)
    for place in range(len(TARGETS[1])):
        changed = [*TARGETS[1][:place], *(3 + (np.array(TARGETS[1][place:]) - 2) % 10).tolist()]
        after = states_of(model, SOURCES, [TARGETS[0], changed, *TARGETS[2:]])
        assert torch.equal(after[1][: place + 1], before[1][: place + 1])
        assert not torch.isclose(after[1][place + 1 :], before[1][place + 1 :]).all(1).any()


@torch.no_grad()
def test_no_state_depends_on_other_texts(model):
    """To the bit, if the others are as long; and in a batch as alone."""
    before = states_of(model, SOURCES, TARGETS)
    sources = [[12 - token % 3 for token in source] for source in SOURCES]
    targets = [[12 - token % 3 for token in target] for target in TARGETS]
    for kept in range(len(TARGETS)):
        after = states_of(
            model,
            [*sources[:kept], SOURCES[kept], *sources[kept + 1 :]],
            [*targets[:kept], TARGETS[kept], *targets[kept + 1 :]],
        )
        assert torch.equal(after[kept], before[kept])
        torch.testing.assert_close(alone(model, SOURCES[kept], TARGETS[kept]), before[kept], rtol=0, atol=1e-12)


@torch.no_grad()
def test_every_state_depends_on_the_source(model):
    if not model.reads_source:
        pytest.skip("reads no source")
    before, after = (alone(model, source, TARGETS[1]) for source in (SOURCES[0], [*SOURCES[0][:-1], 12]))
    assert not torch.isclose(before, after).all(1).any()


def test_padding_gets_no_gradient(model):
    """The gradient of a batch is the sum of those of its texts."""

    def gradients(chosen):
        model.zero_grad(set_to_none=True)
        for part in chosen:
            batch = batch_of(model, [SOURCES[place] for place in part], [TARGETS[place] for place in part])
            model(batch).pow(3).sum().backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}

    together, one_by_one = gradients([[0, 1, 2, 3]]), gradients([[0], [1], [2], [3]])
    model.zero_grad(set_to_none=True)
    assert together.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in together.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(gradient, one_by_one[name], rtol=0, atol=1e-12 * max(1.0, scale))


# --- the cache ----------------------------------------------------------------------------------------------------------


def expected_states(model, sources, texts):
    """The state of the last token of each text, computed anew; zero for a text without tokens."""
    states = []
    for source, text in zip(sources, texts, strict=True):
        if not text:
            states.append(torch.zeros(SMALL.dim, dtype=torch.float64))
            continue
        # The collator puts one token before each target.
        collator = PairCollator(text[0], END)
        pair = Pair(np.array(text[1:], dtype=np.int64), np.array(source) if model.reads_source else None)
        states.append(model(collator([pair]))[-1])
    return torch.stack(states)


def close(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize(
    "prompts",
    [
        [[1], [1], [1], [1]],
        [[], [1], [1, 5, 6], [1, 7, 8, 9, 10]],
        [[], [], [], []],
        [[1, 3], [1, 4], [1, 5, 6], [1, 7, 8, 9, 10, 11, 12, 3, 4, 5, 6]],
    ],
)
def test_cached_states_are_those_computed_anew(model, prompts):
    """Unequal and empty prompts, beams that repeat and swap, texts that end."""
    random = np.random.default_rng(0)
    texts, sources = [list(prompt) for prompt in prompts], list(SOURCES)
    states, cache = model.read_prompts(prompts_of(texts), sources_of(model, sources))
    close(states, expected_states(model, sources, texts))
    orders = [
        None,
        [0, 0, 1, 1, 2, 2, 3, 3],
        [1, 0, 3, 3, 4, 5, 6, 7],
        None,
        [7, 0, 2, 5],
        [3, 1, 1],
        [2, 0],
        None,
        [],
        None,
    ]
    for index in orders:
        if index is not None:
            cache = cache.reorder(np.array(index, dtype=np.int64))
            texts, sources = [list(texts[place]) for place in index], [sources[place] for place in index]
        assert cache.lengths.tolist() == [len(text) for text in texts]
        ids = random.integers(3, VOCAB, size=len(texts))
        states, cache = model.read_tokens(torch.from_numpy(ids), cache)
        texts = [[*text, int(token)] for text, token in zip(texts, ids, strict=True)]
        assert states.shape == (len(texts), SMALL.dim)
        if texts:
            close(states, expected_states(model, sources, texts))


@torch.no_grad()
def test_sources_are_projected_once(model, monkeypatch):
    if not model.reads_source:
        pytest.skip("reads no source")
    _, cache = model.read_prompts(prompts_of([[1]] * 4), sources_of(model, SOURCES))
    tables = cache.sources.layers
    cache = cache.reorder(np.array([0, 0, 1, 1, 2, 2, 3, 3]))
    _, cache = model.read_tokens(torch.full((8,), 5), cache)
    cache = cache.reorder(np.array([1, 0, 3, 3, 4, 5, 7, 6]))
    assert all(one is other for one, other in zip(cache.sources.layers, tables, strict=True))
    # A source that nobody reads is dropped.
    kept = cache.reorder(np.array([2, 7])).sources
    assert all(torch.equal(one, other[:, [1, 3]]) for one, other in zip(kept.layers, tables, strict=True))


@torch.no_grad()
def test_a_cache_has_a_longest_text():
    model = built(replace(SMALL, encoder_layers=0, max_tokens=4))
    _, cache = model.read_prompts(prompts_of([[1, 3, 4]]))
    _, cache = model.read_tokens(torch.tensor([5]), cache)
    with pytest.raises(RamifyError, match=r"a text of 5 tokens is longer than model\.max_tokens=4\. Shorten it"):
        model.read_tokens(torch.tensor([5]), cache)


# --- parts --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_attention_against_its_formula():
    """One layer, one head: softmax(q·k) v, unscaled as on the slides, or divided by the root of the size."""
    for scale in ("none", "root"):
        config = replace(SMALL, num_heads=1, encoder_layers=1, decoder_layers=1, attention_scale=scale, max_tokens=40)
        model = built(config)
        record = {}
        rows = bare_rows([[3, 4, 5, 6]])
        model.encode_rows(rows, record=record)
        attention = model.encoder.layers[0].attention
        x = model.source_embeddings(rows.ids, rows.rows.positions)
        query, key = attention.query(x), attention.key_value(x)[:, : config.dim]
        scores = torch.einsum("qd,kd->qk", query, key) / (1.0 if scale == "none" else math.sqrt(config.dim))
        close(record["encoder"][0]["self"][0][0], scores.exp() / scores.exp().sum(1, keepdim=True))


@torch.no_grad()
def test_inputs_are_scaled_embeddings_and_sinusoids():
    model = built(SMALL)
    rows = bare_rows([[3, 4, 5]])
    expected = model.embedding.weight[3:6] * math.sqrt(SMALL.dim)
    for position in range(3):
        for column in range(SMALL.dim):
            angle = position / 10000 ** (2 * (column // 2) / SMALL.dim)
            expected[position, column] += math.sin(angle) if column % 2 == 0 else math.cos(angle)
    # The table is in single precision.
    torch.testing.assert_close(model.encode_rows(rows, layers=True).layers[0], expected, rtol=0, atol=1e-6)
    assert sinusoids(7, 6)[3].tolist() == pytest.approx(
        [f(3 / 10000 ** (pair / 3)) for pair in range(3) for f in (math.sin, math.cos)], abs=1e-6
    )
    plain = built(replace(SMALL, scale_embedding=False))
    close(
        plain.encode_rows(rows, layers=True).layers[0],
        plain.embedding.weight[3:6] + plain.source_embeddings.positions.weight[:3],
    )


def test_sources_and_targets_share_one_table():
    shared, apart = built(SMALL), built(replace(SMALL, share_embeddings=False))
    assert shared.source_embeddings.tokens is shared.tied_embedding is shared.target_embeddings.tokens
    assert apart.source_embeddings.tokens is not apart.tied_embedding is apart.target_embeddings.tokens
    size = sum(parameter.numel() for parameter in shared.parameters())
    assert sum(parameter.numel() for parameter in apart.parameters()) == size + VOCAB * SMALL.dim


def test_parameters_of_the_published_base_model():
    """37,000 shared pieces (section 5.1), table 3: 65 million parameters."""
    base = TransformerConfig(37000, 512, 8, 2048, 6, 6)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in base.build().parameters())
    attention, feed_forward, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert count == 37000 * 512 + 6 * (encoder + decoder) == 63_082_496


# --- vectors of rows ----------------------------------------------------------------------------------------------------


ROWS = [[], [3, 4], [5], [6, 7, 8, 9, 10, 11, 12, 3, 4, 5]]


@torch.no_grad()
def test_layers_of_rows(model):
    rows = prompts_of(ROWS)
    record = {}
    every = model.encode_rows(rows, layers=True, record=record)
    assert tuple(layer.shape[1] for layer in every.layers) == model.layer_dims()
    assert torch.equal(every.last, model.encode_rows(rows).last)
    ((name, layers),) = record.items()
    assert name == ("encoder" if model.reads_source else "decoder")
    assert len(layers) == len(every.layers) - 1
    parts = every.last.split(rows.rows.host_lengths.tolist())
    for place, text in enumerate(ROWS):
        close(model.encode_rows(bare_rows([text])).last, parts[place])
        assert layers[0]["self"][place].shape == (SMALL.num_heads, len(text), len(text))
    for read, end in (("first", 0), ("last", -1)):
        kept = model.encode_rows(rows, read=read)
        assert kept.rows.host_lengths.tolist() == [0, 1, 1, 1]
        close(kept.last, torch.stack([part[end] for part in parts if len(part)]))
        with pytest.raises(RamifyError, match="layers=True keeps all tokens"):
            model.encode_rows(rows, read=read, layers=True)
    expected = [part.mean(0) if model.reads_source else part[-1] for part in parts[1:]]
    vectors = model.vectors(rows)
    close(vectors[1:], torch.stack(expected))
    assert not vectors[0].any()
    assert not model.vectors(bare_rows([[], []])).any()
    assert model.vectors(bare_rows([])).shape == (0, model.vector_dim)


def test_layers_have_parameters_of_their_own(model):
    prefixes = model.layer_prefixes()
    assert len(prefixes) == len(model.layer_dims())
    for number in range(len(prefixes)):
        model.zero_grad(set_to_none=True)
        states = model.encode_rows(prompts_of(ROWS), layers=True).layers[number]
        (states * torch.randn_like(states)).sum().backward()
        touched = set()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and parameter.grad.any():
                (layer,) = [place for place, names in enumerate(prefixes) if name.startswith(names)]
                touched.add(layer)
        assert touched == {*range(number + 1)}
    model.zero_grad(set_to_none=True)


@torch.no_grad()
def test_attention_of_target_to_source_is_recorded(model):
    batch, record = batch_of(model, SOURCES, TARGETS), {}
    assert torch.equal(model(batch, record), model(batch))
    lengths = batch.target.rows.host_lengths.tolist()
    layers = record["decoder"]
    assert len(layers) == SMALL.decoder_layers
    for layer in layers:
        assert [weights.shape[1:] for weights in layer["self"]] == [(length, length) for length in lengths]
        assert all(weights.triu(1).abs().max() == 0 for weights in layer["self"])
        if model.reads_source:
            assert [weights.shape[1:] for weights in layer["cross"]] == [
                *zip(lengths, batch.source.rows.host_lengths.tolist(), strict=True)
            ]


# --- refusals -----------------------------------------------------------------------------------------------------------


def test_refused_inputs():
    both, decoder = built(SMALL), built(replace(SMALL, encoder_layers=0))
    prompts, source = prompts_of([[1], [1]]), sources_of(both, SOURCES[:2])
    with pytest.raises(RamifyError, match=r"source needs an encoder, but model\.encoder_layers=0"):
        decoder.read_prompts(prompts, source)
    with pytest.raises(RamifyError, match=r"source=None cannot be read: model\.encoder_layers=2 needs a source"):
        both.read_prompts(prompts)
    with pytest.raises(RamifyError, match=r"source=None"):
        both(PairCollator(BEGIN, END)([Pair(np.array([3]))]))
    with pytest.raises(RamifyError, match=r"source holds 1 text without tokens, from which nothing can be predicted"):
        both.read_prompts(prompts, bare_rows([[], [3]]))
    with pytest.raises(RamifyError, match=r"a source of 41 tokens is longer than model\.max_tokens=40"):
        both.encode_rows(bare_rows([[3] * 41]))
    with pytest.raises(RamifyError, match=r"a text of 41 tokens is longer"):
        decoder(PairCollator(BEGIN, END)([Pair(np.array([3] * 40))]))
    with pytest.raises(RamifyError, match=r"model\.dim=16 must be a multiple of model\.num_heads=3"):
        replace(SMALL, num_heads=3)
    with pytest.raises(RamifyError, match=r"model\.decoder_layers must be at least 1"):
        replace(SMALL, decoder_layers=0)

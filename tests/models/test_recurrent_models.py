"""Recurrent encoders, and sequence-to-sequence models with attention and without, against loops over single rows."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fixtures import bare_rows, distance, gradient, tokenizer
from fixtures.parallel import SEQ2SEQ, translations
from ramify.batching.pair_batch import PairCollator
from ramify.batching.text_input import TextInput
from ramify.batching.views.pairs import Pair, PairInput
from ramify.errors import RamifyError
from ramify.inference.embed import Embedder
from ramify.inference.search import GREEDY, Beam, Limits, beam_search, collect, sample
from ramify.models.recurrent import RecurrentConfig, RecurrentEncoder, Seq2Seq, Seq2SeqConfig
from ramify.nn.recurrent import CELLS
from ramify.tasks.base import MAIN
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM
from ramify.tree import Node, Tree

VOCAB, BEGIN, END = 11, 0, 1


def equal(one, other, atol=1e-12):
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


def pairs(lengths, *, source=True):
    random = np.random.default_rng(0)
    return [
        Pair(random.integers(2, VOCAB, size=target), random.integers(2, VOCAB, size=length) if source else None)
        for target, length in lengths
    ]


LENGTHS = [(3, 2), (0, 5), (9, 1), (5, 17), (3, 0), (1, 4)]


def model(**changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "dim": 5, "hidden": 6, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    built = Seq2Seq(Seq2SeqConfig(**(sizes | changes))).double()
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            parameter.mul_(8 if "embedding" in name else 2)
    return built.eval()


def batch_of(built, lengths=LENGTHS):
    return PairCollator(BEGIN, END)(pairs(lengths, source=built.reads_source))


MODELS = {
    **{
        f"{cell}, {attention}": {"cell": cell, "attention": attention}
        for cell, attention in itertools.product(CELLS, ("dot", "none"))
    },
    "own embeddings": {"share_embeddings": False, "encoder_layers": 1, "decoder_layers": 3},
    "no encoder": {"encoder_layers": 0, "attention": "none"},
    "no encoder, gru": {"encoder_layers": 0, "attention": "none", "cell": "gru"},
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def seq2seq(request):
    return model(**request.param)


# --- the encoder ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", CELLS)
def test_a_vector_is_the_final_state_of_each_direction(cell):
    torch.manual_seed(0)
    encoder = RecurrentEncoder(RecurrentConfig(VOCAB, 5, cell, num_layers=2, hidden=3, dropout=0.0)).double()
    theirs = CELLS[cell](5, 3, num_layers=2, bidirectional=True).double()
    ours = {
        name.replace("_l0", f"_l{number}{suffix}"): value
        for number, layer in enumerate(encoder.recurrent.layers)
        for chain, suffix in zip(layer, ("", "_reverse"), strict=True)
        for name, value in chain.cells.state_dict().items()
    }
    theirs.load_state_dict(ours)
    texts = [[3, 4, 5], [6], [2, 2, 9, 8, 3], []]
    rows = bare_rows(texts)
    vectors = encoder.vectors(rows)
    for vector, source in zip(vectors, rows.source.tolist(), strict=True):
        text = texts[source]
        if not text:
            assert not vector.any()
            continue
        ends = theirs(encoder.embedding(torch.tensor(text)))[1]
        equal(vector, (ends[0] if cell == "lstm" else ends)[-2:].flatten())


def test_embed_gives_the_vectors_of_nodes():
    torch.manual_seed(0)
    encoder = RecurrentEncoder(RecurrentConfig(tokenizer().vocab_size, 8, hidden=4)).eval()
    pipeline = Embedder(encoder, tokenizer(), TextInput(max_tokens=16, context="none"))
    tree = Tree((Node("ba be bi"), Node("ce", (0,))))
    vectors = pipeline.embed(tree)
    assert vectors.shape == (2, 8)
    rows = pipeline.embed([node.text for node in tree.nodes])
    np.testing.assert_allclose(vectors, rows, rtol=0, atol=1e-6)
    layout = tokenizer().layout("bert")
    expected = encoder.vectors(bare_rows([layout.wrap(tokenizer().encode(node.text)) for node in tree.nodes]))
    np.testing.assert_allclose(vectors, expected.detach().numpy(), rtol=0, atol=1e-6)
    with pytest.raises(RamifyError, match="this RecurrentEncoder has no attention heads"):
        pipeline.attention(tree, 0)


def test_a_recurrent_encoder_has_no_pooler_of_the_first_token():
    encoder = RecurrentEncoder(RecurrentConfig(tokenizer().vocab_size, 8, hidden=4))
    with pytest.raises(RamifyError, match=r"needs a bert with model.pooling=pooler.* this RecurrentEncoder has no pooler"):
        MaskedLM(encoder, tokenizer(), TextInput(context="none"), MaskedLMConfig(next_sentence=1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "gru", "projection": 3}, r"model.projection=3 needs an LSTM, but model.cell is gru. Set model.cell=lstm"),
        ({"cell": "rnn", "cell_clip": 3.0}, r"model.cell_clip=3 needs an LSTM, but model.cell is rnn."),
        ({"projection_clip": 3.0}, r"model.projection_clip=3 needs a projection, but model.projection is null."),
        ({"cell_clip": 0.0}, r"model.cell_clip=0 must be finite and above 0."),
    ],
)
def test_an_lstm_alone_has_a_projection_and_clips(settings, message):
    with pytest.raises(RamifyError, match=message):
        RecurrentConfig(**settings)


def test_clips_bound_the_states_of_an_encoder():
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "dim": 5, "hidden": 3, "projection": 2, "dropout": 0.0}
    rows = bare_rows([[3, 4, 5], [6]])
    free = RecurrentEncoder(RecurrentConfig(**sizes))
    clipped = RecurrentEncoder(RecurrentConfig(**sizes, cell_clip=1e-2, projection_clip=1e-3))
    clipped.load_state_dict(free.state_dict())
    assert clipped.encode_rows(rows).last.abs().max() <= 1e-3 < free.encode_rows(rows).last.abs().max()


def test_a_projection_is_smaller_than_the_cells():
    with pytest.raises(RamifyError, match=r"model.projection=8 must be below model.hidden=8.* Lower model.projection"):
        RecurrentConfig(hidden=8, projection=8)


# --- sequence to sequence ------------------------------------------------------------------------------------------------


def weights_of(recurrent, number, place):
    return recurrent.layers[number][place].cells


def loop(recurrent, words, start=None):
    """The last layer's states of one row, and the ends (h, c) of each layer and chain, by torch's modules."""
    ends = []
    for number, layer in enumerate(recurrent.layers):
        written, kept = [], []
        for place, chain in enumerate(layer):
            x = words.flip(0) if place else words
            given = None if start is None else [part[number, place][None] for part in start]
            given = None if given is None else tuple(given) if len(given) == 2 else given[0]
            if len(x):
                states, after = chain.cells(x, given)
            else:
                size = recurrent.chain_dim
                states, after = x.new_zeros(0, size), given
                if after is None:
                    zero = x.new_zeros(1, size)
                    after = (zero, zero) if recurrent.has_cells else zero
            kept.append(after if recurrent.has_cells else (after,))
            written.append(states.flip(0) if place else states)
        words = torch.cat(written, 1)
        ends.append(kept)
    return words, ends


def reference(built, target, source):
    """The states of one pair, by the formulas, and the weights of attention."""
    config, start, x = built.config, None, None
    if source is not None:
        table = built.embedding if config.share_embeddings else built.source_embedding
        x, ends = loop(built.encoder, table(source))
        final = [torch.cat([chain[part][0] for chain in ends[-1]]) for part in range(len(ends[-1][0]))]
        start = [torch.tanh(built.start_hidden(final[0])).view(config.decoder_layers, 1, -1)]
        if config.cell == "lstm":
            start.append(built.start_cell(final[1]).view(config.decoder_layers, 1, -1))
    y, ends = loop(built.decoder, built.embedding(target), start)
    if not len(target):
        y = ends[-1][0][0]
    weights = None
    if config.attention == "dot":
        weights = (y @ x.T).softmax(1) if len(x) else y.new_zeros(len(y), 0)
        y = torch.cat([y, weights @ x], 1)
    return torch.tanh(built.out(y)), weights


def texts_of(rows):
    return rows.ids.split(rows.rows.host_lengths.tolist())


def references(built, targets, batch):
    sources = [None] * len(targets) if batch.source is None else texts_of(batch.source)
    return [reference(built, target, source) for target, source in zip(targets, sources, strict=True)]


def test_states_follow_the_formulas_row_by_row(seq2seq):
    batch = batch_of(seq2seq)
    record = {}
    found = seq2seq(batch, record=record)
    expected = references(seq2seq, texts_of(batch.target), batch)
    equal(found, torch.cat([states for states, _ in expected]))
    assert torch.equal(seq2seq(batch), found)
    if seq2seq.config.attention == "none":
        assert not record
        assert not seq2seq.records_attention
        return
    ((weights,),) = [layer.values() for layer in record["decoder"]]
    for row, (_, other) in zip(weights, expected, strict=True):
        equal(row[0], other)


def test_a_target_does_not_read_later_tokens(seq2seq):
    batch = batch_of(seq2seq)
    ids = batch.target.ids.clone()
    row = int(np.argmax(batch.target.rows.host_lengths))
    first, stop = batch.target.rows.offsets[row : row + 2].tolist()
    place = first + 4
    ids[place] = (ids[place] + 1) % VOCAB
    changed = replace(batch, target=replace(batch.target, ids=ids))
    moved = (seq2seq(batch) != seq2seq(changed)).any(1)
    assert moved[place:stop].all()
    assert not moved[:place].any()
    assert not moved[stop:].any()


def test_a_pair_does_not_depend_on_the_others(seq2seq):
    together, collate = seq2seq(batch_of(seq2seq)), PairCollator(BEGIN, END)
    chosen = pairs(LENGTHS, source=seq2seq.reads_source)
    batch = collate(chosen)
    lengths = batch.target.rows.host_lengths.tolist()
    rows = {tuple(ids.tolist()): part for ids, part in zip(texts_of(batch.target), together.split(lengths), strict=True)}
    for pair in chosen:
        # Two targets may be equal only if they are empty, and then there is one of them.
        alone = collate([pair])
        equal(seq2seq(alone), rows[tuple(alone.target.ids.tolist())])


@torch.no_grad()
def test_reading_token_by_token_is_reading_at_once(seq2seq):
    """Prompts differ in length, and one is empty; sequences are repeated, exchanged and left out on the way."""
    batch = batch_of(seq2seq)
    targets = list(texts_of(batch.target))
    cuts = [min(cut, len(target)) for cut, target in zip([0, 1, 2, 1, 3, 4], targets, strict=True)]
    prompts = bare_rows([target[:cut].tolist() for target, cut in zip(targets, cuts, strict=True)])
    # The rows of prompts are sorted, and those of sources follow them.
    source = None
    if batch.source is not None:
        texts = texts_of(batch.source)
        source = PairCollator(BEGIN, END).sources([texts[row].numpy()[:-1] for row in prompts.source])
    read = [targets[row][: cuts[row]] for row in prompts.source]
    states, cache = seq2seq.read_prompts(prompts, source)
    sequences = [*range(len(read))]

    sources = [None] * len(read) if source is None else texts_of(source)

    def check():
        for state, ids, number in zip(states, read, sequences, strict=True):
            equal(state, reference(seq2seq, ids, sources[number])[0][-1])
        assert cache.lengths.tolist() == [len(ids) for ids in read]

    check()
    random = np.random.default_rng(1)
    for index in ([0, 1, 2, 3, 4, 5], [3, 0, 0, 5, 2, 2, 1], [6, 6, 1, 4], [0], [0, 0, 0]):
        cache = cache.reorder(np.array(index))
        read, sequences = [read[place] for place in index], [sequences[place] for place in index]
        ids = torch.from_numpy(random.integers(2, VOCAB, size=len(index)))
        states, cache = seq2seq.read_tokens(ids, cache)
        read = [torch.cat([before, token[None]]) for before, token in zip(read, ids, strict=True)]
        check()


def test_gradients():
    built = model(encoder_layers=1, decoder_layers=1, dim=3, hidden=2)
    batch = batch_of(built, [(2, 3), (0, 1), (3, 0)])
    names, values = zip(*built.named_parameters(), strict=True)

    def run(*values):
        return torch.func.functional_call(built, dict(zip(names, values, strict=True)), (batch,))

    assert torch.autograd.gradcheck(run, tuple(value.detach().requires_grad_() for value in values), fast_mode=True)
    run(*values).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in built.parameters())


def test_what_each_model_declares():
    built = model()
    assert (built.out_dim, built.vector_dim, built.reads_source) == (5, 6, True)
    assert built.layer_dims() == (5, 6, 6)
    assert built.layer_prefixes() == (("embedding.",), ("encoder.layers.0.",), ("encoder.layers.1.",))
    assert model(share_embeddings=False).layer_prefixes()[0] == ("source_embedding.",)
    alone = model(encoder_layers=0, attention="none", decoder_layers=1)
    assert not alone.reads_source
    assert alone.layer_prefixes() == (("embedding.",), ("decoder.layers.0.",))
    rows = bare_rows([[3, 4], [5, 6, 7], []])
    vectors = alone.vectors(rows)
    equal(vectors, alone.vector(alone.encode_rows(rows)))
    assert vectors.any(1).tolist() == [rows.source[place] != 2 for place in range(3)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder_layers": 0}, "model.attention=dot attends to a source, but model.encoder_layers=0 reads none"),
        ({"hidden": 7}, "model.hidden=7 is odd, but each direction of the encoder has half of it"),
        ({"decoder_layers": 0}, "model.decoder_layers must be at least 1"),
    ],
)
def test_settings_that_no_model_has(settings, message):
    with pytest.raises(RamifyError, match=message):
        Seq2SeqConfig(**settings)


def test_a_source_is_there_if_and_only_if_it_is_read():
    built, alone = model(), model(encoder_layers=0, attention="none")
    rows = bare_rows([[3], [4, 5]])
    with pytest.raises(RamifyError, match=r"source=None cannot be read: model.encoder_layers=2 needs a source for each text"):
        built.read_prompts(rows)
    with pytest.raises(RamifyError, match=r"source needs an encoder, but model.encoder_layers=0"):
        alone.read_prompts(rows, rows)
    with pytest.raises(RamifyError, match=r"source holds 1 text for 2 texts that are to be predicted. Pass one for each"):
        built.read_prompts(rows, bare_rows([[3]]))


# --- the task ------------------------------------------------------------------------------------------------------------


def copying(built, steps, lr=0.02):
    """A task that has learned to copy texts of one to eight tokens. It ends a text where the source ends."""
    words = tokenizer()
    task = NextTokenLM(built, words, PairInput(), NextTokenConfig())
    random = np.random.default_rng(0)

    def draw(count):
        texts = [random.integers(5, 17, size=random.integers(1, 9)) for _ in range(count)]
        return [Pair(text, text) for text in texts]

    optimizer = torch.optim.Adam(task.parameters(), lr=lr)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        batch = task.collator(draw(64))
        ((named, _),) = task.losses(batch, task.counts(batch, MAIN), MAIN, None, None)
        (loss,) = named.values()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
    return task.eval(), draw


def test_copying_is_learned_in_seconds():
    torch.manual_seed(0)
    built = Seq2Seq(Seq2SeqConfig(tokenizer().vocab_size, 32, hidden=64, dropout=0.0))
    task, draw = copying(built, 200)
    texts = [pair.target for pair in draw(100)]
    prompts, collate = bare_rows([[]] * len(texts)), task.collator
    source = collate.sources(texts)
    limits, maximums = Limits(stop=(collate.end,)), [20] * len(texts)
    steps = sample(task, prompts, GREEDY, limits, maximums=maximums, seeds=[0] * len(texts), source=source)
    # Whether the last few are right, too, depends on the rounding of the updates.
    copies = [found == text.tolist() for found, text in zip(collect(steps, len(texts)), texts, strict=True)]
    assert sum(copies) >= 90
    # The probabilities of beams are those of their texts.
    found = beam_search(task, bare_rows([[]] * 3), Beam(4, 4), limits, maximums=[9] * 3, source=collate.sources(texts[:3]))
    for text, hypotheses in zip(texts, found, strict=False):
        for hypothesis in hypotheses:
            batch = collate([Pair(np.array(hypothesis.ids, dtype=np.int64), text)])
            scores = task.head(task.backbone(batch)).detach().log_softmax(1).gather(1, batch.labels[:, None]).flatten()
            total = scores if hypothesis.stopped else scores[:-1]
            assert math.isclose(hypothesis.log_probability, float(total.sum()), abs_tol=1e-3)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_half_precision_is_close(cell):
    """The decoder's first states come from maps, which compute in half precision."""
    config = replace(SEQ2SEQ, cell=cell, dim=64, hidden=64)
    task, (batch,) = translations(config)
    expected = gradient(task, [batch])
    with torch.autocast("cpu", torch.bfloat16):
        rounded = gradient(task, [batch])
    size = max(float(value.abs().max()) for value in expected.values())
    assert 0 < distance(rounded, expected) < 0.1 * size


def test_a_loss_is_not_rounded_to_half_precision():
    """States in half precision have losses whose sum and divisor are in single precision."""
    task, (batch,) = translations(SEQ2SEQ)
    task = task.float().eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        states = task.backbone(batch)
        assert states.dtype == torch.bfloat16
        ((losses, _),) = task.losses(batch, {"next_token": 3877.0}, "", None, None)
        nats, _ = task.head.measure(states, batch.labels)
    assert losses["next_token"].dtype == torch.float32
    torch.testing.assert_close(losses["next_token"], nats.sum() / 3877, rtol=1e-4, atol=0)

"""ELMo: characters, directions that stay apart in every layer, carried states, and parity with torch's LSTM."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ramify
from fixtures.running import UNROLLED, elmo_task, streams, tokenizer
from ramify import hub
from ramify.batching.characters import LENGTH, Characters, Lexicon, spell, vocabulary_spellings
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.stream_batch import collate_streams, plain_rows
from ramify.batching.views.streams import StreamConfig, StreamInput
from ramify.errors import RamifyError
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.models.elmo import MARKS, NUM_CHARACTERS, CharacterEncoder, Elmo, ElmoConfig, Highway
from ramify.nn.ragged import Rows
from ramify.recipes import RECIPES

KINDS = {
    "characters": {},
    "words": {"input": "words"},
    "three layers": {"num_layers": 3, "clip": 0.05},
    "no projection": {"hidden": 8},
}


def rows_of(texts):
    ids = torch.tensor([token for text in texts for token in text], dtype=torch.long)
    return EncoderInput.of_rows(ids, Rows.build([len(text) for text in texts]))


def drawn(*lengths):
    random = np.random.default_rng(0)
    return [random.integers(7, tokenizer().vocab_size, size=length).tolist() for length in lengths]


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def elmo(request):
    return elmo_task(torch.float64, **request.param).backbone.eval()


# --- the published sizes ----------------------------------------------------------------------------------------------------


def test_the_published_model_has_93_600_864_parameters():
    run = RECIPES["elmo"]("somewhere", size="paper")
    with torch.device("meta"):
        model = run.model.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == 93_600_864
    assert model.layer_dims() == (1024, 1024, 1024)
    # A table of 261 characters, as in training, has one row less.
    assert NUM_CHARACTERS == 262
    assert run.model.char_dim == 16
    (stage,) = run.stages
    assert (stage.optimizer, stage.lr, stage.accumulator_start, stage.loss_scale, stage.clip) == (
        "adagrad",
        0.2,
        1.0,
        20.0,
        10.0,
    )
    assert (run.task.sampled, run.tokenizer.vocab_size, stage.epochs) == (8192, 793_471, 10.0)
    assert (run.input.row_tokens, run.input.reused_tokens, run.view.streams) == (21, 20, 384)


def test_initial_weights_are_those_of_the_published_code():
    torch.manual_seed(0)
    model = Elmo(ElmoConfig(vocab_size=50, dim=64, hidden=256))
    reader = model.characters
    assert 0.99 < reader.embedding.weight.abs().max() <= 1
    for convolution in reader.filters:
        assert 0.049 < convolution.weight.abs().max() <= 0.05
        assert not convolution.bias.any()
    for highway in reader.highways:
        assert (highway.gate.bias == -2).all()
        assert not highway.transform.bias.any()
    for stack in model.stacks:
        for (chain,) in stack.layers:
            enter, keep, new, leave = chain.cells.bias_ih_l0.chunk(4)
            assert (keep == 1).all()
            assert not torch.cat([enter, new, leave]).any()
            assert not chain.cells.bias_hh_l0.any()
    assert not any("bias_hh" in name for name, _ in model.named_parameters())
    task = elmo_task(dim=64, hidden=80)
    assert task.head.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)


# --- characters -------------------------------------------------------------------------------------------------------------


def test_characters_are_the_bytes_of_a_word_between_marks():
    table = spell(["ab", "é", "x" * 60, ""])
    assert table.shape == (4, LENGTH)
    rows = CharacterEncoder(4, [(1, 2)], 1, 3).rows[torch.from_numpy(table).long()].tolist()
    assert rows[0] == [259, ord("a") + 1, ord("b") + 1, 260, *[261] * 46]
    assert rows[1][:4] == [259, 0xC3 + 1, 0xA9 + 1, 260]
    assert rows[2] == [259, *[ord("x") + 1] * 48, 260]
    assert rows[3] == [259, 260, *[261] * 48]
    own = tokenizer()
    known = vocabulary_spellings(own)
    assert len(known) == own.vocab_size
    for token_id, mark in ((own.cls_id, 0xFE), (own.sep_id, 0xFF)):
        assert known[token_id][:3].tolist() == [0xFC, mark, 0xFD]
    assert sorted(MARKS.values()) == [257, 258, 259, 260, 261]


@torch.no_grad()
def test_character_encoder_follows_the_formulas():
    """Maximum, then relu; two highway layers; a projection."""
    torch.manual_seed(0)
    encoder = CharacterEncoder(4, [(1, 3), (3, 5)], 2, 6).double()
    for parameter in encoder.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.5)
    table = torch.from_numpy(spell(["moon", "x" * 60, "risen"]))
    found = encoder(table)
    for word, vector in zip(table, found, strict=True):
        letters = encoder.embedding.weight[encoder.rows[word.long()]]
        parts = []
        for (width, _), convolution in zip([(1, 3), (3, 5)], encoder.filters, strict=True):
            windows = letters.unfold(0, width, 1)
            scores = torch.einsum("pcw,ncw->pn", windows, convolution.weight) + convolution.bias
            parts.append(F.relu(scores.max(0).values))
        x = torch.cat(parts)
        for highway in encoder.highways:
            gate = torch.sigmoid(highway.gate.weight @ x + highway.gate.bias)
            x = gate * F.relu(highway.transform.weight @ x + highway.transform.bias) + (1 - gate) * x
        expected = encoder.project.weight @ x + encoder.project.bias
        torch.testing.assert_close(vector, expected, rtol=0, atol=1e-12)


def test_training_and_evaluation_read_the_same_vectors():
    """Training reads each spelling of a batch once."""
    model = elmo_task(torch.float64, dropout=0.0).backbone
    rows = rows_of(drawn(9, 4, 12)).spelled(Lexicon.of(tokenizer(), []))
    read = []
    model.characters.register_forward_pre_hook(lambda module, inputs: read.append(len(inputs[0])))
    one, other = (model.train(mode).encode_rows(rows, layers=True).layers for mode in (True, False))
    assert read == [len(rows.ids.unique()), 25]
    for states, others in zip(one, other, strict=True):
        torch.testing.assert_close(states, others, rtol=0, atol=1e-12)


def test_spellings_are_sorted_as_bytes():
    """In the order that torch gives them, so that a device adds the same numbers in the same order."""
    random = np.random.default_rng(0)
    table = random.choice(np.array([0, 1, 127, 128, 255], dtype=np.uint8), size=(40, 3))[random.integers(40, size=(9, 7))]
    characters = Characters.of(table)
    spellings, index = torch.from_numpy(table).flatten(0, 1).unique(dim=0, return_inverse=True)
    assert torch.equal(characters.spellings, spellings)
    assert torch.equal(characters.index, index.view(9, 7))
    assert torch.equal(characters.of_tokens, torch.from_numpy(table).flatten(0, 1))


def test_a_model_without_spellings_says_so():
    with pytest.raises(
        RamifyError, match=r"model.input=characters reads the spellings of a vocabulary, but this Elmo knows none"
    ):
        Elmo(ElmoConfig(vocab_size=50, dim=8, hidden=9)).encode_rows(rows_of([[3, 4]]))


@torch.no_grad()
def test_unknown_words_have_their_own_characters():
    """A word that the vocabulary lacks is told from others, and a word that it has is read by the same characters."""
    own = tokenizer()
    model = elmo_task(torch.float64).backbone.eval()
    lexicon = Lexicon.of(own, ["xyzzy", "quux", "y" * 70])
    assert lexicon.num_cut == 1
    place = own.vocab_size
    rows = rows_of([[9, place, 10], [9, place + 1, 10], [9, 8, 10]]).spelled(lexicon)
    assert rows.ids.tolist() == [9, own.unk_id, 10, 9, own.unk_id, 10, 9, 8, 10]
    words = model.encode_rows(rows, layers=True).layers[0]
    assert not torch.equal(words[1], words[4])
    plain = model.encode_rows(rows_of([[9, 8, 10]]), layers=True).layers[0]
    torch.testing.assert_close(words[6:], plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("input", "apart"), [("characters", True), ("words", False)])
def test_generate_reads_the_characters_of_a_prompt(input, apart, near):
    own = type(tokenizer()).train(["the moon had not risen over the hill"] * 3, kind="word", vocab_size=30, marks=True)
    pipeline = BidirectionalPipeline(elmo_task(own=own, input=input))
    prompts = ["the xyzzy", "the quux"]
    one, other = pipeline.generate(prompts, tokens=1, beam=1)
    assert (abs(one.hypotheses[0].score - other.hypotheses[0].score) > 1e-4) == apart
    assert bool(one.notes) != apart
    assert one.unknown_tokens == 1
    again = pipeline.generate(prompts[1], tokens=1, beam=1)
    near(again.hypotheses[0].score, other.hypotheses[0].score)


def test_embed_tells_unknown_words_apart(tmp_path, near):
    words = ramify.Tree((ramify.Node("the moon had not risen over the hill"),))
    own = type(tokenizer()).train([words.nodes[0].text] * 3, kind="word", vocab_size=30, marks=True)
    assert own.encode("the xyzzy moon")[1] == own.unk_id
    by_characters = BidirectionalPipeline(elmo_task(own=own))
    one, other, again = by_characters.embed(["the xyzzy moon", "the quux moon", "the xyzzy moon"])
    assert not np.allclose(one, other)
    near(one, again)
    by_words = BidirectionalPipeline(elmo_task(own=own, input="words"))
    one, other = by_words.embed(["the xyzzy moon", "the quux moon"])
    near(one, other)
    for number, pipeline in enumerate((by_characters, by_words)):
        ramify.save(pipeline, tmp_path / str(number))
        loaded = ramify.load(tmp_path / str(number))
        texts = ["the xyzzy moon", "over", ""]
        assert np.array_equal(loaded.embed(texts), pipeline.embed(texts))
        assert loaded.backbone.config == pipeline.backbone.config


# --- directions -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_directions_stay_apart_in_every_layer(elmo):
    """To the bit: the forward half does not depend on later tokens, nor the backward half on earlier ones."""
    elmo = elmo.float()
    (text,) = drawn(12)
    before = elmo.encode_rows(rows_of([text, *drawn(5, 3)]), layers=True).layers
    dim = elmo.config.dim
    for place in (0, 5, 11):
        changed = [*text]
        changed[place] = next(token for token in range(7, 30) if token not in text)
        after = elmo.encode_rows(rows_of([changed, *drawn(5, 3)]), layers=True).layers
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            moved = (one != other)[: len(text)]
            forward, backward = moved[:, :dim].any(1).tolist(), moved[:, dim:].any(1).tolist()
            if number == 0:
                assert forward == backward == [token == place for token in range(len(text))]
            else:
                assert forward == [token >= place for token in range(len(text))]
                assert backward == [token <= place for token in range(len(text))]
            # Other rows do not change.
            assert torch.equal(one[len(text) :], other[len(text) :])


@torch.no_grad()
def test_layer_0_is_doubled_and_forward_only_has_one_half():
    both = elmo_task(torch.float64).backbone.eval()
    alone = elmo_task(torch.float64, directions="forward").backbone.eval()
    alone.load_state_dict({name: tensor for name, tensor in both.state_dict().items() if not name.startswith("backward")})
    rows = rows_of(drawn(7, 2))
    one, other = both.encode_rows(rows, layers=True).layers, alone.encode_rows(rows, layers=True).layers
    assert torch.equal(one[0][:, :8], one[0][:, 8:])
    for layer, half in zip(one, other, strict=True):
        assert torch.equal(layer[:, :8], half)
    assert (both.vector_dim, alone.vector_dim, alone.out_dim) == (16, 8, 8)


@torch.no_grad()
@pytest.mark.parametrize(("settings", "clip"), [({}, None), ({}, 0.05), ({"hidden": 8}, None)])
def test_states_are_those_of_torch(settings, clip):
    """torch.nn.LSTM(proj_size) with one of its biases zero, and a residual from the first layer to the second. A clip changes
    them."""
    model = elmo_task(torch.float64, clip=clip, **settings).backbone.eval()
    texts = drawn(9, 1, 4)
    found = model.encode_rows(rows_of(texts), layers=True)
    words = found.layers[0][:, :8].split([9, 1, 4])
    equal = True
    for row, x in enumerate(words):
        expected = []
        for stack, backward in zip(model.stacks, (False, True), strict=True):
            states = x.flip(0) if backward else x
            for number, (chain,) in enumerate(stack.layers):
                projection = {} if settings else {"proj_size": 8}
                theirs = nn.LSTM(8, model.config.hidden, **projection).double()
                theirs.load_state_dict({**chain.cells.state_dict(), "bias_hh_l0": torch.zeros_like(chain.cells.bias_ih_l0)})
                out = theirs(states)[0]
                states = out + states if number else out
            expected.append(states.flip(0) if backward else states)
        part = found.last.split([9, 1, 4])[row]
        equal = equal and torch.allclose(part, torch.cat(expected, 1), rtol=0, atol=1e-12)
    assert equal == (clip is None)


# --- streams ----------------------------------------------------------------------------------------------------------------


def batches(directions="both", input=UNROLLED):
    view = streams(input=input, view=StreamConfig(2, directions))
    return view, [
        collate_streams([view.example(stream * view.per_stream + place) for stream in range(view.config.num_rows)], input)
        for place in range(4)
    ]


@torch.no_grad()
@pytest.mark.parametrize("directions", ["both", "forward"])
def test_carried_states_are_those_of_one_pass(directions):
    """Row by row, the states are those of the whole text in the direction of the row."""
    task = elmo_task(torch.float64, directions=directions).eval()
    view, parts = batches(directions)
    state, queries = None, []
    for batch in parts:
        hidden = task.backbone(task.draw(batch, np.arange(0)), state, targets_only=True)
        state = hidden.state
        queries.append(hidden.queries)
    found = torch.cat(queries, 1)
    assert found.shape[1] == 4 * UNROLLED.reused_tokens
    for row in range(view.config.num_rows):
        ids = np.concatenate([batch.host_ids[row][: UNROLLED.reused_tokens] for batch in parts])
        sign = int(parts[0].direction[row])
        # A backward row in the order of the text.
        text = ids[::sign].tolist()
        last = task.backbone.encode_rows(rows_of([text])).last
        half = last[:, :8] if sign > 0 else last[:, 8:].flip(0)
        torch.testing.assert_close(found[row], half, rtol=0, atol=1e-12)
    plain = task.backbone(task.draw(parts[1], np.arange(0)), None, targets_only=True).queries
    assert not torch.allclose(plain, queries[1])


@torch.no_grad()
def test_a_share_of_training_rows_begins_without_a_state():
    """Each row continues or begins. An evaluation always continues."""
    task = elmo_task(torch.float64, dropout=0.0, restart=0.5).train()
    _, (first, second, *_) = batches()
    state = task.backbone(task.draw(first, np.arange(0)), None, targets_only=True).state
    second = task.draw(second, np.arange(0))

    def read(before):
        return task.backbone(second, before, targets_only=True).queries

    begun, continued = task.eval() and read(None), read(state)
    seen = set()
    for seed in range(5):
        torch.manual_seed(seed)
        drawn = task.train() and read(state)
        for row in range(len(drawn)):
            seen |= {name for name, kind in (("begun", begun), ("continued", continued)) if torch.equal(drawn[row], kind[row])}
            assert torch.equal(drawn[row], begun[row]) or torch.equal(drawn[row], continued[row])
    assert seen == {"begun", "continued"}


@torch.no_grad()
def test_states_that_predict_are_dropped_in_training():
    """Dropout stands before the softmax, too."""
    task = elmo_task(torch.float64, dropout=0.4)
    _, (part, *_) = batches()
    drawn = task.draw(part, np.arange(0))
    torch.manual_seed(0)
    dropped = task.train() and task.backbone(drawn, None, targets_only=True).queries
    assert abs(float((dropped == 0).double().mean()) - 0.4) < 0.1
    assert bool((task.eval() and task.backbone(drawn, None, targets_only=True).queries != 0).all())


@torch.no_grad()
def test_without_a_state_every_row_starts_anew():
    task = elmo_task(torch.float64, stateful=False).eval()
    _, parts = batches()
    hidden = task.backbone(task.draw(parts[0], np.arange(0)), None, targets_only=True)
    assert hidden.state is None
    # An evaluation may ask for it (--memory 0), but for no other number of states.
    stateful = elmo_task(torch.float64).eval()
    assert stateful.backbone(replace(parts[0], remembered=0)).state is None
    with pytest.raises(
        RamifyError, match=r"memory=3 counts states of earlier tokens, but an Elmo carries those of the last one"
    ):
        stateful.backbone(replace(parts[0], remembered=3))


@torch.no_grad()
def test_rows_that_begin_a_text_forget(tmp_path):
    task = elmo_task(torch.float64).eval()
    _, (first, second, *_) = batches()
    state = task.backbone(first).state
    begins = torch.tensor([True, False, False, True])
    found = task.backbone(replace(second, begins=begins), state).tokens
    anew, on = task.backbone(second).tokens, task.backbone(second, state).tokens
    for row, expected in enumerate((anew, on, on, anew)):
        torch.testing.assert_close(found[row], expected[row], rtol=0, atol=1e-12)


@torch.no_grad()
def test_tokens_behind_the_carried_part_are_read_from_its_states():
    """Rows that overlap: the next row begins where the carried part ends."""
    task = elmo_task(torch.float64).eval()
    ids = np.array(drawn(9, 9))
    whole = task.backbone(plain_rows(ids))
    parted = task.backbone(plain_rows(ids, reused=4))
    torch.testing.assert_close(parted.tokens, whole.tokens, rtol=0, atol=1e-12)
    assert whole.state is None
    next_row = task.backbone(plain_rows(ids[:, 4:]), parted.state).tokens
    torch.testing.assert_close(next_row, whole.tokens[:, 4:], rtol=0, atol=1e-12)


@torch.no_grad()
def test_carried_states_have_not_read_the_last_token_of_a_row():
    """It is the first one of the next row, which reads it again."""
    task = elmo_task().eval()
    _, (first, *_) = batches()
    before = task.backbone(first).state
    for place in range(UNROLLED.row_tokens):
        ids = first.input_ids.clone()
        ids[:, place] = (ids[:, place] + 1) % tokenizer().vocab_size
        after = task.backbone(replace(first, input_ids=ids)).state
        same = place == UNROLLED.row_tokens - 1
        assert all(torch.equal(after[name], before[name]) == same for name in before)


@torch.no_grad()
def test_reading_token_by_token_is_reading_at_once():
    model = elmo_task(torch.float64).backbone.eval()
    prompts = [[9, 8, 7], [10], [], [11, 12]]
    states, cache = model.read_prompts(rows_of(prompts))
    more = torch.tensor([[9, 10, 11, 12], [7, 8, 9, 10]])
    for step in range(3):
        assert cache.lengths.tolist() == [len(prompt) for prompt in prompts]
        for row, prompt in enumerate(prompts):
            expected = model.encode_rows(rows_of([prompt])).last[-1, :8] if prompt else torch.zeros(8).double()
            torch.testing.assert_close(states[row], expected, rtol=0, atol=1e-12)
        if step == 2:
            return
        index = np.array([1, 1, 3, 2])
        cache, prompts = cache.reorder(index), [prompts[number] for number in index]
        states, cache = model.read_tokens(more[step], cache)
        prompts = [[*prompt, int(token)] for prompt, token in zip(prompts, more[step], strict=True)]


# --- settings ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 7, "dim": 8}, r"model.hidden=7 is below model.dim=8, to which the cells' outputs are projected"),
        ({"clip": 0.0}, r"model.clip must be above 0, but is 0.0. Set it to null for no bound"),
        ({"filters": ((51, 3),)}, r"model.filters=\[\[51, 3\]\] must hold pairs of a width from 1 to 50"),
        ({"filters": ()}, r"model.filters=\[\] must hold pairs"),
    ],
)
def test_settings_that_no_model_has(settings, message):
    with pytest.raises(RamifyError, match=message):
        ElmoConfig(**settings)


def test_streams_that_the_model_cannot_learn_from():
    config = ElmoConfig(directions="forward")
    with pytest.raises(
        RamifyError, match=r"view.directions=both reads rows in other directions .* Set view.directions=forward"
    ):
        config.check_streams(UNROLLED, StreamConfig(), 100)
    reset = replace(UNROLLED, memory_reset="document")
    with pytest.raises(
        RamifyError, match=r"input.memory_reset=document forgets a part of a row, but an Elmo carries its states"
    ):
        ElmoConfig().check_streams(reset, StreamConfig(), 100)
    ElmoConfig(stateful=False).check_streams(reset, StreamConfig(), 100)
    with pytest.raises(RamifyError, match=r"input.max_tokens must be at least 1, but is 0"):
        StreamInput(max_tokens=0)


def test_a_model_starts_from_a_saved_one(tmp_path):
    task = elmo_task()
    ramify.save(BidirectionalPipeline(task), tmp_path)
    checkpoint = hub.checkpoint(str(tmp_path))
    config = replace(task.backbone.config, dropout=0.3).adapted_to(checkpoint)
    other = config.build()
    config.initialize(other, checkpoint)
    for name, tensor in task.backbone.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
    with pytest.raises(RamifyError, match=r"model\.dim"):
        replace(config, dim=4).initialize(replace(config, dim=4).build(), checkpoint)


def test_highway_is_open_for_what_it_reads_at_first():
    torch.manual_seed(0)
    x = torch.randn(50, 40)
    kept = Highway(40)(x)
    assert (kept - x).norm() / x.norm() < 0.5

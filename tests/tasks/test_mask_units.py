"""Masks of BERT's rows: the cap, whole words, spans, the slides' example, and the next-sentence loss."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures import bert_task, tokenizer, tree_task
from ramify.batching.batch import IGNORE
from ramify.batching.row_batch import RowCollator
from ramify.batching.running_text import RunningText
from ramify.batching.text_input import TextInput
from ramify.batching.views.packed import FullSentences, PairConfig, SentencePairs, TextRow
from ramify.errors import RamifyError
from ramify.models.bert import Bert, BertConfig
from ramify.tasks.base import MAIN
from ramify.tasks.mask_units import LONGEST, STOP, Words, choose, span_lengths
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def pieces():
    """A WordPiece tokenizer with many words of several pieces."""
    texts = ["unbelievable walking talked singing the dog barked away a cat ran believing walks talks songs ."] * 30
    return Tokenizer.train(texts, vocab_size=75)


WORDS = [
    "unbelievable",
    "walking",
    "talked",
    "singing",
    "the",
    "dog",
    "barked",
    "away",
    "a",
    "cat",
    "ran",
    "believing",
    "walks",
    "talks",
    "songs",
    ".",
]


def rows_of(pieces, count=60, length=90, pairs=False, seed=0):
    """Random words as running text, and its rows."""
    random = np.random.default_rng(seed)
    sentences = [pieces.encode(" ".join(random.choice(WORDS, size=random.integers(3, 12)))) for _ in range(count * 6)]
    borders = np.concatenate([[0], np.cumsum([len(each) for each in sentences])]).astype(np.int64)
    documents = np.append(np.arange(0, len(sentences), 7), len(sentences))
    text = RunningText(np.concatenate(sentences).astype(np.uint16), borders, documents, documents)
    view = SentencePairs(text, pieces, length) if pairs else FullSentences(text, pieces, length)
    return RowCollator(pieces.layout("bert").frame, pairs)([view.example(number) for number in range(min(count, len(view)))])


def task_of(pieces, **config):
    torch.manual_seed(0)
    pooling = "pooler" if config.get("next_sentence") else "mean"
    model = BertConfig(
        vocab_size=pieces.vocab_size, dim=8, num_layers=2, num_heads=2, ffn_dim=16, dropout=0.0, max_tokens=128, pooling=pooling
    )
    return MaskedLM(Bert(model), pieces, config=MaskedLMConfig(**config)).double()


def masked_places(task, batch, seed=0):
    """The masked places of the flat axis, by row."""
    corrupted = task.mask(batch, torch.arange(len(batch.targets)) + seed)
    assert corrupted.output_positions is not None
    kept = corrupted.labels != IGNORE
    places = corrupted.output_positions.index[kept]
    assert torch.equal(batch.target_ids[places], corrupted.labels[kept])
    rows = torch.repeat_interleave(torch.arange(len(batch.targets)), batch.targets.lengths)
    return corrupted, [places[rows[places] == row].tolist() for row in range(len(batch.targets))]


def words_by_hand(pieces, batch):
    """The words of each row as lists of places: pieces that continue a word join it; a special token ends it."""
    found, start = [], 0
    for length in batch.targets.host_lengths.tolist():
        words = []
        for place in range(start, start + length):
            if not batch.maskable[place]:
                words.append([])
            elif words and words[-1] and pieces.token(int(batch.target_ids[place])).startswith("##"):
                words[-1].append(place)
            else:
                words.append([place])
        found.append([word for word in words if word])
        start += length
    return found


@pytest.mark.parametrize("unit", ["piece", "word", "span"])
@pytest.mark.parametrize("cap", [None, 5])
def test_number_of_masks(pieces, unit, cap):
    batch = rows_of(pieces)
    _, places = masked_places(task_of(pieces, mask_unit=unit, max_predictions=cap), batch)
    for own, length in zip(places, batch.targets.host_lengths.tolist()):
        asked = max(1, round(0.15 * length))
        asked = asked if cap is None else min(asked, cap)
        # A word that does not fit is left out, so whole words may stay below by less than a word.
        assert len(own) == asked if unit == "piece" else asked - 8 < len(own) <= asked
        assert all(batch.maskable[place] for place in own)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_words_are_never_split(pieces, unit):
    batch = rows_of(pieces, pairs=True)
    task = task_of(pieces, mask_unit=unit, mask_rate=0.4)
    chosen = 0
    for seed in range(3):
        _, places = masked_places(task, batch, seed)
        for own, words in zip(places, words_by_hand(pieces, batch)):
            for word in words:
                assert len(set(word) & set(own)) in (0, len(word))
                chosen += len(word) > 1 and word[0] in own
    assert chosen > 100


def test_every_word_is_chosen_equally_often(pieces):
    """Without long words, whole-word masks are uniform over words."""
    words = Words(np.arange(10), np.arange(10) + 1, np.zeros(10, dtype=np.int64))
    counts = np.zeros(10)
    random = np.random.default_rng(0)
    for _ in range(4000):
        counts[choose(words, np.array([3]), random.integers(0, 2**32, 10), None).index] += 1
    assert np.abs(counts / 4000 - 0.3).max() < 0.03


def test_spans_are_runs_of_words_with_one_action(pieces):
    batch = rows_of(pieces, count=200, length=120)
    task = task_of(pieces, mask_unit="span", mask_split=(0.5, 0.0, 0.5))
    corrupted, places = masked_places(task, batch)
    runs, mixed = [], 0
    for own, words in zip(places, words_by_hand(pieces, batch)):
        taken = [word[0] in own for word in words]
        shown = [bool(corrupted.target_ids[word[0]] == pieces.mask_id) for word in words]
        for word in words:
            if word[0] in own:
                # All pieces of a word are replaced alike.
                assert len({bool(corrupted.target_ids[place] == pieces.mask_id) for place in word}) == 1
        length = 0
        for number, (here, mask) in enumerate(zip(taken, shown)):
            length = length + 1 if here else 0
            if here and number + 1 < len(taken) and taken[number + 1]:
                mixed += shown[number + 1] != mask
            elif here:
                runs.append(length)
    # Runs are longer than single words would give, and neighbours mostly share their action.
    assert np.mean(runs) > 2
    assert max(runs) > 5
    assert mixed < 0.25 * sum(runs)


def test_span_lengths_follow_the_cut_geometric_distribution():
    lengths = span_lengths((np.arange(100_000) + 0.5) / 100_000)
    shares = STOP * (1 - STOP) ** np.arange(LONGEST)
    assert np.bincount(lengths, minlength=LONGEST + 1)[1:] / 100_000 == pytest.approx(shares / shares.sum(), abs=2e-5)
    # The mean that the paper gives.
    assert lengths.mean() == pytest.approx(3.8, abs=0.05)


def test_spans_end_at_special_tokens():
    words = Words(np.array([1, 2, 4]), np.array([2, 3, 5]), np.zeros(3, dtype=np.int64))
    found = choose(words, np.array([9]), np.array([0, 1, 2]), np.array([5, 5, 5]))
    assert found.leader.tolist() == [1, 1, 4]
    # The last word of a budget is left out whole.
    wide = Words(np.array([0, 1]), np.array([1, 4]), np.zeros(2, dtype=np.int64))
    assert choose(wide, np.array([3]), np.array([0, 1]), np.array([2, 1])).index.tolist() == [0]


def test_equal_draws_with_and_without_words_of_one_piece():
    """Where every piece is a word, whole words are the same masks as pieces."""
    batch = rows_of(tokenizer_of_words(), seed=2)
    one, two = (task_of(tokenizer_of_words(), mask_unit=unit) for unit in ("piece", "word"))
    first, second = (masked_places(task, batch)[0] for task in (one, two))
    assert torch.equal(first.target_ids, second.target_ids)


def tokenizer_of_words():
    return Tokenizer.train([" ".join(WORDS)] * 30, vocab_size=400)


# --- next sentences -----------------------------------------------------------------------------------------------------------


def test_loss_is_the_mean_of_masked_tokens_plus_next_sentences(pieces):
    batch = rows_of(pieces, pairs=True, count=20)
    config = {"next_sentence": 0.7, "comment_loss": "token", "loss_norm": "tokens", "head": "bert", "max_predictions": 6}
    task = task_of(pieces, **config)
    corrupted = task.mask(batch, torch.arange(len(batch.targets)))
    counts = task.counts(corrupted, MAIN)
    labels = corrupted.labels[corrupted.labels != IGNORE]
    assert counts == {"masked_lm": len(labels), "next_sentence": 20}
    ((found, _),) = task.losses(corrupted, counts, MAIN, None, None)
    # By hand: all states, no output positions.
    states = task.backbone.stack(
        task.backbone.embeddings(corrupted.target_ids, corrupted.targets.positions, corrupted.token_type_ids), batch.targets
    )
    assert corrupted.output_positions is not None
    index = corrupted.output_positions.index[corrupted.labels != IGNORE]
    torch.testing.assert_close(found["masked_lm"], F.cross_entropy(task.head(states[index]), labels))
    first = states[batch.targets.offsets[:-1].long()]
    scores = task.next_head(torch.tanh(task.backbone.pool.hidden(first)))
    expected = F.cross_entropy(scores.float(), batch.pair_labels) * 0.7
    torch.testing.assert_close(found["next_sentence"], expected)
    # The same in parts.
    task.config = MaskedLMConfig(**config, two_phase="always", chunk_tokens=200)
    parts = [named for named, _ in task.losses(corrupted, counts, MAIN, None, None)]
    assert len(parts) > 3
    for name in found:
        torch.testing.assert_close(sum(part[name] for part in parts), found[name])


def test_gradients_are_finite_and_reach_every_parameter(pieces):
    batch = rows_of(pieces, pairs=True, count=8)
    for unit in ("piece", "word", "span"):
        task = task_of(pieces, next_sentence=1.0, head="bert", mask_unit=unit, comment_loss="token", loss_norm="tokens")
        corrupted = task.corrupt(batch, torch.Generator().manual_seed(0))
        ((named, _),) = task.losses(corrupted, task.counts(corrupted, MAIN), MAIN, None, None)
        sum(named.values()).backward()
        for name, parameter in task.named_parameters():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
            assert parameter.grad.abs().sum() > 0, name


def test_a_rank_without_rows_has_an_empty_batch(pieces):
    for unit in ("piece", "word", "span"):
        task = task_of(pieces, next_sentence=1.0, mask_unit=unit, comment_loss="token", loss_norm="tokens")
        corrupted = task.corrupt(RowCollator(pieces.layout("bert").frame, pairs=True)([]), torch.Generator())
        assert task.counts(corrupted, MAIN) == {"masked_lm": 0.0, "next_sentence": 0.0}


def test_rows_without_pairs_have_no_next_sentence_loss(pieces):
    task = task_of(pieces, next_sentence=1.0)
    corrupted = task.mask(rows_of(pieces), torch.arange(60))
    assert task.counts(corrupted, MAIN)["next_sentence"] == 0
    ((named, _),) = task.losses(corrupted, {"masked_lm": 1.0, "next_sentence": 1.0}, MAIN, None, None)
    assert named.keys() == {"masked_lm"}


# --- the data builder of the slides -------------------------------------------------------------------------------------------


def test_the_example_of_the_slides():
    """`[CLS] the dog [MASK] [SEP] the cat [MASK] away [SEP]`, with the targets IsNext, barked and ran."""
    words = Tokenizer.train(["the dog barked the cat ran away"] * 20, vocab_size=60)
    sentences = [words.encode("the dog barked"), words.encode("the cat ran away")]
    assert [len(each) for each in sentences] == [3, 4]
    text = RunningText(np.concatenate(sentences).astype(np.uint16), np.array([0, 3, 7]), np.array([0, 2]), np.array([0, 2]))
    view = SentencePairs(text, words, 16, PairConfig(short_seq_prob=0.0, random_next=0.0))
    row = view.example(0)
    assert words.decode(row.ids.tolist()) == "[CLS] the dog barked [SEP] the cat ran away [SEP]"
    assert row.token_type_ids.tolist() == [0] * 5 + [1] * 5
    torch.manual_seed(0)
    model = BertConfig(vocab_size=words.vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=16, pooling="pooler")
    config = MaskedLMConfig(next_sentence=1.0, max_predictions=2, mask_split=(1.0, 0.0, 0.0))
    task = MaskedLM(Bert(model), words, config=config)
    batch = RowCollator(words.layout("bert").frame, pairs=True)([row])
    shown = set()
    for seed in range(200):
        masked = task.mask(batch, torch.tensor([seed]))
        targets = words.decode(masked.labels[masked.labels != IGNORE].tolist())
        shown.add((words.decode(masked.target_ids.tolist()), targets, int(masked.pair_labels[0])))
    # Two of the seven words are masked (15 % of ten tokens, rounded to even); 0 stands for IsNext.
    assert ("[CLS] the dog [MASK] [SEP] the cat [MASK] away [SEP]", "barked ran", 0) in shown
    assert {len(targets.split()) for _, targets, _ in shown} == {2}


# --- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_predictions": 0}, r"task\.max_predictions must be at least 1, but is 0"),
        ({"next_sentence": -1.0}, r"task\.next_sentence must be at least 0"),
        ({"loss_norm": "tokens"}, r"Set task\.comment_loss=token"),
        ({"mask_unit": "word", "masking": "content"}, r"task\.masking=content chooses single pieces"),
        pytest.param(
            {"mask_unit": "sentence"}, r"task\.mask_unit must be one of piece, word, span", marks=pytest.mark.ill_typed
        ),
    ],
)
def test_bad_settings_are_refused(config, message):
    with pytest.raises(RamifyError, match=message):
        MaskedLMConfig(**config)


def test_models_without_a_pooler_predict_no_next_sentence():
    for make in (bert_task, tree_task):
        with pytest.raises(RamifyError, match=r"needs a bert with model\.pooling=pooler"):
            make(task={"next_sentence": 1.0})


def test_narrow_embeddings_need_the_head_of_bert():
    with pytest.raises(RamifyError, match=r"width 4 \(model\.embedding_dim\) with states of width 8"):
        bert_task(embedding_dim=4)
    assert bert_task(embedding_dim=4, task={"tie_weights": False}).head.weight.shape[1] == 8


def test_tokenizers_without_marks_of_words_are_refused():
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    from ramify.tokenizer import SPECIAL

    engine = Engine(models.BPE({**{token: n for n, token in enumerate(SPECIAL)}, "a": 5, "b": 6}, []))
    engine.add_special_tokens(list(SPECIAL))
    with pytest.raises(RamifyError, match="does not mark where words begin"):
        Tokenizer(engine).word_starts  # noqa: B018


def test_special_tokens_inside_a_row_are_not_masked():
    own = tokenizer()
    ids = np.array([own.cls_id, 9, 10, own.sep_id, 11, 12, own.sep_id])
    special = np.isin(ids, [own.cls_id, own.sep_id])
    batch = RowCollator(own.layout("bert").frame)([TextRow(0, ids, special, np.zeros(7, dtype=np.int64), None)])
    for unit in ("piece", "word", "span"):
        task = bert_task(task={"mask_unit": unit, "mask_rate": 1.0})
        _, (places,) = masked_places(task, batch)
        assert places == [1, 2, 4, 5]


# --- SpanBERT's second loss -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [False, True])
def test_tokens_of_a_span_are_predicted_from_the_tokens_around_it(pieces, pairs):
    """The loss of all spans, one by one; that of masked words is as without it, and so are the masks."""
    settings = {"mask_unit": "span", "comment_loss": "token", "loss_norm": "tokens", "head": "bert"}
    config = MaskedLMConfig(**settings, span_boundary=0.5, next_sentence=float(pairs))
    torch.manual_seed(0)
    model = Bert(
        BertConfig(
            vocab_size=pieces.vocab_size,
            dim=8,
            num_layers=2,
            num_heads=2,
            ffn_dim=16,
            dropout=0.0,
            pooling="pooler" if pairs else "mean",
        )
    )
    task = MaskedLM(model, pieces, config=config).double().eval()
    head = task.boundary_head
    assert head is not None
    clean = rows_of(pieces, count=6, length=60, pairs=pairs)
    batch = task.corrupt(clean, torch.Generator().manual_seed(1))
    divisors = task.counts(batch, MAIN)
    ((losses, _),) = task.losses(batch, divisors, MAIN, None, None)
    # The same seeds without the loss: the same masks and loss of masked words.
    plain = MaskedLM(model, pieces, config=MaskedLMConfig(**settings, next_sentence=float(pairs))).double().eval()
    plain.load_state_dict({name: value for name, value in task.state_dict().items() if "boundary" not in name})
    other = plain.corrupt(clean, torch.Generator().manual_seed(1))
    assert torch.equal(other.target_ids, batch.target_ids)
    ((expected, _),) = plain.losses(other, plain.counts(other, MAIN), MAIN, None, None)
    for name in expected:
        torch.testing.assert_close(losses[name], expected[name], rtol=0, atol=1e-12)
    # All states, without output positions.
    states = model.stack(model.embeddings(batch.target_ids, batch.targets.positions, batch.token_type_ids), batch.targets)
    labels = torch.full_like(batch.target_ids, IGNORE)
    labels[batch.output_positions.index] = batch.labels
    masked = (labels != IGNORE).tolist()
    total, longest = 0.0, 0
    for place, label in enumerate(labels.tolist()):
        if label == IGNORE:
            continue
        left = right = place
        while masked[left]:
            left -= 1
        while masked[right]:
            right += 1
        longest = max(longest, right - left - 1)
        features = head(states[left][None], states[right][None], torch.tensor([place - left - 1]))
        total += F.cross_entropy(head.words(features), torch.tensor([label]))
    assert longest > 3
    torch.testing.assert_close(losses["span_boundary"].double(), 0.5 * total / sum(masked), rtol=1e-6, atol=0)
    readings = task.readings(batch, MAIN, None, None)
    torch.testing.assert_close(readings.losses["span_boundary"].double(), 0.5 * total, rtol=1e-5, atol=0)
    assert readings.losses.keys() == readings.constants.keys() == losses.keys()
    # In parts, with the same sum.
    task.config = MaskedLMConfig(**settings, span_boundary=0.5, next_sentence=float(pairs), two_phase="always", chunk_tokens=70)
    parts = [part["span_boundary"] for part, _ in task.losses(batch, divisors, MAIN, None, None)]
    assert len(parts) > 1
    torch.testing.assert_close(sum(parts), losses["span_boundary"], rtol=0, atol=1e-10)


def test_the_loss_of_boundaries_needs_spans_and_tokens_around_texts(pieces):
    with pytest.raises(RamifyError, match=r"task\.span_boundary=1 predicts spans, but task\.mask_unit=word masks none"):
        MaskedLMConfig(span_boundary=1.0, mask_unit="word")
    with pytest.raises(RamifyError, match=r"task\.span_boundary=1 needs a model that reads texts alone, but this is TreeMLM"):
        tree_task(task={"span_boundary": 1.0, "mask_unit": "span"})
    with pytest.raises(RamifyError, match=r"needs a token on both sides of every text, but input\.layout=t5 has none"):
        bert_task(input=TextInput(context="none", layout="t5"), task={"span_boundary": 1.0, "mask_unit": "span"})

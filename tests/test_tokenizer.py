"""Tokenizers: reproducible training, literal texts, and the formats of other libraries."""

import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import ramify
from fixtures import discussion, encoder_checkpoint, tokenizer
from ramify.batching.batch import Collator
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import Discussions, units
from ramify.batching.views.documents import LevelInput
from ramify.disentangle.config import ChatInput
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.models.bert import Bert, BertConfig
from ramify.tasks.masked_lm import MaskedLM
from ramify.tokenizer import SETTLED, SPECIAL, UNFINISHED, IncrementalDecoder, Tokenizer, reservoir_sample

KINDS = ("wordpiece", "bpe", "unigram")


@pytest.fixture(scope="module")
def texts(sample):
    return [node.text for tree in sample for node in tree.nodes]


@pytest.fixture(scope="module")
def trained(texts):
    return {kind: Tokenizer.train(texts, kind=kind, vocab_size=600) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_training(trained, texts, kind):
    own = trained[kind]
    assert own.vocab_size == 600
    assert [own.token(number) for number in range(5)] == list(SPECIAL)
    assert own.special_ids == [0, 1, 2, 3, 4]
    assert (own.cls_id, own.sep_id, own.mask_id) == (2, 3, 4)
    ids = [own.encode(text) for text in texts[:50]]
    # Trained on these texts, the tokenizer needs fewer pieces than letters and has few unknown ones.
    assert sum(map(len, ids)) < 0.6 * sum(map(len, texts[:50]))
    unknown = own.engine.token_to_id("[UNK]")
    assert sum(each.count(unknown) for each in ids) < 0.001 * sum(map(len, ids))


WRITTEN = "  Cafe\u0301s, na\u00efve  \u65e5\u672c\u8a9e \U0001f44d\U0001f3fd \ufb01ne\u200bx\u0301 "


@pytest.mark.parametrize("kind", KINDS)
def test_places_of_tokens_in_the_text(trained, kind):
    own = trained[kind]
    texts = [WRITTEN, "", "the crust goes soft", "   "]
    ids, lengths, starts, ends = own.encode_offsets(texts)
    assert [array.dtype for array in (ids, lengths, starts, ends)] == [np.dtype(np.int64)] * 4
    for mine, its in zip((ids, lengths), own.encode_batch(texts), strict=True):
        np.testing.assert_array_equal(mine, its)
    bounds = np.cumsum([0, *lengths])
    for text, first, stop in zip(texts, bounds[:-1], bounds[1:], strict=True):
        places = list(zip(starts[first:stop].tolist(), ends[first:stop].tolist(), strict=True))
        covered = {place for start, end in places for place in range(start, end)}
        letters = {place for place, letter in enumerate(text) if not letter.isspace()}
        # Each letter lies in a token, unless the normalization drops a format character.
        assert covered <= letters
        assert all(unicodedata.category(text[place]) == "Cf" for place in letters - covered)
        assert places == sorted(places)
    words = [WRITTEN[start:end] for start, end in zip(starts[: lengths[0]], ends[: lengths[0]], strict=True)]
    # A dropped mark, or one that the normalization joins with its letter, goes with the letter.
    assert "e\u0301" in "".join(words)
    if kind != "bpe":
        assert "e" not in words


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
@pytest.mark.parametrize("kind", KINDS)
def test_places_lie_in_any_text(trained, kind, text):
    ids, lengths, starts, ends = trained[kind].encode_offsets([text])
    assert lengths.tolist() == [len(ids)]
    assert ((starts >= 0) & (starts <= ends) & (ends <= len(text))).all()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        assert text[start:end] == text[start:end].strip()
    covered = {place for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for place in range(start, end)}
    lost = "".join(letter for place, letter in enumerate(text) if place not in covered and letter not in "\ufffd\u2581")
    assert not any(letter.isalnum() for letter in lost), lost


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_decoding_restores_the_text(trained, kind):
    text = "the crust goes soft an hour out of the oven, why?"
    assert trained[kind].decode(trained[kind].encode(text)).strip() == text


def test_wordpiece_restores_words(trained):
    own = trained["wordpiece"]
    assert own.decode(own.encode("The crust goes soft")) == "the crust goes soft"


def test_bytes_cover_every_text(trained):
    own = trained["bpe"]
    text = "naïve ∂ℓ/∂e 🥖 日本語 \x00"
    assert own.engine.token_to_id("[UNK]") not in own.encode(text)
    assert own.decode(own.encode(text)).strip() == text.lower()


@pytest.mark.parametrize("kind", KINDS)
def test_case(trained, texts, kind):
    words = "Flour AND water"
    own = Tokenizer.train(texts, kind=kind, vocab_size=600, lowercase=False)
    assert own.encode(words) != own.encode(words.lower())
    assert own.decode(own.encode(words)).strip() == words
    folded = trained[kind]
    assert folded.encode(words) == folded.encode(words.lower())


TRAIN = """
import sys
from ramify.tokenizer import Tokenizer
from ramify.readers.jsonl import read_jsonl
texts = [node.text for tree in read_jsonl(sys.argv[1]) for node in tree.nodes]
print(Tokenizer.train(texts, kind=sys.argv[2], vocab_size=600).hash)
"""


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_training_is_reproducible(trained, texts, kind):
    """Hash tables are seeded anew for every process and every table. No trace of it may show."""
    assert Tokenizer.train(texts, kind=kind, vocab_size=600).json == trained[kind].json
    source = Path(ramify.__file__).parent / "sample" / "discussions.jsonl"
    command = [sys.executable, "-c", TRAIN, str(source), kind]
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == trained[kind].hash


def test_training_is_reproducible_with_rare_letters(texts, monkeypatch):
    """Many letters are equally rare. Those with the lowest code points stay, and the rest are left out."""
    monkeypatch.setattr("ramify.tokenizer.ALPHABET", 100)
    rare = [f"flour{chr(0x4F00 + number)} fl{chr(0x180 + 2 * number)}our a{chr(0x2E2E)}b" for number in range(100)]
    found = {Tokenizer.train([*texts, *rare], vocab_size=600).json for _ in range(4)}
    assert len(found) == 1
    letters = {piece for piece in json.loads(found.pop())["model"]["vocab"] if len(piece) == 1}
    assert len(letters) < 100
    assert set("abcdefghijklmnopqrstuvwxyz") < letters


def test_rare_signs_still_separate_words(texts, monkeypatch):
    monkeypatch.setattr("ramify.tokenizer.ALPHABET", 30)
    found = Tokenizer.train([*texts, "kk$zz"] * 9, vocab_size=600)
    assert not [piece for piece in found.ids if "kz" in piece or "$" in piece]


@pytest.mark.parametrize("kind", KINDS)
def test_vocabularies_too_small_for_the_letters(texts, kind):
    """The message names the necessary size, and that size suffices."""
    with pytest.raises(RamifyError, match=f"a vocabulary of 20 pieces is too small.* in a {kind} tokenizer") as refused:
        Tokenizer.train(texts, kind=kind, vocab_size=20)
    least = int(re.search(r"take ([\d,]+)", str(refused.value)).group(1).replace(",", ""))
    with pytest.raises(RamifyError, match=f"take {least:,} "):
        Tokenizer.train(texts, kind=kind, vocab_size=least - 1)
    assert Tokenizer.train(texts, kind=kind, vocab_size=least).vocab_size == least


@pytest.mark.ill_typed
def test_unknown_kind(texts):
    with pytest.raises(RamifyError, match="'wordpiece', 'bpe', 'unigram' or 'word'"):
        Tokenizer.train(texts, kind="words")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(trained, tmp_path, kind):
    own = trained[kind]
    own.save(tmp_path)
    own.save(tmp_path / "other.json")
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "other.json"):
        again = Tokenizer.load(path)
        assert (again.json, again.hash) == (own.json, own.hash)
        assert again.encode("why, oh why?") == own.encode("why, oh why?")


def test_failed_save_leaves_the_old_file(trained, tmp_path, monkeypatch):
    def half(path, content, **options):
        path.write_bytes(content.encode()[:100])
        raise OSError(28, "No space left on device")

    trained["bpe"].save(tmp_path)
    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(RamifyError, match=r"cannot write .*tokenizer\.json: No space left"):
        trained["wordpiece"].save(tmp_path)
    assert Tokenizer.load(tmp_path).hash == trained["bpe"].hash


@pytest.mark.parametrize("kind", KINDS)
def test_batches_equal_single_texts(trained, texts, kind):
    some = [*texts[:40], "", "[MASK] [CLS]"]
    flat, lengths = trained[kind].encode_batch(some)
    singly = [trained[kind].encode(text) for text in some]
    assert lengths.tolist() == [len(ids) for ids in singly]
    assert flat.tolist() == [token for ids in singly for token in ids]
    flat, lengths = trained[kind].encode_batch([])
    assert (len(flat), len(lengths)) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_spells_special_tokens_stays_text(trained, tmp_path, kind):
    trained[kind].save(tmp_path)
    for own in (trained[kind], Tokenizer.load(tmp_path)):
        ids = own.encode("I wrote [MASK] and [SEP] [PAD][CLS] myself")
        special = {own.cls_id, own.sep_id, own.mask_id, own.engine.token_to_id("[PAD]")}
        assert special.isdisjoint(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_parsed_on_request(trained, kind):
    own = trained[kind]
    plain = [token for part in ("bread is", "and", "tasty") for token in own.encode(part)]
    ids = own.encode("bread is [MASK] and [MASK][MASK] tasty", masks=True)
    assert ids.count(own.mask_id) == 3
    assert [token for token in ids if token != own.mask_id] == plain
    assert own.encode("[MASK]", masks=True) == [own.mask_id]
    # Other special tokens stay text even then.
    assert own.cls_id not in own.encode("[CLS] [MASK]", masks=True)


def test_vocabulary_file_equals_tokenizer_json(minilm, tmp_path, texts):
    """A directory of BERT's older form (vocab.txt) gives the same ids as its tokenizer.json."""
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((minilm / name).read_bytes())
    old, new = Tokenizer.load(tmp_path), Tokenizer.load(minilm)
    assert old.vocab_size == new.vocab_size == 30522
    assert (old.cls_id, old.sep_id, old.mask_id) == (new.cls_id, new.sep_id, new.mask_id) == (101, 102, 103)
    hard = ["Ünïcödé façade", "日本語 text", "e-mail@x.org's", "a" * 300, "\t\n", "[MASK] here", "½ ﬁne"]
    for text in [*texts, *hard]:
        assert old.encode(text) == new.encode(text), text
    assert new.encode("the oven", masks=True) == [1996, 17428]


def test_case_of_a_vocabulary_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "Oven", "oven"]) + "\n")
    assert Tokenizer.load(tmp_path).encode("Oven") == [6]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert Tokenizer.load(tmp_path).encode("Oven") == [5]


def test_accents_of_a_vocabulary_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "über", "uber", "日", "日本"]) + "\n")
    assert Tokenizer.load(tmp_path).encode("Über") == [6]
    settings = {"strip_accents": False, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert Tokenizer.load(tmp_path).encode("Über 日本") == [5, 8]
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(RamifyError, match="not valid JSON"):
        Tokenizer.load(tmp_path)


def test_refused_files(tmp_path):
    with pytest.raises(RamifyError, match="holds no tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": ')
    with pytest.raises(RamifyError, match=r"not a tokenizer\.json"):
        Tokenizer.load(tmp_path)


# --- special tokens -----------------------------------------------------------------------------------------------------------

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def gpt2(texts, tmp_path_factory):
    """A byte-level tokenizer.json of GPT-2's form: its one special token is <|endoftext|>."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(texts, trainer)
    engine.add_special_tokens([END])
    file = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    engine.save(str(file))
    return file


@pytest.mark.parametrize(
    ("pieces", "roles"),
    [
        (("<s>", "<pad>", "</s>", "<unk>", "<mask>"), ("<s>", "</s>")),
        (("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"), ("<cls>", "<sep>")),
    ],
    ids=["RoBERTa", "XLNet"],
)
def test_roles_of_special_tokens(pieces, roles):
    """XLNet's vocabulary has <s> and </s>, too, but in other roles."""
    engine = Engine(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    engine.add_special_tokens(list(pieces))
    own = Tokenizer(engine)
    assert (own.cls_id, own.sep_id) == tuple(pieces.index(role) for role in roles)


@pytest.mark.parametrize(
    ("pieces", "marks"),
    [
        (("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), ("[CLS]", "[SEP]")),
        (("<s>", "<pad>", "</s>", "<unk>", "<mask>"), ("<s>", "</s>")),
        (("<pad>", "</s>", "<unk>"), ("<pad>", "</s>")),
        (("<unk>", END), (END, END)),
    ],
    ids=["BERT", "RoBERTa", "T5", "GPT-2"],
)
def test_marks_of_texts_that_are_predicted(pieces, marks):
    engine = Engine(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token=pieces[-1]))
    engine.add_special_tokens(list(pieces))
    own = Tokenizer(engine)
    assert (own.begin_id, own.stop_id) == tuple(map(pieces.index, marks))
    engine = Engine(models.WordLevel({"ba": 0}, unk_token="ba"))
    with pytest.raises(RamifyError, match=r"no stop token .* needed for texts that are predicted"):
        _ = Tokenizer(engine).stop_id


def test_gpt2_tokenizer_loads(gpt2):
    own = Tokenizer.load(gpt2)
    assert own.vocab_size == 401
    assert own.special_ids == [400]
    text = "naïve ∂ℓ/∂e 🥖 ovens"
    assert own.decode(own.encode(text)) == text
    assert 400 not in own.encode(f"text {END} text")
    # It has no tokens to put around a text.
    layout = own.layout("bert")
    assert layout.num_special == 0
    ids = own.encode(text)
    assert layout.wrap(ids).tolist() == ids
    with pytest.raises(RamifyError, match=r"no sep token .* needed for rows of several texts"):
        layout.wrap_pair([1], [2])
    assert Tokenizer.load(gpt2).json == own.json


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda own: own.mask_id, r"no mask token \(\[MASK\] or <mask>\), which is needed for masked texts\. Use a tokenizer"),
        (lambda own: own.encode("a [MASK]", masks=True), "no mask token"),
        (lambda own: own.cls_id, "no cls token"),
        (lambda own: own.require(("cls", "mask"), "the task x"), "no cls token .* needed for the task x"),
    ],
)
def test_missing_special_tokens_raise_when_needed(gpt2, asked, message):
    with pytest.raises(RamifyError, match=rf"the tokenizer .*gpt2.*tokenizer\.json has {message}"):
        asked(Tokenizer.load(gpt2))


def test_tasks_name_the_special_tokens_they_need(gpt2, tmp_path):
    own = Tokenizer.load(gpt2)
    encoder = BertConfig(vocab_size=own.vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=8)
    with pytest.raises(RamifyError, match=r"no cls token .* needed for the task masked-lm"):
        MaskedLM(Bert(encoder), own)
    with pytest.raises(RamifyError, match=r"needed for the task reply-to with input\.texts=pieces"):
        ReplyLinking(MaskedHierarchicalTransformer(MHTConfig(encoder=encoder, dim=8)), own, ChatInput(texts="pieces"))
    encoder_checkpoint(Bert(encoder), tmp_path)
    own.save(tmp_path)
    with pytest.raises(RamifyError, match=r"no cls token .* needed for rows of bert"):
        ramify.load(tmp_path)


def test_texts_are_batched_without_missing_special_tokens(gpt2):
    """Each text fills its row, which may be as long as the limit on tokens."""
    own = Tokenizer.load(gpt2)
    tree = discussion([-1, 0, 1], lengths=[3, 30, 4])
    input = TextInput(max_tokens=8)
    data = input.forest([tree], own)
    ids = [own.encode(node.text) for node in tree.nodes]
    assert data.cut["tokens_over"] == sum(max(0, len(each) - 8) for each in ids) > 0
    view = Discussions(data, units(data, [0], predict_post=True), input)
    batch = Collator(data, own, input)([view.example(0)])
    rows = np.split(batch.target_ids.numpy(), np.cumsum(batch.targets.host_lengths)[:-1])
    assert {int(node): row.tolist() for node, row in zip(batch.source, rows)} == {n: each[:8] for n, each in enumerate(ids)}
    assert batch.maskable.all()
    assert batch.num_target_tokens == view.target_tokens.sum() == sum(min(8, len(each)) for each in ids)
    assert len(batch.nodes) == 2


def test_rows_of_one_text_and_of_two():
    own = tokenizer()
    layout, cls, sep = own.layout("bert"), own.cls_id, own.sep_id
    assert layout.num_special == 2
    assert layout.wrap([7, 8]).tolist() == [cls, 7, 8, sep]
    assert layout.wrap([]).tolist() == [cls, sep]
    ids, types = layout.wrap_pair([7, 8], np.array([9])), layout.types_of(2, 1)
    assert ids.tolist() == [cls, 7, 8, sep, 9, sep]
    assert types.tolist() == [0, 0, 0, 0, 1, 1]
    assert ids.dtype == types.dtype == np.int64


ROWS = {
    "bert": ("[CLS] a b [SEP]", "0 0 0 0", "[CLS] a b [SEP] c [SEP]", "0 0 0 0 1 1"),
    "roberta": ("[CLS] a b [SEP]", "0 0 0 0", "[CLS] a b [SEP] [SEP] c [SEP]", "0 0 0 0 0 0 0"),
    "xlnet": ("a b [SEP] [CLS]", "0 0 0 2", "a b [SEP] c [SEP] [CLS]", "0 0 0 1 1 2"),
    "t5": ("a b [SEP]", "0 0 0", "a b [SEP] c [SEP]", "0 0 0 0 0"),
    "plain": ("a b", "0 0", "a b c", "0 0 0"),
}


@pytest.mark.parametrize("name", ROWS)
def test_layouts_are_post_processors(name):
    """Another program that loads the tokenizer adds the same tokens and types."""
    words = {word: number for number, word in enumerate((*SPECIAL, "a", "b", "c"))}
    engine = Engine(models.WordLevel(words, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    own = Tokenizer(engine)
    layout = own.layout(name)
    engine.post_processor = own.template(layout)
    loaded = Engine.from_str(engine.to_str())
    a, b, c = (words[letter] for letter in "abc")
    single, its_types, pair, their_types = ROWS[name]
    for found, ids, types, tokens, expected in (
        (loaded.encode("a b"), layout.wrap([a, b]), layout.types_of(2), single, its_types),
        (loaded.encode("a b", "c"), layout.wrap_pair([a, b], [c]), layout.types_of(2, 1), pair, their_types),
    ):
        assert found.ids == ids.tolist() == [words[token] for token in tokens.split()]
        assert found.type_ids == types.tolist() == [int(type_id) for type_id in expected.split()]


def test_layouts_belong_to_inputs():
    with pytest.raises(RamifyError, match=r"input\.layout must be one of bert, roberta, xlnet, t5, begin, plain, not 'agent'"):
        TextInput(layout="agent")
    with pytest.raises(RamifyError, match=r"input\.layout must be one of agent, not 'bert'"):
        LevelInput(layout="bert")


def test_layouts_without_a_post_processor(gpt2):
    with pytest.raises(RamifyError, match="no sep token"):
        Tokenizer.load(gpt2).template(Tokenizer.load(gpt2).layout("bert"))
    with pytest.raises(RamifyError, match="mark 61, which is no piece"):
        tokenizer().template(tokenizer().layout("agent"))
    # The end mark follows the vocabulary of the model.
    assert tokenizer().layout("agent", 90).wrap([7]).tolist() == [7, 90]


@given(texts=st.lists(st.lists(st.integers(5, 60), max_size=5), max_size=6))
def test_rows_of_many_texts_equal_rows_of_each(texts):
    own = tokenizer().layout("bert")
    flat = np.array([token for each in texts for token in each], dtype=np.int64)
    rows = own.wrap_batch(flat, np.array([len(each) for each in texts], dtype=np.int64))
    assert rows.tolist() == [token for each in texts for token in own.wrap(each).tolist()]


# --- files --------------------------------------------------------------------------------------------------------------------


def test_vocab_size_covers_unused_ids(tmp_path):
    """A model has a row for every id up to the largest."""
    Engine(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "[UNK]": 3, "aa": 7}, unk_token="[UNK]")).save(
        str(tmp_path / "tokenizer.json")
    )
    assert Tokenizer.load(tmp_path).vocab_size == 8


def test_id_outside_the_vocabulary_has_a_name():
    assert tokenizer().token(5) == "aa"
    assert tokenizer().token(10_000) == "[10000]"


# --- the sample for training --------------------------------------------------------------------------------------------------


def test_sample_is_uniform():
    """Every one of 60 texts is kept equally often: chi-square over 3,000 draws of 10."""
    texts = [f"{number:010d}" for number in range(60)]
    counts = np.zeros(60)
    for seed in range(3000):
        drawn = list(reservoir_sample(texts, bytes_held=100, seed=seed))
        assert len(drawn) == len(set(drawn)) == 10
        assert drawn == sorted(drawn)
        counts[[int(text) for text in drawn]] += 1
    expected = 3000 * 10 / 60
    # A draw holds exactly ten, so this is below chi-square with 59 degrees of freedom, which passes 120 once in 10^5.
    assert ((counts - expected) ** 2 / expected).sum() < 120


@given(texts=st.lists(st.text(max_size=30), max_size=60), held=st.integers(1, 200), seed=st.integers(0, 9))
def test_sample_is_bounded(texts, held, seed):
    drawn = list(reservoir_sample(iter(texts), held, seed))
    assert drawn == list(reservoir_sample(iter(texts), held, seed))
    if sum(len(text.encode()) for text in texts) < held:
        assert drawn == texts
    # As many texts as fill the bound, in their original order.
    filled, size = 0, 0
    while filled < held and size < len(texts):
        filled += len(texts[size].encode())
        size += 1
    assert len(drawn) == size
    order = iter(texts)
    assert all(text in order for text in drawn)


# --- words and bytes ----------------------------------------------------------------------------------------------------------

SENTENCE = "unhappy Dogs barked, “naïve” dogs!"


@pytest.mark.parametrize(
    ("kind", "size", "starts"),
    [
        ("wordpiece", 46, ["unhappy", "dogs", "barked", ",", "“", "naive", "”", "dogs", "!"]),
        ("bpe", 275, [" unhappy", " Dogs", " barked", ",", " “naïve”", " dogs", "!"]),
        ("unigram", 32, [" unhappy", " Dogs", " barked", ",", " “naïve”", " dogs", "!"]),
    ],
)
def test_words_begin_where_the_tokenizer_marks_them(kind, size, starts):
    own = Tokenizer.train([SENTENCE] * 20, kind=kind, vocab_size=size, lowercase=kind == "wordpiece")
    ids = own.encode(SENTENCE)
    begins = own.word_starts[ids]
    assert begins[0]
    assert not begins.all()
    words = np.split(np.array(ids), np.flatnonzero(begins)[1:])
    assert [own.decode(word.tolist()).strip() for word in words] == [word.strip() for word in starts]
    # The bytes of all pieces are those of the normalized text; WordPiece has no spaces.
    assert [int(own.piece_bytes[word].sum()) for word in words] == [len(word.encode()) for word in starts]
    assert own.word_starts[own.special_ids].all()
    assert not own.piece_bytes[own.special_ids].any()


def test_a_vocabulary_with_half_of_the_special_tokens_loads(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\na\nb\n")
    assert Tokenizer.load(tmp_path).encode("a b") == [3, 4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", ["", "The moon had risen"])
def test_parts_of_incremental_decoding_are_the_text(trained, kind, before):
    """Random tokens: in BPE, most of them are bytes that form no character."""
    own = trained[kind]
    known = own.encode(before)
    ids = np.random.default_rng(3).integers(own.vocab_size, size=400).tolist()
    decoder = IncrementalDecoder(own, known)
    parts = [*map(decoder.add, ids), decoder.rest()]
    assert own.decode(known) + "".join(parts) == own.decode([*known, *ids])


def test_incremental_decoding_waits_for_whole_characters(trained):
    text = " naïve 🙂🙂 語文"
    ids = trained["bpe"].encode(text)
    decoder = IncrementalDecoder(trained["bpe"], trained["bpe"].encode("so"))
    parts = [decoder.add(token_id) for token_id in ids]
    assert len(ids) > len(parts) - parts.count("") > 5
    assert not any(UNFINISHED in part for part in parts)
    assert "".join(parts) == text
    assert [decoder.add(ids[-3]), decoder.rest()] == ["", UNFINISHED]


def test_incremental_decoding_reads_few_tokens_again(trained, monkeypatch):
    own = trained["wordpiece"]
    read = []
    whole = Tokenizer.decode
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: (read.append(len(ids)), whole(self, ids))[1])
    decoder = IncrementalDecoder(own)
    for token_id in own.encode("The moon had risen. " * 100):
        decoder.add(token_id)
    assert max(read) <= 2 * SETTLED + 1


def test_incremental_decoding_of_pieces_for_bytes():
    """The decoder of SentencePiece's models spoils a character whose bytes an invalid one follows."""
    pieces = ["▁a", "b", "<0xE2>", "<0x82>", "<0xAC>"]
    engine = Engine(models.BPE({piece: number for number, piece in enumerate(pieces)}, []))
    engine.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    own = Tokenizer(engine)
    for ids in ([0, 2, 3, 4, 1], [0, 2, 3, 4, 2, 1, 0, 4], [2, 3, 4]):
        decoder = IncrementalDecoder(own, [1])
        parts = [*map(decoder.add, ids), decoder.rest()]
        assert "b" + "".join(parts) == own.decode([1, *ids])
    assert parts == ["", "", "", "€"]


def test_words_stand_in_the_order_of_their_frequency():
    texts = ["the moon and the sea", "The sea, the sea"]
    tokenizer = Tokenizer.train(texts, kind="word", vocab_size=9, lowercase=False, marks=True)
    assert tokenizer.pieces[7:] == ["sea", "the"]
    lower = Tokenizer.train(texts, kind="word", vocab_size=9, marks=True)
    assert lower.pieces[7:] == ["the", "sea"]
    assert lower.encode("the sea") == [7, 8]
    assert lower.encode("the moon")[1] == lower.unk_id
    assert Tokenizer.train(texts, kind="word", vocab_size=9, marks=True).json == lower.json


def test_words_that_the_vocabulary_lacks_have_numbers_behind_it():
    tokenizer = Tokenizer.train(["the the sea sea"], kind="word", vocab_size=9, marks=True)
    words = {}
    ids, lengths = tokenizer.encode_open(["the Moon", "", "a sea , the moon"], words)
    assert words == {"moon": 9, "a": 10, ",": 11}
    assert lengths.tolist() == [2, 0, 5]
    sea, the = tokenizer.encode("sea the")
    assert ids.tolist() == [the, 9, 10, sea, 11, the, 9]


def test_pieces_are_shown_as_letters():
    """Byte-level pieces are spelled in letters that stand for bytes, which nobody can read."""
    bpe = Tokenizer.train(["Straße über Straße über Straße"] * 40, kind="bpe", vocab_size=290, lowercase=False)
    shown = [bpe.shown(token_id) for token_id in bpe.encode("Straße über")]
    assert "".join(shown) == "▁Straße▁über"
    part = bpe.encode("é")[-1]
    assert bpe.shown(part) == bpe.token(part) != "é"
    words = Tokenizer.train(["Straße über Straße"] * 40, kind="wordpiece", vocab_size=60, lowercase=False)
    assert [words.shown(token_id) for token_id in words.encode("Straße")] == list(map(words.token, words.encode("Straße")))

"""Tokenizers of published forms against `AutoTokenizer` of the same folder: special and added tokens, masks and sentinels in
texts, and files that contradict each other."""

import json
import shutil

import pytest
import torch
from tokenizers import pre_tokenizers

from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.models.bert import Bert, BertConfig
from ramify.special_tokens import Role
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

ROLES: tuple[Role, ...] = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
WORDS = ["the", "old", "tide", "turn", "##s", "##ing", "salt", "a", ",", "[", "]", "e", "##1"]


def write(folder, **files):
    """A folder of JSON files."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def bert(folder, special=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), **files):
    """A BERT folder of the old form."""
    (write(folder, **{"config": {"model_type": "bert"}} | files) / "vocab.txt").write_text("\n".join([*special, *WORDS]) + "\n")
    return folder


def byte_level(folder, special, **files):
    """A folder of GPT-2 or RoBERTa of the old form. Its words are pieces with the space before them."""
    words = ["Ġtide", "Ġturns", "Ġsalt", "tide"]
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[str] = []
    for word in words:
        for end in range(2, len(word) + 1):
            if (piece := word[:end]) not in pieces:
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
                pieces.append(piece)
    vocabulary = {piece: number for number, piece in enumerate([*special, *pieces])}
    write(folder, vocab=vocabulary, **files)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return folder


def unigram(folder, kind, special, **settings):
    """A folder of T5 or XLNet, as transformers writes it."""
    words = ["▁", "▁the", "▁tide", "▁turns", "salt", "▁salt", *"abcdefghijklmnopqrstuvwxyz,<>_0123456789"]
    vocabulary = [(piece, 0.0) for piece in special] + [(word, -1.0 - number / 9) for number, word in enumerate(words)]
    theirs = getattr(transformers, kind)(vocab=vocabulary, **settings)
    theirs.save_pretrained(folder)
    return write(folder, config={"model_type": kind.removesuffix("Tokenizer").lower()})


def resaved(folder, to):
    """The form that transformers writes today."""
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(to)
    shutil.copy(folder / "config.json", to)
    return to


def check(folder, layout, texts, pairs=True):
    """Equal ids of rows and of roles."""
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    rows = ours.layout(layout)
    for text in texts:
        marked = ours.encode(text, masks=True) if theirs.mask_token else ours.encode_sentinels(text)
        assert rows.wrap(marked).tolist() == theirs(text).input_ids, text
    if pairs:
        wrapped = rows.wrap_pair(ours.encode("the tide"), ours.encode("salt"))
        assert wrapped.tolist() == theirs("the tide", "salt").input_ids
    # No byte is unknown to a GPT-2, whatever its class calls unknown.
    roles: list[Role] = [role for role in ROLES if getattr(theirs, f"{role}_token") and (role != "unk" or layout != "plain")]
    stated: dict[Role, int] = {role: getattr(theirs, f"{role}_token_id") for role in roles}
    assert {role: ours.role_id(role) for role in roles} == stated
    assert ours.vocab_size == len(theirs)
    return ours


OTHER = ("<blank>", "<odd>", "<start>", "<end>", "<gap>")
NAMED = dict(zip((f"{role}_token" for role in ("pad", "unk", "cls", "sep", "mask")), OTHER, strict=True))
TEXTS = ["The tide turns", "the <gap> tide, salt odd", "<gap>  the\n<gap> s<gap>ing"]
MARKED = ["the kelp turns", "a [E1] tide kelp", "kelps [E1]ing"]


@pytest.mark.parametrize("file", ["tokenizer_config", "special_tokens_map"])
@pytest.mark.parametrize("kind", ["plain", "objects"])
def test_roles_of_a_bert_are_those_of_its_files(tmp_path, file, kind):
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    objects = {name: {"content": piece, "__type": "AddedToken", **flags} for name, piece in NAMED.items()}
    if file == "special_tokens_map":
        objects = {name: {"content": piece, **flags} for name, piece in NAMED.items()}
    named = NAMED if kind == "plain" else objects
    check(bert(tmp_path / "old", OTHER, **{file: named}), "bert", TEXTS)
    check(resaved(tmp_path / "old", tmp_path / "new"), "bert", TEXTS)


def test_added_tokens_of_a_bert_are_read(tmp_path):
    size = 5 + len(WORDS)
    more = {"additional_special_tokens": ["[E1]"]}
    old = bert(tmp_path / "old", added_tokens={"kelp": size, "[E1]": size + 1}, special_tokens_map=more)
    own = check(old, "bert", MARKED)
    assert (own.ids["kelp"], own.special_ids) == (size, [0, 1, 2, 3, 4, size + 1])
    check(resaved(old, tmp_path / "new"), "bert", MARKED)
    # Special tokens without an id are behind all others, if the model has ids for them.
    named = {"mask_token": "<m>", "extra_special_tokens": ["[E2]", "[E1]"]}
    files = {"config": {"model_type": "bert", "vocab_size": size + 4}, "tokenizer_config": named}
    late = check(bert(tmp_path / "late", added_tokens={"kelp": size}, **files), "bert", [*MARKED, "<m> tide", "[E2][E1]"])
    assert late.mask_id == size + 1
    # Saved by Ramify, it reads them as before.
    own.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.encode(MARKED[1]), again.special_ids) == (own.encode(MARKED[1]), own.special_ids)
    assert again.json == own.json


ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MASKED = ["tide <mask> salt", "<mask> tide", "tide<mask>turns", "tide  <mask>  salt <mask>", " <mask>", "salt "]


@pytest.mark.parametrize("lstrip", [True, False])
@pytest.mark.parametrize("prefix", [False, True])
def test_the_space_behind_a_mask_stays(tmp_path, lstrip, prefix):
    flags = {"lstrip": lstrip, "rstrip": False, "normalized": False, "single_word": False}
    files = {
        "config": {"model_type": "roberta"},
        "tokenizer_config": {"add_prefix_space": prefix},
        "special_tokens_map": {"mask_token": {"content": "<mask>", **flags}},
    }
    own = check(byte_level(tmp_path / "old", ROBERTA, **files), "roberta", MASKED)
    assert own.pieces[own.encode("tide <mask> salt", masks=True)[-1]] == "Ġsalt"
    assert own.spaced_masks("tide <mask> salt<mask>") == [lstrip, False]
    check(resaved(tmp_path / "old", tmp_path / "new"), "roberta", MASKED)


def test_candidates_are_spelled_as_at_the_mask(tmp_path):
    """Behind a space, a word is the piece with the space; of two candidates, the shares are those of their pieces."""
    mask = {"mask_token": {"content": "<mask>", "lstrip": True}}
    words = Tokenizer.load(byte_level(tmp_path / "old", ROBERTA, special_tokens_map=mask))
    torch.manual_seed(0)
    config = BertConfig(vocab_size=words.vocab_size, dim=8, num_heads=2, ffn_dim=16, num_layers=1, max_tokens=32)
    input = TextInput(max_tokens=32, context="none", layout="roberta")
    model = MaskFiller(MaskedLM(Bert(config), words, input, MaskedLMConfig()).eval())
    for text, pieces in (("tide <mask> tide", ("Ġsalt", "Ġtide")), ("<mask> turns", ("tide", "t"))):
        candidates = [piece.removeprefix("Ġ") for piece in pieces]
        all_tokens = {token.token: token.probability for token in model.fill_mask(text, top_k=999).masks[0].tokens}
        expected = all_tokens[pieces[0]] / sum(all_tokens[piece] for piece in pieces)
        (chosen,) = model.fill_mask(text, candidates=candidates).masks
        assert {token.token: token.probability for token in chosen.tokens}[candidates[0]] == pytest.approx(expected, rel=1e-4)


def test_flags_of_added_tokens_are_read(tmp_path):
    """Those of `added_tokens_decoder`, beside old files and beside tokenizer.json."""
    old = byte_level(tmp_path / "old", ROBERTA, config={"model_type": "roberta"})
    size = len(json.loads((old / "vocab.json").read_text()))
    new = resaved(old, tmp_path / "new")
    decoder = {
        "4": {"content": "<mask>", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False, "special": True},
        str(size): {
            "content": "kelp",
            "lstrip": False,
            "rstrip": True,
            "normalized": True,
            "single_word": True,
            "special": False,
        },
    }
    for folder in (old, new):
        write(folder, tokenizer_config={"added_tokens_decoder": decoder, "tokenizer_class": "RobertaTokenizer"})
        check(folder, "roberta", [*MASKED, "kelp tide", "kelps", "tide kelp  salt"])


def test_tokens_of_a_gpt2_are_read(tmp_path):
    begin, pad = "<|startoftext|>", "<|pad|>"
    old = byte_level(tmp_path / "old", ("<|endoftext|>",), config={"model_type": "gpt2"})
    size = len(json.loads((old / "vocab.json").read_text()))
    write(
        old,
        added_tokens={begin: size, pad: size + 1, "kelp": size + 2},
        special_tokens_map={"bos_token": begin, "pad_token": pad},
    )
    texts = ["tide kelp salt", " turns, tide"]
    own = check(old, "plain", texts, pairs=False)
    assert (own.begin_id, own.stop_id) == (size, 0)
    check(resaved(old, tmp_path / "new"), "plain", texts, pairs=False)


def test_tokens_of_a_t5_and_an_xlnet_are_read(tmp_path):
    t5 = unigram(
        tmp_path / "t5", "T5Tokenizer", ("<blank>", "</s>", "<odd>"), pad_token="<blank>", unk_token="<odd>", extra_ids=3
    )
    own = check(t5, "t5", ["the tide <extra_id_0> salt", "<extra_id_1>turns", "the  <extra_id_0>  tide<extra_id_1>"])
    write(t5, config={"model_type": "t5", "decoder_start_token_id": 0, "eos_token_id": 1, "vocab_size": own.vocab_size})
    assert (Tokenizer.load(t5).begin_id, Tokenizer.load(t5).stop_id) == (0, 1)
    special = ("<odd>", "<s>", "</s>", "<head>", "<cut>", "<blank>", "<gap>", "<eod>", "<eop>")
    named = {"unk_token": "<odd>", "cls_token": "<head>", "sep_token": "<cut>", "pad_token": "<blank>", "mask_token": "<gap>"}
    xlnet = unigram(tmp_path / "xlnet", "XLNetTokenizer", special, **named)
    check(xlnet, "xlnet", ["the tide <gap> salt", "<gap>turns", "the  <gap>  tide<gap>"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"kelp": 40}}, r"added_tokens\.json: kelp=40, but the id of this token is 18"),
        ({"added_tokens": {"tide": 5}}, r"added_tokens\.json: tide=5, but the id of this token is 7"),
        ({"added_tokens": {"kelp": 40, "fog": None}}, r"added_tokens\.json does not give each added token a spelling"),
        ({"tokenizer_config": {"added_tokens_decoder": {"18": 3}}}, r"tokenizer_config\.json does not give each added token"),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"30": {"content": "kelp"}}}},
            "kelp=30, but the id of this token is 18",
        ),
        ({"added_tokens": []}, r"added_tokens\.json holds no JSON object"),
    ],
)
def test_added_tokens_with_other_ids_are_refused(tmp_path, files, message):
    with pytest.raises(RamifyError, match=message):
        Tokenizer.load(bert(tmp_path / "old", **files))


def test_statements_about_tokens_that_do_not_exist(tmp_path):
    """They are refused where the role is needed, and no usual spelling takes its place."""
    files = {"config": {"model_type": "bert", "bos_token_id": 18, "pad_token_id": 0}, "tokenizer_config": {"mask_token": "<m>"}}
    own = Tokenizer.load(bert(tmp_path / "old", **files))
    assert (own.role_id("mask"), own.role_id("pad"), own.cls_id) == (None, 0, 2)
    with pytest.raises(RamifyError, match=r"mask token is needed for masked texts, but .*mask_token='<m>' is not in the vocab"):
        own.encode("the [MASK]", masks=True)
    with pytest.raises(RamifyError, match=r"config\.json: bos_token_id=18 is not in the vocabulary, whose ids are 0 to 17"):
        _ = own.begin_id
    # A model may have more ids than pieces.
    write(tmp_path / "old", config={"model_type": "bert", "bos_token_id": 18, "vocab_size": 24})
    assert Tokenizer.load(tmp_path / "old").begin_id == 18


def test_files_that_contradict_each_other(tmp_path):
    """The ids of generation_config.json, then config.json, for predicted texts; the map before the tokenizer's config."""
    files = {
        "generation_config": {"eos_token_id": [9, 3]},
        "config": {"model_type": "bert", "bos_token_id": 6, "eos_token_id": 4, "sep_token_id": 8, "cls_token_id": 9},
        "special_tokens_map": {"sep_token": "tide", "bos_token": "old"},
        "tokenizer_config": {"sep_token": "old", "bos_token": "a", "eos_token": "salt"},
    }
    own = check(bert(tmp_path / "old", **files), "bert", [])
    assert (own.role_ids("stop"), own.begin_id, own.cls_id) == ((9, 3), 6, 2)
    # Without a statement and a usual spelling, an id remains.
    assert Tokenizer.load(bert(tmp_path / "odd", OTHER, config=files["config"])).cls_id == 9


def test_roles_are_saved_beside_the_tokenizer(tmp_path):
    own = Tokenizer.load(bert(tmp_path / "old", OTHER, tokenizer_config=NAMED))
    own.save(tmp_path)
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.hash, again.roles, again.mask_id) == (own.hash, own.roles, 4)
    assert own.hash != Tokenizer(own.engine).hash
    with pytest.raises(RamifyError, match=r"words\.json cannot hold the roles of special tokens"):
        own.save(tmp_path / "words.json")
    # Usual spellings need no such file.
    Tokenizer.load(bert(tmp_path / "usual")).save(tmp_path)
    assert not (tmp_path / "special_tokens.json").exists()
    (tmp_path / "special_tokens.json").write_text('{"mask": "[MASK]"}')
    with pytest.raises(RamifyError, match="does not give roles lists of ids"):
        Tokenizer.load(tmp_path)


def test_a_folder_with_a_sentencepiece_model_alone_says_how_to_convert_it(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(RamifyError, match=r"beside spiece\.model\. Write one with transformers and sentencepiece"):
        Tokenizer.load(tmp_path)

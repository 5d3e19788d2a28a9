"""Exported models, loaded by the ordinary path of transformers: AutoTokenizer and AutoModel find everything in the folder."""

import json

import numpy as np
import pytest
import torch

import ramify
from ramify import hub
from ramify.batching.text_input import TextInput
from ramify.batching.views.streams import StreamInput
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.permutation import PermutationPipeline
from ramify.models.bert import Bert, BertConfig
from ramify.models.xlnet import XLNet, XLNetConfig
from ramify.nn.ragged import Rows
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig
from ramify.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

TEXTS = [
    "The crust goes soft an hour out of the oven, doesn't it?",
    "Flour, water, salt: three things, and time does the rest. Naïve café!",
    "yes  two   spaces\tand 1234",
]
KINDS = ["wordpiece", "bpe", "unigram"]


def trained(kind, *, marks=False, lowercase=True):
    texts = [*TEXTS, "an answer that nobody asked for", "what does the oven do to water and flour?", "Zwölf Boxkämpfer"] * 3
    return Tokenizer.train(texts, kind=kind, vocab_size=400, lowercase=lowercase, marks=marks)


def spread(task):
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return task.eval()


def bert_model(tokenizer, *, next_sentence=0.0, layout="bert"):
    torch.manual_seed(0)
    pooling = "pooler" if next_sentence else "mean"
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, dim=16, num_layers=2, num_heads=2, ffn_dim=24, max_tokens=64, pooling=pooling
    )
    task = MaskedLMConfig(head="bert", next_sentence=next_sentence)
    return MaskFiller(spread(MaskedLM(Bert(config), tokenizer, TextInput(context="none", layout=layout), task)))


def xlnet_model(tokenizer, reused=48, segments="none", **task):
    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=tokenizer.vocab_size, dim=16, num_layers=2, num_heads=2, ffn_dim=24, memory=8)
    input = StreamInput(reused_tokens=reused, segments=segments)
    return PermutationPipeline(spread(PermutationLM(XLNet(config), tokenizer, input, PermutationLMConfig(**task))))


def loaded(auto, folder):
    """The other library's tokenizer and model, which lacks nothing and leaves nothing out."""
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    assert {name: found for name, found in report.items() if found} == {}
    return transformers.AutoTokenizer.from_pretrained(folder), model.eval()


def assert_equal_tokens(theirs, tokenizer, layout, vocab_size):
    assert len(theirs) == tokenizer.vocab_size <= vocab_size
    rows, ids = tokenizer.layout(layout), [tokenizer.encode(text) for text in TEXTS]
    for text, own in zip(TEXTS, ids, strict=True):
        row = theirs(text)
        assert row["input_ids"] == rows.wrap(own).tolist()
        pair = theirs(TEXTS[0], text)
        assert pair["input_ids"] == rows.wrap_pair(ids[0], own).tolist()
        assert ("token_type_ids" in row) == (rows.types is not None)
        if rows.types is not None:
            assert row["token_type_ids"] == rows.types_of(len(own)).tolist()
            assert pair["token_type_ids"] == rows.types_of(len(ids[0]), len(own)).tolist()
    for role, token_id in tokenizer.shared_ids.items():
        assert getattr(theirs, f"{role}_token_id") == token_id, role


@pytest.mark.parametrize("layout", ["bert", "roberta"])
@pytest.mark.parametrize("kind", KINDS)
def test_bert(tmp_path, kind, layout):
    tokenizer = trained(kind)
    own = bert_model(tokenizer, layout=layout)
    hub.export_hugging_face(own, tmp_path)
    fast, theirs = loaded(transformers.AutoModelForMaskedLM, tmp_path)
    assert_equal_tokens(fast, tokenizer, layout, theirs.config.vocab_size)
    assert fast.model_max_length == 64
    assert theirs.config.pad_token_id == tokenizer.shared_ids["pad"]
    for arguments in ((TEXTS[0],), (TEXTS[0], TEXTS[1])):
        row = fast(*arguments, return_tensors="pt", truncation=True)
        ids = row["input_ids"][0]
        types = row["token_type_ids"][0] if "token_type_ids" in row else torch.zeros_like(ids)
        rows, backbone = Rows.build([len(ids)]), own.backbone
        with torch.no_grad():
            scores = own.task.head(backbone.stack(backbone.embeddings(ids, rows.positions, types), rows))
            torch.testing.assert_close(theirs(**row).logits[0], scores, rtol=0, atol=1e-5)


def test_bert_that_predicts_the_next_sentence(tmp_path):
    hub.export_hugging_face(bert_model(trained("wordpiece"), next_sentence=1.0), tmp_path)
    loaded(transformers.AutoModelForPreTraining, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertForPreTraining"]


@pytest.mark.parametrize("auto", ["AutoModelForCausalLM", "XLNetLMHeadModel"])
@pytest.mark.parametrize("kind", KINDS)
def test_xlnet(tmp_path, kind, auto):
    tokenizer = trained(kind, marks=True, lowercase=False)
    own = xlnet_model(tokenizer)
    hub.export_hugging_face(own, tmp_path)
    fast, theirs = loaded(getattr(transformers, auto), tmp_path)
    assert_equal_tokens(fast, tokenizer, "xlnet", theirs.config.vocab_size)
    ids = {role: getattr(theirs.config, f"{role}_token_id") for role in ("pad", "bos", "eos")}
    assert ids == {role: tokenizer.shared_ids[role] for role in ids}
    # Padding stands on the left, so that a row ends with its CLS.
    batch = fast(TEXTS, padding=True, return_tensors="pt")
    assert fast.padding_side == "left"
    assert (batch["input_ids"][:, -1] == tokenizer.cls_id).all()
    with torch.no_grad():
        together = theirs.transformer(**batch).last_hidden_state
    for text, row, mask in zip(TEXTS, together, batch["attention_mask"].bool(), strict=True):
        with torch.no_grad():
            alone = theirs.transformer(**fast(text, return_tensors="pt")).last_hidden_state[0]
        torch.testing.assert_close(row[mask], alone, rtol=0, atol=1e-5)
    # The texts alone are what Ramify embeds.
    plain = fast(TEXTS[0], add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        mean = theirs.transformer(plain).last_hidden_state[0].mean(0).numpy()
    np.testing.assert_allclose(own.embed(TEXTS[0])[0], mean, rtol=0, atol=1e-5)


def test_reused_tokens_survive(tmp_path):
    model = xlnet_model(trained("wordpiece"), reused=48)
    for number in range(2):
        hub.export_hugging_face(model, tmp_path / f"theirs{number}")
        assert transformers.AutoConfig.from_pretrained(tmp_path / f"theirs{number}").reuse_len == 48
        hub.save(ramify.load(tmp_path / f"theirs{number}"), tmp_path / f"own{number}")
        model = ramify.load(tmp_path / f"own{number}")
        assert (model.input.reused_tokens, model.kind) == (48, "streams")


@pytest.mark.parametrize("family", ["roberta", "bert"])
def test_layout_of_a_foreign_checkpoint_is_exported_with_it(tmp_path, family):
    """A RoBERTa of transformers, loaded and exported: pairs keep their two separators, and special tokens their spelling."""
    from tokenizers import Tokenizer as Engine

    tokenizer = trained("bpe")
    spelled = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    content = tokenizer.json
    for old, new in spelled.items() if family == "roberta" else ():
        content = content.replace(old, new)
    tokenizer = Tokenizer(Engine.from_str(content))
    kind = {"roberta": "Roberta", "bert": "Bert"}[family]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=66, type_vocab_size=2, pad_token_id=0,
    )  # fmt: skip
    getattr(transformers, f"{kind}ForMaskedLM")(config).save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs")
    model = ramify.load(tmp_path / "theirs")
    assert (model.input.layout, model.kind) == (family, "packed-text")
    hub.export_hugging_face(model, tmp_path / "again")
    fast, theirs = loaded(transformers.AutoModelForMaskedLM, tmp_path / "again")
    assert_equal_tokens(fast, tokenizer, family, theirs.config.vocab_size)
    assert (fast.bos_token, fast.cls_token) == (("<s>", "<s>") if family == "roberta" else (None, "[CLS]"))


def test_an_xlnet_with_a_head_that_the_other_library_lacks_is_not_exported_without_it(tmp_path):
    model = xlnet_model(trained("wordpiece"), segments="pair", next_segment=0.5)
    with pytest.raises(RamifyError, match=r"task.next_segment=0.5 has no Hugging Face form.* Train a model with"):
        hub.export_hugging_face(model, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_tokenizer_gives_texts_the_same_ids(tmp_path, kind):
    """`evaluate --against` compares a model with its export."""
    tokenizer = trained(kind)
    tokenizer.export(tmp_path, "xlnet", {})
    exported = Tokenizer.load(tmp_path)
    assert exported.hash != tokenizer.hash
    assert exported.text_hash == tokenizer.text_hash
    assert exported.text_hash != trained(kind, lowercase=False).text_hash

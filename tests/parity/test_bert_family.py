"""RoBERTa, DistilBERT and ALBERT of transformers, read from random checkpoints: equal outputs, and refused ones."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ramify
from fixtures import discussion, tokenizer
from ramify import hub
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.inference.embed import Embedder
from ramify.inference.fill_mask import MaskFiller
from ramify.models import bert, bert_family
from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig, config_from_bert, init_from_bert
from ramify.nn.ragged import Rows
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

VOCAB = tokenizer().vocab_size
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
}
FAMILY = {
    "Roberta": {**COMMON, "type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 42, "layer_norm_eps": 1e-5},
    "DistilBert": {
        "vocab_size": VOCAB,
        "dim": 24,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 40,
        "max_position_embeddings": 40,
        "sinusoidal_pos_embds": False,
    },
    "Albert": {**COMMON, "embedding_size": 16},
}
POSITIONS = "embeddings.position_embeddings.weight"


def saved(folder, family, kind="ForMaskedLM", **changes):
    """A random transformers model with well-spread weights, in a directory."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**(FAMILY | {"Bert": COMMON})[family] | changes)
    model = getattr(transformers, f"{family}{kind}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer().save(folder)
    return model


def texts():
    random = torch.Generator().manual_seed(1)
    return [torch.randint(5, VOCAB, (length,), generator=random) for length in (1, 4, 17, 40)]


def assert_equal_logits(task, theirs):
    assert isinstance(task, MaskedLM)
    for ids in texts():
        rows = Rows.build([len(ids)])
        with torch.no_grad():
            backbone = task.backbone
            states = backbone.stack(backbone.embeddings(ids, rows.positions), rows)
            torch.testing.assert_close(task.head(states), theirs(ids[None]).logits[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILY)
def test_logits(tmp_path, family):
    theirs = saved(tmp_path, family)
    model = ramify.load(tmp_path)
    assert_equal_logits(model.task, theirs)
    # The longest row takes all positions that the checkpoint has.
    assert model.backbone.config.max_tokens == 40
    # Saved in Ramify's own form, it is the same model.
    hub.save(model, tmp_path / "own")
    again = ramify.load(tmp_path / "own")
    assert_equal_logits(again.task, theirs)
    assert again.input.layout == ("roberta" if family == "Roberta" else "bert")


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Roberta", {"type_vocab_size": 2}),
        ("Roberta", {"tie_word_embeddings": False}),
        ("Albert", {"embedding_size": 24}),
        ("Albert", {"hidden_act": "gelu"}),
        ("DistilBert", {"activation": "relu", "sinusoidal_pos_embds": True}),
        ("Bert", {"hidden_act": "gelu_pytorch_tanh"}),
        ("Albert", {"hidden_act": "swish"}),
        ("DistilBert", {"activation": "tanh"}),
    ],
)
def test_variants(tmp_path, family, changes):
    theirs = saved(tmp_path, family, **changes)
    own = ramify.load(tmp_path)
    assert_equal_logits(own.task, theirs)
    hub.export_hugging_face(own, tmp_path / "ours")
    assert_equal_logits(own.task, transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval())


@pytest.mark.parametrize(
    ("family", "setting"), [("Albert", "hidden_act"), ("Roberta", "pad_token_id"), ("Bert", "type_vocab_size")]
)
def test_settings_that_a_config_leaves_out_have_the_values_of_transformers(tmp_path, family, setting):
    saved(tmp_path, family)
    config = json.loads((tmp_path / "config.json").read_text())
    del config[setting]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_equal_logits(ramify.load(tmp_path).task, transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval())


@pytest.mark.parametrize(
    ("family", "output"), [("Bert", "cls.predictions.decoder.weight"), ("DistilBert", "vocab_projector.weight")]
)
def test_an_output_map_of_its_own_is_not_replaced_by_the_embedding(tmp_path, family, output):
    saved(tmp_path, family, tie_word_embeddings=False)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[output]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(RamifyError, match=rf"holds no tensor '{output}'"):
        ramify.load(tmp_path)


@pytest.mark.parametrize("family", FAMILY)
def test_encoder_without_a_head_embeds(tmp_path, family):
    theirs = saved(tmp_path, family, "Model")
    own = ramify.load(tmp_path)
    assert isinstance(own, Embedder)
    tree = discussion([-1, 0], lengths=[7, 2])
    for node, vector in zip(tree.nodes, own.embed(tree)):
        ids = torch.tensor([[tokenizer().cls_id, *tokenizer().encode(node.text), tokenizer().sep_id]])
        with torch.no_grad():
            np.testing.assert_allclose(vector, theirs(ids).last_hidden_state[0].mean(0).numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["Roberta", "Albert"])
def test_pooler(tmp_path, family):
    theirs = saved(tmp_path, family, "Model")
    model = bert.from_pretrained(tmp_path, pooling="pooler").eval()
    for ids in texts():
        with torch.no_grad():
            torch.testing.assert_close(
                model.vectors(EncoderInput.of_rows(ids, Rows.build([len(ids)]))),
                theirs(ids[None]).pooler_output,
                rtol=0,
                atol=1e-5,
            )


@pytest.mark.parametrize("family", ["Roberta", "DistilBert"])
def test_tree_mlm_starts_from_the_encoder(tmp_path, family):
    theirs = saved(tmp_path, family, "Model")
    sizes = config_from_bert(bert_family.read_config(tmp_path)) | {"decoder_layers": 1}
    model = TreeMLM(TreeMLMConfig(**sizes, max_tokens=40)).eval()
    init_from_bert(model, tmp_path)
    for ids in texts():
        with torch.no_grad():
            expected = theirs(ids[None]).last_hidden_state[0].mean(0, keepdim=True)
            torch.testing.assert_close(
                model.vectors(EncoderInput.of_rows(ids, Rows.build([len(ids)]))), expected, rtol=0, atol=1e-5
            )


def test_albert_has_one_layer_and_narrow_embeddings():
    """The published sizes of ALBERT-base: 11,683,584 parameters with the pooler."""
    config = BertConfig(
        vocab_size=30_000, dim=768, num_layers=12, num_heads=12, ffn_dim=3072, max_tokens=512, pooling="pooler",
        embedding_dim=128, shared_layers=True,
    )  # fmt: skip
    with torch.device("meta"):
        model = Bert(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_683_584


# --- refusals -----------------------------------------------------------------------------------------------------------------


def test_tree_mlm_refuses_shared_layers(tmp_path):
    saved(tmp_path, "Albert")
    with pytest.raises(RamifyError, match="model_type='albert' is not supported here; only bert, roberta, distilbert are"):
        bert_family.read_config(tmp_path)


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("Albert", {"num_hidden_groups": 2}, "num_hidden_groups=2 is not supported for ALBERT"),
        ("Roberta", {"hidden_act": "relu"}, "hidden_act='relu' is not supported for RoBERTa"),
        ("Roberta", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ("DistilBert", {"n_layers": "many"}, "n_layers must be whole numbers"),
    ],
)
def test_unsupported_settings_are_refused(tmp_path, family, change, message):
    saved(tmp_path, family)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(RamifyError, match=message):
        ramify.load(tmp_path)


def test_missing_and_surplus_tensors_are_listed(tmp_path):
    saved(tmp_path, "Roberta")
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for name in ("roberta.embeddings.LayerNorm.bias", "roberta.encoder.layer.2.output.dense.weight"):
        del tensors[name]
    tensors |= {"roberta.encoder.layer.3.output.dense.bias": torch.zeros(24), "classifier.weight": torch.zeros(2, 24)}
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(RamifyError) as caught:
        ramify.load(tmp_path)
    for words in (
        "holds no tensor 'roberta.embeddings.LayerNorm.bias', 'roberta.encoder.layer.2.output.dense.weight', so it is not a "
        "complete RoBERTa encoder",
        "does not have: 'classifier.weight', 'roberta.encoder.layer.3.output.dense.bias'",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize("family", FAMILY)
def test_pickled_weights_are_refused(tmp_path, family):
    theirs = saved(tmp_path, family)
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(RamifyError, match="Pickled weights are never read"):
        ramify.load(tmp_path)


def test_longer_rows_than_the_position_table_are_refused(tmp_path):
    saved(tmp_path, "Roberta", "Model")
    with pytest.raises(RamifyError, match="max_tokens=41 is above the 40 tokens"):
        bert.from_pretrained(tmp_path, max_tokens=41)


def tolerance(family):
    """RoBERTa's only token type is added to its positions, in single precision."""
    return 1e-6 if family == "Roberta" else 1e-10


def exported(tmp_path, auto):
    """The other library's model and its tokenizer, by their ordinary path, of what was loaded from them, saved and exported."""
    model = ramify.load(tmp_path)
    if model.kind is not None:
        hub.save(model, tmp_path / "own")
        model = ramify.load(tmp_path / "own")
    hub.export_hugging_face(model, tmp_path / "exported")
    back, report = auto.from_pretrained(tmp_path / "exported", output_loading_info=True)
    return back.eval(), transformers.AutoTokenizer.from_pretrained(tmp_path / "exported"), report


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((family, {}) for family in FAMILY),
        ("Roberta", {"type_vocab_size": 2}),
        ("Roberta", {"tie_word_embeddings": False}),
        ("DistilBert", {"tie_word_embeddings": False}),
        ("Albert", {"tie_word_embeddings": False, "hidden_act": "gelu"}),
        ("Bert", {"tie_word_embeddings": False}),
    ],
)
def test_an_exported_model_is_the_one_that_was_loaded(tmp_path, family, changes):
    theirs = saved(tmp_path, family, **changes).double()
    back, fast, report = exported(tmp_path, transformers.AutoModelForMaskedLM)
    assert type(back) is type(theirs)
    assert not any(report.values())
    assert back.config.pad_token_id == tokenizer().shared_ids["pad"]
    assert fast.model_max_length == 40
    back = back.double()
    for ids in texts():
        torch.testing.assert_close(back(ids[None]).logits, theirs(ids[None]).logits, rtol=0, atol=tolerance(family))
    # Its tokenizer lays out rows that it reads.
    assert back(**fast("aa be", "bi", return_tensors="pt")).logits.shape[-1] == VOCAB


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILY)
def test_an_exported_encoder_is_the_one_that_was_loaded(tmp_path, family):
    theirs = saved(tmp_path, family, "Model").double()
    back, fast, report = exported(tmp_path, transformers.AutoModel)
    assert type(back) is type(theirs)
    assert all("pooler" in name for name in report["missing_keys"])
    assert not report["unexpected_keys"]
    for ids in texts():
        expected = theirs(ids[None]).last_hidden_state
        torch.testing.assert_close(back.double()(ids[None]).last_hidden_state, expected, rtol=0, atol=tolerance(family))
    assert back(**fast("aa be", return_tensors="pt")).last_hidden_state.shape[-1] == 24


@torch.no_grad()
def test_an_exported_encoder_without_token_types_keeps_its_pooler(tmp_path):
    """DistilBERT has none, so it is a RoBERTa."""
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "dim": 8, "num_layers": 2, "num_heads": 2, "ffn_dim": 16, "max_tokens": 20}
    model = Bert(BertConfig(**sizes, type_vocab_size=0, pooling="pooler")).eval()
    hub.export_hugging_face(Embedder(model, tokenizer(), TextInput(context="none")), tmp_path)
    theirs, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    ids = torch.tensor([tokenizer().cls_id, 7, 8, tokenizer().sep_id])
    vectors = model.vectors(EncoderInput.of_rows(ids, Rows.build([4])))
    torch.testing.assert_close(theirs.eval()(ids[None]).pooler_output, vectors, rtol=0, atol=1e-5)


@torch.no_grad()
def test_an_albert_that_predicts_second_segments_is_exported_with_its_heads(tmp_path):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "dim": 8, "num_layers": 2, "num_heads": 2, "ffn_dim": 16, "max_tokens": 20}
    model = Bert(BertConfig(**sizes, shared_layers=True, embedding_dim=4, pooling="pooler"))
    task = MaskedLM(model, tokenizer(), TextInput(context="none"), MaskedLMConfig(head="bert", next_sentence=1.0)).eval()
    hub.export_hugging_face(MaskFiller(task), tmp_path)
    theirs, report = transformers.AutoModelForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    ids = torch.tensor([tokenizer().cls_id, 7, 8, tokenizer().sep_id])
    rows = EncoderInput.of_rows(ids, Rows.build([4]))
    scores = theirs.eval()(ids[None]).sop_logits
    torch.testing.assert_close(scores, task.next_head(task.backbone.vectors(rows)), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "task", "message"),
    [
        (
            {"shared_layers": True},
            {},
            r"model\.shared_layers=true and model\.embedding_dim=null has no Hugging Face form: ALBERT",
        ),
        ({"embedding_dim": 4}, {}, r"model\.shared_layers=false and model\.embedding_dim=4 has no .* Train a model with both"),
        ({"embedding_dim": 4, "shared_layers": True, "type_vocab_size": 0}, {}, "whose ALBERT has token types"),
        (
            {"type_vocab_size": 0, "eps": 1e-5, "activation": "relu"},
            {},
            r"model\.activation=relu .* the head of RoBERTa has gelu",
        ),
        ({"type_vocab_size": 0, "pooling": "pooler"}, {"next_sentence": 1.0}, r"task\.next_sentence=1 with model\.type_vocab"),
    ],
)
def test_models_that_the_family_lacks_are_not_exported(tmp_path, settings, task, message):
    sizes = {"vocab_size": VOCAB, "dim": 8, "num_layers": 2, "num_heads": 2, "ffn_dim": 16}
    config = MaskedLMConfig(head="bert", **task)
    model = MaskFiller(MaskedLM(Bert(BertConfig(**sizes, **settings)), tokenizer(), config=config))
    with pytest.raises(RamifyError, match=message):
        hub.export_hugging_face(model, tmp_path)
    assert not list(tmp_path.iterdir())


SPELLED = {
    "Bert": (
        "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.0.attention.self.key.weight",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.LayerNorm.bias",
    ),
    "Roberta": (
        "roberta.embeddings.LayerNorm.bias",
        "roberta.encoder.layer.0.attention.self.key.weight",
        "lm_head.dense.weight",
        "lm_head.layer_norm.bias",
    ),
    "DistilBert": (
        "distilbert.embeddings.LayerNorm.bias",
        "distilbert.transformer.layer.0.attention.k_lin.weight",
        "vocab_transform.weight",
        "vocab_layer_norm.bias",
    ),
    "Albert": (
        "albert.embeddings.LayerNorm.bias",
        "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.key.weight",
        "predictions.dense.weight",
        "predictions.LayerNorm.bias",
    ),
}


@pytest.mark.parametrize("family", SPELLED)
def test_missing_tensors_are_all_named_as_the_family_spells_them(tmp_path, family):
    saved(tmp_path, family)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    save_file({name: tensor for name, tensor in tensors.items() if name not in SPELLED[family]}, file)
    with pytest.raises(RamifyError, match=r"not a complete .* encoder with a masked-LM head") as caught:
        ramify.load(tmp_path)
    assert all(repr(name) in str(caught.value) for name in SPELLED[family])
    layers = {name for name in tensors if "layer." in name or "albert_layers" in name}
    save_file({name: tensor for name, tensor in tensors.items() if name not in layers}, file)
    with pytest.raises(RamifyError, match=rf"holds no tensor ('[\w.]+', ){{7}}'[\w.]+' and {len(layers) - 8} more, so"):
        ramify.load(tmp_path)


@pytest.mark.parametrize("family", FAMILY | {"Bert": COMMON})
@pytest.mark.parametrize("setting", ["is_decoder", "add_cross_attention"])
def test_decoders_are_refused(tmp_path, family, setting):
    """They read one side of a text only, and would give other states without a word."""
    saved(tmp_path, family)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {setting: True}))
    with pytest.raises(RamifyError, match=rf"config\.json: {setting}=true is not supported .* because true .* Choose another"):
        ramify.load(tmp_path)


@pytest.mark.parametrize(("family", "rows"), [("Bert", 40), ("Roberta", 42), ("DistilBert", 40), ("Albert", 40)])
def test_a_position_table_that_differs_from_the_config_is_named(tmp_path, family, rows):
    saved(tmp_path, family, "Model")
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {POSITIONS: tensors[POSITIONS][:30].clone()}, file)
    with pytest.raises(RamifyError, match=rf"30 positions in '{POSITIONS}', but .*max_position_embeddings={rows}"):
        ramify.load(tmp_path)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused(tmp_path, number):
    saved(tmp_path, "Roberta")
    ramify.save(ramify.load(tmp_path), tmp_path / "own")
    for folder, name in ((tmp_path, "lm_head.dense.weight"), (tmp_path / "own", "backbone.stack.layers.1.ffn_in.bias")):
        tensors = load_file(folder / "model.safetensors")
        tensors[name].view(-1)[3] = number
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(RamifyError, match=f"holds NaN or infinite weights in '{name}', so"):
            ramify.load(folder)

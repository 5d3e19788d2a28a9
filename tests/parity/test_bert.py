"""Our Bert against transformers' BertForMaskedLM, both ways, on randomly initialised weights; and refused checkpoints."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ramify
from fixtures import bert_task, discussion, forest, tokenizer, tree_task, whole
from ramify import hub
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.inference.embed import Embedder
from ramify.inference.fill_mask import MaskFiller
from ramify.models import bert, bert_family
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig, config_from_bert, init_from_bert
from ramify.nn.ragged import Rows
from ramify.registry import HF_FORMS
from ramify.tasks.masked_lm import MaskedLM

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

SIZES = {
    "vocab_size": tokenizer().vocab_size,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
    "hidden_act": "gelu",
}


def saved(folder, kind="BertForMaskedLM", seed=0, **changes):
    """A random transformers model with well-spread weights, in a directory."""
    torch.manual_seed(seed)
    model = getattr(transformers, kind)(transformers.BertConfig(**SIZES | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer().save(folder)
    return model


@pytest.fixture
def batch():
    own = forest([discussion([-1, *([0] * 9)], lengths=[0, 1, 2, 5, 5, 9, 17, 30, 38, 38])], 40)
    return whole(bert_task(input=TextInput(max_tokens=40, context="none")), own, predict_post=True)


def logits_of(model, batch, type_ids=None):
    """The output of transformers on the same rows, padded, back on the flat axis."""
    lengths = batch.targets.host_lengths.tolist()
    rows = torch.nn.utils.rnn.pad_sequence(torch.split(batch.target_ids, lengths), batch_first=True)
    mask = torch.arange(rows.shape[1]) < batch.targets.lengths[:, None]
    if type_ids is not None:
        type_ids = torch.nn.utils.rnn.pad_sequence(torch.split(type_ids, lengths), batch_first=True)
    with torch.no_grad():
        return model(input_ids=rows, attention_mask=mask.long(), token_type_ids=type_ids).logits[mask]


def test_attention_weights(tmp_path):
    saved(tmp_path)
    theirs = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    model = ramify.load(tmp_path)
    answer = model.attention("aa be [MASK] co da")
    (table,) = answer.attention
    ids = torch.tensor([[tokenizer().ids[token] for token in table.keys]])
    with torch.no_grad():
        expected = torch.stack(theirs(ids, output_attentions=True).attentions)[:, 0]
    found = np.stack([head.weights for head in table.heads]).reshape(expected.shape)
    assert [(head.layer, head.head) for head in table.heads][4:6] == [(2, 1), (2, 2)]
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def our_logits(task, batch):
    return task.head(task.backbone(batch).tokens)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("eps", [1e-12, 1e-5])
def test_logits(tmp_path, batch, activation, eps):
    theirs = saved(tmp_path, hidden_act=activation, layer_norm_eps=eps)
    task = ramify.load(tmp_path).task
    assert isinstance(task, MaskedLM)
    torch.testing.assert_close(our_logits(task, batch), logits_of(theirs, batch), rtol=0, atol=1e-5)


def test_untied_head(tmp_path, batch):
    theirs = saved(tmp_path, tie_word_embeddings=False)
    assert not torch.equal(theirs.cls.predictions.decoder.weight, theirs.bert.embeddings.word_embeddings.weight)
    task = ramify.load(tmp_path).task
    assert isinstance(task, MaskedLM)
    assert not task.config.tie_weights
    torch.testing.assert_close(our_logits(task, batch), logits_of(theirs, batch), rtol=0, atol=1e-5)


def test_token_types(tmp_path, batch):
    theirs = saved(tmp_path)
    task = ramify.load(tmp_path).task
    types = torch.randint(2, batch.target_ids.shape)
    batch = replace(batch, token_type_ids=types)
    torch.testing.assert_close(our_logits(task, batch), logits_of(theirs, batch, types), rtol=0, atol=1e-5)


def test_exported_models_load_in_transformers(tmp_path, batch):
    task = bert_task(dtype=torch.float32, task={"head": "bert"}, max_tokens=40).eval()
    hub.export_hugging_face(MaskFiller(task), tmp_path)
    theirs, report = transformers.BertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    torch.testing.assert_close(our_logits(task, batch), logits_of(theirs.eval(), batch), rtol=0, atol=1e-5)
    again = ramify.load(tmp_path).task
    torch.testing.assert_close(our_logits(again, batch), our_logits(task, batch), rtol=0, atol=0)
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert fast("aa be", add_special_tokens=False)["input_ids"] == tokenizer().encode("aa be")


def test_round_trip_of_transformers_weights(tmp_path):
    """An encoder and its head survive export and loading unchanged."""
    saved(tmp_path / "in")
    model = ramify.load(tmp_path / "in")
    hub.export_hugging_face(model, tmp_path / "out")
    before, after = (load_file(tmp_path / side / "model.safetensors") for side in ("in", "out"))
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert before.keys() - tied == after.keys() - tied
    assert all(torch.equal(before[name], after[name]) for name in before.keys() - tied)


def test_export_without_a_hugging_face_form_is_refused(tmp_path):
    with pytest.raises(RamifyError, match=r"task\.head=linear has no Hugging Face form"):
        hub.export_hugging_face(MaskFiller(bert_task(task={"head": "linear"})), tmp_path)
    with pytest.raises(RamifyError, match="Hugging Face form"):
        hub.export_hugging_face(MaskFiller(tree_task(task={"head": "bert"})), tmp_path)


@pytest.mark.parametrize(
    ("settings", "named", "remedy"),
    [
        ({"norm": "pre"}, "model.norm=pre has no Hugging Face form: its BERT has post-norm", "model.norm=post"),
        ({"position": "sinusoidal"}, "model.position=sinusoidal has no Hugging Face form", "model.position=learned"),
        ({"position": "relative"}, "model.position=relative has no Hugging Face form", "model.position=learned"),
        (
            {"position": "relative", "norm": "pre"},
            "model.norm=pre and model.position=relative have no Hugging Face form",
            "model.norm=post and model.position=learned",
        ),
    ],
)
def test_export_of_settings_that_bert_lacks_is_refused(tmp_path, settings, named, remedy):
    with pytest.raises(RamifyError) as refused:
        hub.export_hugging_face(MaskFiller(bert_task(task={"head": "bert"}, **settings)), tmp_path)
    assert str(refused.value).startswith(named)
    assert f"Train a model with {remedy} (ramify train bert --published)." in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_encoder_without_a_head_embeds(tmp_path, batch):
    theirs = saved(tmp_path, "BertModel")
    own = ramify.load(tmp_path)
    assert isinstance(own, Embedder)
    assert own.verbs == ("embed", "attention", "nearest")
    tree = discussion([-1, 0, 0], lengths=[4, 7, 1])
    found = own.embed(tree)
    for node, vector in zip(tree.nodes, found):
        ids = torch.tensor([[tokenizer().cls_id, *tokenizer().encode(node.text), tokenizer().sep_id]])
        with torch.no_grad():
            expected = theirs(ids).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("max_tokens", [40, 17])
def test_pooler_equals_transformers(tmp_path, max_tokens):
    theirs = saved(tmp_path, "BertModel")
    model = bert.from_pretrained(tmp_path, pooling="pooler", max_tokens=max_tokens).eval()
    rows = [torch.randint(5, tokenizer().vocab_size, (length,)) for length in (1, 2, 9, 17, 5)]
    with torch.no_grad():
        found = model.vectors(EncoderInput.of_rows(torch.cat(rows), Rows.build([len(row) for row in rows])))
        expected = torch.cat([theirs(row[None]).pooler_output for row in rows])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    # Filling an existing model gives the same weights.
    other = bert.Bert(model.config).eval()
    assert not torch.equal(other.pool.hidden.weight, model.pool.hidden.weight)
    bert.load_pretrained(other, hub.checkpoint(tmp_path))
    assert all(torch.equal(own, there) for own, there in zip(other.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "attn"])
def test_other_pooling_of_a_checkpoint_with_a_pooler(tmp_path, pooling):
    theirs = saved(tmp_path, "BertModel")
    model = bert.from_pretrained(tmp_path, pooling=pooling).eval()
    assert (model.pool.hidden is None) == (pooling != "attn")
    ids = torch.arange(5, 14)
    with torch.no_grad():
        states = theirs(ids[None]).last_hidden_state[0]
        rows = Rows.build([len(ids)])
        torch.testing.assert_close(model.vectors(EncoderInput.of_rows(ids, rows)), model.pool(states, rows), rtol=0, atol=1e-5)


# --- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "message"), [("electra", "model_type='electra' is not one of"), ("gptj", "gptj")])
def test_other_architectures_are_refused(tmp_path, kind, message):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": kind}))
    with pytest.raises(RamifyError, match=message):
        ramify.load(tmp_path)


@pytest.mark.parametrize("kind", ["gptj", ["bert"]])
def test_the_families_that_can_be_loaded_are_listed(tmp_path, kind):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    message = re.escape(f"model_type={kind!r} is not one of {', '.join(HF_FORMS)}, whose")
    with pytest.raises(RamifyError, match=message):
        ramify.load(tmp_path)
    assert [*HF_FORMS] == ["albert", "bert", "distilbert", "gpt2", "roberta", "t5", "xlnet"]


def test_missing_pooler_is_named(tmp_path):
    saved(tmp_path, "BertForMaskedLM")
    with pytest.raises(RamifyError, match=r"no tensor 'bert\.pooler\.dense\.weight', 'bert\.pooler\.dense\.bias'"):
        bert.from_pretrained(tmp_path, pooling="pooler")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", '{"model_type": "bert", "vocab_size": "many"}', r"config\.json: vocab_size, hidden_size"),
        ("config.json", '["bert"]', "holds no JSON object"),
        ("modules.json", "{", "is not a list of modules"),
        ("modules.json", '[{"type": "x.Pooling"}]', "is not a list of modules"),
        ("modules.json", "[3]", "is not a list of modules"),
    ],
)
def test_damaged_descriptions_are_refused(tmp_path, name, content, message):
    saved(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(RamifyError, match=message):
        ramify.load(tmp_path)


def test_pickled_weights_are_refused(tmp_path):
    theirs = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(RamifyError, match="Pickled weights are never read"):
        ramify.load(tmp_path)


def test_missing_tensors_are_refused(tmp_path):
    saved(tmp_path)
    file = tmp_path / "model.safetensors"
    whole_file = load_file(file)
    for name in (
        "bert.encoder.layer.2.output.dense.bias",
        "bert.embeddings.LayerNorm.weight",
        "cls.predictions.transform.dense.bias",
    ):
        save_file({key: value for key, value in whole_file.items() if key != name}, file, {"format": "pt"})
        with pytest.raises(RamifyError, match=r"output\.dense\.bias|LayerNorm\.weight|dense\.bias"):
            ramify.load(tmp_path)
        if not name.startswith("cls."):
            sizes = config_from_bert(bert_family.read_config(tmp_path))
            with pytest.raises(RamifyError, match="holds no tensor"):
                init_from_bert(TreeMLM(TreeMLMConfig(**sizes, max_tokens=16)), tmp_path)


def test_wrong_shapes_are_refused(tmp_path):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 41}))
    with pytest.raises(RamifyError, match="shape"):
        ramify.load(tmp_path)


def test_damaged_files_are_refused(tmp_path):
    saved(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(RamifyError, match="not a readable safetensors file"):
        ramify.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RamifyError, match="not valid JSON"):
        ramify.load(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(RamifyError, match=r"config\.json"):
        ramify.load(tmp_path)


def test_sharded_and_old_checkpoints_load(tmp_path, batch):
    """Sharded weights, LayerNorms called gamma and beta, and an older `position_ids` are all read."""
    theirs = saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for key, value in tensors.items()
    } | {"bert.embeddings.position_ids": torch.arange(40)[None]}
    names = sorted(old)
    places = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: old[name].contiguous() for name in names if places[name] == file}, tmp_path / file, {"format": "pt"})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    torch.testing.assert_close(our_logits(ramify.load(tmp_path).task, batch), logits_of(theirs, batch), rtol=0, atol=1e-5)


@pytest.mark.parametrize("source", ["nowhere/at/all", "./absent", "no-slash"])
def test_missing_sources_are_refused(source):
    with pytest.raises(RamifyError, match="does not exist"):
        ramify.load(source)


def test_a_model_with_a_next_sentence_head_loads_in_transformers(tmp_path, batch):
    task = bert_task(dtype=torch.float32, task={"head": "bert", "next_sentence": 1.0}, max_tokens=40, pooling="pooler").eval()
    hub.export_hugging_face(MaskFiller(task), tmp_path)
    theirs, report = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    lengths = batch.targets.host_lengths.tolist()
    hidden = task.backbone(batch)
    with torch.no_grad():
        scores = task.next_scores(hidden, batch)
        for ids, own in zip(torch.split(batch.target_ids, lengths), scores):
            torch.testing.assert_close(own, theirs.eval()(ids[None]).seq_relationship_logits[0], rtol=0, atol=1e-5)
    assert isinstance(ramify.load(tmp_path).task, MaskedLM)

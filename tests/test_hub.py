"""Models on disk: a saved model loads unchanged, and nothing else is taken for a model."""

import json
import os
import typing
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ramify
from fixtures import bert_task, discussion, discussions, encoder_checkpoint, forest, masked, tokenizer, tree_task, whole
from ramify import hub
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import readable
from ramify.models.bert import BertConfig
from ramify.models.features import ConcatConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.registry import MODELS, model_record
from ramify.tasks.masked_lm import MaskedLMConfig
from ramify.tokenizer import Tokenizer


def variants(config, own):
    """Every field at every value that differs from its default: choices one by one, the rest from `own`."""
    kinds = typing.get_type_hints(config)
    for field in fields(config):
        if typing.get_origin(kinds[field.name]) is typing.Literal:
            choices = typing.get_args(kinds[field.name])
        elif kinds[field.name] is bool:
            choices = (False, True)
        else:
            choices = (own[field.name],)
        yield from ({field.name: value} for value in choices if value != field.default)


TREE = {
    "vocab_size": 70,
    "dim": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "num_heads": 1,
    "ffn_dim": 20,
    "dropout": 0.3,
    "attention_dropout": 0.2,
    "max_tokens": 40,
    "context_positions": 9,
    "eps": 1e-3,
}
BERT = {name: TREE[name] for name in TREE.keys() & {field.name for field in fields(BertConfig)}} | {
    "num_layers": 1,
    "embedding_dim": 6,
    "type_vocab_size": 3,
    "vocab_size": 70,
    "max_tokens": 70,
}
TASK = {
    "mask_rate": 0.3,
    "mask_split": (0.5, 0.25, 0.25),
    "chunk_tokens": 99,
    "own_words": 0.3,
    "reply_words": 0.2,
    "frequent_word": 0.01,
    "max_predictions": 2,
    "next_sentence": 0.5,
    "span_boundary": 0.5,
}
NEEDS = {
    "embedding_dim": ({}, {"head": "bert"}),
    "next_sentence": ({"pooling": "pooler"}, {}),
    "span_boundary": ({}, {"mask_unit": "span"}),
    "loss_norm": ({}, {"comment_loss": "token"}),
}
"""Settings of the model and of the task that an option needs."""
INPUT = {"max_tokens": 20, "max_context": 4, "concatenate": 30}

CASES = [
    *((tree_task, options, {}, {}) for options in variants(TreeMLMConfig, TREE)),
    *((tree_task, {"context_position": kind, "context_position_kind": "sinusoidal"}, {}, {}) for kind in ("depth", "distance")),
    *((bert_task, options, NEEDS.get(*options, ({}, {}))[1], {}) for options in variants(BertConfig, BERT)),
    *(
        (bert_task if {"next_sentence", "span_boundary"} & options.keys() else tree_task, model, task | options, {})
        for options in variants(MaskedLMConfig, TASK)
        for model, task in [NEEDS.get(*options, ({}, {}))]
    ),
    *((tree_task, {}, {"head": "bert", "tie_weights": False}, {}) for _ in range(1)),
    (tree_task, {"output_attention": True}, {"own_words": 0.3, "tie_weights": False}, {}),
    *((tree_task, {}, {}, options) for options in variants(TextInput, INPUT) if "concatenate" not in options),
    (bert_task, {}, {}, {"concatenate": 30, "max_tokens": 20}),
]


def scores(task, data):
    only = readable(data, np.arange(data.num_trees), task.input.context)
    batch = masked(task, data, whole(task, data, only=only))
    with torch.no_grad():
        return task.head(task.backbone(batch).tokens)


@pytest.mark.parametrize(
    ("make", "model", "task", "input"), CASES, ids=[f"{c[0].__name__}-{c[1] | c[2] | c[3]}" for c in CASES]
)
def test_every_option_survives_saving(tmp_path, make, model, task, input):
    own = make(dtype=torch.float32, task=task, input=replace(TextInput(max_tokens=32), **input), **model).eval()
    if own.weighs_words:
        own.count_words(np.arange(own.backbone.config.vocab_size))
    hub.save(MaskFiller(own), tmp_path)
    again = ramify.load(tmp_path).task
    assert again.backbone.config == own.backbone.config
    assert again.config == own.config
    assert again.input == own.input
    assert again.tokenizer.json == own.tokenizer.json
    assert not again.training
    before, after = hub.own_tensors(own), hub.own_tensors(again)
    assert before.keys() == after.keys() >= {name for name, _ in own.named_parameters()}
    assert all(torch.equal(before[name], after[name]) for name in before)
    data = forest(discussions(2, 8), own.input.max_tokens, own.input.overflow)
    assert torch.equal(scores(again, data), scores(own, data))


@pytest.mark.parametrize("kind", [None, "comment-trees", "packed-text"])
def test_kind_of_run_survives_saving(tmp_path, kind):
    model = MaskFiller(bert_task(dtype=torch.float32))
    model.kind = kind
    for folder in (tmp_path / "once", tmp_path / "twice"):
        hub.save(model, folder)
        assert json.loads((folder / "config.json").read_text())["kind"] == kind
        model = ramify.load(folder)
        assert model.kind == hub.saved_config(folder).kind == kind


@pytest.mark.parametrize(("name", "kind"), [("links", "disentanglement"), ("tree-mlm-small", "comment-trees")])
def test_shipped_models_name_their_kind(name, kind):
    assert hub.saved_config(name).kind == kind


def test_files_of_a_saved_model(tmp_path):
    task = tree_task(dtype=torch.float32)
    hub.save(MaskFiller(task), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: ramify\n")
    assert "| context_position | none |" in card
    # Tied weights are stored once.
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == sum(parameter.numel() for parameter in task.parameters())
    hub.save(MaskFiller(task), tmp_path, card="# Mine\n")
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


def test_card_with_results():
    card = hub.model_card(MaskFiller(bert_task()), title="A model", notes="Made of words.", results={"loss": 3.2})
    assert "# A model" in card
    assert "Made of words." in card
    assert "| loss | 3.2 |" in card


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision(tmp_path, dtype):
    task = tree_task(dtype=torch.float32).eval()
    hub.save(MaskFiller(task), tmp_path / "half", dtype=dtype)
    hub.save(MaskFiller(task), tmp_path / "whole")
    sizes = [(tmp_path / side / "model.safetensors").stat().st_size for side in ("half", "whole")]
    assert sizes[0] < 0.7 * sizes[1]
    again = ramify.load(tmp_path / "half")
    for name, parameter in again.task.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, dict(task.named_parameters())[name].to(dtype).float())
    tree = discussion([-1, 0, 1])
    np.testing.assert_allclose(again.embed(tree), MaskFiller(task).embed(tree), atol=0.05)


# --- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    hub.save(MaskFiller(tree_task(dtype=torch.float32)), tmp_path)
    return tmp_path


def change(folder, part, **values):
    config = json.loads((folder / "config.json").read_text())
    config[part] |= values
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        (
            "model",
            {"name": "crystal-ball"},
            "name='crystal-ball' is not one of agent, bag, bert, .*, transformer, tree-mlm, .*xlnet",
        ),
        (
            "task",
            {"name": "tell-fortunes"},
            "name='tell-fortunes' is not one of .*denoising-lm, masked-lm, .*, next-token, permutation-lm, reply-to",
        ),
        ("model", {"wings": 2}, "wings"),
        ("input", {"wings": 2}, "wings"),
        ("model", {"dim": 16}, "of another shape"),
        ("model", {"encoder_layers": 2}, "missing"),
        ("model", {"decoder_layers": 1}, "not expected"),
        ("model", {"context_position": "depth"}, "missing"),
        ("task", {"tie_weights": False}, "missing"),
        ("model", {"num_heads": 3}, "multiple of"),
    ],
)
def test_invalid_configs_are_refused(saved, part, values, message):
    change(saved, part, **values)
    with pytest.raises(RamifyError, match=message):
        ramify.load(saved)


@pytest.mark.parametrize(("number", "message"), [(3, "format 3"), (5, "format 5"), (None, "no format number")])
def test_another_format_is_refused(saved, number, message):
    config = json.loads((saved / "config.json").read_text())
    del config["format"]
    (saved / "config.json").write_text(json.dumps(config if number is None else config | {"format": number}))
    message = rf"config\.json was written by another version of Ramify \({message}, this one reads 4\)\. Use the version"
    for load in (ramify.load, hub.saved_config):
        with pytest.raises(RamifyError, match=message):
            load(saved)


@pytest.mark.parametrize(
    ("part", "kind", "message"),
    [
        ("reader", "bag", "model.reader is a BagConfig, which reads no"),
        ("source", "mht", "model.source is a Masked.*, which gives no"),
    ],
)
def test_a_model_inside_another_one_of_a_wrong_kind(saved, part, kind, message):
    config = json.loads((saved / "config.json").read_text())
    inner = model_record(MODELS[kind]().for_vocabulary(100))
    config["model"] = model_record(ConcatConfig().for_vocabulary(100)) | {part: inner}
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(RamifyError, match=message):
        ramify.load(saved)


def test_weights_of_another_architecture(saved, tmp_path):
    hub.save(MaskFiller(bert_task(dtype=torch.float32)), tmp_path / "bert")
    (saved / "model.safetensors").write_bytes((tmp_path / "bert" / "model.safetensors").read_bytes())
    with pytest.raises(RamifyError, match="another architecture"):
        ramify.load(saved)


@pytest.mark.parametrize("name", ["kind", "pieces", "input"])
def test_missing_entries_are_refused(saved, name):
    config = json.loads((saved / "config.json").read_text())
    del config[name]
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(RamifyError, match=f"a part is missing or unknown \\('{name}'\\)"):
        ramify.load(saved)


@pytest.mark.parametrize("name", ["backbone.null", "head.bias", "backbone.decoder.layers.1.cross.out.bias"])
def test_missing_tensors(saved, name):
    tensors = load_file(saved / "model.safetensors")
    del tensors[name]
    save_file(tensors, saved / "model.safetensors")
    with pytest.raises(RamifyError, match="missing " + name.replace(".", r"\.")):
        ramify.load(saved)


def test_left_over_tensors(saved):
    tensors = load_file(saved / "model.safetensors")
    save_file(tensors | {"more": torch.zeros(1)}, saved / "model.safetensors")
    with pytest.raises(RamifyError, match=r"not expected .*\(1\)"):
        ramify.load(saved)


def foreign(folder, **changes):
    """A little checkpoint of transformers, with these values of its config."""
    hub.export_hugging_face(MaskFiller(bert_task(dtype=torch.float32, task={"head": "bert"})), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize("name", ["num_hidden_layers", "intermediate_size", "vocab_size"])
def test_sizes_that_the_weights_do_not_have_are_refused_before_they_take_memory(tmp_path, name):
    with pytest.raises(RamifyError, match="=1000000000 fits no model of"):
        ramify.load(foreign(tmp_path / "bert", **{name: 1_000_000_000}))


def test_values_of_another_type_are_refused(tmp_path):
    with pytest.raises(
        RamifyError, match=r"the values of config\.json or the weights are not those of such a model \(TypeError"
    ):
        ramify.load(foreign(tmp_path / "bert", model_type="roberta", pad_token_id=[1]))


def test_a_tokenizer_that_cannot_encode_is_refused(saved):
    tokenizer = json.loads((saved / "tokenizer.json").read_text())
    tokenizer["model"] = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": {"[PAD]": 0}}
    tokenizer["model"]["max_input_chars_per_word"] = 100
    (saved / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(RamifyError, match="tokenizer"):
        ramify.load(saved)


@pytest.mark.parametrize(
    ("file", "message"),
    [("config.json", r"config\.json"), ("model.safetensors", r"model\.safetensors"), ("tokenizer.json", "tokenizer")],
)
def test_missing_and_damaged_files(saved, file, message):
    (saved / file).write_bytes(b"\x00\xff")
    with pytest.raises(RamifyError, match=message):
        ramify.load(saved)
    (saved / file).unlink()
    with pytest.raises(RamifyError, match=message):
        ramify.load(saved)


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        ("model", "norm", "sideways", r"config\.json: model\.norm must be one of post, pre, not 'sideways'"),
        ("model", "dim", 8.0, r"config\.json: model\.dim must be of the form whole number"),
        ("model", "max_tokens", None, r"config\.json: model\.max_tokens"),
        ("input", "context", "sibling", r"config\.json: input\.context must be one of"),
        ("task", "head", "cubic", r"config\.json: task\.head must be one of"),
        ("task", "name", "dance", r"config\.json: name='dance' is not one of"),
    ],
)
def test_invalid_settings_are_refused(saved, part, field, value, message):
    config = json.loads((saved / "config.json").read_text())
    config[part][field] = value
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(RamifyError, match=message):
        ramify.load(saved)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'])
def test_index_without_files_is_refused(saved, content):
    (saved / "model.safetensors.index.json").write_text(content)
    with pytest.raises(RamifyError, match=r'index\.json is damaged: it holds no "weight_map"'):
        ramify.load(saved)


def test_another_vocabulary_that_fits(saved):
    """The vectors of a tokenizer with other pieces would mean nothing."""
    texts = ["zebra yak xylophone"]
    other = Tokenizer.train(texts, vocab_size=61)
    assert other.vocab_size <= 61
    other.save(saved)
    with pytest.raises(RamifyError, match="other pieces, or other ids"):
        ramify.load(saved)


def test_vocabulary_of_another_size(saved, sample):
    """A tokenizer with more pieces than the model knows would index past its embedding."""
    Tokenizer.train([node.text for node in sample[0].nodes], vocab_size=200).save(saved)
    with pytest.raises(RamifyError, match="200 pieces, but the model's vocab_size is 61"):
        ramify.load(saved)


def test_unfinished_run_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RamifyError, match="has not finished"):
        ramify.load(tmp_path)


def test_file_is_refused_as_a_model(saved):
    with pytest.raises(RamifyError, match="is a file"):
        ramify.load(saved / "config.json")


def test_failed_save_leaves_the_old_weights(saved, monkeypatch):
    before = (saved / "model.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ramify.tensors.save_file", full)
    with pytest.raises(RamifyError, match=r"cannot write .*No space left"):
        hub.save(MaskFiller(tree_task(dtype=torch.float32, pooling="max")), saved)
    assert (saved / "model.safetensors").read_bytes() == before
    hub.load(saved)


def test_interrupted_save_is_refused_as_a_model(saved, monkeypatch):
    """The new weights are already there, and the old settings would be used with them."""
    monkeypatch.setattr(Tokenizer, "save", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hub.save(MaskFiller(tree_task(dtype=torch.float32, pooling="max")), saved)
    with pytest.raises(RamifyError, match=r"holds no config\.json"):
        hub.load(saved)


def test_models_of_other_libraries_are_not_saved_again(tmp_path):
    encoder_checkpoint(bert_task(dtype=torch.float32).backbone, tmp_path / "bert")
    tokenizer().save(tmp_path / "bert")
    loaded = hub.load(tmp_path / "bert")
    with pytest.raises(RamifyError, match="Embedder has no saved form"):
        hub.save(loaded, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert not hasattr(loaded, "fill_mask")
    assert getattr(loaded, "disentangle", None) is None
    with pytest.raises(RamifyError, match="this Embedder has no fill_mask; it can embed"):
        loaded.fill_mask()


def test_model_is_readable_as_the_umask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        hub.save(MaskFiller(tree_task(dtype=torch.float32)), tmp_path / "own")
        hub.export_hugging_face(MaskFiller(bert_task(dtype=torch.float32, task={"head": "bert"})), tmp_path / "theirs")
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for folder in tmp_path.iterdir() for file in folder.iterdir()} == {0o644}


# --- devices ------------------------------------------------------------------------------------------------------------------


def test_models_load_on_the_cpu_by_default(saved):
    for options in ({}, {"device": None}, {"device": "cpu"}, {"device": torch.device("cpu")}):
        assert ramify.load(saved, **options).device == torch.device("cpu")
    assert ramify.load(saved, device="auto").device.type == hub.find_device().type


@pytest.mark.parametrize("name", ["wings", "cpu:1", "meta", "cuda:99", "mps"])
def test_missing_devices_are_refused(tmp_path, name):
    """The message comes before anything is read."""
    with pytest.raises(RamifyError, match=rf"device='{name}' is not available on this machine\. Choose auto, cpu"):
        ramify.load(tmp_path / "nowhere", device=name)


def test_accelerator_is_found_by_torch(monkeypatch):
    """Apple's accelerator has no double precision, so it is not used."""
    kind = "cuda"
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device(kind))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert hub.find_device() == torch.device("cuda")
    assert hub.find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(RamifyError, match=r"device='cuda:2' .* Choose auto, cpu or cuda\."):
        hub.find_device("cuda:2")
    kind = "mps"
    assert hub.find_device() == torch.device("cpu")
    with pytest.raises(RamifyError, match="device='mps' is not available"):
        hub.find_device("mps")


def test_pushing_uploads_the_model_and_nothing_else(saved, monkeypatch):
    calls = []

    class Api:
        def create_repo(self, repo, **options):
            calls.append((repo, options))
            return "https://huggingface.co/" + repo

        def upload_folder(self, **options):
            calls.append(options)

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert hub.push_to_hub(saved, "me/model", private=True) == "https://huggingface.co/me/model"
    assert calls[0] == ("me/model", {"private": True, "exist_ok": True})
    assert calls[1]["folder_path"] == str(saved)
    files = {"config.json", "model.safetensors", "tokenizer.json", "special_tokens.json", "README.md"}
    assert set(calls[1]["allow_patterns"]) == files
    hub.push_to_hub(saved, "me/model", run_record=True)
    assert "run.json" in calls[3]["allow_patterns"]
    (saved / "config.json").rename(saved / "run.json")
    for directory, message in ((saved, "has not finished"), (saved / "nowhere", "holds no model")):
        with pytest.raises(RamifyError, match=message):
            hub.push_to_hub(directory, "me/model")
    assert len(calls) == 4


def _no_network(*args, **options):
    try:
        raise OSError("Name or service not known")
    except OSError as error:
        raise type("ConnectError", (Exception,), {})("[Errno -2]") from error


@pytest.mark.parametrize(
    ("kind", "offline", "said"),
    [
        (
            "",
            False,
            r"https://huggingface\.co cannot be used \(Name or service not known\)\. Check the network and the spelling",
        ),
        ("", True, "HF_HUB_OFFLINE=1 keeps Ramify from asking. Check its spelling, unset HF_HUB_OFFLINE, or name a folder"),
        ("RepositoryNotFoundError", False, r"it has no such model that you may read\. .* log in if it is private"),
    ],
)
def test_hub_that_gives_no_model(tmp_path, saved, monkeypatch, kind, offline, said):
    def refuse(*args, **options):
        raise type(kind, (Exception,), {})("for url: https://…")

    fails = refuse if kind else _no_network
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", fails)
    with pytest.raises(RamifyError, match=said) as refused:
        ramify.load("runs/redit")
    text = str(refused.value)
    assert text.startswith("runs/redit: there is no folder runs/redit here, the cache has no copy")
    assert text.endswith("ships with Ramify (links and tree-mlm-small).")
    assert "\n" not in text
    assert "ConnectError" not in text
    (tmp_path / "runs" / "reddit").mkdir(parents=True)
    with pytest.raises(RamifyError, match=r"the folder runs has no redit \(it has 'reddit'\)"):
        ramify.load("runs/redit")
    with pytest.raises(RamifyError, match=r"cannot be uploaded as me/it: "):
        ramify.push_to_hub(saved, "me/it")


def test_revision_of_a_hub_id(saved, monkeypatch):
    asked = []

    def download(name, **options):
        asked.append((name, options["revision"]))
        return str(saved)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    hub.load("me/model@v1")
    hub.load("me/model", revision="v2")
    hub.load("me/model")
    assert asked == [("me/model", "v1"), ("me/model", "v2"), ("me/model", None)]
    with pytest.raises(RamifyError, match="only models on the hub have revisions"):
        hub.load(saved, revision="v2")

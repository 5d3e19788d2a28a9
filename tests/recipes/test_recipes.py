"""Two steps of every recipe at its own sizes, from the shipped sample to a model that loads."""

import inspect
import re
import typing

import numpy as np
import pytest
import torch

import ramify
from fixtures import bert_task, built, channel, chat_store, tokenizer
from fixtures.nested import books
from ramify import hub
from ramify.batching.document_batch import NUM_MARKS
from ramify.batching.views.comment_trees import RegimeConfig
from ramify.cli import train as commands
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.models.agent import AgentConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.recipes import FITS, RECIPES
from ramify.registry import TASKS, task_name
from ramify.runs import execute
from ramify.runs.curves import train_loss
from ramify.tasks.masked_lm import MaskedLMConfig
from ramify.training.metrics_log import read_metrics


@pytest.fixture(scope="module")
def store(tmp_path_factory, sample):
    return built(sample, tmp_path_factory.mktemp("sample"))


ON_CHATS = {"feature-model": {}, "links": {}, "mht": {}, "decatt": {}, "esim": {"model.hidden": "20"}, "bert-pair": {}}
"""Recipes, and the settings that make two steps of each quick."""

SHORT_CHATS = {"train.steps": "2", "train.log_every": "1", "input.window": "20"}


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    return chat_store(tmp_path_factory.mktemp("chats"), logs=4, number=80)


@pytest.mark.parametrize("recipe", ON_CHATS)
def test_two_steps_on_chats(chats, tmp_path, recipe):
    init = ""
    if recipe in ("mht", "bert-pair"):
        init = str(tmp_path / "bert")
        task = bert_task(dtype=torch.float32, task={"head": "bert"}, max_tokens=128)
        hub.export_hugging_face(MaskFiller(task), tmp_path / "bert")
    run = RECIPES[recipe](str(chats.path), init=init).changed(SHORT_CHATS | ON_CHATS[recipe])
    execute(run, tmp_path / "run", cpu=True)
    metrics = read_metrics(tmp_path / "run")
    assert len(metrics) == 2 * len(run.stages)
    # Untrained models are no better than chance among the candidates, as many as the window inside a log.
    assert np.log(run.input.window / 2) < metrics[0]["loss"] < 20
    assert metrics[-1]["dev_link_f1"] > 0
    model = ramify.load(tmp_path / "run")
    assert len(model.disentangle(channel(30)).conversations()) > 0


@pytest.fixture
def bert_checkpoint(tmp_path):
    hub.save(MaskFiller(bert_task(dtype=torch.float32, max_tokens=128)), tmp_path / "bert")
    return str(tmp_path / "bert")


@pytest.mark.parametrize(
    ("setting", "objective", "rates", "batches"),
    [("reddit", "ranking", (1e-4, 1e-5), (32, 8)), ("ubuntu", "binary", (1e-5, 1e-7), (32, 4))],
)
def test_mht_as_published(tmp_path, bert_checkpoint, setting, objective, rates, batches):
    """Zhu et al. (2020): two stages of at most ten epochs. `--steps` replaces them."""
    store = chat_store(tmp_path, logs=4, number=60)
    run = RECIPES["mht"](str(store.path), init=bert_checkpoint, setting=setting)
    assert tuple(stage.lr for stage in run.stages) == rates
    assert tuple(stage.budget for stage in run.stages) == batches
    assert all((stage.steps, stage.epochs, stage.evaluate_unit) == (0, 10.0, "epochs") for stage in run.stages)
    assert all(
        (stage.optimizer, stage.weight_decay, stage.warmup, stage.clip) == ("adam", 0.0, 0.1, 1.0) for stage in run.stages
    )
    assert (run.task.objective, run.model.encoder.pooling) == (objective, "pooler")
    own = RECIPES["mht"](str(store.path), init=bert_checkpoint)
    assert (run.input.author_in_text, own.input.author_in_text) == (False, True)
    assert RECIPES["mht"](str(store.path), init=bert_checkpoint, setting=setting, features="head").stages == run.stages
    run = RECIPES["mht"](str(store.path), init=bert_checkpoint, setting=setting, steps=2, fine_steps=2)
    _, progress = execute(run.changed({"train.log_every": "1"}), tmp_path / "run", cpu=True)
    assert progress.step == 4
    # Updates hold as many messages as the paper's batches.
    targets = [record["targets"] for record in read_metrics(tmp_path / "run")]
    assert np.diff([0, *targets]).tolist() == [batches[0]] * 2 + [batches[1]] * 2
    assert len(ramify.load(tmp_path / "run").disentangle(channel(30)).conversations()) > 0
    assert len(RECIPES["mht"](str(store.path), init=bert_checkpoint, setting=setting, fine_steps=0).stages) == 1


def test_unknown_setting_of_mht(bert_checkpoint):
    with pytest.raises(RamifyError, match=r"setting=twitter is not one of reddit, ubuntu\. Choose one of them\."):
        RECIPES["mht"]("somewhere", init=bert_checkpoint, setting="twitter")


ON_BOOKS = {"agent": ("sentence", "paragraph", "document"), "agent-sentence": ("sentence",)}
"""Recipes of documents, and the levels that they have on documents of paragraphs."""


@pytest.mark.parametrize("recipe", ON_BOOKS)
def test_two_steps_on_books(tmp_path, recipe):
    store = built(books(20), tmp_path / "data", split=(0.6, 0.3, 0.1))
    settings = {"train.steps": "2", "train.target_tokens": "0", "train.log_every": "1", "train.budget": "60"}
    how = {"joint": True} if recipe == "agent" else {}
    run = RECIPES[recipe](str(store.path), **how).changed(settings | {"tokenizer.vocab_size": "90"})
    prepared, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.step == 2
    first, second = read_metrics(tmp_path / "run")
    sizes = prepared.task.backbone.config
    assert sizes.levels == ON_BOOKS[recipe]
    assert sizes.dims == AgentConfig().dims[: len(sizes.levels) + 1]
    # Untrained heads are near the logarithm of the number of tokens and marks.
    guess = np.log(prepared.task.tokenizer.vocab_size + NUM_MARKS)
    assert guess - 0.5 < first["mlm_token"] < guess + 3
    assert guess - 0.5 < first["reconstruction_sentence"] < guess + 3
    assert np.isfinite(second["dev_loss"])
    assert ramify.load(tmp_path / "run").backbone.config == sizes


def test_two_steps_of_each_stage_of_agent(tmp_path):
    store = built(books(20), tmp_path / "data", split=(0.6, 0.3, 0.1))
    settings = {"train.log_every": "1", "train.budget": "60", "tokenizer.vocab_size": "90"}
    run = RECIPES["agent"](str(store.path), steps=2, all_tokens=1).changed(settings)
    assert tuple(stage.units for stage in run.stages) == (0, 4, 0, 4)
    prepared, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.step == 8
    assert all(np.isfinite(record["loss"]) for record in read_metrics(tmp_path / "run"))
    assert ramify.load(tmp_path / "run").backbone.config == prepared.task.backbone.config


def test_stages_of_agent_last_as_many_tokens_as_asked():
    def tokens(**given):
        return [stage.target_tokens for stage in RECIPES["agent"]("somewhere", **given).stages]

    asked = {"lowest_tokens": 1, "above_tokens": 2, "decoder_tokens": 3}
    assert tokens(**asked, all_tokens=4) == [1, 2, 3, 4]
    assert tokens(**asked, all_tokens=0) == [1, 2, 3]
    assert [stage.steps for stage in RECIPES["agent"]("somewhere", steps=7).stages] == [7] * 3
    assert [stage.steps for stage in RECIPES["agent"]("somewhere", steps=7, all_tokens=1).stages] == [7] * 4
    (joint,) = RECIPES["agent"]("somewhere", joint=True).stages
    assert (joint.steps, joint.target_tokens, joint.units) == (2000, 0, 0)
    with pytest.raises(RamifyError, match=r"--target-tokens 5 is for --joint\. Set --above-tokens"):
        RECIPES["agent"]("somewhere", target_tokens=5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict.fromkeys(("lowest_tokens", "above_tokens", "decoder_tokens", "all_tokens"), 0), "--lowest-tokens 0 leaves out"),
        (
            {"lowest_tokens": 5, "init": "there"},
            "--lowest-tokens 5 is for the stage of sentences, which --init replaces. Leave",
        ),
        ({"lowest_tokens": 0}, "--lowest-tokens 0 leaves out the sentences, whose vectors all later stages read. Set it above"),
        ({"above_tokens": 0, "decoder_tokens": 0, "all_tokens": 0}, "--above-tokens 0 leaves out the levels above"),
        ({"decoder_tokens": 0, "all_tokens": 9}, "--decoder-tokens 0 leaves out the stage before that of --all-tokens 9"),
        ({"all_tokens": -5}, "--all-tokens -5 is below 0"),
        ({"joint": True, "above_tokens": 5}, "--above-tokens 5 is for training in stages, and --joint has a single one."),
    ],
)
def test_stages_of_agent_that_others_need(given, message):
    with pytest.raises(RamifyError, match=re.escape(message)):
        RECIPES["agent"]("somewhere", **given)


ON_LABELS = ("answer", "choose", "classify", "tag")
"""Recipes whose runs have tests of their own (`tests/runs`, `tests/tasks`)."""

STARTED = ("agent-gan",)
"""Recipes that start from a trained model, likewise (`tests/runs/test_adversary_runs.py`)."""


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe not in (*ON_CHATS, *ON_BOOKS, *ON_LABELS, *STARTED)])
def test_two_steps(store, tmp_path, recipe):
    settings = {"train.steps": "2", "train.target_tokens": "0", "train.log_every": "1", "train.budget": "1000"}
    run = RECIPES[recipe](str(store.path)).changed(settings)
    out = tmp_path / "run"
    prepared, progress = execute(run, out, cpu=True)
    assert progress.step == 2
    first, second = read_metrics(out)
    # Untrained models are near the logarithm of the vocabulary's size, and above it, because they favour their own input
    # tokens.
    guess = np.log(prepared.task.tokenizer.vocab_size)
    assert guess - 0.5 < train_loss(first, prepared.task.main_loss) < guess + 3
    assert np.isfinite(second["dev_loss"])
    model = ramify.load(out)
    assert model.embed(next(store.trees())).shape[1] == prepared.task.backbone.vector_dim


def test_tree_mlm_by_the_paper():
    """One flag leaves out every addition to Juneja 2021, whatever the size."""
    for size, dim in (("small", 128), ("base", 256)):
        run = RECIPES["tree-mlm"]("somewhere", size=size, paper=True)
        assert run.task == MaskedLMConfig()
        assert run.view == RegimeConfig()
        assert run.model == TreeMLMConfig(dim=dim, ffn_dim=4 * dim, **layers_and_length(size))
        assert run.input.max_context == 0
        own = RECIPES["tree-mlm"]("somewhere", size=size)
        assert own.model.output_attention
        assert own.task.own_words == own.task.reply_words == 0.3


def layers_and_length(size):
    small = size == "small"
    layers = 2 if small else 4
    return {"encoder_layers": layers, "decoder_layers": layers, "max_tokens": 64 if small else 128}


@pytest.mark.parametrize(
    ("given", "steps", "tokens"),
    [({}, 0, 2_500_000), ({"steps": 7}, 7, 0), ({"target_tokens": 9}, 0, 9), ({"steps": 7, "target_tokens": 9}, 7, 9)],
)
def test_length_of_tree_mlm(given, steps, tokens):
    stage = RECIPES["tree-mlm"]("somewhere", **given).stages[0]
    assert (stage.steps, stage.target_tokens) == (steps, tokens)


def saved(recipe, folder, **options):
    """The folder of an untrained model of a recipe, with a small vocabulary."""
    run = RECIPES[recipe]("somewhere", **options)
    kind = TASKS[task_name(run.task)]
    parts = {name: getattr(run, name) for name in kind.parts}
    hub.save(kind.build(run.model.for_vocabulary(tokenizer().vocab_size).build(), tokenizer(), parts), folder)
    return str(folder)


@pytest.mark.parametrize(
    ("recipe", "made", "asked", "message"),
    [
        ("elmo", {}, {"size": "base"}, "--size base differs from --init {}, whose model has dim=128, not 256."),
        ("elmo", {"directions": "forward"}, {"directions": "both"}, "whose model has directions=forward, not both."),
        ("elmo", {"input": "words"}, {"input": "characters"}, "whose model has input=words, not characters."),
        ("t5", {"version": "1.1"}, {"version": "1.0"}, "--version 1.0 differs from --init {}, whose model has gated=True, not"),
        ("bert", {}, {"size": "base"}, "--size base differs from --init {}, whose model has dim=128, not 256."),
        (
            "bert",
            {},
            {"published": True},
            "--published differs from --init {}, whose model has position=relative, not learned.",
        ),
        ("bert", {}, {"rows": "comments", "size": "base"}, "--size base differs from --init {}, whose model has dim=128"),
        ("roberta", {}, {"size": "base"}, "--size base differs from --init {}, whose model has dim=128, not 256."),
        ("xlnet", {}, {"size": "base"}, "--size base differs from --init {}, whose model has dim=128, not 256."),
        ("xlnet-lm", {}, {"size": "base"}, "--size base differs from --init {}, whose model has dim=128, not 256."),
        ("tree-mlm", {}, {"size": "base"}, "--size base differs from --init {}, whose model has dim=128, not 256."),
        (
            "decatt",
            {},
            {"features": "head"},
            "--features head differs from --init {}, whose model has features=none, not head.",
        ),
    ],
)
def test_options_that_a_checkpoint_decides(tmp_path, recipe, made, asked, message):
    init = saved(recipe, tmp_path / "init", **made)
    with pytest.raises(RamifyError, match=re.escape(message.format(init))):
        RECIPES[recipe]("somewhere", init=init, **asked)
    RECIPES[recipe]("somewhere", init=init)
    RECIPES[recipe]("somewhere", init=init, **made)


def test_what_follows_from_the_options_of_a_checkpoint(tmp_path):
    """Settings of the run that belong to the model are those of the saved model, if no option says otherwise."""
    run = RECIPES["elmo"]("somewhere", init=saved("elmo", tmp_path / "elmo", directions="forward"))
    assert run.view == RECIPES["elmo"]("somewhere", directions="forward").view
    assert RECIPES["t5"]("somewhere", init=saved("t5", tmp_path / "t5", version="1.1")).task.tie_weights is False
    run = RECIPES["decatt"]("somewhere", init=saved("decatt", tmp_path / "decatt", features="head"))
    assert run.stages == RECIPES["decatt"]("somewhere", features="head").stages


@pytest.mark.parametrize("steps", [1, 2, 4, 5, 9, 100_000])
def test_a_published_transformer_of_any_length(steps):
    run = RECIPES["transformer"]("somewhere", published=True, steps=steps)
    assert (run.model.dropout, run.model.attention_dropout) == (0.1, 0.0)
    stage = run.stages[0]
    assert stage.average == {1: None, 2: 2, 4: 4}.get(steps, 5)


@pytest.mark.parametrize("recipe", RECIPES)
def test_docstrings_give_the_command(recipe):
    text = inspect.getdoc(RECIPES[recipe].function)
    assert text is not None
    assert f"ramify train {recipe} --data" in text


@pytest.mark.parametrize("recipe", RECIPES)
def test_parameters_are_the_options(recipe):
    """Every parameter of a recipe is an option of its command, with the same default."""
    command = next(each.callback for each in commands.app.registered_commands if each.name == recipe)
    assert command is not None
    options = inspect.signature(command).parameters
    for name, parameter in inspect.signature(RECIPES[recipe].function).parameters.items():
        if name == "data":
            continue
        assert options[name].default == parameter.default, name
        assert typing.get_args(options[name].annotation)[0] is typing.get_args(parameter.annotation)[0], name


def numbers(record, path=""):
    """The keys of `--set` whose values may be any number."""
    for name, value in record.items():
        key = f"{path}{name}"
        if isinstance(value, dict):
            yield from numbers(value, f"{key}.")
        elif isinstance(value, float):
            yield key


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_are_finite(recipe, value):
    run = RECIPES[recipe]("somewhere", **({"model": "bert"} if recipe in ON_LABELS else {}))
    record = run.to_json()
    keys = [
        *numbers({name: part for name, part in record.items() if name != "stages"}),
        *numbers(record["stages"][0], "train."),
    ]
    assert len(keys) > 5
    for key in keys:
        with pytest.raises(RamifyError, match=rf"{key.rpartition('.')[2]}.*{value}"):
            run.changed({key: value})


def test_seeds_are_checked_in_one_place():
    for seed in (-1, 2**63):
        with pytest.raises(RamifyError, match=f"seed={seed} is out of range"):
            RECIPES["links"]("somewhere", seed=seed)
        with pytest.raises(RamifyError, match=f"seed={seed} is out of range"):
            FITS["candidate-pruner"]("links", "somewhere", seed=seed)
        with pytest.raises(RamifyError, match=f"seed={seed} is out of range"):
            FITS["reranker"]("links", unseen=[], seed=seed)


def test_concatenation_makes_room_for_the_ancestors():
    run = RECIPES["bert"]("data", rows="comments", concatenate=300)
    assert (run.model.max_tokens, run.input.concatenate, run.input.context) == (300, 300, "tree")
    plain = RECIPES["bert"]("data", rows="comments")
    assert (plain.input.concatenate, plain.input.context) == (0, "none")

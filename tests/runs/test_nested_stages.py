"""Runs with a frozen level: stages, vectors that are computed once, batches of units, starts from models of lower levels."""

import json
import os
import shutil
import signal
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ramify
from fixtures import built
from fixtures.nested import SMALL_RUN, books, levels_of, novels
from ramify.batching.document_batch import DocumentCollator, Role
from ramify.batching.levels import DocumentRows
from ramify.batching.views.documents import Documents, LevelInput
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.documents.cached_vectors import FrozenVectors
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.runs.nested_documents import stages
from ramify.training.metrics_log import read_metrics

SMALL = SMALL_RUN | {
    "view.whole_documents": "true",
    "train.budget": "20",
    "train.units": "4",
    "train.evaluate_every": "2",
    "train.checkpoint_every": "0",
}


@pytest.fixture
def store(tmp_path):
    return built(books(16), tmp_path / "data", split=(0.7, 0.2, 0.1))


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """A trained model of sentences alone."""
    folder = tmp_path_factory.mktemp("sentences")
    store = built(books(16), folder / "data", split=(0.7, 0.2, 0.1))
    settings = {key: value for key, value in SMALL.items() if not key.startswith(("model.", "view.")) and key != "train.units"}
    sizes = {"dims": "[8,12]", "max_children": "[6]", "encoder_cells": "[1]", "decoder_cells": "[1]", "num_heads": "2"}
    run = RECIPES["agent-sentence"](str(store.path), steps=3)
    execute(run.changed(settings | {f"model.{name}": size for name, size in sizes.items()}), folder / "run", cpu=True)
    return folder / "run"


def small(store, init="", *, steps=2, **settings):
    given = {**SMALL, **{key.replace("__", "."): value for key, value in settings.items()}}
    if init:
        given = {key: value for key, value in given.items() if not key.startswith(("model.", "tokenizer."))}
    run = RECIPES["agent"](str(store.path), init=str(init) if init else "", steps=steps, all_tokens=1)
    return run.changed(given)


def moved(before, after):
    """The names of the tensors that two checkpoints do not share."""
    return {name for name in after if name not in before or not torch.equal(before[name], after[name])}


def roles_of(prepared):
    return [scope.role for scope in prepared.scopes]


def test_each_stage_teaches_its_part(store, tmp_path):
    run, out = small(store), tmp_path / "run"
    prepared, progress = execute(run, out, cpu=True)
    assert roles_of(prepared) == [Role.LOWEST, Role.ABOVE, Role.DECODER, Role.ALL]
    assert progress.step == 8
    metrics = read_metrics(out)
    names = set(prepared.task.loss_names)
    of_tokens = {"reconstruction_sentence", "mlm_token", "coherence_sentence", "autoencoder_sentence", "length_sentence"}
    for record in metrics:
        stage = (record["step"] - 1) // 2
        nonzero = {name for name in names if record.get(name)}
        expected = (of_tokens, names - of_tokens, {"reconstruction_sentence", "length_sentence"}, names)[stage]
        assert nonzero <= expected
        assert nonzero
    assert all(np.isfinite(record["loss"]) for record in metrics)
    assert all(first["targets"] < second["targets"] for first, second in pairwise(metrics))
    model = ramify.load(out)
    assert model.task.config.frozen == "sentence"
    assert model.backbone.encoder(0).token_skip.is_fitted
    for name, tensor in model.task.state_dict().items():
        assert torch.isfinite(tensor.double()).all(), name


def test_each_stage_changes_its_parameters_alone(store, tmp_path):
    """Frozen parameters have the same bits at the end of a stage, with weight decay or without."""
    run = small(store, steps=2, train__weight_decay="0.5", train__checkpoint_every="2")
    out, weights = tmp_path / "run", []

    def keep(record):
        if record["step"] % 2 == 0 and record["step"]:
            weights.append({name: tensor.clone() for name, tensor in prepared[0].task.state_dict().items()})

    prepared = []
    execute(run, out, cpu=True, begin=prepared.append, report=keep)
    task = prepared[0].task
    above, decoder, everything = (moved(*pair) for pair in pairwise(weights))
    parameters = {name for name, _ in task.named_parameters()}
    assert all(task.level_of(name) >= 1 or "token_skip" in name for name in above)
    assert {"backbone.encoders.0.token_skip.table.weight", "backbone.encoders.0.token_skip.mean"} <= above
    assert decoder & parameters == {name for name in parameters if task.decodes(name) and task.level_of(name) == 0}
    assert any(name.startswith("backbone.encoders.0.compressor.") for name in everything)


def test_batches_of_units_are_accumulated(store, sentences, tmp_path):
    """An update of two batches of two units reads what two updates of one batch read."""
    tokens = {}
    for steps, accumulate in ((2, 1), (1, 2)):
        given = {"train.units": "2", "train.accumulate": str(accumulate), "train.evaluate_every": "0", "train.log_every": "1"}
        run = RECIPES["agent"](str(store.path), init=str(sentences), steps=steps, decoder_tokens=0, all_tokens=0)
        out = tmp_path / f"{accumulate}"
        execute(run.changed(given), out, cpu=True)
        tokens[accumulate] = [record["target_tokens"] for record in read_metrics(out)]
    assert tokens[2] == tokens[1][-1:] != tokens[1][:1]


def check_resumed(run, folder, steps, *chains):
    """A run that is stopped after some steps and resumed has the weights and the losses of one that takes all steps at once."""
    straight = folder / "straight"
    execute(run, straight, cpu=True)
    for stops in chains:
        stopped = folder / f"stopped-{stops}"
        for stop in stops:

            def interrupt(record, stop=stop):
                if record["step"] == stop:
                    os.kill(os.getpid(), signal.SIGINT)

            _, progress = execute(run, stopped, cpu=True, report=interrupt, resume=stop != stops[0])
            assert stop <= progress.step < steps
        execute(run, stopped, cpu=True, resume=True)
        check_equal(straight, stopped, steps)


def check_equal(straight, stopped, steps):
    before, again = (load_file(out / "model.safetensors") for out in (straight, stopped))
    assert before.keys() == again.keys()
    assert not moved(before, again)
    losses = [[record["loss"] for record in read_metrics(out)] for out in (straight, stopped)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == steps


def test_a_run_stopped_in_every_stage_is_equal_to_the_bit(store, tmp_path):
    """With the vectors that are kept, too."""
    run = small(store, steps=3, train__evaluate_every="0", model__dropout="0.2", task__queue="8")
    check_resumed(run, tmp_path, 12, (3, 6, 10))


def kept(store):
    return sorted(store.path.glob("vectors-*"))


def test_vectors_are_computed_once_and_not_for_another_model(store, tmp_path, sentences):
    def train(name, init=sentences, settings=MappingProxyType({})):
        # The first stage reads the vectors.
        run = small(store, init, steps=1, seed="1" if name == "other" else "0")
        execute(replace(run, stages=run.stages[:1]).changed(settings), tmp_path / name, cpu=True)

    train("first")
    # Of train and dev.
    folders = kept(store)
    assert len(folders) == 2
    times = [(folder / "vectors.npy").stat().st_mtime_ns for folder in folders]
    train("second")
    assert kept(store) == folders
    assert [(folder / "vectors.npy").stat().st_mtime_ns for folder in folders] == times
    train("other")
    assert kept(store) == folders, "the seed draws weights that change no vector of the start"
    without = {"model.token_skip": "false", "model.mark_scale": "unit", "train.lr_scale": "[]", "train.undecayed": "[]"}
    train("without", settings=without)
    assert kept(store) == folders, "options that act later have no part in these vectors"
    other = tmp_path / "init"
    shutil.copytree(sentences, other)
    tensors = load_file(other / "model.safetensors")
    tensors["backbone.encoders.0.states.segments"] += 1
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    train("third", other)
    assert len(kept(store)) == 4


def test_vectors_of_other_data_are_refused(store, tmp_path, sentences):
    execute(small(store, sentences, steps=1), tmp_path / "first", cpu=True)
    one, other = kept(store)
    shutil.rmtree(one)
    shutil.copytree(other, one)
    with pytest.raises(RamifyError, match=rf"{one.name} is damaged \(it holds vectors of other data or of another model\)"):
        execute(small(store, sentences, steps=1), tmp_path / "second", cpu=True)


def test_a_start_from_sentences(store, tmp_path, sentences):
    """Their weights are taken, and options and levels that they lack are fresh."""
    run = small(store, sentences)
    assert (run.model.dims[:2], run.model.max_children[0], run.model.token_skip) == ((8, 12), 6, True)
    prepared = run.prepare(tmp_path / "none")
    assert roles_of(prepared) == [Role.ABOVE, Role.DECODER, Role.ALL]
    saved = load_file(sentences / "model.safetensors")
    own = prepared.task.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in saved.items())
    assert prepared.task.names == ("token", "sentence", "paragraph", "document")
    _, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.step == 6
    later = load_file(tmp_path / "run" / "model.safetensors")
    assert moved(saved, later)


def test_the_best_weights_are_those_of_the_last_stage(store, tmp_path):
    """Dev losses of stages that teach different parts are not compared."""
    _, progress = execute(small(store, steps=2), tmp_path / "run", cpu=True)
    assert progress.best_step is not None
    assert progress.best_step > 6


def test_a_frozen_level_alone_has_a_queue(store, tmp_path):
    """While the levels above learn."""
    prepared, sizes = [], []

    def keep(record):
        task = prepared[0].task
        sizes.append([len(task.queue(level)) for level in (1, 2)])

    execute(small(store, steps=2, task__queue="8"), tmp_path / "run", cpu=True, begin=prepared.append, report=keep)
    assert prepared[0].task.queue(1).vectors.any(), "it was filled"
    assert sizes[:2] == [[0, 0]] * 2
    assert [size[1] for size in sizes] == [0] * 8
    assert 0 < sizes[2][0] <= sizes[3][0] == 8
    assert sizes[4:] == [[0, 0]] * 4


def test_batches_adapt_to_a_single_document(tmp_path):
    """Half of the units of a batch are of different documents, so one document fills batches of two."""
    store = built(books(16)[:1], tmp_path / "data", split=(1, 0, 0))
    prepared, _ = execute(small(store, view__whole_documents="false"), tmp_path / "run", cpu=True)
    (note,) = prepared.notes()
    unit = prepared.levels.names[-2]
    assert note.startswith("train.units=4 is more than 1 training document can fill, because half of a batch's units are of")
    assert f"batches of 2 {unit}s while" in note
    parts = json.loads((tmp_path / "run" / "run.json").read_text())["parts"]
    assert {part["role"]: part["units"] for part in parts} == {"lowest": 0, "above": 2, "decoder": 0, "all": 2}
    other = small(store, task__replacement="other_document")
    with pytest.raises(RamifyError, match=r"other_document takes children from other documents, but .* has one training doc"):
        other.prepare(tmp_path / "other")
    assert not (tmp_path / "other").exists(), "no tokenizer was trained"


def test_rows_are_built_once(store, tmp_path, monkeypatch):
    """For train and dev: those of the lowest level, and those of all levels."""
    built_rows, of = [], DocumentRows.of

    def counted(*arguments, **options):
        built_rows.append(arguments)
        return of(*arguments, **options)

    monkeypatch.setattr(DocumentRows, "of", counted)
    prepared = small(store).prepare(tmp_path)
    prepared.facts()
    for number in range(4):
        prepared.stage(number)
    assert len(built_rows) == 4


def test_a_level_without_examples_is_named(store, tmp_path, sentences):
    for init in ("", sentences):
        prepared = small(store, init, view__whole_documents="false").prepare(tmp_path / "none")
        (warning,) = prepared.warnings([])
        assert warning.startswith(
            "No example of training holds a document, so vectors of documents are those of fresh weights."
        )
        assert "view.whole_documents=true" in warning
        assert not small(store, init).prepare(tmp_path / "none").warnings([])


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A trained model of all levels with all options."""
    folder = tmp_path_factory.mktemp("everything")
    store = built(books(16), folder / "data", split=(0.7, 0.2, 0.1))
    execute(small(store, steps=1), folder / "run", cpu=True)
    return folder / "run"


def test_added_tokens_that_were_learned_stay_frozen(store, tmp_path, everything):
    """Below a frozen level above sentences."""
    run = small(store, everything, steps=1, task__frozen="paragraph", train__lr_scale="[]", train__undecayed="[]")
    prepared, _ = execute(run.changed({"view.whole_documents": "false"}), tmp_path / "run", cpu=True)
    saved, later = (load_file(folder / "model.safetensors") for folder in (everything, tmp_path / "run"))
    skips = [name for name in later if "token_skip" in name]
    assert roles_of(prepared) == [Role.ABOVE, Role.DECODER, Role.ALL]
    assert len(skips) == 3
    frozen = stages.frozen_parameters(prepared.task, prepared.scopes[0])
    assert any("token_skip" in pattern for pattern in frozen)
    for name in skips:
        if "table" not in name:
            assert torch.equal(later[name], saved[name])
    # The document level came with the start.
    assert not prepared.warnings([])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model.mark_scale": "unit"},
            r"model\.mark_scale=unit changes the levels sentence, .* Set model\.mark_scale=root_dim",
        ),
        ({"model.position_scale": "0.5"}, r"model\.position_scale=0\.5 changes .* trained with model\.position_scale=1\.0"),
        ({"task.head": "gelu"}, r"needs task\.head = 'deep' \(not 'gelu'\)\. Set these values"),
        ({"task.scores": "plain"}, r"needs task\.scores = 'cosine' \(not 'plain'\)"),
        ({"task.classes": "all_marks"}, r"needs task\.classes = 'children' \(not 'all_marks'\)"),
        ({"task.top": "collection"}, r"needs task\.top = 'none' \(not 'collection'\)"),
        ({"task.checker_layers": "3"}, r"needs task\.checker_layers = 2 \(not 3\)"),
    ],
)
def test_settings_of_trained_levels_stay(store, tmp_path, everything, settings, message):
    with pytest.raises(RamifyError, match=message):
        small(store, everything).changed(settings).prepare(tmp_path / "run")


@pytest.mark.parametrize("setting", ["vocab_size=60", "kind=bpe", "lowercase=true"])
def test_a_start_has_its_own_tokenizer(store, sentences, setting):
    name, value = setting.split("=")
    with pytest.raises(RamifyError, match=rf"--set tokenizer\.{setting} is for .* Leave tokenizer\.{name} out"):
        small(store, sentences).changed({f"tokenizer.{name}": value})
    with pytest.raises(RamifyError, match=rf"--set tokenizer\.{setting} is for"):
        small(store).changed({f"tokenizer.{name}": value, "init": str(sentences)})


@pytest.mark.parametrize(("budget", "is_refused"), [(10, True), (2000, False)])
def test_batches_of_tokens_hold_two_documents_for_replaced_children(budget, is_refused):
    """Two documents that fit into a batch together are not enough."""
    run = RECIPES["agent"]("", joint=True).changed({"task.replacement": "other_document", "task.queue": "0"})
    view = Documents(levels_of(books(12)), (6, 4, 5), LevelInput(), budget=budget, whole_documents=False)
    config = replace(run.stages[0], budget=budget)
    with pytest.raises(RamifyError, match=r"train\.budget=10 makes such batches") if is_refused else nullcontext():
        run.check_replacement(view, config, 0)


def test_roles():
    every = (Role.LOWEST, Role.ABOVE, Role.DECODER, Role.ALL)
    assert stages.roles(None, "", 3) == (Role.ALL,) * 3
    assert stages.roles("sentence", "", 4) == every
    assert stages.roles("sentence", "", 2) == every[:2]
    assert stages.roles("sentence", "somewhere", 1) == (Role.ABOVE,)
    with pytest.raises(RamifyError, match=r"task\.frozen=sentence has 3 stages \(above, decoder, all\), but the run has 4"):
        stages.roles("sentence", "somewhere", 4)


# --- one level after the other ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chapters(tmp_path_factory):
    """A data set of documents with chapters."""
    return built(novels(16), tmp_path_factory.mktemp("chapters") / "data", split=(0.7, 0.2, 0.1))


OF_CHAPTERS = [f"{kind}_chapter" for kind in ("reconstruction", "coherence", "autoencoder", "length")]
OF_CHAPTERS += ["mlm_paragraph", "foreign_paragraph"]


@pytest.mark.parametrize("whole_documents", ["false", "true"])
def test_levels_learn_in_turn(chapters, tmp_path, whole_documents):
    """Each in a stage of its own, on vectors of the level below. Documents learn beside chapters, if they are examples."""
    run = small(chapters, train__weight_decay="0.5", train__checkpoint_every="2", view__units_factor="1")
    run = run.changed({"view.whole_documents": whole_documents})
    out, weights, prepared = tmp_path / "run", [], []

    def keep(record):
        if record["step"] % 2 == 0 and record["step"]:
            weights.append({name: tensor.clone() for name, tensor in prepared[0].task.state_dict().items()})

    _, progress = execute(run, out, cpu=True, begin=prepared.append, report=keep)
    scopes, task = prepared[0].scopes, prepared[0].task
    assert [(scope.role, scope.first, scope.end) for scope in scopes] == [
        (Role.LOWEST, 0, 1),
        (Role.ABOVE, 1, 2),
        (Role.ABOVE, 2, 4),
        (Role.DECODER, 0, 1),
        (Role.ALL, 0, 4),
    ]
    assert len(run.stages) == 4
    assert progress.step == 10
    paragraphs, chapters_, decoder, _ = (moved(*pair) for pair in pairwise(weights))
    skip = {name for name in paragraphs if task.adds_tokens(name)}
    assert len(skip) == 3
    assert {task.level_of(name) for name in paragraphs - skip} == {1}
    documents = {3} if whole_documents == "true" else set()
    assert {task.level_of(name) for name in chapters_} == {2} | documents
    assert {task.level_of(name) for name in decoder} == {0}
    metrics, names = read_metrics(out), task.loss_names
    computed = [{name for record in metrics[start : start + 2] for name in names if record.get(name)} for start in (2, 4)]
    measured = [{name for name in names if f"dev_{name}" in metrics[step]} for step in (3, 5)]
    of_paragraphs = {name.replace("paragraph", "sentence").replace("chapter", "paragraph") for name in OF_CHAPTERS}
    assert (computed[0], measured[0]) == (of_paragraphs, of_paragraphs)
    of_documents = {name for name in names if name.endswith("document")} | {"mlm_chapter", "foreign_chapter"}
    assert {*OF_CHAPTERS} <= measured[1] <= {*OF_CHAPTERS} | (of_documents if documents else set())
    assert computed[1] <= measured[1]


def test_paragraphs_in_turn_equal_those_that_learn_without_the_losses_of_chapters(chapters, tmp_path):
    """To the bit."""
    weights = []
    for above in ("in_turn", "together"):
        without = json.dumps(OF_CHAPTERS if above == "together" else [])
        run = small(chapters, steps=3, view__whole_documents="false", task__above=above, task__without=without)
        prepared = []

        def keep(record, prepared=prepared):
            if record["step"] == 6:
                weights.append({name: tensor.clone() for name, tensor in prepared[0].task.state_dict().items()})

        execute(replace(run, stages=run.stages[:2]), tmp_path / above, cpu=True, begin=prepared.append, report=keep)
    task = prepared[0].task
    of_paragraphs = [name for name in weights[0] if task.level_of(name) < 2]
    assert {task.level_of(name) for name in of_paragraphs} == {0, 1}
    for name in of_paragraphs:
        assert torch.equal(weights[0][name], weights[1][name]), name


@pytest.mark.parametrize(("factor", "chapters_"), [("1", 2), ("2", 4), ("100", 20)])
def test_batches_of_higher_levels_hold_more_units(chapters, tmp_path, factor, chapters_):
    """As many as the data can fill. Stages of sentences have none, as in the recipe."""
    run = small(chapters, train__units="2", view__units_factor=factor)
    run = run.changed({"stages.0.units": "0", "stages.2.units": "0"})
    prepared = run.prepare(tmp_path)
    numbers = [prepared.stage(number).config.units for number in range(len(prepared.scopes))]
    assert numbers == [0, 2, chapters_, 0, 2]
    assert [part["units"] for part in prepared.facts()["parts"]] == numbers
    assert (f"batches of {chapters_} chapters while chapters learn" in prepared.reads()) == (chapters_ > 2)


def test_runs_in_turn_resume_to_the_bit(chapters, tmp_path):
    """On both sides of the border of two levels."""
    run = small(chapters, steps=3, train__evaluate_every="0", model__dropout="0.2", task__queue="8")
    run = run.changed({"view.whole_documents": "false"})
    # A run may take another step before it stops.
    check_resumed(run, tmp_path, 15, (5, 8), (6, 10))


@pytest.mark.parametrize("padding", ["packed", "full"])
def test_vectors_from_those_of_the_level_below_are_those_from_texts(chapters, tmp_path, padding):
    """The former do not encode sentences again, and share the name of the latter."""
    prepared = small(chapters, steps=1, view__whole_documents="false", model__padding=padding).prepare(tmp_path)
    agent, encoded = prepared.task.backbone, []
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    collator, in_memory = prepared.stage(2).collator, Store.from_trees(novels(1))
    assert isinstance(collator, DocumentCollator)

    def vectors(level, below=None):
        return FrozenVectors(agent, collator, in_memory, level, below=below)

    sentences, of_texts = vectors(0), vectors(1)
    prepared._fit_tokens(1, sentences.open())
    expected = of_texts.open()
    handle = agent.encoder(0).states.register_forward_hook(lambda *passed: encoded.append(passed))
    paragraphs = vectors(1, sentences)
    np.testing.assert_allclose(paragraphs.open(), expected, rtol=1e-5, atol=1e-6)
    assert not encoded
    assert paragraphs._key() == of_texts._key()
    of_chapters = vectors(2, paragraphs).open()
    assert not encoded
    handle.remove()
    np.testing.assert_allclose(of_chapters, vectors(2).open(), rtol=1e-5, atol=1e-6)


def test_a_start_from_paragraphs_reads_their_vectors(chapters, tmp_path):
    """They are computed from texts, with the weights of the start, which stay as they are while chapters learn."""
    run = small(chapters, steps=1, view__whole_documents="false")
    execute(run, tmp_path / "first", cpu=True)
    later = small(chapters, tmp_path / "first", steps=1, task__frozen="paragraph", view__whole_documents="false")
    stage = later.prepare(tmp_path / "none").stage(0)
    assert isinstance(stage.collator, DocumentCollator)
    vectors = stage.collator.vectors
    assert isinstance(vectors, FrozenVectors)
    assert (vectors.level, vectors.below) == (1, None)
    trained = ramify.load(str(tmp_path / "first")).task.backbone
    expected = FrozenVectors(trained, stage.collator, Store.from_trees(novels(1)), 1)
    np.testing.assert_allclose(vectors.open(), expected.open(), rtol=1e-5, atol=1e-6)
    prepared, progress = execute(replace(later, stages=later.stages[:1]), tmp_path / "second", cpu=True)
    assert prepared.scopes == (stages.Scope(Role.ABOVE, 2, 4),)
    assert progress.step == 1
    saved, learned = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    assert {prepared.task.level_of(name) for name in moved(saved, learned)} == {2}


def test_scopes():
    def above(frozen, *levels, in_turn=True):
        return [(scope.first, scope.end) for scope in stages.scopes(Role.ABOVE, frozen, levels, in_turn=in_turn)]

    book = ("sentence", "paragraph", "chapter", "document")
    assert above(1, *book) == [(1, 2), (2, 4)]
    assert above(1, *book, in_turn=False) == [(1, 4)]
    assert above(2, *book) == [(2, 4)]
    assert above(3, *book) == [(3, 4)], "documents alone"
    assert above(1, "sentence", "paragraph", "document") == [(1, 3)]
    assert above(1, "sentence", "paragraph", "chapter") == [(1, 2), (2, 3)]
    assert above(1, "sentence", "document") == [(1, 2)]
    assert above(1, *book[:3], "part", "document") == [(1, 2), (2, 3), (3, 5)]


# --- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frozen", "init_levels", "message"),
    [
        ("line", None, r"task\.frozen=line is no level of the model\. Its levels are sentence, paragraph, document"),
        ("document", None, r"task\.frozen=document is the highest level, so no level would learn"),
        ("paragraph", ("sentence",), r"task\.frozen=paragraph is no level of the model in --init, which has sentence\."),
    ],
)
def test_levels_that_cannot_be_frozen(frozen, init_levels, message):
    with pytest.raises(RamifyError, match=message):
        stages.frozen_levels(frozen, ("sentence", "paragraph", "document"), init_levels)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task.frozen": "none"}, r"task\.above=in_turn .* task\.frozen=none freezes none\. Set task\.frozen, or task\.above"),
        ({"task.schedule": "staged"}, r"task\.schedule=staged lets .* Set task\.schedule=joint, or task\.frozen=none"),
        ({"task.schedule": "staged", "task.above": "together"}, r"task\.schedule=staged lets .* but task\.frozen=sentence"),
        ({"task.above": "together", "view.units_factor": "2"}, r"view\.units_factor=2 enlarges .* Set task\.above=in_turn"),
        ({"train.units": "0", "view.units_factor": "2"}, r"view\.units_factor=2 enlarges .* and train\.units, or leave it out"),
    ],
)
def test_levels_in_turn_need_a_frozen_one_no_schedule_and_units(settings, message):
    with pytest.raises(RamifyError, match=message):
        RECIPES["agent"]("somewhere").changed(settings)


def test_a_run_without_the_stage_of_the_decoder_warns(store, tmp_path, sentences):
    def warned(number):
        run = small(store, sentences, steps=1)
        prepared = replace(run, stages=run.stages[:number]).prepare(tmp_path)
        return [text for text in prepared.warnings([]) if "decoder of sentences" in text]

    (text,) = warned(1)
    assert "before the stage in which the decoder of sentences learns their vectors" in text
    assert not warned(2)


def test_no_level_is_added_above_a_collection(store, tmp_path):
    settings = {"task__frozen": "null", "task__above": "together", "task__top": "collection", "model__token_skip": "false"}
    run = small(store, steps=1, **settings, train__lr_scale="[]", train__undecayed="[]")
    sizes = {"dims": "[8,12,16]", "max_children": "[6,4]", "encoder_cells": "[1,1]", "decoder_cells": "[1,1]"}
    sizes |= {"levels": '["sentence","paragraph"]'}
    lower = run.changed({f"model.{name}": size for name, size in sizes.items()})
    execute(replace(lower, stages=lower.stages[:1]), tmp_path / "lower", cpu=True)
    message = r"reads as a collection \(task\.top=collection\), so it cannot start a model with more levels"
    with pytest.raises(RamifyError, match=message):
        run.changed({"init": str(tmp_path / "lower")}).prepare(tmp_path / "none")


def test_a_start_from_other_levels_is_refused(store, sentences):
    run = RECIPES["agent"](str(store.path))
    with pytest.raises(RamifyError, match=r"has the levels sentence, but the model has line, document\. Start from"):
        type(run)(recipe="agent", data="", model=run.model.with_levels(("line", "document"))).sized(str(sentences))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"task__queue": "8", "task__frozen": "none", "task__above": "together"},
            r"task\.queue=8 adds candidates from earlier weights to batches of train\.units=4.*Set task\.queue=0",
        ),
        (
            {"task__replacement": "other_document", "task__queue": "8"},
            r"finds no other document .* and view\.whole_documents=true makes such batches",
        ),
        (
            {"task__replacement": "other_document", "view__whole_documents": "false", "train__units": "1"},
            r"finds no other document .* and train\.units=1 makes such batches.* train\.units to 3 or more",
        ),
        ({"task__autoencoder_distance": "relative"}, r"task\.autoencoder_distance=relative is a ratio .* train\.units=4"),
        (
            {"task__frozen": "none", "task__above": "together"},
            r"model\.token_skip=true with task\.frozen=none .* Set task\.frozen=sentence",
        ),
        ({"task__frozen": "paragraph"}, r"model\.token_skip=true with task\.frozen=paragraph .* Set task\.frozen=sentence"),
    ],
)
def test_settings_that_do_not_fit(store, tmp_path, settings, message):
    with pytest.raises(RamifyError, match=message):
        execute(small(store, **settings), tmp_path / "run", cpu=True)
    assert not (tmp_path / "run" / "run.json").exists()

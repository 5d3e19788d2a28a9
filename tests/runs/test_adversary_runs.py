"""Runs of generators: from a trained autoencoder to saved generators, resumed runs, and refused models."""

import json
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures import built
from fixtures.nested import SMALL_RUN, novels
from ramify.errors import RamifyError
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute, kind_for, read_run
from ramify.runs.base import SAMPLES
from ramify.runs.nested_documents import generated_report
from ramify.runs.nested_documents.adversary import NestedAdversaryRun
from ramify.training.metrics_log import read_metrics
from ramify.training.trainer import Trainer

SMALL = {"train.steps": "6", "train.evaluate_every": "3", "train.checkpoint_every": "2", "train.log_every": "1"}
OWN = SMALL | {"task.maps": "4", "task.vectors": "8", "dev.vectors": "16", "dev.texts": "3"}
PLAYED = OWN | {"train.budget": "8"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(novels(8), tmp_path_factory.mktemp("data"), split=(0.5, 0.3, 0.2))


@pytest.fixture(scope="module")
def agent(store, tmp_path_factory):
    """A model of all levels, with cosines and token vectors: their own and restored children differ."""
    settings = SMALL_RUN | SMALL | {"train.budget": "200", "task.queue": "0", "task.scores": "cosine", "task.balanced": "false"}
    out = tmp_path_factory.mktemp("agent") / "run"
    execute(RECIPES["agent"](str(store.path), joint=True).changed(settings), out, cpu=True)
    return out


def small(store, agent, when="after", **settings):
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    usual = OWN | {"train.budget": "200", "train.units": "0"} if when == "with" else PLAYED
    return RECIPES["agent-gan"](str(store.path), init=str(agent), when=when).changed({**usual, **changed})


@pytest.mark.parametrize("when", ["after", "with", "checker"])
def test_execution(store, agent, tmp_path, when):
    run, out = small(store, agent, when), tmp_path / "run"
    prepared, progress = execute(run, out, cpu=True)
    assert progress.step == 6
    assert read_run(out)[0] == run
    assert NestedAdversaryRun.from_json(json.loads(json.dumps(run.to_json()))) == run
    metrics = read_metrics(out)
    last = metrics[-1]
    for level in ("sentence", "paragraph", "chapter", "document"):
        for name in ("energy_distance", "effective_rank", "held_out_effective_rank", "nearest_training", "near_copies"):
            assert np.isfinite(last[f"{name}_{level}"]), (name, level)
    # An untrained decoder may end every row at its first place.
    assert any(0 < value <= 1 for name, value in last.items() if name.startswith("distinct_1_"))
    files = sorted(path.name for path in (out / SAMPLES).iterdir())
    assert files == ["step-00000003.jsonl", "step-00000006.jsonl"]
    samples = [json.loads(line) for line in (out / SAMPLES / files[-1]).read_text().splitlines()]
    assert [sample["level"] for sample in samples[::3]] == ["sentence", "paragraph", "chapter", "document"]
    before, after = load_file(agent / "model.safetensors"), load_file(out / "model.safetensors")
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[_renamed(name)])}
    learned = {name for name in before if not name.startswith(("queues.", "centres."))}
    assert (changed & learned != set()) == (when == "with")
    model = ramify.load(out)
    assert kind_for(model, str(out)) is NestedAdversaryRun
    assert len(model.adversary.generators) == 4
    assert len(model.adversary.discriminators) == (0 if when == "checker" else 4)
    assert model.reconstruct("aa ae.", level="sentence").nodes
    assert prepared.reads()


def _renamed(name):
    return name if name.startswith("backbone.") else f"autoencoder.{name}"


@pytest.mark.parametrize("settings", [{}, {"when": "with", "train__accumulate": "2"}, {"when": "checker"}], ids=str)
def test_stopped_and_resumed_runs_are_equal_to_the_bit(store, agent, tmp_path, settings):
    run = small(store, agent, **settings)
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "stopped"
    _, progress = execute(run, out, cpu=True, report=interrupt)
    assert 4 <= progress.step < 6
    execute(run, out, cpu=True, resume=True)
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "straight", out))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    one, other = (
        [{key: value for key, value in record.items() if key != "seconds"} for record in read_metrics(folder)]
        for folder in (tmp_path / "straight", out)
    )
    assert json.dumps(one) == json.dumps(other)
    for file in (out / SAMPLES).iterdir():
        assert file.read_text() == (tmp_path / "straight" / SAMPLES / file.name).read_text()


def test_generators_start_at_the_moments_of_real_vectors_or_anywhere(store, agent, tmp_path):
    tiny = {"train__steps": "1", "train__lr": "1e-12"}
    for start in ("moments", "random"):
        execute(small(store, agent, task__start=start, **tiny), tmp_path / start, cpu=True)
    near, far = (read_metrics(tmp_path / start)[-1]["energy_distance"] for start in ("moments", "random"))
    assert near < far / 2


def test_levels_and_real_documents_are_settings(store, agent, tmp_path):
    run = small(store, agent, task__levels='["paragraph","document"]', task__alone="[]", task__loss="minimax")
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    facts = prepared.facts()
    assert facts["real"] == {level: facts["levels"][level]["rows"] for level in ("paragraph", "document")}
    last = read_metrics(tmp_path / "run")[-1]
    assert "energy_distance_paragraph" in last
    assert "energy_distance_sentence" not in last
    chapters = small(store, agent).prepare(tmp_path / "other").facts()
    assert chapters["real"]["document"] == chapters["levels"]["chapter"]["rows"] > chapters["levels"]["document"]["rows"]


@pytest.fixture
def hasty_classifier(monkeypatch):
    """Its accuracy has tests of its own, and it takes longer than all else of an evaluation."""
    monkeypatch.setattr("ramify.metrics.two_samples.CLASSIFIER_UPDATES", 10)


def test_evaluation_and_report(store, agent, tmp_path, hasty_classifier):
    out = tmp_path / "run"
    execute(small(store, agent, task__levels='["sentence","paragraph"]'), out, cpu=True)
    model = ramify.load(out)
    found = NestedAdversaryRun.evaluate(model, str(out), store, "dev", {"rows": 12})
    levels = json.loads(json.dumps(found.to_json()))["levels"]
    assert list(levels) == ["sentence", "paragraph"]
    assert list(levels["sentence"]) == ["generator", "gaussian", "noise", "resampled"]
    assert levels["sentence"]["resampled"]["near_copies"] == 1
    assert all(0 <= by_source["classifier_accuracy"] <= 1 for level in levels.values() for by_source in level.values())
    assert "generator" in "\n".join(found.lines())
    report = write_report(out, split="dev", comments=12).read_text("utf-8")
    assert "Watch for collapse: sentence" in report
    assert "Against floors: paragraph" in report


@pytest.mark.parametrize(
    ("when", "levels"),
    [("after", ("paragraph",)), ("with", ("paragraph",)), ("with", ("sentence", "paragraph")), ("checker", ("paragraph",))],
)
def test_every_loss_has_a_curve(store, agent, tmp_path, when, levels):
    """A phase with a single loss logs it as its total."""
    out = tmp_path / "run"
    execute(small(store, agent, when, task__levels=json.dumps(levels)), out, cpu=True)
    metrics = read_metrics(out)
    (section,) = generated_report.curves(metrics, levels)
    (charts,) = section.blocks
    players = ("generator",) if when == "checker" else ("discriminator", "generator")
    assert [chart.y_label for chart in charts.charts] == [f"{level}: {player}, nats" for level in levels for player in players]
    for chart in charts.charts:
        train, dev, _ = chart.lines
        assert len(train.y) == 6
        assert len(dev.y) == (0 if when == "with" else 2)
    if len(levels) == 1:
        total = {"after": "loss", "with": "loss_discriminator", "checker": "loss"}[when]
        assert charts.charts[0].lines[0].y.tolist() == [record[total] for record in metrics]
    words = " ".join((*section.lead, *(text for _, text in charts.legend)))
    assert ("checker" in words) == (when == "checker") != ("discriminator" in words)


def test_models_without_the_parts_are_refused(store, agent, tmp_path):
    with pytest.raises(RamifyError, match=r"--init is missing.*ramify train agent"):
        RECIPES["agent-gan"](str(store.path)).prepare(tmp_path / "none")
    ramify.save(ramify.load(agent).encoder_only(), tmp_path / "encoder")
    with pytest.raises(RamifyError, match=r"no decoder.*ramify train agent"):
        small(store, tmp_path / "encoder").prepare(tmp_path / "run")
    execute(small(store, agent, train__steps="1"), tmp_path / "gan", cpu=True)
    with pytest.raises(RamifyError, match=r"nested-adversary.*ramify train agent"):
        small(store, tmp_path / "gan")
    # And no autoencoder starts from generators.
    with pytest.raises(RamifyError, match=r"nested-adversary.*ramify train agent"):
        RECIPES["agent"](str(store.path), joint=True, init=str(tmp_path / "gan")).changed(SMALL).prepare(tmp_path / "again")


def test_settings_of_the_trained_model_are_refused(store, agent):
    for key, value in (("model.dropout", "0.2"), ("task.autoencoder.queue", "3"), ("input.overflow", "pack")):
        with pytest.raises(RamifyError, match="cannot change the trained model"):
            small(store, agent).changed({key: value})
    with pytest.raises(RamifyError, match="--when"):
        small(store, agent).changed({"task.when": "with"})


def test_documents_that_no_batch_holds_are_refused(store, agent, tmp_path):
    own = {"task__alone": "[]", "task__levels": '["document"]'}
    for settings in (own, {"task__alone": "[]"}):
        with pytest.raises(RamifyError, match=r"^view\.whole_documents=false reads no document"):
            small(store, agent, "with", **settings).prepare(tmp_path / "refused")
    execute(small(store, agent, "with", **own, view__whole_documents="true", train__steps="1"), tmp_path / "run", cpu=True)
    small(store, agent, "with", task__alone="[]", task__levels='["chapter"]').prepare(tmp_path / "chapters")
    small(store, agent, "after", **own).prepare(tmp_path / "frozen")


def test_unknown_levels_are_refused(store, agent, tmp_path):
    with pytest.raises(RamifyError, match="verse, which the model does not have"):
        small(store, agent, task__levels='["verse"]').prepare(tmp_path)


def test_a_discriminator_that_is_not_finite_stops_the_run(store, agent, tmp_path):
    run = small(store, agent, train__evaluate_every="0")
    prepared = run.prepare(tmp_path / "run")
    stage = prepared.stage(0)
    with torch.no_grad():
        prepared.task.discriminators[0].filters[0].conv.weight.fill_(float("nan"))
    with pytest.raises(RamifyError, match=r"step 1, phase discriminator: the gradient is not finite.*lower train.lr"):
        Trainer(prepared.task, [stage], tmp_path / "run", seed=0, cpu=True).run()


def test_dev_losses_have_fixed_draws(store, agent, tmp_path):
    stage = small(store, agent).prepare(tmp_path / "run").stage(0)
    stage.begin()
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        found.append(stage.dev())
        assert torch.equal(torch.get_rng_state(), state)
    assert found[0]["value_discriminator_sentence"] > 0
    assert found[0] == found[1]


def test_adadelta_with_a_bound_is_an_option(store, agent, tmp_path):
    settings = {"train.optimizer": "adadelta", "train.rho": "0.95", "train.lr": "1", "task.max_norm": "0.01"}
    execute(small(store, agent).changed(settings), tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    norms = [float(discriminator.out.weight.norm()) for discriminator in model.adversary.discriminators]
    assert all(0 < norm <= 0.01 * 1.0001 for norm in norms)


def test_sentences_with_names_go_on_learning(store, tmp_path):
    """Examples are stretches of sentences, as where the memory was trained."""
    sizes = {"model.dims": "[8,12]", "model.num_heads": "2", "tokenizer.vocab_size": "80", "tokenizer.kind": "wordpiece"}
    names = {"model.names": '{"questions":3,"filters":8}', "train.budget": "200", "dev.tokens": "60"}
    first = RECIPES["agent-sentence"](str(store.path), names=True).changed(sizes | SMALL | names)
    execute(first, tmp_path / "sentences", cpu=True)
    run = small(store, tmp_path / "sentences", "with", train__steps="1")
    assert run.view.neighbours == first.view.neighbours > 0
    execute(run, tmp_path / "run", cpu=True)


def test_names_are_generated_for_texts(store, tmp_path, hasty_classifier):
    """From training of a model with a memory of names to texts that read generated names."""
    settings = SMALL_RUN | SMALL | {"train.budget": "200", "task.queue": "0", "model.names": '{"questions":3,"filters":8}'}
    execute(RECIPES["agent"](str(store.path), joint=True).changed(settings), tmp_path / "agent", cpu=True)
    execute(small(store, tmp_path / "agent"), tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    fresh = small(store, tmp_path / "agent").prepare(tmp_path / "other").task
    before, after = (dict(task.names_generator.named_parameters()) for task in (fresh, model.adversary))
    assert not torch.equal(before["of_document.weight"], after["of_document.weight"])
    found = NestedAdversaryRun.evaluate(model, "run", store, "dev", {"rows": 12})
    assert list(found.levels) == ["sentence", "paragraph", "chapter", "document"]

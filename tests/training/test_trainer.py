"""The training loop: the sums of a step, the state after a resumed kill, and every setting of a stage."""

import json
import math
import os
import signal
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from short_runs import SHORT, equal, records, run, stage_of, trainer_of, weights

from fixtures import (
    WORDS,
    W,
    bert_task,
    chain,
    discussion,
    discussions,
    distance,
    forest,
    masked,
    reddit,
    tree_task,
    uniform,
    view_of,
    whole,
    with_text,
    words_task,
)
from ramify.batching.forest import node_seeds
from ramify.batching.samplers import TokenBudget
from ramify.batching.text_input import TextInput
from ramify.errors import RamifyError
from ramify.tasks.base import MAIN
from ramify.training.config import TrainConfig
from ramify.training.metrics_log import read_metrics
from ramify.training.schedules import schedule
from ramify.training.seeds import step_seed
from ramify.training.trainer import Stage, Trainer
from ramify.tree import multiplicity


@pytest.fixture(scope="module")
def data():
    return forest(discussions(6, 10))


# --- resuming -----------------------------------------------------------------------------------------------------------------


REGIMES = {"tree": {}, "middle": {"regime": "middle", "max_tree_size": 4}, "threads": {"regime": "threads"}}


@pytest.mark.parametrize(
    ("regime", "kills"),
    [("tree", (1,)), ("tree", (4,)), ("tree", (7,)), ("tree", (2, 3, 6)), ("middle", (5,)), ("threads", (3, 5))],
    ids=str,
)
def test_killed_run_resumes_to_the_same_bits(tmp_path, data, regime, kills):
    config = replace(SHORT, accumulate=2)
    straight, progress = run(tmp_path / "straight", data, config, regime=REGIMES[regime])
    for kill in kills:
        run(tmp_path / "killed", data, config, resume=True, until=kill, regime=REGIMES[regime])
    # A kill may come during the writing of a checkpoint or a line of metrics.
    half = tmp_path / "killed" / "checkpoints" / ".partial-step-00000099"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    with open(tmp_path / "killed" / "metrics.jsonl", "a") as file:
        file.write('{"step": 99, "lo')
    resumed, again = run(tmp_path / "killed", data, config, resume=True, regime=REGIMES[regime])
    assert equal(weights(resumed), weights(straight))
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
    assert vars(again) | {"seconds": 0} == vars(progress) | {"seconds": 0}
    best = [(tmp_path / side / "best.safetensors").read_bytes() for side in ("straight", "killed")]
    assert best[0] == best[1]


def test_training_spans_several_epochs(tmp_path, data):
    """Otherwise the test above would not cover the sampler's position in a later epoch."""
    _, progress = run(tmp_path, data, replace(SHORT, accumulate=2))
    assert progress.epoch >= 1


def test_two_phases_resume_to_the_same_bits(tmp_path, data):
    def task():
        return tree_task(dtype=torch.float32, dropout=0.1, task={"two_phase": "always", "chunk_tokens": 60})

    straight, _ = run(tmp_path / "straight", data, task=task())
    run(tmp_path / "killed", data, task=task(), until=5)
    resumed, _ = run(tmp_path / "killed", data, task=task(), resume=True)
    assert equal(weights(resumed), weights(straight))
    assert records(tmp_path / "killed") == records(tmp_path / "straight")


@pytest.mark.parametrize("phases", ["never", "always"])
def test_additions_resume_to_the_same_bits(tmp_path, data, phases):
    """With output attention, bags of words and content masking. The weights of words are those of the checkpoint, too."""

    def task():
        settings = {"two_phase": phases, "chunk_tokens": 60, "masking": "content"}
        return words_task(dtype=torch.float32, dropout=0.1, attention_dropout=0.1, task=settings)

    config, regime = replace(SHORT, accumulate=2), {"regime": "middle", "max_tree_size": 4}
    straight, _ = run(tmp_path / "straight", data, config, task=task(), regime=regime)
    for kill in (2, 5):
        run(tmp_path / "killed", data, config, task=task(), resume=True, until=kill, regime=regime)
    last = task()
    last.word_weight.zero_()
    resumed, _ = run(tmp_path / "killed", data, config, task=last, resume=True, regime=regime)
    assert equal(weights(resumed), weights(straight))
    assert torch.equal(last.word_weight, straight.task.word_weight)
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
    names = {"masked_lm", "own_words", "reply_words"}
    for record in records(tmp_path / "straight"):
        assert record["loss"] == pytest.approx(sum(record[name] for name in names))
    before = weights(trainer_of(tmp_path / "other", data, task=task()))
    moved = {name for name, value in weights(straight).items() if not torch.equal(value, before[name])}
    assert moved == before.keys() - {"backbone.null"}


def test_only_the_newest_checkpoints_are_kept(tmp_path, data):
    run(tmp_path, data)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000006", "step-00000008"]


def test_resuming_a_finished_run_changes_nothing(tmp_path, data):
    straight, _ = run(tmp_path, data)
    before = records(tmp_path)
    again, progress = run(tmp_path, data, resume=True)
    assert progress.step == 8
    assert equal(weights(again), weights(straight))
    assert records(tmp_path) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_the_step_and_writes_a_checkpoint(tmp_path, data, number):
    config = replace(SHORT, checkpoint_every=100)
    straight, _ = run(tmp_path / "straight", data, config)

    def interrupt(record):
        if record["step"] == 3:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    stopped = trainer_of(tmp_path / "stopped", data, config, report=interrupt)
    progress = stopped.run()
    assert signal.getsignal(number) is before
    assert stopped.stopped
    assert progress.step == 4
    assert [path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir()] == ["step-00000004"]
    resumed, _ = run(tmp_path / "stopped", data, config, resume=True)
    assert not resumed.stopped
    assert equal(weights(resumed), weights(straight))


# --- the composition of a step ------------------------------------------------------------------------------------------------


@pytest.fixture
def same_masks(monkeypatch):
    """A comment then has the same masks in every step and batch."""

    def corrupt(self, batch, generator):
        seeds = node_seeds(self.data.store, self.data.node[batch.source])
        return self.mask(batch, torch.from_numpy(seeds))

    def attach(task, data):
        task.data = data
        monkeypatch.setattr(type(task), "corrupt", corrupt)
        return task

    return attach


@pytest.mark.parametrize(
    ("make", "loss_norm"),
    [(tree_task, "constant"), (tree_task, "sum"), (tree_task, "step"), (words_task, "constant"), (words_task, "step")],
    ids=["constant", "sum", "step", "additions-constant", "additions-step"],
)
def test_two_micro_batches_equal_one_of_twice_the_size(tmp_path, data, same_masks, make, loss_norm):
    """48 comments, of which every step takes eight, at once or four by four."""
    own = forest(discussions(6, 8))
    found = []
    for name, budget, accumulate in (("one", 8, 1), ("two", 4, 2), ("four", 2, 4)):
        config = TrainConfig(steps=7, budget=budget, budget_unit="targets", accumulate=accumulate, lr=1e-2, log_every=1)
        task = same_masks(make(dropout=0.0, task={"loss_norm": loss_norm}), own)
        trainer = trainer_of(tmp_path / name, own, config, task=task, regime={"regime": "naive"})
        trainer.run()
        found.append((records(tmp_path / name), weights(trainer)))
    for logged, end in found[1:]:
        assert distance(end, found[0][1]) < 1e-9
        for ours, theirs in zip(logged, found[0][0], strict=True):
            assert ours == pytest.approx(theirs, abs=1e-9)
    assert found[0][0][0]["targets"] == 8


EFFECTIVE = {
    "naive": {"regime": "naive"},
    "tree": {"regime": "tree"},
    "debiased": {"regime": "threads_debiased"},
    "debiased, leaves": {"regime": "threads_debiased", "threads_over": "leaves"},
    "middle": {"regime": "middle", "max_tree_size": 4},
    "middle, soft": {"regime": "middle", "max_tree_size": 4, "bound": "soft"},
    "middle, a step for each tree": {"regime": "middle", "max_tree_size": 4, "step_per": "tree"},
    "middle, share": {"regime": "middle", "max_tree_size": 4, "weighting": "share"},
    "threads": {"regime": "threads"},
}


def effective_weights(tmp_path, data, monkeypatch, regime, loss_norm="constant", epochs=1, **config):
    """Σ over the steps of some epochs of w / W, for every comment and for every node's own words: the weights that the trainer
    passes to the losses; and the number of steps."""
    task = words_task(dtype=torch.float32, task={"loss_norm": loss_norm})
    total, own_words = defaultdict(float), defaultdict(float)

    def losses(self, batch, divide, phase, state, shared):
        for node, weight in zip(batch.source.tolist(), batch.weight.tolist()):
            total[node] += weight / divide["masked_lm"]
        assert divide["reply_words"] == divide["masked_lm"] or loss_norm != "constant"
        for node, weight in zip(batch.node_source.tolist(), batch.node_weight.tolist()):
            own_words[node] += weight / divide["own_words"]
        yield {"masked_lm": self.head.bias.sum() * 0.0}, None

    monkeypatch.setattr(type(task), "losses", losses)
    settings = TrainConfig(**({"steps": 10**6, "budget": 100} | config))
    view, collate = view_of(task, data, **regime)
    trainer = Trainer(task, [Stage(settings, view, collate)], tmp_path, seed=0, cpu=True)
    steps = math.ceil(epochs * len(TokenBudget(view.costs, settings.budget, seed=0).steps(0)) / settings.accumulate)
    trainer.run(until=steps)
    return dict(total), dict(own_words), steps


@pytest.fixture(scope="module")
def skewed():
    """Trees of very different sizes and shapes, and comments without words."""
    shapes = [uniform(40, 1), chain(9), W, [-1, 0], reddit(25, 2), [-1, 0, 0]]
    return forest([discussion(shape, seed=n, name=f"t{n}") for n, shape in enumerate(shapes)])


def multiplicity_of(data):
    return np.concatenate([multiplicity(tree.parent) for tree in data.store.trees()])


@pytest.mark.parametrize("regime", EFFECTIVE)
def test_effective_weight_of_a_comment(tmp_path, skewed, monkeypatch, regime):
    """The weight is constant in every regime but `threads`, where it is proportional to the comment's count. The weight of a
    node's own words is that of one comment, however many units encode the node."""
    total, own_words, steps = effective_weights(tmp_path, skewed, monkeypatch, EFFECTIVE[regime])
    comments = [node for node in range(len(skewed.parent)) if skewed.parent[node] >= 0]
    spoken = [node for node in comments if skewed.length[node]]
    assert {node for node, weight in total.items() if weight} == set(spoken)
    assert len(spoken) < len(comments)
    found = np.array([total[node] for node in spoken])
    # The strict bound alone hides comments from their descendants.
    assert regime.startswith("middle") or own_words.keys() == {int(node) for node in skewed.parent if node >= 0}
    mean = steps / (multiplicity_of(skewed)[spoken].sum() if regime == "threads" else len(spoken))
    np.testing.assert_allclose(list(own_words.values()), mean, rtol=1e-12)
    if regime == "threads":
        counts = multiplicity_of(skewed)[spoken]
        np.testing.assert_allclose(found / found[0], counts / counts[0], rtol=1e-12)
        assert counts.max() > 5 * counts.min()
    else:
        np.testing.assert_allclose(found, steps / len(spoken), rtol=1e-12)


@pytest.mark.parametrize("accumulate", [2, 3, 5])
def test_effective_weight_with_micro_batches(tmp_path, skewed, monkeypatch, accumulate):
    """The weights of an update average one, even if its micro-batches span two epochs."""
    regime = EFFECTIVE["middle"]
    # One piece per micro-batch, so that all epochs have equally many.
    settings = {"budget": 1, "accumulate": accumulate, "epochs": accumulate}
    total, own_words, pieces = effective_weights(tmp_path, skewed, monkeypatch, regime, **settings)
    found = np.array([weight for weight in total.values() if weight])
    np.testing.assert_allclose(found, pieces / len(found), rtol=1e-12)
    np.testing.assert_allclose(list(own_words.values()), pieces / len(found), rtol=1e-12)


def test_dividing_by_the_steps_own_weight_is_biased(tmp_path, skewed, monkeypatch):
    """This bias is the reason for `constant`: the same comments weigh several times as much in a small step."""
    total, _, _ = effective_weights(tmp_path, skewed, monkeypatch, EFFECTIVE["naive"], loss_norm="step")
    found = [weight for weight in total.values() if weight]
    assert max(found) > 1.5 * min(found)


def test_step_seeds_differ():
    seeds = {
        step_seed(run, kind, step, rank, micro)
        for run in (0, 1)
        for kind in (1, 2)
        for step in range(5)
        for rank in (0, 1)
        for micro in (0, 1)
    }
    assert len(seeds) == 80
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_training_learns(tmp_path):
    """Replies repeat the post's only word: a model that reads the tree learns it, and one that does not cannot."""
    random = np.random.default_rng(0)
    trees = []
    for number in range(40):
        word = random.choice(WORDS[:8])
        tree = discussion([-1, 0, 0], name=f"t{number}")
        for node in range(3):
            tree = with_text(tree, node, f"{word} {word}")
        trees.append(tree)
    own = forest(trees)
    config = TrainConfig(steps=150, budget=2000, lr=1e-2, log_every=150)
    losses = {}
    for context in ("tree", "none"):
        torch.manual_seed(0)
        task = tree_task(
            dtype=torch.float32,
            input=TextInput(max_tokens=32, context=context),
            task={"mask_rate": 1.0, "mask_split": (1.0, 0.0, 0.0)},
            dim=16,
        )
        trainer_of(tmp_path / context, own, config, task=task).run()
        losses[context] = records(tmp_path / context)[-1]["loss"]
    assert losses["tree"] < 0.3
    assert losses["none"] > math.log(8) - 0.3


# --- settings of a stage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("linear", [1 / 3, 2 / 3, 1, 1, 3 / 4, 1 / 2, 1 / 4]),
        ("cosine", [1 / 3, 2 / 3, 1, 1, *(0.5 + 0.5 * math.cos(math.pi * share / 4) for share in (1, 2, 3))]),
        ("constant", [1 / 3, 2 / 3, 1, 1, 1, 1, 1]),
        ("epochs", [1 / 3, 2 / 3, 1, 1, 1, 1, 1]),
        ("noam", [1 / 3, 2 / 3, 1, *(math.sqrt(3 / number) for number in (4, 5, 6, 7))]),
    ],
)
def test_schedule(kind, expected):
    """The factors of seven updates, three of them in the warm-up, which counts from 1."""
    config = TrainConfig(warmup=3 / 7, schedule=kind)
    assert [schedule(config, done / 7, (done + 1) / 7) for done in range(7)] == pytest.approx(expected)
    if kind != "noam":
        assert schedule(TrainConfig(warmup=0.0, schedule=kind), 0.0, 1e-9) == 1.0


@pytest.mark.parametrize("updates", [10, 1_000_000])
def test_warm_up_of_any_length(updates):
    assert schedule(TrainConfig(warmup=0.1), 0.0, 1 / updates) == pytest.approx(10 / updates)
    assert schedule(TrainConfig(warmup=1e-5), 0.0, 0.1) == 1.0


def test_schedule_by_epochs():
    config = TrainConfig(warmup=0.1, schedule="epochs", epoch_decay=0.5)
    assert schedule(config, 0.04, 0.05) == pytest.approx(0.5)
    assert [schedule(config, 0.5, 0.6, epoch) for epoch in range(3)] == pytest.approx([1, 1 / 1.5, 1 / 2])


def test_learning_rate_follows_the_schedule(tmp_path, data):
    config = replace(SHORT, warmup=0.25, schedule="linear")
    run(tmp_path, data, config)
    rates = [record["lr"] for record in records(tmp_path)]
    assert rates == pytest.approx([config.lr * schedule(config, step / 8, (step + 1) / 8) for step in range(8)])


def test_frozen_parameters_do_not_move(tmp_path, data):
    trainer = trainer_of(tmp_path, data, replace(SHORT, freeze=(r"^backbone\.encoder\.", r"\.cross\.out")))
    before = weights(trainer)
    trainer.run()
    moved = {name for name, value in weights(trainer).items() if not torch.equal(value, before[name])}
    frozen = {name for name in before if name.startswith("backbone.encoder.") or ".cross.out" in name}
    assert frozen
    # Only models without context read the null row.
    assert moved == before.keys() - frozen - {"backbone.null"}


@pytest.mark.parametrize("freeze", [(), (r"^backbone\.decoder\.",)], ids=["none", "decoder"])
def test_parameters_frozen_by_the_task_stay_frozen(tmp_path, data, freeze):
    """Parameters that a stage freezes are free again after training."""
    task = tree_task(dtype=torch.float32)
    for parameter in task.backbone.encoder.parameters():
        parameter.requires_grad_(False)
    learning = {name for name, parameter in task.named_parameters() if parameter.requires_grad}
    trainer = trainer_of(tmp_path, data, replace(SHORT, freeze=freeze), task=task)
    before = weights(trainer)
    trainer.run()
    moved = {name for name, value in weights(trainer).items() if not torch.equal(value, before[name])}
    assert moved == {name for name in learning - {"backbone.null"} if not (freeze and "backbone.decoder." in name)}
    assert {name for name, parameter in task.named_parameters() if parameter.requires_grad} == learning


def test_stage_without_trainable_parameters_is_refused(tmp_path, data):
    task = tree_task(dtype=torch.float32).requires_grad_(False)
    task.head.bias.requires_grad_(True)
    with pytest.raises(RamifyError, match=r"train\.freeze: .* leave no parameter that could learn"):
        trainer_of(tmp_path, data, replace(SHORT, freeze=("head",)), task=task)


def test_scaled_learning_rates(tmp_path, data):
    """The first step of Adam moves every parameter by its rate: less where the scale says so, not at all where it is 0."""
    config = TrainConfig(
        steps=1,
        budget=300,
        lr=1e-3,
        warmup=0.0,
        weight_decay=0.0,
        eps=1e-30,
        lr_scale=((r"\.cross\.", 0.1), ("out", 0.5), ("pool|types|bias", 0.0)),
    )
    trainer = trainer_of(tmp_path, data, config, task=tree_task(dropout=0.0))
    before = weights(trainer)
    trainer.run()
    for name, after in weights(trainer).items():
        scale = (0.1 if ".cross." in name else 1.0) * (0.5 if "out" in name else 1.0) * (0.0 if "bias" in name else 1.0)
        step = float((after - before[name]).abs().max())
        if name != "backbone.null":
            assert step == pytest.approx(1e-3 * scale, rel=1e-6), name


def test_weight_decay_excludes_vectors(tmp_path, data):
    """With a learning rate of almost nothing but its decay, matrices shrink and vectors stay."""
    config = TrainConfig(steps=1, budget=300, lr=1e-3, warmup=0.0, weight_decay=100.0, eps=1e12)
    trainer = trainer_of(tmp_path, data, config, task=tree_task(dropout=0.0))
    before = weights(trainer)
    trainer.run()
    for name, after in weights(trainer).items():
        factor = 0.9 if before[name].ndim > 1 else 1.0
        torch.testing.assert_close(after, before[name] * factor, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("setting", ["freeze", "lr_scale", "undecayed"])
def test_patterns_that_match_nothing_are_refused(tmp_path, data, setting):
    value = (("wings", 0.1),) if setting == "lr_scale" else ("wings",)
    with pytest.raises(RamifyError, match="matches the pattern 'wings'"):
        run(tmp_path, data, replace(SHORT, **{setting: value}))


@pytest.mark.parametrize("clip", [0.0, 0.05, 1e6])
def test_clipping(tmp_path, data, clip):
    trainer = trainer_of(tmp_path, data, TrainConfig(steps=1, budget=300, clip=clip, log_every=1), task=tree_task())
    trainer.run()
    norm = torch.stack([p.grad.norm() for p in trainer.task.parameters() if p.grad is not None]).norm().item()
    logged = records(tmp_path)[0]["grad_norm"]
    assert logged > 0.1
    assert norm == pytest.approx(0.05 if clip == 0.05 else logged, rel=1e-4)


def dev_losses(values):
    each = iter(values)
    return lambda: {"dev_loss": next(each), "dev_loss_none": 9.0}


def test_early_stopping_and_the_best_weights(tmp_path, data):
    config = replace(SHORT, steps=100, evaluate_every=2, patience=2)
    snapshots = []
    trainer = trainer_of(
        tmp_path,
        data,
        config,
        dev=dev_losses([5.0, 3.0, 4.0, 3.5, 1.0]),
        report=lambda record: snapshots.append(weights(trainer)),
    )
    progress = trainer.run()
    # Best at step 4; two evaluations without a better one end training at step 8.
    assert (progress.step, progress.best, progress.best_step) == (8, 3.0, 4)
    assert equal(load_file(tmp_path / "best.safetensors"), snapshots[3])
    assert [record["dev_loss"] for record in records(tmp_path) if "dev_loss" in record] == [5.0, 3.0, 4.0, 3.5]
    assert records(tmp_path)[1]["dev_loss_none"] == 9.0


def test_dev_loss_is_measured_at_the_end(tmp_path, data):
    progress = trainer_of(tmp_path, data, replace(SHORT, evaluate_every=100), dev=dev_losses([2.0])).run()
    assert (progress.best, progress.best_step) == (2.0, 8)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_infinite_dev_loss_is_refused(tmp_path, data, loss):
    """No weights would ever be the best again, without any message."""
    with pytest.raises(RamifyError, match=rf"step 6: the dev loss is {loss}\. Start again"):
        trainer_of(tmp_path, data, dev=dev_losses([2.0, loss])).run()


def two_stages(out, data, *, resume=False, until=None):
    task = tree_task(dtype=torch.float32, dropout=0.1)
    first = replace(SHORT, steps=4, freeze=("encoder",), patience=1, evaluate_every=1)
    second = replace(SHORT, steps=5, lr=1e-3, patience=3, evaluate_every=2)
    stages = [
        stage_of(task, data, first, lambda: {"dev_loss": 1.0}),
        stage_of(task, data, second, lambda: {"dev_loss": 1.0}, regime="naive"),
    ]
    trainer = Trainer(task, stages, out, seed=3, cpu=True)
    return trainer, trainer.run(resume=resume, until=until)


def test_stages_follow_each_other(tmp_path, data):
    """The first stage ends by its patience after two steps; the second has patience of its own and runs all five."""
    straight, progress = two_stages(tmp_path / "straight", data)
    assert (progress.stage, progress.step) == (1, 7)
    assert [round(record["progress"], 2) for record in records(tmp_path / "straight")] == [0.25, 0.5, 0.2, 0.4, 0.6, 0.8, 1.0]
    for kill in (1, 3, 5, 6):
        out = tmp_path / f"killed-{kill}"
        two_stages(out, data, until=kill)
        resumed, _ = two_stages(out, data, resume=True)
        assert equal(weights(resumed), weights(straight))
        assert records(out) == records(tmp_path / "straight")


def test_a_stage_ends_at_the_limit_that_comes_first(tmp_path, data):
    for name, steps, tokens in (("steps", 3, 10**6), ("tokens", 10**6, 150)):
        config = TrainConfig(steps=steps, target_tokens=tokens, budget=150, log_every=1, warmup=0.5)
        trainer_of(tmp_path / name, data, config).run()
    by_steps, by_tokens = (records(tmp_path / name) for name in ("steps", "tokens"))
    assert [record["step"] for record in by_steps] == [1, 2, 3]
    tokens = [0, *(record["target_tokens"] for record in by_tokens)]
    assert tokens[-2] < 150 <= tokens[-1]


def test_stage_length_in_target_tokens(tmp_path, data):
    config = TrainConfig(steps=0, target_tokens=700, budget=150, log_every=1, warmup=0.5)
    trainer = trainer_of(tmp_path, data, config)
    trainer.run()
    logged = records(tmp_path)
    tokens = [0, *(record["target_tokens"] for record in logged)]
    assert tokens[-2] < 700 <= tokens[-1]
    assert [record["lr"] for record in logged] == pytest.approx(
        [config.lr * schedule(config, before / 700, after / 700) for before, after in pairwise(tokens)]
    )
    assert [record["progress"] for record in logged] == pytest.approx([min(1.0, each / 700) for each in tokens[1:]])


EPOCHS = replace(SHORT, steps=0, epochs=2.0)


def steps_of_epochs(trainer, epochs):
    """The number of micro-batches in the first epochs."""
    sampler = trainer.stages[0].sampler(3, 1)
    return sum(len(sampler.own_steps(epoch)) for epoch in range(epochs))


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_stage_length_in_epochs(tmp_path, data, accumulate):
    """Updates of several micro-batches continue across epochs, so only the last one may read beyond the end."""
    config = replace(EPOCHS, accumulate=accumulate, warmup=0.5)
    trainer = trainer_of(tmp_path, data, config)
    progress = trainer.run()
    rounds = steps_of_epochs(trainer, 2)
    assert rounds > 3 * accumulate
    assert progress.step == math.ceil(rounds / accumulate)
    logged = records(tmp_path)
    assert logged[-1]["progress"] == 1.0
    shares = [0.0, *(record["progress"] for record in logged)]
    assert [record["epochs"] for record in logged[:-1]] == pytest.approx([2 * share for share in shares[1:-1]])
    assert [record["lr"] for record in logged] == pytest.approx(
        [config.lr * schedule(config, *both) for both in pairwise(shares)]
    )


def test_evaluations_that_never_come_are_refused():
    with pytest.raises(RamifyError, match=r"train\.evaluate_every=200 epochs is longer than train\.epochs=2\.0"):
        replace(EPOCHS, evaluate_every=200, evaluate_unit="epochs")


def test_a_part_of_an_epoch(tmp_path, data):
    trainer = trainer_of(tmp_path, data, replace(EPOCHS, epochs=0.5))
    assert trainer.run().step == math.ceil(steps_of_epochs(trainer, 1) / 2)


def test_epochs_resume_to_the_same_bits(tmp_path, data):
    config = replace(EPOCHS, evaluate_every=1, evaluate_unit="epochs", checkpoint_every=1)
    straight, progress = run(tmp_path / "straight", data, config)
    first = steps_of_epochs(straight, 1)
    for kill in (1, first, first + 1, progress.step):
        out = tmp_path / f"killed-{kill}"
        run(out, data, config, until=kill)
        resumed, _ = run(out, data, config, resume=True)
        assert equal(weights(resumed), weights(straight))
        assert records(out) == records(tmp_path / "straight")


def test_two_stages_in_epochs(tmp_path, data):
    """The first stage loses patience after its second epoch; each stage counts its own epochs."""
    task = tree_task(dtype=torch.float32, dropout=0.1)
    first = replace(EPOCHS, epochs=5.0, patience=1, evaluate_every=1, evaluate_unit="epochs")
    second = replace(EPOCHS, epochs=1.0, evaluate_every=0)
    stages = [stage_of(task, data, first, dev_losses([3.0, 4.0])), stage_of(task, data, second, dev_losses([2.0]))]
    trainer = Trainer(task, stages, tmp_path, seed=3, cpu=True)
    progress = trainer.run()
    logged = records(tmp_path)
    assert [record["epochs"] for record in logged if "dev_loss" in record] == [1.0, 2.0, 1.0]
    assert (progress.stage, progress.best, progress.best_step) == (1, 2.0, progress.step)
    assert progress.first_step == steps_of_epochs(trainer, 2)


def test_early_stopping_by_epochs_keeps_the_best_weights(tmp_path, data):
    config = replace(EPOCHS, epochs=9.0, patience=2, evaluate_every=1, evaluate_unit="epochs")
    snapshots = []
    trainer = trainer_of(
        tmp_path,
        data,
        config,
        dev=dev_losses([5.0, 3.0, 4.0, 3.5]),
        report=lambda record: snapshots.append(weights(trainer)),
    )
    progress = trainer.run()
    best = steps_of_epochs(trainer, 2)
    assert (progress.step, progress.best_step) == (steps_of_epochs(trainer, 4), best)
    assert equal(load_file(tmp_path / "best.safetensors"), snapshots[best - 1])


@pytest.mark.parametrize("unit", ["tokens", "target_tokens", "targets"])
def test_budget_units(tmp_path, data, unit):
    """Models with different inputs visit the same comments if target tokens or targets fill the steps."""
    logs = []
    tasks = {
        context: tree_task(dtype=torch.float32, input=TextInput(max_tokens=32, context=context)) for context in ("tree", "none")
    }
    tasks["text"] = bert_task(dtype=torch.float32, input=TextInput(max_tokens=32, concatenate=60))
    for name, task in tasks.items():
        config = replace(SHORT, budget=12 if unit == "targets" else 130, budget_unit=unit)
        trainer_of(tmp_path / name, data, config, task=task, regime={"regime": "naive"}).run()
        logs.append([(record["target_tokens"], record["targets"]) for record in records(tmp_path / name)])
    for log in logs[1:]:
        assert (log == logs[0]) == (unit != "tokens")


def test_loss_is_the_mean_over_comments(tmp_path, data, same_masks):
    """The logged loss is Σ w ℓ / Σ w over the step, however the gradient is divided."""
    task = same_masks(tree_task(), data)
    batch = masked(task, data, whole(task, data))
    expected = next(task.losses(batch, {"masked_lm": float(batch.weight.sum())}, MAIN, None, None))[0]["masked_lm"].item()
    for name in ("constant", "sum", "step"):
        config = TrainConfig(steps=1, budget=10**6, log_every=1)
        trainer_of(tmp_path / name, data, config, task=same_masks(tree_task(task={"loss_norm": name}), data)).run()
        assert records(tmp_path / name)[0]["loss"] == pytest.approx(expected, abs=1e-9)


def test_losses_of_vectors_are_logged_as_means(tmp_path, data, same_masks):
    """Beside their weighted sum: the mean over texts of each loss, however the gradient is divided."""
    task = same_masks(words_task(), data)
    batch = masked(task, data, whole(task, data))
    ((expected, _),) = task.losses(batch, task.counts(batch, MAIN), MAIN, None, None)
    assert len(expected) == 3
    for name in ("constant", "sum", "step"):
        config = TrainConfig(steps=1, budget=10**6, log_every=1)
        trainer_of(tmp_path / name, data, config, task=same_masks(words_task(task={"loss_norm": name}), data)).run()
        (record,) = records(tmp_path / name)
        for key, value in expected.items():
            assert record[key] == pytest.approx(value.item(), abs=1e-9)
        assert record["loss"] == pytest.approx(sum(value.item() for value in expected.values()), abs=1e-9)


def test_infinite_gradients_are_refused(tmp_path, data):
    task = tree_task(dtype=torch.float32)
    with torch.no_grad():
        task.head.bias[7] = math.inf
    with pytest.raises(RamifyError, match="step 1: the gradient is not finite"):
        trainer_of(tmp_path, data, task=task).run()


@pytest.mark.parametrize("make", [tree_task, words_task], ids=["paper", "additions"])
def test_bf16(tmp_path, data, make):
    """Nearly the same losses as in single precision, in one graph and in two phases; the weights stay in single precision."""
    logs = {}
    for precision in ("fp32", "bf16"):
        for phases in ("never", "always"):
            task = make(dtype=torch.float32, dropout=0.0, task={"two_phase": phases, "chunk_tokens": 60})
            out = tmp_path / f"{precision}-{phases}"
            trainer_of(out, data, replace(SHORT, precision=precision), task=task).run()
            assert all(parameter.dtype == torch.float32 for parameter in task.parameters())
            logs[precision, phases] = [record["loss"] for record in records(out)]
    for phases in ("never", "always"):
        assert logs["bf16", phases] == pytest.approx(logs["fp32", phases], rel=0.05)
        assert logs["bf16", phases] != logs["fp32", phases]
    assert logs["fp32", "always"] == pytest.approx(logs["fp32", "never"], rel=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_dev_set_is_measured_in_the_precision_of_training(tmp_path, data, precision):
    seen = []

    def dev():
        seen.append(torch.is_autocast_enabled("cpu"))
        return {"dev_loss": 1.0}

    trainer_of(tmp_path, data, replace(SHORT, precision=precision), dev=dev).run()
    assert seen
    assert all(found == (precision == "bf16") for found in seen)


def test_stages_share_one_precision(tmp_path, data):
    task = tree_task(dtype=torch.float32)
    stages = [stage_of(task, data, replace(SHORT, precision=precision)) for precision in ("fp32", "bf16")]
    with pytest.raises(RamifyError, match=r"same train\.precision"):
        Trainer(task, stages, tmp_path, seed=0, cpu=True)


def test_denormal_numbers_are_zero_only_while_training(tmp_path, data):
    seen = []
    trainer_of(tmp_path, data, replace(SHORT, steps=1), report=lambda record: seen.append(sys.float_info.min / 4)).run()
    assert seen == [0.0]
    assert sys.float_info.min / 4 > 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, r"train\.steps=0 and train\.target_tokens=0 do not define the length of training"),
        ({"target_tokens": -5}, r"train\.target_tokens"),
        ({"epochs": 3.0}, r"train\.epochs=3\.0 and train\.steps=2000 both define the length of training\. Set train\.steps=0"),
        ({"steps": 0, "epochs": 0.0}, r"train\.epochs must be above 0, but is 0\.0"),
        ({"budget": 0}, r"train\.budget must be at least 1, but is 0"),
        ({"accumulate": 0}, r"train\.accumulate"),
        ({"lr": -1.0}, r"train\.lr must not be negative"),
        ({"lr": math.nan}, r"train\.lr must be of the form number"),
        ({"eps": -1.0}, r"train\.eps must be above 0"),
        ({"warmup": -0.1}, r"train\.warmup is a share"),
        ({"warmup": 7}, r"train\.warmup is a share"),
        ({"clip": -1.0}, r"train\.clip must not be negative, but is -1\.0"),
        ({"weight_decay": -5.0}, "weight_decay"),
        ({"lr_scale": (("cross", -2.0),)}, "the factor of 'cross' must not be negative"),
        ({"betas": (1.5, 0.9)}, r"train\.betas"),
        ({"schedule": "sideways"}, r"train\.schedule=sideways is not one of linear, cosine, constant, epochs"),
        ({"compile": 1}, r"train\.compile must be of the form true or false"),
    ],
)
def test_refused_settings(settings, message):
    with pytest.raises(RamifyError, match=message):
        TrainConfig(**settings)


def test_metrics_are_json_lines(tmp_path, data):
    run(tmp_path, data)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 9))
    first = json.loads(lines[0])
    assert first.keys() == {"loss", "grad_norm", "step", "lr", "seconds", "target_tokens", "targets", "progress"}
    assert first["seconds"] > 0


def test_metrics_may_be_sparse(tmp_path, data):
    trainer_of(tmp_path, data, replace(SHORT, log_every=5)).run()
    assert [record["step"] for record in records(tmp_path)] == [5, 8]


@pytest.mark.skipif("config.getoption('--rounding')", reason="compiled graphs have kernels of their own")
def test_compiled(tmp_path, data, monkeypatch):
    """The traced graph runs and gives the losses of the plain model."""
    options, graphs = [], []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def compiled(function, **given):
        options.append(given)
        return compile(function, backend=backend, **given)

    compile = torch.compile
    monkeypatch.setattr(torch, "compile", compiled)
    logs = []
    for name in ("plain", "compiled"):
        task = words_task(dtype=torch.float32, context_position="distance", task={"two_phase": "always", "chunk_tokens": 60})
        trainer_of(tmp_path / name, data, replace(SHORT, steps=2, compile=name == "compiled"), task=task).run()
        logs.append([record["loss"] for record in records(tmp_path / name)])
    assert options == [{"dynamic": True}] * 2
    assert len(graphs) > 2
    # No chunk has attention over groups of rows.
    assert not any("scaled_dot_product" in graph.code for graph in graphs)
    assert logs[0] == pytest.approx(logs[1], abs=1e-4)


@pytest.mark.parametrize("line", ["no json", "[1]", '{"step": 3}'])
def test_damaged_line_of_metrics_is_refused(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "loss": 2.0, "target_tokens": 9}}\n{line}\n')
    with pytest.raises(RamifyError, match=r"metrics\.jsonl, line 2: expected a JSON object with step"):
        read_metrics(tmp_path)

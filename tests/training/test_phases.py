"""Objectives with several phases: each has its own parameters and optimizer, and none reaches another's."""

from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import load_file
from short_runs import equal, records, weights
from torch import nn

from fixtures.toys import CRITIC, Forger, Texts
from ramify.config import from_record
from ramify.errors import RamifyError
from ramify.tasks.base import MAIN, Phase
from ramify.training.config import PhaseSettings, TrainConfig
from ramify.training.schedules import schedule
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage
from ramify.training.trainer import Trainer

SEED = 3
WIDTH = 4
CONFIG = TrainConfig(
    steps=8,
    budget=3,
    budget_unit="targets",
    accumulate=2,
    lr=1e-2,
    clip=0.05,
    log_every=1,
    checkpoint_every=2,
    phases=(PhaseSettings(CRITIC, lr=3e-2, betas=(0.5, 0.9), clip=0.02, schedule="constant", warmup=0.0),),
)


def trainer_of(out, config=CONFIG, **options):
    task, texts = Forger(WIDTH), Texts(5, 3, WIDTH)
    return Trainer(task, [Stage(config, texts, texts.collate)], out, seed=SEED, cpu=True, **options)


def gradients(trainer):
    return {name: None if p.grad is None else p.grad.clone() for name, p in trainer.task.named_parameters()}


def by_hand(steps):
    """The same training with two optimizers, whose gradients are requested by parameter."""
    task, texts = Forger(WIDTH), Texts(5, 3, WIDTH)
    config = {MAIN: CONFIG.of_phase(MAIN), CRITIC: CONFIG.of_phase(CRITIC)}
    modules = {MAIN: task.forger, CRITIC: task.critic}
    optimizers = {}
    for name, module in modules.items():
        matrices = [p for p in module.parameters() if p.ndim > 1]
        vectors = [p for p in module.parameters() if p.ndim == 1]
        decay = config[name].weight_decay
        groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
        optimizers[name] = torch.optim.AdamW(groups, betas=config[name].betas, eps=config[name].eps, fused=True)
    order = iter(Stage(CONFIG, texts, texts.collate).sampler(SEED, 1))
    for step in range(steps):
        batches = [task.corrupt(texts.collate([texts.example(n) for n in next(order)]), torch.Generator()) for _ in range(2)]
        for number, (name, module) in enumerate(modules.items()):
            if name == CRITIC and (step + 1) % 2:
                continue
            counts = [task.counts(batch, name) for batch in batches]
            total = {loss: sum(each[loss] for each in counts) for loss in counts[0]}
            own = list(module.parameters())
            for parameter in own:
                parameter.grad = torch.zeros_like(parameter)
            for micro, batch in enumerate(batches):
                torch.manual_seed(step_seed(SEED, 2 + number, step, 0, micro))
                for named, _ in task.losses(batch, total, name, None, None):
                    found = torch.autograd.grad(sum(named.values()), own)
                    for parameter, gradient in zip(own, found, strict=True):
                        parameter.grad += gradient
            nn.utils.clip_grad_norm_(own, config[name].clip)
            for group in optimizers[name].param_groups:
                group["lr"] = config[name].lr * schedule(config[name], step / 8, (step + 1) / 8)
            optimizers[name].step()
    return {name: parameter.detach() for name, parameter in task.named_parameters()}


def test_two_phases_equal_two_separate_trainings(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.run()
    assert equal(weights(trainer), by_hand(8))


def test_gradients_of_a_phase_never_reach_the_others_parameters(tmp_path):
    """Odd updates are the forger's alone. In even updates the critic comes last, and would add to the forger's gradients."""
    seen = []
    trainer = trainer_of(tmp_path, report=lambda record: seen.append((gradients(trainer), weights(trainer))))
    start = weights(trainer)
    trainer.run()
    before = [({}, start), *seen]
    critic = [name for name in start if name.startswith("critic.")]
    for number, (found, own) in enumerate(seen):
        took_part = number % 2 == 1
        last_found, last_own = before[number]
        for name in critic:
            # If the critic takes no part, its parameters and gradients are unchanged.
            assert torch.equal(own[name], last_own[name]) != took_part
            if not took_part and number:
                assert torch.equal(found[name], last_found[name])
        assert (found[critic[0]] is None) == (number == 0)
        norms = {
            part: torch.stack([found[name].norm() for name in start if name.startswith(part) and found[name] is not None])
            for part in (["forger", "critic"] if number else ["forger"])
        }
        # Each phase is clipped by its own limit, over its own parameters.
        assert norms["forger"].norm().item() <= 0.05 * 1.001
        if number:
            assert norms["critic"].norm().item() <= 0.02 * 1.001
    assert all(parameter.requires_grad for parameter in trainer.task.parameters())


@pytest.mark.parametrize("kill", [1, 4, 5, 7])
def test_moments_of_both_phases_resume_exactly(tmp_path, kill):
    straight = trainer_of(tmp_path / "straight")
    straight.run()
    trainer_of(tmp_path / "killed").run(until=kill)
    resumed = trainer_of(tmp_path / "killed")
    resumed.run(resume=True)
    assert equal(weights(resumed), weights(straight))
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
    moments = [
        load_file(tmp_path / side / "checkpoints/step-00000008/optimizer.safetensors") for side in ("straight", "killed")
    ]
    assert equal(*moments)
    assert moments[0]["main/forger.weight/step"] == 8
    assert moments[0]["critic/critic.0.weight/step"] == 4
    names = {f"{MAIN if name.startswith('forger') else CRITIC}/{name}" for name in weights(straight)}
    assert moments[0].keys() == {f"{name}/{moment}" for name in names for moment in ("step", "exp_avg", "exp_avg_sq")}


ADADELTA = replace(CONFIG, optimizer="adadelta", lr=1.0, phases=())


def test_settings_replace_the_updates_of_a_phase(tmp_path):
    trainer_of(tmp_path, replace(ADADELTA, phases=(PhaseSettings(CRITIC, every=4),))).run()
    assert [record["step"] for record in records(tmp_path) if "loss_critic" in record] == [4, 8]


class SharingForger(Forger):
    """The forger's pieces come from one forward pass per micro-batch, which both phases read."""

    def __init__(self, *given):
        super().__init__(*given)
        self.log = []

    def shared(self, batch, state):
        assert self.training
        assert not torch.is_grad_enabled()
        noise = torch.rand(3)
        self.log.append(("shared", noise, self.forger.weight.clone()))
        return noise

    def losses(self, batch, divisors, phase, state, shared):
        self.log.append((phase, shared, self.forger.weight.clone()))
        yield from super().losses(batch, divisors, phase, state, shared)

    def after_update(self, phase):
        assert not torch.is_grad_enabled()
        self.log.append((f"after {phase}", None, self.forger.weight.clone()))


def sharing(out, **options):
    texts = Texts(5, 3, WIDTH)
    return Trainer(SharingForger(WIDTH), [Stage(ADADELTA, texts, texts.collate)], out, seed=SEED, cpu=True, **options)


def test_phases_of_an_update_share_values_of_each_micro_batch(tmp_path):
    trainer = sharing(tmp_path)
    trainer.run(until=2)
    events = [event for event, _, _ in trainer.task.log]
    alone = ["shared", MAIN, "shared", MAIN, "after main"]
    assert events == [*alone, *alone, CRITIC, CRITIC, "after critic"]
    shared = [value for event, value, _ in trainer.task.log if event == "shared"]
    assert len({tuple(value.tolist()) for value in shared}) == 4
    read = {event: [value for each, value, _ in trainer.task.log[5:] if each == event] for event in (MAIN, CRITIC)}
    for found in read.values():
        assert all(map(torch.equal, found, shared[2:]))
    # Values are computed before the first phase changes a parameter.
    weight = [forger for _, _, forger in trainer.task.log]
    assert all(torch.equal(each, weight[5]) for each in weight[6:9])
    assert not torch.equal(weight[9], weight[5])


def test_shared_values_resume_exactly_and_change_no_other_draw(tmp_path):
    straight, plain = sharing(tmp_path / "straight"), trainer_of(tmp_path / "plain", ADADELTA)
    straight.run()
    plain.run()
    assert equal(weights(straight), weights(plain))
    sharing(tmp_path / "killed").run(until=5)
    resumed = sharing(tmp_path / "killed")
    resumed.run(resume=True)
    assert equal(weights(resumed), weights(straight))
    values = [[value for event, value, _ in each.task.log if event == "shared"] for each in (straight, resumed)]
    assert all(map(torch.equal, values[0][-len(values[1]) :], values[1]))


def test_norms_are_bounded_after_the_update_of_a_phase(tmp_path, monkeypatch):
    def after_update(self, phase):
        if phase == CRITIC:
            for parameter in self.critic.parameters():
                parameter.clamp_(-0.01, 0.01)

    monkeypatch.setattr(Forger, "after_update", after_update)
    trainer = trainer_of(tmp_path)
    trainer.run()
    assert max(float(p.detach().abs().max()) for p in trainer.task.critic.parameters()) == pytest.approx(0.01)
    assert float(trainer.task.forger.weight.detach().abs().max()) > 0.1


def test_frozen_modules_belong_to_no_phase(tmp_path, monkeypatch):
    monkeypatch.setattr(Forger, "phases", (Phase(MAIN, ("forger",)), Phase(CRITIC, ("critic.2",))))
    with pytest.raises(RamifyError, match=r"critic\.0\.weight belongs to no phase of the task"):
        trainer_of(tmp_path)
    monkeypatch.setattr(Forger, "frozen", ("critic.0",))
    trainer = trainer_of(tmp_path)
    before = weights(trainer)
    trainer.run()
    still = {name for name, value in weights(trainer).items() if torch.equal(value, before[name])}
    assert still == {"critic.0.weight", "critic.0.bias"}
    monkeypatch.setattr(Forger, "frozen", ("wings",))
    with pytest.raises(RamifyError, match=r"Forger\.frozen names 'wings', but the task has no such module"):
        trainer_of(tmp_path / "other")


def test_moments_of_another_phase_are_refused(tmp_path, monkeypatch):
    trainer_of(tmp_path).run(until=4)
    monkeypatch.setattr(Forger, "phases", (Phase(MAIN), Phase(CRITIC, ("critic.2",))))
    with pytest.raises(RamifyError, match=r"does not fit this model: not expected critic/critic\.0\.bias/exp_avg"):
        trainer_of(tmp_path).run(resume=True)


def test_phases_log_their_losses(tmp_path):
    trainer_of(tmp_path).run()
    own = {"loss", "grad_norm", "lr"}
    critic = {f"{name}_critic" for name in own}
    for number, record in enumerate(records(tmp_path), start=1):
        assert own <= record.keys()
        assert (critic <= record.keys()) == (number % 2 == 0)
        assert record.get("lr_critic", 3e-2) == 3e-2
    assert records(tmp_path)[-1]["loss_critic"] != records(tmp_path)[-1]["loss"]


def test_phase_without_parameters_is_skipped(tmp_path):
    trainer = trainer_of(tmp_path, replace(CONFIG, freeze=("critic",)))
    before = weights(trainer)
    trainer.run()
    moved = {name for name, value in weights(trainer).items() if not torch.equal(value, before[name])}
    assert moved == {"forger.weight", "forger.bias"}
    assert not any("loss_critic" in record for record in records(tmp_path))


def test_frozen_phase_changes_no_draw_of_other_phases(tmp_path):
    """The critic trains on the same noise whether the forger learns or not."""
    still = replace(CONFIG, phases=(replace(CONFIG.phases[0], every=1),))
    runs = {}
    for name, config in (
        ("rests", replace(still, freeze=("forger",))),
        ("stands", replace(still, lr_scale=(("forger", 0.0),))),
    ):
        runs[name] = trainer_of(tmp_path / name, config)
        runs[name].run()
    assert equal(*map(weights, runs.values()))


def test_phase_with_losses_independent_of_its_parameters_is_refused(tmp_path, monkeypatch):
    def losses(self, batch, divisors, phase, state, shared):
        yield {name: self.critic[0].bias.sum() for name in divisors}, None

    monkeypatch.setattr(Forger, "losses", losses)
    with pytest.raises(RamifyError, match="no loss of the phase main depends on a parameter that it learns"):
        trainer_of(tmp_path).run()


CRITICS = Phase(CRITIC, ("critic",))


@pytest.mark.parametrize(
    ("phases", "settings", "freeze", "message"),
    [
        ((Phase(MAIN), Phase(CRITIC)), (), (), "the phases main and critic of the task name no parameters"),
        (None, (PhaseSettings("judge"),), (), "there is no phase judge. Choose one of the task's phases: main, critic"),
        ((Phase(MAIN), Phase(CRITIC, ("wings",))), (), (), "the phase critic names 'wings', but the task has no such module"),
        ((Phase(MAIN), Phase(CRITIC, ("crit",))), (), (), "the phase critic names 'crit', but the task has no such module"),
        ((Phase(MAIN, ("forger", "critic.0")), CRITICS), (), (), "critic.0.weight belongs to the phases main and critic"),
        ((Phase(MAIN, ("forger.weight",)), CRITICS), (), (), "forger.bias belongs to no phase"),
        (
            (Phase(MAIN, every=2), CRITICS),
            (),
            (),
            "main has every=2, but the first phase that learns takes part in",
        ),
        (None, (PhaseSettings(MAIN, every=2),), (), "main has every=2, but the first phase"),
        (None, (PhaseSettings(CRITIC, every=3),), ("forger",), "critic has every=3, but the first phase"),
    ],
)
def test_refused_phases(tmp_path, monkeypatch, phases, settings, freeze, message):
    monkeypatch.setattr(Forger, "phases", phases or Forger.phases)
    with pytest.raises(RamifyError, match=message):
        trainer_of(tmp_path, replace(CONFIG, phases=settings, freeze=freeze))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, r"train\.phases: critic: every must be at least 1, but is 0"),
        ({"lr": "fast"}, r"train\.phases: critic: lr must be of the form number or null, not 'fast'"),
        (
            {"optimizer": "lion"},
            r"phase critic: train\.optimizer=lion is not one of adamw, adam, sgd, adagrad, ",
        ),
        ({"lr": -1.0}, r"phase critic: train\.lr must not be negative"),
        ({"betas": (2.0, 0.5)}, r"phase critic: train\.betas must be at least 0"),
    ],
)
def test_refused_settings_of_phases(settings, message):
    with pytest.raises(RamifyError, match=message):
        TrainConfig(phases=(PhaseSettings(CRITIC, **settings),))


def test_phase_names_are_unique():
    with pytest.raises(RamifyError, match="names critic more than once"):
        TrainConfig(phases=(PhaseSettings(CRITIC), PhaseSettings(CRITIC)))


def test_settings_of_phases_in_json():
    assert from_record(TrainConfig, {**asdict(CONFIG), "phases": [asdict(phase) for phase in CONFIG.phases]}) == CONFIG
    assert CONFIG.of_phase(CRITIC).lr == 3e-2
    assert CONFIG.of_phase(CRITIC).steps == CONFIG.steps
    assert CONFIG.of_phase(MAIN) == replace(CONFIG, phases=())

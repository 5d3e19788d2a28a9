"""Optimizers against torch and by hand, their moments in checkpoints, and schedules against the formulas of their papers."""

import math

import pytest
import torch
from torch import nn

from ramify.errors import RamifyError
from ramify.training.config import PhaseSettings, TrainConfig
from ramify.training.optimizers import OPTIMIZERS
from ramify.training.phases import PhaseOptimizer, load_moments
from ramify.training.schedules import SCHEDULES, schedule

CONFIG = TrainConfig(lr=0.03, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-3, rho=0.7, accumulator_start=0.2)

PLAIN = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.03, betas=(0.8, 0.95), eps=1e-3),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.03, betas=(0.8, 0.95), eps=1e-3),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.03),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.03, eps=1e-3, initial_accumulator_value=0.2),
    "adadelta": lambda groups: torch.optim.Adadelta(groups, lr=0.03, rho=0.7, eps=1e-3),
}


def config_of(name, **settings):
    return TrainConfig(**(vars(CONFIG) | {"optimizer": name} | settings))


def layer():
    torch.manual_seed(0)
    return nn.Linear(3, 2).double()


def optimizer_of(model, config):
    return PhaseOptimizer("main", 0, dict(model.named_parameters()), config, 1)


def step(model, optimizer, number):
    torch.manual_seed(number)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()


def test_a_line_of_a_table_makes_a_setting(monkeypatch):
    monkeypatch.setitem(SCHEDULES, "late", lambda config, before, share, epoch: share**2)
    assert schedule(TrainConfig(schedule="late"), 0.4, 0.5) == 0.25
    monkeypatch.setitem(OPTIMIZERS, "rprop", lambda groups, config: torch.optim.Rprop(groups, lr=config.lr))
    assert isinstance(optimizer_of(layer(), TrainConfig(optimizer="rprop")).optimizer, torch.optim.Rprop)
    phases = (PhaseSettings("main", schedule="late", optimizer="rprop"),)
    assert TrainConfig(phases=phases).of_phase("main").schedule == "late"
    monkeypatch.undo()
    with pytest.raises(RamifyError, match=r"train\.schedule=late is not one of linear, .*, slanted_triangle\. Choose"):
        TrainConfig(schedule="late")
    with pytest.raises(RamifyError, match=r"phase main: train\.optimizer=rprop is not one of adamw, .*, adadelta\."):
        TrainConfig(phases=phases)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_those_of_torch(name):
    own, plain = layer(), layer()
    phase = optimizer_of(own, config_of(name))
    groups = [{"params": [plain.weight], "weight_decay": 0.1}, {"params": [plain.bias], "weight_decay": 0.0}]
    reference = PLAIN[name](groups)
    for number in range(5):
        step(own, phase.optimizer, number)
        step(plain, reference, number)
    torch.testing.assert_close(list(own.parameters()), list(plain.parameters()), rtol=1e-12, atol=0.0)


def test_parameters_that_match_a_pattern_are_not_decayed():
    own, plain = layer(), layer()
    phase = optimizer_of(own, config_of("adamw", undecayed=("^wei",)))
    assert [group["weight_decay"] for group in phase.optimizer.param_groups] == [0.0]
    reference = PLAIN["adamw"]([{"params": list(plain.parameters()), "weight_decay": 0.0}])
    for number in range(2):
        step(own, phase.optimizer, number)
        step(plain, reference, number)
    torch.testing.assert_close(list(own.parameters()), list(plain.parameters()), rtol=1e-12, atol=0.0)


def test_published_adam_of_bert():
    """`AdamWeightDecayOptimizer` of the published code: no correction of the moments, and decay beside the gradient."""
    own, by_hand = layer(), layer()
    phase = optimizer_of(own, config_of("adamw", bias_correction=False))
    moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in by_hand.named_parameters()}
    for number in range(5):
        step(own, phase.optimizer, number)
        torch.manual_seed(number)
        with torch.no_grad():
            for name, parameter in by_hand.named_parameters():
                gradient = torch.randn_like(parameter)
                m, v = moments[name]
                m, v = 0.8 * m + 0.2 * gradient, 0.95 * v + 0.05 * gradient**2
                moments[name] = m, v
                decay = 0.1 if name == "weight" else 0.0
                parameter -= 0.03 * (m / (v.sqrt() + 1e-3) + decay * parameter)
    torch.testing.assert_close(list(own.parameters()), list(by_hand.parameters()), rtol=1e-12, atol=0.0)


EVERY = [*((name, True) for name in OPTIMIZERS), ("adamw", False)]


@pytest.mark.parametrize(("name", "corrected"), EVERY)
def test_moments_resume_to_the_same_bits(name, corrected):
    config = config_of(name, bias_correction=corrected)
    straight, killed, resumed = layer(), layer(), layer()
    one, two, three = (optimizer_of(model, config) for model in (straight, killed, resumed))
    for number in range(3):
        step(straight, one.optimizer, number)
        step(killed, two.optimizer, number)
    resumed.load_state_dict(killed.state_dict())
    moments = {key: value.clone() for key, value in two.moments().items()}
    load_moments([three], moments, "here")
    for number in range(3, 6):
        step(straight, one.optimizer, number)
        step(resumed, three.optimizer, number)
    assert all(map(torch.equal, straight.parameters(), resumed.parameters()))
    assert {key: value.shape for key, value in moments.items()} == {
        key: value.shape for each in ("weight", "bias") for key, value in two.expected(each).items()
    }


def test_moments_of_another_optimizer_are_refused():
    phase = optimizer_of(layer(), config_of("adadelta"))
    step(layer(), phase.optimizer, 0)
    for parameter in phase.parameters.values():
        parameter.grad = torch.ones_like(parameter)
    phase.optimizer.step()
    with pytest.raises(RamifyError, match=r"missing main/bias/exp_avg.*not expected main/bias/acc_delta"):
        load_moments([optimizer_of(layer(), config_of("adamw"))], phase.moments(), "here")


@pytest.mark.parametrize("number", [1, 50, 200, 201, 300, 750, 1000])
def test_schedules_of_the_papers(number):
    steps = 1000
    done, shares = number - 1, ((number - 1) / steps, number / steps)
    # Vaswani et al. 2017, equation 3, with 200 updates of warm-up; its highest value is 200^-0.5.
    noam = min(number**-0.5, number * 200**-1.5) / 200**-0.5
    assert schedule(TrainConfig(warmup=0.2, schedule="noam"), *shares) == pytest.approx(noam)
    # Howard and Ruder 2018, equation 3, with cut_frac = 0.1 and ratio = 20, from its lowest rate on.
    cut = math.floor(steps * 0.1)
    height = done / cut if done < cut else 1 - (done - cut) / (cut * (1 / 0.1 - 1))
    triangle = (1 + height * (20 - 1)) / 20
    assert schedule(TrainConfig(warmup=0.1, schedule="slanted_triangle", slant_ratio=20), *shares) == pytest.approx(triangle)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "noam", "warmup": 0.0}, r"train\.warmup=0\. Set train\.warmup above 0"),
        ({"slant_ratio": 0.5}, r"train\.slant_ratio must be at least 1"),
        ({"rho": 1.5}, r"train\.rho must be from 0 to 1"),
        ({"accumulator_start": -1.0}, r"train\.accumulator_start must not be negative"),
        ({"bias_correction": False, "optimizer": "adam"}, r"applies to adamw alone, but train\.optimizer=adam"),
    ],
)
def test_refused_settings(settings, message):
    with pytest.raises(RamifyError, match=message):
        TrainConfig(**settings)

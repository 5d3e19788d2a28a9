"""Training with the engine equals training with torch from the same numbers, step by step."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ramify.autograd import Tensor
from ramify.autograd.layers import Dropout, LayerNorm, Linear, SentenceClassifier, cross_entropy
from ramify.autograd.optimizers import SGD, Adam


@pytest.fixture(scope="module")
def benchmark():
    folder = Path(__file__).parents[2] / "benchmarks"
    spec = importlib.util.spec_from_file_location("backprop_benchmark", folder / "backprop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The benchmark imports its neighbours.
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        spec.loader.exec_module(module)
    return module


@pytest.mark.data
def test_encoder_on_real_sentences_learns_like_torch(benchmark, data_dir):
    found = benchmark.learn(data_dir("sst2"), count=400, steps=60)
    assert found["largest_distance"] < 1e-6
    assert found["last_loss"] < found["first_loss"]


def test_encoder_learns_like_torch(benchmark, tmp_path):
    """The same on generated sentences, whose second word determines the class."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(120):
        words = random.choice(["a", "b", "c", "d", "e"], size=random.integers(2, 9))
        rows.append(f"{' '.join(words)}\t{int(words[1] in 'ab')}\n")
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("sentence\tlabel\n" + "".join(rows), "utf-8")
    found = benchmark.learn(tmp_path, count=120, steps=150)
    assert found["largest_distance"] < 1e-6
    assert found["last_loss"] < 0.5 * found["first_loss"]
    assert found["dev_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda p: SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (lambda p: SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        (lambda p: Adam(p, 0.1), lambda p: torch.optim.Adam(p, 0.1)),
        (lambda p: Adam(p, 0.1, (0.5, 0.9), 1e-3), lambda p: torch.optim.Adam(p, 0.1, (0.5, 0.9), 1e-3)),
    ],
)
def test_optimizer_steps_equal_torch(ours, theirs):
    start, target = np.array([1.0, -2.0, 3.0]), np.array([0.5, 0.5, -1.0])
    x, unused = Tensor(start), Tensor(1.0)
    same = torch.tensor(start, requires_grad=True)
    steps, expected = ours([x, unused]), theirs([same])
    for _ in range(20):
        ((x - target) ** 2 * [1.0, 10.0, 0.1]).sum().backward()
        steps.step()
        expected.zero_grad()
        ((same - torch.tensor(target)) ** 2 * torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)).sum().backward()
        expected.step()
        np.testing.assert_allclose(x.value, same.detach().numpy(), rtol=1e-12)
    assert unused.value == 1


def test_late_parameter_is_stepped_like_torch():
    start = np.array([1.0, 2.0])
    a, b = Tensor(start), Tensor(start)
    same_a, same_b = (torch.tensor(start, requires_grad=True) for _ in range(2))
    steps, expected = Adam([a, b], 0.1), torch.optim.Adam([same_a, same_b], 0.1)
    for number in range(6):
        steps.zero_grad()
        expected.zero_grad()
        own, same = (a, same_a) if number < 3 else (b, same_b)
        (own * own).sum().backward()
        (same * same).sum().backward()
        steps.step()
        expected.step()
    for own, same in ((a, same_a), (b, same_b)):
        np.testing.assert_allclose(own.known, same.detach().numpy(), rtol=1e-12)


def test_layers_initialize_like_torch():
    random = np.random.default_rng(0)
    weights = np.concatenate([Linear(16, 50, random).weight.known.ravel() for _ in range(20)])
    assert abs(weights).max() <= 0.25
    assert weights.std() == pytest.approx(0.25 / np.sqrt(3), rel=0.02)
    norm = LayerNorm(4)
    assert norm.weight.known.tolist() == [1] * 4
    assert len(list(SentenceClassifier(10, 2, random).named_parameters())) == 2 + 2 * 16 + 2


def test_cross_entropy():
    scores = np.random.default_rng(0).normal(size=(5, 3))
    classes = np.array([0, 2, 1, 1, 0])
    expected = F.cross_entropy(torch.tensor(scores), torch.tensor(classes))
    assert cross_entropy(Tensor(scores), classes).item() == pytest.approx(expected.item(), rel=1e-12)


def test_padding_changes_nothing():
    model = SentenceClassifier(10, 2, np.random.default_rng(0))
    ids = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5]])
    short = model(ids[:1, :3], np.array([3]))
    both = model(ids, np.array([3, 5]))
    np.testing.assert_allclose(both.known[0], short.known[0], rtol=1e-12)


def test_dropout_is_random_and_can_be_replayed():
    x = Tensor(np.ones((200, 50)))
    first, again = (Dropout(0.2, np.random.default_rng(1))(x) for _ in range(2))
    assert np.array_equal(first.known, again.known)
    drop = Dropout(0.2, np.random.default_rng(1))
    assert not np.array_equal(drop(x).known, drop(x).known)
    # The mean of 10,000 elements with a standard deviation of 1/2.
    assert abs(first.known.mean() - 1) < 4 * 0.5 / 100
    first.sum().backward()
    assert np.array_equal(x.gradient, first.known)
    assert Dropout(0.0, np.random.default_rng(1))(x) is x

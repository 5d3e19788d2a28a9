import pytest
import torch
from torch.nn import functional as F

from ramify.nn import linear as module
from ramify.nn.linear import Linear, linear, on_pairs

SHAPES = [(900, 256, 512), (900, 512, 256), (1, 300, 400), (777, 384, 384)]


@pytest.fixture(autouse=True)
def around_mkl(monkeypatch):
    """Use oneDNN on any processor, if torch has it."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(module, "_slow_mkl", lambda: True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "inner", "outer"), SHAPES)
def test_values_and_gradients_are_those_of_torch(rows, inner, outer, bias, monkeypatch):
    monkeypatch.setattr(module, "MIN_PRODUCTS", 1)
    torch.manual_seed(0)
    inputs = [torch.randn(rows, inner), torch.randn(outer, inner) / inner**0.5]
    inputs += [torch.randn(outer)] if bias else []
    own = [x.clone().requires_grad_() for x in inputs]
    theirs = [x.clone().requires_grad_() for x in inputs]
    assert module._pays(*own[:2])
    found, expected = linear(*own), F.linear(*theirs)
    assert type(found.grad_fn).__name__ == "_LinearBackward"
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    # An expanded gradient, as a sum passes back, and a dense one.
    for weight in (torch.ones(()), torch.randn(rows, outer)):
        for a, b in zip(torch.autograd.grad((found * weight).sum(), own, retain_graph=True),
                        torch.autograd.grad((expected * weight).sum(), theirs, retain_graph=True)):  # fmt: skip
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def test_unsuitable_sizes_use_the_matmul_of_torch():
    large, weight = torch.randn(900, 256), torch.randn(512, 256)
    assert module._pays(large, weight)
    assert not module._pays(large[:10], weight)
    assert not module._pays(large.double(), weight.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not module._pays(large, weight)


def test_only_requested_gradients_are_computed():
    layer = Linear(256, 512).requires_grad_(False)
    x = torch.randn(900, 256, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(900, -1), rtol=1e-4, atol=1e-4)


def test_detection_draws_no_random_number(monkeypatch):
    monkeypatch.undo()
    module._slow_mkl.cache_clear()
    before = torch.get_rng_state()
    module._slow_mkl()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["torch", "oneDNN"])
def test_layer_on_pairs_equals_layer_on_concatenated_rows(dtype, close, bias, monkeypatch):
    monkeypatch.setattr(module, "MIN_PRODUCTS", 1)
    torch.manual_seed(0)
    layer = torch.nn.Linear(3 + 5 + 2, 7, bias=bias, dtype=dtype)
    one, other, pairs = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((4, 3), (6, 5), (11, 2)))
    # Some rows belong to several pairs, some to none.
    ones, others = torch.randint(3, (11,)), torch.randint(1, 6, (11,))
    assert module._pays(pairs, layer.weight) == (dtype == torch.float32)
    found = on_pairs(layer, one, ones, other, others, pairs)
    expected = layer(torch.cat([one[ones], other[others], pairs], dim=1))
    torch.testing.assert_close(found, expected, rtol=0, atol=close)
    inputs, weight = (one, other, pairs, *layer.parameters()), torch.randn_like(found)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)
    for gradient, expected_gradient in zip(
        torch.autograd.grad((found * weight).sum(), inputs), expected_gradients, strict=True
    ):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=10 * close)


def test_layer_on_no_pairs_is_empty():
    layer, none = torch.nn.Linear(6, 7), torch.zeros(0, dtype=torch.int64)
    assert on_pairs(layer, torch.randn(4, 3), none, torch.randn(2, 2), none, torch.zeros(0, 1)).shape == (0, 7)

"""Mixes of layers: one layer by one-hot shares, γ, layer norm over the whole tensor, several mixes, the penalty."""

import pytest
import torch

from ramify.nn.mix import LayerMixes, ScalarMix


def layers(count=3, tokens=7, dim=4):
    torch.manual_seed(0)
    return [torch.randn(tokens, dim, dtype=torch.float64) for _ in range(count)]


def mix(**settings):
    return ScalarMix(3, **settings).double()


def test_a_fresh_mix_is_the_mean():
    torch.testing.assert_close(mix()(layers()), torch.stack(layers()).mean(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_one_hot_shares_give_one_layer(chosen, near):
    made = mix()
    with torch.no_grad():
        made.logits.fill_(-1e4)[chosen] = 0.0
    near(made(layers()), layers()[chosen])


def test_gamma_scales():
    made = mix()
    before = made(layers())
    with torch.no_grad():
        made.gamma.fill_(2.5)
    torch.testing.assert_close(made(layers()), 2.5 * before, rtol=0, atol=1e-12)


def test_the_shares_are_a_softmax():
    made = mix()
    logits = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    with torch.no_grad():
        made.logits.copy_(logits)
    shares = logits.softmax(0)
    torch.testing.assert_close(made.weights, shares, rtol=0, atol=1e-12)
    expected = sum(share * layer for share, layer in zip(shares, layers(), strict=True))
    torch.testing.assert_close(made(layers()), expected, rtol=0, atol=1e-12)


def test_layer_norm_is_over_all_values_of_all_tokens():
    """As in bilm-tf: mean and variance are single numbers per layer."""
    expected = []
    for layer in layers():
        expected.append((layer - layer.mean()) / torch.sqrt(layer.var(unbiased=False) + 1e-12))
    found = mix(layer_norm=True)([5 * layer + 3 for layer in layers()])
    torch.testing.assert_close(found, torch.stack(expected).mean(0), rtol=0, atol=1e-10)
    assert mix(layer_norm=True)([layer[:0] for layer in layers()]).shape == (0, 4)


def test_several_mixes_learn_alone():
    mixes = LayerMixes(3, outputs=2, dropout=0.0, l2=0.1).double()
    one, other = mixes(layers())
    assert torch.equal(one, other)
    one.square().sum().backward()
    first, second = mixes.mixes
    assert first.logits.grad.any()
    assert first.gamma.grad.any()
    assert second.logits.grad is None
    assert mixes.penalty() == 0
    with torch.no_grad():
        first.logits.copy_(torch.tensor([1.0, 2.0, 0.0]))
        second.logits.copy_(torch.tensor([0.0, 0.0, 3.0]))
    assert mixes.penalty().item() == pytest.approx(0.1 * (1 + 4 + 9))


def test_dropout_is_on_the_output_in_training():
    torch.manual_seed(0)
    mixes = LayerMixes(1, dropout=0.5)
    (found,) = mixes([torch.ones(100, 20)])
    assert set(found.unique().tolist()) == {0.0, 2.0}
    (found,) = mixes.eval()([torch.ones(100, 20)])
    assert found.unique().tolist() == [1.0]


def test_other_layers_are_refused():
    with pytest.raises(ValueError, match=r"a mix of 3 layers of one width cannot mix layers of widths \[4, 4\]"):
        mix()(layers(2))
    with pytest.raises(ValueError, match=r"widths \[4, 4, 3\]"):
        mix()([*layers(2), layers()[2][:, :3]])

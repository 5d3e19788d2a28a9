"""Generators, the generator of names, and discriminators."""

import pytest
import torch
from torch.nn import functional as F

from ramify.models.adversary import Discriminator, Generator, NamesGenerator


def test_a_generator_is_dense_layers_with_tanh_after_all_but_the_last():
    torch.manual_seed(0)
    own = Generator(6, 3, 10).double()
    z = own.noise(5)
    x = torch.tanh(F.linear(z, own.layers[0].weight, own.layers[0].bias))
    x = torch.tanh(F.linear(x, own.layers[1].weight, own.layers[1].bias))
    assert torch.allclose(own(z), F.linear(x, own.layers[2].weight, own.layers[2].bias))
    assert [tuple(layer.weight.shape) for layer in own.layers] == [(10, 6), (10, 10), (6, 10)]
    # One layer is a linear map.
    linear = Generator(6, 1, 10).double()
    zeros = z.new_zeros(5, 6)
    assert torch.allclose(linear(z) + linear(-z), 2 * linear(zeros))


def test_noise_is_normal_and_repeats_with_a_generator():
    own = Generator(4, 2, 8)
    one, other = (own.noise(20_000, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one, other)
    assert torch.allclose(one.mean(0), torch.zeros(4), atol=0.03)
    assert torch.allclose(one.T.cov(), torch.eye(4), atol=0.05)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_generated_vectors_start_with_the_moments_of_real_ones(layers):
    """In no more dimensions than the real ones have, and as near as noise allows."""
    torch.manual_seed(0)
    own = Generator(6, layers, 24)
    real = torch.randn(500, 3) @ torch.randn(3, 6) + torch.arange(6)
    own.start_at_moments(real, torch.Generator().manual_seed(1))
    made = own(own.noise(50_000)).detach()
    assert torch.allclose(made.mean(0), real.mean(0), atol=0.05)
    assert torch.allclose(made.T.cov(), real.T.cov(), atol=0.15)
    assert torch.linalg.matrix_rank(made - made.mean(0), rtol=1e-4) == 3


def test_components_beyond_a_narrow_layer_stay_at_their_mean():
    torch.manual_seed(0)
    own = Generator(6, 2, 2)
    own.start_at_moments(torch.randn(500, 6) * torch.arange(1, 7), torch.Generator().manual_seed(1))
    assert torch.linalg.matrix_rank(own.last.weight) == 2
    assert torch.isfinite(own(own.noise(5))).all()


def plain(own, children):
    """Kim's network without dropout, one window after the other."""
    logits = []
    for matrix in children:
        pooled = []
        for filters in own.filters:
            conv, width = filters.conv, filters.conv.weight.shape[2]
            zeros = max(one.conv.weight.shape[2] for one in own.filters) - 1
            padded = F.pad(matrix, (0, 0, zeros, zeros))
            windows = [padded[start : start + width] for start in range(len(padded) - width + 1)]
            maps = [torch.relu((conv.weight[..., 0] * window.T).sum((1, 2)) + conv.bias) for window in windows]
            pooled.append(torch.stack(maps).amax(0))
        logits.append(F.linear(torch.cat(pooled), own.out.weight, own.out.bias)[0])
    return torch.stack(logits)


@pytest.mark.parametrize(("places", "widths"), [(7, [3, 4, 5]), (4, [3, 4]), (2, [2])])
def test_a_discriminator_is_kims_network(places, widths):
    torch.manual_seed(0)
    own = Discriminator(6, places, maps=5).double().eval()
    assert [filters.conv.weight.shape[2] for filters in own.filters] == widths
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    children = torch.randn(3, places, 6, dtype=torch.float64)
    assert torch.allclose(own(children), plain(own, children))


def test_a_discriminator_starts_at_the_prior_and_learns():
    torch.manual_seed(0)
    own = Discriminator(6, 4)
    children = torch.randn(3, 4, 6)
    assert torch.equal(own(children), torch.zeros(3))
    own(children).sum().backward()
    assert own.out.weight.grad.abs().sum() > 0


def test_the_norm_of_the_last_layer_is_bounded():
    own = Discriminator(6, 4, maps=2)
    with torch.no_grad():
        own.out.weight.fill_(5.0)
    own.bound(3.0)
    assert float(own.out.weight.norm()) == pytest.approx(3.0, rel=1e-4)
    with torch.no_grad():
        own.out.weight.fill_(0.1)
    own.bound(3.0)
    assert torch.equal(own.out.weight, torch.full_like(own.out.weight, 0.1))


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    own = Discriminator(6, 4)
    torch.nn.init.normal_(own.out.weight)
    children = torch.randn(3, 4, 6)
    assert not torch.equal(own(children), own(children))
    own.eval()
    assert torch.equal(own(children), own(children))


def test_names_are_generated_question_by_question():
    torch.manual_seed(0)
    own = NamesGenerator(4, 9, 2, 16).double()
    questions, documents = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 9, dtype=torch.float64)
    z = torch.randn(2, 1, 4, dtype=torch.float64)
    answers = own(questions, documents, z)
    assert answers.shape == (2, 3, 4)
    for document in range(2):
        for question in range(3):
            state = own.of_document(torch.cat([questions[question], documents[document]]))
            expected = own.generator(torch.cat([state, z[document, 0]])[None])[0]
            assert torch.allclose(answers[document, question], expected)
    # Noise of its own for each answer.
    each = z.expand(2, 3, 4)
    assert torch.allclose(own(questions, documents, each), answers)

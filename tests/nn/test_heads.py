"""The vocabulary loss in chunks against torch's cross-entropy over all logits at once."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ramify.nn import heads
from ramify.nn.heads import VocabularyHead

DIM, VOCAB = 6, 11


def head_and_inputs(*, transform=False, tied=False, positions=13):
    torch.manual_seed(0)
    embedding = nn.Embedding(VOCAB, DIM) if tied else None
    head = VocabularyHead(DIM, VOCAB, transform=transform, embedding=embedding).double()
    nn.init.normal_(head.bias)
    x = torch.randn(positions, DIM, dtype=torch.float64, requires_grad=True)
    return head, x, torch.randint(VOCAB, (positions,)), torch.rand(positions, dtype=torch.float64)


@pytest.mark.parametrize("transform", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 13, 100])
def test_loss_is_weighted_cross_entropy(monkeypatch, transform, tied, chunk):
    """The value and all gradients are right for every chunk size."""
    monkeypatch.setattr(heads, "MAX_LOGITS", chunk * VOCAB)
    head, x, labels, weights = head_and_inputs(transform=transform, tied=tied)
    found = head.loss(x, labels, weights)
    expected = (F.cross_entropy(head(x), labels, reduction="none") * weights).sum()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    inputs = (x, *head.parameters())
    expected_gradients = torch.autograd.grad(3.0 * expected, inputs)
    for gradient, expected_gradient in zip(torch.autograd.grad(3.0 * found, inputs), expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


def test_only_the_logits_of_one_chunk_are_in_memory(monkeypatch):
    monkeypatch.setattr(heads, "MAX_LOGITS", 4 * VOCAB)
    head, x, labels, weights = head_and_inputs()
    sizes = []
    plain = heads.linear

    def watched(x, weight, bias=None):
        if bias is head.bias:
            sizes.append(len(x))
        return plain(x, weight, bias)

    monkeypatch.setattr(heads, "linear", watched)
    head.loss(x, labels, weights)
    assert sizes == [4, 4, 4, 1]


def test_loss_with_frozen_parts(monkeypatch):
    monkeypatch.setattr(heads, "MAX_LOGITS", 4 * VOCAB)
    head, x, labels, weights = head_and_inputs()
    head.weight.requires_grad_(False)
    (found,) = torch.autograd.grad(head.loss(x, labels, weights), x)
    (expected,) = torch.autograd.grad((F.cross_entropy(head(x), labels, reduction="none") * weights).sum(), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_loss_without_labels():
    head, x, labels, weights = head_and_inputs(positions=0)
    loss = head.loss(x, labels, weights)
    loss.backward()
    assert loss.item() == 0.0
    assert head.weight.grad is not None
    assert (head.weight.grad == 0).all()


def test_loss_in_half_precision_stays_close():
    head, x, labels, weights = head_and_inputs(positions=200)
    exact = head.loss(x, labels, weights)
    half = head.to(torch.bfloat16).loss(x.to(torch.bfloat16), labels, weights.float())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), exact, rtol=0.02, atol=0)


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_measure(monkeypatch, chunk):
    monkeypatch.setattr(heads, "MAX_LOGITS", chunk * VOCAB)
    head, x, labels, _ = head_and_inputs(transform=True)
    losses, best = head.measure(x, labels)
    logits = head(x)
    torch.testing.assert_close(losses.double(), F.cross_entropy(logits, labels, reduction="none"), rtol=0, atol=1e-5)
    assert torch.equal(best, logits.argmax(-1))
    losses, best = head.measure(x[:0], labels[:0])
    assert (len(losses), len(best)) == (0, 0)

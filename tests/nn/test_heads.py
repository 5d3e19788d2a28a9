"""The losses over a vocabulary in chunks against torch's cross-entropy over all logits at once."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ramify.errors import RamifyError
from ramify.nn import heads
from ramify.nn.heads import BagOfWordsHead, Bags, VocabularyHead, start_projection

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
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_weighted_cross_entropy(monkeypatch, transform, tied, chunk, smoothing):
    """The value and all gradients are right for every chunk size."""
    monkeypatch.setattr(heads, "MAX_LOGITS", chunk * VOCAB)
    head, x, labels, weights = head_and_inputs(transform=transform, tied=tied)
    found = head.loss(x, labels, weights, smoothing=smoothing)
    expected = (F.cross_entropy(head(x), labels, reduction="none", label_smoothing=smoothing) * weights).sum()
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


def test_the_loss_has_no_double_backward():
    """A penalty on a gradient would lose its second derivative without a word."""
    head, x, labels, weights = head_and_inputs(transform=True)
    with pytest.raises(RamifyError, match=r"create_graph=True asks for the gradient of a gradient.*from the logits"):
        torch.autograd.grad(head.loss(x, labels, weights), x, create_graph=True)
    expected = (F.cross_entropy(head(x), labels, reduction="none") * weights).sum()
    (gradient,) = torch.autograd.grad(expected, x, create_graph=True)
    assert torch.autograd.grad(gradient.square().sum(), x)[0].any()


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


# --- bags of words ------------------------------------------------------------------------------------------------------------

EPS = 1e-5


def bag_head_and_inputs(rows=7):
    """Bags of unequal sizes, in no order: row 2 has no bag, row 3 has two, one piece occurs twice in a bag, and some weights
    are zero."""
    torch.manual_seed(0)
    embedding = nn.Parameter(torch.randn(VOCAB, DIM, dtype=torch.float64))
    head = BagOfWordsHead(nn.Linear(DIM, DIM, bias=False), embedding, EPS).double()
    nn.init.normal_(head.bias)
    vectors = (3 * torch.randn(rows, DIM, dtype=torch.float64) + 1).requires_grad_()
    row = torch.tensor([5, 3, 3, 0, 6, 3, 1, 1, 1, 4, 3, 5])
    piece = torch.tensor([1, 2, 3, 10, 0, 3, 7, 7, 4, 5, 9, 6])
    weight = torch.rand(12, dtype=torch.float64)
    weight[[4, 7]] = 0.0
    return head, vectors, Bags(row, piece, weight)


def slow_bag_loss(head, vectors, bags):
    """Word by word, by the formula of the head."""
    total = vectors.new_zeros(())
    for row, piece, weight in zip(bags.row.tolist(), bags.piece.tolist(), bags.weight):
        vector = vectors[row]
        normed = (vector - vector.mean()) / (((vector - vector.mean()) ** 2).mean() + EPS).sqrt()
        scores = head.weight @ (head.projection.weight @ normed) + head.bias
        total = total - weight * (scores[piece] - torch.logsumexp(scores, 0))
    return total


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_bag_of_words_loss(monkeypatch, chunk):
    """The value and all gradients are right for every chunk size."""
    monkeypatch.setattr(heads, "MAX_LOGITS", chunk * VOCAB)
    head, vectors, bags = bag_head_and_inputs()
    found, expected = head.loss(vectors, bags), slow_bag_loss(head, vectors, bags)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    inputs = (vectors, *head.parameters())
    assert len(inputs) == 4
    expected_gradients = torch.autograd.grad(3.0 * expected, inputs)
    assert (expected_gradients[0][[0, 1, 3, 4, 5]] != 0).any(1).all()
    for gradient, expected_gradient in zip(torch.autograd.grad(3.0 * found, inputs), expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-10)
    # A vector whose bag is empty or weighs nothing has no gradient, to the bit.
    (gradient,) = torch.autograd.grad(head.loss(vectors, bags), vectors)
    assert torch.equal(gradient[[2, 6]], torch.zeros(2, DIM, dtype=torch.float64))


def test_bag_of_words_scores():
    """`forward` gives the scores whose cross-entropy `loss` sums."""
    head, vectors, bags = bag_head_and_inputs()
    losses = F.cross_entropy(head(vectors)[bags.row], bags.piece, reduction="none")
    torch.testing.assert_close((losses * bags.weight).sum(), slow_bag_loss(head, vectors, bags), rtol=0, atol=1e-12)


def test_words_may_be_listed_in_any_order_and_added_up():
    """Two bags on one row are one bag; a word that is listed twice counts with the sum of its weights."""
    head, vectors, bags = bag_head_and_inputs()
    order = torch.randperm(12)
    shuffled = Bags(bags.row[order], bags.piece[order], bags.weight[order])
    # Word 2 and word 5 are the same piece of row 3.
    added = Bags(bags.row.clone(), bags.piece, bags.weight.clone())
    added.weight[2] += added.weight[5]
    added.weight[5] = 0.0
    expected = head.loss(vectors, bags)
    for each in (shuffled, added):
        torch.testing.assert_close(head.loss(vectors, each), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 7])
def test_no_words_give_no_loss(rows):
    head, vectors, bags = bag_head_and_inputs(rows)
    loss = head.loss(vectors, Bags(bags.row[:0], bags.piece[:0], bags.weight[:0]))
    loss.backward()
    assert loss.item() == 0.0
    for tensor in (vectors, *head.parameters()):
        assert tensor.grad is not None
        assert (tensor.grad == 0).all()


@pytest.mark.parametrize("frozen", ["projection.weight", "weight", "bias"])
def test_bag_of_words_loss_with_frozen_parts(frozen):
    head, vectors, bags = bag_head_and_inputs()
    head.get_parameter(frozen).requires_grad_(False)
    inputs = (vectors, *(parameter for parameter in head.parameters() if parameter.requires_grad))
    expected = torch.autograd.grad(slow_bag_loss(head, vectors, bags), inputs)
    for gradient, expected_gradient in zip(torch.autograd.grad(head.loss(vectors, bags), inputs), expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-10)


def test_bag_of_words_loss_in_half_precision_stays_close():
    head, vectors, bags = bag_head_and_inputs()
    exact = head.loss(vectors, bags)
    with torch.autocast("cpu", torch.bfloat16):
        half = head.float().loss(vectors.float(), Bags(bags.row, bags.piece, bags.weight.float()))
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), exact, rtol=0.02, atol=0)
    assert half.double() != exact


def test_fresh_projection_predicts_the_words_of_a_vector():
    """Vectors that are embeddings have their own word as the first choice."""
    torch.manual_seed(0)
    embedding = nn.Parameter(torch.randn(VOCAB, 32))
    head = BagOfWordsHead(nn.Linear(32, 32, bias=False), embedding, EPS)
    start_projection(head.projection)
    assert torch.equal(head(embedding).argmax(1), torch.arange(VOCAB))

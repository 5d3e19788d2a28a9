"""Positions and embeddings."""

import math

import pytest
import torch
from torch import nn

from ramify.nn.embeddings import Embeddings, PositionTable, init_weights, sinusoids


@pytest.mark.parametrize("dim", [6, 7, 64])
def test_sinusoids(dim):
    """PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos of the same."""
    table = sinusoids(40, dim)
    for position in (0, 1, 17, 39):
        for column in range(dim):
            angle = position / 10000 ** (2 * (column // 2) / dim)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert math.isclose(float(table[position, column]), expected, abs_tol=2e-5)


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_positions_past_the_table_share_its_last_row(kind):
    table = PositionTable(4, 6, kind)
    init_weights(table)
    assert isinstance(table.weight, nn.Parameter) == (kind == "learned")
    rows = table(torch.tensor([0, 3, 4, 1000]))
    assert torch.equal(rows[1], rows[2])
    assert torch.equal(rows[1], rows[3])
    assert not torch.equal(rows[0], rows[1])


def test_sum_of_parts():
    torch.manual_seed(0)
    embeddings = Embeddings(nn.Embedding(9, 6), 5, type_vocab_size=2, scale=True, norm=True, dropout=0.0)
    init_weights(embeddings)
    assert embeddings.types is not None
    assert embeddings.norm is not None
    ids, positions, types = torch.tensor([3, 4, 8]), torch.tensor([0, 1, 0]), torch.tensor([0, 1, 1])
    plain = embeddings.tokens.weight[ids] * math.sqrt(6) + embeddings.positions.weight[positions]
    expected = embeddings.norm(plain + embeddings.types.weight[types])
    torch.testing.assert_close(embeddings(ids, positions, types), expected)
    # Without types every token has the first type.
    torch.testing.assert_close(embeddings(ids, positions), embeddings.norm(plain + embeddings.types.weight[0]))


def test_initial_weights():
    torch.manual_seed(0)
    module = nn.ModuleDict({"a": nn.Linear(200, 300), "b": nn.Embedding(300, 200), "c": PositionTable(300, 200)})
    init_weights(module)
    for weight in (module["a"].weight, module["b"].weight, module["c"].weight):
        assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.02)
        assert abs(float(weight.detach().mean())) < 1e-3
    assert (module["a"].bias == 0).all()

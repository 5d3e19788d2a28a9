"""Output layers of spans: the end given the start, and whether there is a span at all, as XLNet has them (Yang et al. 2019)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.nn.dropout import dropout

EPS = 1e-12


def _normal(*layers: nn.Linear) -> None:
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.02)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


class ConditionalEnd(nn.Module):
    """The score of each token as the end of a span, from its state and the start's: w · LayerNorm(tanh(W [h; h_start]))."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.output = nn.Linear(dim, 1)
        _normal(self.hidden, self.output)

    def of_tokens(self, states: Float[Tensor, "token dim"]) -> Float[Tensor, "token dim"]:
        """The part of W [h; h_start] that does not depend on the start."""
        return F.linear(states, self.hidden.weight[:, : states.shape[1]])

    def forward(self, of_tokens: Float[Tensor, "token dim"], starts: Float[Tensor, "token dim"]) -> Float[Tensor, " token"]:
        """The scores, given `of_tokens` and the state of the start for each token."""
        hidden = of_tokens + F.linear(starts, self.hidden.weight[:, starts.shape[1] :], self.hidden.bias)
        return self.output(self.norm(torch.tanh(hidden)))[:, 0]


class Answerability(nn.Module):
    """The score of no answer, from the expected state of the start and that of a special token: w · tanh(W [Σ p h; h_null])."""

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * dim, dim)
        self.output = nn.Linear(dim, 1, bias=False)
        self.rate = rate
        _normal(self.hidden, self.output)

    def forward(self, starts: Float[Tensor, "row dim"], null: Float[Tensor, "row dim"]) -> Float[Tensor, " row"]:
        hidden = torch.tanh(self.hidden(torch.cat([starts, null], 1)))
        return self.output(dropout(hidden, self.rate, self.training))[:, 0]

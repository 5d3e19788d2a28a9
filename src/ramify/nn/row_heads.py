"""One vector per row from the states of its tokens, as classifiers of texts read them."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows

Place = Literal["first", "last"]


class TokenPooler(nn.Module):
    """A function of a linear map of one token's state: BERT's pooler (Devlin et al. 2019) on the first token, and XLNet's
    summary (Yang et al. 2019) on the last one. A row without tokens has the zero vector."""

    def __init__(self, dim: int, place: Place, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.place: Place = place
        self.activation = activation
        self.hidden = nn.Linear(dim, dim)
        nn.init.trunc_normal_(self.hidden.weight, std=0.02, a=-0.04, b=0.04)
        nn.init.zeros_(self.hidden.bias)

    def forward(self, x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "row dim"]:
        pooled = self.activation(self.hidden(token_states(x, rows, self.place)))
        return pooled.masked_fill((rows.lengths == 0)[:, None], 0.0)


def token_states(x: Float[Tensor, "total dim"], rows: Rows, place: Place) -> Float[Tensor, "row dim"]:
    """The state of the first or the last token of each row; zeros for a row without tokens."""
    if rows.total == 0:
        return x.new_zeros(len(rows), x.shape[1])
    index = rows.offsets[:-1] if place == "first" else rows.offsets[1:] - 1
    states = x.index_select(0, index.to(torch.int64).clamp(0, rows.total - 1))
    return states.masked_fill((rows.lengths == 0)[:, None], 0.0)


def mean_states(x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "row dim"]:
    """The mean state of the tokens of each row; zeros for a row without tokens."""
    return Pool("mean", x.shape[1])(x, rows)

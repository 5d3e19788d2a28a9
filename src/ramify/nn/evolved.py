"""The encoder and decoder of the Evolved Transformer (So et al. 2019, figure 3).

Every block begins with a LayerNorm, and ends with dropout and a residual connection.
An encoder cell has 21.5 dim² + 64 dim parameters, a decoder cell 28.5 dim² + 62.5 dim.
"""

from abc import ABC
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.errors import RamifyError
from ramify.nn.attention import Allowed, LayerWeights, Weights
from ramify.nn.blocks import EPS, Attention, LayerPrefixes, RowDecoder, RowEncoder, States, causal_mask, check_heads
from ramify.nn.convolution import Convolution, SeparableConvolution
from ramify.nn.dropout import add_dropout
from ramify.nn.dropout import dropout as drop
from ramify.nn.linear import Linear
from ramify.nn.ragged import Rows, with_equal_groups

MOST_HEADS = 16
"""A decoder cell begins with twice as many heads, but doubles them no further than this."""


class EvolvedEncoder(RowEncoder):
    """A sequence of encoder cells, and a LayerNorm."""

    def __init__(
        self, dim: int, num_heads: int, num_cells: int, *, dropout: float = 0.1, attention_dropout: float = 0.1
    ) -> None:
        super().__init__()
        _check_sizes(dim, num_heads)
        self.cells = nn.ModuleList(EncoderCell(dim, num_heads, dropout, attention_dropout) for _ in range(num_cells))
        self.final_norm = nn.LayerNorm(dim, EPS)

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        record: list[LayerWeights] | None = None,
        states: States | None = None,
    ) -> Float[Tensor, "total dim"]:
        for cell in self.cells:
            if states is not None:
                states.append(x)
            x = cell(x, rows, record)
        return self.final_norm(x)

    def layer_prefixes(self) -> LayerPrefixes:
        prefixes = [(f"cells.{number}.",) for number in range(len(self.cells))]
        return (*prefixes[:-1], (*prefixes[-1], "final_norm."))


class EvolvedDecoder(RowDecoder):
    """A sequence of decoder cells, and a LayerNorm. If it is `causal`, a token sees nothing of those after it."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_cells: int,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        causal: bool,
    ) -> None:
        super().__init__()
        _check_sizes(dim, num_heads)
        if dim % first_heads(num_heads):
            raise RamifyError(
                f"dim={dim} must be a multiple of {first_heads(num_heads)}: with num_heads={num_heads}, the first "
                "self-attention of a decoder cell has that many heads."
            )
        self.causal = causal
        self.cells = nn.ModuleList(
            DecoderCell(dim, num_heads, dropout, attention_dropout, causal=causal) for _ in range(num_cells)
        )
        self.final_norm = nn.LayerNorm(dim, EPS)

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        encoder_output: Float[Tensor, "key dim"],
        encoder_rows: Rows,
        record: list[LayerWeights] | None = None,
    ) -> Float[Tensor, "total dim"]:
        """Every cell appends two layers to `record`: its first block, and its later two blocks of attention."""
        allowed = causal_mask(rows) if self.causal else None
        readers, encoder_rows = with_equal_groups(rows, encoder_rows)
        for cell in self.cells:
            x = cell(x, rows, allowed, EncoderOutput(encoder_output, readers, encoder_rows), record)
        return self.final_norm(x)


def first_heads(num_heads: int) -> int:
    """The number of heads of a decoder cell's first self-attention."""
    return max(num_heads, min(2 * num_heads, MOST_HEADS))


def _check_sizes(dim: int, num_heads: int) -> None:
    if dim % 2:
        raise RamifyError(f"dim={dim} must be even, because some convolutions have half as many channels.")
    check_heads(dim, num_heads)


@dataclass(frozen=True)
class EncoderOutput:
    """The encoder's states that the tokens of a decoder attend to."""

    states: Float[Tensor, "key dim"]
    readers: Rows
    """The rows of the decoder, with the groups of `rows`."""
    rows: Rows


class _Cell(nn.Module, ABC):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout, self.training)

    def _add(self, residual: Tensor, x: Tensor) -> Tensor:
        return add_dropout(residual, x, self.dropout, self.training)


class EncoderCell(_Cell):
    """A gated linear unit, branched convolutions, self-attention and a feed-forward."""

    def __init__(self, dim: int, num_heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__(dropout)
        self.gate_norm = nn.LayerNorm(dim, EPS)
        self.gate = Linear(dim, 2 * dim)
        self.branch_norm = nn.LayerNorm(dim, EPS)
        self.left = Linear(dim, 4 * dim)
        self.right = Convolution(dim, dim // 2, 3)
        self.joined_norm = nn.LayerNorm(4 * dim, EPS)
        self.joined = SeparableConvolution(4 * dim, dim // 2, 9)
        self.attention_norm = nn.LayerNorm(dim, EPS)
        self.attention = Attention(dim, num_heads, attention_dropout, bias=False)
        self.ffn_norm = nn.LayerNorm(dim, EPS)
        self.ffn_in = Linear(dim, 4 * dim)
        self.ffn_out = Linear(4 * dim, dim)

    def forward(
        self, x: Float[Tensor, "total dim"], rows: Rows, record: list[LayerWeights] | None = None
    ) -> Float[Tensor, "total dim"]:
        x = self._add(x, F.glu(self.gate(self.gate_norm(x))))

        h = self.branch_norm(x)
        left, right = self._drop(F.relu(self.left(h))), self._drop(F.relu(self.right(h, rows)))
        joined = self.joined(self.joined_norm(_widened(left, right)), rows)
        x = _widened(x, self._drop(joined))

        h = self.attention_norm(x)
        (weights,) = _added_to(record, "self")
        x = self._add(x, self.attention(h, h, rows, rows, record=weights))

        hidden = self._drop(F.relu(self.ffn_in(self.ffn_norm(x))))
        return self._add(x, self.ffn_out(hidden))


class DecoderCell(_Cell):
    """Self-attention beside attention to the encoder, branched convolutions, then each attention again, and a feed-forward."""

    def __init__(self, dim: int, num_heads: int, dropout: float, attention_dropout: float, *, causal: bool) -> None:
        super().__init__(dropout)
        self.first_norm = nn.LayerNorm(dim, EPS)
        self.first_attention = Attention(dim, first_heads(num_heads), attention_dropout, bias=False)
        self.first_cross = Attention(dim, num_heads, attention_dropout, bias=False)
        self.branch_norm = nn.LayerNorm(dim, EPS)
        self.left = SeparableConvolution(dim, 2 * dim, 11, causal=causal)
        self.right = SeparableConvolution(dim, dim // 2, 7, causal=causal)
        self.joined_norm = nn.LayerNorm(2 * dim, EPS)
        self.joined = SeparableConvolution(2 * dim, dim, 7, causal=causal)
        self.attention_norm = nn.LayerNorm(dim, EPS)
        self.attention = Attention(dim, num_heads, attention_dropout, bias=False)
        self.cross_norm = nn.LayerNorm(dim, EPS)
        self.cross = Attention(dim, num_heads, attention_dropout, bias=False)
        self.ffn_norm = nn.LayerNorm(dim, EPS)
        self.ffn_in = Linear(dim, 4 * dim)
        self.hidden_norm = nn.LayerNorm(4 * dim, EPS)
        """In the authors' code, not in the paper's figure."""
        self.ffn_out = Linear(4 * dim, dim)

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        allowed: Allowed | None,
        encoded: EncoderOutput,
        record: list[LayerWeights] | None = None,
    ) -> Float[Tensor, "total dim"]:
        h = self.first_norm(x)
        self_weights, cross_weights = _added_to(record, "self", "cross")
        x = self._add(x, self.first_attention(h, h, rows, rows, allowed, self_weights))
        x = self._add(x, self.first_cross(h, encoded.states, encoded.readers, encoded.rows, record=cross_weights))

        h = self.branch_norm(x)
        left, right = self._drop(F.relu(self.left(h, rows))), self._drop(self.right(h, rows))
        x = self._add(x, self.joined(self.joined_norm(_widened(left, right)), rows))

        h = self.attention_norm(x)
        self_weights, cross_weights = _added_to(record, "self", "cross")
        x = self._add(x, self.attention(h, h, rows, rows, allowed, self_weights))
        h = self.cross_norm(x)
        x = self._add(x, self.cross(h, encoded.states, encoded.readers, encoded.rows, record=cross_weights))

        hidden = self._drop(F.silu(self.ffn_in(self.ffn_norm(x))))
        return self._add(x, self.ffn_out(self.hidden_norm(hidden)))


def _widened(x: Float[Tensor, "total wide"], narrow: Float[Tensor, "total narrow"]) -> Float[Tensor, "total wide"]:
    """The sum of both, the narrow one followed by zeros."""
    return x + F.pad(narrow, (0, x.shape[1] - narrow.shape[1]))


def _added_to(record: list[LayerWeights] | None, *kinds: str) -> list[Weights | None]:
    """A list for the weights of each kind of attention, as a new layer of `record`."""
    if record is None:
        return [None for _ in kinds]
    layer: LayerWeights = {kind: [] for kind in kinds}
    record.append(layer)
    return [layer[kind] for kind in kinds]

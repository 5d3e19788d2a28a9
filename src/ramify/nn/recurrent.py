"""Recurrence along rows: RNN, GRU and LSTM on the flat axis, without padding."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.backends import cudnn
from torch.nn.utils.rnn import PackedSequence

from ramify.nn.dropout import dropout
from ramify.nn.linear import linear
from ramify.nn.ragged import Rows, eager, inverse, on_device, reorder

Cell = Literal["rnn", "gru", "lstm"]
"""rnn: h' = tanh(W x + U h + b) (Elman 1990). gru: Cho et al. 2014. lstm: Hochreiter & Schmidhuber 1997, with a forget gate.
They compute what torch's modules of these names compute."""

Direction = Literal["forward", "backward", "both"]
"""The direction in which rows are read. both: two chains of states, one in each direction, side by side."""

CELLS: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}

BACKWARD: dict[Direction, tuple[bool, ...]] = {"forward": (False,), "backward": (True,), "both": (False, True)}
"""Whether each chain of states runs from the last token of a row to the first."""


@dataclass(frozen=True)
class Packing:
    """Torch's packed form of rows, which has no padding: all first tokens, then all second tokens …, those of long rows
    first."""

    to_packed: Int[Tensor, " total"]
    to_flat: Int[Tensor, " total"]
    sizes: Int[Tensor, " step"]
    """The number of rows that have a token at each step, on the host."""
    order: Int[Tensor, " filled"]
    """The rows that have tokens, longest first."""

    @classmethod
    def of(cls, rows: Rows, *, backward: bool = False) -> "Packing":
        """`backward`: the last token of each row is its first."""
        device, lengths = rows.lengths.device, rows.host_lengths
        row = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(rows.total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        step = lengths[row] - 1 - position if backward else position
        order = np.lexsort((row, -lengths[row], step))
        indices = (order, inverse(order), row[order][: np.count_nonzero(lengths)])
        to_packed, to_flat, first = (on_device(index, device) for index in indices)
        return cls(to_packed, to_flat, torch.from_numpy(np.bincount(position)), first)

    def pack(self, x: Float[Tensor, "total dim"]) -> PackedSequence:
        return PackedSequence(reorder(x, self.to_packed, self.to_flat), self.sizes)

    def unpack(self, x: Float[Tensor, "total dim"]) -> Float[Tensor, "total dim"]:
        return reorder(x, self.to_flat, self.to_packed)


class BiLSTM(nn.Module):
    """A bidirectional LSTM (Hochreiter & Schmidhuber 1997): the states of both directions for every token."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(dim, hidden, bidirectional=True)

    @property
    def out_dim(self) -> int:
        return 2 * self.lstm.hidden_size

    @eager
    def forward(self, x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "total out"]:
        if rows.total == 0:
            return x.new_zeros(0, self.out_dim)
        packing = Packing.of(rows)
        return packing.unpack(self.lstm(packing.pack(x))[0].data)


@dataclass(frozen=True)
class RecurrentState:
    """The states that the next tokens of each row continue from, layer by layer and chain by chain."""

    hidden: Float[Tensor, "layer chain row out"]
    cell: Float[Tensor, "layer chain row hidden"] | None
    """The memory cells of an LSTM; None: other cells have none."""

    def reorder(self, index: Int[Tensor, " kept"]) -> "RecurrentState":
        """The states of other rows: `index` may repeat rows and leave some out."""
        cell = None if self.cell is None else self.cell.index_select(2, index)
        return RecurrentState(self.hidden.index_select(2, index), cell)

    def detach(self) -> "RecurrentState":
        return RecurrentState(self.hidden.detach(), None if self.cell is None else self.cell.detach())


@dataclass(frozen=True)
class Recurrence:
    """What recurrent layers compute of rows."""

    layers: tuple[Float[Tensor, "total out"], ...]
    """The states of every token, layer by layer. Both chains stand side by side."""
    state: RecurrentState
    """The states behind each row: of a backward chain, those of its first token. A row without tokens keeps the states that it
    had."""


class Recurrent(nn.Module):
    """Layers of recurrent cells.

    Dropout applies to the input of each layer. A layer of one chain reads what all chains of the layer below have written.
    """

    layers: nn.ModuleList

    def __init__(
        self,
        cell: Cell,
        dim: int,
        hidden: int,
        *,
        num_layers: int = 1,
        direction: Direction = "forward",
        projection: int | None = None,
        residual: bool = False,
        dropout: float = 0.0,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
        single_bias: bool = False,
    ) -> None:
        """`hidden` is the size of each cell in one direction.

        An LSTM may have a `projection` of its output to a smaller size (Sak et al. 2014), which is also what its next step
        reads. `residual` adds its input, after dropout, to every layer but the first. The clips bound the memory cells and the
        projected outputs of an LSTM. With `single_bias`, the second of torch's two biases is always zero, and no parameter.
        Raises `ValueError` for a projection or a clip of another cell, and for `projection_clip` without a projection.
        """
        super().__init__()
        if cell != "lstm" and not projection is cell_clip is projection_clip is None:
            raise ValueError(f"a projection and clips need an lstm, but the cell is {cell}")
        if projection is None and projection_clip is not None:
            raise ValueError(f"projection_clip={projection_clip} needs a projection")
        self.direction: Direction = direction
        self.hidden = hidden
        self.chain_dim = hidden if projection is None else projection
        self.residual = residual
        self.dropout = dropout
        self.has_cells = cell == "lstm"
        widths = (dim, *[self.out_dim] * (num_layers - 1))
        settings = (hidden, projection, cell_clip, projection_clip, single_bias)
        self.layers = nn.ModuleList(
            nn.ModuleList(Chain(cell, width, *settings) for _ in BACKWARD[direction]) for width in widths
        )

    @property
    def out_dim(self) -> int:
        """The length of a token's state, with those of both chains."""
        return self.chain_dim * len(BACKWARD[self.direction])

    def start(self, like: Float[Tensor, "*axes dim"], num_rows: int) -> RecurrentState:
        """The state before any token: zeros."""
        shape = (len(self.layers), len(BACKWARD[self.direction]), num_rows)
        cell = like.new_zeros(*shape, self.hidden) if self.has_cells else None
        return RecurrentState(like.new_zeros(*shape, self.chain_dim), cell)

    @eager
    def forward(self, x: Float[Tensor, "total dim"], rows: Rows, state: RecurrentState | None = None) -> Recurrence:
        """Read the tokens of rows from the states that they had before them; None: `start`."""
        state = self.start(x, len(rows)) if state is None else state
        if rows.total == 0:
            return Recurrence((x.new_zeros(0, self.out_dim),) * len(self.layers), state)
        packings = [Packing.of(rows, backward=backward) for backward in BACKWARD[self.direction]]
        outputs, hidden, cells = [], [], []
        for number, chains in enumerate(self.layers):
            assert isinstance(chains, nn.ModuleList)
            x = dropout(x, self.dropout, self.training)
            written = []
            for place, (chain, packing) in enumerate(zip(chains, packings, strict=True)):
                before = None if state.cell is None else state.cell[number, place]
                out, after, cell = chain(x, packing, state.hidden[number, place], before)
                written.append(out)
                hidden.append(after)
                cells.append(cell)
            joined = written[0] if len(written) == 1 else torch.cat(written, 1)
            x = joined + x if self.residual and number else joined
            outputs.append(x)
        cell = None if state.cell is None else torch.stack(cells).view_as(state.cell)
        return Recurrence(tuple(outputs), RecurrentState(torch.stack(hidden).view_as(state.hidden), cell))


class Chain(nn.Module):
    """One layer in one direction."""

    cells: nn.RNNBase

    def __init__(
        self,
        cell: Cell,
        dim: int,
        hidden: int,
        projection: int | None,
        cell_clip: float | None,
        projection_clip: float | None,
        single_bias: bool,
    ) -> None:
        super().__init__()
        self.cells = CELLS[cell](dim, hidden, **({} if projection is None else {"proj_size": projection}))
        if single_bias:
            second: Any = self.cells.bias_hh_l0
            del self.cells.bias_hh_l0
            self.cells.register_buffer("bias_hh_l0", torch.zeros_like(second.data), persistent=False)
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        packing: Packing,
        hidden: Float[Tensor, "row out"],
        cell: Float[Tensor, "row hidden"] | None,
    ) -> tuple[Float[Tensor, "total out"], Float[Tensor, "row out"], Float[Tensor, "row hidden"] | None]:
        """The state of each token, and the states behind each row."""
        packed = packing.pack(x)
        starts = [part.index_select(0, packing.order) for part in (hidden, cell) if part is not None]
        # On CPU, torch takes much longer for an LSTM: autograd sums the gradients of its weights step by step.
        if cell is None or (x.is_cuda and self.cell_clip is None and self.projection_clip is None):
            # Torch's modules take a hidden state alone, or a pair of states with an axis of layers.
            first, *others = (part[None] for part in starts)
            # cuDNN has no gradients of a module that does not train.
            with nullcontext() if self.training or not torch.is_grad_enabled() else cudnn.flags(enabled=False):
                output, ends = self.cells(packed, (first, *others) if others else first)
            data, ends = output.data, [part[0] for part in (ends if others else (ends,))]
        else:
            data, ends = self._step_by_step(packed.data, packing.sizes.tolist(), *starts)
        befores = (part for part in (hidden, cell) if part is not None)
        after = [before.index_copy(0, packing.order, end.to(before.dtype)) for before, end in zip(befores, ends, strict=True)]
        return packing.unpack(data), after[0], None if cell is None else after[1]

    def _step_by_step(
        self,
        x: Float[Tensor, "total dim"],
        sizes: Sequence[int],
        hidden: Float[Tensor, "filled out"],
        cell: Float[Tensor, "filled hidden"],
    ) -> tuple[Float[Tensor, "total out"], list[Float[Tensor, "filled _size"]]]:
        """The LSTM of torch, with clips, on packed rows."""
        weights: Any = self.cells
        project = weights.weight_hr_l0 if weights.proj_size else None
        inputs = linear(x, weights.weight_ih_l0, weights.bias_ih_l0 + weights.bias_hh_l0)
        # Steps are small, and their sums are long: half precision would gain little and lose much.
        with torch.autocast(x.device.type, enabled=False):
            weight = weights.weight_hh_l0
            inputs, hidden, cell = (tensor.to(weight.dtype) for tensor in (inputs, hidden, cell))
            tensors = (inputs, weight, project, hidden, cell)
            apply: Any = _Steps.apply
            output, *ends = apply(*tensors, tuple(sizes), self.cell_clip, self.projection_clip)
        return output, ends


class _Steps(torch.autograd.Function):
    """The steps of an LSTM from its gates' inputs. The gradient of each weight is one product over all steps.

    A gradient has no gradient itself, which torch says (`once_differentiable`)."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        project: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
        sizes: Sequence[int],
        cell_clip: float | None,
        projection_clip: float | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs, and the states behind each row."""
        total, size = len(inputs), cell.shape[1]
        gates = inputs.clone()
        cells, bent, cells_before = (inputs.new_empty(total, size) for _ in range(3))
        raw = inputs.new_empty(total, size)
        output = raw if project is None else inputs.new_empty(total, hidden.shape[1])
        before = torch.empty_like(output)
        last_hidden, last_cell = torch.empty_like(hidden), torch.empty_like(cell)
        start, filled = 0, len(hidden)
        for count in sizes:
            # Shorter rows stand last.
            last_hidden[count:filled], last_cell[count:filled] = hidden[count:], cell[count:]
            hidden, cell, filled = hidden[:count], cell[:count], count
            step = slice(start, start + count)
            before[step], cells_before[step] = hidden, cell
            enter, keep, new, leave = gates[step].addmm_(hidden, weight.t()).chunk(4, 1)
            new.tanh_()
            for gate in (enter, keep, leave):
                gate.sigmoid_()
            cell = torch.mul(keep, cell, out=cells[step]).addcmul_(enter, new)
            if cell_clip is not None:
                cell.clamp_(-cell_clip, cell_clip)
            hidden = torch.mul(leave, torch.tanh(cell, out=bent[step]), out=raw[step])
            if project is not None:
                hidden = torch.mm(hidden, project.t(), out=output[step])
                if projection_clip is not None:
                    hidden.clamp_(-projection_clip, projection_clip)
            start += count
        last_hidden[:filled], last_cell[:filled] = hidden, cell
        ctx.save_for_backward(weight, project, gates, cells, bent, raw, output, before, cells_before)
        ctx.settings = sizes, cell_clip, projection_clip
        return output, last_hidden, last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        of_output, of_last_hidden, of_last_cell = gradients
        weight, project, gates, cells, bent, raw, output, before, cells_before = ctx.saved_tensors
        sizes, cell_clip, projection_clip = ctx.settings
        of_gates, of_hidden = torch.empty_like(gates), of_output.clone()
        carried, carried_cell = of_last_hidden[:0], of_last_cell[:0]
        stop = len(gates)
        for count in reversed(sizes):
            step = slice(stop - count, stop)
            stop -= count
            # Rows that end here get the gradient of their last states.
            ended = slice(len(carried), count)
            hidden = of_hidden[step].add_(torch.cat([carried, of_last_hidden[ended]]))
            if project is not None:
                if projection_clip is not None:
                    hidden.mul_(output[step].abs() < projection_clip)
                hidden = hidden @ project
            cell = torch.cat([carried_cell, of_last_cell[ended]])
            enter, keep, new, leave = gates[step].chunk(4, 1)
            of_enter, of_keep, of_new, of_leave = of_gates[step].chunk(4, 1)
            cell += hidden * leave * (1 - bent[step].square())
            if cell_clip is not None:
                cell *= cells[step].abs() < cell_clip
            torch.mul(cell * new, enter * (1 - enter), out=of_enter)
            torch.mul(cell * cells_before[step], keep * (1 - keep), out=of_keep)
            torch.mul(cell * enter, 1 - new.square(), out=of_new)
            torch.mul(hidden * bent[step], leave * (1 - leave), out=of_leave)
            carried, carried_cell = of_gates[step] @ weight, cell * keep
        of_project = None if project is None else of_hidden.t() @ raw
        return of_gates, of_gates.t() @ before, of_project, carried, carried_cell, None, None, None


def final_states(states: Float[Tensor, "total out"], rows: Rows, direction: Direction = "both") -> Float[Tensor, "row out"]:
    """The state of each chain after its whole row: forward at the last token, backward at the first one.

    An empty row has zeros, the state before any token."""
    if rows.total == 0:
        return states.new_zeros(len(rows), states.shape[1])
    offsets = rows.offsets.to(torch.int64)
    # Those of an empty row may lie outside the axis.
    first, last = offsets[:-1].clamp(max=rows.total - 1), (offsets[1:] - 1).clamp(min=0)
    chains = BACKWARD[direction]
    ends = [
        part.index_select(0, first if backward else last)
        for part, backward in zip(states.chunk(len(chains), dim=1), chains, strict=True)
    ]
    final = ends[0] if len(ends) == 1 else torch.cat(ends, 1)
    if rows.host_lengths.min() > 0:
        return final
    return final.masked_fill((rows.lengths == 0)[:, None], 0.0)

"""Recurrence along rows against torch's modules, row by row."""

import itertools

import pytest
import torch

from ramify.nn.ragged import Rows
from ramify.nn.recurrent import BACKWARD, CELLS, BiLSTM, Recurrent, RecurrentState, _Steps, final_states

LENGTHS = [[3], [2, 5, 1, 5], [4, 1, 9, 2, 2]]


def drawn(lengths):
    torch.manual_seed(0)
    rows = Rows.build(lengths)
    return BiLSTM(4, 3).double(), rows, torch.randn(rows.total, 4, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_final_states_are_those_of_torch(lengths):
    module, rows, x = drawn(lengths)
    found = final_states(module(x, rows), rows)
    expected = torch.stack([module.lstm(row[:, None])[1][0][:, 0].flatten() for row in x.split(lengths)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight, sources = torch.randn_like(found), (x, *module.parameters())
    expected_gradients = torch.autograd.grad((expected * weight).sum(), sources)
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), sources), expected_gradients):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [[0, 2, 0, 0, 3, 0], [4, 0], [0, 4]])
def test_final_states_of_empty_rows_are_zeros_without_a_gradient(lengths):
    module, rows, x = drawn(lengths)
    found = final_states(module(x, rows), rows)
    empty = rows.lengths == 0
    assert not found[empty].any()
    full = Rows.build([length for length in lengths if length])
    torch.testing.assert_close(found[~empty], final_states(module(x, full), full), rtol=0, atol=1e-12)
    for gradient in torch.autograd.grad(found[empty].sum(), (x, *module.parameters())):
        assert not gradient.any()


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_final_states_without_tokens(lengths):
    module, rows, x = drawn(lengths)
    found = final_states(module(x, rows), rows)
    assert found.shape == (len(lengths), 6)
    assert not found.any()


# --- layers of cells --------------------------------------------------------------------------------------------------------

RAGGED = [2, 0, 5, 1, 5, 0]
KINDS = [
    *itertools.product(("rnn", "gru", "lstm"), ("forward", "backward", "both"), [None]),
    ("lstm", "forward", 2),
    ("lstm", "backward", 2),
    ("lstm", "both", 2),
]


def layers(cell="lstm", direction="forward", projection=None, **options):
    torch.manual_seed(0)
    options = {"num_layers": 2} | options
    module = Recurrent(cell, 4, 3, direction=direction, projection=projection, **options).double()
    rows = Rows.build(RAGGED)
    return module, rows, torch.randn(rows.total, 4, dtype=torch.float64, requires_grad=True)


def random_state(module, num_rows):
    start = module.start(torch.zeros(0, 1, dtype=torch.float64), num_rows)
    return RecurrentState(torch.randn_like(start.hidden), None if start.cell is None else torch.randn_like(start.cell))


def in_torch(module, cell, projection):
    """Torch's module with the same weights. Its backward chain is its second one; it has no module for that chain alone."""
    chains = len(BACKWARD[module.direction])
    size = {} if projection is None else {"proj_size": projection}
    theirs = CELLS[cell](4, 3, num_layers=len(module.layers), bidirectional=chains == 2, **size).to(torch.float64)
    weights = {}
    for number, layer in enumerate(module.layers):
        for chain, suffix in zip(layer, ("", "_reverse")):
            weights |= {name.replace("_l0", f"_l{number}{suffix}"): value for name, value in chain.cells.state_dict().items()}
    theirs.load_state_dict(weights)
    return theirs


def row_by_row(module, theirs, rows, x, state):
    """The last layer's states, and the states behind each row, of torch's module."""
    outputs, hidden, cells = [], [], []
    for number, row in enumerate(x.split(rows.host_lengths.tolist())):
        start = [part[:, :, number].flatten(0, 1) for part in (state.hidden, state.cell) if part is not None]
        if len(row):
            row = row.flip(0) if module.direction == "backward" else row
            row, ends = theirs(row, tuple(start) if len(start) == 2 else start[0])
            outputs.append(row.flip(0) if module.direction == "backward" else row)
            start = ends if len(start) == 2 else [ends]
        hidden.append(start[0])
        cells += start[1:]
    return torch.cat(outputs), torch.stack(hidden, 1), torch.stack(cells, 1) if cells else None


@pytest.mark.parametrize(("cell", "direction", "projection"), KINDS)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_layers_are_those_of_torch(cell, direction, projection, dtype, atol):
    module, rows, x = layers(cell, direction, projection)
    state = random_state(module, len(rows))
    theirs = in_torch(module, cell, projection).to(dtype)
    module, x = module.to(dtype), x.detach().to(dtype).requires_grad_()
    state = RecurrentState(state.hidden.to(dtype), None if state.cell is None else state.cell.to(dtype))
    found = module(x, rows, state)
    output, hidden, cells = row_by_row(module, theirs, rows, x, state)
    torch.testing.assert_close(found.layers[-1], output, rtol=0, atol=atol)
    torch.testing.assert_close(found.state.hidden.flatten(0, 1), hidden, rtol=0, atol=atol)
    if cells is not None:
        torch.testing.assert_close(found.state.cell.flatten(0, 1), cells, rtol=0, atol=atol)
    weight, atol = torch.randn_like(output), 10 * atol
    gradients = torch.autograd.grad((found.layers[-1] * weight).sum(), (x, *module.layers[0].parameters()))
    first = [parameter for name, parameter in theirs.named_parameters() if "_l0" in name]
    expected = torch.autograd.grad((output * weight).sum(), (x, *first))
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize("options", [{}, {"cell_clip": 0.05, "projection_clip": 0.01}])
@pytest.mark.parametrize(("cell", "direction", "projection"), KINDS)
def test_rows_do_not_depend_on_each_other(cell, direction, projection, options):
    if options and projection is None:
        options = {"cell_clip": 0.05} if cell == "lstm" else {}
    module, rows, x = layers(cell, direction, projection, residual=True, **options)
    state = random_state(module, len(rows))
    together = module(x, rows, state)
    for number, row in enumerate(x.split(RAGGED)):
        alone = module(row, Rows.build([len(row)]), state.reorder(torch.tensor([number])))
        for one, other in zip(together.layers, alone.layers, strict=True):
            torch.testing.assert_close(one.split(RAGGED)[number], other, rtol=0, atol=1e-12)
        torch.testing.assert_close(together.state.hidden[:, :, [number]], alone.state.hidden, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"projection": 2, "cell_clip": 0.1, "projection_clip": 0.02}])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_two_halves_are_one_pass(cell, direction, options):
    """The state behind the half that is read first is that before the other. Some rows have no token in a half."""
    if cell != "lstm" and options:
        pytest.skip("only an LSTM has a projection and clips")
    module, rows, x = layers(cell, direction, residual=True, **options)
    whole = module(x, rows)
    cuts = [1, 0, 3, 0, 5, 0]
    parts = [row.tensor_split([cut]) for row, cut in zip(x.split(RAGGED), cuts)]
    halves = [(torch.cat(half), Rows.build([len(part) for part in half])) for half in zip(*parts, strict=True)]
    read_first, then = halves if direction == "forward" else halves[::-1]
    one = module(*read_first)
    other = module(*then, one.state)
    results = (one, other) if direction == "forward" else (other, one)
    for number, layer in enumerate(whole.layers):
        pieces = [
            result.layers[number].split(half.host_lengths.tolist()) for result, (_, half) in zip(results, halves, strict=True)
        ]
        joined = torch.cat([part for row in zip(*pieces, strict=True) for part in row])
        torch.testing.assert_close(joined, layer, rtol=0, atol=1e-12)
    torch.testing.assert_close(other.state.hidden, whole.state.hidden, rtol=0, atol=1e-12)
    if cell == "lstm":
        torch.testing.assert_close(other.state.cell, whole.state.cell, rtol=0, atol=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize(("projection", "cell_clip", "projection_clip"), [(2, 0.1, 0.02), (2, None, 0.02), (None, 0.1, None)])
def test_clips_bound_cells_and_outputs(direction, projection, cell_clip, projection_clip):
    module, rows, x = layers("lstm", direction, projection, num_layers=1, cell_clip=cell_clip, projection_clip=projection_clip)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3)
    state = random_state(module, len(rows))
    found = module(x, rows, state)
    expected, ends, clipped = [], [], 0
    for number, row in enumerate(x.split(RAGGED)):
        written = []
        for place, (chain, backward) in enumerate(zip(module.layers[0], BACKWARD[direction], strict=True)):
            weights, outputs = chain.cells, []
            hidden, cell = state.hidden[0, place, number], state.cell[0, place, number]
            for token in row.flip(0) if backward else row:
                gates = weights.weight_ih_l0 @ token + weights.bias_ih_l0 + weights.weight_hh_l0 @ hidden + weights.bias_hh_l0
                i, f, g, o = gates.chunk(4)
                cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
                if cell_clip is not None:
                    clipped += int((cell.abs() > cell_clip).sum())
                    cell = cell.clamp(-cell_clip, cell_clip)
                hidden = o.sigmoid() * cell.tanh()
                if projection is not None:
                    hidden = weights.weight_hr_l0 @ hidden
                if projection_clip is not None:
                    clipped += int((hidden.abs() > projection_clip).sum())
                    hidden = hidden.clamp(-projection_clip, projection_clip)
                outputs.append(hidden)
            ends.append(torch.cat([hidden, cell]))
            written.append(torch.stack(outputs[::-1] if backward else outputs) if outputs else x.new_zeros(0, module.chain_dim))
        expected.append(torch.cat(written, 1))
    assert clipped
    torch.testing.assert_close(found.layers[0], torch.cat(expected), rtol=0, atol=1e-12)
    after = torch.cat([found.state.hidden[0], found.state.cell[0]], -1).transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(after, torch.stack(ends), rtol=0, atol=1e-12)
    parameters = (x, *module.parameters())
    for one, other in zip(
        torch.autograd.grad(found.layers[0].pow(2).sum(), parameters),
        torch.autograd.grad(torch.cat(expected).pow(2).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("projection", [None, 2])
def test_wide_clips_change_nothing(projection):
    plain, rows, x = layers("lstm", "both", projection)
    clipped, *_ = layers("lstm", "both", projection, cell_clip=1e9)
    state = random_state(plain, len(rows))
    one, other = plain(x, rows, state), clipped(x, rows, state)
    torch.testing.assert_close(one.layers, other.layers, rtol=0, atol=1e-12)
    torch.testing.assert_close(one.state.cell, other.state.cell, rtol=0, atol=1e-12)


def test_a_residual_adds_the_input_of_every_layer_but_the_first():
    plain, rows, x = layers("lstm", "both", num_layers=3)
    residual, *_ = layers("lstm", "both", num_layers=3, residual=True)
    first = plain(x, rows).layers[0]
    found = residual(x, rows).layers
    assert torch.equal(found[0], first)
    single, *_ = layers("lstm", "both", num_layers=1)
    for number in (1, 2):
        single = Recurrent("lstm", 6, 3, direction="both").double()
        single.layers[0].load_state_dict(residual.layers[number].state_dict())
        expected = single(found[number - 1], rows).layers[0] + found[number - 1]
        torch.testing.assert_close(found[number], expected, rtol=0, atol=1e-12)


def test_dropout_is_on_the_input_of_each_layer_and_the_residual_adds_the_dropped_input(monkeypatch):
    module, rows, x = layers(num_layers=2, residual=True, dropout=0.5)
    monkeypatch.setattr("ramify.nn.recurrent.dropout", lambda x, p, training: x * (1 + p * training))
    found = module(x, rows).layers
    chains = [Recurrent("lstm", dim, 3).double() for dim in (4, 3)]
    for single, layer in zip(chains, module.layers, strict=True):
        single.layers[0].load_state_dict(layer.state_dict())
    first = chains[0](x * 1.5, rows).layers[0]
    torch.testing.assert_close(found[0], first, rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1], chains[1](first * 1.5, rows).layers[0] + first * 1.5, rtol=0, atol=1e-12)
    module.eval()
    torch.testing.assert_close(module(x, rows).layers[0], chains[0](x, rows).layers[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_chains_are_one_sided(direction):
    """A forward chain never depends on later tokens, a backward one never on earlier ones, to the bit."""
    module, rows, x = layers(direction=direction, num_layers=1)
    changed = x.detach().clone()
    place = int(rows.offsets[4]) + 2
    changed[place] += 1
    moved = (module(x, rows).layers[0] != module(changed, rows).layers[0]).view(rows.total, -1, 3).any(2)
    positions = torch.arange(rows.total)
    row = (positions >= rows.offsets[4]) & (positions < rows.offsets[5])
    for chain, backward in zip(moved.T, BACKWARD[direction], strict=True):
        assert torch.equal(chain, row & (positions <= place if backward else positions >= place))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_rows_without_tokens_keep_their_states(cell, lengths):
    module, *_ = layers(cell, "both")
    state = random_state(module, len(lengths))
    found = module(torch.zeros(0, 4, dtype=torch.float64), Rows.build(lengths), state)
    assert found.layers[-1].shape == (0, 6)
    assert torch.equal(found.state.hidden, state.hidden)


def test_only_an_lstm_has_a_projection_and_clips():
    for options in ({"projection": 2}, {"cell_clip": 3.0}):
        with pytest.raises(ValueError, match="need an lstm, but the cell is gru"):
            Recurrent("gru", 4, 3, **options)
    with pytest.raises(ValueError, match=r"projection_clip=3.0 needs a projection"):
        Recurrent("lstm", 4, 3, projection_clip=3.0)


def test_gradients_of_clipped_layers():
    module, rows, x = layers("lstm", "both", 2, cell_clip=0.5, projection_clip=0.2, residual=True)
    state = random_state(module, len(rows))

    def run(x, hidden, cell):
        found = module(x, rows, RecurrentState(hidden, cell))
        return found.layers[-1], found.state.hidden, found.state.cell

    inputs = (x, state.hidden.requires_grad_(), state.cell.requires_grad_())
    assert torch.autograd.gradcheck(run, inputs, rtol=1e-6, fast_mode=True)


def test_final_states_are_the_ends_of_each_chain():
    for direction in BACKWARD:
        module, rows, x = layers(direction=direction)
        found = module(x, rows)
        ends = found.state.hidden[-1].transpose(0, 1).flatten(1)
        torch.testing.assert_close(final_states(found.layers[-1], rows, direction), ends, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("projection", "cell_clip", "projection_clip"), [(None, None, None), (2, None, None), (2, 0.3, 0.1), (None, 0.3, None)]
)
def test_gradients_of_steps_are_those_of_finite_differences(projection, cell_clip, projection_clip):
    """Also of the states before and behind rows that end at different steps."""
    torch.manual_seed(0)
    sizes, hidden, out = (3, 3, 2, 1), 4, projection or 4

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    project = None if projection is None else drawn(projection, hidden)
    tensors = (drawn(sum(sizes), 4 * hidden), drawn(4 * hidden, out), project, drawn(3, out), drawn(3, hidden))
    assert torch.autograd.gradcheck(lambda *given: _Steps.apply(*given, sizes, cell_clip, projection_clip), tensors)


def test_a_gradient_of_a_gradient_is_refused():
    """Nothing computes it, so it would be wrong without a word."""
    torch.manual_seed(0)
    rows = Rows.build([3, 2])
    x = torch.randn(rows.total, 4, dtype=torch.float64, requires_grad=True)
    module = Recurrent("lstm", 4, 3).double()
    (gradient,) = torch.autograd.grad(module(x, rows).layers[-1].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()

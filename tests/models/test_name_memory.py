"""The memory of names of a document: against its formulas, and what a sentence may know of itself."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ramify.batching.document_batch import Banks
from ramify.errors import RamifyError
from ramify.models.name_memory import Answers, GroupGate, NameMemory, NameMemoryConfig
from ramify.nn.ragged import Rows

EXACT = {"rtol": 0, "atol": 1e-12}
DIM = 6


AVERAGES = ("sentences", "tokens")


def memory(questions: int = 3, *, dtype: torch.dtype = torch.float64, **options) -> NameMemory:
    """A memory whose gates are all but constant."""
    torch.manual_seed(0)
    config = NameMemoryConfig(questions, filters=16, **options)
    own = NameMemory(DIM, config).to(dtype)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=dtype))
    return own


# --- the formulas, one sentence and one token at a time ----------------------------------------------------------------------


def gate_of(gate: GroupGate, state: Tensor) -> Tensor:
    """s = σ(w·c + b), where c is a softmax in each group of eight of e W_F."""
    filters = gate.filters.weight @ state
    chosen = torch.cat([(group - group.max()).exp() / (group - group.max()).exp().sum() for group in filters.split(8)])
    return 1 / (1 + torch.exp(-(gate.out.weight[0] @ chosen + gate.out.bias[0])))


def answers_of(own: NameMemory, states: Tensor) -> Tensor:
    """A_i = softmax(Q K_iᵀ / √d) V_i of one sentence, or of several at once."""
    if not len(states):
        return torch.zeros(len(own.questions), DIM, dtype=states.dtype)
    keys = torch.stack([own.write_keys.weight @ state for state in states])
    values = torch.stack([gate_of(own.ignore_gate, state) * state for state in states])
    answers = []
    for question in own.questions:
        weights = (keys @ question / math.sqrt(DIM)).exp()
        answers.append((weights[:, None] * values).sum(0) / weights.sum())
    return torch.stack(answers)


def bank_of(answers: Tensor, row: int, sentence: np.ndarray, document: np.ndarray, has_tokens: np.ndarray, *, leave: bool):
    """The mean over the sentences of the same document, or over the others, of the means of their rows, which weigh the same;
    None if there are none."""
    read: dict[int, list[Tensor]] = {}
    for other in range(len(answers)):
        if document[other] == document[row] and has_tokens[other] and not (leave and sentence[other] == sentence[row]):
            read.setdefault(sentence[other], []).append(answers[other])
    return torch.stack([torch.stack(rows).mean(0) for rows in read.values()]).mean(0) if read else None


def bank_of_sentences(own: NameMemory, story: "Story", row: int, *, leave: bool):
    """The mean of the answers of whole sentences, each of which reads the tokens of all its pieces; None if there are none."""
    pieces: dict[int, list[Tensor]] = {}
    for other in range(8):
        if story.document[other] == story.document[row] and story.has_tokens[other]:
            pieces.setdefault(story.sentence[other], []).append(story.row(other)[:-1])
    if leave:
        pieces.pop(story.sentence[row], None)
    return torch.stack([answers_of(own, torch.cat(rows)) for rows in pieces.values()]).mean(0) if pieces else None


def bank_of_tokens(own: NameMemory, story: "Story", row: int, *, leave: bool):
    """The answers of all tokens that a row may read, as if they were one sentence; None if there are none."""
    read = [
        story.row(other)[:-1]
        for other in range(8)
        if story.document[other] == story.document[row]
        and not (leave and story.sentence[other] == story.sentence[row])
        and story.has_tokens[other]
    ]
    return answers_of(own, torch.cat(read)) if read else None


BANK_BY = {"sentences": bank_of_sentences, "tokens": bank_of_tokens}


def as_answers(means: Tensor, has_tokens: np.ndarray) -> Answers:
    """Answers that weigh 1 where there are tokens."""
    weight = torch.from_numpy(has_tokens)[:, None].to(means.dtype).expand(-1, means.shape[1])
    return Answers(torch.cat([means * weight[..., None], weight[..., None]], 2), torch.zeros_like(weight))


def state_after(own: NameMemory, state: Tensor, bank: Tensor | None) -> Tensor:
    """E3 = g A2 + (1 - g) E2 of one token."""
    if bank is None:
        return state
    key = own.read_keys.weight @ state
    weights = (own.questions @ key / math.sqrt(DIM)).exp()
    answer = (weights[:, None] * bank).sum(0) / weights.sum()
    gate = gate_of(own.update_gate, {"states": state, "answers": answer}[own.gate_reads])
    return gate * answer + (1 - gate) * state


class Story:
    """Rows of random lengths: with ends that are no tokens, without tokens, pieces of one sentence, several documents."""

    def __init__(self, seed: int = 0, lengths: tuple[int, ...] = (1, 4, 2, 11, 3, 9, 2, 5)) -> None:
        random = torch.Generator().manual_seed(seed)
        self.rows = Rows.build(lengths)
        self.states = torch.randn(self.rows.total, DIM, generator=random, dtype=torch.float64)
        # The last place of a row is its end mark. The first row has no token.
        ends = np.cumsum(lengths) - 1
        self.is_token = torch.ones(self.rows.total, dtype=torch.bool)
        self.is_token[ends] = False
        self.has_tokens = np.array(lengths) > 1
        self.sentence = np.array([0, 1, 2, 2, 3, 4, 5, 6])
        self.document = np.array([7, 7, 7, 7, 7, 9, 4, 4])

    def layout(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.sentence, self.document, self.has_tokens

    def row(self, number: int, states: Tensor | None = None) -> Tensor:
        """The places of a row."""
        return (self.states if states is None else states).split(self.rows.host_lengths.tolist())[number]

    def written(self, own: NameMemory, states: Tensor | None = None) -> Answers:
        return own.write(self.states if states is None else states, self.rows, self.is_token)


@pytest.mark.parametrize("gate", ["states", "answers"])
@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("leave", [True, False])
@pytest.mark.parametrize("questions", [1, 3])
def test_the_memory_follows_its_formulas(questions, leave, average, gate):
    """Sentence 2 of the first document has two rows, and weighs as much in the mean of sentences as the others."""
    own, story = memory(questions, leave_one_out=leave, average=average, update_gate=gate), Story()
    answers = story.written(own)
    expected = torch.stack([answers_of(own, story.row(row)[:-1]) for row in range(8)])
    torch.testing.assert_close(answers.means, expected, **EXACT)
    banks = own.banks(answers, *story.layout())
    read = own.read(story.states, story.rows, banks)
    for row in range(8):
        bank = BANK_BY[average](own, story, row, leave=leave)
        assert bool(banks.known[row]) == (bank is not None)
        torch.testing.assert_close(banks.answers[row], torch.zeros(questions, DIM).double() if bank is None else bank, **EXACT)
        after = torch.stack([state_after(own, state, bank) for state in story.row(row)])
        torch.testing.assert_close(story.row(row, read), after, **EXACT)
    assert banks.known.tolist() == [True] * 5 + [not leave, True, True]


@pytest.mark.parametrize("average", AVERAGES)
def test_gradients_are_those_of_the_formulas(average):
    own, story = memory(average=average), Story()
    weights = torch.randn(story.states.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def built() -> Tensor:
        banks = own.banks(story.written(own), *story.layout())
        return (own.read(story.states, story.rows, banks) * weights).sum()

    def by_formula() -> Tensor:
        rows = []
        for row in range(8):
            bank = BANK_BY[average](own, story, row, leave=True)
            rows += [state_after(own, state, bank) for state in story.row(row)]
        return (torch.stack(rows) * weights).sum()

    parameters = list(own.parameters())
    for one, other in zip(torch.autograd.grad(built(), parameters), torch.autograd.grad(by_formula(), parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
        assert other.abs().max() > 1e-6


# --- what a sentence knows of itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("row", range(8))
def test_left_out_sentences_have_no_effect(row, average):
    """The gradient at a sentence's own states is exactly 0, at those of all its pieces, too; at others' it is not."""
    own, story = memory(average=average), Story()
    states = story.states.clone().requires_grad_()
    banks = own.banks(story.written(own, states), *story.layout())
    (gradient,) = torch.autograd.grad(banks.answers[row].square().sum(), states, allow_unused=True)
    gradient = torch.zeros_like(states) if gradient is None else gradient
    for other in range(8):
        reads = (
            story.document[other] == story.document[row]
            and story.sentence[other] != story.sentence[row]
            and bool(story.has_tokens[other])
        )
        size = story.row(other, gradient).abs().max()
        assert (size > 0) == reads, f"row {other} in the bank of row {row}"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("row", [1, 2, 3, 4, 7])
def test_not_a_bit_depends_on_the_own_sentence(row, average, dtype):
    """Not even by rounding: a sum of all sentences, less the own one, would. Nor does a question that attends to the own
    sentence alone lose the answers of others."""
    own, story = memory(dtype=dtype, average=average), Story()
    states = story.states.to(dtype)
    changed = states.clone()
    for piece in np.flatnonzero(story.sentence == story.sentence[row]).tolist():
        story.row(piece, changed).mul_(1e3).add_(17)
    one, other = (own.banks(story.written(own, each), *story.layout()) for each in (states, changed))
    assert torch.equal(one.answers[row], other.answers[row])
    assert one.answers[row].abs().sum() > 0
    elsewhere = [
        each for each in range(8) if story.document[each] == story.document[row] and story.sentence[each] != story.sentence[row]
    ]
    assert all(not torch.equal(one.answers[each], other.answers[each]) for each in elsewhere)


class NoCumulativeSums(TorchDispatchMode):
    """Fails where a GPU does under `torch.use_deterministic_algorithms`."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.cumsum.default:
            assert not args[0].is_floating_point(), "cumsum of floats has no deterministic form on GPUs"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("average", AVERAGES)
def test_banks_have_a_deterministic_form_on_gpus(average):
    own, story = memory(average=average), Story()
    states = story.states.clone().requires_grad_()
    with NoCumulativeSums():
        own.banks(story.written(own, states), *story.layout()).answers.sum().backward()
        with pytest.raises(AssertionError, match="no deterministic form"):
            states.cumsum(0)
    assert states.grad.abs().sum() > 0


@pytest.mark.parametrize("number", [1, 2, 3, 7, 8, 33])
def test_a_bank_leaves_one_of_any_number_out(number):
    """Even where its answers are not finite."""
    own, none = memory(), np.zeros(number, dtype=np.int64)
    answers = torch.randn(number, 3, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    every = np.arange(number)
    banks = own.banks(as_answers(answers, none == 0), every, none, none == 0)
    for row in range(number):
        others = answers[every != row]
        expected = others.mean(0) if len(others) else torch.zeros(3, DIM).double()
        torch.testing.assert_close(banks.answers[row], expected, **EXACT)
        broken = answers.clone()
        broken[row] = torch.nan
        assert torch.equal(own.banks(as_answers(broken, none == 0), every, none, none == 0).answers[row], banks.answers[row])


def test_without_leaving_out_a_sentence_knows_itself():
    own, story = memory(leave_one_out=False), Story()
    states = story.states.clone().requires_grad_()
    banks = own.banks(story.written(own, states), *story.layout())
    (gradient,) = torch.autograd.grad(banks.answers[1].sum(), states)
    assert story.row(1, gradient).abs().max() > 0
    assert torch.equal(banks.answers[1], banks.answers[4])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.booleans()), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_banks_of_any_layout(layout, random, leave):
    """Whatever the order of rows, whichever rows are pieces of one sentence, and whichever have no tokens."""
    own = memory(leave_one_out=leave)
    document = np.array([each[0] for each in layout])
    # Sentences of different documents have different numbers.
    sentence = document * 10 + np.array([each[1] for each in layout])
    has_tokens = np.array([each[2] for each in layout])
    answers = torch.randn(len(layout), 3, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    answers[~torch.from_numpy(has_tokens)] = 0
    banks = own.banks(as_answers(answers, has_tokens), sentence, document, has_tokens)
    for row in range(len(layout)):
        bank = bank_of(answers, row, sentence, document, has_tokens, leave=leave)
        assert bool(banks.known[row]) == (bank is not None)
        if bank is None:
            assert torch.equal(banks.answers[row], torch.zeros(3, DIM).double())
        else:
            torch.testing.assert_close(banks.answers[row], bank, **EXACT)
    order = list(range(len(layout)))
    random.shuffle(order)
    mixed = as_answers(answers[order], has_tokens[order])
    moved = own.banks(mixed, sentence[order], document[order], has_tokens[order])
    torch.testing.assert_close(moved.answers, banks.answers[order], **EXACT)
    assert torch.equal(moved.known, banks.known[order])


@pytest.mark.parametrize("average", AVERAGES)
def test_no_rows_have_no_banks(average):
    own = memory(average=average)
    none = np.zeros(0, dtype=np.int64)
    banks = own.banks(as_answers(torch.zeros(0, 3, DIM).double(), none == 0), none, none, none == 0)
    assert banks.answers.shape == (0, 3, DIM)
    rows = Rows.build([])
    states = torch.zeros(0, DIM).double()
    assert own.write(states, rows, torch.zeros(0, dtype=torch.bool)).means.shape == (0, 3, DIM)
    assert own.read(states, rows, banks).shape == (0, DIM)


# --- gates and reading ---------------------------------------------------------------------------------------------


def test_groups_of_a_gate_are_distributions():
    own, story = memory(), Story()
    choices = own.ignore_gate.choices(story.states)
    assert choices.shape == (story.rows.total, 2, 8)
    torch.testing.assert_close(choices.sum(-1), torch.ones(story.rows.total, 2).double(), **EXACT)
    assert (choices > 0).all()
    gate = own.ignore_gate(story.states)
    assert ((gate > 0) & (gate < 1)).all()
    # Adding a number to all filters of a group changes nothing.
    with torch.no_grad():
        own.ignore_gate.filters.weight[8:] += 5 * torch.randn(DIM, generator=torch.Generator().manual_seed(2)).double()
    torch.testing.assert_close(own.ignore_gate(story.states), gate, **EXACT)


def test_a_closed_update_gate_is_the_identity():
    own, story = memory(), Story()
    banks = own.banks(story.written(own), *story.layout())
    with torch.no_grad():
        own.update_gate.out.bias.fill_(-math.inf)
    assert torch.equal(own.read(story.states, story.rows, banks), story.states)


def test_banks_without_answers_change_no_state():
    """The sentence is the only one of its document, whatever the update gate says."""
    own, story = memory(), Story()
    with torch.no_grad():
        own.update_gate.out.bias.fill_(50)
    banks = own.banks(story.written(own), *story.layout())
    read = own.read(story.states, story.rows, banks)
    assert torch.equal(story.row(5, read), story.row(5))
    assert not torch.equal(story.row(4, read), story.row(4))
    assert torch.equal(own.read(story.states, story.rows, banks.without_answers()), story.states)


def test_rows_read_the_banks_that_they_are_given():
    own, story = memory(), Story()
    given_banks = Banks.of(torch.randn(2, 3, DIM, generator=torch.Generator().manual_seed(4), dtype=torch.float64))
    bank_of_row = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    together = own.read(story.states, story.rows, given_banks, bank_of_row)
    torch.testing.assert_close(together, own.read(story.states, story.rows, given_banks.at(bank_of_row)), **EXACT)
    for row in range(8):
        after = [state_after(own, state, given_banks.answers[bank_of_row[row]]) for state in story.row(row)]
        torch.testing.assert_close(story.row(row, together), torch.stack(after), **EXACT)


def test_banks_of_another_model_are_refused():
    story = Story()
    other = memory(questions=2)
    banks = other.banks(story.written(other), *story.layout())
    with pytest.raises(RamifyError, match="banks with 2 answers of length 6 are those of another model: this one has 3"):
        memory().read(story.states, story.rows, banks)


def test_recorded_attention_is_that_of_the_formulas():
    own, story = memory(), Story()
    wrote: list[Tensor] = []
    own.write(story.states, story.rows, story.is_token, record=wrote)
    for row, weights in enumerate(wrote):
        keys = story.row(row)[:-1] @ own.write_keys.weight.T
        expected = torch.softmax(own.questions @ keys.T / math.sqrt(DIM), 1) if len(keys) else torch.zeros(3, 0).double()
        torch.testing.assert_close(weights[0, :, : len(keys)], expected.detach(), **EXACT)
        assert weights[0, :, len(keys) :].abs().sum() == 0
    read: list[Tensor] = []
    own.read(story.states, story.rows, own.banks(story.written(own), *story.layout()), record=read)
    assert [tuple(weights.shape) for weights in read] == [(1, length, 3) for length in story.rows.host_lengths]


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(dtype, average):
    own, story = memory(dtype=torch.float32, average=average), Story()
    states = story.states.float()
    full = own.read(states, story.rows, own.banks(story.written(own, states), *story.layout()))
    with torch.autocast("cpu", dtype):
        banks = own.banks(story.written(own, states), *story.layout())
        half = own.read(states, story.rows, banks)
    torch.testing.assert_close(half.float(), full, rtol=0.05, atol=0.1)
    half.float().sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in own.parameters())


def test_fresh_gates_are_half_open():
    torch.manual_seed(0)
    own = NameMemory(DIM, NameMemoryConfig(questions=4)).double()
    for gate in (own.ignore_gate, own.update_gate):
        assert gate.out.bias.tolist() == [0]
        values = gate(torch.randn(200, DIM, dtype=torch.float64))
        assert 0.3 < values.mean() < 0.7


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"questions": 0}, "model.names.questions must be at least 1, but is 0"),
        ({"filters": 12}, "model.names.filters=12 must be a multiple of 8.* Set it to 16"),
        ({"filters": 0}, "model.names.filters=0 must be a multiple of 8.* Set it to 8"),
    ],
)
def test_refused_sizes(settings_, message):
    with pytest.raises(RamifyError, match=message):
        NameMemoryConfig(**settings_)

"""Persistent names of a document (AGENT, section 5, there called PNDB): answers of all sentences to learned questions.

Sentences write answers from the states of their tokens, and the mean of a document's answers is its bank. Tokens of any
sentence ask the bank. So a name need not pass through the vectors of sentences. `dim` is that of tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ramify.batching.document_batch import Banks
from ramify.batching.forest import Ints, ranges
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.nn.attention import Weights, attend
from ramify.nn.linear import Linear
from ramify.nn.pooling import on_tokens, row_sums
from ramify.nn.ragged import Rows

GROUP = 8
"""Filters of a gate that share a softmax."""
SHARPNESS = 2.5
"""The standard deviation of the scores of fresh questions for states of unit variance. At 1, all tokens that ask came to share
a few questions, and learned which names a document has, but not whose."""


@dataclass(frozen=True)
class NameMemoryConfig:
    """The sizes of the memory of names, and the sentences that a sentence reads."""

    questions: int = 32
    """The number of questions, far fewer than a document has tokens, so that the bank cannot hold its text."""
    filters: int = 64
    """Filters of each gate, in groups of eight, of which a token chooses one per group."""
    leave_one_out: bool = True
    """Whether a sentence reads the answers of the other sentences alone. Without, the mean also holds those of the sentence
    itself, and so a share of what is masked in it."""
    update_gate: Literal["states", "answers"] = "states"
    """The input of the update gate. states: those of the tokens, some of which need more than they hold (the paper, section
    5.1). answers: what the tokens are answered."""
    average: Literal["sentences", "tokens"] = "sentences"
    """The weights in a bank. sentences: all sentences weigh the same (the paper), whether or not a token of theirs answers the
    question, and however many rows they were cut into. tokens: the question attends to all tokens of the bank at once, so that
    sentences without an answer weigh little."""

    def __post_init__(self) -> None:
        check_fields(self, "model.names.")
        if self.questions < 1:
            raise RamifyError(f"model.names.questions must be at least 1, but is {self.questions}.")
        if self.filters < GROUP or self.filters % GROUP:
            raise RamifyError(
                f"model.names.filters={self.filters} must be a multiple of {GROUP}, because each {GROUP} filters share a "
                f"softmax. Set it to {max(1, round(self.filters / GROUP)) * GROUP}."
            )


class GroupGate(nn.Module):
    """A number between 0 and 1 for each token, from the filters that it chooses in each group of eight (section 5)."""

    def __init__(self, dim: int, filters: int) -> None:
        super().__init__()
        self.filters = Linear(dim, filters, bias=False)
        """W_F, a convolution of width 1."""
        self.out = Linear(filters, 1)
        nn.init.normal_(self.filters.weight, std=dim**-0.5)
        nn.init.normal_(self.out.weight, std=filters**-0.5)
        # Half open: a bank is small beside a state, so through a gate that is nearly closed, nothing learned to use it.
        nn.init.zeros_(self.out.bias)

    def choices(self, x: Float[Tensor, "slot dim"]) -> Float[Tensor, "slot group 8"]:
        """The share of each filter in its group."""
        return self.filters(x).unflatten(1, (-1, GROUP)).softmax(-1)

    def forward(self, x: Float[Tensor, "slot dim"]) -> Float[Tensor, " slot"]:
        return torch.sigmoid(self.out(self.choices(x).flatten(1)))[:, 0]


@dataclass(frozen=True)
class Answers:
    """The answers of rows to the questions. Those of several rows are added, and then divided by their weight."""

    sums: Float[Tensor, "row question more"]
    """The answer times its weight, and the weight in the last column, both divided by e to the power of `shift`."""
    shift: Float[Tensor, "row question"]
    """It has no gradient: it cancels when a sum is divided by its weight."""

    @classmethod
    def nothing(cls, rows: int, questions: int, dim: int, like: Tensor) -> "Answers":
        """Rows that weigh nothing."""
        shift = like.new_full((rows, questions), torch.finfo(like.dtype).min)
        return cls(like.new_zeros(rows, questions, dim + 1), shift)

    @classmethod
    def cat(cls, parts: "Sequence[Answers]") -> "Answers":
        return cls(torch.cat([part.sums for part in parts]), torch.cat([part.shift for part in parts]))

    def __len__(self) -> int:
        return len(self.sums)

    def at(self, rows: Int[Tensor, " chosen"] | slice) -> "Answers":
        """The answers of these rows."""
        return Answers(self.sums[rows], self.shift[rows])

    def cpu(self) -> "Answers":
        return Answers(self.sums.cpu(), self.shift.cpu())

    @property
    def means(self) -> Float[Tensor, "row question dim"]:
        """The answers themselves; zeros where none has any weight."""
        weight = self.sums[..., -1:]
        return self.sums[..., :-1] / torch.where(weight > 0, weight, 1.0)

    def added(self, other: "Answers") -> "Answers":
        """The sum of each row and the same row of others."""
        shift = torch.maximum(self.shift, other.shift)
        one, two = ((part.shift - shift).exp()[..., None] * part.sums for part in (self, other))
        return Answers(one + two, shift)

    def summed(self, lengths: Int[Tensor, " unit"]) -> "Answers":
        """The sums of so many rows each, one behind the other."""
        if not len(self):
            return self._nothing(len(lengths))
        none = torch.finfo(self.shift.dtype).min
        shift = torch.segment_reduce(self.shift, "max", lengths=lengths, axis=0, unsafe=True).clamp(min=none)
        own = torch.repeat_interleave(shift, lengths, dim=0, output_size=len(self))
        scaled = (self.shift - own).exp()[..., None] * self.sums
        sums = torch.segment_reduce(scaled.flatten(1), "sum", lengths=lengths, axis=0, unsafe=True)
        return Answers(sums.view(len(lengths), *self.sums.shape[1:]), shift)

    def others(self, counts: Ints) -> "Answers":
        """The sum of all rows but one, for each of so many rows in turn. Not even the rounding depends on the row that is left
        out.

        Sums of two rows, of four, and so on form a tree. From its root downwards, the others of a node are those of its parent
        and its sibling. The paper's sums from both ends take more work, and `cumsum` has no deterministic form on GPUs.
        """
        levels: list[tuple[Answers, Ints]] = []
        rows = self
        while counts.max(initial=0) > 1:
            pairs = (counts + 1) // 2
            # A row without a sibling has one that weighs nothing.
            place = ranges(2 * (np.cumsum(pairs) - pairs), 2 * (np.cumsum(pairs) - pairs) + counts)
            own = np.full(2 * int(pairs.sum()), len(rows))
            own[place] = np.arange(len(rows))
            padded = Answers.cat([rows, rows._nothing(1)]).at(torch.from_numpy(own).to(rows.sums.device))
            levels.append((padded, place))
            rows = padded.at(slice(0, None, 2)).added(padded.at(slice(1, None, 2)))
            counts = pairs
        others = rows._nothing(len(rows))
        for padded, place in reversed(levels):
            above = Answers(others.sums.repeat_interleave(2, 0), others.shift.repeat_interleave(2, 0))
            others = above.added(padded._swapped()).at(torch.from_numpy(place).to(rows.sums.device))
        return others

    def _nothing(self, rows: int) -> "Answers":
        return Answers.nothing(rows, self.shift.shape[1], self.sums.shape[2] - 1, self.sums)

    def _swapped(self) -> "Answers":
        """Each row in the place of the other one of its pair."""
        return Answers(
            self.sums.unflatten(0, (-1, 2)).flip(1).flatten(0, 1), self.shift.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
        )


class NameMemory(nn.Module):
    """Writes the answers of sentences, averages them over documents, and lets tokens read them (section 5)."""

    def __init__(self, dim: int, config: NameMemoryConfig) -> None:
        super().__init__()
        self.leave_one_out = config.leave_one_out
        self.average = config.average
        self.gate_reads = config.update_gate
        self.questions = nn.Parameter(torch.empty(config.questions, dim))
        """Q."""
        self.write_keys = Linear(dim, dim, bias=False)
        """W_K."""
        self.read_keys = Linear(dim, dim, bias=False)
        """W_K2."""
        self.ignore_gate = GroupGate(dim, config.filters)
        self.update_gate = GroupGate(dim, config.filters)
        nn.init.normal_(self.questions)
        nn.init.normal_(self.write_keys.weight, std=SHARPNESS * dim**-0.5)
        # A token asks as a token in its place writes. Two random maps would send the role of a name to different questions.
        with torch.no_grad():
            self.read_keys.weight.copy_(self.write_keys.weight)

    def write(
        self,
        states: Float[Tensor, "slot dim"],
        rows: Rows,
        is_token: Bool[Tensor, " slot"],
        record: Weights | None = None,
    ) -> Answers:
        """The answers of each row: softmax(Q Kᵀ / √d) V over its tokens, where K = E W_K and V is E behind the ignore gate.

        A row without tokens weighs nothing. The weights of the tokens of each row are appended to `record`.
        """
        count, dim = self.questions.shape
        questions = self.questions.expand(len(rows), -1, -1).flatten(0, 1)
        keys, values = self.write_keys(states), states * self.ignore_gate(states)[:, None]
        held = (is_token.index_select(0, rows.padded) & rows.filled).split([group.size * group.length for group in rows.groups])
        allowed = [each.view(group.size, 1, group.length) for each, group in zip(held, rows.groups, strict=True)]
        answers = attend(
            questions[:, None].to(values.dtype),
            torch.stack([keys.to(values.dtype), values], 1)[:, :, None],
            self._asked(rows),
            rows,
            allowed=allowed,
            record=record,
        ).view(len(rows), count, dim)
        # Half precision loses a thousand small summands.
        answers = answers.to(torch.promote_types(answers.dtype, torch.float32))
        weight, shift = self._weights(keys.to(answers.dtype), rows, is_token)
        return Answers(torch.cat([answers * weight[..., None], weight[..., None]], 2), shift)

    def _of_sentences(self, answers: Answers, sentence: Ints, document: Ints) -> Answers:
        """The shares of rows in the answers of their sentences, so that each sentence weighs 1, however many rows it has."""
        _, number, counts = np.unique(np.stack([document, sentence], 1), axis=0, return_inverse=True, return_counts=True)
        number = number.reshape(-1)
        device = answers.sums.device
        order = torch.from_numpy(np.argsort(number, kind="stable")).to(device)
        whole = answers.at(order).summed(torch.from_numpy(counts).to(device))
        own = torch.from_numpy(number).to(device)
        weight = whole.sums[..., -1].index_select(0, own)
        share = (answers.shift - whole.shift.index_select(0, own)).exp() / torch.where(weight > 0, weight, 1.0)
        return Answers(answers.sums * share[..., None], torch.zeros_like(answers.shift))

    def _weights(
        self, keys: Float[Tensor, "slot dim"], rows: Rows, is_token: Bool[Tensor, " slot"]
    ) -> tuple[Float[Tensor, "row question"], Float[Tensor, "row question"]]:
        """The weight of each row's answers, divided by e to the power of the row's shift, and the shift."""
        none = torch.finfo(keys.dtype).min
        if not len(keys):
            empty = keys.new_zeros(len(rows), len(self.questions))
            return empty, empty + none
        with torch.autocast(keys.device.type, enabled=False):
            scores = keys @ self.questions.to(keys.dtype).T * keys.shape[1] ** -0.5
        scores = scores.masked_fill(~is_token[:, None], none)
        most = torch.segment_reduce(scores.detach(), "max", lengths=rows.lengths, axis=0, unsafe=True).clamp(min=none)
        weights = (scores - on_tokens(most, rows)).exp() * is_token[:, None]
        return row_sums(weights, rows), most

    def banks(
        self,
        answers: Answers,
        sentence: Ints,
        document: Ints,
        has_tokens: NDArray[np.bool_],
        *,
        unit: Ints | None = None,
        whole: bool = False,
    ) -> Banks:
        """The bank that each row reads: the mean answers of its document's sentences, or of the others among them. With
        `whole`, it is that of all sentences in any case, which readers of generated sentences have.

        `sentence` numbers the sentences of a document, of which rows are pieces: rows with one number are one sentence.
        Sentences that are packed into one row share a number. Rows without tokens write nothing. `unit`: numbers of rows that
        are left out together, in place of the sentences.
        """
        if self.average == "sentences":
            answers = self._of_sentences(answers, sentence, document)
        leaves_out = self.leave_one_out and not whole
        left_out = sentence if unit is None else unit
        units = np.stack([document, left_out if leaves_out else document], 1)
        known, place = np.unique(units, axis=0, return_inverse=True)
        place = place.reshape(-1)
        written = np.bincount(place[has_tokens], minlength=len(known))
        # Rows in the order of units, so that the sums are those of segments.
        order = np.flatnonzero(has_tokens)
        order = order[np.argsort(place[order], kind="stable")]
        device = answers.sums.device
        sums = answers.at(torch.from_numpy(order).to(device)).summed(torch.from_numpy(written).to(device))
        counts = written
        if leaves_out and len(known):
            _, per_document = np.unique(known[:, 0], return_counts=True)
            sums = sums.others(per_document)
            total = np.add.reduceat(written, np.cumsum(per_document) - per_document)
            counts = np.repeat(total, per_document) - written
        banks = Banks(sums.means, torch.from_numpy(counts > 0).to(device))
        return banks.at(torch.from_numpy(place).to(device))

    def read(
        self,
        states: Float[Tensor, "slot dim"],
        rows: Rows,
        banks: Banks,
        bank_of_row: Int[Tensor, " row"] | None = None,
        record: Weights | None = None,
    ) -> Float[Tensor, "slot dim"]:
        """The states after reading: g A2 + (1 - g) E2, where A2 = softmax(K2 Qᵀ / √d) A and K2 = E2 W_K2.

        `bank_of_row`: the number of each row's bank; None: row i reads bank i. States of a row whose bank holds nothing stay as
        they are. The attention of each row to the questions is appended to `record`.
        """
        answers, gate = self.asked(states, rows, banks, bank_of_row, record)
        gate = gate.to(states.dtype)[:, None]
        return gate * answers.to(states.dtype) + (1 - gate) * states

    def asked(
        self,
        states: Float[Tensor, "slot dim"],
        rows: Rows,
        banks: Banks,
        bank_of_row: Int[Tensor, " row"] | None = None,
        record: Weights | None = None,
    ) -> tuple[Float[Tensor, "slot dim"], Float[Tensor, " slot"]]:
        """The answer to each token, A2, and its update gate, which is 0 where the bank holds nothing."""
        own = banks if bank_of_row is None else banks.at(bank_of_row)
        assert len(own.answers) == len(rows), f"{len(rows)} rows need as many banks, not {len(own.answers)}"
        if own.answers.shape[1:] != self.questions.shape:
            (count, dim), (here, width) = own.answers.shape[1:], self.questions.shape
            raise RamifyError(
                f"banks with {count} answers of length {dim} are those of another model: this one has {here} questions of "
                f"length {width}. Read banks that the same model has written."
            )
        values = own.answers.flatten(0, 1)
        questions = self.questions.expand(len(rows), -1, -1).flatten(0, 1)
        answers = attend(
            self.read_keys(states)[:, None].to(values.dtype),
            torch.stack([questions.to(values.dtype), values], 1)[:, :, None],
            rows,
            self._asked(rows),
            record=record,
        )[:, 0]
        gate = self.update_gate(states if self.gate_reads == "states" else answers)
        return answers, gate * on_tokens(own.known[:, None].to(gate.dtype), rows)[:, 0]

    def _asked(self, rows: Rows) -> Rows:
        """One place per question in each row, with the groups of `rows`."""
        return Rows.build(np.full(len(rows), len(self.questions)), keys=rows.keys).to(rows.lengths.device)


@dataclass(frozen=True)
class NamesOfRows:
    """The memory and the bank of each of some rows."""

    memory: NameMemory
    banks: Banks

    def read(self, states: Float[Tensor, "slot dim"], rows: Rows) -> Float[Tensor, "slot dim"]:
        return self.memory.read(states, rows, self.banks)

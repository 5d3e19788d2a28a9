"""Persistent names of a document (AGENT, section 8, there called PNDB): answers of all sentences to learned questions.

Sentences write answers from the states of their tokens, and the mean of a document's answers is its bank. Tokens of any
sentence ask the bank. So a name need not pass through the vectors of sentences. `dim` is that of tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ramify.batching.document_batch import Banks
from ramify.batching.forest import Ints
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.nn.attention import Weights, attend
from ramify.nn.linear import Linear
from ramify.nn.pooling import on_tokens
from ramify.nn.ragged import Rows

GROUP = 8
"""Filters of a gate that share a softmax."""


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
    """A number between 0 and 1 for each token, from the filters that it chooses in each group of eight (section 8)."""

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


class NameMemory(nn.Module):
    """Writes the answers of sentences, averages them over documents, and lets tokens read them (section 8)."""

    def __init__(self, dim: int, config: NameMemoryConfig) -> None:
        super().__init__()
        self.leave_one_out = config.leave_one_out
        self.questions = nn.Parameter(torch.empty(config.questions, dim))
        """Q."""
        self.write_keys = Linear(dim, dim, bias=False)
        """W_K."""
        self.read_keys = Linear(dim, dim, bias=False)
        """W_K2."""
        self.ignore_gate = GroupGate(dim, config.filters)
        self.update_gate = GroupGate(dim, config.filters)
        nn.init.normal_(self.questions)
        for keys in (self.write_keys, self.read_keys):
            nn.init.normal_(keys.weight, std=dim**-0.5)

    def write(
        self,
        states: Float[Tensor, "slot dim"],
        rows: Rows,
        is_token: Bool[Tensor, " slot"],
        record: Weights | None = None,
    ) -> Float[Tensor, "row question dim"]:
        """The answers of each row: softmax(Q Kᵀ / √d) V over its tokens, where K = E W_K and V is E behind the ignore gate.

        A row without tokens has zeros. The weights of each row are appended to `record`.
        """
        count = len(self.questions)
        questions = self.questions.expand(len(rows), -1, -1).flatten(0, 1)
        values = states * self.ignore_gate(states)[:, None]
        held = (is_token.index_select(0, rows.padded) & rows.filled).split([group.size * group.length for group in rows.groups])
        allowed = [each.view(group.size, 1, group.length) for each, group in zip(held, rows.groups, strict=True)]
        answers = attend(
            questions[:, None].to(values.dtype),
            torch.stack([self.write_keys(states).to(values.dtype), values], 1)[:, :, None],
            self._asked(rows),
            rows,
            allowed=allowed,
            record=record,
        )
        return answers.view(len(rows), count, states.shape[1])

    def banks(
        self,
        answers: Float[Tensor, "row question dim"],
        sentence: Ints,
        document: Ints,
        has_tokens: NDArray[np.bool_],
        *,
        whole: bool = False,
    ) -> Banks:
        """The bank that each row reads: the mean answers of its document's rows, or of those that belong to other sentences.
        With `whole`, it is that of all rows in any case, which readers of generated sentences have.

        `sentence` numbers the sentences, of which rows are pieces: rows with one number are left out together. Sentences that
        are packed into one row share a number. Rows without tokens write nothing. The mean of the others is a sum of two, of
        the rows before and behind the sentence, so that not even its rounding depends on the sentence itself.
        """
        leaves_out = self.leave_one_out and not whole
        units = np.stack([document, sentence if leaves_out else document], 1)
        known, unit = np.unique(units, axis=0, return_inverse=True)
        unit = unit.reshape(-1)
        written = np.bincount(unit[has_tokens], minlength=len(known))
        # Rows in the order of units, so that the sums are those of segments.
        order = np.flatnonzero(has_tokens)
        order = order[np.argsort(unit[order], kind="stable")]
        lengths = torch.from_numpy(written).to(answers.device)
        # Half precision loses a thousand small summands.
        flat = answers.flatten(1).to(torch.promote_types(answers.dtype, torch.float32))
        flat = flat.index_select(0, torch.from_numpy(order).to(answers.device))
        sums = torch.segment_reduce(flat, "sum", lengths=lengths, axis=0, unsafe=True) if len(order) else None
        sums = flat.new_zeros(len(known), flat.shape[1]) if sums is None else sums
        counts = written
        if leaves_out and len(known):
            _, per_document = np.unique(known[:, 0], return_counts=True)
            sums = torch.cat([_others(part) for part in sums.split(per_document.tolist())])
            total = np.add.reduceat(written, np.cumsum(per_document) - per_document)
            counts = np.repeat(total, per_document) - written
        divisors = torch.from_numpy(np.maximum(counts, 1)).to(answers.device)
        means = (sums / divisors[:, None]).view(len(known), *answers.shape[1:]).to(answers.dtype)
        banks = Banks(means, torch.from_numpy(counts > 0).to(answers.device))
        return banks.at(torch.from_numpy(unit).to(answers.device))

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
        gate = self.update_gate(answers)
        return answers, gate * on_tokens(own.known[:, None].to(gate.dtype), rows)[:, 0]

    def _asked(self, rows: Rows) -> Rows:
        """One place per question in each row, with the groups of `rows`."""
        return Rows.build(np.full(len(rows), len(self.questions)), keys=rows.keys).to(rows.lengths.device)


def _others(sums: Float[Tensor, "unit feature"]) -> Float[Tensor, "unit feature"]:
    """The sum of all rows but one, for each: exclusive sums from the start and from the end."""
    none = torch.zeros_like(sums[:1])
    before = _running(torch.cat([none, sums[:-1]]))
    behind = _running(torch.cat([sums[1:], none]).flip(0)).flip(0)
    return before + behind


def _running(rows: Float[Tensor, "unit feature"]) -> Float[Tensor, "unit feature"]:
    """The sum of each row and of all rows before it. `cumsum` has no deterministic form on GPUs, so sums of 1, 2, 4, … rows are
    added (Hillis and Steele 1986)."""
    width = 1
    while width < len(rows):
        rows = torch.cat([rows[:width], rows[width:] + rows[:-width]])
        width *= 2
    return rows


@dataclass(frozen=True)
class NamesOfRows:
    """The memory and the bank of each of some rows."""

    memory: NameMemory
    banks: Banks

    def read(self, states: Float[Tensor, "slot dim"], rows: Rows) -> Float[Tensor, "slot dim"]:
        return self.memory.read(states, rows, self.banks)

"""Questions and the windows of their passages as rows of one batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints, ranges
from ramify.batching.labelled_batch import LabelCollator, LabelledBatch, known_states, token_places
from ramify.batching.movable import Movable, moved
from ramify.batching.views.questions import QuestionExample, QuestionInput, joined
from ramify.batching.windows import widest_context
from ramify.nn.ragged import Rows
from ramify.tokenizer import RowLayout


@dataclass(frozen=True)
class Windows(Movable):
    """The windows that the rows of a batch hold. Places are those in a row, from 0."""

    null: Int[Tensor, " row"]
    """The place of the special token that stands for no answer."""
    answered: Bool[Tensor, " row"]
    """Whether the window holds the answer."""
    passage: Bool[Tensor, " total"]
    """The tokens of passages."""
    read_here: Bool[Tensor, " total"]
    """The tokens of passages whose window of maximum context is this one."""
    lettered: Bool[Tensor, " total"]
    """The tokens of passages that hold letters. An answer begins and ends with one."""
    shift: Ints
    """[row]: the number of a token in its passage less its place in the row."""

    @classmethod
    def of(cls, batch: LabelledBatch) -> "Windows":
        """The windows of a batch that a `QuestionCollator` made."""
        if not isinstance(batch.part, cls):
            raise TypeError(f"the batch holds no windows of passages, but {type(batch.part).__name__}")
        return batch.part

    def to(self, device: torch.device | str) -> "Windows":
        return moved(self, device)


@dataclass(frozen=True)
class QuestionCollator(LabelCollator):
    """Lays questions and the windows of their passages flat. The targets of a row are the places of the first and the last
    token of the answer. A window that does not hold all of it has the place of no answer twice."""

    layout: RowLayout
    input: QuestionInput
    null: Literal["first", "last"] = "first"
    """The token that stands for no answer: a special token, unless the layout has none. last: for models whose first state
    knows nothing of the row, and for layouts that begin with a text and end with a special token."""

    def places(self, batch: LabelledBatch) -> Ints:
        """The place of each token of a batch among those of its questions."""
        return token_places(batch.input)

    def __call__(self, examples: Sequence[QuestionExample]) -> LabelledBatch:
        input = self.input
        passage_text = 1 if input.order == "question_first" else 0
        questions, passages = (joined([getattr(each, name) for each in examples]) for name in ("question", "passage"))
        room = input.room(self.layout, questions[1])
        one, other = (questions, passages) if passage_text else (passages, questions)
        rows = EncoderInput.of_pairs(
            one,
            other,
            self.layout,
            input.max_tokens,
            long="split",
            overlap=input.overlap(room),
            divided="second" if passage_text else "first",
        )
        begin, stop = rows.spans[:, passage_text].T
        offset, source = rows.offsets[:, passage_text], rows.source
        lengths = rows.rows.host_lengths
        row_starts = np.cumsum(lengths) - lengths
        tokens = ranges(row_starts + begin, row_starts + stop)
        passage = np.zeros(rows.rows.total, dtype=bool)
        passage[tokens] = True
        read_here = np.zeros_like(passage)
        read_here[widest_context(rows, passage_text)] = True
        lettered = np.zeros_like(passage)
        of_passages = np.concatenate([np.zeros(0, dtype=bool), *(example.lettered for example in examples)])
        starts = np.cumsum(passages[1]) - passages[1]
        lettered[tokens] = of_passages[ranges(starts[source] + offset, starts[source] + offset + stop - begin)]
        null = np.zeros_like(lengths) if self.null == "first" and (self.layout.before or not self.layout.after) else lengths - 1
        spans = np.array([each.answer or (0, 0) for each in examples], dtype=np.int64).reshape(-1, 2)
        first, last = spans[source].T
        has_answer = np.array([each.answer is not None for each in examples], dtype=bool)[source]
        answered = has_answer & (first >= offset) & (last < offset + stop - begin)
        places = [np.where(answered, place - offset + begin, null) for place in (first, last)]
        part = Windows(
            null=torch.from_numpy(null),
            answered=torch.from_numpy(answered),
            passage=torch.from_numpy(passage),
            read_here=torch.from_numpy(read_here),
            lettered=torch.from_numpy(lettered),
            shift=offset - begin,
        )
        states = known_states(rows, [each.states for each in examples])
        return LabelledBatch(rows, torch.from_numpy(np.stack(places, 1)), source, part=part, states=states)


def row_parts(batch: LabelledBatch, tokens: int) -> Iterator[LabelledBatch]:
    """The batch in parts of consecutive rows with at most this many tokens together, because one passage may have any number of
    windows."""
    windows, rows, types = Windows.of(batch), batch.input.rows, batch.input.token_types
    offsets = np.concatenate([[0], np.cumsum(rows.host_lengths)])
    for start, stop in rows.runs(tokens):
        flat = slice(int(offsets[start]), int(offsets[stop]))
        part = Windows(
            windows.null[start:stop],
            windows.answered[start:stop],
            windows.passage[flat],
            windows.read_here[flat],
            windows.lettered[flat],
            windows.shift[start:stop],
        )
        input = EncoderInput(
            batch.input.ids[flat],
            Rows.build(rows.host_lengths[start:stop]),
            None if types is None else types[flat],
            None,
            batch.input.source[start:stop],
            batch.input.spans[start:stop],
            batch.input.offsets[start:stop],
        )
        targets = None if batch.targets is None else batch.targets[start:stop]
        states = None if batch.states is None else batch.states[flat]
        yield LabelledBatch(input, targets, batch.order[start:stop], part=part, states=states)

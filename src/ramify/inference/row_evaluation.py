"""Held-out losses of masked language models on rows of running text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ramify.batching.batch import Batch, select_positions
from ramify.batching.forest import Ints
from ramify.batching.row_batch import RowCollator
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.packed import TextRow, TextRows
from ramify.inference.base import TOKENS
from ramify.inference.common_footing import WINDOW, CommonFooting, FootingScores, LogProbabilities
from ramify.models.base import decode_parts
from ramify.nn import counter_rng
from ramify.tasks.base import Readings
from ramify.tasks.masked_lm import NEXT_SENTENCE, MaskedLM


@dataclass(frozen=True)
class Tallied:
    """Sums over predictions."""

    loss: float = 0.0
    """Nats."""
    correct: int = 0
    count: int = 0

    def __add__(self, other: "Tallied") -> "Tallied":
        return Tallied(self.loss + other.loss, self.correct + other.correct, self.count + other.count)

    def summary(self) -> dict[str, Any]:
        count = max(1, self.count)
        return {"loss": self.loss / count, "accuracy": self.correct / count, "count": self.count}


@dataclass(frozen=True)
class RowScores:
    """Predictions of masked tokens, and of whether a second segment follows the first one."""

    masked: Tallied
    next_sentence: Tallied

    def summary(self) -> dict[str, Any]:
        """Loss in nats per masked token, perplexity, accuracy and count, and those of next-sentence prediction if the model
        predicts it."""
        masked = self.masked.summary()
        summary = {**masked, "perplexity": float(np.exp(masked["loss"]))}
        if self.next_sentence.count:
            summary[NEXT_SENTENCE] = self.next_sentence.summary()
        return summary


def spread_rows(view: TextRows, count: int) -> Ints:
    """Numbers of at most `count` rows, evenly spaced over the text."""
    number = len(view)
    return np.arange(number) if number <= count else np.arange(count) * number // count


@torch.no_grad()
def evaluate_rows(
    task: MaskedLM,
    view: TextRows,
    collator: RowCollator,
    rows: Ints,
    *,
    draws: int = 1,
    mask_rate: float | None = None,
    progress: Callable[[int], None] | None = None,
    read: Callable[[Batch, Readings], None] | None = None,
) -> RowScores:
    """Mask the rows `draws` times, seeded by their numbers, and score the predictions. `mask_rate=None` is that of training.
    `read` is given the masked rows of the first draw with their readings."""
    masked = following = Tallied()
    with task.evaluating():
        for batch in _batches(view, collator, rows):
            moved = batch.to(task.device)
            for draw in range(draws):
                corrupted = _masked(task, moved, draw, mask_rate)
                for part, hidden in decode_parts(task.backbone, corrupted, TOKENS):
                    states, labels = task.masked_states(hidden, part)
                    losses, best = task.head.measure(states, labels)
                    masked += Tallied(float(losses.double().sum()), int((best == labels).sum()), len(labels))
                    if read is not None and draw == 0:
                        read(part, task.target_readings(hidden, part, losses))
                    if task.next_head is not None and part.pair_labels is not None:
                        scores = task.next_scores(hidden, part)
                        loss = F.cross_entropy(scores, part.pair_labels, reduction="sum")
                        right = int((scores.argmax(-1) == part.pair_labels).sum())
                        following += Tallied(float(loss), right, len(part.pair_labels))
            if progress is not None:
                progress(len(batch.targets))
    return RowScores(masked, following)


def _masked(task: MaskedLM, batch: Batch, draw: int, mask_rate: float | None) -> Batch:
    seeds = counter_rng.random_bits(torch.from_numpy(batch.source), draw)
    return task.mask(batch, seeds.to(task.device), mask_rate)


def _batches(view: TextRows, collator: RowCollator, rows: Ints) -> Iterator[Batch]:
    for places in TokenBudget(view.costs[rows], TOKENS, seed=0, shuffle=False).steps(0):
        yield collator([view.example(int(rows[place])) for place in places])


@torch.no_grad()
def masked_scores(task: MaskedLM, rows: Ints, positions: Ints) -> Float[Tensor, "row vocab"]:
    """The scores of all pieces for one masked token of each row, given all others. Rows have no special tokens."""
    tokenizer, layout, count = task.tokenizer, task.input.row_layout(task.tokenizer), len(rows)
    shown = rows.copy()
    shown[np.arange(count), positions] = tokenizer.mask_id
    ids = [layout.wrap(row) for row in shown]
    width = len(ids[0])
    nothing, types = np.zeros(width, dtype=bool), np.zeros(width, dtype=np.int64)
    # Rows of one length keep their order.
    batch = RowCollator(layout.frame)([TextRow(number, row, nothing, types, None) for number, row in enumerate(ids)])
    index = torch.from_numpy(np.arange(count) * width + len(layout.before) + positions)
    asked = select_positions(index, np.ones(count, dtype=np.int64), batch.targets, batch.readers)
    moved = replace(batch, output_positions=asked).to(task.device)
    with task.evaluating():
        parts = decode_parts(task.backbone, moved, TOKENS)
        return torch.cat([task.head(hidden.tokens).float() for _, hidden in parts])


def masked_log_probabilities(task: MaskedLM) -> LogProbabilities:
    """log p of one token of a text given all others: the token alone is masked."""

    def predict(rows: Ints, positions: Ints) -> NDArray[np.float64]:
        answers = torch.from_numpy(rows[np.arange(len(rows)), positions]).to(task.device)
        log_probabilities = masked_scores(task, rows, positions).double().log_softmax(-1)
        return log_probabilities.gather(1, answers[:, None])[:, 0].cpu().numpy()

    return predict


def on_common_footing(task: MaskedLM, footing: CommonFooting) -> FootingScores:
    return footing.measure(masked_log_probabilities(task))


def readable_window(task: MaskedLM) -> int:
    """The length of the windows of a common footing: `WINDOW`, or the longest text that the model reads if that is shorter."""
    return min(WINDOW, task.input.room(task.tokenizer))

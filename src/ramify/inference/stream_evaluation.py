"""Held-out losses of models of running text, with the memory that training gave them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.running_text import RunningText
from ramify.batching.stream_batch import StreamBatch, StreamTargets, collate_streams, plain_rows
from ramify.batching.views.streams import SIGNS, Directions, StreamConfig, Streams
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.inference.common_footing import CommonFooting, FootingScores, Given
from ramify.inference.permutation import WordPipeline
from ramify.inference.row_evaluation import Tallied
from ramify.inference.streams import StreamPipeline
from ramify.nn import counter_rng
from ramify.tasks.base import Readings
from ramify.tasks.bidirectional_lm import BidirectionalLM
from ramify.tasks.stream_task import StreamTask

LONG_ENOUGH = 4
"""Rows that a held-out stream has at least, so that memory is used; a short text is cut into fewer streams than in training."""


@dataclass(frozen=True)
class StreamScores:
    """Predictions of the targets of streams."""

    total: Tallied
    directions: Mapping[Directions, Tallied]
    """Predictions by the direction of their rows."""

    def summary(self) -> dict[str, Any]:
        return self.total.summary()


def held_out_streams(task: StreamTask, text: RunningText, config: StreamConfig, *, seed: int = 0) -> Streams:
    """The streams of a held-out text: as many as in training, or fewer and longer ones if the text is short.

    Raises `RamifyError` if the text is shorter than one row.
    """
    streams = min(config.streams, max(1, text.num_tokens // (LONG_ENOUGH * task.input.row_tokens)))
    return Streams(text, task.tokenizer, task.input, replace(config, streams=streams), seed=seed)


def num_places(view: Streams, rows: int | None) -> int:
    """The number of batches that hold about so many rows (None: all), at least one."""
    return view.per_stream if rows is None else min(view.per_stream, max(1, rows // view.config.num_rows))


@torch.no_grad()
def evaluate_streams(
    task: StreamTask,
    view: Streams,
    *,
    rows: int | None = None,
    draws: int = 1,
    memory: int | None = None,
    progress: Callable[[int], None] | None = None,
    read: Callable[[StreamBatch, Readings], None] | None = None,
) -> StreamScores:
    """Draw targets `draws` times, seeded by the rows' numbers, and score them from the start of each stream on.

    `rows` bounds the number of rows. `memory` replaces the model's number of remembered states per layer. `read` is
    given the batches of the first draw with their readings.
    """
    total = Tallied()
    directions: dict[Directions, Tallied] = {
        name: Tallied() for name, signs in SIGNS.items() if len(signs) == 1 and set(signs) <= set(view.config.signs)
    }
    with task.evaluating():
        for draw in range(draws):
            state = None
            for batch in drawn_rows(task, view, rows, draw, memory):
                predicted = task.predict(batch, state)
                state = predicted.state
                labels = predicted.targets.labels.flatten()
                losses, best = task.head.measure(predicted.states, labels)
                right = best == labels
                total += Tallied(float(losses.double().sum()), int(right.sum()), len(labels))
                for name in directions:
                    rows_read = torch.from_numpy(np.isin(batch.direction, SIGNS[name])).to(labels.device)
                    chosen = rows_read.repeat_interleave(len(labels) // len(rows_read))
                    directions[name] += Tallied(
                        float(losses[chosen].double().sum()), int(right[chosen].sum()), int(chosen.sum())
                    )
                if read is not None and draw == 0:
                    read(batch, task.target_readings(predicted, batch, losses))
                if progress is not None:
                    progress(batch.num_targets)
    return StreamScores(total, directions)


def drawn_rows(
    task: StreamTask, view: Streams, rows: int | None = None, draw: int = 0, memory: int | None = None
) -> Iterator[StreamBatch]:
    """Batches of about so many rows (None: all) from the start of each stream on, with targets that the rows' numbers draw."""
    for place in range(num_places(view, rows)):
        numbers = np.arange(view.config.num_rows) * view.per_stream + place
        batch = collate_streams([view.example(int(number)) for number in numbers], task.input)
        seeds = counter_rng.random_bits(torch.from_numpy(numbers), draw).numpy() & (2**63 - 1)
        yield task.draw(replace(batch, remembered=memory).to(task.device), seeds)


@dataclass(frozen=True)
class OneToken:
    """log p of one token of a text given all others, for `CommonFooting.measure`."""

    pipeline: WordPipeline

    def __call__(self, rows: Ints, positions: Ints) -> NDArray[np.float64]:
        answers = rows[np.arange(len(rows)), positions]
        shown = rows.copy()
        shown[np.arange(len(rows)), positions] = self.pipeline.tokenizer.mask_id
        log_probabilities = self.pipeline.log_probabilities(shown.tolist(), positions[:, None].tolist())[:, 0].double()
        return log_probabilities.gather(1, torch.from_numpy(answers)[:, None])[:, 0].numpy()


@dataclass(frozen=True)
class EachSide:
    """log p of one token of a text given those on one side of it, for `CommonFooting.measure`: the mean over the model's
    directions."""

    task: BidirectionalLM

    @torch.no_grad()
    def __call__(self, rows: Ints, positions: Ints) -> NDArray[np.float64]:
        labels = torch.from_numpy(rows[np.arange(len(rows)), positions]).to(self.task.device)
        nats = []
        with self.task.evaluating():
            for sign in SIGNS[self.task.backbone.directions]:
                read, places = (rows, positions) if sign > 0 else (rows[:, ::-1], rows.shape[1] - 1 - positions)
                begun = np.concatenate([np.full((len(rows), 1), self.task.begin), read], 1)
                batch = replace(plain_rows(begun), direction=np.full(len(rows), sign)).to(self.task.device)
                targets = StreamTargets.at(places[:, None] + 1, batch.input_ids)
                states = self.task.predict(replace(batch, targets=targets), None).states
                nats.append(self.task.head.measure(states, labels)[0].double().cpu().numpy())
        return -np.mean(nats, 0)


def on_common_footing(pipeline: StreamPipeline, footing: CommonFooting) -> FootingScores | None:
    """Score the tokens of a common footing: the token that is predicted comes last in the factorization order, or is masked, or
    is predicted from each side alone.

    None: the model's kind has no such score.
    """
    if isinstance(pipeline, WordPipeline):
        return footing.measure(OneToken(pipeline))
    if isinstance(pipeline, BidirectionalPipeline):
        given: Given = "before, or after" if pipeline.backbone.directions == "both" else "before"
        return footing.measure(EachSide(pipeline.task), given=given)
    return None

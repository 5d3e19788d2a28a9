"""Memory leaks nothing: the states that a row leaves for the next one do not depend on the words that the next one predicts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures.streams import pieces, running_text, xlnet
from ramify.batching.stream_batch import collate_streams
from ramify.batching.views.streams import StreamConfig, Streams
from ramify.recipes import RECIPES
from ramify.registry import TASKS, task_name
from ramify.tasks.permutation_lm import factorization_order
from ramify.tokenizer import SPECIAL

ROWS = 3
RUNS = {
    "xlnet": {},
    "xlnet, denoising": {"objective": "denoising"},
    "xlnet, forward": {"order": "forward"},
    "xlnet, backward": {"order": "backward"},
    "xlnet-lm": {},
    "xlnet-lm, forward": {"order": "forward"},
    "xlnet-lm, backward": {"order": "backward"},
}
"""The recipes of rows that continue each other, with every choice of an objective."""


def recipe_run(name):
    return RECIPES[name.partition(",")[0]]("somewhere", **RUNS[name])


def small_task(run):
    """The run's objective with a small model that remembers a whole row."""
    model = xlnet(num_layers=2, memory=run.input.row_tokens)
    return TASKS[task_name(run.task)].task(model, pieces(), run.input, run.task).double().eval()


def view_of(run, text):
    return Streams(text, pieces(), run.input, StreamConfig(1, run.view.directions), seed=0)


def a_text(run):
    length = run.input.row_tokens + (ROWS - 1) * run.input.reused_tokens
    return running_text([8] * (length // 8), [length // 8])


def first_rows(view):
    """The first row of every stream."""
    return [view.example(stream * view.per_stream) for stream in range(view.config.num_rows)]


def memory_after(task, batch):
    with torch.no_grad():
        state = task.predict(batch, None).state
    assert state is not None
    return state["memory"]


def with_another_word(text, place):
    """The text with another piece at a place, which begins a word if the earlier one did, so that no draw changes."""
    starts = np.flatnonzero(pieces().word_starts == pieces().word_starts[text.ids[place]])
    ids = text.ids.copy()
    ids[place] = next(piece for piece in starts.tolist() if piece >= len(SPECIAL) and piece != ids[place])
    return replace(text, ids=ids)


def in_stream(text, direction, place):
    """The place in the text of a place of a stream."""
    return place if direction > 0 else text.num_tokens - 1 - place


@pytest.mark.parametrize("name", RUNS)
def test_memory_has_not_read_the_next_row(name):
    run = recipe_run(name)
    task, text = small_task(run), a_text(run)
    rows, seeds = first_rows(view_of(run, text)), np.arange(2)
    before = memory_after(task, task.draw(collate_streams(rows, run.input), seeds[: len(rows)]))
    # The reused text has 64 tokens or more, so these are the first of the next row's, one in its middle, and its last.
    next_row = run.input.reused_tokens + np.array([0, 1, 40, run.input.row_tokens - 1])
    for number, row in enumerate(rows):
        for place in next_row.tolist():
            other = view_of(run, with_another_word(text, in_stream(text, row.direction, place)))
            batch = task.draw(collate_streams(first_rows(other), run.input), seeds[: len(rows)])
            assert torch.equal(memory_after(task, batch)[:, number], before[:, number]), (row.direction, place)
        # The control: the last of the reused tokens is read.
        last = in_stream(text, row.direction, run.input.reused_tokens - 1)
        other = view_of(run, with_another_word(text, last))
        batch = task.draw(collate_streams(first_rows(other), run.input), seeds[: len(rows)])
        assert not torch.equal(memory_after(task, batch)[:, number], before[:, number])


def test_orders_of_whole_rows_leak_if_rows_overlap():
    """Why overlapping rows have two parts: in one part, memory reads the words that the next row predicts."""
    run = recipe_run("xlnet-lm")
    run = replace(run, input=replace(run.input, reused_tokens=run.input.row_tokens // 2))
    task, text = small_task(run), a_text(run)

    def memory(text):
        batch = task.draw(collate_streams(first_rows(view_of(run, text))[:1], run.input), np.zeros(1, dtype=np.int64))
        whole = factorization_order(
            np.ones(run.input.row_tokens, dtype=bool), ((0, run.input.row_tokens),), np.random.default_rng(0)
        )
        targets = replace(batch.targets, counts=(batch.targets.positions.shape[1],))
        return memory_after(task, replace(batch, order=torch.from_numpy(whole[None]), parts=(), targets=targets))

    assert not torch.equal(memory(text), memory(with_another_word(text, run.input.reused_tokens)))


@pytest.mark.parametrize("size", ["small", "base", "paper"])
def test_xlnet_lm_draws_orders_of_whole_rows(size):
    """In some order, a token of the first half follows one of the second, and its target reads it."""
    run = RECIPES["xlnet-lm"]("somewhere", size=size)
    tokens = run.input.row_tokens
    task, text = small_task(run), a_text(run)
    batch = task.draw(collate_streams(first_rows(view_of(run, text)), run.input), np.arange(2))
    assert batch.parts == ((0, tokens),)
    assert batch.targets.counts == (tokens,)
    assert np.sort(batch.order.numpy(), 1).tolist() == [list(range(1, tokens + 1))] * 2
    assert (batch.order[:, : tokens // 2].amax(1) > batch.order[:, tokens // 2 :].amin(1)).all()

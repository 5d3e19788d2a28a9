"""Texts that continue from step to step, read by a task that carries a state."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from short_runs import equal, records, weights

from fixtures.toys import NextLetter, Texts
from ramify.batching.samplers import Stream, TokenBudget
from ramify.errors import RamifyError
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage, stream
from ramify.training.trainer import Trainer

ROWS, LENGTH, WIDTH = 4, 5, 3
CONFIG = TrainConfig(steps=8, lr=1e-2, log_every=1, checkpoint_every=2, evaluate_every=3)


def trainer_of(out, config=CONFIG, *, task=None, dev=None, rows=ROWS, **options):
    task, texts = task or NextLetter(), Texts(ROWS, LENGTH, WIDTH)
    stage = Stage(config, texts, texts.collate, dev and dev(task), make_sampler=stream(rows))
    return Trainer(task, [stage], out, seed=3, cpu=True, **options)


def pieces(texts, sampler, count):
    order = iter(sampler)
    return [texts.collate([texts.example(int(number)) for number in next(order)]) for _ in range(count)]


# --- the sampler --------------------------------------------------------------------------------------------------------------


@given(own=st.integers(1, 4), length=st.integers(1, 6), world_size=st.integers(1, 4), taken=st.integers(0, 20))
def test_rows_continue_from_step_to_step(own, length, world_size, taken):
    """Each rank reads its own rows, equally many per step; over an epoch every example is read once."""
    rows = own * world_size
    samplers = [Stream(rows * length, rows, world_size=world_size, rank=rank) for rank in range(world_size)]
    iterators = [iter(sampler) for sampler in samplers]
    for epoch in range(2):
        steps = [[next(iterator) for iterator in iterators] for _ in range(length)]
        assert {sampler.epoch for sampler in samplers} == {epoch}
        for before, after in pairwise(steps):
            for last, now in zip(before, after, strict=True):
                assert len(now) == own
                assert (now == last + 1).all()
        assert sorted(np.concatenate([np.concatenate(step) for step in steps]).tolist()) == list(range(rows * length))
        assert (np.concatenate(steps[0]) % length == 0).all()
    assert samplers[0].rounds(0) == length
    # This also holds after resuming at a position.
    sampler = Stream(rows * length, rows, world_size=world_size, rank=world_size - 1)
    iterator = iter(sampler)
    for _ in range(taken):
        next(iterator)
    other = Stream(rows * length, rows, world_size=world_size, rank=world_size - 1)
    other.load_state(sampler.state())
    again = iter(other)
    for _ in range(length + 1):
        assert next(again).tolist() == next(iterator).tolist()
        assert other.state() == sampler.state()


def test_unsuitable_row_counts_are_refused():
    with pytest.raises(RamifyError, match="10 examples are not 3 streams of equal length"):
        Stream(10, 3)
    with pytest.raises(RamifyError, match=r"5 streams cannot be divided equally among 2 processes\. Choose a multiple of 2"):
        Stream(10, 5, world_size=2)


def test_empty_data_is_refused():
    for sampler in (Stream(0, 1), TokenBudget(np.zeros(0, dtype=np.int64), 5, seed=0)):
        with pytest.raises(RamifyError, match="no examples to train on"):
            next(iter(sampler))


# --- the state ----------------------------------------------------------------------------------------------------------------

STILL = replace(CONFIG, lr=0.0, steps=LENGTH)


@pytest.mark.parametrize("accumulate", [1, 5])
def test_carried_state_equals_that_of_one_pass(tmp_path, accumulate):
    """With a learning rate of zero, the state after all pieces equals that of one pass over the whole texts, for any number of
    pieces per update."""
    task = NextLetter(dropout=0.0)
    trainer = trainer_of(tmp_path, replace(STILL, steps=LENGTH // accumulate, accumulate=accumulate), task=task)
    trainer.run()
    texts = Texts(ROWS, LENGTH, WIDTH)
    whole = Texts(ROWS, 1, WIDTH * LENGTH)
    whole.letters = texts.letters.reshape(ROWS, -1)
    _, expected = task.read([whole.collate([whole.example(number) for number in range(ROWS)])])
    assert equal(trainer.state, expected)
    assert trainer.state["hidden"].abs().max() > 0.1


@pytest.mark.parametrize("forgets", [True, False])
def test_state_at_the_end_of_an_epoch(tmp_path, forgets):
    """The loop passes the state on; the task sees in the batch that texts begin, and forgets the last ones or does not."""
    task = NextLetter(dropout=0.0, forgets=forgets)
    trainer = trainer_of(tmp_path, replace(STILL, steps=LENGTH + 1), task=task)
    trainer.run()
    first = pieces(Texts(ROWS, LENGTH, WIDTH), Stream(ROWS * LENGTH, ROWS), LENGTH + 1)
    _, anew = task.read(first[:1])
    _, on = task.read(first)
    assert equal(trainer.state, anew if forgets else on)
    assert equal(anew, on) == forgets


def test_stage_begins_without_a_state(tmp_path):
    task, texts = NextLetter(dropout=0.0, forgets=False), Texts(ROWS, LENGTH, WIDTH)
    short = replace(STILL, steps=1)
    stages = [Stage(short, texts, texts.collate, make_sampler=stream(rows)) for rows in (ROWS, 2)]
    trainer = Trainer(task, stages, tmp_path, seed=3, cpu=True)
    trainer.run()
    _, expected = task.read([texts.collate([texts.example(number) for number in (0, ROWS * LENGTH // 2)])])
    assert equal(trainer.state, expected)


@pytest.mark.parametrize("kills", [(1,), (4,), (7,), (2, 5, 6)], ids=str)
@pytest.mark.parametrize("forgets", [True, False])
def test_killed_run_resumes_to_the_same_bits(tmp_path, kills, forgets):
    def task():
        return NextLetter(forgets=forgets)

    straight = trainer_of(tmp_path / "straight", task=task())
    straight.run()
    for kill in kills:
        trainer_of(tmp_path / "killed", task=task()).run(resume=True, until=kill)
    resumed = trainer_of(tmp_path / "killed", task=task())
    resumed.run(resume=True)
    assert equal(weights(resumed), weights(straight))
    assert equal(resumed.state, straight.state)
    assert torch.equal(resumed.task.num_letters, straight.task.num_letters)
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
    # The state causes the difference.
    shutil.rmtree(tmp_path / "killed")
    trainer_of(tmp_path / "killed", task=task()).run(until=3)
    folder = tmp_path / "killed" / "checkpoints" / "step-00000002"
    lose(folder)
    resumed = trainer_of(tmp_path / "killed", task=task())
    resumed.run(resume=True)
    assert not equal(weights(resumed), weights(straight))


def lose(folder):
    """The second stage behaves as if there were no state."""
    (folder / "state-0.safetensors").unlink()
    rewrite(folder, lambda checksums: checksums.pop("state-0.safetensors"))


def rewrite(folder, change):
    record = json.loads((folder / "state.json").read_text())
    change(record["sha256"])
    (folder / "state.json").write_text(json.dumps(record))


def test_evaluation_leaves_the_state_unchanged(tmp_path):
    """Evaluation has a state of its own, which starts anew each time."""
    seen = []

    def dev(task):
        texts = Texts(2, LENGTH, WIDTH, seed=9)

        def measure():
            loss, _ = task.read(pieces(texts, Stream(2 * LENGTH, 2), LENGTH))
            seen.append(trainer.state)
            return {"dev_loss": loss, "dev_again": task.read(pieces(texts, Stream(2 * LENGTH, 2), LENGTH))[0]}

        return measure

    plain = trainer_of(tmp_path / "plain")
    plain.run()
    trainer = trainer_of(tmp_path / "measured", replace(CONFIG, evaluate_every=1), dev=dev)
    trainer.run()
    assert len(seen) == 8
    assert equal(trainer.state, plain.state)
    assert equal(weights(trainer), weights(plain))
    measured = records(tmp_path / "measured")
    assert all(record["dev_loss"] == record["dev_again"] for record in measured)
    assert len({record["dev_loss"] for record in measured}) == 8


# --- its file -----------------------------------------------------------------------------------------------------------------


def test_flipped_bit_of_a_state_is_detected(tmp_path, capsys):
    straight = trainer_of(tmp_path / "straight")
    straight.run()
    trainer_of(tmp_path / "killed").run(until=7)
    file = tmp_path / "killed" / "checkpoints" / "step-00000006" / "state-0.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    resumed = trainer_of(tmp_path / "killed")
    resumed.run(resume=True)
    assert "state-0.safetensors does not have the checksum that state.json names" in capsys.readouterr().err
    assert equal(weights(resumed), weights(straight))


def test_states_of_another_number_of_processes_are_refused(tmp_path):
    trainer_of(tmp_path).run(until=2)
    folder = tmp_path / "checkpoints" / "step-00000002"
    save_file(load_file(folder / "state-0.safetensors"), folder / "state-1.safetensors")
    rewrite(folder, lambda checksums: checksums.update({"state-1.safetensors": "0"}))
    with pytest.raises(RamifyError, match=r"step-00000002 holds states of 2 processes, but 1 resume from it"):
        trainer_of(tmp_path).run(resume=True)


def test_tasks_without_a_state_write_none(tmp_path):
    texts = Texts(ROWS, LENGTH, WIDTH)

    class Forgetful(NextLetter):
        def losses(self, *given):
            for named, _ in super().losses(*given):
                yield named, None

    trainer = Trainer(Forgetful(), [Stage(CONFIG, texts, texts.collate)], tmp_path, seed=0, cpu=True)
    trainer.run(until=2)
    names = sorted(path.name for path in (tmp_path / "checkpoints" / "step-00000002").iterdir())
    assert names == ["model.safetensors", "optimizer.safetensors", "state.json"]

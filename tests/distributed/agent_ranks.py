"""AGENT on two ranks, for `test_two_ranks_of_agent.py`."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fixtures.nested import SMALL_RUN, book, books, read, task
from ramify.batching.document_batch import DocumentBatch
from ramify.inference.documents.cached_vectors import FrozenVectors
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage
from ramify.training.trainer import Trainer

BUDGET = 24
STILL = TrainConfig(steps=3, budget=BUDGET, lr=0.0, clip=0.0, log_every=1)
"""A learning rate of zero: all steps are taken at the same parameters."""
MOVING = TrainConfig(steps=9, budget=BUDGET, lr=1e-2, log_every=1, checkpoint_every=2)
TREES = [*books(7), book([[5, 2], [3, 3, 3], [4, 4], [2, 2]], seed=9, name="long")]
SENTENCES = {"levels": ("sentence",), "dims": (8, 12), "max_children": (6,), "encoder_cells": (1,), "decoder_cells": (1,)}


class SameDraws(NestedAutoencoder):
    """Sentences have the same masks and replacements on every rank."""

    def corrupt(self, batch: DocumentBatch, generator: torch.Generator) -> DocumentBatch:
        drawn = self.draw(batch, 0)
        (level,), (draws,) = batch.levels, drawn.draws
        # The second child of a row of several is masked; the first is replaced by one token.
        several = torch.from_numpy(level.counts > 1)
        first = level.rows.offsets[:-1].long()
        masked = first[several] + 1
        shown, replaced = level.slots.clone(), level.slots.clone()
        shown[masked] = 5
        replaced[first[several]] = 20
        share = several.double() / torch.from_numpy(level.counts).clamp(min=1)
        segments = torch.zeros_like(level.slots).index_fill(0, first[several], 1)
        draws = replace(
            draws,
            masked_slots=shown,
            masked=masked,
            marked=first[several],
            replaced_slots=replaced,
            segments=segments,
            share=share,
        )
        return replace(drawn, draws=(draws,))


def gradients(out: Path) -> dict[str, Tensor]:
    """The reduced gradients of every step, in double precision, of sentences whose losses have no classes of a batch."""
    own = task(SENTENCES, autoencoder_until=1.0)
    own.__class__ = SameDraws
    view, collator = read(own, TREES, BUDGET)
    found: dict[str, Tensor] = {}

    def keep(record: dict) -> None:
        for name, parameter in own.named_parameters():
            assert parameter.grad is not None, name
            found[f"{record['step']}.{name}"] = parameter.grad.clone()

    trainer = Trainer(own, [Stage(STILL, view, collator)], out, seed=3, report=keep)
    trainer.run()
    return found


def train(out: Path, upper: str, **how: bool | int) -> dict[str, Tensor]:
    """The weights and queues after a training, or a part of one. One document is longer than a batch."""
    own = task({"dropout": 0.1}, dtype=torch.float32, upper=upper, queue=8)
    view, collator = read(own, TREES, BUDGET, document_draws=2)
    assert any(example.apart for example in view.examples)
    trainer = Trainer(own, [Stage(MOVING, view, collator)], out, seed=3, cpu=True)
    trainer.run(**how)  # pyright: ignore[reportArgumentType]
    trainer.accelerator.wait_for_everyone()
    return {name: tensor.clone() for name, tensor in own.state_dict().items()}


def staged(out: Path) -> dict[str, Tensor]:
    """The weights after steps some of which have nothing to learn, on one rank or on both."""
    own = task(dtype=torch.float32, schedule="staged", unlock_steps=3, freeze_below=True)
    view, collator = read(own, TREES[-1:], BUDGET)
    trainer = Trainer(own, [Stage(MOVING, view, collator)], out, seed=3, cpu=True)
    trainer.run()
    return {name: tensor.clone() for name, tensor in own.state_dict().items()}


def units(data: Path, out: Path) -> dict[str, Tensor]:
    """The weights after all stages of a run on batches of units, two of which read kept vectors, and the number of files of
    vectors that this rank has written."""
    written = torch.zeros((), dtype=torch.int64)
    write = FrozenVectors._write

    def counted(*given) -> None:
        written.add_(1)
        write(*given)

    FrozenVectors._write = counted
    settings = {"train.budget": "20", "train.units": "4", "train.evaluate_every": "0", "view.whole_documents": "true"}
    run = RECIPES["agent"](str(data), steps=2, all_tokens=1).changed(SMALL_RUN | settings)
    prepared, progress = execute(run, out, cpu=True)
    assert progress.step == 10
    return {name: tensor.clone() for name, tensor in prepared.task.state_dict().items()} | {"written": written}


def main(folder: Path) -> None:
    found = {f"gradients.{name}": tensor for name, tensor in gradients(folder / "still").items()}
    assert torch.distributed.get_world_size() == 2
    for upper in ("detached", "two_phase"):
        found |= {f"straight.{upper}.{name}": tensor for name, tensor in train(folder / f"straight-{upper}", upper).items()}
        for kill in (3, 7):
            train(folder / f"killed-{upper}", upper, resume=True, until=kill)
        resumed = train(folder / f"killed-{upper}", upper, resume=True)
        found |= {f"resumed.{upper}.{name}": tensor for name, tensor in resumed.items()}
    found |= {f"staged.{name}": tensor for name, tensor in staged(folder / "staged").items()}
    found |= {f"units.{name}": tensor for name, tensor in units(folder / "data" / "store", folder / "units").items()}
    save_file(found, folder / f"rank-{torch.distributed.get_rank()}.safetensors")
    torch.distributed.barrier()

"""An epoch of steps of every kind on every rank. The reduced gradients are saved for `test_two_ranks.py`."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fixtures import discussions, forest, masked, tree_task, view_of, words_task
from ramify.batching.batch import Batch
from ramify.batching.forest import Forest
from ramify.tasks.masked_lm import MaskedLM
from ramify.training.config import TrainConfig
from ramify.training.trainer import Stage, Trainer

SEED = 3
CONFIG = TrainConfig(steps=4, budget=220, lr=0.0, clip=0.0, log_every=1)
"""A learning rate of zero: all steps are taken at the same parameters."""


class SameMasks(MaskedLM):
    """A comment has the same masks on every rank."""

    data: Forest

    def corrupt(self, batch: Batch, generator: torch.Generator) -> Batch:
        return masked(self, self.data, batch)


MAKE = {"paper": tree_task, "additions": words_task}
KINDS = {"one graph": ("never", 0.0), "two phases": ("always", 0.0), "dropout": ("always", 0.3)}
"""The phases and the dropout of steps."""


def setting(design: str, phases: str, dropout: float = 0.0) -> tuple[MaskedLM, Forest]:
    """A task in double precision and its data, the same in every process."""
    data = forest(discussions(5, 12, seed=2))
    task = MAKE[design](task={"two_phase": phases, "chunk_tokens": 60}, context_position="depth", dropout=dropout)
    task.__class__ = SameMasks
    task.data = data
    return task, data


def save_gradients(design: str, phases: str, dropout: float, folder: Path) -> None:
    """Save what one rank has after its steps."""
    folder.mkdir(parents=True, exist_ok=True)
    task, data = setting(design, phases, dropout)
    view, collate = view_of(task, data)
    gradients: dict[str, Tensor] = {}

    def keep(record: dict) -> None:
        for name, parameter in task.named_parameters():
            if parameter.grad is not None:
                gradients[f"{record['step']}.{name}"] = parameter.grad.clone()

    trainer = Trainer(task, [Stage(CONFIG, view, collate)], folder, seed=SEED, report=keep)
    assert trainer.accelerator.num_processes == 2, trainer.accelerator.num_processes
    # Ranks that start from different weights would train different models.
    progress = trainer.run()
    gradients["progress"] = torch.tensor([progress.step, progress.targets, progress.target_tokens])
    save_file(gradients, folder / f"rank-{trainer.accelerator.process_index}.safetensors")
    trainer.accelerator.wait_for_everyone()


def main(folder: Path) -> None:
    for kind, (phases, dropout) in KINDS.items():
        for design in MAKE:
            save_gradients(design, phases, dropout, folder / kind / design)

"""A task with a state on rows of a stream. Each rank saves its final state for `test_two_ranks_with_a_state.py`."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fixtures.toys import NextLetter, Texts
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage, stream
from ramify.training.trainer import Trainer

ROWS, LENGTH, WIDTH, SEED = 6, 4, 3, 3
STILL = TrainConfig(steps=6, lr=0.0, clip=0.0)
"""A learning rate of zero: all steps are taken at the same parameters."""
MOVING = TrainConfig(steps=9, lr=1e-2, log_every=1, checkpoint_every=2)


def gradients(out: Path, dropout: float = 0.0, forgets: bool = True) -> dict[str, Tensor]:
    """The reduced gradients of every step and the state after it, in double precision."""
    task, texts = NextLetter(dropout=dropout, forgets=forgets).double(), Texts(ROWS, LENGTH, WIDTH)
    found: dict[str, Tensor] = {}

    def keep(record: dict) -> None:
        for name, parameter in task.named_parameters():
            assert parameter.grad is not None
            found[f"{record['step']}.{name}"] = parameter.grad.clone()
        assert trainer.state is not None
        for name, tensor in trainer.state.items():
            found[f"{record['step']}.state.{name}"] = tensor.clone()

    trainer = Trainer(task, [Stage(STILL, texts, texts.collate, make_sampler=stream(ROWS))], out, seed=SEED, report=keep)
    trainer.run()
    return found


def train(out: Path, **how: bool | int) -> dict[str, Tensor]:
    """The weights and the state of a rank after a training, or a part of one."""
    task, texts = NextLetter(), Texts(ROWS, LENGTH, WIDTH)
    trainer = Trainer(task, [Stage(MOVING, texts, texts.collate, make_sampler=stream(ROWS))], out, seed=SEED)
    assert trainer.accelerator.num_processes == 2, trainer.accelerator.num_processes
    trainer.run(**how)  # pyright: ignore[reportArgumentType]
    trainer.accelerator.wait_for_everyone()
    assert trainer.state is not None
    own = {**task.state_dict(), **{f"state.{name}": tensor for name, tensor in trainer.state.items()}}
    return {name: tensor.clone() for name, tensor in own.items()}


def main(folder: Path) -> None:
    found = {f"gradients.{name}": tensor for name, tensor in gradients(folder / "still").items()}
    found |= {f"straight.{name}": tensor for name, tensor in train(folder / "straight").items()}
    rank = torch.distributed.get_rank()
    for kill in (3, 7):
        train(folder / "killed", resume=True, until=kill)
    found |= {f"resumed.{name}": tensor for name, tensor in train(folder / "killed", resume=True).items()}
    # The other rank's state is damaged: both ranks return to the checkpoint before.
    train(folder / "damaged", until=5)
    if rank == 0:
        file = folder / "damaged" / "checkpoints" / "step-00000004" / "state-1.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    torch.distributed.barrier()
    found |= {f"damaged.{name}": tensor for name, tensor in train(folder / "damaged", resume=True).items()}
    save_file(found, folder / f"rank-{rank}.safetensors")
    torch.distributed.barrier()

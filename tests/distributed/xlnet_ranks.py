"""XLNet with memory on two ranks, for `test_two_ranks_of_xlnet.py`."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fixtures.running import INPUT, VIEW, streams, task
from ramify.batching.stream_batch import collate_streams
from ramify.batching.views.streams import StreamInput
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage, stream
from ramify.training.trainer import Trainer

STEPS = 9
CONFIG = TrainConfig(steps=STEPS, lr=1e-2, log_every=1, checkpoint_every=2)


def train(out: Path, input: StreamInput = INPUT, **how: bool | int) -> dict[str, Tensor]:
    """The weights and this rank's memory after a training, or a part of one."""
    view = streams(input=input)
    stage = Stage(CONFIG, view, lambda rows: collate_streams(rows, input), make_sampler=stream(VIEW.num_rows))
    trainer = Trainer(task(), [stage], out, seed=3, cpu=True)
    trainer.run(**how)  # pyright: ignore[reportArgumentType]
    assert trainer.state is not None
    own = {**trainer.task.state_dict(), **{f"state.{name}": tensor for name, tensor in trainer.state.items()}}
    return {name: tensor.clone() for name, tensor in own.items()}


def main(folder: Path) -> None:
    found = {f"straight.{name}": tensor for name, tensor in train(folder / "straight").items()}
    assert torch.distributed.get_world_size() == 2
    for kill in (3, 7):
        train(folder / "killed", resume=True, until=kill)
    found |= {f"resumed.{name}": tensor for name, tensor in train(folder / "killed", resume=True).items()}
    save_file(found, folder / f"rank-{torch.distributed.get_rank()}.safetensors")
    torch.distributed.barrier()

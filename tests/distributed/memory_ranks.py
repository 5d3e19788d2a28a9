"""Models of running text that carry a state, on two ranks, for `test_two_ranks_with_memory.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fixtures.running import INPUT, UNROLLED, VIEW, WHOLE_ROWS, elmo_task, streams, task
from ramify.batching.stream_batch import collate_streams
from ramify.batching.views.streams import StreamInput
from ramify.tasks.stream_task import StreamTask
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage, stream
from ramify.training.trainer import Trainer

STEPS = 9
CONFIG = TrainConfig(steps=STEPS, lr=1e-2, log_every=1, checkpoint_every=2)


@dataclass(frozen=True)
class Kind:
    """A model that carries a state, and one like it that carries none or less."""

    task: Callable[[], StreamTask]
    forgetful: Callable[[], StreamTask]
    input: StreamInput


def _elmo(stateful: bool) -> StreamTask:
    return elmo_task(stateful=stateful)


KINDS = {
    "xlnet": Kind(task, lambda: task(memory=1), INPUT),
    "xlnet, whole rows": Kind(task, lambda: task(memory=1), WHOLE_ROWS),
    "elmo": Kind(lambda: _elmo(True), lambda: _elmo(False), UNROLLED),
}


def train(out: Path, name: str, *, forgetful: bool = False, **how: bool | int) -> dict[str, Tensor]:
    """The weights and this rank's state after a training, or a part of one."""
    kind = KINDS[name]
    view = streams(input=kind.input)
    stage = Stage(CONFIG, view, lambda rows: collate_streams(rows, kind.input), make_sampler=stream(VIEW.num_rows))
    trainer = Trainer((kind.forgetful if forgetful else kind.task)(), [stage], out, seed=3, cpu=True)
    trainer.run(**how)  # pyright: ignore[reportArgumentType]
    own = {**trainer.task.state_dict(), **{f"state.{name}": tensor for name, tensor in (trainer.state or {}).items()}}
    return {name: tensor.clone() for name, tensor in own.items()}


def main(folder: Path) -> None:
    for name in ("xlnet", "elmo"):
        own = folder / name
        found = {f"straight.{key}": tensor for key, tensor in train(own / "straight", name).items()}
        assert torch.distributed.get_world_size() == 2
        for kill in (3, 7):
            train(own / "killed", name, resume=True, until=kill)
        found |= {f"resumed.{key}": tensor for key, tensor in train(own / "killed", name, resume=True).items()}
        save_file(found, own / f"rank-{torch.distributed.get_rank()}.safetensors")
        torch.distributed.barrier()

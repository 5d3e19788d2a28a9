"""Vectors of messages kept on disk, for all runs that read the same messages with the same frozen encoder."""

import hashlib
import json
from pathlib import Path

import torch
from filelock import FileLock

from ramify.disentangle.batch import Vectors
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference.decode import keep_vectors
from ramify.disentangle.task import ReplyTo
from ramify.errors import RamifyError
from ramify.files import make_folder
from ramify.models.base import AnyBackbone
from ramify.tensors import load_tensors, save_tensors
from ramify.version import __version__


def kept_vectors(task: ReplyTo, logs: Logs, messages: Ints, folder: str) -> Vectors | None:
    """`keep_vectors`, read from the folder where they lie there already; without a folder, computed."""
    encoder = getattr(task.backbone, "encoder", None)
    if not folder or not isinstance(encoder, AnyBackbone):
        return keep_vectors(task, logs, messages)
    file = Path(folder) / f"vectors-{_key(encoder, logs, messages)}.safetensors"
    if (held := _read(file)) is not None:
        return held
    make_folder(file.parent)
    # Who needs the same vectors meanwhile, another rank or another run, waits for them.
    with FileLock(file.with_suffix(".lock")):
        if (held := _read(file)) is not None:
            return held
        vectors = keep_vectors(task, logs, messages)
        if vectors is not None:
            save_tensors(file, {"table": vectors.table, "row": torch.from_numpy(vectors.row)})
        return vectors


def _read(file: Path) -> Vectors | None:
    if not file.exists():
        return None
    try:
        held = load_tensors(file)
    except RamifyError as error:
        raise RamifyError(f"{error} Delete it, and it is made anew.") from None
    return Vectors(held["table"], held["row"].numpy())


def _key(encoder: AnyBackbone, logs: Logs, messages: Ints) -> str:
    """Of everything that a vector hangs on: the encoder and its weights, the messages' tokens, and which messages they are."""
    ids, sizes = logs.words(messages)
    digest = hashlib.sha256(json.dumps([__version__, repr(encoder.config), len(logs)]).encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    for part in (messages, sizes, ids):
        digest.update(part.tobytes())
    return digest.hexdigest()[:24]

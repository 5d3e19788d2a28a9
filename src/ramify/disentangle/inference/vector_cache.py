"""Message vectors on disk, for all runs that encode the same messages with the same frozen encoder."""

import hashlib
import json
from pathlib import Path

import torch
from filelock import FileLock

from ramify.disentangle.batch import MessageVectors
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.files import make_folder
from ramify.models.base import Backbone
from ramify.tensors import content_hash, load_tensors, save_tensors
from ramify.version import __version__


def load_or_encode(task: ReplyLinking, logs: Logs, messages: Ints, folder: str) -> MessageVectors | None:
    """As `encode_messages`, but read from the folder if it holds the vectors, and written to it otherwise."""
    encoder = task.backbone.message_encoder
    if not folder or encoder is None:
        return encode_messages(task, logs, messages)
    file = Path(folder) / f"vectors-{_compute_key(encoder, logs, messages)}.safetensors"
    if (kept := _read(file)) is not None:
        return kept
    make_folder(file.parent)
    # Another rank or run that needs the same vectors waits for them.
    with FileLock(file.with_suffix(".lock")):
        if (kept := _read(file)) is not None:
            return kept
        vectors = encode_messages(task, logs, messages)
        if vectors is not None:
            save_tensors(file, {"table": vectors.table, "row": torch.from_numpy(vectors.row)})
        return vectors


def _read(file: Path) -> MessageVectors | None:
    if not file.exists():
        return None
    try:
        tensors = load_tensors(file)
    except RamifyError as error:
        raise RamifyError(f"{error} Delete the file; the next run writes it anew.") from None
    return MessageVectors(tensors["table"], tensors["row"].numpy())


def _compute_key(encoder: Backbone, logs: Logs, messages: Ints) -> str:
    """A hash of everything that the vectors depend on: the encoder and its weights, the messages and their tokens."""
    ids, sizes = logs.select_tokens(messages)
    weights = content_hash(encoder.state_dict())
    digest = hashlib.sha256(json.dumps([__version__, repr(encoder.config), weights, len(logs)]).encode())
    for part in (messages, sizes, ids):
        digest.update(part.tobytes())
    return digest.hexdigest()[:24]

"""Vectors of labelled texts from a frozen model: computed once, and kept on disk for later runs and resumed ones."""

import hashlib
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ramify.batching.forest import DONE, computed_once, ranges
from ramify.batching.labelled_batch import LabelCollator
from ramify.batching.views.base import FrozenView
from ramify.inference.label_pipeline import example_batches
from ramify.progress import activity
from ramify.tasks.downstream import DownstreamTask
from ramify.tensors import content_hash
from ramify.version import __version__

FILE = "features.npy"

GIB = 2**30


def kept_bytes(task: DownstreamTask, view: FrozenView[Any]) -> int:
    """The size of the vectors that a frozen backbone makes of a view."""
    return 4 * int(view.offsets[-1]) * task.num_kept * task.dim


def keep_features(task: DownstreamTask, view: FrozenView[Any], collator: LabelCollator, folder: Path, data: str) -> None:
    """Give a view the vectors that a frozen backbone makes of its rows, read from `folder` or computed and written there.

    The name of their folder is a hash of all that they depend on: weights, settings, texts (`data` is the hash of the data
    set). Vectors of others are never read.
    """
    if view.features is not None or not task.keeps_features or not view.is_fixed or not len(view):
        return
    key = _key(task, view, data)
    shape = (int(view.offsets[-1]), task.num_kept, task.dim)
    write, read = partial(_write, task, view, collator, key, shape), partial(_read, key, shape)
    view.features = computed_once(folder, f"features-{key[:32]}", "vectors of a frozen model", write, read)


def _key(task: DownstreamTask, view: FrozenView[Any], data: str) -> str:
    """A hash of all that the vectors depend on."""
    digest = hashlib.sha256()
    for array in view.content():
        digest.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
    config: Any = task.backbone.config
    settings = {name: value for name, value in asdict(task.input).items() if name != "label"}
    named = [type(config).__name__, asdict(config), settings, task.head_name, task.mixed]
    weights = content_hash(dict(task.backbone.state_dict()))
    read = [data, task.tokenizer.hash, digest.hexdigest()]
    return hashlib.sha256(json.dumps([__version__, weights, named, read], default=str).encode()).hexdigest()


def _write(
    task: DownstreamTask,
    view: FrozenView[Any],
    collator: LabelCollator,
    key: str,
    shape: tuple[int, int, int],
    folder: Path,
) -> None:
    features = open_memmap(folder / FILE, mode="w+", dtype=np.float32, shape=shape)
    starts, stops = view.offsets[:-1], view.offsets[1:]
    with task.evaluating(), activity("computing vectors of a frozen model", len(view)) as advance:
        for numbers, batch in example_batches(view, collator, advance):
            places = ranges(starts[numbers], stops[numbers])[collator.places(batch)]
            features[places] = task.kept_layers(batch.to(task.device).input).float().cpu().numpy()
    features.flush()
    (folder / DONE).write_text(json.dumps({"key": key, "rows": shape[0]}))


def _read(key: str, shape: tuple[int, int, int], folder: Path) -> Float[NDArray, "vector layer dim"]:
    """Map the vectors of a folder. Raises `ValueError` if they are others than expected."""
    record = json.loads((folder / DONE).read_text())
    features = np.load(folder / FILE, mmap_mode="r")
    if record != {"key": key, "rows": shape[0]} or features.shape != shape:
        raise ValueError("it holds vectors of other data or of another model")
    return features

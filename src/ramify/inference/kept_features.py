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

from ramify.batching.forest import DONE, computed_once
from ramify.batching.labelled_batch import LabelledCollator
from ramify.batching.views.labelled import LabelledView
from ramify.inference.label_pipeline import label_batches
from ramify.progress import activity
from ramify.tasks.downstream import DownstreamTask
from ramify.tensors import content_hash
from ramify.version import __version__

FILE = "features.npy"


def keep_features(task: DownstreamTask, view: LabelledView, folder: Path) -> None:
    """Give a view the vectors that a frozen backbone makes of its rows, read from `folder` or computed and written there.

    The name of their folder is a hash of all that they depend on: weights, settings, texts. Vectors of others are never read.
    Contexts that are drawn anew in every epoch have no fixed vectors, so nothing is kept.
    """
    if view.features is not None or not task.keeps_features or view.rows.others is not None:
        return
    key = _key(task, view)
    widths = len(task.mixed) if task.head is not None and task.head.of_layers else 1
    shape = (len(view), widths, task.dim)
    write, read = partial(_write, task, view, key, shape), partial(_read, key, shape)
    view.features = computed_once(folder, f"features-{key[:32]}", "vectors of a frozen model", write, read)


def _key(task: DownstreamTask, view: LabelledView) -> str:
    """A hash of all that the vectors depend on."""
    rows, digest = view.rows, hashlib.sha256()
    for array in (rows.text, rows.top, rows.forest.length[rows.text], rows.forest.parent):
        digest.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
    config: Any = task.backbone.config
    settings = {name: value for name, value in asdict(task.input).items() if name != "label"}
    named = [type(config).__name__, asdict(config), settings, task.head_name, task.mixed]
    weights = content_hash(dict(task.backbone.state_dict()))
    data = [rows.forest.store.hash, task.tokenizer.hash, digest.hexdigest()]
    return hashlib.sha256(json.dumps([__version__, weights, named, data], default=str).encode()).hexdigest()


def _write(task: DownstreamTask, view: LabelledView, key: str, shape: tuple[int, int, int], folder: Path) -> None:
    features = open_memmap(folder / FILE, mode="w+", dtype=np.float32, shape=shape)
    with task.evaluating(), activity("computing vectors of a frozen model", len(view)) as advance:
        for numbers, batch in label_batches(view, LabelledCollator.of(view.rows), advance):
            features[numbers] = task.row_layers(batch.to(task.device).input).float().cpu().numpy()
    features.flush()
    (folder / DONE).write_text(json.dumps({"key": key, "rows": shape[0]}))


def _read(key: str, shape: tuple[int, int, int], folder: Path) -> Float[NDArray, "row layer dim"]:
    """Map the vectors of a folder. Raises `ValueError` if they are others than expected."""
    record = json.loads((folder / DONE).read_text())
    features = np.load(folder / FILE, mmap_mode="r")
    if record != {"key": key, "rows": shape[0]} or features.shape != shape:
        raise ValueError("it holds vectors of other data or of another model")
    return features

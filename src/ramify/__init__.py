"""Ramify: language models for text that branches.

model = ramify.load("runs/reddit")
model.fill_mask(tree, node="c42")
model.embed(trees)
"""

from typing import TYPE_CHECKING, Any

from ramify.errors import RamifyError
from ramify.version import __version__

if TYPE_CHECKING:
    from ramify.dataset.build import build
    from ramify.dataset.store import Store
    from ramify.hub import load, push_to_hub, save
    from ramify.readers import read_logs
    from ramify.readers.jsonl import read_jsonl
    from ramify.runs import Run, execute
    from ramify.tokenizer import Tokenizer
    from ramify.tree import Node, Piece, Tree, multiplicity, split

__all__ = [
    "Node",
    "Piece",
    "RamifyError",
    "Run",
    "Store",
    "Tokenizer",
    "Tree",
    "__version__",
    "build",
    "execute",
    "load",
    "multiplicity",
    "push_to_hub",
    "read_jsonl",
    "read_logs",
    "save",
    "split",
]

_HOMES = {
    "Node": "tree",
    "Piece": "tree",
    "Run": "runs",
    "Store": "dataset.store",
    "Tokenizer": "tokenizer",
    "Tree": "tree",
    "build": "dataset.build",
    "execute": "runs",
    "load": "hub",
    "multiplicity": "tree",
    "push_to_hub": "hub",
    "read_jsonl": "readers.jsonl",
    "read_logs": "readers",
    "save": "hub",
    "split": "tree",
}
"""The modules of names that are imported on first use, so that `ramify --help` waits for neither torch nor NumPy."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ramify' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ramify.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

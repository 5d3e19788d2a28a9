"""Data sets of trees: `build` converts files into a store, and `Store` reads it."""

from ramify.dataset.build import build
from ramify.dataset.store import Split, Store
from ramify.readers.base import Policy

__all__ = ["Policy", "Split", "Store", "build"]

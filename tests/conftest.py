"""Fixtures for all tests: where the published data sets are, and skipping where they are not."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir():
    """`data_dir("reddit-college")`: the folder of a published data set; the test is skipped where it is absent."""
    root = Path(os.environ.get("RAMIFY_DATA", Path(__file__).parents[1] / "../shared/data")).resolve()

    def find(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"the data set {name!r} is not at hand (set RAMIFY_DATA to the folder that holds it)")
        return root / name

    return find

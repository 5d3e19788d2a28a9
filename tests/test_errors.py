"""Counts in messages have nouns in the right number."""

import pytest

from ramify.errors import counted


@pytest.mark.parametrize(("count", "shown"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1200, "1,200 nodes")])
def test_counted(count, shown):
    assert counted(count, "node") == shown


def test_another_ending():
    assert [counted(count, "process", "es") for count in (1, 3)] == ["1 process", "3 processes"]

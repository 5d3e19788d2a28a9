"""Helpers for tests of chat formats."""

from ramify.readers.base import ReadCounts


def read(format, *paths, **options):
    """The logs of a reader's module that hold a message, as trees, and the counts; no message is lost."""
    counts = ReadCounts()
    trees = [tree for log in format.logs(paths, counts, **options) if len(tree := log.tree())]
    assert counts.read == sum(map(len, trees)) + counts.skipped.total()
    return trees, counts

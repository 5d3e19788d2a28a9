"""Helpers for tests of chat formats."""

from ramify.readers.base import Report


def read(format, *paths, **options):
    """The logs of a reader's module that hold a message, as trees, and the report; no message is lost."""
    report = Report()
    trees = [tree for log in format.logs(paths, report, **options) if len(tree := log.tree())]
    assert report.read == sum(map(len, trees)) + report.skipped.total()
    return trees, report

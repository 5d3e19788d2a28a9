"""What tests of chat formats share."""

from ramify.readers.base import Report


def read(format, *paths, **options):
    """The logs of a reader's module that hold a message, as trees, and the report: nothing is lost."""
    report = Report()
    trees = [tree for log in format.logs(paths, report, **options) if len(tree := log.tree())]
    assert report.read == sum(map(len, trees)) + report.skipped.total()
    return trees, report

"""Reports on models of nested documents."""

from ramify.runs import curves
from ramify.runs.base import ReportParts, ReportRequest


def parts(request: ReportRequest) -> ReportParts:
    """The parts of a report."""
    return ReportParts(
        purpose="turns sentences, paragraphs, chapters and documents into vectors, and vectors into text",
        examples="chapters",
        sections=(curves.no_curves(),),
    )

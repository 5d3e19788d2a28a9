"""Reports on models of nested documents."""

from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.stream_report import curves


def parts(request: ReportRequest) -> ReportParts:
    """The parts of a report."""
    return ReportParts(
        purpose="turns sentences, paragraphs, chapters and documents into vectors, and vectors into text",
        examples="chapters",
        sections=(curves(request.metrics),),
    )

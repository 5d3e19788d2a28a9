"""Reports of runs, each one self-contained HTML file."""

from ramify.report.page import write_page
from ramify.report.run_report import write_report

__all__ = ["write_page", "write_report"]

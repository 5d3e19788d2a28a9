"""The page that tells of a run: one HTML file that needs nothing else."""

from ramify.report.page import write_page
from ramify.report.run_report import write_report

__all__ = ["write_page", "write_report"]

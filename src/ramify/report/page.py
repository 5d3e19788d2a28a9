"""Write sections as a self-contained HTML page, with light and dark colours."""

import datetime
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from ramify.files import make_folder, write_text
from ramify.report.html import HtmlSection, text
from ramify.version import __version__


def write_page(path: Path, *, kind: str, title: str, lead: str, sections: Sequence[HtmlSection]) -> None:
    """Write a page. `lead` is HTML; `kind` and `title` are text."""
    templates = files("ramify.report")
    page = Template(templates.joinpath("page.html").read_text("utf-8")).substitute(
        kind=text(kind),
        title=text(title),
        lead=lead,
        style=templates.joinpath("style.css").read_text("utf-8").strip(),
        sections="\n".join(_section(section) for section in sections),
        version=__version__,
        date=f"{datetime.datetime.now().astimezone():%d %B %Y, %H:%M %Z}",
    )
    make_folder(path.parent)
    write_text(path, page)


def _section(section: HtmlSection) -> str:
    lead = f'<p class="lead">{section.lead}</p>' if section.lead else ""
    return f"<section>\n<h2>{text(section.title)}</h2>\n{lead}\n{section.body}\n</section>"

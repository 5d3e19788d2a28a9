"""Writes the page *Formats* from the table of readers and `formats.toml`: `python docs/formats_page.py`."""

import tomllib
from pathlib import Path

from ramify.readers import FORMATS

HERE = Path(__file__).parent
PAGE = HERE / "formats.md"
SAID = {"trees": "whole trees", "logs": "chat logs", "posts": "posts"}


def sources() -> dict[str, list[dict[str, str]]]:
    """Format -> who writes its files, how one gets them, what is kept, and an example."""
    return tomllib.loads((HERE / "formats.toml").read_text("utf-8"))


def page() -> str:
    """The page *Formats*, from the table of readers and `formats.toml`."""
    known = sources()
    parts = [
        "# Formats\n\n<!-- Written by `python docs/formats_page.py` from the table of readers and formats.toml. -->\n\n"
        "This page lists all files that `ramify data build` reads: who writes them, how one gets them, and what is kept. "
        "`--format` names a format; without it, the format is [guessed](data.md#formats), which says more about each.\n"
    ]
    for name, each in FORMATS.items():
        options = ", ".join(f"`{option}`" for option in each.options) or "none"
        parts.append(
            f"## {name}\n\n{each.summary[0].upper()}{each.summary[1:]}. Yields {SAID[each.yields]}. Options: {options}.\n"
        )
        for source in known[name]:
            layout = f" (`{source['name']}`)" if "name" in source else ""
            parts.append(
                f"**{source['source']}**{layout}\n: How: {source['how']}.\n: Kept: {source['kept']}.\n\n"
                f"```text\n{source['example']}\n```\n"
            )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

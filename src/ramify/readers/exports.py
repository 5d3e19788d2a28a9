"""What the page *Formats* says of a format. Each reader's module has a tuple `EXPORTS` of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Export:
    """A source of files: who writes them, how one gets them, what a reader keeps of them, and an example."""

    source: str
    how: str
    kept: str
    example: str

"""Exceptions for mistakes that the user can correct; the command line prints them without a traceback. Counts in messages."""


class RamifyError(Exception):
    """Names the setting (or file, line, node), its value, the reason and the remedy."""


class CannotError(RamifyError, AttributeError):
    """A model does not support the requested operation. As an `AttributeError`, it makes `hasattr` return false."""


def counted(count: int, what: str, ending: str = "s") -> str:
    """A count with its noun in the right number: "1 node", "1,200 nodes"."""
    return f"{count:,} {what}{'' if count == 1 else ending}"

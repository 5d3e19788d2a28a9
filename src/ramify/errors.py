"""Exceptions for mistakes that the user can correct, which the command line prints without a traceback; and the wording of
counts, durations and texts in messages."""

import reprlib
import unicodedata
from math import floor, log10
from typing import Any


class RamifyError(Exception):
    """Names the setting (or file, line, node), its value, the reason and the remedy."""


class CannotError(RamifyError, AttributeError):
    """A model does not support the requested operation. As an `AttributeError`, it makes `hasattr` return false."""


def counted(count: int, what: str, ending: str = "s") -> str:
    """A count with its noun in the right number: "1 node", "1,200 nodes", "2 replies"."""
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {what[:-1]}ies" if what.endswith("y") and what[-2] not in "aeou" else f"{count:,} {what}{ending}"


def percent(share: float) -> str:
    """A share in percent with two significant digits, down to a millionth of a percent."""
    digits = 1 - floor(log10(max(100 * share, 1e-6)))
    return f"{100 * share:.{max(0, digits)}f} %"


def with_article(name: str) -> str:
    """A name of a class behind its article: "a Bert", "an XLNet"."""
    return f"{'an' if name.startswith(('A', 'E', 'I', 'O', 'X')) else 'a'} {name}"


def in_words(seconds: float) -> str:
    """A duration in its two largest units: "1 h 5 min", "40 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


_REPR = reprlib.Repr()
_REPR.maxlevel = 4
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = _REPR.maxdeque = _REPR.maxarray = 8
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 400


def shown(value: Any, most: int = 80) -> str:
    """The beginning of a foreign value, of any type, size and depth, as Python spells it."""
    try:
        return _REPR.repr(value)[:most]
    except ValueError:
        # Python does not spell integers of thousands of digits.
        return f"a value of the type {type(value).__name__}"


def shortened(text: str, most: int = 1000) -> str:
    """The text, without its middle if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - most // 4]} … {text[-(most // 4) :]}"


def printable(text: str) -> str:
    """A text on one line, without control characters, which could steer a terminal."""
    return "".join(letter for letter in " ".join(text.split()) if unicodedata.category(letter) not in ("Cc", "Cs"))

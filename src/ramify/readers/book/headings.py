"""Headings of chapters and other divisions, in the language of a book and in English."""

import re
from collections.abc import Iterable
from functools import cache

from ramify.readers.languages import ENGLISH, LANGUAGES, NUMBERED, UNNUMBERED, Language, unaccented

MAX_HEADING = 100
"""Characters of the longest heading, unless a full stop parts its number from its title."""
_MAX_SUMMARY = 250

_ROMAN = "(?-i:[IVXLCDM]+|[IVXLCivxlc][ivxlc]*)"
# Numbers as ordinals: "Ier", "1er", "1º".
_ORDINAL = r"(?-i:(?=[LCDM]*[IVX])[IVXLCDM]+|\d+)(?-i:[eE][rR]|[rRmM]?[eE])|\d+[ºª°]"
# In English, "I act" is no heading, but "I. Act" is.
_ROMAN_BEFORE = {True: r"(?-i:[IVXLCDM]{2,}\.?|[IVXLCDM]\.)", False: r"(?-i:[IVXLCDM]+\.?)"}
_DIGITS = r"\d{1,3}(?:[.:’'-]?[^\W\d_]{1,4}(?![^\W_])|[º°ª]|\.)?"
_ARTICLE = "(?:the|le|la|der|die|das|il|el|o|de|het|den|det|az|to|η|το) +"
_OF = "(?:to|zur|zum|des?|du|del|della|di|d[ao]|van|til|till|a|al|alla)"
# A word that begins with a small letter continues a sentence: "Première partie de chasse."
_TITLE = r"(?:[.:—–-].*| +(?-i:[^a-zα-ωа-яßæœ\s]).*)?"
# A full stop ends a sentence rather than a title, unless a capital letter begins the word before it.
_NAMED = r"(?:.*(?<![.!?])|.*\b(?-i:[^\Wa-zα-ωа-яßæœ])\w*[.!?])"
_END = r"(?![^\W_])"


class Headings:
    """The headings of books in some languages, of which the first is the main one. English ones are known, too."""

    def __init__(self, *languages: str) -> None:
        rows = [LANGUAGES[code] for code in dict.fromkeys((ENGLISH, *languages)) if code in LANGUAGES]
        roman = _ROMAN_BEFORE[languages[0] == ENGLISH]
        ordinals, cardinals = (_any(getattr(row, field) for row in rows) for field in ("ordinals", "cardinals"))
        numbered, unnumbered = (_any(_words(row, kinds) for row in rows) for kinds in (NUMBERED, UNNUMBERED))
        behind = rf"{numbered}\.? +(?:{_ARTICLE})?(?:{_ORDINAL}|{_ROMAN}|\d+|{ordinals}|{cardinals}){_END}"
        before = rf"(?:{_ARTICLE})?(?:{ordinals} *|(?:{_DIGITS}|{roman}) +){numbered}{_END}"
        alone = rf"(?:(?:{_ARTICLE})?{ordinals} +)?{unnumbered}(?:[.:]| {_OF} {_NAMED})?"
        self._start = _compiled(f"{behind}|{before}")
        self._named = _compiled(rf"(?:{behind})(?:[ .:—–-].*)?|(?:{before}){_TITLE}|{alone}")
        self._summary = _compiled(rf"(?:{behind})[.:] +(?-i:[^a-z])")
        kinds = "|".join(
            f"(?P<{kind}>{_any(getattr(row, kind) for row in rows)})" for kind in (*NUMBERED, *UNNUMBERED, "section")
        )
        self._kind = _compiled(rf"(?:{_ARTICLE})?(?:{ordinals} *)?(?:{kinds}){_END}")
        self._numbered_kind = _compiled(rf"(?:{_DIGITS}|{roman}) +(?:{kinds}){_END}{_TITLE}")
        self._contents = _compiled(rf"{_any(row.contents for row in rows)}[.:]?")
        self._notes = _compiled(rf"(?:end|foot)?(?:note|{_any(row.note for row in rows)})\w{{0,3}}[.:]?")
        self._note = _compiled(rf"\[{_any(row.note for row in rows)}{_END}")
        self.pictures = _compiled(rf"\[{_any(row.picture for row in rows)}\b[^\]]*\]")

    def start(self, heading: str) -> str:
        """The word and the number at the beginning of a heading, without its title, to compare headings."""
        heading = unaccented(heading)
        match = self._start.match(heading) or _BARE.match(heading)
        return (match[0].rstrip(".") if match else heading).casefold()

    def is_heading(self, text: str) -> bool:
        if len(text) > MAX_HEADING:
            return len(text) <= _MAX_SUMMARY and bool(self._summary.match(unaccented(text)))
        return bool(self._named.fullmatch(unaccented(text)) or _BARE.fullmatch(text))

    def lacks_title(self, heading: str) -> bool:
        """Whether a heading is a number, or a word with a number, so that a title may follow it."""
        return bool(_BARE.fullmatch(heading) or self._start.fullmatch(unaccented(heading.rstrip(" .:"))))

    def kind_of(self, title: str) -> str:
        """The kind of division that a title names, such as "chapter" for "Chapter 4"; "" if it names none."""
        title = unaccented(title.strip())
        match = self._kind.match(title) or self._numbered_kind.fullmatch(title)
        return (match.lastgroup or "") if match else ""

    def is_contents(self, title: str) -> bool:
        return len(title) <= MAX_HEADING and bool(self._contents.fullmatch(unaccented(title)))

    def is_notes(self, title: str) -> bool:
        """Whether a title is that of a division of notes."""
        return bool(self._notes.fullmatch(unaccented(title)))

    def is_note(self, text: str) -> bool:
        """Whether a text begins as a note in square brackets does."""
        return text.startswith("[") and bool(self._note.match(unaccented(text[:MAX_HEADING])))


headings = cache(Headings)
"""The headings of languages by their codes."""

_BARE = re.compile(r"(?:[IVXLCDM]+|\d{1,3})\.?|[一二三四五六七八九十百廿卅〇]{1,5}")


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(dict.fromkeys(patterns))})"


def _words(row: Language, kinds: tuple[str, ...]) -> str:
    return "|".join(getattr(row, kind) for kind in kinds)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(unaccented(pattern), re.IGNORECASE)

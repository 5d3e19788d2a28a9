"""Division of paragraphs into sentences by sentencex (MIT, Wikimedia), adapted to dialogue."""

import re
from functools import cache
from typing import Any

import sentencex

from ramify.readers.languages import LANGUAGES, abbreviations

_sentencex: Any = sentencex

# Sentencex never divides a quotation or a parenthesis, and takes a dash for part of the word after it.
_QUOTES = str.maketrans(dict.fromkeys('“”„«»"‘—', " "))
_PARENTHESIS = re.compile(r"(?:^|(?<=[.!?…”’\"] ))\(([^()]*)\)")
# An apostrophe may begin a word, as in ’Tis.
_OPENING = re.compile(r"(?:(?<=\s)[’'\"]|[“‘„«(\[\s])*\Z")
_OPENED = "“‘„«»([—–-’'\""
_CLOSING = re.compile(r"[”»)\]…]|[’'](?=[\s”»)\]]|$)")
_FOLLOWING = re.compile(r"\s*(?P<dash>[—–]?)\W*(?P<letter>\w)")
# Abbreviations to sentencex, but words if a sentence begins after them.
_WORDS = re.compile(r"(?:\b(?:me|no|No|ill|art|may|miss|fed)|(?<=[a-z] )I)(?=\.[”’]* +[“‘(]*[A-Z][a-z’ ])")
# After a question or an exclamation in quotation marks: I said, Ann Oak slowly asked.
_SPEAKER = re.compile(
    r"(?:I |(?:(?:Mr|Mrs|Dr|St|M)\. ?|(?!(?:He|She|It|We|You|They) )[A-Z][\w’-]+ ){1,4})(?:[a-z]+ly )?"
    r"\b(?:asked|said|says|cried|inquired|enquired|exclaimed|repeated|replied|answered|demanded|interrupted|whispered|muttered|"
    r"gasped|suggested|shouted|retorted|ejaculated|murmured|stammered|returned|continued|thought)\b"
)


def sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a paragraph. Concatenated, they are the paragraph up to white space.

    A quotation is divided like other text, and so is a parenthesis that begins a sentence. A sentence continues after "!", "?"
    or "…" if a lower-case letter follows, as in “Oh!” she said, or a dash, or the name of the speaker. Closing quotation marks
    belong to the sentence before them.
    """
    searched = _WORDS.sub(_hidden, text) if language == "en" else text
    searched = _PARENTHESIS.sub(r" \1 ", searched).translate(_QUOTES)
    pieces: list[str] = []
    start = 0
    for boundary in _sentencex.get_sentence_boundaries(language, searched)[:-1]:
        end = boundary["end_index"]
        while closing := _CLOSING.match(text, end):
            end = closing.end()
        end -= len(_OPENING.search(text, start, end)[0])  # pyright: ignore[reportOptionalSubscript]
        following = _FOLLOWING.match(text, end)
        if end <= start or following is None or following["letter"].islower() or following["dash"]:
            continue
        if text[end - 1] == "." and (_is_abbreviation(text, start, end, language) or _is_number(text, start, end, language)):
            continue
        if language == "en" and text[end - 1] in '”’"' and _SPEAKER.match(text, following.start("letter")):
            continue
        pieces.append(text[start:end].strip())
        start = end
    pieces.append(text[start:].strip())
    return pieces


def _is_abbreviation(text: str, start: int, end: int, language: str) -> bool:
    """Whether the full stop at `end` belongs to an abbreviation that sentencex does not know, or to an initial: M. Oak."""
    *before, word = text[max(start, end - _LONGEST) : end].rsplit(" ", 2)
    word = word.lstrip(_OPENED)
    is_initial = language != "en" and len(word) == 2 and word[0].isupper()
    known = abbreviations(language)
    # "t. ex." is "t.ex.".
    return is_initial or word in known or (len(before) > 0 and before[-1].lstrip(_OPENED) + word in known)


def _is_number(text: str, start: int, end: int, language: str) -> bool:
    """Whether the full stop at `end` belongs to an ordinal number, or to a word before a number: "im 2. Jahr", "vol. II"."""
    searched = text[max(start, end - _LONGEST) : end]
    counting = _COUNTING if language != "en" else _VOLUME
    if _NUMBER.match(text, end):
        return bool(counting.search(searched))
    return language in LANGUAGES and bool(_ordinal(language).search(searched))


_LONGEST = 40
"""Characters that tell whether a full stop ends a sentence."""
_VOLUME = re.compile(r"\bvols?\.\Z", re.IGNORECASE)
_COUNTING = re.compile(r"(?<![\w'’])(?:vols?|n[or]?|ch|cap|[a-z])\.\Z", re.IGNORECASE)
_NUMBER = re.compile(r" (?:\d|[IVXLC]{2,}\b|[IVXLC][.,;:])")


@cache
def _ordinal(language: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{LANGUAGES[language].before_ordinals}) \d{{1,2}}\.\Z", re.IGNORECASE)


def _hidden(word: re.Match[str]) -> str:
    return "¤" * len(word[0])

"""Division of paragraphs into sentences by sentencex (MIT, Wikimedia), adapted to dialogue."""

import re
from typing import Any

import sentencex

_sentencex: Any = sentencex

# Sentencex never divides a quotation, however many sentences it holds, and takes a dash for part of the word after it.
_QUOTES = str.maketrans(dict.fromkeys('“”„«»"‘—', " "))
_OPENING = "“‘„« "
_CLOSING = re.compile(r"[”»)\]…]|[’'](?=[\s”»)\]]|$)")
_NEXT_LETTER = re.compile(r"[^\w]*(\w?)")
# Abbreviations to sentencex, but words if a sentence begins after them.
_WORDS = re.compile(r"(?:\b(?:me|no|No|ill|art|may|miss|fed)|(?<=[a-z] )I)(?=\.[”’]* +[“‘(]*[A-Z][a-z’ ])")


def sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a paragraph. Concatenated, they are the paragraph up to white space.

    A quotation is divided like other text. A sentence continues after "!", "?" or "…" if a lower-case letter follows, as in
    “Oh!” she said, or a dash. Closing quotation marks belong to the sentence before them.
    """
    if language == "en":
        searched = _WORDS.sub(_hidden, text)
    else:
        searched = text
    searched = searched.translate(_QUOTES)
    found: list[str] = []
    start = 0
    for boundary in _sentencex.get_sentence_boundaries(language, searched)[:-1]:
        end = boundary["end_index"]
        while closing := _CLOSING.match(text, end):
            end = closing.end()
        while end > start and text[end - 1] in _OPENING:
            end -= 1
        letter = _NEXT_LETTER.match(text, end)
        if end <= start or letter is None or not letter[1] or letter[1].islower() or text[end:].lstrip()[0] in "—–":
            continue
        found.append(text[start:end].strip())
        start = end
    found.append(text[start:].strip())
    return found


def _hidden(word: re.Match[str]) -> str:
    return "x" * len(word[0])

"""Recognition of running prose, for the guess of the format of a text file."""

import re
from collections import Counter
from collections.abc import Sequence

from ramify.errors import counted, shown

FEW_LETTERS = 500

_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]*(?=\s|$)|[。！？]")
_ENDS = re.compile(r"[.!?…。！？:;][\s\"'”’»)\]」』]*$")
_CHAPTER = re.compile(r"\s*(?:chapter|book|part|volume|act|scene|canto)\s+(?:[ivxlc]+|\d+|one|first|the first)\b.{0,60}", re.I)
_RECORD = re.compile(
    r"\s*(?:\W*\d|[\[(<{*#@>|/$+\\-]"  # a number, a bracket, a mark of a list or of a comment
    r"|[^\s:<>|»]{1,32}(?:[ ][^\s:<>|»]{1,32}){0,2}[ ]?[:>|»]\s"  # a name before a message
    r"|[^\s:]{1,32}[ ](?:-{1,2}|[–—])[ ])"
)
_MAIL = re.compile(r"(?:From|To|Subject|Date|Message-ID|Newsgroups): ")
_CLOCK = re.compile(r"(?<!\d)\d{1,2}[:.h]\d{2}(?!\d)")
_SPEAKERS = 10


def unlike_prose(text: str) -> str:
    """The reason why a text may be something else than prose: a log, a table, a book with chapters. "" if it is prose.

    When in doubt, it gives a reason: any file can be read as text, and the loss of its structure would go unnoticed.
    """
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    if text.lstrip()[:1] in ("{", "[", "<"):
        return f"it begins with {text.lstrip()[:1]!r}, as JSON and markup do"
    if "project gutenberg" in text.casefold():
        return "it names Project Gutenberg, whose files are books with a licence"
    if any(map(_CHAPTER.fullmatch, lines)):
        return "it has headings of chapters, as a book does"
    if len({match[0] for line in lines if (match := _MAIL.match(line))}) > 1:
        return "it has the headers of mail"
    letters = sum(map(str.isalpha, text))
    if letters < FEW_LETTERS:
        return f"{counted(letters, 'letter')} in its beginning, too few to recognise prose"
    visible = len(text) - sum(map(str.isspace, text))
    if letters < 0.75 * visible:
        return f"{letters / visible:.0%} of its characters are letters, fewer than in prose"
    return _columns(lines) or _records(lines) or _repeated(lines) or _speakers(text, lines) or _sentences(text, lines)


def _columns(lines: Sequence[str]) -> str:
    for name, mark in (("tab", "\t"), ("bar", "|"), ("semicolon", ";")):
        counts = Counter(line.strip().count(mark) for line in lines)
        del counts[0]
        same, share = (max(counts.values(), default=0), 0.5 if mark == ";" else 0.2)
        if len(lines) > 1 and same > share * len(lines):
            return f"{same} of its {len(lines)} lines have equally many {name}s, as a table does"
    return ""


def _records(lines: Sequence[str]) -> str:
    alike = [line for line in lines if _RECORD.match(line)]
    if len(alike) > 0.1 * len(lines):
        return f"{len(alike)} of its {len(lines)} lines begin like messages or records, such as {shown(alike[0].strip(), 40)}"
    clocks = [line for line in lines if len(line) < 100 and _CLOCK.search(line)]
    if len(clocks) > max(2, 0.03 * len(lines)):
        return f"{len(clocks)} of its {len(lines)} lines hold a time, as a log does, such as {shown(clocks[0].strip(), 40)}"
    return ""


def _repeated(lines: Sequence[str]) -> str:
    """Names on lines of their own."""
    times = Counter(re.sub(r"\d+", "0", line.strip().casefold()) for line in lines if any(map(str.isalpha, line)))
    again = sum(count for count in times.values() if count > 1)
    if again > max(3, 0.05 * len(lines)):
        return f"{again} of its {len(lines)} lines occur more than once, as names of speakers do"
    return ""


def _speakers(text: str, lines: Sequence[str]) -> str:
    """Few first or last words in most of the lines or paragraphs: names, or labels."""
    starts = [block.lstrip().split("\n")[0] for block in _blocks(text)]
    for units in (lines, starts):
        few = min(_SPEAKERS, len(units) // 4)
        for place, name in ((0, "begin"), (-1, "end")):
            times = Counter(words[place].casefold() for unit in units if (words := re.findall(r"\w+", unit)))
            most = sum(count for _, count in times.most_common(few))
            if most > 0.75 * len(units):
                return (
                    f"{most} of its {len(units)} lines or paragraphs {name} with one of {few} words, as messages and labels do"
                )
    return ""


def _sentences(text: str, lines: Sequence[str]) -> str:
    count = len(_SENTENCE.findall(text))
    letters = sum(map(str.isalpha, text))
    # About 2 to 60 words of 5 letters; characters of Chinese and Japanese are fewer.
    if not 6 * count < letters < 300 * count:
        return f"{counted(count, 'sentence')} in {letters:,} letters, unlike prose"
    blocks = [block for block in (_blocks(text) if _has_blank_lines(text) else lines) if len(block.strip()) > 40]
    ended = [block for block in blocks if _ENDS.search(block)]
    if not _has_blank_lines(text) and len(ended) < 0.7 * len(blocks):
        longest = sorted(map(len, lines))[int(0.95 * (len(lines) - 1))]
        if len(lines) > 1 and longest > 100:
            return f"{len(blocks) - len(ended)} of its {len(blocks)} lines do not end like a sentence"
        blocks = ended = [text]
    if len(ended) < 0.7 * len(blocks):
        return f"{len(blocks) - len(ended)} of its {len(blocks)} paragraphs do not end like a sentence"
    lower = [block for block in blocks if next((char for char in block if char.isalpha()), "A").islower()]
    if len(lower) > 0.3 * len(blocks):
        return f"{len(lower)} of its {len(blocks)} lines or paragraphs begin with a small letter"
    return ""


def _has_blank_lines(text: str) -> bool:
    return bool(re.search(r"\S[^\S\n]*\n[^\S\n]*\n\s*\S", text))


def _blocks(text: str) -> list[str]:
    """Paragraphs between blank lines."""
    return [block for block in re.split(r"\n[^\S\n]*\n", text) if not block.isspace() and block]

r"""Patterns of lines: `[{date} {time}] <{author}> {text}`.

A pattern is text with fields. Fields are `{date}`, `{time}`, `{author}`, `{text}`, `{system}` (the text of a line without an
author) and `{skip}` (left out). `{?…}` is an optional part, and `\` makes the next character literal (`\t` is a tab, and `\n`
the end of a line: the head of a message then takes several lines).

A space matches one or more spaces of any kind. Before `{text}` it matches a single one, so that the text keeps its indentation.
Two spaces alone between two fields match at least two, as between columns. A field ends before the first place where the text
that follows it in the pattern begins. If the text is empty, spaces before it may be missing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from ramify.errors import RamifyError
from ramify.readers.dates import ANY_TIME, DATE

FIELDS = ("date", "time", "author", "text", "system", "skip")
STAMP = ("date", "time")
MAX_FREE = 256
"""Most characters of an author and of a part left out."""

_SPELLED = re.compile(r"\w\w")
SPACES = " \t\u00a0\u202f\u2009\u3000"
_SPACE = f"[{SPACES}]"
_ONE_OF = re.compile(r"\\(.)|\{(\?)|\{([^{}]*)\}|(\})|([^\\{}]+|.)", re.DOTALL)


@dataclass(frozen=True)
class Literal:
    """Characters that a line must hold."""

    text: str


@dataclass(frozen=True)
class Field:
    name: str


@dataclass(frozen=True)
class Optional:
    parts: tuple["Part", ...]


Part = Literal | Field | Optional


def literal(text: str) -> str:
    """Text as it is written in a pattern."""
    return re.sub(r"([\\{}])", r"\\\1", text).replace("\t", r"\t").replace("\n", r"\n")


@lru_cache(maxsize=1 << 12)
def _compiled(regex: str) -> re.Pattern[str]:
    """Patterns that are tried for one log have many beginnings in common."""
    return re.compile(regex)


class Template:
    """A parsed pattern of one line. Raises `RamifyError` for a pattern that cannot be used."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.parts = _parse(source)
        names = list(_names(self.parts))
        _check(source, self.parts, names)
        self.names = frozenset(names)
        self.line = _compiled(_regex(self.parts, source) + f"{_SPACE}*")

    @property
    def is_heading(self) -> bool:
        """Whether the text follows on the lines below."""
        return "author" in self.names and "text" not in self.names

    @cached_property
    def heads(self) -> list[re.Pattern[str]]:
        """Beginnings of lines that are no part of a longer message: what precedes the author, or only the date and time.

        Where the author comes first, only marks may stand before the date or time of a line without an author.
        """
        kinds = [next(_names((part,)), "") for part in self.parts]
        stamps = [place for place, part in enumerate(self.parts) if any(name in STAMP for name in _names((part,)))]
        author = kinds.index("author") if "author" in kinds else 0
        if stamps and stamps[0] > author:
            before, after = self.parts[stamps[0] - 1], self.parts[stamps[-1] + 1 : stamps[-1] + 2]
            opening = re.search(r"[\[({<|]?\s*\Z", before.text) if isinstance(before, Literal) else None
            closing = re.match(r"[\])}>|]?", after[0].text) if after and isinstance(after[0], Literal) else None
            stamped = _regex(self.parts[stamps[0] : stamps[-1] + 1], self.source)
            begin = _characters(opening[0].strip(SPACES) if opening else "")
            end = re.escape(closing[0] if closing else "")
            return [_compiled(rf"[^\w\[({{<|]{{0,8}}{begin}{stamped}{end}[:,]?(?:{_SPACE}+(?P<rest>.*)|$)")]
        before = list(self.parts[:author])
        while before and isinstance(before[-1], Optional):
            # Signs of rights.
            before.pop()
        texts = [part.text for part in before if isinstance(part, Literal)]
        is_spelled = any(map(_SPELLED.search, texts)) or (len(texts) > 1 and all(text.strip(SPACES) for text in texts))
        if not before or not (stamps or is_spelled):
            return []
        if not stamps:
            return [self._head(before)]
        last = max(place for place in stamps if place < author)
        upto = [*self.parts[: last + 1], *(part for part in self.parts[last + 1 : last + 2] if isinstance(part, Literal))]
        heads = [self._head(before), self._head(upto)]
        # A line of the channel may lack what stands between the time and an author, up to the bracket that closes the time.
        text = upto[-1].text if isinstance(upto[-1], Literal) else ""
        closings = [re.match(form, text) for form in (r"(?:\s*[^\w\s]+(?=\s))*", r"[^\w\s]*(?=\s)|[^\w\s\[({<«-]*")]
        for kept in dict.fromkeys([*(match[0] for match in closings if match), text[:1].strip(SPACES)]):
            gap = f"{_SPACE}*" if kept and not kept[-1].isalnum() else f"{_SPACE}+"
            stamped = _regex(self.parts[: last + 1], self.source)
            heads.append(_compiled(rf"{stamped}{_characters(kept)}{'' if kept else ':?'}(?:{gap}(?P<rest>.*)|$)"))
        return list(dict.fromkeys(heads))

    def _head(self, before: Sequence[Part]) -> re.Pattern[str]:
        kept = list(before)
        if isinstance(kept[-1], Literal):
            # Brackets around the author come with the author.
            text = kept[-1].text
            spaces = [place for place, character in enumerate(text) if character in SPACES]
            kept[-1] = Literal(text[: spaces[-1]].rstrip(SPACES) if spaces else text[: max(1, len(text) - 1)])
            gap = f"{_SPACE}+" if spaces else f"{_SPACE}*"
        else:
            gap = f"{_SPACE}+"
        return _compiled(_regex(kept, self.source) + rf"(?:{gap}(?P<rest>.*)|$)")

    def broken_at(self, line: str) -> tuple[int, str]:
        """The place at which a line stops to fit, and what is expected there."""
        best = 0
        for place, part in enumerate(self.parts):
            if _is_free(part):
                continue
            before = self.parts[:place]
            follows = f"{describe(before[-1])}, followed by " if before and _is_free(before[-1]) else ""
            size = len(part.text) if isinstance(part, Literal) else 1
            for end in range(size if follows else 1, size + 1):
                cut = Literal(part.text[:end]) if isinstance(part, Literal) else part
                match = re.match(_regex([*before, cut], self.source), line)
                if match is None:
                    rest = Literal(part.text[end - 1 :]) if isinstance(part, Literal) and not follows else part
                    return best, follows + describe(rest)
                best = match.end()
        return best, "the end of the line"


def _is_free(part: Part) -> bool:
    return isinstance(part, Field) and part.name not in STAMP


def describe(part: Part) -> str:
    """A part of a pattern, for messages."""
    if isinstance(part, Literal):
        return repr(part.text)
    if isinstance(part, Optional):
        return "an optional part"
    return f"a {part.name}" if part.name in STAMP else f"{{{part.name}}}"


def _parse(source: str) -> tuple[Part, ...]:
    open_: list[list[Part]] = [[]]
    for match in _ONE_OF.finditer(source):
        escaped, optional, name, closing, text = match.groups()
        if optional:
            open_.append([])
        elif closing:
            if len(open_) == 1:
                raise _bad(source, "has a '}' without a '{'. Write \\} for the character itself")
            inner = Optional(tuple(open_.pop()))
            open_[-1].append(inner)
        elif name is not None:
            if name not in FIELDS:
                raise _bad(source, f"has the field {{{name}}}; the fields are {', '.join(f'{{{known}}}' for known in FIELDS)}")
            open_[-1].append(Field(name))
        else:
            if text in ("{", "\\"):
                raise _bad(source, f"has a {text!r} that opens nothing. Write \\{text} for the character itself")
            text = {"t": "\t", "n": "\n"}.get(escaped, escaped) if escaped else text
            last = open_[-1][-1] if open_[-1] else None
            if isinstance(last, Literal):
                open_[-1][-1] = Literal(last.text + text)
            else:
                open_[-1].append(Literal(text))
    if len(open_) > 1:
        raise _bad(source, "has an optional part '{?' without its '}'")
    return tuple(open_[0])


def _names(parts: Sequence[Part]) -> Iterator[str]:
    """The fields in order. Optional parts may be nested, so a stack holds what is left."""
    left = list(reversed(parts))
    while left:
        part = left.pop()
        if isinstance(part, Field):
            yield part.name
        elif isinstance(part, Optional):
            left += reversed(part.parts)


def _check(source: str, parts: Sequence[Part], names: list[str]) -> None:
    for name in FIELDS[:-1]:
        if names.count(name) > 1:
            raise _bad(source, f"has {{{name}}} twice")
    if ("author" in names) == ("system" in names):
        raise _bad(source, "needs one of {author} and {system}")
    if "system" in names and "text" in names:
        raise _bad(source, "has {system} and {text}; {system} is the text of a line without an author")
    if names.count("skip") > 8:
        raise _bad(source, "has more than eight times {skip}")
    for one, other in pairwise(parts):
        if isinstance(one, Field) and isinstance(other, Field) and one.name not in STAMP:
            raise _bad(source, f"has nothing between {{{one.name}}} and {{{other.name}}}, so that their border is unknown")


def _bad(source: str, fault: str) -> RamifyError:
    return RamifyError(
        f"the pattern {source!r:.200} {fault}. An example of a pattern: '[{{date}} {{time}}] <{{author}}> {{text}}'."
    )


def _regex(parts: Sequence[Part], source: str, following: Part | None = None) -> str:
    """The expression of some parts. `following` is the part that comes after them."""
    made: list[str] = []
    for place, part in enumerate(parts):
        after = parts[place + 1] if place + 1 < len(parts) else following
        if isinstance(part, Optional):
            if sum(isinstance(inner, Optional) for inner in part.parts):
                raise _bad(source, "has an optional part inside an optional part")
            made.append(f"(?:{_regex(part.parts, source, after)})?")
        elif isinstance(part, Literal):
            if isinstance(after, Field) and after.name == "text":
                bare = part.text.rstrip(SPACES)
                gap = part.text[len(bare) :]
                spaces = f"{_SPACE}" if len(gap) == 1 else f"{_SPACE}{'+' if bare else '{2,}'}" if gap else ""
                if gap and not gap.strip("\t"):
                    spaces = gap.replace("\t", r"\t")
                # Without the tab, nothing shows that a name precedes it.
                is_bare = not bare and "\t" in gap
                made.append(
                    _characters(bare)
                    + (f"(?:{spaces}(?P<text>.*){'' if is_bare else f'|{_SPACE}*$'})" if gap else "(?P<text>.*)")
                )
            else:
                made.append(_characters(part.text))
        elif part.name == "date":
            made.append(f"(?P<date>{DATE})")
        elif part.name == "time":
            made.append(f"(?P<time>{_SPACE}?{ANY_TIME})")
        elif part.name == "text":
            if not (place and isinstance(parts[place - 1], Literal)):
                made.append("(?P<text>.*)")
        else:
            group = "?:" if part.name == "skip" else f"?P<{part.name}>"
            is_before_a_stamp = any(isinstance(later, Field) and later.name in STAMP for later in parts[place + 2 : place + 3])
            made.append(f"({group}{_free(part.name, after, is_before_a_stamp)})")
    return "".join(made)


def _free(name: str, after: Part | None, is_before_a_stamp: bool) -> str:
    """Any characters up to the first place where the next part of the pattern begins."""
    if after is None and name == "system":
        return ".+"
    if name == "author" and is_before_a_stamp:
        # A name of several words ends where the date or time begins.
        return f".{{1,{MAX_FREE}}}?"
    if isinstance(after, Literal):
        end = _characters(after.text.rstrip(SPACES) or after.text)
        if after.text == "  ":
            # Columns.
            end = f"{_SPACE}{{2}}"
        if after.text.rstrip(SPACES) != after.text and after.text.strip(SPACES):
            end += f"(?:{_SPACE}|$)"
        return f"(?:(?!{end}).){{1,{MAX_FREE}}}"
    return f".{{1,{MAX_FREE}}}" + ("" if after is None else "?")


def _characters(text: str) -> str:
    """The expression of literal text. A run of spaces is taken as a whole, so that matching is linear in the line."""
    pieces = re.split(f"({_SPACE}+)", text)
    return "".join(
        (r"\t" if set(piece) == {"\t"} else f"{_SPACE}++") if place % 2 else re.escape(piece)
        for place, piece in enumerate(pieces)
    )


# --- forms of lines -------------------------------------------------------------------------------------------------------


class Pattern:
    """The forms of a log's lines: that of messages and others, in order. `source` has one form per line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.templates = [Template(line) for line in source.split("\n") if line.strip()]
        if not self.templates:
            raise _bad(source, "is empty")
        if not any("author" in template.names for template in self.templates):
            raise _bad(source, "has no {author} in any of its lines")

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(template.names for template in self.templates))

    def misfit(self, lines: Sequence[tuple[int, str]]) -> str:
        """Numbered lines, each with a mark at the place where the first form stops to fit, for messages."""
        shown = []
        for number, line in lines:
            places = [template.broken_at(line) for template in self.templates]
            place, expected = max(places, key=lambda stop: stop[0])
            start = max(0, place - 60)
            line = line.replace("\t", " ")[start : start + 100]
            shown.append(f"  line {number}: {line}\n{'':{len(f'  line {number}: ') + place - start}}^ expected {expected}")
        return "\n".join(shown)


def masked(source: str) -> re.Pattern[str]:
    """The expression of a form for lines in which `\\1` stands for the date and `\\2` for the time."""
    regex = _regex(_parse(source), source)
    return re.compile(regex.replace(DATE, "\1").replace(ANY_TIME, "\2") + f"{_SPACE}*")

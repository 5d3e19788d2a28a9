"""Dialects of IRC logs: one regular expression per dialect, all with the same groups.

The last group that matches tells the kind of the line. The group before it holds the author.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ramify.readers.events import MARKED_EVENT, MODE, OF_CLIENT, STARRED_EVENT

STAMP, NICK, MESSAGE, ACTOR, ACTION, NOTICER, NOTICE, SYSTEM, UNSTAMPED = range(1, 10)
"""Groups. SYSTEM and UNSTAMPED (without a time) are lines of the channel or the client."""

# Lengths are bounded wherever matching could otherwise take quadratic time.
_TIME = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AaPp]\.?[Mm]\.?)?"
_DATE = r"(?:\d{4}[-/.]\d\d[-/.]\d\d|\d{1,2}(?:\.\d{1,2}\.|/\d{1,2}/)\d{4})"
_DATED = rf"{_DATE}[T ,_]{{1,2}}{_TIME}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_MONTH_DAY = rf"[^\W\d]{{3,5}}\.? {{1,2}}\d{{1,2}} {_TIME}"
_SAID = rf"<(?!-+>|=+>|{_TIME} *>)" r"(?:(?!\+\d[\d ()-]{6,64}>)[ @+%&~]){0,8}([^<>\t]{0,127}[^<>\s]) {0,32}>"
_NOTICED = r"-([^\s:/()<>!-][^\s:/()]{0,127}?)(?:[:/(]\S{0,127})?-[ \t](.*)"

# A star with an extra space before it marks an action only.
_ACTED = rf"(?: \*[ \t]+|\*[ \t]+(?!{STARRED_EVENT})|[ \t]?•[ \t](?=\S+:[ \t])){MODE}(\S+?):?(?=[ \t]|$)[ \t]?(.*)"


STAMPED_TEXT = re.compile(
    rf"{_SAID}[ \t]?[^\w\s]?(?:{_TIME}|{_DATED}|{_MONTH_DAY}|\d{{1,2}}-\d{{1,2}}-\d{{4}} {_TIME})"
    rf"|.{{0,4000}}\s[\[(]{_TIME}[\])]\s*$"
)
"""A time in the place of the text or at the end of the line: a layout that no dialect without times can read."""


class Dialect(NamedTuple):
    """A dialect. `guessed`: it is detected from content; otherwise it must be named. `stamped`: its lines have times."""

    line: re.Pattern[str]
    example: str
    stamped: bool = True
    guessed: bool = True


def _stamped(stamp: str) -> re.Pattern[str]:
    return re.compile(rf"({stamp})(?:[ \t]?{_SAID}[ \t]?(.*)|{_ACTED}|{_NOTICED}|[ \t]?({MARKED_EVENT}))|({OF_CLIENT})")


_WEECHAT_MARK = r" *(?:-->|<--|--|=!=|\*|)\t"
_NO_STAMP = rf"()(?:{_SAID}(?:(?=[ \t])|$)[ \t]?(.*)|{_ACTED}|{_NOTICED}|({MARKED_EVENT}))|({OF_CLIENT})"

DIALECTS = {
    "brackets": Dialect(_stamped(rf"\[{_TIME}\][ \t]?"), "[02:56] <ann> hi  (Ubuntu's archive, ZNC, mIRC, energymech)"),
    "irssi": Dialect(_stamped(rf" ?{_TIME}[ \t]"), "02:56 <@ann> hi  (irssi, meetbot)"),
    "weechat": Dialect(
        re.compile(
            rf"({_DATED}\t)(?:(?!{_WEECHAT_MARK}) *{MODE}(\S+)\t(.*)| *\*\t{MODE}(\S+) ?(.*)"
            rf"|--\tNotice\(([^()\s]+)\)[^:]{{0,200}}: ?(.*)|( *(?:-->|<--|--|=!=|)\t.*))|({OF_CLIENT})"
        ),
        "2004-11-15 02:56:01<tab>ann<tab>hi  (WeeChat)",
    ),
    "hexchat": Dialect(_stamped(rf"{_MONTH_DAY}[ \t]"), "Nov 15 02:56:01 <ann><tab>hi  (HexChat, XChat)"),
    "iso": Dialect(
        _stamped(rf"\[?{_DATED}\]?:?[ \t]{{1,2}}"),
        "2004-11-15T02:56:01  <ann> hi  (supybot, Limnoria; [2004-11-15 02:56:01], 15.11.2004 02:56 and 11/15/2004 too)",
    ),
    "plain": Dialect(re.compile(_NO_STAMP), "<ann> hi  (no times)", stamped=False),
    "colon": Dialect(
        re.compile(
            rf"((?:[\[(]?(?:{_DATED}|{_MONTH_DAY}|{_TIME})[\])]?[ \t]{{1,2}})?)"
            rf"(?:{MODE}([^\s:<>*]{{1,128}}):(?:(?=[ \t])|$)[ \t]?(.*)|{_ACTED}|{_NOTICED}|({MARKED_EVENT}))|({OF_CLIENT})"
        ),
        "ann: hi  (with any of these times or none)",
        stamped=False,
        guessed=False,
    ),
}


class Fit(NamedTuple):
    """The fit of a dialect to some lines.

    `share` is the share of lines that match, `telling` the number of lines that only a log would hold, and `misfit` the place
    of the first line that does not match.
    """

    share: float
    telling: int
    misfit: int | None


def fit(lines: Sequence[str], dialect: Dialect) -> Fit:
    """Measure how well a dialect fits some lines."""
    matches = [dialect.line.fullmatch(line) for line in lines]
    read = sum(match is not None for match in matches)
    telling = sum(1 for match in matches if match and (match[STAMP] or match.lastindex == MESSAGE))
    return Fit(read / max(len(lines), 1), telling, next((place for place, match in enumerate(matches) if match is None), None))

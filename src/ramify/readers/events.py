"""Events in a channel: who came and went, new names and topics, days and sessions. One vocabulary for all logs as text."""

import re
from collections.abc import Iterable

from ramify.readers.dates import find_stamps, is_weekday

MODE = "[@+%&~]{0,8}"
"""Signs of the rights of a user of IRC."""

LEVELS = re.compile(
    r"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRIT(?:ICAL)?|SEVERE|FINE|TODO|DONE|FIXME|NOTE|FEAT|FIX|CHORE|DOCS"
    "|REFACTOR",
    re.IGNORECASE,
)
"""Words that programs write before lines of their logs, and people before the titles of commits."""

_CAME_OR_WENT = "joined|left|parted"
_PUT_OUT = "kicked|banned"

_MARK = r"(?:={3,}|\*{1,3}|-!-|-{1,2}>|<-{1,2}|-{2,3}|=!=|⚡|•)"
_PLACE = r"(?:(?:the |this |our )?(?:room|channel|chat|group|server|meeting|conversation|call|team|party)|[#&]\S+|IRC|Discord)"
_HAPPENED = (
    rf"(?:(?:has |have |was |were )?(?:{_CAME_OR_WENT}|quit|entered|disconnected|connected|{_PUT_OUT}|timed out"
    r"|(?:logged|signed) (?:in|out|on|off)|(?:gone|went) (?:away|offline)|c[ao]me (?:back|online))"
    r"|(?:is|are) (?:now known as|now called|(?:now )?(?:away|back|[Oo]nline|[Oo]ffline))"
    r"|(?:has )?changed (?:the |his |her |their )?(?:nick|name|topic|subject|title|icon|description)"
    r"|(?:has )?set(?:s)? (?:the |channel )?(?:mode|topic|subject)"
    r"|(?:has )?(?:created|renamed|pinned|added|removed|invited))"
)
_EVENT = re.compile(
    rf"(?:{_MARK}\s*)?(?P<who>[^\s:]{{1,64}}(?: [^\s:]{{1,64}}){{0,3}}?)(?: ?\([^()]{{0,128}}\)| ?\[[^\[\]]{{0,128}}\])?"
    rf" {_HAPPENED}(?P<rest>\b.*)"
)
_ENDS_AN_EVENT = re.compile(rf"(?: {_PLACE})?(?: \(.{{0,200}}\)| \[.{{0,200}}\])?[.!]?\s*")
_ASIAN_EVENT = re.compile(
    r"\S.{0,80}(?:님이 (?:들어왔습니다|나갔습니다|퇴장했습니다|입장했습니다)|が(?:参加|入室|退出|退室|退会)しました"
    r"|已?(?:加入|退出)了?(?:群聊|群组|本群|聊天室))[.。]?"
)
OF_SERVER = re.compile(
    r"Nick change: \S+ -> \S+\s*$|Topic changed on [#&]|[#&]\S+: mode change |(?:The )?[Tt]opic for [#&]\S+ is\b"
    r"|(?:The )?(?:[Rr]ecording|[Tt]ranscription) (?:has )?(?:started|stopped|ended)[.!]?\s*$"
)
_CERTAIN = re.compile(r"(?:\*{3}|-!-|-->|<--)[ \t]+\+?[^\W_]")
"""Marks that clients of IRC put before lines of the channel, and that are rare elsewhere."""
MARKED = re.compile(rf"{_MARK}(?:\s+.*)?")
_EVENT_WORDS = re.compile(
    rf"\b(?:joined|left|quit|changed|created|added|removed|{_PUT_OUT}|renamed|pinned|invited|started|ended|sets?|topic|mode"
    r"|hat|haben|wurde|a (?:créé|modifié|ajouté|quitté|changé)|ha|cambió|creó|añadió|criou|mudou|adicionou|heeft|создал|изменил"
    r"|добавил)\b"
)
_SENTENCE = re.compile(r"\w{5}[.!?] ")
_MAX_NAME_WORDS = 6
_MAX_NAME = 64

PRONOUNS = frozenset(["i", "you", "we", "he", "she", "they", "it", "who", "someone", "somebody", "nobody"])
FORMAL = re.compile(r"(?:has )?(?:set|changed) the (?:topic|subject)\b|is now (?:Online|Offline|Away|Busy)\.")
LEAVES = re.compile(
    rf"(?:[(\[][^()\[\]]*[)\]] )?(?:(?:has|was) )?(?:{_CAME_OR_WENT}|quit|{_PUT_OUT})\b"
    r".*(?:[#&]\w|\b[Ii][Rr][Cc]\b|\bby\b|\()|(?:has )?(?:set|changed) the (?:topic|subject|title|name)\b"
)
TOPIC = re.compile(r"(?:[Cc]hannel )?[Tt]opic(?: for \S+| is| set)?: |\d+ users\b")
_ABOUT_A_DAY = re.compile(
    r"(?:[\W_]|\b(?:day|date|changed|to|log|opened|closed|started|session|start|time|close|begin|beginning|ending|logging|at|on|new"
    r"|chat|history|today|now|is|for|of|the|r|г|wednesday|monday|tuesday|thursday|friday|saturday|sunday)\b)*",
    re.IGNORECASE,
)


_ABOUT_SESSION = re.compile(
    r"[\W_]*(?:(?:session|log|logging|chat|conversation|transcript|recording|history)\b.{0,40}?\b(?:start|begin|began|open|stop|end"
    r"|clos|conclud|finish|ident|time)|(?:start|begin|open|stop|end|clos|finish)\w{0,4} (?:of )?(?:the )?(?:session|log|logging"
    r"|chat|conversation|transcript|recording)\b)",
    re.IGNORECASE,
)


_FRAMED = re.compile(r"([-=*#]{2,}) .* \1")


def is_event_line(line: str) -> bool:
    """Whether a line without a time tells of the channel (`*** bob joined`), and is no part of a message."""
    if _CERTAIN.match(line):
        return not dated(line)[0]
    if len(line) < 400 and (_ASIAN_EVENT.fullmatch(line) or OF_SERVER.match(line)):
        return True
    if len(line) > 500 or not (match := _EVENT.match(line)):
        return False
    is_formal = FORMAL.match(line[match.end("who") :].strip()) and match["who"].lower() not in PRONOUNS
    return bool(MARKED.fullmatch(line) or _ENDS_AN_EVENT.fullmatch(match["rest"]) or is_formal)


def plain_event(line: str) -> tuple[str, str] | None:
    """The user and what happened, of a line of the channel without marks; None for any other line."""
    if _CERTAIN.match(line) or MARKED.fullmatch(line) or not (match := _EVENT.match(line)):
        return None
    if _HOSTED.match(line, match.end("who")):
        # Users of IRC have an account and a host.
        return None
    return match["who"].strip(), line[match.end("who") :].strip()


def tells_in_brackets(line: str, names: Iterable[str]) -> bool:
    """Whether a line in brackets tells of the channel, of a user or by one: `[bob was removed by ann]`."""
    match = _BRACKETED.fullmatch(line)
    event = _EVENT.match(match[1]) if match else None
    return event is not None and bool(_ENDS_AN_EVENT.fullmatch(event["rest"]) or any(name in line for name in names))


_BRACKETED = re.compile(r"[\[(]([^\[\]()]+)[\])]")
_HOSTED = re.compile(r" ?[(\[]~?[^\s@()\[\]]+@[^\s()\[\]]+[)\]] ")


def event_author(text: str) -> str | None:
    """The user that a line of the channel tells of."""
    if author := system_author(text):
        return author
    match = _EVENT.match(text)
    return match["who"].strip() if match and _ENDS_AN_EVENT.fullmatch(match["rest"]) else None


def dated(line: str) -> tuple[str | None, str | None]:
    """The date, and time of day if there is one, of a line that only tells the day (`--- Wed Jan 31 2024 ---`)."""
    stamps = find_stamps(line) if len(line) < 200 else []
    if not stamps or stamps[0].kind != "date" or len(stamps) > 2:
        return None, None
    rest = line
    for stamp in reversed(stamps):
        rest = rest[: stamp.start] + rest[stamp.end :]
    if not _ABOUT_A_DAY.fullmatch(_without_weekdays(rest)):
        return None, None
    texts = [line[stamp.start : stamp.end] for stamp in stamps]
    return texts[0], texts[1] if len(texts) > 1 else None


def is_about_session(line: str) -> bool:
    """Whether a line tells when a session, a log or a chat began or ended."""
    return len(line) < 200 and _ABOUT_SESSION.match(line) is not None and bool(find_stamps(line) or _FRAMED.fullmatch(line))


def _without_weekdays(text: str) -> str:
    return _WORDS.sub(lambda match: "" if is_weekday(match[0]) or is_weekday(f"{match[0]}.") else match[0], text)


_WORDS = re.compile(r"[^\W\d_]{1,15}")


def is_event(name: str) -> bool:
    """Whether text of several words that stands where names stand tells of an event instead."""
    return (
        name.count(" ") >= _MAX_NAME_WORDS
        or len(name) > _MAX_NAME
        or _EVENT_WORDS.search(name) is not None
        or _SENTENCE.search(name) is not None
        or MARKED.fullmatch(name) is not None
    )


# --- lines that clients of IRC write -----------------------------------------------------------------------------------------

STARRED_EVENT = (
    r"(?:Joins|Parts|Quits|Disconnected|Connected|Rejoined)\b|Now talking (?:in|on) |Topic (?:is|for) |Set by |Retrieving [#&]"
    r"|You (?:are|were|have) |Attempting to |"
    r"\S+ (?:\[\S*\] |\(\S*\) )?"
    rf"(?:(?:has )?(?:{_CAME_OR_WENT})(?: [#&+!]| \()|has (?:{_CAME_OR_WENT}) *$|(?:has )?[Qq]uit (?:IRC|\(|\[)"
    r"|\((?:Quit|Part)\b|is now known as \S+ *$|sets modes?:? |was kicked (?:by|from) |has kicked |has offered "
    r"|(?:changes|changed|has changed) (?:the )?topic |(?:sets|removes) (?:ban|exempt|invite|channel|user limit)"
    r"|(?:gives|removes) (?:channel (?:half-)?operator status|voice) )"
    r"|Channel [#&]\S+ (?:modes|created)|Connecting to |Looking up |Cannot join "
)
"""Follows the single star that mIRC, HexChat and others put before actions and before lines of the channel."""

# The list of users, as irssi writes it.
_PRESENT = r"\[Users [#&+!]\S*\]|\[[ @+%&~]\S+ {0,32}\](?: \[[ @+%&~]\S+ {0,32}\])* ?"
MARKED_EVENT = rf"(?:={{3,}}|\*{{2,}}|-!-|<-{{1,2}}>?|-{{2,3}}>?|=!=)(?:[ \t].*)?|\*[ \t]+(?={STARRED_EVENT}).*|{_PRESENT}"
"""A line of the channel, after its time."""
OF_CLIENT = r"(?:={3}|--- (?:Log|Day)|\*{4} (?:BEGIN|ENDING)) .*|={3,}|Session (?:Start|Ident|Time|Close):.*"
"""A line of the client, which has no time."""

_IRC_MARK = r"(?:={3}|\*{1,3}|-!-|-->|<--|-{2,3})[ \t]+"
_RENAMED = re.compile(rf"{_IRC_MARK}\S+ +(?:(?:is|are) now known as|changed nick to) (\S+)\s*$")
_DOES = re.compile(
    rf"{_IRC_MARK}(?:(?:Joins|Parts|Quits):? +{MODE}(\S+)"
    rf"|{MODE}(\S+)(?: +(?:\[\S*\]|\(\S*\)|<\S*>))? +"
    rf"(?:(?:has )?(?:{_CAME_OR_WENT}|[Qq]uit|kicked|changed)|was kicked|sets|changes|gives|removes)\b)"
)
_SECOND = re.compile(rf"={{3}}[ \t]+{MODE}(\S+)")


def system_author(text: str) -> str | None:
    """The user who joined, left, set a mode, …; for a change of names, the new name.

    After `===` this is always the second word, because old logs of the Ubuntu channels also write actions in this way.
    """
    if match := _RENAMED.match(text):
        return match[1]
    if match := _SECOND.match(text):
        return match[1]
    return (match[1] or match[2]) if (match := _DOES.match(text)) else None

"""Mail: mbox files, Maildir folders and single messages (.eml).

A thread is a tree. The parent of a mail is the nearest one of its `In-Reply-To` and `References` that the input holds. Lines
that a mail quotes begin with "> ". Messages are parsed by the standard library; attachments are neither decoded nor kept.
"""

import email
import re
from collections.abc import Iterator, Sequence
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parseaddr, parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ramify.readers.base import Held, ReadCounts, file_name, fitting_files, guarded, lines, open_bytes
from ramify.readers.encodings import decoded_bytewise
from ramify.readers.listing import list_files
from ramify.readers.markup import html_to_text
from ramify.readers.messages import first_refusal, head_of, tops
from ramify.readers.reddit import submission_text
from ramify.readers.rows import Post, batches
from ramify.tree import FIRST_TIME, LAST_TIME, encodable

MAX_MAIL_BYTES = 64 << 20
MAX_PARTS = 10_000
"""The largest number of parts of a mail that are looked at."""
SUBJECT = re.compile(r"(?:\s*(?:re|aw|antw|sv|vs|fwd?|wg|tr|rv|ref|odp|回复|答复)(?:\[\d+\])?\s*[:：])+\s*", re.IGNORECASE)

_FROM = re.compile(rb"From \S.*\d\d:\d\d(?::\d\d)?\b.*\d{4}")
_STUFFED = re.compile(rb">+From ")
_HEADER = re.compile(rb"[!-9;-~]+:(?:[ \t]|\r?\n)")
_MARKS = (b"from", b"date", b"message-id", b"received", b"return-path", b"delivered-to", b"subject", b"mime-version")
_ID = re.compile(r"<([^<>\s]+)>")
_BLOCKQUOTE = re.compile(r"<(/?)blockquote\b[^>]*>", re.IGNORECASE)
_ORIGINAL = re.compile(
    r"-{3,} ?(?:Original Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original) ?-{3,}", re.IGNORECASE
)
_OPENS = re.compile(r"(?:(?:On|Am|Le|El|Il|Em|Op|Den|Dnia|W dniu|В)\b.*[\d,]|\d)")
"""Begins the line that names the author of a quotation, which may go on in the next lines."""
_INDEX = re.compile(r".+\.msf|table_of_contents|Info\.plist|(?:msgFilterRules|popstate|virtualFolders)\.dat|filterlog\.html")
"""Names of files that Thunderbird and Apple Mail keep beside their mbox files."""
_WROTE = re.compile(r".*\b(?:wrote|writes|said|schrieb|a écrit|escribió|ha scritto|написал\w*)\b.*:\s*", re.IGNORECASE)


class _Mail(NamedTuple):
    post: Post
    answers: tuple[str, ...]
    """The ids of the mails above, from the first to the one that it answers."""
    where: str


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        files = [file for file in list_files([path]) if file.stat().st_size]
        boxes = [file for file in files if not _INDEX.fullmatch(file.name)]
        if len(boxes) < len(files):
            return first_refusal(path, boxes, refuses, "a folder with indexes of mail only")
        return "" if any(_in_maildir(file, path) for file in files) else "a folder without cur/ or new/ of a Maildir"
    first, _, rest = head.lstrip(b"\xef\xbb\xbf\r\n").partition(b"\n")
    if _FROM.match(first):
        return "" if _HEADER.match(rest) else "no header below its first line"
    names = _header_names(head)
    if not {b"message-id", b"from"} <= names and not (b"from" in names and len(names & {*_MARKS}) > 2):
        return "neither a line `From ADDRESS DATE` nor the header of a mail at its beginning"
    return ""


def _header_names(head: bytes) -> set[bytes]:
    names = set()
    for line in head.splitlines():
        if not line.strip():
            break
        if line[:1] in b" \t":
            continue
        if not _HEADER.match(line + b"\n"):
            return set()
        names.add(line.partition(b":")[0].lower())
    return names


def _in_maildir(file: Path, folder: Path) -> bool:
    """Whether a file is a mail of a Maildir, by the folder that holds it."""
    return file.parent.name in ("cur", "new") and (file.parent != folder or folder.name in ("cur", "new"))


def read(paths: Sequence[Path], counts: ReadCounts) -> Iterator[pa.RecordBatch]:
    """Read mails. A mail without an id gets one from its place.

    A mail of which only a more distant ancestor is in the input is attached to it and counted as `missing_parent`.
    """
    return batches(_posts(paths, counts), counts)


def _posts(paths: Sequence[Path], counts: ReadCounts) -> Iterator[Post]:
    held = Held("and the files before it hold", "Build from fewer files at a time, such as one year of a list.")
    mails = [mail for path in paths for mail in _mails(path, counts, held)]
    known = {mail.post.id for mail in mails}
    above: dict[str, str | None] = {}
    for mail in mails:
        above.setdefault(mail.post.id, mail.answers[-1] if mail.answers else None)
    for mail in mails:
        # The references of a mail also tell what the missing mails among them answer.
        for upper, lower in zip(mail.answers, mail.answers[1:]):
            if lower not in known:
                above.setdefault(lower, upper)
    top = tops(above)
    for post, answers, where in mails:
        tree = top[post.id]
        parent = next((name for name in reversed(answers) if name in known and top[name] == tree), None)
        if answers and parent != answers[-1]:
            counts.repair("missing_parent", where)
            # A thread whose first mail is missing gets a placeholder.
            parent = parent or (tree if tree != post.id else None)
        title = SUBJECT.sub("", (post.meta or {}).get("title", ""), count=1).strip()
        meta = {"title": title} if title else None
        text = submission_text(title, post.text) if parent is None else post.text
        yield post._replace(parent=parent, tree=tree, text=text, meta=meta if parent is None else None)


# --- files --------------------------------------------------------------------------------------------------------------


def _mails(path: Path, counts: ReadCounts, held: Held) -> Iterator[_Mail]:
    if path.is_dir():
        is_maildir = any(_in_maildir(file, path) for file in list_files([path]))

        def fits(file: Path) -> bool:
            return _in_maildir(file, path) if is_maildir else not _INDEX.fullmatch(file.name)

        for file in fitting_files([path], fits, counts):
            if file.stat().st_size:
                yield from _mails(file, counts, held)
            else:
                counts.leave_out("empty_file", f"{file}")
        return
    is_mbox = bool(_FROM.match(head_of(path).lstrip(b"\xef\xbb\xbf\r\n")))
    for number, data in enumerate(_split(path, counts, held, is_mbox), 1):
        where = f"{path}, mail {number}" if is_mbox else f"{path}"
        if data is None:
            counts.leave_out("too_long", f"{where}: longer than {MAX_MAIL_BYTES:,} bytes")
            continue
        yield from guarded(_read, where, counts, data, where, f"{file_name(path)}/{number}", counts)


def _split(path: Path, counts: ReadCounts, held: Held, is_mbox: bool) -> Iterator[bytes | None]:
    """Yield the messages of a file; None for one that is too long. In an mbox, a line `From ADDRESS DATE` begins each."""
    parts: list[bytes] = []
    size, begun, after_blank = 0, not is_mbox, True
    opening: bytes | None = None
    with open_bytes(path, counts) as stream:
        for block in lines(stream, counts, path):
            held.add(path, sum(map(len, block)))
            for line in block:
                if opening is not None and _HEADER.match(line + b"\n"):
                    if begun:
                        yield _joined(parts, size)
                    parts, size, begun = [], 0, True
                elif opening is not None and begun:
                    parts.append(opening)  # a line of the text, because no header follows
                    size += len(opening) + 1
                opening = line if is_mbox and after_blank and _FROM.match(line) else None
                after_blank = not line.strip()
                if opening is not None or not begun:
                    continue
                size += len(line) + 1
                if size <= MAX_MAIL_BYTES:
                    parts.append(line[1:] if is_mbox and _STUFFED.match(line) else line)
                else:
                    parts.clear()
    if begun:
        yield _joined(parts, size)


def _joined(parts: list[bytes], size: int) -> bytes | None:
    return b"\n".join(parts) if size <= MAX_MAIL_BYTES else None


# --- messages -----------------------------------------------------------------------------------------------------------


def _read(data: bytes, where: str, place: str, counts: ReadCounts) -> Iterator[_Mail]:
    message = email.message_from_bytes(data)
    if not message.keys():
        raise ValueError("it has no header")
    ids = _ID.findall(_header(message, "Message-ID"))
    name = ids[0] if ids else place
    if not ids:
        counts.repair("no_id", where)
    answers = dict.fromkeys(_ID.findall(_header(message, "References")))
    if len(replied := _ID.findall(_header(message, "In-Reply-To"))) == 1:
        # The last of the references is the parent, as a rule. In-Reply-To decides, where it names one mail.
        answers.pop(replied[0], None)
        answers[replied[0]] = None
    elif not answers:
        answers = dict.fromkeys(replied)
    if name in answers:
        counts.repair("own_parent", where)
        del answers[name]
    display, address = parseaddr(_header(message, "From"))
    post = Post(
        encodable(name),
        None,
        "",
        encodable(display or address) or None,
        _time(message, where, counts),
        text=_marked(_body(message, where, counts)),
        meta={"title": " ".join(_header(message, "Subject").split())},
    )
    counts.read += 1
    yield _Mail(post, tuple(map(encodable, answers)), where)


def _header(message: Message, name: str) -> str:
    """The text of a header, decoded as far as it can be."""
    value = message.get(name)
    if value is None:
        return ""
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        return decoded_bytewise(str(value).encode("utf-8", "surrogateescape"))


def _time(message: Message, where: str, counts: ReadCounts) -> float | None:
    value = _header(message, "Date")
    try:
        time = parsedate_to_datetime(value).timestamp() if value else None
    except (ValueError, TypeError, IndexError, OverflowError):
        time = None
    if time is None or not FIRST_TIME <= time <= LAST_TIME:
        if value:
            counts.repair("bad_time", f"{where}: {value[:80]!r}")
        return None
    return time


def _body(message: Message, where: str, counts: ReadCounts) -> str:
    """The text of a message: its parts in order; of alternatives, the plain one, or else HTML without its markup."""
    texts: list[str] = []
    stack: list[Any] = [message]
    seen = 0
    while stack and seen < MAX_PARTS:
        part = stack.pop()
        seen += 1
        kind = part.get_content_type()
        inside = part.get_payload()
        if part.get_content_disposition() == "attachment":
            counts.repair("attachment", where)
        elif kind == "multipart/alternative" and isinstance(inside, list):
            plain = [each for each in inside if each.get_content_type() == "text/plain" or each.is_multipart()]
            stack += reversed(plain[:1] or inside[-1:])
        elif kind == "multipart/encrypted":
            counts.repair("undecryptable", where)
        elif kind.startswith("multipart/") and isinstance(inside, list):
            stack += reversed(inside)
        elif kind in ("text/plain", "text/html") and not isinstance(inside, list):
            text = _decoded(part, where, counts)
            texts.append(_from_html(text) if kind == "text/html" else _unflowed(part, text))
        else:
            counts.repair("attachment", where)
    counts.repair("attachment", where, len(stack))
    return "\n\n".join(text.strip("\n") for text in texts if text.strip())


def _decoded(part: Message, where: str, counts: ReadCounts) -> str:
    data = part.get_payload(decode=True)
    assert isinstance(data, bytes)
    charset = part.get_content_charset() or "utf-8"
    try:
        text = data.decode(charset)
    except (LookupError, ValueError):
        counts.repair("encoding", where)
        text = decoded_bytewise(data)
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _from_html(html: str) -> str:
    """The visible text of HTML. Each line of a block quotation begins with one ">" per level."""
    texts: list[str] = []
    depth = 0
    for place, part in enumerate(_BLOCKQUOTE.split(html)):
        if place % 2:
            depth = max(0, depth - 1) if part else depth + 1
        elif text := html_to_text(part):
            mark = ">" * depth + " " if depth else ""
            texts.append("\n".join(f"{mark}{line}" for line in text.split("\n")))
    return "\n\n".join(texts)


def _unflowed(part: Message, text: str) -> str:
    """Join the lines of a paragraph that format=flowed (RFC 3676) has broken."""
    if str(part.get_param("format", "")).lower() != "flowed":
        return text
    joined: list[str] = []
    flows_at: int | None = None
    for line in text.split("\n"):
        content = line.lstrip(">")
        depth, content = len(line) - len(content), content.removeprefix(" ")
        if flows_at == depth:
            joined[-1] += content
        else:
            joined.append(f"{'>' * depth} {content}" if depth else content)
        flows_at = depth if content.endswith(" ") and content != "-- " else None
    return "\n".join(joined)


def _marked(text: str) -> str:
    """Begin each quoted line with ">": also the lines that name the author of a quotation, and a whole message below."""
    marked: list[str] = []
    is_below = False
    for line in text.split("\n"):
        is_below = is_below or bool(_ORIGINAL.match(line))
        if line.lstrip().startswith(">"):
            line = line.lstrip()
            names = next((place for place in range(len(marked) - 1, -1, -1) if marked[place].strip()), None)
            if names is not None and _WROTE.fullmatch(marked[names]):
                start = next((place for place in range(names, max(names - 3, -1), -1) if _OPENS.match(marked[place])), names)
                if any(not above.strip() or above.startswith(">") for above in marked[start:names]):
                    start = names
                marked[start : names + 1] = [f"> {named}" for named in marked[start : names + 1]]
        elif is_below:
            line = f"> {line}"
        marked.append(line)
    return "\n".join(marked).strip()

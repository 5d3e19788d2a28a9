"""Chats as JSON: Messenger, Instagram, Google Chat, Zulip, Mattermost, and Discord's own data package.

`PROGRAMS` has the names of their fields. Channels are logs. Replies that an export records are kept.
"""

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ramify.errors import RamifyError
from ramify.readers import chat
from ramify.readers.base import Held, ReadCounts, bad_option, file_name, fitting_files, open_bytes
from ramify.readers.documents import documents, loads, text_in
from ramify.readers.json_fields import Field, at, author_of, beginnings, first, has, id_of, text_of, time_of
from ramify.readers.listing import list_files
from ramify.readers.messages import GONE, LogNames, Message, Skip, first_refusal, head_of, newest_first, nodes, tried
from ramify.readers.values import fields, identifier, objects, string
from ramify.tree import encodable

MAX_BESIDE_BYTES = 64 << 20
_BESIDE = ("group_info.json", "channel.json", "user.json", "realm.json")
"""Files beside the messages that names are taken from."""
_ROWS = b"ID,Timestamp,Contents,"
"""The first bytes of the messages in older packages of Discord, which are comma-separated."""


class Names(NamedTuple):
    """Names from the files beside the messages: account -> name, channel -> name, and the only author, if there is one."""

    accounts: Mapping[str, str] = {}
    channels: Mapping[str, str] = {}
    author: str | None = None


@dataclass(frozen=True)
class Program:
    """The names of fields in the messages of one program. Several names of a field are tried in order.

    `marks`: the fields of every message; `document`: those of the document. `within`: the keys that lead to messages.
    A `channel` or `name` that begins with "/" is looked up in the document. Without a channel, a folder is one.
    """

    marks: Sequence[str]
    files: str
    """A pattern for the names of files with messages. Other files in a folder are left out."""
    author: Sequence[Field]
    time: Sequence[Field]
    text: Sequence[Field]
    html: Sequence[Field] = ()
    within: Sequence[str] = ("messages",)
    document: Sequence[str] = ()
    id: Sequence[Field] = ()
    answers: Sequence[Field] = ()
    channel: Sequence[Field] = ()
    name: Sequence[Field] = ()
    topic: Sequence[Field] = ()
    """Messages of one topic of a channel answer the first of them."""
    replies: str = ""
    """The field with the answers to a message, which belong to its channel."""
    gone: Sequence[Field] = ()
    media: Sequence[str] = ()
    kind: Callable[[dict[str, Any]], str] = lambda item: ""
    is_mojibake: bool = False
    """Whether each byte of UTF-8 is written as a character of its own."""
    frame: str = ""
    """A field of records about the export, which are no messages."""
    names: Callable[[Path], Names] = lambda path: Names()


def _beside(path: Path, *names: str) -> Any:
    """The value of the first of these files beside another that there is; None if none can be read."""
    files = (path.parent / name for name in names)
    file = next((file for file in files if file.is_file() and file.stat().st_size <= MAX_BESIDE_BYTES), None)
    try:
        return None if file is None else loads(file.read_bytes())
    except (OSError, ValueError):
        return None


def _google_names(path: Path) -> Names:
    name = string(fields(_beside(path, "group_info.json")).get("name"))
    return Names(channels={} if name is None else {"": name})


def _discord_names(path: Path) -> Names:
    about = fields(_beside(path, "channel.json"))
    parts = [string(fields(about.get("guild")).get("name")), string(about.get("name"))]
    name = "/".join(part for part in parts if part)
    user = fields(_beside(path, "../../account/user.json", "../../Account/user.json"))
    return Names(channels={"": name} if name else {}, author=string(user.get("global_name")) or string(user.get("username")))


def _zulip_names(path: Path) -> Names:
    realm = fields(_beside(path, "realm.json"))
    people = (*objects(realm.get("zerver_userprofile")), *objects(realm.get("zerver_userprofile_crossrealm")))
    accounts = {str(user.get("id")): name for user in people if (name := string(first(user, ("full_name", "email"))))}
    streams = {str(each.get("id")): name for each in objects(realm.get("zerver_stream")) if (name := string(each.get("name")))}
    channels = {}
    for each in objects(realm.get("zerver_recipient")):
        kind = each.get("type")
        named = streams if kind == 2 else accounts if kind == 1 else {}
        if (name := named.get(str(each.get("type_id")))) is not None:
            channels[str(each.get("id"))] = name
    return Names(accounts, channels)


_ZULIP_REPLY = re.compile(r"@_?\*\*[^*\n]{1,200}\*\* \[[^\]\n]{1,40}\]\(\S{1,300}?/near/(\d+)(?:/\S{0,50})?\):\n")


def _zulip_answers(item: dict[str, Any]) -> Any:
    """The message that a message quotes and answers, as Zulip writes it."""
    text = item.get("content")
    match = _ZULIP_REPLY.match(text) if isinstance(text, str) else None
    return match and match[1]


def _mattermost_channel(item: dict[str, Any]) -> Any:
    members = item.get("channel_members")
    if isinstance(members, list):
        return ", ".join(member for member in members if isinstance(member, str))
    return "/".join(part for name in ("team", "channel") if (part := string(item.get(name)))) or None


def _mattermost_kind(item: dict[str, Any]) -> str:
    kind = string(item.get("type")) or ""
    return chat.ACTION if kind == "me" else chat.SYSTEM if kind.startswith("system_") else ""


_MESSENGER = Program(
    marks=("sender_name", "timestamp_ms"), files=r"message_\d+\.json", document=("messages",), author=("sender_name",),
    time=("timestamp_ms",), text=("content", "share.share_text", "share.link"), channel=("/thread_path",), name=("/title",),
    gone=("is_unsent",), media=("photos", "videos", "audio_files", "gifs", "files", "sticker", "call_duration"),
    kind=lambda item: chat.SYSTEM if item.get("type") in ("Call", "Subscribe", "Unsubscribe") else "", is_mojibake=True,
)  # fmt: skip

PROGRAMS: dict[str, Program] = {
    "messenger": _MESSENGER,
    "messenger-encrypted": replace(
        _MESSENGER, marks=("senderName", "timestamp"), files=r".+_\d+\.json", author=("senderName",), time=("timestamp",),
        text=("text",), channel=("/threadName",), name=("/threadName",), gone=("isUnsent",), media=("media",),
    ),
    "google-chat": Program(
        marks=("creator", "created_date"), files=r"messages\.json", id=("message_id",), author=("creator",),
        time=("created_date",), text=("text",), topic=("topic_id",),
        gone=("deletion_metadata", lambda item: item.get("message_state") == "DELETED"), media=("attached_files",),
        names=_google_names,
    ),
    "zulip": Program(
        marks=("sender", "recipient", "date_sent"), files=r"messages-\d+\.json", within=("zerver_message",), id=("id",),
        author=("sender",), time=("date_sent",), text=("content",), answers=(_zulip_answers,), channel=("recipient",),
        name=("subject",), names=_zulip_names,
    ),
    "zulip-api": Program(
        marks=("sender_full_name", "timestamp", "subject"), files=r".+\.json", id=("id",), author=("sender_full_name",),
        time=("timestamp",), text=(lambda item: None if item.get("content_type") == "text/html" else item.get("content"),),
        html=("content",), answers=(_zulip_answers,), channel=("display_recipient", "stream_id"), name=("subject",),
    ),
    "mattermost": Program(
        marks=("user", "create_at"), files=r".+\.jsonl", within=("post", "direct_post"), author=("user",),
        time=("create_at",), text=("message",), channel=(_mattermost_channel,), replies="replies", media=("attachments",),
        kind=_mattermost_kind, frame="type",
    ),
    "mattermost-api": Program(
        marks=("user_id", "channel_id", "root_id", "create_at"), files=r".+\.json", within=("posts",), document=("order",),
        id=("id",), author=("user_id",), time=("create_at",), text=("message",), answers=("root_id",),
        channel=("channel_id",), gone=("delete_at",), kind=_mattermost_kind,
    ),
    "discord-package": Program(
        marks=("ID", "Timestamp", "Contents"), files=r"messages\.(?:json|csv)", id=("ID",), author=(), time=("Timestamp",),
        text=("Contents", "Attachments"), names=_discord_names,
    ),
}  # fmt: skip


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        inside = [file for file in list_files([path]) if _program_of(file) is not None]
        return first_refusal(path, inside, refuses)
    return "" if _fitting(head) is not None else "no messages of Messenger, Google Chat, Zulip, Mattermost or Discord's package"


def _program_of(file: Path) -> Program | None:
    """The program whose files have such names. Names that any file may have do not count."""
    programs = (program for program in PROGRAMS.values() if not program.files.startswith("."))
    return next((program for program in programs if re.fullmatch(program.files, file.name)), None)


def _fitting(head: bytes) -> Program | None:
    if head.removeprefix(BOM_UTF8).startswith(_ROWS):
        return PROGRAMS["discord-package"]
    values = beginnings(head)
    return next((program for program in PROGRAMS.values() if any(_fits(program, value) for value in values)), None)


def _fits(program: Program, value: Any) -> bool:
    if not isinstance(value, dict | list) or not all(has(value, name) for name in program.document):
        return False
    return any(all(has(item, mark) for mark in program.marks) for item in _items(program, value))


def logs(paths: Sequence[Path], counts: ReadCounts, *, program: str = "auto") -> Iterator[chat.Log]:
    """Yield one log per channel or topic. Files of one channel are joined in order of time.

    `program`: a name in `PROGRAMS`; by default, the one whose messages the beginning of each file has. Messages without ids
    are numbered from 0. A reply whose message is missing is counted in `counts.kept` as `missing_parent`.
    """
    if program != "auto" and program not in PROGRAMS:
        raise bad_option("program", f"auto or one of {', '.join(PROGRAMS)}", program)
    named = None if program == "auto" else PROGRAMS[program]
    held = Held("and the files before it hold", "Build from fewer files at a time.")
    channels: dict[tuple[str, ...], _Channel] = {}
    for path in _files(paths, counts):
        head = head_of(path)
        chosen = named or _fitting(head)
        if chosen is None:
            raise RamifyError(
                f"{path} holds no messages of a known program at its beginning. Name the program with --option program=NAME "
                f"({', '.join(PROGRAMS)})."
            )
        reader = _File(chosen, path, counts, channels)
        has_rows = head.removeprefix(BOM_UTF8).startswith(_ROWS)
        for where, document in _rows(path, counts, held) if has_rows else documents(path, counts, held):
            reader.add(document, where)
    given = LogNames()
    for channel in channels.values():
        yield given.log((channel.name,), channel.finished(counts), channel.path)


def _files(paths: Sequence[Path], counts: ReadCounts) -> Iterator[Path]:
    """The files with messages. In a folder, those are the files whose names tell it, if there are any."""
    for path in paths:
        inside = list_files([path])
        named = {file for file in inside if _program_of(file) is not None}
        yield from fitting_files([path], (named or {*inside}).__contains__, counts, beside=_BESIDE)


def _rows(path: Path, counts: ReadCounts, held: Held) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a comma-separated file as one list of objects. A row that is too wide becomes an empty one."""
    with open_bytes(path, counts) as stream:
        data = held.read(stream, path)
    rows = csv.reader(io.StringIO(text_in(data, f"{path}", counts), newline=""), strict=True)
    try:
        titles = next(rows)
        yield f"{path}", [dict(zip(titles, row if len(row) <= len(titles) else ())) for row in rows if row]
    except csv.Error as error:
        raise RamifyError(
            f"{path}, line {rows.line_num}: {error}. Download the package again, or leave this file out."
        ) from None


def _items(program: Program, document: Any) -> Iterator[Any]:
    """Yield the messages of a document, and whatever else stands in their place."""
    stack: list[Any] = [document]
    while stack:
        value = stack.pop()
        inside = [key for key in program.within if key in value] if isinstance(value, dict) else []
        if isinstance(value, list):
            stack += reversed(value)
        elif inside and not all(has(value, mark) for mark in program.marks):
            for key in inside:
                below = value[key]
                # Mattermost's posts stand under their ids.
                is_map = isinstance(below, dict) and not any(has(below, mark) for mark in program.marks)
                stack.append(list(below.values()) if is_map else below)
        else:
            yield value


@dataclass
class _Channel:
    """The messages of one channel or topic."""

    name: str
    path: Path
    has_ids: bool
    records: list[Message] = field(default_factory=list)

    def finished(self, counts: ReadCounts) -> Iterator[Any]:
        """The nodes in order of time. Exports with the newest message first are turned, for messages of the same time."""
        records = self.records[::-1] if newest_first(self.records) else self.records
        for place, node in enumerate(nodes(records, counts)):
            yield node if self.has_ids else replace(node, id=str(place))


class _File:
    """Adds the messages of one file to their channels."""

    def __init__(self, program: Program, path: Path, counts: ReadCounts, channels: dict[tuple[str, ...], _Channel]) -> None:
        self._program, self._path, self._counts, self._channels = program, path, counts, channels
        self._names = program.names(path)
        self._topics: dict[tuple[tuple[str, ...], str], str] = {}
        self._mended = False

    def add(self, document: Any, where: str) -> None:
        number = 0
        # An item, and the record that it answers with its channel.
        stack: list[tuple[Any, Message | None, _Channel | None]] = []
        for item in _items(self._program, document):
            stack.append((item, None, None))
            while stack:
                item, above, channel = stack.pop()
                number += 1
                place = f"{where}, message {number}"
                for record, within in tried(self._record, place, self._counts, item, document, above, channel):
                    within.records.append(record)
                    replies = item.get(self._program.replies)
                    stack += [(reply, record, within) for reply in reversed(replies if isinstance(replies, list) else [])]

    def _record(
        self, item: Any, where: str, document: Any, above: Message | None, channel: _Channel | None
    ) -> tuple[Message, _Channel]:
        program, names = self._program, self._names
        if missing := next((mark for mark in program.marks if not has(item, mark)), None):
            is_frame = isinstance(item, dict) and program.frame in item
            raise Skip("frame", f"no {missing}") if is_frame else LookupError(f"no {missing}")
        self._mended = False
        titles = [first(item, fields, document) for fields in (program.channel, program.name)]
        channel_id, name = (identifier(title) or "" for title in titles)
        key = (*program.marks, channel_id or f"{self._path.parent.resolve()}", name)
        author = author_of(item, program.author)
        author = names.author if author is None else names.accounts.get(author, author)
        record = Message(
            id_of(item, program.id) or where,
            GONE if any(at(item, name) for name in program.gone) else self._text(item),
            author=author and self._mend(author),
            time=time_of(item, program.time, self._counts, where),
            kind=program.kind(item),
            answers=id_of(item, program.answers) if above is None else above.id,
            where=where,
        )
        topic = id_of(item, program.topic)
        if topic is not None:
            head = self._topics.setdefault((key, topic), record.id)
            record.answers = None if head == record.id else head
        if record.answers == record.id:
            self._counts.repair("own_parent", where)
            record.answers = None
        channel = channel or self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(self._name(*titles), self._path, bool(program.id))
        if self._mended:
            self._counts.repair("mojibake", where)
        return record, channel

    def _name(self, *titles: Any) -> str:
        """The name of a channel, its topic behind it; without both, that of the file's folder."""
        channel, topic = map(_shown, titles)
        is_titled = any(str(name).startswith("/") for name in self._program.name)
        called = self._names.channels.get(channel or "", None if is_titled else channel)
        shown = "/".join(part for part in (called, topic) if part)
        return self._mend(shown or self._path.resolve().parent.name or file_name(self._path))

    def _text(self, item: dict[str, Any]) -> str:
        program = self._program
        text = text_of(item, program.text, program.html)
        if not text.strip() and (medium := next((name for name in program.media if item.get(name)), "")):
            files = objects(item[medium])
            called = string(first(files[0], ("original_name", "original_file_name", "name", "path"))) if files else None
            text = f"[{called or medium.replace('_', ' ')}]"
        return self._mend(text)

    def _mend(self, text: str) -> str:
        """The text whose bytes of UTF-8 were written as characters; any other text as it is."""
        if not self._program.is_mojibake or text.isascii():
            return encodable(text)
        try:
            mended = text.encode("latin-1").decode("utf-8")
        except UnicodeError:
            return encodable(text)
        self._mended = True
        return mended


def _shown(value: Any) -> str | None:
    """A name, or those of the people in a list."""
    people = [string(first(person, ("full_name", "email"))) for person in objects(value)]
    return ", ".join(person for person in people if person) if people else identifier(value)

"""Disentangled Slack channels of software developers (Chatterjee et al. 2020): XML with the conversation of each message.

A file is a log. Reply links are unknown. A message's label is {"conversation": id}.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from ramify.readers import chat
from ramify.readers.base import BLOCK_BYTES, ReadCounts, file_name, lacks, open_bytes
from ramify.readers.listing import list_files
from ramify.readers.markup import MarkupError, XmlParser
from ramify.readers.messages import LogNames, Message, in_order, tried
from ramify.readers.slack import plain
from ramify.readers.values import parse_time

ABOUT = ("team_domain", "channel_name", "start_date", "end_date")


def refuses(path: Path, head: bytes) -> str:
    return lacks(path, head, b"<slack>", b"<team_domain>", b"<message conversation_id=")


def logs(paths: Sequence[Path], counts: ReadCounts) -> Iterator[chat.Log]:
    """Yield one log per file. The rest of a file after its first XML error is skipped and counted once."""
    given = LogNames()
    for path in list_files(paths):
        about: dict[str, str] = {}
        messages = _messages(path, about, counts)
        # The description of the channel precedes its messages.
        first = next(messages, None)
        if first is None:
            continue
        team, channel, start = (about.get(name, "") for name in ABOUT[:3])
        name = "/".join(part for part in (team, channel) if part) or Path(file_name(path)).stem
        messages = in_order(chain([first], messages), counts, {})
        told = {"team": team, "channel": channel, "start": start, "end": about.get("end_date")}
        yield given.log((name, f"{name}/{start[:10]}", f"{path}"), messages, path, **told)


def _messages(path: Path, about: dict[str, str], counts: ReadCounts) -> Iterator[Message]:
    """Yield messages. `about` receives the description of the channel before the first message."""
    ready: list[tuple[str, dict[str, str]]] = []
    """The places and the fields of messages that the parser has read."""
    fields: dict[str, str] = {}
    path_of_tags: list[str] = []
    numbers = count(1)

    def start(tag: str, attributes: dict[str, str]) -> None:
        if not path_of_tags and tag != "slack":
            raise MarkupError(f"expected <slack>, found <{tag}>", parser.line, 0)
        path_of_tags.append(tag)
        if tag == "message":
            fields["conversation"] = attributes.get("conversation_id", "")

    def text(data: str) -> None:
        if len(path_of_tags) > 1:
            tag = path_of_tags[-1]
            target = fields if "message" in path_of_tags else about
            target[tag] = target.get(tag, "") + data

    def end(tag: str) -> None:
        nonlocal fields
        path_of_tags.pop()
        if tag == "message":
            ready.append((f"{path}, line {parser.line}", fields))
            fields = {}

    def read() -> Iterator[Message]:
        for where, message in ready:
            yield from tried(_message, where, counts, message, f"{next(numbers)}", counts)
        ready.clear()

    parser = XmlParser(start, end, text)
    with open_bytes(path, counts) as stream:
        try:
            while data := stream.read(BLOCK_BYTES):
                parser.feed(data)
                yield from read()
            parser.feed(b"", final=True)
        except MarkupError as error:
            yield from read()
            counts.leave_out("bad_xml", f"{path}, line {error.line}: {error}")


def _message(fields: dict[str, str], where: str, number: str, counts: ReadCounts) -> Message:
    return Message(
        number,
        plain(fields.get("text", ""), {}),
        fields.get("user") or None,
        parse_time(fields.get("ts"), counts, where),
        label={"conversation": fields["conversation"]} if fields["conversation"] else None,
        where=where,
    )

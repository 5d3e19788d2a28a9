"""The conversations of a log as plain text, and as an HTML page with a colour per conversation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import numpy as np

from ramify.disentangle.inference.result import Disentangled
from ramify.errors import RamifyError, counted, printable
from ramify.readers.chat import ACTION, SYSTEM
from ramify.report.html import HtmlSection, text
from ramify.report.page import write_page
from ramify.tree import NO_PARENT, Node, Tree, depths

KIND = "Who replied to whom"
"""The line above the title, by which a page is recognised."""

MAX_SHOWN = 20_000
"""Most messages per page; more would overload a browser."""

DEEPEST = 8
NAMES_SHOWN = 6
GOLDEN_ANGLE = 137.508


def as_text(result: Disentangled) -> Iterator[str]:
    """The lines of a log, one conversation after another in order of their first messages; single messages come last.

    Answers are indented below their parents. Parents are named if they are not the nearest line above with a smaller indent.
    """
    log = result.tree
    trees = result.conversations()
    several = [(number, tree) for number, tree in enumerate(trees) if len(tree) > 1]
    alone = [tree.nodes[0] for tree in trees if len(tree) == 1]
    dated = _of_several_days(log.nodes)
    sizes = f"{counted(len(log), 'message')} · {counted(len(several), 'conversation')}"
    recorded = f" · {counted(kept, 'reply link')} recorded" if (kept := result.count_links()[0]) else ""
    yield f"=== {printable(log.id)} · {sizes}{recorded}"
    for number, tree in several:
        yield ""
        yield f"--- {number} · {counted(len(tree), 'message')} · {_people(tree)}{_span(tree, dated)}"
        days = _days(tree.nodes, _of_several_days(tree.nodes))
        # The messages below which the next one may stand, least indented first.
        path: list[int] = []
        for number, (day, node, depth) in enumerate(zip(days, tree.nodes, depths(_first_parents(tree)).tolist())):
            indent = min(depth, DEEPEST)
            del path[indent:]
            shown_parents = tuple(path[-1:]) if len(path) == indent else ()
            parents = node.parents or ()
            parent_ids = [*(tree.nodes[parent].id for parent in parents), *node.label.get("also", ())]
            answers = "" if parents == shown_parents and len(parent_ids) < 2 else f"→ {', '.join(map(printable, parent_ids))} "
            path += [number] * (indent + 1 - len(path))
            yield from (f"       {date}" for date in day)
            yield f"{printable(node.id):>6} {_clock(node)}{'  ' * indent}{answers}{_line(node)}"
    if alone:
        yield ""
        yield f"--- {counted(len(alone), 'message')} without reply links"
        for day, node in zip(_days(alone, dated), alone):
            yield from (f"       {date}" for date in day)
            yield f"{printable(node.id):>6} {_clock(node)}{_line(node)}"
    yield ""


def check_shown(messages: int) -> None:
    """Raise `RamifyError` if a page would hold too many messages."""
    if messages > MAX_SHOWN:
        raise RamifyError(
            f"--to html would write {messages:,} messages or more to one page, which is too much for a browser (at most "
            f"{MAX_SHOWN:,}). Give fewer logs, or choose --to text or jsonl."
        )


def write_conversations(path: Path, logs: list[Disentangled], model: str) -> None:
    """Write a self-contained page: the logs in order, coloured by conversation, with a line from each answer to its parent.

    Raises `RamifyError` if the page would hold too many messages.
    """
    total = sum(len(result.tree) for result in logs)
    check_shown(total)
    templates = files("ramify.report")
    style, script = (templates.joinpath(f"conversations.{kind}").read_text("utf-8").strip() for kind in ("css", "js"))
    sections = [HtmlSection("How to read this page", _HOW + f"<style>{style}</style>")]
    sections += [_section(number, result) for number, result in enumerate(logs)]
    # The script comes after the elements that it uses.
    sections[-1] = replace(sections[-1], body=sections[-1].body + f"<script>{script}</script>")
    sizes = [np.bincount(result.conversation) for result in logs]
    several, alone = (sum(int((size > 1).sum()) for size in sizes), sum(int((size == 1).sum()) for size in sizes))
    lead = (
        f"<p>{counted(total, 'message')}: {counted(several, 'conversation')} and {counted(alone, 'single message')}, as "
        f"predicted by {text(model)}{_say_recorded(logs)}.</p>"
    )
    title = logs[0].tree.id if len(logs) == 1 else counted(len(logs), "log")
    write_page(path, kind=KIND, title=title, lead=lead, sections=sections)


def _say_recorded(logs: Sequence[Disentangled]) -> str:
    """The end of a sentence about the links: recorded ones, if there are any, and predicted ones."""
    recorded, predicted = (sum(counts) for counts in zip(*(result.count_links() for result in logs)))
    if not recorded:
        return ""
    return f"; {counted(recorded, 'reply link')} recorded in the log and kept, {predicted:,} predicted"


_HOW = (
    "<p>Messages are in the order of the log. The messages of a conversation share a colour and a number. A line leads from a "
    "message to the one that it answers (the likeliest, if there are several). The percentage is the probability of this link, "
    "or of the start of a conversation; “recorded” marks links that the log itself records. Click a conversation, here or in "
    "the log, to show its messages alone; click it again to show all.</p>"
)


def _section(place: int, result: Disentangled) -> HtmlSection:
    sizes: dict[int, int] = {}
    for number in result.conversation.tolist():
        sizes[number] = sizes.get(number, 0) + 1
    buttons = "".join(
        f'<button data-conversation="{number}" style="{_colour(number)}">{number} <small>{size}</small></button>'
        for number, size in sizes.items()
        if size > 1
    )
    parent = _first_parents(result.tree)
    rows = []
    days = _days(result.tree.nodes, _of_several_days(result.tree.nodes))
    for number, (node, day, parent_number, conversation, probability) in enumerate(
        zip(result.tree.nodes, days, parent, result.conversation.tolist(), result.probability.tolist(), strict=True)
    ):
        rows += [f'<li class="day">{date}</li>' for date in day]
        is_alone = sizes[conversation] == 1
        answers = f' data-answers="m{place}-{parent_number}"' if parent_number >= 0 else ""
        what = f"answers {result.tree.nodes[parent_number].id}" if parent_number >= 0 else "starts a conversation"
        what += " and starts a conversation" if node.self_link else ""
        certainty = "recorded" if number in result.recorded else f"{probability:.0%}"
        kind = f" {text(node.kind)}" if node.kind else ""
        rows.append(
            f'<li id="m{place}-{number}" class="message{" alone" if is_alone else ""}{kind}" data-conversation="{conversation}"'
            f'{answers} style="{"" if is_alone else _colour(conversation)}" title="{text(what)}, {certainty}">'
            f'<span class="number">{text(node.id)}</span> <time title="{_date(node)}">{text(_clock(node).strip())}</time> '
            f'<b>{text(node.author or "")}</b> <span class="said">{text(node.text)}</span> '
            f'<span class="probability">{"" if is_alone else f"{conversation} · "}{certainty}</span></li>'
        )
    body = f'<nav class="conversations">{buttons}</nav><ol class="log">{"".join(rows)}</ol>'
    return HtmlSection(
        result.tree.id or "log",
        body,
        f"{counted(len(result.tree), 'message')}, {counted(sum(size > 1 for size in sizes.values()), 'conversation')}",
    )


def _colour(conversation: int) -> str:
    """A colour; conversations with close numbers have distant hues."""
    return f"--hue:{conversation * GOLDEN_ANGLE % 360:.0f}"


def _first_parents(tree: Tree) -> list[int]:
    return [node.parents[0] if node.parents else NO_PARENT for node in tree.nodes]


def _people(tree: Tree) -> str:
    names = list(dict.fromkeys(node.author for node in tree.nodes if node.author))
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return (", ".join(printable(name) for name in names[:NAMES_SHOWN]) or "no author") + more


def _span(tree: Tree, dated: bool) -> str:
    times = [node.time for node in tree.nodes if node.time is not None]
    if not times:
        return ""
    first, last = (datetime.fromtimestamp(time, UTC) for time in (min(times), max(times)))
    if first.date() != last.date():
        return f" · {_calendar(first)} {first:%H:%M} – {_calendar(last)} {last:%H:%M}"
    return f" · {f'{_calendar(first)} ' if dated else ''}{first:%H:%M}–{last:%H:%M}"


def _of_several_days(nodes: Sequence[Node]) -> bool:
    return len({_day(node) for node in nodes} - {""}) > 1


def _days(nodes: Sequence[Node], dated: bool) -> Iterator[list[str]]:
    """For each message, the day to print before it: one if `dated` and a new day begins, else none."""
    last = ""
    for day in map(_day, nodes):
        is_new = dated and day not in ("", last)
        last = day or last
        yield [day] if is_new else []


def _day(node: Node) -> str:
    return "" if node.time is None else _calendar(datetime.fromtimestamp(node.time, UTC))


def _calendar(moment: datetime) -> str:
    """The date, or the number of the day in a log without dates, whose times count from 1970."""
    return f"day {moment.timetuple().tm_yday}" if moment.year == 1970 else f"{moment:%Y-%m-%d}"


def _clock(node: Node) -> str:
    if node.time is None:
        return ""
    return f"[{datetime.fromtimestamp(node.time, UTC):%H:%M}] "


def _date(node: Node) -> str:
    if node.time is None:
        return ""
    moment = datetime.fromtimestamp(node.time, UTC)
    return f"{_calendar(moment)} {moment:%H:%M:%S}"


def _line(node: Node) -> str:
    # System messages about a user mostly contain the name.
    if not node.author or (node.kind == SYSTEM and re.search(rf"(?<!\w){re.escape(node.author)}(?!\w)", node.text)):
        return printable(node.text)
    if node.kind in (ACTION, SYSTEM):
        return f"* {printable(node.author)} {printable(node.text)}"
    return f"<{printable(node.author)}> {printable(node.text)}"

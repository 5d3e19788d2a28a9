"""`ramify disentangle`: the conversations of a chat log."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramify.cli.shared import Deciding, Device, Precision, bar, guessed, options_of, pairs, redecide

if TYPE_CHECKING:
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.disentangle.inference.result import Disentangled
    from ramify.disentangle.inference.streaming import LinkPrediction
    from ramify.readers import Format
    from ramify.readers.base import Report
    from ramify.tree import Node, Tree

LINKS = Path(__file__).parents[1] / "sample" / "links"
"""The model that comes with Ramify."""

AT_ONCE = 256
"""Messages of a live channel that are decided on together at most, unless somebody says how many."""


def disentangle(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG…", help="Chat logs or exports, compressed or not, or folders.")],
    to: Annotated[
        Literal["text", "jsonl", "annotation", "html"],
        typer.Option(help="To be read; a tree a conversation; LOG:PARENT CHILD - a link; or a page with colours and lines."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A run of a recipe for chats, such as `ramify train feature-model`, or a saved model; may be repeated. "
            "Default: what comes with Ramify."
        ),
    ] = None,
    ensemble: Annotated[
        Literal["vote", "unanimous", "union", "union-most", "intersect", "mean"],
        typer.Option(
            help="With several models: most voices; what all say, else a start; all links; the conversations of all; the mean "
            "of their probabilities."
        ),
    ] = "vote",
    beam: Annotated[
        int, typer.Option(min=1, help="Models that read their own decisions: structures kept side by side while deciding.")
    ] = 1,
    format: Annotated[str | None, typer.Option(help="What the files are; guessed by default.")] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A further option of the format.")] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Of a table: which column is what.")] = None,
    keep_replies: Annotated[
        bool, typer.Option("--keep-replies", help="Where the log itself says what a message answers, keep to that.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Decide on messages as they come, without hindsight, and write a line at once, JSON or LOG:PARENT CHILD -."
            " Of an IRC log, or a table without ids, parents and channels, no more is held than may be asked for; exports are "
            "read whole first. Read an IRC log that comes from another program as /dev/stdin (a table is a file), write to "
            "/dev/stdout.",
        ),
    ] = False,
    every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --live: wait for so many messages and decide on them together. Default: wait for none, and decide "
            "together on those that have come in the meantime.",
        ),
    ] = None,
    settings: Deciding = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Who replied to whom, and which messages are one conversation.

    Example: ramify disentangle channel.log --to html --out channel.html

    Example: tail -n +1 -f channel.log | ramify disentangle - --format irc --live --to jsonl --out -

    Example: ramify disentangle years.log --live --every 4096 --to annotation --out links.txt
    """
    from ramify import readers
    from ramify.disentangle.inference.ensemble import disentangle_together
    from ramify.errors import RamifyError
    from ramify.nn.precision import autocast
    from ramify.readers import irc
    from ramify.readers.base import Report

    logs, out = [_or_stream(each, "/dev/stdin") for each in logs], _or_stream(out, "/dev/stdout")
    _check_out(out)
    report = Report()
    logs = readers.without_empty(logs, report)
    name = format or guessed(logs)
    known = readers.find(name)
    if known.yields == "posts":
        hint = " For a table of messages in the order of a channel add --format chat-table." if name == "table" else ""
        raise RamifyError(f"the format {name!r} holds posts whose replies are known: there is nothing to disentangle.{hint}")
    chosen = options_of(option) | ({"columns": pairs(column, "--column")} if column else {})
    known.check(chosen)
    sources = readers.files(logs)
    if name == "irc":
        # Gold links that lie beside a log are none of its own.
        chosen = {"annotations": "none"} | chosen
        sources = [*sources, *irc.beside(sources, chosen)]
    for source in sources:
        if out.exists() and source.is_file() and out.is_file() and out.samefile(source):
            raise RamifyError(f"{out} is what is to be read: choose another place to write to.")
    models = [_loaded(source, settings, device) for source in model or [str(LINKS)]]
    names = ", ".join(Path(each).name for each in model or ())
    if every is not None and not live:
        raise RamifyError("--every is for --live: a whole log is decided on together anyway.")
    if live:
        if len(models) > 1 or keep_replies or beam > 1 or to not in ("jsonl", "annotation"):
            raise RamifyError("--live is for one model and --to jsonl or annotation, without --keep-replies and --beam.")
        with autocast(models[0].device, precision):
            _follow(models[0], known, logs, report, chosen, to, out, every)
        return
    with bar("disentangling", None) as advance, autocast(models[0].device, precision):
        trees = known.records(logs, report, **chosen)
        trees = _for_a_page(trees) if to == "html" else trees
        found = _counted(
            (disentangle_together(models, tree, keep_replies=keep_replies, ensemble=ensemble, beam=beam) for tree in trees),
            advance,
            report,
        )
        _write(found, to, out, names or "the model that comes with Ramify", known.numbered)
    _say(report)
    print(out, file=sys.stderr)


def _or_stream(path: Path, stream: str) -> Path:
    return Path(stream) if str(path) == "-" else path


def _check_out(out: Path) -> None:
    """Raise at once, not when all is done, where nothing can be written."""
    from ramify.errors import RamifyError

    if out.is_dir():
        raise RamifyError(f"--out {out} is a folder: name a file to write to.")
    if not out.parent.is_dir():
        raise RamifyError(f"--out {out}: there is no folder {out.parent}. Make it, or choose another place.")


def _loaded(source: str, settings: list[str] | None, device: str) -> "Disentangler":
    import ramify
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.errors import RamifyError

    pipeline = ramify.load(source, device=device)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"{source} does not say who replied to whom; it can {', '.join(pipeline.verbs)}.")
    return redecide(pipeline, settings)


def _follow(
    model: "Disentangler",
    known: "Format",
    logs: list[Path],
    report: "Report",
    chosen: dict[str, Any],
    to: str,
    out: Path,
    every: int | None,
) -> None:
    """Write a line a message as it comes, or as so many have come."""
    from ramify.disentangle.inference.prefetch import prefetch_batches
    from ramify.errors import RamifyError
    from ramify.files import appending
    from ramify.readers.annotation import readable_name
    from ramify.readers.messages import LogNames

    if known.yields != "logs":
        raise RamifyError("what is in this format is not read message by message: leave --live out.")
    names = LogNames()
    read = answered = 0

    def counted(messages: Iterable["Node"]) -> Iterator["Node"]:
        nonlocal read
        for message in messages:
            read += 1
            yield message

    with ExitStack() as files:
        # Most channels never end: somebody stops listening, here, or where the answers go (who needs no more of them).
        files.push(lambda error, *_: _say(report, 0 if error is BrokenPipeError else read - answered))
        file = None
        for log in known.reads(logs, report, **chosen):
            channel, messages = model.live(), counted(log.messages)
            runs = prefetch_batches(messages, AT_ONCE) if every is None else _by(every, messages)
            name = names.give(readable_name(log.name)) if to == "annotation" else log.name
            ids: dict[int, str] = {}
            for together in runs:
                # No sooner: where nobody says a thing, what lies there stays.
                file = file or files.enter_context(appending(out))
                for message, heard in zip(together, channel.predict_each(together), strict=True):
                    ids[heard.number] = message.id if to == "jsonl" or known.numbered else str(heard.number)
                    file.writelines(f"{line}\n" for line in _said(name, ids, heard, to))
                    answered += 1
                    file.flush()
                    ids.pop(heard.number - model.input.window - 1, None)
        if file is None:
            raise RamifyError(_no_message(report))


def _by(size: int, messages: Iterable["Node"]) -> Iterator[list["Node"]]:
    rest = iter(messages)
    while together := list(islice(rest, size)):
        yield together


def _said(log: str, ids: dict[int, str], heard: "LinkPrediction", to: str) -> list[str]:
    from ramify.readers.annotation import link_line

    own = ids[heard.number]
    if to == "annotation":
        return [link_line(log, int(ids[above]), int(own)) for above in (heard.parent, *heard.also)]
    said = {"log": log, "id": own, "answers": None if heard.parent == heard.number else ids[heard.parent]}
    said |= {"also": [ids[above] for above in heard.also]} if heard.also else {}
    said |= {"probability": round(heard.probability, 4), "conversation": heard.conversation}
    return [json.dumps(said, ensure_ascii=False)]


def _for_a_page(logs: Iterator["Tree"]) -> Iterator["Tree"]:
    """The logs, refused before anybody decides on them where they are too many messages."""
    from ramify.report.conversations import check_shown

    messages = 0
    for log in logs:
        messages += len(log)
        check_shown(messages)
        yield log


def _counted(logs: Iterator["Disentangled"], advance: Callable[[int], None], report: "Report") -> Iterator["Disentangled"]:
    """Raises where there is not a message: an empty file would say that all went well."""
    from ramify.errors import RamifyError

    messages = 0
    for log in logs:
        yield log
        advance(len(log.tree))
        messages += len(log.tree)
    if not messages:
        raise RamifyError(_no_message(report))


def _no_message(report: "Report") -> str:
    why = "; ".join(_counts(report, report.skipped))
    return f"no message was found{why and f' ({why})'}: nothing is written. Is this the right --format, and the files whole?"


def _write(found: Iterator["Disentangled"], to: str, out: Path, model: str, numbered: bool) -> None:
    """`numbered`: see `Format`."""
    from ramify.files import replacing
    from ramify.readers.annotation import readable_name, write_links
    from ramify.readers.messages import LogNames
    from ramify.report.conversations import as_text, write_conversations

    if to == "html":
        write_conversations(out, list(found), model)
    elif to == "annotation":
        names = LogNames()
        write_links(out, {names.give(readable_name(each.tree.id)): _numbers(each, numbered) for each in found})
    else:
        with replacing(out) as scratch, open(scratch, "w", encoding="utf-8", newline="\n") as file:
            for each in found:
                said = as_text(each) if to == "text" else (tree.to_json() for tree in each.conversations())
                file.writelines(f"{line}\n" for line in said)


def _numbers(found: "Disentangled", numbered: bool) -> list[tuple[int, int]]:
    """Links by the numbers that are the messages' ids, or by their places in the log."""
    ids = [node.id for node in found.tree.nodes]
    numbers = list(range(len(ids)))
    if numbered and all(each.isdecimal() for each in ids):
        said = [int(each) for each in ids]
        numbers = said if all(one < two for one, two in pairwise(said)) else numbers
    return [(numbers[parent], numbers[child]) for parent, child in found.links().tolist()]


def _say(report: "Report", unanswered: int = 0) -> None:
    """What somebody may miss in what was written."""
    if unanswered:
        print(f"read and not answered: {unanswered:,} of the last messages", file=sys.stderr)
    for what, counts in (("left out", report.skipped), ("mended", report.kept)):
        for said in _counts(report, counts):
            print(f"{what}: {said}", file=sys.stderr)


def _counts(report: "Report", counts: Mapping[str, int]) -> Iterator[str]:
    # Somebody may stop a live channel while a thread still reads.
    for reason, count in list(counts.items()):
        where = next(iter(report.examples.get(reason, ())), "")
        yield f"{count:,} {reason.replace('_', ' ')}{where and f' (first: {where})'}"

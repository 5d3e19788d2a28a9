"""`ramify disentangle`: find the reply links and conversations of chat logs."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramify.cli.progress import bar
from ramify.cli.shared import (
    ColumnNames,
    Deciding,
    Device,
    FormatName,
    FormatOptions,
    LogPattern,
    Precision,
    Verbose,
    beside,
    check_out,
    file_kind,
    is_stream,
    reader_options,
    redecide,
    tell,
)
from ramify.cli.verbs import check_can, offers
from ramify.errors import RamifyError, counted
from ramify.files import STANDARD
from ramify.sample import LINKS

if TYPE_CHECKING:
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.disentangle.inference.result import Disentangled
    from ramify.inference.answers import LinkPrediction
    from ramify.readers import Format, Inputs
    from ramify.readers.base import ReadCounts
    from ramify.tree import Node, Tree

NO_CHATS = {"text": "plain texts", "book": "books", "labelled": "labelled texts"}
"""Formats of texts that are no messages -> their content."""

LIVE_BATCH = 256
"""Most messages of a live channel that are decided together, unless `--every` is given."""

Output = Literal["text", "jsonl", "annotation", "html", "csv", "parquet"]

ENDINGS: dict[str, Output] = {
    "-": "text",
    ".annotation.txt": "annotation",
    ".links.txt": "annotation",
    ".txt": "text",
    ".jsonl": "jsonl",
    ".html": "html",
    ".csv": "csv",
    ".parquet": "parquet",
}
"""The ending of --out, or - for standard output -> the kind of file. The first ending that fits decides."""

BESIDE: dict[Output, str] = {
    "html": ".html",
    "text": ".conversations.txt",
    "jsonl": ".conversations.jsonl",
    "annotation": ".links.txt",
    "csv": ".conversations.csv",
    "parquet": ".conversations.parquet",
}
"""The ending of a file beside the log, where no `--out` names one. Readers would take `.annotation.txt` for gold links."""

# --- options ------------------------------------------------------------------------------------------------------------

Logs = Annotated[
    list[Path],
    typer.Argument(metavar="LOG…", help="Chat logs or exports, compressed or not, or folders with them; - reads stdin."),
]

Kind = Annotated[
    Output | None,
    typer.Option(
        help="text: readable; jsonl: one tree per conversation; annotation: one link per line; html: a coloured page; csv, "
        "parquet: one message per row. Default: by the ending of --out (.txt, .jsonl, .links.txt, .annotation.txt, .html, "
        ".csv, .parquet); without --out, html; on stdout, text; with --live, jsonl."
    ),
]

OutFile = Annotated[
    Path | None,
    typer.Option("--out", help="File to write; - writes to stdout. Default: a new file beside the log; with --live, stdout."),
]

Models = Annotated[
    list[str] | None,
    typer.Option(
        help="A disentanglement run, e.g. of `ramify train feature-model`, or a saved model. Repeat for an ensemble. "
        "Default: links, the model that ships with Ramify."
    ),
]

Ensemble = Annotated[
    Literal["vote", "unanimous", "union", "union-most", "intersect", "mean"],
    typer.Option(
        help="Combination of several models. vote: the link that most models predict; unanimous: links that all predict, "
        "otherwise a start; union: every predicted link; union-most: the same, but a start if most predict one; intersect: "
        "conversations that all predict; mean: the likeliest link by the mean probability."
    ),
]

Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Decide on messages as they arrive, without lookahead, and write each decision at once: a JSON object or "
        "LOG:PARENT CHILD -. Memory is bounded for logs as text and for tables without ids, parents and channels; exports "
        "are read whole first.",
    ),
]

Every = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --live: decide once this many messages have arrived. Default: decide at once, on all messages that "
        "have arrived in the meantime.",
    ),
]


# --- the command --------------------------------------------------------------------------------------------------------


@offers("disentangle", "follow")
def disentangle(
    logs: Logs,
    to: Kind = None,
    out: OutFile = None,
    model: Models = None,
    ensemble: Ensemble = "vote",
    beam: int = 1,
    format: FormatName = None,
    pattern: LogPattern = None,
    option: FormatOptions = None,
    column: ColumnNames = None,
    ignore_replies: bool = False,
    live: Live = False,
    every: Every = None,
    settings: Deciding = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    verbose: Verbose = False,
) -> None:
    """Find which message replies to which, and which messages form one conversation.

    Replies that the log itself records, such as Slack's threads, are kept.

    Example: ramify disentangle channel.log

    Example: ramify disentangle export.zip --out conversations.jsonl

    Example: ramify disentangle channel.log --out replies.csv

    Example: ramify disentangle room.txt --pattern '{date} {time} | {author}: {text}' --to annotation --out links.txt

    Example: tail -n +1 -f channel.log | ramify disentangle - --format irc --live --to jsonl --out -

    Example: ramify disentangle years.log --live --every 4096 --to annotation --out links.txt
    """
    from ramify import readers
    from ramify.disentangle.inference.ensemble import disentangle_ensemble
    from ramify.nn.precision import autocast

    kind, out = _find_output(to, out, logs, live)
    check_out(out)
    if not out.parent.is_dir():
        raise RamifyError(f"--out {out}: the folder {out.parent} does not exist. Create it, or choose another file.")
    options = reader_options(option, pattern, column)
    inputs = readers.open_inputs(logs, format, options, unannotated=True, verbose=verbose, tell=tell)
    _check_chat(inputs.format)
    check_out(out, _inputs_read(inputs))
    models = [_loaded(source, settings, device) for source in model or [str(LINKS)]]
    names = ", ".join(Path(source).name for source in model or ())
    if every is not None and not live:
        raise RamifyError(f"--every {every} needs --live; a whole log is decided at once. Add --live, or leave --every out.")
    if live:
        if len(models) > 1 or beam > 1 or kind not in ("jsonl", "annotation"):
            raise RamifyError("--live takes one model and --to jsonl or annotation; it excludes --beam.")
        with autocast(models[0].device, precision):
            _follow(models[0], inputs, kind, out, every, ignore_replies)
        return
    links = _Links()
    with bar("disentangling", None) as advance, autocast(models[0].device, precision):
        trees = inputs.records()
        trees = _check_page_size(trees) if kind == "html" else trees
        results = _counted(
            (disentangle_ensemble(models, tree, ignore_replies=ignore_replies, ensemble=ensemble, beam=beam) for tree in trees),
            advance,
            inputs.counts,
            links,
        )
        _write(results, kind, out, names or "the model that ships with Ramify", inputs.format.numbered)
    _print_counts(inputs.counts)
    print(links, file=sys.stderr)
    print(out, file=sys.stderr)


class _Links:
    """Counts of reply links, for the summary of the output."""

    def __init__(self) -> None:
        self.recorded = self.predicted = self.undecided = 0

    def add(self, recorded: int, predicted: int, undecided: int) -> None:
        """`undecided`: messages whose links are not recorded."""
        self.recorded += recorded
        self.predicted += predicted
        self.undecided += undecided

    def __str__(self) -> str:
        predicted = f"{counted(self.predicted, 'link')} found by the model"
        if not self.recorded:
            return f"replies: {predicted}"
        kept = f"replies: {counted(self.recorded, 'link')} recorded in the log and kept"
        if not self.undecided:
            return f"{kept}; the model had nothing to find. --ignore-replies predicts all links"
        return f"{kept}, {predicted}. --ignore-replies predicts all links"


def _find_output(to: Output | None, out: Path | None, logs: list[Path], live: bool) -> tuple[Output, Path]:
    """The kind of output, and the file to write."""
    if out is None:
        from_stream = any(map(is_stream, logs))
        to = to or ("jsonl" if live else "text" if from_stream else "html")
        if live or (from_stream and to != "html"):
            return to, STANDARD
        return to, beside(None, ".disentangle.html") if from_stream else beside(logs[0], BESIDE[to])
    # A live channel has an output of its own, unless the file says otherwise.
    if live and not any(out.name.endswith(ending) for ending in ENDINGS if ending != str(STANDARD)):
        return to or "jsonl", out
    return to or file_kind(out, ENDINGS, "--to"), out


def _check_chat(known: "Format") -> None:
    """Raise for a format that holds no chats."""
    if known.yields != "posts" and known.name not in NO_CHATS:
        return
    held = NO_CHATS.get(known.name, "posts with known parents")
    hints = {"table": "a table of messages in the order of the channel, name it with --format chat-table"}
    hint = hints.get(known.name, "a chat log, name its format with --format, or give its --pattern")
    raise RamifyError(f"--format {known.name} holds {held}, so there is nothing to disentangle. If the input is {hint}.")


def _inputs_read(inputs: "Inputs") -> list[Path]:
    """The files that are read, annotations included."""
    from ramify import readers

    sources = [*readers.list_files(inputs.paths), *readers.list_files(inputs.given)]
    if "annotations" in inputs.format.options and inputs.format.yields == "logs":
        sources = [*sources, *inputs.format.load().beside(sources, inputs.options)]
    return sources


def _loaded(source: str, settings: list[str] | None, device: str) -> "Disentangler":
    import ramify

    pipeline: Any = ramify.load(source, device=device)
    check_can(pipeline, "disentangle", f"--model {source}", {})
    return redecide(pipeline, settings)


def _follow(
    model: "Disentangler",
    inputs: "Inputs",
    to: str,
    out: Path,
    every: int | None,
    ignore_replies: bool,
) -> None:
    """Write one line per message, as each arrives or after every `every` messages."""
    from ramify.disentangle.inference.prefetch import prefetch_batches
    from ramify.files import appending
    from ramify.readers.annotation import readable_name
    from ramify.readers.messages import LogNames

    if inputs.format.yields != "logs":
        raise RamifyError(f"--live cannot read {inputs.format.name!r} files message by message. Leave --live out.")
    names, links = LogNames(), _Links()
    read = decided = 0

    def count(messages: Iterable["Node"]) -> Iterator["Node"]:
        nonlocal read
        for message in messages:
            read += 1
            # In a sequence of messages, `()` records no start.
            yield replace(message, self_link=True) if message.parents == () else message

    def finish(error: type[BaseException] | None, *_: object) -> None:
        _print_counts(inputs.counts, 0 if error is BrokenPipeError else read - decided)
        if links.recorded and error is not BrokenPipeError:
            print(links, file=sys.stderr)

    with ExitStack() as files:
        # Most channels never end. The user stops this process, or the reader of its output closes the pipe.
        files.push(finish)
        file = None
        for log in inputs.logs():
            ignores = ignore_replies or not log.names_parents
            channel, messages = model.live(ignore_replies=ignores), count(log.messages)
            batches = prefetch_batches(messages, LIVE_BATCH) if every is None else _batched(every, messages)
            name = names.give(readable_name(log.name)) if to == "annotation" else log.name
            ids: dict[int, str] = {}
            for batch in batches:
                # Opened with the first message, so that an empty input leaves an existing file as it is.
                file = file or files.enter_context(appending(out))
                for message, prediction in zip(batch, channel.predict_each(batch), strict=True):
                    ids[prediction.number] = message.id if to == "jsonl" or inputs.format.numbered else str(prediction.number)
                    num_links = len({prediction.parent, *prediction.also} - {prediction.number})
                    links.add(*((num_links, 0, 0) if prediction.recorded else (0, num_links, 1)))
                    file.writelines(f"{line}\n" for line in _format_prediction(name, ids, prediction, to))
                    decided += 1
                    file.flush()
                    if ignores:
                        ids.pop(prediction.number - model.input.window - 1, None)
        if file is None:
            raise RamifyError(_no_message(inputs.counts))


def _batched(size: int, messages: Iterable["Node"]) -> Iterator[list["Node"]]:
    rest = iter(messages)
    while batch := list(islice(rest, size)):
        yield batch


def _format_prediction(log: str, ids: dict[int, str], prediction: "LinkPrediction", to: str) -> list[str]:
    from ramify.readers.annotation import link_line

    child = ids[prediction.number]
    if to == "annotation":
        return [link_line(log, int(ids[parent]), int(child)) for parent in (prediction.parent, *prediction.also)]
    record = {"log": log, "id": child, "answers": None if prediction.parent == prediction.number else ids[prediction.parent]}
    record |= {"also": [ids[parent] for parent in prediction.also]} if prediction.also else {}
    record |= {"probability": round(prediction.probability, 4), "conversation": prediction.conversation}
    return [json.dumps(record, ensure_ascii=False)]


def _check_page_size(logs: Iterator["Tree"]) -> Iterator["Tree"]:
    """The logs. Raises before they are disentangled if they hold too many messages for a page."""
    from ramify.report.conversations import check_shown

    messages = 0
    for log in logs:
        messages += len(log)
        check_shown(messages)
        yield log


def _counted(
    logs: Iterator["Disentangled"], advance: Callable[[int], None], counts: "ReadCounts", links: _Links
) -> Iterator["Disentangled"]:
    """Pass logs on and advance the progress bar. Raises if there is no message, rather than write an empty file."""
    messages = 0
    for log in logs:
        yield log
        advance(len(log.tree))
        messages += len(log.tree)
        links.add(*log.count_links(), len(log.tree) - len(log.recorded))
    if not messages:
        raise RamifyError(_no_message(counts))


def _no_message(counts: "ReadCounts") -> str:
    reasons = "; ".join(_reasons(counts, counts.skipped))
    return (
        f"no message was found{reasons and f' ({reasons})'}, so nothing was written. Check --format, and that the files are "
        "complete."
    )


def _write(results: Iterator["Disentangled"], to: str, out: Path, model: str, numbered: bool) -> None:
    """`numbered`: see `Format`."""
    from ramify.dataset.export import parquet_writer, write_csv
    from ramify.disentangle.inference.table import MESSAGES, rows_of
    from ramify.files import replacing
    from ramify.readers.annotation import readable_name, write_links
    from ramify.readers.messages import LogNames
    from ramify.report.conversations import as_text, write_conversations

    if to == "html":
        write_conversations(out, list(results), model)
    elif to == "annotation":
        names = LogNames()
        write_links(out, {names.give(readable_name(result.tree.id)): _numbers(result, numbered) for result in results})
    elif to == "csv":
        with replacing(out) as scratch, open(scratch, "wb") as file:
            write_csv(map(rows_of, results), file)
    elif to == "parquet":
        with replacing(out) as scratch, parquet_writer(scratch, MESSAGES) as writer:
            for result in results:
                writer.write_batch(rows_of(result))
    else:
        with replacing(out) as scratch, open(scratch, "w", encoding="utf-8", newline="\n") as file:
            for result in results:
                lines = as_text(result) if to == "text" else (tree.to_json() for tree in result.conversations())
                file.writelines(f"{line}\n" for line in lines)


def _numbers(result: "Disentangled", numbered: bool) -> list[tuple[int, int]]:
    """Links between messages, which are named by their numeric ids or by their positions in the log."""
    ids = [node.id for node in result.tree.nodes]
    numbers = list(range(len(ids)))
    if numbered and all(name.isdecimal() for name in ids):
        numeric_ids = [int(name) for name in ids]
        numbers = numeric_ids if all(one < two for one, two in pairwise(numeric_ids)) else numbers
    return [(numbers[parent], numbers[child]) for parent, child in result.links().tolist()]


def _print_counts(counts: "ReadCounts", undecided: int = 0) -> None:
    """Print counts of messages that the output lacks or that were repaired."""
    if undecided:
        tell(f"read but not decided: the last {counted(undecided, 'message')}")
    for title, by_reason in (("left out", counts.skipped), ("repaired", counts.kept)):
        for line in _reasons(counts, by_reason):
            tell(f"{title}: {line}")


def _reasons(counts: "ReadCounts", by_reason: Mapping[str, int]) -> Iterator[str]:
    # A live channel may be stopped while its reader thread still counts.
    for reason, count in list(by_reason.items()):
        where = next(iter(counts.examples.get(reason, ())), "")
        yield f"{count:,} {reason.replace('_', ' ')}{where and f' (first: {where})'}"

"""Commands that ask models: options come from the verb's declaration, and answers are printed as JSON or as text."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ramify.cli.documents import Data, File, TreeId, read_document, say_left_out, say_unknown
from ramify.cli.progress import bar
from ramify.cli.shared import (
    Device,
    Json,
    PageOut,
    check_page,
    draw_page,
    once,
    question_and_passage,
    read_sources,
    text_or_node,
)
from ramify.cli.streamed_text import StreamedText
from ramify.errors import RamifyError
from ramify.inference.answers import Answer
from ramify.inference.verbs import VERBS, Option, Streams, Takes

if TYPE_CHECKING:
    from ramify.inference.base import Pipeline

Parameters = Mapping[str, tuple[Any, Any]]
"""The name of each option of a command -> its type for typer, and its default."""


@dataclass(frozen=True)
class Asked:
    """A question as it was put on the command line, and its answer."""

    given: Mapping[str, Any]
    """The value of every option of the command, by name."""
    model: "Pipeline"
    items: tuple[Any, ...]
    """The first arguments of the verb's method."""
    answer: Any


@dataclass(frozen=True)
class Page:
    """The page that a command draws about its answer. It has the option `--out`, without which a name is chosen."""

    draw: Callable[[Asked, Path], None]
    needs: str = ""
    """The ability without which a model's answers have no page; empty if all have one."""


@dataclass(frozen=True)
class Form:
    """The look of a command: its help, further options, and its answers as text."""

    help: str
    lines: Callable[[Asked], Iterable[str]] | None
    """The answer as text; None: its page is the answer."""
    extra: Parameters = field(default_factory=dict)
    """Options that the verb itself does not have."""
    check: Callable[[Mapping[str, Any]], None] = lambda given: None
    """Raises for options that do not fit together, before the model is loaded."""
    further: Callable[[Mapping[str, Any], "Pipeline"], Mapping[str, Any]] = lambda given, model: {}
    """Further arguments of the method, which the model may need. `draws` says whether a page is drawn."""
    notes: Callable[[Asked], None] = lambda asked: None
    """Prints further notes about the answer on stderr."""
    page: Page | None = None
    progress: str = ""
    """The title of the progress bar; empty: the verb."""
    total: Callable[["Pipeline", tuple[Any, ...], Mapping[str, Any]], int | None] = lambda model, items, given: None
    """Where the progress bar ends, if that is known."""


@dataclass(frozen=True)
class Input:
    """Where a command finds the items of a verb."""

    parameters: Parameters
    read: Callable[[Mapping[str, Any], "Callable[[], Pipeline]"], tuple[Any, ...]]
    """The first arguments of the verb's method. Loads the model only if its settings matter."""


INPUTS = {
    Takes.NODE: Input(
        {
            "text": (
                Annotated[
                    list[str] | None,
                    typer.Option("--text", help="A text, in place of --data and --node; - reads it from stdin."),
                ],
                None,
            ),
            "data": (
                Annotated[
                    Path | None,
                    typer.Option("--data", help="A JSON lines file of trees, or a built data set; - reads stdin."),
                ],
                None,
            ),
            "node": (Annotated[str | None, typer.Option("--node", help="Id of the node of --data that is read.")], None),
            "tree": (
                Annotated[str | None, typer.Option("--tree", help="Id of the tree, needed if several trees have such a node.")],
                None,
            ),
        },
        lambda given, load: text_or_node(once(given["text"], "--text"), given["data"], given["node"], given["tree"]),
    ),
    Takes.PROMPT: Input(
        {"prompt": (Annotated[list[str] | None, typer.Option("--prompt", help="The text that is continued.")], None)},
        lambda given, load: (once(given["prompt"], "--prompt") or "",),
    ),
    Takes.SOURCE: Input(
        {
            "file": (
                Annotated[Path | None, typer.Argument(help="A file with one text per line, compressed or not; - reads stdin.")],
                None,
            ),
            "text": (
                Annotated[list[str] | None, typer.Option("--text", help="A text, in place of FILE; - reads it from stdin.")],
                None,
            ),
        },
        lambda given, load: (read_sources(given["file"], once(given["text"], "--text")),),
    ),
    Takes.QUESTION: Input(
        {
            "question": (Annotated[list[str] | None, typer.Option("--question", help="The question.")], None),
            "passage": (
                Annotated[
                    Path | None,
                    typer.Option("--passage", help="A file with the text that holds the answer; - reads stdin."),
                ],
                None,
            ),
        },
        lambda given, load: question_and_passage(once(given["question"], "--question"), given["passage"]),
    ),
    Takes.DOCUMENT: Input(
        {"file": (File, None), "data": (Data, None), "tree": (TreeId, None)},
        lambda given, load: (read_document(load(), given["file"], given["data"], given["tree"]),),
    ),
}
"""Inputs of the verbs whose commands are made by `command`."""


def command(name: str, form: Form | None = None) -> Callable[..., None]:
    """A function for typer that asks one question. Without a form, the answer is printed as JSON."""
    declared = VERBS[name]
    source = INPUTS[declared.takes]
    words = name.replace("_", "-")
    form = form or Form(
        f"{declared.can.capitalize()}.\n\nExample: ramify {words} MODEL --help", lambda asked: [_indented(asked)]
    )
    run = Annotated[str, typer.Argument(help=f"A run, a saved model, a Hugging Face directory or a hub id: {declared.models}.")]
    parameters = {
        "run": (run, inspect.Parameter.empty),
        **source.parameters,
        **{option.name: declare(option) for option in declared.options},
        **form.extra,
        **({} if form.page is None else {"out": (PageOut, None)}),
        "device": (Device, "auto"),
        "as_json": (Json, False),
    }

    def ask(**given: Any) -> None:
        import ramify

        form.check(given)
        options = {option.name: value_of(option, given[option.name]) for option in declared.options}

        @cache
        def load() -> "Pipeline":
            model = ramify.load(given["run"], device=given["device"])
            check_can(model, name, given["run"], options)
            return model

        page = form.page
        if page is not None:
            check_page(given["out"], _source(given), is_alone=form.lines is None and not given["as_json"])
        items = source.read(given, load)
        model = load()
        if page is not None and page.needs and page.needs not in model.abilities:
            if given["out"] is not None:
                raise RamifyError(f"--out {given['out']} needs {page.needs}, and {given['run']} holds none. Leave --out out.")
            page = None
        if given["as_json"] and given.get("out") is None:
            page = None
        options |= form.further(given | {"draws": page is not None}, model)
        method = getattr(model, name)
        shown = StreamedText()
        if "progress" in inspect.signature(method).parameters:
            with bar(form.progress or words, form.total(model, items, options)) as advance:
                answers = method(*items, **options, progress=advance)
        elif declared.streams is Streams.TEXT and not given["as_json"]:
            with shown:
                answers = method(*items, **options, show=shown.add)
        else:
            answers = method(*items, **options)
        for answer in answers if declared.streams is Streams.ANSWERS else [answers]:
            for note in notes_of(answer):
                print(f"note: {note}", file=sys.stderr)
            asked = Asked(given, model, items, answer)
            form.notes(asked)
            if page is not None:
                draw = partial(page.draw, asked)
                draw_page(given["out"], _source(given), words, draw, needed=form.lines is None)
            if shown:
                continue
            for line in [in_json(answer)] if given["as_json"] else form.lines(asked) if form.lines else ():
                print(line, flush=declared.streams is Streams.ANSWERS)

    ask.__doc__ = form.help
    return _signed(ask, parameters)


def _source(given: Mapping[str, Any]) -> Path | None:
    """The file or the data set that a command reads."""
    return given.get("file") or given.get("data")


def offers(*verbs: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Describe those parameters of a command that are options of verbs as the verbs declare them."""
    options = {option.name: option for verb in verbs for option in VERBS[verb].options}

    def describe(function: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(function).parameters
        if unknown := options.keys() - parameters.keys():
            raise TypeError(f"{function.__name__} lacks the option {min(unknown)} of {' and '.join(verbs)}.")
        parameters = {
            name: declare(options[name]) if name in options else (parameter.annotation, parameter.default)
            for name, parameter in parameters.items()
        }
        return _signed(function, parameters)

    return describe


def _signed(function: Callable[..., None], parameters: Parameters) -> Callable[..., None]:
    """The function with the signature that typer reads."""
    signature = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in parameters.items()
        ]
    )
    function.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    function.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    return function


def flag(option: Option) -> str:
    return option.flag or f"--{option.name.replace('_', '-')}"


def declare(option: Option) -> tuple[Any, Any]:
    """(type for typer, default) of an option."""
    described = typer.Option(flag(option), min=option.least, metavar=option.metavar, help=option.help)
    return Annotated[option.kind, described], option.default


def value_of(option: Option, value: Any) -> Any:
    """The value of an option as Python takes it. Raises for a list without any word."""
    if value is None or list[str] not in (option.kind, *get_args(option.kind)):
        return value
    if not value:
        return option.default
    if option.whole:
        return value
    words = [word.strip() for text in value for word in text.split(",") if word.strip()]
    if not words:
        raise RamifyError(f"{flag(option)} {','.join(value)!r} holds no words. Separate words by commas.")
    return words


def check_can(model: "Pipeline", verb: str, source: str, given: Mapping[str, Any]) -> None:
    """Raise if a model lacks a verb, or an option of it that has another value than its default."""
    from ramify.inference.base import lacking

    declared = VERBS[verb]
    if verb not in model.verbs:
        raise RamifyError(f"{source} cannot {declared.can}; it supports {', '.join(model.verbs)}. Choose {declared.models}.")
    for option, value in lacking(model, verb, given):
        raise RamifyError(f"{flag(option)} {value} needs {option.needs}, and {source} holds none. Leave {flag(option)} out.")


def notes_of(answer: Answer | list[Answer]) -> list[str]:
    return [note for one in (answer if isinstance(answer, list) else [answer]) for note in one.notes]


def in_json(answer: Answer | list[Answer]) -> str:
    """The answer as a line of JSON. Answers to a list of items are a list."""
    value = [one.to_json() for one in answer] if isinstance(answer, list) else answer.to_json()
    return json.dumps(value, ensure_ascii=False)


def say_counts(asked: Asked) -> None:
    """Print notes about the tokens and children of a document, as the answer counts them, on stderr."""
    from ramify.tokenizer import UnknownTokens

    answer = asked.answer
    say_unknown(UnknownTokens(answer.unknown_tokens, answer.tokens), str(asked.given["file"] or asked.items[0].id))
    say_left_out(answer.children_left_out)


def _indented(asked: Asked) -> str:
    return json.dumps(asked.answer.to_json(), ensure_ascii=False, indent=2)

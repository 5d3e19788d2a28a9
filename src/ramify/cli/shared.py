"""What several commands share: options, a progress bar, and how a model is asked for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.inference.base import Pipeline
    from ramify.inference.embed import TextPipeline
    from ramify.inference.fill_mask import MaskFiller

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device = Annotated[
    str,
    typer.Option("--device", help="Where to compute: cpu, cuda, cuda:1 …; auto is the accelerator that torch finds, else cpu."),
]
Precision = Annotated[
    Literal["fp32", "bf16"],
    typer.Option(help="bf16 is faster where the processor has it (GPUs, CPUs with AMX or AVX-512 BF16); scores move a little."),
]


Deciding = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Models of who replied to whom: decide otherwise than in training, such as decoding.threshold=0 for one answer a "
        "message, or decoding.answers=others, so that nobody answers himself.",
    ),
]


def redecide(model: "Disentangler", settings: list[str] | None) -> "Disentangler":
    """The model with the decoding settings of `--set`."""
    if not settings:
        return model
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.runs.disentanglement import redecided

    return Disentangler(model.task, redecided(model.decoding, settings_of(settings)))


def mask_filler(model: "Pipeline", source: str) -> "MaskFiller":
    from ramify.errors import RamifyError
    from ramify.inference.fill_mask import MaskFiller

    if not isinstance(model, MaskFiller):
        raise RamifyError(f"{source} holds no masked language model; it can {', '.join(model.verbs)}.")
    return model


def text_pipeline(model: "Pipeline", source: str) -> "TextPipeline":
    from ramify.errors import RamifyError
    from ramify.inference.embed import TextPipeline

    if not isinstance(model, TextPipeline):
        raise RamifyError(f"{source} holds no model of texts; it can {', '.join(model.verbs)}.")
    return model


def parted(texts: list[str] | None, option: str, expected: str = "NAME=VALUE") -> list[tuple[str, str]]:
    """What a repeatable option NAME=VALUE says, in its order."""
    from ramify.errors import RamifyError

    for text in texts or []:
        if "=" not in text:
            raise RamifyError(f"{option} {text}: expected {expected}.")
    return [(name.strip(), value) for name, _, value in (text.partition("=") for text in texts or [])]


def pairs(texts: list[str] | None, option: str, expected: str = "NAME=VALUE") -> dict[str, str]:
    """`parted`, where a name may be said once."""
    from ramify.errors import RamifyError

    found: dict[str, str] = {}
    for name, value in parted(texts, option, expected):
        if name in found:
            raise RamifyError(f"{option} {name} is given twice: as {found[name]!r} and as {value!r}. Leave one out.")
        found[name] = value
    return found


def settings_of(settings: list[str] | None) -> dict[str, str]:
    """What `--set` says."""
    said = pairs(settings, "--set", "KEY=VALUE, such as train.steps=2000")
    return {name: value.strip() for name, value in said.items()}


def guessed(inputs: list[Path]) -> str:
    """The format of what is to be read, which is told to who did not name it."""
    from ramify import readers

    name = readers.guess(inputs)
    print(f"the format looks like {name!r}: {readers.FORMATS[name].summary}", file=sys.stderr)
    return name


def options_of(option: list[str] | None) -> dict[str, Any]:
    """A format's own options."""
    switch = {"true": True, "false": False}
    return {name: switch.get(value, value) for name, value in pairs(option, "--option").items()}


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Any]:
    """A progress bar on stderr, where that is a terminal; yields a function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        row = progress.add_task(what, total=total)
        yield lambda count: progress.advance(row, count)

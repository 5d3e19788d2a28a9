"""`ramify generate`: continue a text with a language model, or generate documents from noise."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.verbs import Asked, Form, Page
from ramify.errors import RamifyError, printable
from ramify.inference.answers import Generated, GeneratedTexts
from ramify.inference.verbs import GENERATES

if TYPE_CHECKING:
    from ramify.inference.base import Pipeline

SHOWN = 200
"""Characters shown of a training text."""

HELP = """Continue a text token by token, from left to right, and print the continuation; or generate documents from noise.

Models with generators (`ramify train agent-gan`) make vectors of a level from noise, copyedit them, and decode them down to
text. Each text is printed with its coherence and the training text whose vector is nearest to its own. A page draws them
before and after copyediting, each node with its coherence and its nearest neighbour.

Example: ramify generate runs/lm --prompt "The moon" --tokens 40 --top-p 0.9 --seed 1

Example: ramify generate runs/agent-gan --level paragraph --count 5 --seed 1 --out paragraphs.html
"""


def further(given: Mapping[str, Any], model: "Pipeline") -> dict[str, Any]:
    """The known vectors of the training data, for a model with generators."""
    from ramify.dataset.store import Store

    data = given["data"]
    if GENERATES not in model.abilities:
        if data is not None:
            raise RamifyError(f"--data {data} needs {GENERATES}, and {given['run']} holds none. Leave --data out.")
        return {}
    knowing: Any = model
    known = knowing.known_vectors(Store.open(data or _training_data(given["run"])))
    return {"known": known, "versions": given["draws"]}


def _training_data(run: str) -> str:
    """The data set that a run was trained on."""
    from ramify.dataset.store import Store
    from ramify.hub import RUN_FILE
    from ramify.runs import read_run

    remedy = "Name the data set that the model was trained on with --data DIR; its nodes are the nearest neighbours."
    if not (Path(run) / RUN_FILE).is_file():
        raise RamifyError(f"{run} has no {RUN_FILE}, which names its training data. {remedy}")
    data = read_run(Path(run))[0].data
    if not Store.is_in(data):
        raise RamifyError(f"{run} was trained on {data}, which is no data set any more. {remedy}")
    return data


def draw(asked: Asked, path: Path) -> None:
    from ramify.report.text_trees import write_generated

    write_generated(path, asked.answer, asked.given["run"])


def lines(asked: Asked) -> Iterator[str]:
    answer: Generated | GeneratedTexts = asked.answer
    if isinstance(answer, GeneratedTexts):
        yield from _texts(answer)
    elif len(answer.hypotheses) < 2:
        yield answer.text
    else:
        for hypothesis in answer.hypotheses:
            yield f"{hypothesis.score:.4f} {hypothesis.text}"


def _texts(answer: GeneratedTexts) -> Iterator[str]:
    from ramify.report.html import shortened

    for number, text in enumerate(answer.texts):
        if number:
            yield ""
        yield from map(printable, text.text.split("\n"))
        coherence = "–" if text.coherence is None else f"{text.coherence:.3f}"
        nearest = f"{printable(text.nearest_training_id)}: {shortened(printable(text.nearest_text), SHOWN)}"
        yield f"  coherence {coherence}, nearest in training: {nearest}"


DATA = Annotated[
    Path | None,
    typer.Option("--data", help="Models with generators: the data set that they were trained on. Default: that of the run."),
]

FORM = Form(HELP, lines, extra={"data": (DATA, None)}, further=further, page=Page(draw, GENERATES))

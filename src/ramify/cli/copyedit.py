"""`ramify copyedit`: a document whose nodes move towards what their siblings let expect."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.shared import tell
from ramify.cli.verbs import Asked, Form, Page, say_counts
from ramify.errors import RamifyError, printable

if TYPE_CHECKING:
    from ramify.inference.base import Pipeline

HELP = """Move every sentence, paragraph and chapter of a document a little towards its prediction from its siblings, and print
the text that results (AGENT, section 4.3).

Scores of both texts are printed on stderr: coherence as `ramify coherence` judges the nodes above sentences, perplexity
under --judge, and the share of tokens that differ. The page draws both texts, with the coherence of each node and the changed
words.

Example: ramify copyedit runs/agent letter.txt --epsilon 0.2 --passes 3 --json

Example: ramify copyedit runs/agent letter.txt --towards siblings_mean --judge runs/gpt --out letter.html
"""


def further(given: Mapping[str, Any], model: "Pipeline") -> dict[str, Any]:
    """The known vectors of a data set, and the model that judges texts."""
    import ramify
    from ramify.dataset.store import Store

    knowing: Any = model
    bank, judge = given["bank"], given["judge"]
    judging = None if judge is None else ramify.load(judge, device=given["device"])
    if judging is not None and "score" not in judging.verbs:
        raise RamifyError(
            f"--judge {judge} holds a model that scores no texts; it can {', '.join(judging.verbs)}. Choose a language model, "
            "such as one that `ramify train gpt` or `ramify train xlnet` makes."
        )
    return {"judge": judging, "known": None if bank is None else knowing.known_vectors(Store.open(bank))}


def draw(asked: Asked, path: Path) -> None:
    from ramify.report.text_trees import write_copyedited

    write_copyedited(path, asked.answer, asked.given["run"])


def lines(asked: Asked) -> Iterator[str]:
    """The text, and behind it the scores on stderr."""
    answer = asked.answer
    yield from map(printable, answer.after.text.split("\n"))
    tell(_change("coherence", answer.before.coherence, answer.after.coherence, ".3f"))
    if asked.given["judge"] is not None:
        tell(_change("perplexity", answer.before.perplexity, answer.after.perplexity, ",.1f"))
    tell(f"{answer.change_rate:.1%} of tokens changed")


def _change(name: str, before: float | None, after: float | None, form: str) -> str:
    return f"{name} {' → '.join('–' if value is None else f'{value:{form}}' for value in (before, after))}"


BANK = Annotated[
    Path | None,
    typer.Option(
        "--bank",
        help="A data set built by `ramify data build`, from whose training documents known vectors are computed; they are kept "
        "beside it.",
    ),
]
JUDGE = Annotated[
    str | None,
    typer.Option(
        "--judge", help="Another model that scores texts, such as a gpt or an xlnet: it measures the perplexity of both texts."
    ),
]

FORM = Form(
    HELP,
    lines,
    extra={"bank": (BANK, None), "judge": (JUDGE, None)},
    further=further,
    notes=say_counts,
    page=Page(draw),
    progress="copyediting",
    total=lambda model, items, given: given["passes"] * (len(model.levels) - 1),
)

"""`ramify copyedit`: a document whose nodes move towards what their siblings let expect."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ramify.cli.documents import Data, File, Run, TreeId, read_document, say_left_out, say_unknown
from ramify.cli.progress import bar
from ramify.cli.shared import Device, Json, check_page
from ramify.cli.verbs import check_can, in_json, offers

Bank = Annotated[
    Path | None,
    typer.Option(
        "--bank",
        help="A data set built by `ramify data build`, from whose training documents known vectors are computed; they are kept "
        "beside it.",
    ),
]


@offers("copyedit")
def copyedit(
    run: Run,
    file: File = None,
    data: Data = None,
    tree: TreeId = None,
    epsilon: float = 0.1,
    passes: int = 1,
    order: Literal["per_level", "traversal"] = "per_level",
    propagate: Literal["regenerate", "delta"] = "delta",
    update: Literal["simultaneous", "sequential"] = "simultaneous",
    towards: Literal["masked", "siblings_mean", "random_vector", "noise"] = "masked",
    prediction: Literal["raw", "rescaled", "bank_mean", "snap"] = "raw",
    passing: Literal["raw", "rescaled", "bank_mean", "snap"] = "raw",
    lowest: Literal["sentence", "token"] = "sentence",
    seed: int = 0,
    bank: Bank = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Another model that scores texts, such as a gpt or an xlnet: it measures the perplexity of both texts."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Also draw both texts as an HTML page: coherence of each node, changed words."),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Move every sentence, paragraph and chapter of a document a little towards its prediction from its siblings, and print the
    text that results (AGENT, section 4.3).

    Scores of both texts are printed on stderr: coherence as `ramify coherence` judges the nodes above sentences, perplexity
    under --judge, and the share of tokens that differ.

    Example: ramify copyedit runs/agent letter.txt --epsilon 0.2 --passes 3 --json

    Example: ramify copyedit runs/agent letter.txt --towards siblings_mean --judge runs/gpt --html letter.html
    """
    import ramify
    from ramify.dataset.store import Store
    from ramify.errors import RamifyError
    from ramify.report.text_trees import write_copyedited
    from ramify.tokenizer import UnknownTokens

    check_page(html, "--html", file)
    model: Any = ramify.load(run, device=device)
    check_can(model, "copyedit", run, {})
    judging = None if judge is None else ramify.load(judge, device=device)
    if judging is not None and "score" not in judging.verbs:
        raise RamifyError(
            f"--judge {judge} holds a model that scores no texts; it can {', '.join(judging.verbs)}. Choose a language model, "
            "such as one that `ramify train gpt` or `ramify train xlnet` makes."
        )
    document = read_document(model, file, data, tree)
    known = None if bank is None else model.known_vectors(Store.open(bank))
    levels = len(model.levels) - 1
    with bar("copyediting", passes * levels) as advance:
        answer = model.copyedit(
            document,
            epsilon=epsilon,
            passes=passes,
            order=order,
            propagate=propagate,
            update=update,
            towards=towards,
            prediction=prediction,
            passing=passing,
            lowest=lowest,
            seed=seed,
            known=known,
            judge=judging,
            progress=advance,
        )
    say_unknown(UnknownTokens(answer.unknown_tokens, answer.tokens), str(file or document.id))
    say_left_out(answer.children_left_out)
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)
    if html is not None:
        write_copyedited(html, answer, run)
        print(html, file=sys.stderr)
    if as_json:
        print(in_json(answer))
        return
    print(printable_lines(answer.after.text))
    pairs = [("coherence", answer.before.coherence, answer.after.coherence, ".3f")]
    pairs += [("perplexity", answer.before.perplexity, answer.after.perplexity, ",.1f")] if judge is not None else []
    for name, before, after, form in pairs:
        shown = " → ".join("–" if value is None else f"{value:{form}}" for value in (before, after))
        print(f"{name} {shown}", file=sys.stderr)
    print(f"{answer.change_rate:.1%} of tokens changed", file=sys.stderr)


def printable_lines(text: str) -> str:
    """A text with its line breaks, without control characters."""
    from ramify.errors import printable

    return "\n".join(printable(line) for line in text.split("\n"))

"""`ramify fill-mask`: fill the masks in a comment."""

from collections.abc import Iterator

from ramify.cli.verbs import Asked, Form
from ramify.errors import counted

HELP = """Fill [MASK] in a comment, given its ancestors, or in a text.

Example: ramify fill-mask runs/reddit --data trees.jsonl --node c42 --context tree --json

Example: ramify fill-mask runs/bert --text "the man went to the [MASK]"
"""


def lines(asked: Asked) -> Iterator[str]:
    answer, text = asked.answer, asked.items[0]
    ancestors = counted(len(answer.ancestors), "ancestor")
    yield text if isinstance(text, str) else f"node {answer.node}, context {answer.context} ({ancestors})"
    for mask in answer.masks:
        guesses = "  ".join(f"{guess.token} {guess.probability:.3f}" for guess in mask.tokens)
        yield f"  [{mask.position}] {guesses}"
    for filled in answer.joint:
        yield f"  {filled.probability:.4f}  {filled.text}"


FORM = Form(HELP, lines)

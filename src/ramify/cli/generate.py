"""`ramify generate`: continue a text with a language model."""

from collections.abc import Iterator

from ramify.cli.verbs import Asked, Form
from ramify.inference.answers import Generated

HELP = """Continue a text token by token, from left to right, and print the continuation.

Example: ramify generate runs/lm --prompt "The moon" --tokens 40 --top-p 0.9 --seed 1
"""


def lines(asked: Asked) -> Iterator[str]:
    answer: Generated = asked.answer
    if len(answer.hypotheses) < 2:
        yield answer.text
        return
    for hypothesis in answer.hypotheses:
        yield f"{hypothesis.score:.4f} {hypothesis.text}"


FORM = Form(HELP, lines)

"""`ramify answer`: answer a question by a span of a passage."""

from collections.abc import Iterator

from ramify.cli.verbs import Asked, Form
from ramify.errors import printable
from ramify.inference.answers import SpanAnswer

HELP = """Answer a question by a span of a passage, which a file holds.

With --json, the answers are a list: [{"text", "start", "end", "score", "no_answer"}], best first. The characters from start to
end of the file are the text. A model that was trained on questions without an answer may find none: then the first entry has an
empty text, start and end are 0, and no_answer is true. Without such questions in training, this is so
only if the model finds no span.

Example: ramify answer runs/squad --question "Where is Rome?" --passage rome.txt --json

Example: ramify answer runs/squad --question "Where is Rome?" --passage rome.txt --n-best 5
"""

AROUND = 60
"""Characters shown on either side of an answer."""


def lines(asked: Asked) -> Iterator[str]:
    answer: SpanAnswer = asked.answer
    passage: str = asked.items[1]
    for span in answer.spans:
        if span.no_answer:
            yield f"{span.score:.3f}  (no answer)"
            continue
        before, after = passage[max(0, span.start - AROUND) : span.start], passage[span.end : span.end + AROUND]
        yield f"{span.score:.3f}  {printable(span.text)}"
        yield f"       … {printable(before)} [{printable(span.text)}] {printable(after)} …"


FORM = Form(HELP, lines)

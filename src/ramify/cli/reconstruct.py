"""`ramify reconstruct`: the text that vectors of documents' nodes are decoded into."""

from collections.abc import Iterator

from ramify.cli.verbs import Asked, Form, say_counts
from ramify.errors import counted, printable

HELP = """Encode each node of a level of a document as one vector, and decode the vector down to text.

Vectors are passed on from level to level as the decoders make them. Ends are predicted. The accuracy of a node counts the
tokens that stand at their place, and divides by the number of true or predicted tokens, whichever is greater.

Example: ramify reconstruct runs/agent letter.txt --level sentence --json

Example: ramify reconstruct runs/agent --data data/books --tree emma --level chapter
"""


def lines(asked: Asked) -> Iterator[str]:
    answer = asked.answer
    for node in answer.nodes:
        accuracy = "" if node.token_accuracy is None else f"  {node.token_accuracy:.1%} of tokens"
        rest = "" if node.complete else ", not all of it decoded"
        yield f"{printable(node.id)}{accuracy}, {counted(node.predicted_length, 'token')} decoded{rest}"
        yield f"  text     {printable(node.text)}"
        yield f"  decoded  {printable(node.reconstruction) or '(nothing)'}"
    known = [node.token_accuracy for node in answer.nodes if node.token_accuracy is not None]
    mean = f", {sum(known) / len(known):.1%} of tokens on average" if known else ""
    yield f"{counted(len(answer.nodes), answer.level)}{mean}"


FORM = Form(
    HELP,
    lines,
    notes=say_counts,
    progress="decoding",
    total=lambda model, items, given: sum(node.kind == (given["level"] or model.levels[0]) for node in items[0].nodes),
)

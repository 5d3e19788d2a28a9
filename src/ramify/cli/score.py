"""`ramify score`: the likelihood of a text."""

from collections.abc import Iterator

from ramify.cli.verbs import Asked, Form
from ramify.errors import RamifyError, counted
from ramify.inference.answers import Likelihood, Score

HELP = """Print the log-likelihood of a text in nats. Masked language models give the pseudo-log-likelihood.

Example: ramify score runs/lm --text "The moon had not risen." --order random:16 --json

Example: ramify score tree-mlm-small --data trees.jsonl --node c42 --context tree
"""


def check(asked: Asked) -> None:
    """Raise for a text without tokens."""
    answer: Score = asked.answer
    if not answer.num_tokens:
        source, node = asked.items
        text = f"text {source[:40]!r}" if isinstance(source, str) else f"text of node {node!r}"
        raise RamifyError(f"the {text} has no tokens, so it has no likelihood. Pass another text.")


def lines(asked: Asked) -> Iterator[str]:
    answer: Score = asked.answer
    if not isinstance(answer, Likelihood):
        yield f"pseudo-log-likelihood {answer.value:.4f} nats, {counted(answer.num_tokens, 'token')}"
        return
    sizes = f"{counted(answer.tokens, 'token')}, {counted(answer.bytes, 'byte')}"
    yield f"log-likelihood {answer.log_likelihood:.4f} nats, {sizes}, order {answer.order}"
    if answer.orders:
        yield f"mean over orders {answer.mean:.4f}, log of the mean likelihood {answer.log_mean_exp:.4f}"


FORM = Form(HELP, lines, notes=check)

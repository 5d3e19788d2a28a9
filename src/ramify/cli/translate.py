"""`ramify translate`: translate texts, or answer them, with a model that reads a source."""

from collections.abc import Iterator

from ramify.cli.verbs import Asked, Form
from ramify.errors import printable
from ramify.inference.answers import Translation

HELP = """Translate a text, or every line of a file, and print one line per text.

With --n-best, each translation is a line behind its score, and a blank line separates the texts.

Example: ramify translate runs/en-de --text "Two dogs are playing." --beam 4

Example: ramify translate runs/en-de test.en.gz --json
"""


def lines(asked: Asked) -> Iterator[str]:
    answers: list[Translation] = asked.answer
    for number, answer in enumerate(answers):
        if asked.given["n_best"] == 1:
            yield printable(answer.translations[0].text) if answer.translations else ""
            continue
        if number:
            yield ""
        for translation in answer.translations:
            yield f"{translation.score:.4f} {printable(translation.text)}"


FORM = Form(HELP, lines, progress="translating", total=lambda model, items, given: len(items[0]))

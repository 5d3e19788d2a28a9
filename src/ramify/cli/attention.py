"""`ramify attention`: the attention heads of a text."""

from pathlib import Path

from ramify.cli.verbs import Asked, Form, Page

HELP = """Draw the attention heads of a text as an HTML page, which needs no network. `--out -` writes it to stdout.

Models of the BERT family and gpt have self-attention; tree-mlm also has attention to ancestors, and XLNet has two streams.
Translators (transformer, t5, and seq2seq with attention) read the text as a source. Their page also shows how their own
translation, or --target, attends to it.

Example: ramify attention tree-mlm-small --text "The tea is too [MASK]." --out heads.html

Example: ramify attention runs/reddit --data trees.jsonl --node c42 --layer 2 --out heads.html

Example: ramify attention runs/lm --text "The moon had not risen." --order random --json

Example: ramify attention runs/en-de --text "A dog runs." --target "Ein Hund rennt." --out heads.html
"""


def draw(asked: Asked, path: Path) -> None:
    from ramify.report.attention import write_attention

    source = asked.items[0]
    texts = {"": source} if isinstance(source, str) else {node.id: node.text for node in source.nodes}
    write_attention(path, asked.answer, asked.given["run"], texts)


FORM = Form(HELP, None, page=Page(draw))

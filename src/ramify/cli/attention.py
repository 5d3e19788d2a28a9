"""`ramify attention`: the attention heads of a text."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ramify.cli.shared import check_beside
from ramify.cli.verbs import Asked, Form
from ramify.errors import RamifyError, counted

HELP = """Draw the attention heads of a text as an HTML page, which needs no network.

Models of the BERT family and gpt have self-attention; tree-mlm also has attention to ancestors, and XLNet has two streams.
Translators (transformer, t5, and seq2seq with attention) read the text as a source. Their page also shows how their own
translation, or --target, attends to it.

Example: ramify attention tree-mlm-small --text "The tea is too [MASK]." --out heads.html

Example: ramify attention runs/reddit --data trees.jsonl --node c42 --layer 2 --out heads.html

Example: ramify attention runs/lm --text "The moon had not risen." --order random --json

Example: ramify attention runs/en-de --text "A dog runs." --target "Ein Hund rennt." --out heads.html
"""


def check(given: Mapping[str, Any]) -> None:
    if given["out"] is None and not given["as_json"]:
        raise RamifyError("there is nowhere to write. Name a page with --out, or add --json.")
    if given["as_json"]:
        check_beside(given["out"], "--out")


def write_page(asked: Asked) -> None:
    from ramify.report.attention import write_attention

    out, source = asked.given["out"], asked.items[0]
    if out is None:
        return
    texts = {"": source} if isinstance(source, str) else {node.id: node.text for node in source.nodes}
    write_attention(out, asked.answer, asked.given["run"], texts)
    heads = sum(len(table.heads) for table in asked.answer.attention)
    print(f"{out}: {counted(heads, 'picture')} of heads", file=sys.stderr)


FORM = Form(
    HELP,
    lambda asked: (),
    extra={"out": (Annotated[Path | None, typer.Option("--out", help="HTML file to write; - writes to stdout.")], None)},
    check=check,
    beside=write_page,
)

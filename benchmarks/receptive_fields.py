"""Compute the receptive fields of trained models, which the pages of the documentation draw.

    python benchmarks/receptive_fields.py MODEL… --describe WORDS [--text TEXT] [--parts forward backward] [--out FILE]

MODEL is a saved model or run, or the name of one that ships with the package. `--parts` names the parts of equal width into
which a model's states are divided, such as the directions of an ELMo. The norms ‖∂h_i/∂x_j‖ of every layer are written to
docs/receptive_fields.json, in place of those that the model had there. Models of one page read the same text.
"""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ramify
from ramify.batching.encoder_input import EncoderInput
from ramify.files import write_text
from ramify.inference.receptive_field import receptive_field

FILE = Path(__file__).parents[1] / "docs" / "receptive_fields.json"
TEXT = "the bread is good but it goes soft again"


def field_of(name: str, text: str, parts: Sequence[str]) -> dict[str, Any]:
    """The tokens of a text and the norms of each layer and part."""
    model: Any = ramify.load(name)
    row = EncoderInput.of_texts(model.tokenizer.encode_batch([text]), model.layout, model.backbone.max_tokens)
    norms = receptive_field(model.backbone, row.to(model.device), parts=max(1, len(parts)))
    titles = [f"{part}, " for part in parts] or [""]
    panels = {
        f"{title}layer {number}": [[float(f"{norm:.3g}") for norm in line] for line in of_part]
        for number, layer in enumerate(norms, 1)
        for title, of_part in zip(titles, layer, strict=True)
    }
    # A piece that starts a word may have a mark in its spelling, which would only be noise.
    spelled = [model.tokenizer.decode([token]).strip() or model.tokenizer.token(token) for token in row.ids.tolist()]
    return {"tokens": spelled, "panels": panels}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--parts", nargs="+", default=[])
    parser.add_argument("--describe", required=True, help="a few words about the models, for the caption")
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    fields = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    for model in options.models:
        name = Path(model).name
        words = ["python", "benchmarks/receptive_fields.py", name, "--describe", options.describe]
        words += ["--parts", *options.parts] if options.parts else []
        command = shlex.join(words if options.text == TEXT else [*words, "--text", options.text])
        fields[name] = {"description": options.describe, "command": command} | field_of(model, options.text, options.parts)
    write_text(options.out, json.dumps(fields, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

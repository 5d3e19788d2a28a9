"""`ramify predict`: labels of texts, pairs, tables and trees, from any model that was trained on labels."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.progress import bar
from ramify.cli.shared import Device, Json, once, read_sources
from ramify.cli.verbs import check_can
from ramify.errors import RamifyError, printable

if TYPE_CHECKING:
    from ramify.inference.label_pipeline import LabelPipeline


def predict(
    run: Annotated[str, typer.Argument(help="A run, a saved model or a hub id: a model that was trained on labels.")],
    file: Annotated[
        Path | None,
        typer.Argument(help="A file with one text per line, compressed or not, or a built data set; - reads stdin."),
    ] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text, in place of FILE.")] = None,
    text_pair: Annotated[
        list[str] | None, typer.Option("--text-pair", help="The second text of a pair, for models that read pairs.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Predict the label of a text, or of every text of a file.

    Example: ramify predict runs/reviews --text "a moving film" --json

    Example: ramify predict runs/nli --text "Two dogs run." --text-pair "Animals move." --json
    """
    import ramify

    one, other = once(text, "--text"), once(text_pair, "--text-pair")
    if (file is None) == (one is None):
        given = "FILE and --text are both given" if file is not None else "neither FILE nor --text is given"
        raise RamifyError(f"{given}. Name a file, or give one text with --text.")
    if other is not None and one is None:
        raise RamifyError("--text-pair is the second text of --text, which is not given. Add --text.")
    model: Any = ramify.load(run, device=device)
    check_can(model, "predict", run, {})
    answers = _answers(model, file, one, other)
    if as_json:
        print(json.dumps([answer.to_json() for answer in answers], ensure_ascii=False))
        return
    for answer in answers:
        print(printable(f"{answer.id}: {answer.line()}"))
    for note in dict.fromkeys(note for answer in answers for note in answer.notes):
        print(f"note: {note}", file=sys.stderr)


def _answers(model: "LabelPipeline", file: Path | None, text: str | None, pair: str | None) -> list[Any]:
    from ramify.dataset.store import Store

    if file is None:
        assert text is not None
        return model.predict_items([text if pair is None else (text, pair)], ["0"])
    if Store.is_in(file):
        store = Store.open(file)
        with bar("predicting", None) as advance:
            return model.predict_store(store, progress=advance)
    texts = read_sources(file, None)
    with bar("predicting", len(texts)) as advance:
        return model.predict_items(texts, [str(place) for place in range(len(texts))], advance)

"""`ramify predict`: labels of texts, pairs, tables and trees, from any model that was trained on labels."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ramify.cli.progress import bar
from ramify.cli.shared import ColumnNames, Device, Json, file_kind, once, pairs
from ramify.cli.verbs import check_can
from ramify.errors import RamifyError, printable

if TYPE_CHECKING:
    from ramify.inference.label_files import LabelPart
    from ramify.inference.label_pipeline import Predicts


def predict(
    run: Annotated[str, typer.Argument(help="A run, a saved model or a hub id: a model that was trained on labels.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A file with one text per line, a table (CSV, TSV, JSON lines, Parquet), a JSON lines file of trees, or a "
            "built data set; compressed or not; - reads lines from stdin. A model that chooses reads a file or folder of "
            "questions in a published layout (COPA, SWAG, RACE), as ramify data build does."
        ),
    ] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text, in place of FILE; - reads it from stdin.")] = None,
    text_pair: Annotated[
        list[str] | None, typer.Option("--text-pair", help="The second text of a pair, for models that read pairs.")
    ] = None,
    column: ColumnNames = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write a table (.csv, .tsv, .jsonl, .parquet) with the columns of FILE, or with ids if FILE is no table, the "
            "predicted labels and their probabilities.",
        ),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Predict the label of a text, or of every text of a file.

    The nodes of trees and data sets are read with the texts above them, as the model was trained. Probabilities are calibrated
    on the dev split of the training data. An empty text is read as special tokens alone.

    Example: ramify predict runs/reviews --text "a moving film" --json

    Example: ramify predict runs/nli --text "Two dogs run." --text-pair "Animals move." --json

    Example: ramify predict runs/reviews new.csv --column text=review --out labelled.csv

    Example: ramify predict runs/copa COPA/test.jsonl --json
    """
    import ramify
    from ramify.inference.label_files import KINDS, QUESTIONS, LabelFile, LabelPart, answer_table, read_label_file

    one, other = once(text, "--text"), once(text_pair, "--text-pair")
    if (file is None) == (one is None):
        given = "FILE and --text are both given" if file is not None else "neither FILE nor --text is given"
        raise RamifyError(f"{given}. Name a file, or give one text with --text.")
    if other is not None and one is None:
        raise RamifyError("--text-pair is the second text of --text, which is not given. Add --text.")
    kind = None if out is None else file_kind(out, KINDS)
    model: Any = ramify.load(run, device=device)
    check_can(model, "predict", run, {})
    if one is not None:
        if model.asked == "questions":
            raise RamifyError(f"--text gives a text without choices, but {run} chooses among several. Name {QUESTIONS}.")
        one = sys.stdin.read().strip() if one == "-" else one
        asked = LabelFile(iter([LabelPart([one if other is None else (one, other)], ["0"])]))
    else:
        assert file is not None
        asked = read_label_file(file, pairs(column, "--column"), pairs=model.reads_pairs, asked=model.asked)
    shown, count = as_json or out is None, 0
    # Nothing is shown or replaced before all answers are there.
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as spool, bar("predicting", None) as advance:
        with nullcontext() if out is None or kind is None else answer_table(out, kind, asked) as table:
            for part in asked.parts:
                answers = _answers(model, part, advance)
                _say_notes(answers, count)
                if table is not None:
                    table.add(part, answers)
                for answer in answers if shown else ():
                    if as_json:
                        spool.write((", " if count else "") + json.dumps(answer.to_json(), ensure_ascii=False))
                    else:
                        spool.write(printable(f"{answer.id}: {answer.line()}") + "\n")
                    count += 1
                count += 0 if shown else len(answers)
        spool.seek(0)
        for note in asked.notes:
            print(f"note: {note}", file=sys.stderr)
        if out is not None:
            print(f"{out}: {count:,} predictions", file=sys.stderr)
        if as_json:
            sys.stdout.write("[")
        if shown:
            shutil.copyfileobj(spool, sys.stdout)
        if as_json:
            sys.stdout.write("]\n")


def _say_notes(answers: Sequence[Any], before: int) -> None:
    """Print notes about answers. Those of a later part of a file say which rows they are about."""
    where = f"rows {before + 1:,} to {before + len(answers):,}: " if before else ""
    for note in dict.fromkeys(note for answer in answers for note in answer.notes):
        print(f"note: {where}{note}", file=sys.stderr)


def _answers(model: "Predicts", part: "LabelPart", advance: Callable[[int], None]) -> Sequence[Any]:
    from ramify.dataset.store import Store

    if isinstance(part.items, Store):
        return model.predict_store(part.items, progress=advance)
    ids = part.ids or [str(place) for place in range(len(part.items))]
    answers = cast("Sequence[Any]", model.predict_items(part.items, ids, advance))
    # The ids of rows are those of the file, also where a row is a tree.
    return answers if part.rows is None else [replace(answer, id=name) for answer, name in zip(answers, ids, strict=True)]

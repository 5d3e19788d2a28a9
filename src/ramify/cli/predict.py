"""`ramify predict`: labels of texts, pairs, tables and trees, from any model that was trained on labels."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from ramify.cli.progress import bar
from ramify.cli.shared import ColumnNames, Device, Json, file_kind, once, pairs, tell
from ramify.cli.verbs import check_can
from ramify.errors import RamifyError, printable

if TYPE_CHECKING:
    from ramify.dataset.store import Split
    from ramify.inference.answers import Prediction
    from ramify.inference.label_files import LabelFile, LabelPart
    from ramify.inference.label_pipeline import Predicts

Run = Annotated[str, typer.Argument(help="A run, a saved model or a hub id: a model that was trained on labels.")]

File = Annotated[
    Path | None,
    typer.Argument(
        help="A file with one text per line, a table (CSV, TSV, JSON lines, Parquet), a JSON lines file of trees, or a "
        "built data set; compressed or not; - reads lines from stdin. A model that chooses reads a file or folder of "
        "questions in a published layout (COPA, SWAG, RACE), as ramify data build does."
    ),
]

Text = Annotated[list[str] | None, typer.Option("--text", help="A text, in place of FILE; - reads it from stdin.")]

TextPair = Annotated[
    list[str] | None, typer.Option("--text-pair", help="The second text of a pair, for models that read pairs.")
]

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write a table (.csv, .tsv, .jsonl, .parquet) with the columns of FILE, or with ids if FILE is no table, the "
        "predicted labels and their probabilities.",
    ),
]


SplitName = Annotated[
    Literal["train", "dev", "test", "all"] | None,
    typer.Option("--split", help="Built data sets: the split whose texts are predicted. Default: all."),
]


def predict(
    run: Run,
    file: File = None,
    text: Text = None,
    text_pair: TextPair = None,
    split: SplitName = None,
    column: ColumnNames = None,
    out: Out = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Predict the label of a text, or of every text of a file.

    The nodes of trees and data sets are read with the texts above them, as the model was trained; if they have labels, these
    stand beside the predictions (gold). Probabilities are calibrated on the dev split of the training data. An empty text is
    read as special tokens alone.

    Example: ramify predict runs/reviews --text "a moving film" --json

    Example: ramify predict runs/nli --text "Two dogs run." --text-pair "Animals move." --json

    Example: ramify predict runs/reviews new.csv --column text=review --out labelled.csv

    Example: ramify predict runs/reviews data/reviews --split test --out predicted.csv

    Example: ramify predict runs/copa COPA/test.jsonl --json
    """
    import ramify
    from ramify.inference.label_files import KINDS, answer_table

    one, other = once(text, "--text"), once(text_pair, "--text-pair")
    _check_input(file, one, other, split)
    kind = None if out is None else file_kind(out, KINDS)
    model: Any = ramify.load(run, device=device)
    check_can(model, "predict", run, {})
    asked = _asked(model, run, file, one, other, pairs(column, "--column"))
    printed, count = _Printed(as_json) if as_json or out is None else None, 0
    # Nothing is shown or replaced before all answers are there.
    with bar("predicting", None) as advance, answer_table(out, kind, asked) if out and kind else nullcontext() as table:
        for part in asked.parts:
            answers = _answers(model, part, split, advance)
            _say_notes(answers, count)
            if table is not None:
                table.add(part, answers)
            if printed is not None:
                printed.add(answers)
            count += len(answers)
    for note in asked.notes:
        tell(f"note: {note}")
    if out is not None:
        tell(f"{out}: {count:,} predictions")
    if printed is not None:
        printed.show()


def _check_input(file: Path | None, text: str | None, text_pair: str | None, split: str | None) -> None:
    """Raise unless there is one input, which has splits if one is named."""
    from ramify.dataset.store import Store

    if (file is None) == (text is None):
        given = "FILE and --text are both given" if file is not None else "neither FILE nor --text is given"
        raise RamifyError(f"{given}. Name a file, or give one text with --text.")
    if text_pair is not None and text is None:
        raise RamifyError("--text-pair is the second text of --text, which is not given. Add --text.")
    if split is not None and (file is None or not Store.is_in(file)):
        raise RamifyError(
            f"--split {split} names a part of a built data set, and {file or '--text'} is none. Leave --split out, or name the "
            "folder that `ramify data build` wrote."
        )


def _asked(
    model: "Predicts", run: str, file: Path | None, text: str | None, text_pair: str | None, columns: "Mapping[str, str]"
) -> "LabelFile":
    """The texts of FILE, or that of `--text`."""
    from ramify.inference.label_files import QUESTIONS, LabelFile, LabelPart, read_label_file

    if text is None:
        assert file is not None
        return read_label_file(file, columns, pairs=model.reads_pairs, asked=model.asked)
    if model.asked == "questions":
        raise RamifyError(f"--text gives a text without choices, but {run} chooses among several. Name {QUESTIONS}.")
    own = sys.stdin.read().strip() if text == "-" else text
    return LabelFile(iter([LabelPart([own if text_pair is None else (own, text_pair)], ["0"])]))


class _Printed:
    """Answers for standard output, on disk until all are there."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.spool = tempfile.TemporaryFile("w+", encoding="utf-8", newline="")  # noqa: SIM115 (`show` closes it)
        self.is_empty = True

    def add(self, answers: "Sequence[Prediction]") -> None:
        for answer in answers:
            if self.as_json:
                self.spool.write(("" if self.is_empty else ", ") + json.dumps(answer.to_json(), ensure_ascii=False))
            else:
                self.spool.write(printable(f"{answer.id}: {answer.line()}{_gold(answer.gold)}") + "\n")
            self.is_empty = False

    def show(self) -> None:
        begin, end = ("[", "]\n") if self.as_json else ("", "")
        with self.spool:
            self.spool.seek(0)
            sys.stdout.write(begin)
            shutil.copyfileobj(self.spool, sys.stdout)
            sys.stdout.write(end)


def _gold(label: Any) -> str:
    if label is None:
        return ""
    return f", gold: {label if isinstance(label, str) else json.dumps(label, ensure_ascii=False)}"


def _say_notes(answers: Sequence[Any], before: int) -> None:
    """Print notes about answers. Those of a later part of a file say which rows they are about."""
    where = f"rows {before + 1:,} to {before + len(answers):,}: " if before else ""
    for note in dict.fromkeys(note for answer in answers for note in answer.notes):
        print(f"note: {where}{note}", file=sys.stderr)


def _answers(model: "Predicts", part: "LabelPart", split: "Split | None", advance: Callable[[int], None]) -> Sequence[Any]:
    from ramify.dataset.store import SPLITS, Store

    if isinstance(part.items, Store):
        sizes = {name: len(part.items.split(name)) for name in SPLITS}
        if split is None and sum(map(bool, sizes.values())) > 1:
            counts = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
            tell(f"note: all splits are predicted (trees: {counts}); --split chooses one")
        return model.predict_store(part.items, progress=advance, split=split or "all")
    ids = part.ids or [str(place) for place in range(len(part.items))]
    answers = cast("Sequence[Any]", model.predict_items(part.items, ids, advance))
    # The ids of rows are those of the file, also where a row is a tree.
    return answers if part.rows is None else [replace(answer, id=name) for answer, name in zip(answers, ids, strict=True)]

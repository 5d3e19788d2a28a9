"""Rows of results: one JSON line per figure. `tables.py` turns them into pages.

A benchmark adds the option `--append` with `add_options` and passes its figures to `append_rows`:

    python benchmarks/chat.py live --logs LOGS --append benchmarks/results/disentanglement_speed.jsonl A

An appended row holds the command, the commit, the machine and the date. Its table, row, column and unit are first guesses: edit
them if the figure belongs in an existing table.
"""

import argparse
import datetime
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec

ROOT = Path(__file__).parents[1]
APPEND = "--append"

Text = Annotated[str, msgspec.Meta(min_length=1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]+(\.[a-z0-9_-]+)+$")]
Pair = tuple[Decimal, Decimal]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A figure and its origin. Numbers keep their digits as written."""

    name: Name
    value: Decimal
    unit: str
    command: Text
    commit: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{7,40})?$")]
    """Commit of the measurement. Empty for a figure published elsewhere, which `source` then names."""
    hardware: Text
    """A key of machines.toml."""
    date: datetime.date
    seeds: tuple[int, ...]
    note: str
    table: Text
    row: Text
    column: Text
    spread: Decimal | None = None
    """Standard deviation over seeds."""
    interval: Pair | None = None
    """95 % bootstrap interval."""
    p: Decimal | None = None
    range: Pair | None = None
    """Minimum and maximum of repeated measurements."""
    runs: tuple[Decimal, ...] = ()
    """All measurements; `value` is their median."""
    target: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.commit and not self.source:
            raise ValueError(
                "commit and source are both empty. Set commit, or set source if the figure was published elsewhere."
            )
        if folder := re.search(r"(?:^|[\s=])(/\w\S*)", self.command):
            raise ValueError(f"command names {folder[1]}, which lies on one machine. Write DATA or OUT for its folder.")


_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder(Row)


def to_line(row: Row) -> str:
    return _encoder.encode(row).decode() + "\n"


def read(file: Path) -> list[Row]:
    """Read rows. Raises `ValueError` with file and line of the first invalid row."""
    rows = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        try:
            rows.append(_decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise ValueError(f"{file.name}, line {number}: {error}") from None
    return rows


# --- what benchmarks call --------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    said = "append the figures to FILE as rows (JSON lines); MACHINE is the key of the hardware in results/machines.toml"
    parser.add_argument(APPEND, nargs=2, metavar=("FILE", "MACHINE"), help=said)


def append_rows(
    arguments: argparse.Namespace,
    table: str,
    row: str,
    figures: Mapping[str, Any],
    seeds: Sequence[int] = (),
    command: str = "",
) -> None:
    """Append all numbers of a nested record to the file that `--append` names, if any. Keys become columns and units.

    `command` is the command that measured them, if it is not this benchmark's own.
    """
    if arguments.append is None:
        return
    file, machine = arguments.append
    commit, changed = current_commit()
    note = "with changes that are not committed" if changed else ""
    new = [
        Row(
            name=".".join(map(slug, (table, row, column))),
            value=Decimal(value) if isinstance(value, int) else Decimal(f"{value:.6g}"),
            unit=column.rpartition(", ")[2],
            command=command or _command(sys.argv),
            commit=commit,
            hardware=machine,
            date=datetime.date.today(),
            seeds=tuple(seeds),
            note=note,
            table=table,
            row=row,
            column=column,
        )
        for column, value in _numbers(figures)
    ]
    with Path(file).open("a", encoding="utf-8") as lines:
        lines.writelines(to_line(each) for each in new)


def replace_rows(file: Path, new: Sequence[Row]) -> None:
    """Write rows to a file, in place of rows of the same names; a new row follows the one before it. Other rows stay, and a
    figure that has not changed keeps its commit and date."""
    before = {row.name: row for row in read(file)} if file.exists() else {}
    after, names, place = dict(before), list(before), len(before)
    for row in new:
        old = before.get(row.name, row)
        same = msgspec.structs.replace(row, commit=old.commit, date=old.date) == old
        after[row.name] = old if same else row
        if row.name not in before:
            names.insert(place, row.name)
        place = names.index(row.name) + 1
    file.write_text("".join(to_line(after[name]) for name in names), encoding="utf-8")


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _numbers(record: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, int | float]]:
    for key, value in record.items():
        words = (*path, str(key).replace("_", " "))
        if isinstance(value, Mapping):
            yield from _numbers(value, words)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield ", ".join(words), value


def _command(words: Sequence[str]) -> str:
    """Return the command line without `--append FILE MACHINE`."""
    kept = list(words[1:])
    if APPEND in kept:
        del kept[kept.index(APPEND) : kept.index(APPEND) + 3]
    return " ".join(["python", f"benchmarks/{Path(words[0]).name}", *kept])


def current_commit() -> tuple[str, bool]:
    """Return the commit of the checkout and whether tracked files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))

"""Raw scores: the figures of an experiment's runs, one table per experiment, from which rows of results are computed.

`scores/EXPERIMENT.parquet` holds what is kept of OUT/RUN/FILE, the working files of the runs. Its rows are lines of JSON files
(column `record`) and arrays of .npz files (their name, dtype and shape, and their values in row-major order). `adding_runs`
adds the files of finished runs to a table; a command marked `reads_runs` takes a table in place of OUT.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ramify.files import replacing, sole_writer

VALUES = {"i": "ints", "f": "floats", "U": "texts"}
"""The column of an array's values, by the kind of its dtype."""
SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "file": pa.string(),
        "record": pa.string(),
        "array": pa.string(),
        "dtype": pa.string(),
        "shape": pa.list_(pa.int64()),
        "ints": pa.list_(pa.int64()),
        "floats": pa.list_(pa.float64()),
        "texts": pa.list_(pa.string()),
    }
)
ARRAYS = ".npz"
_place = itemgetter("run", "file")


@contextmanager
def runs_in(out: Path) -> Iterator[Path]:
    """The folder of runs `out`, or a temporary folder with the files of the table `out`."""
    if out.is_dir():
        yield out
        return
    with tempfile.TemporaryDirectory() as folder:
        for (run, name), rows in groupby(pq.read_table(out).to_pylist(), key=_place):
            file = Path(folder, run, name)
            file.parent.mkdir(exist_ok=True)
            if file.suffix == ARRAYS:
                np.savez(file, **{row["array"]: _array(row) for row in rows})
            else:
                file.write_text("".join(row["record"] for row in rows), encoding="utf-8", newline="\n")
        yield Path(folder)


def reads_runs(command: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """Let a command that reads the folder of runs `--out` read a table, too."""

    @wraps(command)
    def with_folder(arguments: argparse.Namespace) -> None:
        with runs_in(arguments.out) as out:
            command(argparse.Namespace(**vars(arguments) | {"out": out}))

    return with_folder


@contextmanager
def adding_runs(table: Path) -> Iterator[Path]:
    """A temporary folder for RUN/FILE. At the end, its runs join the table, in place of the rows of runs of the same names.

    The same runs give the same bytes, in whatever order they are added.
    """
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
        new = [row for file in sorted(Path(folder).glob("*/*")) for row in _rows(file)]
    runs = {row["run"] for row in new}
    with sole_writer(table), replacing(table) as scratch:
        old = pq.read_table(table).to_pylist() if table.exists() else []
        # The sort is stable: records and arrays stay in the order of their file.
        rows = sorted([*(row for row in old if row["run"] not in runs), *new], key=_place)
        whole = pa.Table.from_pylist(rows, SCHEMA)
        pq.write_table(whole, scratch, compression="zstd", compression_level=19, use_dictionary=False)


def add_runs(out: Path, table: Path, scores: Sequence[str], more: Sequence[str] = ()) -> None:
    """Add the runs that have scores to a table: these files and `more`, as patterns of their names."""
    with adding_runs(table) as folder:
        for run in {file.parent for name in scores for file in out.glob(f"*/{name}")}:
            (folder / run.name).mkdir()
            for file in (file for name in (*scores, *more) for file in run.glob(name)):
                shutil.copyfile(file, folder / run.name / file.name)


def add_keep(commands: Any, call: Callable[[argparse.Namespace], None]) -> None:
    """Add the command `keep` to those of a benchmark."""
    command = commands.add_parser("keep", help=(call.__doc__ or "").partition("\n")[0])
    command.set_defaults(call=call)
    command.add_argument("--out", type=Path, required=True, help="folder of the runs")
    command.add_argument("--to", type=Path, required=True, help="table of their scores, benchmarks/scores/EXPERIMENT.parquet")


def add_figures(
    commands: Any,
    table: Callable[[argparse.Namespace], None],
    picture: Callable[[argparse.Namespace], None],
    *,
    rows: str,
    machine: str,
) -> argparse.ArgumentParser:
    """Add the commands `table` and `picture` to those of a benchmark, whose rows lie in results/`rows`. Returns the first."""
    tables = commands.add_parser("table")
    tables.set_defaults(call=table)
    tables.add_argument("--out", type=Path, required=True)
    tables.add_argument("--rows", type=Path, help=f"file of rows to write, benchmarks/results/{rows}")
    tables.add_argument("--commit", help="commit of the measurements (default: that of the checkout)")
    tables.add_argument("--machine", default=machine, help="key of the hardware in results/machines.toml")
    pictures = commands.add_parser("picture")
    pictures.set_defaults(call=picture)
    pictures.add_argument("--out", type=Path, required=True)
    pictures.add_argument("--svg", type=Path, required=True)
    return tables


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    place = {"run": file.parent.name, "file": file.name}
    if file.suffix != ARRAYS:
        with open(file, encoding="utf-8", newline="\n") as lines:
            yield from (place | {"record": line} for line in lines)
        return
    with np.load(file, allow_pickle=False) as arrays:
        for name, array in arrays.items():
            if array.dtype.kind not in VALUES:
                raise ValueError(
                    f"{file}: array {name} has dtype {array.dtype}, and tables hold whole numbers, floating-point numbers and "
                    "text. Convert it before it is saved."
                )
            values = {VALUES[array.dtype.kind]: array.ravel().tolist()}
            yield place | {"array": name, "dtype": array.dtype.str, "shape": list(array.shape)} | values


def _array(row: dict[str, Any]) -> Any:
    dtype = np.dtype(row["dtype"])
    return np.array(row[VALUES[dtype.kind]], dtype).reshape(row["shape"])

"""Runs: the settings that decide a result, and their execution. One file per kind of run, listed in `RUNS`."""

from pathlib import Path
from typing import Any

from ramify.errors import RamifyError
from ramify.inference.base import Pipeline
from ramify.runs.base import RUN_FILE, Run
from ramify.runs.comment_trees import CommentTreeRun
from ramify.runs.disentanglement import DisentanglementRun
from ramify.runs.execute import check_fresh, execute, read_record
from ramify.runs.nested_documents import NestedRun
from ramify.runs.packed_text import PackedTextRun
from ramify.runs.streams import StreamRun

__all__ = ["RUNS", "Run", "check_fresh", "execute", "kind_for", "read_run"]

RUNS: dict[str, type[Run]] = {
    CommentTreeRun.name: CommentTreeRun,
    DisentanglementRun.name: DisentanglementRun,
    NestedRun.name: NestedRun,
    PackedTextRun.name: PackedTextRun,
    StreamRun.name: StreamRun,
}


def read_run(out: Path) -> tuple[Run, dict[str, Any]]:
    """A run and its whole run.json. Raises `RamifyError` if that is missing or damaged."""
    record = read_record(out)
    if record["kind"] not in RUNS:
        raise RamifyError(f"{out} holds a run of kind {record['kind']!r}; this version of Ramify knows {', '.join(RUNS)}.")
    return RUNS[record["kind"]].from_json(record["run"]), record


def kind_for(pipeline: Pipeline, source: str) -> type[Run]:
    """The kind of the run in the folder `source`, or else the first kind that evaluates such a model. Raises `RamifyError` if
    none does."""
    folder = Path(source)
    kinds = [type(read_run(folder)[0])] if (folder / RUN_FILE).exists() else RUNS.values()
    for kind in kinds:
        if kind.evaluates(pipeline):
            return kind
    raise RamifyError(f"{source} cannot be evaluated; it supports {', '.join(pipeline.verbs)}.")

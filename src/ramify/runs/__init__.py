"""Runs: the settings that decide a result, and their execution. One package per kind of run, listed in `RUNS`."""

from pathlib import Path
from typing import Any

from ramify.errors import RamifyError
from ramify.inference.base import Pipeline
from ramify.runs.base import Run
from ramify.runs.comment_trees.run import CommentTreeRun
from ramify.runs.disentanglement.run import DisentanglementRun
from ramify.runs.execute import check_fresh, execute, read_record
from ramify.runs.generative.run import GenerativeRun
from ramify.runs.labelled.answers import AnswerRun
from ramify.runs.labelled.choices import ChoiceRun
from ramify.runs.labelled.classification import ClassificationRun
from ramify.runs.labelled.floors import FloorRun
from ramify.runs.labelled.tagging import TaggingRun
from ramify.runs.nested_documents.adversary import NestedAdversaryRun
from ramify.runs.nested_documents.run import NestedRun
from ramify.runs.packed_text.run import PackedTextRun
from ramify.runs.streams.run import StreamRun

__all__ = ["RUNS", "Run", "check_fresh", "execute", "kind_for", "read_run"]

RUNS: dict[str, type[Run]] = {
    AnswerRun.name: AnswerRun,
    ClassificationRun.name: ClassificationRun,
    CommentTreeRun.name: CommentTreeRun,
    DisentanglementRun.name: DisentanglementRun,
    FloorRun.name: FloorRun,
    GenerativeRun.name: GenerativeRun,
    ChoiceRun.name: ChoiceRun,
    NestedAdversaryRun.name: NestedAdversaryRun,
    NestedRun.name: NestedRun,
    PackedTextRun.name: PackedTextRun,
    StreamRun.name: StreamRun,
    TaggingRun.name: TaggingRun,
}


def read_run(out: Path) -> tuple[Run, dict[str, Any]]:
    """A run and its whole run.json. Raises `RamifyError` if that is missing or damaged."""
    record = read_record(out)
    if record["kind"] not in RUNS:
        raise RamifyError(f"{out} holds a run of kind {record['kind']!r}; this version of Ramify knows {', '.join(RUNS)}.")
    return RUNS[record["kind"]].from_json(record["run"]), record


def kind_for(pipeline: Pipeline, source: str, name: str | None = None) -> type[Run]:
    """The kind of run that evaluates a model: that of this name, or else the one that made the model. Raises `RamifyError` if
    there is none."""
    if name is not None:
        if name not in RUNS:
            raise RamifyError(f"--kind {name} is not a kind of run. Choose {', '.join(RUNS)}.")
        return RUNS[name]
    if pipeline.kind is None:
        raise RamifyError(
            f"{source} cannot be evaluated, because no kind of run made it ({', '.join(RUNS)}); it supports "
            f"{', '.join(pipeline.verbs)}. Choose another model."
        )
    if pipeline.kind not in RUNS:
        raise RamifyError(
            f"{source} was made by a run of kind={pipeline.kind!r}; this version of Ramify knows {', '.join(RUNS)}. Load it "
            "with the version that saved it."
        )
    return RUNS[pipeline.kind]

"""Runs on labels of whole texts: classes, several classes, or numbers."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify.batching.labelled_batch import LabelledCollator
from ramify.batching.views.labelled import LabelInput, LabelledView, resolved_input
from ramify.dataset.labels import NodeLabels, check_kind, class_names, has_labels, label_kind, node_labels
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.classify import Classifier, held_out, label_scores, rows_of
from ramify.metrics.classification import Predictions
from ramify.metrics.published import published_metrics
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled import report, scores
from ramify.runs.labelled.base import LabelRun, PreparedLabels, said, shared_folder
from ramify.tasks.classification import Classification, ClassificationConfig
from ramify.training.meters import MeterSums


@dataclass(frozen=True)
class PreparedClassification(PreparedLabels):
    """A classification run with its texts."""

    run: "TextLabelRun"
    task: Classification
    train: LabelledView
    held_out: LabelledView | None
    labels: NodeLabels

    def collator_of(self, view: LabelledView) -> LabelledCollator:
        return LabelledCollator.of(view.rows)

    def facts(self) -> dict[str, Any]:
        counts = self.train.rows.counts(len(self.labels.nodes))
        facts: dict[str, Any] = {"unlabelled": self.labels.unlabelled}
        if self.task.config.labels != "numbers":
            facts["classes"] = dict(zip(self.task.config.classes, self._class_counts().tolist(), strict=True))
        return {"text": asdict(counts) | facts, "vectors": self.kept} | self.fit_facts

    def _class_counts(self) -> Any:
        targets = self.train.targets
        assert targets is not None
        if self.task.config.labels == "classes":
            return np.bincount(targets, minlength=len(self.task.config.classes))
        return targets.sum(0).astype(np.int64)

    def reads(self) -> str:
        facts = self.facts()["text"]
        unit = "pair" if self.task.input.pair == "parent" else "text"
        what = f"{counted(facts['texts'], f'labelled {unit}')} of up to {counted(self.task.input.max_tokens, 'token')}"
        if "classes" in facts:
            shown = [f"{name} {count:,}" for name, count in list(facts["classes"].items())[:6]]
            what += f"; {', '.join(shown)}{' …' if len(facts['classes']) > 6 else ''}"
        kind = self.task.config.labels
        if not isinstance(self.labels.values[0], str | bool | list):
            other = "classes" if kind == "numbers" else "numbers"
            what += f"; the labels are numbers, read as {kind} (--label-kind {other} reads them as {other})"
        what += said(
            facts,
            ("cut", "longer and cut"),
            ("empty", "without a token, read as special tokens alone"),
            ("unlabelled", "without a label and left out"),
            ("left_out", "without the text above that a row needs, and left out"),
            ("alone", "without a text above, read alone"),
        )
        return what + self.kept_note()

    def measured(self, view: LabelledView, sums: MeterSums) -> Predictions:
        found = label_scores(self.task, view, read=sums.add)
        assert view.targets is not None
        # The best weights are saved with the temperature that was fitted to them.
        self.task.fit_temperature(found, view.targets)
        return self.task.predictions(found, view.targets, view.group)


@dataclass(frozen=True, kw_only=True)
class TextLabelRun(LabelRun, ABC):
    """A model that predicts the labels of texts, or of pairs of texts."""

    task: ClassificationConfig = field(default_factory=ClassificationConfig)
    input: LabelInput = field(default_factory=LabelInput)
    pipeline = Classifier
    purpose = "a model that predicts labels of texts"

    label_kind: Literal["auto", "classes", "several", "numbers"] = "auto"
    """The kind of the labels. auto: lists are several classes; numbers are classes if they are whole and few."""

    def adapt_to_data(self) -> Self:
        """A copy with the kind and the names of the training labels, and with pairs or single texts (`input.pair=auto`)."""
        store = self.store_of()
        labels = node_labels(store, "train", self.input.label)
        input = resolved_input(self.input, store, labels.nodes)
        kind = label_kind(labels.values)
        if self.label_kind != "auto":
            check_kind(labels.values, kind := self.label_kind)
        classes = class_names(labels.values, kind)
        if kind != "numbers" and len(classes) < (2 if kind == "classes" else 1):
            only = (
                f"all {counted(len(labels.values), 'label')} of the training split are {classes[0]!r}" if classes else "empty"
            )
            raise RamifyError(
                f"{only}, so there is nothing to learn. Build the data with at least two classes, or name another field "
                "(--label FIELD)."
            )
        published = published_metrics(store, kind, self.input.label)
        task = replace(self.task, labels=kind, classes=classes, groups=published.groups)
        task = replace(task, metrics=task.metrics or published.names, positive=task.positive or published.positive)
        return replace(self, input=input, task=task)

    @classmethod
    def score(cls, model: Classifier, store: Store, split: Split, options: Mapping[str, Any]) -> scores.ScoredTexts:
        return scores.score_texts(model, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        model = request.pipeline
        return report.parts(request, self.dev.reported(model.task) if isinstance(model, Classifier) else None)


@dataclass(frozen=True, kw_only=True)
class ClassificationRun(TextLabelRun):
    """A model that is trained on labels of texts."""

    name: ClassVar[str] = "classification"

    def prepare(self, out: Path) -> PreparedClassification:
        store = self.store_of()
        run = self.adapt_to_data()
        backbone, tokenizer = run.started(store, out)
        task = Classification(backbone, tokenizer, run.input, run.task)
        run.continued(task)
        return with_texts(run, store, task, out)


def with_texts(run: TextLabelRun, store: Store, task: Classification, out: Path) -> PreparedClassification:
    """A run with its training and dev texts. The task adapts its scales to the training labels."""
    labels = node_labels(store, "train", run.input.label)
    places = run.view.chosen(store, labels.nodes, run.seed, "labelled text")
    labels = replace(labels, nodes=labels.nodes[places], values=[labels.values[place] for place in places.tolist()])
    rows = rows_of(task, store, labels.nodes, trees=store.split("train"), seed=run.seed)
    rows.check_above("the labelled texts of the training split")
    targets = task.targets_of([labels.values[place] for place in rows.kept])
    task.fit(targets)
    dev = held_out(task, store, "dev")[0] if has_labels(store, "dev") else None
    return PreparedClassification(run, store, task, shared_folder(out), LabelledView(rows, targets), dev, labels)

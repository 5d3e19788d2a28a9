"""Runs on questions about passages, whose answers are spans: SQuAD 1.1 and 2.0."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ramify.batching.question_windows import QuestionCollator
from ramify.batching.views.questions import QuestionInput, QuestionView
from ramify.dataset.labels import has_labels
from ramify.dataset.questions import read_questions
from ramify.dataset.store import Split, Store
from ramify.errors import counted
from ramify.inference.answer import Answerer
from ramify.metrics.classification import Predictions
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled import answer_report, answer_scores
from ramify.runs.labelled.base import LabelRun, PreparedLabels, shared_folder
from ramify.runs.labelled.word_floors import WindowFit, answer_candidates
from ramify.tasks.span_qa import SpanQA, SpanQAConfig
from ramify.training.meters import MeterSums


@dataclass(frozen=True)
class PreparedAnswers(PreparedLabels):
    """A run on questions with its passages."""

    run: "AnswerRun"
    task: SpanQA
    train: QuestionView
    held_out: QuestionView | None

    def collator_of(self, view: QuestionView) -> QuestionCollator:
        return self.task.collator

    def facts(self) -> dict[str, Any]:
        read = {
            "learned": len(self.train),
            "windows": int(self.train.sizes.sum()),
            "tokens": int(self.train.costs.sum()),
            "cut_questions": len(self.train.long_questions),
            "unspelled": self.train.unspelled,
        }
        text = self.train.questions.counts.to_json() | read
        return {"text": text, "vectors": self.kept} | self.fit_facts

    def reads(self) -> str:
        counts, facts = self.train.questions.counts, self.facts()["text"]
        what = (
            f"{counted(facts['learned'], 'question')} about {counted(counts.passages, 'passage')}, in "
            f"{counted(facts['windows'], 'window')} of up to {counted(self.task.input.max_tokens, 'token')}"
        )
        if counts.impossible:
            what += f"; {counts.impossible:,} without an answer"
        if facts["cut_questions"]:
            what += f"; {counted(facts['cut_questions'], 'question')} longer than {self.task.input.question_tokens} tokens cut"
        if facts["unspelled"]:
            what += f"; {counted(facts['unspelled'], 'answer')} of which the tokenizer keeps no letter left out"
        return "; ".join([what, *counts.notes()]) + self.kept_note()

    def measured(self, view: QuestionView, sums: MeterSums) -> Predictions:
        answers = answer_scores.answers_of(self.task, view, read=sums.add)
        thresholds = answers.thresholds()
        if thresholds is not None:
            # The best weights are saved with the threshold that was chosen for them.
            self.task.threshold.fill_(float(thresholds.values[thresholds.best]))
        return answers.scores(float(self.task.threshold))


@dataclass(frozen=True, kw_only=True)
class AnswerRun(LabelRun):
    """A model that answers questions by spans of their passages."""

    name: ClassVar[str] = "answers"

    task: SpanQAConfig = field(default_factory=SpanQAConfig)
    input: QuestionInput = field(default_factory=QuestionInput)
    fit: WindowFit = field(default_factory=WindowFit)
    """The settings of a floor."""

    pipeline = Answerer
    purpose = "a model that answers questions"

    def notes(self) -> list[str]:
        if has_labels(self.store_of(), "dev"):
            return []
        return [
            f"{self.data} has no dev split, so the last weights are saved"
            + ("." if self.task.null == "none" else ", and a question has no answer if its null score is above 0.")
        ]

    def adapt_to_data(self) -> Self:
        """A copy in which the training questions decide whether passages may hold no answer (`task.null=auto`)."""
        counts = read_questions(self.store_of(), "train").counts
        return replace(self, task=self.task.for_data(impossible=counts.impossible > 0))

    def prepare(self, out: Path) -> PreparedAnswers:
        store = self.store_of()
        run = self.adapt_to_data()
        backbone, tokenizer = run.started(store, out)
        task = SpanQA(backbone, tokenizer, run.input, run.task)
        run.continued(task)
        questions = read_questions(store, "train")
        if run.view.examples is not None:
            questions = questions.select(np.flatnonzero(questions.learnable))
            questions = questions.select(run.view.chosen(store, questions.nodes, run.seed, "question"))
        view = QuestionView(questions, tokenizer, task.collator.layout, run.input, learn=True)
        dev = answer_scores.held_out(task, store, "dev") if has_labels(store, "dev") else None
        prepared = PreparedAnswers(run, store, task, shared_folder(out), view, dev)
        return prepared if self.stages else prepared.best_of(answer_candidates(task, view, run.fit))

    @classmethod
    def score(cls, model: Answerer, store: Store, split: Split, options: Mapping[str, Any]) -> answer_scores.ScoredAnswers:
        return answer_scores.score_questions(model, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        model = request.pipeline
        return answer_report.parts(request, self.dev.reported(model.task) if isinstance(model, Answerer) else None)

"""Runs on questions with choices."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from ramify.batching.choice_batch import ChoiceCollator
from ramify.batching.views.choices import ChoiceInput, ChoiceView
from ramify.dataset.choices import LabelledChoices, labelled_choices
from ramify.dataset.labels import has_labels
from ramify.dataset.store import Split, Store
from ramify.errors import counted
from ramify.inference.choose import Chooser, choice_scores, held_out, view_of
from ramify.metrics.classification import Predictions
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled.base import LabelRun, PreparedLabels, said, shared_folder
from ramify.runs.labelled.choice_report import parts
from ramify.runs.labelled.choice_scores import ScoredChoices, compared, score_questions
from ramify.runs.labelled.floors import FitConfig, choice_candidates
from ramify.tasks.multiple_choice import MultipleChoice, MultipleChoiceConfig
from ramify.training.meters import MeterSums


@dataclass(frozen=True)
class PreparedChoices(PreparedLabels):
    """A run on questions with choices."""

    run: "ChoiceRun"
    task: MultipleChoice
    train: ChoiceView
    held_out: ChoiceView | None
    labelled: LabelledChoices

    def collator_of(self, view: ChoiceView) -> ChoiceCollator:
        return ChoiceCollator.of(view)

    def facts(self) -> dict[str, Any]:
        left_out = {"unlabelled": self.labelled.unlabelled, "unclear": self.labelled.unclear}
        return {"text": asdict(self.train.counts) | left_out, "vectors": self.kept} | self.fit_facts

    def reads(self) -> str:
        facts = self.facts()["text"]
        what = (
            f"{counted(facts['questions'], 'question')} with {counted(facts['choices'], 'choice')}, in rows of up to "
            f"{counted(self.task.input.max_tokens, 'token')}"
        )
        what += said(
            facts,
            ("cut", "rows longer and cut"),
            ("unlabelled", "questions without a label and left out"),
            ("unclear", "questions with several right choices, or none, and left out"),
        )
        return what + self.kept_note()

    def measured(self, view: ChoiceView, sums: MeterSums) -> Predictions:
        return compared(view, choice_scores(self.task, view, read=sums.add))


@dataclass(frozen=True, kw_only=True)
class ChoiceRun(LabelRun):
    """A model that finds the right one of several choices."""

    name: ClassVar[str] = "multiple-choice"

    task: MultipleChoiceConfig = field(default_factory=MultipleChoiceConfig)
    input: ChoiceInput = field(default_factory=ChoiceInput)
    fit: FitConfig = field(default_factory=FitConfig)
    """The settings of a floor."""

    pipeline = Chooser
    purpose = "a model that chooses"

    def adapt_to_data(self) -> Self:
        """A copy with the largest number of choices of a training question."""
        sets = labelled_choices(self.store_of(), "train").sets
        return replace(self, task=replace(self.task, choices=max(map(len, sets.choices))))

    def prepare(self, out: Path) -> PreparedChoices:
        store = self.store_of()
        run = self.adapt_to_data()
        backbone, tokenizer = run.started(store, out)
        task = MultipleChoice(backbone, tokenizer, run.input, run.task)
        run.continued(task)
        labelled = labelled_choices(store, "train")
        labelled = labelled.at(run.view.chosen(store, labelled.sets.questions, run.seed, "question"))
        task.fit(labelled.right)
        dev = held_out(task, store, "dev")[0] if has_labels(store, "dev") else None
        train = view_of(task, store, labelled.sets, labelled.right)
        prepared = PreparedChoices(run, store, task, shared_folder(out), train, dev, labelled)
        return prepared if self.stages else prepared.best_of(choice_candidates(task, train, run.fit))

    @classmethod
    def score(cls, model: Chooser, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredChoices:
        return score_questions(model, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        model = request.pipeline
        return parts(request, self.dev.reported(model.task) if isinstance(model, Chooser) else None)

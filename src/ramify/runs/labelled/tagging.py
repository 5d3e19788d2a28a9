"""Runs on tags of words: spans written as BIO, or tags that stand alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ramify import hub
from ramify.batching.tagged_batch import TagCollator
from ramify.batching.views.tagged import TaggedView
from ramify.dataset.store import Split, Store
from ramify.dataset.token_tags import NodeTags, Scheme, node_tags
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.tag import TaggedBatch, Tagger, held_out, predicted_tags, spellings, view_of
from ramify.metrics.metric import Metric
from ramify.metrics.spans import TagPredictions, score_spans, score_tags
from ramify.models.base import reads_characters
from ramify.nn.precision import autocast
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, check_options, no_progress, of_kind
from ramify.runs.execute import own_run
from ramify.runs.labelled import report
from ramify.runs.labelled.base import LabelDevConfig, LabelRun, PreparedLabels, shared_folder
from ramify.runs.labelled.scores import OPTIONS, LabelEvaluation
from ramify.runs.sections import Section, Spans
from ramify.tasks.tagging import TAG, Tagging, TaggingConfig, tag_names, word_hashes
from ramify.training.meters import MeterSums


@dataclass(frozen=True)
class PreparedTagging(PreparedLabels):
    """A tagging run with its texts."""

    run: "TaggingRun"
    task: Tagging
    train: TaggedView
    tagged: NodeTags

    def begin(self) -> None:
        """Nothing depends on the device."""

    @property
    def view(self) -> TaggedView:
        return self.train

    @property
    def collator(self) -> TagCollator:
        return TagCollator.of(self.train)

    def facts(self) -> dict[str, Any]:
        assert self.train.tags is not None
        counts = np.bincount(np.concatenate(self.train.tags), minlength=len(self.task.config.tags)).tolist()
        facts = asdict(self.train.counts()) | {"unlabelled": self.tagged.unlabelled} | dict(self.tagged.faults)
        return {"text": facts | {"tags": dict(zip(self.task.config.tags, counts, strict=True))}}

    def reads(self) -> str:
        facts = self.facts()["text"]
        what = f"{counted(facts['words'], 'tagged word')} in {counted(facts['texts'], 'text')}"
        shown = [f"{name} {count:,}" for name, count in list(facts["tags"].items())[:7]]
        what += f"; {', '.join(shown)}{' …' if len(facts['tags']) > 7 else ''}"
        for key, said in (
            ("divided", f"longer than {counted(self.task.input.max_tokens, 'token')} and read in several rows"),
            ("unlabelled", "without tags and left out"),
        ):
            if facts[key]:
                what += f"; {facts[key]:,} {said}"
        return what

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return list(self.tagged.notes)

    def dev(self) -> Callable[[], dict[str, float]] | None:
        if not len(self.store.split("dev")):
            return None
        task = self.task
        view, tagged = held_out(task, self.store, "dev")

        def measure() -> dict[str, float]:
            sums = MeterSums(task)

            def add(batch: TaggedBatch) -> None:
                sums.add(batch.batch, task.target_readings(batch.batch, batch.states, batch.scores))

            found = compared(tagged, predicted_tags(task, view, read=add), task.config.scheme)
            return found.scores() | {"dev_loss": sums.losses[TAG] / sums.counts[TAG]} | sums.meters()

        return measure


@dataclass(frozen=True, kw_only=True)
class TaggingRun(LabelRun):
    """A model that predicts the tags of words. The data say which there are, and whether they mark spans."""

    name: ClassVar[str] = "tagging"

    task: TaggingConfig = field(default_factory=TaggingConfig)

    def adapt_to_data(self) -> Self:
        """A copy with the names and the scheme of the training tags."""
        store = self.store_of()
        tagged = node_tags(store, "train", self.input.label)
        names = tag_names(tagged.tags, tagged.scheme)
        if len(names) < 2:
            words = sum(map(len, tagged.tags))
            only = f"all {counted(words, 'tag')} of the training split are {names[0]!r}" if names else "the texts have no words"
            raise RamifyError(
                f"{only}, so there is nothing to learn. Build the data with at least two tags, or name another field (--label "
                "FIELD)."
            )
        words = spellings(store.texts(tagged.nodes), tagged.words)
        return replace(
            self,
            input=replace(self.input, pair="none"),
            task=replace(self.task, scheme=tagged.scheme, tags=names, word_types=len(np.unique(word_hashes(words)))),
        )

    def prepare(self, out: Path) -> PreparedTagging:
        store = self.store_of()
        run = self.adapt_to_data()
        backbone, tokenizer = run.started(store, out)
        task = Tagging(backbone, tokenizer, run.input, run.task)
        run.check_start()
        run.continued(task)
        tagged = node_tags(store, "train", run.input.label)
        texts, targets = store.texts(tagged.nodes), task.targets_of(tagged.tags)
        task.fit(spellings(texts, tagged.words), targets)
        return PreparedTagging(run, store, task, shared_folder(out), view_of(task, texts, tagged.words, targets), tagged)

    def check_start(self) -> None:
        """Raise `RamifyError` if `init` is a tagger whose output layer reads other states."""
        saved = hub.saved_config(self.init) if self.init and self.start == "whole" else None
        if saved is None or not isinstance(saved.parts["task"], TaggingConfig):
            return
        for name in ("between", "hidden") if self.task.between == "bilstm" else ("between",):
            theirs, ours = getattr(saved.parts["task"], name), getattr(self.task, name)
            if theirs != ours:
                raise RamifyError(
                    f"task.{name}={ours} does not fit init={self.init}, which was trained with {name}={theirs}. Set "
                    f"task.{name}={theirs}, or take its backbone alone with --set start=backbone."
                )

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Scores beside those of the most frequent tag of each word. Options: those of `scores`."""
        model = of_kind(pipeline, Tagger, source, "a model that predicts tags of words")
        run = own_run(cls, source)
        dev = LabelDevConfig() if run is None else run.dev
        return evaluate(model, source, store, split, options, dev.chosen(model.task))

    def report_sections(self, request: ReportRequest) -> ReportParts:
        """Learning curves, and held-out scores."""
        metric = None
        model, store = request.pipeline, request.store
        sections: list[Section] = []
        if "seeds" in request.record:
            sections.append(report.seeds(request.record["seeds"]))
        headline: Spans = ()
        missing = ""
        if isinstance(model, Tagger) and store is not None:
            metric = self.dev.chosen(model.task)
            try:
                scored = score_tagged(model, store, request.split, {})
                section, headline = report.held_out_scores(
                    request.split, scored.predictions, scored.majority, metric, "the most frequent tag of each word in training"
                )
                sections.append(section)
            except RamifyError as error:
                missing = str(error)
        return ReportParts(
            purpose="predicts tags of words",
            examples="texts",
            sections=(report.curves(request.metrics, metric, loss=TAG, unit="word"), *sections),
            headline=headline,
            missing=missing,
            data=tuple(report.facts(request.record["text"])),
        )


@dataclass(frozen=True)
class ScoredTags:
    """The tags of a split with a model's predictions."""

    view: TaggedView
    predictions: TagPredictions
    majority: TagPredictions
    """The most frequent tag of each word of the training data."""


def score_tagged(model: Tagger, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredTags:
    """Predict the tags of a split."""
    task = model.task
    view, tagged = held_out(task, store, split)
    bar, precision = options.get("progress", no_progress), options.get("precision", "fp32")
    with bar(len(view)) as advance, autocast(model.device, precision):
        found = predicted_tags(task, view, progress=advance)
    words = spellings(store.texts(tagged.nodes), tagged.words)
    floor = [[task.config.tags[tag] for tag in row.tolist()] for row in task.majority(words)]
    scheme = task.config.scheme
    return ScoredTags(view, compared(tagged, found, scheme), compared(tagged, floor, scheme))


def evaluate(
    model: Tagger, source: str, store: Store, split: Split, options: Mapping[str, Any], metric: Metric
) -> LabelEvaluation:
    """Score a model on a split. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a model that predicts tags")
    task, scored = model.task, score_tagged(model, store, split, options)
    return LabelEvaluation(
        metric,
        scored.predictions.scores(),
        scored.majority.scores()[metric.name] if task.config.word_types else None,
        len(scored.view),
        unknown_pieces=None if reads_characters(task.backbone) else scored.view.pieces.unknown(task.tokenizer),
    )


def compared(tagged: NodeTags, predicted: Sequence[Sequence[str]], scheme: Scheme) -> TagPredictions:
    """Predicted tags beside the annotated ones."""
    return (score_spans if scheme == "spans" else score_tags)(tagged.tags, predicted)

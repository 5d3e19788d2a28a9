"""Runs on tags of words: spans written as BIO, or tags that stand alone."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ramify import hub
from ramify.batching.tagged_batch import TagCollator
from ramify.batching.views.labelled import LabelInput
from ramify.batching.views.tagged import TaggedView
from ramify.dataset.labels import has_labels
from ramify.dataset.store import Split, Store
from ramify.dataset.token_tags import NodeTags, node_tags
from ramify.errors import RamifyError, counted
from ramify.inference.tag import TaggedBatch, Tagger, held_out, predicted_tags, spellings, view_of
from ramify.metrics.classification import Predictions
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled.base import LabelRun, PreparedLabels, said, shared_folder
from ramify.runs.labelled.tag_report import parts
from ramify.runs.labelled.tag_scores import ScoredTags, compared, score_texts
from ramify.runs.labelled.word_floors import WindowFit, tag_candidates
from ramify.tasks.tagging import Tagging, TaggingConfig, tag_names, word_hashes
from ramify.training.meters import MeterSums


@dataclass(frozen=True)
class PreparedTagging(PreparedLabels):
    """A tagging run with its texts."""

    run: "TaggingRun"
    task: Tagging
    train: TaggedView
    held_out: TaggedView | None
    tagged: NodeTags
    """The tags of the training texts."""
    dev_tags: NodeTags | None

    def collator_of(self, view: TaggedView) -> TagCollator:
        return TagCollator.of(view)

    def facts(self) -> dict[str, Any]:
        assert self.train.tags is not None
        counts = np.bincount(np.concatenate(self.train.tags), minlength=len(self.task.config.tags)).tolist()
        facts = asdict(self.train.counts()) | {"unlabelled": self.tagged.unlabelled} | dict(self.tagged.faults)
        facts = facts | {"tags": dict(zip(self.task.config.tags, counts, strict=True))}
        return {"text": facts, "vectors": self.kept} | self.fit_facts

    def reads(self) -> str:
        facts = self.facts()["text"]
        what = f"{counted(facts['words'], 'tagged word')} in {counted(facts['texts'], 'text')}"
        shown = [f"{name} {count:,}" for name, count in list(facts["tags"].items())[:7]]
        what += f"; {', '.join(shown)}{' …' if len(facts['tags']) > 7 else ''}"
        what += said(
            facts,
            ("divided", f"longer than {counted(self.task.input.max_tokens, 'token')} and read in several rows"),
            ("unlabelled", "without tags and left out"),
        )
        return what + self.kept_note()

    def measured(self, view: TaggedView, sums: MeterSums) -> Predictions:
        def add(batch: TaggedBatch) -> None:
            sums.add(batch.batch, self.task.target_readings(batch.batch, batch.states, batch.scores))

        assert self.dev_tags is not None
        return compared(self.task, self.dev_tags, predicted_tags(self.task, view, read=add))


@dataclass(frozen=True, kw_only=True)
class TaggingRun(LabelRun):
    """A model that predicts the tags of words. The data say which there are, and whether they mark spans."""

    name: ClassVar[str] = "tagging"

    task: TaggingConfig = field(default_factory=TaggingConfig)
    input: LabelInput = field(default_factory=LabelInput)
    fit: WindowFit = field(default_factory=WindowFit)
    """The settings of a floor."""

    pipeline = Tagger
    purpose = "a model that predicts tags of words"

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
        read = tagged.with_words()
        read = read.at(self.view.chosen(store, read.nodes, self.seed, "tagged text"))
        words = spellings(store.texts(read.nodes), read.words)
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
        tagged = node_tags(store, "train", run.input.label).with_words()
        tagged = tagged.at(run.view.chosen(store, tagged.nodes, run.seed, "tagged text"))
        texts, targets = store.texts(tagged.nodes), task.targets_of(tagged.tags)
        task.word_table.fit(spellings(texts, tagged.words), targets)
        train = view_of(task, texts, tagged.words, targets)
        dev, dev_tags = held_out(task, store, "dev") if has_labels(store, "dev") else (None, None)
        if dev is not None and not dev.target_tokens.sum():
            dev = None
        prepared = PreparedTagging(
            run, store, task, shared_folder(out), train, dev, tagged, dev_tags, data_warnings=tuple(tagged.notes)
        )
        return prepared if self.stages else prepared.best_of(tag_candidates(task, train, run.fit))

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
    def score(cls, model: Tagger, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredTags:
        return score_texts(model, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        model = request.pipeline
        return parts(request, self.dev.reported(model.task) if isinstance(model, Tagger) else None)

"""Generators of nested documents: runs that start from a trained autoencoder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ramify import hub
from ramify.batching.adversary_batch import AdversaryBatch
from ramify.batching.forest import Ints
from ramify.batching.views.base import View
from ramify.batching.views.documents import DocumentExample, LevelInput, has_documents
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.files import make_folder, write_text
from ramify.inference.base import Pipeline
from ramify.inference.documents.evaluation import first_documents
from ramify.inference.documents.generate import DocumentGenerator
from ramify.inference.documents.generated_measures import watch
from ramify.inference.documents.measures import spread
from ramify.inference.documents.real_vectors import CachedVectors, LiveVectors, RealVectors, sampled_batch
from ramify.metrics.metric import DEV_LOSS
from ramify.models.agent import AgentConfig
from ramify.nn.modes import untouched
from ramify.registry import task_name
from ramify.runs.base import SAMPLES, Evaluation, Prepared, ReportParts, ReportRequest, Run, evaluation_command, of_kind
from ramify.runs.language_models import training_store
from ramify.runs.nested_documents import generated_report, generated_scores
from ramify.runs.nested_documents.run import NestedConfig, NestedDevConfig, NestedRun, PreparedNested
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested_adversary import ENERGY, NestedAdversary, NestedAdversaryConfig
from ramify.tokenizer import Tokenizer
from ramify.training.checkpoints import Progress
from ramify.training.meters import read_meters
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage


@dataclass(frozen=True)
class AdversaryDevConfig:
    """The measures during training on the dev split, with fixed draws."""

    vectors: int = 512
    """Generated vectors of each level, and the most real ones beside them."""
    texts: int = 16
    """The first generated vectors, which are decoded down to text, for its variety and for the file of samples."""
    tokens: int = 65_536
    """With task.when=with: about so many tokens of dev documents are read for the losses, and of dev and training documents for
    real vectors."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")
        for name, least in (("vectors", 2), ("texts", 1), ("tokens", 1)):
            if getattr(self, name) < least:
                raise RamifyError(f"dev.{name} must be at least {least}, but is {getattr(self, name)}.")


class RealNodes(View[float]):
    """Shares of the nodes of each level, from which a batch takes them: as many as the level with the most nodes has."""

    def __init__(self, vectors: CachedVectors) -> None:
        self.number = max(map(len, vectors.pools.values()))

    @property
    def costs(self) -> Ints:
        return np.ones(self.number, dtype=np.int64)

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(self.number)

    @property
    def sizes(self) -> Ints:
        return self.costs

    @property
    def target_tokens(self) -> Ints:
        return self.costs

    def example(self, number: int, epoch: int = 0) -> float:
        # Halves, so that rounding never takes a neighbour.
        return (number + 0.5) / self.number


@dataclass(frozen=True)
class DocumentsCollator:
    """Makes a batch of documents, from which an autoencoder learns, too."""

    collator: Callable[[Sequence[DocumentExample]], Any]
    """Gives a `DocumentBatch`."""

    def __call__(self, examples: Sequence[DocumentExample]) -> AdversaryBatch:
        return AdversaryBatch(self.collator(examples))


@dataclass(frozen=True)
class PreparedAdversary(Prepared):
    """A run with its documents and its generators."""

    run: "NestedAdversaryRun"
    task: NestedAdversary
    out: Path
    nested: PreparedNested | None
    """The documents from which the autoencoder learns, too; None if it is frozen."""

    @cached_property
    def training(self) -> RealVectors:
        return self._vectors(self.store.split("train"))

    @cached_property
    def held_out(self) -> RealVectors | None:
        """The vectors of the dev split; None if it has no documents."""
        trees = self.store.split("dev")
        return self._vectors(trees) if len(trees) else None

    def _vectors(self, trees: Ints) -> RealVectors:
        if self.nested is None:
            return CachedVectors(self.task, self.store, trees)
        few = first_documents(self.store, self.task.autoencoder, trees, self.run.dev.tokens)
        return LiveVectors(self.task, self.store, few)

    def stage(self, number: int) -> Stage[Any]:
        self.training.check(f"the train split of {self.run.data}")
        if self.held_out is not None:
            self.held_out.check(f"the dev split of {self.run.data}")
        initialize = self._start_generators if number == 0 else None
        if self.nested is not None:
            stage = self.nested.stage(number)
            dev = None if stage.dev is None else partial(self._measure_live, stage.dev)
            return replace(stage, collator=DocumentsCollator(stage.collator), dev=dev, initialize=initialize)
        training, held_out = self.training, self.held_out
        assert isinstance(training, CachedVectors)
        assert held_out is None or isinstance(held_out, CachedVectors)

        def begin() -> None:
            training.open()
            if held_out is not None:
                held_out.open()

        return Stage(
            self.run.stages[number],
            RealNodes(training),
            partial(sampled_batch, training),
            None if held_out is None else partial(self._measure, held_out),
            metric=ENERGY,
            begin=begin,
            initialize=initialize,
        )

    def _start_generators(self) -> None:
        """Let generators start where `task.start` says."""
        if self.run.task.start == "random":
            return
        if self.nested is not None:
            self.training.open()
        for level in self.task.learning:
            real = torch.from_numpy(self.training.of_level(level)).to(self.task.device)
            draws = torch.Generator().manual_seed(step_seed(self.run.seed, level))
            self.task.generator(level).start_at_moments(real, draws)

    def _measure(self, held_out: CachedVectors) -> dict[str, float]:
        """The losses on the dev split, and the watch for collapse."""
        size = self.run.task.vectors
        view = RealNodes(held_out)
        shares = [view.example(int(number)) for number in spread(len(view), self.run.dev.vectors)]
        batches = (sampled_batch(held_out, shares[start : start + size]) for start in range(0, len(shares), size))
        with untouched(self.task, self.task.device):
            # Noise and the chosen vectors are the same at each evaluation.
            torch.manual_seed(self.run.seed)
            losses = read_meters(self.task, (batch.to(self.task.device) for batch in batches))
        return losses | self._watch(held_out)

    def _measure_live(self, losses: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The losses of the autoencoder on the dev split, and the watch for collapse, with the vectors of this moment."""
        assert self.held_out is not None
        self.training.open()
        self.held_out.open()
        return losses() | self._watch(self.held_out)

    def _watch(self, held_out: RealVectors) -> dict[str, float]:
        dev = self.run.dev
        measures, samples = watch(self.task, self.training, held_out, vectors=dev.vectors, texts=dev.texts, seed=self.run.seed)
        lines = (
            json.dumps({"level": self.task.names[level], **sample.to_json()}, ensure_ascii=False)
            for level, own in samples.items()
            for sample in own
        )
        make_folder(self.out / SAMPLES)
        # The loop counts an update as done after its evaluation.
        write_text(self.out / SAMPLES / f"step-{self.task.updates + 1:08d}.jsonl", "".join(f"{line}\n" for line in lines))
        return measures

    def facts(self) -> dict[str, Any]:
        rows = self.training.collator.rows.levels
        levels = {level.level.name: {"nodes": len(level.level.node), "rows": len(level)} for level in rows}
        real = {self.task.names[level]: len(pool) for level, pool in self.training.pools.items()}
        return {"levels": levels, "real": real} | ({} if self.nested is None else {"documents": self.nested.facts()})

    def reads(self) -> str:
        counts = ", ".join(
            f"{counted(len(pool), 'vector')} of {self.task.names[self.training.sources[level]]}s for the level "
            f"{self.task.names[level]}"
            for level, pool in self.training.pools.items()
        )
        return counts if self.nested is None else f"{self.nested.reads()}; real: {counts}"

    def notes(self) -> list[str]:
        return super().notes() if self.nested is None else self.nested.notes()

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return []

    def best_score(self, progress: Progress) -> str:
        name = DEV_LOSS.label if self.nested is not None else "energy distance to dev vectors"
        return f"best {name} {progress.best:.4f} at step {progress.best_step}"


@dataclass(frozen=True, kw_only=True)
class NestedAdversaryRun(Run):
    """Generators and discriminators of an autoencoder of nested documents."""

    name: ClassVar[str] = "nested-adversary"

    model: AgentConfig
    task: NestedAdversaryConfig = field(default_factory=NestedAdversaryConfig)
    input: LevelInput = field(default_factory=LevelInput)
    view: NestedConfig = field(default_factory=NestedConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: AdversaryDevConfig = field(default_factory=AdversaryDevConfig)

    def started(self, init: str) -> Self:
        """A copy that starts from a trained autoencoder, and has its settings. Raises `RamifyError` if `init` holds no model
        with the parts that generators need."""
        saved = hub.saved_config(init)
        trained = None if saved is None else saved.parts["task"]
        if saved is None or not isinstance(trained, NestedAutoencoderConfig):
            what = "another library's checkpoint" if saved is None else f"a model of the task {task_name(trained)}"
            raise RamifyError(
                f"--init {init} holds {what}, and generators start from an autoencoder of nested documents. Train one with "
                "`ramify train agent`."
            )
        task = replace(self.task, autoencoder=trained)
        return replace(self, init=init, model=saved.model, input=saved.parts["input"], task=task)

    def check_settings(self, settings: Mapping[str, str]) -> None:
        learns = self.task.when == "with"
        for key, text in settings.items():
            if key == "task.when":
                raise RamifyError(f"--set task.when={text} needs other settings of training, too. Choose it by --when.")
            trained = ("init", "model.", "input.", "tokenizer.") + (() if learns else ("task.autoencoder.", "view."))
            if key.startswith(trained):
                raise RamifyError(f"--set {key}={text} cannot change the trained model of --init {self.init}. Leave it out.")

    def adapt_to_data(self) -> Self:
        return self

    @property
    def weight_sources(self) -> tuple[str, ...]:
        return tuple(filter(None, [self.init]))

    def next_command(self, out: Path, store: Store) -> str:
        return evaluation_command(out, self.data, store)

    def notes(self) -> list[str]:
        notes = []
        if not len(Store.open(self.data).split("dev")):
            notes.append(f"{self.data} has no dev documents, so nothing watches for collapse, and the last weights are kept.")
        if self.task.when == "checker" and self.task.autoencoder.marks == "seed":
            notes.append(
                "With task.marks=seed, checkers learn that a node without marked children holds no replaced one. They find "
                "nearly every vector coherent, and teach generators little. Train the model with task.marks=none."
            )
        return notes

    def prepare(self, out: Path) -> PreparedAdversary:
        if not self.init:
            raise RamifyError(
                "--init is missing: generators start from a trained autoencoder. Name a run of `ramify train agent`."
            )
        store = training_store(self.data)
        if self.task.when == "with":
            nested = self._nested().prepare(out)
            task = self._task(nested.task.tokenizer)
            self._check_documents(task)
            hub.load_own_tensors(task.autoencoder, hub.own_tensors(nested.task), self.init)
            return PreparedAdversary(self, store, task, out, replace(nested, task=task.autoencoder))
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed)
        task = self._task(tokenizer)
        hub.load_own_tensors(task.autoencoder, hub.checkpoint(self.init).tensors, self.init)
        return PreparedAdversary(self, store, task, out, None)

    def _check_documents(self, task: NestedAdversary) -> None:
        """Raise `RamifyError` if the generator of documents learns, and no batch holds a document."""
        highest = task.backbone.depth
        learns = highest in task.learning and not task.is_alone(highest)
        if learns and has_documents(self.model.levels) and not self.view.whole_documents:
            name = task.names[highest]
            raise RamifyError(
                f"view.whole_documents=false reads no {name}, so with task.when=with its generator learns nothing. Set "
                f"view.whole_documents=true, keep {name} in task.alone, or leave it out of task.levels."
            )

    def _task(self, tokenizer: Tokenizer) -> NestedAdversary:
        """The task with fresh weights."""
        torch.manual_seed(step_seed(self.seed, 0))
        return NestedAdversary(self.model.build(), tokenizer, self.input, self.task)

    def _nested(self) -> NestedRun:
        """The run in which the autoencoder alone goes on learning."""
        return NestedRun(
            recipe=self.recipe,
            data=self.data,
            model=self.model,
            task=self.task.autoencoder,
            input=self.input,
            view=self.view,
            tokenizer=self.tokenizer,
            dev=NestedDevConfig(self.dev.tokens),
            stages=self.stages,
            init=self.init,
            seed=self.seed,
        )

    def normalized(self) -> Self:
        return replace(self, data="")

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Generated nodes of every level beside honest floors. Options: those of `generated_scores`."""
        model = of_kind(pipeline, DocumentGenerator, source, "a model with generators of nested documents")
        return generated_scores.evaluate(model, source, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        return generated_report.parts(request)

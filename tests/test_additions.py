"""One file and one line of a table add a model, a generative model, a decoder, a task, a kind of run, a verb, a form of another
library, an optimizer or a reader: dummies prove it."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import ramify
from fixtures import WORDS, bert_task, built, discussions, tokenizer
from fixtures.commands import call
from fixtures.decoders import AveragerConfig, Continuer, GruConfig, NextToken, NextTokenConfig
from fixtures.parallel import pairs as toy_pairs
from fixtures.parallel import parallel_store
from fixtures.running import WHOLE_ROWS
from fixtures.toys import Forger, NextLetter, Texts
from ramify import hub
from ramify.batching.batch import AnyBatch, Batch, Collator
from ramify.batching.characters import vocabulary_spellings
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Forest
from ramify.batching.text_input import TextInput
from ramify.batching.views.base import Example
from ramify.batching.views.comment_trees import Discussions, units
from ramify.batching.views.streams import StreamConfig, StreamInput
from ramify.checkpoints import Progress
from ramify.cli import build
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.inference.answers import Record
from ramify.inference.base import Pipeline, verb
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.verbs import VERBS, Option, Streams, Takes, Verb
from ramify.models import hf
from ramify.models.base import (
    Backbone,
    Checkpoint,
    Encoded,
    Encodes,
    Hidden,
    Read,
    ReadsCharacters,
    State,
    TextModelConfig,
    kept_positions,
)
from ramify.models.bert import BertConfig
from ramify.models.hf_adapter import ForeignFiles, HFAdapter, PortableModel
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, LayerPrefixes
from ramify.nn.pooling import Pool
from ramify.readers import FORMATS, Format, detect_format
from ramify.registry import HF_FORMS, MODELS, TASKS, HFForm, TaskKind
from ramify.report import write_report
from ramify.runs import RUNS, Run, execute, read_run
from ramify.runs.base import Evaluation, Prepared, ReportParts, ReportRequest, check_options
from ramify.runs.comment_trees.run import CommentTreeRun
from ramify.runs.generative.run import GenerativeRun
from ramify.runs.sections import Cell, Section, Table
from ramify.runs.streams.run import StreamRun
from ramify.runs.tokenizers import TokenizerConfig, train_tokenizer
from ramify.tasks.base import Losses, Readings, Task
from ramify.tasks.constants import Frequencies, SquaredError
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import TextLayout, Tokenizer
from ramify.training.config import TrainConfig
from ramify.training.meters import read_meters
from ramify.training.metrics_log import read_metrics
from ramify.training.optimizers import OPTIMIZERS
from ramify.training.schedules import SCHEDULES
from ramify.training.trainer import Stage, Trainer

ARCHITECTURE = Path(__file__).parents[1] / "docs/architecture.md"

# --- an added model: models/averages.py ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class AveragesConfig(TextModelConfig):
    """Each token's state is its embedding beside the mean of its text."""

    vocab_size: int = 0
    dim: int = 16
    max_tokens: int = 128
    activation: Activation = "gelu"
    eps: float = 1e-12

    def build(self) -> "Averages":
        return Averages(self)

    def adapted_to(self, checkpoint: Checkpoint) -> "AveragesConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: Any, checkpoint: Checkpoint, *, decoder: bool = True) -> None:
        checkpoint.fill(backbone, self)


class Averages(Backbone):
    def __init__(self, config: AveragesConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.mix = nn.Linear(2 * config.dim, config.dim)
        self.pool = Pool("mean", config.dim)

    out_dim = property(lambda self: self.config.dim)
    reads_context = property(lambda self: False)
    carries_state = property(lambda self: False)
    tied_embedding = property(lambda self: self.embedding)
    context_projection = None

    max_tokens = property(lambda self: self.config.max_tokens)
    vector_dim = property(lambda self: self.config.dim)
    vector_read = "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim, self.config.dim)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        return (("embedding.",), ("mix.",))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        words = self.embedding(rows.ids)
        number = torch.repeat_interleave(torch.arange(len(rows.rows)), rows.rows.lengths)
        states = self.mix(torch.cat([words, self.pool(words, rows.rows).index_select(0, number)], dim=1))
        if kept is None:
            return Encoded(rows.rows, (words, states) if layers else (states,))
        return Encoded(kept.rows, (states.index_select(0, kept.index),))

    def vector(self, encoded: Encoded) -> torch.Tensor:
        return self.pool(encoded.last, encoded.rows)

    def forward(self, batch: Batch, state: State | None = None, vectors: torch.Tensor | None = None) -> Hidden:
        states = self.encode_rows(batch.rows(context=False)).last
        return Hidden(states if batch.output_positions is None else states.index_select(0, batch.output_positions.index))


# --- an added head: tasks/classifier.py -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledRows(AnyBatch):
    rows: EncoderInput
    labels: torch.Tensor

    device = property(lambda self: self.labels.device)
    num_targets = property(lambda self: len(self.labels))
    num_target_tokens = property(lambda self: self.rows.rows.total)


class Classifier(Task[LabelledRows]):
    """The class of a text, from its vector and from the mean state of its tokens. It knows no model."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.pool = Pool("mean", backbone.layer_dims()[-1])
        self.head = nn.Linear(backbone.vector_dim + backbone.layer_dims()[-1], 2)

    def corrupt(self, batch: LabelledRows, generator: torch.Generator) -> LabelledRows:
        return batch

    def counts(self, batch: LabelledRows, phase: str) -> dict[str, float]:
        return {"class": float(batch.num_targets)}

    def losses(
        self, batch: LabelledRows, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        encoded = self.backbone.encode_rows(batch.rows)
        read = [self.backbone.vector(encoded), self.pool(encoded.last, encoded.rows)]
        loss = nn.functional.cross_entropy(self.head(torch.cat(read, 1)), batch.labels, reduction="sum")
        yield {"class": loss / divisors["class"]}, None

    def readings(self, batch: LabelledRows, phase: str, state: State | None, shared: Any) -> Readings:
        named, _ = next(iter(self.losses(batch, {"class": 1.0}, phase, state, shared)))
        return Readings(named, {"class": Frequencies.of(batch.labels, torch.ones(batch.labels.shape), 2)})


# --- an added task: tasks/lengths.py --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LengthsConfig:
    scale: float = 1.0


class Lengths(Task[Batch]):
    """Predict the logarithm of a text's length from its vector."""

    def __init__(self, backbone: Backbone, tokenizer: Tokenizer, input: TextInput, config: LengthsConfig) -> None:
        super().__init__()
        self.backbone, self.tokenizer, self.input, self.config = backbone, tokenizer, input, config
        self.head = nn.Linear(backbone.out_dim, 1)

    def corrupt(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch

    def counts(self, batch: Batch, phase: str) -> dict[str, float]:
        return {"lengths": float(batch.num_targets)}

    def losses(self, batch: Batch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any) -> Losses:
        error = self.predict(batch) - batch.targets.lengths.float().log()
        yield {"lengths": self.config.scale * error.square().sum() / divisors["lengths"]}, None

    def readings(self, batch: Batch, phase: str, state: State | None, shared: Any) -> Readings:
        named, _ = next(iter(self.losses(batch, {"lengths": 1.0}, phase, state, shared)))
        return Readings(named, {"lengths": SquaredError.of(batch.targets.lengths.float().log(), self.config.scale)})

    def predict(self, batch: Batch) -> torch.Tensor:
        return self.head(self.backbone.vector(self.backbone(batch).encoded(batch))).squeeze(1)


# --- an added verb ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Length(Record):
    text: str
    tokens: float


GUESS_LENGTH = Verb(
    "guess lengths",
    "a model of lengths",
    Takes.PROMPT,
    (
        Option("times", int, 1, "Factor of the length.", least=1),
        Option("within", str | None, None, "Bounds of the guess.", needs="a model with bounds"),
    ),
    Length,
)


class LengthGuesser(Pipeline):
    verbs = ("guess_length",)
    usage = ('model.guess_length("a text").tokens',)

    def __init__(self, task: Lengths) -> None:
        self.task, self.backbone, self.tokenizer, self.input = task, task.backbone, task.tokenizer, task.input

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

    @verb
    def guess_length(self, text: str, *, times: int = 1, within: str | None = None) -> Length:
        forest = self.input.forest([ramify.Tree((ramify.Node(text),))], self.tokenizer)
        view = Discussions(forest, units(forest, [0], predict_post=True), replace(self.input, context="none"))
        batch = Collator(forest, self.tokenizer, view.input)([view.example(0)])
        return Length(text, times * float(self.task.predict(batch).detach().exp()))


# --- an added kind of run: runs/lengths.py -------------------------------------------------------------------------------


@dataclass(frozen=True)
class LengthError(Evaluation):
    """The mean squared error of the logarithm of lengths."""

    error: float

    def to_json(self) -> dict[str, Any]:
        return {"error": self.error}

    def lines(self) -> list[str]:
        return [f"squared error {self.error:.4f}"]


def batch_of(task: Lengths, forest: Forest, trees: Sequence[int]) -> tuple[Discussions, Collator]:
    view = Discussions(forest, units(forest, trees, predict_post=True), replace(task.input, context="none"))
    return view, Collator(forest, task.tokenizer, view.input)


def mean_error(task: Lengths, forest: Forest, trees: Sequence[int]) -> float:
    view, collator = batch_of(task, forest, trees)
    batch = collator([view.example(number) for number in range(len(view))])
    with task.evaluating(), torch.no_grad():
        return float((task.predict(batch) - batch.targets.lengths.float().log()).square().mean())


@dataclass(frozen=True)
class PreparedLengths(Prepared):
    task: Lengths
    forest: Forest

    def stage(self, number: int) -> Stage:
        dev = self.store.split("dev")
        view, collator = batch_of(self.task, self.forest, self.store.split("train"))

        def measure() -> dict[str, float]:
            held_out, collate = batch_of(self.task, self.forest, dev)
            meters = read_meters(self.task, [collate([held_out.example(number) for number in range(len(held_out))])])
            return {"dev_loss": mean_error(self.task, self.forest, dev)} | meters

        return Stage(self.run.stages[number], view, collator, measure)

    def facts(self) -> dict[str, Any]:
        return {"trees": self.store.num_trees}

    def reads(self) -> str:
        return f"{self.store.num_trees} trees"

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return [f"{len(metrics)} records"]

    def best_score(self, progress: Progress) -> str:
        return f"best error {progress.best}"


@dataclass(frozen=True, kw_only=True)
class LengthsRun(Run):
    name: ClassVar[str] = "lengths"

    model: TextModelConfig
    task: LengthsConfig = field(default_factory=LengthsConfig)
    input: TextInput = field(default_factory=lambda: TextInput(context="none"))
    tokenizer: TokenizerConfig = field(default_factory=lambda: TokenizerConfig(vocab_size=300))

    def check_settings(self, settings: Mapping[str, str]) -> None:
        return None

    def adapt_to_data(self) -> Self:
        return self

    def notes(self) -> list[str]:
        return ["a note"]

    def prepare(self, out: Path) -> PreparedLengths:
        store = Store.open(self.data)
        own = out / "tokenizer.json"
        tokenizer = Tokenizer.load(own) if own.exists() else train_tokenizer(store, self.tokenizer)
        torch.manual_seed(self.seed)
        task = Lengths(self.model.for_vocabulary(tokenizer.vocab_size).build(), tokenizer, self.input, self.task)
        return PreparedLengths(self, store, task, Forest.open(store, tokenizer, self.input.max_tokens, self.input.overflow))

    def normalized(self) -> Self:
        return replace(self, data="")

    @property
    def weight_sources(self) -> tuple[str, ...]:
        return ()

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        check_options(options, ("precision", "progress"), source, "a model of lengths")
        forest = Forest.open(store, pipeline.tokenizer, pipeline.input.max_tokens, pipeline.input.overflow)
        return LengthError(mean_error(pipeline.task, forest, store.split(split)))

    def report_sections(self, request: ReportRequest) -> ReportParts:
        table = Table(("what", "value"), ((Cell("records"), Cell(str(len(request.metrics)))),))
        return ReportParts("counts <tokens>", "comments", (Section("Counts", (table,)),))

    def next_command(self, out: Path, store: Store) -> str:
        return f"evaluate {out}"


@dataclass(frozen=True)
class OtherConfig(MaskedLMConfig):
    """A second objective behind the pipeline of the first."""

    extra: int = 1


# --- an added form of another library: models/averages.py -----------------------------------------------------------------

KEYS = {"embedding.weight": "wte", "mix.weight": "mixer.kernel", "mix.bias": "mixer.offset"}


class AveragesAdapter(HFAdapter[AveragesConfig]):
    """The form of another library's "mean-mixer"."""

    @property
    def model(self) -> type[AveragesConfig]:
        return AveragesConfig

    def read_config(self, directory: Path) -> AveragesConfig:
        theirs = hf.read_config(directory)
        return AveragesConfig(vocab_size=theirs["n_words"], dim=theirs["width"])

    def read(self, checkpoint: Checkpoint, config: AveragesConfig) -> PortableModel[AveragesConfig]:
        backbone = {ours: checkpoint.tensors[theirs] for ours, theirs in KEYS.items()}
        heads = {f"head.{name}": checkpoint.tensors[f"out.{name}"] for name in ("weight", "bias")}
        task = {"head": "linear", "tie_weights": False}
        return PortableModel(config, backbone, heads=heads, task=task, input={"max_tokens": 48, "layout": "roberta"})

    def write(self, model: PortableModel[AveragesConfig]) -> ForeignFiles:
        config = {"model_type": "mean-mixer", "n_words": model.config.vocab_size, "width": model.config.dim}
        tensors = {theirs: model.backbone[ours] for ours, theirs in KEYS.items()}
        tensors |= {f"out.{name}": model.heads[f"head.{name}"] for name in ("weight", "bias")}
        return ForeignFiles(config, tensors, model.input["layout"], {"model_max_length": model.input["max_tokens"]})


# --- registration and use ------------------------------------------------------------------------------------------------

STAGE = TrainConfig(steps=3, budget=400, evaluate_every=0, checkpoint_every=2, log_every=1)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in each table."""
    monkeypatch.setitem(MODELS, "averages", AveragesConfig)
    monkeypatch.setitem(MODELS, "gru", GruConfig)
    monkeypatch.setitem(MODELS, "averager", AveragerConfig)
    monkeypatch.setitem(TASKS, "next-letter", TaskKind(NextTokenConfig, NextToken, StreamInput, Continuer))
    monkeypatch.setitem(TASKS, "lengths", TaskKind(LengthsConfig, Lengths, TextInput, LengthGuesser))
    monkeypatch.setitem(RUNS, LengthsRun.name, LengthsRun)
    form = HFForm(AveragesAdapter(), "masked-lm", "comment-trees", TextInput(context="none"))
    monkeypatch.setitem(HF_FORMS, "mean-mixer", form)
    monkeypatch.setitem(VERBS, "guess_length", GUESS_LENGTH)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return built(discussions(24, 9), tmp_path_factory.mktemp("data"), split=(0.5, 0.25, 0.25))


def test_text_model(added, store, tmp_path):
    """One file, a line of MODELS, a recipe: the model is trained, evaluated, saved, loaded, queried, and used as a start."""
    run = CommentTreeRun(
        recipe="averages",
        data=str(store.path),
        model=AveragesConfig(),
        input=TextInput(context="none"),
        tokenizer=TokenizerConfig(vocab_size=300),
        stages=(replace(STAGE, evaluate_every=1),),
    )
    assert type(run).from_json(json.loads(json.dumps(run.to_json()))) == run
    assert run.changed({"model.dim": "8"}).model.dim == 8
    execute(run, tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    assert model.embed(["one", "two words"]).shape == (2, 16)
    tree = ramify.Tree((ramify.Node("a [MASK] b", id="n"),))
    assert model.fill_mask(tree, "n").masks[0].tokens
    again = replace(run, init=str(tmp_path / "run")).sized(str(tmp_path / "run"))
    task = again.prepare(tmp_path / "other").task
    assert torch.equal(task.backbone.mix.weight, model.task.backbone.mix.weight)
    assert "<article>" in write_report(tmp_path / "run").read_text("utf-8")


def test_decoder(added, store, tmp_path):
    """A model, a task that `Decodes` and a line for each: a run of streams trains and evaluates it, and it generates."""
    run = StreamRun(
        recipe="gru",
        data=str(store.path),
        model=GruConfig(),
        task=NextTokenConfig(),
        input=WHOLE_ROWS,
        view=StreamConfig(streams=2, directions="forward"),
        tokenizer=TokenizerConfig(vocab_size=120),
        stages=(replace(STAGE, steps=8, lr=0.02, evaluate_every=4),),
    )
    assert type(run).from_json(json.loads(json.dumps(run.to_json()))) == run
    _, progress = execute(run, tmp_path / "run", cpu=True)
    losses = [record["loss"] for record in read_metrics(tmp_path / "run") if "loss" in record]
    assert losses[-1] < losses[0] - 0.1
    scores = json.loads(call("evaluate", tmp_path / "run", "--data", store.path, "--split", "dev", "--json").stdout)
    assert scores["loss"] == pytest.approx(progress.best)
    # No token is predicted from both sides, as the common footing asks.
    assert "per_byte" not in scores
    assert "its targets at" in write_report(tmp_path / "run").read_text("utf-8")
    model = ramify.load(tmp_path / "run")
    prompts = ["aa be", "", "ha"]
    greedy = model.generate(prompts, tokens=5, temperature=0.0)
    assert [each.hypotheses[0].text for each in model.generate(prompts, tokens=5, beam=1)] == [each.text for each in greedy]
    assert model.generate("ha", tokens=5, temperature=0.0) == greedy[2]
    assert model.generate(prompts, tokens=5, seed=[1, 2, 3])[1] == model.generate("", tokens=5, seed=2)
    best = model.generate("aa be", tokens=5, beam=3, n_best=2).hypotheses
    assert best[0].score >= best[1].score
    # A beam of another width is another batch.
    assert best[0].score >= model.generate("aa be", tokens=5, beam=1).hypotheses[0].score - 1e-5
    shown = json.loads(call("generate", tmp_path / "run", "--prompt", "ha", "--tokens", 5, "--temperature", 0, "--json").stdout)
    assert shown == greedy[2].to_json()
    again = replace(run, init=str(tmp_path / "run")).sized(str(tmp_path / "run")).prepare(tmp_path / "other").task
    assert torch.equal(again.backbone.embedding.weight, model.task.backbone.embedding.weight)
    assert model.embed(["aa be", "", "ha"]).shape == (3, 16)
    with pytest.raises(RamifyError, match="it can generate, embed"):
        model.fill_mask("[MASK]")


def test_generative_model(added, tmp_path):
    """One file and a line of MODELS: a model that reads sources is trained, scored, asked, reported and used as a start."""
    pairs = parallel_store(tmp_path, toy_pairs(60, list), (0.7, 0.15, 0.15))
    run = GenerativeRun(
        recipe="averager",
        data=str(pairs.path),
        model=AveragerConfig(),
        tokenizer=TokenizerConfig(vocab_size=60),
        stages=(replace(STAGE, steps=8, lr=0.02, evaluate_every=4),),
    )
    assert type(run).from_json(json.loads(json.dumps(run.to_json()))) == run
    _, progress = execute(run, tmp_path / "run", cpu=True)
    losses = [record["loss"] for record in read_metrics(tmp_path / "run") if "loss" in record]
    assert losses[-1] < losses[0] - 0.1
    scores = json.loads(call("evaluate", tmp_path / "run", "--data", pairs.path, "--split", "dev", "--json").stdout)
    assert scores["loss"] == pytest.approx(progress.best)
    assert {"bleu", "floor_copy"} <= scores.keys()
    assert "Examples" in write_report(tmp_path / "run").read_text("utf-8")
    model = ramify.load(tmp_path / "run")
    answers = model.translate(["ba be", "", "ce"], beam=3, n_best=2)
    assert [len(answer.translations) for answer in answers] == [2, 0, 2]
    assert json.loads(call("translate", tmp_path / "run", "--text", "ce", "--beam", 3, "--n-best", 2, "--json").stdout) == [
        model.translate("ce", beam=3, n_best=2).to_json()
    ]
    again = replace(run, init=str(tmp_path / "run")).sized(str(tmp_path / "run")).prepare(tmp_path / "other").task
    assert torch.equal(again.backbone.mix.weight, model.task.backbone.mix.weight)
    assert model.embed(["ba be", ""]).shape == (2, 16)


NO_ENCODERS = {
    "bert-pair": "reads pairs of messages, and scores links",
    "decatt": "reads pairs of messages, and scores links",
    "esim": "reads pairs of messages, and scores links",
    "feature-model": "reads features of pairs of messages, and scores links",
    "mht": "reads a window of messages, and scores links",
}
"""The models that turn no rows of texts into states, with the reason."""

LAYOUTS: dict[str, TextLayout] = {"agent": "agent", "xlnet": "xlnet", "gru": "plain", "elmo": "plain"}
"""The layouts of models; those of the others are BERT's."""

SMALL = {
    "dim": 16,
    "dims": (16,) * 5,
    "hidden": 16,
    **dict.fromkeys(("num_heads", "num_layers", "encoder_layers", "decoder_layers"), 2),
    "ffn_dim": 32,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def test_only_listed_models_encode_no_texts():
    with torch.device("meta"):
        lacking = [name for name, config in MODELS.items() if not isinstance(config().for_vocabulary(50).build(), Encodes)]
    assert lacking == [*NO_ENCODERS]


def small(config: Any) -> Any:
    """The settings with those of `SMALL`, and so those of the models inside."""
    own = {setting.name for setting in fields(config)}
    inner = {name: small(getattr(config, name)) for name in config.inner}
    return replace(config, **{setting: value for setting, value in SMALL.items() if setting in own}, **inner)


def classifier_of(name: str) -> tuple[Classifier, Callable[[Sequence[Example]], LabelledRows]]:
    """A classifier on a small model of this name, and the collator of texts of two classes that share no word."""
    torch.manual_seed(0)
    config = small(MODELS[name]()).for_vocabulary(tokenizer().vocab_size)
    backbone = config.build()
    if isinstance(backbone, ReadsCharacters):
        backbone.spell(vocabulary_spellings(tokenizer()))
    layout = tokenizer().layout(LAYOUTS.get(name, "bert"), config.vocab_size)
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS[number % 2 :: 2], size=1 + number % 5)) for number in range(24)]

    def collate(examples: Sequence[Example]) -> LabelledRows:
        numbers = np.concatenate([example.targets for example in examples])
        encoded = tokenizer().encode_batch([texts[number] for number in numbers])
        rows = EncoderInput.of_texts(encoded, layout, backbone.max_tokens)
        return LabelledRows(rows, torch.from_numpy(numbers[rows.source] % 2))

    return Classifier(backbone), collate


@pytest.mark.parametrize("name", [*(name for name in MODELS if name not in NO_ENCODERS), "averages", "gru"])
def test_head_on_every_model(added, tmp_path, name):
    """A class that reads `Encoded` learns on every model, with a learning rate for each layer."""
    task, collate = classifier_of(name)
    layers = task.backbone.layer_prefixes()
    rates = {f"^backbone\\.({'|'.join(map(re.escape, layer))})": 0.5**depth for depth, layer in enumerate(layers[::-1], 1)}
    config = TrainConfig(
        steps=30,
        budget=24,
        budget_unit="targets",
        lr=0.02,
        warmup=0.0,
        schedule="constant",
        weight_decay=0.0,
        eps=1e-12,
        lr_scale=tuple(rates.items()),
        log_every=1,
    )
    before = {name: parameter.detach().clone() for name, parameter in task.named_parameters()}
    trainer = Trainer(task, [Stage(config, Texts(24, 1, 5), collate)], tmp_path, seed=0, cpu=True)
    trainer.run(until=1)
    # The first step of Adam moves every parameter by the learning rate.
    moved = {name: float((parameter.detach() - before[name]).abs().max()) for name, parameter in task.named_parameters()}
    for pattern, factor in {**rates, "^head": 1.0}.items():
        steps = [step for name, step in moved.items() if re.search(pattern, name) and step]
        assert steps
        assert steps == pytest.approx([0.02 * factor] * len(steps), rel=0.01)
    task, collate = classifier_of(name)
    Trainer(task, [Stage(config, Texts(24, 1, 5), collate)], tmp_path, seed=0, cpu=True).run(resume=True)
    losses = [record["loss"] for record in read_metrics(tmp_path)]
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("kill", [1, 4, 7])
def test_two_phases_with_adadelta(tmp_path, kill):
    """The task declares its phases, so that they need no settings. A killed run ends with the bits of an uninterrupted one."""
    config = TrainConfig(
        steps=8, budget=3, budget_unit="targets", optimizer="adadelta", lr=1.0, log_every=1, checkpoint_every=2
    )

    def trainer(out: str) -> Trainer:
        texts = Texts(5, 3, 4)
        return Trainer(Forger(4), [Stage(config, texts, texts.collate)], tmp_path / out, seed=3, cpu=True)

    straight, resumed = trainer("straight"), trainer("killed")
    straight.run()
    trainer("killed").run(until=kill)
    resumed.run(resume=True)
    start = Forger(4).state_dict()
    for name, value in straight.task.state_dict().items():
        assert not torch.equal(start[name], value)
        assert torch.equal(resumed.task.state_dict()[name], value)
    one, other = (
        load_file(tmp_path / out / "checkpoints/step-00000008/optimizer.safetensors") for out in ("straight", "killed")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert {"main/forger.weight/acc_delta", "critic/critic.0.weight/acc_delta"} <= one.keys()
    # The task says that the critic takes part in every second update.
    assert (one["main/forger.weight/step"], one["critic/critic.0.weight/step"]) == (8, 4)


@pytest.mark.parametrize("model", [AveragesConfig(), BertConfig(dim=16, num_heads=2, num_layers=1, ffn_dim=16)])
def test_task_and_kind_of_run(added, store, tmp_path, model):
    """One file and a line each: the task trains every text model, in a run that the usual commands and functions take."""
    run = LengthsRun(recipe="lengths", data=str(store.path), model=model, stages=(replace(STAGE, evaluate_every=1),))
    _, progress = execute(run, tmp_path / "run", cpu=True)
    assert (progress.step, progress.best_step) == (3, 3)
    found, record = read_run(tmp_path / "run")
    assert (found, record["kind"], record["trees"], record["run"]["task"]["name"]) == (run, "lengths", 24, "lengths")
    execute(run, tmp_path / "run", resume=True, cpu=True)
    scores = json.loads(call("evaluate", tmp_path / "run", "--data", store.path, "--split", "dev", "--json").stdout)
    assert scores["error"] == pytest.approx(progress.best)
    page = write_report(tmp_path / "run").read_text("utf-8")
    assert "counts &lt;tokens&gt;" in page
    assert "<h2>Counts</h2>" in page
    pipeline = ramify.load(tmp_path / "run")
    assert pipeline.guess_length("one two").tokens > 0
    assert 'model.guess_length("a text")' in (tmp_path / "run" / "README.md").read_text("utf-8")
    ramify.save(pipeline, tmp_path / "saved")
    assert ramify.load(tmp_path / "saved").guess_length("one two") == pipeline.guess_length("one two")
    with pytest.raises(RamifyError, match="it can guess_length"):
        pipeline.fill_mask("text")


def test_verb(added, tmp_path):
    """A class, a line and a method: the verb is a command, which prints its answers as JSON and refuses what models lack."""
    task = bert_task(dtype=torch.float32)
    model = LengthGuesser(Lengths(task.backbone, task.tokenizer, task.input, LengthsConfig()))
    ramify.save(model, tmp_path)
    once, twice = (model.guess_length("aa ab", times=times) for times in (1, 2))
    assert model.guess_length(["aa ab", "aa ab"]) == [once, once]
    with pytest.raises(RamifyError, match="within='3' needs a model with bounds, but this is a LengthGuesser"):
        model.guess_length("aa ab", within="3")
    program = build()

    def command(*words):
        return CliRunner().invoke(program, ["guess-length", *map(str, words)])

    assert "guess-length" in CliRunner().invoke(program, ["--help"]).stdout
    described = command("--help").stdout
    assert all(each in described for each in ("a model of lengths", "--prompt", "--times", "Factor of the length", "--json"))
    shown = json.loads(command(tmp_path, "--prompt", "aa ab", "--times", 2, "--json").stdout)
    assert shown == {"text": "aa ab", "tokens": pytest.approx(twice.tokens)}
    assert json.loads(command(tmp_path, "--prompt", "aa ab").stdout)["text"] == "aa ab"
    assert "--within 3 needs a model with bounds" in str(command(tmp_path, "--within", 3).exception)
    other = command("links", "--prompt", "aa").exception
    assert str(other) == "links cannot guess lengths; it supports disentangle, follow. Choose a model of lengths."


def test_streaming_verb(added, monkeypatch, tmp_path):
    """Its answers are printed one by one, each on a line."""

    class Counting(LengthGuesser):
        verbs = ("count",)

        def count(self, text: str) -> Iterator[Length]:
            yield from (Length(text[:end], end) for end in range(1, len(text) + 1))

    verb = Verb("count", "a counter", Takes.PROMPT, (), Length, many=False, streams=Streams.ANSWERS)
    monkeypatch.setitem(VERBS, "count", verb)
    task = bert_task(dtype=torch.float32)
    model = Counting(Lengths(task.backbone, task.tokenizer, task.input, LengthsConfig()))
    monkeypatch.setattr(ramify, "load", lambda source, device: model, raising=False)
    shown = CliRunner().invoke(build(), ["count", "model", "--prompt", "abc", "--json"]).stdout
    assert [json.loads(line) for line in shown.splitlines()] == [{"text": "abc"[:end], "tokens": end} for end in (1, 2, 3)]


@pytest.mark.parametrize("name", ["masked-lm", "unknown"])
def test_run_of_another_task_is_refused(added, name):
    record = LengthsRun(recipe="lengths", data="data", model=AveragesConfig()).to_json()
    assert LengthsRun.from_json(record).model == AveragesConfig()
    record["task"]["name"] = name
    with pytest.raises(RamifyError, match=name):
        LengthsRun.from_json(record)


def test_form_of_another_library(added, tmp_path):
    """A class beside the model and a line: its checkpoints are loaded, evaluated as their kind, saved and exported."""
    words = tokenizer()
    backbone = AveragesConfig(vocab_size=words.vocab_size).build()
    task = MaskedLM(
        backbone, words, TextInput(max_tokens=48, context="none", layout="roberta"), MaskedLMConfig(tie_weights=False)
    )
    model = MaskFiller(task.eval())
    text = "aa [MASK] be"
    for number in range(2):
        folder = tmp_path / str(number)
        hub.export_hugging_face(model, folder)
        assert json.loads((folder / "config.json").read_text("utf-8"))["width"] == 16
        assert json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["model_max_length"] == 48
        again = ramify.load(folder)
        assert again.fill_mask(text) == model.fill_mask(text)
        assert (again.input, again.kind) == (task.input, "comment-trees")
        ramify.save(again, tmp_path / "own")
        model = ramify.load(tmp_path / "own")
    (folder / "config.json").write_text('{"model_type": "mean-mixture"}')
    with pytest.raises(RamifyError, match=r"is not one of .*, mean-mixer, whose checkpoints can be loaded"):
        ramify.load(folder)


def test_reader(monkeypatch, tmp_path):
    """A module and a line: the format is built and detected, and its options are those of its function."""
    monkeypatch.setitem(FORMATS, "verses", Format("trees", "fixtures.verses", "a poem per file"))
    poem = tmp_path / "poem.txt"
    poem.write_text("POEM\nno bird\nno word\n", "utf-8")
    call("data", "build", poem, "--format", "verses", "--option", "shouted=true", "--split", "1,0,0", "--out", tmp_path / "d")
    assert Store.open(tmp_path / "d").texts([0, 1]) == ["NO BIRD", "NO WORD"]
    with pytest.raises(RamifyError, match=r"'loud'; its options are shouted"):
        FORMATS["verses"].check({"loud": "yes"})
    others = [name for name in FORMATS if name not in ("verses", "text")]
    monkeypatch.setattr("ramify.readers.FORMATS", {name: FORMATS[name] for name in (*others, "verses")})
    assert detect_format([poem]) == "verses"


def test_schedule_and_optimizer(monkeypatch, tmp_path):
    """A function and a line: a run takes its name, and a killed run ends with the bits of an uninterrupted one."""
    monkeypatch.setitem(SCHEDULES, "halves", lambda config, before, share, epoch: 0.5 ** int(4 * before))
    monkeypatch.setitem(OPTIMIZERS, "rprop", lambda groups, config: torch.optim.Rprop(groups, lr=config.lr))
    config = TrainConfig(steps=8, budget=3, budget_unit="targets", schedule="halves", optimizer="rprop", checkpoint_every=2)

    def trainer(out: str) -> Trainer:
        texts = Texts(5, 3, 4)
        return Trainer(
            NextLetter(), [Stage(replace(config, log_every=1), texts, texts.collate)], tmp_path / out, seed=3, cpu=True
        )

    straight, resumed = trainer("straight"), trainer("killed")
    straight.run()
    trainer("killed").run(until=5)
    resumed.run(resume=True)
    assert all(map(torch.equal, straight.task.parameters(), resumed.task.parameters()))
    rates = [record["lr"] for record in read_metrics(tmp_path / "straight")]
    assert rates == pytest.approx([5e-4 * 0.5 ** (number // 2) for number in range(8)])


def test_tasks_with_one_pipeline_keep_their_names(added, monkeypatch, tmp_path):
    monkeypatch.setitem(TASKS, "other", TaskKind(OtherConfig, MaskedLM, TextInput, MaskFiller))
    task = bert_task()
    ramify.save(MaskFiller(MaskedLM(task.backbone, task.tokenizer, task.input, OtherConfig(extra=2))), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["task"]["name"] == "other"
    assert ramify.load(tmp_path).task.config == OtherConfig(extra=2)


def test_pages_list_the_files_of_an_addition():
    """The files in the section "Add a model, a task, a kind of run, a verb" are those of the dummies above."""
    text = ARCHITECTURE.read_text("utf-8")
    (table,) = re.findall(r"<!-- additions -->\n(.*?)<!-- /additions -->", text, re.S)
    touched = {
        row[0]: re.findall(r"`([\w/]+\.py)`", row[1]) for row in re.findall(r"^\| (an? [^|]*) \| ([^|]*) \|$", table, re.M)
    }
    assert touched == {
        "a text model": ["models/NAME.py", "registry.py", "recipes/NAME.py", "recipes/__init__.py"],
        "a generative model": ["models/NAME.py", "registry.py", "recipes/NAME.py", "recipes/__init__.py"],
        "a decoder": ["models/NAME.py", "tasks/NAME.py", "inference/NAME.py", "registry.py"],
        "a task": ["tasks/NAME.py", "registry.py"],
        "a head on texts": ["tasks/NAME.py", "inference/NAME.py", "registry.py"],
        "a kind of run": ["runs/NAME/run.py", "runs/__init__.py"],
        "a form of another library": ["models/NAME.py", "registry.py"],
        "a verb": ["inference/answers.py", "inference/verbs.py"],
        "a schedule": ["training/schedules.py"],
        "an optimizer": ["training/optimizers.py"],
        "a floor of labels": [
            "models/NAME.py",
            "recipes/backbones.py",
            "runs/labelled/floors.py",
            "runs/labelled/word_floors.py",
        ],
        "a labelled data set": ["readers/labelled_sets.py"],
        "a reader": ["readers/NAME.py", "readers/__init__.py"],
    }

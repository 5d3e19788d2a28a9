"""Disentanglement models, trained on chat logs or reply trees."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify import hub
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.disentangle.batch import Vectors
from ramify.disentangle.config import History
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.reply_trees import logs_of_replies
from ramify.disentangle.data.structure import Structure
from ramify.disentangle.data.words import LEAST, learn_words, word_vectors
from ramify.disentangle.distillation import beliefs, lessons
from ramify.disentangle.inference.decode import (
    Decided,
    Known,
    Opinion,
    collator,
    heard_from,
    lead_in,
    opinions,
    settle,
    with_history,
)
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.links import IN_WORDS, known_conversations, matched, measure, told
from ramify.disentangle.inference.reply_trees import measure_replies, scored
from ramify.disentangle.inference.vector_cache import kept_vectors
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig
from ramify.disentangle.models.encoders import MaskedLMModel, encoder_config, load_encoder
from ramify.disentangle.models.esim import ESIMConfig
from ramify.disentangle.models.feature_model import FeatureModelConfig
from ramify.disentangle.models.mht import MHTConfig
from ramify.disentangle.task import DECIDING, ReplyTo, ReplyToConfig
from ramify.errors import RamifyError
from ramify.inference.base import Pipeline
from ramify.metrics.conversations import score
from ramify.models import bert, hf
from ramify.models.bert import BertConfig
from ramify.nn.precision import autocast
from ramify.registry import MODELS, model_name
from ramify.runs import disentanglement_report
from ramify.runs.base import RUN_FILE, Evaluation, Prepared, ReportParts, ReportRequest, Run, check_options
from ramify.runs.disentanglement_scores import LinkScores, ReplyScores
from ramify.runs.settings import set_fields
from ramify.tokenizer import Tokenizer
from ramify.training.checkpoints import Progress
from ramify.training.config import learns
from ramify.training.seeds import step_seed
from ramify.training.trainer import Stage
from ramify.tree import Tree

REPLY_SCORES = ("graph_accuracy", "conv_accuracy")
"""The dev scores on reply trees, in place of F of links and of conversations."""

WordsModelConfig = FeatureModelConfig | DecomposableAttentionConfig | ESIMConfig
"""Configs of models with whole words as vocabulary, learned from the training logs."""

_BACKBONES = dict(MODELS.values())

FREE = ("dropout", "attention_dropout", "chunk_tokens")
"""The settings in which a run may differ from the saved model that it starts from."""


@dataclass(frozen=True)
class BlockConfig:
    """How the messages with known links become training examples."""

    block: int = 16
    """Number of consecutive messages that stay together; they share most of their history."""

    encoded_block: int = 64
    """The same for stages in which a message encoder learns, where encoding the history is the main cost."""

    far: float = 1.0
    """Negative sampling rate: the share of distant candidates without hints (see `data.blocks`) that training reads, weighted
    for the rest (0: none is read). Inference reads all, and so do Kummerfeld et al."""

    conversations: float = 0.0
    """Messages of single known conversations, as logs without times, per message with known links. They prepare a model for
    channels without interleaved conversations or clocks."""
    teachers: tuple[str, ...] = ()
    """Teachers for distillation: models whose probabilities are targets for all messages, with known links or not."""
    trust: float = 0.5
    """Distillation weight: the share of the teachers' probabilities in the targets of messages with known links."""
    vectors: str = ""
    """Folder in which a frozen encoder's vectors of messages are cached for further runs. Empty: no cache."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.conversations < 0:
            raise RamifyError(f"view.conversations={self.conversations} must not be negative.")
        if not 0 <= self.far <= 1:
            raise RamifyError(f"view.far={self.far} must be from 0 to 1.")
        if self.far < 1 and self.teachers:
            raise RamifyError(f"view.far={self.far} hides candidates that view.teachers give probabilities of. Set view.far=1.")
        if not 0 <= self.trust <= 1:
            raise RamifyError(f"view.trust={self.trust} must be from 0 to 1.")
        if min(self.block, self.encoded_block) < 1:
            raise RamifyError(f"view.block={self.block} and view.encoded_block={self.encoded_block} must both be at least 1.")


@dataclass(frozen=True)
class WordsConfig:
    """The vocabulary of whole words, learned from the training logs, with or without word vectors to start from."""

    least: int = LEAST
    """Smallest count of a word in the vocabulary; rarer words are read by their shape alone."""
    vectors: Literal["trained", "random"] = "trained"

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer.")


@dataclass(frozen=True)
class LinkDevConfig:
    """The dev score that chooses the best weights: F of links, F of whole conversations, or loss."""

    by: Literal["link", "cluster", "loss"] = "link"
    history: Known = "gold"
    """Reply history used in dev evaluation: gold links, or the model's own predictions (slower, sequential)."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")


@dataclass(frozen=True)
class PreparedChats(Prepared):
    run: "DisentanglementRun"
    task: ReplyTo
    logs: Logs
    dev: Logs
    dev_names: list[str]

    def stage(self, number: int) -> Stage:
        shares = self._taught
        targets = self.logs.learnable if shares is None else np.flatnonzero(shares.any(axis=1))
        if not len(targets):
            raise RamifyError(f"{self.run.data} has no known links in its training logs, so there is nothing to learn.")
        # Until the encoder learns, its vectors are the same at every step and are computed once.
        frozen = not any(learns(stage, name) for stage in self.run.stages[: number + 1] for name in self._encoder_parameters)
        vectors = self._vectors(self.logs, with_history(self.logs, targets)) if frozen else None
        block = self.run.view.block if frozen else self.run.view.encoded_block
        view = Blocks(self.logs, targets, block=block, far=self.run.view.far, seed=self.run.seed)
        structure = Structure.known(self.logs) if self.task.backbone.reads_structure else None
        measure = self._measure(frozen) if len(self.dev.links) else None
        weighed = self.task.config.conversation_weight > 0
        collate = replace(collator(self.task, self.logs, vectors), structure=structure, shares=shares, conversations=weighed)
        return Stage(self.run.stages[number], view, collate, measure)

    def _vectors(self, logs: Logs, messages: Ints) -> Vectors | None:
        return kept_vectors(self.task, logs, messages, self.run.view.vectors)

    @cached_property
    def _taught(self) -> Float[NDArray, "message place"] | None:
        """Soft targets for all messages; None without teachers."""
        if not self.run.view.teachers:
            return None
        if self.task.config.objective != "listwise":
            raise RamifyError(f"view.teachers needs task.objective=listwise, not {self.task.config.objective}.")
        teachers = [_teacher(path, self.task.device) for path in self.run.view.teachers]
        believed = beliefs(teachers, lambda: self.store.trees(self.store.split("train")), self.logs.history.window)
        return lessons(self.logs, believed, self.run.view.trust)

    @property
    def _encoder_parameters(self) -> list[str]:
        return [name for name, _ in self.task.named_parameters() if name.startswith("backbone.encoder.")]

    def pipeline(self) -> Disentangler:
        return Disentangler(self.task)

    def divisors(self) -> dict[str, float] | None:
        # A mean over messages, whose number varies from step to step.
        return {"links": 0.0}

    def facts(self) -> dict[str, Any]:
        logs = self.logs
        known = len(np.unique(logs.links[:, 0]))
        unknown = logs.ids == self.task.tokenizer.engine.token_to_id("[UNK]")
        return {
            "messages": len(logs),
            "messages_with_links": known,
            "beyond_window": known - len(logs.learnable),
            "unknown_words": float(unknown.mean()) if len(unknown) else 0.0,
            "cut_messages": logs.cut,
        }

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return []

    def best_score(self, progress: Progress) -> str:
        by, best = self.run.dev.by, progress.best or 0.0
        score = f"dev loss {best:.4f}" if by == "loss" else f"dev score {100 - best:.4f} (dev.by={by})"
        told_what = f", where {IN_WORDS[told(self.task, self.run.dev.history)]}" if self.task.backbone.reads_structure else ""
        return f"best {score} at step {progress.best_step}{told_what}"

    def _measure(self, frozen: bool) -> Callable[[], dict[str, float]]:
        by, history = self.run.dev.by, self.run.dev.history
        start = lead_in(self.dev)
        vectors = self._vectors(self.dev, heard_from(self.dev, start)) if frozen else None

        def measure() -> dict[str, float]:
            parts = opinions(self.task, self.dev, history=history, start=start, vectors=vectors)
            found = Opinion.joined(list(parts))
            scores = self._scores(settle(self.task.config, self.dev, [found]))
            link, cluster, *_ = scores.values()
            loss = self._loss(found)
            worst = {"link": 100 - link, "cluster": 100 - cluster}
            if loss is None:
                if by == "loss":
                    raise RamifyError(
                        "dev.by=loss needs known links within reading.window, and the dev logs have none. Set dev.by=link, or "
                        "a longer window."
                    )
                return {"dev_loss": worst[by], **scores}
            return {"dev_loss": loss if by == "loss" else worst[by], "dev_nats": loss, **scores}

        return measure

    def _scores(self, decided: Decided) -> dict[str, float]:
        """Dev scores: links first, then whole conversations, then others."""
        if self.store.holds_reply_trees:
            found = scored(self.dev, decided.answered).scores()
            return {f"dev_{name}": value for name in REPLY_SCORES if (value := found[name]) is not None}
        scores = score(matched(self.dev, self.dev_names, decided.links).logs)
        return {
            "dev_link_f1": scores["link"]["f1"],
            "dev_cluster_f1": scores["cluster"]["f1"],
            "dev_vi": scores["vi"],
        }

    def _loss(self, found: Opinion) -> float | None:
        """Mean negative log-probability of known links in the window, in nats per message; None if there are none."""
        logs = self.dev
        is_link = logs.is_link(np.repeat(found.messages, found.lengths), found.candidates)
        starts = np.cumsum(found.lengths) - found.lengths
        said = np.add.reduceat(np.where(is_link, found.probabilities, 0.0), starts)
        known = np.add.reduceat(is_link, starts) > 0
        return float(-np.log(np.maximum(said[known], 1e-12)).mean()) if known.any() else None


def _teacher(path: str, device: torch.device) -> ReplyTo:
    pipeline = hub.load(path).to(device)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"view.teachers: {path} is not a disentanglement model. Name runs of disentanglement recipes.")
    return pipeline.task


@dataclass(frozen=True, kw_only=True)
class DisentanglementRun(Run):
    """A model that finds the earlier messages that each message answers."""

    name: ClassVar[str] = "disentanglement"

    model: MHTConfig | BertPairConfig | WordsModelConfig
    task: ReplyToConfig = field(default_factory=ReplyToConfig)
    reading: History = field(default_factory=History)
    view: BlockConfig = field(default_factory=BlockConfig)
    tokenizer: WordsConfig = field(default_factory=WordsConfig)
    dev: LinkDevConfig = field(default_factory=LinkDevConfig)

    def sized(self, init: str) -> Self:
        return replace(self, model=_sized(self.model, init)) if init else self

    def check_settings(self, settings: Mapping[str, str]) -> None:
        if "model.features" in settings:
            raise RamifyError(
                f"--set model.features={settings['model.features']} would not set the learning rate of the features. Use "
                "--features, which sets both."
            )

    def adapt_to_data(self) -> Self:
        """A copy that ranks earlier comments if the data are reply trees, in which no comment starts a conversation."""
        if not Store.open(self.data).holds_reply_trees:
            return self
        # A threshold within conversations has no meaning without them.
        threshold = 0.0 if self.task.decide == "conversation" else self.task.threshold
        task = replace(self.task, objective="ranking", decide="link", threshold=threshold, conversation_weight=0.0)
        return replace(self, task=task)

    def notes(self) -> list[str]:
        return []

    def prepare(self, out: Path) -> PreparedChats:
        store = Store.open(self.data)
        for split in ("train", "dev"):
            if not len(store.split(split)):
                raise RamifyError(
                    f"{self.data} has {store.num_trees:,} log(s), none of them in the split {split}. Whole logs are assigned "
                    "to splits by a hash of their ids. Build the data with more logs (e.g. one IRC file per day), or with "
                    "other shares, such as --split 0.5,0.5,0."
                )
        logs, dev = _logs(self, store, "train"), _logs(self, store, "dev")
        own = out / "tokenizer.json"
        begun = own.exists() and (out / RUN_FILE).exists()
        tokenizer = Tokenizer.load(own) if begun else _words(self, logs)
        logs, dev = logs.read_with(tokenizer), dev.read_with(tokenizer)
        return PreparedChats(self, store, _started(self, tokenizer, logs), logs, dev, store.tree_ids(store.split("dev")))

    def normalized(self) -> Self:
        return replace(self, data="")

    @property
    def weight_sources(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.init, *self.view.teachers)))

    @classmethod
    def evaluates(cls, pipeline: Pipeline) -> bool:
        return isinstance(pipeline, Disentangler)

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Scores of links and conversations; on reply trees, graph and conversation accuracy.

        Options: `history`, `beam`, `set`, `precision`, `progress`; on chat logs also `no_starts` and `protocol`.
        """
        assert isinstance(pipeline, Disentangler)
        model = pipeline.task
        known = ("history", "beam", "set", "precision", "progress", "no_starts", "protocol")
        check_options(options, known, source, "a disentanglement model")
        model.config = redecided(model.config, options.get("set", {}))
        beam, precision = options.get("beam", 1), options.get("precision", "fp32")
        if store.holds_reply_trees:
            check_options(options, known[:-2], str(store.path), "reply trees, not chat logs")
            history = options.get("history") or ("predicted" if beam > 1 else "gold")
            with autocast(model.device, precision):
                return ReplyScores(measure_replies(model, store, split, history=history, beam=beam))
        history, starts = options.get("history", "predicted"), not options.get("no_starts", False)
        with autocast(model.device, precision):
            measured = measure(model, store, split, starts=starts, history=history, beam=beam)
        return LinkScores.of(measured, options.get("protocol", "official"))

    def report_sections(self, request: ReportRequest) -> ReportParts:
        return disentanglement_report.parts(self.reading.window, self.dev.history, request)

    def next_command(self, out: Path, store: Store) -> str:
        model = shlex.quote(str(out))
        if store.holds_reply_trees:
            return f"evaluate {model} --data {shlex.quote(self.data)}"
        return f"disentangle LOG --to html --out LOG.html --model {model}"


def redecided(config: ReplyToConfig, settings: Mapping[str, str]) -> ReplyToConfig:
    """A copy with settings of `DECIDING` from text. Raises `RamifyError` for other settings, which training fixes."""
    for key in settings:
        head, _, name = key.partition(".")
        if head != "task" or name not in DECIDING:
            known = ", ".join(f"task.{each}" for each in DECIDING)
            raise RamifyError(f"--set {key} cannot change a trained model. The settings that can are {known}.")
    return set_fields(config, {key.removeprefix("task."): (text, key) for key, text in settings.items()})


def _sized(model: Any, init: str) -> Any:
    """The config with the sizes and conventions of a checkpoint."""
    saved = hub.saved_config(init)
    own = model_name(model)
    if saved is not None:
        if type(saved.model) is type(model):
            return saved.model
        if isinstance(model, MHTConfig | BertPairConfig) and isinstance(saved.model, MaskedLMModel):
            return replace(model, encoder=_encoder(model, saved.model))
        other = "" if isinstance(model, WordsModelConfig) else ", or from a BERT-family checkpoint in Hugging Face's form"
        theirs = model_name(saved.model)
        raise RamifyError(f"--init {init} is a {theirs} model of Ramify. Start a {own} run from a {own} model{other}.")
    if isinstance(model, WordsModelConfig):
        raise RamifyError(f"--init {init} is not a model of Ramify. Start a {own} run from a {own} model.")
    return replace(model, encoder=model.encoder.adapted_to(hub.checkpoint(init)))


def _encoder(model: MHTConfig | BertPairConfig, saved: MaskedLMModel) -> BertConfig:
    """The config of an encoder that starts from a masked language model. Messages are pooled as its texts, pairs as pairs."""
    own = encoder_config(saved)
    rates = {name: getattr(model.encoder, name) for name in ("dropout", "attention_dropout")}
    return replace(own, **rates, pooling=model.encoder.pooling if isinstance(model, BertPairConfig) else own.pooling)


def _logs(run: DisentanglementRun, store: Store, split: Split) -> Logs:
    trees = store.trees(store.split(split))
    ranking = run.task.objective == "ranking"
    if store.holds_reply_trees:
        if not ranking:
            raise RamifyError(
                f"task.objective={run.task.objective} does not fit the reply trees of {run.data}, where every comment has a "
                "parent. Set task.objective=ranking."
            )
        return logs_of_replies(trees, run.reading)
    if split == "train":
        trees = _with_conversations(run, trees)
    logs = Logs.of(trees, run.reading)
    return logs.without_starts() if ranking else logs


def _with_conversations(run: DisentanglementRun, trees: Iterable[Tree]) -> Iterator[Tree]:
    """The logs, and then a sample of their known conversations (`view.conversations`)."""
    known, found = 0, []
    for tree in trees:
        yield tree
        known += sum(node.parents is not None for node in tree.nodes)
        found += known_conversations(tree) if run.view.conversations else []
    wanted = run.view.conversations * known
    for number in np.random.Generator(np.random.Philox(key=run.seed)).permutation(len(found)).tolist():
        if wanted <= 0:
            return
        yield found[number]
        wanted -= len(found[number])


def _words(run: DisentanglementRun, logs: Logs) -> Tokenizer:
    if run.init:
        return Tokenizer.load(hf.locate(run.init))
    if logs.history.texts == "pieces":
        raise RamifyError("reading.texts=pieces needs a checkpoint with a vocabulary of word pieces. Name one with --init.")
    return learn_words((words for channel in logs.channels for words in channel.spelled), run.tokenizer.least)


def _own(config: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _started(run: DisentanglementRun, tokenizer: Tokenizer, logs: Logs) -> ReplyTo:
    """The task of a run, with the weights of its checkpoint, or with word vectors learned from the logs."""
    for name, command in (("first_look", "candidate-pruner"), ("second_look", "reranker")):
        if size := getattr(run.task, name):
            raise RamifyError(
                f"task.{name}={size} cannot be trained with the model; `ramify train {command}` fits it afterwards. Set "
                f"task.{name}=0."
            )
    torch.manual_seed(step_seed(run.seed, 0))
    saved = hub.saved_config(run.init) if run.init else None
    config = run.model
    if isinstance(config, WordsModelConfig):
        config = replace(config, vocab_size=config.vocab_size or tokenizer.vocab_size)
    backbone = _BACKBONES[type(config)](config)
    backbone.check(logs.history)
    if run.view.far < 1 and (backbone.reads_history or backbone.reads_surroundings or backbone.reads_together):
        raise RamifyError(
            f"view.far={run.view.far} needs a model that scores candidates independently; {model_name(run.model)} reads or "
            "compares several at once. Set view.far=1."
        )
    task = ReplyTo(backbone, tokenizer, logs.history, run.task)
    if saved is not None and isinstance(saved.model, MaskedLMModel):
        assert isinstance(config, MHTConfig | BertPairConfig)
        wanted = vars(encoder_config(saved.model)) | _own(config.encoder, *FREE, "pooling")
        hf.require(config.encoder, wanted, run.init, "model.encoder")
        load_encoder(backbone.encoder, saved.model, hf.read_tensors(hf.locate(run.init)), run.init)
    elif saved is not None:
        hf.require(config, vars(saved.model) | _own(config, *FREE), run.init)
        # Pruner and reranker were fitted to the probabilities of the saved model, which training changes.
        saved_tensors = hf.read_tensors(hf.locate(run.init)).items()
        tensors = {name: own for name, own in saved_tensors if not name.startswith(("first.", "second."))}
        hub.load_own_tensors(task, tensors, run.init)
    elif isinstance(config, WordsModelConfig):
        if backbone.embedding is not None and run.tokenizer.vectors == "trained":
            vectors = word_vectors(logs.ids, logs.starts, config.vocab_size, config.dim)
            with torch.no_grad():
                backbone.embedding.weight.copy_(torch.from_numpy(vectors))
    elif run.init:
        bert.load_pretrained(backbone.encoder, hf.locate(run.init))
    return task

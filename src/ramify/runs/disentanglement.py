"""Who replied to whom: models trained on chat logs or reply trees."""

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
"""Of reply trees, what takes the place of F of links and of conversations while training."""

WordsModelConfig = FeatureModelConfig | DecomposableAttentionConfig | ESIMConfig
"""Of models that know whole words, learned from the training logs."""

_BACKBONES = dict(MODELS.values())

FREE = ("dropout", "attention_dropout", "chunk_tokens")
"""What a run may have otherwise than the saved model that it starts from."""


@dataclass(frozen=True)
class BlockConfig:
    """How messages whose links are known are put before a model in training."""

    block: int = 16
    """Consecutive messages that stay together; they share most of their history."""

    encoded_block: int = 64
    """The same in stages where an encoder of messages learns: there, what costs is to encode the history."""

    far: float = 1.0
    """Of the candidates that are far back and that nothing points to (`data.blocks`), the share that is read in training, each
    for as many as were left out (0: nothing stands for them); in use all are. Kummerfeld et al. read all."""

    conversations: float = 0.0
    """Learn from known conversations as logs of their own, too, without times: so many of their messages for each message of
    the logs whose links are known. For channels without cross-talk or clocks."""
    teachers: tuple[str, ...] = ()
    """Models whose beliefs are to be learned (distillation): of all messages, also of those whose links nobody knows."""
    trust: float = 0.5
    """How much teachers' beliefs count beside the known links, where there are any."""
    vectors: str = ""
    """A folder for what a frozen encoder makes of the messages, so that further runs need not encode them again (nothing: it is
    not kept)."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.conversations < 0:
            raise RamifyError(f"view.conversations must not be negative, not {self.conversations}.")
        if not 0 <= self.far <= 1:
            raise RamifyError(f"view.far must be from 0 to 1, not {self.far}.")
        if self.far < 1 and self.teachers:
            raise RamifyError("view.far below 1 would hide candidates that view.teachers have an opinion of: set one of both.")
        if not 0 <= self.trust <= 1:
            raise RamifyError(f"view.trust must be from 0 to 1, not {self.trust}.")
        if min(self.block, self.encoded_block) < 1:
            raise RamifyError(f"view.block and encoded_block must be at least 1, not {self.block} and {self.encoded_block}.")


@dataclass(frozen=True)
class WordsConfig:
    """The vocabulary of a model that knows whole words, learned from the training logs: with vectors, so that it begins with
    some notion of them."""

    least: int = LEAST
    """Words said less often are known by their shape alone."""
    vectors: Literal["trained", "random"] = "trained"

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer.")


@dataclass(frozen=True)
class LinkDevConfig:
    """What chooses the best weights, measured on the dev logs: a higher F of links or of whole conversations, or a lower
    loss."""

    by: Literal["link", "cluster", "loss"] = "link"
    history: Known = "gold"
    """What a model that reads what earlier messages answer is told of it meanwhile. Its own decisions take longer, for it must
    decide message by message."""

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
            raise RamifyError(f"{self.run.data}: nobody says of any message in the training logs which one it answers.")
        # While the encoder has not begun to learn, what it makes of a message is the same at every step.
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
        """What teachers say of all messages, where there are any."""
        if not self.run.view.teachers:
            return None
        if self.task.config.objective != "listwise":
            raise RamifyError(f"view.teachers is for task.objective=listwise, not {self.task.config.objective}.")
        teachers = [_teacher(path, self.task.device) for path in self.run.view.teachers]
        believed = beliefs(teachers, lambda: self.store.trees(self.store.split("train")), self.logs.history.window)
        return lessons(self.logs, believed, self.run.view.trust)

    @property
    def _encoder_parameters(self) -> list[str]:
        return [name for name, _ in self.task.named_parameters() if name.startswith("backbone.encoder.")]

    def pipeline(self) -> Disentangler:
        return Disentangler(self.task)

    def divisors(self) -> dict[str, float] | None:
        # A mean over messages, of which a step may hold more or fewer.
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
        score = f"dev loss {best:.4f}" if by == "loss" else f"of what dev.by={by} measures {100 - best:.4f}"
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
                        "dev.by=loss: no message of the dev logs is known to answer one of those in input.window. "
                        "Choose dev.by=link, or a longer window."
                    )
                return {"dev_loss": worst[by], **scores}
            return {"dev_loss": loss if by == "loss" else worst[by], "dev_nats": loss, **scores}

        return measure

    def _scores(self, decided: Decided) -> dict[str, float]:
        """On dev: of links, of whole conversations, and others."""
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
        """Nats a message to say one of its links that are in the window; None where none is."""
        logs = self.dev
        is_link = logs.is_link(np.repeat(found.messages, found.lengths), found.candidates)
        starts = np.cumsum(found.lengths) - found.lengths
        said = np.add.reduceat(np.where(is_link, found.probabilities, 0.0), starts)
        known = np.add.reduceat(is_link, starts) > 0
        return float(-np.log(np.maximum(said[known], 1e-12)).mean()) if known.any() else None


def _teacher(path: str, device: torch.device) -> ReplyTo:
    pipeline = hub.load(path).to(device)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"view.teachers: {path} holds no model of who replied to whom. Name runs of recipes for chat logs.")
    return pipeline.task


@dataclass(frozen=True, kw_only=True)
class DisentanglementRun(Run):
    """A model that finds, for each message, the earlier messages that it answers."""

    name: ClassVar[str] = "disentanglement"

    model: MHTConfig | BertPairConfig | WordsModelConfig
    task: ReplyToConfig = field(default_factory=ReplyToConfig)
    input: History = field(default_factory=History)
    view: BlockConfig = field(default_factory=BlockConfig)
    tokenizer: WordsConfig = field(default_factory=WordsConfig)
    dev: LinkDevConfig = field(default_factory=LinkDevConfig)

    def sized(self, init: str) -> Self:
        return replace(self, model=_sized(self.model, init)) if init else self

    def check_settings(self, settings: Mapping[str, str]) -> None:
        if "model.features" in settings:
            raise RamifyError(
                f"--set model.features={settings['model.features']} would leave the features' learning rate as it is. Use "
                "--features, which sets both."
            )

    def adapt_to_data(self) -> Self:
        """A reply tree is one conversation, which no comment starts: a comment's parent is ranked among earlier comments."""
        if not Store.open(self.data).holds_reply_trees:
            return self
        # A threshold inside conversations goes with them.
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
                    f"{self.data} has {store.num_trees:,} log(s), none of them in the split {split}: a log falls into a split "
                    "as a whole, by a hash of its id. Build the data with more logs (of IRC a file per day, say), or with "
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

        Options: `history`, `beam`, `set`; on chat logs `no_starts`, `protocol`; and `precision`, `progress`.
        """
        assert isinstance(pipeline, Disentangler)
        model = pipeline.task
        known = ("history", "beam", "set", "precision", "progress", "no_starts", "protocol")
        check_options(options, known, source, "a model of who replied to whom")
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
        return disentanglement_report.parts(self.input.window, self.dev.history, request)

    def next_command(self, out: Path, store: Store) -> str:
        model = shlex.quote(str(out))
        if store.holds_reply_trees:
            return f"evaluate {model} --data {shlex.quote(self.data)}"
        return f"disentangle LOG --to html --out LOG.html --model {model}"


def redecided(config: ReplyToConfig, settings: Mapping[str, str]) -> ReplyToConfig:
    """With other settings of how to decide (`DECIDING`), from text; all others were settled in training."""
    for key in settings:
        head, _, name = key.partition(".")
        if head != "task" or name not in DECIDING:
            known = ", ".join(f"task.{each}" for each in DECIDING)
            raise RamifyError(f"--set {key}: a trained model can be set to decide otherwise, by {known}, and by nothing else.")
    return set_fields(config, {key.removeprefix("task."): (text, key) for key, text in settings.items()})


def _sized(model: Any, init: str) -> Any:
    """The config with all that a checkpoint to start from settles."""
    saved = hub.saved_config(init)
    own = model_name(model)
    if saved is not None:
        if type(saved.model) is type(model):
            return saved.model
        if isinstance(model, MHTConfig | BertPairConfig) and isinstance(saved.model, MaskedLMModel):
            return replace(model, encoder=_encoder(model, saved.model))
        other = "" if isinstance(model, WordsModelConfig) else ", or from a BERT-family checkpoint in Hugging Face's form"
        theirs = model_name(saved.model)
        raise RamifyError(f"--init {init} holds a {theirs} model of Ramify; a {own} run starts from a {own} model{other}.")
    if isinstance(model, WordsModelConfig):
        raise RamifyError(f"--init {init} is no model of Ramify; a {own} run starts from one of its own kind.")
    return replace(model, encoder=model.encoder.adapted_to(hub.checkpoint(init)))


def _encoder(model: MHTConfig | BertPairConfig, saved: MaskedLMModel) -> BertConfig:
    """Of messages, from a masked language model: a pair is pooled as pairs are, a message as that model pools texts."""
    own = encoder_config(saved)
    rates = {name: getattr(model.encoder, name) for name in ("dropout", "attention_dropout")}
    return replace(own, **rates, pooling=model.encoder.pooling if isinstance(model, BertPairConfig) else own.pooling)


def _logs(run: DisentanglementRun, store: Store, split: Split) -> Logs:
    trees = store.trees(store.split(split))
    ranking = run.task.objective == "ranking"
    if store.holds_reply_trees:
        if not ranking:
            raise RamifyError(
                f"{run.data} holds reply trees, where every comment answers another message: only task.objective=ranking fits, "
                f"not {run.task.objective}."
            )
        return logs_of_replies(trees, run.input)
    if split == "train":
        trees = _with_conversations(run, trees)
    logs = Logs.of(trees, run.input)
    return logs.without_starts() if ranking else logs


def _with_conversations(run: DisentanglementRun, trees: Iterable[Tree]) -> Iterator[Tree]:
    """Logs, and after them some of the conversations that they are known to hold."""
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
        raise RamifyError("a model that reads word pieces starts from a checkpoint that has them: name one with --init.")
    return learn_words((words for channel in logs.channels for words in channel.spelled), run.tokenizer.least)


def _own(config: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _started(run: DisentanglementRun, tokenizer: Tokenizer, logs: Logs) -> ReplyTo:
    """The run's task, with the weights of the checkpoint that it starts from, or word vectors learned from the logs."""
    for name, command in (("first_look", "candidate-pruner"), ("second_look", "reranker")):
        if size := getattr(run.task, name):
            raise RamifyError(
                f"task.{name}={size} cannot be trained with the model: it is fitted afterwards by `ramify train {command}`. "
                f"Set task.{name}=0."
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
            "view.far below 1 is for models that read one candidate at a time and nothing around it: to this one all are "
            "history, or compared with each other. Leave view.far at 1."
        )
    task = ReplyTo(backbone, tokenizer, logs.history, run.task)
    if saved is not None and isinstance(saved.model, MaskedLMModel):
        assert isinstance(config, MHTConfig | BertPairConfig)
        wanted = vars(encoder_config(saved.model)) | _own(config.encoder, *FREE, "pooling")
        hf.require(config.encoder, wanted, run.init, "model.encoder")
        load_encoder(backbone.encoder, saved.model, hf.read_tensors(hf.locate(run.init)), run.init)
    elif saved is not None:
        hf.require(config, vars(saved.model) | _own(config, *FREE), run.init)
        # Both looks were fitted to what the model believed then.
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

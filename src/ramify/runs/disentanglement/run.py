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
from ramify.checkpoints import Progress
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.disentangle.batch import MessageVectors
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.candidates import add_candidates
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.reply_trees import build_reply_logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.targets import decode_start, list_read_messages
from ramify.disentangle.data.words import MIN_COUNT, learn_vocabulary, learn_word_vectors
from ramify.disentangle.distillation import soft_targets
from ramify.disentangle.inference.batches import list_batches, make_collator
from ramify.disentangle.inference.decode import LinkDecisions, decode
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.ensemble import mean_probabilities
from ramify.disentangle.inference.evaluation import HISTORY_TEXT, evaluate_links, find_history, match_links
from ramify.disentangle.inference.predict import ReplyHistory, predict_posterior
from ramify.disentangle.inference.reply_trees import evaluate_replies, score_parents
from ramify.disentangle.inference.result import split_by_gold
from ramify.disentangle.inference.vector_cache import load_or_encode
from ramify.disentangle.models.base import LinkModelConfig
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.task import CLUSTER_F1, CONV_ACCURACY, GRAPH_ACCURACY, LINK_F1, ReplyLinking
from ramify.errors import RamifyError, counted
from ramify.hub import RUN_FILE
from ramify.inference.base import Pipeline
from ramify.metrics.conversations import score
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models import hf
from ramify.nn.precision import autocast
from ramify.progress import activity, track
from ramify.registry import model_name
from ramify.runs.base import (
    Evaluation,
    Prepared,
    ReportParts,
    ReportRequest,
    Run,
    check_options,
    evaluation_command,
    of_kind,
)
from ramify.runs.disentanglement import report
from ramify.runs.disentanglement.scores import LinkScores, ReplyScores
from ramify.runs.settings import set_fields
from ramify.tokenizer import Tokenizer
from ramify.training.config import learns
from ramify.training.meters import read_meters
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage
from ramify.tree import Tree

REPLY_SCORES = ("graph_accuracy", "conv_accuracy")
"""The dev scores on reply trees, in place of F of links and of conversations."""

METERED = 500
"""Messages of the dev logs from which meters are read."""


@dataclass(frozen=True)
class BlockConfig:
    """The way messages with known links become training examples."""

    block: int = 16
    """Number of consecutive messages that stay together; they share most of their history."""

    encoded_block: int = 64
    """The same for stages in which a message encoder learns, where encoding the history is the main cost."""

    negative_sampling_rate: float = 1.0
    """Negative sampling rate: the share of distant candidates without hints (see `data.blocks`) that training reads, weighted
    for the rest (0: none is read). Inference reads all, and so do Kummerfeld et al."""

    conversations: float = 0.0
    """Messages of single known conversations, as logs without times, per message with known links. They prepare a model for
    channels without interleaved conversations or clocks."""
    teachers: tuple[str, ...] = ()
    """Teachers for distillation: models whose probabilities are targets for all messages, with known links or not."""
    distillation_weight: float = 0.5
    """Distillation weight: the share of the teachers' probabilities in the targets of messages with known links."""
    vectors: str = ""
    """Folder in which a frozen encoder's vectors of messages are cached for further runs. Empty: no cache."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.conversations < 0:
            raise RamifyError(f"view.conversations={self.conversations} must not be negative.")
        if not 0 <= self.negative_sampling_rate <= 1:
            raise RamifyError(f"view.negative_sampling_rate={self.negative_sampling_rate} must be from 0 to 1.")
        if self.negative_sampling_rate < 1 and self.teachers:
            raise RamifyError(
                f"view.negative_sampling_rate={self.negative_sampling_rate} hides candidates that view.teachers give "
                "probabilities of. Set view.negative_sampling_rate=1."
            )
        if not 0 <= self.distillation_weight <= 1:
            raise RamifyError(f"view.distillation_weight={self.distillation_weight} must be from 0 to 1.")
        if min(self.block, self.encoded_block) < 1:
            raise RamifyError(f"view.block={self.block} and view.encoded_block={self.encoded_block} must both be at least 1.")


@dataclass(frozen=True)
class WordsConfig:
    """The vocabulary of whole words, learned from the training logs, with or without word vectors to start from."""

    min_count: int = MIN_COUNT
    """Smallest count of a word in the vocabulary; rarer words are read by their shape alone."""
    vectors: Literal["trained", "random"] = "trained"

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer.")


@dataclass(frozen=True)
class LinkDevConfig:
    """The dev score that chooses the best weights: F of links, F of whole conversations, or loss."""

    by: Literal["link", "cluster", "loss"] = "link"
    history: ReplyHistory = "gold"
    """Reply history used in dev evaluation: gold links, or the model's own predictions (slower, sequential)."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")


@dataclass(frozen=True)
class PreparedChats(Prepared):
    run: "DisentanglementRun"
    task: ReplyLinking
    logs: Logs
    dev: Logs
    dev_names: list[str]

    def stage(self, number: int) -> Stage[Blocks]:
        shares = self._soft_targets
        targets = self.logs.linked if shares is None else np.flatnonzero(shares.any(axis=1))
        if not len(targets):
            raise RamifyError(f"{self.run.data} has no known links in its training logs, so there is nothing to learn.")
        # Until the encoder learns, its vectors are the same at every step and are computed once.
        names, stages = self.task.encoder_parameters, self.run.stages[: number + 1]
        frozen = not any(learns(stage, name) for stage in stages for name in names)
        vectors = self._vectors(self.logs, add_candidates(self.logs, targets)) if frozen else None
        block = self.run.view.block if frozen else self.run.view.encoded_block
        view = Blocks(
            self.logs, targets, block=block, negative_sampling_rate=self.run.view.negative_sampling_rate, seed=self.run.seed
        )
        structure = ReplyStructure.from_gold(self.logs) if self.task.backbone.reads_structure else None
        measure = self._measure(frozen) if len(self.dev.links) else None
        collate = replace(
            make_collator(self.task, self.logs, vectors),
            structure=structure,
            soft_targets=shares,
            same_conversation=self._weighed,
        )
        return Stage(self.run.stages[number], view, collate, measure, self._metric)

    def _vectors(self, logs: Logs, messages: Ints) -> MessageVectors | None:
        return load_or_encode(self.task, logs, messages, self.run.view.vectors)

    @cached_property
    def _soft_targets(self) -> Float[NDArray, "message distance"] | None:
        """Soft targets for all messages; None without teachers."""
        if not self.run.view.teachers:
            return None
        if self.task.config.objective != "listwise":
            raise RamifyError(f"view.teachers needs task.objective=listwise, not {self.task.config.objective}.")
        teachers = [_teacher(path, self.task.device) for path in self.run.view.teachers]
        teacher_probabilities = mean_probabilities(
            teachers, lambda: self.store.trees(self.store.split("train")), self.logs.input.window
        )
        return soft_targets(self.logs, teacher_probabilities, self.run.view.distillation_weight)

    def facts(self) -> dict[str, Any]:
        logs = self.logs
        known = len(np.unique(logs.links[:, 0]))
        unknown = logs.ids == self.task.tokenizer.engine.token_to_id("[UNK]")
        return {
            "messages": len(logs),
            "messages_with_links": known,
            "beyond_window": known - len(logs.linked),
            "unknown_words": float(unknown.mean()) if len(unknown) else 0.0,
            "cut_messages": logs.num_truncated,
        }

    def reads(self) -> str:
        read = f"{counted(len(self.logs), 'message')} in {counted(len(self.logs.channels), 'log')}"
        if self.run.input.texts == "words":
            return f"{read}, in full length"
        cut = self.logs.num_truncated
        return f"{read}; input.max_tokens={self.run.input.max_tokens} cuts {cut / max(1, len(self.logs)):.2%} of them ({cut:,})"

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        return []

    def best_score(self, progress: Progress) -> str:
        history = (
            f", where {HISTORY_TEXT[find_history(self.task, self.run.dev.history)]}"
            if self.task.backbone.reads_structure
            else ""
        )
        return f"best {self._metric.label} {progress.best:.4f} at step {progress.best_step}{history}"

    @property
    def _weighed(self) -> bool:
        """Whether the loss reads which messages share a conversation."""
        return self.task.config.conversation_weight > 0

    @property
    def _metric(self) -> Metric:
        """The metric that `dev.by` names, on data of this kind."""
        if self.store.structure == "replies":
            return {"link": GRAPH_ACCURACY, "cluster": CONV_ACCURACY, "loss": DEV_LOSS}[self.run.dev.by]
        return {"link": LINK_F1, "cluster": CLUSTER_F1, "loss": DEV_LOSS}[self.run.dev.by]

    def _measure(self, frozen: bool) -> Callable[[], dict[str, float]]:
        history = self.run.dev.history
        start = decode_start(self.dev)
        vectors = self._vectors(self.dev, list_read_messages(self.dev, start)) if frozen else None
        structure = ReplyStructure.from_gold(self.dev) if self.task.backbone.reads_structure else None
        collate = replace(make_collator(self.task, self.dev, vectors), structure=structure, same_conversation=self._weighed)
        linked = self.dev.linked[:METERED]

        def measure() -> dict[str, float]:
            parts = predict_posterior(self.task, self.run.decoding, self.dev, history=history, start=start, vectors=vectors)
            posterior = LinkPosterior.concatenate(list(parts))
            scores = self._scores(decode([posterior], self.dev, self.run.decoding))
            scores |= read_meters(self.task, list_batches(self.task, collate, linked))
            loss = self._loss(posterior)
            if loss is not None:
                return {DEV_LOSS.name: loss, **scores}
            if self._metric == DEV_LOSS:
                raise RamifyError(
                    "dev.by=loss needs known links within input.window, and the dev logs have none. Set dev.by=link, or a "
                    "longer window."
                )
            return scores

        return measure

    def _scores(self, decided: LinkDecisions) -> dict[str, float]:
        """Dev scores: links first, then whole conversations, then others."""
        if self.store.structure == "replies":
            reply_scores = score_parents(self.dev, decided.parent).scores()
            return {f"dev_{name}": value for name in REPLY_SCORES if (value := reply_scores[name]) is not None}
        scores = score(match_links(self.dev, self.dev_names, decided.links).logs)
        return {
            "dev_link_f1": scores["link"]["f1"],
            "dev_cluster_f1": scores["cluster"]["f1"],
            "dev_vi": scores["vi"],
        }

    def _loss(self, posterior: LinkPosterior) -> float | None:
        """Mean negative log-probability of known links in the window, in nats per message; None if there are none."""
        logs = self.dev
        is_link = logs.is_link(np.repeat(posterior.messages, posterior.lengths), posterior.candidates)
        starts = np.cumsum(posterior.lengths) - posterior.lengths
        probability = np.add.reduceat(np.where(is_link, posterior.probabilities, 0.0), starts)
        known = np.add.reduceat(is_link, starts) > 0
        return float(-np.log(np.maximum(probability[known], 1e-12)).mean()) if known.any() else None


def _teacher(path: str, device: torch.device) -> Disentangler:
    pipeline = hub.load(path).to(device)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"view.teachers: {path} is not a disentanglement model. Name runs of disentanglement recipes.")
    return pipeline


@dataclass(frozen=True, kw_only=True)
class DisentanglementRun(Run):
    """A model that finds the earlier messages that each message answers."""

    name: ClassVar[str] = "disentanglement"

    model: LinkModelConfig
    task: LinkConfig = field(default_factory=LinkConfig)
    input: ChatInput = field(default_factory=ChatInput)
    view: BlockConfig = field(default_factory=BlockConfig)
    tokenizer: WordsConfig = field(default_factory=WordsConfig)
    dev: LinkDevConfig = field(default_factory=LinkDevConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.decoding.check(self.task.objective)

    def check_settings(self, settings: Mapping[str, str]) -> None:
        if "model.features" in settings:
            raise RamifyError(
                f"--set model.features={settings['model.features']} would not set the learning rate of the features. Use "
                "--features, which sets both."
            )

    def adapt_to_data(self) -> Self:
        """A copy that ranks earlier comments if the data are reply trees, in which no comment starts a conversation."""
        structure = Store.open(self.data).structure
        if structure in ("texts", "document"):
            held = "single texts" if structure == "texts" else "documents"
            raise RamifyError(
                f"data={self.data} holds {held}, in which nobody replies to anybody. Disentanglement needs chat logs or "
                "discussions; train bert or tree-mlm on these data."
            )
        if structure == "log":
            return self
        # A threshold within conversations has no meaning without them.
        threshold = 0.0 if self.decoding.decide == "conversation" else self.decoding.threshold
        task = replace(self.task, objective="ranking", conversation_weight=0.0)
        return replace(self, task=task, decoding=replace(self.decoding, decide="link", threshold=threshold))

    def notes(self) -> list[str]:
        return []

    def prepare(self, out: Path) -> PreparedChats:
        store = Store.open(self.data)
        for split in ("train", "dev"):
            if not len(store.split(split)):
                raise RamifyError(
                    f"{self.data} has {counted(store.num_trees, 'log')}, but none is in the split {split}. Whole logs are "
                    "assigned to splits by a hash of their ids. Build the data with more logs (e.g. one IRC file per day), or "
                    "with "
                    f"a larger share of {split} (--split TRAIN,DEV,TEST)."
                )
        logs, dev = _logs(self, store, "train"), _logs(self, store, "dev")
        saved = out / "tokenizer.json"
        begun = saved.exists() and (out / RUN_FILE).exists()
        tokenizer = Tokenizer.load(saved) if begun else _words(self, logs)
        logs, dev = logs.tokenize(tokenizer), dev.tokenize(tokenizer)
        return PreparedChats(self, store, _build_task(self, tokenizer, logs), logs, dev, store.tree_ids(store.split("dev")))

    def normalized(self) -> Self:
        return replace(self, data="")

    @property
    def weight_sources(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.init, *self.view.teachers)))

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Scores of links and conversations; on reply trees, graph and conversation accuracy.

        Options: `history`, `beam`, `set`, `precision`, `progress`; on chat logs also `no_starts` and `protocol`.
        """
        saved = of_kind(pipeline, Disentangler, source, "a disentanglement model")
        known = ("history", "beam", "set", "precision", "progress", "no_starts", "protocol")
        check_options(options, known, source, "a disentanglement model")
        model = Disentangler(saved.task, redecided(saved.decoding, options.get("set", {})))
        beam, precision = options.get("beam", 1), options.get("precision", "fp32")
        if store.structure == "replies":
            check_options(options, known[:-2], str(store.path), "reply trees, not chat logs")
            history = options.get("history") or ("predicted" if beam > 1 else "gold")
            with autocast(model.device, precision):
                return ReplyScores(evaluate_replies(model, store, split, history=history, beam=beam))
        history, starts = options.get("history", "predicted"), not options.get("no_starts", False)
        with autocast(model.device, precision):
            measured = evaluate_links(model, store, split, starts=starts, history=history, beam=beam)
        return LinkScores.of(measured, options.get("protocol", "official"))

    def report_sections(self, request: ReportRequest) -> ReportParts:
        return report.parts(self.input.window, self.dev.history, request)

    def next_command(self, out: Path, store: Store) -> str:
        model = shlex.quote(str(out))
        if store.structure == "replies":
            return evaluation_command(out, self.data, store)
        return f"disentangle LOG --to html --out LOG.html --model {model}"


def redecided(config: DecodingConfig, settings: Mapping[str, str]) -> DecodingConfig:
    """A copy with settings from text. Raises `RamifyError` for settings that training fixes."""
    for key in settings:
        head, _, name = key.partition(".")
        if head != "decoding" or name not in vars(config):
            known = ", ".join(f"decoding.{setting}" for setting in vars(config))
            raise RamifyError(f"--set {key} cannot change a trained model. The settings that can are {known}.")
    return set_fields(config, {key.removeprefix("decoding."): (text, key) for key, text in settings.items()})


def _logs(run: DisentanglementRun, store: Store, split: Split) -> Logs:
    numbers = store.split(split)
    trees = track("reading logs", store.trees(numbers), len(numbers))
    ranking = run.task.objective == "ranking"
    if store.structure == "replies":
        if not ranking:
            raise RamifyError(
                f"task.objective={run.task.objective} does not fit the reply trees of {run.data}, where every comment has a "
                "parent. Set task.objective=ranking."
            )
        return build_reply_logs(trees, run.input)
    if split == "train":
        trees = _with_conversations(run, trees)
    logs = Logs.build(trees, run.input)
    return logs.drop_starts() if ranking else logs


def _with_conversations(run: DisentanglementRun, trees: Iterable[Tree]) -> Iterator[Tree]:
    """The logs, and then a sample of their known conversations (`view.conversations`)."""
    known, conversations = 0, []
    for tree in trees:
        yield tree
        known += sum(node.parents is not None for node in tree.nodes)
        conversations += split_by_gold(tree) if run.view.conversations else []
    remaining = run.view.conversations * known
    for number in np.random.Generator(np.random.Philox(key=run.seed)).permutation(len(conversations)).tolist():
        if remaining <= 0:
            return
        yield conversations[number]
        remaining -= len(conversations[number])


def _words(run: DisentanglementRun, logs: Logs) -> Tokenizer:
    if run.init:
        return Tokenizer.load(hf.locate(run.init))
    if logs.input.texts == "pieces":
        raise RamifyError("input.texts=pieces needs a checkpoint with a vocabulary of word pieces. Name one with --init.")
    messages = (words for channel in logs.channels for words in channel.tokens)
    return learn_vocabulary(track("counting words", messages, len(logs)), run.tokenizer.min_count)


def _build_task(run: DisentanglementRun, tokenizer: Tokenizer, logs: Logs) -> ReplyLinking:
    """The task of a run, with the weights of its checkpoint, or with word vectors learned from the logs."""
    for name, command in (("num_candidates", "candidate-pruner"), ("reranker_dim", "reranker")):
        if size := getattr(run.task, name):
            raise RamifyError(
                f"task.{name}={size} cannot be trained with the model; `ramify train {command}` fits it afterwards. Set "
                f"task.{name}=0."
            )
    torch.manual_seed(step_seed(run.seed, 0))
    config = run.model if run.model.vocab_size else run.model.for_vocabulary(tokenizer.vocab_size)
    backbone = config.build()
    backbone.check_input(logs.input)
    compares = backbone.reads_history or backbone.reads_context_features or backbone.candidate_attention is not None
    if run.view.negative_sampling_rate < 1 and compares:
        raise RamifyError(
            f"view.negative_sampling_rate={run.view.negative_sampling_rate} needs a model that scores candidates "
            f"independently; {model_name(run.model)} reads or compares several at once. Set view.negative_sampling_rate=1."
        )
    task = ReplyLinking(backbone, tokenizer, logs.input, run.task)
    if run.init:
        checkpoint = hub.checkpoint(run.init)
        config.initialize(backbone, checkpoint)
        if type(checkpoint.model) is type(config):
            hub.start_from(task, checkpoint.tensors, run.init)
    elif backbone.word_embedding is not None and run.tokenizer.vectors == "trained":
        table = backbone.word_embedding.weight
        with activity("making word vectors"):
            vectors = learn_word_vectors(logs.ids, logs.token_offsets, *table.shape)
        with torch.no_grad():
            table.copy_(torch.from_numpy(vectors))
    return task

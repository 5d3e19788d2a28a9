"""Runs on chat logs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify import hub
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.config import History
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.reply_trees import logs_of_replies
from ramify.disentangle.data.structure import Structure
from ramify.disentangle.data.words import learn_words, word_vectors
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.disentangle.batch import Vectors
from ramify.metrics.conversations import score
from ramify.registry import MODELS
from ramify.models import bert, hf
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.encoders import MaskedLMModel, encoder_config, load_encoder
from ramify.disentangle.models.mht import MHTConfig
from ramify.runs.config import RUN_FILE, BlockConfig, LinkDevConfig, Run, WordsConfig, WordsModelConfig
from ramify.disentangle.inference.vector_cache import kept_vectors
from ramify.runs.prepared import Prepared
from ramify.disentangle.inference.reply_trees import scored
from ramify.disentangle.inference.decode import Decided, Opinion, collator, heard_from, lead_in, opinions, settle, with_history
from ramify.disentangle.inference.links import known_conversations, matched
from ramify.disentangle.task import ReplyTo, ReplyToConfig
from ramify.disentangle.distillation import beliefs, lessons
from ramify.tokenizer import Tokenizer
from ramify.training.config import learns
from ramify.training.seeds import step_seed
from ramify.training.trainer import Stage
from ramify.tree import Tree

REPLY_SCORES = ("graph_accuracy", "conv_accuracy")
"""Of reply trees, what takes the place of F of links and of conversations while training."""

KINDS = dict(MODELS.values())
"""The model to a config."""

FREE = ("dropout", "attention_dropout", "chunk_tokens")
"""What a run may have otherwise than the saved model that it starts from."""


@dataclass(frozen=True)
class PreparedChats(Prepared):
    task: ReplyTo
    logs: Logs
    dev: Logs
    dev_names: list[str]

    def stage(self, number: int) -> Stage:
        assert isinstance(self.run.view, BlockConfig)
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
        assert isinstance(self.run.view, BlockConfig)
        return kept_vectors(self.task, logs, messages, self.run.view.vectors)

    @cached_property
    def _taught(self) -> Float[NDArray, "message place"] | None:
        """What teachers say of all messages, where there are any."""
        assert isinstance(self.run.view, BlockConfig)
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

    def _measure(self, frozen: bool) -> Callable[[], dict[str, float]]:
        assert isinstance(self.run.dev, LinkDevConfig)
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
                        "dev.by=loss: no message of the dev logs is known to answer one of those in reading.window. "
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
    task = hub.load(path).to(device)
    if not isinstance(task, ReplyTo):
        raise RamifyError(f"view.teachers: {path} does not say who replied to whom.")
    return task


def prepare(run: Run, out: Path) -> PreparedChats:
    """Open the logs, load or learn the words, build the model. `out` is where the run lies if it was begun before."""
    store = Store.open(run.data)
    for split in ("train", "dev"):
        if not len(store.split(split)):
            raise RamifyError(
                f"{run.data} has {store.num_trees:,} log(s), none of them in the split {split}: a log falls into a split as a "
                "whole, by a hash of its id. Build the data with more logs (of IRC a file a day, say), or with other shares, "
                "such as --split 0.5,0.5,0."
            )
    logs, dev = _logs(run, store, "train"), _logs(run, store, "dev")
    own = out / "tokenizer.json"
    begun = own.exists() and (out / RUN_FILE).exists()
    tokenizer = Tokenizer.load(own) if begun else _words(run, logs)
    logs, dev = logs.read_with(tokenizer), dev.read_with(tokenizer)
    return PreparedChats(run, store, _started(run, tokenizer, logs), logs, dev, store.tree_ids(store.split("dev")))


def fitting(run: Run) -> Run:
    """The run with the objective that its data leave it: a reply tree is one conversation, which no comment starts."""
    if isinstance(run.task, ReplyToConfig) and Store.open(run.data).holds_reply_trees:
        # A threshold inside conversations goes with them.
        threshold = 0.0 if run.task.decide == "conversation" else run.task.threshold
        task = replace(run.task, objective="ranking", decide="link", threshold=threshold, conversation_weight=0.0)
        return replace(run, task=task)
    return run


def _logs(run: Run, store: Store, split: Split) -> Logs:
    assert isinstance(run.reading, History)
    assert isinstance(run.task, ReplyToConfig)
    trees = store.trees(store.split(split))
    ranking = run.task.objective == "ranking"
    if store.holds_reply_trees:
        if not ranking:
            raise RamifyError(
                f"{run.data} holds reply trees, where every comment answers another message: only task.objective=ranking fits, "
                f"not {run.task.objective}."
            )
        return logs_of_replies(trees, run.reading)
    if split == "train":
        trees = _with_conversations(run, trees)
    logs = Logs.of(trees, run.reading)
    return logs.without_starts() if ranking else logs


def _with_conversations(run: Run, trees: Iterable[Tree]) -> Iterator[Tree]:
    """Logs, and after them some of the conversations that they are known to hold."""
    assert isinstance(run.view, BlockConfig)
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


def _words(run: Run, logs: Logs) -> Tokenizer:
    if run.init:
        return Tokenizer.load(hf.locate(run.init))
    if logs.history.texts == "pieces":
        raise RamifyError("a model that reads word pieces starts from a checkpoint that has them: name one with --init.")
    assert isinstance(run.tokenizer, WordsConfig)
    return learn_words((words for channel in logs.channels for words in channel.spelled), run.tokenizer.least)


def _own(config: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _started(run: Run, tokenizer: Tokenizer, logs: Logs) -> ReplyTo:
    """The run's task, with the weights of the checkpoint that it starts from, or word vectors learned from the logs."""
    assert isinstance(run.task, ReplyToConfig)
    for name in ("first_look", "second_look"):
        if getattr(run.task, name):
            command = name.replace("_", "-")
            raise RamifyError(f"task.{name} is learned once all else is: leave it at 0, and see `ramify train {command}`.")
    torch.manual_seed(step_seed(run.seed, 0))
    saved = hub.saved_config(run.init) if run.init else None
    config = run.model
    if isinstance(config, WordsModelConfig):
        config = replace(config, vocab_size=config.vocab_size or tokenizer.vocab_size)
    backbone = KINDS[type(config)](config)
    backbone.check(logs.history)
    assert isinstance(run.view, BlockConfig)
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
        assert isinstance(run.tokenizer, WordsConfig)
        if backbone.embedding is not None and run.tokenizer.vectors == "trained":
            vectors = word_vectors(logs.ids, logs.starts, config.vocab_size, config.dim)
            with torch.no_grad():
                backbone.embedding.weight.copy_(torch.from_numpy(vectors))
    elif run.init:
        bert.load_pretrained(backbone.encoder, hf.locate(run.init))
    return task

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
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.reply_trees import build_reply_logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.words import learn_vocabulary, learn_word_vectors
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.disentangle.batch import MessageVectors
from ramify.metrics.conversations import score
from ramify.registry import MODELS
from ramify.models import bert, hf
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.encoders import MaskedLMModel, build_encoder_config, load_encoder
from ramify.disentangle.models.mht import MHTConfig
from ramify.runs.config import RUN_FILE, BlockConfig, LinkDevConfig, Run, WordsConfig, WordsModelConfig
from ramify.disentangle.inference.vector_cache import load_or_encode
from ramify.runs.prepared import Prepared
from ramify.disentangle.inference.reply_trees import score_parents
from ramify.disentangle.inference.decode import LinkDecisions, decode
from ramify.disentangle.inference.ensemble import mean_probabilities
from ramify.disentangle.inference.evaluation import match_links
from ramify.disentangle.inference.predict import (
    add_candidates,
    decode_start,
    list_read_messages,
    make_collator,
    predict_posterior,
)
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.result import split_by_gold
from ramify.disentangle.config import LinkConfig
from ramify.disentangle.task import ReplyLinking
from ramify.disentangle.distillation import soft_targets
from ramify.tokenizer import Tokenizer
from ramify.training.trainer import Stage, learns, step_seed
from ramify.tree import Tree

REPLY_SCORES = ("graph_accuracy", "conv_accuracy")
"""Of reply trees, what takes the place of F of links and of conversations while training."""

KINDS = dict(MODELS.values())
"""The model to a config."""

FREE = ("dropout", "attention_dropout", "chunk_tokens")
"""What a run may have otherwise than the saved model that it starts from."""


@dataclass(frozen=True)
class PreparedChats(Prepared):
    task: ReplyLinking
    logs: Logs
    dev: Logs
    dev_names: list[str]

    def stage(self, number: int) -> Stage:
        assert isinstance(self.run.view, BlockConfig)
        shares = self._taught
        targets = self.logs.linked if shares is None else np.flatnonzero(shares.any(axis=1))
        if not len(targets):
            raise RamifyError(f"{self.run.data}: nobody says of any message in the training logs which one it answers.")
        # While the encoder has not begun to learn, what it makes of a message is the same at every step.
        frozen = not any(learns(stage, name) for stage in self.run.stages[: number + 1] for name in self._encoder_parameters)
        vectors = self._vectors(self.logs, add_candidates(self.logs, targets)) if frozen else None
        block = self.run.view.block if frozen else self.run.view.encoded_block
        view = Blocks(self.logs, targets, block=block, negative_sampling_rate=self.run.view.far, seed=self.run.seed)
        structure = ReplyStructure.from_gold(self.logs) if self.task.backbone.reads_structure else None
        measure = self._measure(frozen) if len(self.dev.links) else None
        weighed = self.task.config.conversation_weight > 0
        collate = replace(make_collator(self.task, self.logs, vectors), structure=structure, soft_targets=shares, same_conversation=weighed)
        return Stage(self.run.stages[number], view, collate, measure)

    def _vectors(self, logs: Logs, messages: Ints) -> MessageVectors | None:
        assert isinstance(self.run.view, BlockConfig)
        return load_or_encode(self.task, logs, messages, self.run.view.vectors)

    @cached_property
    def _taught(self) -> Float[NDArray, "message place"] | None:
        """What teachers say of all messages, where there are any."""
        assert isinstance(self.run.view, BlockConfig)
        if not self.run.view.teachers:
            return None
        if self.task.config.objective != "listwise":
            raise RamifyError(f"view.teachers is for task.objective=listwise, not {self.task.config.objective}.")
        teachers = [_teacher(path, self.task.device) for path in self.run.view.teachers]
        believed = mean_probabilities(teachers, lambda: self.store.trees(self.store.split("train")), self.logs.input.window)
        return soft_targets(self.logs, believed, self.run.view.trust)

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
            "beyond_window": known - len(logs.linked),
            "unknown_words": float(unknown.mean()) if len(unknown) else 0.0,
            "cut_messages": logs.num_truncated,
        }

    def _measure(self, frozen: bool) -> Callable[[], dict[str, float]]:
        assert isinstance(self.run.dev, LinkDevConfig)
        by, history = self.run.dev.by, self.run.dev.history
        start = decode_start(self.dev)
        vectors = self._vectors(self.dev, list_read_messages(self.dev, start)) if frozen else None

        def measure() -> dict[str, float]:
            parts = predict_posterior(self.task, self.run.decoding, self.dev, history=history, start=start, vectors=vectors)
            found = LinkPosterior.concatenate(list(parts))
            scores = self._scores(decode([found], self.dev, self.run.decoding))
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

    def _scores(self, decided: LinkDecisions) -> dict[str, float]:
        """On dev: of links, of whole conversations, and others."""
        if self.store.holds_reply_trees:
            found = score_parents(self.dev, decided.parent).scores()
            return {f"dev_{name}": value for name in REPLY_SCORES if (value := found[name]) is not None}
        scores = score(match_links(self.dev, self.dev_names, decided.links).logs)
        return {
            "dev_link_f1": scores["link"]["f1"],
            "dev_cluster_f1": scores["cluster"]["f1"],
            "dev_vi": scores["vi"],
        }

    def _loss(self, found: LinkPosterior) -> float | None:
        """Nats a message to say one of its links that are in the window; None where none is."""
        logs = self.dev
        is_link = logs.is_link(np.repeat(found.messages, found.lengths), found.candidates)
        starts = np.cumsum(found.lengths) - found.lengths
        said = np.add.reduceat(np.where(is_link, found.probabilities, 0.0), starts)
        known = np.add.reduceat(is_link, starts) > 0
        return float(-np.log(np.maximum(said[known], 1e-12)).mean()) if known.any() else None


def _teacher(path: str, device: torch.device) -> Disentangler:
    pipeline = hub.load(path).to(device)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"view.teachers: {path} does not say who replied to whom.")
    return pipeline


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
    logs, dev = logs.tokenize(tokenizer), dev.tokenize(tokenizer)
    return PreparedChats(run, store, _started(run, tokenizer, logs), logs, dev, store.tree_ids(store.split("dev")))


def fitting(run: Run) -> Run:
    """The run with the objective that its data leave it: a reply tree is one conversation, which no comment starts."""
    if isinstance(run.task, LinkConfig) and Store.open(run.data).holds_reply_trees:
        # A threshold inside conversations goes with them.
        threshold = 0.0 if run.decoding.decide == "conversation" else run.decoding.threshold
        task = replace(run.task, objective="ranking", conversation_weight=0.0)
        return replace(run, task=task, decoding=replace(run.decoding, decide="link", threshold=threshold))
    return run


def _logs(run: Run, store: Store, split: Split) -> Logs:
    assert isinstance(run.reading, ChatInput)
    assert isinstance(run.task, LinkConfig)
    trees = store.trees(store.split(split))
    ranking = run.task.objective == "ranking"
    if store.holds_reply_trees:
        if not ranking:
            raise RamifyError(
                f"{run.data} holds reply trees, where every comment answers another message: only task.objective=ranking fits, "
                f"not {run.task.objective}."
            )
        return build_reply_logs(trees, run.reading)
    if split == "train":
        trees = _with_conversations(run, trees)
    logs = Logs.build(trees, run.reading)
    return logs.drop_starts() if ranking else logs


def _with_conversations(run: Run, trees: Iterable[Tree]) -> Iterator[Tree]:
    """Logs, and after them some of the conversations that they are known to hold."""
    assert isinstance(run.view, BlockConfig)
    known, found = 0, []
    for tree in trees:
        yield tree
        known += sum(node.parents is not None for node in tree.nodes)
        found += split_by_gold(tree) if run.view.conversations else []
    wanted = run.view.conversations * known
    for number in np.random.Generator(np.random.Philox(key=run.seed)).permutation(len(found)).tolist():
        if wanted <= 0:
            return
        yield found[number]
        wanted -= len(found[number])


def _words(run: Run, logs: Logs) -> Tokenizer:
    if run.init:
        return Tokenizer.load(hf.locate(run.init))
    if logs.input.texts == "pieces":
        raise RamifyError("a model that reads word pieces starts from a checkpoint that has them: name one with --init.")
    assert isinstance(run.tokenizer, WordsConfig)
    return learn_vocabulary((words for channel in logs.channels for words in channel.tokens), run.tokenizer.least)


def _own(config: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _started(run: Run, tokenizer: Tokenizer, logs: Logs) -> ReplyLinking:
    """The run's task, with the weights of the checkpoint that it starts from, or word vectors learned from the logs."""
    assert isinstance(run.task, LinkConfig)
    for name, command in {"num_candidates": "first-look", "reranker_dim": "second-look"}.items():
        if getattr(run.task, name):
            raise RamifyError(f"task.{name} is learned once all else is: leave it at 0, and see `ramify train {command}`.")
    torch.manual_seed(step_seed(run.seed, 0))
    saved = hub.saved_config(run.init) if run.init else None
    config = run.model
    if isinstance(config, WordsModelConfig):
        config = replace(config, vocab_size=config.vocab_size or tokenizer.vocab_size)
    backbone = KINDS[type(config)](config)
    backbone.check_input(logs.input)
    assert isinstance(run.view, BlockConfig)
    if run.view.far < 1 and (backbone.reads_history or backbone.reads_context_features or backbone.listwise):
        raise RamifyError(
            "view.far below 1 is for models that read one candidate at a time and nothing around it: to this one all are "
            "history, or compared with each other. Leave view.far at 1."
        )
    task = ReplyLinking(backbone, tokenizer, logs.input, run.task)
    if saved is not None and isinstance(saved.model, MaskedLMModel):
        assert isinstance(config, MHTConfig | BertPairConfig)
        wanted = vars(build_encoder_config(saved.model)) | _own(config.encoder, *FREE, "pooling")
        hf.require(config.encoder, wanted, run.init, "model.encoder")
        load_encoder(backbone.encoder, saved.model, hf.read_tensors(hf.locate(run.init)), run.init)
    elif saved is not None:
        hf.require(config, vars(saved.model) | _own(config, *FREE), run.init)
        # Both looks were fitted to what the model believed then.
        saved_tensors = hf.read_tensors(hf.locate(run.init)).items()
        tensors = {name: own for name, own in saved_tensors if not name.startswith(("candidate_pruner.", "reranker."))}
        hub.load_own_tensors(task, tensors, run.init)
    elif isinstance(config, WordsModelConfig):
        assert isinstance(run.tokenizer, WordsConfig)
        if backbone.embedding is not None and run.tokenizer.vectors == "trained":
            vectors = learn_word_vectors(logs.ids, logs.token_offsets, config.vocab_size, config.dim)
            with torch.no_grad():
                backbone.embedding.weight.copy_(torch.from_numpy(vectors))
    elif run.init:
        bert.load_pretrained(backbone.encoder, hf.locate(run.init))
    return task

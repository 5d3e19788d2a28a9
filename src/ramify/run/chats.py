"""Runs on chat logs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ramify import hub
from ramify.chat.history import Blocks, History
from ramify.chat.logs import Logs
from ramify.chat.words import learn_words, word_vectors
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.link_batch import LinkCollator
from ramify.metrics.conversations import score
from ramify.models import hf
from ramify.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.run.config import RUN_FILE, BlockConfig, LinkDevConfig, Run, WordsConfig
from ramify.run.prepared import Prepared
from ramify.tasks.linking import Opinion, matched, opinions
from ramify.tasks.reply_to import ReplyTo, ReplyToConfig
from ramify.tokenizer import Tokenizer
from ramify.train import Stage, TrainConfig, step_seed


@dataclass(frozen=True)
class PreparedChats(Prepared):
    task: ReplyTo
    logs: Logs
    dev: Logs
    dev_names: list[str]

    def stage(self, config: TrainConfig) -> Stage:
        assert isinstance(self.run.view, BlockConfig)
        view = Blocks(self.logs, self.task.reading, block=self.run.view.block, known=True)
        if not len(view):
            raise RamifyError(f"{self.run.data}: nobody says of any message in the training logs which one it answers.")
        return Stage(config, view, LinkCollator(self.logs), self._measure() if len(self.dev.links) else None)

    def divisors(self) -> dict[str, float] | None:
        # A mean over messages, of which a step may hold more or fewer.
        return {"links": 0.0}

    def facts(self) -> dict[str, Any]:
        logs = self.logs
        known = int(logs.annotated.sum())
        view = Blocks(logs, self.task.reading, block=1, known=True)
        unknown = logs.ids == self.task.tokenizer.engine.token_to_id("[UNK]")
        return {
            "messages": len(logs),
            "messages_with_links": known,
            "beyond_window": known - int(view.sizes.sum()),
            "unknown_words": float(unknown.mean()) if len(unknown) else 0.0,
        }

    def _measure(self) -> Callable[[], dict[str, float]]:
        assert isinstance(self.run.dev, LinkDevConfig)
        by = self.run.dev.by

        def measure() -> dict[str, float]:
            found = Opinion.joined(list(opinions(self.task, self.dev)))
            answered, _ = found.likeliest()
            scores = score(matched(self.dev, self.dev_names, answered).logs)
            loss = self._loss(found)
            worst = {"link": 100 - scores["link"]["f1"], "cluster": 100 - scores["cluster"]["f1"], "loss": loss}
            return {
                "dev_loss": worst[by],
                "dev_nats": loss,
                "dev_link_f1": scores["link"]["f1"],
                "dev_cluster_f1": scores["cluster"]["f1"],
                "dev_vi": scores["vi"],
            }

        return measure

    def _loss(self, found: Opinion) -> float:
        """Nats a message to say one of its links that are in the window."""
        logs = self.dev
        is_link = logs.is_link(np.repeat(found.messages, found.lengths), found.candidates)
        starts = np.cumsum(found.lengths) - found.lengths
        said = np.add.reduceat(np.where(is_link, found.probabilities, 0.0), starts)
        known = np.add.reduceat(is_link, starts) > 0
        return float(-np.log(np.maximum(said[known], 1e-12)).mean())


def prepare(run: Run, out: Path) -> PreparedChats:
    """Open the logs, load or learn the words, build the model. `out` is where the run lies if it was begun before."""
    store = Store.open(run.data)
    for split in ("train", "dev"):
        if not len(store.split(split)):
            raise RamifyError(f"{run.data} has no logs for {split}: build it with a larger share (--split 0.9,0.1,0).")
    history = run.reading
    assert isinstance(history, History)
    assert isinstance(run.task, ReplyToConfig)
    assert isinstance(run.model, FeatureModelConfig)
    logs, dev = (
        Logs.of(store.trees(store.split(split)), causal=history.causal, faithful=history.faithful) for split in ("train", "dev")
    )
    own = out / "tokenizer.json"
    begun = own.exists() and (out / RUN_FILE).exists()
    tokenizer = Tokenizer.load(own) if begun else _words(run, logs)
    logs, dev = logs.read_with(tokenizer), dev.read_with(tokenizer)
    task = _started(run, run.model, run.task, history, tokenizer, logs)
    return PreparedChats(run, store, task, logs, dev, store.tree_ids(store.split("dev")))


def _words(run: Run, logs: Logs) -> Tokenizer:
    if run.init:
        return Tokenizer.load(hf.locate(run.init))
    assert isinstance(run.tokenizer, WordsConfig)
    return learn_words((words for channel in logs.channels for words in channel.spelled), run.tokenizer.least)


def _started(
    run: Run, model: FeatureModelConfig, config: ReplyToConfig, history: History, tokenizer: Tokenizer, logs: Logs
) -> ReplyTo:
    torch.manual_seed(step_seed(run.seed, 0))
    model = replace(model, vocab_size=model.vocab_size or tokenizer.vocab_size)
    backbone = FeatureModel(model)
    task = ReplyTo(backbone, tokenizer, history, config)
    if run.init:
        saved = hub.saved_config(run.init)
        assert saved is not None
        hf.require(model, vars(saved.model) | {"dropout": model.dropout}, run.init)
        hub.load_own_tensors(task, hf.read_tensors(hf.locate(run.init)), run.init)
    elif isinstance(run.tokenizer, WordsConfig) and run.tokenizer.vectors == "trained" and backbone.embedding is not None:
        vectors = word_vectors(logs.ids, logs.starts, model.vocab_size, model.dim)
        with torch.no_grad():
            backbone.embedding.weight.copy_(torch.from_numpy(vectors))
    return task

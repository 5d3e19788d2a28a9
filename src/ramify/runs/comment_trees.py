"""Runs on comment trees."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ramify import hub
from ramify.batching.batch import Collator
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.evaluation import context_spread, evaluate
from ramify.batching.forest import Forest, Ints, share_over
from ramify.models import bert, hf, tree_mlm
from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig
from ramify.runs.config import RUN_FILE, DevConfig, RegimeConfig, Run, TokenizerConfig, free
from ramify.runs.prepared import Prepared
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.tokenizer import Tokenizer, sample
from ramify.training.config import TrainConfig
from ramify.training.seeds import step_seed
from ramify.training.trainer import Stage, sampler
from ramify.batching.views.comment_trees import BLIND, Discussions, Reading, Seen, units

MIXED = 2
"""With fewer pieces a step, most steps are one piece."""
TOKENIZER_BYTES = 64 * 2**20
"""Text that a tokenizer is trained on (a uniform sample of the training split)."""


@dataclass(frozen=True)
class PreparedDiscussions(Prepared):
    """What training, evaluation and reports share."""

    task: MaskedLM
    forest: Forest

    def view(self, trees: Ints, *, seen: Seen | None = None, train: bool = False) -> tuple[Discussions, Collator]:
        """Units of these trees, and their collator: as the run trains (`train`), or whole trees for evaluation."""
        config = self._regime if train else RegimeConfig(predict_post=self._regime.predict_post)
        return discussions(self.task, self.forest, trees, seen=seen, regime=config, seed=self.run.seed)

    def stage(self, number: int) -> Stage:
        config = self.run.stages[number]
        view, collator = self.view(self.store.split("train"), train=True)
        _check_norm(self.run, view, config)
        trees = first_trees(self.forest, self.store.split("dev"), self._dev.targets)
        return Stage(config, view, collator, self._dev_loss(trees) if len(trees) else None)

    def divisors(self) -> dict[str, float] | None:
        norm = self.task.config.loss_norm
        if norm == "constant":
            return None
        return {"masked_lm": 1.0 if norm == "sum" else 0.0}

    def facts(self) -> dict[str, Any]:
        cut = self.forest.cut
        return {"cut": {**cut, "share_over": share_over(cut)}, "without_tokens": int((self.forest.length == 0).sum())}

    @property
    def _regime(self) -> RegimeConfig:
        assert isinstance(self.run.view, RegimeConfig)
        return self.run.view

    @property
    def _dev(self) -> DevConfig:
        assert isinstance(self.run.dev, DevConfig)
        return self.run.dev

    def _dev_loss(self, trees: Ints) -> Callable[[], dict[str, float]]:
        config, task = self._dev, self.task
        views = {"dev_loss": self.view(trees)}
        if config.without_context and task.reading.seen not in BLIND:
            views["dev_loss_none"] = self.view(trees, seen="none")

        def measure() -> dict[str, float]:
            scores = {
                name: evaluate(task, *view, trees, draws=config.draws, mask_rate=config.mask_rate or None)
                for name, view in views.items()
            }
            record = {name: each.summary()["loss"] for name, each in scores.items()}
            spread = context_spread(task, *views["dev_loss"])
            return record if spread is None else record | {"context_spread": spread}

        return measure


def discussions(
    task: MaskedLM, forest: Forest, trees: Ints, *, seen: Seen | None = None, regime: RegimeConfig | None = None, seed: int = 0
) -> tuple[Discussions, Collator]:
    """Units of some trees as a task reads them (or with other things seen), and their collator."""
    reading = task.reading_as(seen)
    parts = units(forest, trees, **asdict(regime or RegimeConfig()))
    return Discussions(forest, parts, reading, seed=seed, trees=trees), task.collator(forest, reading)


def prepare(run: Run, out: Path) -> PreparedDiscussions:
    """Open the data, load or train the tokenizer, build the model and initialise it. `out` is where the run lies if it was
    begun before: its tokenizer is taken then."""
    store = Store.open(run.data)
    if len(store.split("train")) == 0:
        raise RamifyError(f"{run.data} has no training trees: build it with a larger share for train (--split).")
    tokenizer = _tokenizer(run, store, out)
    assert isinstance(run.reading, Reading)
    torch.manual_seed(step_seed(run.seed, 0))
    assert isinstance(run.model, TreeMLMConfig | BertConfig)
    model_config = run.model if run.model.vocab_size else replace(run.model, vocab_size=tokenizer.vocab_size)
    if model_config.vocab_size < tokenizer.vocab_size:
        raise RamifyError(f"the tokenizer has {tokenizer.vocab_size} pieces, the model's vocabulary {model_config.vocab_size}.")
    if model_config.max_tokens < run.reading.longest:
        raise RamifyError(
            f"rows of up to {run.reading.longest} tokens are read, but model.max_tokens is {model_config.max_tokens}: "
            "set model.max_tokens too, or lower reading.max_tokens or reading.concatenate."
        )
    task = _started(run, model_config, tokenizer)
    forest = Forest.open(store, tokenizer, run.reading.max_tokens, run.reading.overflow)
    return PreparedDiscussions(run, store, task, forest)


def _started(run: Run, config: TreeMLMConfig | BertConfig, tokenizer: Tokenizer) -> MaskedLM:
    """The run's task, with the weights of the checkpoint that it starts from; refuses one that does not suit it."""
    assert isinstance(run.reading, Reading)
    assert isinstance(run.task, MaskedLMConfig)
    saved = hub.saved_config(run.init) if run.init else None
    from_bert = bool(run.init) and saved is None
    if not run.init_decoder and not (from_bert and isinstance(config, TreeMLMConfig)):
        raise RamifyError("init_decoder=false is for tree-mlm runs that start from a BERT-family checkpoint (--init).")
    if isinstance(config, TreeMLMConfig):
        backbone = TreeMLM(config)
        if from_bert:
            tree_mlm.init_from_bert(backbone, run.init, decoder=run.init_decoder)
    elif from_bert:
        backbone = bert.from_pretrained(run.init, **free(config))
        hf.require(config, vars(backbone.config), run.init)
    else:
        backbone = Bert(config)
    task = MaskedLM(backbone, tokenizer, run.reading, run.task)
    if saved is not None:
        rates = {name: getattr(config, name) for name in ("dropout", "attention_dropout")}
        hf.require(config, vars(saved.model) | rates, run.init)
        hf.require(run.task, {name: getattr(saved.task, name) for name in ("head", "tie_weights")}, run.init, "task")
        hub.load_own_tensors(task, hf.read_tensors(hf.locate(run.init)), run.init)
    return task


def _tokenizer(run: Run, store: Store, out: Path) -> Tokenizer:
    """A run's own where it was begun before; a tokenizer.json that lies in a folder without a run is none of its."""
    assert isinstance(run.tokenizer, TokenizerConfig)
    own = out / "tokenizer.json"
    if own.exists() and (out / RUN_FILE).exists():
        return Tokenizer.load(own)
    if run.tokenizer.path and run.init and hub.saved_config(run.init) is not None:
        raise RamifyError(f"{run.init} brings its own tokenizer, which its weights belong to: leave --tokenizer out.")
    path = run.tokenizer.path or run.init
    if path:
        tokenizer = Tokenizer.load(hf.locate(path) if not Path(path).is_file() else path)
        if run.tokenizer.path and run.init and Tokenizer.lies_in(hf.locate(run.init)):
            _check_pieces(tokenizer, Tokenizer.load(hf.locate(run.init)), run)
        return tokenizer
    if run.tokenizer.kind == "unigram" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RamifyError(
            "two processes do not train the same Unigram tokenizer: train one first (ramify tokenizer train --kind unigram) "
            "and name it with --tokenizer."
        )
    return train_tokenizer(store, run.tokenizer, seed=run.seed)


def _check_pieces(own: Tokenizer, theirs: Tokenizer, run: Run) -> None:
    """A checkpoint's vectors belong to its own pieces."""
    assert isinstance(run.tokenizer, TokenizerConfig)
    if other := [piece for piece, number in theirs.ids.items() if own.ids.get(piece) != number]:
        raise RamifyError(
            f"{run.tokenizer.path} does not have the pieces that the weights of {run.init} belong to ({other[0]!r} and "
            f"{len(other) - 1:,} more are others there): leave --tokenizer out."
        )


def train_tokenizer(store: Store, config: TokenizerConfig, *, seed: int = 0) -> Tokenizer:
    """A tokenizer trained on a sample of the training split, in bounded memory."""
    trees = store.split("train") if len(store.split("train")) else store.split("all")
    nodes = (np.arange(int(store.offsets[tree]), int(store.offsets[tree + 1])) for tree in trees)
    texts = (text for each in nodes for text in store.texts(each))
    return Tokenizer.train(
        sample(texts, TOKENIZER_BYTES, seed), kind=config.kind, vocab_size=config.vocab_size, lowercase=config.lowercase
    )


def _check_norm(run: Run, view: Discussions, config: TrainConfig) -> None:
    """Where steps hold different numbers of comments, dividing by a step's own weight undoes what the regime weighs."""
    task, regime = run.task, run.view
    assert isinstance(task, MaskedLMConfig)
    assert isinstance(regime, RegimeConfig)
    if task.loss_norm != "step" or regime.regime not in ("threads_debiased", "middle"):
        return
    if regime.regime == "threads_debiased":
        undone = "brings back the bias that view.regime=threads_debiased takes out"
    elif (pieces := len(view) / len(sampler(view, config, run.seed).steps(0))) < MIXED:
        undone = f"makes a comment that is alone in its piece weigh as much as sixty, where a step holds {pieces:.1f} pieces"
    else:
        return
    raise RamifyError(
        f"task.loss_norm=step weighs a comment by what else is in its step, which {undone}: choose task.loss_norm=constant."
    )


def first_trees(forest: Forest, trees: Ints, targets: int) -> Ints:
    """The first trees that together hold this many comments; none where all are bare posts."""
    comments = forest.offsets[trees + 1] - forest.offsets[trees] - 1
    if not comments.any():
        return trees[:0]
    return trees[: int(np.searchsorted(np.cumsum(comments), targets)) + 1]

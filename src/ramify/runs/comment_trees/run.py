"""Masked language models on comment trees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from ramify.batching.batch import Collator
from ramify.batching.forest import Forest, Ints, share_over
from ramify.batching.text_input import BLIND, Context, TextInput
from ramify.batching.views.comment_trees import Discussions, RegimeConfig
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.base import Pipeline
from ramify.inference.evaluation import COLLAPSED, context_spread, evaluate, masked_targets
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import discussions, first_trees, readable
from ramify.models.base import TextModelConfig
from ramify.progress import activity
from ramify.runs.base import Evaluation, ReportParts, ReportRequest, of_kind
from ramify.runs.comment_trees import report, scores
from ramify.runs.language_models import LanguageModelRun, PreparedLanguageModel, training_store
from ramify.runs.masked_lms import build_masked_lm
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig
from ramify.training.config import TrainConfig
from ramify.training.meters import read_meters
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage, token_budget

MIXED = 2
"""Pieces per step below which most steps hold a single piece."""

METERED = 500
"""Dev comments from which meters are read."""


@dataclass(frozen=True)
class DevConfig:
    """The dev loss during training: on the first dev trees with `targets` comments, with `draws` masks each."""

    targets: int = 2000
    draws: int = 1
    mask_rate: float = 0.0
    """Share of masked tokens, to compare models that were trained at different rates. 0: as in training."""
    without_context: bool = True
    """Whether to measure a model with context also without context (`dev_loss_none`), so that reports show the gain."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")
        if not 0 <= self.mask_rate <= 1:
            raise RamifyError(
                f"dev.mask_rate={self.mask_rate} is out of range. Set it above 0 and at most 1, or to 0 for the training rate."
            )
        if self.targets < 1 or self.draws < 1:
            raise RamifyError(f"dev.targets={self.targets} and dev.draws={self.draws} must both be at least 1.")


@dataclass(frozen=True)
class PreparedDiscussions(PreparedLanguageModel):
    """A run with its forest, for training and dev scores."""

    run: "CommentTreeRun"
    task: MaskedLM
    forest: Forest

    def view(self, trees: Ints, *, context: Context | None = None, train: bool = False) -> tuple[Discussions, Collator]:
        """Examples of these trees and their collator: cut as in training (`train`), or whole trees for evaluation.

        The targets are those that can read the context of training, whatever `context` they read.
        """
        config = self.run.view if train else RegimeConfig(predict_post=self.run.view.predict_post)
        only = readable(self.forest, trees, self.task.input.context)
        return discussions(self.task, self.forest, trees, context=context, regime=config, seed=self.run.seed, only=only)

    def stage(self, number: int) -> Stage[Discussions]:
        config = self.run.stages[number]
        view, collator = self.view(self.store.split("train"), train=True)
        _check_norm(self.run, view, config)
        trees = first_trees(self.forest, self.store.split("dev"), self.run.dev.targets)
        return Stage(config, view, collator, self._dev_loss(trees) if len(trees) else None)

    def facts(self) -> dict[str, Any]:
        cut = self.forest.cut
        return {"cut": {**cut, "share_over": share_over(cut)}, "without_tokens": int((self.forest.length == 0).sum())}

    def reads(self) -> str:
        cut, longest = self.forest.cut, self.task.input.max_tokens
        share = f"{share_over(cut):.2%} of them ({cut['tokens_over']:,}, in {counted(cut['texts_over'], 'text')})"
        return f"{counted(cut['tokens'], 'token')} in {counted(cut['texts'], 'text')}; input.max_tokens={longest} cuts {share}"

    def warnings(self, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
        spreads = [record["context_spread"] for record in metrics if "context_spread" in record]
        if not spreads or spreads[-1] >= COLLAPSED:
            return []
        return [
            f"the encoder's vectors vary by only {spreads[-1]:.2%} of their energy between texts, so no ancestor can help. Set "
            "a lower learning rate for the encoder, such as --set 'train.lr_scale=[[\"encoder\", 0.1]]'; see docs/training.md."
        ]

    def _dev_loss(self, trees: Ints) -> Callable[[], dict[str, float]]:
        config, task = self.run.dev, self.task
        views = {"dev_loss": self.view(trees)}
        if config.without_context and task.input.context not in BLIND:
            views["dev_loss_none"] = self.view(trees, context="none")

        few = self.view(first_trees(self.forest, trees, min(config.targets, METERED)))

        def measure() -> dict[str, float]:
            measured = {
                name: evaluate(task, *view, trees, draws=config.draws, mask_rate=config.mask_rate or None)
                for name, view in views.items()
            }
            record = {name: context_scores.summary()["loss"] for name, context_scores in measured.items()}
            record |= read_meters(task, masked_targets(task, *few, mask_rate=config.mask_rate or None))
            spread = context_spread(task, *views["dev_loss"])
            return record if spread is None else record | {"context_spread": spread}

        return measure


@dataclass(frozen=True, kw_only=True)
class CommentTreeRun(LanguageModelRun):
    """A masked language model on comment trees, with or without the ancestors of each comment."""

    name: ClassVar[str] = "comment-trees"

    model: TextModelConfig
    task: MaskedLMConfig = field(default_factory=MaskedLMConfig)
    input: TextInput = field(default_factory=TextInput)
    view: RegimeConfig = field(default_factory=RegimeConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dev: DevConfig = field(default_factory=DevConfig)
    init_decoder: bool = True
    """Whether a BERT-family checkpoint also initializes the decoder of a TreeMLM, or its encoder alone."""

    def notes(self) -> list[str]:
        store = Store.open(self.data)
        if store.structure != "log":
            return []
        share = float((store.depth == 0).mean())
        return [
            f"{self.data} holds chat logs. {share:.0%} of the messages have no known parent, so the model reads but does not "
            "predict them. Find their parents first with `ramify disentangle … --to jsonl`; see docs/training.md."
        ]

    def prepare(self, out: Path) -> PreparedDiscussions:
        store = training_store(self.data)
        if self.task.next_sentence:
            raise RamifyError(
                f"task.next_sentence={self.task.next_sentence} needs rows of two segments, but comments are single texts. Set "
                "task.next_sentence=0, or train on running text (ramify train bert --rows pairs)."
            )
        tokenizer = tokenizer_of(self.tokenizer, self.init, store, out, seed=self.seed)
        torch.manual_seed(step_seed(self.seed, 0))
        task = build_masked_lm(self.model, tokenizer, self.input, self.task, self.init, init_decoder=self.init_decoder)
        forest = self.input.forest(store, tokenizer)
        if task.weighs_words:
            with activity("counting words"):
                task.count_words(forest.piece_counts(store.split("train"), task.backbone.config.vocab_size))
        return PreparedDiscussions(self, store, task, forest)

    def normalized(self) -> Self:
        return replace(self, data="", input=replace(self.input, max_context=self.input.context_length))

    @classmethod
    def evaluate(cls, pipeline: Pipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> Evaluation:
        """Held-out loss, compared with that of the model's own context or of another model. Options: those of
        `scores`."""
        model = of_kind(pipeline, MaskFiller, source, "a masked language model")
        return scores.evaluate(model, source, store, split, options)

    def report_sections(self, request: ReportRequest) -> ReportParts:
        return report.parts(self.input.context, request)


def _check_norm(run: CommentTreeRun, view: Discussions, config: TrainConfig) -> None:
    """Raise if `loss_norm=step` would undo the weights of the regime, because steps hold different numbers of comments."""
    task, regime = run.task, run.view
    if task.loss_norm != "step" or regime.regime not in ("threads_debiased", "middle"):
        return
    if regime.regime == "threads_debiased":
        undone = "restores the bias that view.regime=threads_debiased removes"
    elif (pieces := len(view) / len(token_budget(view, config, run.seed).steps(0))) < MIXED:
        undone = f"gives a single comment the weight of a whole piece when a step holds {pieces:.1f} pieces"
    else:
        return
    raise RamifyError(f"task.loss_norm=step divides by the comments of each step, which {undone}. Set task.loss_norm=constant.")

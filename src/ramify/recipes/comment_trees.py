"""Masked language models on comment trees."""

from dataclasses import replace

from ramify import hub
from ramify.batching.views.comment_trees import Reading
from ramify.models.bert import BertConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.runs import Run, TokenizerConfig, sized
from ramify.training.config import TrainConfig

BESIDE_NEW_LAYERS = (("encoder", 0.1), (r"\.cross\.", 3.0))
"""Learning rates where a pretrained encoder meets cross-attention that knows nothing yet. The gradient that reaches the encoder
is noise at first, and Adam makes full steps of it: at the common rate all texts' vectors become one (benchmarks/results.md)."""


def tree_mlm(
    data: str,
    *,
    steps: int = 2000,
    target_tokens: int = 0,
    init: str = "",
    tokenizer: str = "",
    max_tokens: int = 128,
    seed: int = 0,
) -> Run:
    """Tree-conditioned masked language model: every comment given everything said above it.

    `ramify train tree-mlm --data DIR --out RUN`: 8 M parameters with a 16k vocabulary, 4,096 tokens a step.
    With `--init DIR` (a BERT-family checkpoint such as all-MiniLM-L6-v2, or a tree-mlm model that Ramify saved) it takes over
    that model's sizes, tokenizer and weights, and learns at rates that suit them.
    """
    stage = TrainConfig(steps=steps, target_tokens=target_tokens, lr=1e-4 if init else 5e-4)
    model = TreeMLMConfig(max_tokens=max_tokens, dropout=0.1)
    if init and hub.saved_config(init) is None:
        stage = replace(stage, lr=3e-4, lr_scale=BESIDE_NEW_LAYERS)
        model = replace(model, cross_init="zero")
    return Run(
        recipe="tree-mlm",
        data=data,
        model=sized(model, init),
        reading=Reading(max_tokens=max_tokens),
        stages=(stage,),
        tokenizer=TokenizerConfig(path=tokenizer),
        init=init,
        seed=seed,
    )


def bert(
    data: str,
    *,
    steps: int = 2000,
    target_tokens: int = 0,
    init: str = "",
    tokenizer: str = "",
    max_tokens: int = 128,
    concatenate: int = 0,
    seed: int = 0,
) -> Run:
    """BERT-style masked language model on single comments, or with their ancestors' texts before them (`--concatenate 256`).

    `ramify train bert --data DIR --out RUN`: the baseline that knows no tree. 7 M parameters with a 16k vocabulary.
    """
    return Run(
        recipe="bert",
        data=data,
        model=sized(BertConfig(max_tokens=max(concatenate, max_tokens)), init),
        reading=Reading(max_tokens=max_tokens, seen="tree" if concatenate else "none", concatenate=concatenate),
        stages=(TrainConfig(steps=steps, target_tokens=target_tokens, lr=1e-4 if init else 5e-4),),
        tokenizer=TokenizerConfig(path=tokenizer),
        init=init,
        seed=seed,
    )

"""Masked language models on comment trees."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from ramify.recipes.options import Data, Init, MaxTokens, Seed, Steps, TargetTokens, TokenizerPath

if TYPE_CHECKING:
    from ramify.runs import Run

BESIDE_NEW_LAYERS = (("encoder", 0.1), (r"\.cross\.", 3.0))
"""Factors of the learning rate when a pretrained encoder gets new cross-attention. The encoder's first gradients are noise, and
Adam takes full steps along noise: at the common rate, all texts collapse to one vector."""


def tree_mlm(
    data: Data,
    *,
    steps: Steps = 2000,
    target_tokens: TargetTokens = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    max_tokens: MaxTokens = 128,
    seed: Seed = 0,
) -> "Run":
    """Masked language model on comment trees, conditioned on the ancestors of each comment.

    It has 8 M parameters with a 16k vocabulary, and reads 4,096 tokens per step. With --init (a BERT-family checkpoint such as
    all-MiniLM-L6-v2, or a saved tree-mlm model) it takes that model's sizes, tokenizer and weights, and lower learning rates.

    Example: ramify train tree-mlm --data data/reddit --out runs/reddit --set train.steps=2000 --set model.encoder_layers=2
    """
    from ramify import hub
    from ramify.batching.views.comment_trees import TextInput
    from ramify.models.tree_mlm import TreeMLMConfig
    from ramify.runs.comment_trees import CommentTreeRun, TokenizerConfig
    from ramify.training.config import TrainConfig

    stage = TrainConfig(steps=steps, target_tokens=target_tokens, lr=1e-4 if init else 5e-4)
    model = TreeMLMConfig(max_tokens=max_tokens, dropout=0.1)
    if init and hub.saved_config(init) is None:
        stage = replace(stage, lr=3e-4, lr_scale=BESIDE_NEW_LAYERS)
        model = replace(model, cross_init="zero")
    run = CommentTreeRun(
        recipe="tree-mlm",
        data=data,
        model=model,
        input=TextInput(max_tokens=max_tokens),
        stages=(stage,),
        tokenizer=TokenizerConfig(path=tokenizer),
        init=init,
        seed=seed,
    )
    return run.sized(init)


def bert(
    data: Data,
    *,
    steps: Steps = 2000,
    target_tokens: TargetTokens = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    max_tokens: MaxTokens = 128,
    concatenate: Annotated[int, "Prepend the ancestors' texts to each comment, up to this many tokens in all (0: none)."] = 0,
    seed: Seed = 0,
) -> "Run":
    """BERT-style masked language model on single comments: the baseline without tree structure.

    It has 7 M parameters with a 16k vocabulary. With --concatenate 256, it reads the ancestors' texts before the comment's.

    Example: ramify train bert --data data/reddit --out runs/bert --steps 1000
    """
    from ramify.batching.views.comment_trees import TextInput
    from ramify.models.bert import BertConfig
    from ramify.runs.comment_trees import CommentTreeRun, TokenizerConfig
    from ramify.training.config import TrainConfig

    run = CommentTreeRun(
        recipe="bert",
        data=data,
        model=BertConfig(max_tokens=max(concatenate, max_tokens)),
        input=TextInput(max_tokens=max_tokens, context="tree" if concatenate else "none", concatenate=concatenate),
        stages=(TrainConfig(steps=steps, target_tokens=target_tokens, lr=1e-4 if init else 5e-4),),
        tokenizer=TokenizerConfig(path=tokenizer),
        init=init,
        seed=seed,
    )
    return run.sized(init)

"""Masked language models on comment trees."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from ramify.errors import RamifyError
from ramify.recipes.options import Data, Init, Seed, TokenizerPath, check_of_checkpoint

if TYPE_CHECKING:
    from ramify.runs.comment_trees.run import CommentTreeRun

Size = Literal["small", "base"]


class Sizes(NamedTuple):
    """The settings that differ between the sizes of tree-mlm."""

    max_tokens: int
    dim: int
    ffn_dim: int
    layers: int
    """Layers of the encoder, and of the decoder."""
    max_context: int
    vocab_size: int
    target_tokens: int
    budget: int
    lr: float


SIZES: dict[Size, Sizes] = {
    "small": Sizes(64, 128, 512, 2, max_context=8, vocab_size=8192, target_tokens=2_500_000, budget=2048, lr=2e-3),
    "base": Sizes(128, 256, 1024, 4, max_context=32, vocab_size=16_384, target_tokens=25_000_000, budget=4096, lr=1e-3),
}

BESIDE_NEW_LAYERS = (("encoder", 0.1), (r"\.cross\.|output_attention|_words", 3.0))
"""Factors of the learning rate when a pretrained encoder gets new layers. The encoder's first gradients are noise, and Adam
takes full steps along noise: at the common rate, all texts collapse to one vector."""


def tree_mlm(
    data: Data,
    *,
    size: Annotated[
        Size | None,
        "small: texts of 64 tokens, vectors of 128. base: texts of 128 tokens, vectors of 256. Default: small. A BERT-family "
        "checkpoint of --init keeps its own vectors.",
    ] = None,
    paper: Annotated[bool, "The design of the paper (Juneja 2021), without this recipe's additions."] = False,
    steps: Annotated[int | None, "Number of updates. Default: --target-tokens decides."] = None,
    target_tokens: Annotated[
        int | None, "Stop after this many tokens of predicted comments. Default: 2.5 million (small), 25 million (base)."
    ] = None,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    max_tokens: Annotated[int | None, "Longest text in tokens, special tokens included. Default: that of --size."] = None,
    seed: Seed = 0,
) -> "CommentTreeRun":
    """Masked language model on comment trees, conditioned on the ancestors of each comment.

    Beyond the paper, each state attends to the ancestors' vectors once more before it predicts a word, and the vectors learn to
    predict the words of their own texts and of the replies. The size small trains in about ten minutes on one CPU core. With
    --init (a BERT-family checkpoint such as all-MiniLM-L6-v2, or a saved tree-mlm model), the run takes that model's sizes,
    tokenizer and weights, and lower learning rates.

    Example: ramify train tree-mlm --data data/reddit --out runs/reddit --size base --set train.precision=bf16
    """
    from ramify import hub
    from ramify.batching.text_input import TextInput
    from ramify.batching.views.comment_trees import RegimeConfig
    from ramify.models.tree_mlm import TreeMLMConfig
    from ramify.runs.comment_trees.run import CommentTreeRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.tasks.masked_lm import MaskedLMConfig
    from ramify.training.config import TrainConfig

    sizes = SIZES[size or "small"]
    longest = sizes.max_tokens if max_tokens is None else max_tokens
    if steps is None and target_tokens is None:
        target_tokens = sizes.target_tokens
    stage = TrainConfig(
        steps=0 if steps is None else steps,
        target_tokens=0 if target_tokens is None else target_tokens,
        budget=sizes.budget,
        budget_unit="target_tokens",
        lr=sizes.lr,
    )
    model = TreeMLMConfig(
        max_tokens=longest,
        dim=sizes.dim,
        ffn_dim=sizes.ffn_dim,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
    )
    input = TextInput(max_tokens=longest)
    view, task = RegimeConfig(), MaskedLMConfig()
    if paper:
        stage = replace(stage, lr=5e-4)
    else:
        model = replace(model, norm="pre", cross_init="zero", output_attention=True)
        input = replace(input, max_context=sizes.max_context)
        view = replace(view, regime="middle", max_tree_size=20)
        task = replace(task, mask_rate=0.3, own_words=0.3, reply_words=0.3)
    pretrained = bool(init) and hub.saved_config(init) is None
    if init:
        stage = replace(stage, lr=3e-4 if pretrained else 1e-4, lr_scale=BESIDE_NEW_LAYERS if pretrained else ())
        model = replace(model, cross_init="zero")
    run = CommentTreeRun(
        recipe="tree-mlm",
        data=data,
        model=model,
        task=task,
        input=input,
        view=view,
        stages=(stage,),
        tokenizer=TokenizerConfig(path=tokenizer, vocab_size=sizes.vocab_size),
        init=init,
        seed=seed,
    )
    run = _of_design(run.sized(init), paper)
    if not pretrained:
        check_of_checkpoint(run, "size", size, model, "dim", "encoder_layers", "decoder_layers")
    return run


def _of_design(run: "CommentTreeRun", paper: bool) -> "CommentTreeRun":
    """Return the run. Raises if the model of --init has not the design that the command asks for."""
    from ramify.models.tree_mlm import TreeMLMConfig

    if isinstance(run.model, TreeMLMConfig) and run.model.output_attention == paper:
        has, asked = (
            ("has", "--paper trains a model without it. Leave --paper out")
            if paper
            else ("has no", "the recipe adds it. Add --paper to go on with the paper's design")
        )
        raise RamifyError(f"The model of --init {run.init} {has} output attention, but {asked}, or choose another model.")
    return run

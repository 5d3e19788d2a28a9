"""Masked language models on running text of any data set with texts: BERT and RoBERTa.

They train as published, or with the positions, masks and updates that a search on little text suggests.
"""

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from ramify.errors import RamifyError
from ramify.recipes.options import Data, Init, Seed, TokenizerPath, check_of_checkpoint

if TYPE_CHECKING:
    from ramify.models.bert import BertConfig
    from ramify.runs import Run

Size = Literal["small", "base", "paper"]

Length = Annotated[int | None, "Length of a row in tokens, special tokens included. Default: that of --size."]
Updates = Annotated[int | None, "Number of updates. Default: that of --size."]
Limit = Annotated[int, "Stop after this many tokens of rows or comments, in place of --steps (0: after --steps)."]
Published = Annotated[
    bool,
    "Train as published, with learned positions, fewer masks and larger updates. --size paper always does.",
]
SIZE_HELP = "small: 2 layers of 128. base: 4 layers of 256. paper: 12 layers of 768 and the published schedule."


class Sizes(NamedTuple):
    """The settings of a size."""

    dim: int
    layers: int
    vocab_size: int
    max_tokens: int
    positions: int
    """Rows of the position table if --max-tokens does not set it: the longest row that the model can read later."""
    steps: int
    budget: int
    accumulate: int
    lr: float
    warmup: float
    attention_dropout: float
    position: Literal["learned", "sinusoidal", "relative"] = "learned"
    norm: Literal["post", "pre"] = "post"
    mask_rate: float = 0.15

    def model(self, **settings: Any) -> "BertConfig":
        """The published proportions: heads of 64 and feed-forward layers four times as wide."""
        from ramify.models.bert import BertConfig

        return BertConfig(
            dim=self.dim,
            num_layers=self.layers,
            num_heads=self.dim // 64,
            ffn_dim=4 * self.dim,
            attention_dropout=self.attention_dropout,
            position=self.position,
            norm=self.norm,
            **settings,
        )


SMALL = Sizes(128, 2, 8192, 128, 128, 2000, budget=4096, accumulate=1, lr=1e-3, warmup=0.1, attention_dropout=0.0)
BASE = Sizes(256, 4, 16_384, 128, 128, 2000, budget=4096, accumulate=1, lr=5e-4, warmup=0.1, attention_dropout=0.0)

BERT: dict[Size, Sizes] = {
    "small": SMALL,
    "base": BASE,
    # 256 rows per update.
    "paper": Sizes(768, 12, 30_522, 128, 512, 1_000_000, 256 * 128, 1, 1e-4, warmup=0.01, attention_dropout=0.1),
}

ROBERTA: dict[Size, Sizes] = {
    "small": SMALL,
    "base": BASE,
    # 8,192 rows per update.
    "paper": Sizes(768, 12, 50_265, 512, 512, 500_000, 256 * 512, 32, 7e-4, warmup=0.048, attention_dropout=0.1),
}

LITTLE_TEXT: dict[Size, Sizes] = {
    "small": SMALL._replace(position="relative", mask_rate=0.4, budget=512, steps=16_000),
    "base": BASE._replace(position="relative", mask_rate=0.4),
}
"""In a search at `small` with one seed per setting, the three changes together left the plateau of word frequencies after
.375 M tokens; learned positions, masks of 15 % and updates of 2,048 tokens after 1 M. `base` and RoBERTa have no figure yet."""


def _sizes(published_sizes: dict[Size, Sizes], size: Size, published: bool) -> Sizes:
    return published_sizes[size] if published or size == "paper" else LITTLE_TEXT[size]


def bert(
    data: Data,
    *,
    rows: Annotated[
        Literal["pairs", "comments"],
        "pairs: two segments of running text per row, and whether the second follows the first. comments: one comment per row.",
    ] = "pairs",
    size: Annotated[Size | None, f"{SIZE_HELP} Default: small; with --rows comments, base."] = None,
    steps: Updates = None,
    target_tokens: Limit = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    max_tokens: Length = None,
    concatenate: Annotated[
        int, "With --rows comments: prepend the ancestors' texts to each comment, up to this many tokens in all (0: none)."
    ] = 0,
    published: Published = False,
    seed: Seed = 0,
) -> "Run":
    """BERT (Devlin et al. 2019): masked words and the next sentence, on rows of running text.

    Any data set with texts will do: its sentences are read in stored order. --size small trains in a few minutes on one CPU
    core. The published run (--size paper) takes 1,000,000 updates; its last tenth, at 512 tokens, is a run of its own. With
    --rows comments, the model is the baseline without trees: single comments, or comments after their ancestors' texts.

    Example: ramify train bert --data data/books --out runs/bert
    """
    if concatenate and rows != "comments":
        raise RamifyError(
            f"--concatenate {concatenate} prepends the texts of a comment's ancestors, but --rows {rows} reads running text. "
            "Add --rows comments, or leave --concatenate out."
        )
    if rows == "comments":
        return _on_comments(data, size, steps, target_tokens, init, tokenizer, max_tokens, concatenate, seed)
    from ramify.batching.text_input import TextInput
    from ramify.runs.packed_text.run import PackedTextRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.tasks.masked_lm import MaskedLMConfig

    sizes = _sizes(BERT, size or "small", published)
    longest = sizes.max_tokens if max_tokens is None else max_tokens
    run = PackedTextRun(
        recipe="bert",
        data=data,
        model=sizes.model(max_tokens=sizes.positions if max_tokens is None else max_tokens, pooling="pooler"),
        task=MaskedLMConfig(
            head="bert",
            comment_loss="token",
            loss_norm="tokens",
            next_sentence=1.0,
            mask_rate=sizes.mask_rate,
            # The published caps: 20 in 128 tokens, 77 in 512.
            max_predictions=math.ceil(sizes.mask_rate * longest),
        ),
        input=TextInput(max_tokens=longest, context="none"),
        rows="pairs",
        stages=(_stage(sizes, steps, target_tokens, init, betas=(0.9, 0.999)),),
        tokenizer=TokenizerConfig(path=tokenizer, vocab_size=sizes.vocab_size),
        init=init,
        seed=seed,
    )
    return _checked(run.sized(init), size, published, sizes)


def roberta(
    data: Data,
    *,
    rows: Annotated[
        Literal["sentences", "documents"],
        "sentences: full sentences up to the length, also of several documents. documents: of one document per row.",
    ] = "sentences",
    size: Annotated[Size | None, f"{SIZE_HELP} Default: small."] = None,
    steps: Updates = None,
    target_tokens: Limit = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    max_tokens: Length = None,
    published: Published = False,
    seed: Seed = 0,
) -> "Run":
    """RoBERTa (Liu et al. 2019): BERT on rows of full sentences, with new masks in every epoch and no next-sentence loss.

    Any data set with texts will do. The tokenizer is a byte-level BPE that keeps capitals. --size small trains in a few minutes
    on one CPU core.

    Example: ramify train roberta --data data/books --out runs/roberta
    """
    from ramify.batching.text_input import TextInput
    from ramify.batching.views.packed import PackConfig
    from ramify.runs.packed_text.run import PackedTextRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.tasks.masked_lm import MaskedLMConfig

    sizes = _sizes(ROBERTA, size or "small", published)
    longest = sizes.max_tokens if max_tokens is None else max_tokens
    run = PackedTextRun(
        recipe="roberta",
        data=data,
        model=sizes.model(max_tokens=sizes.positions if max_tokens is None else max_tokens, type_vocab_size=0, eps=1e-5),
        task=MaskedLMConfig(head="bert", comment_loss="token", loss_norm="tokens", mask_rate=sizes.mask_rate),
        input=TextInput(max_tokens=longest, context="none"),
        rows="sentences",
        packing=PackConfig(cross_documents=rows == "sentences"),
        stages=(_stage(sizes, steps, target_tokens, init, betas=(0.9, 0.98)),),
        tokenizer=TokenizerConfig(path=tokenizer, kind="bpe", vocab_size=sizes.vocab_size, lowercase=False),
        init=init,
        seed=seed,
    )
    return _checked(run.sized(init), size, published, sizes)


def _checked(run: "Run", size: Size | None, published: bool, sizes: Sizes) -> "Run":
    """The run. Raises `RamifyError` if --size or --published asks for another model than that of --init."""
    asked = sizes.model()
    check_of_checkpoint(run, "size", size, asked, "dim", "num_layers")
    check_of_checkpoint(run, "published", published, asked, "position")
    return run


def _stage(sizes: Sizes, steps: int | None, target_tokens: int, init: str, *, betas: tuple[float, float]) -> Any:
    """The published optimizer: weight decay 0.01 for matrices, epsilon 1e-6, a linear warm-up and decay, clipping at 1."""
    from ramify.training.config import TrainConfig

    return TrainConfig(
        steps=0 if target_tokens and steps is None else sizes.steps if steps is None else steps,
        target_tokens=target_tokens,
        budget=sizes.budget,
        accumulate=sizes.accumulate,
        lr=1e-4 if init else sizes.lr,
        warmup=sizes.warmup,
        betas=betas,
    )


def _on_comments(
    data: str,
    size: Size | None,
    steps: int | None,
    target_tokens: int,
    init: str,
    tokenizer: str,
    max_tokens: int | None,
    concatenate: int,
    seed: int,
) -> "Run":
    """The baseline of comment trees: BERT's encoder and masks on comments."""
    from ramify.batching.text_input import TextInput
    from ramify.runs.comment_trees.run import CommentTreeRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.training.config import TrainConfig

    sizes = BERT[size or "base"]
    longest = sizes.max_tokens if max_tokens is None else max_tokens
    stage = TrainConfig(
        steps=0 if target_tokens else sizes.steps if steps is None else steps,
        target_tokens=target_tokens,
        budget=sizes.budget,
        lr=1e-4 if init else sizes.lr,
        warmup=sizes.warmup,
    )
    run = CommentTreeRun(
        recipe="bert",
        data=data,
        model=sizes.model(max_tokens=max(concatenate, longest)),
        input=TextInput(max_tokens=longest, context="tree" if concatenate else "none", concatenate=concatenate),
        stages=(stage,),
        tokenizer=TokenizerConfig(path=tokenizer, vocab_size=sizes.vocab_size),
        init=init,
        seed=seed,
    )
    return _checked(run.sized(init), size, False, sizes)

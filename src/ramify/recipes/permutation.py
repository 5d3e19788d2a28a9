"""XLNet and its relatives, on running text of any data set with texts."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from ramify.errors import RamifyError
from ramify.recipes.options import Data, Seed, TokenizerPath, check_of_checkpoint

if TYPE_CHECKING:
    from ramify.runs import Run
    from ramify.runs.streams.run import StreamRun
    from ramify.tasks.permutation_lm import OrderKind
    from ramify.tasks.stream_task import StreamTaskConfig

Init = Annotated[
    str, "Checkpoint to start from (directory or hub id): an XLNet in Hugging Face's form, or a saved model of this recipe."
]
Size = Literal["small", "base", "paper"]
SizeOption = Annotated[
    Size | None,
    "small: 2 layers of 128. base: 4 layers of 256. paper: the sizes and the schedule of XLNet-Base. Default: small.",
]
Order = Literal["permutation", "forward", "backward"]
OrderOption = Annotated[
    Order,
    "The order in which tokens are read. forward: left to right, as in Transformer-XL. backward: right to left.",
]
Updates = Annotated[int | None, "Number of updates. Default: that of --size."]
Limit = Annotated[int, "Stop after this many tokens of rows, in place of --steps (0: after --steps)."]


class Sizes(NamedTuple):
    """The settings of a size."""

    dim: int
    layers: int
    vocab_size: int
    row_tokens: int
    memory: int
    streams: int
    steps: int
    lr: float
    warmup: float
    attention_dropout: float


SIZES: dict[Size, Sizes] = {
    "small": Sizes(128, 2, 8192, 128, 96, streams=8, steps=2000, lr=1e-3, warmup=0.06, attention_dropout=0.0),
    "base": Sizes(256, 4, 16_384, 128, 96, streams=8, steps=5000, lr=6e-4, warmup=0.06, attention_dropout=0.0),
    "paper": Sizes(768, 12, 32_000, 512, 384, streams=1024, steps=500_000, lr=4e-4, warmup=0.08, attention_dropout=0.1),
}


def xlnet(
    data: Data,
    *,
    size: SizeOption = None,
    objective: Annotated[
        Literal["permutation", "denoising"],
        "permutation: the last tokens of a random order. denoising: masked tokens, as in BERT.",
    ] = "permutation",
    order: OrderOption = "permutation",
    steps: Updates = None,
    target_tokens: Limit = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "Run":
    """XLNet (Yang et al. 2019): permutation language modelling with two streams and memory, on running text.

    Any data set with texts will do: its sentences are read in stored order, forwards and backwards. --size small trains in
    about ten minutes on one CPU core. --init starts from an XLNet checkpoint in Hugging Face's form, or from a model that this
    recipe trained.

    Example: ramify train xlnet --data data/books --out runs/xlnet --set input.memory_reset=never
    """
    from ramify.tasks.denoising_lm import DenoisingLMConfig
    from ramify.tasks.permutation_lm import PermutationLMConfig

    if objective == "denoising" and order != "permutation":
        raise RamifyError(f"--order {order} belongs to --objective permutation; masked tokens read both sides. Leave it out.")
    if objective == "denoising":
        return _run("xlnet", data, size, DenoisingLMConfig(), order, steps, target_tokens, init, tokenizer, seed)
    task = PermutationLMConfig(order=_order(order))
    return _run("xlnet", data, size, task, order, steps, target_tokens, init, tokenizer, seed)


def xlnet_lm(
    data: Data,
    *,
    size: SizeOption = None,
    order: OrderOption = "permutation",
    steps: Updates = None,
    target_tokens: Limit = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "Run":
    """XLNet that predicts every token of a row (K = 1), for exact likelihoods under any order, and for generation.

    The rows are plain running text, without segments and separators. Each begins where the row before it ended, so the order of
    a whole row is permuted. A row costs about twice as much as in the recipe xlnet.

    Example: ramify train xlnet-lm --data data/books --out runs/lm --steps 1000
    """
    from ramify.tasks.permutation_lm import PermutationLMConfig

    task = PermutationLMConfig(k=1, order=_order(order))
    run = _run("xlnet-lm", data, size, task, order, steps, target_tokens, init, tokenizer, seed)
    # Rows that overlap are read in two parts, so that no token of the first one would ever follow one of the second.
    return replace(run, input=replace(run.input, segments="none", reused_tokens=run.input.row_tokens))


def _order(order: Order) -> "OrderKind":
    """A model of one direction reads each row from its beginning; backwards, this is the end of the text."""
    return "permutation" if order == "permutation" else "forward"


def _run(
    recipe: str,
    data: str,
    size: Size | None,
    task: "StreamTaskConfig",
    order: Order,
    steps: int | None,
    target_tokens: int,
    init: str,
    tokenizer: str,
    seed: int,
) -> "StreamRun":
    """The published optimizer: Adam with decoupled weight decay 0.01, epsilon 1e-6, linear warm-up and decay, clipping at 1."""
    from ramify.batching.views.streams import StreamConfig, StreamInput
    from ramify.models.xlnet import XLNetConfig
    from ramify.runs.streams.run import StreamRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.training.config import TrainConfig

    sizes = SIZES[size or "small"]
    view = StreamConfig(streams=sizes.streams)
    if order != "permutation":
        # As many rows per batch as with both directions.
        view = StreamConfig(streams=2 * sizes.streams, directions=order)
    model = XLNetConfig(
        dim=sizes.dim,
        num_layers=sizes.layers,
        num_heads=sizes.dim // 64,
        ffn_dim=4 * sizes.dim,
        attention_dropout=sizes.attention_dropout,
        memory=sizes.memory,
    )
    run = StreamRun(
        recipe=recipe,
        data=data,
        model=model,
        task=task,
        input=StreamInput(row_tokens=sizes.row_tokens, reused_tokens=sizes.row_tokens // 2),
        view=view,
        stages=(
            TrainConfig(
                steps=0 if target_tokens and steps is None else sizes.steps if steps is None else steps,
                target_tokens=target_tokens,
                lr=1e-4 if init else sizes.lr,
                warmup=sizes.warmup,
                betas=(0.9, 0.999),
            ),
        ),
        tokenizer=TokenizerConfig(path=tokenizer, kind="unigram", vocab_size=sizes.vocab_size, lowercase=False),
        init=init,
        seed=seed,
    )
    run = run.sized(init)
    check_of_checkpoint(run, "size", size, model, "dim", "num_layers")
    return run

"""ELMo, on running text of any data set with texts."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from ramify.recipes.options import Data, ModelInit, Seed, TokenizerPath, check_of_checkpoint

if TYPE_CHECKING:
    from ramify.runs import Run

Size = Literal["small", "base", "paper"]


class Sizes(NamedTuple):
    """The settings of a size."""

    dim: int
    hidden: int
    filters: tuple[tuple[int, int], ...]
    vocab_size: int
    sampled: int | None
    streams: int
    steps: int
    lr: float


SIZES: dict[Size, Sizes] = {
    "small": Sizes(128, 512, ((1, 32), (2, 32), (3, 64), (4, 128)), 8192, None, streams=16, steps=2000, lr=2e-3),
    "base": Sizes(256, 1024, ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256)), 16_384, None, streams=32, steps=5000, lr=1e-3),
    # 128 streams on each of three GPUs.
    "paper": Sizes(
        512,
        4096,
        ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        793_471,
        8192,
        streams=384,
        steps=1_000_000,
        lr=0.2,
    ),
}

UNROLL = 20
"""Number of tokens through which the gradient flows back."""

EPOCHS = 10.0
"""Passes of the published run over its text."""

PUBLISHED: dict[str, Any] = {
    "optimizer": "adagrad",
    "lr": 0.2,
    "accumulator_start": 1.0,
    "eps": 1e-10,
    "warmup": 0.0,
    "schedule": "constant",
    "weight_decay": 0.0,
    "loss_scale": float(UNROLL),
    "clip": 10.0,
}
"""The published training."""


def elmo(
    data: Data,
    *,
    size: Annotated[
        Size | None,
        "small: layers of 512 cells. base: of 1,024. paper: the sizes and the training of Peters et al. Default: small; the "
        "sizes of the model are those of --init, if given.",
    ] = None,
    input: Annotated[
        Literal["characters", "words"] | None,
        "characters: the vector of a word is computed from its bytes. words: a table has a vector of each word. "
        "Default: characters; with --init, that of the saved model.",
    ] = None,
    directions: Annotated[
        Literal["both", "forward"] | None,
        "both: a language model in each direction. forward: only the one from left to right. Default: both; with --init, that "
        "of the saved model.",
    ] = None,
    steps: Annotated[int | None, "Number of updates. Default: that of --size; with --size paper, ten epochs."] = None,
    target_tokens: Annotated[
        int, "Stop after this many tokens of rows, in place of --steps (0: after --steps). Each direction has rows of its own."
    ] = 0,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    published: Annotated[
        bool,
        "Train as published: Adagrad at a constant rate of 0.2, the loss times 20, clipping at 10. --size paper always does.",
    ] = False,
    seed: Seed = 0,
) -> "Run":
    """ELMo (Peters et al. 2018): recurrent language models of both directions, whose layers are features of other models.

    Any data set with texts will do: its sentences are read in stored order, and the states are carried from row to row. The
    trained tokenizer is a vocabulary of words. --size small trains in less than half an hour on one CPU core.

    Example: ramify train elmo --data data/books --out runs/elmo
    """
    from dataclasses import replace

    from ramify.batching.views.streams import StreamConfig, StreamInput
    from ramify.models.elmo import ElmoConfig
    from ramify.runs.streams.run import StreamRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.tasks.bidirectional_lm import BidirectionalLMConfig
    from ramify.training.config import TrainConfig

    sizes = SIZES[size or "small"]
    as_published = published or size == "paper"
    model = ElmoConfig(
        input=input or "characters",
        directions=directions or "both",
        dim=sizes.dim,
        hidden=sizes.hidden,
        num_layers=2,
        filters=sizes.filters,
        restart=0.0 if as_published else 0.1,
    )
    run: Any = StreamRun(
        recipe="elmo",
        data=data,
        model=model,
        task=BidirectionalLMConfig(sampled=sizes.sampled),
        # The last token of a row is the first of the next one, so every token is predicted once.
        input=StreamInput(row_tokens=UNROLL + 1, reused_tokens=UNROLL, segments="none", memory_reset="never", max_tokens=512),
        stages=(TrainConfig(**_length(size, steps, target_tokens), **(PUBLISHED if as_published else _adam(sizes.lr))),),
        tokenizer=TokenizerConfig(path=tokenizer, kind="word", vocab_size=sizes.vocab_size, lowercase=False),
        init=init,
        seed=seed,
    )
    run = run.sized(init)
    check_of_checkpoint(run, "size", size, model, "dim", "hidden")
    check_of_checkpoint(run, "input", input, model, "input")
    check_of_checkpoint(run, "directions", directions, model, "directions")
    read = run.model.directions
    # As many rows per batch in one direction as in both.
    return replace(run, view=StreamConfig(streams=sizes.streams * (1 if read == "both" else 2), directions=read))


def _length(size: Size | None, steps: int | None, target_tokens: int) -> dict[str, Any]:
    """The end of training: --steps, --target-tokens, or the default of a size."""
    if steps is not None:
        return {"steps": steps, "target_tokens": target_tokens}
    if target_tokens:
        return {"steps": 0, "target_tokens": target_tokens}
    return {"steps": 0, "epochs": EPOCHS} if size == "paper" else {"steps": SIZES[size or "small"].steps}


def _adam(lr: float) -> dict[str, Any]:
    return {"lr": lr, "warmup": 0.05, "betas": (0.9, 0.999), "weight_decay": 0.0}

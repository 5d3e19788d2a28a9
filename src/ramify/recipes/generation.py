"""Models that predict texts token by token: translation and replies on any data set with pairs, and running text, whole or
corrupted.

The defaults are small models for a laptop. `--published` trains the base model of Vaswani et al. 2017.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from ramify.recipes.options import Data, ModelInit, Seed, TokenizerPath, check_of_checkpoint

if TYPE_CHECKING:
    from ramify.models.base import GenerativeModelConfig
    from ramify.runs import Run

Updates = Annotated[int | None, "Number of updates. Default: 5000; with --published, 100000."]
SmallUpdates = Annotated[int, "Number of updates."]


def transformer(
    data: Data,
    *,
    steps: Updates = None,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    published: Annotated[
        bool,
        "Train the published base model: 6 + 6 layers of 512, no dropout inside attention, and the schedule of the paper.",
    ] = False,
    seed: Seed = 0,
) -> "Run":
    """The Transformer (Vaswani et al. 2017): translation, or replies to comments, from encoder to decoder.

    Any data set with pairs will do: every text is predicted from the one that it answers or translates. The default has 3 + 3
    layers of 256, normalized before each part.

    Example: ramify train transformer --data data/en-de --out runs/en-de
    """
    from ramify.models.transformer import TransformerConfig

    if published:
        model = TransformerConfig(
            dim=512,
            num_heads=8,
            ffn_dim=2048,
            encoder_layers=6,
            decoder_layers=6,
            dropout=0.1,
            # Section 5.4 names sub-layers and sums of embeddings alone, and the code's form of the paper agrees.
            attention_dropout=0.0,
            norm="post",
            position="sinusoidal",
            scale_embedding=True,
            share_embeddings=True,
        )
        steps = 100_000 if steps is None else steps
        # 25,000 tokens of sources and as many of targets per update; the mean of the last 5 checkpoints, 1,500 updates apart.
        # Fewer than 5 updates have fewer checkpoints; a single one is no mean.
        stage = _stage(steps, budget=50_000, lr=512**-0.5 * 4000**-0.5, warmup=min(1.0, 4000 / max(1, steps)), schedule="noam")
        stage |= {"eps": 1e-9, "clip": 0.0, "average": min(5, steps) if steps > 1 else None}
        stage |= {"checkpoint_every": max(1, min(1500, steps // 5))}
        run = _run("transformer", data, model, stage, init, tokenizer, seed, vocab_size=37_000)
        check_of_checkpoint(run, "published", published, model, "dim", "encoder_layers", "decoder_layers", "norm")
        return run
    model = TransformerConfig(
        dim=256,
        num_heads=4,
        ffn_dim=1024,
        encoder_layers=3,
        decoder_layers=3,
        dropout=0.1,
        norm="pre",
        position="sinusoidal",
        scale_embedding=True,
        share_embeddings=True,
    )
    # On 28,000 pairs of captions, small updates with a falling rate learned most from the same text: after 420,000 predicted
    # tokens, dev losses were 3.25, and 4.18 with updates of 4,096 tokens, a rate of .001 and the published schedule.
    stage = _stage(5000 if steps is None else steps, budget=1024, lr=1.5e-3, warmup=0.1, schedule="linear")
    return _run("transformer", data, model, stage, init, tokenizer, seed)


def seq2seq(
    data: Data,
    *,
    attention: Annotated[
        Literal["dot", "none"] | None,
        "dot: the decoder attends to the source's states. none: it knows of the source what the encoder's last states hold. "
        "Default: dot; with --init, that of the saved model.",
    ] = None,
    steps: SmallUpdates = 5000,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "Run":
    """A recurrent encoder and decoder, with attention to the source (Luong et al. 2015): the baseline of the Transformer.

    Any data set with pairs will do, as for `ramify train transformer`.

    Example: ramify train seq2seq --data data/en-de --out runs/en-de-lstm
    """
    from ramify.models.recurrent import Seq2SeqConfig

    model = Seq2SeqConfig(
        dim=256,
        hidden=688,
        cell="lstm",
        encoder_layers=1,
        decoder_layers=1,
        attention=attention or "dot",
        dropout=0.2,
        share_embeddings=True,
    )
    # With Adam's usual rate, the tied embedding grows slowly, and tanh bounds the states that it scores.
    stage = _stage(steps, budget=2048, lr=4e-3, warmup=0.05, schedule="linear")
    run = _run("seq2seq", data, model, stage, init, tokenizer, seed)
    check_of_checkpoint(run, "attention", attention, model, "attention")
    return run


def gpt(
    data: Data,
    *,
    steps: SmallUpdates = 5000,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "Run":
    """A decoder-only Transformer (Radford et al. 2018), which predicts every token of running text from those before it.

    Any data set with texts will do: its sentences are read in stored order, in rows of up to 128 tokens.

    Example: ramify train gpt --data data/books --out runs/gpt
    """
    from dataclasses import replace

    from ramify.models.transformer import TransformerConfig

    model = TransformerConfig(
        dim=256,
        num_heads=4,
        ffn_dim=1024,
        encoder_layers=0,
        decoder_layers=4,
        dropout=0.1,
        norm="pre",
        position="sinusoidal",
        scale_embedding=True,
        share_embeddings=True,
        final_norm=True,
    )
    stage = _stage(steps, budget=4096, lr=1e-3, warmup=0.05, schedule="linear")
    run = _run("gpt", data, model, stage, init, tokenizer, seed)
    return replace(run, task=replace(run.task, label_smoothing=0.0), input=replace(run.input, layout="roberta"))


def t5(
    data: Data,
    *,
    version: Annotated[
        Literal["1.0", "1.1"] | None,
        "1.0: the model of the paper. 1.1: gated feed-forward layers, and an output map that is not the token embedding. "
        "Default: 1.0; with --init, that of the model.",
    ] = None,
    steps: SmallUpdates = 5000,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "Run":
    """T5 (Raffel et al. 2020): fill the gaps of running text, from encoder to decoder.

    Any data set with texts will do: its sentences are read in stored order. Spans of 3 tokens on average, 15 % in all, become
    sentinels, new ones in every epoch. `ramify translate RUN --text "The <extra_id_0> barked."` fills gaps, and
    `ramify train transformer --init RUN` goes on with pairs.

    Example: ramify train t5 --data data/books --out runs/t5
    """
    from dataclasses import replace

    from ramify.models.transformer import TransformerConfig

    newer = version == "1.1"
    model = TransformerConfig(
        dim=256,
        num_heads=4,
        ffn_dim=1024,
        encoder_layers=3,
        decoder_layers=3,
        dropout=0.1,
        activation="gelu_tanh" if newer else "relu",
        norm="pre",
        position="relative",
        scale_embedding=False,
        share_embeddings=True,
        attention_scale="none",
        eps=1e-6,
        norm_kind="rms",
        bias=False,
        scale_states=not newer,
        gated=newer,
    )
    stage = _stage(steps, budget=4096, lr=1e-3, warmup=0.05, schedule="linear")
    run = _run("t5", data, model, stage, init, tokenizer, seed)
    check_of_checkpoint(run, "version", version, model, "gated")
    task = replace(run.task, tie_weights=not run.model.gated, output_bias=False, label_smoothing=0.0)
    return replace(run, task=task, input=replace(run.input, source="corrupted"))


def _stage(steps: int, *, budget: int, lr: float, warmup: float, schedule: str) -> dict[str, Any]:
    """Adam with the betas of Vaswani et al. 2017, without weight decay."""
    return {
        "steps": steps,
        "budget": budget,
        "lr": lr,
        "warmup": warmup,
        "schedule": schedule,
        "betas": (0.9, 0.98),
        "weight_decay": 0.0,
    }


def _run(
    recipe: str,
    data: str,
    model: "GenerativeModelConfig",
    stage: dict[str, Any],
    init: str,
    tokenizer: str,
    seed: int,
    *,
    vocab_size: int = 8192,
) -> Any:
    """One tokenizer for both sides, as a byte-level BPE, which spells every text."""
    from ramify.runs.generative.run import GenerativeRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.tasks.next_token import NextTokenConfig
    from ramify.training.config import TrainConfig

    run = GenerativeRun(
        recipe=recipe,
        data=data,
        model=model,
        task=NextTokenConfig(label_smoothing=0.1),
        stages=(TrainConfig(**stage),),
        tokenizer=TokenizerConfig(path=tokenizer, kind="bpe", vocab_size=vocab_size, lowercase=False),
        init=init,
        seed=seed,
    )
    return run.sized(init)

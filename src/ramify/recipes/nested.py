"""Recipes of models of nested documents."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from ramify.recipes.options import Data, ModelInit, Seed, TokenizerPath

if TYPE_CHECKING:
    from ramify.models.agent import AgentConfig
    from ramify.runs.nested_documents.run import NestedRun
    from ramify.runs.tokenizers import TokenizerConfig

Updates = Annotated[int, "Number of updates."]
Limit = Annotated[int, "Stop after this many tokens, in place of --steps (0: after --steps)."]
StageUpdates = Annotated[int, "Number of updates of every stage, in place of tokens (0: as many tokens as below)."]
Joint = Annotated[bool, "Train all levels together from the start, with the losses of the paper."]
JointLimit = Annotated[int, "With --joint: stop after this many tokens (0: after --steps, or 2,000 updates)."]
LowestTokens = Annotated[int, "Tokens of the first stage: sentences alone. --init replaces it."]
AboveTokens = Annotated[int, "Tokens of the stage of the levels above, on vectors of sentences that are computed once."]
DecoderTokens = Annotated[int, "Tokens of the stage of the sentences' decoder."]
AllTokens = Annotated[int, "Tokens of the last stage, in which all levels learn (0: leave it out)."]

JOINT_STEPS = 2000


def agent(
    data: Data,
    *,
    joint: Joint = False,
    steps: StageUpdates = 0,
    target_tokens: JointLimit = 0,
    lowest_tokens: LowestTokens = 4_000_000,
    above_tokens: AboveTokens = 12_000_000,
    decoder_tokens: DecoderTokens = 1_000_000,
    all_tokens: AllTokens = 1_000_000,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "NestedRun":
    """AGENT (Rozental et al. 2019): a vector for every sentence, paragraph, chapter and document that can be decoded again.

    The data set holds documents, such as `ramify data build --format book` makes. The model has all levels of the data.
    Sentences are trained first, then the levels above on vectors of sentences that are computed once, then the sentences'
    decoder on the vectors that these levels read, and at last all levels. A million tokens of the second stage take about a CPU minute, and of
    the other stages ten to forty.

    Example: ramify train agent --data data/books --init runs/sentences --out runs/agent
    """
    from ramify.errors import RamifyError
    from ramify.models.agent import AgentConfig
    from ramify.runs.nested_documents.run import NestedRun
    from ramify.tasks.nested.config import NestedAutoencoderConfig
    from ramify.training.config import TrainConfig

    if joint:
        return _run("agent", data, AgentConfig(), steps or JOINT_STEPS, target_tokens, init, tokenizer, seed)
    if target_tokens:
        raise RamifyError(
            f"--target-tokens {target_tokens} is for --joint. Set --above-tokens and the tokens of the other stages, or add "
            "--joint."
        )
    # Chapters of many books make a batch, and vectors of the tokens' own table learn fast.
    of_units = TrainConfig(
        units=8,
        budget=2048,
        lr=2e-3,
        warmup=0.05,
        schedule="cosine",
        betas=(0.9, 0.98),
        clip=5.0,
        lr_scale=((TOKEN_TABLE, 5.0),),
        undecayed=(TOKEN_TABLE,),
        evaluate_every=50,
        checkpoint_every=100,
    )
    lowest = TrainConfig(budget=2048, lr=1e-3, warmup=0.05, schedule="cosine", betas=(0.9, 0.98))
    stages = [(lowest, lowest_tokens)] if not init else []
    stages += [(of_units, above_tokens), (lowest, decoder_tokens), (replace(of_units, lr=5e-4), all_tokens)]
    if not all_tokens and not steps:
        stages.pop()
    run = NestedRun(
        recipe="agent",
        data=data,
        model=AgentConfig(
            token_skip=True,
            compressor_skip="gelu",
            children_norm=True,
            mark_scale="root_dim",
            sibling_product=True,
            decoder_length="predicted",
            dropout=0.0,
            attention_dropout=0.0,
        ),
        task=NestedAutoencoderConfig(
            frozen="sentence",
            queue=0,
            scores="cosine",
            balanced=False,
            classes_detached=False,
            classes="children",
            head="deep",
            sibling_path=True,
            coherence=30.0,
            foreign=5.0,
        ),
        init=init,
        stages=tuple(replace(stage, steps=steps, target_tokens=0 if steps else tokens) for stage, tokens in stages),
        tokenizer=_tokenizer(tokenizer),
        seed=seed,
    )
    return run.sized(init)


TOKEN_TABLE = r"token_skip\.table"
"""Matches the name of the table of tokens' vectors that are added to a sentence's vector."""


def agent_sentence(
    data: Data,
    *,
    steps: Updates = 2000,
    target_tokens: Limit = 0,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "NestedRun":
    """AGENT's lowest level alone: a vector for every sentence, and the sentence back from it.

    Sentences of more than 31 tokens are cut into several rows.

    Example: ramify train agent-sentence --data data/books --out runs/sentences
    """
    from ramify.models.agent import AgentConfig

    model = AgentConfig().with_levels(("sentence",))
    return _run("agent-sentence", data, replace(model, max_children=(32,)), steps, target_tokens, init, tokenizer, seed)


def _run(
    recipe: str,
    data: str,
    model: "AgentConfig",
    steps: int,
    target_tokens: int,
    init: str,
    tokenizer: str,
    seed: int,
) -> "NestedRun":
    from ramify.runs.nested_documents.run import NestedRun
    from ramify.training.config import TrainConfig

    run = NestedRun(
        recipe=recipe,
        data=data,
        model=model,
        init=init,
        stages=(
            TrainConfig(
                steps=0 if target_tokens else steps,
                target_tokens=target_tokens,
                budget=2048,
                lr=1e-3,
                warmup=0.05,
                schedule="cosine",
                betas=(0.9, 0.98),
            ),
        ),
        tokenizer=_tokenizer(tokenizer),
        seed=seed,
    )
    return run.sized(init)


def _tokenizer(path: str) -> "TokenizerConfig":
    from ramify.runs.tokenizers import TokenizerConfig

    return TokenizerConfig(path=path, kind="unigram", vocab_size=8192, lowercase=False)

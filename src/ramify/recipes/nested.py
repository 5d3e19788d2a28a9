"""Recipes of models of nested documents."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from ramify.recipes.options import Data, ModelInit, Seed, TokenizerPath

if TYPE_CHECKING:
    from ramify.models.agent import AgentConfig
    from ramify.runs.nested_documents.run import NestedRun

Updates = Annotated[int, "Number of updates."]
Limit = Annotated[int, "Stop after this many tokens, in place of --steps (0: after --steps)."]


def agent(
    data: Data,
    *,
    steps: Updates = 2000,
    target_tokens: Limit = 0,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "NestedRun":
    """AGENT (Rozental et al. 2019): a vector for every sentence, paragraph, chapter and document that can be decoded again.

    The data set holds documents, such as `ramify data build --format book` makes. The model has all levels of the data.

    Example: ramify train agent --data data/books --out runs/agent
    """
    from ramify.models.agent import AgentConfig

    return _run("agent", data, AgentConfig(), steps, target_tokens, init, tokenizer, seed)


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
    from ramify.runs.tokenizers import TokenizerConfig
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
        tokenizer=TokenizerConfig(path=tokenizer, kind="unigram", vocab_size=8192, lowercase=False),
        seed=seed,
    )
    return run.sized(init)

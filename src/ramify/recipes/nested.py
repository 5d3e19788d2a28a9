"""Recipes of models of nested documents."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from ramify.errors import RamifyError
from ramify.recipes.options import Data, ModelInit, Seed, TokenizerPath

if TYPE_CHECKING:
    from ramify.models.agent import AgentConfig
    from ramify.runs.nested_documents.adversary import NestedAdversaryRun
    from ramify.runs.nested_documents.run import NestedConfig, NestedRun
    from ramify.runs.tokenizers import TokenizerConfig
    from ramify.tasks.nested.config import NestedAutoencoderConfig
    from ramify.training.config import TrainConfig

Updates = Annotated[int, "Number of updates."]
Limit = Annotated[int, "Stop after this many tokens, in place of --steps (0: after --steps)."]
StageUpdates = Annotated[int, "Number of updates of every stage, in place of tokens (0: as many tokens as below)."]
Joint = Annotated[bool, "Train all levels together from the start, with the losses of the paper."]
JointLimit = Annotated[int, "With --joint: stop after this many tokens (0: after --steps, or 2,000 updates)."]
LowestTokens = Annotated[int, "Tokens of the first stage: sentences alone. --init replaces it."]
AboveTokens = Annotated[
    int, "Tokens of the stage of each level above sentences, on vectors of the level below that are computed once."
]
DecoderTokens = Annotated[
    int, "Tokens of the stage of the sentences' decoder (0: leave it out, with the last stage; no text can be decoded then)."
]
AllTokens = Annotated[int, "Tokens of a last stage, in which all levels learn from texts (0: leave it out)."]
Names = Annotated[bool, "Give the model a memory of the names of a document (the paper's section 5)."]

AgentInit = Annotated[str, "A trained AGENT (required): a run of `ramify train agent`, a directory or a hub id."]
When = Annotated[
    Literal["with", "after", "checker"],
    "with: the autoencoder goes on learning. after: it is frozen. checker: so, too, and its checkers are the discriminators.",
]
OnlyLevels = Annotated[str, "The levels whose generators learn, such as sentence,paragraph. Default: all levels of the model."]

JOINT_STEPS = 2000
LOWEST, ABOVE, DECODER, ALL = 4_000_000, 12_000_000, 1_000_000, 0
"""Tokens of the stages by default. On dev novels, levels that learned in turn gained nothing from learning together at last."""


def agent(
    data: Data,
    *,
    joint: Joint = False,
    steps: StageUpdates = 0,
    target_tokens: JointLimit = 0,
    lowest_tokens: LowestTokens = LOWEST,
    above_tokens: AboveTokens = ABOVE,
    decoder_tokens: DecoderTokens = DECODER,
    all_tokens: AllTokens = ALL,
    names: Names = False,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "NestedRun":
    """AGENT (Rozental et al. 2019): a vector for every sentence, paragraph, chapter and document that can be decoded again.

    The data set holds documents, such as `ramify data build --format book` makes. The model has all levels of the data.
    Sentences are trained first, then each level above in a stage of its own, on vectors of the level below that are computed
    once, then the sentences' decoder on the vectors that these levels read. With --all-tokens, all levels learn together at
    last, which has not helped so far (docs/nested_documents.md). --set task.above=together trains the levels above in one
    stage. Examples are chapters, so the vectors of documents do not learn; --set view.whole_documents=true adds documents to
    the last of these stages. Stages of levels above read tokens many times as fast as the others.

    Example: ramify train agent --data data/books --init runs/sentences --out runs/agent
    """
    from ramify.models.agent import AgentConfig
    from ramify.runs.nested_documents.run import NestedConfig, NestedRun

    stage_tokens = {
        "--lowest-tokens": (lowest_tokens, LOWEST),
        "--above-tokens": (above_tokens, ABOVE),
        "--decoder-tokens": (decoder_tokens, DECODER),
        "--all-tokens": (all_tokens, ALL),
    }
    _check_stages(stage_tokens, joint=joint, target_tokens=target_tokens, starts_trained=bool(init))
    if joint:
        return _run("agent", data, AgentConfig(), steps or JOINT_STEPS, target_tokens, names, init, tokenizer, seed)
    lowest, above, everything = _of_tokens(512), _of_units(lr=2e-3), _of_units(lr=5e-4)
    stages = [] if init else [(lowest, lowest_tokens)]
    stages += [(above, above_tokens), (lowest, decoder_tokens), (everything, all_tokens)]
    while not stages[-1][1]:
        stages.pop()
    run = NestedRun(
        recipe="agent",
        data=data,
        model=_with_names(_improved_model(), names),
        task=_improved_task(),
        # An update from one whole document has candidates of that document alone, and undoes what many documents teach.
        view=NestedConfig(whole_documents=False, units_factor=4),
        init=init,
        stages=tuple(replace(stage, steps=steps, target_tokens=0 if steps else tokens) for stage, tokens in stages),
        tokenizer=_tokenizer(tokenizer),
        seed=seed,
    )
    return _started(run)


def _started(run: "NestedRun") -> "NestedRun":
    """A run with the sizes of the model from which it starts, and with stretches of sentences if that has a memory of names."""
    run = run.sized(run.init)
    return replace(run, view=_with_stretches(run.view, run.model))


def _with_stretches(view: "NestedConfig", model: "AgentConfig") -> "NestedConfig":
    """A view that has stretches of sentences if the model has a memory of names."""
    return view if model.names is None or view.neighbours else replace(view, neighbours=NEIGHBOURS)


def _check_stages(
    stage_tokens: Mapping[str, tuple[int, int]], *, joint: bool, target_tokens: int, starts_trained: bool
) -> None:
    """Raise `RamifyError` for options that leave out a stage which others need, or that are for the other way to train.
    `stage_tokens`: the value of each option, and its default."""
    tokens = {option: value for option, (value, _) in stage_tokens.items()}
    if joint:
        for option, (value, default) in stage_tokens.items():
            if value != default:
                raise RamifyError(
                    f"{option} {value} is for training in stages, and --joint has a single one. Set --target-tokens or "
                    "--steps, or leave --joint out."
                )
        return
    if target_tokens:
        raise RamifyError(
            f"--target-tokens {target_tokens} is for --joint. Set --above-tokens and the tokens of the other stages, or add "
            "--joint."
        )
    for option, value in tokens.items():
        if value < 0:
            raise RamifyError(f"{option} {value} is below 0. Set a number of tokens.")
    lowest, default = stage_tokens["--lowest-tokens"]
    if starts_trained and lowest != default:
        raise RamifyError(
            f"--lowest-tokens {lowest} is for the stage of sentences, which --init replaces. Leave one of the two out."
        )
    if not tokens["--lowest-tokens"] and not starts_trained:
        raise RamifyError(
            "--lowest-tokens 0 leaves out the sentences, whose vectors all later stages read. Set it above 0, or start from "
            "trained sentences with --init."
        )
    if not tokens["--above-tokens"]:
        raise RamifyError(
            "--above-tokens 0 leaves out the levels above the sentences. Set it above 0, or train sentences alone with `ramify "
            "train agent-sentence`."
        )
    if tokens["--all-tokens"] and not tokens["--decoder-tokens"]:
        raise RamifyError(
            f"--decoder-tokens 0 leaves out the stage before that of --all-tokens {tokens['--all-tokens']}, which needs its "
            "decoder. Add --all-tokens 0, or set --decoder-tokens above 0."
        )


def _improved_model() -> "AgentConfig":
    """The additions to the paper's model with which the levels above sentences learn."""
    from ramify.models.agent import AgentConfig

    return AgentConfig(
        max_children=(SENTENCE_PLACES, *AgentConfig().max_children[1:]),
        token_skip=True,
        compressor_skip="linear",
        decompressor_skip=True,
        children_norm=True,
        mark_scale="root_dim",
        decoder_position_scale=0.1,
        sibling_product=True,
        decoder_length="predicted",
        dropout=0.0,
        attention_dropout=0.0,
    )


def _improved_task() -> "NestedAutoencoderConfig":
    """The losses with which the levels above sentences learn, one after the other, on levels that stay as they are at first."""
    from ramify.tasks.nested.config import NestedAutoencoderConfig

    return NestedAutoencoderConfig(
        frozen="sentence",
        above="in_turn",
        queue=0,
        scores="cosine",
        balanced=False,
        classes_detached=False,
        classes="children",
        head="deep",
        coherence=30.0,
        foreign=5.0,
    )


def _with_names(model: "AgentConfig", names: bool) -> "AgentConfig":
    from ramify.models.name_memory import NameMemoryConfig

    return replace(model, names=NameMemoryConfig() if names else None)


def _of_tokens(budget: int = 2048) -> "TrainConfig":
    """Batches of a number of tokens."""
    from ramify.training.config import TrainConfig

    return TrainConfig(budget=budget, lr=1e-3, warmup=0.05, schedule="cosine", betas=(0.9, 0.98))


def _of_units(*, lr: float) -> "TrainConfig":
    """Batches of chapters of many books. The vectors of the tokens' own table learn fast."""
    return replace(
        _of_tokens(),
        units=4,
        lr=lr,
        clip=5.0,
        lr_scale=((TOKEN_TABLE, 5.0),),
        undecayed=(TOKEN_TABLE,),
        evaluate_every=50,
        checkpoint_every=100,
    )


SENTENCE_PLACES = 32
"""Longer sentences are cut into several rows: a vector gives back few of the tokens of a long row."""

NEIGHBOURS = 512
"""Tokens of neighbouring sentences that are one example where sentences learn alone, beside a memory of names."""

TOKEN_TABLE = r"token_skip\.table"
"""Matches the name of the table of tokens' vectors that are added to a sentence's vector."""


def agent_sentence(
    data: Data,
    *,
    steps: Updates = 2000,
    target_tokens: Limit = 0,
    names: Names = False,
    init: ModelInit = "",
    tokenizer: TokenizerPath = "",
    seed: Seed = 0,
) -> "NestedRun":
    """AGENT's lowest level alone: a vector for every sentence, and the sentence back from it.

    Sentences of more than 31 tokens are cut into several rows. With --names, an example is about 512 tokens of neighbouring
    sentences, which share the names that occur in them.

    Example: ramify train agent-sentence --data data/books --out runs/sentences
    """
    from ramify.models.agent import AgentConfig

    model = AgentConfig().with_levels(("sentence",))
    model = replace(model, max_children=(SENTENCE_PLACES,))
    return _run("agent-sentence", data, model, steps, target_tokens, names, init, tokenizer, seed)


def agent_gan(
    data: Data,
    *,
    init: AgentInit = "",
    when: When = "after",
    levels: OnlyLevels = "",
    steps: Updates = 4000,
    seed: Seed = 0,
) -> "NestedAdversaryRun":
    """Generators of the vectors of each level of a trained AGENT, and the discriminators that teach them.

    A discriminator reads the children into which vectors are decoded. With `after`, real vectors are computed once, and kept
    with the data set. A document of training is a chapter alone, unless --set "task.alone=[]" is given. At each evaluation, the
    folder `samples` of the run gets texts, and metrics.jsonl the measures of collapse.

    Example: ramify train agent-gan --data data/books --init runs/agent --out runs/agent-gan
    """
    from ramify.models.agent import AgentConfig
    from ramify.runs.nested_documents.adversary import NestedAdversaryRun
    from ramify.runs.nested_documents.run import NestedConfig
    from ramify.tasks.adversarial import DISCRIMINATOR, GENERATOR
    from ramify.tasks.nested_adversary import NestedAdversaryConfig
    from ramify.training.config import PhaseSettings, TrainConfig

    chosen = tuple(name.strip() for name in levels.split(",")) if levels else None
    run = NestedAdversaryRun(
        recipe="agent-gan",
        data=data,
        model=AgentConfig(),
        task=NestedAdversaryConfig(when=when, levels=chosen),
        view=NestedConfig(whole_documents=False),
        seed=seed,
    )
    # Without a start, the run is refused when it is prepared.
    run = run.started(init) if init else run
    if when != "with":
        players = TrainConfig(
            steps=steps,
            budget=run.task.vectors,
            budget_unit="targets",
            optimizer="adam",
            lr=2e-4,
            betas=(0.5, 0.999),
            eps=1e-8,
            weight_decay=0.0,
            warmup=0.0,
            schedule="constant",
            clip=0.0,
        )
        return replace(run, stages=(players,))
    # Candidates from earlier weights, and documents of a single level, are for the stages that the model has behind it.
    queued = run.task.autoencoder.queue > 0
    autoencoder = replace(run.task.autoencoder, frozen=None, above="together")
    main = replace(_of_tokens() if queued else _of_units(lr=5e-4), steps=steps)
    if not run.model.token_skip:
        main = replace(main, lr_scale=(), undecayed=())
    players = tuple(
        PhaseSettings(
            name,
            optimizer="adam",
            lr=2e-4,
            betas=(0.5, 0.999),
            eps=1e-8,
            weight_decay=0.0,
            warmup=0.0,
            schedule="constant",
            clip=0.0,
        )
        for name in (DISCRIMINATOR, GENERATOR)
    )
    return replace(
        run,
        task=replace(run.task, autoencoder=autoencoder),
        view=_with_stretches(run.view, run.model),
        stages=(replace(main, phases=players),),
    )


def _run(
    recipe: str,
    data: str,
    model: "AgentConfig",
    steps: int,
    target_tokens: int,
    names: bool,
    init: str,
    tokenizer: str,
    seed: int,
) -> "NestedRun":
    from ramify.runs.nested_documents.run import NestedRun

    run = NestedRun(
        recipe=recipe,
        data=data,
        model=_with_names(model, names),
        init=init,
        stages=(replace(_of_tokens(), steps=0 if target_tokens else steps, target_tokens=target_tokens),),
        tokenizer=_tokenizer(tokenizer),
        seed=seed,
    )
    return _started(run)


def _tokenizer(path: str) -> "TokenizerConfig":
    from ramify.runs.tokenizers import TokenizerConfig

    return TokenizerConfig(path=path, kind="unigram", vocab_size=8192, lowercase=False)

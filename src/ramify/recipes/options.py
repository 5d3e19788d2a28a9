"""Options that several recipes share: types with their help text."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from ramify.errors import RamifyError

if TYPE_CHECKING:
    from ramify.runs import Run

Data = Annotated[str, "A data set built by `ramify data build`."]
Steps = Annotated[int, "Number of updates."]
TargetTokens = Annotated[int, "Stop after this many tokens of predicted comments, in place of --steps (0: after --steps)."]
Init = Annotated[str, "Checkpoint to start from (directory or hub id): a BERT-family model, or a saved model of the same kind."]
ModelInit = Annotated[str, "Saved model of the same kind to start from: a run, a directory or a hub id."]
EncoderInit = Annotated[
    str,
    "Encoder of the messages (required): a BERT-family checkpoint (directory or hub id), or a bert or tree-mlm run.",
]
TokenizerPath = Annotated[str, "A tokenizer.json or its directory. Default: train one."]
Features = Annotated[
    Literal["none", "head"] | None,
    "head: also read the features of message pairs. Default: none; with --init, that of a saved model of the same kind.",
]
Window = Annotated[int, "Number of earlier messages that are candidate parents."]
Seed = Annotated[int, "Random seed."]


def check_of_checkpoint(run: "Run", option: str, given: str | bool | None, asked: Any, *settings: str) -> None:
    """Raise `RamifyError` if an option, which was `given`, asks for another model than the one that a run starts from.

    `asked` is the config that the option makes, and `settings` are those that it decides.
    """
    if given is None or given is False:
        return
    shown = f"--{option}" if given is True else f"--{option} {given}"
    for name in settings:
        wanted, saved = getattr(asked, name), getattr(run.model, name)
        if wanted != saved:
            raise RamifyError(
                f"{shown} differs from --init {run.init}, whose model has {name}={saved}, not {wanted}. Leave out one of the "
                "two."
            )

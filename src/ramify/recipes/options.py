"""Options that several recipes share: types with their help text."""

from typing import Annotated, Literal

from ramify.errors import RamifyError

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
Features = Annotated[Literal["none", "head"], "head: also read the features of message pairs."]
Window = Annotated[int, "Number of earlier messages that are candidate parents."]
Seed = Annotated[int, "Random seed."]


def check_of_checkpoint(option: str, given: str | None, saved: str, init: str) -> None:
    """Raise `RamifyError` if an option asks for another model than the one that a run starts from."""
    if given not in (None, saved):
        raise RamifyError(
            f"--{option} {given} differs from --init {init}, whose model has {option}={saved}. Leave out one of the two."
        )

"""Options that several recipes share: types with their help text."""

from typing import Annotated, Literal

Data = Annotated[str, "A data set built by `ramify data build`."]
Steps = Annotated[int, "Updates."]
TargetTokens = Annotated[int, "Stop after this many tokens of predicted comments instead (0: after --steps)."]
Init = Annotated[str, "Start from a BERT-family checkpoint or a saved model of the same kind: directory or hub id."]
EncoderInit = Annotated[
    str,
    "The encoder of the messages, required: a BERT-family checkpoint (directory or hub id), or a bert or tree-mlm run.",
]
TokenizerPath = Annotated[str, "A tokenizer.json or a directory with one; by default one is trained."]
MaxTokens = Annotated[int, "Longest text in tokens, special tokens included."]
Features = Annotated[Literal["none", "head"], "Also read the features of message pairs, beside their words."]
Window = Annotated[int, "How many messages back a message may answer."]
Seed = Annotated[int, "Seed of everything random."]

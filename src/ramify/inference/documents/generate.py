"""Use of models with generators of nested documents."""

from typing import ClassVar

from ramify.inference.documents.pipeline import DecodingPipeline
from ramify.tasks.nested_adversary import NestedAdversary


class DocumentGenerator(DecodingPipeline):
    """A model of nested documents whose generators make vectors of each level."""

    verbs: ClassVar[tuple[str, ...]] = ("embed", "reconstruct", "coherence", "copyedit", "nearest")
    usage: ClassVar[tuple[str, ...]] = (
        'model.embed(["It was late.", "Nobody came."], level="sentence")',
        'model.reconstruct("It was late.", level="sentence")',
    )

    def __init__(self, task: NestedAdversary) -> None:
        super().__init__(task.autoencoder, saved=task)
        self.adversary = task

"""The pipeline of language models that read running text in both directions, or forwards alone."""

from ramify.inference.generate import GeneratingPipeline
from ramify.inference.streams import StreamPipeline
from ramify.inference.verbs import BEGINS
from ramify.tasks.bidirectional_lm import BidirectionalLM


class BidirectionalPipeline(StreamPipeline, GeneratingPipeline):
    """A language model whose directions know nothing of each other. It embeds texts, and continues them forwards."""

    task: BidirectionalLM
    abilities = (*StreamPipeline.abilities, *GeneratingPipeline.abilities, BEGINS)
    begins = True
    verbs = ("generate", "embed", "nearest")
    usage = ('model.embed("Some text.")', 'model.generate("Some", tokens=20, seed=0).text')

    def __init__(self, task: BidirectionalLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input
        self.begin_id = task.begin

    def _notes(self, tokens: int) -> tuple[str, ...]:
        return ()

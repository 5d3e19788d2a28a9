"""The common part of the pipelines of models that read every text alone, without the texts around it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Forest, Ints
from ramify.batching.text_input import Context
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.embed import EmbeddingPipeline
from ramify.inference.mask_query import node_of
from ramify.inference.rows import row_vectors
from ramify.models.base import reads_characters
from ramify.nn.ragged import runs
from ramify.tree import Tree


class LoneTextPipeline(EmbeddingPipeline, ABC):
    """A trained task of texts that are read alone. It embeds them, and cuts long ones."""

    task: Any
    """A `Task`; each pipeline narrows the type."""

    @property
    @abstractmethod
    def room(self) -> int:
        """The number of tokens after which a text is cut, without special tokens."""

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

    def forest(self, data: Store | Iterable[Tree]) -> Forest:
        store = data if isinstance(data, Store) else Store.from_trees(data)
        open_words = reads_characters(self.backbone)
        return Forest.open(store, self.tokenizer, self.room, layout="plain", open_words=open_words)

    def context_read(self, context: Literal["tree", "none"] | None) -> Context:
        return "none"

    def number_alone(self, tree: Tree, node: str | int, context: Context | None) -> int:
        """The number of a node whose text is read. Raises `RamifyError` for a context."""
        if context not in (None, "none"):
            raise RamifyError(
                f"context={context} needs a model that reads context; this {type(self.backbone).__name__} reads a text alone. "
                "Set context=none."
            )
        return node_of(tree, node)

    def vector_batches(
        self, forest: Forest, context: Literal["tree", "none"] | None, tokens: int
    ) -> Iterator[tuple[Ints, Float[Tensor, "row dim"]]]:
        """Yield nodes of the forest and their vectors."""
        lengths = np.minimum(forest.length, self.room)
        for start, stop in runs(lengths + self.layout.num_special, tokens):
            texts = forest.gather(np.arange(start, stop), lengths[start:stop]), lengths[start:stop]
            rows = EncoderInput.of_texts(texts, self.layout, None)
            if forest.lexicon is not None:
                rows = rows.spelled(forest.lexicon)
            yield start + rows.source, row_vectors(self.backbone, rows.to(self.device))

"""A vector for every node of a tree, from its text alone or with its ancestors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ramify.batching.batch import Batch, Collator
from ramify.batching.forest import Forest, Ints
from ramify.batching.samplers import TokenBudget
from ramify.batching.text_input import BLIND, FOREIGN, Context, TextInput
from ramify.batching.views.base import Example
from ramify.batching.views.comment_trees import Discussions, units
from ramify.dataset.frames import ArrowStream
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.answers import Attention, NodeAttention
from ramify.inference.attention import AttentionRequest, node_attention
from ramify.inference.base import TOKENS, check_options, verb
from ramify.inference.index import SearchedNodes, SearchPipeline
from ramify.inference.mask_query import NodeInContext, chosen_node
from ramify.inference.rows import row_vectors
from ramify.inference.texts import Texts, read_texts
from ramify.inference.verbs import READS_COMMENTS
from ramify.models.base import Backbone, decode_parts, parts_of
from ramify.models.hf_sentences import Prompt, SentenceForm
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree

NODES = 1 << 18
"""Number of nodes that are laid out at a time."""


class EmbeddingPipeline(SearchPipeline, ABC):
    """A pipeline of a model that reads the texts of trees. Every such model can embed."""

    abilities: ClassVar[tuple[str, ...]] = (READS_COMMENTS,)
    normalize: bool = False
    """Whether vectors have length 1."""

    @abstractmethod
    def forest(self, data: Store | Iterable[Tree]) -> Forest:
        """Trees laid out for `embed_batches`."""

    @verb
    def embed(
        self,
        data: Tree | str | Iterable[Tree | str] | ArrowStream,
        *,
        level: str | None = None,
        context: Literal["tree", "none"] | None = None,
        text: str | None = None,
        id: str | None = None,
        parent: str | None = None,
        tree: str | None = None,
    ) -> Float[NDArray, "node dim"]:
        """A vector for every node, tree after tree: given its ancestors (`tree`), or from its text alone (`none`).

        By default, nodes read the same context as in training. A string is a tree of one node. `level` is for models of nested
        documents.

        Of a data frame (pandas, polars, pyarrow …), `text` names the column of texts: a vector for every row, in their order.
        With the columns `id` and `parent` (an id, or nothing for a root), rows are the nodes of trees; ids are unique in the
        frame, or in each `tree` if this column is named. Raises `RamifyError` for other types.
        """
        texts = read_texts(data, "embed", text=text, id=id, parent=parent, tree=tree)
        trees = _as_trees(texts)
        if not any(map(len, trees)):
            return np.zeros((0, self.dim), dtype=np.float32)
        forest = self.forest(trees)
        out = np.zeros((forest.store.num_nodes, self.dim), dtype=np.float32)
        for nodes, vectors in self.embed_batches(forest, context=context):
            out[nodes] = vectors
        return texts.in_order_of_rows(out)

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The number of tokens after which a text is cut, special tokens included."""

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.backbone.vector_dim

    def embed_batches(
        self, forest: Forest, *, context: Literal["tree", "none"] | None = None, tokens: int = TOKENS
    ) -> Iterator[tuple[Ints, Float[NDArray, "node dim"]]]:
        """Yield nodes of the store and their vectors, batch by batch."""
        self._check_context(context)
        with evaluating(self.module):
            for source, vectors in self.vector_batches(forest, context, tokens):
                # The parts of a chained text share one vector, their mean.
                nodes, place = np.unique(forest.node[source], return_inverse=True)
                total = torch.zeros(len(nodes), vectors.shape[1], dtype=torch.float32, device=vectors.device)
                total.index_add_(0, torch.from_numpy(place).to(vectors.device), vectors.float())
                total /= torch.from_numpy(np.bincount(place)).to(vectors.device)[:, None]
                if self.normalize:
                    total = nn.functional.normalize(total, dim=1)
                yield nodes, total.cpu().numpy()

    def searched(self, data: Store | Iterable[Tree | str], level: str | None = None) -> SearchedNodes:
        check_options(self, "nearest", {"level": level})
        store = data if isinstance(data, Store) else Store.from_trees(_as_trees(read_texts(data, "index")))
        numbers = np.arange(store.num_nodes)
        return SearchedNodes(store, numbers[~store.is_placeholder(numbers)], None, lambda tree, node: tree.nodes[node].text)

    def vectors_of(
        self, nodes: SearchedNodes, context: Literal["tree", "none"] | None, progress: Callable[[int], None] | None
    ) -> Float[NDArray, "node dim"]:
        vectors = np.zeros((nodes.store.num_nodes, self.dim), dtype=np.float32)
        for numbers, batch in self.embed_batches(self.forest(nodes.store), context=context):
            vectors[numbers] = batch
            if progress is not None:
                progress(len(numbers))
        return vectors[nodes.node]

    def options_of_vectors(self, level: str | None, context: Literal["tree", "none"] | None) -> dict[str, str]:
        self._check_context(context)
        return {"context": self.context_read(context)}

    def _check_context(self, context: str | None) -> None:
        if context not in (None, "tree", "none"):
            raise RamifyError(
                f"context={context} is not a context of embed: a vector is of a node with its ancestors (tree) or of its text "
                "alone (none). Set context to tree or none, or leave it out."
            )
        if context == "tree" and not self.backbone.reads_context:
            raise RamifyError(
                f"context=tree needs a model that reads ancestors; {type(self.backbone).__name__} embeds texts alone. Set "
                "context=none."
            )

    @abstractmethod
    def context_read(self, context: Literal["tree", "none"] | None) -> Context:
        """The context that a vector reads. None: as in training."""

    @abstractmethod
    def vector_batches(
        self, forest: Forest, context: Literal["tree", "none"] | None, tokens: int
    ) -> Iterator[tuple[Ints, Float[Tensor, "row dim"]]]:
        """Yield nodes of the forest and the vectors of their texts, in batches of about `tokens` tokens."""


def _as_trees(texts: Texts) -> list[Tree]:
    """A text is a tree of one node."""
    return [Tree((Node(item),)) if isinstance(item, str) else item for item in texts.items]


class TextPipeline(EmbeddingPipeline, ABC):
    """A pipeline of a model that reads the texts of trees, and records its attention."""

    @verb
    def attention(
        self,
        tree: Tree | str,
        node: str | int | None = None,
        *,
        context: Context | None = None,
        layer: int | None = None,
        head: int | None = None,
        order: Literal["forward", "backward", "random"] | None = None,
        seed: int = 0,
        target: str | None = None,
    ) -> Attention:
        """The attention weights of a text, or of a node's text in its context: a table per stack of layers and kind of
        attention.

        `layer` and `head` choose one; they are counted from 1. Raises `RamifyError` if the text is longer than the model reads.

        A model with two streams gives both, without memory. By default, tokens of its content stream read all tokens, and its
        query stream has a row for each mask token, which reads all other words, or if there is none, a row for each token,
        which reads all other tokens. With an `order`, both streams follow this factorization order; `seed` determines a random
        one.

        A model that reads a source takes the text as one. It gives the attention of its encoder, if that has any, and of its
        decoder as it reads the `target`; by default, this is its own translation.
        """
        return self._attention(tree, node, context, AttentionRequest(layer, head, order, seed, target))

    @abstractmethod
    def _attention(
        self, tree: Tree | str, node: str | int | None, context: Context | None, wanted: AttentionRequest
    ) -> Attention:
        """`attention` of one text. Only models with two streams are given an order, and only those
        that read a source a target."""


class ContextPipeline(TextPipeline, ABC):
    """A pipeline of a model that reads texts alone or with the vectors of their ancestors."""

    backbone: Backbone
    input: TextInput
    prompt: Prompt = Prompt()
    """The text that stands before every text."""

    @property
    def max_tokens(self) -> int:
        return self.input.max_tokens

    def forest(self, data: Store | Iterable[Tree]) -> Forest:
        return self.input.forest(data, self.tokenizer, self.prompt.text)

    def _attention(
        self, tree: Tree | str, node: str | int | None, context: Context | None, wanted: AttentionRequest
    ) -> Attention:
        tree, node = chosen_node(tree, node)
        text = NodeInContext.of(self.backbone, self.tokenizer, self.input, tree, node, context)
        ids = self.tokenizer.encode(self.prompt.text + tree.nodes[text.node].text, masks=True)
        return NodeAttention(*text.head, wanted.of(node_attention(self.backbone, text, ids)))

    def context_read(self, context: Literal["tree", "none"] | None) -> Context:
        if not self.backbone.reads_context:
            return "none"
        trained = "tree" if self.input.context in FOREIGN else self.input.context
        return trained if context is None or (trained in BLIND and context == "none") else context

    def vector_batches(
        self, forest: Forest, context: Literal["tree", "none"] | None, tokens: int
    ) -> Iterator[tuple[Ints, Float[Tensor, "row dim"]]]:
        """Yield nodes of the forest and their vectors, with whole trees in each batch."""
        chosen = self.context_read(context)
        # Without context, vectors come from the encoder, unless the model was trained without context: its encoder then
        # received no gradient.
        alone = self.backbone.reads_context and chosen == "none" and self.input.context not in BLIND
        input = replace(self.input, context=chosen, concatenate=0)
        collate = Collator(forest, self.tokenizer, input)
        for examples in _in_steps(forest, input, tokens):
            batch = collate(examples).to(self.device)
            yield batch.source, torch.cat([*self._vectors(batch, tokens, alone)])

    @torch.no_grad()
    def _vectors(self, batch: Batch, tokens: int, alone: bool) -> Iterator[Float[Tensor, "row dim"]]:
        """The vectors of the targets' texts, part by part, `alone` or in their context."""
        backbone = self.backbone
        if batch.null_context:
            # The null row stands for the context of a model that was trained with nothing else.
            for part, hidden in decode_parts(backbone, batch, tokens):
                yield backbone.vector(hidden.encoded(part))
        elif alone:
            for start, stop in runs(batch.costs, tokens):
                yield row_vectors(backbone, batch.select(start, stop).rows(context=False))
        else:
            for part, vectors in parts_of(backbone, batch, tokens):
                yield row_vectors(backbone, part.rows(context=backbone.reads_context, vectors=vectors), self._unpooled)

    @cached_property
    def _unpooled(self) -> int:
        """The number of tokens at the beginning of each row that its vector does not pool."""
        if self.prompt.pooled or not self.prompt.text:
            return 0
        return self.layout.frame.before + len(self.tokenizer.encode(self.prompt.text))


def _in_steps(forest: Forest, input: TextInput, tokens: int) -> Iterator[list[Example]]:
    """All nodes of the forest as targets, in batches of about `tokens` tokens. To bound memory, a view holds at most `NODES`
    nodes, or one tree."""
    for first, stop in runs(np.diff(forest.offsets), NODES):
        view = Discussions(forest, units(forest, np.arange(first, stop), predict_post=True), input)
        for numbers in TokenBudget(view.costs, tokens, seed=0, shuffle=False).steps(0):
            yield [view.example(int(number)) for number in numbers]


class Embedder(ContextPipeline):
    """Vectors from a backbone without a trained task, such as one from a sentence-transformers directory."""

    verbs = ("embed", "attention", "nearest")
    usage = ("model.embed(trees)",)

    def __init__(
        self, backbone: Backbone, tokenizer: Tokenizer, input: TextInput, sentences: SentenceForm | None = None
    ) -> None:
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.sentences = sentences
        if sentences is not None:
            self.normalize, self.prompt = sentences.normalize, sentences.prompt
        if self._unpooled and input.overflow == "chain":
            raise RamifyError(
                "input.overflow=chain does not fit a prompt that vectors leave out (include_prompt=false), because only the "
                "first part of a text begins with it. Set input.overflow=truncate."
            )

    @property
    def module(self) -> nn.Module:
        return self.backbone

    def parts(self) -> dict[str, Any]:
        return {"input": self.input, "sentences": self.sentences}

"""Use of models of nested documents: vectors of every level, text from vectors, and coherence."""

from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.levels import check_documents
from ramify.dataset.frames import ArrowStream
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.answers import (
    ChildCoherence,
    Coherence,
    Copyedited,
    CopyeditedVersion,
    NodeCoherence,
    ReconstructedNode,
    Reconstruction,
    nothing_written,
)
from ramify.inference.base import Pipeline, verb
from ramify.inference.documents.copyedit import Copyediting, Lowest, Order, Propagate, Towards, Update
from ramify.inference.documents.copyedited_documents import copyedit_document
from ramify.inference.documents.decoding import Passing
from ramify.inference.documents.known_vectors import KnownVectors
from ramify.inference.documents.node_coherence import DocumentCoherence, judge
from ramify.inference.documents.node_reconstruction import MOST_ROWS, Reconstructions, as_text, reconstruct, token_accuracy
from ramify.inference.documents.text import as_document, passages, texts_of_nodes
from ramify.inference.documents.vectors import Vectors, encode_nodes, in_groups
from ramify.inference.index import SearchedNodes, SearchPipeline
from ramify.inference.perplexity import surprise
from ramify.inference.texts import Texts, read_texts
from ramify.inference.verbs import LEVELS
from ramify.models.agent import Agent
from ramify.tasks.base import Task
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tree import DOCUMENT, Tree


class AnyDocumentPipeline(SearchPipeline, ABC):
    """A model that turns each sentence, paragraph, chapter and document into a vector."""

    abilities: ClassVar[tuple[str, ...]] = (LEVELS,)
    backbone: Agent
    task: NestedAutoencoder

    def __init__(self, task: NestedAutoencoder, *, saved: Task[Any] | None = None) -> None:
        """`saved`: the task that is saved, if the autoencoder is a part of it."""
        self.task = task
        self.saved = task if saved is None else saved
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def module(self) -> Task[Any]:
        return self.saved

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the model, from the lowest."""
        return self.backbone.config.levels

    def dim_of(self, level: str) -> int:
        """The length of the vectors of a level."""
        return self.backbone.config.dims[self.level_number(level) + 1]

    def level_number(self, level: str) -> int:
        """The number of a level: 0 is the lowest. Raises `RamifyError` if the model lacks it."""
        if level not in self.levels:
            raise RamifyError(f"the model has no level {level!r}. Its levels are {', '.join(self.levels)}.")
        return self.levels.index(level)

    def parts(self) -> dict[str, Any]:
        return {"task": self.saved.config, "input": self.input}

    @verb
    def embed(
        self,
        data: Tree | str | Iterable[Tree | str] | ArrowStream,
        *,
        level: str | None = None,
        context: Literal["tree", "none"] | None = None,
        text: str | None = None,
    ) -> Float[NDArray, "node dim"]:
        """A vector for every node of a level: the stored nodes of each tree, in their order. None: the lowest level.

        A string is one node of the level; on a level above paragraphs, blank lines end its paragraphs. A node that was cut has
        the mean of its pieces. A node that shares a row with its neighbours is encoded without them. `context` is for models
        of comments. Of a data frame (pandas, polars, pyarrow …), `text` names the column of texts, each of which is a string.
        Raises `RamifyError` for other types, for trees that are no documents, and for a level that the model lacks.
        """
        number = self.level_number(self.levels[0] if level is None else level)
        store, is_text = self._store(read_texts(data, "embed", text=text), number)
        vectors = [np.zeros((0, self.backbone.config.dims[number + 1]), dtype=np.float32)]
        for trees in in_groups(store):
            encoded = encode_nodes(self.backbone, self.tokenizer, self.input, store, trees, number)
            vectors.append(encoded.vectors[encoded.nodes.stored | is_text[encoded.nodes.tree]])
        return np.concatenate(vectors)

    def searched(self, data: Store | Iterable[Tree | str], level: str | None = None) -> SearchedNodes:
        name = self.levels[0] if level is None else level
        self.level_number(name)
        if isinstance(data, Store):
            store = data
            check_documents(store)
        else:
            store = self._store(read_texts(data, "index"), 0)[0]
        kinds = store.column("kind", np.arange(store.num_nodes)).to_pylist()
        numbers = np.flatnonzero([kind == name for kind in kinds])
        return SearchedNodes(store, numbers, name, lambda tree, node: next(texts_of_nodes(tree, [node])))

    def vectors_of(
        self, nodes: SearchedNodes, context: Literal["tree", "none"] | None, progress: Callable[[int], None] | None
    ) -> Float[NDArray, "node dim"]:
        assert nodes.level is not None
        number = self.level_number(nodes.level)
        vectors = []
        for trees in in_groups(nodes.store):
            encoded = encode_nodes(self.backbone, self.tokenizer, self.input, nodes.store, trees, number, progress)
            vectors.append(encoded.vectors[encoded.nodes.stored])
        return np.concatenate(vectors)

    def options_of_vectors(self, level: str | None, context: Literal["tree", "none"] | None) -> dict[str, str]:
        return {"level": self.levels[0] if level is None else level}

    def _store(self, texts: Texts, level: int, names: Sequence[str] | None = None) -> tuple[Store, NDArray[np.bool_]]:
        """The documents, and whether each is a text, which is a node of a level. `names`: the levels; None: the model's."""
        names = self.levels if names is None else names
        trees = [as_document(item, names, level) if isinstance(item, str) else item for item in texts.items]
        store = Store.from_trees(trees)
        if store.num_trees:
            check_documents(store)
        return store, np.array(
            [isinstance(item, str) for item, tree in zip(texts.items, trees, strict=True) if len(tree)], dtype=bool
        )


class DocumentEncoder(AnyDocumentPipeline):
    """A model of documents without decoder, heads and checkers, which embeds."""

    verbs: ClassVar[tuple[str, ...]] = ("embed", "nearest")
    usage: ClassVar[tuple[str, ...]] = (
        'model.embed(["It was late.", "Nobody came."], level="sentence")',
        'model.embed(trees, level="paragraph")',
    )


class DecodingPipeline(AnyDocumentPipeline, ABC):
    """A model with decoders and checkers, which gives back text from vectors, and judges the coherence of nodes."""

    def known_vectors(self, store: Store) -> KnownVectors:
        """The vectors of training nodes of a data set, for `copyedit` (`KnownVectors.of`)."""
        return KnownVectors.of(self.backbone, self.tokenizer, self.input, store)

    @verb
    def reconstruct(
        self, document: Tree | str, *, level: str | None = None, progress: Callable[[int], None] | None = None
    ) -> Reconstruction:
        """Encode each stored node of a level (None: the lowest), and decode its vector down to text.

        A string is one node of the level. Ends are predicted, never given. Raises `RamifyError` if the model was not trained
        to reconstruct.
        """
        self.check_trained("reconstruction", "decoders")
        number = self.level_number(self.levels[0] if level is None else level)
        store, is_text = self._store(read_texts(document, "reconstruct"), number)
        tree = store.tree(0) if store.num_trees else Tree(())
        reconstructions = reconstruct(self.task, store, np.arange(store.num_trees), number, progress)
        kept = np.flatnonzero(reconstructions.nodes.stored | is_text[reconstructions.nodes.tree])
        texts = texts_of_nodes(tree, reconstructions.nodes.node[kept].tolist())
        nodes = tuple(
            ReconstructedNode(
                id="" if is_text[0] else tree.nodes[int(reconstructions.nodes.node[place])].id,
                text=text,
                reconstruction=as_text(self.tokenizer, self.levels, reconstructions.decoded[place]),
                token_accuracy=token_accuracy(reconstructions.true_ids[place], reconstructions.decoded[place].ids),
                predicted_length=len(reconstructions.decoded[place].ids),
                complete=reconstructions.decoded[place].is_whole,
            )
            for place, text in zip(kept.tolist(), texts, strict=True)
        )
        blank = nothing_written([node.reconstruction for node in nodes if node.text.strip()])
        return Reconstruction(self.levels[number], nodes, *_counts(reconstructions), notes=blank)

    @verb
    def coherence(
        self, document: Tree | str, *, levels: Sequence[str] | None = None, progress: Callable[[int], None] | None = None
    ) -> Coherence:
        """The coherence of each stored node of some levels (None: of all), from 0 to 1, as the checkers judge it.

        Children of a sentence are tokens. With `marks=seed`, each child is marked alone as one that may be replaced: its score
        is 1 - min(1, n · r), for n children and the checker's share r of replaced ones, and a node's score is the mean of its
        children's. With `marks=none`, a node's score is 1 - r, and `children` is None. `score` is None for a node without
        children, and for a child that no row holds.

        A string is one document. Raises `RamifyError` if the model was not trained to judge coherence.
        """
        self.check_trained("coherence", "checkers")
        numbers = sorted(self.level_number(name) for name in (self.levels if levels is None else levels))
        tree, coherence = self._judged(document, numbers, progress)
        return Coherence(self.task.config.marks, self._judgements(tree, coherence), *_counts(coherence))

    def _judged(
        self, document: Tree | str, numbers: Sequence[int], progress: Callable[[int], None] | None
    ) -> tuple[Tree, DocumentCoherence]:
        """A document, and the scores of some of its levels."""
        # A string is a document for models without that level, too: its sentences are judged one by one.
        names = self.levels if self.levels[-1] == DOCUMENT else (*self.levels, DOCUMENT)
        store, _ = self._store(read_texts(document, "coherence"), len(names) - 1, names)
        tree = store.tree(0) if store.num_trees else Tree(())
        return tree, judge(self.task, store, np.arange(store.num_trees), numbers, progress)

    def _judgements(self, tree: Tree, coherence: DocumentCoherence) -> tuple[NodeCoherence, ...]:
        """The coherence of the stored nodes of a document, in the order of the tree."""
        nodes: list[tuple[int, int, NodeCoherence]] = []
        for number, scores in coherence.scores.items():
            below = coherence.levels.levels[number - 1] if number else None
            offsets = scores.nodes.offsets
            for place in np.flatnonzero(scores.nodes.stored).tolist():
                node = int(scores.nodes.node[place])
                children = None
                if scores.child_scores is not None:
                    children = []
                    for child in range(int(offsets[place]), int(offsets[place + 1])):
                        score = _score(scores.child_scores[child])
                        if below is None:
                            token = self.tokenizer.token(int(coherence.levels.ids[child]))
                            children.append(ChildCoherence(None, token, score))
                        else:
                            stored = bool(below.stored[child])
                            name = tree.nodes[int(below.node[child])].id if stored else None
                            children.append(ChildCoherence(name, None, score))
                score = _score(scores.node_scores[place])
                parts = None if children is None else tuple(children)
                nodes.append((node, number, NodeCoherence(tree.nodes[node].id, self.levels[number], score, parts)))
        nodes.sort(key=lambda entry: entry[:2])
        return tuple(node for _, _, node in nodes)

    @verb
    def copyedit(
        self,
        document: Tree | str,
        *,
        epsilon: float = Copyediting.epsilon,
        passes: int = Copyediting.passes,
        order: Order = Copyediting.order,
        propagate: Propagate = Copyediting.propagate,
        update: Update = Copyediting.update,
        towards: Towards = Copyediting.towards,
        prediction: Passing = Copyediting.prediction,
        passing: Passing = Copyediting.passing,
        lowest: Lowest = Copyediting.lowest,
        seed: int = Copyediting.seed,
        known: KnownVectors | None = None,
        judge: Pipeline | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Copyedited:
        """Move every node of a document a little towards its prediction from its siblings, and carry the edits to its text
        (AGENT, section 4.3).

        `Copyediting` describes the options. `known` are the vectors that some of them need (`known_vectors`). `judge` is
        another model that scores texts, under which the perplexity of both texts is measured. Coherence is as in `coherence`,
        of the nodes above the lowest level. `progress` receives the number of passes over levels.

        A string is one document. Raises `RamifyError` if no node has siblings, if the model lacks levels or parts, and for
        known vectors of another model.
        """
        settings = Copyediting(epsilon, passes, order, propagate, update, towards, prediction, passing, lowest, seed)
        self.check_trained("mlm", "predictions of masked nodes")
        self.check_trained("reconstruction", "decoders")
        self.check_trained("coherence", "checkers")
        vectors = self.checked_known(settings, known)
        store, _ = self._store(read_texts(document, "copyedit"), len(self.levels) - 1)
        tree = store.tree(0) if store.num_trees else Tree(())
        edited = copyedit_document(self.task, tree, settings, vectors, progress)
        notes = () if edited.is_whole else (f"of a level, only {MOST_ROWS:,} nodes were written, which is the limit.",)
        after = self._version(edited.after, judge)
        return Copyedited(
            self._version(edited.before, judge),
            after,
            edited.change_rate,
            edited.num_tokens,
            edited.num_unknown,
            edited.left_out,
            notes=notes + nothing_written([after.text]),
        )

    def checked_known(self, settings: Copyediting, known: KnownVectors | None) -> tuple[Vectors, ...]:
        """The known vectors of each level. Raises `RamifyError` if settings need some and there are none, or if another model
        made them."""
        if known is not None:
            known.check(self.backbone, self.tokenizer, self.input)
            return known.levels
        for name in ("towards", "prediction", "passing"):
            value = getattr(settings, name)
            if settings.needs_known(name):
                raise RamifyError(
                    f"{name}={value} needs known vectors of the model, and none are given. Pass those of its training data "
                    "(--bank DATA; in Python, known=model.known_vectors(store))."
                )
        return ()

    def mean_coherence(self, document: Tree | str) -> float:
        """The mean coherence of all nodes above the lowest level that have several children; NaN if there is none."""
        return _mean_of_several(self._judged(document, range(1, len(self.levels)), None)[1])

    def _version(self, tree: Tree, judge: Pipeline | None) -> CopyeditedVersion:
        document, scores = self._judged(tree, range(1, len(self.levels)), None)
        return CopyeditedVersion(
            tree,
            next(texts_of_nodes(tree, [0]), "") if len(tree) else "",
            self._judgements(document, scores),
            _score(_mean_of_several(scores)),
            None if judge is None else surprise(judge, passages(tree)).perplexity,
        )

    def check_trained(self, loss: str, parts: str) -> None:
        """Raise `RamifyError` if the model was trained without a loss, which teaches these parts."""
        if not getattr(self.task.config, loss):
            raise RamifyError(
                f"the model was trained with task.{loss}=0, so its {parts} learned nothing. Choose a model that was trained "
                "with this loss (`ramify train agent`)."
            )


class DocumentPipeline(DecodingPipeline):
    """A model that turns each node of a document into a vector, decodes the vector, and judges the node's coherence."""

    verbs: ClassVar[tuple[str, ...]] = ("embed", "reconstruct", "coherence", "copyedit", "nearest")
    usage: ClassVar[tuple[str, ...]] = (
        'model.embed(["It was late.", "Nobody came."], level="sentence")',
        'model.embed(trees, level="paragraph")',
        'model.reconstruct("It was late.", level="sentence")',
        "model.coherence(tree)",
        "model.copyedit(tree).after.text",
    )

    def encoder_only(self) -> DocumentEncoder:
        """The model without decoder, heads and checkers. Both share the encoder's weights."""
        config = replace(self.task.config, encoder_only=True)
        encoder = DocumentEncoder(NestedAutoencoder(self.backbone, self.tokenizer, self.input, config))
        encoder.kind = self.kind
        return encoder


def _mean_of_several(coherence: DocumentCoherence) -> float:
    """The mean score of the nodes with several children."""
    levels = coherence.scores.values()
    every = np.concatenate([np.zeros(0), *(level.node_scores[level.nodes.counts > 1] for level in levels)])
    known = every[np.isfinite(every)]
    return float(known.mean()) if len(known) else float("nan")


def _score(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _counts(result: Reconstructions | DocumentCoherence) -> tuple[int, int, int]:
    """The numbers of tokens, of unknown ones, and of children that are left out."""
    return result.num_tokens, result.num_unknown, result.left_out


def document_pipeline(task: NestedAutoencoder) -> AnyDocumentPipeline:
    """The pipeline of a task: an encoder alone has fewer methods."""
    return DocumentEncoder(task) if task.config.encoder_only else DocumentPipeline(task)

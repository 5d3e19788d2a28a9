"""Use of models with generators of nested documents."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch

from ramify.batching.document_batch import Banks
from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.inference.answers import GeneratedText, GeneratedTexts, GeneratedVersion, Neighbour, nothing_written
from ramify.inference.base import verb
from ramify.inference.documents.copyedit import Copyediting, Copyeditor
from ramify.inference.documents.decoding import Passing, PassRule
from ramify.inference.documents.generated_measures import NAMES, VECTORS, draws
from ramify.inference.documents.known_vectors import KnownVectors
from ramify.inference.documents.node_reconstruction import MOST_ROWS, bank
from ramify.inference.documents.pipeline import DecodingPipeline
from ramify.inference.documents.text import texts_of_nodes
from ramify.inference.documents.vector_trees import VectorTree, as_trees, decoded_tree
from ramify.inference.documents.vectors import Vectors, encode_documents, read_documents
from ramify.inference.search import Beam
from ramify.inference.verbs import GENERATES
from ramify.metrics.two_samples import nearest_cosines
from ramify.nn.modes import evaluating
from ramify.tasks.nested_adversary import NestedAdversary
from ramify.tree import Tree


class DocumentGenerator(DecodingPipeline):
    """A model of nested documents whose generators make vectors of each level, which decoders turn into text."""

    abilities: ClassVar[tuple[str, ...]] = (*DecodingPipeline.abilities, GENERATES)
    verbs: ClassVar[tuple[str, ...]] = ("generate", "embed", "reconstruct", "coherence", "copyedit", "nearest")
    usage: ClassVar[tuple[str, ...]] = (
        'model.generate(level="paragraph", count=3, known=model.known_vectors(store)).texts[0].text',
        'model.embed(["It was late.", "Nobody came."], level="sentence")',
        'model.reconstruct("It was late.", level="sentence")',
    )

    def __init__(self, task: NestedAdversary) -> None:
        super().__init__(task.autoencoder, saved=task)
        self.adversary = task

    @verb
    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: str | Sequence[str] | None = None,
        begin: bool | None = None,
        beam: int | None = None,
        n_best: int = 1,
        length_penalty: float = Beam.length_penalty,
        level: str | None = None,
        count: int = 1,
        copyedit: int = 1,
        epsilon: float = Copyediting.epsilon,
        passing: Passing = "raw",
        known: KnownVectors | None = None,
        versions: bool = False,
        show: Callable[[str], None] | None = None,
    ) -> GeneratedTexts | list[GeneratedTexts]:
        """Generate nodes of a level from noise, and decode their vectors down to text, level by level (AGENT, section 4.3).

        `copyedit` is the number of passes of copyediting over each level before the text is written, and `epsilon` the share of
        the way to its prediction that a node moves in each; nodes below an edited one are written anew. `known` are vectors of
        training nodes (`known_vectors`), among which the nearest neighbours are found. Text number i is that of its seed and of
        i, whatever `count` is. With `versions`, the answer also holds the trees before and after copyediting. `show` is not
        called.

        The other options are for models that continue a prompt. Raises `RamifyError` for a prompt, for a level without a
        trained generator, and without known vectors.
        """
        if prompt:
            raise RamifyError(
                f"prompt={prompt[:40]!r} is a text to continue, and this model generates documents from noise alone. "
                "Leave it out."
            )
        if count < 1:
            raise RamifyError(f"count={count} is the number of texts. Set at least 1.")
        if copyedit < 0:
            raise RamifyError(f"copyedit={copyedit} is the number of passes of copyediting. Set at least 0, which is none.")
        settings = Copyediting(epsilon, passes=copyedit, propagate="regenerate", passing=passing, seed=seed)
        self.check_trained("reconstruction", "decoders")
        self.check_trained("coherence", "checkers")
        if copyedit:
            self.check_trained("mlm", "predictions of masked nodes")
        number = self.level_number(self.levels[min(1, len(self.levels) - 1)] if level is None else level)
        name = self.levels[number]
        if number + 1 not in self.adversary.learning:
            learned = ", ".join(self.adversary.names[own] for own in self.adversary.learning)
            raise RamifyError(
                f"level={name} has a generator that has learned nothing; those of {learned} have. Choose one of "
                "these levels, or train it with `ramify train agent-gan`."
            )
        if known is None:
            raise RamifyError(
                "known=None leaves out the vectors of training nodes, among which nearest neighbours are found. Pass those of "
                "the training data (--data DIR; in Python, known=model.known_vectors(store))."
            )
        known.check(self.backbone, self.tokenizer, self.input)
        candidates: list[Vectors | None] = [None]
        candidates += [bank(self.task, own, vectors) for own, vectors in enumerate(known.levels[:number], 1)]
        vectors = self._vectors(number + 1, count, seed)
        names = self._names(number + 1, vectors, seed)
        made = decoded_tree(
            self.task,
            number,
            vectors,
            np.arange(count),
            candidates,
            PassRule(passing, known.levels),
            names,
        )
        edited = Copyeditor(self.task, settings, known.levels, candidates, names).edited(made)
        before, after = (as_trees(tree, self.levels[: number + 1], self.tokenizer) for tree in (made, edited))
        texts = tuple(
            self._text(own, None if not copyedit else other, name, known, versions=versions)
            for own, other in zip(after, before, strict=True)
        )
        return GeneratedTexts(name, texts, notes=_notes(edited, made) + nothing_written([text.text for text in texts]))

    @torch.no_grad()
    def _names(self, level: int, vectors: Vectors, seed: int) -> Banks | None:
        """The bank of each text, if the model has a memory of names: that of the document with its vector, or of a generated
        document of its own if the vectors are those of a level below."""
        rows = torch.from_numpy(vectors).to(self.adversary.device).split(1)
        is_document = level == self.backbone.depth
        with evaluating(self.module):
            banks = [
                self.adversary.names_of(1, draws(seed, number, NAMES), row if is_document else None)
                for number, row in enumerate(rows)
            ]
        known = [own for own in banks if own is not None]
        if not known:
            return None
        return Banks(torch.cat([own.answers for own in known]), torch.cat([own.known for own in known])).to("cpu")

    @torch.no_grad()
    def _vectors(self, level: int, count: int, seed: int) -> Vectors:
        """Vectors of a level from noise. Each has noise of its own."""
        generator = self.adversary.generator(level)
        noise = [generator.noise(1, draws(seed, number, VECTORS)) for number in range(count)]
        with evaluating(self.module):
            return generator(torch.cat(noise)).float().cpu().numpy()

    def _text(self, document: Tree, before: Tree | None, level: str, known: KnownVectors, *, versions: bool) -> GeneratedText:
        """A generated document as text. `before`: the document before copyediting."""
        version = self._version(document, None)
        neighbours = self._neighbours(document, known)
        top = next((node for node in document.nodes if node.kind == level), document.nodes[0])
        nearest = neighbours[top.id]
        drawn: list[GeneratedVersion] = []
        if versions:
            if before is not None:
                drawn.append(GeneratedVersion(before, self._version(before, None).nodes, self._neighbours(before, known)))
            drawn.append(GeneratedVersion(document, version.nodes, neighbours))
        identity = f"{nearest.tree} {nearest.id}"
        return GeneratedText(version.text, version.coherence, identity, nearest.text, versions=tuple(drawn))

    def _neighbours(self, document: Tree, known: KnownVectors) -> dict[str, Neighbour]:
        """The training node with the greatest cosine, for each node of a document that is on a level of the model."""
        store = Store.from_trees([document])
        view, collator = read_documents(self.backbone, self.tokenizer, self.input, store, np.arange(1))
        encoded = encode_documents(self.backbone, view, collator)
        found: dict[str, Neighbour] = {}
        read: dict[int, Tree] = {}
        for number, rows in enumerate(view.rows.levels):
            stored = np.flatnonzero(rows.level.stored)
            cosines, places = nearest_cosines(encoded.of_nodes(number)[stored], known.levels[number])
            nodes = known.nodes[number][places]
            trees = known.store.tree_of(nodes).tolist()
            for place, node, cosine, own in zip(stored.tolist(), nodes.tolist(), cosines.tolist(), trees, strict=True):
                if own not in read:
                    read[own] = known.store.tree(own)
                tree = read[own]
                name = document.nodes[int(rows.level.node[place])].id
                (text,) = texts_of_nodes(tree, [node - int(known.store.offsets[own])])
                found[name] = Neighbour(tree.id, known.store.ids([node])[0], cosine, text)
        return found


def _notes(*trees: VectorTree) -> tuple[str, ...]:
    cut = len(frozenset[int]().union(*(tree.cut for tree in trees)))
    if not cut:
        return ()
    return (f"{counted(cut, 'text')} ended before all was written, because a level of a text has at most {MOST_ROWS:,} nodes.",)

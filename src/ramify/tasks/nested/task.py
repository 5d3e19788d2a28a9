"""The objective of nested documents: which losses each level has, and the order in which they run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.document_batch import EMPTY, CollectionDraws, DocumentBatch, LevelBatch, LevelDraws
from ramify.batching.views.documents import LevelInput
from ramify.errors import RamifyError
from ramify.models.agent import Agent, AgentDecoder, CoherenceChecker, CollectionEncoder
from ramify.models.base import State
from ramify.nn.blocks import check_heads
from ramify.nn.heads import VocabularyHead
from ramify.nn.modes import generator_state, restored_generator
from ramify.nn.ragged import Rows
from ramify.tasks.base import Losses, Readings, Task
from ramify.tasks.constants import Constant
from ramify.tasks.nested.autoencoder import AutoencoderDistance
from ramify.tasks.nested.base import DecodedLevel, EncodedLevel, LevelLoss, LevelPass
from ramify.tasks.nested.candidates import Classes, Queue, candidates
from ramify.tasks.nested.coherence import Coherence, replaced_share
from ramify.tasks.nested.collection import MaskedDocuments, draw_collection
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.draws import LevelDrawer
from ramify.tasks.nested.length import PredictedLength
from ramify.tasks.nested.masked_child import MaskedChildHead, MaskedChildren
from ramify.tasks.nested.reconstruction import EndScores, Reconstruction
from ramify.tasks.nested.schedule import PlateauWatch
from ramify.tasks.spans import random_pieces
from ramify.tokenizer import Tokenizer

LOSSES: tuple[type[LevelLoss], ...] = (Reconstruction, MaskedChildren, Coherence, AutoencoderDistance, PredictedLength)
"""The losses that a level of children may have."""


class NestedAutoencoder(Task[DocumentBatch]):
    """Learn the vectors of every level. From every level above the tokens its children are reconstructed, and the share of its
    replaced children is judged; on every level below the highest, masked children are predicted from their siblings."""

    fresh = ("queues", "watch")
    """Nodes of other data, and the levels that learned in the course of another run."""
    backbone: Agent
    config: NestedAutoencoderConfig
    input: LevelInput

    def __init__(self, backbone: Agent, tokenizer: Tokenizer, input: LevelInput, config: NestedAutoencoderConfig) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.config = config
        self.names = ("token", *backbone.config.levels)
        """The names of all levels, tokens included."""
        sizes, depth = backbone.config, backbone.depth
        if config.ends == "logistic" and input.overflow == "pack":
            raise RamifyError(
                "task.ends=logistic predicts no mark between packed nodes. Set input.overflow=cut, or task.ends=class."
            )
        self.choices = random_pieces(tokenizer, tokenizer.vocab_size, special=False)
        """The token ids that a random token may be."""
        self.collection = None
        if config.encoder_only:
            return
        # Fresh weights are drawn in this order.
        self.decoder = AgentDecoder(sizes)
        self.mlm_heads = nn.ModuleList(MaskedChildHead(sizes.dims[level]) for level in range(depth))
        self.checkers = nn.ModuleList(
            CoherenceChecker(dim, config.checker_layers, round(config.checker_width * dim)) for dim in sizes.dims[1:]
        )
        table = backbone.encoder(0).table
        self.reconstruction_head = VocabularyHead(sizes.dims[0], table.num_embeddings, embedding=table)
        self.mlm_head = VocabularyHead(sizes.dims[0], table.num_embeddings, embedding=table)
        queued = sizes.dims[1:] if config.top == "collection" else sizes.dims[1:-1]
        self.queues = nn.ModuleList(Queue(config.queue, dim) for dim in queued)
        self.ends = nn.ModuleList(EndScores() for _ in sizes.dims[1:-1]) if config.ends == "logistic" else None
        if config.top == "collection":
            check_heads(sizes.dims[-1], sizes.num_heads)
            self.collection = CollectionEncoder(sizes)
            self.mlm_heads.append(MaskedChildHead(sizes.dims[-1]))
        if config.schedule == "staged" and config.plateau:
            self.watch = PlateauWatch()
        if unknown := set(config.without) - set(self._all_names()):
            raise RamifyError(
                f"task.without names no loss of this model: {', '.join(sorted(unknown))}. The losses are "
                f"{', '.join(self._all_names())}."
            )

    # --- the losses and their names ----------------------------------------------------------------------------------

    @property
    def per_level(self) -> tuple[LevelLoss, ...]:
        """The losses of each level of children, in the order in which they run. An encoder alone has none."""
        if self.config.encoder_only:
            return ()
        config, is_predicted = self.config, self.backbone.config.decoder_length == "predicted"
        return (
            Reconstruction(config, self.reconstruction_head, self.ends),
            MaskedChildren(config, self.mlm_heads, self.mlm_head),
            Coherence(config, self.checkers),
            AutoencoderDistance(config, self.share_done),
            *((PredictedLength(config),) if is_predicted else ()),
        )

    @property
    def loss_names(self) -> list[str]:
        """The names of all losses that are computed."""
        return [name for name in self._all_names() if name not in self.config.without]

    def _all_names(self) -> list[str]:
        names = [name for level in range(self.backbone.depth) for name in self._named(level)]
        return names if self.collection is None else [*names, self._collection_name]

    def _named(self, level: int) -> dict[str, LevelLoss]:
        """The losses of one level of children, by name."""
        child, parent = self.names[level], self.names[level + 1]
        return {loss.name(child if loss.of_children else parent): loss for loss in self.per_level}

    def _computed(self, level: int) -> dict[str, LevelLoss]:
        """The losses of one level of children that are computed, by name."""
        return {name: loss for name, loss in self._named(level).items() if name not in self.config.without}

    @property
    def _collection_name(self) -> str:
        return MaskedChildren.name(self.names[-1])

    # --- draws -------------------------------------------------------------------------------------------------------

    def corrupt(self, batch: DocumentBatch, generator: torch.Generator) -> DocumentBatch:
        seed = torch.randint(2**63 - 1, (1,), generator=generator, device=generator.device)
        return self.draw(batch, int(seed))

    def draw(self, batch: DocumentBatch, seed: int) -> DocumentBatch:
        """The batch with masked and replaced children, which the seed determines. It is empty if none of its levels learns."""
        low, high = self.active
        if batch.lowest >= high or batch.lowest + len(batch.levels) <= low:
            return EMPTY
        random = np.random.Generator(np.random.Philox(key=seed))
        drawer = LevelDrawer(self.config, self.tokenizer, self.choices)
        draws: list[LevelDraws] = []
        for number in range(len(batch.levels)):
            level = batch.lowest + number
            draws.append(drawer.draw(batch, number, self.queue(level) if level else None, random))
        drawn = replace(batch, draws=tuple(draw.to(batch.device) for draw in draws))
        if self.collection is None:
            return drawn
        return replace(drawn, collection=self._draw_collection(batch, random))

    def _draw_collection(self, batch: DocumentBatch, random: np.random.Generator) -> CollectionDraws | None:
        """The documents of a batch with masks. The copies of a long document are no collection."""
        if batch.parts or len(batch.levels) < self.backbone.depth or len(batch.levels[-1].rows) < 2:
            return None
        places = self.backbone.config.max_children[-1]
        return draw_collection(batch.levels[-1], places, self.config, random).to(batch.device)

    def queue(self, level: int) -> Queue:
        """The queue of a level above the tokens and below the highest."""
        queue = self.queues[level - 1]
        assert isinstance(queue, Queue)
        return queue

    # --- one update --------------------------------------------------------------------------------------------------

    @property
    def active(self) -> tuple[int, int]:
        """The lowest level of children that learns, and the one after the highest. Evaluation covers all levels, so that its
        losses can be compared from start to end."""
        config, depth = self.config, self.backbone.depth
        if config.schedule == "joint" or not self.training:
            return 0, depth
        unlocked = self.watch.before(self.updates) if config.plateau else 1 + self.updates // max(1, config.unlock_steps)
        stop = min(depth, unlocked)
        return (stop - 1 if config.freeze_below else 0), stop

    def counts(self, batch: DocumentBatch, phase: str) -> dict[str, float]:
        counts: dict[str, float] = {}
        low, high = self.active
        for level in range(self.backbone.depth):
            number = level - batch.lowest
            learns = 0 <= number < len(batch.levels) and low <= level < high
            for name, loss in self._computed(level).items():
                counts[name] = loss.count(batch.levels[number], batch.draws[number]) if learns else 0.0
        if self._collection_name in self.loss_names:
            draws = batch.collection if high == self.backbone.depth else None
            counts[self._collection_name] = 0.0 if draws is None else float(len(draws.masked))
        return counts

    def losses(
        self, batch: DocumentBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        if not batch.parts:
            losses = self.level_losses(batch, None, divisors)
            yield losses, None
            self._watch(losses)
            return
        # Frozen levels have no gradient.
        two_phase = self.config.upper == "two_phase" and self.active[0] < batch.lowest
        drawn, vectors = [], []
        with torch.no_grad():
            for part in batch.parts:
                drawn.append(generator_state(batch.device))
                vectors.append(self.backbone(part).nodes[-1])
        leaf = torch.cat(vectors).requires_grad_(two_phase)
        yield self.level_losses(batch, leaf, divisors), None
        if not two_phase or leaf.grad is None:
            return
        start = 0
        for part, before in zip(batch.parts, drawn, strict=True):
            # The same dropout as in the first pass.
            with restored_generator(batch.device, before):
                again = self.backbone(part).nodes[-1]
            yield {"encoder": (again * leaf.grad[start : start + len(again)]).sum()}, None
            start += len(again)

    def queued(self, batch: DocumentBatch) -> dict[str, tuple[Tensor, Tensor]]:
        pairs: dict[str, tuple[Tensor, Tensor]] = {}
        # The parts of a long document are its batch below.
        nodes = () if batch.parts else self.backbone(batch).nodes
        for level, (rows, vectors) in enumerate(zip(batch.levels, nodes), start=1):
            if level > len(self.queues):
                break
            queue = self.queue(level)
            # The last update has put the vectors of its own batch into the queue.
            earlier = ~torch.isin(queue.content[: len(queue)], rows.content)
            pairs[self.names[level]] = (vectors, queue.latest(vectors.dtype)[earlier])
        return pairs

    def _watch(self, losses: Mapping[str, Tensor]) -> None:
        """Let the next level begin, if the losses of the highest one say so."""
        config, level = self.config, self.active[1] - 1
        if not (self.training and config.schedule == "staged" and config.plateau) or level + 1 == self.backbone.depth:
            return
        highest = [float(losses[name].detach()) for name in self._computed(level) if name in losses]
        if highest:
            self.watch.observe(sum(highest), self.updates, config.plateau, config.unlock_steps)

    def readings(self, batch: DocumentBatch, phase: str, state: State | None, shared: Any) -> Readings:
        passes: list[LevelPass] = []
        constants: dict[str, Constant] = {}
        children = torch.cat([self.backbone(part).nodes[-1] for part in batch.parts]) if batch.parts else None
        losses = self.level_losses(batch, children, dict.fromkeys(self.loss_names, 1.0), passes)
        for level in passes:
            constants |= {name: loss.constant(level) for name, loss in self._computed(level.encoded.level).items()}
        if self.collection is not None and batch.collection is not None and self._collection_name in losses:
            loss, _, classes = self._masked_documents(self.collection, batch, passes[-1].encoded.parents)
            constants[self._collection_name] = loss.constant(classes, batch.collection)
        return Readings(losses, constants, {self.names[level.encoded.level + 1]: _once(level.encoded) for level in passes})

    def level_losses(
        self,
        batch: DocumentBatch,
        vectors: Tensor | None,
        divisors: Mapping[str, float],
        passes: list[LevelPass] | None = None,
    ) -> dict[str, Tensor]:
        """The losses of all levels of a batch, whose lowest rows have tokens as children, or these vectors. `passes` takes
        what was computed of each level."""
        low, high = self.active
        losses: dict[str, Tensor] = {}
        fresh: list[tuple[Queue, Tensor, LevelBatch]] = []
        for number, (rows, draws) in enumerate(zip(batch.levels, batch.draws, strict=True)):
            level = batch.lowest + number
            if level >= high:
                break
            with torch.set_grad_enabled(torch.is_grad_enabled() and level >= low):
                encoded = self.encode(batch, number, vectors)
            if level >= low:
                read = LevelPass(encoded, self.decode(encoded), draws)
                if passes is not None:
                    passes.append(read)
                for name, loss in self._computed(level).items():
                    value = loss.value(read, 1.0 / max(divisors[name], 1e-12))
                    losses |= {} if value is None else {name: value}
            vectors = encoded.parents
            if level + 1 <= len(self.queues):
                fresh.append((self.queue(level + 1), vectors, rows))
        if high == self.backbone.depth and self._collection_name in divisors:
            losses |= self._collection_loss(batch, vectors, divisors)
        if self.training:
            # Only now, so that no vector is a class of its own batch twice.
            for queue, newest, rows in fresh:
                queue.add(newest, rows)
        return losses

    def _collection_loss(
        self, batch: DocumentBatch, vectors: Tensor | None, divisors: Mapping[str, float]
    ) -> dict[str, Tensor]:
        """The loss of masked documents, if the documents of the batch, which have these vectors, are read as a collection."""
        if self.collection is None or batch.collection is None:
            return {}
        name, (loss, items, classes) = self._collection_name, self._masked_documents(self.collection, batch, vectors)
        return {name: loss.value(items, classes, batch.collection, max(divisors[name], 1e-12))}

    def _masked_documents(
        self, collection: CollectionEncoder, batch: DocumentBatch, vectors: Tensor | None
    ) -> tuple[MaskedDocuments, Float[Tensor, "item dim"], Classes]:
        """The loss of masked documents, the items that they may be, and the candidates among these."""
        depth = self.backbone.depth
        items, classes = self._candidates(depth, collection.states.items(vectors), batch.levels[-1:])
        head = self.mlm_heads[depth]
        assert isinstance(head, MaskedChildHead)
        return MaskedDocuments(self.config, collection, head), items, classes

    # --- one level ---------------------------------------------------------------------------------------------------

    def encode(self, batch: DocumentBatch, number: int, vectors: Tensor | None) -> EncodedLevel:
        """Encode the rows of one of the batch's levels, whose children have these vectors."""
        level, rows = batch.lowest + number, batch.levels[number]
        encoder = self.backbone.encoder(level)
        items, classes = encoder.items(vectors), None
        if level > 0:
            items, classes = self._candidates(level, items, batch.below(number))
        states = encoder.states(items, rows.slots, rows.rows)
        return EncodedLevel(level, encoder, rows, items, classes, states, encoder.compress(states, rows.rows))

    def _candidates(
        self, level: int, items: Float[Tensor, "item dim"], below: Sequence[LevelBatch]
    ) -> tuple[Float[Tensor, "more dim"], Classes]:
        """The items with the vectors of the level's queue, because a replaced chapter of a long document may come from it, and
        the candidates among them."""
        queue = self.queue(level)
        items = torch.cat([items, queue.latest(items.dtype)])
        return items, candidates(items, below, queue, self.config, training=self.training)

    def decode(self, encoded: EncodedLevel) -> DecodedLevel:
        """Decode vectors at the places of their true children and marks, as in training."""
        return encoded.decode(self.decoder.level(encoded.level))

    def masked_states(self, encoded: EncodedLevel, draws: LevelDraws) -> Float[Tensor, "masked dim"]:
        """The outputs of the head of masked children, which are compared with the level's items."""
        return MaskedChildren(self.config, self.mlm_heads, self.mlm_head).states(encoded, draws)

    def replaced_share(
        self,
        level: int,
        items: Float[Tensor, "item dim"],
        slots: Int[Tensor, " slot"],
        rows: Rows,
        segments: Int[Tensor, " slot"] | None,
    ) -> Float[Tensor, " row"]:
        """The share of replaced children that the checker of a level of children sees in each row."""
        return replaced_share(self.backbone.encoder(level), self.checkers[level], items, slots, rows, segments)


def _once(encoded: EncodedLevel) -> Float[Tensor, "row parent"]:
    """The vectors of a level's rows, without those of copies of a row."""
    _, first = np.unique(encoded.rows.source, return_index=True)
    return encoded.parents.index_select(0, torch.from_numpy(first).to(encoded.parents.device))

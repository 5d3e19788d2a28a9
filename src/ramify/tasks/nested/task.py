"""The objective of nested documents: which losses each level has, and the order in which they run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.document_batch import EMPTY, NUM_MARKS, Banks, CollectionDraws, DocumentBatch, LevelBatch, LevelDraws, Role
from ramify.batching.views.documents import LevelInput
from ramify.errors import RamifyError
from ramify.models.agent import Agent, AgentDecoder, CoherenceChecker, CollectionEncoder
from ramify.models.base import State
from ramify.models.name_memory import NameMemory, NamesOfRows
from ramify.nn.blocks import check_heads
from ramify.nn.heads import VocabularyHead
from ramify.nn.modes import evaluating, generator_state, restored_generator
from ramify.nn.ragged import Rows
from ramify.tasks.base import Losses, Readings, Task, belongs
from ramify.tasks.nested.autoencoder import AutoencoderDistance
from ramify.tasks.nested.base import DecodedLevel, EncodedLevel, LevelLoss, LevelPass, LevelRecord
from ramify.tasks.nested.candidates import Classes, Queue, candidates
from ramify.tasks.nested.coherence import Coherence
from ramify.tasks.nested.collection import MaskedDocuments, draw_collection
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.draws import LevelDrawer
from ramify.tasks.nested.foreign import ForeignChildren, ForeignHead
from ramify.tasks.nested.length import PredictedLength
from ramify.tasks.nested.masked_child import ChildPredictor, MaskedChildHead, MaskedChildren
from ramify.tasks.nested.reconstruction import EndScores, Reconstruction
from ramify.tasks.nested.schedule import PlateauWatch
from ramify.tasks.nested.similarity import Centre, Cosines, CosineSpace, DotProducts, NearIdentity, Similarity, space_of
from ramify.tasks.spans import random_pieces
from ramify.tokenizer import Tokenizer

LOSSES: tuple[type[LevelLoss], ...] = (
    Reconstruction,
    MaskedChildren,
    Coherence,
    AutoencoderDistance,
    PredictedLength,
    ForeignChildren,
)
"""The losses that a level of children may have."""


FIRST_LEVELS = {
    "backbone.encoders": 0,
    "decoder.decoders": 0,
    "mlm_heads": 0,
    "checkers": 0,
    "ends": 1,
    "reconstruction_spaces": 1,
    "mlm_spaces": 1,
    "sibling_paths": 1,
    "foreign_heads": 1,
    "centres": 1,
    "queues": 1,
}
"""Lists of modules, and the level of children to which the first module of each belongs. The others follow in order."""


@dataclass(frozen=True)
class FirstPass:
    """A part of a batch, encoded without a graph."""

    before: Tensor
    """The state of the random generator before the pass."""
    vectors: Float[Tensor, "row dim"]
    """The vectors of the highest rows of the part."""
    encoded: EncodedLevel | None
    """The lowest level, if losses read it, and have no graph."""


MATCHING_ABOVE = ("scores", "classes", "head", "ends")
"""Settings of the losses above the tokens, with which the weights of their levels belong together."""


class NestedAutoencoder(Task[DocumentBatch]):
    """Learn the vectors of every level. From every level above the tokens its children are reconstructed, and the share of its
    replaced children is judged; on every level below the highest, masked children are predicted from their siblings."""

    fresh = ("queues", "watch")
    """Nodes of other data, and the levels that learned in the course of another run."""
    optional = (
        "centres",
        "reconstruction_spaces",
        "mlm_spaces",
        "sibling_paths",
        "foreign_heads",
        "collection.states.norm",
        "name_memory",
    )
    """Modules that depend on settings, and start without an effect or anew."""
    matching = ("checker_layers", "checker_width")
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
        if sizes.sibling_product and config.marks == "none":
            raise RamifyError(
                "model.sibling_product=true changes children that carry the second segment vector, and task.marks=none leaves "
                "none. Set task.marks=seed, or model.sibling_product=false."
            )
        self.choices = random_pieces(tokenizer, tokenizer.vocab_size, special=False)
        """The token ids that a random token may be."""
        self.collection = self.centres = self.reconstruction_spaces = self.mlm_spaces = None
        self.sibling_paths = self.foreign_heads = self.name_memory = None
        if config.encoder_only:
            return
        added = (f"decoder.decoders.{level}.{name}" for level in range(depth) for name in ("length", "skip"))
        self.optional = (*self.optional, *added)
        # Fresh weights are drawn in this order.
        self.decoder = AgentDecoder(sizes)
        form, small = config.head, config.sibling_path
        self.mlm_heads = nn.ModuleList(
            MaskedChildHead(
                sizes.dims[level], form if level else "gelu", small=small, names=level == 0 and sizes.names is not None
            )
            for level in range(depth)
        )
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
            self.mlm_heads.append(MaskedChildHead(sizes.dims[-1], form, small=small))
        if config.schedule == "staged" and config.plateau:
            self.watch = PlateauWatch()
        children = sizes.dims[1:-1]
        if config.scores == "cosine" or config.sibling_path:
            self.centres = nn.ModuleList(Centre(dim) for dim in queued)
        if config.scores == "cosine":
            self.reconstruction_spaces = nn.ModuleList(CosineSpace(dim) for dim in children)
            self.mlm_spaces = nn.ModuleList(CosineSpace(dim) for dim in queued)
        if config.sibling_path:
            self.sibling_paths = nn.ModuleList(NearIdentity(dim) for dim in queued)
        if config.foreign:
            self.foreign_heads = nn.ModuleList(ForeignHead(dim) for dim in children)
        if sizes.names is not None:
            self.name_memory = NameMemory(sizes.dims[0], sizes.names)
            # The mark of hidden tokens is the same in all states that ask, and would lead all of them to one question.
            nn.init.zeros_(table.weight[NUM_MARKS + tokenizer.mask_id])
        self.annealed = tuple(AutoencoderDistance.name(name) for name in self.names[1:])
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
            Reconstruction(config, self.reconstruction_head, self.ends, self.reconstruction_spaces),
            MaskedChildren(config, tuple(map(self.predictor, range(self.backbone.depth))), self.mlm_head),
            Coherence(config, self.checkers),
            AutoencoderDistance(config, self.share_done),
            *((PredictedLength(config),) if is_predicted else ()),
            *((ForeignChildren(config, self.foreign_heads),) if self.foreign_heads is not None else ()),
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
        losses = (loss for loss in self.per_level if level > 0 or not loss.above_tokens)
        return {loss.name(child if loss.of_children else parent): loss for loss in losses}

    def _computed(self, level: int) -> dict[str, LevelLoss]:
        """The losses of one level of children that are computed, by name."""
        return {name: loss for name, loss in self._named(level).items() if name not in self.config.without}

    def _losses_of(self, batch: DocumentBatch, level: int) -> dict[str, LevelLoss]:
        """The losses of one level of children that a batch has, by name."""
        losses = self._computed(level)
        if batch.role is not Role.DECODER:
            return losses
        is_highest = level + 1 == batch.lowest + len(batch.levels)
        return {name: loss for name, loss in losses.items() if loss.of_decoder and is_highest}

    @property
    def _collection_name(self) -> str:
        return MaskedChildren.name(self.names[-1])

    # --- parameters --------------------------------------------------------------------------------------------------

    def level_of(self, name: str) -> int:
        """The level of children to which a parameter or buffer belongs."""
        for modules, first in FIRST_LEVELS.items():
            if belongs(name, (modules,)):
                return first + int(name.removeprefix(f"{modules}.").partition(".")[0])
        return self.backbone.depth if belongs(name, ("collection",)) else 0

    def adds_tokens(self, name: str) -> bool:
        """Whether a parameter adds tokens to the vectors that the Compressor of the lowest level made."""
        return belongs(name, ("backbone.encoders.0.token_skip",))

    def decodes(self, name: str) -> bool:
        """Whether a parameter turns vectors into scores of their children."""
        return belongs(name, ("decoder", "reconstruction_head", "ends", "reconstruction_spaces"))

    # --- draws -------------------------------------------------------------------------------------------------------

    def corrupt(self, batch: DocumentBatch, generator: torch.Generator) -> DocumentBatch:
        seed = torch.randint(2**63 - 1, (1,), generator=generator, device=generator.device)
        return self.draw(batch, int(seed))

    def draw(self, batch: DocumentBatch, seed: int) -> DocumentBatch:
        """The batch with masked and replaced children, which the seed determines. It is empty if none of its levels learns."""
        low, high = self.active
        if batch.first >= min(high, batch.lowest + len(batch.levels)) or batch.lowest + len(batch.levels) <= low:
            return EMPTY
        random = np.random.Generator(np.random.Philox(key=seed))
        drawn = replace(batch, draws=self._draw_levels(batch, random))
        if batch.chunks:
            drawn = replace(drawn, parts=tuple(replace(part, draws=self._draw_levels(part, random)) for part in batch.parts))
        if self.collection is None:
            return drawn
        return replace(drawn, collection=self._draw_collection(batch, random))

    def _draw_levels(self, batch: DocumentBatch, random: np.random.Generator) -> tuple[LevelDraws, ...]:
        drawer = LevelDrawer(self.config, self.tokenizer, self.choices)
        draws: list[LevelDraws] = []
        for number in range(batch.given, len(batch.levels)):
            level = batch.lowest + number
            draws.append(drawer.draw(batch, number, self.queue(level) if level else None, random))
        return tuple(draw.to(batch.device) for draw in draws)

    def _draw_collection(self, batch: DocumentBatch, random: np.random.Generator) -> CollectionDraws | None:
        """The documents of a batch with masks. The copies of a long document are no collection."""
        if batch.parts or len(batch.levels) < self.backbone.depth or len(batch.levels[-1].rows) < 2:
            return None
        places = self.backbone.config.max_children[-1]
        return draw_collection(batch.levels[-1], places, self.config, random).to(batch.device)

    def queue(self, level: int) -> Queue:
        """The queue of a level above the tokens and below the highest. With a frozen level, only that level's queue is filled,
        in batches of its vectors."""
        queue = self.queues[level - 1]
        assert isinstance(queue, Queue)
        return queue

    def clear_queues(self) -> None:
        for level in range(1, len(self.queues) + 1):
            self.queue(level).clear()

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
            learns = batch.given <= number < len(batch.levels) and low <= level < high
            counted = self._losses_of(batch, level) if learns else {}
            for name, loss in self._computed(level).items():
                draws = batch.draws[number - batch.given] if name in counted else None
                counts[name] = 0.0 if draws is None else loss.count(batch.levels[number], draws)
        for part in batch.parts if batch.chunks else ():
            for name, count in self.counts(part, phase).items():
                counts[name] = counts.get(name, 0.0) + count
        if self._collection_name in self.loss_names:
            draws = batch.collection if high == self.backbone.depth else None
            counts[self._collection_name] = 0.0 if draws is None else float(len(draws.masked))
        return counts

    def losses(
        self, batch: DocumentBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        for named in self._passes(batch, divisors, None):
            yield named, None

    def _passes(
        self, batch: DocumentBatch, divisors: Mapping[str, float], record: LevelRecord | None
    ) -> Iterator[dict[str, Tensor]]:
        """The losses of each backward pass."""
        if not batch.parts:
            with self._as_role(batch.role):
                losses = self.level_losses(batch, self.backbone.given(batch), divisors, record)
            yield losses
            self._watch(losses)
            return
        sums: dict[str, Tensor] = {}
        for named in self._passes_of_parts(batch, divisors, record):
            if named:
                yield named
            sums |= {name: sums.get(name, 0.0) + value.detach() for name, value in named.items()}
        if batch.chunks:
            self._watch(sums)

    def _passes_of_parts(
        self, batch: DocumentBatch, divisors: Mapping[str, float], record: LevelRecord | None
    ) -> Iterator[dict[str, Tensor]]:
        """The losses of each backward pass of a batch in parts."""
        low, high = self.active
        if high <= batch.lowest:
            # No level reads the vectors of the parts.
            for part in batch.parts:
                yield self.level_losses(part, None, divisors, record)
            return
        # Frozen levels have no gradient.
        two_phase = (batch.chunks or self.config.upper == "two_phase") and low < batch.lowest
        learns = batch.chunks and low == 0
        first = [self._first_pass(part, learns=learns) for part in batch.parts]
        vectors = [one.vectors for one in first]
        leaf = torch.cat(vectors).requires_grad_(two_phase)
        yield self.level_losses(batch, leaf, divisors, record)
        for part, one, given in zip(batch.parts, first, grads_of(leaf, vectors), strict=True):
            yield self._part_losses(part, one, given, divisors, record, learns=learns)

    def _as_role(self, role: Role) -> AbstractContextManager[None]:
        """Prepare the encoders for batches from which a part of the model learns."""
        match role:
            case Role.DECODER:
                return evaluating(self.backbone)
            case Role.LOWEST:
                return self.backbone.without_tokens()
            case Role.ALL | Role.ABOVE:
                return nullcontext()

    def _first_pass(self, part: DocumentBatch, *, learns: bool) -> FirstPass:
        """Encode a part without a graph. `learns`: it has losses of its own."""
        is_last = not torch.is_grad_enabled()
        before = generator_state(part.device)
        with torch.no_grad():
            encoded = self.encode(part, 0, None) if learns else None
            vectors = self.backbone(part).nodes[-1] if encoded is None else encoded.parents
        return FirstPass(before, vectors, encoded if is_last else None)

    def _part_losses(
        self,
        part: DocumentBatch,
        first: FirstPass,
        given: Tensor | None,
        divisors: Mapping[str, float],
        record: LevelRecord | None,
        *,
        learns: bool,
    ) -> dict[str, Tensor]:
        """The losses of a part: those of its own, if it `learns`, and the product with the gradient that its vectors are given.
        It is encoded once more where losses have a graph."""
        losses: dict[str, Tensor] = {}
        if not learns and given is None:
            return losses
        encoded, vectors = first.encoded, first.vectors
        if encoded is None:
            # The same dropout as in the first pass.
            with restored_generator(self.device, first.before):
                encoded = self.encode(part, 0, None) if learns else None
                vectors = self.backbone(part).nodes[-1] if encoded is None else encoded.parents
        if encoded is not None:
            losses |= self._encoded_losses(part, encoded, part.draws[0], divisors, record)
        if given is not None:
            losses["encoder"] = (vectors * given).sum()
        return losses

    def _watch(self, losses: Mapping[str, Tensor]) -> None:
        """Let the next level begin, if the losses of the highest one say so."""
        config, level = self.config, self.active[1] - 1
        if not (self.training and config.schedule == "staged" and config.plateau) or level + 1 == self.backbone.depth:
            return
        highest = [float(losses[name].detach()) for name in self._computed(level) if name in losses]
        if highest:
            self.watch.observe(sum(highest), self.updates, config.plateau, config.unlock_steps)

    def readings(self, batch: DocumentBatch, phase: str, state: State | None, shared: Any) -> Readings:
        record, losses = LevelRecord(), dict[str, Tensor]()
        for named in self._passes(batch, dict.fromkeys(self.loss_names, 1.0), record):
            losses |= {name: losses.get(name, 0.0) + value for name, value in named.items()}
        return Readings(losses, record.constants, {name: torch.cat(parts) for name, parts in record.vectors.items()})

    def queued(self, batch: DocumentBatch) -> dict[str, tuple[Tensor, Tensor]]:
        pairs: dict[str, tuple[Tensor, Tensor]] = {}
        # The parts of a long document are its batch below.
        if batch.parts or not self.config.queue:
            return pairs
        with self._as_role(batch.role):
            nodes = self.backbone(batch).nodes
        encoded = max(0, batch.given - 1)
        for level, (rows, vectors) in enumerate(zip(batch.levels[encoded:], nodes, strict=True), batch.lowest + encoded + 1):
            if level > len(self.queues):
                break
            queue = self.queue(level)
            # The last update has put the vectors of its own batch into the queue.
            earlier = ~torch.isin(queue.content[: len(queue)], rows.content)
            pairs[self.names[level]] = (vectors, queue.latest(vectors.dtype)[earlier])
        return pairs

    def level_losses(
        self,
        batch: DocumentBatch,
        vectors: Tensor | None,
        divisors: Mapping[str, float],
        record: LevelRecord | None = None,
    ) -> dict[str, Tensor]:
        """The losses of all levels of a batch, whose lowest rows have tokens as children, or these vectors."""
        low, high = self.active
        losses: dict[str, Tensor] = {}
        fresh: list[tuple[Queue, Tensor, LevelBatch]] = []
        is_queued = self.config.frozen is None
        if batch.given and vectors is not None:
            fresh.append((self.queue(batch.given), vectors, batch.levels[batch.given - 1]))
        for number, (rows, draws) in enumerate(zip(batch.levels[batch.given :], batch.draws, strict=True), batch.given):
            level = batch.lowest + number
            if level >= high:
                break
            with torch.set_grad_enabled(torch.is_grad_enabled() and level >= low):
                encoded = self.encode(batch, number, vectors)
            if level >= low:
                if batch.role is not Role.DECODER:
                    self._observe(level, vectors)
                losses |= self._encoded_losses(batch, encoded, draws, divisors, record)
            vectors = encoded.parents
            if is_queued and level + 1 <= len(self.queues):
                fresh.append((self.queue(level + 1), vectors, rows))
        if high == self.backbone.depth and self._collection_name in divisors:
            losses |= self._collection_loss(batch, vectors, divisors, record)
        if self.training:
            # Only now, so that no vector is a class of its own batch twice.
            for queue, newest, rows in fresh:
                queue.add(newest, rows)
        return losses

    def _encoded_losses(
        self,
        batch: DocumentBatch,
        encoded: EncodedLevel,
        draws: LevelDraws,
        divisors: Mapping[str, float],
        record: LevelRecord | None = None,
    ) -> dict[str, Tensor]:
        """The losses of one level of a batch."""
        wanted = self._losses_of(batch, encoded.level)
        if not wanted:
            return {}
        read = LevelPass(encoded, self.decoder.level(encoded.level), draws)
        if record is not None:
            record.add_level(self.names[encoded.level + 1], read, wanted)
        values = {name: loss.value(read, 1.0 / max(divisors[name], 1e-12)) for name, loss in wanted.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _collection_loss(
        self, batch: DocumentBatch, vectors: Tensor | None, divisors: Mapping[str, float], record: LevelRecord | None
    ) -> dict[str, Tensor]:
        """The loss of masked documents, if the documents of the batch, which have these vectors, are read as a collection."""
        if self.collection is None or batch.collection is None:
            return {}
        name, depth = self._collection_name, self.backbone.depth
        self._observe(depth, vectors)
        items, centre, classes = self._candidates(depth, self.collection.states.items(vectors), batch.levels[-1:])
        loss = MaskedDocuments(self.collection, self.predictor(depth))
        if record is not None:
            record.add_constant(name, loss.constant(classes, batch.collection))
        return {name: loss.value(items, classes, centre, batch.collection, 1.0 / max(divisors[name], 1e-12))}

    # --- one level ---------------------------------------------------------------------------------------------------

    def encode(self, batch: DocumentBatch, number: int, vectors: Tensor | None) -> EncodedLevel:
        """Encode the rows of one of the batch's levels, whose children have these vectors."""
        level, rows = batch.lowest + number, batch.levels[number]
        encoder = self.backbone.encoder(level)
        items, centre, classes = encoder.items(vectors), None, None
        if level > 0:
            items, centre, classes = self._candidates(level, items, batch.below(number))
        states = encoder.states(items, rows.slots, rows.rows)
        parents = encoder.row_vectors(states, rows.slots, rows.rows)
        names = self._names(rows, states, batch.banks) if level == 0 else None
        return EncodedLevel(level, encoder, rows, items, classes, centre, states, parents, names)

    def _names(self, rows: LevelBatch, states: Float[Tensor, "slot dim"], banks: Banks | None) -> NamesOfRows | None:
        """The banks that rows of tokens read: the given ones, or else those that the rows write from their states; None
        without a memory."""
        memory = self.name_memory
        if memory is None:
            return None
        if banks is None:
            answers = memory.write(states, rows.rows, rows.is_child)
            banks = memory.banks(answers, rows.node, rows.document, rows.counts > 0)
        return NamesOfRows(memory, banks)

    def _candidates(
        self, level: int, items: Float[Tensor, "item dim"], below: Sequence[LevelBatch]
    ) -> tuple[Float[Tensor, "more dim"], Float[Tensor, " dim"] | None, Classes]:
        """The items with the vectors of the level's queue, because a replaced chapter of a long document may come from it, the
        centre of those of the batch, and the candidates among all."""
        queue = self.queue(level)
        centre = None if self.centres is None else self.centre(level)(items[NUM_MARKS:])
        items = torch.cat([items, queue.latest(items.dtype)])
        return items, centre, candidates(items, below, queue, centre, self.config, training=self.training)

    def _observe(self, level: int, vectors: Float[Tensor, "child dim"] | None) -> None:
        """Take the vectors of a level of children into their running mean, in training."""
        if self.training and self.centres is not None and level > 0 and vectors is not None:
            self.centre(level).observe(vectors)

    def centre(self, level: int) -> Centre:
        """The mean of the vectors of a level above the tokens."""
        assert self.centres is not None
        centre = self.centres[level - 1]
        assert isinstance(centre, Centre)
        return centre

    def predictor(self, level: int) -> ChildPredictor:
        """The prediction of masked children of a level, tokens included."""
        head = self.mlm_heads[level]
        siblings = self.sibling_paths[level - 1] if self.sibling_paths is not None and level > 0 else None
        assert isinstance(head, MaskedChildHead)
        assert siblings is None or isinstance(siblings, NearIdentity)
        config, space = self.config, space_of(self.mlm_spaces, level)
        return ChildPredictor(head, siblings, space, config.classes, config.mlm, config.vector_distance)

    def decode(self, encoded: EncodedLevel) -> DecodedLevel:
        """Decode vectors at the places of their true children and marks, as in training."""
        return encoded.decode(self.decoder.level(encoded.level))

    def masked_states(self, encoded: EncodedLevel, draws: LevelDraws) -> Float[Tensor, "masked dim"]:
        """The predictions of masked children, which are compared with the level's items."""
        return self.predictor(encoded.level).of_level(encoded, draws)

    def masked_predictions(
        self,
        level: int,
        items: Float[Tensor, "item dim"],
        slots: Int[Tensor, " slot"],
        rows: Rows,
        masked: Int[Tensor, " masked"],
        banks: Banks | None = None,
    ) -> Float[Tensor, "masked dim"]:
        """As `masked_states`, outside training: predictions for the slots `masked` of rows that show `slots`. `banks`: see
        `read_names`."""
        centre = None if self.centres is None or level == 0 else self.centre(level).mean
        states = self.read_names(level, self.backbone.encoder(level).states(items, slots, rows), rows, banks)
        return self.predictor(level)(states, items, slots, rows, masked, centre)

    def replaced_children(
        self,
        level: int,
        items: Float[Tensor, "item dim"],
        slots: Int[Tensor, " slot"],
        rows: Rows,
        segments: Int[Tensor, " slot"] | None,
        probed: Int[Tensor, " probe"] | None = None,
    ) -> tuple[Float[Tensor, " row"], Float[Tensor, " probe"] | None]:
        """The share of replaced children that the checker of a level of children sees in each row, and the log-odds that the
        children in the slots `probed` were replaced, which carry the second segment vector; None without these, or if no head
        of the level has learned them."""
        encoder = self.backbone.encoder(level)
        states = encoder.states(items, slots, rows, segments)
        shares = self.checkers[level](encoder.row_vectors(states, slots, rows))
        if self.foreign_heads is None or level == 0 or probed is None:
            return shares, None
        return shares, self.foreign_heads[level - 1](states.index_select(0, probed))

    def read_names(
        self, level: int, states: Float[Tensor, "slot dim"], rows: Rows, banks: Banks | None
    ) -> Float[Tensor, "slot dim"]:
        """The states of rows of a level of children after they have read the memory of names: tokens read one bank per row.
        Without a memory, and above the tokens, there are no banks (None)."""
        if self.name_memory is None and banks is not None:
            raise RamifyError(
                "the model has no memory of names (model.names=null), so it reads no banks. Choose a model that was trained "
                "with `ramify train agent-sentence --names`."
            )
        if level > 0 or self.name_memory is None:
            assert banks is None, "only tokens read banks"
            return states
        assert banks is not None, "tokens of a model with a memory of names need a bank per row"
        return self.name_memory.read(states, rows, banks)

    # --- scores, and the way back to vectors ---------------------------------------------------------------------------

    def child_similarity(self, level: int) -> Similarity:
        """The scores of candidates for the decoder's states on a level of children, outside training."""
        return self._similarity(space_of(self.reconstruction_spaces, level), level)

    def masked_similarity(self, level: int) -> Similarity:
        """The scores of candidates for predictions of masked children of a level, outside training."""
        return self._similarity(space_of(self.mlm_spaces, level), level)

    def _similarity(self, space: CosineSpace | None, level: int) -> Similarity:
        if space is None:
            scaled = level > 0 and self.config.scores == "scaled"
            return DotProducts(self.backbone.config.dims[level] ** -0.5 if scaled else 1.0)
        return Cosines(space, self.centre(level).mean)

    def restored_children(self, level: int, states: Float[Tensor, "place dim"]) -> Float[Tensor, "place dim"]:
        """The vectors of a level of children for which the decoder's states stand. They are the states, unless scores are
        cosines (`CosineSpace`)."""
        return _restored(space_of(self.reconstruction_spaces, level), states)

    def restored_masked(self, level: int, states: Float[Tensor, "masked dim"]) -> Float[Tensor, "masked dim"]:
        """As `restored_children`, for predictions of masked children."""
        return _restored(space_of(self.mlm_spaces, level), states)


def _restored(space: CosineSpace | None, states: Float[Tensor, "place dim"]) -> Float[Tensor, "place dim"]:
    return states if space is None else space.restore(states)


def grads_of(leaf: Float[Tensor, "row dim"], parts: Sequence[Tensor]) -> Iterator[Tensor | None]:
    """The gradient of each part's rows of a leaf, one part after the other; None where the leaf has none."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    for part, end in zip(parts, ends, strict=True):
        yield None if leaf.grad is None else leaf.grad[end - len(part) : end]

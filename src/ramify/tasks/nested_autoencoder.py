"""The objectives of nested documents (AGENT, section 4): reconstruction, masked children, coherence, and a regulariser."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import (
    BOS,
    CONT,
    EMPTY,
    EOS,
    NUM_MARKS,
    CollectionDraws,
    DocumentBatch,
    LevelBatch,
    LevelDraws,
)
from ramify.batching.forest import Ints, ranges
from ramify.batching.views.documents import LevelInput
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.agent import Agent, AgentDecoder, CoherenceChecker, CollectionEncoder
from ramify.models.base import State
from ramify.nn.blocks import check_heads
from ramify.nn.heads import VocabularyHead
from ramify.nn.modes import generator_state, restored_generator
from ramify.nn.ragged import Rows
from ramify.tasks.base import Losses, Task
from ramify.tasks.nested_corruption import Pool, RowChildren, Source, mask_children, replace_children
from ramify.tasks.nested_parts import Classes, EndScores, MaskedChildHead, PlateauWatch, Queue, precise
from ramify.tasks.spans import check_split, random_pieces
from ramify.tokenizer import Tokenizer

LOSS_TITLES = {
    "reconstruction": ("Reconstruction: children from a vector", "nats per place"),
    "mlm": ("Masked children from their siblings", "nats per child"),
    "coherence": ("Coherence: the share of replaced children", "squared error"),
    "autoencoder": ("Regulariser: the Decompressor's output and the Compressor's input", "squared error"),
    "length": ("Number of children from a vector", "nats per node"),
}
"""The title and the unit of each kind of loss."""


def reconstruction_of(parent: str) -> str:
    """The name of the loss of reconstructing the children of nodes on this level."""
    return f"reconstruction_{parent}"


@dataclass(frozen=True)
class NestedAutoencoderConfig:
    """Weights and options of the losses. The paper adds all losses with weight 1."""

    reconstruction: float = 1.0
    """Weight of the loss of a node's children, given its vector."""
    mlm: float = 1.0
    """Weight of the loss of masked children."""
    coherence: float = 1.0
    """Weight of the loss of the share of replaced children."""
    without: tuple[str, ...] = ()
    """Losses that are left out, such as mlm_sentence or coherence_chapter."""
    autoencoder: float = 0.1
    """Weight at the start of the distance between a Compressor's input and its Decompressor's output."""
    autoencoder_until: float = 0.6
    """The share of training after which the weight of that distance has fallen to 0, along a cosine."""
    autoencoder_distance: Literal["squared", "relative"] = "squared"
    """squared: the mean square. relative: twice the mean distance, divided by the sum of the mean lengths."""
    autoencoder_detached: bool = False
    """Whether that distance teaches the Decompressor alone."""
    vector_distance: float = 0.1
    """Weight of the relative distance between a child's vector and its reconstruction, above the tokens. The scores of the
    reconstruction fix neither length nor direction."""
    label_smoothing: float = 0.0
    """Label smoothing of reconstructed tokens; Vaswani et al. 2017 take 0.1."""
    classes_detached: bool = True
    """Whether losses leave the vectors that are their classes unchanged. The vectors of the queue have no gradient. If those of
    the batch had one, all would be drawn in the direction that tells them from the queue's, and become alike."""
    balanced: bool = True
    """Whether losses above the tokens are divided by √d, the root of the length of their vectors. Embeddings of tokens have the
    variance 1/d. Vectors of higher levels are longer, so that without this the gradient of the levels above outweighs that of
    the tokens."""
    scores: Literal["plain", "scaled"] = "plain"
    """The scores of candidates above the tokens. plain: dot products, as in the paper. scaled: dot products divided by √d,
    which bounds how certain a prediction can be."""
    per_class: bool = False
    """Whether losses above the tokens are divided by the logarithm of the number of classes, which depends on the batch."""
    queue: int = 1024
    """The number of earlier vectors per level that are further classes in training, without a gradient."""
    mask_rate: float = 0.15
    mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """The shares of chosen children that show the mask, a random child, and themselves."""
    mask_draw: Literal["count", "bernoulli"] = "count"
    """count: max(1, round(rate · n)) of n children. bernoulli: each with the probability of the rate, so perhaps none."""
    marks: Literal["seed", "none"] = "seed"
    """Whether children that may be replaced carry the second segment vector (seed: they do, as in the paper). It tells which
    rows hold no replaced child, so coherence is scored child by child; none needs one pass."""
    replacement: Source = "any"
    """Replaced sentences and longer nodes come from any place in the batch, another parent, or another document."""
    replacement_tokens: Literal["batch", "vocabulary"] = "batch"
    """Replaced tokens are drawn from the tokens of the batch, or uniformly from the vocabulary."""
    checker_layers: int = 2
    checker_width: float = 2.0
    """The width of the checker's layers, as a multiple of the vector's length."""
    ends: Literal["class", "logistic"] = "class"
    """The end of a row above the tokens. class: the end marks are candidates beside the vectors. logistic: the cosine of a
    place's output with each end mark says whether the row ends there."""
    top: Literal["none", "collection"] = "none"
    """collection: on the highest level, too, nodes are predicted from their neighbours: the documents of the batch."""
    upper: Literal["detached", "two_phase"] = "detached"
    """Documents that are too long for one graph. detached: their chapters are encoded without a gradient. two_phase: the exact
    gradient, chapter by chapter."""
    schedule: Literal["joint", "staged"] = "joint"
    """staged: each further level begins to learn `unlock_steps` updates after the one below, or when that one's losses fall no
    further."""
    unlock_steps: int = 1000
    """The greatest number of updates before the next level begins."""
    plateau: float = 0.0
    """The next level begins when the losses of the highest one fall by less than this share in 100 updates (0: they are not
    looked at)."""
    freeze_below: bool = False
    """Whether a level stops learning when the next one begins (with staged)."""
    encoder_only: bool = False
    """Whether the model has neither decoder nor heads, so that it embeds and does not train."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        weights = ("reconstruction", "mlm", "coherence", "autoencoder", "vector_distance", "queue", "unlock_steps", "plateau")
        for name in weights:
            if getattr(self, name) < 0:
                raise RamifyError(f"task.{name} must be at least 0, but is {getattr(self, name)}.")
        for name in ("autoencoder_until", "label_smoothing", "mask_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise RamifyError(f"task.{name} must be at least 0 and at most 1, but is {getattr(self, name)}.")
        check_split(self.mask_split)
        if self.checker_layers < 0 or self.checker_width <= 0:
            raise RamifyError(
                f"task.checker_layers={self.checker_layers} must be at least 0, and task.checker_width={self.checker_width:g} "
                "above 0."
            )


@dataclass(frozen=True)
class Decoded:
    """A decoder's output for some rows."""

    states: Float[Tensor, "slot dim"]
    """One state per slot of the true rows, their end marks included."""
    decompressed: Float[Tensor, "slot dim"]
    """The Decompressor's output at the same slots."""
    length_scores: Float[Tensor, "row place"] | None
    """Scores of the number of places, if a head predicts it."""


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
        if unknown := set(config.without) - set(self._all_names()):
            raise RamifyError(
                f"task.without names no loss of this model: {', '.join(sorted(unknown))}. The losses are "
                f"{', '.join(self._all_names())}."
            )
        if config.encoder_only:
            return
        self.decoder = AgentDecoder(sizes)
        self.mlm_heads = nn.ModuleList(MaskedChildHead(sizes.dims[level]) for level in range(depth))
        widths = [round(config.checker_width * dim) for dim in sizes.dims[1:]]
        self.checkers = nn.ModuleList(
            CoherenceChecker(dim, config.checker_layers, width) for dim, width in zip(sizes.dims[1:], widths, strict=True)
        )
        table = backbone.encoder(0).table
        self.reconstruction_head = VocabularyHead(sizes.dims[0], table.num_embeddings, embedding=table)
        self.mlm_head = VocabularyHead(sizes.dims[0], table.num_embeddings, embedding=table)
        queued = sizes.dims[1:] if config.top == "collection" else sizes.dims[1:-1]
        self.queues = nn.ModuleList(Queue(config.queue, dim) for dim in queued)
        self.ends = nn.ModuleList(EndScores() for _ in sizes.dims[1:-1]) if config.ends == "logistic" else None
        self.collection = None
        if config.top == "collection":
            check_heads(sizes.dims[-1], sizes.num_heads)
            self.collection = CollectionEncoder(sizes)
            self.mlm_heads.append(MaskedChildHead(sizes.dims[-1]))
        if config.schedule == "staged" and config.plateau:
            self.watch = PlateauWatch()

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
        draws = [self._draw(batch, level, random) for level in range(len(batch.levels))]
        drawn = replace(batch, draws=tuple(draw.to(batch.device) for draw in draws))
        if self.collection is None:
            return drawn
        return replace(drawn, collection=self._draw_collection(batch, random))

    def _draw_collection(self, batch: DocumentBatch, random: np.random.Generator) -> CollectionDraws | None:
        """Masked documents among those of a batch, in reading order. The copies of a long document are no collection."""
        if batch.parts or len(batch.levels) < self.backbone.depth or len(batch.levels[-1].rows) < 2:
            return None
        order = np.argsort(batch.levels[-1].source)
        room = self.backbone.config.max_children[-1] - 1
        counts = np.diff(np.append(np.arange(0, len(order), room), len(order)))
        row = np.repeat(np.arange(len(counts)), counts)
        config = self.config
        masked = mask_children(
            RowChildren(order, row, counts),
            config.mask_rate,
            config.mask_split,
            order,
            None,
            random,
            bernoulli=config.mask_draw == "bernoulli",
        )
        slots = np.full(len(order) + len(counts), EOS)
        place = np.arange(len(order)) + row
        slots[place] = NUM_MARKS + order
        shown = slots.copy()
        shown[place[masked.chosen]] = masked.shown
        tensors = (torch.from_numpy(each) for each in (slots, shown, place[masked.chosen]))
        return CollectionDraws(Rows.build(counts + 1, keys=np.arange(len(counts))), *tensors).to(batch.device)

    def _draw(self, batch: DocumentBatch, number: int, random: np.random.Generator) -> LevelDraws:
        config, level, rows = self.config, batch.lowest + number, batch.levels[number]
        child, row = rows.children.cpu().numpy(), rows.child_row.cpu().numpy()
        children = RowChildren(child, row, rows.counts)
        own, pool = self._pools(batch, number, children)
        masked = mask_children(
            children,
            config.mask_rate,
            config.mask_split,
            self.choices if level == 0 else pool.child,
            NUM_MARKS + self.tokenizer.mask_id if level == 0 else None,
            random,
            bernoulli=config.mask_draw == "bernoulli",
        )
        replaced = replace_children(children, own, pool, "any" if level == 0 else config.replacement, random)
        child_slot = rows.child_slot.cpu()
        slots = rows.slots.cpu()
        chosen = child_slot.index_select(0, torch.from_numpy(masked.chosen))
        marked = torch.from_numpy(replaced.marked.astype(np.int64))
        segments = torch.zeros_like(slots).index_copy(0, child_slot, marked)
        return LevelDraws(
            masked_slots=slots.index_copy(0, chosen, torch.from_numpy(masked.shown)),
            masked=chosen,
            replaced_slots=slots.index_copy(0, child_slot, torch.from_numpy(NUM_MARKS + replaced.shown)),
            segments=None if config.marks == "none" else segments,
            share=torch.from_numpy(replaced.share),
            checked=torch.from_numpy(np.flatnonzero(rows.counts)),
        )

    def _pools(self, batch: DocumentBatch, number: int, children: RowChildren) -> tuple[Pool, Pool]:
        """The children themselves, and those that a random draw may take."""
        level, rows = batch.lowest + number, batch.levels[number]
        tree = rows.tree.cpu().numpy()[children.row]
        if level == 0:
            own = Pool(children.child, children.child, children.row, tree)
            if self.config.replacement_tokens == "batch":
                return own, own
            none = np.zeros_like(self.choices)
            return own, Pool(self.choices, self.choices, none, none)
        content = np.concatenate([part.content.cpu().numpy() for part in batch.below(number)])
        own = Pool(children.child, content[children.child], children.row, tree)
        if not batch.parts:
            return own, own
        # A long document is alone in its batch, so that chapters of other documents come from the queue.
        queue = self.queue(level)
        further = len(queue)
        kept = slice(0, further)
        return own, Pool(
            np.concatenate([own.child, len(content) + np.arange(further)]),
            np.concatenate([own.content, queue.content[kept].cpu().numpy()]),
            np.concatenate([own.parent, np.full(further, len(rows.rows))]),
            np.concatenate([own.tree, queue.tree[kept].cpu().numpy()]),
        )

    def queue(self, level: int) -> Queue:
        """The queue of a level above the tokens and below the highest."""
        found = self.queues[level - 1]
        assert isinstance(found, Queue)
        return found

    # --- losses ------------------------------------------------------------------------------------------------------

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
        found: dict[str, float] = {}
        low, high = self.active
        for level in range(self.backbone.depth):
            number = level - batch.lowest
            counts: dict[str, float] = dict.fromkeys(("reconstruction", "mlm", "coherence", "autoencoder", "length"), 0.0)
            if 0 <= number < len(batch.levels) and low <= level < high:
                rows, draws = batch.levels[number], batch.draws[number]
                slots = float(rows.lengths.sum())
                counts |= {"reconstruction": slots, "autoencoder": slots, "length": float(len(rows.lengths))}
                counts |= {"mlm": float(len(draws.masked)), "coherence": float(len(draws.checked))}
            found |= {name: counts[name.partition("_")[0]] for name in self._loss_names(level)}
        if (name := f"mlm_{self.names[-1]}") in self.loss_names:
            draws = batch.collection if high == self.backbone.depth else None
            found[name] = 0.0 if draws is None else float(len(draws.masked))
        return found

    def losses(
        self, batch: DocumentBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        if not batch.parts:
            found = self.level_losses(batch, None, divisors)
            yield found, None
            self._watch(found)
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
                found = self.backbone(part).nodes[-1]
            yield {"encoder": (found * leaf.grad[start : start + len(found)]).sum()}, None
            start += len(found)

    def _watch(self, losses: Mapping[str, Tensor]) -> None:
        """Let the next level begin, if the losses of the highest one say so."""
        config, level = self.config, self.active[1] - 1
        if not (self.training and config.schedule == "staged" and config.plateau) or level + 1 == self.backbone.depth:
            return
        own = [float(losses[name].detach()) for name in self._loss_names(level) if name in losses]
        if own:
            self.watch.observe(sum(own), self.updates, config.plateau, config.unlock_steps)

    def level_losses(self, batch: DocumentBatch, vectors: Tensor | None, divisors: Mapping[str, float]) -> dict[str, Tensor]:
        """The losses of all levels of a batch, whose lowest rows have tokens as children, or these vectors."""
        low, high = self.active
        found: dict[str, Tensor] = {}
        fresh: list[tuple[int, Tensor, LevelBatch]] = []
        for number, (rows, draws) in enumerate(zip(batch.levels, batch.draws, strict=True)):
            level = batch.lowest + number
            if level >= high:
                break
            with torch.set_grad_enabled(torch.is_grad_enabled() and level >= low):
                encoded = self.encode(batch, number, vectors)
            if level >= low:
                found |= self._level(encoded, draws, divisors)
            vectors = encoded.parents
            if level + 1 <= len(self.queues):
                fresh.append((level + 1, vectors, rows))
        last = f"mlm_{self.names[-1]}"
        if self.collection is not None and batch.collection is not None and high == self.backbone.depth and last in divisors:
            assert vectors is not None
            found |= self._collection(self.collection, vectors, batch, divisors)
        if self.training:
            # Only now, so that no vector is a class of its own batch twice.
            for level, own, rows in fresh:
                self.queue(level).add(own, rows)
        return found

    def _collection(
        self, encoder: CollectionEncoder, vectors: Tensor, batch: DocumentBatch, divisors: Mapping[str, float]
    ) -> dict[str, Tensor]:
        """The loss of masked documents among those of the batch."""
        draws, depth, name = batch.collection, self.backbone.depth, f"mlm_{self.names[-1]}"
        assert draws is not None
        items = torch.cat([encoder.states.items(vectors), self.queue(depth).latest(vectors.dtype)])
        states = encoder.states(items, draws.masked_slots, draws.rows).index_select(0, draws.masked)
        classes = self._classes(depth, items, batch.levels[-1:])
        labels = draws.slots.index_select(0, draws.masked)
        loss = classes.loss(self.mlm_heads[depth](states), labels, self.config.per_class).sum()
        return {name: loss * (self.config.mlm / max(divisors[name], 1e-12))}

    def encode(self, batch: DocumentBatch, number: int, vectors: Tensor | None) -> "Encoded":
        """Encode the rows of one of the batch's levels, whose children have these vectors."""
        level, rows = batch.lowest + number, batch.levels[number]
        encoder = self.backbone.encoder(level)
        items = encoder.items(vectors)
        classes = None
        if level > 0:
            # A replaced chapter of a long document may come from the queue.
            items = torch.cat([items, self.queue(level).latest(items.dtype)])
            classes = self._classes(level, items, batch.below(number))
        states = encoder.states(items, rows.slots, rows.rows)
        return Encoded(level, rows, items, classes, states, encoder.compress(states, rows.rows))

    def _classes(self, level: int, items: Float[Tensor, "item dim"], below: Sequence[LevelBatch]) -> Classes:
        """The candidates of a level above the tokens: its marks, its vectors and, in training, those of its queue. They were
        made by the weights of earlier updates."""
        queue = self.queue(level)
        queued = len(queue)
        marks = torch.arange(NUM_MARKS, device=items.device)
        content = torch.cat([marks, *(rows.content for rows in below), queue.content[:queued]])
        if not self.training:
            items, content = (each[: len(items) - queued] for each in (items, content))
        config, narrow = self.config, items.shape[1] ** -0.5
        return Classes(
            items.detach() if config.classes_detached else items,
            content,
            scale=narrow if config.scores == "scaled" else 1.0,
            weight=narrow if config.balanced else 1.0,
        )

    def _level(self, encoded: "Encoded", draws: LevelDraws, divisors: Mapping[str, float]) -> dict[str, Tensor]:
        """The losses of one level of children."""
        name, parent = self.names[encoded.level], self.names[encoded.level + 1]
        decoded = self.decode(encoded)
        weight = {each: 1.0 / max(divisors[each], 1e-12) for each in self._loss_names(encoded.level)}
        found: dict[str, Tensor] = {}
        if (own := reconstruction_of(parent)) in weight:
            found[own] = self._reconstruction(encoded, decoded, weight[own])
        if (own := f"length_{parent}") in weight:
            assert decoded.length_scores is not None
            lengths = torch.from_numpy(encoded.rows.lengths - 1).to(self.device)
            loss = F.cross_entropy(decoded.length_scores, lengths, reduction="sum")
            found[own] = loss * (self.config.reconstruction * weight[own])
        if (own := f"mlm_{name}") in weight and len(draws.masked):
            found[own] = self._masked(encoded, draws) * (self.config.mlm * weight[own])
        if (own := f"coherence_{parent}") in weight and len(draws.checked):
            found[own] = self._coherence(encoded, draws) * (self.config.coherence * weight[own])
        if (own := f"autoencoder_{parent}") in weight and self.autoencoder_weight:
            found[own] = self._autoencoder(encoded, decoded) * (self.autoencoder_weight * weight[own])
        return found

    @property
    def loss_names(self) -> list[str]:
        """The names of all losses that are computed."""
        return [name for name in self._all_names() if name not in self.config.without]

    def _all_names(self) -> list[str]:
        found = [name for level in range(self.backbone.depth) for name in self._names_of(level)]
        return found + ([f"mlm_{self.names[-1]}"] if self.config.top == "collection" else [])

    def _names_of(self, level: int) -> list[str]:
        name, parent = self.names[level], self.names[level + 1]
        found = [reconstruction_of(parent), f"mlm_{name}", f"coherence_{parent}", f"autoencoder_{parent}"]
        return found + ([f"length_{parent}"] if self.backbone.config.decoder_length == "predicted" else [])

    def _loss_names(self, level: int) -> list[str]:
        """The names of the losses of one level of children."""
        return [name for name in self._names_of(level) if name not in self.config.without]

    @property
    def autoencoder_weight(self) -> float:
        """The weight of the regulariser now: it falls to 0 along a cosine."""
        config = self.config
        if self.share_done >= config.autoencoder_until:
            return 0.0
        return config.autoencoder * 0.5 * (1 + math.cos(math.pi * self.share_done / config.autoencoder_until))

    def decode(self, encoded: "Encoded") -> Decoded:
        """Decode vectors at the places of their true children and marks, as in training."""
        rows, decoder = encoded.rows, self.decoder.level(encoded.level)
        true = Rows.build(rows.lengths).to(self.device)
        laid = true if decoder.length is not None else decoder.all_places(len(true), self.device)
        decompressed = decoder.decompress(encoded.parents, laid)
        at = torch.from_numpy(first_places(laid.host_lengths, rows.lengths)).to(self.device)
        if decoder.autoregressive:
            slots = rows.slots.index_select(0, rows.true_slots)
            before = torch.cat([slots.new_zeros(1), slots[:-1]])
            before = torch.where(true.positions == 0, BOS, before)
            previous = F.embedding(before, encoded.items) * self.backbone.encoder(encoded.level).scale
            states = decoder.after(previous, true, decompressed, laid)
        else:
            states = decoder.parallel(decompressed, laid).index_select(0, at)
        scores = None if decoder.length is None else decoder.length(encoded.parents)
        return Decoded(states, decompressed.index_select(0, at), scores)

    def _reconstruction(self, encoded: "Encoded", decoded: Decoded, weight: float) -> Float[Tensor, ""]:
        config, rows = self.config, encoded.rows
        labels = rows.slots.index_select(0, rows.true_slots)
        if encoded.classes is None:
            dtype = precise(decoded.states.dtype)
            weights = torch.full(labels.shape, config.reconstruction * weight, device=labels.device, dtype=dtype)
            loss = self.reconstruction_head.loss(decoded.states, labels, weights)
            if config.label_smoothing:
                smoothing = self._smoothing(decoded.states, labels)
                loss = loss + smoothing * (config.label_smoothing * config.reconstruction * weight)
            return loss
        if self.ends is None:
            loss = encoded.classes.loss(decoded.states, labels, config.per_class).sum()
        else:
            states, own = (each.index_select(0, rows.child_place) for each in (decoded.states, labels))
            loss = encoded.classes.without_marks().loss(states, own - NUM_MARKS, config.per_class).sum()
            ends = self.ends[encoded.level - 1](decoded.states, encoded.items)
            wanted = torch.stack([labels == EOS, labels == CONT], 1).to(ends.dtype)
            loss = loss + F.binary_cross_entropy_with_logits(ends, wanted, reduction="sum") / 2
        loss = loss * config.reconstruction
        if config.vector_distance and len(rows.child_place):
            own = F.embedding(labels.index_select(0, rows.child_place), encoded.items).detach()
            distance = relative_distance(own, decoded.states.index_select(0, rows.child_place))
            loss = loss + distance * (config.vector_distance * len(labels))
        return loss * weight

    def _smoothing(self, states: Float[Tensor, "position dim"], labels: Int[Tensor, " position"]) -> Float[Tensor, ""]:
        """The sum over positions of the label's score less the mean of all scores, by which label smoothing adds to the
        cross-entropy."""
        head = self.reconstruction_head
        own = (states * F.embedding(labels, head.weight)).sum(1) + head.bias.index_select(0, labels)
        return (own - states @ head.weight.mean(0) - head.bias.mean()).sum()

    def masked_states(self, encoded: "Encoded", draws: LevelDraws) -> Float[Tensor, "masked dim"]:
        """The outputs of the head of masked children, which are compared with the level's items."""
        encoder = self.backbone.encoder(encoded.level)
        states = encoder.states(encoded.items, draws.masked_slots, encoded.rows.rows)
        return self.mlm_heads[encoded.level](states.index_select(0, draws.masked))

    def _masked(self, encoded: "Encoded", draws: LevelDraws) -> Float[Tensor, ""]:
        states = self.masked_states(encoded, draws)
        labels = encoded.rows.slots.index_select(0, draws.masked)
        if encoded.classes is None:
            weights = torch.ones(labels.shape, device=labels.device, dtype=precise(states.dtype))
            return self.mlm_head.loss(states, labels, weights)
        return encoded.classes.loss(states, labels, self.config.per_class).sum()

    def judged(
        self,
        level: int,
        items: Float[Tensor, "item dim"],
        slots: Int[Tensor, " slot"],
        rows: Rows,
        segments: Int[Tensor, " slot"] | None,
    ) -> Float[Tensor, " row"]:
        """The checker's share of replaced children for rows of children of a level."""
        encoder = self.backbone.encoder(level)
        return self.checkers[level](encoder.compress(encoder.states(items, slots, rows, segments), rows))

    def _coherence(self, encoded: "Encoded", draws: LevelDraws) -> Float[Tensor, ""]:
        rows = encoded.rows.rows
        judged = self.judged(encoded.level, encoded.items, draws.replaced_slots, rows, draws.segments)
        judged = judged.index_select(0, draws.checked)
        share = draws.share.index_select(0, draws.checked).to(judged.dtype)
        return F.mse_loss(judged, share, reduction="sum")

    def _autoencoder(self, encoded: "Encoded", decoded: Decoded) -> Float[Tensor, ""]:
        own = encoded.states.index_select(0, encoded.rows.true_slots)
        own = own.detach() if self.config.autoencoder_detached else own
        if self.config.autoencoder_distance == "relative":
            return relative_distance(own, decoded.decompressed) * len(own)
        return F.mse_loss(decoded.decompressed, own, reduction="sum") / own.shape[1]


@dataclass(frozen=True)
class Encoded:
    """The rows of one level, encoded."""

    level: int
    """The level of the children."""
    rows: LevelBatch
    items: Float[Tensor, "item dim"]
    """The marks, and the tokens or the children's vectors with those of the queue."""
    classes: Classes | None
    """The candidates above the tokens. Tokens have a vocabulary."""
    states: Float[Tensor, "slot dim"]
    parents: Float[Tensor, "row parent"]


def relative_distance(own: Float[Tensor, "row dim"], other: Float[Tensor, "row dim"]) -> Float[Tensor, ""]:
    """Twice the mean distance, divided by the sum of the mean lengths: 0 for equal vectors, whatever their scale."""
    distance = torch.linalg.vector_norm(own - other, dim=1).mean()
    lengths = torch.linalg.vector_norm(own, dim=1).mean() + torch.linalg.vector_norm(other, dim=1).mean()
    return 2 * distance / lengths.clamp(min=1e-12)


def first_places(lengths: Ints, wanted: Ints) -> Ints:
    """Flat indices of the first `wanted` places of each row."""
    starts = np.cumsum(lengths) - lengths
    return ranges(starts, starts + wanted)

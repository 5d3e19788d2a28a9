"""Generators of the vectors of nested documents, and their discriminators (Rozental et al. 2019, section 4).

For each level above the tokens, a generator makes vectors from noise. A discriminator never reads a vector: real and generated
ones pass the same Decompressor and Decoder, and it reads the children that come out, at all places of a row. Above the tokens,
they pass `NestedAutoencoder.restored_children`, as all that is decoded does: where scores are cosines, a decoder's states are
no vectors of the level below, so a discriminator would judge what nothing ever reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.adversary_batch import AdversaryBatch
from ramify.batching.document_batch import EOS, NUM_MARKS, PAD, Banks, DocumentBatch, LevelBatch
from ramify.batching.views.documents import LevelInput
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.adversary import Discriminator, Generator, NamesGenerator
from ramify.models.agent import Agent, CoherenceChecker
from ramify.models.base import State
from ramify.models.name_memory import Answers, NameMemory
from ramify.nn.modes import evaluating, without_gradients
from ramify.nn.ragged import Rows
from ramify.tasks.adversarial import (
    DISCRIMINATOR,
    DISCRIMINATORS,
    GENERATOR,
    GENERATORS,
    GeneratorLoss,
    Match,
    loss_name,
    losses_of,
)
from ramify.tasks.base import MAIN, Losses, Phase, Readings, Task
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import Tokenizer

When = Literal["with", "after", "checker"]

ENERGY = Metric("energy_distance", greater_is_better=False)
"""The distance between generated vectors and those of the dev split (`metrics.two_samples`), the mean of all levels."""


@dataclass(frozen=True)
class NestedAdversaryConfig:
    """Settings of the generators and discriminators, and of the autoencoder that decodes for them."""

    autoencoder: NestedAutoencoderConfig = field(default_factory=NestedAutoencoderConfig)
    when: When = "after"
    """with: generators and discriminators learn beside the autoencoder, which goes on learning. after: the autoencoder is
    frozen. checker: it is, too, and the level's coherence checker, which reads vectors, takes the place of a discriminator."""
    loss: GeneratorLoss = "non_saturating"
    """The loss of a generator. minimax: the negative of its discriminator's. non_saturating: the cross-entropy of its items
    with the label of real ones."""
    levels: tuple[str, ...] | None = None
    """The levels whose generators learn. null: all levels of the model."""
    alone: tuple[str, ...] = ("document",)
    """Levels for which a real node is a single node of the level below, as its only child: with document, each chapter is a
    document of its own, because few books would be learned by heart. Names of levels that the model lacks have no effect."""
    layers: int = 2
    """Number of dense layers of a generator. A single one is a linear map of the noise."""
    width: float = 4.0
    """Width of the layers of a generator below the last, as a multiple of the vector's length."""
    start: Literal["moments", "random"] = "moments"
    """moments: at the start, generated vectors have the mean and the covariance of the real ones. random: they have nothing of
    them."""
    vectors: int = 64
    """The most real vectors of a level in a batch, and as many generated ones."""
    maps: int = 100
    """Number of feature maps of a discriminator for each width of its filters."""
    widths: tuple[int, ...] = (3, 4, 5)
    """Numbers of children that the filters of a discriminator read. Wider ones than a row of the level are left out."""
    dropout: float = 0.5
    """Dropout before the last layer of a discriminator."""
    names_noise: Literal["document", "answer"] = "document"
    """The noise of a model with a memory of names. document: one for all answers of a document. answer: one for each."""
    names_document: Literal["generated", "real"] = "generated"
    """The document whose names are made. generated: by the generator of documents. real: a random one of the batch, from which
    that generator learns."""
    max_norm: float | None = 3.0
    """Bound of the norm of the weights of a discriminator's last layer, which every update keeps. null: none."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        for name in ("layers", "vectors", "maps"):
            if getattr(self, name) < 1:
                raise RamifyError(f"task.{name} must be at least 1, but is {getattr(self, name)}.")
        if not self.widths or min(self.widths) < 1:
            raise RamifyError(
                f"task.widths={list(self.widths)} must hold at least one width, and none below 1. Set such widths as [3,4,5]."
            )
        if self.width <= 0:
            raise RamifyError(f"task.width must be above 0, but is {self.width:g}.")
        if not 0 <= self.dropout < 1:
            raise RamifyError(f"task.dropout must be at least 0 and below 1, but is {self.dropout:g}.")
        if self.max_norm is not None and self.max_norm <= 0:
            raise RamifyError(f"task.max_norm must be above 0, but is {self.max_norm:g}. Set it to null for no bound.")
        if self.levels is not None and not self.levels:
            raise RamifyError("task.levels=[] names no level, so no generator learns. Set it to null for all levels.")


@dataclass(frozen=True)
class Drawn:
    """The real vectors of a batch and the noise beside them, by the number of the level. They have no gradient."""

    real: Mapping[int, Float[Tensor, "_row _dim"]]
    noise: Mapping[int, Float[Tensor, "_row _dim"]]
    names: "DrawnNames | None" = None


@dataclass(frozen=True)
class DrawnNames:
    """The banks of the documents of real sentences, and what those of generated ones are made from: vectors and noise."""

    real: Banks
    documents: Float[Tensor, "row dim"]
    answers: Float[Tensor, "row answer token"]


class Coherent(nn.Module):
    """The log-odds that a vector is that of a coherent node, as a checker sees it: no child was replaced."""

    def __init__(self, checker: CoherenceChecker) -> None:
        super().__init__()
        self.checker = checker

    def forward(self, vectors: Float[Tensor, "row dim"]) -> Float[Tensor, " row"]:
        return -self.checker.log_odds(vectors)


class NestedAdversary(Task[AdversaryBatch]):
    """Learn to generate the vectors of each level above the tokens, which an autoencoder decodes down to text."""

    backbone: Agent
    config: NestedAdversaryConfig
    input: LevelInput

    def __init__(self, backbone: Agent, tokenizer: Tokenizer, input: LevelInput, config: NestedAdversaryConfig) -> None:
        """Raises `RamifyError` if the autoencoder lacks the parts that generators need."""
        super().__init__()
        _check_parts(backbone, config)
        sizes = backbone.config
        # First, so that its tensors have the names of any saved AGENT.
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.config = config
        self.autoencoder = NestedAutoencoder(backbone, tokenizer, input, config.autoencoder)
        self.names = self.autoencoder.names
        """The names of all levels, tokens included."""
        self.learning = tuple(number for number, name in enumerate(self.names) if number and self._learns(name))
        """The numbers of the levels whose generators learn. 0 would be the tokens."""
        self.generators = nn.ModuleList(Generator(dim, config.layers, round(config.width * dim)) for dim in sizes.dims[1:])
        has_discriminators = config.when != "checker"
        self.discriminators = nn.ModuleList(
            Discriminator(dim, places, maps=config.maps, widths=config.widths, dropout=config.dropout)
            for dim, places in zip(sizes.dims[:-1], sizes.max_children, strict=True)
            if has_discriminators
        )
        self.names_generator = None
        if sizes.names is not None and has_discriminators and 1 in self.learning:
            # Only tokens read names, and only the discriminator of the lowest level reads what tokens become.
            token = sizes.dims[0]
            self.names_generator = NamesGenerator(token, sizes.dims[-1], config.layers, round(config.width * token))
        named = () if self.names_generator is None else ("names_generator",)
        generators = replace(GENERATORS, parameters=(*GENERATORS.parameters, *named))
        players = (DISCRIMINATORS, generators) if has_discriminators else (generators,)
        idle = (number - 1 for number in range(1, len(self.names)) if number not in self.learning)
        lists = [phase.parameters[0] for phase in players]
        frozen = tuple(f"{modules}.{number}" for number in idle for modules in lists)
        if config.when == "with":
            self.phases = (Phase(MAIN), *players)
            self.metrics = (DEV_LOSS, ENERGY)
        else:
            self.phases = players
            self.metrics = (ENERGY,)
            frozen = ("backbone", "autoencoder", *frozen)
        self.frozen = frozen
        self.annealed = self.autoencoder.annealed
        self.opposed = tuple(loss_name(phase.name, self.names[number]) for phase in players for number in self.learning)

    def _learns(self, name: str) -> bool:
        return self.config.levels is None or name in self.config.levels

    def is_alone(self, level: int) -> bool:
        """Whether the real nodes of a level are single nodes of the level below."""
        return level > 1 and self.names[level] in self.config.alone

    def generator(self, level: int) -> Generator:
        """The generator of a level's vectors: 1 is the lowest above the tokens."""
        generator = self.generators[level - 1]
        assert isinstance(generator, Generator)
        return generator

    def discriminator(self, level: int) -> Discriminator:
        discriminator = self.discriminators[level - 1]
        assert isinstance(discriminator, Discriminator)
        return discriminator

    def checker(self, level: int) -> CoherenceChecker:
        checker = self.autoencoder.checkers[level - 1]
        assert isinstance(checker, CoherenceChecker)
        return checker

    # --- one update --------------------------------------------------------------------------------------------------

    def corrupt(self, batch: AdversaryBatch, generator: torch.Generator) -> AdversaryBatch:
        self.autoencoder.updates, self.autoencoder.share_done = self.updates, self.share_done
        if not batch.documents.levels:
            return batch
        return replace(batch, documents=self.autoencoder.corrupt(batch.documents, generator))

    def counts(self, batch: AdversaryBatch, phase: str) -> dict[str, float]:
        if phase == MAIN:
            return self.autoencoder.counts(batch.documents, phase)
        players = 2.0 if phase == DISCRIMINATOR else 1.0
        return {loss_name(phase, self.names[level]): players * self._number(batch, level) for level in self.learning}

    def shared(self, batch: AdversaryBatch, state: State | None) -> Drawn:
        real, noise = {}, {}
        names = None
        with evaluating(self.autoencoder), torch.no_grad():
            vectors = self.real_vectors(batch)
            banks = None if self.names_generator is None else self.real_names(batch)
        for level in self.learning:
            number = self._number(batch, level)
            rows = vectors[level] if number else self.generator(level).noise(0)
            chosen = torch.arange(number, device=rows.device)
            if number < len(rows):
                chosen = torch.randperm(len(rows), device=rows.device)[:number]
            real[level], noise[level] = rows.index_select(0, chosen), self.generator(level).noise(number)
            if level == 1 and banks is not None:
                names = self._drawn_names(banks.at(chosen), vectors)
        return Drawn(real, noise, names)

    @torch.no_grad()
    def _drawn_names(self, banks: Banks, vectors: Mapping[int, Float[Tensor, "_row _dim"]]) -> "DrawnNames":
        """The names of real sentences, and what those of as many generated ones are made of. `vectors`: the real ones of the
        batch, by the number of their level."""
        number, highest = len(banks.known), self.backbone.depth
        noise, answers = self.names_noise(number)
        if self.config.names_document == "generated":
            return DrawnNames(banks, self.generator(highest)(noise), answers)
        rows = vectors[highest] if highest in vectors else noise[:0]
        if not len(rows):
            raise RamifyError(
                f"task.names_document=real needs a {self.names[highest]} in each batch, and one holds none. Add "
                f"{self.names[highest]} to task.levels, take a larger train.budget, or set task.names_document=generated."
            )
        return DrawnNames(banks, rows[torch.randint(len(rows), (number,), device=rows.device)], answers)

    def losses(
        self, batch: AdversaryBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Drawn
    ) -> Losses:
        if phase == MAIN:
            yield from self.autoencoder.losses(batch.documents, divisors, phase, None, None)
        else:
            # The mode of the autoencoder counts, and the backward pass comes after this context.
            with evaluating(self.autoencoder):
                losses = losses_of(self.matches(shared), divisors, phase)
            yield losses, None

    def readings(self, batch: AdversaryBatch, phase: str, state: State | None, shared: Drawn) -> Readings:
        if phase == MAIN:
            return self.autoencoder.readings(batch.documents, phase, None, None)
        matches = self.matches(shared)
        with evaluating(self.autoencoder):
            losses = losses_of(matches, dict.fromkeys(self.opposed, 1.0), phase)
        constants = {loss_name(phase, name): match.at_prior(phase) for name, match in matches.items()}
        vectors = {}
        if phase == GENERATOR:
            made = {level: self.generator(level)(noise) for level, noise in shared.noise.items()}
            vectors |= {f"generated_{self.names[level]}": rows for level, rows in made.items()}
            vectors |= {f"real_{self.names[level]}": rows for level, rows in shared.real.items()}
        return Readings(losses, constants, vectors)

    def after_update(self, phase: str) -> None:
        if phase == DISCRIMINATOR and self.config.max_norm is not None:
            for level in self.learning:
                self.discriminator(level).bound(self.config.max_norm)

    # --- real and generated nodes ------------------------------------------------------------------------------------

    def real_vectors(self, batch: AdversaryBatch) -> dict[int, Float[Tensor, "_row _dim"]]:
        """The vectors of the real nodes of a batch, by the number of their level."""
        if batch.samples:
            samples = {level: batch.samples[level - 1] for level in self.learning}
            given = {level: self.backbone(sample).nodes[-1] for level, sample in samples.items() if sample.levels}
            return {level: self.alone(level, rows) if self.is_alone(level) else rows for level, rows in given.items()}
        nodes = self._nodes(batch.documents)
        real = {level: level - self.is_alone(level) for level in self.learning}
        return {
            level: self.alone(level, nodes[source]) if source < level else nodes[source]
            for level, source in real.items()
            if source in nodes
        }

    def _nodes(self, documents: DocumentBatch) -> dict[int, Float[Tensor, "_row _dim"]]:
        """The vectors of all rows of documents, by the number of their level."""
        nodes: dict[int, Tensor] = {}
        vectors = self.backbone.given(documents)
        if vectors is not None:
            nodes[documents.lowest + documents.given] = vectors
        if documents.parts:
            by_part = [self.backbone(part).nodes for part in documents.parts]
            nodes |= {level: torch.cat(rows) for level, rows in enumerate(zip(*by_part, strict=True), 1)}
            vectors = nodes[documents.lowest]
        for level, rows in enumerate(documents.levels[documents.given :], documents.lowest + documents.given):
            vectors = nodes[level + 1] = self.backbone.encode(level, vectors, rows)
        return nodes

    def real_names(self, batch: AdversaryBatch) -> Banks:
        """The bank of the document of each real sentence of a batch: the mean answers of its sentences in the batch, or in the
        whole document if they are given. Unlike a reader in training, no sentence is left out, as in decoding."""
        if batch.samples:
            given = batch.samples[0].banks
            assert given is not None, "samples of a model with a memory of names have banks"
            return given
        memory = self.autoencoder.name_memory
        assert memory is not None
        documents = batch.documents
        if documents.banks is not None:
            return documents.banks
        lowest = [part.levels[0] for part in documents.parts] or [documents.levels[0]]
        answers = Answers.cat([self._answers(memory, rows) for rows in lowest])
        document = np.concatenate([rows.document for rows in lowest])
        sentence = np.concatenate([rows.node for rows in lowest])
        has_tokens = np.concatenate([rows.counts > 0 for rows in lowest])
        return memory.banks(answers, sentence, document, has_tokens, whole=True)

    def _answers(self, memory: NameMemory, rows: LevelBatch) -> Answers:
        encoder = self.backbone.encoder(0)
        return memory.write(encoder.states(encoder.items(None), rows.slots, rows.rows), rows.rows, rows.is_child)

    def names_noise(
        self, number: int, generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "row dim"], Float[Tensor, "row answer token"]]:
        """Noise of this many documents, and of their answers."""
        memory = self.autoencoder.name_memory
        assert memory is not None
        assert self.names_generator is not None
        answers = len(memory.questions) if self.config.names_noise == "answer" else 1
        documents = self.generator(self.backbone.depth).noise(number, generator)
        return documents, self.names_generator.noise(number, answers, generator)

    def generated_names(self, documents: Float[Tensor, "row dim"], answers: Float[Tensor, "row answer token"]) -> Banks:
        """Banks of documents with these vectors, which learn nothing from them, given the noise of the answers."""
        memory = self.autoencoder.name_memory
        assert memory is not None
        assert self.names_generator is not None
        return Banks.of(self.names_generator(memory.questions.detach(), documents.detach(), answers))

    @torch.no_grad()
    def names_of(
        self, number: int, generator: torch.Generator, documents: Float[Tensor, "row dim"] | None = None
    ) -> Banks | None:
        """Banks with which generated nodes are decoded, one for each; None if the model has no memory of names. If no generator
        of names has learned, banks hold nothing. `documents`: the vectors of the documents to which the nodes belong; None:
        each belongs to a generated document of its own."""
        memory = self.autoencoder.name_memory
        if memory is None:
            return None
        if self.names_generator is None:
            return Banks.of(memory.questions.detach().expand(number, -1, -1)).without_answers()
        noise, answers = self.names_noise(number, generator)
        own = self.generator(self.backbone.depth)(noise) if documents is None else documents
        return self.generated_names(own, answers)

    def _number(self, batch: AdversaryBatch, level: int) -> int:
        """The number of real vectors of a level that a batch is learned from."""
        below = level - 1 if self.is_alone(level) else level
        if batch.samples:
            sample = batch.samples[level - 1]
            rows = len(sample.levels[-1].rows) if sample.levels else 0
        else:
            rows = _rows_of(batch.documents, below)
        return min(rows, self.config.vectors)

    def alone(self, level: int, children: Float[Tensor, "row child"]) -> Float[Tensor, "row dim"]:
        """The vectors of nodes of a level that have one child each, with these vectors."""
        encoder, places = self.backbone.encoder(level - 1), self.backbone.config.max_children[level - 1]
        number = torch.arange(len(children), device=children.device)
        slots = [number + NUM_MARKS, torch.full_like(number, EOS)]
        if self.backbone.config.padding == "full":
            slots += [torch.full_like(number, PAD)] * (places - 2)
        rows = Rows.build([len(slots)] * len(children)).to(children.device)
        flat = torch.stack(slots, 1).flatten()
        return encoder.row_vectors(encoder.states(encoder.items(children), flat, rows), flat, rows)

    def decoded(
        self, level: int, vectors: Float[Tensor, "row dim"], names: Banks | None = None
    ) -> Float[Tensor, "row place child"]:
        """The children of vectors of a level at all places of a row, as they are passed on to the level below. `names`: the
        bank of each row of tokens, if the model has a memory of names."""
        decoder = self.autoencoder.decoder.level(level - 1)
        rows = decoder.all_places(len(vectors), vectors.device)
        decompressed = self.autoencoder.read_names(level - 1, decoder.decompress(vectors, rows), rows, names)
        states = decoder.parallel(decompressed, rows)
        return self.autoencoder.restored_children(level - 1, states).unflatten(0, (len(vectors), decoder.places))

    def matches(self, drawn: Drawn) -> dict[str, Match]:
        """The players of each level, by the level's name. Only parameters of players take a gradient."""
        return {self.names[level]: self._match(level, drawn) for level in self.learning}

    def _match(self, level: int, drawn: Drawn) -> Match:
        real, noise = drawn.real[level], drawn.noise[level]
        judge = Coherent(self.checker(level)) if self.config.when == "checker" else self.discriminator(level)

        names = drawn.names if level == 1 else None

        def read(vectors: Float[Tensor, "row dim"], banks: Banks | None) -> Tensor:
            if self.config.when == "checker":
                return vectors
            with without_gradients(self.autoencoder):
                return self.decoded(level, vectors, banks)

        def generate() -> Tensor:
            banks = None
            if names is not None:
                banks = self.generated_names(names.documents, names.answers)
            return read(self.generator(level)(noise), banks)

        return Match(
            judge=judge,
            generate=generate,
            real=lambda: read(real, None if names is None else names.real),
            number=len(noise),
            loss=self.config.loss,
        )


def _rows_of(batch: DocumentBatch, level: int) -> int:
    """The number of vectors of a level that a batch has."""
    number = level - 1 - batch.lowest
    if number < 0:
        return sum(len(part.levels[level - 1].rows) for part in batch.parts)
    return len(batch.levels[number].rows) if max(0, batch.given - 1) <= number < len(batch.levels) else 0


def _check_parts(backbone: Agent, config: NestedAdversaryConfig) -> None:
    """Raise `RamifyError` if a model cannot be the autoencoder of generators."""
    if config.autoencoder.encoder_only:
        raise RamifyError(
            "task.autoencoder.encoder_only=true leaves no decoder and no checker, which generators need. Start from the run "
            "that the encoder was taken from, such as `ramify train agent` makes."
        )
    if backbone.config.decoder == "autoregressive":
        raise RamifyError(
            "model.decoder=autoregressive chooses each child before it reads it, so no gradient leads from a discriminator "
            "through the decoded children to a generator. Start from a model with model.decoder=parallel."
        )
    levels: Sequence[str] = config.levels or ()
    if unknown := [name for name in levels if name not in backbone.config.levels]:
        raise RamifyError(
            f"task.levels={list(levels)} names {', '.join(unknown)}, which the model does not have. Its levels are "
            f"{', '.join(backbone.config.levels)}."
        )
    weight = "coherence" if config.when == "checker" else "reconstruction"
    if not getattr(config.autoencoder, weight):
        part = "checkers" if config.when == "checker" else "decoders"
        raise RamifyError(
            f"task.autoencoder.{weight}=0, so the {part} of the model have learned nothing, which task.when={config.when} "
            "needs. Start from a model that was trained with this loss, such as `ramify train agent` makes."
        )

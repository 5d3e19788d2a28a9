"""Measures of generated vectors and of the texts that are decoded from them: the watch for collapse, and the distance to real
vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.document_batch import CONT, EOS, NUM_MARKS, PAD, Banks
from ramify.batching.forest import Ints
from ramify.inference.documents.decoding import DecodedRow, decode_children
from ramify.inference.documents.measures import spread
from ramify.inference.documents.node_reconstruction import DecodedText, as_text, decode_vectors
from ramify.inference.documents.real_vectors import RealVectors
from ramify.inference.documents.reconstruction import has_bleu
from ramify.inference.documents.vectors import Vectors
from ramify.metrics.two_samples import classifier_accuracy, coverage, energy_distance, fitted_gaussian, nearest_cosines
from ramify.metrics.variety import distinct, self_bleu
from ramify.metrics.vectors import effective_rank
from ramify.nn.modes import evaluating
from ramify.nn.ragged import Rows
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tasks.nested_adversary import ENERGY, NestedAdversary

NEAR_COPY = 0.99
"""A vector of a greater cosine with one of training is nearly a copy."""

MOST_CHILDREN = 64
"""The most vectors of one level into which a generated node is decoded for a watch."""

NGRAMS = (1, 2, 3)

VECTORS, NAMES = range(2)
"""The parts of a text that are drawn: its vector, and its names."""


@dataclass(frozen=True)
class Known:
    """Real vectors of one level."""

    training: Vectors
    held_out: Vectors
    """The vectors of the dev split in training, and of the evaluated split afterwards."""


@dataclass(frozen=True)
class Sampled:
    """A text that was decoded from a generated vector, and the cosine of the vector with the nearest one of training."""

    text: str
    nearest_cosine: float
    is_whole: bool
    """Whether all of it was decoded."""

    def to_json(self) -> dict[str, Any]:
        return vars(self)


def draws(seed: int, *numbers: int) -> torch.Generator:
    """The random draws of one part of a text, or of that part of one of several texts."""
    state = np.random.SeedSequence([seed, *numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


@torch.no_grad()
def generated(adversary: NestedAdversary, level: int, number: int, seed: int) -> Vectors:
    """Vectors of a level from noise, which the seed determines. Level 1 is the lowest above the tokens."""
    generator = adversary.generator(level)
    noise = generator.noise(number, draws(seed, VECTORS))
    with evaluating(adversary):
        return generator(noise).float().cpu().numpy()


def vector_measures(real: Known, vectors: Vectors) -> dict[str, float]:
    """The place of vectors beside those of training and of held-out documents.

    The nearest training vector and the rank are also given of as many held-out vectors (`held_out_…`).
    """
    held_out = real.held_out[spread(len(real.held_out), len(vectors))]
    measures = {ENERGY.name: energy_distance(held_out, vectors), "coverage": coverage(held_out, vectors)}
    for name, rows in (("", vectors), ("held_out_", held_out)):
        cosines, _ = nearest_cosines(rows, real.training)
        measures[f"{name}effective_rank"] = effective_rank(rows)
        measures[f"{name}nearest_training"] = float(cosines.mean()) if len(cosines) else float("nan")
        measures[f"{name}near_copies"] = float((cosines > NEAR_COPY).mean()) if len(cosines) else float("nan")
    return measures


def text_measures(texts: Sequence[str], ids: Sequence[Ints]) -> dict[str, float]:
    """The variety of texts, which have these tokens. BLEU is left out without sacrebleu."""
    measures = {f"distinct_{n}": distinct([text.tolist() for text in ids], n) for n in NGRAMS}
    return measures | ({"self_bleu": self_bleu(texts)} if has_bleu() else {})


def names_of(adversary: NestedAdversary, level: int, vectors: Vectors, seed: int) -> Banks | None:
    """Generated names for vectors of a level that are decoded: those of documents belong to these documents. None if the model
    has no memory of names."""
    documents = torch.from_numpy(vectors).to(adversary.device) if level == adversary.backbone.depth else None
    with evaluating(adversary):
        names = adversary.names_of(len(vectors), draws(seed, NAMES), documents)
    return None if names is None else names.to("cpu")


def decoded(
    adversary: NestedAdversary,
    level: int,
    vectors: Vectors,
    banks: Sequence[Vectors | None],
    seed: int,
    most: int = MOST_CHILDREN,
) -> list[DecodedText]:
    """The texts into which vectors of a level are decoded, up to `most` vectors of each level per text.

    `banks`: known vectors of each level of children, from which an end mark must differ; None for tokens. Each text reads
    generated names, if the model has a memory of names.
    """
    names = names_of(adversary, level, vectors, seed)
    return decode_vectors(adversary.autoencoder, level - 1, vectors, banks, names, most)


def watch(
    adversary: NestedAdversary,
    training: RealVectors,
    held_out: RealVectors,
    *,
    vectors: int,
    texts: int,
    seed: int,
) -> tuple[dict[str, float], dict[int, list[Sampled]]]:
    """The measures of each level that learns, by their names and that of the level, and the decoded samples."""
    task, names = adversary.autoencoder, adversary.names
    measures: dict[str, float] = {}
    samples: dict[int, list[Sampled]] = {}
    banks = training.banks()
    for level in adversary.learning:
        made = generated(adversary, level, vectors, seed + level)
        real = Known(training.of_level(level), held_out.of_level(level, vectors))
        own = vector_measures(real, made)
        shown = made[:texts]
        written = decoded(adversary, level, shown, banks, seed)
        strings = [as_text(task.tokenizer, names[1:], text) for text in written]
        own |= text_measures(strings, [text.ids for text in written])
        cosines, _ = nearest_cosines(shown, real.training)
        samples[level] = [
            Sampled(text, float(cosine), one.is_whole) for text, cosine, one in zip(strings, cosines, written, strict=True)
        ]
        # Texts without a token have no n-grams.
        measures |= {f"{name}_{names[level]}": value for name, value in own.items() if np.isfinite(value)}
    distances = [measures[f"{ENERGY.name}_{names[level]}"] for level in adversary.learning]
    return {ENERGY.name: float(np.mean(distances)), **measures}, samples


# --- against floors -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def probed_coherence(task: NestedAutoencoder, level: int, rows: Sequence[DecodedRow]) -> NDArray[np.float64]:
    """The coherence of decoded rows of children of a level, as the level's checker judges them: that of a child that is marked
    alone is 1 - min(1, n · r), and that of a row the mean of its children's. Without marks, it is 1 - r. NaN for a row without
    children."""
    scores = np.full(len(rows), np.nan)
    encoder, device = task.backbone.encoder(level), task.device
    is_marked, sizes = task.config.marks == "seed", task.backbone.config
    padded = sizes.max_children if sizes.padding == "full" else ()
    with evaluating(task):
        for number, row in enumerate(rows):
            places = np.flatnonzero(row.slots >= NUM_MARKS)
            count = len(places)
            if not count:
                continue
            slots = row.slots.copy()
            vectors = None
            if level:
                vectors = torch.from_numpy(row.states[: len(slots)][places]).to(device)
                slots[places] = NUM_MARKS + np.arange(count)
            end = np.full(int(row.ended), CONT if row.continues else EOS)
            padding = np.full(padded[level] - len(slots) - len(end) if padded else 0, PAD)
            whole = torch.from_numpy(np.concatenate([slots, end, padding])).to(device)
            copies = count if is_marked else 1
            laid = Rows.build([len(whole)] * copies).to(device)
            segments = None
            if is_marked:
                segments = torch.zeros(copies, len(whole), dtype=torch.int64, device=device)
                segments[torch.arange(copies), torch.from_numpy(places).to(device)] = 1
                segments = segments.flatten()
            shares, _ = task.replaced_children(level, encoder.items(vectors), whole.repeat(copies), laid, segments)
            found = shares.double().cpu().numpy()
            scores[number] = float((1 - np.minimum(1.0, (count if is_marked else 1) * found)).mean())
    return scores


GENERATOR, GAUSSIAN, NOISE, RESAMPLED = "generator", "gaussian", "noise", "resampled"
"""Sources of vectors: a generator; a normal distribution with the mean and covariance of the training vectors; noise as the
generator reads it; training vectors themselves."""


def sources(adversary: NestedAdversary, level: int, training: Vectors, number: int, seed: int) -> dict[str, Vectors]:
    """Vectors of a level from its generator and from each of its floors."""
    random = np.random.Generator(np.random.Philox(key=seed))
    noise = random.standard_normal((number, training.shape[1])).astype(np.float32)
    return {
        GENERATOR: generated(adversary, level, number, seed),
        GAUSSIAN: fitted_gaussian(training, number, seed),
        NOISE: noise,
        RESAMPLED: training[random.permutation(len(training))[:number]],
    }


def floor_measures(
    adversary: NestedAdversary,
    level: int,
    real: Known,
    banks: Sequence[Vectors | None],
    *,
    number: int,
    texts: int,
    seed: int,
) -> dict[str, dict[str, float]]:
    """The measures of each source of vectors of a level, beside held-out real vectors.

    `classifier_accuracy` is that of a fresh classifier, which tells held-out vectors from those of the source: 1/2 is perfect.
    `coherence` is that of the children into which `texts` vectors are decoded, by probing. The texts have at most MOST_CHILDREN
    vectors of each level.
    """
    task, names = adversary.autoencoder, adversary.names
    number = min(number, len(real.held_out))
    found: dict[str, dict[str, float]] = {}
    for name, vectors in sources(adversary, level, real.training, number, seed).items():
        held_out = real.held_out[spread(len(real.held_out), len(vectors))]
        measures = {"classifier_accuracy": classifier_accuracy(held_out, vectors, seed)}
        measures |= vector_measures(real, vectors)
        chosen = vectors[:texts]
        generated_names = names_of(adversary, level, chosen, seed) if level == 1 else None
        rows = decode_children(task, level - 1, chosen, banks[level - 1], generated_names)
        scores = probed_coherence(task, level - 1, rows)
        measures["coherence"] = float(scores[np.isfinite(scores)].mean()) if np.isfinite(scores).any() else float("nan")
        written = decoded(adversary, level, chosen, banks, seed)
        strings = [as_text(task.tokenizer, names[1:], text) for text in written]
        found[name] = measures | text_measures(strings, [text.ids for text in written])
    return found

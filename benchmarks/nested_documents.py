"""Measure a model of nested documents: meaning of sentences, authors of paragraphs, depth of checkers,
differences of vectors, and cost.

    python benchmarks/nested_documents.py measures --run RUN --data STORE --items FILE.npz [--levels paragraph,chapter]
    python benchmarks/nested_documents.py sick --run RUN --sick DATA/sick [--minilm DIR]
    python benchmarks/nested_documents.py retrieval --run RUN --data STORE --minilm DIR
    python benchmarks/nested_documents.py author --run RUN --data STORE [--minilm DIR]
    python benchmarks/nested_documents.py checker --run RUN --data STORE
    python benchmarks/nested_documents.py spread --run RUN --data STORE
    python benchmarks/nested_documents.py cost --run RUN --data STORE

Each prints one JSON object. `measures` prints that of `ramify evaluate --json` and writes the values of all queries to a file
so that several models can be pooled.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ramify.memory import keep_pages

keep_pages()  # before torch is imported

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

import ramify
from ramify.batching.document_batch import DocumentCollator
from ramify.batching.forest import token_cache
from ramify.batching.levels import DocumentRows, Levels
from ramify.batching.views.documents import Documents
from ramify.dataset.store import Store
from ramify.inference.base import TOKENS
from ramify.inference.documents.evaluation import ROWS, DocumentScores, evaluate_documents, held_out
from ramify.inference.documents.masked_children import hidden_children, measure_targets
from ramify.inference.documents.measures import HeldOut
from ramify.inference.documents.vectors import EncodedDocuments, encode_documents, read_documents
from ramify.metrics import vectors as metrics
from ramify.models.agent import AgentConfig, CoherenceChecker
from ramify.nn.blocks import TransformerEncoder
from ramify.nn.ragged import Rows, runs
from ramify.readers.sentences import sentences
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tree import DOCUMENT, Node, Tree
from rows import add_options, append_rows

Vectors = NDArray[np.float32]


# --- vectors --------------------------------------------------------------------------------------------------------------


def prefix(store: Store, tree: int, starts: NDArray[np.int64], tokens: int) -> Tree:
    """The beginning of a document, up to the node that holds so many tokens."""
    first, last = int(store.offsets[tree]), int(store.offsets[tree + 1])
    ends = starts[first + 1 : last + 1] - starts[first]
    (whole,) = store.trees([tree])
    return replace(whole, nodes=whole.nodes[: int(np.searchsorted(ends, tokens)) + 1])


def sentence_trees(texts: Sequence[str]) -> list[Tree]:
    """One document per sentence."""
    return [
        Tree((Node(kind=DOCUMENT), Node(text, parents=(0,), kind="sentence")), id=str(number))
        for number, text in enumerate(texts)
    ]


@torch.no_grad()
def sentence_vectors(task: NestedAutoencoder, texts: Sequence[str]) -> tuple[Vectors, Vectors]:
    """The vector of each sentence, and the mean of its tokens' embeddings. A sentence that is cut has the mean of its rows."""
    agent, sizes = task.backbone, task.backbone.config
    store = Store.from_trees(sentence_trees(texts))
    levels = Levels.open(store, task.tokenizer, sizes.levels[:1], np.arange(store.num_trees))
    rows = DocumentRows.of(levels, sizes.max_children[:1], "cut")
    padded = sizes.max_children if sizes.padding == "full" else None
    collator, none = DocumentCollator(rows, 0, TOKENS, padded=padded), np.zeros(0, dtype=np.int64)
    own = np.zeros((len(rows.levels[0]), sizes.dims[1]), dtype=np.float32)
    agent.eval()
    for start, stop in runs(rows.levels[0].tokens, TOKENS):
        batch = collator.level(0, np.arange(start, stop), none, none)
        own[batch.source] = agent.encode(0, None, batch).numpy()
    vectors = EncodedDocuments(rows, 0, (own,)).of_nodes(0)
    table = agent.encoder(0).table.weight[-sizes.vocab_size :].numpy()
    offsets = levels.levels[0].offsets
    bags = np.stack([table[levels.ids[one:two]].mean(0) if two > one else table.mean(0) for one, two in pairwise(offsets)])
    return vectors, bags


def cosine(one: Vectors, two: Vectors) -> NDArray[np.float64]:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return (one * two).sum(1) / np.maximum(lengths, 1e-12)


def loaded(arguments: argparse.Namespace) -> NestedAutoencoder:
    task = ramify.load(arguments.run, device="cpu").module
    assert isinstance(task, NestedAutoencoder)
    return task.eval()


# --- measures -------------------------------------------------------------------------------------------------------------


def measures(arguments: argparse.Namespace) -> dict[str, Any]:
    """The measures of `ramify evaluate`, and a file with the value of every query of some of them (`items_of`)."""
    levels = None if arguments.levels is None else arguments.levels.split(",")
    store = Store.open(arguments.data)
    scores = evaluate_documents(loaded(arguments), store, arguments.split, rows=arguments.rows, levels=levels)
    np.savez(arguments.items, **items_of(scores))
    return {
        "levels": {level: {name: own.to_json() for name, own in by_name.items()} for level, by_name in scores.levels.items()}
    }


def items_of(scores: DocumentScores) -> dict[str, NDArray[Any]]:
    """The arrays of ranks, judgements and errors behind measures: LEVEL/MEASURE/ARRAY. Measures that are computed from the same
    ranks are named by their AUROC."""
    return {
        f"{level}/{name}/{array}": values
        for level, by_name in scores.levels.items()
        for name, measure in by_name.items()
        if "three_or_more" not in name and ("auroc" in name or name.startswith("coherence_mse"))
        for array, values in measure.items.items()
    }


# --- sick -----------------------------------------------------------------------------------------------------------------


def sick(arguments: argparse.Namespace) -> dict[str, Any]:
    """Spearman correlation of the cosine of two sentences' vectors with their relatedness in SICK."""
    pairs: list[dict[str, str]] = []
    for file in sorted(arguments.sick.glob("SICK_*.txt")):
        with file.open(encoding="utf-8", newline="") as lines:
            pairs += csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    if not pairs:
        raise SystemExit(f"{arguments.sick} has no files SICK_*.txt. Set --sick or RAMIFY_DATA.")
    relatedness = [float(pair["relatedness_score"]) for pair in pairs]
    texts = sorted({pair[side] for pair in pairs for side in ("sentence_A", "sentence_B")})
    place = {text: number for number, text in enumerate(texts)}
    one, two = ([place[pair[side]] for pair in pairs] for side in ("sentence_A", "sentence_B"))

    def score(vectors: Vectors, centred: bool = False) -> float:
        vectors = vectors - vectors.mean(0) if centred else vectors
        return float(spearmanr(cosine(vectors[one], vectors[two]), relatedness).statistic)

    vectors, bags = sentence_vectors(loaded(arguments), texts)
    found = {"pairs": len(pairs), "sentences": len(texts), "vectors": score(vectors), "vectors_centred": score(vectors, True)}
    found |= {"bag_of_tokens": score(bags), "bag_of_tokens_centred": score(bags, True)}
    counts = TfidfVectorizer().fit_transform(texts)
    overlap = np.asarray(counts[one].multiply(counts[two]).sum(1)).ravel()
    found["tfidf"] = float(spearmanr(overlap, relatedness).statistic)
    if arguments.minilm:
        found["minilm"] = score(ramify.load(arguments.minilm).embed(texts, context="none"))
    return found


# --- retrieval ------------------------------------------------------------------------------------------------------------


def retrieval(arguments: argparse.Namespace) -> dict[str, Any]:
    """Hidden nodes as `ramify evaluate` measures them, beside means of the siblings' MiniLM vectors, on the same candidates."""
    task, store = loaded(arguments), Store.open(arguments.data)
    minilm = ramify.load(arguments.minilm)
    held, _, notes = held_out(task, store, arguments.split, store.evaluation_trees(arguments.split))
    found: dict[str, Any] = {"notes": notes}
    depth = min(task.backbone.depth, 3)
    theirs = replace(held, encoded=read_again(held, held.encoded, minilm, depth - 1))
    if held.more is not None:
        theirs = replace(theirs, more=read_again(held, held.more, minilm, depth - 1))
    for number in range(1, depth):
        targets = hidden_children(held, number, arguments.rows, lambda count: None)
        own = measure_targets(held, number, targets, held.keys(task.masked_similarity(number), number - 1))
        vectors = theirs.encoded.vectors[number - 1]
        families = [held.children_of(number, row) for row in targets.rows.tolist()]
        means = [vectors[family[family != child]].mean(0) for family, child in zip(families, targets.children.tolist())]
        table = np.stack(means) if means else np.zeros((0, vectors.shape[1]), dtype=np.float32)
        beside = measure_targets(theirs, number, replace(targets, queries=table, means=table), theirs.pools[number - 1].vectors)
        found[task.names[number]] = {
            name: each.to_json() | {"minilm": beside[name].to_json()["baseline"]} for name, each in own.items()
        }
    return found


def read_again(held: HeldOut, encoded: EncodedDocuments, minilm: Any, num_levels: int) -> EncodedDocuments:
    """The rows of the lowest levels with the vectors of another model: the mean of those of the sentences below."""
    ids, decode = encoded.rows.ids, held.task.tokenizer.decode
    lowest = encoded.rows.levels[0]
    texts = [decode(ids[start:stop].tolist()) for start, stop in pairwise(lowest.spans.tolist())]
    changed = [np.asarray(minilm.embed(texts, context="none"), dtype=np.float32)]
    for level in encoded.rows.levels[1:num_levels]:
        below, nothing = changed[-1], np.zeros(changed[-1].shape[1], np.float32)
        spans = pairwise(level.spans.tolist())
        changed.append(np.stack([below[start:stop].mean(0) if stop > start else nothing for start, stop in spans]))
    return replace(encoded, vectors=(*changed, *encoded.vectors[num_levels:]))


# --- authors --------------------------------------------------------------------------------------------------------------


class Book:
    """A book's paragraphs and chapters, with their vectors, texts and sentences."""

    def __init__(self, task: NestedAutoencoder, tree: Tree, minilm: Any) -> None:
        store = Store.from_trees([tree])
        self.author = str(tree.meta["author"])
        view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, np.array([0]))
        encoded = encode_documents(task.backbone, view, collator)
        self.encoded, self.names = encoded, list(task.backbone.config.levels)
        levels = encoded.rows.levels
        self.texts = store.texts(levels[0].level.node)
        self.sentences = encoded.of_nodes(0)
        self.minilm = None if minilm is None else minilm.embed(self.texts, context="none")
        self.spans = {"sentence": np.arange(len(self.texts) + 1)}
        for name, level in zip(self.names[1:], levels[1:], strict=True):
            below = self.spans[self.names[self.names.index(name) - 1]]
            self.spans[name] = below[level.level.offsets]

    def nodes(self, level: str, least: int, most: int) -> NDArray[np.int64]:
        """At most `most` nodes of a level with at least `least` words, evenly spaced."""
        spans = self.spans[level]
        words = np.array([sum(len(text.split()) for text in self.texts[one:two]) for one, two in pairwise(spans)])
        chosen = np.flatnonzero(words >= least)
        return chosen if len(chosen) <= most else chosen[np.arange(most) * len(chosen) // most]

    def pooled(self, values: Vectors, level: str, nodes: NDArray[np.int64], how: str) -> Vectors:
        spans = self.spans[level]
        found = np.stack([values[spans[node] : spans[node + 1]].sum(0) for node in nodes])
        return found if how == "sum" else found / (spans[nodes + 1] - spans[nodes])[:, None]

    def windows(self, size: int, most: int) -> NDArray[np.int64]:
        """The first sentences of at most `most` runs of so many sentences, which do not overlap."""
        starts = np.arange(0, len(self.texts) - size + 1, size)
        return starts if len(starts) <= most else starts[np.arange(most) * len(starts) // most]


def left_out(
    books: Sequence[Book], features: Sequence[Any], build: Callable[[], Any], labels: Sequence[Sequence[str]]
) -> float:
    """The mean over books of the share of their items whose author is found by a classifier that has not read the book."""
    scores = []
    for number in range(len(books)):
        others = [each for each in range(len(books)) if each != number]
        train = [item for each in others for item in features[each]]
        right = [label for each in others for label in labels[each]]
        classifier = build().fit(train, right)
        scores.append(float(np.mean(classifier.predict(list(features[number])) == np.array(labels[number]))))
    return float(np.mean(scores))


def by_vectors() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, class_weight="balanced"))


def by_words() -> Any:
    return make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=2), LogisticRegression(max_iter=1000, C=10, class_weight="balanced")
    )


def author(arguments: argparse.Namespace) -> dict[str, Any]:
    """The author of a paragraph from its vector, by leaving one book out among authors with at least two books."""
    task, store = loaded(arguments), Store.open(arguments.data)
    metas = store.metas(np.arange(store.num_trees))
    names = [meta.get("author") for meta in metas]
    trees = [tree for tree, name in enumerate(names) if name and names.count(name) >= 2]
    if len({names[tree] for tree in trees}) < 2:
        return {"skipped": "fewer than two authors have at least two books"}
    starts = np.asarray(token_cache(store, task.tokenizer).starts)
    minilm = ramify.load(arguments.minilm) if arguments.minilm else None
    books = [Book(task, prefix(store, tree, starts, arguments.tokens), minilm) for tree in trees]
    authors = sorted({book.author for book in books})
    found: dict[str, Any] = {"books": len(books), "authors": authors, "chance": 1 / len(authors)}
    for level, least in (("paragraph", 20), ("chapter", 200)):
        if level in books[0].names:
            found[level] = of_level(books, level, least, arguments.nodes)
    found["growing_text"] = {
        str(size): of_windows(task, books, size, arguments.nodes) for size in (1, 2, 4, 8, 16, 32, 64, 128)
    }
    return found


def of_level(books: Sequence[Book], level: str, least: int, most: int) -> dict[str, Any]:
    nodes = [book.nodes(level, least, most) for book in books]
    labels = [[book.author] * len(own) for book, own in zip(books, nodes)]
    number = books[0].names.index(level)
    found: dict[str, Any] = {"nodes": sum(map(len, nodes))}
    found["vector"] = left_out(books, [b.encoded.of_nodes(number)[own] for b, own in zip(books, nodes)], by_vectors, labels)
    for how in ("sum", "mean"):
        pooled = [b.pooled(b.sentences, level, own, how) for b, own in zip(books, nodes)]
        found[f"{how}_of_sentences"] = left_out(books, pooled, by_vectors, labels)
    if books[0].minilm is not None:
        pooled = [b.pooled(b.minilm, level, own, "mean") for b, own in zip(books, nodes)]
        found["minilm_mean_of_sentences"] = left_out(books, pooled, by_vectors, labels)
    texts = [
        [" ".join(b.texts[b.spans[level][node] : b.spans[level][node + 1]]) for node in own] for b, own in zip(books, nodes)
    ]
    found["tfidf"] = left_out(books, texts, by_words, labels)
    return found


def of_windows(task: NestedAutoencoder, books: Sequence[Book], size: int, most: int) -> dict[str, Any]:
    """Runs of so many sentences: the mean of their vectors, and their vector as one paragraph, if it can hold them.

    Features are standardized, so that sums of equally many vectors give the same scores as means.
    """
    starts = [book.windows(size, most) for book in books]
    labels = [[book.author] * len(own) for book, own in zip(books, starts)]
    found: dict[str, Any] = {"windows": sum(map(len, starts))}
    if min(map(len, starts)) == 0:
        return found
    values = [np.stack([b.sentences[start : start + size] for start in own]) for b, own in zip(books, starts)]
    found["mean_of_sentences"] = left_out(books, [each.mean(1) for each in values], by_vectors, labels)
    sizes = task.backbone.config
    if len(sizes.levels) > 1 and size < sizes.max_children[1]:
        found["vector"] = left_out(books, [as_nodes(task, each) for each in values], by_vectors, labels)
    texts = [[" ".join(b.texts[start : start + size]) for start in own] for b, own in zip(books, starts)]
    found["tfidf"] = left_out(books, texts, by_words, labels)
    return found


@torch.no_grad()
def as_nodes(task: NestedAutoencoder, children: Vectors) -> Vectors:
    """The vectors of nodes above sentences with these children, `[node child dim]`."""
    encoder = task.backbone.encoder(1)
    found = []
    for part in np.array_split(children, max(1, children.size // (1 << 20))):
        count, size, _ = part.shape
        rows = Rows.build([size + 1] * count)
        items = encoder.items(torch.from_numpy(part).flatten(0, 1))
        marks = len(items) - count * size
        slots = torch.cat([marks + torch.arange(count * size).view(count, size), torch.zeros(count, 1, dtype=torch.int64)], 1)
        slots = slots.flatten()
        found.append(encoder.row_vectors(encoder.states(items, slots, rows), slots, rows).numpy())
    return np.concatenate(found)


# --- checkers -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def drawn(task: NestedAutoencoder, store: Store, split: Any, tokens: int, seed: int) -> list[dict[str, NDArray[Any]]]:
    """Per level: vectors of rows with replaced children, their shares, and the shares that the marks alone suggest."""
    sizes, trees = task.backbone.config, store.evaluation_trees(split)
    levels = Levels.open(store, task.tokenizer, sizes.levels, trees)
    view = Documents(levels, sizes.max_children, task.input, budget=8192)
    padded = sizes.max_children if sizes.padding == "full" else None
    collator = DocumentCollator(view.rows, view.unit, 8192, padded=padded)
    chosen = np.flatnonzero(~np.array([each.apart for each in view.examples]))
    share = min(1.0, tokens / max(1, int(view.target_tokens[chosen].sum())))
    chosen = chosen[np.arange(max(1, round(share * len(chosen)))) * len(chosen) // max(1, round(share * len(chosen)))]
    kinds = ("vectors", "share", "guess", "counts")
    found: list[dict[str, list[NDArray[Any]]]] = [{kind: [] for kind in kinds} for _ in sizes.levels]
    for start, stop in runs(view.costs[chosen], 8192):
        batch = task.draw(collator([view.example(int(number)) for number in chosen[start:stop]]), seed + start)
        vectors = None
        for number, (rows, draws) in enumerate(zip(batch.levels, batch.draws, strict=True)):
            encoded = task.encode(batch, number, vectors)
            encoder = task.backbone.encoder(number)
            states = encoder.states(encoded.items, draws.replaced_slots, rows.rows, draws.segments)
            marked = np.full(len(rows.counts), np.nan)
            if draws.segments is not None:
                marked = np.bincount(rows.child_row, draws.segments[rows.child_slot].double(), minlength=len(rows.counts))
            for kind, value in zip(
                kinds,
                (
                    encoder.row_vectors(states, draws.replaced_slots, rows.rows).numpy(),
                    draws.share.numpy(),
                    np.nan_to_num(marked / (2 * np.maximum(rows.counts, 1)), nan=0.125),
                    rows.counts,
                ),
            ):
                found[number][kind].append(value[rows.counts > 0])
            vectors = encoded.parents
    return [{kind: np.concatenate(values) if values else np.zeros(0) for kind, values in level.items()} for level in found]


def checker(arguments: argparse.Namespace) -> dict[str, Any]:
    """The error of checkers of depth 1 to 4 that are trained on frozen vectors, on rows with at least four children."""
    task, store = loaded(arguments), Store.open(arguments.data)
    train = drawn(task, store, "train", arguments.tokens, 1)
    held = drawn(task, store, arguments.split, arguments.tokens // 4, 2)
    found: dict[str, Any] = {}
    for name, one, other in zip(task.backbone.config.levels, train, held, strict=True):
        long = other["counts"] >= 4
        if len(one["share"]) < 100 or long.sum() < 10:
            continue
        error = (other["guess"] - other["share"])[long] ** 2
        own: dict[str, Any] = {"train_rows": len(one["share"]), "rows": int(long.sum()), "marks_only": float(error.mean())}
        for depth in (1, 2, 3, 4):
            scores = [fitted(task, one, other, long, depth, arguments.steps, seed) for seed in range(arguments.seeds)]
            own[f"layers_{depth}"] = float(np.mean(scores))
            own[f"layers_{depth}_spread"] = float(np.std(scores))
        found[name] = own
    return found


def fitted(
    task: NestedAutoencoder, train: dict[str, Any], held: dict[str, Any], long: Any, depth: int, steps: int, seed: int
) -> float:
    torch.manual_seed(seed)
    vectors, share = (torch.from_numpy(train[kind]).float() for kind in ("vectors", "share"))
    dim = vectors.shape[1]
    model = CoherenceChecker(dim, depth, round(task.config.checker_width * dim))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(steps):
        chosen = torch.randint(len(vectors), (256,))
        optimizer.zero_grad()
        F.mse_loss(model(vectors[chosen]), share[chosen]).backward()
        optimizer.step()
    with torch.no_grad():
        judged = model(torch.from_numpy(held["vectors"]).float()).numpy()
    return float(((judged - held["share"])[long] ** 2).mean())


# --- spread ---------------------------------------------------------------------------------------------------------------


def spread(arguments: argparse.Namespace) -> dict[str, Any]:
    """The spread and the effective rank of each level's vectors."""
    task, store = loaded(arguments), Store.open(arguments.data)
    trees = store.evaluation_trees(arguments.split)
    view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, trees)
    encoded = encode_documents(task.backbone, view, collator)
    return {
        name: {"rows": len(vectors), "spread": metrics.spread(vectors), "effective_rank": metrics.effective_rank(vectors)}
        for name, vectors in zip(task.backbone.config.levels, encoded.vectors, strict=True)
    }


# --- cost -----------------------------------------------------------------------------------------------------------------


def counted_operations(config: AgentConfig, rows: DocumentRows) -> float:
    """Multiply-adds of an Evolved encoder and a BiLSTM per level: 21.5 d² per place and cell, 2 d n² per row and cell, and
    8 h (d + h) per place for the LSTM of width h in both directions. Plain cells: two layers of 12 d² and 2 d n²."""
    total = 0.0
    for level, found in enumerate(rows.levels):
        dim, out = config.dims[level : level + 2]
        lengths = (found.children + found.parts).astype(np.float64)
        evolved = config.cells == "evolved"
        per_place, per_pair = (21.5 * dim**2, 2.0 * dim) if evolved else (24.0 * dim**2, 4.0 * dim)
        total += config.encoder_cells[level] * (per_place * lengths.sum() + per_pair * (lengths**2).sum())
        total += 8.0 * (out // 2) * (dim + out // 2) * lengths.sum()
    return total


def flat_operations(config: AgentConfig, tokens: int) -> float:
    """Multiply-adds of a Transformer encoder over all tokens at once, of the size of the token level: two layers per cell."""
    dim, layers = config.dims[0], 2 * config.encoder_cells[0]
    return layers * (12.0 * dim**2 * tokens + 2.0 * dim * float(tokens) ** 2)


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def novel(arguments: argparse.Namespace, task: NestedAutoencoder, tokens: int) -> Tree:
    """The beginning of the longest document."""
    store = Store.open(arguments.data)
    starts = np.asarray(token_cache(store, task.tokenizer).starts)
    lengths = starts[store.offsets[1:]] - starts[store.offsets[:-1]]
    return prefix(store, int(lengths.argmax()), starts, tokens)


def paragraphs_of(tree: Tree) -> list[list[str]]:
    """The text of each paragraph of each chapter."""
    chapters: list[list[str]] = [[]]
    for node in tree.nodes:
        if node.kind == "chapter":
            chapters.append([])
        elif node.kind == "paragraph":
            chapters[-1].append("")
        elif node.text:
            if not chapters[-1]:
                chapters[-1].append("")
            chapters[-1][-1] = f"{chapters[-1][-1]} {node.text}".strip()
    return [chapter for chapter in chapters if chapter]


def from_text(chapters: Sequence[Sequence[str]]) -> Tree:
    """A document of chapters, whose paragraphs are divided into sentences."""
    nodes = [Node(kind=DOCUMENT)]
    for chapter in chapters:
        above = len(nodes)
        nodes.append(Node(kind="chapter", parents=(0,)))
        for paragraph in chapter:
            parent = len(nodes)
            nodes.append(Node(kind="paragraph", parents=(above,)))
            nodes += [Node(each, parents=(parent,), kind="sentence") for each in sentences(paragraph)]
    return Tree(tuple(nodes), id="novel")


def embedding(task: NestedAutoencoder, tree: Tree) -> tuple[float, DocumentRows]:
    """Seconds to encode a document, from its rows, and the rows."""
    store = Store.from_trees([tree])
    view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, np.array([0]))
    began = time.perf_counter()
    encode_documents(task.backbone, view, collator)
    return time.perf_counter() - began, view.rows


@torch.no_grad()
def flat_seconds(config: AgentConfig, tokens: int) -> float:
    encoder = TransformerEncoder(
        config.dims[0], config.num_heads, config.encoder_cells[0], dropout=0.0, attention_dropout=0.0
    ).eval()
    rows, x = Rows.build([tokens]), torch.randn(tokens, config.dims[0])
    began = time.perf_counter()
    encoder(x, rows)
    return time.perf_counter() - began


def status_field(name: str) -> float:
    """A field of this process's status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def peak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds and peak memory of this process when it embeds a novel from its plain text."""
    task = loaded(arguments)
    chapters = paragraphs_of(novel(arguments, task, arguments.peak))
    before = status_field("VmRSS")
    began = time.perf_counter()
    _, rows = embedding(task, from_text(chapters))
    return {
        "tokens": len(rows.ids),
        "seconds": time.perf_counter() - began,
        "peak_mib": status_field("VmHWM"),
        "added_mib": status_field("VmHWM") - before,
        "threads": torch.get_num_threads(),
    }


def cost(arguments: argparse.Namespace) -> dict[str, Any]:
    """Operations and seconds against tokens, beside a flat Transformer encoder, and the embedding of a whole novel."""
    if arguments.peak:
        return peak(arguments)
    task = loaded(arguments)
    config = task.backbone.config
    found: dict[str, Any] = {"threads": torch.get_num_threads(), "ours": [], "flat": []}
    embedding(task, novel(arguments, task, 1000))
    for size in arguments.sizes:
        tree = novel(arguments, task, size)
        runs_ = [embedding(task, tree) for _ in range(arguments.repeats)]
        rows = runs_[0][1]
        seconds = float(np.median([each for each, _ in runs_]))
        flat = flat_operations(config, len(rows.ids))
        found["ours"].append({"tokens": len(rows.ids), "operations": counted_operations(config, rows), "seconds": seconds})
        found["ours"][-1]["flat_operations"] = flat
    for size in (each for each in arguments.sizes if each <= arguments.flat_until):
        seconds = float(np.median([flat_seconds(config, size) for _ in range(arguments.repeats)]))
        found["flat"].append({"tokens": size, "operations": flat_operations(config, size), "seconds": seconds})
    for name in ("ours", "flat"):
        tokens = [each["tokens"] for each in found[name]]
        for kind in ("operations", "seconds") if len(tokens) > 1 else ():
            found[f"{name}_slope_{kind}"] = slope(tokens, [each[kind] for each in found[name]])
    command = [sys.executable, __file__, "cost", "--run", str(arguments.run), "--data", str(arguments.data)]
    command += ["--peak", str(max(arguments.sizes)), "--threads", str(torch.get_num_threads())]
    found["novel"] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


COMMANDS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "measures": measures,
    "sick": sick,
    "retrieval": retrieval,
    "author": author,
    "checker": checker,
    "spread": spread,
    "cost": cost,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    data = Path(os.environ.get("RAMIFY_DATA", Path(__file__).parents[1] / "../shared/data"))
    for name, function in COMMANDS.items():
        own = commands.add_parser(name, help=function.__doc__)
        own.set_defaults(function=function)
        own.add_argument("--run", type=Path, required=True)
        own.add_argument("--threads", type=int, default=torch.get_num_threads())
        if name != "sick":
            own.add_argument("--data", type=Path, required=True, help="a store of documents")
        if name in ("sick", "author", "retrieval"):
            own.add_argument("--minilm", type=Path, required=name == "retrieval", help="the directory of all-MiniLM-L6-v2")
        add_options(own)
    sick_, author_, checker_, cost_ = (commands.choices[name] for name in ("sick", "author", "checker", "cost"))
    retrieval_, measures_ = (commands.choices[name] for name in ("retrieval", "measures"))
    measures_.add_argument("--split", default="test")
    measures_.add_argument("--levels", help="levels that are measured, separated by commas (default: all)")
    measures_.add_argument("--rows", type=int, default=ROWS, help="rows and queries per level and measure")
    measures_.add_argument("--items", type=Path, required=True, help=".npz file for the value of every query")
    retrieval_.add_argument("--split", default="test")
    retrieval_.add_argument("--rows", type=int, default=1000, help="hidden nodes per level")
    sick_.add_argument("--sick", type=Path, default=data / "sick", help="the folder with SICK_train.txt and SICK_trial.txt")
    author_.add_argument("--tokens", type=int, default=100_000, help="tokens from the beginning of each book")
    author_.add_argument("--nodes", type=int, default=400, help="paragraphs, chapters or runs of sentences per book")
    checker_.add_argument("--split", default="test")
    commands.choices["spread"].add_argument("--split", default="dev")
    checker_.add_argument("--tokens", type=int, default=400_000, help="tokens of training text")
    checker_.add_argument("--steps", type=int, default=1500)
    checker_.add_argument("--seeds", type=int, default=3)
    cost_.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000, 16_000, 64_000, 300_000])
    cost_.add_argument("--flat-until", type=int, default=16_000)
    cost_.add_argument("--repeats", type=int, default=3)
    cost_.add_argument("--peak", type=int, default=0, help="measure only the embedding of a novel of so many tokens")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    found = arguments.function(arguments)
    print(json.dumps(found))
    if not (arguments.command == "cost" and arguments.peak):
        append_rows(arguments, f"nested-{arguments.command}", Path(arguments.run).name, found)


if __name__ == "__main__":
    main()

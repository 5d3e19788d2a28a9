"""The benchmark of nested documents: counted operations, vectors of runs of sentences, and the beginning of a document."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fixtures import tokenizer
from fixtures.nested import books, config, part, task, tree_of
from ramify.batching.forest import token_cache
from ramify.batching.levels import DocumentRows, Levels
from ramify.dataset.store import Store
from ramify.inference.documents.vectors import encode_documents, read_documents
from ramify.nn.ragged import Rows


@pytest.fixture(scope="module")
def benchmark():
    file = Path(__file__).parents[1] / "benchmarks" / "nested_documents.py"
    sys.path.insert(0, str(file.parent))
    try:
        spec = importlib.util.spec_from_file_location("nested_benchmark", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module


@pytest.mark.parametrize("cells", ["evolved", "transformer"])
def test_counted_operations_of_an_encoder_are_those_of_torch(benchmark, cells):
    """Rows of 16 places have no padding. torch counts no attention on a processor; terms of d are left out."""
    sizes = config(
        levels=("sentence",), dims=(256, 64), max_children=(16,), encoder_cells=(2,), decoder_cells=(1,), cells=cells
    )
    words = " ".join(["rain"] * 15)
    store = Store.from_trees([tree_of(part("paragraph", *[words] * 20))])
    levels = Levels.open(store, tokenizer(), ("sentence",), np.array([0]))
    rows = DocumentRows.of(levels, (16,))
    assert rows.levels[0].children.tolist() == [15] * 20
    own = Rows.build([16] * 20)
    encoder = sizes.build().eval().encoder(0)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder.states.encoder(torch.randn(own.total, 256), own)
    lstm = 8 * 32 * (256 + 32) * own.total
    attention = (2 if cells == "evolved" else 4) * 2 * 256 * 16**2 * 20
    counted = benchmark.counted_operations(sizes, rows) - lstm - attention
    assert counter.get_total_flops() / 2 == pytest.approx(counted, rel=0.015)


def test_the_cost_of_a_flat_encoder_grows_with_the_square(benchmark):
    sizes = [10**power for power in (5, 6, 7)]
    values = [benchmark.flat_operations(config(), size) for size in sizes]
    assert benchmark.slope(sizes, values) == pytest.approx(2, abs=0.01)
    assert benchmark.slope(sizes, [3 * size for size in sizes]) == pytest.approx(1)


def test_runs_of_sentences_have_the_vector_of_a_paragraph_of_them(benchmark):
    own = task(dtype=torch.float32).eval()
    store = Store.from_trees([tree_of(part("paragraph", "rain fell", "on the roof", "and stopped"))])
    encoded = encode_documents(own.backbone, *read_documents(own.backbone, own.tokenizer, own.input, store, np.array([0])))
    assert np.allclose(benchmark.as_nodes(own, encoded.vectors[0][None]), encoded.vectors[1], atol=1e-5)


def test_vectors_of_single_sentences_are_those_in_a_document(benchmark):
    own = task(dtype=torch.float32).eval()
    texts = ["a", "b c d", "e " * 13]
    store = Store.from_trees([tree_of(part("paragraph", *texts))])
    encoded = encode_documents(own.backbone, *read_documents(own.backbone, own.tokenizer, own.input, store, np.array([0])))
    vectors, bags = benchmark.sentence_vectors(own, texts)
    assert np.allclose(vectors, encoded.of_nodes(0), atol=1e-5)
    assert bags.shape == (3, own.backbone.config.dims[0])


def test_a_prefix_of_a_document_is_a_document(benchmark):
    store = Store.from_trees(books(2, paragraphs=6))
    starts = np.asarray(token_cache(store, tokenizer()).starts)
    for tokens in (1, 10, 10**6):
        tree = benchmark.prefix(store, 1, starts, tokens)
        part_of = Store.from_trees([tree])
        found = int(token_cache(part_of, tokenizer()).starts[-1])
        whole = int(starts[store.offsets[2]] - starts[store.offsets[1]])
        assert found == whole if tokens > whole else tokens <= found < tokens + 10
        assert part_of.structure == "document"


def test_left_out_books_are_not_read(benchmark):
    """Vectors that tell the book and not the author give nothing when the book is left out."""
    random = np.random.default_rng(0)
    labels = [["a"] * 20, ["b"] * 20, ["a"] * 20, ["b"] * 20]
    by_author = [random.normal(size=(20, 4)) + 9 * (own[0] == "a") for own in labels]
    assert benchmark.left_out(range(4), by_author, benchmark.by_vectors, labels) == 1
    centres = [[9, 0], [0, 9], [0, 8], [8, 0]]
    by_book = [random.normal(size=(20, 2)) * 0.1 + centre for centre in centres]
    assert benchmark.left_out(range(4), by_book, benchmark.by_vectors, labels) == 0

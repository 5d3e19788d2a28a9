"""Known vectors of tokens with which a model starts: from a file of word vectors, or from the embedding of a saved model."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ramify import hub
from ramify.errors import RamifyError, with_article
from ramify.models.base import AnyBackbone, Backbone, GenerativeBackbone, StreamBackbone, TakesVectors
from ramify.progress import activity
from ramify.readers.word_vectors import read_word_vectors
from ramify.tokenizer import Tokenizer


def start_with_vectors(backbone: AnyBackbone, tokenizer: Tokenizer) -> int:
    """Give a new model the vectors that its settings name (`TakesVectors`). Returns the number of tokens that have one.

    A token of a file of word vectors is a piece that is a whole word, without the tokenizer's mark; a token of a saved model is
    the piece of the same spelling. Raises `RamifyError` if no token has a vector, or if vectors have another length than the
    model's.
    """
    if not isinstance(backbone, TakesVectors) or not backbone.vectors_source:
        return 0
    source = backbone.vectors_source
    with activity(f"reading vectors from {source}"):
        ids, vectors = _of_file(Path(source), tokenizer) if Path(source).is_file() else _of_model(source, tokenizer)
    config: Any = backbone.config
    if vectors.shape[1] != config.dim:
        raise RamifyError(
            f"model.dim={config.dim} differs from the length of the vectors in {source}, which is {vectors.shape[1]}. Set "
            f"model.dim={vectors.shape[1]}."
        )
    if not len(ids):
        raise RamifyError(
            f"model.vectors={source} holds no vector of any of the {tokenizer.vocab_size} pieces of the tokenizer. Choose "
            "vectors of words in the language, and with the capital letters, of the data."
        )
    backbone.take_vectors(torch.from_numpy(ids), torch.from_numpy(vectors))
    return len(ids)


def _of_file(path: Path, tokenizer: Tokenizer) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    words = tokenizer.whole_words
    read = read_word_vectors(path, words.keys())
    return np.array([words[word] for word in read.words], dtype=np.int64), read.vectors


def _of_model(source: str, tokenizer: Tokenizer) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    pipeline = hub.load(source)
    body = pipeline.backbone
    if not isinstance(body, (Backbone, StreamBackbone, GenerativeBackbone)):
        raise RamifyError(
            f"model.vectors={source} is {with_article(type(body).__name__)}, which has no table of token vectors to take. Name "
            "a saved model with a token embedding, or a text file of word vectors."
        )
    table = body.tied_embedding.weight.detach().float().numpy()
    theirs = pipeline.tokenizer.ids
    shared = [(own, theirs[piece]) for piece, own in tokenizer.ids.items() if piece in theirs]
    ids, rows = np.array(shared, dtype=np.int64).reshape(-1, 2).T
    return np.ascontiguousarray(ids), table[rows]

"""Vectors of messages on disk: the same as computed, for whoever reads the same messages with the same encoder."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify.disentangle.config import History
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference import vector_cache as module
from ramify.disentangle.inference.decode import keep_vectors
from ramify.disentangle.inference.vector_cache import kept_vectors
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.disentangle.task import ReplyTo
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.tokenizer import Tokenizer

TREES = [channel(30, 0), channel(20, 1)]
TOKENIZER = Tokenizer.train([node.text for tree in TREES for node in tree.nodes] * 2, vocab_size=150)
INPUT = History(window=6, texts="pieces", max_tokens=12)
LOGS = Logs.of(TREES, INPUT).read_with(TOKENIZER)
ALL = np.arange(len(LOGS))


def task(seed: int = 0, **changes: object) -> ReplyTo:
    torch.manual_seed(seed)
    encoder = BertConfig(vocab_size=TOKENIZER.vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=8, max_tokens=16)
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 8, "feature_hidden": 8}
    config = MHTConfig(encoder=encoder, **(sizes | changes))  # pyright: ignore[reportArgumentType]
    return ReplyTo(MaskedHierarchicalTransformer(config), TOKENIZER, INPUT)


def test_the_second_time_nothing_is_encoded(tmp_path, monkeypatch):
    folder = str(tmp_path / "new" / "vectors")
    expected = module.keep_vectors(task(), LOGS, ALL)
    first = kept_vectors(task(), LOGS, ALL, folder)
    monkeypatch.setattr(module, "keep_vectors", None)
    # Another head, the same encoder.
    again = kept_vectors(task(features="head"), LOGS, ALL, folder)
    for found in (first, again):
        assert found is not None
        assert expected is not None
        assert torch.equal(found.table, expected.table)
        assert np.array_equal(found.row, expected.row)


def test_another_encoder_other_messages_other_words_are_others(tmp_path):
    kept_vectors(task(), LOGS, ALL, str(tmp_path))
    kept_vectors(task(seed=1), LOGS, ALL, str(tmp_path))
    kept_vectors(task(), LOGS, ALL[3:], str(tmp_path))
    shorter = Logs.of(TREES, replace(INPUT, max_tokens=5)).read_with(TOKENIZER)
    kept_vectors(task(), shorter, ALL, str(tmp_path))
    assert len(list(tmp_path.glob("*.safetensors"))) == 4


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kept_vectors(task(), LOGS, ALL, "") is not None
    assert not list(tmp_path.iterdir())


def test_a_model_without_vectors(tmp_path):
    plain = ReplyTo(FeatureModel(FeatureModelConfig(vocab_size=TOKENIZER.vocab_size, dim=4, hidden=8)), TOKENIZER, INPUT)
    assert kept_vectors(plain, LOGS, ALL, str(tmp_path)) is None
    assert not list(tmp_path.iterdir())


def test_a_broken_file_says_so(tmp_path):
    kept_vectors(task(), LOGS, ALL, str(tmp_path))
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RamifyError, match=r"is not a readable safetensors file.* Delete it"):
        kept_vectors(task(), LOGS, ALL, str(tmp_path))


def test_vectors_that_are_there_are_read_without_a_lock(tmp_path, monkeypatch):
    """A lock is a file, and nobody may write where others have kept them."""
    kept = kept_vectors(task(), LOGS, ALL, str(tmp_path))
    monkeypatch.setattr(module, "FileLock", None)
    again = kept_vectors(task(), LOGS, ALL, str(tmp_path))
    assert kept is not None
    assert again is not None
    assert torch.equal(again.table, kept.table)


def test_whoever_needs_the_same_vectors_meanwhile_waits(tmp_path, monkeypatch):
    encoded = []

    def slow(*args):
        encoded.append(1)
        time.sleep(0.3)
        return keep_vectors(*args)

    monkeypatch.setattr(module, "keep_vectors", slow)
    model = task()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: kept_vectors(model, LOGS, ALL, str(tmp_path)), range(3)))
    assert len(encoded) == 1
    for each in found:
        assert each is not None
        assert torch.equal(each.table, keep_vectors(model, LOGS, ALL).table)

"""Vectors of messages on disk equal computed ones, for all tasks with the same messages and the same encoder."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference import vector_cache as module
from ramify.disentangle.inference.vector_cache import load_or_encode
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.tokenizer import Tokenizer

TREES = [channel(30, 0), channel(20, 1)]
TOKENIZER = Tokenizer.train([node.text for tree in TREES for node in tree.nodes] * 2, vocab_size=150)
INPUT = ChatInput(window=6, texts="pieces", max_tokens=12)
LOGS = Logs.build(TREES, INPUT).tokenize(TOKENIZER)
ALL = np.arange(len(LOGS))


def task(seed: int = 0, **changes: object) -> ReplyLinking:
    torch.manual_seed(seed)
    encoder = BertConfig(vocab_size=TOKENIZER.vocab_size, dim=8, num_layers=1, num_heads=2, ffn_dim=8, max_tokens=16)
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 8, "feature_hidden": 8}
    config = MHTConfig(encoder=encoder, **(sizes | changes))  # pyright: ignore[reportArgumentType]
    return ReplyLinking(MaskedHierarchicalTransformer(config), TOKENIZER, INPUT)


def test_cached_vectors_are_not_encoded_again(tmp_path, monkeypatch):
    folder = str(tmp_path / "new" / "vectors")
    expected = module.encode_messages(task(), LOGS, ALL)
    first = load_or_encode(task(), LOGS, ALL, folder)
    monkeypatch.setattr(module, "encode_messages", None)
    # Another head, the same encoder.
    second = load_or_encode(task(features="head"), LOGS, ALL, folder)
    for found in (first, second):
        assert found is not None
        assert expected is not None
        assert torch.equal(found.table, expected.table)
        assert np.array_equal(found.row, expected.row)


def test_cache_depends_on_encoder_messages_and_vocabulary(tmp_path):
    load_or_encode(task(), LOGS, ALL, str(tmp_path))
    load_or_encode(task(seed=1), LOGS, ALL, str(tmp_path))
    load_or_encode(task(), LOGS, ALL[3:], str(tmp_path))
    shorter = Logs.build(TREES, replace(INPUT, max_tokens=5)).tokenize(TOKENIZER)
    load_or_encode(task(), shorter, ALL, str(tmp_path))
    assert len(list(tmp_path.glob("*.safetensors"))) == 4


def test_nothing_is_cached_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_or_encode(task(), LOGS, ALL, "") is not None
    assert not list(tmp_path.iterdir())


def test_model_without_vectors_caches_nothing(tmp_path):
    plain = ReplyLinking(FeatureModel(FeatureModelConfig(vocab_size=TOKENIZER.vocab_size, dim=4, hidden=8)), TOKENIZER, INPUT)
    assert load_or_encode(plain, LOGS, ALL, str(tmp_path)) is None
    assert not list(tmp_path.iterdir())


def test_damaged_cache_is_named(tmp_path):
    load_or_encode(task(), LOGS, ALL, str(tmp_path))
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RamifyError, match=r"is not a readable safetensors file.* Delete the file"):
        load_or_encode(task(), LOGS, ALL, str(tmp_path))


def test_cached_vectors_are_read_without_a_lock(tmp_path, monkeypatch):
    """A lock is a file, and the folder may be read-only."""
    first = load_or_encode(task(), LOGS, ALL, str(tmp_path))
    monkeypatch.setattr(module, "FileLock", None)
    second = load_or_encode(task(), LOGS, ALL, str(tmp_path))
    assert first is not None
    assert second is not None
    assert torch.equal(second.table, first.table)


def test_concurrent_requests_wait_for_the_vectors(tmp_path, monkeypatch, near):
    encoded = []

    def slow(*args):
        encoded.append(1)
        time.sleep(0.3)
        return encode_messages(*args)

    monkeypatch.setattr(module, "encode_messages", slow)
    model = task()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: load_or_encode(model, LOGS, ALL, str(tmp_path)), range(3)))
    assert len(encoded) == 1
    for each in found:
        assert each is not None
        near(each.table, encode_messages(model, LOGS, ALL).table)

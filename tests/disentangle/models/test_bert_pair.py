"""BERT on pairs against BERT on each pair's row by itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from chat_pairs import (
    PIECES,
    WORDS,
    batch_of,
    chat,
    check_batches,
    check_gold,
    check_parts,
    check_saved,
    plainly,
    read,
    spread,
    tokenizer,
)
from torch import Tensor

from ramify.disentangle.models.bert_pair import BertPair, BertPairConfig, fit_texts
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.nn.ragged import Rows


def encoder(**changes: object) -> BertConfig:
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 12, "max_tokens": 64, "dropout": 0.0, "pooling": "cls"}
    return BertConfig(vocab_size=tokenizer().vocab_size, **(sizes | changes))  # pyright: ignore[reportArgumentType]


def model(encoder: BertConfig = encoder(), **changes: object) -> BertPair:  # noqa: B008
    torch.manual_seed(0)
    own = BertPair(BertPairConfig(**({"encoder": encoder, "feature_hidden": 6, "dropout": 0.0} | changes)))  # pyright: ignore
    assert spread(own) is own
    return own


def state(own: BertPair, target: Tensor, candidate: Tensor) -> Tensor:
    """`[CLS] candidate [SEP] target [SEP]`, of which the longer text loses its end, word by word, until it fits."""
    texts = [candidate[1:-1].tolist(), target[1:-1].tolist()]
    while len(texts[0]) + len(texts[1]) + 3 > own.config.encoder.max_tokens:
        texts[0 if len(texts[0]) > len(texts[1]) else 1].pop()
    opening, end = int(target[0]), int(target[-1])
    ids = [opening, *texts[0], end, *texts[1], end]
    types = [0] * (len(texts[0]) + 2) + [1] * (len(texts[1]) + 1)
    return own.encoder.encode(torch.tensor(ids), Rows.build([len(ids)]), torch.tensor(types))[0]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"encoder": encoder(pooling="pooler"), "chunk_tokens": 90},
        {"encoder": encoder(pooling="mean", max_tokens=22)},
        {"encoder": encoder(max_tokens=9)},
        {"features": "head"},
        {"features": "head", "feature_layers": 1},
        {"features": "head", "years": False},
        {"features": "head", "context_features": True},
    ],
    ids=lambda config: ", ".join(config) or "plain",
)
@torch.no_grad()
def test_states_are_those_of_each_pair_by_itself(config: dict[str, object]) -> None:
    own, tree = model(**config), chat(13, 5)  # pyright: ignore[reportArgumentType]
    expected = plainly(own, tree, PIECES, lambda target, candidate: state(own, target, candidate))
    found = own(batch_of(read(tree, input=PIECES), context_features=own.reads_context_features))
    assert found.shape[1] == own.out_dim
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_both_texts_fit() -> None:
    lengths = np.array([(one, other) for one in range(12) for other in range(12)])
    for room in range(2, 24):
        one, other = fit_texts(lengths[:, 0], lengths[:, 1], room)
        assert (one + other == np.minimum(lengths.sum(1), room)).all()
        # What is cut is the longer one; both are cut to the same length, or to one token less.
        cut = np.stack([one, other], axis=1) < lengths
        assert (abs(one - other)[cut.all(1)] <= 1).all()
        assert (one >= other)[cut[:, 0] & ~cut[:, 1]].all()
        assert (other >= one - 1)[cut[:, 1] & ~cut[:, 0]].all()


def test_chunks_do_not_change_states_or_gradients() -> None:
    check_parts(model, PIECES)


def test_pair_does_not_depend_on_the_batch() -> None:
    check_batches(model(), PIECES)


def test_gold_links_change_no_state() -> None:
    check_gold(model(features="head"), PIECES)


@pytest.mark.parametrize("config", [{}, {"features": "head", "years": False}], ids=str)
def test_saved_model_scores_equally(config: dict[str, object], tmp_path: Path) -> None:
    check_saved(model(**config), PIECES, tmp_path)  # pyright: ignore[reportArgumentType]


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    "values",
    [
        {"feature_hidden": 0},
        {"feature_layers": 0},
        {"dropout": 1.0},
        {"chunk_tokens": 0},
        {"features": "input"},
        {"years": 1},
        {"context_features": True},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(RamifyError, match=rf"model\.{next(iter(values))}"):
        BertPairConfig(**values)  # pyright: ignore[reportArgumentType]


def test_encoders_too_small_for_pairs_are_refused() -> None:
    with pytest.raises(RamifyError, match="type_vocab_size=1 is too small"):
        BertPairConfig(encoder=encoder(type_vocab_size=1))
    with pytest.raises(RamifyError, match="max_tokens=4 is too small"):
        BertPairConfig(encoder=encoder(max_tokens=4))


def test_whole_words_are_refused() -> None:
    own = model()
    own.check_input(PIECES)
    with pytest.raises(RamifyError, match=r"input\.texts=pieces"):
        own.check_input(WORDS)
    with pytest.raises(RamifyError, match=r"input\.texts=pieces"):
        own.check_input(replace(PIECES, texts="words"))
